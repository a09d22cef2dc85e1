//! Keys and certificates for the processes of jobs that negotiate: requested, placed, renewed and removed.
//!
//! Each execution of a job has one key on each of its nodes, in a directory of its own that only its user can read. It
//! is created while the job starts, which does not wait for it; processes that need the key wait.

mod place;

use rms_api::Refused;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rms_model::{JobId, Owner, Run};
use rms_wire::{Backoff, Credentials, NewKey, ToServer};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::place::KeyDirs;
use crate::supervisor::now;

/// The keys that the node's task requests and the uplink obtains; clones share them. There is one entry for each
/// execution of a job on this node, which bounds their number.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    dirs: KeyDirs,
    /// Held while files are written: two threads that place keys of one execution would leave drafts behind.
    placing: Mutex<()>,
    state: Mutex<State>,
    /// Notified when there may be something to request.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    wanted: BTreeMap<(JobId, Run), Wanted>,
    last_seq: u64,
}

#[derive(Debug)]
struct Wanted {
    owner: Owner,
    stage: Stage,
    backoff: Backoff,
}

#[derive(Debug)]
enum Stage {
    /// To be requested from that instant on.
    Due(Instant),
    Asked {
        seq: u64,
        key: Box<NewKey>,
    },
}

/// A request to the server.
#[derive(Debug)]
pub struct Request {
    pub seq: u64,
    pub job: JobId,
    pub run: Run,
    pub csr: Vec<u8>,
}

/// The most unanswered requests: the server refuses more than a few hundred from one agent.
const MAX_ASKED: usize = 64;

impl Keys {
    pub fn new(dirs: KeyDirs) -> Keys {
        Keys(Arc::new(Parts { dirs, placing: Mutex::default(), state: Mutex::default(), changed: Notify::new() }))
    }

    /// Returns the directory where the processes of an execution find their key.
    pub fn dir(&self, job: JobId, run: Run) -> PathBuf {
        self.0.dirs.dir(job, run)
    }

    /// Requests the key of an execution whose processes may negotiate. Does nothing if the key is known already.
    pub fn want(&self, job: JobId, run: Run, owner: &Owner) {
        let wanted = || Wanted {
            owner: owner.clone(),
            stage: Stage::Due(Instant::now()),
            backoff: Backoff::new(Duration::from_millis(200), MAX_RETRY_DELAY),
        };
        self.state().wanted.entry((job, run)).or_insert_with(wanted);
        self.0.changed.notify_one();
    }

    /// Forgets the key of an execution that has ended here. Returns whether to [remove](Keys::remove) it.
    #[must_use]
    pub fn forget(&self, job: JobId, run: Run) -> bool {
        self.state().wanted.remove(&(job, run)).is_some()
    }

    /// Removes the files of a key, unless it is wanted again.
    pub fn remove(&self, job: JobId, run: Run) {
        let _alone = self.0.placing.lock().unwrap_or_else(PoisonError::into_inner);
        self.remove_unwanted(job, run);
    }

    fn remove_unwanted(&self, job: JobId, run: Run) {
        if !self.state().wanted.contains_key(&(job, run)) {
            self.0.dirs.remove(job, run);
        }
    }

    /// Removes what an earlier agent has placed for executions that are no longer here.
    pub fn clear(&self) {
        let wanted: Vec<(JobId, Run)> = self.state().wanted.keys().copied().collect();
        self.0.dirs.keep_only(&wanted);
    }

    /// Repeats the requests of the last connection, which will not be answered any more.
    pub fn link_up(&self) {
        for wanted in self.state().wanted.values_mut() {
            if let Stage::Asked { .. } = wanted.stage {
                wanted.stage = Stage::Due(Instant::now());
            }
        }
        self.0.changed.notify_one();
    }

    /// Renews all keys after the server's CAs have changed, so that new processes trust them, too.
    pub fn renew_all(&self) {
        for wanted in self.state().wanted.values_mut() {
            if let Stage::Due(due) = &mut wanted.stage {
                *due = Instant::now();
            }
        }
        self.0.changed.notify_one();
    }

