//! A launcher with an algorithm of its own that uses the nodes by its own means and can be restarted.
//!
//! It runs a command *here*, with the names of its nodes in `RMS_NODES`, as a program that reaches nodes by ssh would.
//! It requests the largest power of two of nodes that is free within the next minute, or else waits for the view to
//! change.
//!
//! `rms up`, then `cargo run -p launcher-sdk --example own_algorithm -- job.id 60 sh -c 'echo $RMS_NODES'`. The file
//! `job.id` keeps the application's id: if the launcher is restarted while the file exists, it resumes that
//! application.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

use launcher_sdk::Client;
use launcher_sdk::launcher::{self, Action, Launcher, Seen, Start, Subscription};
use launcher_sdk::model::{ClusterId, JobId, Outcome, Request, Span};

struct PowersOfTwo {
    id_file: PathBuf,
    wall: Span,
    argv: Vec<String>,
}

/// How long it waits for a larger power of two.
const PATIENCE: Span = Span::from_mins(1);

impl Launcher for PowersOfTwo {
    fn on_subscribed(&mut self, job: JobId) {
        // Without the file, a killed launcher cannot resume; the application would end after the grace period.
        if let Err(error) = std::fs::write(&self.id_file, job.to_string()) {
            eprintln!("{}: {error}", self.id_file.display());
        }
        println!("application {job}");
    }

    fn on_view(&mut self, seen: &Seen<'_>) -> Option<Request> {
        let sight = seen.sight();
        let in_time = |cluster: ClusterId, n_nodes: u32| {
            sight
                .first_hole(cluster, n_nodes, self.wall, seen.now())
                .is_some_and(|start| start <= seen.now() + PATIENCE)
        };
        // 16, 8, 4, 2, 1: the first that some cluster has in time.
        let sizes = (0..=4).rev().map(|exponent| 1 << exponent);
        let mut choices = sizes.flat_map(|n_nodes| seen.clusters().iter().map(move |info| (info.cluster, n_nodes)));
        let (cluster, n_nodes) = choices.find(|(cluster, n_nodes)| in_time(*cluster, *n_nodes))?;
        println!("asks for {n_nodes} nodes");
        Some(Request::on_one(cluster, n_nodes, self.wall))
    }

    fn on_start(&mut self, start: &Start) -> Action {
        // Nothing is known of a command that an earlier launcher process started: this one starts it again.
        let again = if start.is_resumed { " again" } else { "" };
        println!("started{again} on {}", start.node_list());
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env("RMS_NODES", start.node_list());
        Action::command(command)
    }

    fn on_end(&mut self, outcome: &Outcome) {
        // The file may not exist any more.
        let _ = std::fs::remove_file(&self.id_file);
        println!("{outcome}");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: own_algorithm ID-FILE SECONDS PROGRAM [ARGS]";
    let id_file = PathBuf::from(args.next().ok_or(usage)?);
    let wall = Span::from_secs(args.next().ok_or(usage)?.parse()?);
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err(usage.into());
    }

    let client = Client::connect_here().await?;
    let before = std::fs::read_to_string(&id_file).ok().and_then(|text| text.trim().parse().ok());
    let mut own = PowersOfTwo { id_file, wall, argv };
    match before {
        Some(job) => launcher::resume(&client, job, &mut own).await?,
        None => launcher::run(&client, Subscription::named("own"), &mut own).await?,
    };
    Ok(())
}
