//! Every rule objects: the real history passes, and the same with one error does not. One story per rule.

use std::collections::BTreeMap;

use std::sync::Arc;

use negotiation::{Action, Direction, NegotiationId, Phase, Price, Reason, Side, Sizes};
use rms_api::desired::{Aim, Launch, LaunchNode};
use rms_api::negotiate::{Ask, Asked};
use rms_api::subscription::LauncherView;
use rms_api::{Answer, Call};
use rms_core::Replay;
use rms_core::plan::{Placed, Placement, Shortage};
use rms_core::state::course::Course;
use rms_model::{ClusterId, ExpandLimit, Labels, Malleable, NodeId, OnResize, Outcome, Owner, Request, Span, Work};

use super::*;
use crate::application::{Manner, Want};
use crate::people::admin;
use crate::story::{completed, ended, hours, mins, secs};
use crate::work::{evolving, rigid};
use crate::world::{World, WorldBuilder};

#[test]
fn processes_of_two_jobs_on_one_node() {
    let mut world = world_of(2);
    world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let starts = |node: usize| {
        let ModelNode { name, .. } = &world.nodes[node];
        oversubscription::starts_alone(name, &desired(JobId(9)), world.nodes[node].supervisors())
    };
    assert_eq!((world.alive_on("a1"), starts(1)), (1, Ok(())));
    objects(Rule::Oversubscription, starts(0));
}

#[test]
fn processes_of_two_jobs_on_one_core() {
    let mut world = world_of(1);
    world.set("allocation", "cores");
    world.submit(rigid(1, hours(1)).cpus_per_task(2));
    world.after(secs(1));
    let starts = |cores: std::ops::Range<u32>| {
        let mut wanted = desired(JobId(9));
        let place = &mut Arc::make_mut(&mut wanted.launch).nodes[0];
        place.grant = Some(rms_model::Grant { cores: cores.collect(), ..Default::default() });
        oversubscription::starts_alone("a1", &wanted, world.nodes[0].supervisors())
    };
    assert_eq!(starts(2..4), Ok(()));
    objects(Rule::Oversubscription, starts(1..3));
}

#[test]
fn a_ghost_that_leaves_before_its_time() {
    let mut world = world_of(1);
    world.set("fair_start", "20s");
    world.submit(rigid(1, mins(10)).runs(secs(5)));
    world.after(mins(1));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let leaves_at_once = retold(&world, |fact| {
        if let Fact::JobDone { record, ghost_until, .. } = fact {
            *ghost_until = record.ended;
        }
    });
    objects(Rule::Ghost, leaves_at_once);
}

#[test]
fn a_request_that_changes_what_others_get_and_passes_that_disagree() {
    let placed = |job: u64, usable: u32| {
        let shortage = Shortage { cluster: ClusterId(0), wanted: 4, usable };
        Placement { job: JobId(job), outcome: Placed::Never { shortage }, view: None }
    };
    let same = |usable: u32| fcfs::others_are_as_without(&[placed(1, 2), placed(2, 2)], &[placed(1, usable)]);
    assert_eq!(same(2), Ok(()));
    objects(Rule::Fcfs, same(3));

    let starts = |node: u32| {
        let request = Request::on_one(ClusterId(0), 1, secs(1));
        let outcome =
            Placed::Now { request, nodes: vec![NodeId(node)], slices: Default::default(), row: Vec::new(), fit: None };
        [Placement { job: JobId(1), outcome, view: None }]
    };
    assert_eq!(fcfs::same_starts(&starts(1), &starts(1)), Ok(()));
    objects(Rule::Fcfs, fcfs::same_starts(&starts(1), &starts(2)));
}

#[test]
fn what_is_left_when_everything_should_have_ended() {
    let mut world = world_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(secs(10));
    let (nothing, nobody) = (State::new(Settings::default()), Checks::new(Settings::default()));
    objects(Rule::Ends, everything_ended(&world.checks, world.state(), &world.nodes));
    objects(Rule::Ends, everything_ended(&nobody, &nothing, &world.nodes));
    objects(Rule::Ends, everything_ended(&world.checks, &nothing, &[]));
    world.after(mins(2));
    world.expect(completed(job));
    assert_eq!(everything_ended(&world.checks, world.state(), &world.nodes), Ok(()));
}

