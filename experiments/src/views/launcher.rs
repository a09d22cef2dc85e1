//! A model launcher: it keeps what a real one keeps, and uses the scheduling functions that a real one uses.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use launcher_schedule::cem::{self, NodeCounts};
use launcher_schedule::moldable::{self, Amdahl, WallTime};
use launcher_schedule::{Proposal, Sight};
use rms_api::subscription::{LauncherRequest, LauncherView, Tag, ViewChange};
use rms_core::plan::notify;
use rms_model::{ClusterId, JobId, Profile, Request, Span, Time, View};

use super::outcome::Ran;
use crate::delegated::{Application, Model};

#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub(super) application: &'a Application,
    pub(super) phase: Phase,
    /// The view that it uses.
    view: LauncherView,
    /// The view that the server has sent; newer than `view`, if the launcher ignored changes.
    told: LauncherView,
    /// Whether a choice is being computed. Then it sees later what has changed meanwhile (RULES S4).
    computes: bool,
    sent: Option<Request>,
    /// When it sent the first request.
    pub(super) requested: Option<Time>,
    last_tag: Tag,
    configurations: Configurations,
}

/// The phase of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    ToCome,
    Waits { job: JobId },
    Runs { job: JobId, tag: Tag, start: Time, request: Request },
    Ended(Ran),
}

/// The distinct configurations that were computed, as none needs to be computed twice (001: unique configurations).
#[derive(Debug, Default)]
struct Configurations {
    on_one: RefCell<BTreeSet<(ClusterId, u32)>>,
    on_many: BTreeSet<NodeCounts>,
}

static FREE: Profile = Profile::new();

impl<'a> Launcher<'a> {
    pub(super) fn new(application: &'a Application) -> Launcher<'a> {
        Launcher {
            application,
            phase: Phase::ToCome,
            view: LauncherView::default(),
            told: LauncherView::default(),
            computes: false,
            sent: None,
            requested: None,
            last_tag: Tag(0),
            configurations: Configurations::default(),
        }
    }

    /// Receives a change of the view (001: changeNotify).
    pub(super) fn told(&mut self, change: ViewChange) {
        self.told.apply(change);
    }

    /// Returns whether it has a place in the queue.
    pub(super) fn is_queued(&self) -> bool {
        self.sent.is_some() && matches!(self.phase, Phase::Waits { .. })
    }

    /// Returns the size, in bytes by 001, B.1, of the changes that it was sent and has ignored so far; `None` if
    /// nothing differs from now on.
    pub(super) fn unheard(&self, now: Time) -> Option<u64> {
        let is_dirty = |(cluster, occupied): &(&ClusterId, &Arc<Profile>)| match self.view.occupied.get(*cluster) {
            Some(heard) => !Arc::ptr_eq(heard, occupied) && heard.cut_before(now) != occupied.cut_before(now),
            None => true,
        };
        let dirty: Vec<&Arc<Profile>> = self.told.occupied.iter().filter(is_dirty).map(|(_, told)| told).collect();
        let bytes = dirty.iter().map(|occupied| notify::cluster_bytes(occupied, now)).sum();
        (!dirty.is_empty()).then_some(bytes)
    }

    /// Makes it use the view that was sent. Returns when a new choice will be made, unless one is being computed.
    pub(super) fn listens(&mut self, now: Time) -> Option<Time> {
        self.view = self.told.clone();
        let begins = !std::mem::replace(&mut self.computes, true);
        begins.then_some(now + self.application.adaptation)
    }

    /// Makes it use this view in place of what was sent. Returns its size in bytes by 001, B.1.
    pub(super) fn shows(&mut self, view: &View, now: Time) -> u64 {
        let cut = |cluster: &ClusterId| view.get(cluster).map(|occupied| occupied.cut_before(now)).unwrap_or_default();
        self.view.occupied = self.view.capacity.keys().map(|cluster| (*cluster, Arc::new(cut(cluster)))).collect();
        self.view.occupied.values().map(|occupied| notify::cluster_bytes(occupied, now)).sum()
    }

    /// Returns its choice from the current view; `None` if it is the same as the last one.
    pub(super) fn chosen(&mut self, now: Time) -> Option<LauncherRequest> {
        self.computes = false;
        let Proposal { request, .. } = self.propose(now)?;
        if self.sent.as_ref() == Some(&request) {
            return None;
        }
        self.sent = Some(request.clone());
        self.requested.get_or_insert(now);
        self.last_tag = Tag(self.last_tag.0 + 1);
        Some(LauncherRequest::of_nodes(self.last_tag, self.view.version, request))
    }

    fn propose(&mut self, now: Time) -> Option<Proposal> {
        let seen = |(cluster, n_nodes): (&ClusterId, &u32)| {
            (*cluster, *n_nodes, self.view.occupied.get(cluster).map_or(&FREE, |occupied| &**occupied))
        };
        let sight = Sight::of(self.view.capacity.iter().map(seen));
        match &self.application.model {
            Model::OnOne { sizes, amdahl } => {
                let counted = Counted { amdahl, asked: &self.configurations.on_one };
                moldable::propose(&sight, now, *sizes, &counted)
            }
            complex @ (Model::Iterative(_) | Model::FastestFirst(_)) => {
                let asked = &mut self.configurations.on_many;
                cem::propose(&sight, now, |available| {
                    if !asked.contains(available) {
                        asked.insert(available.clone());
                    }
                    complex.select(available)
                })
            }
        }
    }

    pub(super) fn n_configurations(&self) -> u64 {
        (self.configurations.on_one.borrow().len() + self.configurations.on_many.len()) as u64
    }
}

struct Counted<'a> {
    amdahl: &'a Amdahl,
    asked: &'a RefCell<BTreeSet<(ClusterId, u32)>>,
}

impl WallTime for Counted<'_> {
    fn wall(&self, cluster: ClusterId, n_nodes: u32) -> Option<Span> {
        let wall = self.amdahl.wall(cluster, n_nodes)?;
        self.asked.borrow_mut().insert((cluster, n_nodes));
        Some(wall)
    }
}
