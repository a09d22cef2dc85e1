//! Sends the streams of a job's tasks from the spool to followers, and forwards their input.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use rms_model::Work;
use rms_wire::message::{MAX_CHUNK_BYTES, MAX_LINES};
use rms_wire::{Channel, Chunk, FollowOrder, Input, LinkError, Offset, Receiver, Sender, Spooled, Stream};
use thiserror::Error;

use crate::frame;
use crate::order::{TASK_INPUT, WINDOW};
use crate::share::{Share, Shares, StreamEvent};
use crate::spool::{self, OutputManifest, Size};
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
    let input = tokio::spawn(forward_input(share.clone(), receiver));
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
    let mut streams = streams(share, order);
    let watch = watch_entry(share, watches).await?;
    let may_spawn = share.order().is_streamed() && matches!(share.order().launch.execution.work, Work::Tasks { .. });
    loop {
        let changed = share.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        // Checked before the last read of the files, so that everything written before the end is seen.
        let has_ended = share.has_ended();
        let written = has_ended.then(|| read_manifest(share));
        if may_spawn {
            add_spawned(&mut streams, share, order);
        }
        for stream in &mut streams {
            while let Some(chunk) = stream.read().map_err(|source| stream.error(source))? {
                sender.send(&Spooled::Chunk(chunk)).await?;
            }
        }
        if let Some(written) = written {
            let last = written?.and_then(|written| missing(&streams, &written)).unwrap_or(Spooled::End);
            sender.send(&last).await?;
            return Ok(());
        }
        tokio::select! {
            () = watch.woken() => {}
            () = changed => {}
        }
    }
}

/// Returns the manifest that the supervisor has written at the end, if there are streams.
fn read_manifest(share: &Share) -> Result<Option<OutputManifest>, FollowError> {
    if !share.order().is_streamed() {
        return Ok(None);
    }
    let found = spool::read_manifest(share.entry_dir(), share.job(), share.run());
    found.map_err(|source| FollowError::Result { path: spool::result_path(share.entry_dir()), source })
}

/// Returns the missing parts of the streams.
fn missing(streams: &[SpoolFile], written: &OutputManifest) -> Option<Spooled> {
    let mut lost: Vec<(Offset, String)> = streams.iter().filter_map(|stream| stream.lost(written)).collect();
    let mut reason = lost.first().map(|(_, reason)| reason.clone());
    if lost.is_empty() && written.was_full {
        reason = Some("its disk was full while the job wrote, so that some of it may be lost".to_owned());
        lost = streams.iter().map(|stream| (stream.place(), String::new())).collect();
    }
    let from = lost.into_iter().map(|(offset, _)| offset).take(MAX_LINES).collect();
    Some(Spooled::Missing { reason: reason?, from })
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

/// A file of the spool, and how much of it was sent.
struct SpoolFile {
    path: PathBuf,
    file: Option<File>,
    next: Chunk,
    /// Whether a part of it was sent over this channel.
    is_read: bool,
}

/// Adds the streams of spawned tasks, which exist once the tasks are started.
fn add_spawned(streams: &mut Vec<SpoolFile>, share: &Share, follow: &FollowOrder) {
    let known = |task: u32| streams.iter().any(|stream| stream.next.task == task);
    let found = spool::stream_tasks(share.entry_dir());
    let new: Vec<u32> = found.into_iter().filter(|task| !known(*task)).collect();
    streams.extend(new.into_iter().flat_map(|task| both(share, follow, task)));
}

fn streams(share: &Share, follow: &FollowOrder) -> Vec<SpoolFile> {
    let order = share.order();
    let node_idx = order.node_idx;
    let tasks = match (&order.launch.execution.work, order.place()) {
        (Work::Script { .. }, _) if node_idx == 0 => 0..1,
        (Work::Tasks { .. }, Some(place)) => place.first_task..place.first_task + place.n_tasks,
        (Work::Script { .. } | Work::Nodes, _) | (Work::Tasks { .. }, None) => 0..0,
    };
    if !order.is_streamed() {
        return Vec::new();
    }
    tasks.flat_map(|task| both(share, follow, task)).collect()
}

/// Returns both streams of one task, from the follower's offsets on.
fn both(share: &Share, follow: &FollowOrder, task: u32) -> [SpoolFile; 2] {
    let node_idx = share.order().node_idx;
    [(Stream::Out, "out"), (Stream::Err, "err")].map(|(stream, name)| {
        // The index of this node may have changed; a task's number is unique in the job.
        let is_this = |from: &&rms_wire::Offset| from.task == task && from.stream == stream;
        let offset = follow.from.iter().find(is_this).map_or(0, |from| from.offset);
        let next = Chunk { node_idx, task, stream, offset, bytes: Vec::new() };
        SpoolFile { path: spool::stream_path(share.entry_dir(), name, task), file: None, next, is_read: false }
    })
}

impl SpoolFile {
    /// Reads the next piece, if there is one yet.
    fn read(&mut self) -> io::Result<Option<Chunk>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                // The task has not been started yet, or never was.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let Some(file) = &self.file else { return Ok(None) };
        let len = file.metadata()?.len();
        // The file may have been truncated, and the rest was sent.
        let n_new = len.saturating_sub(self.next.offset);
        if n_new == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; n_new.min(MAX_CHUNK_BYTES as u64) as usize];
        let n_read = file.read_at(&mut bytes, self.next.offset)?;
        bytes.truncate(n_read);
        let chunk = Chunk { bytes, ..self.next.clone() };
        self.next.offset += n_read as u64;
        self.is_read |= n_read > 0;
        Ok((n_read > 0).then_some(chunk))
    }

    /// Returns the offset up to which the file was sent.
    fn place(&self) -> Offset {
        let Chunk { node_idx, task, stream, offset, bytes: _ } = self.next;
        Offset { node_idx, task, stream, offset }
    }

    /// Returns the offset from which data is missing, and why, once everything that exists was sent.
    fn lost(&self, written: &OutputManifest) -> Option<(Offset, String)> {
        let written = written.stream(self.next.task, self.next.stream == Stream::Err)?;
        let path = self.path.display();
        let Some(size) = written.size else {
            // A file that was open here before it was deleted was read to its end.
            return self.file.is_none().then(|| (self.place(), format!("{path} was deleted while the job ran")));
        };
        let now = std::fs::metadata(&self.path).ok().as_ref().map(Size::of);
        let has_all = self.next.offset >= size.n_bytes;
        let reason = match now {
            None if !has_all => format!("{path} was deleted"),
            Some(now) if !has_all => format!("{path} has {} bytes, and had {}", now.n_bytes, size.n_bytes),
            Some(now) if self.is_read && now.n_bytes == size.n_bytes && now != size => {
                return Some((
                    Offset { offset: 0, ..self.place() },
                    format!("{path} was changed after the job had ended"),
                ));
            }
            None | Some(_) => return None,
        };
        Some((self.place(), reason))
    }

    fn error(&self, source: io::Error) -> FollowError {
        FollowError::Read { path: self.path.clone(), source }
    }
}

/// Forwards interactive input to task 0, no faster than the task reads it.
async fn forward_input(share: Share, mut receiver: Receiver) {
    let holds_task_0 = share.order().node_idx == 0;
    if !holds_task_0 {
        return;
    }
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
