//! Maps the numbered cores of a node to logical CPUs, and finds those of a job.

use rms_api::desired::LaunchNode;

use super::cpulist::CpuSet;

/// The cores of a node as the server numbers them: by package, NUMA domain and core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// The logical CPUs of each core. A core that is only declared has none.
    cpus: Vec<Vec<u32>>,
    /// The package of each core; a core without an entry is in the first one.
    packages: Vec<u32>,
    /// The threads per core as the server counts them.
    threads_per_core: u32,
    n_cpus: u32,
}

impl Cores {
    /// Creates the cores of a node with `n_cpus` in total; the server counts `threads_per_core` for each core that it
    /// grants.
    pub fn new(cpus: Vec<Vec<u32>>, threads_per_core: u32, n_cpus: u32) -> Cores {
        Cores { cpus, packages: Vec::new(), threads_per_core, n_cpus }
    }

    /// Returns the same cores in these packages, one entry for each core.
    #[must_use]
    pub fn in_packages(self, packages: Vec<u32>) -> Cores {
        Cores { packages, ..self }
    }

    /// Returns the same CPUs as `n_cores` declared cores with `threads_per_core` each.
    pub fn declared(self, n_cores: u32, threads_per_core: u32) -> Cores {
        let mut there = self.cpus.into_iter().flatten();
        let cpus = (0..n_cores).map(|_| there.by_ref().take(threads_per_core as usize).collect()).collect();
        Cores::new(cpus, threads_per_core, n_cores.saturating_mul(threads_per_core))
    }

    /// Returns the CPUs of a job in this place; `None` for all of the node's. Of a core that it has in part, or with
    /// `one_thread_a_core`, it has the first threads. Cores that are only declared are counted, not applied.
    pub fn of(&self, place: &LaunchNode, one_thread_a_core: bool) -> Option<CpuSet> {
        Some(self.in_order(place, one_thread_a_core)?.into_iter().map(|(_, cpu)| cpu).collect())
    }

    /// Returns the CPUs of a job that shares the node, core by core, one list per package; no lists for other jobs.
    pub fn by_package(&self, place: &LaunchNode, one_thread_a_core: bool) -> Vec<Vec<u32>> {
        let cpus = place.grant.as_ref().and_then(|_| self.in_order(place, one_thread_a_core)).unwrap_or_default();
        let package = |(core, _): &(u32, u32)| self.packages.get(*core as usize).copied().unwrap_or(0);
        let packages = cpus.chunk_by(|one, next| package(one) == package(next));
        packages.map(|cpus| cpus.iter().map(|(_, cpu)| *cpu).collect()).collect()
    }

    /// Returns each CPU with its core.
    fn in_order(&self, place: &LaunchNode, one_thread_a_core: bool) -> Option<Vec<(u32, u32)>> {
        let threads = if one_thread_a_core { 1 } else { self.threads_per_core };
        let n_cpus = match &place.grant {
            Some(grant) => grant.cores.len().saturating_mul(threads),
            None if place.cpus >= self.n_cpus && !one_thread_a_core => return None,
            None => self.n_cpus,
        };
        let is_granted = |core: u32| place.grant.as_ref().is_none_or(|grant| grant.cores.contains(core));
        let cores = (0..).zip(&self.cpus).filter(|(core, _)| is_granted(*core));
        let most_each = if one_thread_a_core { 1 } else { usize::MAX };
        let cpus = cores.flat_map(|(core, cpus)| cpus.iter().map(move |cpu| (core, *cpu)).take(most_each));
        // Cores may differ in their number of threads, so CPUs are counted only for a job that gave some back.
        let most = if place.cpus < n_cpus { place.cpus as usize } else { usize::MAX };
        let cpus: Vec<(u32, u32)> = cpus.take(most).collect();
        (!cpus.is_empty()).then_some(cpus)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Grant;

    use super::*;

    fn place(cores: Option<&[u32]>, cpus: u32) -> LaunchNode {
        let grant = cores.map(|cores| Grant { cores: cores.iter().copied().collect(), ..Grant::default() });
        LaunchNode { cpus, grant, ..test_kit::place("n1") }
    }

    fn expect(cores: &Cores, place: &LaunchNode, one_thread_a_core: bool, expected: Option<&[u32]>) {
        let expected = expected.map(|cpus| cpus.iter().copied().collect());
        assert_eq!(cores.of(place, one_thread_a_core), expected, "{place:?}");
    }

    /// Returns two packages of two cores of two threads each, numbered as most kernels do.
    fn machine() -> Cores {
        Cores::new(vec![vec![0, 4], vec![2, 6], vec![1, 5], vec![3, 7]], 2, 8)
    }

    #[test]
    fn a_job_has_all_threads_of_its_cores_or_the_first_ones() {
        expect(&machine(), &place(Some(&[1, 2]), 4), false, Some(&[1, 2, 5, 6]));
        expect(&machine(), &place(Some(&[1, 2]), 2), true, Some(&[1, 2]));
        expect(&machine(), &place(None, 8), false, None);
        expect(&machine(), &place(None, 8), true, Some(&[0, 1, 2, 3]));
    }

    #[test]
    fn cpus_are_listed_core_by_core_for_each_package() {
        let machine = machine().in_packages(vec![0, 0, 1, 1]);
        assert_eq!(machine.by_package(&place(Some(&[1, 2, 3]), 6), false), [vec![2, 6], vec![1, 5, 3, 7]]);
        assert_eq!(machine.by_package(&place(Some(&[1, 2, 3]), 3), true), [vec![2], vec![1, 3]]);
        assert!(machine.by_package(&place(None, 8), false).is_empty(), "it has the whole node");
    }

    #[test]
    fn cpus_are_given_back_from_the_end_of_what_was_granted() {
        expect(&machine(), &place(Some(&[1, 2]), 3), false, Some(&[1, 2, 6]));
        expect(&machine(), &place(Some(&[1, 2]), 1), true, Some(&[2]));
        expect(&machine(), &place(None, 3), false, Some(&[0, 2, 4]));
    }

    #[test]
    fn a_core_with_more_threads_than_most_is_given_whole() {
        let uneven = Cores::new(vec![vec![0, 1], vec![2]], 1, 3);
        expect(&uneven, &place(Some(&[0]), 1), false, Some(&[0, 1]));
        expect(&uneven, &place(Some(&[1]), 1), false, Some(&[2]));
    }

    #[test]
    fn declared_cores_have_the_cpus_that_there_are() {
        let declared = machine().declared(6, 2);
        expect(&declared, &place(Some(&[0, 3]), 4), false, Some(&[0, 3, 4, 7]));
        expect(&declared, &place(Some(&[3, 5]), 4), false, Some(&[3, 7]));
        expect(&declared, &place(Some(&[4, 5]), 4), false, None);
        expect(&machine().declared(8, 1), &place(Some(&[1]), 1), false, Some(&[4]));
    }
}
