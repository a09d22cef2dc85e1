//! Who may do what, what is refused at submit, and what an admin may change.

use std::sync::Arc;

use rms_api::call::{Query, Select};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_model::settings::KEYS;
use rms_model::{Mebibytes, Span};
use rms_sim::story::{hours, mins, secs, started};
use rms_sim::{ModelJob, World, WorldBuilder, admin, rigid, user};

fn two_clusters() -> World {
    let mut world = WorldBuilder::default().cluster("a", 2).cluster("b", 4).build();
    world.after(secs(1));
    world
}

fn refused(world: &mut World, job: ModelJob) -> String {
    match world.try_submit(job) {
        Err(refusal) => refusal.to_string(),
        Ok(answer) => panic!("not refused: {answer:?}"),
    }
}

#[test]
fn what_is_impossible_is_refused_with_what_would_be_possible() {
    let mut world = two_clusters();
    let wall = mins(1);
    let mut check = |job: ModelJob, expected: &[&str]| {
        let message = refused(&mut world, job);
        assert!(expected.iter().all(|part| message.contains(part)), "{message}");
    };
    check(rigid(5, wall), &["5 nodes", "cluster a has 2", "cluster b has 4"]);
    check(rigid(3, wall).on("a"), &["3 nodes", "cluster a has 2"]);
    check(rigid(1, wall).on("c"), &["no cluster 'c'", "a, b"]);
    check(rigid(1, wall).feature("gpu"), &["'gpu'", "none"]);
    check(rigid(1, wall).memory(Mebibytes(5000)), &["5000 MiB", "cluster a has 0"]);
    check(rigid(0, wall), &["at least one node"]);
    check(rigid(1, wall).tasks(0), &["one task"]);
    check(rigid(1, Span::ZERO), &["longer than zero"]);
    check(rigid(1, hours(24 * 366)), &["longest allowed"]);
    check(rigid(3, wall).tasks(2), &["2 tasks", "3 nodes"]);
    check(rigid(1, wall).tasks(2).cpus_per_task(3), &["2 tasks of 3 CPUs", "4 CPUs"]);
}

#[test]
fn a_system_without_nodes_says_how_to_get_one() {
    let mut world = WorldBuilder::default().build();
    assert_eq!(world.try_submit(rigid(1, mins(1))), Err(Refusal::NoNodes));
}

#[test]
fn a_full_system_takes_no_more_jobs_until_some_have_ended() {
    let mut world = two_clusters();
    world.set("max_jobs", "2");
    world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.submit(rigid(1, hours(1)));
    assert_eq!(world.try_submit(rigid(1, mins(1))), Err(Refusal::SystemFull { max: 2 }));
    world.after(mins(2));
    let job = world.submit(rigid(1, mins(1)));
    world.after(secs(1));
    world.expect(started(job));
}

#[test]
fn a_user_has_so_many_jobs_and_no_more_and_others_are_not_concerned() {
    let mut world = two_clusters();
    world.set("job_limit", "2");
    world.set("job_limit@eve", "0");
    world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.submit(rigid(1, hours(1)));
    assert_eq!(world.try_submit(rigid(1, mins(1))), Err(Refusal::JobLimit { used: 2, max: 2 }));
    world.submit(rigid(1, mins(1)).by("bob"));
    assert_eq!(world.try_submit(rigid(1, mins(1)).by("eve")), Err(Refusal::JobLimit { used: 0, max: 0 }));
    world.after(mins(2));
    world.submit(rigid(1, mins(1)));
    world.set("job_limit@ann", "none");
    world.submit(rigid(1, mins(1)));
}

#[test]
fn scripts_and_environments_of_a_user_take_so_much_and_no_more() {
    let mut world = two_clusters();
    world.set("script_limit", "1");
    let value = "x".repeat(600_000);
    // What several jobs share counts once.
    for _ in 0..3 {
        world.submit(rigid(1, hours(1)).runs(mins(1)).environment("LARGE", &value));
    }
    let another = |world: &mut World| world.try_submit(rigid(1, hours(1)).environment("OTHER", &value));
    assert_eq!(another(&mut world), Err(Refusal::ScriptLimit { used: 0, max: 1 }));
    world.submit(rigid(1, hours(1)).by("bob").environment("OTHER", &value));
    world.after(mins(3));
    another(&mut world).expect("the others are gone");
}

#[test]
fn a_user_submits_so_fast_and_no_faster() {
    let mut world = two_clusters();
    world.set("submit_limit", "2");
    // What a minute allows may come at once.
    for _ in 0..120 {
        world.submit(rigid(1, hours(1)).held());
    }
    assert_eq!(world.try_submit(rigid(1, mins(1))), Err(Refusal::SubmitLimit { max: 2, wait: Span::from_millis(500) }));
    world.submit(rigid(1, hours(1)).by("bob").held());
    world.after(secs(1));
    world.submit(rigid(1, hours(1)).held());
    world.submit(rigid(1, hours(1)).held());
    assert!(matches!(world.try_submit(rigid(1, mins(1))), Err(Refusal::SubmitLimit { .. })));
    world.set("submit_limit@ann", "none");
    world.submit(rigid(1, hours(1)).held());
}

