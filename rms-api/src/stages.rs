//! How far an application with a profile is, and what comes.

use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

/// How far an evolving application is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// Which stage it is in, counted from 1; the first one while it waits.
    pub number: u32,
    /// How many there are with those before.
    pub n_stages: u32,
    /// This stage and those after it, as far as they were asked for: a line of the queue has two.
    pub legs: Vec<StageLine>,
    /// By how much the next stage is late.
    pub late_by: Option<Span>,
    /// More may follow.
    pub open: bool,
    /// Counts the changes of its nodes, from 1; 0 while it waits.
    pub generation: u32,
    /// Nodes that it frees at its next smaller stage, by name.
    pub chosen: Vec<String>,
    /// Nodes that it has freed, but whose processes have not been seen gone.
    pub leaving: Vec<String>,
    /// How often its processes had to be killed because they did not leave nodes that it had freed.
    pub n_violations: u32,
}

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLine {
    pub nodes: u32,
    /// As requested.
    pub span: Span,
    /// As promised, or estimated while it waits; absent where nobody can say.
    pub start: Option<Time>,
}
