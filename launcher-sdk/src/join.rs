//! Turns a join token into a client directory.

use std::path::{Path, PathBuf};

use rms_model::{Identity, Role};
use rms_wire::{JoinError, LinkError, TokenText};
use thiserror::Error;

use crate::dir::{CONFIG_FILE, ClientConfig, DirError};

/// Why a token made no client directory.
#[derive(Debug, Error)]
pub enum JoinFailure {
    /// The directory is a client directory already.
    #[error("{} belongs to a cluster already", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
    },
    /// The token is not for people.
    #[error("this token is for {0}: it is of no use to people")]
    WrongRole(Identity),
    /// The server's address leads nowhere.
    #[error(transparent)]
    Address(#[from] LinkError),
    /// The server gave no certificate.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The directory cannot be written.
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Redeems `token` and makes `dir` the client directory of whom it names. A token is good for one try.
///
/// # Errors
/// See [`JoinFailure`]; the token is not spent if the directory is taken already.
pub async fn join(token: &TokenText, dir: &Path) -> Result<Identity, JoinFailure> {
    if dir.join(CONFIG_FILE).exists() {
        return Err(JoinFailure::Taken { dir: dir.to_owned() });
    }
    let address = rms_wire::link::resolve(token.address()).await?;
    let joined = rms_wire::join(address, token, None).await?;
    let identity = joined.credentials.identity().clone();
    match identity.role {
        Role::User | Role::Admin => {}
        Role::Server | Role::Agent | Role::Job => return Err(JoinFailure::WrongRole(identity)),
    }
    let saved = joined.credentials.save(dir);
    saved.map_err(|source| DirError::Credentials { dir: dir.to_owned(), source })?;
    ClientConfig { server: token.address().to_owned() }.save(dir)?;
    Ok(identity)
}
