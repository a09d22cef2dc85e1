//! The jobs as a snapshot stores them: each environment once, whichever jobs share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_model::{Environment, JobId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Jobs;
use crate::state::job::Job;

/// The form that is written. Jobs are serialised one by one, so that they are never all copied.
#[derive(Serialize)]
struct Written<'a> {
    environments: Vec<&'a Environment>,
    jobs: WrittenJobs<'a>,
}

struct WrittenJobs<'a> {
    jobs: &'a Jobs,
    environment_idx: BTreeMap<&'a Environment, u32>,
}

/// The form that is read.
#[derive(Deserialize)]
struct Read {
    environments: Vec<Arc<Environment>>,
    jobs: Vec<(JobId, u32, Job)>,
}

pub fn serialize<S: Serializer>(jobs: &Jobs, serializer: S) -> Result<S::Ok, S::Error> {
    let mut environments: Vec<&Environment> = Vec::new();
    let mut environment_idx = BTreeMap::new();
    for entry in jobs.values() {
        environment_idx.entry(&*entry.spec.execution.environment).or_insert_with(|| {
            environments.push(&entry.spec.execution.environment);
            environments.len() as u32 - 1
        });
    }
    Written { environments, jobs: WrittenJobs { jobs, environment_idx } }.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Jobs, D::Error> {
    let Read { environments, jobs } = Read::deserialize(deserializer)?;
    let with_environment = |(job, idx, mut entry): (JobId, u32, Job)| {
        let environment = environments.get(idx as usize);
        let environment = environment.ok_or_else(|| D::Error::custom("a job without environment"))?;
        Arc::make_mut(&mut entry.spec).execution.environment = Arc::clone(environment);
        Ok((job, entry))
    };
    jobs.into_iter().map(with_environment).collect()
}

impl Serialize for WrittenJobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nothing = Arc::new(Environment::default());
        serializer.collect_seq(self.jobs.iter().map(|(job, entry)| {
            let mut bare = entry.clone();
            Arc::make_mut(&mut bare.spec).execution.environment = Arc::clone(&nothing);
            (job, self.environment_idx[&*entry.spec.execution.environment], bare)
        }))
    }
}
