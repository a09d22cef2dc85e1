//! Where applications fit in a pass, and what they take there.

use rms_model::profile::Block;
use rms_model::{ClusterId, Devices, Evolution, NodeId, Request, Span, Time};

use super::Blocked;
use super::fit::Fit;
use super::grid::Place;
use super::grids::WantedBy;
use super::ledger::Subset;
use super::parts::cluster_of;
use crate::state::job::Promise;

/// Where an application fits; nothing is taken for it yet.
pub(super) struct Found {
    pub(super) request: Request,
    pub(super) option_idx: u32,
    pub(super) subset: Option<Subset>,
    pub(super) start: Time,
    pub(super) blocked: Option<Blocked>,
    /// The stages of an evolving application; the request has the nodes of the start.
    pub(super) fit: Option<Box<Fit>>,
    /// What it wants in clusters that are shared by cores.
    pub(super) wanted: WantedBy,
    /// The nodes of all stages in such a cluster; each stage uses the first of them.
    pub(super) row: Vec<Place>,
    pub(super) licences: Devices,
}

/// Nodes that a placed application takes from the view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    /// The ledger that its nodes come from; `None` means all usable nodes.
    pub(super) subset: Option<Subset>,
    pub(super) request: Request,
    pub(super) at: Time,
    /// Known only if it starts now.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// What an evolving application needs from its start on; replaces the nodes of the request.
    pub(super) stages: Option<Evolution>,
    /// Its places in clusters that are shared by cores; a stage uses the first of them.
    pub(super) places: Vec<Place>,
    pub(super) licences: Devices,
}

impl Taken {
    /// Creates what the stages take of the cluster of an evolving application.
    pub(super) fn of_stages(
        subset: Option<Subset>,
        request: Request,
        places: Vec<Place>,
        fit: &Fit,
        licences: Devices,
    ) -> Taken {
        let stages = Some(fit.expanded.clone());
        Taken { subset, request, at: fit.start, nodes: None, stages, places, licences }
    }

    pub(super) fn wall(&self) -> Span {
        self.request.wall
    }

    /// Returns its nodes; known only if the application starts now.
    pub(super) fn nodes(&self) -> Option<&[NodeId]> {
        self.nodes.as_deref()
    }

    /// Returns what it takes of a cluster that is allocated by whole nodes.
    pub(super) fn blocks_on(&self, cluster: ClusterId) -> impl Iterator<Item = Block> + '_ {
        self.blocks().filter(move |(on, _)| *on == cluster).map(|(_, block)| block)
    }

    /// Returns whether this is what a job was promised, as far as it says.
    pub(super) fn is_as_promised(&self, promise: &Promise) -> bool {
        self.at == promise.at && self.places.iter().map(|place| &place.node).eq(&promise.nodes)
    }

    /// Returns whether it is places on shared clusters and nothing else.
    pub(super) fn is_of_places_alone(&self) -> bool {
        let is_plain = self.subset.is_none() && self.stages.is_none() && self.licences.is_empty();
        is_plain && !self.places.is_empty()
    }

    /// Returns the nodes that are named for it, although it starts later.
    pub(super) fn named(&self) -> impl Iterator<Item = NodeId> + '_ {
        let window = self.subset.iter().filter_map(Subset::window).flatten().copied();
        self.places.iter().map(|place| place.node).chain(window)
    }

    /// Returns what it takes of each cluster that is allocated by whole nodes, ordered by time.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (ClusterId, Block)> + '_ {
        let until = self.at + self.request.wall;
        let rigid = if self.stages.is_none() { Some(&self.request.nodes) } else { None };
        let is_counted = |(cluster, _): &(&ClusterId, &u32)| self.places.iter().all(|place| place.cluster != **cluster);
        let rigid = rigid.into_iter().flatten().filter(is_counted);
        let rigid =
            rigid.map(move |(cluster, wanted)| (*cluster, Block { from: self.at, until, nodes: i64::from(*wanted) }));
        let stages = self.stages.iter().filter(|_| self.places.is_empty());
        let stages = stages.flat_map(|stages| stages.blocks(self.at));
        rigid.chain(stages.map(|block| (cluster_of(&self.request), block)))
    }
}
