//! Plans what would happen to the queue if running applications had more nodes, or fewer.

use std::collections::BTreeMap;

use negotiation::NegotiationId;
use rms_model::job::TaskCount;
use rms_model::{
    ClusterId, Devices, JobId, JobSpec, NodeId, Profile, Request, ResourceRequest, Slice, Span, Time, View,
};

use super::parts::{self, WhichNodes};
use super::policy::{Walk, considered, n_free};
use super::promised::{Longer, PromisedStages};
use super::{Placed, Plan, Scope};
use crate::state::State;
use crate::state::job::Started;
use crate::state::negotiations::Negotiation;

/// Additional nodes that a running application would have from now until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) job: JobId,
    pub(crate) cluster: ClusterId,
    pub(crate) nodes: u32,
}

/// Nodes that a running application would give up now, instead of holding them until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) job: JobId,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) until: Time,
}

/// Returns the plan with all estimates, if these applications got their additional nodes before any job starts. `None`
/// if such nodes are not free, or running applications will need them.
pub(crate) fn plan_around(state: &State, now: Time, gains: &[Gain]) -> Option<Plan> {
    plan_after(state, now, &[], gains)
}

/// As [`plan_around`], with these losses before the gains.
pub(crate) fn plan_after(state: &State, now: Time, losses: &[Loss], gains: &[Gain]) -> Option<Plan> {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    walk.pass.count_whole_nodes();
    let base = View::clone(&walk.pass.all.view);
    let gains = gains.iter().map(|gain| as_another_job(state, now, gain)).collect::<Option<Vec<JobSpec>>>()?;
    losses.iter().for_each(|loss| walk.pass.free_up(loss.job, &loss.nodes, loss.until));
    for spec in gains {
        match walk.pass.place(&spec, now) {
            Placed::Now { .. } => {}
            Placed::Later { .. } | Placed::Never { .. } => return None,
        }
    }
    walk.queue(considered(state), Scope::Estimates);
    Some(walk.into_plan(base))
}

/// Returns the plan with all estimates, if a running application held its nodes longer by `more`.
pub(crate) fn plan_if_longer(state: &State, now: Time, job: JobId, more: Span) -> Plan {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    walk.pass.count_whole_nodes();
    let base = View::clone(&walk.pass.all.view);
    if let Some(started) = state.jobs()[&job].started() {
        walk.pass.keep_longer(job, started.planned_until().max(now), more);
    }
    walk.queue(considered(state), Scope::Estimates);
    walk.into_plan(base)
}

/// Returns the plan with all estimates, if exactly these nodes were kept for a negotiation with a running application,
/// and it ended later by `longer`. Nodes that are not kept yet are free.
pub(crate) fn plan_if_kept(
    state: &State,
    now: Time,
    (job, id): (JobId, NegotiationId),
    nodes: &[NodeId],
    longer: Span,
) -> Plan {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let entry = &state.jobs()[&job];
    let negotiation = entry.negotiations.as_ref().and_then(|negotiations| negotiations.get(id));
    if let (Some(negotiation), Some((from, until))) = (negotiation, parts::held(entry, now, state.settings())) {
        for cluster in state.clusters().keys() {
            let is_here = |node: &&NodeId| state.nodes().get(node).is_some_and(|known| known.cluster == *cluster);
            let (more, fewer): (Vec<NodeId>, Vec<NodeId>) = (
                nodes.iter().filter(is_here).filter(|node| !negotiation.held.contains(node)).copied().collect(),
                negotiation.held.iter().filter(is_here).filter(|node| !nodes.contains(node)).copied().collect(),
            );
            let until = kept_until(state, now, (negotiation, *cluster), until);
            walk.pass.free_up(job, &fewer, until);
            walk.pass.keep_from_others(job, &more, from, until);
        }
        if !longer.is_zero() {
            walk.pass.keep_busy(job, nodes, until, until + longer);
            walk.pass.keep_longer(job, until, longer);
        }
    }
    walk.pass.count_whole_nodes();
    let base = View::clone(&walk.pass.all.view);
    walk.queue(considered(state), Scope::Estimates);
    walk.into_plan(base)
}

