//! `rms history`: lists jobs that have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use launcher_sdk::HistoryQuery;
use rms_api::filter::{RecordColumn, Way, column};
use rms_model::{JobId, JobRecord, Labels, Outcome, Time, hostlist};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::job_json;
use crate::listing::{self, time};
use crate::names::ClusterNames;
use crate::output::{self, Rows, Show};
use crate::select;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms history                                the newest 20
  rms history --since -1d --state failed     what failed during the last day
  rms history --user ada --limit 0           all jobs of one user
  rms history --sort=-cpu --limit 5          the five with the most CPU time
  rms history 7 12-15                        these jobs
Times: -1h (ago), 08:00, yesterday, 2026-11-20, 2026-11-20T08:00 (local time),
2026-11-20T08:00+01:00")]
pub struct Args {
    /// Only these jobs: 7, 3,5-9
    #[arg(value_name = "JOBS")]
    jobs: Vec<String>,
    /// Only jobs of these users
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    user: Vec<String>,
    /// Only your own jobs
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Only jobs that ended in these states: failed,timeout
    #[arg(short, long, short_alias = 't', value_name = "STATES", value_delimiter = ',', value_parser = Outcome::WORDS)]
    state: Vec<String>,
    /// Only jobs that ended at or after this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Only jobs that ended before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Only jobs of these names
    #[arg(short = 'J', long, value_name = "NAMES", value_delimiter = ',')]
    name: Vec<String>,
    /// Only jobs of these accounts
    #[arg(short = 'A', long, value_name = "ACCOUNTS", value_delimiter = ',')]
    account: Vec<String>,
    /// Only jobs that ran on these clusters; if they never started, named them first
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAMES", value_delimiter = ',')]
    clusters: Vec<String>,
    /// Sort by these columns, in descending order with '-': -cpu,user
    #[arg(short = 'S', long, value_name = "COLUMNS", value_delimiter = ',', value_parser = column::<RecordColumn>, allow_hyphen_values = true)]
    sort: Vec<(RecordColumn, Way)>,
    /// Show at most this many; 0 for all [default: 20, in every form of the output]
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    /// Skip this many first
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    offset: u64,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let jobs = args.jobs.iter().map(|word| ids(word)).collect::<Result<Vec<_>, _>>()?.concat();
    let (since, until) = (time("since", args.since.as_deref())?, time("until", args.until.as_deref())?);
    let client = context.client().await?;
    let query = HistoryQuery {
        users: if args.me { vec![listing::me(&client).await?] } else { args.user },
        states: args.state,
        since,
        until,
        jobs,
        names: args.name,
        clusters: args.clusters,
        sort: args.sort,
        limit: asked(args.limit),
        offset: args.offset,
        accounts: args.account,
    };
    let (records, clusters) = tokio::join!(client.history(query.clone()), context.cluster_names(&client));
    let mut records = records?;
    let has_more = cut(args.limit, &mut records);
    let absent = if has_more { None } else { absent(query, &records) };
    context.output.show(&HistoryAnswer { records, clusters: clusters? })?;
    if has_more {
        let next = args.offset + u64::from(DEFAULT_LIMIT);
        output::warn(&format!(
            "rms: only {} are listed: --limit 0 lists all, --offset {next} the next ones",
            which(args.offset)
        ));
    }
    if let Some(absent) = absent {
        output::warn(&format!("rms: no job {absent} has ended: 'rms queue' lists those that wait or run"));
    }
    Ok(Exit::OK)
}

/// Returns how many records to request: by default one more than is shown, to know whether there are more.
fn asked(limit: Option<u32>) -> u32 {
    limit.unwrap_or(DEFAULT_LIMIT + 1)
}

/// Cuts the records to the default number, and returns whether there were more.
fn cut<T>(limit: Option<u32>, records: &mut Vec<T>) -> bool {
    let has_more = limit.is_none() && records.len() > DEFAULT_LIMIT as usize;
    if has_more {
        records.truncate(DEFAULT_LIMIT as usize);
    }
    has_more
}

