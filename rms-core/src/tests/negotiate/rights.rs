//! Who may negotiate about what, and the answers to those who may not.

use negotiation::{Action, Direction, Ending, Phase, Reason, Side};
use rms_api::Call;
use rms_api::call::{Nodes, Query, Select, Shape};
use rms_api::negotiate::{Ask, AskOutcome, Asked, Declared, NegotiatorCall, Order, Said};
use rms_api::{Answer, Refusal};
use rms_model::{ClusterId, Identity, JobId, OnResize, Role, Run, Sizes, Span};

use super::{Scene, malleable, nodes};
use crate::Fact;
use crate::event::{Event, Ticket};

fn hour() -> Span {
    Span::from_hours(1)
}

fn scene_with_job() -> (Scene, JobId) {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    (scene, job)
}

impl Scene {
    fn call_as(&mut self, who: Identity, call: Call) -> Result<Answer, Refusal> {
        let ticket = self.ticket();
        self.event(Event::Called { ticket, who, call });
        self.answers.remove(&ticket).expect("it is answered at once")
    }
}

fn user(name: &str) -> Identity {
    Identity::new(Role::User, name).expect("a plain name")
}

#[test]
fn only_a_job_that_runs_is_asked_for() {
    let mut scene = Scene::new(2);
    scene.submit(1, hour(), None);
    let ticket = scene.ask(JobId(99), nodes(Direction::Grow, 1, 1));
    assert_eq!(scene.refusal(ticket), Some(Refusal::NoSuchJob(JobId(99))));
    let waiting = scene.submit(2, hour(), Some(malleable(2, 2, OnResize::Workers)));
    let ticket = scene.ask(waiting, nodes(Direction::Grow, 1, 1));
    assert_eq!(scene.refusal(ticket), Some(Refusal::NotRunning(waiting)));
}

/// A rank of an unmodified program spawns others, which was not announced at submission.
#[test]
fn nodes_may_be_asked_for_any_job_that_runs() {
    let mut scene = Scene::new(2);
    let plain = scene.submit(1, hour(), None);
    let ticket = scene.ask(plain, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
    let ticket = scene.ask(plain, nodes(Direction::Shrink, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
}

#[test]
fn nobody_waits_for_more_nodes_than_there_are() {
    let mut scene = Scene::new(3);
    let job = scene.submit(1, hour(), None);
    let patient = Ask { wait: Span::from_mins(1), ..nodes(Direction::Grow, 3, 3) };
    let ticket = scene.ask(job, patient);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
}

#[test]
fn while_a_process_speaks_for_it_others_may_ask_and_it_hears_what_comes_of_it() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    let Some(AskOutcome::Ready { negotiation: asked, .. }) = scene.outcome(ticket) else { panic!("it is ready") };
    let known = scene.app(job).holding.clone().expect("it was told");
    assert_eq!(known.nodes.len(), scene.held(job).len(), "it does not work from nodes as they were");
    let item = scene.item(job, 1);
    let own = scene.app_opens(job, Direction::Shrink, item);
    assert!(own.number > asked.number, "no number is used twice");
    assert_eq!(scene.app_phase(job, own), Phase::Accepted);
    let ticket = scene.ask(job, nodes(Direction::Shrink, 1, 1));
    assert_eq!(scene.refusal(ticket), Some(Refusal::AlreadyNegotiating { job, id: own }));
    scene.is_durable();
}

#[test]
fn what_it_opens_while_somebody_else_asks_it_may_open_again() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    // The application's message is on its way while the request is made.
    scene.app(job).is_mute = true;
    let item = scene.item(job, 1);
    let own = scene.app_opens(job, Direction::Shrink, item);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    let Some(AskOutcome::Ready { negotiation: asked, .. }) = scene.outcome(ticket) else { panic!("it is ready") };
    assert_eq!(asked, own, "both have counted alike");
    scene.app(job).is_mute = false;
    scene.after(Span::from_secs(1));
    assert_eq!(scene.app_phase(job, own), Phase::Ended(Ending::Rejected));
    let item = scene.item(job, 1);
    let again = scene.app_opens(job, Direction::Shrink, item);
    assert_eq!(scene.app_phase(job, again), Phase::Accepted);
}

#[test]
fn one_asks_for_one_direction_at_a_time() {
    let (mut scene, job) = scene_with_job();
    scene.disconnect(&["n3"]);
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.refusal(ticket), Some(Refusal::AlreadyNegotiating { .. })));
}

