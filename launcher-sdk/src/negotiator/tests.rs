//! Tests the application's end against the server's, in one process and without real time.

mod releasing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use negotiation::{
    Action, Dialogues, Direction, Ending, Item, NegotiationId, Output, Parties, Phase, Price, Quantity, Reason,
    Reminder, Resource, Rules, SetRule, Side, Sizes, Template, Terms,
};
use rms_api::answer::{StageLine, Stages};
use rms_api::negotiate::{Attached, Declared, HeldNode, Holding};
use rms_model::{ClusterId, JobId, NodeId, Run, Span, Speedup, Time};

use super::clock::Clock;
use super::error::NegotiatorError;
use super::event::{Agreed, Event, Offer, Ready};
use super::handle::Negotiator;
use super::limits::Limits;
use super::negotiations::{Act, Negotiations, Outcome};
use super::owner::{Shared, Snapshot};
use super::policy::{Decision, Policy};
use super::queue::Queue;
use super::resizing::{Added, Change, Resizing};
use super::want::Want;

const A: ClusterId = ClusterId(0);
const B: ClusterId = ClusterId(1);
const JOB: JobId = JobId(7);
const RUN: Run = Run(1);

fn at(secs: i64) -> Time {
    Time::from_secs(1_000_000 + secs)
}

fn holding(generation: u32, n_nodes: u32) -> Holding {
    let node = |idx: u32| HeldNode {
        node: NodeId(idx),
        name: format!("a{idx}"),
        cluster: A,
        cluster_name: "a".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        cpus: 4,
        cores: 0,
        memory: Default::default(),
        devices: Default::default(),
        is_departing: false,
        is_coming: false,
    };
    Holding {
        generation,
        nodes: (1..=n_nodes).map(node).collect(),
        until: at(3600),
        stages: None,
        licences: Default::default(),
    }
}

fn clusters() -> BTreeMap<ClusterId, String> {
    [(A, "a".to_owned()), (B, "b".to_owned())].into()
}

/// Returns the server's answer to an attaching process.
fn attached(holding: Holding, open: Vec<Reminder>) -> Attached {
    Attached {
        job: JOB,
        run: RUN,
        rules: Rules::default(),
        n_opened: 0,
        declared: Declared { least: 1, most: 64, sizes: Sizes::Any, speedup: Speedup::default() },
        holding,
        release_within: Span::from_mins(2),
        open,
        clusters: clusters(),
    }
}

/// Both ends; each message is delivered at once.
struct Table {
    rms: Dialogues,
    negotiations: Negotiations,
    events: Vec<Event>,
}

impl Table {
    fn of_nodes(n_nodes: u32) -> Table {
        let attached = attached(holding(1, n_nodes), Vec::new());
        Table {
            rms: Dialogues::new(Side::Rms, JOB, RUN, Rules::default()),
            negotiations: Negotiations::new(&attached),
            events: Vec::new(),
        }
    }

    fn answering(n_nodes: u32, limits: Limits) -> Table {
        let mut table = Table::of_nodes(n_nodes);
        let outcome = table.negotiations.answer_with(at(0), Some(Policy::within(limits)));
        table.hear_application(outcome);
        table
    }

    fn hear_application(&mut self, outcome: Outcome) {
        self.events.extend(outcome.events);
        for message in outcome.messages {
            let output = self.rms.receive(at(0), &message);
            self.hear_rms(output);
        }
    }

    fn hear_rms(&mut self, output: Output) {
        for message in output.messages {
            let outcome = self.negotiations.receive(at(0), &message);
            self.hear_application(outcome);
        }
    }

    fn rms_offers(&mut self, direction: Direction, item: Item) -> NegotiationId {
        let opened = self.rms.open(at(0), direction, vec![SetRule::All], vec![item], Span::from_secs(30));
        let (id, output) = opened.expect("a proposal");
        self.hear_rms(output);
        id
    }

    fn rms_does(&mut self, id: NegotiationId, action: Action) {
        let output = self.rms.act(at(0), id, action).expect("it is its turn");
        self.hear_rms(output);
    }

    fn requests(&mut self, want: Want) -> NegotiationId {
        let (id, outcome) = self.negotiations.request(at(0), want).expect("a proposal");
        self.hear_application(outcome);
        id
    }

