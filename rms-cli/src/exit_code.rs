//! The exit code for the end of a job.

use rms_model::Outcome;

use crate::failure::Exit;

/// Returns the job's own code; 128 + signal if a signal ended the job; [`Exit::SYSTEM`] if the system lost it.
pub fn of(outcome: &Outcome) -> Exit {
    let by_signal = |signal: i32| Exit(u8::try_from(128 + signal.clamp(0, 127)).unwrap_or(u8::MAX));
    match outcome {
        Outcome::Completed => Exit::OK,
        // Exit codes have eight bits; a failure must not look like a success.
        Outcome::Failed { code } => Exit(u8::try_from(*code).unwrap_or(u8::MAX).max(1)),
        Outcome::Signaled { signal } => by_signal(*signal),
        Outcome::Cancelled { .. } | Outcome::WallTime | Outcome::Violation { .. } => by_signal(TERM),
        Outcome::OutOfMemory { .. } => by_signal(KILL),
        Outcome::NodeLost { .. }
        | Outcome::LauncherLost
        | Outcome::NotStarted { .. }
        | Outcome::StageLate { .. }
        | Outcome::Unsupervised { .. } => Exit::SYSTEM,
    }
}

const TERM: i32 = 15;
const KILL: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_the_jobs_failure_from_the_systems() {
        let check = |outcome: Outcome, expected: u8| assert_eq!(of(&outcome), Exit(expected), "{outcome:?}");
        check(Outcome::Completed, 0);
        check(Outcome::Failed { code: 3 }, 3);
        check(Outcome::Failed { code: 256 }, 255);
        check(Outcome::Failed { code: 0 }, 1);
        check(Outcome::Signaled { signal: 9 }, 137);
        check(Outcome::Cancelled { by: "ada".into() }, 143);
        check(Outcome::WallTime, 143);
        check(Outcome::OutOfMemory { node: "a1".into(), limit: rms_model::Mebibytes(64) }, 137);
        check(Outcome::Unsupervised { node: "a1".into(), reason: "killed".into() }, 125);
        check(Outcome::NodeLost { node: "a1".into(), reason: String::new() }, 125);
        check(Outcome::NotStarted { node: "a1".into(), reason: "no such program".into() }, 125);
    }
}
