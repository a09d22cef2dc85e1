//! Which job may start before which: the walk over the queue of each policy.
//!
//! - *views* (001, Fig. 5): each application in order takes its first hole, again at each pass.
//! - *fcfs*: the same, but no application starts before the one ahead of it.
//! - *easy*: in a first round applications start now, in order; the first that cannot takes its hole as a reservation,
//!   and from then on only applications start that do not delay it. A second round estimates the rest.
//! - *conservative*: promises are taken first, at their promised times; then each application in order gives up its own
//!   promise and takes the first hole there is, which is the promised one or an earlier one. So a job that ends early
//!   moves others forward and none back. A promise holds as long as jobs leave by their wall times and nodes stay: if
//!   it does not fit any more, the application takes the next hole before the promises of those behind it.

use std::collections::BTreeMap;

use rms_model::{ClusterId, JobId, JobSpec, Policy, Span, Time, View};

use super::arrivals;
use super::freed::FreedPlaces;
use super::grids::Grids;
use super::kept::KeptPlan;
use super::mates::{GuestStart, Mates, SharingRound};
use super::pass::{Look, Moment, Pass};
use super::slices;
use super::slots::{Held, Slot, Slots};
use super::taken::Taken;
use super::{Placed, Placement, Plan, Scope};
use crate::state::job::Job;
use crate::state::{Demand, PlainDemand, QueueKey, Room, State, chooses_nodes};

/// A shorter queue is searched without finding out first for how long nodes stay free.
const FEW: usize = 16;

pub(super) fn run(
    state: &State,
    now: Time,
    scope: Scope<'_>,
    look: Option<&mut Look<'_>>,
    mut kept: Option<&mut KeptPlan>,
) -> Plan {
    let n_free = n_free(state);
    // Promises are made even while no node is free.
    let promises = state.settings().policy == Policy::Conservative;
    let only_starts = scope.is_of_starts();
    let nobody_can = state.n_queued() == 0 || (n_free == 0 && !promises);
    if only_starts && nobody_can {
        return Plan::of_nobody(now);
    }
    let is_easy = state.settings().policy == Policy::Easy;
    let of_slices = || if is_easy && only_starts && look.is_none() { slices::of_easy(state, now) } else { None };
    if let Some(plan) = of_slices() {
        return plan;
    }
    let arrivals = match (state.settings().policy, scope) {
        (Policy::Easy, Scope::Arrivals) => arrivals::of_easy(state, now),
        (Policy::Easy, Scope::Starts | Scope::Freed { .. } | Scope::Estimates | Scope::Views)
        | (Policy::Views | Policy::Fcfs | Policy::Conservative | Policy::Slowdown, _) => None,
    };
    let may_start = |(_, demand): &(JobId, &Demand)| demand.least_nodes as usize <= n_free;
    if arrivals.as_ref().is_some_and(|arrivals| !arrivals.iter().any(may_start)) {
        return Plan::of_nobody(now);
    }
    let shows = |_: JobId| scope == Scope::Views;
    let mut walk = Walk::new(state, now, n_free, &shows);
    if !only_starts || look.is_some() {
        walk.pass.count_whole_nodes();
    }
    let (base, base_cores) = match only_starts {
        true => (View::new(), View::new()),
        false => (View::clone(&walk.pass.all.view), walk.pass.grids.cores_taken()),
    };
    if look.is_some() {
        walk.pass.all.keep_digests(now);
        walk.look = look;
    }
    walk.kept = kept.as_deref_mut().map(std::mem::take);
    walk.look(Moment::Begins);
    match arrivals {
        Some(arrivals) => walk.queue(arrivals.into_iter(), scope),
        None => walk.queue(considered(state), scope),
    }
    walk.look(Moment::Ends);
    if let (Some(kept), Some(of_walk)) = (kept, walk.kept.take()) {
        *kept = of_walk;
    }
    match only_starts {
        true => Plan { placements: walk.placements, ..Plan::of_nobody(now) },
        false => Plan { base_cores, ..walk.into_plan(base) },
    }
}

