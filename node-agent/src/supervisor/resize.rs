//! Notifies a job that its nodes have changed: by a signal, or by a command that is executed in addition to its tasks.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rms_api::desired::LaunchNode;
use rms_model::OnResize;

use super::child::{ChildError, ExecStatus, Program};
use super::environment;
use super::job::{Job, Phase};
use super::job_errors::write_error;
use super::start::{StartError, c_string};
use super::streams::{Input, Streams};
use super::variables;
use crate::order::Order;
use crate::sys::{self, End, SingleThreaded};

/// Notifications that a job has not received yet.
#[derive(Debug, Default)]
pub struct PendingNotices {
    /// The running hook and its generation.
    hook: Option<(Pid, ExecStatus, u32)>,
    /// The generation for which the hook runs next.
    next_hook: Option<u32>,
    signal: Option<PendingSignal>,
}

/// A signal that some of the job's processes are not ready for: it would end them.
#[derive(Debug)]
struct PendingSignal {
    signal: i32,
    try_at: Instant,
    backoff: Duration,
    /// Processes that have not received it, and how many checks in a row have found it blocked.
    waiting: Vec<(Pid, u32)>,
}

/// A process that has just been started first sets its handlers. The kernel does not notify of that, so the supervisor
/// checks again, with doubling pauses.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// A shell briefly blocks all signals whenever it forks, and a signal that arrives then ends it afterwards. A process
/// that waits for a blocked signal has it blocked at each check.
const MIN_BLOCKED_CHECKS: u32 = 3;
/// A process that is still not ready after this pause never will be.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Returns whether the usable nodes of the job, or its part of them, have changed. A node that leaves as announced does
/// not count.
pub fn has_changed(before: &Order, now: &Order) -> bool {
    let usable = |place: &&LaunchNode| !place.departing;
    let place_of = |place: &LaunchNode| (place.name.clone(), place.joined, place.cpus, place.grant.clone());
    !before.launch.nodes.iter().filter(usable).map(place_of).eq(now.launch.nodes.iter().filter(usable).map(place_of))
}

/// Notifies the job of a change, once the hostfiles are up to date. Errors of the hook go to the job's output.
pub fn notify(job: &mut Job, single: &SingleThreaded) {
    match &job.order.launch.on_resize {
        // The server notifies negotiating jobs, and workers need not know.
        None | Some(OnResize::Negotiates | OnResize::Workers) => {}
        Some(OnResize::Signal(signal)) => {
            let living = job.tasks.iter().filter(|task| task.end.is_none());
            let waiting = living.map(|task| (task.pid, 0)).collect();
            let now = Instant::now();
            job.pending_notices.signal =
                Some(PendingSignal { signal: *signal, try_at: now, backoff: FIRST_BACKOFF, waiting });
            on_time(job, now);
        }
        Some(OnResize::Hook(_)) if job.order.node_idx == 0 => {
            job.pending_notices.next_hook = Some(job.order.launch.generation);
            run_hook(job, single);
        }
        // Only the first node runs the hook.
        Some(OnResize::Hook(_)) => {}
    }
}

/// Returns when to call [`on_time`] next.
pub fn wakes_at(job: &Job) -> Option<Instant> {
    job.pending_notices.signal.as_ref().map(|pending| pending.try_at)
}

/// Sends a pending signal to the processes that are ready for it; checks the others again later.
pub fn on_time(job: &mut Job, now: Instant) {
    let Some(pending) = job.pending_notices.signal.take_if(|pending| pending.try_at <= now) else { return };
    let PendingSignal { signal, try_at: _, backoff, mut waiting } = pending;
    let is_running = matches!(job.phase, Phase::Running);
    waiting.retain_mut(|(pid, n_blocked)| {
        let lives = job.tasks.iter().any(|task| task.pid == *pid && task.end.is_none());
        let readiness = if is_running && lives { SignalReadiness::of(*pid, signal) } else { return false };
        *n_blocked = if readiness == SignalReadiness::Blocked { *n_blocked + 1 } else { 0 };
        let is_ready = readiness == SignalReadiness::Ready || *n_blocked >= MIN_BLOCKED_CHECKS;
        if is_ready {
            // Not the group: other processes in it may not handle the signal, which would end them.
            let _gone_already = sys::kill(pid.as_raw(), signal);
        }
        !is_ready
    });
    if waiting.is_empty() {
        return;
    }
    if backoff <= MAX_BACKOFF {
        job.pending_notices.signal =
            Some(PendingSignal { signal, try_at: now + backoff, backoff: backoff * 2, waiting });
    } else {
        write_error(job, &format!("was not told by signal {signal}, which would end it: it does not handle it"));
    }
}

