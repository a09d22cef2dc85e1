//! Evolving applications in a pass: what those that run will hold, and where one that waits fits.

use rms_model::job::Constraint;
use rms_model::profile::{Block, Step};
use rms_model::{
    ClusterId, Devices, Evolution, Evolving, JobId, JobSpec, NodeId, Profile, Request, Settings, Span, Time,
};

use super::fit::{self, TooLarge};
use super::grid::Row;
use super::grids::WantedBy;
use super::ledger::{self, Ledger};
use super::pass::{Found, Pass, Taken};
use super::{Blocked, Shortage};
use crate::state::State;
use crate::state::constraint_of;
use crate::state::job::{Job, Phase, Started};
use crate::state::negotiations::promise_end;

/// What a job that holds nodes will hold for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) nodes: WhichNodes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhichNodes {
    /// Those of its current stage.
    Held,
    /// Of those the ones that it has not agreed to give back.
    Staying,
    /// Those of one cluster, of which a ghost may leave one before the others.
    In(ClusterId),
    /// Those it has freed, until their processes are gone.
    Leaving,
    /// Those that are kept for what is negotiated with it.
    Promised,
    /// So many of its cluster; nobody knows yet which.
    Count(u32),
}

/// The times for which a started job or a ghost keeps nodes from others (R3), an evolving one stage by stage. Who should
/// have gone but has not is seen a little longer than now, or others would be planned into it.
pub(super) fn parts(entry: &Job, now: Time, settings: &Settings) -> Vec<Part> {
    let overdue = now + settings.kill_grace.max(Span::from_secs(1));
    let mut parts = parts_as_held(entry, now, overdue);
    if let Some((agreed, _)) = entry.agreed_to_leave() {
        // Others are planned for what it has promised, or nodes that come together for one of them would be lent out
        // meanwhile.
        split(&mut parts, promise_end(settings, agreed).max(overdue));
    }
    parts
}

/// From when until when a job holds what it holds, as far as anybody knows now.
pub(super) fn held(entry: &Job, now: Time, settings: &Settings) -> Option<(Time, Time)> {
    let parts = parts_as_held(entry, now, now + settings.kill_grace.max(Span::from_secs(1)));
    parts.iter().find(|part| part.nodes == WhichNodes::Held).map(|part| (part.from, part.until))
}

/// What is held beyond that time is only what stays.
fn split(parts: &mut Vec<Part>, at: Time) {
    let Some(held) = parts.iter_mut().find(|part| part.nodes == WhichNodes::Held && part.until > at) else { return };
    let later = Part { from: at, until: held.until, nodes: WhichNodes::Staying };
    held.until = at;
    parts.push(later);
}

fn parts_as_held(entry: &Job, now: Time, overdue: Time) -> Vec<Part> {
    match &entry.phase {
        Phase::Started(Started { evolved: Some(evolved), ending: None, at, .. }) => {
            let course = &evolved.course;
            // What is late begins now at the earliest, and what comes after it is late, too.
            let late_by = now.since(course.next_change());
            let is_due = course.next_change() <= now;
            let is_growing = course.next().is_some_and(|next| next.nodes > course.current().nodes);
            let held_until = if is_due && !is_growing { overdue } else { course.next_change() + late_by };
            let mut parts = vec![Part { from: (*at).min(now), until: held_until, nodes: WhichNodes::Held }];
            if !evolved.leaving.is_empty() {
                parts.push(Part { from: (*at).min(now), until: overdue, nodes: WhichNodes::Leaving });
            }
            // It may have them as long as all others.
            if entry.promised_nodes().next().is_some() {
                parts.push(Part { from: (*at).min(now), until: held_until, nodes: WhichNodes::Promised });
            }
            let next_starts = course.legs.iter().skip(2).map(|leg| leg.start).chain([course.end()]);
            for (leg, until) in course.legs.iter().skip(1).zip(next_starts) {
                let from = (leg.start + late_by).max(held_until);
                parts.push(Part { from, until: until + late_by, nodes: WhichNodes::Count(leg.nodes) });
            }
            parts
        }
        Phase::Started(started) => {
            let planned = started.at + started.request.wall;
            // The clock may have been set back since: what holds a node holds it now.
            let until = if planned > now { planned } else { overdue };
            let held = Part { from: started.at.min(now), until, nodes: WhichNodes::Held };
            let leaving = Part { until: overdue, nodes: WhichNodes::Leaving, ..held };
            let promised = Part { nodes: WhichNodes::Promised, ..held };
            let is_leaving = !entry.leaving().is_empty();
            let is_promised = entry.promised_nodes().next().is_some();
            let parts = [Some(held), is_leaving.then_some(leaving), is_promised.then_some(promised)];
            parts.into_iter().flatten().collect()
        }
        Phase::Ghost(ghost) if ghost.parts.is_empty() => {
            vec![Part { from: ghost.done_at.min(now), until: ghost.until, nodes: WhichNodes::Held }]
        }
        Phase::Ghost(ghost) => {
            let part = |cluster: &ClusterId| {
                let (from, until) = (ghost.done_at.min(now), ghost.until_in(*cluster));
                Part { from, until, nodes: WhichNodes::In(*cluster) }
            };
            ghost.request.nodes.keys().map(part).collect()
        }
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => Vec::new(),
    }
}

/// The cluster of an evolving application: it has nodes of one only.
pub(crate) fn cluster_of(request: &Request) -> ClusterId {
    request.nodes.keys().next().copied().expect("an evolving application names its cluster")
}

