//! Promises that are due while jobs that are ended at the end of their wall time still leave, or an agent restarts.

use std::collections::BTreeMap;

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_model::{ExpandLimit, Inventory, JobId, Outcome, Span, Time};
use test_kit::{Dice, for_seeds};

use super::evolving::profile;
use super::{NullJournal, World};
use crate::Event;

/// How long a job takes to leave after its wall time is over.
const TO_LEAVE: Span = Span::from_millis(12);
/// How long an agent is away while it is restarted, in milliseconds.
const RESTART: u32 = 300;
/// How much later than promised a job may start.
const LATE: Span = Span::from_secs(1);

fn world(allocation: &str, n_nodes: u32) -> World {
    let mut world = World::new();
    world.set("policy", "conservative");
    world.set("allocation", allocation);
    world.set("licences", "matlab:3");
    for number in 1..=n_nodes {
        world.joins(&format!("n{number}"), Inventory { cores: 4, cpus: 4, ..Inventory::default() }, Vec::new());
    }
    world
}

/// Two jobs run, each until the end of its time. Three nodes are promised from the end of the first on; between the two
/// ends, a job behind gets two.
#[test]
fn who_starts_late_keeps_its_place_and_makes_nobody_later() {
    for allocation in ["nodes", "cores"] {
        let mut world = world(allocation, 4);
        let submit = |world: &mut World, nodes, secs| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
                submission.n_tasks = Some(nodes);
                submission.cpus_per_task = 4;
            })
        };
        let first = submit(&mut world, 2, 30);
        let second = submit(&mut world, 2, 20);
        let big = submit(&mut world, 3, 100);
        let small = submit(&mut world, 2, 10);
        let begun = world.now;
        let at = |secs: i64, millis: i64| begun + Span::from_millis(secs * 1000 + millis);
        let estimates = |world: &mut World| [small, big].map(|job| world.line(job).estimate);
        assert_eq!(estimates(&mut world), [Some(at(20, 0)), Some(at(30, 0))], "{allocation}");
        for wait in [0, 7] {
            world.now = at(20, wait);
            world.event(Event::Tick);
            assert_eq!(estimates(&mut world), [Some(at(20, wait)), Some(at(30, 0))], "{allocation}");
        }
        world.now = at(20, 12);
        world.ends(second);
        world.event(Event::Tick);
        assert_eq!(world.line(small).state, JobState::Started, "{allocation}");
        assert_eq!(world.line(small).request.wall, Span::from_secs(10), "{allocation}");
        assert_eq!(world.line(big).estimate, Some(at(30, 0)), "{allocation}");
        world.now = at(30, 0);
        world.event(Event::Tick);
        world.now = at(30, 9);
        world.ends(first);
        world.event(Event::Tick);
        assert_eq!(
            world.line(big).state,
            JobState::Waiting,
            "{allocation}: the small one still has a node that it needs"
        );
        world.now = at(30, 24);
        world.ends(small);
        world.event(Event::Tick);
        assert_eq!(world.line(big).state, JobState::Started, "{allocation}");
    }
}

/// Nodes come one after the other, and the jobs behind would fit on the first ones.
#[test]
fn an_application_with_a_profile_is_promised_its_start_and_not_overtaken() {
    for text in ["4x4s,2x4s", "2x4s,4x4s", "4x8s"] {
        let mut world = world("nodes", 4);
        let submit = |world: &mut World, nodes, secs| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
                submission.cpus_per_task = 4;
            })
        };
        let first = [(); 4].map(|()| submit(&mut world, 1, 5));
        let evolving = world.submit_with(|submission| {
            submission.evolving = Some(profile(text, ExpandLimit::NONE, false));
            submission.cpus_per_task = 4;
        });
        let behind = [submit(&mut world, 1, 15), submit(&mut world, 2, 15)];
        let begun = world.now;
        world.event(Event::Tick);
        assert_eq!(world.line(evolving).estimate, Some(begun + Span::from_secs(5)), "{text}");
        let estimates = behind.map(|job| world.line(job).estimate);
        for (nth, job) in first.into_iter().enumerate() {
            world.now = begun + Span::from_millis(5000 + 9 * nth as i64);
            world.event(Event::Tick);
            world.ends(job);
            world.event(Event::Tick);
        }
        assert_eq!(world.line(evolving).state, JobState::Started, "{text}");
        // Its later stages are later by as much as its start.
        let are_kept = behind.into_iter().zip(estimates).all(|(job, before)| {
            let latest = before.map(|at| at + world.now.since(begun + Span::from_secs(5)));
            world.line(job).estimate <= latest
        });
        assert!(are_kept, "{text}: {estimates:?}, {:?}", behind.map(|job| world.line(job).estimate));
    }
}

