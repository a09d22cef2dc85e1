//! A complete simulation from a seed: a small cluster, users, faults, and a time without faults in which everything
//! must end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

use negotiation::{NegotiationId, Phase};
use rms_api::Call;
use rms_core::{Fact, State};
use rms_model::{Allocation, JobId, MaxSlowdown, Policy, Run, Settings, Span, Time};

use crate::check::Violation;
use crate::crowd::Crowd;
use crate::dice::Dice;
use crate::fault::Storm;
use crate::people::admin;
use crate::world::{World, WorldBuilder};

/// The results of a scenario that broke no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Equal for equal seeds.
    pub trace_hash: u64,
    pub n_facts: usize,
    /// Views of launchers that were compared with the plan after the faults.
    pub n_views: usize,
    pub n_jobs: usize,
    pub negotiations: JobNegotiations,
}

/// The results of negotiations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobNegotiations {
    pub n_opened: usize,
    pub n_agreed: usize,
    pub n_applied: usize,
    /// Agreed, but not carried out.
    pub n_failed: usize,
    /// Requests of users and agents that were answered with an outcome.
    pub n_asks: usize,
    /// Faults that were injected in the middle of a negotiation.
    pub n_ambushes: usize,
    /// Executions that have negotiated, and lent or borrowed CPUs.
    pub n_sharing: usize,
}

impl JobNegotiations {
    fn of(world: &World) -> JobNegotiations {
        let mut last: BTreeMap<(JobId, Run, NegotiationId), (bool, Phase)> = BTreeMap::new();
        let mut runs: BTreeMap<JobId, Run> = BTreeMap::new();
        let mut sharing: BTreeSet<(JobId, Run)> = BTreeSet::new();
        for fact in world.facts() {
            if let Fact::JobStarted { job, run, .. } = fact {
                runs.insert(*job, *run);
            }
            if let Fact::CpusShared { job, .. } = fact {
                sharing.extend(runs.get(job).map(|run| (*job, *run)));
            }
            if let Fact::DialogueChanged { job, dialogue, .. } = fact {
                let run = runs.get(job).copied().unwrap_or(Run(1));
                let negotiation = last.entry((*job, run, dialogue.id())).or_insert((false, Phase::Idle));
                let phase = dialogue.phase();
                negotiation.0 |= matches!(phase, Phase::Accepted | Phase::Committing | Phase::Applied);
                negotiation.1 = phase;
            }
        }
        let count = |what: &dyn Fn(bool, Phase) -> bool| {
            last.values().filter(|(is_agreed, phase)| what(*is_agreed, *phase)).count()
        };
        JobNegotiations {
            n_opened: last.len(),
            n_agreed: count(&|is_agreed, _| is_agreed),
            n_applied: count(&|_, phase| phase == Phase::Applied),
            n_failed: count(&|is_agreed, phase| is_agreed && phase != Phase::Applied),
            n_asks: world.n_asks_answered(),
            n_ambushes: world.n_ambushes,
            n_sharing: last
                .keys()
                .map(|(job, run, _)| (*job, *run))
                .collect::<BTreeSet<_>>()
                .intersection(&sharing)
                .count(),
        }
    }
}

impl AddAssign for JobNegotiations {
    fn add_assign(&mut self, more: JobNegotiations) {
        let JobNegotiations { n_opened, n_agreed, n_applied, n_failed, n_asks, n_ambushes, n_sharing } = more;
        self.n_opened += n_opened;
        self.n_agreed += n_agreed;
        self.n_applied += n_applied;
        self.n_failed += n_failed;
        self.n_asks += n_asks;
        self.n_ambushes += n_ambushes;
        self.n_sharing += n_sharing;
    }
}

/// The first rule that was broken, and the last lines of the trace.
#[derive(Clone, Debug)]
pub struct Broken {
    pub violation: Violation,
    pub trace: String,
    pub whole_trace: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.trace, self.violation)
    }
}

/// Runs two small clusters, at most 6 nodes and 30 jobs, with some minutes of faults.
///
/// # Errors
/// The first rule that was broken.
pub fn small(seed: u64, snapshot: fn(&State) -> State) -> Result<Ended, Box<Broken>> {
    let mut dice = Dice::new(seed, STREAM);
    let n_a = dice.number(1, 4);
    let n_b = dice.number(1, 2);
    let n_jobs = dice.number(5, 30);
    let settings = shared(seed, settings(&mut dice));
    let builder = WorldBuilder::default().seed(seed).settings(settings).snapshot(snapshot);
    let mut world = builder.cluster("a", n_a).cluster("b", n_b).build();
    let crowd = Crowd::new(seed, n_jobs, n_a);
    let storm_ends = Time::EPOCH + dice.span(Span::from_mins(1), Span::from_mins(8));
    told(&mut world, crowd, Storm::new(seed), storm_ends)
}

