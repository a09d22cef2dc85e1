//! Jobs that start on cores lent by running jobs, and what happens to both (004).

use rms_api::answer::JobState;
use rms_api::call::update::{Changes, WallChange};
use rms_api::call::{Nodes, Select, Shape};
use rms_api::desired::{Desired, JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::{Call, Refusal};
use rms_model::{Identity, Inventory, JobId, Mebibytes, NodeId, Outcome, Role, Span};

use super::World;
use crate::Event;
use crate::effect::Effect;
use test_kit::for_seeds;

/// Creates nodes of four cores each.
fn lending(allocation: &str, n_nodes: u32) -> World {
    lending_on(allocation, n_nodes, 4)
}

/// Creates nodes of `cores` cores each, in two packages.
pub(super) fn lending_on(allocation: &str, n_nodes: u32, cores: u32) -> World {
    let mut world = World::new();
    world.set("allocation", allocation);
    world.set("policy", "slowdown");
    for number in 1..=n_nodes {
        let inventory = Inventory { sockets: 2, numa_nodes: 2, cores, cpus: cores, ..Inventory::default() };
        world.joins(&format!("n{number}"), inventory, Vec::new());
    }
    world
}

impl World {
    pub(super) fn asks_to_share(&mut self, n_nodes: u32, mins: i64, share: bool) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_mins(mins)) }];
            submission.resources.share = share;
        })
    }

    pub(super) fn is_started(&self, job: JobId) -> bool {
        self.rms.state().jobs().get(&job).is_some_and(|entry| entry.state() == JobState::Started)
    }

    /// Returns the number of a job's cores on each of its nodes.
    pub(super) fn n_cores(&self, job: JobId) -> Vec<u32> {
        let state = self.rms.state();
        state.jobs().get(&job).map_or_else(Vec::new, |entry| state.cores_of(entry).map(|cores| cores.has).collect())
    }

    /// An agent reports that a job runs, with what it has by this generation.
    pub(super) fn runs(&mut self, node: &str, job: JobId, is_confined: bool) -> Vec<Effect> {
        let (entry, since) = (&self.rms.state().jobs()[&job], self.now);
        let (run, generation) = (entry.run, entry.started().map_or(1, |started| started.generation()));
        let status = JobStatus::Running { since, generation, is_confined };
        let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
        self.event(Event::AgentReported { name: node.to_owned(), report })
    }

    pub(super) fn is_done(&mut self, job: JobId) {
        let run = self.rms.state().jobs()[&job].run;
        self.event(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
    }

    pub(super) fn lender_of(&self, job: JobId) -> Vec<JobId> {
        let sharing = self.rms.state().jobs().get(&job).and_then(|entry| entry.sharing());
        sharing.map(|sharing| sharing.owners().into_iter().collect()).unwrap_or_default()
    }

    /// Returns the cores that a job has on the first node.
    pub(super) fn cores_on_first(&self, job: JobId) -> String {
        let state = self.rms.state();
        let (node, known) = state.nodes().iter().next().expect("there is one");
        let part = state.jobs()[&job].part_of(*node, &known.inventory);
        part.map_or_else(|| "all".to_owned(), |part| part.cores.to_string())
    }

    pub(super) fn wall(&self, job: JobId) -> Span {
        self.rms.state().jobs()[&job].started().expect("it runs").request.wall
    }
}

/// Returns the desired state that these effects send to a node.
pub(super) fn desired(effects: &[Effect], name: &str) -> Option<Desired> {
    effects.iter().find_map(|effect| match effect {
        Effect::Desire { node, desired } if node == name => Some(desired.clone()),
        _ => None,
    })
}

pub(super) fn jobs_of(desired: &Desired) -> Vec<JobId> {
    desired.jobs.iter().map(|wanted| wanted.job).collect()
}

