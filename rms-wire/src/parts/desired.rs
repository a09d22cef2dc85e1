//! Splits a node's desired state into frames, on the server, and joins them, on the agent.

use rms_api::desired::Desired;

use super::Malformed;
use crate::to_agent::{DesirePart, ToAgent};

/// Returns the frames of a desired state, in order; at least one.
pub fn desire_parts(desired: &Desired) -> Vec<ToAgent> {
    let generation = desired.generation;
    let part = |job, last| ToAgent::Desire(DesirePart { generation, job, last });
    let n_jobs = desired.jobs.len();
    if n_jobs == 0 {
        return vec![part(None, true)];
    }
    let jobs = desired.jobs.iter().enumerate();
    jobs.map(|(idx, job)| part(Some(Box::new(job.clone())), idx + 1 == n_jobs)).collect()
}

/// Joins the frames of a desired state.
#[derive(Debug, Default)]
pub struct DesiredParts {
    so_far: Option<Desired>,
}

impl DesiredParts {
    pub fn new() -> DesiredParts {
        DesiredParts::default()
    }

    /// Adds the next frame; returns the whole state with the last one.
    ///
    /// # Errors
    /// The frame belongs to another generation than the previous ones, or has a job on a node that the job does not
    /// have.
    pub fn push(&mut self, part: DesirePart) -> Result<Option<Desired>, Malformed> {
        let generation = part.generation;
        let is_first = self.so_far.is_none();
        let mut desired = self.so_far.take().unwrap_or(Desired { generation, jobs: Vec::new() });
        if desired.generation != generation {
            let (first, later) = (desired.generation.0, generation.0);
            return Err(Malformed::MixedGenerations { first, later });
        }
        match part.job {
            Some(job) => {
                let (idx, n_nodes) = (job.node_idx, job.launch.nodes.len());
                if idx as usize >= n_nodes {
                    return Err(Malformed::NoSuchNode { idx, n_nodes });
                }
                desired.jobs.push(*job);
            }
            None if is_first && part.last => {}
            None => return Err(Malformed::EmptyPart),
        }
        if part.last {
            return Ok(Some(desired));
        }
        self.so_far = Some(desired);
        Ok(None)
    }
}
