//! What an external launcher and the server say to each other (001, §4.2 and §5.1).
//!
//! A launcher serves one application. It subscribes and is told its *view*; it sends requests, each under a tag of
//! its own, and sends another when its view changes; with the start it gets host names; it lets the work be started
//! there, or uses the nodes by its own means; and it says when it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::job::Constraint;
use rms_model::{
    ClusterId, Devices, Execution, JobId, Labels, Malleable, Mebibytes, Outcome, Profile, Request, Run, Slice, Span,
    Time,
};
use serde::{Deserialize, Serialize};

/// What a launcher says. Every call but the first names the application that the caller speaks for; only its owner may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherCall {
    /// Brings an application into the system. Answered with [`LauncherAnswer::Subscribed`]; the first
    /// [`Notice::Changed`], with every cluster that the filter lets through, follows at once.
    Subscribe(Box<Subscription>),
    /// Speaks for an application again after the connection was lost. Answered and followed as a subscription is, and by
    /// [`Notice::Started`] if the application has started meanwhile. An older connection for it is told
    /// [`Notice::Replaced`].
    Attach { job: JobId },
    /// 001: listClustersInfo, and the information between clusters.
    Clusters { job: JobId },
    /// 001: request, or re-request. Takes the place of the request before it.
    Request { job: JobId, wish: LauncherRequest },
    /// Starts processes on the granted nodes. Once for each start; the application is done when they have ended.
    Launch { job: JobId, tag: Tag, launch: Box<Launchable> },
    /// The start is taken note of; the launcher uses the nodes by its own means, and will say when it is done.
    Accept { job: JobId, tag: Tag },
    /// 001: done. Processes that were launched and still run are ended. Before a start it withdraws the application.
    Finish { job: JobId, tag: Tag, code: i32 },
}

impl LauncherCall {
    /// The application that the caller says it speaks for.
    pub fn application(&self) -> Option<JobId> {
        match self {
            LauncherCall::Subscribe(_) => None,
            LauncherCall::Attach { job }
            | LauncherCall::Clusters { job }
            | LauncherCall::Request { job, .. }
            | LauncherCall::Launch { job, .. }
            | LauncherCall::Accept { job, .. }
            | LauncherCall::Finish { job, .. } => Some(*job),
        }
    }
}

/// 001: RTag. Chosen by the launcher, rising from request to request of an application; the server says with it which
/// request was granted, and a launcher proves with it that it speaks of that start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag(pub u64);

/// An application as a launcher brings it (001, §4.2: subscribe).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    #[serde(default)]
    pub labels: Labels,
    /// Which clusters to see, and what their nodes must have.
    pub filter: Filter,
    /// The higher, the sooner; only an admin may go above 0.
    pub priority: i32,
    /// What is launched changes its size while it runs, within these limits (002), unless the launch says otherwise. The
    /// processes negotiate, or are told by a signal or a hook.
    pub malleable: Option<Malleable>,
}

impl Subscription {
    /// An application that sees every cluster, of ordinary priority.
    pub fn named(name: impl Into<String>) -> Subscription {
        Subscription { labels: Labels::named(name), filter: Filter::default(), priority: 0, malleable: None }
    }
}

/// 001: FILTER. Which clusters a launcher wants to see; only nodes that meet the constraint are counted in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// By name; empty means any.
    #[serde(deserialize_with = "rms_model::checked::names")]
    pub clusters: BTreeSet<String>,
    /// A cluster with fewer nodes that meet the constraint is not shown.
    pub least_nodes: u32,
    /// What every node must have: memory, CPUs, features, cores, packages, speed, scratch space, devices.
    pub constraint: Constraint,
    /// A cluster with less memory over all nodes that meet the constraint is not shown.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub total_memory: Mebibytes,
    /// Beside whole nodes, it wants to see how many nodes have room for each of these; at most [`MAX_SLICES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// Profiles of more slices than that would cost more than they tell.
pub const MAX_SLICES: usize = 8;

/// 001: REQUEST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherRequest {
    pub tag: Tag,
    /// The version of the view that the launcher had seen when it chose: the time since it was sent is its adaptation
    /// delay.
    pub seen: u64,
    pub request: Request,
    /// What it wants of each node, where jobs share nodes; a node that is given away whole must have as much. Without
    /// cores: whole nodes.
    #[serde(default, skip_serializing_if = "Slice::is_none")]
    pub slice: Slice,
}

impl LauncherRequest {
    /// Whole nodes.
    pub fn of_nodes(tag: Tag, seen: u64, request: Request) -> LauncherRequest {
        LauncherRequest { tag, seen, request, slice: Slice::default() }
    }
}

/// What to start on the granted nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launchable {
    pub execution: Execution,
    /// Over all nodes; absent: one on each.
    pub n_tasks: Option<u32>,
    pub cpus_per_task: u32,
    /// It changes its size while it runs, within these limits (002). Absent: as was subscribed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malleable: Option<Malleable>,
}

impl Launchable {
    /// One task on each node, which share its CPUs, and nothing that changes.
    pub fn of(execution: impl Into<Execution>) -> Launchable {
        Launchable { execution: execution.into(), n_tasks: None, cpus_per_task: 0, malleable: None }
    }
}

/// The answer to a launcher's call that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherAnswer {
    Subscribed {
        job: JobId,
        /// The application's state word is told by [`Notice`]s; this is when the server expects a first request at the
        /// latest.
        request_until: Option<Time>,
    },
    Clusters(ClusterInfos),
    /// The request, launch, acceptance or end is durable.
    Done,
}

