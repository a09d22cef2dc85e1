//! The thread that calls the application back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use launcher_sdk::negotiator::Event;

use crate::failure::Failure;
use crate::mailbox::{Mailbox, Taken};
use crate::thread::spawn;

/// A callback that gets all events, one after the other.
#[derive(Debug)]
pub struct Callback {
    thread: JoinHandle<()>,
    is_told_to_stop: Arc<AtomicBool>,
}

impl Callback {
    /// Calls `tell` with every event, until it is stopped or there are no more.
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

    /// Whether the callback asks this.
    pub fn is_this_thread(&self) -> bool {
        self.thread.thread().id() == thread::current().id()
    }

    /// Returns when the callback does not run any more.
    pub fn stop(self, mailbox: &Mailbox) {
        mailbox.stop(&self.is_told_to_stop);
        // A panic in there was told on standard error; the events after it are taken by whoever asks.
        let _ = self.thread.join();
    }
}
