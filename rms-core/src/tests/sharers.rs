//! More than two jobs on the same cores: guests that lend, and what happens to all when one of them ends (004, §3.2.4).

use rms_api::answer::{Answer, Lenders, NeverGuest, Reason};
use rms_api::call::update::{Changes, WallChange};
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_api::{Call, Query};
use rms_model::{ExpandLimit, Identity, JobId, Role, Span};
use test_kit::for_seeds;

use super::World;
use super::evolving::profile;
use super::lending::{desired, jobs_of, lending_on};

/// Creates nodes of eight cores, on which up to `most` jobs may share.
fn sharers(allocation: &str, n_nodes: u32, most: u32) -> World {
    let mut world = lending_on(allocation, n_nodes, 8);
    world.set("max_sharers", &most.to_string());
    world.set("max_slowdown", "infinite");
    world
}

/// Starts an owner of one node, a guest of it, and a guest of that one: of an hour, 20 and 5 minutes.
fn three(allocation: &str) -> (World, [JobId; 3]) {
    let mut world = sharers(allocation, 1, 3);
    let jobs = [60, 20, 5].map(|mins| world.asks_to_share(1, mins, true));
    (world, jobs)
}

fn cores(world: &World, jobs: [JobId; 3]) -> [String; 3] {
    jobs.map(|job| world.cores_on_first(job))
}

fn owners(world: &World, jobs: [JobId; 3]) -> [Vec<JobId>; 3] {
    jobs.map(|job| world.lender_of(job))
}

#[test]
fn a_guest_lends_only_where_more_than_two_may_share() {
    for allocation in ["nodes", "cores"] {
        let mut world = sharers(allocation, 1, 2);
        let jobs = [60, 20, 5].map(|mins| world.asks_to_share(1, mins, true));
        assert_eq!(jobs.map(|job| world.is_started(job)), [true, true, false], "{allocation}");

        let (mut world, jobs) = three(allocation);
        assert_eq!(cores(&world, jobs), ["0-3", "4-5", "6-7"], "{allocation}");
        assert_eq!(owners(&world, jobs), [vec![], vec![jobs[0]], vec![jobs[1]]]);
        // The last one takes four times its time. The guest does 40 of its 160 core-minutes meanwhile, and the rest on
        // 4.
        assert_eq!(jobs.map(|job| world.wall(job)), [85, 50, 20].map(Span::from_mins), "{allocation}");
        let fourth = world.asks_to_share(1, 1, true);
        assert!(!world.is_started(fourth), "{allocation}: three share the node");
    }
}

#[test]
fn each_is_started_once_the_one_it_is_inside_has_left_its_cpus() {
    for allocation in ["nodes", "cores"] {
        let (mut world, [owner, guest, inner]) = three(allocation);
        let told = |effects: &[_]| desired(effects, "n1").map(|told| jobs_of(&told));
        assert_eq!(told(&world.runs("n1", owner, true)), Some(vec![owner, guest]), "{allocation}");
        assert_eq!(told(&world.runs("n1", guest, true)), Some(vec![owner, guest, inner]), "{allocation}");
    }
}

#[test]
fn who_is_inside_a_guest_that_ends_is_inside_the_owner() {
    for allocation in ["nodes", "cores"] {
        let (mut world, jobs) = three(allocation);
        world.now += Span::from_mins(10);
        world.is_done(jobs[1]);
        assert_eq!(world.lender_of(jobs[2]), [jobs[0]], "{allocation}");
        assert_eq!([0, 2].map(|idx| world.cores_on_first(jobs[idx])), ["0-5", "6-7"], "{allocation}");
        // 40 of 480 core-minutes in ten, 60 in the ten of the last one, and the rest on 8.
        assert_eq!(world.wall(jobs[0]), Span::from_secs(4050), "{allocation}");
        assert_eq!(world.wall(jobs[2]), Span::from_mins(20));
        world.now += Span::from_mins(10);
        world.is_done(jobs[2]);
        assert_eq!((world.n_cores(jobs[0]), world.wall(jobs[0])), (vec![8], Span::from_secs(4050)), "{allocation}");
    }
}

#[test]
fn a_guest_that_may_run_longer_does_not_keep_its_owner() {
    let (mut world, jobs) = three("nodes");
    let changes = Changes { wall: Some(WallChange::To(Span::from_mins(600))), ..Changes::default() };
    world.ask(Call::Update { select: Select::Ids(vec![jobs[2]]), changes: Box::new(changes) });
    world.is_done(jobs[1]);
    assert_eq!(world.lender_of(jobs[2]), [jobs[0]]);
    // 480 core-minutes on six cores.
    assert_eq!(world.wall(jobs[0]), Span::from_mins(80));
}

