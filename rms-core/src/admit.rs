//! Admission: turns a submission into a job that is possible here, or says what would be possible.

mod malleable;
mod needs;
mod stages;

use std::collections::{BTreeMap, BTreeSet};

use rms_api::call::{Nodes, Shape, Submission};
use rms_api::refusal::Refusal;
use rms_model::identity::check_name;
use rms_model::job::{Constraint, TaskCount};
use rms_model::{
    Allocation, ClusterId, Devices, Evolving, Identity, Inventory, JobSpec, Labels, Mebibytes, Owner, Packing, Request,
    ResourceRequest, Span, Time, Work, hostlist,
};

use crate::executable::{self, too_large};
use crate::state::{State, longest_run};
pub(crate) use malleable::{check as check_limits, check_declared, check_launched};
pub(crate) use needs::Asked;
use needs::{cpus, thinned};
pub(crate) use stages::{check_stages, evolving_options};

/// Turns a submission into the specification of a job that is possible here.
///
/// # Errors
/// What is wrong or impossible, and what would be possible.
pub(crate) fn admit(state: &State, who: &Identity, mut submission: Submission) -> Result<JobSpec, Refusal> {
    check_texts(&submission)?;
    check_begin(submission.begin)?;
    if state.nodes().is_empty() {
        return Err(Refusal::NoNodes);
    }
    let tasks = tasks(submission.n_tasks)?.unwrap_or(TaskCount::PerNode(1));
    submission.resources.memory_per_cpu = memory_per_cpu(state, &submission)?;
    submission.resources.min_cpus_per_node = min_cpus_per_node(state, &submission)?;
    let (tasks, options) = sizes(state, &submission, tasks, state.settings().max_wall)?;
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

/// Returns the number of tasks with which the job starts, and the sizes that it may have.
///
/// # Errors
/// What is impossible, and what would be possible.
pub(crate) fn sizes(
    state: &State,
    submission: &Submission,
    tasks: TaskCount,
    max_wall: Span,
) -> Result<(TaskCount, Vec<Request>), Refusal> {
    check_lists(submission.clusters.len(), &submission.constraint)?;
    submission.constraint.features.iter().try_for_each(|feature| check_name(feature))?;
    check_features(state, &submission.constraint)?;
    check_node_names(state, &submission.constraint)?;
    check_devices(state, submission)?;
    let clusters = &clusters(state, &submission.clusters)?;
    check_licences(state, submission, clusters)?;
    let changes_size = submission.evolving.is_some() || submission.malleable.is_some();
    if changes_size && submission.resources.contiguous {
        return Err(Refusal::Malformed(
            "nodes that come and go as a job runs need not follow one another: leave --contiguous out, or the profile or \
             limits (--profile, --malleable, --negotiable) within which it changes",
        ));
    }
    check_sharing(state, submission)?;
    if changes_size && !submission.resources.devices_in_all.is_empty() {
        return Err(Refusal::Malformed(
            "a job that changes its size has devices on each node, not in all: say how many each node must have (--gpus-per-node)",
        ));
    }
    let sizes = |tasks, shapes| Sizes { state, submission, shapes, clusters, tasks, max_wall };
    match (&submission.evolving, &submission.malleable) {
        (Some(_), Some(_)) => {
            Err(Refusal::Malformed("a job has a profile, or limits within which it is changed, not both"))
        }
        (Some(evolving), None) if submission.shapes.is_empty() => {
            let tasks = stages::tasks_of_stages(evolving, tasks)?;
            Ok((tasks, sizes(tasks, &[]).options_of_stages(evolving)?))
        }
        (Some(_), None) => Err(Refusal::Malformed("a profile sets nodes and wall time: leave out -N, -t and --shapes")),
        (None, Some(limits)) => {
            malleable::check(limits, &submission.execution.work)?;
            // Each of them may stand for many.
            check_count(&submission.shapes)?;
            let n_nodes = |cluster: &ClusterId| state.kinds(*cluster).map(|(_, n_nodes)| n_nodes).sum();
            let largest = clusters.iter().map(n_nodes).max().unwrap_or(0);
            let shapes = malleable::shapes(limits, &submission.shapes, largest)?;
            let tasks = malleable::tasks(limits, tasks, &shapes)?;
            let options = sizes(tasks, &shapes).options()?;
            malleable::check_options(&options)?;
            Ok((tasks, options))
        }
        (None, None) => Ok((tasks, sizes(tasks, &submission.shapes).options()?)),
    }
}

fn check_count(shapes: &[Shape]) -> Result<(), Refusal> {
    let (size, max) = (shapes.len(), MAX_SHAPES);
    if size > max { Err(Refusal::TooLarge { what: "the list of sizes", size, max }) } else { Ok(()) }
}

/// Checks that the job can share CPUs as requested.
///
/// # Errors
/// The job cannot share CPUs as requested.
fn check_sharing(state: &State, submission: &Submission) -> Result<(), Refusal> {
    let ResourceRequest { share, min_cpus_per_node, cores_per_package, exclusive, .. } = &submission.resources;
    if !share {
        return Ok(());
    }
    if *exclusive {
        return Err(Refusal::Malformed(
            "a job has its nodes to itself (--exclusive), or it shares their CPUs (--share), not both",
        ));
    }
    let most = |count: fn(&Inventory) -> u32| {
        let kinds = state.clusters().keys().flat_map(|cluster| state.kinds(*cluster));
        kinds.map(|(kind, _)| count(kind)).max().unwrap_or(0)
    };
    let largest = most(|kind| kind.cpus);
    if *min_cpus_per_node > 0 && *min_cpus_per_node >= largest {
        return Err(Refusal::NodeTooSmall { wanted: *min_cpus_per_node, largest });
    }
    let largest = most(Inventory::largest_package);
    if *cores_per_package > 0 && *cores_per_package >= largest {
        return Err(Refusal::PackageTooSmall { wanted: *cores_per_package, largest });
    }
    Ok(())
}

/// Computes the sizes that a job may have, as requests.
struct Sizes<'a> {
    state: &'a State,
    submission: &'a Submission,
    shapes: &'a [Shape],
    clusters: &'a [ClusterId],
    tasks: TaskCount,
    max_wall: Span,
}

