//! Answers queries about negotiations.

use negotiation::{Item, Resource};
use rms_api::answer::Answer;
use rms_api::negotiate::NegotiationLine;
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, Time};

use crate::rights;
use crate::state::State;
use crate::state::job::Job;
use crate::state::negotiations::{JobNegotiations, Negotiation};

/// Returns the negotiations of a job, or of all jobs that the caller may touch.
pub(crate) fn negotiations(state: &State, now: Time, who: &Identity, job: Option<JobId>) -> Result<Answer, Refusal> {
    let jobs: Vec<JobId> = match job {
        Some(job) => {
            rights::may_touch(state, who, job)?;
            vec![job]
        }
        None => {
            let is_theirs = |job: &JobId| rights::may_touch(state, who, *job).is_ok();
            state.jobs().keys().copied().filter(is_theirs).collect()
        }
    };
    let mut lines = Vec::new();
    for job in jobs {
        let entry = &state.jobs()[&job];
        if let Some(negotiations) = &entry.negotiations {
            lines.extend(lines_of(state, job, entry, negotiations));
        }
    }
    Ok(Answer::Negotiations { now, lines })
}

fn lines_of(state: &State, job: JobId, entry: &Job, negotiations: &JobNegotiations) -> Vec<NegotiationLine> {
    let line = |negotiation: &Negotiation| NegotiationLine {
        job,
        run: entry.run,
        owner: entry.spec.owner.0.clone(),
        record: negotiation.record(),
        phase: negotiation.phase(),
        until: {
            let dialogue = &negotiation.dialogue;
            dialogue.lapses().or(negotiation.taken_at(state.settings())).or(dialogue.due())
        },
        held: state.node_names(&negotiation.held.iter().copied().collect::<Vec<_>>()),
    };
    let past = negotiations.past.iter().map(|record| record.clone().line(job, entry.run, entry.spec.owner.0.clone()));
    past.chain(negotiations.all.iter().map(line)).collect()
}

/// Returns how much was agreed: nodes; or, where it is about those alone, the amount of each node, licences or
/// milliseconds.
pub(super) fn quantity(negotiation: &Negotiation) -> u64 {
    let Some(agreed) = negotiation.dialogue.proposal() else { return 0 };
    let nodes = agreed.n_nodes();
    let live = || agreed.items().iter().filter(|item| item.is_live());
    let is_part = |item: &&Item| item.resource.is_inside_nodes() || matches!(item.resource, Resource::Licences(..));
    let part = live().find(is_part);
    let time = || live().filter(|item| item.resource == Resource::Time).map(|item| item.quantity.0);
    match (nodes, part) {
        (0, Some(item)) => item.quantity.0,
        (0, None) => time().sum(),
        (nodes, _) => nodes,
    }
}
