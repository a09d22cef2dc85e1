//! Starts jobs on cores lent by running ones, and returns those cores (004, §3.3).

use std::collections::{BTreeMap, BTreeSet};

use rms_model::sharing::asked;
use rms_model::{Allocation, Devices, Grant, JobId, NodeId, Outcome, Request, Slice, Span, Time};

use super::Jobs;
use crate::plan::slowdown::Fraction;
use crate::plan::{self, GuestStart, LentCores, Placed};
use crate::share;
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase, Share};
use crate::state::sharing::{Loan, Sharing};
use crate::state::{constraint_of, cores_asked, pieces_of, takes_whole_nodes};
use crate::step::Step;

impl Jobs<'_> {
    /// Starts a guest. Its processes start once those of its mates have left its cores.
    pub(crate) fn start_guest(&mut self, now: Time, step: &mut Step, guest_start: GuestStart) {
        let runtime = guest_start.runtime(self.state(), &self.state().jobs()[&guest_start.job].spec);
        let GuestStart { job, request, lent, free, slices } = guest_start;
        let mut loans: BTreeMap<JobId, BTreeMap<NodeId, Loan>> = BTreeMap::new();
        let mut grants = self.state().grants(job, &slices);
        for LentCores { node, mate, cores } in &lent {
            let inventory = &self.state().nodes()[node].inventory;
            let entry = &self.state().jobs()[mate];
            let own = entry.part_of(*node, inventory).unwrap_or_else(|| Grant::whole(inventory));
            let cores = share::lend(&own.cores, *cores, inventory, entry.spec.resources.cores_per_package);
            grants.insert(*node, Grant { cores: cores.clone(), ..self.memory_and_devices(job, &request, *node) });
            loans.entry(*mate).or_default().insert(*node, Loan { guest: job, cores, since: Some(now) });
        }
        let mut nodes: Vec<NodeId> = lent.iter().map(|lent| lent.node).chain(free.iter().copied()).collect();
        nodes.sort_unstable();
        let nodes = self.in_neighbour_order(job, nodes);
        let run = self.state().jobs()[&job].run.next();
        let guest_end = now + runtime;
        // The mates give up the cores before the guest gets them.
        for (mate, loans) in loans {
            let end = self.change_cpus(now, step, mate, Some(guest_end), |sharing, _| sharing.lent.extend(loans));
            self.update_owner_ends(now, step, mate, end);
        }
        self.context.record(step, Fact::JobStarted { job, run, at: now, request, nodes, grants });
        let mates = lent.iter().map(|lent| (lent.node, lent.mate)).collect();
        let cluster = lent.first().and_then(|lent| self.state().nodes().get(&lent.node)).map(|known| known.cluster);
        let is_shared = cluster.is_some_and(|cluster| self.state().is_shared(cluster));
        let allocation = if is_shared { Allocation::Cores } else { Allocation::Nodes };
        self.change_cpus(now, step, job, None, |sharing, _| {
            sharing.mates = mates;
            sharing.allocation = Some(allocation);
        });
        self.context.announce(step, job);
    }

    /// Runs the passes of one instant (004, Listing 1): mates are searched for a job right after its static trial
    /// failed, before the next job in the queue is tried. Once a guest has started, all jobs are tried again.
    pub(super) fn share_nodes(&mut self, now: Time, step: &mut Step, by_nodes: Option<(JobId, Fraction)>) {
        let mut round = plan::SharingRound::new(self.state(), by_nodes);
        let mut has_started = false;
        loop {
            let (plan, guest_start) = plan::plan_sharing(self.state(), now, &mut round);
            for placement in plan.placements {
                let is_heard = self.state().jobs()[&placement.job].launcher_away_since().is_none();
                if let Placed::Now { request, nodes, slices, row, fit } = placement.outcome
                    && is_heard
                {
                    self.start(now, step, placement.job, request, nodes, &slices);
                    has_started = true;
                    fit.iter().for_each(|fit| self.context.begin_course(now, step, placement.job, fit, &row));
                }
            }
            match guest_start {
                Some(guest_start) => self.start_guest(now, step, guest_start),
                // Nothing more would be found for the jobs that could not start.
                None if std::mem::take(&mut has_started) && round.needs_another_pass() => {}
                None => return,
            }
        }
    }

    /// Returns the memory and devices that a guest gets of a node.
    fn memory_and_devices(&self, job: JobId, request: &Request, node: NodeId) -> Grant {
        let state = self.state();
        let (spec, known) = (&state.jobs()[&job].spec, &state.nodes()[&node]);
        let memory = constraint_of(spec, request).memory;
        // A job that asked for whole nodes gets only unclaimed memory of nodes that others hold.
        if !state.is_shared(known.cluster) || takes_whole_nodes(spec) {
            return Grant { memory, ..Grant::default() };
        }
        let pieces = pieces_of(spec, request, &known.inventory);
        let devices = pieces.first().map_or_else(Devices::default, |piece| piece.slice.devices.clone());
        state.shared().grant(node, known, spec, &Slice { cores: 0, memory, devices }).unwrap_or_default()
    }

    /// Returns the CPUs of a job that has left its nodes: borrowed cores go back to their owners, for whom its guests
    /// are now guests; on its own nodes, its guests become the owners.
    pub(crate) fn return_cpus(&mut self, now: Time, step: &mut Step, left: JobId, sharing: &Sharing) {
        for owner in sharing.owners() {
            let loans = sharing.lent.iter().filter(|(node, _)| sharing.mates.get(node) == Some(&owner));
            let loans: Vec<(NodeId, Loan)> = loans.map(|(node, loan)| (*node, loan.clone())).collect();
            let end = self.change_cpus(now, step, owner, None, |sharing, _| {
                sharing.lent.retain(|_, loan| loan.guest != left);
                sharing.lent.extend(loans);
            });
            self.update_owner_ends(now, step, owner, end);
        }
        for guest in sharing.guests() {
            let has = sharing.lent.iter().filter(|(_, loan)| loan.guest == guest).map(|(node, _)| *node);
            let (lent_on, own): (Vec<NodeId>, Vec<NodeId>) = has.partition(|node| sharing.mates.contains_key(node));
            if !lent_on.is_empty() {
                let owners: Vec<(NodeId, JobId)> = lent_on.iter().map(|node| (*node, sharing.mates[node])).collect();
                self.change_cpus(now, step, guest, None, |sharing, _| sharing.mates.extend(owners));
            }
            if !own.is_empty() {
                self.take_over(now, step, guest, own);
            }
        }
    }

    /// Hands nodes that a job has left to its guests on them. None of those nodes is borrowed.
    pub(super) fn hand_left_nodes_to_guests(&mut self, now: Time, step: &mut Step, job: JobId) {
        let entry = &self.state().jobs()[&job];
        let Some(sharing) = entry.sharing().filter(|sharing| sharing.is_active()) else { return };
        let held: BTreeSet<NodeId> = entry.held().collect();
        let left = sharing.lent.iter().filter(|(node, _)| !held.contains(node));
        let mut by_guest: BTreeMap<JobId, Vec<NodeId>> = BTreeMap::new();
        left.for_each(|(node, loan)| by_guest.entry(loan.guest).or_default().push(*node));
        if by_guest.is_empty() {
            return;
        }
        self.change_cpus(now, step, job, None, |sharing, _| sharing.lent.retain(|node, _| held.contains(node)));
        by_guest.into_iter().for_each(|(guest, nodes)| self.take_over(now, step, guest, nodes));
    }

    /// Makes a guest the owner of nodes whose owner has left. The guest may have ended, too.
    fn take_over(&mut self, now: Time, step: &mut Step, guest: JobId, nodes: Vec<NodeId>) {
        if self.state().jobs().get(&guest).is_none_or(|entry| entry.started().is_none()) {
            return;
        }
        let more = self.full_grants(guest, &nodes);
        let guest_end = self.change_cpus(now, step, guest, None, |sharing, grants| {
            for node in &nodes {
                sharing.mates.remove(node);
                sharing.own_since.insert(*node, now);
                match more.get(node) {
                    Some(grant) => drop(grants.insert(*node, grant.clone())),
                    None => drop(grants.remove(node)),
                }
            }
        });
        // Its speed differs from what its other mates assumed.
        self.update_owner_ends(now, step, guest, guest_end);
    }

    /// Updates the limits of the owners on whose nodes `guest` runs, because its end has changed.
    fn update_owner_ends(&mut self, now: Time, step: &mut Step, guest: JobId, end: Option<Time>) {
        let owners = self.state().jobs().get(&guest).and_then(Job::sharing).map(Sharing::owners).unwrap_or_default();
        for owner in owners {
            let owner_end = self.change_cpus(now, step, owner, end, |_, _| ());
            self.update_owner_ends(now, step, owner, owner_end);
        }
    }

    /// Sets the wall time that a job which shares, or once did, needs with all CPUs that it asked for.
    pub(crate) fn change_requested(&mut self, now: Time, step: &mut Step, job: JobId, requested: Span) {
        let end = self.change_cpus(now, step, job, None, |sharing, _| sharing.requested = requested);
        self.update_owner_ends(now, step, job, end);
    }

    /// Returns the grants of a guest on nodes whose owner has left: as much as it asked for; none where it has the
    /// whole node.
    fn full_grants(&self, guest: JobId, nodes: &[NodeId]) -> BTreeMap<NodeId, Grant> {
        let state = self.state();
        let entry = &state.jobs()[&guest];
        let (Some(started), spec) = (entry.started(), &entry.spec) else { return BTreeMap::new() };
        let grant = |node: &NodeId| {
            let known = state.nodes().get(node)?;
            let is_shared = state.is_shared(known.cluster);
            let mut grant = started.grants.get(node).filter(|_| started.asks_part(*node, is_shared))?.clone();
            if !is_shared {
                // Others that began on parts of the node may still be there.
                return Some((*node, grant));
            }
            let wanted = cores_asked(spec, &started.request, &known.inventory, is_shared);
            let n_more = wanted.saturating_sub(grant.cores.len());
            // A node that has come back with less may not have them all.
            let more = state.shared().more_cores(*node, known, (spec, &grant.cores), n_more);
            more.iter().for_each(|more| grant.cores.insert_all(more));
            Some((*node, grant))
        };
        nodes.iter().filter_map(grant).collect()
    }

    /// Changes what a job lends and borrows, and its limit accordingly. Returns its new end; `None` if it does not run.
    /// Follow with [`Jobs::update_owner_ends`].
    fn change_cpus(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        guest_end: Option<Time>,
        change: impl FnOnce(&mut Sharing, &mut BTreeMap<NodeId, Grant>),
    ) -> Option<Time> {
        let state = self.context.state();
        let mut sharing = state.sharing_at(job, now)?;
        let mut entry = Job::clone(&state.jobs()[&job]);
        let started = match &mut entry.phase {
            Phase::Started(started) => started,
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Ghost(_) => return None,
        };
        let before = sharing.lent.clone();
        change(&mut sharing, &mut started.grants);
        sharing.generation += 1;
        sharing.awaited.retain(|node| sharing.lent.contains_key(node));
        if self.context.config.tells_anyone {
            let alive: Vec<NodeId> = started.alive().collect();
            let is_new = |node: &NodeId| sharing.lent.contains_key(node) && !before.contains_key(node);
            sharing.awaited.extend(alive.into_iter().filter(is_new));
        }
        started.sharing = Some(Box::new(sharing.clone()));
        let (grants, at) = (started.grants.clone(), started.at);
        let cores: Vec<_> = state.cores_of(&entry).collect();
        let asked = asked(cores.iter().copied());
        sharing.rate = state.settings().sharing.runtime_model.rate(cores.into_iter());
        let guest_end = guest_end.or_else(|| {
            let guests = sharing.guests().into_iter().filter_map(|guest| state.jobs().get(&guest)?.started());
            guests.map(|guest| guest.at + guest.request.wall).max()
        });
        let end = match guest_end.filter(|_| !sharing.lent.is_empty()) {
            Some(guest_end) => {
                let alone = state.rate_alone(&mut entry);
                sharing.end_with_guest(now, guest_end, asked, alone)
            }
            None => sharing.end_alone(now, asked),
        };
        let wall = end.since(at);
        self.context.record(step, Fact::CpusShared { job, at: now, sharing: Box::new(sharing), grants, wall });
        self.context.launches.remove(&job);
        Some(end)
    }

    /// Handles an agent's report of the generation up to which a job's processes keep to their CPUs on its node, or
    /// that they do not.
    pub(crate) fn cpu_confinement_reported(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, node): (JobId, NodeId),
        generation: u32,
        is_confined: bool,
    ) {
        let started = self.state().jobs().get(&job).and_then(Job::started);
        let Some(started) = started.filter(|started| generation >= started.generation()) else { return };
        let Some(sharing) = started.sharing.as_ref().filter(|sharing| sharing.awaited.contains(&node)) else { return };
        if is_confined {
            // The node is now told to start the guest.
            self.context.record(step, Fact::CpusInForce { job, node, generation, at: Some(now) });
            return;
        }
        let guest = sharing.lent.get(&node).map(|loan| loan.guest);
        self.change_cpus(now, step, job, None, |sharing, _| sharing.is_stubborn = true);
        let Some(guest) = guest else { return };
        let entry = &self.state().jobs()[&guest];
        let Some(started) = entry.started().filter(|started| started.ending.is_none()) else { return };
        // Other nodes may have started it already.
        let has_run = started.shares.values().any(|share| *share != Share::Ordered);
        let requeue = !has_run || entry.spec.may_run_again(self.state().settings().lost_policy);
        let name = self.state().nodes()[&node].name.clone();
        let reason = format!("processes of job {job} did not leave the CPUs that they had lent");
        self.end(now, step, guest, Outcome::NotStarted { node: name, reason }, requeue);
    }
}
