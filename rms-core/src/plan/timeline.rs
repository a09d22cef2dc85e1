//! What is free of one node over time, and where a piece of it fits.

use std::collections::BinaryHeap;
use std::iter;

use rms_model::{Inventory, Slice, Span, Time};

use super::Overdue;
use crate::state::{Line, NodeRoom, Piece};

/// Steps, from each of which on something is free until the next one; the last step has no end.
#[derive(Clone, Debug, Eq)]
pub struct Timeline {
    /// When the steps begin. Searches read these much more often than what is free.
    begins: Vec<Time>,
    /// What is free: never the same in two consecutive steps, so timelines are equal if the same is free at each time.
    rooms: Vec<NodeRoom>,
}

/// When the first step began is not compared: it is in the past.
impl PartialEq for Timeline {
    fn eq(&self, other: &Timeline) -> bool {
        self.rooms == other.rooms && self.begins[1..] == other.begins[1..]
    }
}

impl Timeline {
    /// Creates the timeline of a node that no job holds, from that time on.
    pub fn of_free(slice: &Slice, from: Time) -> Timeline {
        Timeline { begins: vec![from], rooms: vec![NodeRoom::of(slice)] }
    }

    /// Creates the timeline of a node with all its holders.
    pub(super) fn of(line: &Line, inventory: &Inventory, now: Time, overdue: Overdue) -> Timeline {
        let mut timeline = Timeline { begins: vec![now], rooms: vec![line.room.clone()] };
        for hold in line.holds() {
            timeline.take(overdue.until(hold.until), Time::NEVER, &hold.piece, -1);
        }
        if let Some(ghost) = line.ghost.filter(|ghost| *ghost > now) {
            timeline.take(now, ghost, &Piece::whole(inventory), 1);
        }
        timeline
    }

    /// Takes a piece from `from` to `until`; with a `sign` of -1 gives it back.
    pub fn take(&mut self, from: Time, until: Time, piece: &Piece, sign: i64) {
        if from >= until {
            return;
        }
        let Some(first) = self.cut(from) else { return };
        let end = self.cut(until).unwrap_or(self.rooms.len());
        self.rooms[first..end].iter_mut().for_each(|room| room.take(piece, sign));
        self.join(end);
        self.join(first);
    }

    /// Removes the step at `idx` if it equals the one before.
    fn join(&mut self, idx: usize) {
        if (1..self.rooms.len()).contains(&idx) && self.rooms[idx - 1] == self.rooms[idx] {
            self.begins.remove(idx);
            self.rooms.remove(idx);
        }
    }

