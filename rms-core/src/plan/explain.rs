//! Why a job is where it is, in terms of the profile that the pass saw.

use rms_model::{ClusterId, JobId, Time};

use super::{Blocked, Placed, Plan, ledger};
use crate::effect::{Blocker, Reason};
use crate::job::{Job, Phase};
use crate::state::State;

/// Why a job that is in the system has not started; `None` if it has, or if it starts with this pass. `queue_idx` is
/// its place in the queue, in whose order `plan` has its placements.
pub(crate) fn reason(
    state: &State,
    plan: &Plan,
    job: JobId,
    queue_idx: Option<usize>,
    next_pass: Time,
) -> Option<Reason> {
    let entry = state.jobs().get(&job)?;
    match &entry.phase {
        Phase::Submitted { hold: Some(hold) } => Some(Reason::Held { by: hold.by.clone() }),
        Phase::Submitted { hold: None } if entry.launcher.is_some() => {
            Some(Reason::NoRequest { until: state.request_until(entry) })
        }
        Phase::Submitted { hold: None } => Some(Reason::NotBefore { at: entry.spec.begin.unwrap_or(entry.submitted) }),
        Phase::RequestSent | Phase::Waiting => {
            let queue_idx = queue_idx?;
            match plan.placements.get(queue_idx) {
                Some(placement) => match (&placement.outcome, launcher_away(state, entry)) {
                    (Placed::Now { .. }, Some(away)) => Some(away),
                    (outcome, _) => outcome_reason(state, plan, job, outcome, next_pass),
                },
                None => {
                    let position = queue_idx as u32 + 1;
                    Some(Reason::BeyondDepth { depth: state.settings().queue_depth, position })
                }
            }
        }
        Phase::Started(_) | Phase::Ghost(_) => None,
    }
}

/// The reason of a placement, without looking for the blockers.
pub(crate) fn short_reason(state: &State, plan: &Plan, entry: &Job, outcome: &Placed) -> Option<Reason> {
    if let (Placed::Now { .. }, Some(away)) = (outcome, launcher_away(state, entry)) {
        return Some(away);
    }
    outcome_reason_by(state, plan, outcome, plan.now, |_| Vec::new())
}

/// It could start, but nobody is there to be told.
fn launcher_away(state: &State, entry: &Job) -> Option<Reason> {
    let since = entry.unheard_since()?;
    Some(Reason::LauncherAway { since, until: Some(since + state.settings().launcher_grace) })
}

/// The same for a placement alone.
pub(crate) fn outcome_reason(
    state: &State,
    plan: &Plan,
    job: JobId,
    outcome: &Placed,
    next_pass: Time,
) -> Option<Reason> {
    outcome_reason_by(state, plan, outcome, next_pass, |blocked| blockers(state, plan, job, blocked))
}

fn outcome_reason_by(
    state: &State,
    plan: &Plan,
    outcome: &Placed,
    next_pass: Time,
    blockers: impl FnOnce(&Blocked) -> Vec<Blocker>,
) -> Option<Reason> {
    match outcome {
        Placed::Now { .. } => Some(Reason::NotPlanned { next_pass }),
        Placed::Never { shortage } => {
            let in_cluster = |entry: &&crate::node::Node| entry.cluster == shortage.cluster;
            Some(Reason::TooFewHosts {
                cluster: state.clusters()[&shortage.cluster].clone(),
                wanted: shortage.wanted,
                usable: shortage.usable,
                total: state.nodes().values().filter(in_cluster).count() as u32,
            })
        }
        Placed::Later { request, blocked, .. } => {
            let Some(blocked) = blocked else {
                let expected = request.hosts.keys().find_map(|cluster| agents_expected(state, *cluster));
                // Otherwise the hosts are held by a job past its wall time: it starts with the next pass.
                return Some(expected.unwrap_or(Reason::NotPlanned { next_pass }));
            };
            Some(Reason::Blocked {
                cluster: state.clusters()[&blocked.cluster].clone(),
                wanted: blocked.wanted,
                capacity: blocked.capacity.max(0) as u32,
                busy: blocked.step.hosts.max(0) as u32,
                from: blocked.step.from.max(plan.now),
                until: blocked.until,
                by: blockers(blocked),
            })
        }
    }
}

/// The agents of this cluster that are waited for after a restart of the server.
fn agents_expected(state: &State, cluster: ClusterId) -> Option<Reason> {
    let (since, _) = state.longest_expected()?;
    let n_nodes = state.n_expected(cluster) as u32;
    let until = since + state.settings().restart_grace;
    let cluster = state.clusters()[&cluster].clone();
    (n_nodes > 0).then_some(Reason::AgentsExpected { cluster, n_nodes, until })
}

/// The jobs before this one that hold hosts in the blocking step, the largest first.
fn blockers(state: &State, plan: &Plan, job: JobId, blocked: &Blocked) -> Vec<Blocker> {
    let instant = blocked.step.from.max(plan.now);
    let mut blockers = Vec::new();
    for (holder, state, block) in ledger::holds(state, plan.now, blocked.cluster) {
        let hosts = block.hosts.max(0) as u32;
        if hosts > 0 && block.from <= instant && instant < block.until {
            blockers.push(Blocker { job: holder, state, hosts });
        }
    }
    for placement in plan.placements.iter().take_while(|placement| placement.job != job) {
        let (Some(at), Some(request)) = (placement.outcome.estimate(plan.now), placement.outcome.request()) else {
            continue;
        };
        let hosts = match placement.outcome.fit() {
            Some(fit) if request.hosts.contains_key(&blocked.cluster) => {
                let mut blocks = fit.expanded.blocks(fit.start);
                blocks
                    .find(|block| block.from <= instant && instant < block.until)
                    .map_or(0, |block| block.hosts as u32)
            }
            Some(_) | None => request.hosts.get(&blocked.cluster).copied().unwrap_or(0),
        };
        if hosts > 0 && at <= instant && instant < at + request.wall {
            blockers.push(Blocker { job: placement.job, state: state.jobs()[&placement.job].state(), hosts });
        }
    }
    blockers.sort_by_key(|blocker| (std::cmp::Reverse(blocker.hosts), blocker.job));
    blockers.truncate(MAX_BLOCKERS);
    blockers
}

/// More would not be read.
const MAX_BLOCKERS: usize = 16;
