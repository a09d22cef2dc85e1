//! A refusal as it travels: a stable word for programs, a sentence for people.

use std::fmt;

use bincode::{Decode, Encode};
use rms_api::Refusal;

use crate::convert::Malformed;
use crate::link::chain;

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refused {
    /// Stable, in `snake_case`.
    pub kind: String,
    pub message: String,
}

impl Refused {
    pub fn new(kind: &str, message: impl fmt::Display) -> Refused {
        Refused { kind: kind.to_owned(), message: message.to_string() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Refused {
        Refused::new(word(refusal), refusal)
    }
}

impl From<&Malformed> for Refused {
    fn from(malformed: &Malformed) -> Refused {
        Refused::new("malformed", chain(malformed))
    }
}

/// The stable word of a refusal. Scripts match on it: words are never changed.
fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotAllowed { .. } => "not_allowed",
        Refusal::NoSuchJob(_) => "no_such_job",
        Refusal::NoJobs => "no_jobs",
        Refusal::NotYourJob { .. } => "not_your_job",
        Refusal::WrongState { .. } => "wrong_state",
        Refusal::NoSuchCluster { .. } => "no_such_cluster",
        Refusal::NoNodes => "no_nodes",
        Refusal::NoSuchNode { .. } => "no_such_node",
        Refusal::NoSuchFeature { .. } => "no_such_feature",
        Refusal::TooManyNodes { .. } => "too_many_nodes",
        Refusal::NothingAsked => "nothing_asked",
        Refusal::FewerTasksThanNodes { .. } => "fewer_tasks_than_nodes",
        Refusal::TooManyCpus { .. } => "too_many_cpus",
        Refusal::NoWall => "no_wall",
        Refusal::WallTooLong { .. } => "wall_too_long",
        Refusal::SystemFull { .. } => "system_full",
        Refusal::JobLimit { .. } => "job_limit",
        Refusal::ScriptLimit { .. } => "script_limit",
        Refusal::SubmitLimit { .. } | Refusal::NoSubmits => "submit_limit",
        Refusal::TooLarge { .. } => "too_large",
        Refusal::Malformed(_) => "malformed",
        Refusal::Name(_) => "bad_name",
        Refusal::Pattern(_) => "bad_pattern",
        Refusal::Setting(_) => "bad_setting",
        Refusal::NoSuchToken(_) => "no_such_token",
        Refusal::TokenInvalid => "token_invalid",
        Refusal::TokenForAnother { .. } => "token_for_another",
        Refusal::TokenTtl(_) => "token_ttl",
        Refusal::TooManyCertificates { .. } => "too_many_certificates",
        Refusal::NoSuchCertificate => "no_such_certificate",
        Refusal::NodeInAnotherCluster { .. } => "node_in_another_cluster",
        Refusal::NodeInUse { .. } => "node_in_use",
        Refusal::ClusterInUse { .. } => "cluster_in_use",
        Refusal::JobsOfRevoked { .. } => "jobs_of_revoked",
        Refusal::WrongRole { .. } => "wrong_role",
        Refusal::NoLauncher(_) => "no_launcher",
        Refusal::StaleTag { .. } => "stale_tag",
        Refusal::WrongTag { .. } => "wrong_tag",
        Refusal::NotInView { .. } => "not_in_view",
        Refusal::Flood { .. } => "flood",
        Refusal::EmptyStage => "empty_stage",
        Refusal::StageTooLarge { .. } => "stage_too_large",
        Refusal::StageNotHeld { .. } => "stage_not_held",
        Refusal::StageLater { .. } => "stage_later",
        Refusal::FreesTooMany { .. } => "frees_too_many",
        Refusal::TasksOfStages { .. } => "tasks_of_stages",
        Refusal::NotRunning(_) => "not_running",
        Refusal::NotNegotiable(_) => "not_negotiable",
        Refusal::HasProfile(_) => "has_profile",
        Refusal::AnotherRun { .. } => "another_run",
        Refusal::NoSuchNegotiation { .. } => "no_such_negotiation",
        Refusal::Template(_) => "bad_template",
        Refusal::AlreadyNegotiating { .. } => "already_negotiating",
        Refusal::MalleableSizes => "malleable_sizes",
    }
}
