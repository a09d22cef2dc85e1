//! A fingerprint of a profile's future, updated as blocks are added, so that equal views are recognised without
//! comparing them step by step.

use rms_model::profile::Block;
use rms_model::{Profile, Time};

/// The sum of all changes after an instant, each weighted by a number derived from its time. A profile ends with 0
/// nodes, so its future changes determine it from that instant on: equal futures have equal digests, and different ones
/// collide with a chance of 2⁻¹²⁷. Changes can be added to a sum and subtracted from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u128);

impl Digest {
    /// Computes the digest of what is after `now`.
    pub(super) fn of(profile: &Profile, now: Time) -> Digest {
        let mut digest = Digest::default();
        let mut before = profile.at(now);
        for step in profile.steps().filter(|step| step.from > now) {
            digest.change(step.from, step.nodes - before);
            before = step.nodes;
        }
        digest
    }

    /// Adds a block to the profile.
    pub(super) fn add(&mut self, block: Block, now: Time) {
        let Block { from, until, nodes } = block;
        if from >= until {
            return;
        }
        for (at, delta) in [(from, nodes), (until, nodes.saturating_neg())] {
            if at > now {
                self.change(at, delta);
            }
        }
    }

    /// Moves the instant of the digest from `before` to `now`.
    pub(super) fn pass_time(&mut self, profile: &Profile, before: Time, now: Time) {
        let mut nodes = profile.at(before);
        for at in profile.change_points(before).skip(1).take_while(|at| *at <= now) {
            let after = profile.at(at);
            self.change(at, nodes - after);
            nodes = after;
        }
    }

    fn change(&mut self, at: Time, delta: i64) {
        let change = (i128::from(delta) as u128).wrapping_mul(weight(at));
        self.0 = self.0.wrapping_add(change);
    }
}

/// Returns the weight of a time, by two rounds of the finalizer of SplitMix64.
fn weight(at: Time) -> u128 {
    let mix = |seed: u64| {
        let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        seed ^ (seed >> 31)
    };
    let seed = (at.as_millis() as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let (low, high) = (mix(seed), mix(seed ^ 0x5851_f42d_4c95_7f2d));
    (u128::from(high) << 64) | u128::from(low) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: i64) -> Time {
        Time::from_secs(secs)
    }

    #[test]
    fn blocks_in_any_order_and_time_that_passes_lead_to_the_digest_of_the_profile() {
        let blocks = [(0, 50, 3), (10, 20, 5), (20, 30, 5), (40, 90, -1), (45, 45, 7), (5, 60, 2), (0, 200, 1)];
        let blocks = blocks.map(|(from, until, nodes)| Block { from: secs(from), until: secs(until), nodes });
        let mut profile = Profile::new();
        let mut digest = Digest::default();
        for block in blocks {
            profile.add(block);
            digest.add(block, secs(7));
            assert_eq!(digest, Digest::of(&profile, secs(7)));
        }
        let backwards = blocks.iter().rev().fold(Digest::default(), |mut digest, block| {
            digest.add(*block, secs(7));
            digest
        });
        assert_eq!(backwards, digest);
        let mut before = 7;
        for now in [8, 20, 44, 45, 60, 199, 200, 1000] {
            digest.pass_time(&profile, secs(before), secs(now));
            assert_eq!(digest, Digest::of(&profile, secs(now)), "at {now}");
            assert_eq!(digest, Digest::of(&profile.cut_before(secs(now)), secs(now)), "at {now}");
            before = now;
        }
        assert_eq!(digest, Digest::default());
    }

    #[test]
    fn profiles_that_differ_have_other_digests() {
        let digest = |from, until, nodes| {
            let block = Block { from: secs(from), until: secs(until), nodes };
            Digest::of(&Profile::from_blocks([block]), secs(0))
        };
        assert_ne!(digest(0, 10, 1), digest(0, 10, 2));
        assert_ne!(digest(0, 10, 1), digest(0, 11, 1));
        assert_ne!(digest(0, 10, 1), digest(1, 10, 1));
        assert_eq!(digest(-5, 10, 1), digest(0, 10, 1), "what has passed is no difference");
    }
}
