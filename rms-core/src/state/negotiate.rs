//! Applies the facts of negotiations with running applications.

use std::collections::BTreeMap;

use negotiation::{Dialogue, NegotiationId};
use rms_api::negotiate::Declared;
use rms_model::{ClusterId, Grant, JobId, NodeId, Time};

use super::{ApplyError, BumpedNodes, State};
use crate::state::negotiations::{Asking, JobNegotiations};

impl State {
    pub(super) fn dialogue_changed(
        &mut self,
        job: JobId,
        at: Time,
        dialogue: &Dialogue,
        asking: Option<&Asking>,
    ) -> Result<(), ApplyError> {
        let known = dialogue.nodes().into_iter().flatten().filter_map(|node| self.nodes.get(node));
        let names = known.map(|entry| entry.name.clone()).collect();
        let will_leave =
            |state: &State| state.jobs.get(&job).map(|entry| (entry.agreed_to_leave(), entry.gives_back()));
        let before = will_leave(self);
        self.negotiations_mut(job)?.record_dialogue(at, dialogue, asking, names);
        if will_leave(self) != before
            && let Some(entry) = self.jobs.get(&job)
        {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    pub(super) fn declared(&mut self, job: JobId, declared: &Declared) -> Result<(), ApplyError> {
        self.negotiations_mut(job)?.declared = Some(declared.clone());
        Ok(())
    }

    /// Sets the nodes that are held for a negotiation. Agents are not told, because nothing runs there yet.
    pub(super) fn hold_nodes(
        &mut self,
        job: JobId,
        id: NegotiationId,
        nodes: &[NodeId],
        grants: &BTreeMap<NodeId, Grant>,
    ) -> Result<(), ApplyError> {
        let negotiation = self.negotiations_mut(job)?.get_mut(id);
        let held = &mut negotiation.ok_or(ApplyError::Phase { job, needed: "negotiating under that number" })?.held;
        let before = std::mem::replace(held, nodes.iter().copied().collect());
        let ignored = &mut BumpedNodes::Ignored;
        let gained = nodes.iter().copied().filter(|node| !before.contains(node));
        self.change_holders(gained, ignored, false, |holders| holders.insert(job))?;
        let freed = before.iter().copied().filter(|node| !nodes.contains(node));
        match self.change_holders(freed, ignored, false, |holders| holders.remove(job)) {
            // A node that was removed meanwhile has nothing to give back.
            Ok(()) | Err(ApplyError::Node(_)) => {}
            Err(misfit) => return Err(misfit),
        }
        let started = self.started_mut(job)?;
        started.grants.retain(|node, _| !before.contains(node) || nodes.contains(node) || started.nodes.contains(node));
        started.grants.extend(grants.clone());
        if let Some(entry) = self.jobs.get(&job) {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    /// Marks nodes that the application is asked to leave. Its processes there continue until it has left, or its time
    /// is over.
    pub(super) fn depart_nodes(
        &mut self,
        job: JobId,
        at: Time,
        nodes: &[NodeId],
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.edit_evolved(job, |_, evolved| {
            evolved.generation += 1;
            evolved.departing.extend(nodes.iter().map(|node| (*node, at)));
        })?;
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    /// Marks nodes that the application reports to have left; its processes there end on their own.
    pub(super) fn released(&mut self, job: JobId, nodes: &[NodeId]) -> Result<(), ApplyError> {
        self.edit_evolved(job, |_, evolved| {
            let leaving = nodes.iter().filter(|node| evolved.leaving.contains_key(node));
            evolved.released.extend(leaving.copied());
        })
    }

    /// Cancels the departure from the nodes that it was asked to leave.
    pub(super) fn stay(&mut self, job: JobId, bumped: &mut BumpedNodes<'_>) -> Result<(), ApplyError> {
        self.edit_evolved(job, |_, evolved| {
            evolved.generation += 1;
            evolved.departing.clear();
        })?;
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    pub(super) fn warned(&mut self, job: JobId, id: NegotiationId, at: Time) -> Result<(), ApplyError> {
        if let Some(negotiation) = self.negotiations_mut(job)?.get_mut(id) {
            negotiation.warn(at);
        }
        Ok(())
    }

    /// Counts lost nodes as given back; other jobs are planned for fewer nodes of this one then.
    pub(super) fn promised_lost(&mut self, job: JobId, id: NegotiationId, nodes: &[NodeId]) -> Result<(), ApplyError> {
        let homes = nodes.iter().map(|node| Some((*node, self.nodes.get(node)?.cluster)));
        let homes: Vec<(NodeId, ClusterId)> = homes.flatten().collect();
        if let Some(negotiation) = self.negotiations_mut(job)?.get_mut(id) {
            negotiation.lose(homes);
        }
        if let Some(entry) = self.jobs.get(&job) {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    pub(super) fn loan_called(
        &mut self,
        job: JobId,
        id: NegotiationId,
        cluster: Option<ClusterId>,
        by: NegotiationId,
    ) -> Result<(), ApplyError> {
        for loan in self.negotiations_mut(job)?.loans.iter_mut().filter(|loan| loan.is_of(id, cluster)) {
            loan.called = Some(by);
        }
        Ok(())
    }

    /// Removes a loan that has ended.
    pub(super) fn loan_ended(
        &mut self,
        job: JobId,
        id: NegotiationId,
        cluster: Option<ClusterId>,
    ) -> Result<(), ApplyError> {
        self.negotiations_mut(job)?.loans.retain(|loan| !loan.is_of(id, cluster));
        if let Some(entry) = self.jobs.get(&job) {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    /// Marks the negotiations whose nodes have come or begin to leave as handed over.
    pub(super) fn hand_over(&mut self, job: JobId, at: Time, gained: &[NodeId], freed: &[NodeId]) {
        let homes: Vec<_> = freed.iter().map(|node| (*node, self.nodes[node].cluster)).collect();
        let Some(negotiations) = self.jobs.get_mut(&job).and_then(|entry| entry.negotiations.as_mut()) else { return };
        negotiations.give_back(at, &homes);
        for negotiation in negotiations.all.iter_mut().filter(|negotiation| !negotiation.phase().is_over()) {
            let before = negotiation.held.len();
            negotiation.held.retain(|node| !gained.contains(node));
            let is_gone = |node: &NodeId| freed.contains(node) || negotiation.lost.contains_key(node);
            let is_leaving = negotiation.dialogue.nodes().is_some_and(|nodes| nodes.iter().all(is_gone));
            negotiation.is_handed_over |= negotiation.held.len() < before || (is_leaving && !freed.is_empty());
        }
    }

    /// Adds the cost of an execution that has ended to its user's spending.
    pub(super) fn settle_charges(&mut self, job: JobId, at: Time) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let spent = entry.negotiations.as_ref().map_or(0, |negotiations| negotiations.spent(at));
        if spent > 0 {
            let sum = self.spent.entry(entry.spec.owner.0.clone()).or_default();
            *sum = sum.saturating_add(spent);
        }
    }

    pub(super) fn negotiations_mut(&mut self, job: JobId) -> Result<&mut JobNegotiations, ApplyError> {
        let entry = self.jobs.get_mut(&job).ok_or(ApplyError::Job(job))?;
        if entry.started().is_none() {
            return Err(ApplyError::Phase { job, needed: "started" });
        }
        Ok(entry.negotiations.get_or_insert_default())
    }
}
