//! The meeting point of a job's nodes: fences, published names, and the placement of spawned ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::fence::Fence;
use super::frames::{Command, Down, HubAnswer, Pair, Part, Placement, Question, Up};
use super::node::mapping_pair;
use super::place::{Block, PlaceError, Room, place, process_mapping};
use super::{JobNode, RankId, WorldId};

/// One node of the job as the hub sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: JobNode,
    /// How many ranks the node has room for.
    pub capacity: u32,
    /// The job is about to leave the node: no ranks are placed there, not even by name.
    pub is_departing: bool,
}

/// An action that the hub requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubOut {
    Down(JobNode, Down),
    /// Released ranks may be about to leave: the caller calls [`Hub::paused`] after giving them some time.
    Pause,
    /// Requests more nodes from the server; the caller calls [`Hub::grown`] with the answer.
    RequestNodes(Growth),
    /// The reason why all ranks end or a spawn has failed, for readers of the job's output.
    WriteError(String),
}

/// A request for more nodes. The answer may be lost with an agent, so the request is repeated until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub seq: u64,
    pub nodes: u32,
    /// The job cannot use fewer nodes.
    pub least: u32,
}

/// The answer to a [`Growth`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grown {
    /// The nodes come with this generation of the job's nodes.
    Granted {
        generation: u32,
    },
    Refused {
        reason: String,
    },
}

/// The hub of one job.
#[derive(Debug)]
pub struct Hub {
    /// The name of the first key-value space; a number is appended for the others.
    kvsname: String,
    /// The node that the hub is on.
    own: JobNode,
    generation: u32,
    members: Vec<Member>,
    /// How many ranks a node that joins later will have room for.
    new_node_capacity: u32,
    worlds: BTreeMap<WorldId, World>,
    next_world: u32,
    next_task: u32,
    published: BTreeMap<String, String>,
    /// The latest question of each rank, and its answer if there is one, kept because it may be lost.
    questions: BTreeMap<RankId, (u64, Option<HubAnswer>)>,
    /// Spawns for which there is no room yet.
    waiting: VecDeque<PendingSpawn>,
    request: Option<NodeRequest>,
    n_requests: u64,
    /// Nodes that have sent anything: nodes of a program without MPI send nothing.
    heard: BTreeSet<JobNode>,
    bye: BTreeSet<JobNode>,
    aborted: Option<i32>,
}

#[derive(Debug)]
struct World {
    fence: Fence,
    /// How many ranks on each node still participate.
    remaining: BTreeMap<JobNode, u32>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The nodes in `orders` have not yet confirmed that they have started their ranks.
    Placing {
        requester: Requester,
        n_ranks: u32,
        orders: BTreeMap<JobNode, Placement>,
    },
    Alive,
    Cancelled,
}

/// The rank that gets the result of a spawn.
#[derive(Clone, Debug)]
struct Requester {
    node: JobNode,
    rank: RankId,
    id: u64,
}

#[derive(Debug)]
struct PendingSpawn {
    requester: Requester,
    commands: Vec<Command>,
    pairs: Vec<Pair>,
    /// How often more nodes were requested for this spawn.
    n_tries: u32,
}

/// The one open request for more nodes, made for the first waiting spawn.
#[derive(Debug)]
struct NodeRequest {
    rank: RankId,
    phase: RequestPhase,
}

#[derive(Clone, Copy, Debug)]
enum RequestPhase {
    /// The request is not sent yet: there may be room soon.
    Pausing,
    Open(Growth),
    /// The nodes come with this generation.
    Granted {
        generation: u32,
    },
}

/// What the hub still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Nodes that have not acknowledged the end.
    Bye,
    Ranks,
}

/// The most published names, more than any program needs.
const MAX_PUBLISHED: usize = 4096;
/// How many spawns may wait for room at a time; further ones are refused.
const MAX_WAITING: usize = 64;
/// How often nodes are requested for one spawn: a grant may turn out too small, because nodes differ.
const MAX_TRIES: u32 = 2;

