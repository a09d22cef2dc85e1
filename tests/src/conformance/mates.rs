//! The arithmetic of 004: penalties, runtime models, the choice of mates, CPUs of a shared node. RULES P.

use std::collections::BTreeSet;

use node_agent::supervisor::binding::deal;
use rms_core::plan::slowdown::{Fraction, Mate, Selection, Wanted, penalty, select};
use rms_core::share::lend;
use rms_model::sharing::Ratio;
use rms_model::{CoreShare, Indices, Inventory, RuntimeModel};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(tag = "kind", content = "input", rename_all = "lowercase")]
enum Input {
    Penalty { wait_time: u64, increase: u64, req_time: u64 },
    Increase { req_cpus: u32, slots: Vec<SlotText> },
    Select { mates: Vec<MateText>, weight: u32, max_slowdown: Option<(i64, i64)>, m: usize, nm: Option<usize> },
    Distribute { sockets: u32, cores_per_socket: u32, sharing_factor: (u32, u32), jobs: Vec<SharerText> },
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
            let [wait_time, increase, req_time] = [wait_time, increase, req_time].map(i128::from);
            let penalty = penalty(wait_time + req_time, increase, req_time).ok_or("no requested time")?;
            Ok(vec![("penalty", pair(penalty))])
        }
        Input::Increase { req_cpus, slots } => {
            let total: u64 = slots.iter().map(|slot| slot.time).sum();
            let total = Fraction::new(-i128::from(total), 1).ok_or("no fraction")?;
            let ideal = stretched(RuntimeModel::Ideal, req_cpus, &slots).ok_or("no CPU in some slot")?;
            let worst = stretched(RuntimeModel::Worst, req_cpus, &slots).ok_or("no CPU on some node")?;
            let net = |stretched: Fraction| stretched.plus(total).ok_or("out of range");
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
            let wanted = Wanted { weight, max_slowdown, most_mates: m, most_candidates: nm };
            // Refuses each set that was found, to find all of the same impact.
            let mut optimal: Vec<Selection> = Vec::new();
            let is_known = |optimal: &[Selection], ids: &[u64]| {
                let ids: BTreeSet<u64> = ids.iter().copied().collect();
                optimal.iter().any(|known| known.mates.iter().eq(&ids))
            };
            while let Some(next) = select(&mates, wanted, |ids| !is_known(&optimal, ids))
                && optimal.first().is_none_or(|best| best.impact == next.impact)
            {
                optimal.push(next);
            }
            let sets: Vec<&Vec<u64>> = optimal.iter().map(|best| &best.mates).collect();
            Ok(vec![
                ("performance_impact", optimal.first().map_or(Value::Null, |best| pair(best.impact))),
                ("selected", json!(sets.first())),
                ("optimal_sets", json!(sets)),
            ])
        }
        Input::Distribute { sockets, cores_per_socket, sharing_factor, jobs } => {
            let factor = Ratio::try_from(sharing_factor).map_err(|error| error.to_string())?;
            let cores = sockets * cores_per_socket;
            let node = Inventory { sockets, numa_nodes: sockets, cores, cpus: cores, ..Inventory::default() };
            let parts = distribute(&node, factor, &jobs);
            let job = |(job, cpus): (&SharerText, &Vec<u32>)| {
                let ranks = deal(std::slice::from_ref(cpus), job.ranks as usize, usize::MAX);
                json!({"id": job.id, "cpus": cpus, "ranks": ranks})
            };
            let jobs = parts.map_or(Value::Null, |parts| jobs.iter().zip(&parts).map(job).collect());
            Ok(vec![("jobs", jobs)])
        }
    }
}

/// Returns the time of a job whose CPUs are these, slot by slot: the work that it asked for at the rate of the model.
fn stretched(model: RuntimeModel, req_cpus: u32, slots: &[SlotText]) -> Option<Fraction> {
    slots.iter().try_fold(Fraction::ZERO, |sum, SlotText { time, cpus }| {
        // All nodes are asked for the same.
        let rate = model.rate(cpus.iter().map(|has| CoreShare { n_nodes: 1, has: *has, asked: 1 }));
        sum.plus(Fraction::new(i128::from(req_cpus) * i128::from(*time), rate.into())?)
    })
}

/// Returns the CPUs of the owner and of its guest, if there is one; `None` if one of them would have fewer than ranks.
fn distribute(node: &Inventory, factor: Ratio, jobs: &[SharerText]) -> Option<Vec<Vec<u32>>> {
    let mut own: Indices = (0..node.cores).collect();
    let owner = jobs.first()?;
    let n_lent = match jobs.len() {
        1 => 0,
        _ => factor.of(node.cores).min(node.cores.checked_sub(owner.ranks)?),
    };
    let lent = lend(&own, n_lent, node, 0);
    own.remove_all(&lent);
    let parts = [own, lent].map(|part| part.iter().collect::<Vec<u32>>());
    let parts: Vec<Vec<u32>> = parts.into_iter().take(jobs.len()).collect();
    jobs.iter().zip(&parts).all(|(job, cpus)| cpus.len() >= job.ranks as usize).then_some(parts)
}

fn fraction((numerator, denominator): (i64, i64)) -> Result<Fraction, String> {
    Fraction::new(numerator.into(), denominator.into()).ok_or(format!("{numerator}/{denominator} is no fraction"))
}

fn pair(fraction: Fraction) -> Value {
    let (numerator, denominator) = fraction.parts();
    json!([numerator as i64, denominator as i64])
}
