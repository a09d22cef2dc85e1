//! Tests of the launchers' handler: only the owner's launcher acts for an application, and its requests count in the
//! order of their tags (001, §4.2).

use rms_model::{ClusterId, Labels, NodeId, Request, Span};

use rms_api::subscription::LauncherRequest;

use super::*;
use crate::tests::fixture::{Fixture, NOW, outcome, user};

/// The launchers of a cluster of two nodes.
struct Scene {
    fixture: Fixture,
    counts: LauncherCounts,
}

impl Scene {
    fn new() -> Scene {
        Scene { fixture: Fixture::with_nodes(2), counts: LauncherCounts::default() }
    }

    fn launchers(&mut self) -> Launchers<'_> {
        let Fixture { context, negotiators, submit_rates } = &mut self.fixture;
        Launchers { jobs: Jobs { context, negotiators }, counts: &mut self.counts, submit_rates }
    }

    /// Returns the facts of a call, and its answer.
    fn call(&mut self, who: &str, call: LauncherCall) -> (Vec<Fact>, Result<LauncherAnswer, Refusal>) {
        let mut step = Step::default();
        self.launchers().handle_launcher_call(NOW, &mut step, Ticket(1), &user(who), call);
        let (facts, effects) = outcome(step);
        let answers = effects.into_iter().filter_map(|effect| match effect {
            Effect::LauncherAnswer { ticket: Ticket(1), answer } => Some(answer),
            _ => None,
        });
        let [answer] = answers.collect::<Vec<_>>().try_into().expect("every call is answered once");
        (facts, answer)
    }

    fn subscribed(&mut self) -> JobId {
        let (labels, filter) = (Labels::named("app"), Filter::default());
        let subscription = Box::new(Subscription { labels, filter, priority: 0, malleable: None });
        match self.call("ann", LauncherCall::Subscribe(subscription)) {
            (facts, Ok(LauncherAnswer::Subscribed { job, .. })) => {
                assert!(matches!(facts[..], [Fact::LauncherSubscribed { .. }]), "{facts:?}");
                job
            }
            other => panic!("{other:?}"),
        }
    }
}

fn request(job: JobId, tag: u64, n_nodes: u32) -> LauncherCall {
    let request = Request::on_one(ClusterId(1), n_nodes, Span::from_hours(1));
    LauncherCall::Request { job, wish: LauncherRequest::of_nodes(Tag(tag), 0, request) }
}

#[test]
fn a_launcher_subscribes_and_asks_and_the_same_request_again_is_no_other() {
    let mut scene = Scene::new();
    let job = scene.subscribed();
    let (facts, answer) = scene.call("ann", request(job, 1, 2));
    assert!(matches!((&facts[..], answer), ([Fact::LauncherRequested { .. }], Ok(LauncherAnswer::Done))));
    assert!(scene.fixture.context.passes.wanted);
    let (facts, answer) = scene.call("ann", request(job, 1, 2));
    assert!(facts.is_empty() && answer.is_ok(), "its answer may have been lost: {answer:?}");
    let (facts, answer) = scene.call("ann", request(job, 1, 1));
    assert!(facts.is_empty() && matches!(answer, Err(Refusal::StaleTag { .. })), "{answer:?}");
    let (_, answer) = scene.call("ann", request(job, 2, 3));
    assert!(matches!(answer, Err(Refusal::TooManyNodes { .. })), "there are two: {answer:?}");
}

#[test]
fn nobody_else_speaks_for_an_application_nor_for_one_without_a_launcher() {
    let mut scene = Scene::new();
    let job = scene.subscribed();
    let (facts, answer) = scene.call("bob", request(job, 1, 1));
    assert!(facts.is_empty() && matches!(answer, Err(Refusal::NotYourApplication { .. })), "{answer:?}");
    let plain = scene.fixture.waiting("ann", 1, |_| {});
    let (facts, answer) = scene.call("ann", request(plain, 1, 1));
    assert!(facts.is_empty() && matches!(answer, Err(Refusal::NoLauncher(_))), "{answer:?}");
}

#[test]
fn a_start_is_answered_under_the_tag_that_was_granted() {
    let mut scene = Scene::new();
    let job = scene.subscribed();
    let (_, asked) = scene.call("ann", request(job, 4, 1));
    asked.expect("it is possible");
    let (_, early) = scene.call("ann", LauncherCall::Accept { job, tag: Tag(4) });
    assert!(matches!(early, Err(Refusal::WrongState { .. })), "it has not started: {early:?}");
    let granted = Request::on_one(ClusterId(1), 1, Span::from_hours(1));
    let run = scene.fixture.state().jobs()[&job].run.next();
    scene.fixture.record(Fact::JobStarted {
        job,
        run,
        at: NOW,
        request: granted,
        nodes: vec![NodeId(1)],
        grants: Default::default(),
    });
    let (_, wrong) = scene.call("ann", LauncherCall::Accept { job, tag: Tag(3) });
    assert!(matches!(wrong, Err(Refusal::WrongTag { granted: 4, .. })), "{wrong:?}");
    let (facts, accepted) = scene.call("ann", LauncherCall::Accept { job, tag: Tag(4) });
    assert!(matches!((&facts[..], accepted), ([Fact::LauncherAccepted { .. }], Ok(_))));
    let (facts, again) = scene.call("ann", LauncherCall::Accept { job, tag: Tag(4) });
    assert!(facts.is_empty() && again.is_ok(), "it may not have heard that it was heard");
}

#[test]
fn a_launcher_that_is_gone_is_away_once_and_comes_back() {
    let mut scene = Scene::new();
    let job = scene.subscribed();
    let mut step = Step::default();
    scene.launchers().launcher_gone(NOW, &mut step, job);
    scene.launchers().launcher_gone(NOW, &mut step, job);
    let (facts, _) = outcome(step);
    assert!(matches!(facts[..], [Fact::LauncherLinkChanged { link: LauncherLink::Away { .. }, .. }]), "{facts:?}");
    let (facts, answer) = scene.call("ann", LauncherCall::Attach { job });
    assert!(answer.is_ok(), "{answer:?}");
    assert!(matches!(facts[..], [Fact::LauncherLinkChanged { link: LauncherLink::Connected { .. }, .. }]), "{facts:?}");
}
