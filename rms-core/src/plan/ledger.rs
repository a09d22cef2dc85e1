//! The occupation over time of a set of nodes that an application may use.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rms_api::answer::JobState;
use rms_model::job::Constraint;
use rms_model::profile::{Block, Hole};
use rms_model::{ClusterId, JobId, NodeId, Profile, Request, Span, Time, View};

use super::Blocked;
use super::digest::Digest;
use super::frontier::Frontier;
use super::parts::{Part, WhichNodes, cluster_of, parts};
use crate::state::State;
use crate::state::constraint_of;
use crate::state::job::Job;
use crate::state::node::{Node, NodeGhost};

/// Nodes that have a ledger of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subset {
    /// Nodes that meet the constraint.
    Meets(Constraint),
    /// Nodes all of which one application takes.
    Window(BTreeSet<NodeId>),
}

impl Subset {
    pub(super) fn window(&self) -> Option<&BTreeSet<NodeId>> {
        match self {
            Subset::Window(nodes) => Some(nodes),
            Subset::Meets(_) => None,
        }
    }
}

/// The occupation of the usable nodes that meet a constraint.
#[derive(Clone, Debug)]
pub(super) struct Ledger<'a> {
    /// `None`: every usable node.
    eligible: Option<BTreeSet<NodeId>>,
    /// A cluster that is absent has no nodes.
    pub(super) capacity: Cow<'a, BTreeMap<ClusterId, u32>>,
    /// The view of the state, until something is added.
    pub(super) view: Cow<'a, View>,
    /// The time of the pass.
    now: Time,
    /// The starts that searches from then on have found, for clusters with a long profile that is often searched.
    frontiers: BTreeMap<ClusterId, Frontier>,
    /// How often long profiles were searched.
    n_searches: u32,
    /// Digests of the view, as of the given time; only while launchers watch it.
    digests: Option<(Time, BTreeMap<ClusterId, Digest>)>,
    /// Whether nodes were given back; then earlier search results no longer hold.
    has_shrunk: bool,
}

/// Shorter profiles are searched as fast without a frontier.
const MANY_STEPS: usize = 256;
/// Fewer searches cost less than a frontier, which has an entry for each node of the cluster.
const MANY_SEARCHES: u32 = 32;

impl<'a> Ledger<'a> {
    /// Creates the ledger of all usable nodes, occupied by started jobs and ghosts (001, Fig. 5, step 3).
    pub(super) fn of_all(state: &'a State, now: Time, without: Option<JobId>) -> Ledger<'a> {
        let mut ledger = Ledger::bare(None, Cow::Borrowed(state.usable()), now);
        let is_regular = without.is_none() && state.occupation().is_regular(now);
        ledger.view = match is_regular {
            true => Cow::Borrowed(state.occupation().busy()),
            false => Cow::Owned(ledger.base(state, now, without)),
        };
        ledger
    }

    /// Creates the ledger of these nodes, all of which are usable.
    pub(super) fn of(state: &State, now: Time, eligible: BTreeSet<NodeId>, without: Option<JobId>) -> Ledger<'a> {
        let mut capacity: BTreeMap<ClusterId, u32> = BTreeMap::new();
        for node in &eligible {
            *capacity.entry(state.nodes()[node].cluster).or_default() += 1;
        }
        Ledger::bare(Some(eligible), Cow::Owned(capacity), now).over(state, now, without)
    }

    fn bare(eligible: Option<BTreeSet<NodeId>>, capacity: Cow<'a, BTreeMap<ClusterId, u32>>, now: Time) -> Ledger<'a> {
        let (view, frontiers) = (Cow::Owned(View::new()), BTreeMap::new());
        Ledger { eligible, capacity, view, now, frontiers, n_searches: 0, digests: None, has_shrunk: false }
    }

    fn over(mut self, state: &State, now: Time, without: Option<JobId>) -> Ledger<'a> {
        self.view = Cow::Owned(self.base(state, now, without));
        self
    }

