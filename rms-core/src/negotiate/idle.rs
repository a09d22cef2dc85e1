//! Offers running applications the hosts that nobody waits for, after a pass has started all that can start.

use std::collections::BTreeSet;

use negotiation::Direction;
use rms_model::{ClusterId, OfferRule, Span, Time};

use super::Negotiations;
use super::candidates::Changeable;
use super::policy::{Candidate, Change, offers};
use crate::plan::{self, Gain, Plan};
use crate::state::takes_any_hosts;
use crate::step::Step;

impl Negotiations<'_> {
    /// Offers what is idle, except on clusters where hosts come together for somebody who waits.
    pub(super) fn offer_idle(&mut self, now: Time, step: &mut Step, gathering: &BTreeSet<ClusterId>) {
        let rule = self.context.state().settings().offer_idle;
        if rule == OfferRule::Never {
            return;
        }
        for cluster in self.context.state().clusters().keys().copied().collect::<Vec<_>>() {
            if self.context.state().n_free(cluster) == 0 || gathering.contains(&cluster) {
                continue;
            }
            let price = self.list_price(cluster);
            for Change { job, hosts } in self.shares_of_idle(now, cluster, rule) {
                // Who cannot be asked after all is asked after another pass.
                if self.open_growth_offer(now, step, (job, cluster), hosts, price).is_err() {
                    let until = self.ask_again(now);
                    self.negotiators.refusals.note(job, Direction::Grow, hosts, until);
                }
            }
        }
    }

    /// Who is to be offered how many, so that nobody who waits is delayed beyond the tolerance.
    fn shares_of_idle(&mut self, now: Time, cluster: ClusterId, rule: OfferRule) -> Vec<Change> {
        let mut takers = self.changeable(now, cluster, Direction::Grow);
        let idle = self.context.state().n_free(cluster) as u32;
        takers.iter_mut().for_each(|taker| taker.room = self.usable_by(now, taker, cluster, idle));
        takers.retain(|taker| !taker.as_candidate().is_talking && taker.room > 0);
        if takers.is_empty() {
            return Vec::new();
        }
        let before = self.context.estimates(now);
        let tolerance = self.context.state().settings().delay_tolerance;
        if tolerance > Span::ZERO {
            let shares = self.dealt(&takers, idle, rule);
            if self.is_harmless(now, &before, cluster, &shares) {
                return shares;
            }
        }
        // What is free in the plan of all who wait, until the taker's end, delays nobody.
        for taker in &mut takers {
            taker.room = taker.room.min(plan::room(self.context.state(), &before, cluster, taker.until));
        }
        let mut idle = idle;
        loop {
            let shares = self.dealt(&takers, idle, rule);
            if shares.is_empty() || self.is_harmless(now, &before, cluster, &shares) {
                return shares;
            }
            // Each would fit alone, but not all together: as many as fit for the one that stays the longest do. If even
            // these delay somebody, who can use special hosts only, there are fewer.
            let rooms = takers.iter().filter(|taker| shares.iter().any(|share| share.job == taker.job));
            let least = rooms.map(|taker| taker.room).min().unwrap_or(0);
            idle = if least < idle { least } else { idle / 2 };
        }
    }

    fn dealt(&self, takers: &[Changeable], idle: u32, rule: OfferRule) -> Vec<Change> {
        let candidates: Vec<Candidate<'_>> = takers.iter().map(Changeable::as_candidate).collect();
        offers(idle, &candidates, &self.weights(takers), rule)
    }

    fn is_harmless(&mut self, now: Time, before: &Plan, cluster: ClusterId, shares: &[Change]) -> bool {
        let gains: Vec<Gain> =
            shares.iter().map(|share| Gain { job: share.job, cluster, hosts: share.hosts }).collect();
        let Some(after) = plan::plan_around(self.context.state(), now, &gains) else { return false };
        let undelayed = &mut self.negotiators.undelayed;
        if undelayed.would_exceed(before, &after, self.context.state().settings().delay_tolerance) {
            return false;
        }
        undelayed.note(self.context.state(), before, &after);
        true
    }

    /// Of the free hosts, those that meet what it wants of a host, as far as it can pay for them.
    fn usable_by(&self, now: Time, taker: &Changeable, cluster: ClusterId, idle: u32) -> u32 {
        // Where any host will do they need not be looked at one by one.
        let takes_any = takes_any_hosts(&self.context.state().jobs()[&taker.job].spec);
        let n_right = if takes_any {
            u64::from(idle)
        } else {
            plan::free_for(self.context.state(), taker.job, cluster, idle as usize).len() as u64
        };
        let n_paid = self.most_offered(now, taker.job, cluster);
        u32::try_from(n_right.min(n_paid)).unwrap_or(u32::MAX)
    }
}