#[test]
fn a_guest_is_started_where_its_mate_has_left_the_cpus() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending(allocation, 2);
        let owner = world.asks_to_share(2, 60, true);
        ["n1", "n2"].into_iter().for_each(|node| drop(world.runs(node, owner, true)));
        let guest = world.asks_to_share(2, 10, true);
        assert!(world.is_started(guest), "{allocation}: it need not wait");
        assert_eq!((world.n_cores(owner), world.n_cores(guest)), (vec![2, 2], vec![2, 2]));
        assert_eq!((world.wall(owner), world.wall(guest)), (Span::from_mins(70), Span::from_mins(20)));

        let effects = world.runs("n1", owner, true);
        let told = desired(&effects, "n1").expect("its node hears of the guest");
        assert_eq!(jobs_of(&told), [owner, guest], "{allocation}");
        let cores = |idx: usize| told.jobs[idx].launch.nodes[0].grant.as_ref().map(|grant| grant.cores.to_string());
        assert_eq!((cores(0), cores(1)), (Some("0-1".to_owned()), Some("2-3".to_owned())));
        let cpus =
            |idx: usize| told.jobs[idx].launch.nodes.iter().map(|node| (node.cpus, node.asked_cpus, node.shares_cpus));
        assert!([0, 1].into_iter().flat_map(cpus).all(|cpus| cpus == (2, 4, true)), "{allocation}");
        assert_eq!(desired(&effects, "n2"), None, "there nobody has said so");

        world.now += Span::from_mins(20);
        world.is_done(guest);
        assert_eq!((world.n_cores(owner), world.wall(owner)), (vec![4, 4], Span::from_mins(70)));
    }
}

#[test]
fn a_loan_began_when_its_guest_got_the_cores() {
    let mut world = lending("nodes", 1);
    let owner = world.asks_to_share(1, 60, true);
    world.runs("n1", owner, true);
    world.now += Span::from_mins(1);
    let (began, guest) = (world.now, world.asks_to_share(1, 10, true));
    [owner, guest].into_iter().for_each(|job| drop(world.runs("n1", job, true)));
    // What else changes of either is not another loan.
    for job in [owner, guest] {
        world.now += Span::from_mins(2);
        let changes = Changes { wall: Some(WallChange::More(Span::from_mins(1))), ..Changes::default() };
        world.ask(Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) });
        let since = |job| world.rms.state().jobs()[&job].sharing().map(|sharing| sharing.since);
        assert_eq!(since(job), Some(world.now));
    }
    let mut loans = |job: JobId| {
        let sharing = world.detail(job).sharing.expect("it shares");
        let all = sharing.lent.into_iter().chain(sharing.borrowed);
        all.map(|loan| (loan.job, loan.since)).collect::<Vec<_>>()
    };
    assert_eq!((loans(owner), loans(guest)), (vec![(guest, began)], vec![(owner, began)]));
}

#[test]
fn a_change_of_the_allocation_leaves_lender_and_guest_their_limits() {
    for (before, after) in [("nodes", "cores"), ("cores", "nodes")] {
        let mut world = lending(before, 1);
        let mut asks = |mins: i64| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                (submission.n_tasks, submission.cpus_per_task) = (Some(1), if before == "cores" { 4 } else { 1 });
                submission.resources.share = true;
            })
        };
        let (owner, guest) = (asks(60), asks(10));
        [owner, guest].into_iter().for_each(|job| drop(world.runs("n1", job, true)));
        assert_eq!((world.n_cores(owner), world.n_cores(guest)), (vec![2], vec![2]), "{before}");
        assert_eq!((world.wall(owner), world.wall(guest)), (Span::from_mins(70), Span::from_mins(20)), "{before}");

        world.set("allocation", after);
        world.now += Span::from_mins(4);
        world.is_done(guest);
        assert_eq!((world.n_cores(owner), world.wall(owner)), (vec![4], Span::from_mins(62)), "{before} to {after}");
    }
}