/// Returns whether a waiting application would start at once if these nodes were free, together with those that
/// applications are leaving.
pub(crate) fn starts_after(state: &State, now: Time, waiting: JobId, losses: &[Loss]) -> bool {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let leaving = state.holding().flat_map(|(job, entry)| {
        parts::parts(entry, now, state.settings()).into_iter().filter_map(move |part| match part.nodes {
            WhichNodes::Leaving { since } => {
                Some(Loss { job, nodes: entry.left_at(since).collect(), until: part.until })
            }
            _ => None,
        })
    });
    for Loss { job, nodes, until } in leaving.chain(losses.iter().cloned()) {
        walk.pass.free_up(job, &nodes, until);
    }
    walk.queue(considered(state), Scope::Estimates);
    let found = walk.placements.iter().find(|placement| placement.job == waiting);
    found.and_then(|placement| placement.outcome.estimate(now)).is_some_and(|estimate| estimate <= now)
}

/// Returns how many nodes of a cluster no job wants from now until `until`, if all jobs start as the plan says.
pub(crate) fn room(state: &State, plan: &Plan, cluster: ClusterId, until: Time) -> u32 {
    if let Some(clear_until) = plan.shared.clear_until.get(&cluster) {
        return clear_until.iter().filter(|clear| **clear >= until).count() as u32;
    }
    let capacity = i64::from(state.n_usable(cluster));
    let wanted = plan.last_view.get(&cluster).map_or(0, |profile: &Profile| profile.max(plan.now, until));
    u32::try_from(capacity - wanted).unwrap_or(0)
}

/// Returns how many nodes of a cluster an application may get by a negotiation beside its own, for as long as it would
/// hold them, while all jobs start as the plan says.
pub(crate) fn room_beside(state: &State, plan: &Plan, (job, id): (JobId, NegotiationId), cluster: ClusterId) -> u32 {
    let entry = &state.jobs()[&job];
    let Some((_, until)) = parts::held(entry, plan.now, state.settings()) else { return 0 };
    let negotiation = entry.negotiations.as_ref().and_then(|negotiations| negotiations.get(id));
    let kept_until = |negotiation| kept_until(state, plan.now, (negotiation, cluster), until);
    room(state, plan, cluster, negotiation.map_or(until, kept_until))
}

/// Returns how many of these nodes of a cluster, in their order, an application may get by a negotiation and hold as long
/// as it would, and its other nodes longer by `longer`, so that each stage promised to another one begins in time.
pub(crate) fn n_beside_stages(
    state: &State,
    now: Time,
    (job, id): (JobId, NegotiationId),
    (cluster, nodes): (ClusterId, &[NodeId]),
    longer: Span,
) -> usize {
    let entry = &state.jobs()[&job];
    let negotiation = entry.negotiations.as_ref().and_then(|negotiations| negotiations.get(id));
    let held = parts::held(entry, now, state.settings());
    let (Some(negotiation), Some((_, end))) = (negotiation, held) else { return nodes.len() };
    let promised = PromisedStages::of(state, now, cluster);
    // Where nodes are shared, stages have theirs, and only what is left beside them can be granted.
    if promised.is_empty() || state.is_shared(cluster) {
        return nodes.len();
    }
    let until = kept_until(state, now, (negotiation, cluster), end);
    let are_in_time = |n_nodes: usize| {
        let nodes = &nodes[..n_nodes];
        let more = nodes.iter().filter(|node| !negotiation.held.contains(node)).copied().collect();
        let all = entry.nodes().iter().chain(nodes).copied().collect();
        let longer = Longer { nodes: all, from: end, until: end + longer };
        promised.first_late(&[Longer { nodes: more, from: now, until }, longer]).is_none()
    };
    // What is kept for it stays so, whatever has happened since.
    let n_kept = nodes.iter().take_while(|node| negotiation.held.contains(node)).count();
    let (mut most, mut too_many) = (if longer.is_zero() { n_kept } else { 0 }, nodes.len() + 1);
    while too_many - most > 1 {
        let middle = most.midpoint(too_many);
        *(if are_in_time(middle) { &mut most } else { &mut too_many }) = middle;
    }
    most
}

