//! Decides which CPUs each joined process of a job should use: a pure computation.

use std::collections::BTreeMap;

use rms_malleable::{Flags, Rank, Status};

use crate::topology::cpulist::CpuSet;

/// The CPUs of a job on its node, and which of them are set aside for which process.
#[derive(Debug)]
pub struct Members {
    /// The CPUs that the job had when it started.
    initial: CpuSet,
    /// How many it requested.
    n_asked: usize,
    /// The CPUs that the job should have now.
    current: CpuSet,
    members: BTreeMap<i32, Member>,
    /// CPUs set aside for processes that have not joined yet.
    pre_registered: BTreeMap<i32, ExclusiveCpus>,
}

/// A process that has joined.
#[derive(Clone, Debug)]
pub struct Member {
    rank: Option<Rank>,
    /// The CPUs on which it, or its task, was started, if those are only some of the job's.
    pin: Option<CpuSet>,
    /// The most CPUs that it will have.
    most: usize,
    exclusive: Option<ExclusiveCpus>,
    /// The CPUs that its threads have.
    pub held: CpuSet,
}

/// CPUs for one process alone.
#[derive(Clone, Debug, Default)]
struct ExclusiveCpus {
    cpus: CpuSet,
    /// The processes from which these CPUs were taken, and to which they return.
    taken_from: BTreeMap<i32, CpuSet>,
    returns: bool,
}

impl Members {
    pub fn new(initial: CpuSet, n_asked: usize) -> Members {
        let (members, pre_registered) = (BTreeMap::new(), BTreeMap::new());
        Members { current: initial.clone(), initial, n_asked, members, pre_registered }
    }

