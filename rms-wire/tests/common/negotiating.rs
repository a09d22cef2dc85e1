//! One value of every message about the size of a running application, in the types of the domain.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{
    Direction, Ending, Item, Message, NegotiationId, Parties, Phase, Price, Quantity, Reason, Reminded, Reminder,
    Resource, Rules, SetRule, Side, Sizes, Statement, Template, Terms,
};
use rms_api::Call;
use rms_api::Refused;
use rms_api::answer::{StageLine, Stages};
use rms_api::negotiate::{
    Ask, AskOutcome, Asked, Attached, BudgetLine, Declared, HeldNode, Holding, Keeps, Manner, NegotiationLine,
    NegotiationRecord, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice, Order, RoundRecord, Said,
};
use rms_model::{ClusterId, Devices, JobId, Malleable, Mebibytes, NodeId, OnResize, Outcome, Run, Span, Speedup, Time};

pub const JOB: JobId = JobId(5);
pub const RUN: Run = Run(2);

const SIDES: [Side; 2] = [Side::Rms, Side::Application];

pub const REASONS: [Reason; 16] = [
    Reason::Declined,
    Reason::NoResources,
    Reason::Price,
    Reason::Policy,
    Reason::Lapsed,
    Reason::TooManyRounds,
    Reason::BadProposal,
    Reason::Crossed,
    Reason::AlreadyOpen,
    Reason::Unknown,
    Reason::Overdue,
    Reason::Lost,
    Reason::BrokenPromise,
    Reason::Administrator,
    Reason::Stopping,
    Reason::Changed,
];

const ENDINGS: [Ending; 4] = [Ending::Rejected, Ending::Expired, Ending::Withdrawn, Ending::Failed];

fn sizes() -> [Sizes; 4] {
    [Sizes::Any, Sizes::MultipleOf(4), Sizes::PowerOfTwo, Sizes::Listed(vec![4, 6, 300, 1 << 20])]
}

fn speedup() -> Speedup {
    Speedup(vec![(1, 1000), (2, 1900), (300, 90_000)])
}

pub fn on_resizes() -> Vec<OnResize> {
    vec![OnResize::Negotiates, OnResize::Signal(10), OnResize::Hook("./resize.sh".to_owned()), OnResize::Workers]
}

pub fn malleable(on_resize: OnResize) -> Malleable {
    let survives_loss = match on_resize {
        OnResize::Negotiates => None,
        OnResize::Signal(_) | OnResize::Hook(_) => Some(true),
        OnResize::Workers => Some(false),
    };
    Malleable { least: 2, most: 300, sizes: Sizes::PowerOfTwo, on_resize, speedup: speedup(), survives_loss }
}

pub fn id(initiator: Side, number: u32) -> NegotiationId {
    NegotiationId { initiator, number }
}

/// Returns an item for named nodes, with all possible terms.
fn nodes_with_terms() -> Item {
    let terms = Terms {
        sizes: Sizes::Listed(vec![6, 8]),
        duration: Some(Span::from_hours(2)),
        price: Price(1500),
        deadline: Some(Time::from_secs(1_800_000_000)),
        give_back_by: Some(Time::from_secs(1_800_010_000)),
        priority: -3,
        ..Terms::up_to(Quantity(2))
    };
    let nodes = BTreeSet::from([NodeId(3), NodeId(300)]);
    Item { nodes, terms, ..Item::up_to(Resource::Nodes(ClusterId(1)), 4, 2) }
}

/// Returns a template with all resources, sets and shapes.
pub fn template(direction: Direction) -> Template {
    let parties = Parties { job: JOB, run: RUN, initiator: Side::Rms };
    let either = |sizes: Sizes, quantity| {
        let item = Item::up_to(Resource::Nodes(ClusterId(2)), 8, quantity);
        Item { set: 2, terms: Terms { sizes, ..item.terms.clone() }, ..item }
    };
    let items = vec![
        nodes_with_terms().of(direction),
        Item { set: 1, ..Item::up_to(Resource::Cores(ClusterId(0)), 8, 4) },
        Item { set: 1, status: negotiation::ItemStatus::Refused, ..Item::up_to(Resource::Time, 3_600_000, 60_000) },
        either(Sizes::MultipleOf(4), 4),
        either(Sizes::Any, 3),
    ];
    let sets = vec![SetRule::All, SetRule::AnyOf, SetRule::OneOf];
    Template::new(parties, direction, sets, items).expect("it is one")
}

trait Of {
    /// Returns the same terms, with totals that are possible in this direction.
    fn of(self, direction: Direction) -> Self;
}

impl Of for Item {
    fn of(self, direction: Direction) -> Item {
        match direction {
            Direction::Grow => self,
            Direction::Shrink => {
                Item { terms: Terms { sizes: Sizes::Listed(vec![2, 3]), ..self.terms.clone() }, ..self }
            }
        }
    }
}

