//! The negotiator of an application: one of its processes, with a channel of its own, and what it is told of the
//! application's nodes.

use std::collections::BTreeSet;

use negotiation::{Action, Message, NegotiationId, Output, Phase, Reason, Rejected, Reminder, Rules, Statement};
use rms_api::negotiate::{Attached, Declared, HeldNode, Holding, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, NodeId, Role, Sizes, Time};

use super::Negotiations;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::rate::{CallRate, MAX_CALLS, RateDecision};
use crate::state::fact::Fact;
use crate::state::job::{Share, Started};
use crate::state::negotiations::{JobNegotiations, Negotiation};
use crate::step::Step;

/// The negotiator of a job broke a rule, so the job must be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) job: JobId,
    /// The number of calls allowed per second.
    pub(crate) most: u32,
    pub(crate) reason: String,
}

/// The calls of the negotiator of one execution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallRates {
    messages: CallRate,
    calls: CallRate,
}

impl Negotiations<'_> {
    pub(crate) fn handle_negotiator_call(
        &mut self,
        now: Time,
        step: &mut Step,
        ticket: Ticket,
        who: &Identity,
        call: NegotiatorCall,
    ) -> Result<(), Violation> {
        let answer = |answer| Effect::NegotiatorAnswer { ticket, answer };
        let job = match self.job_of_caller(now, who) {
            Ok(job) => job,
            Err(refusal) => {
                step.order(answer(Err(refusal)));
                return Ok(());
            }
        };
        if let Err(refusal) = self.count_call(now, job, &call)? {
            step.order(answer(Err(refusal)));
            return Ok(());
        }
        match call {
            NegotiatorCall::Attach(manner) => {
                if self.negotiators.attached.contains_key(&job) {
                    step.order(Effect::TellNegotiator { job, notice: NegotiatorNotice::Replaced });
                }
                let kept = self.pinned_by(job, &manner.keeps);
                let said_before = self.negotiations(job).is_some_and(|negotiations| negotiations.survives_loss);
                let has_stages = self.context.state().jobs()[&job].spec.evolving.is_some();
                if manner.survives_loss != said_before && !has_stages {
                    self.context.record(step, Fact::LossDeclared { job, survives: manner.survives_loss });
                }
                self.negotiators.attached.insert(job, kept);
                self.negotiators.gone.remove(&job);
                self.context.want_pass_for(job);
                let attached = NegotiatorAnswer::Attached(Box::new(self.attachment(now, job)));
                step.order(answer(Ok(attached)));
                let output = self.dialogues(job).resume(now);
                self.record_and_send(now, step, job, output);
                self.schedule(job);
            }
            NegotiatorCall::Free(names) => {
                let answered = self.free_nodes(step, who, job, &names).map(|()| NegotiatorAnswer::Done);
                step.order(answer(answered));
            }
            NegotiatorCall::Declare(declared) => {
                let answered = self.declare(step, job, declared).map(|()| NegotiatorAnswer::Done);
                step.order(answer(answered));
            }
            // The outcome arrives as a notice, not as an answer.
            NegotiatorCall::Say(message) => {
                if let Err(refusal) = self.receive(now, step, job, &message) {
                    step.order(answer(Err(refusal)));
                }
            }
        }
        Ok(())
    }

    /// Counts one more call of a job's negotiator; messages have a higher limit than other calls. Refuses the call if
    /// there are too many.
    ///
    /// # Errors
    /// The limit was exceeded in several seconds in a row.
    fn count_call(&mut self, now: Time, job: JobId, call: &NegotiatorCall) -> Result<Result<(), Refusal>, Violation> {
        let call_rates = self.negotiators.call_rates.entry(job).or_default();
        let (rate, most) = match call {
            NegotiatorCall::Attach(_) | NegotiatorCall::Declare(_) | NegotiatorCall::Free(_) => {
                (&mut call_rates.calls, MAX_CALLS)
            }
            NegotiatorCall::Say(_) => (&mut call_rates.messages, MAX_MESSAGES),
        };
        match rate.call(now, most) {
            RateDecision::Allowed => Ok(Ok(())),
            RateDecision::Refused => Ok(Err(Refusal::RateLimit { job, most })),
            RateDecision::Ended => {
                let reason = format!("its negotiator called more than {most} times in each of several seconds");
                Err(Violation { job, most, reason })
            }
        }
    }

    /// Returns the job whose present execution the caller represents.
    fn job_of_caller(&self, now: Time, who: &Identity) -> Result<JobId, Refusal> {
        let wrong_role = Refusal::WrongRole { expected: Role::Job, actual: who.role };
        let (job, run) = who.as_job().ok_or(wrong_role)?;
        let entry = self.context.state().jobs().get(&job).ok_or(Refusal::NotRunning(job))?;
        // The server ends evolving jobs, and others end by their wall time.
        let is_over = |started: &Started| entry.spec.evolving.is_none() && started.is_overdue(now);
        let is_running = entry.started().is_some_and(|started| started.ending.is_none() && !is_over(started));
        if entry.run != run {
            return Err(Refusal::AnotherRun { who: who.clone() });
        }
        if !is_running {
            return Err(Refusal::NotRunning(job));
        }
        // An evolving job is told of its stages, and names the nodes that it frees.
        if entry.spec.evolving.is_none() {
            self.negotiable(job)?;
        }
        Ok(job)
    }

    /// Frees the nodes that the application names at its next stage, as `rms free` does.
    fn free_nodes(&mut self, step: &mut Step, who: &Identity, job: JobId, names: &[String]) -> Result<(), Refusal> {
        if !self.negotiators.attached.contains_key(&job) {
            return Err(Refusal::Malformed("attach first: only an attached negotiator may call this"));
        }
        self.context.free_nodes(step, who, job, names).map(drop)
    }

    pub(crate) fn attachment(&self, now: Time, job: JobId) -> Attached {
        let n_opened = self.negotiations(job).map_or(0, |negotiations| negotiations.heard_up_to);
        let run = self.context.state().jobs()[&job].run;
        let (declared, holding) = (self.limits(job), self.holding_of(now, job));
        let clusters = self.context.state().clusters().clone();
        let (release_within, open) = (self.promise_span() + self.promise_span(), self.reminders(now, job));
        Attached { job, run, rules: Rules::default(), n_opened, declared, holding, release_within, open, clusters }
    }

    /// Returns the sizes between which the application may be changed: as it has declared itself, or as it was
    /// submitted.
    pub(super) fn limits(&self, job: JobId) -> Declared {
        if let Some(declared) = self.negotiations(job).and_then(|negotiations| negotiations.declared.clone()) {
            return declared;
        }
        let entry = &self.context.state().jobs()[&job];
        match (&entry.spec.malleable, entry.started()) {
            (Some(malleable), Some(started)) => {
                let (least, most) = malleable.range(started.began_with());
                let (sizes, speedup) = (malleable.sizes.clone(), malleable.speedup.clone());
                Declared { least, most, sizes, speedup }
            }
            (Some(_) | None, _) => {
                Declared { least: 1, most: u32::MAX, sizes: Sizes::Any, speedup: Default::default() }
            }
        }
    }

    /// Returns the limits, raised to the number of pinned nodes: ranks that `mpirun` has started cannot leave.
    pub(super) fn bounds(&self, job: JobId) -> Declared {
        let declared = self.limits(job);
        Declared { least: declared.least.max(self.negotiators.n_pinned(self.context.state(), job)), ..declared }
    }

    fn declare(&mut self, step: &mut Step, job: JobId, declared: Declared) -> Result<(), Refusal> {
        if !self.negotiators.attached.contains_key(&job) {
            return Err(Refusal::Malformed("attach first: only an attached negotiator may declare limits"));
        }
        crate::admit::check_declared(&declared)?;
        // A program may be submitted either way. The stages of an evolving job change only when it announces others.
        let has_stages = self.context.state().jobs()[&job].spec.evolving.is_some();
        if !has_stages && self.limits(job) != declared {
            self.context.record(step, Fact::LimitsDeclared { job, declared });
            self.context.want_pass_for(job);
        }
        Ok(())
    }

    /// Handles a message of the application's end.
    fn receive(&mut self, now: Time, step: &mut Step, job: JobId, message: &Message) -> Result<(), Refusal> {
        if !self.negotiators.attached.contains_key(&job) {
            return Err(Refusal::Malformed("attach first: only an attached negotiator may call this"));
        }
        if self.context.state().jobs()[&job].spec.evolving.is_some() {
            return Err(Refusal::HasProfile(job));
        }
        let id = message.id;
        if self.is_proxied(job, id) && self.negotiation(job, id).is_some() {
            // A caller has used this number for an ask, and the application did not know that yet: the negotiation is
            // not the application's own.
            let is_opening =
                matches!(&message.statement, Some(Statement::Propose { round: 1, .. })) && message.ack_seq == 0;
            let dialogues = self.dialogues(job);
            let output = if is_opening { dialogues.turn_away(message) } else { dialogues.disown(message) };
            for message in output.messages {
                let notice = NegotiatorNotice::Said(Box::new(message));
                step.order(Effect::TellNegotiator { job, notice });
            }
            return Ok(());
        }
        let mut output = self.dialogues(job).receive(now, message);
        if let Some(Rejected::NeverSaid { seen, said: _ }) = output.refused
            && self.context.booted.is_some()
        {
            output.merge(self.dialogues(job).give_up_lost_negotiation(now, id, seen));
        }
        let refused = output.refused.take();
        self.record_dialogue(now, step, job, id, None);
        self.send(step, job, output);
        if let Some(refused) = refused.filter(is_protocol_error) {
            self.refuse(step, job, message, describe(&refused));
        }
        self.progress(now, step, job, id);
        self.schedule(job);
        Ok(())
    }

    fn refuse(&self, step: &mut Step, job: JobId, message: &Message, reason: String) {
        let (negotiation, number) = (message.id, message.seq);
        let notice = NegotiatorNotice::Refused { negotiation, number, reason };
        step.order(Effect::TellNegotiator { job, notice });
    }

    /// Records and sends what all dialogues of a job have produced.
    pub(super) fn record_and_send(&mut self, now: Time, step: &mut Step, job: JobId, output: Output) {
        let ids: Vec<NegotiationId> = output.changes.iter().map(|change| change.id).collect();
        for id in ids {
            self.record_dialogue(now, step, job, id, None);
        }
        self.send(step, job, output);
    }

    /// Handles the loss of the negotiator's channel. Offers lapse as usual, or earlier if no negotiator attaches again.
    pub(crate) fn negotiator_gone(&mut self, now: Time, job: JobId) {
        if self.negotiators.attached.remove(&job).is_some() {
            self.negotiators.gone.insert(job, now);
            self.context.holdings_changed.remove(&job);
            self.schedule(job);
        }
    }

    /// Ends the open negotiations of a job whose negotiator has not attached again in time, and releases what is held
    /// for them. What is agreed goes on.
    pub(super) fn end_unattended(&mut self, now: Time, step: &mut Step, job: JobId) {
        if self.reattach_deadline(job).is_none_or(|until| until > now) {
            return;
        }
        self.negotiators.gone.remove(&job);
        for id in self.open_negotiations(job) {
            let is_of_negotiation = self.negotiation(job, id).is_some_and(|negotiation| match negotiation.phase() {
                Phase::Offered(_) | Phase::Countered(_) => true,
                Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing => false,
                Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
            });
            if is_of_negotiation && !self.is_proxied(job, id) {
                let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Stopping));
            }
        }
    }

    pub(super) fn reattach_deadline(&self, job: JobId) -> Option<Time> {
        self.negotiators.gone.get(&job).map(|since| *since + REATTACH_TIMEOUT)
    }

    /// Sends each negotiator its new holding, once per event.
    pub(super) fn send_holdings(&mut self, now: Time, step: &mut Step) {
        while let Some(job) = self.context.holdings_changed.pop_first() {
            if self.negotiators.attached.contains_key(&job) {
                let notice = NegotiatorNotice::Holding(Box::new(self.holding_of(now, job)));
                step.order(Effect::TellNegotiator { job, notice });
            }
        }
    }

    /// Returns the state of the negotiations in which the application's negotiator takes part. A running negotiator
    /// knows it, but a restarted one would not learn in time that it has agreed to leave nodes, and would lose them.
    pub(super) fn reminders(&self, now: Time, job: JobId) -> Vec<Reminder> {
        let open = self.negotiations(job).into_iter().flat_map(JobNegotiations::open);
        let reminder = |negotiation: &Negotiation| {
            let mut reminder = negotiation.dialogue.reminder(now)?;
            // Nodes that it keeps for longer are taken by force.
            if let Some(taken_at) = negotiation.taken_at(self.context.state().settings()) {
                let left = taken_at.max(now).since(now);
                reminder.left = Some(reminder.left.map_or(left, |due| due.min(left)));
            }
            Some(reminder)
        };
        open.filter(|negotiation| !self.is_proxied(job, negotiation.id())).filter_map(reminder).collect()
    }

    /// Returns the nodes that the job was warned to lose: it has promised them and has not released them.
    fn overdue_nodes(&self, job: JobId) -> BTreeSet<NodeId> {
        let warned = self
            .negotiations(job)
            .into_iter()
            .flat_map(JobNegotiations::open)
            .filter(|negotiation| negotiation.is_warned);
        let agreed = warned.filter(|negotiation| negotiation.phase() == Phase::Accepted);
        agreed.flat_map(|negotiation| self.last_nodes(job, negotiation)).collect()
    }

    pub(super) fn holding_of(&self, now: Time, job: JobId) -> Holding {
        let entry = self.context.state().jobs().get(&job);
        let Some((entry, started)) = entry.and_then(|entry| Some((entry, entry.started()?))) else {
            return Holding {
                generation: 0,
                nodes: Vec::new(),
                until: Time::EPOCH,
                stages: None,
                licences: Default::default(),
            };
        };
        // Only a job that has announced stages is told of them: a malleable one's course has a single leg.
        let stages = entry.spec.evolving.as_ref().and_then(|_| self.context.stages(entry, None, now, usize::MAX));
        let evolved = started.evolved.as_ref();
        let overdue = self.overdue_nodes(job);
        // The nodes that the job started with belong to it from its start on.
        let has_changed = started.generation() > 1;
        let coming = self.coming_nodes(job, started);
        let node = |node: &NodeId| {
            let entry = &self.context.state().nodes()[node];
            let (memory, devices) = match self.context.state().is_shared(entry.cluster) {
                true => (self.memory_of(job, *node), self.devices_of(job, *node)),
                false => Default::default(),
            };
            HeldNode {
                memory,
                devices,
                node: *node,
                name: entry.name.clone(),
                cluster: entry.cluster,
                cluster_name: self.context.state().clusters()[&entry.cluster].clone(),
                address: entry.address.clone(),
                cpus: self.cpus_usable(job, *node),
                cores: self.cores_of(job, *node),
                is_departing: evolved
                    .is_some_and(|evolved| evolved.departing.contains_key(node) || evolved.freed_next().contains(node))
                    || overdue.contains(node),
                is_coming: coming.contains(node) || (has_changed && started.shares.get(node) == Some(&Share::Ordered)),
            }
        };
        let mut licences = entry.licences();
        licences.retain(|_, licences| !licences.is_empty());
        Holding {
            licences,
            generation: started.generation(),
            nodes: started.nodes.iter().map(node).collect(),
            until: started.at + started.request.wall,
            stages: stages.map(Box::new),
        }
    }
}

