//! State that all sessions of a server share.

use rms_api::Refused;
use rms_api::answer::LauncherTraffic;
use rms_api::answer::ServerReport;
use rms_api::call::TokenOrder;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, UNIX_EPOCH};

use rms_model::Time;
use rms_wire::tls::Authority;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::config::LinkLimits;
use crate::dir::DataDir;
use crate::history::History;
use crate::inbox::Inbox;
use crate::journal::snapshot;
use crate::registry::Registry;

#[derive(Debug)]
pub struct Shared {
    pub inbox: Inbox,
    pub history: History,
    pub registry: Arc<Registry>,
    pub authority: Authority,
    pub limits: LinkLimits,
    pub joins: RateLimit,
    /// The same rate as for joins, but separate: strangers must not keep peers from renewing.
    pub renewals: RateLimit,
    /// Certificates for jobs: whole nodes of them start at once, and agents ask again for those that were refused.
    pub certifications: RateLimit,
    pub launchers: LauncherCounters,
    /// Queries that are being answered, over all callers.
    pub queries: Semaphore,
    /// Queries of admins, who must always be able to see what is wrong.
    pub queries_of_admins: Semaphore,
    dir: DataDir,
    since: Time,
}

impl Shared {
    pub fn new(
        inbox: Inbox,
        history: History,
        registry: Arc<Registry>,
        authority: Authority,
        limits: LinkLimits,
        dir: DataDir,
    ) -> Shared {
        let joins = RateLimit::new(limits.joins_per_second);
        let renewals = RateLimit::new(limits.joins_per_second);
        let certifications = RateLimit::new(limits.joins_per_second.saturating_mul(CERTIFICATIONS_PER_JOIN));
        let launchers = LauncherCounters::default();
        let since = Clock::start().now();
        let queries = Semaphore::new(MAX_QUERIES);
        let queries_of_admins = Semaphore::new(MAX_QUERIES_OF_ADMINS);
        Shared {
            inbox,
            history,
            registry,
            authority,
            limits,
            joins,
            renewals,
            certifications,
            launchers,
            queries,
            queries_of_admins,
            dir,
            since,
        }
    }

    /// Checks that the CA which the token names signs now, and after a restart. One that is drawn between a switch to
    /// another CA and the restart would be invalid from then on.
    ///
    /// # Errors
    /// Another CA signs, or will.
    pub fn can_be_redeemed(&self, order: &TokenOrder) -> Result<(), Refused> {
        let next =
            Authority::load(&self.dir.authority()).map_or_else(|_| self.authority.fingerprint(), |it| it.fingerprint());
        if next != self.authority.fingerprint() {
            let message = "the CA was switched, and a token made now would be invalid soon: restart the server first \
                           (systemctl restart rms-server)";
            return Err(Refused::new("ca_switched", message));
        }
        if order.ca.as_ref().is_some_and(|named| *named != next) {
            return Err(Refused::new(
                "ca_changed",
                "the token names a CA that does not sign any more: run the command again",
            ));
        }
        Ok(())
    }

    /// Returns the status of the server itself.
    pub fn report(&self) -> ServerReport {
        let journal = self.dir.journal();
        let files = fs::read_dir(&journal).into_iter().flatten().flatten();
        let journal_bytes = files.filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum();
        let newest = snapshot::list(&journal).ok().and_then(|all| all.last().copied());
        let snapshot = newest.and_then(|seq| fs::metadata(snapshot::path_of(&journal, seq)).ok());
        let made = snapshot.as_ref().and_then(|found| found.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        ServerReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: self.since,
            journal_bytes,
            snapshot: made.map(|made| Time::from_millis(i64::try_from(made.as_millis()).unwrap_or(i64::MAX))),
            snapshot_bytes: snapshot.map_or(0, |found| found.len()),
            history_failure: self.history.failure(),
        }
    }
}

/// A signature takes some tens of microseconds, and agents are trusted.
const CERTIFICATIONS_PER_JOIN: u32 = 20;

/// Many more than one peer may have: a peer that does not read its answers blocks few others.
const MAX_QUERIES: usize = 64;
const MAX_QUERIES_OF_ADMINS: usize = 16;

/// Traffic over launchers' channels since the server was started (001, Fig. 12).
#[derive(Debug, Default)]
pub struct LauncherCounters {
    pub n_open: AtomicU64,
    pub n_opened: AtomicU64,
    /// Bytes of frames, from launchers and to them.
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
}

impl LauncherCounters {
    pub fn read(&self) -> LauncherTraffic {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LauncherTraffic {
            n_open: count(&self.n_open),
            n_opened: count(&self.n_opened),
            bytes_up: count(&self.bytes_up),
            bytes_down: count(&self.bytes_down),
        }
    }
}

/// Limits attempts per second over all peers, so that guessing tokens and requesting signatures stay slow.
#[derive(Debug)]
pub struct RateLimit {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    level: f64,
    at: Instant,
}

impl RateLimit {
    pub fn new(per_second: u32) -> RateLimit {
        let per_second = f64::from(per_second);
        RateLimit { per_second, bucket: Mutex::new(Bucket { level: per_second, at: Instant::now() }) }
    }

    /// Takes one attempt; returns whether it is allowed now.
    pub fn allows(&self) -> bool {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut bucket, Instant::now())
    }

    fn take(&self, bucket: &mut Bucket, now: Instant) -> bool {
        let refilled = now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second;
        bucket.level = (bucket.level + refilled).min(self.per_second);
        bucket.at = now;
        let is_allowed = bucket.level >= 1.0;
        if is_allowed {
            bucket.level -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_so_many_a_second() {
        let start = Instant::now();
        let limit = RateLimit::new(10);
        let mut bucket = Bucket { level: 10.0, at: start };
        let mut allowed = |millis: u64| {
            let now = start + Duration::from_millis(millis);
            (0..100).filter(|_| limit.take(&mut bucket, now)).count()
        };
        assert_eq!(allowed(0), 10);
        assert_eq!(allowed(50), 0);
        assert_eq!(allowed(500), 5);
        assert_eq!(allowed(60_000), 10);
    }
}
