//! Launchers that are sent views: subscribe, changeNotify, request, startNotify and done through the core.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rms_api::refusal::Refusal;
use rms_api::subscription::{Grant, LauncherAnswer, LauncherCall, Notice, Subscription, ViewChange};
use rms_core::event::Ticket;
use rms_core::plan::notify;
use rms_core::{Effect, Event};
use rms_model::{JobId, Time, View};

use super::launcher::{Launcher, Phase};
use super::outcome::{Outcome, Ran};
use super::server::{self, Server};
use super::{Assumption, Experiment, Happening, Heard, ViewsError};

pub(super) fn run(experiment: &Experiment<'_>, clock: &mut dyn FnMut() -> Duration) -> Result<Outcome, ViewsError> {
    let mut crowd = Crowd {
        heard: experiment.heard,
        assumption: experiment.assumption,
        server: Server::new(experiment, experiment.fair_start, clock),
        launchers: experiment.applications.iter().map(Launcher::new).collect(),
        speaks_for: BTreeMap::new(),
        agenda: BTreeSet::new(),
        last_view: View::new(),
        outcome: Outcome::default(),
    };
    crowd.agenda.extend(experiment.arrivals());
    let mut now = experiment.begin();
    while let Some((at, happening)) = crowd.next(now) {
        now = at;
        crowd.agenda.remove(&(at, happening));
        crowd.take(now, happening)?;
    }
    Ok(crowd.finish(now)?.counted_from(experiment.begin()))
}

/// The server, its launchers and the future events.
#[derive(Debug)]
struct Crowd<'a, 'c> {
    heard: Heard,
    assumption: Option<Assumption>,
    server: Server<'c>,
    launchers: Vec<Launcher<'a>>,
    speaks_for: BTreeMap<JobId, usize>,
    agenda: BTreeSet<(Time, Happening)>,
    /// The last view of the latest pass, for subscribers that are shown that one (RULES S3). The server itself shows
    /// newer ones.
    last_view: View,
    outcome: Outcome,
}

impl Crowd<'_, '_> {
    /// Returns the next event; `None` once every application and every ghost has left and the last pass has recorded
    /// that.
    fn next(&self, now: Time) -> Option<(Time, Happening)> {
        let first = self.agenda.first().copied();
        let tick = self.server.next_timer().map(|at| (at.max(now), Happening::Tick));
        first.into_iter().chain(tick).min()
    }

    fn take(&mut self, now: Time, happening: Happening) -> Result<(), ViewsError> {
        match happening {
            Happening::Arrived { application } => {
                let name = format!("application {application}");
                let priority = match self.assumption {
                    Some(Assumption::OrderOfSubscription) => i32::try_from(application).map_or(i32::MIN, |idx| -idx),
                    Some(_) | None => 0,
                };
                let subscription = Subscription { priority, ..Subscription::named(name) };
                self.call(now, application, LauncherCall::Subscribe(Box::new(subscription)))
            }
            Happening::Adapted { application } => {
                let launcher = &mut self.launchers[application];
                let Phase::Waits { job } = launcher.phase else { return Ok(()) };
                let wish = self.server.aside(&mut self.outcome.launchers, || launcher.chosen(now));
                let Some(wish) = wish else { return Ok(()) };
                self.outcome.request.add(notify::request_bytes(&wish.request));
                self.call(now, application, LauncherCall::Request { job, wish })
            }
            Happening::Done { application } => {
                let launcher = &mut self.launchers[application];
                let Phase::Runs { job, tag, start, request } = launcher.phase.clone() else { return Ok(()) };
                let requested = launcher.requested.expect("what has started was in the queue");
                launcher.phase = Phase::Ended(Ran { requested, start, end: now, request });
                self.call(now, application, LauncherCall::Finish { job, tag, code: 0 })
            }
            Happening::Tick => {
                let n_passes = self.server.status(now).n_passes;
                let effects = match self.assumption {
                    Some(Assumption::SearchAlone) => self.server.tick_counting_the_search(now),
                    Some(_) | None => self.server.handle(now, Event::Tick),
                };
                self.perform(now, effects)?;
                match self.heard {
                    // A ghost may expire without a pass.
                    Heard::ByQueued if self.server.status(now).n_passes > n_passes => {
                        self.last_view = self.server.last_view(now);
                        self.hear_queued(now);
                    }
                    Heard::ByAll | Heard::ByQueued => {}
                }
                Ok(())
            }
        }
    }

    fn call(&mut self, now: Time, application: usize, call: LauncherCall) -> Result<(), ViewsError> {
        let event = Event::LauncherCalled { ticket: Ticket(application as u64), who: server::owner(), call };
        let effects = self.server.handle(now, event);
        self.perform(now, effects)
    }

