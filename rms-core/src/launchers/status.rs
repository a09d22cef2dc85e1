//! Counts the load that external launchers have caused.

use rms_api::answer::LauncherStatus;
use rms_api::refusal::Refusal;
use rms_api::subscription::{AdaptationDelays, LauncherAnswer};
use rms_model::Span;

use crate::context::Context;
use crate::state::State;

/// Counts since the server started.
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

    /// Counts an accepted request; `delay` is the time since its view was sent.
    pub(super) fn request(&mut self, bytes: u64, delay: Option<Span>) {
        self.n_requests += 1;
        self.request_bytes += bytes;
        if let Some(delay) = delay {
            self.adaptations.add(delay);
        }
    }
}

impl LauncherCounts {
    fn ghost_node_times(state: &State) -> Vec<(String, Span)> {
        let name = |cluster| state.clusters().get(cluster).cloned().unwrap_or_default();
        state.ghost_node_time_at.iter().map(|(cluster, span)| (name(cluster), *span)).collect()
    }

    pub(crate) fn status(&self, context: &Context) -> LauncherStatus {
        let launchers = context.state().launchers();
        let sent = context.streams.sent();
        LauncherStatus {
            n_launchers: launchers.clone().count() as u32,
            n_connected: launchers.filter(|launcher| launcher.is_connected()).count() as u32,
            n_notices: sent.notices,
            notice_bytes: sent.bytes,
            n_requests: self.n_requests,
            request_bytes: self.request_bytes,
            n_refused: self.n_refused,
            adaptations: self.adaptations.clone(),
            ghost_node_time: LauncherCounts::ghost_node_times(context.state()),
        }
    }
}
