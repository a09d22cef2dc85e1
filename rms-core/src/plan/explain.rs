//! Explains why a job waits, in terms of the profile that the pass saw.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::answer::{Blocker, LicenceShortage, Reason, Shortage};
use rms_model::settings::LauncherPolicy;
use rms_model::{ClusterId, JobId, JobSpec, NodeId, Policy, Request, Span, Time};

use super::lacking::lacking;
use super::overdue::Overdue;
use super::{Blocked, Placed, Placement, Plan, ledger, licences, mates};
use crate::state::job::{Job, Phase};
use crate::state::node::Node;
use crate::state::{NodeRoom, Piece, State, constraint_of, pieces_of};

/// The position of a waiting job: in the present queue, and among the placements of a plan, which may be older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    pub(crate) queue_idx: Option<usize>,
    /// `None` if the plan has no placement of the job, or one of an earlier version of it.
    pub(crate) placed_idx: Option<usize>,
}

/// What is explained: what a job asks for, and its position among the placements of the plan. A job that is not in the
/// plan is behind all of them.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) placed_idx: usize,
}

/// Returns the reason why a job has not started; `None` if it has, or if it starts with this pass.
pub(crate) fn reason(state: &State, plan: &Plan, job: JobId, place: QueuePosition, next_pass: Time) -> Option<Reason> {
    let entry = state.jobs().get(&job)?;
    match &entry.phase {
        Phase::Submitted { hold: Some(hold) } => Some(Reason::Held { by: hold.by.clone() }),
        Phase::Submitted { hold: None } if entry.launcher.is_some() => {
            Some(Reason::NoRequest { until: state.request_until(entry) })
        }
        Phase::Submitted { hold: None } => Some(Reason::NotBefore { at: entry.spec.begin.unwrap_or(entry.submitted) }),
        Phase::RequestSent | Phase::Waiting => {
            let placed = place.placed_idx.and_then(|idx| Some((idx, &plan.placements.get(idx)?.outcome)));
            match (placed, place.queue_idx, launcher_away(state, entry)) {
                (_, _, Some(away)) => Some(away),
                (Some((placed_idx, outcome)), _, None) => {
                    let waiting = Waiting { spec: &entry.spec, placed_idx };
                    outcome_reason(state, plan, waiting, outcome, next_pass)
                }
                (None, queue_idx, None) => Some(match (state.depth(), queue_idx) {
                    (Some(depth), Some(queue_idx)) if queue_idx >= depth as usize => {
                        Reason::BeyondDepth { depth, position: queue_idx as u32 + 1 }
                    }
                    // The job was submitted or changed after this plan was made.
                    (_, _) => Reason::NotPlanned { next_pass },
                }),
            }
        }
        Phase::Started(_) => awaited_launcher(state, entry),
        Phase::Ghost(_) => None,
    }
}

/// Returns the reason of a placement, without a search for the jobs that block it.
pub(crate) fn short_reason(
    state: &State,
    plan: &Plan,
    entry: &Job,
    placed_idx: usize,
    outcome: &Placed,
) -> Option<Reason> {
    if let Some(away) = launcher_away(state, entry) {
        return Some(away);
    }
    let taken = |at, request: &Request, blocked: Option<&Blocked>| busy_step(state, plan.now, at, request, blocked);
    let waiting = Waiting { spec: &entry.spec, placed_idx };
    outcome_reason_by(state, plan, waiting, outcome, plan.now, taken)
}

/// Returns a reason if the launcher is away and cannot be notified of a start; the application ends if it stays away.
fn launcher_away(state: &State, entry: &Job) -> Option<Reason> {
    let since = entry.launcher_away_since()?;
    Some(Reason::LauncherAway { since, until: Some(since + state.settings().launcher_grace) })
}