    /// Starts to track for each cluster whether its profile has changed.
    pub(super) fn keep_digests(&mut self, now: Time) {
        let digests = self.view.iter().map(|(cluster, profile)| (*cluster, Digest::of(profile, now)));
        self.digests = Some((now, digests.collect()));
    }

    pub(super) fn keeps_digests(&self) -> bool {
        self.digests.is_some()
    }

    /// Returns a digest of what a cluster's profile says from now on; all are equal while none are kept.
    pub(super) fn digest(&self, cluster: ClusterId) -> Digest {
        let digests = self.digests.as_ref().map(|(_, digests)| digests);
        digests.and_then(|digests| digests.get(&cluster)).copied().unwrap_or_default()
    }

    /// Returns whether the ledger is about exactly these nodes.
    pub(super) fn is_of(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.eligible.as_ref().is_some_and(|eligible| eligible == nodes)
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.eligible.as_ref().is_none_or(|eligible| eligible.contains(&node))
    }

    pub(super) fn capacity_of(&self, cluster: ClusterId) -> u32 {
        self.capacity.get(&cluster).copied().unwrap_or(0)
    }

    fn base(&self, state: &State, now: Time, without: Option<JobId>) -> View {
        let mut blocks: BTreeMap<ClusterId, Vec<Block>> = BTreeMap::new();
        for (_, entry) in state.holding().filter(|(job, _)| Some(*job) != without) {
            for Part { from, until, nodes } in parts(entry, now, state.settings()) {
                for (cluster, nodes) in self.share_of(state, entry, nodes) {
                    blocks.entry(cluster).or_default().push(Block { from, until, nodes });
                }
            }
        }
        for (node, ghost) in node_ghosts(state, now).filter(|(node, _)| self.contains(*node)) {
            blocks.entry(state.nodes()[&node].cluster).or_default().push(ghost_block(&ghost, now));
        }
        blocks.into_iter().map(|(cluster, blocks)| (cluster, Profile::from_blocks(blocks))).collect()
    }

    /// Returns how many nodes of this ledger a holder keeps; of nodes not chosen yet, those that cannot come from
    /// elsewhere.
    fn share_of(&self, state: &State, entry: &Job, nodes: WhichNodes) -> BTreeMap<ClusterId, i64> {
        match nodes {
            WhichNodes::Held => self.count(state, &own(entry)),
            WhichNodes::In(cluster) => {
                self.count(state, &own(entry)).into_iter().filter(|(here, _)| *here == cluster).collect()
            }
            WhichNodes::Staying { n_returns } => {
                let request = entry.started().map(|started| &started.request.nodes);
                let returns = entry.returns(state.settings());
                // It is unknown yet which of them leave: those that stay may all be in this ledger.
                let most = |cluster: ClusterId| {
                    let held = request.and_then(|nodes| nodes.get(&cluster)).copied().unwrap_or(0);
                    let back = returns.iter().take(n_returns).filter(|back| back.cluster == cluster);
                    back.fold(i64::from(held), |held, back| held.saturating_sub_unsigned(back.nodes)).max(0)
                };
                let held = self.count(state, entry.nodes()).into_iter();
                held.map(|(cluster, nodes)| (cluster, nodes.min(most(cluster)))).collect()
            }
            WhichNodes::Leaving { since } => self.count(state, &entry.left_at(since).collect::<Vec<_>>()),
            WhichNodes::Promised => self.count(state, &entry.promised_nodes().collect::<Vec<_>>()),
            WhichNodes::Count(wanted) => {
                let Some(started) = entry.started() else { return BTreeMap::new() };
                let cluster = cluster_of(&started.request);
                if state.is_shared(cluster) {
                    return BTreeMap::new();
                }
                let held = self.count(state, entry.nodes()).get(&cluster).copied().unwrap_or(0);
                let more = wanted.saturating_sub(entry.nodes().len() as u32);
                let n_elsewhere = if self.eligible.is_some() && more > 0 {
                    let constraint = constraint_of(&entry.spec, &started.request);
                    n_elsewhere(state, cluster, &constraint, self, entry.nodes())
                } else {
                    0
                };
                let nodes = held.min(i64::from(wanted)) + i64::from(more.saturating_sub(n_elsewhere));
                BTreeMap::from([(cluster, nodes)])
            }
        }
    }

