//! Turns an event into the numbers, names and texts of the header.

use launcher_sdk::negotiator::{
    Direction, Ending, Event, HeldNode, Item, NegotiationId, Phase, Side, StageEnds, Template, Warning,
};
use rms_model::{Span, Time};

use crate::kind;
use crate::layout as c;
use crate::number;

/// A [`c::Event`] whose texts have no place yet.
#[derive(Debug)]
pub struct Telling {
    pub event: c::Event,
    pub nodes: Vec<String>,
    pub text: String,
}

/// Converts an event; `now` is by the clock of its deadlines.
pub fn telling(event: &Event, now: Time) -> Telling {
    match event {
        Event::Offered(offer) | Event::Countered(offer) => {
            let mut told = about(c::RMS_EVENT_OFFER, offer.negotiation, &offer.template);
            told.round = offer.round.into();
            told.valid_ms = offer.until.since(now).max(Span::ZERO).as_millis();
            let text = format!("{}: {}", offer.negotiation, proposal(offer.direction, &told));
            Telling { event: told, nodes: Vec::new(), text }
        }
        Event::Accepted(agreed) => {
            let told = about(c::RMS_EVENT_AGREED, agreed.negotiation, &agreed.template);
            let text = format!("{}: it is agreed, and not ready yet", agreed.negotiation);
            Telling { event: told, nodes: names(&agreed.leaving), text }
        }
        Event::Ready(ready) => {
            let mut told = about(c::RMS_EVENT_READY, ready.negotiation, &ready.template);
            told.generation = ready.holding.generation;
            let text = format!("{}: it is ready", ready.negotiation);
            Telling { event: told, nodes: names(&ready.nodes), text }
        }
        Event::Ended { negotiation, template, ending, reason, why } => {
            let what = template.as_ref().map_or(0, |template| about(c::RMS_EVENT_OVER, *negotiation, template).what);
            let told = c::Event { what, ending: ending_number(*ending), ..named(c::RMS_EVENT_OVER, *negotiation) };
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            Telling { event: told, nodes: Vec::new(), text: format!("{negotiation}: {reason}{why}") }
        }
        Event::Holding(holding) => {
            let told = c::Event { generation: holding.generation, ..plain(c::RMS_EVENT_NODES) };
            let (coming, ready): (Vec<HeldNode>, Vec<HeldNode>) =
                holding.nodes.iter().cloned().partition(|node| node.is_coming);
            let mut text = format!("generation {} of {}", holding.generation, many(holding.nodes.len() as u64, "node"));
            if !coming.is_empty() {
                text.push_str(&format!(", of which {} {} not ready yet", names(&coming).join(", "), are(coming.len())));
            }
            if let Some(stages) = &holding.stages {
                text.push_str(&format!(", stage {} of {}", stages.number, stages.n_stages));
            }
            Telling { event: told, nodes: names(&ready), text }
        }
        Event::NodesLost(lost) => {
            let told = c::Event { what: c::RMS_SHRINK, quantity: lost.len() as u64, ..plain(c::RMS_EVENT_NODES_LOST) };
            let count = lost.len();
            let text = format!("{} {} lost: {}", many(count as u64, "node"), are(count), names(lost).join(", "));
            Telling { event: told, nodes: names(lost), text }
        }
        Event::StageEnds(StageEnds { next, at, leaving }) => {
            let told = c::Event {
                what: c::RMS_SHRINK,
                quantity: leaving.len() as u64,
                deadline_ms: at.as_millis(),
                ..plain(c::RMS_EVENT_STAGE_ENDS)
            };
            let fewer = many(leaving.len() as u64, "node");
            let text = format!("stage {next} needs {fewer} fewer: {}", names(leaving).join(", "));
            Telling { event: told, nodes: names(leaving), text }
        }
        Event::Warned(Warning::Refused { negotiation, reason }) => {
            let text = format!("{negotiation}: the RMS has not taken what was said: {reason}");
            Telling { event: named(c::RMS_EVENT_WARNING, *negotiation), nodes: Vec::new(), text }
        }
        Event::Warned(Warning::ServerAway { reason }) => {
            worded(c::RMS_EVENT_WARNING, format!("the RMS is away, and is being called again: {reason}"))
        }
        Event::Warned(Warning::ServerBack) => worded(c::RMS_EVENT_WARNING, "the RMS is there again".to_owned()),
        Event::JobEnding(outcome) => worded(c::RMS_EVENT_ENDED, format!("the job has ended: {outcome}")),
        Event::Replaced => worded(c::RMS_EVENT_REPLACED, "another process of the job negotiates for it now".to_owned()),
        Event::Lost(refused) => {
            worded(c::RMS_EVENT_LOST, format!("the RMS does not negotiate with this job any more: {refused}"))
        }
    }
}

