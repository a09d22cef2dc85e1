//! Applications whose nodes may change while they run (002), as their users describe them at submission.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sizes::Sizes;

/// Between which sizes an application may be changed, and how it learns of it.
///
/// `least` and `most` both 0: as many as it starts with. It is then neither offered nor asked for any, but may itself ask for
/// more, or give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malleable {
    /// It is never asked to hold fewer nodes.
    pub least: u32,
    /// It is never offered more.
    pub most: u32,
    /// Which of the numbers between are of use.
    #[serde(deserialize_with = "crate::checked::sizes")]
    pub sizes: Sizes,
    pub on_resize: OnResize,
    pub speedup: Speedup,
    /// Does it go on without a node that is lost, as long as it has its least? Absent: workers do, and who negotiates if it
    /// has said that it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_loss: Option<bool>,
}

/// What happens in the job when its nodes change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnResize {
    /// A process of the job negotiates for it, with the credentials that the agent has placed there.
    Negotiates,
    /// The work gets a signal, and confirms with `rms resize-done`.
    Signal(i32),
    /// A command is executed on the first node, and confirms with `rms resize-done`.
    Hook(String),
    /// The tasks are workers that need nothing from each other: started on nodes that come, ended on nodes that go.
    Workers,
}

/// A declared speed-up: with so many nodes, so many thousandths of the speed on one; ascending by nodes. Empty: not
/// declared.
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

/// Why points are no speed-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a speed-up has at most {MAX_POINTS} points, and their numbers of nodes rise from 1")]
pub struct BadSpeedup;

impl Malleable {
    /// Whether nothing was said of its sizes but that they may be negotiated.
    pub fn is_as_started(&self) -> bool {
        self.least == 0 && self.most == 0
    }

    /// The least and the most once it has started with so many nodes.
    pub fn range(&self, started_with: u32) -> (u32, u32) {
        if self.is_as_started() { (started_with, started_with) } else { (self.least, self.most) }
    }
}

impl Speedup {
    /// The speed on so many nodes in thousandths of that on one, on straight lines between what is declared, rounded
    /// down: from 1000 on one node, or what is declared for it, and with no gain beyond the last. `None` if nothing is
    /// declared.
    pub fn at(&self, nodes: u32) -> Option<u32> {
        let (last_nodes, last_speed) = *self.0.last()?;
        if nodes >= last_nodes {
            return Some(last_speed);
        }
        let next_idx = self.0.iter().position(|(declared, _)| *declared > nodes)?;
        let (to, to_speed) = self.0[next_idx];
        let before = next_idx.checked_sub(1).map(|idx| self.0[idx]);
        let (from, from_speed) = before.unwrap_or(if nodes == 0 { (0, 0) } else { (1, 1000) });
        // `from` is below `to` where the list ascends, as it does once it was checked.
        let width = i64::from(to.saturating_sub(from)).max(1);
        let rise = i64::from(to_speed) - i64::from(from_speed);
        let speed = i64::from(from_speed) + (rise * i64::from(nodes.saturating_sub(from))).div_euclid(width);
        Some(u32::try_from(speed.max(0)).unwrap_or(u32::MAX))
    }

    /// Whether it names numbers of nodes above 0 in ascending order, and not too many of them.
    pub fn is_sound(&self) -> bool {
        let nodes = self.0.iter().map(|(nodes, _)| *nodes);
        self.0.len() <= MAX_POINTS && nodes.clone().all(|nodes| nodes > 0) && nodes.is_sorted_by(|one, next| one < next)
    }
}

/// How many points a declared speed-up has at most.
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
