//! Messages between an application and the server about its size, other than the messages of the dialogue itself (002).
//!
//! There are two ways to negotiate. A process of the job may *negotiate for the application*: it attaches over a
//! channel of its own and runs the application's end of the dialogues. Or a caller *asks* once and waits for the
//! result: a user at a shell, a script, or an agent whose ranks called `MPI_Comm_spawn`; the server then runs the
//! application's end within the limits of the ask.

use std::collections::BTreeMap;

use negotiation::{Direction, Ending, Message, NegotiationId, Phase, Price, Reason, Reminder, Rules};
use rms_model::{ClusterId, Devices, JobId, Malleable, Mebibytes, NodeId, Outcome, Run, Sizes, Span, Speedup, Time};
use serde::{Deserialize, Serialize};

use crate::stages::Stages;

/// A change requested for an application, and the acceptable limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub direction: Direction,
    pub what: Asked,
    /// The change in quantity: in nodes, licences or milliseconds, or in cores, MiB or devices on each node.
    pub quantity: u64,
    /// A counter-offer of at least this quantity is accepted.
    pub least: u64,
    /// The usable totals.
    #[serde(deserialize_with = "rms_model::checked::sizes")]
    pub sizes: Sizes,
    /// The highest price for a node and hour, in thousandths.
    pub price: Price,
    /// How long it is needed; `None` until the application ends.
    #[serde(default, deserialize_with = "rms_model::checked::opt_span")]
    pub duration: Option<Span>,
    /// When nodes are given back: their names, or empty for the last ones. When the ask is about resources inside
    /// nodes: the names of these nodes, or empty for all nodes.
    pub nodes: Vec<String>,
    /// How long to wait for nodes.
    #[serde(deserialize_with = "rms_model::checked::span")]
    pub wait: Span,
}

/// The resource that an ask is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// Nodes of a cluster, by name; `None` for the cluster of the named nodes, or else that of its first node.
    Nodes { cluster: Option<String> },
    /// Wall time, in milliseconds.
    Time,
    /// Cores on each of its nodes of a cluster, by name; `None` for the cluster where it has its nodes.
    Cores { cluster: Option<String> },
    /// MiB of memory on each of these nodes.
    Memory { cluster: Option<String> },
    /// Devices of one kind on each of these nodes: `gpu`, or with a type, `gpu:a100`.
    Devices { cluster: Option<String>, name: String },
    /// Licences of one name of a cluster.
    Licences { cluster: Option<String>, name: String },
}

/// The result of an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskOutcome {
    /// The change is ready: new nodes and cores can be used, removed ones are free.
    Ready {
        negotiation: NegotiationId,
        quantity: u64,
        /// Names of the nodes that were added or removed.
        nodes: Vec<String>,
        /// The generation of the job's nodes; an agent that does not know it yet will receive it.
        generation: u32,
        n_rounds: u16,
    },
    /// There was no agreement, or it was not carried out.
    Failed {
        negotiation: NegotiationId,
        reason: Reason,
        /// If too few nodes were free: how many the application could have had at the end.
        free: Option<u32>,
        /// If the budget of the job's owner is too small.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<BudgetShortage>,
    },
}

/// What a change costs at least, and what is left of the budget for it, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetShortage {
    pub needed: u64,
    pub left: u64,
}

/// Calls of an application's negotiator. The first call is [`NegotiatorCall::Attach`]; before it, no other call is
/// allowed. The caller's certificate names the job and its execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorCall {
    /// From now on this channel negotiates for the application; an older channel receives
    /// [`NegotiatorNotice::Replaced`]. Answered with [`NegotiatorAnswer::Attached`], which contains the state of all
    /// open negotiations, and followed by the messages that the other end has not confirmed.
    Attach(Manner),
    /// Sets the limits of what the server may offer and ask for from now on.
    Declare(Declared),
    /// A message of the application's end of a dialogue. It has no answer of its own: a reply arrives as
    /// [`NegotiatorNotice::Said`], an error as [`NegotiatorNotice::Refused`].
    Say(Box<Message>),
    /// For an application with a profile: the names of the nodes that it frees when its next, smaller stage begins
    /// (000).
    Free(Vec<String>),
}

/// The changes that an application supports, as its negotiator declares when it attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    pub keeps: Keeps,
    /// The application can continue without lost nodes.
    pub survives_loss: bool,
}

/// The nodes on which `mpirun` has started ranks: these cannot leave before all of them end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// None: each of its processes can leave.
    #[default]
    Nothing,
    /// All that it has now, if nothing more is known.
    All,
    /// These nodes, by name.
    Nodes(Vec<String>),
}

/// The limits within which an application can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    pub least: u32,
    pub most: u32,
    #[serde(deserialize_with = "rms_model::checked::sizes")]
    pub sizes: Sizes,
    pub speedup: Speedup,
}

impl From<&Malleable> for Declared {
    /// Returns the limits declared at submission.
    fn from(malleable: &Malleable) -> Declared {
        let Malleable { least, most, sizes, speedup, on_resize: _, survives_loss: _ } = malleable.clone();
        Declared { least, most, sizes, speedup }
    }
}

/// The answer to a call that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorAnswer {
    Attached(Box<Attached>),
    Done,
}

