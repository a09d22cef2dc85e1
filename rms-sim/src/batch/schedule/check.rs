//! Checks whether a schedule could have run: no part of a node is given twice at one instant, and no job does the
//! impossible.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{Indices, Mebibytes, Time};
use thiserror::Error;

use super::{Part, Stretch};

/// What a cluster has; unknown quantities are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub nodes: Option<usize>,
    pub cores: Option<u32>,
    /// The memory of each node.
    pub memory: Option<Mebibytes>,
}

/// The first error in a schedule. Stretches are named by their index in the list, nodes and cores by number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsound {
    #[error("a job starts before it was submitted")]
    StartsBeforeSubmit { stretch: usize },
    #[error("a job ends before it starts")]
    EndsBeforeStart { stretch: usize },
    #[error("a job runs on no node")]
    NoNode { stretch: usize },
    #[error("a job has no core of node {node}")]
    NoCore { stretch: usize, node: usize },
    #[error("a job has node {node} twice")]
    NodeTwice { stretch: usize, node: usize },
    #[error("there is no node {node}: nodes count from 0 to {last}")]
    NoSuchNode { stretch: usize, node: usize, last: usize },
    #[error("node {node} has no core {core}: its cores count from 0 to {last}")]
    NoSuchCore { stretch: usize, node: usize, core: u32, last: u32 },
    #[error("a job was submitted at two times")]
    TwoSubmits { stretches: (usize, usize) },
    #[error("a job runs twice at one time")]
    RunsTwice { stretches: (usize, usize), from: Time, until: Time },
    #[error("core {core} of node {node} is given twice")]
    CoreTwice { stretches: (usize, usize), node: usize, core: u32, from: Time, until: Time },
    #[error("node {node} gives {given} of memory and has {has}")]
    MemoryTwice { stretches: Vec<usize>, node: usize, given: Mebibytes, has: Mebibytes, from: Time, until: Time },
}

/// Checks a schedule. A job has its nodes until just before its end, so that another one may begin at that instant; two
/// stretches of one job are allowed if one ends before the other begins.
///
/// # Errors
/// The first error.
pub fn check_schedule(stretches: &[Stretch], capacity: Capacity) -> Result<(), Unsound> {
    for (idx, stretch) in stretches.iter().enumerate() {
        check_one(idx, stretch, capacity)?;
    }
    check_jobs(stretches)?;
    check_cores(stretches)?;
    capacity.memory.map_or(Ok(()), |has| check_memory(stretches, has))
}

fn check_one(idx: usize, stretch: &Stretch, capacity: Capacity) -> Result<(), Unsound> {
    let Stretch { submit, start, end, nodes, .. } = stretch;
    if start < submit {
        return Err(Unsound::StartsBeforeSubmit { stretch: idx });
    }
    if end < start {
        return Err(Unsound::EndsBeforeStart { stretch: idx });
    }
    if nodes.is_empty() {
        return Err(Unsound::NoNode { stretch: idx });
    }
    let mut known = BTreeSet::new();
    for Part { node, cores, memory: _ } in nodes {
        let node = *node;
        if !known.insert(node) {
            return Err(Unsound::NodeTwice { stretch: idx, node });
        }
        if let Some(n_nodes) = capacity.nodes.filter(|n_nodes| node >= *n_nodes) {
            return Err(Unsound::NoSuchNode { stretch: idx, node, last: n_nodes.saturating_sub(1) });
        }
        let Some(core) = cores.iter().last() else { return Err(Unsound::NoCore { stretch: idx, node }) };
        if let Some(n_cores) = capacity.cores.filter(|n_cores| core >= *n_cores) {
            return Err(Unsound::NoSuchCore { stretch: idx, node, core, last: n_cores.saturating_sub(1) });
        }
    }
    Ok(())
}

/// The start, the end, and the index of the stretch.
type Held = (Time, Time, usize);

/// Returns the first two stretches of the same thing that overlap. Stretches that take no time never overlap.
fn first_overlap(held: &mut Vec<Held>) -> Option<(Held, Held)> {
    held.retain(|(from, until, _)| from < until);
    held.sort_unstable();
    let two = held.windows(2).find(|two| two[1].0 < two[0].1)?;
    Some((two[0], two[1]))
}

