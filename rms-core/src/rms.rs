//! The whole server, without I/O: takes in events, returns steps, and passes each event to its handler.

use std::sync::Arc;

use rms_api::refusal::Refusal;
use rms_model::{NodeId, NodeLink, Time};

use crate::access::Access;
use crate::admin::Admin;
use crate::agents::Agents;
use crate::answer::Answers;
use crate::context::{Config, Context};
use crate::depth::Walk;
use crate::effect::Effect;
use crate::event::Event;
use crate::jobs::Jobs;
use crate::launchers::{LauncherCounts, Launchers};
use crate::negotiate::{Negotiations, Negotiators};
use crate::plan::Plan;
use crate::queue::Queue;
use crate::quota::SubmitRates;
use crate::state::fact::Fact;
use crate::state::job::{Job, LauncherLink, Phase};
use crate::state::{ApplyError, State};
use crate::step::Step;

/// The server.
#[derive(Debug)]
pub struct Rms {
    pub(crate) context: Context,
    pub(crate) negotiators: Negotiators,
    /// The load that external launchers have caused so far.
    launcher_counts: LauncherCounts,
    /// The recent submission rates of users.
    submit_rates: SubmitRates,
}

impl Rms {
    pub fn new(config: Config) -> Rms {
        let state = State::new(config.settings.clone());
        Rms::with_context(Context::new(config, state))
    }

    /// Restores the server as it was when its last fact was journaled.
    ///
    /// # Errors
    /// The facts do not follow from each other: the journal is damaged.
    pub fn restore(
        config: Config,
        snapshot: Option<State>,
        facts: impl IntoIterator<Item = Fact>,
    ) -> Result<Rms, ApplyError> {
        let state = match snapshot {
            Some(mut state) => {
                state.rebuild_index();
                state
            }
            None => State::new(config.settings.clone()),
        };
        Context::restore(config, state, facts).map(Rms::with_context)
    }

    fn with_context(context: Context) -> Rms {
        let (negotiators, launcher_counts) = (Negotiators::default(), LauncherCounts::default());
        Rms { context, negotiators, launcher_counts, submit_rates: SubmitRates::default() }
    }

    /// Completes a restart; called once after [`Rms::restore`]. No agent is connected to a server that has just
    /// started, and none is considered lost for the time in which it could not connect. Agents that are not lost are
    /// planned with until they are back, for a while: otherwise the first jobs would be started with fewer nodes than
    /// there are. The clock may have been set back meanwhile.
    pub fn boot(&mut self, now: Time) -> Step {
        let mut step = Step::default();
        let context = &mut self.context;
        context.booted = Some(now);
        for node in context.state().nodes().keys().copied().collect::<Vec<_>>() {
            let is_lost = matches!(context.state().nodes()[&node].link, NodeLink::Lost { .. });
            if !is_lost {
                context.agent_away(now, &mut step, node);
            }
        }
        let is_of_tomorrow = |entry: &Job| matches!(&entry.phase, Phase::Ghost(ghost) if ghost.done_at > now);
        let holding = context.state().holding().filter(|(_, entry)| is_of_tomorrow(entry));
        for job in holding.map(|(job, _)| job).collect::<Vec<_>>() {
            // The clock was set back, so how much of the delay is left is unknown; the ghost must not stay until the
            // old date.
            context.expire_ghost(&mut step, job);
        }
        let is_of_tomorrow = |node: &NodeId| context.state().nodes()[node].ghost.is_some_and(|ghost| ghost.from > now);
        let nodes: Vec<NodeId> = context.state().node_ghosts().map(|(_, node)| node).filter(is_of_tomorrow).collect();
        if !nodes.is_empty() {
            context.record(&mut step, Fact::NodeGhostsExpired { nodes, at: now });
        }
        self.launchers().launchers_away(now, &mut step, |link| !matches!(link, LauncherLink::Lost { .. }));
        self.negotiations().boot_negotiations(now, &mut step);
        step
    }

