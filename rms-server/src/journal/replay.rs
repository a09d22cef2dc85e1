//! Reads a journal back: the snapshot, then every fact after it, checked batch by batch.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use rms_core::Fact;
use serde::de::DeserializeOwned;

use super::batch::{Digest, Kind, fact_at};
use super::segment::{self, SegmentReader};
use super::{Tail, Volume, environments, snapshot};
use crate::open_error::OpenError;

/// The files of a journal that hold its state.
#[derive(Clone, Debug)]
pub(super) struct Files {
    dir: PathBuf,
    /// 0 = none.
    pub snapshot_seq: u64,
    /// The segments, by their first facts; the first segment continues the snapshot.
    pub segments: Vec<u64>,
    /// The last fact to read, which ends a segment; all facts, if absent.
    until: Option<u64>,
}

impl Files {
    /// Finds the files of a journal.
    ///
    /// # Errors
    /// There is no journal, or a part of it is missing.
    pub fn find(dir: &Path) -> Result<Files, OpenError> {
        let of_io = |source| OpenError::Read { path: dir.to_owned(), source };
        if !dir.try_exists().map_err(of_io)? {
            return Err(OpenError::Missing { path: dir.to_owned() });
        }
        if dir.is_file() {
            return Err(OpenError::Foreign { path: dir.to_owned() });
        }
        let snapshot_seq = snapshot::list(dir).map_err(of_io)?.pop().unwrap_or(0);
        let mut segments = segment::list(dir).map_err(of_io)?;
        if segments.is_empty() && snapshot_seq == 0 {
            return Err(OpenError::Emptied { path: dir.to_owned() });
        }
        let first_seq = snapshot_seq + 1;
        let begins = segments.iter().position(|begin| *begin == first_seq);
        let Some(begins) = begins else {
            let problem = match segments.first() {
                Some(first) if *first > first_seq => format!("facts {first_seq} to {} are missing", first - 1),
                Some(_) | None => {
                    format!("the file log.{first_seq}, which continues snapshot.{snapshot_seq}, is missing")
                }
            };
            return Err(OpenError::Damaged { path: dir.to_owned(), problem });
        };
        segments.drain(..begins);
        Ok(Files { dir: dir.to_owned(), snapshot_seq, segments, until: None })
    }

    /// Drops the segments that begin after fact `until`, which must end a segment.
    pub fn up_to(mut self, until: u64) -> Files {
        self.segments.retain(|begin| *begin <= until);
        self.until = Some(until);
        self
    }
}

/// The result of a replay.
pub(super) struct Replayed<T> {
    pub restored: T,
    /// The last intact batch.
    pub tail: Tail,
    pub volume: Volume,
    pub snapshot_bytes: u64,
    /// The segment with the last intact batch, and where the batch ends.
    pub segment: PathBuf,
    pub end: u64,
    /// The damage after it, if the journal does not simply end there.
    pub failed: Option<OpenError>,
}

/// Replays the snapshot and the facts after it. No fact is skipped: if one is missing or unreadable, the whole replay
/// fails, and the result of `restore` is dropped. `observe` is called with each fact and its number.
pub(super) fn replay<S: DeserializeOwned, T>(
    files: &Files,
    observe: &mut dyn FnMut(u64, &Fact),
    restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> T,
) -> Result<Replayed<T>, OpenError> {
    let mut replayed = read(files, observe, restore)?;
    match replayed.failed.take() {
        Some(error) => Err(error),
        None => Ok(replayed),
    }
}

/// Replays like [`replay`], but stops before the first fact that is not intact.
pub(super) fn read<S: DeserializeOwned, T>(
    files: &Files,
    observe: &mut dyn FnMut(u64, &Fact),
    restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> T,
) -> Result<Replayed<T>, OpenError> {
    let mut facts = FactReader::begin(files)?;
    let (snapshot, snapshot_bytes) = match files.snapshot_seq {
        0 => (None, 0),
        seq => {
            let (state, n_bytes) = snapshot::read(&files.dir, seq, facts.tail.digest)?;
            (Some(state), n_bytes)
        }
    };
    let mut numbered = std::iter::from_fn(|| {
        let fact = facts.next_or_store_error()?;
        observe(facts.fact_seq, &fact);
        Some(fact)
    });
    let restored = restore(snapshot, &mut numbered);
    // `restore` may not have read to the end: damage there must be found all the same.
    numbered.for_each(drop);
    let (tail, segment, end) = facts.last_whole();
    Ok(Replayed { restored, tail, volume: facts.volume, snapshot_bytes, segment, end, failed: facts.failed })
}

