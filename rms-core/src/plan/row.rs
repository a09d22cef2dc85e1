//! Nodes for stages on clusters that are shared by cores: they are named in advance, because a count of nodes is not
//! enough there.

use std::borrow::Cow;

use rms_model::{JobId, NodeId, Profile, Time};

use super::parts::{cluster_of, to_come};
use super::pass::Pass;
use super::policy;
use crate::state::State;
use crate::state::course::Course;
use crate::state::job::{Job, Started};

/// Returns the nodes that were promised to other applications for stages that begin before this one ends.
pub(super) fn reserved<'a>(state: &'a State, job: JobId, started: &Started) -> impl Iterator<Item = NodeId> + use<'a> {
    let end = started.planned_until();
    let others = state.evolved().filter(move |(other, ..)| *other != job);
    let nodes = others.flat_map(move |(_, entry, _)| to_come(entry, Time::EPOCH));
    nodes.filter(move |(_, from, _)| *from < end).map(|(node, ..)| node)
}

impl Pass<'_> {
    /// Keeps the nodes that running applications will need.
    pub(super) fn reserve_rows(&mut self) {
        for (job, entry, _) in self.state.evolved() {
            self.reserve_row(job, entry, 1);
        }
    }

    /// Keeps the future nodes of an application; with a `sign` of -1, releases them.
    fn reserve_row(&mut self, job: JobId, entry: &Job, sign: i64) {
        for (node, from, until) in to_come(entry, self.now) {
            let known = self.state.nodes().get(&node).filter(|known| known.is_usable());
            let place = known.and_then(|known| self.grids.place_of(job, entry, known.cluster, node));
            self.take_places(place.as_slice(), (from, until), sign);
        }
    }
}

/// Returns the row of a running application, and how many of its nodes are unavailable over time. Nodes that are no
/// longer usable are replaced; with `is_new`, all that the application does not hold.
pub(crate) fn row_beside(
    state: &State,
    now: Time,
    job: JobId,
    course: &Course,
    is_new: bool,
) -> (Vec<NodeId>, Profile) {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return Default::default() };
    let mut pass = Pass::new(state, now, policy::n_free(state));
    pass.reserve_row(job, entry, -1);
    pass.free_places(job, &started.nodes);
    let is_usable = |node: &&NodeId| state.nodes().get(node).is_some_and(|known| known.is_usable());
    let named = course.row.iter().skip(started.nodes.len()).filter(is_usable).filter(|_| !is_new);
    let first: Vec<NodeId> = started.nodes.iter().chain(named).copied().collect();
    let cluster = cluster_of(&started.request);
    let mut spec = Cow::Borrowed(&*entry.spec);
    if started.takes_whole {
        spec.to_mut().resources.exclusive = true;
    }
    let row = pass.grids.row(cluster, &spec, course.peak(), &first).unwrap_or_default();
    (row.places.iter().map(|place| place.node).collect(), row.occupied)
}