impl Hub {
    /// Creates the hub of a job with `n_ranks` of the first world on each node, in the order of `members`, whose first
    /// node is the hub's own.
    pub fn new(kvsname: String, members: Vec<Member>, n_ranks: &[u32], new_node_capacity: u32, next_task: u32) -> Hub {
        let ranks: BTreeMap<JobNode, u32> = members
            .iter()
            .zip(n_ranks)
            .filter(|(_, n_ranks)| **n_ranks > 0)
            .map(|(member, n_ranks)| (member.node.clone(), *n_ranks))
            .collect();
        let fence = Fence::new(WorldId::FIRST, ranks.keys().cloned());
        let first = World { fence, remaining: ranks, phase: Phase::Alive };
        let nowhere = JobNode { node: String::new(), joined: 0 };
        Hub {
            kvsname,
            own: members.first().map_or(nowhere, |member| member.node.clone()),
            generation: members.iter().map(|member| member.node.joined).max().unwrap_or(1),
            members,
            new_node_capacity: new_node_capacity.max(1),
            worlds: BTreeMap::from([(WorldId::FIRST, first)]),
            next_world: 1,
            next_task,
            published: BTreeMap::new(),
            questions: BTreeMap::new(),
            waiting: VecDeque::new(),
            request: None,
            n_requests: 0,
            heard: BTreeSet::new(),
            bye: BTreeSet::new(),
            aborted: None,
        }
    }

    /// Returns what the hub still waits for.
    pub fn need(&self) -> Need {
        let is_other = |node: &JobNode| *node != self.own && self.heard.contains(node);
        let mut remaining = self.worlds.values().flat_map(|world| &world.remaining);
        let is_placing = self.worlds.values().any(|world| matches!(world.phase, Phase::Placing { .. }));
        if is_placing || remaining.any(|(node, n_ranks)| *n_ranks > 0 && is_other(node) && self.is_member(node)) {
            return Need::Ranks;
        }
        let is_missing = |member: &Member| is_other(&member.node) && !self.bye.contains(&member.node);
        if self.members.iter().any(is_missing) { Need::Bye } else { Need::Nothing }
    }

    /// Returns whether no known rank is left. Ranks of a node that was taken from the job do not count: the node may be
    /// lost before it has reported their end.
    fn is_over(&self) -> bool {
        let is_present = |(node, n_ranks): (&JobNode, &u32)| {
            *n_ranks > 0 && (*node == self.own || self.heard.contains(node) && self.is_member(node))
        };
        !self.worlds.values().any(|world| world.remaining.iter().any(is_present))
    }

    /// Handles a change of the job's nodes. Messages of nodes that left are accepted until their ranks have gone.
    pub fn update(&mut self, members: Vec<Member>, generation: u32) -> Vec<HubOut> {
        let mut outs = Vec::new();
        if generation < self.generation {
            return outs;
        }
        self.generation = generation;
        // The capacity of a known node does not change because others join.
        let known = std::mem::take(&mut self.members);
        let as_known = |new: Member| {
            let old = known.iter().find(|old| old.node == new.node);
            Member { capacity: old.map_or(new.capacity, |old| old.capacity), ..new }
        };
        self.members = members.into_iter().map(as_known).collect();
        let lost: Vec<WorldId> =
            self.worlds.iter().filter(|(_, world)| self.waits_for_removed_node(world)).map(|(id, _)| *id).collect();
        for world in lost {
            self.cancel(world, "a node was taken from the job", &mut outs);
        }
        let members = &self.members;
        let is_member = |node: &JobNode| members.iter().any(|member| member.node == *node);
        for world in self.worlds.values_mut() {
            let downs = world.fence.keep(is_member);
            outs.extend(downs.into_iter().map(|(to, down)| HubOut::Down(to, down)));
        }
        self.settle(&mut outs);
        outs
    }

    fn is_member(&self, node: &JobNode) -> bool {
        self.members.iter().any(|member| member.node == *node)
    }

