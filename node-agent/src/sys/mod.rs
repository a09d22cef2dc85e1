//! The only module with unsafe code: forking, executing, reaping with usage, signal dispositions, shared memory,
//! bpf(2).
#![allow(unsafe_code)]

pub mod bpf;
mod image;
mod page;

use std::cell::RefCell;
use std::fs;
use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sched::CloneFlags;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::WaitStatus;
use nix::unistd::{ForkResult, Pid};
use rms_model::{Span, Usage};

pub use image::Image;
pub use page::Page;

/// Proof that this process had one thread when it was checked; the holder must not start another.
#[derive(Debug)]
pub struct SingleThreaded {
    /// The stack of children that borrow this process's memory; allocated for the first one.
    stack: RefCell<Vec<u8>>,
}

/// Much more than a child needs before it executes; untouched pages cost nothing.
const STACK_BYTES: usize = 256 << 10;

impl SingleThreaded {
    /// # Errors
    /// The process has more than one thread, or `/proc` is not readable.
    pub fn check() -> io::Result<SingleThreaded> {
        let n_threads = fs::read_dir("/proc/self/task")?.count();
        if n_threads != 1 {
            return Err(io::Error::other(format!("the process has {n_threads} threads and cannot fork safely")));
        }
        Ok(SingleThreaded { stack: RefCell::default() })
    }

    /// # Errors
    /// See fork(2).
    pub fn fork(&self) -> nix::Result<ForkResult> {
        // SAFETY: with one thread no lock can be held by a thread that the child lacks, so the child may run
        // ordinary code (allocate, panic, take locks). `self` proves that there is one thread.
        unsafe { nix::unistd::fork() }
    }

    /// Runs `child` in a new process, which should execute a program; if it returns, the process exits with the
    /// returned code. With borrowed memory this process is suspended until then.
    ///
    /// # Errors
    /// See clone(2).
    pub fn fork_to_execute(&self, memory: Memory, mut child: impl FnMut() -> u8) -> nix::Result<Pid> {
        let mut stack = self.stack.borrow_mut();
        stack.resize(STACK_BYTES, 0);
        let flags = match memory {
            Memory::Borrowed => CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK,
            Memory::Copied => CloneFlags::empty(),
        };
        let run = Box::new(|| isize::from(child()));
        // SAFETY: either the child has a copy of the memory of a process with one thread, or that thread waits in the
        // kernel until the child has executed or ended: memory has one user at a time, and allocator and locks are
        // found as they were left. The child has a stack of its own. A panic in it aborts at the callback's C boundary,
        // which ends the child alone.
        unsafe { nix::sched::clone(run, &mut stack, flags, Some(libc::SIGCHLD)) }
    }
}

/// The memory of a new process until it executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The parent's, which is suspended meanwhile: nothing is copied only to be discarded. Only safe if every process
    /// that may stop the child may also stop the parent.
    Borrowed,
    /// A copy of its own.
    Copied,
}

/// A child that has ended, with the usage of the child and of the children that it has reaped.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    pub pid: Pid,
    pub end: End,
    pub usage: Usage,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Signaled(i32),
}

impl End {
    /// Returns the exit code as a shell reports it.
    pub fn shell_code(self) -> i32 {
        match self {
            End::Exited(code) => code,
            End::Signaled(signal) => 128 + signal,
        }
    }
}

/// The result of [`reap`].
#[derive(Clone, Copy, Debug)]
pub enum WaitResult {
    Reaped(Reaped),
    /// There are live children, and none has ended.
    StillAlive,
    NoChildren,
}

/// Reaps one child that has ended, without blocking.
pub fn reap() -> WaitResult {
    loop {
        let mut status = 0;
        // SAFETY: an all-zero `rusage` is a valid value of that plain C struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the right types.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if pid == 0 {
            return WaitResult::StillAlive;
        }
        if pid < 0 {
            match Errno::last() {
                Errno::EINTR => continue,
                _no_children => return WaitResult::NoChildren,
            }
        }
        let pid = Pid::from_raw(pid);
        let end = match WaitStatus::from_raw(pid, status) {
            Ok(WaitStatus::Exited(_, code)) => End::Exited(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => End::Signaled(signal as i32),
            // Real-time signals have no name in `Signal`.
            Err(_) if libc::WIFSIGNALED(status) => End::Signaled(libc::WTERMSIG(status)),
            // Stops and continues are not requested.
            Ok(_) | Err(_) => continue,
        };
        let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        let cpu = Span::from_millis((micros(usage.ru_utime) + micros(usage.ru_stime)) / 1000);
        let peak_memory_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
        return WaitResult::Reaped(Reaped { pid, end, usage: Usage { cpu, peak_memory_kib } });
    }
}

/// Resets every signal to its default action and the mask to empty, as a new program expects.
pub fn reset_signals() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        let is_fixed = signal == Signal::SIGKILL || signal == Signal::SIGSTOP;
        if !is_fixed {
            // SAFETY: the default action runs no code of ours.
            let _cannot_fail = unsafe { sigaction(signal, &default) };
        }
    }
    unblock_signals();
}

/// Empties the signal mask, as a new program expects.
pub fn unblock_signals() {
    let _cannot_fail = SigSet::empty().thread_set_mask();
}

/// Lets the kernel reap children; [`reset_signals`] in a child undoes it.
pub fn ignore_children() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring runs no code of ours.
    let _cannot_fail = unsafe { sigaction(Signal::SIGCHLD, &ignore) };
}

/// Lets this process run before all ordinary ones, if it may, or like them again. Its children do not inherit this.
/// A priority (nice) would not do: the kernel divides the CPUs among sessions first.
pub fn run_first(first: bool) {
    let (policy, sched_priority) = if first { (libc::SCHED_RR, 1) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the pointer is to a live local of the right type.
    let _may_not = unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameters) };
}

/// Ends this process at once, without destructors and without exit handlers of the process it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Closes inherited files other than the standard streams: they belong to the process that started this program, and
/// users' jobs would inherit them. Must be the first action of a program.
pub fn close_inherited() {
    // SAFETY: nothing in this process has opened a file yet, so nothing owns what is closed here.
    let _not_there_on_old_kernels = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Closes all files in a process that was forked for a check, so that it keeps none of its parent's open.
pub fn close_all() {
    // SAFETY: the process ends without using or dropping what owned them: it returns to no code but the caller's, which
    // opens its own.
    let _not_there_on_old_kernels = unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
}

/// Sends a signal by number, for those without a name in `Signal`.
///
/// # Errors
/// See kill(2).
pub fn kill(pid: i32, signal: i32) -> nix::Result<()> {
    // SAFETY: kill has no memory preconditions.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Sends a signal to the process group that a child leads or is about to create; until then, to the child alone.
pub fn kill_group(leader: Pid, signal: i32) {
    let _gone_already = kill(-leader.as_raw(), signal).or_else(|_| kill(leader.as_raw(), signal));
}

/// Sets how likely the kernel is to kill this process when memory runs out, as far as this process is allowed to.
pub fn protect_from_oom(score: &str) {
    let _only_root_may = fs::write("/proc/self/oom_score_adj", score);
}
