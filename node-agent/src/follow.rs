//! Sends the streams of a job's tasks from the spool to followers, and forwards their input.

mod files;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rms_wire::{Channel, FollowOrder, Input, InputAt, LinkError, Receiver, Sender, Spooled};
use thiserror::Error;
use tokio::sync::watch;

use self::files::{Batch, Rest, SpoolFiles};
use crate::frame;
use crate::order::{InputCount, TASK_INPUT, WINDOW};
use crate::share::{Share, Shares, StreamEvent};
use crate::watch::{Watch, Watches};

/// Why a follower was not served to the end.
#[derive(Debug, Error)]
pub enum FollowError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("cannot watch or read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "how much the job has written is not known, for {path} cannot be read (a full disk keeps it from being written): {source}"
    )]
    Result { path: PathBuf, source: io::Error },
}

/// How long to wait for the job: the order to follow may arrive before the order to start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one follower until the share has ended and everything is sent, or the follower leaves.
pub async fn serve(order: FollowOrder, channel: Channel, shares: Shares, watches: &Watches) {
    let (mut sender, receiver) = channel.split();
    let (job, run) = (order.job, order.run);
    let timeout = if order.is_over { Duration::ZERO } else { TIMEOUT };
    let Ok(share) = tokio::time::timeout(timeout, shares.wait_for(job, run, order.submitted)).await else {
        let reason = format!("job {job} is not on this node, or its output is not kept any more");
        let _follower_left = sender.send(&Spooled::Failed { reason }).await;
        return;
    };
    let input = tokio::spawn(forward_input(share.clone(), receiver, order.input_from));
    if let Err(error) = send_streams(&share, &order, &mut sender, watches).await {
        // A follower that does not read may return any number of times.
        match &error {
            FollowError::Link(_) => tracing::debug!(%job, %error, "a follower has left"),
            FollowError::Read { .. } | FollowError::Result { .. } => {
                tracing::warn!(%job, %error, "a follower was not served to the end");
            }
        }
        let _link_is_gone = sender.send(&Spooled::Failed { reason: error.to_string() }).await;
    }
    sender.finish();
    input.abort();
}

async fn send_streams(
    share: &Share,
    order: &FollowOrder,
    sender: &mut Sender,
    watches: &Watches,
) -> Result<(), FollowError> {
    let mut files = SpoolFiles::new(share, order);
    let watch = watch_entry(share, watches).await?;
    let mut taken = Taken { input: order.input_from.map(|_| share.input()), told: None };
    loop {
        let changed = share.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        // Checked before the last read of the files, so that everything written before the end is seen.
        let has_ended = share.has_ended();
        let batch;
        (files, batch) = read(share, files, has_ended).await?;
        for chunk in batch.chunks {
            sender.send(&Spooled::Chunk(chunk)).await?;
        }
        if let Some(n_bytes) = taken.news() {
            sender.send(&Spooled::Taken { n_bytes }).await?;
        }
        match batch.rest {
            Rest::More => continue,
            Rest::Later => {}
            Rest::End(last) => {
                sender.send(&last).await?;
                return Ok(());
            }
        }
        loop {
            let n_bytes = tokio::select! {
                () = watch.woken() => break,
                () = &mut changed => break,
                n_bytes = taken.next() => n_bytes,
                // The job may be silent until its end, and the link has only so many channels.
                () = sender.stopped() => return Ok(()),
            };
            sender.send(&Spooled::Taken { n_bytes }).await?;
        }
    }
}

/// How much input task 0 has been given, for a follower that wants to know.
struct Taken {
    input: Option<watch::Receiver<Option<InputCount>>>,
    told: Option<u64>,
}

impl Taken {
    /// Returns the number of bytes, if it is another one than before.
    fn news(&mut self) -> Option<u64> {
        let count = (*self.input.as_mut()?.borrow_and_update())?;
        let now = count.written.min(count.received);
        (self.told.replace(now) != Some(now)).then_some(now)
    }