/// Returns what a started application awaits of its launcher: that it launches or accepts, or that it comes back.
fn awaited_launcher(state: &State, entry: &Job) -> Option<Reason> {
    let launcher = entry.launcher.as_ref()?;
    let (timers, settings) = (entry.launcher_timers(), state.settings());
    let runs_alone = launcher.has_launched() && settings.launcher_policy == LauncherPolicy::Run;
    if let Some(since) = timers.attach.filter(|_| !runs_alone) {
        return Some(Reason::LauncherAway { since, until: Some(since + settings.launcher_grace) });
    }
    let until = |since| (!settings.start_timeout.is_zero()).then(|| since + settings.start_timeout);
    timers.answer.map(|since| Reason::NoRequest { until: until(since) })
}

/// Returns the reason of a placement, with all jobs that block it.
pub(crate) fn outcome_reason(
    state: &State,
    plan: &Plan,
    waiting: Waiting<'_>,
    outcome: &Placed,
    next_pass: Time,
) -> Option<Reason> {
    let taken =
        |at, request: &Request, blocked: Option<&Blocked>| busy_window(state, plan, waiting, at, request, blocked);
    let mut reason = outcome_reason_by(state, plan, waiting, outcome, next_pass, taken);
    if let (Some(Reason::Blocked { lenders, .. }), Placed::Later { request, at, .. }) = (&mut reason, outcome) {
        let placement = plan.placements.get(waiting.placed_idx);
        *lenders = placement.and_then(|placed| mates::lenders(state, plan.now, placed.job, request, *at)).map(Box::new);
    }
    if let (Some(Reason::Blocked { cluster, licence: Some(licence), by, until, .. }), Placed::Later { request, at, .. }) =
        (&mut reason, outcome)
        && let Some(cluster) = state.cluster_named(cluster)
    {
        let planned = plan.placements.get(..waiting.placed_idx).unwrap_or(&plan.placements);
        // It is missing last, or first.
        let from = if *until < *at { plan.now } else { *at - Span::from_millis(1) };
        *by = licences::holders(state, (plan.now, planned), cluster, &licence.name, (from, from + request.wall));
        by.truncate(MAX_BLOCKERS);
    }
    if let (Some(Reason::Blocked { neighbours, by, .. }), Placed::Later { nodes, at, .. }) = (&mut reason, outcome)
        && !neighbours.is_empty()
    {
        *by = holders(state, plan, waiting.placed_idx, (nodes, *at));
    }
    reason
}

fn outcome_reason_by(
    state: &State,
    plan: &Plan,
    Waiting { spec, placed_idx }: Waiting<'_>,
    outcome: &Placed,
    next_pass: Time,
    taken: impl FnOnce(Time, &Request, Option<&Blocked>) -> Option<BusyWindow>,
) -> Option<Reason> {
    match outcome {
        Placed::Now { .. } => Some(Reason::NotPlanned { next_pass }),
        Placed::Never { shortage } => {
            let licence = lacking_licence(state, spec, shortage.cluster).map(Box::new);
            let lacking = licence.is_none().then(|| lacking(state, spec, shortage)).flatten().map(Box::new);
            Some(Reason::TooFewNodes {
                cluster: state.clusters()[&shortage.cluster].clone(),
                wanted: shortage.wanted,
                usable: shortage.usable,
                total: n_nodes(state, shortage.cluster),
                licence,
                contiguous: spec.resources.contiguous,
                lacking,
            })
        }
        Placed::Later { request, at, blocked, nodes, .. } => {
            if let Some((job, until)) = last_waiting_before(state, plan, placed_idx) {
                return Some(Reason::Behind { policy: state.settings().policy, job, until });
            }
            let expected = || request.nodes.keys().find_map(|cluster| agents_expected(state, *cluster));
            if let Some(expected) = blocked.is_none().then(expected).flatten() {
                return Some(expected);
            }
            let wants_neighbours = spec.resources.contiguous;
            let licence = match blocked {
                Some(blocked) => blocked.licence.as_deref().map(|licence| (blocked.cluster, licence.clone())),
                None => licences::shortage(state, plan.now, &spec.resources.licences, request),
            };
            let (mut of_licence, mut licence) = licence.unzip();
            if wants_neighbours && licence.is_none() && *at > plan.now && !nodes.is_empty() {
                return Some(neighbours_blocked(state, plan.now, request, (nodes, *at)));
            }
            let taken = match (&licence, blocked) {
                (Some(_), Some(blocked)) => Some(BusyWindow::step(blocked, plan.now)),
                (_, _) => taken(*at, request, blocked.as_ref()),
            };
            // Nodes are free for it, or will be at once, and no job blocks it.
            let Some(BusyWindow { cluster, wanted, capacity, busy, mut from, mut until, by }) = taken else {
                return Some(Reason::NotPlanned { next_pass });
            };
            // There are nodes until then, but a licence is missing before.
            let earlier = (licence.is_none() && from > plan.now)
                .then(|| licences::missing(state, plan.now, &spec.resources.licences, request));
            if let Some((of_cluster, shortage, at)) = earlier.flatten().filter(|(.., at)| *at < until) {
                (of_licence, licence) = (Some(of_cluster), Some(shortage));
                (from, until) = (plan.now, at);
            }
            Some(Reason::Blocked {
                cluster: state.clusters()[&of_licence.unwrap_or(cluster)].clone(),
                wanted,
                capacity: capacity.max(0) as u32,
                busy: busy.max(0) as u32,
                from,
                until,
                by,
                total: n_nodes(state, cluster),
                short: shortage(state, spec, request, &cluster).map(Box::new),
                licence: licence.map(Box::new),
                neighbours: Vec::new(),
                lenders: None,
            })
        }
    }
}

