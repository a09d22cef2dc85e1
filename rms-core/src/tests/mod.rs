//! Tests of the server without I/O, each as small as its point allows.

mod answers;
mod brute;
mod contiguous;
mod due;
mod eligible;
mod evolving;
pub(crate) mod fixture;
mod guests;
mod kept;
mod late_ends;
mod launchers;
mod lending;
mod lent_stages;
mod lent_time;
mod licences;
mod lists;
mod mate_sets;
mod mates;
mod named;
mod negotiate;
mod negotiate_policy;
mod placing;
mod policies;
mod resources;
mod restart;
mod rows;
mod sharers;
mod sharing;
mod trouble;

use rms_api::answer::{Answer, JobDetail, JobLine, Reason};
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeReport};
use rms_api::refusal::Refusal;
use rms_api::{Call, Query};
use rms_model::{Identity, Inventory, JobId, NodeId, Role, Span, Time};

use crate::effect::Effect;
use crate::plan::{Placed, Placement, Plan};
use crate::state::State;
use crate::{Config, Event, Fact, Journal, Rms, Step, Ticket};

/// A server whose clock stands still until it is moved; every fact is checked to be durable and to fit.
pub(crate) struct World {
    pub(crate) rms: Rms,
    pub(crate) now: Time,
}

pub(crate) struct NullJournal;

impl Journal for NullJournal {
    type Error = std::convert::Infallible;

    fn append(&mut self, _: &[Fact]) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Checks that a pass that began with what an earlier one kept decides as one that began anew. Either may search again
/// for a job that then stays.
pub(crate) fn assert_same_plan(state: &State, plan: &Plan, anew: &Plan) {
    let stays = |placement: &&Placement| match &placement.outcome {
        Placed::Later { at, nodes, .. } => {
            let promised = &state.jobs()[&placement.job].promised;
            promised.as_ref().is_some_and(|promise| promise.at == *at && promise.nodes == *nodes)
        }
        Placed::Now { .. } | Placed::Never { .. } => false,
    };
    let moves = |plan: &Plan| plan.placements.iter().filter(|placement| !stays(placement)).cloned().collect::<Vec<_>>();
    assert_eq!(moves(plan), moves(anew), "at {:?}", plan.now);
}

impl World {
    pub(crate) fn new() -> World {
        World { rms: Rms::new(Config::default()), now: Time::from_secs(1_000_000) }
    }

    pub(crate) fn event(&mut self, event: Event) -> Vec<Effect> {
        let mut step = self.rms.handle(self.now, event);
        step.merge(self.pass());
        self.rms.state().check().expect("the state is sound");
        let Ok(effects) = step.commit(&mut NullJournal);
        effects
    }

    fn pass(&mut self) -> Step {
        match self.rms.next_timer() {
            Some(due) if due <= self.now => self.rms.handle(self.now, Event::Tick),
            Some(_) | None => Step::default(),
        }
    }

    pub(crate) fn node(&mut self, name: &str, features: &[&str]) -> NodeId {
        let features = features.iter().map(|feature| (*feature).to_owned()).collect();
        let inventory = Inventory { features, ..Inventory::default() };
        self.joins(name, inventory, Vec::new());
        self.rms.state().node_named(name).expect("it has joined")
    }

    pub(crate) fn joins(&mut self, name: &str, inventory: Inventory, jobs: Vec<JobReport>) -> Vec<Effect> {
        let (cluster, address) = ("c".to_owned(), "127.0.0.1:1".to_owned());
        let hello = AgentHello { cluster, address, inventory, trouble: None };
        let report = NodeReport { jobs, ..NodeReport::default() };
        self.event(Event::AgentConnected { name: name.to_owned(), hello, report })
    }

    /// Connects an agent again on whose node all that was ordered there runs.
    fn comes_back(&mut self, name: &str) -> Vec<Effect> {
        let state = self.rms.state();
        let node = state.node_named(name).expect("it was there");
        self.comes_back_with(name, state.nodes()[&node].inventory.clone())
    }

