//! Promises that are due while jobs that are ended at the end of their wall time still leave, or an agent restarts.

use std::collections::BTreeMap;

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_api::desired::{Aim, DesiredJob, JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{ExpandLimit, Inventory, JobId, Outcome, Span, Time, Usage};
use test_kit::{Dice, for_seeds};

use super::evolving::profile;
use super::{NullJournal, World};
use crate::Event;
use crate::effect::Effect;

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

/// Submits a job with all CPUs of so many nodes.
fn submit_whole(world: &mut World, n_nodes: u32, wall: Span) -> JobId {
    world.submit_with(|submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
        submission.cpus_per_task = 4;
    })
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
    let texts = ["4x4s,2x4s", "2x4s,4x4s", "4x8s"];
    for (allocation, text) in ["nodes", "cores"].into_iter().flat_map(|on| texts.map(|text| (on, text))) {
        let mut world = world(allocation, 4);
        let submit = |world: &mut World, nodes, secs| submit_whole(world, nodes, Span::from_secs(secs));
        let first = [(); 4].map(|()| submit(&mut world, 1, 5));
        let evolving = world.submit_with(|submission| {
            submission.evolving = Some(profile(text, ExpandLimit::NONE, false));
            submission.cpus_per_task = 4;
        });
        let behind = [submit(&mut world, 1, 15), submit(&mut world, 2, 15)];
        let begun = world.now;
        world.event(Event::Tick);
        assert_eq!(world.line(evolving).estimate, Some(begun + Span::from_secs(5)), "{allocation}, {text}");
        let estimates = behind.map(|job| world.line(job).estimate);
        for (nth, job) in first.into_iter().enumerate() {
            world.now = begun + Span::from_millis(5000 + 9 * nth as i64);
            world.event(Event::Tick);
            world.ends(job);
            world.event(Event::Tick);
        }
        assert_eq!(world.line(evolving).state, JobState::Started, "{allocation}, {text}");
        // Its later stages are later by as much as its start.
        let are_kept = behind.into_iter().zip(estimates).all(|(job, before)| {
            let latest = before.map(|at| at + world.now.since(begun + Span::from_secs(5)));
            world.line(job).estimate <= latest
        });
        assert!(are_kept, "{allocation}, {text}: {estimates:?}, {:?}", behind.map(|job| world.line(job).estimate));
    }
}

/// Jobs that last no longer than others are given to leave.
#[test]
fn a_job_of_a_second_is_not_passed_because_nodes_leave_late() {
    for (allocation, millis) in ["nodes", "cores"].into_iter().flat_map(|on| [500, 1000].map(|millis| (on, millis))) {
        let mut world = world(allocation, 6);
        let submit = |world: &mut World, nodes, millis| submit_whole(world, nodes, Span::from_millis(millis));
        let first = submit(&mut world, 4, 4000);
        let _stays = submit(&mut world, 2, 4000 + millis);
        let _behind = submit(&mut world, 5, 20_000);
        let short = submit(&mut world, 4, millis);
        let begun = world.now;
        world.event(Event::Tick);
        assert_eq!(world.line(short).estimate, Some(begun + Span::from_secs(4)), "{allocation}");
        let small = submit(&mut world, 1, 3000);
        world.now = begun + Span::from_secs(4);
        world.event(Event::Tick);
        world.now = begun + Span::from_millis(4012);
        world.ends(first);
        world.event(Event::Tick);
        let states = [short, small].map(|job| world.line(job).state);
        assert_eq!(states, [JobState::Started, JobState::Waiting], "{allocation}, {millis} ms");
    }
}

