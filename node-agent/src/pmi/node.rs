//! All ranks of a job on one node: routes each message to its world, and starts and ends worlds.

use std::collections::{BTreeMap, BTreeSet};

use super::frames::{Down, Pair, Part, Placement, Up};
use super::ranks::{Ending, Member, Out, Ranks, WorldInit};
use super::{RankId, VALLEN_MAX, WorldId};
use crate::sys::End;

/// The key of the process mapping: which ranks share a node.
pub const MAPPING_KEY: &str = "PMI_process_mapping";

/// The most bytes that the key-value spaces of all worlds may take: they are kept in the job's memory on each of its
/// nodes. MPICH puts less than 1 KiB for each rank, including the overhead of a pair: this is enough for 32,768 ranks.
pub(super) const MAX_KVS_BYTES: usize = 32 << 20;

/// The ranks of one node of one job.
#[derive(Debug)]
pub struct NodeRanks {
    worlds: BTreeMap<WorldId, World>,
    tasks: BTreeMap<u32, (WorldId, usize)>,
    /// Worlds that were ordered to start here, whether or not they did: a repeated order starts nothing.
    ordered: BTreeSet<WorldId>,
    /// Why a world could not be started here; kept until the hub cancels it.
    failed: BTreeMap<WorldId, String>,
    /// Worlds that were cancelled before they had started here.
    cancelled: BTreeSet<WorldId>,
    /// How many ranks still participate, as reported to the hub but not yet acknowledged.
    unacknowledged: BTreeMap<WorldId, u32>,
    /// Whether any process here has used MPI. A node without ranks of its own exists for ranks that come later.
    is_used: bool,
    is_aborted: bool,
    is_over: bool,
    /// How the ranks here are being ended by order, if so.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct World {
    ranks: Ranks,
    /// How many ranks still participate, as last reported to the hub.
    n_reported: u32,
    /// The ranks are being killed because others of the same spawn could not be started.
    is_cancelled: bool,
}

impl NodeRanks {
    /// Creates the ranks of a node; `own` are its initial ranks.
    pub fn new(own: WorldInit) -> NodeRanks {
        let mut node = NodeRanks {
            worlds: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ordered: BTreeSet::from([own.world]),
            failed: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            unacknowledged: BTreeMap::new(),
            is_used: own.members.is_empty(),
            is_aborted: false,
            is_over: false,
            ending: None,
        };
        if !own.members.is_empty() {
            node.insert(own);
        }
        node
    }

    fn insert(&mut self, birth: WorldInit) {
        for (local, member) in birth.members.iter().enumerate() {
            self.tasks.insert(member.task, (birth.world, local));
        }
        let (id, n_reported) = (birth.world, birth.members.len() as u32);
        self.worlds.insert(id, World { ranks: Ranks::new(birth), n_reported, is_cancelled: false });
    }

    /// Returns the message of a node without ranks, so that the hub can place ranks there.
    pub fn opening(&self) -> Option<Up> {
        let is_idle = self.worlds.is_empty() && !self.is_over;
        is_idle.then_some(Up::Hello)
    }

    /// Returns whether the program is known to use MPI.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns whether ranks may still be placed on this node, or ranks are here that others need.
    pub fn is_kept(&self) -> bool {
        self.is_used && !self.is_over && !self.is_aborted
    }

    /// Returns whether the exit status of this task is ignored, because its spawn failed.
    pub fn is_discarded(&self, task: u32) -> bool {
        let world = self.tasks.get(&task).and_then(|(world, _)| self.worlds.get(world));
        world.is_some_and(|world| world.is_cancelled)
    }

    /// Handles bytes from the socket of a task.
    pub fn bytes(&mut self, task: u32, bytes: &[u8]) -> Vec<Out> {
        let mut outs = Vec::new();
        let n_kvs_bytes: usize = self.worlds.values().map(|world| world.ranks.n_kvs_bytes()).sum();
        let Some((id, local)) = self.tasks.get(&task).copied() else { return outs };
        let Some(world) = self.worlds.get_mut(&id).filter(|world| !world.is_cancelled) else { return outs };
        if n_kvs_bytes > MAX_KVS_BYTES {
            let most = MAX_KVS_BYTES >> 20;
            let reason = format!("cannot go on: the ranks have put more than {most} MiB of keys and values in all");
            world.ranks.abort(local, 1, reason, &mut outs);
        }
        world.ranks.bytes(local, bytes, &mut outs);
        self.is_used |= world.ranks.uses_mpi();
        // If ranks finalize one by one, they are reported as their processes end; usually all finalize together.
        if world.ranks.n_remaining() == 0 {
            self.report_remaining(id, &mut outs);
        }
        self.note_abort(&outs);
        outs
    }

