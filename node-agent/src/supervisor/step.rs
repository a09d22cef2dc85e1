//! The tasks of a job's steps on this node: started in addition to the job's own, given input, signalled, and ended
//! with all processes that they have started.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::unistd::{Pid, getpid};

use super::binding;
use super::child::Program;
use super::environment;
use super::exec::Exec;
use super::mpi::{Action, PmiServer};
use super::singleton::{self, SingletonCheck};
use super::spawned::{self, Parent};
use super::start::{self, StartError};
use super::tree;
use super::variables::{self, Variables};
use crate::order::{FromSupervisor, Order, STREAMS_PER_EXEC, STREAMS_PER_STEP, StepOrder, WINDOW};
use rms_wire::peer::StepPart;

use crate::pmi::frames::{Down, HubFrame, Placement};
use crate::pmi::node::first_birth;
use crate::pmi::ranks::Ending;
use crate::sys::{self, End, Reaped, SingleThreaded};
use crate::topology::cpulist::CpuSet;

/// The part of one step on this node.
#[derive(Debug)]
pub struct Step {
    /// The first of its streams.
    stream: u64,
    /// It was ordered from another node, where its caller runs.
    pub is_of_other_node: bool,
    order: StepPart,
    /// The variables that its tasks have in common.
    variables: Variables,
    /// The tasks whose end has not been reported.
    tasks: Vec<Exec>,
    /// The tasks that were bound to CPUs of their own, to which, and how many each keeps, until they are taken.
    bound: Vec<(Pid, CpuSet, u32)>,
    pmi: PmiServer,
    singleton: Option<SingletonCheck>,
    /// The sessions of its tasks: processes that are still in them when the tasks have ended are killed.
    sessions: Vec<Pid>,
    /// When to send the next KILL, once the step must end.
    kill_at: Option<Instant>,
    n_kills: u32,
    /// Why a task could not be executed.
    problem: Option<String>,
    /// No receiver listens any more.
    is_silent: bool,
}

/// The source of a descriptor of a step.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Rank(u32),
    Input(usize),
    Output(usize, usize),
}

/// A frame of a step, in order.
#[derive(Debug)]
pub enum StepFrame {
    Message(FromSupervisor),
    Bytes { stream: u64, bytes: Vec<u8> },
}

/// Returns the block to which a stream belongs, if it is a step's.
pub fn block(stream: u64) -> Option<u64> {
    (stream >= STREAMS_PER_STEP).then(|| stream - stream % STREAMS_PER_STEP)
}

/// Returns the task to which a stream of a block belongs.
pub fn task_of(stream: u64) -> u32 {
    (stream % STREAMS_PER_STEP / STREAMS_PER_EXEC) as u32
}

impl Step {
    /// Starts the tasks of the step; if one does not start, the earlier ones are killed.
    ///
    /// # Errors
    /// The error of the first task that did not start.
    pub fn start(parent: &Parent<'_>, order: StepOrder, single: &SingleThreaded) -> Result<Step, StartError> {
        let StepOrder { stream, part: order, is_of_other_node } = order;
        let birth = first_birth(
            &order.kvsname,
            order.n_tasks,
            order.universe,
            order.mapping.clone(),
            order.first_task,
            order.n_local,
        );
        let mut variables = parent.variables.clone();
        environment::of_step(&mut variables, parent.order, &order);
        let mut step = Step {
            variables,
            tasks: Vec::new(),
            bound: Vec::new(),
            pmi: PmiServer::of_step(birth),
            singleton: (order.first_task == 0 && order.n_tasks > 1).then(SingletonCheck::begin),
            sessions: Vec::new(),
            kill_at: None,
            n_kills: 0,
            problem: None,
            is_silent: false,
            stream,
            is_of_other_node,
            order,
        };
        match step.start_own(&Parent { order: &step.as_job(parent), ..*parent }, single) {
            Ok(()) => Ok(step),
            Err(error) => {
                step.signal_all(nix::libc::SIGKILL);
                Err(error)
            }
        }
    }

    /// Returns an order for the step's tasks: umask and limits are the caller's, all else is the job's.
    fn as_job(&self, parent: &Parent<'_>) -> Order {
        let limits = self.order.limits.as_ref().unwrap_or(&parent.order.launch.execution.limits);
        parent.order.of_caller(self.order.umask, limits.clone())
    }

