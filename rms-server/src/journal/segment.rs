//! One file of the log: a header page that also marks how far it was durable, then batches, then zeros.
//!
//! The page holds the magic and format, the number of the first fact, the digest before it, and a digest of these;
//! then, in sectors of their own, two slots for the mark, written in turn. The mark is written after each sync and
//! becomes durable with the next: it is exact after a killed process, and at most one append behind after a power
//! failure.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::batch::{Digest, HEADER_LEN, Header, MAGIC};
use crate::dir::sync_dir;
use crate::open_error::OpenError;

/// Raised when an older server could no longer read what this one writes.
pub const FORMAT: u8 = b'1';

/// The magic; the byte after it is the format.
const NAME: &[u8; 7] = b"LMBRLOG";
const PAGE: u64 = 4096;
const MARK_LEN: usize = 16 + Digest::LEN;
const MARKS: [u64; 2] = [512, 1024];

/// The file grows by this much at a time: most appends then change no metadata, which would have to be synced, too.
const GROWTH: u64 = 256 * 1024;

static ZEROS: [u8; GROWTH as usize] = [0; GROWTH as usize];

/// This much space is allocated ahead: on a full disk, ends of jobs and orders of admins are written to it.
const RESERVE: u64 = 1024 * 1024;

/// Records how far a segment was durable when it was last marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub seq: u64,
    /// Where the batch with that fact ends.
    pub end: u64,
}

