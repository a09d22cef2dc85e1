//! The plan that readers are shown: one for all of them, kept for a while, so that who reads makes nobody else wait.
//!
//! What a reader is told of a job's state is always true now; when the job would start is as of that plan. Of a job that
//! has changed since, it says nothing, and what has started, ended or gone is not asked of it.

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
    /// Where each application is among the placements, but those that have changed since.
    places: BTreeMap<JobId, usize>,
    /// Nothing has changed since.
    pub(crate) is_current: bool,
    /// What holds each cluster, once somebody has asked for that.
    pub(crate) layers: Option<Arc<Vec<ClusterView>>>,
}

/// Up to so many jobs, waiting and running, a plan takes no longer than the rest of an answer: each reader gets a new
/// one.
const UNCACHED_JOBS: usize = 100;
/// How long a plan is cached for each [`JOBS_PER_CACHE_TIME`]:
const CACHE_TIME: Span = Span::from_secs(1);
/// with more jobs proportionally longer, so that readers take a bounded share of the time.
const JOBS_PER_CACHE_TIME: usize = 10_000;

impl Published {
    pub(crate) fn new(plan: Arc<Plan>) -> Published {
        let places = plan.placements.iter().enumerate().map(|(idx, placement)| (placement.job, idx)).collect();
        Published { plan, places, is_current: true, layers: None }
    }

    /// Returns whether the plan is still fresh enough to answer by.
    pub(crate) fn is_fresh(&self, state: &State, now: Time) -> bool {
        let n_jobs = self.plan.placements.len() + state.n_holding();
        if n_jobs <= UNCACHED_JOBS {
            return self.is_current && self.plan.now == now;
        }
        let kept = CACHE_TIME.as_millis() * n_jobs.div_ceil(JOBS_PER_CACHE_TIME) as i64;
        now < self.plan.now + Span::from_millis(kept)
    }

    /// A fact passes. False if nothing of the plan can be shown any more.
    pub(crate) fn survives(&mut self, fact: &Fact) -> bool {
        self.is_current = false;
        match fact {
            // They turn everything over, or what the plan names is there no more; and they are rare.
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
            // Of waiting jobs they change nothing that was planned with; what they change else is told as it is now.
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

    /// Where a job that waits is among the placements; `None` if it was not looked at as it is now.
    pub(crate) fn place(&self, job: JobId, entry: &Job) -> Option<usize> {
        self.places.get(&job).copied().filter(|_| entry.is_queued())
    }

    /// What the plan says of a job that waits.
    pub(crate) fn placed(&self, job: JobId, entry: &Job) -> Option<&Placed> {
        self.place(job, entry).map(|idx| &self.plan.placements[idx].outcome)
    }

    /// When a job that waits would start; that it should have started by now does not make it the past.
    pub(crate) fn estimate(&self, job: JobId, entry: &Job, now: Time) -> Option<Time> {
        self.placed(job, entry)?.estimate(self.plan.now).map(|at| at.max(now))
    }
}