#[test]
fn a_second_run_beside_the_first_and_processes_that_nobody_remembers() {
    let mut world = world_of(1);
    let job = world.submit(rigid(1, hours(1)).requeue());
    world.after(secs(1));
    let starts_again = |nodes: &[ModelNode]| {
        let mut runs = runs::Runs::default();
        for fact in world.facts() {
            runs.durable(fact, world.state(), nodes)?;
        }
        let request = Request::on_one(ClusterId(0), 1, hours(1));
        runs.durable(&tests::started(job, Run(2), world.now(), request), world.state(), nodes)
    };
    assert_eq!(starts_again(&[]), Ok(()));
    objects(Rule::Runs, starts_again(&world.nodes));
    let alive = world.nodes[0].supervisors().get(&(job, Run(1)));
    objects(Rule::Runs, Checks::new(Settings::default()).forgotten("a1", job, Run(1), alive));
}

#[test]
fn an_outcome_that_is_not_how_it_ended() {
    let mut world = world_of(1);
    world.submit(rigid(1, hours(1)).runs(secs(5)));
    world.after(secs(10));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let failed = retold(&world, |fact| {
        if let Fact::JobDone { record, .. } = fact {
            record.outcome = Outcome::Failed { code: 1 };
        }
    });
    objects(Rule::Truth, failed);
}

/// The losses of a farm on all of its nodes, presented as those of another kind of job.
#[test]
fn nodes_that_are_lost_and_missed_or_not_missed() {
    let mut world = world_of(3);
    world.submit(rigid(3, hours(1)).malleable((1, 3), Sizes::Any, OnResize::Workers));
    world.after(secs(10));
    world.kill_node("a2");
    world.after(mins(3));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let with = |change: fn(&mut Malleable)| {
        retold(&world, |fact| {
            if let Fact::JobSubmitted { spec, .. } = fact {
                Arc::make_mut(spec).malleable.iter_mut().for_each(change);
            }
        })
    };
    objects(Rule::Losses, with(|farm| farm.least = 3));
    objects(Rule::Losses, with(|farm| farm.survives_loss = Some(false)));
    objects(Rule::Losses, with(|farm| farm.on_resize = OnResize::Signal(10)));
}

#[test]
fn what_was_told_and_is_not_in_the_journal() {
    let mut world = world_of(1);
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let (state, facts) = (world.state(), world.facts());
    assert_eq!(restored_is_equal(state, state, "as it is"), Ok(()));
    objects(Rule::Durable, restored_is_equal(&State::new(Settings::default()), state, "forgotten"));
    assert_eq!(acknowledged_jobs_are_kept(&BTreeSet::from([job]), facts), Ok(()));
    objects(Rule::Durable, acknowledged_jobs_are_kept(&BTreeSet::from([job]), &[]));
    let forgotten = |run: u32| results_are_kept(&[("a1".to_owned(), job, Run(run), 1)], state);
    assert_eq!(forgotten(0), Ok(()));
    objects(Rule::Durable, forgotten(1));
}

#[test]
fn a_launcher_that_sees_what_is_not_there() {
    let mut world = world_of(1);
    world.submit(rigid(1, hours(1)));
    let waits = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let nothing = LauncherView::default();
    objects(Rule::Views, held_as_planned(world.state(), world.now(), [(waits, &nothing)].into_iter()).map(|_| ()));
}

#[test]
fn a_stage_that_is_not_as_it_was_promised() {
    let mut world = world_of(2);
    let job = world.submit(evolving(&[(1, secs(10)), (2, secs(10))], ExpandLimit::TWICE));
    world.after(mins(1));
    world.expect(ended(job, Outcome::WallTime));
    let entered = |change: fn(&mut Time, &mut Vec<NodeId>, &mut Course)| {
        retold(&world, |fact| {
            if let Fact::StageEntered { at, gained, course, .. } = fact {
                change(at, gained, course);
            }
        })
    };
    assert_eq!(entered(|_, _, _| {}), Ok(()));
    objects(Rule::Stages, entered(|_, gained, _| gained.clear()));
    objects(Rule::Stages, entered(|_, _, course| course.number += 1));
    objects(Rule::Stages, entered(|at, _, _| *at += mins(5)));
    let cut_short = retold(&world, |fact| {
        if let Fact::JobEnding { at, .. } = fact {
            *at = *at - secs(5);
        }
    });
    objects(Rule::Stages, cut_short);
}