/// Returns the first few jobs of which there are no records, if they were asked for by id alone.
fn absent(query: HistoryQuery, records: &[JobRecord]) -> Option<String> {
    let HistoryQuery { jobs, limit, .. } = query.clone();
    let asks_for_ids =
        HistoryQuery { jobs: Vec::new(), sort: Vec::new(), limit: 0, ..query } == HistoryQuery::default();
    // Where a limit is reached, more may be there.
    let is_whole = limit == 0 || records.len() < limit as usize;
    let found: BTreeSet<JobId> = records.iter().map(|record| record.job).collect();
    let absent: Vec<String> = jobs.iter().filter(|job| !found.contains(job)).map(JobId::to_string).collect();
    let more = if absent.len() > 10 { ", …" } else { "" };
    let is_told = asks_for_ids && is_whole && !absent.is_empty();
    is_told.then(|| absent[..absent.len().min(10)].join(", ") + more)
}

/// Returns which records are listed by default.
fn which(offset: u64) -> String {
    match offset {
        0 => format!("the first {DEFAULT_LIMIT}"),
        n_skipped => format!("{DEFAULT_LIMIT} after the first {n_skipped}"),
    }
}

const DEFAULT_LIMIT: u32 = 20;

fn ids(word: &str) -> Result<Vec<JobId>, Failure> {
    match select::parse(&[word.to_owned()])? {
        rms_api::call::Select::Ids(ids) => Ok(ids),
        rms_api::call::Select::Last | rms_api::call::Select::All | rms_api::call::Select::User(_) => {
            Err(Failure::usage(format!("'{word}' does not select jobs of the history"))
                .hint("use ids, --user NAME, --since or --limit"))
        }
    }
}

/// Records and the names of their clusters.
#[derive(Clone, Debug)]
pub struct HistoryAnswer {
    pub records: Vec<JobRecord>,
    pub clusters: ClusterNames,
}

impl Show for HistoryAnswer {
    fn text(&self) -> String {
        let now = stamp::now();
        let mut columns =
            [">job", "~user", "~name", "state", "?>exit", ">nodes", "?>wait", "?>ran", "?>cpu", "@ended", "~where"]
                .map(str::to_owned)
                .to_vec();
        // A mark that no job has needs no column.
        let marks = self.records.iter().flat_map(|record| record.labels.marks());
        let marks: BTreeSet<&str> = marks.filter(|mark| !mark.text.is_empty()).map(|mark| mark.key).collect();
        columns.extend(marks.iter().map(|key| format!("?~{key}")));
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(now));
        for record in &self.records {
            let mut row = vec![
                record.job.to_string(),
                record.owner.0.clone(),
                record.labels.name.clone(),
                record.outcome.word().to_owned(),
                exit(record),
                sizes(record),
                record.started.map_or_else(|| "-".into(), |at| stamp::brief(at.since(record.eligible))),
                record.started.map_or_else(|| "-".into(), |at| stamp::brief(record.ended.since(at))),
                stamp::brief(record.total_usage().cpu),
                stamp::short(record.ended, now),
                hostlist::fold(&record.nodes),
            ];
            row.extend(record.labels.marks().filter(|mark| marks.contains(mark.key)).map(|mark| mark.text.to_owned()));
            table.row(row);
        }
        table.text("no such job has ended")
    }

    fn json(&self) -> Value {
        json!(self.listed())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, &self.listed())?)
    }

    fn ids(&self) -> Vec<String> {
        self.records.iter().map(|record| record.job.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut columns = vec![
            "job",
            "run",
            "user",
            "name",
            "state",
            "exit",
            "nodes",
            "tasks",
            "submitted",
            "eligible",
            "started",
            "ended",
            "cpu_ms",
            "peak_memory_kib",
            "where",
        ];
        columns.extend(Labels::default().marks().map(|mark| mark.key));
        columns.extend(["cores", "memory_mib", "devices", "core_seconds"]);
        let mut table = Table::new(&columns);
        let time = |time: Option<Time>| time.and_then(stamp::iso).unwrap_or_default();
        for record in &self.records {
            let mut row = vec![
                record.job.to_string(),
                record.run.to_string(),
                record.owner.0.clone(),
                record.labels.name.clone(),
                record.outcome.word().to_owned(),
                exit(record),
                record.request.n_nodes().to_string(),
                record.n_tasks.to_string(),
                time(Some(record.submitted)),
                time(Some(record.eligible)),
                time(record.started),
                time(Some(record.ended)),
                record.total_usage().cpu.as_millis().to_string(),
                record.total_usage().peak_memory_kib.to_string(),
                hostlist::fold(&record.nodes),
            ];
            row.extend(record.labels.marks().map(|mark| mark.text.to_owned()));
            row.extend(granted(record));
            table.row(row);
        }
        Some(table)
    }
}

