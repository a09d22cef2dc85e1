//! The events that wait for the application, with a descriptor that can be polled.
//!
//! Whoever puts can wait until nothing lies there: the negotiator's own queue lays newer events over older ones of the
//! same negotiation, and what has left it can become stale.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use launcher_sdk::negotiator::Event;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::Notify;

/// Where events lie until somebody takes them. Any thread may take; one puts.
#[derive(Debug)]
pub struct Mailbox {
    slot: Mutex<Slot>,
    changed: Condvar,
    /// Rings when nothing lies there any more, or when that is not to be waited for any more.
    has_room: Notify,
    /// Readable while there is something to take, and always after the end.
    readable: OwnedFd,
}

/// What somebody takes.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Event(Box<Event>),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more, for this reason.
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
    /// An empty one.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Mailbox> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { slot: Mutex::default(), changed: Condvar::new(), has_room: Notify::new(), readable })
    }

    /// Readable while something waits.
    pub fn fd(&self) -> RawFd {
        self.readable.as_raw_fd()
    }

    /// Whether nothing lies there.
    pub fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    /// Waits until nothing lies there, or [`Mailbox::hurry`] is called.
    pub async fn room(&self) {
        let has_room = self.has_room.notified();
        // Looked at after it was asked for, so that room that comes between is not missed.
        if !self.is_empty() {
            has_room.await;
        }
    }

    /// Wakes those who wait for room, to check again.
    pub fn hurry(&self) {
        self.has_room.notify_one();
    }

    /// Lays an event there. If the application never asks, the oldest goes for it, which loses nothing but old news:
    /// what is held *now* is asked for elsewhere.
    pub fn put(&self, event: Event) {
        let mut slot = self.lock();
        if slot.events.len() == MOST_WAITING {
            slot.events.pop_front();
        }
        slot.events.push_back(event);
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// No event comes any more, once what lies there is taken.
    pub fn end(&self, reason: &str) {
        let mut slot = self.lock();
        slot.end.get_or_insert_with(|| reason.to_owned());
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// Wakes everybody; nothing is given any more.
    pub fn close(&self) {
        let mut slot = self.lock();
        slot.is_closed = true;
        self.signal(&slot);
        self.changed.notify_all();
    }

    /// Why nothing will come any more.
    pub fn ended(&self) -> Option<String> {
        self.lock().end.clone()
    }

    /// The next event; waits so long for it, or as long as it takes.
    pub fn take(&self, limit: Option<Duration>) -> Taken {
        self.take_unless(limit, &AtomicBool::new(false))
    }

    /// As [`Mailbox::take`], but takes nothing any more once told so.
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

    /// Makes who takes until it is told to stop look whether it is.
    pub fn stop(&self, is_told_to_stop: &AtomicBool) {
        // Under the lock, so that it is not between its look and its wait.
        let slot = self.lock();
        is_told_to_stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        drop(slot);
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().expect(POISONED)
    }

    /// Makes the descriptor say what is so. Neither call can fail but by saying that it was so before.
    fn signal(&self, slot: &Slot) {
        if !slot.events.is_empty() || slot.is_closed || slot.end.is_some() {
            let _ = rustix::io::write(&self.readable, &1u64.to_ne_bytes());
        } else {
            let _ = rustix::io::read(&self.readable, &mut [0; 8]);
        }
    }
}

/// More than one lies there only for applications that let the library answer.
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
