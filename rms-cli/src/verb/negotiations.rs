//! `rms negotiations`: lists negotiations, with every round.

use std::collections::BTreeSet;

use launcher_sdk::{CallError, Client, HistoryQuery};
use negotiation::Direction;
use rms_api::negotiate::NegotiationLine;
use rms_model::{JobId, Role, Time, hostlist};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::look_up;
use crate::names::ClusterNames;
use crate::negotiations;
use crate::output::Show;
use crate::screen;
use crate::select::{self, One};
use crate::stamp;
use crate::table::Table;
use rms_api::terms::{self, Allowed};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without a job: a line for each open negotiation. With a job: all of its
negotiations, with the terms and times of every round.

Ids: r1 was opened by the server, a1 by or for the application.
States: offered and countered (an answer is awaited), accepted, committing
(nodes are being prepared or left), ready; rejected, expired, withdrawn, failed

Examples:
  rms negotiations                   open ones
  rms negotiations --all             those that are over, too, also of the 100
                                     jobs that ended last
  rms negotiations --all --jobs 2000  also of the last 2000
  rms negotiations 7                 all negotiations of job 7
  rms negotiations --json | jq '.negotiations[] | select(.state == \"offered\")'")]
pub struct Args {
    /// Show only those of this job, with every round: an id, or last
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Include negotiations that are over, and those of jobs that have ended
    #[arg(long)]
    all: bool,
    /// Number of most recently ended jobs to include; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "all")]
    jobs: u32,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let which = args.job.as_deref().map(select::one).transpose()?;
    let client = context.client_inside(which.and_then(One::id)).await?;
    let job = match which {
        Some(which) => Some(look_up::one(&client, which).await?),
        // A job's own credentials are valid only for that job.
        None => client.identity().as_job().map(|(own, _)| own),
    };
    let (now, mut lines) = client.negotiations(job).await?;
    if args.all && job.is_none() {
        let in_system = lines.iter().map(|line| line.job).collect();
        lines.extend(past(&client, in_system, args.jobs).await?);
    }
    lines.retain(|line| args.all || job.is_some() || !line.phase.is_over());
    // A job's own credentials may not query the clusters; numbers are shown then.
    let clusters = context.cluster_names(&client).await.unwrap_or_default();
    let allowed = clusters.allowed(&client).await;
    context.output.show(&NegotiationsAnswer { now, lines, clusters, allowed, as_stories: job.is_some() })?;
    Ok(Exit::OK)
}

/// Returns the negotiations that the caller may see of the last `n_jobs` ended jobs, the newest job first.
async fn past(client: &Client, mut told: BTreeSet<JobId>, n_jobs: u32) -> Result<Vec<NegotiationLine>, CallError> {
    let identity = client.identity();
    let users = (identity.role != Role::Admin).then(|| identity.name.clone()).into_iter().collect();
    let ended = client.history(HistoryQuery { users, limit: n_jobs, ..HistoryQuery::default() }).await?;
    let mut lines = Vec::new();
    // A job that ran more than once has several records, and one that runs again may be listed already.
    for record in ended {
        if told.insert(record.job) {
            lines.extend(client.negotiations(Some(record.job)).await?.1);
        }
    }
    Ok(lines)
}

/// The answer with the negotiations.
pub(super) struct NegotiationsAnswer {
    pub(super) now: Time,
    pub(super) lines: Vec<NegotiationLine>,
    pub(super) clusters: ClusterNames,
    pub(super) allowed: Allowed,
    pub(super) as_stories: bool,
}

impl Show for NegotiationsAnswer {
    fn text(&self) -> String {
        if self.as_stories && !self.lines.is_empty() {
            let story = |line: &NegotiationLine| negotiations::story(line, &self.clusters, &self.allowed, self.now);
            return screen::folded(&self.lines.iter().map(story).collect::<Vec<_>>().join("\n"), 12);
        }
        self.rows(|time| stamp::short(time, self.now)).text("nothing is negotiated")
    }

    fn json(&self) -> Value {
        let line = |line| negotiations::line_json(line, &self.clusters, &self.allowed);
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        json!({"now": json::time(Some(self.now)), "negotiations": lines})
    }

    fn ids(&self) -> Vec<String> {
        self.lines.iter().map(|line| format!("{} {}", line.job, line.record.id)).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(stamp::iso_secs))
    }
}

impl NegotiationsAnswer {
    fn rows(&self, time: impl Fn(Time) -> String) -> Table {
        let columns = [">job", "id", "?~user", "?@opened", "to", "~what", "state", "?>round", "@until", "~nodes"];
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(self.now));
        for line in &self.lines {
            let record = &line.record;
            let direction = match record.direction {
                Direction::Grow => "grow",
                Direction::Shrink => "shrink",
            };
            let what = terms::last_proposal(record);
            let nodes = if line.held.is_empty() { &record.nodes } else { &line.held };
            table.row(vec![
                line.job.to_string(),
                record.id.to_string(),
                line.owner.clone(),
                time(record.opened),
                direction.to_owned(),
                what.map_or_else(|| "-".to_owned(), |(_, _, template)| negotiations::change(template)),
                negotiations::word(line.phase).to_owned(),
                negotiations::n_rounds(record).to_string(),
                line.until.map_or_else(|| "-".to_owned(), &time),
                hostlist::fold(nodes),
            ]);
        }
        table
    }
}