impl Mark {
    fn encode(self) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        bytes[..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.end.to_le_bytes());
        let digest = Digest::of(&[&bytes[..16]]);
        bytes[16..].copy_from_slice(&digest.0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Mark> {
        let (content, digest) = bytes.split_at_checked(16)?;
        let (seq, end) = content.split_at(8);
        let mark =
            Mark { seq: u64::from_le_bytes(seq.try_into().ok()?), end: u64::from_le_bytes(end.try_into().ok()?) };
        (Digest::of(&[content]).0 == digest).then_some(mark)
    }
}

/// How far the disk has a segment. There is no mark without it: a mark must not be on the disk before what it marks.
#[derive(Debug)]
pub struct Synced {
    end: u64,
}

/// Returns the path of the segment that begins with fact `first_seq`.
pub fn path_of(dir: &Path, first_seq: u64) -> PathBuf {
    dir.join(format!("log.{first_seq}"))
}

/// Lists the segments of a journal, by their first facts.
pub fn list(dir: &Path) -> io::Result<Vec<u64>> {
    numbered(dir, "log")
}

/// Lists the numbers of the files `STEM.NUMBER`, in ascending order.
pub fn numbered(dir: &Path, stem: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.split_once('.')).filter(|(found, _)| *found == stem);
        numbers.extend(number.and_then(|(_, number)| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment that is open for writing.
#[derive(Debug)]
pub struct Segment {
    file: File,
    path: PathBuf,
    end: u64,
    n_bytes: u64,
    n_marks: usize,
}

impl Segment {
    /// Creates an empty segment; it is durable when this returns.
    pub fn create(dir: &Path, first_seq: u64, previous: Digest) -> io::Result<Segment> {
        let (path, partial) = (path_of(dir, first_seq), dir.join("log.partial"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        let mut page = vec![0; PAGE as usize];
        page[..7].copy_from_slice(NAME);
        page[7] = FORMAT;
        page[8..16].copy_from_slice(&first_seq.to_le_bytes());
        page[16..32].copy_from_slice(&previous.0);
        let digest = Digest::of(&[&page[..32]]);
        page[32..48].copy_from_slice(&digest.0);
        let mark = Mark { seq: first_seq - 1, end: PAGE };
        for place in MARKS {
            page[place as usize..place as usize + MARK_LEN].copy_from_slice(&mark.encode());
        }
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        if let Err(error) = sync_dir(&path) {
            // The log goes on in the file before. If this file stays, readers skip it because it is empty.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let mut segment = Segment { file, path, end: PAGE, n_bytes: PAGE, n_marks: 0 };
        segment.keep_reserve();
        Ok(segment)
    }

    /// Opens a segment that was read up to `end`, and marks it there; anything that a crash left after that is
    /// overwritten. The file keeps its length: on a full disk, space that it gave up would be lost.
    pub fn open(path: &Path, end: u64, seq: u64) -> io::Result<Segment> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let n_bytes = file.metadata()?.len().max(end);
        for offset in (end..n_bytes).step_by(ZEROS.len()) {
            let n_left = usize::try_from(n_bytes - offset).unwrap_or(usize::MAX);
            file.write_all_at(&ZEROS[..n_left.min(ZEROS.len())], offset)?;
        }
        let mut segment = Segment { file, path: path.to_owned(), end, n_bytes, n_marks: 0 };
        // The disk may have none of what a killed process has written. If it got the mark first, a write that was lost
        // would be damage.
        let synced = segment.sync()?;
        for _ in MARKS {
            segment.mark(&synced, seq)?;
            segment.file.sync_all()?;
        }
        segment.keep_reserve();
        Ok(segment)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends without waiting for the disk. A partial write is overwritten by the next attempt.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.end + bytes.len() as u64;
        self.grow(end + RESERVE);
        self.file.write_all_at(bytes, self.end)?;
        self.end = end;
        self.n_bytes = self.n_bytes.max(end);
        Ok(())
    }

    /// Allocates what is missing of the reserve; returns false if the disk has too little space.
    pub fn keep_reserve(&mut self) -> bool {
        self.grow(self.end + RESERVE);
        self.has_reserve()
    }

    pub fn has_reserve(&self) -> bool {
        self.n_bytes >= self.end + RESERVE
    }

    /// Grows the file as far as there is space.
    fn grow(&mut self, wanted: u64) {
        while self.n_bytes < wanted && self.file.write_all_at(&ZEROS, self.n_bytes).is_ok() {
            self.n_bytes += GROWTH;
        }
    }

    /// Drops everything appended after `end`: the next append begins there.
    pub fn rewind(&mut self, end: u64) {
        self.end = end;
    }

    /// Frees the space after the end of a segment that is complete.
    pub fn trim_to_end(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)
    }

    /// Waits until the disk has everything, under the segment's name: a file that somebody has deleted is made anew.
    pub fn sync(&mut self) -> io::Result<Synced> {
        self.file.sync_data()?;
        if self.file.metadata()?.nlink() == 0 {
            self.make_anew()?;
        }
        Ok(Synced { end: self.end })
    }

    fn make_anew(&mut self) -> io::Result<()> {
        let partial = self.path.with_file_name("log.partial");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        self.file.rewind()?;
        io::copy(&mut self.file, &mut file)?;
        file.sync_all()?;
        fs::rename(&partial, &self.path)?;
        sync_dir(&self.path)?;
        self.file = file;
        tracing::error!(path = %self.path.display(), "the journal's file was deleted while the server runs; made it anew");
        Ok(())
    }

    /// Marks what was synced as durable; `seq` is its last fact.
    pub fn mark(&mut self, synced: &Synced, seq: u64) -> io::Result<()> {
        self.n_marks += 1;
        self.file.write_all_at(&Mark { seq, end: synced.end }.encode(), MARKS[self.n_marks % MARKS.len()])
    }
}

/// A segment that is open for reading.
#[derive(Debug)]
pub struct SegmentReader {
    file: File,
    path: PathBuf,
    pub first_seq: u64,
    pub previous: Digest,
    pub mark: Mark,
    /// One of the two marks is unreadable. If a crash cut it short, the facts that it was to mark are in the file.
    pub is_mark_damaged: bool,
    offset: u64,
}

impl SegmentReader {
    pub fn open(path: &Path) -> Result<SegmentReader, OpenError> {
        let of_io = |source| OpenError::Read { path: path.to_owned(), source };
        let damaged = |problem: &str| OpenError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
        let file = File::open(path).map_err(of_io)?;
        let mut page = vec![0; PAGE as usize];
        let n_read = read_up_to(&file, &mut page, 0).map_err(of_io)?;
        if &page[..7] != NAME {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
        if page[7] != FORMAT {
            let found = String::from_utf8_lossy(&page[7..8]).into_owned();
            return Err(OpenError::Version { path: path.to_owned(), found, expected: char::from(FORMAT).to_string() });
        }
        if n_read < page.len() || Digest::of(&[&page[..32]]).0 != page[32..48] {
            return Err(damaged("its first page does not match its checksum"));
        }
        let marks = MARKS.map(|place| Mark::parse(&page[place as usize..place as usize + MARK_LEN]));
        let is_mark_damaged = marks.contains(&None);
        let mark = marks.into_iter().flatten().max().ok_or_else(|| damaged("both of its marks are damaged"))?;
        Ok(SegmentReader {
            file,
            path: path.to_owned(),
            first_seq: u64::from_le_bytes(std::array::from_fn(|idx| page[8 + idx])),
            previous: Digest(std::array::from_fn(|idx| page[16 + idx])),
            mark,
            is_mark_damaged,
            offset: PAGE,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the end of the last batch that was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next batch, with its body into `body`; `None` if no intact batch begins here.
    pub fn next(&mut self, body: &mut Vec<u8>) -> io::Result<Option<(Header, Digest)>> {
        let found = read_batch(&self.file, self.offset, body)?;
        if found.is_some() {
            self.offset += (HEADER_LEN + body.len()) as u64;
        }
        Ok(found)
    }

    /// Returns the last fact that was durable according to any batch after the current offset; 0 if there is none.
    /// After a write that a crash cut short, there can be no batch that records it as durable.
    pub fn durable_after_offset(&self) -> io::Result<u64> {
        let n_bytes = self.file.metadata()?.len();
        let mut rest = vec![0; usize::try_from(n_bytes.saturating_sub(self.offset)).unwrap_or(0)];
        let n_read = read_up_to(&self.file, &mut rest, self.offset)?;
        rest.truncate(n_read);
        let mut durable = 0;
        let mut body = Vec::new();
        for at in rest.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| bytes == MAGIC).map(|(at, _)| at) {
            if let Some((header, _)) = read_batch(&self.file, self.offset + at as u64, &mut body)? {
                durable = durable.max(header.durable_seq);
            }
        }
        Ok(durable)
    }
}

fn read_batch(file: &File, offset: u64, body: &mut Vec<u8>) -> io::Result<Option<(Header, Digest)>> {
    let mut bytes = [0; HEADER_LEN];
    if read_up_to(file, &mut bytes, offset)? < HEADER_LEN {
        return Ok(None);
    }
    let Some(header) = Header::parse(&bytes) else { return Ok(None) };
    let begin = offset + HEADER_LEN as u64;
    // A damaged length must not become an allocation.
    if begin + u64::from(header.n_bytes) > file.metadata()?.len() {
        return Ok(None);
    }
    body.resize(header.n_bytes as usize, 0);
    if read_up_to(file, body, begin)? < body.len() {
        return Ok(None);
    }
    Ok(Header::verify(&bytes, body).map(|digest| (header, digest)))
}

/// Fills the buffer as far as the file reaches.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut n_read = 0;
    while n_read < buffer.len() {
        match file.read_at(&mut buffer[n_read..], offset + n_read as u64) {
            Ok(0) => break,
            Ok(n) => n_read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n_read)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// On a full disk, a segment could not get back space that it gave up, even for a moment.
    #[test]
    fn a_segment_that_is_opened_keeps_all_that_it_has() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut segment = Segment::create(dir.path(), 1, Digest::NONE).expect("space");
        segment.append(b"cut short").expect("space");
        let (path, end, n_bytes) = (segment.path().to_owned(), PAGE + 3, segment.n_bytes);
        drop(segment);
        let is_over = AtomicBool::new(false);
        let fewest = thread::scope(|scope| {
            let watch = || {
                let mut fewest = n_bytes;
                while !is_over.load(Ordering::Relaxed) {
                    fewest = fewest.min(fs::metadata(&path).expect("a file").len());
                }
                fewest
            };
            let watching = scope.spawn(watch);
            thread::yield_now();
            (0..20).for_each(|_| drop(Segment::open(&path, end, 1).expect("a segment")));
            is_over.store(true, Ordering::Relaxed);
            watching.join().expect("no panic")
        });
        assert_eq!(fewest, n_bytes);
        let bytes = fs::read(&path).expect("a file");
        let (kept, rest) = bytes[PAGE as usize..].split_at(3);
        assert_eq!(kept, b"cut");
        assert!(rest.iter().all(|byte| *byte == 0), "what was cut short is gone");
    }
}