/// Runs two clusters of at most 11 nodes and 16 jobs, most of which negotiate while they run, with the same faults and
/// with bad channels.
///
/// # Errors
/// The first rule that was broken.
pub fn negotiating(seed: u64, snapshot: fn(&State) -> State) -> Result<Ended, Box<Broken>> {
    let mut dice = Dice::new(seed, STREAM_OF_NEGOTIATIONS);
    let n_a = dice.number(2, 8);
    let n_b = dice.number(1, 3);
    let n_jobs = dice.number(3, 16);
    let settings = Settings { release_grace: dice.span(Span::ZERO, Span::from_secs(20)), ..settings(&mut dice) };
    let settings = shared(seed, settings);
    let builder = WorldBuilder::default().seed(seed).settings(settings).snapshot(snapshot);
    let gpus = || [("gpu".to_owned(), 3)].into_iter().collect();
    let mut world = builder.cluster_with("a", n_a, gpus()).cluster_with("b", n_b, gpus()).build();
    let crowd = Crowd::negotiating(seed, n_jobs, n_a);
    let storm_ends = Time::EPOCH + dice.span(Span::from_mins(1), Span::from_mins(6));
    told(&mut world, crowd, Storm::on_negotiations(seed), storm_ends)
}

/// Runs the scenario and returns its results.
fn told(world: &mut World, crowd: Crowd, storm: Storm, storm_ends: Time) -> Result<Ended, Box<Broken>> {
    match live(world, crowd, storm, storm_ends) {
        Ok(n_views) => Ok(Ended {
            trace_hash: world.trace_hash(),
            n_facts: world.facts().len(),
            n_views,
            n_jobs: world.checks.acknowledged.len(),
            negotiations: JobNegotiations::of(world),
        }),
        Err(violation) => {
            let whole_trace = world.whole_trace().to_vec();
            Err(Box::new(Broken { violation, trace: world.trace(), whole_trace }))
        }
    }
}

fn settings(dice: &mut Dice) -> Settings {
    Settings {
        fair_start: dice.span(Span::ZERO, Span::from_secs(5)),
        resched_timer: if dice.chance(50) { Span::ZERO } else { Span::from_secs(1) },
        node_lost_after: dice.span(Span::from_secs(1), Span::from_secs(30)),
        lost_policy: if dice.chance(50) {
            rms_model::settings::LostPolicy::Fail
        } else {
            rms_model::settings::LostPolicy::Requeue
        },
        kill_grace: dice.span(Span::from_secs(1), Span::from_secs(5)),
        request_timeout: dice.span(Span::from_mins(1), Span::from_mins(5)),
        start_timeout: Span::from_secs(30),
        launcher_grace: dice.span(Span::from_secs(10), Span::from_secs(60)),
        ..Settings::default()
    }
}

/// Lets jobs share nodes in some worlds, and lets them start on CPUs that others lend in some.
fn shared(seed: u64, mut settings: Settings) -> Settings {
    let mut dice = Dice::new(seed, STREAM_OF_SHARING);
    if dice.chance(40) {
        settings.allocation = Allocation::Cores;
    }
    if dice.chance(40) {
        settings.policy = Policy::Slowdown;
        settings.sharing.max_slowdown = MaxSlowdown::Infinite;
    }
    if dice.chance(50) {
        settings.sharing.max_sharers = dice.number(3, 4);
    }
    settings
}

fn live(world: &mut World, mut crowd: Crowd, mut storm: Storm, storm_ends: Time) -> Result<usize, Violation> {
    // All agents join before the first fault.
    world.run_until(Time::from_secs(1))?;
    let (mut act_at, mut strike_at) = (crowd.next(world.now()), storm.next(world.now()));
    while act_at.min(strike_at) < storm_ends {
        world.run_until(act_at.min(strike_at))?;
        if act_at <= strike_at {
            crowd.act(world);
            act_at = crowd.next(world.now());
        } else {
            storm.strike(world)?;
            strike_at = storm.next(world.now());
        }
    }
    world.run_until(storm_ends)?;
    storm.end(world);
    world.run_until(storm_ends + CALM)?;
    for call in crowd.last_calls(world) {
        world.call(&admin(), call);
    }
    let n_views = views_converge(world)?;
    wait_for_the_end(world)?;
    Ok(n_views)
}

/// Triggers a pass by a change that changes no plan, and compares the views before anything else happens.
fn views_converge(world: &mut World) -> Result<usize, Violation> {
    let mut n_views = 0;
    for n_jobs in 1_000..1_005 {
        world.run_until(world.now() + Span::from_secs(20))?;
        let n_facts = world.facts().len();
        world.call(&admin(), Call::Set { key: "max_jobs".to_owned(), value: n_jobs.to_string() });
        world.run_until(world.now() + LATEST_PASS)?;
        n_views += world.check_views_converged(n_facts)?;
    }
    Ok(n_views)
}

/// Checks from time to time, and for the last time when everything must have ended.
fn wait_for_the_end(world: &mut World) -> Result<(), Violation> {
    let last = world.now() + PATIENCE;
    while world.now() < last {
        world.run_until(world.now() + Span::from_mins(2))?;
        world.check_nobody_overstays()?;
        if world.check_everything_ended().is_ok() {
            return Ok(());
        }
    }
    world.check_everything_ended()
}

/// The time until every agent has noticed that its old link is dead and has connected again.
const CALM: Span = Span::from_secs(30);
/// The longest re-scheduling timer, and the transit of a message.
const LATEST_PASS: Span = Span::from_millis(1003);
/// More than all jobs take one after the other.
const PATIENCE: Span = Span::from_hours(4);
/// The random stream of worlds with negotiations.
const STREAM_OF_NEGOTIATIONS: u64 = 8;
/// The random stream of worlds.
const STREAM: u64 = 3;
/// The random stream that decides whether jobs share nodes.
const STREAM_OF_SHARING: u64 = 13;
