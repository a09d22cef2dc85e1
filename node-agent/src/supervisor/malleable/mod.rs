//! The processes of a job that follow its CPUs themselves: which have joined, what each was told, and what it answered.

mod channel;
mod members;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use channel::{Client, Listener, Received};
use members::Members;
use nix::unistd::{Pid, Uid, getpid};
use rms_malleable::{Answer, Kind, MOST_PROCESSES, Rank, Request, Status};

use super::binding::BoundTasks;
use super::confine::{CpuMove, CpuMoves};
use super::{openmp, tree};
use crate::cgroup::Cgroup;
use crate::spool;
use crate::sys::Page;
use crate::topology::cpulist::CpuSet;
use crate::topology::cpus_of;

/// The state shared with the processes of one job.
#[derive(Debug)]
pub struct Malleable {
    listener: Listener,
    owner: Uid,
    /// The clients by numbers that are never reused.
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    members: Members,
    pages: BTreeMap<i32, Shared>,
    /// Clients that are answered when the change is complete.
    waiting: Vec<(u64, Kind)>,
    /// Whether a process was refused because the job has too many.
    was_full: bool,
}

/// The state shared with one process.
#[derive(Debug)]
struct Shared {
    page: Page,
    client: u64,
    cpus: CpuSet,
    /// When the CPUs were published.
    since: SystemTime,
    /// It did not acknowledge the last change in time.
    is_late: bool,
}

/// The outcome of a message of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The intended CPUs of some processes have changed.
    pub has_changed: bool,
    /// A warning for the owner.
    pub warning: Option<String>,
}

/// The most clients that have not joined.
const MAX_UNJOINED: usize = 64;

