//! Runs the core: takes events in batches, makes what came of them durable, and lets the effects go.
//!
//! It is alone on its thread, and waits for two things only: the inbox, and the core's next timer.

mod boot;
mod storage;

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rms_api::Call;
use rms_api::answer::JobChange;
use rms_core::state::job::Phase;
use rms_core::{Config, Event, Rms, State};
use rms_model::{Identity, JobId, Role, Span};
use tokio::sync::{mpsc, oneshot};

pub use self::boot::BootError;
use self::storage::Storage;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::history::{HistoryWriter, Retention};
use crate::inbox::{AgentAsk, Answered, Failing, Found, Inbound, Inbox};
use crate::registry::Registry;
use crate::router::Router;

/// The core with everything around it that it needs to run.
#[derive(Debug)]
pub struct Driver {
    rms: Rms,
    config: Config,
    clock: Clock,
    storage: Storage,
    router: Router,
    inbox: mpsc::Receiver<Inbound>,
    /// For snapshots that are made aside.
    reports: Inbox,
    /// Who wants to know what jobs are now, as soon as that is durable.
    lookers: Vec<Looker>,
    is_stopping: bool,
}

/// Somebody who wants to know what jobs are now.
#[derive(Debug)]
struct Looker {
    jobs: Vec<JobId>,
    reply: oneshot::Sender<Result<Vec<Found>, Failing>>,
}

/// Events of one transaction at most: it bounds how long the first of them waits for the last.
const MAX_BATCH: usize = 1024;

impl Driver {
    /// Restores the core from the journal and takes up its work. When this returns, what the system is now is
    /// durable, and calls may be put into the inbox. Also returns what the journal's history is written by.
    ///
    /// # Errors
    /// A damaged journal, or one that cannot be written.
    pub fn start(
        journal: &Path,
        config: &ServerConfig,
        registry: Arc<Registry>,
        (reports, inbox): (Inbox, mpsc::Receiver<Inbound>),
    ) -> Result<(JoinHandle<()>, HistoryWriter), BootError> {
        let core_config = boot::core_config(config);
        let (rms, storage, clock) = boot::boot(journal, &core_config, config, &registry)?;
        let history = storage.history().clone();
        let router = Router::new(registry);
        let driver = Driver {
            rms,
            config: core_config,
            clock,
            storage,
            router,
            inbox,
            reports,
            lookers: Vec::new(),
            is_stopping: false,
        };
        // The runtime of this thread is its clock and wakes it; nothing else runs on it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(BootError::Thread)?;
        let run = move || runtime.block_on(driver.run());
        let thread = thread::Builder::new().name("driver".to_owned()).spawn(run).map_err(BootError::Thread)?;
        Ok((thread, history))
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while !self.is_stopping {
            let orphans = self.router.take_orphans();
            let detached = self.router.negotiators.take_orphans();
            if orphans.is_empty() && detached.is_empty() {
                self.wait(&mut batch).await;
            }
            for job in orphans {
                self.handle(Event::LauncherGone { job });
            }
            for (job, run) in detached {
                self.handle(Event::NegotiatorGone { job, run });
            }
            for inbound in batch.drain(..) {
                self.take(inbound);
            }
            self.tick();
            self.commit();
        }
        if let Some(failing) = self.storage.failure() {
            tracing::error!("stopped while the journal could not be written: {failing}");
        }
    }

    /// Until something happens, or the core or the storage wants to be woken.
    async fn wait(&mut self, batch: &mut Vec<Inbound>) {
        let received = match self.sleep() {
            None => Some(self.inbox.recv_many(batch, MAX_BATCH).await),
            Some(span) => tokio::time::timeout(span.to_std(), self.inbox.recv_many(batch, MAX_BATCH)).await.ok(),
        };
        // The last sender is gone, so nobody is left to serve.
        if received == Some(0) {
            self.is_stopping = true;
        }
    }

