//! Decides who may do what to which jobs, and resolves what a call names.

use std::collections::BTreeSet;

use rms_api::call::Select;
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, NodeId, Role};

use crate::state::State;
use crate::state::job::Job;

pub(crate) fn selected(state: &State, who: &Identity, select: &Select) -> Result<Vec<JobId>, Refusal> {
    match select {
        // Each job once: an answer may contain a whole script for each.
        Select::Ids(jobs) => {
            let mut seen = BTreeSet::new();
            Ok(jobs.iter().copied().filter(|job| seen.insert(*job)).collect())
        }
        Select::Last => state.owned_by(&who.name).next_back().map(|job| vec![job]).ok_or(Refusal::NoJobs),
        Select::All => match who.role {
            Role::Admin => Ok(state.jobs().keys().copied().collect()),
            Role::User => Ok(state.owned_by(&who.name).collect()),
            Role::Job => Ok(who.as_job().map(|(job, _)| job).into_iter().collect()),
            Role::Agent | Role::Server => Ok(Vec::new()),
        },
        Select::User(name) => Ok(state.owned_by(name).collect()),
    }
}

pub(crate) fn may_touch(state: &State, who: &Identity, job: JobId) -> Result<(), Refusal> {
    let entry = state.jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
    if may_see_secrets(who, entry) || who.as_job() == Some((job, entry.run)) {
        return Ok(());
    }
    Err(Refusal::NotYourJob { job, owner: entry.spec.owner.0.clone() })
}

/// Returns whether the client may see scripts, environments and streams: only the owner and admins may.
pub(crate) fn may_see_secrets(who: &Identity, entry: &Job) -> bool {
    match who.role {
        Role::Admin => true,
        Role::User => entry.spec.owner.0 == who.name,
        Role::Agent | Role::Server | Role::Job => false,
    }
}

/// Returns the named nodes, each once.
pub(crate) fn nodes_named(state: &State, names: &[String]) -> Result<BTreeSet<NodeId>, Refusal> {
    if names.is_empty() {
        return Err(Refusal::Malformed("name at least one node"));
    }
    let find = |name: &String| {
        state.node_named(name).ok_or_else(|| Refusal::NoSuchNode { name: name.chars().take(80).collect() })
    };
    names.iter().map(find).collect()
}

pub(crate) fn admins_only(who: &Identity, action: &'static str) -> Result<(), Refusal> {
    match who.role {
        Role::Admin => Ok(()),
        Role::User | Role::Agent | Role::Server | Role::Job => Err(not_allowed(who, action, "an admin may")),
    }
}

pub(crate) fn not_allowed(who: &Identity, action: &'static str, needed: &'static str) -> Refusal {
    Refusal::NotAllowed { who: who.clone(), action, needed }
}

pub(crate) fn wrong_state(job: JobId, state: &'static str, hint: &'static str) -> Refusal {
    Refusal::WrongState { job, state, hint }
}

/// Checks a priority: users may lower theirs, only an admin may raise one above 0.
pub(crate) fn check_priority(who: &Identity, priority: i32) -> Result<(), Refusal> {
    if priority > 0 && who.role != Role::Admin {
        return Err(not_allowed(who, "raise a priority above 0", "an admin may; users may lower theirs"));
    }
    Ok(())
}