/// Returns both in the order of the list.
fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

fn check_jobs(stretches: &[Stretch]) -> Result<(), Unsound> {
    let mut of_jobs: BTreeMap<usize, Vec<Held>> = BTreeMap::new();
    for (idx, Stretch { job_idx, submit, start, end, .. }) in stretches.iter().enumerate() {
        let of_job = of_jobs.entry(*job_idx).or_default();
        if let Some((.., first)) = of_job.first().filter(|(.., first)| stretches[*first].submit != *submit) {
            return Err(Unsound::TwoSubmits { stretches: (*first, idx) });
        }
        of_job.push((*start, *end, idx));
    }
    for held in of_jobs.values_mut() {
        if let Some(((_, end, one), (from, until, other))) = first_overlap(held) {
            return Err(Unsound::RunsTwice { stretches: ordered(one, other), from, until: until.min(end) });
        }
    }
    Ok(())
}

fn check_cores(stretches: &[Stretch]) -> Result<(), Unsound> {
    let mut of_nodes: BTreeMap<usize, Vec<(Held, &Indices)>> = BTreeMap::new();
    for (idx, Stretch { start, end, nodes, .. }) in stretches.iter().enumerate().filter(|(_, has)| has.start < has.end)
    {
        for Part { node, cores, .. } in nodes {
            of_nodes.entry(*node).or_default().push(((*start, *end, idx), cores));
        }
    }
    for (node, held) in &mut of_nodes {
        held.sort_unstable();
        let mut present: Vec<(Held, &Indices)> = Vec::new();
        for ((from, until, idx), cores) in held.iter() {
            present.retain(|((_, end, _), _)| end > from);
            let both = |others: &Indices| cores.iter().find(|core| others.contains(*core));
            let twice = present.iter().find_map(|(other, others)| Some((*other, both(others)?)));
            if let Some(((_, end, other), core)) = twice {
                let (stretches, until) = (ordered(other, *idx), end.min(*until));
                return Err(Unsound::CoreTwice { stretches, node: *node, core, from: *from, until });
            }
            present.push(((*from, *until, *idx), cores));
        }
    }
    Ok(())
}

