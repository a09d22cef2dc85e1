//! What is free over time on the nodes of one cluster. Nodes with the same free resources share one timeline, so that a
//! search reads each timeline once, for any number of nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter;

use rms_model::{NodeId, Span, Time};

use super::outline::{N_STRETCHES, Outline, Outlines, Scale, Stretches};
use super::timeline::{Alike, Timeline};
use crate::state::{Line, Piece};

/// Nodes that are alike: the same is free on all of them at each time.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) timeline: Timeline,
    pub(super) n_nodes: u32,
    pub(super) kind: usize,
    pub(super) is_usable: bool,
    pub(super) is_open: bool,
    digest: u64,
    /// The state describes nodes of this group: more nodes may join it.
    is_drawn: bool,
    is_vacant: bool,
}

impl Group {
    fn new(timeline: Timeline, line: &Line) -> Group {
        let &Line { kind, is_usable, is_open, .. } = line;
        let mut group =
            Group { timeline, n_nodes: 0, kind, is_usable, is_open, digest: 0, is_drawn: false, is_vacant: false };
        group.settle();
        group
    }

    fn is_like(&self, other: &Group) -> bool {
        let are_one = |one: &Group, other: &Group| {
            one.kind == other.kind && one.is_usable == other.is_usable && one.is_open == other.is_open
        };
        self.digest == other.digest && are_one(self, other) && self.timeline == other.timeline
    }

    /// Updates the digest after a change.
    fn settle(&mut self) {
        let look = (self.kind as u64) << 2 | u64::from(self.is_usable) << 1 | u64::from(self.is_open);
        self.digest = self.timeline.digest().wrapping_add(look);
    }
}

/// Groups of nodes by the first stretch in which a job may start on them: those of one stretch are a list.
pub(super) struct ByStretch {
    /// The last group of each list.
    last: [Option<u32>; N_STRETCHES],
    /// By group, the one before it in its list.
    before: Vec<Option<u32>>,
}

/// What is noted while it is found out whether jobs may start on freed nodes; kept only to save the space for the next
/// job.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    /// The nodes that the job itself has, by index.
    pub(super) is_own: Vec<bool>,
    /// By group and whether the job itself has the node: the number of the last freed entry that was checked on such a
    /// node without finding room in time.
    pub(super) seen: Vec<[u64; 2]>,
    pub(super) number: u64,
}

/// The timelines of the nodes of a cluster, by the index of the node.
#[derive(Clone, Debug)]
pub(super) struct Timelines {
    pub(super) scale: Scale,
    /// Indices of the groups; nodes that were never searched have none.
    group_of: Vec<Option<u32>>,
    are_all_drawn: bool,
    groups: Vec<Group>,
    /// By group.
    pub(super) outlines: Outlines,
    vacant: Vec<u32>,
    /// Groups that their last node has left, until they are vacated.
    emptied: Vec<u32>,
    by_digest: BTreeMap<u64, u32>,
    /// By the digest of the state of a node: a node in this state, and the group created for it.
    drawn: BTreeMap<u64, (usize, u32)>,
    /// Nodes on which something was planned, in no order.
    planned: Vec<usize>,
    is_planned: Vec<bool>,
    /// By node: the number of places that were taken there, less those that were given back.
    n_taken: Vec<i32>,
    /// The first step of no timeline ends before that.
    first_end: Time,
}

impl Timelines {
    /// Creates them for searches that do not go back before `now`.
    pub(super) fn new(now: Time, most_cores: u32) -> Timelines {
        Timelines {
            scale: Scale::new(now, most_cores),
            group_of: Vec::new(),
            are_all_drawn: false,
            groups: Vec::new(),
            outlines: Outlines::default(),
            vacant: Vec::new(),
            emptied: Vec::new(),
            by_digest: BTreeMap::new(),
            drawn: BTreeMap::new(),
            planned: Vec::new(),
            is_planned: Vec::new(),
            n_taken: Vec::new(),
            first_end: Time::NEVER,
        }
    }

    #[inline]
    pub(super) fn get(&self, idx: usize) -> Option<&Timeline> {
        self.group_idx(idx).map(|group| &self.groups[group].timeline)
    }

    #[inline]
    pub(super) fn group_idx(&self, idx: usize) -> Option<usize> {
        self.group_of.get(idx).copied().flatten().map(|group| group as usize)
    }

    /// Returns all groups; some may have no nodes any more.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the nodes on which something was planned, in no order.
    pub(super) fn planned(&self) -> &[usize] {
        &self.planned
    }

    #[inline]
    pub(super) fn is_planned(&self, idx: usize) -> bool {
        self.is_planned.get(idx).copied().unwrap_or(false)
    }

