//! The line on the standard error that says why `rms run` waits, and until when.

use rms_api::answer::{JobLine, Reason};
use rms_model::plain::plain;
use rms_model::{JobId, Span, Time};

use crate::explain;
use crate::output;
use crate::screen;
use crate::stamp;

/// The notice shown last; on a terminal the next one replaces it.
#[derive(Debug, Default)]
pub struct WaitNotice {
    shown: Option<(Option<Reason>, Option<Time>)>,
    is_drawn: bool,
}

impl WaitNotice {
    /// Shows the notice if it differs from the last one.
    pub fn show(&mut self, job: JobId, line: &JobLine, now: Time) {
        if !self.has_changed(line, now) {
            return;
        }
        let text = sentence(job, line, now);
        if output::is_stderr_terminal() {
            let text = screen::cut(&plain(&text), screen::columns().saturating_sub(1));
            output::draw_over(&text);
            self.is_drawn = true;
        } else {
            output::warn(&text);
        }
    }

    /// Clears the line of the terminal for the output of the job.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            output::draw_over("");
        }
    }

    /// Returns whether the notice has changed. Estimates change all the time: a start counts only if it moves by a
    /// tenth of the wait.
    fn has_changed(&mut self, line: &JobLine, now: Time) -> bool {
        let shown = (line.reason.clone().map(without_now), line.estimate);
        let is_old = self.shown.as_ref().is_some_and(|(reason, estimate)| {
            *reason == shown.0
                && match (*estimate, shown.1) {
                    (Some(was), Some(is)) => {
                        let apart = if was > is { was.since(is) } else { is.since(was) };
                        apart <= Span::from_millis((is.since(now).as_millis() / 10).max(5000))
                    }
                    (was, is) => was == is,
                }
        });
        if !is_old {
            self.shown = Some(shown);
        }
        !is_old
    }
}

/// Returns the reason without the parts that change with time.
fn without_now(mut reason: Reason) -> Reason {
    match &mut reason {
        Reason::Blocked { by, from, until, lenders, .. } => {
            let times = by.iter_mut().flat_map(|blocker| [&mut blocker.from, &mut blocker.until]);
            times.chain([from, until]).for_each(|time| *time = Time::EPOCH);
            *lenders = None;
        }
        Reason::NotPlanned { next_pass: time } | Reason::Behind { until: time, .. } => *time = Time::EPOCH,
        Reason::AgentsExpected { until, .. } => *until = Time::EPOCH,
        Reason::NoRequest { until } | Reason::LauncherAway { until, .. } => *until = None,
        Reason::Held { .. } | Reason::NotBefore { .. } | Reason::BeyondDepth { .. } | Reason::TooFewNodes { .. } => {}
    }
    reason
}

fn sentence(job: JobId, line: &JobLine, now: Time) -> String {
    let until = match line.estimate {
        Some(at) if at > now => {
            format!("until about {} (in {})", stamp::clock(at, now), stamp::brief(at.since(now)))
        }
        Some(_) => "for a moment".to_owned(),
        None => "with no start estimate yet".to_owned(),
    };
    let why = line.reason.as_ref().map(|reason| format!(": {}", explain::reason(reason, &[], now)));
    format!("rms: job {job} waits {until}{}", why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rms_api::answer::{Blocker, JobState};

    use super::*;
    use crate::verb::golden::blocked;

    #[test]
    fn a_notice_is_told_again_only_if_somebody_else_is_in_the_way_or_the_start_moves() {
        let now = Time::from_secs(1_795_177_800);
        let mut line = blocked();
        let mut notice = WaitNotice::default();
        assert!(notice.has_changed(&line, now), "the first one");
        assert!(!notice.has_changed(&line, now + Span::from_secs(2)), "nothing has changed");
        line.estimate = line.estimate.map(|at| at + Span::from_secs(3));
        assert!(!notice.has_changed(&line, now), "estimates waver");
        line.estimate = line.estimate.map(|at| at + Span::from_mins(20));
        assert!(notice.has_changed(&line, now), "much later");
        let Some(Reason::Blocked { by, .. }) = &mut line.reason else { panic!("{line:?}") };
        let (from, until) = (now, now + Span::from_secs(60));
        by.push(Blocker {
            job: JobId(99),
            state: JobState::Started,
            nodes: 1,
            from,
            until,
            is_offer: false,
            is_promised: false,
        });
        assert!(notice.has_changed(&line, now), "somebody else");
        let text = sentence(JobId(5), &line, now);
        assert!(text.starts_with("rms: job 5 waits until about 13:40:03 UTC (in 1h10m): it needs 4 nodes"), "{text}");
    }
}
