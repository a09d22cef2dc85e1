//! Both ends of a negotiation say alike how it ended (002, §5): what an application learns is what the server has written
//! down.

use negotiation::{Change, Dialogue, Phase, Reason};
use rms_core::State;
use rms_model::{JobId, Run};

use super::{Rule, Violation};

/// The application's end has changed; `durable` is what the journal says.
pub(crate) fn ends_agree(
    (job, run): (JobId, Run),
    change: &Change,
    application: &Dialogue,
    durable: &State,
) -> Result<(), Violation> {
    let wrong = |what: String| {
        let phase = application.phase();
        Err(Rule::Agreement.broken(format!("job {job}.{run}, {}: the application is {phase}, {what}", change.id)))
    };
    let is_settled = match change.to {
        Phase::Accepted | Phase::Committing | Phase::Applied | Phase::Ended(_) => true,
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving | Phase::Failing => {
            false
        }
    };
    let entry = durable.jobs().get(&job).filter(|entry| entry.run == run);
    let Some(entry) = entry.filter(|_| is_settled && change.to == application.phase()) else { return Ok(()) };
    let case = entry.talks.as_ref().and_then(|talks| talks.case(change.id));
    let Some(rms) = case.map(|case| &case.dialogue) else {
        // What the server has never heard of, or has forgotten, is unknown to it.
        let is_unknown = application.reason() == Some(Reason::Unknown) || was_given_up(application);
        return if is_unknown { Ok(()) } else { wrong("and the server knows nothing of it".to_owned()) };
    };
    let agrees = match change.to {
        Phase::Accepted => agreed(rms.phase()),
        // In a shrink the application says so itself.
        Phase::Committing => agreed(rms.phase()),
        Phase::Applied => {
            let is_same = (rms.proposal(), rms.hosts()) == (application.proposal(), application.hosts());
            rms.phase() == Phase::Applied && is_same
        }
        Phase::Ended(_) => rms.phase() == change.to && rms.reason() == application.reason(),
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving | Phase::Failing => {
            true
        }
    };
    if agrees {
        return Ok(());
    }
    wrong(format!(
        "because of {:?}, on {:?}; the server is {}, because of {:?}, on {:?}",
        application.reason(),
        application.hosts(),
        rms.phase(),
        rms.reason(),
        rms.hosts()
    ))
}

/// Is, or was, it agreed at the server's end? What was agreed may have failed meanwhile.
fn agreed(phase: Phase) -> bool {
    match phase {
        Phase::Accepted | Phase::Committing | Phase::Applied => true,
        Phase::Ended(negotiation::Ending::Failed) => true,
        Phase::Ended(_) | Phase::Idle | Phase::Offered(_) | Phase::Countered(_) => false,
        Phase::Pledged | Phase::Leaving | Phase::Failing => false,
    }
}

/// The application gave up what the server had never heard of: it is told its own words.
fn was_given_up(application: &Dialogue) -> bool {
    matches!(application.phase(), Phase::Ended(_)) && application.theirs().is_none()
}
