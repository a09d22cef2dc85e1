//! Applications that negotiate, in virtual time: the six scenarios of 002 with the server's real end and a real end of
//! the application, two that each want the rest, promises that are broken, and deaths in the middle.

use negotiation::{Direction, Ending, NegotiationId, Phase, Price, Reason, Side, Sizes};
use rms_api::Call;
use rms_api::negotiate::{Ask, AskOutcome, Asked, Order};
use rms_core::Fact;
use rms_model::{JobId, OnResize, Span};
use rms_sim::application::{Absence, Answers, Manner, Promises, Want, Weather};
use rms_sim::story::{completed, hours, mins, secs, started, waiting};
use rms_sim::{CrashPoint, World, WorldBuilder, admin, rigid, user};

pub(super) fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    // The server opens nothing by itself, unless a story wants it to.
    world.set("offer_idle", "never");
    world.set("shrink_for", "never");
    world.after(secs(1));
    world
}

fn a(number: u32) -> NegotiationId {
    NegotiationId { initiator: Side::Application, number }
}

pub(super) fn r(number: u32) -> NegotiationId {
    NegotiationId { initiator: Side::Rms, number }
}

/// How many nodes it has.
pub(super) fn n_nodes(world: &mut World, job: JobId) -> usize {
    world.line(job).expect("it runs").nodes.len()
}

/// The phases that the server's end of a negotiation went through, with the nodes of each proposal.
fn rounds(world: &World, of: JobId, id: NegotiationId) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for fact in world.facts() {
        let Fact::DialogueChanged { job, dialogue, .. } = fact else { continue };
        if *job != of || dialogue.id() != id {
            continue;
        }
        let line = match dialogue.phase().proposer() {
            Some(by) => format!("{by} {}", dialogue.proposal().map_or(0, |template| template.n_nodes())),
            None => dialogue.phase().to_string(),
        };
        if told.last() != Some(&line) {
            told.push(line);
        }
    }
    told
}

pub(super) fn phase_of(world: &World, of: JobId, id: NegotiationId) -> Option<(Phase, Option<Reason>)> {
    world.facts().iter().rev().find_map(|fact| match fact {
        Fact::DialogueChanged { job, dialogue, .. } if *job == of && dialogue.id() == id => {
            Some((dialogue.phase(), dialogue.reason()))
        }
        _ => None,
    })
}

pub(super) fn grow(quantity: u64, least: u64) -> Ask {
    Ask {
        direction: Direction::Grow,
        what: Asked::Nodes { cluster: None },
        quantity,
        least,
        sizes: Sizes::Any,
        price: Price(0),
        duration: None,
        nodes: Vec::new(),
        wait: Span::ZERO,
    }
}

pub(super) fn shrink(quantity: u64) -> Ask {
    Ask { direction: Direction::Shrink, ..grow(quantity, quantity) }
}

#[test]
fn a_on_2_processors_it_asks_for_2_more_and_has_4() {
    let mut world = cluster_of(8);
    let job = world.submit(rigid(2, hours(1)).runs(mins(10)).negotiates(Manner::between(1, 8).grows(secs(5), 2)));
    world.after(secs(4));
    assert_eq!(n_nodes(&mut world, job), 2);
    world.after(secs(4));
    assert_eq!(n_nodes(&mut world, job), 4);
    assert_eq!(rounds(&world, job, a(1)).last().map(String::as_str), Some("applied"));
    assert_eq!((3..=4).map(|idx| world.alive_on(&format!("a{idx}"))).sum::<usize>(), 2, "processes are there");
    world.after(mins(11));
    world.expect(completed(job));
    world.expect_all_ended();
}

#[test]
fn b_it_asks_for_14_is_offered_6_accepts_and_has_8() {
    let mut world = cluster_of(8);
    let job = world.submit(rigid(2, hours(1)).negotiates(Manner::between(1, 8).grows(secs(5), 14)));
    world.after(secs(10));
    assert_eq!(n_nodes(&mut world, job), 8);
    assert_eq!(rounds(&world, job, a(1))[..2], ["application 14", "RMS 6"]);
    assert_eq!(phase_of(&world, job, a(1)), Some((Phase::Applied, None)));
}

