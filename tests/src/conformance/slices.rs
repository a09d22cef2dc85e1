//! Where slices of nodes fit, among blocks of others: cores, memory and devices of the same nodes. RULES L.

use std::collections::BTreeSet;

use rms_core::plan::timeline::{Alike, Timeline, first_start};
use rms_core::state::Piece;
use rms_model::{Devices, Mebibytes, Slice, Span, Time};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    now: i64,
    nodes: Vec<Node>,
    busy: Vec<Busy>,
    request: Request,
    start: Option<i64>,
    nodes_that_fit: Option<Vec<usize>>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(flatten)]
    amounts: Amounts,
    features: BTreeSet<String>,
}

#[derive(Clone, Copy, Deserialize)]
struct Amounts {
    cores: u32,
    memory: u64,
    devices: u32,
}

#[derive(Deserialize)]
struct Busy {
    #[serde(flatten)]
    amounts: Amounts,
    node: usize,
    from: i64,
    until: i64,
}

#[derive(Deserialize)]
struct Request {
    nodes: usize,
    #[serde(flatten)]
    amounts: Amounts,
    features: BTreeSet<String>,
    wall: i64,
    exclusive: bool,
}

impl Amounts {
    fn slice(self) -> Slice {
        let devices: Devices = [("gpu".to_owned(), self.devices)].into_iter().collect();
        Slice { cores: self.cores, memory: Mebibytes(self.memory), devices }
    }

    fn is_within(self, other: Amounts) -> bool {
        self.cores <= other.cores && self.memory <= other.memory && self.devices <= other.devices
    }
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let Case { now, nodes, busy, request, start, nodes_that_fit } =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    // What was before does not matter, and times are not negative.
    let at = |secs: i64| Time::from_secs(secs - now);
    let mut timelines: Vec<Timeline> =
        nodes.iter().map(|node| Timeline::of_free(&node.amounts.slice(), at(now))).collect();
    for Busy { amounts, node, from, until } in busy {
        let piece = Piece { slice: amounts.slice(), is_whole: false };
        timelines[node].take(at(from), at(until), &piece, 1);
    }
    let is_eligible =
        |node: &Node| request.features.is_subset(&node.features) && request.amounts.is_within(node.amounts);
    let eligible: Vec<usize> = (0..nodes.len()).filter(|idx| is_eligible(&nodes[*idx])).collect();
    let piece = Piece { slice: request.amounts.slice(), is_whole: request.exclusive };
    let wall = Span::from_secs(request.wall);
    let next_hole = |node: usize, times: (Time, Time)| timelines[node].first_hole_by(&piece, wall, times);
    let alike = eligible.iter().map(|node| Alike { group: *node, n_nodes: 1, not_before: at(now) });
    let found = first_start(alike, request.nodes, (at(now), Time::NEVER), next_hole);
    let found_start = found.as_ref().map(|found| found.at.as_secs() + now);
    if found_start != start {
        return Err(format!("start {found_start:?}, expected {start:?}"));
    }
    let found_nodes = found.map(|found| found.groups);
    match nodes_that_fit.filter(|nodes| !nodes.is_empty()) {
        Some(expected) if found_nodes.as_ref() != Some(&expected) => {
            Err(format!("nodes {found_nodes:?}, expected {expected:?}"))
        }
        Some(_) | None => Ok(()),
    }
}