#[test]
fn impossible_asks_are_refused_with_a_reason() {
    let (mut scene, job) = scene_with_job();
    let refused = |scene: &mut Scene, ask| {
        let ticket = scene.ask(job, ask);
        scene.refusal(ticket)
    };
    for ask in [nodes(Direction::Grow, 0, 0), nodes(Direction::Grow, u64::MAX, 1), nodes(Direction::Shrink, 9, 9)] {
        assert!(matches!(refused(&mut scene, ask), Some(Refusal::Template(_) | Refusal::MoreThanHeld { .. })));
    }
    let mut ask = nodes(Direction::Grow, 1, 1);
    ask.what = Asked::Nodes { cluster: Some("nowhere".to_owned()) };
    assert!(matches!(refused(&mut scene, ask), Some(Refusal::NoSuchCluster { .. })));
    let mut ask = nodes(Direction::Shrink, 1, 1);
    ask.nodes = vec!["n1".to_owned()];
    assert!(matches!(refused(&mut scene, ask), Some(Refusal::WrongState { .. })), "its first node stays");
    let mut ask = nodes(Direction::Grow, 1, 1);
    ask.sizes = Sizes::MultipleOf(0);
    assert!(matches!(refused(&mut scene, ask), Some(Refusal::Template(_))));
    // Both nodes cannot be given back: the first stays.
    let ticket = scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Policy, .. })));
}

#[test]
fn only_the_present_execution_of_a_job_speaks_for_it() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    let attach =
        |scene: &mut Scene, who| scene.negotiator_call_as(who, NegotiatorCall::Attach(Default::default())).err();
    let of_run = |run| Identity::of_job(job, Run(run));
    assert!(matches!(attach(&mut scene, of_run(2)), Some(Refusal::AnotherRun { .. })));
    assert!(matches!(attach(&mut scene, user("ann")), Some(Refusal::WrongRole { expected: Role::Job, .. })));
    let of_another = Identity::of_job(JobId(77), Run(1));
    assert_eq!(attach(&mut scene, of_another), Some(Refusal::NotRunning(JobId(77))));
    let rigid = scene.submit(1, hour(), None);
    let of_rigid = Identity::of_job(rigid, Run(1));
    assert_eq!(attach(&mut scene, of_rigid), Some(Refusal::NotNegotiable(rigid)));
}

#[test]
fn who_attaches_anew_takes_the_place_of_the_one_before() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    let run = scene.app(job).run;
    scene.negotiator_call_as(Identity::of_job(job, run), NegotiatorCall::Attach(Default::default())).expect("it may");
    assert!(scene.app(job).is_replaced);
}

