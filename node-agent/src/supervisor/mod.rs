//! The process that supervises one job on one node: starts it, watches it, ends it, and outlives the agent.
//!
//! It is single-threaded, with one `poll` loop and deadlines in place of timers. It is the sub-reaper of everything the
//! job starts, so "no child left" means "the tree has ended", and SIGCHLD notifies of it.

pub mod binding;
mod cgroup_limits;
mod child;
mod confine;
mod connection;
mod cpus;
mod devices;
pub mod environment;
mod exec;
mod execs;
mod folder;
mod follow_cpus;
pub mod hostfile;
mod job;
mod job_errors;
pub mod malleable;
mod mpi;
mod openmp;
mod pump;
mod resize;
mod singleton;
pub mod slurm;
mod spawned;
mod start;
mod step;
mod steps;
mod streams;
pub mod tree;
mod user;
pub mod variables;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use connection::Connection;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::setsid;
use rms_api::desired::NodeExit;
use rms_core::node_loop::Growth;
use rms_model::Span;

use crate::cgroup::{Cgroup, Meter};
use crate::frame::Frame;
use crate::order::{FromSupervisor, Order, TASK_INPUT, ToSupervisor};
use crate::pmi::hub::{self, Grown};
use crate::pmi::ranks::Ending;
use crate::spool::{self, EntryRef};
use crate::sys::{SingleThreaded, WaitResult, reap};
use cgroup_limits::CgroupLimits;
pub use folder::Folder;
pub use job::now;
use job::{Job, Phase};
use malleable::Malleable;
use mpi::{Action, PmiServer};
use start::StartFailure;
pub use user::{Account, AccountError};

/// The arguments of a supervisor.
#[derive(Debug)]
pub struct SupervisorArgs {
    pub name: String,
    pub seats_dir: PathBuf,
    pub jobs_dir: PathBuf,
    pub cgroup: Cgroup,
    pub listener: UnixListener,
}

/// Returns the socket of a seat that has no job.
pub fn seat_socket(seats_dir: &std::path::Path, name: &str) -> PathBuf {
    spool::socket_path(&seats_dir.join(name))
}

/// Serves jobs, one after the other, until this process is no longer needed.
///
/// # Errors
/// The process cannot be set up; there is no job yet.
pub fn run(args: SupervisorArgs, single: SingleThreaded) -> io::Result<()> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    let _only_cosmetic = prctl::set_name(c"rms-supervisor");
    crate::sys::protect_from_oom("-1000");
    crate::sys::reset_signals();
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // Signals that stop the agent's service must not end the jobs; SIGKILL still does.
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGQUIT] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    umask(Mode::from_bits_truncate(0o022));
    args.listener.set_nonblocking(true)?;
    args.cgroup.enter()?;
    let folder = Folder::open(&args.seats_dir, &args.name)?;
    let meter = args.cgroup.meter();
    let boot = spool::boot_id();
    Supervisor {
        args,
        single,
        signals,
        folder,
        meter,
        boot,
        accounts: user::AccountCache::default(),
        agent: None,
        job: None,
        has_leftovers: false,
        cgroup_limits: CgroupLimits::default(),
    }
    .serve()
}

struct Supervisor {
    args: SupervisorArgs,
    single: SingleThreaded,
    signals: SignalFd,
    folder: Folder,
    meter: Meter,
    boot: String,
    accounts: user::AccountCache,
    agent: Option<Connection>,
    job: Option<Job>,
    /// Processes of its job cannot be killed: it takes no other job.
    has_leftovers: bool,
    cgroup_limits: CgroupLimits,
}

/// The source of a descriptor in the poll set.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Listener,
    Agent,
    Rank(u32),
    /// A task has reported whether it was executed.
    ExecStatus,
    /// Output of a task.
    Output(usize),
    Input,
    ExecInput(usize),
    ExecOutput(usize, usize),
    Step(usize, step::Source),
    /// Processes that follow the CPUs of the job: the listening socket, or one connected process.
    Malleable(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Exit,
}

