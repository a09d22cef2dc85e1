//! The closing table: how every job fared, what that means for the whole, and whether anything was lost.

use std::fmt::Write;
use std::time::Duration;

use crate::workload::{Planned, Work};

/// How a job fared, as the history tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Fared {
    pub job: u64,
    pub name: String,
    /// Seconds since the epoch.
    pub submitted: f64,
    pub started: Option<f64>,
    pub ended: Option<f64>,
    pub nodes: Vec<String>,
    /// One word, such as `completed` or `failed`.
    pub state: String,
    pub code: Option<i64>,
    /// How many times it was started.
    pub run: u64,
}

/// A job of the programme, with what came of it.
#[derive(Clone, Debug)]
pub struct Closed {
    pub planned: Planned,
    /// Nothing if the system does not know the job any more.
    pub fared: Option<Fared>,
    /// What its N-body line says, for MPI programs.
    pub checksum: Option<String>,
}

/// The table, the means, and what went wrong; nothing wrong means success.
pub fn close(jobs: &[Closed], n_nodes: u32) -> (String, Vec<String>) {
    let mut text = format!(
        "{:<4} {:<12} {:<16} {:>5} {:>8} {:>8} {:>8} {:>9}  {:<10} {}\n",
        "job", "name", "work", "nodes", "wait", "run", "response", "slowdown", "state", "on"
    );
    let mut wrong = Vec::new();
    let mut sums = Sums::default();
    for closed in jobs {
        let Planned { name, nodes, work, .. } = &closed.planned;
        let Some(fared) = &closed.fared else {
            wrong.push(format!("{name} was acknowledged, but nobody knows it any more"));
            continue;
        };
        judge(closed, fared, &mut wrong);
        let (Some(started), Some(ended)) = (fared.started, fared.ended) else { continue };
        let (wait, run, response) = (started - fared.submitted, ended - started, ended - fared.submitted);
        let slowdown = slowdown(response, run);
        sums.add(fared.submitted, ended, wait, run, response, slowdown, *nodes);
        let state = match fared.code {
            Some(code) if code != 0 => format!("{} {code}", fared.state),
            Some(_) | None => fared.state.clone(),
        };
        let _ = writeln!(
            text,
            "{:<4} {name:<12} {:<16} {nodes:>5} {wait:>7.1}s {run:>7.1}s {response:>7.1}s {slowdown:>9.2}  {state:<10} {}",
            fared.job,
            word(*work),
            fared.nodes.join(","),
        );
    }
    judge_checksums(jobs, &mut wrong);
    let _ = write!(text, "\n{}", sums.summary(n_nodes));
    (text, wrong)
}

fn word(work: Work) -> String {
    match work {
        Work::Sleep { code: 0 } => "sleep".to_owned(),
        Work::Sleep { .. } => "sleep, fails".to_owned(),
        Work::Mpirun(mpi) => format!("mpirun {}", mpi.name()),
        Work::Direct(mpi) => format!("rms run {}", mpi.name()),
    }
}

fn judge(closed: &Closed, fared: &Fared, wrong: &mut Vec<String>) {
    let name = &closed.planned.name;
    let expected = match closed.planned.work {
        Work::Sleep { code: 0 } | Work::Mpirun(_) | Work::Direct(_) => ("completed", 0),
        Work::Sleep { code } => ("failed", i64::from(code)),
    };
    if (fared.state.as_str(), fared.code) != (expected.0, Some(expected.1)) {
        let (state, code) = expected;
        wrong.push(format!("{name} ended as {} {:?}, not as {state} {code}", fared.state, fared.code));
    }
    if fared.run != 1 {
        wrong.push(format!("{name} was started {} times", fared.run));
    }
    if fared.nodes.len() != closed.planned.nodes as usize {
        wrong.push(format!("{name} got {} nodes, not {}", fared.nodes.len(), closed.planned.nodes));
    }
}

/// The program gives the same bits for every number of ranks; a rank that was lost or started twice would show.
fn judge_checksums(jobs: &[Closed], wrong: &mut Vec<String>) {
    let mut first: Option<&str> = None;
    for closed in jobs.iter().filter(|closed| !matches!(closed.planned.work, Work::Sleep { .. })) {
        let name = &closed.planned.name;
        match (&closed.checksum, first) {
            (None, _) => wrong.push(format!("{name} printed no checksum")),
            (Some(checksum), None) => first = Some(checksum),
            (Some(checksum), Some(first)) if checksum != first => {
                wrong.push(format!("{name} computed {checksum}, others {first}"));
            }
            (Some(_), Some(_)) => {}
        }
    }
}

