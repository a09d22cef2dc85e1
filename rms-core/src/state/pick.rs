//! Chooses the cores that a job gets of a node: in one NUMA domain or package where possible, and tasks that span no
//! packages.

use std::ops::Range;

use rms_model::{Indices, Inventory, JobSpec};

use super::threads_of_core;

/// How many logical CPUs a task has, and how many of them a core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskSize {
    cpus: u32,
    cpus_per_core: u32,
}

/// The free cores of a package, and how many of its cores the job has already.
struct Package {
    free: Vec<u32>,
    n_own: u32,
}

/// The cores that tasks take in addition to those that the job has, and from how many packages. The order says which
/// way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    n_cores: u32,
    n_packages: u32,
}

impl TaskSize {
    pub(super) fn of(spec: &JobSpec, inventory: &Inventory) -> TaskSize {
        TaskSize { cpus: spec.cpus_per_task.max(1), cpus_per_core: threads_of_core(spec, inventory) }
    }

    /// Returns how many tasks have room in this number of cores.
    fn n_tasks(self, n_cores: u32) -> u32 {
        n_cores.saturating_mul(self.cpus_per_core) / self.cpus
    }

    fn n_cores(self, n_tasks: u32) -> u32 {
        n_tasks.saturating_mul(self.cpus).div_ceil(self.cpus_per_core)
    }
}

/// Chooses `n_cores` cores that are not taken, beside the job's own ones: in the NUMA domain, otherwise the package,
/// where it has cores already; otherwise in the fullest domain with room, otherwise in the fullest package. Where no
/// package has room, as few tasks as possible span packages.
pub(super) fn pick_cores(
    inventory: &Inventory,
    taken: &Indices,
    own: &Indices,
    n_cores: u32,
    task: TaskSize,
) -> Indices {
    let free = |cores: Range<u32>| cores.filter(|core| !taken.contains(*core)).collect::<Vec<u32>>();
    let has_room = |cores: &Vec<u32>| cores.len() >= n_cores as usize;
    // A NUMA domain of several packages is not what is wanted.
    let is_in_one = |cores: &Range<u32>| {
        inventory.packages().any(|package| package.start <= cores.start && cores.end <= package.end)
    };
    let domains = || inventory.domains().filter(is_in_one);
    let has_own = |cores: &Range<u32>| cores.clone().any(|core| own.contains(core));
    let of_own_domain = || domains().filter(has_own).map(free).filter(has_room).min_by_key(Vec::len);
    let of_own_package = || inventory.packages().filter(has_own).map(free).filter(has_room).min_by_key(Vec::len);
    let of_domain = || domains().map(free).filter(has_room).min_by_key(Vec::len);
    let of_package = || inventory.packages().map(free).filter(has_room).min_by_key(Vec::len);
    let near = if own.is_empty() { None } else { of_own_domain().or_else(of_own_package) };
    let cores = near.or_else(of_domain).or_else(of_package).unwrap_or_else(|| {
        let package = |cores: Range<u32>| Package {
            n_own: cores.clone().filter(|core| own.contains(*core)).count() as u32,
            free: free(cores),
        };
        of_packages(&inventory.packages().map(package).collect::<Vec<Package>>(), n_cores, task)
    });
    cores.into_iter().take(n_cores as usize).collect()
}

/// Chooses cores of several packages: for as many tasks as possible that are in one package each, of as few packages as
/// possible; the others are neighbouring ones.
fn of_packages(packages: &[Package], n_cores: u32, task: TaskSize) -> Vec<u32> {
    let n_own: u32 = packages.iter().map(|package| package.n_own).sum();
    let most = task.n_tasks(n_cores + n_own);
    // Tasks of which a core holds a whole number never span two cores.
    let are_within_cores = task.cpus_per_core.is_multiple_of(task.cpus);
    let n_tasks = if are_within_cores { vec![0; packages.len()] } else { spread(packages, n_cores, most, task) };
    let n_needed = |(package, n_tasks): (&Package, u32)| task.n_cores(n_tasks).saturating_sub(package.n_own);
    let mut n_of_each: Vec<u32> = packages.iter().zip(n_tasks).map(n_needed).collect();
    let mut n_left = n_cores.saturating_sub(n_of_each.iter().sum());
    let mut used_first: Vec<usize> = (0..packages.len()).collect();
    used_first.sort_by_key(|idx| n_of_each[*idx] == 0);
    for idx in used_first {
        let n_more = n_left.min(packages[idx].free.len() as u32 - n_of_each[idx]);
        n_of_each[idx] += n_more;
        n_left -= n_more;
    }
    packages.iter().zip(n_of_each).flat_map(|(package, n)| package.free.iter().take(n as usize)).copied().collect()
}