/// Returns whether an event is still current: an offer that has expired or was answered is not, and a later event
/// reports what became of it.
pub fn is_current(event: &Event, phase_of: impl Fn(NegotiationId) -> Option<Phase>) -> bool {
    match event {
        Event::Offered(offer) | Event::Countered(offer) => {
            matches!(phase_of(offer.negotiation), Some(Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms)))
        }
        Event::Accepted(_) | Event::Ready(_) | Event::Ended { .. } | Event::Holding(_) | Event::NodesLost(_) => true,
        Event::StageEnds(_) | Event::Warned(_) | Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => true,
    }
}

fn about(kind: i32, id: NegotiationId, template: &Template) -> c::Event {
    let mut told = named(kind, id);
    let mut items = template.items().iter().filter(|item| item.is_live());
    if let Some(item) = items.next() {
        describe(&mut told, template.direction(), item);
        told.n_items = 1 + u32::try_from(items.count()).unwrap_or(u32::MAX - 1);
    }
    told
}

fn describe(told: &mut c::Event, direction: Direction, item: &Item) {
    told.what = kind::kind(&item.resource, direction);
    told.quantity = item.quantity.0;
    told.least = item.terms.least.0;
    told.most = item.terms.most.0;
    told.price = item.terms.price.0;
    told.duration_ms = item.terms.duration.map_or(0, Span::as_millis);
    told.deadline_ms = item.terms.deadline.map_or(0, Time::as_millis);
    told.give_back_by_ms = item.terms.give_back_by.map_or(0, Time::as_millis);
}

fn proposal(direction: Direction, told: &c::Event) -> String {
    let count = told.quantity;
    let amount = match told.what {
        c::RMS_GROW | c::RMS_SHRINK => many(count, "node"),
        c::RMS_EXTEND | c::RMS_SHORTEN => format!("{count} ms"),
        c::RMS_MORE_CORES | c::RMS_FEWER_CORES => format!("{} on each node", many(count, "core")),
        c::RMS_MORE_MEMORY | c::RMS_LESS_MEMORY => format!("{count} MiB on each node"),
        c::RMS_MORE_DEVICES | c::RMS_FEWER_DEVICES => format!("{} on each node", many(count, "device")),
        c::RMS_MORE_LICENCES | c::RMS_FEWER_LICENCES => many(count, "licence"),
        _ => many(count, "unit"),
    };
    match direction {
        Direction::Grow => format!("the RMS offers {amount}"),
        Direction::Shrink => format!("the RMS would take {amount} back"),
    }
}

fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn worded(kind: i32, text: String) -> Telling {
    Telling { event: plain(kind), nodes: Vec::new(), text }
}

fn named(kind: i32, id: NegotiationId) -> c::Event {
    c::Event { id: number::id(id), ..plain(kind) }
}

fn plain(kind: i32) -> c::Event {
    c::Event { kind, ..c::Event::default() }
}

fn names(nodes: &[HeldNode]) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

