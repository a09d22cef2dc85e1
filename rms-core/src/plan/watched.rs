//! How many nodes have room for slices that launchers want to see, as a pass fills them up.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::profile::Block;
use rms_model::{ClusterId, NodeId, Profile, Slice, Time};

use super::grid::Place;
use super::grids::Grids;
use super::ledger::{self, Ledger};
use super::pass::Pass;
use crate::state::{Piece, within};

/// What a launcher wants to see: nodes that meet a constraint, whole or, with a slice, as far as they have room for it.
pub(super) type Class = (Constraint, Slice);

/// Nodes that can give a slice; one is busy while it has no room for it.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    pub(super) ledger: Ledger<'a>,
    /// On clusters where jobs share nodes, what serves it, by kind of node.
    pieces: BTreeMap<ClusterId, Vec<Vec<Piece>>>,
}

impl Watched<'_> {
    fn times_with_room(
        &self,
        grids: &Grids<'_>,
        cluster: ClusterId,
        node: NodeId,
        times: (Time, Time),
    ) -> Vec<(Time, Time)> {
        match (grids.by_cluster.get(&cluster), self.pieces.get(&cluster)) {
            (Some(grid), Some(pieces)) if self.ledger.contains(node) => grid.times_with_room(node, pieces, times),
            (_, _) => Vec::new(),
        }
    }
}

/// Of each class that is watched, when each of some places' nodes has room.
pub(super) type RoomBefore = Vec<Vec<Vec<(Time, Time)>>>;

impl<'a> Pass<'a> {
    /// From now on it is known what the class looks like; before anybody is placed.
    pub(super) fn watch(&mut self, class: &Class) {
        let (constraint, slice) = class;
        if slice.is_none() {
            self.open_ledger(constraint);
            return;
        }
        if self.watched.contains_key(class) {
            return;
        }
        let (constraint, slice) = within(constraint, slice);
        let eligible: BTreeSet<NodeId> = ledger::eligible(self.state, &constraint);
        let pieces = self.grids.by_cluster.iter().map(|(cluster, grid)| (*cluster, grid.pieces(&slice))).collect();
        let mut watched = Watched { ledger: Ledger::of(self.state, self.now, eligible, None), pieces };
        for (cluster, grid) in &self.grids.by_cluster {
            let all_times = (self.now, Time::NEVER);
            let mut blocks = Vec::new();
            for node in grid.usable().filter(|node| watched.ledger.contains(*node)) {
                let room = watched.times_with_room(&self.grids, *cluster, node, all_times);
                blocks.extend(without(&room, all_times).map(|(from, until)| Block { from, until, nodes: 1 }));
            }
            watched.ledger.show(*cluster, Profile::from_blocks(blocks));
        }
        if self.all.keeps_digests() {
            watched.ledger.keep_digests(self.now);
        }
        self.watched.insert(class.clone(), watched);
    }

    /// What a class looks like by now, with the constraint that stands for it, if that excludes any; it is watched.
    pub(super) fn seen_as(&self, class: &Class) -> (&Ledger<'a>, (Option<Constraint>, Slice)) {
        let (constraint, slice) = class;
        if let Some(watched) = self.watched.get(class) {
            return (&watched.ledger, (Some(constraint.clone()), slice.clone()));
        }
        match self.stands_for.get(constraint).and_then(Option::as_ref) {
            Some(known) => (&self.special[known], (Some(known.clone()), Slice::default())),
            None => (&self.all, (None, Slice::default())),
        }
    }

    /// When places that are about to be taken, or given back, have room for what is watched.
    pub(super) fn room_before(&self, places: &[Place], times: (Time, Time)) -> RoomBefore {
        let room = |watched: &Watched<'a>| {
            let of_place = |place: &Place| watched.times_with_room(&self.grids, place.cluster, place.node, times);
            places.iter().map(of_place).collect()
        };
        self.watched.values().map(room).collect()
    }

    /// They were taken, or given back.
    pub(super) fn show_room(&mut self, places: &[Place], times: (Time, Time), before: RoomBefore) {
        for (watched, before) in self.watched.values_mut().zip(before) {
            for (place, before) in places.iter().zip(before) {
                let after = watched.times_with_room(&self.grids, place.cluster, place.node, times);
                if before == after {
                    continue;
                }
                for (times, nodes) in [(before, 1), (after, -1)] {
                    for (from, until) in times {
                        watched.ledger.add(place.cluster, Block { from, until, nodes });
                    }
                }
            }
        }
    }
}

/// The times between these, which are in order.
fn without(times: &[(Time, Time)], (from, until): (Time, Time)) -> impl Iterator<Item = (Time, Time)> + '_ {
    let begins = std::iter::once(from).chain(times.iter().map(|(_, end)| *end));
    let ends = times.iter().map(|(begin, _)| *begin).chain([until]);
    begins.zip(ends).filter(|(begin, end)| begin < end)
}

#[cfg(test)]
mod tests {
    use rms_api::call::{Nodes, Shape};
    use rms_model::{Inventory, Mebibytes, Span};

    use super::*;
    use crate::tests::World;
    use crate::tests::dice::for_seeds;

    #[test]
    fn what_is_kept_up_is_what_is_left_when_all_are_placed() {
        for_seeds("what_is_kept_up_is_what_is_left_when_all_are_placed", 100, |dice| {
            let mut world = World::new();
            world.set("allocation", "cores");
            let all_cores: Vec<u32> = (0..dice.number(1, 4)).map(|_| dice.number(1, 8)).collect();
            for (idx, cores) in all_cores.iter().copied().enumerate() {
                let memory = Mebibytes(u64::from(cores) * 1000);
                let inventory = Inventory { cores, cpus: cores, memory, ..Inventory::default() };
                world.joins(&format!("n{idx}"), inventory, Vec::new());
            }
            let most = all_cores.iter().copied().min().unwrap_or(1);
            for _ in 0..dice.number(1, 12) {
                let (nodes, cores) = (dice.number(1, all_cores.len() as u32), dice.number(1, most));
                let (secs, memory) = (i64::from(dice.number(1, 50)), Mebibytes(u64::from(dice.number(0, 1000))));
                world.submit_with(|submission| {
                    submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
                    (submission.n_tasks, submission.cpus_per_task) = (Some(nodes), cores);
                    submission.constraint.memory = memory;
                });
            }
            let state = world.rms.state();
            let mut pass = Pass::new(state, world.now, 0);
            let slice = |cores, memory| Slice { cores, memory: Mebibytes(memory), ..Slice::default() };
            let classes = [slice(1, 0), slice(3, 0), slice(1, 1500)].map(|slice| (Constraint::default(), slice));
            classes.iter().for_each(|class| pass.watch(class));
            for job in state.queue() {
                pass.place(&state.jobs()[&job].spec, world.now);
            }
            for (class, watched) in &std::mem::take(&mut pass.watched) {
                let mut fresh = Pass::new(state, world.now, 0);
                std::mem::swap(&mut fresh.grids.by_cluster, &mut pass.grids.by_cluster);
                fresh.watch(class);
                let again = &fresh.watched[class].ledger;
                for cluster in state.clusters().keys() {
                    let seen = |ledger: &Ledger<'_>| ledger.view.get(cluster).cloned().unwrap_or_default();
                    assert_eq!(seen(&watched.ledger), seen(again), "{class:?}");
                }
                std::mem::swap(&mut fresh.grids.by_cluster, &mut pass.grids.by_cluster);
            }
        });
    }
}
