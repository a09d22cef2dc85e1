//! Applies the facts of external launchers, and finds their next timeouts.

use std::sync::Arc;

use rms_api::audit::AuditEntry;
use rms_api::subscription::{ClusterLink, Filter, Launchable, Tag};
use rms_model::job::{Constraint, TaskCount};
use rms_model::{Devices, JobId, JobSpec, OnResize, Request, ResourceRequest, Run, Slice, Time};

use super::constraint::merge_slice;
use super::{ApplyError, BumpedNodes, State};
use crate::state::job::{Job, Launcher, Phase, Share, StartAnswer};

/// Returns the job specification for a launcher's request: a slice of each node, as one task with that many cores takes
/// it, or whole nodes that have as much.
pub(crate) fn spec_for_request(entry: &Job, request: &Request, slice: &Slice) -> JobSpec {
    let spec = &entry.spec;
    let filter = entry.launcher.as_ref().map_or(&spec.constraint, |launcher| &launcher.filter.constraint);
    let options = vec![request.clone()];
    let (constraint, slice) = merge_slice(filter, slice);
    let cpus_per_task = slice.cores;
    let (constraint, resources) = if slice.is_of_whole_nodes() {
        // Each of them must have the memory and the devices.
        (constraint, ResourceRequest::default())
    } else {
        let resources =
            ResourceRequest { devices: slice.devices, one_thread_a_core: true, ..ResourceRequest::default() };
        (Constraint { devices: Devices::default(), ..constraint }, resources)
    };
    JobSpec { constraint, resources, options, cpus_per_task, ..JobSpec::clone(spec) }
}

impl State {
    pub(super) fn subscribed(&mut self, job: JobId, at: Time, spec: &JobSpec, filter: &Filter) {
        let mut spec = spec.clone();
        spec.execution.environment = self.index.add_usage(&spec);
        self.index.add_owned(job, &spec.owner);
        let spec = Arc::new(spec);
        let phase = Phase::Submitted { hold: None };
        let launcher = Some(Launcher::new(filter.clone(), at));
        let entry = Job {
            spec,
            submitted: at,
            requested: None,
            eligible: None,
            run: Run(0),
            phase,
            ended_before: None,
            former_runs: Vec::new(),
            promised: None,
            launcher,
            negotiations: None,
        };
        self.insert_job(job, Box::new(entry));
    }

    pub(super) fn edit_launcher(&mut self, job: JobId, edit: impl FnOnce(&mut Launcher)) -> Result<(), ApplyError> {
        let mut has_launcher = false;
        self.edit_job(job, |entry| {
            if let Some(launcher) = &mut entry.launcher {
                edit(launcher);
                has_launcher = true;
            }
        })?;
        if has_launcher { Ok(()) } else { Err(ApplyError::Phase { job, needed: "spoken for by a launcher" }) }
    }

    pub(super) fn requested(
        &mut self,
        job: JobId,
        at: Time,
        tag: Tag,
        request: &Request,
        slice: &Slice,
    ) -> Result<(), ApplyError> {
        let is_first = self.jobs.get(&job).is_some_and(|entry| entry.requested.is_none());
        self.n_first_requests += u64::from(is_first);
        let number = self.n_first_requests;
        self.edit_launcher(job, |launcher| {
            launcher.tag = Some(tag);
            launcher.slice_cores = slice.cores;
            if is_first {
                launcher.first_request = number;
            }
        })?;
        let entry = &self.jobs[&job];
        let spec = Arc::new(spec_for_request(entry, request, slice));
        let mut may_request = true;
        self.edit_job(job, |entry| {
            // The promise was for the previous request.
            entry.promised = None;
            entry.spec = spec;
            match &entry.phase {
                // It keeps its place in the queue, and returns to it when the hold is lifted.
                Phase::Submitted { hold: Some(_) } => {}
                Phase::Submitted { hold: None } | Phase::RequestSent | Phase::Waiting => {
                    entry.phase = Phase::RequestSent;
                }
                Phase::Started(_) | Phase::Ghost(_) => may_request = false,
            }
            entry.requested.get_or_insert(at);
        })?;
        if may_request { Ok(()) } else { Err(ApplyError::Phase { job, needed: "waiting" }) }
    }

