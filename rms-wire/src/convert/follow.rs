//! Changes of jobs, both ways.

use rms_model::{JobId, Run};

use super::Malformed;
use crate::vocabulary as wire;

impl From<&rms_api::answer::JobChange> for wire::JobChange {
    fn from(change: &rms_api::answer::JobChange) -> wire::JobChange {
        wire::JobChange {
            job: change.job.0,
            run: change.run.0,
            state: change.state.into(),
            nodes: change.nodes.clone(),
            outcome: change.outcome.as_ref().map(wire::Outcome::from),
        }
    }
}

impl TryFrom<wire::JobChange> for rms_api::answer::JobChange {
    type Error = Malformed;

    fn try_from(change: wire::JobChange) -> Result<rms_api::answer::JobChange, Malformed> {
        Ok(rms_api::answer::JobChange {
            job: JobId(change.job),
            run: Run(change.run),
            state: change.state.into(),
            nodes: change.nodes,
            outcome: change.outcome.map(Into::into),
        })
    }
}
