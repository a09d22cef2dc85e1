//! What becomes of nodes and their jobs: draining, down, away, lost, rebooted, back again.

use rms_api::answer::NodeState;
use rms_api::{Call, Refusal};
use rms_core::Fact;
use rms_model::{Outcome, Run};
use rms_sim::story::{completed, ended, hours, mins, secs, started, waiting};
use rms_sim::{ModelJob, World, WorldBuilder, admin, rigid, script};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

const GONE: &str = "its agent did not come back";

fn lost(node: &str, reason: &str) -> Outcome {
    Outcome::NodeLost { node: node.to_owned(), reason: reason.to_owned() }
}

#[test]
fn a_node_that_is_drained_finishes_its_job_and_gets_no_new_one() {
    let mut world = cluster_of(1);
    let running = world.submit(rigid(1, hours(1)).runs(mins(10)));
    let next = world.submit(rigid(1, hours(1)));
    world.after(mins(1));
    world.drain("a1");
    assert_eq!(world.node("a1").state, NodeState::Draining);
    world.bounce_server();
    assert_eq!(world.node("a1").state, NodeState::Draining);
    world.after(mins(10));
    world.expect(completed(running));
    assert_eq!(world.node("a1").state, NodeState::Drained);
    assert_eq!(world.node("a1").reason, Some("maintenance".to_owned()));
    world.expect(waiting(next));
    world.resume("a1");
    world.after(secs(1));
    world.expect(started(next));
}

#[test]
fn a_node_that_is_put_down_ends_its_jobs_everywhere() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)));
    world.after(mins(1));
    world.down("a2");
    world.after(secs(15));
    world.expect(ended(job, lost("a2", "set down by root: broken")));
    assert_eq!((world.alive_on("a1"), world.alive_on("a2")), (0, 0));
    assert_eq!(world.node("a2").state, NodeState::Down);
    assert_eq!(world.node("a1").state, NodeState::Idle);
}

#[test]
fn a_short_absence_of_an_agent_harms_nobody() {
    let mut world = cluster_of(2);
    let job = world.submit(script(2, hours(1)).runs(mins(10)).exits(3));
    for _ in 0..5 {
        world.after(mins(1));
        world.lose_link("a1");
        world.after(secs(20));
        world.partition(&["a2"]);
        world.after(secs(30));
        world.heal();
    }
    world.after(mins(5));
    world.expect(ended(job, Outcome::Failed { code: 3 }));
    assert_eq!(world.history(job).expect("it is done").run, Run(1));
    world.expect_all_ended();
}

#[test]
fn a_partition_shorter_than_the_idle_time_does_not_even_cost_the_link() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(3)));
    world.partition(&["a1"]);
    world.after(secs(5));
    world.heal();
    world.after(secs(1));
    world.expect(started(job));
    assert_eq!(world.node("a1").state, NodeState::Busy);
    world.after(secs(3));
    world.expect(completed(job));
}

#[test]
fn a_job_on_a_node_that_stays_away_fails_and_its_other_nodes_are_ended() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(1)));
    world.after(mins(1));
    world.kill_node("a2");
    world.after(secs(30));
    world.expect(started(job));
    assert_eq!(world.node("a2").state, NodeState::Away);
    world.after(mins(1));
    world.expect(ended(job, lost("a2", GONE)));
    assert_eq!(world.node("a2").state, NodeState::Lost);
    assert_eq!(world.alive_on("a1"), 0);
    assert_eq!(world.node("a1").state, NodeState::Idle);
}

#[test]
fn a_lost_job_that_may_waits_again_in_its_old_place_and_runs_as_another_run() {
    let mut world = cluster_of(3);
    world.set("lost_policy", "requeue");
    let job = world.submit(rigid(2, hours(1)).runs(mins(10)).requeue());
    world.after(secs(1));
    let other = world.submit(rigid(3, hours(1)));
    world.after(mins(1));
    world.kill_node("a1");
    world.after(mins(2));
    world.expect(started(job));
    let line = world.line(job).expect("it runs");
    assert_eq!((line.run, line.nodes), (Run(2), vec!["a2".to_owned(), "a3".to_owned()]));
    world.expect(waiting(other));
    world.after(mins(10));
    world.expect(completed(job));
    assert_eq!(world.history(job).expect("it is done").run, Run(2));
}

#[test]
fn a_lost_jobs_own_word_counts_before_the_setting() {
    let check = |policy: &str, job: ModelJob, runs_again: bool| {
        let mut world = cluster_of(2);
        world.set("lost_policy", policy);
        let job = world.submit(job);
        world.after(mins(1));
        world.kill_node("a1");
        world.after(mins(2));
        world.expect(if runs_again { started(job) } else { ended(job, lost("a1", GONE)) });
    };
    let job = || rigid(1, hours(1));
    check("fail", job(), false);
    check("fail", job().requeue(), true);
    check("fail", job().no_requeue(), false);
    check("requeue", job(), true);
    check("requeue", job().requeue(), true);
    check("requeue", job().no_requeue(), false);
    // Somebody follows it: what it has written and read cannot be taken back.
    check("requeue", job().streamed(), false);
    check("requeue", job().streamed().requeue(), true);
}