#[test]
fn ends_that_do_not_say_the_same() {
    let mut world = world_of(4);
    let job = world.submit(rigid(2, hours(1)).negotiates(Manner::between(1, 4).grows(secs(5), 2)));
    world.after(secs(15));
    let application = world.application((job, Run(1))).expect("it runs").dialogues()[0].clone();
    assert_eq!(application.phase(), Phase::Applied);
    let change = Change { id: application.id(), from: Phase::Committing, to: Phase::Applied };
    let agree = |is_told: fn(&Fact) -> bool| {
        let mut agreement = agreement::Agreement::default();
        world.facts().iter().filter(|fact| is_told(fact)).for_each(|fact| agreement.durable(fact));
        agreement.ends_agree((job, Run(1)), &change, &application)
    };
    assert_eq!(agree(|_| true), Ok(()));
    objects(Rule::Agreement, agree(|_| false));
    objects(
        Rule::Agreement,
        agree(|fact| !matches!(fact, Fact::DialogueChanged { dialogue, .. } if dialogue.phase() == Phase::Applied)),
    );
}

#[test]
fn an_offer_for_which_nothing_is_held() {
    let (world, _) = offered();
    assert_eq!(held_is_promised(world.state()), Ok(()));
    let mut unheld = Replay::of(State::new(Settings::default()));
    for fact in world.facts().iter().filter(|fact| !matches!(fact, Fact::NodesHeld { .. })) {
        unheld.follow(fact).expect("it fits without");
    }
    objects(Rule::Holds, held_is_promised(unheld.state()));
}

#[test]
fn a_negotiation_that_nobody_ends() {
    let (world, _) = offered();
    let next = world.server.as_ref().and_then(|server| server.server_loop.next_timer());
    assert_eq!(nothing_is_overdue(world.state(), world.now(), next), Ok(()));
    objects(Rule::Timely, nothing_is_overdue(world.state(), world.now(), None));
    objects(Rule::Timely, nothing_is_overdue(world.state(), world.now() + hours(1), next));
}

#[test]
fn an_accept_that_comes_to_nothing() {
    let (world, job) = offered();
    let accepted = Accepted { job, run: Run(1), id: FIRST };
    objects(Rule::Accepts, is_agreed(&accepted, world.state()));

    let mut world = world_of(4);
    let job = world.submit(rigid(2, hours(1)).negotiates(Manner::between(1, 4).grows(secs(5), 2)));
    world.after(secs(15));
    assert_eq!(is_agreed(&Accepted { job, run: Run(1), id: FIRST }, world.state()), Ok(()));
    let mut accepts = accepts::Accepts::default();
    for fact in world.facts() {
        assert_eq!(accepts.durable(fact, world.state()), Ok(()));
        let Fact::DialogueChanged { dialogue, at, .. } = fact else { continue };
        if dialogue.phase() == Phase::Accepted {
            let mut failed = dialogue.clone();
            let _ = failed.act(*at, Action::Fail(Reason::NoResources)).expect("what is agreed may fail");
            let fact = Fact::DialogueChanged { job, at: *at, dialogue: failed, asking: None };
            objects(Rule::Accepts, accepts.durable(&fact, world.state()));
            return;
        }
    }
    panic!("nothing was agreed");
}

#[test]
fn nodes_that_are_called_free_while_processes_are_there_and_one_who_does_not_leave() {
    let mut world = world_of(4);
    let stubborn = rigid(4, hours(1)).ignores_term().negotiates(Manner::between(1, 4).shrinks(secs(5), 2));
    let job = world.submit(stubborn);
    world.after(secs(9));
    let leaving: Vec<NodeId> = world.state().jobs()[&job].leaving();
    assert_eq!((leaving.len(), world.alive_on("a4")), (2, 1), "it has let go of two, and its processes ignore TERM");
    let is_free = Fact::NodesFreed { job, nodes: leaving };
    objects(Rule::Releases, releases::are_clear(&is_free, world.state(), &world.nodes));
    assert_eq!(nobody_overstays(world.state(), world.now()), Ok(()));
    objects(Rule::Promises, nobody_overstays(world.state(), world.now() + mins(10)));
    world.after(secs(30));
    assert_eq!(releases::are_clear(&is_free, world.state(), &world.nodes), Ok(()));
}

