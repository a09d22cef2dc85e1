//! The sizes of running applications, both ways: dialogues, asks, and what both become.

mod asks;
mod records;
mod reminder;

use std::collections::BTreeSet;

use negotiation as domain;
use negotiation::{Draft, DraftItem, Parties, Template, draft};
use rms_api::negotiate as core;
use rms_model::{ClusterId, JobId, NodeId, Run, Sizes, Speedup};

use super::{Malformed, span, time};
use crate::answer::ClusterName;
use crate::message::MAX_LINES;
use crate::negotiate as wire;
use crate::refused::Refused;

/// Enumerations that are the same on both sides.
macro_rules! same {
    ($domain:ty, $wire:ty, $($variant:ident),+) => {
        impl From<$domain> for $wire {
            fn from(value: $domain) -> $wire {
                match value {
                    $(<$domain>::$variant => <$wire>::$variant,)+
                }
            }
        }

        impl From<$wire> for $domain {
            fn from(value: $wire) -> $domain {
                match value {
                    $(<$wire>::$variant => <$domain>::$variant,)+
                }
            }
        }
    };
}

same!(domain::Side, wire::Side, Rms, Application);
same!(domain::Direction, wire::Direction, Grow, Shrink);
same!(domain::SetRule, wire::SetRule, All, AnyOf, OneOf);
same!(domain::Ending, wire::Ending, Rejected, Expired, Withdrawn, Failed);
same!(
    domain::Reason,
    wire::EndReason,
    Declined,
    NoResources,
    Price,
    Policy,
    Lapsed,
    TooManyRounds,
    BadProposal,
    Crossed,
    AlreadyOpen,
    Unknown,
    Overdue,
    Lost,
    BrokenPromise,
    Administrator,
    Stopping,
    Changed,
    Recalled,
    KeepsRanks
);
same!(core::Order, wire::Order, Withdraw, Force);

/// More hosts than any message names.
const MAX_NAMED: usize = 1 << 16;

impl From<domain::NegotiationId> for wire::NegotiationId {
    fn from(id: domain::NegotiationId) -> wire::NegotiationId {
        wire::NegotiationId { initiator: id.initiator.into(), number: id.number }
    }
}

impl From<wire::NegotiationId> for domain::NegotiationId {
    fn from(id: wire::NegotiationId) -> domain::NegotiationId {
        domain::NegotiationId { initiator: id.initiator.into(), number: id.number }
    }
}

