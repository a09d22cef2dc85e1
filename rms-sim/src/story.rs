//! The world as tests use it: submit, let time pass, break something, expect. Panics where an expectation fails.

use rms_api::answer::{JobLine, JobState, NodeLine, Reason};
use rms_api::call::{Query, Select};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_core::{Fact, State};
use rms_model::token::Issued;
use rms_model::{Identity, JobId, JobRecord, Outcome, Span, Time};

use crate::check::{self, Violation};
use crate::journal::DiskState;
use crate::people::{admin, user};
use crate::server::CrashPoint;
use crate::work::ModelJob;
use crate::world::World;

pub fn secs(n: i64) -> Span {
    Span::from_secs(n)
}

pub fn mins(n: i64) -> Span {
    Span::from_mins(n)
}

pub fn hours(n: i64) -> Span {
    Span::from_hours(n)
}

/// What a story expects of a job.
#[derive(Clone, Debug)]
pub struct Expected {
    job: JobId,
    what: ExpectedState,
}

#[derive(Clone, Debug)]
enum ExpectedState {
    Is(JobState),
    Ended(Outcome),
}

pub fn started(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Started) }
}

pub fn waiting(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Waiting) }
}

pub fn held(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Held) }
}

pub fn submitted(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Submitted) }
}

pub fn ending(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Ending) }
}

pub fn ghost(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Is(JobState::Ghost) }
}

pub fn completed(job: JobId) -> Expected {
    Expected { job, what: ExpectedState::Ended(Outcome::Completed) }
}

pub fn ended(job: JobId, outcome: Outcome) -> Expected {
    Expected { job, what: ExpectedState::Ended(outcome) }
}

impl World {
    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// A rule was broken.
    pub fn after(&mut self, span: Span) {
        self.at(self.now + span);
    }

    /// Lets time pass until `time`.
    ///
    /// # Panics
    /// A rule was broken.
    pub fn at(&mut self, time: Time) {
        let run = self.run_until(time);
        self.must(run);
    }

    fn must<T>(&self, result: Result<T, Violation>) -> T {
        match result {
            Ok(value) => value,
            Err(violation) => panic!("{violation}\n{}", self.trace()),
        }
    }

    /// Makes a call and returns the server's immediate answer.
    ///
    /// # Panics
    /// The server does not answer: it is down, or its disk is full.
    pub fn ask(&mut self, who: &Identity, call: Call) -> Result<Answer, Refusal> {
        let ticket = self.call(who, call);
        self.after(Span::ZERO);
        match self.answer(ticket) {
            Some(answer) => answer,
            None => panic!("there was no answer\n{}", self.trace()),
        }
    }