#[test]
fn c_a_malleable_one_on_4_is_offered_4_when_a_rigid_job_ends_and_takes_them_because_8_is_a_power_of_two() {
    let mut world = cluster_of(8);
    world.set("offer_idle", "equal_share");
    let rigid_one = world.submit(rigid(4, mins(2)).runs(mins(1)));
    let malleable = world.submit(rigid(4, hours(1)).negotiates(Manner::between(4, 8).in_powers_of_two()));
    world.after(secs(55));
    assert_eq!(n_nodes(&mut world, malleable), 4);
    world.after(secs(15));
    world.expect(completed(rigid_one));
    assert_eq!(rounds(&world, malleable, r(1)).first().map(String::as_str), Some("RMS 4"));
    assert_eq!(n_nodes(&mut world, malleable), 8);
    assert_eq!(phase_of(&world, malleable, r(1)), Some((Phase::Applied, None)));
}

#[test]
fn d_on_8_it_asks_for_24_is_offered_15_and_takes_8() {
    let mut world = cluster_of(23);
    let manner = Manner::between(1, 23).in_powers_of_two().grows(secs(5), 24);
    let job = world.submit(rigid(8, hours(1)).negotiates(manner));
    world.after(secs(20));
    let told = rounds(&world, job, a(1));
    assert_eq!(told[0], "application 24");
    assert_eq!(n_nodes(&mut world, job), 16, "{told:?}");
    let is_free = |node: u32| {
        world.state().nodes().values().any(|entry| entry.name == format!("a{node}") && entry.holders.is_empty())
    };
    assert!((17..=23).all(is_free), "what it did not take is held no more");
}

#[test]
fn two_that_each_want_the_rest_do_not_block_each_other() {
    let mut world = cluster_of(8);
    // Two nodes are free, and each wants six more at least: none gets them, and none keeps the two from the other.
    let wants_six = Want { least: 4, ..Want::nodes(Direction::Grow, secs(5), 6) };
    let patient = Manner::between(1, 8).wants(wants_six.clone());
    let one = world.submit(rigid(3, hours(1)).runs(mins(5)).negotiates(patient.clone()));
    let other = world.submit(rigid(3, hours(1)).runs(mins(20)).negotiates(patient));
    world.after(secs(30));
    assert_eq!((n_nodes(&mut world, one), n_nodes(&mut world, other)), (3, 3));
    let held: usize = world.state().jobs().values().flat_map(|entry| entry.promised_nodes()).count();
    assert_eq!(held, 0, "what is not enough for anybody is kept for nobody");
    // The time of their proposals is over.
    world.after(mins(2));
    for job in [one, other] {
        let (phase, _) = phase_of(&world, job, a(1)).expect("it has asked");
        assert!(phase.is_over(), "job {job} still negotiates: {phase}");
    }
    world.after(mins(30));
    world.expect(completed(one));
    world.expect(completed(other));
    world.expect_all_ended();
}

#[test]
fn who_waits_for_nodes_gets_them_when_another_leaves() {
    let mut world = cluster_of(8);
    let wants_four = Want { least: 4, valid_for: mins(5), ..Want::nodes(Direction::Grow, secs(5), 4) };
    let waits = world.submit(rigid(3, hours(1)).negotiates(Manner::between(1, 8).wants(wants_four)));
    let leaves = world.submit(rigid(3, hours(1)).runs(mins(2)));
    world.after(mins(1));
    assert_eq!(n_nodes(&mut world, waits), 3);
    world.after(secs(70));
    world.expect(completed(leaves));
    assert_eq!(n_nodes(&mut world, waits), 7);
}

#[test]
fn what_is_offered_is_held_from_a_job_that_waits_for_it() {
    let mut world = cluster_of(8);
    // It thinks about the offer for ten seconds.
    let slow = Manner { thinks: secs(10), ..Manner::between(1, 8).grows(secs(5), 14) };
    let job = world.submit(rigid(2, hours(1)).runs(mins(1)).negotiates(slow));
    world.after(secs(8));
    let late = world.submit(rigid(2, mins(1)).runs(secs(10)));
    world.after(secs(1));
    world.expect(waiting(late));
    world.after(secs(8));
    assert_eq!(n_nodes(&mut world, job), 8, "an accept does not fail for want of nodes");
    world.after(mins(1));
    world.expect(completed(job));
    world.expect(completed(late));
}

