//! The client directory: the server's address and the client's credentials.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rms_model::{Identity, Role};
use rms_wire::Credentials;
use rms_wire::tls::{CredentialsError, FileError};
use serde::Deserialize;
use thiserror::Error;

/// The file in a client directory that says where the server is.
pub const CONFIG_FILE: &str = "client.toml";

/// The contents of `client.toml`. The server writes it, and commands of other versions read it: keys of a newer version are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClientConfig {
    /// The server as `host:port`.
    pub server: String,
    /// The server's local socket, for programs on its machine; [`SYSTEM_SOCKET`] if absent. A socket that does not exist, or
    /// that belongs to another server, is ignored.
    #[serde(default)]
    pub socket: Option<PathBuf>,
}

/// The socket on which the server of the whole machine listens for programs on that machine.
pub const SYSTEM_SOCKET: &str = "/run/limber/server.sock";

/// Why a directory cannot be used as a client directory.
#[derive(Debug, Error)]
pub enum DirError {
    /// This account has no client directory.
    #[error("no client directory was found: name one in RMS_DIR, or make one with 'rms up' or 'rms join TOKEN'")]
    None,
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `client.toml` has something other than `server = "host:port"` and, optionally, `socket = "/path"`.
    #[error("{} is wrong: it must say server = \"host:port\"", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Line, caret and what was expected.
        source: Box<toml::de::Error>,
    },
    /// The key or the certificates are missing or cannot be used.
    #[error("the certificate in {} is of no use; join again with 'rms join TOKEN'", dir.display())]
    Credentials {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        source: CredentialsError,
    },
    /// The certificate is that of a node or of a server.
    #[error("the certificate in {} is that of {identity}: a client needs one of a user, from 'rms join TOKEN'", dir.display())]
    NotOfUser {
        /// The directory.
        dir: PathBuf,
        /// Whose certificate it is.
        identity: Identity,
    },
}

impl ClientConfig {
    /// Reads `client.toml` in `dir`.
    ///
    /// # Errors
    /// The file is missing or wrong.
    pub fn load(dir: &Path) -> Result<ClientConfig, DirError> {
        let path = dir.join(CONFIG_FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| DirError::Read { path: path.clone(), source })?;
        toml::from_str(&text).map_err(|source| DirError::Config { path, source: Box::new(source) })
    }

    /// Writes `client.toml` in `dir`, which must exist.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), DirError> {
        let path = dir.join(CONFIG_FILE);
        let mut text =
            format!("# Where the server is reached.\nserver = {}\n", toml::Value::from(self.server.as_str()));
        if let Some(socket) = self.socket.as_ref().and_then(|socket| socket.to_str()) {
            writeln!(text, "socket = {}", toml::Value::from(socket)).expect("writing to a string cannot fail");
        }
        // Readers see either the old file or the new one, never a part.
        let aside = dir.join("client.toml.new");
        let written = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, &path));
        written.map_err(|source| DirError::Write { path, source })
    }
}

/// Reads the key and certificates in `dir`.
pub(crate) fn load_credentials(dir: &Path) -> Result<Credentials, DirError> {
    let credentials = Credentials::load(dir).map_err(|error| not_loaded(dir, error))?;
    match credentials.identity().role {
        Role::Admin | Role::User | Role::Job => Ok(credentials),
        Role::Agent | Role::Server => {
            Err(DirError::NotOfUser { dir: dir.to_owned(), identity: credentials.identity().clone() })
        }
    }
}

/// Returns why no credentials were read: files that we have no permission to read say nothing about the certificate.
fn not_loaded(dir: &Path, error: CredentialsError) -> DirError {
    match error {
        CredentialsError::File(FileError::Read { path, source })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            DirError::Read { path, source }
        }
        source => DirError::Credentials { dir: dir.to_owned(), source },
    }
}

/// Finds the client directory that `rms` would use without a flag: what `$RMS_DIR` names (a client directory, or a cluster
/// of `rms up --dir`), else the cluster of `rms up`, else the one that was joined, else the system's.
///
/// # Errors
/// There is no client directory.
pub fn find_client_dir() -> Result<PathBuf, DirError> {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = path("HOME");
    let under = |variable: &str, dir: &str| path(variable).or_else(|| home.as_ref().map(|home| home.join(dir)));
    let places = match path("RMS_DIR") {
        // A directory named by the user is the only candidate.
        Some(named) => vec![named],
        None => {
            let up = under("XDG_STATE_HOME", ".local/state").map(|state| state.join("limber/up"));
            let joined = under("XDG_CONFIG_HOME", ".config").map(|config| config.join("limber"));
            [up, joined, Some(PathBuf::from("/etc/limber/client"))].into_iter().flatten().collect()
        }
    };
    let clients = places.iter().flat_map(|dir| [dir.clone(), dir.join("server/admin")]);
    for dir in clients {
        if is_there(&dir.join(CONFIG_FILE))? {
            return Ok(dir);
        }
    }
    Err(DirError::None)
}

/// Returns whether the file exists. A file that we have no permission to look for is an error, not a missing file.
///
/// # Errors
/// For example, a directory on the path may not be searched.
pub fn is_there(path: &Path) -> Result<bool, DirError> {
    match path.try_exists() {
        // A component of the path is a file, so the path does not exist.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(false),
        found => found.map_err(|source| DirError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_server_says_besides_is_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "server = 'node1:7117'\nstandby = 'node2:7117'\n[trace]\nsample = 3\n";
        std::fs::write(dir.path().join(CONFIG_FILE), text).expect("written");
        let expected = ClientConfig { server: "node1:7117".into(), socket: None };
        assert_eq!(ClientConfig::load(dir.path()).expect("loaded"), expected);
    }

    #[test]
    fn a_missing_key_is_of_no_use_and_one_that_may_not_be_read_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = load_credentials(dir.path()).expect_err("no certificate");
        assert!(matches!(missing, DirError::Credentials { .. }), "{missing}");
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let denied = FileError::Read { path: dir.path().join("key.pem"), source };
        let denied = not_loaded(dir.path(), denied.into());
        assert!(denied.to_string().ends_with("key.pem cannot be read"), "{denied}");
    }

    #[test]
    fn a_config_reads_back_and_mistakes_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        for socket in [None, Some("/srv/limber/socket".into())] {
            let config = ClientConfig { server: "node1:7117".into(), socket };
            config.save(dir.path()).expect("saved");
            assert_eq!(ClientConfig::load(dir.path()).expect("loaded"), config);
        }
        std::fs::write(dir.path().join(CONFIG_FILE), "sever = 'x'\n").expect("written");
        let error = ClientConfig::load(dir.path()).expect_err("a typo");
        assert!(matches!(error, DirError::Config { .. }), "{error}");
    }
}
