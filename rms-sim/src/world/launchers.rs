//! Launchers and their connections: what they send and receive, how connections break, and when they connect again.

use std::collections::BTreeMap;

use rms_api::subscription::{LauncherAnswer, LauncherCall, Notice};
use rms_core::Ticket;
use rms_core::server_loop::{ChannelId, Denial, Inbound};
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
    /// The launchers' ends: the number of the current connection, if there is one.
    lines: Vec<Line>,
    calls: BTreeMap<Ticket, (usize, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Counts the connections of this launcher.
    epoch: u64,
    is_up: bool,
    /// It never connects again.
    is_done: bool,
}

impl World {
    /// Adds a launcher to the world. Its program is registered in case it launches one.
    pub fn launcher(&mut self, manner: Manner, program: Program) -> usize {
        let name = format!("model{}", self.programs.len());
        self.programs.insert(name.clone(), program);
        let launcher = self.launchers.all.len();
        self.launchers.all.push(ModelLauncher::new(name, manner));
        self.launchers.lines.push(Line::default());
        self.agenda.push(self.now, Item::LauncherDials { launcher });
        launcher
    }

    /// Returns the application that a launcher serves, as far as it knows.
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

    /// Breaks its connection. The launcher notices at once; the server after a while.
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

    /// Handles the death of the server's process, with all its ends of the connections.
    pub(super) fn launchers_lose_the_server(&mut self) {
        self.launchers.calls.clear();
        for launcher in 0..self.launchers.lines.len() {
            self.break_launcher(launcher);
        }
    }

    pub(super) fn launcher_missed(&mut self, launcher: usize, epoch: u64) {
        self.server_hears(Inbound::LauncherGone { channel: channel_of(launcher, epoch) });
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
        self.server_hears(Inbound::LauncherCalled { ticket, channel: channel_of(launcher, epoch), who, call });
    }

    pub(super) fn answer_launcher(&mut self, ticket: Ticket, answer: Result<LauncherAnswer, Denial>) {
        let Some((launcher, epoch)) = self.launchers.calls.remove(&ticket) else { return };
        if let Ok(LauncherAnswer::Subscribed { job, .. }) = &answer {
            self.checks.acknowledged.insert(*job);
            match self.launchers.all[launcher].manner.then {
                Then::FallsSilent | Then::NeverRequests => self.checks.breaks_rules(*job),
                Then::Accepts { .. } | Then::Launches | Then::Vanishes => {}
            }
        }
        let told = match answer {
            Ok(given) => Told::Answer(Ok(given)),
            Err(Denial::Refused(refusal)) => Told::Answer(Err(refusal)),
            Err(Denial::Failing(_)) => Told::Failing,
        };
        self.tell_launcher(launcher, epoch, told);
    }

    pub(super) fn notify_launcher(&mut self, channel: ChannelId, notice: Notice) {
        let (launcher, epoch) = connection_of(channel);
        self.tell_launcher(launcher, epoch, Told::Notice(notice));
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
        if matches!(told, Told::Failing) {
            self.break_launcher(launcher);
            return;
        }
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

    /// Returns the view of each launcher that is connected and waits.
    pub(crate) fn views_held(&self) -> impl Iterator<Item = (JobId, &rms_api::subscription::LauncherView)> {
        let is_connected = |(idx, model): (usize, &'_ ModelLauncher)| {
            let (line, job) = (self.launchers.lines[idx], model.job?);
            let speaker = self.server.as_ref()?.server_loop.launcher_of(job)?;
            let is_known = line.is_up && speaker == channel_of(idx, line.epoch);
            (is_known && model.looks()).then_some(job)
        };
        let launchers = self.launchers.all.iter().enumerate();
        launchers.filter_map(move |(idx, model)| Some((is_connected((idx, model))?, &model.view)))
    }
}

fn channel_of(launcher: usize, epoch: u64) -> ChannelId {
    ChannelId((launcher as u64) << 32 | epoch)
}

fn connection_of(ChannelId(channel): ChannelId) -> (usize, u64) {
    ((channel >> 32) as usize, channel & u64::from(u32::MAX))
}
