//! Applications that run on any number of nodes of one cluster (001, §5.2.1 and appendix A.2).

use std::collections::BTreeMap;

use rms_model::{ClusterId, Request, Slice, Span, Time};
use thiserror::Error;

use super::{Proposal, Sight, wall_of};

/// How long an application runs. More nodes must never take longer; use [`Table`] where they do.
pub trait WallTime {
    /// Returns the wall time on `n_nodes` nodes, at least 1, of `cluster`; `None` if the application cannot use that
    /// cluster.
    fn wall(&self, cluster: ClusterId, n_nodes: u32) -> Option<Span>;
}

/// How many nodes an application can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The least number of nodes on which it can run.
    pub least: u32,
    /// The greatest number of nodes that it can use.
    pub most: u32,
}

impl Sizes {
    /// Allows any number of nodes that is at least `least`.
    pub fn at_least(least: u32) -> Sizes {
        Sizes { least, most: u32::MAX }
    }
}

/// Returns the cluster and the number of its nodes that complete first (001, Algorithm 1). `None` if no cluster that
/// the application can use has enough nodes.
///
/// It visits the change-points of the view in order, and at each tries all free nodes, then those that are free for as
/// long as that takes, until it fits; change-points later than the best completion cannot be better.
pub fn propose(sight: &Sight<'_>, now: Time, sizes: Sizes, application: &impl WallTime) -> Option<Proposal> {
    let mut best: Option<Proposal> = None;
    for (start, cluster) in sight.change_points(now) {
        if best.as_ref().is_some_and(|best| best.completion() < start) {
            break;
        }
        let seen = &sight.clusters[&cluster];
        // Algorithm 1 ignores the application's own maximum (A2 of the errata; 5.2.1 has it).
        let mut n_nodes = seen.free_at(start).min(sizes.most);
        while n_nodes >= sizes.least.max(1) {
            let Some(wall) = application.wall(cluster, n_nodes) else { break };
            let n_free = seen.free(start, start + wall);
            if n_free < n_nodes {
                n_nodes = n_free;
                continue;
            }
            if best.as_ref().is_none_or(|best| start + wall < best.completion()) {
                best = Some(Proposal::of_nodes(Request::on_one(cluster, n_nodes, wall), start));
            }
            break;
        }
    }
    best
}

/// Nodes in one shape: whole nodes, or a slice of each.
#[derive(Clone, Debug)]
pub struct Shape<'a> {
    /// Without cores: whole nodes.
    pub slice: Slice,
    /// How many fit, and when.
    pub sight: Sight<'a>,
    /// How many cores each node has, by cluster; other clusters are not used.
    pub cores: BTreeMap<ClusterId, u32>,
}

/// Returns the shape, the cluster and the number of its nodes that complete first, for an application that counts
/// cores: `sizes` and its wall time are in cores. Among equal completions the earlier start wins, then fewer cores,
/// then fewer nodes. Whether the free parts of several nodes stay on the same ones throughout is for the server to find
/// out.
pub fn propose_cores(shapes: &[Shape<'_>], now: Time, sizes: Sizes, application: &impl WallTime) -> Option<Proposal> {
    let of_shape = |shape: &Shape<'_>| {
        let of_cluster = |(cluster, cores): (&ClusterId, &u32)| {
            let cores = (*cores).max(1);
            let nodes = Sizes { least: sizes.least.div_ceil(cores), most: sizes.most / cores };
            let proposal = propose(&shape.sight.only(*cluster), now, nodes, &ByCores { application, cores })?;
            let n_cores = proposal.request.n_nodes().saturating_mul(cores);
            Some((n_cores, Proposal { slice: shape.slice.clone(), ..proposal }))
        };
        shape.cores.iter().filter_map(of_cluster).collect::<Vec<_>>()
    };
    let all = shapes.iter().flat_map(of_shape);
    let rank = |(n_cores, proposal): &(u32, Proposal)| {
        (proposal.completion(), proposal.start, *n_cores, proposal.request.n_nodes())
    };
    all.min_by_key(rank).map(|(_, best)| best)
}

/// An application that counts cores, on nodes with a given number of cores each.
struct ByCores<'a, A> {
    application: &'a A,
    cores: u32,
}

