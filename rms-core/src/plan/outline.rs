//! A timeline in outline: in which stretches of time about how many cores are free once, or throughout. It tells where
//! a search for room is useless.

use rms_model::{Span, Time};

use super::timeline::Timeline;
use crate::state::Piece;

pub(super) const N_STRETCHES: usize = 32;
const N_LEVELS: usize = 16;

/// Stretches of equal width, except that the last one has no end; and levels, which are numbers of cores, rounded down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    origin: Time,
    /// The binary logarithm of the milliseconds of a stretch.
    log_width: u32,
    /// No node has more cores.
    most_cores: u32,
}

/// A bit for each stretch, the first one lowest.
pub(super) type Stretches = u32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    /// By level: the stretches in which that many cores are free at some time.
    once: [Stretches; N_LEVELS],
    /// By level: the stretches in which they are free at all times.
    throughout: [Stretches; N_LEVELS],
}

impl Scale {
    pub(super) fn new(origin: Time, most_cores: u32) -> Scale {
        // A quarter of an hour.
        Scale { origin, log_width: 20, most_cores: most_cores.max(1) }
    }

    /// Widens the stretches until they distinguish times up to this one. Returns whether that was necessary.
    pub(super) fn reach(&mut self, at: Time) -> bool {
        let before = self.log_width;
        while self.begin(N_STRETCHES - 1) <= at && self.log_width < 50 {
            self.log_width += 1;
        }
        before < self.log_width
    }

    pub(super) fn most_cores(&self) -> u32 {
        self.most_cores
    }

    /// Returns whether so many stretches have passed that those to come are too few.
    pub(super) fn is_spent(&self, now: Time) -> bool {
        now >= self.begin(N_STRETCHES / 4)
    }

    fn stretch(&self, at: Time) -> usize {
        self.n_within(at.since(self.origin)).min(N_STRETCHES - 1)
    }

    pub(super) fn begin(&self, stretch: usize) -> Time {
        self.origin + Span::from_millis((stretch as i64) << self.log_width)
    }

    fn n_within(&self, span: Span) -> usize {
        (span.as_millis() >> self.log_width) as usize
    }

    fn level(&self, cores: i64) -> usize {
        let cores = cores.clamp(0, self.most_cores.into()) as u32;
        (cores * N_LEVELS as u32 / self.most_cores).min(N_LEVELS as u32 - 1) as usize
    }
}

impl Outline {
    pub(super) fn of(timeline: &Timeline, scale: &Scale) -> Outline {
        let mut outline = Outline { once: [0; N_LEVELS], throughout: [Stretches::MAX; N_LEVELS] };
        for (begin, end, room) in timeline.steps() {
            let (first, last) = (scale.stretch(begin), scale.stretch(end - Span::from_millis(1)));
            let stretches = Stretches::MAX << first & Stretches::MAX >> (N_STRETCHES - 1 - last);
            let level = scale.level(room.cores);
            outline.once[..=level].iter_mut().for_each(|once| *once |= stretches);
            outline.throughout[level + 1..].iter_mut().for_each(|throughout| *throughout &= !stretches);
        }
        outline
    }
}

/// What a job wants of a node, as outlines tell it.
struct Want {
    level: usize,
    /// The stretches in which it may start.
    from: Stretches,
    /// How many stretches after the one in which it starts it occupies at least.
    n_later: usize,
}

impl Want {
    fn new(piece: &Piece, wall: Span, from: Time, scale: &Scale) -> Want {
        // A whole node is wanted without a number of free cores.
        let level = if piece.is_whole { 0 } else { scale.level(piece.slice.cores.into()) };
        let n_later = scale.n_within(wall).min(N_STRETCHES).saturating_sub(1);
        Want { level, from: Stretches::MAX << scale.stretch(from), n_later }
    }

    /// Returns the stretches in which a job may start.
    fn starts(&self, once: Stretches, throughout: Stretches) -> Stretches {
        let starts = once & self.from;
        if self.n_later == 0 {
            return starts;
        }
        // The job occupies the following stretches that end before its own end; the last stretch has no end.
        let mut throughout = throughout | 1 << (N_STRETCHES - 1);
        let later = |stretches: Stretches, by: usize| stretches >> by | !(Stretches::MAX >> by);
        // `throughout` is true of a stretch and the following ones, `n` in all.
        let mut n = 1;
        while n < self.n_later {
            let more = n.min(self.n_later - n);
            throughout &= later(throughout, more);
            n += more;
        }
        starts & later(throughout, 1)
    }
}

/// The outlines of many timelines.
#[derive(Clone, Debug, Default)]
pub(super) struct Outlines {
    /// As in an [`Outline`], by level and timeline.
    once: [Vec<Stretches>; N_LEVELS],
    throughout: [Vec<Stretches>; N_LEVELS],
}

