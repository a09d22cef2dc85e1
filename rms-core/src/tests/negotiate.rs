//! Negotiations of running applications with the server: a scene with agents that obey and applications that answer.

mod asks;
mod attached;
mod clusters;
mod cores;
mod exits;
mod inside;
mod launches;
mod lenders;
mod losses;
mod lost_promises;
mod races;
mod reminders;
mod restarts;
mod rights;
mod scenarios;
mod shared;
mod shrinking;
mod stages;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{
    Action, Dialogues, Direction, Item, Message, NegotiationId, Output, Phase, Resource, SetRule, Side, Statement,
};
use rms_api::answer::Answer;
use rms_api::call::{Nodes, Shape};
use rms_api::desired::{Aim, Desired, DesiredJob, JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::negotiate::NegotiationLine;
use rms_api::negotiate::{Ask, AskOutcome, Asked, Holding, Manner, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::{Call, Query, Refusal};
use rms_model::{
    ClusterId, Identity, Inventory, JobId, Malleable, NodeId, OnResize, Outcome, Role, Run, Sizes, Span, Time, Usage,
    Work,
};

use super::World;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::negotiate;
use crate::{Config, Event, Fact, Journal, Replay, Rms, State, Step};

/// A server, agents that do at once what they are told, and applications that negotiate for themselves.
pub(super) struct Scene {
    pub(super) world: World,
    facts: Facts,
    shadow: Replay,
    apps: BTreeMap<JobId, App>,
    answers: BTreeMap<Ticket, Result<Answer, Refusal>>,
    /// Nodes whose agents are disconnected.
    deaf: BTreeSet<String>,
    /// Nodes on which no CPU mask can be set.
    stubborn: BTreeSet<String>,
    /// The generation of each job's nodes that each agent was last sent.
    told: BTreeMap<(String, JobId), u32>,
    last_ticket: u64,
}

/// The negotiator of an application.
pub(super) struct App {
    pub(super) dialogues: Dialogues,
    run: Run,
    /// Nodes that it was told are lost.
    pub(super) lost: Vec<rms_model::NodeId>,
    refused: Vec<String>,
    holding: Option<Holding>,
    /// The holding that it knew when it last heard that a change was ready.
    holding_at_ready: Option<Holding>,
    ended: Option<Outcome>,
    is_replaced: bool,
    /// What the server said last about a term that was not possible.
    why: Option<String>,
    /// What the server said last about how long it may keep what it gives back.
    pub(super) release_within: Option<Span>,
    /// Its messages are kept back from the server.
    is_mute: bool,
}

/// A journal whose noted facts are lost with the power.
#[derive(Default)]
struct Facts {
    durable: Vec<Fact>,
    noted: Vec<Fact>,
}

impl Journal for Facts {
    type Error = std::convert::Infallible;

    fn append(&mut self, facts: &[Fact]) -> Result<(), Self::Error> {
        self.durable.append(&mut self.noted);
        self.durable.extend_from_slice(facts);
        Ok(())
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), Self::Error> {
        self.noted.extend_from_slice(facts);
        Ok(())
    }
}

impl Facts {
    fn all(&self) -> Vec<Fact> {
        self.durable.iter().chain(&self.noted).cloned().collect()
    }
}

/// Returns the limits with which an application is submitted.
pub(super) fn malleable(least: u32, most: u32, on_resize: OnResize) -> Malleable {
    Malleable { least, most, sizes: Sizes::Any, on_resize, speedup: Default::default(), survives_loss: None }
}

/// Returns a request for `quantity` nodes more or fewer, and at least `least`.
pub(super) fn nodes(direction: Direction, quantity: u64, least: u64) -> Ask {
    Ask {
        direction,
        what: Asked::Nodes { cluster: None },
        quantity,
        least,
        sizes: Sizes::Any,
        price: Default::default(),
        duration: None,
        nodes: Vec::new(),
        wait: Span::ZERO,
    }
}

impl Scene {
    pub(super) fn new(n_nodes: u32) -> Scene {
        let mut scene = Scene {
            world: World::new(),
            facts: Facts::default(),
            shadow: Replay::of(State::new(Default::default())),
            apps: BTreeMap::new(),
            answers: BTreeMap::new(),
            deaf: BTreeSet::new(),
            stubborn: BTreeSet::new(),
            told: BTreeMap::new(),
            last_ticket: 0,
        };
        for number in 1..=n_nodes {
            scene.node_joins(&format!("n{number}"));
        }
        // The server opens no negotiations here, unless a test says so.
        scene.set("offer_idle", "never");
        scene.set("shrink_for", "never");
        scene
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.call(Call::Set { key: key.to_owned(), value: value.to_owned() }).expect("a setting");
    }

    pub(super) fn node_joins(&mut self, name: &str) {
        let state = self.world.rms.state();
        let known = state.node_named(name).map(|node| state.clusters()[&state.nodes()[&node].cluster].clone());
        self.node_joins_in(&known.unwrap_or("c".to_owned()), name);
    }

    pub(super) fn node_joins_in(&mut self, cluster: &str, name: &str) {
        self.node_joins_as(cluster, name, Inventory { cores: 4, cpus: 4, ..Inventory::default() });
    }

    pub(super) fn node_joins_with(&mut self, name: &str, inventory: Inventory) {
        self.node_joins_as("c", name, inventory);
    }

    fn node_joins_as(&mut self, cluster: &str, name: &str, inventory: Inventory) {
        let (cluster, address) = (cluster.to_owned(), "127.0.0.1:1".to_owned());
        let hello = rms_api::desired::AgentHello { cluster, address, inventory, trouble: None };
        let jobs = self.running_on(name);
        let report = NodeReport { jobs, ..NodeReport::default() };
        self.event(Event::AgentConnected { name: name.to_owned(), hello, report });
    }

    /// Returns the jobs that a reconnecting agent reports.
    fn running_on(&self, name: &str) -> Vec<JobReport> {
        let state = self.world.rms.state();
        let Some(node) = state.node_named(name) else { return Vec::new() };
        let runs = state.jobs().iter().filter_map(|(job, entry)| {
            let share = entry.started()?.shares.get(&node)?;
            let is_up = matches!(share, crate::state::job::Share::Running { .. });
            is_up.then(|| JobReport { job: *job, run: entry.run, status: self.runs(name, *job) })
        });
        runs.collect()
    }

    pub(super) fn event(&mut self, event: Event) {
        let mut step = self.world.rms.handle(self.world.now, event);
        self.drain(&mut step);
        self.commit(step);
    }

    /// Lets the server open a negotiation.
    pub(super) fn by_itself(&mut self, open: impl FnOnce(&mut Rms, Time, &mut Step)) {
        let mut step = Step::default();
        open(&mut self.world.rms, self.world.now, &mut step);
        self.world.rms.negotiations().review_changed(self.world.now, &mut step);
        self.drain(&mut step);
        self.commit(step);
    }

    fn drain(&mut self, step: &mut Step) {
        while let Some(due) = self.world.rms.next_timer()
            && due <= self.world.now
        {
            step.merge(self.world.rms.handle(self.world.now, Event::Tick));
        }
    }

    fn commit(&mut self, step: Step) {
        self.world.rms.state().check().expect("the state is sound");
        negotiate::check(self.world.rms.state()).expect("what is kept is what was promised");
        let n_before = self.facts.durable.len() + self.facts.noted.len();
        let Ok(effects) = step.commit(&mut self.facts);
        // A reader that follows the journal has the same state.
        for fact in self.facts.durable.iter().chain(&self.facts.noted).skip(n_before) {
            self.shadow.follow(fact).expect("the facts fit");
        }
        assert_eq!(self.shadow.state(), self.world.rms.state());
        for effect in effects {
            self.obey(effect);
        }
    }

    fn obey(&mut self, effect: Effect) {
        match effect {
            Effect::Desire { node, desired } if !self.deaf.contains(&node) => self.agent(&node, &desired),
            Effect::Answer { ticket, answer } => {
                self.answers.insert(ticket, answer);
            }
            Effect::TellNegotiator { job, notice } => self.notice(job, notice),
            Effect::NegotiatorAnswer { ticket, answer } => self.negotiator_answer(ticket, answer),
            _ => {}
        }
    }

    fn agent(&mut self, name: &str, desired: &Desired) {
        for job in &desired.jobs {
            self.told.insert((name.to_owned(), job.job), job.launch.generation);
        }
        let now = self.world.now;
        let report = |job: &DesiredJob| match job.aim {
            Aim::Run => self.runs(name, job.job),
            Aim::End { .. } => JobStatus::Ended { at: now, exit: NodeExit::Ordered, usage: Usage::default() },
        };
        let jobs = desired.jobs.iter().map(|job| JobReport { job: job.job, run: job.run, status: report(job) });
        let report = NodeReport { seen: desired.generation, jobs: jobs.collect() };
        self.report(name, report);
    }

    /// Returns an agent's status of a job that runs on its node.
    fn runs(&self, name: &str, job: JobId) -> JobStatus {
        let generation = self.told.get(&(name.to_owned(), job)).copied().unwrap_or(1);
        JobStatus::Running { since: Time::EPOCH, generation, is_confined: !self.stubborn.contains(name) }
    }

    fn report(&mut self, name: &str, report: NodeReport) {
        self.event(Event::AgentReported { name: name.to_owned(), report });
    }

    /// Reports an agent's status of one job.
    pub(super) fn share(&mut self, name: &str, job: JobId, status: JobStatus) {
        let state = self.world.rms.state();
        let node = state.node_named(name).expect("it has joined");
        let (run, seen) = (state.jobs()[&job].run, state.nodes()[&node].generation);
        self.report(name, NodeReport { seen, jobs: vec![JobReport { job, run, status }] });
    }

    pub(super) fn ended(&mut self, name: &str, job: JobId, exit: NodeExit) {
        self.share(name, job, JobStatus::Ended { at: self.world.now, exit, usage: Usage::default() });
    }

    /// Disconnects the agents of these nodes.
    pub(super) fn disconnect(&mut self, names: &[&str]) {
        self.deaf.extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// Reconnects the agents, which first get their desired states.
    pub(super) fn reconnect(&mut self, names: &[&str]) {
        for name in names {
            self.deaf.remove(*name);
            let node = self.world.rms.state().node_named(name).expect("it has joined");
            let desired = self.world.rms.context.desired(node);
            self.agent(name, &desired);
        }
    }

    /// Lets time pass; every timer is handled.
    pub(super) fn after(&mut self, span: Span) {
        let until = self.world.now + span;
        let mut n_ticks = 0;
        while let Some(due) = self.world.rms.next_timer().filter(|due| *due <= until) {
            self.world.now = self.world.now.max(due);
            self.event(Event::Tick);
            n_ticks += 1;
            assert!(n_ticks < 10_000, "timers come to rest");
        }
        self.world.now = until;
        for job in self.apps.keys().copied().collect::<Vec<_>>() {
            let now = self.world.now;
            let app = self.apps.get_mut(&job).expect("it is one of them");
            let output = app.dialogues.tick(now);
            self.speak(job, output);
        }
    }

    /// Restarts the server as after a power failure: noted facts are gone.
    pub(super) fn power_cut(&mut self) {
        self.facts.noted.clear();
        self.restart();
    }

    /// Restarts the server as after kill -9.
    pub(super) fn restart(&mut self) {
        let rms = Rms::restore(Config::default(), None, self.facts.all()).expect("the facts fit");
        self.world.rms = rms;
        self.shadow = Replay::of(self.world.rms.state().clone());
        self.answers.clear();
        let mut step = self.world.rms.boot(self.world.now);
        self.drain(&mut step);
        self.commit(step);
        let names: Vec<String> = self.world.rms.state().nodes().values().map(|node| node.name.clone()).collect();
        for name in names {
            self.node_joins(&name);
        }
    }

    /// Checks that a server that reads the journal has this state.
    pub(super) fn is_durable(&self) {
        let read = Rms::restore(Config::default(), None, self.facts.all()).expect("the facts fit");
        assert_eq!(read.state(), self.world.rms.state());
    }

    // ---- jobs

    pub(super) fn submit(&mut self, n_nodes: u32, wall: Span, malleable: Option<Malleable>) -> JobId {
        self.submit_work(n_nodes, wall, Work::Tasks { argv: vec!["app".to_owned()] }, malleable)
    }

    /// Submits a job that requests `cpus` CPUs of each of its nodes; with 0 it counts none.
    pub(super) fn guest(&mut self, n_nodes: u32, cpus: u32, wall: Span) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
        submission.n_tasks = Some(n_nodes);
        submission.cpus_per_task = cpus;
        match self.call(Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    pub(super) fn submit_work(&mut self, n_nodes: u32, wall: Span, work: Work, malleable: Option<Malleable>) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
        submission.execution.work = work;
        submission.malleable = malleable;
        submission.requeue = Some(true);
        match self.call(Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    pub(super) fn call(&mut self, call: Call) -> Result<Answer, Refusal> {
        let ticket = self.call_later(call);
        self.answers.remove(&ticket).expect("it is answered at once")
    }

    /// Makes a call that is answered later.
    pub(super) fn call_later(&mut self, call: Call) -> Ticket {
        let ticket = self.ticket();
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        self.event(Event::Called { ticket, who, call });
        ticket
    }

    pub(super) fn ask(&mut self, job: JobId, ask: Ask) -> Ticket {
        self.call_later(Call::Negotiate { job, ask })
    }

    /// Returns the answer to a call, if there is one.
    pub(super) fn answer(&mut self, ticket: Ticket) -> Option<Result<Answer, Refusal>> {
        self.answers.remove(&ticket)
    }

    /// Returns all facts so far.
    pub(super) fn facts(&self) -> Vec<Fact> {
        self.facts.all()
    }

    /// Returns the outcome of a request, if there is one.
    pub(super) fn outcome(&self, ticket: Ticket) -> Option<AskOutcome> {
        match self.answers.get(&ticket)? {
            Ok(Answer::Negotiated(outcome)) => Some(outcome.clone()),
            other => panic!("no outcome: {other:?}"),
        }
    }

    pub(super) fn refusal(&self, ticket: Ticket) -> Option<Refusal> {
        self.answers.get(&ticket)?.clone().err()
    }

    pub(super) fn held(&self, job: JobId) -> Vec<u32> {
        self.world.rms.state().jobs()[&job].nodes().iter().map(|NodeId(node)| *node).collect()
    }

    /// Counts the nodes that no job holds.
    pub(super) fn n_free(&self) -> usize {
        self.world.rms.state().nodes().values().filter(|node| node.is_free()).count()
    }

    pub(super) fn is_started(&self, job: JobId) -> bool {
        self.world.rms.state().jobs().get(&job).is_some_and(|entry| entry.started().is_some())
    }

    pub(super) fn has_left(&self, job: JobId) -> bool {
        !self.world.rms.state().jobs().contains_key(&job)
    }

    pub(super) fn lines(&mut self, job: JobId) -> Vec<NegotiationLine> {
        match self.call(Call::Query(Query::Negotiations { job: Some(job) })) {
            Ok(Answer::Negotiations { lines, .. }) => lines,
            other => panic!("no lines: {other:?}"),
        }
    }

    pub(super) fn phase(&self, job: JobId, id: NegotiationId) -> Phase {
        let negotiations = self.world.rms.state().jobs()[&job].negotiations.as_ref().expect("it negotiates");
        negotiations.get(id).expect("it is known").phase()
    }

    // ---- applications

    pub(super) fn attach(&mut self, job: JobId) -> Result<(), Refusal> {
        self.attach_as(job, Manner::default())
    }

    pub(super) fn attach_as(&mut self, job: JobId, manner: Manner) -> Result<(), Refusal> {
        let run = self.world.rms.state().jobs()[&job].run;
        let dialogues = Dialogues::new(Side::Application, job, run, Default::default());
        let known = self.apps.remove(&job).filter(|app| app.run == run);
        let dialogues = known.map_or(dialogues, |app| app.dialogues);
        let app = App {
            dialogues,
            run,
            refused: Vec::new(),
            lost: Vec::new(),
            holding: None,
            holding_at_ready: None,
            ended: None,
            is_replaced: false,
            why: None,
            release_within: None,
            is_mute: false,
        };
        self.apps.insert(job, app);
        let answered = self.negotiator_call(job, NegotiatorCall::Attach(manner));
        if answered.is_ok() {
            let now = self.world.now;
            let output = self.apps.get_mut(&job).expect("it is there").dialogues.resume(now);
            self.speak(job, output);
        }
        answered
    }

    /// Replaces the negotiator of a job by one that knows nothing.
    pub(super) fn attach_anew(&mut self, job: JobId) -> Result<(), Refusal> {
        self.apps.remove(&job);
        self.attach(job)
    }

    pub(super) fn negotiator_call(&mut self, job: JobId, call: NegotiatorCall) -> Result<(), Refusal> {
        let run = self.apps[&job].run;
        self.negotiator_call_as(Identity::of_job(job, run), call)
    }

    pub(super) fn negotiator_call_as(&mut self, who: Identity, call: NegotiatorCall) -> Result<(), Refusal> {
        let ticket = self.ticket();
        self.event(Event::NegotiatorCalled { ticket, who, call });
        self.answers.remove(&ticket).map_or(Ok(()), |answer| answer.map(|_| ()))
    }

    fn negotiator_answer(&mut self, ticket: Ticket, answer: Result<NegotiatorAnswer, Refusal>) {
        if let Ok(NegotiatorAnswer::Attached(attached)) = &answer
            && let Some(app) = self.apps.get_mut(&attached.job)
        {
            app.holding = Some(attached.holding.clone());
            app.dialogues.skip_to(attached.n_opened);
            for reminder in &attached.open {
                app.dialogues.recall(self.world.now, reminder).expect("there can be such a negotiation");
            }
        }
        self.answers.insert(ticket, answer.map(|_| Answer::Done));
    }

    fn notice(&mut self, job: JobId, notice: NegotiatorNotice) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        match notice {
            NegotiatorNotice::Said(message) => {
                if let Some(Statement::Ready { .. }) = &message.statement {
                    app.holding_at_ready.clone_from(&app.holding);
                }
                app.why.clone_from(&message.why);
                app.release_within = message.release_within.or(app.release_within);
                let output = app.dialogues.receive(self.world.now, &message);
                self.speak(job, output);
            }
            NegotiatorNotice::Refused { reason, .. } => app.refused.push(reason),
            NegotiatorNotice::Holding(holding) => app.holding = Some(*holding),
            NegotiatorNotice::Ended { outcome } => app.ended = Some(outcome),
            NegotiatorNotice::Replaced => app.is_replaced = true,
            NegotiatorNotice::Counted { n_opened } => app.dialogues.skip_to(n_opened),
            NegotiatorNotice::NodesLost { nodes } => app.lost.extend(nodes),
        }
    }

    fn speak(&mut self, job: JobId, output: Output) {
        let is_mute = self.apps[&job].is_mute || self.apps[&job].ended.is_some();
        for message in output.messages.into_iter().filter(|_| !is_mute) {
            self.send(job, message);
        }
    }

    pub(super) fn send(&mut self, job: JobId, message: Message) {
        let _ = self.negotiator_call(job, NegotiatorCall::Say(Box::new(message)));
    }

    pub(super) fn app(&mut self, job: JobId) -> &mut App {
        self.apps.get_mut(&job).expect("it negotiates for itself")
    }

    /// Lets the application open a negotiation about nodes.
    pub(super) fn app_opens(&mut self, job: JobId, direction: Direction, item: Item) -> NegotiationId {
        self.app_opens_set(job, direction, SetRule::All, vec![item])
    }

    /// As [`Scene::app_opens`], about several items at once.
    pub(super) fn app_opens_set(
        &mut self,
        job: JobId,
        direction: Direction,
        rule: SetRule,
        items: Vec<Item>,
    ) -> NegotiationId {
        let now = self.world.now;
        let dialogues = &mut self.app(job).dialogues;
        let opened = dialogues.open(now, direction, vec![rule], items, Span::from_mins(5));
        let (id, output) = opened.expect("it may open one");
        self.speak(job, output);
        id
    }

    pub(super) fn app_acts(&mut self, job: JobId, id: NegotiationId, action: Action) {
        let now = self.world.now;
        let output = self.app(job).dialogues.act(now, id, action).expect("it may do so");
        self.speak(job, output);
    }

    /// Returns the open negotiation of a direction, as the application knows it.
    pub(super) fn app_hears(&self, job: JobId, direction: Direction) -> Option<NegotiationId> {
        self.apps[&job].dialogues.open_for(direction).map(negotiation::Dialogue::id)
    }

    /// Returns the proposal of a negotiation, as the application knows it.
    pub(super) fn app_sees(&self, job: JobId, id: NegotiationId) -> Option<negotiation::Template> {
        self.apps[&job].dialogues.get(id)?.proposal().cloned()
    }

    pub(super) fn app_phase(&self, job: JobId, id: NegotiationId) -> Phase {
        self.apps[&job].dialogues.get(id).expect("it knows of it").phase()
    }

    /// Breaks the channel of the negotiator.
    pub(super) fn hangs_up(&mut self, job: JobId) {
        let run = self.apps[&job].run;
        self.event(Event::NegotiatorGone { job, run });
    }

    /// Returns an item about nodes more or fewer than the job has, from one up to `quantity`.
    pub(super) fn item(&self, job: JobId, quantity: u64) -> Item {
        Item::up_to(Resource::Nodes(ClusterId(0)), self.held(job).len() as u64, quantity)
    }
}
