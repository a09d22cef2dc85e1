//! Each environment is stored once: it is most of a job's bytes, and most jobs of a user share theirs.
//!
//! The first fact that brings an environment holds it; later ones name that fact. None names a fact that the
//! next snapshot will replace, because every order for a snapshot begins anew.

use std::collections::HashMap;
use std::sync::Arc;

use rms_core::Fact;
use rms_model::Environment;

/// The facts that hold environments, for the writer.
#[derive(Debug, Default)]
pub struct Written {
    holders: HashMap<Arc<Environment>, u64>,
    /// Of the transaction under way: they hold nothing until it is durable.
    latest: Vec<Arc<Environment>>,
}

/// How many are remembered; then it begins anew. It bounds memory against a user whose every job differs.
const MAX_REMEMBERED: usize = 1000;

impl Written {
    /// A shorter form of the fact that will be number `seq`, with the fact that holds its environment.
    pub fn shorten(&mut self, fact: &Fact, seq: u64) -> Option<(Fact, u64)> {
        let Fact::JobSubmitted { job, at, spec, held } = fact else { return None };
        if let Some(holder) = self.holders.get(&spec.execution.environment) {
            let mut spec = Arc::clone(spec);
            Arc::make_mut(&mut spec).execution.environment = Arc::default();
            return Some((Fact::JobSubmitted { job: *job, at: *at, spec, held: *held }, *holder));
        }
        if self.holders.len() >= MAX_REMEMBERED {
            self.forget();
        }
        self.holders.insert(Arc::clone(&spec.execution.environment), seq);
        self.latest.push(Arc::clone(&spec.execution.environment));
        None
    }

    /// The transaction is durable.
    pub fn keep(&mut self) {
        self.latest.clear();
    }

    /// The transaction was rolled back: what it would have held is nowhere.
    pub fn roll_back(&mut self) {
        for environment in self.latest.drain(..) {
            self.holders.remove(&environment);
        }
    }

    pub fn forget(&mut self) {
        self.holders.clear();
        self.latest.clear();
    }
}

/// The environments that were read, by the fact that holds them.
#[derive(Debug, Default)]
pub struct Read {
    held: HashMap<u64, Arc<Environment>>,
}

impl Read {
    /// The fact as it was recorded; `None` if it names one that holds no environment.
    pub fn complete(&mut self, mut fact: Fact, seq: u64, environment_of: Option<u64>) -> Option<Fact> {
        if let Fact::JobSubmitted { spec, .. } = &mut fact {
            match environment_of {
                None => {
                    self.held.insert(seq, Arc::clone(&spec.execution.environment));
                }
                Some(holder) => Arc::make_mut(spec).execution.environment = Arc::clone(self.held.get(&holder)?),
            }
        } else if environment_of.is_some() {
            return None;
        }
        Some(fact)
    }
}
