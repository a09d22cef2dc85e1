//! Applications whose hosts may change while they run (002), as their users describe them at submission.

use serde::{Deserialize, Serialize};

use crate::sizes::Sizes;

/// Between which sizes an application may be changed, and how it learns of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malleable {
    /// It is never asked to hold fewer hosts.
    pub least: u32,
    /// It is never offered more.
    pub most: u32,
    /// Which of the numbers between are of use.
    pub sizes: Sizes,
    pub on_resize: OnResize,
    pub speedup: Speedup,
}

/// What happens in the job when its hosts change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnResize {
    /// A process of the job negotiates for it, with the credentials that the agent has placed there.
    Negotiates,
    /// The work gets a signal, and confirms with `rms resize-done`.
    Signal(i32),
    /// A command is executed on the first host, and confirms with `rms resize-done`.
    Hook(String),
    /// The tasks are workers that need nothing from each other: started on hosts that come, ended on hosts that go.
    Workers,
}

/// A declared speed-up: with so many hosts, so many thousandths of the speed on one; ascending by hosts. Empty: not
/// declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Speedup(pub Vec<(u32, u32)>);
