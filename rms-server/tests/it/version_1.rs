//! Tests that a journal of a version 1 server stays readable: a log with a fact of every kind, and a snapshot.
//!
//! `BLESS=1` writes missing files in `tests/data/journal/v1`; existing ones are never overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use rms_core::{Fact, State};
use rms_server::journal::batch::Digest;
use rms_server::journal::{FactLog, SnapshotPolicy, snapshot};

use crate::golden::{directory, golden_of, kind};
use crate::golden_negotiation::state_with_negotiations;
use crate::story::replayed;

/// Returns the published log with all of its facts, without the zeros after them.
fn log() -> PathBuf {
    directory().join("log.1")
}

/// The fact whose state the snapshot holds, and the digest of its batch.
const SEQ: u64 = 40;
const DIGEST: Digest = Digest([7; Digest::LEN]);

/// Returns the facts of a journal that consists of this log alone.
fn read(log: &Path) -> Vec<Fact> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    drop(FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal"));
    fs::copy(log, path.join("log.1")).expect("a copy");
    replayed(&path).expect("a readable journal")
}

fn bless(facts: &[Fact]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut journal = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    facts.chunks(7).for_each(|batch| journal.append(batch).expect("space"));
    drop(journal);
    let mut bytes = fs::read(path.join("log.1")).expect("a file");
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    fs::write(log(), bytes).expect("a file");
}

#[test]
fn a_log_of_version_1_is_read_as_ever() {
    if !log().exists() && std::env::var_os("BLESS").is_some() {
        bless(&crate::golden::all_examples());
    }
    let facts = read(&log());
    assert!(facts.len() >= 60, "{} facts", facts.len());
    for fact in facts {
        assert_eq!(fact, golden_of(&kind(&fact)), "{} is read otherwise from the log than alone", kind(&fact));
    }
}

#[test]
fn a_snapshot_of_version_1_is_read_as_ever() {
    let expected = state_with_negotiations();
    if !snapshot::path_of(&directory(), SEQ).exists() && std::env::var_os("BLESS").is_some() {
        snapshot::write(&directory(), SEQ, DIGEST, &expected).expect("space");
    }
    let (mut state, _) = snapshot::read::<State>(&directory(), SEQ, DIGEST).expect("a readable snapshot");
    state.rebuild_index();
    assert_eq!(state, expected);
}

/// After a downgrade, a server reads the journal of a newer one.
#[test]
fn a_field_that_a_later_version_has_added_to_a_fact_is_skipped() {
    for example in crate::golden::all_examples() {
        let bytes = rmp_serde::to_vec_named(&example).expect("bytes");
        let mut value = rmpv::decode::read_value(&mut bytes.as_slice()).expect("it is MessagePack");
        let rmpv::Value::Map(variant) = &mut value else { panic!("{value}") };
        let rmpv::Value::Map(fields) = &mut variant[0].1 else { panic!("{value}") };
        let added = rmpv::Value::Array(vec![rmpv::Value::Nil, "more".into()]);
        fields.insert(0, ("added_later".into(), added.clone()));
        fields.push(("added_last".into(), added));
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).expect("bytes");
        let read: Fact = rmp_serde::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", kind(&example)));
        assert_eq!(read, example);
    }
}
