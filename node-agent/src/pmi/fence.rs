//! The fences of one world: they open when every host that takes part is in, and bring what all have put.

use std::collections::BTreeMap;

use super::frames::{Down, Pair};
use super::{HostId, WorldId};

/// Where the hosts of one world meet.
#[derive(Debug)]
pub struct Fence {
    world: WorldId,
    hosts: BTreeMap<HostId, HostState>,
    /// The fence that is open.
    seq: u64,
    /// Put by the hosts that are in the open fence.
    gathered: Vec<Pair>,
    /// Answers to a host that asks again for the fence before: it was released, but the answer got lost.
    last_released: Vec<Pair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostState {
    Computing,
    InFence,
    Finalized,
    /// It is none of the job's any more: nobody waits for it, and it for nobody.
    Left,
}

/// What a fence may bring to each host: less than a frame between agents holds.
const MAX_FENCE_BYTES: usize = 7 << 20;
/// What a pair takes beside its texts.
const PAIR_BYTES: usize = 16;

impl Fence {
    pub fn new(world: WorldId, hosts: impl IntoIterator<Item = HostId>) -> Fence {
        Fence {
            world,
            hosts: hosts.into_iter().map(|host| (host, HostState::Computing)).collect(),
            seq: 1,
            gathered: Vec::new(),
            last_released: Vec::new(),
        }
    }

    /// All ranks of a host are in fence `seq`. What the hosts are to be told now.
    pub fn enter(&mut self, host: &HostId, seq: u64, pairs: Vec<Pair>) -> Vec<(HostId, Down)> {
        let Some(state) = self.hosts.get_mut(host) else { return Vec::new() };
        if *state == HostState::Left {
            return vec![(host.clone(), Down::FenceDone { world: self.world, seq, pairs: Vec::new() })];
        }
        let is_repeated = seq + 1 == self.seq;
        if is_repeated {
            return vec![(host.clone(), self.done(seq))];
        }
        let enters = seq == self.seq && *state == HostState::Computing;
        if !enters {
            return Vec::new();
        }
        *state = HostState::InFence;
        self.gathered.extend(pairs);
        self.release()
    }

    /// No rank of the host takes part any more.
    pub fn finalize(&mut self, host: &HostId) -> Vec<(HostId, Down)> {
        match self.hosts.get_mut(host) {
            Some(state) => *state = HostState::Finalized,
            None => return Vec::new(),
        }
        self.release()
    }

    /// The hosts for which `is_member` does not hold are none of the job's any more, whether or not they can say that
    /// their ranks have finalized.
    pub fn keep(&mut self, is_member: impl Fn(&HostId) -> bool) -> Vec<(HostId, Down)> {
        let mut released = Vec::new();
        for (host, state) in self.hosts.iter_mut().filter(|(host, _)| !is_member(host)) {
            if std::mem::replace(state, HostState::Left) == HostState::InFence {
                released.push((host.clone(), Down::FenceDone { world: self.world, seq: self.seq, pairs: Vec::new() }));
            }
        }
        released.extend(self.release());
        released
    }

    fn done(&self, seq: u64) -> Down {
        Down::FenceDone { world: self.world, seq, pairs: self.last_released.clone() }
    }

    /// Opens the next fence if nobody is missing from this one.
    fn release(&mut self) -> Vec<(HostId, Down)> {
        let is_missing = self.hosts.values().any(|state| *state == HostState::Computing);
        let is_entered = self.hosts.values().any(|state| *state == HostState::InFence);
        if is_missing || !is_entered {
            return Vec::new();
        }
        let n_bytes: usize = self.gathered.iter().map(|pair| pair.key.len() + pair.value.len() + PAIR_BYTES).sum();
        if n_bytes > MAX_FENCE_BYTES {
            return self.hosts.keys().map(|host| (host.clone(), Down::Aborted { code: 1 })).collect();
        }
        let seq = self.seq;
        self.seq += 1;
        self.last_released = std::mem::take(&mut self.gathered);
        let done = self.done(seq);
        let mut released = Vec::new();
        for (host, state) in &mut self.hosts {
            if *state == HostState::InFence {
                *state = HostState::Computing;
                released.push((host.clone(), done.clone()));
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(node: &str) -> HostId {
        HostId { node: node.to_owned(), joined: 1 }
    }

    fn fence(hosts: &[&str]) -> Fence {
        Fence::new(WorldId::FIRST, hosts.iter().map(|node| host(node)))
    }

    fn pair(key: &str) -> Vec<Pair> {
        vec![Pair { key: key.to_owned(), value: "v".to_owned() }]
    }

    fn keys(down: &Down) -> Vec<&str> {
        match down {
            Down::FenceDone { pairs, .. } => pairs.iter().map(|pair| pair.key.as_str()).collect(),
            other => panic!("no fence: {other:?}"),
        }
    }

    #[test]
    fn a_fence_opens_when_every_host_is_in_it_and_brings_what_all_put() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&host("a"), 1, pair("k")), []);
        assert_eq!(fence.enter(&host("c"), 1, pair("x")), [], "a stranger");
        let released = fence.enter(&host("b"), 1, pair("l"));
        assert_eq!(released.iter().map(|(host, _)| host.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(keys(&released[1].1), ["k", "l"]);
    }

    #[test]
    fn a_fence_that_no_frame_could_carry_ends_the_job() {
        let mut fence = fence(&["a", "b"]);
        let large = || vec![Pair { key: "k".to_owned(), value: "v".repeat(4 << 20) }];
        assert_eq!(fence.enter(&host("a"), 1, large()), []);
        let ended = fence.enter(&host("b"), 1, large());
        assert_eq!(ended, [(host("a"), Down::Aborted { code: 1 }), (host("b"), Down::Aborted { code: 1 })]);
    }

    #[test]
    fn a_host_whose_answer_got_lost_asks_again() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&host("a"), 1, pair("k")), []);
        assert_eq!(fence.enter(&host("a"), 1, pair("k")), [], "said twice, counted once");
        assert_eq!(fence.enter(&host("b"), 1, pair("l")).len(), 2);
        let again = fence.enter(&host("b"), 1, pair("l"));
        assert_eq!((again.len(), keys(&again[0].1)), (1, vec!["k", "l"]));
    }

    #[test]
    fn a_host_that_is_none_of_the_jobs_any_more_waits_for_nobody_and_nobody_for_it() {
        let mut fence = fence(&["a", "b", "c"]);
        let names = |released: Vec<(HostId, Down)>| -> Vec<String> {
            released.into_iter().map(|(host, _)| host.node).collect()
        };
        assert_eq!(fence.enter(&host("b"), 1, Vec::new()), []);
        assert_eq!(names(fence.keep(|host| host.node != "b")), ["b"], "it has waited for those that stay");
        assert_eq!(fence.enter(&host("a"), 1, pair("k")), []);
        assert_eq!(names(fence.keep(|host| host.node == "a")), ["a"], "c was the last that was missing");
        assert_eq!(names(fence.enter(&host("c"), 1, Vec::new())), ["c"], "it did not know yet");
        assert_eq!(names(fence.enter(&host("a"), 2, Vec::new())), ["a"]);
    }

    #[test]
    fn a_host_that_has_finalized_is_not_waited_for() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&host("a"), 1, pair("k")), []);
        let released = fence.finalize(&host("b"));
        assert_eq!((released.len(), released[0].0.node.as_str()), (1, "a"));
    }
}
