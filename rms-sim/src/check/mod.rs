//! Rules that must hold whatever fails, one per file. They check facts and real processes.

mod accepts;
mod agreement;
mod answers;
mod asks;
mod cores;
mod delays;
mod durable;
mod ends;
mod fcfs;
mod ghost;
mod holds;
mod idle;
mod losses;
mod oversubscription;
mod place;
mod releases;
mod runs;
mod sizes;
mod slowed;
mod stages;
mod starts;
mod timely;
mod truth;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use negotiation::{Change, Dialogue};
use rms_api::desired::{DesiredJob, JobReport, JobStatus, NodeExit};
use rms_core::server_loop::Outbound;
use rms_core::{Fact, State, Ticket};
use rms_model::{JobId, Run, Settings, Time};
use thiserror::Error;

pub(crate) use accepts::{Accepted, is_agreed};
pub(crate) use asks::answers_the_ask;
pub(crate) use cores::used_is_kept;
pub(crate) use durable::{acknowledged_jobs_are_kept, restored_is_equal, results_are_kept};
pub(crate) use ends::everything_ended;
pub(crate) use fcfs::later_requests_change_nothing;
pub(crate) use holds::held_is_promised;
pub(crate) use idle::nobody_could_start;
pub(crate) use releases::nobody_overstays;
pub(crate) use timely::nothing_is_overdue;
pub(crate) use views::held_as_planned;

use crate::node::ModelNode;
use crate::supervisor::Supervisor;

/// A broken rule, and how it was broken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{rule}: {what}")]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

/// The rules; each is a file here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Oversubscription,
    Ghost,
    Fcfs,
    Ends,
    Runs,
    Truth,
    Durable,
    Views,
    Stages,
    Starts,
    Agreement,
    Holds,
    Timely,
    Accepts,
    Releases,
    Promises,
    Sizes,
    Delays,
    Cores,
    Losses,
    Slowed,
    Place,
    Idle,
    Answers,
    /// [`State::check`].
    State,
    /// The core schedules the same instant again and again.
    Spin,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Oversubscription => "a node serves one job at a time (001, §5.1)",
            Rule::Ghost => "a ghost keeps its nodes for the fair-start delay (001, §5.3.1)",
            Rule::Fcfs => "a later request changes nothing for an earlier application (001, §5.3.2)",
            Rule::Ends => "every job ends, exactly once (001, Fig. 4)",
            Rule::Runs => "nothing runs twice",
            Rule::Truth => "a job's outcome is how it really ended",
            Rule::Durable => "what was told is durable, and a restart changes nothing",
            Rule::Views => "views converge (001, §4.1)",
            Rule::Stages => "an evolving application gets each stage, in time",
            Rule::Starts => "a promised start is kept, or earlier (conservative)",
            Rule::Agreement => "both ends of a negotiation say alike how it ended (002, §5)",
            Rule::Holds => "what is offered is held, once, and nothing else is",
            Rule::Timely => "every negotiation ends in its time",
            Rule::Accepts => "what was offered and is accepted does not fail for want of nodes",
            Rule::Releases => "nodes that were given back are free when their processes are gone",
            Rule::Promises => "a broken promise is enforced",
            Rule::Sizes => "an application gets what was agreed, and nothing that it cannot use",
            Rule::Delays => "growth delays nobody who waits beyond the tolerance",
            Rule::Cores => "cores that are given back are used until the agents say that they are not",
            Rule::Losses => "a lost node is a shrink for who can go on without it, and for nobody else",
            Rule::Slowed => "no job that did not opt in is ever slowed (004, §3.3)",
            Rule::Place => "a job has only nodes that it asked for, by name and contiguous (004, §3.2.4)",
            Rule::Idle => "who can start does so without another event",
            Rule::Answers => "whoever asks is answered once, with what is durable",
            Rule::State => "the state is consistent",
            Rule::Spin => "time goes on",
        })
    }
}

impl Rule {
    pub(crate) fn broken(self, what: impl Into<String>) -> Violation {
        Violation { rule: self, what: what.into() }
    }
}

/// What the checkers remember of the past.
#[derive(Debug)]
pub struct Checks {
    runs: runs::Runs,
    ghosts: ghost::Ghosts,
    truth: truth::Truth,
    stages: stages::Stages,
    starts: starts::Starts,
    accepts: accepts::Accepts,
    delays: delays::Delays,
    agreement: agreement::Agreement,
    sizes: sizes::SizesAgreed,
    losses: losses::Losses,
    slowed: slowed::Slowed,
    answers: answers::Answers,
    /// Jobs whose submit was answered.
    pub(crate) acknowledged: BTreeSet<JobId>,
    /// Results that nodes have removed since the last check.
    pub(crate) forgotten: Vec<(String, JobId, Run, u32)>,
}

impl Checks {
    /// Creates the checkers of a new system with these settings.
    pub(crate) fn new(settings: Settings) -> Checks {
        Checks {
            runs: runs::Runs::default(),
            ghosts: ghost::Ghosts::new(settings.clone()),
            truth: truth::Truth::default(),
            stages: stages::Stages::default(),
            starts: starts::Starts::default(),
            accepts: accepts::Accepts::default(),
            delays: delays::Delays::new(settings),
            agreement: agreement::Agreement::default(),
            sizes: sizes::SizesAgreed::default(),
            losses: losses::Losses::default(),
            slowed: slowed::Slowed::default(),
            answers: answers::Answers::default(),
            acknowledged: BTreeSet::new(),
            forgotten: Vec::new(),
        }
    }

