//! Pulls the output of one host of a job from its agent, through reconnects, until the agent says it was all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rms_model::{JobId, Run};
use rms_wire::link::Backoff;
use rms_wire::{Chunk, FollowOrder, Input, Link, LinkError, Offset, Spooled, Stream};
use tokio::sync::{Mutex, mpsc, watch};

use crate::shared::Shared;

/// One host's share of a followed job.
#[derive(Debug)]
pub struct Pull {
    pub shared: Arc<Shared>,
    pub job: JobId,
    pub run: Run,
    pub host_idx: u32,
    pub node: String,
    pub offsets: Offsets,
    /// What the follower gets. When it is full, the agent waits, and in the end the follower is why.
    pub pulled: mpsc::Sender<Pulled>,
    /// For host 0, whose task 0 gets it; the receiver passes to the next execution of the job.
    pub input: Option<Arc<Mutex<mpsc::Receiver<Input>>>>,
    /// Becomes true when the job is over.
    pub is_over: watch::Receiver<bool>,
}

/// How much of each stream the follower has.
pub type Offsets = BTreeMap<(u32, Stream), u64>;

/// What comes of pulling.
#[derive(Debug)]
pub enum Pulled {
    Chunk(Chunk),
    /// Nothing more will come from this host.
    End {
        host_idx: u32,
    },
}

/// How one connection to the agent ended.
enum Ended {
    /// The agent has sent everything.
    Whole,
    /// The follower does not want more.
    Unwanted,
    /// The follower does not read; what is left comes when it does.
    Stalled,
    /// The agent cannot serve it, or not yet: it may not have heard of the job.
    Failed { reason: String },
    /// The link broke; what is left comes from the next one.
    Lost(LinkError),
}

/// A job that is over has ended on all its nodes, so an agent that is away now was there a moment ago; if it does
/// not return soon, its output stays with it.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How often an agent may say that it cannot serve a job, before it is believed.
const MAX_FAILURES: u32 = 3;

impl Pull {
    pub async fn run(mut self) {
        self.pull_through().await;
        // A follower that has left does not care.
        let _ = self.pulled.send(Pulled::End { host_idx: self.host_idx }).await;
    }

    async fn pull_through(&mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let mut n_failures = 0;
        loop {
            let link = tokio::select! {
                link = self.shared.registry.agent(&self.node) => link,
                () = long_over(self.is_over.clone()) => return,
            };
            match self.pull_once(&link).await {
                Ended::Whole | Ended::Unwanted => return,
                Ended::Stalled => match self.pulled.reserve().await {
                    Ok(_room) => continue,
                    Err(_) => return,
                },
                Ended::Lost(error) => tracing::debug!(node = self.node, %error, "following is interrupted"),
                Ended::Failed { reason } => {
                    n_failures += 1;
                    let is_final = n_failures == MAX_FAILURES || *self.is_over.borrow();
                    if is_final {
                        tracing::info!(job = %self.job, node = self.node, reason, "no output to follow");
                        return;
                    }
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    async fn pull_once(&mut self, link: &Link) -> Ended {
        let order = FollowOrder { job: self.job.0, run: self.run.0, from: from(self.host_idx, &self.offsets) };
        let opened = async {
            let (mut sender, receiver) = link.open().await?.split();
            sender.send(&order).await?;
            Ok((sender, receiver))
        };
        let (mut sender, mut receiver) = match opened.await {
            Ok(halves) => halves,
            Err(error) => return Ended::Lost(error),
        };
        let input = self.input.clone();
        let reading = async {
            loop {
                match receiver.recv_some::<Spooled>().await {
                    Ok(Spooled::Chunk(chunk)) => {
                        if let Some(ended) = self.take(chunk).await {
                            return ended;
                        }
                    }
                    Ok(Spooled::End) => return Ended::Whole,
                    Ok(Spooled::Failed { reason }) => return Ended::Failed { reason },
                    Err(error) => return Ended::Lost(error),
                }
            }
        };
        let writing = async {
            if let Some(input) = input {
                let mut input = input.lock().await;
                while let Some(input) = input.recv().await {
                    if sender.send(&input).await.is_err() {
                        // The reading half sees the end too.
                        break;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        // Both run until the reading ends; neither is taken up again, so no frame is cut.
        tokio::select! {
            ended = reading => ended,
            () = writing => Ended::Unwanted,
        }
    }

    /// Passes a chunk on; says so if the follower has left.
    async fn take(&mut self, chunk: Chunk) -> Option<Ended> {
        // What was read of a channel that nobody reads on is given up, with all that the agent has sent after it. Input
        // that is under way would be lost with its channel.
        let room = match self.input {
            Some(_) => Ok(self.pulled.reserve().await),
            None => tokio::time::timeout(STALLED_AFTER, self.pulled.reserve()).await,
        };
        let room = match room {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Some(Ended::Unwanted),
            Err(_) => return Some(Ended::Stalled),
        };
        // An agent speaks for its own host alone.
        let chunk = Chunk { host_idx: self.host_idx, ..chunk };
        let end = chunk.offset.saturating_add(chunk.bytes.len() as u64);
        let n_streams = self.offsets.len();
        let offset = self.offsets.entry((chunk.task, chunk.stream)).or_insert(0);
        *offset = end.max(*offset);
        if n_streams > MAX_STREAMS {
            return Some(Ended::Failed { reason: "too many streams".to_owned() });
        }
        room.send(Pulled::Chunk(chunk));
        None
    }
}

/// A follower that takes nothing for so long is waited for without a channel to the agent.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Two streams for each task of a host; no host has more tasks.
const MAX_STREAMS: usize = 65_536;

fn from(host_idx: u32, offsets: &Offsets) -> Vec<Offset> {
    let offset = |(&(task, stream), &offset): (&(u32, Stream), &u64)| Offset { host_idx, task, stream, offset };
    offsets.iter().map(offset).collect()
}

async fn long_over(mut is_over: watch::Receiver<bool>) {
    // A follower that has left drops the sender, and then there is nothing to wait for either.
    if is_over.wait_for(|is_over| *is_over).await.is_ok() {
        tokio::time::sleep(LAST_WAIT).await;
    }
}