/// Returns the jobs that hold some of these nodes before a time: those that run, and those planned before.
fn holders(state: &State, plan: &Plan, placed_idx: usize, (nodes, at): (&[NodeId], Time)) -> Vec<Blocker> {
    let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let mut by: Vec<Blocker> = Vec::new();
    let mut hold = |job: JobId, held: &[NodeId], (from, until): (Time, Time)| {
        let n_nodes = held.iter().filter(|node| nodes.contains(node)).count() as u32;
        let Some(entry) = state.jobs().get(&job).filter(|_| n_nodes > 0 && from < at) else { return };
        let (state, is_promised) = (entry.state(), entry.is_queued() && entry.promised.is_some());
        by.push(Blocker { job, state, nodes: n_nodes, from, until, is_offer: false, is_promised });
    };
    let overdue = Overdue::new(plan.now, state.settings());
    for (job, entry) in state.holding() {
        let until = entry.started().map_or(at, |started| overdue.until(started.at + started.request.wall));
        hold(job, entry.nodes(), (plan.now, until.max(plan.now)));
    }
    for placement in plan.placements.get(..placed_idx).unwrap_or_default() {
        match &placement.outcome {
            Placed::Now { request, nodes, .. } => hold(placement.job, nodes, (plan.now, plan.now + request.wall)),
            Placed::Later { request, nodes, at, .. } => hold(placement.job, nodes, (*at, *at + request.wall)),
            Placed::Never { .. } => {}
        }
    }
    by.sort_by_key(|hold| (hold.from, std::cmp::Reverse(hold.nodes), hold.job));
    by.truncate(MAX_BLOCKERS);
    by
}

/// Returns the neighbours that a job waits for, without the jobs that hold them.
fn neighbours_blocked(state: &State, now: Time, request: &Request, (nodes, at): (&[NodeId], Time)) -> Reason {
    let cluster = request.nodes.keys().next().copied().unwrap_or_default();
    let mut in_order: Vec<NodeId> =
        request.nodes.keys().flat_map(|cluster| state.neighbours(*cluster)).copied().collect();
    let wanted: BTreeSet<NodeId> = nodes.iter().copied().collect();
    in_order.retain(|node| wanted.contains(node));
    let is_busy = |node: &&NodeId| state.nodes().get(node).is_some_and(|known| !known.is_free());
    Reason::Blocked {
        cluster: state.clusters().get(&cluster).cloned().unwrap_or_default(),
        wanted: nodes.len() as u32,
        capacity: nodes.len() as u32,
        busy: nodes.iter().filter(is_busy).count() as u32,
        from: now,
        until: at,
        by: Vec::new(),
        total: n_nodes(state, cluster),
        short: None,
        licence: None,
        neighbours: state.node_names(&in_order),
        lenders: None,
    }
}