    /// Submits a job as its user, and returns the answer or refusal.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn try_submit(&mut self, job: ModelJob) -> Result<Answer, Refusal> {
        let who = user(&job.user);
        let call = self.submission(job);
        self.ask(&who, call)
    }

    /// Returns the call that submits the job, and registers its program.
    pub fn submission(&mut self, job: ModelJob) -> Call {
        let mut submission = job.submission;
        // Nodes find the program by the job's name.
        submission.labels.name = format!("model{}", self.programs.len());
        self.programs.insert(submission.labels.name.clone(), job.program);
        if let Some(manner) = job.manner {
            self.applications.manners.insert(submission.labels.name.clone(), manner);
        }
        Call::Submit(Box::new(submission))
    }

    /// # Panics
    /// The job is refused.
    pub fn submit(&mut self, job: ModelJob) -> JobId {
        match self.try_submit(job) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// Makes an admin's call that must succeed.
    ///
    /// # Panics
    /// The call is refused.
    pub fn admin(&mut self, call: Call) -> Answer {
        match self.ask(&admin(), call) {
            Ok(answer) => answer,
            Err(refusal) => panic!("refused: {refusal}"),
        }
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.admin(Call::Set { key: key.to_owned(), value: value.to_owned() });
    }

    pub fn drain(&mut self, node: &str) {
        self.admin(Call::Drain { nodes: vec![node.to_owned()], reason: "maintenance".to_owned() });
    }

    pub fn down(&mut self, node: &str) {
        self.admin(Call::Down { nodes: vec![node.to_owned()], reason: "broken".to_owned() });
    }

    pub fn resume(&mut self, node: &str) {
        self.admin(Call::Resume { nodes: vec![node.to_owned()] });
    }

    /// Redeems a token with a new key; returns the identity whose certificate is signed.
    ///
    /// # Errors
    /// The server's refusal.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn join(&mut self, token_id: &str, digest: [u8; 32], name: Option<&str>) -> Result<Identity, Refusal> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.facts().len().to_le_bytes());
        self.join_by_key(key, token_id, digest, name).map(|issued| issued.identity)
    }

    /// Like [`World::join`], with a key that may have redeemed the token before; returns the identity whose certificate
    /// is signed.
    ///
    /// # Errors
    /// The server's refusal.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn join_by_key(
        &mut self,
        key: [u8; 32],
        token_id: &str,
        digest: [u8; 32],
        name: Option<&str>,
    ) -> Result<Issued, Refusal> {
        let call = Call::Join {
            token_id: token_id.to_owned(),
            digest,
            name: name.map(str::to_owned),
            machine: None,
            is_agent: None,
            csr: Vec::new(),
            key,
            serial: format!("{:x}", self.facts().len()),
            replaces: None,
        };
        // A joining peer has no identity yet.
        let ticket = self.call(&user("nobody"), call);
        self.after(Span::ZERO);
        match (self.signed(ticket), self.answer(ticket)) {
            (Some(issued), None) => Ok(issued),
            (None, Some(Err(refusal))) => Err(refusal),
            (signed, answer) => panic!("neither signed nor refused: {signed:?}, {answer:?}"),
        }
    }

    /// Returns what a call did to the one job it named.
    ///
    /// # Errors
    /// The reason why it did nothing.
    pub fn on_job(&mut self, who: &Identity, job: JobId, call: impl FnOnce(Select) -> Call) -> Result<(), Refused> {
        match self.ask(who, call(Select::Ids(vec![job]))).map_err(|refusal| Refused::from(&refusal))? {
            Answer::Jobs { refused, .. } => match refused.into_iter().next() {
                Some((_, refused)) => Err(refused),
                None => Ok(()),
            },
            other => panic!("not an answer about jobs: {other:?}"),
        }
    }

    /// Tells the checkers that the following call cancels these jobs.
    pub fn expect_cancels(&mut self, jobs: &[JobId]) {
        jobs.iter().for_each(|job| self.checks.cancel_ordered(*job));
    }

    /// Cancels a job as an admin.
    ///
    /// # Panics
    /// The call is refused.
    pub fn cancel(&mut self, job: JobId) {
        self.checks.cancel_ordered(job);
        let cancelled = self.on_job(&admin(), job, |select| Call::Cancel { select });
        cancelled.expect("an admin may cancel what has not ended");
    }

    /// Tells the checkers to expect that the job is cancelled by a call that the story makes itself.
    pub fn order_cancel(&mut self, job: JobId) {
        self.checks.cancel_ordered(job);
    }

    /// Cancels a job as an admin, and kills the server when that is durable and no node has been told.
    pub fn cancel_and_crash(&mut self, job: JobId) {
        self.order_cancel(job);
        self.kill_server_in_next_step(CrashPoint::AfterCommit);
        self.call(&admin(), Call::Cancel { select: Select::Ids(vec![job]) });
        self.after(Span::ZERO);
    }

    /// Submits without waiting for the answer, which may never come.
    pub fn submit_unheard(&mut self, job: ModelJob) {
        let who = user(&job.user);
        let call = self.submission(job);
        self.call(&who, call);
    }

    /// Returns the newest job in the journal.
    ///
    /// # Panics
    /// There is no job.
    pub fn last_job(&self) -> JobId {
        let submitted = |fact: &Fact| match fact {
            Fact::JobSubmitted { job, .. } => Some(*job),
            _ => None,
        };
        self.facts().iter().rev().find_map(submitted).expect("a job was submitted")
    }

    /// Returns the job's line of the queue, while the job is in the system.
    pub fn line(&mut self, job: JobId) -> Option<JobLine> {
        match self.admin(Call::Query(Query::Queue(Default::default()))) {
            Answer::Queue { jobs, .. } => jobs.into_iter().find(|line| line.job == job),
            other => panic!("not the queue: {other:?}"),
        }
    }

    /// Returns when a waiting job would start.
    pub fn estimate(&mut self, job: JobId) -> Option<Time> {
        self.line(job).and_then(|line| line.estimate)
    }

    /// Returns why a job is where it is, with the blockers.
    pub fn explain(&mut self, job: JobId) -> Option<Reason> {
        match self.admin(Call::Query(Query::Explain(Select::Ids(vec![job])))) {
            Answer::Detail { jobs, .. } => jobs.into_iter().next().and_then(|detail| detail.line.reason),
            other => panic!("not an explanation: {other:?}"),
        }
    }

    /// # Panics
    /// There is no such node.
    pub fn node(&mut self, name: &str) -> NodeLine {
        match self.admin(Call::Query(Query::Nodes(Default::default()))) {
            Answer::Nodes { nodes, .. } => {
                nodes.into_iter().find(|line| line.name == name).unwrap_or_else(|| panic!("no node {name}"))
            }
            other => panic!("not the nodes: {other:?}"),
        }
    }

    /// Returns the history's line of a job that is done.
    pub fn history(&self, job: JobId) -> Option<&JobRecord> {
        self.facts().iter().find_map(|fact| match fact {
            Fact::JobDone { record, .. } if record.job == job => Some(&**record),
            _ => None,
        })
    }

    /// # Panics
    /// The expectation does not hold.
    pub fn expect(&mut self, expected: Expected) {
        let Expected { job, what } = expected;
        match what {
            ExpectedState::Is(state) => {
                let found = self.line(job).map(|line| line.state);
                assert!(found == Some(state), "job {job} is {found:?}, not {state:?}\n{}", self.trace());
            }
            ExpectedState::Ended(outcome) => {
                let found = self.history(job).map(|record| record.outcome.clone());
                assert!(found.as_ref() == Some(&outcome), "job {job} is {found:?}, not {outcome:?}\n{}", self.trace());
            }
        }
    }

    /// Kills the server with kill -9 now.
    ///
    /// # Panics
    /// A rule was broken.
    pub fn kill_server(&mut self) {
        let died = self.server_dies();
        self.must(died);
    }

    /// Kills the server with kill -9 in the middle of its next step.
    pub fn kill_server_in_next_step(&mut self, point: CrashPoint) {
        self.crash = Some((point, None));
    }

    /// # Panics
    /// A rule was broken.
    pub fn restart_server(&mut self) {
        let started = self.server_starts();
        self.must(started);
    }

    /// Restarts the server, and waits until the agents have connected again.
    pub fn bounce_server(&mut self) {
        self.kill_server();
        self.after(secs(1));
        self.restart_server();
        self.after(secs(15));
    }

    pub fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// Kills a node's agent with kill -9; jobs go on.
    pub fn kill_agent(&mut self, node: &str) {
        let node = self.position(node);
        self.agent_dies(node);
    }

    /// Kills every supervisor of a node with kill -9, with jobs or without.
    pub fn kill_supervisors(&mut self, node: &str) {
        let node = self.position(node);
        for seat in self.nodes[node].seat_names() {
            self.supervisor_is_killed(node, &seat);
        }
    }

    /// Kills the spawner of supervisors with kill -9.
    pub fn kill_spawner(&mut self, node: &str) {
        let node = self.position(node);
        self.spawner_dies(node);
    }

    /// Makes the disk of a node full, or writable again.
    pub fn fill_disk_of(&mut self, node: &str, is_full: bool) {
        let node = self.position(node);
        self.disk_is_full(node, is_full);
    }

    /// Sets how long actions on a node take from now on.
    pub fn slow_down(&mut self, node: &str, pace: Span) {
        let node = self.position(node);
        self.nodes[node].pace = pace;
    }

    pub fn restart_agent(&mut self, node: &str) {
        let node = self.position(node);
        self.start_agent(node);
    }

    /// Powers the machine off with everything on it but its disk.
    pub fn kill_node(&mut self, node: &str) {
        let node = self.position(node);
        self.power_off(node);
    }

    /// Powers the machine off and wipes its disk.
    pub fn wipe_node(&mut self, node: &str) {
        self.kill_node(node);
        let node = self.position(node);
        self.nodes[node].wipe();
    }

    /// Boots the machine again.
    pub fn boot_node(&mut self, node: &str) {
        let node = self.position(node);
        self.nodes[node].is_on = true;
        self.start_agent(node);
    }

    /// Breaks the link with all messages in flight; the agent connects again.
    pub fn lose_link(&mut self, node: &str) {
        let node = self.position(node);
        self.break_link(node);
    }

    pub fn partition(&mut self, nodes: &[&str]) {
        for node in nodes {
            let node = self.position(node);
            self.cut_network(node);
        }
    }

    /// Ends all network partitions.
    pub fn heal(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.join_network(node));
    }

    /// Makes the server's disk fail, or writable again.
    pub fn fill_disk(&mut self, is_full: bool) {
        self.journal.weather = if is_full { DiskState::Failing } else { DiskState::Fine };
    }

    /// Returns how many executions have processes on a node.
    pub fn alive_on(&self, node: &str) -> usize {
        self.nodes[self.position(node)].alive().len()
    }

    /// Returns the server's state.
    ///
    /// # Panics
    /// The server is down.
    pub fn state(&self) -> &State {
        self.server.as_ref().expect("the server is up").state()
    }

    /// # Panics
    /// Something is left.
    pub fn expect_all_ended(&mut self) {
        let ends = self.check_everything_ended();
        self.must(ends);
    }

    /// # Errors
    /// The first thing that is left.
    pub fn check_everything_ended(&self) -> Result<(), Violation> {
        self.check_restore()?;
        check::everything_ended(&self.checks, self.journal.shadow(), &self.nodes)?;
        self.check_nobody_waits()
    }

    pub(crate) fn position(&self, name: &str) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap_or_else(|| panic!("no node {name}"))
    }
}
