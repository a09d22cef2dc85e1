//! Reasons for the failure of a C call, as a number for programs and as a text for people.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::fmt::Display;
use std::io;
use std::time::Duration;

use launcher_sdk::negotiator::{ActError, ConnectError, NegotiatorError};
use rms_model::error::chain;

use crate::layout as c;

/// The reason why a call failed. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{what} must not be NULL")]
    Null { what: &'static str },
    #[error("{what} is not aligned as its type must be: is it a pointer to something else?")]
    Misaligned { what: &'static str },
    #[error("{what} has the size {size}, less than {least} or far more: set its field 'size' to its sizeof first")]
    BadSize { what: &'static str, size: usize, least: usize },
    #[error("{what} has fields set that this library does not know: it is older than the header; install librms anew")]
    NewerStruct { what: &'static str },
    #[error("{what} is longer than {most}")]
    TooLong { what: &'static str, most: usize },
    #[error("{what} is not UTF-8")]
    NotUtf8 { what: &'static str },
    #[error("{0}")]
    Invalid(String),
    #[error("this is no open session: it was closed, or rms_connect did not make it")]
    NoSession,
    #[error("this process was forked after rms_connect: call exec or _exit here, or connect after the fork")]
    Forked,
    #[error("the library has a bug: {0}; close the session, go on without it, and report this text")]
    Panicked(String),
    #[error("{0}")]
    NoJob(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    UnknownNegotiation(String),
    #[error("{0}")]
    NotNow(String),
    #[error("{0}: nothing more can be said in this session; close it")]
    Ended(String),
    #[error("{what} has room for {room}, and {needed} are needed")]
    NoRoom { what: &'static str, room: usize, needed: usize },
    #[error("{0}")]
    Busy(&'static str),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("no answer came within {0:?}: it is not known whether the RMS has heard it; it may be said again")]
    TimedOut(Duration),
}

impl Failure {
    pub fn unknown(id: &impl Display) -> Failure {
        Failure::UnknownNegotiation(format!("there is no negotiation {id}, or it is over"))
    }

    /// Returns the call's return value.
    pub fn status(&self) -> c_int {
        match self {
            Failure::Null { .. } | Failure::Misaligned { .. } | Failure::TooLong { .. } | Failure::NotUtf8 { .. } => {
                c::RMS_EINVAL
            }
            Failure::Invalid(_) => c::RMS_EINVAL,
            Failure::BadSize { .. } | Failure::NewerStruct { .. } => c::RMS_EVERSION,
            Failure::NoSession => c::RMS_ESESSION,
            Failure::Forked => c::RMS_EFORK,
            Failure::Panicked(_) => c::RMS_EPANIC,
            Failure::NoJob(_) => c::RMS_EJOB,
            Failure::Unreachable(_) => c::RMS_ECONNECT,
            Failure::Refused(_) => c::RMS_EREFUSED,
            Failure::UnknownNegotiation(_) => c::RMS_EUNKNOWN,
            Failure::NotNow(_) => c::RMS_ESTATE,
            Failure::Ended(_) => c::RMS_EENDED,
            Failure::NoRoom { .. } => c::RMS_ESPACE,
            Failure::Busy(_) => c::RMS_EBUSY,
            Failure::Io { .. } => c::RMS_EIO,
            Failure::TimedOut(_) => c::RMS_ETIMEDOUT,
        }
    }

    /// Stores the text for [`last`].
    pub fn remember(&self) {
        let text = self.to_string();
        // The storage of a thread that is ending may be destroyed already; it will not ask for the text either.
        let _ = LAST.try_with(|last| last.replace(text));
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        let text = chain(&error);
        match error {
            ConnectError::NotInJob { .. } | ConnectError::Variable { .. } => Failure::NoJob(text),
            ConnectError::NoCredentials { .. } | ConnectError::Unreachable { .. } | ConnectError::System(_) => {
                Failure::Unreachable(text)
            }
            ConnectError::Credentials { .. } | ConnectError::Denied { .. } | ConnectError::Refused(_) => {
                Failure::Refused(text)
            }
        }
    }
}

impl From<NegotiatorError> for Failure {
    fn from(error: NegotiatorError) -> Failure {
        let text = chain(&error);
        match error {
            NegotiatorError::Template(_) | NegotiatorError::OtherNodes { .. } => Failure::Invalid(text),
            NegotiatorError::DeadlineOver(_) => Failure::Invalid(text),
            NegotiatorError::FirstNode(_)
            | NegotiatorError::OtherCluster { .. }
            | NegotiatorError::NoSuchNode(_)
            | NegotiatorError::NoSuchCluster { .. } => Failure::Invalid(text),
            NegotiatorError::Act(ActError::NoSuch(id)) => Failure::unknown(&id),
            NegotiatorError::Act(ActError::NotNow(phase)) if phase.is_over() => Failure::UnknownNegotiation(text),
            NegotiatorError::Act(ActError::Breach(_)) => Failure::Invalid(text),
            NegotiatorError::Act(ActError::NotNow(_) | ActError::Lapsed | ActError::AlreadyOpen(_)) => {
                Failure::NotNow(text)
            }
            NegotiatorError::HasProfile(_) | NegotiatorError::Refused(_) => Failure::Refused(text),
            NegotiatorError::JobEnded { .. } | NegotiatorError::Replaced | NegotiatorError::Lost(_) => {
                Failure::Ended(text)
            }
            NegotiatorError::Hostfile { path, source } => Failure::Io { what: path.display().to_string(), source },
            NegotiatorError::Stopped => Failure::Panicked(text),
        }
    }
}

/// Returns why the latest failed call of this thread failed; empty if none has.
pub fn last() -> String {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

thread_local! {
    // Per thread, like errno, and not per session: threads that share a session do not overwrite each other's texts,
    // and a failed connect has a text, too.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Describes a status for callers that have no text.
pub fn describe(status: c_int) -> &'static CStr {
    match status {
        c::RMS_OK => c"success",
        c::RMS_NOTHING => c"nothing to do, or nothing came in time",
        c::RMS_EINVAL => c"an argument is not what it must be",
        c::RMS_ESESSION => c"no open session",
        c::RMS_EFORK => c"the process was forked after it connected: only exec and _exit are possible",
        c::RMS_EPANIC => c"a bug of the library; close the session",
        c::RMS_EJOB => c"this process does not belong to a job that may negotiate",
        c::RMS_ECONNECT => c"there is no connection to the RMS",
        c::RMS_EREFUSED => c"the RMS refuses",
        c::RMS_EUNKNOWN => c"that negotiation is not known, or is over",
        c::RMS_ESTATE => c"that is not possible now",
        c::RMS_EENDED => c"the session is over: the job is ending, or it has another negotiator",
        c::RMS_ESPACE => c"a buffer or an array is too small",
        c::RMS_EBUSY => c"the session is in use in another way, or too many are open",
        c::RMS_EIO => c"a file cannot be written, or the system lacks a resource",
        c::RMS_EVERSION => c"a struct's size is not set, or it is newer than the library",
        c::RMS_ETIMEDOUT => c"no answer came in time; it may be said again",
        _ => c"unknown status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negotiation_that_is_over_is_told_from_one_for_which_it_is_not_the_time() {
        use launcher_sdk::negotiator::{Phase, Side};

        let status = |phase| Failure::from(NegotiatorError::Act(ActError::NotNow(phase))).status();
        assert_eq!(status(Phase::Applied), c::RMS_EUNKNOWN);
        assert_eq!(status(Phase::Offered(Side::Application)), c::RMS_ESTATE);
    }

    #[test]
    fn every_number_has_words_of_its_own() {
        let mut words: Vec<&CStr> = (c::RMS_ETIMEDOUT..=c::RMS_NOTHING).map(describe).collect();
        let n_numbers = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), n_numbers);
        assert!(!words.contains(&describe(99)));
    }
}
