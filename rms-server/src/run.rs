//! Starts a server from its data directory, and shuts it down in order.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rms_model::Role;
use rms_wire::link::EndpointError;
use rms_wire::tls::{Authority, AuthorityError, CredentialsError, Revoked};
use rms_wire::{Endpoint, Serve, Tuning};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::allocator;
use crate::authority::{OwnCertificate, OwnCertificateError};
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::dir::{DataDir, DirLock, LockError, write_atomically};
use crate::disk_space::{is_full, wait_for_space};
use crate::driver::{BootError, Driver};
use crate::history::History;
use crate::inbox::{Inbound, Inbox};
use crate::init::{InitError, write_client_address};
use crate::listener::listen;
use crate::open_error::OpenError;
use crate::reach::advertised_address;
use crate::registry::Registry;
use crate::shared::Shared;

/// Why a server cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error("the authority cannot be used")]
    Authority(#[from] AuthorityError),
    #[error("the server's certificate (key.pem, cert.pem and ca.pem in server/ of its data directory) cannot be used")]
    Credentials(#[from] CredentialsError),
    #[error("the server's certificate cannot be renewed")]
    OwnCertificate(#[from] OwnCertificateError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("the socket is lost")]
    Socket(#[source] io::Error),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
    #[error("cannot write {path}", path = path.display())]
    Address { path: PathBuf, source: io::Error },
    #[error(transparent)]
    ClientAddress(#[from] InitError),
    #[error("the driver has ended unexpectedly; see its last messages above")]
    DriverDied,
}

/// Runs until TERM or INT. Writes the address on which it listens to standard output and to the file `address`.
///
/// # Errors
/// The server cannot start or go on. Nothing is running any more when this returns.
pub async fn run(dir: &DataDir, config: &ServerConfig, address: SocketAddr) -> Result<(), RunError> {
    let _lock = DirLock::acquire(dir)?;
    let mut stop = Stop::listen()?;
    allocator::trim_periodically();
    if !dir.journal().exists() {
        return Err(OpenError::Missing { path: dir.journal() }.into());
    }
    let authority = Authority::load(&dir.authority())?;
    let mut own = OwnCertificate::load(dir.credentials(), config.certificate_life)?;
    own.renew_if_due(&authority, Clock::start().now())?;

    let revoked = Revoked::new();
    // The journal's reserve is mostly enough for a start on a full disk; otherwise the start waits for space.
    let (registry, inbox, driver, history) = loop {
        let registry = Arc::new(Registry::new(config.limits, revoked.clone()));
        let (inbox, inbound) = Inbox::new();
        match Driver::start(&dir.journal(), config, Arc::clone(&registry), (inbox.clone(), inbound)) {
            Ok((driver, history)) => break (registry, inbox, driver, history),
            Err(error) if is_full(dir.root()) => tracing::error!("{:#}", anyhow::Error::from(error)),
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = wait_for_space(dir.root()) => {}
            name = stop.requested() => {
                tracing::info!("stopping: {name} was received while the disk was full");
                return Ok(());
            }
        }
    };
    let history = History::start(&history)?;

    let roles = vec![Role::Agent, Role::User, Role::Admin, Role::Job];
    let serve = Serve::Peers { roles, join: true, revoked };
    let endpoint = Endpoint::bind_lasting(address, own.credentials(), serve, dir.root(), Tuning::default())?;
    let shared = Arc::new(Shared::new(inbox.clone(), history, registry, authority, config.limits, dir.clone()));
    let listening = endpoint.local_addr().map_err(RunError::Socket)?;
    let socket = listen_local(dir, config, &endpoint);
    announce(dir, listening, config.advertise.as_deref(), socket.as_deref())?;

    let rotation = {
        let (shared, endpoint) = (Arc::clone(&shared), endpoint.clone());
        tokio::spawn(async move { own.keep_renewed(&shared.authority, &endpoint).await })
    };
    let listener = tokio::spawn(listen(endpoint.clone(), shared));
    let stopped = tokio::select! {
        name = stop.requested() => {
            tracing::info!("stopping: {name} was received");
            Ok(())
        }
        () = inbox.closed() => Err(RunError::DriverDied),
    };
    rotation.abort();
    listener.abort();
    endpoint.close("the server is stopping");
    // The driver commits what is pending; jobs run on without the server.
    let driver_was_there = inbox.put(Inbound::Stop).await.is_ok();
    let joined = tokio::task::spawn_blocking(move || driver.join()).await;
    let died = !driver_was_there || !matches!(joined, Ok(Ok(())));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
    if died { Err(RunError::DriverDied) } else { stopped }
}

/// Time for peers to receive the close, so that they need not wait for a timeout.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Opens the local socket, if possible: without it, commands come over the network.
fn listen_local(dir: &DataDir, config: &ServerConfig, endpoint: &Endpoint) -> Option<PathBuf> {
    let of_unit = || std::env::var_os("RUNTIME_DIRECTORY").map(|dir| Path::new(&dir).join("server.sock"));
    let path = config.socket.clone().or_else(of_unit).unwrap_or_else(|| dir.socket());
    let listening = std::path::absolute(&path).and_then(|path| endpoint.listen_local(&path).map(|()| path));
    let failed = |error: &io::Error| tracing::warn!(%error, path = %path.display(), "there is no local socket");
    listening.inspect_err(failed).ok()
}

fn announce(
    dir: &DataDir,
    listening: SocketAddr,
    advertise: Option<&str>,
    socket: Option<&Path>,
) -> Result<(), RunError> {
    let reached = advertised_address(advertise, listening);
    let path = dir.address();
    let text = format!("{listening}\n");
    let is_current = std::fs::read_to_string(&path).is_ok_and(|current| current == text);
    if !is_current {
        write_atomically(&path, text.as_bytes(), 0o644).map_err(|source| RunError::Address { path, source })?;
    }
    // The directory is absent if the admin has moved it to its final place.
    if dir.admin().is_dir() {
        write_client_address(dir, &reached, socket)?;
    }
    tracing::info!(%listening, reached, "serving");
    let mut stdout = io::stdout().lock();
    // Standard output may be closed.
    let _ = writeln!(stdout, "listening on {listening}").and_then(|()| stdout.flush());
    Ok(())
}

/// The signals that stop a server.
struct Stop {
    term: Signal,
    int: Signal,
}

impl Stop {
    fn listen() -> Result<Stop, RunError> {
        let term = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
        let int = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
        Ok(Stop { term, int })
    }

    async fn requested(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
