//! Turns a submission into a job that is possible here, or says what would be.

mod malleable;
mod stages;

use std::collections::BTreeMap;

use rms_api::call::{Nodes, Shape, Submission};
use rms_api::refusal::Refusal;
use rms_model::identity::check_name;
use rms_model::job::{Constraint, TaskCount};
use rms_model::{ClusterId, Evolving, Identity, Inventory, JobSpec, Labels, Owner, Request, Span};

use crate::executable::{self, too_large};
use crate::plan::meets;
use crate::state::State;
pub(crate) use malleable::{check as check_limits, check_declared, check_launched};
pub(crate) use stages::{check_stages, evolving_options};

/// # Errors
/// What is wrong or impossible, and what would be possible.
pub(crate) fn admit(state: &State, who: &Identity, submission: Submission) -> Result<JobSpec, Refusal> {
    check_texts(&submission)?;
    if state.nodes().is_empty() {
        return Err(Refusal::NoNodes);
    }
    let tasks = tasks(submission.n_tasks)?.unwrap_or(TaskCount::PerNode(1));
    let (tasks, options) = sizes(state, &submission, tasks)?;
    Ok(JobSpec {
        labels: submission.labels,
        owner: Owner(who.name.clone()),
        execution: submission.execution,
        tasks,
        cpus_per_task: submission.cpus_per_task,
        options,
        clusters: submission.clusters,
        constraint: submission.constraint,
        resources: submission.resources,
        priority: submission.priority,
        requeue: submission.requeue,
        begin: submission.begin,
        evolving: submission.evolving,
        malleable: submission.malleable,
    })
}

pub(crate) fn tasks(n_tasks: Option<u32>) -> Result<Option<TaskCount>, Refusal> {
    match n_tasks {
        Some(0) => Err(Refusal::NothingAsked),
        n_tasks => Ok(n_tasks.map(TaskCount::Total)),
    }
}

/// With how many tasks the job starts, and the sizes that it may have.
///
/// # Errors
/// What of it is impossible, and what would be possible.
pub(crate) fn sizes(
    state: &State,
    submission: &Submission,
    tasks: TaskCount,
) -> Result<(TaskCount, Vec<Request>), Refusal> {
    check_lists(submission.clusters.len(), &submission.constraint)?;
    submission.constraint.features.iter().try_for_each(|feature| check_name(feature))?;
    check_features(state, &submission.constraint)?;
    let clusters = &clusters(state, &submission.clusters)?;
    let sizes = |tasks, shapes| Sizes { state, submission, shapes, clusters, tasks };
    match (&submission.evolving, &submission.malleable) {
        (Some(_), Some(_)) => {
            Err(Refusal::Malformed("a job has a profile, or limits within which it is changed, not both"))
        }
        (Some(evolving), None) if submission.shapes.is_empty() => {
            let tasks = stages::tasks_of_stages(evolving, tasks)?;
            Ok((tasks, sizes(tasks, &[]).options_of_stages(evolving)?))
        }
        (Some(_), None) => Err(Refusal::Malformed("a profile says nodes and times: it stands in place of sizes")),
        (None, Some(limits)) => {
            malleable::check(limits, &submission.execution.work)?;
            let shapes = malleable::shapes(limits, &submission.shapes)?;
            let tasks = malleable::tasks(limits, tasks, &shapes)?;
            let options = sizes(tasks, &shapes).options()?;
            malleable::check_options(&options)?;
            Ok((tasks, options))
        }
        (None, None) => Ok((tasks, sizes(tasks, &submission.shapes).options()?)),
    }
}

/// The sizes a job may have, as requests.
struct Sizes<'a> {
    state: &'a State,
    submission: &'a Submission,
    shapes: &'a [Shape],
    clusters: &'a [ClusterId],
    tasks: TaskCount,
}

