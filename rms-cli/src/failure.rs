//! The error of a command, for people and for programs, and its exit code.

use std::borrow::Cow;
use std::fmt::Display;

use serde_json::{Value, json};

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    pub const OK: Exit = Exit(0);
    /// The command was valid and failed.
    pub const FAILED: Exit = Exit(1);
    /// The command line, a script's directives or a value in them are wrong.
    pub const USAGE: Exit = Exit(2);
    /// The job succeeded, but some of its output is missing. `EX_IOERR` of sysexits.h.
    pub const OUTPUT_MISSING: Exit = Exit(74);
    /// The link broke before the answer came: the order may or may not have been carried out. `EX_TEMPFAIL`.
    pub const UNKNOWN: Exit = Exit(75);
    /// `wait --timeout` ran out.
    pub const TIMED_OUT: Exit = Exit(124);
    /// The system failed, not the job: no server, no such job, a lost node.
    pub const SYSTEM: Exit = Exit(125);
}

/// The failure of a command. It is printed once, at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word for programs: `usage`, `unreachable`, `no_such_job`, …
    pub kind: Cow<'static, str>,
    pub message: String,
    /// What to do now, unless the message already says it.
    pub hint: Option<String>,
    pub exit: Exit,
}

impl Failure {
    pub fn new(kind: impl Into<Cow<'static, str>>, message: impl Display) -> Failure {
        Failure { kind: kind.into(), message: message.to_string(), hint: None, exit: Exit::FAILED }
    }

    /// Returns a failure caused by wrong input, typed or in a script.
    pub fn usage(message: impl Display) -> Failure {
        Failure { exit: Exit::USAGE, ..Failure::new("usage", message) }
    }

    /// Returns a failure of a file or another resource of the operating system.
    pub fn io(doing: impl Display, error: impl Display) -> Failure {
        Failure::new("io", format!("{doing}: {error}"))
    }

    pub fn hint(self, hint: impl Display) -> Failure {
        Failure { hint: Some(hint.to_string()), ..self }
    }

    pub fn exit(self, exit: Exit) -> Failure {
        Failure { exit, ..self }
    }

    /// Returns `{"error": {"kind", "message", "hint"}}`; the hint is null if there is none.
    pub fn to_json(&self) -> Value {
        json!({"error": {"kind": self.kind, "message": self.message, "hint": self.hint}})
    }

    /// Returns the lines for a terminal.
    pub fn to_text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("rms: {}\n     {hint}\n", self.message),
            None => format!("rms: {}\n", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_for_people_and_programs() {
        let failure = Failure::new("unreachable", "no server answers at 127.0.0.1:1").hint("start one with 'rms up'");
        assert_eq!(failure.to_text(), "rms: no server answers at 127.0.0.1:1\n     start one with 'rms up'\n");
        let expected = json!({"error": {
            "kind": "unreachable", "message": "no server answers at 127.0.0.1:1", "hint": "start one with 'rms up'"
        }});
        assert_eq!(failure.to_json(), expected);
        assert_eq!(Failure::usage("x").exit, Exit::USAGE);
    }
}
