//! The event queue: items in the order of time, and of arrival within one instant.

use std::collections::BTreeMap;

use rms_model::Time;

#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    items: BTreeMap<(Time, u64), T>,
    n_pushed: u64,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> EventQueue<T> {
        EventQueue { items: BTreeMap::new(), n_pushed: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, item: T) {
        self.items.insert((at, self.n_pushed), item);
        self.n_pushed += 1;
    }

    /// Returns when the first item is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.items.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// Removes all other items, and returns how many there were.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&T) -> bool) -> usize {
        let before = self.items.len();
        self.items.retain(|_, item| keeps(item));
        before - self.items.len()
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<T> {
        let is_due = self.next().is_some_and(|at| at <= now);
        if is_due { self.items.pop_first().map(|(_, item)| item) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_keeps_the_order_of_arrival() {
        let mut agenda = EventQueue::new();
        agenda.push(Time::from_secs(2), "late");
        agenda.push(Time::from_secs(1), "first");
        agenda.push(Time::from_secs(1), "second");
        assert_eq!(agenda.next(), Some(Time::from_secs(1)));
        assert_eq!(agenda.pop_due(Time::from_secs(1)), Some("first"));
        assert_eq!(agenda.pop_due(Time::from_secs(1)), Some("second"));
        assert_eq!(agenda.pop_due(Time::from_secs(1)), None);
    }
}
