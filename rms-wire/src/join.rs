//! Redeems a token: from nothing but its text to credentials.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::hello::{JoinAnswer, JoinRequest};
use crate::link::{Endpoint, Expect, JoinChannel, LinkError};
use crate::tls::{Credentials, CredentialsError, KeyError, NewKey};
use crate::token::TokenText;
use rms_api::Refused;

/// What a token gave.
#[derive(Clone, Debug)]
pub struct Joined {
    pub credentials: Credentials,
    /// The cluster that an agent's token names.
    pub cluster: Option<String>,
}

/// Who joins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joiner<'a> {
    /// An agent, or somebody else; a token for the other is refused, and not spent.
    pub is_agent: Option<bool>,
    /// The name that an agent wants, if its token names none.
    pub name: Option<&'a str>,
    /// What its machine calls itself: its name if neither its token nor it names one.
    pub machine: Option<&'a str>,
    /// The certificate whose place the new one takes, by its serial: it is revoked once somebody comes with the new one.
    pub replaces: Option<&'a str>,
}

/// Why a token gave no certificate.
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

/// Makes a key, shows the token to the server at `address`, and returns the credentials it grants. The server
/// must prove itself by the CA that the token pins before anything is shown to it. An agent whose token names
/// none may ask for a `name`.
///
/// # Errors
/// A server that cannot be reached or is not the token's, a token that does not hold, an unusable answer.
pub async fn join(address: SocketAddr, token: &TokenText, name: Option<&str>) -> Result<Joined, JoinError> {
    redeem(address, token, Joiner { name, ..Joiner::default() }, NewKey::generate()?).await
}

/// As [`join`], with a key that `dir` keeps until [`end_join`]: an answer that is lost can be asked for again, since
/// the server gives the certificate to the same key until the token expires.
///
/// # Errors
/// As [`join`], and a directory that cannot be written.
pub async fn join_in(
    dir: &Path,
    address: SocketAddr,
    token: &TokenText,
    joiner: Joiner<'_>,
) -> Result<Joined, JoinError> {
    redeem(address, token, joiner, NewKey::kept(dir)?).await
}

/// What a join into `dir` gave has been written down: its key need not be kept for another attempt.
///
/// # Errors
/// A directory that cannot be written.
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
            // TLS has proven the pinned CA; the one that is kept must be the same.
            let is_pinned = credentials.trusts(token.fingerprint());
            if is_pinned { Ok(Joined { credentials, cluster }) } else { Err(JoinError::Ca) }
        }
        JoinAnswer::Refused(refused) => Err(JoinError::Refused(refused)),
    }
}

/// Connects once with a new certificate after it was saved, so that the server revokes those that it replaces. If that fails,
/// the first command that uses the certificate does it.
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
