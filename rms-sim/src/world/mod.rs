//! The world in virtual time: an event queue, one server, nodes, links between them, and faults.

mod ambush;
mod applications;
mod askers;
mod breakage;
mod builder;
mod launchers;
mod network;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use negotiation::NegotiationId;
use rms_api::desired::AgentHello;
use rms_api::subscription::LauncherCall;
use rms_api::{Answer, Refusal};
use rms_core::server_loop::{Denial, Inbound, Outbound};
use rms_core::{Config, Fact, State, Ticket};
use rms_model::token::Issued;
use rms_model::{Identity, JobId, Span, Time};

use crate::agenda::EventQueue;
use crate::check::{self, Accepted, Checks, Rule, Violation};
use crate::dice::Dice;
use crate::journal::ModelJournal;
use crate::launcher::Told;
use crate::link::{Lane, Link, ToAgent};
use crate::node::ModelNode;
use crate::program::Program;
use crate::server::{CrashPoint, Server};
use crate::trace::{Trace, short_fact, short_inbound};

pub(crate) use ambush::PhaseFault;
pub(crate) use applications::{Applications, Execution};
pub use builder::WorldBuilder;
pub(crate) use launchers::Launchers;

/// The whole simulated system.
#[derive(Debug)]
pub struct World {
    /// The seed of all random numbers in this world.
    seed: u64,
    pub(crate) now: Time,
    pub(crate) agenda: EventQueue<Item>,
    config: Config,
    pub(crate) server: Option<Server>,
    pub(crate) journal: ModelJournal,
    pub(crate) nodes: Vec<ModelNode>,
    pub(crate) links: Vec<Link>,
    pub(crate) launchers: Launchers,
    pub(crate) applications: Applications,
    askers: askers::ResizeRequests,
    /// The accepts of standing proposals that the server's next step handles.
    accepted: Vec<Accepted>,
    pub(crate) programs: BTreeMap<String, Program>,
    /// The point at which the server dies in its next step, and the time after which it is restarted automatically.
    pub(crate) crash: Option<(CrashPoint, Option<Span>)>,
    /// A fault that waits for a phase of a negotiation.
    pub(crate) ambush: Option<PhaseFault>,
    /// How many of these faults were injected.
    pub(crate) n_ambushes: usize,
    pub(crate) checks: Checks,
    pub(crate) trace: Trace,
    /// Random numbers for the machinery: how long it takes until an end notices that a link is dead.
    dice: Dice,
    n_tickets: u64,
    answers: BTreeMap<Ticket, Result<Answer, Refusal>>,
    signed: BTreeMap<Ticket, Issued>,
    /// How many facts the checkers have seen, and how many are in the trace.
    n_checked: usize,
    n_traced: usize,
    /// When the facts were written that the checkers have not seen.
    written: VecDeque<Written>,
    n_turns: u64,
    /// The time of a pass for each application that it considered, as reported to the server.
    walk_cost: Option<Duration>,
    snapshot: fn(&State) -> State,
}

/// Facts that were written together.
#[derive(Debug)]
struct Written {
    /// How many facts there were afterwards.
    n_facts: usize,
    at: Time,
    /// Whether some of them were decided earlier and waited for the disk.
    is_late: bool,
}

/// A future event.
#[derive(Debug)]
pub(crate) enum Item {
    /// A message arrives.
    Pump {
        node: usize,
        lane: Lane,
    },
    /// The agent of this life tries to connect.
    Dial {
        node: usize,
        life: u64,
    },
    AgentNotices {
        node: usize,
        epoch: u64,
    },
    ServerNotices {
        node: usize,
        epoch: u64,
    },
    /// Nothing was received over the link for too long.
    IdleOut {
        node: usize,
        n_cuts: u64,
    },
    /// A supervisor of the node has something to do.
    Wake {
        node: usize,
    },
    /// Something arrives at the server.
    Heard(Box<Inbound>),
    Repair(Repair),
    /// The result of a slow write of that turn is known.
    Written {
        turn: u64,
        begun: Time,
    },
    LauncherDials {
        launcher: usize,
    },
    LauncherWakes {
        launcher: usize,
    },
    LauncherSays {
        launcher: usize,
        epoch: u64,
        call: Box<LauncherCall>,
    },
    LauncherHears {
        launcher: usize,
        epoch: u64,
        told: Box<Told>,
    },
    /// The server notices that the connection is dead.
    LauncherMissed {
        launcher: usize,
        epoch: u64,
    },
    /// The hook of a job confirms that it has adapted the job.
    Confirms {
        who: Execution,
        generation: u32,
        n_tries: u32,
    },
    Application {
        who: Execution,
        what: applications::AppEvent,
    },
    /// A phase fault is injected.
    Fault {
        job: JobId,
        id: Option<NegotiationId>,
        kind: ambush::FaultKind,
    },
}