fn check_memory(stretches: &[Stretch], has: Mebibytes) -> Result<(), Unsound> {
    let mut of_nodes: BTreeMap<usize, Vec<(Held, u64)>> = BTreeMap::new();
    for (idx, Stretch { start, end, nodes, .. }) in stretches.iter().enumerate() {
        for Part { node, memory, .. } in nodes.iter().filter(|part| part.memory.0 > 0 && start < end) {
            of_nodes.entry(*node).or_default().push(((*start, *end, idx), memory.0));
        }
    }
    for (node, held) in &mut of_nodes {
        held.sort_unstable();
        // Stretches that have not ended, by their ends.
        let mut present: BTreeMap<(Time, usize), u64> = BTreeMap::new();
        let mut given: u128 = 0;
        for ((from, until, idx), memory) in held.iter() {
            while let Some(first) = present.first_entry().filter(|first| first.key().0 <= *from) {
                given -= u128::from(first.remove());
            }
            present.insert((*until, *idx), *memory);
            given += u128::from(*memory);
            if given > u128::from(has.0) {
                let mut stretches: Vec<usize> = present.keys().map(|(_, idx)| *idx).collect();
                stretches.sort_unstable();
                let until = present.keys().next().map_or(*until, |(until, _)| *until);
                let given = Mebibytes(u64::try_from(given).unwrap_or(u64::MAX));
                return Err(Unsound::MemoryTwice { stretches, node: *node, given, has, from: *from, until });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(job_idx: usize, times: [i64; 3], parts: &[(usize, &[u32], u64)]) -> Stretch {
        let [submit, start, end] = times.map(Time::from_secs);
        let part = |(node, cores, memory): &(usize, &[u32], u64)| Part {
            node: *node,
            cores: cores.iter().copied().collect(),
            memory: Mebibytes(*memory),
        };
        Stretch { job_idx, submit, start, end, nodes: parts.iter().map(part).collect() }
    }

    const CAPACITY: Capacity = Capacity { nodes: Some(2), cores: Some(4), memory: Some(Mebibytes(100)) };

    fn said(stretches: &[Stretch]) -> String {
        check_schedule(stretches, CAPACITY).map_or_else(|unsound| format!("{unsound:?}"), |()| "sound".to_owned())
    }

    #[test]
    fn who_follows_another_and_who_is_beside_it_is_fine() {
        let sound = [
            on(0, [0, 0, 10], &[(0, &[0, 1], 60), (1, &[3], 0)]),
            on(1, [0, 0, 10], &[(0, &[2, 3], 40)]),
            on(2, [0, 10, 20], &[(0, &[0, 3], 100)]),
            on(3, [0, 5, 5], &[(0, &[0], 100)]),
            on(1, [0, 10, 30], &[(1, &[3], 1)]),
        ];
        assert_eq!(said(&sound), "sound");
        assert_eq!(said(&[]), "sound");
    }

    #[test]
    fn a_core_is_given_once() {
        let first = on(0, [0, 0, 10], &[(0, &[0], 0), (1, &[1, 2], 0)]);
        let twice = [first, on(1, [0, 20, 30], &[(1, &[2], 0)]), on(2, [0, 9, 12], &[(1, &[2], 0)])];
        let expected = Unsound::CoreTwice {
            stretches: (0, 2),
            node: 1,
            core: 2,
            from: Time::from_secs(9),
            until: Time::from_secs(10),
        };
        assert_eq!(check_schedule(&twice, CAPACITY), Err(expected));
    }

    #[test]
    fn memory_is_given_once_as_far_as_it_is_known_how_much_there_is() {
        let of = |job_idx: usize, times, memory| on(job_idx, times, &[(0, &[job_idx as u32], memory)]);
        let full = [of(0, [0, 0, 10], 50), of(1, [0, 0, 20], 50), of(2, [0, 10, 30], 50)];
        assert_eq!(said(&full), "sound");
        let over = [of(0, [0, 0, 10], 50), of(1, [0, 0, 20], 50), of(2, [0, 9, 30], 1)];
        let expected = Unsound::MemoryTwice {
            stretches: vec![0, 1, 2],
            node: 0,
            given: Mebibytes(101),
            has: Mebibytes(100),
            from: Time::from_secs(9),
            until: Time::from_secs(10),
        };
        assert_eq!(check_schedule(&over, CAPACITY), Err(expected));
        assert_eq!(check_schedule(&over, Capacity::default()), Ok(()));
        let huge = [of(0, [0, 0, 10], u64::MAX), of(1, [0, 0, 20], u64::MAX)];
        assert!(said(&huge).starts_with("MemoryTwice"));
    }

    #[test]
    fn no_job_does_the_impossible() {
        let one = |times, parts: &[(usize, &[u32], u64)]| said(&[on(0, times, parts)]);
        let parts: &[(usize, &[u32], u64)] = &[(0, &[0], 0)];
        assert_eq!(one([5, 4, 10], parts), "StartsBeforeSubmit { stretch: 0 }");
        assert_eq!(one([0, 4, 3], parts), "EndsBeforeStart { stretch: 0 }");
        assert_eq!(one([0, 0, 1], &[]), "NoNode { stretch: 0 }");
        assert_eq!(one([0, 0, 1], &[(1, &[], 0)]), "NoCore { stretch: 0, node: 1 }");
        assert_eq!(one([0, 0, 1], &[(1, &[0], 0), (1, &[1], 0)]), "NodeTwice { stretch: 0, node: 1 }");
        assert_eq!(one([0, 0, 1], &[(2, &[0], 0)]), "NoSuchNode { stretch: 0, node: 2, last: 1 }");
        assert_eq!(one([0, 0, 1], &[(0, &[4], 0)]), "NoSuchCore { stretch: 0, node: 0, core: 4, last: 3 }");
        let again = on(0, [0, 0, 10], parts);
        let expected = Unsound::RunsTwice { stretches: (0, 1), from: Time::from_secs(9), until: Time::from_secs(10) };
        assert_eq!(check_schedule(&[again.clone(), on(0, [0, 9, 11], &[(1, &[0], 0)])], CAPACITY), Err(expected));
        assert_eq!(said(&[again, on(0, [1, 10, 11], parts)]), "TwoSubmits { stretches: (0, 1) }");
    }
}
