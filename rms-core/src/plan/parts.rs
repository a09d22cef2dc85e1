//! What jobs that hold nodes will hold over time; evolving ones stage by stage.

use std::collections::BTreeSet;

use rms_model::{ClusterId, NodeId, Request, Settings, Span, Time};

use super::Overdue;
use crate::state::job::{Job, Phase, Started};

/// What a job that holds nodes will hold for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) nodes: WhichNodes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhichNodes {
    /// The nodes of its current stage.
    Held,
    /// The nodes of its current stage, without the first of those that it [gives back](Job::returns).
    Staying { n_returns: usize },
    /// The nodes of one cluster, which a ghost may leave before the others.
    In(ClusterId),
    /// The nodes that it has freed at this time, until their processes are gone.
    Leaving { since: Time },
    /// The nodes that are kept for a negotiation with it.
    Promised,
    /// A number of nodes of its cluster, not yet known which.
    Count(u32),
}

/// Returns the times for which a started job or a ghost holds nodes (R3), stage by stage for an evolving one. An
/// overdue job is shown a little longer than now; otherwise others would be planned onto its nodes.
pub(super) fn parts(entry: &Job, now: Time, settings: &Settings) -> Vec<Part> {
    let mut parts = parts_as_held(entry, now, settings);
    // Other jobs are planned for what it gives back; otherwise nodes that gather for one of them would be given out
    // meanwhile.
    for (idx, back) in entry.returns(settings).iter().enumerate() {
        split(
            &mut parts,
            back.at.max(Overdue::new(now, settings).unknown()),
            WhichNodes::Staying { n_returns: idx + 1 },
        );
    }
    parts
}

/// Returns the time for which a job holds its present nodes, as far as is known now.
pub(super) fn held(entry: &Job, now: Time, settings: &Settings) -> Option<(Time, Time)> {
    let parts = parts_as_held(entry, now, settings);
    parts.iter().find(|part| part.nodes == WhichNodes::Held).map(|part| (part.from, part.until))
}

/// Splits off the time after `at` of what a job holds now: then, only `staying` are held.
fn split(parts: &mut Vec<Part>, at: Time, staying: WhichNodes) {
    let is_held = |nodes: WhichNodes| matches!(nodes, WhichNodes::Held | WhichNodes::Staying { .. });
    let held = parts.iter_mut().find(|part| is_held(part.nodes) && part.from <= at && part.until > at);
    match held {
        Some(held) if held.from == at => held.nodes = staying,
        Some(held) => {
            let later = Part { from: at, until: held.until, nodes: staying };
            held.until = at;
            parts.push(later);
        }
        None => {}
    }
}

fn parts_as_held(entry: &Job, now: Time, settings: &Settings) -> Vec<Part> {
    let overdue = Overdue::new(now, settings);
    // It may hold them as long as its other nodes, unless it gets them for a limited time.
    let promised = |held: Part| {
        let all = entry.negotiations.iter().flat_map(|negotiations| &negotiations.all);
        let open = all.filter(|negotiation| !negotiation.held.is_empty());
        let until = open.map(|negotiation| negotiation.free_again(settings, now).unwrap_or(held.until)).max()?;
        Some(Part { until: until.min(held.until), nodes: WhichNodes::Promised, ..held })
    };
    match &entry.phase {
        Phase::Started(started @ Started { evolved: Some(evolved), ending: None, at, late, .. }) => {
            let course = &evolved.course;
            // See `Started::planned_until`.
            let next_change = course.next_change() - *late;
            let late_by = started.stages_late(course, now);
            let is_due = next_change <= now;
            let is_growing = course.next().is_some_and(|next| next.nodes > course.current().nodes);
            let held_until = if is_due && !is_growing { overdue.until(next_change) } else { next_change.max(now) };
            let held = Part { from: (*at).min(now), until: held_until, nodes: WhichNodes::Held };
            let mut parts = vec![held];
            parts.extend(leaving(entry, held, overdue).chain(promised(held)));
            let next_starts = course.legs.iter().skip(2).map(|leg| leg.start).chain([course.end()]);
            for (leg, until) in course.legs.iter().skip(1).zip(next_starts) {
                let from = (leg.start - *late + late_by).max(held_until);
                parts.push(Part { from, until: until - *late + late_by, nodes: WhichNodes::Count(leg.nodes) });
            }
            parts
        }
        Phase::Started(started) => {
            let until = overdue.until(started.planned_until());
            // The clock may have been set back since; a job that holds a node holds it now.
            let held = Part { from: started.at.min(now), until, nodes: WhichNodes::Held };
            std::iter::once(held).chain(leaving(entry, held, overdue)).chain(promised(held)).collect()
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

/// Returns how long it is assumed to hold the nodes that it has freed. Its processes there are ended like those of a job
/// whose wall time is over.
fn leaving(entry: &Job, held: Part, overdue: Overdue) -> impl Iterator<Item = Part> {
    let late = entry.started().map_or(Span::ZERO, |started| started.late);
    let evolved = entry.started().and_then(|started| started.evolved.as_ref());
    let since: BTreeSet<Time> = evolved.iter().flat_map(|evolved| evolved.leaving.values()).copied().collect();
    let part = move |since| Part { until: overdue.until(since - late), nodes: WhichNodes::Leaving { since }, ..held };
    since.into_iter().map(part)
}

/// Lists the nodes that a running application was promised for future stages, with from when until when. Empty where
/// nodes are not shared: they are counted there.
pub(super) fn to_come(entry: &Job, now: Time) -> Vec<(NodeId, Time, Time)> {
    let started = entry.started().filter(|started| started.ending.is_none());
    let Some(started @ Started { evolved: Some(evolved), late, .. }) = started else { return Vec::new() };
    let course = &evolved.course;
    let late_by = started.stages_late(course, now);
    let of_place = |(place, node): (usize, &NodeId)| {
        let times = course.times_to_come(place).into_iter();
        times.map(|(from, until)| (*node, from - *late + late_by, until - *late + late_by)).collect::<Vec<_>>()
    };
    course.row.iter().enumerate().flat_map(of_place).collect()
}

/// Returns the cluster of an evolving application: it has nodes of one only.
pub(crate) fn cluster_of(request: &Request) -> ClusterId {
    request.nodes.keys().next().copied().expect("an evolving application names its cluster")
}