    fn waits_for_removed_node(&self, world: &World) -> bool {
        match &world.phase {
            Phase::Placing { orders, .. } => orders.keys().any(|node| !self.is_member(node)),
            Phase::Alive | Phase::Cancelled => false,
        }
    }

    /// Handles a message of a node and returns the messages to the nodes. Messages of unknown nodes are ignored.
    pub fn receive(&mut self, node: &JobNode, up: Up) -> Vec<HubOut> {
        let mut outs = Vec::new();
        let has_ranks = self.worlds.values().any(|world| world.remaining.contains_key(node));
        if !self.is_member(node) && !has_ranks {
            return outs;
        }
        let is_new = self.heard.insert(node.clone());
        let is_hello = up == Up::Hello;
        match up {
            Up::Hello => self.resend(node, &mut outs),
            Up::Fence { world, seq, pairs } => {
                if let Some(world) = self.worlds.get_mut(&world) {
                    let downs = world.fence.enter(node, seq, pairs);
                    outs.extend(downs.into_iter().map(|(to, down)| HubOut::Down(to, down)));
                }
            }
            Up::Abort { code, message } => {
                // Later errors are consequences of the first one.
                if self.aborted.is_none() {
                    self.aborted = Some(code);
                    outs.push(HubOut::WriteError(message));
                }
                let others = self.members.iter().filter(|other| other.node != *node);
                outs.extend(others.map(|other| HubOut::Down(other.node.clone(), Down::Aborted { code })));
            }
            Up::Ask { from, id, question } => {
                self.ask(Requester { node: node.clone(), rank: from, id }, question, &mut outs)
            }
            Up::Placed { world, problem: None } => self.placed(node, world, &mut outs),
            Up::Placed { world, problem: Some(problem) } => self.cancel(world, &problem, &mut outs),
            Up::Remaining { world, n_ranks } => {
                outs.push(HubOut::Down(node.clone(), Down::Noted { world, n_ranks }));
                self.remaining(node, world, n_ranks, &mut outs);
            }
            Up::Bye => drop(self.bye.insert(node.clone())),
        }
        // The node may have missed the message to the others.
        if (is_new || is_hello) && self.is_over() && *node != self.own {
            outs.push(HubOut::Down(node.clone(), Down::Over));
        }
        outs
    }

    /// Repeats what the node may have missed, except for the answers to its questions, which it requests itself.
    fn resend(&self, node: &JobNode, outs: &mut Vec<HubOut>) {
        if let Some(code) = self.aborted {
            outs.push(HubOut::Down(node.clone(), Down::Aborted { code }));
        }
        for (id, world) in &self.worlds {
            let is_there = world.remaining.get(node).is_some_and(|n_ranks| *n_ranks > 0);
            match &world.phase {
                Phase::Placing { orders, .. } => {
                    let order = orders.get(node).cloned().map(Down::Place);
                    outs.extend(order.map(|order| HubOut::Down(node.clone(), order)));
                }
                Phase::Cancelled if is_there => outs.push(HubOut::Down(node.clone(), Down::Cancel { world: *id })),
                Phase::Cancelled | Phase::Alive => {}
            }
        }
    }

    fn remaining(&mut self, node: &JobNode, id: WorldId, n_ranks: u32, outs: &mut Vec<HubOut>) {
        let Some(world) = self.worlds.get_mut(&id) else { return };
        let Some(known) = world.remaining.get_mut(node) else { return };
        // An older report that arrives late has the larger number.
        if n_ranks >= *known {
            return;
        }
        *known = n_ranks;
        // Until all ranks are placed, this may be a node on which they could not be started: no rank passes a fence in
        // which others will always be missing.
        let is_alive = matches!(world.phase, Phase::Alive);
        if n_ranks == 0 && is_alive {
            let downs = world.fence.finalize(node);
            outs.extend(downs.into_iter().map(|(to, down)| HubOut::Down(to, down)));
        }
        let is_gone = world.remaining.values().all(|n_ranks| *n_ranks == 0);
        let is_placing = matches!(world.phase, Phase::Placing { .. });
        if is_gone && !is_placing {
            self.worlds.remove(&id);
            self.questions.retain(|rank, _| rank.world != id);
        }
        self.settle(outs);
        if self.is_over() {
            let others = self.heard.iter().filter(|other| **other != self.own);
            outs.extend(others.map(|other| HubOut::Down(other.clone(), Down::Over)));
        }
    }

