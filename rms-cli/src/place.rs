//! Finds the client directory, which determines the server and the identity to use.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The parts of the environment that determine where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// `$RMS_DIR`.
    pub rms_dir: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or its default.
    pub state: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or its default.
    pub config: Option<PathBuf>,
}

impl Places {
    pub fn look() -> Places {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HOME");
        let under_home = |dir: &str| home.as_ref().map(|home| home.join(dir));
        Places {
            rms_dir: path("RMS_DIR"),
            state: path("XDG_STATE_HOME").or_else(|| under_home(".local/state")),
            config: path("XDG_CONFIG_HOME").or_else(|| under_home(".config")),
            home,
        }
    }

    /// Returns the directory of `rms up` and `rms down` when none is named: that of `$RMS_DIR`, else the usual one.
    ///
    /// # Errors
    /// `$RMS_DIR` names something else, or there is no home directory.
    pub fn up_dir(&self) -> Result<PathBuf, Failure> {
        let Some(dir) = &self.rms_dir else { return self.embedded() };
        // The client directory of the cluster leads to the cluster, too.
        if let Some(root) = dir.to_str().and_then(|dir| dir.trim_end_matches('/').strip_suffix(EMBEDDED_CLIENT))
            && !root.is_empty()
        {
            return Ok(PathBuf::from(root));
        }
        if is_there(&dir.join(launcher_sdk::CONFIG_FILE))? {
            let what =
                format!("RMS_DIR names {}, which is no cluster of 'rms up' but the way to another", dir.display());
            return Err(
                Failure::new("not_ours", what).hint("unset RMS_DIR, or name the cluster's directory with --dir")
            );
        }
        Ok(dir.clone())
    }

    fn embedded(&self) -> Result<PathBuf, Failure> {
        let state = self.state.as_ref().ok_or_else(|| no_home("--dir DIR"))?;
        Ok(state.join("limber/up"))
    }

    /// Returns the directory of `rms join` when none is named: that of `$RMS_DIR`, else the usual one.
    ///
    /// # Errors
    /// `$RMS_DIR` names a cluster of `rms up`, or there is no home directory.
    pub fn to_join(&self) -> Result<PathBuf, Failure> {
        let Some(dir) = &self.rms_dir else { return self.joined() };
        if is_there(&dir.join(EMBEDDED_CLIENT))? {
            let what = format!("RMS_DIR names {}, a cluster of 'rms up', which has a client of its own", dir.display());
            return Err(Failure::new("taken", what).hint("unset RMS_DIR, or name another directory with --dir"));
        }
        Ok(dir.clone())
    }

    fn joined(&self) -> Result<PathBuf, Failure> {
        let config = self.config.as_ref().ok_or_else(|| no_home("--dir DIR"))?;
        Ok(config.join("limber"))
    }

    /// Returns the client directory: `named`, `$RMS_DIR`, the embedded cluster, the one of `rms join`, the system's.
    ///
    /// # Errors
    /// None of them is a client directory; the message says what to do.
    pub fn client(&self, named: Option<&Path>) -> Result<PathBuf, Failure> {
        if let Some(dir) = named {
            return client_in(dir)?.ok_or_else(|| no_client(dir, "--dir names"));
        }
        if let Some(dir) = &self.rms_dir {
            return client_in(dir)?.ok_or_else(|| no_client(dir, "RMS_DIR names"));
        }
        let usual = [self.embedded().ok(), self.joined().ok(), Some(PathBuf::from(SYSTEM))];
        for dir in usual.into_iter().flatten() {
            if let Some(client) = client_in(&dir)? {
                return Ok(client);
            }
        }
        Err(Failure::new("no_cluster", "this account belongs to no cluster yet")
            .hint("start one on this machine with 'rms up', or join one with 'rms join TOKEN'"))
    }
}

