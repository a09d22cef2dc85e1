//! `rms queue`: lists the jobs that run, and those that wait in the order of the queue.

use std::io::{self, Write};
use std::time::Duration;

use launcher_sdk::{Client, Queue};
use rms_api::answer::{JobLine, JobState, Reason, Required};
use rms_api::filter::JobFilter;
use rms_api::negotiate::NegotiationLine;
use rms_model::{Span, Time, hostlist};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::job_json;
use crate::json;
use crate::listing::JobFlags;
use crate::look_up;
use crate::names::ClusterNames;
use crate::negotiations::open_by_job;
use crate::output::{self, Form, Rows, Show};
use crate::screen;
use crate::sizes;
use crate::stages;
use crate::stamp;
use crate::starts;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms queue                      everything in the system
  rms queue --user ada           one user's jobs
  rms queue --me                 your own
  rms queue -t waiting --limit 20    the next 20 waiting jobs
  rms queue --sort=-priority,submitted
  rms queue -w                   refresh each second, until Ctrl-C
  rms queue --watch=10s          refresh every 10 seconds
  rms queue --json | jq '.jobs[] | select(.state == \"waiting\") | .job'
Without --sort, running jobs come first, then the queue in its order;
--sort start sorts by the start, as estimated for waiting jobs.
Times: -1h (ago), 08:00, yesterday, 2026-11-20, 2026-11-20T08:00 (local time)")]
pub struct Args {
    /// Refresh the list until Ctrl-C, each second if no other span is given
    #[arg(short, long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    watch: Option<Span>,
    #[command(flatten)]
    jobs: JobFlags,
}

/// The shortest interval: nobody reads faster, and shorter ones load the server.
const SHORTEST_REFRESH: Span = Span::from_millis(100);

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let filter = args.jobs.filter(&client).await?;
    let Some(interval) = args.watch else {
        let answer = look(&filter, context, &client).await?;
        context.output.show(&answer)?;
        if let Some(shortage) = &answer.shortage {
            output::warn(&format!("rms: {}; an admin has to see to it", starts::none(shortage)));
        }
        return Ok(Exit::OK);
    };
    let interval = Duration::from_millis(interval.max(SHORTEST_REFRESH).as_millis().unsigned_abs());
    let mut resized = signal(SignalKind::window_change())
        .map_err(|error| Failure::io("changes of the terminal cannot be listened for", error))?;
    let watching = async {
        let mut last: Option<QueueAnswer> = None;
        loop {
            let form = context.output.form();
            let (answer, head) = match (look(&on_screen(&filter, form), context, &client).await, last.take()) {
                (Ok(answer), _) => {
                    let head = head(&answer);
                    draw(form, &answer, &head)?;
                    (answer, head)
                }
                // A screen that stays open outlives a restart of the server.
                (Err(failure), Some(answer)) if ["unreachable", "interrupted"].contains(&failure.kind.as_ref()) => {
                    let head = format!("{}   {AWAY}   (Ctrl-C ends)", stamp::iso_secs(answer.queue.now));
                    match form == Form::Text && output::is_terminal() {
                        true => draw(form, &answer, &head)?,
                        false => output::warn(&format!("rms: {AWAY}; it is tried again")),
                    }
                    (answer, head)
                }
                (Err(failure), _) => return Err(failure),
            };
            // Redraws by time, too: estimates change and jobs arrive without any change of those shown now.
            let again = tokio::time::sleep(interval);
            tokio::pin!(again);
            loop {
                tokio::select! {
                    () = &mut again => break,
                    Some(()) = resized.recv() => draw(form, &answer, &head)?,
                }
            }
            last = Some(answer);
        }
    };
    tokio::select! {
        ended = watching => ended,
        // Ctrl-C is the normal way to leave, so nothing has failed.
        _ = tokio::signal::ctrl_c() => Ok(Exit::OK),
    }
}

const AWAY: &str = "the server does not answer";

async fn look(filter: &JobFilter, context: &Context, client: &Client) -> Result<QueueAnswer, Failure> {
    let (queue, clusters) = tokio::join!(client.queue_of(filter.clone()), context.cluster_names(client));
    let queue = queue?;
    // Only malleable jobs negotiate.
    let may_negotiate = queue.jobs.iter().any(|line| line.malleable.is_some());
    let negotiations = if may_negotiate { client.negotiations(None).await?.1 } else { Vec::new() };
    let is_filtered = JobFilter { sort: Vec::new(), limit: 0, ..filter.clone() } != JobFilter::default();
    let shortage = look_up::shortage(client, queue.jobs.iter()).await;
    Ok(QueueAnswer { queue, clusters: clusters?, negotiations, is_filtered, shortage })
}

/// Limits the list to the rows of the terminal.
fn on_screen(filter: &JobFilter, form: Form) -> JobFilter {
    let mut filter = filter.clone();
    if form == Form::Text && output::is_terminal() && filter.limit == 0 {
        filter.limit = u32::try_from(screen::rows()).unwrap_or(u32::MAX).max(1);
    }
    filter
}

