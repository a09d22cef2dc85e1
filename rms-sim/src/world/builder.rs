//! Builds worlds: settings, clusters, nodes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rms_api::desired::AgentHello;
use rms_core::{Config, State};
use rms_model::{Devices, Inventory, Mebibytes, Settings, Time};

use super::World;
use crate::agenda::EventQueue;
use crate::check::Checks;
use crate::dice::Dice;
use crate::journal::ModelJournal;
use crate::server::Server;
use crate::trace::Trace;

/// A description of the world to build.
#[derive(Debug)]
pub struct WorldBuilder {
    seed: u64,
    settings: Settings,
    nodes: Vec<(String, AgentHello)>,
    walk_cost: Option<Duration>,
    snapshot: fn(&State) -> State,
}

impl Default for WorldBuilder {
    fn default() -> WorldBuilder {
        WorldBuilder {
            seed: 0,
            settings: Settings::default(),
            nodes: Vec::new(),
            walk_cost: None,
            snapshot: State::clone,
        }
    }
}

impl WorldBuilder {
    pub fn seed(mut self, seed: u64) -> WorldBuilder {
        self.seed = seed;
        self
    }

    pub fn settings(mut self, settings: Settings) -> WorldBuilder {
        self.settings = settings;
        self
    }

    /// Sets the time of a pass for each application that it considered. Passes take no time here, but the server is
    /// told that they took this long.
    pub fn walk_cost(mut self, walk_cost: Duration) -> WorldBuilder {
        self.walk_cost = Some(walk_cost);
        self
    }

    /// Sets how a state is restored from a snapshot: a test may send it through an encoding.
    pub fn snapshot(mut self, snapshot: fn(&State) -> State) -> WorldBuilder {
        self.snapshot = snapshot;
        self
    }

    /// Adds `n_nodes` equal nodes, named after their cluster and counted from 1.
    pub fn cluster(self, name: &str, n_nodes: u32) -> WorldBuilder {
        self.cluster_with(name, n_nodes, Devices::default())
    }

    /// Adds such nodes with these devices.
    pub fn cluster_with(self, name: &str, n_nodes: u32, devices: Devices) -> WorldBuilder {
        let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(4096), devices, ..Inventory::default() };
        (1..=n_nodes).fold(self, |world, idx| world.node(name, &format!("{name}{idx}"), inventory.clone()))
    }

    pub fn node(mut self, cluster: &str, name: &str, inventory: Inventory) -> WorldBuilder {
        let address = format!("{name}:7420");
        self.nodes
            .push((name.to_owned(), AgentHello { cluster: cluster.to_owned(), address, inventory, trouble: None }));
        self
    }

    /// Builds the world at its beginning: the server runs, and the agents connect in the order of their nodes.
    pub fn build(self) -> World {
        let config = Config { settings: self.settings.clone(), ..Config::default() };
        let mut world = World {
            seed: self.seed,
            now: Time::EPOCH,
            agenda: EventQueue::new(),
            server: Some(Server::new(config.clone())),
            config,
            journal: ModelJournal::new(self.settings.clone()),
            nodes: Vec::new(),
            links: Vec::new(),
            launchers: Default::default(),
            applications: Default::default(),
            askers: Default::default(),
            accepted: Vec::new(),
            programs: BTreeMap::new(),
            crash: None,
            ambush: None,
            n_ambushes: 0,
            checks: Checks::new(self.settings),
            trace: Trace::new(),
            dice: Dice::new(self.seed, 0),
            n_tickets: 0,
            answers: BTreeMap::new(),
            signed: BTreeMap::new(),
            n_checked: 0,
            n_traced: 0,
            written: VecDeque::new(),
            n_turns: 0,
            walk_cost: self.walk_cost,
            snapshot: self.snapshot,
        };
        for (name, hello) in self.nodes {
            world.add_node(name, hello);
        }
        world
    }
}
