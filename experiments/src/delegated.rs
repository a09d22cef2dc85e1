//! The workloads W0, W1 and W2 of 001: rigid, moldable and complex-moldable applications derived from a log's jobs.

use std::collections::BTreeMap;

use launcher_schedule::cem::{FastestFirst, NodeCounts, Selection};
use launcher_schedule::moldable::{Amdahl, Sizes};
use launcher_schedule::tiers::{Iterative, Site};
use rms_model::{ClusterId, Span, Time};

use rms_sim::workload::draw::Draw;
use rms_sim::workload::swf::{Cleaned, Cleaning, Record, SwfError, Trace, TraceJob, ZeroRun};

/// Clusters that differ only in their speed, two in a city, four in a country (001, §6.1.1 and §6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    pub n_clusters: u16,
}

/// The number of nodes of each cluster.
pub const CLUSTER_NODES: u32 = 128;

impl Platform {
    /// Returns the clusters in ascending order: 001's cluster 1 is the first.
    pub fn clusters(self) -> impl Iterator<Item = ClusterId> {
        (1..=self.n_clusters).map(ClusterId)
    }

    fn site(cluster: ClusterId) -> Site {
        let idx = cluster.0.saturating_sub(1);
        Site { speed_milli: 1000 + 100 * u32::from(idx), city: idx / 2, country: idx / 4 }
    }

    /// Returns the time on each cluster of work that takes `micros` on cluster 1.
    fn spans(self, micros: u128) -> BTreeMap<ClusterId, Span> {
        let span = |cluster: ClusterId| {
            let millis = micros.div_ceil(u128::from(Platform::site(cluster).speed_milli));
            (cluster, Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
        };
        self.clusters().map(span).collect()
    }
}

/// An application as its launcher knows it.
#[derive(Clone, Debug)]
pub struct Application {
    pub arrival: Time,
    pub model: Model,
    pub execution: Execution,
    /// The time between the change of a view and the request that answers it.
    pub adaptation: Span,
}

/// How an application selects its resources.
#[derive(Clone, Debug)]
pub enum Model {
    /// Nodes of one cluster, by Amdahl's law. A rigid application has one size and is completely parallel (001,
    /// §5.2.2).
    OnOne {
        sizes: Sizes,
        amdahl: Amdahl,
    },
    /// 001's CEM application.
    Iterative(Iterative),
    FastestFirst(FastestFirst),
}

/// The part of its wall time for which an application really runs: at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    pub numerator: u32,
    pub denominator: u32,
}

impl Application {
    /// Returns whether it selects nodes of several clusters at once.
    pub fn is_complex(&self) -> bool {
        match &self.model {
            Model::OnOne { .. } => false,
            Model::Iterative(_) | Model::FastestFirst(_) => true,
        }
    }
}

impl Model {
    /// Returns what a complex application selects of the available nodes; `None` for one that uses a single cluster.
    pub fn select(&self, available: &NodeCounts) -> Option<Selection> {
        match self {
            Model::OnOne { .. } => None,
            Model::Iterative(application) => application.select(available),
            Model::FastestFirst(application) => application.select(available),
        }
    }
}

impl Execution {
    /// Returns the time in whole seconds, at least one.
    pub fn of(self, wall: Span) -> Span {
        let secs = wall.as_millis() / 1000;
        let part = i128::from(secs) * i128::from(self.numerator) / i128::from(self.denominator.max(1));
        Span::from_secs(i64::try_from(part).unwrap_or(i64::MAX).max(1))
    }
}

/// The mix of applications.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// How many iterations a complex application has.
    pub iterations: u64,
    /// The part of the log's jobs that becomes moldable; the others become rigid.
    pub p_mo: f64,
    pub complex: Complex,
    /// Whether wall times are those that the log's users requested, instead of run times with some slack (001, footnote
    /// 3).
    pub has_walls_of_log: bool,
}

/// How complex-moldable applications are added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Complex {
    /// W0.
    None,
    /// W1: adds one application at this number (from 1), which adapts with this delay.
    Inserted { number: usize, adaptation: Span },
    /// W2: replaces this part of the applications.
    Replacing { p_cem: f64 },
}

/// The part of moldable applications in W0 and in the workloads derived from it.
pub const P_MO: f64 = 0.2;

impl Mix {
    pub const W0: Mix = Mix { iterations: CEM_ITERATIONS, p_mo: P_MO, complex: Complex::None, has_walls_of_log: false };

    /// The paper shows the application of number 40; the others are similar.
    pub const W1: Mix = Mix { complex: Complex::Inserted { number: 40, adaptation: Span::ZERO }, ..Mix::W0 };

    pub fn w2(p_cem: f64) -> Mix {
        Mix { complex: Complex::Replacing { p_cem }, ..Mix::W0 }
    }

    /// Returns W2 as it runs in real time, for 001's Fig. 12: complex applications are as short as the others.
    pub fn small_w2(p_cem: f64) -> Mix {
        Mix { iterations: SMALL_CEM_ITERATIONS, ..Mix::w2(p_cem) }
    }
}

