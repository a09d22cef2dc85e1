//! Who can start does so, whether or not anything else happens: at no time between two turns of the server does a plan
//! start somebody whom the last pass has not started.

use rms_core::plan::{Placed, Scope};
use rms_core::state::job::{Job, Launcher, LauncherLink, Started};
use rms_core::{State, plan};
use rms_model::{Policy, Span, Time};

use super::{Rule, Violation};

/// Plans for the instant before `until`, the next time at which anything happens.
pub(crate) fn nobody_could_start(state: &State, now: Time, until: Time) -> Result<(), Violation> {
    let at = until - Span::from_millis(1);
    // Passes are as far apart as the re-scheduling timer makes them (001, §5.2).
    if at < now || !state.settings().resched_timer.is_zero() || state.settings().policy == Policy::Slowdown {
        return Ok(());
    }
    // Nobody knows when such a job leaves: the plan changes with each instant, and is made anew from time to time.
    let is_lost = |started: &Started| started.until() + state.settings().kill_grace.max(Span::from_secs(1)) <= at;
    if state.jobs().values().filter_map(Job::started).any(is_lost) {
        return Ok(());
    }
    let plan = plan(state, at, Scope::Starts);
    // A launcher that is away cannot be notified of a start (001, §5.3.1).
    let is_connected = |launcher: &Launcher| matches!(launcher.link, LauncherLink::Connected { .. });
    let is_present = |job| state.jobs()[job].launcher.as_ref().is_none_or(is_connected);
    let starts = |placement: &&plan::Placement| matches!(placement.outcome, Placed::Now { .. });
    match plan.placements.iter().filter(starts).find(|placement| is_present(&placement.job)) {
        None => Ok(()),
        Some(idle) => {
            Err(Rule::Idle.broken(format!("job {} could start at {at:?}, and nothing wants it to", idle.job)))
        }
    }
}