    /// As [`World::comes_back`], with another description.
    fn comes_back_with(&mut self, name: &str, inventory: Inventory) -> Vec<Effect> {
        let state = self.rms.state();
        let node = state.node_named(name).expect("it was there");
        let there = state.holding().filter_map(|(job, entry)| {
            let started = entry.started().filter(|started| started.nodes.contains(&node))?;
            Some(JobReport { job, run: entry.run, status: JobStatus::running(started.at) })
        });
        let jobs = there.collect();
        self.joins(name, inventory, jobs)
    }

    /// Restarts the server as after kill -9, with the clock changed by `set_by_secs` meanwhile.
    fn restart(&mut self, set_by_secs: i64) {
        let state = self.rms.state().clone();
        self.rms = Rms::restore(Config::default(), Some(state), []).expect("the state fits itself");
        self.now += Span::from_secs(set_by_secs);
        let step = self.rms.boot(self.now);
        let Ok(_) = step.commit(&mut NullJournal);
    }

    pub(crate) fn ask(&mut self, call: Call) -> Answer {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        self.ask_as(who, call).expect("it is allowed")
    }

    pub(crate) fn ask_as(&mut self, who: Identity, call: Call) -> Result<Answer, Refusal> {
        let effects = self.event(Event::Called { ticket: Ticket(1), who, call });
        let answer = effects.into_iter().find_map(|effect| {
            let Effect::Answer { ticket: _, answer } = effect else { return None };
            Some(answer)
        });
        answer.expect("every call is answered")
    }

    pub(crate) fn submit(&mut self, n_nodes: u32, wall_secs: i64, features: &[&str]) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(wall_secs)) }];
            submission.constraint.features = features.iter().map(|feature| (*feature).to_owned()).collect();
        })
    }

    pub(crate) fn submit_with(&mut self, change: impl FnOnce(&mut Submission)) -> JobId {
        let mut submission = self.submission();
        change(&mut submission);
        match self.ask(Call::Submit(Box::new(submission))) {
            Answer::Submitted { job } => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// Returns why a submission is refused.
    fn refused(&mut self, change: impl FnOnce(&mut Submission)) -> String {
        let mut submission = self.submission();
        change(&mut submission);
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        let call = Call::Submit(Box::new(submission));
        let effects = self.event(Event::Called { ticket: Ticket(1), who, call });
        let refusal = effects.into_iter().find_map(|effect| {
            let Effect::Answer { ticket: _, answer } = effect else { return None };
            answer.err()
        });
        refusal.expect("it is refused").to_string()
    }

    /// Returns a minimal submission.
    fn submission(&self) -> Submission {
        Submission { shapes: Vec::new(), ..test_kit::submission(1, Span::ZERO) }
    }

    pub(crate) fn line(&mut self, job: JobId) -> JobLine {
        match self.ask(Call::Query(Query::Queue(Default::default()))) {
            Answer::Queue { jobs, .. } => jobs.into_iter().find(|line| line.job == job).expect("it is in the system"),
            other => panic!("no queue: {other:?}"),
        }
    }

    pub(crate) fn detail(&mut self, job: JobId) -> JobDetail {
        self.details(Query::Job(Select::Ids(vec![job]))).remove(0)
    }

    /// Returns why a job waits, with the jobs in its way.
    pub(crate) fn explained(&mut self, job: JobId) -> Option<Reason> {
        self.details(Query::Explain(Select::Ids(vec![job]))).remove(0).line.reason
    }

    fn details(&mut self, query: Query) -> Vec<JobDetail> {
        match self.ask(Call::Query(query)) {
            Answer::Detail { jobs, .. } => jobs,
            other => panic!("no details: {other:?}"),
        }
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.ask(Call::Set { key: key.to_owned(), value: value.to_owned() });
    }
}
