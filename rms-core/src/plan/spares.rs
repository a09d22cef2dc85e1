//! What a job that starts may take of nodes that others, placed before it, can use alone.

use rms_model::{ClusterId, NodeId, Span, Time};

use super::ledger::Ledger;

/// The nodes of one cluster that special ledgers can spare for a job that starts now.
pub(super) struct Spares<'a, 's> {
    cluster: ClusterId,
    now: Time,
    wall: Span,
    /// What each can spare for that time, and how much of it the job has taken.
    of_ledgers: Vec<(&'s Ledger<'a>, i64, u32)>,
    /// The first ledger that could not spare a node, and how many more would have been too many for it.
    pub(super) kept_by: Option<(&'s Ledger<'a>, u32)>,
}

impl<'a, 's> Spares<'a, 's> {
    pub(super) fn new(
        special: impl Iterator<Item = &'s Ledger<'a>>,
        cluster: ClusterId,
        now: Time,
        wall: Span,
    ) -> Spares<'a, 's> {
        let of_ledgers = special.map(|special| (special, special.least_free(cluster, wall, now), 0)).collect();
        Spares { cluster, now, wall, of_ledgers, kept_by: None }
    }

    /// From now on the job takes nodes for this time.
    pub(super) fn last_for(&mut self, wall: Span) {
        if wall != self.wall {
            self.wall = wall;
            let (cluster, now) = (self.cluster, self.now);
            self.of_ledgers.iter_mut().for_each(|(special, spare, _)| *spare = special.least_free(cluster, wall, now));
        }
    }

    /// Takes a node; returns `false` if a ledger cannot spare it.
    pub(super) fn take(&mut self, node: NodeId) -> bool {
        let of_node = || self.of_ledgers.iter().filter(|(special, ..)| special.contains(node));
        if let Some((special, _, n_taken)) = of_node().find(|(_, spare, n_taken)| i64::from(*n_taken) >= *spare) {
            self.kept_by.get_or_insert((*special, *n_taken + 1));
            return false;
        }
        let of_node = self.of_ledgers.iter_mut().filter(|(special, ..)| special.contains(node));
        of_node.for_each(|(_, _, n_taken)| *n_taken += 1);
        true
    }
}
