//! Writes a job's host files: the forms that Open MPI and MPICH read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::order::Order;
use rms_api::desired::Host;

/// `name slots=n` as Open MPI reads it.
pub fn openmpi(order: &Order) -> String {
    let mut text = heading(order);
    for (host, slots) in slots(order) {
        let _infallible = writeln!(text, "{} slots={slots}", host.name);
    }
    text
}

/// `name:n` as MPICH's Hydra reads it.
pub fn mpich(order: &Order) -> String {
    let mut text = heading(order);
    for (host, slots) in slots(order) {
        let _infallible = writeln!(text, "{}:{slots}", host.name);
    }
    text
}

/// How often the hosts have changed, counted from 1.
pub fn generation(order: &Order) -> String {
    format!("{}\n", order.launch.generation)
}

/// Where the host files of an execution are.
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

/// A host that holds no task still has its CPUs, which a script may use. One that the job is to leave is none of its any
/// more.
fn slots(order: &Order) -> impl Iterator<Item = (&Host, u32)> {
    order.usable().map(|host| (host, if host.n_tasks > 0 { host.n_tasks } else { host.cpus.max(1) }))
}
