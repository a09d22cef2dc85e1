//! Who is busy when, over a set of hosts that an application may use.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::profile::Block;
use rms_model::{ClusterId, NodeId, Profile, Request, Span, Time, View};

use super::Blocked;
use crate::effect::JobState;
use crate::job::{Job, Phase};
use crate::node::Node;
use crate::state::State;

/// The occupation of the usable hosts that meet a constraint.
#[derive(Debug)]
pub(super) struct Ledger {
    /// `None`: every usable host.
    eligible: Option<BTreeSet<NodeId>>,
    pub(super) capacity: BTreeMap<ClusterId, u32>,
    pub(super) view: View,
}

impl Ledger {
    /// The hosts that everybody may use, busy with started jobs and ghosts (001, Fig. 5, step 3).
    pub(super) fn of_all(state: &State, now: Time) -> Ledger {
        let capacity = state.clusters().keys().map(|cluster| (*cluster, state.n_usable(*cluster))).collect();
        let mut ledger = Ledger { eligible: None, capacity, view: View::new() };
        ledger.view = ledger.base(state, now);
        ledger
    }

    pub(super) fn of(state: &State, now: Time, constraint: &Constraint) -> Ledger {
        let mut eligible = BTreeSet::new();
        let mut capacity: BTreeMap<ClusterId, u32> = state.clusters().keys().map(|cluster| (*cluster, 0)).collect();
        for (node, entry) in state.nodes() {
            if entry.is_usable() && meets(entry, constraint) {
                eligible.insert(*node);
                *capacity.entry(entry.cluster).or_default() += 1;
            }
        }
        let mut ledger = Ledger { eligible: Some(eligible), capacity, view: View::new() };
        ledger.view = ledger.base(state, now);
        ledger
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.eligible.as_ref().is_none_or(|eligible| eligible.contains(&node))
    }

    pub(super) fn capacity_of(&self, cluster: ClusterId) -> u32 {
        self.capacity.get(&cluster).copied().unwrap_or(0)
    }

    fn base(&self, state: &State, now: Time) -> View {
        let mut blocks: BTreeMap<ClusterId, Vec<Block>> = BTreeMap::new();
        for (_, job) in state.holding() {
            let Some((from, until)) = hold_time(job, now, state.settings().kill_grace) else { continue };
            for (cluster, hosts) in self.count(state, job.nodes()) {
                blocks.entry(cluster).or_default().push(Block { from, until, hosts });
            }
        }
        blocks.into_iter().map(|(cluster, blocks)| (cluster, Profile::from_blocks(blocks))).collect()
    }

    /// How many of `nodes` this ledger plans with, by cluster.
    pub(super) fn count(&self, state: &State, nodes: &[NodeId]) -> BTreeMap<ClusterId, i64> {
        let mut counts = BTreeMap::new();
        for node in nodes {
            let entry = &state.nodes()[node];
            if entry.is_usable() && self.contains(*node) {
                *counts.entry(entry.cluster).or_default() += 1;
            }
        }
        counts
    }

    /// At least so many of `wanted` hosts taken from `other` must come from here.
    pub(super) fn least_share(&self, state: &State, other: &Ledger, cluster: ClusterId, wanted: u32) -> u32 {
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

    pub(super) fn add(&mut self, cluster: ClusterId, block: Block) {
        if block.hosts > 0 {
            self.view.entry(cluster).or_default().add(block);
        }
    }
}

/// Does a host have what every host of the job must have?
pub(crate) fn meets(node: &Node, constraint: &Constraint) -> bool {
    let inventory = &node.inventory;
    inventory.memory >= constraint.memory
        && inventory.cpus >= constraint.cpus
        && constraint.features.is_subset(&inventory.features)
}

/// R3: a started job is seen until its wall time is over, a ghost until it expires. A job that is still there
/// after its wall time is being ended: it is seen a little longer than now, or others would be planned into it.
fn hold_time(job: &Job, now: Time, kill_grace: Span) -> Option<(Time, Time)> {
    match &job.phase {
        Phase::Started(started) => {
            let planned = started.at + started.request.wall;
            let overdue = now + kill_grace.max(Span::from_secs(1));
            Some((started.at, if planned > now { planned } else { overdue }))
        }
        Phase::Ghost(ghost) => Some((ghost.done_at.min(now), ghost.until)),
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => None,
    }
}

/// What each started job and ghost holds of one cluster, with its state.
pub(crate) fn base_blocks(state: &State, now: Time, cluster: ClusterId) -> Vec<(JobState, Block)> {
    let is_here = |node: &&NodeId| state.nodes()[*node].cluster == cluster && state.nodes()[*node].is_usable();
    let mut blocks = Vec::new();
    for (_, job) in state.holding() {
        let hosts = job.nodes().iter().filter(is_here).count() as i64;
        if let Some((from, until)) = hold_time(job, now, state.settings().kill_grace) {
            blocks.push((job.state(), Block { from, until, hosts }));
        }
    }
    blocks
}

/// The earliest time from `now` on when the request fits in every ledger on every cluster it names (R4).
/// `Err` names the cluster that is too small.
pub(super) fn first_hole(
    ledgers: &[&Ledger],
    request: &Request,
    now: Time,
) -> Result<(Time, Option<Blocked>), (ClusterId, u32)> {
    let empty = Profile::new();
    let mut start = now;
    let mut blocked = None;
    loop {
        let before = start;
        for ledger in ledgers {
            for (cluster, wanted) in request.hosts.iter().filter(|(_, wanted)| **wanted > 0) {
                let capacity = i64::from(ledger.capacity_of(*cluster));
                let profile = ledger.view.get(cluster).unwrap_or(&empty);
                let hole =
                    profile.first_hole(capacity, i64::from(*wanted), request.wall, start).ok_or((*cluster, *wanted))?;
                if let Some(step) = hole.blocked_by {
                    blocked = Some(Blocked { cluster: *cluster, step, until: hole.start, wanted: *wanted, capacity });
                }
                start = hole.start;
            }
        }
        if start == before {
            return Ok((start, blocked));
        }
    }
}
