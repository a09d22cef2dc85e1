//! Jobs with contiguous nodes: where and when they start, and what they leave to others.

use negotiation::Direction;
use rms_api::answer::{JobState, Reason};
use rms_api::call::{Nodes, Shape, Submission};
use rms_api::{Call, Refusal};
use rms_model::{ExpandLimit, Identity, Inventory, JobId, NodeId, OnResize, Outcome, Role, Span, Time};

use super::evolving::profile;
use super::negotiate::{malleable, nodes};
use super::{NullJournal, World};
use crate::Event;
use crate::plan::{Scope, plan};
use test_kit::for_seeds;

fn world(policy: &str, n_nodes: u32) -> World {
    let mut world = World::new();
    world.set("policy", policy);
    // A higher number joins first: ids do not show the order.
    (1..=n_nodes).rev().for_each(|number| _ = world.node(&format!("n{number}"), &[]));
    world
}

fn shapes(sizes: &[(u32, i64)]) -> Vec<Shape> {
    let shape = |(nodes, secs): &(u32, i64)| Shape { nodes: Nodes::Count(*nodes), wall: Some(Span::from_secs(*secs)) };
    sizes.iter().map(shape).collect()
}

impl World {
    fn together(&mut self, n_nodes: u32, secs: i64) -> JobId {
        self.together_with(&[(n_nodes, secs)], |_| {})
    }

    fn together_with(&mut self, sizes: &[(u32, i64)], change: impl FnOnce(&mut Submission)) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = shapes(sizes);
            submission.resources.contiguous = true;
            change(submission);
        })
    }

    /// Starts a job on exactly these nodes; all others are drained while it starts.
    fn holds(&mut self, numbers: &[u32], secs: i64) -> JobId {
        let state = self.rms.state();
        let others: Vec<String> = state.nodes().values().map(|node| node.name.clone()).collect();
        let others: Vec<String> =
            others.into_iter().filter(|name| !numbers.iter().any(|number| *name == format!("n{number}"))).collect();
        self.drain(&others);
        let job = self.submit(numbers.len() as u32, secs, &[]);
        assert_eq!(self.numbers(job), numbers, "it starts on the only nodes there are");
        self.resume(others);
        job
    }

    fn drain(&mut self, nodes: &[String]) {
        if !nodes.is_empty() {
            self.ask(Call::Drain { nodes: nodes.to_vec(), reason: "not now".to_owned() });
        }
    }

    fn resume(&mut self, nodes: Vec<String>) {
        if !nodes.is_empty() {
            self.ask(Call::Resume { nodes });
        }
    }

    /// Returns the numbers of a job's nodes, in the job's order.
    fn numbers(&self, job: JobId) -> Vec<u32> {
        let state = self.rms.state();
        let entry = state.jobs().get(&job).expect("it is in the system");
        let number = |node: &NodeId| state.nodes()[node].name[1..].parse().expect("a number");
        let mut numbers: Vec<u32> = entry.nodes().iter().map(number).collect();
        if !entry.spec.resources.contiguous {
            numbers.sort_unstable();
        }
        numbers
    }

    /// Returns in how many seconds from now the job is estimated to start.
    fn starts_in(&mut self, job: JobId) -> i64 {
        let found = plan(self.rms.state(), self.now, Scope::Estimates);
        let at = match self.rms.state().jobs().get(&job).and_then(|entry| entry.started()) {
            Some(started) => started.at,
            None => found.placement(job).and_then(|placed| placed.outcome.estimate(self.now)).unwrap_or(Time::NEVER),
        };
        at.since(self.now).as_millis() / 1000
    }

    fn later(&mut self, secs: i64) {
        self.now += Span::from_secs(secs);
        self.event(Event::Tick);
    }
}

#[test]
fn neighbours_are_so_by_the_numbers_in_their_names() {
    for policy in ["views", "fcfs", "easy", "conservative", "slowdown"] {
        let mut world = world(policy, 11);
        world.holds(&[1, 3, 4, 6, 7, 8], 1000);
        let job = world.together(3, 100);
        assert_eq!(world.numbers(job), [9, 10, 11], "{policy}");
        // Two nodes are free, and are not contiguous.
        let waits = world.together(2, 100);
        assert!(world.numbers(waits).is_empty(), "{policy}");
        assert_eq!(world.starts_in(waits), 100, "{policy}");
        // A job that can use any two starts.
        let any = world.submit(2, 100, &[]);
        assert_eq!(world.numbers(any), if policy == "fcfs" { vec![] } else { vec![2, 5] }, "{policy}");
    }
}