/// It would slow its owner down for longer than it was to when it began.
#[test]
fn only_an_admin_gives_a_guest_more_time() {
    let (mut world, [owner, guest, _]) = three("cores");
    let name = world.rms.state().jobs()[&guest].spec.owner.0.clone();
    let mut update = |job, mins| {
        let changes = Changes { wall: Some(WallChange::To(Span::from_mins(mins))), ..Changes::default() };
        let who = Identity::new(Role::User, &name).expect("a plain name");
        format!("{:?}", world.ask_as(who, Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) }))
    };
    assert!(update(guest, 21).contains("it borrows cores"));
    assert!(!update(guest, 19).contains("borrows") && !update(owner, 70).contains("borrows"));
    let ask = [owner, guest].map(|job| world.rms.state().jobs()[&job].started().expect("it runs").requested());
    assert_eq!(ask, [70, 19].map(Span::from_mins));
}

#[test]
fn the_guest_of_an_owner_that_ends_has_the_node_but_for_what_it_lends() {
    for allocation in ["nodes", "cores"] {
        let (mut world, jobs) = three(allocation);
        world.now += Span::from_mins(10);
        world.is_done(jobs[0]);
        assert_eq!([1, 2].map(|idx| world.cores_on_first(jobs[idx])), ["0-5", "6-7"], "{allocation}");
        assert_eq!([1, 2].map(|idx| world.lender_of(jobs[idx])), [vec![], vec![jobs[1]]]);
        // 20 of 160 core-minutes in ten, 60 in ten more, and the rest on 8.
        assert_eq!(world.wall(jobs[1]), Span::from_mins(30), "{allocation}");
        world.is_done(jobs[1]);
        assert_eq!((world.n_cores(jobs[2]), world.lender_of(jobs[2])), (vec![8], vec![]), "{allocation}");
        // 20 of 40 core-minutes in ten, and the rest on 8.
        assert_eq!(world.wall(jobs[2]), Span::from_secs(750), "{allocation}");
    }
}

#[test]
fn who_would_make_a_guest_outlast_its_owner_waits() {
    // The guest takes 50 minutes, and two more for each of the new one; the owner ends after 60 on four cores.
    for (mins, starts) in [(6, false), (5, true)] {
        let mut world = sharers("nodes", 1, 3);
        let jobs = [30, 25, mins].map(|mins| world.asks_to_share(1, mins, true));
        assert_eq!(world.is_started(jobs[2]), starts, "{mins} minutes");
    }
}

#[test]
fn an_owner_at_the_cut_off_is_not_slowed_by_a_guest_of_its_guest() {
    // The owner has waited for an hour: it would be in the system for 60 + 30 + 10 + 2 minutes of its 30.
    for (cut_off, starts) in [("3.4", false), ("3.41", true)] {
        let mut world = sharers("nodes", 1, 3);
        let first = world.asks_to_share(1, 60, false);
        let owner = world.asks_to_share(1, 30, true);
        world.set("max_slowdown", cut_off);
        world.now += Span::from_mins(60);
        world.is_done(first);
        let (guest, inner) = (world.asks_to_share(1, 10, true), world.asks_to_share(1, 2, true));
        assert!(world.is_started(owner) && world.is_started(guest));
        assert_eq!(world.is_started(inner), starts, "{cut_off}");
    }
}

#[test]
fn who_found_no_mates_is_looked_for_again_once_a_guest_has_begun() {
    let mut world = sharers("nodes", 3, 3);
    let owners = [60; 3].map(|mins| world.asks_to_share(1, mins, true));
    let inner = world.asks_to_share(3, 2, true);
    assert!(!world.is_started(inner), "three mates are one too many");
    let guest = world.asks_to_share(2, 20, true);
    assert!(world.is_started(guest) && world.is_started(inner), "inside the guest and the third");
    assert_eq!(world.lender_of(inner), [owners[2], guest]);
}

/// Returns why no running job lends to a waiting one, as `explain` says.
fn refusals(world: &mut World, job: JobId) -> Lenders {
    let reason = explained(world, job);
    let Some(Reason::Blocked { lenders: Some(lenders), .. }) = reason else { panic!("{reason:?}") };
    *lenders
}

fn explained(world: &mut World, job: JobId) -> Option<Reason> {
    let Answer::Detail { mut jobs, .. } = world.ask(Call::Query(Query::Explain(Select::Ids(vec![job])))) else {
        panic!("no details");
    };
    jobs.pop().and_then(|detail| detail.line.reason)
}