#[test]
fn a_guest_asks_for_what_it_began_with_though_the_allocation_has_changed() {
    for (before, after) in [("nodes", "cores"), ("cores", "nodes")] {
        let is_shared = before == "cores";
        let mut world = lending_on(before, 1, if is_shared { 8 } else { 4 });
        let mut asks = |mins: i64, n_tasks: u32, cpus: u32| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                (submission.n_tasks, submission.cpus_per_task) = (Some(n_tasks), if is_shared { cpus } else { 1 });
                submission.resources.share = true;
            })
        };
        let (owner, guest) = (asks(60, 1, 8), asks(10, if is_shared { 3 } else { 2 }, 2));
        [owner, guest].into_iter().for_each(|job| drop(world.runs("n1", job, true)));
        let (has, asked) = if is_shared { (4, 6) } else { (2, 4) };
        assert_eq!(
            (world.n_cores(guest), world.wall(guest)),
            (vec![has], Span::from_mins(10 * asked / i64::from(has)))
        );

        world.set("allocation", after);
        let changes = Changes { wall: Some(WallChange::More(Span::from_mins(2))), ..Changes::default() };
        world.ask(Call::Update { select: Select::Ids(vec![guest]), changes: Box::new(changes) });
        let longer = Span::from_mins(12 * asked / i64::from(has));
        assert_eq!(world.wall(guest), longer, "{before} to {after}");
        world.now += Span::from_mins(4);
        world.is_done(owner);
        // Others that began on parts of the node may be there: it keeps its own part.
        let expected = if is_shared { (vec![4], longer) } else { (vec![4], Span::from_mins(14)) };
        assert_eq!((world.n_cores(guest), world.wall(guest)), expected, "{before} to {after}");
    }
}

#[test]
fn a_job_keeps_as_many_cores_of_each_package_as_it_said() {
    for allocation in ["nodes", "cores"] {
        for (of_package, (of_owner, of_guest)) in [(0, ("0-1", "2-3")), (1, ("0,2", "1,3"))] {
            let mut world = lending(allocation, 1);
            let owner = world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(60)) }];
                submission.resources.share = true;
                submission.resources.cores_per_package = of_package;
            });
            let guest = world.asks_to_share(1, 10, true);
            let cores = (world.cores_on_first(owner), world.cores_on_first(guest));
            assert_eq!(cores, (of_owner.to_owned(), of_guest.to_owned()), "{allocation}");
        }
    }
}

/// A master and workers: what the master does not need on its node, and nothing of it elsewhere.
#[test]
fn a_job_keeps_as_many_cpus_for_each_task_as_it_said() {
    for (allocation, n_tasks, least, of_owner) in [
        ("nodes", 2, vec![], vec![2, 2]),
        ("nodes", 2, vec![3, 1], vec![3, 2]),
        ("nodes", 4, vec![2, 1], vec![3, 2]),
        ("cores", 2, vec![3, 1], vec![3, 2]),
        ("nodes", 4, vec![1, 1, 2], vec![2, 4]),
    ] {
        let mut world = lending(allocation, 2);
        let owner = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_mins(60)) }];
            (submission.n_tasks, submission.cpus_per_task) = (Some(n_tasks), 8 / n_tasks);
            submission.resources.share = true;
            submission.resources.min_cpus_per_task = least.clone();
        });
        let guest = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_mins(5)) }];
            submission.resources.share = true;
        });
        let is_all_kept = of_owner.contains(&4);
        assert_eq!(world.is_started(guest), !is_all_kept, "{allocation} {least:?}");
        let of_owner = if is_all_kept { vec![4, 4] } else { of_owner };
        assert_eq!(world.n_cores(owner), of_owner, "{allocation} {least:?}");
    }
}