    fn start_own(&mut self, parent: &Parent<'_>, single: &SingleThreaded) -> Result<(), StartError> {
        let argv =
            self.order.argv.iter().cloned().map(start::c_string).collect::<Result<Vec<CString>, StartError>>()?;
        let candidates = start::candidates(argv.first().ok_or(StartError::ZeroByte)?, &self.variables);
        let StepPart { cwd, first_task, n_local, n_tasks, n_readers, .. } = self.order.clone();
        let mut variables = self.variables.clone();
        // A step that does not use all CPUs of the job leaves room for other steps, whose CPUs are not known.
        let n_cpus: usize = parent.order.packages.iter().map(Vec::len).sum();
        let takes_all = u64::from(n_local) * u64::from(self.order.cpus_per_task.max(1)) == n_cpus as u64;
        let cpus = match takes_all {
            true => binding::share_out(&parent.order.packages, n_local, self.order.cpus_per_task),
            false => Vec::new(),
        };
        for local in 0..n_local {
            let task = first_task.saturating_add(local);
            let cpus = cpus.get(local as usize);
            let rank = Rank { task, rank: task, local, n_local, n_ranks: n_tasks, cpus };
            let socket = self.start_task(parent, &rank, (&argv, &candidates), &cwd, &mut variables, single)?;
            self.pmi.listen(task, socket);
            if local >= n_readers {
                self.tasks.last_mut().map(|task| task.input.feed(b""));
            }
        }
        let kept = (first_task..).map(|task| parent.order.launch.kept_by(task));
        let bound = self.tasks.iter().zip(cpus).zip(kept);
        self.bound = bound.map(|((task, cpus), kept)| (task.pid, cpus, kept)).collect();
        Ok(())
    }

    /// Starts a task, and returns the supervisor's end of its PMI socket.
    fn start_task(
        &mut self,
        parent: &Parent<'_>,
        rank: &Rank<'_>,
        (argv, candidates): (&[CString], &[CString]),
        cwd: &str,
        variables: &mut Variables,
        single: &SingleThreaded,
    ) -> Result<OwnedFd, StartError> {
        let (ours, theirs) = start::socket_pair()?;
        environment::of_task(variables, rank.task, rank.local);
        environment::of_rank(variables, theirs.as_raw_fd(), rank.rank, rank.local, rank.n_local, rank.n_ranks);
        environment::of_mpirun(variables, parent.order, argv[0].as_bytes());
        let stream = self.stream + u64::from(rank.task) * STREAMS_PER_EXEC;
        let exec = Exec::with_pipes(stream, window(self.order.n_local), parent.account, |stdin, stdout, stderr| {
            let program = Program {
                order: parent.order,
                cwd,
                account: parent.account,
                argv,
                candidates,
                environment: variables::to_c(variables),
                stdin,
                stdout,
                stderr,
                cpus: rank.cpus,
                inherited: Some(&theirs),
            };
            Ok(program.start(single)?)
        })?;
        self.sessions.push(exec.pid);
        self.tasks.push(exec);
        Ok(ours)
    }

    /// Returns the tasks that were bound to CPUs of their own, to which, and how many each keeps, once.
    pub fn take_bound(&mut self) -> Vec<(Pid, CpuSet, u32)> {
        std::mem::take(&mut self.bound)
    }

    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// Returns the sessions of its tasks, including ended ones.
    pub fn sessions(&self) -> &[Pid] {
        &self.sessions
    }

    pub fn forget_sessions(&mut self, of_others: &[Pid]) {
        self.sessions.retain(|session| !of_others.contains(session));
    }

    /// Sends the PMI server's first frames, before any rank sends a message.
    pub fn open(&mut self, frames: &mut Vec<StepFrame>) {
        let mut actions = Vec::new();
        self.pmi.open(&mut actions);
        self.report(actions, frames);
    }

    /// Returns the descriptors to poll, with their events.
    pub fn sources(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>, PollFlags)> {
        let ranks = self.pmi.sockets().map(|(task, fd, out)| {
            (Source::Rank(task), fd, if out { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN })
        });
        let pipes = self.tasks.iter().enumerate().flat_map(|(idx, task)| {
            let input = task.input.writable().map(|fd| (Source::Input(idx), fd, PollFlags::POLLOUT));
            let outputs = task.readable().map(move |(out, fd)| (Source::Output(idx, out), fd, PollFlags::POLLIN));
            input.into_iter().chain(outputs)
        });
        ranks.chain(pipes)
    }

