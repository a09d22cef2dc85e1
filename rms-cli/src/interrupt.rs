//! The signals that `rms run` forwards or asks about, and on which `rms negotiate` withdraws its request.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    CtrlC,
    /// To be forwarded to the job's tasks.
    Signal(i32),
}

impl Interrupt {
    /// Returns the number of the signal.
    pub fn number(self) -> i32 {
        match self {
            Interrupt::CtrlC => SignalKind::interrupt().as_raw_value(),
            Interrupt::Signal(number) => number,
        }
    }
}

/// Receives the signals from the moment it is created.
#[derive(Debug)]
pub struct Interrupts {
    int: Signal,
    term: Signal,
    /// Absent if the caller ignores it, as nohup does. Shells ignore others for the background commands of a script, which
    /// signals them nevertheless.
    hup: Option<Signal>,
    quit: Signal,
    usr1: Signal,
    usr2: Signal,
}

impl Interrupts {
    /// # Errors
    /// The system refused to install the signal handlers.
    pub fn listen() -> Result<Interrupts, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("signals cannot be received", error));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = SignalKind::hangup();
        Ok(Interrupts {
            int: on(SignalKind::interrupt())?,
            term: on(SignalKind::terminate())?,
            hup: if is_ignored(&status, hangup.as_raw_value()) { None } else { Some(on(hangup)?) },
            quit: on(SignalKind::quit())?,
            usr1: on(SignalKind::user_defined1())?,
            usr2: on(SignalKind::user_defined2())?,
        })
    }

    /// Receives the next signal; cancel-safe.
    pub async fn next(&mut self) -> Interrupt {
        let hung_up = async {
            match &mut self.hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.int.recv() => Interrupt::CtrlC,
            _ = self.term.recv() => Interrupt::Signal(SignalKind::terminate().as_raw_value()),
            _ = hung_up => Interrupt::Signal(SignalKind::hangup().as_raw_value()),
            _ = self.quit.recv() => Interrupt::Signal(SignalKind::quit().as_raw_value()),
            _ = self.usr1.recv() => Interrupt::Signal(SignalKind::user_defined1().as_raw_value()),
            _ = self.usr2.recv() => Interrupt::Signal(SignalKind::user_defined2().as_raw_value()),
        }
    }
}

/// Returns whether a process ignores a signal, by its status in /proc.
fn is_ignored(status: &str, number: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (number - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_the_caller_ignores_are_known() {
        let status = "Name:\trms\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!([1, 2, 13, 15].map(|number| is_ignored(status, number)), [true, false, true, false]);
        assert!(!is_ignored("", 1));
    }
}
