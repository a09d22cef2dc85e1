//! The evaluation of 001: external launchers that select their resources from views, compared with a server that is
//! given all sizes.
//!
//! Both systems are the production core in virtual time. With [`System::Views`] model launchers subscribe to it, run
//! the scheduling functions of real launchers on the views it sends, and send requests back. With [`System::Listed`]
//! each application lists every size at once, as with OAR, and the core's built-in launcher chooses. Nothing here
//! schedules.

mod assumption;
mod claims;
mod figure;
mod launcher;
mod listed;
mod outcome;
mod report;
mod server;
mod share;
mod told;

use std::time::Duration;

use rms_api::refusal::Refusal;
use rms_model::{ClusterId, Span, Time};
use thiserror::Error;

use crate::delegated::Application;

pub use assumption::{Assumption, UnknownAssumption};
pub use claims::Claim;
pub use figure::{Axes, Case, Effort, Figure, Logs, N_JOBS, UnknownFigure, Values};
pub use outcome::{Cost, Messages, Outcome, Ran};
pub use report::{Metric, Report};
pub use share::{ShareCase, ShareValues, cases as share_cases};

/// Where resources are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// By launchers, from the views they are sent (001: NDRMS).
    Views,
    /// By the server, from the list of all sizes of each application (001: an OAR-like RMS).
    Listed,
}

/// Which launchers are told of changes. The paper leaves it open; with listed sizes there are no launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All that have not started, as the core does it.
    ByAll,
    /// Those that have sent a request; the others ignore changes after their first view (RULES R7).
    ByQueued,
}

/// The parameters of an experiment.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    pub system: System,
    pub heard: Heard,
    /// Clusters by id, with their nodes.
    pub clusters: &'a [(ClusterId, u32)],
    /// In the order of their arrival at one instant.
    pub applications: &'a [Application],
    /// Ghosts exist only for launchers: the listed system frees nodes at once.
    pub fair_start: Span,
    pub resched_timer: Span,
    /// A changed assumption, to see what depends on it.
    pub assumption: Option<Assumption>,
}

impl Experiment<'_> {
    /// Returns time 0 of the experiment. By then the server is up, and the pass at its start is over.
    fn begin(&self) -> Time {
        Time::EPOCH + self.resched_timer
    }

    /// Returns when each application arrives, by the server's clock.
    fn arrivals(&self) -> impl Iterator<Item = (Time, Happening)> + '_ {
        let arrival = |(application, Application { arrival, .. }): (usize, &Application)| {
            (self.begin() + arrival.since(Time::EPOCH), Happening::Arrived { application })
        };
        self.applications.iter().enumerate().map(arrival)
    }
}

/// The re-scheduling timer of the paper's experiments (001, §6.1).
pub const RESCHED_TIMER: Span = Span::from_secs(1);
/// The fair-start delay of experiments that do not vary it.
pub const FAIR_START: Span = Span::from_secs(5);

/// Why an experiment did not finish.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewsError {
    #[error("the server refused what application {application} asked for")]
    Refused { application: usize, source: Refusal },
    #[error("application {application} selects nodes on several clusters at once: not all of its sizes can be listed")]
    NotListable { application: usize },
    #[error("application {application} was ended by the server: {reason}")]
    Ended { application: usize, reason: String },
    #[error("at {at:?} applications {applications:?} still wait, and nothing would change that")]
    Starved { at: Time, applications: Vec<usize> },
}

/// Runs an experiment to its end. `clock` is any monotonic clock, ideally of the CPU time of this thread: it only
/// measures.
///
/// # Errors
/// An application cannot be run.
pub fn run(experiment: &Experiment<'_>, clock: &mut dyn FnMut() -> Duration) -> Result<Outcome, ViewsError> {
    match experiment.system {
        System::Views => told::run(experiment, clock),
        System::Listed => listed::run(experiment, clock),
    }
}

/// The events of one instant, in this order; those of one kind are in the order of the applications (RULES S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done {
        application: usize,
    },
    Arrived {
        application: usize,
    },
    /// A launcher has chosen its request.
    Adapted {
        application: usize,
    },
    /// A timer of the server: ghosts expire, and a pass runs.
    Tick,
}
