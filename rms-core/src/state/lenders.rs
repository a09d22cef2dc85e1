//! Running jobs that could lend cores of their nodes now, and how many. Each fact updates the index, for jobs whose
//! nodes and cores are fixed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use rms_model::{ClusterId, CoreShare, Inventory, JobId, JobSpec, NodeId, Request};

use super::constraint::{cores_on_a_node, takes_whole_nodes, threads_of_core};
use super::evolving::tasks_per_node;
use super::{Nodes, Shared, State};
use crate::state::job::{Job, Launcher, Phase, Started};

/// A job that could lend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lender {
    pub(crate) cluster: ClusterId,
    pub(crate) n_nodes: u32,
    /// The number of its nodes over which its tasks are spread.
    pub(crate) n_with_tasks: u32,
    /// Its nodes, grouped by what it has of each.
    pub(crate) parts: Vec<LenderPart>,
}

/// Nodes of a lender on which it has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LenderPart {
    pub(crate) n_nodes: u32,
    /// The cores that it has on each; `asked` is what it asked for, which is more if it is a guest.
    pub(crate) cores: u32,
    pub(crate) asked: u32,
    /// The cores that it keeps.
    pub(crate) least: u32,
    /// The first of the nodes; all are of one kind.
    pub(crate) node: NodeId,
}

/// The index of lenders.
pub(crate) type Lenders = BTreeMap<JobId, Lender>;

impl Lender {
    /// Returns `None` if the job does not run, does not share, or lends already.
    pub(super) fn of(entry: &Job, nodes: &Nodes, shared: &Shared) -> Option<Lender> {
        let Phase::Started(started) = &entry.phase else { return None };
        if !entry.spec.resources.share {
            return None;
        }
        // The parts change without notice while nodes or cores come and go. A job with a profile would miss the times of
        // its stages: it lends in the last one.
        let is_steady = match &started.evolved {
            Some(evolved) => evolved.is_steady() && !evolved.course.open,
            None => entry.spec.evolving.is_none(),
        } && !started.awaits_agents();
        let is_bare = started.ending.is_none()
            && is_steady
            && entry.launcher.as_ref().is_none_or(Launcher::has_launched)
            && started.sharing.as_ref().is_none_or(|sharing| sharing.lent.is_empty() && !sharing.is_stubborn);
        if is_bare { Lender::of_nodes(entry, started, nodes, shared) } else { None }
    }

    fn of_nodes(entry: &Job, started: &Started, nodes: &Nodes, shared: &Shared) -> Option<Lender> {
        let mut clusters = started.request.nodes.keys();
        let (cluster, None) = (*clusters.next()?, clusters.next()) else { return None };
        let n_nodes = started.nodes.len() as u32;
        let n_with_tasks = started.began_with().min(n_nodes);
        let mut lender = Lender { cluster, n_nodes, n_with_tasks, parts: Vec::new() };
        let is_shared = shared.get(cluster).is_some();
        for (idx, node) in (0..).zip(&started.nodes) {
            let inventory = &nodes.get(node)?.inventory;
            let is_guest = entry.is_guest_on(*node);
            let cores = entry.part_of(*node, inventory).map_or(inventory.cores, |part| part.cores.len());
            let asks_part = started.asks_part(*node, is_shared);
            let asked = if is_guest { cores_asked(&entry.spec, &started.request, inventory, asks_part) } else { cores };
            let least = least_cores(&entry.spec, n_with_tasks, place_of(started, idx), inventory);
            lender.add(nodes, LenderPart { n_nodes: 1, cores, asked, least, node: *node });
        }
        Some(lender)
    }

    /// Adds a node.
    pub(crate) fn add(&mut self, nodes: &Nodes, more: LenderPart) {
        let kind = |node: &NodeId| nodes.get(node).map(|known| &known.inventory);
        let is_alike = |part: &&mut LenderPart| {
            let is_like = LenderPart { n_nodes: 1, node: more.node, ..**part } == more;
            is_like && (part.node == more.node || kind(&part.node) == kind(&more.node))
        };
        match self.parts.iter_mut().find(is_alike) {
            Some(part) => part.n_nodes += 1,
            None => self.parts.push(more),
        }
    }

