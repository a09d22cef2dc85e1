//! The stages of an evolving application, for people and for programs.

use rms_api::answer::{JobLine, StageLine, Stages};
use rms_model::{Evolution, Span, Time, hostlist};
use serde_json::{Value, json};

use crate::json;
use crate::stamp;

/// Returns the text for the list of jobs: `stage 2/3, then 8 nodes at 14:05`.
pub fn brief(stages: &Stages, now: Time) -> String {
    let place = format!("stage {}/{}{}", stages.number, stages.n_stages, if stages.open { "+" } else { "" });
    if let Some((surplus, _)) = surplus(stages) {
        return format!("{place}, frees {}", counted(surplus));
    }
    match (stages.legs.get(1), stages.late_by) {
        (Some(next), Some(late_by)) => {
            format!("{place}, {} late by {}", counted(next.nodes), stamp::brief(late_by))
        }
        (Some(StageLine { nodes, start: Some(start), .. }), None) => {
            format!("{place}, {} at {}", counted(*nodes), stamp::short(*start, now))
        }
        (Some(StageLine { nodes, start: None, .. }), None) => format!("{place}, then {}", counted(*nodes)),
        (None, _) => place,
    }
}

/// Returns how many nodes it is to free, and since when, if it has not named them yet.
fn surplus(stages: &Stages) -> Option<(u32, Span)> {
    let [current, next, ..] = stages.legs.as_slice() else { return None };
    Some((current.nodes.checked_sub(next.nodes).filter(|surplus| *surplus > 0)?, stages.late_by?))
}

/// What it takes that nodes are freed which were not named in time.
const FREES: &str = "once 'rms free' names them, or when 'release_grace' is over";

fn counted(n_nodes: u32) -> String {
    if n_nodes == 1 { "1 node".to_owned() } else { format!("{n_nodes} nodes") }
}

/// Returns when a job ends. A larger stage that is late moves those after it: the job ends at this time at the earliest.
pub fn end(line: &JobLine) -> Option<Time> {
    Some(end_of(line.stages.as_ref(), line.until?))
}

fn end_of(stages: Option<&Stages>, planned: Time) -> Time {
    let stages = stages.filter(|stages| stages.n_stages > 0);
    let late_by = stages.and_then(|stages| match stages.legs.as_slice() {
        [current, next, ..] if next.nodes > current.nodes => stages.late_by,
        _ => None,
    });
    planned + late_by.unwrap_or_default()
}

/// Returns the lines for `rms show`: each coming stage with its time.
pub fn lines(stages: &Stages, now: Time) -> Vec<(&'static str, String)> {
    let leg = |leg: &StageLine| {
        let start = leg.start.map_or_else(String::new, |start| format!(" from {}", stamp::short(start, now)));
        format!("{} x {}{start}", leg.nodes, stamp::brief(leg.span))
    };
    let open = if stages.open { ", may be extended" } else { "" };
    let legs: Vec<String> = stages.legs.iter().map(leg).collect();
    let mut lines = match stages.n_stages {
        0 => Vec::new(),
        n_stages => {
            vec![("stage", format!("{} of {n_stages}{open}", stages.number)), ("stages", legs.join(", "))]
        }
    };
    if let Some((surplus, late_by)) = surplus(stages) {
        lines.push(("frees", format!("{}, due {} ago: {FREES}", counted(surplus), stamp::brief(late_by))));
    } else if let (Some(late_by), Some(next)) = (stages.late_by, stages.legs.get(1)) {
        let late = format!("the {} of its next stage, by {}", counted(next.nodes), stamp::brief(late_by));
        lines.push(("waits for", late));
    }
    if !stages.chosen.is_empty() {
        lines.push(("frees next", hostlist::fold(&stages.chosen)));
    }
    if !stages.leaving.is_empty() {
        lines.push(("leaves", hostlist::fold(&stages.leaving)));
    }
    if stages.n_violations > 0 {
        let text = format!("{}: processes had to be killed on nodes that it had freed", stages.n_violations);
        lines.push(("violations", text));
    }
    lines
}

/// Returns a sentence for `rms explain`; empty for a job that does not evolve.
pub fn sentence(line: &JobLine, now: Time) -> String {
    let Some(stages) = line.stages.as_ref().filter(|stages| stages.n_stages > 0) else { return String::new() };
    if let Some((surplus, late_by)) = surplus(stages) {
        return format!(" It was to free {} {} ago, and does {FREES}.", counted(surplus), stamp::brief(late_by));
    }
    match (stages.legs.get(1), stages.late_by) {
        (Some(next), Some(late_by)) => format!(
            " Its next stage needs {} and is late by {}: it waits for nodes that others still hold, or that are \
             drained, down, lost or too small for it now ('rms nodes' shows which), as long as its expand limit allows.",
            counted(next.nodes),
            stamp::brief(late_by)
        ),
        (Some(StageLine { nodes, start: Some(start), .. }), None) => {
            format!(
                " It is in stage {} of {}; from {} it has {}.",
                stages.number,
                stages.n_stages,
                stamp::short(*start, now),
                counted(*nodes)
            )
        }
        (Some(_), None) | (None, _) => format!(" It is in stage {} of {}.", stages.number, stages.n_stages),
    }
}

pub fn to_json(stages: Option<&Stages>) -> Value {
    let Some(stages) = stages.filter(|stages| stages.n_stages > 0) else { return Value::Null };
    let leg =
        |leg: &StageLine| json!({"nodes": leg.nodes, "time_ms": json::span(leg.span), "start": json::time(leg.start)});
    json!({
        "number": stages.number,
        "count": stages.n_stages,
        "open": stages.open,
        "stages": stages.legs.iter().map(leg).collect::<Vec<_>>(),
        "late_by_ms": stages.late_by.map(json::span),
        "generation": stages.generation,
        "chosen": stages.chosen,
        "leaving": stages.leaving,
        "violations": stages.n_violations,
    })
}

/// Returns what an application that has ended really held, or null.
pub fn evolution(evolution: Option<&Evolution>) -> Value {
    let Some(evolution) = evolution else { return Value::Null };
    let stage = |stage: &rms_model::Stage| json!({"nodes": stage.nodes, "time_ms": json::span(stage.span)});
    Value::Array(evolution.stages().iter().map(stage).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_stage_that_is_late_moves_the_end() {
        let start = Some(Time::from_secs(10));
        let leg = |nodes| StageLine { nodes, span: Span::from_secs(5), start };
        let mut late = Stages {
            number: 1,
            n_stages: 2,
            legs: Vec::new(),
            late_by: Some(Span::from_secs(2)),
            open: false,
            generation: 1,
            chosen: Vec::new(),
            leaving: Vec::new(),
            n_violations: 0,
        };
        let mut ends = |legs: [u32; 2]| {
            late.legs = legs.map(leg).to_vec();
            end_of(Some(&late), Time::from_secs(15))
        };
        assert_eq!(ends([1, 3]), Time::from_secs(17));
        assert_eq!(ends([3, 1]), Time::from_secs(15), "the time to choose counts for the smaller stage");
        assert_eq!(end_of(None, Time::from_secs(15)), Time::from_secs(15));
        // Whoever is to free nodes does not wait for any.
        assert_eq!(brief(&late, Time::from_secs(12)), "stage 1/2, frees 2 nodes");
        let [_, _, (what, text)] = &lines(&late, Time::from_secs(12))[..] else { panic!("{late:?}") };
        assert_eq!((*what, text.starts_with("2 nodes, due 2s ago: once 'rms free'")), ("frees", true), "{text}");
    }
}
