//! What an application and the server say to each other about its size, beside the dialogue's own messages (002).
//!
//! Two ways lead to a negotiation. A process of the job may *negotiate for the application*: it attaches over a channel of
//! its own and runs the application's end of the dialogues. Or somebody *asks* once and waits for what comes of it: a
//! user at a shell, a script, or an agent whose ranks called `MPI_Comm_spawn`; the server then runs the application's
//! end by what the ask allows.

use std::collections::BTreeMap;

use negotiation::{Direction, Ending, Message, NegotiationId, Phase, Price, Reason, Reminder, Rules};
use rms_model::{ClusterId, Devices, JobId, Malleable, Mebibytes, NodeId, Outcome, Run, Sizes, Span, Speedup, Time};
use serde::{Deserialize, Serialize};

use crate::stages::Stages;

/// What somebody wants for an application, and what of it would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub direction: Direction,
    pub what: Asked,
    /// How many nodes, licences or milliseconds, or how many cores, MiB or devices on each node, more or less.
    pub quantity: u64,
    /// A counter-offer of so much, or more, is accepted.
    pub least: u64,
    /// Totals that are of use.
    #[serde(deserialize_with = "rms_model::checked::sizes")]
    pub sizes: Sizes,
    /// The most that may be paid for a node and hour, in thousandths.
    pub price: Price,
    /// For how long; `None`: until the application ends.
    #[serde(default, deserialize_with = "rms_model::checked::opt_span")]
    pub duration: Option<Span>,
    /// When it gives nodes back: which, by name; empty: its last ones. When it is about what is inside nodes: of which;
    /// empty: of all.
    pub nodes: Vec<String>,
    /// For how long it may be waited for nodes.
    #[serde(deserialize_with = "rms_model::checked::span")]
    pub wait: Span,
}

/// What an ask is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// Nodes of a cluster, by name; `None`: of the one of the nodes that are named, or else of its first node.
    Nodes { cluster: Option<String> },
    /// Wall time, in milliseconds.
    Time,
    /// Cores on each of its nodes of a cluster, by name; `None`: of the one where it has its nodes.
    Cores { cluster: Option<String> },
    /// MiB of memory on each of them.
    Memory { cluster: Option<String> },
    /// Devices of one name on each of them: `gpu`, or with a type `gpu:a100`.
    Devices { cluster: Option<String>, name: String },
    /// Licences of one name of a cluster.
    Licences { cluster: Option<String>, name: String },
}

/// What came of an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskOutcome {
    /// It is ready: nodes and cores that came can be used, those that went are free.
    Ready {
        negotiation: NegotiationId,
        quantity: u64,
        /// Names of the nodes that came or went.
        nodes: Vec<String>,
        /// Of the job's nodes: an agent that has not heard of it yet will.
        generation: u32,
        n_rounds: u16,
    },
    /// There was no agreement, or it did not come about.
    Failed {
        negotiation: NegotiationId,
        reason: Reason,
        /// Of nodes that were asked for: how many it could have had at the end, if these were too few.
        free: Option<u32>,
    },
}

/// What the negotiator of an application says. The first call is [`NegotiatorCall::Attach`]; who does not attach has no
/// say. The caller's certificate names the job and its execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorCall {
    /// From now on this channel negotiates for the application; an older one is told [`NegotiatorNotice::Replaced`].
    /// Answered with [`NegotiatorAnswer::Attached`], which says where all open negotiations stand, and followed by what the
    /// other end has not confirmed.
    Attach(Manner),
    /// What the server may offer and ask from now on.
    Declare(Declared),
    /// A message of the application's end of a dialogue. Not answered by itself: what comes of it is
    /// [`NegotiatorNotice::Said`], and what is wrong with it [`NegotiatorNotice::Refused`].
    Say(Box<Message>),
    /// Of an application with a profile: these nodes, by name, it leaves when its next, smaller stage begins (000).
    Free(Vec<String>),
}

/// What an application can bear, as who attaches knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    pub keeps: Keeps,
    /// It can go on without nodes that are lost.
    pub survives_loss: bool,
}

/// On which of its nodes `mpirun` has started ranks: these cannot leave before all of them end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// On none: each of its processes can leave.
    #[default]
    Nothing,
    /// On all that it has now, for all that is known.
    All,
    /// On these, by name.
    Nodes(Vec<String>),
}

