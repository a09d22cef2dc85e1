//! Jobs that share nodes: which job gets what of which node when.

use rms_api::answer::{JobState, Reason};
use rms_api::call::{Nodes, Query, Select, Shape};
use rms_api::desired::{JobReport, JobStatus};
use rms_api::{Answer, Call};
use rms_model::job::Constraint;
use rms_model::{Granted, Inventory, JobId, Mebibytes, NodeAdmin, NodeId, Outcome, Packing, Span};

use super::World;
use crate::plan::{Placed, Scope, plan};
use crate::{Event, Fact, Replay};
use test_kit::{Dice, for_seeds};

/// Creates a cluster shared by cores, with nodes of these numbers of cores, in two packages, 1000 MiB a core, and of
/// GPUs.
pub(super) fn shared(nodes: &[(u32, u32)]) -> World {
    let mut world = World::new();
    world.set("allocation", "cores");
    for (idx, (cores, gpus)) in nodes.iter().enumerate() {
        let inventory = Inventory {
            sockets: 2,
            numa_nodes: 2,
            cores: *cores,
            cpus: *cores,
            memory: Mebibytes(u64::from(*cores) * 1000),
            devices: [("gpu:a100".to_owned(), *gpus)].into_iter().collect(),
            ..Inventory::default()
        };
        world.joins(&format!("n{}", idx + 1), inventory, Vec::new());
    }
    world
}

/// What a job requests of each of its nodes.
#[derive(Clone, Copy, Default)]
struct Ask {
    nodes: u32,
    cores: u32,
    memory: u64,
    gpus: u32,
    wall_millis: i64,
    exclusive: bool,
    share: bool,
    packing: Packing,
}

impl World {
    fn asks(&mut self, ask: Ask) -> JobId {
        self.submit_with(|submission| {
            let wall = Some(Span::from_millis(ask.wall_millis));
            submission.shapes = vec![Shape { nodes: Nodes::Count(ask.nodes), wall }];
            submission.n_tasks = Some(ask.nodes);
            submission.cpus_per_task = ask.cores;
            submission.constraint.memory = Mebibytes(ask.memory);
            submission.resources.devices = [("gpu".to_owned(), ask.gpus)].into_iter().collect();
            submission.resources.exclusive = ask.exclusive;
            submission.resources.share = ask.share;
            submission.resources.packing = ask.packing;
        })
    }

    /// Returns the names of the job's nodes and its cores there, or nothing if it waits.
    fn cores_of(&self, job: JobId) -> Vec<String> {
        let state = self.rms.state();
        let Some(entry) = state.jobs().get(&job) else { return Vec::new() };
        let part = |node| match entry.grants().get(node) {
            Some(grant) => format!("{}:{}", state.nodes()[node].name, grant.cores),
            None => state.nodes()[node].name.clone(),
        };
        entry.nodes().iter().map(part).collect()
    }

