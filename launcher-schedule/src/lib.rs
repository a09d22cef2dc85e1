//! Application-side scheduling: which request to send for a view (001, §5.2 and appendix A).
//!
//! Every function here is pure: it reads a launcher's view and returns what to request. All of them minimise the
//! completion time; among equal completions the earlier start wins, then the smaller cluster id, then more nodes. Nodes
//! are whole, times absolute, wall times rounded up to whole seconds.
//!
//! ```
//! use std::collections::BTreeMap;
//! use launcher_schedule::{Sight, moldable::{self, Amdahl, Sizes}};
//! use rms_model::{ClusterId, Profile, Span, Time};
//!
//! // 001, Fig. 3: one cluster of 5 nodes, of which 1, then 4 are busy for a second each.
//! let cluster = ClusterId(1);
//! let now = Time::from_secs(0);
//! let occupied = Profile::from_pairs(now, [(Span::from_secs(1), 1), (Span::from_secs(1), 4)]);
//! let view = BTreeMap::from([(cluster, occupied)]);
//! let sight = Sight::new(&BTreeMap::from([(cluster, 5)]), &view);
//!
//! let application = Amdahl::new(1, 1, BTreeMap::from([(cluster, Span::from_secs(5))]))?;
//! let proposal = moldable::propose(&sight, now, Sizes::at_least(1), &application).expect("it fits");
//! assert_eq!(proposal.request.nodes[&cluster], 5);
//! assert_eq!(proposal.start, Time::from_secs(2));
//! assert_eq!(proposal.completion(), Time::from_secs(3));
//! # Ok::<(), launcher_schedule::moldable::FractionError>(())
//! ```

#![warn(missing_docs)]

pub mod cem;
pub mod linked;
pub mod moldable;
pub mod rigid;
pub mod tiers;

use std::collections::BTreeMap;

use rms_model::{ClusterId, Profile, Request, Slice, Span, Time, View};

/// What a launcher sees: its clusters, how many nodes each has, and when they are busy.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    clusters: BTreeMap<ClusterId, Cluster<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Cluster<'a> {
    n_nodes: i64,
    occupied: &'a Profile,
}

/// A request, and when it would start if the view did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Nodes by cluster, and the wall time to request.
    pub request: Request,
    /// The estimated start; only the server knows the requests of others.
    pub start: Time,
    /// What the request takes of each node; without cores, the whole node.
    pub slice: Slice,
}

static FREE: Profile = Profile::new();

impl<'a> Sight<'a> {
    /// Creates a sight of the clusters in `nodes`; a cluster that is not in `view` is free.
    pub fn new(nodes: &BTreeMap<ClusterId, u32>, view: &'a View) -> Sight<'a> {
        let cluster = |(cluster, n_nodes): (&ClusterId, &u32)| {
            let occupied = view.get(cluster).unwrap_or(&FREE);
            (*cluster, Cluster { n_nodes: i64::from(*n_nodes), occupied })
        };
        Sight { clusters: nodes.iter().map(cluster).collect() }
    }

    /// Creates a sight of clusters, each with its number of nodes and when they are busy.
    pub fn of(clusters: impl IntoIterator<Item = (ClusterId, u32, &'a Profile)>) -> Sight<'a> {
        let cluster = |(cluster, n_nodes, occupied)| (cluster, Cluster { n_nodes: i64::from(n_nodes), occupied });
        Sight { clusters: clusters.into_iter().map(cluster).collect() }
    }

    /// Returns the same sight for one cluster alone.
    fn only(&self, cluster: ClusterId) -> Sight<'a> {
        Sight { clusters: self.clusters.get(&cluster).map(|seen| (cluster, *seen)).into_iter().collect() }
    }

    /// Returns how many nodes of `cluster` stay free from `from` for `span`; 0 if the cluster is not seen.
    pub fn free(&self, cluster: ClusterId, from: Time, span: Span) -> u32 {
        self.clusters.get(&cluster).map_or(0, |cluster| cluster.free(from, from + span))
    }

    /// Returns when `n_nodes` nodes of `cluster` are first free for `span`; `None` if the cluster is too small.
    pub fn first_hole(&self, cluster: ClusterId, n_nodes: u32, span: Span, now: Time) -> Option<Time> {
        let cluster = self.clusters.get(&cluster)?;
        let hole = cluster.occupied.first_hole(cluster.n_nodes, i64::from(n_nodes), span, now)?;
        Some(hole.start)
    }

    /// Returns the times from `now` on at which the occupation of any cluster changes, with that cluster: ordered by
    /// time, then cluster. `now` is included for every cluster.
    fn change_points(&self, now: Time) -> impl Iterator<Item = (Time, ClusterId)> + '_ {
        let points =
            |(cluster, seen): (&ClusterId, &Cluster<'a>)| (*cluster, seen.occupied.change_points(now).peekable());
        let mut clusters: Vec<_> = self.clusters.iter().map(points).collect();
        std::iter::from_fn(move || {
            let next = |(idx, (cluster, times)): (usize, &mut (ClusterId, std::iter::Peekable<_>))| {
                times.peek().map(|time: &Time| (*time, *cluster, idx))
            };
            let (time, cluster, idx) = clusters.iter_mut().enumerate().filter_map(next).min()?;
            clusters[idx].1.next();
            Some((time, cluster))
        })
    }
}

impl Cluster<'_> {
    fn free(&self, from: Time, until: Time) -> u32 {
        u32::try_from(self.occupied.least_free(self.n_nodes, from, until).max(0)).unwrap_or(u32::MAX)
    }

    fn free_at(&self, time: Time) -> u32 {
        u32::try_from((self.n_nodes - self.occupied.at(time)).max(0)).unwrap_or(u32::MAX)
    }
}

impl Proposal {
    /// Creates a proposal of whole nodes.
    pub fn of_nodes(request: Request, start: Time) -> Proposal {
        Proposal { request, start, slice: Slice::default() }
    }

    /// Returns when the wall time would end.
    pub fn completion(&self) -> Time {
        self.start + self.request.wall
    }
}

/// The resolution of computed wall times.
const WALL_UNIT: Span = Span::from_secs(1);

/// Returns `numerator / denominator` milliseconds, rounded up to whole seconds; never zero, and never more than can be
/// requested.
fn wall_of(numerator: u128, denominator: u128) -> Span {
    let unit = WALL_UNIT.as_millis() as u128;
    let n_units = numerator.div_ceil((denominator * unit).max(1)).max(1);
    let millis = i64::try_from(n_units.saturating_mul(unit)).unwrap_or(i64::MAX);
    Span::from_millis(millis).min(Span::MAX_WALL)
}