impl Outlines {
    /// Sets the outline of a timeline, which is known or the next one.
    pub(super) fn set(&mut self, idx: usize, outline: &Outline) {
        let by_level = |all: &mut [Vec<Stretches>; N_LEVELS], own: &[Stretches; N_LEVELS]| {
            for (all, own) in std::iter::zip(all, own) {
                all.resize(all.len().max(idx + 1), 0);
                all[idx] = *own;
            }
        };
        by_level(&mut self.once, &outline.once);
        by_level(&mut self.throughout, &outline.throughout);
    }

    /// Returns a time before which no job that wants the piece for `wall` may start, from `from` on; `None` if it never
    /// may.
    pub(super) fn not_before(&self, idx: usize, piece: &Piece, wall: Span, from: Time, scale: &Scale) -> Option<Time> {
        let want = Want::new(piece, wall, from, scale);
        let starts = want.starts(self.once[want.level][idx], self.throughout[want.level][idx]);
        (starts != 0).then(|| from.max(scale.begin(starts.trailing_zeros() as usize)))
    }

    /// Returns, for each timeline, the stretches in which such a job may start.
    pub(super) fn starts(
        &self,
        piece: &Piece,
        wall: Span,
        from: Time,
        scale: &Scale,
    ) -> impl Iterator<Item = Stretches> {
        let want = Want::new(piece, wall, from, scale);
        let timelines = std::iter::zip(&self.once[want.level], &self.throughout[want.level]);
        timelines.map(move |(once, throughout)| want.starts(*once, *throughout))
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Mebibytes, Slice};
    use test_kit::for_seeds;

    use super::*;

    #[test]
    fn nobody_may_start_before_the_outline_says() {
        for_seeds("nobody_may_start_before_the_outline_says", 500, |dice| {
            let now = Time::from_secs(1000);
            let cores = dice.number(1, 8);
            let mut timeline = Timeline::of_free(&Slice { cores, ..Slice::default() }, now);
            let mut scale = Scale::new(now, dice.number(1, 20));
            for _ in 0..dice.number(0, 30) {
                let from = now + Span::from_mins(i64::from(dice.number(0, 1500)) - 10);
                let until = from + Span::from_mins(dice.number(0, 600).into());
                let slice = Slice { cores: dice.number(1, 4), memory: Mebibytes(0), ..Slice::default() };
                timeline.take(from, until, &Piece { slice, is_whole: false }, 1);
                if dice.number(0, 1) == 0 {
                    scale.reach(from);
                }
            }
            let mut outlines = Outlines::default();
            outlines.set(0, &Outline::of(&timeline, &scale));
            for _ in 0..20 {
                let slice = Slice { cores: dice.number(1, cores + 1), ..Slice::default() };
                let piece = Piece { slice, is_whole: dice.number(0, 9) == 0 };
                let wall = Span::from_mins(dice.number(1, 800).into());
                let from = now + Span::from_mins(dice.number(0, 2000).into());
                let hole = timeline.first_hole(&piece, wall, from);
                let bound = outlines.not_before(0, &piece, wall, from, &scale);
                match (hole, bound) {
                    (Some(hole), Some(bound)) => {
                        assert!(from <= bound && bound <= hole.first, "{bound:?} {hole:?} {timeline:?} {scale:?}");
                    }
                    (Some(_), None) => panic!("there is room: {hole:?} {timeline:?} {scale:?}"),
                    (None, _) => {}
                }
            }
        });
    }

    #[test]
    fn short_gaps_are_nothing_to_who_stays_long() {
        let now = Time::from_secs(1000);
        let at = |mins| now + Span::from_mins(mins);
        let piece = |cores| Piece { slice: Slice { cores, ..Slice::default() }, is_whole: false };
        let mut timeline = Timeline::of_free(&piece(8).slice, now);
        timeline.take(at(0), at(60), &piece(6), 1);
        timeline.take(at(120), at(180), &piece(6), 1);
        let scale = Scale::new(now, 8);
        let mut outlines = Outlines::default();
        outlines.set(0, &Outline::of(&timeline, &scale));
        let told = |cores, mins| outlines.not_before(0, &piece(cores), Span::from_mins(mins), now, &scale);
        assert_eq!(told(2, 600), Some(now));
        assert_eq!(told(3, 10), Some(now + Span::from_millis(3 << 20)));
        assert_eq!(told(3, 90), Some(now + Span::from_millis(10 << 20)));
        assert_eq!(told(9, 1), Some(now + Span::from_millis(3 << 20)));
    }
}
