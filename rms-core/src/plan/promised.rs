//! Stages that were promised to running applications, and that others who keep their nodes longer would make late.

use std::collections::BTreeSet;

use rms_model::profile::Block;
use rms_model::{ClusterId, JobId, NodeId, Profile, Time};

use super::evolve::occupation_beside;
use super::ledger::eligible;
use super::parts::{Part, WhichNodes, cluster_of, parts, to_come};
use crate::state::job::Started;
use crate::state::{State, constraint_of};

/// What running applications will need on a cluster besides the nodes that they have.
pub(crate) struct PromisedStages {
    /// Where nodes are not shared, each application with stages that are larger than its present one.
    counted: Vec<Counted>,
    /// Where they are shared by cores, the nodes of later stages, when those begin, and of which applications they are.
    named: Vec<(NodeId, Time, JobId)>,
}

/// The larger stages of one application, and what the others hold of the nodes that it may have.
struct Counted {
    job: JobId,
    eligible: BTreeSet<NodeId>,
    occupied: Profile,
    capacity: i64,
    stages: Vec<Block>,
}

/// Nodes that a job keeps longer than planned.
pub(crate) struct Longer {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

impl PromisedStages {
    pub(crate) fn of(state: &State, now: Time, cluster: ClusterId) -> PromisedStages {
        let mut promised = PromisedStages { counted: Vec::new(), named: Vec::new() };
        for (job, entry, started) in state.evolved() {
            if entry.spec.evolving.is_none() || cluster_of(&started.request) != cluster {
                continue;
            }
            promised.named.extend(to_come(entry, now).into_iter().map(|(node, from, _)| (node, from, job)));
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
            promised.counted.push(Counted { job, eligible, occupied, capacity: capacity.into(), stages });
        }
        promised
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.named.is_empty()
    }

    /// Returns the first of these stages that could not begin in time, and whose it is.
    pub(crate) fn first_late(&self, all_longer: &[Longer]) -> Option<(Time, JobId)> {
        let is_late = |(node, from, _): &&(NodeId, Time, JobId)| {
            all_longer.iter().any(|longer| longer.nodes.contains(node) && (longer.from..longer.until).contains(from))
        };
        let named = self.named.iter().filter(is_late).map(|(_, from, job)| (*from, *job));
        let counted = self.counted.iter().filter_map(|counted| Some((counted.first_late(all_longer)?, counted.job)));
        named.chain(counted).min()
    }
}

/// Returns the first promised stage that could not begin in time if a running job kept its nodes longer, from its present
/// end to `until`, and whose it is.
pub(crate) fn first_late_stage(state: &State, now: Time, started: &Started, until: Time) -> Option<(Time, JobId)> {
    let from = started.planned_until();
    let late = |cluster: &ClusterId| {
        let longer = Longer { nodes: started.nodes.clone(), from, until };
        PromisedStages::of(state, now, *cluster).first_late(&[longer])
    };
    started.request.nodes.keys().filter_map(late).min()
}

impl Counted {
    fn first_late(&self, all_longer: &[Longer]) -> Option<Time> {
        let mut occupied = self.occupied.clone();
        let eligible = all_longer.iter().map(|Longer { nodes, from, until }| {
            let nodes = nodes.iter().filter(|node| self.eligible.contains(node)).count() as i64;
            Block { from: *from, until: *until, nodes }
        });
        // Others make no stage late, even if it is late without them.
        let all_longer: Vec<Block> = eligible.filter(|longer| longer.nodes > 0).collect();
        all_longer.iter().for_each(|longer| occupied.add(*longer));
        let both = self.stages.iter().flat_map(|stage| all_longer.iter().map(move |longer| (stage, longer)));
        let first = both.filter_map(|(stage, longer)| {
            let (from, until) = (stage.from.max(longer.from), stage.until.min(longer.until));
            let at = occupied.first_above(self.capacity - stage.nodes, from).filter(|_| from < until)?;
            (at < until).then_some(at)
        });
        first.min()
    }
}
