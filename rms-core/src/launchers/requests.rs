//! Requests of external launchers: checks them against their filters, and describes the clusters.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::refusal::Refusal;
use rms_api::subscription::{ClusterInfo, ClusterInfos, Filter, LauncherAnswer, LauncherRequest};
use rms_model::job::Constraint;
use rms_model::{ClusterId, Devices, Inventory, JobId, Mebibytes, Request, Slice, Span, Time};

use super::Launchers;
use crate::admit;
use crate::notices::launcher_of;
use crate::plan::{notify, views};
use crate::rights::wrong_state;
use crate::state::fact::Fact;
use crate::state::job::Phase;
use crate::state::{merge_slice, spec_for_request};
use crate::step::Step;

impl Launchers<'_> {
    /// Records a request (001: request). The first one gives the application its place in the queue; later ones keep
    /// it.
    pub(super) fn request(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        wish: LauncherRequest,
    ) -> Result<LauncherAnswer, Refusal> {
        let LauncherRequest { tag, seen, request, slice } = wish;
        let entry = &self.jobs.state().jobs()[&job];
        let launcher = launcher_of(entry);
        let named: Vec<ClusterId> = request.nodes.keys().copied().collect();
        let request = Request { nodes: request.nodes.into_iter().filter(|(_, nodes)| *nodes > 0).collect(), ..request };
        let is_known = launcher.tag == Some(tag) && *entry.spec == spec_for_request(entry, &request, &slice);
        if is_known {
            // The call is repeated: its answer was lost, perhaps with the connection.
            return Ok(LauncherAnswer::Done);
        }
        match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {}
            Phase::Started(_) | Phase::Ghost(_) => {
                return Err(wrong_state(job, entry.state().word(), "its nodes were granted already"));
            }
        }
        if let Some(last) = launcher.tag
            && tag <= last
        {
            return Err(Refusal::StaleTag { job, tag: tag.0, last: last.0 });
        }
        let filter = &launcher.filter;
        self.check_request(job, filter, &request, &slice)?;
        let (spec, n_nodes) = (spec_for_request(entry, &request, &slice), request.n_nodes());
        for (cluster, wanted) in &request.nodes {
            admit::Asked::of(&spec).check_limit(self.jobs.state(), *cluster, (*wanted, n_nodes))?;
        }
        // Naming an unknown cluster is an error even with a count of zero.
        let is_none = |cluster: &&ClusterId| !self.jobs.state().clusters().contains_key(*cluster);
        if let Some(cluster) = named.iter().find(is_none) {
            return Err(self.not_in_view(job, filter, *cluster));
        }
        let delay = self.jobs.context.streams.answered(job, seen, now);
        self.counts.request(notify::request_bytes(&request), delay);
        self.jobs.context.record(step, Fact::LauncherRequested { job, at: now, tag, request, slice });
        self.jobs.context.passes.wanted = true;
        Ok(LauncherAnswer::Done)
    }

    /// Checks that the requested nodes are in the view and as many exist, and that the wall time is possible.
    fn check_request(&self, job: JobId, filter: &Filter, request: &Request, slice: &Slice) -> Result<(), Refusal> {
        let max = self.jobs.state().settings().max_wall;
        if request.nodes.is_empty() {
            return Err(Refusal::NothingAsked);
        }
        if request.wall <= Span::ZERO {
            return Err(Refusal::NoWall);
        }
        if request.wall > max {
            return Err(Refusal::WallTooLong { wall: request.wall, max });
        }
        let shown = views::shown(self.jobs.state(), filter);
        let (constraint, _) = merge_slice(&filter.constraint, slice);
        let with_slice = Filter { constraint, ..filter.clone() };
        for (cluster, wanted) in &request.nodes {
            if !shown.contains(cluster) {
                return Err(self.not_in_view(job, filter, *cluster));
            }
            if *wanted > views::n_choosable(self.jobs.state(), &with_slice, *cluster) {
                let constraint = describe(&with_slice.constraint);
                let possible = self.nodes_meeting(&with_slice);
                return Err(Refusal::TooManyNodes { wanted: *wanted, constraint, possible });
            }
        }
        Ok(())
    }

    fn not_in_view(&self, job: JobId, filter: &Filter, cluster: ClusterId) -> Refusal {
        let name = self.jobs.state().clusters().get(&cluster);
        let cluster = name.cloned().unwrap_or_else(|| format!("number {cluster}, which does not exist"));
        let shown = views::shown(self.jobs.state(), filter);
        let shown = match shown.is_empty() {
            true => "no cluster now".to_owned(),
            false => self.nodes_meeting_on(filter, |cluster| shown.contains(&cluster)),
        };
        Refusal::NotInView { job, cluster, shown }
    }

    /// Lists the clusters that a filter names, how many nodes of each meet it, and from how many of them the launcher
    /// may choose.
    pub(super) fn nodes_meeting(&self, filter: &Filter) -> String {
        self.nodes_meeting_on(filter, |_| true)
    }

    fn nodes_meeting_on(&self, filter: &Filter, is_meant: impl Fn(ClusterId) -> bool) -> String {
        let is_named = |name: &String| filter.clusters.is_empty() || filter.clusters.contains(name);
        let count = |(cluster, name): (&ClusterId, &String)| {
            let n_meeting = views::n_meeting(self.jobs.state(), filter, *cluster);
            match views::choosable(self.jobs.state(), *cluster, n_meeting) {
                all if all == n_meeting && !filter.total_memory.is_none() => {
                    let memory = views::total_memory(self.jobs.state(), filter, *cluster);
                    format!("cluster {name} has {all} with {memory} in all")
                }
                all if all == n_meeting => format!("cluster {name} has {all}"),
                share => {
                    format!("cluster {name} lets one application choose from {share} of its {n_meeting} (view_share)")
                }
            }
        };
        let clusters = self.jobs.state().clusters().iter();
        let named = clusters.filter(|(cluster, name)| is_meant(**cluster) && is_named(name));
        named.map(count).collect::<Vec<_>>().join(", ")
    }

    /// Returns the clusters in the launcher's view and the links between them (001: listClustersInfo).
    pub(super) fn cluster_infos(&self, job: JobId) -> ClusterInfos {
        let filter = &launcher_of(&self.jobs.state().jobs()[&job]).filter;
        let shown = views::shown(self.jobs.state(), filter);
        let is_shown = |cluster: &ClusterId| shown.contains(cluster);
        let links =
            self.jobs.state().links.values().filter(|link| is_shown(&link.between.0) && is_shown(&link.between.1));
        ClusterInfos {
            clusters: shown.iter().map(|cluster| self.cluster_info(filter, *cluster)).collect(),
            links: links.copied().collect(),
        }
    }

    fn cluster_info(&self, filter: &Filter, cluster: ClusterId) -> ClusterInfo {
        let kinds: BTreeMap<&Inventory, u32> = views::kinds_meeting(self.jobs.state(), filter, cluster).collect();
        let least = |of: &dyn Fn(&Inventory) -> u32| kinds.keys().map(|kind| of(kind)).min().unwrap_or(0);
        let mut devices = Devices::default();
        for (kind, n_alike) in &kinds {
            kind.devices.iter().for_each(|(name, count)| devices.add(name, count.saturating_mul(*n_alike)));
        }
        let features = |kind: &&Inventory| kind.features.clone();
        let common = |all: BTreeSet<String>, kind: &Inventory| all.intersection(&kind.features).cloned().collect();
        ClusterInfo {
            cluster,
            name: self.jobs.state().clusters()[&cluster].clone(),
            nodes: views::choosable(self.jobs.state(), cluster, kinds.values().sum()),
            cpus: least(&|kind| kind.cpus),
            sockets: least(&|kind| kind.sockets),
            cores: least(&|kind| kind.cores),
            speed_milli: least(&|kind| kind.speed_milli),
            scratch: kinds.keys().map(|kind| kind.scratch).min().unwrap_or_default(),
            total_memory: views::total_memory(self.jobs.state(), filter, cluster),
            devices,
            shared: self.jobs.state().is_shared(cluster),
            memory: kinds.keys().map(|kind| kind.memory).min().unwrap_or(Mebibytes(0)),
            features: kinds
                .keys()
                .fold(kinds.keys().next().map(features).unwrap_or_default(), |all, kind| common(all, kind)),
        }
    }
}

/// Describes what a node must have, with its devices.
pub(super) fn describe(constraint: &Constraint) -> String {
    let others = admit::describe(constraint);
    let link = if others.is_empty() { "with" } else { "and" };
    if constraint.devices.is_empty() { others } else { format!("{others} {link} {}", constraint.devices) }
}