impl Sizes<'_> {
    /// Every shape on every cluster where it is possible; the first reason if it is possible nowhere.
    fn options(&self) -> Result<Vec<Request>, Refusal> {
        let default = [Shape { nodes: Nodes::FromTasks, wall: None }];
        let shapes = if self.shapes.is_empty() { &default } else { self.shapes };
        if shapes.len() > MAX_SHAPES {
            return Err(Refusal::TooLarge { what: "the list of sizes", size: shapes.len(), max: MAX_SHAPES });
        }
        let mut options: Vec<Request> = Vec::new();
        let mut first_refusal = None;
        for shape in shapes {
            let wall = self.wall(shape)?;
            for candidate in self.candidates(shape, wall)? {
                match self.check(&candidate) {
                    Ok(()) if options.contains(&candidate) => {}
                    Ok(()) => options.push(candidate),
                    Err(refusal) => {
                        // The largest possibility is the most helpful: it names the biggest cluster.
                        first_refusal.get_or_insert(refusal);
                    }
                }
            }
        }
        match (options.is_empty(), first_refusal) {
            (false, _) => Ok(options),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::NothingAsked),
        }
    }

    fn options_of_stages(&self, evolving: &Evolving) -> Result<Vec<Request>, Refusal> {
        let (constraint, tasks) = (&self.submission.constraint, self.tasks.most_on_a_node(1));
        executable::check_spread(&self.submission.execution.work, self.tasks, 1)?;
        let cpus = tasks.saturating_mul(self.submission.cpus_per_task).max(constraint.cpus);
        stages::options(self.state, self.clusters, &Constraint { cpus, ..constraint.clone() }, evolving)
    }

    fn wall(&self, shape: &Shape) -> Result<Span, Refusal> {
        let settings = self.state.settings();
        let wall = shape.wall.unwrap_or(settings.default_wall);
        if wall <= Span::ZERO {
            return Err(Refusal::NoWall);
        }
        if wall > settings.max_wall {
            return Err(Refusal::WallTooLong { wall, max: settings.max_wall });
        }
        Ok(wall)
    }

    fn candidates(&self, shape: &Shape, wall: Span) -> Result<Vec<Request>, Refusal> {
        match &shape.nodes {
            Nodes::Count(0) => Err(Refusal::NothingAsked),
            Nodes::Count(n_nodes) => Ok(self.on_each_cluster(wall, |_| *n_nodes)),
            Nodes::FromTasks => Ok(self.on_each_cluster(wall, |cluster| self.nodes_for_tasks(cluster))),
            Nodes::PerCluster(counts) => {
                let mut nodes = BTreeMap::new();
                for (name, n_nodes) in counts {
                    let cluster = clusters(self.state, std::slice::from_ref(name))?[0];
                    if *n_nodes > 0 {
                        nodes.insert(cluster, *n_nodes);
                    }
                }
                if nodes.is_empty() {
                    return Err(Refusal::NothingAsked);
                }
                Ok(vec![Request { nodes, wall }])
            }
        }
    }

    fn on_each_cluster(&self, wall: Span, n_nodes: impl Fn(ClusterId) -> u32) -> Vec<Request> {
        let request = |cluster: &ClusterId| Request::on_one(*cluster, n_nodes(*cluster), wall);
        self.clusters.iter().map(request).collect()
    }

    /// Enough nodes for the tasks and their CPUs, counted on the smallest node that may be used.
    fn nodes_for_tasks(&self, cluster: ClusterId) -> u32 {
        let TaskCount::Total(n_tasks) = self.tasks else { return 1 };
        let cpus_per_task = self.submission.cpus_per_task.max(1);
        let sizes = self.eligible(cluster, &self.submission.constraint).map(|(inventory, _)| inventory.cpus);
        let tasks_a_node = sizes.min().map_or(1, |cpus| (cpus / cpus_per_task).max(1));
        n_tasks.div_ceil(tasks_a_node)
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let n_nodes = request.nodes.values().try_fold(0_u32, |sum, nodes| sum.checked_add(*nodes));
        let Some(n_nodes) = n_nodes else { return Err(Refusal::NothingAsked) };
        executable::check_spread(&self.submission.execution.work, self.tasks, n_nodes)?;
        for (cluster, wanted) in &request.nodes {
            self.check_cluster(*cluster, *wanted, n_nodes)?;
        }
        Ok(())
    }

    fn check_cluster(&self, cluster: ClusterId, wanted: u32, n_nodes: u32) -> Result<(), Refusal> {
        let constraint = &self.submission.constraint;
        let possible = self.n_eligible(cluster, constraint);
        if wanted > possible {
            return Err(Refusal::TooManyNodes {
                wanted,
                constraint: describe(constraint),
                possible: self.possible(constraint),
            });
        }
        let tasks = self.tasks.most_on_a_node(n_nodes);
        let cpus_per_task = self.submission.cpus_per_task;
        let cpus = tasks.saturating_mul(cpus_per_task);
        let with_cpus = Constraint { cpus: cpus.max(constraint.cpus), ..constraint.clone() };
        if wanted > self.n_eligible(cluster, &with_cpus) {
            let largest = self.eligible(cluster, constraint).map(|(inventory, _)| inventory.cpus).max().unwrap_or(0);
            let place = format!(" of cluster {}", self.state.clusters()[&cluster]);
            return Err(Refusal::TooManyCpus { tasks, cpus_per_task, cpus: largest, place });
        }
        Ok(())
    }

    /// Nodes that exist, whether or not they are up today.
    fn eligible<'a>(
        &'a self,
        cluster: ClusterId,
        constraint: &'a Constraint,
    ) -> impl Iterator<Item = (&'a Inventory, u32)> {
        self.state.kinds(cluster).filter(move |(inventory, _)| meets(inventory, constraint))
    }

    fn n_eligible(&self, cluster: ClusterId, constraint: &Constraint) -> u32 {
        self.eligible(cluster, constraint).map(|(_, n_alike)| n_alike).sum()
    }

    fn possible(&self, constraint: &Constraint) -> String {
        let count = |cluster: &ClusterId| {
            let n_nodes = self.n_eligible(*cluster, constraint);
            format!("cluster {} has {n_nodes}", self.state.clusters()[cluster])
        };
        let counts: Vec<String> = self.clusters.iter().map(count).collect();
        counts.join(", ")
    }
}

