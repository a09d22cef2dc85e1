//! The table of phase transitions for both ends. Every transition is taken from here; the specification prints it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::subject::{Direction, Side};

/// The phase of a negotiation, as one end knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing has been proposed.
    Idle,
    /// The first proposal is open.
    Offered(Side),
    /// A counter-offer is open.
    Countered(Side),
    /// Application only: it has accepted and waits for the decision of the RMS, which alone makes the agreement
    /// binding.
    Pledged,
    /// Application only: it wants to end the negotiation and waits for the RMS's decision.
    Leaving,
    /// Agreed. Nothing is ready yet.
    Accepted,
    /// The giver is handing over.
    Committing,
    /// Application only: it cannot carry out what was agreed and waits for the RMS's decision.
    Failing,
    /// The change is done.
    Applied,
    /// Over without an agreement.
    Ended(Ending),
}

/// How a negotiation ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// An end rejected the proposal.
    Rejected,
    /// No answer arrived in time.
    Expired,
    /// The proposer or an administrator withdrew it.
    Withdrawn,
    /// It was agreed, but was not carried out; what was done is rolled back.
    Failed,
}

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementKind {
    /// Offer or counter.
    Propose,
    /// Agree to the other end's proposal.
    Accept,
    /// Begin to hand over.
    Commit,
    /// Declare the change done.
    Ready,
    /// End the negotiation.
    End(Ending),
}

/// An input of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// Its owner wants to make this statement.
    Say(StatementKind),
    /// The other end made this statement.
    Hear(StatementKind),
    /// The standing proposal is no longer valid.
    Lapse,
    /// The time in which the RMS must make it ready has passed.
    Overdue,
}

/// The result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Next {
    /// The end enters another phase.
    To(Phase),
    /// Received and noted, but too late to change anything.
    Late,
    /// Not possible; nothing is noted.
    Never,
}

use Input::{Hear, Lapse, Overdue, Say};
use Next::{Late, Never, To};
use StatementKind::{Accept, Commit, End, Propose, Ready};

impl Phase {
    /// Returns whether the phase is final.
    pub fn is_over(self) -> bool {
        match self {
            Phase::Applied | Phase::Ended(_) => true,
            Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => false,
            Phase::Accepted | Phase::Committing | Phase::Failing => false,
        }
    }

    /// Returns the side whose proposal is open, if there is one.
    pub fn proposer(self) -> Option<Side> {
        match self {
            Phase::Offered(by) | Phase::Countered(by) => Some(by),
            Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing | Phase::Failing => {
                None
            }
            Phase::Applied | Phase::Ended(_) => None,
        }
    }
}

/// Returns what follows from an input at the end `end`: the whole table. The direction determines the giver.
pub fn next(end: Side, direction: Direction, phase: Phase, input: Input) -> Next {
    match phase {
        Phase::Idle => match input {
            Say(Propose) => To(Phase::Offered(end)),
            Hear(Propose) => To(Phase::Offered(end.other())),
            // The negotiation ended before its opening arrived.
            Hear(End(ending)) => To(Phase::Ended(ending)),
            Say(Accept | Commit | Ready | End(_)) | Hear(Accept | Commit | Ready) | Lapse | Overdue => Never,
        },
        Phase::Offered(by) | Phase::Countered(by) if by == end => own_proposal(end, direction, input),
        Phase::Offered(_) | Phase::Countered(_) => their_proposal(end, input),
        Phase::Pledged | Phase::Leaving | Phase::Failing => waiting(direction, phase, input),
        Phase::Accepted | Phase::Committing => agreed(end, direction, phase, input),
        Phase::Applied | Phase::Ended(_) => match input {
            Hear(_) => Late,
            Say(_) | Lapse | Overdue => Never,
        },
    }
}

fn own_proposal(end: Side, direction: Direction, input: Input) -> Next {
    match input {
        Say(End(Ending::Withdrawn)) => To(ended_by(end, Ending::Withdrawn)),
        Lapse => To(ended_by(end, Ending::Expired)),
        Hear(Propose) => To(Phase::Countered(end.other())),
        Hear(Accept) => To(Phase::Accepted),
        // A later statement of the RMS implies its accept; the application cannot skip the RMS's decision.
        Hear(Commit) if end == Side::Application && direction == Direction::Grow => To(Phase::Committing),
        Hear(Ready) if end == Side::Application => To(Phase::Applied),
        Hear(End(ending)) => To(Phase::Ended(ending)),
        Say(Propose | Accept | Commit | Ready | End(Ending::Rejected | Ending::Expired | Ending::Failed)) => Never,
        Hear(Commit | Ready) | Overdue => Never,
    }
}

