//! The mapping of placed profiles to node ids: 003, Algorithm 1, RULES N.

use std::collections::BTreeSet;

use rms_model::{NodeId, Time};
use serde::Deserialize;

use super::evolution::{Pairs, evolution};
use super::place::{Scheduled, highest, lowest, map};

#[derive(Deserialize)]
struct Vector {
    nodes: u32,
    apps: Vec<App>,
    times: Vec<i64>,
    alloc: Vec<Vec<Vec<u32>>>,
}

#[derive(Deserialize)]
struct App {
    start: i64,
    ep: Pairs,
    free: String,
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let profiles = vector.apps.iter().map(|app| evolution(&app.ep)).collect::<Result<Vec<_>, _>>()?;
    let scheduled = vector.apps.iter().zip(&profiles);
    let scheduled: Vec<Scheduled<'_>> =
        scheduled.map(|(app, expanded)| Scheduled { start: Time::from_secs(app.start), expanded }).collect();
    let mut choose = |app_idx: usize, held: &BTreeSet<NodeId>, n_nodes: usize| match vector.apps[app_idx].free.as_str()
    {
        "lowest" => lowest(held, n_nodes),
        _ => highest(held, n_nodes),
    };
    let mapping = map((0..vector.nodes).map(NodeId), &scheduled, &mut choose).map_err(|error| error.to_string())?;
    let times: Vec<i64> = mapping.times.iter().map(|time| time.as_secs()).collect();
    if times != vector.times {
        return Err(format!("times: {times:?} instead of {:?}", vector.times));
    }
    let ids = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    let held: Vec<Vec<Vec<u32>>> = mapping.held.iter().map(|apps| apps.iter().map(ids).collect()).collect();
    for (idx, (actual, expected)) in held.iter().zip(&vector.alloc).enumerate() {
        if actual != expected {
            return Err(format!("from {}: {actual:?} instead of {expected:?}", times[idx]));
        }
    }
    if held.len() == vector.alloc.len() { Ok(()) } else { Err(format!("{} intervals", held.len())) }
}
