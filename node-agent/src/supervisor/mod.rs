//! The process that stands over one job on one node: starts it, watches it, ends it, outlives the agent.
//!
//! Single-threaded, one `poll` at its heart, no timers but deadlines. It is the sub-reaper of everything the
//! job starts, so "no child left" is "the tree is gone", and it hears of that by SIGCHLD.

mod child;
mod connection;
mod environment;
mod exec;
mod hostfile;
mod job;
mod mpi;
pub mod order;
mod pattern;
mod start;
mod streams;
pub mod tree;
mod user;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::setsid;
use rms_core::desired::NodeExit;
use rms_model::Span;

use crate::cgroup::Cgroup;
use crate::frame::Frame;
use crate::spool::{self, Entry};
use crate::sys::{End, Harvest, SingleThreaded, reap};
use connection::Connection;
use exec::Exec;
pub use job::now;
use job::{Job, Phase};
use mpi::{Desk, Errand};
use order::{FromSupervisor, Order, TASK_INPUT, ToSupervisor};

/// What a supervisor is born with.
#[derive(Debug)]
pub struct Seat {
    pub name: String,
    pub seats_dir: PathBuf,
    pub jobs_dir: PathBuf,
    pub cgroup: Cgroup,
    pub listener: UnixListener,
}

/// The socket of a seat that has no job.
pub fn seat_socket(seats_dir: &std::path::Path, name: &str) -> PathBuf {
    seats_dir.join(format!("{name}.sock"))
}

/// Serves jobs, one after the other, until nobody needs this process any more.
///
/// # Errors
/// The process cannot be set up; there is no job yet.
pub fn run(seat: Seat, single: SingleThreaded) -> io::Result<()> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    let _only_cosmetic = prctl::set_name(c"rms-supervisor");
    crate::sys::reset_signals();
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // Whoever ends the agent's service by signals does not mean the jobs; SIGKILL is still there.
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGQUIT] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    umask(Mode::from_bits_truncate(0o022));
    seat.listener.set_nonblocking(true)?;
    seat.cgroup.enter()?;
    Supervisor { seat, single, signals, agent: None, job: None }.serve()
}

struct Supervisor {
    seat: Seat,
    single: SingleThreaded,
    signals: SignalFd,
    agent: Option<Connection>,
    job: Option<Job>,
}

/// What one descriptor in the poll set stands for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Listener,
    Agent,
    Rank(usize),
    Input,
    ExecInput(usize),
    ExecOutput(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Stay,
    Leave,
}

impl Supervisor {
    fn serve(mut self) -> io::Result<()> {
        loop {
            for source in self.wait()? {
                if self.ready(source)? == Next::Leave {
                    return Ok(());
                }
            }
            if self.on_time() == Next::Leave {
                return Ok(());
            }
        }
    }