#[test]
fn an_agent_asks_only_for_jobs_that_it_has() {
    let (mut scene, job) = scene_with_job();
    let asked = |scene: &mut Scene, name: &str, run| {
        let ticket = scene.ticket();
        let ask = nodes(Direction::Grow, 1, 1);
        scene.event(Event::AgentAsked { ticket, name: name.to_owned(), job, run, ask });
        ticket
    };
    for (name, run) in [("n4", Run(1)), ("n1", Run(2)), ("nowhere", Run(1))] {
        let ticket: Ticket = asked(&mut scene, name, run);
        assert_eq!(scene.refusal(ticket), Some(Refusal::NotRunning(job)), "{name}");
    }
    let ticket = asked(&mut scene, "n2", Run(1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    assert_eq!(scene.lines(job)[0].record.by.as_deref(), Some("agent/n2"));
}

#[test]
fn negotiations_are_shown_to_the_owner_and_to_admins() {
    let (mut scene, job) = scene_with_job();
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let query = || Call::Query(Query::Negotiations { job: Some(job) });
    assert!(matches!(scene.call_as(user("eve"), query()), Err(Refusal::NotYourJob { .. })));
    let all = Call::Query(Query::Negotiations { job: None });
    let Ok(Answer::Negotiations { lines, .. }) = scene.call_as(user("eve"), all) else { panic!("no lines") };
    assert!(lines.is_empty());
    assert!(matches!(scene.call_as(user("root"), query()), Ok(Answer::Negotiations { lines, .. }) if lines.len() == 1));
}

#[test]
fn an_owner_withdraws_and_only_an_admin_forces() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let item = scene.item(job, 1);
    let id = scene.app_opens(job, Direction::Shrink, item);
    let order = |order| Call::OrderNegotiation { job, negotiation: id, order };
    assert!(matches!(scene.call_as(user("eve"), order(Order::Withdraw)), Err(Refusal::NotYourJob { .. })));
    assert!(matches!(scene.call_as(user("root"), order(Order::Withdraw)), Err(Refusal::WrongState { .. })), "agreed");
    assert!(matches!(scene.call_as(user("root"), order(Order::Force)), Err(Refusal::NotAllowed { .. })));
    scene.call(order(Order::Force)).expect("an admin may");
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2, 3], 1));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert!(matches!(scene.call(order(Order::Withdraw)), Err(Refusal::NoSuchNegotiation { .. })), "it is over");

    let mut id = None;
    scene.by_itself(|rms, now, step| {
        id = rms.negotiations().open_growth_offer(now, step, (job, ClusterId(0)), 1, Default::default()).ok();
    });
    let id = id.expect("there is a node for it");
    let withdraw = Call::OrderNegotiation { job, negotiation: id, order: Order::Withdraw };
    scene.call_as(user("root"), withdraw).expect("its owner may");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Withdrawn));
    assert_eq!(scene.n_free(), 1);
    for (admin, reason) in [("root", Reason::Declined), ("eva", Reason::Administrator)] {
        let item = scene.item(job, 9);
        let id = scene.app_opens(job, Direction::Grow, item);
        let withdraw = Call::OrderNegotiation { job, negotiation: id, order: Order::Withdraw };
        let admin = Identity::new(Role::Admin, admin).expect("a plain name");
        scene.call_as(admin, withdraw).expect("an admin may");
        let last = scene.lines(job).pop().and_then(|line| line.record.rounds.last().map(|round| round.said.clone()));
        assert!(matches!(last, Some(Said::Phase { reason: Some(why), .. }) if why == reason), "{last:?}");
    }
}

#[test]
fn declared_limits_are_checked_and_kept() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    let declared = |least, most| Declared { least, most, sizes: Sizes::PowerOfTwo, speedup: Default::default() };
    let declare = |scene: &mut Scene, limits| scene.negotiator_call(job, NegotiatorCall::Declare(limits));
    assert_eq!(declare(&mut scene, declared(3, 2)), Err(Refusal::MalleableSizes));
    declare(&mut scene, declared(2, 4)).expect("it may");
    let negotiations = scene.world.rms.state().jobs()[&job].negotiations.as_ref().expect("it was written down");
    assert_eq!(negotiations.declared, Some(declared(2, 4)));
    assert_eq!(scene.world.line(job).malleable, Some(declared(2, 4)), "everyone is shown what counts");
    scene.is_durable();
}

