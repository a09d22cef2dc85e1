//! What happened, line by line: the last lines to read, all of them as one hash.

use std::collections::VecDeque;
use std::fmt;

use rms_model::Time;

/// How many lines a violation shows.
const KEPT: usize = 80;

#[derive(Debug)]
pub(crate) struct Trace {
    last: VecDeque<String>,
    hash: u64,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace { last: VecDeque::new(), hash: FNV_OFFSET }
    }

    pub(crate) fn note(&mut self, now: Time, line: fmt::Arguments<'_>) {
        let line = format!("{:>9}.{:03} {line}", now.as_secs(), now.as_millis().rem_euclid(1000));
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// FNV-1a over every line there ever was: equal traces, equal hashes.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.last.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
