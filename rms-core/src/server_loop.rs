//! The loop around the core, without I/O: takes events, decides what to write, and once that is durable, what to send
//! to whom.
//!
//! The driver passes a batch of events to [`ServerLoop::take`] and ends it with [`ServerLoop::turn`]. It writes what
//! [`ServerLoop::write`] returns, reports the outcome to [`ServerLoop::written`], and sends what [`ServerLoop::sends`]
//! returns. Peers are numbers here; only the driver knows their connections.

mod bindings;
mod gate;
mod message;
mod routes;
#[cfg(test)]
mod tests;

use rms_api::answer::{Answer, JobChange};
use rms_api::negotiate::NegotiatorCall;
use rms_model::{JobId, Time};

use crate::depth::Walk;
use crate::effect::Effect;
use crate::event::{Event, Ticket};
use crate::rms::Rms;
use crate::state::State;
use crate::state::job::Phase;
use crate::step::{Step, Write};

use self::gate::Gate;
pub use self::message::{AgentAsk, ChannelId, Denial, Failing, Found, Inbound, LinkId, Outbound};
use self::routes::{Caller, Routes};

/// The core, the callers that wait for it, and the state of the disk.
#[derive(Debug)]
pub struct ServerLoop {
    rms: Rms,
    /// Everything since the last successful write. While the disk fails, calls are refused and nothing is started, so
    /// it grows only by the reports of agents, which their jobs bound.
    pending: Step,
    gate: Gate,
    routes: Routes,
    /// Callers that are sent the state of these jobs once it is durable.
    lookups: Vec<(Ticket, Vec<JobId>)>,
    /// Whether the last batch has ended and no event was taken since.
    is_between_batches: bool,
    is_writing: bool,
}

impl ServerLoop {
    /// Wraps `rms`; `pending` holds what it has decided that is not durable yet.
    pub fn new(rms: Rms, pending: Step) -> ServerLoop {
        let is_between_batches = pending.is_empty();
        ServerLoop {
            rms,
            pending,
            gate: Gate::default(),
            routes: Routes::default(),
            lookups: Vec::new(),
            is_between_batches,
            is_writing: false,
        }
    }

    pub fn state(&self) -> &State {
        self.rms.state()
    }

    /// Takes the output for agents, callers and watchers, in the order in which to send it. Sending must not block.
    pub fn sends(&mut self) -> Vec<Outbound> {
        std::mem::take(&mut self.routes.out)
    }

    /// Returns why nothing can be made durable now.
    pub fn failure(&self) -> Option<&Failing> {
        self.gate.failure()
    }

    /// Returns why no new work can be accepted now: the disk fails, or only a reserve is left on it.
    pub fn shortage(&self) -> Option<&Failing> {
        self.gate.shortage()
    }

    /// Returns whether anything that was decided is not durable yet.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether a write is in progress; its outcome must be reported before anything else.
    pub fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Returns the latest walk over the queue whose duration has not been reported by [`Inbound::PassTook`].
    pub fn walk(&self) -> Option<Walk> {
        self.rms.walk()
    }

    /// Ends the watch of a watcher that has left.
    pub fn unwatch(&mut self, ticket: Ticket) {
        self.routes.unwatch(ticket);
    }

    /// Returns the number of pairs of watcher and job; watchers that have left count until [`ServerLoop::unwatch`].
    pub fn n_watches(&self) -> usize {
        self.routes.n_watches()
    }

    /// Returns the channel of an application's launcher.
    pub fn launcher_of(&self, job: JobId) -> Option<ChannelId> {
        self.routes.launchers.channel_of(job)
    }

    /// Returns when the next turn is due if no event arrives; a time in the past means at once.
    pub fn next_turn(&self) -> Option<Time> {
        if self.is_writing {
            return None;
        }
        let has_orphans = self.routes.launchers.has_orphans() || self.routes.negotiators.has_orphans();
        if has_orphans || !self.is_between_batches {
            return Some(Time::EPOCH);
        }
        // Nothing new is decided while it could not be made durable.
        let timer = self.rms.next_timer().filter(|_| self.shortage().is_none());
        self.gate.next(timer)
    }

