//! Notices that launchers are sent unasked: first views, starts and ends.

use rms_api::subscription::{Grant, GrantedNode, Notice};
use rms_model::{JobId, Outcome, Time};

use crate::context::Context;
use crate::effect::Effect;
use crate::state::job::{Job, Launcher};
use crate::step::Step;

impl Context {
    pub(crate) fn tell_first_view(&mut self, now: Time, step: &mut Step, job: JobId) {
        if let Some(change) = self.first_view(now, job) {
            step.order(Effect::Notify { job, notice: Notice::Changed(change) });
        }
    }

    /// Tells a launcher that its application starts (001: startNotify).
    pub(crate) fn tell_start(&mut self, step: &mut Step, job: JobId) {
        let entry = &self.state().jobs()[&job];
        if entry.launcher.is_none() {
            return;
        }
        if let Some(grant) = self.grant(entry) {
            step.order(Effect::Notify { job, notice: Notice::Started(grant) });
        }
        self.streams.forget(job);
    }

    fn grant(&self, entry: &Job) -> Option<Grant> {
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let until = started.at + started.request.wall;
        let timeout = self.state().settings().start_timeout;
        let answer_until = match entry.launcher_timers().answer {
            Some(since) if !timeout.is_zero() => (since + timeout).min(until),
            Some(_) | None => until,
        };
        let node = |id: &rms_model::NodeId| {
            let part = started.grants.get(id).cloned();
            let node = &self.state().nodes()[id];
            GrantedNode {
                name: node.name.clone(),
                cluster: node.cluster,
                address: node.address.clone(),
                cpus: started.cpus_granted(*id, &node.inventory),
                part,
            }
        };
        Some(Grant {
            tag: launcher_of(entry).tag.unwrap_or_default(),
            run: entry.run,
            at: started.at,
            request: started.request.clone(),
            until,
            answer_until,
            nodes: started.nodes.iter().map(node).collect(),
        })
    }

    /// Tells a launcher that its application has ended, and forgets what is known of the launcher.
    pub(crate) fn tell_end(&mut self, step: &mut Step, job: JobId, has_launcher: bool, outcome: &Outcome) {
        if has_launcher {
            step.order(Effect::Notify { job, notice: Notice::Ended { outcome: outcome.clone() } });
            self.streams.forget(job);
            self.call_rates.remove(&job);
        }
    }
}

pub(crate) fn launcher_of(entry: &Job) -> &Launcher {
    entry.launcher.as_ref().expect("the caller has seen that a launcher serves it")
}