#[test]
fn nodes_that_are_given_back_are_free_when_their_processes_are_gone() {
    let mut world = cluster_of(4);
    let job = rigid(4, hours(1)).ignores_term().negotiates(Manner::between(1, 4).shrinks(secs(5), 2));
    let job = world.submit(job);
    let next = world.submit(rigid(2, mins(1)).runs(secs(10)));
    world.after(secs(9));
    assert_eq!(n_nodes(&mut world, job), 2, "it has let go of two");
    world.expect(waiting(next));
    assert_eq!(world.alive_on("a4"), 1, "but its processes do not heed TERM");
    world.after(secs(10));
    world.expect(started(next));
    assert_eq!(phase_of(&world, job, a(1)), Some((Phase::Applied, None)));
}

#[test]
fn who_breaks_a_promise_is_warned_and_loses_the_nodes() {
    let mut world = cluster_of(4);
    world.set("release_grace", "10s");
    let manner = Manner::between(1, 4).shrinks(secs(5), 2).promises(Promises::Breaks);
    let job = world.submit(rigid(4, hours(1)).negotiates(manner));
    world.after(secs(12));
    assert_eq!(n_nodes(&mut world, job), 4, "it has promised, and does not give");
    world.after(secs(10));
    let is_warned = |fact: &Fact| matches!(fact, Fact::PromiseWarned { .. });
    assert!(world.facts().iter().any(is_warned));
    world.after(secs(25));
    assert_eq!(n_nodes(&mut world, job), 2, "they are taken");
    world.expect(started(job));
    let (phase, _) = phase_of(&world, job, a(1)).expect("it has asked");
    assert!(phase.is_over(), "{phase}");
}

#[test]
fn nodes_for_a_time_are_asked_back_when_it_is_over() {
    let mut world = cluster_of(4);
    let borrows = Want { duration: Some(secs(30)), ..Want::nodes(Direction::Grow, secs(5), 2) };
    let job = world.submit(rigid(2, hours(1)).negotiates(Manner::between(1, 4).wants(borrows)));
    world.after(secs(15));
    assert_eq!(n_nodes(&mut world, job), 4);
    world.after(secs(60));
    assert_eq!(n_nodes(&mut world, job), 2);
    world.expect(started(job));
}

#[test]
fn a_process_that_vanishes_in_the_middle_leaks_nothing() {
    for (back_after, remembers) in [(None, false), (Some(secs(3)), false), (Some(secs(3)), true)] {
        let mut world = cluster_of(8);
        let absence = Absence { after: secs(7), back_after, remembers };
        let manner = Manner { thinks: secs(4), absence: Some(absence), ..Manner::between(1, 8).grows(secs(5), 14) };
        let job = world.submit(rigid(2, hours(1)).runs(mins(5)).negotiates(manner));
        world.after(mins(4));
        let held: usize = world.state().jobs().values().flat_map(|entry| entry.promised_nodes()).count();
        assert_eq!(held, 0, "{absence:?}");
        let (phase, _) = phase_of(&world, job, a(1)).expect("it has asked");
        assert!(phase.is_over(), "{absence:?}: {phase}");
        world.after(mins(2));
        world.expect(completed(job));
        world.expect_all_ended();
    }
}

#[test]
fn the_death_of_the_server_at_any_step_of_a_negotiation_is_healed() {
    let points = [
        CrashPoint::BeforeCommit,
        CrashPoint::AfterCommit,
        CrashPoint::AmidEffects(0),
        CrashPoint::AmidEffects(1),
        CrashPoint::AmidEffects(2),
    ];
    for point in points {
        for crash_after in [0, 1, 2, 3, 5, 8, 13, 14, 15, 16, 18, 21, 24, 30, 100, 1_000] {
            let mut world = cluster_of(8);
            let manner = Manner::between(1, 8).grows(secs(2), 14).shrinks(secs(60), 4);
            let job = world.submit(rigid(2, hours(1)).runs(mins(5)).negotiates(manner));
            world.after(secs(3));
            world.after(Span::from_millis(20 + crash_after));
            world.kill_server_in_next_step(point);
            world.after(secs(30));
            if world.has_server() {
                world.kill_server();
            }
            world.restart_server();
            world.after(secs(25));
            world.after(secs(75));
            assert_eq!(n_nodes(&mut world, job), 4, "{point:?} after {crash_after} ms");
            world.after(mins(5));
            world.expect(completed(job));
            world.expect_all_ended();
        }
    }
}

