//! How long to wait before the next attempt: exponentially longer, and never in step with others.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Delays between attempts. A thousand agents whose server restarts come back spread out.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    rng: StdRng,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff::seeded(first, longest, rand::rng().random())
    }

    /// The same delays for the same seed.
    pub fn seeded(first: Duration, longest: Duration, seed: u64) -> Backoff {
        Backoff { first, longest, next: first, rng: StdRng::seed_from_u64(seed) }
    }

    /// Half of it is certain and half is drawn; the next one is twice as long.
    pub fn delay(&mut self) -> Duration {
        let most = self.next;
        self.next = (most * 2).min(self.longest);
        most.mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// It worked: the next failure starts from the shortest delay.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// For those whom somebody waits for: a server that is back finds them there within a second.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_longest_and_start_again() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::seeded(ms(100), ms(1000), 7);
        for most in [100, 200, 400, 800, 1000, 1000] {
            let delay = backoff.delay();
            assert!(ms(most / 2) <= delay && delay <= ms(most), "{delay:?} of {most} ms");
        }
        backoff.reset();
        assert!(backoff.delay() <= ms(100));
    }
}