fn their_proposal(end: Side, input: Input) -> Next {
    match input {
        Say(Propose) => To(Phase::Countered(end)),
        Say(Accept) => To(match end {
            Side::Rms => Phase::Accepted,
            Side::Application => Phase::Pledged,
        }),
        Say(End(Ending::Rejected)) => To(ended_by(end, Ending::Rejected)),
        Say(End(Ending::Withdrawn)) => To(ended_by(end, Ending::Withdrawn)),
        Lapse => To(ended_by(end, Ending::Expired)),
        Hear(End(ending)) => To(Phase::Ended(ending)),
        Say(Commit | Ready | End(Ending::Expired | Ending::Failed)) => Never,
        Hear(Propose | Accept | Commit | Ready) | Overdue => Never,
    }
}

/// Returns the transitions of an application that waits for the RMS's decision, which may differ from its wish.
fn waiting(direction: Direction, phase: Phase, input: Input) -> Next {
    let fails = phase == Phase::Failing;
    match input {
        Hear(Ready) => To(Phase::Applied),
        Hear(End(ending)) => To(Phase::Ended(ending)),
        Hear(Accept) if !fails => To(Phase::Accepted),
        // The RMS does not know yet that the application cannot use the change.
        Hear(Commit) if fails && direction == Direction::Grow => Late,
        Hear(Commit) if direction == Direction::Grow => To(Phase::Committing),
        // A counter-offer that crossed the wish to leave.
        Hear(Propose) if phase == Phase::Leaving => Late,
        Hear(Propose | Accept | Commit) | Say(_) | Lapse | Overdue => Never,
    }
}

fn agreed(end: Side, direction: Direction, phase: Phase, input: Input) -> Next {
    let gives = end == direction.giver();
    let may_commit = phase == Phase::Accepted;
    match input {
        Say(Commit) if gives && may_commit => To(Phase::Committing),
        Hear(Commit) if !gives && may_commit => To(Phase::Committing),
        Say(End(Ending::Failed)) => To(match end {
            Side::Rms => Phase::Ended(Ending::Failed),
            Side::Application => Phase::Failing,
        }),
        Say(Ready) if end == Side::Rms => To(Phase::Applied),
        Overdue if end == Side::Rms => To(Phase::Ended(Ending::Failed)),
        Hear(Ready) if end == Side::Application => To(Phase::Applied),
        Hear(End(ending)) if end == Side::Application => To(Phase::Ended(ending)),
        Hear(End(Ending::Failed)) => To(Phase::Ended(Ending::Failed)),
        // The application wanted to leave after its proposal had already been accepted.
        Hear(End(Ending::Rejected | Ending::Expired | Ending::Withdrawn)) => Late,
        Say(Propose | Accept | Commit | Ready | End(Ending::Rejected | Ending::Expired | Ending::Withdrawn)) => Never,
        Hear(Propose | Accept | Commit | Ready) | Lapse | Overdue => Never,
    }
}

/// Returns the phase after an ending: the RMS ends a negotiation; the application asks the RMS to end it.
fn ended_by(end: Side, ending: Ending) -> Phase {
    match end {
        Side::Rms => Phase::Ended(ending),
        Side::Application => Phase::Leaving,
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Idle => f.write_str("idle"),
            Phase::Offered(by) => write!(f, "offered by the {by}"),
            Phase::Countered(by) => write!(f, "countered by the {by}"),
            Phase::Pledged => f.write_str("pledged"),
            Phase::Leaving => f.write_str("leaving"),
            Phase::Accepted => f.write_str("accepted"),
            Phase::Committing => f.write_str("committing"),
            Phase::Failing => f.write_str("failing"),
            Phase::Applied => f.write_str("applied"),
            Phase::Ended(ending) => ending.fmt(f),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Rejected => "rejected",
            Ending::Expired => "expired",
            Ending::Withdrawn => "withdrawn",
            Ending::Failed => "failed",
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Rms => "RMS",
            Side::Application => "application",
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Say(kind) => write!(f, "says {kind}"),
            Hear(kind) => write!(f, "hears {kind}"),
            Lapse => f.write_str("proposal lapses"),
            Overdue => f.write_str("is overdue"),
        }
    }
}

impl fmt::Display for StatementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Propose => f.write_str("Propose"),
            Accept => f.write_str("Accept"),
            Commit => f.write_str("Commit"),
            Ready => f.write_str("Ready"),
            End(ending) => write!(f, "End({ending})"),
        }
    }
}

/// Every ending.
pub const ENDINGS: [Ending; 4] = [Ending::Rejected, Ending::Expired, Ending::Withdrawn, Ending::Failed];

