//! Places an evolving application: when each stage of its profile begins, and how long it waits for the next (000,
//! 003).
//!
//! The papers' Algorithm 2 (003: 3) searches recursively and loses what it has learned when it backtracks, which costs
//! exponential time on some inputs. Its result does not depend on the search: the start vectors that satisfy all
//! constraints are closed under the component-wise minimum, and the fit is the least of them. So every stage gets a
//! lower bound, and the bounds are raised by what the neighbouring stages require until none changes.

use rms_model::{Evolution, ExpandLimit, Profile, Span, Stage, Time};
use thiserror::Error;

/// A profile that was placed (003: the scheduled EP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The start; the delay until then is not part of `expanded`.
    pub start: Time,
    /// The requested stages, some of them longer.
    pub expanded: Evolution,
}

/// A stage needs more nodes than there are, so that no start is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stage {number} needs {wanted} nodes of {capacity}")]
pub struct TooLarge {
    pub number: usize,
    pub wanted: u32,
    pub capacity: u32,
}

impl Fit {
    pub fn completion(&self) -> Time {
        self.start + self.expanded.span()
    }

    /// Returns when each of its stages begins.
    pub fn starts(&self) -> impl Iterator<Item = Time> + '_ {
        self.expanded.blocks(self.start).map(|block| block.from)
    }

    /// Returns for how long the application has the node at this place of those that it starts with, if it frees the
    /// last ones first.
    pub(super) fn kept_for(&self, place: usize) -> Span {
        let stages = self.expanded.stages().iter().take_while(|stage| stage.nodes as usize > place);
        stages.fold(Span::ZERO, |sum, stage| sum + stage.span)
    }

    /// Adds it to the occupation that the next application sees.
    pub fn occupy(&self, occupied: &mut Profile) {
        for block in self.expanded.blocks(self.start) {
            occupied.add(block);
        }
    }
}

/// Finds the earliest completion of `request` beside what is occupied of `capacity` nodes, not starting before `from`.
/// The first stage is moved next to the second and never expanded; nor is the last one.
///
/// # Errors
/// A stage that is larger than the capacity.
pub fn fit(
    occupied: &Profile,
    capacity: u32,
    request: &Evolution,
    limit: ExpandLimit,
    from: Time,
) -> Result<Fit, TooLarge> {
    let stages = request.stages();
    if let Some(idx) = stages.iter().position(|stage| stage.nodes > capacity) {
        return Err(TooLarge { number: idx + 1, wanted: stages[idx].nodes, capacity });
    }
    let starts = earliest_starts(occupied, capacity, stages, limit, FirstStage::Moves, from);
    Ok(Fit { start: starts.first().copied().unwrap_or(from), expanded: expanded(request, &starts) })
}

/// How the first stage is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstStage {
    /// It begins next to the second one, and is not expanded.
    Moves,
    /// It has begun and holds its nodes: it lasts until the second one begins, however long that takes.
    Held,
}

/// Returns the component-wise least starts of stages that fit the capacity: each begins before the next one needs it,
/// holds its nodes until then, and lasts no longer than the limit allows.
pub(super) fn earliest_starts(
    occupied: &Profile,
    capacity: u32,
    stages: &[Stage],
    limit: ExpandLimit,
    first: FirstStage,
    from: Time,
) -> Vec<Time> {
    let room = |stage: &Stage| i64::from(capacity) - i64::from(stage.nodes);
    let hole = |stage: &Stage, from: Time| {
        occupied.free_from(room(stage), stage.span, from).expect("in the end everything is free")
    };
    // These are lower bounds that only rise; the bound of a stage stays when an earlier one is moved again.
    let mut starts = vec![from; stages.len()];
    match (first, stages.first()) {
        (FirstStage::Moves, Some(first)) => starts[0] = hole(first, from),
        (FirstStage::Held, _) | (FirstStage::Moves, None) => {}
    }
    let mut idx = 0;
    while let [stage, next, ..] = &stages[idx.min(stages.len())..] {
        let end = starts[idx] + stage.span;
        let next_start = hole(next, starts[idx + 1].max(end));
        starts[idx + 1] = next_start;
        let is_settled = next_start == end || (idx == 0 && first == FirstStage::Held);
        if is_settled {
            idx += 1;
            continue;
        }
        // 003's Algorithm 3 prints `i > 0` in its last test, which must be `i > 1`: the first stage is moved.
        let longest = if idx == 0 { stage.span } else { limit.longest(stage.span) };
        let mut bound = next_start - longest;
        if bound <= starts[idx] {
            // It waits and holds its nodes meanwhile, so it must begin after what blocks that.
            bound = occupied.last_above(room(stage), end, next_start).unwrap_or(starts[idx]);
        }
        if bound > starts[idx] {
            starts[idx] = hole(stage, bound);
            idx = idx.saturating_sub(1);
        } else {
            idx += 1;
        }
    }
    starts
}

