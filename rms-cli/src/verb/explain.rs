//! `rms explain`: explains in sentences why jobs are in their states.

use rms_api::answer::{JobDetail, JobLine, JobState, NodeLine, NodeState};
use rms_api::call::Select;
use rms_api::filter::NodeFilter;
use rms_api::negotiate::NegotiationLine;
use rms_model::hostlist;
use serde_json::{Value, json};

use crate::context::Context;
use crate::explain;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::look_up::{self, Found};
use crate::names::ClusterNames;
use crate::output::Show;
use crate::screen;
use crate::select;
use crate::stamp;
use crate::table::Table;
use rms_api::terms::Allowed;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms explain 7                  why does job 7 not run?
  rms explain last
  rms explain all                every job of yours (admins: of all users)
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
    let (_, negotiations) = client.negotiations(None).await?;
    let allowed = clusters.allowed(&client).await;
    let away = match found.live.iter().any(|detail| has_processes(&detail.line)) {
        true => client.nodes_of(NodeFilter { states: vec![NodeState::Away], ..NodeFilter::default() }).await?.nodes,
        false => Vec::new(),
    };
    let shortage = look_up::shortage(&client, found.live.iter().map(|detail| &detail.line)).await;
    context.output.show(&ExplainAnswer { found, clusters, negotiations, allowed, away, shortage })?;
    Ok(Exit::OK)
}

pub(super) struct ExplainAnswer {
    pub(super) found: Found,
    pub(super) clusters: ClusterNames,
    pub(super) negotiations: Vec<NegotiationLine>,
    pub(super) allowed: Allowed,
    /// The nodes whose agents are away, if any job has processes.
    pub(super) away: Vec<NodeLine>,
    /// Why no job starts now, if so.
    pub(super) shortage: Option<String>,
}

fn has_processes(line: &JobLine) -> bool {
    matches!(line.state, JobState::Started | JobState::Ending)
}

impl ExplainAnswer {
    fn sentences(&self) -> Vec<(u64, String)> {
        let live = self.found.live.iter().map(|detail| (detail.line.job.0, self.sentence(detail)));
        let ended = self.found.ended.iter().map(|record| (record.job.0, explain::record(record)));
        live.chain(ended).collect()
    }

    fn sentence(&self, detail: &JobDetail) -> String {
        let shortage = self.shortage.as_deref();
        let now = self.found.now;
        let sentence = explain::detail(detail, &self.clusters, &self.negotiations, &self.allowed, shortage, now);
        sentence + &self.away_of(&detail.line)
    }

    /// Returns a sentence about the job's nodes whose agents are away; empty if there are none.
    fn away_of(&self, line: &JobLine) -> String {
        let is_its = |node: &&NodeLine| has_processes(line) && line.nodes.contains(&node.name);
        let away: Vec<&NodeLine> = self.away.iter().filter(is_its).collect();
        let Some(longest) = away.iter().map(|node| node.since).min() else { return String::new() };
        let names: Vec<&str> = away.iter().map(|node| node.name.as_str()).collect();
        let (agents, are, come) = if away.len() == 1 { ("agent", "is", "comes") } else { ("agents", "are", "come") };
        format!(
            " But the {agents} of {} {are} away, for {} now: what its processes there do is unknown until the {agents} \
             {come} back or node_lost_after has passed.",
            hostlist::fold(&names),
            stamp::brief(self.found.now.since(longest))
        )
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
                "text": self.sentence(detail),
                "reason": json::reason_of(&detail.line),
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
