//! The bytes of every message, as published: `tests/data/golden/v1` must stay decodable forever.
//!
//! `LIMBER_BLESS=1 cargo nextest run -p rms-wire golden` adds lines for new samples. It never changes a line, and no
//! line is ever deleted: bytes that cannot be decoded any more mean that older peers cannot be understood. A new field
//! has a default, so old lines keep their meaning; a sample that has the field is a new one, next to the old. An
//! intended change needs a new kind, or a new version, whose lines go to a folder of its own.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use common::contained::is_contained_in;
use common::samples::{Sample, samples};
use data_encoding::HEXLOWER;
use rms_model::{Identity, Role};
use rms_wire::Kind;
use rms_wire::codec::{HEADER_BYTES, Header, Variant};
use rms_wire::{Credentials, Input, Message as _, PeerExec, Spooled};
use serde::Deserialize as _;

fn data() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data"))
}

/// Returns the file of a kind. All kinds are of version 1 so far.
fn path(kind: Kind) -> PathBuf {
    data().join(format!("golden/v1/{:02}-{kind:?}.hex", kind.number()))
}

/// Returns whether a reader that knows the published fields of a frame finds them in what is written now. A fixed
/// layout must be identical.
fn is_written_as(published: &[u8], now: &[u8], kind: Kind) -> bool {
    let is_fixed = [Spooled::KIND, Input::KIND, PeerExec::KIND].contains(&kind);
    let (old, new) = (published.split_at(HEADER_BYTES), now.split_at(HEADER_BYTES));
    // The length may differ.
    if is_fixed { published == now } else { old.0[..4] == new.0[..4] && is_contained_in(old.1, new.1) }
}

/// Returns the name and bytes of each published frame of a kind.
fn published(kind: Kind) -> BTreeMap<String, Vec<u8>> {
    let text = std::fs::read_to_string(path(kind)).unwrap_or_default();
    let line = |line: &str| {
        let (name, hex) = line.split_once(' ').expect("a name and its bytes");
        (name.to_owned(), HEXLOWER.decode(hex.as_bytes()).expect("hexadecimal"))
    };
    text.lines().map(line).collect()
}

fn bless(kind: Kind, samples: &[&Sample]) {
    let mut frames = published(kind);
    for sample in samples {
        frames.entry(sample.name.clone()).or_insert_with(|| sample.frame.clone());
    }
    let line = |(name, frame): (&String, &Vec<u8>)| format!("{name} {}\n", HEXLOWER.encode(frame));
    let path = path(kind);
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
    std::fs::write(path, frames.iter().map(line).collect::<String>()).expect("written");
}

#[test]
fn golden_bytes_are_written_and_read_as_ever() {
    let samples = samples();
    for kind in Kind::ALL {
        let of_kind: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == kind).collect();
        if std::env::var_os("LIMBER_BLESS").is_some() {
            bless(kind, &of_kind);
        }
        let published = published(kind);
        assert!(!published.is_empty(), "{kind:?} has no golden bytes: run with LIMBER_BLESS=1 once");
        for sample in &of_kind {
            let golden = published.get(&sample.name);
            let golden =
                golden.unwrap_or_else(|| panic!("{} has no golden bytes: run with LIMBER_BLESS=1", sample.name));
            assert!(
                is_written_as(golden, &sample.frame, kind),
                "{} is written otherwise than published:\n{}\n{}",
                sample.name,
                HEXLOWER.encode(&sample.frame),
                HEXLOWER.encode(golden)
            );
            let again = (sample.again)(golden).unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            assert_eq!(again, sample.frame, "{} is read otherwise than published", sample.name);
        }
        for name in published.keys() {
            let is_known = of_kind.iter().any(|sample| sample.name == *name);
            assert!(is_known, "{name} was published, and no sample checks it any more");
        }
    }
}

#[test]
fn golden_bytes_cover_every_variant_of_every_kind() {
    let samples = samples();
    for kind in Kind::ALL {
        let of_kind: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == kind).collect();
        let first = of_kind.first().unwrap_or_else(|| panic!("{kind:?} has no sample"));
        // A variant that cannot exist makes the decoder list the valid ones: by name, or in the fixed encoding by
        // number.
        let why = |payload: &[u8]| {
            let length = payload.len() as u32;
            let mut frame = Header { kind: kind.number(), version: 1, length }.to_bytes().to_vec();
            frame.extend(payload);
            let error = (first.again)(&frame).expect_err("no such variant");
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
        };
        let named = why(b"\xa1?");
        if let Some((_, names)) = named.split_once("unknown variant `?`, expected ") {
            let sampled: Vec<Variant> = of_kind.iter().map(|sample| variant(&sample.frame)).collect();
            for name in names.split('`').skip(1).step_by(2) {
                assert!(sampled.contains(&Variant(name.to_owned())), "variant {name} of {kind:?} has no sample");
            }
        }
        if let Some((_, n_variants)) = why(&[250]).split_once("variant index 0 <= i < ") {
            let n_variants = n_variants.split(|c: char| !c.is_ascii_digit()).next().expect("a part");
            for variant in 0..n_variants.parse().expect("a number") {
                let is_sampled = of_kind.iter().any(|sample| sample.frame[8] == variant);
                assert!(is_sampled, "variant {variant} of {kind:?} has no sample");
            }
        }
    }
}

/// As listed in `docs/messages.md`, except in a fixed layout, where variants are numbered.
#[test]
fn every_documented_variant_is_in_golden_bytes() {
    let published: Vec<u8> = Kind::ALL.into_iter().flat_map(published).flat_map(|(_, frame)| frame).collect();
    let text = std::fs::read_to_string(data().join("../../docs/messages.md")).expect("it is there");
    let (mut of, mut n_variants) = (None, 0);
    for line in text.lines() {
        let is_head = !line.starts_with(' ');
        if is_head {
            of = line.strip_suffix(", one of").map(|head| head.split(',').next().unwrap_or(head));
        }
        let name = line.trim().split([' ', '(']).next().unwrap_or_default();
        let Some(of) = of.filter(|of| !is_head && !["PeerExec", "Spooled"].contains(of)) else { continue };
        if !name.starts_with(|first: char| first.is_ascii_uppercase()) || !line.starts_with("    ") {
            continue;
        }
        n_variants += 1;
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &name.into()).expect("a text");
        let is_there = published.windows(bytes.len()).any(|window| window == bytes);
        assert!(is_there, "{of}::{name} is in no published frame: a new sample and LIMBER_BLESS=1 publish it");
    }
    assert!(n_variants > 300, "{n_variants} variants are few");
}

/// Writes credentials, if there are none yet.
fn bless_credentials() {
    let deployment = common::Deployment::new("limber");
    deployment.credentials(Role::Job, "7.2").save(&data().join("credentials/v1")).expect("written");
}

/// What an agent of version 1 has placed for the processes of a job, and what programs of any version in the job read.
#[test]
fn the_credentials_of_a_job_are_read_as_ever() {
    if std::env::var_os("LIMBER_BLESS").is_some() && !data().join("credentials/v1").exists() {
        bless_credentials();
    }
    let credentials = Credentials::load(&data().join("credentials/v1")).expect("key, chain and authority");
    assert_eq!(credentials.identity(), &Identity::new(Role::Job, "7.2").expect("job and run"));
    assert_eq!(credentials.deployment(), "limber");
    assert_eq!(credentials.authorities().len(), 1);
}

fn variant(frame: &[u8]) -> Variant {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(&frame[8..]);
    Variant::deserialize(&mut decoder).expect("a named variant")
}
