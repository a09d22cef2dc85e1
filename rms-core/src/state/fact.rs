//! What became true here: the journal's contents. Facts are applied, never judged again.

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
    /// The node described itself anew.
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
        /// What it has of those that it shares; the others it has alone.
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
        /// When that was, if it is told only now because nobody could be told then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
    },
    /// How the job ends is settled; the nodes that still run it are told to end it.
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
        /// What was negotiated with it, for the history.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        negotiations: Vec<NegotiationRecord>,
        /// When that was told of, if not at its end: a ghost begins then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Time>,
    },
    /// 001: the ghost expired.
    GhostExpired {
        job: JobId,
    },
    /// Back to the queue, in its old place, after a node of it was lost and the others are clear.
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
    /// Expired or ended tokens are forgotten in time.
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
    /// What an agent still runs though nothing wants it; the node is not used until this is empty again.
    NodeFenced {
        node: NodeId,
        stale: Vec<(JobId, Run)>,
    },
    /// Its agent has acted on a higher generation than this server knows of: it served the node before the node was
    /// removed, or before the journal was brought back from a copy. Counting goes on from there, or the agent would
    /// take every wish for an old one.
    NodeGenerationRaised {
        node: NodeId,
        generation: Generation,
    },
    /// Under the conservative policy: when each of these jobs will start at the latest; `None` takes a promise back.
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
    },
    /// 001: request. The first one gives the application its place in the queue.
    LauncherRequested {
        job: JobId,
        at: Time,
        tag: Tag,
        request: Request,
        #[serde(default, skip_serializing_if = "Slice::is_none")]
        slice: Slice,
    },
    /// What it starts on the nodes that it was granted.
    LauncherLaunched {
        job: JobId,
        at: Time,
        launch: Box<Launchable>,
    },
    /// It uses the nodes that it was granted by its own means.
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
    /// The ghost keeps its nodes of these clusters for a shorter time than those of the others.
    GhostParted {
        job: JobId,
        until: BTreeMap<ClusterId, Time>,
    },
    /// Its nodes of this cluster are free; it keeps others.
    GhostPartExpired {
        job: JobId,
        cluster: ClusterId,
    },
    /// The stages of a running evolving application were placed, or placed anew.
    CourseSet {
        job: JobId,
        at: Time,
        course: Box<Course>,
    },
    /// An evolving application is in its next stage. Nodes that it frees stay with it until their processes are gone.
    StageEntered {
        job: JobId,
        at: Time,
        gained: Vec<NodeId>,
        freed: Vec<NodeId>,
        course: Box<Course>,
        /// What it has of those that it gains and shares, if that was not kept for it before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
    },
    /// No process is left on nodes that an evolving application has freed.
    NodesFreed {
        job: JobId,
        nodes: Vec<NodeId>,
    },
    /// An evolving application has named what it frees at its next smaller stage.
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
    /// Something was said in a negotiation with a running job, or time has ended it (002). The dialogue is the server's
    /// end after that; `asking` comes with the first word, if somebody asked for the application.
    DialogueChanged {
        job: JobId,
        at: Time,
        dialogue: Box<Dialogue>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asking: Option<Box<Asking>>,
    },
    /// These nodes, and no others, are kept free for a negotiation.
    NodesHeld {
        job: JobId,
        negotiation: NegotiationId,
        nodes: Vec<NodeId>,
        /// What is kept of those that it would share, if they were not kept before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
    },
    /// The application was asked to leave these nodes, on which its processes run on until it says that it has.
    NodesDeparting {
        job: JobId,
        at: Time,
        nodes: Vec<NodeId>,
    },
    /// It keeps the nodes that it was asked to leave.
    NodesStay {
        job: JobId,
    },
    /// Within which limits the application lets itself be changed from now on.
    LimitsDeclared {
        job: JobId,
        declared: Declared,
    },
    /// It was warned: it has not given what it promised.
    PromiseWarned {
        job: JobId,
        negotiation: NegotiationId,
        at: Time,
    },
    /// Nodes that it had for a time are asked back.
    LoanCalled {
        job: JobId,
        /// By which they were lent.
        negotiation: NegotiationId,
        /// On which cluster, of those that it was about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<ClusterId>,
        /// By which they are asked back.
        by: NegotiationId,
    },
    /// Nodes that it had for a time were taken.
    LoanEnded {
        job: JobId,
        negotiation: NegotiationId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<ClusterId>,
    },
    /// On these nodes it is to have so many cores from now on; that is so once their agents have said so.
    CoresSet {
        job: JobId,
        negotiation: NegotiationId,
        cores: Vec<(NodeId, u32)>,
        /// On clusters that are shared by cores: which ones it gets beside those that it has.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        more: BTreeMap<NodeId, Indices>,
    },
    /// Its processes on this node keep to the cores, memory and devices that it was given up to this generation of its
    /// nodes.
    CoresInForce {
        job: JobId,
        node: NodeId,
        generation: u32,
    },
    /// It says that it has left nodes that it frees: its processes there may be ending by themselves.
    NodesReleased {
        job: JobId,
        nodes: Vec<NodeId>,
    },
    /// Somebody did something that the audit tells of, beside settings, which tell it themselves.
    Audited {
        entry: AuditEntry,
    },
    /// A cluster that had no nodes any more.
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
    /// They are free.
    NodeGhostsExpired {
        nodes: Vec<NodeId>,
        at: Time,
    },
    /// The negotiator of the application has said whether it can go on without nodes that are lost.
    LossDeclared {
        job: JobId,
        survives: bool,
    },
    /// Something else is said of a job now. What it runs stays as it is, and is not in it.
    JobUpdated {
        job: JobId,
        /// Without its environment.
        spec: Arc<JobSpec>,
        /// If it is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Arc<Environment>>,
        /// Of a job that runs, if it is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wall: Option<Span>,
        by: String,
        at: Time,
    },
    /// How many of the queue's first applications a pass considers, where that is the server's to choose.
    DepthChosen {
        depth: u32,
    },
    /// On these nodes it is to have the memory and the devices of these grants from now on, with the cores that it has; that
    /// is so once their agents have said so, as of cores.
    GrantsSet {
        job: JobId,
        negotiation: NegotiationId,
        grants: BTreeMap<NodeId, Grant>,
    },
    /// From now on it has these licences of a cluster.
    LicencesSet {
        job: JobId,
        negotiation: NegotiationId,
        cluster: ClusterId,
        licences: Devices,
    },
    /// 004: it lends cores to a guest, has begun as one, or has its own again. All that it has now, and how long it may
    /// take with that, from its start on.
    CpusShared {
        job: JobId,
        at: Time,
        sharing: Box<Sharing>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        grants: BTreeMap<NodeId, Grant>,
        wall: Span,
    },
    /// Its processes on this node keep to the CPUs that it was given up to this generation.
    CpusInForce {
        job: JobId,
        node: NodeId,
        generation: u32,
    },
}

