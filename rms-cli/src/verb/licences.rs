//! `rms licences`: lists the licences of the clusters, how many are in use, and which jobs have them.

use rms_api::answer::LicenceLine;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json::job_id;
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Jobs have their licences from start to end; waiting jobs have none. If an admin
lowers a total below what is in use, none are free until jobs have ended.

Examples:
  rms licences                             totals, what is free, who has them
  rms submit -L matlab:2 job.sh            a job that needs two of them
  rms admin set licences@a matlab:20,ansys:5   how many cluster a has")]
pub struct Args {}

pub async fn run(_args: Args, context: &Context) -> Result<Exit, Failure> {
    let lines = context.client_inside(None).await?.licences().await?;
    context.output.show(&Licences { lines })?;
    Ok(Exit::OK)
}

pub(super) struct Licences {
    pub(super) lines: Vec<LicenceLine>,
}

impl Licences {
    fn rows(&self) -> Table {
        let mut table = Table::new(&["cluster", "licence", ">total", ">in use", ">free", "~jobs"]);
        for line in &self.lines {
            let holders = line.holders.iter().map(|holder| format!("{}:{}", holder.job, holder.count));
            let holders = holders.collect::<Vec<_>>().join(",");
            table.row(vec![
                line.cluster.clone(),
                line.name.clone(),
                line.total.to_string(),
                line.in_use().to_string(),
                line.free().to_string(),
                if holders.is_empty() { "-".to_owned() } else { holders },
            ]);
        }
        table
    }
}

impl Show for Licences {
    fn text(&self) -> String {
        self.rows().text("no cluster has licences ('rms admin set licences@CLUSTER')")
    }

    fn json(&self) -> Value {
        let line = |line: &LicenceLine| {
            let holders = line.holders.iter().map(|holder| json!({"job": job_id(holder.job), "count": holder.count}));
            json!({
                "cluster": line.cluster,
                "name": line.name,
                "total": line.total,
                "in_use": line.in_use(),
                "free": line.free(),
                "jobs": holders.collect::<Vec<_>>(),
            })
        };
        json!({"licences": self.lines.iter().map(line).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.name.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}
