//! The jobs by their ids.

use std::collections::{BTreeMap, btree_map};
use std::iter::Map;
use std::ops::Index;

use rms_model::JobId;

use crate::state::job::Job;

/// A map with entries that stay in place: a job is large, and a tree would move entries as others come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    entries: BTreeMap<JobId, Box<Job>>,
}

/// Jobs with their ids, in the order of ids.
pub type Entries<'a> = Map<btree_map::Iter<'a, JobId, Box<Job>>, fn((&'a JobId, &'a Box<Job>)) -> (&'a JobId, &'a Job)>;

impl Jobs {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn contains_key(&self, job: &JobId) -> bool {
        self.entries.contains_key(job)
    }

    pub fn get(&self, job: &JobId) -> Option<&Job> {
        self.entries.get(job).map(|entry| &**entry)
    }

    /// Iterates in the order of ids.
    pub fn iter(&self) -> Entries<'_> {
        self.entries.iter().map(|(job, entry)| (job, &**entry))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &JobId> + Clone {
        self.entries.keys()
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> + Clone {
        self.entries.values().map(|entry| &**entry)
    }

    pub fn first_key_value(&self) -> Option<(&JobId, &Job)> {
        self.iter().next()
    }

    pub(super) fn get_mut(&mut self, job: &JobId) -> Option<&mut Job> {
        self.entries.get_mut(job).map(|entry| &mut **entry)
    }

    pub(super) fn insert(&mut self, job: JobId, entry: Box<Job>) {
        self.entries.insert(job, entry);
    }

    pub(super) fn remove(&mut self, job: &JobId) -> Option<Box<Job>> {
        self.entries.remove(job)
    }
}

impl Index<&JobId> for Jobs {
    type Output = Job;

    fn index(&self, job: &JobId) -> &Job {
        &self.entries[job]
    }
}

impl<'a> IntoIterator for &'a Jobs {
    type Item = (&'a JobId, &'a Job);
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

impl FromIterator<(JobId, Job)> for Jobs {
    fn from_iter<I: IntoIterator<Item = (JobId, Job)>>(jobs: I) -> Jobs {
        Jobs { entries: jobs.into_iter().map(|(job, entry)| (job, Box::new(entry))).collect() }
    }
}
