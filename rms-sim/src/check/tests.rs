//! Helpers for the tests of several rules.

mod objections;

use rms_model::{JobRecord, Labels, NodeId, Outcome, Owner, Request, Span};

use super::*;

/// Returns the record of run 1 of a job that ends on the node `a1`.
pub(crate) fn record(job: JobId, outcome: Outcome) -> JobRecord {
    JobRecord {
        labels: Labels::named("model"),
        started: Some(Time::EPOCH),
        n_tasks: 1,
        nodes: vec!["a1".to_owned()],
        outcome,
        ..JobRecord::of(job, Owner("ann".to_owned()), Request::on_one(Default::default(), 1, Span::ZERO), Time::EPOCH)
    }
}

pub(crate) fn started(job: JobId, run: Run, at: Time, request: Request) -> Fact {
    Fact::JobStarted { job, run, at, request, nodes: vec![NodeId(1)], grants: Default::default() }
}
