//! The plan shown to readers: shared by all of them and cached for a while, so that queries delay nothing else.
//!
//! Readers always see a job's present state; its estimated start is as of the plan. The plan has no estimate for a job
//! that has changed since, and is not consulted for jobs that have started or ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::answer::ClusterView;
use rms_model::{JobId, Span, Time};

use crate::plan::{Placed, Plan};
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::job::Job;

#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) plan: Arc<Plan>,
    /// The index of each application in the placements, except for those that have changed since.
    places: BTreeMap<JobId, usize>,
    /// Whether no fact was recorded since the plan was made.
    pub(crate) is_current: bool,
    /// The holders of each cluster, computed when first queried.
    pub(crate) layers: Option<Arc<Vec<ClusterView>>>,
}

/// With at most this many jobs, waiting and running, a plan takes no longer than the rest of an answer: it is not
/// cached.
const UNCACHED_JOBS: usize = 100;
/// How long a plan is cached for each [`JOBS_PER_CACHE_TIME`].
const CACHE_TIME: Span = Span::from_secs(1);
/// The cache time is proportional to the number of jobs, so that queries take a bounded share of the time.
const JOBS_PER_CACHE_TIME: usize = 10_000;

impl Published {
    pub(crate) fn new(plan: Arc<Plan>) -> Published {
        let places = plan.placements.iter().enumerate().map(|(idx, placement)| (placement.job, idx)).collect();
        Published { plan, places, is_current: true, layers: None }
    }

    /// Returns whether the plan is recent enough to answer from.
    pub(crate) fn is_fresh(&self, state: &State, now: Time) -> bool {
        let n_jobs = self.plan.placements.len() + state.n_holding();
        if n_jobs <= UNCACHED_JOBS {
            return self.is_current && self.plan.now == now;
        }
        let kept = CACHE_TIME.as_millis() * n_jobs.div_ceil(JOBS_PER_CACHE_TIME) as i64;
        now < self.plan.now + Span::from_millis(kept)
    }

    /// Handles a recorded fact. Returns false if the plan may not be shown any more.
    pub(crate) fn survives(&mut self, fact: &Fact) -> bool {
        self.is_current = false;
        match fact {
            // They change the whole plan, or remove what it names; and they are rare.
            Fact::SettingChanged { .. }
            | Fact::NodeAdminChanged { .. }
            | Fact::NodeRemoved { .. }
            | Fact::ClusterRemoved { .. } => false,
            Fact::JobHeld { job, .. }
            | Fact::JobPriorityChanged { job, .. }
            | Fact::JobUpdated { job, .. }
            | Fact::ProfileChanged { job, .. }
            | Fact::LauncherRequested { job, .. }
            | Fact::JobStarted { job, .. } => {
                self.places.remove(job);
                true
            }
            // They change nothing that waiting jobs were planned with; everything else is shown as it is now.
            Fact::ClusterAdded { .. }
            | Fact::DepthChosen { .. }
            | Fact::NodeJoined { .. }
            | Fact::NodeDescribed { .. }
            | Fact::NodeLinkChanged { .. }
            | Fact::JobSubmitted { .. }
            | Fact::JobReleased { .. }
            | Fact::RequestSent { .. }
            | Fact::JobsQueued { .. }
            | Fact::ShareRunning { .. }
            | Fact::ShareEnded { .. }
            | Fact::JobEnding { .. }
            | Fact::JobDone { .. }
            | Fact::GhostExpired { .. }
            | Fact::JobRequeued { .. }
            | Fact::TokenCreated { .. }
            | Fact::TokenUsed { .. }
            | Fact::TokenRevoked { .. }
            | Fact::TokenForgotten { .. }
            | Fact::CertificateIssued { .. }
            | Fact::CertificatesRevoked { .. }
            | Fact::CertificateForgotten { .. }
            | Fact::NodeFenced { .. }
            | Fact::NodeGenerationRaised { .. }
            | Fact::StartsPromised { .. }
            | Fact::LauncherSubscribed { .. }
            | Fact::LauncherLinkChanged { .. }
            | Fact::LauncherLaunched { .. }
            | Fact::LauncherAccepted { .. }
            | Fact::ClusterLinkSet { .. }
            | Fact::GhostParted { .. }
            | Fact::GhostPartExpired { .. }
            | Fact::CourseSet { .. }
            | Fact::StageEntered { .. }
            | Fact::NodesFreed { .. }
            | Fact::NodesChosen { .. }
            | Fact::DialogueChanged { .. }
            | Fact::NodesHeld { .. }
            | Fact::NodesDeparting { .. }
            | Fact::NodesStay { .. }
            | Fact::LimitsDeclared { .. }
            | Fact::PromiseWarned { .. }
            | Fact::PromisedNodesLost { .. }
            | Fact::LoanCalled { .. }
            | Fact::LoanEnded { .. }
            | Fact::CoresSet { .. }
            | Fact::GrantsSet { .. }
            | Fact::LicencesSet { .. }
            | Fact::CoresInForce { .. }
            | Fact::CpusShared { .. }
            | Fact::CpusInForce { .. }
            | Fact::NodesReleased { .. }
            | Fact::Audited { .. }
            | Fact::NodesGhosted { .. }
            | Fact::NodeGhostsExpired { .. }
            | Fact::LossDeclared { .. } => true,
        }
    }

    /// Returns the index of a waiting job in the placements; `None` if the plan does not have it as it is now.
    pub(crate) fn place(&self, job: JobId, entry: &Job) -> Option<usize> {
        self.places.get(&job).copied().filter(|_| entry.is_queued())
    }

    /// Returns what the plan decided for a waiting job.
    pub(crate) fn placed(&self, job: JobId, entry: &Job) -> Option<&Placed> {
        self.place(job, entry).map(|idx| &self.plan.placements[idx].outcome)
    }

    /// Returns when a waiting job would start: not before now, as the plan may be older than its estimate.
    pub(crate) fn estimate(&self, job: JobId, entry: &Job, now: Time) -> Option<Time> {
        self.placed(job, entry)?.estimate(self.plan.now).map(|at| at.max(now))
    }
}