    /// Makes the launcher's work the job's, to be started by the agents.
    pub(super) fn launched(
        &mut self,
        job: JobId,
        at: Time,
        launch: &Launchable,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let nodes = self.started_mut(job)?.nodes.clone();
        self.edit_launcher(job, |launcher| launcher.answer = Some(StartAnswer::Launched { at }))?;
        let Launchable { execution, n_tasks, cpus_per_task, malleable } = launch;
        let before = Arc::clone(&self.jobs[&job].spec);
        let resources = ResourceRequest { one_thread_a_core: false, ..before.resources.clone() };
        let mut spec = JobSpec {
            resources,
            execution: execution.clone(),
            tasks: n_tasks.map_or(TaskCount::PerNode(1), TaskCount::Total),
            cpus_per_task: *cpus_per_task,
            ..(*before).clone()
        };
        if malleable.is_some() {
            spec.malleable.clone_from(malleable);
        }
        // Workers are counted on each node: nodes that come later get as many.
        let are_workers = spec.malleable.as_ref().is_some_and(|malleable| malleable.on_resize == OnResize::Workers);
        let n_nodes = nodes.len().max(1) as u32;
        if let (true, Some(n_tasks)) = (are_workers, n_tasks)
            && n_tasks.is_multiple_of(n_nodes)
        {
            spec.tasks = TaskCount::PerNode(n_tasks / n_nodes);
        }
        spec.execution.environment = self.index.add_usage(&spec);
        self.edit_job(job, |entry| {
            entry.spec = Arc::new(spec);
            if let Phase::Started(started) = &mut entry.phase {
                started.shares = nodes.iter().map(|node| (*node, Share::Ordered)).collect();
            }
        })?;
        self.index.remove_usage(&before);
        for node in nodes {
            self.bump(node, bumped);
        }
        Ok(())
    }

    pub(super) fn link_set(&mut self, link: ClusterLink, at: Time, by: &str) {
        let written = |link: &ClusterLink| format!("{} µs, {} Mbit/s", link.latency_us, link.bandwidth_mbit);
        let name = |cluster| self.clusters.get(&cluster).map_or("?", String::as_str);
        let subject = format!("link {} {}", name(link.between.0), name(link.between.1));
        let new = written(&link);
        let old = self.links.insert(link.between, link).map_or_else(|| "unknown".to_owned(), |old| written(&old));
        self.keep_audit(AuditEntry { at, by: by.to_owned(), subject, old, new, action: "link".to_owned() });
    }

    /// Returns the next timeout of a launcher, including wall times that no agent counts.
    pub(crate) fn next_launcher_deadline(&self) -> Option<Time> {
        let deadlines = [
            self.next_request_timeout(),
            self.next_answer_timeout(),
            self.next_reconnect_timeout(),
            self.next_wall_end(),
        ];
        deadlines.into_iter().flatten().map(|(at, _)| at).min()
    }

    /// Returns the application whose first request times out next, and when.
    pub(crate) fn next_request_timeout(&self) -> Option<(Time, JobId)> {
        let (since, job) = self.index.launcher_timers.requests.first()?;
        let timeout = self.settings.request_timeout;
        (!timeout.is_zero()).then(|| (*since + timeout, *job))
    }

    /// Returns the application whose answer to its start times out next, and when.
    pub(crate) fn next_answer_timeout(&self) -> Option<(Time, JobId)> {
        let (since, job) = self.index.launcher_timers.answers.first()?;
        let timeout = self.settings.start_timeout;
        (!timeout.is_zero()).then(|| (*since + timeout, *job))
    }

    /// Returns the application whose launcher is lost next unless it reconnects, and when.
    pub(crate) fn next_reconnect_timeout(&self) -> Option<(Time, JobId)> {
        let (since, job) = self.index.launcher_timers.attaches.first()?;
        Some((*since + self.settings.launcher_grace, *job))
    }

    /// Returns the application whose wall time, which no agent counts, ends next, and when.
    pub(crate) fn next_wall_end(&self) -> Option<(Time, JobId)> {
        self.index.launcher_timers.walls.first().copied()
    }

    /// Returns the deadline for the first request of an application.
    pub(crate) fn request_until(&self, entry: &Job) -> Option<Time> {
        let timeout = self.settings.request_timeout;
        let since = entry.launcher_timers().request?;
        (!timeout.is_zero()).then(|| since + timeout)
    }
}

/// Links between clusters as a list: some encodings have no maps with pairs for keys.
pub(super) mod links {
    use std::collections::BTreeMap;

    use rms_model::ClusterId;
    use serde::{Deserialize, Deserializer, Serializer};

    use rms_api::subscription::ClusterLink;

    type Links = BTreeMap<(ClusterId, ClusterId), ClusterLink>;

    pub(in crate::state) fn serialize<S: Serializer>(links: &Links, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(links.values())
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Links, D::Error> {
        let links = Vec::<ClusterLink>::deserialize(deserializer)?;
        Ok(links.into_iter().map(|link| (link.between, link)).collect())
    }
}
