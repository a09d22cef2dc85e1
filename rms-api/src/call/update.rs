//! Changes to a job: exactly the given attributes, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rms_model::{
    Devices, Environment, Evolving, ExpandLimit, Malleable, Mebibytes, OnResize, Packing, ResourceRequest, Sizes, Span,
    Speedup, Time, checked, hostlist,
};
use serde::{Deserialize, Serialize};

use super::Shape;

/// The attributes that can be changed while a job waits and while it runs, by their names in `rms update`.
pub const WHILE_RUNNING: [&str; 5] = ["time", "name", "account", "comment", "priority"];

/// Those that can be changed only while it waits.
pub const WHILE_WAITING: [&str; 42] = [
    "nodes",
    "shapes",
    "tasks",
    "cpus-per-task",
    "tasks-per-node",
    "clusters",
    "constraint",
    "nodelist",
    "exclude",
    "mem",
    "mem-per-cpu",
    "mincpus",
    "gpus",
    "gpus-per-node",
    "gres",
    "licences",
    "exclusive",
    "contiguous",
    "share",
    "min-cpus-per-node",
    "min-cpus-per-task",
    "cores-per-package",
    "spread",
    "hint",
    "hold",
    "requeue",
    "begin",
    "chdir",
    "output",
    "error",
    "input",
    "export",
    "profile",
    "expand",
    "compact",
    "open",
    "malleable",
    "on-resize",
    "workers",
    "negotiable",
    "speedup",
    "on-node-loss",
];

/// What is said of the others while a job runs: the names of [`WHILE_RUNNING`].
pub const ONLY_WHILE_RUNNING: &str = "its time, name, account, comment and priority can be changed while it runs";

/// All changes are made or none. Absent attributes stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// [`Labels`](rms_model::Labels) by name.
    pub labels: BTreeMap<String, String>,
    /// The wall time of each size, or of the running one.
    pub wall: Option<WallChange>,
    /// Replaces all sizes; sizes without a wall time get that of the job.
    pub shapes: Option<Vec<Shape>>,
    pub resizing: Option<Resizing>,
    /// Changes what the job has of limits or a profile; not used with `resizing`.
    #[serde(skip_serializing_if = "ResizingChanges::is_nothing")]
    pub resizing_changes: ResizingChanges,
    /// For a job that is malleable within limits or negotiates: whether it continues without a lost node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survives_loss: Option<bool>,
    pub n_tasks: Option<u32>,
    /// 0 if the tasks share the CPUs of their node.
    pub cpus_per_task: Option<u32>,
    /// Empty means any cluster.
    pub clusters: Option<Vec<String>>,
    pub features: Option<BTreeSet<String>>,
    /// Names of the only nodes that the job may use; empty means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelist: Option<BTreeSet<String>>,
    /// Names of nodes that the job does not use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<BTreeSet<String>>,
    /// Memory of each node; also replaces that for each CPU. 0 asks for none.
    pub memory: Option<Mebibytes>,
    /// CPUs that every node must have, whatever the job takes of them; 0 means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cpus: Option<u32>,
    #[serde(skip_serializing_if = "ResourceChanges::is_nothing")]
    pub resources: ResourceChanges,
    pub priority: Option<i32>,
    pub hold: Option<bool>,
    pub requeue: Option<bool>,
    pub begin: Option<Time>,
    #[serde(deserialize_with = "checked::opt_text")]
    pub cwd: Option<String>,
    #[serde(deserialize_with = "checked::opt_text")]
    pub input: Option<String>,
    #[serde(deserialize_with = "checked::opt_text")]
    pub output: Option<String>,
    #[serde(deserialize_with = "checked::opt_text")]
    pub error: Option<String>,
    /// Replaces the whole environment.
    pub environment: Option<Arc<Environment>>,
}

/// Changes to what a job takes of each node: the fields of [`ResourceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceChanges {
    /// Also replaces the memory of a node; 0 asks for none.
    pub memory_per_cpu: Option<Mebibytes>,
    /// Replaces all devices of the same kind (`gpu:a100` is of the kind `gpu`), on each node or in total; if empty,
    /// removes those of all kinds.
    pub devices: Option<Devices>,
    /// Replaces those in total in the same way.
    pub devices_in_all: Option<Devices>,
    /// Replaces all licences; if empty, removes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licences: Option<Devices>,
    pub tasks_per_node: Option<u32>,
    pub exclusive: Option<bool>,
    pub packing: Option<Packing>,
    pub one_thread_a_core: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cpus_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cpus_per_task: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_per_package: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contiguous: Option<bool>,
}

