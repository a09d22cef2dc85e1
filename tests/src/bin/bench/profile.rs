//! Times the operations of step profiles by their length, beside one sorted vector, which they were before.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use rms_model::profile::Block;
use rms_model::{Profile, Span, Time};
use test_kit::Dice;

use crate::table::{Table, Target};

const N_ROUNDS: usize = 20_000;
const CAPACITY: i64 = 128;
const SEED: u64 = 11;

pub fn table() -> Result<Table> {
    let mut table = Table::new("Step profiles: blocks are added and taken away, holes searched from a random time on");
    for n_steps in [100, 1_000, 10_000, 100_000] {
        let (profile, blocks) = busy(n_steps);
        let name = |what: &str| format!("{n_steps} steps: {what}");
        table.note(name("add a block"), adding(profile.clone(), &blocks, Profile::add), "µs");
        let mut plain = Plain { steps: profile.steps().map(|step| (step.from, step.nodes)).collect() };
        plain.steps.reserve(4);
        table.note(name("add a block, one sorted vector"), adding(plain, &blocks, Plain::add), "µs");
        let hole = micros(&blocks, |block| {
            black_box(profile.first_hole(CAPACITY, block.nodes, block.until.since(block.from), block.from));
        });
        table.measure(name("first hole"), hole, "µs", Target::Reference, "");
    }
    Ok(table)
}

/// A profile of about so many steps, as a long queue makes it, and blocks like those in it.
fn busy(n_steps: usize) -> (Profile, Vec<Block>) {
    let mut dice = Dice::new(SEED);
    let mut profile = Profile::new();
    let horizon = n_steps as i64 * 120;
    let mut block = || {
        let from = Time::from_secs(i64::from(dice.number(0, horizon as u32 - 1)));
        let span = Span::from_secs(dice.number(60, 3599).into());
        Block { from, until: from + span, nodes: dice.number(1, 15).into() }
    };
    while profile.n_steps() < n_steps {
        let block = block();
        if profile.least_free(CAPACITY, block.from, block.until) >= block.nodes {
            profile.add(block);
        }
    }
    let blocks = (0..N_ROUNDS).map(|_| block()).collect();
    (profile, blocks)
}

/// Each block is added, and taken away again, so that the length stays.
fn adding<P>(mut profile: P, blocks: &[Block], add: impl Fn(&mut P, Block)) -> f64 {
    let both = micros(blocks, |block| {
        add(&mut profile, block);
        add(&mut profile, Block { nodes: -block.nodes, ..block });
    });
    black_box(&profile);
    both / 2.0
}

fn micros(blocks: &[Block], mut work: impl FnMut(Block)) -> f64 {
    let begun = Instant::now();
    for block in blocks {
        work(*block);
    }
    begun.elapsed().as_secs_f64() * 1e6 / blocks.len() as f64
}

/// What profiles were: one sorted vector.
struct Plain {
    steps: Vec<(Time, i64)>,
}

impl Plain {
    fn add(&mut self, block: Block) {
        let first = self.cut(block.from);
        let last = self.cut(block.until);
        for (_, nodes) in &mut self.steps[first..last] {
            *nodes += block.nodes;
        }
        self.heal(last);
        self.heal(first);
    }

    fn before(&self, idx: usize) -> i64 {
        idx.checked_sub(1).map_or(0, |before| self.steps[before].1)
    }

    fn cut(&mut self, time: Time) -> usize {
        let idx = self.steps.partition_point(|(from, _)| *from < time);
        if self.steps.get(idx).is_none_or(|(from, _)| *from != time) {
            self.steps.insert(idx, (time, self.before(idx)));
        }
        idx
    }

    fn heal(&mut self, idx: usize) {
        if self.steps[idx].1 == self.before(idx) {
            self.steps.remove(idx);
        }
    }
}
