//! Extracts the identity from a certificate; the only module that parses SPIFFE URIs.

use data_encoding::HEXLOWER;
use rms_model::identity::{NameError, RoleError, check_name};
use rms_model::{Identity, Role, Time};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The identity in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub deployment: String,
    pub identity: Identity,
    /// Lower-case hexadecimal without leading zero bytes.
    pub serial: String,
    pub issued: Time,
    pub expires: Time,
}

/// Why a certificate has no identity.
#[derive(Debug, Error)]
pub enum PeerError {
    #[error("the certificate cannot be parsed")]
    Unreadable,
    #[error("the certificate names nobody: it needs exactly one URI as its alternative name")]
    NotOneUri,
    #[error("'{uri}' is not of the form spiffe://<deployment>/<role>/<name>")]
    Uri { uri: String },
    #[error("the certificate has an unusable role")]
    Role(#[from] RoleError),
    #[error("the certificate has an unusable name")]
    Name(#[from] NameError),
}

impl Peer {
    /// # Errors
    /// The certificate does not have exactly one well-formed SPIFFE URI with a role and a name.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Peer, PeerError> {
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| PeerError::Unreadable)?;
        let (deployment, identity) = parse_uri(only_uri(&certificate)?)?;
        let serial = certificate.raw_serial();
        let first = serial.iter().position(|byte| *byte != 0).unwrap_or(serial.len());
        let validity = certificate.validity();
        Ok(Peer {
            deployment,
            identity,
            serial: HEXLOWER.encode(&serial[first..]),
            issued: Time::from_secs(validity.not_before.timestamp()),
            expires: Time::from_secs(validity.not_after.timestamp()),
        })
    }
}

/// Returns the bits of a certificate's public key.
pub(super) fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, PeerError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| PeerError::Unreadable)?;
    Ok(certificate.public_key().subject_public_key.data.to_vec())
}

/// Returns the deployment that a CA certificate names: `spiffe://<deployment>`, without a path.
pub(super) fn deployment_of(ca: &CertificateDer<'_>) -> Result<String, PeerError> {
    let (_, certificate) = X509Certificate::from_der(ca).map_err(|_| PeerError::Unreadable)?;
    let uri = only_uri(&certificate)?;
    let deployment = uri.strip_prefix("spiffe://").ok_or_else(|| PeerError::Uri { uri: shorten(uri) })?;
    check_name(deployment)?;
    Ok(deployment.to_owned())
}

/// Returns the URI of an identity.
pub(super) fn uri_of(deployment: &str, identity: &Identity) -> String {
    format!("spiffe://{deployment}/{identity}")
}

/// Returns the SHA-256 over a certificate, in lower-case hexadecimal, as certificate tools print it without colons.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, certificate).as_ref())
}

fn only_uri<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, PeerError> {
    // A duplicate extension is an error here, too.
    let names = certificate.subject_alternative_name().map_err(|_| PeerError::Unreadable)?;
    let names = names.ok_or(PeerError::NotOneUri)?;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => Ok(uri),
        _ => Err(PeerError::NotOneUri),
    }
}

fn parse_uri(uri: &str) -> Result<(String, Identity), PeerError> {
    let malformed = || PeerError::Uri { uri: shorten(uri) };
    let path = uri.strip_prefix("spiffe://").ok_or_else(malformed)?;
    let mut segments = path.split('/');
    let (Some(deployment), Some(role), Some(name), None) =
        (segments.next(), segments.next(), segments.next(), segments.next())
    else {
        return Err(malformed());
    };
    check_name(deployment)?;
    let role: Role = role.parse()?;
    Ok((deployment.to_owned(), Identity::new(role, name)?))
}

/// Shortens text from an unknown peer, so that it is not printed at any length.
fn shorten(uri: &str) -> String {
    uri.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_spiffe_uri_names_a_peer() {
        let (deployment, identity) = parse_uri("spiffe://d1/agent/n1").expect("it is well-formed");
        assert_eq!((deployment.as_str(), identity.to_string().as_str()), ("d1", "agent/n1"));
        let (_, identity) = parse_uri("spiffe://d1/job/7.2").expect("it is well-formed");
        assert_eq!(identity.as_job(), Some((rms_model::JobId(7), rms_model::Run(2))));
        for uri in [
            "",
            "spiffe://",
            "spiffe://d1",
            "spiffe://d1/agent",
            "spiffe://d1/agent/",
            "spiffe://d1/agent/n1/",
            "spiffe://d1/agent/n1/x",
            "spiffe://d1//n1",
            "spiffe:///agent/n1",
            "https://d1/agent/n1",
            "spiffe://d1/root/n1",
            "spiffe://d1/Agent/n1",
            "spiffe://d1/agent/..",
            "spiffe://d1/agent/n%31",
            "spiffe://d1/agent/n1?x",
            "SPIFFE://d1/agent/n1",
        ] {
            assert!(parse_uri(uri).is_err(), "{uri}");
        }
    }
}