    /// Returns the group of a node, and creates it if necessary.
    pub(super) fn draw(&mut self, idx: usize, lines: &[(NodeId, Line)], draw: impl FnOnce(&Line) -> Timeline) -> usize {
        self.group_of.resize(lines.len().max(self.group_of.len()), None);
        if let Some(known) = self.group_of[idx] {
            return known as usize;
        }
        let line = &lines[idx].1;
        let digest = line.digest();
        let known = self.drawn.get(&digest).filter(|(other, _)| lines[*other].1.is_like(line));
        let group = match known {
            Some((_, group)) => *group,
            None => {
                let group = self.insert(Group::new(draw(line), line));
                if let Entry::Vacant(entry) = self.drawn.entry(digest) {
                    entry.insert((idx, group));
                    self.groups[group as usize].is_drawn = true;
                }
                group
            }
        };
        self.group_of[idx] = Some(group);
        self.groups[group as usize].n_nodes += 1;
        group as usize
    }

    /// Puts each node into a group.
    pub(super) fn draw_all(&mut self, lines: &[(NodeId, Line)], draw: impl Fn(&Line) -> Timeline) {
        if !self.are_all_drawn {
            self.are_all_drawn = true;
            (0..lines.len()).for_each(|idx| {
                self.draw(idx, lines, &draw);
            });
            // No node joins a group by its state any more.
            self.drawn.clear();
            for (group_idx, group) in (0..).zip(&mut self.groups) {
                if std::mem::take(&mut group.is_drawn) && group.n_nodes == 0 {
                    self.emptied.push(group_idx);
                }
            }
        }
    }

    pub(super) fn are_all_drawn(&self) -> bool {
        self.are_all_drawn
    }

    /// Prepares for the next pass, which does not look back before `now`, if all nodes are drawn. No start is planned
    /// after `last`.
    pub(super) fn advance(&mut self, now: Time, last: Time) {
        self.planned.clear();
        self.planned.extend((0..self.n_taken.len()).filter(|idx| self.n_taken[*idx] > 0));
        self.is_planned = self.n_taken.iter().map(|n_taken| *n_taken > 0).collect();
        if self.first_end <= now {
            self.forget_before(now);
        }
        if self.scale.is_spent(now) {
            self.scale = Scale::new(now, self.scale.most_cores());
            self.scale.reach(last);
            (0..self.groups.len()).for_each(|group| self.sketch(group));
        }
    }

    /// Forgets what is past, and unites groups that differed in that alone.
    fn forget_before(&mut self, now: Time) {
        self.first_end = Time::NEVER;
        let mut united: BTreeMap<u32, u32> = BTreeMap::new();
        for group_idx in 0..self.groups.len() {
            if self.groups[group_idx].is_vacant {
                continue;
            }
            if self.groups[group_idx].timeline.first_end() <= now {
                self.forget(group_idx);
                self.groups[group_idx].timeline.forget_before(now);
                let known = self.settle(group_idx);
                if known != group_idx {
                    united.insert(group_idx as u32, known as u32);
                }
            }
            self.first_end = self.first_end.min(self.groups[group_idx].timeline.first_end());
        }
        if !united.is_empty() {
            for idx in 0..self.group_of.len() {
                if let Some(known) = self.group_of[idx].and_then(|group| united.get(&group)) {
                    self.put(idx, *known as usize);
                }
            }
            self.vacate();
        }
    }

    /// Puts these nodes, which are like this one, into the group of this timeline.
    pub(super) fn redraw(&mut self, nodes: &[usize], line: &Line, timeline: Timeline) {
        let group = self.insert(Group::new(timeline, line));
        nodes.iter().for_each(|idx| self.put(*idx, group as usize));
        self.vacate();
    }

    /// Returns the groups of usable nodes by the stretch from `from` on in which a job may first start on them that wants,
    /// by the kind of node, one of these pieces for `wall`. All nodes are drawn.
    pub(super) fn by_stretch(&self, pieces: &[Vec<Piece>], wall: Span, from: Time) -> ByStretch {
        let mut starts: Vec<Stretches> = vec![0; self.groups.len()];
        for (kind, pieces) in pieces.iter().enumerate() {
            for piece in pieces {
                let of_piece = self.outlines.starts(piece, wall, from, &self.scale);
                for ((all, own), group) in starts.iter_mut().zip(of_piece).zip(&self.groups) {
                    *all |= if group.kind == kind && group.is_usable { own } else { 0 };
                }
            }
        }
        let mut by_stretch = ByStretch { last: [None; N_STRETCHES], before: vec![None; starts.len()] };
        for (group, (starts, before)) in (0..).zip(iter::zip(starts, &mut by_stretch.before)) {
            if let Some(last) = by_stretch.last.get_mut(starts.trailing_zeros() as usize) {
                *before = last.replace(group);
            }
        }
        by_stretch
    }