/// A breach of the rules of a dialogue ends that dialogue, and nothing else.
#[test]
fn a_proposal_about_nodes_that_it_does_not_have_is_rejected() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    let mut item = scene.item(job, 1);
    item.held = negotiation::Quantity(9);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Rejected));
    let mut item = scene.item(job, 1);
    item.resource = negotiation::Resource::Cores(rms_model::ClusterId(0));
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app(job).dialogues.get(id).and_then(|dialogue| dialogue.reason()), Some(Reason::Changed));
    // Out of turn: the application is told, and the dialogue goes on.
    let item = scene.item(job, 9);
    let id = scene.app_opens(job, Direction::Grow, item);
    let statement = Some(negotiation::Statement::Commit { round: 2, nodes: Default::default() });
    scene.send(job, negotiation::Message::new(id, 2, 1, statement));
    assert_eq!(scene.app(job).refused.len(), 1);
    assert_eq!(scene.phase(job, id), Phase::Countered(Side::Rms));
    scene.app_acts(job, id, Action::Accept);
}

#[test]
fn a_flood_of_messages_ends_the_job_that_sends_it() {
    let (mut scene, job) = scene_with_job();
    let other = scene.submit(1, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let id = negotiation::NegotiationId { initiator: Side::Application, number: 1 };
    let message = negotiation::Message::new(id, 0, 0, None);
    let who = || Identity::of_job(job, Run(1));
    let said = || NegotiatorCall::Say(Box::new(message.clone()));
    for second in 1..=crate::rate::MAX_SECONDS_EXCEEDED {
        assert!(scene.is_started(job), "second {second}");
        for _ in 0..crate::negotiate::MAX_MESSAGES {
            let event = Event::NegotiatorCalled { ticket: Ticket(0), who: who(), call: said() };
            let step = scene.world.rms.handle(scene.world.now, event);
            assert!(step.is_empty(), "it is not worth an answer");
        }
        assert!(matches!(scene.negotiator_call_as(who(), said()), Err(Refusal::RateLimit { .. })));
        scene.after(Span::from_secs(1));
    }
    assert!(scene.has_left(job));
    assert!(scene.is_started(other));
}

/// Each attachment makes the server send everything again, so attachments are counted over all channels.
#[test]
fn who_attaches_again_and_again_is_refused() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    for _ in 1..crate::rate::MAX_CALLS {
        scene.negotiator_call(job, NegotiatorCall::Attach(Default::default())).expect("it may");
    }
    let refused = scene.negotiator_call(job, NegotiatorCall::Attach(Default::default())).expect_err("too often");
    assert!(refused.to_string().contains("a launcher or negotiator that goes on so ends its job"), "{refused}");
    scene.after(Span::from_secs(1));
    scene.negotiator_call(job, NegotiatorCall::Attach(Default::default())).expect("it may");
}

#[test]
fn a_job_that_has_left_is_asked_nothing() {
    let (mut scene, job) = scene_with_job();
    scene.attach(job).expect("it may");
    scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("an admin may");
    assert_eq!(scene.negotiator_call(job, NegotiatorCall::Attach(Default::default())), Err(Refusal::NotRunning(job)));
}

#[test]
fn the_audit_has_what_an_admin_asked_for_others_and_not_what_was_refused() {
    let mut scene = Scene::new(4);
    let mut submission = scene.world.submission();
    submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(hour()) }];
    let Ok(Answer::Submitted { job }) = scene.call_as(user("ann"), Call::Submit(Box::new(submission))) else {
        panic!("not submitted")
    };
    let n_audited = |scene: &Scene| {
        let is_of_asks = |fact: &&Fact| matches!(fact, Fact::Audited { entry } if entry.action == "negotiate");
        scene.facts().iter().filter(is_of_asks).count()
    };
    let ticket = scene.ask(job, Ask { nodes: vec!["n9".to_owned()], ..nodes(Direction::Shrink, 1, 1) });
    assert!(scene.refusal(ticket).is_some(), "there is no such node");
    let n_before = n_audited(&scene);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    assert_eq!((n_before, n_audited(&scene)), (0, 1));
}