impl ResourceChanges {
    pub fn is_nothing(&self) -> bool {
        *self == ResourceChanges::default()
    }

    /// Returns the request after these changes.
    #[must_use]
    pub fn of(&self, mut asked: ResourceRequest) -> ResourceRequest {
        for named in [&self.devices, &self.devices_in_all].into_iter().flatten() {
            let is_named = |name: &str| named.is_empty() || named.iter().any(|(new, _)| kind(new) == kind(name));
            for known in [&mut asked.devices, &mut asked.devices_in_all] {
                let others = known.iter().filter(|(name, _)| !is_named(name));
                *known = others.map(|(name, count)| (name.to_owned(), count)).collect();
            }
        }
        for (known, named) in [(&mut asked.devices, &self.devices), (&mut asked.devices_in_all, &self.devices_in_all)] {
            named.iter().flat_map(Devices::iter).for_each(|(name, count)| known.add(name, count));
        }
        ResourceRequest {
            memory_per_cpu: self.memory_per_cpu.unwrap_or(asked.memory_per_cpu),
            tasks_per_node: self.tasks_per_node.unwrap_or(asked.tasks_per_node),
            exclusive: self.exclusive.unwrap_or(asked.exclusive),
            packing: self.packing.unwrap_or(asked.packing),
            licences: self.licences.clone().unwrap_or(asked.licences),
            one_thread_a_core: self.one_thread_a_core.unwrap_or(asked.one_thread_a_core),
            share: self.share.unwrap_or(asked.share),
            min_cpus_per_node: self.min_cpus_per_node.unwrap_or(asked.min_cpus_per_node),
            min_cpus_per_task: self.min_cpus_per_task.clone().unwrap_or(asked.min_cpus_per_task),
            cores_per_package: self.cores_per_package.unwrap_or(asked.cores_per_package),
            contiguous: self.contiguous.unwrap_or(asked.contiguous),
            ..asked
        }
    }
}

/// Changes to how a job changes its size while it runs: the fields of [`Malleable`], or of [`Evolving`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResizingChanges {
    /// Also gives new sizes to start with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<SizeRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_resize: Option<OnResize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Speedup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand: Option<ExpandLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacting: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
}

/// The numbers of nodes that a job may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRange {
    pub least: u32,
    pub most: u32,
    #[serde(deserialize_with = "checked::sizes")]
    pub sizes: Sizes,
}

impl ResizingChanges {
    pub fn is_nothing(&self) -> bool {
        *self == ResizingChanges::default()
    }

    /// Returns whether they concern the limits of a malleable job.
    pub fn is_of_limits(&self) -> bool {
        self.range.is_some() || self.on_resize.is_some() || self.speedup.is_some()
    }

    /// Returns whether they concern a profile.
    pub fn is_of_profile(&self) -> bool {
        self.expand.is_some() || self.compacting.is_some() || self.open.is_some()
    }

    /// Returns limits after these changes.
    #[must_use]
    pub fn of_limits(&self, mut limits: Malleable) -> Malleable {
        if let Some(SizeRange { least, most, sizes }) = self.range.clone() {
            (limits.least, limits.most, limits.sizes) = (least, most, sizes);
        }
        Malleable {
            on_resize: self.on_resize.clone().unwrap_or(limits.on_resize),
            speedup: self.speedup.clone().unwrap_or(limits.speedup),
            ..limits
        }
    }

    /// Returns a profile after these changes.
    #[must_use]
    pub fn of_profile(&self, mut profile: Evolving) -> Evolving {
        profile.expansion.limit = self.expand.unwrap_or(profile.expansion.limit);
        profile.expansion.compacting = self.compacting.unwrap_or(profile.expansion.compacting);
        profile.open = self.open.unwrap_or(profile.open);
        profile
    }
}

