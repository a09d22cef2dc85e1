//! The fences of one world: a fence opens when every participating node has entered it, and delivers all pairs put.

use std::collections::BTreeMap;

use super::frames::{Down, Pair};
use super::{JobNode, WorldId};

/// The current fence of one world.
#[derive(Debug)]
pub struct Fence {
    world: WorldId,
    nodes: BTreeMap<JobNode, FenceState>,
    /// The number of the open fence.
    seq: u64,
    /// Pairs put by the nodes that are in the open fence.
    gathered: Vec<Pair>,
    n_gathered_bytes: usize,
    /// Pairs of the previous fence, for a node that repeats its request: the fence was released, but the answer was
    /// lost.
    last_released: Vec<Pair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceState {
    Computing,
    InFence,
    Finalized,
    /// The node has left the job: it waits for no other node, and no other node waits for it.
    Left,
}

/// The most bytes of pairs that a fence may deliver to each node: less than a frame between agents holds.
const MAX_FENCE_BYTES: usize = 15 << 20;

impl Fence {
    pub fn new(world: WorldId, nodes: impl IntoIterator<Item = JobNode>) -> Fence {
        Fence {
            world,
            nodes: nodes.into_iter().map(|node| (node, FenceState::Computing)).collect(),
            seq: 1,
            gathered: Vec::new(),
            n_gathered_bytes: 0,
            last_released: Vec::new(),
        }
    }

    /// Handles that all ranks of a node have entered fence `seq`. Returns the messages to the nodes.
    pub fn enter(&mut self, node: &JobNode, seq: u64, pairs: Vec<Pair>) -> Vec<(JobNode, Down)> {
        let Some(state) = self.nodes.get_mut(node) else { return Vec::new() };
        if *state == FenceState::Left {
            return vec![(node.clone(), Down::FenceDone { world: self.world, seq, pairs: Vec::new() })];
        }
        let is_repeated = seq + 1 == self.seq;
        if is_repeated {
            return vec![(node.clone(), self.done(seq))];
        }
        let enters = seq == self.seq && *state == FenceState::Computing;
        if !enters {
            return Vec::new();
        }
        *state = FenceState::InFence;
        self.n_gathered_bytes += pairs.iter().map(Pair::n_bytes).sum::<usize>();
        if self.n_gathered_bytes > MAX_FENCE_BYTES {
            return self.nodes.keys().map(|node| (node.clone(), Down::Aborted { code: 1 })).collect();
        }
        self.gathered.extend(pairs);
        self.release()
    }

    /// Handles that no rank of the node participates any more.
    pub fn finalize(&mut self, node: &JobNode) -> Vec<(JobNode, Down)> {
        match self.nodes.get_mut(node) {
            Some(state) => *state = FenceState::Finalized,
            None => return Vec::new(),
        }
        self.release()
    }

    /// Marks the nodes for which `is_member` does not hold as having left the job, whether or not they can still report
    /// that their ranks have finalized.
    pub fn keep(&mut self, is_member: impl Fn(&JobNode) -> bool) -> Vec<(JobNode, Down)> {
        let mut released = Vec::new();
        for (node, state) in self.nodes.iter_mut().filter(|(node, _)| !is_member(node)) {
            if std::mem::replace(state, FenceState::Left) == FenceState::InFence {
                released.push((node.clone(), Down::FenceDone { world: self.world, seq: self.seq, pairs: Vec::new() }));
            }
        }
        released.extend(self.release());
        released
    }

    fn done(&self, seq: u64) -> Down {
        Down::FenceDone { world: self.world, seq, pairs: self.last_released.clone() }
    }

