//! Handles users' commands about their jobs: submit, hold, release, change the priority, signal and cancel.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rms_api::answer::{Answer, Reason};
use rms_api::call::{Select, Submission};
use rms_api::refusal::{Refusal, Refused};
use rms_model::{Identity, JobId, Role, Time};

use crate::admit;
use crate::effect::Effect;
use crate::jobs::Jobs;
use crate::plan::{self, Placed};
use crate::quota::{self, SubmitRates};
use crate::rights::{self, check_priority, not_allowed, wrong_state};
use crate::state::fact::Fact;
use crate::state::job::Phase;
use crate::step::Step;

/// Handles commands about jobs.
pub(crate) struct Queue<'a> {
    pub(crate) jobs: Jobs<'a>,
    pub(crate) submit_rates: &'a mut SubmitRates,
}

impl Queue<'_> {
    pub(crate) fn submit(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        submission: Submission,
    ) -> Result<Answer, Refusal> {
        match who.role {
            Role::User | Role::Admin => {}
            Role::Server | Role::Agent | Role::Job => {
                return Err(not_allowed(who, "submit jobs", "users and admins may"));
            }
        }
        check_priority(who, submission.priority)?;
        let max = self.jobs.state().settings().max_jobs;
        if self.jobs.state().jobs().len() >= max as usize {
            return Err(Refusal::SystemFull { max });
        }
        let (test_only, held) = (submission.test_only, submission.hold);
        let mut spec = admit::admit(self.jobs.state(), who, submission)?;
        // Done before the spec is shared, so that it need not be copied.
        if let Some(known) = self.jobs.state().known_environment(&spec.execution.environment) {
            spec.execution.environment = known;
        }
        quota::check_quota(self.jobs.state(), who, &spec)?;
        if test_only {
            return Ok(self.would_start(now, &spec, held));
        }
        self.submit_rates.check(
            self.jobs.context.state(),
            now,
            who,
            &spec.execution.work,
            &spec.execution.environment,
        )?;
        let job = self.jobs.state().last_job.next();
        let not_yet = spec.begin.is_some_and(|begin| begin > now);
        self.jobs.context.record(step, Fact::JobSubmitted { job, at: now, spec: Arc::new(spec), held });
        if !held && !not_yet {
            self.jobs.context.record(step, Fact::RequestSent { job, at: now });
            self.jobs.context.passes.wanted = true;
        }
        Ok(Answer::Submitted { job })
    }

    fn would_start(&mut self, now: Time, spec: &rms_model::JobSpec, held: bool) -> Answer {
        let state = self.jobs.state();
        let cannot_be_planned = |reason| Answer::WouldStart {
            request: spec.options[0].clone(),
            at: None,
            reason,
            sizes: Vec::new(),
            now: Some(now),
            lent_by: Vec::new(),
        };
        if held {
            let reason = Some(Reason::Held { by: spec.owner.0.clone() });
            return cannot_be_planned(reason);
        }
        let is_before = |job: &JobId| state.jobs()[job].spec.priority >= spec.priority;
        let n_before = || state.demands().filter(|(job, _)| is_before(job)).count() as u32;
        if let Some((depth, n_before)) = state.depth().map(|depth| (depth, n_before()))
            && n_before >= depth
        {
            // The job is not planned before others have started.
            let reason = Some(Reason::BeyondDepth { depth, position: n_before + 1 });
            return cannot_be_planned(reason);
        }
        let plan::WouldStart { chosen: placed, lent_by, alone, n_before } =
            plan::plan_with(self.jobs.state(), now, spec);
        let plan = self.jobs.context.estimates(now);
        let reason = match &placed {
            Placed::Now { .. } => None,
            Placed::Later { .. } | Placed::Never { .. } => {
                let waiting = plan::Waiting { spec, placed_idx: n_before.min(plan.placements.len()) };
                plan::outcome_reason(self.jobs.state(), &plan, waiting, &placed, now)
            }
        };
        let at = placed.estimate(now);
        let begin = spec.begin.filter(|begin| *begin > now && at == Some(*begin));
        let reason = begin.map_or(reason, |at| Some(Reason::NotBefore { at }));
        let request = placed.request().unwrap_or(&spec.options[0]).clone();
        Answer::WouldStart { request, at, reason, sizes: alone, now: Some(now), lent_by }
    }

    /// Calls `act` for each selected job that the caller may touch.
    pub(crate) fn for_each(
        &mut self,
        who: &Identity,
        select: &Select,
        mut act: impl FnMut(&mut Queue<'_>, JobId) -> Result<(), Refusal>,
    ) -> Result<Answer, Refusal> {
        let mut done = Vec::new();
        let mut refused = Vec::new();
        let mut selected = rights::selected(self.jobs.state(), who, select)?;
        if matches!(select, Select::All | Select::User(_)) {
            // Jobs that are done cannot be changed, and the caller has not named them.
            let jobs = self.jobs.state().jobs();
            selected.retain(|job| jobs.get(job).is_none_or(|entry| !matches!(entry.phase, Phase::Ghost(_))));
        }
        for job in selected {
            let outcome = rights::may_touch(self.jobs.state(), who, job).and_then(|()| act(self, job));
            match outcome {
                Ok(()) => done.push(job),
                Err(refusal) => refused.push((job, Refused::from(&refusal))),
            }
        }
        Ok(Answer::Jobs { done, refused })
    }

    pub(crate) fn signal(&mut self, step: &mut Step, job: JobId, signal: i32) -> Result<(), Refusal> {
        if !(1..=64).contains(&signal) {
            return Err(Refusal::Malformed("a signal is a number from 1 to 64"));
        }
        let entry = &self.jobs.state().jobs()[&job];
        let Some(started) = entry.started() else {
            return Err(wrong_state(job, entry.state().word(), "only a started job can be signalled"));
        };
        for node in started.alive() {
            let node = self.jobs.state().nodes()[&node].name.clone();
            step.order(Effect::Signal { node, job, run: entry.run, signal });
        }
        Ok(())
    }

    pub(crate) fn hold(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        match &self.jobs.state().jobs()[&job].phase {
            Phase::Submitted { hold: Some(_) } if !self.replaces_hold(who, job) => {
                Err(wrong_state(job, "held", "there is nothing to do"))
            }
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                self.jobs.context.record(step, Fact::JobHeld { job, by: who.name.clone(), at: now });
                self.jobs.context.passes.wanted = true;
                Ok(())
            }
            Phase::Started(_) => {
                let state = self.jobs.state().jobs()[&job].state().word();
                Err(wrong_state(job, state, "only a waiting job can be held"))
            }
            Phase::Ghost(_) => Err(wrong_state(job, "done", "only its ghost keeps the nodes")),
        }
    }

    /// Returns whether the job is held and a hold of the caller would be stronger: only an admin releases that of one.
    pub(crate) fn replaces_hold(&self, who: &Identity, job: JobId) -> bool {
        let entry = &self.jobs.state().jobs()[&job];
        let owner = entry.spec.owner.0.as_str();
        let is_users = matches!(&entry.phase, Phase::Submitted { hold: Some(hold) } if hold.by == owner);
        is_users && who.role == Role::Admin && who.name != owner
    }

    pub(crate) fn release(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        match &entry.phase {
            Phase::Submitted { hold: Some(hold) } => {
                // A user cannot release a hold of an admin.
                let by_another = hold.by != entry.spec.owner.0 && who.role != Role::Admin;
                if by_another {
                    return Err(not_allowed(who, "release a job that an admin holds", "an admin may"));
                }
                let not_yet = match &entry.launcher {
                    Some(_) => entry.requested.is_none(),
                    None => entry.spec.begin.is_some_and(|begin| begin > now),
                };
                self.jobs.context.record(step, Fact::JobReleased { job, by: who.name.clone(), at: now });
                if !not_yet {
                    self.jobs.context.record(step, Fact::RequestSent { job, at: now });
                    self.jobs.context.passes.wanted = true;
                }
                Ok(())
            }
            Phase::Submitted { hold: None }
            | Phase::RequestSent
            | Phase::Waiting
            | Phase::Started(_)
            | Phase::Ghost(_) => Err(wrong_state(job, entry.state().word(), "only a held job can be released")),
        }
    }
}
