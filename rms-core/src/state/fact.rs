//! Facts, the contents of the journal. They are applied, never validated again.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use negotiation::{Dialogue, NegotiationId, Phase, Side};
use rms_api::audit::AuditEntry;
use rms_api::desired::NodeExit;
use rms_api::negotiate::{Declared, NegotiationRecord};
use rms_api::subscription::{ClusterLink, Filter, Launchable, Tag};
use rms_model::token::{Issued, Redeemed, Token};
use rms_model::{
    ClusterId, Devices, Environment, Evolving, Generation, Grant, Indices, Inventory, JobId, JobRecord, JobSpec,
    NodeAdmin, NodeId, NodeLink, Outcome, Request, Run, Slice, Span, Time, Usage,
};
use serde::{Deserialize, Serialize};

use crate::state::State;
use crate::state::course::Course;
use crate::state::job::{LauncherLink, Promise, Started};
use crate::state::negotiations::Asking;
use crate::state::sharing::Sharing;

/// One thing that became true. New kinds are added at the end; fields only with a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    ClusterAdded {
        cluster: ClusterId,
        name: String,
    },
    NodeJoined {
        node: NodeId,
        cluster: ClusterId,
        name: String,
        inventory: Inventory,
        address: String,
        at: Time,
    },
    /// The node sent a new description of itself.
    NodeDescribed {
        node: NodeId,
        inventory: Inventory,
        address: String,
    },
    NodeAdminChanged {
        node: NodeId,
        admin: NodeAdmin,
    },
    NodeLinkChanged {
        node: NodeId,
        link: NodeLink,
    },
    NodeRemoved {
        node: NodeId,
    },
    SettingChanged {
        change: AuditEntry,
    },
    /// 001: the application subscribed.
    JobSubmitted {
        job: JobId,
        at: Time,
        spec: Arc<JobSpec>,
        held: bool,
    },
    JobHeld {
        job: JobId,
        by: String,
        at: Time,
    },
    JobReleased {
        job: JobId,
        by: String,
        at: Time,
    },
    JobPriorityChanged {
        job: JobId,
        priority: i32,
        by: String,
        at: Time,
    },
    /// 001: its launcher's first request arrived; from here it has its place in the queue.
    RequestSent {
        job: JobId,
        at: Time,
    },
    /// 001: a pass has given it a view and an estimate.
    JobsQueued {
        jobs: Vec<JobId>,
    },
    JobStarted {
        job: JobId,
        run: Run,
        at: Time,
        request: Request,
        nodes: Vec<NodeId>,
        /// The job's grants on nodes that it shares; it has the others alone.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
    },
    /// The agent reported the processes up.
    ShareRunning {
        job: JobId,
        node: NodeId,
        since: Time,
    },
    /// The agent reported the processes gone.
    ShareEnded {
        job: JobId,
        node: NodeId,
        exit: NodeExit,
        usage: Usage,
        /// When the share ended, if it is reported late because the agent had no connection, or if others go on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
    },
    /// The outcome of the job is decided; nodes that still run it are told to end it.
    JobEnding {
        job: JobId,
        at: Time,
        outcome: Outcome,
        requeue: bool,
    },
    /// 001: done. The processes are gone on every node; the nodes stay busy until the ghost expires.
    JobDone {
        record: Box<JobRecord>,
        ghost_until: Time,
        /// The job's negotiations, for the history.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        negotiations: Vec<NegotiationRecord>,
        /// When the end was reported, if late: the ghost begins then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Time>,
    },
    /// 001: the ghost expired.
    GhostExpired {
        job: JobId,
    },
    /// The job returns to its old place in the queue, after one of its nodes was lost and the others are clear.
    JobRequeued {
        job: JobId,
        at: Time,
    },
    TokenCreated {
        token: Token,
    },
    TokenUsed {
        id: String,
        at: Time,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        redeemed: Option<Redeemed>,
    },
    TokenRevoked {
        id: String,
        at: Time,
        by: String,
    },
    /// An expired or ended token was dropped.
    TokenForgotten {
        id: String,
    },
    CertificateIssued {
        issued: Issued,
    },
    CertificatesRevoked {
        serials: Vec<String>,
        at: Time,
        by: String,
    },
    CertificateForgotten {
        serial: String,
    },
    /// Executions that an agent still runs though they are no longer wanted. The node is not used until the list is
    /// empty again.
    NodeFenced {
        node: NodeId,
        stale: Vec<(JobId, Run)>,
    },
    /// The agent has acted on a higher generation than this server knows: it served the node before the node was
    /// removed, or before the journal was restored from a copy. Counting continues from there; otherwise the agent
    /// would take every desired state for an old one.
    NodeGenerationRaised {
        node: NodeId,
        generation: Generation,
    },
    /// Conservative policy: when each of these jobs will start at the latest. `None` withdraws a promise.
    StartsPromised {
        starts: Vec<(JobId, Option<Promise>)>,
    },
    /// 001: an external launcher subscribed for an application of its own.
    LauncherSubscribed {
        job: JobId,
        at: Time,
        spec: Box<JobSpec>,
        filter: Filter,
    },
    LauncherLinkChanged {
        job: JobId,
        link: LauncherLink,
        /// For how long it was awaited until then. Absent in older journals.
        #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
        awaited: Span,
    },
    /// 001: request. The first one gives the application its place in the queue.
    LauncherRequested {
        job: JobId,
        at: Time,
        tag: Tag,
        request: Request,
        #[serde(default, skip_serializing_if = "Slice::is_default")]
        slice: Slice,
    },
    /// The launcher's processes to start on the granted nodes.
    LauncherLaunched {
        job: JobId,
        at: Time,
        launch: Box<Launchable>,
    },
    /// The launcher uses the granted nodes by its own means.
    LauncherAccepted {
        job: JobId,
        at: Time,
    },
    /// 001: ICINFO, as an admin set it.
    ClusterLinkSet {
        link: ClusterLink,
        at: Time,
        by: String,
    },
    /// The ghost keeps its nodes of these clusters for a shorter time than its other nodes.
    GhostParted {
        job: JobId,
        until: BTreeMap<ClusterId, Time>,
    },
    /// The ghost's nodes of this cluster are free; it keeps those of other clusters.
    GhostPartExpired {
        job: JobId,
        cluster: ClusterId,
    },
    /// The stages of a running evolving application were placed, or placed again.
    CourseSet {
        job: JobId,
        at: Time,
        course: Box<Course>,
    },
    /// An evolving application entered its next stage. Nodes that it frees stay with it until their processes are gone.
    StageEntered {
        job: JobId,
        at: Time,
        gained: Vec<NodeId>,
        freed: Vec<NodeId>,
        course: Box<Course>,
        /// Grants on shared nodes that the application gains, unless they were held for it before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
    },
    /// No process is left on nodes that an application has freed.
    NodesFreed {
        job: JobId,
        nodes: Vec<NodeId>,
    },
    /// An evolving application chose the nodes that it frees at its next smaller stage.
    NodesChosen {
        job: JobId,
        nodes: Vec<NodeId>,
        by: String,
    },
    /// A waiting evolving application announces another profile.
    ProfileChanged {
        job: JobId,
        evolving: Evolving,
        options: Vec<Request>,
    },
    /// A message or a time-out changed a negotiation with a running job (002). The dialogue is the server's end after
    /// that. `asking` comes with the first message, if a user asked on behalf of the application.
    DialogueChanged {
        job: JobId,
        at: Time,
        dialogue: Box<Dialogue>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asking: Option<Box<Asking>>,
    },
    /// Exactly these nodes are kept free for a negotiation.
    NodesHeld {
        job: JobId,
        negotiation: NegotiationId,
        nodes: Vec<NodeId>,
        /// Grants on shared nodes, if those were not held before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
    },
    /// The application was asked to leave these nodes. Its processes there continue until it reports that it has left.
    NodesDeparting {
        job: JobId,
        at: Time,
        nodes: Vec<NodeId>,
    },
    /// The application keeps the nodes that it was asked to leave.
    NodesStay {
        job: JobId,
    },
    /// The application declared the limits within which it may be resized from now on.
    LimitsDeclared {
        job: JobId,
        declared: Declared,
    },
    /// The application was warned that it has not given what it promised.
    PromiseWarned {
        job: JobId,
        negotiation: NegotiationId,
        at: Time,
    },
    /// Nodes that the application had for a limited time are asked back.
    LoanCalled {
        job: JobId,
        /// The negotiation that lent them.
        negotiation: NegotiationId,
        /// The cluster, if the negotiation covered several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<ClusterId>,
        /// The negotiation that asks them back.
        by: NegotiationId,
    },
    /// Nodes that the application had for a limited time were taken back.
    LoanEnded {
        job: JobId,
        negotiation: NegotiationId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<ClusterId>,
    },
    /// The application shall have these numbers of cores on these nodes; it has them once the agents confirm.
    CoresSet {
        job: JobId,
        negotiation: NegotiationId,
        cores: Vec<(NodeId, u32)>,
        /// On core-shared clusters: the additional cores that it gets.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        more: BTreeMap<NodeId, Indices>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
    },
    /// The application's processes on this node keep to the cores, memory and devices given up to this generation of
    /// its nodes.
    CoresInForce {
        job: JobId,
        node: NodeId,
        generation: u32,
    },
    /// The application reports that it has left nodes that it frees: its processes there may be ending on their own.
    NodesReleased {
        job: JobId,
        nodes: Vec<NodeId>,
    },
    /// An action for the audit, other than a change of a setting, which is an audit entry itself.
    Audited {
        entry: AuditEntry,
    },
    /// A cluster without nodes was removed.
    ClusterRemoved {
        cluster: ClusterId,
    },
    /// Nodes that a running application has given back stay visible as occupied until then (001, §5.3.1).
    NodesGhosted {
        job: JobId,
        nodes: Vec<NodeId>,
        at: Time,
        until: Time,
    },
    /// These ghosts expired, and the nodes are free.
    NodeGhostsExpired {
        nodes: Vec<NodeId>,
        at: Time,
    },
    /// The negotiator declared whether the application survives the loss of nodes.
    LossDeclared {
        job: JobId,
        survives: bool,
    },
    /// The job's specification was changed. The work of the job stays as it is and is not included.
    JobUpdated {
        job: JobId,
        /// Without its environment.
        spec: Arc<JobSpec>,
        /// The environment, if it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Arc<Environment>>,
        /// The wall time of a running job, if it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wall: Option<Span>,
        by: String,
        at: Time,
    },
    /// The server chose how many jobs at the front of the queue a pass considers.
    DepthChosen {
        depth: u32,
    },
    /// The application shall have the memory and the devices of these grants, with the cores that it has; it has them
    /// once the agents confirm.
    GrantsSet {
        job: JobId,
        negotiation: NegotiationId,
        grants: BTreeMap<NodeId, Grant>,
    },
    /// The application has these licences of a cluster from now on.
    LicencesSet {
        job: JobId,
        negotiation: NegotiationId,
        cluster: ClusterId,
        licences: Devices,
    },
    /// 004: the job lends cores to a guest, started as one, or got its own cores back. Holds its complete sharing
    /// state, and its new wall time from its start on.
    CpusShared {
        job: JobId,
        at: Time,
        sharing: Box<Sharing>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
        wall: Span,
    },
    /// The job's processes on this node keep to the CPUs given up to this generation.
    CpusInForce {
        job: JobId,
        node: NodeId,
        generation: u32,
        /// When that was reported: what its guest borrows counts from then on. Absent in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
    },
    /// Nodes that the application had promised to give back are lost: they count as given back.
    PromisedNodesLost {
        job: JobId,
        negotiation: NegotiationId,
        nodes: Vec<NodeId>,
    },
}