    /// Counts which of `nodes` this ledger plans with, by cluster. Nodes of clusters that are shared by cores are
    /// planned one by one elsewhere.
    pub(super) fn count(&self, state: &State, nodes: &[NodeId]) -> BTreeMap<ClusterId, i64> {
        let mut counts = BTreeMap::new();
        for node in nodes {
            let entry = &state.nodes()[node];
            if entry.is_usable() && self.contains(*node) && !state.is_shared(entry.cluster) {
                *counts.entry(entry.cluster).or_default() += 1;
            }
        }
        counts
    }

    /// Returns how many of `wanted` nodes taken from `other` must at least come from here.
    pub(super) fn least_share(&self, state: &State, other: &Ledger<'_>, cluster: ClusterId, wanted: u32) -> u32 {
        let Some(here) = &self.eligible else { return wanted };
        let in_cluster = |node: &&NodeId| state.nodes()[*node].cluster == cluster;
        let n_elsewhere = match &other.eligible {
            None => self.total_usable(state, cluster) - self.capacity_of(cluster),
            Some(there) => there.difference(here).filter(in_cluster).count() as u32,
        };
        wanted.saturating_sub(n_elsewhere)
    }

    fn total_usable(&self, state: &State, cluster: ClusterId) -> u32 {
        state.n_usable(cluster)
    }

    /// Takes nodes away, or gives them back. Earlier search results no longer hold once nodes are given back.
    pub(super) fn add(&mut self, cluster: ClusterId, block: Block) {
        if block.nodes < 0 {
            self.has_shrunk = true;
        }
        if block.nodes != 0 {
            self.view.to_mut().entry(cluster).or_default().add(block);
            if let Some((now, digests)) = &mut self.digests {
                digests.entry(cluster).or_default().add(block, *now);
            }
        }
    }

    /// Sets the profile of a cluster that has none yet, before the ledger keeps digests.
    pub(super) fn show(&mut self, cluster: ClusterId, occupied: Profile) {
        self.view.to_mut().insert(cluster, occupied);
    }

    /// Shows the promises, too; from now on nodes will be given back.
    pub(super) fn take_promises(&mut self, with_promises: &'a View) {
        self.view = Cow::Borrowed(with_promises);
        self.has_shrunk = true;
    }

    /// Finds the first hole on one cluster from `from` on, searching from the latest known lower bound.
    fn first_hole(&mut self, cluster: ClusterId, wanted: u32, wall: Span, from: Time) -> Option<Hole> {
        let is_long = self.view.get(&cluster).is_some_and(|profile| profile.is_longer_than(MANY_STEPS));
        self.n_searches += u32::from(is_long);
        if self.n_searches < MANY_SEARCHES || !is_long || self.has_shrunk {
            return self.hole_from(cluster, wanted, wall, from);
        }
        let capacity = self.capacity_of(cluster);
        let frontier = self.frontiers.entry(cluster).or_insert_with(|| Frontier::new(capacity));
        let bound = frontier.bound(wanted, wall).map_or(from, |bound| bound.max(from));
        let mut hole = self.hole_from(cluster, wanted, wall, bound)?;
        if hole.start == bound && bound > from {
            // The step before is too full: otherwise an earlier start than the bound would be possible.
            hole.blocked_by = self.view.get(&cluster).and_then(|profile| profile.step_before(bound));
        }
        // A search from a later time says nothing about the time before it.
        if let Some(frontier) = self.frontiers.get_mut(&cluster).filter(|_| from <= self.now) {
            frontier.record(wanted, wall, hole.start);
        }
        Some(hole)
    }

    pub(super) fn hole_from(&self, cluster: ClusterId, wanted: u32, wall: Span, from: Time) -> Option<Hole> {
        let capacity = self.capacity_of(cluster);
        match self.view.get(&cluster) {
            Some(profile) => profile.first_hole(i64::from(capacity), i64::from(wanted), wall, from),
            None => (wanted <= capacity).then_some(Hole { start: from, blocked_by: None }),
        }
    }

