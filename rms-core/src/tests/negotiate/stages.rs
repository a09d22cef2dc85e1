//! The negotiator of an application with a profile is told its stages, names what it frees, and negotiates about
//! nothing else.

use negotiation::{Direction, Message, SetRule, Statement};
use rms_api::answer::Answer;
use rms_api::negotiate::{Ask, Asked, Declared, Holding, Manner, NegotiatorCall};
use rms_api::{Call, Refusal};
use rms_model::{Evolving, ExpandLimit, Expansion, JobId, OnResize, Sizes, Span};

use super::{Scene, malleable, nodes};

/// Creates a scene with `release_grace`, so that the job can choose when its stage is over.
fn scene_in_stages(text: &str) -> (Scene, JobId) {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "5s");
    let stages = text.parse().expect("a profile");
    let expansion = Expansion { limit: ExpandLimit::NONE, compacting: false };
    let evolving = Evolving { stages, expansion, open: false };
    let mut submission = scene.world.submission();
    submission.evolving = Some(evolving);
    let Ok(Answer::Submitted { job }) = scene.call(Call::Submit(Box::new(submission))) else { panic!("not submitted") };
    assert!(scene.is_started(job));
    (scene, job)
}

fn holding(scene: &mut Scene, job: JobId) -> Holding {
    scene.app(job).holding.clone().expect("it was told")
}

fn sizes(holding: &Holding) -> Vec<u32> {
    holding.stages.iter().flat_map(|stages| stages.legs.iter().map(|leg| leg.nodes)).collect()
}

fn departing(holding: &Holding) -> Vec<&str> {
    holding.nodes.iter().filter(|node| node.is_departing).map(|node| node.name.as_str()).collect()
}

#[test]
fn who_attaches_hears_of_each_stage_and_names_what_it_frees() {
    let (mut scene, job) = scene_in_stages("1x10s,3x20s,2x10s");
    scene.attach(job).expect("it has announced its stages");
    assert_eq!(sizes(&holding(&mut scene, job)), [1, 3, 2]);
    let free = |scene: &mut Scene, name: &str| scene.negotiator_call(job, NegotiatorCall::Free(vec![name.to_owned()]));
    assert!(matches!(free(&mut scene, "n1"), Err(Refusal::WrongState { .. })), "its next stage is not smaller");
    scene.after(Span::from_secs(10));
    let second = holding(&mut scene, job);
    assert_eq!((second.generation, second.nodes.len(), sizes(&second)), (2, 3, vec![3, 2]));
    assert!(matches!(free(&mut scene, "n1"), Err(Refusal::WrongState { .. })), "its first node stays");
    free(&mut scene, "n2").expect("one is to go");
    assert_eq!(departing(&holding(&mut scene, job)), ["n2"]);
    // What the negotiator knows survives the server.
    scene.power_cut();
    scene.attach(job).expect("it may again");
    assert_eq!(departing(&holding(&mut scene, job)), ["n2"]);
    scene.after(Span::from_secs(20));
    assert_eq!(scene.held(job), [1, 3]);
    let third = holding(&mut scene, job);
    assert_eq!((third.generation, sizes(&third), departing(&third).len()), (3, vec![2], 0));
    scene.is_durable();
}

/// No negotiation with another application takes what a later stage needs: neither nodes, nor nodes for longer.
#[test]
fn what_was_promised_to_a_stage_is_given_to_nobody() {
    let hour = Span::from_hours(1);
    let malleable = || Some(malleable(1, 4, OnResize::Workers));
    for (duration, n_more) in [(None, 0), (Some(hour), 0), (Some(Span::from_secs(1)), 2)] {
        // Two nodes of four are nobody's, and the second stage needs them.
        let (mut scene, _) = scene_in_stages("1x10m,3x20m");
        scene.set("offer_valid", "1s");
        let grows = scene.submit(1, hour, malleable());
        let mut ask = nodes(Direction::Grow, 2, 1);
        ask.duration = duration;
        scene.ask(grows, ask);
        assert_eq!(scene.held(grows).len(), 1 + n_more, "{duration:?}");
    }
    let (mut scene, _) = scene_in_stages("1x10m,3x20m");
    scene.submit(1, hour, malleable());
    let longer = scene.submit(1, Span::from_mins(9), malleable());
    scene.ask(longer, Ask { what: Asked::Time, ..nodes(Direction::Grow, 30 * 60_000, 1) });
    let started = scene.world.rms.state().jobs()[&longer].started().expect("it runs");
    assert_eq!(started.request.wall, Span::from_mins(10), "the stage needs its node then");
}

#[test]
fn nothing_is_negotiated_outside_the_stages() {
    let (mut scene, job) = scene_in_stages("2x1m,1x1m");
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    let item = scene.item(job, 1);
    let run = scene.world.rms.state().jobs()[&job].run;
    let mut dialogues = negotiation::Dialogues::new(negotiation::Side::Application, job, run, Default::default());
    let now = scene.world.now;
    let opened = dialogues.open(now, Direction::Grow, vec![SetRule::All], vec![item], Span::from_mins(1));
    let (_, output) = opened.expect("a proposal");
    let said: Vec<Message> = output.messages;
    assert!(matches!(said[0].statement, Some(Statement::Propose { .. })));
    for message in said {
        let refused = scene.negotiator_call(job, NegotiatorCall::Say(Box::new(message)));
        assert_eq!(refused, Err(Refusal::HasProfile(job)));
    }
    // A program may be submitted either way: its declaration has no effect here.
    let declared = Declared { least: 1, most: 4, sizes: Sizes::Any, speedup: Default::default() };
    scene.negotiator_call(job, NegotiatorCall::Declare(declared)).expect("as anywhere");
    assert!(scene.lines(job).is_empty() && scene.world.rms.state().jobs()[&job].negotiations.is_none());
}
