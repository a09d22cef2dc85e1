//! Brings an embedded cluster down: jobs first, then agents and server, then any remaining processes.

use std::path::Path;
use std::time::Duration;

use launcher_sdk::Client;
use rms_api::answer::{JobState, NodeState};
use rms_api::call::Select;
use rustix::process::Signal;

use super::cgroups;
use super::ledger::{Ledger, UpDir};
use super::process::ProcessRecord;
use super::sweep;
use crate::failure::Failure;
use crate::place;

/// The result of stopping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Jobs that were cancelled while they ran.
    pub n_jobs: usize,
    /// Server and agents that were ended.
    pub n_processes: usize,
    /// Processes that had to be killed.
    pub n_killed: usize,
    pub is_removed: bool,
}

/// How to stop the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOptions {
    /// Keep the data for another `rms up`.
    pub keep: bool,
    /// Give jobs no time to end on their own.
    pub now: bool,
}

/// Stops the cluster; `None` if there is none.
///
/// # Errors
/// The ledger or a directory cannot be used. Processes that do not end are killed.
pub async fn stop(dir: &UpDir, options: StopOptions) -> Result<Option<Stopped>, Failure> {
    if !place::is_there(&dir.root)? {
        return Ok(None);
    }
    let Some(mut ledger) = dir.load()? else {
        return Ok(None);
    };
    let _lock = dir.lock()?;
    let mut stopped = Stopped::default();
    let server_runs = ProcessRecord::is_any_running(ledger.server.as_ref()).await;
    // Waiting jobs that are kept are in the journal and start with the next 'rms up'; running ones cannot be kept.
    if server_runs && !options.now {
        stopped.n_jobs = end_jobs(dir, &mut ledger, options.keep).await;
    }
    stopped.n_processes = end_daemons(&mut ledger).await;
    stopped.n_killed = sweep::kill_all(&dir.root).await;
    cgroups::remove(Path::new(cgroups::MOUNT), &ledger.cgroup);
    dir.save(&ledger)?;
    if !options.keep {
        dir.remove()?;
        stopped.is_removed = true;
    }
    Ok(Some(stopped))
}

/// Cancels jobs and waits for their ends. An unresponsive server does not prevent the stop.
async fn end_jobs(dir: &UpDir, ledger: &mut Ledger, only_running: bool) -> usize {
    let ended = async {
        let client = Client::connect(&dir.client()).await?;
        if only_running {
            // Nodes of an earlier attempt are already drained and would not be listed again.
            ledger.to_resume.extend(drain(&client).await?);
            dir.save(ledger)?;
        }
        let queue = client.queue().await?;
        let is_wanted = |state: JobState| match state {
            JobState::Started | JobState::Ending => true,
            JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => !only_running,
            JobState::Ghost | JobState::Finished => false,
        };
        let jobs: Vec<_> = queue.jobs.iter().filter(|line| is_wanted(line.state)).map(|line| line.job).collect();
        if jobs.is_empty() {
            return Ok(0);
        }
        // Jobs that are refused have just ended; the others are waited for.
        let _cancelled = client.cancel(Select::Ids(jobs.clone())).await?;
        let mut watch = client.watch(jobs.clone());
        while watch.next().await?.is_some() {}
        Ok::<usize, Failure>(jobs.len())
    };
    match tokio::time::timeout(JOBS_PATIENCE, ended).await {
        Ok(Ok(n_jobs)) => n_jobs,
        Ok(Err(_)) | Err(_) => 0,
    }
}

/// Drains the nodes, so that waiting jobs do not start where running ones are ended; returns the nodes that were in
/// use.
async fn drain(client: &Client) -> Result<Vec<String>, Failure> {
    let nodes = client.nodes().await?.nodes;
    let in_use = |state: NodeState| match state {
        NodeState::Idle | NodeState::Busy | NodeState::Ghost | NodeState::Away | NodeState::Lost => true,
        NodeState::Draining | NodeState::Drained | NodeState::Down => false,
    };
    let names: Vec<String> = nodes.into_iter().filter(|node| in_use(node.state)).map(|node| node.name).collect();
    if !names.is_empty() {
        client.drain(names.clone(), "rms down --keep".to_owned()).await?;
    }
    Ok(names)
}

/// Asks the server and the agents to end, all at once; kills those that do not.
async fn end_daemons(ledger: &mut Ledger) -> usize {
    // Agents first, so that their last reports still reach the server.
    let agents = ledger.nodes.iter_mut().map(|node| &mut node.process);
    let records = agents.chain([&mut ledger.server]).filter_map(Option::take);
    let records: Vec<ProcessRecord> = records.collect();
    let handles: Vec<_> = records.iter().filter_map(|record| Some((record, record.open()?))).collect();
    let n_processes = handles.len();
    for (_, handle) in &handles {
        handle.signal(Signal::TERM);
    }
    for (record, handle) in handles {
        let has_ended = handle.ended(DAEMON_PATIENCE).await.is_ok();
        if !has_ended && let Some(handle) = record.open() {
            handle.signal(Signal::KILL);
            // If the wait times out, the sweep finds the process again.
            let _ = handle.ended(DAEMON_PATIENCE).await;
        }
    }
    n_processes
}

/// Longer than the usual grace between TERM and KILL.
const JOBS_PATIENCE: Duration = Duration::from_secs(20);
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);
