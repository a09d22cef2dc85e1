//! What is free of one node over time, and where a piece of it fits.

use rms_model::{Inventory, Slice, Span, Time};

use crate::state::{Line, NodeRoom, Piece};

/// What is free from each of these times on until the next one; from the last one on for ever.
#[derive(Clone, Debug)]
pub struct Timeline {
    steps: Vec<(Time, NodeRoom)>,
}

impl Timeline {
    /// Of a node that nobody has, from that time on.
    pub fn of_free(slice: &Slice, from: Time) -> Timeline {
        Timeline { steps: vec![(from, NodeRoom::of(slice))] }
    }

    /// Of a node with all who hold it. Who should have left by now is there until `overdue`.
    pub(super) fn of(line: &Line, inventory: &Inventory, now: Time, overdue: Time) -> Timeline {
        let mut timeline = Timeline { steps: vec![(now, line.room.clone())] };
        for hold in line.holds() {
            let until = if hold.until > now { hold.until } else { overdue };
            timeline.take(until, Time::NEVER, &hold.piece, -1);
        }
        if let Some(ghost) = line.ghost.filter(|ghost| *ghost > now) {
            timeline.take(now, ghost, &Piece::whole(inventory), 1);
        }
        timeline
    }

    /// Somebody takes a piece from then until then; with a `sign` of -1 it is given back.
    pub fn take(&mut self, from: Time, until: Time, piece: &Piece, sign: i64) {
        if from >= until {
            return;
        }
        let Some(first) = self.cut(from) else { return };
        let end = self.cut(until).unwrap_or(self.steps.len());
        self.steps[first..end].iter_mut().for_each(|(_, room)| room.take(piece, sign));
    }

    /// The step that begins then; one is made where there is none. What was before the first step is nothing.
    fn cut(&mut self, at: Time) -> Option<usize> {
        if at == Time::NEVER {
            return None;
        }
        match self.steps.binary_search_by_key(&at, |(from, _)| *from) {
            Ok(idx) => Some(idx),
            Err(0) => Some(0),
            Err(idx) => {
                let room = self.steps[idx - 1].1.clone();
                self.steps.insert(idx, (at, room));
                Some(idx)
            }
        }
    }

    /// The first times from `from` on at which somebody may start who wants the piece for so long.
    pub fn first_hole(&self, piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        self.first_hole_beside((Time::NEVER, Time::NEVER), piece, wall, from)
    }

    /// The same if there is room for it in the time that is given, whatever is taken then.
    pub(super) fn first_hole_beside(&self, given: (Time, Time), piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        let steps = &self.steps[self.idx_at(from)..];
        let has_room = |(begin, room): &(Time, NodeRoom)| (given.0 <= *begin && *begin < given.1) || room.holds(piece);
        let mut n_seen = 0;
        loop {
            n_seen += steps[n_seen..].iter().position(has_room)?;
            let first = steps[n_seen].0.max(from);
            let n_more = steps[n_seen..].iter().position(|step| !has_room(step));
            let Some(n_more) = n_more else { return Some(Hole::for_good(first)) };
            n_seen += n_more;
            let end = steps[n_seen].0;
            if first + wall <= end {
                return Some(Hole { first, last: end - wall });
            }
        }
    }

    /// May somebody start then who wants the piece for so long?
    pub(super) fn fits_at(&self, piece: &Piece, wall: Span, at: Time) -> bool {
        let until = at + wall;
        let mut steps = self.steps[self.idx_at(at)..].iter().take_while(|(begin, _)| *begin <= at || *begin < until);
        steps.all(|(_, room)| room.holds(piece))
    }

    /// The step of that time; before the first one, that.
    fn idx_at(&self, at: Time) -> usize {
        self.steps.partition_point(|(begin, _)| *begin <= at).saturating_sub(1)
    }

    /// What is free at that time.
    pub(super) fn at(&self, at: Time) -> &NodeRoom {
        &self.steps[self.idx_at(at)].1
    }

    /// What is free at every time before then.
    pub(super) fn least(&self, until: Time) -> Slice {
        let mut steps = self.steps.iter().take_while(|(begin, _)| *begin < until).map(|(_, room)| room);
        let first = steps.next().cloned().unwrap_or_default();
        let least = steps.fold(first, |mut least, room| {
            least.cap(room);
            least
        });
        least.left()
    }

    /// The times between `from` and `until` at which nobody has anything of the node.
    pub(super) fn clear(&self, from: Time, until: Time) -> Vec<(Time, Time)> {
        self.times((from, until), NodeRoom::is_clear)
    }