    pub fn ready(&mut self, source: Source, parent: &Parent<'_>, single: &SingleThreaded, frames: &mut Vec<StepFrame>) {
        match source {
            Source::Rank(task) => {
                let mut actions = Vec::new();
                self.pmi.ready(task, &mut actions);
                self.run(actions, parent, single, frames);
            }
            Source::Input(idx) => {
                if let Some(task) = self.tasks.get_mut(idx) {
                    let (stream, n_bytes) = (task.stream, task.input.flush());
                    taken(stream, n_bytes, frames);
                }
            }
            Source::Output(idx, out) => {
                if let Some((stream, bytes)) = self.tasks.get_mut(idx).and_then(|task| task.read(out)) {
                    frames.push(StepFrame::Bytes { stream, bytes });
                }
            }
        }
    }

    /// Passes bytes to the input of a task; no bytes mean its end.
    pub fn input(&mut self, stream: u64, bytes: &[u8], frames: &mut Vec<StepFrame>) {
        match self.tasks.iter_mut().find(|task| task.stream == stream) {
            Some(task) => taken(stream, task.input.feed(bytes), frames),
            // The task has ended and reads no more.
            None => taken(stream, bytes.len() as u64, frames),
        }
    }

    pub fn confirmed(&mut self, stream: u64, n_bytes: u64) {
        for task in &mut self.tasks {
            task.confirmed(stream, n_bytes);
        }
    }

    pub fn hear(&mut self, down: Down, parent: &Parent<'_>, single: &SingleThreaded, frames: &mut Vec<StepFrame>) {
        let mut actions = Vec::new();
        // The PMI server of a step has one hub, so the sending node does not matter.
        self.pmi.receive_from_hub(down, &mut actions);
        self.run(actions, parent, single, frames);
    }

    /// Sends a signal to the process group of each task.
    pub fn signal(&self, signal: i32) {
        for task in self.tasks.iter().filter(|task| task.end.is_none()) {
            sys::kill_group(task.pid, signal);
        }
    }

    /// Sends TERM to the whole step now, unless the end of its job has just done so, and KILL after its grace time.
    pub fn end(&mut self, is_silent: bool, has_term: bool, frames: &mut Vec<StepFrame>) {
        let mut actions = Vec::new();
        // Ranks that end without finalizing from now on have not crashed.
        self.pmi.end(Ending::Ordered, &mut actions);
        self.report(actions, frames);
        if is_silent {
            self.is_silent = true;
            self.tasks.iter_mut().for_each(Exec::abandon);
        }
        if self.kill_at.is_none() {
            let grace = self.order.grace.to_std().min(MAX_GRACE);
            self.kill_at = Some(Instant::now() + grace);
            if !has_term {
                self.signal_all(nix::libc::SIGTERM);
                self.signal_all(nix::libc::SIGCONT);
            }
        }
    }

    /// Ends the step silently after its agent has ended, and its receivers with it. The next agent may reuse the number
    /// of its streams.
    pub fn abandon(&mut self) {
        self.end(true, false, &mut Vec::new());
        self.stream = u64::MAX - u64::MAX % STREAMS_PER_STEP;
    }

    /// Ends the step without a grace time, because it is no longer needed.
    fn kill(&mut self) {
        self.kill_at = Some(Instant::now());
    }

    /// Returns when to call [`on_time`](Step::on_time) next.
    pub fn wakes_at(&self) -> Option<Instant> {
        let of_singleton = self.singleton.as_ref().and_then(SingletonCheck::wakes_at);
        self.kill_at.into_iter().chain(of_singleton).min()
    }

    pub fn on_time(&mut self, now: Instant, single: &SingleThreaded) {
        let tasks = self.tasks.iter().filter(|task| task.end.is_none()).map(|task| task.pid);
        singleton::check_if_due(&mut self.singleton, now, self.pmi.is_used(), tasks, single);
        if self.kill_at.is_some_and(|at| at <= now) {
            self.signal_all(nix::libc::SIGKILL);
            // Processes that were forked during the walk are found by the next one.
            self.kill_at = Some(now + Duration::from_millis(1 << self.n_kills.min(8)));
            self.n_kills += 1;
        }
    }