#[test]
fn more_than_it_can_use() {
    let mut world = world_of(8);
    world.set("offer_idle", "equal_share");
    world.submit(rigid(4, hours(1)).negotiates(Manner::between(4, 8)));
    world.after(secs(15));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let more = retold(&world, |fact| {
        if let Fact::JobSubmitted { spec, .. } = fact {
            Arc::make_mut(spec).malleable.as_mut().expect("it is malleable").most = 6;
        }
        if let Fact::LimitsDeclared { declared, .. } = fact {
            declared.most = 6;
        }
    });
    objects(Rule::Sizes, more);
}

#[test]
fn nodes_that_are_held_from_one_who_waits_for_them() {
    let mut world = world_of(4);
    world.submit(rigid(2, mins(2)));
    // The nodes that it asks for do not exist, so its proposal stands.
    let wants = Want { least: 2, valid_for: mins(5), ..Want::nodes(Direction::Grow, secs(5), 2) };
    let grows = world.submit(rigid(1, hours(1)).negotiates(Manner::between(1, 4).wants(wants)));
    world.submit(rigid(3, mins(1)));
    world.after(secs(15));
    let free = world.state().nodes().iter().find(|(_, node)| node.holders.is_empty()).map(|(node, _)| *node);
    let mut delays = delays::Delays::new(Settings::default());
    for fact in world.facts() {
        assert_eq!(delays.durable(fact), Ok(()));
    }
    delays.at(world.now(), false);
    let nodes = vec![free.expect("one is")];
    objects(
        Rule::Delays,
        delays.durable(&Fact::NodesHeld { job: grows, negotiation: FIRST, nodes, grants: Default::default() }),
    );
}

#[test]
fn cores_that_are_called_free_while_processes_use_them() {
    let mut world = world_of(2);
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.negotiate(&admin(), job, gives_cores_back(2));
    world.after(secs(10));
    assert_eq!(cores::used_is_kept(world.state(), &world.nodes), Ok(()));
    let mut replay = Replay::of(world.state().clone());
    let node = world.state().jobs()[&job].nodes()[0];
    let set = Fact::CoresSet { job, negotiation: FIRST, cores: vec![(node, 1)], more: BTreeMap::new(), at: None };
    replay.follow(&set).expect("facts are not judged");
    assert_eq!(cores::used_is_kept(replay.state(), &world.nodes), Ok(()), "not before its agent says so");
    replay.follow(&Fact::CoresInForce { job, node, generation: 3 }).expect("facts are not judged");
    objects(Rule::Cores, cores::used_is_kept(replay.state(), &world.nodes));
}

fn gives_cores_back(n_cores: u64) -> Ask {
    Ask {
        direction: Direction::Shrink,
        what: Asked::Cores { cluster: None },
        quantity: n_cores,
        least: n_cores,
        sizes: Sizes::Any,
        price: Price(0),
        duration: None,
        nodes: Vec::new(),
        wait: Span::ZERO,
    }
}

#[test]
fn a_state_in_which_two_jobs_have_one_node() {
    let mut world = world_of(1);
    world.submit(rigid(1, hours(1)));
    let waits = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let mut replay = Replay::of(world.state().clone());
    assert_eq!(replay.state().check(), Ok(()));
    let request = Request::on_one(ClusterId(0), 1, hours(1));
    let node = *replay.state().nodes().keys().next().expect("there is one");
    let fact = Fact::JobStarted {
        job: waits,
        run: Run(1),
        at: world.now(),
        request,
        nodes: vec![node],
        grants: Default::default(),
    };
    replay.follow(&fact).expect("facts are not judged");
    assert!(replay.state().check().is_err());
}

#[test]
fn more_facts_than_a_small_world_can_have() {
    let mut world = world_of(1);
    for n_jobs in 0..5_001 {
        let value = (1_000 + n_jobs).to_string();
        world.call(&admin(), Call::Set { key: "max_jobs".to_owned(), value });
    }
    objects(Rule::Spin, world.run_until(world.now() + secs(1)));
}

#[test]
fn an_answer_of_what_is_not_durable_one_too_many_and_one_too_few() {
    let mut checks = Checks::new(Settings::default());
    let ticket = Ticket(1);
    checks.asked(ticket);
    objects(Rule::Answers, checks.nobody_waits());
    let answer = Outbound::Answer { ticket, answer: Ok(Answer::Done) };
    objects(Rule::Answers, checks.leaves(&answer, true));
    assert_eq!(checks.leaves(&answer, false), Ok(()));
    objects(Rule::Answers, checks.leaves(&answer, false));
    assert_eq!(checks.nobody_waits(), Ok(()));
}

