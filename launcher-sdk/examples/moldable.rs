//! Runs a command on the number of nodes with which it completes first, by Amdahl's law (001, §5.2.1 and Algorithm 1).
//!
//! `rms up`, then `cargo run -p launcher-sdk --example moldable -- 0.95 3600 4 ./solver`: 95 % of it is parallel, an hour
//! on one node, at most 4 nodes. It chooses again whenever the view changes, until it starts.

use std::error::Error;

use launcher_sdk::Client;
use launcher_sdk::launcher::{self, Action, Model, Program, Start, Subscription, Walls, planned};
use launcher_sdk::model::Span;
use launcher_sdk::schedule::moldable::Sizes;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: moldable PARALLEL-PART SECONDS-ON-ONE-NODE MOST-NODES PROGRAM [ARGS]";
    let parallel: f64 = args.next().ok_or(usage)?.parse()?;
    let on_one = Span::from_secs(args.next().ok_or(usage)?.parse()?);
    let sizes = Sizes { least: 1, most: args.next().ok_or(usage)?.parse()? };
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here().await?;
    let model = Model::amdahl(parallel, Walls::Everywhere(on_one))?;
    // `launcher::moldable` does the same without the report.
    let plan = move |seen: &launcher::Seen<'_>| {
        let proposal = model.propose(seen, sizes)?;
        if seen.requested().is_none_or(|wanted| wanted.request != proposal.request) {
            let delay = proposal.start.since(seen.now());
            println!("asks for {} nodes for {}, in {delay}", proposal.request.n_nodes(), proposal.request.wall);
        }
        Some(proposal)
    };
    let start = |start: &Start| {
        println!("started on {}", start.node_list());
        Action::launch(Program::new(argv.clone()).output("moldable-%j-%t.out"))
    };
    let outcome = launcher::run(&client, Subscription::named("moldable"), &mut planned(plan, start)).await?;
    println!("{outcome}");
    Ok(())
}
