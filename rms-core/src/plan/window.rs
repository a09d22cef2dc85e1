//! Finds where neighbouring nodes are free together, on clusters that are allocated by whole nodes: a window is a
//! number of nodes that follow one another. Named nodes are searched in the same way.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use rms_model::job::Constraint;
use rms_model::{ClusterId, JobSpec, NodeId, Policy, Profile, Request, Span, Time};

use super::grids::WantedBy;
use super::ledger::{self, Ledger, Subset};
use super::pass::Pass;
use super::taken::{Found, Taken};
use super::{Blocked, Shortage};
use crate::state::job::Promise;
use crate::state::node::Node;
use crate::state::{chooses_nodes, constraint_of, longest_run};

/// Where nodes are searched, on clusters that are allocated by whole nodes.
pub(super) enum Among {
    /// Any of these; `None`: any usable ones.
    Any(Option<Subset>),
    Chosen(Chosen),
}

/// Nodes that meet a constraint and are chosen when the job is planned, and those found last.
pub(super) struct Chosen {
    constraint: Constraint,
    /// They must follow one another.
    are_contiguous: bool,
    /// The time at which the job has such nodes already.
    latest: Option<Time>,
    found: BTreeMap<ClusterId, BTreeSet<NodeId>>,
}

/// Nodes promised to a job by their number alone.
struct Counted<'p> {
    taken: &'p Taken,
    from: Time,
    until: Time,
    /// The most nodes that all such jobs have during its time.
    needed: i64,
    /// The nodes that it can use and that no other has during its time, once that was asked.
    free: OnceCell<BTreeSet<NodeId>>,
}

impl Among {
    /// Creates the search of a job whose nodes are chosen, whether or not it wants certain ones.
    pub(super) fn chosen(spec: &JobSpec, request: &Request, latest: Option<Time>) -> Among {
        let constraint = constraint_of(spec, request);
        Among::Chosen(Chosen { constraint, are_contiguous: spec.resources.contiguous, latest, found: BTreeMap::new() })
    }

    pub(super) fn into_subset(self) -> Option<Subset> {
        match self {
            Among::Any(subset) => subset,
            Among::Chosen(Chosen { found, .. }) if found.is_empty() => None,
            Among::Chosen(Chosen { found, .. }) => Some(Subset::Window(found.into_values().flatten().collect())),
        }
    }
}

impl Chosen {
    fn may_include(&self, node: &Node) -> bool {
        node.is_usable() && node.meets(&self.constraint)
    }
}

/// When nodes are certainly held, as spans from begin to end.
type Holds = BTreeMap<NodeId, Vec<(Time, Time)>>;

/// How exactly it is known when a window is free; it is not free before the known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// Each of its nodes was checked alone.
    ByNode,
    /// Its nodes were checked together, beside jobs with named nodes.
    Together,
    /// Its nodes were checked beside all other jobs.
    Exactly,
}

