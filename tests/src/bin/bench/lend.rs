//! Jobs that begin on CPUs which others lend (004): how long a pass looks for mates, and how long it takes from the order to
//! shrink to the first instruction of the guest.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use rms_api::filter::JobFilter;
use rms_api::{Answer, Call, Query};
use rms_model::{JobId, Policy, Settings, Span};

use crate::cluster::Cluster;
use crate::resize::born;
use crate::server::Client;
use crate::table::{Table, quantile};
use crate::world::{World, inventory, submission};

const N_CANDIDATES: u32 = 1000;
const N_PASSES: usize = 15;
const N_GUESTS: usize = 60;

pub fn table() -> Result<Table> {
    let mut table =
        Table::new("A guest on CPUs that running jobs lend: the search for mates, and its start on a real agent");
    for max_mates in [2, 3] {
        let mut passes = searches(max_mates)?;
        let what = format!("a pass that looks for {max_mates} mates among {N_CANDIDATES}");
        table.note(format!("{what}, median of {N_PASSES}"), quantile(&mut passes, 0.5), "ms");
        table.note(format!("{what}, slowest"), quantile(&mut passes, 1.0), "ms");
    }
    for (word, lends) in [("free CPUs", false), ("CPUs that are lent", true)] {
        let (mut starts, longest_overlap) = starts(lends)?;
        let what = format!("started to the first instruction, on {word}");
        table.note(format!("{what}, p50"), quantile(&mut starts, 0.5), "ms");
        table.note(format!("{what}, p99"), quantile(&mut starts, 0.99), "ms");
        if lends {
            let what = format!("owner and guest allowed on one CPU, longest of {N_GUESTS}, sampled each 0.1 ms");
            table.note(what, longest_overlap, "ms");
        }
    }
    Ok(table)
}

/// Each pass is for one more guest, of as many nodes as it may have mates, each of which has one.
fn searches(max_mates: u32) -> Result<Vec<f64>> {
    let mut settings = Settings { policy: Policy::Slowdown, ..Settings::default() };
    settings.sharing.max_mates = max_mates;
    let mut world = World::of(settings, N_CANDIDATES, &inventory(8));
    let shares = |world: &mut World, n_nodes: u32, wall: Span| -> Result<f64> {
        let mut submission = submission(n_nodes, wall);
        submission.resources.share = true;
        world.submit(submission)?;
        Ok(world.pass())
    };
    for number in 0..N_CANDIDATES {
        shares(&mut world, 1, Span::from_mins(600 + i64::from(number)))?;
    }
    let passes = (0..N_PASSES).map(|_| {
        world.now += Span::from_secs(1);
        shares(&mut world, max_mates, Span::from_mins(10))
    });
    let passes = passes.collect::<Result<Vec<f64>>>()?;
    let n_running = world.rms.state().jobs().values().filter(|entry| entry.started().is_some()).count();
    if n_running != N_CANDIDATES as usize + N_PASSES {
        bail!("only {n_running} jobs run: somebody found no mates");
    }
    Ok(passes)
}

