//! The supervisor's part in the steps of its job: receives orders for them, and reports their events.

use super::Supervisor;
use super::job::{Job, Phase};
use super::spawned::Parent;
use super::start::StartError;
use super::step::{Source, Step, StepFrame, block};
use crate::order::{FromSupervisor, StepOrder};
use crate::pmi::frames::Down;
use crate::sys::{Reaped, SingleThreaded};

/// What a step may need to start tasks.
pub struct StartContext<'a> {
    parent: Parent<'a>,
    single: &'a SingleThreaded,
}

impl Supervisor {
    pub(super) fn begin_step(&mut self, order: StepOrder) {
        let stream = order.stream;
        let Supervisor { job, folder, single, .. } = self;
        let begun = match job {
            Some(Job { phase: Phase::Running, account: Some(account), order: of_job, variables, .. }) => {
                Step::start(&Parent { order: of_job, account, variables, folder }, order, single)
            }
            Some(_) | None => Err(StartError::Ending),
        };
        match (begun, job) {
            (Ok(mut step), Some(job)) => {
                job.cpus.bound_tasks.add(step.take_bound());
                // The kernel may reuse the number of a session that has ended.
                job.steps.iter_mut().for_each(|other| other.forget_sessions(step.sessions()));
                job.steps.push(step);
                self.with_steps(|steps, _, frames| {
                    if let Some(step) = steps.last_mut() {
                        step.open(frames);
                    }
                });
            }
            (Ok(_), None) => {}
            (Err(error), _) => self.send(&FromSupervisor::StepFailed { stream, reason: error.to_string() }),
        }
    }

    fn with_steps(&mut self, act: impl FnOnce(&mut [Step], &StartContext<'_>, &mut Vec<StepFrame>)) {
        let Supervisor { job: Some(job), folder, single, .. } = self else { return };
        let Job { steps, account: Some(account), order, variables, .. } = job else { return };
        if steps.is_empty() {
            return;
        }
        let mut frames = Vec::new();
        act(steps, &StartContext { parent: Parent { order, account, variables, folder }, single }, &mut frames);
        steps.retain_mut(|step| !step.settle(&mut frames));
        for word in frames {
            match word {
                StepFrame::Message(message) => self.send(&message),
                StepFrame::Bytes { stream, bytes } => self.send_bytes(stream, &bytes),
            }
        }
    }

    fn with_step(&mut self, stream: u64, act: impl FnOnce(&mut Step, &StartContext<'_>, &mut Vec<StepFrame>)) {
        self.with_steps(|steps, context, frames| {
            if let Some(step) = steps.iter_mut().find(|step| Some(step.stream()) == block(stream)) {
                act(step, context, frames);
            }
        });
    }

    pub(super) fn step_ready(&mut self, idx: usize, source: Source) {
        self.with_steps(|steps, context, frames| {
            if let Some(step) = steps.get_mut(idx) {
                step.ready(source, &context.parent, context.single, frames);
            }
        });
    }

    pub(super) fn step_input(&mut self, stream: u64, bytes: &[u8]) {
        self.with_step(stream, |step, _, frames| step.input(stream, bytes, frames));
    }

    pub(super) fn step_confirmed(&mut self, stream: u64, n_bytes: u64) {
        self.with_step(stream, |step, _, _| step.confirmed(stream, n_bytes));
    }

    pub(super) fn step_signal(&mut self, stream: u64, signal: i32) {
        self.with_step(stream, |step, _, _| step.signal(signal));
    }

    pub(super) fn end_step(&mut self, stream: u64, is_silent: bool) {
        let has_term = self.job.as_ref().is_some_and(Job::has_term);
        self.with_step(stream, |step, _, frames| step.end(is_silent, has_term, frames));
    }

    pub(super) fn step_receive(&mut self, stream: u64, frame: Down) {
        self.with_step(stream, |step, context, frames| step.hear(frame, &context.parent, context.single, frames));
    }

    /// Ends the steps after the agent that requested them has ended; the job continues.
    pub(super) fn abandon_steps(&mut self) {
        self.with_steps(|steps, _, _| steps.iter_mut().for_each(Step::abandon));
    }

    pub(super) fn steps_on_time(&mut self, now: std::time::Instant) {
        self.with_steps(|steps, context, _| steps.iter_mut().for_each(|step| step.on_time(now, context.single)));
    }

    pub(super) fn step_reaped(&mut self, reaped: &Reaped) {
        self.with_steps(|steps, context, frames| {
            for step in steps {
                step.reaped(reaped, &context.parent, context.single, frames);
            }
        });
    }
}
