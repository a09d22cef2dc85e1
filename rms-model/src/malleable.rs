//! Applications whose nodes may change while they run (002), as their users describe them at submission.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sizes::Sizes;

/// The sizes between which an application may be changed, and how it is notified of a change.
///
/// If `least` and `most` are both 0, the application keeps the size with which it starts: it is neither offered nodes
/// nor asked for any, but may itself request more or give some back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malleable {
    /// The application is never asked to hold fewer nodes.
    pub least: u32,
    /// The application is never offered more nodes.
    pub most: u32,
    /// The usable sizes between them.
    #[serde(deserialize_with = "crate::checked::sizes")]
    pub sizes: Sizes,
    pub on_resize: OnResize,
    pub speedup: Speedup,
    /// Whether the application continues without a lost node, as long as it keeps its minimum. If absent, workers do,
    /// and a negotiating application does if it has declared that it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_loss: Option<bool>,
}

/// What happens in the job when its nodes change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnResize {
    /// A process of the job negotiates for it, with the credentials that the agent has placed on the node.
    Negotiates,
    /// The work gets a signal and confirms with `rms resize-done`.
    Signal(i32),
    /// A command runs on the first node and confirms with `rms resize-done`.
    Hook(String),
    /// The tasks are independent workers: started on nodes that are added, ended on nodes that are removed.
    Workers,
}

/// A declared speed-up: pairs of a number of nodes and the speed on them, in thousandths of the speed on one node;
/// ascending by nodes. Empty if none was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>")]
pub struct Speedup(pub Vec<(u32, u32)>);

impl TryFrom<Vec<(u32, u32)>> for Speedup {
    type Error = BadSpeedup;

    fn try_from(points: Vec<(u32, u32)>) -> Result<Speedup, BadSpeedup> {
        let speedup = Speedup(points);
        if speedup.is_sound() { Ok(speedup) } else { Err(BadSpeedup) }
    }
}

/// The error for points that are not a speed-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a speed-up has at most {MAX_POINTS} points, and their numbers of nodes rise from 1")]
pub struct BadSpeedup;

impl Malleable {
    /// Returns whether no sizes were given, so that only a request of the application changes its size.
    pub fn is_as_started(&self) -> bool {
        self.least == 0 && self.most == 0
    }

    /// Returns the minimum and maximum number of nodes of an application that started with `started_with` nodes.
    pub fn range(&self, started_with: u32) -> (u32, u32) {
        if self.is_as_started() { (started_with, started_with) } else { (self.least, self.most) }
    }
}

impl Speedup {
    /// Returns the speed on that many nodes, in thousandths of the speed on one. It is interpolated linearly between
    /// the declared points and rounded down, starts from 1000 on one node or what is declared for it, and stays
    /// constant beyond the last point. `None` if nothing is declared.
    pub fn at(&self, nodes: u32) -> Option<u32> {
        let (last_nodes, last_speed) = *self.0.last()?;
        if nodes >= last_nodes {
            return Some(last_speed);
        }
        let next_idx = self.0.iter().position(|(declared, _)| *declared > nodes)?;
        let (to, to_speed) = self.0[next_idx];
        let before = next_idx.checked_sub(1).map(|idx| self.0[idx]);
        let (from, from_speed) = before.unwrap_or(if nodes == 0 { (0, 0) } else { (1, 1000) });
        // In an ascending list, as every validated list is, `from` is below `to`.
        let width = i64::from(to.saturating_sub(from)).max(1);
        let rise = i64::from(to_speed) - i64::from(from_speed);
        let speed = i64::from(from_speed) + (rise * i64::from(nodes.saturating_sub(from))).div_euclid(width);
        Some(u32::try_from(speed.max(0)).unwrap_or(u32::MAX))
    }

    /// Returns whether the numbers of nodes are above 0 and ascending, and not too many.
    pub fn is_sound(&self) -> bool {
        let nodes = self.0.iter().map(|(nodes, _)| *nodes);
        self.0.len() <= MAX_POINTS && nodes.clone().all(|nodes| nodes > 0) && nodes.is_sorted_by(|one, next| one < next)
    }
}

/// The most points of a declared speed-up.
pub const MAX_POINTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_declared_points_the_speed_is_on_the_line() {
        let speedup = Speedup(vec![(2, 1800), (4, 3000), (8, 4000)]);
        let at = |nodes| speedup.at(nodes).expect("declared");
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(4), at(5), at(8), at(9)],
            [0, 1000, 1800, 2400, 3000, 3250, 4000, 4000]
        );
        assert_eq!(Speedup::default().at(3), None);
    }

    #[test]
    fn a_speed_up_may_fall_and_the_largest_numbers_do_no_harm() {
        let falling = Speedup(vec![(1, 1000), (5, 600)]);
        assert_eq!([falling.at(2), falling.at(3), falling.at(4)], [Some(900), Some(800), Some(700)]);
        let steep = Speedup(vec![(1, 0), (u32::MAX, u32::MAX)]);
        assert_eq!(steep.at(u32::MAX / 2), Some(u32::MAX / 2 - 1));
    }

    #[test]
    fn points_ascend_and_are_not_too_many() {
        assert!(Speedup(vec![(1, 1000), (2, 1900)]).is_sound());
        assert!(!Speedup(vec![(2, 1900), (1, 1000)]).is_sound());
        assert!(!Speedup(vec![(2, 1900), (2, 1900)]).is_sound());
        assert!(!Speedup(vec![(0, 0)]).is_sound());
        assert!(!Speedup((1..=257).map(|nodes| (nodes, 1000)).collect()).is_sound());
    }
}
