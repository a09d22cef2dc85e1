//! Stages that were promised to running applications, and for which no job lends cores so long that they begin late.

use std::collections::BTreeSet;

use rms_model::profile::Block;
use rms_model::{ClusterId, NodeId, Profile, Time};

use crate::plan::evolve::occupation_beside;
use crate::plan::ledger::eligible;
use crate::plan::parts::{Part, WhichNodes, cluster_of, parts};
use crate::plan::row::to_come;
use crate::state::{State, constraint_of};

/// What running applications will need on a cluster besides the nodes that they have.
pub(super) struct PromisedStages {
    /// Where nodes are not shared, each application with stages that are larger than its present one.
    counted: Vec<Counted>,
    /// Where they are shared by cores, the nodes of later stages, and when those begin.
    named: Vec<(NodeId, Time)>,
}

/// The larger stages of one application, and what the others hold of the nodes that it may have.
struct Counted {
    eligible: BTreeSet<NodeId>,
    occupied: Profile,
    capacity: i64,
    stages: Vec<Block>,
}

/// Nodes that a job keeps longer because it lends.
pub(super) struct Longer {
    pub(super) nodes: Vec<NodeId>,
    pub(super) from: Time,
    pub(super) until: Time,
}

impl PromisedStages {
    pub(super) fn of(state: &State, now: Time, cluster: ClusterId) -> PromisedStages {
        let mut promised = PromisedStages { counted: Vec::new(), named: Vec::new() };
        for (job, entry, started) in state.evolved() {
            if entry.spec.evolving.is_none() || cluster_of(&started.request) != cluster {
                continue;
            }
            promised.named.extend(to_come(entry, now).into_iter().map(|(node, from, _)| (node, from)));
            let n_held = started.nodes.len() as u32;
            let larger = |Part { from, until, nodes }: Part| match nodes {
                WhichNodes::Count(wanted) if wanted > n_held => Some(Block { from, until, nodes: wanted.into() }),
                _ => None,
            };
            let stages: Vec<Block> = parts(entry, now, state.settings()).into_iter().filter_map(larger).collect();
            if stages.is_empty() || state.is_shared(cluster) {
                continue;
            }
            let (occupied, capacity) = occupation_beside(state, now, job);
            let eligible = eligible(state, &constraint_of(&entry.spec, &started.request));
            promised.counted.push(Counted { eligible, occupied, capacity: capacity.into(), stages });
        }
        promised
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.named.is_empty()
    }

    /// Returns whether all these stages can still begin in time.
    pub(super) fn allow(&self, all_longer: &[Longer]) -> bool {
        let is_kept = |(node, from): &(NodeId, Time)| {
            let is_late = |longer: &Longer| longer.nodes.contains(node) && (longer.from..longer.until).contains(from);
            !all_longer.iter().any(is_late)
        };
        self.named.iter().all(is_kept) && self.counted.iter().all(|counted| counted.allows(all_longer))
    }
}

impl Counted {
    fn allows(&self, all_longer: &[Longer]) -> bool {
        let mut occupied = self.occupied.clone();
        for Longer { nodes, from, until } in all_longer {
            let n_eligible = nodes.iter().filter(|node| self.eligible.contains(node)).count() as i64;
            occupied.add(Block { from: *from, until: *until, nodes: n_eligible });
        }
        let has_room = |stage: &Block, longer: &Longer| {
            let (from, until) = (stage.from.max(longer.from), stage.until.min(longer.until));
            from >= until || occupied.max(from, until) + stage.nodes <= self.capacity
        };
        self.stages.iter().all(|stage| all_longer.iter().all(|longer| has_room(stage, longer)))
    }
}
