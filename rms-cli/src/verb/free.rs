//! `rms free`: names the nodes that an evolving job frees at its next smaller stage.

use rms_model::{JobId, hostlist};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::look_up;
use crate::output::Show;
use crate::select;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
The job leaves the nodes when its next stage begins, which waits for this for up
to the setting release_grace. A job that names none leaves its last ones. It
keeps its first node to its end.

Examples:
  rms free 7 n3 n4               job 7 will leave n3 and n4
  rms free $RMS_JOB_ID n[3-4]    the same, from inside the job")]
pub struct Args {
    /// Which job: an id, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Nodes: n3 or n[3-4]
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let which = select::one(&args.job)?;
    let mut nodes = Vec::new();
    for list in &args.nodes {
        nodes.extend(hostlist::expand(list)?);
    }
    let client = context.client_inside(which.id()).await?;
    let job = look_up::one(&client, which).await?;
    client.free_nodes(job, nodes.clone()).await?;
    context.output.show(&Named { job, nodes })?;
    Ok(Exit::OK)
}

struct Named {
    job: JobId,
    nodes: Vec<String>,
}

impl Show for Named {
    fn text(&self) -> String {
        format!("job {} frees {} at its next stage\n", self.job, hostlist::fold(&self.nodes))
    }

    fn json(&self) -> Value {
        json!({"job": self.job.0, "nodes": self.nodes})
    }

    fn ids(&self) -> Vec<String> {
        self.nodes.clone()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