    /// Returns when the core's next timer is due, whatever the state of the disk.
    pub fn next_timer(&self) -> Option<Time> {
        self.rms.next_timer()
    }

    /// Handles one inbound message. `now` must not decrease.
    pub fn take(&mut self, now: Time, inbound: Inbound) {
        assert!(!self.is_writing, "how the last write went comes first");
        self.report_orphans(now);
        match inbound {
            Inbound::Called { ticket, who, call } => match self.gate.refusal(&who, &call) {
                Some(failing) => self.routes.deny(ticket, Caller::Once, failing),
                None => self.accept(now, ticket, Caller::Once, Event::Called { ticket, who, call }),
            },
            Inbound::PassTook { took } => self.handle(now, Event::PassTook { took }),
            Inbound::ClockSetForward => self.handle(now, Event::ClockSetForward),
            Inbound::CertificateUsed { serial } => self.handle(now, Event::CertificateUsed { serial }),
            Inbound::AgentConnected { name, link, hello, report } => {
                if self.routes.agent_connected(&name, link) {
                    // The older link is closed, whether or not the newer one is accepted.
                    self.handle(now, Event::AgentGone { name: name.clone() });
                }
                self.handle(now, Event::AgentConnected { name, hello, report });
            }
            Inbound::AgentTroubled { name, link, reason } => {
                if self.routes.is_current(&name, link) {
                    self.handle(now, Event::AgentTroubled { name, reason });
                }
            }
            Inbound::AgentReported { name, link, report } => {
                if self.routes.is_current(&name, link) {
                    self.handle(now, Event::AgentReported { name, report });
                }
            }
            Inbound::AgentGone { name, link } => {
                if self.routes.is_current(&name, link) {
                    self.routes.agent_gone(&name);
                    self.handle(now, Event::AgentGone { name });
                }
            }
            Inbound::AgentAsked { ticket, name, link, job, run, what } => {
                if !self.routes.is_current(&name, link) {
                    // This link is being closed; the agent repeats the request over the newer one.
                    self.routes.out.push(Outbound::Silence { ticket });
                    return;
                }
                let event = match what {
                    AgentAsk::Size(ask) => Event::AgentAsked { ticket, name, job, run, ask: *ask },
                    AgentAsk::Certificate { csr, serial } => {
                        Event::AgentCertifies { ticket, name, job, run, csr, serial }
                    }
                };
                self.accept_work(now, ticket, Caller::Once, event);
            }
            Inbound::LauncherCalled { ticket, channel, who, call } => {
                let event = Event::LauncherCalled { ticket, who, call };
                self.accept_work(now, ticket, Caller::Launcher(channel), event);
            }
            Inbound::LauncherGone { channel } => self.routes.launchers.channel_closed(channel),
            Inbound::NegotiatorCalled { ticket, channel, who, call } => {
                let is_said = matches!(call, NegotiatorCall::Say(_));
                let event = Event::NegotiatorCalled { ticket, who, call };
                let is_accepted = self.accept_work(now, ticket, Caller::Negotiator(channel), event);
                if is_said && is_accepted {
                    self.routes.add_message(ticket);
                }
            }
            Inbound::NegotiatorGone { channel } => self.routes.negotiators.channel_closed(channel),
            Inbound::Watch { ticket, jobs } => {
                let known = jobs.iter().copied().filter(|job| self.rms.state().jobs().contains_key(job));
                self.routes.watch(ticket, known.collect());
                self.lookups.push((ticket, jobs));
            }
        }
    }

    /// Ends the batch. Nothing is left to do unless there is something to [write](ServerLoop::write).
    pub fn turn(&mut self, now: Time) {
        assert!(!self.is_writing, "how the last write went comes first");
        self.report_orphans(now);
        let is_due = self.rms.next_timer().is_some_and(|due| due <= now);
        if is_due && self.shortage().is_none() {
            self.handle(now, Event::Tick);
        }
        let may_commit = self.gate.should_commit(now, &self.pending);
        self.is_writing = may_commit && self.pending.has_facts();
        if self.is_writing {
            return;
        }
        if may_commit {
            self.release();
        }
        self.end_turn();
    }

