//! Detects two agents that connect as one node: a copy of its identity is in use.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Takeovers of open links by other agents, by the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct DuplicateAgents {
    takeovers: HashMap<String, Takeovers>,
}

#[derive(Debug)]
struct Takeovers {
    last: Instant,
    /// Addresses of agents whose link was taken over.
    displaced: Vec<SocketAddr>,
    /// How often one of them came back and took the link over again.
    n_returns: u32,
    pair: [SocketAddr; 2],
}

/// Two agents take over from each other every few seconds at first, and later every half minute. A restarted agent
/// comes from the same address, and one that has moved does not come from its old address again.
const WINDOW: Duration = Duration::from_secs(90);
const MIN_RETURNS: u32 = 2;
const MAX_ADDRESSES: usize = 16;

impl DuplicateAgents {
    /// Notes that an agent has connected from `newer` while one at `older` was connected.
    pub(super) fn note(&mut self, node: &str, older: SocketAddr, newer: SocketAddr, now: Instant) {
        self.takeovers.retain(|_, takeovers| now.duration_since(takeovers.last) < WINDOW);
        if older == newer {
            return;
        }
        let mut pair = [older, newer];
        pair.sort_unstable();
        let fresh = Takeovers { last: now, displaced: Vec::new(), n_returns: 0, pair };
        let takeovers = self.takeovers.entry(node.to_owned()).or_insert(fresh);
        (takeovers.last, takeovers.pair) = (now, pair);
        takeovers.n_returns += u32::from(takeovers.displaced.contains(&newer));
        if !takeovers.displaced.contains(&older) && takeovers.displaced.len() < MAX_ADDRESSES {
            takeovers.displaced.push(older);
        }
    }

    /// Returns a message if two agents take over from each other.
    pub(super) fn of(&self, node: &str, now: Instant) -> Option<String> {
        let are_two =
            |takeovers: &&Takeovers| takeovers.n_returns >= MIN_RETURNS && now.duration_since(takeovers.last) < WINDOW;
        let Takeovers { pair: [one, other], .. } = self.takeovers.get(node).filter(are_two)?;
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
        let mut duplicates = DuplicateAgents::default();
        // Killed and started again.
        (0..40).for_each(|secs| duplicates.note("n1", address(1, 7), address(1, 7), at(secs)));
        duplicates.note("n2", address(1, 7), address(2, 7), at(40));
        assert_eq!((duplicates.of("n1", at(40)), duplicates.of("n2", at(40))), (None, None));
        for (secs, older, newer) in [(50, 1, 2), (51, 2, 1), (53, 1, 2)] {
            assert_eq!(duplicates.of("n3", at(secs)), None);
            duplicates.note("n3", address(older, 7), address(newer, 7), at(secs));
        }
        let reason = duplicates.of("n3", at(53)).expect("two take turns");
        assert!(reason.starts_with("agents at 10.0.0.1:7 and 10.0.0.2:7 both connect as n3"), "{reason}");
        assert!(duplicates.of("n3", at(142)).is_some());
        assert_eq!(duplicates.of("n3", at(143)), None, "that is over");
    }
}
