//! Who may start before whom: the walk over the queue that each policy makes.
//!
//! - *views* (001, Fig. 5): each application in order takes its first hole, anew at each pass.
//! - *fcfs*: the same, but nobody starts before the one in front.
//! - *easy*: in a first round applications start now, in order; the first that cannot takes its hole as a reservation,
//!   and from then on only those start that leave it alone. A second round estimates the rest.
//! - *conservative*: what was promised is taken first, at its promised time; then each application in order lets go of
//!   its own promise and takes the first hole there is, which is the promised one or an earlier one. So a job that ends
//!   early moves others forward and nobody back. A promise holds as long as jobs leave by their wall times and hosts
//!   stay: where it does not fit any more, the application is placed like a new one.

use rms_model::{JobId, JobSpec, Policy, Time, View};

use super::pass::{Look, Moment, Pass, Taken};
use super::{Placed, Placement, Plan, Scope};
use crate::job::Job;
use crate::state::State;

pub(super) fn run(
    state: &State,
    now: Time,
    scope: Scope,
    applicant: Option<&JobSpec>,
    look: Option<&mut Look<'_>>,
) -> Plan {
    let n_free = n_free(state);
    // Promises are made even while no host is free.
    let promises = state.settings().policy == Policy::Conservative;
    if scope == Scope::Starts && n_free == 0 && !promises {
        return Plan { now, placements: Vec::new(), base: View::new(), last_view: View::new() };
    }
    let shows = |_: JobId| scope == Scope::Views;
    let mut walk = Walk::new(state, now, n_free, &shows);
    let base = walk.pass.all.view.clone();
    if look.is_some() {
        walk.pass.all.keep_digests(now);
        walk.look = look;
    }
    walk.look(Moment::Begins);
    walk.queue(considered(state), scope);
    walk.look(Moment::Ends);
    if let Some(spec) = applicant {
        let from = walk.earliest;
        let outcome = walk.pass.place(spec, from);
        walk.placements.push(Placement { job: JobId(0), outcome, view: None });
    }
    Plan { now, placements: walk.placements, base, last_view: walk.pass.all.view }
}

/// The plan up to one application, whose view is the last one; `None` if it is not considered.
///
/// The views of all applications would be as many as their number squared.
pub(super) fn run_before(state: &State, now: Time, seer: JobId) -> Option<Plan> {
    let is_queued = state.jobs().get(&seer).is_some_and(Job::is_queued);
    let n_before = if is_queued { considered(state).position(|job| job == seer)? } else { return None };
    let shows = |job: JobId| job == seer;
    let mut walk = Walk::new(state, now, n_free(state), &shows);
    let base = walk.pass.all.view.clone();
    match state.settings().policy {
        // What is behind it does not matter to it.
        Policy::Views | Policy::Fcfs => walk.queue(state.queue().take(n_before + 1), Scope::Estimates),
        Policy::Easy | Policy::Conservative => walk.queue(considered(state), Scope::Estimates),
    }
    let mut placements = walk.placements;
    let last_view = placements.get_mut(n_before).and_then(|placement| placement.view.take())?;
    placements.truncate(n_before);
    Some(Plan { now, placements, base, last_view })
}

/// The applications of the queue that a pass looks at, in order.
fn considered(state: &State) -> impl Iterator<Item = JobId> + '_ {
    let depth = match state.settings().queue_depth {
        0 => usize::MAX,
        depth => depth as usize,
    };
    state.queue().take(depth)
}

fn n_free(state: &State) -> usize {
    state.clusters().keys().map(|cluster| state.n_free(*cluster)).sum()
}

/// One application under the conservative policy: what it holds in the view, and as what.
struct Slot {
    job: JobId,
    held: Option<Taken>,
    outcome: Option<Placed>,
}

/// One pass on its way through the queue.
struct Walk<'a, 'l> {
    state: &'a State,
    now: Time,
    pass: Pass<'a>,
    /// Whose view is wanted.
    shows: &'a dyn Fn(JobId) -> bool,
    /// For launchers outside.
    look: Option<&'a mut Look<'l>>,
    placements: Vec<Placement>,
    /// Nothing that comes now may start before.
    earliest: Time,
}

impl<'a, 'l> Walk<'a, 'l> {
    fn new(state: &'a State, now: Time, n_free: usize, shows: &'a dyn Fn(JobId) -> bool) -> Walk<'a, 'l> {
        let pass = Pass::new(state, now, n_free);
        Walk { state, now, pass, shows, look: None, placements: Vec::new(), earliest: now }
    }

    fn look(&mut self, moment: Moment) {
        if let Some(look) = &mut self.look {
            look(&mut self.pass, moment);
        }
    }

    fn queue(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope) {
        match self.state.settings().policy {
            Policy::Views => self.views(jobs, scope),
            Policy::Fcfs => self.fcfs(jobs, scope),
            Policy::Easy => self.easy(jobs, scope),
            Policy::Conservative => self.conservative(jobs.collect()),
        }
    }