    fn perform(&mut self, now: Time, effects: Vec<Effect>) -> Result<(), ViewsError> {
        for effect in effects {
            match effect {
                Effect::LauncherAnswer { ticket, answer } => self.answered(ticket.0 as usize, answer)?,
                Effect::Notify { job, notice } => self.notified(now, self.speaks_for[&job], notice)?,
                // For others: the agents, followers of the job, and callers that are not launchers.
                Effect::Desire { .. }
                | Effect::Announce(_)
                | Effect::Answer { .. }
                | Effect::Signal { .. }
                | Effect::Sign { .. }
                | Effect::CloseLinks { .. }
                | Effect::NegotiatorAnswer { .. }
                | Effect::TellNegotiator { .. }
                | Effect::RefuseAgent { .. } => {}
            }
        }
        Ok(())
    }

    fn answered(&mut self, application: usize, answer: Result<LauncherAnswer, Refusal>) -> Result<(), ViewsError> {
        match answer {
            Ok(LauncherAnswer::Subscribed { job, .. }) => {
                self.speaks_for.insert(job, application);
                self.launchers[application].phase = Phase::Waits { job };
                Ok(())
            }
            Ok(LauncherAnswer::Clusters(_) | LauncherAnswer::Done) => Ok(()),
            Err(source) => Err(ViewsError::Refused { application, source }),
        }
    }

    fn notified(&mut self, now: Time, application: usize, notice: Notice) -> Result<(), ViewsError> {
        match notice {
            Notice::Changed(change) => {
                let (bytes, is_first) = (bytes(&change), change.version == 1);
                self.launchers[application].told(change);
                match self.heard {
                    Heard::ByAll => self.hear(now, application, bytes),
                    // The first change answers the subscription.
                    Heard::ByQueued if is_first => {
                        self.hear(now, application, 0);
                        self.outcome.change_notify.bytes += self.launchers[application].shows(&self.last_view, now);
                    }
                    Heard::ByQueued => {}
                }
                Ok(())
            }
            Notice::Started(grant) => self.started(now, application, grant),
            Notice::Ended { outcome } => match self.launchers[application].phase {
                Phase::Ended(_) => Ok(()),
                Phase::ToCome | Phase::Waits { .. } | Phase::Runs { .. } => {
                    Err(ViewsError::Ended { application, reason: outcome.to_string() })
                }
            },
            Notice::Replaced => Ok(()),
        }
    }

    fn hear(&mut self, now: Time, application: usize, bytes: u64) {
        self.outcome.change_notify.add(bytes);
        if let Some(at) = self.launchers[application].listens(now) {
            self.agenda.insert((at, Happening::Adapted { application }));
        }
    }

    /// Sends changes, after a pass, to launchers that use them only when they are queued.
    fn hear_queued(&mut self, now: Time) {
        for application in 0..self.launchers.len() {
            let launcher = &self.launchers[application];
            if let Some(bytes) = launcher.is_queued().then(|| launcher.unheard(now)).flatten() {
                self.hear(now, application, bytes);
            }
        }
    }

    /// Starts an application (001: startNotify). The launcher uses its nodes on its own, and reports that.
    fn started(&mut self, now: Time, application: usize, grant: Grant) -> Result<(), ViewsError> {
        let launcher = &mut self.launchers[application];
        let Phase::Waits { job } = launcher.phase else { return Ok(()) };
        let end = now + launcher.application.execution.of(grant.request.wall);
        launcher.phase = Phase::Runs { job, tag: grant.tag, start: now, request: grant.request };
        self.agenda.insert((end, Happening::Done { application }));
        self.call(now, application, LauncherCall::Accept { job, tag: grant.tag })
    }

    fn finish(mut self, now: Time) -> Result<Outcome, ViewsError> {
        let mut waiting = Vec::new();
        for (application, launcher) in self.launchers.iter().enumerate() {
            self.outcome.n_configurations += launcher.n_configurations();
            match &launcher.phase {
                Phase::Ended(ran) => self.outcome.ran.push(ran.clone()),
                Phase::ToCome | Phase::Waits { .. } | Phase::Runs { .. } => waiting.push(application),
            }
        }
        if !waiting.is_empty() {
            return Err(ViewsError::Starved { at: now, applications: waiting });
        }
        self.outcome.server = self.server.cost;
        let status = self.server.status(now);
        // One pass ran when the server started.
        self.outcome.n_passes = status.n_passes - 1;
        self.outcome.ghost_node_time = status.ghost_node_time;
        Ok(self.outcome)
    }
}

/// Returns the size of a change in bytes (001, B.1).
fn bytes(change: &ViewChange) -> u64 {
    let occupied = change.clusters.iter().filter_map(|cluster| cluster.occupied.as_deref());
    occupied.map(|occupied| notify::cluster_bytes(occupied, change.at)).sum()
}
