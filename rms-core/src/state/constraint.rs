//! What the nodes of a job must have, and what it takes of them.

use std::sync::LazyLock;

use rms_model::job::Constraint;
use rms_model::{ClusterId, Inventory, JobSpec, Mebibytes, Request, Slice, Span};

use crate::state::job::{Job, Started};

/// What a job takes of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub slice: Slice,
    /// No other job may have a part of the node.
    pub is_whole: bool,
}

impl Piece {
    pub(crate) fn whole(inventory: &Inventory) -> Piece {
        Piece { slice: Slice::whole(inventory), is_whole: true }
    }
}

/// Returns whether the job can use any nodes, whatever size it starts with.
pub(crate) fn takes_any_nodes(spec: &JobSpec) -> bool {
    // Every node has one CPU.
    let is_one_cpu = |request: &Request| cpus_on_a_node(spec, request) <= 1;
    let resources = &spec.resources;
    let is_plain = resources.memory_per_cpu == Mebibytes(0)
        && resources.devices.is_empty()
        && resources.devices_in_all.is_empty()
        && resources.licences.is_empty()
        && !resources.one_thread_a_core
        && !resources.contiguous;
    is_plain && is_unconstrained(&spec.constraint) && (spec.cpus_per_task == 0 || spec.options.iter().all(is_one_cpu))
}

/// Returns whether the nodes of a job are chosen one by one when it is planned, also where nodes are allocated whole: a
/// count of nodes does not show whether contiguous ones, or those of a list, are free. For a job that only excludes some
/// the count is nearly right, and costs less.
pub(crate) fn chooses_nodes(spec: &JobSpec) -> bool {
    spec.resources.contiguous || (!spec.constraint.nodelist.is_empty() && spec.evolving.is_none())
}

/// Returns whether every node meets the constraint.
pub(crate) fn is_unconstrained(constraint: &Constraint) -> bool {
    static NOTHING: LazyLock<Constraint> = LazyLock::new(Constraint::default);
    *constraint == *NOTHING
}

/// Returns what every node must have if the job starts with this size: CPUs, memory and devices for its share of the
/// tasks, if requested.
pub(crate) fn constraint_of(spec: &JobSpec, request: &Request) -> Constraint {
    let cpus = cpus_on_a_node(spec, request).max(spec.constraint.cpus);
    let mut devices = spec.constraint.devices.clone();
    let asked = spec.resources.devices_on_each(request.n_nodes());
    asked.iter().for_each(|(name, count)| devices.add(name, count));
    Constraint { cpus, memory: memory_on_a_node(spec, request), devices, ..spec.constraint.clone() }
}

/// Returns whether the job takes whole nodes even of a core-shared cluster. Jobs that count no CPUs do so, too.
pub(crate) fn takes_whole_nodes(spec: &JobSpec) -> bool {
    spec.resources.exclusive || spec.cpus_per_task == 0
}

/// Returns whether a running application takes parts of the nodes of a core-shared cluster.
pub(crate) fn takes_parts(entry: &Job) -> bool {
    !began_whole(entry) && (entry.slice_cores().is_some() || !takes_whole_nodes(&entry.spec))
}

/// Returns whether a running application began where nodes were allocated whole.
fn began_whole(entry: &Job) -> bool {
    entry.started().is_some_and(|started| started.takes_whole)
}

/// Returns what a running application takes of an additional node of this kind: as much as of its first nodes.
pub(crate) fn pieces_to_grow(entry: &Job, inventory: &Inventory) -> Vec<Piece> {
    let began_with = entry.started().map_or(1, Started::began_with);
    let request = Request::on_one(ClusterId::default(), began_with, Span::ZERO);
    match entry.slice_cores() {
        _ if began_whole(entry) => {
            has_all(&entry.spec.constraint, inventory).then(|| Piece::whole(inventory)).into_iter().collect()
        }
        // What it has launched was to fit into this slice, and does not change it.
        Some(cores) if has_all(&entry.spec.constraint, inventory) => {
            let memory = memory_on_a_node(&entry.spec, &request);
            let devices = entry.spec.resources.devices_on_each(began_with);
            pieces(&Slice { cores, memory, devices }, inventory)
        }
        Some(_) => Vec::new(),
        None => pieces_of(&entry.spec, &request, inventory),
    }
}

/// Returns whether a node of this kind has what the constraint demands, memory aside.
fn has_all(constraint: &Constraint, inventory: &Inventory) -> bool {
    constraint.suits(inventory) && constraint.cpus <= inventory.cpus && inventory.devices.cover(&constraint.devices)
}

