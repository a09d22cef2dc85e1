//! Decides during the handshake whether a certificate is accepted.

use std::sync::Arc;

use rms_model::{Identity, Role};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use thiserror::Error as ThisError;

use super::peer::{Peer, fingerprint};
use super::revoked::Revoked;
use rms_model::error::chain;

/// The identity that a client expects of its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    pub role: Role,
    /// Absent for any peer of that role.
    pub name: Option<String>,
}

impl Expect {
    pub fn server() -> Expect {
        Expect { role: Role::Server, name: None }
    }

    pub fn agent(name: &str) -> Expect {
        Expect { role: Role::Agent, name: Some(name.to_owned()) }
    }

    pub fn admits(&self, identity: &Identity) -> bool {
        identity.role == self.role && self.name.as_ref().is_none_or(|name| *name == identity.name)
    }
}

impl std::fmt::Display for Expect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.role),
            None => write!(f, "any {}", self.role),
        }
    }
}

#[derive(Debug, ThisError)]
enum Rejection {
    #[error("its certificate is not from a CA that is trusted here")]
    OtherCa,
    #[error("the certificate is of deployment {actual}, not of {expected}")]
    Deployment { expected: String, actual: String },
    #[error("{actual} answers where {expected} was expected")]
    Peer { expected: Expect, actual: Identity },
    #[error(
        "the CA is not the one that the token names: this is not the server that made it, or its CA was changed since; ask for \
         a new token"
    )]
    Fingerprint,
    #[error("the CA was changed after the token was made: ask for a new token")]
    ChangedCa,
}

/// The check that all certificates share: the peer belongs to this deployment and is not revoked.
#[derive(Clone, Debug)]
pub struct Membership {
    pub deployment: String,
    pub revoked: Revoked,
}

impl Membership {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<Peer, Error> {
        let peer = Peer::of(certificate).map_err(rejected)?;
        if peer.deployment != self.deployment {
            let expected = self.deployment.clone();
            return Err(rejected(Rejection::Deployment { expected, actual: peer.deployment }));
        }
        if self.revoked.contains(&peer.serial) {
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        Ok(peer)
    }
}

/// Checks a client's certificate: the chain as rustls does, then the membership in the deployment.
#[derive(Debug)]
pub struct ClientVerifier {
    pub chain: Arc<dyn ClientCertVerifier>,
    pub membership: Membership,
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(certificate, intermediates, now)?;
        self.membership.check(certificate)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Checks a server's certificate by the role and the name in its URI; DNS names do not matter.
#[derive(Debug)]
pub struct ServerVerifier {
    pub trust: Trust,
    pub expect: Expect,
    pub algorithms: WebPkiSupportedAlgorithms,
}

/// How a server's certificate is trusted.
#[derive(Debug)]
pub enum Trust {
    /// By the signature of the CA that is stored.
    Ca { roots: RootCertStore, membership: Membership },
    /// Before a CA is stored: by the signature of the CA that a token pins, which the server sends along.
    Fingerprint(String),
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let peer = match &self.trust {
            Trust::Ca { roots, membership } => {
                let algorithms = self.algorithms.all;
                let signed = verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms);
                signed.map_err(|error| or_of_other_ca(error, Rejection::OtherCa))?;
                membership.check(certificate)?
            }
            Trust::Fingerprint(pinned) => {
                let is_pinned = |ca: &&CertificateDer<'_>| fingerprint(ca) == *pinned;
                let ca = intermediates.iter().find(is_pinned).ok_or_else(|| rejected(Rejection::Fingerprint))?;
                let mut roots = RootCertStore::empty();
                roots.add(ca.clone().into_owned())?;
                let signed = verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, self.algorithms.all);
                signed.map_err(|error| or_of_other_ca(error, Rejection::ChangedCa))?;
                Peer::of(certificate).map_err(rejected)?
            }
        };
        if !self.expect.admits(&peer.identity) {
            let expected = self.expect.clone();
            return Err(rejected(Rejection::Peer { expected, actual: peer.identity }));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the rejection instead of an error that means that another CA has signed.
fn or_of_other_ca(error: Error, rejection: Rejection) -> Error {
    match error {
        // CAs of one deployment have one name, so that only the signature tells them apart.
        Error::InvalidCertificate(CertificateError::BadSignature | CertificateError::UnknownIssuer) => {
            rejected(rejection)
        }
        other => other,
    }
}

fn rejected(reason: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(ReasonText(chain(&reason))))))
}

/// A reason whose `Debug` is its text, because rustls prints custom errors with `Debug`.
#[derive(ThisError)]
#[error("{0}")]
struct ReasonText(String);

impl std::fmt::Debug for ReasonText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
