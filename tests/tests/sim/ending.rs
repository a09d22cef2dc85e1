//! How jobs end: by themselves, by their wall time, by order, and what history says of it.

use rms_api::desired::NodeExit;
use rms_api::{Call, Refusal, Refused};
use rms_model::{JobId, Outcome, Span};
use rms_sim::story::{completed, ended, ending, ghost, hours, mins, secs, started, waiting};
use rms_sim::{World, WorldBuilder, admin, rigid, script, user};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

fn cancelled(job: JobId) -> rms_sim::story::Expected {
    ended(job, Outcome::Cancelled { by: "root".to_owned() })
}

#[test]
fn a_job_that_runs_too_long_is_ended_by_its_wall_time() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, mins(5)));
    world.after(mins(5) + secs(1));
    world.expect(ended(job, Outcome::WallTime));
    world.expect_all_ended();
}

#[test]
fn the_wall_time_holds_while_server_and_agent_are_away() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, mins(5)));
    world.after(mins(1));
    world.kill_server();
    world.kill_agent("a1");
    world.after(mins(10));
    assert_eq!(world.alive_on("a1"), 0);
    world.restart_server();
    world.restart_agent("a1");
    world.after(secs(15));
    world.expect(ended(job, Outcome::WallTime));
}

#[test]
fn a_program_that_ignores_term_is_killed_after_the_grace() {
    let mut world = cluster_of(1);
    world.set("kill_grace", "30s");
    let job = world.submit(rigid(1, hours(1)).ignores_term());
    world.after(mins(1));
    world.cancel(job);
    world.after(secs(29));
    world.expect(ending(job));
    assert_eq!(world.alive_on("a1"), 1);
    world.after(secs(2));
    world.expect(cancelled(job));
    assert_eq!(world.alive_on("a1"), 0);
}

#[test]
fn when_the_script_ends_its_other_nodes_are_ended() {
    let mut world = cluster_of(3);
    let job = world.submit(script(3, hours(1)).runs(mins(1)).exits(4));
    world.after(secs(30));
    assert_eq!((world.alive_on("a1"), world.alive_on("a3")), (1, 1));
    world.after(secs(31));
    world.expect(ended(job, Outcome::Failed { code: 4 }));
    world.expect_all_ended();
}

#[test]
fn the_worst_exit_code_of_all_tasks_counts() {
    let mut world = cluster_of(3);
    let exit = |code| NodeExit::Exited { code };
    let job = rigid(3, hours(1)).runs(mins(1)).on_node(1, secs(10), exit(9)).on_node(2, mins(2), exit(3));
    let job = world.submit(job);
    world.after(secs(90));
    // A task that failed does not end the others.
    world.expect(started(job));
    world.after(secs(60));
    world.expect(ended(job, Outcome::Failed { code: 9 }));
}

#[test]
fn one_task_that_is_killed_by_a_signal_ends_all() {
    let mut world = cluster_of(3);
    let job = world.submit(rigid(3, hours(1)).on_node(2, secs(10), NodeExit::Signaled { signal: 11 }));
    world.after(secs(20));
    world.expect(ended(job, Outcome::Signaled { signal: 11 }));
    world.expect_all_ended();
}

#[test]
fn a_rank_that_aborts_ends_all() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)).on_node(1, secs(10), NodeExit::Aborted { code: 6 }));
    world.after(secs(20));
    world.expect(ended(job, Outcome::Failed { code: 6 }));
    world.expect_all_ended();
}

#[test]
fn a_job_that_cannot_start_on_one_node_says_where_and_why_and_runs_on_none() {
    let mut world = cluster_of(2);
    let reason = "no such directory: /data".to_owned();
    let exit = NodeExit::not_started(&reason);
    let job = world.submit(rigid(2, hours(1)).on_node(1, Span::ZERO, exit));
    world.after(secs(20));
    world.expect(ended(job, Outcome::NotStarted { node: "a2".to_owned(), reason }));
    world.expect_all_ended();
}

#[test]
fn a_users_signal_reaches_every_node() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)));
    world.after(secs(1));
    world.on_job(&user("ann"), job, |select| Call::Signal { select, signal: 15 }).expect("it is hers");
    world.after(secs(1));
    world.expect(ended(job, Outcome::Signaled { signal: 15 }));
}

