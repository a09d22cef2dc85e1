//! Examples of the facts by which running jobs change their size, for the golden files.

use std::collections::BTreeMap;

use std::sync::Arc;

use negotiation::{
    Dialogue, Dialogues, Direction, Item, NegotiationId, Parties, Price, Resource, Rules, Side, Statement, Template,
};
use rms_api::negotiate::{Ask, Asked, Declared, NegotiationRecord};
use rms_core::state::negotiations::Asking;
use rms_core::{Fact, Replay, State};
use rms_model::{
    ClusterId, Grant, Inventory, JobId, Mebibytes, NodeId, NodeLink, Request, Run, Settings, Sizes, Span, Speedup,
    Time, Usage,
};
use rms_server::history::History;
use rms_server::journal::{FactLog, SnapshotPolicy};

pub fn examples() -> Vec<Fact> {
    let job = JobId(7);
    let at = Time::from_secs(1_700_000_000);
    let lent = NegotiationId { initiator: Side::Application, number: 3 };
    let back = NegotiationId { initiator: Side::Rms, number: 1 };
    vec![
        Fact::DialogueChanged { job, at, dialogue: Box::new(dialogue(at)), asking: Some(Box::new(asking())) },
        Fact::NodesHeld { job, negotiation: lent, nodes: vec![NodeId(5), NodeId(6)], grants: BTreeMap::new() },
        Fact::NodesDeparting { job, at, nodes: vec![NodeId(4)] },
        Fact::NodesStay { job },
        Fact::LimitsDeclared { job, declared: declared() },
        Fact::PromiseWarned { job, negotiation: back, at },
        Fact::PromisedNodesLost { job, negotiation: back, nodes: vec![NodeId(4)] },
        Fact::LoanCalled { job, negotiation: lent, cluster: None, by: back },
        Fact::LoanEnded { job, negotiation: lent, cluster: None },
        Fact::CoresSet {
            job,
            negotiation: lent,
            cores: vec![(NodeId(4), 3), (NodeId(5), 1)],
            more: BTreeMap::new(),
            at: None,
        },
        Fact::CoresInForce { job, node: NodeId(5), generation: 4 },
        Fact::NodesReleased { job, nodes: vec![NodeId(4)] },
        Fact::NodesGhosted { job, nodes: vec![NodeId(5)], at, until: at + Span::from_secs(15) },
        Fact::NodeGhostsExpired { nodes: vec![NodeId(5)], at: at + Span::from_secs(15) },
        Fact::LossDeclared { job, survives: true },
        Fact::GrantsSet { job, negotiation: lent, grants: [(NodeId(5), grant())].into() },
        Fact::LicencesSet {
            job,
            negotiation: lent,
            cluster: ClusterId(1),
            licences: "matlab:2".parse().expect("licences"),
        },
    ]
}

fn grant() -> Grant {
    let devices = [("gpu:a100".to_owned(), (0..2).collect())].into();
    Grant { cores: (4..8).collect(), memory: Mebibytes(2048), devices }
}

/// Returns the server's end after the application has asked for two more nodes.
fn dialogue(at: Time) -> Dialogue {
    let (job, run) = (JobId(7), Run(2));
    let id = NegotiationId { initiator: Side::Application, number: 3 };
    let parties = Parties { job, run, initiator: Side::Application };
    let item = Item::up_to(Resource::Nodes(ClusterId(1)), 2, 2);
    let template = Template::of_one(parties, Direction::Grow, item).expect("a template");
    let statement = Some(Statement::Propose { round: 1, template, valid_for: Span::from_mins(1) });
    let mut dialogues = Dialogues::new(Side::Rms, job, run, Rules::default());
    let _ = dialogues.receive(at, &negotiation::Message::new(id, 1, 0, statement));
    dialogues.get(id).expect("it was heard").durable()
}