impl Pass<'_> {
    /// Returns where nodes for a size of a job are searched; its ledgers are open.
    pub(super) fn among(&self, spec: &JobSpec, request: &Request, latest: Option<Time>) -> Among {
        match chooses_nodes(spec) {
            true => Among::chosen(spec, request, latest),
            false => Among::Any(self.stands_for.get(&constraint_of(spec, request)).cloned().flatten()),
        }
    }

    /// Returns whether a start that a count of nodes allows may be one that no nodes keep, because others with chosen
    /// nodes begin later: enough nodes may be free at each time, and none of them for long enough. A job that begins
    /// after them all takes nodes that are free then, and keeps them. With many such jobs the count has to do, because
    /// each costs a ledger.
    pub(super) fn is_uncertain(&self, request: &Request, start: Time) -> bool {
        let n_chosen = self.special.keys().filter(|subset| subset.window().is_some()).count();
        let is_later = |taken: &Taken| {
            let has_chosen = taken.subset.as_ref().is_some_and(|subset| subset.window().is_some());
            has_chosen
                && taken.at > start
                && taken.request.nodes.keys().any(|cluster| request.nodes.contains_key(cluster))
        };
        let keeps_promises = self.state.settings().policy == Policy::Conservative;
        keeps_promises && (1..=MAX_CHOSEN).contains(&n_chosen) && self.placed.iter().any(is_later)
    }

    /// Finds the first time from `from` on at which nodes of each cluster that a job can choose are free for a request.
    pub(super) fn first_chosen(
        &mut self,
        chosen: &mut Chosen,
        request: &Request,
        from: Time,
    ) -> Result<(Time, Option<Blocked>), Shortage> {
        let (mut start, mut blocked) = (from, None);
        loop {
            let before = start;
            for (cluster, wanted) in request.nodes.iter().filter(|(_, wanted)| **wanted > 0) {
                let request = Request::on_one(*cluster, *wanted, request.wall);
                let (at, by, nodes) = match chosen.are_contiguous {
                    true => self.first_window(chosen, (*cluster, *wanted), &request, start)?,
                    false => self.first_set(chosen, (*cluster, *wanted), &request, start)?,
                };
                chosen.found.insert(*cluster, nodes);
                if at > start {
                    (start, blocked) = (at, by);
                }
            }
            if start == before || request.nodes.len() == 1 {
                return Ok((start, blocked));
            }
        }
    }

    /// Finds the window of a cluster that is free first. Among equals it is the first one in the order of nodes; among
    /// those that are free at `from`, one in the shortest run of free nodes, so that long runs stay whole.
    fn first_window(
        &mut self,
        chosen: &Chosen,
        (cluster, wanted): (ClusterId, u32),
        request: &Request,
        from: Time,
    ) -> Result<(Time, Option<Blocked>, BTreeSet<NodeId>), Shortage> {
        let in_order = self.state.neighbours(cluster);
        let state = self.state;
        let is_eligible = |node: NodeId| chosen.may_include(&state.nodes()[&node]);
        let usable = longest_run(in_order, is_eligible);
        let shortage = Shortage { cluster, wanted, usable };
        if usable < wanted {
            return Err(shortage);
        }
        // Before that time, fewer nodes are free.
        let (from_all, by_all) = ledger::first_hole(&mut [&mut self.all], request, from).map_err(|_| shortage)?;
        let holds = self.holds_of(cluster);
        let counted = self.counted_on(cluster);
        // Its present nodes are as good as any later ones.
        let is_late = |at: Time| chosen.latest.is_some_and(|latest| at >= latest);
        let not_later = |until: Time| chosen.latest.map_or(until, |latest| until.min(latest));
        let busy = |node: &NodeId| holds.get(node).map_or(&[][..], Vec::as_slice);
        let first_gap = |node: &NodeId| match is_eligible(*node) {
            true => first_gap(std::iter::once(busy(node)), request.wall, from_all),
            false => Time::NEVER,
        };
        let gaps: Vec<Time> = in_order.iter().map(first_gap).collect();
        let runs = runs(&gaps, |gap| *gap == from);
        let rank = |at: Time, first: usize| if at == from { runs[first] } else { 0 };
        let bounds = latest_in_windows(&gaps, wanted as usize).enumerate();
        let bounds = bounds.filter(|(_, at)| *at < Time::NEVER);
        let mut open: BinaryHeap<_> =
            bounds.map(|(first, at)| Reverse((at, rank(at, first), first, Known::ByNode))).collect();
        while let Some(Reverse((at, _, first, known))) = open.pop() {
            let nodes = &in_order[first..first + wanted as usize];
            let (at, known) = match known {
                Known::ByNode => (self::first_gap(nodes.iter().map(busy), request.wall, at), Known::Together),
                Known::Together => match self.window_hole(nodes, request, at) {
                    Some((at, _)) => {
                        let others = if is_late(at) { &[][..] } else { &counted };
                        match self.lacks_nodes(others, &holds, nodes, (at, at + request.wall)) {
                            Some(until) => (not_later(until), Known::Together),
                            None => (at, Known::Exactly),
                        }
                    }
                    None => continue,
                },
                Known::Exactly => {
                    let blocked = self.window_hole(nodes, request, from).and_then(|(_, blocked)| blocked);
                    return Ok((at, blocked.or(by_all), nodes.iter().copied().collect()));
                }
            };
            open.push(Reverse((at, rank(at, first), first, known)));
        }
        Err(shortage)
    }

    /// Finds the first time from `from` on at which enough nodes that meet the constraint are free, and the first ones of
    /// these in the order of nodes, as far as that takes nothing from jobs that were planned before.
    fn first_set(
        &mut self,
        chosen: &Chosen,
        (cluster, wanted): (ClusterId, u32),
        request: &Request,
        from: Time,
    ) -> Result<(Time, Option<Blocked>, BTreeSet<NodeId>), Shortage> {
        let in_order = self.state.neighbours(cluster);
        let eligible: Vec<NodeId> =
            in_order.iter().copied().filter(|node| chosen.may_include(&self.state.nodes()[node])).collect();
        let shortage = Shortage { cluster, wanted, usable: eligible.len() as u32 };
        if shortage.usable < wanted {
            return Err(shortage);
        }
        // Before that time, fewer nodes are free.
        let (mut start, by_all) = ledger::first_hole(&mut [&mut self.all], request, from).map_err(|_| shortage)?;
        let holds = self.holds_of(cluster);
        let counted = self.counted_on(cluster);
        // Its present nodes are as good as any later ones.
        let is_late = |at: Time| chosen.latest.is_some_and(|latest| at >= latest);
        let not_later = |until: Time| chosen.latest.map_or(until, |latest| until.min(latest));
        let busy = |node: &NodeId| holds.get(node).map_or(&[][..], Vec::as_slice);
        while start < Time::NEVER {
            let gap = |node: &NodeId| (first_gap(std::iter::once(busy(node)), request.wall, start), *node);
            let gaps: Vec<(Time, NodeId)> = eligible.iter().map(gap).collect();
            let free = gaps.iter().filter(|(gap, _)| *gap == start).map(|(_, node)| *node);
            let free: Vec<NodeId> = free.collect();
            let mut next = gaps.iter().map(|(gap, _)| *gap).filter(|gap| *gap > start).min().unwrap_or(Time::NEVER);
            // Beside jobs that were promised a number of nodes, some of these may have to be left.
            for nodes in free.windows(wanted as usize).take(MAX_SETS) {
                let others = if is_late(start) { &[][..] } else { &counted };
                let at = match self.lacks_nodes(others, &holds, nodes, (start, start + request.wall)) {
                    Some(until) => Some(not_later(until)),
                    None => self.window_hole(nodes, request, start).map(|(at, _)| at),
                };
                if at == Some(start) {
                    let blocked = self.window_hole(nodes, request, from).and_then(|(_, blocked)| blocked);
                    return Ok((start, blocked.or(by_all), nodes.iter().copied().collect()));
                }
                next = at.map_or(next, |at| next.min(at.max(start + Span::from_millis(1))));
            }
            start = next;
        }
        Err(shortage)
    }

    /// Finds the first time from `from` on at which all of a window is free, in each ledger that has nodes of it.
    fn window_hole(&self, nodes: &[NodeId], request: &Request, from: Time) -> Option<(Time, Option<Blocked>)> {
        let window: BTreeSet<NodeId> = nodes.iter().copied().collect();
        let subset = Subset::Window(window);
        let fresh;
        let own = match (self.special.get(&subset), &subset) {
            (Some(known), _) => known,
            (None, Subset::Window(window)) => {
                fresh = self.drawn(window.clone());
                &fresh
            }
            (None, Subset::Meets(_)) => return None,
        };
        let n_inside = |ledger: &Ledger<'_>| nodes.iter().filter(|node| ledger.contains(**node)).count() as u32;
        let others = self.special.values().map(|ledger| (ledger, n_inside(ledger))).filter(|(_, wanted)| *wanted > 0);
        let n_nodes = nodes.len() as u32;
        let ledgers: Vec<(&Ledger<'_>, u32)> =
            [(own, n_nodes), (&self.all, n_nodes)].into_iter().chain(others).collect();
        let cluster = *request.nodes.keys().next()?;
        let (mut start, mut blocked) = (from, None);
        loop {
            let before = start;
            for (ledger, wanted) in &ledgers {
                let hole = ledger.hole_from(cluster, *wanted, request.wall, start)?;
                if hole.start > start {
                    start = hole.start;
                    blocked = ledger.blocked(cluster, *wanted, hole);
                }
            }
            if start == before {
                return Some((start, blocked));
            }
        }
    }

    /// Lists the windows that consist of these nodes, at least one, and `n_more` others, as the others of each. On
    /// clusters that are allocated by whole nodes, only free nodes are considered.
    pub(super) fn windows_around<'w>(
        &'w self,
        cluster: ClusterId,
        nodes: &'w BTreeSet<NodeId>,
        n_more: u32,
    ) -> impl Iterator<Item = Vec<NodeId>> + 'w {
        let n_nodes = nodes.len() + n_more as usize;
        let places = || nodes.iter().filter_map(|node| self.state.position(*node));
        let (first, last) = (places().min().unwrap_or(0), places().max().unwrap_or(0));
        // A window with all of them begins at the first of them or before it, and ends at the last or after it.
        let around = (last + 1).saturating_sub(n_nodes)..(first + n_nodes).min(self.state.neighbours(cluster).len());
        let windows = self.state.neighbours(cluster).get(around).unwrap_or_default().windows(n_nodes);
        windows.filter_map(move |window| {
            let more: Vec<NodeId> = window.iter().copied().filter(|node| !nodes.contains(node)).collect();
            let is_shared = self.state.is_shared(cluster);
            let are_free = || is_shared || more.iter().all(|node| self.state.nodes()[node].is_free());
            (more.len() == n_more as usize && are_free()).then_some(more)
        })
    }

    /// Finds a start now for the only size of a job, on free nodes that make a window with these.
    pub(super) fn find_beside(&self, spec: &JobSpec, nodes: &BTreeSet<NodeId>) -> Option<Found> {
        let request = spec.options.first()?.clone();
        let (cluster, n_more) = request.nodes.iter().next()?;
        let constraint = constraint_of(spec, &request);
        let is_right = |node: &NodeId| self.state.nodes()[node].meets(&constraint);
        let starts_now = |more: &Vec<NodeId>| {
            let hole = self.window_hole(more, &request, self.now);
            more.iter().all(is_right) && hole.is_some_and(|(start, _)| start == self.now)
        };
        let more = self.windows_around(*cluster, nodes, *n_more).find(starts_now)?;
        Some(Found {
            request,
            option_idx: 0,
            subset: Some(Subset::Window(more.into_iter().collect())),
            start: self.now,
            blocked: None,
            fit: None,
            wanted: WantedBy::new(),
            row: Vec::new(),
            licences: spec.resources.licences.clone(),
        })
    }

    /// Returns the ledger that the promised nodes come from; `None` if nodes that the job has to choose are no longer
    /// possible.
    pub(super) fn promised_subset(
        &mut self,
        spec: &JobSpec,
        request: &Request,
        promise: &Promise,
    ) -> Option<Option<Subset>> {
        let chosen = match chooses_nodes(spec) {
            true => return self.promised_window(spec, request, promise),
            false if spec.evolving.is_some() || promise.nodes.is_empty() => None,
            // They were chosen beside nodes that others had to choose. If they are gone, any will do.
            false => self.promised_window(spec, request, promise),
        };
        let any = || self.stands_for.get(&constraint_of(spec, request)).cloned().flatten();
        Some(chosen.unwrap_or_else(any))
    }

    /// Returns the promised nodes of a job that chooses them, if they are still possible; `Some(None)` if nothing was promised on such clusters.
    fn promised_window(&mut self, spec: &JobSpec, request: &Request, promise: &Promise) -> Option<Option<Subset>> {
        let others = self.grids.others(request);
        if others.nodes.is_empty() {
            return Some(None);
        }
        let constraint = constraint_of(spec, request);
        let is_right = |entry: &Node| entry.is_usable() && entry.meets(&constraint);
        let mut window = BTreeSet::new();
        for (cluster, wanted) in &others.nodes {
            let is_here = |node: &&NodeId| self.state.nodes().get(node).is_some_and(|entry| entry.cluster == *cluster);
            let here: BTreeSet<NodeId> = promise.nodes.iter().filter(is_here).copied().collect();
            let are_right = here.iter().all(|node| is_right(&self.state.nodes()[node]));
            let are_in_place = !spec.resources.contiguous || is_run(self.state.neighbours(*cluster), &here);
            if here.len() != *wanted as usize || !are_right || !are_in_place {
                return None;
            }
            window.extend(here);
        }
        let subset = Subset::Window(window);
        self.open_window(Some(&subset));
        Some(Some(subset))
    }

    /// Returns the jobs with promises of nodes of a cluster by number, under the policy that keeps promises.
    fn counted_on(&self, cluster: ClusterId) -> Vec<Counted<'_>> {
        let keeps_promises = self.state.settings().policy == Policy::Conservative;
        let placed = self.placed.iter().filter(|taken| keeps_promises && taken.nodes().is_none());
        let is_counted = |taken: &&Taken| {
            let is_named = taken.named().any(|node| self.state.nodes()[&node].cluster == cluster);
            !is_named && taken.request.nodes.contains_key(&cluster)
        };
        let counted: Vec<&Taken> = placed.filter(is_counted).collect();
        let all = Profile::from_blocks(counted.iter().flat_map(|taken| taken.blocks_on(cluster)));
        let counted = counted.into_iter().map(|taken| {
            let (from, until) = (taken.at, taken.at + taken.wall());
            Counted { taken, from, until, needed: all.max(from, until), free: OnceCell::new() }
        });
        counted.collect()
    }

    /// Returns until when the first of these jobs may lack nodes if the window is taken. Whichever nodes the jobs take
    /// when their times come, enough must be left that are free for the whole time of each.
    fn lacks_nodes(
        &self,
        counted: &[Counted<'_>],
        holds: &Holds,
        window: &[NodeId],
        (from, until): (Time, Time),
    ) -> Option<Time> {
        let overlaps = |begin: Time, end: Time, other: &Counted<'_>| begin < other.until && other.from < end;
        let find_free = |one: &Counted<'_>| {
            let ledger = one.taken.subset.as_ref().and_then(|subset| self.special.get(subset)).unwrap_or(&self.all);
            let cluster = self.state.nodes()[&window[0]].cluster;
            let is_free = |node: &&NodeId| {
                let held = holds.get(node).into_iter().flatten();
                self.state.nodes()[*node].is_usable()
                    && ledger.contains(**node)
                    && !held.copied().any(|(begin, end)| overlaps(begin, end, one))
            };
            self.state.neighbours(cluster).iter().filter(is_free).copied().collect()
        };
        let lacks = |one: &&Counted<'_>| {
            let free = one.free.get_or_init(|| find_free(one));
            let n_free = free.len() as i64;
            n_free - (window.len() as i64) < one.needed
                && n_free - (window.iter().filter(|node| free.contains(node)).count() as i64) < one.needed
        };
        counted.iter().filter(|one| overlaps(from, until, one)).filter(lacks).map(|one| one.until).min()
    }

    /// Returns when the nodes of a cluster are held by running jobs, and by jobs that were placed on named nodes.
    fn holds_of(&self, cluster: ClusterId) -> Holds {
        let mut holds = Holds::new();
        for (node, held) in ledger::held_nodes(self.state, self.now).filter(|(node, _)| !self.is_freed(*node)) {
            holds.entry(node).or_default().push(held);
        }
        for node in self.state.neighbours(cluster) {
            let entry = &self.state.nodes()[node];
            if entry.is_usable() && !entry.is_open() {
                // No job starts on a node without an agent.
                holds.entry(*node).or_default().push((self.now, self.now + Span::from_millis(1)));
            }
        }
        for taken in &self.placed {
            let (from, until) = (taken.at, taken.at + taken.wall());
            let window = || taken.subset.as_ref().and_then(Subset::window).into_iter().flatten();
            let is_here = |node: &&NodeId| self.state.nodes()[*node].cluster == cluster;
            match (&taken.stages, taken.nodes()) {
                (None, Some(nodes)) => {
                    nodes.iter().filter(is_here).for_each(|node| holds.entry(*node).or_default().push((from, until)));
                }
                (None, None) => {
                    window().filter(is_here).for_each(|node| holds.entry(*node).or_default().push((from, until)));
                }
                (Some(_), _) => {}
            }
        }
        holds
    }
}

