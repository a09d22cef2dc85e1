//! Promises that are due, under the policy `conservative`. Jobs that are ended at the end of their wall time leave some
//! milliseconds later: the next ones start late by that. If all that they take were late by as much, it would no longer
//! fit before what others were promised after it, and they would have to wait until after those. So their place ends
//! when it was to end, and for [`SOON`] they keep it while others make room.

use rms_model::{Evolution, JobId, JobSpec, Request, Span, Time};

use super::Placed;
use super::fit::Fit;
use super::policy::Walk;
use super::slots::{Held, Slot};
use crate::state::Demand;
use crate::state::job::{AT_ONCE, Promise, SOON};

impl Walk<'_, '_> {
    /// Takes what a job was promised: as it was, or what is left of it now, or as soon after it as there is room.
    pub(super) fn keep(&mut self, job: JobId, demand: &Demand) -> Slot {
        let Some(promise) = &self.state.jobs()[&job].promised else { return Slot::of(Held::Nothing, None) };
        let rest = if promise.at < self.now { self.keep_rest(job, promise, self.now) } else { None };
        let kept =
            rest.or_else(|| Some(Slot::of(Held::Taken(Box::new(self.pass.keep(self.spec(job), promise)?)), None)));
        // Those that make room may have begun late themselves, by less than they are given to leave.
        let late = [AT_ONCE, SOON, SOON + SOON].map(|late| promise.at + late);
        let now = self.now;
        let mut to_come = late.into_iter().filter(|at| *at > now);
        let kept = kept.or_else(|| to_come.find_map(|from| self.keep_rest(job, promise, from)));
        kept.unwrap_or_else(|| self.keep_late(job, demand))
    }

    /// Takes what is left from this time on of what a job was promised for about now.
    fn keep_rest(&mut self, job: JobId, promise: &Promise, from: Time) -> Option<Slot> {
        let spec = self.spec(job);
        let request = spec.options.get(promise.option_idx as usize)?;
        // The later stages of an evolving application stay where they were to be.
        let first = spec.evolving.as_ref().and_then(|evolving| evolving.stages.stages().first());
        let end = promise.at + first.map_or(request.wall, |first| first.span);
        let still = promise.at + SOON;
        let waits = from > self.now;
        let is_soon = (self.now..self.now + SOON + SOON).contains(&still);
        if !is_soon || (waits && still == self.now) || end <= from {
            return None;
        }
        let mut rest = JobSpec { options: vec![Request { wall: end.since(from), ..request.clone() }], ..spec.clone() };
        if let Some(evolving) = &mut rest.evolving {
            evolving.stages = with_first(&evolving.stages, end.since(from))?;
        }
        let mut left = Promise { at: from, option_idx: 0, ..promise.clone() };
        left.spans.first_mut().into_iter().for_each(|first| *first = end.since(from));
        let taken = self.pass.keep(&rest, &left)?;
        self.due.insert(job, rest);
        let outcome = waits.then(|| Placed::Later {
            request: request.clone(),
            option_idx: promise.option_idx,
            at: promise.at,
            blocked: None,
            fit: None,
            nodes: promise.nodes.clone(),
        });
        Some(Slot::of(Held::Taken(Box::new(taken)), outcome))
    }

    /// Places a job whose promise no longer fits, because a job is late or nodes have gone, in the next hole after it:
    /// jobs behind it, whose promises are kept later, do not overtake it.
    fn keep_late(&mut self, job: JobId, demand: &Demand) -> Slot {
        let late = demand.promised.and_then(|at| self.pass.find(self.spec(job), at.max(self.now)).ok());
        let Some(found) = late else { return Slot::of(Held::Nothing, None) };
        let (outcome, taken) = self.pass.settle_until(found, None);
        let outcome = Some(outcome).filter(|outcome| matches!(outcome, Placed::Now { .. }));
        Slot::of(Held::Taken(Box::new(taken)), outcome)
    }

    /// Returns the outcome of a job that was placed for the rest of what it was promised: it runs for its whole wall
    /// time.
    pub(super) fn of_whole(&self, job: JobId, outcome: Placed) -> Placed {
        let entry = &self.state.jobs()[&job];
        let promise = entry.promised.as_ref().expect("only a promise is due");
        let request = entry.spec.options[promise.option_idx as usize].clone();
        match outcome {
            Placed::Now { request: rest, nodes, slices, row, fit: Some(fit) } => {
                let late = self.now.since(promise.at);
                let first = fit.expanded.stages().first().map_or(Span::ZERO, |first| first.span);
                let expanded = with_first(&fit.expanded, first + late).unwrap_or_else(|| fit.expanded.clone());
                let request = Request { wall: expanded.span(), ..rest };
                Placed::Now { request, nodes, slices, row, fit: Some(Box::new(Fit { expanded, ..*fit })) }
            }
            Placed::Now { nodes, slices, row, fit: None, .. } => Placed::Now { request, nodes, slices, row, fit: None },
            Placed::Later { at, blocked, fit, nodes, .. } => {
                Placed::Later { request, option_idx: promise.option_idx, at, blocked, fit, nodes }
            }
            Placed::Never { shortage } => Placed::Never { shortage },
        }
    }
}

/// Returns the stages, the first of which lasts this long; `None` if that is no time.
fn with_first(stages: &Evolution, span: Span) -> Option<Evolution> {
    let later = stages.stages().iter().skip(1).map(|stage| stage.span);
    let spans: Vec<Span> = std::iter::once(span).chain(later).collect();
    stages.lasting(&spans)
}