/// Returns the first licence of which a cluster has too few for a job, even if no other job used any.
fn lacking_licence(state: &State, spec: &JobSpec, cluster: ClusterId) -> Option<LicenceShortage> {
    let all = state.settings().licences_of(&state.clusters()[&cluster]);
    licences::lacking(&spec.resources.licences, all, all)
}

/// Returns how many nodes of a core-shared cluster that the job may use currently have what it takes of each.
fn shortage(state: &State, spec: &JobSpec, request: &Request, cluster: &ClusterId) -> Option<Shortage> {
    let shared = state.shared().get(*cluster)?;
    let pieces: Vec<Vec<Piece>> = shared.kinds().iter().map(|kind| pieces_of(spec, request, kind)).collect();
    let first = pieces.iter().flatten().next().filter(|piece| !piece.is_whole)?;
    let each = first.slice.clone();
    let mut short = Shortage { each, with_cores: 0, with_memory: 0, with_devices: 0 };
    for (node, line) in shared.lines() {
        let may_use = line.is_open && spec.constraint.allows(&state.nodes()[node].name);
        if !may_use {
            continue;
        }
        let Some(piece) = pieces[line.kind].first() else { continue };
        let left = line.room.left();
        let has_cores = left.cores >= piece.slice.cores;
        let has_memory = has_cores && left.memory >= piece.slice.memory;
        let has_devices = has_memory && pieces[line.kind].iter().any(|piece| line.room.holds(piece));
        short.with_cores += u32::from(has_cores);
        short.with_memory += u32::from(has_memory);
        short.with_devices += u32::from(has_devices);
    }
    Some(short)
}

/// Returns the jobs for whose ends a start at `at` waits on a core-shared cluster: they have left by then nodes that have
/// room for it without them, and not now. Of a job's resources, only those count of which too few nodes have enough.
fn holds_of_shared(
    state: &State,
    (now, at): (Time, Time),
    cluster: ClusterId,
    (spec, request): (&JobSpec, &Request),
    short: Option<(&Shortage, u32)>,
) -> impl Iterator<Item = Blocker> {
    let has_some = |piece: &Piece| has_some(piece, (spec, request), short);
    let shared = state.shared().get(cluster);
    let kinds = shared.into_iter().flat_map(|shared| shared.kinds());
    let pieces: Vec<Vec<Piece>> = kinds.map(|kind| pieces_of(spec, request, kind)).collect();
    let overdue = Overdue::new(now, state.settings());
    let mut by_job: BTreeMap<JobId, (u32, Time)> = BTreeMap::new();
    for (node, line) in shared.into_iter().flat_map(|shared| shared.lines()) {
        let has_room = |room: &NodeRoom| pieces[line.kind].iter().any(|piece| room.holds(piece));
        let may_use = line.is_usable && spec.constraint.allows(&state.nodes()[node].name);
        if !may_use || has_room(&line.room) {
            continue;
        }
        let leaving = || line.holds().iter().filter(|hold| hold.until <= at);
        let mut room = line.room.clone();
        leaving().for_each(|hold| room.take(&hold.piece, -1));
        if !has_room(&room) {
            continue;
        }
        for hold in leaving().filter(|hold| has_some(&hold.piece)) {
            let (nodes, until) = by_job.entry(hold.job()).or_insert((0, hold.until));
            (*nodes, *until) = (*nodes + 1, hold.until.max(*until));
        }
    }
    by_job.into_iter().filter_map(move |(job, (nodes, until))| {
        let state = state.jobs().get(&job)?.state();
        Some(Blocker { job, state, nodes, from: now, until: overdue.until(until), is_offer: false, is_promised: false })
    })
}

/// Returns whether a piece of another job has some of the first resource of which too few nodes have enough for this one.
fn has_some(piece: &Piece, (spec, request): (&JobSpec, &Request), short: Option<(&Shortage, u32)>) -> bool {
    match short {
        Some((short, wanted)) if short.with_cores < wanted => piece.slice.cores > 0,
        Some((short, wanted)) if short.with_memory < wanted => piece.slice.memory.0 > 0,
        Some((short, wanted)) if short.with_devices < wanted => {
            let devices = spec.resources.devices_on_each(request.n_nodes());
            devices.iter().any(|(name, _)| piece.slice.devices.serving(name).next().is_some())
        }
        Some(_) | None => true,
    }
}

