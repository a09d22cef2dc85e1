//! `rms release`: lets held jobs start.

use super::jobs_done::JobsDone;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::look_up;
use crate::select;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms release 7                  let job 7 start when it fits
  rms release all                all of your held jobs (admins: of all users)")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(required = true, value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let select = look_up::resolve(&client, select).await?;
    let done = client.release(select.clone()).await?;
    let answer = JobsDone::of_state("released", &select, done);
    answer.show(&context.output)
}
