//! The deployment's certificate authority, which alone decides which identity a key has.

use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER_PERMISSIVE;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    PublicKeyData as _, SanType, SerialNumber,
};
use rms_model::identity::{NameError, check_name};
use rms_model::{Identity, Role, Time};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use thiserror::Error;

use super::files::{self, Access, FileError};
use super::peer::{PeerError, deployment_of, fingerprint, uri_of};
use super::{draw_serial, pem};
use crate::token::digest;

/// The CA with its key.
#[derive(Debug)]
pub struct Authority {
    deployment: String,
    /// First the CA that signs; during a rotation, another trusted one.
    cas: Vec<CertificateDer<'static>>,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Why the authority cannot be created, loaded or used.
#[derive(Debug, Error)]
pub enum AuthorityError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("there is already an authority at {0}")]
    Exists(String),
    #[error("the name of the deployment is unusable")]
    Deployment(#[from] NameError),
    #[error("the CA's certificate is unusable")]
    Certificate(#[source] rustls_pki_types::pem::Error),
    #[error("the CA's certificate is unusable")]
    Foreign(#[source] PeerError),
    #[error("the CA's key is unusable")]
    Key(#[source] rcgen::Error),
    #[error("the CA's key does not belong to its certificate")]
    KeyMismatch,
    #[error("the certificate signing request is unusable")]
    Request(#[source] rcgen::Error),
    #[error("the certificate signing request is {0} bytes long, more than {MAX_CSR_BYTES}")]
    RequestTooLong(usize),
    #[error("the certificate signing request has a key of a kind that is not taken: use Ed25519 or ECDSA P-256")]
    RequestKey,
    #[error("'{0}' is not a serial: it must be 1 to 20 bytes in hexadecimal")]
    Serial(String),
    #[error("a certificate from {0:?} to {1:?} is never valid")]
    Validity(Time, Time),
    #[error("cannot sign")]
    Sign(#[source] rcgen::Error),
    #[error("{is}: the next step is '{next}'")]
    Step { is: Rotation, next: &'static str },
}

impl Authority {
    /// Creates a CA for `deployment` and stores it in `dir`; it is valid for 20 years.
    ///
    /// # Errors
    /// The directory already holds a CA or cannot be written, or the name is unusable.
    pub fn create(dir: &Path, deployment: &str, now: Time) -> Result<Authority, AuthorityError> {
        check_name(deployment)?;
        let ca_path = dir.join(CA_FILE);
        if ca_path.exists() {
            return Err(AuthorityError::Exists(ca_path.display().to_string()));
        }
        write_new(dir, deployment, now, (KEY_FILE, CA_FILE))?;
        Authority::load(dir)
    }

    /// # Errors
    /// Files are missing or damaged, or the key does not belong to the certificate.
    pub fn load(dir: &Path) -> Result<Authority, AuthorityError> {
        finish_switch(dir)?;
        let key_pem = files::read_key(&dir.join(KEY_FILE))?;
        let own = read_ca(&dir.join(CA_FILE))?;
        let beside = [NEXT_CA_FILE, OLD_CA_FILE].map(|file| dir.join(file)).into_iter().filter(|path| path.exists());
        let beside: Vec<_> = beside.map(|path| read_ca(&path)).collect::<Result<_, _>>()?;
        let deployment = deployment_of(&own).map_err(AuthorityError::Foreign)?;
        let key = KeyPair::from_pem(&key_pem).map_err(AuthorityError::Key)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&own).map_err(|_| AuthorityError::Foreign(PeerError::Unreadable))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(AuthorityError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&own, key).map_err(AuthorityError::Key)?;
        let cas: Vec<_> = [own].into_iter().chain(beside).collect();
        let ca_pem = pem::write(&cas);
        Ok(Authority { deployment, cas, ca_pem, issuer })
    }

    /// Returns the state of the change to another CA.
    pub fn rotation(dir: &Path) -> Rotation {
        match (dir.join(NEXT_CA_FILE).exists(), dir.join(OLD_CA_FILE).exists()) {
            (true, _) => Rotation::Begun,
            (false, true) => Rotation::Switched,
            (false, false) => Rotation::None,
        }
    }

    /// Takes the next step in the change to another CA: creates one, which is trusted in addition to the current one;
    /// signs with it, while the old one is still trusted; and removes the old one.
    ///
    /// # Errors
    /// Another step is next, or the directory cannot be written. The existing files stay usable.
    pub fn rotate(dir: &Path, to: Rotation, now: Time) -> Result<(), AuthorityError> {
        let is = Authority::rotation(dir);
        match (is, to) {
            (Rotation::None, Rotation::Begun) => {
                let deployment = Authority::load(dir)?.deployment;
                write_new(dir, &deployment, now, (NEXT_KEY_FILE, NEXT_CA_FILE))
            }
            (Rotation::Begun, Rotation::Switched) => {
                let old = files::read(&dir.join(CA_FILE))?;
                files::write(&dir.join(OLD_CA_FILE), &old, Access::Everybody)?;
                // From here on the switch is decided, whichever process completes it.
                move_file(dir, NEXT_KEY_FILE, KEY_FILE)?;
                finish_switch(dir)
            }
            (Rotation::Switched, Rotation::None) => {
                let path = dir.join(OLD_CA_FILE);
                std::fs::remove_file(&path).map_err(|source| FileError::Write { path, source })?;
                Ok(())
            }
            (is, _) => Err(AuthorityError::Step { is, next: is.next() }),
        }
    }

    pub fn deployment(&self) -> &str {
        &self.deployment
    }

    /// Returns the SHA-256 of the certificate of the CA that signs, in hexadecimal: the value that tokens pin.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.cas[0])
    }

    /// Returns the fingerprints of all trusted CAs, first the one that signs.
    pub fn authorities(&self) -> Vec<String> {
        self.cas.iter().map(fingerprint).collect()
    }

    /// Returns the CAs' certificates in PEM, first the one that signs.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Signs a certificate in PEM for the key of `csr`. Nothing else in the request is used: the identity and the
    /// validity are given here.
    ///
    /// # Errors
    /// The request is malformed or not signed by its own key, or the serial or validity is unusable.
    pub fn sign(
        &self,
        csr: &[u8],
        identity: &Identity,
        serial_hex: &str,
        not_before: Time,
        not_after: Time,
    ) -> Result<String, AuthorityError> {
        let request = parse_request(csr)?;
        if not_before >= not_after || not_after > LATEST {
            return Err(AuthorityError::Validity(not_before, not_after));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&identity.to_string());
        params.subject_alt_names = vec![uri(&uri_of(&self.deployment, identity))];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages(identity.role);
        params.use_authority_key_identifier_extension = true;
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(not_before);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(not_after);
        params.serial_number = Some(serial(serial_hex)?);
        let certificate = params.signed_by(&request.public_key, &self.issuer).map_err(AuthorityError::Sign)?;
        Ok(pem::write(&[certificate.der().clone()]))
    }
}

/// Returns the SHA-256 of the public key in a request that can be signed: this must be known before anything is
/// committed for it.
///
/// # Errors
/// The request is malformed, not signed by its own key, or of an unsupported kind of key.
pub fn key_of_request(csr: &[u8]) -> Result<[u8; 32], AuthorityError> {
    Ok(digest(&parse_request(csr)?.public_key.subject_public_key_info()))
}

fn parse_request(csr: &[u8]) -> Result<CertificateSigningRequestParams, AuthorityError> {
    if csr.len() > MAX_CSR_BYTES {
        return Err(AuthorityError::RequestTooLong(csr.len()));
    }
    let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr))
        .map_err(AuthorityError::Request)?;
    let algorithm = request.public_key.algorithm();
    if algorithm != &PKCS_ED25519 && algorithm != &PKCS_ECDSA_P256_SHA256 {
        return Err(AuthorityError::RequestKey);
    }
    Ok(request)
}

/// The state of the change to another CA, and its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// One CA signs and is trusted.
    None,
    /// Another CA is trusted in addition.
    Begun,
    /// The other CA signs; the old one is still trusted.
    Switched,
}

impl Rotation {
    /// Returns the command that takes the next step.
    pub fn next(self) -> &'static str {
        match self {
            Rotation::None => "begin",
            Rotation::Begun => "switch",
            Rotation::Switched => "finish",
        }
    }
}

