//! Decides which nodes take the ranks of a spawn: the named ones, or else those with room, in blocks.

use std::collections::BTreeMap;

use thiserror::Error;

use super::JobNode;
use super::frames::{Command, NamedNode};

/// A node of the job and the number of further ranks for which it has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub node: JobNode,
    pub n_free: u32,
}

/// Consecutive ranks on one node. Blocks come in the order of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of the command.
    pub command: usize,
    /// Index of the room.
    pub room: usize,
    pub n_ranks: u32,
}

/// Why the ranks cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    #[error("node {0} does not belong to the job")]
    NotHeld(String),
    #[error("there is no room for {n_missing} of the ranks")]
    Full { n_missing: u32 },
    #[error("more than {MAX_PER_NODE} ranks on one node")]
    TooMany,
}

/// A named node takes as many ranks of one spawn as requested, up to this limit, which no real program reaches.
pub const MAX_PER_NODE: u32 = 4096;

/// # Errors
/// The job does not hold a named node, or there is no room. Nothing is placed then.
pub fn place(commands: &[Command], rooms: &[Room]) -> Result<Vec<Block>, PlaceError> {
    let mut free: Vec<u32> = rooms.iter().map(|room| room.n_free).collect();
    let mut n_placed = vec![0_u32; rooms.len()];
    let mut blocks = Vec::new();
    let mut n_missing = 0;
    for (command, wanted) in commands.iter().enumerate() {
        let counts = if wanted.nodes.is_empty() {
            let (counts, missing) = wherever(wanted.n_ranks, &free);
            n_missing += missing;
            counts
        } else {
            at_named(wanted, rooms, &free)?
        };
        for (room, n_ranks) in counts {
            free[room] = free[room].saturating_sub(n_ranks);
            n_placed[room] = n_placed[room].saturating_add(n_ranks);
            if n_placed[room] > MAX_PER_NODE {
                return Err(PlaceError::TooMany);
            }
            blocks.push(Block { command, room, n_ranks });
        }
    }
    match n_missing {
        0 => Ok(blocks),
        n_missing => Err(PlaceError::Full { n_missing }),
    }
}

/// Fills one node after the other; also returns how many ranks are left over.
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

/// Gives one rank to each node in turn while it has room (or slots, if the request names them), then one to each
/// regardless of room. With slots, one node is filled before the next.
fn at_named(command: &Command, rooms: &[Room], free: &[u32]) -> Result<Vec<(usize, u32)>, PlaceError> {
    let mut nodes: Vec<(usize, u32)> = Vec::new();
    let mut limits: BTreeMap<usize, u32> = BTreeMap::new();
    for NamedNode { node, slots } in &command.nodes {
        let room = rooms.iter().position(|room| room.node.node == *node);
        let room = room.ok_or_else(|| PlaceError::NotHeld(node.clone()))?;
        if !nodes.iter().any(|(known, _)| *known == room) {
            nodes.push((room, 0));
        }
        let limit = limits.entry(room).or_insert(0);
        *limit = limit.saturating_add(slots.unwrap_or(0));
    }
    let has_slots = limits.values().any(|slots| *slots > 0);
    if !has_slots {
        limits = nodes.iter().map(|(room, _)| (*room, free[*room])).collect();
    }
    let mut left = command.n_ranks;
    if left.div_ceil(nodes.len() as u32) > MAX_PER_NODE {
        return Err(PlaceError::TooMany);
    }
    if has_slots {
        for (room, n_here) in &mut nodes {
            *n_here = left.min(limits[room]);
            left -= *n_here;
        }
    }
    while left > 0 {
        let has_room = |(room, n_here): &(usize, u32)| *n_here < limits[room];
        let is_full = !nodes.iter().any(has_room);
        for node in &mut nodes {
            let takes = left > 0 && (is_full || has_room(node));
            if takes {
                node.1 += 1;
                left -= 1;
            }
        }
    }
    nodes.retain(|(_, n_here)| *n_here > 0);
    Ok(nodes)
}

