//! Messages between the server and the agents: what arrives, what is sent, who connects.

use rms_api::desired::{JobReport, JobStatus, NodeReport};
use rms_core::agent::{AgentEffect, AgentEvent};
use rms_core::server_loop::{Inbound, LinkId};
use rms_model::Span;

use super::{Item, Repair, World};
use crate::check::{self, Violation};
use crate::link::{Lane, ToAgent, ToServer};
use crate::trace::short_job;

impl World {
    pub(super) fn server_receives(&mut self, node: usize, message: ToServer) {
        let name = self.nodes[node].name.clone();
        let link = self.link_of(node);
        self.server_hears(match message {
            ToServer::Hello(report) => {
                Inbound::AgentConnected { name, link, hello: self.nodes[node].hello.clone(), report }
            }
            ToServer::Report(report) => Inbound::AgentReported { name, link, report },
        });
    }

    /// The newest link of a node.
    pub(super) fn link_of(&self, node: usize) -> LinkId {
        LinkId((node as u64) << 32 | self.links[node].epoch)
    }

    pub(super) fn agent_receives(&mut self, node: usize, message: ToAgent) -> Result<(), Violation> {
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

    pub(super) fn agent_handles(&mut self, node: usize, event: AgentEvent) -> Result<(), Violation> {
        let had_agent = self.nodes[node].has_agent();
        let reports = self.obey(node, event)?;
        let forgotten = std::mem::take(&mut self.checks.forgotten);
        check::results_are_kept(&forgotten, self.journal.shadow())?;
        for report in reports {
            self.send_up(node, ToServer::Report(report));
        }
        if had_agent && !self.nodes[node].has_agent() {
            self.agent_dies(node);
            let back_after = self.dice.span(Span::from_millis(1), Span::from_secs(20));
            self.agenda.push(self.now + back_after, Item::Repair(Repair::Agent(node)));
        }
        self.run_hooks(node);
        self.wake_later(node);
        Ok(())
    }

    /// The agent's orders are performed, as far as it lives to see it: what it wants to tell.
    fn obey(&mut self, node: usize, event: AgentEvent) -> Result<Vec<NodeReport>, Violation> {
        let mut reports = Vec::new();
        let node = &mut self.nodes[node];
        for effect in node.handle(event) {
            if !node.lives_on() {
                break;
            }
            match effect {
                AgentEffect::Start(wanted) => {
                    self.checks.starting(self.now, &node.name, &wanted, node.supervisors())?;
                    let program = self.programs.get(&wanted.launch.labels.name).cloned().unwrap_or_default();
                    node.start(self.now, &wanted, &program);
                }
                AgentEffect::Update(wanted) => node.update(self.now, &wanted),
                AgentEffect::Stop { job, run, patience, grace } => node.stop(self.now, (job, run), patience, grace),
                AgentEffect::Kill { job, run } => node.kill(self.now, (job, run)),
                AgentEffect::Forget { job, run } => {
                    let removed = node.forget((job, run));
                    self.checks.forgotten(&node.name, job, run, removed.as_ref())?;
                }
                AgentEffect::Report(report) => reports.push(report),
            }
        }
        Ok(reports)
    }

    pub(super) fn wake_later(&mut self, node: usize) {
        if let Some(due) = self.nodes[node].due() {
            self.agenda.push(due.max(self.now), Item::Wake { node });
        }
    }

    pub(super) fn wake(&mut self, node: usize) -> Result<(), Violation> {
        for report in self.nodes[node].advance(self.now) {
            self.trace.note(self.now, format_args!("{} has {}", self.nodes[node].name, short_job(&report)));
            self.checks.ended(&self.nodes[node].name, &report);
            self.look_at_first_process(node, &report);
            self.agent_handles(node, AgentEvent::Changed(report))?;
        }
        self.wake_later(node);
        Ok(())
    }

    /// Whoever speaks for a job lives and dies with its first process.
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

    pub(super) fn dial(&mut self, node: usize, life: u64) {
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
