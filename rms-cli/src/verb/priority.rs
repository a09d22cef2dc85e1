//! `rms priority`: moves waiting jobs before or after others, and sets how urgent running ones are.

use super::jobs_done::JobsDone;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::job_options;
use crate::look_up;
use crate::select;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms priority 7 -10             let others go before job 7
  rms priority 7 0               the initial value of every job
  rms priority 3,5-9 5           before all with less; for administrators
  rms priority all -1            all of your jobs (admins: of all users)")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(required = true, value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
    /// Priority, higher goes first; only an administrator may set it above 0
    #[arg(required = true, value_name = "N", allow_negative_numbers = true, value_parser = job_options::priority)]
    priority: i32,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let select = look_up::resolve(&client, select).await?;
    let done = client.set_priority(select.clone(), args.priority).await?;
    let answer = JobsDone::of_state(&format!("priority {}", args.priority), &select, done);
    answer.show(&context.output)
}