/// Usable nodes of a cluster that meet a constraint, are outside of `here`, and are not among `held`.
pub(super) fn n_elsewhere(
    state: &State,
    cluster: ClusterId,
    constraint: &Constraint,
    here: &Ledger<'_>,
    held: &[NodeId],
) -> u32 {
    let is_elsewhere = |(node, entry): &(&NodeId, &crate::state::node::Node)| {
        entry.cluster == cluster
            && entry.is_usable()
            && !here.contains(**node)
            && !held.contains(node)
            && ledger::meets(&entry.inventory, constraint)
    };
    state.nodes().iter().filter(is_elsewhere).count() as u32
}

/// Who else is where, as a running application sees it: the occupation of the nodes it may use on its cluster, and how
/// many these are.
pub(crate) fn occupation_beside(state: &State, now: Time, job: JobId) -> (Profile, u32) {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return (Profile::new(), 0) };
    let cluster = cluster_of(&started.request);
    let constraint = constraint_of(&entry.spec, &started.request);
    let all = Ledger::of_all(state, now, Some(job));
    let eligible = ledger::eligible(state, &constraint);
    let special = Ledger::of(state, now, eligible, Some(job));
    occupation(&all, Some(&special), cluster)
}

/// The occupation of the nodes of `special`, of which what others will hold is only known as a number, if that is more
/// than all the other nodes have room for.
fn occupation(all: &Ledger<'_>, special: Option<&Ledger<'_>>, cluster: ClusterId) -> (Profile, u32) {
    let of_all = all.view.get(&cluster).cloned().unwrap_or_default();
    match special {
        None => (of_all, all.capacity_of(cluster)),
        Some(special) => {
            let capacity = special.capacity_of(cluster);
            let spare = i64::from(all.capacity_of(cluster)) - i64::from(capacity);
            let own = special.view.get(&cluster).cloned().unwrap_or_default();
            (own.or_beyond(&of_all, spare), capacity)
        }
    }
}

impl Pass<'_> {
    /// Step 4b of 001, Fig. 5, for an evolving application: where it completes first, its stages are placed by [`fit`].
    /// Of equals, the cluster named first; those that begin by a `latest` start that is given go before the others.
    pub(super) fn find_stages(
        &mut self,
        spec: &JobSpec,
        evolving: &Evolving,
        from: Time,
        latest: Option<Time>,
    ) -> Result<Found, Shortage> {
        let first_nodes = evolving.stages.stages().first().map_or(0, |first| first.nodes);
        let mut best: Option<(Found, (bool, Time))> = None;
        let mut shortage = None;
        for (option_idx, request) in (0..).zip(&spec.options) {
            let cluster = cluster_of(request);
            let constraint = self.stands_for.get(&constraint_of(spec, request)).cloned().flatten();
            let row = self.grids.row(cluster, spec, evolving.stages.peak(), &[]);
            let (occupied, capacity, row) = match row {
                Some(Row { places, occupied }) => (occupied, places.len() as u32, places),
                None => {
                    let (occupied, capacity) = self.occupation(cluster, constraint.as_ref());
                    (occupied, capacity, Vec::new())
                }
            };
            match fit::place(&occupied, capacity, &evolving.stages, evolving.expansion, from) {
                Ok(fit) => {
                    let is_late = latest.is_some_and(|latest| fit.start > latest);
                    let completion = (is_late, fit.completion());
                    let is_first = best.as_ref().is_none_or(|(_, earliest)| completion < *earliest);
                    if is_first {
                        let request = Request::on_one(cluster, first_nodes, fit.expanded.span());
                        let blocked = if fit.start > self.now {
                            blocked(&occupied, (cluster, capacity), &evolving.stages, self.now)
                        } else {
                            None
                        };
                        let start = fit.start;
                        let fit = Some(Box::new(fit));
                        let found = Found {
                            request,
                            option_idx,
                            constraint,
                            start,
                            blocked,
                            fit,
                            wanted: WantedBy::new(),
                            row,
                            licences: Devices::default(),
                        };
                        best = Some((found, completion));
                    }
                }
                Err(TooLarge { wanted, capacity, .. }) => {
                    shortage = Some(Shortage { cluster, wanted, usable: capacity });
                }
            }
        }
        match (best, shortage) {
            (Some((found, _)), _) => Ok(found),
            (None, shortage) => Err(shortage.expect("an accepted job has at least one cluster")),
        }
    }

    /// Takes the stages that were promised from `at` on, if they still fit there.
    pub(super) fn keep_stages(&mut self, spec: &JobSpec, evolving: &Evolving, at: Time) -> Option<Taken> {
        let found = self.find_stages(spec, evolving, at, None).ok()?;
        let fit = found.fit.filter(|fit| fit.start == at)?;
        let taken = Taken::of_stages(found.constraint, found.request, found.row, &fit);
        self.take_again(&taken);
        Some(taken)
    }

    fn occupation(&self, cluster: ClusterId, constraint: Option<&Constraint>) -> (Profile, u32) {
        occupation(&self.all, constraint.map(|constraint| &self.special[constraint]), cluster)
    }
}

/// The first stage that would not fit if the application began now and waited for nothing, and what is in its way.
fn blocked(
    occupied: &Profile,
    (cluster, capacity): (ClusterId, u32),
    stages: &Evolution,
    now: Time,
) -> Option<Blocked> {
    let capacity = i64::from(capacity);
    stages.blocks(now).find_map(|Block { from, until, nodes }| {
        let until = occupied.last_above(capacity - nodes, from, until)?;
        let before = until - Span::from_millis(1);
        let step = Step { from: before.max(from), nodes: occupied.at(before) };
        Some(Blocked { cluster, step, until, wanted: nodes as u32, capacity })
    })
}