/// Checks that a log continues the newest snapshot, or begins the journal, as far as its first page says.
pub(super) fn check_begin(dir: &Path) -> Result<(), OpenError> {
    FactReader::begin(&Files::find(dir)?).map(drop)
}

/// Iterates over the facts in order; at an unreadable one it ends, and stores the error.
struct FactReader {
    dir: PathBuf,
    until: Option<u64>,
    reader: SegmentReader,
    /// The segments after the reader's.
    segments: VecDeque<u64>,
    body: Vec<u8>,
    /// Where the next fact begins in the body.
    offset: usize,
    /// The last fact that was returned.
    fact_seq: u64,
    /// The last batch with facts that was read, and where it ends.
    tail: Tail,
    end: u64,
    /// The batch before it, and where that ends.
    before: (Tail, u64),
    volume: Volume,
    environments: environments::Reader,
    failed: Option<OpenError>,
}

impl FactReader {
    fn begin(files: &Files) -> Result<FactReader, OpenError> {
        let mut segments: VecDeque<u64> = files.segments.iter().copied().collect();
        let first = segments.pop_front().ok_or_else(|| OpenError::Emptied { path: files.dir.clone() })?;
        let reader = open_segment(&files.dir, first)?;
        if first == 1 && reader.previous != Digest::NONE {
            return Err(damaged(reader.path(), "it does not begin a journal".to_owned()));
        }
        Ok(FactReader {
            dir: files.dir.clone(),
            until: files.until,
            fact_seq: first - 1,
            tail: Tail { seq: first - 1, digest: reader.previous },
            end: reader.offset(),
            before: (Tail { seq: first - 1, digest: reader.previous }, reader.offset()),
            reader,
            segments,
            body: Vec::new(),
            offset: 0,
            volume: Volume::default(),
            environments: environments::Reader::default(),
            failed: None,
        })
    }

    /// Returns the last intact batch. A batch with an unreadable fact does not count.
    fn last_whole(&self) -> (Tail, PathBuf, u64) {
        let (tail, end) = if self.offset < self.body.len() { self.before } else { (self.tail, self.end) };
        (tail, self.reader.path().to_owned(), end)
    }

