//! The context of every handler: the state, which only `record` changes, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rms_api::answer::ClusterView;
use rms_api::desired::Launch;
use rms_api::subscription::ViewChange;
use rms_model::{Generation, JobId, NodeId, Policy, Settings, Span, Time};

use crate::depth::Walks;
use crate::plan::views::Streams;
use crate::plan::{self, KeptPlan, Overdue, Plan, Scope};
use crate::published::Published;
use crate::rate::CallRate;
use crate::state::fact::{Fact, Freed};
use crate::state::job::{Job, SOON};
use crate::state::{ApplyError, BumpedNodes, IdSet, Replay, State};
use crate::step::Step;

/// The configuration with which the core is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of a new system; a restored one has its own.
    pub settings: Settings,
    /// The lifetime of certificates.
    pub certificate_life: Span,
    /// Whether agents are told what to run on their nodes, and watchers what became of jobs. If not, there are only
    /// launchers that start and end processes themselves on the nodes they were granted, as in 001, and report when
    /// they are done. Decisions and facts are the same, except that the history has no names of nodes.
    pub tells_anyone: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { settings: Settings::default(), certificate_life: Span::from_hours(24 * 90), tells_anyone: true }
    }
}

/// The state, and what is derived from it and rebuilt after a restart.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    state: State,
    pub(crate) passes: Passes,
    /// How long passes and plans take.
    pub(crate) walks: Walks,
    /// The generation last sent to each node, so that each is sent once.
    pub(crate) sent: BTreeMap<NodeId, Generation>,
    /// Nodes whose desired state has changed since it was last sent.
    pub(crate) bumped: BTreeSet<NodeId>,
    /// The launch of each job, which is the same for all of its nodes; dropped when the job changes.
    pub(crate) launches: BTreeMap<JobId, Arc<Launch>>,
    /// Why nodes can start no job, by their own word. Their agents say it again on each new link.
    pub(crate) troubles: BTreeMap<NodeId, String>,
    /// When to look again at applications whose next stage is late.
    pub(crate) alarms: BTreeMap<JobId, Time>,
    /// When this server was restarted.
    pub(crate) booted: Option<Time>,
    /// What the last pass has kept for the next one.
    kept: KeptPlan,
    /// The last full plan; kept until a fact is recorded.
    estimates: Option<Arc<Plan>>,
    /// The plan shown to readers, which may be older.
    published: Option<Arc<Published>>,
    /// The views that external launchers were sent.
    pub(crate) streams: Streams,
    /// The call rates of launchers.
    pub(crate) call_rates: BTreeMap<JobId, CallRate>,
    /// Jobs whose negotiations must be reviewed at the end of the event.
    pub(crate) to_review: BTreeSet<JobId>,
    /// Jobs whose holdings have changed, so that their negotiators must be told.
    pub(crate) holdings_changed: BTreeSet<JobId>,
}

/// When passes ran and when the next is wanted. Not part of the state: a restart requires a pass anyway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    pub(crate) wanted: bool,
    pub(crate) last: Option<Time>,
    pub(crate) count: u64,
    /// When the first waiting evolving application is planned to start.
    pub(crate) next_start: Option<Time>,
    /// The most that a fact has freed since the last pass.
    freed: Freed,
    /// The nodes of jobs that have ended since the last pass, if any cluster is shared by cores.
    left: IdSet,
}

impl Context {
    pub(crate) fn new(config: Config, state: State) -> Context {
        Context {
            config,
            state,
            passes: Passes { wanted: true, freed: Freed::Until(Time::NEVER), ..Passes::default() },
            walks: Walks::default(),
            sent: BTreeMap::new(),
            bumped: BTreeSet::new(),
            launches: BTreeMap::new(),
            troubles: BTreeMap::new(),
            alarms: BTreeMap::new(),
            booted: None,
            kept: KeptPlan::default(),
            estimates: None,
            published: None,
            streams: Streams::default(),
            call_rates: BTreeMap::new(),
            to_review: BTreeSet::new(),
            holdings_changed: BTreeSet::new(),
        }
    }

