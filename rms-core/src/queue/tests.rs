//! Tests of the queue: a submission is admitted as a whole or refused, and waits until it is held, released or
//! signalled.

use rms_model::{NodeId, Span};

use super::*;
use crate::tests::fixture::{Fixture, NOW, admin, outcome, user};

impl Fixture {
    fn queue(&mut self) -> Queue<'_> {
        Queue {
            jobs: Jobs { context: &mut self.context, negotiators: &mut self.negotiators },
            submit_rates: &mut self.submit_rates,
        }
    }
}

fn submission(n_nodes: u32) -> Submission {
    test_kit::submission(n_nodes, Span::from_hours(1))
}

#[test]
fn a_submission_becomes_a_job_that_has_sent_its_request_and_wants_a_pass() {
    let (mut fixture, mut step) = (Fixture::with_nodes(2), Step::default());
    let answer = fixture.queue().submit(NOW, &mut step, &user("ann"), submission(2)).expect("it is possible");
    let Answer::Submitted { job } = answer else { panic!("{answer:?}") };
    let (facts, effects) = outcome(step);
    assert!(matches!(facts[..], [Fact::JobSubmitted { .. }, Fact::RequestSent { .. }]), "{facts:?}");
    assert!(effects.is_empty() && fixture.context.passes.wanted);
    assert_eq!(fixture.state().jobs()[&job].spec.owner.0, "ann");
}

#[test]
fn what_is_impossible_or_only_a_test_leaves_nothing_behind() {
    let (mut fixture, mut step) = (Fixture::with_nodes(2), Step::default());
    let refused = fixture.queue().submit(NOW, &mut step, &user("ann"), submission(3)).expect_err("there are two");
    assert!(refused.to_string().contains("cluster c has 2"), "{refused}");
    let test_only = Submission { test_only: true, ..submission(1) };
    let answer = fixture.queue().submit(NOW, &mut step, &user("ann"), test_only);
    assert!(matches!(answer, Ok(Answer::WouldStart { at: Some(NOW), now: Some(NOW), .. })), "{answer:?}");
    let agent = Identity::new(Role::Agent, "n1").expect("a plain name");
    fixture.queue().submit(NOW, &mut step, &agent, submission(1)).expect_err("agents submit nothing");
    assert!(step.is_empty() && !fixture.context.passes.wanted);
}

#[test]
fn who_has_held_a_job_may_release_it_and_an_admin_may_always() {
    let mut fixture = Fixture::with_nodes(1);
    let job = fixture.waiting("ann", 1, |_| {});
    let mut step = Step::default();
    fixture.queue().hold(NOW, &mut step, &admin(), job).expect("it waits");
    fixture.queue().hold(NOW, &mut step, &admin(), job).expect_err("it is held already");
    fixture.queue().release(NOW, &mut step, &user("ann"), job).expect_err("the hold is an admin's");
    fixture.queue().release(NOW, &mut step, &admin(), job).expect("an admin may");
    fixture.queue().hold(NOW, &mut step, &user("ann"), job).expect("it waits again");
    fixture.queue().release(NOW, &mut step, &user("ann"), job).expect("the hold is hers");
    let (facts, _) = outcome(step);
    let names = facts.iter().map(|fact| match fact {
        Fact::JobHeld { .. } => "held",
        Fact::JobReleased { .. } => "released",
        Fact::RequestSent { .. } => "request",
        _ => "other",
    });
    assert_eq!(names.collect::<Vec<_>>(), ["held", "released", "request", "held", "released", "request"]);
}

#[test]
fn the_hold_of_an_admin_takes_the_place_of_the_users() {
    let mut fixture = Fixture::with_nodes(1);
    let job = fixture.waiting("ann", 1, |_| {});
    let mut step = Step::default();
    fixture.queue().hold(NOW, &mut step, &user("ann"), job).expect("it waits");
    fixture.queue().hold(NOW, &mut step, &user("ann"), job).expect_err("she holds it already");
    fixture.queue().hold(NOW, &mut step, &admin(), job).expect("this one is stronger");
    fixture.queue().hold(NOW, &mut step, &user("ann"), job).expect_err("hers would be weaker");
    let other = Identity::new(Role::Admin, "other").expect("a plain name");
    fixture.queue().hold(NOW, &mut step, &other, job).expect_err("an admin holds it already");
    fixture.queue().release(NOW, &mut step, &user("ann"), job).expect_err("the hold is an admin's");
    fixture.queue().release(NOW, &mut step, &other, job).expect("an admin may");
}

#[test]
fn a_job_that_is_done_cannot_be_held() {
    let mut world = crate::tests::World::new();
    world.node("n1", &[]);
    world.set("fair_start", "1h");
    let job = world.submit(1, 3600, &[]);
    world.ask(rms_api::Call::Cancel { select: Select::Ids(vec![job]) });
    let report = |status| rms_api::desired::JobReport { job, run: rms_model::Run(1), status };
    let exit = rms_api::desired::NodeExit::Ordered;
    let ended = rms_api::desired::JobStatus::Ended { at: world.now, exit, usage: Default::default() };
    let report = rms_api::desired::NodeReport { jobs: vec![report(ended)], ..Default::default() };
    let refused =
        |world: &mut crate::tests::World| match world.ask(rms_api::Call::Hold { select: Select::Ids(vec![job]) }) {
            Answer::Jobs { refused, .. } => refused[0].1.message.clone(),
            other => panic!("no list of jobs: {other:?}"),
        };
    assert!(refused(&mut world).contains("is ending: only a waiting job"), "{}", refused(&mut world));
    world.event(crate::Event::AgentReported { name: "n1".to_owned(), report });
    assert!(refused(&mut world).contains("is done: only its ghost keeps"), "{}", refused(&mut world));
}

#[test]
fn a_signal_goes_to_each_node_of_a_started_job_and_is_no_fact() {
    let mut fixture = Fixture::with_nodes(2);
    let job = fixture.waiting("ann", 2, |_| {});
    let mut step = Step::default();
    fixture.queue().signal(&mut step, job, 10).expect_err("it waits");
    let run = fixture.start(job, &[NodeId(1), NodeId(2)]);
    fixture.queue().signal(&mut step, job, 65).expect_err("no signal");
    fixture.queue().signal(&mut step, job, 10).expect("it runs");
    let (facts, effects) = outcome(step);
    let to = |name: &str| Effect::Signal { node: name.to_owned(), job, run, signal: 10 };
    assert_eq!((facts, effects), (Vec::new(), vec![to("n1"), to("n2")]));
}

#[test]
fn of_several_jobs_those_are_done_that_are_the_callers() {
    let mut fixture = Fixture::with_nodes(1);
    let (hers, his) = (fixture.waiting("ann", 1, |_| {}), fixture.waiting("bob", 1, |_| {}));
    let (mut step, ann) = (Step::default(), user("ann"));
    let ids = Select::Ids(vec![his, hers]);
    let answer = fixture.queue().for_each(&ann, &ids, |queue, job| queue.hold(NOW, &mut step, &ann, job));
    let Ok(Answer::Jobs { done, refused }) = answer else { panic!("{answer:?}") };
    assert_eq!((done, refused[0].0, refused[0].1.kind.as_str()), (vec![hers], his, "not_your_job"));
    assert_eq!(outcome(step).0.len(), 1);
}
