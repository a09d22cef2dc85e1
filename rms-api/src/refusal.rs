//! Why a call is refused: each message says what is wrong and what is possible instead.

use std::fmt;

use negotiation::NegotiationId;
use rms_model::identity::NameError;
use rms_model::pattern::PatternError;
use rms_model::settings::SettingError;
use rms_model::sizes::MAX_SIZES;
use rms_model::{Devices, Identity, JobId, Mebibytes, Role, Sizes, Span};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::negotiate::BudgetShortage;
use crate::terms;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{who} may not {action}; {needed}")]
    NotAllowed { who: Identity, action: &'static str, needed: &'static str },
    #[error("there is no job {0} in the queue or running")]
    NoSuchJob(JobId),
    #[error("you have no job in the system")]
    NoJobs,
    #[error("job {job} belongs to {owner}; only {owner} or an admin may do this")]
    NotYourJob { job: JobId, owner: String },
    #[error("only launchers of {owner} may control job {job}; an admin may cancel it ('rms cancel {job}')")]
    NotYourApplication { job: JobId, owner: String },
    #[error("job {job} is {state}: {hint}")]
    WrongState { job: JobId, state: &'static str, hint: &'static str },
    #[error("there is no cluster '{name}'; the clusters are {known}")]
    NoSuchCluster { name: String, known: String },
    #[error("no node has joined yet: start an agent with a token from 'rms token create --role agent'")]
    NoNodes,
    #[error("there is no node '{name}'; 'rms nodes' lists them")]
    NoSuchNode { name: String },
    #[error("no node has the feature '{feature}'; known features: {known}")]
    NoSuchFeature { feature: String, known: String },
    #[error("{}{constraint} {} needed, but {possible}", many(*wanted, "node"), are(*wanted))]
    TooManyNodes { wanted: u32, constraint: String, possible: String },
    #[error(
        "{wanted} nodes{constraint} that follow one another (--contiguous) are needed, but no more than {longest} of cluster {cluster} do: ask for fewer, or for any nodes"
    )]
    TooFewTogether { wanted: u32, constraint: String, longest: u32, cluster: String },
    #[error(
        "job {0} asked for nodes that follow one another (--contiguous), and keeps them: submit it without to change its nodes"
    )]
    KeepsItsNodes(JobId),
    #[error("a job needs at least one node, one task and one CPU for each task")]
    NothingAsked,
    #[error(
        "{} cannot be spread over {}: ask for at least one task a node, or fewer nodes",
        many(*n_tasks, "task"),
        many(*n_nodes, "node")
    )]
    FewerTasksThanNodes { n_tasks: u32, n_nodes: u32 },
    #[error(
        "a node would have to hold {} of {}, but the largest node{place} has {}: ask for more nodes (-N), fewer tasks or fewer CPUs, or let tasks share CPUs (--overcommit)",
        many(*tasks, "task"),
        many(*cpus_per_task, "CPU"),
        many(*cpus, "CPU")
    )]
    TooManyCpus { tasks: u32, cpus_per_task: u32, cpus: u32, place: String },
    #[error(
        "a node would have to hold {} of {}, but on its smallest node the grant has {}: launch fewer tasks, or fewer CPUs for each; with 0 CPUs for each they share those of the grant",
        many(*tasks, "task"),
        many(*cpus_per_task, "CPU"),
        many(*cpus, "CPU")
    )]
    NotInGrant { tasks: u32, cpus_per_task: u32, cpus: u32 },
    #[error(
        "keeping {wanted} CPUs on each node (--min-cpus-per-node, or the setting min_cpus_per_node) leaves nothing to share: the largest node has {largest} CPUs; keep fewer, or leave --share out"
    )]
    NodeTooSmall { wanted: u32, largest: u32 },
    #[error(
        "--cores-per-package {wanted} leaves nothing to share: the largest package of a node has {largest} cores; keep fewer, or leave --share out"
    )]
    PackageTooSmall { wanted: u32, largest: u32 },
    #[error(
        "a node would have to hold {} of {} (--hint=nomultithread), but the largest node{place} has {}: ask for more nodes (-N), fewer tasks or fewer cores (-c), or let tasks use all threads",
        many(*tasks, "task"),
        many(*cpus_per_task, "core"),
        many(*cores, "core")
    )]
    TooManyCores { tasks: u32, cpus_per_task: u32, cores: u32, place: String },
    #[error(
        "{} with {memory} {} needed, but cluster {cluster} has {n_nodes}{constraint}, and its largest node{constraint} has {largest}: ask for less memory (--mem, --mem-per-cpu), or for fewer tasks on a node",
        many(*wanted, "node"),
        are(*wanted)
    )]
    TooMuchMemory {
        wanted: u32,
        memory: Mebibytes,
        n_nodes: u32,
        cluster: String,
        constraint: String,
        largest: Mebibytes,
    },
    #[error(
        "the job would have {}, but a job may have {most} on cluster {cluster} (max_cpus; nodes that are not shared count with all their CPUs): ask for fewer tasks, CPUs (-c) or nodes, or an admin for a higher limit",
        many(u32::try_from(*cpus).unwrap_or(u32::MAX), "CPU")
    )]
    CpuLimit { cpus: u64, most: u32, cluster: String },
    #[error("no node has a device '{name}'; known devices: {known}")]
    NoSuchDevice { name: String, known: String },
    #[error(
        "{} with {devices} {} needed, but cluster {cluster} has {n_nodes}{constraint}; its nodes{constraint} have {known}: ask for fewer on each node",
        many(*wanted, "node"),
        are(*wanted)
    )]
    TooManyDevices { wanted: u32, devices: Devices, n_nodes: u32, cluster: String, constraint: String, known: String },
    #[error("no cluster that the job may use has a licence '{name}'; known licences: {known}")]
    NoSuchLicence { name: String, known: String },
    #[error("{wanted} of licence {name} {} needed, but cluster {cluster} has {total}: ask for fewer, or for other clusters", are(*wanted))]
    TooManyLicences { name: String, wanted: u32, total: u32, cluster: String },
    #[error(
        "{count} {name} over all of {n_nodes} nodes are not as many on each: ask for a number of nodes by which they divide, or say how many each node must have"
    )]
    UnevenDevices { name: String, count: u32, n_nodes: u32 },
    #[error(
        "{n_tasks} tasks are more than {per_node} on each of {}: ask for {}, or for more tasks on a node",
        many(*n_nodes, "node"),
        many(n_tasks.div_ceil(*per_node), "node")
    )]
    TasksPerNode { n_tasks: u32, per_node: u32, n_nodes: u32 },
    #[error("the wall time must be longer than zero")]
    NoWall,
    #[error("a wall time of {wall} is longer than the longest allowed, {max}")]
    WallTooLong { wall: Span, max: Span },
    #[error("job {job} has run for {ran}: its wall time must be longer than that; 'rms cancel' ends it")]
    WallPassed { job: JobId, ran: Span },
    #[error("the wall time of job {0} is over: it is being ended")]
    WallOver(JobId),
    #[error(
        "job {job} cannot be given more time while the agent of its node {node} is away, as the node would end it at its \
         old limit: try again when the agent is back ('rms nodes')"
    )]
    AgentAway { job: JobId, node: String },
    #[error(
        "job {job} can have {most} at most: after that, its nodes are promised to a stage of job {by}, which runs and \
         would be ended if it did not get them ('rms show {by}')"
    )]
    StagePromised { job: JobId, by: JobId, most: Span },
    #[error("job {job} has nodes that have a price, and {}", terms::shortage(*short))]
    OverBudget { job: JobId, short: BudgetShortage },
    #[error("the system holds as many jobs as it may (max_jobs is {max}): wait until some have ended")]
    SystemFull { max: u32 },
    #[error(
        "you have as many jobs in the system ({used}) as your limit (job_limit) allows ({max}): wait until some have ended, or ask an admin for a higher limit"
    )]
    JobLimit { used: u32, max: u32 },
    #[error(
        "your launchers would look for more than {max} slices that differ, in themselves or in what the nodes must have: use the same ones, or wait until some applications have started"
    )]
    SliceLimit { max: usize },
    #[error(
        "scripts and environments of your jobs would take more than {max} MiB, which is your limit (script_limit; they take less than {} MiB now): wait until some have ended, or keep large data in files",
        used + 1
    )]
    /// `used` is in MiB, rounded down.
    ScriptLimit { used: u64, max: u32 },
    #[error(
        "you submit faster than your limit of {max} a second (submit_limit; each 4 KiB of script and environment count as one): try again in {wait}"
    )]
    SubmitLimit { max: u32, wait: Span },
    #[error("you may not submit jobs: an admin has set your submit_limit to 0; ask for a higher one")]
    NoSubmits,
    #[error("{what} may take {max} bytes at most, not {size}")]
    TooLarge { what: &'static str, size: usize, max: usize },
    #[error("{0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(
        "{key} = {value}: the largest node has {largest}, so every job that asks for no memory would be refused: set a value for one CPU, in MiB"
    )]
    MemoryPerCpu { key: String, value: String, largest: Mebibytes },
    #[error("there is no token '{0}'; 'rms token list' shows them")]
    NoSuchToken(String),
    /// One message for all ways in which a token is invalid, so that an attacker learns nothing from guesses.
    #[error(
        "the token is not valid: it is unknown, used, revoked or expired; ask an admin for a new one ('rms token create')"
    )]
    TokenInvalid,
    #[error("the token is for {expected}, not for {asked}")]
    TokenForAnother { expected: String, asked: String },
    #[error("the token is for {0}, and an agent wants to join: use it with 'rms join'")]
    TokenOfPerson(String),
    #[error("the token is for {0}: use it with 'node-agent join', on the node")]
    TokenOfAgent(String),
    #[error("a token lives from 1 second to 30 days, not {0}")]
    TokenTtl(Span),
    #[error(
        "{who} has {max} valid certificates already: an admin can end some ('rms token revoke-certificate SERIAL')"
    )]
    TooManyCertificates { who: String, max: usize },
    #[error("no certificate matches; 'rms token certificates' shows them")]
    NoSuchCertificate,
    #[error(
        "node {node} belongs to cluster {known}; it cannot join cluster {asked}: remove it first ('rms admin remove {node}')"
    )]
    NodeInAnotherCluster { node: String, known: String, asked: String },
    #[error(
        "node {node} is connected, from {address}: give this machine another name (--name), or ask for a token that names \
         the node ('rms token create --role agent --name {node}')"
    )]
    NodeConnected { node: String, address: String },
    #[error("cluster {cluster} {what}")]
    ClusterInUse { cluster: String, what: String },
    #[error(
        "{user} has {} in the system: say what becomes of {}, with --cancel-jobs or --keep-jobs",
        many(u32::try_from(*n_jobs).unwrap_or(u32::MAX), "job"),
        if *n_jobs == 1 { "it" } else { "them" }
    )]
    JobsOfRevoked { user: String, n_jobs: usize },
    #[error(
        "no administrator would have a valid certificate any more: make another one first ('rms token create --role admin \
         --name NAME'), or with the server stopped by 'rms-server admin'"
    )]
    LastAdmin,
    #[error(
        "node {node} holds jobs or is connected: 'rms admin down' ends its jobs; drain it and stop its agent first"
    )]
    NodeInUse { node: String },
    /// The reason says what to do.
    #[error("node {node} cannot be resumed, as it has drained itself: {reason}; nothing was changed")]
    NodeInTrouble { node: String, reason: String },
    #[error("an evolving application needs at least one stage, and at least one node in each")]
    EmptyStage,
    #[error("stage {stage} needs {wanted} nodes of {possible}")]
    StageTooLarge { stage: usize, wanted: u32, possible: String },
    #[error("the profile's first stage is what the job holds, {}, but it says {first}", many(*held, "node"))]
    StageNotHeld { held: u32, first: u32 },
    #[error(
        "{wanted} nodes are free for the next stage in {earliest} at the earliest, but this one can be expanded for {latest} only: the stages announced before stay"
    )]
    StageLater { wanted: u32, earliest: Span, latest: Span },
    #[error("{n_named} nodes are named, but only {surplus} are freed at its next stage")]
    FreesTooMany { surplus: usize, n_named: usize },
    #[error(
        "with a profile, tasks are counted on each node: {n_tasks} do not divide by the {first} nodes of its first stage"
    )]
    TasksOfStages { n_tasks: u32, first: u32 },
    #[error("this message is accepted from role {expected} only, not from {actual}")]
    WrongRole { expected: Role, actual: Role },
    #[error("job {0} was submitted with its work: no launcher serves it")]
    NoLauncher(JobId),
    #[error("job {job}: request {tag} does not come after {last}; tags rise from request to request")]
    StaleTag { job: JobId, tag: u64, last: u64 },
    #[error("job {job} was granted request {granted}, not {tag}")]
    WrongTag { job: JobId, tag: u64, granted: u64 },
    #[error("job {job}: its filter does not show cluster {cluster}; what it shows: {shown}")]
    NotInView { job: JobId, cluster: String, shown: String },
    #[error(
        "job {job}: more than {most} calls in a second: wait for the next one; a launcher or negotiator that goes on so ends \
         its job"
    )]
    RateLimit { job: JobId, most: u32 },
    #[error("job {0} has not started, or is being ended: only a running job negotiates")]
    NotRunning(JobId),
    #[error("job {0} cannot change its size while it runs: submit it with --malleable or --negotiable")]
    NotNegotiable(JobId),
    #[error(
        "job {0} has announced its stages: 'rms evolve' changes them, and 'rms update JOB profile=...' while it waits"
    )]
    HasProfile(JobId),
    #[error("{who} is of another execution than the one that runs")]
    AnotherRun { who: Identity },
    #[error("job {job} has no open negotiation {id}; 'rms negotiations {job}' lists them")]
    NoSuchNegotiation { job: JobId, id: NegotiationId },
    #[error("this cannot be negotiated: {0}")]
    Template(#[from] negotiation::TemplateError),
    #[error("job {job} cannot give back {asked}: it has {held}{place}")]
    MoreThanHeld { job: JobId, asked: String, held: String, place: String },
    #[error("job {job} is negotiating about the same already, under {id}: wait for the end of it")]
    AlreadyNegotiating { job: JobId, id: NegotiationId },
    #[error("job {job} is not on node {node}: it runs on {nodes}")]
    NotOnNode { job: JobId, node: String, nodes: String },
    #[error("job {job} runs on several nodes ({nodes}): say on which one the process is, with --node")]
    NameANode { job: JobId, nodes: String },
    #[error("the sizes of a malleable job are at least 1, and the least is not above the most")]
    MalleableSizes,
    #[error("from {least} to {most} there is no size that is {}: widen the range", sizes.kind())]
    NoSuchSize { least: u32, most: u32, sizes: Sizes },
    #[error("sizes are any, powers of two, multiples of a number above 0, or at most {MAX_SIZES} numbers that rise")]
    BadSizes,
    #[error(
        "{} {} not a size of this job, which may have from {least} to {most}{}: change one of the two",
        many(*nodes, "node"),
        are(*nodes),
        among(sizes)
    )]
    NotItsSize { nodes: u32, least: u32, most: u32, sizes: Sizes },
}

