//! A key that was just made here and asks for its first certificate; serial numbers for certificates.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rand::Rng as _;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ED25519};
use rustls_pki_types::PrivatePkcs8KeyDer;
use thiserror::Error;

use super::credentials::{Credentials, CredentialsError};
use super::files::{self, Access, FileError};

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
    #[error("cannot read the key of an unfinished join: remove {} and ask for a new token", path.display())]
    Kept { path: PathBuf, source: rcgen::Error },
    #[error(transparent)]
    File(#[from] FileError),
}

impl NewKey {
    /// # Errors
    /// What was drawn is no key.
    pub fn generate() -> Result<NewKey, KeyError> {
        let mut seed = [0_u8; 32];
        rand::rng().fill_bytes(&mut seed);
        let der = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], &seed].concat());
        NewKey::of(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).map_err(KeyError::Generate)?)
    }

    /// The key that an earlier attempt to join left in `dir`, or a new one, which is written there before anything is
    /// asked for it.
    ///
    /// # Errors
    /// As [`NewKey::generate`], and a directory that cannot be read or written.
    pub fn kept(dir: &Path) -> Result<NewKey, KeyError> {
        let path = dir.join(JOINING_KEY_FILE);
        let is_there = path.try_exists().map_err(|source| FileError::Read { path: path.clone(), source })?;
        if is_there {
            let pair = KeyPair::from_pem(&files::read(&path)?);
            return NewKey::of(pair.map_err(|source| KeyError::Kept { path, source })?);
        }
        let key = NewKey::generate()?;
        files::make_dir(dir)?;
        files::write(&path, &key.pair.serialize_pem(), Access::Owner)?;
        Ok(key)
    }

    /// The key that [`NewKey::kept`] has written is kept elsewhere now.
    pub(crate) fn forget(dir: &Path) -> Result<(), FileError> {
        files::remove(&dir.join(JOINING_KEY_FILE))
    }

    fn of(pair: KeyPair) -> Result<NewKey, KeyError> {
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

/// The key of a join that was not answered yet.
const JOINING_KEY_FILE: &str = "key.joining.pem";

/// What precedes the seed of an Ed25519 key in PKCS #8, version 1. The key pairs that `generate` would make are of
/// version 2, with the public key behind the seed, and neither OpenSSL 3.0 nor what is built on it reads those: a
/// client in another language could not use the credentials that it was given.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A random serial for a certificate: 128 bits in lower-case hexadecimal, positive and without leading zeros.
pub fn draw_serial() -> String {
    let mut bytes = [0_u8; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[0] = bytes[0] & 0x7f | 0x40;
    HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_written_as_every_library_reads_them() {
        let key = NewKey::generate().expect("a key");
        let der = key.pair.serialize_der();
        assert_eq!((der.len(), &der[..16]), (48, &PKCS8_ED25519[..]), "PKCS #8 of version 1, and nothing but the seed");
        assert_ne!(der, NewKey::generate().expect("another key").pair.serialize_der());
    }

    #[test]
    fn the_key_of_a_join_is_kept_until_it_ends() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let dir = dir.path().join("credentials");
        let kept = || NewKey::kept(&dir).expect("a key").pair.serialize_der();
        let first = kept();
        assert_eq!((first.len(), &first[..16]), (48, &PKCS8_ED25519[..]));
        assert_eq!(kept(), first, "the same after a crash");
        let mode = std::fs::metadata(dir.join(JOINING_KEY_FILE)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        NewKey::forget(&dir).expect("removed");
        assert_ne!(kept(), first, "the next join has a key of its own");
        std::fs::write(dir.join(JOINING_KEY_FILE), "no key").expect("written");
        let error = NewKey::kept(&dir).expect_err("it is damaged").to_string();
        assert!(error.contains("key.joining.pem"), "{error}");
    }
}
