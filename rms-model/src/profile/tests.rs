//! Checks every operation against a trivial model: a profile as an array of instants.

use proptest::prelude::*;

use super::*;

/// Instants of the model; all blocks lie within them.
const N_SLOTS: usize = 400;

/// The size of a slot and of a node of the model in a profile: beyond 32 bits in some cases.
#[derive(Clone, Copy, Debug)]
struct Scale {
    origin: i64,
    millis: i64,
    nodes: i64,
}

const SMALL: Scale = Scale { origin: 0, millis: 1000, nodes: 1 };

impl Scale {
    fn time(self, slot: usize) -> Time {
        Time::from_millis(self.origin + self.millis * slot as i64)
    }

    fn span(self, n_slots: usize) -> Span {
        Span::from_millis(self.millis * n_slots as i64)
    }

    fn block(self, (from, until, nodes): (usize, usize, i64)) -> Block {
        Block { from: self.time(from), until: self.time(until), nodes: nodes * self.nodes }
    }

    fn slots(self, profile: &Profile) -> Vec<i64> {
        (0..N_SLOTS).map(|slot| profile.at(self.time(slot))).collect()
    }
}

fn model(scale: Scale, blocks: &[(usize, usize, i64)]) -> Vec<i64> {
    let mut slots = vec![0; N_SLOTS];
    for (from, until, nodes) in blocks {
        for slot in &mut slots[*from..(*until).max(*from)] {
            *slot += nodes * scale.nodes;
        }
    }
    slots
}

fn assert_canonical(profile: &Profile) {
    let steps: Vec<Step> = profile.steps().collect();
    assert!(steps.windows(2).all(|two| two[0].from < two[1].from && two[0].nodes != two[1].nodes), "{steps:?}");
    assert!(steps.first().is_none_or(|step| step.nodes != 0) && steps.last().is_none_or(|step| step.nodes == 0));
    assert_eq!(profile.n_steps(), steps.len());
    assert_eq!(profile.end(), steps.last().map(|step| step.from));
}

fn scales() -> impl Strategy<Value = Scale> {
    let big = Scale { origin: -(1 << 41), millis: 7 << 33, nodes: 5 << 33 };
    prop_oneof![Just(SMALL), Just(Scale { origin: 1_800_000_000_123, ..SMALL }), Just(big)]
}

