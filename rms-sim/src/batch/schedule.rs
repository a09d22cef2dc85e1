//! Records what ran where and when, with one stretch of time for each set of nodes that a job had.

mod check;

use std::collections::BTreeMap;

use rms_core::State;
use rms_core::state::job::Job;
use rms_model::{Indices, JobId, Mebibytes, NodeId, Time};

pub use check::{Capacity, Unsound, check_schedule};

/// A time during which a job ran on the same nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The job's index in the workload.
    pub job_idx: usize,
    pub submit: Time,
    pub start: Time,
    pub end: Time,
    pub nodes: Vec<Part>,
}

/// What it had of one node: of a node that it did not share, everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0 on, in the order in which nodes joined.
    pub node: usize,
    pub cores: Indices,
    /// 0 where none was requested, or the amount is unknown.
    pub memory: Mebibytes,
}

/// Contains the running jobs, and those that have ended until they are taken.
#[derive(Debug)]
pub(super) struct Schedule {
    places: BTreeMap<NodeId, usize>,
    running: BTreeMap<JobId, Stretch>,
    pub(super) ended: Vec<Stretch>,
}

impl Schedule {
    pub(super) fn new(state: &State) -> Schedule {
        let places = state.nodes().keys().enumerate().map(|(place, node)| (*node, place)).collect();
        Schedule { places, running: BTreeMap::new(), ended: Vec::new() }
    }

    pub(super) fn begin(&mut self, job: JobId, job_idx: usize, submit: Time, start: Time, state: &State) {
        let nodes = self.parts(state, job);
        self.running.insert(job, Stretch { job_idx, submit, start, end: start, nodes });
    }

    /// Handles a change of a job's nodes.
    pub(super) fn resize(&mut self, job: JobId, at: Time, state: &State) {
        let nodes = self.parts(state, job);
        if let Some(stretch) = self.running.get_mut(&job) {
            let before = std::mem::replace(stretch, Stretch { start: at, end: at, nodes, ..stretch.clone() });
            self.ended.extend((before.start < at).then_some(Stretch { end: at, ..before }));
        }
    }

    pub(super) fn end(&mut self, job: JobId, at: Time) {
        self.ended.extend(self.running.remove(&job).map(|stretch| Stretch { end: at, ..stretch }));
    }

    fn parts(&self, state: &State, job: JobId) -> Vec<Part> {
        let part = |entry: &Job, node: &NodeId| {
            let place = *self.places.get(node)?;
            let inventory = &state.nodes().get(node)?.inventory;
            let (cores, memory) = match entry.part_of(*node, inventory) {
                Some(part) => (part.cores, part.memory),
                None => (Indices::below(inventory.cores), inventory.memory),
            };
            Some(Part { node: place, cores, memory })
        };
        let entry = state.jobs().get(&job);
        entry.into_iter().flat_map(|entry| entry.nodes().iter().filter_map(move |node| part(entry, node))).collect()
    }
}