#[test]
fn jobs_that_never_said_that_they_share() {
    let mut world = world_of(1);
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    world.set("max_slowdown", "infinite");
    let sharing = |wall| {
        let mut job = rigid(1, wall).cpus_per_task(4);
        job.submission.resources.share = true;
        job
    };
    world.submit(sharing(hours(2)).runs(hours(1)));
    world.after(secs(5));
    world.submit(sharing(mins(10)).runs(mins(1)));
    let other = world.submit(rigid(1, hours(1)).cpus_per_task(4));
    world.after(mins(1));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let lent = world.facts().iter().find(|fact| matches!(fact, Fact::CpusShared { .. }));
    let mut lent = lent.cloned().expect("somebody has lent something");
    if let Fact::CpusShared { job, .. } = &mut lent {
        *job = other;
    }
    objects(Rule::Slowed, Checks::new(Settings::default()).slowed.durable(&lent, world.state()));

    let mut world = world_of(1);
    world.set("allocation", "cores");
    let job = world.submit(rigid(1, hours(1)).cpus_per_task(2));
    world.after(secs(5));
    let began_with = |n_cores| {
        let mut fact = started(job, Run(1), Time::EPOCH, Request::on_one(ClusterId(1), 1, hours(1)));
        if let Fact::JobStarted { grants, .. } = &mut fact {
            let cores = rms_model::Indices::below(n_cores);
            grants.insert(NodeId(1), rms_model::Grant { cores, ..Default::default() });
        }
        let mut checks = Checks::new(Settings::default());
        checks.slowed.durable(&fact, world.state()).expect("it may begin");
        checks.nobody_is_slowed(world.state(), &world.nodes)
    };
    assert_eq!(began_with(2), Ok(()));
    objects(Rule::Slowed, began_with(3));
}

#[test]
fn a_start_that_is_later_than_it_was_promised() {
    let mut world = world_of(1);
    world.set("policy", "conservative");
    world.submit(rigid(1, mins(10)).runs(mins(5)));
    let waits = world.submit(rigid(1, hours(1)));
    world.after(mins(6));
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let starts_late = retold(&world, |fact| {
        if let Fact::JobStarted { job, at, .. } = fact
            && *job == waits
        {
            *at += hours(1);
        }
    });
    objects(Rule::Starts, starts_late);
}

#[test]
fn a_gap_between_nodes_that_were_to_follow_one_another() {
    let mut world = world_of(3);
    let mut job = rigid(2, hours(1));
    job.submission.resources.contiguous = true;
    world.submit(job);
    world.after(secs(5));
    let state = world.state();
    let last = state.neighbours(*state.clusters().keys().next().expect("there is one"))[2];
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let leaves_one_out = retold(&world, |fact| {
        if let Fact::JobStarted { nodes, .. } = fact {
            nodes[1] = last;
        }
    });
    objects(Rule::Place, leaves_one_out);
}

#[test]
fn a_node_that_a_job_was_not_to_use() {
    let mut world = world_of(3);
    let mut job = rigid(1, hours(1));
    job.submission.constraint.nodelist = ["a1".to_owned(), "a2".to_owned()].into();
    world.submit(job);
    world.after(secs(5));
    let other = world.state().node_named("a3").expect("there are three");
    assert_eq!(retold(&world, |_| {}), Ok(()));
    let elsewhere = retold(&world, |fact| {
        if let Fact::JobStarted { nodes, .. } = fact {
            nodes[0] = other;
        }
    });
    objects(Rule::Place, elsewhere);
}

#[test]
fn a_job_that_waits_beside_a_free_node() {
    let mut world = world_of(1);
    let runs = world.submit(rigid(1, hours(1)));
    world.submit(rigid(1, hours(1)));
    world.after(secs(5));
    let (state, now) = (world.state(), world.now());
    assert_eq!(nobody_could_start(state, now, now + secs(60)), Ok(()));
    let mut left = Replay::of(state.clone());
    let record = state.jobs()[&runs].record(runs, now, Outcome::Completed, Vec::new(), (None, None));
    let done = Fact::JobDone { record: Box::new(record), ghost_until: now, negotiations: Vec::new(), told: None };
    left.follow(&done).expect("the job is there");
    objects(Rule::Idle, nobody_could_start(left.state(), now, now + secs(60)));
}

