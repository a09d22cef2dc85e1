//! The whole server, without I/O: events go in, steps come out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::desired::Launch;
use rms_api::subscription::Notice;
use rms_model::{Generation, JobId, NodeId, NodeLink, Owner, Policy, Settings, Span, Time};

use crate::effect::Effect;
use crate::event::Event;
use crate::launchers::{CallRate, LauncherCounts};
use crate::negotiate::Negotiators;
use crate::plan::views::Streams;
use crate::plan::{self, Placed, Plan, Scope};
use crate::quota::Pace;
use crate::state::fact::{Fact, Freed};
use crate::state::job::{Job, Phase, Promise};
use crate::state::{Bumped, Misfit, State};
use crate::step::Step;

/// What the core is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of a new system; one that is restored has its own.
    pub settings: Settings,
    /// How long a certificate is valid.
    pub certificate_life: Span,
    /// Are agents told what to run on their nodes, and others what became of jobs? If not, nobody is there but
    /// launchers that start and end processes themselves on the hosts they were granted, as in 001, and say when they
    /// are done. What is decided, and what becomes true, is the same, but for the names of hosts in the history.
    pub tells_anyone: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { settings: Settings::default(), certificate_life: Span::from_hours(24 * 90), tells_anyone: true }
    }
}

/// The server.
#[derive(Debug)]
pub struct Rms {
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) passes: Passes,
    /// What each node was last sent, so that a node is told once.
    sent: BTreeMap<NodeId, Generation>,
    /// Nodes whose desired state has changed since they were sent it.
    bumped: BTreeSet<NodeId>,
    /// Launches are the same for all nodes of a job and for as long as it runs.
    pub(crate) launches: BTreeMap<JobId, Arc<Launch>>,
    /// When to look again at applications whose next stage is late.
    pub(crate) alarms: BTreeMap<JobId, Time>,
    /// When this server was started again.
    pub(crate) booted: Option<Time>,
    /// The last full plan, for as long as no fact has passed since.
    estimates: Option<Arc<Plan>>,
    /// What external launchers were told of their views.
    pub(crate) streams: Streams,
    /// How often they call.
    pub(crate) call_rates: BTreeMap<JobId, CallRate>,
    /// How fast users have submitted of late.
    pub(crate) paces: BTreeMap<Owner, Pace>,
    /// What they have cost so far.
    pub(crate) launcher_counts: LauncherCounts,
    pub(crate) negotiators: Negotiators,
}

/// When passes ran and when the next is wanted; not part of the state: a restart wants one anyway.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passes {
    pub(crate) wanted: bool,
    pub(crate) last: Option<Time>,
    pub(crate) count: u64,
    /// The most that a fact has freed since the last pass.
    pub(crate) freed: Freed,
}

impl Rms {
    pub fn new(config: Config) -> Rms {
        let state = State::new(config.settings.clone());
        Rms::with_state(config, state)
    }

    /// The server as it was when its last fact was journaled.
    ///
    /// # Errors
    /// The facts do not follow from each other: the journal is damaged.
    pub fn restore(
        config: Config,
        snapshot: Option<State>,
        facts: impl IntoIterator<Item = Fact>,
    ) -> Result<Rms, Misfit> {
        let mut rms = match snapshot {
            Some(mut state) => {
                state.rebuild_index();
                Rms::with_state(config, state)
            }
            None => Rms::new(config),
        };
        for fact in facts {
            rms.state.apply(&fact)?;
        }
        Ok(rms)
    }

    fn with_state(config: Config, state: State) -> Rms {
        Rms {
            config,
            state,
            passes: Passes { wanted: true, freed: Freed::Until(Time::NEVER), ..Passes::default() },
            sent: BTreeMap::new(),
            bumped: BTreeSet::new(),
            launches: BTreeMap::new(),
            alarms: BTreeMap::new(),
            booted: None,
            estimates: None,
            streams: Streams::default(),
            call_rates: BTreeMap::new(),
            paces: BTreeMap::new(),
            launcher_counts: LauncherCounts::default(),
            negotiators: Negotiators::default(),
        }
    }

    /// To be called once after [`Rms::restore`]: no agent is connected to a server that just started, and none is
    /// lost for the time in which it could not connect. Those that are not lost are planned with until they are back, for
    /// a while: otherwise who comes first would be started with less than there is. The clock may have been set back
    /// meanwhile.
    pub fn boot(&mut self, now: Time) -> Step {
        let mut step = Step::default();
        self.booted = Some(now);
        for node in self.state.nodes().keys().copied().collect::<Vec<_>>() {
            let is_lost = matches!(self.state.nodes()[&node].link, NodeLink::Lost { .. });
            if !is_lost {
                let link = match self.state.settings().restart_grace {
                    Span::ZERO => NodeLink::Away { since: now },
                    _ => NodeLink::Expected { since: now },
                };
                self.record(&mut step, Fact::NodeLinkChanged { node, link });
            }
        }
        let is_of_tomorrow = |entry: &Job| matches!(&entry.phase, Phase::Ghost(ghost) if ghost.done_at > now);
        let holding = self.state.holding().filter(|(_, entry)| is_of_tomorrow(entry));
        for job in holding.map(|(job, _)| job).collect::<Vec<_>>() {
            // Nobody knows how much of its delay is left; it must not stay until that day.
            self.expire_ghost(&mut step, job);
        }
        let is_of_tomorrow = |node: &NodeId| self.state.nodes()[node].ghost.is_some_and(|ghost| ghost.from > now);
        let nodes: Vec<NodeId> = self.state.host_ghosts().map(|(_, node)| node).filter(is_of_tomorrow).collect();
        if !nodes.is_empty() {
            self.record(&mut step, Fact::HostGhostsExpired { nodes, at: now });
        }
        self.launchers_away(now, &mut step);
        self.boot_negotiations(now, &mut step);
        step
    }

