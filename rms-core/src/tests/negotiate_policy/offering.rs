//! Which applications the server offers nodes for which no job waits.

use negotiation::{Direction, Item, Phase, Resource};
use rms_api::call::{Nodes, Shape, Submission};
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::{JobId, Sizes, Span, Speedup, Time};

use super::super::negotiate::nodes;
use super::{Scene, hour, speaking, told};

/// 002 (c): when a short job ends, the application that had four of the eight nodes is offered the others.
#[test]
fn when_a_short_job_ends_its_nodes_are_offered_to_a_malleable_one() {
    let mut scene = Scene::offering(8);
    let job = scene.submit(4, hour(), Some(speaking(1, 16, Sizes::PowerOfTwo)));
    let short = scene.rigid(4, Span::from_mins(1));
    scene.attach(job).expect("it may");
    assert_eq!(scene.offer_to(job), None, "nothing is idle");
    scene.cancel(short);
    let offer = scene.offer_to(job).expect("it is offered the four");
    assert_eq!((scene.n_proposed(job, offer), scene.n_free()), (4, 0), "they are kept for it");
    scene.accepts(job, offer);
    assert_eq!(scene.n_held(job), 8);
    scene.is_durable();
}

/// 002 (d): an application that needs a power of two and asks for 24 of which 15 are free gets 8.
#[test]
fn of_fifteen_nodes_an_application_takes_the_eight_that_it_can_use() {
    let mut scene = Scene::offering(23);
    let job = scene.submit(8, hour(), Some(super::super::negotiate::malleable(8, 8, rms_model::OnResize::Workers)));
    let ask = Ask { sizes: Sizes::PowerOfTwo, ..super::super::negotiate::nodes(Direction::Grow, 24, 1) };
    let ticket = scene.ask(job, ask);
    let outcome = scene.outcome(ticket).expect("it is ready");
    assert!(matches!(outcome, AskOutcome::Ready { quantity: 8, .. }), "{outcome:?}");
    assert_eq!((scene.n_held(job), scene.n_free()), (16, 7));
}

#[test]
fn three_jobs_share_what_is_idle_equally() {
    let mut scene = Scene::offering(15);
    scene.set("offer_idle", "never");
    let blocker = scene.rigid(9, hour());
    let three = [1, 2, 3].map(|_| scene.submit(2, hour(), Some(told(1, 15, Sizes::Any))));
    scene.set("offer_idle", "equal_share");
    scene.cancel(blocker);
    assert_eq!(three.map(|job| scene.n_held(job)), [5, 5, 5]);
}

#[test]
fn shares_limits_and_rules_are_settings() {
    let grown = |settings: &[(&str, &str)]| {
        let mut scene = Scene::offering(14);
        scene.set("offer_idle", "never");
        let blocker = scene.rigid(8, hour());
        let steep = Speedup(vec![(1, 1000), (20, 18_000)]);
        let flat = Speedup(vec![(1, 1000), (4, 2000), (20, 2100)]);
        let [ada, bob] = [("ada", steep, 1), ("bob", flat, 3)].map(|(user, speedup, least)| {
            scene.job_of(user, 3, |submission| {
                let told = rms_model::Malleable { speedup, ..told(least, 20, Sizes::Any) };
                submission.malleable = Some(told);
            })
        });
        for (key, value) in settings {
            scene.set(key, value);
        }
        scene.cancel(blocker);
        (scene.n_held(ada), scene.n_held(bob))
    };
    assert_eq!(grown(&[]), (3, 3));
    assert_eq!(grown(&[("offer_idle", "equal_share")]), (7, 7));
    assert_eq!(grown(&[("share@ada", "3"), ("offer_idle", "equal_share")]), (9, 5));
    assert_eq!(grown(&[("growth_limit@ada", "1"), ("offer_idle", "equal_share")]), (4, 10));
    assert_eq!(grown(&[("growth_limit", "2"), ("offer_idle", "equal_share")]), (5, 5));
    assert_eq!(grown(&[("offer_idle", "fewest_above_minimum")]), (6, 8));
    assert_eq!(grown(&[("offer_idle", "efficiency")]), (11, 3));
}

