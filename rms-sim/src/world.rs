//! The world in virtual time: an agenda, one server, nodes, links between them, and what breaks.

use std::collections::BTreeMap;

use rms_core::agent::AgentEvent;
use rms_core::desired::NodeReport;
use rms_core::event::{AgentHello, Event, Ticket};
use rms_core::{Answer, Config, Effect, Fact, Refusal, State};
use rms_model::{Identity, Inventory, Settings, Span, Time};

use crate::agenda::Agenda;
use crate::check::{self, Checks, Rule, Violation};
use crate::dice::Dice;
use crate::journal::ModelJournal;
use crate::link::{Lane, Link, ToAgent, ToServer};
use crate::node::ModelNode;
use crate::program::Program;
use crate::server::{CrashPoint, ModelServer, Turn};
use crate::trace::{Trace, short_event, short_fact, short_job};

/// Everything there is.
#[derive(Debug)]
pub struct World {
    pub(crate) now: Time,
    pub(crate) agenda: Agenda<Item>,
    config: Config,
    pub(crate) server: Option<ModelServer>,
    pub(crate) journal: ModelJournal,
    pub(crate) nodes: Vec<ModelNode>,
    pub(crate) links: Vec<Link>,
    pub(crate) programs: BTreeMap<String, Program>,
    /// Where the server dies at its next step, and after what time it is started again by itself.
    pub(crate) crash: Option<(CrashPoint, Option<Span>)>,
    pub(crate) checks: Checks,
    pub(crate) trace: Trace,
    /// Chance in the machinery: how long it takes until an end notices that a link is dead.
    dice: Dice,
    n_tickets: u64,
    answers: BTreeMap<Ticket, Result<Answer, Refusal>>,
    signed: BTreeMap<Ticket, Identity>,
    /// Facts that the checkers have seen.
    n_checked: usize,
    n_turns: u64,
    snapshot: fn(&State) -> State,
}

/// What is going to happen.
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
    /// Nothing came through for too long.
    IdleOut {
        node: usize,
        n_cuts: u64,
    },
    /// A supervisor of the node has something to do.
    Wake {
        node: usize,
    },
    Event(Box<Event>),
    Repair(Repair),
    JournalRetry,
}

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repair {
    Server,
    Agent(usize),
    Node(usize),
    Heal(usize),
    Journal,
    Speed(usize),
}

/// A world to be made.
#[derive(Debug)]
pub struct WorldBuilder {
    seed: u64,
    settings: Settings,
    nodes: Vec<(String, AgentHello)>,
    snapshot: fn(&State) -> State,
}

impl Default for WorldBuilder {
    fn default() -> WorldBuilder {
        WorldBuilder { seed: 0, settings: Settings::default(), nodes: Vec::new(), snapshot: State::clone }
    }
}

impl WorldBuilder {
    pub fn seed(mut self, seed: u64) -> WorldBuilder {
        self.seed = seed;
        self
    }

    pub fn settings(mut self, settings: Settings) -> WorldBuilder {
        self.settings = settings;
        self
    }

    /// How a state comes back from a snapshot: a test may send it through an encoding.
    pub fn snapshot(mut self, snapshot: fn(&State) -> State) -> WorldBuilder {
        self.snapshot = snapshot;
        self
    }

    /// `n_nodes` equal nodes, named after their cluster and counted from 1.
    pub fn cluster(self, name: &str, n_nodes: u32) -> WorldBuilder {
        let inventory = Inventory { cores: 4, cpus: 4, memory: rms_model::Mebibytes(4096), ..Inventory::default() };
        (1..=n_nodes).fold(self, |world, idx| world.node(name, &format!("{name}{idx}"), inventory.clone()))
    }

    pub fn node(mut self, cluster: &str, name: &str, inventory: Inventory) -> WorldBuilder {
        let address = format!("{name}:7420");
        self.nodes.push((name.to_owned(), AgentHello { cluster: cluster.to_owned(), address, inventory }));
        self
    }