impl Sizes<'_> {
    /// Returns every shape on every cluster where it is possible; if it is possible nowhere, the reason that names the
    /// most of what is too little everywhere.
    fn options(&self) -> Result<Vec<Request>, Refusal> {
        let default = [Shape { nodes: Nodes::FromTasks, wall: None }];
        let shapes = if self.shapes.is_empty() { &default } else { self.shapes };
        check_count(shapes)?;
        let mut options: Vec<Request> = Vec::new();
        let mut most_helpful: Option<Refusal> = None;
        for shape in shapes {
            let wall = self.wall(shape)?;
            for candidate in self.candidates(shape, wall)? {
                match self.check(&candidate) {
                    Ok(()) if options.contains(&candidate) => {}
                    Ok(()) => options.push(candidate),
                    Err(refusal) if most_helpful.as_ref().is_some_and(|known| !names_more(&refusal, known)) => {}
                    Err(refusal) => most_helpful = Some(refusal),
                }
            }
        }
        match (options.is_empty(), most_helpful) {
            (false, _) => Ok(options),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::NothingAsked),
        }
    }

    fn options_of_stages(&self, evolving: &Evolving) -> Result<Vec<Request>, Refusal> {
        executable::check_spread(&self.submission.execution.work, self.tasks, 1)?;
        stages::options(self.state, self.clusters, &self.asked(), evolving)
    }

    fn wall(&self, shape: &Shape) -> Result<Span, Refusal> {
        let settings = self.state.settings();
        let wall = shape.wall.unwrap_or(settings.default_wall);
        if wall <= Span::ZERO {
            return Err(Refusal::NoWall);
        }
        if wall > self.max_wall {
            return Err(Refusal::WallTooLong { wall, max: self.max_wall });
        }
        Ok(wall)
    }

    fn candidates(&self, shape: &Shape, wall: Span) -> Result<Vec<Request>, Refusal> {
        match &shape.nodes {
            Nodes::Count(0) => Err(Refusal::NothingAsked),
            Nodes::Count(n_nodes) => {
                Ok(self.clusters.iter().map(|cluster| Request::on_one(*cluster, *n_nodes, wall)).collect())
            }
            Nodes::FromTasks => {
                let requests = |cluster: &ClusterId| {
                    let counts = self.node_counts(*cluster).into_iter();
                    counts.map(|n_nodes| Request::on_one(*cluster, n_nodes, wall)).collect::<Vec<_>>()
                };
                Ok(self.clusters.iter().flat_map(requests).collect())
            }
            Nodes::PerCluster(counts) => {
                let mut nodes = BTreeMap::new();
                for (name, n_nodes) in counts {
                    let cluster = clusters(self.state, std::slice::from_ref(name))?[0];
                    if !self.clusters.contains(&cluster) {
                        return Err(Refusal::Malformed(
                            "the nodes that are asked for (-N) are of a cluster that is not among those of the job (-M): \
                             leave one of the two out",
                        ));
                    }
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

    fn asked(&self) -> Asked<'_> {
        let Submission { cpus_per_task, constraint, resources, .. } = self.submission;
        Asked { tasks: self.tasks, cpus_per_task: *cpus_per_task, constraint, resources }
    }

    /// Returns the numbers of nodes that are enough for the tasks and their needs, the preferred one first. Where nodes
    /// differ there is one for each size of node. Where jobs share nodes there are several, because the free resources
    /// may be spread over many nodes.
    fn node_counts(&self, cluster: ClusterId) -> Vec<u32> {
        let asked = self.asked();
        let n_nodes = self.n_eligible(cluster, asked.constraint);
        let tasks_on: BTreeSet<u32> =
            self.eligible(cluster, asked.constraint).map(|(inventory, _)| asked.tasks_on(inventory)).collect();
        let (least_on, most_on) = (tasks_on.first().copied().unwrap_or(1), tasks_on.last().copied().unwrap_or(1));
        let are_alone = !asked.shares_nodes(self.state, cluster);
        let needs_devices = !asked.resources.devices_in_all.is_empty();
        let mut counts = match self.tasks {
            TaskCount::Total(n_tasks) if are_alone && !needs_devices => {
                let counts: BTreeSet<u32> = tasks_on.iter().map(|on_one| n_tasks.div_ceil(*on_one)).collect();
                counts.into_iter().collect()
            }
            _ => asked.even_counts(n_nodes, if are_alone { least_on } else { most_on }),
        };
        counts.retain(|n_nodes| self.check_cluster(cluster, *n_nodes, *n_nodes).is_ok());
        if are_alone && needs_devices {
            counts.truncate(1);
        }
        if counts.is_empty() {
            // Not possible; the refusal says what is missing on the largest nodes.
            return vec![match self.tasks {
                TaskCount::Total(n_tasks) => n_tasks.div_ceil(most_on),
                TaskCount::PerNode(_) => 1,
            }];
        }
        let mut counts = thinned(&counts, MAX_COUNTS);
        if asked.resources.packing == Packing::Spread {
            counts.reverse();
        }
        counts
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let n_nodes = request.nodes.values().try_fold(0_u32, |sum, nodes| sum.checked_add(*nodes));
        let Some(n_nodes) = n_nodes else { return Err(Refusal::NothingAsked) };
        executable::check_spread(&self.submission.execution.work, self.tasks, n_nodes)?;
        self.check_script(n_nodes)?;
        self.asked().check(n_nodes)?;
        for (cluster, wanted) in &request.nodes {
            self.check_licences_on(*cluster)?;
            self.asked().check_limit(self.state, *cluster, (*wanted, n_nodes))?;
            self.check_cluster(*cluster, *wanted, n_nodes)?;
        }
        Ok(())
    }

    /// Checks that a script has at least one task on each node, unless its nodes change.
    fn check_script(&self, n_nodes: u32) -> Result<(), Refusal> {
        let Submission { execution, malleable, .. } = self.submission;
        match (&execution.work, self.tasks) {
            (Work::Script { .. }, TaskCount::Total(n_tasks)) if n_tasks < n_nodes && malleable.is_none() => {
                Err(Refusal::FewerTasksThanNodes { n_tasks, n_nodes })
            }
            _ => Ok(()),
        }
    }

    /// Checks the licences on one cluster: a job needs them on each of its clusters.
    fn check_licences_on(&self, cluster: ClusterId) -> Result<(), Refusal> {
        let name = &self.state.clusters()[&cluster];
        let all = self.state.settings().licences_of(name);
        match self.submission.resources.licences.iter().find(|(name, wanted)| all.count(name) < *wanted) {
            Some((licence, wanted)) => Err(Refusal::TooManyLicences {
                name: licence.to_owned(),
                wanted,
                total: all.count(licence),
                cluster: name.clone(),
            }),
            None => Ok(()),
        }
    }

    fn check_cluster(&self, cluster: ClusterId, wanted: u32, n_nodes: u32) -> Result<(), Refusal> {
        let asked = self.asked();
        let needs = asked.on_each_of(n_nodes);
        let kinds = self.state.kinds_allowed(cluster, asked.constraint).into_iter();
        let n_with_all: u32 =
            kinds.filter(|(inventory, _)| needs.are_met_by(inventory)).map(|(_, n_alike)| n_alike).sum();
        if wanted <= n_with_all {
            return self.check_together(cluster, wanted, n_nodes);
        }
        let Constraint { features, cpus: at_least, nodelist, exclude, .. } = asked.constraint.clone();
        let plain = Constraint { features, cpus: at_least, nodelist, exclude, ..Constraint::default() };
        if wanted > self.n_eligible(cluster, &plain) {
            return Err(Refusal::TooManyNodes {
                wanted,
                constraint: describe(&plain),
                possible: self.possible(&plain),
            });
        }
        let n_nodes = |fits: &dyn Fn(&Inventory) -> bool| -> u32 {
            let nodes = self.eligible(cluster, &plain).filter(|(inventory, _)| fits(inventory));
            nodes.map(|(_, n_alike)| n_alike).sum()
        };
        let kinds = || self.eligible(cluster, &plain).map(|(inventory, _)| inventory);
        let name = || self.state.clusters()[&cluster].clone();
        if wanted > n_nodes(&|inventory| needs.has_cpus(inventory)) {
            let (tasks, cpus_per_task, place) = (needs.tasks, asked.cpus_per_task, format!(" of cluster {}", name()));
            let is_by_core = asked.resources.one_thread_a_core;
            let largest = kinds().map(|inventory| cpus(inventory, is_by_core)).max().unwrap_or(0);
            if largest >= needs.cpus {
                let (cpus, cores) = if is_by_core { (plain.cpus, needs.cpus) } else { (needs.cpus, plain.cores) };
                let constraint = Constraint { cpus, cores, ..plain.clone() };
                let possible = format!("cluster {} has {}", name(), self.n_eligible(cluster, &constraint));
                return Err(Refusal::TooManyNodes { wanted, constraint: describe(&constraint), possible });
            }
            return Err(match is_by_core {
                true => Refusal::TooManyCores { tasks, cpus_per_task, cores: largest, place },
                false => Refusal::TooManyCpus { tasks, cpus_per_task, cpus: largest, place },
            });
        }
        let n_with_memory = n_nodes(&|inventory| needs.has_memory(inventory));
        if wanted > n_with_memory {
            let largest = kinds().map(|inventory| inventory.memory).max().unwrap_or_default();
            let (memory, cluster, constraint) = (needs.memory, name(), describe(&plain));
            return Err(Refusal::TooMuchMemory {
                wanted,
                memory,
                n_nodes: n_with_memory,
                cluster,
                constraint,
                largest,
            });
        }
        let n_with_devices = n_nodes(&|inventory| needs.has_devices(inventory));
        if wanted > n_with_devices {
            let known = known_devices(kinds());
            let (devices, cluster, constraint) = (needs.devices, name(), describe(&plain));
            return Err(Refusal::TooManyDevices {
                wanted,
                devices,
                n_nodes: n_with_devices,
                cluster,
                constraint,
                known,
            });
        }
        let all = Constraint {
            memory: needs.memory,
            cpus: needs.cpus.max(asked.constraint.cpus),
            ..asked.constraint.clone()
        };
        let described = describe(&all);
        let devices = match (needs.devices.is_empty(), described.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!(" with {}", needs.devices),
            (false, false) => format!(" and {}", needs.devices),
        };
        Err(Refusal::TooManyNodes {
            wanted,
            constraint: described + &devices,
            possible: format!("cluster {} has {n_with_all}", name()),
        })
    }

    /// Checks that enough contiguous nodes exist, connected or not.
    fn check_together(&self, cluster: ClusterId, wanted: u32, n_nodes: u32) -> Result<(), Refusal> {
        if !self.submission.resources.contiguous {
            return Ok(());
        }
        let asked = self.asked();
        let needs = asked.on_each_of(n_nodes);
        let is_right = |node| {
            let known = &self.state.nodes()[&node];
            needs.are_met_by(&known.inventory) && asked.constraint.allows(&known.name)
        };
        let longest = longest_run(self.state.neighbours(cluster), is_right);
        if wanted <= longest {
            return Ok(());
        }
        let constraint = describe(&Constraint {
            memory: needs.memory,
            cpus: needs.cpus.max(asked.constraint.cpus),
            ..asked.constraint.clone()
        });
        Err(Refusal::TooFewTogether { wanted, constraint, longest, cluster: self.state.clusters()[&cluster].clone() })
    }

    /// Returns the nodes that exist, whether or not they are up.
    fn eligible<'a>(
        &'a self,
        cluster: ClusterId,
        constraint: &'a Constraint,
    ) -> impl Iterator<Item = (&'a Inventory, u32)> {
        let kinds = self.state.kinds_allowed(cluster, constraint).into_iter();
        kinds.filter(move |(inventory, _)| constraint.is_met_by(inventory))
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

/// Returns whether a refusal is for the same reason as another one, and names more of what there is too little of, or is
/// about more than how many nodes there are.
fn names_more(refusal: &Refusal, than: &Refusal) -> bool {
    use Refusal::{
        CpuLimit, TooFewTogether, TooManyCores, TooManyCpus, TooManyDevices, TooManyLicences, TooManyNodes,
        TooMuchMemory,
    };
    match (refusal, than) {
        (TooManyCpus { cpus, .. }, TooManyCpus { cpus: known, .. }) => cpus > known,
        (TooManyCores { cores, .. }, TooManyCores { cores: known, .. }) => cores > known,
        (TooMuchMemory { n_nodes, largest, .. }, TooMuchMemory { n_nodes: n_known, largest: known, .. }) => {
            (n_nodes, largest) > (n_known, known)
        }
        (TooManyDevices { n_nodes, known, devices, .. }, TooManyDevices { n_nodes: n_known, known: other, .. }) => {
            (n_nodes, n_served(devices, known)) > (n_known, n_served(devices, other))
        }
        (TooManyLicences { name, total, .. }, TooManyLicences { name: other, total: known, .. }) => {
            name == other && total > known
        }
        (CpuLimit { most, .. }, CpuLimit { most: known, .. }) => most > known,
        (TooFewTogether { longest, .. }, TooFewTogether { longest: known, .. }) => longest > known,
        // The names and features that it wants are all that another cluster lacks.
        (_, TooManyNodes { .. }) => !matches!(refusal, TooManyNodes { .. }),
        (_, _) => false,
    }
}

pub(crate) fn describe(constraint: &Constraint) -> String {
    let Constraint { features, memory, cpus, devices: _, cores, sockets, speed_milli, scratch, nodelist, exclude } =
        constraint;
    let mut parts: Vec<String> = features.iter().cloned().collect();
    let counts = [("CPUs", cpus), ("cores", cores), ("sockets", sockets)];
    // Every node has one of each.
    parts.extend(counts.iter().filter(|(_, n)| **n > 1).map(|(what, n)| format!("at least {n} {what}")));
    if *speed_milli > 0 {
        parts.push(format!("at least speed {}", f64::from(*speed_milli) / 1000.0));
    }
    if !scratch.is_none() {
        parts.push(format!("at least {scratch} of scratch space"));
    }
    if !memory.is_none() {
        parts.push(format!("at least {memory} of memory"));
    }
    let mut described = if parts.is_empty() { String::new() } else { format!(" with {}", parts.join(" and ")) };
    for (names, link) in [(nodelist, "among"), (exclude, "without")].into_iter().filter(|(names, _)| !names.is_empty())
    {
        described.push_str(&format!(" {link} {}", shorten(&hostlist::fold_sorted(names))));
    }
    described
}

/// Returns the cluster of this name; the error lists the known names.
pub(crate) fn cluster(state: &State, name: &str) -> Result<ClusterId, Refusal> {
    state.cluster_named(name).ok_or_else(|| {
        let known: Vec<&str> = state.clusters().values().map(String::as_str).collect();
        Refusal::NoSuchCluster { name: shorten(name), known: known.join(", ") }
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
            return Err(Refusal::NoSuchFeature { feature: shorten(feature), known });
        }
    }
    Ok(())
}

/// Checks that nodes of these names exist.
pub(crate) fn check_node_names(state: &State, constraint: &Constraint) -> Result<(), Refusal> {
    let mut names = constraint.nodelist.iter().chain(&constraint.exclude);
    match names.find(|name| state.node_named(name).is_none()) {
        Some(name) => Err(Refusal::NoSuchNode { name: shorten(name) }),
        None => Ok(()),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Returns the memory that the job requests or, if it requests none, the setting of the clusters that it would share.
fn memory_per_cpu(state: &State, submission: &Submission) -> Result<Mebibytes, Refusal> {
    let Submission { constraint, resources, clusters: named, .. } = submission;
    if resources.exclusive || constraint.memory > Mebibytes(0) || resources.memory_per_cpu > Mebibytes(0) {
        return Ok(resources.memory_per_cpu);
    }
    check_lists(named.len(), constraint)?;
    let settings = state.settings();
    let names = clusters(state, named)?.into_iter().map(|cluster| state.clusters()[&cluster].as_str());
    let shared = names.filter(|name| settings.allocation_of(name) == Allocation::Cores);
    Ok(shared.map(|name| settings.memory_per_cpu_of(name)).max().unwrap_or_default())
}

/// Returns what the job keeps of each node while it shares: as requested, or the setting of its clusters.
fn min_cpus_per_node(state: &State, submission: &Submission) -> Result<u32, Refusal> {
    let asked = &submission.resources;
    let says_what = asked.min_cpus_per_node > 0 || asked.cores_per_package > 0 || !asked.min_cpus_per_task.is_empty();
    if !asked.share || says_what {
        return Ok(asked.min_cpus_per_node);
    }
    check_lists(submission.clusters.len(), &submission.constraint)?;
    let names = clusters(state, &submission.clusters)?.into_iter().map(|cluster| &state.clusters()[&cluster]);
    Ok(names.map(|name| state.settings().sharing_of(name).min_cpus_per_node).max().unwrap_or(0))
}

/// Checks that some node has each device.
fn check_devices(state: &State, submission: &Submission) -> Result<(), Refusal> {
    let Submission { constraint, resources, .. } = submission;
    let mut asked =
        [&constraint.devices, &resources.devices, &resources.devices_in_all].into_iter().flat_map(Devices::iter);
    asked.try_for_each(|(name, _)| check_device(state, name))
}

/// Checks that some node has a device.
///
/// # Errors
/// No node has it, and which devices there are.
pub(crate) fn check_device(state: &State, name: &str) -> Result<(), Refusal> {
    let kinds = || state.clusters().keys().flat_map(|cluster| state.kinds(*cluster)).map(|(kind, _)| kind);
    let exists = kinds().any(|kind| kind.devices.iter().any(|(has, _)| Devices::serves(has, name)));
    let refused = || Refusal::NoSuchDevice { name: shorten(name), known: known_devices(kinds()) };
    exists.then_some(()).ok_or_else(refused)
}

/// Checks that some of these clusters has as many licences of each name.
fn check_licences(state: &State, submission: &Submission, clusters: &[ClusterId]) -> Result<(), Refusal> {
    let mut asked = submission.resources.licences.iter();
    asked.try_for_each(|(name, wanted)| check_licence(state, clusters, (name, wanted)))
}

/// Checks that some of these clusters has as many licences of a name.
///
/// # Errors
/// None has so many, and how many or which licences there are.
pub(crate) fn check_licence(state: &State, clusters: &[ClusterId], (name, wanted): (&str, u32)) -> Result<(), Refusal> {
    let all = || clusters.iter().map(|cluster| &state.clusters()[cluster]);
    let total = |cluster: &str| state.settings().licences_of(cluster).count(name);
    match all().map(|cluster| (total(cluster), cluster)).max_by_key(|(total, _)| *total) {
        Some((total, _)) if total >= wanted && total > 0 => Ok(()),
        Some((total, cluster)) if total > 0 => {
            let (name, cluster) = (name.to_owned(), cluster.clone());
            Err(Refusal::TooManyLicences { name, wanted, total, cluster })
        }
        Some(_) | None => {
            let licences = all().flat_map(|cluster| state.settings().licences_of(cluster).iter());
            let known: BTreeSet<&str> = licences.map(|(name, _)| name).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            Err(Refusal::NoSuchLicence { name: shorten(name), known })
        }
    }
}

/// Lists each device name with the largest count on one node.
fn known_devices<'a>(kinds: impl Iterator<Item = &'a Inventory>) -> String {
    let mut most: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, count) in kinds.flat_map(|kind| kind.devices.iter()) {
        let known = most.entry(name).or_default();
        *known = count.max(*known);
    }
    let parts: Vec<String> = most.into_iter().map(|(name, count)| format!("{name}:{count}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Returns how many of these devices a list of [`known_devices`] has at most.
fn n_served(wanted: &Devices, known: &str) -> u32 {
    let known: Devices = known.replace(' ', "").parse().unwrap_or_default();
    let most = |name: &str| known.serving(name).map(|(_, count)| count).max().unwrap_or(0);
    wanted.iter().map(|(name, count)| most(name).min(count)).sum()
}

/// Checks the time before which a job does not begin: a later one cannot be displayed.
pub(crate) fn check_begin(begin: Option<Time>) -> Result<(), Refusal> {
    let is_late = begin.is_some_and(|begin| begin > Time::LATEST);
    if is_late { Err(Refusal::Malformed("a job begins before 9999-12-30")) } else { Ok(()) }
}

fn check_texts(submission: &Submission) -> Result<(), Refusal> {
    check_labels(&submission.labels)?;
    executable::check(&submission.execution)
}

/// Checks the name, comments and accounts of a job.
pub(crate) fn check_labels(labels: &Labels) -> Result<(), Refusal> {
    for label in labels.all() {
        too_large(label.key, label.text.len(), label.max_bytes)?;
        if label.text.chars().any(char::is_control) {
            return Err(Refusal::Malformed("names, comments and accounts of jobs have no control characters"));
        }
    }
    if labels.name.is_empty() { Err(Refusal::Malformed("a job's name is not empty")) } else { Ok(()) }
}

/// Checks that the lists are short: a pass examines every size on every cluster, for every job.
pub(crate) fn check_lists(n_clusters: usize, constraint: &Constraint) -> Result<(), Refusal> {
    let n_nodes = constraint.nodelist.len() + constraint.exclude.len();
    let is_short = n_clusters <= MAX_NAMES && constraint.features.len() <= MAX_NAMES && n_nodes <= MAX_NODE_NAMES;
    let limits = "at most 256 clusters, 256 features and 1024 nodes can be named";
    if is_short { Ok(()) } else { Err(Refusal::Malformed(limits)) }
}

const MAX_NAMES: usize = 256;
const MAX_NODE_NAMES: usize = 1024;
const MAX_SHAPES: usize = 1024;
/// Numbers of nodes of one job on one cluster with shared nodes: each costs a pass a search of the plan.
const MAX_COUNTS: usize = 8;