    /// Takes in what happened. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: Event) -> Step {
        let mut step = Step::default();
        match event {
            Event::Called { ticket, who, call } => self.handle_call(now, &mut step, ticket, &who, call),
            Event::AgentConnected { name, hello, report } => {
                self.agent_connected(now, &mut step, &name, hello, report);
            }
            Event::AgentReported { name, report } => self.agent_reported(now, &mut step, &name, report),
            Event::AgentTroubled { name, reason } => self.agent_troubled(now, &mut step, &name, reason),
            Event::AgentGone { name } => self.agent_gone(now, &mut step, &name),
            Event::LauncherCalled { ticket, who, call } => {
                self.handle_launcher_call(now, &mut step, ticket, &who, call);
            }
            Event::LauncherGone { job } => self.launcher_gone(now, &mut step, job),
            Event::ApplicationDone { job, run, outcome } => self.application_done(now, &mut step, job, run, outcome),
            Event::NegotiatorCalled { ticket, who, call } => {
                self.handle_negotiator_call(now, &mut step, ticket, &who, call);
            }
            Event::NegotiatorGone { job, run } => {
                let is_present = self.state.jobs().get(&job).is_some_and(|entry| entry.run == run);
                if is_present {
                    self.negotiator_gone(now, job);
                }
            }
            Event::AgentAsked { ticket, name, job, run, ask } => {
                self.agent_asks(now, &mut step, ticket, (&name, job, run), &ask);
            }
            Event::AgentCertifies { ticket, name, job, run, csr, serial } => {
                self.certify_job(now, &mut step, ticket, &name, (job, run), (csr, serial));
            }
            Event::CertificateUsed { serial } => self.certificate_used(now, &mut step, &serial),
            Event::Tick => self.tick(now, &mut step),
        }
        self.turn_negotiations(now, &mut step);
        self.send_desires(&mut step);
        step
    }

    /// When [`Event::Tick`] is next wanted; a time that is past means at once.
    ///
    /// A driver that takes in events in batches asks once after each batch: that is what makes a pass serve many
    /// events even with a re-scheduling timer of zero.
    pub fn next_timer(&self) -> Option<Time> {
        let lost = self.state.longest_away().map(|(since, _)| since + self.state.settings().node_lost_after);
        let expected = self.state.longest_expected().map(|(since, _)| since + self.state.settings().restart_grace);
        let ghost = self.state.next_ghost().map(|(until, _)| until);
        let ghost = ghost.into_iter().chain(self.state.host_ghosts().next().map(|(until, _)| until)).min();
        let begin = self.state.next_begin().map(|(at, _)| at);
        let launcher = self.state.next_launcher_deadline();
        let negotiation = [self.next_negotiation(), self.next_offer()].into_iter().flatten().min();
        [self.next_pass(), lost, expected, ghost, begin, launcher, self.next_stage(), negotiation]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The plan with all estimates, as of `now`; kept until a fact passes or time does.
    pub fn estimates(&mut self, now: Time) -> Arc<Plan> {
        match &self.estimates {
            Some(plan) if plan.now == now => Arc::clone(plan),
            Some(_) | None => {
                let plan = Arc::new(plan::plan(&self.state, now, Scope::Estimates));
                self.estimates = Some(Arc::clone(&plan));
                plan
            }
        }
    }

    /// When the next pass is due: the re-scheduling timer after the last one, if one is wanted (001, §5.3.2).
    pub(crate) fn next_pass(&self) -> Option<Time> {
        // A promise is kept even if nothing else happens at its time.
        let due = if self.passes.wanted { Some(Time::EPOCH) } else { self.state.next_promise() };
        let after = self.passes.last.map_or(Time::EPOCH, |last| last + self.state.settings().resched_timer);
        due.map(|due| due.max(after))
    }

    /// The only way a fact comes about.
    pub(crate) fn record(&mut self, step: &mut Step, fact: Fact) {
        self.streams.note(&self.state, &fact);
        self.passes.freed = self.passes.freed.max(fact.frees(&self.state));
        let mut bumped = if self.config.tells_anyone { Bumped::Noted(&mut self.bumped) } else { Bumped::Unnoted };
        self.state.apply_noting(&fact, &mut bumped).expect("the core records only what fits its own state");
        self.estimates = None;
        self.note_for_negotiators(&fact);
        step.record(fact);
    }

    fn tick(&mut self, now: Time, step: &mut Step) {
        while let Some((until, job)) = self.state.next_ghost()
            && until <= now
        {
            self.expire_next(now, step, job);
        }
        let nodes: Vec<NodeId> =
            self.state.host_ghosts().take_while(|(until, _)| *until <= now).map(|(_, node)| node).collect();
        self.free_host_ghosts(now, step, nodes);
        while let Some((at, job)) = self.state.next_begin()
            && at <= now
        {
            self.record(step, Fact::RequestSent { job, at: now });
            self.passes.wanted = true;
        }
        while let Some((since, node)) = self.state.longest_away()
            && since + self.state.settings().node_lost_after <= now
        {
            self.node_lost(now, step, node);
        }
        while let Some((since, node)) = self.state.longest_expected()
            && since + self.state.settings().restart_grace <= now
        {
            // It is late. Others start without it.
            self.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Away { since } });
            self.passes.wanted = true;
        }
        self.end_late_launchers(now, step);
        self.enter_stages(now, step);
        self.tick_negotiations(now, step);
        self.forget_refusals(now);
        let is_due = self.next_pass().is_some_and(|due| due <= now);
        if is_due {
            self.end_unwanted_ghosts(now, step);
            self.pass(now, step);
            self.serve_waiting(now, step);
            self.seek_changes(now, step);
        }
    }

    /// 001, Fig. 5: plans and turns the plan into facts.
    fn pass(&mut self, now: Time, step: &mut Step) {
        let (plan, changes) = if self.streams.is_watched() {
            self.streams.pass(&self.state, now)
        } else {
            self.streams.unseen_pass();
            let scope = match (self.state.settings().policy, self.passes.freed) {
                (Policy::Conservative, Freed::Nothing | Freed::AsPromised) | (Policy::Easy, Freed::Nothing) => {
                    Scope::Arrivals
                }
                (Policy::Conservative, Freed::Until(until)) => Scope::Freed { until },
                (Policy::Easy, Freed::AsPromised | Freed::Until(_)) => Scope::Starts,
                (Policy::Views | Policy::Fcfs, Freed::Nothing | Freed::AsPromised | Freed::Until(_)) => Scope::Starts,
            };
            (plan::plan(&self.state, now, scope), Vec::new())
        };
        let is_promised = self.state.settings().policy == Policy::Conservative;
        self.passes = Passes { wanted: false, last: Some(now), count: self.passes.count + 1, freed: Freed::Nothing };
        let mut starts = Vec::new();
        for placement in plan.placements {
            let job = placement.job;
            let promise = match placement.outcome {
                // 001, §5.3.1: who is not there cannot be told of a start. What it would start on is kept for it in this
                // pass, and so its place before those behind it.
                Placed::Now { .. } if self.state.jobs()[&job].unheard_since().is_some() => {
                    Some(Promise { at: now + Span::from_secs(1), option_idx: 0 })
                }
                Placed::Now { request, nodes, fit } => {
                    self.start(now, step, job, request, nodes);
                    fit.iter().for_each(|fit| self.begin_course(now, step, job, fit));
                    continue;
                }
                // What is promised is one size for one time: an evolving application is placed anew at each pass.
                Placed::Later { fit: Some(_), .. } => None,
                // A promise for now that could not be kept for want of hosts is not worth another pass at once.
                Placed::Later { option_idx, at, .. } => {
                    Some(Promise { at: at.max(now + Span::from_secs(1)), option_idx })
                }
                Placed::Never { .. } => None,
            };
            if is_promised && self.state.jobs()[&job].promised != promise {
                starts.push((job, promise));
            }
        }
        if !starts.is_empty() {
            self.record(step, Fact::StartsPromised { starts });
        }
        let unseen: Vec<JobId> = self.state.unseen().iter().copied().collect();
        if !unseen.is_empty() {
            self.record(step, Fact::JobsQueued { jobs: unseen });
        }
        for (job, change) in changes {
            step.order(Effect::Notify { job, notice: Notice::Changed(change) });
        }
    }

    /// Every connected node whose desired state changed is sent the whole of it.
    fn send_desires(&mut self, step: &mut Step) {
        if !self.config.tells_anyone {
            self.bumped.clear();
            return;
        }
        for node in std::mem::take(&mut self.bumped) {
            let Some(entry) = self.state.nodes().get(&node) else { continue };
            if !entry.is_connected() {
                continue;
            }
            let name = entry.name.clone();
            let generation = entry.generation;
            if self.sent.insert(node, generation) != Some(generation) {
                let desired = self.desired(node);
                step.order(Effect::Desire { node: name, desired });
            }
        }
    }

    /// The node has just connected: it is told everything, whatever it was told before.
    pub(crate) fn tell(&mut self, node: NodeId) {
        self.sent.remove(&node);
        self.bumped.insert(node);
    }

    /// Forgets what belongs to a connection that is gone.
    pub(crate) fn forget_sent(&mut self, node: NodeId) {
        self.sent.remove(&node);
    }
}
