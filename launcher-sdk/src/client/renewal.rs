//! Keeps a client's certificate valid while it is in use: renews it, and adopts what other processes have renewed.

#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rms_api::Answer;
use rms_api::call::Call;
use rms_model::Role;
use rms_wire::{Credentials, Endpoint, Link, NewKey};
use tokio::sync::mpsc;

use super::{Client, Inner};
use crate::dir::DirError;
use crate::error::{CallError, ConnectError};

impl Client {
    /// Gets a new certificate for a new key, and saves both in the client directory.
    ///
    /// # Errors
    /// See [`CallError`]. If the directory cannot be written, the old key and certificate stay.
    pub async fn renew(&self) -> Result<Credentials, CallError> {
        self.renew_within(RENEWAL_PATIENCE).await
    }

    /// Renews a user's certificate when it is due. If that fails, the old certificate is still valid for a while.
    pub(super) async fn renew_if_due(&self, link: &Link) {
        let credentials = self.credentials();
        let is_person = matches!(self.identity().role, Role::User | Role::Admin);
        let is_due = until_renewal(&credentials).is_zero() || link.wants_renewal(&credentials);
        // Only the owner of the files renews: files of root would lock the owner out, and a shared certificate is not
        // the user's own.
        let uid = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
        let is_ours = || uid(Path::new("/proc/self")).is_some_and(|own| uid(&self.0.dir.join("key.pem")) == Some(own));
        if is_person && is_due && is_ours() {
            let _good_for_a_while = self.renew_within(Duration::ZERO).await;
        }
    }

    /// Waits for at most `patience` while another process renews the credentials, and then uses what that process
    /// saved.
    async fn renew_within(&self, patience: Duration) -> Result<Credentials, CallError> {
        let of_dir = |source| ConnectError::Dir(DirError::Credentials { dir: self.0.dir.clone(), source });
        let begun = Instant::now();
        let lock = loop {
            let lock = Credentials::lock(&self.0.dir).map_err(of_dir)?;
            if lock.is_some() || begun.elapsed() >= patience {
                break lock;
            }
            tokio::time::sleep(RENEWAL_PAUSE).await;
        };
        let there = Credentials::load(&self.0.dir).map_err(of_dir)?;
        if lock.is_none() || there.serial() != self.credentials().serial() {
            self.rotate(&there)?;
            return Ok(there);
        }
        let key = NewKey::generate().map_err(|_| CallError::Unexpected)?;
        let csr = key.csr_der().to_vec();
        let Answer::Certificate { chain, ca } =
            self.order(Call::Renew { csr, serial: String::new(), renews: None }).await?
        else {
            return Err(CallError::Unexpected);
        };
        let credentials = key.into_credentials(&chain, &ca).map_err(of_dir)?;
        credentials.save(&self.0.dir).map_err(of_dir)?;
        self.rotate(&credentials)?;
        Ok(credentials)
    }

    /// Switches to these credentials.
    fn rotate(&self, credentials: &Credentials) -> Result<(), ConnectError> {
        if let Some(endpoint) = self.0.endpoint.get() {
            endpoint.rotate(credentials)?;
        }
        *self.0.credentials.write().unwrap_or_else(PoisonError::into_inner) = credentials.clone();
        Ok(())
    }

    /// Adopts the credentials that another process has saved in the client directory, for `endpoint`, too. Returns
    /// whether `endpoint` had others.
    pub(super) fn take_over(&self, endpoint: &Endpoint) -> bool {
        let own = self.credentials();
        let is_of_us =
            |found: &Credentials| found.identity() == own.identity() && found.deployment() == own.deployment();
        let newest = match Credentials::load(&self.0.dir) {
            Ok(found) if is_of_us(&found) => found,
            Ok(_) | Err(_) => own,
        };
        let is_news = is_other(&newest, &endpoint.credentials());
        is_news && self.rotate(&newest).is_ok() && endpoint.rotate(&newest).is_ok()
    }
}

/// Returns whether `a` and `b` differ in the certificate or in the CAs, which are saved before the certificate.
fn is_other(a: &Credentials, b: &Credentials) -> bool {
    a.serial() != b.serial() || a.authorities() != b.authorities()
}

/// Renews the certificate of a client when it is due, and after each reconnection if the server asks for it: a program
/// that waits for days makes no call that would do so. Ends with the client.
pub(super) async fn keep_renewed(client: Weak<Inner>, mut reconnections: mpsc::Receiver<()>) {
    loop {
        let due = match client.upgrade().map(Client) {
            Some(client) => until_renewal(&client.credentials()).max(RENEWAL_RETRY_DELAY),
            None => return,
        };
        let is_in_use = tokio::select! {
            reconnected = reconnections.recv() => reconnected.is_some(),
            () = tokio::time::sleep(due) => true,
        };
        let Some(client) = client.upgrade().map(Client).filter(|_| is_in_use) else { return };
        // Without a link, the next reconnection checks again, which is early enough.
        if let Some(link) = client.any_link().await {
            client.renew_if_due(&link).await;
        }
    }
}

/// Returns the time until renewal, which leaves a third of the certificate's life in case the server is unreachable.
fn until_renewal(credentials: &Credentials) -> Duration {
    let life = credentials.expires().since(credentials.issued()).to_std();
    let issued = Duration::from_millis(u64::try_from(credentials.issued().as_millis()).unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (issued + life / 3 * 2).saturating_sub(now)
}

/// How long to wait for another process that is renewing the same certificate.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(10);
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait before a failed renewal is tried again; certificates live at least an hour.
const RENEWAL_RETRY_DELAY: Duration = Duration::from_secs(600);
