//! Distributes the CPUs that a job has of a node among its tasks there: when they start, and whenever the CPUs change.

use std::cmp::Reverse;
use std::iter;

use nix::unistd::Pid;

use super::confine::{CpuMove, CpuMoves};
use super::tree;
use crate::topology::cpulist::CpuSet;

/// Returns `each` CPUs for each task, from the lists of all packages; empty if there is only one task, or not enough
/// CPUs for all. A task is in one package if any has room for it.
pub fn share_out(packages: &[Vec<u32>], n_tasks: u32, each: u32) -> Vec<CpuSet> {
    let (n_tasks, each) = (n_tasks as usize, each.max(1) as usize);
    let n_cpus: usize = packages.iter().map(Vec::len).sum();
    if n_tasks < 2 || n_tasks.saturating_mul(each) > n_cpus {
        return Vec::new();
    }
    deal(packages, n_tasks, each)
}

/// Returns the shares of the tasks, at least one, none larger than `most`: neighbouring CPUs of one package where one has room, and
/// the same number for each task, or one more. Neighbouring tasks share a CPU if there are fewer CPUs than tasks.
pub fn deal(packages: &[Vec<u32>], n_tasks: usize, most: usize) -> Vec<CpuSet> {
    let all: Vec<u32> = packages.iter().flatten().copied().collect();
    if all.len() < n_tasks {
        return (0..n_tasks).map(|idx| all.get(idx * all.len() / n_tasks).copied().into_iter().collect()).collect();
    }
    let n_dealt = all.len().min(n_tasks.saturating_mul(most));
    let (each, mut n_larger) = (n_dealt / n_tasks, n_dealt % n_tasks);
    let (mut shares, mut left) = (Vec::with_capacity(n_tasks), Vec::new());
    for cpus in packages {
        let n_here = (cpus.len() / each).min(n_tasks - shares.len());
        let n_larger_here = (cpus.len() - n_here * each).min(n_here).min(n_larger);
        n_larger -= n_larger_here;
        let mut cpus = cpus.iter().copied();
        for idx in 0..n_here {
            shares.push(cpus.by_ref().take(each + usize::from(idx < n_larger_here)).collect());
        }
        left.extend(cpus);
    }
    let mut left = left.into_iter();
    // No package has room for these, so they span packages.
    while shares.len() < n_tasks {
        shares.push(left.by_ref().take(each).collect());
    }
    let smaller = shares.iter_mut().filter(|share: &&mut CpuSet| share.len() == each).take(n_larger);
    smaller.zip(left).for_each(|(share, cpu)| share.extend([cpu]));
    shares
}

/// Returns a share of each of these sizes, in one package where one has room; the largest are placed first.
fn deal_sizes(mut packages: Vec<Vec<u32>>, sizes: &[usize]) -> Vec<CpuSet> {
    let mut shares = vec![CpuSet::new(); sizes.len()];
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|idx| Reverse(sizes[*idx]));
    for idx in by_size {
        let with_room = packages.iter().position(|cpus| cpus.len() >= sizes[idx]);
        for cpus in packages.iter_mut().skip(with_room.unwrap_or(0)) {
            let n_missing = sizes[idx] - shares[idx].len();
            shares[idx].extend(cpus.drain(..n_missing.min(cpus.len())));
        }
    }
    shares
}

/// Returns how many CPUs each task has of `n_cpus`: at least what it keeps, and at most `most`. `None` if there are not
/// enough, or all keep one.
fn sizes(n_cpus: usize, least: &[usize], most: usize) -> Option<Vec<usize>> {
    let mut sizes: Vec<usize> = least.iter().map(|least| (*least).clamp(1, most)).collect();
    let mut rest = n_cpus.min(most * sizes.len()).checked_sub(sizes.iter().sum())?;
    if sizes.iter().all(|size| *size == 1) {
        return None;
    }
    while rest > 0 {
        let smallest = sizes.iter_mut().min()?;
        *smallest += 1;
        rest -= 1;
    }
    Some(sizes)
}

