//! What is known of an external launcher that serves an application (001, §4.2).

use rms_api::subscription::{Filter, Tag};
use rms_model::{JobId, Span, Time};
use serde::{Deserialize, Serialize};

use super::{Job, Phase};

/// The launcher of one application, and what it last said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launcher {
    pub filter: Filter,
    pub link: LauncherLink,
    /// The time since which a first request is expected: since the subscription, or since a hold was lifted.
    pub expected_since: Time,
    /// The tag of the newest request; once the application has started, of the granted one.
    pub tag: Option<Tag>,
    /// The launcher's answer to the present start.
    pub answer: Option<StartAnswer>,
    /// Which of all first requests was its own, from 1 on: that decides between those of one instant. 0: it has sent
    /// none, or in an older version.
    #[serde(default)]
    pub first_request: u64,
    /// The cores of each node in the slice of its newest request, which its application takes of further nodes, too: the
    /// tasks that it launches may need fewer, or more. 0: whole nodes.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub slice_cores: u32,
    /// For how long it was awaited over earlier connections: for its first request, or for its answer to the start.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub awaited: Span,
}

/// The state of the launcher's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherLink {
    Connected {
        since: Time,
    },
    /// The connection is gone; another may come.
    Away {
        since: Time,
    },
    /// Away for longer than `launcher_grace`; its processes continue without it (`launcher_policy`).
    Lost {
        since: Time,
    },
}

/// How a launcher answered the start of its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartAnswer {
    /// The launcher uses the nodes by its own means.
    Accepted { at: Time },
    /// The agents start its processes.
    Launched { at: Time },
}

/// The times since when the server waits for a launcher, or when a limit ends; which of them apply depends on the job's
/// state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LauncherTimers {
    /// The time since which the first request is awaited.
    pub(crate) request: Option<Time>,
    /// The time since which the launcher is to launch or accept.
    pub(crate) answer: Option<Time>,
    /// The time since which the launcher is to reconnect.
    pub(crate) attach: Option<Time>,
    /// The end of the wall time, if no agent counts it.
    pub(crate) wall: Option<Time>,
}

impl Launcher {
    pub(crate) fn new(filter: Filter, now: Time) -> Launcher {
        let (link, awaited) = (LauncherLink::Connected { since: now }, Span::ZERO);
        Launcher {
            filter,
            link,
            expected_since: now,
            awaited,
            tag: None,
            answer: None,
            first_request: 0,
            slice_cores: 0,
        }
    }

    pub fn is_connected(&self) -> bool {
        match self.link {
            LauncherLink::Connected { .. } => true,
            LauncherLink::Away { .. } | LauncherLink::Lost { .. } => false,
        }
    }

    pub fn has_launched(&self) -> bool {
        match self.answer {
            Some(StartAnswer::Launched { .. }) => true,
            Some(StartAnswer::Accepted { .. }) | None => false,
        }
    }
}

impl Job {
    /// Returns the cores of each node that the launcher of the job requested as a slice.
    pub(crate) fn slice_cores(&self) -> Option<u32> {
        self.launcher.as_ref().map(|launcher| launcher.slice_cores).filter(|cores| *cores > 0)
    }

    /// Returns since when the launcher is away, so that it cannot be notified of a start.
    pub(crate) fn launcher_away_since(&self) -> Option<Time> {
        match self.launcher.as_ref()?.link {
            LauncherLink::Connected { .. } => None,
            LauncherLink::Away { since } | LauncherLink::Lost { since } => Some(since),
        }
    }

    pub(crate) fn launcher_timers(&self) -> LauncherTimers {
        let Some(launcher) = &self.launcher else { return LauncherTimers::default() };
        // Time without a connection to the launcher does not count against it; otherwise a restart of the server would
        // end all.
        let (connected, away) = match launcher.link {
            LauncherLink::Connected { since } => (Some(since), None),
            LauncherLink::Away { since } => (None, Some(since)),
            LauncherLink::Lost { since: _ } => (None, None),
        };
        let nothing = LauncherTimers::default();
        match &self.phase {
            Phase::Submitted { hold: None } if self.requested.is_none() => {
                let request = connected.map(|since| since.max(launcher.expected_since) - launcher.awaited);
                LauncherTimers { request, attach: away, ..nothing }
            }
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => LauncherTimers { attach: away, ..nothing },
            Phase::Started(started) if started.ending.is_none() => {
                let wall = Some(started.at + started.request.wall);
                match launcher.answer {
                    None => {
                        let answer = connected.map(|since| since.max(started.at) - launcher.awaited);
                        LauncherTimers { answer, attach: away, wall, ..nothing }
                    }
                    Some(StartAnswer::Accepted { at: _ }) => LauncherTimers { attach: away, wall, ..nothing },
                    Some(StartAnswer::Launched { at: _ }) => LauncherTimers { attach: away, ..nothing },
                }
            }
            Phase::Started(_) | Phase::Ghost(_) => nothing,
        }
    }

    /// Returns for how long the launcher was awaited while it was connected: for its first request, or for its answer to
    /// the start.
    pub(crate) fn launcher_awaited(&self, now: Time) -> Span {
        let LauncherTimers { request, answer, .. } = self.launcher_timers();
        let before = self.launcher.as_ref().map_or(Span::ZERO, |launcher| launcher.awaited);
        request.or(answer).map_or(before, |since| now.since(since))
    }

    /// Returns the granted wall time left when the work begins: the time until the launcher launched counts against it.
    pub(crate) fn wall_of_work(&self) -> Option<Span> {
        let started = self.started()?;
        let launched = match self.launcher.as_ref().and_then(|launcher| launcher.answer) {
            Some(StartAnswer::Launched { at }) => at,
            Some(StartAnswer::Accepted { at: _ }) | None => started.at,
        };
        let until = started.at + started.request.wall;
        Some(until.since(launched).max(Span::from_millis(1)))
    }
}

/// Launcher timers by kind, ordered by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LauncherTimerIndex {
    pub(crate) requests: std::collections::BTreeSet<(Time, JobId)>,
    pub(crate) answers: std::collections::BTreeSet<(Time, JobId)>,
    pub(crate) attaches: std::collections::BTreeSet<(Time, JobId)>,
    pub(crate) walls: std::collections::BTreeSet<(Time, JobId)>,
}

impl LauncherTimerIndex {
    pub(crate) fn insert(&mut self, job: JobId, entry: &Job) {
        let LauncherTimers { request, answer, attach, wall } = entry.launcher_timers();
        self.requests.extend(request.map(|at| (at, job)));
        self.answers.extend(answer.map(|at| (at, job)));
        self.attaches.extend(attach.map(|at| (at, job)));
        self.walls.extend(wall.map(|at| (at, job)));
    }

    pub(crate) fn remove(&mut self, job: JobId, entry: &Job) {
        let LauncherTimers { request, answer, attach, wall } = entry.launcher_timers();
        request.map(|at| self.requests.remove(&(at, job)));
        answer.map(|at| self.answers.remove(&(at, job)));
        attach.map(|at| self.attaches.remove(&(at, job)));
        wall.map(|at| self.walls.remove(&(at, job)));
    }
}