impl Supervisor {
    fn serve(mut self) -> io::Result<()> {
        loop {
            for source in self.wait()? {
                if self.ready(source)? == Next::Exit {
                    return Ok(());
                }
            }
            if self.on_time() == Next::Exit {
                return Ok(());
            }
        }
    }

    /// Sleeps until something is ready or due.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut fds = vec![
            (Source::Signals, self.signals.as_fd(), PollFlags::POLLIN),
            (Source::Listener, self.args.listener.as_fd(), PollFlags::POLLIN),
        ];
        let flags =
            |wants_out: bool| if wants_out { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        if let Some(agent) = &self.agent {
            fds.push((Source::Agent, agent.as_fd(), flags(agent.has_outgoing())));
        }
        if let Some(job) = &self.job {
            if let Some(pmi) = &job.pmi {
                fds.extend(pmi.sockets().map(|(task, fd, out)| (Source::Rank(task), fd, flags(out))));
            }
            fds.extend(job.exec_pipes().map(|fd| (Source::ExecStatus, fd, PollFlags::POLLIN)));
            fds.extend(job.pump.sources().map(|(idx, fd)| (Source::Output(idx), fd, PollFlags::POLLIN)));
            fds.extend(job.input.writable().map(|fd| (Source::Input, fd, PollFlags::POLLOUT)));
            for (idx, exec) in job.execs.iter().enumerate() {
                fds.extend(exec.input.writable().map(|fd| (Source::ExecInput(idx), fd, PollFlags::POLLOUT)));
                fds.extend(exec.readable().map(|(out, fd)| (Source::ExecOutput(idx, out), fd, PollFlags::POLLIN)));
            }
            let malleable = job.cpus.malleable.iter().flat_map(Malleable::sources);
            fds.extend(malleable.map(|(client, fd)| (Source::Malleable(client), fd, PollFlags::POLLIN)));
            for (idx, step) in job.steps.iter().enumerate() {
                fds.extend(step.sources().map(|(source, fd, flags)| (Source::Step(idx, source), fd, flags)));
            }
        }
        let mut poll_fds: Vec<PollFd<'_>> = fds.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        match poll(&mut poll_fds, self.timeout()) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        Ok(fds.iter().zip(&poll_fds).filter(|(_, fd)| is_ready(fd)).map(|((source, _, _), _)| *source).collect())
    }

    fn timeout(&self) -> PollTimeout {
        let Some(job) = &self.job else { return PollTimeout::NONE };
        let left = job.wakes_at().saturating_duration_since(Instant::now());
        // Rounded up, or the loop would spin through the last millisecond; sleeps of more than 24 days are cut short.
        let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    }

    fn ready(&mut self, source: Source) -> io::Result<Next> {
        match source {
            Source::Signals => {
                // One at a time: a further signal wakes the supervisor again.
                let _only_that_there_is_one = self.signals.read_signal();
                Ok(self.reap())
            }
            Source::Listener => {
                self.accept();
                Ok(Next::Continue)
            }
            Source::Agent => Ok(self.read_agent()),
            Source::Rank(task) => {
                self.with_pmi(|pmi, actions| pmi.ready(task, actions));
                Ok(Next::Continue)
            }
            Source::ExecStatus => {
                let mut actions = Vec::new();
                if let Some(job) = &mut self.job {
                    job.check_exec_statuses(&mut actions);
                    job.follow_cpus_late(&self.args.cgroup);
                }
                self.run_actions(actions);
                // A task that reported an error is about to exit.
                Ok(Next::Continue)
            }
            Source::Output(idx) => {
                self.job.as_mut().map(|job| job.pump.copy(idx));
                Ok(Next::Continue)
            }
            Source::Input => {
                let n_taken = self.job.as_mut().map_or(0, |job| job.input.flush());
                self.confirm(TASK_INPUT, n_taken);
                Ok(Next::Continue)
            }
            Source::ExecInput(idx) => {
                let exec = self.job.as_mut().and_then(|job| job.execs.get_mut(idx));
                let (stream, n_taken) = exec.map_or((0, 0), |exec| (exec.stream, exec.input.flush()));
                self.confirm(stream, n_taken);
                Ok(Next::Continue)
            }
            Source::ExecOutput(idx, out) => {
                let exec = self.job.as_mut().and_then(|job| job.execs.get_mut(idx));
                if let Some((stream, bytes)) = exec.and_then(|exec| exec.read(out)) {
                    self.send_bytes(stream, &bytes);
                }
                self.finish_execs();
                Ok(Next::Continue)
            }
            Source::Step(idx, source) => {
                self.step_ready(idx, source);
                Ok(Next::Continue)
            }
            Source::Malleable(client) => {
                self.malleable_ready(client);
                Ok(Next::Continue)
            }
        }
    }

    /// Accepts a connection. The newest wins: an older one is dead, which was not noticed yet.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.args.listener.accept() {
            let Ok(connection) = Connection::new(stream) else { continue };
            self.abandon_steps();
            self.agent = Some(connection);
            let situation =
                self.job.as_mut().map_or(FromSupervisor::Idle, |job| FromSupervisor::Job(job.take_report()));
            self.send(&situation);
            if let Some(job) = &self.job {
                // What was on its way to this process when the agent ended is sent again.
                let total = Some(job.input.count());
                self.send(&FromSupervisor::Taken { stream: TASK_INPUT, n_bytes: 0, total });
            }
            let growth = self.job.as_ref().and_then(|job| job.pmi.as_ref()).and_then(PmiServer::unanswered);
            self.run_actions(growth.map(Action::RequestNodes).into_iter().collect());
        }
    }

    fn read_agent(&mut self) -> Next {
        let mut frames = Vec::new();
        let Some(agent) = &mut self.agent else { return Next::Continue };
        let alive = agent.receive(&mut frames).and_then(|()| agent.flush());
        for frame in frames {
            let next = match frame {
                Frame::Message(message) => self.handle_message(message),
                Frame::Bytes { stream, bytes } => {
                    self.input(stream, &bytes);
                    Next::Continue
                }
            };
            if next == Next::Exit {
                return Next::Exit;
            }
        }
        if self.folder.return_to_seat().is_err() {
            return self.exit_without_job();
        }
        if alive.is_err() { self.agent_lost() } else { Next::Continue }
    }

    fn agent_lost(&mut self) -> Next {
        self.agent = None;
        self.abandon_steps();
        let Some(job) = &mut self.job else { return self.exit_without_job() };
        for exec in &mut job.execs {
            exec.abandon();
        }
        match job.phase {
            Phase::Running | Phase::Ending(_) => Next::Continue,
            Phase::Ended { .. } => self.exit_with_result(),
        }
    }

    /// Exits; the result stays on disk for the next agent, which does not need this process.
    fn exit_with_result(&mut self) -> Next {
        let _without_power_loss_it_holds = spool::sync(&spool::result_path(self.folder.dir()));
        Next::Exit
    }

    /// Removes the folder and exits: nothing here is worth keeping.
    fn exit_without_job(&self) -> Next {
        self.folder.remove();
        Next::Exit
    }

    fn handle_message(&mut self, message: ToSupervisor) -> Next {
        match message {
            ToSupervisor::Start(order) => return self.start(*order),
            ToSupervisor::Forget { keep } => return self.forget(keep),
            ToSupervisor::Update(order) => self.update(*order),
            ToSupervisor::Stop { patience, grace } => self.end(patience, NodeExit::Ordered, grace),
            ToSupervisor::Kill => self.end(Span::ZERO, NodeExit::Ordered, Span::ZERO),
            ToSupervisor::Signal { signal } => {
                if let Some(job) = &self.job {
                    job.signal(signal);
                }
            }
            ToSupervisor::Exec(order) => self.exec(*order),
            ToSupervisor::Violated { reason } => {
                self.job.iter().for_each(|job| job_errors::write_error(job, &reason));
                let grace = self.job.as_ref().map_or(Span::ZERO, |job| job.order.launch.grace);
                self.end(Span::ZERO, NodeExit::Violated { reason }, grace);
            }
            ToSupervisor::ExecAbandon { stream } => {
                let job = self.job.as_mut();
                let exec = job.and_then(|job| job.execs.iter_mut().find(|exec| exec.stream == stream));
                if let Some(exec) = exec {
                    exec.abandon();
                    crate::sys::kill_group(exec.pid, nix::libc::SIGTERM);
                }
            }
            ToSupervisor::Taken { stream, n_bytes } => {
                for exec in self.job.iter_mut().flat_map(|job| &mut job.execs) {
                    exec.confirmed(stream, n_bytes);
                }
                self.step_confirmed(stream, n_bytes);
            }
            ToSupervisor::Pmi { node, frame } => {
                self.with_pmi(|pmi, actions| pmi.receive(&node, frame, actions));
                // It may have been the last frame that was expected from other nodes.
                return self.reap();
            }
            ToSupervisor::PmiLinked => self.with_pmi(PmiServer::relinked),
            ToSupervisor::Growth { seq, result } => {
                let grown = match result {
                    Growth::Granted { generation } => Grown::Granted { generation },
                    Growth::Refused { reason } => Grown::Refused { reason },
                };
                self.with_pmi(|pmi, actions| pmi.grown(seq, grown, actions));
            }
            ToSupervisor::Step(order) => self.begin_step(*order),
            ToSupervisor::StepSignal { stream, signal } => self.step_signal(stream, signal),
            ToSupervisor::StepEnd { stream, silent } => self.end_step(stream, silent),
            ToSupervisor::StepPmi { stream, frame } => self.step_receive(stream, frame),
            ToSupervisor::SpoolFull => {
                let dir = self.folder.dir();
                self.job.iter_mut().for_each(|job| job.look_at_disk(dir));
            }
        }
        Next::Continue
    }

    fn with_pmi(&mut self, act: impl FnOnce(&mut PmiServer, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        if let Some(pmi) = self.job.as_mut().and_then(|job| job.pmi.as_mut()) {
            act(pmi, &mut actions);
        }
        self.run_actions(actions);
    }

    fn start(&mut self, order: Order) -> Next {
        let (job, run) = (order.job, order.run);
        let entry_dir = self.args.jobs_dir.join(spool::entry_name(job, run));
        let mut new = Job::new(order, self.meter.baseline(), &self.args.cgroup);
        if self.job.is_some() {
            let report = new.ended(NodeExit::not_started("its supervisor has a job already"), &self.meter);
            self.send(&FromSupervisor::Job(report));
            return Next::Continue;
        }
        // From here on this process must not end with the agent.
        let cleared = prctl::set_pdeathsig(None);
        let claimed = cleared.map_err(io::Error::from).and_then(|()| self.claim(&new.order, &entry_dir));
        let started = match claimed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.send(&FromSupervisor::AlreadyThere { job, run });
                let is_bound_again = prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
                return if is_bound_again { Next::Continue } else { self.exit_without_job() };
            }
            Ok(()) => self.cgroup_limits.apply(&new, &self.args.cgroup).and_then(|()| {
                self.open_malleable(&mut new)?;
                let started = start::start(&new.order, &self.folder, &mut self.accounts, &self.single);
                let is_fault = |error: &start::StartError| {
                    error.is_of_node() && !(self.cgroup_limits.limits_memory() && error.is_of_memory())
                };
                started.map_err(|error| StartFailure { is_fault: is_fault(&error), reason: error.to_string() })
            }),
            // The agent gives the job to another supervisor. Without its folder (the spool was deleted) this one cannot
            // take any job.
            Err(error) if self.folder.is_free() || error.kind() == io::ErrorKind::NotFound => {
                return self.exit_without_job();
            }
            Err(error) => {
                Err(StartFailure { reason: format!("cannot make {}: {error}", entry_dir.display()), is_fault: true })
            }
        };
        let mut actions = Vec::new();
        match started {
            Ok(started) => new.started(started, &mut actions),
            Err(StartFailure { reason, is_fault }) => {
                if is_fault {
                    self.send(&FromSupervisor::Fault { reason: reason.clone() });
                }
                let exit = if is_fault { NodeExit::at_fault(&reason) } else { NodeExit::not_started(&reason) };
                new.end(exit, Span::ZERO, &self.args.cgroup);
            }
        }
        self.job = Some(new);
        self.report_running(Instant::now());
        self.run_actions(actions);
        // A task may have ended before it was listed.
        self.reap()
    }

    fn update(&mut self, order: Order) {
        let files = self.folder.host_files();
        let Some(job) = self.job.as_mut().filter(|job| (order.job, order.run) == (job.job(), job.run())) else {
            return;
        };
        let is_news = resize::has_changed(&job.order, &order);
        let mut actions = Vec::new();
        if !job.update(order, &files, &mut actions) {
            return;
        }
        job.follow_cpus(&self.args.cgroup);
        let is_kept = self.cgroup_limits.update(job, &self.args.cgroup);
        job.set_enforced(is_kept);
        let entry = EntryRef {
            order: &job.order,
            boot: &self.boot,
            cgroup: &self.args.cgroup,
            seat: &self.args.name,
            supervisor: nix::unistd::getpid().as_raw(),
        };
        if let Err(error) = self.folder.update(&entry) {
            // The processes continue with the old files; the next change is written again.
            eprintln!("cannot write to {}: {error}", self.folder.dir().display());
        }
        let report = self.job.as_mut().map(Job::take_report);
        report.into_iter().for_each(|report| self.send(&FromSupervisor::Job(report)));
        // A job that is notified reads the files at once.
        if let Some(job) = self.job.as_mut().filter(|_| is_news) {
            resize::notify(job, &self.single);
        }
        // Ranks that start there now read what was just written.
        self.run_actions(actions);
    }

    /// Reports that the job runs, once that is due.
    fn report_running(&mut self, now: Instant) {
        let report = self.job.as_mut().and_then(|job| job.running_report(now));
        if let Some(report) = report {
            self.send(&FromSupervisor::Job(report));
        }
    }

    /// Claims the spool entry: from here on every later agent knows the execution.
    fn claim(&mut self, order: &Order, entry_dir: &Path) -> io::Result<()> {
        let entry = EntryRef {
            order,
            boot: &self.boot,
            cgroup: &self.args.cgroup,
            seat: &self.args.name,
            supervisor: nix::unistd::getpid().as_raw(),
        };
        self.folder.claim(entry_dir, &entry)
    }

    fn end(&mut self, patience: Span, exit: NodeExit, grace: Span) {
        // Only a job that leaves the node voluntarily has time to end on its own.
        let ending = if patience.is_zero() { Ending::Ordered } else { Ending::Leaving };
        self.with_pmi(|pmi, actions| pmi.end(ending, actions));
        if let Some(job) = &mut self.job {
            job.end_after(patience, exit, grace, &self.args.cgroup);
        }
    }

    /// Handles that the server has the result: drops the entry and serves the next job if this process can. The agent
    /// assumes that it can; if not, the agent notices that this process exits.
    fn forget(&mut self, keep: bool) -> Next {
        let is_ended = self.job.as_ref().is_some_and(|job| matches!(job.phase, Phase::Ended { .. }));
        let Some(job) = self.job.take_if(|_| is_ended) else { return Next::Continue };
        let is_fit = self.args.cgroup.can_start_over() && !self.args.cgroup.has_left_over(self.meter.peak_bytes());
        let can_start_over = is_fit && self.agent.is_some() && !self.has_leftovers;
        let is_bound = can_start_over && prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
        let can_go_on = is_bound
            && match keep {
                true => self.folder.start_anew().is_ok(),
                false => self.folder.free(&job.order).is_ok(),
            };
        match (can_go_on, keep) {
            (true, _) => Next::Continue,
            (false, true) => Next::Exit,
            (false, false) => self.exit_without_job(),
        }
    }

    /// Reaps every child that has ended and updates the job.
    fn reap(&mut self) -> Next {
        let mut actions = Vec::new();
        let tree_is_gone = loop {
            match reap() {
                WaitResult::Reaped(reaped) => {
                    self.step_reaped(&reaped);
                    if let Some(job) = &mut self.job {
                        job.reaped(reaped, &mut actions);
                    }
                }
                WaitResult::StillAlive => break false,
                WaitResult::NoChildren => break true,
            }
        };
        self.run_actions(actions);
        self.finish_execs();
        let Some(job) = &mut self.job else { return Next::Continue };
        job.settle(tree_is_gone, &self.args.cgroup);
        resize::run_hook(job, &self.single);
        self.has_leftovers |= !tree_is_gone && job.is_unkillable();
        let is_over = tree_is_gone || self.has_leftovers;
        let unkillable = if self.has_leftovers { job.unkillable_pids() } else { Vec::new() };
        let report = if is_over { job.finish(&self.args.cgroup, &self.meter) } else { None };
        let dir = self.folder.dir();
        if let Some((report, written)) = report.map(|report| (report, job.output_manifest(dir))) {
            if !unkillable.is_empty() {
                self.send(&FromSupervisor::Unkillable { pids: unkillable });
            }
            let _told_all_the_same = self.folder.write_result(&report, written);
            self.send(&FromSupervisor::Job(report));
            if self.agent.is_none() {
                return self.exit_with_result();
            }
        }
        Next::Continue
    }

    fn run_actions(&mut self, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Send { to, frame } => self.send(&FromSupervisor::Pmi { node: to, frame }),
                Action::Abort { code } => self.end(Span::ZERO, NodeExit::Aborted { code }, Span::ZERO),
                Action::WriteError(reason) => self.job.iter().for_each(|job| job_errors::write_error(job, &reason)),
                Action::Start(placement) => {
                    if let Some(job) = &mut self.job {
                        job.spawn(&placement, &self.folder, &self.single, &mut more);
                    }
                }
                Action::Kill { tasks } => self.job.iter().for_each(|job| job.kill(&tasks)),
                Action::Read { from, paths } => {
                    if let Some(job) = &mut self.job {
                        job.read_hostfiles(from, &paths, &self.folder, &mut more);
                    }
                }
                Action::RequestNodes(hub::Growth { seq, nodes, least }) => {
                    self.send(&FromSupervisor::AskGrowth { seq, nodes, least });
                }
            }
            actions.extend(more);
        }
    }

    fn on_time(&mut self) -> Next {
        let now = Instant::now();
        self.report_running(now);
        self.with_pmi(|pmi, actions| pmi.on_time(now, actions));
        self.steps_on_time(now);
        self.cpus_on_time(now);
        let Some(job) = &mut self.job else { return Next::Continue };
        resize::on_time(job, now);
        singleton::on_time(job, now, &self.single);
        match &job.phase {
            // The end of a task wakes the supervisor anyway.
            Phase::Running if job.waits_for_tasks() && now < job.deadline() => Next::Continue,
            Phase::Running | Phase::Ending(_) => {
                job.on_time(now, &self.args.cgroup);
                // A share without tasks, or one that stays for others, is not woken by the end of a child.
                self.reap()
            }
            Phase::Ended { sync_at, .. } if now >= *sync_at => self.exit_with_result(),
            Phase::Ended { .. } => Next::Continue,
        }
    }

    fn send(&mut self, message: &FromSupervisor) {
        // A failing connection is noticed and handled by the next poll.
        let _noticed_later = self.agent.as_mut().map(|agent| agent.send(message));
    }

    fn send_bytes(&mut self, stream: u64, bytes: &[u8]) {
        let _noticed_later = self.agent.as_mut().map(|agent| agent.send_bytes(stream, bytes));
    }
}
