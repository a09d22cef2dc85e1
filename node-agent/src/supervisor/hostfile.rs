//! Writes a job's host files: the forms that Open MPI and MPICH read.

use std::fmt::Write as _;

use super::order::Order;

/// `name slots=n` as Open MPI reads it.
pub fn openmpi(order: &Order) -> String {
    let mut text = heading(order);
    for (host, slots) in order.hosts.iter().zip(slots(order)) {
        let _infallible = writeln!(text, "{} slots={slots}", host.name);
    }
    text
}

/// `name:n` as MPICH's Hydra reads it.
pub fn mpich(order: &Order) -> String {
    let mut text = heading(order);
    for (host, slots) in order.hosts.iter().zip(slots(order)) {
        let _infallible = writeln!(text, "{}:{slots}", host.name);
    }
    text
}

fn heading(order: &Order) -> String {
    format!("# job {} run {} generation 1\n", order.job, order.run)
}

/// A host that holds no task still has its CPUs, which a script may use.
fn slots(order: &Order) -> impl Iterator<Item = u32> {
    order.hosts.iter().map(|host| if host.n_tasks > 0 { host.n_tasks } else { host.cpus.max(1) })
}
