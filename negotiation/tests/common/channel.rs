//! A channel that loses, delays, reorders and duplicates messages.

use std::collections::BTreeMap;

use negotiation::{Message, Side};
use rms_model::{Span, Time};
use test_kit::Dice;

/// What is on its way between two ends.
#[derive(Debug, Default)]
pub struct Channel {
    pub loss: u32,
    duplicates: u32,
    slowest: u64,
    /// No message gets through before this time.
    pub cut_until: Time,
    /// Messages by time of arrival, with their destination; the number makes keys unique.
    under_way: BTreeMap<(Time, u64), (Side, Message)>,
    pub n_sent: u64,
}

impl Channel {
    /// Returns a channel with these shares of lost and tripled messages in a hundred, and this longest delay in
    /// milliseconds.
    pub fn new(loss: u32, duplicates: u32, slowest: u64) -> Channel {
        Channel { loss, duplicates, slowest, ..Channel::default() }
    }

    pub fn send(&mut self, dice: &mut Dice, now: Time, to: Side, message: &Message) {
        let n_copies = if dice.chance(self.duplicates) { 3 } else { 1 };
        for _ in 0..n_copies {
            let is_lost = now < self.cut_until || dice.chance(self.loss);
            let arrives = now + Span::from_millis(dice.below(self.slowest) as i64);
            self.n_sent += 1;
            if !is_lost {
                self.under_way.insert((arrives, self.n_sent), (to, message.clone()));
            }
        }
    }

    /// Returns when the next message arrives.
    pub fn next_arrival(&self) -> Option<Time> {
        self.under_way.keys().next().map(|(time, _)| *time)
    }

    /// Takes the next message that has arrived by `now`.
    pub fn receive(&mut self, now: Time) -> Option<(Side, Message)> {
        self.next_arrival().filter(|time| *time <= now)?;
        self.under_way.pop_first().map(|(_, arrived)| arrived)
    }

    /// Loses everything that is on its way.
    pub fn clear(&mut self) {
        self.under_way.clear();
    }
}
