//! Forwards lines between the ranks' sockets and the process-management logic, and its frames to other nodes.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::hash::fnv1a;
use crate::order::Order;
use crate::pmi::frames::{Down, HubFrame, Placement, Up};
use crate::pmi::hub::{Grown, Growth, Hub, HubOut, Member, Need};
use crate::pmi::node::{NodeRanks, first_birth};
use crate::pmi::place::process_mapping;
use crate::pmi::ranks::{Ending, Out, WorldInit};
use crate::pmi::{JobNode, RankId};
use crate::sys::End;
use rms_api::desired::LaunchNode;

/// The PMI server of one share.
#[derive(Debug)]
pub struct PmiServer {
    own: JobNode,
    /// The first node, which has the hub.
    first: JobNode,
    ranks: NodeRanks,
    /// The hub; only on the first node.
    hub: Option<Hub>,
    /// The sockets of the ranks, by their tasks.
    rank_sockets: BTreeMap<u32, RankSocket>,
    /// When to tell the hub that the pause is over.
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct RankSocket {
    socket: UnixStream,
    /// A rank gets one line for each line it sends, so this grows only if it does not read.
    outgoing: VecDeque<u8>,
}

/// An action for the supervisor.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        to: JobNode,
        frame: HubFrame,
    },
    Abort {
        code: i32,
    },
    /// Starts ranks; the supervisor then calls [`PmiServer::started`].
    Start(Placement),
    /// Kills tasks.
    Kill {
        tasks: Vec<u32>,
    },
    /// Reads files as the owner; the supervisor then calls [`PmiServer::hostfiles_read`].
    Read {
        from: RankId,
        paths: Vec<String>,
    },
    /// Requests more nodes.
    RequestNodes(Growth),
    /// Writes into the job's output why it ends, or why a spawn has failed.
    WriteError(String),
}

/// The job of a rank that leaves more than this unread is aborted.
const MAX_OUTGOING: usize = 1 << 20;
/// How long to wait for ranks that have left the others to finalize and end. If there is still no room, nodes are
/// requested.
const SPAWN_RETRY_DELAY: Duration = Duration::from_millis(300);

impl PmiServer {
    /// Creates the PMI server of the job's initial ranks, by their tasks and with their sockets.
    pub fn new(order: &Order, sockets: Vec<(u32, OwnedFd)>) -> PmiServer {
        let members = members(order);
        let n_ranks: Vec<u32> = order.launch.nodes.iter().map(n_first_ranks).collect();
        let mapping = process_mapping(n_ranks.iter().copied().enumerate());
        let universe = members.iter().map(|member| member.capacity).sum();
        let kvsname = kvsname(order);
        let (first_rank, n_local) = order.place().map_or((0, 0), |place| (place.first_task, n_first_ranks(place)));
        let own = first_birth(&kvsname, n_ranks.iter().sum(), universe, mapping, first_rank, n_local);
        let next_task =
            order.launch.nodes.iter().map(|node| node.first_task.saturating_add(node.n_tasks)).max().unwrap_or(0);
        let mut pmi = PmiServer {
            own: order.place().map_or_else(no_node, node_id),
            first: order.launch.nodes.first().map_or_else(no_node, node_id),
            ranks: NodeRanks::new(own),
            hub: (order.node_idx == 0)
                .then(|| Hub::new(kvsname, members, &n_ranks, new_node_capacity(order), next_task)),
            rank_sockets: BTreeMap::new(),
            paused_until: None,
        };
        for (task, socket) in sockets {
            pmi.listen(task, socket);
        }
        pmi
    }

    /// Creates the PMI server of a step, whose hub is in the agent where it was requested; call
    /// [`listen`](PmiServer::listen) for each task.
    pub fn of_step(birth: WorldInit) -> PmiServer {
        PmiServer {
            own: no_node(),
            first: no_node(),
            ranks: NodeRanks::new(birth),
            hub: None,
            rank_sockets: BTreeMap::new(),
            paused_until: None,
        }
    }

    pub fn listen(&mut self, task: u32, socket: OwnedFd) {
        let socket = UnixStream::from(socket);
        if socket.set_nonblocking(true).is_ok() {
            self.rank_sockets.insert(task, RankSocket { socket, outgoing: VecDeque::new() });
        }
    }

    /// Sends the first frames, before any rank sends a message.
    pub fn open(&mut self, actions: &mut Vec<Action>) {
        let opening = self.ranks.opening().map(Out::Hub);
        self.run_outs(opening.into_iter().collect(), actions);
    }

    /// Returns the sockets to poll: the task, and whether output is queued.
    pub fn sockets(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, bool)> {
        self.rank_sockets.iter().map(|(task, line)| (*task, line.socket.as_fd(), !line.outgoing.is_empty()))
    }

