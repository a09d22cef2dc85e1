//! A job inside the core: which state of 001, Fig. 4 it is in, and what that state owns.

mod launcher;
mod shares;

use std::collections::BTreeMap;
use std::sync::Arc;

use negotiation::{Direction, NegotiationId};
use rms_api::answer::JobState;
use rms_api::desired::NodeExit;
use rms_model::{
    ClusterId, CpuLoans, Devices, FormerRun, Grant, Granted, Inventory, JobRecord, JobSpec, NodeId, Outcome, Request,
    Run, Settings, Span, Time, Usage, Work,
};
use serde::{Deserialize, Serialize};

use crate::state::course::{Cores, Course, Evolved};
use crate::state::negotiations::{JobNegotiations, Negotiation, NodeReturn};
use crate::state::sharing::Sharing;
use crate::state::threads_of_core;

pub(crate) use launcher::LauncherTimerIndex;
pub use launcher::{Launcher, LauncherLink, StartAnswer};
pub use shares::Shares;

/// One application that is in the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub spec: Arc<JobSpec>,
    pub submitted: Time,
    /// When its launcher first sent a request. Determines its place in the queue, also after a hold and a requeue.
    pub requested: Option<Time>,
    /// When it last became eligible, if that was after its first request: at the end of a hold, at its begin time, or
    /// when it returned to the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Time>,
    /// The execution that runs, or that ran last; 0 before the first.
    pub run: Run,
    /// Why the last run ended from which it returned to the queue. Absent in older snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_before: Option<Box<Outcome>>,
    /// The runs after which it returned to the queue; snapshots of older versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_runs: Vec<FormerRun>,
    pub phase: Phase,
    /// The promise to a job that waits under the conservative policy. Absent in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Promise>,
    /// The external launcher that serves it; absent for jobs that were submitted with their work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
    /// The negotiations of this execution; absent before the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiations: Option<Box<JobNegotiations>>,
}

/// When a waiting job will start at the latest, and with which of its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    pub at: Time,
    /// Index into the options of its spec.
    pub option_idx: u32,
    /// The nodes, on core-shared clusters where not any nodes will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// The durations of its stages, if one of them is to wait for the next one. The stages of others were placed beside
    /// these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
}

/// The states of 001, Fig. 4. Finished is absent: a finished application leaves the system for the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The launcher has subscribed and sent no request: the job is held, its begin time has not come, or its external
    /// launcher has not requested yet.
    Submitted {
        hold: Option<Hold>,
    },
    /// A request arrived; no pass has seen it yet.
    RequestSent,
    /// A pass has given it a view.
    Waiting,
    Started(Started),
    Ghost(Ghost),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub by: String,
    pub since: Time,
}

/// A job that holds nodes and has processes, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub at: Time,
    pub request: Request,
    /// Node 0 first.
    pub nodes: Vec<NodeId>,
    /// The job's grants on nodes that it shares; it has the others alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<NodeId, Grant>,
    /// It began where nodes were allocated whole, and takes whole nodes when it grows, although its cluster has been
    /// shared by cores since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_whole: bool,
    /// Empty while an external launcher has started no processes through the agents.
    pub shares: Shares,
    pub ending: Option<Ending>,
    /// The highest exit code of the shares that have ended.
    pub worst_code: i32,
    /// The usage of the shares that have ended.
    pub usage: Usage,
    /// When the last share ended, unless that was when it was reported; of a script, when the share of its node ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The state of an evolving application. Its request then is what it holds now, until its course ends.
    #[serde(default)]
    pub evolved: Option<Box<Evolved>>,
    /// Present once the job has lent cores or started on those of others (004).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Box<Sharing>>,
    /// By how much it started later than it was promised, and later stages began later than planned then, if that is at
    /// most a second in all and less than its wall time.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub late: Span,
}

/// Most jobs that reach the end of their wall time leave within this time. A promise is kept for as long to a job for
/// which they make room.
pub(crate) const SOON: Span = Span::from_secs(1);