/// Reports the agents of this cluster that are expected back.
fn agents_expected(state: &State, cluster: ClusterId) -> Option<Reason> {
    let (since, _) = state.longest_expected()?;
    let n_nodes = state.n_expected(cluster) as u32;
    let until = since + state.settings().restart_grace;
    let cluster = state.clusters()[&cluster].clone();
    (n_nodes > 0).then_some(Reason::AgentsExpected { cluster, n_nodes, until })
}

fn n_nodes(state: &State, cluster: ClusterId) -> u32 {
    state.neighbours(cluster).len() as u32
}

/// Returns under FCFS the last waiting job ahead of this one, and its planned start.
fn last_waiting_before(state: &State, plan: &Plan, placed_idx: usize) -> Option<(JobId, Time)> {
    if state.settings().policy != Policy::Fcfs {
        return None;
    }
    let mut in_front = plan.placements.get(..placed_idx)?.iter().rev();
    in_front.find_map(|placement| {
        waiting(state, placement)?;
        placement.outcome.later().map(|at| (placement.job, at))
    })
}

/// Returns the job of a placement, if it still waits: a plan may be older than the state.
fn waiting<'a>(state: &'a State, placement: &Placement) -> Option<&'a Job> {
    state.jobs().get(&placement.job).filter(|entry| entry.is_queued())
}

/// A time in which too few nodes of a cluster are free, and the jobs that hold the others.
struct BusyWindow {
    cluster: ClusterId,
    wanted: u32,
    capacity: i64,
    busy: i64,
    from: Time,
    until: Time,
    by: Vec<Blocker>,
}

/// Returns the blocking step that the pass has found, without a search for the jobs in it.
fn busy_step(state: &State, now: Time, at: Time, request: &Request, blocked: Option<&Blocked>) -> Option<BusyWindow> {
    if let Some(blocked) = blocked {
        return Some(BusyWindow::step(blocked, now));
    }
    let (cluster, wanted) = request.nodes.iter().find(|(_, wanted)| **wanted > 0)?;
    let capacity = i64::from(state.n_usable(*cluster));
    let busy = capacity - state.n_free(*cluster) as i64;
    Some(BusyWindow { cluster: *cluster, wanted: *wanted, capacity, busy, from: now, until: at, by: Vec::new() })
}

impl BusyWindow {
    fn step(blocked: &Blocked, now: Time) -> BusyWindow {
        let Blocked { cluster, step, until, wanted, capacity, licence: _ } = *blocked;
        let from = step.from.max(now);
        BusyWindow { cluster, wanted, capacity, busy: step.nodes, from, until, by: Vec::new() }
    }
}

