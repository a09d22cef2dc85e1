//! Both ends of a negotiation agree on how it ended (002, §5): the application learns what the server has stored.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Change, Dialogue, Ending, NegotiationId, Phase, Reason};
use rms_core::Fact;
use rms_model::{JobId, Run};

use super::{Rule, Violation};

/// The dialogues of the server's ends, according to the journal.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    runs: BTreeMap<JobId, Run>,
    ends: BTreeMap<(JobId, Run, NegotiationId), Dialogue>,
    /// Negotiations that another party requested for the application; a negotiation of its process with the same number
    /// is a different one.
    asked: BTreeSet<(JobId, Run, NegotiationId)>,
}

impl Agreement {
    pub(super) fn durable(&mut self, fact: &Fact) {
        if let Fact::JobStarted { job, run, .. } = fact {
            self.runs.insert(*job, *run);
        }
        if let Fact::DialogueChanged { job, dialogue, asking, .. } = fact
            && let Some(run) = self.runs.get(job)
        {
            if asking.is_some() {
                self.asked.insert((*job, *run, dialogue.id()));
            }
            self.ends.insert((*job, *run, dialogue.id()), (**dialogue).clone());
        }
    }

    /// Checks a change of the application's end.
    pub(super) fn ends_agree(
        &self,
        (job, run): (JobId, Run),
        change: &Change,
        application: &Dialogue,
    ) -> Result<(), Violation> {
        if !is_told(change.to) || change.to != application.phase() {
            return Ok(());
        }
        let wrong = |what: String| {
            let (phase, id) = (application.phase(), change.id);
            Err(Rule::Agreement.broken(format!("job {job}.{run}, {id}: the application is {phase}, {what}")))
        };
        let key = (job, run, change.id);
        let Some(rms) = self.ends.get(&key).filter(|_| !self.asked.contains(&key)) else {
            // If the server never received a negotiation, or has lost it, it can only answer that it is unknown, or
            // repeat the application's statement.
            let is_given_up = matches!(application.phase(), Phase::Ended(_));
            return if is_given_up { Ok(()) } else { wrong("and the server knows nothing of it".to_owned()) };
        };
        if agree(change.to, rms, application) {
            return Ok(());
        }
        wrong(format!(
            "because of {:?}, on {:?}; the server is {}, because of {:?}, on {:?}",
            application.reason(),
            application.nodes(),
            rms.phase(),
            rms.reason(),
            rms.nodes()
        ))
    }
}

/// Returns whether only the server can say this.
fn is_told(phase: Phase) -> bool {
    match phase {
        Phase::Accepted | Phase::Committing | Phase::Applied | Phase::Ended(_) => true,
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving | Phase::Failing => {
            false
        }
    }
}

fn agree(to: Phase, rms: &Dialogue, application: &Dialogue) -> bool {
    match to {
        // The negotiation may have continued, or failed, before the application was told.
        Phase::Accepted | Phase::Committing => match rms.phase() {
            Phase::Accepted | Phase::Committing | Phase::Applied | Phase::Ended(Ending::Failed) => {
                rms.proposal() == application.proposal()
            }
            Phase::Ended(_) | Phase::Idle | Phase::Offered(_) | Phase::Countered(_) => false,
            Phase::Pledged | Phase::Leaving | Phase::Failing => false,
        },
        Phase::Applied => {
            let is_same = (rms.proposal(), rms.nodes()) == (application.proposal(), application.nodes());
            rms.phase() == Phase::Applied && is_same
        }
        Phase::Ended(_) => {
            // A negotiation that both, or the server alone, have forgotten is unknown.
            let is_same = rms.phase() == to && rms.reason() == application.reason();
            is_same || application.reason() == Some(Reason::Unknown)
        }
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving | Phase::Failing => {
            true
        }
    }
}