#[test]
fn a_job_requeued_while_its_other_share_is_ending_waits_for_that() {
    let mut world = cluster_of(2);
    world.set("lost_policy", "requeue");
    world.set("kill_grace", "5m");
    let job = world.submit(rigid(2, hours(1)).requeue().ignores_term());
    world.after(mins(1));
    world.kill_node("a1");
    world.after(mins(2));
    world.boot_node("a1");
    world.after(mins(1));
    // a1 is back, but a2 still has the old run: nothing starts.
    assert_eq!(world.line(job).expect("it is there").run, Run(1));
    assert_eq!(world.alive_on("a2"), 1);
    world.after(mins(5));
    world.expect(started(job));
    assert_eq!(world.line(job).expect("it runs").run, Run(2));
}

#[test]
fn a_job_cancelled_while_it_waits_to_be_requeued_does_not_run_again() {
    let mut world = cluster_of(2);
    world.set("lost_policy", "requeue");
    world.set("kill_grace", "5m");
    let job = world.submit(rigid(2, hours(1)).requeue().ignores_term());
    world.after(mins(1));
    world.kill_node("a1");
    world.after(mins(2));
    world.cancel(job);
    world.after(mins(6));
    world.expect(ended(job, Outcome::Cancelled { by: "root".to_owned() }));
}

#[test]
fn a_node_that_was_lost_ends_the_old_run_when_it_returns() {
    let mut world = cluster_of(2);
    world.set("lost_policy", "requeue");
    let job = world.submit(rigid(1, hours(1)).runs(mins(30)).requeue());
    world.after(mins(1));
    world.partition(&["a1"]);
    world.after(mins(2));
    // Fenced by its run number: a1 still has the first run, a2 the second.
    world.expect(started(job));
    assert_eq!((world.alive_on("a1"), world.alive_on("a2")), (1, 1));
    world.heal();
    world.after(secs(5));
    assert_eq!((world.alive_on("a1"), world.alive_on("a2")), (0, 1));
    assert_eq!(world.node("a1").state, NodeState::Idle);
    world.after(mins(30));
    world.expect(completed(job));
    world.expect_all_ended();
}

#[test]
fn a_node_that_returns_with_an_unwanted_job_is_not_used_until_it_is_gone() {
    let mut world = cluster_of(1);
    let old = world.submit(rigid(1, hours(1)));
    world.after(mins(1));
    world.partition(&["a1"]);
    world.after(mins(2));
    world.expect(ended(old, lost("a1", GONE)));
    let new = world.submit(rigid(1, hours(1)));
    world.heal();
    world.after(secs(5));
    world.expect(started(new));
    let cleared = |fact: &Fact| matches!(fact, Fact::NodeFenced { stale, .. } if stale.is_empty());
    let starts = |fact: &Fact| matches!(fact, Fact::JobStarted { job, .. } if *job == new);
    let cleared = world.facts().iter().position(cleared).expect("the fence was lifted");
    assert!(Some(cleared) < world.facts().iter().position(starts));
    assert_eq!(world.alive_on("a1"), 1);
    world.cancel(new);
    world.after(secs(5));
    world.expect_all_ended();
}

#[test]
fn a_job_on_a_node_that_reboots_is_lost_as_soon_as_the_node_is_back() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)));
    world.after(mins(1));
    world.kill_node("a1");
    world.after(secs(20));
    world.boot_node("a1");
    world.after(secs(2));
    world.expect(ended(job, lost("a1", "the node was restarted")));
    world.expect_all_ended();
}

#[test]
fn a_job_on_a_node_that_comes_back_with_an_empty_disk_is_lost() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)));
    world.after(mins(1));
    world.wipe_node("a1");
    world.after(secs(20));
    world.boot_node("a1");
    world.after(secs(2));
    world.expect(ended(job, lost("a1", "the agent knows nothing of it any more")));
    world.expect_all_ended();
}

#[test]
fn a_result_that_was_on_disk_survives_the_reboot() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(20)).exits(5));
    world.after(secs(1));
    world.partition(&["a1"]);
    world.after(secs(25));
    world.kill_node("a1");
    world.boot_node("a1");
    world.heal();
    world.after(secs(10));
    world.expect(ended(job, Outcome::Failed { code: 5 }));
}

#[test]
fn no_node_is_lost_for_the_time_in_which_the_server_was_down() {
    let mut world = cluster_of(2);
    let job = world.submit(rigid(2, hours(2)).runs(hours(1)));
    world.after(mins(1));
    world.kill_server();
    world.after(mins(30));
    world.restart_server();
    world.after(secs(20));
    world.expect(started(job));
    world.after(mins(30));
    world.expect(completed(job));
}

#[test]
fn a_node_that_does_not_come_back_after_a_restart_of_the_server_is_lost_in_time() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)));
    world.after(mins(1));
    world.kill_server();
    world.kill_node("a1");
    world.after(mins(10));
    world.restart_server();
    world.after(secs(50));
    world.expect(started(job));
    assert_eq!(world.node("a1").state, NodeState::Away);
    world.after(secs(20));
    world.expect(ended(job, lost("a1", GONE)));
}

#[test]
fn a_node_is_removed_only_when_it_is_gone_and_holds_nothing() {
    let mut world = cluster_of(2);
    let remove = |world: &mut World| world.ask(&admin(), Call::Remove { nodes: vec!["a2".to_owned()] });
    let in_use = Err(Refusal::NodeInUse { node: "a2".to_owned() });
    assert_eq!(remove(&mut world), in_use);
    let job = world.submit(rigid(2, hours(1)));
    world.after(secs(1));
    world.kill_node("a2");
    world.after(secs(20));
    assert_eq!(remove(&mut world), in_use);
    world.after(mins(2));
    world.expect(ended(job, lost("a2", GONE)));
    assert!(remove(&mut world).is_ok());
    assert_eq!(world.state().nodes().len(), 1);
}
