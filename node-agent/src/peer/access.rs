//! Gives agents of a job's other nodes access to the job's share here, and no other agents.

use std::time::Duration;

use rms_model::{JobId, Run};
use thiserror::Error;

use crate::share::{Share, Shares};

/// Why an agent is not served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessError {
    #[error("job {job} is not on this node")]
    NotHere { job: JobId },
    #[error("node {peer} does not belong to job {job}")]
    NotMember { peer: String, job: JobId },
}

/// How long to wait: another node's frame may arrive before this node's order to start, or before the message that it
/// is a node of the job at all.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the share that a peer names, if its node belongs to the job or is about to: a node that has just joined may
/// be faster than the message about it.
pub async fn share_for(shares: &Shares, peer: &str, job: JobId, run: Run) -> Result<Share, AccessError> {
    let share = tokio::time::timeout(TIMEOUT, shares.wait_for(job, run, None)).await;
    let share = share.map_err(|_| AccessError::NotHere { job })?;
    let joined = async {
        loop {
            let changed = share.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if share.has_ended() || share.order().launch.nodes.iter().any(|node| node.name == peer) {
                return;
            }
            changed.await;
        }
    };
    let joined = tokio::time::timeout(TIMEOUT, joined).await;
    joined.map_err(|_| AccessError::NotMember { peer: peer.to_owned(), job })?;
    Ok(share)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::time::Instant;

    use super::*;
    use crate::order::Order;
    use crate::order::tests::order;
    use crate::work_queues::WorkQueues;

    const JOB: (JobId, Run) = (JobId(1), Run(1));

    fn on(names: &[&str]) -> Order {
        order(names.iter().map(|name| test_kit::place(name)))
    }

    async fn ask(shares: &Shares, peer: &str) -> Result<JobId, AccessError> {
        share_for(shares, peer, JOB.0, JOB.1).await.map(|share| share.job())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_of_the_job_is_served_at_once_and_a_stranger_never() {
        let shares = Shares::default();
        shares.insert(Share::new(on(&["a1", "a2"]), PathBuf::new(), 0, WorkQueues::default()));
        let began = Instant::now();
        assert_eq!(ask(&shares, "a2").await, Ok(JOB.0));
        assert_eq!(began.elapsed(), Duration::ZERO);
        let stranger = AccessError::NotMember { peer: "a9".to_owned(), job: JOB.0 };
        assert_eq!(ask(&shares, "a9").await, Err(stranger));
        assert_eq!(began.elapsed(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_faster_than_word_of_it_or_of_the_job_is_waited_for() {
        let shares = Shares::default();
        let word = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            shares.insert(Share::new(on(&["a1"]), PathBuf::new(), 0, WorkQueues::default()));
            tokio::time::sleep(Duration::from_secs(5)).await;
            shares.get(JOB.0, JOB.1).expect("it is there").update(on(&["a1", "a2"]));
        };
        let (served, ()) = tokio::join!(ask(&shares, "a2"), word);
        assert_eq!(served, Ok(JOB.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_never_comes_is_not_here() {
        assert_eq!(ask(&Shares::default(), "a1").await, Err(AccessError::NotHere { job: JOB.0 }));
    }
}