/// Nearly all of them leave within this time.
pub(crate) const AT_ONCE: Span = Span::from_millis(100);

/// A job's part on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// The node was told to start it and has not reported it running.
    Ordered,
    Running {
        since: Time,
    },
    /// The agent saw the processes gone, or the node is lost.
    Ended,
}

/// The decided outcome of a job that is ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub at: Time,
    pub outcome: Outcome,
    /// The job returns to the queue instead of leaving.
    pub requeue: bool,
}

impl Ending {
    /// Returns whether processes that ended `at` this time, on nodes that were away, decide the outcome: the server
    /// ended the job later, and only because its time was over.
    pub(crate) fn is_overtaken_by(&self, at: Time) -> bool {
        at < self.at && matches!(self.outcome, Outcome::WallTime | Outcome::StageLate { .. })
    }

    /// Returns whether a share that ends like this decides the outcome: processes ended the job, and those of another
    /// node say only now that its memory had run out. Nothing else comes before the first end.
    pub(crate) fn yields_to(&self, exit: &NodeExit) -> bool {
        let is_own = matches!(self.outcome, Outcome::Completed | Outcome::Failed { .. } | Outcome::Signaled { .. });
        is_own && !self.requeue && *exit == NodeExit::OutOfMemory
    }
}

/// A job that is done; its nodes stay busy, so that slow launchers get their chance (001, §5.3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ghost {
    pub done_at: Time,
    pub until: Time,
    pub request: Request,
    pub nodes: Vec<NodeId>,
    /// The grants that the ghost keeps on nodes that the job shared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<NodeId, Grant>,
    pub outcome: Outcome,
    /// Clusters with a shorter delay of their own, and when their nodes are free.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<ClusterId, Time>,
}

impl Ghost {
    /// Returns until when the ghost keeps its nodes of one cluster.
    pub fn until_in(&self, cluster: ClusterId) -> Time {
        self.parts.get(&cluster).copied().unwrap_or(self.until)
    }

    /// Returns the cluster whose nodes are freed next, and when.
    pub fn next_part(&self) -> Option<(Time, ClusterId)> {
        self.parts.iter().map(|(cluster, until)| (*until, *cluster)).min()
    }

    /// Returns when any of the ghost's nodes are next freed.
    pub fn next_until(&self) -> Time {
        self.next_part().map_or(self.until, |(until, _)| until.min(self.until))
    }
}

impl Job {
    pub fn state(&self) -> JobState {
        match &self.phase {
            Phase::Submitted { hold: Some(_) } => JobState::Held,
            Phase::Submitted { hold: None } => JobState::Submitted,
            Phase::RequestSent => JobState::RequestSent,
            Phase::Waiting => JobState::Waiting,
            Phase::Started(Started { ending: None, .. }) => JobState::Started,
            Phase::Started(Started { ending: Some(_), .. }) => JobState::Ending,
            Phase::Ghost(_) => JobState::Ghost,
        }
    }

    /// Returns since when it could have started; of one that could not yet, when it was submitted.
    pub(crate) fn eligible_since(&self) -> Time {
        self.eligible.or(self.requested).unwrap_or(self.submitted)
    }

    /// Returns whether the job is in the queue, with a request for nodes.
    pub fn is_queued(&self) -> bool {
        match &self.phase {
            Phase::RequestSent | Phase::Waiting => true,
            Phase::Submitted { .. } | Phase::Started(_) | Phase::Ghost(_) => false,
        }
    }

