//! Timeouts of launchers: no request, no answer to a start, no connection, no end.

use rms_model::settings::LauncherPolicy;
use rms_model::{JobId, Outcome, Time};

use super::Launchers;
use crate::notices::launcher_of;
use crate::state::fact::Fact;
use crate::state::job::LauncherLink;
use crate::step::Step;

impl Launchers<'_> {
    /// Ends applications whose launchers are overdue, one after the other.
    pub(crate) fn end_late_launchers(&mut self, now: Time, step: &mut Step) {
        let is_late = |(at, _): &(Time, JobId)| *at <= now;
        while let Some((_, job)) = self.jobs.state().next_request_timeout().filter(is_late) {
            let timeout = self.jobs.state().settings().request_timeout;
            let reason = format!("its launcher sent no request within {timeout}");
            self.jobs.end_for_violation(now, step, job, reason);
        }
        while let Some((_, job)) = self.jobs.state().next_answer_timeout().filter(is_late) {
            let timeout = self.jobs.state().settings().start_timeout;
            let reason = format!("it was started, and its launcher neither launched nor accepted within {timeout}");
            self.jobs.end_for_violation(now, step, job, reason);
        }
        while let Some((_, job)) = self.jobs.state().next_reconnect_timeout().filter(is_late) {
            self.launcher_lost(now, step, job);
        }
        while let Some((_, job)) = self.jobs.state().next_wall_end().filter(is_late) {
            self.jobs.end_in_any_state(now, step, job, Outcome::WallTime);
        }
    }

    /// Handles a launcher that was away for too long. Nodes that it uses by its own means may be idle, and an
    /// application that has not started never would start. Processes that the agents started are supervised, so they
    /// may run on.
    fn launcher_lost(&mut self, now: Time, step: &mut Step, job: JobId) {
        let launcher = launcher_of(&self.jobs.state().jobs()[&job]);
        let (runs_alone, awaited) = (launcher.has_launched(), launcher.awaited);
        let is_let_run = match self.jobs.state().settings().launcher_policy {
            LauncherPolicy::End => false,
            LauncherPolicy::Run => runs_alone,
        };
        if is_let_run {
            let link = LauncherLink::Lost { since: now };
            self.jobs.context.record(step, Fact::LauncherLinkChanged { job, link, awaited });
        } else {
            self.jobs.end_in_any_state(now, step, job, Outcome::LauncherLost);
        }
    }
}
