//! Tests of the depth that follows from durations of passes, by numbers alone and in a server.

use rms_api::answer::{Reason, Status};
use rms_api::{Answer, Call, Query};
use rms_model::JobId;

use super::*;
use crate::tests::World;
use crate::{Event, Fact};

/// Runs passes over a queue whose cost in microseconds depends on the number considered, until the depth settles;
/// returns the depths.
fn comes_to(n_queued: usize, beginning: u32, is_whole: bool, cost: impl Fn(u64) -> u64) -> Vec<u32> {
    let (mut walks, mut depths) = (Walks::default(), vec![beginning]);
    for _ in 0..40 {
        let depth = depths[depths.len() - 1];
        walks.begin(n_queued, Some(depth), is_whole);
        let n_considered = walks.latest.expect("it has begun").n_considered;
        let took = Duration::from_micros(cost(u64::from(n_considered)));
        match walks.took(Some(depth), took, Span::from_millis(100)) {
            Some(next) => depths.push(next),
            None => return depths,
        }
    }
    panic!("it never rests: {depths:?}");
}

#[test]
fn it_follows_what_passes_cost_and_rests() {
    assert_eq!(comes_to(100_000, 1000, true, |n| 5 * n), [1000, 2000, 4000, 8000]);
    assert_eq!(comes_to(100_000, 8000, true, |n| 40 * n), [8000, 4000, 2000], "as long as is allowed is not too long");
    assert_eq!(comes_to(100_000, 8000, true, |n| 50 * n), [8000, 4000, 2000]);
    assert_eq!(comes_to(100_000, 8000, true, |n| 30 * n), [8000, 4000, 2500]);
    // A cost that grows with the square settles as well, and so does no cost.
    assert_eq!(comes_to(100_000, 1000, true, |n| n * n / 50), [1000, 2000]);
    assert_eq!(comes_to(10_000, 1000, true, |_| 0), [1000, 2000, 4000, 8000, 16_000], "to the end of the queue");
}

#[test]
fn it_is_never_below_the_floor_and_does_not_grow_for_nobody() {
    assert_eq!(comes_to(100_000, 1000, true, |n| 10_000 * n), [1000, 500, 250, 200]);
    assert_eq!(comes_to(900, 1000, true, |n| n), [1000]);
}

/// Once the duration of a whole walk is known, walks for starts only do not raise the depth beyond what whole ones
/// allow.
#[test]
fn quick_walks_do_not_say_what_slow_ones_can() {
    let bound = Span::from_millis(100);
    let mut walks = Walks::default();
    walks.begin(100_000, Some(1000), true);
    assert_eq!(walks.took(Some(1000), Duration::from_millis(60), bound), None);
    walks.begin(100_000, Some(1000), false);
    assert_eq!(walks.took(Some(1000), Duration::from_micros(10), bound), Some(1250));
    walks.begin(100_000, Some(1250), false);
    assert_eq!(walks.took(Some(1250), Duration::from_micros(10), bound), None);
    // A plan for readers between two passes counts as whole.
    walks.begin(100_000, Some(1250), false);
    walks.begin(100_000, Some(1250), true);
    walks.begin(100_000, Some(1250), false);
    assert_eq!(walks.took(Some(1250), Duration::from_millis(200), bound), Some(625));
    walks.begin(100_000, Some(625), false);
    assert_eq!(walks.took(Some(625), Duration::from_micros(10), bound), None);
    assert_eq!(comes_to(100_000, 1000, false, |_| 10)[..3], [1000, 2000, 4000], "where none is known");
}

/// The duration of the wide one is not taken for that of the narrow one.
#[test]
fn a_wide_walk_before_a_narrow_one_lowers_no_depth() {
    let mut walks = Walks::default();
    walks.begin(1000, Some(1000), true);
    walks.begin(10, Some(1000), false);
    assert_eq!(walks.took(Some(1000), Duration::from_millis(60), Span::from_millis(100)), None);
    walks.begin(100_000, Some(1000), false);
    assert_eq!(walks.took(Some(1000), Duration::from_micros(10), Span::from_millis(100)), Some(1250));
}

fn with_queue_of(n_waiting: u32) -> World {
    let mut world = World::new();
    world.node("n1", &[]);
    world.set("queue_depth", "auto");
    (0..=n_waiting).for_each(|_| _ = world.submit(1, 60, &[]));
    world
}

fn status(world: &mut World) -> Status {
    match world.ask(Call::Query(Query::Status)) {
        Answer::Status(status) => status,
        other => panic!("no status: {other:?}"),
    }
}

fn depth(world: &mut World) -> Option<u32> {
    status(world).queue_depth
}

fn passes(world: &mut World) -> u64 {
    status(world).n_passes
}

#[test]
fn a_server_says_which_depth_it_has_chosen_and_who_is_beyond_it() {
    let mut world = with_queue_of(300);
    assert_eq!(depth(&mut world), Some(1000));
    for (took_ms, expected) in [(5000, 500), (5000, 250), (5000, 200), (5000, 200)] {
        world.now += Span::from_secs(10);
        world.line(JobId(2));
        world.event(Event::PassTook { took: Duration::from_millis(took_ms) });
        assert_eq!(depth(&mut world), Some(expected));
    }
    assert_eq!(world.line(JobId(301)).reason, Some(Reason::BeyondDepth { depth: 200, position: 300 }));
    assert!(matches!(world.line(JobId(201)).reason, Some(Reason::Blocked { .. })));
    let n_passes = passes(&mut world);
    world.event(Event::PassTook { took: Duration::from_micros(1) });
    assert_eq!(depth(&mut world), Some(200), "nothing was planned since, so that nothing was measured");
    world.now += Span::from_secs(10);
    world.line(JobId(2));
    world.event(Event::PassTook { took: Duration::from_micros(1) });
    assert_eq!(depth(&mut world), Some(400));
    assert_eq!(passes(&mut world), n_passes + 1, "there is one for those who were beyond it");
    world.now += Span::from_secs(10);
    assert!(matches!(world.line(JobId(301)).reason, Some(Reason::Blocked { .. })));
}

/// A fixed depth stays, however long passes take. A depth chosen before applies again after it, and after a restart.
#[test]
fn only_auto_is_the_servers_to_choose() {
    let mut world = with_queue_of(300);
    world.event(Event::PassTook { took: Duration::from_secs(5) });
    world.set("queue_depth", "700");
    world.event(Event::PassTook { took: Duration::from_secs(5) });
    assert_eq!(depth(&mut world), Some(700));
    world.set("queue_depth", "0");
    assert_eq!(depth(&mut world), None);
    world.set("queue_depth", "auto");
    assert_eq!(depth(&mut world), Some(500));
    let state = world.rms.state().clone();
    let restored = crate::Rms::restore(crate::Config::default(), Some(state), []).expect("it fits");
    assert_eq!(restored.state().depth(), Some(500));
    let mut restored = restored;
    let step = restored.handle(world.now, Event::PassTook { took: Duration::from_secs(5) });
    assert!(!step.has_facts(), "it has made no pass yet");
    let later =
        crate::Rms::restore(crate::Config::default(), None, [Fact::DepthChosen { depth: 400 }]).expect("it fits");
    assert_eq!(later.state().own_depth, Some(400));
}