    /// How long to wait if nothing happens; `None` for ever.
    fn sleep(&mut self) -> Option<Span> {
        if let Some(span) = self.storage.until_retry() {
            return Some(span);
        }
        let due = self.rms.next_timer().map(|due| due.since(self.clock.now()));
        let prune = Some(self.storage.until_prune());
        [due, self.storage.until_sync(), prune].into_iter().flatten().min()
    }

    fn take(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Call { who, call, reply } => match self.refusal(&who, &call) {
                Some(failing) => drop(reply.send(Answered::Failing(failing.clone()))),
                None => {
                    let ticket = self.router.ticket(reply);
                    self.handle(Event::Called { ticket, who, call });
                }
            },
            Inbound::CertificateUsed { serial } => self.handle(Event::CertificateUsed { serial }),
            Inbound::AgentConnected { name, hello, report, outbox } => {
                if self.router.agent_connected(&name, outbox) {
                    // The older link is gone now, whether the newer one will be accepted or not.
                    self.handle(Event::AgentGone { name: name.clone() });
                }
                self.handle(Event::AgentConnected { name, hello, report });
            }
            Inbound::AgentTroubled { name, link, reason } => {
                if self.router.is_current(&name, link) {
                    self.handle(Event::AgentTroubled { name, reason });
                }
            }
            Inbound::AgentReported { name, link, report } => {
                if self.router.is_current(&name, link) {
                    self.handle(Event::AgentReported { name, report });
                }
            }
            Inbound::AgentGone { name, link } => {
                if self.router.is_current(&name, link) {
                    self.router.agent_gone(&name);
                    self.handle(Event::AgentGone { name });
                }
            }
            Inbound::LauncherCalled { who, call, seq, outbox, held: _held } => match self.storage.shortage() {
                Some(why) => outbox.answer(seq, Err(why.refused())),
                None => {
                    let ticket = self.router.launcher_ticket(seq, outbox);
                    self.handle(Event::LauncherCalled { ticket, who, call });
                }
            },
            Inbound::LauncherGone { channel } => self.router.launcher_gone(channel),
            Inbound::NegotiatorCalled { who, call, caller, held: _held } => match self.storage.shortage() {
                Some(why) => caller.answer(Err(why.refused())),
                None => {
                    let ticket = self.router.negotiator_ticket(&call, caller);
                    self.handle(Event::NegotiatorCalled { ticket, who, call });
                }
            },
            Inbound::NegotiatorGone { channel } => self.router.negotiators.gone(channel),
            Inbound::AgentAsked { name, link, job, run, what, reply } => match self.storage.shortage() {
                Some(failing) => drop(reply.send(Answered::Failing(failing.clone()))),
                // An older link is being closed, and its agent will ask again over the newer one.
                None if !self.router.is_current(&name, link) => drop(reply),
                None => {
                    let ticket = self.router.ticket(reply);
                    self.handle(match what {
                        AgentAsk::Size(ask) => Event::AgentAsked { ticket, name, job, run, ask: *ask },
                        AgentAsk::Certificate { csr, serial } => {
                            Event::AgentCertifies { ticket, name, job, run, csr, serial }
                        }
                    });
                }
            },
            Inbound::Watch { jobs, watcher, reply } => {
                let known = jobs.iter().copied().filter(|job| self.rms.state().jobs().contains_key(job));
                self.router.watch(known, &watcher);
                self.lookers.push(Looker { jobs, reply });
            }
            Inbound::Snapshot(made) => self.storage.snapshot_made(made),
            Inbound::Stop => self.is_stopping = true,
        }
    }

    /// Why a call cannot be taken now. While nothing can be made durable even a question is refused: its answer would tell
    /// of what is not. On a disk that is only full, there is a reserve for some.
    fn refusal(&self, who: &Identity, call: &Call) -> Option<&Failing> {
        if may_use_reserve(who, call) { self.storage.failure() } else { self.storage.shortage() }
    }

    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        let step = self.rms.handle(now, event);
        self.storage.add(step);
    }

    /// Nothing new is decided while it could not be made durable.
    fn tick(&mut self) {
        let now = self.clock.now();
        let is_due = self.rms.next_timer().is_some_and(|due| due <= now);
        if is_due && self.storage.shortage().is_none() {
            let step = self.rms.handle(now, Event::Tick);
            self.storage.add(step);
        }
    }

    fn commit(&mut self) {
        match self.storage.commit() {
            Ok(effects) => self.router.release(effects),
            Err(failing) => self.router.fail_callers(&failing),
        }
        let failure = self.storage.failure().cloned();
        for Looker { jobs, reply } in self.lookers.drain(..) {
            let look_up = |job: &JobId| look_up(self.rms.state(), *job);
            let found = match &failure {
                None => Ok(jobs.iter().filter_map(look_up).collect()),
                Some(failing) => Err(failing.clone()),
            };
            // Whoever asked may have left.
            let _ = reply.send(found);
        }
        let settings = self.rms.state().settings();
        let retention = Retention { keep: settings.history_keep, most: settings.history_most };
        let now = self.clock.now();
        self.storage.prune_if_due(retention, now);
        if let Some(order) = self.storage.due_compaction() {
            let (config, reports) = (self.config.clone(), self.reports.clone());
            storage::compact_aside(order, config, reports);
        }
    }
}