/// Returns until when an application keeps nodes that it gets now by a negotiation: until it ends, or for a limited time.
fn kept_until(state: &State, now: Time, (negotiation, cluster): (&Negotiation, ClusterId), end: Time) -> Time {
    // Where nodes are shared, each is planned to be kept: it is unknown which ones are given back.
    let limited = negotiation.free_again(state.settings(), now).filter(|_| !state.is_shared(cluster));
    limited.map_or(end, |free| free.min(end))
}

/// Returns what no job has or is planned to have, from now on until the job ends, of nodes that the job holds on
/// clusters shared by cores. The job may end later by `longer`.
pub(crate) fn spare(state: &State, now: Time, job: JobId, nodes: &[NodeId], longer: Span) -> Vec<Slice> {
    let (walk, until) = walk_if_longer(state, now, job, longer);
    let spare = |node: &NodeId| walk.pass.grids.spare(state.nodes().get(node)?.cluster, *node, until);
    nodes.iter().map(|node| spare(node).unwrap_or_default()).collect()
}

/// As [`spare`], for licences of a cluster.
pub(crate) fn spare_licences(
    state: &State,
    now: Time,
    job: JobId,
    cluster: ClusterId,
    name: &str,
    longer: Span,
) -> u32 {
    let (walk, until) = walk_if_longer(state, now, job, longer);
    walk.pass.licences.spare(cluster, name, (now, until))
}

/// Places all waiting jobs beside a running application that stays longer by `longer`; returns when that one ends, too.
fn walk_if_longer(state: &State, now: Time, job: JobId, longer: Span) -> (Walk<'_, '_>, Time) {
    let mut walk = Walk::new(state, now, n_free(state), &|_: JobId| false);
    let until = parts::held(&state.jobs()[&job], now, state.settings()).map_or(now, |(_, until)| until);
    walk.pass.keep_longer(job, until, longer);
    walk.queue(considered(state), Scope::Estimates);
    (walk, until + longer)
}

/// Returns for how long after its end an application may keep its nodes, while all jobs start as the plan says.
pub(crate) fn room_after(state: &State, plan: &Plan, job: JobId) -> Span {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return Span::ZERO };
    let from = started.planned_until().max(plan.now);
    let mut n_nodes: BTreeMap<ClusterId, i64> = BTreeMap::new();
    let clusters = entry.nodes().iter().filter_map(|node| Some(state.nodes().get(node)?.cluster));
    clusters.for_each(|cluster| *n_nodes.entry(cluster).or_default() += 1);
    let next_use = entry.nodes().iter().filter_map(|node| plan.shared.next_use.get(node)).min();
    let full_from =
        n_nodes.iter().filter(|(cluster, _)| !state.is_shared(**cluster)).filter_map(|(cluster, n_nodes)| {
            let most = i64::from(state.n_usable(*cluster)) - n_nodes;
            let profile = plan.last_view.get(cluster)?;
            profile.change_points(from).find(|at| profile.at(*at) > most)
        });
    full_from.chain(next_use.copied()).min().map_or(Span::MAX_WALL, |full_from| full_from.since(from))
}

/// Lists the waiting jobs that start later than before: their previous start, and the new one, if they still can start.
pub(crate) fn delayed(before: &Plan, after: &Plan) -> impl Iterator<Item = (JobId, Time, Option<Time>)> {
    let mut later = after.placements.iter().map(|placement| (placement.job, placement.outcome.estimate(after.now)));
    before.placements.iter().filter_map(move |placement| {
        let estimate = placement.outcome.estimate(before.now)?;
        // Both are in queue order; a job that is missing has started, or cannot start any more.
        let found = later.find(|(job, _)| *job == placement.job).and_then(|(_, later)| later);
        let is_late = found.is_none_or(|later| later > estimate);
        is_late.then_some((placement.job, estimate, found))
    })
}

