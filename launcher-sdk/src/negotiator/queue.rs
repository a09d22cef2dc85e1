//! Events that wait for the application: laid over each other, so that there are never many.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::event::{Event, Warning};

/// Not a channel: whoever puts never waits. See [`Queue::put`] for what becomes of events that nobody takes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: Mutex<Pending>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    events: VecDeque<Event>,
    /// The last event was put; nothing is taken in after it.
    is_closed: bool,
}

/// What is there to take.
enum Take {
    Event(Box<Event>),
    Nothing,
    End,
}

/// So many negotiations can have something to tell at once. When there are more, because the application never looks,
/// the oldest one that is over is forgotten: what it has changed is in [`Event::Holding`].
const MAX_WAITING: usize = 64;

impl Queue {
    /// A newer event takes the place of an older one of the same negotiation, of the holding, or of the connection.
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

    /// The next event, if one waits.
    pub fn try_take(&self) -> Option<Event> {
        match self.take() {
            Take::Event(event) => Some(*event),
            Take::Nothing | Take::End => None,
        }
    }

    /// The next event; `None` after the last one. May be cancelled, and called by many at once.
    pub async fn next(&self) -> Option<Event> {
        loop {
            // Asked for first, so that what comes between the look and the wait is not slept through.
            let notified = self.notify.notified();
            match self.take() {
                Take::Event(event) => return Some(*event),
                Take::Nothing => notified.await,
                Take::End => {
                    // The next one who waits learns it, too.
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
                    // For another one who waits: each put rings once, and several may lie here.
                    self.notify.notify_one();
                }
                Take::Event(Box::new(event))
            }
            None if pending.is_closed => Take::End,
            None => Take::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // No change of it can panic half-way.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Takes out what the new event takes the place of. Nodes that were lost stay lost: those of before are told with it.
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

/// Whether nobody needs the older one any more.
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
        Event::Ended { negotiation, template: None, ending: Ending::Rejected, reason }
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
