//! What holds of every call, in one table: which jobs it is about, who may make it when, and what the audit says of it.

use std::fmt;

use negotiation::NegotiationId;
use rms_model::token::TokenIdentity;
use rms_model::{JobId, hostlist};

use super::{Call, CertificateSelect, JobsOfRevoked, Query, Select, TokenOrder};
use crate::masks::{MaskOrder, MasksOf, ProcessOf};
use crate::negotiate::Order;

/// What holds of a call, whatever the state of the system.
#[derive(Clone, Copy, Debug)]
pub struct CallTraits<'a> {
    pub jobs: JobsOf<'a>,
    pub from_job: FromJob,
    pub reserve: Reserve,
    pub audit: Audit<'a>,
}

/// The jobs that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobsOf<'a> {
    /// It is not about jobs that it names.
    Nothing,
    One(JobId),
    These(&'a [JobId]),
    Selected(&'a Select),
}

impl JobsOf<'_> {
    /// Returns whether the call is about this job and no other one.
    pub fn is_only(self, job: JobId) -> bool {
        match self {
            JobsOf::One(only) => only == job,
            JobsOf::These(jobs) => *jobs == [job],
            JobsOf::Selected(Select::Ids(jobs)) => *jobs == [job],
            JobsOf::Nothing | JobsOf::Selected(Select::Last | Select::All | Select::User(_)) => false,
        }
    }
}

/// Whether the processes of a job may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromJob {
    Never,
    /// About their own job alone.
    AboutItself,
    /// It shows what every user may see.
    Always,
}

/// Who may make a call while only a reserve is left on the disk. An unlimited number of small calls would use the
/// reserve up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// It is new work.
    Nobody,
    /// They need it to resolve the shortage.
    Admins,
    /// Their jobs and certificates bound the number of such calls, or nothing is written.
    Everybody,
}

/// What the audit records of a call of an admin that was carried out.
#[derive(Clone, Copy, Debug)]
pub enum Audit<'a> {
    /// Nothing, or the handler records more than the call says.
    Unrecorded,
    Recorded {
        action: &'static str,
        subject: Text<'a>,
        detail: Text<'a>,
    },
    /// The subject is those of the jobs that belong to other users.
    OfJobs {
        action: &'static str,
        detail: Text<'a>,
    },
}

