//! `rms wait`: waits until jobs have ended, and returns the outcome as its exit code.

use std::collections::BTreeMap;

use launcher_sdk::{CallError, Client};
use rms_api::call::Select;
use rms_api::filter::JobFilter;
use rms_model::{JobId, Outcome, Span};
use serde_json::{Value, json};

use crate::agent;
use crate::context::Context;
use crate::exit_code;
use crate::failure::{Exit, Failure};
use crate::inside;
use crate::json;
use crate::look_up;
use crate::output::{self, Show};
use crate::select;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms wait 7                     until job 7 has ended
  rms wait all                   until all of your jobs have ended
                                 (admins: those of all users)
  rms wait 7 --timeout 10m || echo \"code $?\"
  job=$(rms submit -q job.sh) && rms wait $job

Exit codes:
  0    all jobs completed
  n    the highest code of the jobs; 128 + signal if a signal ended one
  143  a job was cancelled, or its wall time was over
  124  the timeout ran out
  125  the system failed, not a job: a node was lost, a job could not be
       started, there is no such job, or no server answers")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(default_value = "last", value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
    /// Give up after this time; the jobs go on
    #[arg(long, value_name = "SPAN")]
    timeout: Option<Span>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    // From here on, a failure is one of the system and not of the job.
    wait(select, args.timeout, context).await.map_err(|failure| {
        let is_of_system = failure.exit == Exit::FAILED || failure.exit == Exit::UNKNOWN;
        if is_of_system { failure.exit(Exit::SYSTEM) } else { failure }
    })
}

async fn wait(select: Select, timeout: Option<Span>, context: &Context) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let (mut outcomes, mut open) = found(&client, select).await?;
    // With --dir, it may be the job of another server.
    let own = agent::socket().filter(|_| context.dir.is_none()).and_then(|_| inside::job(None).ok());
    check(&open, own)?;
    let unread = match look_up::ended(&client, &open).await {
        Ok(records) => {
            // They have ended, however short the timeout is.
            settle(&mut outcomes, &mut open, records);
            if timeout.is_some() {
                // Of jobs that neither wait nor run, all is known at once.
                let gone = gone(&client, &open).await?;
                open.retain(|job| !gone.contains(job));
                wait_for(&client, &mut outcomes, gone).await?;
            }
            None
        }
        Err(CallError::Refused(refused)) => {
            let gone = gone(&client, &open).await.unwrap_or_default();
            unread(&gone, &refused.message)
        }
        // If it lasts, the wait itself meets it.
        Err(_) => None,
    };
    if let Some(unread) = &unread {
        output::warn(&format!("rms: {unread}; it is tried again"));
    }
    let waiting = context.tell_absence(&client, wait_for(&client, &mut outcomes, open));
    match timeout {
        None => waiting.await?,
        Some(span) => tokio::time::timeout(span.to_std(), waiting)
            .await
            .unwrap_or_else(|_| Err(timed_out(span, unread.as_deref())))?,
    }
    let answer = WaitAnswer { outcomes };
    context.output.show(&answer)?;
    Ok(answer.exit())
}

/// Checks that no process of a job waits for the end of this job, which would wait for the process.
fn check(open: &[JobId], own: Option<JobId>) -> Result<(), Failure> {
    match own.filter(|own| open.contains(own)) {
        None => Ok(()),
        Some(own) => Err(Failure::usage(format!("this is a process of job {own}, which would wait for itself"))
            .hint("name other jobs; the shell's own 'wait' waits for steps in the background")),
    }
}

/// Returns those of these jobs that are not in the system.
async fn gone(client: &Client, jobs: &[JobId]) -> Result<Vec<JobId>, CallError> {
    let live = client.queue_of(JobFilter { jobs: jobs.to_vec(), ..JobFilter::default() }).await?.jobs;
    let is_gone = |job: &&JobId| live.iter().all(|line| line.job != **job);
    Ok(jobs.iter().filter(is_gone).copied().collect())
}

/// Returns that the outcome of the first of these jobs is unknown, as the history cannot be read; `None` without jobs.
fn unread(gone: &[JobId], why: &str) -> Option<String> {
    let first = gone.first()?;
    Some(format!("job {first} neither waits nor runs, and how it ended cannot be read now: {why}"))
}

/// Returns the failure of a wait that took too long; `unread` says for which job the history alone is awaited.
fn timed_out(span: Span, unread: Option<&str>) -> Failure {
    let failure = match unread {
        Some(unread) => Failure::new("timeout", format!("after {span}: {unread}")),
        None => Failure::new("timeout", format!("not all jobs have ended after {span}"))
            .hint("they go on; 'rms queue' shows them"),
    };
    failure.exit(Exit::TIMED_OUT)
}

