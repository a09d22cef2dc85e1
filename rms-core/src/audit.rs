//! The audit: records each call by which an admin, or a token's holder, changes the system.

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::call::{Call, CertificateSelect, JobsOfRevoked, Select, TokenOrder};
use rms_api::masks::{MaskOrder, ProcessOf};
use rms_api::negotiate::Order;
use rms_model::token::TokenIdentity;
use rms_model::{Identity, JobId, Role, Time, hostlist};

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

/// Returns what is to be recorded of this call if it is carried out. Matches every call by name, so that a new one must
/// be decided on.
pub(crate) fn act_of(state: &State, who: &Identity, call: &Call) -> Option<Act> {
    if who.role != Role::Admin {
        return None;
    }
    let named =
        |action, subject: String, detail: String| Some(Act { action, subject: Subject::Named(subject), detail });
    let nodes = |action, nodes: &[String], reason: &str| named(action, hostlist::fold(nodes), reason.to_owned());
    match call {
        Call::Drain { nodes: names, reason } => nodes("drain", names, reason),
        Call::Down { nodes: names, reason } => nodes("down", names, reason),
        Call::Resume { nodes: names } => nodes("resume", names, ""),
        Call::Remove { nodes: names } => nodes("remove", names, ""),
        Call::RemoveCluster { name } => named("cluster-remove", name.clone(), String::new()),
        Call::CreateToken(TokenOrder { id, identity, cluster, .. }) => {
            let cluster = cluster.iter().map(|cluster| format!(", cluster {cluster}"));
            named("token-create", id.clone(), format!("for {}{}", of_token(identity), cluster.collect::<String>()))
        }
        Call::RevokeToken { id } => named("token-revoke", id.clone(), String::new()),
        Call::RevokeCertificate { which, jobs } => {
            let which = match which {
                CertificateSelect::Serial(serial) => serial.clone(),
                CertificateSelect::Identity(identity) => identity.to_string(),
            };
            let detail = match jobs {
                None => "",
                Some(JobsOfRevoked::Keep) => "jobs go on",
                Some(JobsOfRevoked::Cancel) => "jobs are cancelled",
            };
            named("certificate-revoke", which, detail.to_owned())
        }
        Call::OrderNegotiation { job, negotiation, order } => {
            let action = match order {
                Order::Withdraw => "negotiation-withdraw",
                Order::Force => "negotiation-force",
            };
            named(action, format!("job {job} {negotiation}"), String::new())
        }
        Call::Cancel { select } => of_jobs(state, "cancel", who, select, String::new()),
        Call::Signal { select, signal } => of_jobs(state, "signal", who, select, signal.to_string()),
        Call::Hold { select } => of_jobs(state, "hold", who, select, String::new()),
        Call::Release { select } => of_jobs(state, "release", who, select, String::new()),
        Call::Update { select, changes } => of_jobs(state, "update", who, select, changes.to_string()),
        Call::Evolve { job, .. } => of_job(state, "evolve", who, *job, String::new()),
        Call::FreeNodes { job, nodes } => of_job(state, "free", who, *job, hostlist::fold(nodes)),
        Call::Negotiate { job, .. } => of_job(state, "negotiate", who, *job, String::new()),
        Call::SetMask { job, order } => of_job(state, "set-mask", who, *job, of_mask(order)),
        Call::ResizeDone { job, .. } => of_job(state, "resize-done", who, *job, String::new()),
        // These write their own entries, with the old value; calls that change nothing are not recorded.
        Call::Set { .. } | Call::SetLink { .. } => None,
        // Recorded together with the identity that it created.
        Call::Join { .. } => None,
        // Submitting one's own jobs and renewing one's own certificate are not administration.
        Call::Submit(_) | Call::Renew { .. } | Call::Query(_) => None,
    }
}

fn of_job(state: &State, action: &'static str, who: &Identity, job: JobId, detail: String) -> Option<Act> {
    of_jobs(state, action, who, &Select::Ids(vec![job]), detail)
}

fn of_jobs(state: &State, action: &'static str, who: &Identity, select: &Select, detail: String) -> Option<Act> {
    let is_others = |job: &JobId| state.jobs().get(job).is_some_and(|entry| entry.spec.owner.0 != who.name);
    let others: Vec<JobId> = rights::selected(state, who, select).ok()?.into_iter().filter(is_others).collect();
    (!others.is_empty()).then_some(Act { action, subject: Subject::Jobs { others }, detail })
}

fn of_mask(MaskOrder { node: _, process, cpus }: &MaskOrder) -> String {
    let process = match process {
        ProcessOf::Pid(pid) => format!("process {pid}"),
        ProcessOf::Task(task) => format!("task {task}"),
    };
    if cpus.is_empty() { format!("{process}: all CPUs") } else { format!("{process}: CPUs {cpus}") }
}

fn of_token(identity: &TokenIdentity) -> String {
    match identity {
        TokenIdentity::Named(identity) => identity.to_string(),
        TokenIdentity::AnyAgent => "any agent".to_owned(),
    }
}

/// Limits that keep an entry one line of a table, whatever was named.
const MAX_NAMED: usize = 20;
const MAX_CHARS: usize = 300;
