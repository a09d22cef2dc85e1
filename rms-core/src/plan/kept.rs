//! What a pass under the policy `conservative` leaves for the next one, where all clusters are shared by cores: the
//! timelines of the nodes with all that is planned on them. Between two passes few nodes change, so that the next pass
//! takes the promises of few nodes anew, and not all of them.
//!
//! A promise fits if all promises and jobs of its nodes fit together, in whichever order they are taken. So promises on
//! unchanged nodes still fit, and one that does not fit on a changed node means that all are to be taken anew, in the
//! order of the queue.

use std::collections::BTreeMap;

use rms_model::{ClusterId, JobId, Span};

use super::alike::Timelines;
use super::grid::{Grid, Place};
use super::grids::Grids;
use super::pass::Pass;
use super::slots::{Held, Slot, Slots};
use super::taken::Taken;
use super::timeline::Timeline;
use crate::state::fact::Fact;
use crate::state::{Demand, Piece, State};

#[derive(Debug, Default)]
pub(crate) struct KeptPlan {
    grids: BTreeMap<ClusterId, KeptGrid>,
    /// The waiting jobs that have places, all of them later than the pass.
    slots: Slots,
}

#[derive(Debug)]
struct KeptGrid {
    timelines: Timelines,
    /// By the index of the node: the last change of its holds that the timeline shows.
    edits: Vec<u64>,
}

/// The nodes of a cluster whose timelines are drawn anew.
struct Changed {
    nodes: Vec<usize>,
    /// By the index of the node: its place in `nodes`, counted from one; 0 for other nodes.
    places: Vec<usize>,
}

impl KeptPlan {
    /// Returns whether the plan is still of use after this fact. It finds out by itself which holds and promises have
    /// changed.
    pub(crate) fn survives(fact: &Fact) -> bool {
        matches!(
            fact,
            Fact::JobSubmitted { .. }
                | Fact::RequestSent { .. }
                | Fact::JobsQueued { .. }
                | Fact::JobHeld { .. }
                | Fact::JobReleased { .. }
                | Fact::JobPriorityChanged { .. }
                | Fact::StartsPromised { .. }
                | Fact::JobStarted { .. }
                | Fact::ShareRunning { .. }
                | Fact::ShareEnded { .. }
                | Fact::JobEnding { .. }
                | Fact::JobDone { .. }
                | Fact::GhostExpired { .. }
                | Fact::DepthChosen { .. }
                | Fact::Audited { .. }
        )
    }

    /// Lets a pass go on from this plan, brought up to date. Returns what the jobs hold then; `None` if all promises are
    /// to be taken anew.
    pub(super) fn resume<'a>(
        self,
        pass: &mut Pass<'_>,
        jobs: impl Iterator<Item = (JobId, &'a Demand)>,
    ) -> Option<Slots> {
        if self.grids.is_empty() || !tells_all(pass) {
            return None;
        }
        let slots = self.resume_grids(pass, jobs);
        if slots.is_none() {
            pass.grids = Grids::new(pass.state, pass.now);
        }
        slots
    }

    fn resume_grids<'a>(
        mut self,
        pass: &mut Pass<'_>,
        jobs: impl Iterator<Item = (JobId, &'a Demand)>,
    ) -> Option<Slots> {
        let mut changed: BTreeMap<ClusterId, Changed> = BTreeMap::new();
        for (cluster, grid) in &mut pass.grids.by_cluster {
            let KeptGrid { timelines, edits } = self.grids.remove(cluster)?;
            changed.insert(*cluster, grid.changed_since(&edits, pass.state)?);
            grid.timelines = timelines;
        }
        let mut slots = self.slots;
        if reconcile(pass, jobs, &mut slots, &mut changed)? < slots.len() {
            slots.retain(|job, slot| {
                let is_promised = || pass.state.demand(*job).is_some_and(|(_, demand)| demand.promised.is_some());
                let stays = slot.taken().is_none() || is_promised();
                if !stays {
                    pass.grids.forget(slot, &mut changed);
                }
                stays
            });
        }
        let last = slots.values().filter_map(Slot::taken).map(|taken| taken.at).max().unwrap_or(pass.now);
        for grid in pass.grids.by_cluster.values_mut() {
            grid.timelines.advance(pass.now, last);
            grid.has_plans = last > pass.now;
        }
        pass.grids.redraw(&changed, &slots)?;
        Some(slots)
    }