/// The effect that a signal would have on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalReadiness {
    /// The signal would end the process.
    Fatal,
    /// The signal would stay pending.
    Blocked,
    /// It is handled or ignored.
    Ready,
}

impl SignalReadiness {
    fn of(pid: Pid, signal: i32) -> SignalReadiness {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return SignalReadiness::Ready };
        let has = |name: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
            mask >> (signal - 1).clamp(0, 63) & 1 == 1
        };
        if has("SigCgt:") || has("SigIgn:") {
            SignalReadiness::Ready
        } else if has("SigBlk:") {
            SignalReadiness::Blocked
        } else {
            SignalReadiness::Fatal
        }
    }
}

/// Handles the end of the hook: the next one may run, for the newest generation only.
pub fn reaped(job: &mut Job, pid: Pid, end: End) {
    let Some((_, mut exec_status, generation)) = job.pending_notices.hook.take_if(|(running, _, _)| *running == pid)
    else {
        return;
    };
    let what = match (exec_status.take_error(), end) {
        (Some(error), _) => format!("cannot be executed: {error}"),
        (None, End::Exited(0)) => return,
        (None, End::Exited(code)) => format!("has ended with code {code}"),
        (None, End::Signaled(signal)) => format!("was ended by signal {signal}"),
    };
    write_error(job, &format!("the command for generation {generation} {what}"));
}

/// Runs the hook if it is due and not running.
pub fn run_hook(job: &mut Job, single: &SingleThreaded) {
    let is_free = job.pending_notices.hook.is_none() && matches!(job.phase, Phase::Running);
    let Some(generation) = job.pending_notices.next_hook.take_if(|_| is_free) else { return };
    match start_hook(job, single) {
        Ok(started) => job.pending_notices.hook = started.map(|(pid, exec_status)| (pid, exec_status, generation)),
        Err(error) => write_error(job, &format!("the command for generation {generation} cannot be executed: {error}")),
    }
}

fn start_hook(job: &Job, single: &SingleThreaded) -> Result<Option<(Pid, ExecStatus)>, StartError> {
    let (Some(OnResize::Hook(command)), Some(account)) = (&job.order.launch.on_resize, &job.account) else {
        return Ok(None);
    };
    let Some(Streams { stdin: _, stdout, stderr }) = &job.streams else { return Ok(None) };
    // The command must not read the job's own input.
    let nothing = Input::nothing()?;
    let argv = ["sh".to_owned(), "-c".to_owned(), command.clone()].map(c_string);
    let argv = argv.into_iter().collect::<Result<Vec<CString>, StartError>>()?;
    let mut variables = job.variables.clone();
    environment::of_hook(&mut variables, &job.order, command);
    let program = Program {
        order: &job.order,
        account,
        cwd: &job.order.launch.execution.cwd,
        argv: &argv,
        candidates: &[CString::from(c"/bin/sh")],
        environment: variables::to_c(&variables),
        stdin: &nothing,
        stdout,
        stderr,
        cpus: None,
        inherited: None,
    };
    program.start(single).map(Some).map_err(|error: ChildError| error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests;

    fn order(nodes: &[(&str, u32, bool)]) -> Order {
        let place = |(name, joined, departing): &(&str, u32, bool)| LaunchNode {
            joined: *joined,
            departing: *departing,
            ..test_kit::place(name)
        };
        tests::order(nodes.iter().map(place))
    }

    #[test]
    fn a_job_is_told_of_nodes_that_it_can_use_or_must_leave() {
        let two = order(&[("a1", 1, false), ("a2", 1, false)]);
        let leaving = order(&[("a1", 1, false), ("a2", 1, true)]);
        let one = order(&[("a1", 1, false)]);
        let again = order(&[("a1", 1, false), ("a2", 3, false)]);
        assert!(!has_changed(&two, &two.clone()));
        assert!(has_changed(&two, &leaving), "it is to leave a2");
        assert!(!has_changed(&leaving, &one), "it has left, as it knows");
        assert!(has_changed(&two, &one), "a2 was lost or freed at once");
        assert!(has_changed(&one, &two) && has_changed(&two, &again), "they come, or come anew");
    }
}
