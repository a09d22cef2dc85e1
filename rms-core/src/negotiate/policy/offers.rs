//! Which applications are offered idle nodes, and how many.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{JobId, OfferRule};

use super::{Candidate, Change};
use crate::plan::slowdown::Fraction;

/// The weight and limit of a user when nodes are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserWeight {
    /// The weight relative to other users; 0 counts as 1.
    pub share: u32,
    /// How many more nodes all jobs of the user may get beyond those that they started with; `None`: any number.
    pub may_gain: Option<u32>,
    /// What the user may spend on them, in thousandths; `None`: any sum.
    pub may_spend: Option<u64>,
}

/// Divides idle nodes of one cluster among applications; together they never get more than `idle`.
///
/// Nodes are distributed in steps, each from one size that an application can use to the next one, to the application
/// that the rule puts first:
/// - *equal share*: the one that after the step has gained the least since its start, relative to its user's share,
///   which the jobs of that user divide among them (equi-sharing);
/// - *fewest above minimum*: the one that is the least above its minimum before the step (the agreement policies'
///   leftovers);
/// - *efficiency*: the one whose declared speed grows the most for each node of the step; one that gains no speed gets
///   nothing, and those that declare none come last, the fewest nodes first.
///
/// Of equals, the higher priority goes first, then the older job. A step for which not enough is left is skipped, so
/// that others may use the rest. An application that has declined recently is offered more than it declined, or
/// nothing.
pub fn offers(
    idle: u32,
    candidates: &[Candidate<'_>],
    users: &BTreeMap<&str, UserWeight>,
    rule: OfferRule,
) -> Vec<Change> {
    let mut n_jobs: BTreeMap<&str, u32> = BTreeMap::new();
    candidates.iter().for_each(|candidate| *n_jobs.entry(candidate.user).or_default() += 1);
    let mut recipients: Vec<Recipient<'_>> = candidates
        .iter()
        .filter(|candidate| !candidate.is_negotiating)
        .map(|candidate| {
            let share = users.get(candidate.user).map_or(1, |user| user.share.max(1));
            Recipient { candidate, share, n_siblings: n_jobs[candidate.user], gained: 0 }
        })
        .collect();
    let mut left = idle;
    let mut users = users.clone();
    let mut turns: BTreeSet<Turn> =
        recipients.iter().enumerate().filter_map(|(idx, recipient)| recipient.turn(idx, rule)).collect();
    while let Some(turn) = turns.pop_first() {
        let recipient = &mut recipients[turn.idx];
        // What is left only decreases: a step that does not fit now never will.
        let user = users.get_mut(recipient.candidate.user);
        if turn.step > left || !user.is_none_or(|user| user.takes(recipient, turn.step)) {
            continue;
        }
        left -= turn.step;
        recipient.gained += turn.step;
        turns.extend(recipient.turn(turn.idx, rule));
    }
    let gained = recipients.iter().filter(|recipient| recipient.gained > 0);
    gained.map(|recipient| Change { job: recipient.candidate.job, nodes: recipient.gained }).collect()
}

impl UserWeight {
    /// Takes a step from what the user may gain and spend, if that is enough.
    fn takes(&mut self, recipient: &Recipient<'_>, step: u32) -> bool {
        let Candidate { price, paid_for, held, started_with, .. } = recipient.candidate;
        // Nodes up to the number that it started with are its own.
        let before = held.saturating_add(recipient.gained);
        let beyond = |nodes: u32| nodes.saturating_sub(*started_with);
        let gain = beyond(before.saturating_add(step)) - beyond(before);
        let cost = |nodes| price.cost(nodes, *paid_for);
        let cost = cost(recipient.gained.saturating_add(step)).saturating_sub(cost(recipient.gained));
        let may_gain = self.may_gain.map(|nodes| nodes.checked_sub(gain));
        let may_spend = self.may_spend.map(|sum| sum.checked_sub(cost));
        if may_gain == Some(None) || may_spend == Some(None) {
            return false;
        }
        (self.may_gain, self.may_spend) = (may_gain.flatten(), may_spend.flatten());
        true
    }
}

/// A candidate while nodes are distributed.
struct Recipient<'a> {
    candidate: &'a Candidate<'a>,
    share: u32,
    /// Candidates of the same user, itself among them.
    n_siblings: u32,
    gained: u32,
}

/// A step that a recipient may make next; the first in order is made first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Declared speeds go before unknown ones.
    is_unknown: bool,
    claim: Fraction,
    /// Of equals, the highest priority first.
    priority: std::cmp::Reverse<i32>,
    job: JobId,
    step: u32,
    idx: usize,
}

impl Recipient<'_> {
    fn turn(&self, idx: usize, rule: OfferRule) -> Option<Turn> {
        let Candidate { job, held, started_with, declared, priority, declined, room, .. } = self.candidate;
        let now = held.checked_add(self.gained)?;
        // An application that has declined some is offered more, or nothing.
        let least = now.max(held.saturating_add(*declined)).checked_add(1)?;
        let total = declared.sizes.least(least.max(declared.least).into())?;
        let most = declared.most.min(held.saturating_add(*room));
        let total = u32::try_from(total).ok().filter(|total| *total <= most)?;
        let step = total - now;
        let (is_unknown, claim) = match rule {
            OfferRule::Never => return None,
            OfferRule::EqualShare => {
                let gained = i128::from(total) - i128::from(*started_with);
                (false, Fraction::new(gained * i128::from(self.n_siblings), self.share.into())?)
            }
            OfferRule::FewestAboveMinimum => (false, Fraction::new(i128::from(now) - i128::from(declared.least), 1)?),
            OfferRule::Efficiency => match (declared.speedup.at(now), declared.speedup.at(total)) {
                (Some(before), Some(after)) if after > before => {
                    (false, Fraction::new(i128::from(before) - i128::from(after), step.into())?)
                }
                (Some(_), Some(_)) => return None,
                (None, _) | (_, None) => (true, Fraction::new(now.into(), 1)?),
            },
        };
        let priority = std::cmp::Reverse(*priority);
        Some(Turn { is_unknown, claim, priority, job: *job, step, idx })
    }
}

#[cfg(test)]
#[path = "offers/tests.rs"]
mod tests;