pub fn messages() -> Vec<Message> {
    let nodes = || BTreeSet::from([NodeId(0), NodeId(70_000)]);
    let propose =
        |round, direction| Statement::Propose { round, template: template(direction), valid_for: Span::from_secs(30) };
    let mut statements = vec![
        propose(1, Direction::Grow),
        propose(300, Direction::Shrink),
        Statement::Accept { round: 2 },
        Statement::Commit { round: 2, nodes: nodes() },
        Statement::Commit { round: 2, nodes: BTreeSet::new() },
        Statement::Ready { round: 2, nodes: nodes() },
    ];
    let ends = REASONS.iter().zip(ENDINGS.iter().cycle());
    statements.extend(ends.map(|(reason, ending)| Statement::End { ending: *ending, reason: *reason }));
    let say = |(seq, statement)| Message::new(id(Side::Rms, 7), seq, 1 << 20, Some(statement));
    let mut messages: Vec<Message> = (1..).zip(statements).map(say).collect();
    messages.push(Message::new(id(Side::Application, u32::MAX), 0, u32::MAX, None));
    messages
}

/// Returns a statement that was added later, so that the others keep their places.
fn recalled() -> Message {
    let statement = Statement::End { ending: Ending::Withdrawn, reason: Reason::Recalled };
    Message::new(id(Side::Rms, 7), 4, 1, Some(statement))
}

/// Returns asks about resources inside nodes, and licences.
pub fn asks_inside() -> Vec<Ask> {
    let plain = || Ask { duration: None, ..asks().remove(0) };
    let (cluster, name) = (|| Some("a".to_owned()), str::to_owned);
    let memory = Ask { what: Asked::Memory { cluster: cluster() }, nodes: vec![name("n1")], ..plain() };
    let devices = Ask { what: Asked::Devices { cluster: None, name: name("gpu:a100") }, ..plain() };
    let licences = Ask { what: Asked::Licences { cluster: cluster(), name: name("matlab") }, ..plain() };
    vec![memory, devices, licences]
}

pub fn declared() -> Declared {
    Declared { least: 2, most: 64, sizes: Sizes::Listed(vec![2, 4, 64]), speedup: speedup() }
}

pub fn calls() -> Vec<NegotiatorCall> {
    let bare = Declared { sizes: Sizes::MultipleOf(2), speedup: Speedup::default(), ..declared() };
    let mut calls = vec![
        NegotiatorCall::Attach(Default::default()),
        NegotiatorCall::Declare(declared()),
        NegotiatorCall::Declare(bare),
    ];
    calls.extend(messages().into_iter().map(|message| NegotiatorCall::Say(Box::new(message))));
    calls.push(NegotiatorCall::Say(Box::new(recalled())));
    let of = |keeps| NegotiatorCall::Attach(Manner { survives_loss: keeps == Keeps::All, keeps });
    calls.extend([of(Keeps::All), of(Keeps::Nodes(vec!["n1".to_owned(), "n2".to_owned()]))]);
    let statement = Statement::End { ending: Ending::Rejected, reason: Reason::KeepsRanks };
    let refused = Message::new(id(Side::Application, 2), 2, 1, Some(statement));
    calls.push(NegotiatorCall::Say(Box::new(refused)));
    calls.push(NegotiatorCall::Free(vec!["n1".to_owned(), "n2".to_owned()]));
    calls.push(NegotiatorCall::Say(Box::new(inside())));
    calls
}

pub fn holding() -> Holding {
    let node = |node: u32, is_departing| HeldNode {
        node: NodeId(node),
        name: format!("n{node}"),
        cluster: ClusterId(1),
        cluster_name: "a".to_owned(),
        address: format!("10.0.0.{node}:7000"),
        cpus: 48,
        cores: 0,
        memory: Mebibytes(0),
        devices: Devices::default(),
        is_departing,
        is_coming: false,
    };
    Holding {
        generation: 3,
        nodes: vec![node(1, false), node(2, true)],
        until: Time::from_secs(1_800_000_000),
        stages: None,
        licences: BTreeMap::new(),
    }
}

/// Returns a holding with a node that is not ready yet.
pub fn coming() -> Holding {
    let mut holding = holding();
    holding.nodes.iter_mut().for_each(|node| (node.is_departing, node.is_coming) = (false, node.is_departing));
    holding
}

/// Returns a holding with nodes of two hardware threads per core.
pub fn of_cores() -> Holding {
    let mut holding = holding();
    holding.nodes.iter_mut().for_each(|node| node.cores = node.cpus / 2);
    holding
}

