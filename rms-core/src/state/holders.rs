//! The jobs that hold a node, rarely more than one.

use rms_model::JobId;
use serde::{Deserialize, Serialize, Serializer};

/// A set in the order of ids. The first id is stored inline, because holders change often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<JobId>")]
pub struct Holders {
    first: Option<JobId>,
    /// Further holders, while several jobs hold the node.
    others: Vec<JobId>,
}

impl Holders {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub fn first(&self) -> Option<&JobId> {
        self.first.as_ref()
    }

    pub fn contains(&self, job: &JobId) -> bool {
        self.iter().any(|held| held == job)
    }

    /// Iterates in the order of ids.
    pub fn iter(&self) -> std::iter::Chain<std::option::Iter<'_, JobId>, std::slice::Iter<'_, JobId>> {
        self.first.iter().chain(&self.others)
    }

    pub(crate) fn insert(&mut self, job: JobId) {
        match self.first {
            None => self.first = Some(job),
            Some(first) if first == job => {}
            Some(first) => {
                let later = first.max(job);
                self.first = Some(first.min(job));
                if let Err(idx) = self.others.binary_search(&later) {
                    self.others.insert(idx, later);
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        if self.first == Some(job) {
            self.first = if self.others.is_empty() { None } else { Some(self.others.remove(0)) };
        } else {
            self.others.retain(|held| *held != job);
        }
    }
}

impl From<Vec<JobId>> for Holders {
    fn from(jobs: Vec<JobId>) -> Holders {
        let mut holders = Holders::default();
        jobs.into_iter().for_each(|job| holders.insert(job));
        holders
    }
}

impl Serialize for Holders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'a> IntoIterator for &'a Holders {
    type Item = &'a JobId;
    type IntoIter = std::iter::Chain<std::option::Iter<'a, JobId>, std::slice::Iter<'a, JobId>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_always_the_lowest() {
        let mut holders = Holders::default();
        [5, 3, 9, 3, 4].into_iter().for_each(|job| holders.insert(JobId(job)));
        let ids = |holders: &Holders| holders.iter().map(|job| job.0).collect::<Vec<_>>();
        assert_eq!((ids(&holders), holders.len()), (vec![3, 4, 5, 9], 4));
        holders.remove(JobId(3));
        holders.remove(JobId(5));
        holders.remove(JobId(7));
        assert_eq!((ids(&holders), holders.first()), (vec![4, 9], Some(&JobId(4))));
        holders.remove(JobId(9));
        holders.remove(JobId(4));
        assert!(holders.is_empty());
    }
}
