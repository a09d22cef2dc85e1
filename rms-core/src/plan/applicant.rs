//! When an application would start that was not submitted.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{JobId, JobSpec, Policy, Request, Span, Time};

use super::mates::{Mates, SharingRound};
use super::pass::Pass;
use super::policy::{EasyRound, Walk, considered, n_free};
use super::{Placed, Scope, WouldStart};
use crate::state::{Demand, State};

/// See [`super::plan_with`].
pub(super) fn run_with(state: &State, now: Time, spec: &JobSpec) -> WouldStart {
    // Until its begin an application is not in the queue: it finds what all others leave.
    let begin = spec.begin.filter(|begin| *begin > now);
    let is_before = |(job, _): &(JobId, &Demand)| begin.is_some() || state.jobs()[job].spec.priority >= spec.priority;
    let n_before = considered(state).take_while(is_before).count();
    let mut walk = Walk::new(state, now, n_free(state), &|_| false);
    walk.pass.count_whole_nodes();
    walk.pass.track_all();
    let mut starts = None;
    match state.settings().policy {
        // Applications behind it do not affect it.
        Policy::Views | Policy::Fcfs | Policy::Slowdown => {
            walk.queue(considered(state).take(n_before), Scope::Estimates);
        }
        // Those behind it keep what they were promised.
        Policy::Conservative => walk.queue(considered(state), Scope::Estimates),
        Policy::Easy => {
            let mut round = EasyRound::default();
            walk.start_easily(considered(state).take(n_before), Scope::Estimates, &mut round);
            if round.head_waits {
                starts = begin.is_none().then(|| walk.pass.clone());
                let n_waiting = round.waiting.len();
                walk.start_easily(considered(state).skip(n_before), Scope::Estimates, &mut round);
                round.waiting.truncate(n_waiting);
                walk.estimate_waiting(round.waiting);
            }
        }
    }
    let from = begin.unwrap_or(now).max(walk.earliest);
    let may_borrow = state.settings().policy == Policy::Slowdown && spec.resources.share && begin.is_none();
    let mut left = Left { state, now, pass: walk.pass, from, starts, may_borrow };
    let options = spec.options.iter().filter(|_| spec.options.len() > 1);
    let alone = options.map(|option| {
        let only = JobSpec { options: vec![option.clone()], ..spec.clone() };
        match left.borrow(&only) {
            Some((request, _)) => (request, Some(now)),
            None => (option.clone(), left.estimate(&only)),
        }
    });
    let alone = alone.collect();
    let (chosen, lent_by) = match left.borrow(spec) {
        Some((request, lent_by)) => {
            let (nodes, slices, row) = (Vec::new(), BTreeMap::new(), Vec::new());
            (Placed::Now { request, nodes, slices, row, fit: None }, lent_by)
        }
        None => (left.place(spec), Vec::new()),
    };
    WouldStart { chosen, lent_by, alone, n_before }
}

/// What the jobs of the queue leave for an application that was not submitted.
struct Left<'a> {
    state: &'a State,
    now: Time,
    pass: Pass<'a>,
    /// The earliest start in `pass`.
    from: Time,
    /// What is left for a start now, where jobs start that do not delay those that wait (`easy`).
    starts: Option<Pass<'a>>,
    /// Whether the application starts on cores of running jobs if that is better (004).
    may_borrow: bool,
}

impl Left<'_> {
    /// Places an application. What it gets is not taken.
    fn place(&mut self, spec: &JobSpec) -> Placed {
        let mut from = self.from;
        if let Some(starts) = &mut self.starts {
            match starts.find(spec, self.now) {
                Err(shortage) => return Placed::Never { shortage },
                Ok(found) => {
                    from = found.start.max(self.now + Span::from_millis(1));
                    if let Some(placed) = starts.clone().start(found) {
                        return placed;
                    }
                }
            }
        }
        self.pass.clone().place(spec, from)
    }

    /// Returns the request of an application that would start at once on cores of running jobs, with the time that it
    /// would take, and these jobs.
    fn borrow(&self, spec: &JobSpec) -> Option<(Request, Vec<JobId>)> {
        if !self.may_borrow {
            return None;
        }
        let (state, mut pass) = (self.state, self.pass.clone());
        let found = pass.find(spec, self.from).ok()?;
        let (outcome, taken) = pass.settle_until(found, None);
        let Placed::Later { request, at, fit: None, .. } = outcome else { return None };
        let mut round = SharingRound::new(state, None);
        let mut mates = Mates::new(state, self.now, &mut round);
        let guest = mates.find((state.last_job.next(), spec), at + request.wall, &taken, &mut pass)?;
        let lent_by: BTreeSet<JobId> = guest.lent.iter().map(|lent| lent.mate).collect();
        let wall = guest.runtime(state, spec);
        Some((Request { wall, ..guest.request }, lent_by.into_iter().collect()))
    }

    /// Returns when an application would start, if ever.
    fn estimate(&mut self, spec: &JobSpec) -> Option<Time> {
        let pass = self.starts.as_mut().unwrap_or(&mut self.pass);
        let start = pass.find(spec, self.from).ok()?.start;
        // The nodes that are counted as free now may still be kept for others, which taking them finds out.
        if start <= self.now {
            return self.place(spec).estimate(self.now);
        }
        match self.starts {
            None => Some(start),
            Some(_) => self.pass.find(spec, start).ok().map(|found| found.start),
        }
    }
}