    fn next_or_store_error(&mut self) -> Option<Fact> {
        if self.failed.is_some() {
            return None;
        }
        match self.read_next() {
            Ok(fact) => fact,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn read_next(&mut self) -> Result<Option<Fact>, OpenError> {
        while self.offset == self.body.len() {
            if !self.read_batch()? {
                return Ok(None);
            }
        }
        let seq = self.fact_seq + 1;
        let damaged = |problem: String| damaged(self.reader.path(), problem);
        let (bytes, environment_of, next) =
            fact_at(&self.body, self.offset).ok_or_else(|| damaged(format!("fact {seq} is cut off")))?;
        let fact = rmp_serde::from_slice(bytes).map_err(|error| {
            damaged(format!("fact {seq} is unreadable ({error}); was it written by a newer server?"))
        })?;
        let fact = self.environments.expand(fact, seq, environment_of);
        let fact = fact.ok_or_else(|| damaged(format!("fact {seq} refers to an environment that is missing")))?;
        self.volume.facts += 1;
        self.volume.bytes += bytes.len() as u64;
        self.offset = next;
        self.fact_seq = seq;
        Ok(Some(fact))
    }

    /// Reads the next batch with facts; returns false at the end of the journal.
    fn read_batch(&mut self) -> Result<bool, OpenError> {
        loop {
            let of_io = |source| OpenError::Read { path: self.dir.clone(), source };
            let path = self.reader.path().to_owned();
            self.before = (self.tail, self.end);
            let Some((header, digest)) = self.reader.next(&mut self.body).map_err(of_io)? else {
                self.body.clear();
                self.offset = 0;
                self.skip_abandoned()?;
                let Some(next) = self.segments.pop_front() else { return self.check_end().map(|()| false) };
                self.begin_segment(next)?;
                continue;
            };
            // Until the batch is known to belong here, it counts as not read.
            self.offset = 0;
            if header.kind == Kind::Seal {
                self.skip_abandoned()?;
            }
            let expected = self.tail.seq + 1;
            match header.first_seq.cmp(&expected) {
                Ordering::Less => {
                    let problem = format!("fact {} stands where {expected} should", header.first_seq);
                    return Err(damaged(&path, problem));
                }
                Ordering::Equal => {}
                Ordering::Greater => {
                    return Err(damaged(&path, format!("facts {expected} to {} are missing", header.first_seq - 1)));
                }
            }
            if header.previous != self.tail.digest {
                return Err(damaged(&path, format!("fact {expected} does not continue the facts before it")));
            }
            match header.kind {
                Kind::Facts => {
                    self.tail = Tail { seq: self.tail.seq + u64::from(header.n_facts), digest };
                    self.end = self.reader.offset();
                    if header.n_facts > 0 {
                        return Ok(true);
                    }
                }
                Kind::Seal if self.segments.is_empty() && self.until == Some(self.tail.seq) => {
                    self.body.clear();
                    return Ok(false);
                }
                Kind::Seal if self.segments.is_empty() => {
                    let problem = format!("log.{expected}, which continues {}, is missing", path.display());
                    return Err(damaged(&self.dir, problem));
                }
                // The next segment continues the facts; it does not refer to the seal.
                Kind::Seal => {}
            }
        }
    }

    /// Skips segments that were abandoned while they were created: the one before went on, and they hold nothing.
    fn skip_abandoned(&mut self) -> Result<(), OpenError> {
        while let Some(first_seq) = self.segments.front().copied().filter(|first_seq| *first_seq <= self.tail.seq) {
            let next = open_segment(&self.dir, first_seq)?;
            let durable = next
                .durable_after_offset()
                .map_err(|source| OpenError::Read { path: next.path().to_owned(), source })?;
            if next.mark.seq.max(durable) >= first_seq {
                return Ok(());
            }
            self.segments.pop_front();
        }
        Ok(())
    }

    fn begin_segment(&mut self, first_seq: u64) -> Result<(), OpenError> {
        if self.tail.seq + 1 != first_seq {
            let problem = format!(
                "facts {} to {} do not match their checksum, or are missing (from byte {})",
                self.tail.seq + 1,
                first_seq - 1,
                self.end
            );
            return Err(damaged(self.reader.path(), problem));
        }
        let next = open_segment(&self.dir, first_seq)?;
        if next.previous != self.tail.digest {
            return Err(damaged(next.path(), format!("it does not continue {}", self.reader.path().display())));
        }
        self.end = next.offset();
        self.reader = next;
        Ok(())
    }

    /// Checks that the log may end here: after the last intact batch, nothing may follow that was ever durable.
    /// Otherwise it is only a write that a crash cut short, and that was never acknowledged.
    fn check_end(&self) -> Result<(), OpenError> {
        let of_io = |source| OpenError::Read { path: self.reader.path().to_owned(), source };
        let durable = self.reader.mark.seq.max(self.reader.durable_after_offset().map_err(of_io)?);
        if durable > self.tail.seq {
            let problem = format!(
                "facts {} to {durable} do not match their checksum, or are missing (from byte {})",
                self.tail.seq + 1,
                self.reader.offset()
            );
            return Err(damaged(self.reader.path(), problem));
        }
        if self.reader.is_mark_damaged && self.tail.seq <= self.reader.mark.seq {
            let problem = format!("one of its marks is unreadable, and facts after {} may be missing", self.tail.seq);
            return Err(damaged(self.reader.path(), problem));
        }
        Ok(())
    }
}

fn open_segment(dir: &Path, first_seq: u64) -> Result<SegmentReader, OpenError> {
    let reader = SegmentReader::open(&segment::path_of(dir, first_seq))?;
    if reader.first_seq != first_seq {
        let problem = format!("it begins with fact {}: it is another segment's file", reader.first_seq);
        return Err(damaged(reader.path(), problem));
    }
    Ok(reader)
}

fn damaged(path: &Path, problem: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), problem }
}