#[test]
fn of_the_runs_that_are_free_the_shortest_one_that_is_long_enough_is_broken() {
    let mut world = world("easy", 9);
    world.holds(&[1, 6], 1000);
    // Nodes 2 to 5 and 7 to 9 are free.
    let job = world.together(2, 100);
    assert_eq!(world.numbers(job), [7, 8]);
    let job = world.together(4, 100);
    assert_eq!(world.numbers(job), [2, 3, 4, 5]);
}

#[test]
fn a_job_that_has_to_wait_gets_the_nodes_that_are_free_together_first() {
    for policy in ["views", "fcfs", "easy", "conservative"] {
        let mut world = world(policy, 6);
        world.holds(&[1], 300);
        world.holds(&[3], 50);
        world.holds(&[5, 6], 200);
        // 2, 3 and 4 are free before any other three.
        let job = world.together(3, 100);
        assert_eq!(world.starts_in(job), 50, "{policy}");
        world.now += Span::from_secs(50);
        let third = *world
            .rms
            .state()
            .jobs()
            .iter()
            .find(|(_, entry)| entry.nodes().len() == 1 && entry.spec.options[0].wall == Span::from_secs(50))
            .expect("it runs")
            .0;
        world.ends(third);
        world.event(Event::Tick);
        assert_eq!(world.numbers(job), [2, 3, 4], "{policy}");
    }
}

#[test]
fn nobody_behind_it_takes_the_nodes_that_it_waits_for() {
    for policy in ["easy", "conservative"] {
        let mut world = world(policy, 6);
        let short = world.holds(&[3], 50);
        world.holds(&[1], 300);
        world.holds(&[5], 200);
        // It waits for 2, 3 and 4.
        let job = world.together(3, 100);
        // There are three free nodes, but only 6 is free for long.
        let long = world.submit(1, 500, &[]);
        assert_eq!(world.numbers(long), [6], "{policy}");
        let longer = world.submit(1, 500, &[]);
        assert!(world.numbers(longer).is_empty(), "{policy}: 2 and 4 are kept");
        let fits = world.submit(2, 50, &[]);
        assert_eq!(world.numbers(fits), [2, 4], "{policy}: they are back in time");
        assert_eq!(world.starts_in(job), 50, "{policy}");
        world.now += Span::from_secs(50);
        world.ends(short);
        world.ends(fits);
        world.event(Event::Tick);
        assert_eq!(world.numbers(job), [2, 3, 4], "{policy}");
    }
}

/// Enough nodes are free at all times, but those that are free now must be kept.
#[test]
fn who_comes_behind_it_is_not_started_on_its_nodes_because_others_will_be_free() {
    for policy in ["easy", "conservative"] {
        let mut world = world(policy, 4);
        world.holds(&[4], 30);
        let second = world.holds(&[2], 50);
        // It waits for 1, 2 and 3.
        let job = world.together(3, 100);
        let long = world.submit(1, 500, &[]);
        assert!(world.numbers(long).is_empty(), "{policy}");
        world.now += Span::from_secs(50);
        world.ends(second);
        world.event(Event::Tick);
        assert_eq!(world.numbers(job), [1, 2, 3], "{policy}");
    }
}

/// Two of four nodes are free at all times, but one of them is needed by an earlier job that can use no other.
#[test]
fn it_leaves_nodes_to_those_before_it_who_can_use_no_others() {
    for policy in ["views", "easy", "conservative"] {
        let mut world = World::new();
        world.set("policy", policy);
        for (number, features) in [(1, vec![]), (2, vec!["gpu"]), (3, vec!["gpu"]), (4, vec![])] {
            world.node(&format!("n{number}"), &features);
        }
        world.holds(&[2], 100);
        let of_gpus = world.submit(2, 100, &["gpu"]);
        assert_eq!(world.starts_in(of_gpus), 100, "{policy}");
        let job = world.together(2, 150);
        assert_eq!(world.starts_in(job), 200, "{policy}");
        let short = world.together(2, 100);
        assert_eq!(world.numbers(short), [3, 4], "{policy}: it is over in time");
    }
}

