//! Turns a join token into a client directory.

use std::path::{Path, PathBuf};

use rms_model::{Identity, Role};
use rms_wire::{Credentials, Joiner, LinkError, TokenText};
use thiserror::Error;

use crate::dir::{CONFIG_FILE, ClientConfig, DirError, is_there};

/// Why a token could not be turned into a client directory.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The directory is a client directory of another cluster.
    #[error("{} is the way of {who} to another cluster (deployment {deployment})", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// The identity in it.
        who: Identity,
        /// The deployment to which it belongs.
        deployment: String,
    },
    /// The token is not for users or admins.
    #[error("this token is for {0}: it is of no use to people")]
    WrongRole(Identity),
    /// The server's address cannot be resolved.
    #[error(transparent)]
    Address(#[from] LinkError),
    /// The server gave no certificate.
    #[error(transparent)]
    Join(#[from] rms_wire::JoinError),
    /// The directory cannot be written.
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// The owner of a new client directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The user or admin.
    pub identity: Identity,
    /// The previous owner of the directory, at the same cluster. That certificate is revoked if `identity` is the same;
    /// that of another identity stays valid until it expires or is revoked.
    pub replaced: Option<Identity>,
}

/// Redeems `token` and makes `dir` the client directory of the user or admin whom it names. Until the token expires, a
/// call whose answer was lost can be repeated with the same `dir`, which keeps the key. If `dir` belongs to the same
/// cluster already, the new certificate replaces the old one, which is revoked if it is of the same identity; with
/// `replace`, also if `dir` belongs to another cluster, whose certificate stays valid there.
///
/// # Errors
/// See [`JoinError`]; the token is not used up if the directory is taken.
pub async fn join(token: &TokenText, dir: &Path, replace: bool) -> Result<Joined, JoinError> {
    // Credentials that cannot be used need not be kept.
    let old = if is_there(&dir.join(CONFIG_FILE))? { Credentials::load(dir).ok() } else { None };
    let old = match old {
        Some(old) if old.trusts(token.fingerprint()) => Some(old),
        Some(old) if !replace => {
            let (who, deployment) = (old.identity().clone(), old.deployment().to_owned());
            return Err(JoinError::Taken { dir: dir.to_owned(), who, deployment });
        }
        Some(_) | None => None,
    };
    let address = rms_wire::link::resolve(token.address()).await?;
    let replaces = old.as_ref().map(Credentials::serial);
    let joiner = Joiner { is_agent: Some(false), replaces, ..Joiner::default() };
    let joined = rms_wire::join_in(dir, address, token, joiner).await?;
    let identity = joined.credentials.identity().clone();
    match identity.role {
        Role::User | Role::Admin => {}
        Role::Server | Role::Agent | Role::Job => return Err(JoinError::WrongRole(identity)),
    }
    let unsaved = |source| DirError::Credentials { dir: dir.to_owned(), source };
    joined.credentials.save(dir).map_err(unsaved)?;
    ClientConfig { server: token.address().to_owned(), socket: None }.save(dir)?;
    rms_wire::end_join(dir).map_err(unsaved)?;
    if old.is_some() {
        rms_wire::come_with(address, &joined.credentials).await;
    }
    Ok(Joined { identity, replaced: old.map(|old| old.identity().clone()) })
}
