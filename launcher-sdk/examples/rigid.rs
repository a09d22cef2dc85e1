//! Runs a command on a fixed number of nodes of the cluster where it completes first (001, §5.2.2).
//!
//! `rms up`, then `cargo run -p launcher-sdk --example rigid -- 2 60 hostname`: two nodes, for a minute at most.

use std::error::Error;

use launcher_sdk::blocking::Client;
use launcher_sdk::launcher::{Action, Program, Start, Subscription, Walls, rigid};
use launcher_sdk::model::Span;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: rigid NODES SECONDS PROGRAM [ARGS]";
    let n_nodes: u32 = args.next().ok_or(usage)?.parse()?;
    let wall = Span::from_secs(args.next().ok_or(usage)?.parse()?);
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here()?;
    let start = |start: &Start| {
        println!("started on {}", start.node_list());
        Action::launch(Program::new(argv.clone()).output("rigid-%j-%t.out"))
    };
    let mut launcher = rigid(n_nodes, Walls::Everywhere(wall), start);
    let outcome = client.launch(Subscription::named("rigid"), &mut launcher)?;
    println!("{outcome}");
    Ok(())
}