/// Returns the whole time until its start in which too few nodes are free for it, and all jobs that hold nodes then.
fn busy_window(
    state: &State,
    plan: &Plan,
    Waiting { spec, placed_idx }: Waiting<'_>,
    at: Time,
    request: &Request,
    blocked: Option<&Blocked>,
) -> Option<BusyWindow> {
    let clusters = request.nodes.iter().filter(|(_, wanted)| **wanted > 0);
    // Of several clusters, the one that blocks it longest is reported.
    let windows = clusters.filter(|(cluster, _)| blocked.is_none_or(|blocked| blocked.cluster == **cluster));
    let found = windows.filter_map(|(cluster, wanted)| {
        let kinds = state.shared().get(*cluster).map_or(&[][..], |shared| shared.kinds());
        let short = shortage(state, spec, request, cluster);
        let short = short.as_ref().map(|short| (short, *wanted));
        let takes_some = |other: &JobSpec, planned: &Request| {
            let mut pieces = kinds.iter().flat_map(|kind| pieces_of(other, planned, kind));
            short.is_none() || pieces.any(|piece| has_some(&piece, (spec, request), short))
        };
        let mut holds = holds(state, plan, placed_idx, *cluster, takes_some);
        let capacity = i64::from(state.n_usable(*cluster));
        let is_shared = state.is_shared(*cluster);
        if is_shared {
            // The nodes for a later stage of a profile may become free after its start.
            let free_at = blocked.map_or(at, |blocked| blocked.until.max(at));
            holds.extend(holds_of_shared(state, (plan.now, free_at), *cluster, (spec, request), short));
        }
        let usable = usable_by(state, spec, request, *cluster);
        holds.retain(|hold| n_in_the_way(state, hold.job, &usable, 1) > 0);
        // Where nodes are shared, enough nodes may have something free, but too few have room.
        let is_of_all = !is_shared && blocked.is_none_or(|blocked| blocked.capacity == capacity);
        let whole = is_of_all.then(|| blocked_window(plan.now, at, *cluster, *wanted, capacity, &holds)).flatten();
        // Among nodes with a feature the sums over all nodes say nothing: the step of the pass does. It has none for a job
        // that was not placed before a certain time, as those behind the first one under EASY.
        let is_known = blocked.is_some() || (is_shared && at > plan.now);
        let step = || busy_step(state, plan.now, at, request, blocked).filter(|_| is_known);
        let mut taken = whole.or_else(step)?;
        let (from, until) = (taken.from, taken.until);
        taken.by = holds.into_iter().filter(|hold| hold.from < until && from < hold.until).collect();
        taken.by.sort_by_key(|hold| (hold.from.max(from), std::cmp::Reverse(hold.nodes), hold.job));
        taken.by.truncate(MAX_BLOCKERS);
        let n_usable = usable.len() as u32;
        let least = |hold: &Blocker| hold.nodes.min(n_in_the_way(state, hold.job, &usable, n_usable));
        taken.by.iter_mut().for_each(|hold| hold.nodes = least(hold));
        Some(taken)
    });
    let longest = found.max_by_key(|taken| taken.until);
    longest.or_else(|| overdue_jobs(state, plan.now, at, request))
}

/// Returns the nodes of a cluster that a job may use.
fn usable_by<'a>(state: &'a State, spec: &JobSpec, request: &Request, cluster: ClusterId) -> Vec<(NodeId, &'a Node)> {
    let constraint = constraint_of(spec, request);
    let is_shared = state.is_shared(cluster);
    let has_pieces = |known: &Node| !is_shared || !pieces_of(spec, request, &known.inventory).is_empty();
    let usable = |known: &Node| known.cluster == cluster && known.meets(&constraint) && has_pieces(known);
    state.nodes().iter().filter(|(_, known)| usable(known)).map(|(node, known)| (*node, known)).collect()
}

/// Returns how many of these nodes a job holds or, if it has none yet, may come to hold; no more than `most`.
fn n_in_the_way(state: &State, holder: JobId, usable: &[(NodeId, &Node)], most: u32) -> u32 {
    let Some(entry) = state.jobs().get(&holder) else { return most };
    let is_held = |node: &&NodeId| usable.binary_search_by_key(*node, |(usable, _)| *usable).is_ok();
    let may_hold = |known: &Node| known.meets(&entry.spec.constraint);
    let n_nodes = match entry.nodes() {
        [] => usable.iter().filter(|(_, known)| may_hold(known)).take(most as usize).count(),
        held => held.iter().filter(is_held).take(most as usize).count(),
    };
    n_nodes as u32
}