    pub(crate) fn ends(&mut self, job: JobId) {
        let run = self.rms.state().jobs()[&job].run;
        self.event(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
    }

    fn waits(&mut self, job: JobId) -> bool {
        self.line(job).state == JobState::Waiting
    }
}

const PLAIN: Ask = Ask {
    nodes: 1,
    cores: 1,
    memory: 0,
    gpus: 0,
    wall_millis: 100_000,
    exclusive: false,
    share: false,
    packing: Packing::Pack,
};

#[test]
fn jobs_share_a_node_each_with_cores_of_its_own() {
    let mut world = shared(&[(8, 0)]);
    let jobs: Vec<JobId> = [2, 3, 1, 2].map(|cores| world.asks(Ask { cores, ..PLAIN })).to_vec();
    let parts: Vec<_> = jobs.iter().map(|job| world.cores_of(*job).join(" ")).collect();
    assert_eq!(parts, ["n1:0-1", "n1:4-6", "n1:7", "n1:2-3"]);
    let waits = world.asks(PLAIN);
    assert!(world.waits(waits));
    world.ends(jobs[1]);
    assert_eq!(world.cores_of(waits), ["n1:4"]);
}

#[test]
fn jobs_stay_in_one_package_also_where_these_are_not_equal() {
    let mut world = World::new();
    world.set("allocation", "cores");
    let node = Inventory { sockets: 2, numa_nodes: 2, cores: 8, cpus: 8, ..Inventory::default() };
    world.joins("n1", node.with_parts(vec![3, 5], vec![3, 5]), Vec::new());
    let jobs: Vec<JobId> = [2, 4, 1, 1].map(|cores| world.asks(Ask { cores, ..PLAIN })).to_vec();
    let parts: Vec<_> = jobs.iter().map(|job| world.cores_of(*job).join(" ")).collect();
    assert_eq!(parts, ["n1:0-1", "n1:3-6", "n1:2", "n1:7"]);
}

#[test]
fn tasks_span_no_packages_where_they_need_not() {
    let mut world = shared(&[(8, 0)]);
    let pair = world.submit_with(|submission| (submission.n_tasks, submission.cpus_per_task) = (Some(2), 3));
    let other = world.asks(PLAIN);
    assert_eq!([pair, other].map(|job| world.cores_of(job).join(" ")), ["n1:0-2,4-6", "n1:3"]);
}

#[test]
fn memory_and_devices_are_given_once_too() {
    let mut world = shared(&[(8, 2), (8, 0)]);
    let first = world.asks(Ask { memory: 6000, ..PLAIN });
    let second = world.asks(Ask { memory: 6000, gpus: 1, ..PLAIN });
    let third = world.asks(Ask { gpus: 2, ..PLAIN });
    // The plain node is taken first; the GPUs stay for jobs that need them.
    assert_eq!((world.cores_of(first), world.cores_of(second)), (vec!["n2:0".into()], vec!["n1:0".into()]));
    assert!(world.waits(third));
    world.ends(second);
    let grant = world.rms.state().jobs()[&third].grants().values().next().cloned().expect("it shares");
    assert_eq!(grant.devices["gpu:a100"].to_string(), "0-1");
}

#[test]
fn a_job_that_counts_no_cpus_or_wants_to_be_alone_has_whole_nodes() {
    for ask in [Ask { cores: 0, ..PLAIN }, Ask { exclusive: true, ..PLAIN }] {
        let mut world = shared(&[(4, 0), (4, 0)]);
        let small = world.asks(PLAIN);
        let whole = world.asks(ask);
        assert_eq!((world.cores_of(small), world.cores_of(whole)), (vec!["n1:0".into()], vec!["n2".into()]));
        let behind = world.asks(Ask { nodes: 2, ..PLAIN });
        assert!(world.waits(behind));
        world.ends(whole);
        assert_eq!(world.cores_of(behind), ["n1:1", "n2:0"]);
    }
}

#[test]
fn a_job_goes_where_it_fits_best_or_where_most_is_free() {
    let mut world = shared(&[(8, 0), (8, 0)]);
    let first = world.asks(Ask { cores: 3, ..PLAIN });
    let packed = world.asks(PLAIN);
    let spread = world.asks(Ask { packing: Packing::Spread, ..PLAIN });
    assert_eq!([first, packed, spread].map(|job| world.cores_of(job).join("")), ["n1:0-2", "n1:3", "n2:0"]);
}

/// Twenty free cores on ten nodes have no room for a task of four.
#[test]
fn free_cores_of_several_nodes_are_no_place_for_one_task() {
    let mut world = shared(&[(4, 0); 3]);
    (0..3).for_each(|_| _ = world.asks(Ask { cores: 2, packing: Packing::Spread, ..PLAIN }));
    let wide = world.asks(Ask { cores: 4, ..PLAIN });
    let line = world.line(wide);
    assert_eq!(line.estimate.map(|at| at.since(world.now)), Some(Span::from_secs(100)), "{line:?}");
}

/// The late job is planned with for ten seconds more, beyond the end of the other one.
#[test]
fn a_job_that_stays_too_long_is_expected_to_leave_after_others() {
    for (cores, secs) in [(4, 9), (3, 1)] {
        let mut world = shared(&[(4, 0)]);
        world.asks(Ask { wall_millis: 10_000, ..PLAIN });
        world.asks(Ask { cores: 2, wall_millis: 12_000, ..PLAIN });
        world.now += Span::from_secs(11);
        let waits = world.asks(Ask { cores, ..PLAIN });
        assert_eq!(world.line(waits).estimate.map(|at| at.since(world.now)), Some(Span::from_secs(secs)), "{cores}");
    }
}

/// The search for the third begins where the second, which requests less, has found room.
#[test]
fn who_waits_behind_others_is_told_how_many_nodes_have_room_now() {
    let mut world = shared(&[(8, 0); 4]);
    let runs = Ask { nodes: 4, cores: 6, wall_millis: 60_000, ..Ask::default() };
    world.asks(runs);
    for (nodes, cores, wall_millis) in [(1, 4, 10_000), (1, 4, 20_000), (2, 5, 20_000)] {
        let waits = world.asks(Ask { nodes, cores, wall_millis, ..runs });
        let reason = world.line(waits).reason;
        let Some(Reason::Blocked { busy, capacity, .. }) = reason else { panic!("{reason:?}") };
        assert_eq!((busy, capacity), (4, 4), "{cores} cores");
    }
}

/// Under EASY, jobs behind the first waiting one are not placed before the time at which they had room without it.
#[test]
fn who_waits_behind_the_first_under_easy_is_told_what_is_short() {
    let mut world = shared(&[(8, 0); 3]);
    world.set("policy", "easy");
    let runs = world.asks(Ask { nodes: 3, cores: 7, ..PLAIN });
    let waits = [6, 2].map(|cores| world.asks(Ask { cores, wall_millis: 60_000, ..PLAIN }));
    for waits in waits {
        let query = Query::Explain(Select::Ids(vec![waits]));
        let Answer::Detail { jobs, .. } = world.ask(Call::Query(query)) else { panic!("no details") };
        let reason = &jobs[0].line.reason;
        let Some(Reason::Blocked { by, short: Some(short), .. }) = reason else { panic!("{reason:?}") };
        assert_eq!((by[0].job, short.with_cores), (runs, 0));
    }
}

/// One has all cores, one the memory that another job needs, and one the GPUs.
#[test]
fn who_is_in_the_way_on_shared_nodes_is_named_by_what_is_short() {
    let mut world = shared(&[(8, 2), (8, 0)]);
    let ask = Ask { nodes: 1, cores: 1, wall_millis: 60_000, ..Ask::default() };
    let gpus = world.asks(Ask { gpus: 2, ..ask });
    let memory = world.asks(Ask { memory: 7500, ..ask });
    let other = world.asks(Ask { memory: 7500, ..ask });
    let by = |world: &mut World, wanted: Ask| {
        let job = world.asks(Ask { wall_millis: 10_000, ..wanted });
        let query = Query::Explain(Select::Ids(vec![job]));
        let Answer::Detail { jobs, .. } = world.ask(Call::Query(query)) else { panic!("no details") };
        let Some(Reason::Blocked { by, .. }) = &jobs[0].line.reason else { panic!("{:?}", jobs[0].line) };
        let by = by.iter().map(|blocker| blocker.job).collect::<Vec<_>>();
        world.ask(Call::Cancel { select: Select::Ids(vec![job]) });
        by
    };
    assert_eq!(by(&mut world, Ask { gpus: 1, ..ask }), [gpus]);
    assert_eq!(by(&mut world, Ask { memory: 7000, ..ask }), [memory, other]);
    assert_eq!(by(&mut world, Ask { cores: 8, ..ask }), [gpus, memory, other]);
    assert_eq!(by(&mut world, Ask { exclusive: true, ..ask }), [gpus, memory, other]);
    // What is planned before a job is in its way only if it takes what is short.
    let all = Ask { wall_millis: 200_000, ..ask };
    let all_cores = world.asks(Ask { nodes: 2, cores: 7, ..all });
    assert_eq!(world.line(all_cores).state, JobState::Waiting);
    let next_gpus = world.asks(Ask { gpus: 2, ..ask });
    assert_eq!(by(&mut world, Ask { gpus: 1, ..ask }), [gpus, next_gpus]);
}

#[test]
fn who_waits_is_told_which_resource_is_short() {
    let mut world = shared(&[(8, 2), (8, 0)]);
    world.asks(Ask { memory: 6000, ..PLAIN });
    let waits = world.asks(Ask { nodes: 2, cores: 2, memory: 4000, ..PLAIN });
    let reason = world.line(waits).reason;
    let Some(Reason::Blocked { wanted, until, short: Some(short), .. }) = reason else { panic!("{reason:?}") };
    assert_eq!((wanted, short.with_cores, short.with_memory, short.with_devices), (2, 2, 1, 1));
    assert_eq!(until.since(world.now), Span::from_secs(100));
}

#[test]
fn only_nodes_that_a_job_may_use_are_counted_where_its_shortage_is_told() {
    let mut world = shared(&[(8, 2), (8, 0), (8, 0)]);
    world.asks(Ask { cores: 8, gpus: 1, ..PLAIN });
    let limits: [fn(&mut Constraint); 2] = [
        |constraint| constraint.exclude = ["n2".to_owned(), "n3".to_owned()].into(),
        |constraint| constraint.nodelist = ["n1".to_owned()].into(),
    ];
    for limit in limits {
        let waits = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(10)) }];
            submission.n_tasks = Some(1);
            submission.cpus_per_task = 1;
            limit(&mut submission.constraint);
        });
        let reason = world.line(waits).reason;
        let Some(Reason::Blocked { wanted, short: Some(short), .. }) = reason else { panic!("{reason:?}") };
        assert_eq!((wanted, short.with_cores, short.with_memory, short.with_devices), (1, 0, 0, 0));
        world.ask(Call::Cancel { select: Select::Ids(vec![waits]) });
    }
}

