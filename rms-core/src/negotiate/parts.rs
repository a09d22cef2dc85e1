//! Carries out agreed changes of cores, memory and devices on held nodes, and of licences: orders them, awaits the
//! agents, rolls back.
//!
//! A change is ordered by facts, and is ready once the agent of each node has reported that the job's processes are
//! confined to it. Until then, both the old and the new amount count as held; a failed change is rolled back by another
//! order.

use std::collections::BTreeMap;

use negotiation::{Action, Direction, Item, NegotiationId, Reason, Resource, SetRule, Template};
use rms_model::{ClusterId, Devices, Grant, Indices, JobId, Mebibytes, NodeId, Span, Time};

use super::Negotiations;
use super::answer::Availability;
use super::grow::time_of;
use crate::state::fact::Fact;
use crate::state::threads_of_core;
use crate::step::Step;

/// What an application will have of each of its nodes, and its licences.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// CPUs of each node.
    cores: Vec<(NodeId, u32)>,
    /// Grants of the nodes where memory or devices change.
    grants: BTreeMap<NodeId, Grant>,
    licences: BTreeMap<ClusterId, Devices>,
}

impl Parts {
    pub(super) fn is_empty(&self) -> bool {
        self.is_outside_nodes() && self.licences.is_empty()
    }

    /// Returns whether no agent needs to be told.
    fn is_outside_nodes(&self) -> bool {
        self.cores.is_empty() && self.grants.is_empty()
    }
}

