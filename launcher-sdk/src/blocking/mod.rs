//! The client for programs without an async runtime: the same calls, each blocking until the server has answered.

mod launcher;
mod negotiator;

use std::path::Path;

use rms_api::answer::{JobChange, ViewAnswer};
use rms_api::call::update::Changes;
use rms_api::call::{HistoryQuery, Select, Submission};
use rms_api::filter::{JobFilter, NodeFilter};
use rms_model::{Evolution, JobId, JobRecord, Outcome};
use tokio::runtime::{Builder, Runtime};

use crate::client::follow::FollowEvent;
use crate::client::{JobDetails, JobsDone, NodeList, Queue, Submitted};
use crate::error::{CallError, ConnectError};

pub use launcher::Session;
pub use negotiator::{Negotiation, Negotiator, Resizing, TimedOut};

/// A client whose calls block the calling thread. Not for use inside an async runtime.
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Runtime,
}

impl Client {
    /// See [`crate::Client::connect`].
    ///
    /// # Errors
    /// See [`crate::Client::connect`].
    ///
    /// # Panics
    /// If the system cannot create an event queue (epoll).
    pub fn connect(dir: &Path) -> Result<Client, ConnectError> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("an event queue (epoll) is to be had");
        let client = runtime.block_on(crate::Client::connect(dir))?;
        Ok(Client { client, runtime })
    }

    /// See [`crate::Client::connect_here`].
    ///
    /// # Errors
    /// See [`crate::Client::connect_here`].
    ///
    /// # Panics
    /// See [`Client::connect`].
    pub fn connect_here() -> Result<Client, ConnectError> {
        Client::connect(&crate::find_client_dir()?)
    }

    /// See [`crate::Client::submit`].
    ///
    /// # Errors
    /// See [`crate::Client::submit`].
    pub fn submit(&self, submission: Submission) -> Result<Submitted, CallError> {
        self.runtime.block_on(self.client.submit(submission))
    }

    /// See [`crate::Client::cancel`].
    ///
    /// # Errors
    /// See [`crate::Client::cancel`].
    pub fn cancel(&self, select: Select) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.cancel(select))
    }

    /// See [`crate::Client::signal`].
    ///
    /// # Errors
    /// See [`crate::Client::signal`].
    pub fn signal(&self, select: Select, signal: i32) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.signal(select, signal))
    }

    /// See [`crate::Client::hold`].
    ///
    /// # Errors
    /// See [`crate::Client::hold`].
    pub fn hold(&self, select: Select) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.hold(select))
    }

    /// See [`crate::Client::release`].
    ///
    /// # Errors
    /// See [`crate::Client::release`].
    pub fn release(&self, select: Select) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.release(select))
    }

    /// See [`crate::Client::update`].
    ///
    /// # Errors
    /// See [`crate::Client::update`].
    pub fn update(&self, select: Select, changes: Changes) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.update(select, changes))
    }

    /// See [`crate::Client::set_priority`].
    ///
    /// # Errors
    /// See [`crate::Client::set_priority`].
    pub fn set_priority(&self, select: Select, priority: i32) -> Result<JobsDone, CallError> {
        self.runtime.block_on(self.client.set_priority(select, priority))
    }

    /// See [`crate::Client::evolve`].
    ///
    /// # Errors
    /// See [`crate::Client::evolve`].
    pub fn evolve(&self, job: JobId, stages: Evolution, open: bool) -> Result<(), CallError> {
        self.runtime.block_on(self.client.evolve(job, stages, open))
    }

    /// See [`crate::Client::free_nodes`].
    ///
    /// # Errors
    /// See [`crate::Client::free_nodes`].
    pub fn free_nodes(&self, job: JobId, nodes: Vec<String>) -> Result<(), CallError> {
        self.runtime.block_on(self.client.free_nodes(job, nodes))
    }

    /// See [`crate::Client::queue`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn queue(&self) -> Result<Queue, CallError> {
        self.runtime.block_on(self.client.queue())
    }

    /// See [`crate::Client::queue_of`].
    ///
    /// # Errors
    /// See [`crate::Client::queue_of`].
    pub fn queue_of(&self, filter: JobFilter) -> Result<Queue, CallError> {
        self.runtime.block_on(self.client.queue_of(filter))
    }

    /// See [`crate::Client::jobs`].
    ///
    /// # Errors
    /// See [`crate::Client::jobs`].
    pub fn jobs(&self, select: Select) -> Result<JobDetails, CallError> {
        self.runtime.block_on(self.client.jobs(select))
    }

    /// See [`crate::Client::jobs_of`].
    ///
    /// # Errors
    /// See [`crate::Client::jobs_of`].
    pub fn jobs_of(&self, filter: JobFilter) -> Result<JobDetails, CallError> {
        self.runtime.block_on(self.client.jobs_of(filter))
    }

    /// See [`crate::Client::nodes`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn nodes(&self) -> Result<NodeList, CallError> {
        self.runtime.block_on(self.client.nodes())
    }

    /// See [`crate::Client::nodes_of`].
    ///
    /// # Errors
    /// See [`crate::Client::nodes_of`].
    pub fn nodes_of(&self, filter: NodeFilter) -> Result<NodeList, CallError> {
        self.runtime.block_on(self.client.nodes_of(filter))
    }

    /// See [`crate::Client::view`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn view(&self, job: Option<JobId>) -> Result<ViewAnswer, CallError> {
        self.runtime.block_on(self.client.view(job))
    }

    /// See [`crate::Client::history`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn history(&self, query: HistoryQuery) -> Result<Vec<JobRecord>, CallError> {
        self.runtime.block_on(self.client.history(query))
    }

    /// Calls `seen` with every change of the jobs until all have ended.
    ///
    /// # Errors
    /// See [`crate::Watch::next`].
    pub fn watch(&self, jobs: Vec<JobId>, mut seen: impl FnMut(JobChange)) -> Result<(), CallError> {
        self.runtime.block_on(async {
            let mut watch = self.client.watch(jobs);
            while let Some(change) = watch.next().await? {
                seen(change);
            }
            Ok(())
        })
    }

    /// Waits until a job has ended, and returns its outcome.
    ///
    /// # Errors
    /// See [`crate::Watch::next`].
    pub fn wait(&self, job: JobId) -> Result<Outcome, CallError> {
        let mut outcome = None;
        self.watch(vec![job], |change| outcome = change.outcome)?;
        outcome.ok_or(CallError::Unexpected)
    }

    /// Calls `seen` with a job's output and changes, from the beginning to the end.
    ///
    /// # Errors
    /// See [`crate::Follow::next`].
    pub fn follow(&self, job: JobId, mut seen: impl FnMut(FollowEvent)) -> Result<(), CallError> {
        self.runtime.block_on(async {
            let mut follow = self.client.follow(job, false);
            while let Some(event) = follow.next().await? {
                seen(event);
            }
            Ok(())
        })
    }
}
