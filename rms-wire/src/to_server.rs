//! A node agent's messages to the server on its control channel.

use rms_api::desired::{AgentHello, JobReport};
use rms_api::negotiate::Ask;
use rms_model::{Generation, JobId, Run};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message};

/// The messages of an agent. The first frame is the hello; the reports of all jobs follow, with the last one marked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    Hello(AgentHello),
    /// The actual state of jobs; long reports are sent in parts.
    Report(ReportPart),
    /// A certificate signing request for the agent's next key.
    Renew {
        #[serde(with = "serde_bytes")]
        csr: Vec<u8>,
    },
    /// A rank of a job on this node wants to spawn, and there is no room. The agent chooses `seq`.
    Ask {
        seq: u64,
        job: JobId,
        run: Run,
        ask: Ask,
    },
    /// A certificate signing request for a key of the processes of a job on this node.
    Certify {
        seq: u64,
        job: JobId,
        run: Run,
        #[serde(with = "serde_bytes")]
        csr: Vec<u8>,
    },
    /// Why no job can start on the node; absent if jobs can. Sent on each new link, and at each change.
    Trouble {
        reason: Option<String>,
    },
    /// The numbers of the kinds with which the server may begin channels, in addition to
    /// [`FollowOrder`](crate::FollowOrder).
    Serves {
        kinds: Vec<u16>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportPart {
    pub seen: Generation,
    pub jobs: Vec<JobReport>,
    pub last: bool,
}

impl Message for ToServer {
    const KIND: Kind = Kind::ToServer;
}
