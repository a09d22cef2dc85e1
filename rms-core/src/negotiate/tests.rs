//! Tests of the negotiation manager alone: who may negotiate for an application, once only, and the immediate answers
//! to requests.

use negotiation::Direction;
use rms_api::Refused;
use rms_api::negotiate::{Ask, Asked, Manner, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::refusal::Refusal;
use rms_model::{Identity, Malleable, NodeId, OnResize, Run, Sizes, Speedup};

use super::*;
use crate::Fact;
use crate::effect::Effect;
use crate::step::Step;
use crate::tests::fixture::{Fixture, NOW, outcome, user};

/// Creates a job of ann's that runs on the first of two nodes and may have both.
fn scene() -> (Fixture, JobId, Run) {
    let mut fixture = Fixture::with_nodes(2);
    let (sizes, on_resize, speedup) = (Sizes::Any, OnResize::Negotiates, Speedup::default());
    let limits = Malleable { least: 1, most: 2, sizes, on_resize, speedup, survives_loss: None };
    let job = fixture.waiting("ann", 1, |spec| spec.malleable = Some(limits));
    let run = fixture.start(job, &[NodeId(1)]);
    (fixture, job, run)
}

fn attach(fixture: &mut Fixture, who: &Identity) -> (Vec<Fact>, Vec<Effect>) {
    let mut step = Step::default();
    let call = NegotiatorCall::Attach(Manner::default());
    fixture.negotiations().handle_negotiator_call(NOW, &mut step, Ticket(1), who, call).expect("it is one call");
    outcome(step)
}

fn refusal(effects: &[Effect]) -> Option<&Refusal> {
    effects.iter().find_map(|effect| match effect {
        Effect::NegotiatorAnswer { ticket: _, answer } => answer.as_ref().err(),
        Effect::Answer { ticket: _, answer } => answer.as_ref().err(),
        _ => None,
    })
}

#[test]
fn a_process_of_the_running_execution_speaks_for_it_and_takes_over_from_another() {
    let (mut fixture, job, run) = scene();
    let (_, effects) = attach(&mut fixture, &Identity::of_job(job, run));
    let attached = effects.iter().find_map(|effect| match effect {
        Effect::NegotiatorAnswer { ticket: _, answer: Ok(NegotiatorAnswer::Attached(attached)) } => Some(attached),
        _ => None,
    });
    let attached = attached.unwrap_or_else(|| panic!("{effects:?}"));
    assert_eq!((attached.job, attached.declared.least, attached.declared.most), (job, 1, 2));
    let (_, effects) = attach(&mut fixture, &Identity::of_job(job, run));
    assert!(effects.contains(&Effect::TellNegotiator { job, notice: NegotiatorNotice::Replaced }), "{effects:?}");
}

#[test]
fn nobody_speaks_for_another_execution_nor_for_a_job_that_waits_or_keeps_its_size() {
    let (mut fixture, job, run) = scene();
    let waiting = fixture.waiting("ann", 1, |_| {});
    let rigid = fixture.waiting("ann", 1, |_| {});
    let of_rigid = fixture.start(rigid, &[NodeId(2)]);
    for (who, expected) in [
        (user("ann"), "wrong_role"),
        (Identity::of_job(job, run.next()), "another_run"),
        (Identity::of_job(waiting, Run(0)), "not_running"),
        (Identity::of_job(rigid, of_rigid), "not_negotiable"),
    ] {
        let (facts, effects) = attach(&mut fixture, &who);
        let kind = refusal(&effects).map(|refusal| Refused::from(refusal).kind);
        assert_eq!((facts.len(), kind.as_deref()), (0, Some(expected)), "{who}");
    }
}

#[test]
fn who_does_not_listen_has_no_say() {
    let (mut fixture, job, run) = scene();
    let mut step = Step::default();
    let declared = fixture.negotiations().limits(job);
    let (who, call) = (Identity::of_job(job, run), NegotiatorCall::Declare(declared));
    fixture.negotiations().handle_negotiator_call(NOW, &mut step, Ticket(1), &who, call).expect("it is one call");
    let (facts, effects) = outcome(step);
    assert!(facts.is_empty() && refusal(&effects).is_some(), "{effects:?}");
}

#[test]
fn an_agent_asks_for_the_executions_on_its_node_alone() {
    let (mut fixture, job, run) = scene();
    let ask = Ask {
        direction: Direction::Grow,
        what: Asked::Nodes { cluster: None },
        quantity: 1,
        least: 1,
        sizes: Sizes::Any,
        price: Price(0),
        duration: None,
        nodes: Vec::new(),
        wait: Span::from_secs(5),
    };
    for (node, run) in [("n2", run), ("n1", run.next()), ("n9", run)] {
        let mut step = Step::default();
        fixture.negotiations().agent_asks(NOW, &mut step, Ticket(1), (node, job, run), &ask);
        let (facts, effects) = outcome(step);
        let answer = Effect::Answer { ticket: Ticket(1), answer: Err(Refusal::NotRunning(job)) };
        assert_eq!((facts, effects), (Vec::new(), vec![answer]), "{node}");
    }
}
