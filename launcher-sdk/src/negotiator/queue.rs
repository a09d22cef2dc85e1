//! A bounded queue of events for the application, which merges events.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::event::{Event, Warning};

/// The queue of events. Unlike with a channel, putting an event never waits. [`Queue::put`] says what happens to events
/// that are not taken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: Mutex<Pending>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    events: VecDeque<Event>,
    /// The last event was put; no further event is accepted.
    is_closed: bool,
}

/// The result of an attempt to take an event.
enum Take {
    Event(Box<Event>),
    Nothing,
    End,
}

/// The most negotiations with waiting events. Above that, because the application never reads, the oldest finished one
/// is dropped: its effect is in [`Event::Holding`].
const MAX_WAITING: usize = 64;

impl Queue {
    /// Adds an event. It replaces an older one of the same negotiation, of the holding, or of the connection.
    pub fn put(&self, event: Event) {
        let mut pending = self.lock();
        if pending.is_closed {
            return;
        }
        let event = pending.coalesce(event);
        if pending.events.len() >= MAX_WAITING {
            let over = pending.events.iter().position(is_concluded);
            // At most four negotiations are open at once, so some are over.
            pending.events.remove(over.unwrap_or(0));
        }
        pending.is_closed = event.is_last();
        pending.events.push_back(event);
        drop(pending);
        self.notify.notify_one();
    }

    /// Returns the next event, if one waits.
    pub fn try_take(&self) -> Option<Event> {
        match self.take() {
            Take::Event(event) => Some(*event),
            Take::Nothing | Take::End => None,
        }
    }

    /// Returns the next event; `None` after the last one. May be cancelled, and called concurrently.
    pub async fn next(&self) -> Option<Event> {
        loop {
            // Registered first, so that an event between the check and the wait is not missed.
            let notified = self.notify.notified();
            match self.take() {
                Take::Event(event) => return Some(*event),
                Take::Nothing => notified.await,
                Take::End => {
                    // Wake the next waiting caller, too.
                    self.notify.notify_one();
                    return None;
                }
            }
        }
    }

    fn take(&self) -> Take {
        let mut pending = self.lock();
        match pending.events.pop_front() {
            Some(event) => {
                let has_more = !pending.events.is_empty() || pending.is_closed;
                drop(pending);
                if has_more {
                    // Wake another waiting caller: each put notifies once, and several events may wait.
                    self.notify.notify_one();
                }
                Take::Event(Box::new(event))
            }
            None if pending.is_closed => Take::End,
            None => Take::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // No change of the queue can panic half-way, so a poisoned lock still guards a consistent queue.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Removes the events that the new one replaces. Lost nodes stay lost: those of earlier events are added to the new
    /// one.
    fn coalesce(&mut self, event: Event) -> Event {
        let Event::NodesLost(mut lost) = event else {
            self.events.retain(|older| !replaces(&event, older));
            return event;
        };
        self.events.retain(|older| {
            if let Event::NodesLost(before) = older {
                lost.splice(0..0, before.iter().cloned());
                return false;
            }
            true
        });
        Event::NodesLost(lost)
    }
}

/// Returns whether the newer event makes the older one obsolete.
fn replaces(newer: &Event, older: &Event) -> bool {
    match (newer, older) {
        (Event::Holding(_), Event::Holding(_)) | (Event::StageEnds(_), Event::StageEnds(_)) => true,
        (Event::Warned(newer), Event::Warned(older)) => is_of_link(newer) == is_of_link(older),
        (newer, older) => newer.negotiation().is_some() && newer.negotiation() == older.negotiation(),
    }
}

fn is_of_link(warning: &Warning) -> bool {
    match warning {
        Warning::ServerAway { .. } | Warning::ServerBack => true,
        Warning::Refused { .. } => false,
    }
}

fn is_concluded(event: &Event) -> bool {
    match event {
        Event::Ready(_) | Event::Ended { .. } => true,
        Event::Offered(_) | Event::Countered(_) | Event::Accepted(_) | Event::Holding(_) | Event::Warned(_) => false,
        Event::NodesLost(_) | Event::StageEnds(_) => false,
        Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use negotiation::{Ending, NegotiationId, Reason, Side};
    use rms_model::Outcome;

    use super::*;

    fn ended(number: u32, reason: Reason) -> Event {
        let negotiation = NegotiationId { initiator: Side::Rms, number };
        Event::Ended { negotiation, template: None, ending: Ending::Rejected, reason, why: None }
    }

    #[test]
    fn who_never_looks_finds_a_short_list_of_what_is_newest() {
        let queue = Queue::default();
        for number in 0..10_000 {
            queue.put(ended(number, Reason::Declined));
            queue.put(ended(number, Reason::Price));
            queue.put(Event::Warned(Warning::ServerAway { reason: "x".to_owned() }));
            queue.put(Event::Warned(Warning::ServerBack));
        }
        queue.put(Event::JobEnding(Outcome::Completed));
        queue.put(ended(1, Reason::Declined));
        let events: Vec<Event> = std::iter::from_fn(|| queue.try_take()).collect();
        assert!(events.len() <= MAX_WAITING, "{}", events.len());
        assert_eq!(events.last(), Some(&Event::JobEnding(Outcome::Completed)), "nothing comes after the end");
        assert!(events.contains(&ended(9_999, Reason::Price)) && !events.contains(&ended(9_999, Reason::Declined)));
    }

    #[tokio::test]
    async fn everybody_who_waits_learns_of_the_end() {
        let queue = std::sync::Arc::new(Queue::default());
        let waits: Vec<_> = (0..4)
            .map(|_| {
                let queue = std::sync::Arc::clone(&queue);
                tokio::spawn(async move { std::iter::once(queue.next().await).flatten().count() })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.put(ended(1, Reason::Declined));
        queue.put(Event::Replaced);
        let mut n_events = 0;
        for wait in waits {
            n_events += wait.await.expect("no panic");
        }
        assert_eq!(n_events, 2, "each event goes to one of them, and nobody waits for ever");
    }
}