#[test]
fn over_a_bad_channel_it_takes_longer_and_ends_alike() {
    for seed in 0..20 {
        let mut world = WorldBuilder::default().seed(seed).cluster("a", 8).build();
        world.set("offer_idle", "never");
        world.after(secs(1));
        let weather = Weather { loss: 50, twice: 30, slowest: secs(4) };
        let manner = Manner { weather, ..Manner::between(1, 8) };
        let want = Want { valid_for: mins(10), ..Want::nodes(Direction::Grow, secs(5), 14) };
        let job = world.submit(rigid(2, hours(1)).runs(mins(30)).negotiates(manner.wants(want)));
        world.after(mins(15));
        let (phase, reason) = phase_of(&world, job, a(1)).expect("it has asked");
        assert!(phase.is_over(), "seed {seed}: {phase}");
        let expected = if phase == Phase::Applied { 8 } else { 2 };
        assert_eq!(n_nodes(&mut world, job), expected, "seed {seed}: {phase} {reason:?}");
    }
}

#[test]
fn a_user_asks_for_a_task_farm_and_workers_come_and_go() {
    let mut world = cluster_of(8);
    let farm = rigid(2, hours(1)).malleable((1, 8), Sizes::Any, OnResize::Workers);
    let job = world.submit(farm);
    world.after(secs(5));
    let ann = user("ann");
    world.negotiate(&ann, job, grow(4, 2));
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, job), 6);
    let Some(AskOutcome::Ready { quantity: 4, nodes, .. }) = world.outcome_of_ask(job) else {
        panic!("{:?}", world.outcome_of_ask(job))
    };
    assert_eq!(nodes.len(), 4);
    world.negotiate(&ann, job, shrink(5));
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, job), 1);
    assert_eq!((2..=8).map(|idx| world.alive_on(&format!("a{idx}"))).sum::<usize>(), 0, "the workers are gone");
}

#[test]
fn a_hook_that_confirms_keeps_its_time_and_one_that_does_not_is_cut_short() {
    for confirms in [true, false] {
        let mut world = cluster_of(4);
        world.set("release_grace", "10s");
        let job = rigid(4, hours(1)).malleable((1, 4), Sizes::Any, OnResize::Hook("adapt".to_owned()));
        let job = world.submit(if confirms { job.confirms_in(secs(3)) } else { job });
        world.after(secs(5));
        world.negotiate(&user("ann"), job, shrink(2));
        world.after(secs(2));
        assert_eq!((3..=4).map(|idx| world.alive_on(&format!("a{idx}"))).sum::<usize>(), 2, "it may still leave");
        // Three seconds of its own, and those in which its processes may end by themselves.
        world.after(secs(4));
        let is_gone = world.alive_on("a4") == 0;
        assert_eq!(is_gone, confirms);
        world.after(secs(60));
        assert_eq!(n_nodes(&mut world, job), 2);
        assert_eq!(world.alive_on("a4"), 0, "its time is over");
        world.expect(started(job));
    }
}