fn many(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn among(sizes: &Sizes) -> String {
    if *sizes == Sizes::Any { String::new() } else { format!(", and each size is {}", sizes.kind()) }
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// A refusal as sent: a stable word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct Refused {
    /// A stable word in `snake_case`.
    pub kind: String,
    pub message: String,
}

impl Refused {
    pub fn new(kind: &str, message: impl fmt::Display) -> Refused {
        Refused { kind: kind.to_owned(), message: message.to_string() }
    }
}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Refused {
        Refused::new(word(refusal), refusal)
    }
}

/// Returns the stable word of a refusal. Scripts match on it: words are never changed.
fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotAllowed { .. } => "not_allowed",
        Refusal::NoSuchJob(_) => "no_such_job",
        Refusal::NoJobs => "no_jobs",
        Refusal::NotYourJob { .. } | Refusal::NotYourApplication { .. } => "not_your_job",
        Refusal::WrongState { .. } => "wrong_state",
        Refusal::NoSuchCluster { .. } => "no_such_cluster",
        Refusal::NoNodes => "no_nodes",
        Refusal::NoSuchNode { .. } => "no_such_node",
        Refusal::NoSuchFeature { .. } => "no_such_feature",
        Refusal::TooManyNodes { .. } | Refusal::TooFewTogether { .. } => "too_many_nodes",
        Refusal::NothingAsked => "nothing_asked",
        Refusal::FewerTasksThanNodes { .. } => "fewer_tasks_than_nodes",
        Refusal::TooManyCpus { .. } | Refusal::TooManyCores { .. } | Refusal::NotInGrant { .. } => "too_many_cpus",
        Refusal::NodeTooSmall { .. } | Refusal::PackageTooSmall { .. } => "too_many_cpus",
        Refusal::CpuLimit { .. } => "cpu_limit",
        Refusal::TooMuchMemory { .. } => "too_much_memory",
        Refusal::NoSuchDevice { .. } => "no_such_device",
        Refusal::TooManyDevices { .. } => "too_many_devices",
        Refusal::UnevenDevices { .. } => "uneven_devices",
        Refusal::NoSuchLicence { .. } => "no_such_licence",
        Refusal::TooManyLicences { .. } => "too_many_licences",
        Refusal::TasksPerNode { .. } => "tasks_per_node",
        Refusal::NoWall => "no_wall",
        Refusal::WallTooLong { .. } => "wall_too_long",
        Refusal::WallPassed { .. } | Refusal::WallOver(_) => "wall_passed",
        Refusal::AgentAway { .. } => "agent_away",
        Refusal::StagePromised { .. } => "stage_promised",
        Refusal::OverBudget { .. } => "over_budget",
        Refusal::SystemFull { .. } => "system_full",
        Refusal::JobLimit { .. } => "job_limit",
        Refusal::SliceLimit { .. } => "slice_limit",
        Refusal::ScriptLimit { .. } => "script_limit",
        Refusal::SubmitLimit { .. } | Refusal::NoSubmits => "submit_limit",
        Refusal::TooLarge { .. } => "too_large",
        Refusal::Malformed(_) => "malformed",
        Refusal::Name(_) => "bad_name",
        Refusal::Pattern(_) => "bad_pattern",
        Refusal::Setting(_) | Refusal::MemoryPerCpu { .. } => "bad_setting",
        Refusal::NoSuchToken(_) => "no_such_token",
        Refusal::TokenInvalid => "token_invalid",
        Refusal::TokenForAnother { .. } | Refusal::TokenOfPerson(_) | Refusal::TokenOfAgent(_) => "token_for_another",
        Refusal::TokenTtl(_) => "token_ttl",
        Refusal::TooManyCertificates { .. } => "too_many_certificates",
        Refusal::NoSuchCertificate => "no_such_certificate",
        Refusal::NodeInAnotherCluster { .. } => "node_in_another_cluster",
        Refusal::NodeInUse { .. } => "node_in_use",
        Refusal::NodeInTrouble { .. } => "node_in_trouble",
        Refusal::NodeConnected { .. } => "node_connected",
        Refusal::ClusterInUse { .. } => "cluster_in_use",
        Refusal::JobsOfRevoked { .. } => "jobs_of_revoked",
        Refusal::LastAdmin => "last_admin",
        Refusal::WrongRole { .. } => "wrong_role",
        Refusal::NoLauncher(_) => "no_launcher",
        Refusal::StaleTag { .. } => "stale_tag",
        Refusal::WrongTag { .. } => "wrong_tag",
        Refusal::NotInView { .. } => "not_in_view",
        Refusal::RateLimit { .. } => "rate_limit",
        Refusal::EmptyStage => "empty_stage",
        Refusal::StageTooLarge { .. } => "stage_too_large",
        Refusal::StageNotHeld { .. } => "stage_not_held",
        Refusal::StageLater { .. } => "stage_later",
        Refusal::FreesTooMany { .. } => "frees_too_many",
        Refusal::TasksOfStages { .. } => "tasks_of_stages",
        Refusal::NotRunning(_) => "not_running",
        Refusal::NotNegotiable(_) | Refusal::KeepsItsNodes(_) => "not_negotiable",
        Refusal::HasProfile(_) => "has_profile",
        Refusal::AnotherRun { .. } => "another_run",
        Refusal::NoSuchNegotiation { .. } => "no_such_negotiation",
        Refusal::Template(_) | Refusal::MoreThanHeld { .. } => "bad_template",
        Refusal::AlreadyNegotiating { .. } => "already_negotiating",
        Refusal::NotOnNode { .. } => "not_on_node",
        Refusal::NameANode { .. } => "name_a_node",
        Refusal::MalleableSizes | Refusal::NoSuchSize { .. } => "malleable_sizes",
        Refusal::BadSizes | Refusal::NotItsSize { .. } => "malleable_sizes",
    }
}