#[test]
fn one_behind_another_does_not_break_into_its_window() {
    for policy in ["views", "fcfs", "easy", "conservative"] {
        let mut world = world(policy, 4);
        world.holds(&[1, 2, 3, 4], 100);
        let first = world.together(3, 100);
        let second = world.together(2, 100);
        assert_eq!((world.starts_in(first), world.starts_in(second)), (100, 200), "{policy}");
        let third = world.together(1, 100);
        assert_eq!(world.starts_in(third), if policy == "fcfs" { 200 } else { 100 }, "{policy}");
    }
}

#[test]
fn a_moldable_job_has_the_size_whose_window_lets_it_end_first() {
    let mut world = world("easy", 7);
    world.holds(&[3], 1000);
    world.holds(&[6], 200);
    // Three contiguous nodes are free in 200 s, two at once: 200 + 100 against 250.
    let job = world.together_with(&[(3, 100), (2, 250)], |_| {});
    assert_eq!(world.numbers(job), [1, 2]);
    world.holds(&[4], 1000);
    // Now two in 200 s, or one at once for longer than that.
    let job = world.together_with(&[(2, 100), (1, 400)], |_| {});
    assert_eq!(world.starts_in(job), 200);
}

#[test]
fn what_the_nodes_must_have_and_that_they_are_neighbours_holds_together() {
    let mut world = World::new();
    for (number, feature) in [(1, "gpu"), (2, ""), (3, "gpu"), (4, "gpu"), (5, ""), (6, "gpu")] {
        let features: &[&str] = if feature.is_empty() { &[] } else { &[feature] };
        world.node(&format!("n{number}"), features);
    }
    let of_gpus = |submission: &mut Submission| submission.constraint.features = ["gpu".to_owned()].into();
    let job = world.together_with(&[(2, 100)], of_gpus);
    assert_eq!(world.numbers(job), [3, 4]);
    let next = world.together_with(&[(2, 100)], of_gpus);
    assert_eq!(world.starts_in(next), 100, "1 and 6 are free and far from one another");
    let refused = world.refused(|submission| {
        (submission.shapes, submission.resources.contiguous) = (shapes(&[(3, 100)]), true);
        of_gpus(submission);
    });
    assert!(
        refused.contains("3 nodes with gpu that follow one another") && refused.contains("no more than 2"),
        "{refused}"
    );
}

#[test]
fn a_drained_node_breaks_the_run() {
    let mut world = world("easy", 5);
    world.ask(Call::Drain { nodes: vec!["n3".to_owned()], reason: "fan".to_owned() });
    let job = world.together(2, 100);
    assert_eq!(world.numbers(job), [1, 2]);
    let never = world.together(3, 100);
    let line = world.line(never);
    assert!(
        matches!(line.reason, Some(Reason::TooFewNodes { wanted: 3, usable: 2, total: 5, contiguous: true, .. })),
        "{line:?}"
    );
    world.ask(Call::Resume { nodes: vec!["n3".to_owned()] });
    assert_eq!(world.numbers(never), [3, 4, 5]);
}

#[test]
fn who_waits_is_told_for_which_nodes() {
    let mut world = world("conservative", 4);
    let holder = world.holds(&[2, 3], 100);
    let job = world.together(2, 100);
    let Some(Reason::Blocked { neighbours, until, by, .. }) = world.line(job).reason else { panic!("it waits") };
    assert_eq!((neighbours.join(" ").as_str(), until), ("n1 n2", world.now + Span::from_secs(100)));
    assert_eq!(by, [], "a list says no more");
    let Some(Reason::Blocked { by, .. }) = world.explained(job) else { panic!("it waits") };
    assert_eq!(by.iter().map(|blocker| (blocker.job, blocker.nodes)).collect::<Vec<_>>(), [(holder, 1)]);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut world = world("easy", 4);
    let together = |submission: &mut Submission| submission.resources.contiguous = true;
    let refused = world.refused(|submission| {
        together(submission);
        submission.evolving = Some(profile("2x50s,3x50s", ExpandLimit::NONE, false));
    });
    assert!(refused.contains("leave --contiguous out"), "{refused}");
    let refused = world.refused(|submission| {
        together(submission);
        submission.malleable = Some(malleable(1, 3, OnResize::Negotiates));
    });
    assert!(refused.contains("leave --contiguous out"), "{refused}");
    let refused = world.refused(|submission| {
        together(submission);
        submission.shapes = shapes(&[(5, 100)]);
    });
    assert!(refused.contains("5 nodes are needed"), "{refused}");
}

