//! The state: clusters, nodes, jobs, settings and rights. Only facts change it.

mod apply;
mod check;
mod constraint;
mod cores;
pub mod course;
mod evolving;
pub mod fact;
mod free;
mod ghost;
mod grants;
mod holders;
mod index;
pub mod job;
mod jobs;
mod launcher;
mod lenders;
mod negotiate;
pub mod negotiations;
mod neighbours;
pub mod node;
mod nodes;
mod occupation;
mod pick;
mod replay;
mod shared;
pub mod sharing;
mod slowdowns;
mod stored;
mod usage;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use rms_model::job::Constraint;
use rms_model::settings::Depth;
use rms_model::token::{Issued, Token};
use rms_model::{ClusterId, Environment, Grant, Inventory, JobId, NodeId, Settings, Slice, Span, Time};
use serde::{Deserialize, Serialize};

pub use apply::ApplyError;
pub(crate) use apply::BumpedNodes;
pub use check::Violation;
pub use constraint::{Piece, part_of_cores};
pub(crate) use constraint::{
    chooses_nodes, constraint_of, cores_on_a_node, is_unconstrained, merge_slice, pieces, pieces_of, pieces_to_grow,
    takes_any_nodes, takes_parts, takes_whole_nodes, threads_of_core,
};
pub(crate) use evolving::tasks_per_node;
use free::FreeNodes;
pub use free::IdSet;
pub use holders::Holders;
pub use jobs::Jobs;
pub(crate) use launcher::spec_for_request;
pub(crate) use lenders::{Lender, LenderPart, cores_asked, cores_of_task, least_cores, place_of};
pub(crate) use neighbours::longest_run;
pub use nodes::Nodes;
pub(crate) use occupation::Occupation;
pub use replay::Replay;
pub(crate) use shared::memory_of;
pub(crate) use shared::{Line, Room as NodeRoom, Shared, SharedCluster};
pub(crate) use slowdowns::Slowdowns;
pub(crate) use usage::{Usage, environment_bytes, work_bytes};
pub use waiting::QueueKey;
pub(crate) use waiting::{Demand, PlainDemand, Room, SliceDemand, SliceRoom};

use rms_api::audit::AuditEntry;
use rms_api::subscription::ClusterLink;

use job::{Job, Launcher, Started};

/// Everything that survives a restart. Two servers that applied the same facts have equal states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub(crate) settings: Settings,
    /// The newest [`AUDIT_KEPT`] entries, and the last change of each setting.
    pub(crate) audit: Vec<AuditEntry>,
    pub(crate) clusters: BTreeMap<ClusterId, String>,
    pub(crate) nodes: Nodes,
    #[serde(with = "stored")]
    pub(crate) jobs: Jobs,
    pub(crate) tokens: BTreeMap<String, Token>,
    /// The certificates by serial.
    pub(crate) certificates: BTreeMap<String, Issued>,
    /// The highest id ever given. Ids are never reused.
    pub(crate) last_job: JobId,
    pub(crate) last_node: NodeId,
    /// Absent in journals written before clusters could be removed.
    #[serde(default)]
    pub(crate) last_cluster: Option<ClusterId>,
    pub(crate) ghost_node_time: Span,
    /// Idle node-time of expired ghosts by cluster. Absent in older journals.
    #[serde(default)]
    pub(crate) ghost_node_time_at: BTreeMap<ClusterId, Span>,
    /// The network between clusters as admins described it, keyed by the smaller id first.
    #[serde(default, with = "launcher::links")]
    pub(crate) links: BTreeMap<(ClusterId, ClusterId), ClusterLink>,
    /// What users have spent on nodes for jobs that are over, in thousandths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) spent: BTreeMap<String, u64>,
    /// The depth that the server chose last, if it ever chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own_depth: Option<u32>,
    /// How many launchers have sent a first request.
    #[serde(default)]
    pub(crate) n_first_requests: u64,
    /// Slowdowns of jobs that have ended.
    #[serde(default, skip_serializing_if = "Slowdowns::is_empty")]
    pub(crate) slowdowns: Slowdowns,
    #[serde(skip)]
    pub(crate) index: index::Index,
}

