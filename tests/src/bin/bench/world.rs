//! The core alone, at a time that stands still until a table moves it: no disk, no agents, no network.

use std::convert::Infallible;
use std::time::Instant;

use anyhow::{Context, Result};
use rms_api::Call;
use rms_api::call::Submission;
use rms_api::desired::{AgentHello, NodeReport};
use rms_core::{Config, Effect, Event, Fact, Journal, Rms, Ticket};
use rms_model::{Identity, Inventory, JobId, Role, Run, Settings, Span, Time};

pub struct World {
    pub rms: Rms,
    pub now: Time,
}

impl World {
    /// A system of one cluster, `a`, whose nodes all have this inventory and are connected.
    pub fn of(settings: Settings, n_nodes: u32, inventory: &Inventory) -> World {
        let rms = Rms::new(Config { settings, ..Config::default() });
        let mut world = World { rms, now: Time::from_secs(1_000_000) };
        for node_idx in 0..n_nodes {
            world.handle(connected(node_idx, inventory.clone()));
        }
        world
    }

    pub fn handle(&mut self, event: Event) -> Vec<Effect> {
        match self.rms.handle(self.now, event).commit(&mut Forgetful) {
            Ok(effects) => effects,
            Err(uncommitted) => match uncommitted.error {},
        }
    }

    pub fn submit(&mut self, submission: Submission) -> Result<()> {
        self.handle(submitted(submission)?);
        Ok(())
    }

    /// Lets the core do all that it has put off. Returns the milliseconds that this took.
    pub fn pass(&mut self) -> f64 {
        let begun = Instant::now();
        self.handle(Event::Tick);
        begun.elapsed().as_secs_f64() * 1000.0
    }

    /// Returns the oldest job that runs.
    pub fn first_running(&self) -> Result<(JobId, Run)> {
        let mut jobs = self.rms.state().jobs().iter();
        jobs.find_map(|(job, entry)| entry.started().map(|_| (*job, entry.run))).context("no job runs")
    }
}

/// What is timed are decisions, not the disk.
struct Forgetful;

impl Journal for Forgetful {
    type Error = Infallible;

    fn append(&mut self, _facts: &[Fact]) -> Result<(), Infallible> {
        Ok(())
    }
}

/// An agent of cluster `a` that has just connected.
pub fn connected(node_idx: u32, inventory: Inventory) -> Event {
    let address = format!("127.0.0.1:{}", 1000 + node_idx);
    let hello = AgentHello { cluster: "a".to_owned(), address, inventory, trouble: None };
    Event::AgentConnected { name: format!("a{node_idx}"), hello, report: NodeReport::default() }
}

/// A job that some user has just submitted.
pub fn submitted(submission: Submission) -> Result<Event> {
    let who = Identity::new(Role::User, "bench").context("a valid name")?;
    Ok(Event::Called { ticket: Ticket(0), who, call: Call::Submit(Box::new(submission)) })
}

/// A job of one task of one CPU on each of its nodes.
pub fn submission(n_nodes: u32, wall: Span) -> Submission {
    Submission { cpus_per_task: 1, ..test_kit::submission(n_nodes, wall) }
}

/// A node of which only the CPUs matter.
pub fn inventory(cpus: u32) -> Inventory {
    Inventory { cores: cpus, cpus, ..Inventory::default() }
}
