//! Writes a job's hostfiles: the forms that Open MPI and MPICH read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::order::Order;
use rms_api::desired::LaunchNode;

/// `name slots=n` as Open MPI reads it.
pub fn openmpi(order: &Order) -> String {
    let mut text = heading(order);
    for (node, slots) in slots(order) {
        let _infallible = writeln!(text, "{} slots={slots}", node.name);
    }
    text
}

/// `name:n` as MPICH's Hydra reads it.
pub fn mpich(order: &Order) -> String {
    let mut text = heading(order);
    for (node, slots) in slots(order) {
        let _infallible = writeln!(text, "{}:{slots}", node.name);
    }
    text
}

/// How often the nodes have changed, counted from 1.
pub fn generation(order: &Order) -> String {
    format!("{}\n", order.launch.generation)
}

/// Where the hostfiles of an execution are.
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

/// Not of which job they are: those of the next one of the same size need not be written.
fn heading(order: &Order) -> String {
    format!("# generation {}\n", order.launch.generation)
}

/// A node that holds no task still has its CPUs, which a script may use. One that the job is to leave is none of its any
/// more.
fn slots(order: &Order) -> impl Iterator<Item = (&LaunchNode, u32)> {
    order.usable().map(|node| (node, if node.n_tasks > 0 { node.n_tasks } else { node.cpus.max(1) }))
}
