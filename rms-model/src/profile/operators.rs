//! Sums and differences of profiles (003, §3.1: ep₁ + ep₂).

use std::ops::{Add, AddAssign, Sub, SubAssign};

use super::{Builder, Profile, Step};
use crate::time::Time;

impl Profile {
    /// Returns at each instant the nodes of this profile or those of `other` beyond `spare`, whichever is more. This is
    /// the occupation of some nodes, if `other` is that of all nodes and `spare` nodes are not among the former.
    pub fn or_beyond(&self, other: &Profile, spare: i64) -> Profile {
        merged(self, other, |own, others| own.max(others - spare.max(0)))
    }
}

impl AddAssign<&Profile> for Profile {
    fn add_assign(&mut self, other: &Profile) {
        *self = merged(self, other, |own, others| own + others);
    }
}

impl SubAssign<&Profile> for Profile {
    fn sub_assign(&mut self, other: &Profile) {
        *self = merged(self, other, |own, others| own - others);
    }
}

impl Add for &Profile {
    type Output = Profile;

    fn add(self, other: &Profile) -> Profile {
        merged(self, other, |own, others| own + others)
    }
}

impl Sub for &Profile {
    type Output = Profile;

    fn sub(self, other: &Profile) -> Profile {
        merged(self, other, |own, others| own - others)
    }
}

/// Walks over the steps of both functions once, combining their values.
fn merged(left: &Profile, right: &Profile, combine: impl Fn(i64, i64) -> i64) -> Profile {
    let mut builder = Builder::default();
    let (mut lefts, mut rights) = (left.steps().peekable(), right.steps().peekable());
    let (mut here, mut there) = (0, 0);
    let from = |step: Option<&Step>| step.map(|step| step.from);
    loop {
        let at: Option<Time> = match (from(lefts.peek()), from(rights.peek())) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
        let Some(at) = at else { break };
        if let Some(step) = lefts.next_if(|step| step.from == at) {
            here = step.nodes;
        }
        if let Some(step) = rights.next_if(|step| step.from == at) {
            there = step.nodes;
        }
        builder.push(at, combine(here, there));
    }
    builder.build()
}
