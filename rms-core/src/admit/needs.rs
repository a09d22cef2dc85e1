//! What each node of a job must have, and which numbers of nodes are possible for its tasks.

use rms_api::refusal::Refusal;
use rms_model::job::{Constraint, TaskCount};
use rms_model::{Allocation, ClusterId, Devices, Inventory, JobSpec, Mebibytes, ResourceRequest};

use crate::state::State;

/// What a job requests of its nodes, whatever their number.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) tasks: TaskCount,
    pub(crate) cpus_per_task: u32,
    pub(crate) constraint: &'a Constraint,
    pub(crate) resources: &'a ResourceRequest,
}

/// What each node must have for a given number of nodes.
pub(crate) struct Needs<'a> {
    constraint: &'a Constraint,
    pub(crate) tasks: u32,
    /// CPUs, or cores where one thread of each is used.
    pub(crate) cpus: u32,
    one_thread_a_core: bool,
    pub(crate) memory: Mebibytes,
    pub(crate) devices: Devices,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(spec: &'a JobSpec) -> Asked<'a> {
        let JobSpec { tasks, cpus_per_task, constraint, resources, .. } = spec;
        Asked { tasks: *tasks, cpus_per_task: *cpus_per_task, constraint, resources }
    }

    /// Returns whether the job shares its nodes with other jobs.
    pub(super) fn shares_nodes(&self, state: &State, cluster: ClusterId) -> bool {
        let is_alone = self.resources.exclusive || self.cpus_per_task == 0;
        let name = &state.clusters()[&cluster];
        !is_alone && state.settings().allocation_of(name) == Allocation::Cores
    }

    /// Checks that a job would have no more CPUs on this cluster, with `wanted` of its `n_nodes` nodes, than a job may.
    ///
    /// # Errors
    /// It would have more.
    pub(crate) fn check_limit(
        &self,
        state: &State,
        cluster: ClusterId,
        (wanted, n_nodes): (u32, u32),
    ) -> Result<(), Refusal> {
        let name = &state.clusters()[&cluster];
        let Some(most) = state.settings().max_cpus_of(name) else { return Ok(()) };
        // Exact for a job on one cluster; its part for a job on several.
        let n_tasks = u64::from(self.tasks.total(n_nodes)) * u64::from(wanted) / u64::from(n_nodes.max(1));
        let of_tasks = n_tasks.saturating_mul(self.cpus_per_task.max(1).into());
        let cpus = match self.shares_nodes(state, cluster) {
            true => of_tasks,
            false => of_tasks.max(self.least_cpus_of(state, cluster, (wanted, n_nodes))),
        };
        match cpus > most.into() {
            true => Err(Refusal::CpuLimit { cpus, most, cluster: name.clone() }),
            false => Ok(()),
        }
    }

    /// Returns the CPUs of the `wanted` smallest nodes that meet the needs; which nodes it gets is not known yet.
    fn least_cpus_of(&self, state: &State, cluster: ClusterId, (wanted, n_nodes): (u32, u32)) -> u64 {
        let needs = self.on_each_of(n_nodes);
        let kinds = state.kinds_allowed(cluster, self.constraint).into_iter();
        let mut kinds: Vec<(u32, u32)> = kinds
            .filter(|(inventory, _)| needs.are_met_by(inventory))
            .map(|(inventory, n_alike)| (inventory.cpus, n_alike))
            .collect();
        kinds.sort_unstable();
        let mut left = wanted;
        let cpus = kinds.into_iter().map(|(cpus, n_alike)| {
            let n_taken = n_alike.min(left);
            left -= n_taken;
            u64::from(cpus) * u64::from(n_taken)
        });
        cpus.sum()
    }

    pub(crate) fn on_each_of(&self, n_nodes: u32) -> Needs<'a> {
        let tasks = self.tasks.most_on_a_node(n_nodes);
        let cpus = tasks.saturating_mul(self.cpus_per_task);
        let per_cpu = self.resources.memory_per_cpu.0.saturating_mul(u64::from(cpus.max(1)));
        let mut devices = self.resources.devices_on_each(n_nodes);
        self.constraint.devices.iter().for_each(|(name, count)| devices.add(name, count));
        Needs {
            constraint: self.constraint,
            tasks,
            // The constraint counts CPUs, also where the tasks count cores.
            cpus: if self.resources.one_thread_a_core { cpus } else { cpus.max(self.constraint.cpus) },
            one_thread_a_core: self.resources.one_thread_a_core,
            memory: self.constraint.memory.max(Mebibytes(per_cpu)),
            devices,
        }
    }

    /// Returns how many tasks fit on such a node; at least one, so that the reason can be given if none fits.
    pub(crate) fn tasks_on(&self, inventory: &Inventory) -> u32 {
        let ResourceRequest { memory_per_cpu, tasks_per_node, one_thread_a_core, .. } = self.resources;
        let cpus_per_task = self.cpus_per_task.max(1);
        // Tasks that share the CPUs of their node are not limited.
        let by_cpus = match self.cpus_per_task {
            0 => u32::MAX,
            _ => cpus(inventory, *one_thread_a_core) / cpus_per_task,
        };
        let by_memory = match memory_per_cpu.0.saturating_mul(u64::from(cpus_per_task)) {
            0 => u32::MAX,
            of_task => u32::try_from(inventory.memory.0 / of_task).unwrap_or(u32::MAX),
        };
        let by_word = if *tasks_per_node == 0 { u32::MAX } else { *tasks_per_node };
        by_cpus.min(by_memory).min(by_word).max(1)
    }

    /// Returns the numbers of nodes, ascending and at most `most`, over which the tasks and the totals requested are
    /// spread evenly enough: the idle part is at most a quarter of what is used.
    pub(crate) fn even_counts(&self, most: u32, tasks_a_node: u32) -> Vec<u32> {
        let n_tasks = match self.tasks {
            TaskCount::Total(n_tasks) => n_tasks,
            TaskCount::PerNode(_) => {
                let least = self.resources.devices_in_all.iter().map(|(_, count)| count).min().unwrap_or(1);
                return (1..=most.min(least)).filter(|n_nodes| self.divides(*n_nodes)).collect();
            }
        };
        let mut counts = Vec::new();
        let mut tasks = tasks_a_node.clamp(1, n_tasks.max(1));
        while tasks > 0 {
            let n_nodes = n_tasks.div_ceil(tasks);
            if n_nodes > most {
                break;
            }
            let on_fullest = n_tasks.div_ceil(n_nodes);
            let n_idle = u64::from(on_fullest) * u64::from(n_nodes) - u64::from(n_tasks);
            let is_even = n_idle * 4 <= u64::from(n_tasks) || counts.is_empty();
            if is_even && self.divides(n_nodes) {
                counts.push(n_nodes);
            }
            tasks = on_fullest - 1;
        }
        counts
    }

    /// Returns whether the devices requested in total divide evenly by this number of nodes.
    fn divides(&self, n_nodes: u32) -> bool {
        self.resources.devices_in_all.iter().all(|(_, count)| count.is_multiple_of(n_nodes.max(1)))
    }

    /// Checks a number of nodes, whichever nodes they are.
    ///
    /// # Errors
    /// More tasks than allowed on them, or devices that do not divide evenly.
    pub(crate) fn check(&self, n_nodes: u32) -> Result<(), Refusal> {
        let per_node = self.resources.tasks_per_node;
        if let TaskCount::Total(n_tasks) = self.tasks
            && per_node > 0
            && n_tasks.div_ceil(n_nodes.max(1)) > per_node
        {
            return Err(Refusal::TasksPerNode { n_tasks, per_node, n_nodes });
        }
        match self.resources.devices_in_all.iter().find(|(_, count)| !count.is_multiple_of(n_nodes.max(1))) {
            Some((name, count)) => Err(Refusal::UnevenDevices { name: name.to_owned(), count, n_nodes }),
            None => Ok(()),
        }
    }
}

