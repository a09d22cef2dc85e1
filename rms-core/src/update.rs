//! Changes what was said of a job: all that is asked at once, or nothing.

use std::sync::Arc;

use rms_api::call::update::Changes;
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, Time};

use crate::queue::Queue;
use crate::rights::{check_priority, wrong_state};
use crate::state::fact::Fact;
use crate::state::job::Phase;
use crate::step::Step;

impl Queue<'_> {
    pub(crate) fn update(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        changes: &Changes,
    ) -> Result<(), Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => {}
            Phase::Ghost(_) => return Err(wrong_state(job, "done", "only its ghost keeps the hosts")),
        }
        let mut spec = (*entry.spec).clone();
        if let Some(priority) = changes.priority {
            check_priority(who, priority)?;
            // While it runs, it says whom it gives hosts to, and who gives some to it.
            spec.priority = priority;
        }
        let spec = Arc::new(spec.without_work());
        self.jobs.context.record(step, Fact::JobUpdated { job, spec, wall: None, by: who.name.clone(), at: now });
        self.jobs.context.passes.wanted = true;
        Ok(())
    }
}
