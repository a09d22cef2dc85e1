//! Decides when pending facts are written, and what is accepted meanwhile: group commit, and a disk that fails or is
//! full.

use rms_api::Call;
use rms_api::call::traits::Reserve;
use rms_model::{Identity, Role, Span, Time};

use super::message::Failing;
use crate::step::Step;

#[derive(Debug, Default)]
pub(super) struct Gate {
    failure: Option<Failure>,
    /// Set while only a reserve is left on the disk: the answer to callers with new work, and when to check again.
    shortage: Option<(Failing, Time)>,
    /// Set while all pending facts can wait.
    waiting_until: Option<Time>,
}

#[derive(Debug)]
struct Failure {
    failing: Failing,
    backoff: Span,
    retry_at: Time,
}

const FIRST_BACKOFF: Span = Span::from_millis(100);
const LONGEST_BACKOFF: Span = Span::from_secs(5);

/// How often a full disk is checked.
const FULL_BACKOFF: Span = Span::from_millis(500);

/// How long a step that can wait does so, to share its sync with another one.
const COMMIT_DELAY: Span = Span::from_millis(50);

impl Gate {
    /// Returns why nothing can be made durable now.
    pub(super) fn failure(&self) -> Option<&Failing> {
        self.failure.as_ref().map(|failure| &failure.failing)
    }

    /// Returns why no new work can be accepted now. While the disk is only full, reports of agents, queries and orders
    /// about existing jobs are still accepted: there is a reserve for them.
    pub(super) fn shortage(&self) -> Option<&Failing> {
        self.failure().or(self.shortage.as_ref().map(|(failing, _)| failing))
    }

    /// Returns why a call cannot be accepted now. While nothing can be made durable even a query is refused: its answer
    /// would show facts that are not durable.
    pub(super) fn refusal(&self, who: &Identity, call: &Call) -> Option<&Failing> {
        if may_use_reserve(who, call) { self.failure() } else { self.shortage() }
    }

    /// Returns when there is something to do; `timer` is the core's, which has to wait for a failing disk.
    pub(super) fn next(&self, timer: Option<Time>) -> Option<Time> {
        if let Some(failure) = &self.failure {
            return Some(failure.retry_at);
        }
        let look_at = self.shortage.as_ref().map(|(_, at)| *at);
        [look_at.or(timer), self.waiting_until].into_iter().flatten().min()
    }

    /// Returns whether pending facts are to be made durable now.
    pub(super) fn should_commit(&mut self, now: Time, pending: &Step) -> bool {
        if pending.is_empty() || self.failure.as_ref().is_some_and(|failure| now < failure.retry_at) {
            return false;
        }
        // Saves one sync for each job: the fact that it runs becomes durable with the next facts, if they come soon.
        // Facts that the disk did not accept have waited already.
        if pending.can_wait() && self.failure.is_none() && now < *self.waiting_until.get_or_insert(now + COMMIT_DELAY) {
            return false;
        }
        self.waiting_until = None;
        true
    }

    pub(super) fn recovered(&mut self) {
        self.failure = None;
    }

    /// Records a failed write and returns the answer to waiting callers. The delay before the next try grows each time.
    pub(super) fn failed(&mut self, now: Time, message: String) -> &Failing {
        let backoff = match &self.failure {
            Some(failure) => (failure.backoff + failure.backoff).min(LONGEST_BACKOFF),
            None => FIRST_BACKOFF,
        };
        let failure = Failure { failing: Failing { message }, backoff, retry_at: now + backoff };
        &self.failure.insert(failure).failing
    }

    pub(super) fn looks_for_space(&self, now: Time) -> bool {
        self.failure.is_none() && self.shortage.as_ref().is_none_or(|(_, look_at)| *look_at <= now)
    }

    pub(super) fn found_space(&mut self, now: Time, shortage: Option<String>) {
        self.shortage = shortage.map(|message| (Failing { message }, now + FULL_BACKOFF));
    }
}

/// Returns whether a call may use the reserve.
fn may_use_reserve(who: &Identity, call: &Call) -> bool {
    match call.traits().reserve {
        Reserve::Nobody => false,
        Reserve::Admins => who.role == Role::Admin,
        Reserve::Everybody => true,
    }
}

#[cfg(test)]
mod tests {
    use rms_api::call::Select;
    use rms_model::JobId;

    use super::*;

    #[test]
    fn only_admins_write_as_often_as_they_like_on_a_full_disk() {
        let who = |role| Identity { role, name: "ann".to_owned() };
        let writes = |role, call| may_use_reserve(&who(role), &call);
        let select = || Select::All;
        let often = [
            || Call::Hold { select: Select::All },
            || Call::set_priority(Select::All, -1),
            || Call::FreeNodes { job: JobId(1), nodes: Vec::new() },
            || Call::Evolve { job: JobId(1), stages: "2x1m".parse().expect("stages"), open: false },
        ];
        for call in often {
            assert!(writes(Role::Admin, call()));
            assert!(!writes(Role::User, call()) && !writes(Role::Job, call()), "{:?}", call());
        }
        for role in [Role::Admin, Role::User, Role::Job] {
            assert!(writes(role, Call::Cancel { select: select() }));
            assert!(writes(role, Call::Signal { select: select(), signal: 15 }));
        }
    }

    #[test]
    fn a_disk_that_fails_is_tried_again_later_each_time_and_soon_after_it_was_well() {
        let mut gate = Gate::default();
        let mut now = Time::EPOCH;
        let mut waits = |gate: &mut Gate| {
            gate.failed(now, "no space".to_owned());
            let retry_at = gate.next(Some(now)).expect("it is tried again");
            let wait = retry_at.since(now).as_millis();
            now = retry_at;
            wait
        };
        let all: Vec<i64> = (0..8).map(|_| waits(&mut gate)).collect();
        assert_eq!(all, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        gate.recovered();
        assert_eq!(waits(&mut gate), 100);
    }
}