/// What there is to know of clusters (CINFO) and of what lies between them (ICINFO).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfos {
    pub clusters: Vec<ClusterInfo>,
    pub links: Vec<ClusterLink>,
}

/// 001: CINFO, counting only nodes that meet the filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub cluster: ClusterId,
    pub name: String,
    /// Nodes that exist.
    pub nodes: u32,
    /// The least that each of its nodes has.
    pub cpus: u32,
    pub memory: Mebibytes,
    /// What all of its nodes have.
    pub features: BTreeSet<String>,
    /// The least that each of its nodes has: packages, physical cores, thousandths of the speed of the reference node,
    /// and space for scratch files. 0 where the server is older and says nothing.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub sockets: u32,
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub cores: u32,
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub speed_milli: u32,
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub scratch: Mebibytes,
    /// Over all of its nodes.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub total_memory: Mebibytes,
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Jobs share its nodes: a request may ask for a slice of each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// 001: ICINFO, as the admin has set it; the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLink {
    /// The smaller id first.
    pub between: (ClusterId, ClusterId),
    pub latency_us: u32,
    /// Megabits in a second; 0 is unknown.
    pub bandwidth_mbit: u32,
}

/// What a launcher is told without asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// 001: changeNotify.
    Changed(ViewChange),
    /// 001: startNotify.
    Started(Grant),
    /// The application has left: it is done, or it was ended by a user, an admin or for a violation.
    Ended { outcome: Outcome },
    /// Another connection speaks for the application now.
    Replaced,
}

/// What has changed in a launcher's view since it was last told: the dirty clusters alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewChange {
    /// Rises with each change of this launcher's view.
    pub version: u64,
    pub at: Time,
    pub clusters: Vec<ClusterChange>,
}

/// 001: CHANGE. Those of one cluster follow one another, whole nodes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterChange {
    pub cluster: ClusterId,
    /// 0: whole nodes; from 1 on, the slices of the filter in their order. A node is busy for a slice while it has no room
    /// for it, and counts in the capacity if it is large enough.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub shape: u32,
    /// The information on the cluster, or between it and others, is another: to be asked for.
    pub info: bool,
    /// Nodes that may be used now; the occupation counts among these. 0: the cluster is no longer to be seen.
    pub capacity: u32,
    /// The new occupation from `at` on; absent if it has not changed. Shared by all launchers that see the same.
    pub occupied: Option<Arc<Profile>>,
}

/// 001: startNotify, with the nodes (RIDs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which request was granted.
    pub tag: Tag,
    pub run: Run,
    pub at: Time,
    pub request: Request,
    /// The application is ended then.
    pub until: Time,
    /// The launcher must launch or accept before.
    pub answer_until: Time,
    /// In the order of the request's clusters.
    pub nodes: Vec<GrantedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedNode {
    pub name: String,
    pub cluster: ClusterId,
    pub address: String,
    /// Logical CPUs that the application has there.
    pub cpus: u32,
    /// Absent: it has all of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<rms_model::Grant>,
}

/// The adaptation delays that launchers have shown: from the change of a view to the request that answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptationDelays {
    pub count: u64,
    pub total: Span,
    pub longest: Span,
    /// How many were at most so long: upper bounds in the order of [`ADAPTATION_BOUNDS`], and the rest.
    pub buckets: Vec<u64>,
}

impl AdaptationDelays {
    /// One more delay.
    pub fn add(&mut self, delay: Span) {
        self.count += 1;
        self.total = self.total + delay;
        self.longest = self.longest.max(delay);
        self.buckets.resize(ADAPTATION_BOUNDS.len() + 1, 0);
        let idx = ADAPTATION_BOUNDS.partition_point(|bound| *bound < delay.as_millis());
        self.buckets[idx] += 1;
    }
}

/// Upper bounds of the buckets of [`AdaptationDelays`], in milliseconds.
pub const ADAPTATION_BOUNDS: [i64; 9] = [10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000];

/// Profiles by cluster as a launcher holds them: every [`ViewChange`] is laid over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherView {
    pub version: u64,
    pub at: Time,
    pub capacity: BTreeMap<ClusterId, u32>,
    pub occupied: BTreeMap<ClusterId, Arc<Profile>>,
    /// The same for the slices of the filter, by their number from 1 on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<u32, SliceView>,
}

/// Nodes that are large enough for a slice, and how many of them have no room for it when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceView {
    pub capacity: BTreeMap<ClusterId, u32>,
    pub occupied: BTreeMap<ClusterId, Arc<Profile>>,
}

impl LauncherView {
    /// Lays a change over what was known. Says whether the information on any cluster is to be asked for anew.
    pub fn apply(&mut self, change: ViewChange) -> bool {
        let mut asks_info = false;
        self.version = change.version;
        self.at = change.at;
        for ClusterChange { cluster, shape, info, capacity, occupied } in change.clusters {
            asks_info |= info;
            if capacity == 0 && occupied.is_none() && info {
                self.capacity.remove(&cluster);
                self.occupied.remove(&cluster);
                for slice in self.slices.values_mut() {
                    slice.capacity.remove(&cluster);
                    slice.occupied.remove(&cluster);
                }
                self.slices.retain(|_, slice| !slice.capacity.is_empty());
                continue;
            }
            let (of_capacity, of_occupied) = match shape {
                0 => (&mut self.capacity, &mut self.occupied),
                _ => {
                    let slice = self.slices.entry(shape).or_default();
                    (&mut slice.capacity, &mut slice.occupied)
                }
            };
            of_capacity.insert(cluster, capacity);
            if let Some(occupied) = occupied {
                of_occupied.insert(cluster, occupied);
            }
        }
        asks_info
    }
}