/// Its later, smaller stage is where another one is promised nodes that are named, because a job that wants nodes which
/// follow one another waits, too.
#[test]
fn an_application_with_a_profile_starts_beside_nodes_that_are_named_for_others() {
    for allocation in ["nodes", "cores"] {
        let mut world = world(allocation, 6);
        let submit = |world: &mut World, nodes, millis, contiguous| {
            world.submit_with(|submission| {
                let wall = Some(Span::from_millis(millis));
                submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall }];
                submission.cpus_per_task = 4;
                submission.resources.contiguous = contiguous;
            })
        };
        let first = submit(&mut world, 1, 2000, false);
        let second = submit(&mut world, 6, 3000, false);
        let evolving = world.submit_with(|submission| {
            submission.evolving = Some(profile("5x6s,2x2s", ExpandLimit::NONE, false));
            submission.cpus_per_task = 4;
        });
        let behind = submit(&mut world, 2, 9000, false);
        let _contiguous = submit(&mut world, 5, 8000, true);
        let begun = world.now;
        world.event(Event::Tick);
        world.now = begun + Span::from_millis(1500);
        world.ends(first);
        world.event(Event::Tick);
        assert_eq!(world.line(second).state, JobState::Started, "{allocation}");
        let promised = world.line(behind).estimate;
        assert_eq!(world.line(evolving).estimate, Some(begun + Span::from_millis(4500)), "{allocation}");
        world.now = begun + Span::from_millis(4500);
        world.event(Event::Tick);
        world.now = begun + Span::from_millis(4512);
        world.ends(second);
        world.event(Event::Tick);
        assert_eq!(world.line(evolving).state, JobState::Started, "{allocation}");
        assert!(world.line(behind).estimate <= promised, "{allocation}: {:?}", world.line(behind).estimate);
    }
}

/// A job of higher priority is planned beside the stages of one that was promised its start before. The first of these is
/// to wait for the next one, and the plan must not forget that.
#[test]
fn stages_that_are_to_wait_for_the_next_one_stay_where_they_were_planned() {
    for allocation in ["nodes", "cores"] {
        let mut world = world(allocation, 4);
        let submit = |world: &mut World, nodes, secs| submit_whole(world, nodes, Span::from_secs(secs));
        let submit_stages = |world: &mut World, text, limit, priority| {
            world.submit_with(|submission| {
                submission.evolving = Some(profile(text, limit, false));
                submission.cpus_per_task = 4;
                submission.priority = priority;
            })
        };
        let _runs = submit(&mut world, 4, 10);
        let first = submit_stages(&mut world, "1x10s,2x10s", ExpandLimit::NONE, 0);
        let second = submit_stages(&mut world, "1x2s,2x5s,4x5s", ExpandLimit::Infinite, 6);
        let begun = world.now;
        world.event(Event::Tick);
        let estimates = [first, second].map(|job| world.line(job).estimate);
        assert_eq!(estimates[0], Some(begun + Span::from_secs(10)), "{allocation}");
        for secs in 1..10 {
            world.now = begun + Span::from_secs(secs);
            submit(&mut world, 1, 500);
            world.event(Event::Tick);
            assert_eq!([first, second].map(|job| world.line(job).estimate), estimates, "{allocation}, after {secs} s");
        }
    }
}

/// The node that was promised for a stage is left some milliseconds late. Another one is free, and promised to a job that
/// can use no other.
#[test]
fn a_stage_waits_for_its_own_nodes_before_it_takes_those_of_others() {
    let mut world = world("cores", 3);
    let submit = |world: &mut World, name: &str, secs| {
        world.submit_with(|submission| {
            let wall = Some(Span::from_secs(secs));
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall }];
            submission.cpus_per_task = 4;
            submission.constraint.nodelist = [name.to_owned()].into();
        })
    };
    let [late, punctual] = ["n1", "n3"].map(|name| submit(&mut world, name, 10));
    let evolving = world.submit_with(|submission| {
        submission.evolving = Some(profile("1x10s,2x20s", ExpandLimit::TWICE, false));
        submission.cpus_per_task = 4;
    });
    let other = submit(&mut world, "n3", 30);
    let begun = world.now;
    world.event(Event::Tick);
    assert_eq!(world.line(other).estimate, Some(begun + Span::from_secs(10)));
    world.now = begun + Span::from_secs(10);
    world.ends(punctual);
    world.event(Event::Tick);
    assert_eq!(world.line(other).state, JobState::Started);
    world.now = begun + Span::from_millis(10_012);
    world.ends(late);
    assert_eq!(world.rms.state().jobs()[&evolving].nodes().len(), 2);
}