    /// Opens the next fence if no node is missing from this one.
    fn release(&mut self) -> Vec<(JobNode, Down)> {
        let is_missing = self.nodes.values().any(|state| *state == FenceState::Computing);
        let is_entered = self.nodes.values().any(|state| *state == FenceState::InFence);
        if is_missing || !is_entered {
            return Vec::new();
        }
        let seq = self.seq;
        self.seq += 1;
        self.last_released = std::mem::take(&mut self.gathered);
        self.n_gathered_bytes = 0;
        let done = self.done(seq);
        let mut released = Vec::new();
        for (node, state) in &mut self.nodes {
            if *state == FenceState::InFence {
                *state = FenceState::Computing;
                released.push((node.clone(), done.clone()));
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> JobNode {
        JobNode { node: name.to_owned(), joined: 1 }
    }

    fn fence(nodes: &[&str]) -> Fence {
        Fence::new(WorldId::FIRST, nodes.iter().map(|name| node(name)))
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
    fn a_fence_opens_when_every_node_is_in_it_and_brings_what_all_put() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&node("a"), 1, pair("k")), []);
        assert_eq!(fence.enter(&node("c"), 1, pair("x")), [], "a stranger");
        let released = fence.enter(&node("b"), 1, pair("l"));
        assert_eq!(released.iter().map(|(node, _)| node.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(keys(&released[1].1), ["k", "l"]);
    }

    #[test]
    fn a_fence_that_no_frame_could_carry_ends_the_job() {
        let mut fence = fence(&["a", "b"]);
        let large = || vec![Pair { key: "k".to_owned(), value: "v".repeat(8 << 20) }];
        assert_eq!(fence.enter(&node("a"), 1, large()), []);
        let ended = fence.enter(&node("b"), 1, large());
        assert_eq!(ended, [(node("a"), Down::Aborted { code: 1 }), (node("b"), Down::Aborted { code: 1 })]);

        let mut fence = self::fence(&["a", "b", "c"]);
        assert_eq!(fence.enter(&node("a"), 1, large()), []);
        assert_eq!(fence.enter(&node("b"), 1, large()).len(), 3, "it does not gather what c puts, too");
    }

    #[test]
    fn as_many_short_pairs_as_a_fence_delivers_fit_into_a_frame() {
        let short = |n: usize| Pair { key: format!("{n:09}"), value: "v".repeat(9) };
        let most = MAX_FENCE_BYTES / short(0).n_bytes();
        let mut fence = fence(&["a"]);
        let released = fence.enter(&node("a"), 1, (0..most).map(short).collect());
        let [(_, done @ Down::FenceDone { .. })] = released.as_slice() else { panic!("no fence") };
        rms_wire::codec::encode(&rms_wire::PmiDown::Say(done.clone())).expect("a frame");
    }

    #[test]
    fn a_node_whose_answer_got_lost_asks_again() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&node("a"), 1, pair("k")), []);
        assert_eq!(fence.enter(&node("a"), 1, pair("k")), [], "said twice, counted once");
        assert_eq!(fence.enter(&node("b"), 1, pair("l")).len(), 2);
        let again = fence.enter(&node("b"), 1, pair("l"));
        assert_eq!((again.len(), keys(&again[0].1)), (1, vec!["k", "l"]));
    }

    #[test]
    fn a_node_that_is_none_of_the_jobs_any_more_waits_for_nobody_and_nobody_for_it() {
        let mut fence = fence(&["a", "b", "c"]);
        let names = |released: Vec<(JobNode, Down)>| -> Vec<String> {
            released.into_iter().map(|(node, _)| node.node).collect()
        };
        assert_eq!(fence.enter(&node("b"), 1, Vec::new()), []);
        assert_eq!(names(fence.keep(|node| node.node != "b")), ["b"], "it has waited for those that stay");
        assert_eq!(fence.enter(&node("a"), 1, pair("k")), []);
        assert_eq!(names(fence.keep(|node| node.node == "a")), ["a"], "c was the last that was missing");
        assert_eq!(names(fence.enter(&node("c"), 1, Vec::new())), ["c"], "it did not know yet");
        assert_eq!(names(fence.enter(&node("a"), 2, Vec::new())), ["a"]);
    }

    #[test]
    fn a_node_that_has_finalized_is_not_waited_for() {
        let mut fence = fence(&["a", "b"]);
        assert_eq!(fence.enter(&node("a"), 1, pair("k")), []);
        let released = fence.finalize(&node("b"));
        assert_eq!((released.len(), released[0].0.node.as_str()), (1, "a"));
    }
}