/// A rule without a story does not compile.
#[test]
fn every_rule_has_its_story() {
    let story = |rule: Rule| -> fn() {
        match rule {
            Rule::Oversubscription => processes_of_two_jobs_on_one_node,
            Rule::Ghost => a_ghost_that_leaves_before_its_time,
            Rule::Fcfs => a_request_that_changes_what_others_get_and_passes_that_disagree,
            Rule::Ends => what_is_left_when_everything_should_have_ended,
            Rule::Runs => a_second_run_beside_the_first_and_processes_that_nobody_remembers,
            Rule::Truth => an_outcome_that_is_not_how_it_ended,
            Rule::Durable => what_was_told_and_is_not_in_the_journal,
            Rule::Views => a_launcher_that_sees_what_is_not_there,
            Rule::Stages => a_stage_that_is_not_as_it_was_promised,
            Rule::Starts => a_start_that_is_later_than_it_was_promised,
            Rule::Agreement => ends_that_do_not_say_the_same,
            Rule::Holds => an_offer_for_which_nothing_is_held,
            Rule::Timely => a_negotiation_that_nobody_ends,
            Rule::Accepts => an_accept_that_comes_to_nothing,
            Rule::Releases | Rule::Promises => {
                nodes_that_are_called_free_while_processes_are_there_and_one_who_does_not_leave
            }
            Rule::Sizes => more_than_it_can_use,
            Rule::Delays => nodes_that_are_held_from_one_who_waits_for_them,
            Rule::Cores => cores_that_are_called_free_while_processes_use_them,
            Rule::State => a_state_in_which_two_jobs_have_one_node,
            Rule::Slowed => jobs_that_never_said_that_they_share,
            Rule::Place => a_gap_between_nodes_that_were_to_follow_one_another,
            Rule::Idle => a_job_that_waits_beside_a_free_node,
            Rule::Losses => nodes_that_are_lost_and_missed_or_not_missed,
            Rule::Answers => an_answer_of_what_is_not_durable_one_too_many_and_one_too_few,
            Rule::Spin => more_facts_than_a_small_world_can_have,
        }
    };
    story(Rule::Ends)();
}

#[track_caller]
fn objects(rule: Rule, found: Result<(), Violation>) {
    match found {
        Err(violation) => assert_eq!(violation.rule, rule, "{violation}"),
        Ok(()) => panic!("nobody has seen that it breaks the rule: {rule}"),
    }
}

fn world_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.set("offer_idle", "never");
    world.set("shrink_for", "never");
    world.after(secs(1));
    world
}

/// Returns an application that wanted 14 nodes and considers the 6 that it was offered.
fn offered() -> (World, JobId) {
    let mut world = world_of(8);
    let thinks = Manner { thinks: mins(5), ..Manner::between(1, 8).grows(secs(5), 14) };
    let job = world.submit(rigid(2, hours(1)).negotiates(thinks));
    world.after(secs(10));
    (world, job)
}

/// The first negotiation that an application opens.
const FIRST: NegotiationId = NegotiationId { initiator: Side::Application, number: 1 };

/// Passes the facts of a world to new checkers, each fact with a change. Processes have ended as they did.
fn retold(world: &World, change: impl Fn(&mut Fact)) -> Result<(), Violation> {
    let mut checks = Checks::new(Settings::default());
    let mut replay = Replay::of(State::new(Settings::default()));
    for fact in world.facts() {
        if let Fact::ShareEnded { job, node, exit, .. } = fact {
            let state = replay.state();
            let (name, run) = (&state.nodes()[node].name, state.jobs()[job].run);
            checks.truth.ended(name, *job, run, exit.clone());
        }
        replay.follow(fact).expect("it fitted when it happened");
        let mut told = fact.clone();
        change(&mut told);
        checks.durable(&told, replay.state(), &[])?;
    }
    Ok(())
}

fn desired(job: JobId) -> DesiredJob {
    let place = LaunchNode { cpus: 4, ..test_kit::place("a1") };
    let of_nobody = Launch::of(Owner("ann".to_owned()), Work::Nodes);
    let launch = Launch { labels: Labels::named("model"), wall: hours(1), nodes: vec![place], ..of_nobody };
    DesiredJob { job, run: Run(1), aim: Aim::Run, launch: Arc::new(launch), node_idx: 0 }
}