impl Malleable {
    /// Opens the socket of a job with these CPUs, which requested `n_asked`, before any of its processes is started.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn open(dir: &Path, owner: Uid, cpus: CpuSet, n_asked: usize) -> io::Result<Malleable> {
        Ok(Malleable {
            listener: Listener::open(&spool::malleable_socket_path(dir))?,
            owner,
            clients: BTreeMap::new(),
            next_client: 0,
            members: Members::new(cpus, n_asked),
            pages: BTreeMap::new(),
            waiting: Vec::new(),
            was_full: false,
        })
    }

    /// Returns the descriptors to poll for [`receive`](Malleable::receive), with their clients.
    pub fn sources(&self) -> impl Iterator<Item = (Option<u64>, BorrowedFd<'_>)> {
        let listener = std::iter::once((None, self.listener.as_fd()));
        listener.chain(self.clients.iter().map(|(id, client)| (Some(*id), client.as_fd())))
    }

    /// Accepts waiting clients, or handles a message of one client.
    pub fn receive(&mut self, source: Option<u64>, bound_tasks: &BoundTasks, cgroup: &Cgroup) -> Outcome {
        match source {
            None => {
                self.accept(cgroup);
                Outcome::default()
            }
            Some(id) => self.receive_from(id, bound_tasks),
        }
    }

    fn accept(&mut self, cgroup: &Cgroup) {
        // Further clients wake the supervisor again, after others have been served.
        for mut client in std::iter::from_fn(|| self.listener.accept()).take(MAX_UNJOINED).collect::<Vec<_>>() {
            // The agent may connect, too.
            let is_agents = client.uid == Uid::current();
            let is_ours = client.uid == self.owner || client.uid.is_root() || is_agents;
            // A process that keeps connecting harms only itself.
            let has_room = self.clients.len() < self.pages.len() + MAX_UNJOINED;
            client.may_join = is_ours && has_room && (client.uid.is_root() || is_of_job(client.pid, cgroup));
            let is_allowed_here = is_agents || client.may_join;
            if is_ours && is_allowed_here && has_room {
                self.clients.insert(self.next_client, client);
                self.next_client += 1;
            }
        }
    }

    fn receive_from(&mut self, id: u64, bound_tasks: &BoundTasks) -> Outcome {
        let Some(client) = self.clients.get(&id) else { return Outcome::default() };
        match client.receive() {
            Received::Nothing => Outcome::default(),
            Received::Request(Request::Join { rank, set_aside_for }) => self.join(id, rank, set_aside_for, bound_tasks),
            Received::Request(request) => self.answer(id, request),
            Received::Closed => self.disconnected(id),
        }
    }

    /// Handles the end of a connection: the process has ended, or has executed another program.
    fn disconnected(&mut self, id: u64) -> Outcome {
        self.clients.remove(&id);
        self.waiting.retain(|(waiting, _)| *waiting != id);
        let pid = self.pages.iter().find(|(_, shared)| shared.client == id).map(|(pid, _)| *pid);
        let Some(pid) = pid else { return Outcome::default() };
        self.pages.remove(&pid);
        self.members.leave(pid);
        Outcome { has_changed: self.differs(), warning: None }
    }

    fn answer(&mut self, id: u64, request: Request) -> Outcome {
        let done = |status: Result<(), Status>| status.err().unwrap_or(Status::Done);
        let (kind, status, waits) = match request {
            // A join is handled by `receive_from`.
            Request::Join { .. } | Request::Acknowledged => return Outcome::default(),
            Request::List => {
                let pids = self.members.pids().collect();
                let cpus = self.members.current().clone();
                self.send(id, &Answer { cpus, pids, ..Answer::new(Kind::List, Status::Done) });
                return Outcome::default();
            }
            Request::Get { pid, flags: _ } => {
                self.send(id, &self.describe(pid));
                return Outcome::default();
            }
            Request::Set { pid, cpus, flags } => {
                let is_pending = self.pages.get(&pid).is_some_and(|shared| !shared.is_done());
                let set = if is_pending { Err(Status::Pending) } else { self.members.set(pid, &cpus, flags) };
                (Kind::Set, done(set), flags.waits)
            }
            Request::PreInit { pid, cpus, flags } => {
                (Kind::PreInit, done(self.members.pre_init(pid, &cpus, flags)), flags.waits)
            }
            Request::PostFinalize { pid, flags } => {
                (Kind::PostFinalize, done(self.members.post_finalize(pid, flags)), flags.waits)
            }
        };
        if status == Status::Done && waits {
            self.waiting.push((id, kind));
        } else {
            self.send(id, &Answer::new(kind, status));
        }
        Outcome { has_changed: status == Status::Done, warning: None }
    }

    fn join(&mut self, id: u64, rank: Option<Rank>, set_aside_for: Option<i32>, bound_tasks: &BoundTasks) -> Outcome {
        let Some(client) = self.clients.get(&id) else { return Outcome::default() };
        let pid = client.pid;
        let joined = match cpus_of_process(pid) {
            _ if !client.may_join => Err(Status::NotAllowed),
            None => Err(Status::NoProcess),
            Some(_) if self.pages.len() >= MOST_PROCESSES && !self.pages.contains_key(&pid.as_raw()) => {
                Err(Status::TooMany)
            }
            Some(first) => Page::new().map(|page| (page, first)).map_err(|_| Status::Failed),
        };
        let (page, mut first) = match joined {
            Ok(joined) => joined,
            Err(status) => {
                self.send(id, &Answer::new(Kind::Join, status));
                let is_news = status == Status::TooMany && !std::mem::replace(&mut self.was_full, true);
                let warning = is_news.then(|| {
                    format!(
                        "more than {MOST_PROCESSES} processes on this node would follow its CPUs: the others are only moved"
                    )
                });
                return Outcome { has_changed: false, warning };
            }
        };
        let bound = bound_tasks.first_of(pid, &first).cloned();
        // Its runtime has bound each thread to a place of its own. These pins are the threads', not the process's.
        if openmp::binds_threads(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()) {
            first.extend(self.members.current());
        }
        let pid = pid.as_raw();
        self.members.join(pid, rank, first, bound, set_aside_for);
        let shared = Shared { page, client: id, cpus: CpuSet::new(), since: SystemTime::now(), is_late: false };
        // Another program of the same process.
        if let Some(before) = self.pages.insert(pid, shared).filter(|before| before.client != id) {
            self.clients.remove(&before.client);
        }
        // Published before anything can change: the process starts with the current state.
        self.publish_to(pid);
        if let (Some(shared), Some(client)) = (self.pages.get(&pid), self.clients.get(&id)) {
            client.send(&Answer::new(Kind::Join, Status::Done), Some(shared.page.file()));
        }
        let is_moved = self.members.get(pid).is_some_and(|member| member.held != self.members.intended(pid));
        Outcome { has_changed: is_moved || self.differs(), warning: None }
    }

    fn describe(&self, pid: i32) -> Answer {
        let Some(shared) = self.pages.get(&pid) else { return Answer::new(Kind::Get, Status::NoProcess) };
        Answer {
            cpus: shared.cpus.clone(),
            threads: shared.page.threads(),
            is_acknowledged: shared.page.is_acknowledged(),
            since: shared.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
            ..Answer::new(Kind::Get, Status::Done)
        }
    }

    fn send(&self, id: u64, answer: &Answer) {
        self.clients.get(&id).into_iter().for_each(|client| client.send(answer, None));
    }

    /// Returns whether any process was told CPUs other than the intended ones.
    fn differs(&self) -> bool {
        self.pages.iter().any(|(pid, shared)| shared.cpus != self.members.intended(*pid))
    }

    /// Publishes the CPUs of a process. Returns false if it was already told the same.
    fn publish_to(&mut self, pid: i32) -> bool {
        let (cpus, most) = (self.members.intended(pid), self.members.most(pid));
        let Some(shared) = self.pages.get_mut(&pid).filter(|shared| shared.cpus != cpus) else { return false };
        shared.page.publish(&cpus, most);
        (shared.cpus, shared.is_late) = (cpus, false);
        shared.since = SystemTime::now();
        true
    }

    /// Wakes a process that waits for a change. A process that has just joined may not have received its page yet.
    fn wake(&self, pid: i32) {
        let client = self.pages.get(&pid).map(|shared| shared.client);
        client.into_iter().for_each(|client| self.send(client, &Answer::new(Kind::Changed, Status::Done)));
    }

    /// Tells each process which CPUs to use now that the job has these CPUs.
    pub fn publish(&mut self, cpus: &CpuSet) {
        self.members.set_current(cpus.clone());
        let pids: Vec<i32> = self.pages.keys().copied().collect();
        for pid in pids {
            let is_news = self.publish_to(pid);
            if is_news {
                self.wake(pid);
            }
        }
    }

    /// Returns whether every process has acknowledged its CPUs, except those that wait for the others.
    pub fn is_acknowledged(&self) -> bool {
        self.pages.iter().all(|(pid, shared)| shared.is_done() || self.is_waiting(*pid))
    }

    /// Returns whether a process waits for the change that it has requested: it may have no thread that could apply its
    /// own part meanwhile.
    fn is_waiting(&self, pid: i32) -> bool {
        let mut clients = self.waiting.iter().filter_map(|(id, _)| self.clients.get(id));
        clients.any(|client| client.pid.as_raw() == pid)
    }

    /// Returns whether no process has joined.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the moves of the threads of each joined process. With `and_before`, its old CPUs stay allowed as long as
    /// it has not acknowledged the new ones.
    pub fn moves(&self, and_before: bool) -> CpuMoves {
        let of_pid = |pid: i32| {
            let before = self.members.get(pid)?.held.clone();
            let mut after = self.members.intended(pid);
            if and_before {
                after.extend(&before);
            }
            Some((pid, CpuMove { before, after }))
        };
        self.pages.keys().filter_map(|pid| of_pid(*pid)).collect()
    }

    /// Records that the processes have been moved.
    pub fn moved(&mut self, moves: CpuMoves) {
        for (pid, CpuMove { before: _, after }) in moves {
            self.members.get_mut(pid).into_iter().for_each(|member| member.held.clone_from(&after));
        }
    }

    /// Stops waiting for processes that have not answered, and answers the clients that wait for the change.
    pub fn close_change(&mut self) {
        let is_late = |(pid, shared): &(&i32, &Shared)| !shared.page.is_acknowledged() && !self.is_waiting(**pid);
        let late: Vec<i32> = self.pages.iter().filter(is_late).map(|(pid, _)| *pid).collect();
        let n_late = late.len();
        for pid in late {
            self.pages.get_mut(&pid).into_iter().for_each(|shared| shared.is_late = true);
        }
        let status = if n_late == 0 { Status::Done } else { Status::Timeout };
        for (id, kind) in std::mem::take(&mut self.waiting) {
            self.send(id, &Answer::new(kind, status));
        }
    }

    /// Returns whether this process has joined.
    pub fn has(&self, pid: Pid) -> bool {
        self.pages.contains_key(&pid.as_raw())
    }
}

impl Shared {
    /// Returns whether the process has acknowledged its CPUs, or is not waited for.
    fn is_done(&self) -> bool {
        self.is_late || self.page.is_acknowledged()
    }
}

/// Returns the CPUs that the threads of a process may use together; `None` if it is gone.
fn cpus_of_process(pid: Pid) -> Option<CpuSet> {
    let cpus: CpuSet = tree::threads(pid).into_iter().filter_map(|thread| cpus_of(thread).ok()).flatten().collect();
    Some(cpus).filter(|cpus| !cpus.is_empty())
}

/// Returns whether a process descends from this process, or is in its cgroup: `mpirun` and others fork processes that
/// belong to the job, too.
fn is_of_job(pid: Pid, cgroup: &Cgroup) -> bool {
    tree::ancestry(Some(pid)).any(|ancestor| ancestor == getpid()) || cgroup.processes().contains(&pid)
}
