//! The server's clock: the wall clock, but never backwards.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rms_model::{Span, Time};

/// Reads the wall clock. After the wall clock was set back, time goes on at half speed until the wall clock has caught
/// up: timers still fire, and timestamps stay in order.
#[derive(Debug)]
pub struct Clock {
    last: Time,
    read_at: Instant,
    /// The wall clock is behind, which was logged.
    is_ahead: bool,
    /// By how much the wall clock was set forward since somebody asked.
    set_forward: Option<Span>,
}

impl Clock {
    pub fn start() -> Clock {
        Clock::of(wall(SystemTime::now()), Instant::now())
    }

    fn of(last: Time, read_at: Instant) -> Clock {
        Clock { last, read_at, is_ahead: false, set_forward: None }
    }

    /// Returns the current time; never earlier than a time returned before.
    pub fn now(&mut self) -> Time {
        let wall = wall(SystemTime::now());
        let now = self.advance(wall, Instant::now());
        if let Some(ahead) = self.begins_to_be_ahead(now.since(wall)) {
            tracing::warn!(
                %ahead,
                "the clock of this machine was set back; the server's time runs at half speed until the clock has caught up, \
                 or until the server is restarted"
            );
        }
        now
    }

    /// Returns how far the server's time is ahead of the wall clock, once each time that the wall clock was set back.
    fn begins_to_be_ahead(&mut self, ahead: Span) -> Option<Span> {
        let was_ahead = std::mem::replace(&mut self.is_ahead, ahead > LOGGED_FROM);
        Some(ahead).filter(|_| self.is_ahead && !was_ahead)
    }

    /// Returns by how much the wall clock was set forward since the last call, if by more than some seconds. A machine
    /// that was suspended looks the same.
    pub fn set_forward(&mut self) -> Option<Span> {
        self.set_forward.take()
    }

    fn advance(&mut self, wall: Time, at: Instant) -> Time {
        if wall >= self.last {
            let elapsed = Span::from_millis(at.saturating_duration_since(self.read_at).as_millis() as i64);
            let step = wall.since(self.last + elapsed);
            if step > LOGGED_FROM {
                self.set_forward = Some(step);
            }
            self.last = wall;
            self.read_at = at;
        } else {
            let half = at.saturating_duration_since(self.read_at).as_millis() as i64 / 2;
            if half > 0 {
                self.last += Span::from_millis(half);
                self.read_at = at;
            }
        }
        self.last
    }
}

/// Smaller corrections of the wall clock are not logged.
const LOGGED_FROM: Span = Span::from_secs(5);

fn wall(now: SystemTime) -> Time {
    // A clock before 1970 is not set: the epoch serves as well.
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_was_set_back_goes_on_slowly_until_caught_up() {
        let start = Instant::now();
        let mut clock = Clock::of(Time::from_secs(100), start);
        let mut check = |wall_secs, elapsed_secs, expected_secs| {
            let at = start + Duration::from_secs(elapsed_secs);
            assert_eq!(clock.advance(Time::from_secs(wall_secs), at), Time::from_secs(expected_secs));
        };
        check(110, 10, 110);
        // One hour back.
        check(50, 10, 110);
        check(60, 20, 115);
        check(70, 30, 120);
        // And forward again.
        check(130, 40, 130);
    }

    #[test]
    fn a_clock_that_was_set_forward_is_told_once() {
        let start = Instant::now();
        let mut clock = Clock::of(Time::from_secs(100), start);
        let mut step = |wall_secs, elapsed_secs| {
            clock.advance(Time::from_secs(wall_secs), start + Duration::from_secs(elapsed_secs));
            clock.set_forward()
        };
        let told =
            [(110, 10), (3715, 15), (3716, 16), (3726, 21), (3626, 30), (3735, 35)].map(|(wall, at)| step(wall, at));
        let of_secs = |secs| Some(Span::from_secs(secs));
        assert_eq!(told, [None, of_secs(3600), None, None, None, None]);
        assert_eq!(step(3750, 36), of_secs(14));
    }

    #[test]
    fn a_clock_that_was_set_back_is_told_once() {
        let mut clock = Clock::of(Time::from_secs(100), Instant::now());
        let aheads = [0, 5, 3600, 3000, 6, 5, 0, 60].map(Span::from_secs);
        let told = aheads.map(|ahead| clock.begins_to_be_ahead(ahead).is_some());
        assert_eq!(told, [false, false, true, false, false, false, false, true]);
    }
}