/// See [`super::plan_sharing`].
pub(super) fn run_sharing(state: &State, now: Time, round: &mut SharingRound) -> (Plan, Option<GuestStart>) {
    if state.n_queued() == 0 {
        return (Plan::of_nobody(now), None);
    }
    let mut walk = Walk::new(state, now, n_free(state), &|_| false);
    let inside = walk.sharing(considered(state).map(|(job, _)| job), round);
    (Plan { placements: walk.placements, ..Plan::of_nobody(now) }, inside)
}

/// Returns the plan up to one application, whose view is the last one; `None` if it is not considered.
///
/// Storing the views of all applications would take space quadratic in their number.
pub(super) fn run_before(state: &State, now: Time, seer: JobId) -> Option<Plan> {
    let is_queued = state.jobs().get(&seer).is_some_and(Job::is_queued);
    let n_before = if is_queued { considered(state).position(|(job, _)| job == seer)? } else { return None };
    let shows = |job: JobId| job == seer;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    walk.pass.count_whole_nodes();
    let base = View::clone(&walk.pass.all.view);
    let base_cores = walk.pass.grids.cores_taken();
    walk.cores_seen = Some(View::new());
    match state.settings().policy {
        // Applications behind it do not affect it.
        Policy::Views | Policy::Fcfs | Policy::Slowdown => {
            walk.queue(considered(state).take(n_before + 1), Scope::Estimates);
        }
        Policy::Easy | Policy::Conservative => walk.queue(considered(state), Scope::Estimates),
    }
    let mut placements = walk.placements;
    let last_view = placements.get_mut(n_before).and_then(|placement| placement.view.take())?;
    placements.truncate(n_before);
    let last_cores = walk.cores_seen.unwrap_or_default();
    Some(Plan { placements, base, last_view, base_cores, last_cores, ..Plan::of_nobody(now) })
}

/// Returns the queued applications that a pass considers, in order. A job with a promised start is considered even if
/// others have moved it beyond the depth.
pub(super) fn considered(state: &State) -> impl Iterator<Item = (JobId, &Demand)> + Clone + '_ {
    let depth = state.depth().map_or(usize::MAX, |depth| depth as usize);
    let mut n_promised = state.n_promised();
    let within = move |(queue_idx, (_, demand)): &(usize, (JobId, &Demand))| {
        let is_within = *queue_idx < depth || n_promised > 0;
        n_promised -= usize::from(demand.promised.is_some());
        is_within
    };
    state.demands().enumerate().take_while(within).map(|(_, considered)| considered)
}

/// Returns the number of free nodes over all clusters; in clusters that are shared by cores, of logical CPUs.
pub(super) fn n_free(state: &State) -> usize {
    let n_free = |cluster: &ClusterId| match state.shared().get(*cluster) {
        Some(shared) => shared.n_free_cpus as usize,
        None => state.n_free(*cluster),
    };
    state.clusters().keys().map(n_free).sum()
}

/// Decides which applications need no search.
struct Stays {
    may_pass_by: bool,
    /// Jobs that hold what they were promised stay: nothing was freed since that was the earliest.
    keeps_promises: bool,
    /// Everything freed since all jobs were placed as early as possible lies before this time: a job that starts
    /// earlier than promised starts before it, where enough nodes are free.
    freed_until: Time,
    /// What was freed where nodes are shared and promises name them, in order; `None` if every job is to be searched.
    freed: Option<Vec<FreedPlaces>>,
    /// The time before which that many nodes of a cluster are not free.
    first_free: BTreeMap<(ClusterId, u32), Time>,
    /// The time before which no job with that many nodes of a cluster and that wall time can start; holds until a job
    /// moves.
    full_until: BTreeMap<(ClusterId, u32, Span), Time>,
}

impl Stays {
    /// Records that a job has moved to an earlier time or to other nodes, or gets none any more, and that its former
    /// place is free.
    fn free(&mut self, held: &Taken, taken: Option<&Taken>, grids: &Grids<'_>) {
        self.freed_until = self.freed_until.max(held.at + held.wall());
        if let Some(freed) = &mut self.freed {
            freed.extend(grids.freed_by_move(held, taken));
        }
        // What was full before `held.at` is still full.
        self.first_free.retain(|_, first| *first <= held.at);
        self.full_until.clear();
    }

    fn n_freed(&self) -> Option<usize> {
        self.freed.as_ref().map(Vec::len)
    }
}

