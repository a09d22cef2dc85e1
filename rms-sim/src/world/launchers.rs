//! Launchers and their connections: what they say and hear, how connections break, who connects again.

use std::collections::BTreeMap;

use rms_api::Refusal;
use rms_api::subscription::{LauncherAnswer, LauncherCall, Notice};
use rms_core::event::{Event, Ticket};
use rms_model::{JobId, Span};

use super::{Item, USUAL_DELAY, World};
use crate::launcher::{Manner, ModelLauncher, Reaction, Then, Told};
use crate::people::user;
use crate::program::Program;
use crate::trace::short_told;

/// All launchers, with the two ends of each one's connection.
#[derive(Debug, Default)]
pub(crate) struct Launchers {
    pub(super) all: Vec<ModelLauncher>,
    /// The launchers' ends: which connection of its own it has, if it has one.
    lines: Vec<Line>,
    /// The server's ends: whom it takes for the launcher of an application.
    known: BTreeMap<JobId, (usize, u64)>,
    /// Whose launcher's connection is gone, as far as the server knows; the core is told after the step under way.
    orphans: Vec<JobId>,
    calls: BTreeMap<Ticket, (usize, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Counts connections.
    epoch: u64,
    is_up: bool,
    /// It never connects again.
    is_done: bool,
}

impl World {
    /// A launcher comes into the world. Its program is known, should it launch one.
    pub fn launcher(&mut self, manner: Manner, program: Program) -> usize {
        let name = format!("model{}", self.programs.len());
        self.programs.insert(name.clone(), program);
        let launcher = self.launchers.all.len();
        self.launchers.all.push(ModelLauncher::new(name, manner));
        self.launchers.lines.push(Line::default());
        self.agenda.push(self.now, Item::LauncherDials { launcher });
        launcher
    }

    /// The application that a launcher speaks for, as far as it knows.
    pub fn application_of(&self, launcher: usize) -> Option<JobId> {
        self.launchers.all[launcher].job
    }

    pub(crate) fn n_launchers(&self) -> usize {
        self.launchers.all.len()
    }

    pub(super) fn launcher_dials(&mut self, launcher: usize) {
        let line = &mut self.launchers.lines[launcher];
        if line.is_up || line.is_done || self.launchers.all[launcher].has_ended() {
            return;
        }
        if self.server.is_none() {
            self.launcher_dials_later(launcher);
            return;
        }
        line.epoch += 1;
        line.is_up = true;
        let call = self.launchers.all[launcher].connects();
        self.launcher_says(launcher, call);
    }

    fn launcher_dials_later(&mut self, launcher: usize) {
        let backoff = self.dice.span(Span::from_millis(50), Span::from_secs(5));
        self.agenda.push(self.now + backoff, Item::LauncherDials { launcher });
    }

    /// Its connection breaks. It notices at once; the server after a while.
    pub(crate) fn break_launcher(&mut self, launcher: usize) {
        let line = &mut self.launchers.lines[launcher];
        if !line.is_up {
            return;
        }
        line.is_up = false;
        let epoch = line.epoch;
        self.trace.note(self.now, format_args!("launcher {launcher} loses its connection"));
        let notices = self.dice.span(Span::ZERO, Span::from_secs(10));
        self.agenda.push(self.now + notices, Item::LauncherMissed { launcher, epoch });
        self.launcher_dials_later(launcher);
    }

    /// The server's process is gone, and with it all its ends.
    pub(super) fn launchers_lose_the_server(&mut self) {
        self.launchers.known.clear();
        self.launchers.orphans.clear();
        self.launchers.calls.clear();
        for launcher in 0..self.launchers.lines.len() {
            self.break_launcher(launcher);
        }
    }

    pub(super) fn launcher_missed(&mut self, launcher: usize, epoch: u64) {
        let is_its = |(_, end): &(&JobId, &(usize, u64))| **end == (launcher, epoch);
        let Some(job) = self.launchers.known.iter().find(is_its).map(|(job, _)| *job) else { return };
        self.launchers.known.remove(&job);
        self.launchers.orphans.push(job);
    }

    /// A step is done, and whoever attached in it is known: which applications have no launcher any more?
    pub(super) fn launcher_orphans_are_told(&mut self) {
        for job in std::mem::take(&mut self.launchers.orphans) {
            if !self.launchers.known.contains_key(&job) {
                self.server_hears(Event::LauncherGone { job });
            }
        }
    }