    /// Returns how many nodes of a cluster are free and stay free for `wall`.
    pub(super) fn least_free(&self, cluster: ClusterId, wall: Span, from: Time) -> i64 {
        let capacity = i64::from(self.capacity_of(cluster));
        self.view.get(&cluster).map_or(capacity, |profile| profile.least_free(capacity, from, from + wall))
    }

    /// Returns for how long `nodes` nodes of a cluster stay free.
    pub(super) fn longest_free(&self, cluster: ClusterId, nodes: u32, from: Time) -> Span {
        let limit = i64::from(self.capacity_of(cluster)) - i64::from(nodes);
        let full_from = match self.view.get(&cluster) {
            Some(profile) => profile.first_above(limit, from),
            None => (limit < 0).then_some(from),
        };
        full_from.unwrap_or(Time::NEVER).since(from)
    }

    /// Returns the first instant at which `nodes` nodes of a cluster are free.
    pub(super) fn first_free(&self, cluster: ClusterId, nodes: u32, from: Time) -> Time {
        let limit = i64::from(self.capacity_of(cluster)) - i64::from(nodes);
        let first = match self.view.get(&cluster) {
            Some(profile) => profile.first_within(limit, from),
            None => (limit >= 0).then_some(from),
        };
        first.unwrap_or(Time::NEVER)
    }

    /// Returns whether no start during `[from, before)` leaves `wanted` nodes free for `wall`, or until `until`.
    pub(super) fn is_full_until(
        &self,
        cluster: ClusterId,
        wanted: u32,
        wall: Span,
        (from, before, until): (Time, Time, Time),
    ) -> bool {
        let limit = i64::from(self.capacity_of(cluster)) - i64::from(wanted);
        self.view.get(&cluster).map_or(limit < 0, |profile| profile.is_full(limit, wall, (from, before, until)))
    }

    /// Returns the step that leaves fewer than `wanted` nodes of a cluster free for `wall`.
    pub(super) fn full_step(&self, cluster: ClusterId, wanted: u32, wall: Span, from: Time) -> Option<Blocked> {
        self.blocked(cluster, wanted, self.hole_from(cluster, wanted, wall, from)?)
    }

    /// Explains why a hole is later than requested.
    pub(super) fn blocked(&self, cluster: ClusterId, wanted: u32, hole: Hole) -> Option<Blocked> {
        let capacity = i64::from(self.capacity_of(cluster));
        hole.blocked_by.map(|step| Blocked { cluster, step, until: hole.start, wanted, capacity, licence: None })
    }
}

/// Returns the nodes that a holder keeps from others: some nodes of a guest are its mates'.
fn own(entry: &Job) -> Cow<'_, [NodeId]> {
    match entry.sharing() {
        Some(_) => Cow::Owned(entry.own_nodes().collect()),
        None => Cow::Borrowed(entry.nodes()),
    }
}

/// Lists the nodes that each holder keeps, with from when until when; nodes that are not chosen yet are left out.
pub(super) fn held_nodes(state: &State, now: Time) -> impl Iterator<Item = (NodeId, (Time, Time))> + '_ {
    state.holding().flat_map(move |(_, entry)| {
        let parts = parts(entry, now, state.settings()).into_iter();
        parts.flat_map(move |Part { from, until, nodes }| {
            let nodes: Vec<NodeId> = match nodes {
                WhichNodes::Held => own(entry).into_owned(),
                WhichNodes::In(cluster) => {
                    own(entry).iter().copied().filter(|node| state.nodes()[node].cluster == cluster).collect()
                }
                WhichNodes::Leaving { since } => entry.left_at(since).collect(),
                WhichNodes::Promised => entry.promised_nodes().collect(),
                WhichNodes::Staying { n_returns } => staying(state, entry, n_returns),
                WhichNodes::Count(_) => Vec::new(),
            };
            nodes.into_iter().map(move |node| (node, (from, until)))
        })
    })
}

