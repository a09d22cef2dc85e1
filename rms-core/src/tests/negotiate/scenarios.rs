//! The scenarios of 002: requests, offers and outcomes.

use negotiation::{Action, Direction, Phase, Price, Quantity, Reason, Side, Sizes};
use rms_api::negotiate::{Ask, AskOutcome, Said};
use rms_model::{OnResize, Span};

use super::{Scene, malleable, nodes};

fn hour() -> Span {
    Span::from_hours(1)
}

/// PAPERS §3 (b), by the application itself: it asks for fourteen, is offered six, and accepts.
#[test]
fn an_application_is_offered_what_there_is_and_the_offer_is_kept_for_it() {
    let mut scene = Scene::new(8);
    let job = scene.submit(2, hour(), Some(malleable(1, 8, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let item = scene.item(job, 14);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    assert_eq!(scene.n_free(), 0, "what is offered is nobody else's");
    let other = scene.submit(1, hour(), None);
    assert!(!scene.is_started(other));
    let held = scene.lines(job).pop().expect("one").held;
    assert_eq!(held, ["n3", "n4", "n5", "n6", "n7", "n8"]);
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job).len(), 8);
}

/// (c): when the short job ends, the malleable one is offered its nodes, and takes them because eight is a power of
/// two.
#[test]
fn a_malleable_application_is_offered_the_nodes_of_a_job_that_has_ended() {
    let mut scene = Scene::new(8);
    scene.set("offer_idle", "equal_share");
    let mut limits = malleable(4, 8, OnResize::Workers);
    limits.sizes = Sizes::PowerOfTwo;
    let short = scene.submit(4, Span::from_mins(10), None);
    let job = scene.submit(4, hour(), Some(limits));
    assert_eq!(scene.held(job).len(), 4);
    for name in ["n1", "n2", "n3", "n4"] {
        scene.ended(name, short, rms_api::desired::NodeExit::Exited { code: 0 });
    }
    assert!(scene.has_left(short));
    assert_eq!(scene.held(job).len(), 8);
    let record = scene.lines(job).pop().expect("one").record;
    assert_eq!((record.id.initiator, record.direction), (Side::Rms, Direction::Grow));
}

/// (d): an application on eight nodes that needs a power of two asks for 24, is offered 15, takes 8, and has 16.
#[test]
fn an_application_that_needs_a_power_of_two_takes_a_part_of_what_is_offered() {
    let mut scene = Scene::new(23);
    let job = scene.submit(8, hour(), Some(malleable(1, 23, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let item = scene.item(job, 24);
    let id = scene.app_opens(job, Direction::Grow, item);
    let offered = scene.app(job).dialogues.get(id).and_then(|dialogue| dialogue.proposal()).cloned().expect("an offer");
    assert_eq!(offered.items()[0].quantity, Quantity(15));
    let mut items = offered.items().to_vec();
    items[0].quantity = Quantity(8);
    let template = offered.with_items(items).expect("a template");
    scene.app_acts(job, id, Action::Propose { template, valid_for: Span::from_mins(1) });
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!((scene.held(job).len(), scene.n_free()), (16, 7));
}

/// The same, where the sizes are in the proposal: the server offers only a usable number.
#[test]
fn the_server_offers_the_greatest_size_that_is_of_use() {
    let mut scene = Scene::new(23);
    let job = scene.submit(8, hour(), Some(malleable(1, 23, OnResize::Negotiates)));
    let mut ask = nodes(Direction::Grow, 24, 4);
    ask.sizes = Sizes::PowerOfTwo;
    let ticket = scene.ask(job, ask);
    assert!(
        matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 8, .. })),
        "{:?}",
        scene.outcome(ticket)
    );
    assert_eq!(scene.held(job).len(), 16);
}

/// (e): a node has its price. An application that bids less is told the price, and pays it or leaves.
#[test]
fn a_bid_below_the_price_is_countered_with_the_price() {
    let mut scene = Scene::new(4);
    scene.set("price", "100");
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    let bid = |price| {
        let mut ask = nodes(Direction::Grow, 2, 2);
        ask.price = Price(price);
        ask
    };
    let ticket = scene.ask(job, bid(60));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Price, .. })));
    assert_eq!((scene.held(job).len(), scene.n_free()), (2, 2));
    scene.attach(job).expect("it may");
    let mut item = scene.item(job, 2);
    item.terms.price = Price(60);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    let rounds = scene.lines(job).pop().expect("one").record.rounds;
    let prices: Vec<u64> = rounds
        .iter()
        .filter_map(|round| match &round.said {
            Said::Proposed { template, .. } => Some(template.items()[0].terms.price.0),
            Said::Phase { .. } => None,
        })
        .collect();
    assert_eq!(prices, [60, 100]);
}

/// What is named is the most to be paid, and not what is paid.
#[test]
fn nobody_pays_more_than_the_server_asks_for() {
    for list in [0, 40] {
        let mut scene = Scene::new(4);
        scene.set("price", &list.to_string());
        let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
        let ticket = scene.ask(job, Ask { price: Price(100), ..nodes(Direction::Grow, 2, 2) });
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
        let rounds = scene.lines(job).pop().expect("one").record.rounds;
        let proposed = rounds.iter().find_map(|round| match &round.said {
            Said::Proposed { template, .. } => Some(template.items()[0].terms.price),
            Said::Phase { .. } => None,
        });
        assert_eq!(proposed, Some(Price(list)));
    }
}

