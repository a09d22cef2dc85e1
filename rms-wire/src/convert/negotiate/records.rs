//! What is shown and kept of negotiations, both ways.

use rms_api::negotiate as core;
use rms_model::{JobId, Run};

use crate::convert::{Malformed, all, opt_millis, opt_time, time};
use crate::negotiate as wire;

impl From<&core::NegotiationLine> for wire::NegotiationLine {
    fn from(line: &core::NegotiationLine) -> wire::NegotiationLine {
        wire::NegotiationLine {
            job: line.job.0,
            run: line.run.0,
            owner: line.owner.clone(),
            record: (&line.record).into(),
            phase: line.phase.into(),
            until: opt_millis(line.until),
            held: line.held.clone(),
        }
    }
}

impl TryFrom<wire::NegotiationLine> for core::NegotiationLine {
    type Error = Malformed;

    fn try_from(line: wire::NegotiationLine) -> Result<core::NegotiationLine, Malformed> {
        Ok(core::NegotiationLine {
            job: JobId(line.job),
            run: Run(line.run),
            owner: line.owner,
            record: line.record.try_into()?,
            phase: line.phase.into(),
            until: opt_time(line.until),
            held: line.held,
        })
    }
}

impl From<&core::NegotiationRecord> for wire::NegotiationRecord {
    fn from(record: &core::NegotiationRecord) -> wire::NegotiationRecord {
        let said = |said: &core::Said| match said {
            core::Said::Proposed { by, round, template } => {
                wire::Said::Proposed { by: (*by).into(), round: *round, template: template.into() }
            }
            core::Said::Phase { phase, reason } => {
                wire::Said::Phase { phase: (*phase).into(), reason: reason.map(Into::into) }
            }
        };
        let round = |round: &core::RoundRecord| wire::RoundRecord { at: round.at.as_millis(), said: said(&round.said) };
        wire::NegotiationRecord {
            id: record.id.into(),
            direction: record.direction.into(),
            by: record.by.clone(),
            opened: record.opened.as_millis(),
            rounds: record.rounds.iter().map(round).collect(),
            hosts: record.hosts.clone(),
        }
    }
}

impl TryFrom<wire::NegotiationRecord> for core::NegotiationRecord {
    type Error = Malformed;

    fn try_from(record: wire::NegotiationRecord) -> Result<core::NegotiationRecord, Malformed> {
        let said = |said: wire::Said| -> Result<core::Said, Malformed> {
            Ok(match said {
                wire::Said::Proposed { by, round, template } => {
                    core::Said::Proposed { by: by.into(), round, template: template.try_into()? }
                }
                wire::Said::Phase { phase, reason } => {
                    core::Said::Phase { phase: phase.into(), reason: reason.map(Into::into) }
                }
            })
        };
        let round = |round: wire::RoundRecord| -> Result<core::RoundRecord, Malformed> {
            Ok(core::RoundRecord { at: time(round.at), said: said(round.said)? })
        };
        Ok(core::NegotiationRecord {
            id: record.id.into(),
            direction: record.direction.into(),
            by: record.by,
            opened: time(record.opened),
            rounds: all(record.rounds, round)?,
            hosts: record.hosts,
        })
    }
}