    /// Waits for another number. Cancel safe.
    async fn next(&mut self) -> u64 {
        loop {
            if let Some(n_bytes) = self.news() {
                return n_bytes;
            }
            let has_changed = match &mut self.input {
                Some(input) => input.changed().await.is_ok(),
                None => false,
            };
            if !has_changed {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Reads a batch off the agent's task: a disk may be slow.
async fn read(share: &Share, mut files: SpoolFiles, has_ended: bool) -> Result<(SpoolFiles, Batch), FollowError> {
    let reading = tokio::task::spawn_blocking(move || {
        let batch = files.read(has_ended);
        (files, batch)
    });
    let failed = |error| FollowError::Read { path: share.entry_dir().clone(), source: io::Error::other(error) };
    let (files, batch) = reading.await.map_err(failed)?;
    Ok((files, batch?))
}

/// Watches the entry as soon as the supervisor has created it.
async fn watch_entry(share: &Share, watches: &Watches) -> Result<Watch, FollowError> {
    loop {
        let changed = share.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let may_come = !share.has_ended();
        match watches.watch(share.entry_dir()) {
            Ok(watch) => return Ok(watch),
            Err(error) if may_come && error.kind() == io::ErrorKind::NotFound => changed.await,
            Err(source) => return Err(FollowError::Read { path: share.entry_dir().clone(), source }),
        }
    }
}

/// Forwards interactive input to task 0, no faster than the task reads it.
async fn forward_input(share: Share, receiver: Receiver, from: Option<u64>) {
    let holds_task_0 = share.order().node_idx == 0;
    match from {
        Some(from) if holds_task_0 => forward_from(share, receiver, from).await,
        None if holds_task_0 => forward_in_order(share, receiver).await,
        Some(_) | None => {}
    }
}

/// Forwards each byte once, however often and over whichever channel it comes.
async fn forward_from(share: Share, mut receiver: Receiver, from: u64) {
    let mut count = share.input();
    loop {
        let Some(to) = share.wait_for_supervisor().await else { return };
        let counted = tokio::time::timeout(COUNTED_AFTER, count.wait_for(Option::is_some)).await.is_ok();
        if !counted {
            // A supervisor that was started by an older agent does not count.
            share.count_input(InputCount { received: from, written: from });
        }
        let has_room = |count: &Option<InputCount>| {
            count.is_none_or(|count| count.received.saturating_sub(count.written) < WINDOW)
        };
        if count.wait_for(has_room).await.is_err() {
            return;
        }
        let Ok(Some(input)) = receiver.recv::<InputAt>().await else { return };
        share.queue_input(input, &to).await;
    }
}

/// How long a supervisor may take to say what it has received.
const COUNTED_AFTER: Duration = Duration::from_secs(2);

/// Forwards what comes, which is not repeated.
async fn forward_in_order(share: Share, mut receiver: Receiver) {
    let mut n_unconfirmed = 0;
    let mut events = share.listen(TASK_INPUT);
    loop {
        while n_unconfirmed >= WINDOW {
            match events.recv().await {
                Some(StreamEvent::Taken { n_bytes, stream: _ }) => n_unconfirmed -= n_bytes.min(n_unconfirmed),
                Some(
                    StreamEvent::Bytes { .. }
                    | StreamEvent::Ended { .. }
                    | StreamEvent::Failed { .. }
                    | StreamEvent::TaskEnded { .. }
                    | StreamEvent::Aborted { .. }
                    | StreamEvent::Pmi(_)
                    | StreamEvent::Done,
                ) => {}
                None => return,
            }
        }
        while let Ok(StreamEvent::Taken { n_bytes, stream: _ }) = events.try_recv() {
            n_unconfirmed -= n_bytes.min(n_unconfirmed);
        }
        let Ok(Some(Input { bytes, eof })) = receiver.recv().await else { return };
        let Some(to) = share.wait_for_supervisor().await else { return };
        n_unconfirmed += bytes.len() as u64;
        if !bytes.is_empty() && to.send(frame::bytes(TASK_INPUT, &bytes)).await.is_err() {
            return;
        }
        if eof {
            let _ended_meanwhile = to.send(frame::bytes(TASK_INPUT, b"")).await;
            return;
        }
    }
}