/// Returns for one job after the other the time from what the server says was its start to its first instruction; and the
/// longest time for which a guest and its owner could have run on the same CPU.
fn starts(lends: bool) -> Result<(Vec<f64>, f64)> {
    // No more CPUs than there are: jobs are not bound to others.
    let cluster = Cluster::of(1, "pack:1 core:2 pu:1")?;
    cluster.rms(&["admin", "set", "policy", "slowdown"])?;
    cluster.rms(&["admin", "set", "max_slowdown", "infinite"])?;
    let dir = tempfile::Builder::new().prefix("limber-bench-").tempdir().context("no temporary directory")?;
    let (births, pids) = (dir.path().join("births"), dir.path().join("pids"));
    let script = dir.path().join("job.sh");
    let (births_to, pids_to) = (births.display(), pids.display());
    std::fs::write(&script, format!("#!/bin/sh\necho $$ >> {pids_to}\ndate +%s%N >> {births_to}\nexec sleep 3600\n"))?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let script = script.display().to_string();
    let submit = |wall: &str| -> Result<JobId> {
        let told =
            cluster.rms(&["submit", "-q", "--share", "-N", "1", "-n", "1", "-t", wall, "-o", "/dev/null", &script])?;
        Ok(JobId(String::from_utf8_lossy(&told.stdout).trim().parse().context("the id of the job")?))
    };
    let mut n_born = 0;
    if lends {
        submit("100h")?;
        n_born += 1;
        born(&births, n_born)?;
    }
    let mut watch = if lends { Some(Watch::of(last_pid(&pids)?)) } else { None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(cluster.client())?;
    let mut starts = Vec::with_capacity(N_GUESTS);
    for _ in 0..N_GUESTS {
        let job = submit("10m")?;
        n_born += 1;
        let first = born(&births, n_born)?;
        if let Some(watch) = &watch {
            watch.guest_began(last_pid(&pids)?, first);
        }
        starts.push(first - runtime.block_on(started_at(&client, job))?);
        cluster.rms(&["cancel", &job.to_string()])?;
        // It was cancelled, which is what is meant.
        cluster.rms(&["wait", &job.to_string()]).map(drop).or_else(|_| anyhow::Ok(()))?;
    }
    Ok((starts, watch.take().map_or(Ok(0.0), Watch::longest_overlap)?))
}

fn last_pid(pids: &Path) -> Result<i32> {
    let text = std::fs::read_to_string(pids).context("no process has written its id")?;
    text.lines().last().and_then(|line| line.parse().ok()).context("the id of a process")
}

/// Samples the CPUs on which an owner and its guest are allowed to run, in a thread of its own.
struct Watch {
    shared: Arc<Watched>,
    sampler: JoinHandle<f64>,
}

#[derive(Default)]
struct Watched {
    /// The process of the present guest, and when its first instruction was, in milliseconds since 1970.
    guest: Mutex<Option<(i32, f64)>>,
    is_over: AtomicBool,
}

impl Watch {
    fn of(owner: i32) -> Watch {
        let shared = Arc::new(Watched::default());
        let watched = Arc::clone(&shared);
        Watch { shared, sampler: thread::spawn(move || watched.sample(owner)) }
    }

    fn guest_began(&self, guest: i32, first: f64) {
        *self.shared.guest.lock().unwrap_or_else(PoisonError::into_inner) = Some((guest, first));
    }

    /// Returns the longest time in milliseconds.
    fn longest_overlap(self) -> Result<f64> {
        self.shared.is_over.store(true, Relaxed);
        self.sampler.join().map_err(|_| anyhow!("the sampler has panicked"))
    }
}

impl Watched {
    fn sample(&self, owner: i32) -> f64 {
        let mut longest = 0_f64;
        let all = cpus_of(owner);
        let (mut known, mut since, mut last_whole) = (None, None, 0.0);
        while !self.is_over.load(Relaxed) {
            let (now, own) = (now_ms(), cpus_of(owner));
            let guest = *self.guest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((pid, first)) = guest.filter(|(pid, _)| known != Some(*pid)) {
                // It began before it was known here.
                longest = longest.max(last_whole - first);
                known = Some(pid);
            }
            let of_guest = guest.map(|(pid, _)| cpus_of(pid)).unwrap_or_default();
            let overlaps = own.iter().any(|cpu| of_guest.contains(cpu));
            since = overlaps.then(|| since.unwrap_or(now));
            longest = longest.max(since.map_or(0.0, |since| now - since));
            if own == all && !overlaps {
                last_whole = now;
            }
            thread::sleep(Duration::from_micros(100));
        }
        longest
    }
}

/// Returns the CPUs on which a process is allowed; none if it has ended.
fn cpus_of(pid: i32) -> Vec<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_alive = stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']));
    let set =
        nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(pid)).ok().filter(|_| is_alive && !stat.is_empty());
    let set = set.iter();
    set.flat_map(|set| (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true))).collect()
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1000.0)
}

/// In milliseconds since 1970.
async fn started_at(client: &Client, job: JobId) -> Result<f64> {
    let Answer::Queue { jobs, .. } = client.call(&Call::Query(Query::Queue(JobFilter::default()))).await? else {
        bail!("the server answers with no queue");
    };
    let started = jobs.iter().find(|line| line.job == job).and_then(|line| line.started);
    Ok(started.context("it has started")?.as_millis() as f64)
}