    fn does(&mut self, id: NegotiationId, act: Act) {
        let outcome = self.negotiations.act(at(0), id, act).expect("it is its turn");
        self.hear_application(outcome);
    }

    fn holds(&mut self, generation: u32, n_nodes: u32) {
        let outcome = self.negotiations.set_holding(at(0), holding(generation, n_nodes));
        self.hear_application(outcome);
    }

    /// Attaches another process after the first one died (`is_anew`), or reconnects the same one.
    fn attaches(&mut self, is_anew: bool) {
        let open = self.rms.all().iter().filter_map(|dialogue| dialogue.reminder(at(0))).collect();
        let attached = attached(self.negotiations.holding(), open);
        if is_anew {
            self.negotiations = Negotiations::new(&attached);
        }
        let mut outcome = self.negotiations.recall(at(0), &attached.open);
        outcome.merge(self.negotiations.resume(at(0)));
        self.hear_application(outcome);
        let output = self.rms.resume(at(0));
        self.hear_rms(output);
    }

    /// Returns the phase at the server's end, which is authoritative.
    fn phase(&self, id: NegotiationId) -> Phase {
        self.rms.get(id).expect("it is known").phase()
    }

    /// Returns the quantity of the only item of the current proposal.
    fn quantity(&self, id: NegotiationId) -> u64 {
        self.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").items()[0].quantity.0
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

fn nodes(held: u64, quantity: u64) -> Item {
    Item::up_to(Resource::Nodes(A), held, quantity)
}

#[test]
fn two_processors_and_two_more_make_four() {
    // (a) of 002.
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::grow(2));
    table.rms_does(id, Action::Accept);
    table.rms_does(id, Action::Commit([NodeId(3), NodeId(4)].into()));
    let events = table.take_events();
    let [Event::Accepted(agreed)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((agreed.n_nodes(), agreed.leaving.len()), (2, 0));
    // Ready is reported once the change shows in the holding.
    table.rms_does(id, Action::Ready);
    assert_eq!(table.take_events(), []);
    table.holds(2, 4);
    let events = table.take_events();
    let [Event::Holding(_), Event::Ready(ready)] = events.as_slice() else { panic!("{events:?}") };
    let names: Vec<&str> = ready.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names, ready.holding.nodes.len()), (vec!["a3", "a4"], 4));
}

#[test]
fn of_fourteen_six_are_offered_and_taken() {
    // (b) of 002.
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::grow(14).at_least(1));
    let proposal = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let items = vec![Item { quantity: Quantity(6), terms: Terms::up_to(Quantity(6)), ..proposal.items()[0].clone() }];
    let template = proposal.with_items(items).expect("a counter");
    table.rms_does(id, Action::Propose { template, valid_for: Span::from_secs(30) });
    let events = table.take_events();
    let [Event::Countered(offer)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((offer.n_nodes(), offer.mine.is_some()), (6, true));
    table.does(id, Act::Accept);
    assert_eq!((table.phase(id), table.quantity(id)), (Phase::Accepted, 6));
}

#[test]
fn a_policy_takes_four_because_eight_is_a_power_of_two() {
    // (c) of 002.
    let mut table = Table::answering(4, Limits::between(1, 64).in_powers_of_two());
    let id = table.rms_offers(Direction::Grow, nodes(4, 4));
    assert_eq!(table.phase(id), Phase::Accepted);
    let events = table.take_events();
    assert!(matches!(events.as_slice(), [Event::Accepted(_)]), "the offer needs nobody: {events:?}");
}

#[test]
fn a_policy_takes_eight_of_fifteen() {
    // (d) of 002: on 8, it wants 24, is offered 15 and takes 8.
    let mut table = Table::answering(8, Limits::between(1, 64).in_powers_of_two());
    let id = table.requests(Want::grow(24).at_least(1).to_sizes(Sizes::PowerOfTwo));
    let proposal = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let items = vec![Item { quantity: Quantity(15), terms: Terms::up_to(Quantity(15)), ..proposal.items()[0].clone() }];
    let template = proposal.with_items(items).expect("a counter");
    table.rms_does(id, Action::Propose { template, valid_for: Span::from_secs(30) });
    assert_eq!((table.phase(id), table.quantity(id)), (Phase::Countered(Side::Application), 8));
}

