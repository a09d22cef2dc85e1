//! Negotiations as text and as JSON: who proposes what, on which terms, and what came of it (002).

use std::collections::BTreeMap;

use negotiation::{Direction, Ending, Item, NegotiationId, Phase, Reason, Resource, Side, Template};
use rms_api::negotiate::{NegotiationLine, NegotiationRecord, RoundRecord, Said};
use rms_model::{ClusterId, JobId, Time, hostlist};
use serde_json::{Value, json};

use crate::json;
use crate::names::ClusterNames;
use crate::stamp;
use rms_api::terms::{self, Allowed, last_proposal, price, time};

/// Returns the phase as one word.
pub fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Offered(_) => "offered",
        Phase::Countered(_) => "countered",
        Phase::Pledged => "pledged",
        Phase::Leaving => "leaving",
        Phase::Accepted => "accepted",
        Phase::Committing => "committing",
        Phase::Failing => "failing",
        Phase::Applied => "ready",
        Phase::Ended(Ending::Rejected) => "rejected",
        Phase::Ended(Ending::Expired) => "expired",
        Phase::Ended(Ending::Withdrawn) => "withdrawn",
        Phase::Ended(Ending::Failed) => "failed",
    }
}

/// Returns the stable word of a reason, for programs.
pub fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Declined => "declined",
        Reason::NoResources => "no_resources",
        Reason::Price => "price",
        Reason::Policy => "policy",
        Reason::Lapsed => "lapsed",
        Reason::TooManyRounds => "too_many_rounds",
        Reason::BadProposal => "bad_proposal",
        Reason::Crossed => "crossed",
        Reason::AlreadyOpen => "already_open",
        Reason::Unknown => "unknown",
        Reason::Overdue => "overdue",
        Reason::Lost => "lost",
        Reason::BrokenPromise => "broken_promise",
        Reason::Administrator => "administrator",
        Reason::Stopping => "stopping",
        Reason::Changed => "changed",
        Reason::Recalled => "recalled",
        Reason::KeepsRanks => "keeps_ranks",
    }
}

/// Returns the side as the subject of a sentence.
pub fn side(side: Side) -> &'static str {
    match side {
        Side::Rms => "the server",
        Side::Application => "the application",
    }
}

/// Parses an id as it is shown: `a1` or `r2`.
pub fn parse_id(text: &str) -> Result<NegotiationId, &'static str> {
    let wrong = "write the id of a negotiation, like r1 or a2: 'rms negotiations' lists them";
    let initiator = match text.get(..1) {
        Some("r") => Side::Rms,
        Some("a") => Side::Application,
        Some(_) | None => return Err(wrong),
    };
    let number = text.get(1..).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number: Option<u32> = number.and_then(|digits| digits.parse().ok()).filter(|number| *number > 0);
    number.map(|number| NegotiationId { initiator, number }).ok_or(wrong)
}

pub fn n_rounds(record: &NegotiationRecord) -> u16 {
    last_proposal(record).map_or(0, |(_, round, _)| round)
}

/// Returns the open negotiations by job.
pub fn open_by_job(lines: &[NegotiationLine]) -> BTreeMap<JobId, Vec<&NegotiationLine>> {
    let mut by_job = BTreeMap::<JobId, Vec<&NegotiationLine>>::new();
    for line in lines.iter().filter(|line| !line.phase.is_over()) {
        by_job.entry(line.job).or_default().push(line);
    }
    by_job
}

/// Returns the text for a line about the job: `r3: 4 more nodes, offered`.
pub fn brief(line: &NegotiationLine) -> String {
    let what =
        last_proposal(&line.record).map_or_else(String::new, |(_, _, template)| format!("{}, ", change(template)));
    format!("{}: {what}{}", line.record.id, word_of(line))
}

/// Returns the phase in a word. What one end asks the other for is not offered.
pub fn word_of(line: &NegotiationLine) -> &'static str {
    match line.phase {
        Phase::Offered(by) if by != line.record.direction.giver() => "asked for",
        phase => word(phase),
    }
}