    /// The world at its beginning: the server runs, and the agents connect in the order of their nodes.
    pub fn build(self) -> World {
        let config = Config { settings: self.settings.clone(), ..Config::default() };
        let mut world = World {
            now: Time::EPOCH,
            agenda: Agenda::new(),
            server: Some(ModelServer::new(config.clone())),
            config,
            journal: ModelJournal::new(self.settings),
            nodes: Vec::new(),
            links: Vec::new(),
            programs: BTreeMap::new(),
            crash: None,
            checks: Checks::default(),
            trace: Trace::new(),
            dice: Dice::new(self.seed, 0),
            n_tickets: 0,
            answers: BTreeMap::new(),
            signed: BTreeMap::new(),
            n_checked: 0,
            n_turns: 0,
            snapshot: self.snapshot,
        };
        for (name, hello) in self.nodes {
            world.add_node(name, hello);
        }
        world
    }
}

impl World {
    pub(crate) fn add_node(&mut self, name: String, hello: AgentHello) {
        let node = self.nodes.len();
        self.nodes.push(ModelNode::new(name, hello));
        self.links.push(Link::new(USUAL_DELAY));
        self.start_agent(node);
    }

    /// Everything that happens up to `until`, and then time stands there.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn run_until(&mut self, until: Time) -> Result<(), Violation> {
        loop {
            // A server that cannot write does nothing by itself until it tries again.
            let server = self.server.as_ref().filter(|server| !server.is_stuck());
            let timer = server.and_then(ModelServer::next_timer);
            let is_due = server.is_some_and(|server| server.is_due(self.now));
            let next = if is_due { Some(self.now) } else { [self.agenda.next(), timer].into_iter().flatten().min() };
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            self.instant()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// All that happens now: first what arrives, then the server's turn.
    fn instant(&mut self) -> Result<(), Violation> {
        for _ in 0..MOST_ROUNDS {
            while let Some(item) = self.agenda.pop_due(self.now) {
                self.happen(item)?;
            }
            let is_due = self.server.as_ref().is_some_and(|server| server.is_due(self.now));
            if !is_due {
                return Ok(());
            }
            let is_kept = !self.turn()?;
            if is_kept {
                return Ok(());
            }
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
            Item::Dial { node, life } => {
                self.dial(node, life);
                Ok(())
            }
            Item::AgentNotices { node, epoch } => {
                if self.links[node].agent_side == Some(epoch) {
                    self.links[node].agent_side = None;
                    self.dial_later(node);
                }
                Ok(())
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
            Item::Event(event) => {
                if let Some(server) = &mut self.server {
                    self.trace.note(self.now, format_args!("server hears: {}", short_event(&event)));
                    server.take(*event);
                }
                Ok(())
            }
            Item::Repair(repair) => self.repair(repair),
            Item::JournalRetry => {
                // The turn that follows tries again.
                if let Some(server) = &mut self.server {
                    server.unstick();
                }
                Ok(())
            }
        }
    }

    /// One batch of the server; false if the journal did not take it.
    fn turn(&mut self) -> Result<bool, Violation> {
        let Some(server) = &mut self.server else { return Ok(true) };
        let was_stuck = server.is_stuck();
        let crash = self.crash.map(|(point, _)| point);
        let turn = server.turn(self.now, &mut self.journal, crash)?;
        self.n_turns += 1;
        self.look_at_facts()?;
        match turn {
            Turn::Effects(effects) => {
                self.look_at_state()?;
                self.perform(effects);
                Ok(true)
            }
            Turn::NotDurable => {
                if !was_stuck {
                    self.agenda.push(self.now + JOURNAL_RETRY, Item::JournalRetry);
                }
                Ok(false)
            }
            Turn::Crashed(effects) => {
                self.perform(effects);
                if let Some((_, Some(back_after))) = self.crash.take() {
                    self.agenda.push(self.now + back_after, Item::Repair(Repair::Server));
                }
                self.server_dies()?;
                Ok(true)
            }
        }
    }

    /// Shows the checkers what has become durable.
    fn look_at_facts(&mut self) -> Result<(), Violation> {
        let facts = &self.journal.facts()[self.n_checked..];
        for fact in facts {
            self.trace.note(self.now, format_args!("  {}", short_fact(fact)));
            self.checks.durable(fact, self.journal.shadow(), &self.nodes)?;
        }
        self.n_checked = self.journal.facts().len();
        Ok(())
    }

    /// After a commit: the facts alone make the state, and a later request changes nothing.
    fn look_at_state(&mut self) -> Result<(), Violation> {
        let Some(server) = &self.server else { return Ok(()) };
        check::restored_is_equal(self.journal.shadow(), server.state(), "by its facts")?;
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

    /// `restore(journal) == state`, from the snapshot on and from the beginning.
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

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer { ticket, answer } => {
                    if let Ok(Answer::Submitted { job }) = &answer {
                        self.checks.acknowledged.insert(*job);
                    }
                    self.answers.insert(ticket, answer);
                }
                Effect::Desire { node, desired } => self.send_down(&node, ToAgent::Desire(desired)),
                Effect::Signal { node, job, run, signal } => {
                    self.send_down(&node, ToAgent::Signal { job, run, signal });
                }
                // Whoever waits for a job can ask for it: an announcement may be lost.
                Effect::Announce(_) => {}
                Effect::Sign { ticket, identity, .. } => {
                    self.signed.insert(ticket, identity);
                }
                // Certificates are not modelled: their links live on.
                Effect::CloseLinks { serials: _ } => {}
                Effect::RefuseAgent { node, refusal } => {
                    self.trace.note(self.now, format_args!("  refused {node}: {refusal}"));
                    if let Some(node) = self.nodes.iter().position(|entry| entry.name == node) {
                        self.break_link(node);
                    }
                }
            }
        }
    }