impl Needs<'_> {
    pub(crate) fn has_cpus(&self, inventory: &Inventory) -> bool {
        cpus(inventory, self.one_thread_a_core) >= self.cpus
    }

    pub(crate) fn has_memory(&self, inventory: &Inventory) -> bool {
        inventory.memory >= self.memory
    }

    pub(crate) fn has_devices(&self, inventory: &Inventory) -> bool {
        inventory.devices.cover(&self.devices)
    }

    /// Returns whether a node of this kind meets the needs.
    pub(crate) fn are_met_by(&self, inventory: &Inventory) -> bool {
        self.constraint.is_met_by(inventory)
            && self.has_cpus(inventory)
            && self.has_memory(inventory)
            && self.has_devices(inventory)
    }
}

/// Returns what `-c` counts on this node: cores or CPUs.
pub(crate) fn cpus(inventory: &Inventory, one_thread_a_core: bool) -> u32 {
    if one_thread_a_core { inventory.cores } else { inventory.cpus }
}

/// Returns at most `most` of ascending counts, including the first and the last.
pub(crate) fn thinned(counts: &[u32], most: usize) -> Vec<u32> {
    if counts.len() <= most {
        return counts.to_vec();
    }
    (0..most).map(|place| counts[place * (counts.len() - 1) / (most - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_spread_over_numbers_of_nodes_that_leave_little_idle() {
        let (constraint, resources) = (Constraint::default(), ResourceRequest::default());
        let counts = |n_tasks, tasks_a_node, most| {
            let tasks = TaskCount::Total(n_tasks);
            let asked = Asked { tasks, cpus_per_task: 1, constraint: &constraint, resources: &resources };
            asked.even_counts(most, tasks_a_node)
        };
        assert_eq!(counts(16, 8, 100), [2, 3, 4, 6, 8, 16]);
        assert_eq!(counts(16, 8, 5), [2, 3, 4]);
        assert_eq!(counts(7, 4, 100), [2, 4, 7]);
        assert_eq!(counts(1, 64, 100), [1]);
        assert_eq!(counts(9, 8, 100), [2, 3, 5, 9], "the fewest, however uneven");
        assert_eq!(counts(u32::MAX, u32::MAX, 3), [1, 2, 3]);
        assert_eq!(thinned(&[1, 2, 3, 4, 5], 3), [1, 3, 5]);
    }

    #[test]
    fn devices_in_all_are_as_many_on_each_node() {
        let constraint = Constraint::default();
        let devices_in_all = "gpu:4,fpga:8".parse().expect("devices");
        let resources = ResourceRequest { devices_in_all, ..ResourceRequest::default() };
        let asked = |tasks| Asked { tasks, cpus_per_task: 1, constraint: &constraint, resources: &resources };
        assert_eq!(asked(TaskCount::PerNode(1)).even_counts(100, 1), [1, 2, 4]);
        assert_eq!(asked(TaskCount::Total(6)).even_counts(100, 6), [1, 2], "of three nodes, each would have 4/3");
    }
}