#[test]
fn a_job_can_be_cancelled_in_every_state_but_the_last() {
    let mut world = cluster_of(1);
    world.set("fair_start", "1m");
    let running = world.submit(rigid(1, hours(1)));
    let waits = world.submit(rigid(1, hours(1)));
    let held = world.submit(rigid(1, hours(1)).held());
    let later = world.submit(rigid(1, hours(1)).begin(world.now() + hours(5)));
    world.after(secs(1));
    for job in [held, later, waits] {
        world.cancel(job);
        world.expect(cancelled(job));
        assert!(world.history(job).expect("it is history").nodes.is_empty());
    }
    world.cancel(running);
    world.expect(ending(running));
    world.after(secs(1));
    world.expect(cancelled(running));
    world.expect(ghost(running));
    let refused = world.on_job(&admin(), running, |select| Call::Cancel { select });
    assert!(refused.as_ref().is_err_and(|refused| refused.kind == "wrong_state"), "{refused:?}");
    world.after(mins(2));
    let refused = world.on_job(&admin(), running, |select| Call::Cancel { select });
    assert_eq!(refused, Err(Refused::from(&Refusal::NoSuchJob(running))));
    world.expect_all_ended();
}

#[test]
fn a_job_cancelled_before_its_processes_are_up_never_runs() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)).starts_after(secs(20)));
    world.after(secs(1));
    world.cancel(job);
    world.after(secs(30));
    world.expect(cancelled(job));
    world.expect_all_ended();
}

#[test]
fn a_job_cancelled_while_its_node_is_away_ends_when_the_node_is_back() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)));
    let next = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.partition(&["a1"]);
    world.after(secs(12));
    world.cancel(job);
    world.after(secs(10));
    world.expect(ending(job));
    assert_eq!(world.alive_on("a1"), 1);
    world.expect(waiting(next));
    world.heal();
    world.after(secs(15));
    world.expect(cancelled(job));
    world.expect(started(next));
}

#[test]
fn a_cancel_that_the_server_did_not_live_to_send_is_sent_after_the_restart() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.cancel_and_crash(job);
    assert!(!world.has_server());
    world.after(secs(5));
    assert_eq!(world.alive_on("a1"), 1);
    world.restart_server();
    world.after(secs(15));
    world.expect(cancelled(job));
}

#[test]
fn a_job_that_ends_while_the_server_is_down_has_its_real_exit_code() {
    let mut world = cluster_of(2);
    let fails = world.submit(rigid(1, hours(1)).runs(mins(1)).exits(42));
    let ends_well = world.submit(rigid(1, hours(1)).runs(mins(2)));
    world.after(secs(10));
    world.kill_server();
    world.after(mins(5));
    world.restart_server();
    world.after(secs(15));
    world.expect(ended(fails, Outcome::Failed { code: 42 }));
    world.expect(completed(ends_well));
    world.expect_all_ended();
}

#[test]
fn a_job_that_ends_while_its_agent_is_down_has_its_real_exit_code() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(20)).exits(42));
    world.after(secs(10));
    world.kill_agent("a1");
    world.after(secs(20));
    world.restart_agent("a1");
    world.after(secs(5));
    world.expect(ended(job, Outcome::Failed { code: 42 }));
    world.expect_all_ended();
}

#[test]
fn an_agent_that_restarts_takes_its_jobs_over_and_starts_nothing_twice() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)).runs(mins(10)).starts_after(secs(10)));
    // While it is starting, and while it runs.
    for pause in [secs(5), secs(10), mins(1)] {
        world.after(pause);
        world.kill_agent("a1");
        world.after(secs(1));
        world.restart_agent("a1");
    }
    world.after(mins(10));
    world.expect(completed(job));
    world.expect_all_ended();
}

#[test]
fn history_adds_up_what_all_nodes_used() {
    let mut world = cluster_of(3);
    let job = world.submit(rigid(3, hours(1)).runs(mins(2)));
    world.after(mins(3));
    let record = world.history(job).expect("it is done");
    assert_eq!(record.usage.cpu, mins(6));
    assert_eq!(record.nodes, ["a1", "a2", "a3"]);
}