#[test]
fn a_promise_for_which_nobody_makes_room_is_given_anew_after_a_second() {
    for allocation in ["nodes", "cores"] {
        let mut world = world(allocation, 1);
        let [_stays, next] = [(); 2].map(|()| world.submit(1, 10, &[]));
        let limit = world.now + Span::from_secs(10);
        world.now = limit;
        world.event(Event::Tick);
        assert_eq!(world.line(next).estimate, Some(limit), "{allocation}");
        assert_eq!(world.rms.next_timer(), Some(limit + Span::from_secs(1)), "{allocation}");
        world.now = limit + Span::from_secs(1);
        world.event(Event::Tick);
        assert_eq!(world.line(next).estimate, Some(limit + Span::from_secs(10)), "{allocation}: it is killed then");
    }
}

#[test]
fn jobs_that_leave_late_and_agents_that_restart_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(20);
    assert!(n_started > 400, "{n_started} jobs have started");
}

#[test]
fn long_jobs_that_leave_late_and_agents_that_restart_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(500);
    assert!(n_started > 10_000, "{n_started} jobs have started");
}

/// Returns how many jobs have started that had been promised a start.
fn delay_nobody(n_seeds: u64) -> u32 {
    let mut n_started = 0;
    for_seeds("jobs_that_leave_late_and_agents_that_restart_delay_nobody_by_more_than_that", n_seeds, |dice| {
        let n_nodes = dice.number(2, 6);
        let mut world = world(dice.one_of(&["nodes", "cores"]), n_nodes);
        world.set("resched_timer", dice.one_of(&["0s", "1s", "20s"]));
        let mut promised: BTreeMap<JobId, Time> = BTreeMap::new();
        for _ in 0..80 {
            if dice.chance(50) {
                submit_some(dice, &mut world, n_nodes);
            }
            n_started += let_pass(&mut world, dice.number(1, 20_000), &mut promised);
            let running: Vec<JobId> = ends(&world).map(|(_, job)| job).collect();
            if dice.chance(20) && !running.is_empty() {
                world.ends(dice.one_of(&running));
                n_started += check(&world, &mut promised);
            }
            if dice.chance(10) {
                let name = format!("n{}", dice.number(1, n_nodes));
                world.event(Event::AgentGone { name: name.clone() });
                n_started += check(&world, &mut promised) + let_pass(&mut world, RESTART, &mut promised);
                world.comes_back(&name);
                n_started += check(&world, &mut promised);
            }
        }
    });
    n_started
}

/// Lets time pass. Returns how many jobs have started that had been promised a start.
fn let_pass(world: &mut World, millis: u32, promised: &mut BTreeMap<JobId, Time>) -> u32 {
    let (until, mut n_started) = (world.now + Span::from_millis(i64::from(millis)), 0);
    while let Some(next) = next_event(world).filter(|next| *next <= until) {
        world.now = next;
        leave(world);
        world.event(Event::Tick);
        n_started += check(world, promised);
    }
    world.now = until;
    world.event(Event::Tick);
    n_started + check(world, promised)
}

fn submit_some(dice: &mut Dice, world: &mut World, n_nodes: u32) {
    let is_moldable = dice.chance(20);
    world.submit_with(|submission| {
        let mut shape = || {
            let wall = Span::from_millis(i64::from(dice.number(20, 600)) * 100);
            Shape { nodes: Nodes::Count(dice.number(1, n_nodes)), wall: Some(wall) }
        };
        submission.shapes = if is_moldable { vec![shape(), shape()] } else { vec![shape()] };
        submission.cpus_per_task = dice.number(1, 4);
        let licences = if dice.chance(20) { dice.number(1, 3) } else { 0 };
        submission.resources.licences = [("matlab".to_owned(), licences)].into_iter().collect();
    });
}

fn ends(world: &World) -> impl Iterator<Item = (Time, JobId)> + '_ {
    world.rms.state().holding().filter_map(|(job, entry)| Some((entry.started()?.until() + TO_LEAVE, job)))
}

fn next_event(world: &mut World) -> Option<Time> {
    let timer = world.rms.next_timer().filter(|at| *at > world.now);
    ends(world).map(|(at, _)| at).chain(timer).min()
}

fn leave(world: &mut World) {
    let due: Vec<JobId> = ends(world).filter(|(at, _)| *at <= world.now).map(|(_, job)| job).collect();
    for job in due {
        let run = world.rms.state().jobs()[&job].run;
        let done = Event::ApplicationDone { job, run, outcome: Outcome::WallTime };
        let Ok(_) = world.rms.handle(world.now, done).commit(&mut NullJournal);
    }
}

/// Checks that nobody starts, or is to start, much later than it was first promised. Returns how many start now.
fn check(world: &World, promised: &mut BTreeMap<JobId, Time>) -> u32 {
    let mut n_started = 0;
    for (job, entry) in world.rms.state().jobs() {
        let started = entry.started().map(|started| started.at);
        let Some(at) = started.or(entry.promised.as_ref().map(|promise| promise.at)) else { continue };
        // A promise only ever moves forward. Each job that it waited for may have started late because of others.
        let late = if started.is_some() { LATE } else { Span::ZERO };
        let latest = promised.get(job).map_or(at, |promised| *promised + late);
        assert!(at <= latest, "{job} was promised {:?} and has {at:?}", promised.get(job));
        promised.insert(*job, at);
        n_started += u32::from(started == Some(world.now));
    }
    n_started
}
