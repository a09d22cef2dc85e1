//! The production core on clusters with all nodes connected, and the cost of running it.

use std::convert::Infallible;
use std::time::Duration;

use rms_api::answer::{Answer, Status};
use rms_api::audit::AuditEntry;
use rms_api::call::{Call, Query};
use rms_core::event::Ticket;
use rms_core::plan::{self, Scope};
use rms_core::{Config, Effect, Event, Fact, Journal, Rms};
use rms_model::{ClusterId, Identity, Inventory, NodeId, NodeLink, Role, Span, Time, View, profile};

use super::outcome::Cost;
use super::{Assumption, Experiment};

pub(super) struct Server<'c> {
    rms: Rms,
    clock: &'c mut dyn FnMut() -> Duration,
    /// The cost of the server alone.
    pub(super) cost: Cost,
}

/// A journal that drops its facts, because the experiments never crash the server.
struct Nowhere;

impl Journal for Nowhere {
    type Error = Infallible;

    fn append(&mut self, _: &[Fact]) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<'c> Server<'c> {
    pub(super) fn new(experiment: &Experiment<'_>, fair_start: Span, clock: &'c mut dyn FnMut() -> Duration) -> Self {
        let facts = facts(experiment, fair_start);
        let rms = Rms::restore(Config::default(), None, facts).expect("the facts follow from each other");
        let mut server = Server { rms, clock, cost: Cost::default() };
        // A server that has just started makes a pass, which the experiment does not count.
        server.handle(Time::EPOCH, Event::Tick);
        server.cost = Cost::default();
        server
    }

    /// Passes an event to the core, and returns the effects.
    pub(super) fn handle(&mut self, now: Time, event: Event) -> Vec<Effect> {
        let step = measured(&mut self.cost, self.clock, || self.rms.handle(now, event));
        match step.commit(&mut Nowhere) {
            Ok(effects) => effects,
            Err(uncommitted) => match uncommitted.error {},
        }
    }

    /// Handles a tick whose pass considers every application, as a server must that gives all of them an estimate. The
    /// core's own pass for listed sizes ends with the last free node, so it is not what is measured.
    pub(super) fn tick_in_full(&mut self, now: Time) -> Vec<Effect> {
        measured(&mut self.cost, self.clock, || plan::plan(self.rms.state(), now, Scope::Estimates));
        let own = self.cost;
        let effects = self.handle(now, Event::Tick);
        self.cost = own;
        effects
    }

    /// Handles a tick, and counts only its pass's search for nodes, not comparing and writing views.
    pub(super) fn tick_counting_the_search(&mut self, now: Time) -> Vec<Effect> {
        let (before, n_passes) = (self.cost, self.status(now).n_passes);
        let effects = self.tick_in_full(now);
        // Ghosts expire without a pass.
        if self.status(now).n_passes == n_passes {
            self.cost = before;
        }
        effects
    }

    /// Returns the view that is left when all waiting applications are placed. Not measured.
    pub(super) fn last_view(&self, now: Time) -> View {
        plan::plan(self.rms.state(), now, Scope::Estimates).last_view
    }

    /// Returns the server's status. Not measured.
    pub(super) fn status(&mut self, now: Time) -> Status {
        let call = Call::Query(Query::Status);
        let own = self.cost;
        let effects = self.handle(now, Event::Called { ticket: Ticket(u64::MAX), who: owner(), call });
        self.cost = own;
        let status = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { ticket: _, answer: Ok(Answer::Status(status)) } => Some(status),
            _other_effect => None,
        });
        status.expect("a server tells its status")
    }

    /// Measures a launcher's work with the same clock, as a separate cost.
    pub(super) fn aside<T>(&mut self, cost: &mut Cost, act: impl FnOnce() -> T) -> T {
        measured(cost, self.clock, act)
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.rms.next_timer()
    }

    pub(super) fn rms(&self) -> &Rms {
        &self.rms
    }
}

impl std::fmt::Debug for Server<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("cost", &self.cost).finish_non_exhaustive()
    }
}

fn measured<T>(cost: &mut Cost, clock: &mut dyn FnMut() -> Duration, act: impl FnOnce() -> T) -> T {
    let (n_before, begun) = (profile::steps_walked(), clock());
    let result = act();
    cost.cpu += clock().saturating_sub(begun);
    cost.steps += profile::steps_walked() - n_before;
    result
}

/// Returns the owner, which is the same for every application.
pub(super) fn owner() -> Identity {
    Identity { role: Role::User, name: "ann".to_owned() }
}

/// Returns the name of the cluster; its id is its number.
pub(super) fn cluster_name(cluster: ClusterId) -> String {
    format!("c{}", cluster.0)
}

fn facts(experiment: &Experiment<'_>, fair_start: Span) -> Vec<Fact> {
    let view_share = match experiment.assumption {
        Some(Assumption::ViewShare { percent }) => percent,
        Some(_) | None => 100,
    };
    let settings = [
        ("queue_depth", "0".to_owned()),
        ("view_share", view_share.to_string()),
        ("view_refresh", Span::ZERO.to_string()),
        ("fair_start", fair_start.to_string()),
        ("resched_timer", experiment.resched_timer.to_string()),
    ];
    let mut facts: Vec<Fact> = settings.map(|(key, new)| setting(key, new)).into();
    let mut node = NodeId(0);
    let (at, link) = (Time::EPOCH, NodeLink::Connected { since: Time::EPOCH });
    for (cluster, n_nodes) in experiment.clusters {
        facts.push(Fact::ClusterAdded { cluster: *cluster, name: cluster_name(*cluster) });
        for _ in 0..*n_nodes {
            node = node.next();
            let (name, inventory, address) = (format!("n{node}"), Inventory::default(), String::new());
            facts.push(Fact::NodeJoined { node, cluster: *cluster, name, inventory, address, at });
            facts.push(Fact::NodeLinkChanged { node, link });
        }
    }
    facts
}

fn setting(key: &str, new: String) -> Fact {
    Fact::SettingChanged { change: AuditEntry::of_setting(Time::EPOCH, "experiment", key, "", &new) }
}
