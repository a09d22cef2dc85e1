//! The evaluation of 001: external launchers that select their resources from views, beside a server that is given all sizes.
//!
//! Both systems are the production core in virtual time. With [`System::Views`] model launchers subscribe to it, run the
//! scheduling functions of real launchers on the views it sends, and send requests back. With [`System::Listed`] each
//! application lists every size at once, as with OAR, and the core's built-in launcher chooses. Nothing here schedules.

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

/// Who selects the resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Launchers, from the views they are sent (001: NDRMS).
    Views,
    /// The server, from the list of all sizes of each application (001: an OAR-like RMS).
    Listed,
}

/// Which launchers hear of changes. The paper leaves it open; with listed sizes there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All that have not started, as the core tells them.
    ByAll,
    /// Those that have sent a request; the others do not listen after their first view (RULES R7).
    ByQueued,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    pub system: System,
    pub heard: Heard,
    /// Clusters by id, with their nodes.
    pub clusters: &'a [(ClusterId, u32)],
    /// In the order of their arrival at one instant.
    pub applications: &'a [Application],
    /// Ghosts are the launchers' business: the listed system frees nodes at once.
    pub fair_start: Span,
    pub resched_timer: Span,
    /// Changed, to see what hangs on it.
    pub assumption: Option<Assumption>,
}

impl Experiment<'_> {
    /// What is time 0 to the experiment. The server is up by then, and the pass that it wants when it starts is over.
    fn begin(&self) -> Time {
        Time::EPOCH + self.resched_timer
    }

    /// When each application arrives, by the server's clock.
    fn arrivals(&self) -> impl Iterator<Item = (Time, Happening)> + '_ {
        let arrival = |(application, Application { arrival, .. }): (usize, &Application)| {
            (self.begin() + arrival.since(Time::EPOCH), Happening::Arrived { application })
        };
        self.applications.iter().enumerate().map(arrival)
    }
}

/// The re-scheduling timer of the paper's experiments (001, §6.1).
pub const RESCHED_TIMER: Span = Span::from_secs(1);
/// The fair-start delay of those that do not vary it.
pub const FAIR_START: Span = Span::from_secs(5);

/// Why an experiment came to no end.
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

/// Runs an experiment to its end. `clock` is any clock that only goes forward, best one of the CPU time of this thread:
/// it measures, and decides nothing.
///
/// # Errors
/// An application that can not be run.
pub fn run(experiment: &Experiment<'_>, clock: &mut dyn FnMut() -> Duration) -> Result<Outcome, ViewsError> {
    match experiment.system {
        System::Views => told::run(experiment, clock),
        System::Listed => listed::run(experiment, clock),
    }
}

/// What happens at one instant, in this order; of one kind in the order of the applications (RULES S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done {
        application: usize,
    },
    Arrived {
        application: usize,
    },
    /// A launcher has chosen what to ask for.
    Adapted {
        application: usize,
    },
    /// A timer of the server: ghosts expire, and a pass runs.
    Tick,
}
