//! What a launcher sees when it chooses a request.

use std::collections::BTreeMap;

use rms_api::subscription::{ClusterInfo, ClusterInfos, ClusterLink, LauncherView};
use rms_model::{ClusterId, Profile, Time};

use super::wanted::Wanted;
use crate::schedule::Sight;

/// The view of an application and the properties of the clusters, at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub(super) now: Time,
    pub(super) view: &'a LauncherView,
    pub(super) infos: &'a ClusterInfos,
    pub(super) requested: Option<&'a Wanted>,
}

impl<'a> Seen<'a> {
    /// Wraps a view that was received over a [`Session`](super::Session), at `now` by the server's clock.
    pub fn new(now: Time, view: &'a LauncherView, infos: &'a ClusterInfos) -> Seen<'a> {
        Seen { now, view, infos, requested: None }
    }

    /// Returns the server's clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns all clusters with the nodes that may be used now, as input to the functions of
    /// [`schedule`](crate::schedule).
    pub fn sight(&self) -> Sight<'a> {
        static FREE: Profile = Profile::new();
        let view = self.view;
        let occupied = |cluster: &ClusterId| view.occupied.get(cluster).map_or(&FREE, AsRef::as_ref);
        Sight::of(view.capacity.iter().map(move |(cluster, n_nodes)| (*cluster, *n_nodes, occupied(cluster))))
    }

    /// Like [`Seen::sight`], for one slice of the filter, by its index there from 0: a node without room for the slice
    /// counts as busy. Empty if there is no such slice.
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

    /// Returns the version of the view; it grows with each change.
    pub fn version(&self) -> u64 {
        self.view.version
    }

    /// Returns the clusters that pass the filter (001: CINFO).
    pub fn clusters(&self) -> &'a [ClusterInfo] {
        &self.infos.clusters
    }

    /// Returns the cluster with this name.
    pub fn cluster(&self, name: &str) -> Option<&'a ClusterInfo> {
        self.infos.clusters.iter().find(|info| info.name == name)
    }

    /// Returns the network between two clusters, if the admin has entered it (001: ICINFO).
    pub fn link(&self, one: ClusterId, other: ClusterId) -> Option<ClusterLink> {
        let between = (one.min(other), one.max(other));
        self.infos.links.iter().find(|link| link.between == between).copied()
    }

    /// Returns all links between the visible clusters that the admin has entered (001: ICINFO).
    pub fn links(&self) -> &'a [ClusterLink] {
        &self.infos.links
    }

    /// Returns the nodes that may be used now, by cluster.
    pub fn capacity(&self) -> &'a BTreeMap<ClusterId, u32> {
        &self.view.capacity
    }

    /// Returns how many nodes of a cluster are busy when, ghosts included; `None` if it is not visible, or always free.
    pub fn occupied(&self, cluster: ClusterId) -> Option<&'a Profile> {
        self.view.occupied.get(&cluster).map(AsRef::as_ref)
    }

    /// Returns the application's current request, as far as this launcher knows: `None` until it has sent one. A
    /// launcher that was [resumed](super::resume) has sent none, though the server still has the earlier request;
    /// sending the same request again keeps the place in the queue.
    pub fn requested(&self) -> Option<&'a Wanted> {
        self.requested
    }

    /// Returns an owned copy, for a computation on another thread. Profiles are shared, not copied.
    pub fn keep(&self) -> OwnedSeen {
        let (view, infos) = (self.view.clone(), self.infos.clone());
        OwnedSeen { now: self.now, view, infos, requested: self.requested.cloned() }
    }
}

/// An owned copy of a [`Seen`], made by [`Seen::keep`].
#[derive(Clone, Debug)]
pub struct OwnedSeen {
    now: Time,
    view: LauncherView,
    infos: ClusterInfos,
    requested: Option<Wanted>,
}

impl OwnedSeen {
    /// Borrows it as a [`Seen`].
    pub fn seen(&self) -> Seen<'_> {
        Seen { requested: self.requested.as_ref(), ..Seen::new(self.now, &self.view, &self.infos) }
    }
}