    /// Keeps what the jobs hold for the next pass, if that is of use there.
    pub(super) fn of(pass: &mut Pass<'_>, mut slots: Slots) -> KeptPlan {
        let are_drawn = pass.grids.by_cluster.values().all(|grid| grid.timelines.are_all_drawn());
        let are_plain = slots.values().filter_map(Slot::taken).all(Taken::is_of_places_alone);
        if !tells_all(pass) || !are_drawn || !are_plain {
            return KeptPlan::default();
        }
        slots.retain(|_, slot| {
            let waits = slot.taken().is_some_and(|taken| taken.nodes().is_none() && taken.at > pass.now);
            if !waits {
                // The state will show what the job has now.
                pass.grids.forget(slot, &mut BTreeMap::new());
            }
            waits
        });
        let kept = |(cluster, grid): (ClusterId, Grid<'_>)| {
            let edits = grid.shared.edits().to_vec();
            (cluster, KeptGrid { timelines: grid.timelines, edits })
        };
        KeptPlan { grids: std::mem::take(&mut pass.grids.by_cluster).into_iter().map(kept).collect(), slots }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.grids.is_empty()
    }
}

impl Changed {
    fn new(n_nodes: usize) -> Changed {
        Changed { nodes: Vec::new(), places: vec![0; n_nodes] }
    }

    fn add(&mut self, idx: usize) {
        if self.places[idx] == 0 {
            self.nodes.push(idx);
            self.places[idx] = self.nodes.len();
        }
    }

    fn place(&self, idx: usize) -> Option<usize> {
        self.places[idx].checked_sub(1)
    }
}

/// Compares what waiting jobs hold with what they are promised. Returns how many of them are known; `None` if one was
/// promised something else.
fn reconcile<'a>(
    pass: &mut Pass<'_>,
    jobs: impl Iterator<Item = (JobId, &'a Demand)>,
    slots: &mut Slots,
    changed: &mut BTreeMap<ClusterId, Changed>,
) -> Option<usize> {
    let are_all_open = pass.state.shared().clusters().all(|(_, shared)| shared.are_all_open());
    let first = if are_all_open { pass.now } else { pass.now + Span::from_millis(1) };
    let mut n_known = 0;
    for (job, _) in jobs {
        let entry = &pass.state.jobs()[&job];
        match (slots.get_mut(&job), &entry.promised) {
            (Some(slot), Some(promise)) => {
                let options = &entry.spec.options;
                let request = options.get(promise.option_idx as usize)?;
                let is_size = |taken: &Taken| options.len() == 1 || taken.request == *request;
                let is_kept = |taken: &Taken| is_size(taken) && taken.is_as_promised(promise);
                if !slot.taken().is_some_and(is_kept) || promise.at < first {
                    return None;
                }
                slot.n_checked = None;
                n_known += 1;
            }
            (Some(slot), None) => {
                pass.grids.forget(slot, changed);
                slot.held = Held::Nothing;
                n_known += 1;
            }
            (None, Some(_)) => return None,
            (None, None) if entry.spec.resources.contiguous => return None,
            (None, None) => {}
        }
    }
    Some(n_known)
}

/// Returns whether timelines of nodes tell all that is planned.
fn tells_all(pass: &Pass<'_>) -> bool {
    pass.grids.by_cluster.len() == pass.state.clusters().len() && pass.state.evolved().next().is_none()
}

