//! Finds the client directory: which server to speak to, and as whom.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// What of the environment decides where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// `$RMS_DIR`.
    pub rms_dir: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or what stands for it.
    pub state: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or what stands for it.
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

    /// The directory of `rms up` and `rms down` when none is named: the cluster that `$RMS_DIR` leads to, else the
    /// usual one.
    ///
    /// # Errors
    /// No home directory.
    pub fn up_dir(&self) -> Result<PathBuf, Failure> {
        let led_to = self.rms_dir.as_ref().filter(|dir| dir.join(EMBEDDED_CLIENT).is_dir());
        led_to.map_or_else(|| self.embedded(), |dir| Ok(dir.clone()))
    }

    fn embedded(&self) -> Result<PathBuf, Failure> {
        let state = self.state.as_ref().ok_or_else(|| no_home("--dir DIR"))?;
        Ok(state.join("limber/up"))
    }

    /// The directory of `rms join` when none is named.
    ///
    /// # Errors
    /// No home directory.
    pub fn joined(&self) -> Result<PathBuf, Failure> {
        let config = self.config.as_ref().ok_or_else(|| no_home("--dir DIR"))?;
        Ok(config.join("limber"))
    }

    /// The client directory: `named`, `$RMS_DIR`, the embedded cluster, the one of `rms join`, the system's.
    ///
    /// # Errors
    /// None of them is one; the message says what to do.
    pub fn client(&self, named: Option<&Path>) -> Result<PathBuf, Failure> {
        if let Some(dir) = named {
            return client_in(dir).ok_or_else(|| no_client(dir, "--dir names"));
        }
        if let Some(dir) = &self.rms_dir {
            return client_in(dir).ok_or_else(|| no_client(dir, "RMS_DIR names"));
        }
        let usual = [self.embedded().ok(), self.joined().ok(), Some(PathBuf::from(SYSTEM))];
        let found = usual.into_iter().flatten().find_map(|dir| client_in(&dir));
        found.ok_or_else(|| {
            Failure::new("no_cluster", "this account belongs to no cluster yet")
                .hint("start one on this machine with 'rms up', or join one with 'rms join TOKEN'")
        })
    }
}

/// The client directory that `dir` is, or that the embedded cluster in `dir` holds.
fn client_in(dir: &Path) -> Option<PathBuf> {
    [dir.to_owned(), dir.join(EMBEDDED_CLIENT)].into_iter().find(|dir| dir.join(launcher_sdk::CONFIG_FILE).is_file())
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
        assert_eq!(places.up_dir(), Ok(at("state/limber/up")), "it leads to no cluster of 'rms up' yet");
        client_dir(&at("play/server/admin"));
        assert_eq!(places.up_dir(), Ok(at("play")));
    }

    #[test]
    fn a_named_place_is_never_passed_over() {
        let places = Places { rms_dir: Some("/nowhere".into()), ..Places::default() };
        assert!(places.client(None).expect_err("no such place").message.contains("RMS_DIR names /nowhere"));
    }
}
