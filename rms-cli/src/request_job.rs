//! The common part of `submit` and `run`: requests a job from the server, or only asks whether and when it would start.

use launcher_sdk::{Client, Submitted};
use rms_api::answer::{NodeLine, Reason};
use rms_api::call::Submission;
use rms_api::filter::NodeFilter;
use rms_model::job::Constraint;
use rms_model::resources::MEMORY_FEATURE;
use rms_model::{JobId, Mebibytes, Request, Time, hostlist};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::context::Context;
use crate::explain;
use crate::failure::Failure;
use crate::job_options::JobOptions;
use crate::json;
use crate::loans;
use crate::names::ClusterNames;
use crate::output::{self, Show};
use crate::script::Script;
use crate::size::NodeCount;
use crate::stamp;
use crate::submission::{self, Order};
use crate::table::Table;
use crate::unmet;

/// The result of a request for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested {
    Job(JobId),
    /// `--test-only`: nothing was submitted.
    WouldStart {
        request: Request,
        at: Option<Time>,
        reason: Option<Box<Reason>>,
        clusters: ClusterNames,
        now: Time,
        lent_by: Vec<JobId>,
    },
}

/// # Errors
/// The flags are wrong, or the server refuses.
pub async fn request(
    client: &Client,
    context: &Context,
    mut options: JobOptions,
    order: Order,
) -> Result<Requested, Failure> {
    let mut caller = Caller::read()?;
    if let Some(dir) = &context.dir {
        caller.leads_to(dir);
    }
    // The script's lines may be ignored, but they show for which system it was written.
    options.slurm_env |= order.script.as_ref().is_some_and(Script::has_sbatch_lines);
    let allow_unset = options.allow_unset.clone().unwrap_or_default();
    let script = order.script.clone();
    let submission = submission(client, options, order, &caller).await?;
    if let Some(script) = script {
        for warning in unmet::check(
            &script,
            &submission.execution.environment.0,
            &submission.execution.work,
            &allow_unset,
            context.check_step,
        )? {
            output::warn(&format!("rms: warning: {warning}"));
        }
    }
    let (constraint, clusters) = (submission.constraint.clone(), submission.clusters.clone());
    match client.submit(submission).await? {
        Submitted::Job(job) => {
            if constraint.memory > Mebibytes(0) {
                warn_of_unlimited(client, &clusters, &constraint).await;
            }
            Ok(Requested::Job(job))
        }
        Submitted::WouldStart { request, at, reason, now, lent_by, sizes: _ } => {
            let clusters = context.cluster_names(client).await?;
            let now = now.unwrap_or_else(stamp::now);
            Ok(Requested::WouldStart { request, at, reason, clusters, now, lent_by })
        }
    }
}

/// Returns the submission that the options describe.
///
/// # Errors
/// The flags are wrong, or the server cannot be asked for the largest cluster.
pub async fn submission(
    client: &Client,
    options: JobOptions,
    order: Order,
    caller: &Caller,
) -> Result<Submission, Failure> {
    let asks_for_all = match &options.nodes {
        Some(NodeCount::AtLeast(_)) => true,
        Some(NodeCount::Exactly(_) | NodeCount::Range { .. } | NodeCount::PerCluster(_)) | None => {
            options.malleable.has_no_end()
        }
    };
    let largest = match asks_for_all {
        true => largest_cluster(client, options.clusters.as_deref().unwrap_or_default()).await?,
        false => 0,
    };
    Ok(submission::build(options, order, caller, largest)?)
}

/// Warns about nodes on which the job may start and exceed the memory that it requests.
async fn warn_of_unlimited(client: &Client, wanted: &[String], constraint: &Constraint) {
    // The job is already submitted, whatever the result of this query.
    let filter = NodeFilter { clusters: wanted.to_vec(), ..NodeFilter::default() };
    let Ok(answer) = client.nodes_of(filter).await else { return };
    let lets_it = |node: &&NodeLine| {
        let there = &node.inventory;
        let may_be = there.memory >= constraint.memory && constraint.features.is_subset(&there.features);
        may_be && !there.features.contains(MEMORY_FEATURE)
    };
    let names: Vec<&str> = answer.nodes.iter().filter(lets_it).map(|node| node.name.as_str()).collect();
    if !names.is_empty() {
        let names = hostlist::fold(&names);
        output::warn(&format!(
            "rms: warning: --mem chooses nodes, but is no limit on {names}: no memory cgroup there; -C {MEMORY_FEATURE} asks for others"
        ));
    }
}

/// Returns the number of nodes of the largest of these clusters, of all clusters if none is named.
async fn largest_cluster(client: &Client, wanted: &[String]) -> Result<u32, Failure> {
    let nodes = client.nodes().await?.nodes;
    let is_wanted = |cluster: &str| wanted.is_empty() || wanted.iter().any(|name| name == cluster);
    let mut sizes = std::collections::BTreeMap::<&str, u32>::new();
    for node in nodes.iter().filter(|node| is_wanted(&node.cluster)) {
        *sizes.entry(&node.cluster).or_default() += 1;
    }
    Ok(sizes.values().copied().max().unwrap_or(0))
}

impl Show for Requested {
    fn text(&self) -> String {
        match self {
            Requested::Job(job) => format!("submitted job {job}\n"),
            Requested::WouldStart { request, at, reason, clusters, now, lent_by } => {
                let size = clusters.nodes(request);
                let why = reason.as_ref().map(|reason| format!(": {}", explain::reason(reason, &[], *now)));
                let why = why.unwrap_or_default();
                match at {
                    Some(at) if at <= now => {
                        let lent =
                            loans::by(lent_by).map_or(String::new(), |by| format!(" for {}, {by}", request.wall));
                        format!("it would start at once, on {size}{lent}\n")
                    }
                    Some(at) => {
                        let wait = stamp::brief(at.since(*now));
                        format!("it would start at {} (in {wait}), on {size}{why}\n", stamp::iso_secs(*at))
                    }
                    None => format!("it is possible, but cannot be planned yet{why}\n"),
                }
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Requested::Job(job) => json!({"job": job.0}),
            Requested::WouldStart { request, at, reason, clusters, now: _, lent_by } => json!({
                "would_start": json::time(*at),
                "request": json::request(request, clusters),
                "reason": json::reason(reason.as_deref()),
                "lent_by": lent_by.iter().map(|job| job.0).collect::<Vec<_>>(),
            }),
        }
    }

    fn ids(&self) -> Vec<String> {
        match self {
            Requested::Job(job) => vec![job.to_string()],
            Requested::WouldStart { at, .. } => vec![at.map_or_else(|| "-".to_owned(), stamp::iso_secs)],
        }
    }

    fn table(&self) -> Option<Table> {
        // `None`, so that `--parsable` prints the bare id, for `job=$(rms submit --parsable …)`.
        None
    }
}
