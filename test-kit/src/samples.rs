//! The plainest submission, and the plainest node of a job: a test changes what it is about.

use rms_api::call::{Nodes, Shape, Submission};
use rms_api::desired::LaunchNode;
use rms_model::{Labels, NodeId, Span, Work};

/// Returns a submission of `true` on `n_nodes` nodes.
pub fn submission(n_nodes: u32, wall: Span) -> Submission {
    let shape = Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) };
    let work = Work::Tasks { argv: vec!["true".to_owned()] };
    Submission { labels: Labels::named("j"), ..Submission::of(work, vec![shape]) }
}

/// Returns a node of cluster `a` with one task on one CPU.
pub fn place(name: &str) -> LaunchNode {
    LaunchNode {
        node: NodeId(1),
        name: name.to_owned(),
        cluster: "a".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        first_task: 0,
        n_tasks: 1,
        cpus: 1,
        asked_cpus: 0,
        shares_cpus: false,
        joined: 1,
        departing: false,
        grant: None,
    }
}
