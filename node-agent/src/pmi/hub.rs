//! Where the hosts of a job meet: fences that exchange what the ranks put, and published names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub key: String,
    pub value: String,
}

/// Between a host and the hub, carried by agents. The way may break and be made again: a host repeats what
/// was not answered, and nothing here minds hearing it twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubFrame {
    Up(Up),
    Down(Down),
}

/// From a host to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// All ranks of the host that take part are in fence `seq`; `pairs` were put since the one before.
    Fence {
        seq: u64,
        pairs: Vec<Pair>,
    },
    Abort {
        code: i32,
        message: String,
    },
    Publish {
        id: u64,
        service: String,
        port: String,
    },
    Unpublish {
        id: u64,
        service: String,
    },
    Lookup {
        id: u64,
        service: String,
    },
    /// No rank of the host takes part any more.
    Finalized,
}

/// From the hub to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// Every host is in fence `seq`; these are all pairs put since the one before.
    FenceDone {
        seq: u64,
        pairs: Vec<Pair>,
    },
    PublishDone {
        id: u64,
        ok: bool,
    },
    UnpublishDone {
        id: u64,
        ok: bool,
    },
    LookupDone {
        id: u64,
        port: Option<String>,
    },
    Aborted {
        code: i32,
    },
}

/// The hub of one job.
#[derive(Debug)]
pub struct Hub {
    hosts: Vec<HostState>,
    /// The fence that is open.
    seq: u64,
    /// Put by the hosts that are in the open fence.
    gathered: Vec<Pair>,
    /// Answers to a host that asks again for the fence before: it was released, but the answer got lost.
    last_released: Vec<Pair>,
    published: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostState {
    Computing,
    InFence,
    Finalized,
}

/// What a fence may bring to each host: less than a frame between agents holds.
const MAX_FENCE_BYTES: usize = 7 << 20;
/// What a pair takes beside its texts.
const PAIR_BYTES: usize = 16;
/// More names than any program publishes.
const MAX_PUBLISHED: usize = 4096;

impl Hub {
    /// Hosts without ranks take no part.
    pub fn new(ranks_per_host: &[u32]) -> Hub {
        let state = |n_ranks: &u32| if *n_ranks == 0 { HostState::Finalized } else { HostState::Computing };
        Hub {
            hosts: ranks_per_host.iter().map(state).collect(),
            seq: 1,
            gathered: Vec::new(),
            last_released: Vec::new(),
            published: BTreeMap::new(),
        }
    }

    /// Do other hosts still meet here? The ranks of a host that has nothing more to say may have gone before
    /// the others have heard of the last fence.
    pub fn is_needed(&self) -> bool {
        let has_been_used = self.seq > 1 || self.hosts.contains(&HostState::InFence);
        has_been_used && self.hosts.iter().skip(1).any(|host| *host != HostState::Finalized)
    }

    /// What the hosts are to be told now. A host that there is not, is not listened to.
    pub fn hear(&mut self, host_idx: u32, up: Up) -> Vec<(u32, Down)> {
        let Some(host) = self.hosts.get_mut(host_idx as usize) else { return Vec::new() };
        match up {
            Up::Fence { seq, pairs } => {
                let is_repeated = seq + 1 == self.seq;
                if is_repeated {
                    return vec![(host_idx, Down::FenceDone { seq, pairs: self.last_released.clone() })];
                }
                let enters = seq == self.seq && *host != HostState::InFence;
                if !enters {
                    return Vec::new();
                }
                *host = HostState::InFence;
                self.gathered.extend(pairs);
                self.release()
            }
            Up::Finalized => {
                *host = HostState::Finalized;
                self.release()
            }
            Up::Abort { code, message: _ } => {
                let others = (0..self.hosts.len() as u32).filter(|other| *other != host_idx);
                others.map(|other| (other, Down::Aborted { code })).collect()
            }
            Up::Publish { id, service, port } => {
                let is_free = self.published.get(&service).is_none_or(|known| *known == port);
                let ok = is_free && self.published.len() < MAX_PUBLISHED;
                if ok {
                    self.published.insert(service, port);
                }
                vec![(host_idx, Down::PublishDone { id, ok })]
            }
            Up::Unpublish { id, service } => {
                let ok = self.published.remove(&service).is_some();
                vec![(host_idx, Down::UnpublishDone { id, ok })]
            }
            Up::Lookup { id, service } => {
                vec![(host_idx, Down::LookupDone { id, port: self.published.get(&service).cloned() })]
            }
        }
    }