    pub fn current(&self) -> &CpuSet {
        &self.current
    }

    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.members.keys().copied()
    }

    pub fn get(&self, pid: i32) -> Option<&Member> {
        self.members.get(&pid)
    }

    pub fn get_mut(&mut self, pid: i32) -> Option<&mut Member> {
        self.members.get_mut(&pid)
    }

    /// Sets the CPUs of the job from now on.
    pub fn set_current(&mut self, current: CpuSet) {
        self.current = current;
    }

    /// Adds a process that runs on the CPUs `first`, and whose task was bound to `bound`, which the job may have lent
    /// meanwhile. A known process with the same id has executed another program, or has ended.
    pub fn join(
        &mut self,
        pid: i32,
        rank: Option<Rank>,
        first: CpuSet,
        bound: Option<CpuSet>,
        set_aside_for: Option<i32>,
    ) {
        let exclusive =
            self.pre_registered.remove(&set_aside_for.unwrap_or(pid)).or_else(|| self.pre_registered.remove(&pid));
        let rank = rank.filter(|rank| rank.n_ranks > 1);
        let pin = bound.or_else(|| (!self.current.is_subset(&first)).then(|| first.clone()));
        let n_initial = pin.as_ref().unwrap_or(&self.initial).len();
        let n_asked = self.n_asked.max(self.current.len());
        let most = match (rank, &pin) {
            (Some(rank), Some(_)) => n_initial.max(n_asked / rank.n_ranks as usize),
            (None, Some(_)) => n_initial,
            (_, None) => n_initial.max(n_asked),
        };
        self.members.insert(pid, Member { rank, held: first, pin, most, exclusive });
    }

    /// Removes a process that has ended. Stolen CPUs return to the processes that still want them.
    pub fn leave(&mut self, pid: i32) {
        let exclusive = self.members.remove(&pid).and_then(|member| member.exclusive);
        if let Some(exclusive) = exclusive {
            self.give_back(pid, exclusive);
        }
    }

    fn give_back(&mut self, pid: i32, exclusive: ExclusiveCpus) {
        for (owner, mut cpus) in exclusive.taken_from.into_iter().filter(|_| exclusive.returns) {
            // Who has taken them from this process in turn returns them to their first owner.
            for holder in self.exclusives_mut() {
                let Some(taken) = holder.taken_from.get_mut(&pid) else { continue };
                let passed_on: CpuSet = taken.intersection(&cpus).copied().collect();
                taken.retain(|cpu| !passed_on.contains(cpu));
                holder.taken_from.entry(owner).or_default().extend(&passed_on);
            }
            for other in self.exclusives_mut() {
                cpus.retain(|cpu| !other.cpus.contains(cpu));
            }
            self.exclusive_mut(owner).into_iter().for_each(|own| own.cpus.extend(&cpus));
        }
    }

    fn exclusives_mut(&mut self) -> impl Iterator<Item = &mut ExclusiveCpus> {
        let of_members = self.members.values_mut().filter_map(|member| member.exclusive.as_mut());
        of_members.chain(self.pre_registered.values_mut())
    }

    fn exclusive_mut(&mut self, pid: i32) -> Option<&mut ExclusiveCpus> {
        let of_member = self.members.get_mut(&pid).and_then(|member| member.exclusive.as_mut());
        of_member.or_else(|| self.pre_registered.get_mut(&pid))
    }

    /// Returns how many CPUs the process would have if the job had everything that it requested.
    pub fn most(&self, pid: i32) -> u32 {
        self.members.get(&pid).map_or(self.n_asked, |member| member.most) as u32
    }

    /// Returns the CPUs that the process is to use.
    pub fn intended(&self, pid: i32) -> CpuSet {
        let Some(member) = self.members.get(&pid) else { return self.current.clone() };
        let of_now = |cpus: &CpuSet| cpus.intersection(&self.current).copied().collect::<CpuSet>();
        let exclusive =
            member.exclusive.as_ref().map(|exclusive| of_now(&exclusive.cpus)).filter(|cpus| !cpus.is_empty());
        if let Some(exclusive) = exclusive {
            return exclusive;
        }
        let of_others = self.set_aside(pid);
        let common: CpuSet = self.current.difference(&of_others).copied().collect();
        let common = if common.is_empty() { self.current.clone() } else { common };
        let is_whole = self.initial == self.current && of_others.is_empty();
        let pin = member.pin.as_ref().map(|pin| pin.intersection(&common).copied().collect::<CpuSet>());
        match (member.rank, pin.filter(|pin| !pin.is_empty())) {
            // The rank keeps the CPUs on which it was started, however ranks were placed then.
            (Some(_), Some(pin)) if is_whole => pin,
            (Some(_), None) if is_whole => common,
            (Some(rank), _) => slice(&common, rank),
            (None, Some(pin)) => pin,
            (None, None) => common,
        }
    }

    /// Returns the job's CPUs that are set aside for other processes.
    fn set_aside(&self, pid: i32) -> CpuSet {
        let others = self.members.iter().filter(|(other, _)| **other != pid);
        let of_members = others.filter_map(|(_, member)| member.exclusive.as_ref());
        let of_pre_registered =
            self.pre_registered.iter().filter(|(other, _)| **other != pid).map(|(_, exclusive)| exclusive);
        of_members
            .chain(of_pre_registered)
            .flat_map(|exclusive| &exclusive.cpus)
            .copied()
            .filter(|cpu| self.current.contains(cpu))
            .collect()
    }

    /// Sets CPUs aside for a process that has joined.
    ///
    /// # Errors
    /// The CPUs are not the job's or are set aside for others, or there is no such process.
    pub fn set(&mut self, pid: i32, cpus: &CpuSet, flags: Flags) -> Result<(), Status> {
        if !self.members.contains_key(&pid) {
            return Err(Status::NoProcess);
        }
        let taken_from = self.take(pid, cpus, flags)?;
        if let Some(member) = self.members.get_mut(&pid) {
            let exclusive = member.exclusive.get_or_insert_default();
            exclusive.cpus.clone_from(cpus);
            exclusive.returns |= flags.returns;
            for (owner, taken) in taken_from {
                exclusive.taken_from.entry(owner).or_default().extend(&taken);
            }
        }
        Ok(())
    }

    /// Sets CPUs aside for a process that will join.
    ///
    /// # Errors
    /// Those of [`Members::set`], or the process has joined.
    pub fn pre_init(&mut self, pid: i32, cpus: &CpuSet, flags: Flags) -> Result<(), Status> {
        if self.members.contains_key(&pid) || self.pre_registered.contains_key(&pid) {
            return Err(Status::Already);
        }
        if self.pre_registered.len() >= rms_malleable::MOST_PROCESSES {
            return Err(Status::TooMany);
        }
        let taken_from = self.take(pid, cpus, flags)?;
        self.pre_registered.insert(pid, ExclusiveCpus { cpus: cpus.clone(), taken_from, returns: flags.returns });
        Ok(())
    }

    /// Releases the CPUs that are set aside for the process.
    ///
    /// # Errors
    /// None were set aside.
    pub fn post_finalize(&mut self, pid: i32, flags: Flags) -> Result<(), Status> {
        let of_member = self.members.get_mut(&pid).and_then(|member| member.exclusive.take());
        let mut exclusive = self.pre_registered.remove(&pid).or(of_member).ok_or(Status::NoProcess)?;
        exclusive.returns |= flags.returns;
        self.give_back(pid, exclusive);
        Ok(())
    }

    /// Takes the CPUs from other processes, and returns which were taken from which process.
    fn take(&mut self, pid: i32, cpus: &CpuSet, flags: Flags) -> Result<BTreeMap<i32, CpuSet>, Status> {
        if cpus.is_empty() || !cpus.is_subset(&self.current) {
            return Err(Status::NotAllowed);
        }
        let wanted_of = |exclusive: &ExclusiveCpus| exclusive.cpus.intersection(cpus).copied().collect::<CpuSet>();
        let others = self.members.iter().filter(|(other, _)| **other != pid);
        let mut taken: BTreeMap<i32, CpuSet> =
            others.filter_map(|(other, member)| Some((*other, wanted_of(member.exclusive.as_ref()?)))).collect();
        let pre_registered = self.pre_registered.iter().filter(|(other, _)| **other != pid);
        taken.extend(pre_registered.map(|(other, exclusive)| (*other, wanted_of(exclusive))));
        taken.retain(|_, cpus| !cpus.is_empty());
        let keeps_one = |(other, taken): (&i32, &CpuSet)| {
            let exclusive =
                self.members.get(other).and_then(|member| member.exclusive.as_ref()).or(self.pre_registered.get(other));
            exclusive.is_none_or(|exclusive| exclusive.cpus.len() > taken.len())
        };
        let may_take = taken.is_empty() || (flags.steals && taken.iter().all(keeps_one));
        if !may_take {
            return Err(Status::NotAllowed);
        }
        for (other, taken) in &taken {
            self.exclusive_mut(*other).into_iter().for_each(|own| own.cpus.retain(|cpu| !taken.contains(cpu)));
        }
        Ok(taken)
    }
}