    /// Ends the job because a task does not read what it is sent.
    pub fn unread(&mut self, task: u32) -> Vec<Out> {
        let mut outs = Vec::new();
        let Some((id, local)) = self.tasks.get(&task).copied() else { return outs };
        if let Some(world) = self.worlds.get_mut(&id) {
            world.ranks.abort(local, 1, "does not read from its process manager".to_owned(), &mut outs);
        }
        self.note_abort(&outs);
        outs
    }

    /// Records that the ranks here are being ended by order.
    pub fn end(&mut self, ending: Ending) -> Vec<Out> {
        let mut outs = Vec::new();
        self.ending = self.ending.max(Some(ending));
        self.worlds.values_mut().for_each(|world| world.ranks.end(ending, &mut outs));
        outs
    }

    /// Handles the end of a task's process.
    pub fn task_ended(&mut self, task: u32, end: End) -> Vec<Out> {
        let mut outs = Vec::new();
        let Some((id, local)) = self.tasks.remove(&task) else { return outs };
        let Some(world) = self.worlds.get_mut(&id) else { return outs };
        world.ranks.task_ended(local, end, &mut outs);
        let uses_mpi = world.ranks.uses_mpi() || id != WorldId::FIRST;
        let have_ended = world.ranks.have_ended();
        if uses_mpi || have_ended {
            self.report_remaining(id, &mut outs);
        }
        if have_ended {
            self.worlds.remove(&id);
        }
        self.note_abort(&outs);
        outs
    }

    fn report_remaining(&mut self, id: WorldId, outs: &mut Vec<Out>) {
        let Some(world) = self.worlds.get_mut(&id) else { return };
        let n_ranks = world.ranks.n_remaining();
        if n_ranks < world.n_reported {
            world.n_reported = n_ranks;
            self.remaining(id, n_ranks, outs);
        }
    }

    fn remaining(&mut self, world: WorldId, n_ranks: u32, outs: &mut Vec<Out>) {
        self.unacknowledged.insert(world, n_ranks);
        outs.push(Out::Hub(Up::Remaining { world, n_ranks }));
    }

    /// Treats an abort in one world as an abort of the job.
    fn note_abort(&mut self, outs: &[Out]) {
        let aborts = outs.iter().any(|out| matches!(out, Out::Abort { .. }));
        if aborts && !self.is_aborted {
            self.is_aborted = true;
            self.worlds.values_mut().for_each(|world| world.ranks.mute());
        }
    }

    /// Handles a message of the hub.
    pub fn receive(&mut self, down: Down) -> Vec<Out> {
        let mut outs = Vec::new();
        match down {
            Down::FenceDone { world, seq, pairs } => {
                if let Some(world) = self.worlds.get_mut(&world) {
                    world.ranks.fence_done(seq, pairs, &mut outs);
                }
            }
            Down::Answer { to, id, answer } => {
                if let Some(world) = self.worlds.get_mut(&to.world) {
                    world.ranks.answered(to.rank, id, answer, &mut outs);
                }
            }
            Down::Place(placement) => self.place(placement, &mut outs),
            Down::Cancel { world } => self.cancel(world, &mut outs),
            Down::Noted { world, n_ranks } => {
                if self.unacknowledged.get(&world) == Some(&n_ranks) {
                    self.unacknowledged.remove(&world);
                }
            }
            Down::Aborted { code } => self.abort(code, "the ranks on another node aborted", &mut outs),
            Down::Over => {
                self.is_over = true;
                let is_stuck = self.worlds.values().any(|world| world.ranks.has_waiting_ranks());
                if is_stuck && self.ending.is_none() {
                    self.abort(1, "the first node of the job has left", &mut outs);
                }
                outs.push(Out::Hub(Up::Bye));
            }
        }
        outs
    }

    fn abort(&mut self, code: i32, reason: &str, outs: &mut Vec<Out>) {
        if !self.is_aborted {
            outs.push(Out::Abort { code, reason: reason.to_owned() });
            self.note_abort(outs);
        }
    }

    fn place(&mut self, placement: Placement, outs: &mut Vec<Out>) {
        let world = placement.world;
        let is_new = self.ordered.insert(world);
        if is_new {
            self.is_used = true;
            outs.push(Out::Start(placement));
        } else {
            let problem = self.failed.get(&world).cloned();
            outs.push(Out::Hub(Up::Placed { world, problem }));
        }
    }

