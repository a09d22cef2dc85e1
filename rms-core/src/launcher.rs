//! The built-in launcher of batch jobs: chooses among the sizes that its user listed.
//!
//! It takes the same path as an external launcher: it subscribes with the submit, sends its first request when
//! the job is eligible, and adapts the request to each view, here without delay.

use rms_model::job::Constraint;
use rms_model::{ClusterId, JobSpec, Request, Time};

use crate::plan::Blocked;

/// The request a launcher sends for its view.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    /// Where its spec lists it.
    pub(crate) option_idx: u32,
    pub(crate) request: &'a Request,
    pub(crate) start: Time,
    pub(crate) blocked: Option<Blocked>,
}

/// A size, where its spec lists it, and where it fits; the error names the cluster that is too small and the hosts wanted there.
pub(crate) type SizedHole<'a> = (usize, &'a Request, Result<(Time, Option<Blocked>), (ClusterId, u32)>);

/// A size that the usable hosts are too few for.
#[derive(Debug)]
pub(crate) struct TooSmall<'a> {
    pub(crate) request: &'a Request,
    pub(crate) cluster: ClusterId,
    pub(crate) wanted: u32,
}

/// The size that completes first; of equals the one listed first (PAPERS §2: strict <, as OAR does).
///
/// # Errors
/// No size fits; the last one listed, and which of its clusters is too small for how many hosts.
pub(crate) fn choose<'a>(holes: impl Iterator<Item = SizedHole<'a>>) -> Result<Choice<'a>, TooSmall<'a>> {
    let mut best: Option<Choice<'a>> = None;
    let mut too_small = None;
    for (option_idx, request, hole) in holes {
        match hole {
            Ok((start, blocked)) => {
                let completes_first =
                    best.as_ref().is_none_or(|best| start + request.wall < best.start + best.request.wall);
                if completes_first {
                    best = Some(Choice { option_idx: option_idx as u32, request, start, blocked });
                }
            }
            Err((cluster, wanted)) => too_small = Some(TooSmall { request, cluster, wanted }),
        }
    }
    best.ok_or_else(|| too_small.expect("an accepted job has at least one size"))
}

/// Will any hosts do, whatever size the job starts with?
pub(crate) fn takes_any_hosts(spec: &JobSpec) -> bool {
    // Every host has one CPU.
    let is_one_cpu = |request: &Request| spec.tasks.most_on_a_host(request.n_hosts()) * spec.cpus_per_task <= 1;
    spec.constraint == Constraint::default() && (spec.cpus_per_task == 0 || spec.options.iter().all(is_one_cpu))
}

/// What every host must have if the job starts with this size: CPUs for its share of the tasks, if it asked.
pub(crate) fn constraint_of(spec: &JobSpec, request: &Request) -> Constraint {
    let tasks_here = spec.tasks.most_on_a_host(request.n_hosts());
    let cpus = tasks_here.saturating_mul(spec.cpus_per_task).max(spec.constraint.cpus);
    Constraint { cpus, ..spec.constraint.clone() }
}