/// Limits within which an application can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    pub least: u32,
    pub most: u32,
    #[serde(deserialize_with = "rms_model::checked::sizes")]
    pub sizes: Sizes,
    pub speedup: Speedup,
}

impl From<&Malleable> for Declared {
    /// What was declared at submission.
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

/// What who attaches must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub job: JobId,
    pub run: Run,
    pub rules: Rules,
    /// The last number under which the application has opened a negotiation: its next ones go on from there.
    pub n_opened: u32,
    pub declared: Declared,
    pub holding: Holding,
    /// For how long it may keep nodes that it has agreed to give back.
    pub release_within: Span,
    /// The negotiations that go on: a process that was started again knows of none of them.
    pub open: Vec<Reminder>,
    /// All that there are, by name: it may ask for nodes of any.
    pub clusters: BTreeMap<ClusterId, String>,
}

/// What an application holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Counts the changes of its nodes, from 1.
    pub generation: u32,
    /// Node 0 first.
    pub nodes: Vec<HeldNode>,
    /// It is ended then.
    pub until: Time,
    /// Of an application with a profile: the stage that it is in, and those that come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Box<Stages>>,
    /// Of the clusters where it has any.
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
    /// Those that it has there: all of the node, unless it has given some back.
    pub cpus: u32,
    /// What it may use of its memory; 0: it has no limit.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub memory: Mebibytes,
    /// Those that it has there.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// It was asked to leave this node and has not confirmed that it has, or frees it at its next stage.
    pub is_departing: bool,
    /// It was given this node while it runs, and the node's agent has not made it ready: nothing can be started there yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_coming: bool,
}

/// What the negotiator of an application is told without asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorNotice {
    Said(Box<Message>),
    /// A message was not taken, though its channel is well; the dialogue goes on as it was.
    Refused {
        negotiation: NegotiationId,
        number: u32,
        reason: String,
    },
    /// Its nodes or its end have changed.
    Holding(Box<Holding>),
    /// The application has left, or is being ended. Nothing comes after it.
    Ended {
        outcome: Outcome,
    },
    /// Another channel serves it now. Nothing comes after it.
    Replaced,
    /// Somebody else has asked for something for the application: numbers up to this one are used.
    Counted {
        n_opened: u32,
    },
    /// These nodes are lost, and the application goes on without them: a shrink by force.
    NodesLost {
        nodes: Vec<NodeId>,
    },
}

/// One negotiation as `rms negotiations` shows it; also what the history keeps of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiationRecord {
    pub id: NegotiationId,
    pub direction: Direction,
    /// Who asked, if it was not the application's own end: a user, or an agent for its ranks.
    pub by: Option<String>,
    pub opened: Time,
    /// Every proposal, and every later change of the phase, in order.
    pub rounds: Vec<RoundRecord>,
    /// Names of the nodes that came or went, once known.
    pub nodes: Vec<String>,
}

impl NegotiationRecord {
    /// As a line of what is over.
    pub fn line(self, job: JobId, run: Run, owner: String) -> NegotiationLine {
        let last = self.rounds.iter().rev().find_map(|round| match &round.said {
            Said::Phase { phase, .. } => Some(*phase),
            Said::Proposed { .. } => None,
        });
        // Each ends with a phase; only what was said before is dropped where it is too much.
        let phase = last.unwrap_or(Phase::Ended(Ending::Withdrawn));
        NegotiationLine { job, run, owner, record: self, phase, until: None, held: Vec::new() }
    }
}

/// One thing that happened in a negotiation.
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
    /// From here on the proposal that stands counts.
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
    /// Of one that is not over.
    pub phase: negotiation::Phase,
    /// Until when the standing offer can be answered, or what was agreed must be ready.
    pub until: Option<Time>,
    /// Nodes that are held for it, by name.
    pub held: Vec<String>,
}

/// What an admin does to a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Ends it without a result, if it is not agreed yet.
    Withdraw,
    /// A shrink that was agreed, or that is talked about: the nodes are taken now, whatever the application says.
    Force,
}

/// What nodes have cost a user, in thousandths of the currency (002, prices).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLine {
    pub user: String,
    /// What may be spent in all; `None`: whatever it costs.
    pub budget: Option<u64>,
    /// For nodes that were given back, and for those that are held until now.
    pub spent: u64,
    /// What may become due for nodes that are held or promised, until their jobs end.
    pub reserved: u64,
}
