//! Messages of a model application that break the rules: foreign ids, replays, nodes that are not its own, more than it
//! holds, messages about another job.

use std::collections::BTreeSet;

use negotiation::{
    Direction, Item, Message, NegotiationId, Parties, Price, Quantity, Reason, Resource, Side, Statement, Template,
    Terms,
};
use rms_model::{ClusterId, JobId, NodeId, Run, Span};

use crate::dice::Dice;

/// Returns a message that must not be believed. `said` are its real messages, `opened` is the number of the last
/// negotiation that it opened.
pub(super) fn lie(dice: &mut Dice, (job, run): (JobId, Run), said: &[Message], opened: u32) -> Message {
    let foreign = NegotiationId { initiator: side(dice), number: dice.number(0, opened + 40) };
    let any = NegotiationId { initiator: side(dice), number: dice.number(0, opened + 1) };
    match (dice.number(0, 6), dice.pick(said).cloned()) {
        (0 | 1, Some(message)) => message,
        (2, Some(message)) => Message { ack_seq: message.ack_seq + 1 + dice.number(0, 3), ..message },
        (3, Some(message)) => {
            let statement = Statement::Commit { round: round(dice), nodes: some_nodes(dice) };
            Message { seq: message.seq + 1, statement: Some(statement), ..message }
        }
        (4, _) => {
            let round = round(dice);
            let statements = [
                Statement::Accept { round },
                Statement::Ready { round, nodes: some_nodes(dice) },
                Statement::End { ending: negotiation::Ending::Failed, reason: Reason::Lost },
            ];
            let statement = dice.pick(&statements).cloned();
            Message::new(foreign, dice.number(0, 5), dice.number(0, 5), statement)
        }
        _ => {
            let statement = proposal(dice, (job, run), any);
            Message::new(any, dice.number(1, 4), 0, Some(statement))
        }
    }
}

/// Returns an invalid opening: for more than there is, of a cluster that does not exist, of another job, or by the
/// server.
fn proposal(dice: &mut Dice, (job, run): (JobId, Run), id: NegotiationId) -> Statement {
    let (job, run) = match dice.number(0, 3) {
        0 => (JobId(job.0 + 1), run),
        1 => (job, Run(run.0 + 1)),
        _ => (job, run),
    };
    let direction = if dice.chance(50) { Direction::Grow } else { Direction::Shrink };
    let quantity = Quantity(u64::from(dice.number(1, 50)));
    let held = Quantity(quantity.0 + u64::from(dice.number(0, 1 << 19)));
    let resources = [
        Resource::Nodes(ClusterId(7)),
        Resource::Nodes(ClusterId(1)),
        Resource::Cores(ClusterId(1)),
        Resource::Memory(ClusterId(1)),
        Resource::Devices(ClusterId(1), "gpu".to_owned()),
        Resource::Licences(ClusterId(7), "matlab".to_owned()),
        Resource::Time,
    ];
    let resource = dice.pick(&resources).expect("there are seven").clone();
    let terms = Terms { price: Price(u64::from(dice.number(0, 1 << 30))), ..Terms::exactly(quantity) };
    let status = negotiation::ItemStatus::Proposed;
    let item = Item { set: 0, resource, quantity, held, nodes: BTreeSet::new(), terms, status };
    let template = Template::of_one(Parties { job, run, initiator: id.initiator }, direction, item);
    match template {
        Ok(template) => Statement::Propose { round: round(dice).max(1), template, valid_for: Span::from_mins(5) },
        // Invalid even as a forged message.
        Err(_) => Statement::Accept { round: 1 },
    }
}

fn some_nodes(dice: &mut Dice) -> BTreeSet<NodeId> {
    let n_nodes = dice.number(0, 3);
    (0..n_nodes).map(|_| NodeId(dice.number(0, 8))).collect()
}

fn side(dice: &mut Dice) -> Side {
    if dice.chance(50) { Side::Rms } else { Side::Application }
}

fn round(dice: &mut Dice) -> u16 {
    dice.number(0, 3) as u16
}
