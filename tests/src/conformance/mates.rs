//! The arithmetic of 004: penalties, runtime models, the choice of mates, CPUs of a shared node. RULES P.

use rms_core::plan::slowdown::{
    Fraction, Mate, Slot, Wanted, increase, penalty, select, stretched_ideal, stretched_worst,
};
use rms_core::share::{Sharer, distribute};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(tag = "kind", content = "input", rename_all = "lowercase")]
enum Input {
    Penalty { wait_time: u64, increase: u64, req_time: u64 },
    Increase { req_cpus: u32, slots: Vec<SlotText> },
    Select { mates: Vec<MateText>, weight: u32, max_slowdown: Option<(i64, i64)>, m: usize, nm: Option<usize> },
    Distribute { sockets: u32, cores_per_socket: u32, sharing_factor: (i64, i64), jobs: Vec<SharerText> },
}

#[derive(Deserialize)]
struct SlotText {
    time: u64,
    cpus: Vec<u32>,
}

#[derive(Deserialize)]
struct MateText {
    id: u64,
    penalty: (i64, i64),
    weight: u32,
}

#[derive(Deserialize)]
struct SharerText {
    id: u64,
    ranks: u32,
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let whole: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let expected = whole.get("output").ok_or("missing field `output`")?;
    let input = json!({"kind": whole["kind"], "input": whole["input"]});
    let actual = answer(serde_json::from_value(input).map_err(|error| error.to_string())?)?;
    match expected {
        Value::Object(fields) => {
            for (name, value) in &actual {
                let is_same = match (*name, fields.get(*name)) {
                    // Their order is not determined.
                    ("optimal_sets", Some(expected)) => sorted(value) == sorted(expected),
                    (_, expected) => expected == Some(value),
                };
                if !is_same {
                    return Err(format!("{name}: {value}, expected {}", fields.get(*name).unwrap_or(&Value::Null)));
                }
            }
        }
        Value::Null | Value::Array(_) if actual.len() == 1 && actual[0].1 == *expected => {}
        other => return Err(format!("{actual:?}, expected {other}")),
    }
    Ok(())
}

fn sorted(list: &Value) -> Vec<String> {
    let mut items: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
    items.sort_unstable();
    items
}

/// Named values, or the only one.
fn answer(input: Input) -> Result<Vec<(&'static str, Value)>, String> {
    match input {
        Input::Penalty { wait_time, increase, req_time } => {
            let penalty = penalty(wait_time, increase, req_time).ok_or("no requested time")?;
            Ok(vec![("penalty", pair(penalty))])
        }
        Input::Increase { req_cpus, slots } => {
            let slots: Vec<Slot> = slots.into_iter().map(|SlotText { time, cpus }| Slot { secs: time, cpus }).collect();
            let ideal = stretched_ideal(req_cpus, &slots).ok_or("no CPU in some slot")?;
            let worst = stretched_worst(req_cpus, &slots).ok_or("no CPU on some node")?;
            let net = |stretched| increase(stretched, &slots).ok_or("out of range");
            Ok(vec![
                ("ideal", pair(ideal)),
                ("worst", pair(worst)),
                ("net_ideal", pair(net(ideal)?)),
                ("net_worst", pair(net(worst)?)),
            ])
        }
        Input::Select { mates, weight, max_slowdown, m, nm } => {
            let mate = |MateText { id, penalty, weight }| Ok(Mate { id, penalty: fraction(penalty)?, weight });
            let mates = mates.into_iter().map(mate).collect::<Result<Vec<_>, String>>()?;
            let max_slowdown = max_slowdown.map(fraction).transpose()?;
            let selection = select(&mates, Wanted { weight, max_slowdown, most_mates: m, most_candidates: nm });
            let first = selection.as_ref().and_then(|selection| selection.first());
            Ok(vec![
                ("performance_impact", selection.as_ref().map_or(Value::Null, |best| pair(best.impact))),
                ("selected", json!(first)),
                ("optimal_sets", selection.as_ref().map_or(json!([]), |best| json!(best.sets))),
            ])
        }
        Input::Distribute { sockets, cores_per_socket, sharing_factor, jobs } => {
            let sharers: Vec<Sharer> =
                jobs.into_iter().map(|SharerText { id, ranks }| Sharer { id, n_ranks: ranks }).collect();
            let masks = distribute(sockets * cores_per_socket, fraction(sharing_factor)?, &sharers);
            let job =
                |masks: &rms_core::share::Masks| json!({"id": masks.id, "cpus": masks.cpus, "ranks": masks.ranks});
            let jobs = masks.map_or(Value::Null, |masks| masks.iter().map(job).collect());
            Ok(vec![("jobs", jobs)])
        }
    }
}

fn fraction((numerator, denominator): (i64, i64)) -> Result<Fraction, String> {
    Fraction::new(numerator.into(), denominator.into()).ok_or(format!("{numerator}/{denominator} is no fraction"))
}

fn pair(fraction: Fraction) -> Value {
    let (numerator, denominator) = fraction.parts();
    json!([numerator as i64, denominator as i64])
}
