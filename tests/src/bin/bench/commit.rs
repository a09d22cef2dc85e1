//! What durability costs: the facts of real jobs, written to the real journal in groups of several sizes.

use std::convert::Infallible;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::{Config, Event, Fact, Journal, Rms};
use rms_model::{Generation, Span, Time, Usage};
use rms_server::journal::{FactLog, SnapshotPolicy};

use crate::table::{Table, Target};
use crate::world::{connected, inventory, submission, submitted};
use crate::{ceiling, process};

const N_JOBS: usize = 5_000;

pub fn table() -> Result<Table> {
    let mut table = Table::new("The journal: facts of 5,000 jobs, in groups as the driver commits them");
    let floor = ceiling::measure(2_000, 1)?;
    let jobs = facts_of_jobs()?;
    let n_facts: usize = jobs.iter().map(Vec::len).sum();
    table.note("facts of one job", n_facts as f64 / N_JOBS as f64, "");
    let home = tempfile::tempdir().context("no temporary directory")?;
    for n_grouped in [1, 8, 64] {
        let path = home.path().join(format!("{n_grouped}"));
        // Without snapshots, which are made beside the driver.
        let policy = SnapshotPolicy { facts: u64::MAX, bytes: u64::MAX };
        let mut log = FactLog::create(&path, policy).map_err(|error| anyhow!("{error}"))?;
        let own = i32::try_from(std::process::id())?;
        let cpu = || process::read(own).map(|process| process.cpu()).unwrap_or_default();
        let (before, begun) = (cpu(), Instant::now());
        for group in jobs.chunks(n_grouped) {
            let facts: Vec<Fact> = group.iter().flatten().cloned().collect();
            Journal::append(&mut log, &facts).map_err(|error| anyhow!("{error}"))?;
        }
        let (took, spent) = (begun.elapsed(), cpu() - before);
        let each = |seconds: f64| seconds * 1000.0 / N_JOBS as f64;
        table.note(format!("{n_grouped} jobs in a commit: wall time of a job"), each(took.as_secs_f64()), "ms");
        let share = 100.0 * each(spent.as_secs_f64()) / floor.cpu_ms;
        let target = if n_grouped == 1 { Target::Reference } else { Target::AtMost(5.0) };
        let what = format!("{n_grouped} jobs in a commit: CPU, beside the floor of a job");
        table.measure(what, share, "%", target, "encoding, and history's inserts");
    }
    Ok(table)
}

/// What the core records from submit to end, job by job.
fn facts_of_jobs() -> Result<Vec<Vec<Fact>>> {
    let mut rms = Rms::new(Config::default());
    let mut now = Time::from_secs(1_000_000);
    let mut world = Collected::default();
    world.take(rms.handle(now, connected(0, inventory(8))));
    world.0.clear();
    (0..N_JOBS)
        .map(|_| {
            now += Span::from_millis(1);
            world.take(rms.handle(now, submitted(submission(1, Span::from_mins(1)))?));
            world.take(rms.handle(now, Event::Tick));
            let (id, job) = rms.state().jobs().iter().next().context("the job is in the system")?;
            let (job, run) = (*id, job.run);
            let statuses = [
                JobStatus::running(now),
                JobStatus::Ended { at: now, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() },
            ];
            for status in statuses {
                let report = NodeReport { seen: Generation(u64::MAX), jobs: vec![JobReport { job, run, status }] };
                world.take(rms.handle(now, Event::AgentReported { name: "a0".to_owned(), report }));
            }
            world.take(rms.handle(now, Event::Tick));
            Ok(std::mem::take(&mut world.0))
        })
        .collect()
}

/// Keeps facts in memory.
#[derive(Default)]
struct Collected(Vec<Fact>);

impl Collected {
    fn take(&mut self, step: rms_core::Step) {
        match step.commit(self) {
            Ok(_effects) => {}
            Err(uncommitted) => match uncommitted.error {},
        }
    }
}

impl Journal for Collected {
    type Error = Infallible;

    fn append(&mut self, facts: &[Fact]) -> Result<(), Infallible> {
        self.0.extend_from_slice(facts);
        Ok(())
    }
}