/// The first round of `easy`: who starts now.
#[derive(Default)]
pub(super) struct EasyRound {
    /// Whether a job was placed later than now: the others start only where that does not delay it.
    pub(super) head_waits: bool,
    /// The other jobs that do not start now: each with its index in the queue and the time before which it does not
    /// start.
    pub(super) waiting: Vec<(usize, JobId, Time)>,
}

/// One pass on its way through the queue.
pub(super) struct Walk<'a, 'l> {
    pub(super) state: &'a State,
    pub(super) now: Time,
    pub(super) pass: Pass<'a>,
    /// The job whose view is wanted.
    shows: &'a dyn Fn(JobId) -> bool,
    /// The cores that the job whose view is wanted sees taken; `None` if they are not wanted.
    cores_seen: Option<View>,
    /// The observer for external launchers.
    look: Option<&'a mut Look<'l>>,
    pub(super) placements: Vec<Placement>,
    /// The earliest time at which later applications may start.
    pub(super) earliest: Time,
    /// What the last pass has kept, and then what this one does; `None` if this one does not keep anything.
    kept: Option<KeptPlan>,
    /// The jobs whose promises are due, with the rest of their wall times.
    pub(super) due: BTreeMap<JobId, JobSpec>,
}

impl<'a, 'l> Walk<'a, 'l> {
    pub(super) fn new(state: &'a State, now: Time, n_free: usize, shows: &'a dyn Fn(JobId) -> bool) -> Walk<'a, 'l> {
        let pass = Pass::new(state, now, n_free);
        let (look, cores_seen, placements, kept) = (None, None, Vec::new(), None);
        let due = BTreeMap::new();
        Walk { state, now, pass, shows, cores_seen, look, placements, earliest: now, kept, due }
    }

    fn look(&mut self, moment: Moment) {
        if let Some(look) = &mut self.look {
            look(&mut self.pass, moment);
        }
    }

    /// Returns the plan of this walk; `base` is the view before the first application.
    pub(super) fn into_plan(self, base: View) -> Plan {
        let (shared, last_cores) = (self.pass.grids.left(), self.pass.grids.cores_taken());
        let last_view = self.pass.all.view.into_owned();
        let base_cores = View::new();
        Plan { now: self.now, placements: self.placements, base, last_view, base_cores, last_cores, shared }
    }

