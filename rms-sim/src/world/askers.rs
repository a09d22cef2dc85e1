//! Requests on behalf of an application, by users, agents and scripts, and hooks that confirm a change of its nodes.

use std::collections::BTreeMap;

use rms_api::negotiate::{Ask, AskOutcome};
use rms_api::{Answer, Call};
use rms_core::Ticket;
use rms_core::server_loop::{AgentAsk, Denial, Inbound};
use rms_model::{Identity, JobId, OnResize, Span};

use super::{Execution, Item, World};
use crate::check::{self, Rule, Violation};
use crate::server::Server;

/// Requests that wait for an answer, and the generations that hooks were told of.
#[derive(Debug, Default)]
pub(crate) struct ResizeRequests {
    asks: BTreeMap<Ticket, (JobId, Ask)>,
    /// The outcomes of requests, the latest of each job.
    outcomes: BTreeMap<JobId, AskOutcome>,
    /// The last generation of its nodes that the first node of each execution was told of.
    told: BTreeMap<Execution, u32>,
    n_answered: usize,
}

impl World {
    /// Makes a user request a change for a job, and wait for the outcome.
    pub fn negotiate(&mut self, who: &Identity, job: JobId, ask: Ask) -> Ticket {
        let ticket = self.call(who, Call::Negotiate { job, ask: ask.clone() });
        self.expects_answer(ticket, job, ask);
        ticket
    }

    /// Makes the agent of a rank that requested more processes request a change.
    pub fn agent_asks(&mut self, (job, run): Execution, node: &str, ask: Ask) -> Ticket {
        self.n_tickets += 1;
        let ticket = Ticket(self.n_tickets);
        self.expects_answer(ticket, job, ask.clone());
        let link = self.link_of(self.position(node));
        let what = AgentAsk::Size(Box::new(ask));
        let asked = Inbound::AgentAsked { ticket, name: node.to_owned(), link, job, run, what };
        self.agenda.push(self.now, Item::Heard(Box::new(asked)));
        ticket
    }

    /// Returns whether the request was answered, or lost.
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        !self.askers.asks.contains_key(&ticket)
    }

    /// Records a request that must be answered. Without a server, it is lost.
    fn expects_answer(&mut self, ticket: Ticket, job: JobId, ask: Ask) {
        if self.server.is_some() {
            self.askers.asks.insert(ticket, (job, ask));
        }
    }

    /// Returns the outcome of the last answered request for a job.
    pub fn outcome_of_ask(&self, job: JobId) -> Option<&AskOutcome> {
        self.askers.outcomes.get(&job)
    }

    /// Returns how many requests were answered with an outcome, good or bad.
    pub(crate) fn n_asks_answered(&self) -> usize {
        self.askers.n_answered
    }

    /// Checks, once every job has ended, that all requests were answered and no negotiator is left.
    pub(crate) fn check_nobody_waits(&self) -> Result<(), Violation> {
        if let Some((job, ask)) = self.askers.asks.values().next() {
            return Err(Rule::Ends.broken(format!("who asked for job {job} waits for ever: {ask:?}")));
        }
        if let Some((job, run)) = self.executions().first() {
            return Err(Rule::Ends.broken(format!("a negotiator is left of job {job}.{run}")));
        }
        Ok(())
    }

    pub(super) fn look_at_answer(&mut self, ticket: Ticket, answer: &Result<Answer, Denial>) -> Result<(), Violation> {
        let Some((job, ask)) = self.askers.asks.remove(&ticket) else { return Ok(()) };
        if let Ok(Answer::Negotiated(outcome)) = answer {
            self.trace.note(self.now, format_args!("  job {job} was asked for: {outcome:?}"));
            self.askers.outcomes.insert(job, outcome.clone());
            self.askers.n_answered += 1;
            let state = self.journal.shadow();
            let cluster_of = |name: &str| {
                let entry = state.nodes().values().find(|entry| entry.name == name)?;
                state.clusters().get(&entry.cluster).map(String::as_str)
            };
            check::answers_the_ask(job, &ask, outcome, cluster_of)?;
        }
        Ok(())
    }

    /// Records that a request will get no answer.
    pub(super) fn ask_is_lost(&mut self, ticket: Ticket) {
        self.askers.asks.remove(&ticket);
    }

    /// Records that a dead server will not answer the open requests.
    pub(super) fn asks_are_lost(&mut self) {
        self.askers.asks.clear();
    }

    /// Runs hooks on the first node when the nodes of their job have changed.
    pub(super) fn run_hooks(&mut self, node: usize) {
        let changed: Vec<(Execution, u32)> = self.nodes[node]
            .supervisors()
            .iter()
            .filter(|(_, supervisor)| supervisor.is_first() && supervisor.is_alive())
            .filter(|(_, supervisor)| matches!(supervisor.on_resize(), Some(OnResize::Signal(_) | OnResize::Hook(_))))
            .map(|(execution, supervisor)| (*execution, supervisor.generation_told()))
            .filter(|(execution, generation)| *generation > self.askers.told.get(execution).copied().unwrap_or(1))
            .collect();
        for (execution, generation) in changed {
            self.askers.told.insert(execution, generation);
            let entry = self.journal.shadow().jobs().get(&execution.0);
            let confirms = entry.and_then(|entry| self.programs.get(&entry.spec.labels.name)?.confirms_in);
            if let Some(confirms_in) = confirms {
                self.agenda.push(self.now + confirms_in, Item::Confirms { who: execution, generation, n_tries: 0 });
            }
        }
    }

    /// Runs `rms resize-done` for a hook; it is repeated while there is no server, or one that cannot write.
    pub(super) fn confirms(&mut self, (job, run): Execution, generation: u32, n_tries: u32) {
        let is_alive = self.nodes.iter().any(|node| node.is_first_of((job, run)) && node.alive().contains(&(job, run)));
        if !is_alive {
            return;
        }
        if self.server.as_ref().is_some_and(Server::is_well) {
            self.call(&Identity::of_job(job, run), Call::ResizeDone { job, generation });
        } else if n_tries < MOST_TRIES {
            let item = Item::Confirms { who: (job, run), generation, n_tries: n_tries + 1 };
            self.agenda.push(self.now + TRY_AGAIN, item);
        }
    }
}

const MOST_TRIES: u32 = 20;
const TRY_AGAIN: Span = Span::from_secs(3);