/// The jobs with chosen nodes beside which nodes are chosen for others, too.
const MAX_CHOSEN: usize = 32;
/// The sets of free nodes that are tried for one start.
const MAX_SETS: usize = 4;

/// Finds the first time from `from` on at which no node is held for `wall`.
fn first_gap<'h>(busy: impl Iterator<Item = &'h [(Time, Time)]> + Clone, wall: Span, from: Time) -> Time {
    let mut start = from;
    loop {
        let before = start;
        for (begin, end) in busy.clone().flatten() {
            if *begin < start + wall && start < *end {
                start = *end;
            }
        }
        if start == before {
            return start;
        }
    }
}

/// Returns for each position the length of the run for which `holds` is true around it; 0 if `holds` is false there.
pub(super) fn runs<T>(all: &[T], holds: impl Fn(&T) -> bool) -> Vec<usize> {
    let mut runs = Vec::with_capacity(all.len());
    for run in all.chunk_by(|one, next| holds(one) == holds(next)) {
        let length = if holds(&run[0]) { run.len() } else { 0 };
        runs.extend(std::iter::repeat_n(length, run.len()));
    }
    runs
}

/// Returns for each window of `n_nodes` neighbours the latest of their times, by its first position.
pub(super) fn latest_in_windows(times: &[Time], n_nodes: usize) -> impl Iterator<Item = Time> + '_ {
    // Positions with descending times: a later position with a later time makes those before it irrelevant.
    let mut latest: VecDeque<usize> = VecDeque::new();
    times.iter().enumerate().filter_map(move |(place, time)| {
        while latest.back().is_some_and(|last| times[*last] <= *time) {
            latest.pop_back();
        }
        latest.push_back(place);
        if latest.front().is_some_and(|first| first + n_nodes <= place) {
            latest.pop_front();
        }
        let is_full = place + 1 >= n_nodes;
        is_full.then(|| latest.front().map_or(*time, |first| times[*first]))
    })
}