#[test]
fn an_admin_withdraws_an_offer_and_forces_a_promise() {
    let mut world = cluster_of(8);
    let thinks = Manner { thinks: mins(5), ..Manner::between(1, 8).grows(secs(5), 14) };
    let job = world.submit(rigid(2, hours(1)).negotiates(thinks));
    world.after(secs(10));
    let order = Order::Withdraw;
    world.admin(Call::OrderNegotiation { job, negotiation: a(1), order });
    world.after(secs(1));
    let expected = (Phase::Ended(Ending::Withdrawn), Some(Reason::Administrator));
    assert_eq!(phase_of(&world, job, a(1)), Some(expected));
    let held: usize = world.state().jobs().values().flat_map(|entry| entry.promised_nodes()).count();
    assert_eq!(held, 0);

    let mut world = cluster_of(4);
    let breaks = Manner::between(1, 4).shrinks(secs(5), 2).promises(Promises::Breaks);
    let job = world.submit(rigid(4, hours(1)).negotiates(breaks));
    world.after(secs(8));
    assert_eq!(n_nodes(&mut world, job), 4);
    world.admin(Call::OrderNegotiation { job, negotiation: a(1), order: Order::Force });
    world.after(secs(2));
    assert_eq!(n_nodes(&mut world, job), 2);
    assert!(world.ask(&admin(), Call::OrderNegotiation { job, negotiation: a(1), order: Order::Force }).is_err());
}

#[test]
fn a_node_that_is_lost_while_it_is_offered_fails_the_offer_or_is_replaced() {
    let mut world = cluster_of(8);
    world.set("node_lost_after", "2s");
    let thinks = Manner { thinks: secs(30), ..Manner::between(1, 8) };
    let want = Want { least: 2, valid_for: mins(5), ..Want::nodes(Direction::Grow, secs(5), 14) };
    let job = world.submit(rigid(2, hours(1)).negotiates(thinks.wants(want)));
    world.after(secs(10));
    world.kill_node("a7");
    world.after(mins(2));
    let (phase, reason) = phase_of(&world, job, a(1)).expect("it has asked");
    assert!(phase.is_over());
    assert!(phase == Phase::Applied || reason == Some(Reason::Lost), "{phase} {reason:?}");
    world.expect(started(job));
}

#[test]
fn an_agent_that_dies_while_a_node_that_came_late_is_ended_still_tells_of_it() {
    let mut world = cluster_of(3);
    let job = world.submit(rigid(2, hours(1)).negotiates(Manner::between(1, 3).grows(secs(2), 1)));
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, job), 3);
    world.cancel(job);
    world.after(Span::from_millis(3));
    world.kill_agent("a3");
    world.after(secs(1));
    // It has seen no wish of the server yet, and finds that the processes are gone.
    world.restart_agent("a3");
    world.after(secs(30));
    world.expect_all_ended();
}

#[test]
fn a_job_that_is_done_while_it_waits_for_a_node_that_is_lost_is_done() {
    let mut world = cluster_of(2);
    world.set("node_lost_after", "20s");
    let farm = rigid(1, hours(1)).runs(secs(5)).malleable((1, 2), Sizes::Any, OnResize::Workers);
    let job = world.submit(farm);
    world.after(secs(2));
    world.partition(&["a2"]);
    world.negotiate(&user("ann"), job, grow(1, 1));
    world.after(secs(1));
    assert_eq!(n_nodes(&mut world, job), 2, "nobody has noticed yet that it cannot be reached");
    world.after(mins(1));
    world.expect(completed(job));
    world.heal();
    world.after(secs(30));
    world.expect_all_ended();
}

#[test]
fn e_a_priced_offer_is_haggled_over_until_they_meet_or_do_not() {
    // The server comes down to half its price, the application goes up to its ceiling.
    for (ceiling, meets) in [(70, true), (40, false)] {
        let mut world = cluster_of(8);
        world.set("price", "100");
        world.set("price_floor", "50");
        world.set("offer_idle", "equal_share");
        let answers = Answers::Haggles { step: 5 };
        let manner = Manner { ceiling: Price(ceiling), ..Manner::between(4, 8).answers(answers) };
        let job = world.submit(rigid(4, hours(1)).negotiates(manner));
        world.after(secs(30));
        let told = rounds(&world, job, r(1));
        assert!(told.len() > 3 && told[0] == "RMS 4", "an offer, bids and asks: {told:?}");
        let (phase, reason) = phase_of(&world, job, r(1)).expect("it was offered nodes");
        if meets {
            assert_eq!(phase, Phase::Applied, "{told:?}");
            assert_eq!(n_nodes(&mut world, job), 8);
            let price = agreed_price(&world, job, r(1));
            assert!((50..=70).contains(&price), "{price}");
        } else {
            assert_eq!((phase, reason), (Phase::Ended(Ending::Rejected), Some(Reason::Price)), "{told:?}");
            assert_eq!(n_nodes(&mut world, job), 4);
        }
    }
}