/// Prints which fields change: `range,speedup`.
impl fmt::Display for ResizingChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            (self.range.is_some(), "range"),
            (self.on_resize.is_some(), "on-resize"),
            (self.speedup.is_some(), "speedup"),
            (self.expand.is_some(), "expand"),
            (self.compacting.is_some(), "compact"),
            (self.open.is_some(), "open"),
        ];
        let changed = fields.into_iter().filter_map(|(is_changed, name)| is_changed.then_some(name));
        f.write_str(&changed.collect::<Vec<_>>().join(","))
    }
}

/// Returns the name of a device without its type.
fn kind(name: &str) -> &str {
    name.split_once(':').map_or(name, |(kind, _)| kind)
}

/// How the size of a job may change while it runs; replaces the earlier choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resizing {
    Never,
    Within(Malleable),
    /// Also replaces the sizes.
    ByStages(Evolving),
}

/// A change of the wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WallChange {
    To(#[serde(deserialize_with = "checked::span")] Span),
    More(#[serde(deserialize_with = "checked::span")] Span),
    Less(#[serde(deserialize_with = "checked::span")] Span),
}

impl WallChange {
    /// Returns the wall time after the change; zero if more is subtracted than there is.
    pub fn of(self, wall: Span) -> Span {
        match self {
            WallChange::To(wall) => wall,
            WallChange::More(span) => wall + span,
            WallChange::Less(span) if span < wall => Span::from_millis(wall.as_millis() - span.as_millis()),
            WallChange::Less(_) => Span::ZERO,
        }
    }
}

impl fmt::Display for WallChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WallChange::To(span) => write!(f, "{span}"),
            WallChange::More(span) => write!(f, "+{span}"),
            WallChange::Less(span) => write!(f, "-{span}"),
        }
    }
}

impl Changes {
    pub fn of_priority(priority: i32) -> Changes {
        Changes { priority: Some(priority), ..Changes::default() }
    }

    /// Returns whether all changes are possible while a job runs.
    pub fn is_of_running(&self) -> bool {
        let Changes { labels, wall, priority, .. } = self;
        *self == Changes { labels: labels.clone(), wall: *wall, priority: *priority, ..Changes::default() }
    }

    /// Returns whether they concern sizes or the nodes that fit them.
    pub fn is_of_size(&self) -> bool {
        let Changes { wall, shapes, n_tasks, cpus_per_task, clusters, features, memory, resources, .. } = self;
        let Changes { nodelist, exclude, min_cpus, .. } = self;
        let is_of_change = self.resizing.is_some() || !self.resizing_changes.is_nothing();
        let is_of_tasks = n_tasks.is_some() || cpus_per_task.is_some();
        let names_nodes = nodelist.is_some() || exclude.is_some();
        let is_of_inventory = features.is_some() || memory.is_some() || min_cpus.is_some();
        let is_of_nodes = clusters.is_some() || is_of_inventory || names_nodes || !resources.is_nothing();
        wall.is_some() || shapes.is_some() || is_of_change || is_of_tasks || is_of_nodes
    }

    /// Returns whether they concern how the processes are started.
    pub fn is_of_execution(&self) -> bool {
        let Changes { cwd, input, output, error, environment, .. } = self;
        cwd.is_some() || input.is_some() || output.is_some() || error.is_some() || environment.is_some()
    }
}

/// Prints a word and numbers: `never`, `2..8`, `2x500s,8x1h`.
impl fmt::Display for Resizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resizing::Never => f.write_str("never"),
            Resizing::Within(Malleable { least, most, .. }) => write!(f, "{least}..{most}"),
            Resizing::ByStages(evolving) => write!(f, "{}", evolving.stages),
        }
    }
}