impl std::fmt::Display for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Rotation::None => "one CA signs and is trusted",
            Rotation::Begun => "a second CA is trusted beside the one that signs",
            Rotation::Switched => "the new CA signs, and the old one is still trusted",
        })
    }
}

/// Writes a CA. The certificate is written last: if it exists, so does the key.
fn write_new(dir: &Path, deployment: &str, now: Time, (key_file, ca_file): (&str, &str)) -> Result<(), AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ED25519).map_err(AuthorityError::Key)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("Limber {deployment}"));
    params.subject_alt_names = vec![uri(&format!("spiffe://{deployment}"))];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now) + CA_LIFE;
    params.serial_number = Some(serial(&draw_serial())?);
    let ca = params.self_signed(&key).map_err(AuthorityError::Sign)?;
    files::make_dir(dir)?;
    files::write(&dir.join(key_file), &key.serialize_pem(), Access::Owner)?;
    files::write(&dir.join(ca_file), &pem::write(&[ca.der().clone()]), Access::Everybody)?;
    Ok(())
}

/// Completes a switch that was interrupted after its key had been moved.
fn finish_switch(dir: &Path) -> Result<(), AuthorityError> {
    let is_cut_short = dir.join(NEXT_CA_FILE).exists() && !dir.join(NEXT_KEY_FILE).exists();
    if is_cut_short { move_file(dir, NEXT_CA_FILE, CA_FILE) } else { Ok(()) }
}