/// A part of an audit entry, printed only if one is written.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    Nothing,
    Plain(&'a str),
    Nodes(&'a [String]),
    Of(&'a dyn fmt::Display),
    Negotiation(JobId, NegotiationId),
}

impl Call {
    /// Returns what holds of this call. Matches every call by name, so that a new one must be decided on.
    pub fn traits(&self) -> CallTraits<'_> {
        use Audit::Unrecorded;
        use FromJob::{AboutItself, Never};
        use JobsOf::{Nothing, One, Selected};
        use Reserve::{Admins, Everybody, Nobody};

        let of = |jobs, from_job, reserve, audit| CallTraits { jobs, from_job, reserve, audit };
        // About the system, and only by people.
        let admin = |audit| of(Nothing, Never, Admins, audit);
        match self {
            // Submitting one's own jobs and renewing one's own certificate are not administration.
            Call::Submit(_) => of(Nothing, Never, Nobody, Unrecorded),
            Call::Renew { .. } => of(Nothing, Never, Everybody, Unrecorded),
            Call::Query(query) => {
                let (jobs, from_job) = query.jobs();
                of(jobs, from_job, Everybody, Unrecorded)
            }
            Call::Cancel { select } => of(Selected(select), AboutItself, Everybody, of_jobs("cancel", Text::Nothing)),
            Call::Signal { select, signal } => {
                of(Selected(select), AboutItself, Everybody, of_jobs("signal", Text::Of(signal)))
            }
            Call::Hold { select } => of(Selected(select), Never, Admins, of_jobs("hold", Text::Nothing)),
            Call::Release { select } => of(Selected(select), Never, Admins, of_jobs("release", Text::Nothing)),
            Call::Update { select, changes } => {
                of(Selected(select), Never, Admins, of_jobs("update", Text::Of(changes.as_ref())))
            }
            // 000: the application announces its stages, and what it frees.
            Call::Evolve { job, .. } => of(One(*job), AboutItself, Admins, of_jobs("evolve", Text::Nothing)),
            Call::FreeNodes { job, nodes } => of(One(*job), AboutItself, Admins, of_jobs("free", Text::Nodes(nodes))),
            Call::Negotiate { job, .. } => of(One(*job), AboutItself, Admins, of_jobs("negotiate", Text::Nothing)),
            Call::ResizeDone { job, .. } => of(One(*job), AboutItself, Admins, of_jobs("resize-done", Text::Nothing)),
            // Writes only the audit entry of an admin.
            Call::SetMask { job, order } => of(One(*job), AboutItself, Everybody, of_jobs("set-mask", Text::Of(order))),
            Call::OrderNegotiation { job, negotiation, order } => {
                let action = match order {
                    Order::Withdraw => "negotiation-withdraw",
                    Order::Force => "negotiation-force",
                };
                let subject = Text::Negotiation(*job, *negotiation);
                of(One(*job), AboutItself, Admins, recorded(action, subject, Text::Nothing))
            }
            // These write their own entries, with the old value; calls that change nothing are not recorded.
            Call::Set { .. } | Call::SetLink { .. } => admin(Unrecorded),
            // Recorded together with the identity that it created.
            Call::Join { .. } => admin(Unrecorded),
            Call::Drain { nodes, reason } => admin(recorded("drain", Text::Nodes(nodes), Text::Plain(reason))),
            Call::Down { nodes, reason } => admin(recorded("down", Text::Nodes(nodes), Text::Plain(reason))),
            Call::Resume { nodes } => admin(recorded("resume", Text::Nodes(nodes), Text::Nothing)),
            Call::Remove { nodes } => admin(recorded("remove", Text::Nodes(nodes), Text::Nothing)),
            Call::RemoveCluster { name } => admin(recorded("cluster-remove", Text::Plain(name), Text::Nothing)),
            Call::CreateToken(order) => admin(recorded("token-create", Text::Plain(&order.id), Text::Of(order))),
            Call::RevokeToken { id } => admin(recorded("token-revoke", Text::Plain(id), Text::Nothing)),
            Call::RevokeCertificate { which, jobs } => {
                let detail = match jobs {
                    None => Text::Nothing,
                    Some(JobsOfRevoked::Keep) => Text::Plain("jobs go on"),
                    Some(JobsOfRevoked::Cancel) => Text::Plain("jobs are cancelled"),
                };
                admin(recorded("certificate-revoke", Text::Of(which), detail))
            }
        }
    }
}

fn recorded<'a>(action: &'static str, subject: Text<'a>, detail: Text<'a>) -> Audit<'a> {
    Audit::Recorded { action, subject, detail }
}

fn of_jobs<'a>(action: &'static str, detail: Text<'a>) -> Audit<'a> {
    Audit::OfJobs { action, detail }
}

impl Query {
    /// Returns the jobs that it is about, and whether the processes of a job may ask it.
    fn jobs(&self) -> (JobsOf<'_>, FromJob) {
        use FromJob::{AboutItself, Always, Never};
        match self {
            Query::Job(select) | Query::Explain(select) => (JobsOf::Selected(select), AboutItself),
            Query::Details(filter) => (JobsOf::These(&filter.jobs), AboutItself),
            Query::Masks(MasksOf::Job(job)) => (JobsOf::One(*job), AboutItself),
            Query::Negotiations { job: Some(job) } => (JobsOf::One(*job), AboutItself),
            // All jobs that the caller has access to.
            Query::Negotiations { job: None } => (JobsOf::Nothing, Always),
            // What `rms show` and `rms queue` need.
            Query::Queue(_) | Query::Nodes(_) | Query::Clusters | Query::Licences => (JobsOf::Nothing, Always),
            Query::View { .. }
            | Query::Settings
            | Query::Audit
            | Query::Tokens
            | Query::Certificates
            | Query::Budgets
            | Query::Masks(MasksOf::Node(_))
            | Query::Status => (JobsOf::Nothing, Never),
        }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Nothing => Ok(()),
            Text::Plain(text) => f.write_str(text),
            Text::Nodes(nodes) => f.write_str(&hostlist::fold(nodes)),
            Text::Of(value) => write!(f, "{value}"),
            Text::Negotiation(job, negotiation) => write!(f, "job {job} {negotiation}"),
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// Prints for whom the token is: `for any agent, cluster a`.
impl fmt::Display for TokenOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            TokenIdentity::Named(identity) => write!(f, "for {identity}")?,
            TokenIdentity::AnyAgent => f.write_str("for any agent")?,
        }
        self.cluster.iter().try_for_each(|cluster| write!(f, ", cluster {cluster}"))
    }
}

