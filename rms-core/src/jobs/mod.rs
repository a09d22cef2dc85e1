//! Starts jobs, decides their outcome from their shares, and removes them.

mod lost;
mod pass;
mod sharing;
mod stages;

use std::collections::{BTreeMap, BTreeSet};

use rms_api::answer::{JobChange, JobState};
use rms_api::desired::NodeExit;
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, NodeId, Outcome, Request, Role, Run, Slice, Span, Time, Usage};

use crate::context::Context;
use crate::effect::Effect;
use crate::negotiate::{Negotiations, Negotiators};
use crate::rights::wrong_state;
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase, Share, Started};
use crate::state::{State, constraint_of};
use crate::step::Step;

/// Handles jobs, with the context and the negotiations that end with them.
pub(crate) struct Jobs<'a> {
    pub(crate) context: &'a mut Context,
    pub(crate) negotiators: &'a mut Negotiators,
}

/// How a share has ended.
pub(crate) struct ShareEnd {
    pub(crate) exit: NodeExit,
    pub(crate) usage: Usage,
    /// When it ended, if it is reported late.
    pub(crate) at: Option<Time>,
}

impl ShareEnd {
    /// Returns the end of a share that was just noticed.
    pub(crate) fn seen(exit: NodeExit) -> ShareEnd {
        ShareEnd { exit, usage: Usage::default(), at: None }
    }
}

impl Jobs<'_> {
    pub(crate) fn state(&self) -> &State {
        self.context.state()
    }

    pub(crate) fn negotiations(&mut self) -> Negotiations<'_> {
        Negotiations { context: self.context, negotiators: self.negotiators }
    }
}