impl Grids<'_> {
    /// Records that a job does not hold its places any more, and that its nodes are to be drawn anew.
    fn forget(&mut self, slot: &Slot, changed: &mut BTreeMap<ClusterId, Changed>) {
        for Place { cluster, idx, .. } in slot.taken().into_iter().flat_map(|taken| &taken.places) {
            if let Some(grid) = self.by_cluster.get_mut(cluster) {
                grid.timelines.forget_place(*idx);
            }
            if let Some(changed) = changed.get_mut(cluster) {
                changed.add(*idx);
            }
        }
    }

    /// Draws the changed nodes anew, with what jobs hold there; `None` if there is no room for that.
    fn redraw(&mut self, changed: &BTreeMap<ClusterId, Changed>, slots: &Slots) -> Option<()> {
        let held: Vec<&Taken> = slots.values().filter_map(Slot::taken).collect();
        for (cluster, grid) in &mut self.by_cluster {
            let changed = changed.get(cluster)?;
            // By changed node: the jobs that hold something there, and which of their places that is.
            let mut takes: Vec<Vec<(usize, usize)>> = vec![Vec::new(); changed.nodes.len()];
            for (number, taken) in held.iter().enumerate() {
                for (place_idx, place) in taken.places.iter().enumerate().filter(|(_, place)| place.cluster == *cluster)
                {
                    if let Some(node) = changed.place(place.idx) {
                        takes[node].push((number, place_idx));
                    }
                }
            }
            // Many changed nodes are alike.
            let mut alike: BTreeMap<(u64, Vec<usize>), Vec<usize>> = BTreeMap::new();
            for (idx, takes) in std::iter::zip(&changed.nodes, &takes) {
                let key = (grid.line(*idx).digest(), takes.iter().map(|(number, _)| *number).collect());
                alike.entry(key).or_default().push(*idx);
            }
            for nodes in alike.into_values() {
                let places = |idx: usize| {
                    let takes = changed.place(idx).map_or(&[][..], |place| &takes[place]);
                    takes.iter().map(|(number, place)| (held[*number], &held[*number].places[*place].piece))
                };
                let are_alike = |one: &usize, other: &usize| {
                    let pieces = |idx| places(idx).map(|(_, piece)| piece);
                    grid.line(*one).is_like(grid.line(*other)) && pieces(*one).eq(pieces(*other))
                };
                let runs: Vec<&[usize]> = nodes.chunk_by(are_alike).collect();
                for nodes in runs {
                    grid.redraw(nodes, places(nodes[0]))?;
                }
            }
        }
        Some(())
    }
}

impl Grid<'_> {
    /// Returns the nodes that a timeline of an earlier pass does not show as they are; `None` if there are other nodes
    /// now. Until when jobs stay that should have left depends on the time.
    fn changed_since(&self, edits: &[u64], state: &State) -> Option<Changed> {
        if edits.len() != self.lines().len() {
            return None;
        }
        let mut changed = Changed::new(edits.len());
        let edited = std::iter::zip(self.shared.edits(), edits).enumerate().filter(|(_, (now, before))| now != before);
        edited.for_each(|(idx, _)| changed.add(idx));
        let overdue = state.shared().ends(self.cluster).take_while(|(until, _)| *until <= self.now);
        overdue.flat_map(|(_, nodes)| nodes).for_each(|idx| changed.add(idx));
        Some(changed)
    }

    /// Draws nodes that are alike anew, with these pieces that jobs hold there; `None` if there is no room for that.
    fn redraw<'t>(&mut self, nodes: &[usize], pieces: impl Iterator<Item = (&'t Taken, &'t Piece)>) -> Option<()> {
        let line = &self.shared.lines()[nodes[0]].1;
        let mut timeline = Timeline::of(line, &self.shared.kinds()[line.kind], self.now, self.overdue);
        for (taken, piece) in pieces {
            if !timeline.fits_at(piece, taken.wall(), taken.at) {
                return None;
            }
            timeline.take(taken.at, taken.at + taken.wall(), piece, 1);
        }
        self.timelines.redraw(nodes, line, timeline);
        Some(())
    }
}