/// Returns the change, as short as possible: `+4`, `-2`, `+30m`, `+2 cores`.
pub fn signed(line: &NegotiationLine) -> Option<String> {
    let (_, _, template) = last_proposal(&line.record)?;
    let sign = match template.direction() {
        Direction::Grow => '+',
        Direction::Shrink => '-',
    };
    let part = |item: &Item| match &item.resource {
        Resource::Nodes(_) => format!("{sign}{}", item.quantity),
        Resource::Cores(_) if item.quantity.0 == 1 => format!("{sign}1 core"),
        Resource::Cores(_) => format!("{sign}{} cores", item.quantity),
        Resource::Memory(_) => format!("{sign}{} MiB", item.quantity),
        Resource::Devices(_, name) | Resource::Licences(_, name) => format!("{sign}{} {name}", item.quantity),
        Resource::Time => format!("{sign}{}", stamp::brief(time(item.quantity.0))),
    };
    Some(template.items().iter().filter(|item| item.is_live()).map(part).collect::<Vec<_>>().join(", "))
}

/// Returns the change without the terms: `4 more nodes`, `2 nodes fewer`, `30m more`.
pub fn change(template: &Template) -> String {
    let direction = template.direction();
    let part = |item: &Item| match (&item.resource, direction) {
        (Resource::Nodes(_), Direction::Grow) => format!("{} more {}", item.quantity, nodes(item.quantity.0)),
        (Resource::Nodes(_), Direction::Shrink) => format!("{} {} fewer", item.quantity, nodes(item.quantity.0)),
        (Resource::Cores(_), direction) => cores(item.quantity.0, direction),
        (Resource::Memory(_), direction) => memory(item.quantity.0, direction),
        (Resource::Devices(_, name), direction) => devices(item.quantity.0, name, direction),
        (Resource::Licences(_, name), direction) => licences(item.quantity.0, name, direction),
        (Resource::Time, Direction::Grow) => format!("{} more", stamp::brief(time(item.quantity.0))),
        (Resource::Time, Direction::Shrink) => format!("{} less", stamp::brief(time(item.quantity.0))),
    };
    template.items().iter().filter(|item| item.is_live()).map(part).collect::<Vec<_>>().join(", ")
}

/// Returns, for example, `2 more cores a node`.
pub fn cores(count: u64, direction: Direction) -> String {
    let word = if count == 1 { "core" } else { "cores" };
    match direction {
        Direction::Grow => format!("{count} more {word} a node"),
        Direction::Shrink => format!("{count} {word} a node fewer"),
    }
}

fn nodes(count: u64) -> &'static str {
    if count == 1 { "node" } else { "nodes" }
}

/// Returns all of a negotiation as text: which side opened it, and what happened when.
pub fn story(line: &NegotiationLine, clusters: &ClusterNames, allowed: &Allowed, now: Time) -> String {
    let record = &line.record;
    let direction = match record.direction {
        Direction::Grow => "grow",
        Direction::Shrink => "shrink",
    };
    let its_own = format!("{}.{}", line.job, line.run);
    let opener = match &record.by {
        None => side(record.id.initiator).to_owned(),
        Some(by) if *by == its_own => "a process of the job".to_owned(),
        Some(by) => format!("{by} for the application"),
    };
    let mut text = format!(
        "job {} ({}), negotiation {}: to {direction}, opened at {} by {opener}\n",
        line.job,
        line.owner,
        record.id,
        stamp::clock(record.opened, now)
    );
    let mut proposer = record.id.initiator;
    let mut standing: Option<&Template> = None;
    for round in &record.rounds {
        let mut event = String::new();
        if let Said::Proposed { by, template, .. } = &round.said {
            let broken = standing.filter(|_| *by != proposer).map(|earlier| terms::against(earlier, *by, template));
            event =
                broken.filter(|broken| !broken.is_empty()).map_or(event, |broken| format!(" ({})", broken.join("; ")));
            (proposer, standing) = (*by, Some(template));
        }
        if let Said::Phase { phase: Phase::Ended(_), .. } = &round.said {
            event = terms::broken(record, &line.owner, allowed).map_or(event, |broken| format!(" ({broken})"));
        }
        event = self::event(round, proposer, &record.nodes, clusters, now) + &event;
        text += &format!("  {}  {event}\n", stamp::short(round.at, now));
    }
    if !line.phase.is_over() {
        let until = line.until.map(|until| format!(", until {}", stamp::clock(until, now))).unwrap_or_default();
        text += &format!("  now       {}{until}\n", word(line.phase));
        if !line.held.is_empty() {
            text += &format!("  held      {}\n", hostlist::fold(&line.held));
        }
    }
    text
}