/// The information for a negotiator that attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub job: JobId,
    pub run: Run,
    pub rules: Rules,
    /// The number of negotiations that the application has opened; it continues numbering from there.
    pub n_opened: u32,
    pub declared: Declared,
    pub holding: Holding,
    /// How long it may keep nodes that it has agreed to give back.
    pub release_within: Span,
    /// The open negotiations, which a restarted process does not know.
    pub open: Vec<Reminder>,
    /// The names of all clusters; the application may request nodes of any.
    pub clusters: BTreeMap<ClusterId, String>,
}

/// The resources that an application holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Counts the changes of its nodes, from 1.
    pub generation: u32,
    /// Node 0 first.
    pub nodes: Vec<HeldNode>,
    /// The time at which the application is ended.
    pub until: Time,
    /// For an application with a profile: its current stage, and the later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Box<Stages>>,
    /// Licences of the clusters where it has any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub licences: BTreeMap<ClusterId, Devices>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNode {
    pub node: NodeId,
    pub name: String,
    pub cluster: ClusterId,
    pub cluster_name: String,
    pub address: String,
    /// The CPUs that it has there: all of the node, unless it has given some back.
    pub cpus: u32,
    /// The cores that it has there; 0 from an older server, whose nodes have one CPU per core.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub cores: u32,
    /// The memory that it may use there; 0 for no limit.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub memory: Mebibytes,
    /// The devices that it has there.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// It was asked to leave this node and has not confirmed that it has left, or it frees the node at its next stage.
    pub is_departing: bool,
    /// It got this node while running, and this node or another one of the same growth is not prepared: nothing can be
    /// started there yet, and the node goes again if another one does not come up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_coming: bool,
}

impl Holding {
    /// Returns whether some of its nodes are [coming](HeldNode::is_coming). Until none is, nothing is said of new nodes:
    /// those that come together are used together.
    pub fn awaits_nodes(&self) -> bool {
        self.nodes.iter().any(|node| node.is_coming)
    }
}

impl HeldNode {
    /// Returns the cores that it has there.
    pub fn n_cores(&self) -> u32 {
        if self.cores == 0 { self.cpus } else { self.cores }
    }
}

/// Notices to the negotiator of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorNotice {
    Said(Box<Message>),
    /// A message was refused, although the channel works; the dialogue continues unchanged.
    Refused {
        negotiation: NegotiationId,
        number: u32,
        reason: String,
    },
    /// Its nodes or its end time have changed.
    Holding(Box<Holding>),
    /// The application has ended, or is being ended. No notice follows.
    Ended {
        outcome: Outcome,
    },
    /// Another channel serves it now. No notice follows.
    Replaced,
    /// Another caller has requested a change of the application: negotiation numbers up to this one are used.
    Counted {
        n_opened: u32,
    },
    /// These nodes are lost, and the application continues without them: a forced shrink.
    NodesLost {
        nodes: Vec<NodeId>,
    },
}

/// One negotiation as shown by `rms negotiations` and stored in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiationRecord {
    pub id: NegotiationId,
    pub direction: Direction,
    /// The caller who requested it, if it was not the application's own end: a user, or an agent for its ranks.
    pub by: Option<String>,
    pub opened: Time,
    /// Every proposal, and every later change of the phase, in order.
    pub rounds: Vec<RoundRecord>,
    /// Names of the nodes that were added or removed, once known.
    pub nodes: Vec<String>,
}

impl NegotiationRecord {
    /// Returns the record of an ended negotiation as a line.
    pub fn line(self, job: JobId, run: Run, owner: String) -> NegotiationLine {
        let last = self.rounds.iter().rev().find_map(|round| match &round.said {
            Said::Phase { phase, .. } => Some(*phase),
            Said::Proposed { .. } => None,
        });
        // Each record ends with a phase: if there are too many rounds, only the earliest ones are dropped.
        let phase = last.unwrap_or(Phase::Ended(Ending::Withdrawn));
        NegotiationLine { job, run, owner, record: self, phase, until: None, held: Vec::new() }
    }
}

/// One event of a negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRecord {
    pub at: Time,
    pub said: Said,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Proposed {
        by: negotiation::Side,
        round: u16,
        template: negotiation::Template,
    },
    /// A change of phase; the current proposal still applies.
    Phase {
        phase: negotiation::Phase,
        reason: Option<Reason>,
    },
}

/// A line of `rms negotiations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiationLine {
    pub job: JobId,
    pub run: Run,
    pub owner: String,
    pub record: NegotiationRecord,
    /// The phase of an open negotiation.
    pub phase: negotiation::Phase,
    /// The time by which the current offer must be answered, or the agreed change must be ready.
    pub until: Option<Time>,
    /// Names of the nodes that are held for it.
    pub held: Vec<String>,
}

/// An order about a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Ends it without a result, if nothing is agreed yet.
    Withdraw,
    /// Admins only: for a shrink that was agreed or is being negotiated: takes the nodes now, whatever the application
    /// answers.
    Force,
}

/// The cost of nodes for a user, in thousandths of the currency (002, prices).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLine {
    pub user: String,
    /// What may be spent in total; `None`: without limit.
    pub budget: Option<u64>,
    /// The cost of nodes that were given back, and of held ones until now.
    pub spent: u64,
    /// The cost that nodes which are held or promised may still cause until their jobs end.
    pub reserved: u64,
}