#[test]
fn a_job_keeps_cores_of_each_package_also_where_one_is_smaller() {
    let mut world = World::new();
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    // A package of one core, and one of five.
    let inventory = Inventory { sockets: 2, numa_nodes: 2, cores: 6, cpus: 6, ..Inventory::default() };
    world.joins("n1", inventory.with_parts(vec![1, 5], vec![1, 5]), Vec::new());
    let mut asks = |wall: i64, of_package: u32| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(wall)) }];
            submission.resources.share = true;
            submission.resources.cores_per_package = of_package;
        })
    };
    let (owner, guest) = (asks(60, 2), asks(10, 0));
    let cores = (world.cores_on_first(owner), world.cores_on_first(guest));
    assert_eq!(cores, ("0-2".to_owned(), "3-5".to_owned()), "half of the node, but neither 0 nor 1 and 2");

    let mut submission = world.submission();
    submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(1)) }];
    (submission.resources.share, submission.resources.cores_per_package) = (true, 6);
    let user = Identity::new(Role::User, "ann").expect("a plain name");
    let refused = world.ask_as(user, Call::Submit(Box::new(submission)));
    assert_eq!(refused.err(), Some(Refusal::PackageTooSmall { wanted: 6, largest: 5 }));
}

#[test]
fn who_would_keep_all_that_there_is_is_refused() {
    let mut world = lending("cores", 1);
    let mut refusal = |cpus: u32, cores: u32| {
        let mut submission = world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(1)) }];
        submission.resources.share = true;
        (submission.resources.min_cpus_per_node, submission.resources.cores_per_package) = (cpus, cores);
        let user = Identity::new(Role::User, "ann").expect("a plain name");
        world.ask_as(user, Call::Submit(Box::new(submission))).err()
    };
    assert_eq!(refusal(3, 1), None);
    assert_eq!(refusal(4, 1), Some(Refusal::NodeTooSmall { wanted: 4, largest: 4 }));
    assert_eq!(refusal(3, 2), Some(Refusal::PackageTooSmall { wanted: 2, largest: 2 }));
    assert_eq!(refusal(3, 3), Some(Refusal::PackageTooSmall { wanted: 3, largest: 2 }));
}

#[test]
fn a_guest_borrows_cores_for_whole_tasks() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending(allocation, 1);
        world.set("sharing_factor", "3/4");
        let owner = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(60)) }];
            (submission.n_tasks, submission.cpus_per_task) = (Some(1), 4);
            submission.resources.share = true;
        });
        let guest = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(10)) }];
            (submission.n_tasks, submission.cpus_per_task) = (Some(2), 2);
            submission.resources.share = true;
        });
        assert_eq!(
            (world.cores_on_first(owner), world.cores_on_first(guest)),
            ("0-1".to_owned(), "2-3".to_owned()),
            "{allocation}"
        );
    }
}

/// Two mates on one node lend cores of one node, not of two.
#[test]
fn a_guest_of_two_nodes_does_not_get_one_node_twice() {
    let asks = |world: &mut World, n_nodes, mins, cpus, share| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_mins(mins)) }];
            submission.cpus_per_task = cpus;
            submission.resources.share = share;
        })
    };
    for shares in [false, true] {
        let mut world = lending("cores", 2);
        let first = asks(&mut world, 1, 60, 4, shares);
        let _mates_on_the_second = [asks(&mut world, 1, 60, 2, true), asks(&mut world, 1, 60, 2, true)];
        let guest = asks(&mut world, 2, 1, 1, true);
        assert_eq!(world.is_started(guest), shares, "the first node is lent only if its job shares");
        if shares {
            assert_eq!(world.rms.state().jobs()[&guest].nodes(), [NodeId(1), NodeId(2)]);
            assert!(world.lender_of(guest).contains(&first));
        }
    }
}