    /// Waits until there is something to request from the server. Cancel safe.
    pub async fn next_request(&self) -> Request {
        loop {
            // Created first, so that a change between the check and the wait is not missed.
            let changed = self.0.changed.notified();
            let due = match self.state().take_due() {
                NextRequest::Ready(request) => return *request,
                NextRequest::Wait(due) => due,
            };
            match due {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// Handles a signed certificate. The files are written on a separate thread, because a disk may be slow.
    pub fn certified(&self, seq: u64, chain: &str, ca: &str) {
        let Some((job, run, owner, key)) = self.take_asked(seq) else { return };
        let keys = self.clone();
        let credentials = match key.into_credentials(chain, ca) {
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::error!(%job, %run, %error, "cannot use the server's certificate for a job");
                return;
            }
        };
        self.renew_in(job, run, until_renewal(&credentials));
        tokio::task::spawn_blocking(move || keys.place(job, run, &owner, &credentials));
    }

    pub fn not_certified(&self, seq: u64, refused: &Refused) {
        let Some((job, run, _, _)) = self.take_asked(seq) else { return };
        tracing::debug!(%job, %run, %refused, "the server does not certify a job");
    }

    fn place(&self, job: JobId, run: Run, owner: &Owner, credentials: &Credentials) {
        let dirs = &self.0.dirs;
        let _alone = self.0.placing.lock().unwrap_or_else(PoisonError::into_inner);
        match dirs.place(job, run, owner, credentials) {
            Ok(()) => tracing::debug!(%job, %run, "placed the key of a job"),
            Err(error) => {
                tracing::error!(%job, %run, %error, "cannot place the key of a job: it cannot negotiate here")
            }
        }
        // The execution may have ended meanwhile. If it is forgotten after this check, the caller of `forget` removes
        // the files.
        self.remove_unwanted(job, run);
    }

    /// Takes the request of this number. It is repeated after a while unless the answer was usable.
    fn take_asked(&self, seq: u64) -> Option<(JobId, Run, Owner, Box<NewKey>)> {
        let mut state = self.state();
        let is_it = |wanted: &Wanted| matches!(wanted.stage, Stage::Asked { seq: asked, .. } if asked == seq);
        let ((job, run), wanted) = state.wanted.iter_mut().find(|(_, wanted)| is_it(wanted))?;
        let (job, run, owner) = (*job, *run, wanted.owner.clone());
        let again = Stage::Due(Instant::now() + wanted.backoff.delay());
        let key = match std::mem::replace(&mut wanted.stage, again) {
            Stage::Asked { key, seq: _ } => Some(key),
            Stage::Due(_) => None,
        };
        drop(state);
        self.0.changed.notify_one();
        key.map(|key| (job, run, owner, key))
    }

    fn renew_in(&self, job: JobId, run: Run, span: Duration) {
        if let Some(wanted) = self.state().wanted.get_mut(&(job, run)) {
            wanted.stage = Stage::Due(Instant::now() + span);
            wanted.backoff.reset();
        }
        self.0.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No update of the state can panic half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum NextRequest {
    Ready(Box<Request>),
    /// Nothing to request before this instant; `None` for nothing at all.
    Wait(Option<Instant>),
}

impl State {
    fn take_due(&mut self) -> NextRequest {
        let n_asked = self.wanted.values().filter(|wanted| matches!(wanted.stage, Stage::Asked { .. })).count();
        if n_asked >= MAX_ASKED {
            // An answer triggers a notification.
            return NextRequest::Wait(None);
        }
        let due = |wanted: &Wanted| match wanted.stage {
            Stage::Due(due) => Some(due),
            Stage::Asked { .. } => None,
        };
        let first = self.wanted.iter_mut().filter_map(|(id, wanted)| Some((due(wanted)?, *id, wanted)));
        let Some((due, (job, run), wanted)) = first.min_by_key(|(due, id, _)| (*due, *id)) else {
            return NextRequest::Wait(None);
        };
        if due > Instant::now() {
            return NextRequest::Wait(Some(due));
        }
        match NewKey::generate() {
            Ok(key) => {
                self.last_seq += 1;
                let (seq, csr) = (self.last_seq, key.csr_der().to_vec());
                wanted.stage = Stage::Asked { seq, key: Box::new(key) };
                NextRequest::Ready(Box::new(Request { seq, job, run, csr }))
            }
            Err(error) => {
                tracing::error!(%error, "cannot make a key for a job");
                let again = Instant::now() + MAX_RETRY_DELAY;
                wanted.stage = Stage::Due(again);
                NextRequest::Wait(Some(again))
            }
        }
    }
}

impl From<Request> for ToServer {
    fn from(request: Request) -> ToServer {
        let Request { seq, job, run, csr } = request;
        ToServer::Certify { seq, job, run, csr }
    }
}

/// Returns the time until renewal, which leaves a third of the certificate's lifetime in case the server is
/// unreachable.
fn until_renewal(credentials: &Credentials) -> Duration {
    let life = credentials.expires().since(credentials.issued()).to_std();
    let renewal = (life * 2 / 3).saturating_sub(now().since(credentials.issued()).to_std());
    renewal.max(Duration::from_secs(1))
}

/// The longest pause between requests to a server that refuses: it may consider the job ended.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[path = "keys/tests.rs"]
mod tests;