    /// Handles an event. `now` must not decrease.
    pub fn handle(&mut self, now: Time, event: Event) -> Step {
        let mut step = Step::default();
        match event {
            Event::Called { ticket, who, call } => self.handle_call(now, &mut step, ticket, &who, call),
            Event::AgentConnected { name, hello, report } => {
                self.agents().agent_connected(now, &mut step, &name, hello, report);
            }
            Event::AgentReported { name, report } => self.agents().agent_reported(now, &mut step, &name, report),
            Event::AgentTroubled { name, reason } => self.agents().agent_troubled(now, &mut step, &name, reason),
            Event::AgentGone { name } => self.agents().agent_gone(now, &mut step, &name),
            Event::LauncherCalled { ticket, who, call } => {
                self.launchers().handle_launcher_call(now, &mut step, ticket, &who, call);
            }
            Event::LauncherGone { job } => self.launchers().launcher_gone(now, &mut step, job),
            Event::ApplicationDone { job, run, outcome } => {
                self.jobs().application_done(now, &mut step, job, run, outcome);
            }
            Event::NegotiatorCalled { ticket, who, call } => {
                let mut negotiations = self.negotiations();
                if let Err(violation) = negotiations.handle_negotiator_call(now, &mut step, ticket, &who, call) {
                    let (job, most) = (violation.job, violation.most);
                    self.jobs().end_for_violation(now, &mut step, job, violation.reason);
                    let answer = Err(Refusal::RateLimit { job, most });
                    step.order(Effect::NegotiatorAnswer { ticket, answer });
                }
            }
            Event::NegotiatorGone { job, run } => {
                let is_present = self.state().jobs().get(&job).is_some_and(|entry| entry.run == run);
                if is_present {
                    self.negotiations().negotiator_gone(now, job);
                }
            }
            Event::AgentAsked { ticket, name, job, run, ask } => {
                self.negotiations().agent_asks(now, &mut step, ticket, (&name, job, run), &ask);
            }
            Event::AgentCertifies { ticket, name, job, run, csr, serial } => {
                self.access().certify_job(now, &mut step, ticket, &name, (job, run), (csr, serial));
            }
            Event::CertificateUsed { serial } => self.access().certificate_used(now, &mut step, &serial),
            Event::PassTook { took } => self.context.walk_took(&mut step, took),
            Event::ClockSetForward => self.clock_set_forward(now, &mut step),
            Event::Tick => self.tick(now, &mut step),
        }
        if self.context.may_enter_late_stages() {
            self.jobs().enter_stages(now, &mut step);
        }
        self.negotiations().review_changed(now, &mut step);
        self.context.send_desired_states(&mut step);
        step
    }

    /// Returns when [`Event::Tick`] is needed next; a time in the past means at once.
    ///
    /// A driver that handles events in batches calls this once after each batch: so a pass serves many events even with
    /// a re-scheduling timer of zero.
    pub fn next_timer(&self) -> Option<Time> {
        let state = self.state();
        let lost = state.longest_away().map(|(since, _)| since + state.settings().node_lost_after);
        let expected = state.longest_expected().map(|(since, _)| since + state.settings().restart_grace);
        let ghost = state.next_ghost().map(|(until, _)| until);
        let node_ghost = state.node_ghosts().next().map(|(until, _)| until);
        let begin = state.next_begin().map(|(at, _)| at);
        let launcher = state.next_launcher_deadline();
        let (wake, offer) = (self.negotiators.next_wake(), self.negotiators.next_offer());
        let (pass, stage) = (self.context.next_pass(), self.context.next_stage());
        let jobs = earlier(earlier(pass, stage), earlier(begin, launcher));
        let nodes = earlier(earlier(lost, expected), earlier(ghost, node_ghost));
        earlier(earlier(jobs, nodes), earlier(wake, offer))
    }

