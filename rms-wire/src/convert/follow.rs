//! Changes of jobs, both ways.

use rms_core::effect;
use rms_model::{JobId, Run};

use super::Malformed;
use crate::vocabulary as wire;

impl From<&effect::JobChange> for wire::JobChange {
    fn from(change: &effect::JobChange) -> wire::JobChange {
        wire::JobChange {
            job: change.job.0,
            run: change.run.0,
            state: change.state.into(),
            nodes: change.nodes.clone(),
            outcome: change.outcome.as_ref().map(wire::Outcome::from),
        }
    }
}

impl TryFrom<wire::JobChange> for effect::JobChange {
    type Error = Malformed;

    fn try_from(change: wire::JobChange) -> Result<effect::JobChange, Malformed> {
        Ok(effect::JobChange {
            job: JobId(change.job),
            run: Run(change.run),
            state: change.state.into(),
            nodes: change.nodes,
            outcome: change.outcome.map(Into::into),
        })
    }
}
