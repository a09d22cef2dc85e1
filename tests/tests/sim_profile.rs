//! The arithmetic of occupation profiles against arrays of seconds, which cannot be wrong in an interesting way.

use proptest::collection::vec;
use proptest::prelude::*;
use rms_model::profile::{Block, Step};
use rms_model::{Profile, Span, Time};

/// The horizon of the arrays; every block ends before it.
const END: i64 = 80;

type Plain = (i64, i64, i64);

/// Begin, length, nodes.
fn blocks() -> impl Strategy<Value = Vec<Plain>> {
    vec((0..50_i64, 0..20_i64, 1..6_i64), 0..12)
}

/// Blocks that also take nodes away.
fn changes() -> impl Strategy<Value = Vec<Plain>> {
    vec((0..50_i64, 0..20_i64, -4..6_i64), 0..12)
}

fn block((from, length, nodes): Plain) -> Block {
    Block { from: Time::from_secs(from), until: Time::from_secs(from + length), nodes }
}

fn profile(blocks: &[Plain]) -> Profile {
    Profile::from_blocks(blocks.iter().copied().map(block))
}

fn array(blocks: &[Plain]) -> Vec<i64> {
    let nodes = |sec: i64| {
        let counts = blocks.iter().filter(|(from, length, _)| (*from..from + length).contains(&sec));
        counts.map(|(_, _, nodes)| nodes).sum()
    };
    (0..END).map(nodes).collect()
}

fn read(profile: &Profile) -> Vec<i64> {
    (0..END).map(|sec| profile.at(Time::from_secs(sec))).collect()
}

fn is_canonical(profile: &Profile) -> bool {
    let steps: Vec<Step> = profile.steps().collect();
    let first_is_a_change = steps.first().is_none_or(|step| step.nodes != 0);
    let neighbours_differ = steps.windows(2).all(|two| two[0].nodes != two[1].nodes && two[0].from < two[1].from);
    let ends_empty = steps.last().is_none_or(|step| step.nodes == 0);
    first_is_a_change && neighbours_differ && ends_empty
}

/// The first second at which `wanted` more fit under `capacity` for `span` seconds.
fn first_fit(busy: &[i64], capacity: i64, wanted: i64, span: i64, from: i64) -> Option<i64> {
    let at = |sec: i64| busy.get(sec as usize).copied().unwrap_or(0);
    let fits = |start: i64| (start..start + span).all(|sec| at(sec) + wanted <= capacity);
    (from..=END).find(|start| fits(*start))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_at_once_and_one_by_one_make_the_same_profile(blocks in changes()) {
        let mut one_by_one = Profile::new();
        blocks.iter().for_each(|plain| one_by_one.add(block(*plain)));
        prop_assert_eq!(read(&one_by_one), array(&blocks));
        prop_assert!(is_canonical(&one_by_one), "{:?}", one_by_one);
        prop_assert_eq!(one_by_one, profile(&blocks));
    }

    #[test]
    fn what_is_added_can_be_taken_away(blocks in changes(), others in changes()) {
        let mut both = profile(&blocks);
        others.iter().for_each(|plain| both.add(block(*plain)));
        both.subtract(&profile(&others));
        prop_assert!(is_canonical(&both), "{:?}", both);
        prop_assert_eq!(both, profile(&blocks));
    }

    #[test]
    fn a_difference_is_the_difference_at_every_second(blocks in changes(), others in changes()) {
        let mut difference = profile(&blocks);
        difference.subtract(&profile(&others));
        let expected: Vec<i64> = array(&blocks).iter().zip(array(&others)).map(|(one, other)| one - other).collect();
        prop_assert_eq!(read(&difference), expected);
    }

    #[test]
    fn the_first_hole_is_the_first_that_fits(
        blocks in blocks(), capacity in 0..12_i64, wanted in 0..8_i64, span in 1..25_i64, from in 0..70_i64,
    ) {
        let profile = profile(&blocks);
        let hole = profile.first_hole(capacity, wanted, Span::from_secs(span), Time::from_secs(from));
        if wanted > capacity {
            prop_assert_eq!(hole, None);
            return Ok(());
        }
        let expected = first_fit(&array(&blocks), capacity, wanted, span, from).expect("it is free in the end");
        let hole = hole.expect("it fits in the end");
        prop_assert_eq!(hole.start, Time::from_secs(expected));
        match hole.blocked_by {
            // The blocking step ends where the hole begins, and it leaves too few nodes.
            Some(step) => {
                prop_assert!(step.nodes + wanted > capacity);
                prop_assert!(step.from < hole.start);
                prop_assert_eq!(profile.at(hole.start - Span::from_millis(1)), step.nodes);
            }
            None => prop_assert_eq!(expected, from),
        }
    }

    #[test]
    fn the_highest_step_is_the_highest_second(blocks in changes(), from in 0..70_i64, length in 0..10_i64) {
        let seconds = &array(&blocks)[from as usize..(from + length) as usize];
        let expected = seconds.iter().copied().max().unwrap_or(0);
        let highest = profile(&blocks).max(Time::from_secs(from), Time::from_secs(from + length));
        prop_assert_eq!(highest, expected);
    }

    #[test]
    fn pairs_tell_all_that_is_to_come(blocks in changes(), from in 0..70_i64) {
        let profile = profile(&blocks);
        let origin = Time::from_secs(from);
        let pairs = profile.pairs_from(origin);
        prop_assert!(pairs.iter().all(|(span, _)| *span > Span::ZERO));
        prop_assert!(pairs.windows(2).all(|two| two[0].1 != two[1].1), "{:?}", pairs);
        prop_assert!(pairs.last().is_none_or(|(_, nodes)| *nodes != 0), "no trailing gap: {:?}", pairs);
        let read_back = Profile::from_pairs(origin, pairs);
        prop_assert!(is_canonical(&read_back));
        prop_assert_eq!(&read_back, &profile.cut_before(origin));
        let expected: Vec<i64> =
            array(&blocks).into_iter().enumerate().map(|(sec, n)| if (sec as i64) < from { 0 } else { n }).collect();
        prop_assert_eq!(read(&read_back), expected);
    }
}