/// 001, Table 1: the parallel part in thousandths, and the greatest number of nodes; each for a quarter of the
/// applications.
const CLASSES: [(u32, u32); 4] = [(800, 32), (900, 96), (990, 256), (999, 650)];

/// Wall times are run times multiplied by a factor between these (001, §6.1.1), in thousandths.
const SLACK_MILLI: (f64, f64) = (1100.0, 2000.0);

/// The details of 001's CEM application are published only in an abstract, so its size is chosen here: an iteration is
/// 20 seconds of one node of cluster 1 and one exchange of messages. So distance matters, as it did on the authors'
/// platform: a country's clusters are worth their 10 ms, the other country's are not worth 50 ms. It takes about 38
/// minutes on a free country.
const CEM_ITERATIONS: u64 = 60_000;
const SMALL_CEM_ITERATIONS: u64 = 300;
const CEM_WORK_MICROS: u64 = 20_000_000;
const CEM_MESSAGES: u64 = 1;

/// Returns the applications of the log's jobs, in their order; one arrives per second. The same seed draws the same
/// numbers for each job in every mix, so that mixes differ in nothing else.
pub fn applications(jobs: &[TraceJob], mix: Mix, platform: Platform, seed: u64) -> Vec<Application> {
    let mut draw = Draw::new(seed);
    let mut applications: Vec<Application> = jobs.iter().map(|job| of_job(job, mix, platform, &mut draw)).collect();
    if let Complex::Inserted { number, adaptation } = mix.complex {
        let slack = slack(&mut draw);
        let complex = Application { adaptation, ..complex(mix, platform, slack) };
        applications.insert(number.saturating_sub(1).min(applications.len()), complex);
    }
    for (secs, application) in (0..).zip(&mut applications) {
        application.arrival = Time::from_secs(secs);
    }
    applications
}

fn of_job(job: &TraceJob, mix: Mix, platform: Platform, draw: &mut Draw) -> Application {
    let is_moldable = draw.chance(mix.p_mo);
    let class = (draw.uniform() * CLASSES.len() as f64) as usize;
    let drawn = slack(draw);
    let slack = if mix.has_walls_of_log { slack_of_log(job) } else { drawn };
    let place_taken_by = draw.uniform();
    match mix.complex {
        Complex::Replacing { p_cem } if place_taken_by < p_cem => return complex(mix, platform, drawn),
        Complex::None | Complex::Inserted { .. } | Complex::Replacing { .. } => {}
    }
    // Microseconds: the milliseconds of a run times the thousandths of the slack.
    let wall = job.run.as_millis().max(0) as u128 * u128::from(slack);
    let n_nodes = job.n_nodes.max(1);
    let (sizes, parallel) = if is_moldable {
        let (parallel, most) = CLASSES[class.min(CLASSES.len() - 1)];
        (Sizes { least: 1, most }, parallel)
    } else {
        (Sizes { least: n_nodes, most: n_nodes }, 1000)
    };
    // Amdahl's law inverted: the log contains how long the job ran on its processors, not on one.
    let serial = u128::from(1000 - parallel) * u128::from(n_nodes) + u128::from(parallel);
    let on_one = platform.spans(wall * u128::from(n_nodes) * 1000 / serial);
    let amdahl = Amdahl::new(parallel, 1000, on_one).expect("a class is a fraction");
    application(Model::OnOne { sizes, amdahl }, slack)
}

fn complex(mix: Mix, platform: Platform, slack: u32) -> Application {
    let sites = platform.clusters().map(|cluster| (cluster, Platform::site(cluster))).collect();
    // Its wall time gets the slack of the others.
    let iterations = mix.iterations * u64::from(slack) / 1000;
    let (work_micros, messages) = (CEM_WORK_MICROS, CEM_MESSAGES);
    application(Model::Iterative(Iterative { iterations, work_micros, messages, sites }), slack)
}

fn application(model: Model, slack: u32) -> Application {
    let execution = Execution { numerator: 1000, denominator: slack };
    Application { arrival: Time::EPOCH, model, execution, adaptation: Span::ZERO }
}

fn slack(draw: &mut Draw) -> u32 {
    draw.between(SLACK_MILLI.0, SLACK_MILLI.1) as u32
}

/// Returns the requested time over the run time, in thousandths: no job runs for longer.
fn slack_of_log(job: &TraceJob) -> u32 {
    let (wall, run) = (job.wall.as_millis().max(0) as u128, job.run.as_millis().max(1) as u128);
    u32::try_from(wall * 1000 / run).unwrap_or(u32::MAX).max(1000)
}

/// Returns the jobs of a log that 001 would take: those that ran, with one node per processor, cut to the size of a
/// cluster.
pub fn jobs(log: &Trace) -> Cleaned {
    log.clean(&Cleaning { most_nodes: Some(CLUSTER_NODES), zero_run: ZeroRun::Drop, ..Cleaning::default() })
}

/// Returns whether it has used processors for some time.
pub fn has_run(record: &Record) -> bool {
    record.run.is_some_and(|run| !run.is_zero()) && (record.allocated > 0 || record.requested > 0)
}

