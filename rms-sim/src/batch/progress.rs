//! The progress of a job whose nodes change while it runs.

use rms_model::{Span, Speedup, Time};

/// The work of a job whose speed depends on its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// The number of nodes with which it runs for the workload's run time.
    pub size: u32,
    /// Its speed on other numbers of nodes.
    pub speedup: Speedup,
    /// For how long it pauses at each change of its nodes, while it redistributes its data.
    pub pause: Span,
    /// It is killed after this time, whatever its progress.
    pub wall: Span,
}

/// The progress of a running job.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    elastic: Elastic,
    /// The work left, in milliseconds times thousandths of the speed of one node.
    left: i128,
    speed: i128,
    /// When it starts, or started, to work with its current nodes.
    since: Time,
    started: Time,
    n_nodes: u32,
    /// When its nodes last changed, and its node-milliseconds before that.
    changed: Time,
    node_millis: i128,
    n_changes: u32,
}

impl Progress {
    pub(super) fn new(elastic: Elastic, run: Span, at: Time, n_nodes: u32) -> Progress {
        let left = i128::from(run.as_millis()) * speed(&elastic, elastic.size);
        let speed = speed(&elastic, n_nodes);
        let (since, started, changed) = (at, at, at);
        Progress { elastic, left, speed, since, started, n_nodes, changed, node_millis: 0, n_changes: 0 }
    }

    /// Changes the number of its nodes.
    pub(super) fn resize(&mut self, at: Time, n_nodes: u32) {
        self.left -= i128::from(at.since(self.since).as_millis()) * self.speed;
        // Another change during the redistribution restarts the redistribution.
        self.since = at + self.elastic.pause;
        self.speed = speed(&self.elastic, n_nodes);
        self.node_millis = self.node_millis_until(at);
        self.changed = at;
        self.n_nodes = n_nodes;
        self.n_changes += 1;
    }

    /// Returns when it will be done, if nothing changes.
    pub(super) fn end(&self) -> Time {
        let left = self.left.max(0);
        let millis = (left + self.speed - 1) / self.speed;
        let end = self.since + Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
        end.min(self.started + self.elastic.wall)
    }

    /// Returns its node-time until `until`.
    pub(super) fn node_time(&self, until: Time) -> Span {
        Span::from_millis(i64::try_from(self.node_millis_until(until)).unwrap_or(i64::MAX))
    }

    pub(super) fn n_changes(&self) -> u32 {
        self.n_changes
    }

    fn node_millis_until(&self, until: Time) -> i128 {
        self.node_millis + i128::from(until.since(self.changed).as_millis()) * i128::from(self.n_nodes)
    }
}

/// Returns its speed, which is never 0: whatever was declared, every job ends.
fn speed(elastic: &Elastic, n_nodes: u32) -> i128 {
    elastic.speedup.at(n_nodes).map_or_else(|| i128::from(n_nodes) * 1000, i128::from).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: i64) -> Time {
        Time::from_secs(secs)
    }

    fn elastic(pause: i64) -> Elastic {
        let speedup = Speedup(vec![(1, 1000), (2, 1500), (4, 2000)]);
        Elastic { size: 2, speedup, pause: Span::from_secs(pause), wall: Span::from_secs(10_000) }
    }

    #[test]
    fn a_job_that_keeps_its_nodes_runs_as_long_as_its_size_says() {
        let run = Span::from_secs(100);
        assert_eq!(Progress::new(elastic(0), run, secs(7), 2).end(), secs(107));
        assert_eq!(Progress::new(elastic(0), run, secs(7), 4).end(), secs(82));
        assert_eq!(Progress::new(elastic(0), run, secs(7), 1).end(), secs(157));
    }

    #[test]
    fn what_it_has_done_counts_and_each_change_costs_a_pause() {
        let mut progress = Progress::new(elastic(5), Span::from_secs(100), secs(0), 2);
        progress.resize(secs(40), 4);
        // 60 s of speed 1.5 are left: 45 s of speed 2, after a pause of 5 s.
        assert_eq!(progress.end(), secs(90));
        assert_eq!(progress.node_time(secs(90)), Span::from_secs(40 * 2 + 50 * 4));
        progress.resize(secs(42), 2);
        assert_eq!(progress.end(), secs(107), "it did nothing between");
        assert_eq!(progress.n_changes(), 2);
    }

    #[test]
    fn nobody_runs_beyond_his_wall_time() {
        let short = Elastic { wall: Span::from_secs(50), ..elastic(0) };
        assert_eq!(Progress::new(short, Span::from_secs(100), secs(1), 2).end(), secs(51));
    }
}