impl fmt::Display for CertificateSelect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateSelect::Serial(serial) => f.write_str(serial),
            CertificateSelect::Identity(identity) => write!(f, "{identity}"),
        }
    }
}

/// Prints the process and its CPUs: `task 3: CPUs 0-3`.
impl fmt::Display for MaskOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            ProcessOf::Pid(pid) => write!(f, "process {pid}: ")?,
            ProcessOf::Task(task) => write!(f, "task {task}: ")?,
        }
        if self.cpus.is_empty() { f.write_str("all CPUs") } else { write!(f, "CPUs {}", self.cpus) }
    }
}

#[cfg(test)]
mod tests {
    use negotiation::Side;
    use rms_model::Identity;

    use super::*;

    /// Returns what the audit records of a call.
    fn entry(call: &Call) -> Option<[String; 3]> {
        let traits = call.traits();
        match traits.audit {
            Audit::Unrecorded => None,
            Audit::Recorded { action, subject, detail } => {
                Some([action.to_owned(), subject.to_string(), detail.to_string()])
            }
            Audit::OfJobs { action, detail } => {
                assert_ne!(traits.jobs, JobsOf::Nothing, "{call:?} is recorded with its jobs");
                Some([action.to_owned(), String::new(), detail.to_string()])
            }
        }
    }

    #[test]
    fn an_entry_of_the_audit_names_subject_and_detail() {
        let check = |call: Call, expected: [&str; 3]| assert_eq!(entry(&call), Some(expected.map(str::to_owned)));
        let nodes = ["a1", "a2"].map(str::to_owned).to_vec();
        check(Call::Drain { nodes: nodes.clone(), reason: "fans".to_owned() }, ["drain", "a[1-2]", "fans"]);
        check(Call::FreeNodes { job: JobId(7), nodes }, ["free", "", "a[1-2]"]);
        check(Call::set_priority(Select::All, 3), ["update", "", "priority=3"]);
        let select = Select::Ids(vec![JobId(7)]);
        check(Call::Signal { select, signal: 15 }, ["signal", "", "15"]);
        let order = MaskOrder { node: None, process: ProcessOf::Task(3), cpus: [0, 1].into_iter().collect() };
        check(Call::SetMask { job: JobId(7), order }, ["set-mask", "", "task 3: CPUs 0-1"]);
        let ann = Identity { role: rms_model::Role::User, name: "ann".to_owned() };
        let which = CertificateSelect::Identity(ann);
        let jobs = Some(JobsOfRevoked::Keep);
        check(Call::RevokeCertificate { which, jobs }, ["certificate-revoke", "user/ann", "jobs go on"]);
        let negotiation = NegotiationId { initiator: Side::Rms, number: 2 };
        let force = Call::OrderNegotiation { job: JobId(7), negotiation, order: Order::Force };
        check(force, ["negotiation-force", &format!("job 7 {negotiation}"), ""]);
        assert_eq!(entry(&Call::Query(Query::Status)), None);
    }

    #[test]
    fn a_call_is_about_one_job_only_if_it_names_it_and_no_other() {
        let (own, other) = (JobId(7), JobId(8));
        let is_only = |call: &Call| call.traits().jobs.is_only(own);
        let cancel = |jobs: &[JobId]| Call::Cancel { select: Select::Ids(jobs.to_vec()) };
        assert!(is_only(&cancel(&[own])) && !is_only(&cancel(&[own, other])) && !is_only(&cancel(&[])));
        assert!(!is_only(&Call::Cancel { select: Select::Last }));
        let done = |job| Call::ResizeDone { job, generation: 1 };
        assert!(is_only(&done(own)) && !is_only(&done(other)));
        assert!(!is_only(&Call::Query(Query::Status)));
    }
}