    /// A call enters the server's inbox; the ticket waits for what it says.
    pub(crate) fn call(&mut self, who: &Identity, call: rms_core::Call) -> Ticket {
        self.n_tickets += 1;
        let ticket = Ticket(self.n_tickets);
        let event = Event::Called { ticket, who: who.clone(), call };
        self.agenda.push(self.now, Item::Event(Box::new(event)));
        ticket
    }

    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Result<Answer, Refusal>> {
        self.answers.remove(&ticket)
    }

    pub(crate) fn signed(&mut self, ticket: Ticket) -> Option<Identity> {
        self.signed.remove(&ticket)
    }

    fn server_receives(&mut self, node: usize, message: ToServer) {
        let name = self.nodes[node].name.clone();
        let Some(server) = &mut self.server else { return };
        let event = match message {
            ToServer::Hello(report) => {
                // The newest link of a name is the one that counts: nothing of an older one is listened to.
                self.links[node].server_side = Some(self.links[node].epoch);
                Event::AgentConnected { name, hello: self.nodes[node].hello.clone(), report }
            }
            ToServer::Report(report) => Event::AgentReported { name, report },
        };
        self.trace.note(self.now, format_args!("server hears: {}", short_event(&event)));
        server.take(event);
    }

    fn agent_receives(&mut self, node: usize, message: ToAgent) -> Result<(), Violation> {
        match message {
            ToAgent::Desire(desired) => {
                let jobs: Vec<_> = desired.jobs.iter().map(|wanted| (wanted.job.0, wanted.run.0, wanted.aim)).collect();
                let name = &self.nodes[node].name;
                self.trace.note(self.now, format_args!("{name} is to have {} {jobs:?}", desired.generation));
                self.agent_handles(node, AgentEvent::Desired(desired))
            }
            ToAgent::Signal { job, run, signal } => {
                self.nodes[node].signal(self.now, job, run, signal);
                self.wake_later(node);
                Ok(())
            }
        }
    }

