//! No core of a node has processes of two jobs at once, not even ending ones (001, §5.1: nodes are allocated
//! exclusively; where jobs share them, cores are).

use std::collections::BTreeMap;

use rms_api::desired::DesiredJob;
use rms_model::{JobId, Run};

use super::{Rule, Violation};
use crate::supervisor::{Supervisor, cores_of};

/// Checks the processes; [`rms_core::State::check`] checks this rule for the state.
pub(super) fn starts_alone(
    node: &str,
    wanted: &DesiredJob,
    there: &BTreeMap<(JobId, Run), Supervisor>,
) -> Result<(), Violation> {
    let cores = cores_of(wanted);
    let is_in_its_way = |supervisor: &Supervisor| supervisor.is_alive() && !supervisor.cores().is_disjoint(&cores);
    match there.iter().find(|(_, supervisor)| is_in_its_way(supervisor)) {
        Some(((job, run), supervisor)) => Err(Rule::Oversubscription.broken(format!(
            "{node} starts job {}, run {}, on cores {cores} while processes of job {job}, run {run}, are on {}",
            wanted.job,
            wanted.run,
            supervisor.cores()
        ))),
        None => Ok(()),
    }
}