/// Returns a holding with a node that is shared.
pub fn shared() -> Holding {
    let mut holding = holding();
    holding.nodes.iter_mut().for_each(|node| {
        (node.memory, node.devices) = (Mebibytes(4096), "gpu:a100:2".parse().expect("devices"));
    });
    Holding { licences: [(ClusterId(1), "matlab:2".parse().expect("licences"))].into(), ..holding }
}

/// Returns a proposal with memory, devices and licences.
pub fn inside() -> Message {
    let parties = Parties { job: JOB, run: RUN, initiator: Side::Application };
    let cluster = ClusterId(1);
    let items = vec![
        Item { nodes: [NodeId(2)].into(), ..Item::up_to(Resource::Memory(cluster), 4096, 2048) },
        Item::up_to(Resource::Devices(cluster, "gpu:a100".to_owned()), 2, 1),
        Item::up_to(Resource::Licences(cluster, "matlab".to_owned()), 2, 2),
    ];
    let template = Template::new(parties, Direction::Shrink, vec![SetRule::All], items).expect("it is one");
    let statement = Statement::Propose { round: 1, template, valid_for: Span::from_secs(30) };
    Message::new(id(Side::Application, 9), 1, 0, Some(statement))
}

pub fn stages() -> Stages {
    let leg = |nodes, start| StageLine { nodes, span: Span::from_mins(5), start };
    Stages {
        number: 2,
        n_stages: 3,
        legs: vec![leg(8, Some(Time::from_secs(20))), leg(2, None)],
        late_by: Some(Span::from_secs(3)),
        open: true,
        generation: 2,
        chosen: vec!["n2".to_owned()],
        leaving: vec!["n3".to_owned()],
        n_violations: 1,
    }
}

fn in_stages() -> Holding {
    Holding { stages: Some(Box::new(stages())), ..holding() }
}

pub fn reminders() -> Vec<Reminder> {
    let proposed = |by, round, direction| Reminded { by, round, template: template(direction) };
    let waiting = Reminder {
        id: id(Side::Rms, 7),
        phase: Phase::Countered(Side::Rms),
        proposals: vec![proposed(Side::Application, 2, Direction::Grow), proposed(Side::Rms, 3, Direction::Grow)],
        nodes: None,
        left: Some(Span::from_secs(30)),
        said: 2,
        heard: 300,
    };
    let leaving = Reminder {
        id: id(Side::Application, 4),
        phase: Phase::Committing,
        proposals: vec![proposed(Side::Application, 1, Direction::Shrink)],
        nodes: Some(BTreeSet::from([NodeId(0), NodeId(70_000)])),
        left: None,
        said: 1,
        heard: 2,
    };
    vec![waiting, leaving]
}

/// Returns the answer to the negotiator of an application with a profile.
pub fn attached_in_stages() -> Result<NegotiatorAnswer, Refused> {
    Ok(NegotiatorAnswer::Attached(Box::new(Attached { holding: in_stages(), ..attached() })))
}

pub fn answers() -> Vec<Result<NegotiatorAnswer, Refused>> {
    vec![
        Err(Refused::new("another_run", "no")),
        Ok(NegotiatorAnswer::Attached(Box::new(attached()))),
        Ok(NegotiatorAnswer::Done),
    ]
}

fn attached() -> Attached {
    Attached {
        job: JOB,
        run: RUN,
        rules: Rules::default(),
        n_opened: 4,
        declared: declared(),
        holding: holding(),
        release_within: Span::from_mins(2),
        open: reminders(),
        clusters: [(ClusterId(1), "a".to_owned()), (ClusterId(2), "b".to_owned())].into(),
    }
}

pub fn notices() -> Vec<NegotiatorNotice> {
    let refused = NegotiatorNotice::Refused {
        negotiation: id(Side::Application, 3),
        number: 2,
        reason: "the statement does not follow".to_owned(),
    };
    let mut notices = vec![
        refused,
        NegotiatorNotice::Holding(Box::new(holding())),
        NegotiatorNotice::Ended { outcome: Outcome::WallTime },
        NegotiatorNotice::Replaced,
    ];
    notices.extend(messages().into_iter().map(|message| NegotiatorNotice::Said(Box::new(message))));
    notices.push(NegotiatorNotice::Counted { n_opened: 300 });
    notices.push(NegotiatorNotice::Said(Box::new(recalled())));
    notices.push(NegotiatorNotice::NodesLost { nodes: vec![NodeId(0), NodeId(70_000)] });
    notices.push(NegotiatorNotice::Holding(Box::new(in_stages())));
    notices
}

