//! `rms evolve`: announces new stages of an evolving job.

use rms_model::JobId;
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::look_up;
use crate::output::Show;
use crate::profile::ProfileText;
use crate::select;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
For a waiting job, this replaces its profile. A running job announces its stages
from now on: the first one is what it holds. If the others do not fit, nothing
changes, and the answer says when they would.

Examples:
  rms evolve 7 --profile 4x10m,8x1h        four nodes for ten minutes more, then
                                           eight
  rms evolve $RMS_JOB_ID --profile 4x30m --open    more may follow")]
pub struct Args {
    /// Which job: an id, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Stages: NODESxTIME,... or a file FILE.toml or FILE.json
    #[arg(long, value_name = "PROFILE")]
    profile: ProfileText,
    /// Allow more stages to be announced before these are over
    #[arg(long)]
    open: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let which = select::one(&args.job)?;
    let announced = args.profile.read(&Caller::read()?.cwd)?;
    let open = args.open || announced.open;
    let client = context.client_inside(which.id()).await?;
    let job = look_up::one(&client, which).await?;
    client.evolve(job, announced.stages.clone(), open).await?;
    context.output.show(&Evolved { job, stages: announced.stages.to_string() })?;
    Ok(Exit::OK)
}

struct Evolved {
    job: JobId,
    stages: String,
}

impl Show for Evolved {
    fn text(&self) -> String {
        format!("job {}: {}\n", self.job, self.stages)
    }

    fn json(&self) -> Value {
        json!({"job": self.job.0, "profile": self.stages})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.job.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
