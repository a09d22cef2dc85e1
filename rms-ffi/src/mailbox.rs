//! The queue of events for the application, with a pollable descriptor.
//!
//! The producer can wait until the queue is empty: the negotiator's own queue replaces older events of a negotiation by
//! newer ones, whereas events that have left it can become stale.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use launcher_sdk::negotiator::Event;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::Notify;

/// Holds events until a consumer takes them. Any thread may take; one thread puts.
#[derive(Debug)]
pub struct Mailbox {
    slot: Mutex<Slot>,
    changed: Condvar,
    /// Notified when the queue becomes empty, or when the producer should stop waiting for that.
    has_room: Notify,
    /// Readable while there is something to take, and always after the end.
    readable: OwnedFd,
}

/// The outcome of a take.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Event(Box<Event>),
    /// No event came in time.
    Nothing,
    /// No more events will come, for this reason.
    Over(String),
    /// The session was closed.
    Closed,
}

#[derive(Debug, Default)]
struct Slot {
    events: VecDeque<Event>,
    end: Option<String>,
    is_closed: bool,
}

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub fn new() -> io::Result<Mailbox> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { slot: Mutex::default(), changed: Condvar::new(), has_room: Notify::new(), readable })
    }

    /// Returns the descriptor that is readable while an event waits.
    pub fn fd(&self) -> RawFd {
        self.readable.as_raw_fd()
    }

    /// Returns whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    /// Waits until the queue is empty or [`Mailbox::hurry`] is called.
    pub async fn room(&self) {
        let has_room = self.has_room.notified();
        // Checked after subscribing, so that no notification in between is missed.
        if !self.is_empty() {
            has_room.await;
        }
    }

    /// Wakes the waiting producer to check again.
    pub fn hurry(&self) {
        self.has_room.notify_one();
    }

    /// Appends an event. If the application never takes any, the oldest is dropped, which loses only history: the
    /// *current* state is available elsewhere.
    pub fn put(&self, event: Event) {
        let mut slot = self.lock();
        if slot.events.len() == MOST_WAITING {
            slot.events.pop_front();
        }
        slot.events.push_back(event);
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// Ends the queue: no event comes after those that wait.
    pub fn end(&self, reason: &str) {
        let mut slot = self.lock();
        slot.end.get_or_insert_with(|| reason.to_owned());
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// Closes the mailbox: wakes all waiters; no more events are delivered.
    pub fn close(&self) {
        let mut slot = self.lock();
        slot.is_closed = true;
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// Returns why no more events will come.
    pub fn ended(&self) -> Option<String> {
        self.lock().end.clone()
    }

    /// Takes the next event; waits up to `limit` for it, or forever.
    pub fn take(&self, limit: Option<Duration>) -> Taken {
        self.take_unless(limit, &AtomicBool::new(false))
    }

    /// Like [`Mailbox::take`], but takes nothing once `is_told_to_stop` is set.
    pub fn take_unless(&self, limit: Option<Duration>, is_told_to_stop: &AtomicBool) -> Taken {
        // A time too long to represent means forever.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut slot = self.lock();
        loop {
            if slot.is_closed {
                return Taken::Closed;
            }
            if is_told_to_stop.load(Ordering::Relaxed) {
                return Taken::Nothing;
            }
            if let Some(event) = slot.events.pop_front() {
                self.signal(&slot);
                if slot.events.is_empty() {
                    self.has_room.notify_one();
                }
                return Taken::Event(Box::new(event));
            }
            if let Some(reason) = &slot.end {
                return Taken::Over(reason.clone());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            slot = match left {
                None => self.changed.wait(slot).expect(POISONED),
                Some(Duration::ZERO) => return Taken::Nothing,
                Some(left) => self.changed.wait_timeout(slot, left).expect(POISONED).0,
            };
        }
    }

    /// Sets `is_told_to_stop` and wakes the [`Mailbox::take_unless`] that it was passed to.
    pub fn stop(&self, is_told_to_stop: &AtomicBool) {
        // Under the lock, so that the taker is not between its check and its wait.
        let slot = self.lock();
        is_told_to_stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        drop(slot);
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().expect(POISONED)
    }

    /// Updates the descriptor. Either call can fail only if the descriptor already has the right state.
    fn signal(&self, slot: &Slot) {
        if !slot.events.is_empty() || slot.is_closed || slot.end.is_some() {
            let _ = rustix::io::write(&self.readable, &1u64.to_ne_bytes());
        } else {
            let _ = rustix::io::read(&self.readable, &mut [0; 8]);
        }
    }
}

/// More than one waits only for applications that let the library answer.
const MOST_WAITING: usize = 64;
const POISONED: &str = "nobody panics while holding the slot";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(mailbox: &Mailbox) -> bool {
        let mut fds = [PollFd::new(&mailbox.readable, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("it can be polled") == 1
    }

    fn mailbox() -> Mailbox {
        Mailbox::new().expect("a descriptor is to be had")
    }

    fn replaced() -> Taken {
        Taken::Event(Box::new(Event::Replaced))
    }

    #[test]
    fn the_descriptor_is_readable_while_something_waits() {
        let mailbox = mailbox();
        assert!(!is_readable(&mailbox));
        mailbox.put(Event::Replaced);
        assert!(is_readable(&mailbox));
        assert_eq!(mailbox.take(None), replaced());
        assert!(!is_readable(&mailbox));
        assert_eq!(mailbox.take(Some(Duration::ZERO)), Taken::Nothing);
    }

    #[test]
    fn after_the_end_nobody_waits_and_everybody_who_polls_wakes() {
        let mailbox = mailbox();
        mailbox.put(Event::Replaced);
        mailbox.end("another one speaks");
        assert_eq!(mailbox.take(None), replaced());
        assert_eq!(mailbox.take(None), Taken::Over("another one speaks".to_owned()));
        assert!(is_readable(&mailbox));
    }

    #[tokio::test]
    async fn there_is_room_again_when_the_event_is_taken() {
        let mailbox = Arc::new(mailbox());
        mailbox.room().await;
        mailbox.put(Event::Replaced);
        let taking = std::thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || mailbox.take(None)
        });
        mailbox.room().await;
        assert_eq!(taking.join().expect("it does not panic"), replaced());
    }

    #[test]
    fn who_never_asks_finds_what_is_newest() {
        let mailbox = mailbox();
        mailbox.put(Event::Replaced);
        let later = Event::Warned(launcher_sdk::negotiator::Warning::ServerBack);
        (0..MOST_WAITING).for_each(|_| mailbox.put(later.clone()));
        assert_eq!(mailbox.take(None), Taken::Event(Box::new(later)));
    }

    #[test]
    fn closing_wakes_who_waits_for_ever() {
        let mailbox = mailbox();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| mailbox.take(Some(Duration::MAX)));
            mailbox.close();
            assert_eq!(waiting.join().expect("it does not panic"), Taken::Closed);
        });
    }

    #[test]
    fn who_is_told_to_stop_takes_nothing() {
        let mailbox = mailbox();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| mailbox.take_unless(None, &stop));
            mailbox.stop(&stop);
            assert_eq!(waiting.join().expect("it does not panic"), Taken::Nothing);
        });
        mailbox.put(Event::Replaced);
        assert_eq!(mailbox.take_unless(None, &stop), Taken::Nothing);
        assert_eq!(mailbox.take(None), replaced());
    }
}
