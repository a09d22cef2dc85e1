//! Redeems a token: obtains credentials from the token's text alone.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::hello::{JoinAnswer, JoinRequest};
use crate::link::{Endpoint, Expect, JoinChannel, LinkError};
use crate::tls::{Credentials, CredentialsError, KeyError, NewKey};
use crate::token::TokenText;
use rms_api::Refused;

/// The result of a redeemed token.
#[derive(Clone, Debug)]
pub struct Joined {
    pub credentials: Credentials,
    /// The cluster that an agent's token names.
    pub cluster: Option<String>,
}

/// The peer that joins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joiner<'a> {
    /// Whether an agent joins; a token of the other kind is refused and not used up.
    pub is_agent: Option<bool>,
    /// The name that an agent requests if its token names none.
    pub name: Option<&'a str>,
    /// The machine's own name, which becomes the agent's name if neither its token nor `name` gives one.
    pub machine: Option<&'a str>,
    /// The serial of the certificate that the new one replaces: it is revoked once the new one is used.
    pub replaces: Option<&'a str>,
}

/// Why a token yielded no certificate.
#[derive(Debug, Error)]
pub enum JoinError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot join at {address}")]
    Link { address: SocketAddr, source: LinkError },
    #[error("the server refused: {0}")]
    Refused(Refused),
    #[error("the server sent an unusable certificate")]
    Credentials(#[from] CredentialsError),
    #[error("the server sent a CA that is not the one of the token")]
    Ca,
}

/// Creates a key, presents the token to the server at `address`, and returns the credentials that it grants. The server
/// must first prove itself by the CA that the token pins. An agent whose token has no name may request a `name`.
///
/// # Errors
/// The server cannot be reached or is not the token's, the token is invalid, or the answer is unusable.
pub async fn join(address: SocketAddr, token: &TokenText, name: Option<&str>) -> Result<Joined, JoinError> {
    redeem(address, token, Joiner { name, ..Joiner::default() }, NewKey::generate()?).await
}

/// Like [`join`], with a key that `dir` keeps until [`end_join`]: after a lost answer the call can be repeated, since
/// the server gives the certificate to the same key until the token expires.
///
/// # Errors
/// Those of [`join`]; also if the directory cannot be written.
pub async fn join_in(
    dir: &Path,
    address: SocketAddr,
    token: &TokenText,
    joiner: Joiner<'_>,
) -> Result<Joined, JoinError> {
    redeem(address, token, joiner, NewKey::kept(dir)?).await
}

/// Removes the key of a join into `dir` once its result is stored: no further attempt needs it.
///
/// # Errors
/// The directory cannot be written.
pub fn end_join(dir: &Path) -> Result<(), CredentialsError> {
    Ok(NewKey::forget(dir)?)
}

async fn redeem(
    address: SocketAddr,
    token: &TokenText,
    Joiner { is_agent, name, machine, replaces }: Joiner<'_>,
    key: NewKey,
) -> Result<Joined, JoinError> {
    let of_link = |source| JoinError::Link { address, source };
    let mut channel = JoinChannel::open(address, token.fingerprint()).await.map_err(of_link)?;
    let request = JoinRequest {
        token_id: token.id().to_owned(),
        secret: token.secret().to_vec(),
        name: name.map(str::to_owned),
        machine: machine.map(str::to_owned),
        is_agent,
        csr: key.csr_der().to_vec(),
        replaces: replaces.map(str::to_owned),
    };
    let answer = channel.ask(&request).await;
    channel.close().await;
    match answer.map_err(of_link)? {
        JoinAnswer::Granted { chain, ca, cluster } => {
            let credentials = key.into_credentials(&chain, &ca)?;
            // TLS has verified the pinned CA; the CA that is stored must be the same.
            let is_pinned = credentials.trusts(token.fingerprint());
            if is_pinned { Ok(Joined { credentials, cluster }) } else { Err(JoinError::Ca) }
        }
        JoinAnswer::Refused(refused) => Err(JoinError::Refused(refused)),
    }
}

/// Connects once with a new certificate after it was saved, so that the server revokes those that it replaces. If that
/// fails, the first command that uses the certificate does it.
pub async fn come_with(address: SocketAddr, credentials: &Credentials) {
    let coming = async {
        let endpoint = Endpoint::dial(credentials).ok()?;
        let link = endpoint.connect(address, Expect::server()).await.ok()?;
        link.close("it was joined, and no more");
        endpoint.wait_idle().await;
        Some(())
    };
    let _came = tokio::time::timeout(COMING, coming).await;
}

const COMING: Duration = Duration::from_secs(5);