#[test]
fn memory_of_a_node_is_shared_by_its_owner_and_the_guest_as_they_asked() {
    // An owner of a whole node, and guests that request all of one, or a core.
    for (allocation, cpus) in [("nodes", 0), ("cores", 0), ("nodes", 1), ("cores", 1)] {
        let mut world = World::new();
        world.set("allocation", allocation);
        world.set("policy", "slowdown");
        let memory = Mebibytes(1000);
        world.joins("n1", Inventory { cores: 4, cpus: 4, memory, ..Inventory::default() }, Vec::new());
        let asks = |world: &mut World, mins, memory, cpus| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                submission.resources.share = true;
                submission.cpus_per_task = cpus;
                submission.constraint.memory = Mebibytes(memory);
            })
        };
        let owner = asks(&mut world, 60, 600, 0);
        // Whether the owner started long ago or at this very instant.
        let large = asks(&mut world, 10, 500, cpus);
        assert!(!world.is_started(large), "{allocation}: there is no room for both");
        world.now += Span::from_mins(1);
        world.event(Event::Tick);
        assert!(!world.is_started(large), "{allocation}: nor later");
        let small = asks(&mut world, 10, 400, cpus);
        assert_eq!(world.lender_of(small), [owner], "{allocation}");
        let state = world.rms.state();
        let inventory = &state.nodes()[&NodeId(1)].inventory;
        let memory = |job: JobId| state.jobs()[&job].part_of(NodeId(1), inventory).map(|part| part.memory.0);
        assert_eq!((memory(owner), memory(small)), (Some(600), Some(400)), "{allocation}");
    }
}

/// The owner started while its node was allocated in another way.
#[test]
fn a_guest_has_its_memory_beside_an_owner_of_other_days() {
    for (before, now) in [("nodes", "cores"), ("cores", "nodes")] {
        let mut world = lending(before, 1);
        let asks = |world: &mut World, mins, cpus, memory| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                submission.cpus_per_task = cpus;
                submission.constraint.memory = Mebibytes(memory);
                submission.resources.share = true;
            })
        };
        let owner = asks(&mut world, 60, 3, 700);
        world.set("allocation", now);
        let guest = asks(&mut world, 10, 2, 300);
        assert_eq!(world.lender_of(guest), [owner], "{before}, then {now}");
        let state = world.rms.state();
        let part = state.jobs()[&guest].part_of(NodeId(1), &state.nodes()[&NodeId(1)].inventory);
        assert_eq!(part.map(|part| part.memory), Some(Mebibytes(300)), "{before}, then {now}");
    }
}

/// Nor is there room beside jobs on a node that was shared by cores when they started.
#[test]
fn nobody_begins_beside_others_on_a_node_that_is_given_away_whole_now() {
    let mut world = World::new();
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    world.joins("n1", Inventory { cores: 4, cpus: 4, memory: Mebibytes(1000), ..Inventory::default() }, Vec::new());
    let asks = |world: &mut World, mins, cpus, memory| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
            submission.cpus_per_task = cpus;
            submission.constraint.memory = Mebibytes(memory);
            submission.resources.share = true;
        })
    };
    let (owner, other) = (asks(&mut world, 60, 2, 300), asks(&mut world, 60, 2, 400));
    assert!(world.is_started(owner) && world.is_started(other));
    world.set("allocation", "nodes");
    let guest = asks(&mut world, 10, 1, 600);
    assert!(!world.is_started(guest));
    world.is_done(other);
    assert_eq!(world.lender_of(guest), [owner]);
}

/// The memory left on a node is known once its owner has started.
#[test]
fn a_guest_with_memory_begins_with_an_owner_who_starts_at_the_same_instant() {
    let mut world = lending("cores", 1);
    world.set("resched_timer", "1s");
    let mut asks = |mins, cpus| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
            submission.cpus_per_task = cpus;
            submission.constraint.memory = Mebibytes(100);
            submission.resources.share = true;
        })
    };
    let (owner, guest) = (asks(60, 3), asks(10, 2));
    assert!(!world.is_started(owner) && !world.is_started(guest), "they come too soon after a pass");
    world.now += Span::from_secs(1);
    world.event(Event::Tick);
    assert_eq!(world.lender_of(guest), [owner]);
}

