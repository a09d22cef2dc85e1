//! Which application gives back what: examples with one point each, and comparisons with a search over all
//! possibilities.

use negotiation::Price;
use rms_api::negotiate::Declared;
use rms_model::{JobId, Sizes, Span, Speedup};

use super::*;
use test_kit::for_seeds;

const QUEUE: (Occasion, ShrinkRule) = (Occasion::Waiting { priority: 9 }, ShrinkRule::Queue);

fn declared(least: u32, sizes: Sizes) -> Declared {
    Declared { least, most: 100, sizes, speedup: Speedup::default() }
}

fn candidate(job: u64, held: u32, declared: &Declared) -> Candidate<'_> {
    Candidate {
        job: JobId(job),
        user: "ada",
        held,
        started_with: held,
        declared,
        priority: 0,
        is_negotiating: false,
        declined: 0,
        room: u32::MAX,
        price: Price(0),
        paid_for: Span::ZERO,
    }
}

fn check(needed: u32, candidates: &[Candidate<'_>], expected: Option<&[(u64, u32)]>) {
    let asked = shrinks(needed, QUEUE.0, candidates, QUEUE.1);
    let asked: Option<Vec<(u64, u32)>> =
        asked.map(|changes| changes.iter().map(|change| (change.job.0, change.nodes)).collect());
    assert_eq!(asked.as_deref(), expected);
}

/// 002 (f): a malleable application makes room for a job of higher priority.
#[test]
fn an_application_shrinks_by_what_the_waiting_job_lacks() {
    let twos = declared(2, Sizes::PowerOfTwo);
    check(4, &[candidate(1, 8, &twos)], Some(&[(1, 4)]));
    check(5, &[candidate(1, 8, &twos)], Some(&[(1, 6)]));
    check(3, &[candidate(1, 8, &declared(1, Sizes::Any))], Some(&[(1, 3)]));
}

#[test]
fn nobody_shrinks_in_vain() {
    let any = declared(3, Sizes::Any);
    check(5, &[candidate(1, 5, &any), candidate(2, 5, &any)], None);
    check(4, &[candidate(1, 5, &any), candidate(2, 5, &any)], Some(&[(1, 2), (2, 2)]));
    check(1, &[], None);
    check(0, &[candidate(1, 5, &any)], Some(&[]));
}

#[test]
fn node_0_is_never_given_back() {
    let none = declared(0, Sizes::Any);
    check(4, &[candidate(1, 4, &none)], None);
    check(3, &[candidate(1, 4, &none)], Some(&[(1, 3)]));
}

#[test]
fn who_has_most_above_its_minimum_gives_first_and_few_are_disturbed() {
    let any = declared(1, Sizes::Any);
    let three = [candidate(1, 4, &any), candidate(2, 9, &any), candidate(3, 6, &any)];
    check(8, &three, Some(&[(2, 8)]));
    check(9, &three, Some(&[(2, 8), (3, 1)]));
}

#[test]
fn the_lowest_priority_gives_first() {
    let any = declared(1, Sizes::Any);
    let urgent = Candidate { priority: 5, ..candidate(1, 9, &any) };
    check(4, &[urgent, candidate(2, 4, &any)], Some(&[(2, 3), (1, 1)]));
    let too_urgent = Candidate { priority: 10, ..candidate(1, 9, &any) };
    check(4, &[too_urgent, candidate(2, 4, &any)], None);
}

/// The application with powers of two can only give 4: then the other one, which was asked first, keeps two of its
/// three.
#[test]
fn nobody_gives_more_than_is_missing_without_it() {
    let (any, twos) = (declared(1, Sizes::Any), declared(4, Sizes::PowerOfTwo));
    let urgent = Candidate { priority: 5, ..candidate(1, 8, &twos) };
    check(5, &[urgent, candidate(2, 4, &any)], Some(&[(2, 1), (1, 4)]));
    check(4, &[urgent, candidate(2, 4, &any)], Some(&[(1, 4)]));
}

#[test]
fn what_was_declined_is_not_asked_for_again() {
    let any = declared(1, Sizes::Any);
    let stubborn = Candidate { declined: 4, ..candidate(1, 9, &any) };
    check(4, &[stubborn], None);
    check(3, &[stubborn], Some(&[(1, 3)]));
    let deaf = Candidate { declined: 1, ..candidate(1, 9, &any) };
    check(1, &[deaf], None);
    let negotiating = Candidate { is_negotiating: true, ..candidate(1, 9, &any) };
    check(1, &[negotiating], None);
}

#[test]
fn it_is_found_whenever_it_exists_and_is_as_little_as_can_be() {
    for_seeds("it_is_found_whenever_it_exists", 3000, |dice| {
        let all: Vec<Declared> = (0..dice.number(0, 4))
            .map(|_| {
                let sizes = match dice.number(0, 3) {
                    0 => Sizes::Any,
                    1 => Sizes::PowerOfTwo,
                    2 => Sizes::MultipleOf(dice.number(1, 3).into()),
                    _ => Sizes::Listed(vec![1, 3, 7]),
                };
                declared(dice.number(0, 4), sizes)
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = (1..)
            .zip(&all)
            .map(|(job, declared)| Candidate {
                priority: dice.number(0, 2) as i32,
                is_negotiating: dice.chance(10),
                room: if dice.chance(20) { dice.number(0, 6) } else { u32::MAX },
                declined: if dice.chance(20) { dice.number(1, 5) } else { 0 },
                ..candidate(job, dice.number(1, 10), declared)
            })
            .collect();
        let needed = dice.number(0, 16);
        let gives = |candidate: &Candidate<'_>| -> Vec<u32> {
            let may = |given: &u32| {
                let total = candidate.held - given;
                let is_size = total >= candidate.declared.least.max(1) && candidate.declared.sizes.fits(total.into());
                let is_new = candidate.declined == 0 || *given < candidate.declined;
                !candidate.is_negotiating && is_size && is_new && *given <= candidate.room
            };
            (1..candidate.held).filter(may).collect()
        };
        let possible: Vec<Vec<u32>> = candidates.iter().map(gives).collect();
        let most: u32 = possible.iter().filter_map(|gives| gives.last()).sum();
        let found = shrinks(needed, QUEUE.0, &candidates, QUEUE.1);
        assert_eq!(found.is_some(), most >= needed, "{candidates:?}");
        assert_eq!(most_shrinks(QUEUE.0, &candidates, QUEUE.1), u64::from(most), "{candidates:?}");
        let Some(found) = found else { return };
        let given =
            |idx: usize| found.iter().find(|change| change.job == candidates[idx].job).map_or(0, |change| change.nodes);
        let sum: u32 = found.iter().map(|change| change.nodes).sum();
        assert!(sum >= needed);
        for (idx, gives) in possible.iter().enumerate() {
            let now = given(idx);
            assert!(now == 0 || gives.contains(&now));
            // It could not have given less, or nothing.
            let others = sum - now;
            let less = std::iter::once(&0).chain(gives).find(|less| **less < now && others + **less >= needed);
            assert_eq!(less, None, "{:?} gives {now} of {needed}", candidates[idx]);
        }
        if all.iter().all(|declared| declared.sizes == Sizes::Any) && candidates.iter().all(|one| one.declined == 0) {
            assert_eq!(sum, needed, "any number can be given: exactly as many as are needed");
            // No job of higher priority is disturbed while one of lower priority has something to give.
            for (idx, gives) in possible.iter().enumerate() {
                let has_more = gives.last().is_some_and(|most| *most > given(idx));
                let lower = candidates[idx].priority;
                let disturbed = |idx: usize| given(idx) > 0 && candidates[idx].priority > lower;
                assert!(!has_more || !(0..candidates.len()).any(disturbed), "{found:?}");
            }
        }
        let is_one_priority = candidates.windows(2).all(|pair| pair[0].priority == pair[1].priority);
        if is_one_priority {
            let mut mosts: Vec<u32> = possible.iter().filter_map(|gives| gives.last().copied()).collect();
            mosts.sort_unstable();
            let mut sum = 0;
            let fewest = mosts.iter().rev().take_while(|most| {
                let is_short = sum < needed;
                sum += **most;
                is_short
            });
            assert!(found.len() <= fewest.count(), "fewer would do: {found:?} of {candidates:?}");
        }
    });
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let any = declared(0, Sizes::Any);
    let two = [candidate(1, u32::MAX, &any), candidate(2, u32::MAX, &any)];
    check(u32::MAX, &two, Some(&[(1, u32::MAX - 1), (2, 1)]));
    let none = declared(u32::MAX, Sizes::MultipleOf(0));
    check(1, &[candidate(1, u32::MAX, &none)], None);
}
