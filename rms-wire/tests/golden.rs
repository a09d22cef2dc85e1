//! The bytes of every message, as they were when they were published.
//!
//! `LIMBER_BLESS=1 cargo nextest run -p rms-wire golden` adds lines for new samples to `tests/data/golden/`. It never
//! changes a line: bytes that cannot be read any more mean that older peers cannot be read. A change that is meant
//! needs a new kind or version, or a new ALPN, and then the old lines are deleted by hand.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use common::samples::{Sample, samples};
use data_encoding::HEXLOWER;
use rms_wire::Kind;
use rms_wire::codec::{Header, Variant};
use serde::Deserialize as _;

fn path(kind: Kind) -> PathBuf {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/golden"));
    dir.join(format!("{:02}-{kind:?}.hex", kind.number()))
}

/// Name and bytes of each published frame of a kind.
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
            assert_eq!(
                HEXLOWER.encode(&sample.frame),
                HEXLOWER.encode(golden),
                "{} is written otherwise than published",
                sample.name
            );
            let again = (sample.again)(golden).unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            assert_eq!(&again, golden, "{} is read otherwise than published", sample.name);
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
        // A variant that cannot exist makes the decoder say which can: a name, or in the fixed encoding a number.
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

fn variant(frame: &[u8]) -> Variant {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(&frame[8..]);
    Variant::deserialize(&mut decoder).expect("a named variant")
}
