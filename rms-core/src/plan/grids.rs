//! All clusters of a pass that are shared by cores.

use std::collections::BTreeMap;

use rms_model::profile::Block;
use rms_model::{ClusterId, JobId, JobSpec, NodeId, Profile, Request, Slice, Span, Time, View};

use super::SharedNodes;
use super::grid::{Changed, Grid, Place, Row, Wanted};
use crate::state::job::Job;
use crate::state::{NodeRoom, SharedCluster, State};

/// The clusters of a pass that are shared by cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Grids<'a> {
    pub(super) by_cluster: BTreeMap<ClusterId, Grid<'a>>,
    /// From when until when a job has something of a node, once whole nodes are counted.
    pub(super) blocks: Option<Vec<(Place, Block)>>,
}

/// What a job wants of clusters that are shared by cores, by cluster.
pub(super) type WantedBy = BTreeMap<ClusterId, Wanted>;

impl<'a> Grids<'a> {
    pub(super) fn new(state: &'a State, now: Time) -> Grids<'a> {
        let grid = |here: (ClusterId, &'a SharedCluster)| (here.0, Grid::new(state, here, now));
        Grids { by_cluster: state.shared().clusters().map(grid).collect(), ..Grids::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_cluster.is_empty()
    }

    /// Returns what a job wants of them if it starts with this size.
    pub(super) fn wanted(&self, spec: &JobSpec, request: &Request) -> WantedBy {
        let grids = request.nodes.iter().filter(|(_, nodes)| **nodes > 0);
        grids.filter_map(|(cluster, _)| Some((*cluster, self.by_cluster.get(cluster)?.wanted(spec, request)))).collect()
    }

    /// Returns the part of a request that is on other clusters.
    pub(super) fn others(&self, request: &Request) -> Request {
        let others = request.nodes.iter().filter(|(cluster, _)| !self.by_cluster.contains_key(cluster));
        Request { nodes: others.map(|(cluster, nodes)| (*cluster, *nodes)).collect(), wall: request.wall }
    }

    /// Chooses nodes for a job that starts at `at`; `None` if too few of them have room.
    pub(super) fn choose(&self, wanted: &WantedBy, at: Time) -> Option<Vec<Place>> {
        together(wanted.iter().map(|(cluster, wanted)| self.by_cluster[cluster].choose(wanted, at)))
    }

    /// Keeps the same nodes; `None` if they have no room at `at`.
    pub(super) fn keep(&self, wanted: &WantedBy, nodes: &[NodeId], at: Time) -> Option<Vec<Place>> {
        together(wanted.iter().map(|(cluster, wanted)| self.by_cluster[cluster].keep(wanted, nodes, at)))
    }

    pub(super) fn n_cpus(&self, places: &[Place]) -> usize {
        places.iter().map(|place| self.by_cluster[&place.cluster].n_cpus(place)).sum()
    }

    /// Returns what a job has of a node, or else would take of it.
    pub(super) fn place_of(&self, job: JobId, entry: &Job, cluster: ClusterId, node: NodeId) -> Option<Place> {
        self.by_cluster.get(&cluster)?.place_of(job, entry, node)
    }

    /// Returns whether a job may be placed on these nodes of a cluster that is shared by cores.
    pub(super) fn may_use(&self, cluster: ClusterId, spec: &JobSpec, nodes: &[NodeId]) -> bool {
        let Some(grid) = self.by_cluster.get(&cluster) else { return nodes.is_empty() };
        let wanted = grid.wanted(spec, &Request::on_one(cluster, nodes.len() as u32, Span::ZERO));
        let is_eligible = |idx: usize| grid.is_eligible(idx, grid.line(idx), &wanted);
        nodes.iter().all(|node| grid.line_idx(*node).is_some_and(is_eligible))
    }

    /// Returns `n_nodes` nodes of a cluster for stages, those in `first` before others.
    pub(super) fn row(&self, cluster: ClusterId, spec: &JobSpec, n_nodes: u32, first: &[NodeId]) -> Option<Row> {
        let grid = self.by_cluster.get(&cluster)?;
        Some(grid.row(&grid.wanted(spec, &Request::on_one(cluster, n_nodes, Span::ZERO)), first))
    }

    /// Returns what of a node no job has or will have from now until `until`.
    pub(super) fn spare(&self, cluster: ClusterId, node: NodeId, until: Time) -> Option<Slice> {
        self.by_cluster.get(&cluster)?.spare(node, until)
    }

    /// Takes places, or gives them back; returns what that changes for whole nodes.
    pub(super) fn take(&mut self, places: &[Place], (from, until): (Time, Time), sign: i64) -> Vec<(Place, Block)> {
        let mut blocks = Vec::new();
        let is_counted = self.blocks.is_some();
        for places in places.chunk_by(|one, next| one.cluster == next.cluster) {
            let Some(grid) = self.by_cluster.get_mut(&places[0].cluster) else { continue };
            let mut show = |place: &Place, from, until| {
                blocks.push((place.clone(), Block { from, until, nodes: sign }));
            };
            let changed: Option<&mut Changed<'_>> = if is_counted { Some(&mut show) } else { None };
            grid.take(places, (from, until), sign, changed);
        }
        blocks
    }

    /// Returns how many cores of usable nodes jobs have over time.
    pub(super) fn cores_taken(&self) -> View {
        let taken = |grid: &Grid<'a>| {
            let lines = grid.lines().iter().enumerate().filter(|(_, (_, line))| line.is_usable);
            let blocks = lines.flat_map(|(idx, (_, line))| {
                let all = i64::from(grid.shared.kinds()[line.kind].cores);
                let timeline = grid.drawn(idx);
                let block = |(from, until, room): (Time, Time, &NodeRoom)| Block {
                    from,
                    until,
                    nodes: all - i64::from(room.left().cores),
                };
                timeline.steps().map(block).filter(|block| block.nodes > 0).collect::<Vec<_>>()
            });
            Profile::from_blocks(blocks)
        };
        self.by_cluster.iter().map(|(cluster, grid)| (*cluster, taken(grid))).collect()
    }

    /// Returns what is left of whole nodes.
    pub(super) fn left(&self) -> SharedNodes {
        let clear = |(cluster, grid): (&ClusterId, &Grid<'a>)| (*cluster, grid.clear_until().collect());
        let next_use = self.by_cluster.values().flat_map(Grid::next_use).collect();
        SharedNodes { clear_until: self.by_cluster.iter().map(clear).collect(), next_use }
    }
}

/// Joins the places on all clusters, mostly one; `None` if one of them has none.
fn together(by_cluster: impl Iterator<Item = Option<Vec<Place>>>) -> Option<Vec<Place>> {
    by_cluster.reduce(|places, more| Some([places?, more?].concat())).unwrap_or_else(|| Some(Vec::new()))
}

/// Returns what is taken of shared nodes, by node.
pub(super) fn slices(places: &[Place]) -> BTreeMap<NodeId, Slice> {
    let shared = places.iter().filter(|place| !place.piece.is_whole);
    shared.map(|place| (place.node, place.piece.slice.clone())).collect()
}
