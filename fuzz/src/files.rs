//! Files that are read back after a crash, or were written by people: the journal, traces, configurations.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use ring::digest::{SHA256, digest};
use rms_core::{Fact, State};
use rms_server::journal::batch::{Digest, Header, Kind, fact_at, push_fact};
use rms_server::journal::{FactLog, Past, SnapshotPolicy, snapshot};
use rms_sim::workload::swf::Trace;
use tempfile::TempDir;

/// A directory of this process, and the first page of an empty journal.
fn journal() -> &'static (TempDir, Vec<u8>) {
    static JOURNAL: OnceLock<(TempDir, Vec<u8>)> = OnceLock::new();
    JOURNAL.get_or_init(|| {
        // In memory, where there is such a place: each input is a file.
        let memory = PathBuf::from("/dev/shm");
        let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let dir = made.expect("a directory");
        let empty = dir.path().join("read");
        drop(FactLog::create(&empty, SnapshotPolicy::default()).expect("an empty journal"));
        let mut page = fs::read(empty.join("log.1")).expect("its first segment");
        page.truncate(4096);
        fs::create_dir(dir.path().join("snapshot")).expect("it is ours");
        (dir, page)
    })
}

/// A segment of any bytes, any bytes behind a good first page, or a batch with a good digest and any header.
pub fn journal_bytes(input: &[u8]) {
    let (dir, page) = journal();
    let Some((mode, rest)) = input.split_first() else { return };
    let dir = dir.path().join("read");
    let segment = match mode % 3 {
        0 => rest.to_vec(),
        1 => [page, rest].concat(),
        _ => {
            let Some((fields, body)) = rest.split_first_chunk::<22>() else { return };
            let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|idx| fields[at + idx]));
            let header = Header {
                kind: if fields[0] % 8 == 0 { Kind::Seal } else { Kind::Facts },
                n_bytes: body.len() as u32,
                n_facts: u32::from_le_bytes(std::array::from_fn(|idx| fields[1 + idx])),
                first_seq: long(5),
                durable_seq: long(13),
                previous: if fields[21] == 0 { Digest::NONE } else { Digest([fields[21]; Digest::LEN]) },
            };
            let (header, _) = header.encode(body);
            [page.as_slice(), &header, body].concat()
        }
    };
    fs::write(dir.join("log.1"), segment).expect("there is room");
    let _damaged = Past::read(&dir);
}

/// One fact as the journal holds it: what is read is written as what reads the same.
pub fn journal_facts(input: &[u8]) {
    let length = u32::try_from(input.len()).expect("an input is short").to_le_bytes();
    let body = [&length, [0; 8].as_slice(), input].concat();
    let (bytes, environment_of, end) = fact_at(&body, 0).expect("its length is right");
    assert_eq!((bytes, environment_of, end), (input, None, body.len()));
    let Ok(fact) = rmp_serde::from_slice::<Fact>(bytes) else { return };
    let mut again = Vec::new();
    push_fact(&mut again, None, &fact).expect("what was read can be written");
    let (bytes, ..) = fact_at(&again, 0).expect("it was just written");
    let twice: Fact = rmp_serde::from_slice(bytes).expect("what was written can be read");
    let mut last = Vec::new();
    push_fact(&mut last, None, &twice).expect("as before");
    assert_eq!(last, again);
}

/// Any state under a good header and checksum.
pub fn snapshot(input: &[u8]) {
    let dir = journal().0.path().join("snapshot");
    let path = snapshot::path_of(&dir, 7);
    let mut bytes = snapshot_header();
    bytes.extend_from_slice(input);
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    fs::write(path, bytes).expect("there is room");
    let _unreadable = snapshot::read::<State>(&dir, 7, Digest::NONE);
}

/// As the server writes it, before the state.
fn snapshot_header() -> Vec<u8> {
    static HEADER: OnceLock<Vec<u8>> = OnceLock::new();
    let header = HEADER.get_or_init(|| {
        let dir = journal().0.path();
        snapshot::write(dir, 7, Digest::NONE, &()).expect("there is room");
        let bytes = fs::read(snapshot::path_of(dir, 7)).expect("it was just written");
        let n_state = rmp_serde::to_vec_named(&()).expect("nothing").len();
        bytes[..bytes.len() - n_state - SHA256.output_len()].to_vec()
    });
    header.clone()
}

pub fn swf(input: &[u8]) {
    let Ok(trace) = Trace::read(input) else { return };
    let mut written = Vec::new();
    trace.write(&mut written).expect("memory takes it");
    let again = Trace::read(written.as_slice()).expect("what was written can be read");
    assert_eq!(again.records.len(), trace.records.len());
}

pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _wrong = rms_server::config::parse("rms-server.toml", text);
    if let Ok(written) = toml::from_str::<node_agent::config::Written>(text) {
        let _wrong = written.check();
    }
}