/// Returns the phases in which an end can be, in the order of a negotiation; one ending stands for all.
pub fn phases(end: Side) -> Vec<Phase> {
    let other = end.other();
    let negotiation = [
        Phase::Idle,
        Phase::Offered(end),
        Phase::Offered(other),
        Phase::Countered(end),
        Phase::Countered(other),
        Phase::Pledged,
        Phase::Leaving,
        Phase::Accepted,
        Phase::Committing,
        Phase::Failing,
        Phase::Applied,
    ];
    let is_possible = |phase: &Phase| match phase {
        Phase::Pledged | Phase::Leaving | Phase::Failing => end == Side::Application,
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Accepted | Phase::Committing => true,
        Phase::Applied | Phase::Ended(_) => true,
    };
    negotiation.into_iter().filter(is_possible).chain(ENDINGS.map(Phase::Ended)).collect()
}

/// Returns all inputs.
pub fn inputs() -> Vec<Input> {
    let kinds: Vec<StatementKind> = [Propose, Accept, Commit, Ready].into_iter().chain(ENDINGS.map(End)).collect();
    let said = kinds.iter().map(|kind| Say(*kind));
    let heard = kinds.iter().map(|kind| Hear(*kind));
    said.chain(heard).chain([Lapse, Overdue]).collect()
}

/// Renders the table in Markdown for the specification: one table for each end, only possible inputs.
pub fn render() -> String {
    let mut text = String::new();
    for end in [Side::Rms, Side::Application] {
        text.push_str(&format!("#### The end of the {end}\n\n| phase | what happens | phase after |\n|---|---|---|\n"));
        for phase in phases(end).into_iter().filter(|phase| !phase.is_over()) {
            for (happens, then) in rows(end, phase) {
                text.push_str(&format!("| {phase} | {happens} | {then} |\n"));
            }
        }
        text.push('\n');
    }
    text
}

/// Returns the possible inputs of a phase and their results; inputs with the same result share a row.
fn rows(end: Side, phase: Phase) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for input in inputs() {
        let [grow, shrink] = [Direction::Grow, Direction::Shrink].map(|direction| next(end, direction, phase, input));
        for (next, only) in match grow == shrink {
            true => vec![(grow, "")],
            false => vec![(grow, " (grow)"), (shrink, " (shrink)")],
        } {
            let then = match (next, input) {
                (To(Phase::Ended(to)), Hear(End(heard))) if to == heard => "that ending".to_owned(),
                (To(phase), _) => phase.to_string(),
                (Late, _) => "the same; it is too late".to_owned(),
                (Never, _) => continue,
            };
            match rows.iter_mut().find(|(_, known)| *known == then) {
                Some((inputs, _)) => inputs.push_str(&format!("; {input}{only}")),
                None => rows.push((format!("{input}{only}"), then)),
            }
        }
    }
    let any = format!("hears {}", ENDINGS.map(|ending| End(ending).to_string()).join("; hears "));
    rows.into_iter().map(|(inputs, then)| (inputs.replace(&any, "hears End"), then)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Direction, Side};

    fn every(mut check: impl FnMut(Side, Direction, Phase, Input, Next)) {
        for end in [Side::Rms, Side::Application] {
            for direction in [Direction::Grow, Direction::Shrink] {
                for phase in phases(end) {
                    for input in inputs() {
                        check(end, direction, phase, input, next(end, direction, phase, input));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_over_stays_over() {
        every(|_, _, phase, _, next| assert!(!phase.is_over() || !matches!(next, To(_)), "{phase}: {next:?}"));
    }

    #[test]
    fn only_the_word_of_the_rms_ends_it_for_the_application() {
        every(|end, _, phase, input, next| {
            if let (Side::Application, To(to)) = (end, next) {
                assert!(!to.is_over() || matches!(input, Hear(_)), "{phase}, {input}: {to}");
                assert!(to != Phase::Accepted || matches!(input, Hear(_)), "{phase}, {input}: {to}");
            }
            if let (Side::Rms, To(to)) = (end, next) {
                assert!(phases(Side::Rms).contains(&to), "{phase}, {input}: {to}");
            }
        });
    }

    #[test]
    fn a_proposal_that_is_heard_can_be_rejected() {
        every(|end, direction, _, input, then| {
            if let (Hear(Propose), To(heard)) = (input, then) {
                assert!(matches!(next(end, direction, heard, Say(End(Ending::Rejected))), To(_)), "{heard}");
            }
        });
    }

    #[test]
    fn every_phase_can_be_reached_and_left() {
        for end in [Side::Rms, Side::Application] {
            for direction in [Direction::Grow, Direction::Shrink] {
                let mut reached = vec![Phase::Idle];
                let mut idx = 0;
                while let Some(phase) = reached.get(idx).copied() {
                    for input in inputs() {
                        if let To(to) = next(end, direction, phase, input)
                            && !reached.contains(&to)
                        {
                            reached.push(to);
                        }
                    }
                    idx += 1;
                }
                let missing: Vec<Phase> = phases(end).into_iter().filter(|phase| !reached.contains(phase)).collect();
                assert!(missing.is_empty(), "{end}, {direction:?}: {missing:?}");
            }
        }
    }
}
