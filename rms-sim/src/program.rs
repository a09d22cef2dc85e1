//! What the processes of a model job do once they are started.

use std::collections::BTreeMap;

use rms_api::desired::{Launch, NodeExit};
use rms_model::{Span, Work};

/// The behaviour of one job, the same in every run of it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The time from the order to start until the processes are up.
    pub start_delay: Span,
    /// How long the work takes on a node; `None`: until the job is ended.
    pub runs: Option<Span>,
    pub exit: NodeExit,
    /// Nodes that behave differently, by their index.
    pub parts: BTreeMap<u32, Part>,
    /// The time from TERM until the processes have ended; `None`: only KILL ends them.
    pub heeds_term: Option<Span>,
    /// The time from a change of the job's nodes until its hook has adapted it; `None`: it never confirms.
    pub confirms_in: Option<Span>,
}

/// What happens on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub runs: Option<Span>,
    pub exit: NodeExit,
}

impl Default for Program {
    /// Returns a program that starts fast, runs until it is ended, and exits at once on TERM.
    fn default() -> Program {
        Program {
            start_delay: Span::from_millis(20),
            runs: None,
            exit: NodeExit::Exited { code: 0 },
            parts: BTreeMap::new(),
            heeds_term: Some(Span::from_millis(5)),
            confirms_in: None,
        }
    }
}

impl Program {
    /// Returns what happens on a node. A script runs on node 0 only: the job's other nodes wait to be used, and to be
    /// ended.
    pub fn part(&self, launch: &Launch, node_idx: u32) -> Part {
        let idles = match &launch.execution.work {
            Work::Script { .. } => node_idx > 0,
            Work::Tasks { .. } | Work::Nodes => false,
        };
        match self.parts.get(&node_idx) {
            Some(part) => part.clone(),
            None if idles => Part { runs: None, exit: NodeExit::Ordered },
            None => Part { runs: self.runs, exit: self.exit.clone() },
        }
    }
}