/// The running tasks that were bound to CPUs of their own.
#[derive(Debug, Default)]
pub struct BoundTasks {
    /// The tasks that were started together, and are as long as they run.
    groups: Vec<Vec<BoundTask>>,
}

#[derive(Debug)]
struct BoundTask {
    process: Pid,
    /// The CPUs on which it was started.
    first: CpuSet,
    /// Those that it has now.
    share: CpuSet,
    /// How many it keeps at least while the job lends some.
    least: usize,
}

impl BoundTasks {
    /// Adds tasks that were started together: each with its CPUs, and how many of them it keeps at least.
    pub fn add(&mut self, tasks: Vec<(Pid, CpuSet, u32)>) {
        let bound = |(process, first, least): (Pid, CpuSet, u32)| BoundTask {
            process,
            share: first.clone(),
            first,
            least: least as usize,
        };
        if !tasks.is_empty() {
            self.groups.push(tasks.into_iter().map(bound).collect());
        }
    }

    /// Removes a task that has ended.
    pub fn remove(&mut self, process: Pid) {
        self.groups.iter_mut().for_each(|group| group.retain(|task| task.process != process));
        self.groups.retain(|group| !group.is_empty());
    }

    /// Returns where each task moves once the job has the CPUs `after`, which are in these packages.
    pub fn moves(&self, after: &CpuSet, packages: &[Vec<u32>]) -> CpuMoves {
        let shares = self.groups.iter().flat_map(|group| shares(group, after, packages));
        self.tasks().zip(shares).map(|(task, after)| task.to(&task.share, after)).collect()
    }

    /// Returns the moves that leave each task where it is.
    pub fn stays(&self) -> CpuMoves {
        self.tasks().map(|task| task.to(&task.share, task.share.clone())).collect()
    }

    /// Returns the moves of tasks that may have been executed only now, on their first CPUs.
    pub fn late_moves(&self) -> CpuMoves {
        self.tasks().map(|task| task.to(&task.first, task.share.clone())).collect()
    }

    /// Records that the tasks have been moved.
    pub fn moved(&mut self, moves: &CpuMoves) {
        for task in self.groups.iter_mut().flatten() {
            if let Some(own) = moves.get(&task.process.as_raw()) {
                task.share.clone_from(&own.after);
            }
        }
    }

    /// Returns the CPUs on which the task of a process was started, if the process has those that the task has now.
    pub fn first_of(&self, process: Pid, has: &CpuSet) -> Option<&CpuSet> {
        let mut tasks = self.tasks().filter(|task| task.share == *has).peekable();
        tasks.peek()?;
        let session = tree::session_of(process);
        let ancestors: Vec<Pid> = iter::successors(Some(process), |pid| tree::parent_of(*pid)).collect();
        let task = tasks.find(|task| ancestors.contains(&task.process) || session == Some(task.process));
        task.map(|task| &task.first)
    }

    fn tasks(&self) -> impl Iterator<Item = &BoundTask> {
        self.groups.iter().flatten()
    }
}

impl BoundTask {
    fn to(&self, before: &CpuSet, after: CpuSet) -> (i32, CpuMove) {
        (self.process.as_raw(), CpuMove { before: before.clone(), after })
    }
}