/// Returns messages with what the server adds for the application.
pub fn explained() -> [NegotiatorNotice; 2] {
    let end = Statement::End { ending: Ending::Rejected, reason: Reason::Policy };
    let refused = Message::new(id(Side::Application, 2), 2, 1, Some(end));
    let why = Some("nodes: 8 fewer proposed, at most 7 of 8 allowed".to_owned());
    let accepted = Message::new(id(Side::Application, 2), 2, 1, Some(Statement::Accept { round: 1 }));
    let release_within = Some(Span::from_mins(2));
    [Message { why, ..refused }, Message { release_within, ..accepted }]
        .map(|message| NegotiatorNotice::Said(Box::new(message)))
}

pub fn asks() -> Vec<Ask> {
    let nodes = Ask {
        direction: Direction::Grow,
        what: Asked::Nodes { cluster: Some("a".to_owned()) },
        quantity: 4,
        least: 2,
        sizes: Sizes::PowerOfTwo,
        price: Price(1 << 40),
        duration: Some(Span::from_hours(1)),
        nodes: Vec::new(),
        wait: Span::from_mins(5),
    };
    let back = Ask {
        direction: Direction::Shrink,
        what: Asked::Nodes { cluster: None },
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        duration: None,
        ..nodes.clone()
    };
    let time = Ask { what: Asked::Time, quantity: 3_600_000, least: 60_000, ..nodes.clone() };
    let cores = Ask {
        what: Asked::Cores { cluster: Some("a".to_owned()) },
        nodes: vec!["n1".to_owned()],
        duration: None,
        ..nodes.clone()
    };
    let of_sizes = sizes().map(|sizes| Ask { sizes, ..nodes.clone() });
    [vec![back, time], of_sizes.to_vec(), vec![cores]].concat()
}

pub fn outcomes() -> Vec<AskOutcome> {
    let ready = AskOutcome::Ready {
        negotiation: id(Side::Application, 1),
        quantity: 2,
        nodes: vec!["n3".to_owned(), "n4".to_owned()],
        generation: 2,
        n_rounds: 3,
    };
    let failed = |free| AskOutcome::Failed {
        negotiation: id(Side::Application, 2),
        reason: Reason::NoResources,
        free,
        short: None,
    };
    vec![ready, failed(None)]
}

/// Returns an outcome that was added later, so that the others keep their places.
pub fn short() -> AskOutcome {
    AskOutcome::Failed {
        negotiation: id(Side::Application, 2),
        reason: Reason::NoResources,
        free: Some(6),
        short: None,
    }
}

/// Returns the calls of clients about sizes.
pub fn client_calls() -> Vec<Call> {
    let mut calls: Vec<Call> = asks().into_iter().map(|ask| Call::Negotiate { job: JOB, ask }).collect();
    calls.push(Call::ResizeDone { job: JOB, generation: 300 });
    for (order, side) in [(Order::Withdraw, Side::Rms), (Order::Force, Side::Application)] {
        calls.push(Call::OrderNegotiation { job: JOB, negotiation: id(side, 3), order });
    }
    calls
}

fn phases() -> Vec<Phase> {
    let mut phases = vec![
        Phase::Idle,
        Phase::Pledged,
        Phase::Leaving,
        Phase::Accepted,
        Phase::Committing,
        Phase::Failing,
        Phase::Applied,
    ];
    phases.extend(SIDES.map(Phase::Offered));
    phases.extend(SIDES.map(Phase::Countered));
    phases.extend(ENDINGS.map(Phase::Ended));
    phases
}

pub fn lines() -> Vec<NegotiationLine> {
    let at = |secs: i64| Time::from_secs(1_700_000_000 + secs);
    let proposed = Said::Proposed { by: Side::Application, round: 1, template: template(Direction::Grow) };
    let mut rounds = vec![RoundRecord { at: at(0), said: proposed }];
    for (secs, phase) in (1..).zip(phases()) {
        let reason = (secs % 2 == 0).then_some(Reason::Declined);
        rounds.push(RoundRecord { at: at(secs), said: Said::Phase { phase, reason } });
    }
    let line = |(number, phase)| NegotiationLine {
        job: JOB,
        run: RUN,
        owner: "alice".to_owned(),
        record: NegotiationRecord {
            id: id(Side::Rms, number),
            direction: Direction::Shrink,
            by: number.is_multiple_of(2).then(|| "alice".to_owned()),
            opened: at(0),
            rounds: rounds.clone(),
            nodes: vec!["n1".to_owned()],
        },
        phase,
        until: number.is_multiple_of(3).then(|| at(60)),
        held: vec!["n2".to_owned()],
    };
    (1..).zip([Phase::Offered(Side::Rms), Phase::Accepted, Phase::Applied]).map(line).collect()
}

pub fn budgets() -> Vec<BudgetLine> {
    let line = |user: &str, budget| BudgetLine { user: user.to_owned(), budget, spent: 1_500, reserved: 250 };
    vec![line("ada", Some(50_000)), line("bob", None)]
}
