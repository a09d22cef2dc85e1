//! What a launcher sees when it is asked to choose.

use std::collections::BTreeMap;

use rms_api::subscription::{ClusterInfo, ClusterInfos, ClusterLink, LauncherView};
use rms_model::{ClusterId, Profile, Time};

use super::wanted::Wanted;
use crate::schedule::Sight;

/// The view of an application together with what is known of the clusters, at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub(super) now: Time,
    pub(super) view: &'a LauncherView,
    pub(super) infos: &'a ClusterInfos,
    pub(super) requested: Option<&'a Wanted>,
}

impl<'a> Seen<'a> {
    /// A view that was received over a [`Session`](super::Session), at `now` by the server's clock.
    pub fn new(now: Time, view: &'a LauncherView, infos: &'a ClusterInfos) -> Seen<'a> {
        Seen { now, view, infos, requested: None }
    }

    /// The server's clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// For the functions of [`schedule`](crate::schedule): all clusters, with the nodes that may be used now.
    pub fn sight(&self) -> Sight<'a> {
        static FREE: Profile = Profile::new();
        let view = self.view;
        let occupied = |cluster: &ClusterId| view.occupied.get(cluster).map_or(&FREE, AsRef::as_ref);
        Sight::of(view.capacity.iter().map(move |(cluster, n_nodes)| (*cluster, *n_nodes, occupied(cluster))))
    }

    /// The same for a slice of the filter, by its place there from 0 on: a node that has no room for it is busy. Nothing is
    /// seen where there is no such slice.
    pub fn sight_of_slice(&self, place: usize) -> Sight<'a> {
        static FREE: Profile = Profile::new();
        let shape = u32::try_from(place).ok().and_then(|place| place.checked_add(1));
        let slice = shape.and_then(|shape| self.view.slices.get(&shape));
        let seen = slice.into_iter().flat_map(|slice| {
            let occupied = |cluster: &ClusterId| slice.occupied.get(cluster).map_or(&FREE, AsRef::as_ref);
            slice.capacity.iter().map(move |(cluster, n_nodes)| (*cluster, *n_nodes, occupied(cluster)))
        });
        Sight::of(seen)
    }

    /// Which change of the view this is; it rises.
    pub fn version(&self) -> u64 {
        self.view.version
    }

    /// The clusters that the filter lets through (001: CINFO).
    pub fn clusters(&self) -> &'a [ClusterInfo] {
        &self.infos.clusters
    }

    /// The cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<&'a ClusterInfo> {
        self.infos.clusters.iter().find(|info| info.name == name)
    }

    /// The network between two clusters, if the admin has said what it is like (001: ICINFO).
    pub fn link(&self, one: ClusterId, other: ClusterId) -> Option<ClusterLink> {
        let between = (one.min(other), one.max(other));
        self.infos.links.iter().find(|link| link.between == between).copied()
    }

    /// All links between the clusters that are seen, as far as the admin has said what they are like (001: ICINFO).
    pub fn links(&self) -> &'a [ClusterLink] {
        &self.infos.links
    }

    /// Nodes that may be used now, by cluster.
    pub fn capacity(&self) -> &'a BTreeMap<ClusterId, u32> {
        &self.view.capacity
    }

    /// How many nodes of a cluster are busy when, ghosts included; `None` if it is not seen, or is free for ever.
    pub fn occupied(&self, cluster: ClusterId) -> Option<&'a Profile> {
        self.view.occupied.get(&cluster).map(AsRef::as_ref)
    }

    /// What the application asks for, as far as this launcher knows: `None` until it has asked for something. A launcher
    /// that was [resumed](super::resume) has not, though the server still has what was asked for before; asking for the same
    /// again keeps its place.
    pub fn requested(&self) -> Option<&'a Wanted> {
        self.requested
    }

    /// A copy to compute from elsewhere; profiles are shared, not copied.
    pub fn keep(&self) -> Kept {
        let (view, infos) = (self.view.clone(), self.infos.clone());
        Kept { now: self.now, view, infos, requested: self.requested.cloned() }
    }
}

/// What a launcher [has seen](Seen::keep), for as long as it likes.
#[derive(Clone, Debug)]
pub struct Kept {
    now: Time,
    view: LauncherView,
    infos: ClusterInfos,
    requested: Option<Wanted>,
}

impl Kept {
    /// As it was seen.
    pub fn seen(&self) -> Seen<'_> {
        Seen { requested: self.requested.as_ref(), ..Seen::new(self.now, &self.view, &self.infos) }
    }
}
