//! Reads the state and finds which jobs start now and when the others would start; changes nothing.
//!
//! Implements the pass of 001, Fig. 5 (FCFS with repeated backfilling): started jobs and ghosts make the first *last
//! view*; then each queued application in order gets that view, its launcher's request is placed in the first hole, and
//! added to the view for the next application.

mod alike;
mod applicant;
mod around;
mod arrivals;
pub mod compact;
mod digest;
mod due;
pub(crate) mod evolve;
mod explain;
pub mod fit;
mod free;
mod freed;
mod frontier;
mod grid;
mod grids;
mod kept;
mod lacking;
mod launcher;
mod ledger;
mod licences;
mod mates;
pub mod notify;
mod outline;
mod overdue;
pub(crate) mod parts;
mod pass;
mod policy;
mod promised;
mod row;
mod runs;
mod shared;
mod slices;
mod slots;
pub mod slowdown;
mod spares;
mod subset;
mod taken;
pub mod timeline;
pub mod views;
mod watched;
mod window;

use std::collections::BTreeMap;

use rms_api::answer::LicenceShortage;
use rms_model::{ClusterId, JobId, NodeId, Request, Slice, Time, View, profile};

pub(crate) use around::{
    Gain, Loss, delayed, n_beside_stages, plan_after, plan_around, plan_if_kept, plan_if_longer, room, room_after,
    room_beside, spare, spare_licences, starts_after,
};
pub(crate) use explain::{QueuePosition, Waiting, outcome_reason, reason, short_reason};
pub(crate) use free::{free_for, has_room_to_grow, is_free_for, slices_to_grow};
pub(crate) use kept::KeptPlan;
pub(crate) use ledger::base_blocks;
pub(crate) use mates::{GuestStart, LentCores, SharingRound};
pub(crate) use overdue::Overdue;
pub(crate) use promised::first_late_stage;
pub(crate) use row::row_beside;

use crate::state::{IdSet, State};

/// How much of a pass is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Only what starts now. The pass ends early once no node is free: nothing later in the order could start,
    /// and nothing earlier depends on it.
    Starts,
    /// As [`Scope::Starts`], if all that was freed since the last pass is before `until`; in clusters that are shared
    /// by cores, on `nodes` only.
    Freed { until: Time, nodes: &'a IdSet },
    /// As [`Scope::Starts`], if nothing was freed since the last pass that could let a job start earlier than that pass
    /// found.
    Arrivals,
    /// An estimate for each application that is considered.
    Estimates,
    /// Estimates, and each application's view.
    Views,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub now: Time,
    /// In queue order, as far as the scope went.
    pub placements: Vec<Placement>,
    /// Started jobs and ghosts: the last view before the first application. Empty if only starts were requested.
    pub base: View,
    /// The last view after the last application. Empty if only starts were requested.
    pub last_view: View,
    /// As `base` and `last_view`, the cores of clusters that are shared by cores.
    pub(crate) base_cores: View,
    pub(crate) last_cores: View,
    /// The nodes of clusters that are shared by cores, after the last application.
    pub(crate) shared: SharedNodes,
}

/// What a plan leaves of whole nodes in clusters that are shared by cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedNodes {
    /// For each node that no job holds now, the time until which none will.
    pub(crate) clear_until: BTreeMap<ClusterId, Vec<Time>>,
    /// When the first waiting job gets a part of a node.
    pub(crate) next_use: BTreeMap<NodeId, Time>,
}

/// Where one application was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub job: JobId,
    pub outcome: Placed,
    /// The view of its launcher; only with [`Scope::Views`].
    pub view: Option<View>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The job starts now, on these nodes; node 0 first.
    Now {
        request: Request,
        nodes: Vec<NodeId>,
        /// What the job takes of the nodes that it shares; the others it has exclusively.
        slices: BTreeMap<NodeId, Slice>,
        /// The nodes of all stages of an evolving application on a cluster that is shared by cores. Each stage uses the
        /// first of them.
        row: Vec<NodeId>,
        /// The stages of an evolving application; the request has the nodes of the start.
        fit: Option<Box<fit::Fit>>,
    },
    /// The job would start at `at` if nothing changed. `blocked` is the last step that prevents an earlier start, and
    /// `option_idx` says which of the job's sizes the request is.
    Later {
        request: Request,
        option_idx: u32,
        at: Time,
        blocked: Option<Blocked>,
        fit: Option<Box<fit::Fit>>,
        /// Its nodes in clusters that are shared by cores, where a placement names them, and its contiguous nodes.
        nodes: Vec<NodeId>,
    },
    /// None of its sizes fits the nodes that are usable today.
    Never { shortage: Shortage },
}

