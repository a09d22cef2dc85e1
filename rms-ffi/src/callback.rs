//! The thread that runs the application's callback.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use launcher_sdk::negotiator::Event;

use crate::failure::Failure;
use crate::mailbox::{Mailbox, Taken};
use crate::thread::spawn;

/// A callback that receives all events, one after the other.
#[derive(Debug)]
pub struct Callback {
    thread: JoinHandle<()>,
    is_told_to_stop: Arc<AtomicBool>,
}

impl Callback {
    /// Calls `tell` with every event until it is stopped or the events end.
    pub fn start(mailbox: Arc<Mailbox>, mut tell: impl FnMut(&Event) + Send + 'static) -> Result<Callback, Failure> {
        let is_told_to_stop = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_told_to_stop);
        let thread = spawn("rms-callback", move || {
            loop {
                match mailbox.take_unless(None, &stop) {
                    Taken::Event(event) => tell(&event),
                    Taken::Nothing | Taken::Over(_) | Taken::Closed => return,
                }
            }
        })?;
        Ok(Callback { thread, is_told_to_stop })
    }

    /// Returns whether the current thread is the callback's.
    pub fn is_this_thread(&self) -> bool {
        self.thread.thread().id() == thread::current().id()
    }

    /// Stops the callback, and returns when it no longer runs.
    pub fn stop(self, mailbox: &Mailbox) {
        mailbox.stop(&self.is_told_to_stop);
        // A panic there was reported on standard error; later events go to whoever asks for them.
        let _ = self.thread.join();
    }
}
