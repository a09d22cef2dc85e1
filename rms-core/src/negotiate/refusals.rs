//! Remembers what applications have declined, so that the same is not proposed again at once.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::Direction;
use rms_model::{JobId, Time};

/// The recently declined changes. A restarted server has forgotten them, and asks once more.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    declined: BTreeMap<(JobId, Direction), (u32, Time)>,
    due: BTreeSet<(Time, JobId, Direction)>,
    /// Nodes given up for other jobs. They are not offered again while any job waits, or nodes would move to and fro.
    given: BTreeMap<JobId, (u32, Time)>,
}

impl Refusals {
    /// Notes that a change by `nodes` nodes was declined, until `until`.
    pub(crate) fn note(&mut self, job: JobId, direction: Direction, nodes: u32, until: Time) {
        self.forget(job, direction);
        if nodes > 0 {
            self.declined.insert((job, direction), (nodes, until));
            self.due.insert((until, job, direction));
        }
    }

    /// Notes that `nodes` nodes were given for another job, until `until`.
    pub(crate) fn note_given(&mut self, job: JobId, nodes: u32, until: Time) {
        self.given.insert(job, (nodes, until));
    }

    /// Returns how many nodes were given for another job, or 0.
    pub(crate) fn given(&self, job: JobId) -> u32 {
        self.given.get(&job).map_or(0, |(nodes, _)| *nodes)
    }

    /// Returns how many nodes were declined, or 0.
    pub(crate) fn nodes(&self, job: JobId, direction: Direction) -> u32 {
        self.declined.get(&(job, direction)).map_or(0, |(nodes, _)| *nodes)
    }

    /// Returns when the first entry expires.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let given = self.given.values().map(|(_, until)| *until).min();
        self.due.first().map(|(until, ..)| *until).into_iter().chain(given).min()
    }

    /// Removes expired entries. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let n_given = self.given.len();
        self.given.retain(|_, (_, until)| *until > now);
        let mut has_expired = self.given.len() < n_given;
        while let Some((until, job, direction)) = self.due.first().copied()
            && until <= now
        {
            self.forget(job, direction);
            has_expired = true;
        }
        has_expired
    }

    fn forget(&mut self, job: JobId, direction: Direction) {
        if let Some((_, until)) = self.declined.remove(&(job, direction)) {
            self.due.remove(&(until, job, direction));
        }
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Span;

    use super::*;

    #[test]
    fn what_was_declined_counts_for_a_while_and_the_last_word_wins() {
        let now = Time::from_secs(100);
        let later = |secs| now + Span::from_secs(secs);
        let mut refusals = Refusals::default();
        refusals.note(JobId(1), Direction::Grow, 4, later(10));
        refusals.note(JobId(1), Direction::Grow, 2, later(20));
        refusals.note(JobId(2), Direction::Shrink, 3, later(5));
        assert_eq!((refusals.nodes(JobId(1), Direction::Grow), refusals.nodes(JobId(1), Direction::Shrink)), (2, 0));
        assert_eq!(refusals.next_due(), Some(later(5)));
        assert!(!refusals.expire(later(4)));
        assert!(refusals.expire(later(10)));
        assert_eq!((refusals.nodes(JobId(1), Direction::Grow), refusals.nodes(JobId(2), Direction::Shrink)), (2, 0));
        assert!(refusals.expire(later(20)));
        assert_eq!(refusals.next_due(), None);
        refusals.note(JobId(1), Direction::Grow, 0, later(10));
        refusals.note_given(JobId(3), 5, later(30));
        assert_eq!((refusals.given(JobId(3)), refusals.given(JobId(1))), (5, 0));
        assert_eq!(refusals.next_due(), Some(later(30)));
        assert!(refusals.expire(later(30)));
        assert_eq!(refusals.given(JobId(3)), 0);
        assert_eq!(refusals.next_due(), None, "who declined nothing is not remembered");
    }
}