/// Returns `dir` if it is a client directory, or the one of the embedded cluster in `dir`.
fn client_in(dir: &Path) -> Result<Option<PathBuf>, Failure> {
    for dir in [dir.to_owned(), dir.join(EMBEDDED_CLIENT)] {
        if is_there(&dir.join(launcher_sdk::CONFIG_FILE))? {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

/// Returns whether there is such a file. A file that may not be looked up does not count as missing.
///
/// # Errors
/// A directory on the path cannot be searched, for example.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    launcher_sdk::is_there(path).map_err(|error| Failure::from(launcher_sdk::ConnectError::Dir(error)))
}

fn no_client(dir: &Path, who: &str) -> Failure {
    Failure::new("no_cluster", format!("{who} {}, which is no client directory", dir.display())).hint(
        "it must hold client.toml and certificates: make it with 'rms join TOKEN --dir DIR' or 'rms up --dir DIR'",
    )
}

fn no_home(instead: &str) -> Failure {
    Failure::new("no_home", "there is no home directory (HOME is not set)").hint(format!("say where: {instead}"))
}

/// Where an embedded cluster keeps the client directory of its admin.
pub const EMBEDDED_CLIENT: &str = "server/admin";
const SYSTEM: &str = "/etc/limber/client";

#[cfg(test)]
mod tests {
    use super::*;

    fn client_dir(dir: &Path) {
        std::fs::create_dir_all(dir).expect("a directory");
        std::fs::write(dir.join(launcher_sdk::CONFIG_FILE), "").expect("a file");
    }

    #[test]
    fn the_more_specific_place_wins() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let places = Places { state: Some(at("state")), config: Some(at("config")), ..Places::default() };
        assert!(places.client(None).expect_err("nothing there").hint.is_some_and(|hint| hint.contains("rms up")));
        client_dir(&at("config/limber"));
        assert_eq!(places.client(None), Ok(at("config/limber")));
        client_dir(&at("state/limber/up/server/admin"));
        assert_eq!(places.client(None), Ok(at("state/limber/up/server/admin")));
        client_dir(&at("mine"));
        let places = Places { rms_dir: Some(at("mine")), ..places };
        assert_eq!(places.client(None), Ok(at("mine")));
        assert_eq!(places.client(Some(&at("state/limber/up"))), Ok(at("state/limber/up/server/admin")));
    }

    #[test]
    fn what_rms_dir_leads_to_is_what_up_and_down_mean() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let places = Places { state: Some(at("state")), rms_dir: Some(at("play")), ..Places::default() };
        assert_eq!(places.up_dir(), Ok(at("play")), "there, or nowhere");
        assert_eq!(places.to_join(), Ok(at("play")));
        client_dir(&at("play/server/admin"));
        assert_eq!(places.up_dir(), Ok(at("play")));
        assert!(places.to_join().expect_err("it has a client").message.contains("a cluster of 'rms up'"));
        let inside = Places { rms_dir: Some(at("play/server/admin")), ..places };
        assert_eq!(inside.up_dir().map(|dir| dir.join("")), Ok(at("play").join("")), "the way to it is the cluster's");
        client_dir(&at("joined"));
        let elsewhere = Places { rms_dir: Some(at("joined")), ..inside };
        assert!(elsewhere.up_dir().expect_err("that cluster is not ours").message.contains("no cluster of 'rms up'"));
    }

    /// Read permissions do not restrict root, so the test looks as another user where it can.
    #[test]
    fn what_may_not_be_looked_for_is_not_called_missing() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().expect("a directory");
        client_dir(&root.path().join("closed/limber"));
        let is_root = nix::unistd::geteuid().is_root();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root.path(), mode).expect("it is ours");
        std::fs::set_permissions(root.path().join("closed"), std::fs::Permissions::from_mode(0o700)).expect("ours");
        let closed = root.path().join("closed/limber");
        let look = move || Places { rms_dir: Some(closed.clone()), ..Places::default() }.client(None);
        if !is_root {
            std::fs::set_permissions(root.path().join("closed"), std::fs::Permissions::from_mode(0o000)).expect("ours");
        }
        // A thread can have its own identity for file access.
        let looked = std::thread::spawn(move || {
            if is_root {
                nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            }
            look()
        });
        let failure = looked.join().expect("it only looks").expect_err("it may not look in there");
        assert!(failure.message.contains("ermission denied"), "{failure:?}");
    }

    #[test]
    fn a_named_place_is_never_passed_over() {
        let places = Places { rms_dir: Some("/nowhere".into()), ..Places::default() };
        assert!(places.client(None).expect_err("no such place").message.contains("RMS_DIR names /nowhere"));
    }
}
