//! Notices two agents that connect as one node: a copy of its identity runs somewhere.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Agents that have taken the place of others whose links were open, by the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    seen: HashMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    last: Instant,
    /// Those that were thrown out.
    out: Vec<SocketAddr>,
    /// How often one of them came back, and threw out the other.
    n_returns: u32,
    pair: [SocketAddr; 2],
}

/// Two agents throw each other out every few seconds at first, and later every half minute. One that is started anew comes from
/// the same address, and one that has another address does not come from the old one again.
const WITHIN: Duration = Duration::from_secs(90);
const RETURNS: u32 = 2;
const MOST_KEPT: usize = 16;

impl Rivals {
    /// An agent has come from `newer` while one at `older` was connected.
    pub(super) fn note(&mut self, node: &str, older: SocketAddr, newer: SocketAddr, now: Instant) {
        self.seen.retain(|_, seen| now.duration_since(seen.last) < WITHIN);
        if older == newer {
            return;
        }
        let mut pair = [older, newer];
        pair.sort_unstable();
        let fresh = Seen { last: now, out: Vec::new(), n_returns: 0, pair };
        let seen = self.seen.entry(node.to_owned()).or_insert(fresh);
        (seen.last, seen.pair) = (now, pair);
        seen.n_returns += u32::from(seen.out.contains(&newer));
        if !seen.out.contains(&older) && seen.out.len() < MOST_KEPT {
            seen.out.push(older);
        }
    }

    /// What is wrong with a node, if two do so.
    pub(super) fn of(&self, node: &str, now: Instant) -> Option<String> {
        let are_two = |seen: &&Seen| seen.n_returns >= RETURNS && now.duration_since(seen.last) < WITHIN;
        let Seen { pair: [one, other], .. } = self.seen.get(node).filter(are_two)?;
        Some(format!(
            "agents at {one} and {other} both connect as {node}: one has a copy of the other's identity. Stop one, and join it with a \
             token of its own"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_agents_that_take_turns_are_noticed_and_one_that_restarts_or_moves_is_not() {
        let address = |last: u8, port: u16| SocketAddr::from(([10, 0, 0, last], port));
        let begun = Instant::now();
        let at = |secs| begun + Duration::from_secs(secs);
        let mut rivals = Rivals::default();
        // Killed and started again.
        (0..40).for_each(|secs| rivals.note("n1", address(1, 7), address(1, 7), at(secs)));
        rivals.note("n2", address(1, 7), address(2, 7), at(40));
        assert_eq!((rivals.of("n1", at(40)), rivals.of("n2", at(40))), (None, None));
        for (secs, older, newer) in [(50, 1, 2), (51, 2, 1), (53, 1, 2)] {
            assert_eq!(rivals.of("n3", at(secs)), None);
            rivals.note("n3", address(older, 7), address(newer, 7), at(secs));
        }
        let reason = rivals.of("n3", at(53)).expect("two take turns");
        assert!(reason.starts_with("agents at 10.0.0.1:7 and 10.0.0.2:7 both connect as n3"), "{reason}");
        assert!(rivals.of("n3", at(142)).is_some());
        assert_eq!(rivals.of("n3", at(143)), None, "that is over");
    }
}