/// Returns the nodes that are left to a job after so many of its returns: it gives back the last ones of a cluster, unless
/// it chooses others, and never the first.
fn staying(state: &State, entry: &Job, n_returns: usize) -> Vec<NodeId> {
    let mut back: BTreeMap<ClusterId, u64> = BTreeMap::new();
    for returned in entry.returns(state.settings()).into_iter().take(n_returns) {
        *back.entry(returned.cluster).or_default() += returned.nodes;
    }
    let own = own(entry);
    let Some((first, others)) = own.split_first() else { return Vec::new() };
    let stays = |node: &&NodeId| match back.get_mut(&state.nodes()[*node].cluster) {
        Some(n_nodes) if *n_nodes > 0 => {
            *n_nodes -= 1;
            false
        }
        Some(_) | None => true,
    };
    [first].into_iter().chain(others.iter().rev().filter(stays)).copied().collect()
}

/// Returns the usable nodes that meet a constraint.
pub(super) fn eligible(state: &State, constraint: &Constraint) -> BTreeSet<NodeId> {
    let is_eligible = |entry: &Node| entry.is_usable() && entry.meets(constraint);
    state.nodes().iter().filter(|(_, entry)| is_eligible(entry)).map(|(node, _)| *node).collect()
}

/// Counts the usable nodes of a cluster that meet a constraint, are outside of `here`, and are not among `held`.
fn n_elsewhere(state: &State, cluster: ClusterId, constraint: &Constraint, here: &Ledger<'_>, held: &[NodeId]) -> u32 {
    let is_elsewhere = |(node, entry): &(&NodeId, &Node)| {
        entry.cluster == cluster
            && entry.is_usable()
            && !here.contains(**node)
            && !held.contains(node)
            && entry.meets(constraint)
    };
    state.nodes().iter().filter(is_elsewhere).count() as u32
}

/// Returns the usable nodes that running applications have given back and that are still kept.
fn node_ghosts(state: &State, now: Time) -> impl Iterator<Item = (NodeId, NodeGhost)> + '_ {
    let ghosts = state.node_ghosts().filter(move |(until, _)| *until > now);
    let is_counted = |entry: &&Node| entry.is_usable() && !state.is_shared(entry.cluster);
    ghosts.filter_map(move |(_, node)| {
        let entry = state.nodes().get(&node).filter(is_counted)?;
        Some((node, entry.ghost?))
    })
}

fn ghost_block(ghost: &NodeGhost, now: Time) -> Block {
    Block { from: ghost.from.min(now), until: ghost.until, nodes: 1 }
}

/// Returns what each started job and ghost holds of one cluster, with its state, and whether it is kept for a
/// negotiation.
pub(crate) fn base_blocks(state: &State, now: Time, cluster: ClusterId) -> Vec<(JobState, bool, Block)> {
    holds(state, now, cluster).map(|(_, state, is_offer, block)| (state, is_offer, block)).collect()
}

/// As [`base_blocks`], with the jobs.
pub(super) fn holds(
    state: &State,
    now: Time,
    cluster: ClusterId,
) -> impl Iterator<Item = (JobId, JobState, bool, Block)> + '_ {
    let all = Ledger::bare(None, Cow::Owned(BTreeMap::new()), now);
    let ghosts = node_ghosts(state, now).filter(move |(node, _)| state.nodes()[node].cluster == cluster);
    // Nodes that one application has given back together are one block.
    let mut given_back: BTreeMap<(JobId, Time, Time), i64> = BTreeMap::new();
    ghosts.for_each(|(_, ghost)| *given_back.entry((ghost.job, ghost.from.min(now), ghost.until)).or_default() += 1);
    let given_back = given_back
        .into_iter()
        .map(|((job, from, until), nodes)| (job, JobState::Ghost, false, Block { from, until, nodes }));
    let held = state.holding().flat_map(move |(job, entry)| {
        let blocks = parts(entry, now, state.settings()).into_iter().filter_map(|Part { from, until, nodes }| {
            let is_offer = nodes == WhichNodes::Promised;
            let nodes = all.share_of(state, entry, nodes).get(&cluster).copied()?;
            Some((job, entry.state(), is_offer, Block { from, until, nodes }))
        });
        blocks.collect::<Vec<_>>()
    });
    held.chain(given_back)
}

