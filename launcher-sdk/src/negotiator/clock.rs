//! The negotiator's own clock: it starts at the system's time and never goes back.

use std::time::Duration;

use rms_model::{Span, Time};
use tokio::time::Instant;

/// The clock of the negotiator's own timers. Deadlines that the server has set are by the server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begun: Instant,
    at_begin: Time,
}

impl Clock {
    pub fn start() -> Clock {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Clock { begun: Instant::now(), at_begin: Time::EPOCH + span(since_epoch) }
    }

    pub fn now(&self) -> Time {
        self.at_begin + span(self.begun.elapsed())
    }

    /// Returns the instant at which this clock will show `time`.
    pub fn instant(&self, time: Time) -> Instant {
        let later = time.since(self.at_begin).max(Span::ZERO).min(Span::MAX_WALL);
        self.begun + later.to_std()
    }
}

fn span(duration: Duration) -> Span {
    Span::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
