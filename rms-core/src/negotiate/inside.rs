//! Resources inside the nodes of an application that may be negotiated (cores, memory and devices), and licences: how
//! much the application has, and how much more it could have.

use negotiation::{Direction, Item, Quantity, Reason, Resource, SetRule, Template};
use rms_model::{ClusterId, Devices, Inventory, JobId, Mebibytes, NodeId, Slice, Span, Time};

use super::Negotiations;
use super::answer::Availability;
use crate::plan;
use crate::state::job::{Phase, Started};
use crate::state::{constraint_of, threads_of_core};

impl Negotiations<'_> {
    /// Returns how much more the application can get on each node of the item: as much as the node with the least left
    /// has, until the application ends, which the same negotiation may delay by `longer`.
    pub(super) fn grant_inside(&self, now: Time, job: JobId, item: &Item, longer: Span) -> Availability {
        let Some(cluster) = cluster_of(&item.resource) else { return Availability::Never(Reason::Policy) };
        let nodes = match self.nodes_inside(job, item) {
            Ok(nodes) => nodes,
            Err(reason) => return Availability::Never(reason),
        };
        if self.awaits_agents(job) {
            return Availability::Later;
        }
        let room = self.spare_inside(now, job, &item.resource, &nodes, longer).into_iter().min().unwrap_or(0);
        let most = Quantity(item.quantity.0.min(room));
        // No job has to give any back; on a shared node there may be more when another job ends.
        let state = self.context.state();
        let no_room =
            if state.is_shared(cluster) { Availability::Later } else { Availability::Never(Reason::NoResources) };
        item.greatest(Direction::Grow, most).map_or(no_room, Availability::Now)
    }

    /// Checks that the application can give this back.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn check_inside_back(&self, job: JobId, item: &Item) -> Result<(), Reason> {
        let nodes = self.nodes_inside(job, item)?;
        // One change at a time: otherwise it would be unknown what a failed one is to be rolled back to.
        if self.awaits_agents(job) {
            return Err(Reason::Changed);
        }
        let keeps_enough = |node: &NodeId| {
            let held = self.held_inside(job, &item.resource, *node);
            match &item.resource {
                Resource::Devices(..) => item.quantity.0 <= held,
                Resource::Cores(_) | Resource::Memory(_) => item.quantity.0 < held,
                Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => false,
            }
        };
        if nodes.iter().all(keeps_enough) { Ok(()) } else { Err(Reason::Policy) }
    }

    /// Returns the nodes that an item is about: those it names, or all that the application holds on the cluster.
    ///
    /// # Errors
    /// The nodes are not the application's, it holds another amount there than the item says, or the resource is not
    /// counted there.
    pub(super) fn nodes_inside(&self, job: JobId, item: &Item) -> Result<Vec<NodeId>, Reason> {
        let cluster = cluster_of(&item.resource).ok_or(Reason::Policy)?;
        // A loan would have to be taken back by force: a job's threads cannot be asked to return it.
        if item.terms.duration.is_some() || item.terms.give_back_by.is_some() {
            return Err(Reason::Policy);
        }
        let is_counted = match &item.resource {
            Resource::Cores(_) => true,
            // Where a node belongs to one job at a time, so do all its memory and devices.
            Resource::Memory(_) | Resource::Devices(..) => self.context.state().is_shared(cluster),
            Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => false,
        };
        let nodes = self.staying_on(job, cluster);
        let (are_its_own, nodes) = match item.nodes.is_empty() {
            true => (!nodes.is_empty(), nodes),
            false => (item.nodes.iter().all(|node| nodes.contains(node)), item.nodes.iter().copied().collect()),
        };
        if !are_its_own || !is_counted {
            return Err(Reason::Policy);
        }
        if self.least_inside(job, &item.resource, &nodes) != item.held {
            return Err(Reason::Changed);
        }
        // A job that requested no memory has no limit, so nothing can be added or taken.
        let is_unlimited = matches!(item.resource, Resource::Memory(_)) && item.held == Quantity(0);
        if is_unlimited { Err(Reason::Policy) } else { Ok(nodes) }
    }

    /// Returns the job's nodes of a cluster, except those that it is to leave.
    pub(super) fn staying_on(&self, job: JobId, cluster: ClusterId) -> Vec<NodeId> {
        let Some(started) = self.context.state().jobs()[&job].started() else { return Vec::new() };
        let is_meant = |node: &&NodeId| {
            let is_departing = started.evolved.as_ref().is_some_and(|evolved| evolved.departing.contains_key(node));
            self.context.state().nodes()[*node].cluster == cluster && !is_departing
        };
        started.nodes.iter().filter(is_meant).copied().collect()
    }

    /// Returns what an item about these nodes states as held: the least that the job has on any of them.
    pub(super) fn least_inside(&self, job: JobId, resource: &Resource, nodes: &[NodeId]) -> Quantity {
        let least = nodes.iter().map(|node| self.held_inside(job, resource, *node)).min();
        Quantity(least.unwrap_or(0))
    }

    pub(super) fn held_inside(&self, job: JobId, resource: &Resource, node: NodeId) -> u64 {
        match resource {
            Resource::Cores(_) => self.cores_of(job, node).into(),
            Resource::Memory(_) => self.memory_of(job, node).0,
            Resource::Devices(_, name) => {
                self.devices_of(job, node).serving(name).map(|(_, count)| u64::from(count)).sum()
            }
            Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => 0,
        }
    }

    /// Returns how many cores of a node the job has.
    pub(super) fn cores_of(&self, job: JobId, node: NodeId) -> u32 {
        let (entry, known) = (&self.context.state().jobs()[&job], &self.context.state().nodes()[&node].inventory);
        let n_cpus = entry.started().map_or(0, |started| started.cores_on(node, entry.cpus_given(node, known)));
        n_cpus.div_ceil(threads_of_core(&entry.spec, known)).min(known.cores)
    }

    /// Returns how many CPUs of a node the job's processes may certainly use, without what it lends.
    pub(super) fn cpus_usable(&self, job: JobId, node: NodeId) -> u32 {
        let (entry, known) = (&self.context.state().jobs()[&job], &self.context.state().nodes()[&node].inventory);
        entry.started().map_or(0, |started| {
            let usable = started.cores_usable_on(node, entry.cpus_given(node, known));
            usable.saturating_sub(started.n_lent_on(node).saturating_mul(threads_of_core(&entry.spec, known)))
        })
    }

    /// Returns the memory of a node that the job was given; 0: it has no limit.
    pub(crate) fn memory_of(&self, job: JobId, node: NodeId) -> Mebibytes {
        let state = self.context.state();
        let (entry, known) = (&state.jobs()[&job], &state.nodes()[&node].inventory);
        match (entry.part_of(node, known), entry.started()) {
            (Some(part), _) => part.memory,
            // The job may have requested less than the whole node that it has.
            (None, Some(started)) => match constraint_of(&entry.spec, &started.request).memory {
                Mebibytes(0) => known.memory,
                asked => asked,
            },
            (None, None) => Mebibytes(0),
        }
    }

    pub(crate) fn devices_of(&self, job: JobId, node: NodeId) -> Devices {
        let state = self.context.state();
        let part = state.jobs()[&job].part_of(node, &state.nodes()[&node].inventory);
        part.or_else(|| state.granted_on(job, node)).map_or_else(Devices::default, |part| part.amount().devices)
    }

    /// Returns what is left of each node: what no job has, or is planned to have before this one ends.
    fn spare_inside(&self, now: Time, job: JobId, resource: &Resource, nodes: &[NodeId], longer: Span) -> Vec<u64> {
        let state = self.context.state();
        let are_shared = nodes.iter().any(|node| state.is_shared(state.nodes()[node].cluster));
        if !are_shared {
            return nodes.iter().map(|node| self.spare_on_own(job, *node).into()).collect();
        }
        let spare = plan::spare(state, now, job, nodes, longer);
        let spare = nodes.iter().zip(spare).map(|(node, spare)| {
            let inventory = &state.nodes()[node].inventory;
            match resource {
                Resource::Cores(_) => self.spare_cores(job, *node, inventory, &spare).into(),
                Resource::Memory(_) => {
                    let is_alone = state.jobs()[&job].part_of(*node, inventory).is_none();
                    let own = if is_alone {
                        inventory.memory.0 - self.memory_of(job, *node).0.min(inventory.memory.0)
                    } else {
                        0
                    };
                    spare.memory.0.saturating_add(own)
                }
                Resource::Devices(_, name) => spare.devices.serving(name).map(|(_, count)| u64::from(count)).sum(),
                Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => 0,
            }
        });
        spare.collect()
    }

    fn spare_cores(&self, job: JobId, node: NodeId, inventory: &Inventory, spare: &Slice) -> u32 {
        let entry = &self.context.state().jobs()[&job];
        let n_own = entry.part_of(node, inventory).map_or(inventory.cores, |part| part.cores.len());
        (n_own + spare.cores).min(inventory.cores).saturating_sub(self.cores_of(job, node))
    }

    /// Returns the spare cores of a node that belongs to one job at a time.
    fn spare_on_own(&self, job: JobId, node: NodeId) -> u32 {
        let inventory = &self.context.state().nodes()[&node].inventory;
        let all = inventory.cpus;
        let others = self.context.state().nodes()[&node].holders.iter().filter(|holder| **holder != job);
        let of_others = others.map(|holder| match self.context.state().jobs().get(holder).map(|entry| &entry.phase) {
            Some(Phase::Started(started)) => started.cores_kept_on(node, all),
            // A job that may get the node, and a ghost, keep it whole.
            Some(Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Ghost(_)) | None => all,
        });
        let of_others = of_others.fold(0, u32::saturating_add);
        let n_cores =
            all.saturating_sub(of_others) / threads_of_core(&self.context.state().jobs()[&job].spec, inventory);
        n_cores.min(inventory.cores).saturating_sub(self.cores_of(job, node))
    }

    /// Returns whether an agent has yet to confirm that the job keeps to its latest grant.
    pub(super) fn awaits_agents(&self, job: JobId) -> bool {
        self.context.state().jobs()[&job].started().is_some_and(Started::awaits_agents)
    }

    /// Returns whether the item needs more than the nodes, or the cluster, have at all. Waiting is useless then.
    pub(super) fn exceeds_nodes(&self, job: JobId, item: &Item) -> bool {
        let Some(cluster) = cluster_of(&item.resource) else { return false };
        let state = self.context.state();
        let least = item.held.0.saturating_add(item.terms.least.0);
        let has_enough = |node: &NodeId| {
            let Some(known) = state.nodes().get(node) else { return false };
            let all = match &item.resource {
                Resource::Cores(_) => known.inventory.cores.into(),
                Resource::Memory(_) => known.inventory.memory.0,
                Resource::Devices(_, name) => {
                    known.inventory.devices.serving(name).map(|(_, count)| u64::from(count)).sum()
                }
                Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => u64::MAX,
            };
            all >= least
        };
        match &item.resource {
            Resource::Licences(_, name) => u64::from(self.all_licences(cluster, name)) < least,
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) if item.nodes.is_empty() => {
                !self.staying_on(job, cluster).iter().all(has_enough)
            }
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => !item.nodes.iter().all(has_enough),
            Resource::Nodes(_) | Resource::Time => false,
        }
    }

    /// Adds `count` devices of a node to a grant, or removes as many, the last ones first.
    pub(super) fn change_devices(
        &self,
        node: NodeId,
        part: &mut rms_model::Grant,
        name: &str,
        direction: Direction,
        mut count: u32,
    ) {
        let state = self.context.state();
        let Some(known) = state.nodes().get(&node) else { return };
        match direction {
            Direction::Grow => {
                // Kinds that it has already come first, so that its devices are alike where possible.
                let serving = known.inventory.devices.serving(name);
                let mut names: Vec<String> = serving.map(|(own, _)| own.to_owned()).collect();
                names.sort_by_key(|own| part.devices.get(own).is_none_or(rms_model::Indices::is_empty));
                for own in names {
                    let more = state.shared().more_devices(node, known, &own, count);
                    count -= more.len();
                    if !more.is_empty() {
                        part.devices.entry(own).or_default().insert_all(&more);
                    }
                }
            }
            Direction::Shrink => {
                for (_, indices) in part.devices.iter_mut().rev().filter(|(own, _)| Devices::serves(own, name)) {
                    let n_kept = indices.len().saturating_sub(count);
                    count -= indices.len() - n_kept;
                    *indices = indices.iter().take(n_kept as usize).collect();
                }
                part.devices.retain(|_, indices| !indices.is_empty());
            }
        }
    }

    fn all_licences(&self, cluster: ClusterId, name: &str) -> u32 {
        let state = self.context.state();
        state.clusters().get(&cluster).map_or(0, |known| state.settings().licences_of(known).count(name))
    }

    /// Returns how many licences of this name the job has of a cluster.
    pub(super) fn n_licences(&self, job: JobId, cluster: ClusterId, name: &str) -> u32 {
        match self.n_nodes_on(job, cluster) {
            0 => 0,
            _ => self.context.state().jobs()[&job].licences_on(cluster).count(name),
        }
    }

    /// Returns how many more licences of a cluster the application can get: those that no job has, or is planned to
    /// have before the application ends.
    pub(super) fn grant_licences(&self, now: Time, job: JobId, item: &Item, longer: Span) -> Availability {
        let Resource::Licences(cluster, name) = &item.resource else { return Availability::Never(Reason::Policy) };
        if let Err(reason) = self.check_licences(job, item) {
            return Availability::Never(reason);
        }
        let spare = plan::spare_licences(self.context.state(), now, job, *cluster, name, longer);
        let most = Quantity(item.quantity.0.min(spare.into()));
        item.greatest(Direction::Grow, most).map_or(Availability::Later, Availability::Now)
    }

    /// Checks that these licences can be negotiated.
    ///
    /// # Errors
    /// The job has no node of their cluster, or another number of them than the item says.
    pub(super) fn check_licences(&self, job: JobId, item: &Item) -> Result<(), Reason> {
        let Resource::Licences(cluster, name) = &item.resource else { return Err(Reason::Policy) };
        let is_lent = item.terms.duration.is_some() || item.terms.give_back_by.is_some();
        if is_lent || self.n_nodes_on(job, *cluster) == 0 {
            return Err(Reason::Policy);
        }
        let is_as_held = item.held.0 == u64::from(self.n_licences(job, *cluster, name));
        if is_as_held { Ok(()) } else { Err(Reason::Changed) }
    }
}

/// Returns the cluster of a resource, `None` for time.
fn cluster_of(resource: &Resource) -> Option<ClusterId> {
    match resource {
        Resource::Nodes(cluster)
        | Resource::Cores(cluster)
        | Resource::Memory(cluster)
        | Resource::Devices(cluster, _)
        | Resource::Licences(cluster, _) => Some(*cluster),
        Resource::Time => None,
    }
}

/// Returns whether a template is about nodes and also about resources inside nodes or licences, and not as
/// alternatives.
pub(super) fn mixes_with_nodes(template: &Template) -> bool {
    let live = || template.items().iter().filter(|item| item.is_live());
    let is_inside = |item: &&Item| item.resource.is_inside_nodes() || matches!(item.resource, Resource::Licences(..));
    let are_alternatives =
        |one: &Item, other: &Item| one.set == other.set && template.rules()[usize::from(one.set)] == SetRule::OneOf;
    let mut nodes = live().filter(|item| matches!(item.resource, Resource::Nodes(_)));
    nodes.any(|nodes| live().filter(is_inside).any(|inside| !are_alternatives(nodes, inside)))
}