    /// Handles a rank's socket that is ready.
    pub fn ready(&mut self, task: u32, actions: &mut Vec<Action>) {
        self.flush(task);
        let mut bytes = [0; 8 << 10];
        // Bounded, so that a rank that never stops sending does not keep the supervisor from its deadlines.
        for _ in 0..8 {
            let Some(line) = self.rank_sockets.get_mut(&task) else { return };
            match line.socket.read(&mut bytes) {
                Ok(0) => return self.close(task),
                Ok(n) => {
                    let outs = self.ranks.bytes(task, &bytes[..n]);
                    self.run_outs(outs, actions);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(task),
            }
        }
    }

    /// Handles the end of a task's process.
    pub fn task_ended(&mut self, task: u32, end: End, actions: &mut Vec<Action>) {
        // Its last lines may still be in the socket, `finalize` among them.
        self.ready(task, actions);
        let outs = self.ranks.task_ended(task, end);
        self.run_outs(outs, actions);
        self.close(task);
    }

    /// Records that all tasks here are being ended by order.
    pub fn end(&mut self, ending: Ending, actions: &mut Vec<Action>) {
        let outs = self.ranks.end(ending);
        self.run_outs(outs, actions);
    }

    /// Returns whether the exit status of this task is ignored.
    pub fn is_discarded(&self, task: u32) -> bool {
        self.ranks.is_discarded(task)
    }

    /// Handles that an [`Action::Start`] was carried out; with a problem, possibly only in part.
    pub fn started(
        &mut self,
        placement: &Placement,
        sockets: Vec<(u32, OwnedFd)>,
        problem: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let outs = self.ranks.started(placement, problem, sockets.len());
        for (task, socket) in sockets {
            self.listen(task, socket);
        }
        self.run_outs(outs, actions);
    }

    /// Handles that an [`Action::Read`] was carried out.
    pub fn hostfiles_read(&mut self, from: RankId, contents: Vec<Result<String, String>>, actions: &mut Vec<Action>) {
        let outs = self.ranks.hostfiles_read(from, contents);
        self.run_outs(outs, actions);
    }

    /// Handles a frame of the hub.
    pub fn receive_from_hub(&mut self, down: Down, actions: &mut Vec<Action>) {
        let outs = self.ranks.receive(down);
        self.run_outs(outs, actions);
    }

    /// Handles a frame from another node.
    pub fn receive(&mut self, node: &JobNode, frame: HubFrame, actions: &mut Vec<Action>) {
        match frame {
            HubFrame::Up(up) => self.deliver_to_hub(node, up, actions),
            HubFrame::Down(down) => self.receive_from_hub(down, actions),
        }
    }

    /// Returns whether a rank here has used PMI.
    pub fn is_used(&self) -> bool {
        self.ranks.is_used()
    }

    /// Returns what this share still waits for when its own tasks have ended.
    pub fn need(&self) -> Need {
        match &self.hub {
            Some(hub) => hub.need(),
            None if self.ranks.is_kept() => Need::Ranks,
            None => Need::Nothing,
        }
    }

    /// Sends unanswered messages again after the connection to the hub was restored.
    pub fn relinked(&mut self, actions: &mut Vec<Action>) {
        for up in self.ranks.relinked() {
            actions.push(Action::Send { to: self.first.clone(), frame: HubFrame::Up(up) });
        }
    }

    /// Handles a change of the job's nodes.
    pub fn update(&mut self, order: &Order, actions: &mut Vec<Action>) {
        let outs = self.hub.as_mut().map(|hub| hub.update(members(order), order.launch.generation)).unwrap_or_default();
        self.run_hub_outs(outs, actions);
    }

    /// Handles the server's answer to an [`Action::RequestNodes`].
    pub fn grown(&mut self, seq: u64, grown: Grown, actions: &mut Vec<Action>) {
        let outs = self.hub.as_mut().map(|hub| hub.grown(seq, grown)).unwrap_or_default();
        self.run_hub_outs(outs, actions);
    }

    /// Returns when to call [`on_time`](PmiServer::on_time).
    pub fn wakes_at(&self) -> Option<Instant> {
        self.paused_until
    }

    pub fn on_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_due = self.paused_until.take_if(|until| *until <= now).is_some();
        if is_due {
            let outs = self.hub.as_mut().map(Hub::paused).unwrap_or_default();
            self.run_hub_outs(outs, actions);
        }
    }

    /// Returns a request for nodes that an earlier agent may have lost.
    pub fn unanswered(&self) -> Option<Growth> {
        self.hub.as_ref().and_then(Hub::unanswered)
    }