#[test]
fn a_job_that_nobody_lends_to_is_told_why() {
    for allocation in ["nodes", "cores"] {
        let mut world = sharers(allocation, 4, 2);
        world.asks_to_share(2, 60, false);
        let alone = world.asks_to_share(3, 10, true);
        assert_eq!(refusals(&mut world, alone), Lenders::default(), "{allocation}: nobody shares");
        world.ask(Call::Cancel { select: Select::Ids(vec![alone]) });

        // One takes both of the other nodes. The next one would need 50 minutes on half of its cores.
        world.asks_to_share(2, 20, true);
        let long = world.asks_to_share(3, 25, true);
        let told = Lenders { n_sharing: 1, n_unfit: 1, ..Lenders::default() };
        assert_eq!(refusals(&mut world, long), told, "{allocation}: it ends too early");
        let small = world.asks_to_share(1, 5, true);
        let told = Lenders { n_sharing: 1, n_larger: 1, ..Lenders::default() };
        assert_eq!(refusals(&mut world, small), told, "{allocation}: it has two nodes");
        let wide = world.asks_to_share(3, 2, true);
        let told = Lenders { n_sharing: 1, ..Lenders::default() };
        assert_eq!(refusals(&mut world, wide), told, "{allocation}: it has two of three");
        world.set("max_slowdown", "1");
        let told = Lenders { n_sharing: 1, n_slowed: 1, ..Lenders::default() };
        assert_eq!(refusals(&mut world, wide), told, "{allocation}: it would be slowed too much");
        world.set("max_slowdown", "infinite");

        // Half of the cores for twice the time ends no earlier than a start in half a minute.
        world.after(Span::from_secs(19 * 60 + 30));
        let late = world.asks_to_share(2, 10, true);
        assert!(refusals(&mut world, late).ends_no_earlier, "{allocation}");
        let guest = world.asks_to_share(2, 1, false);
        let reason = explained(&mut world, guest);
        assert!(matches!(reason, Some(Reason::Blocked { lenders: None, .. })), "{allocation}: {reason:?}");
    }
}

#[test]
fn a_guest_that_lacks_a_licence_is_told_so() {
    for allocation in ["nodes", "cores"] {
        let mut world = sharers(allocation, 1, 2);
        world.set("licences", "matlab:1");
        let ask = |world: &mut World, mins| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                submission.resources.share = true;
                submission.resources.licences.add("matlab", 1);
            })
        };
        ask(&mut world, 60);
        let guest = ask(&mut world, 5);
        let told = Lenders { n_sharing: 1, lacks_licence: true, ..Lenders::default() };
        assert_eq!(refusals(&mut world, guest), told, "{allocation}");
        world.set("licences", "matlab:2");
        assert!(world.is_started(guest), "{allocation}");
    }
}

/// What is said of a job that is not submitted is what happens to it when it is.
#[test]
fn an_application_is_told_whose_cores_it_would_start_on() {
    let mut n_lent = 0;
    for_seeds("an_application_is_told_whose_cores_it_would_start_on", 120, |dice| {
        let mut world = sharers(dice.one_of(&["nodes", "cores"]), 3, dice.number(2, 3));
        for _ in 0..10 {
            let mut submission = world.submission();
            let mut shape = || {
                let wall = Some(Span::from_mins(dice.number(1, 60).into()));
                Shape { nodes: Nodes::Count(dice.number(1, 2)), wall }
            };
            submission.shapes = vec![shape()];
            submission.resources.share = dice.chance(80);
            let asked = Submission { test_only: true, ..submission.clone() };
            let Answer::WouldStart { request, at, lent_by, .. } = world.ask(Call::Submit(Box::new(asked))) else {
                panic!("no estimate");
            };
            let job = world.submit_with(|given| *given = submission);
            assert_eq!(at == Some(world.now), world.is_started(job), "{at:?}");
            assert_eq!(lent_by, world.lender_of(job));
            if world.is_started(job) {
                assert_eq!(request.wall, world.wall(job));
            }
            n_lent += u32::from(!lent_by.is_empty());
            world.after(Span::from_mins(dice.number(0, 5).into()));
        }
    });
    assert!(n_lent > 50, "only {n_lent} would have started on lent cores");
}

#[test]
fn one_that_lends_already_is_told_as_such() {
    for allocation in ["nodes", "cores"] {
        let mut world = sharers(allocation, 1, 2);
        let jobs = [60, 20, 5].map(|mins| world.asks_to_share(1, mins, true));
        assert!(world.is_started(jobs[1]));
        assert_eq!(
            refusals(&mut world, jobs[2]),
            Lenders { n_sharing: 2, n_busy: 2, ..Lenders::default() },
            "{allocation}"
        );
    }
}

#[test]
fn one_that_is_never_a_guest_is_told_as_such() {
    for allocation in ["nodes", "cores"] {
        let mut world = sharers(allocation, 2, 2);
        world.asks_to_share(2, 60, true);
        let evolving = |world: &mut World, share| {
            world.submit_with(|submission| {
                submission.evolving = Some(profile("1x300s,2x300s", ExpandLimit::Infinite, false));
                submission.resources.share = share;
            })
        };
        let waits = evolving(&mut world, true);
        let told = Lenders { never: Some(NeverGuest::Profile), ..Lenders::default() };
        assert_eq!(refusals(&mut world, waits), told, "{allocation}");
        let alone = evolving(&mut world, false);
        let reason = explained(&mut world, alone);
        assert!(matches!(reason, Some(Reason::Blocked { lenders: None, .. })), "{allocation}: {reason:?}");
    }
}
