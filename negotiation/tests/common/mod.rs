//! What several of the tests need: settings from outside, seeded randomness, and short words for templates.

#![allow(dead_code, reason = "every test program uses its own part of it")]

use negotiation::{Direction, Item, Parties, Price, Resource, Side, Template};
use rms_model::{ClusterId, JobId, Run};

/// A setting for the tests.
#[expect(clippy::disallowed_methods, reason = "who runs a test chooses its seeds; the crate itself sees none of it")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A number among the settings.
pub fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: '{text}'")))
}

/// Tells how to see it again, however the test fails.
pub struct Replay(pub &'static str, pub u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(test, seed) = self;
            eprintln!("seed {seed}; to see it again: LIMBER_SEED={seed} cargo test -p negotiation {test}");
        }
    }
}

/// Runs so many seeds, or the one that `LIMBER_SEED` names, or as many as `LIMBER_SEEDS` says.
pub fn seeds(test: &'static str, n_seeds: u64, mut run: impl FnMut(u64)) {
    let seeds = match number("LIMBER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LIMBER_SEEDS").unwrap_or(n_seeds),
    };
    println!("seeds {seeds:?}");
    for seed in seeds {
        let _replay = Replay(test, seed);
        run(seed);
    }
}

/// Random numbers from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    /// Equal seeds roll equal numbers.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// One of them.
    pub fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// The cluster of all these tests.
pub const CLUSTER: Resource = Resource::Nodes(ClusterId(0));

/// Job 7 and the RMS.
pub fn parties(initiator: Side) -> Parties {
    Parties { job: JobId(7), run: Run(1), initiator }
}

/// So many nodes of the cluster, beside those that are held, with no terms but the range from one.
pub fn nodes(held: u64, quantity: u64) -> Item {
    Item::up_to(CLUSTER, held, quantity)
}

/// The same at a price.
pub fn priced(held: u64, quantity: u64, price: u64) -> Item {
    let mut item = nodes(held, quantity);
    item.terms.price = Price(price);
    item
}

/// A template of one item.
pub fn template(initiator: Side, direction: Direction, item: Item) -> Template {
    Template::of_one(parties(initiator), direction, item).expect("the tests make right templates")
}
