//! What travels about the size of a running application (002): the messages of a dialogue, what who speaks for an
//! application says beside them, and what others ask for it.
//!
//! The channel of a job's process begins with [`ClientCall::Negotiator`](crate::ClientCall); then [`NegotiatorSays`]
//! frames go up and [`NegotiatorTold`] frames come down, each at any time. Who connects with a job's certificate may
//! open nothing else but calls for that job.

use bincode::{Decode, Encode};

use crate::answer::ClusterName;
use crate::message::{Kind, Message as Frame, Size};
use crate::refused::Refused;
use crate::vocabulary::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Side {
    Rms,
    Application,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Direction {
    Grow,
    Shrink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum SetRule {
    All,
    AnyOf,
    OneOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Ending {
    Rejected,
    Expired,
    Withdrawn,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum EndReason {
    Declined,
    NoResources,
    Price,
    Policy,
    Lapsed,
    TooManyRounds,
    BadProposal,
    Crossed,
    AlreadyOpen,
    Unknown,
    Overdue,
    Lost,
    BrokenPromise,
    Administrator,
    Stopping,
    Changed,
    Recalled,
    KeepsRanks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NegotiationId {
    pub initiator: Side,
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Message {
    pub id: NegotiationId,
    pub number: u32,
    pub seen: u32,
    pub statement: Option<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Statement {
    Propose { round: u16, template: Template, valid_for: i64 },
    Accept { round: u16 },
    Commit { round: u16, hosts: Vec<u32> },
    Ready { round: u16, hosts: Vec<u32> },
    End { ending: Ending, reason: EndReason },
}

/// A template before it is checked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Template {
    pub job: u64,
    pub run: u32,
    pub initiator: Side,
    pub direction: Direction,
    pub sets: Vec<SetRule>,
    pub items: Vec<Item>,
}

/// See [`negotiation::DraftItem`] for the numbers of kinds and shapes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Item {
    pub set: u16,
    pub kind: u16,
    pub cluster: u16,
    pub quantity: u64,
    pub held: u64,
    pub hosts: Vec<u32>,
    pub refused: bool,
    pub least: u64,
    pub most: u64,
    pub shape: u16,
    pub sizes: Vec<u64>,
    pub duration: Option<i64>,
    pub price: u64,
    pub deadline: Option<i64>,
    pub give_back_by: Option<i64>,
    pub priority: i32,
}

/// `seq` is the caller's to choose. `Attach` and `Declare` are answered once each, under their `seq`; `Say` is not.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NegotiatorSays {
    pub seq: u64,
    pub call: NegotiatorCall,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NegotiatorCall {
    Attach,
    Declare(Declared),
    Say(Box<Message>),
    /// `Attach` with what the application can bear.
    AttachAs(Manner),
}

/// Which hosts the application keeps to its end, for ranks that `mpirun` has started there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Manner {
    pub keeps: Keeps,
    /// It can go on without hosts that are lost.
    pub survives_loss: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Keeps {
    Nothing,
    All,
    Hosts(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Declared {
    pub least: u32,
    pub most: u32,
    pub sizes: Sizes,
    pub speedup: Vec<SpeedupPoint>,
}

/// The shape and the numbers as in [`Item`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Sizes {
    pub shape: u16,
    pub sizes: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SpeedupPoint {
    pub hosts: u32,
    pub milli: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NegotiatorTold {
    Answer {
        seq: u64,
        answer: NegotiatorAnswer,
    },
    Said(Box<Message>),
    Refused {
        negotiation: NegotiationId,
        number: u32,
        reason: String,
    },
    Holding(Box<Holding>),
    /// Nothing comes after this.
    Ended {
        outcome: Outcome,
    },
    /// Nothing comes after this.
    Replaced,
    Counted {
        n_opened: u32,
    },
    /// These hosts are lost, and the application goes on without them.
    HostsLost {
        hosts: Vec<u32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NegotiatorAnswer {
    Refused(Refused),
    Attached(Box<Attached>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Attached {
    pub job: u64,
    pub run: u32,
    pub rules: Rules,
    pub n_opened: u32,
    pub declared: Declared,
    pub holding: Holding,
    /// In milliseconds.
    pub release_within: i64,
    pub open: Vec<Reminder>,
    pub clusters: Vec<ClusterName>,
}

/// Where a negotiation stands that who attaches may not know of.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reminder {
    pub id: NegotiationId,
    pub phase: Phase,
    pub proposals: Vec<Reminded>,
    pub hosts: Option<Vec<u32>>,
    /// In milliseconds.
    pub left: Option<i64>,
    pub said: u32,
    pub heard: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reminded {
    pub by: Side,
    pub round: u16,
    pub template: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Rules {
    pub max_rounds: u16,
    pub longest_valid: i64,
    pub apply_within: i64,
    pub repeat_first: i64,
    pub repeat_most: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Holding {
    pub generation: u32,
    pub hosts: Vec<HeldHost>,
    pub until: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HeldHost {
    pub node: u32,
    pub name: String,
    pub cluster: u16,
    pub cluster_name: String,
    pub address: String,
    pub cpus: u32,
    pub is_departing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Malleable {
    pub least: u32,
    pub most: u32,
    pub sizes: Sizes,
    pub on_resize: OnResize,
    pub speedup: Vec<SpeedupPoint>,
    pub survives_loss: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum OnResize {
    Negotiates,
    Signal(i32),
    Hook(String),
    Workers,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Ask {
    pub direction: Direction,
    pub what: Asked,
    pub quantity: u64,
    pub least: u64,
    pub sizes: Sizes,
    pub price: u64,
    pub duration: Option<i64>,
    pub hosts: Vec<String>,
    pub wait: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Asked {
    Hosts { cluster: Option<String> },
    Time,
    Cores { cluster: Option<String> },
}

/// In thousandths of the currency.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BudgetLine {
    pub user: String,
    /// None: whatever it costs.
    pub budget: Option<u64>,
    pub spent: u64,
    pub reserved: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum AskOutcome {
    Ready {
        negotiation: NegotiationId,
        quantity: u64,
        hosts: Vec<String>,
        generation: u32,
        n_rounds: u16,
    },
    Failed {
        negotiation: NegotiationId,
        reason: EndReason,
    },
    /// As `Failed`, of hosts of which only so many were free.
    Short {
        negotiation: NegotiationId,
        reason: EndReason,
        free: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    Withdraw,
    Force,
}

/// Where a negotiation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Phase {
    Idle,
    Offered(Side),
    Countered(Side),
    Pledged,
    Leaving,
    Accepted,
    Committing,
    Failing,
    Applied,
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NegotiationLine {
    pub job: u64,
    pub run: u32,
    pub owner: String,
    pub record: NegotiationRecord,
    pub phase: Phase,
    pub until: Option<i64>,
    pub held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NegotiationRecord {
    pub id: NegotiationId,
    pub direction: Direction,
    pub by: Option<String>,
    pub opened: i64,
    pub rounds: Vec<RoundRecord>,
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RoundRecord {
    pub at: i64,
    pub said: Said,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Said {
    Proposed { by: Side, round: u16, template: Template },
    Phase { phase: Phase, reason: Option<EndReason> },
}

impl Frame for NegotiatorSays {
    const KIND: Kind = Kind::NegotiatorSays;
}

impl Frame for NegotiatorTold {
    const KIND: Kind = Kind::NegotiatorTold;
    // It may name all hosts of a cluster.
    const SIZE: Size = Size::Bulk;
}