    /// Handles that [`Out::Start`] was carried out; with a problem, possibly only in part.
    pub fn started(&mut self, placement: &Placement, problem: Option<String>, n_started: usize) -> Vec<Out> {
        let mut outs = Vec::new();
        let world = placement.world;
        let problem = problem.or(self.cancelled.remove(&world).then(|| "its start was called off".to_owned()));
        let mut birth = birth(placement);
        birth.members.truncate(n_started);
        let is_empty = birth.members.is_empty();
        if !is_empty {
            self.insert(birth);
        }
        outs.push(Out::Hub(Up::Placed { world, problem: problem.clone() }));
        if let Some(problem) = problem {
            self.failed.insert(world, problem);
            self.kill(world, &mut outs);
            if is_empty {
                self.remaining(world, 0, &mut outs);
            }
        }
        outs
    }

    /// Cancels a world whose ranks could not be started elsewhere.
    fn cancel(&mut self, world: WorldId, outs: &mut Vec<Out>) {
        self.failed.remove(&world);
        // If the order to start it arrives later, it starts nothing.
        self.ordered.insert(world);
        match self.worlds.get(&world) {
            Some(_) => self.kill(world, outs),
            None => {
                self.cancelled.insert(world);
                self.remaining(world, 0, outs);
            }
        }
    }

    fn kill(&mut self, world: WorldId, outs: &mut Vec<Out>) {
        if let Some(world) = self.worlds.get_mut(&world) {
            world.is_cancelled = true;
            world.ranks.mute();
            outs.push(Out::Kill { tasks: world.ranks.tasks().collect() });
        }
    }

    pub fn hostfiles_read(&mut self, from: RankId, contents: Vec<Result<String, String>>) -> Vec<Out> {
        let mut outs = Vec::new();
        if let Some(world) = self.worlds.get_mut(&from.world) {
            world.ranks.hostfiles_read(from.rank, contents, &mut outs);
        }
        outs
    }

    /// Returns what to send again after the connection to the hub was restored; nothing for a program that does not use
    /// MPI.
    pub fn relinked(&self) -> Vec<Up> {
        if !self.is_used {
            return Vec::new();
        }
        let remaining =
            self.unacknowledged.iter().map(|(world, n_ranks)| Up::Remaining { world: *world, n_ranks: *n_ranks });
        let unanswered = self.worlds.values().flat_map(|world| world.ranks.unanswered());
        let bye = self.is_over.then_some(Up::Bye);
        std::iter::once(Up::Hello).chain(unanswered).chain(remaining).chain(bye).collect()
    }
}

/// Returns the initial state of the first world's ranks on a node: `first_rank..first_rank + n_local` of all.
pub fn first_birth(
    kvsname: &str,
    n_ranks: u32,
    universe: u32,
    mapping: String,
    first_rank: u32,
    n_local: u32,
) -> WorldInit {
    let member = |rank| Member { rank, task: rank, appnum: 0 };
    WorldInit {
        world: WorldId::FIRST,
        kvsname: kvsname.to_owned(),
        n_ranks,
        universe,
        pairs: mapping_pair(mapping).into_iter().collect(),
        members: (first_rank..first_rank.saturating_add(n_local)).map(member).collect(),
    }
}

/// Returns the pair of the mapping. A mapping that is too long for a value is omitted: the ranks then ask each other.
pub fn mapping_pair(mapping: String) -> Option<Pair> {
    let fits = mapping.len() < VALLEN_MAX;
    fits.then(|| Pair { key: MAPPING_KEY.to_owned(), value: mapping })
}

fn birth(placement: &Placement) -> WorldInit {
    let Placement { world, kvsname, n_ranks, universe, first_task, parts, pairs } = placement;
    let members = parts.iter().flat_map(ranks_of).zip(*first_task..);
    WorldInit {
        world: *world,
        kvsname: kvsname.clone(),
        n_ranks: *n_ranks,
        universe: *universe,
        pairs: pairs.clone(),
        members: members.map(|((rank, appnum), task)| Member { rank, task, appnum }).collect(),
    }
}

fn ranks_of(part: &Part) -> impl Iterator<Item = (u32, u32)> + '_ {
    (part.first_rank..part.first_rank.saturating_add(part.n_ranks)).map(|rank| (rank, part.appnum))
}
