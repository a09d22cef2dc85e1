//! A selection function for iterative applications whose iterations wait for the slowest link (001's CEM application).
//!
//! 001 describes only what its function considers; the model assumed here is: an iteration divides its work by the sum
//! of the speeds, then exchanges messages over the longest distance between its nodes, without a limit of bandwidth.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::ClusterId;

use super::cem::{NodeCounts, Selection};
use super::wall_of;

/// An application that alternately computes and exchanges: pass [`Iterative::select`] to [`super::cem::propose`].
#[derive(Clone, Debug)]
pub struct Iterative {
    /// The number of iterations.
    pub iterations: u64,
    /// Microseconds that one node of speed 1 takes for one iteration.
    pub work_micros: u64,
    /// Messages of an iteration that wait for each other.
    pub messages: u64,
    /// The clusters that can be used.
    pub sites: BTreeMap<ClusterId, Site>,
}

/// The speed and the location of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Thousandths of speed 1.
    pub speed_milli: u32,
    /// Clusters of one city have the same number.
    pub city: u16,
    /// Clusters of one country have the same number; so have those of one city.
    pub country: u16,
}

/// The latency of a message by distance, in microseconds.
const IN_A_CITY: u64 = 5_000;
const IN_A_COUNTRY: u64 = 10_000;
const ANYWHERE: u64 = 50_000;

impl Iterative {
    /// Returns all available nodes of one cluster, of one city, of one country or of all, whichever takes the least
    /// time; among equals the first in this order.
    pub fn select(&self, available: &NodeCounts) -> Option<Selection> {
        let usable: Vec<(ClusterId, u32, Site)> = available
            .iter()
            .filter_map(|(cluster, n_nodes)| Some((*cluster, *n_nodes, *self.sites.get(cluster)?)))
            .filter(|(_, n_nodes, site)| *n_nodes > 0 && site.speed_milli > 0)
            .collect();
        let cities: BTreeSet<u16> = usable.iter().map(|(_, _, site)| site.city).collect();
        let countries: BTreeSet<u16> = usable.iter().map(|(_, _, site)| site.country).collect();
        let all = |is_in: &dyn Fn(ClusterId, Site) -> bool, latency: u64| {
            let chosen = usable.iter().filter(|(cluster, _, site)| is_in(*cluster, *site));
            self.selection(chosen, latency)
        };
        let mut selections: Vec<Selection> = Vec::new();
        selections.extend(usable.iter().filter_map(|(one, _, _)| all(&|cluster, _| cluster == *one, 0)));
        selections.extend(cities.iter().filter_map(|city| all(&|_, site| site.city == *city, IN_A_CITY)));
        selections
            .extend(countries.iter().filter_map(|country| all(&|_, site| site.country == *country, IN_A_COUNTRY)));
        selections.extend(all(&|_, _| true, ANYWHERE));
        // The first of equals is kept.
        selections.into_iter().min_by_key(|selection| selection.wall)
    }

    fn selection<'a>(
        &self,
        chosen: impl Iterator<Item = &'a (ClusterId, u32, Site)>,
        latency_micros: u64,
    ) -> Option<Selection> {
        let mut power: u128 = 0;
        let mut nodes = NodeCounts::new();
        for (cluster, n_nodes, site) in chosen {
            power += u128::from(*n_nodes) * u128::from(site.speed_milli);
            nodes.insert(*cluster, *n_nodes);
        }
        if nodes.is_empty() {
            return None;
        }
        let exchange = u128::from(self.messages) * u128::from(latency_micros);
        let turn = (u128::from(self.work_micros) * 1000).saturating_add(exchange.saturating_mul(power));
        // Microseconds by speed; a thousandth of it is milliseconds.
        let wall = wall_of(turn.saturating_mul(u128::from(self.iterations)), power * 1000);
        Some(Selection { nodes, wall })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_model::Span;

    fn application(messages: u64) -> Iterative {
        let site = |speed_milli, city, country| Site { speed_milli, city, country };
        let sites = BTreeMap::from([
            (ClusterId(0), site(1000, 1, 1)),
            (ClusterId(1), site(1000, 1, 1)),
            (ClusterId(2), site(1000, 2, 1)),
            (ClusterId(3), site(4000, 3, 2)),
        ]);
        Iterative { iterations: 100, work_micros: 3_200_000, messages, sites }
    }

    #[test]
    fn the_further_apart_the_nodes_the_less_they_may_talk() {
        let available = NodeCounts::from([(ClusterId(0), 4), (ClusterId(1), 4), (ClusterId(2), 8), (ClusterId(3), 4)]);
        let check = |messages, expected: &[u16], secs| {
            let Selection { nodes, wall } = application(messages).select(&available).expect("there are nodes");
            assert_eq!(nodes.keys().map(|cluster| cluster.0).collect::<Vec<_>>(), expected);
            assert_eq!(wall, Span::from_secs(secs));
        };
        // 3.2 s of work: 0.1 s on 32 times speed 1, 0.2 s on 16 times.
        check(0, &[0, 1, 2, 3], 10);
        check(1, &[0, 1, 2, 3], 15);
        check(3, &[3], 20);
        let without_3 = NodeCounts::from([(ClusterId(0), 4), (ClusterId(1), 4), (ClusterId(2), 8)]);
        let selection = application(5).select(&without_3).expect("there are nodes");
        assert_eq!((selection.nodes.len(), selection.wall), (3, Span::from_secs(25)));
    }

    #[test]
    fn unknown_clusters_and_empty_ones_are_left_out_and_large_numbers_do_not_wrap() {
        assert_eq!(application(1).select(&NodeCounts::from([(ClusterId(0), 0), (ClusterId(9), 5)])), None);
        let forever = Iterative { iterations: u64::MAX, work_micros: u64::MAX, messages: u64::MAX, ..application(1) };
        let selection = forever.select(&NodeCounts::from([(ClusterId(0), u32::MAX), (ClusterId(2), 1)]));
        assert_eq!(selection.expect("there are nodes").wall, Span::MAX_WALL);
    }
}