#[test]
fn a_view_counts_a_node_once_however_many_have_something_of_it() {
    let mut world = shared(&[(8, 0), (8, 0)]);
    world.asks(Ask { wall_millis: 50_000, ..PLAIN });
    world.asks(Ask { cores: 2, ..PLAIN });
    world.asks(Ask { nodes: 2, cores: 8, ..PLAIN });
    let Answer::View(view) = world.ask(Call::Query(Query::View { job: None })) else { panic!("no view") };
    let busy_at = |profile: &rms_model::Profile, secs: i64| profile.at(world.now + Span::from_secs(secs));
    let (started, planned) = (&view.clusters[0].started, &view.clusters[0].planned);
    assert_eq!([0, 60, 100].map(|secs| busy_at(started, secs)), [1, 1, 0]);
    assert_eq!([0, 60, 100, 199, 200].map(|secs| busy_at(planned, secs)), [0, 0, 2, 2, 0]);
}

fn drawn(dice: &mut Dice) -> Ask {
    Ask {
        nodes: dice.number(1, 4).saturating_sub(1).max(1),
        cores: if dice.chance(10) { 0 } else { dice.number(1, 4) },
        memory: u64::from(dice.number(0, 4)) * 1500,
        gpus: dice.number(0, 5).saturating_sub(3),
        wall_millis: dice.number(1000, 200_000).into(),
        exclusive: dice.chance(5),
        share: false,
        packing: if dice.number(0, 1) == 0 { Packing::Pack } else { Packing::Spread },
    }
}

