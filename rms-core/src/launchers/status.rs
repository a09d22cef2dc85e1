//! Counts what external launchers have cost.

use rms_api::answer::LauncherStatus;
use rms_api::refusal::Refusal;
use rms_api::subscription::{AdaptationDelays, LauncherAnswer};
use rms_model::Span;

use crate::rms::Rms;
use crate::state::job::{Job, Launcher};

/// Since the server started.
#[derive(Clone, Debug, Default)]
pub(crate) struct LauncherCounts {
    n_requests: u64,
    request_bytes: u64,
    n_refused: u64,
    adaptations: AdaptationDelays,
}

impl LauncherCounts {
    pub(super) fn count(&mut self, answer: &Result<LauncherAnswer, Refusal>) {
        self.n_refused += u64::from(answer.is_err());
    }

    /// A request was taken; `delay` is the time since its view was sent.
    pub(super) fn request(&mut self, bytes: u64, delay: Option<Span>) {
        self.n_requests += 1;
        self.request_bytes += bytes;
        if let Some(delay) = delay {
            self.adaptations.add(delay);
        }
    }
}

impl Rms {
    fn ghost_host_times(&self) -> Vec<(String, Span)> {
        let name = |cluster| self.state.clusters().get(cluster).cloned().unwrap_or_default();
        self.state.ghost_host_time_at.iter().map(|(cluster, span)| (name(cluster), *span)).collect()
    }

    pub(crate) fn launcher_status(&self) -> LauncherStatus {
        let launchers = || self.state.jobs().values().filter_map(|entry: &Job| entry.launcher.as_ref());
        let sent = self.streams.sent();
        LauncherStatus {
            n_launchers: launchers().count() as u32,
            n_connected: launchers().filter(|launcher: &&Launcher| launcher.is_connected()).count() as u32,
            n_notices: sent.notices,
            notice_bytes: sent.bytes,
            n_requests: self.launcher_counts.n_requests,
            request_bytes: self.launcher_counts.request_bytes,
            n_refused: self.launcher_counts.n_refused,
            adaptations: self.launcher_counts.adaptations.clone(),
            ghost_host_time: self.ghost_host_times(),
        }
    }
}