/// What a fact may have freed for waiting jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Freed {
    /// No node, and no place in the queue.
    #[default]
    Nothing,
    /// Only what was already promised to others.
    AsPromised,
    /// Resources that may let a job start earlier than promised; all of them lie before that time.
    Until(Time),
}

fn awaits_agents(state: &State, job: JobId) -> bool {
    state.jobs().get(&job).and_then(|entry| entry.started()).is_some_and(Started::awaits_agents)
}

impl Fact {
    /// Returns what this fact may free. `state` is the state before the fact; existing promises were made by the pass
    /// at `last_pass`.
    pub(crate) fn frees(&self, state: &State, last_pass: Option<Time>) -> Freed {
        match self {
            // On shared nodes, others may get what the job has given back.
            Fact::CoresInForce { .. } if !state.shared().is_empty() => Freed::Until(Time::NEVER),
            Fact::ShareEnded { job, .. } if awaits_agents(state, *job) => Freed::Until(Time::NEVER),
            Fact::JobSubmitted { .. }
            | Fact::RequestSent { .. }
            | Fact::JobsQueued { .. }
            | Fact::JobStarted { .. }
            | Fact::StartsPromised { .. }
            | Fact::ShareRunning { .. }
            | Fact::ShareEnded { .. }
            | Fact::NodesGhosted { .. }
            | Fact::JobEnding { .. } => Freed::Nothing,
            Fact::DialogueChanged { .. }
            | Fact::NodesDeparting { .. }
            | Fact::NodesStay { .. }
            | Fact::LimitsDeclared { .. }
            | Fact::LossDeclared { .. }
            | Fact::PromiseWarned { .. }
            | Fact::PromisedNodesLost { .. }
            | Fact::LoanCalled { .. }
            | Fact::LoanEnded { .. }
            | Fact::CoresSet { .. }
            | Fact::GrantsSet { .. }
            | Fact::CpusInForce { .. }
            | Fact::CoresInForce { .. } => Freed::AsPromised,
            Fact::JobDone { record, ghost_until, .. } => {
                let entry = state.jobs().get(&record.job);
                let Some(started) = entry.and_then(|entry| entry.started()) else { return Freed::Until(Time::NEVER) };
                let expected = started.planned_until();
                // Jobs placed behind an overdue application were placed by an arbitrary guess.
                let was_due = last_pass.is_none_or(|last| last < expected);
                let is_rigid = started.evolved.is_none() && entry.is_some_and(|entry| entry.negotiations.is_none());
                match expected.cmp(ghost_until) {
                    Ordering::Equal if was_due => Freed::AsPromised,
                    Ordering::Greater if is_rigid => Freed::Until(expected),
                    Ordering::Less | Ordering::Equal | Ordering::Greater => Freed::Until(Time::NEVER),
                }
            }
            Fact::ClusterAdded { .. }
            | Fact::NodeJoined { .. }
            | Fact::NodeDescribed { .. }
            | Fact::NodeAdminChanged { .. }
            | Fact::NodeLinkChanged { .. }
            | Fact::NodeRemoved { .. }
            | Fact::SettingChanged { .. }
            | Fact::DepthChosen { .. }
            | Fact::Audited { .. }
            | Fact::ClusterRemoved { .. }
            | Fact::JobHeld { .. }
            | Fact::JobReleased { .. }
            | Fact::JobPriorityChanged { .. }
            | Fact::JobUpdated { .. }
            | Fact::CpusShared { .. }
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
            | Fact::LauncherSubscribed { .. }
            | Fact::LauncherLinkChanged { .. }
            | Fact::LauncherRequested { .. }
            | Fact::LauncherLaunched { .. }
            | Fact::LauncherAccepted { .. }
            | Fact::GhostParted { .. }
            | Fact::GhostPartExpired { .. }
            | Fact::ClusterLinkSet { .. }
            | Fact::CourseSet { .. }
            | Fact::StageEntered { .. }
            | Fact::NodesFreed { .. }
            | Fact::NodesReleased { .. }
            | Fact::NodeGhostsExpired { .. }
            | Fact::NodesChosen { .. }
            | Fact::ProfileChanged { .. }
            | Fact::LicencesSet { .. }
            | Fact::NodesHeld { .. } => Freed::Until(Time::NEVER),
        }
    }

    /// Returns whether the fact is part of a negotiation in which nothing is agreed yet. If it is lost together with
    /// the messages after it, both ends notice and start over. This does not hold for an opening by the server, whose
    /// number must not be reused, nor for an end.
    pub(crate) fn is_of_negotiation(&self) -> bool {
        let is_said = matches!(self, Fact::DialogueChanged { dialogue, .. } if match dialogue.phase() {
            Phase::Offered(by) => by == Side::Application,
            Phase::Countered(_) => true,
            Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing => false,
            Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
        });
        // Nodes are held for the proposal that comes with it.
        is_said || matches!(self, Fact::NodesHeld { .. }) || self.comes_again()
    }

    /// Returns whether the same fact would occur again if it were lost. This holds for what an agent still reports as
    /// running, for applications that were given a view, and for launchers that are away: all of these recur after a
    /// restart.
    pub(crate) fn comes_again(&self) -> bool {
        matches!(
            self,
            Fact::ShareRunning { .. }
                | Fact::CoresInForce { .. }
                | Fact::CpusInForce { .. }
                | Fact::JobsQueued { .. }
                | Fact::DepthChosen { .. }
                | Fact::LauncherLinkChanged { link: LauncherLink::Away { .. }, .. }
        )
    }
}
