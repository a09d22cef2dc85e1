//! Runs a command on the number of cores with which it completes first, on shared nodes: whole nodes, or some cores of
//! several (001, §5.2.1, extended to the inside of a node, which the paper's views leave out).
//!
//! `rms up`, `rms admin set allocation cores`, then `cargo run -p launcher-sdk --example cores -- 0.95 3600 16 ./solver`: 95 % of it is
//! parallel, an hour on one core, at most 16 cores. The command runs once on each node and is told how many CPUs it has
//! there by `RMS_CPUS_ON_NODE`, as the programs of all jobs are.

use std::error::Error;

use launcher_sdk::Client;
use launcher_sdk::launcher::{self, Action, Filter, Model, Program, Start, Subscription, Walls, planned};
use launcher_sdk::model::{Slice, Span};
use launcher_sdk::schedule::moldable::Sizes;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: cores PARALLEL-PART SECONDS-ON-ONE-CORE MOST-CORES PROGRAM [ARGS]";
    let parallel: f64 = args.next().ok_or(usage)?.parse()?;
    let on_one = Span::from_secs(args.next().ok_or(usage)?.parse()?);
    let sizes = Sizes { least: 1, most: args.next().ok_or(usage)?.parse()? };
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here().await?;
    let model = Model::amdahl(parallel, Walls::Everywhere(on_one))?;
    let slices: Vec<Slice> = [1, 2, 4, 8].map(|cores| Slice { cores, ..Slice::default() }).into();
    let filter = Filter { slices: slices.clone(), ..Filter::default() };
    // `launcher::moldable_cores` does the same without the report.
    let plan = move |seen: &launcher::Seen<'_>| {
        let proposal = model.propose_cores(seen, sizes, &slices)?;
        let of_each = match proposal.slice.cores {
            0 => "all cores".to_owned(),
            cores => format!("{cores} cores"),
        };
        let delay = proposal.start.since(seen.now());
        println!(
            "asks for {of_each} of {} nodes for {}, in {delay}",
            proposal.request.n_nodes(),
            proposal.request.wall
        );
        Some(proposal)
    };
    let start = |start: &Start| {
        let n_cpus: u32 = start.grant.nodes.iter().map(|node| node.cpus).sum();
        println!("started on {n_cpus} CPUs of {}", start.node_list());
        Action::launch(Program::new(argv.clone()).output("cores-%j-%t.out"))
    };
    let subscription = Subscription { filter, ..Subscription::named("cores") };
    let outcome = launcher::run(&client, subscription, &mut planned(plan, start)).await?;
    println!("{outcome}");
    Ok(())
}