    /// Counts the time of agents and launchers that are away from now on: how long they have been is unknown.
    fn clock_set_forward(&mut self, now: Time, step: &mut Step) {
        let away = self.state().nodes().iter().filter(|(_, entry)| entry.away_since().is_some());
        for node in away.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.context.agent_away(now, step, node);
        }
        self.launchers().launchers_away(now, step, |link| matches!(link, LauncherLink::Away { .. }));
    }

    pub fn state(&self) -> &State {
        self.context.state()
    }

    /// Returns the plan with all estimates, as of `now`; cached until a fact is recorded or time passes.
    pub fn estimates(&mut self, now: Time) -> Arc<Plan> {
        self.context.estimates(now)
    }

    /// Returns the latest walk over the queue whose duration has not been reported yet.
    pub fn walk(&self) -> Option<Walk> {
        self.context.walks.latest
    }

    fn tick(&mut self, now: Time, step: &mut Step) {
        let context = &mut self.context;
        while let Some((until, job)) = context.state().next_ghost()
            && until <= now
        {
            context.expire_next(now, step, job);
        }
        let nodes: Vec<NodeId> =
            context.state().node_ghosts().take_while(|(until, _)| *until <= now).map(|(_, node)| node).collect();
        context.free_node_ghosts(now, step, nodes);
        while let Some((at, job)) = context.state().next_begin()
            && at <= now
        {
            context.record(step, Fact::RequestSent { job, at: now });
            context.passes.wanted = true;
        }
        while let Some((since, node)) = self.state().longest_away()
            && since + self.state().settings().node_lost_after <= now
        {
            self.agents().node_lost(now, step, node);
        }
        while let Some((since, node)) = self.state().longest_expected()
            && since + self.state().settings().restart_grace <= now
        {
            // The node is late: jobs start without it.
            self.context.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Away { since } });
            self.context.passes.wanted = true;
        }
        self.launchers().end_late_launchers(now, step);
        self.jobs().enter_stages(now, step);
        self.negotiations().tick_negotiations(now, step);
        self.negotiations().forget_refusals(now);
        self.context.review_late_ends(now);
        let is_due = self.context.next_pass().is_some_and(|due| due <= now);
        if is_due {
            self.context.end_unwanted_ghosts(now, step);
            let by_nodes = self.negotiations().cost_by_nodes(now);
            self.jobs().pass(now, step, by_nodes);
            self.negotiations().serve_waiting(now, step);
            self.negotiations().propose_changes(now, step);
        }
    }

    pub(crate) fn negotiations(&mut self) -> Negotiations<'_> {
        Negotiations { context: &mut self.context, negotiators: &mut self.negotiators }
    }

    pub(crate) fn jobs(&mut self) -> Jobs<'_> {
        Jobs { context: &mut self.context, negotiators: &mut self.negotiators }
    }

    pub(crate) fn queue(&mut self) -> Queue<'_> {
        let jobs = Jobs { context: &mut self.context, negotiators: &mut self.negotiators };
        Queue { jobs, submit_rates: &mut self.submit_rates }
    }

    pub(crate) fn launchers(&mut self) -> Launchers<'_> {
        let jobs = Jobs { context: &mut self.context, negotiators: &mut self.negotiators };
        Launchers { jobs, counts: &mut self.launcher_counts, submit_rates: &mut self.submit_rates }
    }

    pub(crate) fn answers(&mut self) -> Answers<'_> {
        Answers { context: &mut self.context, negotiators: &self.negotiators, counts: &self.launcher_counts }
    }

    pub(crate) fn agents(&mut self) -> Agents<'_> {
        Agents { jobs: self.jobs() }
    }

    pub(crate) fn access(&mut self) -> Access<'_> {
        Access { jobs: self.jobs() }
    }

    pub(crate) fn admin(&mut self) -> Admin<'_> {
        Admin { jobs: self.jobs() }
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
