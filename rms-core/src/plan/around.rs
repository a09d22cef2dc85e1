//! What the queue would look like if running applications had more hosts, or fewer.

use negotiation::NegotiationId;
use rms_model::job::TaskCount;
use rms_model::{ClusterId, JobId, JobSpec, NodeId, Profile, Request, Span, Time, View};

use super::evolve::{self, Hosts};
use super::policy::{Walk, considered, n_free};
use super::{Placed, Plan, Scope};
use crate::state::State;
use crate::state::job::Started;

/// Hosts that a running application would have from now on until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) job: JobId,
    pub(crate) cluster: ClusterId,
    pub(crate) hosts: u32,
}

/// Hosts that a running application would hold no more, instead of until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) until: Time,
}

/// The plan with all estimates, if these applications got so many more hosts before anybody else gets some. `None` if
/// such hosts are not free, or will be needed by applications that run.
pub(crate) fn plan_around(state: &State, now: Time, gains: &[Gain]) -> Option<Plan> {
    plan_after(state, now, &[], gains)
}

/// The same, if these losses come before.
pub(crate) fn plan_after(state: &State, now: Time, losses: &[Loss], gains: &[Gain]) -> Option<Plan> {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let base = View::clone(&walk.pass.all.view);
    let gains = gains.iter().map(|gain| as_another_job(state, now, gain)).collect::<Option<Vec<JobSpec>>>()?;
    losses.iter().for_each(|loss| walk.pass.free_up(&loss.nodes, loss.until));
    for spec in gains {
        match walk.pass.place(&spec, now) {
            Placed::Now { .. } => {}
            Placed::Later { .. } | Placed::Never { .. } => return None,
        }
    }
    walk.queue(considered(state), Scope::Estimates);
    Some(Plan { now, placements: walk.placements, base, last_view: walk.pass.all.view.into_owned() })
}

/// The plan with all estimates, if a running application held its hosts for so much longer.
pub(crate) fn plan_if_longer(state: &State, now: Time, job: JobId, more: Span) -> Plan {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let base = View::clone(&walk.pass.all.view);
    let entry = &state.jobs()[&job];
    if let Some(started) = entry.started() {
        let from = (started.at + started.request.wall).max(now);
        walk.pass.keep_busy(entry.nodes(), from, from + more);
    }
    walk.queue(considered(state), Scope::Estimates);
    Plan { now, placements: walk.placements, base, last_view: walk.pass.all.view.into_owned() }
}

/// The plan with all estimates, if these hosts, and no others, were kept for what is negotiated with a running
/// application; those that are not kept yet are free.
pub(crate) fn plan_if_kept(state: &State, now: Time, job: JobId, id: NegotiationId, hosts: &[NodeId]) -> Plan {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let entry = &state.jobs()[&job];
    let case = entry.talks.as_ref().and_then(|talks| talks.case(id));
    if let (Some(case), Some((from, until))) = (case, evolve::held(entry, now, state.settings())) {
        let (more, fewer): (Vec<NodeId>, Vec<NodeId>) = (
            hosts.iter().filter(|node| !case.held.contains(node)).copied().collect(),
            case.held.iter().filter(|node| !hosts.contains(node)).copied().collect(),
        );
        walk.pass.free_up(&fewer, until);
        walk.pass.keep_from_others(&more, from, until);
    }
    let base = View::clone(&walk.pass.all.view);
    walk.queue(considered(state), Scope::Estimates);
    Plan { now, placements: walk.placements, base, last_view: walk.pass.all.view.into_owned() }
}

/// Would a waiting application start at once if these hosts were free, beside those that applications are leaving?
pub(crate) fn starts_after(state: &State, now: Time, waiting: JobId, losses: &[Loss]) -> bool {
    let shows = |_: JobId| false;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let leaving = state.holding().flat_map(|(_, entry)| {
        let parts = evolve::parts(entry, now, state.settings()).into_iter().filter(|part| part.hosts == Hosts::Leaving);
        parts.map(|part| Loss { nodes: entry.leaving(), until: part.until })
    });
    for Loss { nodes, until } in leaving.chain(losses.iter().cloned()) {
        walk.pass.free_up(&nodes, until);
    }
    walk.queue(considered(state), Scope::Estimates);
    let found = walk.placements.iter().find(|placement| placement.job == waiting);
    found.and_then(|placement| placement.outcome.estimate(now)).is_some_and(|estimate| estimate <= now)
}

/// How many hosts of a cluster nobody wants from now until then, if everybody starts as the plan says.
pub(crate) fn room(state: &State, plan: &Plan, cluster: ClusterId, until: Time) -> u32 {
    let capacity = i64::from(state.n_usable(cluster));
    let wanted = plan.last_view.get(&cluster).map_or(0, |profile: &Profile| profile.max(plan.now, until));
    u32::try_from(capacity - wanted).unwrap_or(0)
}

/// Who waits and starts later than it would have: when before, and when now, if it still can.
pub(crate) fn delayed(before: &Plan, after: &Plan) -> impl Iterator<Item = (JobId, Time, Option<Time>)> {
    let mut later = after.placements.iter().map(|placement| (placement.job, placement.outcome.estimate(after.now)));
    before.placements.iter().filter_map(move |placement| {
        let estimate = placement.outcome.estimate(before.now)?;
        // Both are in the order of the queue; who is missing has started or cannot any more.
        let found = later.find(|(job, _)| *job == placement.job).and_then(|(_, later)| later);
        let is_late = found.is_none_or(|later| later > estimate);
        is_late.then_some((placement.job, estimate, found))
    })
}

/// The gain as a job of its own, with what the application wants of each host.
fn as_another_job(state: &State, now: Time, gain: &Gain) -> Option<JobSpec> {
    let entry = state.jobs().get(&gain.job)?;
    let Started { at, request, .. } = entry.started()?;
    let wall = (*at + request.wall).since(now);
    let spec = &*entry.spec;
    let tasks = TaskCount::PerHost(spec.tasks.most_on_a_host(request.n_hosts()));
    let options = vec![Request::on_one(gain.cluster, gain.hosts, wall)];
    (!wall.is_zero()).then(|| JobSpec { tasks, options, evolving: None, malleable: None, ..spec.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::tests::World;

    /// Under each policy, whether or not they were promised.
    #[test]
    fn a_stay_delays_who_was_promised_the_hosts() {
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