/// How many entries of the audit the state remembers.
pub const AUDIT_KEPT: usize = 10_000;

impl State {
    pub fn new(settings: Settings) -> State {
        State {
            settings,
            audit: Vec::new(),
            clusters: BTreeMap::new(),
            nodes: Nodes::default(),
            jobs: Jobs::default(),
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
            last_job: JobId(0),
            last_node: NodeId(0),
            last_cluster: None,
            ghost_node_time: Span::ZERO,
            ghost_node_time_at: BTreeMap::new(),
            links: BTreeMap::new(),
            spent: BTreeMap::new(),
            own_depth: None,
            n_first_requests: 0,
            slowdowns: Slowdowns::default(),
            index: index::Index::default(),
        }
    }

    /// Returns the id of the next cluster. Ids are never reused, because the history names clusters by them.
    pub(crate) fn next_cluster(&self) -> ClusterId {
        let last = self.last_cluster.max(self.clusters.keys().next_back().copied());
        last.map_or(ClusterId(0), ClusterId::next)
    }

    /// Returns the certificates that were issued and have not been forgotten, including those revoked before they
    /// expired.
    pub fn certificates(&self) -> impl Iterator<Item = &Issued> {
        self.certificates.values()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the number of jobs at the front of the queue that a pass considers; `None`: all.
    pub fn depth(&self) -> Option<u32> {
        match self.settings.queue_depth {
            Depth::All => None,
            Depth::First(first) => Some(first),
            Depth::Auto => self.chosen_depth(),
        }
    }

    /// Returns the depth, if the setting lets the server choose it.
    pub(crate) fn chosen_depth(&self) -> Option<u32> {
        let is_chosen = self.settings.queue_depth == Depth::Auto;
        is_chosen.then(|| self.own_depth.unwrap_or(Depth::BEGINNING))
    }

    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub fn clusters(&self) -> &BTreeMap<ClusterId, String> {
        &self.clusters
    }

    /// Returns the node-time that expired ghosts have kept idle.
    pub fn ghost_node_time(&self) -> Span {
        self.ghost_node_time
    }

    /// Returns the serials of revoked certificates that have not expired.
    pub fn revoked_serials(&self) -> impl Iterator<Item = &str> {
        self.certificates.values().filter(|issued| issued.revoked.is_some()).map(|issued| issued.serial.as_str())
    }

    /// Returns the serials of certificates that have not been used yet and replace valid ones on first use.
    pub fn unused_serials(&self) -> impl Iterator<Item = &str> {
        let is_valid = |serial: &String| self.certificates.get(serial).is_some_and(|issued| issued.revoked.is_none());
        let untried = self.certificates.values().filter(move |issued| issued.replaces.iter().any(is_valid));
        untried.map(|issued| issued.serial.as_str())
    }

    /// Returns the shared copy of an environment, if a job already has it.
    pub(crate) fn known_environment(&self, environment: &Arc<Environment>) -> Option<Arc<Environment>> {
        self.index.environments.get_key_value(environment).map(|(known, _)| Arc::clone(known))
    }

    /// Returns the jobs of a user, in the order of ids.
    pub(crate) fn owned_by(&self, user: &str) -> impl DoubleEndedIterator<Item = JobId> + '_ {
        self.index.owned.get(user).into_iter().flatten().copied()
    }

    /// Returns the resources that the jobs of a user take.
    pub(crate) fn usage_of(&self, owner: &str) -> Usage {
        self.index.usage.get(owner).copied().unwrap_or_default()
    }