#[test]
fn a_guest_begins_with_its_licences_or_waits() {
    let mut world = lending("nodes", 2);
    world.set("licences@c", "matlab:1");
    let licensed = |world: &mut World, mins, share| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
            submission.resources.share = share;
            submission.resources.licences = "matlab".parse().expect("a licence");
        })
    };
    let owner = world.asks_to_share(1, 60, true);
    let holder = licensed(&mut world, 30, false);
    let guest = licensed(&mut world, 10, true);
    assert!(world.is_started(holder) && !world.is_started(guest), "nobody has a licence left");
    world.is_done(holder);
    let other = world.asks_to_share(1, 50, false);
    assert!(world.is_started(guest) && !world.is_started(other), "a node has become free with the licence");
    world.is_done(guest);
    assert!(world.is_started(other));
    let next = licensed(&mut world, 10, true);
    assert_eq!(world.lender_of(next), [owner]);
}

/// 004's option: a guest uses free nodes beside those of its mates, as many as there are.
#[test]
fn a_guest_uses_free_nodes_beside_those_of_its_mates() {
    for (allocation, mix) in [("nodes", "no"), ("nodes", "yes"), ("cores", "no"), ("cores", "yes")] {
        let mut world = lending(allocation, 4);
        world.set("mix_free_nodes@c", mix);
        let owner = world.asks_to_share(2, 60, true);
        let single = world.asks_to_share(1, 60, true);
        let guest = world.asks_to_share(3, 10, true);
        if mix == "no" {
            assert_eq!(world.lender_of(guest), [owner, single]);
            continue;
        }
        assert_eq!((world.lender_of(guest), world.n_cores(guest)), (vec![owner], vec![2, 2, 4]));
        assert_eq!(world.wall(guest), Span::from_mins(20), "the slowest of its nodes sets the pace");
        world.rms.state().check().expect("in order");
        world.is_done(owner);
        assert_eq!(world.n_cores(guest), [4, 4, 4]);
        world.is_done(guest);
        world.rms.state().check().expect("in order");
        let next = world.asks_to_share(3, 60, false);
        assert!(world.is_started(next));
    }
}

/// Jobs that wait before the guest are not delayed.
#[test]
fn free_nodes_that_others_wait_for_are_mixed_with_nobodys() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending(allocation, 3);
        world.set("mix_free_nodes", "yes");
        world.set("max_slowdown", "infinite");
        let owner = world.asks_to_share(1, 60, true);
        let rigid = world.asks_to_share(1, 5, false);
        let waits = world.asks_to_share(2, 60, false);
        let guest = world.asks_to_share(2, 10, true);
        assert!(world.is_started(owner) && world.is_started(rigid) && !world.is_started(waits), "{allocation}");
        assert!(!world.is_started(guest), "{allocation}: in five minutes somebody has the free node");
        let short = world.asks_to_share(2, 2, true);
        assert_eq!((world.lender_of(short), world.n_cores(short)), (vec![owner], vec![2, 4]), "{allocation}");
    }
}

#[test]
fn a_guest_finds_the_memory_that_those_before_it_in_the_pass_leave() {
    let mut world = World::new();
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    world.set("max_slowdown", "infinite");
    let inventory = Inventory { cores: 8, cpus: 8, memory: Mebibytes(1000), ..Inventory::default() };
    world.joins("n1", inventory, Vec::new());
    let mut asks = |cpus: u32, mins: i64, memory: u64, hold: bool| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
            (submission.n_tasks, submission.cpus_per_task) = (Some(1), cpus);
            submission.constraint.memory = Mebibytes(memory);
            (submission.resources.share, submission.hold) = (true, hold);
        })
    };
    let owner = asks(4, 60, 0, false);
    let (first, guest) = (asks(3, 50, 800, true), asks(2, 5, 400, true));
    world.ask(Call::Release { select: Select::All });
    assert_eq!([owner, first, guest].map(|job| world.is_started(job)), [true, true, false]);
}

