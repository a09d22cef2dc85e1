//! Messages between the server and the agents: what arrives, what is sent, who connects.

use rms_api::desired::{AgentHello, DesiredJob, JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::node_loop::{self, ExecutionId, Outbound};
use rms_core::server_loop::{Inbound, LinkId};
use rms_model::{Span, Usage};

use super::{Item, Repair, World};
use crate::check::{self, Violation};
use crate::link::{Lane, ToAgent, ToServer};
use crate::node::NodeAction;
use crate::supervisor::Supervisor;
use crate::trace::short_job;

impl World {
    pub(super) fn server_receives(&mut self, node: usize, message: ToServer) {
        let name = self.nodes[node].name.clone();
        let link = self.link_of(node);
        self.server_hears(match message {
            ToServer::Hello(report, trouble) => {
                let hello = AgentHello { trouble, ..self.nodes[node].hello.clone() };
                Inbound::AgentConnected { name, link, hello, report }
            }
            ToServer::Report(report) => Inbound::AgentReported { name, link, report },
            ToServer::Trouble(reason) => Inbound::AgentTroubled { name, link, reason },
        });
    }

    /// Returns the newest link of a node.
    pub(super) fn link_of(&self, node: usize) -> LinkId {
        LinkId((node as u64) << 32 | self.links[node].epoch)
    }

    pub(super) fn agent_receives(&mut self, node: usize, message: ToAgent) -> Result<(), Violation> {
        match message {
            ToAgent::Desire(desired) => {
                let jobs: Vec<_> = desired.jobs.iter().map(|wanted| (wanted.job.0, wanted.run.0, wanted.aim)).collect();
                let name = &self.nodes[node].name;
                self.trace.note(self.now, format_args!("{name} is to have {} {jobs:?}", desired.generation));
                self.agent_hears(node, node_loop::Inbound::Desired(desired))
            }
            ToAgent::Signal { job, run, signal } => {
                self.agent_hears(node, node_loop::Inbound::Signal { job, run, signal })
            }
        }
    }

    /// Sends an event to the agent of a node, and performs its orders.
    pub(super) fn agent_hears(&mut self, node: usize, inbound: node_loop::Inbound) -> Result<(), Violation> {
        self.nodes[node].hear(self.now, inbound);
        self.obey(node)
    }

    /// Performs the agent's orders until it dies.
    fn obey(&mut self, node: usize) -> Result<(), Violation> {
        for order in self.nodes[node].orders() {
            if !self.nodes[node].lives_on() {
                self.agent_dies(node);
                let back_after = self.dice.span(Span::from_millis(1), Span::from_secs(20));
                self.agenda.push(self.now + back_after, Item::Repair(Repair::Agent(node)));
                break;
            }
            match self.nodes[node].perform(self.now, order) {
                Some(Outbound::Hello { report, trouble }) => {
                    self.look_at_unstarted(node, &report);
                    self.send_up(node, ToServer::Hello(report, trouble));
                }
                Some(Outbound::Report(report)) => {
                    self.look_at_unstarted(node, &report);
                    self.send_up(node, ToServer::Report(report));
                }
                Some(Outbound::Trouble(reason)) => self.send_up(node, ToServer::Trouble(reason)),
                // Nobody requests ranks here; applications send their own requests.
                Some(_) | None => {}
            }
        }
        self.run_hooks(node);
        self.wake_later(node);
        Ok(())
    }

    pub(super) fn wake_later(&mut self, node: usize) {
        let Some(due) = self.nodes[node].due().map(|due| due.max(self.now)) else { return };
        if self.nodes[node].wakes_at.is_none_or(|at| due < at) {
            self.nodes[node].wakes_at = Some(due);
            self.agenda.push(due, Item::Wake { node });
        }
    }

    /// Performs what is due on a node.
    pub(super) fn wake(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].wakes_at = None;
        while self.nodes[node].due().is_some_and(|due| due <= self.now) {
            for report in self.nodes[node].advance(self.now) {
                self.look_at_report(node, &report);
            }
            while let Some(doing) = self.nodes[node].pop_due(self.now) {
                self.does(node, doing)?;
            }
            self.nodes[node].on_time(self.now);
            self.obey(node)?;
        }
        self.run_hooks(node);
        self.wake_later(node);
        Ok(())
    }

    fn look_at_report(&mut self, node: usize, report: &JobReport) {
        self.trace.note(self.now, format_args!("{} has {}", self.nodes[node].name, short_job(report)));
        self.checks.ended(&self.nodes[node].name, report);
        self.look_at_first_process(node, report);
    }

    /// Records executions for which no supervisor could be created: they never ran on the node.
    fn look_at_unstarted(&mut self, node: usize, report: &NodeReport) {
        let model = &self.nodes[node];
        for job in &report.jobs {
            let has_failed = matches!(&job.status, JobStatus::Ended { exit: NodeExit::NotStarted { .. }, .. });
            if has_failed && !model.supervisors().contains_key(&(job.job, job.run)) {
                self.checks.ended(&model.name, job);
            }
        }
    }

    fn does(&mut self, node: usize, doing: NodeAction) -> Result<(), Violation> {
        let model = &mut self.nodes[node];
        match doing {
            NodeAction::Hear(inbound) => self.agent_hears(node, inbound)?,
            NodeAction::Spawner => model.spawner(self.now),
            NodeAction::MakeSeat(seat) => model.make_seat(self.now, seat),
            NodeAction::Take { seat, wanted } => self.supervisor_takes(node, seat, &wanted)?,
            NodeAction::Tell { execution, what } => {
                let removed = model.tell(self.now, execution, &what);
                self.forgets(node, execution, removed)?;
            }
            NodeAction::Examine(execution) => model.examine(self.now, execution),
            NodeAction::RemoveEntry(execution) => {
                let removed = model.remove_entry(self.now, execution);
                self.forgets(node, execution, removed)?;
            }
            NodeAction::EndLeftovers(execution, why) => {
                if let Some(report) = model.end_leftovers(self.now, execution, why) {
                    self.look_at_report(node, &report);
                }
            }
            NodeAction::Look => {
                let look = model.look();
                self.agent_hears(node, node_loop::Inbound::Looked(look))?;
            }
        }
        Ok(())
    }

    /// Starts the processes of a supervisor that has read its order, if the disk has room for its entry in the spool.
    fn supervisor_takes(&mut self, node: usize, seat: String, wanted: &DesiredJob) -> Result<(), Violation> {
        let model = &mut self.nodes[node];
        if !model.claims(self.now, &seat, wanted) {
            return Ok(());
        }
        if model.is_full {
            let reason = "no space left on device".to_owned();
            let exit = NodeExit::at_fault(&reason);
            let status = JobStatus::Ended { at: self.now, exit, usage: Usage::default() };
            let report = JobReport { job: wanted.job, run: wanted.run, status };
            model.says(self.now, &seat, node_loop::Inbound::Fault { reason });
            model.says(self.now, &seat, node_loop::Inbound::Changed(report.clone()));
            self.look_at_report(node, &report);
            return Ok(());
        }
        self.checks.starting(self.now, &model.name, wanted, model.supervisors())?;
        let program = self.programs.get(&wanted.launch.labels.name).cloned().unwrap_or_default();
        model.takes(Supervisor::start(self.now, seat, wanted, &program));
        Ok(())
    }

    /// Checks, when the entry of an execution is removed, that the server has its result.
    fn forgets(&mut self, node: usize, (job, run): ExecutionId, gone: Option<Supervisor>) -> Result<(), Violation> {
        let Some(gone) = gone else { return Ok(()) };
        self.checks.forgotten(&self.nodes[node].name, job, run, Some(&gone))?;
        let forgotten = std::mem::take(&mut self.checks.forgotten);
        check::results_are_kept(&forgotten, self.journal.shadow())
    }

    /// Starts and ends the negotiator of a job together with its first process.
    fn look_at_first_process(&mut self, node: usize, report: &JobReport) {
        let execution = (report.job, report.run);
        if !self.nodes[node].is_first_of(execution) {
            return;
        }
        match &report.status {
            JobStatus::Running { .. } => self.application_starts(node, execution),
            JobStatus::Ended { .. } => self.application_dies(execution),
            JobStatus::Starting => {}
        }
    }

    pub(super) fn send_up(&mut self, node: usize, message: ToServer) {
        if let Some(at) = self.links[node].send_up(self.now, message) {
            self.agenda.push(at, Item::Pump { node, lane: Lane::Up });
        }
    }

    pub(super) fn send_down(&mut self, link: LinkId, message: ToAgent) {
        let (node, epoch) = end_of(link);
        if let Some(at) = self.links[node].send_down(self.now, epoch, message) {
            self.agenda.push(at, Item::Pump { node, lane: Lane::Down });
        }
    }

    pub(super) fn dial(&mut self, node: usize, life: u64) -> Result<(), Violation> {
        let is_same_agent = self.nodes[node].has_agent() && self.nodes[node].life == life;
        if !is_same_agent || self.links[node].agent_side.is_some() {
            return Ok(());
        }
        let is_reachable = self.server.is_some() && !self.links[node].is_cut;
        if !is_reachable {
            self.dial_later(node);
            return Ok(());
        }
        self.links[node].connect();
        self.trace.note(self.now, format_args!("{} connects", self.nodes[node].name));
        self.agent_hears(node, node_loop::Inbound::LinkUp)
    }

    pub(super) fn dial_later(&mut self, node: usize) {
        let backoff = self.dice.span(Span::from_millis(50), Span::from_secs(2));
        self.agenda.push(self.now + backoff, Item::Dial { node, life: self.nodes[node].life });
    }

    pub(super) fn server_notices(&mut self, node: usize, epoch: u64) {
        let (name, link) = (self.nodes[node].name.clone(), LinkId((node as u64) << 32 | epoch));
        self.server_hears(Inbound::AgentGone { name, link });
    }

    pub(super) fn close_link(&mut self, link: LinkId, reason: &str) {
        let (node, epoch) = end_of(link);
        if self.links[node].epoch == epoch {
            self.trace.note(self.now, format_args!("  the link of {} is closed: {reason}", self.nodes[node].name));
            self.break_link(node);
        }
    }
}

fn end_of(LinkId(link): LinkId) -> (usize, u64) {
    ((link >> 32) as usize, link & u64::from(u32::MAX))
}
