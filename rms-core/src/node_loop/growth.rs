//! Asks the server for nodes on behalf of ranks that are to be started and have no room.

use std::collections::BTreeMap;

use negotiation::{Direction, Price};
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::{JobId, Run, Sizes, Span};

use super::message::{Growth, Question};

/// Requests of this agent that the server has not answered.
#[derive(Debug, Default)]
pub struct GrowthRequests {
    last_seq: u64,
    open: BTreeMap<u64, Question>,
}

/// Each job has one request at a time; no node has so many jobs that spawn at once.
const MAX_OPEN: usize = 1024;
/// How long to wait for nodes that others are about to leave. A spawn blocks its program meanwhile.
const WAIT: Span = Span::from_secs(30);

impl GrowthRequests {
    /// Opens a request for more nodes. A request that is repeated because its answer was lost keeps its place.
    ///
    /// # Errors
    /// Too many requests are open.
    pub fn open(&mut self, job: JobId, run: Run, seq: u64, nodes: u32, least: u32) -> Result<u64, Growth> {
        let is_same = |question: &Question| (question.job, question.run, question.seq) == (job, run, seq);
        if let Some((known, _)) = self.open.iter().find(|(_, question)| is_same(question)) {
            return Ok(*known);
        }
        if self.open.len() >= MAX_OPEN {
            return Err(Growth::Refused { reason: "too many jobs of this node ask for nodes".to_owned() });
        }
        let ask = Ask {
            direction: Direction::Grow,
            what: Asked::Nodes { cluster: None },
            quantity: nodes.into(),
            least: least.into(),
            sizes: Sizes::Any,
            // A program that only spawns names no price.
            price: Price(0),
            duration: None,
            nodes: Vec::new(),
            wait: WAIT,
        };
        self.last_seq += 1;
        self.open.insert(self.last_seq, Question { job, run, seq, ask });
        Ok(self.last_seq)
    }

    pub fn get(&self, seq: u64) -> Option<&Question> {
        self.open.get(&seq)
    }

    /// Closes a request that has been answered, or will not be.
    pub fn close(&mut self, seq: u64) -> Option<Question> {
        self.open.remove(&seq)
    }

    /// Returns all open requests, to be sent to a server that has not received them.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Question)> {
        self.open.iter().map(|(seq, question)| (*seq, question))
    }
}

/// Returns what the server's answer means for the ranks.
pub fn growth(outcome: AskOutcome) -> Growth {
    match outcome {
        AskOutcome::Ready { generation, .. } => Growth::Granted { generation },
        AskOutcome::Failed { free: Some(n_free), .. } => Growth::Refused { reason: format!("{n_free} free") },
        AskOutcome::Failed { reason, free: None, .. } => Growth::Refused { reason: reason.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_again_is_asked_once() {
        let mut requests = GrowthRequests::default();
        let first = requests.open(JobId(1), Run(1), 1, 2, 2);
        assert_eq!(requests.open(JobId(1), Run(1), 1, 2, 2), first);
        assert_ne!(requests.open(JobId(2), Run(1), 1, 2, 2), first);
        let question = requests.close(first.expect("open")).expect("it was there");
        assert_eq!((question.job, question.ask.quantity, question.ask.least), (JobId(1), 2, 2));
        assert_eq!(requests.all().count(), 1);
    }

    #[test]
    fn a_flood_is_refused() {
        let mut requests = GrowthRequests::default();
        let opened = (0..=MAX_OPEN as u64).map(|job| requests.open(JobId(job), Run(1), 1, 1, 1).is_ok());
        assert_eq!(opened.filter(|is_open| *is_open).count(), MAX_OPEN);
    }
}
