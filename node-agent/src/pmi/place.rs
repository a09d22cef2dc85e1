//! Decides which hosts take the ranks of a spawn: those that are named, or those with room, in blocks.

use std::collections::BTreeMap;

use thiserror::Error;

use super::HostId;
use super::frames::{Command, NamedHost};

/// A host of the job and how many more ranks it has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub host: HostId,
    pub n_free: u32,
}

/// Ranks that follow each other on one host. Blocks come in the order of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which of the commands.
    pub command: usize,
    /// Which of the rooms.
    pub room: usize,
    pub n_ranks: u32,
}

/// Why the ranks cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    #[error("host {0} is none of the job's")]
    NotHeld(String),
    #[error("there is no room for {n_missing} of the ranks")]
    Full { n_missing: u32 },
    #[error("more than {MAX_PER_HOST} ranks on one host")]
    TooMany,
}

/// A host that is named takes what it is told, but nobody means that many.
pub const MAX_PER_HOST: u32 = 4096;

/// # Errors
/// A host is named that the job does not hold; there is no room. Nothing is placed then.
pub fn place(commands: &[Command], rooms: &[Room]) -> Result<Vec<Block>, PlaceError> {
    let mut free: Vec<u32> = rooms.iter().map(|room| room.n_free).collect();
    let mut blocks = Vec::new();
    let mut n_missing = 0;
    for (command, wanted) in commands.iter().enumerate() {
        let counts = if wanted.hosts.is_empty() {
            let (counts, missing) = wherever(wanted.n_ranks, &free);
            n_missing += missing;
            counts
        } else {
            at_named(wanted, rooms, &free)?
        };
        for (room, n_ranks) in counts {
            free[room] = free[room].saturating_sub(n_ranks);
            blocks.push(Block { command, room, n_ranks });
        }
    }
    match n_missing {
        0 => Ok(blocks),
        n_missing => Err(PlaceError::Full { n_missing }),
    }
}

/// Fills one host after the other; and how many ranks are left over.
fn wherever(n_ranks: u32, free: &[u32]) -> (Vec<(usize, u32)>, u32) {
    let mut left = n_ranks;
    let mut counts = Vec::new();
    for (room, n_free) in free.iter().enumerate() {
        let n_here = left.min(*n_free);
        if n_here > 0 {
            counts.push((room, n_here));
            left -= n_here;
        }
    }
    (counts, left)
}

/// One rank to each host in turn as long as it has room (or slots that it was given), then one to each whether or not
/// it has. With slots, one host is filled before the next.
fn at_named(command: &Command, rooms: &[Room], free: &[u32]) -> Result<Vec<(usize, u32)>, PlaceError> {
    let mut hosts: Vec<(usize, u32)> = Vec::new();
    let mut limits: BTreeMap<usize, u32> = BTreeMap::new();
    for NamedHost { node, slots } in &command.hosts {
        let room = rooms.iter().position(|room| room.host.node == *node);
        let room = room.ok_or_else(|| PlaceError::NotHeld(node.clone()))?;
        if !hosts.iter().any(|(known, _)| *known == room) {
            hosts.push((room, 0));
        }
        let limit = limits.entry(room).or_insert(0);
        *limit = limit.saturating_add(slots.unwrap_or(0));
    }
    let has_slots = limits.values().any(|slots| *slots > 0);
    if !has_slots {
        limits = hosts.iter().map(|(room, _)| (*room, free[*room])).collect();
    }
    let mut left = command.n_ranks;
    if left.div_ceil(hosts.len() as u32) > MAX_PER_HOST {
        return Err(PlaceError::TooMany);
    }
    if has_slots {
        for (room, n_here) in &mut hosts {
            *n_here = left.min(limits[room]);
            left -= *n_here;
        }
    }
    while left > 0 {
        let has_room = |(room, n_here): &(usize, u32)| *n_here < limits[room];
        let is_full = !hosts.iter().any(has_room);
        for host in &mut hosts {
            let takes = left > 0 && (is_full || has_room(host));
            if takes {
                host.1 += 1;
                left -= 1;
            }
        }
    }
    hosts.retain(|(_, n_here)| *n_here > 0);
    Ok(hosts)
}