/// Finds the earliest time from `now` on when the request fits in every ledger on every cluster it names (R4).
///
/// # Errors
/// The cluster that is too small, and the number of nodes wanted.
pub(super) fn first_hole(
    ledgers: &mut [&mut Ledger<'_>],
    request: &Request,
    now: Time,
) -> Result<(Time, Option<Blocked>), (ClusterId, u32)> {
    let mut start = now;
    let mut blocked = None;
    let wanted = || request.nodes.iter().map(|(cluster, wanted)| (*cluster, *wanted)).filter(|(_, wanted)| *wanted > 0);
    let mut n_profiles = 0;
    // Searches each profile alone from now on, as far as its frontier knows.
    for ledger in ledgers.iter_mut() {
        for (cluster, wanted) in wanted() {
            let hole = ledger.first_hole(cluster, wanted, request.wall, now).ok_or((cluster, wanted))?;
            if hole.start > start {
                start = hole.start;
                blocked = ledger.blocked(cluster, wanted, hole);
            }
            n_profiles += 1;
        }
    }
    if n_profiles <= 1 {
        return Ok((start, blocked));
    }
    let ledgers: Vec<&Ledger<'_>> = ledgers.iter().map(|ledger| &**ledger).collect();
    joint_hole(&ledgers, request, (start, blocked))
}

/// Finds the earliest time when the request fits in all ledgers together, beginning with a start that one of them
/// allows.
pub(super) fn joint_hole(
    ledgers: &[&Ledger<'_>],
    request: &Request,
    (mut start, mut blocked): (Time, Option<Blocked>),
) -> Result<(Time, Option<Blocked>), (ClusterId, u32)> {
    loop {
        let before = start;
        for ledger in ledgers {
            for (cluster, wanted) in &request.nodes {
                let (cluster, wanted) = (*cluster, *wanted);
                if wanted == 0 {
                    continue;
                }
                let hole = ledger.hole_from(cluster, wanted, request.wall, start).ok_or((cluster, wanted))?;
                if hole.start > start {
                    start = hole.start;
                    blocked = ledger.blocked(cluster, wanted, hole);
                }
            }
        }
        if start == before {
            return Ok((start, blocked));
        }
    }
}

#[cfg(test)]
mod tests {
    use test_kit::Dice;

    use super::*;

    /// A long queue: what the frontier leaves out of a search must not have mattered.
    #[test]
    fn a_hole_found_from_a_frontier_is_the_one_found_from_now() {
        let (cluster, now) = (ClusterId(0), Time::from_secs(1000));
        let capacity = BTreeMap::from([(cluster, 64)]);
        let mut ledger = Ledger::bare(None, Cow::Owned(capacity), now);
        let mut dice = Dice::new(7);
        let mut roll = |n: u64| dice.below(n);
        for number in 0..3000 {
            let (wanted, wall) = (1 + roll(40) as u32, Span::from_mins(1 + roll(200) as i64));
            // Licences, among others, keep some from an earlier start.
            let from = if number % 3 == 0 { now + Span::from_hours(roll(1000) as i64) } else { now };
            let expected = ledger.hole_from(cluster, wanted, wall, from);
            let hole = ledger.first_hole(cluster, wanted, wall, from);
            assert_eq!(hole, expected, "request {number}: {wanted} nodes for {wall} from {from:?} on");
            let from = hole.expect("it is small enough").start;
            ledger.add(cluster, Block { from, until: from + wall, nodes: i64::from(wanted) });
        }
        assert!(ledger.view[&cluster].is_longer_than(2 * MANY_STEPS) && !ledger.frontiers.is_empty());
        assert_eq!(ledger.first_hole(cluster, 65, Span::from_secs(1), now), None);
    }
}