    /// Returns how many bytes the environment of a new job adds to its owner's usage.
    pub(crate) fn new_environment_bytes(&self, owner: &str, environment: &Environment) -> u64 {
        let of_owners = self.index.environments.get(environment);
        let is_known = of_owners.is_some_and(|of_owners| of_owners.contains_key(owner));
        if is_known { 0 } else { environment_bytes(environment) }
    }

    /// Returns the jobs in the queue, in the order in which a pass takes them.
    pub(crate) fn queue(&self) -> impl Iterator<Item = JobId> + '_ {
        self.demands().map(|(job, _)| job)
    }

    /// Returns the queued jobs and what each demands, in queue order.
    pub(crate) fn demands(&self) -> impl DoubleEndedIterator<Item = (JobId, &Demand)> + Clone + '_ {
        self.index.queue.iter().map(|(key, demand)| (key.job, demand))
    }

    /// Returns the queue keys and demands, in queue order.
    pub(crate) fn keyed_demands(&self) -> impl Iterator<Item = (QueueKey, &Demand)> + '_ {
        self.index.queue.iter()
    }

    /// Returns whether every queued job wants slices of any nodes of one core-shared cluster, in a single size.
    pub(crate) fn wants_are_slices(&self) -> bool {
        self.index.n_unsliced == 0
    }

    /// Returns whether every queued job wants any nodes of one cluster, in a single size.
    pub(crate) fn wants_are_plain(&self) -> bool {
        self.index.n_not_plain == 0
    }

    /// Returns the clusters that are shared by cores.
    pub(crate) fn shared(&self) -> &Shared {
        &self.index.shared
    }

    pub(crate) fn is_shared(&self, cluster: ClusterId) -> bool {
        self.index.shared.get(cluster).is_some()
    }

    /// Returns the free part of a node of a core-shared cluster; `None` for other nodes.
    pub fn left_of(&self, node: NodeId) -> Option<Slice> {
        let shared = self.index.shared.get(self.nodes.get(&node)?.cluster)?;
        Some(shared.lines()[shared.line_idx(node).ok()?].1.room.left())
    }

    /// Returns the exact cores and devices that a job gets for its slices of nodes.
    pub(crate) fn grants(&self, job: JobId, slices: &BTreeMap<NodeId, Slice>) -> BTreeMap<NodeId, Grant> {
        let grant = |(node, slice): (&NodeId, &Slice)| {
            let spec = &self.jobs.get(&job)?.spec;
            let grant = self.index.shared.grant(*node, self.nodes.get(node)?, spec, slice)?;
            Some((*node, grant))
        };
        slices.iter().filter_map(grant).collect()
    }

    pub(crate) fn occupation(&self) -> &Occupation {
        &self.index.occupation
    }

    pub(crate) fn n_queued(&self) -> usize {
        self.index.queue.len()
    }

    /// Returns the jobs that hold nodes: started ones and ghosts.
    pub(crate) fn holding(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.index.holding.iter().map(|job| (*job, &self.jobs[job]))
    }

    pub(crate) fn n_holding(&self) -> usize {
        self.index.holding.len()
    }

    /// Returns the running jobs that have licences.
    pub(crate) fn licensed(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.index.licensed.iter().filter_map(|job| Some((*job, self.jobs.get(job)?)))
    }

    /// Returns the running jobs with a course, including those that are being ended.
    pub(crate) fn evolved(&self) -> impl Iterator<Item = (JobId, &Job, &Started)> {
        let entries = self.index.evolved.iter().filter_map(|job| Some((*job, self.jobs.get(job)?)));
        entries.filter_map(|(job, entry)| Some((job, entry, entry.started()?)))
    }

    /// Returns the running jobs whose nodes may change, by their ids.
    pub(crate) fn malleable(&self) -> impl Iterator<Item = JobId> + Clone + '_ {
        self.index.malleable.iter().copied()
    }

    /// Returns the launchers of the applications that have one, by the ids of these.
    pub(crate) fn launchers(&self) -> impl Iterator<Item = &Launcher> + Clone + '_ {
        self.with_launcher().map(|(_, launcher)| launcher)
    }

    /// Returns the applications that have a launcher, with these, by their ids.
    pub(crate) fn with_launcher(&self) -> impl Iterator<Item = (&Job, &Launcher)> + Clone + '_ {
        let entries = self.index.with_launcher.iter().map(|job| &self.jobs[job]);
        entries.filter_map(|entry| Some((entry, entry.launcher.as_ref()?)))
    }

    /// Returns the jobs whose current run has negotiated, whether or not they were submitted as malleable.
    pub(crate) fn negotiating(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.holding().filter(|(_, entry)| entry.negotiations.is_some())
    }

    /// Returns the users who have spent anything.
    pub(crate) fn users_with_spending(&self) -> impl Iterator<Item = &str> {
        self.spent.keys().map(String::as_str)
    }

    /// Returns what a user has spent on nodes for jobs that are over, in thousandths.
    pub(crate) fn spent(&self, user: &str) -> u64 {
        self.spent.get(user).copied().unwrap_or(0)
    }

    /// Returns the queued jobs that no pass has considered yet.
    pub(crate) fn unseen(&self) -> &BTreeSet<JobId> {
        &self.index.unseen
    }

    /// Returns the free nodes of a cluster, those with the fewest features first.
    pub(crate) fn free(&self, cluster: ClusterId) -> impl Iterator<Item = NodeId> + '_ {
        self.index.free.get(&cluster).into_iter().flat_map(FreeNodes::iter)
    }

    /// Appends up to `n_wanted` free nodes to `nodes`, starting at index `first_idx` of the order of [`State::free`].
    pub(crate) fn take_free(&self, cluster: ClusterId, first_idx: usize, n_wanted: usize, nodes: &mut Vec<NodeId>) {
        self.index.free.get(&cluster).into_iter().for_each(|free| free.take(first_idx, n_wanted, nodes));
    }

    pub(crate) fn n_free(&self, cluster: ClusterId) -> usize {
        self.index.free.get(&cluster).map_or(0, FreeNodes::len)
    }

    /// Returns the number of usable nodes by cluster; clusters without any are absent.
    pub(crate) fn usable(&self) -> &BTreeMap<ClusterId, u32> {
        &self.index.usable
    }

    /// Returns the number of usable nodes of a cluster.
    pub(crate) fn n_usable(&self, cluster: ClusterId) -> u32 {
        self.index.usable.get(&cluster).copied().unwrap_or(0)
    }

    /// Returns all nodes of a cluster in the natural order of their names.
    pub fn neighbours(&self, cluster: ClusterId) -> &[NodeId] {
        self.index.neighbours.of(cluster)
    }

    /// Returns the position of a node among the neighbours of its cluster.
    pub(crate) fn position(&self, node: NodeId) -> Option<usize> {
        self.nodes.get(&node).map(|entry| self.index.neighbours.position(entry, &self.nodes))
    }

    /// Returns the kinds of nodes of a cluster, up or not, and the number of nodes of each.
    pub(crate) fn kinds(&self, cluster: ClusterId) -> impl Iterator<Item = (&Inventory, u32)> {
        let kinds = self.index.kinds.get(&cluster);
        kinds.into_iter().flatten().map(|(inventory, n_alike)| (inventory, *n_alike))
    }

    /// As [`State::kinds`], of the nodes that the constraint allows by name: of each such node if it names any.
    pub(crate) fn kinds_allowed(&self, cluster: ClusterId, constraint: &Constraint) -> Vec<(&Inventory, u32)> {
        if !constraint.names_nodes() {
            return self.kinds(cluster).collect();
        }
        let nodes = self.neighbours(cluster).iter().map(|node| &self.nodes()[node]);
        nodes.filter(|node| constraint.allows(&node.name)).map(|node| (&node.inventory, 1)).collect()
    }

    /// Returns the node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.index.node_ids.get(name).copied()
    }

    pub(crate) fn cluster_named(&self, name: &str) -> Option<ClusterId> {
        self.clusters.iter().find(|(_, known)| *known == name).map(|(cluster, _)| *cluster)
    }

    /// Returns the ghost that expires next, and when.
    pub(crate) fn next_ghost(&self) -> Option<(Time, JobId)> {
        self.index.ghosts.first().copied()
    }

    /// Returns the job whose begin time comes next, and when.
    pub(crate) fn next_begin(&self) -> Option<(Time, JobId)> {
        self.index.begins.first().copied()
    }

    pub(crate) fn n_promised(&self) -> usize {
        self.index.promises.len()
    }

    /// Returns the promised starts of queued jobs, the earliest first.
    pub(crate) fn promises(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.index.promises.iter().copied()
    }

    /// Returns the key and the demand of a queued job.
    pub(crate) fn demand(&self, job: JobId) -> Option<(QueueKey, &Demand)> {
        let entry = self.jobs.get(&job).filter(|entry| entry.is_queued())?;
        let key = QueueKey::of(job, entry);
        self.index.queue.get(key).map(|demand| (key, demand))
    }

    /// Returns the key at this index of the queue.
    pub(crate) fn nth_queued(&self, queue_idx: usize) -> Option<QueueKey> {
        self.index.queue.nth(queue_idx)
    }

    /// Returns the first job behind `behind` in the queue that may fit into `room`.
    pub(crate) fn next_within(&self, behind: QueueKey, room: &Room) -> Option<(QueueKey, &Demand)> {
        self.index.queue.next_within(behind, room)
    }

    /// As [`State::next_within`], for slices of shared nodes.
    pub(crate) fn next_slice(&self, behind: QueueKey, room: &SliceRoom) -> Option<(QueueKey, &Demand)> {
        self.index.queue.next_slice(behind, room)
    }

    /// Returns the earliest promised start.
    pub(crate) fn first_promise(&self) -> Option<Time> {
        self.index.promises.first().map(|(at, _)| *at)
    }

    /// Returns the first promised start after a time.
    pub(crate) fn next_promise(&self, after: Time) -> Option<Time> {
        let next = self.index.promises.range((Bound::Excluded((after, JobId(u64::MAX))), Bound::Unbounded)).next();
        next.map(|(at, _)| *at)
    }

    /// Returns when running evolving applications enter their next stage or end, the earliest first.
    pub(crate) fn next_stages(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.index.stages.iter().copied()
    }

    /// Returns whether any agent of this cluster is away whose node is not lost yet.
    pub(crate) fn is_any_away(&self, cluster: ClusterId) -> bool {
        self.index.away.iter().any(|(_, node)| self.nodes[node].cluster == cluster)
    }

    /// Returns the node whose agent has been away longest and that is not lost yet.
    pub(crate) fn longest_away(&self) -> Option<(Time, NodeId)> {
        self.index.away.first().copied()
    }

    /// Returns the node whose agent has been expected longest since a restart of the server.
    pub(crate) fn longest_expected(&self) -> Option<(Time, NodeId)> {
        self.index.expected.first().copied()
    }

    /// Returns the number of usable nodes of a cluster whose agents are expected back.
    pub(crate) fn n_expected(&self, cluster: ClusterId) -> usize {
        let entries = self.index.expected.iter().map(|(_, node)| &self.nodes[node]);
        entries.filter(|entry| entry.cluster == cluster && entry.is_usable()).count()
    }

    /// Returns a node where processes of this job are and whose agent is not connected, so that it can be told nothing.
    pub(crate) fn out_of_reach(&self, started: &job::Started) -> Option<NodeId> {
        started.alive().find(|node| !self.nodes[node].is_connected())
    }

    pub(crate) fn node_names(&self, nodes: &[NodeId]) -> Vec<String> {
        nodes.iter().map(|node| self.nodes[node].name.clone()).collect()
    }
}