/// Which ranks live together, as PMI's keys say it: `(vector,(first host,hosts,ranks on each),…)`. Hosts are counted
/// in the order in which they first appear.
pub fn process_mapping<H: Ord>(blocks: impl IntoIterator<Item = (H, u32)>) -> String {
    let mut numbers: BTreeMap<H, usize> = BTreeMap::new();
    let mut folded: Vec<(usize, usize, u32)> = Vec::new();
    for (host, n_ranks) in blocks {
        if n_ranks == 0 {
            continue;
        }
        let n_known = numbers.len();
        let number = *numbers.entry(host).or_insert(n_known);
        match folded.last_mut() {
            Some((first, n_hosts, ranks)) if *ranks == n_ranks && *first + *n_hosts == number => *n_hosts += 1,
            Some(_) | None => folded.push((number, 1, n_ranks)),
        }
    }
    let texts: Vec<String> =
        folded.iter().map(|(host, n_hosts, ranks)| format!("({host},{n_hosts},{ranks})")).collect();
    format!("(vector,{})", texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(free: &[(&str, u32)]) -> Vec<Room> {
        let room = |(node, n_free): &(&str, u32)| Room {
            host: HostId { node: (*node).to_owned(), joined: 1 },
            n_free: *n_free,
        };
        free.iter().map(room).collect()
    }

    fn command(n_ranks: u32, hosts: &[(&str, Option<u32>)]) -> Command {
        let named = |(node, slots): &(&str, Option<u32>)| NamedHost { node: (*node).to_owned(), slots: *slots };
        let hosts = hosts.iter().map(named).collect();
        Command { argv: vec!["a".to_owned()], n_ranks, hosts, wdir: None, path: None }
    }

    /// (room, ranks) of each block.
    fn placed(commands: &[Command], free: &[(&str, u32)]) -> Result<Vec<(usize, u32)>, PlaceError> {
        place(commands, &rooms(free)).map(|blocks| blocks.iter().map(|block| (block.room, block.n_ranks)).collect())
    }

    #[test]
    fn ranks_that_may_run_anywhere_fill_one_host_after_the_other() {
        assert_eq!(placed(&[command(5, &[])], &[("a", 2), ("b", 0), ("c", 4)]), Ok(vec![(0, 2), (2, 3)]));
        let two = [command(2, &[]), command(1, &[])];
        assert_eq!(placed(&two, &[("a", 2), ("b", 1)]), Ok(vec![(0, 2), (1, 1)]));
        assert_eq!(placed(&[command(5, &[])], &[("a", 2), ("b", 1)]), Err(PlaceError::Full { n_missing: 2 }));
    }

    #[test]
    fn named_hosts_share_the_ranks_and_take_more_than_they_have_room_for() {
        let both = [("a", None), ("b", None)];
        assert_eq!(placed(&[command(2, &both)], &[("a", 4), ("b", 4)]), Ok(vec![(0, 1), (1, 1)]));
        assert_eq!(placed(&[command(4, &both)], &[("a", 1), ("b", 4)]), Ok(vec![(0, 1), (1, 3)]));
        assert_eq!(placed(&[command(5, &both)], &[("a", 0), ("b", 0)]), Ok(vec![(0, 3), (1, 2)]));
        assert_eq!(placed(&[command(1, &[("x", None)])], &[("a", 9)]), Err(PlaceError::NotHeld("x".to_owned())));
        assert_eq!(placed(&[command(1 << 20, &[("a", None)])], &[("a", 9)]), Err(PlaceError::TooMany));
    }

    #[test]
    fn slots_fill_one_host_before_the_next() {
        let slots = [("a", Some(2)), ("b", Some(2))];
        assert_eq!(placed(&[command(3, &slots)], &[("a", 9), ("b", 9)]), Ok(vec![(0, 2), (1, 1)]));
        assert_eq!(placed(&[command(6, &slots)], &[("a", 0), ("b", 0)]), Ok(vec![(0, 3), (1, 3)]));
    }

    #[test]
    fn the_mapping_folds_equal_hosts() {
        let check = |blocks: &[(u32, u32)], expected: &str| {
            assert_eq!(process_mapping(blocks.iter().copied()), expected);
        };
        check(&[(0, 2), (1, 2), (2, 2)], "(vector,(0,3,2))");
        check(&[(0, 2), (1, 1), (2, 1)], "(vector,(0,1,2),(1,2,1))");
        check(&[(0, 3)], "(vector,(0,1,3))");
        check(&[(0, 1), (1, 0), (2, 1)], "(vector,(0,2,1))");
        check(&[(5, 2), (7, 2), (5, 1)], "(vector,(0,2,2),(0,1,1))");
    }
}
