//! Finds what usable nodes of a cluster lack for a job that too few of them can serve.

use rms_api::answer::{Lacking, Required};
use rms_model::{ClusterId, JobSpec, Request, Span};

use super::Shortage;
use crate::state::node::Node;
use crate::state::{State, constraint_of, cores_on_a_node, pieces_of};

/// Returns the first requirement of a job that leaves fewer usable nodes than it wants; `None` if even fewer are usable,
/// or if each requirement is met and the nodes are not where they should be.
pub(super) fn lacking(state: &State, spec: &JobSpec, shortage: &Shortage) -> Option<Lacking> {
    let Shortage { cluster, wanted, .. } = *shortage;
    let here = state.nodes().values().filter(|node| node.cluster == cluster);
    let (mut nodes, mut unusable): (Vec<&Node>, Vec<&Node>) = here.partition(|node| node.is_usable());
    let mut among = nodes.len() as u32;
    if among < wanted {
        return None;
    }
    let is_that_size = |request: &&Request| request.nodes.get(&cluster) == Some(&wanted);
    let of_stage = || Request::on_one(cluster, wanted, Span::ZERO);
    let request = spec.options.iter().find(is_that_size).cloned().unwrap_or_else(of_stage);
    for (required, is_met) in requirements(state, spec, &request, cluster) {
        nodes.retain(|node| is_met(node));
        unusable.retain(|node| is_met(node));
        let n_nodes = nodes.len() as u32;
        if n_nodes < wanted {
            let unusable = unusable.iter().take(MAX_NAMES).map(|node| node.name.clone()).collect();
            let unknown = if required == Required::Names { unknown(state, spec) } else { Vec::new() };
            return Some(Lacking { required, n_nodes, among, unusable, unknown });
        }
        among = n_nodes;
    }
    None
}

/// More names would help nobody.
const MAX_NAMES: usize = 16;

/// Returns the names that a job lists and that no node has, because it was removed.
fn unknown(state: &State, spec: &JobSpec) -> Vec<String> {
    let names = spec.constraint.nodelist.iter();
    names.filter(|name| state.node_named(name).is_none()).take(MAX_NAMES).cloned().collect()
}

type IsMet<'a> = Box<dyn Fn(&Node) -> bool + 'a>;

/// Returns all that a job requires of each node, in the order in which it is told. Together they say what the search for
/// nodes says.
fn requirements<'a>(
    state: &'a State,
    spec: &'a JobSpec,
    request: &'a Request,
    cluster: ClusterId,
) -> impl Iterator<Item = (Required, IsMet<'a>)> {
    let is_shared = state.is_shared(cluster);
    let constraint = constraint_of(spec, request);
    let (cpus, memory, devices) = (constraint.cpus, constraint.memory, constraint.devices.clone());
    let required = &spec.constraint;
    let has_cpus = move |node: &Node| {
        let has_cores = || cores_on_a_node(spec, request, &node.inventory) <= node.inventory.cores;
        node.inventory.cpus >= cpus && (!is_shared || has_cores())
    };
    let has_all = move |node: &Node| match is_shared {
        true => node.meets(required) && !pieces_of(spec, request, &node.inventory).is_empty(),
        false => node.meets(&constraint),
    };
    let of_tasks = match spec.resources.one_thread_a_core {
        true => Required::Cores(cpus),
        false => Required::Cpus(cpus),
    };
    let all: [(Required, IsMet<'a>); 9] = [
        (Required::Names, Box::new(|node| required.allows(&node.name))),
        (
            Required::Features(required.features.clone()),
            Box::new(|node| required.features.is_subset(&node.inventory.features)),
        ),
        (Required::Sockets(required.sockets), Box::new(|node| node.inventory.sockets >= required.sockets)),
        (Required::Speed(required.speed_milli), Box::new(|node| node.inventory.speed_milli >= required.speed_milli)),
        (Required::Scratch(required.scratch), Box::new(|node| node.inventory.scratch >= required.scratch)),
        (Required::Cores(required.cores), Box::new(|node| node.inventory.cores >= required.cores)),
        (of_tasks, Box::new(has_cpus)),
        (Required::Memory(memory), Box::new(move |node| node.inventory.memory >= memory)),
        (Required::Devices(devices), Box::new(has_all)),
    ];
    all.into_iter()
}