    /// Records that a node's agent has ordered processes.
    pub(crate) fn starting(
        &mut self,
        now: Time,
        node: &str,
        wanted: &DesiredJob,
        there: &BTreeMap<(JobId, Run), Supervisor>,
    ) -> Result<(), Violation> {
        oversubscription::starts_alone(node, wanted, there)?;
        self.runs.starting(now, node, wanted)
    }

    /// Records that a node's agent has removed what it kept of a job.
    pub(crate) fn forgotten(
        &mut self,
        node: &str,
        job: JobId,
        run: Run,
        removed: Option<&Supervisor>,
    ) -> Result<(), Violation> {
        if removed.is_some_and(Supervisor::is_alive) {
            return Err(Rule::Runs.broken(format!("{node} forgot job {job}, run {run}, while it has processes")));
        }
        let joined = removed.map_or(1, |supervisor| supervisor.joined());
        self.forgotten.push((node.to_owned(), job, run, joined));
        Ok(())
    }

    /// Records that processes on a node have really ended, whether or not that was reported.
    pub(crate) fn ended(&mut self, node: &str, report: &JobReport) {
        match &report.status {
            JobStatus::Ended { exit, .. } => self.truth.ended(node, report.job, report.run, exit.clone()),
            JobStatus::Running { .. } | JobStatus::Starting => {}
        }
    }

    /// Records that the machine went down under the processes.
    pub(crate) fn vanished(&mut self, node: &str, job: JobId, run: Run) {
        let reason = "the node was restarted".to_owned();
        self.truth.ended(node, job, run, NodeExit::Vanished { reason });
    }

    /// Records that the server was started, or cannot write: what is due now is late.
    pub(crate) fn hindered(&mut self, now: Time) {
        self.stages.hindered(now);
        self.ghosts.restarted();
    }

    /// Checks a change of the application's end of a negotiation.
    pub(crate) fn ends_agree(
        &self,
        execution: (JobId, Run),
        change: &Change,
        application: &Dialogue,
    ) -> Result<(), Violation> {
        self.agreement.ends_agree(execution, change, application)
    }

    /// Sets when the following facts were written, and whether some of them were decided earlier.
    pub(crate) fn at(&mut self, now: Time, is_late: bool) {
        self.delays.at(now, is_late);
    }

    /// Records a call that waits for an answer of the current server.
    pub(crate) fn asked(&mut self, ticket: Ticket) {
        self.answers.asked(ticket);
    }

    pub(crate) fn server_died(&mut self) {
        self.answers.server_died();
    }

    /// Checks a message of the server; `is_behind` while some facts are not durable yet.
    pub(crate) fn leaves(&mut self, outbound: &Outbound, is_behind: bool) -> Result<(), Violation> {
        self.answers.leaves(outbound, is_behind)
    }

    /// Checks that all callers were told that the disk fails.
    pub(crate) fn nobody_waits(&self) -> Result<(), Violation> {
        self.answers.nobody_waits()
    }

    pub(crate) fn cancel_ordered(&mut self, job: JobId) {
        self.truth.cancel_ordered(job);
    }

    /// Records that a launcher has reported that it is done, whether or not that was received.
    pub(crate) fn finish_said(&mut self, job: JobId, code: i32) {
        self.truth.finish_said(job, code);
    }

    /// Records that the launcher of this application breaks the rules.
    pub(crate) fn breaks_rules(&mut self, job: JobId) {
        self.truth.breaks_rules(job);
    }

    /// Checks a fact that has become durable; `state` includes it.
    pub(crate) fn durable(&mut self, fact: &Fact, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
        self.ghosts.durable(fact)?;
        self.stages.durable(fact, state)?;
        self.runs.durable(fact, state, nodes)?;
        releases::are_clear(fact, state, nodes)?;
        self.accepts.durable(fact, state)?;
        self.starts.durable(fact, self.delays.state(), self.delays.now())?;
        self.delays.durable(fact)?;
        self.agreement.durable(fact);
        self.sizes.durable(fact, self.delays.state(), state)?;
        self.losses.durable(fact, self.delays.state())?;
        place::durable(fact, self.delays.state())?;
        self.slowed.durable(fact, state)?;
        self.truth.durable(fact)
    }

    /// Checks the cores of processes.
    pub(crate) fn nobody_is_slowed(&self, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
        self.slowed.keeps_cores(state, nodes)
    }

    /// Returns how often a job was done, according to the journal.
    pub(crate) fn n_done(&self, job: JobId) -> u32 {
        self.runs.n_done(job)
    }
}

/// Returns whether the processes ended on their own.
fn is_natural(exit: &NodeExit) -> bool {
    match exit {
        NodeExit::Exited { .. } | NodeExit::Signaled { .. } | NodeExit::Aborted { .. } | NodeExit::OutOfMemory => true,
        NodeExit::WallTime
        | NodeExit::Ordered
        | NodeExit::Overstayed
        | NodeExit::Vanished { .. }
        | NodeExit::Unsupervised { .. }
        | NodeExit::Violated { .. }
        | NodeExit::NotStarted { .. } => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
