//! Applications whose needs change: what they announce, and how far they are.

use bincode::{Decode, Encode};

/// An evolution profile, and how it may be changed to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Evolving {
    pub stages: Vec<Stage>,
    pub limit: ExpandLimit,
    pub compacting: bool,
    pub open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Stage {
    pub hosts: u32,
    pub span: i64,
}

/// How much longer than asked for a stage may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ExpandLimit {
    /// Thousandths of what was asked for; at least 1000.
    Milli(u32),
    Infinite,
}

/// How far an evolving application is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Stages {
    pub number: u32,
    pub n_stages: u32,
    pub legs: Vec<StageLine>,
    pub late_by: Option<i64>,
    pub open: bool,
    pub generation: u32,
    pub chosen: Vec<String>,
    pub leaving: Vec<String>,
    pub n_violations: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StageLine {
    pub hosts: u32,
    pub span: i64,
    pub start: Option<i64>,
}