    fn views(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope) {
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

    fn fcfs(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope) {
        for job in jobs {
            self.look(Moment::Before(job));
            let view = self.view_for(job);
            let outcome = self.pass.place(self.spec(job), self.earliest);
            let waits = match &outcome {
                Placed::Now { .. } | Placed::Never { .. } => false,
                Placed::Later { at, .. } => {
                    self.earliest = self.earliest.max(*at);
                    true
                }
            };
            self.placements.push(Placement { job, outcome, view });
            if waits && scope == Scope::Starts {
                break;
            }
        }
    }

    fn easy(&mut self, jobs: impl Iterator<Item = JobId>, scope: Scope) {
        let mut head_waits = false;
        let mut waiting = Vec::new();
        for job in jobs {
            if scope == Scope::Starts && head_waits && self.pass.n_free == 0 {
                break;
            }
            let view = self.view_for(job);
            let found = self.pass.find(self.spec(job), self.now);
            // Behind the head, who does not start now gets his view in the second round.
            let sees_this = found.is_err() || !head_waits;
            if sees_this {
                self.look(Moment::Before(job));
            }
            let outcome = match found {
                Err(shortage) => Some(Placed::Never { shortage }),
                Ok(found) if head_waits => self.pass.start(found),
                Ok(found) => {
                    let outcome = self.pass.settle(found);
                    head_waits = matches!(outcome, Placed::Later { .. });
                    Some(outcome)
                }
            };
            match outcome {
                Some(outcome) => self.placements.push(Placement { job, outcome, view }),
                None => {
                    // Its place in the list is kept for its estimate.
                    waiting.push((self.placements.len() + waiting.len(), job));
                }
            }
        }
        if scope == Scope::Starts {
            return;
        }
        let mut placements = std::mem::take(&mut self.placements).into_iter();
        let mut in_order = Vec::with_capacity(placements.len() + waiting.len());
        for (queue_idx, job) in waiting {
            in_order.extend(placements.by_ref().take(queue_idx - in_order.len()));
            self.look(Moment::Before(job));
            let view = self.view_for(job);
            let outcome = self.pass.place(self.spec(job), self.now);
            in_order.push(Placement { job, outcome, view });
        }
        in_order.extend(placements);
        self.placements = in_order;
    }

    fn conservative(&mut self, jobs: Vec<JobId>) {
        for job in &jobs {
            self.pass.open_ledgers(self.spec(*job));
        }
        let mut slots: Vec<Slot> =
            jobs.into_iter().map(|job| Slot { job, held: self.keep(job), outcome: None }).collect();
        // What one lets go of may let another, even one before it, move forward: until nobody moves.
        while self.sweep(&mut slots) {}
        for Slot { job, held, outcome } in slots {
            self.look_without(job, held.as_ref());
            let view = (self.shows)(job).then(|| self.view_without(held.as_ref()));
            let outcome = outcome.expect("each was placed by the first sweep");
            self.placements.push(Placement { job, outcome, view });
        }
    }

    fn keep(&mut self, job: JobId) -> Option<Taken> {
        let promise = self.state.jobs()[&job].promised?;
        self.pass.keep(self.spec(job), promise)
    }

    /// Each in order lets go of what it holds and takes the first hole. Did that move anyone forward?
    fn sweep(&mut self, slots: &mut [Slot]) -> bool {
        let mut has_moved = false;
        for slot in slots {
            let has_started = matches!(slot.outcome, Some(Placed::Now { .. }));
            if has_started {
                continue;
            }
            if let Some(held) = &slot.held {
                self.pass.give_back(held);
            }
            let latest = slot.held.as_ref().map(|held| held.at);
            let found = match self.pass.find_until(self.spec(slot.job), self.now, latest) {
                Ok(found) => found,
                Err(shortage) => {
                    slot.outcome = Some(Placed::Never { shortage });
                    continue;
                }
            };
            let (outcome, held) = self.pass.settle_until(found, latest);
            has_moved |= latest.is_some_and(|latest| held.at < latest);
            slot.outcome = Some(outcome);
            slot.held = Some(held);
        }
        has_moved
    }

    /// What an application sees is what it does not hold itself.
    fn view_without(&mut self, held: Option<&Taken>) -> View {
        match held {
            Some(held) => {
                self.pass.give_back(held);
                let view = self.pass.view(self.state, self.now);
                self.pass.take_again(held);
                view
            }
            None => self.pass.view(self.state, self.now),
        }
    }

    /// The same for the launcher that speaks for it.
    fn look_without(&mut self, job: JobId, held: Option<&Taken>) {
        if self.look.is_none() {
            return;
        }
        if let Some(held) = held {
            self.pass.give_back(held);
        }
        self.look(Moment::Before(job));
        if let Some(held) = held {
            self.pass.take_again(held);
        }
    }

    fn view_for(&self, job: JobId) -> Option<View> {
        (self.shows)(job).then(|| self.pass.view(self.state, self.now))
    }

    fn spec(&self, job: JobId) -> &'a JobSpec {
        &self.state.jobs()[&job].spec
    }
}
