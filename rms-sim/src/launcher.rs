//! A model external launcher: after a while it adapts its request to its view, and once started it uses its nodes in
//! its own manner, or breaks the rules. It selects with the functions that real launchers run.

use std::collections::BTreeMap;

use launcher_schedule::Sight;
pub use launcher_schedule::moldable::Sizes;
use launcher_schedule::moldable::{self, Amdahl};
use rms_api::Refusal;
use rms_api::subscription::{
    Filter, Grant, Launchable, LauncherAnswer, LauncherCall, LauncherRequest, LauncherView, Notice, Subscription, Tag,
};
use rms_model::{JobId, Profile, Request, Slice, Span, Time, Work};

/// How a launcher behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    pub user: String,
    pub sizes: Sizes,
    /// The wall time on one node; nine tenths of the work are parallel.
    pub on_one: Span,
    /// The time from a change of its view until it has chosen.
    pub adapts_in: Span,
    /// What it takes of each node; without cores, all of it.
    pub slice: Slice,
    pub then: Then,
}

/// What a launcher does once it has its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Uses the nodes on its own for this long, and reports how that ended.
    Accepts { runs: Span, code: i32 },
    /// Has its program started by the agents.
    Launches,
    /// Sends nothing: a violation.
    FallsSilent,
    /// Disappears and does not return.
    Vanishes,
    /// Does not even send a request: a violation.
    NeverRequests,
}

/// A message of the server to the launcher.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Answer(Result<LauncherAnswer, Refusal>),
    /// The disk fails: calls get no answer, and the launcher connects again later.
    Failing,
    Notice(Notice),
}

/// What the launcher does after an event.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) says: Vec<LauncherCall>,
    pub(crate) wakes_at: Option<Time>,
    /// It disconnects for good.
    pub(crate) vanishes: bool,
}

#[derive(Debug)]
pub(crate) struct ModelLauncher {
    pub(crate) name: String,
    pub(crate) manner: Manner,
    pub(crate) job: Option<JobId>,
    pub(crate) view: LauncherView,
    phase: Phase,
    /// Whether a choice is being computed. Then it sees later what has changed meanwhile (RULES S4).
    computes: bool,
    sent: Option<LauncherRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Waits,
    Runs { tag: Tag, until: Time },
    Ended,
}