#[test]
fn nobody_touches_the_job_of_another_but_an_admin() {
    let mut world = two_clusters();
    let job = world.submit(rigid(1, hours(1)).by("ann"));
    let held = world.submit(rigid(1, hours(1)).by("ann").held());
    world.after(secs(1));
    let bob = user("bob");
    let not_yours = |job| Err(Refused::from(&Refusal::NotYourJob { job, owner: "ann".to_owned() }));
    assert_eq!(world.on_job(&bob, job, |select| Call::Cancel { select }), not_yours(job));
    assert_eq!(world.on_job(&bob, job, |select| Call::Signal { select, signal: 9 }), not_yours(job));
    assert_eq!(world.on_job(&bob, held, |select| Call::Release { select }), not_yours(held));
    assert_eq!(world.on_job(&bob, held, |select| Call::set_priority(select, -1)), not_yours(held));
    world.after(secs(5));
    world.expect(started(job));
    world.cancel(job);
}

#[test]
fn all_means_ones_own_and_for_an_admin_everybodys() {
    let mut world = two_clusters();
    let hers = world.submit(rigid(1, hours(1)).by("ann"));
    let his = world.submit(rigid(1, hours(1)).by("bob"));
    let cancel = |world: &mut World, who| match world.ask(&who, Call::Cancel { select: Select::All }) {
        Ok(Answer::Jobs { done, .. }) => done,
        other => panic!("not an answer about jobs: {other:?}"),
    };
    world.order_cancel(his);
    world.order_cancel(hers);
    assert_eq!(cancel(&mut world, user("bob")), [his]);
    assert_eq!(cancel(&mut world, admin()), [hers]);
    world.after(secs(5));
    assert_eq!(world.ask(&user("bob"), Call::Cancel { select: Select::Last }), Err(Refusal::NoJobs));
}

#[test]
fn what_a_job_is_made_of_is_shown_to_its_owner_and_to_admins_only() {
    let mut world = two_clusters();
    let mut job = rigid(1, hours(1)).by("ann");
    Arc::make_mut(&mut job.submission.execution.environment).0.push(("PASSWORD".to_owned(), "sesame".to_owned()));
    job.submission.labels.comment = "secret".to_owned();
    let job = world.submit(job);
    let sees = |world: &mut World, who| {
        let call = Call::Query(Query::Job(Select::Ids(vec![job])));
        format!("{:?}", world.ask(&who, call).expect("everybody may ask"))
    };
    for who in [user("ann"), admin()] {
        let text = sees(&mut world, who);
        assert!(text.contains("sesame") && text.contains("secret"), "{text}");
    }
    let text = sees(&mut world, user("bob"));
    assert!(!text.contains("sesame") && !text.contains("secret"), "{text}");
}

#[test]
fn only_an_admin_steers_the_system() {
    let mut world = two_clusters();
    let nodes = || vec!["a1".to_owned()];
    let calls = [
        Call::Set { key: "fair_start".to_owned(), value: "1s".to_owned() },
        Call::Drain { nodes: nodes(), reason: "mine".to_owned() },
        Call::Down { nodes: nodes(), reason: "mine".to_owned() },
        Call::Resume { nodes: nodes() },
        Call::Remove { nodes: nodes() },
        Call::RevokeToken { id: "x".to_owned() },
        Call::Query(Query::Audit),
        Call::Query(Query::Tokens),
        Call::Query(Query::Certificates),
    ];
    for call in calls {
        let answer = world.ask(&user("ann"), call.clone());
        assert!(matches!(answer, Err(Refusal::NotAllowed { .. })), "{call:?}: {answer:?}");
    }
}

#[test]
fn a_change_of_settings_is_durable_and_audited() {
    let mut world = two_clusters();
    world.set("fair_start", "10s");
    world.after(mins(1));
    world.set("fair_start", "1m");
    // What is set to what it is already is no change.
    world.set("fair_start", "60s");
    world.bounce_server();
    let Answer::Audit(changes) = world.admin(Call::Query(Query::Audit)) else { panic!("not the audit") };
    // Beside the nodes that have joined.
    let changes: Vec<_> = changes.into_iter().filter(|change| change.by == "root").collect();
    let texts: Vec<String> =
        changes.iter().map(|change| format!("{} {}→{}", change.subject, change.old, change.new)).collect();
    assert_eq!(texts, ["fair_start 0s→10s", "fair_start 10s→1m"]);
    assert_eq!(changes[1].at.since(changes[0].at), mins(1));
    let Answer::Settings(settings) = world.admin(Call::Query(Query::Settings)) else { panic!("not the settings") };
    assert_eq!(settings.len(), KEYS.len());
    assert!(settings.contains(&("fair_start".to_owned(), "1m".to_owned())));
}

#[test]
fn a_setting_that_makes_no_sense_is_refused_and_changes_nothing() {
    let mut world = two_clusters();
    let before = world.state().settings().clone();
    for (key, value) in [("fair_strat", "1s"), ("fair_start", "soon"), ("lost_policy", "shrug"), ("max_jobs", "0")] {
        let call = Call::Set { key: key.to_owned(), value: value.to_owned() };
        let answer = world.ask(&admin(), call);
        assert!(matches!(answer, Err(Refusal::Setting(_))), "{key}: {answer:?}");
    }
    assert_eq!(*world.state().settings(), before);
}