/// What a fact may have freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Freed {
    /// No node, and nobody's place before others.
    #[default]
    Nothing,
    /// What others were promised already.
    AsPromised,
    /// What may let a job start earlier than it was promised: nothing of it is after that time.
    Until(Time),
}

fn awaits_agents(state: &State, job: JobId) -> bool {
    state.jobs().get(&job).and_then(|entry| entry.started()).is_some_and(Started::awaits_agents)
}

impl Fact {
    /// `state` is the one before it, and what anybody was promised is of the pass at `last_pass`.
    pub(crate) fn frees(&self, state: &State, last_pass: Option<Time>) -> Freed {
        match self {
            // Of shared nodes others may have what it has given back.
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
            | Fact::LoanCalled { .. }
            | Fact::LoanEnded { .. }
            | Fact::CoresSet { .. }
            | Fact::GrantsSet { .. }
            | Fact::CpusInForce { .. }
            | Fact::CoresInForce { .. } => Freed::AsPromised,
            Fact::JobDone { record, ghost_until, .. } => {
                let entry = state.jobs().get(&record.job);
                let Some(started) = entry.and_then(|entry| entry.started()) else { return Freed::Until(Time::NEVER) };
                let expected = started.at + started.request.wall;
                // Those after an application that was late when they were placed were placed by a guess, which may have
                // been any.
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

    /// Is it mere talk, before anything is agreed? If it is lost with the last of the talk, both ends find that out and
    /// begin anew. Not so an opening of the server, whose number must not be used again, nor an end.
    pub(crate) fn is_of_negotiation(&self) -> bool {
        let is_said = matches!(self, Fact::DialogueChanged { dialogue, .. } if match dialogue.phase() {
            Phase::Offered(by) => by == Side::Application,
            Phase::Countered(_) => true,
            Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing => false,
            Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
        });
        // Nodes are kept for what is said with it.
        is_said || matches!(self, Fact::NodesHeld { .. }) || self.comes_again()
    }

    /// Would the same fact come about again if it were lost? So it is with what an agent still reports as running,
    /// with applications that have been given a view, and with launchers that are away: after a restart all are.
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