/// Draws the list: on a terminal it replaces the previous one; elsewhere lists follow each other, JSON as one line
/// each.
fn draw(form: Form, answer: &QueueAnswer, head: &str) -> Result<(), Failure> {
    if form == Form::Text && output::is_terminal() {
        let text = output::render(answer, form);
        return output::write_out(page(head, &text, screen::columns(), screen::rows()).as_bytes());
    }
    output::write_answer(answer, form)
}

/// Returns the time, and the time of the estimates if they are older, or why no job starts.
fn head(answer: &QueueAnswer) -> String {
    let (now, planned) = (stamp::iso_secs(answer.queue.now), stamp::iso_secs(answer.queue.planned));
    if let Some(shortage) = &answer.shortage {
        return format!("{now}   {}", starts::none(shortage));
    }
    let of = if planned < now { format!("   starts as of {planned}") } else { String::new() };
    format!("{now}{of}   (Ctrl-C ends)")
}

/// Returns as much of the list as fits the terminal; the last row says whether there is more.
fn page(head: &str, text: &str, columns: usize, rows: usize) -> String {
    let mut lines: Vec<String> = vec![screen::cut(head, columns), String::new()];
    lines.extend(text.lines().map(str::to_owned));
    if lines.len() > rows.max(1) {
        let shown = rows.max(1) - 1;
        lines.truncate(shown);
        lines.push(screen::cut("… and more: 'rms queue' lists all", columns));
    }
    // No line end after the last row, which would scroll the first one away.
    format!("\x1b[H\x1b[2J{}", lines.join("\r\n"))
}

/// The queue and the names of its clusters.
#[derive(Clone, Debug)]
pub struct QueueAnswer {
    pub queue: Queue,
    pub clusters: ClusterNames,
    pub negotiations: Vec<NegotiationLine>,
    /// Whether there may be jobs beside those that are listed.
    pub is_filtered: bool,
    /// Why no job starts now, if so and if a listed job waits.
    pub shortage: Option<String>,
}

impl Show for QueueAnswer {
    fn text(&self) -> String {
        self.people().text(if self.is_filtered { "no such job waits or runs" } else { "nothing waits or runs" })
    }

    fn json(&self) -> Value {
        json!(self.listed())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, &self.listed())?)
    }

    fn ids(&self) -> Vec<String> {
        self.queue.jobs.iter().map(|line| line.job.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.table_of(stamp::iso_secs))
    }
}

impl QueueAnswer {
    fn listed(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Listed<R> {
            jobs: R,
            now: Value,
            planned: Value,
        }
        let open = open_by_job(&self.negotiations);
        let job = move |line: &JobLine| {
            let mut value = job_json::job_line(line, &self.clusters);
            let ids = open.get(&line.job).into_iter().flatten().map(|line| line.record.id.to_string());
            value["negotiating"] = ids.collect::<Vec<_>>().into();
            value
        };
        let (now, planned) = (json::time(Some(self.queue.now)), json::time(Some(self.queue.planned)));
        Listed { jobs: Rows(self.queue.jobs.iter().map(job)), now, planned }
    }

    pub(super) fn people(&self) -> Table {
        self.table_of(|time| stamp::short(time, self.queue.now))
    }

    fn table_of(&self, time: impl Fn(Time) -> String) -> Table {
        let columns =
            [">job", "~user", "~name", "state", ">nodes", "?>tasks", "?>wall", "@start", "?@end", "!where or why"];
        let now = self.queue.now;
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(now));
        let open = open_by_job(&self.negotiations);
        // The plan that the estimates are of is not carried out now.
        let is_stopped = |line: &JobLine| self.shortage.is_some() && line.started.is_none();
        for line in &self.queue.jobs {
            table.row(vec![
                line.job.to_string(),
                line.owner.0.clone(),
                line.labels.name.clone(),
                line.state.word().to_owned(),
                line.request.n_nodes().to_string(),
                line.n_tasks.to_string(),
                stamp::brief(line.request.wall),
                if is_stopped(line) { "-".to_owned() } else { starts::column(line, &time) },
                stages::end(line).map_or_else(|| "-".to_owned(), &time),
                self.place(line, open.get(&line.job).map(Vec::as_slice).unwrap_or_default(), now),
            ]);
        }
        table
    }

    fn place(&self, line: &JobLine, open: &[&NegotiationLine], now: Time) -> String {
        let mut changes = sizes::brief(line.malleable.as_ref(), open, now);
        if let (None, Some(stages)) = (&line.malleable, &line.stages)
            && !line.nodes.is_empty()
            && stages.n_stages > 0
        {
            changes.insert(0, stages::brief(stages, now));
        }
        let changes = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join("; ")) };
        if !line.nodes.is_empty() {
            return hostlist::fold(&line.nodes) + &changes;
        }
        match &line.reason {
            _ if self.shortage.is_some() && starts::is_ready(line) => "(no job starts now)".to_owned() + &changes,
            Some(reason) => short_reason(reason, now) + &changes,
            None => self.clusters.nodes(&line.request) + &changes,
        }
    }
}

