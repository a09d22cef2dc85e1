//! The flags of lists: which jobs or nodes, in which order, how many.

use std::slice;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use launcher_sdk::{CallError, Client};
use rms_api::answer::{JobState, NodeState};
use rms_api::filter::{JobColumn, JobFilter, Way, column};
use rms_model::Time;

use crate::failure::Failure;
use crate::stamp;

// Of a list of jobs in the system; a doc comment would become the help of each verb that has them.
#[derive(clap::Args, Debug)]
pub struct JobFlags {
    /// Only jobs of these users
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Only your own jobs; inside a job, those of its owner
    #[arg(long, conflicts_with = "user")]
    pub me: bool,
    /// Only jobs in these states; pending: before their start, running: started or ending
    #[arg(short = 't', long, short_alias = 's', value_name = "STATES", value_delimiter = ',', value_parser = job_states())]
    pub state: Vec<&'static [JobState]>,
    /// Only jobs of these names
    #[arg(short = 'J', long, value_name = "NAMES", value_delimiter = ',')]
    pub name: Vec<String>,
    /// Only jobs of these accounts
    #[arg(short = 'A', long, value_name = "ACCOUNTS", value_delimiter = ',')]
    pub account: Vec<String>,
    /// Only jobs that run on these clusters, or may start there
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAMES", value_delimiter = ',')]
    pub clusters: Vec<String>,
    /// Only jobs that were submitted at or after this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Sort by these columns, in descending order with '-': -priority,submitted
    #[arg(short = 'S', long, value_name = "COLUMNS", value_delimiter = ',', value_parser = column::<JobColumn>, allow_hyphen_values = true)]
    pub sort: Vec<(JobColumn, Way)>,
    /// Show at most this many; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub limit: u32,
    /// Skip this many first
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    pub offset: u64,
}

impl JobFlags {
    /// Returns whether any flag is given.
    pub fn is_given(&self) -> bool {
        let JobFlags { user, me, state, name, account, clusters, since, sort, limit, offset } = self;
        let lists = [
            user.is_empty(),
            name.is_empty(),
            account.is_empty(),
            clusters.is_empty(),
            state.is_empty(),
            sort.is_empty(),
        ];
        lists.contains(&false) || *me || since.is_some() || *limit > 0 || *offset > 0
    }

    /// Returns the filter in the server's form.
    ///
    /// # Errors
    /// A text is not a time, or a call fails.
    pub async fn filter(&self, client: &Client) -> Result<JobFilter, Failure> {
        Ok(JobFilter {
            jobs: Vec::new(),
            users: if self.me { vec![me(client).await?] } else { self.user.clone() },
            states: self.state.concat(),
            names: self.name.clone(),
            clusters: self.clusters.clone(),
            since: time("since", self.since.as_deref())?,
            sort: self.sort.clone(),
            limit: self.limit,
            offset: self.offset,
            accounts: self.account.clone(),
        })
    }
}

/// Returns the user whose jobs are the caller's.
///
/// # Errors
/// See [`CallError`].
pub async fn me(client: &Client) -> Result<String, CallError> {
    let Some((own, _)) = client.identity().as_job() else { return Ok(client.identity().name.clone()) };
    let found = client.queue_of(JobFilter { jobs: vec![own], ..JobFilter::default() }).await?;
    // No user has this name: once the own job is not listed any more, its owner is unknown.
    Ok(found.jobs.first().map_or_else(|| "-".to_owned(), |line| line.owner.0.clone()))
}

/// Parses a time in the past, as people write it.
///
/// # Errors
/// The text is not a time.
pub fn time(flag: &str, text: Option<&str>) -> Result<Option<Time>, Failure> {
    let parsed = text.map(|text| stamp::parse(text, stamp::now(), stamp::Occurrence::Last)).transpose();
    parsed.map_err(|error| Failure::usage(format!("--{flag}: {error}")))
}

pub fn node_states() -> impl TypedValueParser<Value = NodeState> {
    PossibleValuesParser::new(NodeState::ALL.map(NodeState::word)).map(|word| {
        let state = NodeState::ALL.into_iter().find(|state| state.word() == word);
        state.expect("it is one of these words")
    })
}

fn job_states() -> impl TypedValueParser<Value = &'static [JobState]> {
    let words = || JobState::IN_SYSTEM.iter().map(|state| (state.word(), slice::from_ref(state))).chain(GROUPS);
    PossibleValuesParser::new(words().map(|(word, _)| word)).map(move |given| {
        let known = words().find(|(word, _)| *word == given);
        known.map(|(_, states)| states).expect("it is one of these words")
    })
}

/// Words for several states, as users of other systems know them.
const GROUPS: [(&str, &[JobState]); 2] = [
    ("pending", &[JobState::Submitted, JobState::Held, JobState::RequestSent, JobState::Waiting]),
    ("running", &[JobState::Started, JobState::Ending]),
];
