//! A key with its certificate and the CA it trusts: what a program needs to connect.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use rms_model::{Identity, Time};
use rustls::SignatureScheme;
use rustls::crypto::ring::default_provider;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use super::files::{self, Access, FileError};
use super::peer::{Peer, PeerError, deployment_of, fingerprint};
use super::pem;

/// The identity of this program. Cheap to clone; `Debug` does not show the key.
#[derive(Clone)]
pub struct Credentials(Arc<Parts>);

struct Parts {
    key_pem: String,
    key: PrivateKeyDer<'static>,
    signing: Arc<dyn SigningKey>,
    chain: Vec<CertificateDer<'static>>,
    /// First the CA that has signed the chain; during a rotation, another trusted one.
    cas: Vec<CertificateDer<'static>>,
    peer: Peer,
}

/// Why a key and certificates do not make credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the key is unusable")]
    Key(#[source] rustls_pki_types::pem::Error),
    #[error("the certificate is unusable")]
    Chain(#[source] rustls_pki_types::pem::Error),
    #[error("the CA's certificate is unusable")]
    Ca(#[source] rustls_pki_types::pem::Error),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the certificate is of deployment {certificate}, the CA of {ca}")]
    OtherDeployment { certificate: String, ca: String },
    #[error("key and certificate do not belong together")]
    Mismatch(#[source] rustls::Error),
}

impl Credentials {
    /// Parses credentials in PEM. `chain` begins with the program's own certificate, `ca` with the certificate of the
    /// CA that has signed it.
    ///
    /// # Errors
    /// The texts are not a key or certificates, or do not belong together.
    pub fn new(key_pem: &str, chain: &str, ca: &str) -> Result<Credentials, CredentialsError> {
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(CredentialsError::Key)?;
        let chain = pem::read(chain).map_err(CredentialsError::Chain)?;
        let cas = pem::read(ca).map_err(CredentialsError::Ca)?;
        let peer = Peer::of(&chain[0])?;
        for ca in &cas {
            let deployment = deployment_of(ca)?;
            if peer.deployment != deployment {
                return Err(CredentialsError::OtherDeployment { certificate: peer.deployment, ca: deployment });
            }
        }
        let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), &default_provider());
        let signing = certified.map_err(CredentialsError::Mismatch)?.key;
        Ok(Credentials(Arc::new(Parts { key_pem: key_pem.to_owned(), key, signing, chain, cas, peer })))
    }

    /// Loads `key.pem`, `cert.pem` and `ca.pem` from a directory. Completes a rotation that was interrupted.
    ///
    /// # Errors
    /// A file is missing; otherwise those of [`Credentials::new`].
    pub fn load(dir: &Path) -> Result<Credentials, CredentialsError> {
        let chain = files::read(&dir.join(CHAIN_FILE))?;
        let ca = files::read(&dir.join(CA_FILE))?;
        let key = files::read_key(&dir.join(KEY_FILE))?;
        let found = Credentials::new(&key, &chain, &ca);
        let next_key = dir.join(NEXT_KEY_FILE);
        match found {
            Err(CredentialsError::Mismatch(_)) if next_key.exists() => {
                let credentials = Credentials::new(&files::read(&next_key)?, &chain, &ca)?;
                credentials.finish_rotation(dir)?;
                Ok(credentials)
            }
            // Another process has rotated the files between the two reads.
            Err(CredentialsError::Mismatch(_))
                if files::read(&dir.join(CHAIN_FILE))? != chain || files::read(&dir.join(KEY_FILE))? != key =>
            {
                Credentials::load(dir)
            }
            found => found,
        }
    }

    /// Writes the credentials to a directory, the key readable by its owner only. At every instant the directory holds
    /// either the old credentials or the new ones: the certificate decides which, and [`Credentials::load`] finds its
    /// key.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), CredentialsError> {
        files::make_dir(dir)?;
        files::write(&dir.join(CA_FILE), &self.ca_pem(), Access::Everybody)?;
        let is_rotation = dir.join(CHAIN_FILE).exists();
        let key_file = if is_rotation { NEXT_KEY_FILE } else { KEY_FILE };
        files::write(&dir.join(key_file), &self.0.key_pem, Access::Owner)?;
        files::write(&dir.join(CHAIN_FILE), &self.chain_pem(), Access::Everybody)?;
        if is_rotation { self.finish_rotation(dir) } else { Ok(()) }
    }

    /// Prevents other processes from renewing the credentials in this directory until the lock is dropped; returns
    /// `None` if another process holds it.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn lock(dir: &Path) -> Result<Option<File>, CredentialsError> {
        let lock = File::open(dir).and_then(|dir| match dir.try_lock() {
            Ok(()) => Ok(Some(dir)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        lock.map_err(|source| FileError::Read { path: dir.to_owned(), source }.into())
    }

    /// Writes the credentials into an empty directory that nobody reads yet, all files readable by their owner only.
    /// Nothing is synced: their user can get new ones.
    ///
    /// # Errors
    /// The directory cannot be written, or is not empty.
    pub fn write_for_owner(&self, dir: &Path) -> Result<(), CredentialsError> {
        let (ca, chain) = (self.ca_pem(), self.chain_pem());
        for (name, text) in [(CA_FILE, &ca), (KEY_FILE, &self.0.key_pem), (CHAIN_FILE, &chain)] {
            files::write_new(&dir.join(name), text)?;
        }
        Ok(())
    }

    fn finish_rotation(&self, dir: &Path) -> Result<(), CredentialsError> {
        let key = dir.join(KEY_FILE);
        match files::rename(&dir.join(NEXT_KEY_FILE), &key) {
            Ok(()) => Ok(()),
            // Another process that is loading the credentials has already done it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(FileError::Write { path: key, source }.into()),
        }
    }

    /// Signs the message with Ed25519; returns `None` if the key is of a kind that this program does not create.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.signing.choose_scheme(&[SignatureScheme::ED25519])?.sign(message).ok()
    }

    pub fn identity(&self) -> &Identity {
        &self.0.peer.identity
    }

    pub fn deployment(&self) -> &str {
        &self.0.peer.deployment
    }

    /// Returns the serial of the program's own certificate, in lower-case hexadecimal.
    pub fn serial(&self) -> &str {
        &self.0.peer.serial
    }

    pub fn issued(&self) -> Time {
        self.0.peer.issued
    }

    pub fn expires(&self) -> Time {
        self.0.peer.expires
    }

    /// Returns the SHA-256 of the CA's certificate in hexadecimal: the value that tokens pin.
    pub fn ca_fingerprint(&self) -> String {
        fingerprint(&self.0.cas[0])
    }

    /// Returns the fingerprints of all trusted CAs, first the one that has signed this certificate.
    pub fn authorities(&self) -> Vec<String> {
        self.0.cas.iter().map(fingerprint).collect()
    }

    /// Returns whether the CA with this fingerprint is trusted.
    pub fn trusts(&self, fingerprint: &str) -> bool {
        self.authorities().iter().any(|trusted| trusted == fingerprint)
    }

    pub fn ca_pem(&self) -> String {
        pem::write(&self.0.cas)
    }

    pub fn chain_pem(&self) -> String {
        pem::write(&self.0.chain)
    }

    pub(crate) fn cas(&self) -> &[CertificateDer<'static>] {
        &self.0.cas
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.chain
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.0.key.clone_key()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Credentials").field(&self.0.peer).finish()
    }
}

const CA_FILE: &str = "ca.pem";
const CHAIN_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
/// The key of the certificate that is about to replace the current one.
const NEXT_KEY_FILE: &str = "key.next.pem";
