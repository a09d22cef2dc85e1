//! A key that was just made here and asks for its first certificate; serial numbers for certificates.

use data_encoding::HEXLOWER;
use rand::Rng as _;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ED25519};
use thiserror::Error;

use super::credentials::{Credentials, CredentialsError};

/// A private key that has never left this process. `Debug` does not show it.
#[derive(Debug)]
pub struct NewKey {
    pair: KeyPair,
    csr: Vec<u8>,
}

/// Why no key could be made.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("cannot make a key")]
    Generate(#[source] rcgen::Error),
    #[error("cannot make a certificate signing request")]
    Request(#[source] rcgen::Error),
}

impl NewKey {
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<NewKey, KeyError> {
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(KeyError::Generate)?;
        let mut params = CertificateParams::default();
        // The request only proves that we hold the key; who we are, the authority decides.
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&pair).map_err(KeyError::Request)?.der().to_vec();
        Ok(NewKey { pair, csr })
    }

    /// The certificate signing request, in DER.
    pub fn csr_der(&self) -> &[u8] {
        &self.csr
    }

    /// Joins the key with the certificates that were issued for it, both in PEM.
    ///
    /// # Errors
    /// Texts that are not certificates, or certificates that are not of this key, of this CA or of anybody.
    pub fn into_credentials(self, chain: &str, ca: &str) -> Result<Credentials, CredentialsError> {
        Credentials::new(&self.pair.serialize_pem(), chain, ca)
    }
}

/// A random serial for a certificate: 128 bits in lower-case hexadecimal, positive and without leading zeros.
pub fn draw_serial() -> String {
    let mut bytes = [0_u8; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[0] = bytes[0] & 0x7f | 0x40;
    HEXLOWER.encode(&bytes)
}
