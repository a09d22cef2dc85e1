//! The file format of a snapshot: a header, the state, and a digest over both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::Digest;
use super::error::SnapshotError;
use super::segment::numbered;
use crate::dir::sync_dir;
use crate::open_error::OpenError;

const MAGIC: &[u8; 8] = b"LMBRSNP1";
const HEADER_LEN: usize = MAGIC.len() + 8 + Digest::LEN;

/// Returns the path of the snapshot of the state after fact `seq`.
pub fn path_of(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("snapshot.{seq}"))
}

/// Lists the snapshots of a journal, the newest last.
pub fn list(dir: &Path) -> io::Result<Vec<u64>> {
    numbered(dir, "snapshot")
}

/// Writes a snapshot atomically, and returns its size.
pub fn write<S: Serialize>(dir: &Path, seq: u64, digest: Digest, state: &S) -> Result<u64, SnapshotError> {
    let (path, partial) = (path_of(dir, seq), dir.join("snapshot.partial"));
    let written = write_partial(&partial, seq, digest, state).and_then(|n_bytes| {
        let of_io = |source| SnapshotError::Write { path: path.clone(), source };
        fs::rename(&partial, &path).and_then(|()| sync_dir(&path)).map_err(of_io)?;
        Ok(n_bytes)
    });
    if written.is_err() {
        // It frees space, which may be what was missing. A failure to remove the file changes nothing.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write_partial<S: Serialize>(partial: &Path, seq: u64, digest: Digest, state: &S) -> Result<u64, SnapshotError> {
    let of_io = |source| SnapshotError::Write { path: partial.to_owned(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(partial).map_err(of_io)?;
    let mut writer = BufWriter::with_capacity(64 * 1024, DigestStream::new(file));
    writer.write_all(MAGIC).map_err(of_io)?;
    writer.write_all(&seq.to_be_bytes()).map_err(of_io)?;
    writer.write_all(&digest.0).map_err(of_io)?;
    rmp_serde::encode::write_named(&mut writer, state)?;
    let DigestStream { mut inner, context } = writer.into_inner().map_err(|error| of_io(error.into_error()))?;
    inner.write_all(context.finish().as_ref()).map_err(of_io)?;
    inner.sync_all().map_err(of_io)?;
    Ok(inner.metadata().map_err(of_io)?.len())
}

/// Reads which batch a snapshot follows, by its digest. [`read`] checks that this is intact.
pub fn previous(dir: &Path, seq: u64) -> Result<Digest, OpenError> {
    let path = path_of(dir, seq);
    let (mut header, mut digest) = ([0; HEADER_LEN], Digest::NONE);
    match File::open(&path).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => digest.0.copy_from_slice(&header[HEADER_LEN - Digest::LEN..]),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(OpenError::Damaged { path, problem: "it is too short".to_owned() });
        }
        Err(source) => return Err(OpenError::Read { path, source }),
    }
    Ok(digest)
}

/// Reads a snapshot, and returns it with its size.
pub fn read<S: DeserializeOwned>(dir: &Path, seq: u64, digest: Digest) -> Result<(S, u64), OpenError> {
    let path = &path_of(dir, seq);
    let of_io = |source| OpenError::Read { path: path.to_owned(), source };
    let damaged = |problem: &str| OpenError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
    let file = File::open(path).map_err(of_io)?;
    let n_bytes = file.metadata().map_err(of_io)?.len();
    let n_content = n_bytes
        .checked_sub(SHA256_OUTPUT_LEN as u64)
        .filter(|n_content| *n_content >= HEADER_LEN as u64)
        .ok_or_else(|| damaged("it is too short"))?;
    let mut reader = BufReader::with_capacity(64 * 1024, DigestStream::new(file.take(n_content)));
    let mut header = [0; HEADER_LEN];
    reader.read_exact(&mut header).map_err(of_io)?;
    let mut expected = Vec::with_capacity(HEADER_LEN);
    expected.extend_from_slice(MAGIC);
    expected.extend_from_slice(&seq.to_be_bytes());
    expected.extend_from_slice(&digest.0);
    if header[..] != expected[..] {
        return Err(damaged("it does not belong to this journal"));
    }
    let state = rmp_serde::from_read(&mut reader);
    // The digest is checked first: it distinguishes damage from an unknown format.
    io::copy(&mut reader, &mut io::sink()).map_err(of_io)?;
    let DigestStream { inner, context } = reader.into_inner();
    let mut stored = [0; SHA256_OUTPUT_LEN];
    inner.into_inner().read_exact(&mut stored).map_err(of_io)?;
    if context.finish().as_ref() != stored {
        return Err(damaged("it does not match its checksum"));
    }
    let state =
        state.map_err(|error| damaged(&format!("it is unreadable ({error}); was it written by a newer server?")))?;
    Ok((state, n_bytes))
}

/// A reader or writer that digests everything that passes through.
struct DigestStream<T> {
    inner: T,
    context: Context,
}

impl<T> DigestStream<T> {
    fn new(inner: T) -> DigestStream<T> {
        DigestStream { inner, context: Context::new(&SHA256) }
    }
}

impl<W: Write> Write for DigestStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n_written = self.inner.write(bytes)?;
        self.context.update(&bytes[..n_written]);
        Ok(n_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for DigestStream<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n_read = self.inner.read(bytes)?;
        self.context.update(&bytes[..n_read]);
        Ok(n_read)
    }
}