/// Returns whether it has no more processors than a cluster has nodes.
pub fn fits_a_cluster(record: &Record) -> bool {
    record.allocated.max(record.requested) <= i64::from(CLUSTER_NODES)
}

/// Returns the first 200 jobs of the LLNL Atlas log that ran. 001 used version 1.1-cln of the log; this is 2.1-cln.
pub fn first_log() -> Trace {
    read(include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/traces/LLNL-Atlas-2006-2.1-cln.first200-ran.swf"
    )))
}

/// Returns those jobs, for 001's platform.
pub fn first_jobs() -> Cleaned {
    jobs(&first_log())
}

/// Returns the first 200 jobs that took at most 7200 processor seconds: for 001's Fig. 12, whose experiment runs in
/// real time.
pub fn small_jobs() -> Cleaned {
    jobs(&read(include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/traces/LLNL-Atlas-2006-2.1-cln.first200-small.swf"
    ))))
}

fn read(text: &[u8]) -> Trace {
    let log: Result<Trace, SwfError> = Trace::read(text);
    log.expect("the log is part of the program, and a test reads it")
}

/// Returns `n_jobs` consecutive jobs at a random place in a log; all jobs, if there are not more.
pub fn window(jobs: &[TraceJob], n_jobs: usize, seed: u64) -> &[TraceJob] {
    let n_places = jobs.len().saturating_sub(n_jobs) + 1;
    // Uses another stream than the applications do: the same seed must not couple place and slack.
    let place = (Draw::new(!seed).uniform() * n_places as f64) as usize;
    &jobs[place.min(n_places - 1)..][..n_jobs.min(jobs.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use launcher_schedule::moldable::WallTime;

    const PLATFORM: Platform = Platform { n_clusters: 8 };

    #[test]
    fn the_log_has_200_jobs_and_those_that_are_cut_are_counted() {
        let first = first_jobs();
        assert_eq!((first.jobs.len(), first.n_cut, first.n_dropped), (200, 106, 0));
        assert!(first.jobs.iter().all(|job| (1..=CLUSTER_NODES).contains(&job.n_nodes)));
        let small = small_jobs();
        assert_eq!((small.jobs.len(), small.n_dropped), (200, 0));
        assert!(small.jobs.iter().all(|job| i64::from(job.n_nodes) * job.run.as_millis() <= 7_200_000));
    }

    #[test]
    fn a_job_runs_for_as_long_as_it_did_on_cluster_1_and_shorter_on_the_others() {
        let jobs = first_jobs().jobs;
        for p_mo in [0.0, 1.0] {
            let mix = Mix { p_mo, ..Mix::W0 };
            for (job, application) in jobs.iter().zip(applications(&jobs, mix, PLATFORM, 7)) {
                let Model::OnOne { sizes, amdahl } = &application.model else { panic!("none is complex") };
                let wall = |cluster| amdahl.wall(ClusterId(cluster), job.n_nodes).expect("it can be used");
                let run = application.execution.of(wall(1));
                // Wall times are whole seconds, and so are the times for which they run.
                let is_near = (run.as_secs_f64() - job.run.as_secs_f64()).abs() <= 1.5;
                assert!(is_near, "{run:?} {job:?}");
                assert!(wall(8) <= wall(1) && wall(8).as_secs_f64() >= wall(1).as_secs_f64() / 1.7 - 1.0);
                assert_eq!(sizes.least == sizes.most, p_mo == 0.0);
            }
        }
    }

    #[test]
    fn mixes_of_one_seed_differ_in_nothing_but_themselves() {
        let jobs = first_jobs().jobs;
        let all = |mix| applications(&jobs, mix, PLATFORM, 3);
        let w0 = all(Mix::W0);
        let w1 = all(Mix::W1);
        assert_eq!((w0.len(), w1.len()), (200, 201));
        assert!(w1[39].is_complex() && w1.iter().filter(|app| app.is_complex()).count() == 1);
        let text = |apps: &[Application]| format!("{:?}", apps.iter().map(|app| &app.model).collect::<Vec<_>>());
        assert_eq!(text(&w0[..39]), text(&w1[..39]));
        assert_eq!(text(&w0[39..]), text(&w1[40..]));
        let n_complex = |p_cem| all(Mix::w2(p_cem)).iter().filter(|app| app.is_complex()).count();
        assert_eq!((n_complex(0.0), n_complex(1.0)), (0, 200));
        assert!((70..130).contains(&n_complex(0.5)) && n_complex(0.2) < n_complex(0.5));
        assert_eq!(text(&all(Mix::w2(0.0))), text(&w0));
        let arrivals: Vec<i64> = w1.iter().map(|app| app.arrival.as_secs()).collect();
        assert_eq!(arrivals, (0..201).collect::<Vec<_>>());
    }

    #[test]
    fn a_window_is_somewhere_in_the_log() {
        let jobs = first_jobs().jobs;
        let windows: Vec<&[TraceJob]> = (0..20).map(|seed| window(&jobs, 50, seed)).collect();
        assert!(windows.iter().all(|window| window.len() == 50));
        assert!(windows.iter().any(|window| window[0] != windows[0][0]));
        assert_eq!(window(&jobs, 500, 1).len(), 200);
    }
}
