//! The resources that the jobs of each user take: counted by the index, limited by quotas.

use rms_model::Environment;
use rms_model::Work;

/// What the jobs of a user take; jobs that are done do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) n_jobs: u32,
    /// The size of scripts, commands and environments; an environment that several jobs share counts once.
    pub(crate) n_bytes: u64,
}

/// Returns the size of what a job executes.
pub(crate) fn work_bytes(work: &Work) -> u64 {
    let texts = |texts: &[String]| texts.iter().map(|text| text.len() as u64).sum::<u64>();
    match work {
        Work::Script { script, args } => script.len() as u64 + texts(args),
        Work::Tasks { argv } => texts(argv),
        Work::Nodes => 0,
    }
}

pub(crate) fn environment_bytes(environment: &Environment) -> u64 {
    environment.0.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
}