    /// The times from `from` on at which somebody has something of it.
    pub(super) fn busy(&self, from: Time) -> Vec<(Time, Time)> {
        self.times((from, Time::NEVER), |room| !room.is_clear())
    }

    /// The times at which there is no room for a piece, or before `opens` nothing may start.
    pub(super) fn lacking(&self, piece: &Piece, opens: Time) -> Vec<(Time, Time)> {
        let first = self.steps.first().map_or(opens, |(begin, _)| *begin);
        let mut lacking = self.times((opens, Time::NEVER), |room| !room.holds(piece));
        if opens > first {
            lacking.insert(0, (first, opens));
        }
        lacking
    }

    /// The times of which this holds.
    pub(super) fn times(&self, (from, until): (Time, Time), holds: impl Fn(&NodeRoom) -> bool) -> Vec<(Time, Time)> {
        let mut times: Vec<(Time, Time)> = Vec::new();
        let first = self.idx_at(from);
        let steps = self.steps.get(first..).unwrap_or_default();
        let steps = steps.iter().take_while(|(begin, _)| *begin < until).map(|(begin, room)| (*begin, room));
        let ends = self.steps.iter().skip(first + 1).map(|(begin, _)| *begin).chain([Time::NEVER]);
        for ((begin, _), end) in steps.zip(ends).filter(|((_, room), _)| holds(room)) {
            let (begin, end) = (begin.max(from), end.min(until));
            match times.last_mut() {
                Some((_, last)) if *last == begin => *last = end,
                Some(_) | None if begin < end => times.push((begin, end)),
                Some(_) | None => {}
            }
        }
        times
    }
}

/// Of some nodes of a cluster, by their place among all of them.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    all: Vec<Option<Timeline>>,
    known: Vec<usize>,
}

impl Timelines {
    #[inline]
    pub(super) fn get(&self, idx: usize) -> Option<&Timeline> {
        self.all.get(idx)?.as_ref()
    }

    /// Nodes that have one, in no order.
    pub(super) fn known(&self) -> &[usize] {
        &self.known
    }

    /// The one of this node, of `n_nodes`.
    pub(super) fn get_or_draw(&mut self, idx: usize, n_nodes: usize, draw: impl FnOnce() -> Timeline) -> &mut Timeline {
        self.all.resize_with(n_nodes.max(self.all.len()), || None);
        self.all[idx].get_or_insert_with(|| {
            self.known.push(idx);
            draw()
        })
    }
}

/// Times at which somebody may start on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub first: Time,
    /// At every time until then he may.
    pub last: Time,
}

impl Hole {
    /// Where nobody ever may.
    pub(super) const NONE: Hole = Hole::for_good(Time::NEVER);

    pub(super) const fn for_good(first: Time) -> Hole {
        Hole { first, last: Time::NEVER }
    }
}

/// Where a request for pieces of several nodes fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub at: Time,
    /// How many nodes had room at the time from which it was searched.
    pub n_now: usize,
    /// Which nodes have room at the start; at least as many as are wanted.
    pub lines: Vec<usize>,
}

/// The earliest time at which so many of `n_lines` nodes have room at once, and which they are (RESOURCES: the same nodes
/// must have room throughout, so that a count over all of them is not enough). `next_hole` tells the first times at which
/// a node has room, none of them before a time.
pub fn first_start(
    n_lines: usize,
    n_wanted: usize,
    from: Time,
    next_hole: impl Fn(usize, Time) -> Option<Hole>,
) -> Option<Start> {
    let mut holes: Vec<Hole> = (0..n_lines).map(|line| next_hole(line, from).unwrap_or(Hole::NONE)).collect();
    let n_now = holes.iter().filter(|hole| hole.first <= from).count();
    let Some(last_idx) = n_wanted.checked_sub(1) else { return Some(Start { at: from, n_now, lines: Vec::new() }) };
    let mut ordered: Vec<Time> = Vec::with_capacity(n_lines);
    loop {
        ordered.clear();
        ordered.extend(holes.iter().map(|hole| hole.first));
        if last_idx >= ordered.len() {
            return None;
        }
        // No earlier, for none of them has room before its time.
        let start = *ordered.select_nth_unstable(last_idx).1;
        if start == Time::NEVER {
            return None;
        }
        let mut has_moved = false;
        for (line, hole) in holes.iter_mut().enumerate().filter(|(_, hole)| hole.last < start) {
            *hole = next_hole(line, start).unwrap_or(Hole::NONE);
            has_moved |= hole.first > start;
        }
        if !has_moved {
            let lines = holes.iter().enumerate().filter(|(_, hole)| hole.first <= start).map(|(line, _)| line);
            return Some(Start { at: start, n_now, lines: lines.collect() });
        }
    }
}