#[test]
fn a_late_stage_begins_once_its_node_is_back_and_not_with_the_next_pass() {
    for allocation in ["nodes", "cores"] {
        let mut world = world(allocation, 2);
        let evolving = world.submit_with(|submission| {
            submission.evolving = Some(profile("1x5s,2x30s", ExpandLimit::NONE, false));
            submission.cpus_per_task = 4;
        });
        world.event(Event::Tick);
        let begun = world.now;
        let n_nodes = |world: &World| world.rms.state().jobs()[&evolving].nodes().len();
        assert_eq!((world.line(evolving).state, n_nodes(&world)), (JobState::Started, 1), "{allocation}");
        world.set("resched_timer", "20s");
        world.now = begun + Span::from_millis(4900);
        world.event(Event::AgentGone { name: "n2".to_owned() });
        world.now = begun + Span::from_secs(5);
        world.event(Event::Tick);
        assert_eq!(n_nodes(&world), 1, "{allocation}: its node is away");
        world.now = begun + Span::from_millis(5200);
        world.comes_back("n2");
        assert_eq!(n_nodes(&world), 2, "{allocation}");
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
        for late in [Span::from_millis(100), Span::from_secs(1)] {
            assert_eq!(world.line(next).estimate, Some(world.now), "{allocation}");
            assert_eq!(world.rms.next_timer(), Some(limit + late), "{allocation}");
            world.now = limit + late;
            world.event(Event::Tick);
        }
        assert_eq!(world.line(next).estimate, Some(limit + Span::from_secs(10)), "{allocation}: it is killed then");
    }
}

#[test]
fn jobs_that_leave_late_and_agents_that_restart_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(20, false);
    assert!(n_started > 400, "{n_started} jobs have started");
}

#[test]
fn long_jobs_that_leave_late_and_agents_that_restart_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(500, false);
    assert!(n_started > 10_000, "{n_started} jobs have started");
}

#[test]
fn applications_with_profiles_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(20, true);
    assert!(n_started > 400, "{n_started} jobs have started");
}

#[test]
fn long_applications_with_profiles_delay_nobody_by_more_than_that() {
    let n_started = delay_nobody(500, true);
    assert!(n_started > 10_000, "{n_started} jobs have started");
}

/// Returns how many jobs have started that had been promised a start.
fn delay_nobody(n_seeds: u64, have_profiles: bool) -> u32 {
    let mut n_started = 0;
    for_seeds("delay_nobody_by_more_than_that", n_seeds, |dice| {
        let n_nodes = dice.number(2, 6);
        let mut lab = Lab::new(dice.one_of(&["nodes", "cores"]), n_nodes, have_profiles);
        lab.world.set("resched_timer", dice.one_of(&["0s", "1s", "20s"]));
        for _ in 0..80 {
            if dice.chance(50) {
                match have_profiles && dice.chance(30) {
                    true => submit_stages(dice, &mut lab.world, n_nodes),
                    false => submit_some(dice, &mut lab.world, n_nodes),
                }
            }
            lab.let_pass(dice.number(1, 20_000));
            let running: Vec<JobId> = ends(&lab.world).map(|(_, job)| job).collect();
            if dice.chance(20) && !running.is_empty() {
                lab.world.ends(dice.one_of(&running));
                lab.check();
            }
            if dice.chance(10) {
                let name = format!("n{}", dice.number(1, n_nodes));
                lab.world.event(Event::AgentGone { name: name.clone() });
                lab.orders.retain(|(_, node, _)| *node != name);
                lab.check();
                lab.let_pass(RESTART);
                let effects = lab.world.comes_back(&name);
                lab.obey(effects);
                lab.check();
            }
        }
        n_started += lab.n_started;
    });
    n_started
}

/// A cluster whose jobs leave late.
struct Lab {
    world: World,
    /// How much later than it was promised at first a job may be promised a start.
    late: Span,
    promised: BTreeMap<JobId, Time>,
    /// How many jobs have started that had been promised a start.
    n_started: u32,
    /// The jobs that leave a node before their end, and when.
    orders: Vec<(Time, String, JobReport)>,
}

impl Lab {
    fn new(allocation: &str, n_nodes: u32, have_profiles: bool) -> Lab {
        // A stage that begins late ends late, and those behind it have been promised its nodes; a job that is not given
        // the second that one is waited for is planned anew behind the next one.
        let late = if have_profiles { LATE + LATE } else { Span::ZERO };
        let (promised, n_started, orders) = (BTreeMap::new(), 0, Vec::new());
        Lab { world: world(allocation, n_nodes), late, promised, n_started, orders }
    }

