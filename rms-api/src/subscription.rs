//! Messages between an external launcher and the server (001, §4.2 and §5.1).
//!
//! A launcher serves one application. It subscribes and receives its *view*. It sends requests, each with a tag of its
//! own, and sends another one when its view changes. With the start it receives the granted nodes; it has the work
//! started there, or uses the nodes by its own means; and it reports when it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::job::Constraint;
use rms_model::{
    ClusterId, Devices, Execution, JobId, Labels, Malleable, Mebibytes, Outcome, Profile, Request, Run, Slice, Span,
    Time,
};
use serde::{Deserialize, Serialize};

/// Calls of a launcher. Every call but the first names the application that the caller acts for; only its owner may act
/// for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherCall {
    /// Adds an application to the system. Answered with [`LauncherAnswer::Subscribed`]; the first [`Notice::Changed`],
    /// with every cluster that passes the filter, follows at once.
    Subscribe(Box<Subscription>),
    /// Acts for an application again after the connection was lost. Answered and followed as a subscription is, and by
    /// [`Notice::Started`] if the application has started meanwhile. An older connection for it receives
    /// [`Notice::Replaced`].
    Attach { job: JobId },
    /// 001: listClustersInfo, and the information between clusters.
    Clusters { job: JobId },
    /// 001: request, or re-request. Replaces the previous request.
    Request { job: JobId, wish: LauncherRequest },
    /// Starts processes on the granted nodes. Allowed once for each start; the application ends when they have ended.
    Launch { job: JobId, tag: Tag, launch: Box<Launchable> },
    /// Confirms the start; the launcher uses the nodes by its own means, and will report when it is done.
    Accept { job: JobId, tag: Tag },
    /// 001: done, with an exit code from 0 to 255. Launched processes that still run are ended. Before a start it withdraws the
    /// application: with code 0 that counts as cancelled by its owner, else as failed with the code.
    Finish { job: JobId, tag: Tag, code: i32 },
}

impl LauncherCall {
    /// Returns the application that the caller claims to act for.
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

/// 001: RTag. Chosen by the launcher; it increases with each request of an application. It tells the launcher which
/// request was granted, and proves in the launcher's calls that they refer to that start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag(pub u64);

/// An application as submitted by a launcher (001, §4.2: subscribe).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// The name must not be empty.
    #[serde(default)]
    pub labels: Labels,
    /// Which clusters to show, and what their nodes must have.
    pub filter: Filter,
    /// Applications with higher values come first; only an admin may go above 0.
    pub priority: i32,
    /// The launched work changes its size while it runs, within these limits (002), unless the launch specifies others.
    /// The processes negotiate, or are notified by a signal or a hook.
    pub malleable: Option<Malleable>,
}

impl Subscription {
    /// Creates a subscription that sees every cluster, with ordinary priority.
    pub fn named(name: impl Into<String>) -> Subscription {
        Subscription { labels: Labels::named(name), filter: Filter::default(), priority: 0, malleable: None }
    }
}

/// 001: FILTER. The clusters that a launcher wants to see; only nodes that meet the constraint are counted in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Clusters by name; empty means any.
    #[serde(deserialize_with = "rms_model::checked::names")]
    pub clusters: BTreeSet<String>,
    /// A cluster with fewer nodes that meet the constraint is not shown. A subscription that no cluster would be
    /// shown to is refused; if that becomes so later, its view is empty.
    pub least_nodes: u32,
    /// What every node must have: memory, CPUs, features, cores, packages, speed, scratch space, devices.
    pub constraint: Constraint,
    /// A cluster with less memory over all nodes that meet the constraint is not shown.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub total_memory: Mebibytes,
    /// Slices for which it wants to see how many nodes have room, in addition to whole nodes; at most [`MAX_SLICES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// The most slices of a filter: the profiles of more would cost more than they are worth.
pub const MAX_SLICES: usize = 8;

/// 001: REQUEST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherRequest {
    pub tag: Tag,
    /// The version of the view on which the choice is based. The time since that view was sent is the launcher's
    /// adaptation delay.
    pub seen: u64,
    pub request: Request,
    /// What it requests of each node, if jobs share nodes; a node that is allocated whole must have as much. Without
    /// cores: whole nodes, with the memory and the devices.
    #[serde(default, skip_serializing_if = "Slice::is_default")]
    pub slice: Slice,
}

impl LauncherRequest {
    /// Creates a request for whole nodes.
    pub fn of_nodes(tag: Tag, seen: u64, request: Request) -> LauncherRequest {
        LauncherRequest { tag, seen, request, slice: Slice::default() }
    }
}

/// The work to start on the granted nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launchable {
    pub execution: Execution,
    /// Over all nodes; absent for one task on each.
    pub n_tasks: Option<u32>,
    pub cpus_per_task: u32,
    /// The work changes its size while it runs, within these limits (002). Absent for those of the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malleable: Option<Malleable>,
}

