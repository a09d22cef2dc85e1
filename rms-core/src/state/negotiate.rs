//! How the state changes as running applications negotiate.

use negotiation::{Dialogue, NegotiationId};
use rms_api::negotiate::Declared;
use rms_model::{ClusterId, JobId, NodeId, Time};

use super::{Bumped, Misfit, State};
use crate::state::job::Job;
use crate::state::talks::{Asking, Talks};

impl State {
    pub(super) fn talked(
        &mut self,
        job: JobId,
        at: Time,
        dialogue: &Dialogue,
        asking: Option<&Asking>,
    ) -> Result<(), Misfit> {
        let known = dialogue.hosts().into_iter().flatten().filter_map(|node| self.nodes.get(node));
        let names = known.map(|entry| entry.name.clone()).collect();
        let agreed = |state: &State| state.jobs.get(&job).and_then(Job::agreed_to_leave);
        let before = agreed(self);
        self.talks_mut(job)?.take_in(at, dialogue, asking, names);
        if agreed(self) != before
            && let Some(entry) = self.jobs.get(&job)
        {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    pub(super) fn declared(&mut self, job: JobId, declared: &Declared) -> Result<(), Misfit> {
        self.talks_mut(job)?.declared = Some(declared.clone());
        Ok(())
    }

    /// The hosts that are kept for a negotiation are these now. No agent hears of it: nothing is to run there yet.
    pub(super) fn hold_hosts(&mut self, job: JobId, id: NegotiationId, nodes: &[NodeId]) -> Result<(), Misfit> {
        let case = self.talks_mut(job)?.case_mut(id);
        let held = &mut case.ok_or(Misfit::Phase { job, needed: "negotiating under that number" })?.held;
        let before = std::mem::replace(held, nodes.iter().copied().collect());
        let untold = &mut Bumped::Unnoted;
        for node in nodes.iter().filter(|node| !before.contains(node)) {
            self.change_holders(*node, untold, false, |holders| holders.insert(job))?;
        }
        for node in before.iter().filter(|node| !nodes.contains(node)) {
            match self.change_holders(*node, untold, false, |holders| holders.remove(job)) {
                // A node that was removed meanwhile has nothing to give back.
                Ok(()) | Err(Misfit::Node(_)) => {}
                Err(misfit) => return Err(misfit),
            }
        }
        if let Some(entry) = self.jobs.get(&job) {
            self.index.recount(job, entry, &self.nodes);
        }
        Ok(())
    }

    /// The application is asked to leave these hosts; its processes there run on until it has, or its time is over.
    pub(super) fn depart_hosts(
        &mut self,
        job: JobId,
        at: Time,
        nodes: &[NodeId],
        bumped: &mut Bumped<'_>,
    ) -> Result<(), Misfit> {
        self.edit_evolved(job, |_, evolved| {
            evolved.generation += 1;
            evolved.departing.extend(nodes.iter().map(|node| (*node, at)));
        })?;
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    /// It has left these hosts of its own accord, and its processes there end by themselves, or soon will.
    pub(super) fn released(&mut self, job: JobId, nodes: &[NodeId]) -> Result<(), Misfit> {
        self.edit_evolved(job, |_, evolved| {
            let leaving = nodes.iter().filter(|node| evolved.leaving.contains_key(node));
            evolved.released.extend(leaving.copied());
        })
    }

    /// It stays on the hosts that it was asked to leave.
    pub(super) fn stay(&mut self, job: JobId, bumped: &mut Bumped<'_>) -> Result<(), Misfit> {
        self.edit_evolved(job, |_, evolved| {
            evolved.generation += 1;
            evolved.departing.clear();
        })?;
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    pub(super) fn warned(&mut self, job: JobId, id: NegotiationId, at: Time) -> Result<(), Misfit> {
        if let Some(case) = self.talks_mut(job)?.case_mut(id) {
            case.warn(at);
        }
        Ok(())
    }

    pub(super) fn loan_called(
        &mut self,
        job: JobId,
        id: NegotiationId,
        cluster: Option<ClusterId>,
        by: NegotiationId,
    ) -> Result<(), Misfit> {
        for loan in self.talks_mut(job)?.loans.iter_mut().filter(|loan| loan.is_of(id, cluster)) {
            loan.called = Some(by);
        }
        Ok(())
    }

    /// A loan is over.
    pub(super) fn loan_ended(
        &mut self,
        job: JobId,
        id: NegotiationId,
        cluster: Option<ClusterId>,
    ) -> Result<(), Misfit> {
        self.talks_mut(job)?.loans.retain(|loan| !loan.is_of(id, cluster));
        Ok(())
    }

    /// Hosts that have come, or begin to leave, for a negotiation.
    pub(super) fn hand_over(&mut self, job: JobId, at: Time, gained: &[NodeId], freed: &[NodeId]) {
        let homes: Vec<_> = freed.iter().map(|node| (*node, self.nodes[node].cluster)).collect();
        let Some(talks) = self.jobs.get_mut(&job).and_then(|entry| entry.talks.as_mut()) else { return };
        talks.give_back(at, &homes);
        for case in talks.cases.iter_mut().filter(|case| !case.phase().is_over()) {
            let before = case.held.len();
            case.held.retain(|node| !gained.contains(node));
            let is_leaving = case.dialogue.hosts().is_some_and(|hosts| hosts.iter().all(|node| freed.contains(node)));
            case.is_handed_over |= case.held.len() < before || (is_leaving && !freed.is_empty());
        }
    }

    /// An execution is over: what its hosts have cost is its user's.
    pub(super) fn settle(&mut self, job: JobId, at: Time) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let spent = entry.talks.as_ref().map_or(0, |talks| talks.spent(at));
        if spent > 0 {
            let sum = self.spent.entry(entry.spec.owner.0.clone()).or_default();
            *sum = sum.saturating_add(spent);
        }
    }

    pub(super) fn talks_mut(&mut self, job: JobId) -> Result<&mut Talks, Misfit> {
        let entry = self.jobs.get_mut(&job).ok_or(Misfit::Job(job))?;
        if entry.started().is_none() {
            return Err(Misfit::Phase { job, needed: "started" });
        }
        Ok(entry.talks.get_or_insert_default())
    }
}
