//! Reads the files of a job's spool entry for one follower, batch by batch. All of it may block.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rms_model::Work;
use rms_wire::message::{MAX_CHUNK_BYTES, MAX_LINES};
use rms_wire::{Chunk, FollowOrder, Offset, Spooled, Stream};

use super::FollowError;
use crate::share::Share;
use crate::spool::{self, OutputManifest, Size};

/// The most chunks of a batch; a follower that reads slowly holds one batch in memory.
const MAX_CHUNKS: usize = 16;

/// The streams of an entry that one follower gets.
pub struct SpoolFiles {
    share: Share,
    follow: FollowOrder,
    streams: Vec<SpoolFile>,
    /// The stream with which the next batch begins.
    next_idx: usize,
    /// The manifest, read when the share had ended.
    written: Option<Result<Option<OutputManifest>, FollowError>>,
}

/// What was read at one time.
pub struct Batch {
    pub chunks: Vec<Chunk>,
    pub rest: Rest,
}

/// What follows a batch.
pub enum Rest {
    /// There is more already.
    More,
    /// More may be written.
    Later,
    /// Everything was read; this message is the last one.
    End(Spooled),
}

impl SpoolFiles {
    pub fn new(share: &Share, follow: &FollowOrder) -> SpoolFiles {
        let streams = streams(share, follow);
        SpoolFiles { share: share.clone(), follow: follow.clone(), streams, next_idx: 0, written: None }
    }

    /// Reads what was written since the last call, up to the size of a batch. `has_ended` is whether the share had ended
    /// before the call.
    ///
    /// # Errors
    /// A file cannot be read. Everything that was read before has been returned by earlier calls.
    pub fn read(&mut self, has_ended: bool) -> Result<Batch, FollowError> {
        if has_ended && self.written.is_none() {
            self.written = Some(read_manifest(&self.share));
            // Streams that were read before the end may have more.
            self.next_idx = 0;
        }
        if self.next_idx == 0 {
            self.add_spawned();
        }
        let mut chunks = Vec::new();
        while let Some(stream) = self.streams.get_mut(self.next_idx) {
            if chunks.len() == MAX_CHUNKS {
                return Ok(Batch { chunks, rest: Rest::More });
            }
            match stream.read() {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => self.next_idx += 1,
                Err(source) if chunks.is_empty() => return Err(stream.error(source)),
                // The next call finds the same error.
                Err(_) => return Ok(Batch { chunks, rest: Rest::More }),
            }
        }
        self.next_idx = 0;
        let Some(written) = self.written.take() else { return Ok(Batch { chunks, rest: Rest::Later }) };
        match written {
            Ok(written) => {
                let last = written.and_then(|written| missing(&self.streams, &written)).unwrap_or(Spooled::End);
                Ok(Batch { chunks, rest: Rest::End(last) })
            }
            Err(error) if chunks.is_empty() => Err(error),
            Err(_) => Ok(Batch { chunks, rest: Rest::More }),
        }
    }

    /// Adds the streams of spawned tasks, which exist once the tasks are started.
    fn add_spawned(&mut self) {
        let order = self.share.order();
        if !order.is_streamed() || !matches!(order.launch.execution.work, Work::Tasks { .. }) {
            return;
        }
        let known = |task: &u32| self.streams.iter().any(|stream| stream.next.task == *task);
        let mut new = spool::stream_tasks(self.share.entry_dir());
        new.retain(|task| !known(task));
        self.streams.extend(new.into_iter().flat_map(|task| both(&self.share, &self.follow, task)));
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

/// A file of the spool, and how much of it was sent.
struct SpoolFile {
    path: PathBuf,
    file: Option<File>,
    next: Chunk,
    /// Whether a part of it was sent over this channel.
    is_read: bool,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::order::Order;
    use crate::order::tests::order;
    use crate::work_queues::WorkQueues;

    const PIECE: usize = MAX_CHUNK_BYTES;

    /// A follower of a job with one task here, whose output file has this much.
    fn of(n_bytes: usize) -> (SpoolFiles, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let Order { launch, .. } = order([test_kit::place("n1")]);
        let mut launch = Arc::unwrap_or_clone(launch);
        launch.execution.work = Work::Tasks { argv: vec!["yes".to_owned()] };
        launch.execution.stdio.stream = true;
        let order = Order { launch: Arc::new(launch), ..order([test_kit::place("n1")]) };
        let (job, run) = (order.job, order.run);
        let follow = FollowOrder { job, run, from: Vec::new(), is_over: false, submitted: None, input_from: None };
        std::fs::write(dir.path().join("out.0"), vec![b'x'; n_bytes]).expect("written");
        let share = Share::new(order, dir.path().to_owned(), 0, WorkQueues::default());
        (SpoolFiles::new(&share, &follow), dir)
    }

    #[test]
    fn a_long_stream_is_read_in_batches() {
        let (mut files, _dir) = of((MAX_CHUNKS + 1) * PIECE);
        let mut read = || files.read(false).expect("it is there");
        let first = read();
        assert!(matches!(first.rest, Rest::More) && first.chunks.len() == MAX_CHUNKS);
        let second = read();
        assert!(matches!(second.rest, Rest::Later) && second.chunks.len() == 1);
        assert_eq!(second.chunks[0].offset, (MAX_CHUNKS * PIECE) as u64);
    }

    #[test]
    fn what_was_written_until_the_end_is_read_before_the_last_message() {
        let (mut files, dir) = of((MAX_CHUNKS + 1) * PIECE);
        std::fs::write(dir.path().join("err.0"), "late").expect("written");
        // The first batch is read while the job runs, the others after its end.
        let mut batch = files.read(false).expect("it is there");
        let mut n_bytes = 0;
        loop {
            n_bytes += batch.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
            if matches!(batch.rest, Rest::End(_)) {
                break;
            }
            let grown = vec![b'x'; (MAX_CHUNKS + 2) * PIECE];
            std::fs::write(dir.path().join("out.0"), grown).expect("written");
            match files.read(true) {
                Ok(next) => batch = next,
                // The manifest, which no supervisor has written here, is read after everything else.
                Err(FollowError::Result { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(n_bytes, (MAX_CHUNKS + 2) * PIECE + "late".len());
    }
}
