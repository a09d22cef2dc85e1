//! Stores each environment once: it is most of a job's bytes, and most jobs of a user have the same.
//!
//! The first fact with an environment holds it; later facts refer to that fact. No fact refers to one that the next
//! snapshot will replace, because every snapshot order clears the table.

use std::collections::HashMap;
use std::sync::Arc;

use rms_core::Fact;
use rms_model::Environment;

/// The writer's table of the facts that hold environments.
#[derive(Debug, Default)]
pub struct Writer {
    holders: HashMap<Arc<Environment>, u64>,
    /// Environments of the current transaction: their facts hold them only once it is durable.
    uncommitted: Vec<Arc<Environment>>,
}

/// How many environments are remembered before the table is cleared. It bounds memory if every job of a user differs.
const MAX_REMEMBERED: usize = 1000;

impl Writer {
    /// Returns fact number `seq` without its environment, and the fact that holds it, if there is one.
    pub fn deduplicate(&mut self, fact: &Fact, seq: u64) -> Option<(Fact, u64)> {
        let Fact::JobSubmitted { job, at, spec, held } = fact else { return None };
        if let Some(holder) = self.holders.get(&spec.execution.environment) {
            let mut spec = Arc::clone(spec);
            Arc::make_mut(&mut spec).execution.environment = Arc::default();
            return Some((Fact::JobSubmitted { job: *job, at: *at, spec, held: *held }, *holder));
        }
        if self.holders.len() >= MAX_REMEMBERED {
            self.clear();
        }
        self.holders.insert(Arc::clone(&spec.execution.environment), seq);
        self.uncommitted.push(Arc::clone(&spec.execution.environment));
        None
    }

    /// Keeps the environments of a transaction that is durable.
    pub fn commit(&mut self) {
        self.uncommitted.clear();
    }

    /// Forgets the environments of a transaction that was rolled back.
    pub fn rollback(&mut self) {
        for environment in self.uncommitted.drain(..) {
            self.holders.remove(&environment);
        }
    }

    pub fn clear(&mut self) {
        self.holders.clear();
        self.uncommitted.clear();
    }
}

/// The reader's table of environments, by the fact that holds them.
#[derive(Debug, Default)]
pub struct Reader {
    held: HashMap<u64, Arc<Environment>>,
}

impl Reader {
    /// Returns the fact with its environment; `None` if it refers to a fact that holds none.
    pub fn expand(&mut self, mut fact: Fact, seq: u64, environment_of: Option<u64>) -> Option<Fact> {
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
