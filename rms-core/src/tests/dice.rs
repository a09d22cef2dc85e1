//! Chance from a seed for tests that try many cases; whoever fails says how to see it again.

/// Numbers that follow from a seed (SplitMix64).
pub(crate) struct Dice(u64);

/// While it lives, a panic tells which seed it was.
struct Replay(&'static str, u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(test, seed) = self;
            eprintln!("seed {seed}; to see it again: LIMBER_SEED={seed} cargo test -p rms-core {test}");
        }
    }
}

/// Runs a case for each of so many seeds, or for the one that `LIMBER_SEED` names.
pub(crate) fn for_seeds(test: &'static str, n_seeds: u64, mut case: impl FnMut(&mut Dice)) {
    let seeds = match seed_from_outside() {
        Some(seed) => seed..seed + 1,
        None => 0..n_seeds,
    };
    println!("{test}: seeds {seeds:?}");
    for seed in seeds {
        let _replay = Replay(test, seed);
        case(&mut Dice(seed));
    }
}

#[expect(clippy::disallowed_methods, reason = "who runs a test chooses its seed; the crate itself sees none of it")]
fn seed_from_outside() -> Option<u64> {
    let text = std::env::var("LIMBER_SEED").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("LIMBER_SEED is not a number: '{text}'")))
}

impl Dice {
    /// Any number.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn number(&mut self, least: u32, most: u32) -> u32 {
        least + (self.roll() % (u64::from(most - least) + 1)) as u32
    }

    /// True in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.number(1, 100) <= percent
    }
}