    /// Handles the end of a child of the supervisor.
    pub fn reaped(
        &mut self,
        reaped: &Reaped,
        parent: &Parent<'_>,
        single: &SingleThreaded,
        frames: &mut Vec<StepFrame>,
    ) {
        let is_singleton = singleton::found_singleton(&mut self.singleton, reaped);
        if is_singleton {
            let (diagnosis, command) = (singleton::diagnosis(self.order.n_tasks), singleton::command(&self.order.argv));
            self.write_error(&format!("{diagnosis} in place of srun or rms run: mpirun {command}"), frames);
        }
        let Some(ended) = self.tasks.iter_mut().find(|task| task.pid == reaped.pid && task.end.is_none()) else {
            return;
        };
        ended.end = Some(reaped.end);
        let mut actions = Vec::new();
        // The number of a task of an abandoned step is not needed.
        if !self.is_silent {
            let task = task_of(ended.stream);
            self.pmi.task_ended(task, reaped.end, &mut actions);
        }
        self.run(actions, parent, single, frames);
    }

    /// Writes to the standard error of the first task; the few bytes beyond the window do not matter.
    fn write_error(&self, text: &str, frames: &mut Vec<StepFrame>) {
        if let Some(task) = self.tasks.first().filter(|_| !self.is_silent) {
            frames.push(StepFrame::Bytes { stream: task.stream + 2, bytes: format!("rms: {text}\n").into_bytes() });
        }
    }

    /// Reports the tasks that have ended; returns whether all have.
    pub fn settle(&mut self, frames: &mut Vec<StepFrame>) -> bool {
        while let Some(idx) = self.tasks.iter().position(|task| task.end.is_some()) {
            let mut task = self.tasks.swap_remove(idx);
            frames.extend(task.drain().into_iter().map(|(stream, bytes)| StepFrame::Bytes { stream, bytes }));
            if let Some(error) = task.exec_status.take_error() {
                self.problem.get_or_insert(error);
                self.kill();
                continue;
            }
            let (code, signal) = match task.end {
                Some(End::Exited(code)) => (Some(code), None),
                Some(End::Signaled(signal)) => (None, Some(signal)),
                None => (None, None),
            };
            let stream = self.stream;
            let ended = FromSupervisor::StepTaskEnded { stream, task: task_of(task.stream), code, signal };
            frames.push(StepFrame::Message(ended));
        }
        if !self.tasks.is_empty() {
            return false;
        }
        // Background processes of its tasks end with them, as with a job's.
        self.signal_all(nix::libc::SIGKILL);
        let stream = self.stream;
        frames.push(StepFrame::Message(match self.problem.take() {
            Some(reason) => FromSupervisor::StepFailed { stream, reason },
            None => FromSupervisor::StepDone { stream },
        }));
        true
    }

    /// Returns whether it is being ended, and its processes have had TERM.
    pub fn is_ending(&self) -> bool {
        self.kill_at.is_some()
    }

    fn signal_all(&self, signal: i32) {
        for pid in self.processes() {
            let _gone_already = sys::kill(pid.as_raw(), signal);
        }
    }

    /// Returns each process of its tasks' sessions, and those that these have started in sessions of their own.
    pub fn processes(&self) -> Vec<Pid> {
        let mut ours = BTreeSet::new();
        let mut listed = Vec::new();
        // Parents come before their children.
        for pid in tree::descendants(getpid()) {
            let is_in_session = tree::session_of(pid).is_some_and(|session| self.sessions.contains(&session));
            // A task that has not been executed yet may not have created its session.
            let is_ours = is_in_session || self.sessions.contains(&pid) || self.is_left_or_below(pid, &ours);
            if is_ours {
                ours.insert(pid);
                listed.push(pid);
            }
        }
        listed
    }

    /// Returns whether a process is below one of `ours`, or was until its parent ended. Only orphans are asked for their
    /// variables: `mpirun` gives those of the step that it runs in to ranks on other nodes, where they are no tasks of a
    /// step.
    fn is_left_or_below(&self, pid: Pid, ours: &BTreeSet<Pid>) -> bool {
        tree::parent_of(pid).is_some_and(|parent| {
            let is_orphan = parent == getpid();
            ours.contains(&parent) || (is_orphan && tree::carries(pid, "RMS_STEP_ID", &self.order.step.to_string()))
        })
    }