    fn ask(&mut self, requester: Requester, question: Question, outs: &mut Vec<HubOut>) {
        if !self.worlds.contains_key(&requester.rank.world) {
            return;
        }
        if let Some((id, answer)) = self.questions.get(&requester.rank) {
            if *id == requester.id {
                // A repeated question: the answer was lost, or is yet to come.
                let again = answer.clone().map(|answer| Down::Answer { to: requester.rank, id: requester.id, answer });
                outs.extend(again.map(|again| HubOut::Down(requester.node, again)));
                return;
            }
            if *id > requester.id {
                return;
            }
        }
        self.questions.insert(requester.rank, (requester.id, None));
        match question {
            Question::Publish { service, port } => {
                let is_free = self.published.get(&service).is_none_or(|known| *known == port);
                let ok = is_free && self.published.len() < MAX_PUBLISHED;
                if ok {
                    self.published.insert(service, port);
                }
                self.answer(&requester, HubAnswer::Published { ok }, outs);
            }
            Question::Unpublish { service } => {
                let ok = self.published.remove(&service).is_some();
                self.answer(&requester, HubAnswer::Unpublished { ok }, outs);
            }
            Question::Lookup { service } => {
                let port = self.published.get(&service).cloned();
                self.answer(&requester, HubAnswer::Found { port }, outs);
            }
            Question::Spawn { commands, pairs } => {
                self.spawn(PendingSpawn { requester, commands, pairs, n_tries: 0 }, outs)
            }
        }
    }

    fn answer(&mut self, requester: &Requester, answer: HubAnswer, outs: &mut Vec<HubOut>) {
        self.questions.insert(requester.rank, (requester.id, Some(answer.clone())));
        let answer = Down::Answer { to: requester.rank, id: requester.id, answer };
        outs.push(HubOut::Down(requester.node.clone(), answer));
    }

    fn refuse(&mut self, requester: &Requester, reason: String, outs: &mut Vec<HubOut>) {
        outs.push(HubOut::WriteError(format!("a spawn by {} has failed: {reason}", requester.rank)));
        self.answer(requester, HubAnswer::NotSpawned { reason }, outs);
    }

    /// Returns how many more ranks each node has room for.
    fn rooms(&self) -> Vec<Room> {
        let room = |member: &Member| {
            let n_ranks: u32 = self.worlds.values().filter_map(|world| world.remaining.get(&member.node)).sum();
            Room { node: member.node.clone(), n_free: member.capacity.saturating_sub(n_ranks) }
        };
        self.members.iter().filter(|member| !member.is_departing).map(room).collect()
    }

    fn spawn(&mut self, pending: PendingSpawn, outs: &mut Vec<HubOut>) {
        let rooms = self.rooms();
        match place(&pending.commands, &rooms) {
            Ok(blocks) => self.begin(pending, &blocks, &rooms, outs),
            Err(PlaceError::Full { .. }) if self.waiting.len() < MAX_WAITING => {
                self.waiting.push_back(pending);
                self.settle(outs);
            }
            Err(error) => self.refuse(&pending.requester, error.to_string(), outs),
        }
    }