impl ModelLauncher {
    pub(crate) fn new(name: String, manner: Manner) -> ModelLauncher {
        let view = LauncherView::default();
        ModelLauncher { name, manner, job: None, view, phase: Phase::Waits, computes: false, sent: None }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns whether it has a view that changes, and waits for its start.
    pub(crate) fn looks(&self) -> bool {
        self.phase == Phase::Waits && self.job.is_some()
    }

    /// Handles a new connection, over which it has received nothing yet.
    pub(crate) fn connects(&mut self) -> LauncherCall {
        self.view = LauncherView::default();
        match self.job {
            Some(job) => LauncherCall::Attach { job },
            None => {
                let slices = Some(self.manner.slice.clone()).filter(|slice| !slice.is_default());
                let filter = Filter { slices: slices.into_iter().collect(), ..Filter::default() };
                let subscription = Subscription { filter, ..Subscription::named(&*self.name) };
                LauncherCall::Subscribe(Box::new(subscription))
            }
        }
    }

    pub(crate) fn hears(&mut self, now: Time, told: Told) -> Reaction {
        match told {
            Told::Answer(Ok(LauncherAnswer::Subscribed { job, .. })) => {
                self.job = Some(job);
                // The last request may have been lost with the old connection.
                let says = self.sent.clone().filter(|_| self.phase == Phase::Waits);
                let says = says.map(|wish| LauncherCall::Request { job, wish });
                Reaction { says: says.into_iter().collect(), ..Reaction::default() }
            }
            Told::Answer(Ok(LauncherAnswer::Clusters(_) | LauncherAnswer::Done)) => Reaction::default(),
            Told::Answer(Err(Refusal::NoSuchJob(_))) => {
                self.phase = Phase::Ended;
                Reaction::default()
            }
            // The request was carried out, the application was started meanwhile, or the launcher repeats a call
            // because it does not know that it was received.
            Told::Answer(Err(_)) | Told::Failing => Reaction::default(),
            Told::Notice(Notice::Changed(change)) => {
                self.view.apply(change);
                let begins = self.phase == Phase::Waits && !self.computes;
                self.computes |= begins;
                let wakes_at = begins.then(|| now + self.manner.adapts_in);
                Reaction { wakes_at, ..Reaction::default() }
            }
            Told::Notice(Notice::Started(grant)) => self.starts(now, &grant),
            Told::Notice(Notice::Ended { outcome: _ }) => {
                self.phase = Phase::Ended;
                Reaction::default()
            }
            Told::Notice(Notice::Replaced) => Reaction::default(),
        }
    }

    fn starts(&mut self, now: Time, grant: &Grant) -> Reaction {
        let (Some(job), tag) = (self.job, grant.tag) else { return Reaction::default() };
        match &self.manner.then {
            Then::Accepts { runs, code: _ } => {
                let until = match self.phase {
                    Phase::Runs { until, .. } => until.max(now),
                    Phase::Waits | Phase::Ended => now + *runs,
                };
                self.phase = Phase::Runs { tag, until };
                let says = vec![LauncherCall::Accept { job, tag }];
                Reaction { says, wakes_at: Some(until), vanishes: false }
            }
            Then::Launches => {
                self.phase = Phase::Runs { tag, until: Time::NEVER };
                let launch = Box::new(program());
                Reaction { says: vec![LauncherCall::Launch { job, tag, launch }], ..Reaction::default() }
            }
            Then::FallsSilent | Then::NeverRequests => {
                self.phase = Phase::Runs { tag, until: Time::NEVER };
                Reaction::default()
            }
            Then::Vanishes => {
                self.phase = Phase::Ended;
                Reaction { vanishes: true, ..Reaction::default() }
            }
        }
    }

    /// Handles the time at which it asked to be woken.
    pub(crate) fn wakes(&mut self, now: Time) -> Vec<LauncherCall> {
        let Some(job) = self.job else { return Vec::new() };
        match (&self.phase, &self.manner.then) {
            (Phase::Waits, Then::NeverRequests) => Vec::new(),
            (Phase::Waits, _) => {
                self.computes = false;
                let request = self.chooses(now);
                let is_news = request.is_some() && request.as_ref() != self.sent.as_ref().map(|wish| &wish.request);
                let Some(request) = request.filter(|_| is_news) else { return Vec::new() };
                let tag = self.sent.as_ref().map_or(Tag(1), |wish| Tag(wish.tag.0 + 1));
                let slice = self.manner.slice.clone();
                let wish = LauncherRequest { slice, ..LauncherRequest::of_nodes(tag, self.view.version, request) };
                self.sent = Some(wish.clone());
                vec![LauncherCall::Request { job, wish }]
            }
            (Phase::Runs { tag, until }, Then::Accepts { runs: _, code }) if *until <= now => {
                vec![LauncherCall::Finish { job, tag: *tag, code: *code }]
            }
            (Phase::Runs { .. } | Phase::Ended, _) => Vec::new(),
        }
    }

    fn chooses(&self, now: Time) -> Option<Request> {
        static FREE: Profile = Profile::new();
        let (capacity, occupied) = match self.view.slices.get(&1) {
            Some(slice) => (&slice.capacity, &slice.occupied),
            None => (&self.view.capacity, &self.view.occupied),
        };
        let on_one: BTreeMap<_, _> = capacity.keys().map(|cluster| (*cluster, self.manner.on_one)).collect();
        let amdahl = Amdahl::new(9, 10, on_one).expect("nine tenths are a part");
        let sight = Sight::of(capacity.iter().map(|(cluster, n_nodes)| {
            (*cluster, *n_nodes, occupied.get(cluster).map_or(&FREE, |occupied| &**occupied))
        }));
        moldable::propose(&sight, now, self.manner.sizes, &amdahl).map(|proposal| proposal.request)
    }
}

/// Returns the program, which nodes find by the job's name.
fn program() -> Launchable {
    Launchable { cpus_per_task: 1, ..Launchable::of(Work::Tasks { argv: vec!["model".to_owned()] }) }
}