    /// Restores the context by applying facts to a state.
    ///
    /// # Errors
    /// The facts do not follow from each other: the journal is damaged.
    pub(crate) fn restore(
        config: Config,
        state: State,
        facts: impl IntoIterator<Item = Fact>,
    ) -> Result<Context, ApplyError> {
        let mut replay = Replay::of(state);
        for fact in facts {
            replay.follow(&fact)?;
        }
        Ok(Context::new(config, replay.into_state()))
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Applies a fact to the state and adds it to the step. Nothing else changes the state.
    pub(crate) fn record(&mut self, step: &mut Step, fact: Fact) {
        self.streams.note(&self.state, &fact);
        self.passes.freed = self.passes.freed.max(fact.frees(&self.state, self.passes.last));
        if let Fact::JobDone { record, .. } = &fact
            && !self.state.shared().is_empty()
        {
            for node in self.state.jobs().get(&record.job).into_iter().flat_map(Job::nodes) {
                self.passes.left.insert(*node);
            }
        }
        let mut bumped =
            if self.config.tells_anyone { BumpedNodes::Recorded(&mut self.bumped) } else { BumpedNodes::Ignored };
        self.state.apply(&fact, &mut bumped).expect("the core records only what fits its own state");
        if !KeptPlan::survives(&fact) {
            self.kept = KeptPlan::default();
        }
        self.estimates = None;
        if self.published.as_mut().is_some_and(|published| !Arc::make_mut(published).survives(&fact)) {
            self.published = None;
        }
        self.note_changes_for_negotiations(&fact);
        step.record(fact);
    }

    /// Returns the plan with all estimates, as of `now`; cached until a fact is recorded or time passes.
    pub(crate) fn estimates(&mut self, now: Time) -> Arc<Plan> {
        match &self.estimates {
            Some(plan) if plan.now == now => Arc::clone(plan),
            Some(_) | None => {
                self.walks.begin(self.state.n_queued(), self.state.depth(), true);
                let plan = Arc::new(plan::plan(&self.state, now, Scope::Estimates));
                self.estimates = Some(Arc::clone(&plan));
                plan
            }
        }
    }

    /// Returns the plan shown to readers; a new one if the cached one is too old.
    pub(crate) fn published(&mut self, now: Time) -> Arc<Published> {
        match &self.published {
            Some(published) if published.is_fresh(&self.state, now) => Arc::clone(published),
            Some(_) | None => self.publish(now),
        }
    }

    fn publish(&mut self, now: Time) -> Arc<Published> {
        let published = Arc::new(Published::new(self.estimates(now)));
        self.published = Some(Arc::clone(&published));
        published
    }

    /// Returns the holders of each cluster, and the time of the plan of which they are part.
    pub(crate) fn published_layers(
        &mut self,
        now: Time,
        layers: impl FnOnce(&State, &Plan) -> Vec<ClusterView>,
    ) -> (Time, Arc<Vec<ClusterView>>) {
        let mut published = self.published(now);
        if published.layers.is_none() {
            // An older plan was made of a state that is gone.
            if !published.is_current {
                published = self.publish(now);
            }
            let found = Arc::new(layers(&self.state, &published.plan));
            Arc::make_mut(&mut published).layers = Some(found);
            self.published = Some(Arc::clone(&published));
        }
        let layers = published.layers.as_ref().expect("they were made just now");
        (published.plan.now, Arc::clone(layers))
    }

    /// Returns when the next pass is due: the re-scheduling timer after the last one, if one is wanted (001, §5.3.2).
    /// Promised starts do not wait for the timer, nor do jobs that make room for one that is due.
    pub(crate) fn next_pass(&self) -> Option<Time> {
        let after = self.passes.last.map_or(Time::EPOCH, |last| last + self.state.settings().resched_timer);
        if self.passes.wanted {
            return Some(self.state.first_promise().map_or(after, |promise| promise.min(after)));
        }
        let due = [self.passes.next_start, self.next_late_end()].into_iter().flatten().min();
        [due.map(|due| due.max(after)), self.next_promise()].into_iter().flatten().min()
    }

    /// Returns when a promise is due even if nothing else happens at its time, or has been due for so long that its job
    /// is planned anew.
    fn next_promise(&self) -> Option<Time> {
        let last = self.passes.last.unwrap_or(Time::EPOCH);
        let missed = self.state.next_promise(last - SOON).map(|at| at + SOON);
        [self.state.next_promise(last), missed].into_iter().flatten().min()
    }

    /// Returns the next time at which a job that should have left is planned to stay longer.
    fn next_late_end(&self) -> Option<Time> {
        let overdue = Overdue::new(self.passes.last?, self.state.settings());
        overdue.next_change(|after| self.state.occupation().next_end(after))
    }

    /// Wants a pass over all waiting jobs if a job is planned to stay longer than at the last pass: those that would
    /// have delayed the next one may start now.
    pub(crate) fn review_late_ends(&mut self, now: Time) {
        if self.next_late_end().is_some_and(|at| at <= now) {
            (self.passes.wanted, self.passes.freed) = (true, Freed::Until(Time::NEVER));
        }
    }

    /// Plans a pass, no wider than the changes since the last one require. Returns the plan and what launchers are to
    /// be told.
    ///
    /// Under the policy `slowdown` all jobs that can start have been started before; only launchers need a plan.
    pub(crate) fn pass(&mut self, now: Time) -> (Plan, Vec<(JobId, ViewChange)>) {
        let is_watched = self.streams.is_watched();
        self.walks.begin(self.state.n_queued(), self.state.depth(), is_watched);
        let policy = self.state.settings().policy;
        let found = if is_watched {
            self.streams.pass(&self.state, now)
        } else if policy == Policy::Slowdown {
            self.streams.unseen_pass();
            (Plan::of_nobody(now), Vec::new())
        } else {
            self.streams.unseen_pass();
            let scope = match (policy, self.passes.freed) {
                (Policy::Conservative, Freed::Nothing | Freed::AsPromised) | (Policy::Easy, Freed::Nothing) => {
                    Scope::Arrivals
                }
                (Policy::Conservative, Freed::Until(Time::NEVER)) => Scope::Starts,
                (Policy::Conservative, Freed::Until(until)) => Scope::Freed { until, nodes: &self.passes.left },
                (Policy::Easy, Freed::AsPromised | Freed::Until(_)) => Scope::Starts,
                (
                    Policy::Views | Policy::Fcfs | Policy::Slowdown,
                    Freed::Nothing | Freed::AsPromised | Freed::Until(_),
                ) => Scope::Starts,
            };
            let plan = plan::plan_on(&self.state, now, scope, &mut self.kept);
            #[cfg(test)]
            crate::tests::assert_same_plan(&self.state, &plan, &plan::plan(&self.state, now, scope));
            (plan, Vec::new())
        };
        self.passes = Passes { last: Some(now), count: self.passes.count + 1, ..Passes::default() };
        found
    }

    #[cfg(test)]
    pub(crate) fn keeps_plan(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Adapts the depth to the duration of the last walk over the queue and its consequences.
    pub(crate) fn walk_took(&mut self, step: &mut Step, took: Duration) {
        let depth = self.state.chosen_depth();
        if let Some(next) = self.walks.took(depth, took, self.state.settings().pass_time) {
            self.record(step, Fact::DepthChosen { depth: next });
            // Jobs beyond the old depth were not considered.
            self.passes.wanted |= depth < Some(next);
        }
    }

    /// Returns the first view that a launcher is sent.
    pub(crate) fn first_view(&mut self, now: Time, job: JobId) -> Option<ViewChange> {
        self.streams.first(&self.state, now, job)
    }

    /// Requests a pass once an application can be asked: there may be an offer for it.
    pub(crate) fn want_pass_for(&mut self, job: JobId) {
        let entry = self.state.jobs().get(&job).filter(|entry| entry.spec.malleable.is_some());
        let started = entry.and_then(|entry| entry.started());
        self.passes.wanted |= started.is_some_and(|started| started.is_settled());
    }

    /// Reviews the job's negotiations at the end of the event, if it has any.
    pub(crate) fn review_later(&mut self, job: JobId) {
        if self.state.jobs().get(&job).is_some_and(|entry| entry.negotiations.is_some()) {
            self.to_review.insert(job);
        }
    }

    /// Notes changes of the state that may concern negotiations; they are handled at the end of the event.
    fn note_changes_for_negotiations(&mut self, fact: &Fact) {
        if let Fact::ShareRunning { job, .. } | Fact::ShareEnded { job, .. } = fact {
            self.review_later(*job);
        }
        if let Fact::ShareRunning { job, .. } = fact {
            self.want_pass_for(*job);
            let started = self.state.jobs().get(job).and_then(|entry| entry.started());
            if started.is_some_and(|started| started.generation() > 1) {
                // A node that has arrived is ready.
                self.holdings_changed.insert(*job);
            }
        }
        if let Fact::CourseSet { job, .. }
        | Fact::StageEntered { job, .. }
        | Fact::NodesFreed { job, .. }
        | Fact::NodesDeparting { job, .. }
        | Fact::NodesChosen { job, .. }
        | Fact::PromiseWarned { job, .. }
        | Fact::PromisedNodesLost { job, .. }
        | Fact::CoresSet { job, .. }
        | Fact::GrantsSet { job, .. }
        | Fact::LicencesSet { job, .. }
        | Fact::CoresInForce { job, .. }
        | Fact::CpusShared { job, .. }
        | Fact::NodesStay { job } = fact
        {
            self.review_later(*job);
            self.holdings_changed.insert(*job);
        }
        if let Fact::NodeLinkChanged { node, .. }
        | Fact::NodeAdminChanged { node, .. }
        | Fact::NodeFenced { node, .. }
        | Fact::NodeRemoved { node } = fact
        {
            let holders: Vec<JobId> =
                self.state.nodes().get(node).map(|entry| entry.holders.iter().copied().collect()).unwrap_or_default();
            holders.into_iter().for_each(|job| self.review_later(job));
        }
    }
}
