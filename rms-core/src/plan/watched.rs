//! Counts the nodes with room for slices that launchers want to see, while a pass places jobs.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::job::Constraint;
use rms_model::profile::Block;
use rms_model::{ClusterId, NodeId, Profile, Slice, Time};

use super::grid::Place;
use super::grids::Grids;
use super::ledger::{self, Ledger};
use crate::state::{Piece, State, merge_slice};

/// What a launcher wants to see: nodes that meet a constraint, either whole or, with a slice, those with room for it.
pub(super) type Class = (Constraint, Slice);

/// Nodes that can give a slice; one is busy while it has no room for it.
#[derive(Clone, Debug)]
struct WatchedLedger<'a> {
    ledger: Ledger<'a>,
    /// On clusters that are shared by cores, the pieces that serve the slice, by kind of node.
    pieces: BTreeMap<ClusterId, Vec<Vec<Piece>>>,
}

impl WatchedLedger<'_> {
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

/// All that is watched in a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches<'a> {
    by_class: BTreeMap<Class, WatchedLedger<'a>>,
}

/// For each watched class, the times at which the node of each place has room.
pub(super) type RoomBefore = Vec<Vec<Vec<(Time, Time)>>>;

impl<'a> Watches<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_class.is_empty()
    }

    /// Starts to watch a class, which has a slice. Must be called before any job is placed.
    pub(super) fn watch(&mut self, class: &Class, state: &'a State, now: Time, grids: &Grids<'a>) -> &mut Ledger<'a> {
        let (constraint, slice) = merge_slice(&class.0, &class.1);
        let open = || {
            let eligible: BTreeSet<NodeId> = ledger::eligible(state, &constraint);
            let pieces = grids.by_cluster.iter().map(|(cluster, grid)| (*cluster, grid.pieces(&slice))).collect();
            let mut watched = WatchedLedger { ledger: Ledger::of(state, now, eligible, None), pieces };
            for (cluster, grid) in &grids.by_cluster {
                let all_times = (now, Time::NEVER);
                let mut blocks = Vec::new();
                for node in grid.usable().filter(|node| watched.ledger.contains(*node)) {
                    let room = watched.times_with_room(grids, *cluster, node, all_times);
                    blocks.extend(gaps(&room, all_times).map(|(from, until)| Block { from, until, nodes: 1 }));
                }
                watched.ledger.show(*cluster, Profile::from_blocks(blocks));
            }
            watched
        };
        &mut self.by_class.entry(class.clone()).or_insert_with(open).ledger
    }

    pub(super) fn ledger(&self, class: &Class) -> Option<&Ledger<'a>> {
        self.by_class.get(class).map(|watched| &watched.ledger)
    }

    pub(super) fn ledgers_mut(&mut self) -> impl Iterator<Item = &mut Ledger<'a>> {
        self.by_class.values_mut().map(|watched| &mut watched.ledger)
    }

    /// Returns the times at which places that are about to be taken, or given back, have room for what is watched.
    pub(super) fn room_before(&self, grids: &Grids<'_>, places: &[Place], times: (Time, Time)) -> RoomBefore {
        let room = |watched: &WatchedLedger<'a>| {
            let of_place = |place: &Place| watched.times_with_room(grids, place.cluster, place.node, times);
            places.iter().map(of_place).collect()
        };
        self.by_class.values().map(room).collect()
    }

    /// Updates the ledgers after the places were taken, or given back.
    pub(super) fn show_room(&mut self, grids: &Grids<'_>, places: &[Place], times: (Time, Time), before: RoomBefore) {
        for (watched, before) in self.by_class.values_mut().zip(before) {
            for (place, before) in places.iter().zip(before) {
                let after = watched.times_with_room(grids, place.cluster, place.node, times);
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

/// Returns the times between these, which are in order.
fn gaps(times: &[(Time, Time)], (from, until): (Time, Time)) -> impl Iterator<Item = (Time, Time)> + '_ {
    let begins = std::iter::once(from).chain(times.iter().map(|(_, end)| *end));
    let ends = times.iter().map(|(begin, _)| *begin).chain([until]);
    begins.zip(ends).filter(|(begin, end)| begin < end)
}

#[cfg(test)]
mod tests {
    use rms_api::call::{Nodes, Shape};
    use rms_model::{Inventory, Mebibytes, Span};

    use super::super::pass::Pass;
    use super::*;
    use crate::tests::World;
    use test_kit::for_seeds;

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
            for class in &classes {
                let watched = pass.watches.ledger(class).expect("it is watched");
                let mut fresh = Watches::default();
                let again = fresh.watch(class, state, world.now, &pass.grids);
                for cluster in state.clusters().keys() {
                    let seen = |ledger: &Ledger<'_>| ledger.view.get(cluster).cloned().unwrap_or_default();
                    assert_eq!(seen(watched), seen(again), "{class:?}");
                }
            }
        });
    }
}