    /// Returns whether the job has not started yet.
    pub fn is_before_its_start(&self) -> bool {
        match &self.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => true,
            Phase::Started(_) | Phase::Ghost(_) => false,
        }
    }

    pub fn started(&self) -> Option<&Started> {
        match &self.phase {
            Phase::Started(started) => Some(started),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Ghost(_) => None,
        }
    }

    /// Returns the nodes that the job or its ghost holds, node 0 first.
    pub fn nodes(&self) -> &[NodeId] {
        match &self.phase {
            Phase::Started(started) => &started.nodes,
            Phase::Ghost(ghost) => &ghost.nodes,
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => &[],
        }
    }

    /// Returns the first size listed, or the last one that its launcher requested; empty without a request.
    pub fn first_request(&self) -> Request {
        let nothing = || Request { nodes: BTreeMap::new(), wall: Span::ZERO };
        self.spec.options.first().cloned().unwrap_or_else(nothing)
    }

    /// Returns the node on which the job's script runs, once it has started; the job ends with the script.
    pub fn script_node(&self) -> Option<NodeId> {
        match &self.spec.execution.work {
            Work::Script { .. } => self.started()?.nodes.first().copied(),
            Work::Tasks { .. } | Work::Nodes => None,
        }
    }

    /// Returns the grants of the job or its ghost on shared nodes.
    pub fn grants(&self) -> &BTreeMap<NodeId, Grant> {
        static NONE: BTreeMap<NodeId, Grant> = BTreeMap::new();
        match &self.phase {
            Phase::Started(started) => &started.grants,
            Phase::Ghost(ghost) => &ghost.grants,
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => &NONE,
        }
    }

    /// Returns the number of logical CPUs that the job was given on a node, before it gave any back.
    pub fn cpus_given(&self, node: NodeId, inventory: &Inventory) -> u32 {
        let n_cpus = |grant: &Grant| grant.cores.len().saturating_mul(threads_of_core(&self.spec, inventory));
        self.grants().get(&node).map_or(inventory.cpus, n_cpus)
    }

    /// Returns the licences of a cluster that the job has, or will have when it runs there.
    pub fn licences_on(&self, cluster: ClusterId) -> &Devices {
        let evolved = self.started().and_then(|started| started.evolved.as_ref());
        let own = evolved.and_then(|evolved| evolved.licences.get(&cluster)).map(|own| &own.licences);
        own.unwrap_or(&self.spec.resources.licences)
    }

    /// Returns the licences that the running job has now of each of its clusters; empty if it never had any.
    pub(crate) fn licences(&self) -> BTreeMap<ClusterId, Devices> {
        let here = self.started().filter(|_| self.is_licensed()).map(|started| &started.request.nodes);
        let clusters = here.into_iter().flatten().filter(|(_, n_nodes)| **n_nodes > 0);
        clusters.map(|(cluster, _)| (*cluster, self.licences_on(*cluster).clone())).collect()
    }

    /// Returns whether the job has licences of any cluster, or has had some.
    pub(crate) fn is_licensed(&self) -> bool {
        let evolved = self.started().and_then(|started| started.evolved.as_ref());
        !self.spec.resources.licences.is_empty() || evolved.is_some_and(|evolved| !evolved.licences.is_empty())
    }

    /// Returns the nodes that the job has freed and whose processes may still be there.
    pub fn leaving(&self) -> Vec<NodeId> {
        let evolved = self.started().and_then(|started| started.evolved.as_ref());
        evolved.map(|evolved| evolved.leaving.keys().copied().collect()).unwrap_or_default()
    }

    /// Returns those of them that it has freed at this time.
    pub(crate) fn left_at(&self, at: Time) -> impl Iterator<Item = NodeId> + '_ {
        let evolved = self.started().and_then(|started| started.evolved.as_ref());
        let leaving = evolved.into_iter().flat_map(|evolved| &evolved.leaving);
        leaving.filter(move |(_, since)| **since == at).map(|(node, _)| *node)
    }

    /// Returns the number of nodes by cluster that the job agreed to give back and has not begun to leave, and when it
    /// agreed.
    pub fn agreed_to_leave(&self) -> Option<(Time, BTreeMap<ClusterId, u64>)> {
        // One negotiation is open for each direction, so there is no other.
        self.negotiations.iter().flat_map(|negotiations| negotiations.open()).find_map(Negotiation::agreed_to_leave)
    }

    /// Returns the nodes that it will give back before its end, in order of time.
    pub(crate) fn returns(&self, settings: &Settings) -> Vec<NodeReturn> {
        self.negotiations.as_ref().map(|negotiations| negotiations.returns(settings)).unwrap_or_default()
    }

    /// Returns whether it will give back nodes before its end, or some that are kept for it.
    pub(crate) fn gives_back(&self) -> bool {
        let Some(negotiations) = &self.negotiations else { return false };
        let mut kept = negotiations.all.iter().filter(|negotiation| !negotiation.held.is_empty());
        let is_limited = kept.any(|negotiation| negotiation.asked_back(self.submitted).is_some());
        is_limited || !negotiations.loans.is_empty() || self.agreed_to_leave().is_some()
    }

    /// Returns the nodes that are kept free for what is negotiated with it.
    pub fn promised_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let all = self.negotiations.iter().flat_map(|negotiations| &negotiations.all);
        all.flat_map(|negotiation| negotiation.held.iter().copied())
    }

    /// Returns the negotiation that adds this node, if its share has not been reported yet.
    pub(crate) fn awaited_in(&self, node: NodeId) -> Option<NegotiationId> {
        let is_here = |negotiation: &&Negotiation| {
            let comes = negotiation.direction() == Direction::Grow && negotiation.is_handed_over;
            comes && negotiation.dialogue.nodes().is_some_and(|nodes| nodes.contains(&node))
        };
        self.negotiations.as_ref()?.open().find(is_here).map(Negotiation::id)
    }

    /// Returns whether this node was agreed and handed over, but its growth is not ready yet: the node may be up, but others
    /// that come with it are not.
    pub(crate) fn is_awaited(&self, node: NodeId) -> bool {
        let is_alive = self.started().is_some_and(|started| {
            started.ending.is_none() && started.shares.get(&node).is_some_and(|share| *share != Share::Ended)
        });
        is_alive && self.awaited_in(node).is_some()
    }

    /// Returns the nodes that the job holds, including those that it is leaving or may get.
    pub fn held(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes().iter().copied().chain(self.leaving()).chain(self.promised_nodes())
    }

    /// Returns the history record of a job that ends now with `outcome`. `nodes` are the names of its nodes, `granted` is
    /// what it had of them, and `loans` the core-time that it lent and borrowed.
    pub fn record(
        &self,
        job: rms_model::JobId,
        ended: Time,
        outcome: Outcome,
        nodes: Vec<String>,
        (granted, loans): (Option<Granted>, Option<CpuLoans>),
    ) -> JobRecord {
        let started = self.started();
        let request = match started {
            // Lending and borrowing have made the run longer than requested.
            Some(Started { evolved: None, sharing: Some(sharing), request, .. }) => {
                Request { wall: sharing.requested, ..request.clone() }
            }
            Some(started) if started.evolved.is_none() => started.request.clone(),
            // One that negotiated is remembered by the time that it had in the end, beside what it really held.
            Some(started) if self.spec.evolving.is_none() => {
                Request { wall: started.requested(), ..self.first_request() }
            }
            // An evolving application is remembered by its peak and all of its time, beside what it really held.
            Some(_) | None => self.first_request(),
        };
        JobRecord {
            job,
            run: self.run,
            labels: self.spec.labels.clone(),
            owner: self.spec.owner.clone(),
            submitted: self.submitted,
            eligible: self.eligible.or(self.requested).unwrap_or(ended),
            started: started.map(|started| started.at),
            ended,
            n_tasks: self.spec.tasks.total(request.n_nodes()),
            request,
            cpus_per_task: self.spec.cpus_per_task,
            nodes,
            outcome,
            usage: started.map(|started| started.usage).unwrap_or_default(),
            evolution: started.and_then(|started| started.evolved.as_ref()?.history(ended)),
            loans,
            granted,
            former_runs: self.former_runs.clone(),
        }
    }
}