/// Returns the reason in a few words; `rms explain` has the sentence.
fn short_reason(reason: &Reason, now: Time) -> String {
    match reason {
        Reason::Held { by } => format!("(held by {by})"),
        Reason::NotBefore { at } => format!("(not before {})", stamp::short(*at, now)),
        Reason::NotPlanned { .. } => "(not planned yet)".to_owned(),
        Reason::NoRequest { .. } => "(no request yet)".to_owned(),
        Reason::AgentsExpected { n_nodes: 1, .. } => "(waits for 1 agent)".to_owned(),
        Reason::AgentsExpected { n_nodes, .. } => format!("(waits for {n_nodes} agents)"),
        Reason::LauncherAway { .. } => "(its launcher is away)".to_owned(),
        Reason::BeyondDepth { position, .. } => format!("(place {position}, beyond the planned depth)"),
        Reason::TooFewNodes { licence: Some(licence), .. } => {
            format!("({} {} wanted, {} there)", licence.wanted, licence.name, licence.total)
        }
        Reason::TooFewNodes { lacking: Some(lacking), .. } if !lacking.unusable.is_empty() => {
            format!("({} cannot be used now)", hostlist::fold(&lacking.unusable))
        }
        Reason::TooFewNodes { cluster, wanted, lacking: Some(lacking), .. } => {
            let what = match lacking.required {
                Required::Names => "allowed by name",
                Required::Features(_) => "with its features",
                Required::Sockets(_) => "with enough sockets",
                Required::Speed(_) => "fast enough",
                Required::Scratch(_) => "with enough scratch",
                Required::Cores(_) => "with enough cores",
                Required::Cpus(_) => "with enough CPUs",
                Required::Memory(_) => "with enough memory",
                Required::Devices(_) => "with its devices",
            };
            format!("({wanted} of {cluster} wanted, {} {what})", lacking.n_nodes)
        }
        Reason::TooFewNodes { cluster, wanted, usable, contiguous: true, .. } => {
            format!("({wanted} neighbours of {cluster} needed, {usable} usable)")
        }
        Reason::TooFewNodes { cluster, wanted, usable, .. } => {
            format!("({wanted} of {cluster} needed, {usable} usable)")
        }
        Reason::Behind { policy, job, .. } => format!("({policy}: behind {job})"),
        Reason::Blocked { licence: Some(licence), .. } => format!("(licence {}: {} free)", licence.name, licence.free),
        Reason::Blocked { by, short, wanted, .. } => {
            let too = match short {
                Some(short) if short.with_cores < *wanted => "few free cores",
                Some(short) if short.with_memory < *wanted => "little free memory",
                Some(short) if short.with_devices < *wanted => "few free devices",
                Some(_) | None => "few free nodes",
            };
            let ids: Vec<String> = by.iter().take(3).map(|blocker| blocker.job.to_string()).collect();
            let more = if by.len() > ids.len() { ", …" } else { "" };
            if ids.is_empty() { format!("(too {too})") } else { format!("(behind {}{more})", ids.join(", ")) }
        }
    }
}

/// Returns whether jobs in this state still hold nodes or wait for them.
pub fn is_active(state: JobState) -> bool {
    match state {
        JobState::Submitted
        | JobState::Held
        | JobState::RequestSent
        | JobState::Waiting
        | JobState::Started
        | JobState::Ending => true,
        JobState::Ghost | JobState::Finished => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain;

    #[test]
    fn one_agent_is_one() {
        let waits = |n_nodes| {
            let reason = Reason::AgentsExpected { cluster: "a".to_owned(), n_nodes, until: Time::EPOCH };
            (short_reason(&reason, Time::EPOCH), explain::reason(&reason, &[], Time::EPOCH))
        };
        assert_eq!((waits(1).0.as_str(), waits(2).0.as_str()), ("(waits for 1 agent)", "(waits for 2 agents)"));
        assert!(waits(1).1.contains("the agent of 1 node of cluster a is away"), "{}", waits(1).1);
        assert!(waits(2).1.contains("the agents of 2 nodes of cluster a are away"), "{}", waits(2).1);
    }

    #[test]
    fn a_watched_list_fits_the_rows_and_columns_of_the_terminal() {
        let text: String = (0..30).map(|job| format!("{job}\n")).collect();
        let lines = |rows| page("12:30:00   (Ctrl-C ends)", &text, 20, rows).split("\r\n").count();
        assert_eq!((lines(1), lines(2), lines(10), lines(32), lines(100)), (1, 2, 10, 32, 32));
        let page = page("12:30:00   (Ctrl-C ends)", &text, 20, 10);
        assert!(page.starts_with("\x1b[H\x1b[2J12:30:00   (Ctrl-C …\r\n\r\n0\r\n1\r\n"), "{page:?}");
        assert!(page.ends_with("6\r\n… and more: 'rms qu…"), "{page:?}");
    }
}
