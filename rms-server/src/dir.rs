//! The data directory: its paths, its lock, and atomic writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// The paths of one deployment.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
}

impl DataDir {
    pub fn new(root: &Path) -> DataDir {
        DataDir { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the directory of the log, its snapshot and the history.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Returns the path of the certificate authority with its key.
    pub fn authority(&self) -> PathBuf {
        self.root.join("ca")
    }

    /// Returns the path of the server's own certificate and key.
    pub fn credentials(&self) -> PathBuf {
        self.root.join("server")
    }

    /// Returns the path of the client directory for the first admin, made by `init`.
    pub fn admin(&self) -> PathBuf {
        self.root.join("admin")
    }

    /// Returns the path of the default configuration file.
    pub fn config(&self) -> PathBuf {
        self.root.join("rms-server.toml")
    }

    /// Returns the path of the file in which the running server writes the address on which it listens.
    pub fn address(&self) -> PathBuf {
        self.root.join("address")
    }

    /// Returns the path of the local socket of the running server, unless its configuration or its systemd unit names
    /// another one.
    pub fn socket(&self) -> PathBuf {
        self.root.join("socket")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
}

/// Why a data directory cannot be locked.
#[derive(Debug, Error)]
pub enum LockError {
    #[error("{dir} is in use by the server with process id {pid}: stop that one first", dir = dir.display())]
    Held { dir: PathBuf, pid: String },
    #[error("{dir} is not a data directory: create it with 'rms-server init --dir {dir}'", dir = dir.display())]
    NoDirectory { dir: PathBuf },
    #[error("cannot access {dir}", dir = dir.display())]
    Unreachable { dir: PathBuf, source: io::Error },
    #[error("cannot lock {path}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Keeps other servers from using the directory. The kernel releases the lock when the process ends, however it ends.
#[derive(Debug)]
pub struct DirLock {
    _file: Flock<File>,
}

impl DirLock {
    /// Locks the directory.
    ///
    /// # Errors
    /// Another process has the lock, or there is no such directory.
    pub fn acquire(dir: &DataDir) -> Result<DirLock, LockError> {
        let path = dir.lock();
        let of_io = |source| LockError::Io { path: path.clone(), source };
        match std::fs::metadata(dir.root()) {
            Ok(found) if found.is_dir() => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LockError::Unreachable { dir: dir.root().to_owned(), source: error });
            }
            Ok(_) | Err(_) => return Err(LockError::NoDirectory { dir: dir.root().to_owned() }),
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        match Flock::lock(file.map_err(of_io)?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                // The process id is only for messages, so it does not matter that a crash may leave an old one.
                file.set_len(0).and_then(|()| file.rewind()).map_err(of_io)?;
                writeln!(file, "{}", std::process::id()).map_err(of_io)?;
                Ok(DirLock { _file: file })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(of_io)?;
                let pid = if pid.trim().is_empty() { "unknown".to_owned() } else { pid.trim().to_owned() };
                Err(LockError::Held { dir: dir.root().to_owned(), pid })
            }
            Err((_, errno)) => Err(of_io(errno.into())),
        }
    }
}

/// Replaces the content of a file; readers see either the old or the new content.
///
/// # Errors
/// The directory cannot be written; the old file stays.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let partial = path.with_extension(format!("partial{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        sync_dir(path)
    };
    let written = write();
    if written.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Copies a file and syncs the copy; its name is durable after [`sync_dir`].
///
/// # Errors
/// The error of the system call.
pub fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

/// Makes a rename in the directory of `path` durable.
///
/// # Errors
/// The error of the system call.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) | None => Path::new("."),
    };
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_is_told_who_has_the_directory() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = DataDir::new(root.path());
        let first = DirLock::acquire(&dir).expect("a free directory");
        let error = DirLock::acquire(&dir).expect_err("a held directory");
        let pid = std::process::id();
        assert_eq!(
            error.to_string(),
            format!("{} is in use by the server with process id {pid}: stop that one first", root.path().display())
        );
        drop(first);
        let _second = DirLock::acquire(&dir).expect("a free directory again");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = DirLock::acquire(&DataDir::new(Path::new("/nowhere/at/all"))).expect_err("no directory");
        assert!(error.to_string().contains("rms-server init --dir /nowhere/at/all"), "{error}");
    }
}