/// The job's other resources, and its time, may be negotiated.
#[test]
fn a_job_whose_nodes_follow_one_another_keeps_them() {
    let mut world = world("easy", 4);
    let job = world.together(2, 100);
    for direction in [Direction::Grow, Direction::Shrink] {
        let ask = nodes(direction, 1, 1);
        let refused =
            world.ask_as(Identity::new(Role::Admin, "root").expect("a plain name"), Call::Negotiate { job, ask });
        assert_eq!(refused.err(), Some(Refusal::KeepsItsNodes(job)), "{direction:?}");
    }
}

/// A job that was promised any nodes finds some, whichever window others behind it have: only 1 and 2 are free for it
/// in time.
#[test]
fn a_window_is_none_that_those_before_it_may_need() {
    let mut world = world("conservative", 4);
    let first = world.holds(&[1, 2], 50);
    let second = world.holds(&[3, 4], 80);
    let any = world.submit(2, 100, &[]);
    let job = world.together(2, 100);
    assert_eq!((world.starts_in(any), world.starts_in(job)), (50, 80));
    world.now += Span::from_secs(50);
    world.ends(first);
    world.event(Event::Tick);
    assert_eq!(world.numbers(any), [1, 2], "it was promised nodes for now");
    world.now += Span::from_secs(30);
    world.ends(second);
    world.event(Event::Tick);
    assert_eq!(world.numbers(job), [3, 4]);
}

/// A new node between others belongs to the order from the next plan on.
#[test]
fn a_node_that_joins_between_others_counts_from_then_on() {
    let mut world = World::new();
    world.set("policy", "conservative");
    ["n1", "n3", "n4"].iter().for_each(|name| _ = world.node(name, &[]));
    let running = world.submit(3, 100, &[]);
    let job = world.together(2, 100);
    assert_eq!(world.starts_in(job), 100);
    let waits_for = |world: &mut World| match world.line(job).reason {
        Some(Reason::Blocked { neighbours, .. }) => neighbours.join(" "),
        other => panic!("{other:?}"),
    };
    assert_eq!(waits_for(&mut world), "n1 n3");
    world.joins("n2", Inventory::default(), Vec::new());
    world.event(Event::Tick);
    assert_eq!(waits_for(&mut world), "n1 n2");
    world.now += Span::from_secs(90);
    world.ends(running);
    world.event(Event::Tick);
    let numbers = world.numbers(job);
    assert_eq!(numbers, [1, 2], "not 1 and 3, as it was promised");
}

#[test]
fn a_job_that_is_started_again_has_neighbours_again() {
    let mut world = world("easy", 4);
    let job = world.together_with(&[(2, 100)], |submission| submission.requeue = Some(true));
    assert_eq!(world.numbers(job), [1, 2]);
    world.ask(Call::Down { nodes: vec!["n2".to_owned()], reason: "broken".to_owned() });
    world.later(60);
    let entry = &world.rms.state().jobs()[&job];
    assert!(entry.spec.resources.contiguous, "{entry:?}");
    if entry.state() == JobState::Started {
        assert_eq!(world.numbers(job), [3, 4]);
    }
}

mod cores {
    use super::*;

    fn shared(policy: &str, n_nodes: u32) -> World {
        let mut world = World::new();
        world.set("allocation", "cores");
        world.set("policy", policy);
        for number in (1..=n_nodes).rev() {
            world.joins(&format!("n{number}"), Inventory { cores: 4, cpus: 4, ..Inventory::default() }, Vec::new());
        }
        world
    }

    impl World {
        fn cores_together(&mut self, n_nodes: u32, cores: u32, secs: i64) -> JobId {
            self.together_with(&[(n_nodes, secs)], |submission| {
                (submission.n_tasks, submission.cpus_per_task) = (Some(n_nodes), cores);
            })
        }
    }