/// No nodes are gathered for it, and what is offered is back before it starts.
#[test]
fn idle_nodes_are_offered_although_a_job_waits_for_a_licence() {
    let mut scene = Scene::offering(8);
    scene.set("licences@c", "matlab:1");
    let matlab = |submission: &mut Submission| {
        submission.resources.licences = "matlab:1".parse().expect("licences");
        submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_hours(9)) }];
    };
    let holder = scene.job_of("ada", 2, matlab);
    let waits = scene.job_of("bob", 2, matlab);
    let job = scene.submit(2, hour(), Some(told(1, 8, Sizes::Any)));
    scene.after(Span::from_secs(1));
    assert!(scene.is_started(holder) && !scene.is_started(waits));
    assert_eq!(scene.n_held(job), 6);
}

#[test]
fn what_was_declined_is_offered_again_later_or_when_there_is_more() {
    let mut scene = Scene::offering(8);
    let other = scene.rigid(2, hour());
    let job = scene.submit(4, hour(), Some(speaking(1, 16, Sizes::Any)));
    scene.attach(job).expect("it may");
    scene.after(Span::from_secs(1));
    let offer = scene.offer_to(job).expect("two are idle");
    scene.declines(job, offer);
    let shorter = scene.app_opens(job, Direction::Shrink, Item::up_to(Resource::Time, 3_600_000, 1000));
    assert!(matches!(scene.app_phase(job, shorter), Phase::Applied | Phase::Ended(_)));
    scene.after(Span::from_secs(1));
    assert_eq!(scene.offer_to(job), None, "it gives back none for which others would be offered");
    scene.after(Span::from_secs(58));
    assert_eq!(scene.offer_to(job), None, "it has just declined two");
    scene.after(Span::from_secs(2));
    let again = scene.offer_to(job).expect("a minute is over");
    assert_eq!(scene.n_proposed(job, again), 2);
    scene.declines(job, again);
    assert_eq!(scene.offer_to(job), None);
    scene.cancel(other);
    let more = scene.offer_to(job).expect("four are more than two");
    assert_eq!(scene.n_proposed(job, more), 4);
}

#[test]
fn an_offer_that_nobody_answers_lapses_and_its_nodes_are_free_again() {
    let mut scene = Scene::offering(4);
    let job = scene.submit(2, hour(), Some(speaking(1, 4, Sizes::Any)));
    scene.attach(job).expect("it may");
    scene.after(Span::from_secs(1));
    assert!(scene.offer_to(job).is_some());
    assert_eq!(scene.n_free(), 0);
    scene.after(Span::from_secs(30));
    assert_eq!((scene.n_free(), scene.n_held(job)), (2, 2));
}

#[test]
fn nothing_is_offered_to_who_does_not_listen_or_is_about_to_end() {
    let mut scene = Scene::offering(8);
    let silent = scene.submit(2, hour(), Some(speaking(1, 8, Sizes::Any)));
    let short = scene.submit(2, Span::from_secs(20), Some(told(1, 8, Sizes::Any)));
    scene.after(Span::from_secs(10));
    assert_eq!((scene.n_held(silent), scene.n_held(short), scene.n_free()), (2, 2, 4));
}

#[test]
fn who_gives_nodes_back_by_himself_is_not_offered_them_at_once() {
    let mut scene = Scene::offering(4);
    let job = scene.submit(4, hour(), Some(told(1, 4, Sizes::Any)));
    let ticket = scene.ask(job, super::super::negotiate::nodes(Direction::Shrink, 2, 1));
    assert!(scene.outcome(ticket).is_some());
    assert_eq!(scene.n_held(job), 2);
    scene.after(Span::from_secs(50));
    assert_eq!(scene.n_held(job), 2);
    scene.after(Span::from_secs(20));
    assert_eq!(scene.n_held(job), 4);
}