impl Launchable {
    /// Creates a launch of one task on each node, which uses its CPUs, without changes of size.
    pub fn of(execution: impl Into<Execution>) -> Launchable {
        Launchable { execution: execution.into(), n_tasks: None, cpus_per_task: 0, malleable: None }
    }
}

/// The answer to a launcher's call that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherAnswer {
    Subscribed {
        job: JobId,
        /// The latest time at which the server expects the first request. The state of the application follows in
        /// [`Notice`]s.
        request_until: Option<Time>,
        /// The server's clock; older servers do not say it.
        #[serde(default)]
        now: Option<Time>,
    },
    Clusters(ClusterInfos),
    /// The request, launch, acceptance or end is durable.
    Done,
}

/// Information on clusters (CINFO) and on the connections between them (ICINFO).
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
    /// The number of existing nodes.
    pub nodes: u32,
    /// The least number of CPUs of any of its nodes.
    pub cpus: u32,
    pub memory: Mebibytes,
    /// The features that all of its nodes have.
    pub features: BTreeSet<String>,
    /// The minimum over its nodes: packages, physical cores, thousandths of the speed of the reference node, and space
    /// for scratch files. 0 from an older server.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub sockets: u32,
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub cores: u32,
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub speed_milli: u32,
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub scratch: Mebibytes,
    /// The total over all of its nodes.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub total_memory: Mebibytes,
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Jobs share its nodes: a request may ask for a slice of each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// 001: ICINFO, as set by an admin; the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLink {
    /// The smaller id first.
    pub between: (ClusterId, ClusterId),
    pub latency_us: u32,
    /// Megabits per second; 0 is unknown.
    pub bandwidth_mbit: u32,
}

/// Notices to a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// 001: changeNotify.
    Changed(ViewChange),
    /// 001: startNotify.
    Started(Grant),
    /// The application has ended: it is done, or a user, an admin or a violation ended it.
    Ended { outcome: Outcome },
    /// Another connection acts for the application now.
    Replaced,
}

/// What has changed in a launcher's view since the last notice: only the clusters that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewChange {
    /// Increases with each change of this launcher's view.
    pub version: u64,
    pub at: Time,
    pub clusters: Vec<ClusterChange>,
}

/// 001: CHANGE. The changes of one cluster are consecutive, whole nodes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterChange {
    pub cluster: ClusterId,
    /// 0 for whole nodes; from 1 on, the slices of the filter in their order. A node is busy for a slice while it has
    /// no room for it, and counts in the capacity if it is large enough.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub shape: u32,
    /// The information on the cluster, or on its connections, has changed and should be requested.
    pub info: bool,
    /// The number of usable nodes, to which the occupation refers. 0 if the cluster is no longer shown.
    pub capacity: u32,
    /// The new occupation from `at` on; absent if it has not changed. Shared by all launchers that see the same.
    pub occupied: Option<Arc<Profile>>,
}

/// 001: startNotify, with the nodes (RIDs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The tag of the granted request.
    pub tag: Tag,
    pub run: Run,
    pub at: Time,
    pub request: Request,
    /// The time at which the application is ended.
    pub until: Time,
    /// The time before which the launcher must launch or accept.
    pub answer_until: Time,
    /// Ordered by the request's clusters.
    pub nodes: Vec<GrantedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedNode {
    pub name: String,
    pub cluster: ClusterId,
    pub address: String,
    /// The number of logical CPUs that the application has there.
    pub cpus: u32,
    /// Its part of the node; absent for the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<rms_model::Grant>,
}

/// The adaptation delays of launchers: from the change of a view to the request that answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptationDelays {
    pub count: u64,
    pub total: Span,
    pub longest: Span,
    /// The numbers of delays up to each upper bound, in the order of [`ADAPTATION_BOUNDS`], and of the longer ones.
    pub buckets: Vec<u64>,
}

impl AdaptationDelays {
    /// Adds a delay.
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

/// The profiles by cluster as a launcher holds them; each [`ViewChange`] is applied to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherView {
    pub version: u64,
    pub at: Time,
    pub capacity: BTreeMap<ClusterId, u32>,
    pub occupied: BTreeMap<ClusterId, Arc<Profile>>,
    /// The same for the slices of the filter, by their numbers from 1 on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<u32, SliceView>,
}

/// Nodes that are large enough for a slice, and how many of them have no room for it over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceView {
    pub capacity: BTreeMap<ClusterId, u32>,
    pub occupied: BTreeMap<ClusterId, Arc<Profile>>,
}

impl LauncherView {
    /// Applies a change. Returns whether the information on any cluster should be requested again.
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
