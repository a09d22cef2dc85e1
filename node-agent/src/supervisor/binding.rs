//! Distributes the CPUs that a job has of a node among its tasks there.

use crate::topology::cpulist::CpuSet;

/// Returns `each` CPUs for each task, from the lists of all packages; empty if there is only one task, or not enough
/// CPUs for all. A task is in one package if any has room for it.
pub fn share_out(packages: &[Vec<u32>], n_tasks: u32, each: u32) -> Vec<CpuSet> {
    let each = each.max(1) as usize;
    let n_cpus: usize = packages.iter().map(Vec::len).sum();
    if n_tasks < 2 || (n_tasks as usize).saturating_mul(each) > n_cpus {
        return Vec::new();
    }
    let mut left: Vec<&[u32]> = packages.iter().map(Vec::as_slice).collect();
    let mut shares = Vec::new();
    for _ in 0..n_tasks {
        let share = match left.iter_mut().find(|cpus| cpus.len() >= each) {
            Some(cpus) => take(cpus, each),
            // No package has room, so the task spans packages.
            None => {
                let mut missing = each;
                let mut some = |cpus: &mut &[u32]| {
                    let n = missing.min(cpus.len());
                    missing -= n;
                    take(cpus, n)
                };
                left.iter_mut().flat_map(&mut some).collect()
            }
        };
        shares.push(share);
    }
    shares
}

fn take(cpus: &mut &[u32], n: usize) -> CpuSet {
    let (taken, rest) = cpus.split_at(n);
    *cpus = rest;
    taken.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(packages: &[&[u32]], n_tasks: u32, each: u32, expected: &[&[u32]]) {
        let packages: Vec<Vec<u32>> = packages.iter().map(|cpus| cpus.to_vec()).collect();
        let expected: Vec<CpuSet> = expected.iter().map(|cpus| cpus.iter().copied().collect()).collect();
        assert_eq!(share_out(&packages, n_tasks, each), expected, "{n_tasks} of {each} in {packages:?}");
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
}
