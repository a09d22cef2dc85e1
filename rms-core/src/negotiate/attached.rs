//! What who speaks for an application is told of its hosts.

use std::collections::BTreeSet;

use negotiation::{Direction, Phase, Reminder};
use rms_api::negotiate::{HeldHost, Holding, NegotiatorNotice};
use rms_model::{JobId, NodeId, Time};

use super::Negotiations;
use crate::effect::Effect;
use crate::state::talks::{Case, Talks};
use crate::step::Step;

impl Negotiations<'_> {
    /// The hosts of each application that were changed by this event are told once.
    pub(super) fn tell_moves(&mut self, now: Time, step: &mut Step) {
        for job in std::mem::take(&mut self.context.moved) {
            if self.negotiators.attached.contains_key(&job) {
                let notice = NegotiatorNotice::Holding(Box::new(self.holding_of(now, job)));
                step.order(Effect::TellNegotiator { job, notice });
            }
        }
    }

    /// Where the negotiations stand that a process of it takes part in. What it knows of them itself it need not hear
    /// again, but one that was started anew would not find that out in time: it has agreed to leave hosts and lost them.
    pub(super) fn reminders(&self, now: Time, job: JobId) -> Vec<Reminder> {
        let open = self.talks(job).into_iter().flat_map(Talks::open);
        let reminder = |case: &Case| {
            let mut reminder = case.dialogue.reminder(now)?;
            if case.phase() == Phase::Accepted && case.direction() == Direction::Shrink {
                // Hosts that it keeps for longer are taken.
                let taken_at = case.since() + self.promise_span() + self.promise_span();
                let left = taken_at.max(now).since(now);
                reminder.left = Some(reminder.left.map_or(left, |due| due.min(left)));
            }
            Some(reminder)
        };
        open.filter(|case| !self.is_in_house(job, case.id())).filter_map(reminder).collect()
    }

    /// The hosts that it was warned to lose: it has promised so many, and has not let go.
    fn overdue_hosts(&self, job: JobId) -> BTreeSet<NodeId> {
        let warned = self.talks(job).into_iter().flat_map(Talks::open).filter(|case| case.is_warned);
        let agreed = warned.filter(|case| case.phase() == Phase::Accepted).filter_map(|case| case.dialogue.proposal());
        agreed.flat_map(|agreed| self.last_hosts(job, agreed)).collect()
    }

    pub(super) fn holding_of(&self, now: Time, job: JobId) -> Holding {
        let entry = self.context.state().jobs().get(&job);
        let Some((entry, started)) = entry.and_then(|entry| Some((entry, entry.started()?))) else {
            return Holding { generation: 0, hosts: Vec::new(), until: Time::EPOCH, stages: None };
        };
        // Only who has announced stages is told of some: a malleable one's course has a single leg.
        let stages = entry.spec.evolving.as_ref().and_then(|_| self.context.stages(entry, None, now, usize::MAX));
        let evolved = started.evolved.as_ref();
        let overdue = self.overdue_hosts(job);
        let host = |node: &NodeId| {
            let entry = &self.context.state().nodes()[node];
            HeldHost {
                node: *node,
                name: entry.name.clone(),
                cluster: entry.cluster,
                cluster_name: self.context.state().clusters()[&entry.cluster].clone(),
                address: entry.address.clone(),
                cpus: started.cores_usable_on(*node, entry.inventory.cpus),
                is_departing: evolved
                    .is_some_and(|evolved| evolved.departing.contains_key(node) || evolved.freed_next().contains(node))
                    || overdue.contains(node),
            }
        };
        Holding {
            generation: evolved.map_or(1, |evolved| evolved.generation),
            hosts: started.nodes.iter().map(host).collect(),
            until: started.at + started.request.wall,
            stages: stages.map(Box::new),
        }
    }
}