/// Prints the changes for the audit: `time=+1h name=x`.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Matched by name, so that a new attribute is not left out of the audit.
        let Changes {
            labels,
            wall,
            shapes,
            resizing,
            resizing_changes,
            survives_loss,
            n_tasks,
            cpus_per_task,
            clusters,
            features,
            nodelist,
            exclude,
            memory,
            min_cpus,
            resources,
            priority,
            hold,
            requeue,
            begin,
            cwd,
            input,
            output,
            error,
            environment,
        } = self;
        let ResourceChanges {
            memory_per_cpu,
            devices,
            devices_in_all,
            licences,
            tasks_per_node,
            exclusive,
            packing,
            one_thread_a_core,
            share,
            min_cpus_per_node,
            min_cpus_per_task,
            cores_per_package,
            contiguous,
        } = resources;
        let list = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(",");
        let numbers = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let said = [
            ("time", wall.map(|wall| wall.to_string())),
            ("sizes", shapes.as_ref().map(|shapes| shapes.len().to_string())),
            ("resizing", resizing.as_ref().map(Resizing::to_string)),
            ("resizing-of", Some(resizing_changes.to_string()).filter(|changed| !changed.is_empty())),
            ("survives-loss", survives_loss.map(|survives| survives.to_string())),
            ("tasks", n_tasks.map(|n_tasks| n_tasks.to_string())),
            ("cpus-per-task", cpus_per_task.map(|cpus| cpus.to_string())),
            ("clusters", clusters.as_ref().map(|names| list(&mut names.iter()))),
            ("constraint", features.as_ref().map(|names| list(&mut names.iter()))),
            ("nodelist", nodelist.as_ref().map(hostlist::fold_sorted)),
            ("exclude", exclude.as_ref().map(hostlist::fold_sorted)),
            ("mem", memory.map(|memory| memory.to_string())),
            ("mincpus", min_cpus.map(|least| least.to_string())),
            ("mem-per-cpu", memory_per_cpu.map(|memory| memory.to_string())),
            ("gres", devices.as_ref().map(Devices::to_string)),
            ("gpus", devices_in_all.as_ref().map(Devices::to_string)),
            ("licences", licences.as_ref().map(Devices::to_string)),
            ("tasks-per-node", tasks_per_node.map(|tasks| tasks.to_string())),
            ("exclusive", exclusive.map(|exclusive| exclusive.to_string())),
            ("packing", packing.map(|packing| packing.word().to_owned())),
            ("one-thread-a-core", one_thread_a_core.map(|one| one.to_string())),
            ("contiguous", contiguous.map(|contiguous| contiguous.to_string())),
            ("share", share.map(|share| share.to_string())),
            ("min-cpus-per-node", min_cpus_per_node.map(|least| least.to_string())),
            ("min-cpus-per-task", min_cpus_per_task.as_ref().map(|counts| numbers(counts))),
            ("cores-per-package", cores_per_package.map(|least| least.to_string())),
            ("priority", priority.map(|priority| priority.to_string())),
            ("hold", hold.map(|hold| hold.to_string())),
            ("requeue", requeue.map(|requeue| requeue.to_string())),
            ("begin", begin.map(|begin| begin.as_millis().to_string())),
            ("chdir", cwd.clone()),
            ("input", input.clone()),
            ("output", output.clone()),
            ("error", error.clone()),
            ("variables", environment.as_ref().map(|environment| environment.0.len().to_string())),
        ];
        let said = said.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        let labels = labels.iter().map(|(key, text)| format!("{key}={text}"));
        f.write_str(&said.chain(labels).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_changed_while_a_job_runs_is_said_so() {
        let named = WHILE_RUNNING.iter().all(|name| ONLY_WHILE_RUNNING.contains(name));
        assert!(named, "{WHILE_RUNNING:?}: {ONLY_WHILE_RUNNING}");
        assert_eq!(ONLY_WHILE_RUNNING.matches(',').count() + 2, WHILE_RUNNING.len(), "it names no others");
    }

    #[test]
    fn the_audit_names_all_resources_that_change() {
        let resources = ResourceChanges {
            share: Some(true),
            min_cpus_per_node: Some(2),
            min_cpus_per_task: Some(vec![4, 1]),
            cores_per_package: Some(3),
            contiguous: Some(false),
            ..ResourceChanges::default()
        };
        let changes = Changes { resources, min_cpus: Some(16), ..Changes::of_priority(-1) };
        let expected = "mincpus=16 contiguous=false share=true min-cpus-per-node=2 min-cpus-per-task=4,1 \
                        cores-per-package=3 priority=-1";
        assert_eq!(changes.to_string(), expected);
    }
}
