//! Runs an iterative program on one or several clusters, depending on their latency (001, §5.2.3, Algorithm 2).
//!
//! `rms up --clusters a:2,b:2`, `rms admin link a b --latency 5ms`, then
//! `cargo run -p launcher-sdk --example iterative -- 1000 20 1 ./solver`: a thousand iterations, each of which takes one node
//! of speed 1 20 ms and then waits for one message between the clusters.

use std::error::Error;

use launcher_sdk::blocking::Client;
use launcher_sdk::launcher::{Action, Program, Start, Subscription, iterative};
use launcher_sdk::schedule::linked::Turns;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: iterative ITERATIONS MILLISECONDS-ON-ONE-NODE MESSAGES PROGRAM [ARGS]";
    let iterations: u64 = args.next().ok_or(usage)?.parse()?;
    let work_millis: u64 = args.next().ok_or(usage)?.parse()?;
    let messages: u64 = args.next().ok_or(usage)?.parse()?;
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here()?;
    let turns = Turns { iterations, work_micros: work_millis.saturating_mul(1000), messages, kilobytes: 0 };
    let start = |start: &Start| {
        println!("started on {}", start.node_list());
        Action::launch(Program::new(argv.clone()).output("iterative-%j-%t.out"))
    };
    let outcome = client.launch(Subscription::named("iterative"), &mut iterative(turns, start))?;
    println!("{outcome}");
    Ok(())
}