#[test]
fn a_policy_bids_no_more_than_its_own_last_bid() {
    // (e) of 002.
    let mut table = Table::answering(2, Limits::between(1, 64));
    let id = table.requests(Want::grow(2).at_price(100));
    let proposal = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let terms = Terms { price: Price(300), ..proposal.items()[0].terms.clone() };
    let template = proposal.with_items(vec![Item { terms, ..proposal.items()[0].clone() }]).expect("a counter");
    table.rms_does(id, Action::Propose { template, valid_for: Span::from_secs(30) });
    assert_eq!(table.phase(id), Phase::Countered(Side::Application));
    let standing = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands");
    assert_eq!(standing.items()[0].terms.price, Price(100));
    table.rms_does(id, Action::Accept);
    assert_eq!(table.phase(id), Phase::Accepted);
}

#[test]
fn a_policy_gives_what_it_can_and_no_node_below_its_limit() {
    // (f) of 002.
    let mut table = Table::answering(8, Limits::between(4, 8));
    let id = table.rms_offers(Direction::Shrink, nodes(8, 6));
    assert_eq!((table.phase(id), table.quantity(id)), (Phase::Countered(Side::Application), 4));
    table.rms_does(id, Action::Accept);
    let events = table.take_events();
    let [Event::Accepted(agreed)] = events.as_slice() else { panic!("{events:?}") };
    let names: Vec<&str> = agreed.leaving.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a5", "a6", "a7", "a8"], "the last ones, and never the first");
    let staying = |table: &Table| {
        let nodes = table.negotiations.holding().nodes.into_iter();
        nodes.filter(|node| !node.is_departing).map(|node| node.name).collect::<Vec<_>>()
    };
    assert_eq!(staying(&table), ["a1", "a2", "a3", "a4"], "the others are to be left");
    table.does(id, Act::Release(None));
    assert_eq!(table.phase(id), Phase::Committing);
    assert_eq!(staying(&table), ["a1", "a2", "a3", "a4"]);
    table.rms_does(id, Action::Ready);
    table.holds(2, 4);
    assert!(matches!(table.take_events().as_slice(), [Event::Holding(_), Event::Ready(_)]));

    let mut table = Table::answering(4, Limits::between(4, 8));
    let id = table.rms_offers(Direction::Shrink, nodes(4, 1));
    assert_eq!(table.phase(id), Phase::Ended(Ending::Rejected));
}

