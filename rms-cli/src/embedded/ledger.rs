//! What `rms up` has created and started, recorded for the next `rms up` and for `rms down`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::process::ProcessRecord;
use crate::failure::Failure;

/// One embedded cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The version of this file's format.
    pub version: u32,
    pub layout: Layout,
    /// The topology of every node; absent: that of the machine.
    pub topology: Option<String>,
    /// Where the server listens; the nodes as well, unless it is a loopback address.
    pub listen: IpAddr,
    /// The name of the cgroups that its jobs run in.
    pub cgroup: String,
    /// Whether the server's data directory is complete.
    pub is_made: bool,
    pub server: Option<ProcessRecord>,
    pub nodes: Vec<NodeRecord>,
    /// Nodes that `rms down --keep` has drained, so that no waiting job starts while running ones are being ended.
    #[serde(default)]
    pub to_resume: Vec<String>,
}

/// One node agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    pub name: String,
    pub cluster: String,
    pub address: IpAddr,
    pub process: Option<ProcessRecord>,
}

pub const VERSION: u32 = 1;

/// The directory of an embedded cluster and the paths in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpDir {
    pub root: PathBuf,
}

impl UpDir {
    pub fn server(&self) -> PathBuf {
        self.root.join("server")
    }

    /// Returns the client directory of the admin.
    pub fn client(&self) -> PathBuf {
        self.root.join(crate::place::EMBEDDED_CLIENT)
    }

    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    pub fn agent(&self, name: &str) -> PathBuf {
        self.agents().join(name)
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Returns the log of the server, or of a node's agent.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    fn ledger(&self) -> PathBuf {
        self.root.join("up.json")
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("up.lock")
    }

    /// Creates the directory for its owner only. If root starts the cluster, jobs run as other users, who must reach
    /// their scripts.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn make(&self) -> Result<(), Failure> {
        let mode = if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 };
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(&self.root);
        made.map_err(|error| Failure::io(format!("{} cannot be made", self.root.display()), error))
    }

    /// Locks out other runs of `rms up` and `rms down`; the kernel releases the lock when this process ends.
    ///
    /// # Errors
    /// Another one is running.
    pub fn lock(&self) -> Result<UpLock, Failure> {
        let path = self.lock_file();
        let of_io = |error: io::Error| Failure::io(format!("{} cannot be locked", path.display()), error);
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(of_io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(UpLock { _file: file }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                Err(Failure::new("busy", format!("another 'rms up' or 'rms down' works in {}", self.root.display()))
                    .hint("wait until it is done"))
            }
            Err((_, errno)) => Err(of_io(errno.into())),
        }
    }

    /// Returns the ledger; `None` if there is no cluster here.
    ///
    /// # Errors
    /// The file is unreadable or of another version.
    pub fn load(&self) -> Result<Option<Ledger>, Failure> {
        let path = self.ledger();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(format!("{} cannot be read", path.display()), error)),
        };
        let ledger: Ledger = serde_json::from_str(&text).map_err(|error| {
            Failure::new("bad_ledger", format!("cannot parse {}: {error}", path.display())).hint(format!(
                "if another version of rms wrote it, stop the cluster with that one; if it is damaged, end the \
                     processes that 'pgrep -f {}' lists, and remove that directory",
                self.root.display()
            ))
        })?;
        Ok(Some(ledger))
    }

    /// Replaces the ledger; readers see the old or the new one.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, ledger: &Ledger) -> Result<(), Failure> {
        let path = self.ledger();
        let draft = path.with_extension("json.new");
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(ledger).map_err(io::Error::other)?)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        write().map_err(|error| Failure::io(format!("{} cannot be written", path.display()), error))
    }

    /// Removes what `rms up` created, and the directory if nothing else is in it.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        let of_io = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| Failure::io(format!("{path} cannot be removed"), error)
        };
        for dir in [self.server(), self.agents(), self.logs()] {
            absent_is_fine(fs::remove_dir_all(&dir)).map_err(of_io(&dir))?;
        }
        for file in [self.ledger(), self.lock_file()] {
            absent_is_fine(fs::remove_file(&file)).map_err(of_io(&file))?;
        }
        // Other files stay, and with them the directory.
        let _ = fs::remove_dir(&self.root);
        Ok(())
    }
}

/// See [`UpDir::lock`].
#[derive(Debug)]
pub struct UpLock {
    _file: Flock<File>,
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_back_and_its_directory_goes_without_strangers_files() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = UpDir { root: root.path().join("up") };
        dir.make().expect("made");
        assert_eq!(dir.load(), Ok(None));
        let ledger = Ledger {
            version: VERSION,
            layout: Layout(vec![("a".into(), 1)]),
            topology: None,
            listen: "127.0.0.1".parse().expect("an address"),
            cgroup: "limber-up-1".into(),
            is_made: true,
            server: Some(ProcessRecord { pid: 7, start_ticks: 9, boot: "b".into() }),
            nodes: Vec::new(),
            to_resume: vec!["a1".into()],
        };
        dir.save(&ledger).expect("saved");
        assert_eq!(dir.load(), Ok(Some(ledger)));
        fs::write(dir.root.join("mine"), "").expect("a stranger's file");
        dir.remove().expect("removed");
        assert_eq!(dir.load(), Ok(None));
        assert!(dir.root.join("mine").exists());
    }

    #[test]
    fn only_one_at_a_time_works_in_a_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = UpDir { root: root.path().to_owned() };
        let first = dir.lock().expect("free");
        assert_eq!(dir.lock().expect_err("taken").kind, "busy");
        drop(first);
        dir.lock().expect("free again");
    }
}
