//! A model launcher: what a real one keeps, and the scheduling functions that a real one runs.

use std::cell::RefCell;
use std::collections::BTreeSet;

use launcher_schedule::cem::{self, Hosts};
use launcher_schedule::moldable::{self, Amdahl, WallTime};
use launcher_schedule::{Proposal, Sight};
use rms_core::subscription::{LauncherView, Tag, ViewChange, Wish};
use rms_model::{ClusterId, JobId, Profile, Request, Span, Time};

use super::outcome::Ran;
use crate::workload::delegated::{Application, Model};

#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub(super) application: &'a Application,
    pub(super) phase: Phase,
    view: LauncherView,
    /// Is a choice on its way? Then it will see what has changed meanwhile (RULES S4).
    computes: bool,
    sent: Option<Request>,
    last_tag: Tag,
    configurations: Configurations,
}

/// How far an application has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    ToCome,
    Waits { job: JobId },
    Runs { job: JobId, tag: Tag, start: Time, request: Request },
    Ended(Ran),
}

/// What was computed before need not be again: the distinct ones are counted (001: unique configurations).
#[derive(Debug, Default)]
struct Configurations {
    on_one: RefCell<BTreeSet<(ClusterId, u32)>>,
    on_many: BTreeSet<Hosts>,
}

static FREE: Profile = Profile::new();

impl<'a> Launcher<'a> {
    pub(super) fn new(application: &'a Application) -> Launcher<'a> {
        Launcher {
            application,
            phase: Phase::ToCome,
            view: LauncherView::default(),
            computes: false,
            sent: None,
            last_tag: Tag(0),
            configurations: Configurations::default(),
        }
    }

    /// 001: changeNotify. Says when a new choice will be made, unless one is on its way.
    pub(super) fn notified(&mut self, now: Time, change: ViewChange) -> Option<Time> {
        self.view.apply(change);
        let begins = !std::mem::replace(&mut self.computes, true);
        begins.then_some(now + self.application.adaptation)
    }

    /// The choice is made, from the view as it is known now. `None` if it is the last one again.
    pub(super) fn chosen(&mut self, now: Time) -> Option<Wish> {
        self.computes = false;
        let Proposal { request, start: _ } = self.propose(now)?;
        if self.sent.as_ref() == Some(&request) {
            return None;
        }
        self.sent = Some(request.clone());
        self.last_tag = Tag(self.last_tag.0 + 1);
        Some(Wish { tag: self.last_tag, seen: self.view.version, request })
    }

    fn propose(&mut self, now: Time) -> Option<Proposal> {
        let seen = |(cluster, n_hosts): (&ClusterId, &u32)| {
            (*cluster, *n_hosts, self.view.occupied.get(cluster).map_or(&FREE, |occupied| &**occupied))
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
    fn wall(&self, cluster: ClusterId, n_hosts: u32) -> Option<Span> {
        let wall = self.amdahl.wall(cluster, n_hosts)?;
        self.asked.borrow_mut().insert((cluster, n_hosts));
        Some(wall)
    }
}