/// Admins need it to get out of there. What others may do ends with their jobs and certificates: calls that write a little
/// as often as somebody likes would use it up.
fn may_use_reserve(who: &Identity, call: &Call) -> bool {
    match call {
        Call::Submit(_) => false,
        Call::Query(_) | Call::Cancel { .. } | Call::Signal { .. } | Call::Renew { .. } => true,
        Call::Hold { .. }
        | Call::Release { .. }
        | Call::Update { .. }
        | Call::Set { .. }
        | Call::Drain { .. }
        | Call::Down { .. }
        | Call::Resume { .. }
        | Call::Remove { .. }
        | Call::RemoveCluster { .. }
        | Call::CreateToken(_)
        | Call::RevokeToken { .. }
        | Call::RevokeCertificate { .. }
        | Call::Join { .. }
        | Call::SetLink { .. }
        | Call::Evolve { .. }
        | Call::FreeNodes { .. }
        | Call::ResizeDone { .. }
        | Call::Negotiate { .. }
        | Call::OrderNegotiation { .. } => who.role == Role::Admin,
    }
}

/// What a job is now; `None` if it is not in the system.
fn look_up(state: &State, job: JobId) -> Option<Found> {
    let entry = state.jobs().get(&job)?;
    let outcome = match &entry.phase {
        Phase::Ghost(ghost) => Some(ghost.outcome.clone()),
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => None,
    };
    let nodes = entry.nodes().iter().filter_map(|node| state.nodes().get(node)).map(|node| node.name.clone()).collect();
    let change = JobChange { job, run: entry.run, state: entry.state(), nodes, outcome };
    Some(Found { owner: entry.spec.owner.clone(), change })
}

#[cfg(test)]
mod tests {
    use rms_api::call::Select;

    use super::*;

    #[test]
    fn only_admins_write_as_often_as_they_like_on_a_full_disk() {
        let who = |role| Identity { role, name: "ann".to_owned() };
        let writes = |role, call| may_use_reserve(&who(role), &call);
        let select = || Select::All;
        let often = [
            || Call::Hold { select: Select::All },
            || Call::set_priority(Select::All, -1),
            || Call::FreeNodes { job: JobId(1), nodes: Vec::new() },
            || Call::Evolve { job: JobId(1), stages: "2x1m".parse().expect("stages"), open: false },
        ];
        for call in often {
            assert!(writes(Role::Admin, call()));
            assert!(!writes(Role::User, call()) && !writes(Role::Job, call()), "{:?}", call());
        }
        for role in [Role::Admin, Role::User, Role::Job] {
            assert!(writes(role, Call::Cancel { select: select() }));
            assert!(writes(role, Call::Signal { select: select(), signal: 15 }));
        }
    }
}
