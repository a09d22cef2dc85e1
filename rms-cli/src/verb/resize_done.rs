//! `rms resize-done`: confirms that a job has adapted to its nodes, and left those that it was asked to leave.

use rms_model::JobId;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::inside;
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
A job that is notified of changes by a signal or a command reports here that it
has adapted. Nodes that it was asked to leave are taken then; without a report,
they are taken after the grace time, and whatever still runs there is ended.

The generation counts the changes. Inside a job, it is the one for which the
command was executed, else the newest in the file that RMS_GENERATION_FILE
names. A script that reads its nodes later than the generation should name the
generation that it has read.

Examples:
  rms resize-done                               inside the job
  rms resize-done --generation $generation
                                           the generation read before the nodes
  rms resize-done 7 --generation 3              from outside")]
pub struct Args {
    /// Job; $RMS_JOB_ID if absent
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Generation of its nodes that the job has adapted to
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u32>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let job = inside::job(args.job.as_deref())?;
    let generation = match args.generation {
        Some(generation) => generation,
        None => inside::generation()?,
    };
    let client = context.client_inside(Some(job)).await?;
    client.resize_done(job, generation).await?;
    context.output.show(&Confirmed { job, generation })?;
    Ok(Exit::OK)
}

struct Confirmed {
    job: JobId,
    generation: u32,
}

impl Show for Confirmed {
    fn text(&self) -> String {
        format!("job {} has adapted itself to generation {} of its nodes\n", self.job, self.generation)
    }

    fn json(&self) -> Value {
        json!({"job": self.job.0, "generation": self.generation})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.generation.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