    fn agent_handles(&mut self, node: usize, event: AgentEvent) -> Result<(), Violation> {
        let reports = self.nodes[node].handle(self.now, event, &self.programs, &mut self.checks)?;
        let forgotten = std::mem::take(&mut self.checks.forgotten);
        check::results_are_kept(&forgotten, self.journal.shadow())?;
        for report in reports {
            self.send_up(node, ToServer::Report(report));
        }
        self.wake_later(node);
        Ok(())
    }

    fn wake_later(&mut self, node: usize) {
        if let Some(due) = self.nodes[node].due() {
            self.agenda.push(due.max(self.now), Item::Wake { node });
        }
    }

    fn wake(&mut self, node: usize) -> Result<(), Violation> {
        for report in self.nodes[node].advance(self.now) {
            self.trace.note(self.now, format_args!("{} has {}", self.nodes[node].name, short_job(&report)));
            self.checks.ended(&self.nodes[node].name, &report);
            self.agent_handles(node, AgentEvent::Changed(report))?;
        }
        self.wake_later(node);
        Ok(())
    }

    fn send_up(&mut self, node: usize, message: ToServer) {
        if let Some(at) = self.links[node].send_up(self.now, message) {
            self.agenda.push(at, Item::Pump { node, lane: Lane::Up });
        }
    }

    fn send_down(&mut self, name: &str, message: ToAgent) {
        let Some(node) = self.nodes.iter().position(|entry| entry.name == name) else { return };
        if let Some(at) = self.links[node].send_down(self.now, message) {
            self.agenda.push(at, Item::Pump { node, lane: Lane::Down });
        }
    }

    fn dial(&mut self, node: usize, life: u64) {
        let is_same_agent = self.nodes[node].has_agent() && self.nodes[node].life == life;
        if !is_same_agent || self.links[node].agent_side.is_some() {
            return;
        }
        let is_reachable = self.server.is_some() && !self.links[node].is_cut;
        if !is_reachable {
            self.dial_later(node);
            return;
        }
        self.links[node].connect();
        let report: NodeReport = self.nodes[node].hello_report();
        self.trace.note(self.now, format_args!("{} connects", self.nodes[node].name));
        self.send_up(node, ToServer::Hello(report));
    }

    fn dial_later(&mut self, node: usize) {
        let backoff = self.dice.span(Span::from_millis(50), Span::from_secs(2));
        self.agenda.push(self.now + backoff, Item::Dial { node, life: self.nodes[node].life });
    }

    fn server_notices(&mut self, node: usize, epoch: u64) {
        if self.links[node].server_side != Some(epoch) {
            return;
        }
        self.links[node].server_side = None;
        if let Some(server) = &mut self.server {
            let name = self.nodes[node].name.clone();
            self.trace.note(self.now, format_args!("server misses {name}"));
            server.take(Event::AgentGone { name });
        }
    }

    /// The link dies, and both ends will notice.
    pub(crate) fn break_link(&mut self, node: usize) {
        let link = &mut self.links[node];
        let epoch = link.epoch;
        link.die();
        let (agent, server) = (self.dice.span(Span::ZERO, IDLE), self.dice.span(Span::ZERO, IDLE));
        self.agenda.push(self.now + agent, Item::AgentNotices { node, epoch });
        self.agenda.push(self.now + server, Item::ServerNotices { node, epoch });
    }

    /// kill -9 of an agent; its successor knows nothing of its link.
    pub(crate) fn agent_dies(&mut self, node: usize) {
        self.trace.note(self.now, format_args!("{} loses its agent", self.nodes[node].name));
        self.nodes[node].kill_agent();
        self.links[node].agent_side = None;
        self.break_link(node);
    }