/// Returns the share of each task of a group: its first CPUs if the job has those of all, else a part of what there is.
fn shares(group: &[BoundTask], cpus: &CpuSet, packages: &[Vec<u32>]) -> Vec<CpuSet> {
    if packages.is_empty() {
        // The job has the whole node to itself by now: its tasks would not have been bound.
        return group.iter().map(|_| cpus.clone()).collect();
    }
    if group.iter().all(|task| task.first.is_subset(cpus)) {
        return group.iter().map(|task| task.first.clone()).collect();
    }
    let mut rest = cpus.clone();
    let mut lists: Vec<Vec<u32>> =
        packages.iter().map(|cpus| cpus.iter().copied().filter(|cpu| rest.remove(cpu)).collect()).collect();
    // CPUs of an earlier order.
    lists.push(rest.into_iter().collect());
    let most = group.iter().map(|task| task.first.len()).max().unwrap_or(1).max(1);
    let least: Vec<usize> = group.iter().map(|task| task.least).collect();
    match sizes(cpus.len(), &least, most) {
        Some(sizes) => deal_sizes(lists, &sizes),
        None => deal(&lists, group.len(), most),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use test_kit::{Dice, for_seeds};

    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    fn lists(packages: &[&[u32]]) -> Vec<Vec<u32>> {
        packages.iter().map(|cpus| cpus.to_vec()).collect()
    }

    fn check(packages: &[&[u32]], n_tasks: u32, each: u32, expected: &[&[u32]]) {
        let expected: Vec<CpuSet> = expected.iter().map(|cpus| set(cpus)).collect();
        assert_eq!(share_out(&lists(packages), n_tasks, each), expected, "{n_tasks} of {each} in {packages:?}");
    }

    #[test]
    fn tasks_have_cpus_of_their_own_in_one_package_where_one_has_room() {
        check(&[&[0, 1, 2, 3]], 2, 2, &[&[0, 1], &[2, 3]]);
        check(&[&[0, 4, 1, 5]], 2, 2, &[&[0, 4], &[1, 5]]);
        check(&[&[0, 1, 2], &[4, 5, 6]], 2, 2, &[&[0, 1], &[4, 5]]);
        check(&[&[0, 1, 2], &[4, 5, 6]], 3, 2, &[&[0, 1], &[4, 5], &[2, 6]]);
        check(&[&[0], &[4, 5, 6]], 3, 1, &[&[0], &[4], &[5]]);
    }

    #[test]
    fn one_task_has_all_and_tasks_without_enough_share_all() {
        check(&[&[0, 1, 2, 3]], 1, 2, &[]);
        check(&[&[0, 1]], 3, 1, &[]);
        check(&[], 2, 1, &[]);
    }

    /// Returns tasks with process ids from 1 on that were started in these packages.
    fn bound(packages: &[&[u32]], n_tasks: u32, each: u32) -> BoundTasks {
        let mut tasks = BoundTasks::default();
        tasks.add(numbered(share_out(&lists(packages), n_tasks, each), &[1]));
        tasks
    }

    /// Gives these tasks process ids from 1 on; the last number of `least` holds for all others.
    fn numbered(shares: Vec<CpuSet>, least: &[u32]) -> Vec<(Pid, CpuSet, u32)> {
        let all_least = least.iter().chain(std::iter::repeat(&least[least.len() - 1]));
        let tasks = (1..).map(Pid::from_raw).zip(shares).zip(all_least);
        tasks.map(|((pid, cpus), least)| (pid, cpus, *least)).collect()
    }

    /// Moves the tasks to these packages, and returns the share of each.
    fn deal_to(tasks: &mut BoundTasks, packages: &[&[u32]]) -> Vec<CpuSet> {
        let moves = tasks.moves(&packages.concat().into_iter().collect(), &lists(packages));
        let before: Vec<CpuSet> = tasks.tasks().map(|task| task.share.clone()).collect();
        assert!(moves.values().map(|own| &own.before).eq(&before), "each moves from where it is");
        tasks.moved(&moves);
        tasks.tasks().map(|task| task.share.clone()).collect()
    }

    #[test]
    fn what_is_left_is_dealt_evenly_and_all_have_their_own_again() {
        let check = |packages: &[&[u32]], (n_tasks, each), left: &[&[u32]], expected: &[&[u32]]| {
            let mut tasks = bound(packages, n_tasks, each);
            let first: Vec<CpuSet> = tasks.tasks().map(|task| task.share.clone()).collect();
            for _ in 0..2 {
                let expected: Vec<CpuSet> = expected.iter().map(|cpus| set(cpus)).collect();
                assert_eq!(deal_to(&mut tasks, left), expected, "{n_tasks} of {each} in {packages:?} keep {left:?}");
                assert_eq!(deal_to(&mut tasks, packages), first, "{n_tasks} of {each} in {packages:?}");
            }
        };
        check(&[&[0, 1]], (2, 1), &[&[0]], &[&[0], &[0]]);
        check(&[&[0, 1, 2, 3]], (2, 2), &[&[0, 1]], &[&[0], &[1]]);
        check(&[&[0, 1, 2, 3]], (2, 2), &[&[2, 3]], &[&[2], &[3]]);
        check(&[&[0, 1, 2, 3, 4, 5, 6, 7]], (2, 4), &[&[0, 1, 2, 3, 4]], &[&[0, 1, 2], &[3, 4]]);
        check(&[&[0, 1, 2, 3]], (4, 1), &[&[0, 1]], &[&[0], &[0], &[1], &[1]]);
        // Core by core: both threads of one are neighbours.
        check(&[&[0, 4, 1, 5]], (2, 2), &[&[0, 4]], &[&[0], &[4]]);
        let two: [&[u32]; 2] = [&[0, 1, 2, 3], &[8, 9, 10, 11]];
        check(&two, (2, 4), &[&[0, 1], &[8, 9, 10]], &[&[0, 1], &[8, 9, 10]]);
        check(&two, (4, 2), &[&[0, 1], &[8, 9]], &[&[0], &[1], &[8], &[9]]);
        check(&two, (4, 2), &[&[0], &[8]], &[&[0], &[0], &[8], &[8]]);
        check(&two, (2, 4), &[&[0], &[8, 9, 10, 11]], &[&[8, 9, 0], &[10, 11]]);
        check(&two, (2, 3), &[&[0, 1, 2, 3], &[8]], &[&[0, 1, 8], &[2, 3]]);
        // It needs none of what it has lent.
        check(&[&[0, 1, 2, 3]], (2, 1), &[&[0, 1]], &[&[0], &[1]]);
        // Others, as many as before.
        check(&[&[0, 1, 2, 3]], (2, 1), &[&[4, 5, 6]], &[&[4], &[5]]);
    }

    #[test]
    fn a_master_keeps_more_than_its_workers() {
        let two: [&[u32]; 2] = [&[0, 1, 2, 3], &[8, 9, 10, 11]];
        for (least, left, expected) in [
            (&[3, 1][..], &[&[0, 1, 2, 3][..]][..], &[&[0, 1, 2][..], &[3]][..]),
            (&[3, 1], &[&[0, 1], &[8, 9, 10]], &[&[8, 9, 10], &[0, 1]]),
            (&[1, 3], &[&[0, 1, 2], &[8]], &[&[8], &[0, 1, 2]]),
            (&[3, 1], &[&[0, 1], &[8, 9]], &[&[0, 1, 8], &[9]]),
            // They keep more than there is: evenly.
            (&[4, 4], &[&[0, 1], &[8, 9]], &[&[0, 1], &[8, 9]]),
        ] {
            let mut tasks = BoundTasks::default();
            tasks.add(numbered(share_out(&lists(&two), 2, 4), least));
            let expected: Vec<CpuSet> = expected.iter().map(|cpus| set(cpus)).collect();
            assert_eq!(deal_to(&mut tasks, left), expected, "{least:?} of {left:?}");
            assert_eq!(deal_to(&mut tasks, &two), [set(two[0]), set(two[1])], "{least:?} of {left:?}");
        }
    }

    #[test]
    fn those_that_still_run_share_what_is_left_and_a_job_alone_on_its_node_binds_nobody() {
        let mut tasks = bound(&[&[0, 1, 2, 3]], 2, 2);
        tasks.add(vec![(Pid::from_raw(7), set(&[0]), 1), (Pid::from_raw(8), set(&[1]), 1)]);
        assert_eq!(deal_to(&mut tasks, &[&[0, 1]]), [set(&[0]), set(&[1]), set(&[0]), set(&[1])]);
        tasks.remove(Pid::from_raw(1));
        assert_eq!(deal_to(&mut tasks, &[&[0, 1]]), [set(&[0, 1]), set(&[0]), set(&[1])]);
        assert_eq!(deal_to(&mut tasks, &[&[0, 1, 2, 3]]), [set(&[2, 3]), set(&[0]), set(&[1])]);
        let alone = tasks.moves(&set(&[0, 1, 2, 3, 4]), &[]);
        assert!(alone.len() == 3 && alone.values().all(|own| own.after == set(&[0, 1, 2, 3, 4])));
        tasks.remove(Pid::from_raw(2));
        tasks.remove(Pid::from_raw(8));
        tasks.remove(Pid::from_raw(7));
        assert!(tasks.stays().is_empty() && tasks.groups.is_empty());
    }

    fn some(dice: &mut Dice, packages: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let percent = dice.number(1, 99);
        packages.iter().map(|cpus| cpus.iter().copied().filter(|_| dice.chance(percent)).collect()).collect()
    }

    /// Each has at least one CPU, all of them are used, nobody has two more than another, and no task spans packages
    /// while one has room for it.
    #[test]
    fn every_part_of_every_node_is_dealt_evenly() {
        for_seeds("every_part_of_every_node_is_dealt_evenly", 3000, |dice| {
            let mut next = 0..;
            let sizes: Vec<u32> = (0..dice.number(1, 4)).map(|_| dice.number(1, 12)).collect();
            let packages: Vec<Vec<u32>> = sizes.iter().map(|n| next.by_ref().take(*n as usize).collect()).collect();
            let n_cpus: u32 = sizes.iter().sum();
            let n_tasks = dice.number(1, n_cpus).max(2);
            let each = dice.number(1, (n_cpus / n_tasks).max(1));
            let mut tasks = BoundTasks::default();
            tasks.add(numbered(share_out(&packages, n_tasks, each), &[1]));
            let first: Vec<CpuSet> = tasks.tasks().map(|task| task.first.clone()).collect();
            for _ in 0..3 {
                let left = some(dice, &packages);
                let cpus: CpuSet = left.iter().flatten().copied().collect();
                if cpus.is_empty() {
                    continue;
                }
                let moves = tasks.moves(&cpus, &left);
                tasks.moved(&moves);
                let shares: Vec<&CpuSet> = moves.values().map(|own| &own.after).collect();
                let (n_left, n_tasks, each) = (cpus.len(), first.len(), each as usize);
                let is_first = first.iter().all(|first| first.is_subset(&cpus));
                let mut uses: BTreeMap<u32, usize> = BTreeMap::new();
                shares.iter().copied().flatten().for_each(|cpu| *uses.entry(*cpu).or_default() += 1);
                let n_dealt: usize = uses.values().sum();
                assert!(uses.keys().all(|cpu| cpus.contains(cpu)), "{shares:?} of {left:?}");
                assert_eq!(n_dealt, n_left.min(n_tasks * each).max(n_tasks), "{shares:?} of {left:?}");
                let range = |counts: &mut dyn Iterator<Item = usize>| {
                    let counts: Vec<usize> = counts.collect();
                    counts.iter().max().zip(counts.iter().min()).map_or(0, |(most, least)| most - least)
                };
                assert!(range(&mut shares.iter().map(|share| share.len())) <= 1, "{shares:?} of {left:?}");
                assert!(range(&mut uses.values().copied()) <= 1, "{shares:?} of {left:?}");
                if !is_first && n_left >= n_tasks {
                    let least = n_dealt / n_tasks;
                    let has_room = left.iter().map(|cpus| cpus.len() / least).sum::<usize>();
                    let is_in_one = |share: &CpuSet| left.iter().any(|cpus| share.iter().all(|cpu| cpus.contains(cpu)));
                    let n_in_one = shares.iter().filter(|share| is_in_one(share)).count();
                    // Each CPU beyond the least number may be of another package.
                    let n_apart = n_dealt % n_tasks;
                    assert!(n_in_one + n_apart >= has_room.min(n_tasks), "{shares:?} of {left:?}");
                }
            }
            let all = tasks.moves(&packages.iter().flatten().copied().collect(), &packages);
            assert!(all.values().map(|own| &own.after).eq(&first), "{all:?}");
        });
    }
}