/// Under each policy: nothing is given twice, the index matches the state, and the first waiting job has no room.
#[test]
fn whatever_comes_and_goes_nothing_is_given_twice() {
    come_and_go(10);
}

#[test]
fn long_whatever_comes_and_goes_nothing_is_given_twice() {
    let n_shared = come_and_go(60);
    assert!(n_shared > 300, "{n_shared}");
}

/// Returns how often a node had several jobs.
fn come_and_go(n_seeds: u64) -> usize {
    let mut n_shared = 0;
    for_seeds("whatever_comes_and_goes_nothing_is_given_twice", n_seeds, |dice| {
        let mut world = shared(&[(8, 2), (8, 0), (6, 1), (4, 0)]);
        world.set("policy", ["views", "fcfs", "easy", "conservative"][dice.number(0, 3) as usize]);
        world.set("fair_start", ["0s", "5s"][dice.number(0, 1) as usize]);
        for _ in 0..80 {
            world.now += Span::from_secs(dice.number(0, 20).into());
            let running: Vec<JobId> = world.rms.state().holding().map(|(job, _)| job).collect();
            match dice.number(0, 9) {
                0..6 => {
                    let ask = drawn(dice);
                    let is_possible = ask.gpus == 0 || ask.nodes == 1;
                    let fits = ask.nodes < 3 || (ask.cores <= 4 && ask.memory <= 4000);
                    if is_possible && fits && (ask.nodes < 2 || ask.cores <= 6) && ask.memory <= 6000 {
                        world.asks(ask);
                    }
                }
                6..8 if !running.is_empty() => {
                    let job = running[dice.number(0, running.len() as u32 - 1) as usize];
                    if world.rms.state().jobs()[&job].started().is_some() {
                        world.ends(job);
                    }
                }
                8 => {
                    let allocation = if dice.chance(80) { "cores" } else { "nodes" };
                    world.set("allocation", allocation);
                }
                _ => world.restart(0),
            }
            world.event(Event::Tick);
            let state = world.rms.state();
            n_shared += state.nodes().values().filter(|node| node.holders.len() > 1).count();
        }
    });
    n_shared
}

