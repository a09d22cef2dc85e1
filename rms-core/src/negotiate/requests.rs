//! Asks running applications for hosts that another one has asked for and that are not there.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use negotiation::{Direction, Item, NegotiationId, Quantity, Resource, SetRule};
use rms_model::{ClusterId, JobId, ShrinkRule, Time};

use super::Negotiations;
use super::candidates::Changeable;
use super::policy::{Candidate, Change, Occasion, shrinks};
use crate::plan::{self, Gain, Loss, Placed};
use crate::step::Step;

/// What is to be given back so that a growth can be had.
#[derive(Debug, Default)]
struct Relief {
    asked: Vec<(ClusterId, Change)>,
    losses: Vec<Loss>,
    gains: Vec<Gain>,
}

impl Negotiations<'_> {
    /// After a pass: for growth that waits for hosts, others are asked for some, the most urgent first. The clusters where
    /// hosts come together for it are not to be given away before; where they do for a job of the queue, that one is first.
    pub(super) fn make_room_for_growth(&mut self, now: Time, step: &mut Step, gathering: &mut BTreeSet<ClusterId>) {
        let rule = self.context.state().settings().shrink_for;
        if rule == ShrinkRule::Never {
            return;
        }
        for (_, job, id) in self.waiting_growth() {
            let Some(relief) = self.relief_for(now, job, id, rule, gathering) else { continue };
            if !relief.asked.is_empty() && !self.is_worth_it(now, &relief) {
                continue;
            }
            gathering.extend(relief.gains.iter().map(|gain| gain.cluster));
            for (cluster, Change { job, hosts }) in relief.asked {
                self.ask_for_all(now, step, (job, cluster), hosts);
            }
        }
    }

    /// Growth that waits for hosts, in the order in which it is served.
    pub(super) fn waiting_growth(&self) -> Vec<(Time, JobId, NegotiationId)> {
        let mut waiting: Vec<(Time, JobId, NegotiationId)> = self.negotiators.waiting.iter().copied().collect();
        waiting.sort_by_key(|(opened, job, _)| (Reverse(self.priority(*job)), *opened));
        waiting
    }

    fn priority(&self, job: JobId) -> i32 {
        self.context.state().jobs().get(&job).map_or(0, |entry| entry.spec.priority)
    }

    /// Who is to give what, so that a proposal to grow can be met; `None` if it cannot be, or is not about hosts alone.
    fn relief_for(
        &self,
        now: Time,
        job: JobId,
        id: NegotiationId,
        rule: ShrinkRule,
        gathering: &BTreeSet<ClusterId>,
    ) -> Option<Relief> {
        let proposal = self.case(job, id)?.dialogue.proposal()?;
        let mut relief = Relief::default();
        for (set, set_rule) in proposal.rules().iter().enumerate() {
            let live = proposal.items().iter().filter(|item| usize::from(item.set) == set && item.is_live());
            let mut n_met = 0;
            for item in live {
                let is_enough = n_met > 0 && *set_rule != SetRule::All;
                if is_enough {
                    break;
                }
                let is_met = self.relieve(now, (job, id), item, rule, gathering, &mut relief);
                if !is_met && *set_rule == SetRule::All {
                    return None;
                }
                n_met += u32::from(is_met);
            }
            if n_met == 0 {
                return None;
            }
        }
        Some(relief)
    }

    /// The same for one item: as much of it as can be had, of what is free, on its way, or others can give.
    fn relieve(
        &self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        item: &Item,
        rule: ShrinkRule,
        gathering: &BTreeSet<ClusterId>,
        relief: &mut Relief,
    ) -> bool {
        let Resource::Hosts(cluster) = item.resource else { return false };
        // Who insists on certain hosts waits until they are free.
        if !item.hosts.is_empty() || gathering.contains(&cluster) {
            return false;
        }
        let (payable, _) = self.most_more_hosts(now, job, id, (cluster, item.terms.price), &[]);
        let n_here = self.givable(job, id, cluster, item.quantity.0 as usize).len() as u64 + self.n_coming(cluster);
        let givers = self.changeable(now, cluster, Direction::Shrink);
        let others: Vec<Candidate<'_>> =
            givers.iter().filter(|giver| giver.job != job).map(Changeable::as_candidate).collect();
        let occasion = Occasion::Waiting { priority: self.priority(job) };
        let mut bound = item.quantity.0.min(payable);
        while let Some(Quantity(quantity)) = item.greatest(Direction::Grow, Quantity(bound)) {
            let missing = u32::try_from(quantity.saturating_sub(n_here)).unwrap_or(u32::MAX);
            if let Some(asked) = shrinks(missing, occasion, &others, rule) {
                let hosts = u32::try_from(quantity).unwrap_or(u32::MAX);
                relief.gains.push(Gain { job, cluster, hosts });
                relief.losses.extend(asked.iter().filter_map(|change| self.loss(change.job, cluster, change.hosts)));
                relief.asked.extend(asked.into_iter().map(|change| (cluster, change)));
                return true;
            }
            let Some(less) = quantity.checked_sub(1) else { return false };
            bound = less;
        }
        false
    }

    /// Nobody shrinks in vain: what is given back would not go to a job of the queue, nor would the growth delay one.
    fn is_worth_it(&self, now: Time, relief: &Relief) -> bool {
        let Some(free) = plan::plan_after(self.context.state(), now, &relief.losses, &[]) else { return false };
        let goes_to_queue = free.placements.iter().any(|placement| matches!(placement.outcome, Placed::Now { .. }));
        let grown = plan::plan_after(self.context.state(), now, &relief.losses, &relief.gains);
        let undelayed = &self.negotiators.undelayed;
        !goes_to_queue && grown.is_some_and(|grown| !undelayed.would_exceed(&free, &grown, self.longest_delay()))
    }
}