/// Returns how many tasks each package holds, such that these are as many as possible, up to `most`, in the own cores
/// and `n_cores` further ones.
fn spread(packages: &[Package], n_cores: u32, most: u32, task: TaskSize) -> Vec<u32> {
    // By number of tasks: the cheapest way to place them in the packages so far, and how many are in the last of these.
    let mut ways: Vec<Vec<Option<(Cost, u32)>>> = Vec::with_capacity(packages.len());
    let mut before = vec![Some((Cost { n_cores: 0, n_packages: 0 }, 0))];
    for package in packages {
        let n_most_here = task.n_tasks(package.n_own + package.free.len() as u32);
        let mut after = vec![None; (before.len() + n_most_here as usize).min(most as usize + 1)];
        for (n_before, cost) in before.iter().enumerate().filter_map(|(n_before, way)| Some((n_before, (*way)?.0))) {
            for (n_here, way) in (0..=n_most_here).zip(&mut after[n_before..]) {
                let n_cores = task.n_cores(n_here).saturating_sub(package.n_own);
                let n_packages = cost.n_packages + u32::from(n_cores > 0);
                let cost = Cost { n_cores: cost.n_cores + n_cores, n_packages };
                if way.is_none_or(|(known, _)| cost < known) {
                    *way = Some((cost, n_here));
                }
            }
        }
        before.clone_from(&after);
        ways.push(after);
    }
    let has_cores = |way: &Option<(Cost, u32)>| way.is_some_and(|(cost, _)| cost.n_cores <= n_cores);
    let mut n_left = before.iter().rposition(has_cores).unwrap_or(0);
    let mut n_tasks = vec![0; packages.len()];
    for (ways, n_tasks) in ways.iter().zip(&mut n_tasks).rev() {
        *n_tasks = ways[n_left].map_or(0, |(_, n_here)| n_here);
        n_left -= *n_tasks as usize;
    }
    n_tasks
}

#[cfg(test)]
mod tests {
    use test_kit::{Dice, for_seeds};

    use super::*;

    const CORE: TaskSize = TaskSize { cpus: 1, cpus_per_core: 1 };

    fn node(sockets: u32, numa_nodes: u32, cores: u32) -> Inventory {
        Inventory { sockets, numa_nodes, cores, cpus: cores, ..Inventory::default() }
    }

    fn indices(cores: &[u32]) -> Indices {
        cores.iter().copied().collect()
    }

    fn picked(taken: &[u32], wanted: u32, inventory: &Inventory) -> String {
        pick_cores(inventory, &indices(taken), &Indices::default(), wanted, CORE).to_string()
    }

    #[test]
    fn cores_come_from_the_fullest_domain_that_has_room() {
        let inventory = node(2, 4, 16);
        assert_eq!(picked(&[], 4, &inventory), "0-3");
        assert_eq!(picked(&[0, 1, 4], 2, &inventory), "2-3");
        assert_eq!(picked(&[0, 1, 4], 3, &inventory), "5-7");
        assert_eq!(picked(&[0, 1, 4], 4, &inventory), "8-11");
    }

    #[test]
    fn cores_straddle_domains_before_packages_and_packages_only_where_they_must() {
        let inventory = node(2, 4, 16);
        assert_eq!(picked(&[0], 6, &inventory), "1-6");
        assert_eq!(picked(&[0, 8, 9, 10], 5, &inventory), "11-15");
        assert_eq!(picked(&[0, 1, 2, 8, 9, 10], 9, &inventory), "3-7,11-14");
    }

    #[test]
    fn domains_that_do_not_divide_the_cores_are_told_apart() {
        assert_eq!(picked(&[0, 4], 2, &node(3, 3, 10)), "5-6");
        // One domain over two packages.
        assert_eq!(picked(&[0, 1, 2], 2, &node(2, 1, 8)), "4-5");
    }

    #[test]
    fn cores_come_from_one_domain_and_one_package_also_where_these_are_not_equal() {
        // Packages of 3 and 8 cores, the second of two domains.
        let inventory = node(2, 3, 11).with_parts(vec![3, 8], vec![3, 4, 4]);
        assert_eq!(picked(&[0], 2, &inventory), "1-2");
        assert_eq!(picked(&[0], 3, &inventory), "3-5");
        assert_eq!(picked(&[0, 3], 4, &inventory), "7-10");
        assert_eq!(picked(&[3, 7], 5, &inventory), "4-6,8-9");
        assert_eq!(picked(&[3, 7], 7, &inventory), "0-2,4-6,8");
    }