#[test]
fn free_cores_beside_those_of_mates_are_on_other_nodes() {
    let of_tasks = |world: &mut World, n_tasks: u32, mins: i64| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_tasks), wall: Some(Span::from_mins(mins)) }];
            (submission.n_tasks, submission.cpus_per_task) = (Some(n_tasks), 4);
            submission.resources.share = true;
        })
    };
    let mut world = lending_on("cores", 2, 8);
    world.set("mix_free_nodes", "yes");
    // Two owners on the first node, and one on the second, which has room for another.
    let owners = [60, 61, 62].map(|mins| of_tasks(&mut world, 1, mins));
    let guest = of_tasks(&mut world, 2, 10);
    let owner = world.lender_of(guest);
    assert!(owner.len() == 1 && owner[0] != owners[2], "its mate is not on the node that has room: {owner:?}");
    assert_eq!(world.n_cores(guest), [2, 4]);
    world.is_done(guest);
    assert_eq!(world.n_cores(owner[0]), [4]);

    // Two nodes have room beside a possible mate, and the third has none: that makes two nodes, and not three.
    let mut world = lending_on("cores", 3, 8);
    world.set("mix_free_nodes", "yes");
    world.asks_to_share(1, 60, false);
    world.set("max_slowdown", "0");
    let owners = of_tasks(&mut world, 2, 60);
    world.set("max_slowdown", "infinite");
    let guest = of_tasks(&mut world, 3, 10);
    assert!(world.is_started(owners) && !world.is_started(guest));
}

#[test]
fn a_guest_that_ends_early_gives_its_mate_the_time_back() {
    let mut world = lending("nodes", 1);
    let owner = world.asks_to_share(1, 60, true);
    let guest = world.asks_to_share(1, 10, true);
    assert_eq!(world.wall(owner), Span::from_mins(70));
    world.now += Span::from_mins(2);
    world.is_done(guest);
    assert_eq!(world.wall(owner), Span::from_mins(61), "a minute of its work was not done in two");
}

#[test]
fn a_mate_that_ends_first_leaves_the_guest_its_node() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending(allocation, 1);
        let owner = world.asks_to_share(1, 60, true);
        let guest = world.asks_to_share(1, 10, true);
        world.now += Span::from_mins(2);
        world.is_done(owner);
        assert_eq!((world.n_cores(guest), world.lender_of(guest)), (vec![4], Vec::new()), "{allocation}");
        assert_eq!(world.wall(guest), Span::from_mins(11), "a minute of its ten was done in two");
        let next = world.asks_to_share(1, 1, false);
        assert!(!world.is_started(next), "the node is taken");
        world.is_done(guest);
        assert!(world.is_started(next));
    }
}

#[test]
fn who_does_not_leave_cpus_lends_no_more_and_the_guest_waits_again() {
    let mut world = lending("nodes", 1);
    let owner = world.asks_to_share(1, 60, true);
    world.runs("n1", owner, true);
    let guest = world.asks_to_share(1, 10, true);
    assert!(world.is_started(guest));
    world.runs("n1", owner, false);
    // The node has never heard of the guest, and reports so once it is told that the guest has ended.
    let run = world.rms.state().jobs()[&guest].run;
    let exit = NodeExit::Ordered;
    let status = JobStatus::Ended { at: world.now, exit, usage: Default::default() };
    let seen = world.rms.state().nodes()[&NodeId(1)].generation;
    let report = NodeReport { seen, jobs: vec![JobReport { job: guest, run, status }] };
    world.event(Event::AgentReported { name: "n1".to_owned(), report });
    assert!(!world.is_started(guest) && world.is_started(owner));
    assert_eq!((world.n_cores(owner), world.lender_of(guest)), (vec![4], Vec::new()));
}