fn ending_number(ending: Ending) -> i32 {
    match ending {
        Ending::Rejected => c::RMS_REJECTED,
        Ending::Expired => c::RMS_EXPIRED,
        Ending::Withdrawn => c::RMS_WITHDRAWN,
        Ending::Failed => c::RMS_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use launcher_sdk::negotiator::{ItemStatus, Offer, Quantity, Reason, Resource, SetRule, Terms};
    use negotiation::Parties;
    use rms_model::{ClusterId, Devices, JobId, Mebibytes, NodeId, Run};

    use super::*;

    const A1: NegotiationId = NegotiationId { initiator: Side::Application, number: 1 };

    fn template(direction: Direction, resource: Resource) -> Template {
        let quantity = Quantity(60_000);
        let item = Item {
            set: 0,
            resource,
            quantity,
            held: quantity,
            nodes: BTreeSet::new(),
            terms: Terms::exactly(quantity),
            status: ItemStatus::Proposed,
        };
        let parties = Parties { job: JobId(1), run: Run(1), initiator: Side::Application };
        Template::new(parties, direction, vec![SetRule::All], vec![item]).expect("a template")
    }

    #[test]
    fn what_has_come_to_nothing_is_named() {
        let over = |template| {
            let ended =
                Event::Ended { negotiation: A1, template, ending: Ending::Rejected, reason: Reason::Policy, why: None };
            let told = telling(&ended, Time::EPOCH).event;
            (told.kind, told.what, told.ending, told.n_items)
        };
        let time = template(Direction::Grow, Resource::Time);
        assert_eq!(over(Some(time)), (c::RMS_EVENT_OVER, c::RMS_EXTEND, c::RMS_REJECTED, 0));
        let cores = template(Direction::Shrink, Resource::Cores(ClusterId(0)));
        assert_eq!(over(Some(cores)), (c::RMS_EVENT_OVER, c::RMS_FEWER_CORES, c::RMS_REJECTED, 0));
        assert_eq!(over(None), (c::RMS_EVENT_OVER, 0, c::RMS_REJECTED, 0));
        let text = |why: Option<&str>| {
            let (ending, reason, why) = (Ending::Rejected, Reason::Policy, why.map(str::to_owned));
            telling(&Event::Ended { negotiation: A1, template: None, ending, reason, why }, Time::EPOCH).text
        };
        assert_eq!(text(None), "a1: a policy forbids it");
        assert_eq!(text(Some("nodes: 8 fewer proposed")), "a1: a policy forbids it: nodes: 8 fewer proposed");
    }

    #[test]
    fn one_node_is_a_node() {
        let node = |name: &str| HeldNode {
            node: NodeId(1),
            name: name.to_owned(),
            cluster: ClusterId(0),
            cluster_name: "a".to_owned(),
            address: String::new(),
            cpus: 4,
            cores: 0,
            memory: Mebibytes::default(),
            devices: Devices::default(),
            is_departing: false,
            is_coming: false,
        };
        let lost = |names: &[&str]| {
            let nodes = names.iter().map(|name| node(name)).collect();
            telling(&Event::NodesLost(nodes), Time::EPOCH).text
        };
        assert_eq!(lost(&["a2"]), "1 node is lost: a2");
        assert_eq!(lost(&["a2", "a3"]), "2 nodes are lost: a2, a3");
        let offered = |what, quantity| proposal(Direction::Grow, &c::Event { what, quantity, ..c::Event::default() });
        assert_eq!(offered(c::RMS_GROW, 1), "the RMS offers 1 node");
        assert_eq!(offered(c::RMS_GROW, 2), "the RMS offers 2 nodes");
        assert_eq!(offered(c::RMS_MORE_CORES, 1), "the RMS offers 1 core on each node");
        assert_eq!(offered(c::RMS_MORE_MEMORY, 1), "the RMS offers 1 MiB on each node");
        let taken = c::Event { what: c::RMS_FEWER_LICENCES, quantity: 1, ..c::Event::default() };
        assert_eq!(proposal(Direction::Shrink, &taken), "the RMS would take 1 licence back");
    }

    #[test]
    fn an_offer_that_is_no_more_is_not_told() {
        let offered = |until| {
            let template = template(Direction::Grow, Resource::Nodes(ClusterId(0)));
            let direction = Direction::Grow;
            Event::Offered(Offer { negotiation: A1, direction, round: 1, template, mine: None, until })
        };
        let event = offered(Time::from_secs(60));
        assert!(is_current(&event, |_| Some(Phase::Offered(Side::Rms))));
        assert!(is_current(&event, |_| Some(Phase::Countered(Side::Rms))));
        for phase in [Phase::Ended(Ending::Expired), Phase::Pledged, Phase::Countered(Side::Application)] {
            assert!(!is_current(&event, |_| Some(phase)), "{phase}");
        }
        assert!(!is_current(&event, |_| None), "so long over that it is forgotten");
        assert!(is_current(&Event::Replaced, |_| None));
        assert_eq!(telling(&event, Time::from_secs(40)).event.valid_ms, 20_000, "from when it is told");
    }
}
