//! A host of a malleable application is lost: if it can go on, and enough are left, that is a shrink by force.

use negotiation::{Action, Direction, Reason};
use rms_api::negotiate::NegotiatorNotice;
use rms_model::{JobId, NodeAdmin, NodeId, NodeLink, Span, Time};

use super::Negotiations;
use super::shrink::are_workers;
use crate::effect::Effect;
use crate::step::Step;

impl Negotiations<'_> {
    /// The application goes on without this host, of which nothing more is to be heard. False if it cannot: its processes
    /// need each other, or too few would be left.
    pub(crate) fn shrink_by_loss(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId) -> bool {
        let entry = &self.context.state().jobs()[&job];
        let Some(started) = entry.started().filter(|started| started.ending.is_none()) else { return false };
        // Workers need nothing from each other, nor from the first of them; what leads any other runs there.
        let leads = !are_workers(entry) && started.nodes.first() == Some(&node);
        let is_held = started.nodes.contains(&node) && !entry.is_awaited(node);
        if !self.survives_losses(job) || !is_held || leads {
            return false;
        }
        let limits = self.limits(job);
        // Hosts that it is about to leave, that have not come, or that are lost with what had ended there keep nothing going.
        let is_there = |host: NodeId| {
            let node = &self.context.state().nodes()[&host];
            !matches!(node.link, NodeLink::Lost { .. }) && !matches!(node.admin, NodeAdmin::Down { .. })
        };
        let stays = |host: &&NodeId| {
            **host == node || (is_there(**host) && !started.is_leaving(**host) && !entry.is_awaited(**host))
        };
        let n_left = started.nodes.iter().filter(stays).count() as u32 - 1;
        // From an application that speaks for itself no more is taken than was lost.
        let of_use = if are_workers(entry) { limits.sizes.greatest(n_left.into()) } else { Some(n_left.into()) };
        let total = of_use.and_then(|total| u32::try_from(total).ok());
        let Some(total) = total.filter(|total| *total >= limits.least.max(1)) else { return false };
        let mut freed = vec![node];
        let others = started.nodes.iter().rev().copied();
        let others = others.filter(|other| *other != node && stays(&other) && self.can_leave(job, *other));
        freed.extend(others.take((n_left - total) as usize));
        let course = self.course_of(now, job, started.nodes.len() as u32 - freed.len() as u32, Span::ZERO);
        self.give_up_shrinks(now, step, job, total.saturating_sub(limits.least));
        self.change_hosts(now, step, job, Vec::new(), freed.clone(), course);
        if self.negotiators.attached.contains_key(&job) {
            step.order(Effect::TellNegotiator { job, notice: NegotiatorNotice::HostsLost { hosts: freed } });
        }
        true
    }

    /// Can it go on without a host? As its submission says, or else as it is, or as a process of it has said.
    fn survives_losses(&self, job: JobId) -> bool {
        let entry = &self.context.state().jobs()[&job];
        // What was planned for the stages to come needs all hosts of this one.
        if entry.spec.evolving.is_some() {
            return false;
        }
        let submitted = entry.spec.malleable.as_ref().and_then(|malleable| malleable.survives_loss);
        submitted.unwrap_or_else(|| are_workers(entry) || entry.talks.as_ref().is_some_and(|talks| talks.survives_loss))
    }

    /// What it has agreed to give, or is asked for, may now be more than it can spare.
    fn give_up_shrinks(&mut self, now: Time, step: &mut Step, job: JobId, n_spare: u32) {
        for id in self.open_cases(job) {
            let Some(case) = self.case(job, id) else { continue };
            let n_agreed = case.dialogue.proposal().map_or(0, |proposal| proposal.n_hosts());
            let is_too_much = case.direction() == Direction::Shrink && n_agreed > u64::from(n_spare);
            if is_too_much && !case.is_handed_over {
                let given_up = self.act(now, step, job, id, Action::Fail(Reason::Changed));
                if given_up.is_err() {
                    self.withdraw(now, step, job, id, Reason::Changed);
                }
            }
        }
    }
}
