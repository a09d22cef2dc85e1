//! Sends orders about one job to the server one after the other, concurrently with all other work.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use launcher_sdk::{CallError, Client, Select};
use rms_api::filter::JobFilter;
use rms_model::{JobId, Time};

use crate::failure::Failure;

/// A future that runs concurrently with all other work.
pub type Underway<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a running job is to do.
#[derive(Clone, Copy, Debug)]
pub enum JobOrder {
    Cancel,
    Signal(i32),
}

/// The queue of orders. They come from a person at a keyboard, so there are few.
pub struct Orders {
    client: Client,
    job: JobId,
    /// When the job was submitted, once that is known: a restored server may give its number to another job.
    pub submitted: Option<Time>,
    waiting: VecDeque<JobOrder>,
    going: Option<Underway<Result<(), Failure>>>,
    /// Since when the order that is under way has been.
    since: Instant,
}

/// A server that answers does so sooner.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

impl Orders {
    pub fn new(client: Client, job: JobId) -> Orders {
        Orders { client, job, submitted: None, waiting: VecDeque::new(), going: None, since: Instant::now() }
    }

    /// Queues an order after those that are not done yet.
    pub fn send(&mut self, order: JobOrder) {
        self.waiting.push_back(order);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.going.is_none()
    }

    /// Returns whether the server has not answered an order in time.
    pub fn are_unanswered(&self) -> bool {
        self.going.is_some() && self.since.elapsed() > ANSWER_PATIENCE
    }

    /// Waits until the next order is done; cancel-safe: no order is lost.
    ///
    /// # Errors
    /// The server cannot be reached, or another job has the number now. A refused order counts as done: the job has just ended.
    pub async fn next(&mut self) -> Result<(), Failure> {
        if self.going.is_none() {
            let Some(order) = self.waiting.pop_front() else { return Ok(()) };
            let (client, job, submitted) = (self.client.clone(), self.job, self.submitted);
            self.since = Instant::now();
            self.going = Some(Box::pin(async move { Ok(send(&client, job, submitted, order).await?) }));
        }
        let done = match &mut self.going {
            Some(going) => going.await,
            None => Ok(()),
        };
        self.going = None;
        done
    }
}

async fn send(client: &Client, job: JobId, submitted: Option<Time>, order: JobOrder) -> Result<(), CallError> {
    if let Some(submitted) = submitted {
        let found = client.queue_of(JobFilter { jobs: vec![job], ..JobFilter::default() }).await?;
        if found.jobs.iter().any(|line| line.submitted != submitted) {
            return Err(CallError::OtherJob(job));
        }
    }
    let select = Select::Ids(vec![job]);
    match order {
        JobOrder::Cancel => client.cancel(select).await.map(drop),
        JobOrder::Signal(signal) => client.signal(select, signal).await.map(drop),
    }
}
