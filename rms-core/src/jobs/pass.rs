//! 001, Fig. 5: plans, and turns the plan into facts.

use rms_api::subscription::Notice;
use rms_model::{JobId, Policy, Span, Time};

use super::Jobs;
use crate::effect::Effect;
use crate::plan::Placed;
use crate::plan::fit::Fit;
use crate::plan::slowdown::Fraction;
use crate::state::fact::Fact;
use crate::state::job::{Promise, SOON};
use crate::state::node::Node;
use crate::step::Step;

impl Jobs<'_> {
    /// Returns whether a job is waited for at a start that was promised and has come.
    fn is_due(&self, job: JobId, now: Time) -> bool {
        let promise = self.state().jobs()[&job].promised.as_ref();
        promise.is_some_and(|promise| (promise.at..promise.at + SOON).contains(&now))
    }

    /// Returns the durations of the stages, if they are not those that were requested.
    fn spans_of(&self, job: JobId, fit: &Fit) -> Vec<Span> {
        let evolving = self.state().jobs()[&job].spec.evolving.as_ref();
        match evolving.is_some_and(|evolving| evolving.stages == fit.expanded) {
            true => Vec::new(),
            false => fit.expanded.stages().iter().map(|stage| stage.span).collect(),
        }
    }

    /// Runs a pass. `by_nodes` is a waiting job for which others could give back nodes, and what that would add to
    /// their slowdowns.
    pub(crate) fn pass(&mut self, now: Time, step: &mut Step, by_nodes: Option<(JobId, Fraction)>) {
        if self.state().settings().policy == Policy::Slowdown {
            self.share_nodes(now, step, by_nodes);
        }
        let n_queued = self.state().n_queued();
        let (plan, changes) = self.context.pass(now);
        let is_promised = self.state().settings().policy == Policy::Conservative;
        let mut starts = Vec::new();
        let mut next_start = None;
        // The views of these were taken before those behind them started.
        let (mut is_watched, mut has_unseen_start) = (false, false);
        for placement in plan.placements {
            let job = placement.job;
            let promise = match placement.outcome {
                // 001, §5.3.1: a launcher that is away cannot be notified of a start. The resources of this start are
                // kept for it in this pass, and so is its place before the jobs behind it.
                Placed::Now { .. } if self.state().jobs()[&job].launcher_away_since().is_some() => {
                    let (nodes, spans) = (Vec::new(), Vec::new());
                    Some(Promise { at: now + Span::from_secs(1), option_idx: 0, nodes, spans })
                }
                Placed::Now { request, nodes, slices, row, fit } => {
                    has_unseen_start |= is_watched;
                    self.start(now, step, job, request, nodes, &slices);
                    fit.iter().for_each(|fit| self.context.begin_course(now, step, job, fit, &row));
                    continue;
                }
                // A promise that is due keeps its time while others make room for it, or an agent restarts.
                Placed::Later { at, .. } if at <= now && self.is_due(job, now) => continue,
                // A start for which only agents are missing is promised for now, and waited for like one that is due.
                Placed::Later { option_idx, at, nodes, fit, .. } => {
                    if fit.is_some() {
                        // No event marks the planned start of an evolving application.
                        let at = if at > now { at } else { now + Span::from_secs(1) };
                        next_start = Some(next_start.map_or(at, |next: Time| next.min(at)));
                    }
                    let is_there = |node| self.state().nodes().get(node).is_some_and(Node::is_connected);
                    let is_next = at <= now + Span::from_millis(1) && !nodes.iter().all(is_there);
                    let spans = fit.map_or(Vec::new(), |fit| self.spans_of(job, &fit));
                    Some(Promise { at: if is_next { now } else { at.max(now) }, option_idx, nodes, spans })
                }
                Placed::Never { .. } => None,
            };
            is_watched |= self.state().jobs()[&job].launcher.is_some();
            if is_promised && self.state().jobs()[&job].promised != promise {
                starts.push((job, promise));
            }
        }
        let refresh = self.state().settings().view_refresh;
        let next_view = (has_unseen_start && !refresh.is_zero()).then(|| now + refresh);
        self.context.passes.next_start = [next_start, next_view].into_iter().flatten().min();
        // Others have come within the depth of the queue in the place of those that have started.
        let has_started = self.state().n_queued() < n_queued;
        self.context.passes.wanted |=
            has_started && self.state().depth().is_some_and(|depth| n_queued > depth as usize);
        if !starts.is_empty() {
            self.context.record(step, Fact::StartsPromised { starts });
        }
        let unseen: Vec<JobId> = self.state().unseen().iter().copied().collect();
        if !unseen.is_empty() {
            self.context.record(step, Fact::JobsQueued { jobs: unseen });
        }
        for (job, change) in changes {
            step.order(Effect::Notify { job, notice: Notice::Changed(change) });
        }
    }
}