/// The step of a cluster's profile that blocks an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub cluster: ClusterId,
    pub step: profile::Step,
    pub until: Time,
    pub wanted: u32,
    pub capacity: i64,
    /// The licence that blocks it, if no nodes do.
    pub licence: Option<Box<LicenceShortage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub cluster: ClusterId,
    pub wanted: u32,
    pub usable: u32,
}

impl Scope<'_> {
    fn is_of_starts(self) -> bool {
        match self {
            Scope::Starts | Scope::Freed { .. } | Scope::Arrivals => true,
            Scope::Estimates | Scope::Views => false,
        }
    }
}

impl Plan {
    /// Returns a plan in which no job starts and that has nothing else.
    pub(crate) fn of_nobody(now: Time) -> Plan {
        Plan {
            now,
            placements: Vec::new(),
            base: View::new(),
            last_view: View::new(),
            base_cores: View::new(),
            last_cores: View::new(),
            shared: SharedNodes::default(),
        }
    }

    pub fn placement(&self, job: JobId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.job == job)
    }
}

impl Placed {
    /// Returns the estimated start (001, Fig. 5, step 4b).
    pub fn estimate(&self, now: Time) -> Option<Time> {
        match self {
            Placed::Now { .. } => Some(now),
            Placed::Later { at, .. } => Some(*at),
            Placed::Never { .. } => None,
        }
    }

    /// Returns the estimated start of a job that has to wait.
    pub(crate) fn later(&self) -> Option<Time> {
        match self {
            Placed::Later { at, .. } => Some(*at),
            Placed::Now { .. } | Placed::Never { .. } => None,
        }
    }

    /// Returns the placed stages of an evolving application.
    pub fn fit(&self) -> Option<&fit::Fit> {
        match self {
            Placed::Now { fit, .. } | Placed::Later { fit, .. } => fit.as_deref(),
            Placed::Never { .. } => None,
        }
    }

    pub fn request(&self) -> Option<&Request> {
        match self {
            Placed::Now { request, .. } | Placed::Later { request, .. } => Some(request),
            Placed::Never { .. } => None,
        }
    }
}

/// Computes steps 3 and 4 of 001, Fig. 5.
pub fn plan(state: &State, now: Time, scope: Scope<'_>) -> Plan {
    policy::run(state, now, scope, None, None)
}

/// As [`plan`], from what the last pass has kept; replaces that by what the next pass can use.
pub(crate) fn plan_on(state: &State, now: Time, scope: Scope<'_>, kept: &mut KeptPlan) -> Plan {
    policy::run(state, now, scope, None, Some(kept))
}

/// Plans the jobs that start now, up to the first waiting job that can start on cores lent by running jobs (004,
/// Listing 1).
pub(crate) fn plan_sharing(state: &State, now: Time, round: &mut SharingRound) -> (Plan, Option<GuestStart>) {
    policy::run_sharing(state, now, round)
}

/// Returns the plan as a queued application sees it: its last view is the view of that application. `None` if no pass
/// considers it.
pub(crate) fn plan_before(state: &State, now: Time, seer: JobId) -> Option<Plan> {
    policy::run_before(state, now, seer)
}

/// When an application would start that was not submitted.
pub(crate) struct WouldStart {
    pub chosen: Placed,
    /// The jobs that would lend it cores, if it would start at once on those; its request then has the time that it
    /// takes there.
    pub lent_by: Vec<JobId>,
    /// For each of its sizes, if there are several: when it would start if it were the only one, if ever.
    pub alone: Vec<(Request, Option<Time>)>,
    /// How many jobs of the queue are before it.
    pub n_before: usize,
}

/// Plans as [`plan`] does, with one more application that was not submitted: behind those of at least its priority.
pub(crate) fn plan_with(state: &State, now: Time, applicant: &rms_model::JobSpec) -> WouldStart {
    applicant::run_with(state, now, applicant)
}