    fn launcher_says(&mut self, launcher: usize, call: LauncherCall) {
        let epoch = self.launchers.lines[launcher].epoch;
        let item = Item::LauncherSays { launcher, epoch, call: Box::new(call) };
        self.agenda.push(self.now + USUAL_DELAY, item);
    }

    pub(super) fn server_hears_launcher(&mut self, launcher: usize, epoch: u64, call: LauncherCall) {
        let line = self.launchers.lines[launcher];
        if !line.is_up || line.epoch != epoch || self.server.is_none() {
            return;
        }
        if let LauncherCall::Finish { job, code, .. } = &call {
            self.checks.finish_said(*job, *code);
        }
        self.n_tickets += 1;
        let ticket = Ticket(self.n_tickets);
        self.launchers.calls.insert(ticket, (launcher, epoch));
        let who = user(&self.launchers.all[launcher].manner.user);
        self.server_hears(Event::LauncherCalled { ticket, who, call });
    }

    pub(super) fn answer_launcher(&mut self, ticket: Ticket, answer: Result<LauncherAnswer, Refusal>) {
        let Some((launcher, epoch)) = self.launchers.calls.remove(&ticket) else { return };
        if let Ok(LauncherAnswer::Subscribed { job, .. }) = &answer {
            self.checks.acknowledged.insert(*job);
            match self.launchers.all[launcher].manner.then {
                Then::FallsSilent | Then::NeverRequests => self.checks.breaks_rules(*job),
                Then::Accepts { .. } | Then::Launches | Then::Vanishes => {}
            }
            self.launchers.known.insert(*job, (launcher, epoch));
            let line = self.launchers.lines[launcher];
            if !line.is_up || line.epoch != epoch {
                self.agenda.push(self.now, Item::LauncherMissed { launcher, epoch });
            }
        }
        self.tell_launcher(launcher, epoch, Told::Answer(answer));
    }

    pub(super) fn notify_launcher(&mut self, job: JobId, notice: Notice) {
        // Without a launcher it is dropped: one that attaches is told everything.
        if let Some((launcher, epoch)) = self.launchers.known.get(&job).copied() {
            self.tell_launcher(launcher, epoch, Told::Notice(notice));
        }
    }

    fn tell_launcher(&mut self, launcher: usize, epoch: u64, told: Told) {
        let item = Item::LauncherHears { launcher, epoch, told: Box::new(told) };
        self.agenda.push(self.now + USUAL_DELAY, item);
    }

    pub(super) fn launcher_hears(&mut self, launcher: usize, epoch: u64, told: Told) {
        let line = self.launchers.lines[launcher];
        if !line.is_up || line.epoch != epoch {
            return;
        }
        self.trace.note(self.now, format_args!("launcher {launcher} hears {}", short_told(&told)));
        let Reaction { says, wakes_at, vanishes } = self.launchers.all[launcher].hears(self.now, told);
        for call in says {
            self.launcher_says(launcher, call);
        }
        if let Some(at) = wakes_at {
            self.agenda.push(at.max(self.now), Item::LauncherWakes { launcher });
        }
        if vanishes {
            self.launchers.lines[launcher].is_done = true;
            self.break_launcher(launcher);
        }
    }

    pub(super) fn launcher_wakes(&mut self, launcher: usize) {
        for call in self.launchers.all[launcher].wakes(self.now) {
            self.launcher_says(launcher, call);
        }
    }

    pub(super) fn server_hears(&mut self, event: Event) {
        if let Some(server) = &mut self.server {
            self.trace.note(self.now, format_args!("server hears: {}", crate::trace::short_event(&event)));
            server.take(event);
        }
    }

    /// What each launcher that is connected and waits believes to see.
    pub(crate) fn views_held(&self) -> impl Iterator<Item = (JobId, &rms_api::subscription::LauncherView)> {
        let is_connected = |(job, (launcher, epoch)): (&JobId, &(usize, u64))| {
            let line = self.launchers.lines[*launcher];
            let model = &self.launchers.all[*launcher];
            (line.is_up && line.epoch == *epoch && model.looks()).then_some((*job, &model.view))
        };
        self.launchers.known.iter().filter_map(is_connected)
    }
}
