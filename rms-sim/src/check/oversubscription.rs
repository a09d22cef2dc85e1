//! No node has processes of two jobs at once (001, §5.1: nodes are allocated exclusively), not even ending ones.

use std::collections::BTreeMap;

use rms_api::desired::DesiredJob;
use rms_model::{JobId, Run};

use super::{Rule, Violation};
use crate::supervisor::Supervisor;

/// [`rms_core::State::check`] holds the books to this rule; here it is the processes.
pub(super) fn starts_alone(
    node: &str,
    wanted: &DesiredJob,
    there: &BTreeMap<(JobId, Run), Supervisor>,
) -> Result<(), Violation> {
    match there.iter().find(|(_, supervisor)| supervisor.is_alive()) {
        Some(((job, run), _)) => Err(Rule::Oversubscription.broken(format!(
            "{node} starts job {}, run {}, while processes of job {job}, run {run}, are there",
            wanted.job, wanted.run
        ))),
        None => Ok(()),
    }
}
