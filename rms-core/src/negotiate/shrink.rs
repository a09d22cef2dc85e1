//! Carries out shrinks: an application gives nodes back, as agreed or because they are lost; they are free once no
//! process is left on them.

use std::collections::BTreeSet;

use negotiation::{Action, Direction, NegotiationId, Reason, Resource, Statement, Template};
use rms_api::negotiate::NegotiatorNotice;
use rms_model::{JobId, NodeAdmin, NodeId, NodeLink, OnResize, Span, Time};

use super::Negotiations;
use super::grow::time_of;
use super::inside::mixes_with_nodes;
use crate::effect::Effect;
use crate::state::fact::Fact;
use crate::state::job::Job;
use crate::state::negotiations::Negotiation;
use crate::step::Step;

impl Negotiations<'_> {
    /// Answers the application's proposal to shrink. The server takes what is given, at its own price.
    pub(super) fn answer_shrink(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(proposal) = negotiation.dialogue.proposal().cloned() else { return };
        let action = match self.check_shrink(now, job, &proposal) {
            Err(reason) => Action::Reject(reason),
            Ok(()) => self.take_at_price(job, &proposal),
        };
        if self.act(now, step, job, id, action).is_err() {
            let _ = self.act(now, step, job, id, Action::Reject(Reason::Price));
        }
    }

    fn take_at_price(&self, job: JobId, proposal: &Template) -> Action {
        let most = self.bid_price(job);
        let mut items = proposal.items().to_vec();
        let mut is_right = proposal.is_definite();
        let mut chosen = BTreeSet::new();
        for item in items.iter_mut().filter(|item| item.is_live()) {
            let is_alternative = proposal.rules()[usize::from(item.set)] == negotiation::SetRule::OneOf;
            if is_alternative && !chosen.insert(item.set) {
                item.status = negotiation::ItemStatus::Refused;
            }
            is_right &= item.terms.price <= most;
            item.terms.price = item.terms.price.min(most);
        }
        match (is_right, proposal.with_items(items)) {
            (true, _) => Action::Accept,
            (false, Ok(template)) => Action::Propose { template, valid_for: self.offer_valid() },
            (false, Err(_)) => Action::Reject(Reason::Price),
        }
    }

    /// Checks that the application can give this back.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn check_shrink(&self, now: Time, job: JobId, proposal: &Template) -> Result<(), Reason> {
        let started = self.context.state().jobs()[&job].started().ok_or(Reason::Stopping)?;
        if mixes_with_nodes(proposal) {
            return Err(Reason::Policy);
        }
        // Not now: what it lends or borrows is counted on its present nodes and cores.
        if started.is_sharing() {
            return Err(Reason::Changed);
        }
        for item in proposal.items().iter().filter(|item| item.is_live()) {
            match item.resource {
                Resource::Nodes(cluster) => {
                    if item.held.0 != u64::from(self.n_nodes_on(job, cluster)) {
                        return Err(Reason::Changed);
                    }
                    // Its first node stays until it ends: its leading process runs there.
                    let is_spared = item.quantity.0 <= u64::from(self.n_spare_on(job, cluster));
                    let is_here = |node: &NodeId| self.cluster_of(*node) == Some(cluster);
                    let are_its_own = item.nodes.iter().all(|node| is_here(node) && self.can_be_taken(job, *node));
                    let can_leave = item.nodes.iter().all(|node| self.can_leave(job, *node));
                    let keeps_any = self.pinned_nodes(job).next().is_some();
                    match are_its_own {
                        true if is_spared && can_leave => {}
                        true if keeps_any => return Err(Reason::KeepsRanks),
                        true | false => return Err(Reason::Policy),
                    }
                }
                Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => {
                    self.check_inside_back(job, item)?
                }
                Resource::Licences(..) => self.check_licences(job, item)?,
                Resource::Time => {
                    let less = Span::from_millis(item.quantity.0 as i64);
                    if started.at + started.request.wall <= now + less {
                        return Err(Reason::Policy);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether the application can leave a node: it holds the node, which is not its first one nor still on its
    /// way, and no rank is pinned there.
    pub(super) fn can_leave(&self, job: JobId, node: NodeId) -> bool {
        self.can_be_taken(job, node) && !self.pinned_nodes(job).any(|kept| kept == node)
    }

    /// Returns whether the application can be made to leave a node, even if ranks are pinned there.
    pub(super) fn can_be_taken(&self, job: JobId, node: NodeId) -> bool {
        let Some(started) = self.context.state().jobs()[&job].started() else { return false };
        started.nodes.iter().skip(1).any(|held| *held == node) && !self.context.state().jobs()[&job].is_awaited(node)
    }

    /// Waits for the application to release its nodes at its next breakpoint. Where the server is its proxy, the last
    /// nodes go.
    pub(super) fn await_release(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(agreed) = negotiation.dialogue.proposal() else { return };
        let (n_nodes, less) = (agreed.n_nodes(), time_of(agreed.items()));
        if n_nodes == 0 {
            let agreed = agreed.clone();
            return self.carry_out(now, step, job, id, (Span::from_millis(-less.as_millis()), &agreed));
        }
        if negotiation.are_all_lost() {
            return self.await_lost(now, step, job, id);
        }
        if self.is_proxied(job, id) {
            let nodes = self.last_nodes(job, negotiation).into_iter().chain(negotiation.lost.keys().copied()).collect();
            let round = negotiation.dialogue.round();
            self.say_as_proxy(now, step, job, id, Statement::Commit { round, nodes });
            if self.negotiation(job, id).is_some_and(|negotiation| negotiation.dialogue.nodes().is_none()) {
                // The job no longer has that many nodes that can leave.
                let _ = self.act(now, step, job, id, Action::Fail(Reason::Changed));
            }
            return;
        }
        self.enforce_promise(now, step, job, id);
    }

    /// Says that a shrink is ready whose nodes are all lost, once no process can be left on them.
    fn await_lost(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let lost: BTreeSet<NodeId> = negotiation.lost.keys().copied().collect();
        let Some(started) = self.context.state().jobs()[&job].started() else { return };
        if !lost.iter().any(|node| started.is_leaving(*node)) {
            let _ = self.act(now, step, job, id, Action::Gone(lost));
        }
    }

    /// Warns an application that does not keep its promise, and then takes its last nodes.
    fn enforce_promise(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let warned_at = negotiation.since() + self.promise_span();
        if now < warned_at {
            return;
        }
        if !negotiation.is_warned {
            self.context.record(step, Fact::PromiseWarned { job, negotiation: id, at: now });
        }
        let taken_at = warned_at + self.promise_span();
        if now >= taken_at {
            self.take_back(now, step, job, id, Reason::BrokenPromise);
        }
    }

    /// Takes the nodes of a shrink by force; the negotiation fails with that.
    pub(super) fn take_back(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, reason: Reason) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let nodes = self.last_nodes(job, negotiation);
        let failed = self.act(now, step, job, id, Action::Fail(reason));
        if failed.is_err() {
            let _ = self.act(now, step, job, id, Action::Withdraw(reason));
        }
        self.free(now, step, job, nodes.into_iter().collect());
    }

    /// Returns the nodes that leave where the application does not choose: of each cluster the named ones, then the
    /// last ones. Lost nodes have left already.
    pub(super) fn last_nodes(&self, job: JobId, negotiation: &Negotiation) -> BTreeSet<NodeId> {
        let mut nodes = super::hold::named_nodes(negotiation.dialogue.proposal());
        nodes.retain(|node| !negotiation.lost.contains_key(node));
        let named = self.count_by_cluster(&nodes);
        for (cluster, n_nodes) in negotiation.not_lost() {
            let n_named = named.get(&cluster).copied().unwrap_or(0);
            let others = self.others_on(job, cluster).rev();
            let others = others.filter(|node| self.can_leave(job, *node) && !nodes.contains(node));
            let others: Vec<NodeId> = others.take(n_nodes.saturating_sub(n_named) as usize).collect();
            nodes.extend(others);
        }
        nodes
    }

    /// Waits until the agents have ended what is left on the released nodes; then the shrink is ready.
    pub(super) fn await_departure(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(nodes) = negotiation.dialogue.nodes().cloned() else { return };
        if nodes.is_empty() {
            return self.await_release(now, step, job, id);
        }
        let entry = &self.context.state().jobs()[&job];
        let Some(started) = entry.started() else { return };
        let names_others = nodes.iter().any(|node| !negotiation.lost.contains_key(node));
        if negotiation.is_handed_over && !(negotiation.are_all_lost() && names_others) {
            if !nodes.iter().any(|node| started.is_leaving(*node)) {
                let _ = self.act(now, step, job, id, Action::Ready);
            }
            return;
        }
        let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| !negotiation.lost.contains_key(node)).collect();
        let are_those_agreed = negotiation.not_lost() == self.count_by_cluster(&nodes);
        if !are_those_agreed || !nodes.iter().all(|node| self.can_leave(job, *node)) {
            let are_kept = self.pinned_nodes(job).any(|kept| nodes.contains(&kept));
            let reason = match are_kept {
                true => Reason::KeepsRanks,
                // With what is lost, more would go than was agreed.
                false if !are_those_agreed && !negotiation.lost.is_empty() => Reason::Changed,
                false => Reason::BadProposal,
            };
            let _ = self.act(now, step, job, id, Action::Fail(reason));
            return;
        }
        if leaves_by_itself(entry) && self.is_proxied(job, id) {
            let is_asked = started.evolved.as_ref().is_some_and(|evolved| evolved.departing.contains_key(&nodes[0]));
            if !is_asked {
                self.ask_to_leave(now, step, job, nodes);
            }
            return;
        }
        // Workers run until they are told to end; every other application that releases nodes has told its processes
        // itself.
        let tells_itself = !are_workers(entry);
        self.free(now, step, job, nodes.clone());
        if tells_itself {
            self.record_released(step, job, nodes);
        }
    }

    /// Shortens an application that has given back nodes and time together.
    pub(super) fn give_back_time(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(agreed) = negotiation.dialogue.proposal().filter(|agreed| agreed.n_nodes() > 0) else { return };
        let Some(started) = self.context.state().jobs()[&job].started().filter(|started| started.ending.is_none())
        else {
            return;
        };
        // The nodes may have taken longer to leave than what is left of the time: then it is over now.
        let left = (started.at + started.request.wall).since(now);
        let less = time_of(agreed.items()).min(left);
        if less > Span::ZERO {
            let course = self.course_of(now, job, self.n_nodes(job), Span::from_millis(-less.as_millis()));
            self.set_course(now, step, job, course);
        }
    }

    /// Asks the application to leave nodes; its processes run on until it has.
    fn ask_to_leave(&mut self, now: Time, step: &mut Step, job: JobId, nodes: Vec<NodeId>) {
        let is_first = self.context.state().jobs()[&job].started().is_some_and(|started| started.evolved.is_none());
        if is_first {
            let course = self.course_of(now, job, self.n_nodes(job), Span::ZERO);
            self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
        }
        self.context.record(step, Fact::NodesDeparting { job, at: now, nodes });
        self.context.launches.remove(&job);
    }

    /// Frees the nodes that an application was asked to leave and has not left in time.
    pub(super) fn end_departures(&mut self, now: Time, step: &mut Step, job: JobId) {
        let span = self.promise_span();
        let Some(evolved) = self.context.state().jobs()[&job].started().and_then(|started| started.evolved.as_ref())
        else {
            return;
        };
        let is_over = |since: &Time| *since + span <= now;
        let overdue = evolved.departing.iter().filter(|(_, since)| is_over(since));
        let nodes: Vec<NodeId> = overdue.map(|(node, _)| *node).collect();
        if !nodes.is_empty() {
            self.free(now, step, job, nodes);
        }
    }

    /// Lets the application stay on nodes that it was asked to leave: the shrink has failed.
    pub(super) fn cancel_departure(&mut self, step: &mut Step, job: JobId) {
        let is_departing = self.context.state().jobs()[&job].started().is_some_and(|started| {
            started.ending.is_none() && started.evolved.as_ref().is_some_and(|evolved| !evolved.departing.is_empty())
        });
        if is_departing {
            self.context.record(step, Fact::NodesStay { job });
            self.context.launches.remove(&job);
        }
    }

    /// Records that the application has left these nodes: its processes there may be ending.
    pub(super) fn record_released(&mut self, step: &mut Step, job: JobId, nodes: Vec<NodeId>) {
        let Some(started) = self.context.state().jobs()[&job].started() else { return };
        let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| started.is_leaving(*node)).collect();
        if !nodes.is_empty() {
            self.context.record(step, Fact::NodesReleased { job, nodes });
        }
    }

    /// Removes the nodes from the application; they are free once no process is left on them.
    pub(super) fn free(&mut self, now: Time, step: &mut Step, job: JobId, nodes: Vec<NodeId>) {
        let Some(started) = self.context.state().jobs()[&job].started().filter(|started| started.ending.is_none())
        else {
            return;
        };
        let freed: Vec<NodeId> = nodes.into_iter().filter(|node| started.nodes[1..].contains(node)).collect();
        if freed.is_empty() {
            return;
        }
        let course = self.course_of(now, job, self.n_nodes(job) - freed.len() as u32, Span::ZERO);
        self.change_nodes(now, step, job, Vec::new(), freed, course);
    }

    /// Lets the application go on without a lost node. Returns false if it cannot: its processes need each other, or
    /// too few would be left.
    pub(crate) fn shrink_by_loss(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId) -> bool {
        let entry = &self.context.state().jobs()[&job];
        let Some(started) = entry.started().filter(|started| started.ending.is_none()) else { return false };
        // Workers are independent of each other and of the first node; any other job's leading process runs there.
        let leads = !are_workers(entry) && started.nodes.first() == Some(&node);
        let is_held = started.nodes.contains(&node) && !entry.is_awaited(node);
        // Without processes that the agents know, nobody would say that the node was left.
        let is_bare = entry.launcher.is_some() && started.shares.is_empty();
        if !self.survives_losses(job) || !is_held || leads || is_bare {
            return false;
        }
        let limits = self.limits(job);
        // Nodes that it is about to leave, that have not come, or that are lost with the processes on them do not
        // count.
        let is_there = |held: NodeId| {
            let held = &self.context.state().nodes()[&held];
            !matches!(held.link, NodeLink::Lost { .. }) && !matches!(held.admin, NodeAdmin::Down { .. })
        };
        let stays = |held: &&NodeId| {
            **held == node || (is_there(**held) && !started.is_leaving(**held) && !entry.is_awaited(**held))
        };
        let n_left = started.nodes.iter().filter(stays).count() as u32 - 1;
        // An application that negotiates for itself loses no more than the lost node.
        let of_use = if are_workers(entry) { limits.sizes.greatest(n_left.into()) } else { Some(n_left.into()) };
        let total = of_use.and_then(|total| u32::try_from(total).ok());
        let Some(total) = total.filter(|total| *total >= limits.least.max(1)) else { return false };
        let mut freed = vec![node];
        let others = started.nodes.iter().rev().copied();
        let others = others.filter(|other| *other != node && stays(&other) && self.can_leave(job, *other));
        freed.extend(others.take((n_left - total) as usize));
        let course = self.course_of(now, job, started.nodes.len() as u32 - freed.len() as u32, Span::ZERO);
        self.count_as_given(step, job, &freed);
        self.give_up_shrinks(now, step, job, total.saturating_sub(limits.least));
        self.change_nodes(now, step, job, Vec::new(), freed.clone(), course);
        if self.negotiators.attached.contains_key(&job) {
            step.order(Effect::TellNegotiator { job, notice: NegotiatorNotice::NodesLost { nodes: freed } });
        }
        true
    }

    /// Returns whether the job survives the loss of a node: as its submission says, else by its kind or as its
    /// negotiator has declared.
    fn survives_losses(&self, job: JobId) -> bool {
        let entry = &self.context.state().jobs()[&job];
        // The plan of an evolving job's later stages needs all nodes of this one, and what a guest was lent is counted
        // on all its nodes.
        let borrows = entry.sharing().is_some_and(|sharing| !sharing.mates.is_empty());
        if entry.spec.evolving.is_some() || borrows {
            return false;
        }
        let submitted = entry.spec.malleable.as_ref().and_then(|malleable| malleable.survives_loss);
        submitted.unwrap_or_else(|| {
            are_workers(entry) || entry.negotiations.as_ref().is_some_and(|negotiations| negotiations.survives_loss)
        })
    }

    /// Counts lost nodes that the application has promised, or is leaving, as given back: no others go in their place.
    fn count_as_given(&mut self, step: &mut Step, job: JobId, lost: &[NodeId]) {
        for id in self.open_negotiations(job) {
            let Some(negotiation) = self.negotiation(job, id) else { continue };
            if negotiation.agreed_to_leave().is_none() {
                continue;
            }
            let promised = match negotiation.dialogue.nodes() {
                Some(chosen) => chosen.clone(),
                None => self.last_nodes(job, negotiation),
            };
            let nodes: Vec<NodeId> = lost.iter().copied().filter(|node| promised.contains(node)).collect();
            if !nodes.is_empty() {
                self.context.record(step, Fact::PromisedNodesLost { job, negotiation: id, nodes });
            }
        }
    }

    /// Gives up shrinks that would now take more than the application can spare.
    fn give_up_shrinks(&mut self, now: Time, step: &mut Step, job: JobId, n_spare: u32) {
        for id in self.open_negotiations(job) {
            let Some(negotiation) = self.negotiation(job, id) else { continue };
            let n_agreed: u64 = negotiation.not_lost().values().sum();
            let is_too_much = negotiation.direction() == Direction::Shrink && n_agreed > u64::from(n_spare);
            if is_too_much && !negotiation.is_handed_over {
                let given_up = self.act(now, step, job, id, Action::Fail(Reason::Changed));
                if given_up.is_err() {
                    self.withdraw(now, step, job, id, Reason::Changed);
                }
            }
        }
    }
}

/// Returns whether the server starts and ends the job's processes one by one.
pub(super) fn are_workers(entry: &Job) -> bool {
    entry.spec.malleable.as_ref().is_some_and(|malleable| malleable.on_resize == OnResize::Workers)
}

/// Returns whether the job is told of nodes that it loses, so that it can leave them before they are cleared.
fn leaves_by_itself(entry: &Job) -> bool {
    match entry.spec.malleable.as_ref().map(|malleable| &malleable.on_resize) {
        Some(OnResize::Signal(_) | OnResize::Hook(_)) => true,
        Some(OnResize::Negotiates | OnResize::Workers) | None => false,
    }
}
