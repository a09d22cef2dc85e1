//! What a launcher and the server say to each other on a launcher's channel (001, §4.2).
//!
//! The channel begins with [`ClientCall::Launcher`](crate::ClientCall); then [`LauncherSays`] frames go up and
//! [`LauncherTold`] frames come down, each at any time. It speaks for one application: the one that its first call
//! subscribes or attaches.

use bincode::{Decode, Encode};

use crate::message::{Kind, Message, Size};
use crate::negotiate::Malleable;
use crate::refused::Refused;
use crate::vocabulary::{Constraint, Limits, Outcome, Request, Stdio, Variable, Work};

/// `seq` is the launcher's to choose. Each call is answered once, under its `seq`, and the answers come in the order of
/// the calls.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LauncherSays {
    pub seq: u64,
    pub call: LauncherCall,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LauncherCall {
    Subscribe(Box<Subscription>),
    Attach {
        job: u64,
    },
    Clusters {
        job: u64,
    },
    Request {
        job: u64,
        wish: Wish,
    },
    Launch {
        job: u64,
        tag: u64,
        launch: Box<Launchable>,
    },
    Accept {
        job: u64,
        tag: u64,
    },
    Finish {
        job: u64,
        tag: u64,
        code: i32,
    },
    /// As `Subscribe`; what it launches changes its size while it runs.
    SubscribeMalleable {
        subscription: Box<Subscription>,
        malleable: Malleable,
    },
    /// As `Launch`, of what changes its size while it runs.
    LaunchMalleable {
        job: u64,
        tag: u64,
        launch: Box<Launchable>,
        malleable: Malleable,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Subscription {
    pub name: String,
    pub filter: Filter,
    pub priority: i32,
    pub comment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Filter {
    /// By name; empty means any.
    pub clusters: Vec<String>,
    pub least_hosts: u32,
    pub constraint: Constraint,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Wish {
    pub tag: u64,
    /// The version of the view from which it was chosen; 0 before any.
    pub seen: u64,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Launchable {
    pub work: Work,
    pub n_tasks: Option<u32>,
    pub cpus_per_task: u32,
    pub cwd: String,
    pub environment: Vec<Variable>,
    pub umask: u32,
    pub stdio: Stdio,
    pub limits: Limits,
}

/// What the server tells a launcher: answers, and what it was not asked for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LauncherTold {
    Answer {
        seq: u64,
        answer: LauncherAnswer,
    },
    /// 001: changeNotify. A long one comes in parts; the same version in all of them.
    Changed(ViewPart),
    /// 001: startNotify.
    Started(Box<Grant>),
    /// The application has left; nothing comes after this.
    Ended {
        outcome: Outcome,
    },
    /// Another channel speaks for the application now; nothing comes after this.
    Replaced,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LauncherAnswer {
    Refused(Refused),
    Subscribed { job: u64, request_until: Option<i64> },
    Clusters(ClusterInfos),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterInfos {
    pub clusters: Vec<ClusterInfo>,
    pub links: Vec<ClusterLink>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterInfo {
    pub cluster: u16,
    pub name: String,
    pub hosts: u32,
    pub cpus: u32,
    pub memory_mib: u64,
    pub features: Vec<String>,
}

/// The same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterLink {
    pub one: u16,
    pub other: u16,
    pub latency_us: u32,
    /// 0 is unknown.
    pub bandwidth_mbit: u32,
}

/// `last` marks the part with which the change is complete. A cluster whose pairs do not fit into a part goes on as the
/// first of the next one, under the same id: its pairs follow on those before.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ViewPart {
    pub version: u64,
    pub at: i64,
    pub clusters: Vec<ClusterPart>,
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterPart {
    pub cluster: u16,
    pub info: bool,
    pub capacity: u32,
    pub occupied: Option<Occupied>,
}

/// An occupation profile, compact: when it begins, and its steps one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Occupied {
    /// Milliseconds from the part's `at` to where the first pair begins.
    pub after: i64,
    /// None of them lasts for nothing, neighbours differ in hosts, and neither the first nor the last has 0.
    pub pairs: Vec<HostSpan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostSpan {
    pub millis: u64,
    pub hosts: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    pub tag: u64,
    pub run: u32,
    pub at: i64,
    pub request: Request,
    pub until: i64,
    pub answer_until: i64,
    pub hosts: Vec<GrantedHost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GrantedHost {
    pub name: String,
    pub cluster: u16,
    pub address: String,
    pub cpus: u32,
}

impl Message for LauncherSays {
    const KIND: Kind = Kind::LauncherSays;
    const SIZE: Size = Size::Bulk;
}

impl Message for LauncherTold {
    const KIND: Kind = Kind::LauncherTold;
    // A grant may name all hosts of a cluster.
    const SIZE: Size = Size::Whole;
}

/// The most pairs in one part of a view, over all its clusters. Between parts of different changes, what became old is
/// left out; so parts are short.
pub const MAX_PAIRS: usize = 4096;