impl Negotiations<'_> {
    /// Computes what the job will have after the items that are not about nodes or time.
    ///
    /// # Errors
    /// The job's nodes, or what it has of them, have changed since the agreement.
    pub(super) fn parts_after(&self, now: Time, job: JobId, agreed: &Template) -> Result<Parts, Reason> {
        let mut parts = Parts::default();
        let direction = agreed.direction();
        let longer = if direction == Direction::Grow { time_of(agreed.items()) } else { Span::ZERO };
        for item in agreed.items().iter().filter(|item| item.is_live()) {
            let grant = || match direction {
                Direction::Grow => self.grant_inside(now, job, item, longer),
                Direction::Shrink => self
                    .check_inside_back(job, item)
                    .map_or_else(Availability::Never, |()| Availability::Now(item.quantity)),
            };
            let grant_licences = || match direction {
                Direction::Grow => self.grant_licences(now, job, item, longer),
                Direction::Shrink => self
                    .check_licences(job, item)
                    .map_or_else(Availability::Never, |()| Availability::Now(item.quantity)),
            };
            let grant = match &item.resource {
                Resource::Nodes(_) | Resource::Time => continue,
                Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => grant(),
                Resource::Licences(..) => grant_licences(),
            };
            if !matches!(grant, Availability::Now(most) if most == item.quantity) {
                return Err(Reason::Changed);
            }
            let change = u32::try_from(item.quantity.0).map_err(|_| Reason::Changed)?;
            let changed = |before: u32| match direction {
                Direction::Grow => before.saturating_add(change),
                Direction::Shrink => before.saturating_sub(change),
            };
            if let Resource::Licences(cluster, name) = &item.resource {
                let before = self.context.state().jobs()[&job].licences_on(*cluster);
                let licences = parts.licences.entry(*cluster).or_insert_with(|| before.clone());
                *licences = licences.with(name, changed(licences.count(name)));
                continue;
            }
            for node in self.nodes_inside(job, item)? {
                match &item.resource {
                    Resource::Cores(_) => {
                        let state = self.context.state();
                        let inventory = &state.nodes()[&node].inventory;
                        let n_cpus = changed(self.cores_of(job, node))
                            .saturating_mul(threads_of_core(&state.jobs()[&job].spec, inventory))
                            .min(inventory.cpus);
                        parts.cores.push((node, n_cpus));
                    }
                    Resource::Memory(_) => {
                        let memory = self.memory_of(job, node).0;
                        let memory = match direction {
                            Direction::Grow => memory.saturating_add(item.quantity.0),
                            Direction::Shrink => memory.saturating_sub(item.quantity.0),
                        };
                        self.grant_after(job, node, &mut parts).memory = Mebibytes(memory);
                    }
                    Resource::Devices(_, name) => {
                        let part = self.grant_after(job, node, &mut parts);
                        self.change_devices(node, part, name, direction, change);
                    }
                    Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => {}
                }
            }
        }
        Ok(parts)
    }

    /// Returns the grant that the job will have on a node; it begins as what the job has now.
    fn grant_after<'p>(&self, job: JobId, node: NodeId, parts: &'p mut Parts) -> &'p mut Grant {
        let state = self.context.state();
        parts.grants.entry(node).or_insert_with(|| state.granted_on(job, node).unwrap_or_default())
    }

    /// Orders the agents to apply the new amounts and waits for their reports. Licences to be given back stay the job's
    /// own until then.
    pub(super) fn order_parts(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, parts: Parts) {
        let is_first = self.context.state().jobs()[&job].started().is_some_and(|started| started.evolved.is_none());
        if is_first {
            let course = self.course_of(now, job, self.n_nodes(job), Span::ZERO);
            self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
        }
        let Parts { cores, grants, licences } = parts;
        if !cores.is_empty() {
            let more: BTreeMap<NodeId, Indices> = cores
                .iter()
                .filter_map(|(node, n_cpus)| Some((*node, self.more_cores(job, *node, *n_cpus)?)))
                .collect();
            self.context.record(step, Fact::CoresSet { job, negotiation: id, cores, more, at: Some(now) });
        }
        if !grants.is_empty() {
            // Use the cores that the job has by now.
            let known = self.context.state().jobs()[&job].grants();
            let with_cores = |(node, part): (NodeId, Grant)| match known.get(&node) {
                Some(known) => (node, Grant { cores: known.cores.clone(), ..part }),
                None => (node, part),
            };
            let grants = grants.into_iter().map(with_cores).collect();
            self.context.record(step, Fact::GrantsSet { job, negotiation: id, grants });
        }
        for (cluster, licences) in licences {
            self.context.record(step, Fact::LicencesSet { job, negotiation: id, cluster, licences });
        }
        self.context.launches.remove(&job);
        self.context.passes.wanted = true;
    }

    /// Returns the additional cores of a shared node that the job needs for `n_cpus` CPUs; `None` if it has enough.
    fn more_cores(&self, job: JobId, node: NodeId, n_cpus: u32) -> Option<Indices> {
        let state = self.context.state();
        let entry = &state.jobs()[&job];
        let known = state.nodes().get(&node)?;
        let part = entry.part_of(node, &known.inventory)?;
        let missing = n_cpus
            .div_ceil(threads_of_core(&entry.spec, &known.inventory))
            .checked_sub(part.cores.len())
            .filter(|missing| *missing > 0)?;
        state.shared().more_cores(node, known, (&entry.spec, &part.cores), missing)
    }

    /// Carries out an agreement that is not about nodes: changes inside nodes are ordered and awaited, time and
    /// licences change at once.
    pub(super) fn carry_out(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        (more, agreed): (Span, &Template),
    ) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        if negotiation.is_handed_over {
            return self.await_agents(now, step, job, id, agreed);
        }
        let mut parts = match self.parts_after(now, job, agreed) {
            Ok(parts) => parts,
            Err(reason) => {
                let _ = self.act(now, step, job, id, Action::Fail(reason));
                return;
            }
        };
        if !more.is_zero() {
            let course = self.course_of(now, job, self.n_nodes(job), more);
            self.set_course(now, step, job, course);
        }
        let is_ready = parts.is_outside_nodes();
        if agreed.direction() == Direction::Shrink && !is_ready {
            // The change may fail, and then the job keeps its licences.
            parts.licences.clear();
        }
        if !parts.is_empty() {
            self.order_parts(now, step, job, id, parts);
        }
        if is_ready {
            self.send_holdings(now, step);
            let _ = self.act(now, step, job, id, Action::Ready);
        }
    }

    fn await_agents(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, agreed: &Template) {
        if !self.awaits_agents(job) {
            if agreed.direction() == Direction::Shrink {
                self.give_licences_back(now, step, job, id, agreed);
            }
            // The negotiator must know the new holding before it hears that the change is ready.
            self.send_holdings(now, step);
            let _ = self.act(now, step, job, id, Action::Ready);
        }
    }

    fn give_licences_back(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, agreed: &Template) {
        let of_licences = |item: &&Item| item.is_live() && matches!(item.resource, Resource::Licences(..));
        let items: Vec<Item> =
            agreed.items().iter().filter(of_licences).map(|item| Item { set: 0, ..item.clone() }).collect();
        let alone = Template::new(agreed.parties(), agreed.direction(), vec![SetRule::All], items);
        // Without licences there is no template.
        let parts = alone.ok().and_then(|alone| self.parts_after(now, job, &alone).ok());
        parts.into_iter().for_each(|parts| self.order_parts(now, step, job, id, parts));
    }

    /// Handles an agent's report up to which generation the job's processes are confined to their cores on its node, or
    /// that they are not.
    pub(crate) fn confinement_reported(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, node): (JobId, NodeId),
        generation: u32,
        is_confined: bool,
    ) {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        // Ignore generations that do not exist yet.
        let started = started.filter(|started| generation <= started.generation());
        let evolved = started.and_then(|started| started.evolved.as_ref());
        let cores = evolved.and_then(|evolved| evolved.places.get(&node)?.cores);
        let cores = cores.filter(|cores| !cores.is_in_force && cores.generation <= generation).map(|cores| cores.by);
        let changed = evolved.and_then(|evolved| evolved.changed.get(&node));
        let changed = changed.filter(|changed| !changed.is_in_force && changed.generation <= generation);
        let Some(by) = cores.or(changed.map(|changed| changed.by)) else { return };
        if is_confined {
            self.context.record(step, Fact::CoresInForce { job, node, generation });
            self.context.passes.wanted = true;
        } else if self.negotiation(job, by).is_some_and(|negotiation| !negotiation.phase().is_over()) {
            let _ = self.act(now, step, job, by, Action::Fail(Reason::Lost));
        }
    }

    /// Gives the job back, on every node, what it had before a failed negotiation.
    pub(super) fn roll_back_parts(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(started) = self.context.state().jobs()[&job].started().filter(|started| started.ending.is_none())
        else {
            return;
        };
        let Some(evolved) = &started.evolved else { return };
        let by_this =
            |node: &&NodeId| evolved.places.get(node).and_then(|place| place.cores).filter(|cores| cores.by == id);
        let cores = started.nodes.iter().filter_map(|node| Some((*node, by_this(&node)?.was))).collect();
        let changed = evolved.changed.iter().filter(|(node, changed)| changed.by == id && started.nodes.contains(node));
        let grants = changed.map(|(node, changed)| (*node, changed.was.clone())).collect();
        let licences = evolved.licences.iter().filter(|(_, own)| own.by == id && own.licences != own.was);
        let licences = licences.map(|(cluster, own)| (*cluster, own.was.clone())).collect();
        let parts = Parts { cores, grants, licences };
        if !parts.is_empty() {
            self.order_parts(now, step, job, id, parts);
        }
    }

    /// Reverts the change of wall time of a failed negotiation that was not about nodes.
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
