//! Writes a job's hostfiles in the formats of Open MPI and MPICH.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::order::Order;
use rms_api::desired::LaunchNode;

/// Returns the hostfile in Open MPI's format: `name slots=n`.
pub fn openmpi(order: &Order) -> String {
    let mut text = heading(order);
    for (node, slots) in slots(order) {
        let _infallible = writeln!(text, "{} slots={slots}", node.name);
    }
    text
}

/// Returns the hostfile in the format of MPICH's Hydra: `name:n`.
pub fn mpich(order: &Order) -> String {
    let mut text = heading(order);
    for (node, slots) in slots(order) {
        let _infallible = writeln!(text, "{}:{slots}", node.name);
    }
    text
}

/// Returns how often the nodes have changed, counted from 1.
pub fn generation(order: &Order) -> String {
    format!("{}\n", order.launch.generation)
}

/// The paths of the hostfiles of an execution.
#[derive(Clone, Debug)]
pub struct HostFiles {
    pub openmpi: PathBuf,
    pub mpich: PathBuf,
    pub generation: PathBuf,
}

impl HostFiles {
    pub fn of(dir: &Path) -> HostFiles {
        HostFiles {
            openmpi: dir.join("hosts.openmpi"),
            mpich: dir.join("hosts.mpich"),
            generation: dir.join("generation"),
        }
    }
}

/// Returns the heading. It does not name the job, so that files need not be rewritten for the next job of the same
/// size.
fn heading(order: &Order) -> String {
    format!("# generation {}\n", order.launch.generation)
}

/// Returns the slots of each node. A node without tasks still has its CPUs, which a script may use. A node that the job
/// is about to leave is omitted.
fn slots(order: &Order) -> impl Iterator<Item = (&LaunchNode, u32)> {
    order.usable().map(|node| (node, if node.n_tasks > 0 { node.n_tasks } else { node.cpus.max(1) }))
}