/// Returns one line of that text; `proposer` made the last proposal before it.
fn event(round: &RoundRecord, proposer: Side, nodes: &[String], clusters: &ClusterNames, now: Time) -> String {
    match &round.said {
        Said::Proposed { by, round, template } => {
            let verb = if *round == 1 { "proposes" } else { "counters with" };
            format!("round {round}: {} {verb} {}", side(*by), proposal(template, clusters, now))
        }
        Said::Phase { phase: Phase::Applied, reason: _ } if !nodes.is_empty() => {
            format!("ready: {}", hostlist::fold(nodes))
        }
        Said::Phase { phase: Phase::Ended(Ending::Rejected), reason } => {
            let other = match proposer {
                Side::Rms => Side::Application,
                Side::Application => Side::Rms,
            };
            match reason {
                None | Some(Reason::Declined) => format!("declined by {}", side(other)),
                Some(reason) => format!("declined by {}: {reason}", side(other)),
            }
        }
        Said::Phase { phase: Phase::Ended(Ending::Failed), reason: Some(reason @ Reason::BrokenPromise) } => {
            format!("failed: {reason}; the application was warned")
        }
        Said::Phase { phase, reason: Some(Reason::BrokenPromise) } if !phase.is_over() => {
            "the application is warned: it has not given back what it promised".to_owned()
        }
        Said::Phase { phase, reason: None } => word(*phase).to_owned(),
        Said::Phase { phase, reason: Some(reason) } => format!("{}: {reason}", word(*phase)),
    }
}

/// Returns, for example, `512 MiB more a node`.
pub fn memory(mebibytes: u64, direction: Direction) -> String {
    match direction {
        Direction::Grow => format!("{mebibytes} MiB more a node"),
        Direction::Shrink => format!("{mebibytes} MiB a node less"),
    }
}

/// Returns, for example, `2 more gpu:a100 a node`.
pub fn devices(count: u64, name: &str, direction: Direction) -> String {
    match direction {
        Direction::Grow => format!("{count} more {name} a node"),
        Direction::Shrink => format!("{count} {name} a node fewer"),
    }
}

/// Returns, for example, `2 more licences of matlab`.
pub fn licences(count: u64, name: &str, direction: Direction) -> String {
    let word = if count == 1 { "licence" } else { "licences" };
    match direction {
        Direction::Grow => format!("{count} more {word} of {name}"),
        Direction::Shrink => format!("{count} {word} of {name} fewer"),
    }
}

fn proposal(template: &Template, clusters: &ClusterNames, now: Time) -> String {
    let items: Vec<String> =
        template.items().iter().map(|item| self::item(item, template.direction(), clusters, now)).collect();
    items.join("; ")
}

fn item(item: &Item, direction: Direction, clusters: &ClusterNames, now: Time) -> String {
    let sign = match direction {
        Direction::Grow => "+",
        Direction::Shrink => "-",
    };
    let of_nodes = |cluster: ClusterId| match item.nodes.len() {
        0 => format!("each node of {}", clusters.name(cluster)),
        n_named => format!("{n_named} {} of {}", nodes(n_named as u64), clusters.name(cluster)),
    };
    let mut text = match &item.resource {
        Resource::Nodes(cluster) => {
            let on = clusters.name(*cluster);
            format!("{sign}{} {} of {on} (holding {})", item.quantity, nodes(item.quantity.0), item.held)
        }
        Resource::Cores(cluster) => {
            let word = if item.quantity.0 == 1 { "core" } else { "cores" };
            format!("{sign}{} {word} on {} (holding {})", item.quantity, of_nodes(*cluster), item.held)
        }
        Resource::Memory(cluster) => {
            format!("{sign}{} MiB on {} (holding {})", item.quantity, of_nodes(*cluster), item.held)
        }
        Resource::Devices(cluster, name) => {
            format!("{sign}{} {name} on {} (holding {})", item.quantity, of_nodes(*cluster), item.held)
        }
        Resource::Licences(cluster, name) => {
            let of = clusters.name(*cluster);
            let word = if item.quantity.0 == 1 { "licence" } else { "licences" };
            format!("{sign}{} {word} of {name} of {of} (holding {})", item.quantity, item.held)
        }
        Resource::Time => format!("{sign}{} of wall time", stamp::brief(time(item.quantity.0))),
    };
    for term in terms(item, now) {
        text += &format!(", {term}");
    }
    if item.is_live() { text } else { format!("without {text}") }
}