impl<A: WallTime> WallTime for ByCores<'_, A> {
    fn wall(&self, cluster: ClusterId, n_nodes: u32) -> Option<Span> {
        self.application.wall(cluster, n_nodes.saturating_mul(self.cores))
    }
}

/// Amdahl's law with exact fractions: the wall time on n nodes is (1 − P + P/n) times that on one, rounded up.
#[derive(Clone, Debug)]
pub struct Amdahl {
    parallel: u64,
    whole: u64,
    on_one: BTreeMap<ClusterId, Span>,
}

/// Why a number is not a valid parallel fraction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{numerator}/{denominator} is not a part: write a fraction from 0 to 1")]
pub struct FractionError {
    numerator: u32,
    denominator: u32,
}

impl Amdahl {
    /// Creates the model: `numerator / denominator` of the work is parallel; `on_one` is the wall time on one node of
    /// each cluster that can be used.
    ///
    /// # Errors
    /// The fraction is more than 1, or its denominator is 0.
    pub fn new(numerator: u32, denominator: u32, on_one: BTreeMap<ClusterId, Span>) -> Result<Amdahl, FractionError> {
        if denominator == 0 || numerator > denominator {
            return Err(FractionError { numerator, denominator });
        }
        Ok(Amdahl { parallel: u64::from(numerator), whole: u64::from(denominator), on_one })
    }
}

impl WallTime for Amdahl {
    fn wall(&self, cluster: ClusterId, n_nodes: u32) -> Option<Span> {
        let on_one = self.on_one.get(&cluster)?.as_millis().max(0) as u128;
        let (parallel, whole, n_nodes) =
            (u128::from(self.parallel), u128::from(self.whole), u128::from(n_nodes.max(1)));
        Some(wall_of(on_one * ((whole - parallel) * n_nodes + parallel), whole * n_nodes))
    }
}

/// Downey's model: an application of some average parallelism A whose parallelism varies by sigma. The wall time
/// on n nodes is that on one divided by the speed-up S(n), which grows up to A.
#[derive(Clone, Debug)]
pub struct Downey {
    average: f64,
    sigma: f64,
    on_one: BTreeMap<ClusterId, Span>,
}

/// Why numbers are invalid in Downey's model.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum DowneyError {
    /// The average parallelism.
    #[error("an average parallelism of {0} is not possible: write a number of at least 1")]
    Average(f64),
    /// Its variation.
    #[error("a sigma of {0} is not possible: write a number of at least 0")]
    Sigma(f64),
}

impl Downey {
    /// # Errors
    /// The average parallelism is below 1, or sigma is negative.
    pub fn new(average: f64, sigma: f64, on_one: BTreeMap<ClusterId, Span>) -> Result<Downey, DowneyError> {
        if !(average >= 1.0 && average.is_finite()) {
            return Err(DowneyError::Average(average));
        }
        if !(sigma >= 0.0 && sigma.is_finite()) {
            return Err(DowneyError::Sigma(sigma));
        }
        Ok(Downey { average, sigma, on_one })
    }

    /// Returns how much faster `n_nodes` nodes are than one.
    pub fn speed_up(&self, n_nodes: u32) -> f64 {
        let (n, a, sigma) = (f64::from(n_nodes.max(1)), self.average, self.sigma);
        let speed_up = if sigma <= 1.0 {
            if n <= a {
                a * n / (a + sigma / 2.0 * (n - 1.0))
            } else if n <= 2.0 * a - 1.0 {
                a * n / (sigma * (a - 0.5) + n * (1.0 - sigma / 2.0))
            } else {
                a
            }
        } else if n <= a + a * sigma - sigma {
            n * a * (sigma + 1.0) / (sigma * (n + a - 1.0) + a)
        } else {
            a
        };
        speed_up.clamp(1.0, n)
    }
}

impl WallTime for Downey {
    fn wall(&self, cluster: ClusterId, n_nodes: u32) -> Option<Span> {
        let on_one = self.on_one.get(&cluster)?.as_millis().max(0);
        // A float represents every millisecond of a century. Rounding up may add one, never subtract one.
        let millis = (on_one as f64 / self.speed_up(n_nodes)).ceil().max(0.0);
        Some(wall_of(millis as u128, 1))
    }
}