impl HistoryAnswer {
    fn listed(&self) -> impl Serialize {
        let record = |record: &JobRecord| job_json::record(record, &self.clusters);
        BTreeMap::from([("jobs", Rows(self.records.iter().map(record)))])
    }
}

/// Returns how many nodes the job held, from the fewest to the most.
fn sizes(record: &JobRecord) -> String {
    let held: Vec<u32> = record
        .evolution
        .iter()
        .flat_map(|held| held.stages())
        .map(|stage| stage.nodes)
        .filter(|held| *held > 0)
        .collect();
    match (held.iter().min(), held.iter().max()) {
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest}-{most}"),
        (Some(held), Some(_)) => held.to_string(),
        (None, _) | (_, None) => record.request.n_nodes().to_string(),
    }
}

/// Returns the cores, memory and devices that the job had, and its core time in seconds; nothing if that is unknown.
fn granted(record: &JobRecord) -> [String; 4] {
    let core_time = record.total_core_time().map(|total| job_json::secs(total).to_string()).unwrap_or_default();
    let Some(granted) = &record.granted else {
        return [String::new(), String::new(), String::new(), core_time];
    };
    [granted.cores.to_string(), granted.memory.0.to_string(), granted.devices.to_string(), core_time]
}

/// Returns `code:signal`.
fn exit(record: &JobRecord) -> String {
    let (code, signal) = record.outcome.code_signal();
    format!("{code}:{signal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_is_asked_for_to_know_whether_there_are_more() {
        assert_eq!((asked(None), asked(Some(20)), asked(Some(0))), (DEFAULT_LIMIT + 1, 20, 0));
        let cut = |limit, n_found: u32| {
            let mut found: Vec<u32> = (0..n_found).collect();
            (cut(limit, &mut found), found.len())
        };
        assert_eq!(cut(None, DEFAULT_LIMIT + 1), (true, DEFAULT_LIMIT as usize));
        assert_eq!(cut(None, DEFAULT_LIMIT), (false, DEFAULT_LIMIT as usize));
        assert_eq!(cut(Some(5), 5), (false, 5), "who names a limit knows it");
    }

    #[test]
    fn ids_without_a_record_are_named() {
        let query = |jobs: std::ops::Range<u64>| HistoryQuery {
            jobs: jobs.map(JobId).collect(),
            limit: asked(None),
            ..HistoryQuery::default()
        };
        assert_eq!(absent(query(7..9), &[]).as_deref(), Some("7, 8"));
        assert_eq!(absent(query(1..99), &[]).as_deref(), Some("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"));
        assert_eq!(absent(query(0..0), &[]), None);
        let filtered = HistoryQuery { users: vec!["ada".to_owned()], ..query(7..9) };
        assert_eq!(absent(filtered, &[]), None, "it may be another's");
    }
}