/// Returns whether no other node lies between these nodes.
pub(super) fn is_run(in_order: &[NodeId], nodes: &BTreeSet<NodeId>) -> bool {
    let first = in_order.iter().position(|node| nodes.contains(node));
    let run = first.and_then(|first| in_order.get(first..first + nodes.len()));
    nodes.is_empty() || run.is_some_and(|run| run.iter().all(|node| nodes.contains(node)))
}

#[cfg(test)]
mod tests {
    use test_kit::Dice;

    use super::*;

    #[test]
    fn the_latest_of_each_window_is_told() {
        let mut dice = Dice::new(11);
        for _ in 0..300 {
            let (n_times, n_nodes) = (dice.number(1, 12) as usize, dice.number(1, 5) as usize);
            let times: Vec<Time> = (0..n_times).map(|_| Time::from_secs(dice.number(0, 4).into())).collect();
            let expected: Vec<Time> =
                times.windows(n_nodes).filter_map(|window| window.iter().max().copied()).collect();
            assert_eq!(latest_in_windows(&times, n_nodes).collect::<Vec<_>>(), expected, "{times:?}, {n_nodes}");
        }
    }

    #[test]
    fn runs_are_as_long_as_they_are() {
        assert_eq!(runs(&[1, 1, 0, 1, 0, 0], |number| *number == 1), [2, 2, 0, 1, 0, 0]);
        let in_order = [3, 1, 4, 2].map(NodeId);
        let is_run = |nodes: &[u32]| is_run(&in_order, &nodes.iter().map(|node| NodeId(*node)).collect());
        assert!(is_run(&[1, 3]) && is_run(&[1, 2, 4]) && is_run(&[2]) && is_run(&[]));
        assert!(!is_run(&[1, 2]) && !is_run(&[3, 4]) && !is_run(&[2, 9]));
    }
}