/// (f): a malleable application gives way to a job of a higher priority.
#[test]
fn a_malleable_application_shrinks_for_a_job_of_a_higher_priority() {
    let mut scene = Scene::new(4);
    scene.set("shrink_for", "priority");
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Workers)));
    scene.after(Span::from_secs(1));
    let mut submission = scene.world.submission();
    submission.priority = 5;
    submission.shapes =
        vec![rms_api::call::Shape { nodes: rms_api::call::Nodes::Count(2), wall: Some(Span::from_mins(10)) }];
    let Ok(rms_api::Answer::Submitted { job: urgent }) = scene.call(rms_api::Call::Submit(Box::new(submission))) else {
        panic!("not submitted");
    };
    scene.after(Span::from_secs(1));
    assert!(scene.is_started(urgent));
    assert_eq!(scene.held(job), [1, 2]);
}

/// No waiting job is delayed: free nodes are offered only as far as that holds.
#[test]
fn growth_does_not_delay_who_waits() {
    let mut scene = Scene::new(4);
    let job = scene.submit(1, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    let short = scene.submit(1, Span::from_mins(10), None);
    let waiting = scene.submit(3, Span::from_mins(10), None);
    assert!(scene.is_started(short) && !scene.is_started(waiting));
    // Two nodes are free, and three will be wanted in ten minutes.
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    // They are available until they are wanted, but the application holds them until the job ends, which is later.
    scene.set("delay_tolerance", "2h");
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
}

/// Growth that waits for nodes is served when some become free, in the order of the requests.
#[test]
fn growth_that_waits_is_served_when_nodes_become_free() {
    let mut scene = Scene::new(4);
    let first = scene.submit(1, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    let second = scene.submit(1, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    let short = scene.submit(2, hour(), None);
    let patient = || {
        let mut ask = nodes(Direction::Grow, 2, 1);
        ask.wait = Span::from_mins(5);
        ask
    };
    let of_first = scene.ask(first, patient());
    scene.after(Span::from_secs(1));
    let of_second = scene.ask(second, patient());
    assert_eq!((scene.outcome(of_first), scene.outcome(of_second)), (None, None));
    scene.ended("n3", short, rms_api::desired::NodeExit::Exited { code: 0 });
    scene.ended("n4", short, rms_api::desired::NodeExit::Exited { code: 0 });
    assert!(matches!(scene.outcome(of_first), Some(AskOutcome::Ready { quantity: 2, .. })));
    assert_eq!(scene.outcome(of_second), None);
    scene.after(Span::from_mins(5));
    assert!(matches!(scene.outcome(of_second), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
}

/// Two applications that each want all the rest do not wait for each other without end (000, §2): while waiting, an
/// application holds nothing more.
#[test]
fn two_applications_that_each_want_the_rest_come_to_an_end() {
    let mut scene = Scene::new(6);
    let jobs = [1, 2].map(|_| scene.submit(2, hour(), Some(malleable(1, 6, OnResize::Negotiates))));
    let tickets = jobs.map(|job| {
        let mut ask = nodes(Direction::Grow, 4, 4);
        ask.wait = Span::from_mins(1);
        scene.ask(job, ask)
    });
    scene.after(Span::from_mins(2));
    for ticket in tickets {
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    }
    assert_eq!(scene.n_free(), 2);
}

/// No job is delayed until the nodes are wanted, together with others that are not free before.
#[test]
fn a_job_gets_as_much_time_as_delays_nobody() {
    let mut scene = Scene::new(2);
    let limits = || Some(malleable(1, 2, OnResize::Negotiates));
    let job = scene.submit(1, Span::from_mins(10), limits());
    let other = scene.submit(1, Span::from_mins(20), None);
    // Both nodes are wanted in twenty minutes.
    let waiting = scene.submit(2, Span::from_mins(1), None);
    let mut ask = nodes(Direction::Grow, Span::from_mins(60).as_millis() as u64, 1);
    ask.what = rms_api::negotiate::Asked::Time;
    let ticket = scene.ask(job, ask);
    let Some(AskOutcome::Ready { quantity, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    let ten = Span::from_mins(10).as_millis() as u64;
    assert!((ten * 9 / 10..=ten).contains(&quantity), "{quantity}");
    scene.after(Span::from_mins(20));
    scene.ended("n2", other, rms_api::desired::NodeExit::WallTime);
    assert!(scene.is_started(waiting));
}

/// More wall time is negotiated as nodes are.
#[test]
fn a_job_gets_more_time_where_nobody_waits_for_its_nodes() {
    let mut scene = Scene::new(2);
    let job = scene.submit(2, Span::from_mins(10), Some(malleable(1, 2, OnResize::Negotiates)));
    let more = |minutes: i64| {
        let mut ask = nodes(Direction::Grow, Span::from_mins(minutes).as_millis() as u64, 1);
        ask.what = rms_api::negotiate::Asked::Time;
        ask
    };
    let ticket = scene.ask(job, more(10));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 600_000, .. })));
    let wall = |scene: &Scene| scene.world.rms.state().jobs()[&job].started().expect("it runs").request.wall;
    assert_eq!(wall(&scene), Span::from_mins(20));
    let waiting = scene.submit(2, Span::from_mins(1), None);
    let ticket = scene.ask(job, more(10));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    scene.after(Span::from_mins(19));
    assert!(scene.is_started(job) && !scene.is_started(waiting));
    scene.after(Span::from_mins(1));
    assert!(scene.has_left(job) && scene.is_started(waiting));
}