/// Returns the number of hardware threads, which count as CPUs, of a core that a job uses.
pub(crate) fn threads_of_core(spec: &JobSpec, inventory: &Inventory) -> u32 {
    if spec.resources.one_thread_a_core { 1 } else { inventory.threads_per_core() }
}

/// Returns what the job takes of each node of this kind if it starts with this size: the first of these pieces that is
/// free; empty if the node is too small.
pub(crate) fn pieces_of(spec: &JobSpec, request: &Request, inventory: &Inventory) -> Vec<Piece> {
    let cpus = cpus_on_a_node(spec, request);
    let cores = cores_on_a_node(spec, request, inventory);
    let memory = memory_on_a_node(spec, request);
    let is_of_kind = has_all(&spec.constraint, inventory);
    if !is_of_kind || cores > inventory.cores || memory > inventory.memory || cpus > inventory.cpus {
        return Vec::new();
    }
    let devices = spec.resources.devices_on_each(request.n_nodes());
    let slice = Slice { cores, memory, devices };
    match takes_whole_nodes(spec) {
        true => inventory.devices.choices(&slice.devices).take(1).map(|_| Piece::whole(inventory)).collect(),
        // With all cores, too: guests on some of them may use the memory and the devices that it did not ask for.
        false if spec.resources.share => slices(&slice, inventory).collect(),
        false => pieces(&slice, inventory),
    }
}

/// Returns which part of the cores of a shared node of this kind the job takes if it starts with this size.
pub fn part_of_cores(spec: &JobSpec, request: &Request, inventory: &Inventory) -> f64 {
    let is_whole = takes_whole_nodes(spec) || inventory.cores == 0;
    let cores = cores_on_a_node(spec, request, inventory).min(inventory.cores);
    if is_whole { 1.0 } else { f64::from(cores) / f64::from(inventory.cores) }
}

/// Returns the number of cores for the tasks of the node with the most tasks.
pub(crate) fn cores_on_a_node(spec: &JobSpec, request: &Request, inventory: &Inventory) -> u32 {
    cpus_on_a_node(spec, request).div_ceil(threads_of_core(spec, inventory)).max(1)
}

/// Returns the pieces of a node of this kind that serve a slice; one of them is enough.
pub(crate) fn pieces(slice: &Slice, inventory: &Inventory) -> Vec<Piece> {
    if slice.cores > inventory.cores || slice.memory > inventory.memory {
        return Vec::new();
    }
    let or_whole =
        |piece: Piece| if takes_all_cores(&piece.slice, inventory) { Piece::whole(inventory) } else { piece };
    slices(slice, inventory).map(or_whole).collect()
}

/// Returns the slice with each choice of the devices of a node of this kind.
fn slices<'a>(slice: &'a Slice, inventory: &'a Inventory) -> impl Iterator<Item = Piece> + 'a {
    let piece = |devices| Piece { slice: Slice { devices, ..slice.clone() }, is_whole: false };
    inventory.devices.choices(&slice.devices).map(piece)
}

/// Returns the slice with what the constraint requires of each node, and the constraint on nodes that can give it.
pub(crate) fn merge_slice(constraint: &Constraint, slice: &Slice) -> (Constraint, Slice) {
    let mut devices = slice.devices.clone();
    for (name, count) in constraint.devices.iter() {
        devices.add(name, count.saturating_sub(devices.count(name)));
    }
    let memory = constraint.memory.max(slice.memory);
    let slice = Slice { cores: slice.cores, memory, devices };
    let cores = constraint.cores.max(slice.cores);
    (Constraint { memory, devices: slice.devices.clone(), cores, ..constraint.clone() }, slice)
}

/// Returns whether a job takes all cores: it leaves nothing that others could use, so it gets the whole node.
fn takes_all_cores(slice: &Slice, inventory: &Inventory) -> bool {
    slice.cores == inventory.cores && slice.devices.is_empty()
}

/// Returns the number of logical CPUs for the tasks of the node with the most tasks.
pub(super) fn cpus_on_a_node(spec: &JobSpec, request: &Request) -> u32 {
    spec.tasks.most_on_a_node(request.n_nodes()).saturating_mul(spec.cpus_per_task)
}

pub(super) fn memory_on_a_node(spec: &JobSpec, request: &Request) -> Mebibytes {
    let per_cpu = spec.resources.memory_per_cpu.0;
    Mebibytes(per_cpu.saturating_mul(cpus_on_a_node(spec, request).into())).max(spec.constraint.memory)
}
