//! What `rms-rsh` and the agent of its node tell each other.

use serde::{Deserialize, Serialize};

/// First frame: run this there. Bytes of stream [`STDIN`] follow, then an empty piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A node of the job, by its name or as its host files call it.
    pub host: String,
    /// For `sh -c`.
    pub command: String,
}

/// The last frame; before it come bytes of [`STDOUT`] and [`STDERR`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Ended { code: i32 },
    Failed { reason: String },
}

pub const STDIN: u64 = 0;
pub const STDOUT: u64 = 1;
pub const STDERR: u64 = 2;

/// Where the agent listens, in the environment of every job.
pub const SOCKET_VARIABLE: &str = "RMS_AGENT_SOCKET";
/// When nothing could be run at all, as ssh says it.
pub const EXIT_FAILED: i32 = 255;