impl Jobs<'_> {
    /// Records a start and tells the job's launcher (001: startNotify).
    pub(crate) fn start(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        request: Request,
        nodes: Vec<NodeId>,
        slices: &BTreeMap<NodeId, Slice>,
    ) {
        let nodes = self.in_neighbour_order(job, nodes);
        let run = self.state().jobs()[&job].run.next();
        // Nodes for later stages have no grants yet.
        let slices = slices.iter().filter(|(node, _)| nodes.contains(node));
        let grants = self.state().grants(job, &slices.map(|(node, slice)| (*node, slice.clone())).collect());
        self.context.record(step, Fact::JobStarted { job, run, at: now, request, nodes, grants });
        // One launcher fewer waits, so ghosts may have become useless.
        self.context.passes.wanted |= self.state().jobs()[&job].launcher.is_some() && self.context.has_ghosts_to_end();
        self.context.announce(step, job);
        self.context.tell_start(step, job);
    }

    /// Puts the nodes of a job that asked for neighbours into neighbour order.
    fn in_neighbour_order(&self, job: JobId, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let state = self.state();
        if !state.jobs()[&job].spec.resources.contiguous {
            return nodes;
        }
        let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
        let in_order = state.clusters().keys().flat_map(|cluster| state.neighbours(*cluster)).copied();
        in_order.filter(|node| nodes.contains(node)).collect()
    }

    /// Converts the time of a late-reported end from the node's clock to ours. If the share was reported running, the
    /// end is no earlier than what it ran allows, and an end that cannot be right by the node's clock is taken to be
    /// that; nor is it earlier than the last change of its nodes or of what it lends and borrows. `None` for ends that
    /// are reported at once: those of an agent that `comes_back` are not.
    pub(crate) fn ended_before(&self, now: Time, job: JobId, node: NodeId, at: Time, comes_back: bool) -> Option<Time> {
        let started = self.state().jobs().get(&job)?.started()?;
        let ended = match started.shares.get(&node).copied() {
            Some(Share::Running { since }) => {
                let earliest = now.min((started.at + at.since(since)).max(started.changed_at()));
                Some(if (earliest..=now).contains(&at) { at } else { earliest })
            }
            // One that was ended before it began on its node has no time.
            Some(Share::Ordered) if at > Time::EPOCH => Some(now.min(started.changed_at().max(at))),
            Some(Share::Ordered | Share::Ended) | None => None,
        };
        let at_once = if comes_back { Span::ZERO } else { REPORTED_LATE };
        ended.filter(|ended| now.since(*ended) > at_once)
    }

    /// Handles the end of one share's processes.
    pub(crate) fn share_ended(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, end: ShareEnd) {
        let at = self.time_of(now, job, node, &end);
        let ShareEnd { exit, usage, .. } = end;
        let is_leaving = self.state().jobs()[&job].started().is_some_and(|started| started.is_leaving(node));
        if self.state().jobs()[&job].is_awaited(node) && is_failed_arrival(&exit) {
            self.context.record(step, Fact::ShareEnded { job, node, exit, usage, at });
            self.negotiations().arrival_failed(now, step, job, node);
            // All other shares may have ended before.
            self.settle_if_clear(now, step, job);
            return;
        }
        if is_leaving {
            self.node_vacated(now, step, job, node, ShareEnd { exit, usage, at });
            self.settle_if_clear(now, step, job);
            return;
        }
        let is_lost = matches!(exit, NodeExit::Vanished { .. } | NodeExit::Unsupervised { .. });
        if is_lost && self.negotiations().shrink_by_loss(now, step, job, node) {
            self.node_vacated(now, step, job, node, ShareEnd { exit, usage, at });
            self.settle_if_clear(now, step, job);
            return;
        }
        match &exit {
            NodeExit::Vanished { reason } => self.end_lost(now, step, job, node, reason),
            NodeExit::Unsupervised { reason } if self.state().jobs()[&job].run < LAST_FAULTY_RUN => {
                let name = self.state().nodes()[&node].name.clone();
                self.end_lost_as(now, step, job, node, Outcome::Unsupervised { node: name, reason: reason.clone() });
            }
            NodeExit::NotStarted { reason, is_node_fault: true } if self.state().jobs()[&job].run < LAST_FAULTY_RUN => {
                let name = self.state().nodes()[&node].name.clone();
                self.end_lost_as(now, step, job, node, Outcome::NotStarted { node: name, reason: reason.clone() });
            }
            NodeExit::Exited { .. }
            | NodeExit::Signaled { .. }
            | NodeExit::Aborted { .. }
            | NodeExit::WallTime
            | NodeExit::Ordered
            | NodeExit::NotStarted { .. }
            | NodeExit::Unsupervised { .. }
            | NodeExit::Overstayed
            | NodeExit::OutOfMemory
            | NodeExit::Violated { .. } => {}
        }
        let entry = &self.state().jobs()[&job];
        let started = entry.started().expect("the caller has looked");
        // A node that was away may say that its share had ended before the job's time was over.
        let is_open = started
            .ending
            .as_ref()
            .is_none_or(|ending| ending.yields_to(&exit) || at.is_some_and(|at| ending.is_overtaken_by(at)));
        let verdict = if is_open { self.verdict(entry, started, node, &exit) } else { None };
        // Cores that it was leaving for a guest are lent from now on.
        let is_loan = started.sharing.as_ref().is_some_and(|sharing| sharing.awaited.contains(&node));
        let ended = at.or_else(|| is_loan.then_some(now));
        self.context.record(step, Fact::ShareEnded { job, node, exit, usage, at: ended });
        let is_clear = self.state().jobs()[&job].started().expect("shares do not change the phase").is_clear();
        let verdict = verdict.or_else(|| self.verdict_of_idle(job));
        match (verdict, is_clear) {
            (Some(outcome), true) => self.done(now, step, job, outcome),
            (Some(outcome), false) => self.end_as_of(now, step, job, at.unwrap_or(now), outcome, false),
            (None, true) => self.settle(now, step, job),
            (None, false) => {}
        }
    }

    /// Returns when a share ended, unless that is now and no other share goes on. What an order ended did not end before
    /// the order, whatever the clock of its node says.
    fn time_of(&self, now: Time, job: JobId, node: NodeId, end: &ShareEnd) -> Option<Time> {
        let started = self.state().jobs()[&job].started()?;
        let others = started.alive().any(|other| other != node).then_some(now);
        let order = started.ending.as_ref().filter(|_| matches!(end.exit, NodeExit::Ordered | NodeExit::Overstayed));
        let at = end.at.map(|at| order.map_or(at, |order| at.max(order.at)));
        at.or(others)
    }

    /// Returns the outcome of the job, if the end of this share decides it.
    fn verdict(&self, entry: &Job, started: &Started, node: NodeId, exit: &NodeExit) -> Option<Outcome> {
        let name = || self.state().nodes()[&node].name.clone();
        let script_node = entry.script_node();
        let runs_script = script_node == Some(node);
        let is_script_running = script_node.is_some_and(|node| started.is_running_on(node));
        match exit {
            NodeExit::Exited { code: 0 } => runs_script.then_some(Outcome::Completed),
            NodeExit::Exited { code } => runs_script.then_some(Outcome::Failed { code: *code }),
            NodeExit::Signaled { signal } => Some(Outcome::Signaled { signal: *signal }),
            NodeExit::Aborted { code } => Some(Outcome::Failed { code: if *code == 0 { 1 } else { *code } }),
            // The script may have ended in time, and its node cannot say so yet.
            NodeExit::WallTime => (runs_script || !is_script_running).then_some(Outcome::WallTime),
            // Ended by hand on the node, or by an order that the server no longer knows after a restart.
            NodeExit::Ordered | NodeExit::Overstayed => Some(Outcome::Cancelled { by: format!("agent/{}", name()) }),
            NodeExit::Vanished { reason } => Some(Outcome::NodeLost { node: name(), reason: reason.clone() }),
            NodeExit::NotStarted { reason, is_node_fault: _ } => {
                Some(Outcome::NotStarted { node: name(), reason: reason.clone() })
            }
            NodeExit::Violated { reason } => Some(Outcome::Violation { reason: format!("{reason} (on {})", name()) }),
            NodeExit::OutOfMemory => {
                let granted = entry.part_of(node, &self.state().nodes()[&node].inventory).map(|grant| grant.memory);
                let limit = granted.unwrap_or_else(|| constraint_of(&entry.spec, &started.request).memory);
                Some(Outcome::OutOfMemory { node: name(), limit })
            }
            NodeExit::Unsupervised { reason } => Some(Outcome::Unsupervised { node: name(), reason: reason.clone() }),
        }
    }

    /// Decides the outcome once all shares with tasks of their own have ended: shares that came idle are not waited
    /// for.
    fn verdict_of_idle(&self, job: JobId) -> Option<Outcome> {
        let entry = &self.state().jobs()[&job];
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let evolved = started.evolved.as_ref()?;
        let is_idle = |node: &NodeId| evolved.places.get(node).is_some_and(|place| place.n_tasks == Some(0));
        let mut staying = started.alive().filter(|node| !started.is_leaving(*node)).peekable();
        let is_over = staying.peek().is_some() && staying.all(|node| is_idle(&node));
        is_over.then_some(match started.worst_code {
            0 => Outcome::Completed,
            code => Outcome::Failed { code },
        })
    }

    /// Records the outcome of a job, and ends what still runs of it.
    pub(crate) fn end(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome, requeue: bool) {
        self.end_as_of(now, step, job, now, outcome, requeue);
    }

    /// Does the same with an outcome that was decided `at` an earlier time, on a node that was away.
    fn end_as_of(&mut self, now: Time, step: &mut Step, job: JobId, at: Time, outcome: Outcome, requeue: bool) {
        let told = outcome.clone();
        self.context.record(step, Fact::JobEnding { job, at, outcome, requeue });
        self.negotiations().end_negotiations(now, step, job, &told);
        self.context.announce(step, job);
        let is_clear = self.state().jobs()[&job].started().is_some_and(Started::is_clear);
        if is_clear {
            // Its launcher started nothing through the agents: there is nothing to wait for.
            self.settle(now, step, job);
        }
    }

    /// Settles the job if its last share has ended.
    fn settle_if_clear(&mut self, now: Time, step: &mut Step, job: JobId) {
        if self.state().jobs()[&job].started().is_some_and(Started::is_clear) {
            self.settle(now, step, job);
        }
    }

    /// Removes or requeues a job whose last share has ended.
    fn settle(&mut self, now: Time, step: &mut Step, job: JobId) {
        let started = self.state().jobs()[&job].started().expect("the caller has looked");
        match &started.ending {
            Some(ending) if ending.requeue => {
                let sharing = self.state().jobs()[&job].sharing().filter(|sharing| sharing.is_active()).cloned();
                self.context.record(step, Fact::JobRequeued { job, at: now });
                sharing.iter().for_each(|sharing| self.return_cpus(now, step, job, sharing));
                self.negotiations().forget_negotiations(job);
                self.context.launches.remove(&job);
                self.context.passes.wanted = true;
                self.context.announce(step, job);
            }
            Some(ending) if !started.ended_at.is_some_and(|at| ending.is_overtaken_by(at)) => {
                let outcome = ending.outcome.clone();
                self.done(now, step, job, outcome);
            }
            Some(_) | None => {
                let outcome = match started.worst_code {
                    0 => Outcome::Completed,
                    code => Outcome::Failed { code },
                };
                self.done(now, step, job, outcome);
            }
        }
    }

    /// Handles a launcher's report that its application is done. Reports on an earlier execution are ignored: its end
    /// was reported before.
    pub(crate) fn application_done(&mut self, now: Time, step: &mut Step, job: JobId, run: Run, outcome: Outcome) {
        let is_running =
            self.state().jobs().get(&job).is_some_and(|entry| entry.run == run && entry.started().is_some());
        if is_running {
            self.done(now, step, job, outcome);
        }
    }

    /// Removes a job (001: done). With a fair-start delay the nodes stay with the ghost, else they are free at once.
    pub(crate) fn done(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome) {
        self.negotiations().end_negotiations(now, step, job, &outcome);
        let entry = &self.state().jobs()[&job];
        // Without readers of job changes there is no reader of the history.
        let has_readers = self.context.config.tells_anyone;
        let names = if has_readers { self.state().node_names(entry.nodes()) } else { Vec::new() };
        let has_launcher = entry.launcher.is_some();
        let (run, submitted) = (entry.run, Some(entry.submitted));
        let ended = entry.started().and_then(|started| started.ended_at).unwrap_or(now);
        let told = (ended < now).then_some(now);
        let granted = if has_readers { self.state().granted(entry, ended) } else { None };
        let loans = entry.started().and_then(|started| self.state().loans_at(started, ended));
        let record = entry.record(job, ended, outcome.clone(), names.clone(), (granted, loans));
        // Nodes that are shared with mates or guests get no ghost.
        let sharing = entry.sharing().filter(|sharing| sharing.is_active()).cloned();
        let nodes = if sharing.is_some() { entry.nodes().to_vec() } else { Vec::new() };
        let untils = match sharing {
            Some(_) => BTreeMap::new(),
            None => self.context.ghost_untils(now, job),
        };
        let ghost_until = untils.values().copied().max().unwrap_or(now);
        let negotiations = self.state().jobs()[&job]
            .negotiations
            .as_ref()
            .map(|negotiations| negotiations.records())
            .unwrap_or_default();
        self.context.record(step, Fact::JobDone { record: Box::new(record), ghost_until, negotiations, told });
        self.context.part_ghost(now, step, job, ghost_until, untils);
        if let Some(sharing) = sharing {
            self.return_cpus(now, step, job, &sharing);
            self.context.leave_ghosts(now, step, job, &nodes);
        }
        self.context.launches.remove(&job);
        self.context.tell_end(step, job, has_launcher, &outcome);
        // A job that leaves the queue lets others move up, as much as one that frees nodes.
        self.context.passes.wanted = true;
        let state = if self.state().jobs().contains_key(&job) { JobState::Ghost } else { JobState::Finished };
        if self.context.config.tells_anyone {
            step.order(Effect::Announce(JobChange {
                job,
                run,
                state,
                nodes: names,
                outcome: Some(outcome),
                submitted,
            }));
        }
    }

    pub(crate) fn cancel(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let by = match who.role {
            // A job's processes act as its owner.
            Role::Job => self.state().jobs()[&job].spec.owner.0.clone(),
            Role::Admin | Role::User | Role::Agent | Role::Server => who.name.clone(),
        };
        let outcome = Outcome::Cancelled { by };
        match &self.state().jobs()[&job].phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                self.done(now, step, job, outcome);
                Ok(())
            }
            Phase::Started(started) => match &started.ending {
                // Cancelling a job that would be requeued prevents the requeue.
                Some(ending) if !ending.requeue => Err(wrong_state(job, "ending", "it is being ended already")),
                Some(_) | None => {
                    self.end(now, step, job, outcome, false);
                    Ok(())
                }
            },
            Phase::Ghost(_) => {
                Err(wrong_state(job, "done", "only its ghost keeps the nodes, for the fair-start delay"))
            }
        }
    }

    /// Ends the application of a launcher that violated the rules.
    pub(crate) fn end_for_violation(&mut self, now: Time, step: &mut Step, job: JobId, reason: String) {
        self.end_in_any_state(now, step, job, Outcome::Violation { reason });
    }

    /// Ends an application whatever its state.
    pub(crate) fn end_in_any_state(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome) {
        let Some(entry) = self.state().jobs().get(&job) else { return };
        if entry.is_before_its_start() {
            self.done(now, step, job, outcome);
        } else if entry.started().is_some_and(|started| started.ending.is_none()) {
            self.end(now, step, job, outcome, false);
        }
    }
}

/// From this run on a job ends if its node cannot start it or its supervisor is killed: the job may be the cause itself,
/// and must not drain node after node, or start anew for ever.
const LAST_FAULTY_RUN: Run = Run(3);

/// An end that an agent reports within this time counts as the time of the report, which needs no comparison of clocks.
const REPORTED_LATE: Span = Span::from_secs(1);

/// Returns whether this exit means that the node's arrival failed: nothing of the job ever ran there, or it disappeared
/// without a report.
fn is_failed_arrival(exit: &NodeExit) -> bool {
    match exit {
        NodeExit::NotStarted { .. }
        | NodeExit::Vanished { .. }
        | NodeExit::Unsupervised { .. }
        | NodeExit::Ordered
        | NodeExit::Overstayed => true,
        NodeExit::OutOfMemory | NodeExit::Violated { .. } => false,
        NodeExit::Exited { .. } | NodeExit::Signaled { .. } | NodeExit::Aborted { .. } | NodeExit::WallTime => false,
    }
}