/// Finds the [`fit`] of a running application: its first stage began at `since` and lasts until the second one begins,
/// not before `now`. The caller decides whether that is soon enough.
///
/// # Errors
/// A later stage that is larger than the capacity.
pub fn refit(
    occupied: &Profile,
    capacity: u32,
    request: &Evolution,
    limit: ExpandLimit,
    (since, now): (Time, Time),
) -> Result<Fit, TooLarge> {
    let stages = request.stages();
    if let Some(idx) = stages.iter().skip(1).position(|stage| stage.nodes > capacity) {
        return Err(TooLarge { number: idx + 2, wanted: stages[idx + 1].nodes, capacity });
    }
    // What is left of the first stage now; a stage past its end lasts a moment longer.
    let mut left = stages.to_vec();
    if let Some(first) = left.first_mut() {
        first.span = (since + first.span).since(now).max(Span::ZERO);
    }
    let starts = earliest_starts(occupied, capacity, &left, limit, FirstStage::Held, now);
    let begins = std::iter::once(since).chain(starts.iter().skip(1).copied()).take(stages.len());
    Ok(Fit { start: since, expanded: expanded(request, &begins.collect::<Vec<_>>()) })
}

/// Extends every stage until the next one begins.
fn expanded(request: &Evolution, starts: &[Time]) -> Evolution {
    let until_next = |idx: usize, stage: &Stage| match starts.get(idx + 1) {
        Some(next) => next.since(starts[idx]),
        None => stage.span,
    };
    let spans: Vec<Span> = request.stages().iter().enumerate().map(|(idx, stage)| until_next(idx, stage)).collect();
    request.lasting(&spans).expect("no stage is shorter than requested")
}

#[cfg(test)]
mod tests {
    use rms_model::profile::Block;

    use test_kit::Dice;

    use super::*;

    fn profile(pairs: &[(i64, i64)]) -> Profile {
        Profile::from_pairs(Time::EPOCH, pairs.iter().map(|(secs, nodes)| (Span::from_secs(*secs), *nodes)))
    }

    fn fitted(occupied: &Profile, request: &str, limit: ExpandLimit) -> (i64, String) {
        let request = request.parse().expect("a profile");
        let fit = fit(occupied, 5, &request, limit, Time::EPOCH).expect("it is small enough");
        (fit.start.as_secs(), fit.expanded.to_string())
    }

    #[test]
    fn a_stage_waits_for_the_next_one_within_its_limit() {
        // Two nodes are free until 10, then all are.
        let occupied = profile(&[(10, 3)]);
        let request = "1x2s,2x4s,5x1s";
        assert_eq!(fitted(&occupied, request, ExpandLimit::NONE), (4, "1x2s,2x4s,5x1s".to_owned()));
        // The middle stage could begin earlier and wait without completing earlier: only the base fit does that.
        assert_eq!(fitted(&occupied, request, ExpandLimit::TWICE), (0, "1x2s,2x8s,5x1s".to_owned()));
        assert_eq!(fitted(&occupied, request, ExpandLimit::Milli(1500)), (2, "1x2s,2x6s,5x1s".to_owned()));
    }

    #[test]
    fn waiting_gives_an_earlier_completion() {
        // All is free for a second, then one node until 10.
        let occupied = profile(&[(1, 0), (9, 4)]);
        let request = "5x1s,1x1s,5x1s";
        assert_eq!(fitted(&occupied, request, ExpandLimit::NONE), (10, "5x1s,1x1s,5x1s".to_owned()));
        assert_eq!(fitted(&occupied, request, ExpandLimit::Infinite), (0, "5x1s,1x9s,5x1s".to_owned()));
    }

    #[test]
    fn a_stage_that_is_too_large_is_refused_and_nothing_is_nothing() {
        let request: Evolution = "1x1s,6x1s".parse().expect("a profile");
        let error = fit(&Profile::new(), 5, &request, ExpandLimit::Infinite, Time::EPOCH).unwrap_err();
        assert_eq!(error.to_string(), "stage 2 needs 6 nodes of 5");
        let nothing = fit(&profile(&[(5, 5)]), 5, &Evolution::default(), ExpandLimit::NONE, Time::from_secs(3));
        assert_eq!(nothing, Ok(Fit { start: Time::from_secs(3), expanded: Evolution::default() }));
    }

