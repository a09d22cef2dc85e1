//! Compacts a placed profile: the same completion, as late a start and as short waits as possible (000, 003).
//!
//! It is the base fit with time running backwards from the completion: the last stage stays, and the gap before a
//! stage is covered by the stage before it.

use rms_model::{Evolution, ExpandLimit, Expansion, Profile, Span, Stage, Time};

use super::fit::{FirstStage, Fit, TooLarge, earliest_starts, fit};

/// Runs [`fit`], and [`compact`] if wanted.
///
/// # Errors
/// As [`fit`].
pub fn place(
    occupied: &Profile,
    capacity: u32,
    request: &Evolution,
    expansion: Expansion,
    from: Time,
) -> Result<Fit, TooLarge> {
    let base = fit(occupied, capacity, request, expansion.limit, from)?;
    Ok(if expansion.compacting { compact(occupied, capacity, request, expansion.limit, base) } else { base })
}

/// Compacts a placed profile. `base` must be the fit of `request` for the same occupation, capacity and limit.
pub fn compact(occupied: &Profile, capacity: u32, request: &Evolution, limit: ExpandLimit, base: Fit) -> Fit {
    let completion = base.completion();
    let mirror = |time: Time| Time::from_millis(-time.as_millis());
    let stages: Vec<Stage> = request.stages().iter().rev().copied().collect();
    // Only the span of the base fit matters: a later start cannot need more.
    let mirrored = occupied.mirrored(base.start, completion);
    let ends = earliest_starts(&mirrored, capacity, &stages, limit, FirstStage::Moves, mirror(completion));
    // Each stage ends where its mirror begins, and begins where the stage before it ends.
    let ends: Vec<Time> = ends.into_iter().rev().map(mirror).collect();
    let (Some(first_end), Some(first)) = (ends.first(), request.stages().first()) else { return base };
    let start = *first_end - first.span;
    // "In the worst case, no compacting occurs and the same EP is returned." The mirrored pass can end up with the
    // same start and longer waits.
    if start <= base.start {
        return base;
    }
    let begins = std::iter::once(&start).chain(&ends);
    let spans: Vec<Span> = begins.zip(&ends).map(|(begin, end)| end.since(*begin)).collect();
    Fit { start, expanded: request.lasting(&spans).expect("no stage is shorter than requested") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_was_not_needed_is_taken_out() {
        // Two nodes are free until 10, then all are: the base fit begins at once and waits.
        let occupied = Profile::from_pairs(Time::EPOCH, [(Span::from_secs(10), 3)]);
        let request: Evolution = "1x2s,2x4s,5x1s".parse().expect("a profile");
        let base = fit(&occupied, 5, &request, ExpandLimit::TWICE, Time::EPOCH).expect("it fits");
        assert_eq!((base.start, base.expanded.to_string().as_str()), (Time::EPOCH, "1x2s,2x8s,5x1s"));
        let expansion = Expansion { limit: ExpandLimit::TWICE, compacting: true };
        let compacted = place(&occupied, 5, &request, expansion, Time::EPOCH).expect("it fits");
        assert_eq!((compacted.start, &compacted.expanded), (Time::from_secs(4), &request));
        assert_eq!(compacted.completion(), base.completion());
    }

    #[test]
    fn what_cannot_start_later_is_left_alone() {
        let request: Evolution = "5x2s,1x4s".parse().expect("a profile");
        let base = fit(&Profile::new(), 5, &request, ExpandLimit::Infinite, Time::EPOCH).expect("it fits");
        assert_eq!(compact(&Profile::new(), 5, &request, ExpandLimit::Infinite, base.clone()), base);
        let nothing = Fit { start: Time::from_secs(3), expanded: Evolution::default() };
        let request = Evolution::default();
        assert_eq!(compact(&Profile::new(), 5, &request, ExpandLimit::NONE, nothing.clone()), nothing);
    }
}
