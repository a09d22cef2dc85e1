//! A model node: the real node logic, and supervisors that outlive it.

use std::collections::BTreeMap;

use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, NodeReport};
use rms_core::agent::{Agent, AgentEffect, AgentEvent, Found};
use rms_model::{JobId, Run, Time};

use crate::check::{Checks, Violation};
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

    /// The agent takes in an event and its orders are performed. What it wants to tell comes back.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        event: AgentEvent,
        programs: &BTreeMap<String, Program>,
        checks: &mut Checks,
    ) -> Result<Vec<NodeReport>, Violation> {
        let Some(agent) = &mut self.agent else { return Ok(Vec::new()) };
        let mut reports = Vec::new();
        for effect in agent.handle(event) {
            if self.dies_after == Some(0) {
                // What it told before, it told; what it was about to do is not done.
                self.kill_agent();
                return Ok(reports);
            }
            self.dies_after = self.dies_after.map(|n_left| n_left - 1);
            match effect {
                AgentEffect::Start(wanted) => {
                    checks.starting(now, &self.name, &wanted, &self.supervisors)?;
                    let program = programs.get(&wanted.launch.name).cloned().unwrap_or_default();
                    let supervisor = Supervisor::start(now, &wanted, &program);
                    self.supervisors.insert((wanted.job, wanted.run), supervisor);
                }
                AgentEffect::Update(wanted) => {
                    if let Some(supervisor) = self.supervisors.get_mut(&(wanted.job, wanted.run)) {
                        supervisor.update(now, &wanted);
                    }
                }
                AgentEffect::Stop { job, run, patience, grace } => {
                    if let Some(supervisor) = self.supervisors.get_mut(&(job, run)) {
                        supervisor.stop(now, patience, grace);
                    }
                }
                AgentEffect::Kill { job, run } => {
                    if let Some(supervisor) = self.supervisors.get_mut(&(job, run)) {
                        supervisor.kill(now);
                    }
                }
                AgentEffect::Forget { job, run } => {
                    let removed = self.supervisors.remove(&(job, run));
                    checks.forgotten(&self.name, job, run, removed.as_ref())?;
                }
                AgentEffect::Report(report) => reports.push(report),
            }
        }
        Ok(reports)
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
