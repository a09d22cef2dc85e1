//! Frames of newer and older peers: unknown fields are skipped, and missing ones have defaults.

mod common;

use common::samples::{Sample, samples};
use rmpv::Value;
use rms_wire::codec::{HEADER_BYTES, Header};
use rms_wire::message::Encoding;
use rms_wire::{Input, Kind, Message, PeerExec, Spooled};

/// Returns the samples of kinds whose layout may grow.
fn named() -> Vec<Sample> {
    let fixed = [Spooled::KIND, Input::KIND, PeerExec::KIND];
    assert_eq!([Spooled::ENCODING, Input::ENCODING, PeerExec::ENCODING], [Encoding::Fixed; 3]);
    samples().into_iter().filter(|sample| !fixed.contains(&sample.kind)).collect()
}

fn value(sample: &Sample) -> Value {
    rmpv::decode::read_value(&mut &sample.frame[HEADER_BYTES..]).expect("it is MessagePack")
}

fn frame(kind: Kind, value: &Value) -> Vec<u8> {
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, value).expect("it can be written");
    let header = Header { kind: kind.number(), version: 1, length: payload.len() as u32 };
    [header.to_bytes().to_vec(), payload].concat()
}

/// The fields of a struct, with their names.
type Fields = Vec<(Value, Value)>;

/// Applies `change` to each struct in a value, one at a time, and passes each outcome to `check`.
fn for_each_struct(whole: &Value, change: &dyn Fn(&mut Fields) -> Vec<Fields>, check: &mut dyn FnMut(&Value)) {
    // The path to each container: indices within its ancestors.
    let mut ways = vec![Vec::new()];
    while let Some(way) = ways.pop() {
        let mut copy = whole.clone();
        let (here, is_of_names) = at(&mut copy, &way);
        let n_inner = match here {
            Value::Map(entries) => {
                let is_struct = !is_of_names && entries.len() > 1 && entries.iter().all(|(key, _)| key.is_str());
                if is_struct {
                    for changed in change(&mut entries.clone()) {
                        let mut copy = whole.clone();
                        *at(&mut copy, &way).0 = Value::Map(changed);
                        check(&copy);
                    }
                }
                entries.len()
            }
            Value::Array(items) => items.len(),
            _ => 0,
        };
        ways.extend((0..n_inner).map(|idx| [way.clone(), vec![idx]].concat()));
    }
}

/// Returns the value at the end of a path, and whether it is a map keyed by names that users gave.
fn at<'a>(whole: &'a mut Value, way: &[usize]) -> (&'a mut Value, bool) {
    let (mut here, mut is_of_names) = (whole, false);
    for idx in way {
        here = match here {
            Value::Map(entries) => {
                is_of_names = matches!(entries[*idx].0.as_str(), Some("PerCluster" | "devices" | "devices_in_all"));
                &mut entries[*idx].1
            }
            Value::Array(items) => &mut items[*idx],
            other => panic!("the way leads through {other}"),
        };
    }
    (here, is_of_names)
}

#[test]
fn long_fields_that_a_newer_peer_adds_are_skipped() {
    let mut n_tried = 0;
    let later = Value::from("added_later");
    let nested =
        Value::Map(vec![(Value::from(1), Value::Array(vec![Value::Nil, Value::from("x"), Value::Binary(vec![0])]))]);
    for sample in named() {
        for_each_struct(
            &value(&sample),
            &|entries| {
                let first = [vec![(later.clone(), nested.clone())], entries.clone()].concat();
                entries.push((later.clone(), nested.clone()));
                vec![first, entries.clone()]
            },
            &mut |changed| {
                n_tried += 1;
                let again = (sample.again)(&frame(sample.kind, changed));
                let again = again.unwrap_or_else(|error| panic!("{}: {error:?} of {changed}", sample.name));
                assert!(again == sample.frame, "{} means something else with {changed}", sample.name);
            },
        );
    }
    assert!(n_tried > 1000, "{n_tried} structs are few");
}

#[test]
fn long_fields_come_in_any_order() {
    for sample in named() {
        for_each_struct(
            &value(&sample),
            &|entries| {
                entries.reverse();
                vec![entries.clone()]
            },
            &mut |changed| {
                let again = (sample.again)(&frame(sample.kind, changed)).expect("it is the same");
                assert!(again == sample.frame, "{} means something else as {changed}", sample.name);
            },
        );
    }
}

