//! Keys and certificates for the processes of jobs that negotiate: asked for, placed, renewed, taken away.
//!
//! Each execution of a job has one key on each of its nodes, in a directory of its own that its user alone can read. It is
//! made beside the start of the job, which does not wait for it; whoever needs it in the job does.

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

/// What the node's task wants and the uplink brings about; clones are the same. One entry for each execution of a job on
/// this node, so it is bounded by them.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    dirs: KeyDirs,
    /// Held while files are written: two who place keys of one execution would leave each other's drafts.
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
    /// To be asked for, from then on.
    Due(Instant),
    Asked {
        seq: u64,
        key: Box<NewKey>,
    },
}

/// A question to the server.
#[derive(Debug)]
pub struct Request {
    pub seq: u64,
    pub job: JobId,
    pub run: Run,
    pub csr: Vec<u8>,
}

/// Questions that wait for their answer at most: the server refuses more of one agent than some hundreds.
const MAX_ASKED: usize = 64;

impl Keys {
    pub fn new(dirs: KeyDirs) -> Keys {
        Keys(Arc::new(Parts { dirs, placing: Mutex::default(), state: Mutex::default(), changed: Notify::new() }))
    }

    /// Where the processes of an execution find theirs.
    pub fn dir(&self, job: JobId, run: Run) -> PathBuf {
        self.0.dirs.dir(job, run)
    }

    /// An execution is here whose processes may negotiate. Of one that is known already, nothing changes.
    pub fn want(&self, job: JobId, run: Run, owner: &Owner) {
        let wanted = || Wanted {
            owner: owner.clone(),
            stage: Stage::Due(Instant::now()),
            backoff: Backoff::new(Duration::from_millis(200), MAX_RETRY_DELAY),
        };
        self.state().wanted.entry((job, run)).or_insert_with(wanted);
        self.0.changed.notify_one();
    }

    /// The execution has ended here: its key is of no use any more. Says whether it is to be [removed](Keys::remove).
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

    /// What an earlier agent has placed for executions that are not here any more goes.
    pub fn clear(&self) {
        let wanted: Vec<(JobId, Run)> = self.state().wanted.keys().copied().collect();
        self.0.dirs.keep_only(&wanted);
    }

    /// What was asked over the last link is not answered any more.
    pub fn link_up(&self) {
        for wanted in self.state().wanted.values_mut() {
            if let Stage::Asked { .. } = wanted.stage {
                wanted.stage = Stage::Due(Instant::now());
            }
        }
        self.0.changed.notify_one();
    }

    /// The server trusts other CAs: all keys are certified anew, so that processes that come up trust them, too.
    pub fn renew_all(&self) {
        for wanted in self.state().wanted.values_mut() {
            if let Stage::Due(due) = &mut wanted.stage {
                *due = Instant::now();
            }
        }
        self.0.changed.notify_one();
    }

    /// Waits until there is something to ask the server for. May be cancelled.
    pub async fn next_request(&self) -> Request {
        loop {
            // Asked for first, so that what comes between the look and the wait is not slept through.
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

    /// The server has signed. The files are written on a thread of their own, for a disk may be slow.
    pub fn certified(&self, seq: u64, chain: &str, ca: &str) {
        let Some((job, run, owner, key)) = self.take_asked(seq) else { return };
        let keys = self.clone();
        let credentials = match key.into_credentials(chain, ca) {
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::error!(%job, %run, %error, "the server's certificate for a job is of no use");
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
        // It may have ended meanwhile. Whoever forgets it after this look removes the files.
        self.remove_unwanted(job, run);
    }

    /// The question of that number, which is to be asked again after a while unless it was answered well.
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
        // No change of it can panic half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum NextRequest {
    Ready(Box<Request>),
    /// Nothing before then; `None`: nothing at all.
    Wait(Option<Instant>),
}

impl State {
    fn take_due(&mut self) -> NextRequest {
        let n_asked = self.wanted.values().filter(|wanted| matches!(wanted.stage, Stage::Asked { .. })).count();
        if n_asked >= MAX_ASKED {
            // An answer notifies.
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

/// A third of the certificate's life is left for a server that is away.
fn until_renewal(credentials: &Credentials) -> Duration {
    let life = credentials.expires().since(credentials.issued()).to_std();
    let renewal = (life * 2 / 3).saturating_sub(now().since(credentials.issued()).to_std());
    renewal.max(Duration::from_secs(1))
}

/// The longest pause between requests to a server that refuses: it may count the job as ended.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[path = "keys/tests.rs"]
mod tests;
