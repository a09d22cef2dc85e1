//! `rms hold`: keeps waiting jobs from starting until they are released.

use super::jobs_done::JobsDone;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::look_up;
use crate::select;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms hold 7                     keep job 7 from starting
  rms hold all                   all of your waiting jobs (admins: of all
                                 users; user:ada names those of one)")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(required = true, value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let select = look_up::resolve(&client, select).await?;
    let done = client.hold(select.clone()).await?;
    let answer = JobsDone::of_state("held", &select, done);
    answer.show(&context.output)
}