    #[test]
    fn neighbours_with_room_for_slices_are_found_now_and_later() {
        for policy in ["views", "fcfs", "easy", "conservative"] {
            let mut world = shared(policy, 6);
            // Three cores each of 2 and of 5, for a time.
            world.holds_cores(2, 3, 500);
            world.holds_cores(5, 3, 200);
            let job = world.cores_together(2, 2, 100);
            assert_eq!(world.numbers(job), [3, 4], "{policy}");
            // One core is free on every node.
            let thin = world.cores_together(6, 1, 50);
            assert_eq!(world.numbers(thin), [1, 2, 3, 4, 5, 6], "{policy}");
            let waits = world.cores_together(3, 3, 100);
            assert_eq!(world.starts_in(waits), 200, "{policy}");
        }
    }

    impl World {
        fn holds_cores(&mut self, number: u32, cores: u32, secs: i64) {
            let state = self.rms.state();
            let others: Vec<String> = state.nodes().values().map(|node| node.name.clone()).collect();
            let others: Vec<String> = others.into_iter().filter(|name| *name != format!("n{number}")).collect();
            self.ask(Call::Drain { nodes: others.clone(), reason: "not now".to_owned() });
            let job = self.submit_with(|submission| {
                submission.shapes = shapes(&[(1, secs)]);
                (submission.n_tasks, submission.cpus_per_task) = (Some(1), cores);
            });
            assert_eq!(self.numbers(job), [number]);
            self.ask(Call::Resume { nodes: others });
        }
    }
}

mod mates {
    use super::*;

    fn lending(n_nodes: u32) -> World {
        let mut world = World::new();
        world.set("policy", "slowdown");
        world.set("max_slowdown", "infinite");
        for number in 1..=n_nodes {
            world.joins(&format!("n{number}"), Inventory { cores: 4, cpus: 4, ..Inventory::default() }, Vec::new());
        }
        world
    }

    impl World {
        fn lends(&mut self, n_nodes: u32, secs: i64, contiguous: bool) -> JobId {
            self.submit_with(|submission| {
                submission.shapes = shapes(&[(n_nodes, secs)]);
                (submission.n_tasks, submission.resources.share) = (Some(n_nodes), true);
                submission.resources.contiguous = contiguous;
            })
        }
    }

    /// Of mates with one node each, neighbours are taken, though others cost less.
    #[test]
    fn a_guest_begins_inside_mates_whose_nodes_follow_one_another() {
        for (contiguous, expected) in [(false, vec![1, 3]), (true, vec![3, 4])] {
            let mut world = lending(4);
            // The longer a mate runs, the less a guest slows it.
            for secs in [4000, 1000, 3000, 2000] {
                world.lends(1, secs, false);
            }
            let guest = world.lends(2, 100, contiguous);
            assert_eq!(world.numbers(guest), expected);
        }
    }

    #[test]
    fn free_nodes_beside_mates_are_neighbours_of_theirs() {
        for allocation in ["nodes", "cores"] {
            let mut world = lending(5);
            world.set("allocation", allocation);
            world.set("mix_free_nodes", "yes");
            world.holds(&[2], 5000);
            world.holds(&[5], 5000);
            world.drain(&["n1".to_owned(), "n4".to_owned()]);
            let mate = world.lends(1, 4000, false);
            assert_eq!(world.numbers(mate), [3]);
            world.resume(vec!["n1".to_owned(), "n4".to_owned()]);
            // 1 and 4 are free.
            let guest = world.lends(2, 100, true);
            assert_eq!(world.numbers(guest), [3, 4], "{allocation}");
            let late = world.lends(2, 100, true);
            assert!(world.numbers(late).is_empty(), "no two others follow one another");
        }
    }
}