    fn run_outs(&mut self, outs: Vec<Out>, actions: &mut Vec<Action>) {
        for out in outs {
            match out {
                Out::Line { task, line } => self.send_line(task, &line, actions),
                Out::Abort { code, reason: _ } => actions.push(Action::Abort { code }),
                Out::Hub(up) if self.hub.is_some() => {
                    let own = self.own.clone();
                    self.deliver_to_hub(&own, up, actions);
                }
                Out::Hub(up) if self.ranks.is_used() => {
                    actions.push(Action::Send { to: self.first.clone(), frame: HubFrame::Up(up) });
                }
                // A program that does not use MPI sends nothing to the hub.
                Out::Hub(_) => {}
                Out::Read { from, paths } => actions.push(Action::Read { from, paths }),
                Out::Start(placement) => actions.push(Action::Start(placement)),
                Out::Kill { tasks } => actions.push(Action::Kill { tasks }),
                Out::WriteError(reason) => actions.push(Action::WriteError(reason)),
            }
        }
    }

    fn deliver_to_hub(&mut self, node: &JobNode, up: Up, actions: &mut Vec<Action>) {
        let outs = self.hub.as_mut().map(|hub| hub.receive(node, up)).unwrap_or_default();
        self.run_hub_outs(outs, actions);
    }

    fn run_hub_outs(&mut self, outs: Vec<HubOut>, actions: &mut Vec<Action>) {
        for out in outs {
            match out {
                HubOut::Down(to, down) if to == self.own => {
                    let outs = self.ranks.receive(down);
                    self.run_outs(outs, actions);
                }
                HubOut::Down(to, down) => actions.push(Action::Send { to, frame: HubFrame::Down(down) }),
                HubOut::Pause => self.paused_until = Some(Instant::now() + SPAWN_RETRY_DELAY),
                HubOut::RequestNodes(growth) => actions.push(Action::RequestNodes(growth)),
                HubOut::WriteError(reason) => actions.push(Action::WriteError(reason)),
            }
        }
    }

    fn send_line(&mut self, task: u32, text: &str, actions: &mut Vec<Action>) {
        let Some(line) = self.rank_sockets.get_mut(&task) else { return };
        line.outgoing.extend(text.as_bytes());
        if line.outgoing.len() > MAX_OUTGOING {
            self.close(task);
            let outs = self.ranks.unread(task);
            return self.run_outs(outs, actions);
        }
        self.flush(task);
    }

    fn flush(&mut self, task: u32) {
        let Some(line) = self.rank_sockets.get_mut(&task) else { return };
        while !line.outgoing.is_empty() {
            match line.socket.write(line.outgoing.as_slices().0) {
                Ok(n) => drop(line.outgoing.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(task),
            }
        }
    }

    fn close(&mut self, task: u32) {
        self.rank_sockets.remove(&task);
    }
}

fn node_id(place: &LaunchNode) -> JobNode {
    JobNode { node: place.name.clone(), joined: place.joined }
}

/// Returns the name of the key-value space. MPICH names its shared memory after it, and what killed ranks leave there
/// stays: so the name is unique to this execution in this cluster, even if others have jobs of the same number.
fn kvsname(order: &Order) -> String {
    let cluster =
        order.launch.nodes.first().map(|first| format!("{} {}", first.address, first.name)).unwrap_or_default();
    format!("kvs_{}_{}_{:08x}", order.job, order.run, fnv1a(cluster.as_bytes()))
}

fn no_node() -> JobNode {
    JobNode { node: String::new(), joined: 0 }
}

/// Returns the number of ranks of the first world: the tasks of the job's initial nodes.
fn n_first_ranks(place: &LaunchNode) -> u32 {
    if place.joined == 1 { place.n_tasks } else { 0 }
}

fn members(order: &Order) -> Vec<Member> {
    let capacity = |place: &LaunchNode| match (place.n_tasks, place.joined) {
        (0, _) => ranks_of_cpus(place.cpus, order),
        (n_tasks, 1) => n_tasks,
        // The node joined with tasks, which are not ranks.
        (_, _) => 0,
    };
    let member =
        |place: &LaunchNode| Member { node: node_id(place), capacity: capacity(place), is_departing: place.departing };
    order.launch.nodes.iter().map(member).collect()
}

fn ranks_of_cpus(cpus: u32, order: &Order) -> u32 {
    (cpus / order.launch.cpus_per_task.max(1)).max(1)
}

/// Returns the assumed room of a node that is not known yet.
fn new_node_capacity(order: &Order) -> u32 {
    order.launch.nodes.first().map_or(1, |place| ranks_of_cpus(place.cpus, order))
}