#[test]
fn a_job_that_no_slowdown_would_gain_waits() {
    let mut world = lending("nodes", 1);
    let owner = world.asks_to_share(1, 10, true);
    let long = world.asks_to_share(1, 60, true);
    assert!(!world.is_started(long), "it would outlast its mate");
    let plain = world.asks_to_share(1, 1, false);
    assert!(!world.is_started(plain), "it did not say that it shares");
    world.set("max_slowdown", "0");
    let short = world.asks_to_share(1, 1, true);
    assert!(!world.is_started(short), "nobody lends");
    world.set("max_slowdown", "infinite");
    let other = world.asks_to_share(1, 1, true);
    assert!(world.is_started(short) && !world.is_started(other) && world.is_started(owner));
}

#[test]
fn a_server_that_is_started_again_knows_who_lends_what() {
    let mut world = lending("nodes", 1);
    let owner = world.asks_to_share(1, 60, true);
    let guest = world.asks_to_share(1, 10, true);
    world.restart(60);
    assert_eq!((world.n_cores(owner), world.lender_of(guest)), (vec![2], vec![owner]));
}

/// Random events: no job is slowed that did not opt in, no core belongs to two jobs, and at the end nothing is lent.
#[test]
fn whatever_happens_lent_cpus_come_back() {
    for_seeds("whatever_happens_lent_cpus_come_back", 200, |dice| {
        let allocation = if dice.chance(50) { "nodes" } else { "cores" };
        let n_nodes = dice.number(1, 4);
        let mut world = lending_on(allocation, n_nodes, 8);
        world.set("max_slowdown", "infinite");
        world.set("max_sharers", &dice.number(2, 4).to_string());
        world.set("fair_start", if dice.chance(33) { "5s" } else { "0s" });
        world.set("mix_free_nodes", if dice.chance(50) { "yes" } else { "no" });
        let mut known: Vec<(JobId, bool)> = Vec::new();
        for _ in 0..60 {
            match dice.number(0, 5) {
                0 | 1 => {
                    let share = dice.chance(75);
                    let (size, mins) = (dice.number(1, n_nodes), i64::from(dice.number(1, 40)));
                    known.push((world.asks_to_share(size, mins, share), share));
                }
                2 => {
                    let running: Vec<JobId> =
                        known.iter().map(|(job, _)| *job).filter(|job| world.is_started(*job)).collect();
                    if !running.is_empty() {
                        world.is_done(running[dice.number(0, running.len() as u32 - 1) as usize]);
                    }
                }
                3 => {
                    let name = format!("n{}", dice.number(1, n_nodes));
                    let node = world.rms.state().node_named(&name).expect("it has joined");
                    let holders: Vec<JobId> = world.rms.state().nodes()[&node].holders.iter().copied().collect();
                    let is_confined = dice.chance(90);
                    for job in holders {
                        if world.is_started(job) {
                            world.runs(&name, job, is_confined);
                        }
                    }
                }
                4 => world.restart(0),
                _ => world.now += Span::from_secs(dice.number(1, 300).into()),
            }
            let state = world.rms.state();
            for (job, share) in &known {
                let lends = state.jobs().get(job).and_then(|entry| entry.sharing()).is_some();
                assert!(*share || !lends, "job {job} never said that it shares");
            }
        }
        while let Some(job) = known.iter().map(|(job, _)| *job).find(|job| world.is_started(*job)) {
            world.is_done(job);
        }
        let is_active = |job: &JobId| {
            world
                .rms
                .state()
                .jobs()
                .get(job)
                .and_then(|entry| entry.sharing())
                .is_some_and(|sharing| sharing.is_active())
        };
        assert!(!known.iter().any(|(job, _)| is_active(job)), "somebody still lends");
    });
}
