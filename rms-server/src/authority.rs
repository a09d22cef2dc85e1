//! Signs the certificates that the core orders, and renews the server's own certificate.

use std::path::PathBuf;
use std::time::Duration;

use rms_model::token::Issued;
use rms_model::{Identity, Role, Span, Time};
use rms_wire::Endpoint;
use rms_wire::tls::{Authority, AuthorityError, Credentials, CredentialsError, KeyError, NewKey, draw_serial};
use thiserror::Error;

use crate::clock::Clock;
use crate::inbox::SignOrder;
use rms_model::error::chain;

/// A signed certificate chain and its CA, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub chain: String,
    pub ca: String,
}

/// Why the server has no certificate of its own.
#[derive(Debug, Error)]
pub enum OwnCertificateError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Certificates are valid from a little before they are made, for peers whose clocks are behind.
const BACKDATED: Span = Span::from_mins(5);

/// Signs a certificate as the core has decided; only the key is taken from the request.
///
/// # Errors
/// The request cannot be parsed.
pub fn sign(authority: &Authority, order: &SignOrder) -> Result<Signed, AuthorityError> {
    let Issued { identity, serial, issued, expires, .. } = &order.issued;
    let chain = authority.sign(&order.csr, identity, serial, *issued - BACKDATED, *expires)?;
    Ok(Signed { chain, ca: authority.ca_pem().to_owned() })
}

/// Makes a new key and a certificate for `identity`.
///
/// # Errors
/// No randomness, or an unusable authority.
pub fn issue(
    authority: &Authority,
    identity: &Identity,
    now: Time,
    life: Span,
) -> Result<Credentials, OwnCertificateError> {
    let key = NewKey::generate()?;
    let chain = authority.sign(key.csr_der(), identity, &draw_serial(), now - BACKDATED, now + life)?;
    Ok(key.into_credentials(&chain, authority.ca_pem())?)
}

/// Returns the server's identity in its own certificate.
pub fn server_identity() -> Identity {
    Identity { role: Role::Server, name: "server".to_owned() }
}

/// Returns the time at which the server issued these credentials to itself.
pub fn issued_at(own: &Credentials) -> Time {
    own.issued() + BACKDATED
}

/// The server's own certificate: renewed after two thirds of its lifetime.
#[derive(Debug)]
pub struct OwnCertificate {
    dir: PathBuf,
    life: Span,
    credentials: Credentials,
}

impl OwnCertificate {
    /// Loads the server's own certificate.
    ///
    /// # Errors
    /// Unreadable or damaged files.
    pub fn load(dir: PathBuf, life: Span) -> Result<OwnCertificate, CredentialsError> {
        let credentials = Credentials::load(&dir)?;
        Ok(OwnCertificate { dir, life, credentials })
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Renews the certificate if it is due, as after a long downtime, or if the authority has changed.
    ///
    /// # Errors
    /// The certificate cannot be made or saved.
    pub fn renew_if_due(&mut self, authority: &Authority, now: Time) -> Result<(), OwnCertificateError> {
        let is_of_authority = self.credentials.authorities() == authority.authorities();
        if now < self.due() && is_of_authority {
            return Ok(());
        }
        let credentials = issue(authority, &server_identity(), now, self.life)?;
        credentials.save(&self.dir)?;
        tracing::info!(serial = credentials.serial(), "the server has a new certificate");
        self.credentials = credentials;
        Ok(())
    }

    fn due(&self) -> Time {
        let (issued, expires) = (self.credentials.issued(), self.credentials.expires());
        issued + Span::from_millis(expires.since(issued).as_millis() / 3 * 2)
    }

    /// Renews the certificate whenever it is due; never returns. A failed renewal is retried after a while.
    pub async fn keep_renewed(mut self, authority: &Authority, endpoint: &Endpoint) {
        let mut clock = Clock::start();
        loop {
            let wait = self.due().since(clock.now()).to_std();
            tokio::time::sleep(wait.max(SHORTEST_WAIT)).await;
            let renewed = self.renew_if_due(authority, clock.now()).map_err(|error| chain(&error));
            let rotated = renewed.and_then(|()| endpoint.rotate(&self.credentials).map_err(|error| chain(&error)));
            if let Err(error) = rotated {
                tracing::error!(error, "the server's certificate was not renewed");
            }
        }
    }
}

/// The shortest time between two attempts, after a failure.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_certificate_is_renewed_when_two_thirds_of_its_life_are_over() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let now = Clock::start().now();
        let authority = Authority::create(&dir.path().join("ca"), "test", now).expect("an authority");
        let own_dir = dir.path().join("server");
        let life = Span::from_hours(3);
        issue(&authority, &server_identity(), now, life)
            .and_then(|first| Ok(first.save(&own_dir)?))
            .expect("a certificate");

        let mut own = OwnCertificate::load(own_dir.clone(), life).expect("a certificate");
        let first = own.credentials().serial().to_owned();
        own.renew_if_due(&authority, now + Span::from_mins(110)).expect("an authority");
        assert_eq!(own.credentials().serial(), first);
        own.renew_if_due(&authority, now + Span::from_mins(130)).expect("an authority");
        assert_ne!(own.credentials().serial(), first);
        let saved = Credentials::load(&own_dir).expect("a certificate");
        assert_eq!(saved.serial(), own.credentials().serial());
    }
}
