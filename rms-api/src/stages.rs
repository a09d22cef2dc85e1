//! The progress of an application with a profile.

use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

/// The progress of an evolving application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// The number of the current stage, counted from 1; 1 while it waits, and 0 if it has no profile.
    pub number: u32,
    /// The number of all stages, including earlier ones.
    pub n_stages: u32,
    /// The current stage and the later ones, as far as requested: a line of the queue has two.
    pub legs: Vec<StageLine>,
    /// The delay of the next stage.
    pub late_by: Option<Span>,
    /// More stages may follow.
    pub open: bool,
    /// Counts the changes of its nodes, from 1; 0 while it waits.
    pub generation: u32,
    /// Nodes that it frees at its next smaller stage, by name.
    pub chosen: Vec<String>,
    /// Nodes that it has freed and where its processes may still be.
    pub leaving: Vec<String>,
    /// How often its processes were killed because they did not leave nodes that it had freed.
    pub n_violations: u32,
}

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLine {
    pub nodes: u32,
    /// As requested.
    pub span: Span,
    /// As promised, or estimated while it waits; absent if unknown.
    pub start: Option<Time>,
}
