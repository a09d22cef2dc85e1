//! A program that grows and shrinks while it computes (002) and prints its nodes after each change.
//!
//! `rms submit --malleable 1-4 --negotiable --wrap 'elastic 1-4'`. At its start, `elastic 1-4 grow 2` requests two more
//! nodes, and `elastic 1-4 grow a:1,b:2` requests nodes of two clusters, all of them or none. It ends when its working
//! directory contains the file `stop`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use launcher_sdk::model::Span;
use launcher_sdk::negotiator::{
    Change, HostfileStyle, JobEnvironment, Limits, Negotiator, Resizing, SetRule, Settled, Want,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elastic: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let usage = "usage: elastic LEAST-MOST [grow NODES | grow CLUSTER:NODES,...]";
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (least, most) = args.first().and_then(|range| range.split_once('-')).ok_or(usage)?;
    let limits = Limits::between(least.parse()?, most.parse()?);

    let negotiator = Negotiator::connect_with(JobEnvironment::read()?.surviving_loss()).await?;
    let mut resizing = Resizing::within(&negotiator, limits).await?;
    println!("begins on {}", names(&negotiator));
    if let [_, word, n_nodes] = args.as_slice() {
        if word != "grow" {
            return Err(usage.into());
        }
        let want = wanted(n_nodes)?.within(Span::from_secs(15));
        let asked = negotiator.request(want).await?;
        match asked.settled().await? {
            Settled::Ready(ready) => println!("got {} more, as {}", ready.nodes.len(), asked.id()),
            Settled::Ended { ending, reason, why } => {
                println!("got nothing ({ending}): {}", why.unwrap_or_else(|| reason.to_string()));
            }
        }
    }
    while !Path::new("stop").exists() {
        // An iteration of the program.
        tokio::time::sleep(Duration::from_millis(50)).await;
        while let Some(change) = resizing.breakpoint().await? {
            match change {
                Change::Added(added) => {
                    negotiator.write_hostfile("nodes", HostfileStyle::Names)?;
                    println!("generation {}: grown to {}", added.holding.generation, names(&negotiator));
                }
                Change::Leave(leave) => {
                    println!("leaves {}", leave.names().join(" "));
                    leave.done().await?;
                }
                Change::Lost(nodes) => {
                    let lost: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                    println!("lost {}", lost.join(" "));
                }
            }
        }
    }
    println!("ends on {}", names(&negotiator));
    Ok(())
}

/// Parses `2` (one node is acceptable, too) or `a:1,b:2`.
fn wanted(text: &str) -> Result<Want, Box<dyn Error>> {
    if let Ok(n_nodes) = text.parse() {
        return Ok(Want::grow(n_nodes).at_least(1));
    }
    let mut nodes: Vec<(&str, u64)> = Vec::new();
    for part in text.split(',') {
        let (cluster, n_nodes) = part.split_once(':').ok_or("write 2, or a:1,b:2")?;
        nodes.push((cluster, n_nodes.parse()?));
    }
    Ok(Want::grow_on(SetRule::All, nodes))
}

fn names(negotiator: &Negotiator) -> String {
    let mut names: Vec<String> = negotiator.nodes().into_iter().map(|node| node.name).collect();
    names.sort();
    names.join(" ")
}
