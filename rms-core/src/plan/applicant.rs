//! When an application would start that was not submitted.

use rms_model::{JobId, JobSpec, Policy, Span, Time};

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
    let mut left = Left { now, pass: walk.pass, from, starts };
    let options = spec.options.iter().filter(|_| spec.options.len() > 1);
    let alone = options.map(|option| {
        let only = JobSpec { options: vec![option.clone()], ..spec.clone() };
        (option.clone(), left.estimate(&only))
    });
    let alone = alone.collect();
    WouldStart { chosen: left.place(spec), alone, n_before }
}

/// What the jobs of the queue leave for an application that was not submitted.
struct Left<'a> {
    now: Time,
    pass: Pass<'a>,
    /// The earliest start in `pass`.
    from: Time,
    /// What is left for a start now, where jobs start that do not delay those that wait (`easy`).
    starts: Option<Pass<'a>>,
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