impl Started {
    /// Returns the number of logical CPUs of a node that a launcher was granted: all threads of its cores.
    pub fn cpus_granted(&self, node: NodeId, inventory: &Inventory) -> u32 {
        let n_cpus = |grant: &Grant| grant.cores.len().saturating_mul(inventory.threads_per_core());
        self.grants.get(&node).map_or(inventory.cpus, n_cpus)
    }

    /// Returns when its wall time ends.
    pub fn until(&self) -> Time {
        self.at + self.request.wall
    }

    /// Returns when others are planned to have its nodes. If it started later than it was promised, that is before its
    /// wall time ends, so that the plan for those behind it stays as it is.
    pub fn planned_until(&self) -> Time {
        self.until() - self.late
    }

    /// Returns by how much the stages of a course to come are later now than planned. As long as that is little, the
    /// plan for those behind it stays as it is here, too.
    pub(crate) fn stages_late(&self, course: &Course, now: Time) -> Span {
        let more = now.since(course.next_change());
        if self.late + more <= SOON { Span::ZERO } else { more }
    }

    /// Returns whether its wall time is over: its supervisors end it on their own, whatever they are told now. What is
    /// changed at the very instant is still in time.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.until() < now
    }

    /// Returns the number of nodes that it started with.
    pub(crate) fn began_with(&self) -> u32 {
        self.evolved.as_ref().map_or(self.nodes.len() as u32, |evolved| evolved.started_with).max(1)
    }

    /// Returns the nodes of all stages, where its cluster is shared by cores; see [`Course`].
    pub fn row(&self) -> &[NodeId] {
        self.evolved.as_ref().map_or(&[], |evolved| &evolved.course.row)
    }

    /// Returns whether its processes are up on all of its nodes.
    pub(crate) fn is_settled(&self) -> bool {
        self.shares.values().all(|share| *share != Share::Ordered)
    }

    /// Returns whether the node's agent has reported that the job runs there, and not that it has ended.
    pub(crate) fn is_running_on(&self, node: NodeId) -> bool {
        matches!(self.shares.get(&node), Some(Share::Running { .. }))
    }

    /// Returns whether it has freed this node, where its processes still are.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        self.evolved.as_ref().is_some_and(|evolved| evolved.leaving.contains_key(&node))
    }

    /// Returns whether the application has reported that it left this node, so that its processes there may be ending
    /// on their own.
    pub fn has_released(&self, node: NodeId) -> bool {
        // A job that is being ended gets no more time.
        let is_going_on = self.ending.is_none();
        is_going_on && self.evolved.as_ref().is_some_and(|evolved| evolved.released.contains(&node))
    }

    /// Returns the shares whose processes may still be there.
    pub fn alive(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shares.iter().filter(|(_, share)| **share != Share::Ended).map(|(node, _)| *node)
    }

    /// Returns the number of cores that the job has of a node with `all` cores.
    pub fn cores_on(&self, node: NodeId, all: u32) -> u32 {
        self.cores(node).map_or(all, |cores| cores.n_cores.min(all))
    }

    /// Returns the number of cores that no other job may have.
    pub fn cores_kept_on(&self, node: NodeId, all: u32) -> u32 {
        self.cores(node).map_or(all, |cores| cores.kept().min(all))
    }

    /// Returns the number of cores that its processes may safely use.
    pub fn cores_usable_on(&self, node: NodeId, all: u32) -> u32 {
        self.cores(node).map_or(all, |cores| cores.usable().min(all))
    }

    /// Returns whether an agent has yet to confirm that the processes keep to the cores, memory and devices last
    /// ordered. Nodes without processes send no confirmation.
    pub fn awaits_agents(&self) -> bool {
        let Some(evolved) = &self.evolved else { return false };
        let is_ordered = |node: &NodeId| {
            self.cores(*node).is_some_and(|cores| !cores.is_in_force)
                || evolved.changed.get(node).is_some_and(|changed| !changed.is_in_force)
        };
        self.alive().any(|node| !self.is_leaving(node) && is_ordered(&node))
    }

    pub(super) fn cores(&self, node: NodeId) -> Option<Cores> {
        self.evolved.as_ref()?.places.get(&node)?.cores
    }

    pub fn is_clear(&self) -> bool {
        self.alive().next().is_none()
    }
}