/// Returns whether a rejected message deserves an answer: late messages and duplicates are no protocol errors.
fn is_protocol_error(refused: &Rejected) -> bool {
    match refused {
        Rejected::Breach(_) | Rejected::OutOfTurn(_) | Rejected::ForeignId(_) | Rejected::NeverSaid { .. } => true,
        Rejected::Stale { .. } | Rejected::TooLate(_) | Rejected::Unknown(_) | Rejected::AlreadyOpen(_) => false,
    }
}

/// Formats a rejection with its cause.
fn describe(refused: &Rejected) -> String {
    match refused {
        Rejected::Breach(breach) => format!("{refused}: {breach}"),
        Rejected::OutOfTurn(_)
        | Rejected::ForeignId(_)
        | Rejected::NeverSaid { .. }
        | Rejected::Stale { .. }
        | Rejected::TooLate(_)
        | Rejected::Unknown(_)
        | Rejected::AlreadyOpen(_) => refused.to_string(),
    }
}

/// More messages per second than two ends exchange that answer each other at once over a fast network.
pub(crate) const MAX_MESSAGES: u32 = 10_000;
/// How long open negotiations wait for a lost negotiator to attach again.
pub(crate) const REATTACH_TIMEOUT: rms_model::Span = rms_model::Span::from_secs(30);
