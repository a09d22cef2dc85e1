//! Creates a deployment: its authority, the server's certificate, the first admin, and an empty journal.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rms_api::audit::AuditEntry;
use rms_core::Fact;
use rms_model::identity::NameError;
use rms_model::token::Issued;
use rms_model::{Identity, Role, Span, Time};
use rms_wire::tls::{Authority, AuthorityError, Credentials, CredentialsError};
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::authority::{OwnCertificateError, issue, server_identity};
use crate::clock::Clock;
use crate::dir::{DataDir, DirLock, LockError, write_atomically};
use crate::journal::{AppendError, FactLog, SnapshotPolicy};
use crate::open_error::OpenError;

/// The deployment to create.
#[derive(Clone, Debug)]
pub struct Deployment {
    pub dir: DataDir,
    pub name: String,
    /// The address at which others will reach the server, for the admin's `client.toml`.
    pub reached: String,
    pub certificate_life: Span,
    /// The Unix user who becomes the first admin.
    pub admin: String,
}

/// Why a deployment was not created, or not completely.
#[derive(Debug, Error)]
pub enum InitError {
    #[error("{path} is there already: choose another directory, or remove it if nothing in it is needed", path = path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Certificate(#[from] OwnCertificateError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Creates the deployment. Existing files are left as they are, and are an error.
///
/// # Errors
/// See [`InitError`].
pub fn init(deployment: &Deployment) -> Result<(), InitError> {
    let Deployment { dir, name, reached, certificate_life, admin } = deployment;
    let admin = Identity::new(Role::Admin, admin)?;
    make_dir(dir)?;
    let _lock = DirLock::acquire(dir)?;
    for path in [dir.authority(), dir.credentials(), dir.admin(), dir.journal()] {
        if path.exists() {
            return Err(InitError::Exists { path });
        }
    }
    let now = Clock::start().now();
    let life = *certificate_life;
    let authority = Authority::create(&dir.authority(), name, now)?;
    issue(&authority, &server_identity(), now, life)?.save(&dir.credentials())?;
    let credentials = issue(&authority, &admin, now, life)?;
    credentials.save(&dir.admin())?;
    write_client_address(dir, reached, None)?;
    // The journal comes last: where it is, everything else is.
    let mut log = FactLog::create(&dir.journal(), SnapshotPolicy::default())?;
    let issued = certificate(&credentials, admin, now);
    log.append(&[Fact::CertificateIssued { issued }])?;
    Ok(())
}

/// Certifies an admin while the server is stopped: if every admin's certificate has expired, nobody can create a token.
/// Read access to the authority's key is enough. The client directory of the first admin belongs to this admin now.
///
/// # Errors
/// See [`InitError`]; a running server has the directory locked.
pub fn certify_admin(dir: &DataDir, admin: &str, life: Span) -> Result<(), InitError> {
    let admin = Identity::new(Role::Admin, admin)?;
    let _lock = DirLock::acquire(dir)?;
    let now = Clock::start().now();
    let ignore = |_: Option<IgnoredAny>, facts: &mut dyn Iterator<Item = Fact>| facts.for_each(drop);
    let (mut log, ()) = FactLog::open(&dir.journal(), SnapshotPolicy::default(), ignore)?;
    let credentials = issue(&Authority::load(&dir.authority())?, &admin, now, life)?;
    let entry = AuditEntry {
        at: now,
        by: "rms-server admin".to_owned(),
        subject: admin.to_string(),
        old: String::new(),
        new: String::new(),
        action: "certify".to_owned(),
    };
    let issued = certificate(&credentials, admin, now);
    log.append(&[Fact::CertificateIssued { issued }, Fact::Audited { entry }])?;
    Ok(credentials.save(&dir.admin())?)
}

fn certificate(credentials: &Credentials, identity: Identity, issued: Time) -> Issued {
    let (serial, expires) = (credentials.serial().to_owned(), credentials.expires());
    Issued { serial, identity, issued, expires, revoked: None, replaces: Vec::new(), renews: None }
}

/// Writes the server's address for the admin's client; called again whenever the port or the local socket changes.
///
/// # Errors
/// The directory cannot be written.
pub fn write_client_address(dir: &DataDir, reached: &str, socket: Option<&Path>) -> Result<(), InitError> {
    let path = dir.admin().join("client.toml");
    let mut text = format!("# Where the server is reached.\nserver = \"{reached}\"\n");
    if let Some(socket) = socket.and_then(Path::to_str) {
        text.push_str(&format!("socket = {}\n", toml::Value::from(socket)));
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|current| current == text);
    if is_current {
        return Ok(());
    }
    write_atomically(&path, text.as_bytes(), 0o644).map_err(|source| InitError::Write { path, source })
}

fn make_dir(dir: &DataDir) -> Result<(), InitError> {
    // It holds keys: no other user may read it.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir.root());
    made.map_err(|source| InitError::Write { path: dir.root().to_owned(), source })
}