/// The repair that ends a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repair {
    Server,
    Agent(usize),
    Node(usize),
    Heal(usize),
    Journal,
    Speed(usize),
    /// The speed of actions on a node.
    Pace(usize),
    Disk(usize),
}

impl World {
    pub(crate) fn add_node(&mut self, name: String, hello: AgentHello) {
        let node = self.nodes.len();
        self.nodes.push(ModelNode::new(name, hello));
        self.links.push(Link::new(USUAL_DELAY));
        self.start_agent(node);
    }

    /// Processes everything that happens up to `until`, and sets the clock to it.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn run_until(&mut self, until: Time) -> Result<(), Violation> {
        loop {
            let turn = self.server.as_ref().and_then(Server::next_turn);
            let next = [self.agenda.next(), turn].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.look_at_idle(next)?;
            self.now = self.now.max(next);
            self.instant()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Checks, if the server is in order, that nobody could start before `next`.
    fn look_at_idle(&self, next: Time) -> Result<(), Violation> {
        let in_order = |server: &&Server| {
            let server_loop = &server.server_loop;
            !server_loop.is_behind() && server_loop.failure().is_none() && server_loop.shortage().is_none()
        };
        match self.server.as_ref().filter(in_order) {
            Some(server) => check::nobody_could_start(server.state(), self.now, next),
            None => Ok(()),
        }
    }

    /// Processes everything that happens now: first what arrives, then the server's turn.
    fn instant(&mut self) -> Result<(), Violation> {
        for _ in 0..MOST_ROUNDS {
            while let Some(item) = self.agenda.pop_due(self.now) {
                self.happen(item)?;
            }
            let turn = self.server.as_ref().and_then(Server::next_turn);
            if turn.is_none_or(|at| at > self.now) {
                return Ok(());
            }
            self.turn()?;
        }
        Err(Rule::Spin.broken(format!("the server is never done at {:?}", self.now)))
    }

    fn happen(&mut self, item: Item) -> Result<(), Violation> {
        match item {
            Item::Pump { node, lane: Lane::Up } => {
                while let Some(message) = self.links[node].receive_up(self.now) {
                    self.server_receives(node, message);
                }
                Ok(())
            }
            Item::Pump { node, lane: Lane::Down } => {
                while let Some(message) = self.links[node].receive_down(self.now) {
                    self.agent_receives(node, message)?;
                }
                Ok(())
            }
            Item::Dial { node, life } => self.dial(node, life),
            Item::AgentNotices { node, epoch } => {
                if self.links[node].agent_side != Some(epoch) {
                    return Ok(());
                }
                self.links[node].agent_side = None;
                self.dial_later(node);
                self.agent_hears(node, rms_core::node_loop::Inbound::LinkDown)
            }
            Item::ServerNotices { node, epoch } => {
                self.server_notices(node, epoch);
                Ok(())
            }
            Item::IdleOut { node, n_cuts } => {
                let link = &self.links[node];
                if link.is_cut && link.is_alive && link.n_cuts == n_cuts {
                    self.break_link(node);
                }
                Ok(())
            }
            Item::Wake { node } => self.wake(node),
            Item::Heard(inbound) => {
                self.server_hears(*inbound);
                Ok(())
            }
            Item::Repair(repair) => self.repair(repair),
            Item::LauncherDials { launcher } => {
                self.launcher_dials(launcher);
                Ok(())
            }
            Item::LauncherWakes { launcher } => {
                self.launcher_wakes(launcher);
                Ok(())
            }
            Item::LauncherSays { launcher, epoch, call } => {
                self.server_hears_launcher(launcher, epoch, *call);
                Ok(())
            }
            Item::LauncherHears { launcher, epoch, told } => {
                self.launcher_hears(launcher, epoch, *told);
                Ok(())
            }
            Item::LauncherMissed { launcher, epoch } => {
                self.launcher_missed(launcher, epoch);
                Ok(())
            }
            Item::Confirms { who, generation, n_tries } => {
                self.confirms(who, generation, n_tries);
                Ok(())
            }
            Item::Application { who, what } => self.application_does(who, what),
            Item::Fault { job, id, kind } => self.strikes(job, id, kind),
            // The write of a server that has died since is ignored.
            Item::Written { turn, begun } if turn == self.n_turns => {
                self.checks.hindered(self.now);
                self.writes(begun)
            }
            Item::Written { .. } => Ok(()),
        }
    }

    /// Sends an input to the server, if there is one.
    pub(crate) fn server_hears(&mut self, inbound: Inbound) {
        let Some(server) = &mut self.server else { return };
        self.trace.note(self.now, format_args!("server hears: {}", short_inbound(&inbound)));
        match &inbound {
            Inbound::Called { ticket, .. }
            | Inbound::AgentAsked { ticket, .. }
            | Inbound::LauncherCalled { ticket, .. }
            | Inbound::NegotiatorCalled { ticket, .. } => self.checks.asked(*ticket),
            Inbound::AgentConnected { .. } | Inbound::AgentGone { .. } | Inbound::AgentReported { .. } => {}
            Inbound::AgentTroubled { .. } | Inbound::CertificateUsed { .. } | Inbound::Watch { .. } => {}
            Inbound::LauncherGone { .. } | Inbound::NegotiatorGone { .. } | Inbound::PassTook { .. } => {}
            Inbound::ClockSetForward => {}
        }
        server.inbox.push(inbound);
    }

    /// Runs one batch of the server, and writes its facts, unless that takes a while.
    fn turn(&mut self) -> Result<(), Violation> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let server_loop = &mut server.server_loop;
        if let Some(took) = server_loop.walk().and_then(|walk| Some(self.walk_cost? * walk.n_considered)) {
            server_loop.take(self.now, Inbound::PassTook { took });
        }
        for inbound in std::mem::take(&mut server.inbox) {
            server_loop.take(self.now, inbound);
            check_state(server_loop.state())?;
        }
        server_loop.turn(self.now);
        check_state(server_loop.state())?;
        self.n_turns += 1;
        let takes = self.journal.takes();
        if server_loop.is_writing() && takes > Span::ZERO {
            self.agenda.push(self.now + takes, Item::Written { turn: self.n_turns, begun: self.now });
            return Ok(());
        }
        self.writes(self.now)
    }