#[test]
fn long_what_an_older_peer_leaves_out_is_nothing() {
    let mut n_tried = 0;
    for sample in named() {
        for_each_struct(
            &value(&sample),
            &|entries| {
                let nothings = (0..entries.len()).filter(|idx| entries[*idx].1.is_nil());
                nothings.map(|idx| [&entries[..idx], &entries[idx + 1..]].concat()).collect()
            },
            &mut |changed| {
                n_tried += 1;
                let again = (sample.again)(&frame(sample.kind, changed));
                let again = again.unwrap_or_else(|error| panic!("{}: {error:?} of {changed}", sample.name));
                assert!(again == sample.frame, "{} means something else without a field: {changed}", sample.name);
            },
        );
    }
    assert!(n_tried > 300, "{n_tried} fields are few");
}

/// A field that is left out because it is nothing takes nothing else with it.
#[test]
fn a_value_that_is_nothing_hides_no_other() {
    let mut n_tried = 0;
    // In the large ones are many of the same.
    for sample in named().into_iter().filter(|sample| sample.frame.len() < 4096) {
        for_each_struct(
            &value(&sample),
            &|entries| {
                let emptied = |idx: usize| {
                    let mut changed = entries.clone();
                    changed[idx].1 = nothing_like(&changed[idx].1)?;
                    Some(changed)
                };
                (0..entries.len()).filter_map(emptied).collect()
            },
            &mut |changed| {
                // Not each field may be nothing.
                let Ok(again) = (sample.again)(&frame(sample.kind, changed)) else { return };
                n_tried += 1;
                let again = rmpv::decode::read_value(&mut &again[HEADER_BYTES..]).expect("it is MessagePack");
                let (had, has) = (n_somethings(changed), n_somethings(&again));
                assert_eq!(had, has, "{} loses something of {changed}: {again}", sample.name);
            },
        );
    }
    assert!(n_tried > 1000, "{n_tried} fields are few");
}

/// The value of this type that stands for nothing, if this is another one.
fn nothing_like(value: &Value) -> Option<Value> {
    let nothing = match value {
        Value::Boolean(_) => Value::from(false),
        Value::Integer(_) => Value::from(0),
        Value::Array(_) => Value::Array(Vec::new()),
        _ => return None,
    };
    (nothing != *value).then_some(nothing)
}

/// How many numbers and flags within this value are more than nothing. Some words are what is meant without them.
fn n_somethings(value: &Value) -> usize {
    match value {
        Value::Nil | Value::String(_) => 0,
        Value::Boolean(is) => usize::from(*is),
        Value::Integer(_) => usize::from(*value != Value::from(0)),
        Value::Array(items) => items.iter().map(n_somethings).sum(),
        Value::Map(entries) => entries.iter().map(|(_, value)| n_somethings(value)).sum(),
        Value::Binary(_) | Value::F32(_) | Value::F64(_) | Value::Ext(..) => 1,
    }
}

#[test]
fn a_value_that_is_too_deep_or_too_rich_is_refused() {
    let hello = |extra: &[u8]| {
        let payload = [b"\x82\xa8software\xa1x\xa5added".as_slice(), extra].concat();
        let header = Header { kind: Kind::Hello.number(), version: 1, length: payload.len() as u32 };
        rms_wire::codec::decode_frame::<rms_wire::Hello>(&[header.to_bytes().to_vec(), payload].concat())
    };
    hello(b"\x01").expect("a field more");
    let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    hello(&nested(20)).expect("not that deep");
    hello(&nested(400)).expect_err("deeper than any message");
    let list = |n: u16| [[0xdc].as_slice(), &n.to_be_bytes(), &vec![0xc0; n.into()]].concat();
    hello(&list(500)).expect("8 KB of memory");
    let error = hello(&list(5000)).expect_err("80 KB of memory for 5 KB of frame");
    assert!(std::error::Error::source(&error).expect("why").to_string().contains("more values than"), "{error:?}");
    hello(&[0xdc, 0xff, 0xff, 0xc0]).expect_err("it promises more than it has");
    hello(&[0xc7, 0, 1]).expect_err("no plain value");
}