    /// All start vectors of small cases, tried one after the other (RULES of the vectors: F5): the least completion,
    /// and among those that have it the least start of every stage, the first one apart, which is next to the second.
    #[test]
    fn no_start_vector_is_better() {
        let mut dice = Dice::new(5);
        let mut roll = |n: u64| dice.below(n) as i64;
        for case in 0..400 {
            let pairs: Vec<(i64, i64)> = (0..roll(6)).map(|_| (1 + roll(3), roll(4))).collect();
            let mut busy: Vec<i64> =
                pairs.iter().flat_map(|(secs, nodes)| std::iter::repeat_n(*nodes, *secs as usize)).collect();
            busy.resize(40, 0);
            let stages: Vec<(i64, i64)> = (0..1 + roll(3)).map(|_| (1 + roll(3), roll(4))).collect();
            let text: Vec<String> = stages.iter().map(|(secs, nodes)| format!("{nodes}x{secs}s")).collect();
            let request: Evolution = text.join(",").parse().expect("a profile");
            for (limit, most) in [(ExpandLimit::NONE, 1), (ExpandLimit::TWICE, 2), (ExpandLimit::Infinite, 99)] {
                let fit = fit(&profile(&pairs), 3, &request, limit, Time::EPOCH).expect("it is small enough");
                let mut best: Option<Vec<i64>> = None;
                for_each_vector(&busy, &stages, most, &mut |ends: &[i64]| {
                    let is_less = best.as_ref().is_none_or(|best| ends.iter().rev().lt(best.iter().rev()));
                    if is_less {
                        best = Some(ends.to_vec());
                    }
                });
                let ends: Vec<i64> = fit.expanded.blocks(fit.start).map(|block| block.until.as_secs()).collect();
                assert_eq!(Some(ends), best, "case {case}: {text:?} with {limit} over {pairs:?}");
                assert_eq!(fit.expanded.stages()[0].span, request.stages()[0].span);
            }
        }
    }

    /// Calls `found` with the ends of the stages for each way to place them under 3 nodes within 24 seconds. The first
    /// and the last stage keep their lengths.
    fn for_each_vector(busy: &[i64], stages: &[(i64, i64)], most: i64, found: &mut impl FnMut(&[i64])) {
        fn place(busy: &[i64], stages: &[(i64, i64)], most: i64, ends: &mut Vec<i64>, found: &mut impl FnMut(&[i64])) {
            let Some((secs, nodes)) = stages.get(ends.len()).copied() else { return found(ends) };
            let is_edge = ends.is_empty() || ends.len() + 1 == stages.len();
            let starts = ends.last().map_or(0..=24, |end| *end..=*end);
            for start in starts {
                for length in secs..=if is_edge { secs } else { (secs * most).min(24) } {
                    let end = start + length;
                    let has_room =
                        busy.get(start as usize..end as usize).is_some_and(|b| b.iter().all(|b| b + nodes <= 3));
                    if has_room {
                        ends.push(end);
                        place(busy, stages, most, ends, found);
                        ends.pop();
                    }
                }
            }
        }
        place(busy, stages, most, &mut Vec::new(), found);
    }

    /// Hill-climbed inputs cost the papers' recursion exponential time; here every turn raises a bound.
    #[test]
    fn many_stages_over_a_comb_take_a_short_time() {
        let secs = Time::from_secs;
        let teeth = (0..2000).map(|n| Block { from: secs(7 * n), until: secs(7 * n + 3), nodes: 1 + n % 4 });
        let occupied = Profile::from_blocks(teeth);
        let stages = (0..200).map(|n| Stage { nodes: 1 + n % 5, span: Span::from_secs(1 + i64::from(n) % 4) });
        let request = Evolution::new(stages.collect()).expect("short enough");
        for limit in [ExpandLimit::NONE, ExpandLimit::Milli(1300), ExpandLimit::TWICE, ExpandLimit::Infinite] {
            let fit = fit(&occupied, 5, &request, limit, Time::EPOCH).expect("it is small enough");
            let mut both = occupied.clone();
            fit.occupy(&mut both);
            assert!(both.max(Time::EPOCH, fit.completion()) <= 5);
        }
    }
}
