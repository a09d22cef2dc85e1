//! `rms cancel`: ends jobs, or sends them a signal.

use super::jobs_done::JobsDone;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::look_up;
use crate::select;
use crate::signal;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms cancel 7                   TERM, and KILL after the grace time
  rms cancel 3,5-9               several
  rms cancel last                the newest of your jobs
  rms cancel all                 all of your jobs (admins: of all users)
  rms cancel user:ada            all of one user's (admins)
  rms cancel 7 --signal USR1     only signal its tasks; the job goes on")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(required = true, value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
    /// Send this signal to every task instead of ending the job: USR1, SIGTERM, 10
    #[arg(short, long, value_name = "SIGNAL", value_parser = signal::parse)]
    signal: Option<i32>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let select = look_up::resolve(&client, select).await?;
    let answer = match args.signal {
        Some(signal) => JobsDone::of_state("signalled", &select, client.signal(select.clone(), signal).await?),
        None => JobsDone::new("cancelled", client.cancel(select).await?),
    };
    answer.show(&context.output)
}