/// Response over run time; runs below a second count as one, or trifles would dominate the mean.
fn slowdown(response: f64, run: f64) -> f64 {
    (response / run.max(1.0)).max(1.0)
}

#[derive(Default)]
struct Sums {
    n_jobs: u32,
    first: Option<f64>,
    last: f64,
    wait: f64,
    response: f64,
    slowdown: f64,
    node_secs: f64,
}

impl Sums {
    #[expect(clippy::too_many_arguments, reason = "one row of the table")]
    fn add(&mut self, submitted: f64, ended: f64, wait: f64, run: f64, response: f64, slowdown: f64, nodes: u32) {
        self.n_jobs += 1;
        self.first = Some(self.first.map_or(submitted, |first| first.min(submitted)));
        self.last = self.last.max(ended);
        self.wait += wait;
        self.response += response;
        self.slowdown += slowdown;
        self.node_secs += run * f64::from(nodes);
    }

    fn summary(&self, n_nodes: u32) -> String {
        let n_jobs = f64::from(self.n_jobs.max(1));
        let makespan = self.last - self.first.unwrap_or(self.last);
        let utilisation = 100.0 * self.node_secs / (makespan * f64::from(n_nodes)).max(1e-9);
        format!(
            "{} jobs in {makespan:.1} s on {n_nodes} nodes: mean wait {:.1} s, response {:.1} s, slowdown {:.2}, utilisation {utilisation:.0} %\n",
            self.n_jobs,
            self.wait / n_jobs,
            self.response / n_jobs,
            self.slowdown / n_jobs,
        )
    }
}

/// How long the whole took, for people.
pub fn brief(took: Duration) -> String {
    format!("{:.0} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_tests::apps::Mpi;

    fn closed(name: &str, work: Work, checksum: Option<&str>) -> Closed {
        let planned =
            Planned { name: name.to_owned(), arrives: Duration::ZERO, nodes: 2, lasts: Duration::from_secs(4), work };
        let fared = Fared {
            job: 1,
            name: name.to_owned(),
            submitted: 100.0,
            started: Some(104.0),
            ended: Some(108.0),
            nodes: vec!["a1".to_owned(), "a2".to_owned()],
            state: "completed".to_owned(),
            code: Some(0),
            run: 1,
        };
        Closed { planned, fared: Some(fared), checksum: checksum.map(str::to_owned) }
    }

    const MPI: Work = Work::Mpirun(Mpi::Mpich);

    fn check(jobs: &[Closed], part: &str) {
        let (_, wrong) = close(jobs, 4);
        assert!(wrong.len() == 1 && wrong[0].contains(part), "{wrong:?}");
    }

    #[test]
    fn a_good_run_has_nothing_wrong_and_its_means_are_right() {
        let (text, wrong) = close(&[closed("x", Work::Sleep { code: 0 }, None), closed("y", MPI, Some("1"))], 4);
        assert!(wrong.is_empty(), "{wrong:?}");
        let expected = "2 jobs in 8.0 s on 4 nodes: mean wait 4.0 s, response 8.0 s, slowdown 2.00, utilisation 50 %";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn every_loss_is_noticed() {
        check(&[Closed { fared: None, ..closed("x", Work::Sleep { code: 0 }, None) }], "nobody knows");
        check(&[closed("x", Work::Sleep { code: 1 }, None)], "not as failed 1");
        let mut late = closed("x", Work::Sleep { code: 0 }, None);
        late.fared.as_mut().unwrap().state = "timeout".to_owned();
        check(&[late], "ended as timeout");
        check(&[closed("x", MPI, Some("1")), closed("y", MPI, Some("2"))], "y computed 2, others 1");
        check(&[closed("x", MPI, None)], "no checksum");
        let mut twice = closed("x", Work::Sleep { code: 0 }, None);
        twice.fared.as_mut().unwrap().run = 2;
        check(&[twice], "2 times");
    }
}