    pub(crate) fn start_agent(&mut self, node: usize) {
        if self.nodes[node].is_on && !self.nodes[node].has_agent() {
            self.nodes[node].start_agent();
            self.trace.note(self.now, format_args!("{} has a new agent", self.nodes[node].name));
            self.agenda.push(self.now, Item::Dial { node, life: self.nodes[node].life });
        }
    }

    /// The server's process is gone: what was handled and not durable is forgotten, and every link is dead.
    pub(crate) fn server_dies(&mut self) -> Result<(), Violation> {
        if self.server.take().is_none() {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("the server dies"));
        self.crash = None;
        for node in 0..self.nodes.len() {
            self.links[node].server_side = None;
            if self.links[node].is_alive {
                self.break_link(node);
            }
        }
        self.check_restore()
    }

    pub(crate) fn server_starts(&mut self) -> Result<(), Violation> {
        if self.server.is_some() {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("the server starts"));
        self.server = Some(ModelServer::restore(self.config.clone(), self.now, &self.journal));
        Ok(())
    }

    fn repair(&mut self, repair: Repair) -> Result<(), Violation> {
        match repair {
            Repair::Server => self.server_starts(),
            Repair::Agent(node) => {
                self.start_agent(node);
                Ok(())
            }
            Repair::Node(node) => {
                self.nodes[node].is_on = true;
                self.start_agent(node);
                Ok(())
            }
            Repair::Heal(node) => {
                self.join_network(node);
                Ok(())
            }
            Repair::Journal => {
                self.journal.is_failing = false;
                Ok(())
            }
            Repair::Speed(node) => {
                self.links[node].delay = USUAL_DELAY;
                Ok(())
            }
        }
    }

    /// The machine goes down, and with it every process.
    pub(crate) fn power_off(&mut self, node: usize) {
        self.trace.note(self.now, format_args!("{} goes down", self.nodes[node].name));
        for (job, run) in self.nodes[node].alive() {
            self.checks.vanished(&self.nodes[node].name, job, run);
        }
        self.nodes[node].power_off(self.now);
        self.links[node].agent_side = None;
        self.break_link(node);
    }

    /// Nothing passes to or from the node; a link that idles too long is dead.
    pub(crate) fn cut_network(&mut self, node: usize) {
        let link = &mut self.links[node];
        if !link.is_cut {
            link.is_cut = true;
            link.n_cuts += 1;
            self.agenda.push(self.now + IDLE, Item::IdleOut { node, n_cuts: link.n_cuts });
            self.trace.note(self.now, format_args!("{} is cut off", self.nodes[node].name));
        }
    }

    /// What waited on both sides is sent again.
    pub(crate) fn join_network(&mut self, node: usize) {
        if self.links[node].is_cut {
            self.links[node].is_cut = false;
            self.trace.note(self.now, format_args!("{} is reached again", self.nodes[node].name));
            let at = self.now + self.links[node].delay;
            self.agenda.push(at, Item::Pump { node, lane: Lane::Up });
            self.agenda.push(at, Item::Pump { node, lane: Lane::Down });
        }
    }

    /// The hash of everything that happened: equal for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Everything that happened, line by line.
    pub fn whole_trace(&self) -> &[String] {
        self.trace.lines()
    }

    /// The last things that happened.
    pub fn trace(&self) -> String {
        self.trace.to_string()
    }

    /// Every fact that is durable.
    pub fn facts(&self) -> &[Fact] {
        self.journal.facts()
    }
}

/// One way, on a quiet network.
pub(crate) const USUAL_DELAY: Span = Span::from_millis(1);
/// The most until an end notices that a link is dead.
const IDLE: Span = Span::from_secs(10);
const JOURNAL_RETRY: Span = Span::from_millis(500);
/// More rounds in one instant, and time stands still.
const MOST_ROUNDS: usize = 100;
const FCFS_EVERY: u64 = 8;
const RESTORE_EVERY: u64 = 32;
const SNAPSHOT_EVERY: u64 = 50;