/// Returns a rank's part: at least one CPU, which ranks share if there are fewer CPUs than ranks.
fn slice(cpus: &CpuSet, rank: Rank) -> CpuSet {
    let (n_cpus, n_ranks, rank) = (cpus.len(), rank.n_ranks as usize, rank.rank as usize);
    if n_cpus == 0 {
        return CpuSet::new();
    }
    let (from, to) = match n_cpus < n_ranks {
        true => (rank % n_cpus, rank % n_cpus + 1),
        false => (rank * n_cpus / n_ranks, (rank + 1) * n_cpus / n_ranks),
    };
    cpus.iter().copied().skip(from).take(to - from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &[u32]) -> CpuSet {
        list.iter().copied().collect()
    }

    fn members(n_cpus: u32) -> Members {
        Members::new((0..n_cpus).collect(), n_cpus as usize)
    }

    const PLAIN: Flags = Flags { steals: false, returns: false, waits: false };
    const STEAL: Flags = Flags { steals: true, returns: true, waits: false };

    #[test]
    fn a_process_alone_has_what_the_job_has() {
        let mut members = members(4);
        members.join(1, None, cpus(&[0, 1, 2, 3]), None, None);
        for current in [&[0, 1, 2, 3][..], &[0, 1], &[2], &[0, 1, 2, 3, 4]] {
            members.set_current(cpus(current));
            assert_eq!((members.intended(1), members.most(1)), (cpus(current), 4));
        }
        // A process that is started later, on fewer CPUs, may also get that many later.
        members.set_current(cpus(&[0]));
        members.join(2, None, cpus(&[0]), None, None);
        assert_eq!((members.intended(2), members.most(2)), (cpus(&[0]), 4));
        members.set_current(cpus(&[0, 1, 2, 3]));
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1, 2, 3]), cpus(&[0, 1, 2, 3])));
    }

    /// A guest starts on borrowed CPUs, and has all that it requested once the job that lent them has ended.
    #[test]
    fn processes_of_a_guest_may_have_what_the_job_asked_for() {
        let mut members = Members::new(cpus(&[2, 3]), 4);
        members.join(1, None, cpus(&[2, 3]), None, None);
        for (rank, first) in [(0, [2]), (1, [3])] {
            members.join(10 + rank as i32, Some(Rank { rank, n_ranks: 2 }), cpus(&first), None, None);
        }
        assert_eq!((members.most(1), members.most(10), members.intended(11)), (4, 2, cpus(&[3])));
        members.set_current((0..4).collect());
        assert_eq!((members.intended(1), members.intended(10)), ((0..4).collect(), cpus(&[0, 1])));
        // A process that was started on more CPUs than the job had at its start.
        let mut members = Members::new(cpus(&[0, 1]), 2);
        members.set_current((0..4).collect());
        members.join(1, None, (0..4).collect(), None, None);
        assert_eq!(members.most(1), 4);
    }

    #[test]
    fn ranks_have_parts_of_what_is_left_and_each_keeps_a_cpu() {
        let mut members = members(8);
        for rank in 0..4 {
            let rank = Rank { rank, n_ranks: 4 };
            members.join(10 + rank.rank as i32, Some(rank), (0..8).collect(), None, None);
        }
        let check = |members: &Members, expected: [&[u32]; 4]| {
            let intended: Vec<CpuSet> = (10..14).map(|pid| members.intended(pid)).collect();
            assert_eq!(intended, expected.map(cpus));
        };
        check(&members, [&[0, 1, 2, 3, 4, 5, 6, 7]; 4]);
        members.set_current((0..6).collect());
        check(&members, [&[0], &[1, 2], &[3], &[4, 5]]);
        members.set_current((4..8).collect());
        check(&members, [&[4], &[5], &[6], &[7]]);
        members.set_current(cpus(&[0, 1]));
        check(&members, [&[0], &[1], &[0], &[1]]);
    }

    #[test]
    fn a_rank_that_was_bound_goes_back_to_where_it_was() {
        let mut members = members(4);
        for (rank, first) in [(0, [0, 1]), (1, [2, 3])] {
            members.join(rank as i32 + 1, Some(Rank { rank, n_ranks: 2 }), cpus(&first), None, None);
        }
        members.set_current(cpus(&[0, 1]));
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0]), cpus(&[1])));
        assert_eq!(members.most(1), 2);
        members.set_current(cpus(&[0, 1, 2, 3]));
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1]), cpus(&[2, 3])));
    }

    #[test]
    fn a_rank_that_joins_while_its_job_lends_cpus_has_all_of_its_task_later() {
        let mut members = members(4);
        members.set_current(cpus(&[0, 1]));
        for (rank, first, bound) in [(0, [0], [0, 1]), (1, [1], [2, 3])] {
            let rank = Rank { rank, n_ranks: 2 };
            members.join(rank.rank as i32 + 1, Some(rank), cpus(&first), Some(cpus(&bound)), None);
        }
        assert_eq!((members.intended(1), members.intended(2), members.most(1)), (cpus(&[0]), cpus(&[1]), 2));
        members.set_current(cpus(&[0, 1, 2, 3]));
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1]), cpus(&[2, 3])));
    }

    #[test]
    fn what_is_set_aside_is_one_processs_alone() {
        let mut members = members(4);
        members.join(1, None, (0..4).collect(), None, None);
        members.join(2, None, (0..4).collect(), None, None);
        members.set(1, &cpus(&[0, 1, 2]), PLAIN).expect("the job's");
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1, 2]), cpus(&[3])));
        assert_eq!(members.set(2, &cpus(&[2, 3]), PLAIN), Err(Status::NotAllowed), "1 has it");
        assert_eq!(members.set(2, &cpus(&[4]), PLAIN), Err(Status::NotAllowed), "not the job's");
        assert_eq!(members.set(2, &cpus(&[]), PLAIN), Err(Status::NotAllowed), "none");
        assert_eq!(members.set(3, &cpus(&[3]), PLAIN), Err(Status::NoProcess));
        members.set(2, &cpus(&[2, 3]), STEAL).expect("stolen");
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1]), cpus(&[2, 3])));
        assert_eq!(members.set(2, &cpus(&[0, 1, 2, 3]), STEAL), Err(Status::NotAllowed), "its last one");
        members.leave(2);
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]), "it comes back");
        // A job that has fewer CPUs uses those; what was set aside applies again once it has it again.
        members.set_current(cpus(&[2, 3]));
        assert_eq!(members.intended(1), cpus(&[2]));
        members.set_current(cpus(&[3]));
        assert_eq!(members.intended(1), cpus(&[3]));
        members.set_current((0..4).collect());
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]));
        members.post_finalize(1, PLAIN).expect("it was set aside");
        assert_eq!(members.intended(1), (0..4).collect());
        assert_eq!(members.post_finalize(1, PLAIN), Err(Status::NoProcess));
    }

    fn three_with_cpus(flags: Flags) -> Members {
        let mut members = members(6);
        (1..4).for_each(|pid| members.join(pid, None, (0..6).collect(), None, None));
        members.set(1, &cpus(&[0, 1, 2]), flags).expect("the job's");
        members.set(3, &cpus(&[5]), flags).expect("the job's");
        members
    }

    #[test]
    fn stolen_cpus_come_back_although_others_were_set_meanwhile() {
        let mut members = three_with_cpus(PLAIN);
        members.set(2, &cpus(&[2, 3]), STEAL).expect("stolen");
        members.set(2, &cpus(&[2, 3, 4]), PLAIN).expect("nobody's");
        members.leave(2);
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]));
    }

    #[test]
    fn cpus_that_were_stolen_twice_come_back_to_their_first_owner() {
        let mut members = three_with_cpus(PLAIN);
        members.set(2, &cpus(&[2, 3]), STEAL).expect("stolen");
        members.set(3, &cpus(&[2, 5]), STEAL).expect("stolen");
        members.leave(2);
        assert_eq!((members.intended(1), members.intended(3)), (cpus(&[0, 1]), cpus(&[2, 5])), "3 has it");
        members.leave(3);
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]));
        // In the other order.
        let mut members = three_with_cpus(PLAIN);
        members.set(2, &cpus(&[2, 3]), STEAL).expect("stolen");
        members.set(3, &cpus(&[2, 5]), STEAL).expect("stolen");
        members.leave(3);
        assert_eq!((members.intended(1), members.intended(2)), (cpus(&[0, 1]), cpus(&[2, 3])));
        members.leave(2);
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]));
    }

    #[test]
    fn cpus_wait_for_a_process_that_will_join() {
        let mut members = members(4);
        members.join(1, None, (0..4).collect(), None, None);
        members.pre_init(9, &cpus(&[3]), PLAIN).expect("the job's");
        assert_eq!(members.pre_init(9, &cpus(&[2]), PLAIN), Err(Status::Already));
        assert_eq!(members.intended(1), cpus(&[0, 1, 2]));
        members.join(11, None, (0..4).collect(), None, Some(9));
        assert_eq!((members.intended(11), members.intended(1)), (cpus(&[3]), cpus(&[0, 1, 2])));
        members.leave(11);
        assert_eq!(members.intended(1), (0..4).collect());
    }
}