/// The head of the queue needs six nodes as soon as the rigid job ends; until then two more would be in its way.
#[test]
fn no_offer_delays_who_waits() {
    let mut scene = Scene::offering(8);
    scene.set("shrink_for", "never");
    scene.set("offer_idle", "never");
    scene.rigid(4, Span::from_mins(10));
    let long = scene.submit(2, hour(), Some(told(1, 8, Sizes::Any)));
    let waits = scene.rigid(6, Span::from_mins(10));
    scene.set("offer_idle", "equal_share");
    scene.after(Span::from_secs(1));
    assert!(!scene.is_started(waits));
    assert_eq!((scene.n_held(long), scene.n_free()), (2, 2), "two more would keep it waiting for an hour");
    scene.set("delay_tolerance", "1h");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.n_held(long), 4, "which is now allowed");
}

#[test]
fn who_ends_before_it_matters_may_have_them_meanwhile() {
    let mut scene = Scene::offering(8);
    scene.set("shrink_for", "never");
    scene.rigid(4, Span::from_mins(10));
    let short = scene.submit(2, Span::from_mins(9), Some(told(1, 8, Sizes::Any)));
    scene.rigid(6, Span::from_mins(10));
    scene.after(Span::from_secs(1));
    assert_eq!(scene.n_held(short), 4);
}

/// Enough nodes are free for the growth, which would delay the job that waits; none are gathered for it.
#[test]
fn idle_nodes_are_offered_although_a_growth_waits_that_would_delay_a_job() {
    let mut scene = Scene::offering(8);
    scene.set("offer_idle", "never");
    scene.rigid(4, Span::from_mins(10));
    let long = scene.submit(1, hour(), Some(speaking(1, 8, Sizes::Any)));
    let short = scene.submit(1, Span::from_mins(9), Some(told(1, 8, Sizes::Any)));
    scene.rigid(7, Span::from_mins(10));
    let mut ask = nodes(Direction::Grow, 2, 2);
    ask.wait = Span::from_mins(30);
    let ticket = scene.ask(long, ask);
    scene.set("offer_idle", "equal_share");
    scene.after(Span::from_secs(1));
    assert_eq!((scene.outcome(ticket), scene.n_held(short)), (None, 3));
}

/// Each node that is lent for longer delays the waiting job by two minutes or not at all; the tolerance allows one such
/// delay.
#[test]
fn many_small_delays_are_tolerated_no_more_than_a_great_one() {
    let mut scene = Scene::offering(12);
    scene.set("shrink_for", "never");
    scene.set("offer_idle", "never");
    scene.rigid(4, Span::from_mins(10));
    let lasting = |scene: &mut Scene, mins| scene.rigid(1, Span::from_mins(mins));
    let growing: Vec<JobId> = [12, 14, 16, 18].map(|mins| lasting(&mut scene, mins)).into();
    let waits = scene.rigid(8, Span::from_mins(10));
    scene.set("delay_tolerance", "3m");
    let undelayed = starts_at(&mut scene, waits);
    for job in growing {
        scene.ask(job, super::super::negotiate::nodes(Direction::Grow, 1, 1));
        let late = starts_at(&mut scene, waits).since(undelayed);
        assert!(late <= Span::from_mins(3), "{late} after {job}");
    }
    assert_eq!(starts_at(&mut scene, waits).since(undelayed), Span::from_mins(2), "one of them was allowed");
}

#[test]
fn who_asks_for_a_little_more_time_again_and_again_gets_no_more_than_at_once() {
    let mut scene = Scene::offering(2);
    scene.set("shrink_for", "never");
    let runs = scene.rigid(2, Span::from_mins(10));
    let waits = scene.rigid(2, Span::from_mins(10));
    scene.set("delay_tolerance", "5m");
    let undelayed = starts_at(&mut scene, waits);
    let minute = Span::from_mins(1).as_millis().unsigned_abs();
    let ask = Ask { what: Asked::Time, ..super::super::negotiate::nodes(Direction::Grow, minute, minute) };
    let mut granted = 0;
    for _ in 0..12 {
        let ticket = scene.ask(runs, ask.clone());
        granted += u32::from(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    }
    assert_eq!(granted, 5);
    assert_eq!(starts_at(&mut scene, waits).since(undelayed), Span::from_mins(5));
}

fn starts_at(scene: &mut Scene, job: JobId) -> Time {
    let now = scene.world.now;
    let plan = scene.world.rms.estimates(now);
    let placement = plan.placements.iter().find(|placement| placement.job == job).expect("it waits");
    placement.outcome.estimate(now).expect("it can start some time")
}