    fn let_pass(&mut self, millis: u32) {
        let until = self.world.now + Span::from_millis(i64::from(millis));
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            self.world.now = next;
            self.leave();
            let orders = std::mem::take(&mut self.orders);
            let (due, orders): (Vec<_>, Vec<_>) = orders.into_iter().partition(|(at, ..)| *at <= next);
            self.orders = orders;
            for (_, name, report) in due {
                let report = NodeReport { seen: Default::default(), jobs: vec![report] };
                let effects = self.world.event(Event::AgentReported { name, report });
                self.obey(effects);
            }
            self.tick();
        }
        self.world.now = until;
        self.tick();
    }

    fn leave(&mut self) {
        let world = &mut self.world;
        let due: Vec<JobId> = ends(world).filter(|(at, _)| *at <= world.now).map(|(_, job)| job).collect();
        for job in due {
            let run = self.world.rms.state().jobs()[&job].run;
            let done = Event::ApplicationDone { job, run, outcome: Outcome::WallTime };
            let Ok(effects) = self.world.rms.handle(self.world.now, done).commit(&mut NullJournal);
            self.obey(effects);
        }
    }

    fn tick(&mut self) {
        let effects = self.world.event(Event::Tick);
        self.obey(effects);
        self.check();
    }

    /// Lets agents do what they are told.
    fn obey(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Desire { node, desired } = effect else { continue };
            for DesiredJob { job, run, .. } in desired.jobs.into_iter().filter(|job| job.aim != Aim::Run) {
                let at = self.world.now + TO_LEAVE;
                let status = JobStatus::Ended { at, exit: NodeExit::Ordered, usage: Usage::default() };
                self.orders.push((at, node.to_string(), JobReport { job, run, status }));
            }
        }
    }

    fn next_event(&mut self) -> Option<Time> {
        let timer = self.world.rms.next_timer().filter(|at| *at > self.world.now);
        let orders = self.orders.iter().map(|(at, ..)| *at);
        ends(&self.world).map(|(at, _)| at).chain(timer).chain(orders).min()
    }

    /// Checks that nobody starts, or is to start, much later than it was first promised.
    fn check(&mut self) {
        for (job, entry) in self.world.rms.state().jobs() {
            let started = entry.started().map(|started| started.at);
            let promised = entry.promised.as_ref().map(|promise| promise.at.max(self.world.now));
            let Some(at) = started.or(promised) else { continue };
            // Each job that it waited for may have started late because of others.
            let late = if at <= self.world.now { self.late.max(LATE) } else { self.late };
            let first = self.promised.get(job).copied().unwrap_or(at);
            assert!(at <= first + late, "{job} was promised {first:?} and has {at:?}");
            self.promised.insert(*job, first.min(at));
            self.n_started += u32::from(started == Some(self.world.now));
        }
    }
}

fn submit_some(dice: &mut Dice, world: &mut World, n_nodes: u32) {
    let is_moldable = dice.chance(20);
    world.submit_with(|submission| {
        let mut shape = || {
            let wall = Span::from_millis(i64::from(dice.number(2, 600)) * 100);
            Shape { nodes: Nodes::Count(dice.number(1, n_nodes)), wall: Some(wall) }
        };
        submission.shapes = if is_moldable { vec![shape(), shape()] } else { vec![shape()] };
        submission.cpus_per_task = dice.number(1, 4);
        let licences = if dice.chance(20) { dice.number(1, 3) } else { 0 };
        submission.resources.licences = [("matlab".to_owned(), licences)].into_iter().collect();
        submission.priority = dice.one_of(&[0, 0, 0, 3, 6]);
    });
}

fn submit_stages(dice: &mut Dice, world: &mut World, n_nodes: u32) {
    let stages: Vec<String> =
        (0..dice.number(1, 3)).map(|_| format!("{}x{}s", dice.number(1, n_nodes), dice.number(1, 20))).collect();
    let limit = dice.one_of(&[ExpandLimit::NONE, ExpandLimit::TWICE]);
    let is_compacted = dice.chance(30);
    world.submit_with(|submission| {
        submission.evolving = Some(profile(&stages.join(","), limit, is_compacted));
        submission.cpus_per_task = dice.number(1, 4);
        submission.priority = dice.one_of(&[0, 0, 0, 3, 6]);
    });
}

fn ends(world: &World) -> impl Iterator<Item = (Time, JobId)> + '_ {
    world.rms.state().holding().filter_map(|(job, entry)| Some((entry.started()?.until() + TO_LEAVE, job)))
}
