//! Bounds what one user may bring into the system: jobs, bytes, and submits per second. Admins have no such bounds.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::refusal::Refusal;
use rms_api::subscription::{Filter, MAX_SLICES};
use rms_model::Work;
use rms_model::{Environment, Identity, JobSpec, Owner, Role, Span, Time};

use crate::state::{State, environment_bytes, work_bytes};

/// A leaky bucket: the recent submits of a user, in thousandths of a submit.
#[derive(Clone, Copy, Debug, Default)]
struct LeakyBucket {
    level: u64,
    at: Time,
}

impl LeakyBucket {
    /// Adds `n_submits`, with `rate`, at least 1, allowed per second; otherwise returns how long to wait first. A batch
    /// that is larger than the bucket is accepted when the bucket is empty.
    fn take(&mut self, now: Time, rate: u32, n_submits: u64) -> Result<(), Span> {
        let rate = u64::from(rate);
        let elapsed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(0);
        let level = self.level.saturating_sub(elapsed.saturating_mul(rate));
        let capacity = rate * 1000 * BURST_SECS;
        let after = level.saturating_add(n_submits.saturating_mul(1000));
        if after > capacity && level > 0 {
            let excess = (after - capacity).min(level);
            return Err(Span::from_millis(i64::try_from(excess.div_ceil(rate)).unwrap_or(i64::MAX)));
        }
        *self = LeakyBucket { level: after, at: now };
        Ok(())
    }

    fn is_empty(&self, now: Time) -> bool {
        now.since(self.at) > Span::from_secs(BURST_SECS as i64)
    }
}

/// Burst size, in seconds of the rate.
const BURST_SECS: u64 = 60;

/// This many bytes of script and environment count as one more submit.
const BYTES_OF_A_SUBMIT: u64 = 4096;

/// The most users whose rates are remembered; beyond that, those with an empty bucket are forgotten.
const MAX_BUCKETS: usize = 10_000;

/// The recent submit rates of users.
#[derive(Debug, Default)]
pub(crate) struct SubmitRates(BTreeMap<Owner, LeakyBucket>);

impl SubmitRates {
    /// Counts one more submit of this user, successful or not.
    ///
    /// # Errors
    /// The user submits too fast.
    pub(crate) fn check(
        &mut self,
        state: &State,
        now: Time,
        who: &Identity,
        work: &Work,
        environment: &Environment,
    ) -> Result<(), Refusal> {
        let Some(max) = state.settings().submit_limit_of(&who.name).filter(|_| who.role != Role::Admin) else {
            return Ok(());
        };
        if max == 0 {
            return Err(Refusal::NoSubmits);
        }
        if self.0.len() >= MAX_BUCKETS {
            self.0.retain(|_, bucket| !bucket.is_empty(now));
        }
        let n_bytes = work_bytes(work) + environment_bytes(environment);
        let n_submits = 1 + n_bytes / BYTES_OF_A_SUBMIT;
        let taken = match self.0.get_mut(who.name.as_str()) {
            Some(bucket) => bucket.take(now, max, n_submits),
            None => self.0.entry(Owner(who.name.clone())).or_default().take(now, max, n_submits),
        };
        taken.map_err(|wait| Refusal::SubmitLimit { max, wait })
    }
}

/// Checks whether the user may have one more job.
///
/// # Errors
/// The user has too many jobs, or they take too much space.
pub(crate) fn check_quota(state: &State, who: &Identity, spec: &JobSpec) -> Result<(), Refusal> {
    if who.role == Role::Admin {
        return Ok(());
    }
    let n_jobs = state.usage_of(&spec.owner.0).n_jobs;
    if let Some(max) = state.settings().job_limit_of(&who.name)
        && n_jobs >= max
    {
        return Err(Refusal::JobLimit { used: n_jobs, max });
    }
    check_bytes(state, who, &spec.execution.work, &spec.execution.environment)
}

/// Checks the size of what a job is to execute, whether it comes with the job or later.
///
/// # Errors
/// The user's jobs would take too much space.
pub(crate) fn check_bytes(
    state: &State,
    who: &Identity,
    work: &Work,
    environment: &Environment,
) -> Result<(), Refusal> {
    let Some(max) = state.settings().script_limit_of(&who.name).filter(|_| who.role != Role::Admin) else {
        return Ok(());
    };
    let used = state.usage_of(&who.name).n_bytes;
    let wanted = used + work_bytes(work) + state.new_environment_bytes(&who.name, environment);
    if wanted > u64::from(max) * MIB {
        return Err(Refusal::ScriptLimit { used: used / MIB, max });
    }
    Ok(())
}

/// Checks the slices for which one more launcher of this user looks: each distinct one costs every pass.
///
/// # Errors
/// The user's launchers look for too many slices.
pub(crate) fn check_slices(state: &State, who: &Identity, filter: &Filter) -> Result<(), Refusal> {
    if who.role == Role::Admin || filter.slices.is_empty() {
        return Ok(());
    }
    let entries = state.owned_by(&who.name).filter_map(|job| state.jobs().get(&job));
    let looking = entries.filter(|entry| entry.is_before_its_start());
    let filters = looking.filter_map(|entry| Some(&entry.launcher.as_ref()?.filter));
    let mut wanted = BTreeSet::new();
    for filter in filters.chain([filter]) {
        wanted.extend(filter.slices.iter().map(|slice| (&filter.constraint, slice)));
        if wanted.len() > MAX_WATCHED {
            return Err(Refusal::SliceLimit { max: MAX_WATCHED });
        }
    }
    Ok(())
}

/// Twice as many as one filter has.
const MAX_WATCHED: usize = 2 * MAX_SLICES;

const MIB: u64 = 1024 * 1024;
