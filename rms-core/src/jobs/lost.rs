//! Handles jobs on nodes that cannot be reached or are no longer available.

use rms_api::desired::NodeExit;
use rms_model::{JobId, NodeId, Outcome, Run, Time};

use super::{Jobs, ShareEnd};
use crate::state::job::Share;
use crate::step::Step;

impl Jobs<'_> {
    /// Ends the jobs of a node that is unreachable, which `reason` explains; their shares there count as ended. If the
    /// agent returns with them, they are fenced.
    pub(crate) fn give_up_shares(&mut self, now: Time, step: &mut Step, node: NodeId, reason: &str) {
        let holders: Vec<JobId> = self.state().nodes()[&node].holders.iter().copied().collect();
        for job in holders {
            let run = self.state().jobs()[&job].run;
            let is_alive = self.share(job, run, node).is_some_and(|share| share != Share::Ended);
            let is_bare = self.state().jobs()[&job].started().is_some_and(|started| started.shares.is_empty());
            if is_alive {
                let exit = NodeExit::Vanished { reason: reason.to_owned() };
                self.share_ended(now, step, job, node, ShareEnd::seen(exit));
            } else if is_bare {
                self.end_lost(now, step, job, node, reason);
            }
        }
    }

    /// Ends or requeues a job because `node` is no longer available, which `reason` explains.
    pub(crate) fn end_lost(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, reason: &str) {
        let node_name = self.state().nodes()[&node].name.clone();
        let outcome = Outcome::NodeLost { node: node_name, reason: reason.to_owned() };
        self.end_lost_as(now, step, job, node, outcome);
    }

    /// Ends or requeues a job for the reason `outcome`, which its record shows.
    pub(crate) fn end_lost_as(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, outcome: Outcome) {
        // Nodes that are only held for it, or have not arrived yet, do not end it.
        if self.state().jobs()[&job].is_awaited(node) {
            self.negotiations().arrival_failed(now, step, job, node);
            return;
        }
        let entry = &self.state().jobs()[&job];
        let is_promised = entry.promised_nodes().any(|promised| promised == node);
        let is_running = entry.started().is_some_and(|started| started.ending.is_none() && !started.is_leaving(node));
        if is_running && !is_promised {
            let requeue = entry.spec.may_run_again(self.state().settings().lost_policy);
            self.end(now, step, job, outcome, requeue);
        }
    }

    pub(crate) fn share(&self, job: JobId, run: Run, node: NodeId) -> Option<Share> {
        let entry = self.state().jobs().get(&job)?;
        let started = entry.started()?;
        (entry.run == run).then(|| started.shares.get(&node).copied()).flatten()
    }
}
