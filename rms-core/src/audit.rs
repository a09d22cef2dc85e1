//! The audit: records each call by which an admin, or a token's holder, changes the system.

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::call::Call;
use rms_api::call::traits::{Audit, JobsOf};
use rms_model::{Identity, JobId, Role, Time};

use crate::context::Context;
use crate::rights;
use crate::state::State;
use crate::state::fact::Fact;
use crate::step::Step;

/// The audit entry of a call, built before the call is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    action: &'static str,
    subject: Subject,
    detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Named(String),
    /// The jobs of the answer that belong to other users: changes to one's own jobs are not audited.
    Jobs {
        others: Vec<JobId>,
    },
}

impl Context {
    /// Records a call that was carried out.
    pub(crate) fn audit_call(&mut self, now: Time, step: &mut Step, who: &Identity, act: Act, answer: &Answer) {
        let subject = match act.subject {
            Subject::Named(subject) => subject,
            Subject::Jobs { mut others } => {
                if let Answer::Jobs { done, .. } = answer {
                    others.retain(|job| done.contains(job));
                }
                let ids: Vec<String> = others.iter().take(MAX_NAMED).map(JobId::to_string).collect();
                let more = others.len().saturating_sub(MAX_NAMED);
                match (ids.is_empty(), more) {
                    (true, _) => return,
                    (false, 0) => format!("job {}", ids.join(",")),
                    (false, more) => format!("job {} and {more} more", ids.join(",")),
                }
            }
        };
        self.audit(now, step, who.name.clone(), act.action, subject, act.detail);
    }

    pub(crate) fn audit(
        &mut self,
        now: Time,
        step: &mut Step,
        by: String,
        action: &str,
        subject: String,
        detail: String,
    ) {
        let subject = subject.chars().take(MAX_CHARS).collect();
        let new = detail.chars().take(MAX_CHARS).collect();
        let entry = AuditEntry { at: now, by, subject, old: String::new(), new, action: action.to_owned() };
        self.record(step, Fact::Audited { entry });
    }
}

/// Returns what is to be recorded of this call if it is carried out.
pub(crate) fn act_of(state: &State, who: &Identity, call: &Call) -> Option<Act> {
    if who.role != Role::Admin {
        return None;
    }
    let traits = call.traits();
    match traits.audit {
        Audit::Unrecorded => None,
        Audit::Recorded { action, subject, detail } => {
            Some(Act { action, subject: Subject::Named(subject.to_string()), detail: detail.to_string() })
        }
        Audit::OfJobs { action, detail } => {
            let is_others = |job: &JobId| state.jobs().get(job).is_some_and(|entry| entry.spec.owner.0 != who.name);
            let jobs = match traits.jobs {
                JobsOf::Nothing => Vec::new(),
                JobsOf::One(job) => vec![job],
                JobsOf::These(jobs) => jobs.to_vec(),
                JobsOf::Selected(select) => rights::selected(state, who, select).ok()?,
            };
            let others: Vec<JobId> = jobs.into_iter().filter(is_others).collect();
            (!others.is_empty()).then(|| Act { action, subject: Subject::Jobs { others }, detail: detail.to_string() })
        }
    }
}

/// Limits that keep an entry one line of a table, whatever was named.
const MAX_NAMED: usize = 20;
const MAX_CHARS: usize = 300;