    /// Sleeps until something is ready or due.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut fds = vec![
            (Source::Signals, self.signals.as_fd(), PollFlags::POLLIN),
            (Source::Listener, self.seat.listener.as_fd(), PollFlags::POLLIN),
        ];
        let flags =
            |wants_out: bool| if wants_out { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        if let Some(agent) = &self.agent {
            fds.push((Source::Agent, agent.as_fd(), flags(agent.has_outgoing())));
        }
        if let Some(job) = &self.job {
            if let Some(desk) = &job.desk {
                fds.extend(desk.sockets().map(|(local, fd, out)| (Source::Rank(local), fd, flags(out))));
            }
            fds.extend(job.input.writable().map(|fd| (Source::Input, fd, PollFlags::POLLOUT)));
            for (idx, exec) in job.execs.iter().enumerate() {
                fds.extend(exec.input.writable().map(|fd| (Source::ExecInput(idx), fd, PollFlags::POLLOUT)));
                fds.extend(exec.readable().map(|(out, fd)| (Source::ExecOutput(idx, out), fd, PollFlags::POLLIN)));
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
        let left = job.deadline().saturating_duration_since(Instant::now());
        // Rounded up, or it would spin through the last millisecond; a longer sleep than 24 days is cut.
        let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    }

    fn ready(&mut self, source: Source) -> io::Result<Next> {
        match source {
            Source::Signals => {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                Ok(self.reap())
            }
            Source::Listener => {
                self.accept();
                Ok(Next::Stay)
            }
            Source::Agent => Ok(self.hear_agent()),
            Source::Rank(local) => {
                let mut errands = Vec::new();
                if let Some(desk) = self.job.as_mut().and_then(|job| job.desk.as_mut()) {
                    desk.ready(local, &mut errands);
                }
                self.run_errands(errands);
                Ok(Next::Stay)
            }
            Source::Input => {
                let n_taken = self.job.as_mut().map_or(0, |job| job.input.flush());
                self.confirm(TASK_INPUT, n_taken);
                Ok(Next::Stay)
            }
            Source::ExecInput(idx) => {
                let exec = self.job.as_mut().and_then(|job| job.execs.get_mut(idx));
                let (stream, n_taken) = exec.map_or((0, 0), |exec| (exec.stream, exec.input.flush()));
                self.confirm(stream, n_taken);
                Ok(Next::Stay)
            }
            Source::ExecOutput(idx, out) => {
                let exec = self.job.as_mut().and_then(|job| job.execs.get_mut(idx));
                if let Some((stream, bytes)) = exec.and_then(|exec| exec.read(out)) {
                    self.tell_bytes(stream, &bytes);
                }
                self.finish_execs();
                Ok(Next::Stay)
            }
        }
    }

    /// The newest agent counts: an old connection is one that has not been noticed to be dead.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.seat.listener.accept() {
            let Ok(connection) = Connection::new(stream) else { continue };
            self.agent = Some(connection);
            let situation = self.job.as_ref().map_or(FromSupervisor::Idle, |job| FromSupervisor::Job(job.report()));
            self.tell(&situation);
        }
    }

    fn hear_agent(&mut self) -> Next {
        let mut frames = Vec::new();
        let Some(agent) = &mut self.agent else { return Next::Stay };
        let alive = agent.receive(&mut frames).and_then(|()| agent.flush());
        for frame in frames {
            let next = match frame {
                Frame::Message(message) => self.obey(message),
                Frame::Bytes { stream, bytes } => {
                    self.input(stream, &bytes);
                    Next::Stay
                }
            };
            if next == Next::Leave {
                return Next::Leave;
            }
        }
        if alive.is_err() { self.agent_lost() } else { Next::Stay }
    }

    fn agent_lost(&mut self) -> Next {
        self.agent = None;
        let Some(job) = &mut self.job else { return Next::Leave };
        for exec in &mut job.execs {
            exec.abandon();
        }
        match job.phase {
            Phase::Running | Phase::Ending(_) => Next::Stay,
            Phase::Ended { .. } => self.leave_result(),
        }
    }

    /// The result stays on disk for the next agent; this process is not needed for that.
    fn leave_result(&mut self) -> Next {
        if let Some(job) = &self.job {
            let _without_power_loss_it_holds = spool::sync(&spool::result_path(&job.entry_dir));
        }
        Next::Leave
    }

    fn obey(&mut self, message: ToSupervisor) -> Next {
        match message {
            ToSupervisor::Start(order) => return self.start(*order),
            ToSupervisor::Forget { keep } => return self.forget(keep),
            ToSupervisor::Update(order) => self.update(*order),
            ToSupervisor::Stop { grace } => self.end(NodeExit::Ordered, grace),
            ToSupervisor::Kill => self.end(NodeExit::Ordered, Span::ZERO),
            ToSupervisor::Signal { signal } => {
                if let Some(job) = &self.job {
                    job.signal(signal);
                }
            }
            ToSupervisor::Exec(order) => self.exec(order.stream, order.command),
            ToSupervisor::ExecAbandon { stream } => {
                let job = self.job.as_mut();
                let exec = job.and_then(|job| job.execs.iter_mut().find(|exec| exec.stream == stream));
                if let Some(exec) = exec {
                    exec.abandon();
                    let _gone_already = crate::sys::kill(-exec.pid.as_raw(), nix::libc::SIGTERM);
                }
            }
            ToSupervisor::Taken { stream, n_bytes } => {
                for exec in self.job.iter_mut().flat_map(|job| &mut job.execs) {
                    exec.confirmed(stream, n_bytes);
                }
            }
            ToSupervisor::Pmi { host_idx, frame } => {
                self.with_desk(|desk, errands| desk.hear(host_idx, frame, errands));
                // It may have been the last that other hosts had to say.
                return self.reap();
            }
            ToSupervisor::PmiLinked => self.with_desk(Desk::relinked),
        }
        Next::Stay
    }

    fn with_desk(&mut self, act: impl FnOnce(&mut Desk, &mut Vec<Errand>)) {
        let mut errands = Vec::new();
        if let Some(desk) = self.job.as_mut().and_then(|job| job.desk.as_mut()) {
            act(desk, &mut errands);
        }
        self.run_errands(errands);
    }

    fn start(&mut self, order: Order) -> Next {
        let (job, run) = (order.job, order.run);
        // From here on this process must not end with the agent.
        let cleared = prctl::set_pdeathsig(None);
        let entry_dir = self.seat.jobs_dir.join(spool::entry_name(job, run));
        let claimed =
            if self.job.is_some() { Err(io::ErrorKind::ResourceBusy.into()) } else { spool::claim(&entry_dir) };
        match claimed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.tell(&FromSupervisor::AlreadyThere { job, run });
                return Next::Stay;
            }
            Err(error) => {
                let mut failed = Job::new(order, entry_dir, &self.seat.cgroup);
                let reason = format!("cannot make {}: {error}", failed.entry_dir.display());
                let report = failed.ended(NodeExit::NotStarted { reason }, &self.seat.cgroup);
                self.job = Some(failed);
                self.tell(&FromSupervisor::Job(report));
                return Next::Stay;
            }
        }
        let job = Job::new(order, entry_dir, &self.seat.cgroup);
        let prepared = cleared.map_err(io::Error::from).and_then(|()| self.prepare(&job));
        let job = self.job.insert(job);
        let started = match prepared {
            Ok(()) => start::start(&job.order, &job.entry_dir, &self.single).map_err(|error| error.to_string()),
            Err(error) => Err(format!("cannot write to {}: {error}", job.entry_dir.display())),
        };
        match started {
            Ok(started) => {
                job.started(started);
                let report = job.report();
                self.tell(&FromSupervisor::Job(report));
                // A task may have ended before it was listed.
                return self.reap();
            }
            Err(reason) => {
                job.end(NodeExit::NotStarted { reason }, Span::ZERO, &self.seat.cgroup);
            }
        }
        self.reap()
    }

    fn update(&mut self, order: Order) {
        let Some(job) = &mut self.job else { return };
        if (order.job, order.run) != (job.job(), job.run()) {
            return;
        }
        if let Err((path, error)) = job.update(order) {
            // The processes go on with what they know; the next change is written again.
            eprintln!("cannot write {}: {error}", path.display());
        }
        if let Some(job) = &self.job {
            let _known_from_before = self.write_entry(job);
        }
    }

    fn write_entry(&self, job: &Job) -> io::Result<()> {
        let entry = Entry {
            order: job.order.clone(),
            boot: spool::boot_id(),
            cgroup: self.seat.cgroup.clone(),
            seat: self.seat.name.clone(),
            supervisor: nix::unistd::getpid().as_raw(),
        };
        spool::write_entry(&job.entry_dir, &entry)
    }

    /// From here on the execution is known to every later agent.
    fn prepare(&self, job: &Job) -> io::Result<()> {
        self.write_entry(job)?;
        fs::rename(seat_socket(&self.seat.seats_dir, &self.seat.name), spool::socket_path(&job.entry_dir))
    }

    fn end(&mut self, exit: NodeExit, grace: Span) {
        if let Some(job) = &mut self.job {
            job.end(exit, grace, &self.seat.cgroup);
        }
    }

    /// The server has the result: away with the entry, and on to the next job if this process can.
    fn forget(&mut self, keep: bool) -> Next {
        let is_ended = self.job.as_ref().is_some_and(|job| matches!(job.phase, Phase::Ended { .. }));
        let Some(job) = self.job.take_if(|_| is_ended) else { return Next::Stay };
        let socket = seat_socket(&self.seat.seats_dir, &self.seat.name);
        let moved = fs::rename(spool::socket_path(&job.entry_dir), socket);
        let cleared = if keep { Ok(()) } else { fs::remove_dir_all(&job.entry_dir) };
        let can_go_on = moved.is_ok() && cleared.is_ok() && self.seat.cgroup.can_start_over();
        let stays_bound = prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
        if !(can_go_on && stays_bound) {
            return Next::Leave;
        }
        self.tell(&FromSupervisor::Idle);
        if self.agent.is_some() { Next::Stay } else { Next::Leave }
    }

    fn exec(&mut self, stream: u64, command: String) {
        let Some(job) = &mut self.job else { return };
        let exec = match (&job.account, &job.phase) {
            (Some(account), Phase::Running) => {
                Exec::start(&job.order, account, &job.variables, stream, command, &self.single)
                    .map_err(|error| error.to_string())
            }
            (Some(_) | None, Phase::Running | Phase::Ending(_) | Phase::Ended { .. }) => {
                Err("the job is ending".to_owned())
            }
        };
        match exec {
            Ok(exec) => {
                job.execs.push(exec);
                self.tell(&FromSupervisor::ExecStarted { stream });
            }
            Err(reason) => self.tell(&FromSupervisor::ExecFailed { stream, reason }),
        }
    }

    fn input(&mut self, stream: u64, bytes: &[u8]) {
        let Some(job) = &mut self.job else { return };
        let n_taken = if stream == TASK_INPUT {
            job.input.feed(bytes)
        } else {
            let exec = job.execs.iter_mut().find(|exec| exec.stream == stream);
            exec.map_or(bytes.len() as u64, |exec| exec.input.feed(bytes))
        };
        self.confirm(stream, n_taken);
    }

    fn confirm(&mut self, stream: u64, n_bytes: u64) {
        if n_bytes > 0 {
            self.tell(&FromSupervisor::Taken { stream, n_bytes });
        }
    }

    /// Collects every child that has ended and draws the consequences.
    fn reap(&mut self) -> Next {
        let mut errands = Vec::new();
        let tree_is_gone = loop {
            match reap() {
                Harvest::Reaped(reaped) => {
                    if let Some(job) = &mut self.job {
                        job.reaped(reaped, &mut errands);
                    }
                }
                Harvest::AllAlive => break false,
                Harvest::NoChildren => break true,
            }
        };
        self.run_errands(errands);
        self.finish_execs();
        let Some(job) = &mut self.job else { return Next::Stay };
        job.settle(&self.seat.cgroup);
        let report = if tree_is_gone { job.all_gone(&self.seat.cgroup) } else { None };
        if let Some(report) = report {
            let _told_all_the_same = spool::write_result(&job.entry_dir, &report);
            self.tell(&FromSupervisor::Job(report));
            if self.agent.is_none() {
                return self.leave_result();
            }
        }
        Next::Stay
    }

    /// Passes on the last output of commands that have ended, then how they ended.
    fn finish_execs(&mut self) {
        loop {
            let Some(job) = &mut self.job else { return };
            let Some(idx) = job.execs.iter().position(|exec| exec.end.is_some()) else { return };
            // A process in the background may hold the pipes for ever; what is there now is all that counts.
            for out in 0..2 {
                while let Some((stream, bytes)) = self.job.as_mut().and_then(|job| job.execs[idx].read(out)) {
                    let is_end = bytes.is_empty();
                    self.tell_bytes(stream, &bytes);
                    if is_end {
                        break;
                    }
                }
            }
            let Some(job) = &mut self.job else { return };
            let exec = job.execs.swap_remove(idx);
            let code = match exec.end {
                Some(End::Exited(code)) => code,
                Some(End::Signaled(signal)) => 128 + signal,
                None => 255,
            };
            self.tell(&FromSupervisor::ExecEnded { stream: exec.stream, code });
        }
    }

    fn run_errands(&mut self, errands: Vec<Errand>) {
        for errand in errands {
            match errand {
                Errand::Send { host_idx, frame } => self.tell(&FromSupervisor::Pmi { host_idx, frame }),
                Errand::Abort { code, reason: _ } => self.end(NodeExit::Aborted { code }, Span::ZERO),
            }
        }
    }

    fn on_time(&mut self) -> Next {
        let now = Instant::now();
        let Some(job) = &mut self.job else { return Next::Stay };
        match &job.phase {
            Phase::Running | Phase::Ending(_) => {
                job.on_time(now, &self.seat.cgroup);
                // A share without tasks has no child whose end would wake us; nor has one that stays for others.
                self.reap()
            }
            Phase::Ended { sync_at, .. } if now >= *sync_at => self.leave_result(),
            Phase::Ended { .. } => Next::Stay,
        }
    }

    fn tell(&mut self, message: &FromSupervisor) {
        // A failing connection is noticed, with all its consequences, by the next poll.
        let _noticed_later = self.agent.as_mut().map(|agent| agent.send(message));
    }

    fn tell_bytes(&mut self, stream: u64, bytes: &[u8]) {
        let _noticed_later = self.agent.as_mut().map(|agent| agent.send_bytes(stream, bytes));
    }
}