/// Every window is tried at every end of a job: the estimated start is the earliest of all.
#[test]
fn the_start_that_is_told_is_the_earliest_of_all_windows() {
    let (mut n_now, mut n_later) = (0, 0);
    for_seeds("the_start_that_is_told_is_the_earliest_of_all_windows", 400, |dice| {
        let (n_nodes, policy) = (dice.number(1, 8), dice.one_of(&["views", "fcfs", "easy", "conservative"]));
        let mut world = world(policy, n_nodes);
        let mut free_at = vec![world.now; n_nodes as usize];
        for _ in 0..dice.number(0, 6) {
            let free: Vec<u32> = (1..=n_nodes).filter(|number| free_at[*number as usize - 1] <= world.now).collect();
            let held: Vec<u32> = free.into_iter().filter(|_| dice.chance(30)).collect();
            if held.is_empty() {
                continue;
            }
            let secs = i64::from(dice.number(1, 8)) * 50;
            world.holds(&held, secs);
            held.iter().for_each(|number| free_at[*number as usize - 1] = world.now + Span::from_secs(secs));
        }
        let (wanted, secs) = (dice.number(1, n_nodes), i64::from(dice.number(1, 500)));
        let windows = free_at.windows(wanted as usize);
        let earliest = windows.filter_map(|window| window.iter().max().copied()).min().expect("it is small enough");
        let job = world.together(wanted, secs);
        let told = world.now + Span::from_secs(world.starts_in(job));
        assert_eq!(told, earliest, "{wanted} nodes under {policy}, free at {free_at:?}");
        match world.rms.state().jobs()[&job].started() {
            Some(_) => {
                let numbers = world.numbers(job);
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
                n_now += 1;
            }
            None => n_later += 1,
        }
    });
    println!("{n_now} started at once, {n_later} later");
    assert!(n_now > 0 && n_later > 0, "{n_now} started at once, {n_later} later");
}

/// Under the policy that promises starts: as long as jobs leave in time and nodes stay, no job with contiguous nodes
/// starts later than it was ever promised.
#[test]
fn long_what_was_promised_to_who_wants_neighbours_is_kept() {
    let mut n_kept = 0;
    for_seeds("long_what_was_promised_to_who_wants_neighbours_is_kept", 120, |dice| {
        let n_nodes = dice.number(2, 8);
        let mut world = World::new();
        world.set("policy", "conservative");
        for number in (1..=n_nodes).rev() {
            let features: &[&str] = if dice.chance(30) { &["gpu"] } else { &[] };
            world.node(&format!("n{number}"), features);
        }
        let mut told: std::collections::BTreeMap<JobId, Time> = Default::default();
        for _ in 0..25 {
            for _ in 0..dice.number(0, 3) {
                let (nodes, secs) = (dice.number(1, n_nodes), i64::from(dice.number(1, 30)) * 10);
                match dice.number(0, 2) {
                    0 => _ = world.submit(nodes, secs, &[]),
                    _ => _ = told.insert(world.together(nodes, secs), Time::NEVER),
                }
            }
            let state = world.rms.state();
            for (job, promised) in &mut told {
                let Some(entry) = state.jobs().get(job) else { continue };
                let at = match (entry.started(), &entry.promised) {
                    (Some(started), _) => started.at,
                    (None, Some(promise)) => promise.at,
                    (None, None) => panic!("{job} was promised nothing"),
                };
                assert!(at <= *promised, "{job} was promised {promised:?}, and now {at:?}");
                n_kept += usize::from(at < Time::NEVER && *promised < Time::NEVER);
                *promised = at;
            }
            let ends = state.holding().filter_map(|(job, entry)| {
                let started = entry.started()?;
                Some((started.at + started.request.wall, job))
            });
            let ends: Vec<(Time, JobId)> = ends.collect();
            let next = ends.iter().map(|(end, _)| *end).chain(state.next_promise(world.now)).min();
            let next = next.unwrap_or(world.now + Span::from_secs(10)).max(world.now);
            world.now = if dice.chance(70) { next } else { next.min(world.now + Span::from_secs(10)) };
            let is_due = |(end, _): &&(Time, JobId)| *end <= world.now;
            let due: Vec<JobId> = ends.iter().filter(is_due).map(|(_, job)| *job).collect();
            // Some end early.
            let early = ends.iter().map(|(_, job)| *job).filter(|job| !due.contains(job)).find(|_| dice.chance(5));
            // All at once: a job that is checked before the others have ended is late by then.
            for job in due.into_iter().chain(early) {
                let run = world.rms.state().jobs()[&job].run;
                let ended = Event::ApplicationDone { job, run, outcome: Outcome::Completed };
                let Ok(_) = world.rms.handle(world.now, ended).commit(&mut NullJournal);
            }
            world.event(Event::Tick);
        }
    });
    assert!(n_kept > 0);
}
