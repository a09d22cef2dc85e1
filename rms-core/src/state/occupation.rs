//! Counts the nodes that jobs hold over time. Each fact updates the counts, so that a pass reads its first view off
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use rms_model::profile::Block;
use rms_model::{ClusterId, JobId, NodeId, Request, Time, View};

use super::Nodes;
use super::shared::Shared;
use crate::state::job::{Job, Phase, Started};
use crate::state::node::{Node, NodeGhost};

/// Derived from jobs and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupation {
    held: BTreeMap<JobId, Holding>,
    ends: BTreeSet<(Time, JobId)>,
    begins: BTreeSet<(Time, JobId)>,
    /// Started jobs until their wall times end, and ghosts until they expire, on usable nodes.
    busy: View,
    /// The same with the promised starts of queued jobs; empty while there are no promises.
    with_promises: View,
    n_promised: usize,
    /// The number of usable nodes that running applications have given back, by the times until and since when they are
    /// kept.
    ghosts: BTreeMap<(Time, Time), i64>,
    /// Running jobs with changing needs: what they hold depends on the time of the pass.
    evolving: BTreeSet<JobId>,
}

/// What one job or ghost holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    from: Time,
    /// When it first gives back some of its nodes.
    until: Time,
    nodes: Vec<(ClusterId, Time, i64)>,
}

impl Occupation {
    /// Adds a job that has started or become a ghost, or whose nodes have changed. Nodes of clusters that are shared by
    /// cores are counted elsewhere.
    pub(super) fn hold(&mut self, job: JobId, entry: &Job, nodes: &Nodes, (all_usable, shared): (bool, &Shared)) {
        let (request, from, until) = match &entry.phase {
            Phase::Started(Started { evolved: Some(evolved), .. }) if !evolved.is_steady() => {
                self.evolving.insert(job);
                return;
            }
            Phase::Started(_) if entry.gives_back() => {
                self.evolving.insert(job);
                return;
            }
            Phase::Started(started) => (&started.request, started.at, started.planned_until()),
            Phase::Ghost(ghost) => (&ghost.request, ghost.done_at, ghost.until),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => return,
        };
        // The ghost of an application over several clusters may leave one before the others.
        let until_in = |cluster: ClusterId| match &entry.phase {
            Phase::Ghost(ghost) => ghost.until_in(cluster),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => until,
        };
        let held_in = |(cluster, nodes): (ClusterId, i64)| (cluster, until_in(cluster), nodes);
        let is_whole = entry.nodes().len() == request.n_nodes() as usize && entry.promised_nodes().next().is_none();
        let is_guest = entry.sharing().is_some_and(|sharing| !sharing.mates.is_empty());
        let nodes: Vec<_> = if all_usable && is_whole && !is_guest {
            let counts = request.nodes.iter().filter(|(cluster, _)| shared.get(**cluster).is_none());
            counts.map(|(cluster, nodes)| held_in((*cluster, i64::from(*nodes)))).collect()
        } else {
            // If the job is a guest, the node is its owner's.
            let counts = usable(entry.own_nodes().chain(entry.promised_nodes()), nodes, shared);
            counts.into_iter().map(held_in).collect()
        };
        let until = nodes.iter().map(|(_, until, _)| *until).min().unwrap_or(until);
        let held = Holding { from, until, nodes };
        self.add(&held, 1);
        self.ends.insert((until, job));
        self.begins.insert((from, job));
        self.held.insert(job, held);
    }

    /// Removes what a job holds.
    pub(super) fn release(&mut self, job: JobId) {
        self.evolving.remove(&job);
        if let Some(held) = self.held.remove(&job) {
            self.ends.remove(&(held.until, job));
            self.begins.remove(&(held.from, job));
            self.add(&held, -1);
        }
    }

    /// Records that a queued job was promised its request at this time; or, with a `sign` of -1, that it no longer is.
    pub(super) fn promise(&mut self, request: &Request, at: Time, sign: i64, shared: &Shared) {
        if self.n_promised == 0 {
            self.with_promises.clone_from(&self.busy);
        }
        self.n_promised = self.n_promised.saturating_add_signed(sign as isize);
        match self.n_promised {
            0 => self.with_promises.clear(),
            _ => {
                let counted = request.nodes.iter().filter(|(cluster, _)| shared.get(**cluster).is_none());
                for (cluster, nodes) in counted {
                    let block = Block { from: at, until: at + request.wall, nodes: sign * i64::from(*nodes) };
                    add_block(&mut self.with_promises, *cluster, block);
                }
            }
        }
    }

    fn add(&mut self, held: &Holding, sign: i64) {
        held.add(&mut self.busy, sign);
        if self.n_promised > 0 {
            held.add(&mut self.with_promises, sign);
        }
    }

    /// Records that a usable node is kept that a running application has given back; or, with a `sign` of -1, that it
    /// no longer is.
    pub(super) fn count_node_ghost(&mut self, cluster: ClusterId, ghost: &NodeGhost, sign: i64) {
        let NodeGhost { job: _, from, until } = *ghost;
        self.add(&Holding { from, until, nodes: vec![(cluster, until, 1)] }, sign);
        let n_nodes = self.ghosts.entry((until, from)).or_default();
        *n_nodes += sign;
        if *n_nodes == 0 {
            self.ghosts.remove(&(until, from));
        }
    }

    /// Returns the next planned end of a job, or of a ghost, after this time.
    pub(crate) fn next_end(&self, after: Time) -> Option<Time> {
        let later = self.ends.range((Bound::Excluded((after, JobId(u64::MAX))), Bound::Unbounded));
        later.map(|(end, _)| *end).next()
    }

    pub(crate) fn busy(&self) -> &View {
        &self.busy
    }

    /// Returns what is busy and what was promised, if there are promises.
    pub(crate) fn with_promises(&self) -> Option<&View> {
        (self.n_promised > 0).then_some(&self.with_promises)
    }

    /// Returns whether `busy` is what a pass at `now` should see. It is not while a job is there that should have left
    /// or with changing needs, nor after the clock was set back.
    pub(crate) fn is_regular(&self, now: Time) -> bool {
        let is_overdue = self.ends.first().is_some_and(|(until, _)| *until <= now)
            || self.ghosts.keys().any(|(until, from)| *until <= now || *from > now);
        !is_overdue && self.evolving.is_empty() && self.begins.last().is_none_or(|(latest, _)| *latest <= now)
    }
}

impl Holding {
    fn add(&self, view: &mut View, sign: i64) {
        for (cluster, until, nodes) in &self.nodes {
            add_block(view, *cluster, Block { from: self.from, until: *until, nodes: sign * nodes });
        }
    }
}

fn add_block(view: &mut View, cluster: ClusterId, block: Block) {
    let profile = view.entry(cluster).or_default();
    profile.add(block);
    if profile.is_empty() {
        view.remove(&cluster);
    }
}

/// Counts the usable ones among these nodes, by cluster.
fn usable(held: impl Iterator<Item = NodeId>, nodes: &Nodes, shared: &Shared) -> BTreeMap<ClusterId, i64> {
    let mut counts: BTreeMap<ClusterId, i64> = BTreeMap::new();
    let is_counted = |entry: &&Node| entry.is_usable() && shared.get(entry.cluster).is_none();
    for entry in held.filter_map(|node| nodes.get(&node)).filter(is_counted) {
        *counts.entry(entry.cluster).or_default() += 1;
    }
    counts
}
