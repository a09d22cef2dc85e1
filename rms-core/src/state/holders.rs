//! The jobs that hold a node: hardly ever more than one.

use rms_model::JobId;
use serde::{Deserialize, Serialize};

/// A set in a sorted vector, which keeps its memory when a job leaves: nodes change hands all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holders(Vec<JobId>);

impl Holders {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn first(&self) -> Option<&JobId> {
        self.0.first()
    }

    pub fn contains(&self, job: &JobId) -> bool {
        self.0.contains(job)
    }

    /// In the order of ids.
    pub fn iter(&self) -> std::slice::Iter<'_, JobId> {
        self.0.iter()
    }

    pub(crate) fn insert(&mut self, job: JobId) {
        if let Err(idx) = self.0.binary_search(&job) {
            self.0.insert(idx, job);
        }
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        self.0.retain(|held| *held != job);
    }
}

impl<'a> IntoIterator for &'a Holders {
    type Item = &'a JobId;
    type IntoIter = std::slice::Iter<'a, JobId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
