//! Cores on nodes that an application holds: fewer of them, or more as far as the nodes have them and nobody else does.
//!
//! What is agreed is ordered by one fact, and ready once the agent of each of these nodes has said that the job's
//! processes keep to it. Until then the larger of the two numbers counts as held; what fails is ordered back.

use std::collections::BTreeMap;

use negotiation::{Action, Direction, Item, NegotiationId, Quantity, Reason, Resource, SetRule, Template};
use rms_model::{ClusterId, Indices, JobId, NodeId, Span, Time};

use super::Negotiations;
use super::answer::Grant;
use super::grow::time_of;
use crate::plan;
use crate::state::fact::Fact;
use crate::state::job::{Phase, Started};
use crate::step::Step;

impl Negotiations<'_> {
    /// More cores on each of the nodes that the item is about, as many as the one with the fewest left has.
    pub(super) fn grant_cores(&self, now: Time, job: JobId, cluster: ClusterId, item: &Item) -> Grant {
        let nodes = match self.nodes_of_cores(job, cluster, item) {
            Ok(nodes) => nodes,
            Err(reason) => return Grant::Never(reason),
        };
        if self.awaits_cores(job) {
            return Grant::NotNow;
        }
        let room = self.spare_cpus(now, job, &nodes).into_iter().min().unwrap_or(0);
        let most = Quantity(item.quantity.0.min(u64::from(room)));
        // Nobody has to give any back; who shares a node may have more when another job ends there.
        let state = self.context.state();
        let no_room = if state.is_shared(cluster) { Grant::NotNow } else { Grant::Never(Reason::NoResources) };
        item.greatest(Direction::Grow, most).map_or(no_room, Grant::Of)
    }

    /// # Errors
    /// Why the application cannot give these cores back.
    pub(super) fn check_cores_back(&self, job: JobId, cluster: ClusterId, item: &Item) -> Result<(), Reason> {
        let nodes = self.nodes_of_cores(job, cluster, item)?;
        // One change of its cores at a time, or nobody could say what a failed one is to be taken back to.
        if self.awaits_cores(job) {
            return Err(Reason::Changed);
        }
        let keeps_one = nodes.iter().all(|node| item.quantity.0 < u64::from(self.cores_of(job, *node)));
        if keeps_one { Ok(()) } else { Err(Reason::Policy) }
    }

    /// The nodes that an item about cores is about: those it names, or all that the application holds on the cluster.
    ///
    /// # Errors
    /// They are not its own, or it has not as many cores there as the item says.
    fn nodes_of_cores(&self, job: JobId, cluster: ClusterId, item: &Item) -> Result<Vec<NodeId>, Reason> {
        // Cores for a time would have to be taken back by force: a job's threads ask nobody.
        if item.terms.duration.is_some() || item.terms.give_back_by.is_some() {
            return Err(Reason::Policy);
        }
        let nodes = self.nodes_with_cores(job, cluster);
        let (are_its_own, nodes) = match item.nodes.is_empty() {
            true => (!nodes.is_empty(), nodes),
            false => (item.nodes.iter().all(|node| nodes.contains(node)), item.nodes.iter().copied().collect()),
        };
        if !are_its_own {
            return Err(Reason::Policy);
        }
        if self.fewest_cores(job, &nodes) != item.held {
            return Err(Reason::Changed);
        }
        Ok(nodes)
    }

    /// Its nodes of a cluster but those that it is to leave.
    pub(super) fn nodes_with_cores(&self, job: JobId, cluster: ClusterId) -> Vec<NodeId> {
        let Some(started) = self.context.state().jobs()[&job].started() else { return Vec::new() };
        let is_meant = |node: &&NodeId| {
            let is_departing = started.evolved.as_ref().is_some_and(|evolved| evolved.departing.contains_key(node));
            self.context.state().nodes()[*node].cluster == cluster && !is_departing
        };
        started.nodes.iter().filter(is_meant).copied().collect()
    }

    /// What an item about cores on these nodes says is held: what it has where it has the fewest.
    pub(super) fn fewest_cores(&self, job: JobId, nodes: &[NodeId]) -> Quantity {
        let fewest = nodes.iter().map(|node| self.cores_of(job, *node)).min();
        Quantity(fewest.unwrap_or(0).into())
    }

    fn cores_of(&self, job: JobId, node: NodeId) -> u32 {
        let started = self.context.state().jobs()[&job].started();
        started.map_or(0, |started| started.cores_on(node, self.n_cpus(node)))
    }

    /// Of each node the CPUs that neither this job nor anybody else has, or is to have before it ends.
    fn spare_cpus(&self, now: Time, job: JobId, nodes: &[NodeId]) -> Vec<u32> {
        let state = self.context.state();
        let are_shared = nodes.iter().any(|node| state.is_shared(state.nodes()[node].cluster));
        if !are_shared {
            return nodes.iter().map(|node| self.spare_on_own(job, *node)).collect();
        }
        let spare = plan::spare_cores(state, now, job, nodes);
        let spare = nodes.iter().zip(spare).map(|(node, n_spare)| {
            let inventory = &state.nodes()[node].inventory;
            let n_own = state.jobs()[&job].part_of(*node, inventory).map_or(inventory.cores, |part| part.cores.len());
            let most = (n_own + n_spare).saturating_mul(inventory.threads_per_core()).min(inventory.cpus);
            most.saturating_sub(self.cores_of(job, *node))
        });
        spare.collect()
    }

    /// The same where nodes belong to one job at a time.
    fn spare_on_own(&self, job: JobId, node: NodeId) -> u32 {
        let all = self.n_cpus(node);
        let others = self.context.state().nodes()[&node].holders.iter().filter(|holder| **holder != job);
        let of_others = others.map(|holder| match self.context.state().jobs().get(holder).map(|entry| &entry.phase) {
            Some(Phase::Started(started)) => started.cores_kept_on(node, all),
            // A node is kept whole for who may get it, and by a ghost.
            Some(Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Ghost(_)) | None => all,
        });
        let of_others = of_others.fold(0, u32::saturating_add);
        all.saturating_sub(of_others).saturating_sub(self.cores_of(job, node))
    }

    fn n_cpus(&self, node: NodeId) -> u32 {
        self.context.state().nodes().get(&node).map_or(0, |entry| entry.inventory.cpus)
    }

    /// Has an agent yet to say that the job keeps to the cores that it was last given?
    pub(super) fn awaits_cores(&self, job: JobId) -> bool {
        self.context.state().jobs()[&job].started().is_some_and(Started::awaits_cores)
    }

    /// Are more cores needed than the nodes have? Waiting helps nobody then.
    pub(super) fn is_beyond_nodes(&self, job: JobId, cluster: ClusterId, item: &Item) -> bool {
        let nodes = if item.nodes.is_empty() {
            self.nodes_with_cores(job, cluster)
        } else {
            item.nodes.iter().copied().collect()
        };
        nodes.iter().any(|node| u64::from(self.n_cpus(*node)) < item.held.0.saturating_add(item.terms.least.0))
    }

    /// What these cores come to, node by node; empty if it is about none.
    ///
    /// # Errors
    /// The nodes or the cores are not those any more that it was agreed about.
    pub(super) fn cores_after(&self, now: Time, job: JobId, agreed: &Template) -> Result<Vec<(NodeId, u32)>, Reason> {
        let mut after = Vec::new();
        for item in agreed.items().iter().filter(|item| item.is_live()) {
            let Resource::Cores(cluster) = item.resource else { continue };
            let is_possible = match agreed.direction() {
                Direction::Grow => {
                    matches!(self.grant_cores(now, job, cluster, item), Grant::Of(most) if most == item.quantity)
                }
                Direction::Shrink => self.check_cores_back(job, cluster, item).is_ok(),
            };
            if !is_possible {
                return Err(Reason::Changed);
            }
            let change = u32::try_from(item.quantity.0).map_err(|_| Reason::Changed)?;
            for node in self.nodes_of_cores(job, cluster, item)? {
                let n_cores = self.cores_of(job, node);
                let n_after = match agreed.direction() {
                    Direction::Grow => n_cores.saturating_add(change),
                    Direction::Shrink => n_cores.saturating_sub(change),
                };
                after.push((node, n_after));
            }
        }
        Ok(after)
    }

    /// The agents are told of other numbers of cores; from then on it waits for their word.
    pub(super) fn order_cores(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        cores: Vec<(NodeId, u32)>,
    ) {
        let is_first = self.context.state().jobs()[&job].started().is_some_and(|started| started.evolved.is_none());
        if is_first {
            let course = self.course_of(now, job, self.n_nodes(job), Span::ZERO);
            self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
        }
        let more: BTreeMap<NodeId, Indices> =
            cores.iter().filter_map(|(node, n_cpus)| Some((*node, self.more_cores(job, *node, *n_cpus)?))).collect();
        self.context.record(step, Fact::CoresSet { job, negotiation: id, cores, more });
        self.context.launches.remove(&job);
        self.context.passes.wanted = true;
    }

    /// Which cores of a node that it shares it gets if it is to have so many CPUs there; `None` if it has enough.
    fn more_cores(&self, job: JobId, node: NodeId, n_cpus: u32) -> Option<Indices> {
        let state = self.context.state();
        let entry = &state.jobs()[&job];
        let known = state.nodes().get(&node)?;
        let part = entry.part_of(node, &known.inventory)?;
        let threads = if entry.spec.resources.one_thread_a_core { 1 } else { known.inventory.threads_per_core() };
        let missing = n_cpus.div_ceil(threads).checked_sub(part.cores.len()).filter(|missing| *missing > 0)?;
        state.shared().more_cores(node, known, missing)
    }

    /// Agreed, and about no nodes: cores are ordered and waited for, time is given or taken at once.
    pub(super) fn bring_about(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        (more, agreed): (Span, &Template),
    ) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        if negotiation.is_handed_over {
            return self.await_cores(now, step, job, id);
        }
        let cores = match self.cores_after(now, job, agreed) {
            Ok(cores) => cores,
            Err(reason) => {
                let _ = self.act(now, step, job, id, Action::Fail(reason));
                return;
            }
        };
        if !more.is_zero() {
            let course = self.course_of(now, job, self.n_nodes(job), more);
            self.set_course(now, step, job, course);
        }
        match cores.is_empty() {
            true => drop(self.act(now, step, job, id, Action::Ready)),
            false => self.order_cores(now, step, job, id, cores),
        }
    }

    fn await_cores(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        if !self.awaits_cores(job) {
            // Its negotiator knows what it has before it hears that this is ready.
            self.tell_moves(now, step);
            let _ = self.act(now, step, job, id, Action::Ready);
        }
    }

    /// An agent says up to which generation the job's processes keep to their cores on its node, or that they do not.
    pub(crate) fn confined(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, node): (JobId, NodeId),
        generation: u32,
        is_confined: bool,
    ) {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        let evolved = started.and_then(|started| started.evolved.as_ref());
        // Nobody can have heard of more generations than there are.
        let evolved = evolved.filter(|evolved| generation <= evolved.generation);
        let cores = evolved.and_then(|evolved| evolved.places.get(&node)?.cores);
        let Some(cores) = cores.filter(|cores| !cores.is_in_force && cores.generation <= generation) else { return };
        if is_confined {
            self.context.record(step, Fact::CoresInForce { job, node, generation });
            self.context.passes.wanted = true;
        } else if self.negotiation(job, cores.by).is_some_and(|negotiation| !negotiation.phase().is_over()) {
            let _ = self.act(now, step, job, cores.by, Action::Fail(Reason::Lost));
        }
    }

    /// It has failed: everywhere the job is to have as many cores as before.
    pub(super) fn roll_back_cores(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(started) = self.context.state().jobs()[&job].started().filter(|started| started.ending.is_none())
        else {
            return;
        };
        let Some(evolved) = &started.evolved else { return };
        let by_this =
            |node: &&NodeId| evolved.places.get(node).and_then(|place| place.cores).filter(|cores| cores.by == id);
        let changed = started.nodes.iter().filter_map(|node| Some((*node, by_this(&node)?.was)));
        let cores: Vec<(NodeId, u32)> = changed.collect();
        if !cores.is_empty() {
            self.order_cores(now, step, job, id, cores);
        }
    }

    /// It has failed and was about no nodes: time that was given or taken goes the same way back.
    pub(super) fn roll_back_time(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let is_running = self.context.state().jobs()[&job].started().is_some_and(|started| started.ending.is_none());
        let Some(negotiation) = self.negotiation(job, id).filter(|_| is_running) else { return };
        let alone = negotiation.dialogue.proposal().filter(|agreed| agreed.n_nodes() == 0);
        let span = alone.map_or(Span::ZERO, |agreed| time_of(agreed.items()));
        let back = match negotiation.direction() {
            Direction::Grow => Span::from_millis(-span.as_millis()),
            Direction::Shrink => span,
        };
        if !back.is_zero() {
            let course = self.course_of(now, job, self.n_nodes(job), back);
            self.set_course(now, step, job, course);
        }
    }
}

/// Is it about cores and about nodes at once, and not as alternatives?
pub(super) fn mixes_cores_with_nodes(template: &Template) -> bool {
    let live = || template.items().iter().filter(|item| item.is_live());
    let cores = || live().filter(|item| matches!(item.resource, Resource::Cores(_)));
    let are_alternatives =
        |one: &Item, other: &Item| one.set == other.set && template.rules()[usize::from(one.set)] == SetRule::OneOf;
    let mut nodes = live().filter(|item| matches!(item.resource, Resource::Nodes(_)));
    nodes.any(|nodes| cores().any(|cores| !are_alternatives(nodes, cores)))
}