    /// Returns the number of all cores that it asked for.
    pub(crate) fn n_asked(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.n_nodes) * u64::from(part.asked)).sum()
    }

    /// Returns the cores that it has and asked for, on each of its nodes.
    pub(crate) fn shares(&self) -> impl Iterator<Item = CoreShare> + Clone + '_ {
        self.parts.iter().map(|part| CoreShare { n_nodes: part.n_nodes, has: part.cores, asked: part.asked })
    }
}

impl State {
    /// Returns the running jobs that could lend cores of their nodes now. Jobs with an open negotiation do not lend.
    pub(crate) fn lenders(&self) -> impl Iterator<Item = (JobId, Cow<'_, Lender>)> + '_ {
        let fixed = self.index.lenders.iter().map(|(job, lender)| (*job, Cow::Borrowed(lender)));
        let changed = self
            .evolved()
            .filter_map(|(job, entry, _)| Some((job, Cow::Owned(Lender::of(entry, &self.nodes, &self.index.shared)?))));
        let is_settled = |job: &JobId| {
            let Some(entry) = self.jobs.get(job) else { return true };
            let Some(all) = &entry.negotiations else { return true };
            // Nodes that it has for a limited time are taken back then, whatever runs on them. Those that it pays for
            // may cost more than its user has if it runs longer because it lends.
            let has_budget = self.settings.budget_of(&entry.spec.owner.0).is_some();
            all.loans.is_empty() && all.open().next().is_none() && (all.charges.is_empty() || !has_budget)
        };
        fixed.chain(changed).filter(move |(job, _)| is_settled(job))
    }
}

/// Returns the place of a node among those of a job, as far as that says which tasks are there: not once its nodes have
/// changed.
pub(crate) fn place_of(started: &Started, idx: u32) -> Option<u32> {
    started.evolved.is_none().then_some(idx)
}

/// Returns the fewest cores with which a job continues on the node at this place of its nodes, or on any: its own
/// minima, or one CPU for each task (004, §3.3).
pub(crate) fn least_cores(spec: &JobSpec, n_nodes: u32, place: Option<u32>, inventory: &Inventory) -> u32 {
    let of_tasks = kept_by_tasks(spec, n_nodes, place);
    let cpus = of_tasks.max(spec.resources.min_cpus_per_node);
    // If it has fewer cores of a package, it keeps fewer: `share::lend` finds at least what this leaves.
    let of_package = |cores: Range<u32>| spec.resources.cores_per_package.min(cores.end - cores.start);
    let of_packages: u32 = inventory.packages().map(of_package).sum();
    cpus.div_ceil(threads_of_core(spec, inventory)).max(of_packages).max(1)
}

fn kept_by_tasks(spec: &JobSpec, n_nodes: u32, place: Option<u32>) -> u32 {
    if spec.resources.min_cpus_per_task.is_empty() {
        return spec.tasks.most_on_a_node(n_nodes);
    }
    let mut first = 0;
    let blocks = tasks_per_node(spec, n_nodes).map(|n_tasks| {
        let block = first..first + n_tasks;
        first = block.end;
        spec.resources.kept_by_tasks(block)
    });
    match place.filter(|place| *place < n_nodes) {
        Some(place) => blocks.skip(place as usize).take(1).sum(),
        None => blocks.max().unwrap_or(0),
    }
}

/// Returns the number of cores that one task asks for.
pub(crate) fn cores_of_task(spec: &JobSpec, inventory: &Inventory) -> u32 {
    spec.cpus_per_task.div_ceil(threads_of_core(spec, inventory)).max(1)
}

/// Returns the number of cores of a node that a job of this size asks for.
pub(crate) fn cores_asked(spec: &JobSpec, request: &Request, inventory: &Inventory, is_shared: bool) -> u32 {
    match is_shared && !takes_whole_nodes(spec) {
        true => cores_on_a_node(spec, request, inventory).min(inventory.cores),
        false => inventory.cores,
    }
}