/// Under EASY, on equal nodes: counts of free cores start the same jobs on the same nodes as a check of all nodes does.
#[test]
fn counts_of_free_cores_let_start_whom_a_look_at_each_does() {
    count_and_look(5);
}

#[test]
fn long_counts_of_free_cores_let_start_whom_a_look_at_each_does() {
    let (n_starts, n_behind) = count_and_look(30);
    assert!(n_starts > 1000 && n_behind > 150, "{n_starts}, {n_behind}");
}

/// Returns how many jobs have started, and in how many passes not only the first of the queue.
fn count_and_look(n_seeds: u64) -> (usize, usize) {
    let (mut n_starts, mut n_behind) = (0, 0);
    for_seeds("counts_of_free_cores_let_start_whom_a_look_at_each_does", n_seeds, |dice| {
        let n_nodes = dice.number(2, 12);
        let mut world = shared(&vec![(4, 0); n_nodes as usize]);
        world.set("policy", "easy");
        world.set("fair_start", "0s");
        for _ in 0..40 {
            world.now += Span::from_secs(dice.number(0, 20).into());
            let cores = if dice.chance(50) { 4 } else { dice.number(0, 3) };
            let nodes = if dice.chance(50) { 1 } else { dice.number(1, n_nodes) };
            let ask = Ask { nodes, cores, gpus: 0, ..drawn(dice) };
            world.asks(Ask { memory: ask.memory.min(4000), ..ask });
            // As if some of the running jobs had left at once.
            let mut replay = Replay::of(world.rms.state().clone());
            let running: Vec<JobId> = replay.state().holding().map(|(job, _)| job).collect();
            let share = dice.number(10, 70);
            for job in running.into_iter().filter(|_| dice.chance(share)) {
                replay.follow(&Fact::GhostExpired { job }).expect("it holds nodes");
            }
            let state = replay.into_state();
            state.check().expect("the index is what the state says");
            let starts = |scope| {
                let mut placements = plan(&state, world.now, scope).placements;
                placements.retain(|placement| matches!(placement.outcome, Placed::Now { .. }));
                placements
            };
            let found = starts(Scope::Starts);
            assert_eq!(found, starts(Scope::Estimates));
            n_starts += found.len();
            let heads = state.queue().take(found.len());
            n_behind += usize::from(!heads.eq(found.iter().map(|placement| placement.job)));
        }
    });
    (n_starts, n_behind)
}

/// Under conservative backfilling no job starts later than once promised, as long as all leave in time.
#[test]
fn a_promise_on_shared_nodes_is_kept() {
    keep_promises(4);
}

#[test]
fn long_a_promise_on_shared_nodes_is_kept() {
    let n_kept = keep_promises(20);
    assert!(n_kept > 100, "{n_kept}");
}

/// Promises on such nodes are made again by each pass.
#[test]
fn nobody_wakes_each_instant_for_nodes_whose_agents_are_expected() {
    let mut world = shared(&[(8, 0), (8, 0)]);
    world.set("policy", "conservative");
    world.set("restart_grace", "10s");
    world.restart(0);
    let ask = Ask { cores: 2, wall_millis: 60_000, ..PLAIN };
    let job = world.asks(ask);
    for _ in 0..3 {
        world.event(Event::Tick);
        let promise = world.rms.state().jobs()[&job].promised.clone().expect("it is planned");
        assert!(!promise.nodes.is_empty());
        let next = world.rms.next_timer().expect("there are times to wait for");
        assert!(next >= world.now + Span::from_millis(900), "{promise:?}, and the next timer is {next:?}");
        world.now += Span::from_millis(5);
    }
}