    /// Opens the next fence if nobody is missing from this one.
    fn release(&mut self) -> Vec<(u32, Down)> {
        let is_missing = self.hosts.contains(&HostState::Computing);
        let is_entered = self.hosts.contains(&HostState::InFence);
        if is_missing || !is_entered {
            return Vec::new();
        }
        let n_bytes: usize = self.gathered.iter().map(|pair| pair.key.len() + pair.value.len() + PAIR_BYTES).sum();
        if n_bytes > MAX_FENCE_BYTES {
            return (0..self.hosts.len() as u32).map(|host| (host, Down::Aborted { code: 1 })).collect();
        }
        let seq = self.seq;
        self.seq += 1;
        self.last_released = std::mem::take(&mut self.gathered);
        let mut released = Vec::new();
        for (host_idx, host) in self.hosts.iter_mut().enumerate() {
            if *host == HostState::InFence {
                *host = HostState::Computing;
                released.push((host_idx as u32, Down::FenceDone { seq, pairs: self.last_released.clone() }));
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(seq: u64, key: &str) -> Up {
        Up::Fence { seq, pairs: vec![Pair { key: key.to_owned(), value: "v".to_owned() }] }
    }

    fn keys(down: &Down) -> Vec<&str> {
        match down {
            Down::FenceDone { pairs, .. } => pairs.iter().map(|pair| pair.key.as_str()).collect(),
            other => panic!("no fence: {other:?}"),
        }
    }

    #[test]
    fn a_fence_opens_when_every_host_is_in_it_and_brings_what_all_put() {
        let mut hub = Hub::new(&[2, 0, 1]);
        assert_eq!(hub.hear(0, fence(1, "a")), []);
        let released = hub.hear(2, fence(1, "b"));
        assert_eq!(released.iter().map(|(host, _)| *host).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(keys(&released[1].1), ["a", "b"]);
    }

    #[test]
    fn a_fence_that_no_frame_could_carry_ends_the_job() {
        let mut hub = Hub::new(&[1, 1]);
        let large = |seq| Up::Fence { seq, pairs: vec![Pair { key: "k".to_owned(), value: "v".repeat(4 << 20) }] };
        assert_eq!(hub.hear(0, large(1)), []);
        assert_eq!(hub.hear(1, large(1)), [(0, Down::Aborted { code: 1 }), (1, Down::Aborted { code: 1 })]);
    }

    #[test]
    fn a_host_whose_answer_got_lost_asks_again() {
        let mut hub = Hub::new(&[1, 1]);
        assert_eq!(hub.hear(0, fence(1, "a")), []);
        assert_eq!(hub.hear(0, fence(1, "a")), [], "said twice, counted once");
        assert_eq!(hub.hear(1, fence(1, "b")).len(), 2);
        let again = hub.hear(1, fence(1, "b"));
        assert_eq!((again.len(), keys(&again[0].1)), (1, vec!["a", "b"]));
    }

    #[test]
    fn a_host_that_has_finalized_is_not_waited_for() {
        let mut hub = Hub::new(&[1, 1]);
        assert_eq!(hub.hear(0, fence(1, "a")), []);
        let released = hub.hear(1, Up::Finalized);
        assert_eq!((released.len(), released[0].0), (1, 0));
    }

    #[test]
    fn the_hub_is_needed_from_the_first_fence_until_the_others_have_finalized() {
        let mut hub = Hub::new(&[1, 1]);
        assert!(!hub.is_needed(), "perhaps it is no program of MPI");
        hub.hear(0, fence(1, "a"));
        hub.hear(1, fence(1, "b"));
        hub.hear(0, Up::Finalized);
        assert!(hub.is_needed());
        hub.hear(1, Up::Finalized);
        assert!(!hub.is_needed());
    }

    #[test]
    fn names_are_published_looked_up_and_taken_back() {
        let mut hub = Hub::new(&[1, 1]);
        let publish = |port: &str| Up::Publish { id: 1, service: "s".to_owned(), port: port.to_owned() };
        let lookup = || Up::Lookup { id: 2, service: "s".to_owned() };
        assert_eq!(hub.hear(0, publish("p")), [(0, Down::PublishDone { id: 1, ok: true })]);
        assert_eq!(hub.hear(1, publish("q")), [(1, Down::PublishDone { id: 1, ok: false })]);
        assert_eq!(hub.hear(1, lookup()), [(1, Down::LookupDone { id: 2, port: Some("p".to_owned()) })]);
        let unpublish = Up::Unpublish { id: 3, service: "s".to_owned() };
        assert_eq!(hub.hear(1, unpublish), [(1, Down::UnpublishDone { id: 3, ok: true })]);
        assert_eq!(hub.hear(1, lookup()), [(1, Down::LookupDone { id: 2, port: None })]);
    }

    #[test]
    fn an_abort_reaches_the_others_and_strangers_reach_nobody() {
        let mut hub = Hub::new(&[1, 1, 1]);
        let abort = Up::Abort { code: 3, message: String::new() };
        assert_eq!(hub.hear(1, abort), [(0, Down::Aborted { code: 3 }), (2, Down::Aborted { code: 3 })]);
        assert_eq!(hub.hear(9, fence(1, "a")), []);
    }
}
