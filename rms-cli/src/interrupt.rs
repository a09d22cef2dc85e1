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
    hup: Signal,
    quit: Signal,
    usr1: Signal,
    usr2: Signal,
}

impl Interrupts {
    /// # Errors
    /// The system refused to install the signal handlers.
    pub fn listen() -> Result<Interrupts, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("signals cannot be received", error));
        Ok(Interrupts {
            int: on(SignalKind::interrupt())?,
            term: on(SignalKind::terminate())?,
            hup: on(SignalKind::hangup())?,
            quit: on(SignalKind::quit())?,
            usr1: on(SignalKind::user_defined1())?,
            usr2: on(SignalKind::user_defined2())?,
        })
    }

    /// Receives the next signal; cancel-safe.
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.int.recv() => Interrupt::CtrlC,
            _ = self.term.recv() => Interrupt::Signal(SignalKind::terminate().as_raw_value()),
            _ = self.hup.recv() => Interrupt::Signal(SignalKind::hangup().as_raw_value()),
            _ = self.quit.recv() => Interrupt::Signal(SignalKind::quit().as_raw_value()),
            _ = self.usr1.recv() => Interrupt::Signal(SignalKind::user_defined1().as_raw_value()),
            _ = self.usr2.recv() => Interrupt::Signal(SignalKind::user_defined2().as_raw_value()),
        }
    }
}
