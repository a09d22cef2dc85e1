//! The assumptions where 001 leaves details open; changing one shows whether a failing claim depends on it.

use std::str::FromStr;

use thiserror::Error;

use crate::delegated::{Application, CLUSTER_NODES, Model};

/// One assumption of the experiments, changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// The complex application has this many thousandths of its iterations.
    ComplexSize { thousandths: u32 },
    /// A launcher's place in the queue is that of its subscription (001, Fig. 5), not that of its first request
    /// (§5.3.2).
    OrderOfSubscription,
    /// The server's operations are those of the search for nodes; comparing and writing views is not counted.
    SearchAlone,
    /// Jobs of the log that are larger than a cluster are dropped, not cut.
    Uncut,
    /// The complex application of W1 has this number, from 1 (001, §6.2: n_CEM).
    ComplexAt { number: u32 },
    /// An application may choose from this share of each cluster only (001, §8); larger rigid ones are cut to it.
    ViewShare { percent: u32 },
    /// Wall times are those that the users of the log requested (001, footnote 3), not run times with some slack.
    WallsOfLog,
}

/// A word that is not an assumption.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no assumption: write complex=PART (0.001 to 100), complex-at=NUMBER (1 to 201), walls=log, \
     view-share=PERCENT, order=subscription, operations=search or jobs=uncut"
)]
pub struct UnknownAssumption(String);

impl FromStr for Assumption {
    type Err = UnknownAssumption;

    fn from_str(text: &str) -> Result<Assumption, UnknownAssumption> {
        let unknown = || UnknownAssumption(text.to_owned());
        if let Some(number) = text.strip_prefix("complex-at=") {
            let number = number.parse().ok().filter(|number| (1..=201).contains(number)).ok_or_else(unknown)?;
            return Ok(Assumption::ComplexAt { number });
        }
        if let Some(percent) = text.strip_prefix("view-share=") {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent)).ok_or_else(unknown)?;
            return Ok(Assumption::ViewShare { percent });
        }
        match text {
            "walls=log" => Ok(Assumption::WallsOfLog),
            "order=subscription" => Ok(Assumption::OrderOfSubscription),
            "operations=search" => Ok(Assumption::SearchAlone),
            "jobs=uncut" => Ok(Assumption::Uncut),
            _ => {
                let part: f64 = text.strip_prefix("complex=").and_then(|part| part.parse().ok()).ok_or_else(unknown)?;
                let is_some = (0.001..=100.0).contains(&part);
                is_some
                    .then(|| Assumption::ComplexSize { thousandths: (part * 1000.0).round() as u32 })
                    .ok_or_else(unknown)
            }
        }
    }
}

/// Cuts rigid applications of more nodes than the share to that number; they do the same work on them.
pub(super) fn cut_to_share(applications: &mut [Application], percent: u32) {
    let most = (CLUSTER_NODES * percent).div_ceil(100).max(1);
    for application in applications {
        match &mut application.model {
            Model::OnOne { sizes, amdahl: _ } => {
                sizes.least = sizes.least.min(most);
                sizes.most = sizes.most.min(most);
            }
            // These take what their view shows.
            Model::Iterative(_) | Model::FastestFirst(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_are_read_and_nonsense_is_refused() {
        assert_eq!("complex=0.25".parse(), Ok(Assumption::ComplexSize { thousandths: 250 }));
        assert_eq!("complex-at=201".parse(), Ok(Assumption::ComplexAt { number: 201 }));
        assert_eq!("walls=log".parse(), Ok(Assumption::WallsOfLog));
        assert_eq!("view-share=50".parse(), Ok(Assumption::ViewShare { percent: 50 }));
        assert_eq!("order=subscription".parse(), Ok(Assumption::OrderOfSubscription));
        for wrong in [
            "complex=0",
            "complex=nan",
            "complex=-1",
            "complex=1e9",
            "order=",
            "jobs",
            "complex-at=0",
            "complex-at=202",
            "view-share=0",
            "view-share=101",
            "",
        ] {
            assert_eq!(wrong.parse::<Assumption>(), Err(UnknownAssumption(wrong.to_owned())));
        }
    }
}
