//! Sends a client the changes of some jobs, until all of them have ended.

use rms_api::Refused;
use std::collections::BTreeSet;
use std::sync::Arc;

use rms_api::answer::{JobChange, JobState};
use rms_model::{Identity, JobId, JobRecord};
use rms_wire::link::Sender;
use rms_wire::{Followed, Watch};
use tokio::sync::Semaphore;

use super::SessionError;
use super::join::{history_refused, watch_refused};
use super::pull::reserve_memory;
use crate::shared::Shared;

/// Bounded, because the driver looks each of them up.
const MAX_JOBS: usize = 10_000;

/// The memory of one watched job in the tables here and in the driver.
const BYTES_PER_JOB: usize = 64;

/// Sends the current state of the jobs, then every change.
pub async fn serve(
    sender: &mut Sender,
    who: &Identity,
    order: Watch,
    held: &Arc<Semaphore>,
    shared: &Shared,
) -> Result<(), SessionError> {
    // A job that is named twice is reported once.
    let jobs: Vec<JobId> = order.jobs.into_iter().collect::<BTreeSet<JobId>>().into_iter().collect();
    let last = match reserve_memory(held, jobs.len() * BYTES_PER_JOB) {
        Ok(_held) => match watch(sender, who, &jobs, shared).await? {
            Ok(()) => Followed::End,
            Err(refused) => Followed::Refused(refused),
        },
        Err(refused) => Followed::Refused(refused),
    };
    sender.send(&last).await?;
    sender.finish();
    Ok(())
}

async fn watch(
    sender: &mut Sender,
    who: &Identity,
    jobs: &[JobId],
    shared: &Shared,
) -> Result<Result<(), Refused>, SessionError> {
    if jobs.len() > MAX_JOBS {
        let message = format_args!("{} jobs are too many to watch at once; at most {MAX_JOBS} are taken", jobs.len());
        return Ok(Err(Refused::new("too_many", message)));
    }
    let (found, mut changes) = match shared.inbox.watch(jobs.to_vec()).await {
        Ok(watched) => watched,
        Err(error) => return Ok(Err(watch_refused(&error))),
    };
    let mut open: BTreeSet<JobId> = found.iter().map(|found| found.change.job).collect();
    for job in jobs.iter().filter(|job| !open.contains(job)) {
        match recorded(*job, who, shared).await {
            Ok((change, _)) => sender.send(&Followed::Change(change)).await?,
            Err(refused) => return Ok(Err(refused)),
        }
    }
    for found in found {
        sender.send(&Followed::Change(found.change.clone())).await?;
        if found.change.state.is_over() {
            open.remove(&found.change.job);
        }
    }
    while !open.is_empty() {
        let Some(change) = changes.recv().await else {
            return Ok(Err(Refused::new("too_slow", "you read too slowly: watch again")));
        };
        // A change that the first answer included already may come again.
        if !open.contains(&change.job) {
            continue;
        }
        if change.state.is_over() {
            open.remove(&change.job);
        }
        sender.send(&Followed::Change(change)).await?;
    }
    Ok(Ok(()))
}

/// Returns the last change and the record of a job that has left the system.
pub async fn recorded(job: JobId, who: &Identity, shared: &Shared) -> Result<(JobChange, JobRecord), Refused> {
    match shared.history.of_job(&who.name, job).await {
        Ok(Some(record)) => {
            let (nodes, outcome) = (record.nodes.clone(), Some(record.outcome.clone()));
            let submitted = Some(record.submitted);
            Ok((JobChange { job, run: record.run, state: JobState::Finished, nodes, outcome, submitted }, record))
        }
        Ok(None) => Err(Refused::new("no_such_job", format_args!("there is no job {job}"))),
        Err(error) => Err(history_refused(&error)),
    }
}