    pub(super) fn queue(&mut self, jobs: impl Iterator<Item = (JobId, &'a Demand)> + Clone, scope: Scope<'_>) {
        match self.state.settings().policy {
            // Guests are started by a pass of their own.
            Policy::Views | Policy::Slowdown => self.views(jobs.map(|(job, _)| job), scope),
            Policy::Fcfs => self.fcfs(jobs.map(|(job, _)| job), scope),
            Policy::Easy => self.easy(jobs, scope),
            Policy::Conservative => self.conservative(jobs, scope),
        }
    }

    fn views(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope<'_>) {
        for job in jobs {
            if scope == Scope::Starts && self.pass.n_free == 0 {
                break;
            }
            self.look(Moment::Before(job));
            let view = self.view_for(job);
            let outcome = self.pass.place(self.spec(job), self.now);
            self.placements.push(Placement { job, outcome, view });
        }
    }

    /// Places each job in order in its first hole; if that is later than now, mates are searched for it at once (004,
    /// §3.1). The first job with mates ends the pass, because the jobs before it are then tried again.
    fn sharing(&mut self, jobs: impl Iterator<Item = JobId>, round: &mut SharingRound) -> Option<GuestStart> {
        let mut mates = Mates::new(self.state, self.now, round);
        for job in jobs {
            let spec = self.spec(job);
            let outcome = match self.pass.find(spec, self.now) {
                Ok(found) => {
                    let (outcome, taken) = self.pass.settle_until(found, None);
                    if let Placed::Later { request, at, fit: None, .. } = &outcome
                        && spec.resources.share
                        && self.state.jobs()[&job].launcher.is_none()
                    {
                        mates.add_started(&self.placements);
                        if let Some(inside) = mates.find((job, spec), *at + request.wall, &taken, &mut self.pass) {
                            return Some(inside);
                        }
                    }
                    self.pass.stays(taken);
                    outcome
                }
                Err(shortage) => Placed::Never { shortage },
            };
            self.placements.push(Placement { job, outcome, view: None });
        }
        None
    }

    fn fcfs(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope<'_>) {
        for job in jobs {
            self.look(Moment::Before(job));
            let view = self.view_for(job);
            let outcome = self.pass.place(self.spec(job), self.earliest);
            let waits = match &outcome {
                Placed::Never { .. } => false,
                Placed::Now { .. } => {
                    let waits = self.state.jobs()[&job].launcher_away_since().is_some();
                    if waits {
                        self.earliest = self.earliest.max(self.now + Span::from_millis(1));
                    }
                    waits
                }
                Placed::Later { at, .. } => {
                    // A job that would start now if its nodes were connected is waited for, too.
                    self.earliest = self.earliest.max(*at).max(self.now + Span::from_millis(1));
                    true
                }
            };
            self.placements.push(Placement { job, outcome, view });
            if waits && scope == Scope::Starts {
                break;
            }
        }
    }

    fn easy(&mut self, jobs: impl Iterator<Item = (JobId, &'a Demand)>, scope: Scope<'_>) {
        let mut round = EasyRound::default();
        self.start_easily(jobs, scope, &mut round);
        if !scope.is_of_starts() {
            self.estimate_waiting(round.waiting);
        }
    }

    /// Places the first job that has to wait, and starts those behind it that do not delay it.
    pub(super) fn start_easily(
        &mut self,
        jobs: impl Iterator<Item = (JobId, &'a Demand)>,
        scope: Scope<'_>,
        round: &mut EasyRound,
    ) {
        let mut jobs = jobs.peekable();
        let only_starts = scope.is_of_starts();
        let are_many = scope == Scope::Starts && self.state.n_queued() > FEW && self.state.n_promised() == 0;
        while let Some((job, demand)) = jobs.next() {
            self.pass.is_last = only_starts && self.look.is_none() && jobs.peek().is_none();
            if only_starts && round.head_waits && self.look.is_none() {
                if self.pass.n_free == 0 {
                    break;
                }
                if are_many {
                    return self.start_behind_head();
                }
                if !self.may_start(demand) || self.pass.has_no_room(self.spec(job)) {
                    continue;
                }
            }
            let view = self.view_for(job);
            let found = self.pass.find(self.spec(job), self.now);
            // Behind the head, a job that does not start now gets its view in the second round.
            let sees_this = found.is_err() || !round.head_waits;
            if sees_this {
                self.look(Moment::Before(job));
            }
            // A job that does not start now was offered nothing better than this; the estimates of the second round do
            // not let it start after all.
            let hole = found.as_ref().map_or(self.now, |found| found.start);
            let not_before = hole.max(self.now + Span::from_millis(1));
            let outcome = match found {
                Err(shortage) => Some(Placed::Never { shortage }),
                Ok(found) if round.head_waits => self.pass.start(found),
                Ok(found) => {
                    let outcome = self.pass.settle(found);
                    round.head_waits = matches!(outcome, Placed::Later { .. });
                    Some(outcome)
                }
            };
            match outcome {
                Some(outcome) => self.placements.push(Placement { job, outcome, view }),
                None => {
                    // Its place in the list is kept for its estimate.
                    round.waiting.push((self.placements.len() + round.waiting.len(), job, not_before));
                }
            }
        }
    }

    /// Places the jobs behind the head that do not start now, in order.
    pub(super) fn estimate_waiting(&mut self, waiting: Vec<(usize, JobId, Time)>) {
        let mut placements = std::mem::take(&mut self.placements).into_iter();
        let mut in_order = Vec::with_capacity(placements.len() + waiting.len());
        for (queue_idx, job, not_before) in waiting {
            in_order.extend(placements.by_ref().take(queue_idx - in_order.len()));
            self.look(Moment::Before(job));
            let view = self.view_for(job);
            let outcome = self.pass.place(self.spec(job), not_before);
            in_order.push(Placement { job, outcome, view });
        }
        in_order.extend(placements);
        self.placements = in_order;
    }

    /// Starts each job behind the head, which was placed last, that can start now; jobs without room are skipped
    /// without a search.
    fn start_behind_head(&mut self) {
        let head = self.placements.last().and_then(|head| self.state.demand(head.job));
        let Some((mut behind, _)) = head else { return };
        let last = self.state.depth().and_then(|depth| self.state.nth_queued(depth as usize - 1));
        let mut room = self.room();
        while let Some((key, demand)) = self.state.next_within(behind, &room) {
            if last.is_some_and(|last| key > last) {
                break;
            }
            behind = key;
            if !self.may_start(demand) || self.pass.has_no_room(self.spec(key.job)) {
                continue;
            }
            let found = self.pass.find(self.spec(key.job), self.now).ok();
            if let Some(outcome) = found.and_then(|found| self.pass.start(found)) {
                self.placements.push(Placement { job: key.job, outcome, view: None });
                room = self.room();
            }
        }
    }

    fn room(&self) -> Room {
        let clusters = self.state.clusters().keys();
        let longest_in = |cluster: &ClusterId, nodes| match self.state.is_shared(*cluster) {
            true => Span::MAX_WALL,
            false => self.pass.all.longest_free(*cluster, nodes, self.now),
        };
        let longest = |nodes| clusters.clone().map(|cluster| longest_in(cluster, nodes)).max();
        Room::new(self.pass.n_free, |nodes| longest(nodes).unwrap_or(Span::ZERO))
    }

    /// Returns whether it is worth a search whether the job starts now, without a reservation.
    fn may_start(&self, demand: &Demand) -> bool {
        if demand.least_nodes as usize > self.pass.n_free {
            return false;
        }
        demand.plain.is_none_or(|PlainDemand { cluster, wall }| {
            self.pass.all.least_free(cluster, wall, self.now) >= i64::from(demand.least_nodes)
        })
    }

    fn conservative(&mut self, jobs: impl Iterator<Item = (JobId, &'a Demand)> + Clone, scope: Scope<'_>) {
        let may_pass_by = match scope {
            Scope::Starts | Scope::Freed { .. } | Scope::Arrivals => {
                self.state.wants_are_plain() && self.pass.take_promises()
            }
            Scope::Estimates | Scope::Views => false,
        };
        let mut slots = Slots::default();
        // Where nodes are shared, promises name them: each is taken individually, and all hold unless one fails.
        let mut keeps_promises = true;
        let kept = if may_pass_by { None } else { self.kept.as_mut().map(std::mem::take) };
        if let Some(known) = kept.and_then(|kept| kept.resume(&mut self.pass, jobs.clone())) {
            slots = known;
        } else if !may_pass_by {
            for (job, _) in jobs.clone() {
                if chooses_nodes(self.spec(job)) {
                    self.pass.track_all();
                }
                self.pass.open_ledgers(self.spec(job));
            }
            for (job, demand) in jobs.clone() {
                let slot = self.keep(job, demand);
                keeps_promises &= demand.promised.is_none()
                    || self.due.contains_key(&job)
                    || matches!(&slot.held, Held::Taken(kept) if demand.promised == Some(kept.at));
                slots.insert(job, slot);
            }
        }
        let freed_until = match scope {
            Scope::Arrivals => self.now,
            Scope::Freed { until, .. } => until,
            Scope::Starts | Scope::Estimates | Scope::Views => Time::NEVER,
        };
        let is_tracked = scope.is_of_starts() && !may_pass_by && self.look.is_none();
        let mut freed = is_tracked.then(Vec::new);
        if let (Scope::Freed { until, nodes }, Some(freed)) = (scope, &mut freed) {
            freed.extend(self.pass.grids.freed(nodes.iter(), (self.now, until)));
        }
        let knows_all = matches!(scope, Scope::Freed { .. } | Scope::Arrivals);
        if is_tracked && knows_all && keeps_promises {
            slots.values_mut().for_each(|slot| slot.n_checked = Some(0));
        }
        keeps_promises &= scope == Scope::Arrivals && self.look.is_none();
        let (first_free, full_until) = (BTreeMap::new(), BTreeMap::new());
        let mut stays = Stays { may_pass_by, keeps_promises, freed_until, freed, first_free, full_until };
        // If all others would be skipped, none is visited.
        let are_few = stays.may_pass_by && scope == Scope::Arrivals && self.look.is_none();
        let few = if are_few { arrivals::of_conservative(self.state, self.now) } else { None };
        let mut has_moved = match few {
            None => self.sweep(jobs.clone(), &mut slots, &mut stays),
            Some(few) => self.sweep(few.into_iter(), &mut slots, &mut stays),
        };
        // What one job gives up may let another move forward, even one before it: repeats until none moves.
        while has_moved {
            stays.keeps_promises = false;
            has_moved = self.sweep(jobs.clone(), &mut slots, &mut stays);
        }
        self.record_outcomes(jobs, &mut slots);
        if let Some(kept) = &mut self.kept {
            *kept = KeptPlan::of(&mut self.pass, slots);
        }
    }

    /// Records the outcome of each job.
    fn record_outcomes(&mut self, jobs: impl Iterator<Item = (JobId, &'a Demand)>, slots: &mut Slots) {
        if self.look.is_none() {
            // A job that was skipped keeps its promise, and has no outcome.
            let state = self.state;
            let decided = slots.iter_mut().filter_map(|(job, slot)| {
                let outcome = slot.outcome.take()?;
                Some((state.demand(*job)?.0, outcome, &slot.held))
            });
            let mut decided: Vec<(QueueKey, Placed, &Held)> = decided.collect();
            decided.sort_unstable_by_key(|(key, ..)| *key);
            for (QueueKey { job, .. }, outcome, held) in decided {
                let view = (self.shows)(job).then(|| self.view_without(job, held));
                self.placements.push(Placement { job, outcome, view });
            }
            return;
        }
        for (job, demand) in jobs {
            let passed_by = || Slot { held: Held::promised(demand), outcome: None, n_checked: None };
            let Slot { held, outcome, .. } = slots.remove(&job).unwrap_or_else(passed_by);
            self.look_without(job, &held);
            let view = (self.shows)(job).then(|| self.view_without(job, &held));
            self.placements.extend(outcome.map(|outcome| Placement { job, outcome, view }));
        }
    }

    /// Lets each job in order give up what it holds and take the first hole. Returns whether that moved any job
    /// forward, or to other nodes.
    fn sweep(&mut self, jobs: impl Iterator<Item = (JobId, &'a Demand)>, slots: &mut Slots, stays: &mut Stays) -> bool {
        let mut has_moved = false;
        for (job, demand) in jobs {
            let slot = slots.get_mut(&job);
            let is_decided = slot.as_ref().is_some_and(|slot| match slot.outcome {
                Some(Placed::Now { .. }) => true,
                Some(Placed::Later { .. } | Placed::Never { .. }) => self.due.contains_key(&job),
                None => false,
            });
            if is_decided {
                continue;
            }
            let (held, before, n_checked) = match slot {
                Some(slot) => (std::mem::replace(&mut slot.held, Held::Nothing), slot.outcome.take(), slot.n_checked),
                None => (Held::promised(demand), None, None),
            };
            let is_kept = stays.keeps_promises && matches!(&held, Held::Taken(kept) if kept.at > self.now);
            if is_kept || self.must_stay_there(job, &held, n_checked, stays) || self.must_stay(demand, &held, stays) {
                if let Some(slot) = slots.get_mut(&job) {
                    // Kept jobs are checked again once something has moved.
                    let n_checked = if is_kept { n_checked } else { stays.n_freed() };
                    *slot = Slot { held, outcome: before, n_checked };
                }
                continue;
            }
            let held = self.lay_down(job, held);
            let latest = held.as_ref().map(|held| held.at);
            let due = self.due.remove(&job);
            let spec = due.as_ref().unwrap_or(self.spec(job));
            let slot = match (self.pass.find_anew(spec, self.now, held.as_ref()), held, before) {
                // None of the rows that were tried for its stages is as good as its present one.
                (Ok(found), Some(held), before) if found.start > held.at => {
                    self.pass.take_again(&held);
                    let outcome = before.unwrap_or_else(|| found.later_on(&held));
                    Slot { held: Held::Taken(Box::new(held)), outcome: Some(outcome), n_checked: stays.n_freed() }
                }
                // The promised nodes are as good as others.
                (Ok(found), Some(held), _) if found.start > self.now && found.is_as_good_as(&held) => {
                    self.pass.take_again(&held);
                    let outcome = found.later_on(&held);
                    Slot { held: Held::Taken(Box::new(held)), outcome: Some(outcome), n_checked: stays.n_freed() }
                }
                (Ok(found), held, _) => {
                    let (outcome, taken) = self.pass.settle_until(found, latest);
                    if let Some(held) = held {
                        let (is_earlier, is_elsewhere) = (taken.at < held.at, taken.places != held.places);
                        // A job that starts in time may start on other nodes than were promised.
                        has_moved |= is_earlier || (is_elsewhere && taken.at == self.now);
                        if is_earlier || is_elsewhere {
                            stays.free(&held, Some(&taken), &self.pass.grids);
                        }
                    }
                    let outcome = if due.is_some() { self.of_whole(job, outcome) } else { outcome };
                    Slot { held: Held::Taken(Box::new(taken)), outcome: Some(outcome), n_checked: stays.n_freed() }
                }
                (Err(shortage), held, _) => {
                    if let Some(held) = held {
                        stays.free(&held, None, &self.pass.grids);
                    }
                    Slot { held: Held::Nothing, outcome: Some(Placed::Never { shortage }), n_checked: None }
                }
            };
            slots.insert(job, slot);
        }
        has_moved
    }

    /// Returns whether a job with named nodes cannot move forward. It can only while it would use something that was
    /// freed since it was checked.
    fn must_stay_there(&self, job: JobId, held: &Held, n_checked: Option<usize>, stays: &Stays) -> bool {
        let (Held::Taken(held), Some(n_checked), Some(freed)) = (held, n_checked, &stays.freed) else { return false };
        held.at > self.now && !self.pass.may_start_earlier(self.spec(job), held, &freed[n_checked..])
    }

    /// Returns whether a job cannot move forward. Before its promised start it holds nothing itself, so it needs enough
    /// nodes that are free from some instant on until that start, or for its wall time.
    fn must_stay(&self, demand: &Demand, held: &Held, stays: &mut Stays) -> bool {
        let at = match held {
            Held::Nothing => return false,
            Held::AsPromised(at) => *at,
            Held::Taken(taken) => taken.at,
        };
        let Some(PlainDemand { cluster, wall }) = demand.plain.filter(|_| stays.may_pass_by) else { return false };
        if at <= self.now {
            return false;
        }
        // A job that starts earlier starts before that time.
        let (nodes, before) = (demand.least_nodes, at.min(stays.freed_until));
        let first_free = || self.pass.all.first_free(cluster, nodes, self.now);
        let first = *stays.first_free.entry((cluster, nodes)).or_insert_with(first_free);
        if first >= before {
            return true;
        }
        let known = stays.full_until.entry((cluster, nodes, wall)).or_insert(first);
        // What is full for an earlier promised start is full for a later one, but not the other way round: the promised
        // start bounds the time for which nodes must be free.
        let from = if *known <= at { first.max(*known) } else { first };
        let is_full = self.pass.all.is_full_until(cluster, nodes, wall, (from, before, at));
        if is_full {
            *known = at.max(*known);
        }
        is_full
    }

    /// Returns the view without what the application itself holds.
    fn view_without(&mut self, job: JobId, held: &Held) -> View {
        let held = self.lay_down(job, held.clone());
        let view = self.view();
        self.take_up(held);
        view
    }

    fn look_without(&mut self, job: JobId, held: &Held) {
        if self.look.is_none() {
            return;
        }
        let held = self.lay_down(job, held.clone());
        self.look(Moment::Before(job));
        self.take_up(held);
    }

    /// Gives back what an application holds, temporarily.
    fn lay_down(&mut self, job: JobId, held: Held) -> Option<Taken> {
        let held = match held {
            Held::Nothing => None,
            Held::AsPromised(_) => self.pass.promised(self.spec(job), self.state.jobs()[&job].promised.as_ref()),
            Held::Taken(taken) => Some(*taken),
        };
        if let Some(held) = &held {
            self.pass.give_back(held);
        }
        held
    }

    fn take_up(&mut self, held: Option<Taken>) {
        if let Some(held) = held {
            self.pass.take_again(&held);
        }
    }

    fn view_for(&mut self, job: JobId) -> Option<View> {
        (self.shows)(job).then(|| self.view())
    }

    fn view(&mut self) -> View {
        if let Some(cores) = &mut self.cores_seen {
            *cores = self.pass.grids.cores_taken();
        }
        self.pass.view(self.state, self.now)
    }

    pub(super) fn spec(&self, job: JobId) -> &'a JobSpec {
        &self.state.jobs()[&job].spec
    }
}
