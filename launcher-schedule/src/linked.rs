//! A selection function for iterative applications that considers how far its clusters are from each other (001:
//! ICINFO).
//!
//! The model is that of [`tiers`](super::tiers), with known links in place of cities and countries: an iteration
//! divides its work by the sum of the speeds, then exchanges messages over the slowest link between its clusters.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::ClusterId;

use super::cem::{NodeCounts, Selection};
use super::wall_of;

/// An application that alternately computes and exchanges: pass [`Linked::select`] to [`super::cem::propose`].
#[derive(Clone, Debug)]
pub struct Linked {
    /// Its iterations.
    pub turns: Turns,
    /// The clusters that can be used, each with its speed in thousandths of speed 1.
    pub speed_milli: BTreeMap<ClusterId, u32>,
    /// The known links between two clusters, the smaller id first. Clusters without a link between them are not used
    /// together.
    pub links: BTreeMap<(ClusterId, ClusterId), Link>,
}

/// The iterations of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The number of iterations.
    pub iterations: u64,
    /// Microseconds that one node of speed 1 takes for one iteration.
    pub work_micros: u64,
    /// Messages of an iteration that wait for each other.
    pub messages: u64,
    /// Kilobytes of all messages of an iteration that cross a link.
    pub kilobytes: u64,
}

/// The link between two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// In one direction, in microseconds.
    pub latency_micros: u32,
    /// Megabits per second; 0: unknown, and counted as no time.
    pub bandwidth_mbit: u32,
}

impl Linked {
    /// Returns all available nodes of one cluster, or of as many clusters as are worth the slowest link between them:
    /// to each cluster, and for each link that may be the slowest one used, it adds the fastest clusters that have no
    /// slower link to any of the others. Among equals the fewest clusters win.
    pub fn select(&self, available: &NodeCounts) -> Option<Selection> {
        let speed = |cluster: &ClusterId| self.speed_milli.get(cluster).copied().unwrap_or(0);
        let mut usable: Vec<(u128, ClusterId)> = available
            .iter()
            .map(|(cluster, n_nodes)| (u128::from(speed(cluster)) * u128::from(*n_nodes), *cluster))
            .filter(|(power, _)| *power > 0)
            .collect();
        usable.sort_unstable_by_key(|(power, cluster)| (std::cmp::Reverse(*power), *cluster));
        let costs: BTreeSet<u128> = self.links.values().map(|link| self.turns.exchange(*link)).collect();
        let alone = usable.iter().map(|one| vec![*one]);
        let together = usable.iter().flat_map(|first| costs.iter().map(|most| self.around(*first, &usable, *most)));
        let selections = alone.chain(together).map(|chosen| self.selection(&chosen, available));
        selections.min_by_key(|selection| (selection.wall, selection.nodes.len()))
    }

    /// Returns how long an exchange between two clusters takes, in microseconds; `None` if no link is known.
    fn between(&self, one: ClusterId, other: ClusterId) -> Option<u128> {
        let link = self.links.get(&(one.min(other), one.max(other)))?;
        Some(self.turns.exchange(*link))
    }

    fn around(&self, first: (u128, ClusterId), usable: &[(u128, ClusterId)], most: u128) -> Vec<(u128, ClusterId)> {
        let mut chosen = vec![first];
        for other in usable.iter().filter(|other| **other != first) {
            let is_near =
                |(_, known): &(u128, ClusterId)| self.between(*known, other.1).is_some_and(|cost| cost <= most);
            if chosen.iter().all(is_near) {
                chosen.push(*other);
            }
        }
        chosen
    }

    fn selection(&self, chosen: &[(u128, ClusterId)], available: &NodeCounts) -> Selection {
        let power: u128 = chosen.iter().map(|(power, _)| power).sum();
        let pairs =
            chosen.iter().enumerate().flat_map(|(idx, one)| chosen[idx + 1..].iter().map(move |other| (one, other)));
        let slowest = pairs.filter_map(|(one, other)| self.between(one.1, other.1)).max().unwrap_or(0);
        let turn = (u128::from(self.turns.work_micros) * 1000).saturating_add(slowest.saturating_mul(power));
        let wall = wall_of(turn.saturating_mul(u128::from(self.turns.iterations)), power * 1000);
        let nodes = chosen.iter().map(|(_, cluster)| (*cluster, available[cluster])).collect();
        Selection { nodes, wall }
    }
}

impl Turns {
    /// Returns how long the exchange of one iteration takes over a link, in microseconds.
    fn exchange(&self, link: Link) -> u128 {
        let latency = u128::from(self.messages) * u128::from(link.latency_micros);
        let bits = u128::from(self.kilobytes) * 8000;
        // A megabit per second is a bit per microsecond.
        latency + bits.checked_div(link.bandwidth_mbit.into()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Span;

    use super::*;

    /// Clusters 0 and 1 are close to each other, 2 is further away, and no link to 3, the fastest, is known.
    fn application(messages: u64, kilobytes: u64) -> Linked {
        let link = |latency_micros, bandwidth_mbit| Link { latency_micros, bandwidth_mbit };
        let between = |one, other| (ClusterId(one), ClusterId(other));
        Linked {
            turns: Turns { iterations: 100, work_micros: 3_200_000, messages, kilobytes },
            speed_milli: [(0, 1000), (1, 1000), (2, 1000), (3, 2000)].map(|(id, speed)| (ClusterId(id), speed)).into(),
            links: BTreeMap::from([
                (between(0, 1), link(1_000, 1_000)),
                (between(0, 2), link(10_000, 0)),
                (between(1, 2), link(20_000, 100)),
            ]),
        }
    }

    #[test]
    fn clusters_are_used_together_as_far_as_their_links_are_worth_it() {
        let available = NodeCounts::from([(ClusterId(0), 4), (ClusterId(1), 4), (ClusterId(2), 8), (ClusterId(3), 4)]);
        let check = |messages, kilobytes, expected: &[u16], secs| {
            let Selection { nodes, wall } =
                application(messages, kilobytes).select(&available).expect("there are nodes");
            assert_eq!(nodes.keys().map(|cluster| cluster.0).collect::<Vec<_>>(), expected);
            assert_eq!(wall, Span::from_secs(secs));
        };
        // 3.2 s of work: 0.2 s on 16 times speed 1, 0.267 s on 12, 0.4 s on 8.
        check(0, 0, &[0, 1, 2], 20);
        // 20 ms over the link between 1 and 2 are less than the time that the nodes of 1 save; so are four times as
        // much.
        check(1, 0, &[0, 1, 2], 22);
        check(4, 0, &[0, 1, 2], 28);
        check(8, 0, &[0, 2], 35);
        // Ten megabytes take 0.8 s over the narrow link, 0.08 s over the wide one, and no known time over the third.
        check(0, 10_000, &[0, 2], 27);
        check(20, 0, &[2], 40);
    }

    #[test]
    fn unknown_clusters_and_empty_ones_are_left_out_and_large_numbers_do_not_wrap() {
        assert_eq!(application(1, 0).select(&NodeCounts::from([(ClusterId(0), 0), (ClusterId(9), 5)])), None);
        let most = Turns { iterations: u64::MAX, work_micros: u64::MAX, messages: u64::MAX, kilobytes: u64::MAX };
        let forever = Linked { turns: most, ..application(1, 0) };
        let selection = forever.select(&NodeCounts::from([(ClusterId(0), u32::MAX), (ClusterId(2), 1)]));
        assert_eq!(selection.expect("there are nodes").wall, Span::MAX_WALL);
    }
}
