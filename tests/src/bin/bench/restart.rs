//! How soon a server that was killed is of use again: the first new job after each of ten restarts.

use std::time::Instant;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::table::{Table, Target};

const N_RESTARTS: usize = 10;

/// From the start of the next server to the end of `rms run true`, each time the same.
pub fn table() -> Result<Table> {
    let mut table = Table::new("Back after `kill -9` of the server: until `rms run true` has ended, from its start");
    let mut cluster = Cluster::up(4)?;
    let begun = Instant::now();
    cluster.rms(&["run", "true"])?;
    table.note("rms run true, before", begun.elapsed().as_secs_f64() * 1000.0, "ms");
    for nth in 1..=N_RESTARTS {
        let begun = cluster.restart_server()?;
        cluster.rms(&["run", "true"])?;
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        let bound = "reading the journal, a handshake of each agent, and starting `rms` itself";
        table.measure(format!("after restart {nth}"), took, "ms", Target::AtMost(300.0), bound);
    }
    Ok(table)
}