/// Finds the span from the first to the last instant before its start at which too few nodes are free, including gaps
/// that are too short for it. `busy` is the least number taken throughout.
fn blocked_window(
    now: Time,
    at: Time,
    cluster: ClusterId,
    wanted: u32,
    capacity: i64,
    holds: &[Blocker],
) -> Option<BusyWindow> {
    let edges: BTreeSet<Time> =
        holds.iter().flat_map(|hold| [hold.from, hold.until]).filter(|edge| now < *edge && *edge < at).collect();
    let edges: Vec<Time> = std::iter::once(now).chain(edges).chain([at]).collect();
    let mut taken: Option<BusyWindow> = None;
    for pair in edges.windows(2) {
        let (from, until) = (pair[0], pair[1]);
        let there = holds.iter().filter(|hold| hold.from <= from && from < hold.until);
        let busy: i64 = there.map(|hold| i64::from(hold.nodes)).sum();
        let is_blocked = busy + i64::from(wanted) > capacity;
        if is_blocked {
            let busy = taken.as_ref().map_or(busy, |taken| taken.busy.min(busy)).min(capacity);
            let from = taken.as_ref().map_or(from, |taken| taken.from);
            taken = Some(BusyWindow { cluster, wanted, capacity, busy, from, until, by: Vec::new() });
        }
    }
    taken
}

/// Finds jobs past their wall time that hold nodes which the plan treats as free.
fn overdue_jobs(state: &State, now: Time, at: Time, request: &Request) -> Option<BusyWindow> {
    request.nodes.iter().find_map(|(cluster, wanted)| {
        let late = state.holding().filter_map(|(job, entry)| {
            let end = entry.started().map(|started| started.at + started.request.wall)?;
            let here = |node: &&NodeId| state.nodes().get(node).is_some_and(|node| node.cluster == *cluster);
            let nodes = entry.nodes().iter().filter(here).count() as u32;
            let is_late = end <= now && nodes > 0;
            is_late.then(|| Blocker {
                job,
                state: entry.state(),
                nodes,
                from: now,
                until: at.max(now),
                is_offer: false,
                is_promised: false,
            })
        });
        let by: Vec<Blocker> = late.take(MAX_BLOCKERS).collect();
        let capacity = i64::from(state.n_usable(*cluster));
        let busy = capacity - state.n_free(*cluster) as i64;
        let taken = BusyWindow { cluster: *cluster, wanted: *wanted, capacity, busy, from: now, until: at, by };
        (!taken.by.is_empty()).then_some(taken)
    })
}

/// Returns all that holds nodes of a cluster before this application may: running jobs and ghosts, offers, and those of
/// the jobs that the policy places ahead of it which take what it needs.
fn holds(
    state: &State,
    plan: &Plan,
    placed_idx: usize,
    cluster: ClusterId,
    takes_some: impl Fn(&JobSpec, &Request) -> bool,
) -> Vec<Blocker> {
    let mut holds: Vec<Blocker> = ledger::holds(state, plan.now, cluster)
        .map(|(job, state, is_offer, block)| {
            let nodes = block.nodes.max(0) as u32;
            Blocker { job, state, nodes, from: block.from, until: block.until, is_offer, is_promised: false }
        })
        .collect();
    for (idx, placement) in plan.placements.iter().enumerate() {
        let is_before = match state.settings().policy {
            Policy::Views | Policy::Fcfs | Policy::Slowdown => idx < placed_idx,
            Policy::Easy => idx < placed_idx || matches!(placement.outcome, Placed::Now { .. }),
            Policy::Conservative => idx != placed_idx,
        };
        let (Some(at), Some(request)) = (placement.outcome.estimate(plan.now), placement.outcome.request()) else {
            continue;
        };
        let Some(nodes) = request.nodes.get(&cluster).copied().filter(|_| is_before) else { continue };
        let taking = waiting(state, placement).filter(|entry| takes_some(&entry.spec, request));
        let Some(entry) = taking else { continue };
        let job = placement.job;
        let (waits, is_promised) = (entry.state(), entry.promised.is_some());
        let hold = |from, until, nodes| Blocker { job, state: waits, nodes, from, until, is_offer: false, is_promised };
        match placement.outcome.fit() {
            Some(fit) => holds.extend(
                fit.expanded.blocks(fit.start).map(|block| hold(block.from, block.until, block.nodes.max(0) as u32)),
            ),
            None => holds.push(hold(at, at + request.wall, nodes)),
        }
    }
    holds.retain(|hold| hold.nodes > 0 && hold.from < hold.until);
    holds
}

/// The most blockers that are reported; a longer list would be useless.
const MAX_BLOCKERS: usize = 16;