    /// Lists from when until when how much is free, in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = (Time, Time, &NodeRoom)> + '_ {
        self.steps_from(0)
    }

    /// Lists the steps from the one at `idx` on.
    fn steps_from(&self, idx: usize) -> impl Iterator<Item = (Time, Time, &NodeRoom)> + '_ {
        let ends = self.begins[idx + 1..].iter().copied().chain([Time::NEVER]);
        iter::zip(&self.begins[idx..], ends).zip(&self.rooms[idx..]).map(|((begin, end), room)| (*begin, end, room))
    }

    /// Returns a number that is the same for equal timelines, and seldom for others.
    pub(super) fn digest(&self) -> u64 {
        let add = |digest: u64, (begin, room): (&Time, &NodeRoom)| {
            (digest ^ (begin.as_millis() as u64) ^ room.digest()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        iter::zip(iter::once(&Time::EPOCH).chain(&self.begins[1..]), &self.rooms).fold(0, add)
    }

    /// Returns when the first step ends.
    pub(super) fn first_end(&self) -> Time {
        self.begins.get(1).copied().unwrap_or(Time::NEVER)
    }

    /// Forgets the steps that have ended by `now`.
    pub(super) fn forget_before(&mut self, now: Time) {
        let n_past = self.idx_at(now);
        self.begins.drain(..n_past);
        self.rooms.drain(..n_past);
    }

    /// Returns the step that begins at `at`, and inserts one if there is none. Before the first step there is nothing
    /// to cut.
    fn cut(&mut self, at: Time) -> Option<usize> {
        if at == Time::NEVER {
            return None;
        }
        match self.begins.binary_search(&at) {
            Ok(idx) => Some(idx),
            Err(0) => Some(0),
            Err(idx) => {
                self.begins.insert(idx, at);
                self.rooms.insert(idx, self.rooms[idx - 1].clone());
                Some(idx)
            }
        }
    }

    /// Finds the first times from `from` on at which a job may start that wants the piece for `wall`.
    pub fn first_hole(&self, piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        self.first_hole_by(piece, wall, (from, Time::NEVER))
    }

    /// As [`Timeline::first_hole`], but starts after `latest`, which is not before `from`, are not needed.
    pub fn first_hole_by(&self, piece: &Piece, wall: Span, times: (Time, Time)) -> Option<Hole> {
        let first = self.idx_at(times.0);
        let steps = iter::zip(&self.begins[first..], &self.rooms[first..]);
        first_hole_in(steps.map(|(begin, room)| (*begin, room.holds(piece))), wall, times)
    }

    /// As [`Timeline::first_hole`], with room for the piece during `given`, whatever is taken then.
    pub(super) fn first_hole_beside(&self, given: (Time, Time), piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        let steps = self.steps_from(self.idx_at(from)).flat_map(|(begin, end, room)| {
            let begins = [begin, given.0, given.1].into_iter().filter(move |at| begin <= *at && *at < end);
            begins.map(move |at| (at, (given.0 <= at && at < given.1) || room.holds(piece)))
        });
        first_hole_in(steps, wall, (from, Time::NEVER))
    }

    /// Returns whether a job that wants the piece for `wall` may start at `at`.
    pub(super) fn fits_at(&self, piece: &Piece, wall: Span, at: Time) -> bool {
        let until = at + wall;
        let mut steps = self.steps_from(self.idx_at(at)).take_while(|(begin, ..)| *begin <= at || *begin < until);
        steps.all(|(.., room)| room.holds(piece))
    }

    /// Returns the step at that time; before the first step, the first one.
    fn idx_at(&self, at: Time) -> usize {
        self.begins.partition_point(|begin| *begin <= at).saturating_sub(1)
    }

    /// Returns what is free at that time.
    pub(super) fn at(&self, at: Time) -> &NodeRoom {
        &self.rooms[self.idx_at(at)]
    }

    /// Returns what is free at every time from `from` to `until`.
    pub(super) fn least(&self, (from, until): (Time, Time)) -> Slice {
        let steps = self.steps_from(self.idx_at(from)).take_while(|(begin, ..)| *begin < until);
        let mut rooms = steps.map(|(.., room)| room);
        let first = rooms.next().cloned().unwrap_or_default();
        let least = rooms.fold(first, |mut least, room| {
            least.cap(room);
            least
        });
        least.left()
    }

    /// Returns the times between `from` and `until` at which no job has anything of the node.
    pub(super) fn clear(&self, from: Time, until: Time) -> Vec<(Time, Time)> {
        self.times((from, until), NodeRoom::is_clear)
    }

    /// Returns the times from `from` on at which a job has something of the node.
    pub(super) fn busy(&self, from: Time) -> Vec<(Time, Time)> {
        self.times((from, Time::NEVER), |room| !room.is_clear())
    }

    /// Returns the times from `from` on at which there is no room for a piece, and those before `opens`, when nothing
    /// may start.
    pub(super) fn lacking(&self, piece: &Piece, (from, opens): (Time, Time)) -> Vec<(Time, Time)> {
        let mut lacking = self.times((opens, Time::NEVER), |room| !room.holds(piece));
        if opens > from {
            lacking.insert(0, (from, opens));
        }
        lacking
    }

    /// Returns the times at which `holds` is true.
    pub(super) fn times(&self, (from, until): (Time, Time), holds: impl Fn(&NodeRoom) -> bool) -> Vec<(Time, Time)> {
        let mut times: Vec<(Time, Time)> = Vec::new();
        let steps = self.steps_from(self.idx_at(from)).take_while(|(begin, ..)| *begin < until);
        for (begin, end, _) in steps.filter(|(.., room)| holds(room)) {
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

/// Finds the first times from `from` on at which a job may start, given from when on there is room, or none.
fn first_hole_in(
    mut steps: impl Iterator<Item = (Time, bool)>,
    wall: Span,
    (from, latest): (Time, Time),
) -> Option<Hole> {
    loop {
        let (begin, _) = steps.find(|(begin, has_room)| *begin > latest || *has_room)?;
        if begin > latest {
            return Some(Hole::not_before(begin));
        }
        let first = from.max(begin);
        // What comes after that does not matter to a job that starts by `latest`.
        let enough = latest + wall;
        let Some((end, _)) = steps.find(|(begin, has_room)| *begin >= enough || !*has_room) else {
            return Some(Hole::for_good(first));
        };
        if first + wall <= end {
            return Some(Hole { first, last: end - wall });
        }
    }
}

/// Times at which a job may start on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub first: Time,
    /// A job may start at every time from `first` to this one.
    pub last: Time,
}

impl Hole {
    /// A job may never start.
    pub(super) const NONE: Hole = Hole::for_good(Time::NEVER);

    pub(super) const fn for_good(first: Time) -> Hole {
        Hole { first, last: Time::NEVER }
    }

    /// Creates a hole that contains no time: its exact times are unknown, but none is before `first`.
    pub(super) fn not_before(first: Time) -> Hole {
        Hole { first, last: first - Span::from_millis(1) }
    }
}

/// Where a request for pieces of several nodes fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub at: Time,
    /// How many nodes had room at the time from which the search began.
    pub n_now: usize,
    /// The groups whose nodes have room at the start; at least as many nodes as are wanted.
    pub groups: Vec<usize>,
}

/// The soonest of some times, at each of which a number of nodes get room, as far as nodes are wanted.
struct Soonest {
    n_wanted: usize,
    /// Ordered with the last one first.
    times: BinaryHeap<(Time, usize)>,
    n_nodes: usize,
    /// Times from this one on do not matter.
    limit: Time,
    /// The time by which as many nodes as are wanted have room, or the limit.
    last: Time,
}

impl Soonest {
    fn new(n_wanted: usize, limit: Time) -> Soonest {
        Soonest { n_wanted: n_wanted.max(1), times: BinaryHeap::new(), n_nodes: 0, limit, last: limit }
    }

    fn add(&mut self, at: Time, n_nodes: usize) {
        if at >= self.last {
            return;
        }
        self.times.push((at, n_nodes));
        self.n_nodes += n_nodes;
        while let Some((last, n_last)) = self.times.peek() {
            if self.n_nodes - n_last < self.n_wanted {
                if self.n_nodes >= self.n_wanted {
                    self.last = *last;
                }
                break;
            }
            self.n_nodes -= n_last;
            self.times.pop();
        }
    }

    fn clear(&mut self) {
        self.times.clear();
        self.n_nodes = 0;
        self.last = self.limit;
    }
}

/// Nodes that are alike, in a search for a start.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// What the caller knows the group by.
    pub group: usize,
    pub n_nodes: usize,
    /// None of them has room before that time.
    pub not_before: Time,
}

/// Finds the earliest time from `from` on, and by `until`, at which that many nodes have room at once, and which nodes they are (RESOURCES: the same
/// nodes must have room throughout, so that a count over all of them is not enough). Of nodes that are alike only the
/// number matters; the groups are in the order of `not_before`. `next_hole` returns the first times at which the nodes
/// of a group have room, none of them before a time; if they are all after another time, it need not be exact.
pub fn first_start(
    groups: impl Iterator<Item = Alike>,
    n_wanted: usize,
    (from, until): (Time, Time),
    next_hole: impl Fn(usize, (Time, Time)) -> Option<Hole>,
) -> Option<Start> {
    let mut groups = groups.peekable();
    let mut searched: Vec<(Alike, Hole)> = Vec::new();
    let limit = until + Span::from_millis(1);
    let mut soonest = Soonest::new(n_wanted, limit);
    let mut start = from;
    let mut n_now = None;
    loop {
        soonest.clear();
        // A group that gets room later than enough others does not matter yet, nor do those after it.
        for (alike, hole) in &mut searched {
            if hole.last < start {
                *hole = next_hole(alike.group, (start, soonest.last)).unwrap_or(Hole::NONE);
            }
            soonest.add(hole.first, alike.n_nodes);
        }
        let matters = |not_before: Time, last: Time| not_before <= start || not_before < last;
        while let Some(alike) = groups.next_if(|alike| matters(alike.not_before, soonest.last)) {
            let hole = next_hole(alike.group, (start, soonest.last)).unwrap_or(Hole::NONE);
            soonest.add(hole.first, alike.n_nodes);
            searched.push((alike, hole));
        }
        let with_room = searched.iter().filter(|(_, hole)| hole.first <= start);
        let n_now = *n_now.get_or_insert_with(|| with_room.clone().map(|(alike, _)| alike.n_nodes).sum());
        // No earlier start exists, because none of the groups has room before its time.
        let next = if n_wanted == 0 { start } else { soonest.last };
        if next >= limit {
            return None;
        }
        if next == start {
            return Some(Start { at: start, n_now, groups: with_room.map(|(alike, _)| alike.group).collect() });
        }
        start = next;
    }
}

/// Returns the times that are in one of two lists, each of which is in order.
pub(super) fn united(one: &[(Time, Time)], other: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    let mut united: Vec<(Time, Time)> = Vec::new();
    for (from, until) in all {
        match united.last_mut() {
            Some((_, last)) if from <= *last => *last = until.max(*last),
            Some(_) | None => united.push((from, until)),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use rms_model::Mebibytes;
    use test_kit::{Dice, for_seeds};

    use super::*;

    const CORES: u32 = 4;
    /// From then on everything is free.
    const LAST: usize = 60;

    /// A node, and how many cores are free in each second.
    struct Node {
        timeline: Timeline,
        free: Vec<u32>,
    }

    fn secs(secs: usize) -> Time {
        Time::from_secs(secs as i64)
    }

    fn piece(cores: u32) -> Piece {
        Piece { slice: Slice { cores, memory: Mebibytes(0), ..Slice::default() }, is_whole: false }
    }

    fn node(dice: &mut Dice) -> Node {
        let all = Slice { cores: CORES, ..Slice::default() };
        let mut node = Node { timeline: Timeline::of_free(&all, secs(0)), free: vec![CORES; 2 * LAST] };
        let mut taken = Vec::new();
        for _ in 0..dice.number(0, 12) {
            let from = dice.below(LAST as u64 - 1) as usize;
            let until = from + dice.below((LAST - from) as u64) as usize;
            let most = node.free[from..until].iter().copied().min().unwrap_or(0);
            let cores = dice.number(0, most);
            node.timeline.take(secs(from), secs(until), &piece(cores), 1);
            node.free[from..until].iter_mut().for_each(|free| *free -= cores);
            taken.push((from, until, cores));
        }
        taken.truncate(dice.number(0, 3) as usize);
        for (from, until, cores) in taken {
            node.timeline.take(secs(from), secs(until), &piece(cores), -1);
            node.free[from..until].iter_mut().for_each(|free| *free += cores);
        }
        node
    }

    impl Node {
        fn may_start(&self, cores: u32, wall: usize, at: usize) -> bool {
            self.free[at..at + wall].iter().all(|free| *free >= cores)
        }

        fn first_start(&self, cores: u32, wall: usize, from: usize) -> Time {
            secs((from..=LAST).find(|at| self.may_start(cores, wall, *at)).expect("all leave"))
        }
    }

    #[test]
    fn a_hole_is_where_somebody_may_start() {
        for_seeds("a_hole_is_where_somebody_may_start", 500, |dice| {
            let node = node(dice);
            let Timeline { begins, rooms } = &node.timeline;
            assert!(begins.is_sorted_by(|one, next| one < next), "{:?}", node.timeline);
            assert!(rooms.is_sorted_by(|one, next| one != next), "{:?}", node.timeline);
            let (cores, wall, from) = (dice.number(1, CORES), dice.number(1, 15) as usize, dice.below(45) as usize);
            let (piece, wall_span) = (piece(cores), Span::from_secs(wall as i64));
            let first = node.first_start(cores, wall, from);
            let hole = node.timeline.first_hole(&piece, wall_span, secs(from)).expect("all leave");
            assert_eq!(hole.first, first, "{:?}", node.timeline);
            let latest = from + dice.below(20) as usize;
            let by = node.timeline.first_hole_by(&piece, wall_span, (secs(from), secs(latest))).expect("all leave");
            if first <= secs(latest) {
                assert_eq!(by.first, first, "{:?}", node.timeline);
                for at in (from..LAST).filter(|at| by.first <= secs(*at) && secs(*at) <= by.last) {
                    assert!(node.may_start(cores, wall, at), "at {at} of {by:?}: {:?}", node.timeline);
                }
            } else {
                assert!(secs(latest) < by.first && by.first <= first && by.last < by.first, "{by:?}: {first:?}");
            }
            let given = (from + dice.below(10) as usize, from + dice.below(20) as usize);
            let mut other = node;
            other.free.iter_mut().enumerate().for_each(|(at, free)| {
                *free = if (given.0..given.1).contains(&at) { CORES } else { *free };
            });
            let times = (secs(given.0), secs(given.1));
            let beside = other.timeline.first_hole_beside(times, &piece, wall_span, secs(from)).expect("all leave");
            assert_eq!(beside.first, other.first_start(cores, wall, from), "beside {given:?}: {:?}", other.timeline);
        });
    }

    #[test]
    fn the_first_start_is_the_first_time_at_which_nodes_enough_have_room() {
        for_seeds("the_first_start_is_the_first_time_at_which_nodes_enough_have_room", 500, |dice| {
            let (cores, wall, from) = (dice.number(1, CORES), dice.number(1, 15) as usize, dice.below(45) as usize);
            let nodes: Vec<Node> = (0..dice.number(1, 6)).map(|_| node(dice)).collect();
            let mut groups: Vec<Alike> = Vec::new();
            for (group, node) in nodes.iter().enumerate() {
                let first = node.first_start(cores, wall, from).since(secs(from)).as_millis() as u64;
                let not_before = secs(from) + Span::from_millis(dice.below(first + 1) as i64);
                groups.push(Alike { group, n_nodes: dice.number(1, 4) as usize, not_before });
            }
            groups.sort_by_key(|alike| alike.not_before);
            let n_nodes: usize = groups.iter().map(|alike| alike.n_nodes).sum();
            let n_wanted = 1 + dice.below(n_nodes as u64 + 1) as usize;
            let wall_span = Span::from_secs(wall as i64);
            let next_hole = |group: usize, times| nodes[group].timeline.first_hole_by(&piece(cores), wall_span, times);
            let find = |until: Time| first_start(groups.iter().copied(), n_wanted, (secs(from), until), next_hole);
            let fitting = |at: usize| -> Vec<&Alike> {
                groups.iter().filter(|alike| nodes[alike.group].may_start(cores, wall, at)).collect()
            };
            let n_fitting = |at: usize| fitting(at).into_iter().map(|alike| alike.n_nodes).sum::<usize>();
            let at = (from..=LAST).find(|at| n_fitting(*at) >= n_wanted);
            let expected = at.map(|at| Start {
                at: secs(at),
                n_now: n_fitting(from),
                groups: fitting(at).into_iter().map(|alike| alike.group).collect(),
            });
            let until = secs(from + dice.below(LAST as u64) as usize);
            assert_eq!(find(until), expected.clone().filter(|start| start.at <= until), "until {until:?}");
            assert_eq!(find(Time::NEVER), expected);
        });
    }
}