/// Returns how many jobs have started that were promised a start before.
fn keep_promises(n_seeds: u64) -> u32 {
    let mut n_kept = 0;
    for_seeds("a_promise_on_shared_nodes_is_kept", n_seeds, |dice| {
        let mut world = shared(&[(8, 1), (8, 0), (4, 0)]);
        world.set("policy", "conservative");
        let mut promised = std::collections::BTreeMap::new();
        let mut ends: Vec<(rms_model::Time, JobId)> = Vec::new();
        for _ in 0..150 {
            let next_end = ends.iter().map(|(end, _)| *end).min().unwrap_or(rms_model::Time::NEVER);
            let next_promise = world.rms.state().next_promise(world.now).unwrap_or(rms_model::Time::NEVER);
            let at_most = world.now + Span::from_secs(dice.number(1, 20).into());
            world.now = next_end.min(next_promise).clamp(world.now, at_most);
            let due: Vec<JobId> = ends.iter().filter(|(end, _)| *end <= world.now).map(|(_, job)| *job).collect();
            ends.retain(|(end, _)| *end > world.now);
            due.into_iter().for_each(|job| world.ends(job));
            if dice.chance(40) {
                let ask = Ask { nodes: dice.number(1, 2), cores: dice.number(1, 4), gpus: 0, ..drawn(dice) };
                let memory = ask.memory.min(4000);
                world.asks(Ask { memory, ..ask });
            }
            world.event(Event::Tick);
            let state = world.rms.state();
            for (job, entry) in state.jobs() {
                if let Some(promise) = &entry.promised {
                    let first = *promised.entry(*job).or_insert(promise.at);
                    assert!(promise.at <= first, "{job} was promised {first:?} and now {:?}", promise.at);
                }
                let is_new = entry.started().filter(|_| !ends.iter().any(|(_, known)| known == job));
                if let Some(started) = is_new {
                    let first = promised.get(job);
                    assert!(first.is_none_or(|first| started.at <= *first), "{job}");
                    n_kept += u32::from(first.is_some());
                    let wall = dice.number(1, 3);
                    let run = Span::from_millis(started.request.wall.as_millis() * i64::from(wall) / 3);
                    ends.push((started.at + run, *job));
                }
            }
        }
    });
    n_kept
}

#[test]
fn a_node_that_says_less_than_its_jobs_have_keeps_them_and_gets_no_other() {
    let mut world = shared(&[(8, 0)]);
    let job = world.asks(Ask { cores: 6, ..PLAIN });
    let (node, run) = (world.rms.state().node_named("n1").expect("it joined"), world.rms.state().jobs()[&job].run);
    let there = world.rms.state().nodes()[&node].inventory.clone();
    let less = Inventory { cores: 4, cpus: 4, ..there.clone() };
    let runs = JobReport { job, run, status: JobStatus::running(world.now) };
    world.joins("n1", less.clone(), vec![runs]);
    let entry = &world.rms.state().nodes()[&node];
    assert_eq!(entry.inventory, there);
    let NodeAdmin::Drain { reason, .. } = &entry.admin else { panic!("{entry:?}") };
    assert!(reason.contains("4 cores") && reason.contains("restart its agent"), "{reason}");
    assert_eq!(world.cores_of(job), ["n1:0-5"]);
    let waits = world.asks(PLAIN);
    assert!(world.waits(waits));
    // A node that was restarted with less has lost its jobs.
    world.joins("n1", less.clone(), Vec::new());
    assert_eq!(world.rms.state().nodes()[&node].inventory, less);
}

/// The history says what a job had, or nobody could compute the use of shared nodes.
#[test]
fn the_record_of_a_job_has_what_it_was_granted() {
    let mut world = shared(&[(8, 2), (8, 0), (8, 0), (8, 2)]);
    let part = world.asks(Ask { nodes: 1, cores: 5, memory: 3000, gpus: 1, wall_millis: 60_000, ..Ask::default() });
    let whole = world.asks(Ask { nodes: 2, cores: 1, wall_millis: 60_000, exclusive: true, ..Ask::default() });
    let all_cores = world.asks(Ask { nodes: 1, cores: 8, memory: 3000, wall_millis: 60_000, ..Ask::default() });
    let waits = world.asks(Ask { nodes: 3, cores: 8, wall_millis: 60_000, ..Ask::default() });
    let ended = world.now + Span::from_secs(10);
    let state = world.rms.state();
    let granted = |job: JobId| state.granted(&state.jobs()[&job], ended);
    let devices = [("gpu:a100".to_owned(), 1)].into_iter().collect();
    let of_part = Granted { cores: 5, memory: Mebibytes(3000), devices, core_time: 50_000, ..Granted::default() };
    assert_eq!(granted(part), Some(of_part));
    let memory = Mebibytes(16_000);
    let of_whole = Granted { cores: 16, whole_nodes: 2, memory, core_time: 160_000, ..Granted::default() };
    assert_eq!(granted(whole), Some(of_whole));
    let of_all_cores = Granted { cores: 8, memory: Mebibytes(3000), core_time: 80_000, ..Granted::default() };
    assert_eq!(granted(all_cores), Some(of_all_cores));
    assert_eq!(granted(waits), None);
    let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Job(Select::Ids(vec![all_cores])))) else {
        panic!("it is asked for details")
    };
    let shown: Vec<(u32, Mebibytes)> = jobs[0].grants.values().map(|grant| (grant.cores.len(), grant.memory)).collect();
    assert_eq!(shown, [(8, Mebibytes(3000))]);
}