pub(crate) fn describe(constraint: &Constraint) -> String {
    let mut parts = Vec::new();
    if !constraint.features.is_empty() {
        let features: Vec<&str> = constraint.features.iter().map(String::as_str).collect();
        parts.push(format!(" with {}", features.join(" and ")));
    }
    if constraint.memory.0 > 0 {
        parts.push(format!(" with at least {}", constraint.memory));
    }
    if constraint.cpus > 0 {
        parts.push(format!(" with at least {} CPUs", constraint.cpus));
    }
    parts.concat()
}

/// The cluster of this name; the error tells the names that there are.
pub(crate) fn cluster(state: &State, name: &str) -> Result<ClusterId, Refusal> {
    state.cluster_named(name).ok_or_else(|| {
        let known: Vec<&str> = state.clusters().values().map(String::as_str).collect();
        Refusal::NoSuchCluster { name: name.chars().take(80).collect(), known: known.join(", ") }
    })
}

fn clusters(state: &State, names: &[String]) -> Result<Vec<ClusterId>, Refusal> {
    if names.is_empty() {
        return Ok(state.clusters().keys().copied().collect());
    }
    let mut found: Vec<ClusterId> = Vec::new();
    for name in names {
        let cluster = cluster(state, name)?;
        if !found.contains(&cluster) {
            found.push(cluster);
        }
    }
    Ok(found)
}

pub(crate) fn check_features(state: &State, constraint: &Constraint) -> Result<(), Refusal> {
    for feature in &constraint.features {
        let has_it = |cluster: &ClusterId| state.kinds(*cluster).any(|(kind, _)| kind.features.contains(feature));
        let exists = state.clusters().keys().any(has_it);
        if !exists {
            let mut known: Vec<&str> =
                state.nodes().values().flat_map(|node| &node.inventory.features).map(String::as_str).collect();
            known.sort_unstable();
            known.dedup();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refusal::NoSuchFeature { feature: feature.chars().take(80).collect(), known });
        }
    }
    Ok(())
}

fn check_texts(submission: &Submission) -> Result<(), Refusal> {
    check_labels(&submission.labels)?;
    executable::check(&submission.execution)
}

/// What a job is called and marked with.
pub(crate) fn check_labels(labels: &Labels) -> Result<(), Refusal> {
    for label in labels.all() {
        too_large(label.key, label.text.len(), label.max_bytes)?;
        if label.text.chars().any(char::is_control) {
            return Err(Refusal::Malformed("names, comments and accounts of jobs have no control characters"));
        }
    }
    if labels.name.is_empty() { Err(Refusal::Malformed("a job's name is not empty")) } else { Ok(()) }
}

/// A pass looks at every size on every cluster, for every job: the lists must be short.
pub(crate) fn check_lists(n_clusters: usize, constraint: &Constraint) -> Result<(), Refusal> {
    let is_short = n_clusters <= MAX_NAMES && constraint.features.len() <= MAX_NAMES;
    if is_short { Ok(()) } else { Err(Refusal::Malformed("at most 256 clusters and 256 features can be named")) }
}

const MAX_NAMES: usize = 256;
const MAX_SHAPES: usize = 1024;