    /// Handles a change of room or nodes: places what fits now, and requests nodes for the first spawn that does not
    /// fit.
    fn settle(&mut self, outs: &mut Vec<HubOut>) {
        let is_complete = match self.request.as_ref().map(|request| request.phase) {
            Some(RequestPhase::Granted { generation }) => generation <= self.generation,
            Some(RequestPhase::Pausing | RequestPhase::Open(_)) | None => false,
        };
        if is_complete {
            self.request = None;
        }
        for pending in std::mem::take(&mut self.waiting) {
            let own_phase = self
                .request
                .as_ref()
                .filter(|request| request.rank == pending.requester.rank)
                .map(|request| request.phase);
            let rooms = self.rooms();
            match (place(&pending.commands, &rooms), own_phase) {
                // The nodes requested for it are on the way.
                (_, Some(RequestPhase::Open(_) | RequestPhase::Granted { .. })) => self.waiting.push_back(pending),
                (Ok(blocks), pausing) => {
                    if pausing.is_some() {
                        self.request = None;
                    }
                    self.begin(pending, &blocks, &rooms, outs);
                }
                (Err(PlaceError::Full { n_missing }), _) => self.wait(pending, n_missing, outs),
                (Err(error), _) => self.refuse(&pending.requester, error.to_string(), outs),
            }
        }
    }

    fn wait(&mut self, mut pending: PendingSpawn, n_missing: u32, outs: &mut Vec<HubOut>) {
        if self.request.is_some() {
            return self.waiting.push_back(pending);
        }
        if pending.n_tries >= MAX_TRIES {
            let reason = PlaceError::Full { n_missing }.to_string();
            return self.refuse(&pending.requester, reason, outs);
        }
        pending.n_tries += 1;
        self.request = Some(NodeRequest { rank: pending.requester.rank, phase: RequestPhase::Pausing });
        self.waiting.push_back(pending);
        outs.push(HubOut::Pause);
    }

    /// Handles the end of the pause: requests nodes if there is still no room.
    pub fn paused(&mut self) -> Vec<HubOut> {
        let mut outs = Vec::new();
        self.settle(&mut outs);
        let Some(NodeRequest { rank, phase: RequestPhase::Pausing }) = &self.request else { return outs };
        let pending = self.waiting.iter().find(|pending| pending.requester.rank == *rank);
        let placed = pending.map(|pending| place(&pending.commands, &self.rooms()));
        if let (Some(Err(PlaceError::Full { n_missing })), Some(request)) = (placed, &mut self.request) {
            self.n_requests += 1;
            let nodes = n_missing.div_ceil(self.new_node_capacity);
            // A spawn starts all ranks or none: fewer nodes would not be enough.
            let growth = Growth { seq: self.n_requests, nodes, least: nodes };
            request.phase = RequestPhase::Open(growth);
            outs.push(HubOut::RequestNodes(growth));
        }
        outs
    }

    /// Returns the request for nodes that has no answer yet.
    pub fn unanswered(&self) -> Option<Growth> {
        match self.request.as_ref()?.phase {
            RequestPhase::Open(growth) => Some(growth),
            RequestPhase::Pausing | RequestPhase::Granted { .. } => None,
        }
    }

    /// Handles the server's answer to a [`HubOut::RequestNodes`].
    pub fn grown(&mut self, seq: u64, grown: Grown) -> Vec<HubOut> {
        let mut outs = Vec::new();
        let is_open = self.unanswered().is_some_and(|growth| growth.seq == seq);
        let n_nodes = self.unanswered().map_or(0, |growth| growth.nodes);
        let Some(request) = self.request.as_mut().filter(|_| is_open) else { return outs };
        match grown {
            Grown::Granted { generation } => request.phase = RequestPhase::Granted { generation },
            Grown::Refused { reason } => {
                let rank = request.rank;
                self.request = None;
                let position = self.waiting.iter().position(|pending| pending.requester.rank == rank);
                if let Some(pending) = position.and_then(|position| self.waiting.remove(position)) {
                    let nodes = if n_nodes == 1 { "node" } else { "nodes" };
                    self.refuse(&pending.requester, format!("asked for {n_nodes} {nodes}, {reason}"), &mut outs);
                }
            }
        }
        self.settle(&mut outs);
        outs
    }

