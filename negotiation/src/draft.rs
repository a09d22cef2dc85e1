//! A template as received: plain numbers that are not validated yet.

use serde::{Deserialize, Serialize};

use crate::subject::{Direction, Parties, SetRule};

/// A template before validation; `Template::try_from` validates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// The parties that negotiate.
    pub parties: Parties,
    /// What the application wants to do.
    pub direction: Direction,
    /// How each set must be met.
    pub sets: Vec<SetRule>,
    /// The resources.
    pub items: Vec<DraftItem>,
}

/// A resource before validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftItem {
    /// The number of its set.
    pub set: u16,
    /// [`NODES`], [`CORES`], [`TIME`], [`MEMORY`], [`DEVICES`] or [`LICENCES`].
    pub kind: u16,
    /// 0 for wall time.
    pub cluster: u16,
    /// The name of devices or licences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Nodes; cores, MiB or devices on each node; licences; or milliseconds.
    pub quantity: u64,
    /// In the same unit.
    pub held: u64,
    /// Numbers of nodes, each once.
    pub nodes: Vec<u32>,
    /// Whether this item is refused, in an any-of or one-of set.
    pub refused: bool,
    /// Least useful quantity.
    pub least: u64,
    /// Greatest useful quantity.
    pub most: u64,
    /// [`ANY`], [`MULTIPLE_OF`], [`POWER_OF_TWO`] or [`LISTED`].
    pub shape: u16,
    /// One number for multiples, the sizes for a list, otherwise none.
    pub sizes: Vec<u64>,
    /// Milliseconds.
    pub duration: Option<i64>,
    /// Per unit and hour.
    pub price: u64,
    /// Milliseconds since 1970.
    pub deadline: Option<i64>,
    /// Milliseconds since 1970.
    pub give_back_by: Option<i64>,
    /// Higher goes first.
    pub priority: i32,
}

/// Kind: nodes of a cluster.
pub const NODES: u16 = 1;
/// Kind: cores on each held node of a cluster.
pub const CORES: u16 = 2;
/// Kind: wall time.
pub const TIME: u16 = 3;
/// Kind: MiB of memory on each held node of a cluster.
pub const MEMORY: u16 = 4;
/// Kind: devices of one name on each held node of a cluster.
pub const DEVICES: u16 = 5;
/// Kind: licences of one name of a cluster.
pub const LICENCES: u16 = 6;

/// Shape: every total.
pub const ANY: u16 = 0;
/// Shape: multiples of one number.
pub const MULTIPLE_OF: u16 = 1;
/// Shape: powers of two.
pub const POWER_OF_TWO: u16 = 2;
/// Shape: a list of totals.
pub const LISTED: u16 = 3;
