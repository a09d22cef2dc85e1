//! Says in sentences what a job borrows and lends (004).

use std::collections::BTreeMap;

use rms_api::answer::{LoanLine, SharingDetail};
use rms_model::{JobId, hostlist};

/// Returns whether the job waits for others to leave the cores that it borrows, and what it borrows and lends.
pub(crate) fn sentences(sharing: Option<&SharingDetail>) -> (bool, String) {
    let Some(sharing) = sharing else { return (false, String::new()) };
    let borrowed = by_job(&sharing.borrowed).into_iter().map(|(job, is_in_force, cores)| {
        let until_left = if is_in_force { "" } else { ", and starts there once that has left them" };
        format!(" It borrows {cores} from job {job}{until_left}.")
    });
    let lent = by_job(&sharing.lent).into_iter().map(|(job, is_in_force, cores)| match is_in_force {
        true => format!(" It lends {cores} to job {job}."),
        false => format!(" It is leaving {cores}, which it lends to job {job}."),
    });
    (sharing.borrowed.iter().any(|loan| !loan.is_in_force), borrowed.chain(lent).collect())
}

/// Returns which jobs would lend a job its cores; `None` if none does.
pub(crate) fn by(jobs: &[JobId]) -> Option<String> {
    let names: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    let jobs = if names.len() == 1 { "job" } else { "jobs" };
    (!names.is_empty()).then(|| format!("on cores lent by {jobs} {}", names.join(", ")))
}

/// Returns the cores of loans by the other job, those that are in force apart.
fn by_job(loans: &[LoanLine]) -> Vec<(JobId, bool, String)> {
    let mut by_job: BTreeMap<(JobId, bool), (u32, Vec<&str>)> = BTreeMap::new();
    for loan in loans {
        let (n_cores, nodes) = by_job.entry((loan.job, loan.is_in_force)).or_default();
        *n_cores += loan.cores.len();
        nodes.push(&loan.node);
    }
    let in_words = |((job, is_in_force), (n_cores, nodes)): (_, (u32, Vec<&str>))| {
        let cores = if n_cores == 1 { "core" } else { "cores" };
        (job, is_in_force, format!("{n_cores} {cores} of {}", hostlist::fold(&nodes)))
    };
    by_job.into_iter().map(in_words).collect()
}

#[cfg(test)]
mod tests {
    use rms_model::{CpuLoans, Indices, Span, Time};

    use super::*;

    fn loan(node: &str, job: u64, cores: &[u32], is_in_force: bool) -> LoanLine {
        let cores: Indices = cores.iter().copied().collect();
        LoanLine { node: node.to_owned(), job: JobId(job), cores, since: Time::EPOCH, is_in_force }
    }

    fn told(borrowed: Vec<LoanLine>, lent: Vec<LoanLine>) -> (bool, String) {
        sentences(Some(&SharingDetail { asked_wall: Span::ZERO, lent, borrowed, loans: CpuLoans::default() }))
    }

    #[test]
    fn a_guest_is_told_whom_it_waits_for() {
        let borrowed = vec![loan("a1", 3, &[2, 3], true), loan("a2", 3, &[1], false), loan("a3", 4, &[0, 1], true)];
        let text = " It borrows 1 core of a2 from job 3, and starts there once that has left them. It borrows 2 cores \
                    of a1 from job 3. It borrows 2 cores of a3 from job 4.";
        assert_eq!(told(borrowed, Vec::new()), (true, text.to_owned()));
    }

    #[test]
    fn an_owner_lends_and_waits_for_nobody() {
        let lent = vec![loan("a1", 5, &[0], true), loan("a2", 5, &[0], true), loan("a3", 6, &[0, 1], false)];
        let text = " It lends 2 cores of a[1-2] to job 5. It is leaving 2 cores of a3, which it lends to job 6.";
        assert_eq!(told(Vec::new(), lent), (false, text.to_owned()));
        assert_eq!(sentences(None), (false, String::new()));
    }
}
