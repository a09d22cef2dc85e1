//! Under the conservative policy a job starts when that was promised, or earlier, unless something has happened since
//! then that no plan knew: a node was lost, a job overstays, an admin gave an order, a negotiation changed what is
//! held.

use std::collections::BTreeMap;

use rms_core::state::job::{Job, LauncherLink};
use rms_core::{Fact, State};
use rms_model::{JobId, Policy, Time};

use super::{Rule, Violation};

/// How many excuses there were when each promise was given.
#[derive(Debug, Default)]
pub(super) struct Starts {
    n_excuses: u64,
    promised: BTreeMap<JobId, u64>,
}

impl Starts {
    /// Checks a durable fact, written at `now`; `before` is the state without it.
    pub(super) fn durable(&mut self, fact: &Fact, before: &State, now: Time) -> Result<(), Violation> {
        if before.settings().policy != Policy::Conservative || is_excuse(fact) || somebody_is_late(before, now) {
            self.n_excuses += 1;
        }
        match fact {
            Fact::StartsPromised { starts } => {
                for (job, promise) in starts {
                    self.keeps(*job, promise.as_ref().map(|promise| promise.at), before)?;
                    self.promised.insert(*job, self.n_excuses);
                }
                Ok(())
            }
            Fact::JobStarted { job, at, .. } => self.keeps(*job, Some(*at), before),
            _ => Ok(()),
        }
    }

    /// Checks that a job which was promised a start has a new one, `at`, that is no later.
    fn keeps(&self, job: JobId, at: Option<Time>, before: &State) -> Result<(), Violation> {
        let promise = before.jobs().get(&job).and_then(|entry| entry.promised.as_ref());
        // Passes are as far apart as the re-scheduling timer makes them (001, §5.2).
        let tolerance = before.settings().resched_timer;
        let is_excused = self.promised.get(&job).is_none_or(|then| *then < self.n_excuses);
        match promise {
            Some(promise) if !is_excused && at.is_none_or(|at| at > promise.at + tolerance) => {
                let what = format!("job {job} was promised {:?} and has {at:?}, though nothing happened", promise.at);
                Err(Rule::Starts.broken(what))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns whether the fact may delay starts that were promised. Applications that grow, shrink or choose their own
/// requests may; rigid and moldable jobs that come, start and end may not.
fn is_excuse(fact: &Fact) -> bool {
    !matches!(
        fact,
        Fact::JobSubmitted { .. }
            | Fact::RequestSent { .. }
            | Fact::JobsQueued { .. }
            | Fact::JobStarted { .. }
            | Fact::StartsPromised { .. }
            | Fact::ShareRunning { .. }
            | Fact::ShareEnded { .. }
            | Fact::JobEnding { requeue: false, .. }
            | Fact::JobDone { .. }
            | Fact::GhostExpired { .. }
            | Fact::TokenCreated { .. }
            | Fact::TokenUsed { .. }
            | Fact::TokenRevoked { .. }
            | Fact::TokenForgotten { .. }
            | Fact::CertificateIssued { .. }
            | Fact::CertificatesRevoked { .. }
            | Fact::CertificateForgotten { .. }
            | Fact::ClusterAdded { .. }
            | Fact::NodeJoined { .. }
            | Fact::NodeGenerationRaised { .. }
            | Fact::LauncherSubscribed { .. }
            | Fact::DepthChosen { .. }
            | Fact::Audited { .. }
            | Fact::DialogueChanged { .. }
            | Fact::LimitsDeclared { .. }
            | Fact::LossDeclared { .. }
    )
}

/// Returns whether a job has its nodes for longer than was planned, or may have, or a launcher or an agent is away that
/// would have to be told of a start.
fn somebody_is_late(state: &State, now: Time) -> bool {
    let is_late = |entry: &Job| match entry.started() {
        // Nodes that it frees may be cleared later than was planned.
        Some(started) => started.planned_until() <= now || started.evolved.is_some() || entry.negotiations.is_some(),
        None => entry.launcher.as_ref().is_some_and(|launcher| matches!(launcher.link, LauncherLink::Away { .. })),
    };
    state.jobs().values().any(is_late) || state.nodes().values().any(|node| !node.is_connected())
}