/// Returns the sender's terms other than the quantity, if any.
fn terms(item: &Item, now: Time) -> Vec<String> {
    let terms = &item.terms;
    let mut said = Vec::new();
    let quantity = |quantity: u64| match &item.resource {
        Resource::Nodes(_) | Resource::Cores(_) | Resource::Devices(..) | Resource::Licences(..) => {
            quantity.to_string()
        }
        Resource::Memory(_) => format!("{quantity} MiB"),
        Resource::Time => stamp::brief(time(quantity)),
    };
    if terms.least < item.quantity {
        said.push(format!("at least {}", quantity(terms.least.0)));
    }
    if terms.most > item.quantity {
        said.push(format!("at most {}", quantity(terms.most.0)));
    }
    said.extend(terms::sizes(&item.terms.sizes).map(|sizes| format!("in all {sizes}")));
    if terms.price.0 > 0 {
        said.push(format!("at {} a node and hour", price(terms.price)));
    }
    if let Some(duration) = terms.duration {
        said.push(format!("for {}", stamp::brief(duration)));
    }
    if let Some(deadline) = terms.deadline {
        said.push(format!("ready by {}", stamp::clock(deadline, now)));
    }
    if let Some(give_back_by) = terms.give_back_by {
        said.push(format!("back by {}", stamp::clock(give_back_by, now)));
    }
    if !item.nodes.is_empty() {
        said.push("named nodes".to_owned());
    }
    said
}

pub fn line_json(line: &NegotiationLine, clusters: &ClusterNames, allowed: &Allowed) -> Value {
    let record = &line.record;
    json!({
        "job": json::job_id(line.job),
        "run": line.run.0,
        "user": line.owner,
        "negotiation": record.id.to_string(),
        "direction": direction_word(record.direction),
        "initiator": side_word(record.id.initiator),
        "by": record.by,
        "opened": json::time(Some(record.opened)),
        "state": word(line.phase),
        "over": line.phase.is_over(),
        "until": json::time(line.until),
        "held": line.held,
        "nodes": record.nodes,
        "broken_terms": terms::broken(record, &line.owner, allowed),
        "rounds": record.rounds.iter().map(|round| round_json(round, clusters)).collect::<Vec<_>>(),
    })
}

fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Grow => "grow",
        Direction::Shrink => "shrink",
    }
}

fn side_word(side: Side) -> &'static str {
    match side {
        Side::Rms => "server",
        Side::Application => "application",
    }
}

fn round_json(round: &RoundRecord, clusters: &ClusterNames) -> Value {
    let at = json::time(Some(round.at));
    match &round.said {
        Said::Proposed { by, round, template } => json!({
            "at": at,
            "by": side_word(*by),
            "round": round,
            "items": template.items().iter().map(|item| item_json(item, clusters)).collect::<Vec<_>>(),
        }),
        Said::Phase { phase, reason } => json!({"at": at, "state": word(*phase), "reason": reason.map(reason_word)}),
    }
}

fn item_json(item: &Item, clusters: &ClusterNames) -> Value {
    let (resource, cluster) = match &item.resource {
        Resource::Nodes(cluster) => ("nodes", Some(*cluster)),
        Resource::Cores(cluster) => ("cores", Some(*cluster)),
        Resource::Memory(cluster) => ("memory_mib", Some(*cluster)),
        Resource::Devices(cluster, _) => ("devices", Some(*cluster)),
        Resource::Licences(cluster, _) => ("licences", Some(*cluster)),
        Resource::Time => ("time_ms", None),
    };
    let terms = &item.terms;
    json!({
        "resource": resource,
        "name": item.resource.name(),
        "cluster": cluster.map(|cluster| clusters.name(cluster)),
        "set": item.set,
        "quantity": item.quantity.0,
        "held": item.held.0,
        "refused": !item.is_live(),
        "least": terms.least.0,
        "most": terms.most.0,
        "sizes": json::sizes(&terms.sizes),
        "duration_ms": terms.duration.map(json::span),
        "price_milli": terms.price.0,
        "deadline": json::time(terms.deadline),
        "give_back_by": json::time(terms.give_back_by),
        "priority": terms.priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_they_are_shown() {
        let id = |initiator, number| Ok(NegotiationId { initiator, number });
        assert_eq!(parse_id("r1"), id(Side::Rms, 1));
        assert_eq!(parse_id("a42"), id(Side::Application, 42));
        for text in ["", "r", "r0", "x1", "1", "r-1", "r+1", "é1", "a99999999999"] {
            assert!(parse_id(text).is_err(), "{text}");
        }
    }
}
