//! Values that came after those of [`domain`](super::domain), whose samples keep their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::answer::Reason;
use rms_api::call::update::{Changes, Resizing, WallChange};
use rms_api::call::{HistoryQuery, Nodes, Select, Shape};
use rms_api::desired::{JobReport, JobStatus, NodeReport};
use rms_api::filter::{RecordColumn, Way};
use rms_api::{Answer, Call};
use rms_model::{
    Environment, Evolving, ExpandLimit, Expansion, JobId, JobRecord, Mebibytes, OnResize, Outcome, Run, Span, Time,
};
use rms_wire::ClientRequest;

use super::{domain, negotiating};

pub fn calls() -> Vec<ClientRequest> {
    let by_length = HistoryQuery { sort: vec![(RecordColumn::Ran, Way::Up)], ..HistoryQuery::default() };
    let mut calls: Vec<ClientRequest> = changes().map(update).map(ClientRequest::Call).collect();
    calls.push(ClientRequest::History(by_length));
    calls
}

fn update(changes: Changes) -> Call {
    Call::Update { select: Select::Ids(vec![JobId(7)]), changes: Box::new(changes) }
}

fn changes() -> impl Iterator<Item = Changes> {
    let text = |text: &str| Some(text.to_owned());
    let everything = Changes {
        labels: BTreeMap::from([("account".to_owned(), "physics".to_owned())]),
        wall: Some(WallChange::To(Span::from_hours(1))),
        shapes: Some(vec![Shape { nodes: Nodes::Count(4), wall: None }]),
        resizing: Some(Resizing::Never),
        n_tasks: Some(8),
        cpus_per_task: Some(2),
        clusters: Some(vec!["a".to_owned()]),
        features: Some(["fast".to_owned()].into()),
        memory: Some(Mebibytes(1024)),
        priority: Some(-3),
        hold: Some(true),
        requeue: Some(false),
        begin: Some(Time::from_secs(5)),
        cwd: text("/home/ann"),
        input: text("in"),
        output: text("out"),
        error: text("err"),
        environment: Some(Arc::new(Environment(vec![("A".to_owned(), "1".to_owned())]))),
    };
    let stages = "2x500s,8x1h".parse().expect("a profile");
    let expansion = Expansion { limit: ExpandLimit::Infinite, compacting: true };
    let of_walls = [WallChange::More(Span::from_mins(5)), WallChange::Less(Span::from_mins(5))];
    let of_sizes = [
        Resizing::Within(negotiating::malleable(OnResize::Signal(10))),
        Resizing::ByStages(Evolving { stages, expansion, open: true }),
    ];
    let of_walls = of_walls.map(|wall| Changes { wall: Some(wall), ..Changes::default() });
    let of_sizes = of_sizes.map(|resizing| Changes { resizing: Some(resizing), ..Changes::default() });
    [everything].into_iter().chain(of_walls).chain(of_sizes)
}

pub fn answers() -> Vec<Answer> {
    let reason = Some(Reason::NoRequest { until: Some(Time::from_secs(9)) });
    let request = domain::record(0).request;
    let outcomes = [Outcome::Violation { reason: "too much".to_owned() }, Outcome::StageLate { stage: 2 }];
    let records = outcomes.map(|outcome| JobRecord { outcome, ..domain::record(0) });
    vec![Answer::WouldStart { request, at: None, reason }, Answer::History(records.to_vec())]
}

pub fn report() -> NodeReport {
    let jobs = vec![JobReport { job: JobId(1), run: Run(1), status: JobStatus::Starting }];
    NodeReport { jobs, ..NodeReport::default() }
}