    /// Returns what to write now; its outcome must be reported before anything else.
    pub fn write(&self) -> Option<Write<'_>> {
        if self.is_writing { self.pending.write() } else { None }
    }

    /// Handles the outcome of the write. After a failure, its facts are kept and written together with later ones.
    pub fn written(&mut self, now: Time, outcome: Result<(), String>) {
        assert!(self.is_writing, "nothing was to be written");
        self.is_writing = false;
        match outcome {
            Ok(()) => {
                self.gate.recovered();
                self.release();
            }
            Err(message) => {
                let failing = self.gate.failed(now, message);
                self.routes.deny_all(failing);
            }
        }
        self.end_turn();
    }

    /// Returns whether to check now if the disk is full.
    pub fn looks_for_space(&self, now: Time) -> bool {
        self.gate.looks_for_space(now)
    }

    /// Records the result of that check: why no new work may be accepted, or `None`.
    pub fn found_space(&mut self, now: Time, shortage: Option<String>) {
        self.gate.found_space(now, shortage);
    }

    /// Accepts new work, or denies it while there is a shortage. Returns whether it was accepted.
    fn accept_work(&mut self, now: Time, ticket: Ticket, caller: Caller, event: Event) -> bool {
        let shortage = self.gate.shortage();
        match shortage {
            Some(failing) => self.routes.deny(ticket, caller, failing),
            None => self.accept(now, ticket, caller, event),
        }
        self.shortage().is_none()
    }

    fn accept(&mut self, now: Time, ticket: Ticket, caller: Caller, event: Event) {
        self.routes.add_caller(ticket, caller);
        self.handle(now, event);
    }

    fn handle(&mut self, now: Time, event: Event) {
        let step = self.rms.handle(now, event);
        self.pending.merge(step);
    }

    /// Reports the orphans of earlier batches to the core. Those of this batch are reported after it.
    fn report_orphans(&mut self, now: Time) {
        if !self.is_between_batches {
            return;
        }
        self.is_between_batches = false;
        for (job, ()) in self.routes.launchers.take_orphans() {
            self.handle(now, Event::LauncherGone { job });
        }
        for (job, run) in self.routes.negotiators.take_orphans() {
            self.handle(now, Event::NegotiatorGone { job, run });
        }
    }

    fn release(&mut self) {
        let mut effects = std::mem::take(&mut self.pending).into_effects();
        if let Some(shortage) = self.shortage() {
            effects.iter_mut().for_each(|effect| tell_shortage(effect, shortage));
        }
        self.routes.release(effects);
    }

    /// Answers lookups with the present state, or with the failure of the disk.
    fn end_turn(&mut self) {
        let failure = self.failure().cloned();
        for (ticket, jobs) in std::mem::take(&mut self.lookups) {
            let found = match &failure {
                None => Ok(jobs.iter().filter_map(|job| look_up(self.rms.state(), *job)).collect()),
                Some(failing) => {
                    self.routes.unwatch(ticket);
                    Err(failing.clone())
                }
            };
            self.routes.found(ticket, found);
        }
        self.routes.launchers.end_batch();
        self.routes.negotiators.end_batch();
        self.is_between_batches = true;
    }
}

/// Adds to an answer about the server's status why no job starts now.
fn tell_shortage(effect: &mut Effect, shortage: &Failing) {
    if let Effect::Answer { ticket: _, answer: Ok(Answer::Status(status)) } = effect {
        status.shortage = Some(shortage.message.clone());
    }
}

/// Returns the present state of a job; `None` if it is not in the system.
fn look_up(state: &State, job: JobId) -> Option<Found> {
    let entry = state.jobs().get(&job)?;
    let outcome = match &entry.phase {
        Phase::Ghost(ghost) => Some(ghost.outcome.clone()),
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => None,
    };
    let nodes = entry.nodes().iter().filter_map(|node| state.nodes().get(node)).map(|node| node.name.clone()).collect();
    let change =
        JobChange { job, run: entry.run, state: entry.state(), nodes, outcome, submitted: Some(entry.submitted) };
    Some(Found { owner: entry.spec.owner.clone(), submitted: entry.submitted, change })
}
