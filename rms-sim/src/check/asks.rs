//! A request for an application gets what was requested, or as much of it as the requester accepts, and never costs
//! more.

use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::JobId;

use super::{Rule, Violation};

/// Checks an outcome; `cluster_of` returns the cluster of a node.
pub(crate) fn answers_the_ask<'a>(
    job: JobId,
    ask: &Ask,
    outcome: &AskOutcome,
    cluster_of: impl Fn(&str) -> Option<&'a str>,
) -> Result<(), Violation> {
    let AskOutcome::Ready { negotiation, quantity, nodes, .. } = outcome else { return Ok(()) };
    let wrong = |what: String| Err(Rule::Sizes.broken(format!("job {job}, {negotiation}: {what}: {ask:?}")));
    if *quantity < ask.least || *quantity > ask.quantity {
        return wrong(format!("{quantity} came of it"));
    }
    let n_named = match ask.what {
        Asked::Nodes { .. } => *quantity,
        Asked::Time | Asked::Cores { .. } | Asked::Memory { .. } => 0,
        Asked::Devices { .. } | Asked::Licences { .. } => 0,
    };
    if nodes.len() as u64 != n_named {
        return wrong(format!("{nodes:?} are not {quantity}"));
    }
    if let Asked::Nodes { cluster: Some(asked) } = &ask.what
        && let Some(node) = nodes.iter().find(|node| cluster_of(node).is_some_and(|cluster| cluster != asked))
    {
        return wrong(format!("{node} is of another cluster"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use negotiation::{Direction, NegotiationId, Price, Side};
    use rms_model::{Sizes, Span};

    use super::*;

    fn four() -> Ask {
        Ask {
            direction: Direction::Grow,
            what: Asked::Nodes { cluster: None },
            quantity: 4,
            least: 2,
            sizes: Sizes::Any,
            price: Price(0),
            duration: None,
            nodes: Vec::new(),
            wait: Span::ZERO,
        }
    }

    #[test]
    fn less_than_would_do_and_more_than_was_asked_is_seen() {
        let ask = four();
        let check = |quantity: u64, n_nodes: usize| {
            let negotiation = NegotiationId { initiator: Side::Application, number: 1 };
            let nodes = vec!["a1".to_owned(); n_nodes];
            let outcome = AskOutcome::Ready { negotiation, quantity, nodes, generation: 2, n_rounds: 1 };
            answers_the_ask(JobId(1), &ask, &outcome, |_| Some("a")).is_ok()
        };
        assert!(check(2, 2) && check(4, 4));
        assert!(!check(1, 1) && !check(5, 5) && !check(3, 2));
    }

    #[test]
    fn nodes_of_another_cluster_than_was_asked_are_seen() {
        let of = |cluster: &str| {
            let ask = Ask { what: Asked::Nodes { cluster: Some(cluster.to_owned()) }, ..four() };
            let negotiation = NegotiationId { initiator: Side::Application, number: 1 };
            let nodes = vec!["b1".to_owned(), "b2".to_owned()];
            let outcome = AskOutcome::Ready { negotiation, quantity: 2, nodes, generation: 2, n_rounds: 1 };
            answers_the_ask(JobId(1), &ask, &outcome, |_| Some("b")).is_ok()
        };
        assert!(of("b") && !of("a"));
    }
}