    /// Creates a world of the ranks, for which there is room.
    fn begin(&mut self, pending: PendingSpawn, blocks: &[Block], rooms: &[Room], outs: &mut Vec<HubOut>) {
        let world = WorldId(self.next_world);
        self.next_world += 1;
        let universe = self.members.iter().map(|member| member.capacity).sum();
        let n_ranks = blocks.iter().map(|block| block.n_ranks).sum();
        let mapping = process_mapping(blocks.iter().map(|block| (block.room, block.n_ranks)));
        let pairs: Vec<Pair> = mapping_pair(mapping).into_iter().chain(pending.pairs).collect();
        let mut orders: BTreeMap<JobNode, Placement> = BTreeMap::new();
        let mut first_rank = 0;
        for block in blocks {
            let command = &pending.commands[block.command];
            let order = orders.entry(rooms[block.room].node.clone()).or_insert_with(|| Placement {
                world,
                kvsname: format!("{}_{world}", self.kvsname),
                n_ranks,
                universe,
                first_task: 0,
                parts: Vec::new(),
                pairs: pairs.clone(),
            });
            order.parts.push(Part {
                first_rank,
                n_ranks: block.n_ranks,
                appnum: block.command as u32,
                argv: command.argv.clone(),
                wdir: command.wdir.clone(),
                path: command.path.clone(),
            });
            first_rank += block.n_ranks;
        }
        let mut remaining = BTreeMap::new();
        for (node, order) in &mut orders {
            let n_here = order.parts.iter().map(|part| part.n_ranks).sum();
            order.first_task = self.next_task;
            // A task number that is assigned twice only makes two tasks share the name of an output file.
            self.next_task = self.next_task.saturating_add(n_here);
            remaining.insert(node.clone(), n_here);
        }
        let downs = orders.iter().map(|(node, order)| HubOut::Down(node.clone(), Down::Place(order.clone())));
        outs.extend(downs);
        let fence = Fence::new(world, orders.keys().cloned());
        let phase = Phase::Placing { requester: pending.requester, n_ranks, orders };
        self.worlds.insert(world, World { fence, remaining, phase });
    }

    fn placed(&mut self, node: &JobNode, id: WorldId, outs: &mut Vec<HubOut>) {
        let Some(world) = self.worlds.get_mut(&id) else { return };
        let Phase::Placing { requester, n_ranks, orders } = &mut world.phase else { return };
        orders.remove(node);
        if orders.is_empty() {
            let (requester, n_ranks) = (requester.clone(), *n_ranks);
            world.phase = Phase::Alive;
            for (node, _) in world.remaining.iter().filter(|(_, n_ranks)| **n_ranks == 0) {
                let downs = world.fence.finalize(node);
                outs.extend(downs.into_iter().map(|(to, down)| HubOut::Down(to, down)));
            }
            self.answer(&requester, HubAnswer::Spawned { n_ranks }, outs);
            self.remove_if_gone(id);
        }
    }

    /// Cancels a world that cannot be completed: no part of it may remain.
    fn cancel(&mut self, id: WorldId, problem: &str, outs: &mut Vec<HubOut>) {
        let Some(world) = self.worlds.get_mut(&id) else { return };
        let Phase::Placing { requester, .. } = &world.phase else { return };
        let requester = requester.clone();
        world.phase = Phase::Cancelled;
        for (node, n_ranks) in &mut world.remaining {
            // A node that has left the job kills its ranks without a message.
            let is_member = self.members.iter().any(|member| member.node == *node);
            match is_member {
                true => outs.push(HubOut::Down(node.clone(), Down::Cancel { world: id })),
                false => *n_ranks = 0,
            }
        }
        self.refuse(&requester, problem.to_owned(), outs);
        self.remove_if_gone(id);
    }

    fn remove_if_gone(&mut self, id: WorldId) {
        let is_gone = self.worlds.get(&id).is_some_and(|world| world.remaining.values().all(|n_ranks| *n_ranks == 0));
        if is_gone {
            self.worlds.remove(&id);
            self.questions.retain(|rank, _| rank.world != id);
        }
    }
}
