//! A model node: the real node logic, and supervisors that outlive it.

use std::collections::BTreeMap;

use rms_api::desired::{AgentHello, DesiredJob, JobReport, NodeReport};
use rms_core::agent::{Agent, AgentEffect, AgentEvent, Found};
use rms_model::{JobId, Run, Span, Time};

use crate::program::Program;
use crate::supervisor::Supervisor;

#[derive(Debug)]
pub struct ModelNode {
    pub name: String,
    pub hello: AgentHello,
    pub is_on: bool,
    agent: Option<Agent>,
    /// Counts the agents there were, so that a timer of one does not serve another.
    pub(crate) life: u64,
    supervisors: BTreeMap<(JobId, Run), Supervisor>,
    /// The agent dies when it has performed so many more orders.
    pub(crate) dies_after: Option<u32>,
}

impl ModelNode {
    pub(crate) fn new(name: String, hello: AgentHello) -> ModelNode {
        ModelNode { name, hello, is_on: true, agent: None, life: 0, supervisors: BTreeMap::new(), dies_after: None }
    }

    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// A new agent looks at the spool, as the real one does, and takes over what it finds.
    pub(crate) fn start_agent(&mut self) {
        let found: Vec<Found> = self.supervisors.values().map(Supervisor::found).collect();
        let mut agent = Agent::new();
        let effects = agent.handle(AgentEvent::Found(found));
        assert!(effects.is_empty(), "finding jobs orders nothing");
        self.agent = Some(agent);
        self.life += 1;
    }

    /// kill -9: the supervisors do not notice.
    pub(crate) fn kill_agent(&mut self) {
        self.dies_after = None;
        self.agent = None;
    }

    /// The machine goes down: every process is gone. What is on its disk stays.
    pub(crate) fn power_off(&mut self, now: Time) {
        self.kill_agent();
        self.is_on = false;
        self.supervisors.values_mut().for_each(|supervisor| supervisor.vanish(now));
    }

    /// The disk is gone, and every result with it.
    pub(crate) fn wipe(&mut self) {
        self.supervisors.clear();
    }

    /// The link is up: what the hello says.
    pub(crate) fn hello_report(&mut self) -> NodeReport {
        let agent = self.agent.as_mut().expect("only a living agent connects");
        let effects = agent.handle(AgentEvent::LinkUp);
        assert!(effects.is_empty(), "a link alone orders nothing");
        agent.full_report()
    }

    /// The agent takes in an event: what it orders. Nothing, where there is none.
    pub(crate) fn handle(&mut self, event: AgentEvent) -> Vec<AgentEffect> {
        self.agent.as_mut().map(|agent| agent.handle(event)).unwrap_or_default()
    }

    /// Whether the agent lives to perform one more order. What it told before, it told; what it was about to do is not
    /// done.
    pub(crate) fn lives_on(&mut self) -> bool {
        if self.dies_after == Some(0) {
            self.kill_agent();
            return false;
        }
        self.dies_after = self.dies_after.map(|n_left| n_left - 1);
        true
    }

    pub(crate) fn start(&mut self, now: Time, wanted: &DesiredJob, program: &Program) {
        self.supervisors.insert((wanted.job, wanted.run), Supervisor::start(now, wanted, program));
    }

    pub(crate) fn update(&mut self, now: Time, wanted: &DesiredJob) {
        if let Some(supervisor) = self.supervisors.get_mut(&(wanted.job, wanted.run)) {
            supervisor.update(now, wanted);
        }
    }

    pub(crate) fn stop(&mut self, now: Time, execution: (JobId, Run), patience: Span, grace: Span) {
        if let Some(supervisor) = self.supervisors.get_mut(&execution) {
            supervisor.stop(now, patience, grace);
        }
    }

    pub(crate) fn kill(&mut self, now: Time, execution: (JobId, Run)) {
        if let Some(supervisor) = self.supervisors.get_mut(&execution) {
            supervisor.kill(now);
        }
    }

    /// What was kept of an execution, if anything was.
    pub(crate) fn forget(&mut self, execution: (JobId, Run)) -> Option<Supervisor> {
        self.supervisors.remove(&execution)
    }

    pub(crate) fn signal(&mut self, now: Time, job: JobId, run: Run, signal: i32) {
        // The agent passes it on, so it takes a living one.
        if let Some(supervisor) = self.supervisors.get_mut(&(job, run))
            && self.agent.is_some()
        {
            supervisor.signal(now, signal);
        }
    }

    /// Supervisors whose time has come do one thing each; what they tell.
    pub(crate) fn advance(&mut self, now: Time) -> Vec<JobReport> {
        self.supervisors.values_mut().filter_map(|supervisor| supervisor.advance(now)).collect()
    }

    /// When the next supervisor does something by itself.
    pub(crate) fn due(&self) -> Option<Time> {
        self.supervisors.values().filter_map(Supervisor::due).min()
    }

    /// Is this the first host of the execution?
    pub(crate) fn is_first_of(&self, execution: (JobId, Run)) -> bool {
        self.supervisors.get(&execution).is_some_and(Supervisor::is_first)
    }

    /// The application ends its processes here by itself.
    pub(crate) fn leaves(&mut self, now: Time, execution: (JobId, Run)) {
        if let Some(supervisor) = self.supervisors.get_mut(&execution) {
            supervisor.leave(now);
        }
    }

    /// Everything in the spool.
    pub fn supervisors(&self) -> &BTreeMap<(JobId, Run), Supervisor> {
        &self.supervisors
    }

    /// Executions with processes.
    pub fn alive(&self) -> Vec<(JobId, Run)> {
        self.supervisors.iter().filter(|(_, supervisor)| supervisor.is_alive()).map(|(key, _)| *key).collect()
    }
}