    fn run(&mut self, actions: Vec<Action>, parent: &Parent<'_>, single: &SingleThreaded, frames: &mut Vec<StepFrame>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Start(placement) => {
                    let (sockets, problem) = self.spawn(parent, &placement, single);
                    self.pmi.started(&placement, sockets, problem.map(|problem| problem.to_string()), &mut more);
                }
                Action::Read { from, paths } => {
                    self.pmi.hostfiles_read(from, spawned::read_hostfiles(parent, &paths), &mut more);
                }
                told => self.report(vec![told], frames),
            }
            actions.extend(more);
        }
    }

    /// Reports actions that only need a message.
    fn report(&mut self, actions: Vec<Action>, frames: &mut Vec<StepFrame>) {
        let stream = self.stream;
        for action in actions {
            match action {
                Action::Send { to: _, frame: HubFrame::Up(frame) } => {
                    frames.push(StepFrame::Message(FromSupervisor::StepPmi { stream, frame }));
                }
                Action::Abort { code } => {
                    frames.push(StepFrame::Message(FromSupervisor::StepAborted { stream, code }));
                    self.kill();
                }
                Action::WriteError(message) => self.write_error(&message, frames),
                Action::Kill { tasks } => {
                    let is_named = |task: &&Exec| task.end.is_none() && tasks.contains(&task_of(task.stream));
                    for task in self.tasks.iter().filter(is_named) {
                        sys::kill_group(task.pid, nix::libc::SIGKILL);
                    }
                }
                // These are actions of the hub, which is in the agent, or were carried out above.
                Action::Send { to: _, frame: HubFrame::Down(_) }
                | Action::RequestNodes(_)
                | Action::Start(_)
                | Action::Read { .. } => {}
            }
        }
    }

    /// Starts ranks that other ranks of the step have requested. Returns their sockets by task, and why the next rank
    /// did not start.
    fn spawn(
        &mut self,
        parent: &Parent<'_>,
        placement: &Placement,
        single: &SingleThreaded,
    ) -> (Vec<(u32, OwnedFd)>, Option<StartError>) {
        let mut sockets = Vec::new();
        let problem = self.spawn_into(&mut sockets, parent, placement, single).err();
        (sockets, problem)
    }

    fn spawn_into(
        &mut self,
        sockets: &mut Vec<(u32, OwnedFd)>,
        parent: &Parent<'_>,
        placement: &Placement,
        single: &SingleThreaded,
    ) -> Result<(), StartError> {
        if self.kill_at.is_some() {
            return Err(StartError::Ending);
        }
        let order = self.as_job(parent);
        let parent = &Parent { order: &order, ..*parent };
        let n_local = placement.parts.iter().map(|part| part.n_ranks).sum();
        let mut variables = self.variables.clone();
        variables.insert("PMI_SPAWNED".to_owned(), "1".to_owned());
        let mut local = 0;
        for part in &placement.parts {
            let argv = part.argv.iter().cloned().map(start::c_string).collect::<Result<Vec<CString>, StartError>>()?;
            let candidates = spawned::candidates(part, argv.first().ok_or(StartError::ZeroByte)?, &variables);
            let cwd = Path::new(&self.order.cwd).join(part.wdir.as_deref().unwrap_or_default()).display().to_string();
            for rank in part.first_rank..part.first_rank.saturating_add(part.n_ranks) {
                let task = placement.first_task.saturating_add(local);
                let rank = Rank { task, rank, local, n_local, n_ranks: placement.n_ranks, cpus: None };
                let socket = self.start_task(parent, &rank, (&argv, &candidates), &cwd, &mut variables, single)?;
                self.tasks.last_mut().map(|task| task.input.feed(b""));
                sockets.push((task, socket));
                local += 1;
            }
        }
        Ok(())
    }
}

/// The numbers of a rank: its task in the step, and its rank in the world.
#[derive(Clone, Copy, Debug)]
struct Rank<'a> {
    task: u32,
    rank: u32,
    local: u32,
    n_local: u32,
    n_ranks: u32,
    cpus: Option<&'a CpuSet>,
}

/// Returns the window of a task's outputs: unread output must not fill the supervisor's memory, regardless of the
/// number of tasks.
fn window(n_local: u32) -> u64 {
    (OUTPUT_OF_A_STEP / u64::from(n_local.max(1))).clamp(LEAST_WINDOW, WINDOW)
}

const OUTPUT_OF_A_STEP: u64 = 8 << 20;
const LEAST_WINDOW: u64 = 4 << 10;

fn taken(stream: u64, n_bytes: u64, frames: &mut Vec<StepFrame>) {
    if n_bytes > 0 {
        frames.push(StepFrame::Message(FromSupervisor::Taken { stream, n_bytes, total: None }));
    }
}

/// The longest grace time, so that deadlines do not overflow.
const MAX_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);
