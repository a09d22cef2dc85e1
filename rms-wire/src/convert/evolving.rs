//! Applications whose needs change, both ways.

use rms_model::{Evolution, Evolving, ExpandLimit, Expansion, Stage};

use super::{Malformed, all, opt_millis, opt_time, span};
use crate::evolving as wire;

impl From<&Evolving> for wire::Evolving {
    fn from(evolving: &Evolving) -> wire::Evolving {
        wire::Evolving {
            stages: stages_to_wire(&evolving.stages),
            limit: match evolving.expansion.limit {
                ExpandLimit::Milli(milli) => wire::ExpandLimit::Milli(milli),
                ExpandLimit::Infinite => wire::ExpandLimit::Infinite,
            },
            compacting: evolving.expansion.compacting,
            open: evolving.open,
        }
    }
}

impl TryFrom<wire::Evolving> for Evolving {
    type Error = Malformed;

    fn try_from(evolving: wire::Evolving) -> Result<Evolving, Malformed> {
        let limit = match evolving.limit {
            wire::ExpandLimit::Milli(milli) => ExpandLimit::Milli(milli.clamp(1000, 1_000_000)),
            wire::ExpandLimit::Infinite => ExpandLimit::Infinite,
        };
        Ok(Evolving {
            stages: stages_from_wire(evolving.stages)?,
            expansion: Expansion { limit, compacting: evolving.compacting },
            open: evolving.open,
        })
    }
}

pub(super) fn stages_to_wire(evolution: &Evolution) -> Vec<wire::Stage> {
    let stage = |stage: &Stage| wire::Stage { hosts: stage.hosts, span: stage.span.as_millis() };
    evolution.stages().iter().map(stage).collect()
}

/// # Errors
/// A stage that lasts for no time or too long, or too many of them.
pub(super) fn stages_from_wire(stages: Vec<wire::Stage>) -> Result<Evolution, Malformed> {
    let stage = |stage: wire::Stage| Ok(Stage { hosts: stage.hosts, span: span("a stage", stage.span)? });
    Evolution::new(all(stages, stage)?).map_err(|source| Malformed::Stages { source })
}

impl From<&rms_api::answer::Stages> for wire::Stages {
    fn from(stages: &rms_api::answer::Stages) -> wire::Stages {
        let leg = |leg: &rms_api::answer::StageLine| wire::StageLine {
            hosts: leg.hosts,
            span: leg.span.as_millis(),
            start: opt_millis(leg.start),
        };
        wire::Stages {
            number: stages.number,
            n_stages: stages.n_stages,
            legs: stages.legs.iter().map(leg).collect(),
            late_by: stages.late_by.map(rms_model::Span::as_millis),
            open: stages.open,
            generation: stages.generation,
            chosen: stages.chosen.clone(),
            leaving: stages.leaving.clone(),
            n_violations: stages.n_violations,
        }
    }
}

impl TryFrom<wire::Stages> for rms_api::answer::Stages {
    type Error = Malformed;

    fn try_from(stages: wire::Stages) -> Result<rms_api::answer::Stages, Malformed> {
        let leg = |leg: wire::StageLine| {
            let span = span("a stage", leg.span)?;
            Ok(rms_api::answer::StageLine { hosts: leg.hosts, span, start: opt_time(leg.start) })
        };
        Ok(rms_api::answer::Stages {
            number: stages.number,
            n_stages: stages.n_stages,
            legs: all(stages.legs, leg)?,
            late_by: stages.late_by.map(|late_by| span("the delay of a stage", late_by)).transpose()?,
            open: stages.open,
            generation: stages.generation,
            chosen: stages.chosen,
            leaving: stages.leaving,
            n_violations: stages.n_violations,
        })
    }
}