    /// Counts these nodes by group.
    pub(super) fn count<'n>(&self, nodes: impl IntoIterator<Item = &'n usize>) -> Vec<usize> {
        let mut counts = vec![0; self.groups.len()];
        nodes.into_iter().filter_map(|idx| self.group_idx(*idx)).for_each(|group| counts[group] += 1);
        counts
    }

    /// Returns these groups in the order of their stretches, without so many nodes of each group.
    pub(super) fn in_order<'w>(
        &'w self,
        by_stretch: &'w ByStretch,
        n_except: &'w [usize],
        from: Time,
    ) -> impl Iterator<Item = Alike> + 'w {
        let in_order = by_stretch.last.iter().enumerate().flat_map(move |(stretch, last)| {
            let not_before = from.max(self.scale.begin(stretch));
            iter::successors(*last, |group| by_stretch.before[*group as usize])
                .map(move |group| (group as usize, not_before))
        });
        in_order.filter_map(move |(group, not_before)| {
            let n_nodes = self.groups[group].n_nodes as usize;
            let n_nodes = n_nodes - n_except[group];
            (n_nodes > 0).then_some(Alike { group, n_nodes, not_before })
        })
    }

    /// Records that a place is taken on this node, which is in a group; or, with a `sign` of -1, given back.
    pub(super) fn plan_on(&mut self, idx: usize, sign: i32) {
        self.is_planned.resize(self.group_of.len(), false);
        self.n_taken.resize(self.group_of.len(), 0);
        self.n_taken[idx] += sign;
        if !self.is_planned[idx] {
            self.is_planned[idx] = true;
            self.planned.push(idx);
        }
    }

    /// Records that the place of a job that does not wait any more is not planned.
    pub(super) fn forget_place(&mut self, idx: usize) {
        self.n_taken[idx] -= 1;
    }

    /// Prepares for a planned start at `at`.
    pub(super) fn reach(&mut self, at: Time) {
        if self.scale.reach(at) {
            (0..self.groups.len()).for_each(|group| self.sketch(group));
        }
    }

    /// Returns the group of the nodes of a group after this change. A group with a single node may be changed itself.
    pub(super) fn edited(&mut self, before: usize, edit: impl FnOnce(&mut Timeline)) -> usize {
        let group = &self.groups[before];
        if group.n_nodes > 1 || group.is_drawn {
            let mut edited = Group { timeline: group.timeline.clone(), n_nodes: 0, is_drawn: false, ..*group };
            edit(&mut edited.timeline);
            edited.settle();
            return self.insert(edited) as usize;
        }
        self.forget(before);
        edit(&mut self.groups[before].timeline);
        self.settle(before)
    }

    /// Updates what is known of a group whose timeline has changed. Returns the group that is like it, which may be
    /// another one.
    fn settle(&mut self, group_idx: usize) -> usize {
        self.groups[group_idx].settle();
        self.sketch(group_idx);
        let group = &self.groups[group_idx];
        let known = *self.by_digest.entry(group.digest).or_insert(group_idx as u32) as usize;
        if self.groups[known].is_like(group) { known } else { group_idx }
    }

    /// Updates the outline of a group.
    fn sketch(&mut self, group: usize) {
        let timeline = &self.groups[group].timeline;
        self.outlines.set(group, &Outline::of(timeline, &self.scale));
        self.first_end = self.first_end.min(timeline.first_end());
    }

    /// Moves the node to this group.
    pub(super) fn put(&mut self, idx: usize, group: usize) {
        if let Some(before) = self.group_of[idx].replace(group as u32) {
            let n_left = &mut self.groups[before as usize].n_nodes;
            *n_left -= 1;
            if *n_left == 0 {
                self.emptied.push(before);
            }
        }
        self.groups[group].n_nodes += 1;
    }

    /// Frees groups without nodes for reuse. Until then they keep their numbers.
    pub(super) fn vacate(&mut self) {
        while let Some(group_idx) = self.emptied.pop() {
            let group = &mut self.groups[group_idx as usize];
            if group.n_nodes == 0 && !group.is_drawn && !group.is_vacant {
                group.is_vacant = true;
                self.forget(group_idx as usize);
                self.vacant.push(group_idx);
            }
        }
    }

    fn forget(&mut self, group_idx: usize) {
        let digest = self.groups[group_idx].digest;
        if self.by_digest.get(&digest) == Some(&(group_idx as u32)) {
            self.by_digest.remove(&digest);
        }
    }

    /// Returns an existing group that is like this one, or else adds this one.
    fn insert(&mut self, group: Group) -> u32 {
        let known = self.by_digest.get(&group.digest).copied();
        if let Some(known) = known.filter(|known| self.groups[*known as usize].is_like(&group)) {
            return known;
        }
        let digest = group.digest;
        let group_idx = match self.vacant.pop() {
            Some(vacant) => {
                self.groups[vacant as usize] = group;
                vacant
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.sketch(group_idx as usize);
        // Of two unlike timelines with the same digest, only the first is found by it.
        self.by_digest.entry(digest).or_insert(group_idx);
        group_idx
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Inventory, Mebibytes, Slice};
    use test_kit::for_seeds;

    use super::*;
    use crate::state::Piece;

    /// Against one timeline for each node.
    #[test]
    fn nodes_are_in_one_group_if_and_only_if_they_are_alike() {
        for_seeds("nodes_are_in_one_group_if_and_only_if_they_are_alike", 200, |dice| {
            let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(40), ..Inventory::default() };
            let n_nodes = dice.number(1, 8);
            let line = |is_open| Line::of_nobody(&inventory, is_open);
            let lines: Vec<(NodeId, Line)> =
                (0..n_nodes).map(|node| (NodeId(node), line(dice.number(0, 4) > 0))).collect();
            let now = Time::from_secs(100);
            let draw = |_: &Line| Timeline::of_free(&Slice::whole(&inventory), now);
            let mut plain: Vec<Timeline> = lines.iter().map(|(_, line)| draw(line)).collect();
            let mut timelines = Timelines::new(now, 4);
            let mut taken: Vec<(Vec<usize>, Piece, (Time, Time))> = Vec::new();
            for _ in 0..60 {
                let gives_back = !taken.is_empty() && dice.number(0, 2) == 0;
                let ((nodes, piece, times), sign) = if gives_back {
                    (taken.swap_remove(dice.below(taken.len() as u64) as usize), -1)
                } else {
                    let nodes: Vec<usize> = (0..n_nodes as usize).filter(|_| dice.number(0, 1) == 0).collect();
                    let slice = Slice { cores: dice.number(1, 2), memory: Mebibytes(10), ..Slice::default() };
                    let from = i64::from(dice.number(90, 110));
                    let until = from + i64::from(dice.number(0, 6));
                    let piece = Piece { slice, is_whole: dice.number(0, 3) == 0 };
                    ((nodes, piece, (Time::from_secs(from), Time::from_secs(until))), 1)
                };
                let mut moved: Vec<(usize, usize)> = Vec::new();
                for idx in &nodes {
                    let before = timelines.draw(*idx, &lines, draw);
                    timelines.plan_on(*idx, sign as i32);
                    let known = moved.iter().find(|(from, _)| *from == before).map(|(_, to)| *to);
                    let take = |timeline: &mut Timeline| timeline.take(times.0, times.1, &piece, sign);
                    let after = known.unwrap_or_else(|| timelines.edited(before, take));
                    moved.push((before, after));
                    timelines.put(*idx, after);
                    take(&mut plain[*idx]);
                }
                timelines.vacate();
                if sign > 0 {
                    taken.push((nodes, piece, times));
                }
                if dice.number(0, 9) == 0 {
                    timelines.draw_all(&lines, draw);
                }
                check(&timelines, &lines, &plain);
            }
        });
    }

    /// Equal digests are not taken for equal nodes.
    #[test]
    fn nodes_with_other_resources_are_not_alike() {
        let line = |cores, memory, is_open| {
            let inventory = Inventory { cores, cpus: cores, memory: Mebibytes(memory), ..Inventory::default() };
            Line::of_nobody(&inventory, is_open)
        };
        let one = line(4, 40, true);
        assert!(one.is_like(&line(4, 40, true)));
        for other in [line(5, 40, true), line(4, 41, true), line(4, 40, false)] {
            assert!(!one.is_like(&other), "{other:?}");
        }
    }

    fn check(timelines: &Timelines, lines: &[(NodeId, Line)], plain: &[Timeline]) {
        for (idx, expected) in plain.iter().enumerate() {
            assert!(timelines.get(idx).is_none_or(|timeline| timeline == expected), "node {idx}");
            let Some(group) = timelines.group_idx(idx) else { continue };
            for other in (0..plain.len()).filter(|other| timelines.group_idx(*other).is_some()) {
                let are_alike = *expected == plain[other] && lines[idx].1.is_open == lines[other].1.is_open;
                assert_eq!(timelines.group_idx(other) == Some(group), are_alike, "nodes {idx} and {other}");
            }
        }
        for (group_idx, group) in timelines.groups().iter().enumerate() {
            let n_nodes = (0..plain.len()).filter(|idx| timelines.group_idx(*idx) == Some(group_idx)).count();
            assert_eq!(group.n_nodes as usize, n_nodes, "group {group_idx}");
        }
    }
}