#[test]
fn without_a_policy_the_application_is_asked_and_with_one_what_waits_is_answered() {
    let mut table = Table::of_nodes(2);
    let id = table.rms_offers(Direction::Grow, nodes(2, 2));
    let events = table.take_events();
    let [Event::Offered(offer)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((offer.negotiation, offer.n_nodes(), offer.round), (id, 2, 1));
    let outcome = table.negotiations.answer_with(at(0), Some(Policy::within(Limits::between(1, 4))));
    table.hear_application(outcome);
    assert_eq!(table.phase(id), Phase::Accepted);
}

/// The offer is not reported again on a later tick or after a reconnection.
#[test]
fn an_offer_is_told_once() {
    let mut table = Table::of_nodes(2);
    let offer = table.rms_offers(Direction::Grow, nodes(2, 2));
    let offers = |table: &mut Table| {
        let events = table.take_events();
        events.iter().filter(|event| matches!(event, Event::Offered(_)) && event.negotiation() == Some(offer)).count()
    };
    assert_eq!(offers(&mut table), 1);
    let outcome = table.negotiations.answer_with(at(1), None);
    table.hear_application(outcome);
    assert_eq!(offers(&mut table), 0, "it was told of it");
    table.attaches(false);
    assert_eq!(offers(&mut table), 0, "nor is it another one after a break");
    let outcome = table.negotiations.answer_with(at(2), Some(Policy::within(Limits::between(1, 4))));
    table.hear_application(outcome);
    assert_eq!(table.phase(offer), Phase::Accepted, "but a policy answers it");
}

#[test]
fn a_policy_that_breaks_the_rules_says_no() {
    let mut table = Table::of_nodes(2);
    let greedy = |offer: &Offer, _: &Holding| {
        let mut items = offer.template.items().to_vec();
        items.push(items[0].clone());
        Decision::Counter(items)
    };
    let outcome = table.negotiations.answer_with(at(0), Some(Policy::new(greedy)));
    table.hear_application(outcome);
    let id = table.rms_offers(Direction::Grow, nodes(2, 2));
    assert_eq!(table.phase(id), Phase::Ended(Ending::Rejected));
}

/// The negotiator goes on without it.
#[test]
fn a_policy_that_panics_leaves_its_offers_to_the_application() {
    let mut table = Table::of_nodes(2);
    let fails = |_: &Offer, _: &Holding| -> Decision { panic!("a defect of the application") };
    let outcome = table.negotiations.answer_with(at(0), Some(Policy::new(fails)));
    table.hear_application(outcome);
    let id = table.rms_offers(Direction::Grow, nodes(2, 2));
    let events = table.take_events();
    let [Event::Offered(offer)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(offer.negotiation, id);
    let outcome = table.negotiations.answer_with(at(1), Some(Policy::within(Limits::between(1, 4))));
    table.hear_application(outcome);
    assert_eq!(table.phase(id), Phase::Accepted, "and another policy may take its place");
}

#[test]
fn who_begins_anew_counts_on_and_disowns_what_it_does_not_know() {
    let mut table = Table::of_nodes(2);
    let old = table.rms_offers(Direction::Grow, nodes(2, 4));
    let counter = vec![Item { quantity: Quantity(2), ..nodes(2, 4) }];
    table.does(old, Act::Counter(counter));
    // The process is killed before it receives the next proposal.
    let template = table.rms.get(old).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let template = template.with_items(vec![nodes(2, 4)]).expect("a counter");
    let lost = table.rms.act(at(0), old, Action::Propose { template, valid_for: Span::from_secs(30) });
    assert_eq!(lost.expect("it is its turn").messages.len(), 1);
    let attached = Attached {
        job: JOB,
        run: RUN,
        rules: Rules::default(),
        n_opened: 5,
        declared: Declared { least: 1, most: 4, sizes: Sizes::Any, speedup: Speedup::default() },
        holding: holding(1, 2),
        release_within: Span::from_mins(2),
        open: Vec::new(),
        clusters: clusters(),
    };
    table.negotiations = Negotiations::new(&attached);
    let output = table.rms.resume(at(0));
    table.hear_rms(output);
    assert_eq!(table.phase(old), Phase::Ended(Ending::Failed), "nobody is left who knows of it");
    assert_eq!(table.requests(Want::grow(1)).number, 6);
}

#[test]
fn an_ending_says_why_and_time_is_asked_for_as_nodes_are() {
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::more_time(Span::from_mins(10)).at_least(60_000));
    table.rms_does(id, Action::Reject(Reason::Policy));
    let events = table.take_events();
    let [Event::Ended { negotiation, template: Some(template), ending, reason, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((*negotiation, *ending, *reason), (id, Ending::Rejected, Reason::Policy));
    assert_eq!(template.items()[0].resource, Resource::Time, "it says what has come to nothing");
    let id = table.requests(Want::more_time(Span::from_mins(10)));
    table.rms_does(id, Action::Accept);
    table.rms_does(id, Action::Ready);
    table.holds(1, 2);
    let events = table.take_events();
    let Some(Event::Ready(ready)) = events.last() else { panic!("{events:?}") };
    assert_eq!((ready.time(), ready.nodes.len()), (Span::from_mins(10), 0));
}

#[test]
fn ready_is_told_without_the_holding_once_that_takes_too_long() {
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::grow(1));
    table.rms_does(id, Action::Accept);
    table.rms_does(id, Action::Commit([NodeId(3)].into()));
    table.rms_does(id, Action::Ready);
    table.take_events();
    let due = table.negotiations.next_deadline().expect("it waits for the holding");
    let outcome = table.negotiations.tick(due);
    assert!(matches!(outcome.events.as_slice(), [Event::Ready(_)]), "{outcome:?}");
}

/// The application has no node there yet; the server has told it the clusters.
#[test]
fn nodes_of_a_cluster_where_it_has_none_are_asked_for_by_its_name() {
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::grow(3).on("b"));
    let template = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let [item] = template.items() else { panic!("{template:?}") };
    assert_eq!((item.resource.clone(), item.held, item.quantity), (Resource::Nodes(B), Quantity(0), Quantity(3)));
}

#[test]
fn nodes_of_several_clusters_are_asked_for_as_one_set() {
    let mut table = Table::of_nodes(2);
    let id = table.requests(Want::grow_on(SetRule::AnyOf, [("a", 1), ("b", 4)]).at_price(7));
    let template = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    let items: Vec<_> = template
        .items()
        .iter()
        .map(|item| (item.resource.clone(), item.held.0, item.quantity.0, item.terms.price.0))
        .collect();
    assert_eq!(template.rules(), [SetRule::AnyOf]);
    assert_eq!(items, [(Resource::Nodes(A), 2, 1, 7), (Resource::Nodes(B), 0, 4, 7)]);
}

/// Named nodes determine their cluster.
#[test]
fn nodes_that_are_given_back_are_of_the_cluster_that_they_are_of() {
    let mut table = Table::of_nodes(2);
    let mut both = holding(2, 2);
    let on_b = HeldNode { node: NodeId(9), name: "b1".to_owned(), cluster: B, ..both.nodes[1].clone() };
    both.nodes.push(on_b);
    table.negotiations.set_holding(at(0), both);
    let id = table.requests(Want::shrink(1).nodes(["b1"]));
    let template = table.rms.get(id).and_then(|dialogue| dialogue.proposal()).expect("it stands").clone();
    assert_eq!((template.items()[0].resource.clone(), template.items()[0].held), (Resource::Nodes(B), Quantity(1)));
}

#[test]
fn what_cannot_be_asked_is_refused_before_it_is_said() {
    let mut table = Table::of_nodes(2);
    for (want, expected) in [
        (Want::grow(0), "cannot be negotiated: "),
        (Want::shrink(5), "cannot be negotiated: "),
        (Want::grow(1).on("nowhere"), "no cluster 'nowhere'; the clusters are a, b"),
        (Want::shrink(1).nodes(["b1"]), "no node 'b1'"),
        (Want::grow(2).at_least(3), "cannot be negotiated"),
    ] {
        let error = table.negotiations.request(at(0), want).expect_err("nonsense");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(rms_model::error::chain(&error), error.to_string(), "each reason is said once");
    }
    table.requests(Want::grow(1));
    let twice = table.negotiations.request(at(0), Want::grow(1)).expect_err("one is open");
    assert!(twice.to_string().contains("a1") && twice.to_string().contains("withdraw it"), "{twice}");
}

#[test]
fn what_a_process_before_has_agreed_to_is_told_once_to_the_next_one() {
    let mut table = Table::of_nodes(4);
    let shrink = table.rms_offers(Direction::Shrink, nodes(4, 2));
    table.does(shrink, Act::Accept);
    let grow = table.requests(Want::grow(3));
    table.rms_does(grow, Action::Accept);
    let told = table.take_events();
    assert_eq!(agreements(&told), [shrink, grow]);

    table.attaches(false);
    assert_eq!(table.take_events(), [], "the connection is another one, and nothing is new");
    table.attaches(true);
    let told = table.take_events();
    assert_eq!(agreements(&told), [shrink, grow], "{told:?}");
    let Some(Event::Accepted(agreed)) = told.first() else { panic!("{told:?}") };
    assert_eq!(agreed.leaving.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a3", "a4"]);
    assert!(agreed.until.is_some(), "it is told by when");

    table.attaches(false);
    assert_eq!(table.take_events(), []);
    table.does(shrink, Act::Release(None));
    assert_eq!(table.phase(shrink), Phase::Committing);
    table.attaches(true);
    assert_eq!(agreements(&table.take_events()), [grow], "what it has let go of it need not leave again");
    table.rms_does(shrink, Action::Ready);
    table.holds(2, 2);
    let events = table.take_events();
    assert!(
        events.iter().any(|event| matches!(event, Event::Ready(ready) if ready.negotiation == shrink)),
        "{events:?}"
    );
}

#[test]
fn an_offer_to_an_earlier_process_is_answered_by_the_policy_of_the_next() {
    let mut table = Table::of_nodes(2);
    let offer = table.rms_offers(Direction::Grow, nodes(2, 2));
    table.take_events();
    table.attaches(true);
    let events = table.take_events();
    assert!(matches!(events.as_slice(), [Event::Offered(_)]), "{events:?}");
    let outcome = table.negotiations.answer_with(at(0), Some(Policy::within(Limits::between(1, 8))));
    table.hear_application(outcome);
    assert_eq!(table.phase(offer), Phase::Accepted);
}

fn agreements(events: &[Event]) -> Vec<NegotiationId> {
    let agreed = |event: &Event| match event {
        Event::Accepted(agreed) => Some(agreed.negotiation),
        _ => None,
    };
    events.iter().filter_map(agreed).collect()
}

/// Returns a holding in stages of these sizes; the first began at `at(0)` and each lasts for 100 s.
fn in_stages(generation: u32, legs: &[u32]) -> Holding {
    let leg = |(idx, nodes): (usize, &u32)| {
        let start = Some(at(100 * idx as i64));
        StageLine { nodes: *nodes, span: Span::from_secs(100), start }
    };
    let stages = Stages {
        number: generation,
        n_stages: legs.len() as u32,
        legs: legs.iter().enumerate().map(leg).collect(),
        late_by: None,
        open: false,
        generation,
        chosen: Vec::new(),
        leaving: Vec::new(),
        n_violations: 0,
    };
    Holding { stages: Some(Box::new(stages)), ..holding(generation, legs[0]) }
}

fn ends(outcome: Outcome) -> Option<(u32, Vec<String>)> {
    match outcome.events.as_slice() {
        [.., Event::StageEnds(ends)] => Some((ends.next, ends.leaving.iter().map(|node| node.name.clone()).collect())),
        [.., _] | [] => None,
    }
}

#[test]
fn the_end_of_a_stage_is_told_once_and_in_time() {
    let mut negotiations = Negotiations::new(&attached(in_stages(1, &[4, 2, 3]), Vec::new()));
    assert_eq!(negotiations.next_deadline(), Some(at(90)), "a tenth of the stage before it is over");
    assert_eq!(ends(negotiations.tick(at(89))), None);
    assert_eq!(ends(negotiations.tick(at(90))), Some((2, vec!["a4".to_owned(), "a3".to_owned()])));
    assert_eq!((ends(negotiations.tick(at(91))), negotiations.next_deadline()), (None, None));
    // Announced again with other sizes: one node goes, which was chosen already.
    let mut anew = in_stages(1, &[4, 3]);
    anew.nodes[1].is_departing = true;
    assert_eq!(ends(negotiations.set_holding(at(92), anew)), Some((2, vec!["a2".to_owned()])));
    assert_eq!(ends(negotiations.set_holding(at(100), in_stages(2, &[3, 5]))), None, "the next one is greater");
    assert!(matches!(
        negotiations.request(at(100), Want::grow(1)).map(|(id, _)| id),
        Err(NegotiatorError::HasProfile(JOB))
    ));
}

/// An application that is told at each breakpoint what to do, and what happens is put before it.
struct Breakpoints {
    shared: Arc<Shared>,
    resizing: Resizing,
}

impl Breakpoints {
    fn of_nodes(n_nodes: u32) -> Breakpoints {
        let snapshot = Snapshot {
            holding: holding(1, n_nodes),
            clusters: clusters(),
            is_connected: true,
            phases: BTreeMap::new(),
            settled: BTreeMap::new(),
            last: None,
        };
        let shared = Arc::new(Shared {
            job: JOB,
            run: RUN,
            clock: Clock::start(),
            events: Queue::default(),
            snapshot: tokio::sync::watch::channel(snapshot).1,
            runtime: tokio::runtime::Handle::current(),
        });
        let resizing = Resizing::of(Negotiator::of(Arc::clone(&shared)));
        Breakpoints { shared, resizing }
    }

    /// Tells of a holding of which these nodes are coming.
    fn holds(&mut self, generation: u32, n_nodes: u32, coming: &[u32]) {
        let mut holding = holding(generation, n_nodes);
        holding.nodes.iter_mut().for_each(|node| node.is_coming = coming.contains(&node.node.0));
        self.shared.events.put(Event::Holding(holding));
    }

    /// What is to be done, with the nodes.
    async fn next(&mut self) -> Option<String> {
        let names = |nodes: &[HeldNode]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(" ");
        Some(match self.resizing.breakpoint().await.expect("it goes on")? {
            Change::Added(Added { nodes, .. }) => format!("added {}", names(&nodes)),
            Change::Leave(leave) => format!("leave {}", leave.names().join(" ")),
            Change::Lost(nodes) => format!("lost {}", names(&nodes)),
        })
    }
}

#[tokio::test]
async fn nodes_that_come_together_are_told_together() {
    let mut breakpoints = Breakpoints::of_nodes(1);
    for coming in [vec![2, 3, 4], vec![3, 4], vec![4]] {
        breakpoints.holds(2, 4, &coming);
        assert_eq!(breakpoints.next().await, None, "{coming:?} are not ready");
    }
    breakpoints.holds(2, 4, &[]);
    assert_eq!(breakpoints.next().await, Some("added a2 a3 a4".to_owned()));
    assert_eq!(breakpoints.next().await, None);
}

/// The last node does not come up, so the others go again: the application has not known them.
#[tokio::test]
async fn of_a_growth_that_fails_an_application_hears_nothing() {
    let mut breakpoints = Breakpoints::of_nodes(1);
    breakpoints.holds(2, 4, &[4]);
    assert_eq!(breakpoints.next().await, None);
    let lost = holding(2, 4).nodes.split_off(3);
    breakpoints.shared.events.put(Event::NodesLost(lost));
    breakpoints.holds(3, 1, &[]);
    assert_eq!(breakpoints.next().await, None);
    breakpoints.holds(4, 2, &[]);
    assert_eq!(breakpoints.next().await, Some("added a2".to_owned()));
    // What it knows is lost to it, also while others come.
    breakpoints.shared.events.put(Event::NodesLost(holding(4, 2).nodes.split_off(1)));
    breakpoints.holds(5, 1, &[]);
    assert_eq!(breakpoints.next().await, Some("lost a2".to_owned()));
    assert_eq!(breakpoints.next().await, None);
}

/// The holding without the node is replaced by that with it before the application looks.
#[tokio::test]
async fn a_node_that_goes_and_comes_back_between_two_breakpoints_is_told_of() {
    let mut breakpoints = Breakpoints::of_nodes(3);
    let last = || holding(1, 3).nodes.split_off(2);
    let template = |direction| {
        let parties = Parties { job: JOB, run: RUN, initiator: Side::Rms };
        Template::of_one(parties, direction, nodes(3, 1)).expect("a template")
    };
    let agreed = |number| {
        let negotiation = NegotiationId { initiator: Side::Rms, number };
        let (direction, leaving) = (Direction::Shrink, last());
        Event::Accepted(Agreed { negotiation, direction, template: template(direction), leaving, until: None })
    };
    let ready = |number, direction, n_nodes| {
        let negotiation = NegotiationId { initiator: Side::Rms, number };
        let holding = holding(number, n_nodes);
        Event::Ready(Ready { negotiation, direction, template: template(direction), nodes: last(), holding })
    };
    breakpoints.shared.events.put(agreed(1));
    assert_eq!(breakpoints.next().await, Some("leave a3".to_owned()));
    breakpoints.holds(2, 2, &[]);
    breakpoints.shared.events.put(ready(1, Direction::Shrink, 2));
    breakpoints.holds(3, 3, &[]);
    breakpoints.shared.events.put(ready(2, Direction::Grow, 3));
    assert_eq!(breakpoints.next().await, Some("added a3".to_owned()));
    assert_eq!(breakpoints.next().await, None);
    breakpoints.shared.events.put(agreed(3));
    assert_eq!(breakpoints.next().await, Some("leave a3".to_owned()));
}

#[test]
fn a_request_that_waits_longer_than_an_hour_waits_an_hour() {
    for span in [Span::from_hours(1), Span::from_secs(u32::MAX.into())] {
        let mut table = Table::of_nodes(2);
        let id = table.requests(Want::grow(2).within(span));
        let open = table.negotiations.dialogues().iter().find(|dialogue| dialogue.id() == id).expect("it is open");
        assert_eq!(open.lapses(), Some(at(3600)), "{span}");
    }
}

#[test]
fn a_request_whose_deadline_is_over_is_refused_at_once() {
    let mut table = Table::of_nodes(2);
    let late = table.negotiations.request(at(9), Want::grow(2).by(at(5))).expect_err("it is over");
    assert_eq!(late.to_string(), "the deadline is over: it was 4s ago");
    table.requests(Want::grow(2).by(at(5)));
}