/// Returns the outcomes of the selected jobs that are known to have ended, and the other selected jobs.
async fn found(client: &Client, select: Select) -> Result<(BTreeMap<JobId, Outcome>, Vec<JobId>), Failure> {
    let mut outcomes = BTreeMap::new();
    let open = match look_up::resolve(client, select).await? {
        Select::Ids(ids) => ids,
        select @ (Select::Last | Select::All | Select::User(_)) => match look_up::jobs(client, select).await {
            Ok(found) => {
                outcomes.extend(found.ended.iter().map(|record| (record.job, record.outcome.clone())));
                found.live.iter().map(|detail| detail.line.job).collect()
            }
            // Having nothing to wait for is not a failure.
            Err(failure) if look_up::is_gone(&failure.kind) => Vec::new(),
            Err(failure) => return Err(failure),
        },
    };
    Ok((outcomes, open))
}

/// Waits until these jobs have ended, too.
async fn wait_for(
    client: &Client,
    outcomes: &mut BTreeMap<JobId, Outcome>,
    mut open: Vec<JobId>,
) -> Result<(), Failure> {
    while !open.is_empty() {
        let mut watch = client.watch(open.clone());
        let refused = loop {
            match watch.next().await {
                Ok(Some(change)) => {
                    if let Some(outcome) = change.outcome.filter(|_| is_over(change.state)) {
                        outcomes.insert(change.job, outcome);
                        open.retain(|job| *job != change.job);
                    }
                }
                Ok(None) => break None,
                Err(CallError::Refused(refused)) => break Some(refused),
                Err(error) => return Err(error.into()),
            }
        };
        // Jobs that have ended are in the history, which may be unreadable while running jobs can be watched.
        let n_open = open.len();
        let records = look_up::ended(client, &open).await?;
        settle(outcomes, &mut open, records);
        if open.len() == n_open && n_open > 0 {
            return Err(match refused {
                Some(refused) => CallError::Refused(refused).into(),
                None => {
                    Failure::new("no_such_job", format!("there is no job {}", open[0])).hint("'rms queue' lists them")
                }
            });
        }
    }
    Ok(())
}

fn settle(outcomes: &mut BTreeMap<JobId, Outcome>, open: &mut Vec<JobId>, records: Vec<rms_model::JobRecord>) {
    outcomes.extend(records.into_iter().map(|record| (record.job, record.outcome)));
    open.retain(|job| !outcomes.contains_key(job));
}

fn is_over(state: rms_api::answer::JobState) -> bool {
    !super::queue::is_active(state)
}

pub(super) struct WaitAnswer {
    pub(super) outcomes: BTreeMap<JobId, Outcome>,
}

impl WaitAnswer {
    /// Returns the highest code: a failure of the system takes precedence over that of a job.
    fn exit(&self) -> Exit {
        let exits = self.outcomes.values().map(exit_code::of);
        let worst = exits.max_by_key(|exit| (*exit == Exit::SYSTEM, exit.0));
        worst.unwrap_or(Exit::OK)
    }
}

impl Show for WaitAnswer {
    fn text(&self) -> String {
        self.outcomes.iter().map(|(job, outcome)| format!("job {job}: {outcome}\n")).collect()
    }

    fn json(&self) -> Value {
        let jobs = self.outcomes.iter();
        let jobs: Vec<Value> =
            jobs.map(|(job, outcome)| json!({"job": job.0, "outcome": json::outcome(Some(outcome))})).collect();
        json!({"jobs": jobs})
    }

    fn ids(&self) -> Vec<String> {
        self.outcomes.keys().map(JobId::to_string).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["job", "state", "exit"]);
        for (job, outcome) in &self.outcomes {
            let (code, signal) = outcome.code_signal();
            table.row(vec![job.to_string(), outcome.word().to_owned(), format!("{code}:{signal}")]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_whose_outcome_cannot_be_read_does_not_go_on() {
        let (span, why) = (Span::from_secs(2), "the history cannot be written: the disk is full");
        assert_eq!(unread(&[], why), None);
        let ended = unread(&[JobId(7), JobId(8)], why);
        let failure = timed_out(span, ended.as_deref());
        let expected = format!("after 2s: job 7 neither waits nor runs, and how it ended cannot be read now: {why}");
        assert_eq!((failure.message, failure.hint, failure.exit), (expected, None, Exit::TIMED_OUT));
        let failure = timed_out(span, None);
        assert_eq!(failure.hint.as_deref(), Some("they go on; 'rms queue' shows them"));
    }

    #[test]
    fn a_job_does_not_wait_for_itself() {
        let (own, others) = (Some(JobId(7)), [JobId(6), JobId(8)]);
        assert_eq!((check(&others, own), check(&[], own), check(&[JobId(7)], None)), (Ok(()), Ok(()), Ok(())));
        let refused = check(&[JobId(6), JobId(7)], own).expect_err("it would wait until its wall time is over");
        assert!(refused.message.contains("job 7") && refused.exit == Exit::USAGE, "{refused:?}");
    }
}
