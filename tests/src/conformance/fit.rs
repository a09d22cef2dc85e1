//! `fit` and compacting of 000 and 003, RULES E, F and K.

use rms_core::plan::compact::compact;
use rms_core::plan::fit::fit;
use rms_model::Time;
use serde::Deserialize;

use super::evolution::{Limit, Pairs, Placement, evolution, expect_placed, profile};

#[derive(Deserialize)]
struct Vector {
    nodes: u32,
    limit: Limit,
    t0: i64,
    resource: Pairs,
    request: Pairs,
    base: Placement,
    compact: Placement,
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let occupied = profile(0, &vector.resource);
    let request = evolution(&vector.request)?;
    let (limit, from) = (vector.limit.parse()?, Time::from_secs(vector.t0));
    let base = fit(&occupied, vector.nodes, &request, limit, from).map_err(|error| error.to_string())?;
    expect_placed("base", &base, &vector.base)?;
    let compacted = compact(&occupied, vector.nodes, &request, limit, base);
    expect_placed("compact", &compacted, &vector.compact)
}
