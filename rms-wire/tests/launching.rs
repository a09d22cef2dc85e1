//! Checks that messages to and from launchers arrive unchanged, also views in parts, and that invalid ones are refused.

mod common;

use std::sync::Arc;

use common::launching::{self, changed, now, profile};
use rms_api::subscription::{Notice, ViewChange};
use rms_model::{ClusterId, Span};
use rms_wire::codec::{decode_frame, encode};
use rms_wire::launcher::{ClusterPart, MAX_PAIRS, NodeSpan, Occupied, ViewPart};
use rms_wire::parts::{Malformed, ViewParts, notice_parts};
use rms_wire::{LauncherSays, LauncherTold, Message};

/// Encodes and decodes a message.
fn carried<M: Message>(message: &M) -> M {
    decode_frame(&encode(message).expect("within the limit")).expect("what was encoded can be decoded")
}

#[test]
fn every_call_of_a_launcher_arrives_as_it_was_made() {
    for call in launching::calls() {
        let says = LauncherSays { seq: 300, call };
        assert_eq!(carried(&says), says);
    }
}

#[test]
fn every_answer_and_notice_arrives_as_it_was_given() {
    for answer in launching::answers() {
        let told = LauncherTold::Answer { seq: 4, answer };
        assert_eq!(carried(&told), told);
    }
    for notice in launching::notices().into_iter().chain(launching::later_notices()) {
        assert_eq!(received(&notice_parts(&notice)), notice);
    }
}

fn received(parts: &[LauncherTold]) -> Notice {
    let mut view = ViewParts::new();
    let mut whole = None;
    for part in parts {
        assert_eq!(whole, None, "nothing comes after the whole");
        whole = match carried(part) {
            LauncherTold::Answer { .. } => panic!("no answer was asked for"),
            LauncherTold::Changed(part) => view.push(part).expect("it parses").map(Notice::Changed),
            LauncherTold::Started(grant) => Some(Notice::Started(*grant)),
            LauncherTold::Ended { outcome } => Some(Notice::Ended { outcome }),
            LauncherTold::Replaced => Some(Notice::Replaced),
        };
    }
    whole.expect("the last part completes it")
}

#[test]
fn a_long_view_comes_in_short_parts() {
    let check = |change: ViewChange, expected: usize| {
        let parts = notice_parts(&Notice::Changed(change.clone()));
        assert_eq!(parts.len(), expected);
        for part in &parts {
            assert!(encode(part).expect("within the limit").len() < 64 << 10);
        }
        assert_eq!(received(&parts), Notice::Changed(change));
    };
    let room = MAX_PAIRS as i64;
    check(changed(vec![(0, Some(profile(room)))]), 1);
    check(changed(vec![(0, Some(profile(room + 1)))]), 2);
    check(changed(vec![(0, Some(profile(3 * room + 5))), (1, None), (2, Some(profile(room - 5)))]), 4);
    check(changed(vec![(0, Some(profile(room))), (1, Some(profile(1)))]), 2);
    check(changed((0..1000).map(|cluster| (cluster, Some(profile(2)))).collect()), 4);
}

#[test]
fn a_change_of_one_cluster_takes_few_bytes() {
    // 001, B.1: its model takes n + 8 m bytes for n clusters with m steps altogether, and counts no headers and no
    // names.
    let parts = notice_parts(&Notice::Changed(changed(vec![(0, Some(profile(20)))])));
    let n_bytes: usize = parts.iter().map(|part| encode(part).expect("short").len()).sum();
    assert!(n_bytes <= 128 + 8 * 20, "{n_bytes} bytes");
}

fn cluster(cluster: u16, after: i64, pairs: &[(u64, i64)]) -> ClusterPart {
    let pairs = pairs.iter().map(|(millis, nodes)| NodeSpan { millis: *millis, nodes: *nodes }).collect();
    ClusterPart {
        cluster: ClusterId(cluster),
        shape: 0,
        info: false,
        capacity: 8,
        occupied: Some(Occupied { after, pairs }),
    }
}

fn part(version: u64, clusters: Vec<ClusterPart>, last: bool) -> ViewPart {
    ViewPart { version, at: now(), clusters, last }
}

#[test]
fn profiles_that_are_none_are_refused() {
    let check = |after: i64, pairs: &[(u64, i64)]| {
        let pushed = ViewParts::new().push(part(1, vec![cluster(0, after, pairs)], true));
        assert_eq!(pushed, Err(Malformed::Profile { field: "the occupation of a cluster" }), "{after} {pairs:?}");
    };
    check(0, &[(0, 1)]);
    check(0, &[(5, 0), (5, 1)]);
    check(0, &[(5, 1), (5, 0)]);
    check(0, &[(5, 1), (5, 1)]);
    check(3, &[]);
    check(i64::MAX, &[(1, 1)]);
    check(0, &[(u64::MAX, 1)]);
    check(0, &[(i64::MAX as u64, 1), (i64::MAX as u64, 2)]);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let mut parts = ViewParts::new();
    assert_eq!(parts.push(part(1, vec![cluster(4, 0, &[(5, 1)])], false)), Ok(None));
    let other = parts.push(part(2, vec![cluster(4, 5, &[(5, 2)])], true));
    assert_eq!(other, Err(Malformed::MixedGenerations { first: 1, later: 2 }));
    assert_eq!(parts.push(part(1, Vec::new(), true)), Err(Malformed::EmptyPart));

    // Backwards, twice in a part, and continuing a cluster that had no profile.
    let twice = Err(Malformed::ClusterTwice { field: "a view" });
    let together = |clusters: Vec<ClusterPart>| ViewParts::new().push(part(1, clusters, true));
    assert_eq!(together(vec![cluster(4, 0, &[(5, 1)]), cluster(3, 0, &[(5, 1)])]), twice);
    assert_eq!(together(vec![cluster(4, 0, &[(5, 1)]), cluster(4, 0, &[(5, 1)])]), twice);
    let mut parts = ViewParts::new();
    let bare = ClusterPart { cluster: ClusterId(4), shape: 0, info: true, capacity: 1, occupied: None };
    assert_eq!(parts.push(part(1, vec![bare], false)), Ok(None));
    assert_eq!(parts.push(part(1, vec![cluster(4, 0, &[(5, 1)])], true)), twice);
}

#[test]
fn a_view_that_goes_on_over_parts_is_one_profile() {
    let mut parts = ViewParts::new();
    assert_eq!(parts.push(part(1, vec![cluster(4, 0, &[(1000, 1)])], false)), Ok(None));
    let whole = parts.push(part(1, vec![cluster(4, 1000, &[(1000, 2)])], true)).expect("it parses");
    let pairs = [(Span::from_secs(1), 1), (Span::from_secs(1), 2)];
    let expected = rms_model::Profile::from_pairs(now(), pairs);
    assert_eq!(whole.expect("whole").clusters[0].occupied, Some(Arc::new(expected)));
}
