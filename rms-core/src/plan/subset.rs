//! Opens ledgers over some of the nodes of a pass: those that meet a constraint, and windows of neighbours.

use std::collections::BTreeSet;

use rms_model::job::Constraint;
use rms_model::{JobSpec, NodeId};

use super::ledger::{self, Ledger, Subset};
use super::pass::Pass;
use crate::state::{chooses_nodes, constraint_of, is_unconstrained};

impl<'a> Pass<'a> {
    /// Opens the ledgers that every size of an application needs.
    pub(super) fn open_ledgers(&mut self, spec: &JobSpec) {
        // A job that chooses its nodes searches sets of nodes.
        if chooses_nodes(spec) {
            return;
        }
        for request in &spec.options {
            if self.grids.is_empty() || !self.grids.others(request).nodes.is_empty() {
                self.open_ledger(&constraint_of(spec, request));
            }
        }
    }

    /// Makes sure that a ledger exists for a constraint that excludes some nodes.
    pub(super) fn open_ledger(&mut self, constraint: &Constraint) {
        if is_unconstrained(constraint) || self.stands_for.contains_key(constraint) {
            return;
        }
        let eligible = ledger::eligible(self.state, constraint);
        let n_usable: u32 = self.all.capacity.values().sum();
        let is_known = |(subset, ledger): &(&Subset, &Ledger<'_>)| subset.window().is_none() && ledger.is_of(&eligible);
        let known = self.special.iter().find(is_known).map(|(known, _)| known.clone());
        let stands_for = if eligible.len() == n_usable as usize {
            None
        } else if let Some(known) = known {
            Some(known)
        } else {
            let subset = Subset::Meets(constraint.clone());
            self.insert_ledger(subset.clone(), eligible);
            Some(subset)
        };
        self.stands_for.insert(constraint.clone(), stands_for);
    }

    /// Opens a ledger for a window, so that placements from now on avoid it.
    pub(super) fn open_window(&mut self, subset: Option<&Subset>) {
        if let Some(subset @ Subset::Window(nodes)) = subset
            && !self.special.contains_key(subset)
        {
            self.insert_ledger(subset.clone(), nodes.clone());
        }
    }

    fn insert_ledger(&mut self, subset: Subset, eligible: BTreeSet<NodeId>) {
        let ledger = self.drawn(eligible);
        if self.special.is_empty() {
            self.remember_taken();
        }
        self.special.insert(subset, ledger);
    }

    /// Builds a ledger of these nodes, with all placements so far.
    pub(super) fn drawn(&self, eligible: BTreeSet<NodeId>) -> Ledger<'a> {
        let mut ledger = Ledger::of(self.state, self.now, eligible, None);
        if self.all.keeps_digests() {
            ledger.keep_digests(self.now);
        }
        self.show_supposed(&mut ledger);
        let shared = self.grids.blocks.iter().flatten().filter(|(place, _)| ledger.contains(place.node));
        let shared: Vec<_> = shared.map(|(place, block)| (place.cluster, *block)).collect();
        shared.into_iter().for_each(|(cluster, block)| ledger.add(cluster, block));
        for taken in &self.placed {
            for (cluster, block) in self.shares(taken, &ledger, &self.special) {
                ledger.add(cluster, block);
            }
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Inventory, Mebibytes, Span};

    use super::*;
    use crate::tests::World;
    use rms_api::call::{Nodes, Shape};

    /// Each ledger is updated with each application, so there must not be one for each constraint of a user.
    #[test]
    fn wishes_that_the_same_nodes_meet_share_a_ledger() {
        let mut world = World::new();
        for (name, memory) in [("small1", 1000), ("small2", 1000), ("large", 4000), ("huge", 8000)] {
            world.joins(name, Inventory { memory: Mebibytes(memory), ..Inventory::default() }, Vec::new());
        }
        for wish in 1..=60 {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(60)) }];
                submission.constraint.memory = Mebibytes(wish * 100);
            });
        }
        let state = world.rms.state();
        let mut pass = Pass::new(state, world.now, 0);
        for job in state.queue() {
            pass.place(&state.jobs()[&job].spec, world.now);
        }
        assert_eq!(pass.special.len(), 2, "those of 1001 MiB and more, and those of 4001 MiB and more");
    }
}