/// An owner of all cores keeps no more than it asked for.
#[test]
fn a_guest_gets_the_memory_and_the_devices_that_the_owner_of_all_cores_did_not_ask_for() {
    let mut world = shared(&[(8, 2)]);
    world.set("policy", "slowdown");
    let owner = world.asks(Ask { cores: 8, memory: 3000, wall_millis: 3_600_000, share: true, ..PLAIN });
    let ask = Ask { cores: 2, memory: 5000, gpus: 1, share: true, ..PLAIN };
    let too_large = world.asks(Ask { memory: 5001, ..ask });
    let guest = world.asks(ask);
    assert!(world.waits(too_large));
    assert_eq!(world.lender_of(guest), [owner]);
    let ended = world.now + Span::from_secs(10);
    let state = world.rms.state();
    let grant = &state.jobs()[&guest].grants()[&NodeId(1)];
    assert_eq!((grant.memory, grant.devices["gpu:a100"].to_string()), (Mebibytes(5000), "0".to_owned()));
    let granted = state.granted(&state.jobs()[&owner], ended).expect("it runs");
    assert_eq!((granted.cores, granted.memory, granted.whole_nodes), (8, Mebibytes(3000), 0));
}

/// Nodes of which a job has some cores are not full.
#[test]
fn the_view_of_a_shared_cluster_counts_cores() {
    let mut world = shared(&[(8, 0); 4]);
    let runs = Ask { nodes: 4, cores: 5, wall_millis: 60_000, ..Ask::default() };
    world.asks(runs);
    let waits = world.asks(Ask { nodes: 2, cores: 4, ..runs });
    let mut cores = |job| match world.ask(Call::Query(Query::View { job })) {
        Answer::View(mut view) => (view.now, view.clusters.remove(0)),
        other => panic!("no view: {other:?}"),
    };
    let (now, view) = cores(None);
    let seen = view.cores.expect("it is shared by cores");
    let end = now + Span::from_secs(60);
    assert_eq!((seen.capacity, seen.taken.at(now), seen.taken.at(end)), (32, 20, 0));
    assert_eq!((seen.planned.at(now), seen.planned.at(end)), (0, 8));
    assert_eq!((view.started.at(now), view.planned.at(end)), (4, 2), "the profiles of nodes stay");
    let seen = cores(Some(waits)).1.cores.expect("it is shared by cores");
    assert_eq!((seen.taken.at(now), seen.planned.at(end)), (20, 0), "as it is before this job");
}

/// The time until which a job that is late is assumed to stay is the one with which the others are planned.
#[test]
fn who_waits_for_a_job_whose_wall_time_is_over_is_told_until_when() {
    let mut world = shared(&[(8, 0)]);
    world.set("kill_grace", "10s");
    let end = world.now + Span::from_secs(3);
    let late = world.asks(Ask { cores: 8, wall_millis: 3_000, ..PLAIN });
    let waits = world.asks(Ask { cores: 8, ..PLAIN });
    for (passed, stays) in [(2, 10), (17, 17 + 10)] {
        world.now = end + Span::from_secs(passed);
        let estimate = world.line(waits).estimate;
        let Some(Reason::Blocked { by, until, .. }) = world.explained(waits) else { panic!("it waits") };
        let by: Vec<_> = by.iter().map(|by| (by.job, by.until)).collect();
        let expected = end + Span::from_secs(stays);
        assert_eq!((by, until, estimate), (vec![(late, expected)], expected, Some(expected)));
    }
}
