//! A sketch of an MPI launcher: chooses the number of nodes by measured times and runs one rank per CPU.
//!
//! `rms up`, then `cargo run -p launcher-sdk --example mpi -- 1=120,2=70,4=45 ./ring`: 120 s on one node, 70 s on two and
//! 45 s on four. For a program of the MPICH family, the node agents start the ranks themselves and provide PMI: there
//! is no mpirun. `--mpirun PATH` as the first argument starts the ranks with that mpirun, as Open MPI needs.

use std::collections::BTreeMap;
use std::error::Error;

use launcher_sdk::blocking::Client;
use launcher_sdk::launcher::{Action, Filter, Model, Program, Start, Subscription, moldable};
use launcher_sdk::model::Span;
use launcher_sdk::model::job::Constraint;
use launcher_sdk::schedule::moldable::Sizes;

/// Parses `1=120,2=70`: seconds by number of nodes.
fn table(text: &str) -> Result<BTreeMap<u32, Span>, Box<dyn Error>> {
    let mut walls = BTreeMap::new();
    for pair in text.split(',') {
        let (n_nodes, secs) = pair.split_once('=').ok_or("write the times like 1=120,2=70")?;
        walls.insert(n_nodes.parse()?, Span::from_secs(secs.parse()?));
    }
    Ok(walls)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let usage = "usage: mpi [--mpirun PATH] NODES=SECONDS[,NODES=SECONDS...] PROGRAM [ARGS]";
    let mpirun = args.next_if_eq("--mpirun").and_then(|_| args.next());
    let model = Model::table(table(&args.next().ok_or(usage)?)?)?;
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here()?;
    // The view counts only nodes with at least two CPUs; a real launcher would also filter by network.
    let constraint = Constraint { cpus: 2, ..Constraint::default() };
    let filter = Filter { constraint, ..Filter::default() };
    let subscription = Subscription { filter, ..Subscription::named("mpi") };
    let start = |start: &Start| {
        // Ranks are spread over the nodes in blocks, so the node with the fewest CPUs decides.
        let ranks_each = start.grant.nodes.iter().map(|node| node.cpus).min().unwrap_or(1).clamp(1, 4);
        let n_ranks = ranks_each * start.grant.request.n_nodes();
        println!("started {n_ranks} ranks on {}", start.node_list());
        let program = match &mpirun {
            None => Program::new(argv.clone()),
            // `mpirun` on the first node reaches the other nodes through Limber.
            Some(mpirun) => Program::script("#!/bin/sh\nexec \"$@\"\n")
                .args([mpirun.clone(), "-n".to_owned(), n_ranks.to_string()])
                .args(argv.clone()),
        };
        // With mpirun, the number of tasks is the number of slots in its hostfile.
        Action::launch(program.tasks(n_ranks).output("mpi-%j-%t.out"))
    };
    let mut launcher = moldable(Sizes::at_least(1), model, start);
    let outcome = client.launch(subscription, &mut launcher)?;
    println!("{outcome}");
    Ok(())
}