    #[test]
    fn tasks_span_no_packages_where_other_cores_avoid_it() {
        let check = |cpus, cpus_per_core, inventory: &Inventory, taken: &[u32], wanted, expected| {
            let task = TaskSize { cpus, cpus_per_core };
            let cores = pick_cores(inventory, &indices(taken), &Indices::default(), wanted, task);
            assert_eq!(cores.to_string(), expected, "{wanted} cores for tasks of {task:?} without {taken:?}");
        };
        let two = node(2, 2, 8);
        check(6, 2, &two, &[], 6, "0-2,4-6");
        check(3, 1, &two, &[0], 6, "1-6");
        // Two tasks of three CPUs share a core: four need six cores only as two pairs.
        check(3, 2, &node(2, 2, 10).with_parts(vec![6, 4], vec![6, 4]), &[0], 6, "1-3,6-8");
        // One task fits nowhere, and all cores are used.
        check(3, 1, &two, &[0, 4, 5], 5, "1-3,6-7");
        check(5, 1, &two, &[], 5, "0-4");
        // Fewer packages are better.
        check(2, 1, &node(3, 3, 12), &[0, 1], 8, "4-11");
        check(2, 1, &node(3, 3, 10), &[0, 1], 6, "2-5,7-8");
    }

    #[test]
    fn further_cores_are_near_those_that_the_job_has() {
        let check = |inventory: &Inventory, own: &[u32], others: &[u32], wanted, expected| {
            let taken = indices(&[own, others].concat());
            let cores = pick_cores(inventory, &taken, &indices(own), wanted, CORE);
            assert_eq!(cores.to_string(), expected, "{wanted} cores beside {own:?} without {others:?}");
        };
        let (two, four) = (node(2, 2, 8), node(2, 4, 16));
        check(&two, &[0], &[4, 5, 6], 1, "1");
        check(&two, &[0], &[1, 2, 3, 4], 1, "5");
        check(&four, &[0], &[4, 5, 6], 2, "1-2");
        check(&four, &[0, 1, 2], &[3, 12, 13], 2, "4-5");
        check(&four, &[0, 1, 2], &[4], 5, "8-12");
    }

    #[test]
    fn tasks_have_room_beside_the_cores_that_the_job_has() {
        let own = indices(&[0, 1, 4]);
        let task = TaskSize { cpus: 3, cpus_per_core: 1 };
        let taken = indices(&[0, 1, 4, 3]);
        assert_eq!(pick_cores(&node(2, 2, 8), &taken, &own, 3, task).to_string(), "5-7");
        let taken = indices(&[0, 1, 4, 7]);
        assert_eq!(pick_cores(&node(2, 2, 8), &taken, &own, 3, task).to_string(), "2,5-6");
    }

    /// Returns the most tasks that are in one package each, over all choices of `wanted` free cores.
    fn most_in_one(packages: &[(u32, u32)], wanted: u32, task: TaskSize) -> Option<u32> {
        let Some(((n_own, n_free), others)) = packages.split_first() else { return (wanted == 0).then_some(0) };
        let here = (0..=wanted.min(*n_free)).filter_map(|n_here| {
            let n_tasks = task.n_tasks(n_own + n_here);
            Some(n_tasks + most_in_one(others, wanted - n_here, task)?)
        });
        here.max()
    }

    /// Returns the part of the numbers from 0 that the dice choose.
    fn some_of(dice: &mut Dice, cores: &Indices) -> Indices {
        let percent = dice.number(0, 100);
        cores.iter().filter(|_| dice.chance(percent)).collect()
    }

    #[test]
    fn no_task_spans_packages_if_some_choice_of_cores_avoids_it() {
        for_seeds("no_task_spans_packages_if_some_choice_of_cores_avoids_it", 3000, |dice| {
            let sizes: Vec<u32> = (0..dice.number(1, 4)).map(|_| dice.number(1, 9)).collect();
            let n_cores = sizes.iter().sum();
            let inventory = node(sizes.len() as u32, dice.number(1, 8), n_cores).with_parts(sizes.clone(), Vec::new());
            let taken = some_of(dice, &Indices::below(n_cores));
            let own = if dice.chance(30) { some_of(dice, &taken) } else { Indices::default() };
            let task = TaskSize { cpus: dice.number(1, 9), cpus_per_core: dice.one_of(&[1, 2, 4]) };
            let wanted = dice.number(0, n_cores - taken.len());
            let cores = pick_cores(&inventory, &taken, &own, wanted, task);
            assert!(cores.len() == wanted && cores.is_disjoint(&taken), "{cores} of {sizes:?} without {taken}");
            let count = |set: &Indices, of: &Range<u32>| of.clone().filter(|core| set.contains(*core)).count() as u32;
            let in_one_package = inventory.packages().any(|package| count(&cores, &package) == wanted);
            let n_tasks = |of: Range<u32>| task.n_tasks(count(&cores, &of) + count(&own, &of));
            let packages = inventory.packages().map(|of| (count(&own, &of), of.end - of.start - count(&taken, &of)));
            let most = most_in_one(&packages.collect::<Vec<_>>(), wanted, task);
            // Further cores that one package has room for are not spread for the sake of tasks that run already.
            let is_near = in_one_package && !own.is_empty();
            let n_in_one: u32 = inventory.packages().map(n_tasks).sum();
            assert!(is_near || Some(n_in_one) == most, "{cores} of {sizes:?} without {taken}, beside {own}: {task:?}");
        });
    }
}
