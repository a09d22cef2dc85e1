//! What the server opens by itself after a pass, and what it learns from the answers.

use negotiation::{Direction, NegotiationId, Phase, Side};
use rms_model::{JobId, Span, Time};

use super::Negotiations;
use crate::state::talks::Case;
use crate::step::Step;

impl Negotiations<'_> {
    /// A pass has started all that can start. Nodes that are drained come first, then who waits, then who could use more.
    pub(crate) fn seek_changes(&mut self, now: Time, step: &mut Step) {
        if !self.has_changeable() {
            return;
        }
        self.clear_drained(now, step);
        if self.context.state().longest_expected().is_some() {
            // After a restart nobody is asked to give, or offered, what may be needed or free in a moment.
            return;
        }
        let mut gathering = self.make_room(now, step);
        self.make_room_for_growth(now, step, &mut gathering);
        self.offer_idle(now, step, &gathering);
    }

    /// When the same may be said again that is declined now. Never at once: who declines without a thought would be asked
    /// for ever.
    pub(super) fn ask_again(&self, now: Time) -> Time {
        now + self.context.state().settings().offer_again.max(Span::from_secs(1))
    }

    /// What was declined long ago is forgotten: the next pass may say it again.
    pub(crate) fn forget_refusals(&mut self, now: Time) {
        self.context.passes.wanted |= self.negotiators.refusals.expire(now);
    }

    /// A negotiation is over. What was declined of what the server had opened is remembered. And whoever gives hosts back
    /// by itself is not offered as many at once: it does not want them. Who gave them for somebody else may have them
    /// again as soon as nobody waits.
    pub(super) fn note_answer(&mut self, now: Time, job: JobId, id: NegotiationId) {
        let Some(case) = self.case(job, id) else { return };
        let until = self.ask_again(now);
        let (direction, declined, agreed) = (case.direction(), n_declined(case), n_agreed(case));
        let is_drained = names_hosts(case);
        match (id.initiator, direction) {
            (Side::Rms, Direction::Grow) => self.negotiators.refusals.note(job, direction, declined, until),
            (Side::Rms, Direction::Shrink) => {
                self.negotiators.refusals.note(job, direction, declined, until);
                // Who only leaves certain hosts may have others for them.
                if !is_drained {
                    self.negotiators.refusals.note_given(job, agreed, until);
                }
            }
            (Side::Application, Direction::Shrink) => {
                self.negotiators.refusals.note(job, Direction::Grow, agreed, until);
            }
            (Side::Application, Direction::Grow) => {}
        }
    }
}

fn names_hosts(case: &Case) -> bool {
    let items = case.dialogue.proposal().into_iter().flat_map(|proposal| proposal.items());
    items.into_iter().any(|item| !item.hosts.is_empty())
}

/// How many hosts of what was opened were not agreed. Whoever can take a part of an offer has declined the rest; whoever
/// gives a part of what was asked has declined the whole.
fn n_declined(case: &Case) -> u32 {
    let agreed = n_agreed(case);
    let opened = case.rounds.iter().find_map(|round| match &round.said {
        rms_api::negotiate::Said::Proposed { round: 1, template, by: _ } => Some(template.n_hosts()),
        rms_api::negotiate::Said::Proposed { .. } | rms_api::negotiate::Said::Phase { .. } => None,
    });
    let opened = u32::try_from(opened.unwrap_or(0)).unwrap_or(u32::MAX);
    match case.direction() {
        Direction::Grow => opened.saturating_sub(agreed),
        Direction::Shrink if agreed < opened => opened,
        Direction::Shrink => 0,
    }
}

/// How many hosts came or went by it.
fn n_agreed(case: &Case) -> u32 {
    let agreed = match case.phase() {
        Phase::Applied => case.dialogue.proposal().map_or(0, |proposal| proposal.n_hosts()),
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => 0,
        Phase::Accepted | Phase::Committing | Phase::Failing | Phase::Ended(_) => 0,
    };
    u32::try_from(agreed).unwrap_or(u32::MAX)
}
