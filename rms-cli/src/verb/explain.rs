//! `rms explain`: explains in sentences why jobs are in their states.

use rms_api::answer::JobLine;
use rms_api::call::Select;
use rms_api::negotiate::NegotiationLine;
use serde_json::{Value, json};

use super::negotiations;
use crate::context::Context;
use crate::explain;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::look_up::{self, Found};
use crate::names::ClusterNames;
use crate::output::Show;
use crate::screen;
use crate::select;
use crate::table::Table;
use crate::terms::Allowed;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms explain 7                  why does job 7 not run?
  rms explain last
  rms explain all                every job of yours
To see what blocks it over time: rms view --job 7")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(default_value = "last", value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let mut found = look_up::jobs(&client, select).await?;
    let ids: Vec<_> = found.live.iter().map(|detail| detail.line.job).collect();
    if !ids.is_empty() {
        // A separate call, as only this one updates the reasons.
        if let Ok(explained) = client.explain(Select::Ids(ids)).await {
            found.now = explained.now;
            found.live = explained.jobs;
        }
    }
    let clusters = context.cluster_names(&client).await?;
    let (_, negotiations) = negotiations::ask(&client, None).await?;
    let allowed = Allowed::ask(&client, &clusters).await;
    context.output.show(&ExplainAnswer { found, clusters, negotiations, allowed })?;
    Ok(Exit::OK)
}

pub(super) struct ExplainAnswer {
    pub(super) found: Found,
    pub(super) clusters: ClusterNames,
    pub(super) negotiations: Vec<NegotiationLine>,
    pub(super) allowed: Allowed,
}

impl ExplainAnswer {
    fn sentences(&self) -> Vec<(u64, String)> {
        let live = self.found.live.iter().map(|detail| (detail.line.job.0, self.sentence(&detail.line)));
        let ended = self.found.ended.iter().map(|record| (record.job.0, explain::record(record)));
        live.chain(ended).collect()
    }

    fn sentence(&self, line: &JobLine) -> String {
        explain::line(line, &self.clusters, &self.negotiations, &self.allowed, self.found.now)
    }
}

impl Show for ExplainAnswer {
    fn text(&self) -> String {
        self.sentences().into_iter().map(|(_, sentence)| screen::folded(&(sentence + "\n"), 2)).collect()
    }

    fn json(&self) -> Value {
        let live = self.found.live.iter().map(|detail| {
            json!({
                "job": detail.line.job.0,
                "state": detail.line.state.word(),
                "text": self.sentence(&detail.line),
                "reason": json::reason(detail.line.reason.as_ref()),
                "estimate": json::time(detail.line.estimate),
                "outcome": json::outcome(detail.line.outcome.as_ref()),
            })
        });
        let ended = self.found.ended.iter().map(|record| {
            json!({
                "job": record.job.0,
                "state": "finished",
                "text": explain::record(record),
                "reason": null,
                "estimate": null,
                "outcome": json::outcome(Some(&record.outcome)),
            })
        });
        json!({"now": json::time(Some(self.found.now)), "jobs": live.chain(ended).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.found.ids().map(|job| job.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["job", "text"]);
        for (job, sentence) in self.sentences() {
            table.row(vec![job.to_string(), sentence]);
        }
        Some(table)
    }
}
