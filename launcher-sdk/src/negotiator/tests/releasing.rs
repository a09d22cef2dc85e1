//! Nodes that are released after an agreed shrink: which ones, and until when.

use super::*;

#[test]
fn nodes_to_leave_are_chosen_by_name_and_wrong_ones_are_refused() {
    let mut table = Table::answering(4, Limits::between(1, 4));
    let id = table.rms_offers(Direction::Shrink, nodes(4, 2));
    let release = |names: &[&str]| Act::Release(Some(names.iter().map(|name| (*name).to_owned()).collect()));
    for wrong in [release(&["a2"]), release(&["a2", "a3", "a4"]), release(&["a2", "b9"])] {
        table.negotiations.act(at(0), id, wrong).expect_err("not what was agreed");
    }
    let first = table.negotiations.act(at(0), id, release(&["a1", "a3"])).expect_err("the job's script runs there");
    assert!(first.to_string().contains("a1 is the first node of the job, which stays"), "{first}");
    table.does(id, release(&["a3", "a2"]));
    let nodes = table.rms.get(id).and_then(|dialogue| dialogue.nodes()).cloned();
    assert_eq!(nodes, Some(BTreeSet::from([NodeId(2), NodeId(3)])));
}

#[test]
fn nodes_of_another_cluster_than_was_agreed_are_not_released() {
    let mut table = Table::answering(3, Limits::between(1, 4));
    let mut on_two = holding(2, 4);
    (on_two.nodes[3].name, on_two.nodes[3].cluster) = ("b1".to_owned(), B);
    let outcome = table.negotiations.set_holding(at(0), on_two);
    table.hear_application(outcome);
    let id = table.rms_offers(Direction::Shrink, nodes(3, 1));
    let release = |name: &str| Act::Release(Some(vec![name.to_owned()]));
    let refused = table.negotiations.act(at(0), id, release("b1")).expect_err("it stays");
    assert!(matches!(&refused, NegotiatorError::OtherCluster { node, .. } if node == "b1"), "{refused}");
    assert_eq!(table.phase(id), Phase::Accepted, "nothing has changed");
    table.does(id, release("a2"));
}

#[test]
fn how_long_nodes_may_be_kept_is_what_the_server_says_with_its_acceptance() {
    let mut table = Table::of_nodes(4);
    let id = table.rms_offers(Direction::Shrink, nodes(4, 1));
    let outcome = table.negotiations.act(at(0), id, Act::Accept).expect("its turn");
    let accepted = outcome.messages.iter().flat_map(|message| table.rms.receive(at(0), message).messages);
    let accepted: Vec<negotiation::Message> = accepted.collect();
    for message in accepted {
        let message = negotiation::Message { release_within: Some(Span::from_secs(8)), ..message };
        table.events.extend(table.negotiations.receive(at(0), &message).events);
    }
    let agreed = table.events.iter().find_map(|event| match event {
        Event::Accepted(agreed) => agreed.until,
        _ => None,
    });
    assert_eq!(agreed, Some(at(8)));
}

/// A node that it was told to leave is lost: it releases those that it was told, and no others in its place.
#[test]
fn nodes_that_are_lost_on_the_way_are_released_with_the_rest() {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    for released in [None, names(&["a4", "a5"]), names(&["a4"])] {
        let mut table = Table::answering(5, Limits::between(1, 5));
        let id = table.rms_offers(Direction::Shrink, nodes(5, 2));
        table.holds(2, 4);
        table.does(id, Act::Release(released));
        let nodes = table.rms.get(id).and_then(|dialogue| dialogue.nodes()).cloned();
        assert_eq!(nodes, Some(BTreeSet::from([NodeId(4), NodeId(5)])));
    }
}

/// The server says that the shrink is done, since the node is lost: to release it now is no mistake, others it is.
#[test]
fn who_releases_a_lost_node_late_does_nothing() {
    let mut table = Table::answering(3, Limits::between(1, 3));
    let id = table.rms_offers(Direction::Shrink, nodes(3, 1));
    table.holds(2, 2);
    table.rms_does(id, Action::Gone(BTreeSet::from([NodeId(3)])));
    assert_eq!(table.phase(id), Phase::Applied);
    assert!(matches!(table.take_events().last(), Some(Event::Ready(ready)) if ready.nodes[0].name == "a3"));
    table.does(id, Act::Release(None));
    table.does(id, Act::Release(Some(vec!["a3".to_owned()])));
    let other = Act::Release(Some(vec!["a2".to_owned()]));
    table.negotiations.act(at(0), id, other).expect_err("it keeps this one");
}

/// A node comes between the agreement and the release: it was not named, and stays.
#[test]
fn a_node_that_came_later_is_not_released_by_default() {
    let mut table = Table::answering(3, Limits::between(1, 9));
    let id = table.rms_offers(Direction::Shrink, nodes(3, 1));
    table.holds(2, 4);
    table.does(id, Act::Release(None));
    let nodes = table.rms.get(id).and_then(|dialogue| dialogue.nodes()).cloned();
    assert_eq!(nodes, Some(BTreeSet::from([NodeId(3)])));
}

#[test]
fn who_leaves_other_nodes_than_were_named_is_told_the_names() {
    let mut table = Table::answering(4, Limits::between(1, 4));
    let named = Item { nodes: BTreeSet::from([NodeId(3), NodeId(4)]), ..nodes(4, 2) };
    let id = table.rms_offers(Direction::Shrink, named);
    let others = Act::Release(Some(vec!["a2".to_owned(), "a3".to_owned()]));
    let error = table.negotiations.act(at(0), id, others).expect_err("a4 was named");
    assert!(error.to_string().contains("name 2 of the job's nodes, with a3 and a4 among them"), "{error}");
}