    /// Writes the facts of the turn at `begun`, and sends the server's messages.
    fn writes(&mut self, begun: Time) -> Result<(), Violation> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let server_loop = &mut server.server_loop;
        let crash = self.crash.map(|(point, _)| point).filter(|_| server_loop.is_behind());
        if crash == Some(CrashPoint::BeforeCommit) {
            return self.crashes();
        }
        let (was_failing, was_short) = (server_loop.failure().is_some(), server_loop.shortage().is_some());
        let outcome = server_loop.write().map(|write| write.to(&mut self.journal).map_err(|error| error.to_string()));
        let is_written = matches!(outcome, Some(Ok(())));
        if let Some(outcome) = outcome {
            server_loop.written(self.now, outcome);
        }
        if server_loop.looks_for_space(self.now) {
            server_loop.found_space(self.now, self.journal.shortage());
        }
        let (sends, is_behind) = (server_loop.sends(), server_loop.is_behind());
        let is_short = server_loop.shortage().is_some();
        let denies_all = server_loop.failure().is_some() && server.inbox.is_empty();
        self.look_at_facts(begun, was_failing)?;
        if is_short {
            self.checks.hindered(self.now);
            // The negotiation may be overdue before the agreement is visible.
            self.accepted.clear();
        }
        let n_out = match crash.filter(|_| is_written) {
            Some(CrashPoint::AmidEffects(n_out)) => n_out,
            Some(CrashPoint::BeforeCommit | CrashPoint::AfterCommit) => 0,
            None => {
                self.look_at_state(was_short || begun < self.now)?;
                self.perform(sends, is_behind)?;
                return if denies_all { self.checks.nobody_waits() } else { Ok(()) };
            }
        };
        self.perform(sends.into_iter().take(n_out).collect(), is_behind)?;
        self.crashes()
    }

    /// Kills the server with kill -9 in the middle of a step.
    fn crashes(&mut self) -> Result<(), Violation> {
        if let Some((_, Some(back_after))) = self.crash.take() {
            self.agenda.push(self.now + back_after, Item::Repair(Repair::Server));
        }
        self.server_dies()
    }

    /// Shows the checkers the facts that have become durable.
    fn look_at_facts(&mut self, at: Time, is_late: bool) -> Result<(), Violation> {
        for fact in &self.journal.facts()[self.n_traced..] {
            self.trace.note(self.now, format_args!("  {}", short_fact(fact)));
        }
        let n_facts = self.journal.facts().len();
        let from = std::mem::replace(&mut self.n_traced, n_facts);
        if from < n_facts {
            self.written.push_back(Written { n_facts, at, is_late });
        }
        self.look_out(from);
        for (idx, fact) in self.journal.synced().iter().enumerate().skip(self.n_checked) {
            // Some facts are written long before they are synced.
            while self.written.front().is_some_and(|written| written.n_facts <= idx) {
                self.written.pop_front();
            }
            if let Some(written) = self.written.front() {
                self.checks.at(written.at, written.is_late);
            }
            self.checks.durable(fact, self.journal.shadow(), &self.nodes)?;
        }
        self.n_checked = self.journal.synced().len();
        if self.n_checked > MOST_FACTS {
            return Err(Rule::Spin.broken(format!("{MOST_FACTS} facts came about until {:?}", self.now)));
        }
        Ok(())
    }

    /// Checks after a commit that the state follows from the facts alone, and that a later request changes nothing.
    fn look_at_state(&mut self, is_late: bool) -> Result<(), Violation> {
        let Some(server) = self.server.as_ref().filter(|server| !server.server_loop.is_behind()) else { return Ok(()) };
        let accepted = std::mem::take(&mut self.accepted);
        check::restored_is_equal(self.journal.shadow(), server.state(), "by its facts")?;
        check::held_is_promised(server.state())?;
        check::used_is_kept(server.state(), &self.nodes)?;
        self.checks.nobody_is_slowed(server.state(), &self.nodes)?;
        if !is_late {
            check::nothing_is_overdue(server.state(), self.now, server.server_loop.next_timer())?;
        }
        accepted.iter().try_for_each(|accepted| check::is_agreed(accepted, server.state()))?;
        if self.n_turns.is_multiple_of(FCFS_EVERY) {
            check::later_requests_change_nothing(server.state(), self.now)?;
        }
        if self.n_turns.is_multiple_of(RESTORE_EVERY) {
            self.check_restore()?;
        }
        if self.n_turns.is_multiple_of(SNAPSHOT_EVERY) {
            let state = (self.snapshot)(server.state());
            self.journal.keep_snapshot(state);
        }
        Ok(())
    }

    /// Checks `restore(journal) == state`, from the snapshot on and from the beginning.
    pub(crate) fn check_restore(&self) -> Result<(), Violation> {
        let (snapshot, later) = self.journal.contents();
        let restored = rms_core::Rms::restore(self.config.clone(), snapshot, later.iter().cloned())
            .expect("the facts are of one journal");
        check::restored_is_equal(restored.state(), self.journal.shadow(), "restored from the snapshot")?;
        let facts = self.journal.facts().iter().cloned();
        let restored = rms_core::Rms::restore(self.config.clone(), None, facts).expect("the facts are of one journal");
        check::restored_is_equal(restored.state(), self.journal.shadow(), "restored from all facts")?;
        check::acknowledged_jobs_are_kept(&self.checks.acknowledged, self.journal.facts())
    }

    /// Checks that launchers see the current plan; to be called after the last fault, when a pass has found nothing to
    /// start. Returns how many views were compared.
    ///
    /// # Errors
    /// The view of a launcher differs from the plan.
    pub(crate) fn check_views_converged(&self, before: usize) -> Result<usize, Violation> {
        let is_still = self.journal.facts()[before..].iter().all(|fact| matches!(fact, Fact::SettingChanged { .. }));
        let Some(server) = self.server.as_ref().filter(|_| is_still) else { return Ok(0) };
        check::held_as_planned(server.state(), self.now, self.views_held())
    }

    /// Checks that no job stays too long on nodes; to be called after the last fault.
    pub(crate) fn check_nobody_overstays(&self) -> Result<(), Violation> {
        self.server.as_ref().map_or(Ok(()), |server| check::nobody_overstays(server.state(), self.now))
    }

    fn perform(&mut self, sends: Vec<Outbound>, is_behind: bool) -> Result<(), Violation> {
        for outbound in sends {
            self.checks.leaves(&outbound, is_behind)?;
            match outbound {
                Outbound::Answer { ticket, answer } => {
                    if let Ok(Answer::Submitted { job }) = &answer {
                        self.checks.acknowledged.insert(*job);
                    }
                    self.look_at_answer(ticket, &answer)?;
                    match answer {
                        Ok(given) => drop(self.answers.insert(ticket, Ok(given))),
                        Err(Denial::Refused(refusal)) => drop(self.answers.insert(ticket, Err(refusal))),
                        Err(Denial::Failing(_)) => {}
                    }
                }
                Outbound::Silence { ticket } => self.ask_is_lost(ticket),
                Outbound::Sign { ticket, issued, .. } => {
                    self.signed.insert(ticket, issued);
                }
                Outbound::Desire { link, desired } => self.send_down(link, ToAgent::Desire(desired)),
                Outbound::Signal { link, job, run, signal } => {
                    self.send_down(link, ToAgent::Signal { job, run, signal });
                }
                Outbound::CloseLink { link, reason } => self.close_link(link, &reason),
                Outbound::LauncherAnswer { ticket, answer } => self.answer_launcher(ticket, answer),
                Outbound::TellLauncher { channel, notice } => self.notify_launcher(channel, notice),
                Outbound::NegotiatorAnswer { ticket, answer } => self.answer_application(ticket, answer),
                Outbound::TellNegotiator { channel, notice } => self.notify_application(channel, notice),
                // Nobody watches jobs here. Certificates are not modelled: their links live on.
                Outbound::Found { .. } | Outbound::Changed { .. } | Outbound::WatchEnds { .. } => {}
                Outbound::CloseLinks { serials: _ } => {}
            }
        }
        Ok(())
    }

    /// Puts a call into the server's inbox; the ticket waits for the answer.
    pub(crate) fn call(&mut self, who: &Identity, call: rms_api::Call) -> Ticket {
        self.n_tickets += 1;
        let ticket = Ticket(self.n_tickets);
        let called = Inbound::Called { ticket, who: who.clone(), call };
        self.agenda.push(self.now, Item::Heard(Box::new(called)));
        ticket
    }

    /// Makes a peer connect with this certificate for the first time.
    pub fn comes_with(&mut self, serial: String) {
        self.agenda.push(self.now, Item::Heard(Box::new(Inbound::CertificateUsed { serial })));
    }

    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Result<Answer, Refusal>> {
        self.answers.remove(&ticket)
    }

    pub(crate) fn signed(&mut self, ticket: Ticket) -> Option<Issued> {
        self.signed.remove(&ticket)
    }

    /// Returns the hash of everything that happened: equal for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Returns the whole trace, line by line.
    pub fn whole_trace(&self) -> &[String] {
        self.trace.lines()
    }

    /// Returns the last lines of the trace.
    pub fn trace(&self) -> String {
        self.trace.to_string()
    }

    /// Returns every fact that is durable.
    pub fn facts(&self) -> &[Fact] {
        self.journal.facts()
    }
}

fn check_state(state: &State) -> Result<(), Violation> {
    state.check().map_err(|violation| Rule::State.broken(violation.to_string()))
}

/// The delay of a message in one direction, on a quiet network.
pub(crate) const USUAL_DELAY: Span = Span::from_millis(1);
/// The limit of rounds in one instant; beyond it, time does not advance.
const MOST_ROUNDS: usize = 100;
/// The limit of facts in a small world; beyond it, the world is in a loop.
const MOST_FACTS: usize = 5_000;
const FCFS_EVERY: u64 = 8;
const RESTORE_EVERY: u64 = 32;
const SNAPSHOT_EVERY: u64 = 50;

#[cfg(test)]
mod tests;
