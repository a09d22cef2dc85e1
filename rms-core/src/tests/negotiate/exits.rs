//! An application that reports that it has left nodes has some time for its processes there to end; one that is forced
//! to leave has not.

use negotiation::{Action, Direction, Phase};
use rms_api::Call;
use rms_api::call::Select;
use rms_api::desired::Aim;
use rms_model::{JobId, NodeId, OnResize, Outcome, Span};

use super::{Scene, malleable, nodes};

/// Returns what the agent of a node is to do about a job.
fn aim(scene: &mut Scene, node: u32, job: JobId) -> Aim {
    let desired = scene.world.rms.context.desired(NodeId(node));
    desired.jobs.iter().find(|wanted| wanted.job == job).expect("it is still there").aim
}

fn patience(scene: &mut Scene, node: u32, job: JobId) -> Span {
    match aim(scene, node, job) {
        Aim::End { patience, .. } => patience,
        Aim::Run => panic!("it is to run on"),
    }
}

fn on_four(on_resize: OnResize) -> (Scene, JobId) {
    let mut scene = Scene::new(4);
    scene.set("exit_grace", "7s");
    let job = scene.submit(4, Span::from_hours(1), Some(malleable(1, 4, on_resize)));
    scene.disconnect(&["n3", "n4"]);
    (scene, job)
}

#[test]
fn processes_may_end_by_themselves_where_the_application_has_let_go() {
    let (mut scene, job) = on_four(OnResize::Negotiates);
    scene.attach(job).expect("it may");
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Shrink, item);
    scene.app_acts(job, id, Action::Commit([NodeId(3), NodeId(4)].into()));
    assert_eq!(patience(&mut scene, 4, job), Span::from_secs(7));
    scene.restart();
    assert_eq!(patience(&mut scene, 4, job), Span::from_secs(7), "that is remembered");
    scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("it may be");
    assert_eq!(patience(&mut scene, 4, job), Span::ZERO, "who is ended has no more time for it");
    scene.is_durable();
}

/// Its supervisors end it on their own, and it may ignore TERM for its grace time.
#[test]
fn the_end_of_the_wall_time_is_told_before_the_processes_are_gone() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, Span::from_mins(10), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    scene.after(Span::from_mins(9));
    let item = scene.item(job, 9);
    let id = scene.app_opens(job, Direction::Grow, item);
    scene.after(Span::from_mins(1));
    assert_eq!(scene.apps[&job].ended, None);
    scene.after(Span::from_millis(1));
    assert_eq!(scene.apps[&job].ended, Some(Outcome::WallTime));
    assert!(matches!(scene.phase(job, id), Phase::Ended(_)));
    assert_eq!((scene.n_free(), scene.held(job).len()), (2, 2), "nothing is held for it, and it has its nodes");
    assert!(scene.attach(job).is_err(), "it will not be there for long");
    scene.is_durable();
}

#[test]
fn who_confirms_that_it_has_left_has_that_time_too() {
    let (mut scene, job) = on_four(OnResize::Signal(10));
    scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!(aim(&mut scene, 4, job), Aim::Run, "it was only asked to leave");
    scene.call(Call::ResizeDone { job, generation: 2 }).expect("it may");
    assert_eq!(patience(&mut scene, 4, job), Span::from_secs(7));
}

#[test]
fn workers_and_who_breaks_a_promise_are_told_at_once() {
    let (mut scene, job) = on_four(OnResize::Workers);
    scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!(patience(&mut scene, 4, job), Span::ZERO, "workers go when they are told");

    let (mut scene, job) = on_four(OnResize::Negotiates);
    scene.set("release_grace", "10s");
    scene.attach(job).expect("it may");
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Shrink, item);
    scene.after(Span::from_secs(30));
    assert!(matches!(scene.phase(job, id), Phase::Ended(_)), "its last nodes are taken");
    assert_eq!(patience(&mut scene, 4, job), Span::ZERO);
}
