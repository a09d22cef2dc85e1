//! Writes a job's host files: the forms that Open MPI and MPICH read.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::order::Order;
use crate::spool;

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

/// Where the host files of an execution are.
#[derive(Clone, Debug)]
pub struct HostFiles {
    pub openmpi: PathBuf,
    pub mpich: PathBuf,
    /// The number of times that the hosts have changed, from 1, and a newline.
    pub generation: PathBuf,
}

impl HostFiles {
    pub fn of(entry_dir: &Path) -> HostFiles {
        HostFiles {
            openmpi: entry_dir.join("hosts.openmpi"),
            mpich: entry_dir.join("hosts.mpich"),
            generation: entry_dir.join("generation"),
        }
    }

    /// Writes each file whole. The generation comes last: who sees it finds the hosts that it counts.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub fn write_all(&self, order: &Order) -> Result<(), (PathBuf, io::Error)> {
        let generation = format!("{}\n", order.generation);
        for (path, contents) in
            [(&self.openmpi, openmpi(order)), (&self.mpich, mpich(order)), (&self.generation, generation)]
        {
            write(path, &contents).map_err(|source| (path.clone(), source))?;
        }
        Ok(())
    }
}

/// # Errors
/// No space, no permission.
fn write(path: &Path, contents: &str) -> io::Result<()> {
    spool::write_whole(path, contents.as_bytes(), 0o644)
}

fn heading(order: &Order) -> String {
    format!("# job {} run {} generation {}\n", order.job, order.run, order.generation)
}

/// A host that holds no task still has its CPUs, which a script may use.
fn slots(order: &Order) -> impl Iterator<Item = u32> {
    order.hosts.iter().map(|host| if host.n_tasks > 0 { host.n_tasks } else { host.cpus.max(1) })
}
