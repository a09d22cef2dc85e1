//! The results of an experiment: when each application ran, and the metrics of 001 (Fig. 6).

use std::time::Duration;

use rms_model::{Request, Span, Time};

/// The results of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In the order of the applications.
    pub ran: Vec<Ran>,
    /// Distinct configurations that applications had to compute, summed over them (001: unique configurations).
    pub n_configurations: u64,
    pub change_notify: Messages,
    pub request: Messages,
    /// Lists of sizes; none with views.
    pub list: Messages,
    pub n_passes: u64,
    /// Node-time that ghosts have kept idle (001, §6.2.2: resource waste).
    pub ghost_node_time: Span,
    /// The cost of the server.
    pub server: Cost,
    /// The cost of all launchers together.
    pub launchers: Cost,
}

/// The times of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// When it took its place in the queue.
    pub requested: Time,
    pub start: Time,
    pub end: Time,
    pub request: Request,
}

/// The number of messages of a kind, and their bytes by 001, B.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    pub count: u64,
    pub bytes: u64,
}

/// The cost of computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps of profiles that were visited (001: basic operations).
    pub steps: u64,
    /// By the clock of the experiment, so it differs between runs.
    pub cpu: Duration,
}

impl Outcome {
    /// Returns the outcome with `begin` as time 0.
    pub(super) fn counted_from(mut self, begin: Time) -> Outcome {
        for ran in &mut self.ran {
            ran.requested = Time::EPOCH + ran.requested.since(begin);
            ran.start = Time::EPOCH + ran.start.since(begin);
            ran.end = Time::EPOCH + ran.end.since(begin);
        }
        self
    }

    /// Returns the bytes of all kinds of messages that 001 counts.
    pub fn bytes(&self) -> u64 {
        self.change_notify.bytes + self.request.bytes + self.list.bytes
    }

    /// Returns when the last application ended.
    pub fn makespan(&self) -> Span {
        self.ran.iter().map(|ran| ran.end.since(Time::EPOCH)).max().unwrap_or(Span::ZERO)
    }
}

impl Messages {
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}
