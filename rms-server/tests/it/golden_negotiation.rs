//! Examples of the facts by which running jobs change their size, for the bytes that are written down.

use negotiation::{
    Desk, Dialogue, Direction, Item, NegotiationId, Parties, Price, Resource, Rules, Side, Statement, Template,
};
use rms_core::Fact;
use rms_core::negotiate::contract::{Ask, Asked, Declared};
use rms_core::negotiate::talks::Asking;
use rms_model::{ClusterId, JobId, NodeId, Run, Sizes, Span, Speedup, Time};

pub fn examples() -> Vec<Fact> {
    let job = JobId(7);
    let at = Time::from_secs(1_700_000_000);
    let lent = NegotiationId { initiator: Side::Application, number: 3 };
    let back = NegotiationId { initiator: Side::Rms, number: 1 };
    vec![
        Fact::Talked { job, at, dialogue: Box::new(dialogue(at)), asking: Some(Box::new(asking())) },
        Fact::HostsHeld { job, negotiation: lent, nodes: vec![NodeId(5), NodeId(6)] },
        Fact::HostsDeparting { job, at, nodes: vec![NodeId(4)] },
        Fact::HostsStay { job },
        Fact::LimitsDeclared { job, declared: declared() },
        Fact::PromiseWarned { job, negotiation: back, at },
        Fact::LoanCalled { job, negotiation: lent, by: back },
        Fact::LoanEnded { job, negotiation: lent },
    ]
}

/// The server's end once the application has asked for two hosts more.
fn dialogue(at: Time) -> Dialogue {
    let (job, run) = (JobId(7), Run(2));
    let id = NegotiationId { initiator: Side::Application, number: 3 };
    let parties = Parties { job, run, initiator: Side::Application };
    let item = Item::up_to(Resource::Hosts(ClusterId(1)), 2, 2);
    let template = Template::of_one(parties, Direction::Grow, item).expect("a template");
    let statement = Some(Statement::Propose { round: 1, template, valid_for: Span::from_mins(1) });
    let mut desk = Desk::new(Side::Rms, job, run, Rules::default());
    let _ = desk.receive(at, &negotiation::Message { id, number: 1, seen: 0, statement });
    desk.get(id).expect("it was heard").durable()
}

fn asking() -> Asking {
    let ask = Ask {
        direction: Direction::Grow,
        what: Asked::Hosts { cluster: Some("a".to_owned()) },
        quantity: 2,
        least: 1,
        sizes: Sizes::PowerOfTwo,
        price: Price(2500),
        duration: Some(Span::from_mins(30)),
        hosts: Vec::new(),
        wait: Span::from_secs(5),
    };
    Asking { by: "ann".to_owned(), ask }
}

fn declared() -> Declared {
    Declared { least: 1, most: 8, sizes: Sizes::Listed(vec![1, 2, 4]), speedup: Speedup(vec![(1, 1000), (8, 6000)]) }
}