/// Generates blocks of all lengths, often enough short ones that a profile has several chunks.
fn blocks() -> impl Strategy<Value = Vec<(usize, usize, i64)>> {
    let long = (0..N_SLOTS - 1, 0..N_SLOTS, -2_i64..9);
    let short = (0..N_SLOTS - 4, 0..3_usize, 1_i64..4).prop_map(|(from, n, nodes)| (from, from + n, nodes));
    prop_oneof![
        prop::collection::vec(long.clone(), 0..12),
        prop::collection::vec(short.clone(), 0..300),
        prop::collection::vec(prop_oneof![1 => long, 9 => short], 100..300),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn blocks_sum_up(scale in scales(), blocks in blocks()) {
        let mut profile = Profile::new();
        for block in &blocks {
            profile.add(scale.block(*block));
            assert_canonical(&profile);
        }
        let expected = model(scale, &blocks);
        prop_assert_eq!(scale.slots(&profile), expected.clone());
        prop_assert_eq!(&Profile::from_blocks(blocks.iter().map(|block| scale.block(*block))), &profile);
        let pairs = expected.iter().map(|nodes| (scale.span(1), *nodes));
        prop_assert_eq!(&Profile::from_pairs(scale.time(0), pairs), &profile);
        prop_assert_eq!(&Profile::from_pairs(scale.time(0), profile.pairs_from(scale.time(0))), &profile);
        for block in blocks.iter().rev() {
            let Block { from, until, nodes } = scale.block(*block);
            profile.add(Block { from, until, nodes: -nodes });
        }
        prop_assert!(profile.is_empty());
    }

    #[test]
    fn maxima_are_found_and_located(scale in scales(), blocks in blocks(), a in 0..N_SLOTS, b in 0..N_SLOTS) {
        let profile = Profile::from_blocks(blocks.iter().map(|block| scale.block(*block)));
        let slots = model(scale, &blocks);
        let (from, until) = (scale.time(a), scale.time(b));
        let inside = if a < b { &slots[a..b] } else { &[] };
        let most = inside.iter().copied().max().unwrap_or(0);
        prop_assert_eq!(profile.max(from, until), most);
        prop_assert_eq!(profile.least_free(9, from, until), 9 - most);
        let located = inside.iter().rposition(|nodes| *nodes == most).map_or(a, |idx| a + idx + 1);
        prop_assert_eq!(profile.loc(from, until), scale.time(located));
        for limit in [-1, 0, 1, 3, most - 1, most] {
            let last = inside.iter().rposition(|nodes| *nodes > limit).map(|idx| scale.time(a + idx + 1));
            prop_assert_eq!(profile.last_above(limit, from, until), last, "above {}", limit);
            let first = slots[a..].iter().position(|nodes| *nodes > limit).map(|idx| scale.time(a + idx));
            let beyond = (limit < 0).then(|| scale.time(N_SLOTS));
            prop_assert_eq!(profile.first_above(limit, from), first.or(beyond), "above {}", limit);
        }
        let instant = scale.time(a) - Span::from_millis(scale.millis);
        let before = profile.step_before(scale.time(a));
        prop_assert_eq!(before.map_or(0, |step| step.nodes), profile.at(instant));
    }

    #[test]
    fn the_first_hole_is_the_earliest_that_holds(
        scale in scales(), blocks in blocks(), wanted in 0_i64..9, n_slots in 0..40_usize, from in 0..N_SLOTS,
    ) {
        let blocks: Vec<_> = blocks.into_iter().filter(|(_, _, nodes)| *nodes > 0).collect();
        let profile = Profile::from_blocks(blocks.iter().map(|block| scale.block(*block)));
        let mut slots = model(scale, &blocks);
        slots.extend([0; 50]);
        let (capacity, wanted) = (8 * scale.nodes, wanted * scale.nodes);
        let hole = profile.first_hole(capacity, wanted, scale.span(n_slots), scale.time(from));
        if wanted > capacity {
            prop_assert_eq!(hole, None);
        } else {
            let n_busy = n_slots.max(1);
            let fits = |start: &usize| slots[*start..start + n_busy].iter().all(|busy| busy + wanted <= capacity);
            let expected = (from..=N_SLOTS).find(fits).expect("it is free in the end");
            let hole = hole.expect("it fits in the end");
            prop_assert_eq!(hole.start, scale.time(expected));
            let blocked_by = if expected > from { profile.step_before(hole.start) } else { None };
            prop_assert_eq!(hole.blocked_by, blocked_by);
            prop_assert!(blocked_by.is_none_or(|step| step.nodes + wanted > capacity));
        }
    }

    #[test]
    fn profiles_are_added_delayed_cut_and_mirrored(
        scale in scales(), one in blocks(), two in blocks(), a in 0..N_SLOTS, b in 0..N_SLOTS,
    ) {
        let profile = |blocks: &[(usize, usize, i64)]| Profile::from_blocks(blocks.iter().map(|block| scale.block(*block)));
        let (left, right) = (profile(&one), profile(&two));
        let sum = &left + &right;
        assert_canonical(&sum);
        prop_assert_eq!(&sum, &profile(&[one.clone(), two.clone()].concat()));
        prop_assert_eq!(&(&sum - &right), &left);
        let mut difference = left.clone();
        difference.subtract(&left);
        prop_assert!(difference.is_empty());

        let delayed = left.delayed(scale.span(a));
        let back = Span::from_millis(-scale.span(a).as_millis());
        prop_assert_eq!(delayed.at(scale.time(a + b)), left.at(scale.time(b)));
        prop_assert_eq!(&delayed.delayed(back), &left);

        let slots = model(scale, &one);
        let cut = left.cut_before(scale.time(a));
        assert_canonical(&cut);
        let expected: Vec<i64> = slots.iter().enumerate().map(|(idx, nodes)| if idx < a { 0 } else { *nodes }).collect();
        prop_assert_eq!(scale.slots(&cut), expected);

        let points: Vec<Time> = left.change_points(scale.time(a)).collect();
        let later = left.steps().map(|step| step.from).filter(|from| *from > scale.time(a));
        prop_assert_eq!(points, std::iter::once(scale.time(a)).chain(later).collect::<Vec<_>>());

        let mirrored = left.mirrored(scale.time(a), scale.time(b));
        assert_canonical(&mirrored);
        for (slot, nodes) in slots.iter().enumerate() {
            let inside = a <= slot && slot < b;
            let mirror = Time::from_millis(-scale.time(slot + 1).as_millis());
            prop_assert_eq!(mirrored.at(mirror), if inside { *nodes } else { 0 });
        }
    }
}

#[test]
fn pairs_go_out_and_come_back() {
    let profile = Profile::from_blocks([SMALL.block((2, 5, 3)), SMALL.block((5, 6, 1))]);
    let secs = |n| Span::from_secs(n);
    assert_eq!(profile.pairs_from(Time::EPOCH), [(secs(2), 0), (secs(3), 3), (secs(1), 1)]);
    assert_eq!(profile.pairs_from(Time::from_secs(3)), [(secs(2), 3), (secs(1), 1)]);
    assert_eq!(profile.pairs_from(Time::from_secs(6)), []);
}

#[test]
fn what_is_written_down_is_read_back_and_nothing_else() {
    let profile = Profile::from_blocks([SMALL.block((2, 5, 3))]);
    let text = r#"{"steps":[[2000,3],[5000,0]]}"#;
    assert_eq!(serde_json::to_string(&profile).expect("it can be written"), text);
    assert_eq!(serde_json::from_str::<Profile>(text).expect("it can be read"), profile);
    let endless = r#"{"steps":[[2000,3]]}"#;
    let backwards = r#"{"steps":[[2000,3],[1000,0]]}"#;
    let equal = r#"{"steps":[[0,3],[1,3],[2,0]]}"#;
    for text in [endless, backwards, equal] {
        let error = serde_json::from_str::<Profile>(text).expect_err(text);
        assert!(error.to_string().contains("must ascend in time"), "{error}");
    }
}

#[test]
fn durations_beyond_all_time_do_not_wrap() {
    let endless = Span::from_millis(i64::MAX);
    let profile = Profile::from_pairs(Time::from_secs(1), [(endless, 3), (endless, 2)]);
    assert_canonical(&profile);
    assert_eq!(profile.at(Time::from_secs(2)), 3);
    assert_eq!(profile.first_hole(4, 2, Span::from_secs(1), Time::EPOCH).map(|hole| hole.start), Some(Time::EPOCH));
}