fn asking() -> Asking {
    let ask = Ask {
        direction: Direction::Grow,
        what: Asked::Nodes { cluster: Some("a".to_owned()) },
        quantity: 2,
        least: 1,
        sizes: Sizes::PowerOfTwo,
        price: Price(2500),
        duration: Some(Span::from_mins(30)),
        nodes: Vec::new(),
        wait: Span::from_secs(5),
    };
    Asking { by: "ann".to_owned(), ask }
}

fn declared() -> Declared {
    Declared { least: 1, most: 8, sizes: Sizes::Listed(vec![1, 2, 4]), speedup: Speedup(vec![(1, 1000), (8, 6000)]) }
}

/// Returns a state with negotiations, held nodes, loans and charges, all of job 7.
pub fn state_with_negotiations() -> State {
    let (job, run, cluster) = (JobId(7), Run(2), ClusterId(1));
    let at = Time::from_secs(1_700_000_000);
    let request = Request::on_one(cluster, 1, Span::from_hours(1));
    let spec = Arc::new(crate::samples::spec(request.clone()));
    let mut facts = vec![Fact::ClusterAdded { cluster, name: "a".to_owned() }];
    for node in (4..=6).map(NodeId) {
        let (name, inventory, address) = (format!("n{}", node.0), Inventory::default(), String::new());
        facts.push(Fact::NodeJoined { node, cluster, name, inventory, address, at });
        facts.push(Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: at } });
    }
    facts.push(Fact::JobSubmitted { job, at, spec, held: false });
    facts.push(Fact::RequestSent { job, at });
    facts.push(Fact::JobStarted { job, run, at, request, nodes: vec![NodeId(4)], grants: Default::default() });
    facts.extend(examples().into_iter().filter(|fact| {
        let needs_course = matches!(
            fact,
            Fact::NodesDeparting { .. }
                | Fact::NodesStay { .. }
                | Fact::CoresSet { .. }
                | Fact::GrantsSet { .. }
                | Fact::LicencesSet { .. }
                | Fact::CoresInForce { .. }
                | Fact::NodesReleased { .. }
        );
        !needs_course
    }));
    let mut replay = Replay::of(State::new(Settings::default()));
    facts.iter().for_each(|fact| replay.follow(fact).expect("the facts follow from each other"));
    replay.into_state()
}

/// A snapshot is the serialised state.
#[test]
fn a_state_with_negotiations_is_read_back_from_its_bytes() {
    let state = state_with_negotiations();
    let bytes = rmp_serde::to_vec_named(&state).expect("bytes");
    let mut read: State = rmp_serde::from_slice(&bytes).expect("a state");
    read.rebuild_index();
    assert_eq!(read, state);
    let negotiations = read.jobs()[&JobId(7)].negotiations.as_ref().expect("it negotiates");
    assert_eq!(negotiations.all.len(), 1);
    assert_eq!(negotiations.all[0].held.len(), 2);
}

/// The negotiations of a job are kept in the history, however long ago it ended.
#[test]
fn the_history_tells_what_a_job_has_negotiated() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    let at = Time::from_secs(1_700_000_000);
    let (direction, rounds, nodes) = (Direction::Grow, Vec::new(), vec!["n5".to_owned()]);
    let id = NegotiationId { initiator: Side::Application, number: 3 };
    let told = NegotiationRecord { id, direction, by: Some("ann".to_owned()), opened: at, rounds, nodes };
    let record =
        Box::new(crate::samples::record(Request::on_one(ClusterId(1), 1, Span::from_hours(1)), Usage::default()));
    let job = record.job;
    log.append(&[Fact::JobDone { record, ghost_until: at, negotiations: vec![told.clone()], told: None }])
        .expect("space");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let history = History::start(log.history()).expect("a readable journal");
    let found = runtime.block_on(history.negotiations("ann", job)).expect("an answer");
    assert_eq!(found, [told]);
    assert_eq!(runtime.block_on(history.negotiations("ann", JobId(8))).expect("an answer"), []);
}