/// Turns the gain into a job of its own, with what the application wants of each node.
fn as_another_job(state: &State, now: Time, gain: &Gain) -> Option<JobSpec> {
    let entry = state.jobs().get(&gain.job)?;
    let Started { at, request, .. } = entry.started()?;
    let wall = (*at + request.wall).since(now);
    let spec = &*entry.spec;
    let tasks = TaskCount::PerNode(spec.tasks.most_on_a_node(entry.started()?.began_with()));
    let options = vec![Request::on_one(gain.cluster, gain.nodes, wall)];
    // A growing application already has its licences.
    let resources = ResourceRequest { licences: Devices::default(), ..spec.resources.clone() };
    (!wall.is_zero()).then(|| JobSpec { tasks, options, resources, evolving: None, malleable: None, ..spec.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::tests::World;
    use negotiation::Side;
    use test_kit::for_seeds;

    /// The room in a plan is exactly what can be used without a delay: no further planning is needed to find it out.
    #[test]
    fn the_room_in_a_plan_is_all_that_delays_nobody() {
        let mut n_partial = 0;
        for_seeds("the_room_in_a_plan_is_all_that_delays_nobody", 200, |dice| {
            let mut world = World::new();
            world.set("policy", ["views", "fcfs", "easy", "conservative"][dice.number(0, 3) as usize]);
            let n_nodes = dice.number(2, 12);
            (1..=n_nodes).for_each(|number| _ = world.node(&format!("n{number}"), &[]));
            let grows = world.submit(dice.number(1, n_nodes), dice.number(100, 300).into(), &[]);
            for _ in 0..dice.number(1, 12) {
                world.now += Span::from_secs(dice.number(0, 5).into());
                world.submit(dice.number(1, n_nodes), dice.number(10, 300).into(), &[]);
            }
            let (state, now) = (world.rms.state(), world.now);
            if state.jobs().get(&grows).is_none_or(|entry| entry.started().is_none()) || state.n_queued() == 0 {
                return;
            }
            assert!(state.wants_are_plain());
            let before = plan(state, now, Scope::Estimates);
            let cluster = *state.clusters().keys().next().expect("there is one");
            let no_negotiation = NegotiationId { initiator: Side::Rms, number: 1 };
            let n_free = room_beside(state, &before, (grows, no_negotiation), cluster);
            for nodes in 1..=state.n_free(cluster) as u32 {
                let after = plan_around(state, now, &[Gain { job: grows, cluster, nodes }]);
                let delays = after.is_none_or(|after| delayed(&before, &after).next().is_some());
                assert_eq!(delays, nodes > n_free, "{nodes} nodes");
                n_partial += u32::from(!delays);
            }
            let longest = room_after(state, &before, grows);
            for more in [longest, longest + Span::from_millis(1)].into_iter().filter(|more| *more < Span::MAX_WALL) {
                let after = plan_if_longer(state, now, grows, more);
                let delays = delayed(&before, &after).next().is_some();
                assert_eq!(delays, more > longest, "{more} more");
                n_partial += u32::from(!delays && !more.is_zero());
            }
        });
        assert!(n_partial > 20, "only {n_partial} were of interest");
    }

    /// Holds under each policy, whether or not the job has a promise.
    #[test]
    fn a_stay_delays_who_was_promised_the_nodes() {
        for policy in ["views", "fcfs", "easy", "conservative"] {
            let mut world = World::new();
            world.set("policy", policy);
            (1..=2).for_each(|number| _ = world.node(&format!("n{number}"), &[]));
            let runs = world.submit(1, 100, &[]);
            let waits = world.submit(2, 100, &[]);
            let (state, now) = (world.rms.state(), world.now);
            let before = plan(state, now, Scope::Estimates);
            let after = plan_if_longer(state, now, runs, Span::from_secs(50));
            let late = now + Span::from_secs(150);
            let delayed: Vec<_> = delayed(&before, &after).collect();
            assert_eq!(delayed, [(waits, now + Span::from_secs(100), Some(late))], "{policy}");
        }
    }
}