fn agreed_price(world: &World, of: JobId, id: NegotiationId) -> u64 {
    let agreed = world.facts().iter().rev().find_map(|fact| match fact {
        Fact::DialogueChanged { job, dialogue, .. } if *job == of && dialogue.id() == id => dialogue.proposal(),
        _ => None,
    });
    agreed.expect("there was a proposal").items()[0].terms.price.0
}

#[test]
fn f_a_malleable_one_shrinks_for_a_job_of_higher_priority() {
    let mut world = cluster_of(8);
    world.set("shrink_for", "priority");
    let manner = Manner { breakpoint: secs(3), ..Manner::between(2, 8).in_powers_of_two() };
    let malleable = world.submit(rigid(8, hours(2)).negotiates(manner));
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, malleable), 8);
    let urgent = world.submit(rigid(3, mins(10)).runs(mins(1)));
    world.after(secs(15));
    world.expect(waiting(urgent));
    assert_eq!(n_nodes(&mut world, malleable), 8, "it is no more urgent than the other");
    let raised = world.on_job(&admin(), urgent, |select| Call::set_priority(select, 10));
    raised.expect("an admin may");
    world.after(secs(10));
    world.expect(started(urgent));
    assert_eq!(n_nodes(&mut world, malleable), 4, "it needs a power of two, so it gives four where three are asked");
    assert_eq!(phase_of(&world, malleable, r(1)), Some((Phase::Applied, None)));
    // Somebody who is not more urgent asks in vain.
    let other = world.submit(rigid(4, mins(10)));
    world.after(secs(20));
    world.expect(waiting(other));
    assert_eq!(n_nodes(&mut world, malleable), 4);
}

#[test]
fn offers_that_cross_resolve_to_the_one_of_the_server() {
    let mut world = cluster_of(8);
    let rigid_one = world.submit(rigid(4, mins(2)).runs(secs(10)));
    // What both say is on its way when the other one says it.
    let weather = Weather { loss: 0, twice: 0, slowest: secs(3) };
    let manner = Manner { weather, ..Manner::between(2, 8) };
    let want = Want { least: 4, ..Want::nodes(Direction::Grow, secs(9), 4) };
    let job = world.submit(rigid(4, hours(1)).negotiates(manner.wants(want)));
    world.after(secs(9));
    world.set("offer_idle", "equal_share");
    world.after(secs(50));
    world.expect(completed(rigid_one));
    assert_eq!(n_nodes(&mut world, job), 8, "{:?} {:?}", rounds(&world, job, a(1)), rounds(&world, job, r(1)));
}

#[test]
fn who_asks_for_a_job_whose_process_has_talked_of_the_next_number_is_answered() {
    let mut world = cluster_of(4);
    // It says all sorts of things, and is gone for good.
    let absence = Some(Absence { after: secs(20), back_after: None, remembers: false });
    let liar = Manner { lies: 100, absence, ..Manner::between(1, 4) };
    let job = world.submit(rigid(2, hours(1)).negotiates(liar));
    world.after(mins(1));
    for _ in 0..4 {
        let ticket = world.negotiate(&user("ann"), job, grow(1, 1));
        world.after(secs(5));
        assert!(world.is_answered(ticket), "who asks waits for ever");
        world.negotiate(&user("ann"), job, shrink(1));
        world.after(secs(5));
    }
}

#[test]
fn who_declines_is_not_asked_again_at_once_whatever_is_set() {
    let mut world = cluster_of(4);
    world.set("offer_idle", "equal_share");
    world.set("offer_again", "0s");
    world.submit(rigid(2, hours(1)).negotiates(Manner::between(2, 4).answers(Answers::Declines)));
    world.after(mins(1));
    let is_offer = |fact: &&Fact| matches!(fact, Fact::DialogueChanged { dialogue, .. } if dialogue.phase() == Phase::Offered(Side::Rms));
    let n_offers = world.facts().iter().filter(is_offer).count();
    assert!((2..=61).contains(&n_offers), "{n_offers} offers in a minute");
}
