//! The order of the queue and what moves in it: ghosts, timers, depth, holds, priorities, begin times.

use rms_api::answer::Reason;
use rms_api::call::Query;
use rms_api::{Answer, Call, Refusal};
use rms_model::{JobId, Outcome, Time};
use rms_sim::story::{completed, ended, ghost, held, hours, mins, secs, started, submitted, waiting};
use rms_sim::{World, WorldBuilder, admin, moldable, rigid, user};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

fn order(world: &mut World) -> Vec<JobId> {
    match world.admin(Call::Query(Query::Queue(Default::default()))) {
        Answer::Queue { jobs, .. } => jobs.into_iter().map(|line| line.job).collect(),
        other => panic!("not the queue: {other:?}"),
    }
}

#[test]
fn a_ghost_keeps_the_nodes_for_the_fair_start_delay() {
    let mut world = cluster_of(2);
    world.set("fair_start", "10s");
    let first = world.submit(rigid(2, hours(1)).runs(mins(1)));
    let second = world.submit(rigid(1, hours(1)));
    world.after(secs(65));
    world.expect(completed(first));
    world.expect(ghost(first));
    world.expect(waiting(second));
    let ended = world.history(first).expect("it is done").ended;
    assert_eq!(world.estimate(second), Some(ended + secs(10)));
    world.after(secs(10));
    world.expect(started(second));
    assert!(world.line(first).is_none(), "the ghost is finished");
}

#[test]
fn a_ghost_survives_a_restart_of_the_server() {
    let mut world = cluster_of(1);
    world.set("fair_start", "1m");
    let first = world.submit(rigid(1, hours(1)).runs(secs(1)));
    world.after(secs(5));
    world.expect(ghost(first));
    world.bounce_server();
    world.expect(ghost(first));
    let second = world.submit(rigid(1, hours(1)));
    world.after(secs(20));
    world.expect(waiting(second));
    world.after(secs(30));
    world.expect(started(second));
}

#[test]
fn the_re_scheduling_timer_makes_one_pass_of_many_requests() {
    let mut world = cluster_of(8);
    world.set("resched_timer", "30s");
    world.after(mins(1));
    let passes = |world: &mut World| match world.admin(Call::Query(Query::Status)) {
        Answer::Status(status) => status.n_passes,
        other => panic!("not the status: {other:?}"),
    };
    // The first request finds the timer run out; the others share the next pass.
    let before = passes(&mut world);
    let first = world.submit(rigid(1, hours(1)));
    let others: Vec<JobId> = (0..5).map(|_| world.submit(rigid(1, hours(1)))).collect();
    world.after(secs(1));
    world.expect(started(first));
    assert!(others.iter().all(|job| world.line(*job).is_some_and(|line| line.started.is_none())));
    world.after(secs(30));
    for job in others {
        world.expect(started(job));
    }
    assert_eq!(passes(&mut world) - before, 2);
}

#[test]
fn only_the_first_applications_of_the_queue_are_considered() {
    let mut world = cluster_of(2);
    world.set("queue_depth", "1");
    world.submit(rigid(1, hours(1)));
    let wide = world.submit(rigid(2, hours(1)));
    let small = world.submit(rigid(1, mins(1)));
    world.after(secs(1));
    world.expect(waiting(wide));
    world.expect(waiting(small));
    assert_eq!(world.explain(small), Some(Reason::BeyondDepth { depth: 1, position: 2 }));
    world.set("queue_depth", "2");
    world.after(secs(1));
    world.expect(started(small));
}

/// It goes on to be considered for as long as it has a promise, or the server would want a pass for it for ever.
#[test]
fn a_job_that_falls_behind_the_depth_keeps_its_promise_and_time_goes_on() {
    let mut world = cluster_of(1);
    world.set("policy", "conservative");
    world.set("queue_depth", "1");
    let holder = world.submit(rigid(1, mins(10)).ignores_term().runs(mins(30)));
    let promised = world.submit(rigid(1, hours(1)).runs(secs(5)));
    let preferred = world.submit(rigid(1, hours(1)).runs(secs(5)));
    world.on_job(&admin(), preferred, |select| Call::set_priority(select, 9)).expect("it waits");
    assert!(matches!(world.explain(promised), Some(Reason::Blocked { .. })));
    world.after(mins(11));
    world.expect(ended(holder, Outcome::WallTime));
    world.expect(completed(preferred));
    world.expect(completed(promised));
}

#[test]
fn a_job_that_was_held_and_released_has_its_old_place() {
    let mut world = cluster_of(1);
    world.submit(rigid(1, mins(10)).runs(mins(5)));
    let first = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let second = world.submit(rigid(1, hours(1)));
    world.on_job(&user("ann"), first, |select| Call::Hold { select }).expect("it waits");
    world.expect(held(first));
    assert_eq!(world.explain(first), Some(Reason::Held { by: "ann".to_owned() }));
    world.bounce_server();
    world.expect(held(first));
    world.on_job(&user("ann"), first, |select| Call::Release { select }).expect("it is held");
    world.after(mins(5));
    world.expect(started(first));
    world.expect(waiting(second));
}