fn move_file(dir: &Path, from: &str, to: &str) -> Result<(), AuthorityError> {
    let path = dir.join(to);
    files::rename(&dir.join(from), &path).map_err(|source| FileError::Write { path, source })?;
    Ok(())
}

fn read_ca(path: &Path) -> Result<CertificateDer<'static>, AuthorityError> {
    let ca_pem = files::read(path)?;
    let [ca] = <[_; 1]>::try_from(pem::read(&ca_pem).map_err(AuthorityError::Certificate)?)
        .map_err(|_| AuthorityError::Certificate(rustls_pki_types::pem::Error::NoItemsFound))?;
    Ok(ca)
}

/// Returns which ends of a connection a role may be, which TLS itself checks.
fn usages(role: Role) -> Vec<ExtendedKeyUsagePurpose> {
    match role {
        Role::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        // Agents also connect to each other.
        Role::Agent => vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth],
        Role::User | Role::Admin | Role::Job => vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("deployments, roles and names are plain ASCII"))
}

fn serial(hex: &str) -> Result<SerialNumber, AuthorityError> {
    let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok().filter(|bytes| (1..=20).contains(&bytes.len()));
    bytes.map(SerialNumber::from).ok_or_else(|| AuthorityError::Serial(hex.chars().take(80).collect()))
}

fn since_epoch(time: Time) -> Duration {
    // No certificate has a time before the epoch.
    Duration::from_secs(time.as_secs().max(0) as u64)
}

/// Certificates end before the year 2500; some tools do not support later times.
const LATEST: Time = Time::from_secs(16_725_225_600);
const CA_LIFE: Duration = Duration::from_secs(20 * 366 * 24 * 3600);
const MAX_CSR_BYTES: usize = 8 << 10;
const CA_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";
/// The certificate of a CA that will sign after the switch.
const NEXT_CA_FILE: &str = "next.pem";
const NEXT_KEY_FILE: &str = "next.key";
/// The CA that signed before the switch; its key has been deleted.
const OLD_CA_FILE: &str = "old.pem";