/// Measured wall times for some sizes, in any relation: more nodes may even take longer.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Wall times by cluster and number of nodes.
    pub walls: BTreeMap<ClusterId, BTreeMap<u32, Span>>,
}

impl Table {
    /// Returns the size that completes first; each listed one is tried at its first hole.
    pub fn propose(&self, sight: &Sight<'_>, now: Time) -> Option<Proposal> {
        let mut best: Option<Proposal> = None;
        for (cluster, walls) in &self.walls {
            // More nodes first: among equals the first is kept.
            for (n_nodes, wall) in walls.iter().rev().filter(|(n_nodes, _)| **n_nodes > 0) {
                let Some(start) = sight.first_hole(*cluster, *n_nodes, *wall, now) else { continue };
                let proposal = Proposal::of_nodes(Request::on_one(*cluster, *n_nodes, *wall), start);
                let key = |proposal: &Proposal| (proposal.completion(), proposal.start);
                if best.as_ref().is_none_or(|best| key(&proposal) < key(best)) {
                    best = Some(proposal);
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_model::Profile;

    const CLUSTER: ClusterId = ClusterId(0);

    fn on_one(secs: i64) -> BTreeMap<ClusterId, Span> {
        BTreeMap::from([(CLUSTER, Span::from_secs(secs))])
    }

    #[test]
    fn amdahl_is_exact_and_rounds_up() {
        let check = |(numerator, denominator), n_nodes, expected| {
            let amdahl = Amdahl::new(numerator, denominator, on_one(100)).expect("a fraction");
            assert_eq!(amdahl.wall(CLUSTER, n_nodes), Some(Span::from_secs(expected)));
        };
        check((1, 1), 3, 34);
        check((0, 1), 3, 100);
        check((95, 100), 10, 15);
        check((95, 100), u32::MAX, 6);
        let forever = BTreeMap::from([(CLUSTER, Span::MAX_WALL)]);
        let amdahl = Amdahl::new(u32::MAX - 1, u32::MAX, forever).expect("a fraction");
        assert!(amdahl.wall(CLUSTER, u32::MAX).is_some_and(|wall| wall > Span::ZERO));
        assert_eq!(amdahl.wall(ClusterId(9), 1), None);
        assert_eq!(
            Amdahl::new(3, 2, on_one(1)).unwrap_err().to_string(),
            "3/2 is not a part: write a fraction from 0 to 1"
        );
    }

    #[test]
    fn downey_grows_up_to_the_average_parallelism() {
        for sigma in [0.0, 0.5, 1.0, 1.7, 5.0] {
            let downey = Downey::new(12.5, sigma, on_one(1000)).expect("a model");
            assert!((downey.speed_up(1) - 1.0).abs() < 1e-12);
            let speed_ups: Vec<f64> = (1..200).map(|n| downey.speed_up(n)).collect();
            assert!(speed_ups.windows(2).all(|two| two[0] <= two[1] + 1e-12), "sigma {sigma}: {speed_ups:?}");
            assert!((speed_ups[198] - 12.5).abs() < 1e-9);
        }
        let linear = Downey::new(8.0, 0.0, on_one(1000)).expect("a model");
        assert_eq!(linear.wall(CLUSTER, 4), Some(Span::from_secs(250)));
        assert!(Downey::new(0.5, 0.0, on_one(1)).is_err() && Downey::new(2.0, f64::NAN, on_one(1)).is_err());
    }

    #[test]
    fn a_table_may_prefer_fewer_nodes() {
        let secs = Span::from_secs;
        let walls = BTreeMap::from([(1, secs(90)), (4, secs(40)), (8, secs(50)), (16, secs(1))]);
        let table = Table { walls: BTreeMap::from([(CLUSTER, walls)]) };
        let nodes = BTreeMap::from([(CLUSTER, 8)]);
        let propose = |busy: i64| {
            let view = BTreeMap::from([(CLUSTER, Profile::from_pairs(Time::EPOCH, [(secs(busy), 6)]))]);
            let proposal = table.propose(&Sight::new(&nodes, &view), Time::EPOCH).expect("it fits");
            (proposal.request.n_nodes(), proposal.start.as_secs())
        };
        assert_eq!(propose(0), (4, 0));
        assert_eq!(propose(49), (4, 49));
        // One node completes now as early as four later; it starts first.
        assert_eq!(propose(50), (1, 0));
    }
}