/// Returns which ranks share a node, as the value of PMI's key: `(vector,(first node,nodes,ranks on each),…)`. Nodes
/// are numbered in the order in which they first appear.
pub fn process_mapping<H: Ord>(blocks: impl IntoIterator<Item = (H, u32)>) -> String {
    let mut numbers: BTreeMap<H, usize> = BTreeMap::new();
    let mut folded: Vec<(usize, usize, u32)> = Vec::new();
    for (node, n_ranks) in blocks {
        if n_ranks == 0 {
            continue;
        }
        let n_known = numbers.len();
        let number = *numbers.entry(node).or_insert(n_known);
        match folded.last_mut() {
            Some((first, n_nodes, ranks)) if *ranks == n_ranks && *first + *n_nodes == number => *n_nodes += 1,
            Some(_) | None => folded.push((number, 1, n_ranks)),
        }
    }
    let texts: Vec<String> =
        folded.iter().map(|(node, n_nodes, ranks)| format!("({node},{n_nodes},{ranks})")).collect();
    format!("(vector,{})", texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(free: &[(&str, u32)]) -> Vec<Room> {
        let room = |(node, n_free): &(&str, u32)| Room {
            node: JobNode { node: (*node).to_owned(), joined: 1 },
            n_free: *n_free,
        };
        free.iter().map(room).collect()
    }

    fn command(n_ranks: u32, nodes: &[(&str, Option<u32>)]) -> Command {
        let named = |(node, slots): &(&str, Option<u32>)| NamedNode { node: (*node).to_owned(), slots: *slots };
        let nodes = nodes.iter().map(named).collect();
        Command { argv: vec!["a".to_owned()], n_ranks, nodes, wdir: None, path: None }
    }

    /// Returns (room, ranks) of each block.
    fn placed(commands: &[Command], free: &[(&str, u32)]) -> Result<Vec<(usize, u32)>, PlaceError> {
        place(commands, &rooms(free)).map(|blocks| blocks.iter().map(|block| (block.room, block.n_ranks)).collect())
    }

    #[test]
    fn ranks_that_may_run_anywhere_fill_one_node_after_the_other() {
        assert_eq!(placed(&[command(5, &[])], &[("a", 2), ("b", 0), ("c", 4)]), Ok(vec![(0, 2), (2, 3)]));
        let two = [command(2, &[]), command(1, &[])];
        assert_eq!(placed(&two, &[("a", 2), ("b", 1)]), Ok(vec![(0, 2), (1, 1)]));
        assert_eq!(placed(&[command(5, &[])], &[("a", 2), ("b", 1)]), Err(PlaceError::Full { n_missing: 2 }));
    }

    #[test]
    fn named_nodes_share_the_ranks_and_take_more_than_they_have_room_for() {
        let both = [("a", None), ("b", None)];
        assert_eq!(placed(&[command(2, &both)], &[("a", 4), ("b", 4)]), Ok(vec![(0, 1), (1, 1)]));
        assert_eq!(placed(&[command(4, &both)], &[("a", 1), ("b", 4)]), Ok(vec![(0, 1), (1, 3)]));
        assert_eq!(placed(&[command(5, &both)], &[("a", 0), ("b", 0)]), Ok(vec![(0, 3), (1, 2)]));
        assert_eq!(placed(&[command(1, &[("x", None)])], &[("a", 9)]), Err(PlaceError::NotHeld("x".to_owned())));
        assert_eq!(placed(&[command(1 << 20, &[("a", None)])], &[("a", 9)]), Err(PlaceError::TooMany));
        let many: Vec<Command> = (0..3).map(|_| command(MAX_PER_NODE / 2, &[("a", None)])).collect();
        assert_eq!(placed(&many, &[("a", 9)]), Err(PlaceError::TooMany), "together");
        assert!(placed(&many[1..], &[("a", 9)]).is_ok());
    }

    #[test]
    fn slots_fill_one_node_before_the_next() {
        let slots = [("a", Some(2)), ("b", Some(2))];
        assert_eq!(placed(&[command(3, &slots)], &[("a", 9), ("b", 9)]), Ok(vec![(0, 2), (1, 1)]));
        assert_eq!(placed(&[command(6, &slots)], &[("a", 0), ("b", 0)]), Ok(vec![(0, 3), (1, 3)]));
    }

    #[test]
    fn the_mapping_folds_equal_nodes() {
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