impl From<&domain::Message> for wire::Message {
    fn from(message: &domain::Message) -> wire::Message {
        wire::Message {
            id: message.id.into(),
            number: message.number,
            seen: message.seen,
            statement: message.statement.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::Message> for domain::Message {
    type Error = Malformed;

    fn try_from(message: wire::Message) -> Result<domain::Message, Malformed> {
        Ok(domain::Message {
            id: message.id.into(),
            number: message.number,
            seen: message.seen,
            statement: message.statement.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&domain::Statement> for wire::Statement {
    fn from(statement: &domain::Statement) -> wire::Statement {
        let ids = |hosts: &BTreeSet<NodeId>| hosts.iter().map(|node| node.0).collect();
        match statement {
            domain::Statement::Propose { round, template, valid_for } => {
                wire::Statement::Propose { round: *round, template: template.into(), valid_for: valid_for.as_millis() }
            }
            domain::Statement::Accept { round } => wire::Statement::Accept { round: *round },
            domain::Statement::Commit { round, hosts } => wire::Statement::Commit { round: *round, hosts: ids(hosts) },
            domain::Statement::Ready { round, hosts } => wire::Statement::Ready { round: *round, hosts: ids(hosts) },
            domain::Statement::End { ending, reason } => {
                wire::Statement::End { ending: (*ending).into(), reason: (*reason).into() }
            }
        }
    }
}

impl TryFrom<wire::Statement> for domain::Statement {
    type Error = Malformed;

    fn try_from(statement: wire::Statement) -> Result<domain::Statement, Malformed> {
        Ok(match statement {
            wire::Statement::Propose { round, template, valid_for } => domain::Statement::Propose {
                round,
                template: template.try_into()?,
                valid_for: span("the validity of a proposal", valid_for)?,
            },
            wire::Statement::Accept { round } => domain::Statement::Accept { round },
            wire::Statement::Commit { round, hosts } => domain::Statement::Commit { round, hosts: nodes(hosts)? },
            wire::Statement::Ready { round, hosts } => domain::Statement::Ready { round, hosts: nodes(hosts)? },
            wire::Statement::End { ending, reason } => {
                domain::Statement::End { ending: ending.into(), reason: reason.into() }
            }
        })
    }
}

fn nodes(hosts: Vec<u32>) -> Result<BTreeSet<NodeId>, Malformed> {
    if hosts.len() > MAX_NAMED {
        return Err(Malformed::TooMany { field: "the hosts of a negotiation", n: hosts.len(), max: MAX_NAMED });
    }
    Ok(hosts.into_iter().map(NodeId).collect())
}

impl From<&Template> for wire::Template {
    fn from(template: &Template) -> wire::Template {
        let draft = Draft::from(template.clone());
        wire::Template {
            job: draft.parties.job.0,
            run: draft.parties.run.0,
            initiator: draft.parties.initiator.into(),
            direction: draft.direction.into(),
            sets: draft.sets.into_iter().map(Into::into).collect(),
            items: draft.items.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::Template> for Template {
    type Error = Malformed;

    fn try_from(template: wire::Template) -> Result<Template, Malformed> {
        let parties =
            Parties { job: JobId(template.job), run: Run(template.run), initiator: template.initiator.into() };
        let draft = Draft {
            parties,
            direction: template.direction.into(),
            sets: template.sets.into_iter().map(Into::into).collect(),
            items: template.items.into_iter().map(Into::into).collect(),
        };
        Template::try_from(draft).map_err(|source| Malformed::Template { source })
    }
}

impl From<DraftItem> for wire::Item {
    fn from(item: DraftItem) -> wire::Item {
        wire::Item {
            set: item.set,
            kind: item.kind,
            cluster: item.cluster,
            quantity: item.quantity,
            held: item.held,
            hosts: item.hosts,
            refused: item.refused,
            least: item.least,
            most: item.most,
            shape: item.shape,
            sizes: item.sizes,
            duration: item.duration,
            price: item.price,
            deadline: item.deadline,
            give_back_by: item.give_back_by,
            priority: item.priority,
        }
    }
}

impl From<wire::Item> for DraftItem {
    fn from(item: wire::Item) -> DraftItem {
        DraftItem {
            set: item.set,
            kind: item.kind,
            cluster: item.cluster,
            quantity: item.quantity,
            held: item.held,
            hosts: item.hosts,
            refused: item.refused,
            least: item.least,
            most: item.most,
            shape: item.shape,
            sizes: item.sizes,
            duration: item.duration,
            price: item.price,
            deadline: item.deadline,
            give_back_by: item.give_back_by,
            priority: item.priority,
        }
    }
}

impl From<&Sizes> for wire::Sizes {
    fn from(sizes: &Sizes) -> wire::Sizes {
        let (shape, sizes) = draft::sizes_to_numbers(sizes);
        wire::Sizes { shape, sizes }
    }
}

impl TryFrom<wire::Sizes> for Sizes {
    type Error = Malformed;

    fn try_from(sizes: wire::Sizes) -> Result<Sizes, Malformed> {
        draft::sizes_of_numbers(sizes.shape, sizes.sizes).map_err(|source| Malformed::Template { source })
    }
}

fn speedup_to_wire(speedup: &Speedup) -> Vec<wire::SpeedupPoint> {
    speedup.0.iter().map(|(hosts, milli)| wire::SpeedupPoint { hosts: *hosts, milli: *milli }).collect()
}

fn speedup_from_wire(points: Vec<wire::SpeedupPoint>) -> Result<Speedup, Malformed> {
    let n = points.len();
    if n > MAX_LINES {
        return Err(Malformed::TooMany { field: "a speed-up", n, max: MAX_LINES });
    }
    let points: Vec<(u32, u32)> = points.into_iter().map(|point| (point.hosts, point.milli)).collect();
    if points.is_sorted_by(|one, next| one.0 < next.0) { Ok(Speedup(points)) } else { Err(Malformed::Speedup) }
}

impl From<&core::Declared> for wire::Declared {
    fn from(declared: &core::Declared) -> wire::Declared {
        wire::Declared {
            least: declared.least,
            most: declared.most,
            sizes: (&declared.sizes).into(),
            speedup: speedup_to_wire(&declared.speedup),
        }
    }
}

impl TryFrom<wire::Declared> for core::Declared {
    type Error = Malformed;

    fn try_from(declared: wire::Declared) -> Result<core::Declared, Malformed> {
        Ok(core::Declared {
            least: declared.least,
            most: declared.most,
            sizes: declared.sizes.try_into()?,
            speedup: speedup_from_wire(declared.speedup)?,
        })
    }
}

impl From<&core::NegotiatorCall> for wire::NegotiatorCall {
    fn from(call: &core::NegotiatorCall) -> wire::NegotiatorCall {
        match call {
            core::NegotiatorCall::Attach(manner) if *manner == core::Manner::default() => wire::NegotiatorCall::Attach,
            core::NegotiatorCall::Attach(manner) => wire::NegotiatorCall::AttachAs(manner.into()),
            core::NegotiatorCall::Declare(declared) => wire::NegotiatorCall::Declare(declared.into()),
            core::NegotiatorCall::Say(message) => wire::NegotiatorCall::Say(Box::new(message.as_ref().into())),
        }
    }
}

impl TryFrom<wire::NegotiatorCall> for core::NegotiatorCall {
    type Error = Malformed;

    fn try_from(call: wire::NegotiatorCall) -> Result<core::NegotiatorCall, Malformed> {
        Ok(match call {
            wire::NegotiatorCall::Attach => core::NegotiatorCall::Attach(core::Manner::default()),
            wire::NegotiatorCall::AttachAs(manner) => core::NegotiatorCall::Attach(manner.into()),
            wire::NegotiatorCall::Declare(declared) => core::NegotiatorCall::Declare(declared.try_into()?),
            wire::NegotiatorCall::Say(message) => core::NegotiatorCall::Say(Box::new((*message).try_into()?)),
        })
    }
}

impl From<&core::Manner> for wire::Manner {
    fn from(manner: &core::Manner) -> wire::Manner {
        let keeps = match &manner.keeps {
            core::Keeps::Nothing => wire::Keeps::Nothing,
            core::Keeps::All => wire::Keeps::All,
            core::Keeps::Hosts(names) => wire::Keeps::Hosts(names.clone()),
        };
        wire::Manner { keeps, survives_loss: manner.survives_loss }
    }
}

impl From<wire::Manner> for core::Manner {
    fn from(manner: wire::Manner) -> core::Manner {
        let keeps = match manner.keeps {
            wire::Keeps::Nothing => core::Keeps::Nothing,
            wire::Keeps::All => core::Keeps::All,
            wire::Keeps::Hosts(names) => core::Keeps::Hosts(names),
        };
        core::Manner { keeps, survives_loss: manner.survives_loss }
    }
}

/// The answer to the call `seq`.
pub fn negotiator_answer(seq: u64, answer: &Result<core::NegotiatorAnswer, Refused>) -> wire::NegotiatorTold {
    let answer = match answer {
        Err(refused) => wire::NegotiatorAnswer::Refused(refused.clone()),
        Ok(core::NegotiatorAnswer::Attached(attached)) => {
            wire::NegotiatorAnswer::Attached(Box::new(attached.as_ref().into()))
        }
        Ok(core::NegotiatorAnswer::Done) => wire::NegotiatorAnswer::Done,
    };
    wire::NegotiatorTold::Answer { seq, answer }
}

/// The answer as the application's end reads it.
///
/// # Errors
/// It cannot be.
pub fn parse_negotiator_answer(
    answer: wire::NegotiatorAnswer,
) -> Result<Result<core::NegotiatorAnswer, Refused>, Malformed> {
    Ok(match answer {
        wire::NegotiatorAnswer::Refused(refused) => Err(refused),
        wire::NegotiatorAnswer::Attached(attached) => {
            Ok(core::NegotiatorAnswer::Attached(Box::new((*attached).try_into()?)))
        }
        wire::NegotiatorAnswer::Done => Ok(core::NegotiatorAnswer::Done),
    })
}

impl From<&core::NegotiatorNotice> for wire::NegotiatorTold {
    fn from(notice: &core::NegotiatorNotice) -> wire::NegotiatorTold {
        match notice {
            core::NegotiatorNotice::Said(message) => wire::NegotiatorTold::Said(Box::new(message.as_ref().into())),
            core::NegotiatorNotice::Refused { negotiation, number, reason } => wire::NegotiatorTold::Refused {
                negotiation: (*negotiation).into(),
                number: *number,
                reason: reason.clone(),
            },
            core::NegotiatorNotice::Holding(holding) => {
                wire::NegotiatorTold::Holding(Box::new(holding.as_ref().into()))
            }
            core::NegotiatorNotice::Ended { outcome } => wire::NegotiatorTold::Ended { outcome: outcome.into() },
            core::NegotiatorNotice::Replaced => wire::NegotiatorTold::Replaced,
            core::NegotiatorNotice::Counted { n_opened } => wire::NegotiatorTold::Counted { n_opened: *n_opened },
            core::NegotiatorNotice::HostsLost { hosts } => {
                wire::NegotiatorTold::HostsLost { hosts: hosts.iter().map(|node| node.0).collect() }
            }
        }
    }
}

impl From<&core::Attached> for wire::Attached {
    fn from(attached: &core::Attached) -> wire::Attached {
        let domain::Rules { max_rounds, longest_valid, apply_within, repeat_first, repeat_most } = attached.rules;
        wire::Attached {
            job: attached.job.0,
            run: attached.run.0,
            rules: wire::Rules {
                max_rounds,
                longest_valid: longest_valid.as_millis(),
                apply_within: apply_within.as_millis(),
                repeat_first: repeat_first.as_millis(),
                repeat_most: repeat_most.as_millis(),
            },
            n_opened: attached.n_opened,
            declared: (&attached.declared).into(),
            holding: (&attached.holding).into(),
            release_within: attached.release_within.as_millis(),
            open: attached.open.iter().map(Into::into).collect(),
            clusters: attached
                .clusters
                .iter()
                .map(|(cluster, name)| ClusterName { cluster: cluster.0, name: name.clone() })
                .collect(),
        }
    }
}

impl TryFrom<wire::Attached> for core::Attached {
    type Error = Malformed;

    fn try_from(attached: wire::Attached) -> Result<core::Attached, Malformed> {
        let rules = attached.rules;
        Ok(core::Attached {
            job: JobId(attached.job),
            run: Run(attached.run),
            rules: domain::Rules {
                max_rounds: rules.max_rounds,
                longest_valid: span("a rule", rules.longest_valid)?,
                apply_within: span("a rule", rules.apply_within)?,
                repeat_first: span("a rule", rules.repeat_first)?,
                repeat_most: span("a rule", rules.repeat_most)?,
            },
            n_opened: attached.n_opened,
            declared: attached.declared.try_into()?,
            holding: attached.holding.into(),
            release_within: span("the time to release", attached.release_within)?,
            open: reminder::open(attached.open)?,
            clusters: attached.clusters.into_iter().map(|known| (ClusterId(known.cluster), known.name)).collect(),
        })
    }
}

impl From<&core::Holding> for wire::Holding {
    fn from(holding: &core::Holding) -> wire::Holding {
        let host = |host: &core::HeldHost| wire::HeldHost {
            node: host.node.0,
            name: host.name.clone(),
            cluster: host.cluster.0,
            cluster_name: host.cluster_name.clone(),
            address: host.address.clone(),
            cpus: host.cpus,
            is_departing: host.is_departing,
        };
        wire::Holding {
            generation: holding.generation,
            hosts: holding.hosts.iter().map(host).collect(),
            until: holding.until.as_millis(),
        }
    }
}

impl From<wire::Holding> for core::Holding {
    fn from(holding: wire::Holding) -> core::Holding {
        let host = |host: wire::HeldHost| core::HeldHost {
            node: NodeId(host.node),
            name: host.name,
            cluster: ClusterId(host.cluster),
            cluster_name: host.cluster_name,
            address: host.address,
            cpus: host.cpus,
            is_departing: host.is_departing,
        };
        core::Holding {
            generation: holding.generation,
            hosts: holding.hosts.into_iter().map(host).collect(),
            until: time(holding.until),
        }
    }
}
impl From<domain::Phase> for wire::Phase {
    fn from(phase: domain::Phase) -> wire::Phase {
        match phase {
            domain::Phase::Idle => wire::Phase::Idle,
            domain::Phase::Offered(by) => wire::Phase::Offered(by.into()),
            domain::Phase::Countered(by) => wire::Phase::Countered(by.into()),
            domain::Phase::Pledged => wire::Phase::Pledged,
            domain::Phase::Leaving => wire::Phase::Leaving,
            domain::Phase::Accepted => wire::Phase::Accepted,
            domain::Phase::Committing => wire::Phase::Committing,
            domain::Phase::Failing => wire::Phase::Failing,
            domain::Phase::Applied => wire::Phase::Applied,
            domain::Phase::Ended(ending) => wire::Phase::Ended(ending.into()),
        }
    }
}

impl From<wire::Phase> for domain::Phase {
    fn from(phase: wire::Phase) -> domain::Phase {
        match phase {
            wire::Phase::Idle => domain::Phase::Idle,
            wire::Phase::Offered(by) => domain::Phase::Offered(by.into()),
            wire::Phase::Countered(by) => domain::Phase::Countered(by.into()),
            wire::Phase::Pledged => domain::Phase::Pledged,
            wire::Phase::Leaving => domain::Phase::Leaving,
            wire::Phase::Accepted => domain::Phase::Accepted,
            wire::Phase::Committing => domain::Phase::Committing,
            wire::Phase::Failing => domain::Phase::Failing,
            wire::Phase::Applied => domain::Phase::Applied,
            wire::Phase::Ended(ending) => domain::Phase::Ended(ending.into()),
        }
    }
}