#[test]
fn a_held_job_lets_others_pass() {
    let mut world = cluster_of(1);
    let held_job = world.submit(rigid(1, hours(1)).held());
    let other = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.expect(held(held_job));
    world.expect(started(other));
}

#[test]
fn what_an_admin_holds_its_user_cannot_release() {
    let mut world = cluster_of(1);
    world.submit(rigid(1, hours(1)));
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.on_job(&admin(), job, |select| Call::Hold { select }).expect("it waits");
    let refused = world.on_job(&user("ann"), job, |select| Call::Release { select });
    assert!(refused.as_ref().is_err_and(|refused| refused.kind == "not_allowed"), "{refused:?}");
    world.expect(held(job));
}

#[test]
fn a_higher_priority_goes_first_and_equals_keep_their_order() {
    let mut world = cluster_of(1);
    let running = world.submit(rigid(1, hours(1)));
    let low = world.submit(rigid(1, hours(1)).priority(-1));
    let usual = world.submit(rigid(1, hours(1)));
    let later = world.submit(rigid(1, hours(1)));
    let urgent = world.submit(rigid(1, hours(1)));
    world.on_job(&admin(), urgent, |select| Call::set_priority(select, 5)).expect("an admin may");
    assert_eq!(order(&mut world), [running, urgent, usual, later, low]);
    world.bounce_server();
    assert_eq!(order(&mut world), [running, urgent, usual, later, low]);
}

#[test]
fn a_user_may_step_back_but_not_forward() {
    let mut world = cluster_of(1);
    world.submit(rigid(1, hours(1)));
    let job = world.submit(rigid(1, hours(1)));
    let ann = user("ann");
    world.on_job(&ann, job, |select| Call::set_priority(select, -3)).expect("she steps back");
    let refused = world.on_job(&ann, job, |select| Call::set_priority(select, 1));
    assert!(refused.as_ref().is_err_and(|refused| refused.kind == "not_allowed"), "{refused:?}");
    let refused = world.try_submit(rigid(1, hours(1)).priority(1));
    assert!(matches!(refused, Err(Refusal::NotAllowed { .. })), "{refused:?}");
}

#[test]
fn a_job_with_a_begin_time_takes_its_place_only_then() {
    let mut world = cluster_of(1);
    let begin = Time::EPOCH + mins(10);
    let job = world.submit(rigid(1, hours(1)).begin(begin));
    let other = world.submit(rigid(1, mins(15)).runs(mins(14)));
    world.after(secs(1));
    world.expect(submitted(job));
    assert_eq!(world.explain(job), Some(Reason::NotBefore { at: begin }));
    world.bounce_server();
    world.expect(started(other));
    world.at(begin + secs(1));
    world.expect(waiting(job));
    world.after(mins(5));
    world.expect(started(job));
    let cancel = world.line(job).expect("it runs");
    assert_eq!(cancel.requested, Some(begin));
}

#[test]
fn a_begin_time_that_passes_while_the_server_is_down_is_not_forgotten() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).begin(Time::EPOCH + mins(1)));
    world.kill_server();
    world.after(mins(5));
    world.restart_server();
    world.after(secs(15));
    world.expect(started(job));
}

#[test]
fn waiting_jobs_keep_their_places_over_a_restart() {
    let mut world = cluster_of(2);
    let jobs: Vec<JobId> = (1..=6).map(|idx| world.submit(rigid(1 + idx % 2, hours(1)))).collect();
    world.after(secs(1));
    let before = order(&mut world);
    let estimates: Vec<_> = jobs.iter().map(|job| world.estimate(*job)).collect();
    world.bounce_server();
    assert_eq!(order(&mut world), before);
    assert_eq!(jobs.iter().map(|job| world.estimate(*job)).collect::<Vec<_>>(), estimates);
}

/// The agents come back one after the other: the first of them is not all that there is.
#[test]
fn after_a_restart_a_moldable_job_and_the_queue_wait_for_the_agents_that_are_on_their_way() {
    let mut world = cluster_of(4);
    world.set("restart_grace", "30s");
    world.kill_server();
    for node in ["a2", "a3", "a4"] {
        world.kill_agent(node);
    }
    world.restart_server();
    world.after(secs(15));
    let job = world.submit(moldable(&[(1, mins(8)), (2, mins(4)), (4, mins(2))]).runs(mins(1)));
    world.after(secs(2));
    world.expect(waiting(job));
    assert!(matches!(world.explain(job), Some(Reason::AgentsExpected { n_nodes: 3, .. })), "{:?}", world.explain(job));
    for node in ["a2", "a3", "a4"] {
        world.restart_agent(node);
    }
    world.after(secs(3));
    world.expect(started(job));
    assert_eq!(world.line(job).expect("it runs").nodes.len(), 4);

    // One that does not come back is waited for no longer than the setting says.
    world.after(mins(3));
    world.kill_server();
    world.kill_agent("a4");
    world.restart_server();
    world.after(secs(15));
    let next = world.submit(moldable(&[(1, mins(8)), (2, mins(4)), (4, mins(2))]).runs(mins(1)));
    world.after(secs(2));
    world.expect(waiting(next));
    world.after(secs(15));
    world.expect(started(next));
    assert_eq!(world.line(next).expect("it runs").nodes.len(), 2);
}
