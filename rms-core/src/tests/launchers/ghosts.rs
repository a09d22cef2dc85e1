//! Ghosts that are kept only while a waiting launcher could use their nodes.

use rms_api::answer::Answer;
use rms_api::call::Select;

use super::*;

fn fair(rule: &str) -> Launchers {
    let mut launchers = Launchers::new();
    launchers.set("fair_start", "10s");
    launchers.set("ghosts", rule);
    launchers
}

fn n_free(launchers: &Launchers, cluster: ClusterId) -> usize {
    launchers.world.rms.state().n_free(cluster)
}

#[test]
fn a_ghost_that_nobody_wants_is_none_and_one_that_a_launcher_waits_for_stays() {
    for (rule, waits, n_kept) in [("always", false, 4), ("if_wanted", false, 0), ("if_wanted", true, 4)] {
        let mut launchers = fair(rule);
        let ends = launchers.waiting(on_a(4, 100));
        launchers.accept(ends, 1);
        if waits {
            launchers.waiting(on_a(4, 50));
        }
        launchers.finish(ends, 1, 0);
        assert_eq!(4 - n_free(&launchers, A), n_kept, "{rule}, {waits}");
        if n_kept > 0 {
            launchers.after(9);
            assert_eq!(n_free(&launchers, A), 0);
            launchers.after(1);
            assert_eq!(n_free(&launchers, A) == 0, waits, "the one that waited has started");
        }
    }
}

#[test]
fn who_cancels_all_of_his_jobs_names_no_ghost() {
    let mut launchers = fair("always");
    let ends = launchers.waiting(on_a(2, 100));
    launchers.accept(ends, 1);
    let waits = launchers.waiting(on_a(4, 50));
    launchers.finish(ends, 1, 0);
    let mut cancel = |select: Select| {
        let who = Identity::new(Role::User, "ann").expect("a plain name");
        let effects = launchers.event(Event::Called { ticket: Ticket(1), who, call: Call::Cancel { select } });
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { answer: Ok(Answer::Jobs { done, refused }), .. } => Some((done, refused.len())),
            _ => None,
        });
        answer.expect("a list of jobs")
    };
    assert_eq!(cancel(Select::All), (vec![waits], 0));
    assert_eq!(cancel(Select::Ids(vec![ends])), (Vec::new(), 1), "who names it hears why not");
}

#[test]
fn a_ghost_leaves_when_the_last_launcher_that_could_use_it_has_left() {
    let mut launchers = fair("if_wanted");
    let ends = launchers.waiting(Request { nodes: BTreeMap::from([(A, 4), (B, 2)]), wall: hour() });
    launchers.accept(ends, 1);
    let on_b_alone = Filter { clusters: BTreeSet::from(["b".to_owned()]), ..Filter::default() };
    let filtered = launchers.subscribe_with(on_b_alone).expect("it may");
    let (first, second) = (launchers.waiting(on_a(2, 50)), launchers.subscribe());
    launchers.finish(ends, 1, 0);
    assert_eq!((n_free(&launchers, A), n_free(&launchers, B)), (0, 0));
    launchers.finish(first, 1, 0);
    assert_eq!((n_free(&launchers, A), n_free(&launchers, B)), (0, 0), "one has not even chosen yet");
    launchers.finish(second, 0, 0);
    assert_eq!((n_free(&launchers, A), n_free(&launchers, B)), (4, 0), "who is left sees b alone");
    let mut step = crate::Step::default();
    launchers.world.rms.context.end_unwanted_ghosts(launchers.world.now, &mut step);
    assert!(step.is_empty(), "it has left a: {step:?}");
    launchers.finish(filtered, 0, 0);
    assert_eq!((n_free(&launchers, A), n_free(&launchers, B)), (4, 2));
    assert_eq!(launchers.state(ends), None, "nothing is left of it");
}

fn hour() -> Span {
    Span::from_secs(3600)
}
