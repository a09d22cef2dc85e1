//! Mates found by trying every set of running jobs, compared with the server's choice.

use std::collections::BTreeSet;

use rms_api::Call;
use rms_api::call::{Nodes, Select, Shape};
use rms_model::{Inventory, JobId, Outcome, Span, Time};

use super::World;
use super::lending::lending_on;
use crate::Event;
use crate::plan::slowdown::{Fraction, Mate, Wanted, select};
use crate::state::State;
use crate::state::job::Job;
use test_kit::{Dice, for_seeds};

const CORES: u32 = 4;

/// A running job, as the rules see it (D5 and D6 of the vectors' rules).
struct Runs {
    job: JobId,
    /// The job's cores on each of its nodes.
    cores: Vec<u32>,
    /// From its submission to its limit.
    in_system: i64,
    requested: i64,
    /// What is left of its work, in core-milliseconds, and how much of it is done in a millisecond now.
    left: i64,
    rate: i64,
    /// The jobs that lend cores to it, and their rates once it has ended.
    owners: Vec<(Runs, i64)>,
}

impl Runs {
    fn of(state: &State, now: Time, job: JobId) -> Option<Runs> {
        let entry = state.jobs().get(&job)?;
        let started = entry.started()?;
        let wall = started.request.wall;
        let cores: Vec<u32> = state.cores_of(entry).map(|share| share.has).collect();
        let n_asked = cores.len() as u64 * u64::from(CORES);
        let (requested, done) = match entry.sharing() {
            Some(sharing) => (sharing.requested, sharing.done_at(now)),
            None => (wall, n_asked * now.since(started.at).as_millis() as u64),
        };
        let owner = |owner: JobId| {
            let owner = Runs::of(state, now, owner)?;
            let lent = &state.jobs()[&owner.job].sharing()?.lent;
            let nodes = state.jobs()[&owner.job].nodes().iter();
            let whole = |(node, cores): (_, &u32)| cores + lent.get(node).map_or(0, |loan| loan.cores.len());
            let alone = slowest(nodes.zip(&owner.cores).map(whole));
            Some((owner, alone))
        };
        Some(Runs {
            job,
            in_system: secs((started.at + wall).since(entry.submitted)),
            requested: secs(requested),
            left: requested.as_millis() * n_asked as i64 - done as i64,
            rate: slowest(cores.iter().copied()),
            owners: entry
                .sharing()
                .map(|sharing| sharing.owners())
                .unwrap_or_default()
                .into_iter()
                .filter_map(owner)
                .collect(),
            cores,
        })
    }

    /// Returns how many jobs share its cores, including itself.
    fn n_sharers(&self) -> u32 {
        1 + self.owners.iter().map(|(owner, _)| owner.n_sharers()).max().unwrap_or(0)
    }

    /// Returns the job and all jobs that lend cores to it, directly or not.
    fn all(&self) -> Vec<&Runs> {
        let above = self.owners.iter().flat_map(|(owner, _)| owner.all());
        std::iter::once(self).chain(above).collect()
    }

    /// Returns whether the job runs for `span` milliseconds at this rate, and those that lend cores to it until it
    /// ends.
    fn outlasts(&self, span: i64, rate: i64, alone: i64) -> bool {
        let rest = self.left - rate * span;
        let end = || span + (rest + alone * 1000 - 1) / (alone * 1000) * 1000;
        rest >= 0 && self.owners.iter().all(|(owner, alone)| owner.outlasts(end(), owner.rate, *alone))
    }
}

/// The node with the fewest cores sets the pace of all.
fn slowest(cores: impl ExactSizeIterator<Item = u32> + Clone) -> i64 {
    cores.len() as i64 * i64::from(cores.min().unwrap_or(0))
}

fn secs(span: Span) -> i64 {
    span.as_millis() / 1000
}

/// Returns running jobs that opted in and have lent nothing, on cores that fewer than `most_sharers` share.
fn lenders(state: &State, now: Time, most_sharers: u32) -> Vec<Runs> {
    let may_lend = |entry: &Job| {
        let is_settled = entry.started().is_some_and(|started| started.ending.is_none());
        entry.spec.resources.share && is_settled && entry.sharing().is_none_or(|sharing| sharing.lent.is_empty())
    };
    let lenders = state.jobs().iter().filter(|(_, entry)| may_lend(entry));
    lenders.filter_map(|(job, _)| Runs::of(state, now, *job)).filter(|job| job.n_sharers() < most_sharers).collect()
}

/// Returns when enough nodes are free if no other job starts.
fn static_start(state: &State, now: Time, n_nodes: u32) -> Time {
    let mut free_at: Vec<Time> = state
        .nodes()
        .keys()
        .map(|node| {
            let on_it = state.jobs().values().filter(|entry| entry.nodes().contains(node));
            let limits = on_it.filter_map(|entry| entry.started()).map(|started| started.at + started.request.wall);
            limits.max().unwrap_or(now)
        })
        .collect();
    free_at.sort_unstable();
    free_at[n_nodes as usize - 1]
}

/// Returns the best set by D7 with half of the cores lent, or nothing. All slowed jobs count.
fn best_set(lenders: &[Runs], guest: (u32, i64), cut_off: i64, most: usize, waits: i64) -> Option<BTreeSet<JobId>> {
    let (n_nodes, wall) = guest;
    let mut best: Option<(Fraction, usize, Vec<JobId>)> = None;
    for set in 1_u32..1 << lenders.len() {
        let chosen: Vec<&Runs> =
            (0..lenders.len()).filter(|idx| set >> idx & 1 == 1).map(|idx| &lenders[idx]).collect();
        let lent = || chosen.iter().flat_map(|mate| &mate.cores).map(|cores| cores / 2);
        let fewest = i64::from(lent().min().unwrap_or(0));
        if chosen.len() > most || lent().count() != n_nodes as usize || fewest == 0 {
            continue;
        }
        let took = wall * i64::from(CORES) / fewest;
        let ends_inside = |mate: &&Runs| {
            let rate = slowest(mate.cores.iter().map(|cores| cores - cores / 2));
            mate.outlasts(took * 1000, rate, slowest(mate.cores.iter().copied()))
        };
        let slowed = || chosen.iter().flat_map(|mate| mate.all());
        let is_right = chosen.iter().all(ends_inside)
            && slowed().all(|job| job.in_system + wall < cut_off * job.requested)
            && waits + wall > took;
        if !is_right {
            continue;
        }
        let penalty =
            |job: &Runs| Fraction::new((job.in_system + wall).into(), job.requested.into()).expect("positive");
        let sum = slowed().map(penalty).try_fold(Fraction::ZERO, Fraction::plus).expect("small");
        let found = (sum, chosen.len(), chosen.iter().map(|mate| mate.job).collect());
        if best.as_ref().is_none_or(|best| found < *best) {
            best = Some(found);
        }
    }
    best.map(|(_, _, jobs)| jobs.into_iter().collect())
}

fn submit(world: &mut World, (n_nodes, wall): (u32, i64), share: bool) -> JobId {
    world.submit_with(|submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(wall)) }];
        submission.n_tasks = Some(n_nodes);
        submission.resources.share = share;
    })
}

#[test]
fn the_mates_of_a_guest_are_the_best_of_all_sets() {
    let (mut n_guests, mut n_inner, mut n_alone) = (0, 0, 0);
    for_seeds("the_mates_of_a_guest_are_the_best_of_all_sets", 100, |dice| {
        let mut world = World::new();
        for number in 1..=6 {
            world.joins(
                &format!("n{number}"),
                Inventory { cores: CORES, cpus: CORES, ..Inventory::default() },
                Vec::new(),
            );
        }
        let (most, cut_off, most_sharers) = (dice.number(1, 3), dice.number(2, 12), dice.number(2, 4));
        world.set("policy", "slowdown");
        world.set("max_mates", &most.to_string());
        world.set("max_slowdown", &cut_off.to_string());
        world.set("max_sharers", &most_sharers.to_string());
        for _ in 0..40 {
            world.now += Span::from_secs(dice.number(0, 60).into());
            some_end(&mut world, dice);
            let wall = if dice.chance(50) { dice.number(1, 400) } else { dice.number(1, 30) };
            let guest = (dice.number(1, 3), i64::from(wall));
            let share = dice.chance(90);
            let state = world.rms.state();
            let starts = static_start(state, world.now, guest.0);
            let waits = secs(starts.since(world.now));
            let expected = match share && waits > 0 {
                true => best_set(&lenders(state, world.now, most_sharers), guest, cut_off.into(), most as usize, waits),
                false => None,
            };
            let job = submit(&mut world, guest, share);
            let entry = &world.rms.state().jobs()[&job];
            let owners = entry.sharing().map(|sharing| sharing.owners()).filter(|owners| !owners.is_empty());
            assert_eq!(owners, expected, "job {job} of {guest:?}, up to {most} mates below {cut_off}");
            n_guests += usize::from(expected.is_some());
            let is_inner = |owner: &JobId| {
                !world.rms.state().jobs()[owner].sharing().is_none_or(|sharing| sharing.mates.is_empty())
            };
            n_inner += usize::from(expected.is_some_and(|owners| owners.iter().any(is_inner)));
            if entry.started().is_none() {
                n_alone += 1;
                // No job waits when the next one comes.
                world.ask(Call::Cancel { select: Select::Ids(vec![job]) });
            }
        }
    });
    println!("{n_guests} guests, {n_inner} of them inside guests, {n_alone} for whom there were no mates");
    assert!(n_guests > 0 && n_inner > 0 && n_alone > 0, "{n_guests} guests, {n_alone} without mates");
}

fn some_end(world: &mut World, dice: &mut Dice) {
    let running: Vec<JobId> =
        world.rms.state().jobs().iter().filter(|(_, entry)| entry.started().is_some()).map(|(job, _)| *job).collect();
    for job in running {
        let entry = &world.rms.state().jobs()[&job];
        let limit = entry.started().map(|started| started.at + started.request.wall);
        let is_over = limit.is_some_and(|limit| limit <= world.now);
        if is_over || dice.chance(8) {
            let run = entry.run;
            world.event(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
        }
    }
}

/// The cost of 004's `nm` where there are many candidates: all sets of two against those of the best few.
#[test]
fn looking_at_the_best_few_alone_costs_little() {
    let (mut n_found, mut n_missed, mut excess, mut most) = (0, 0, 0.0, 1.0_f64);
    for_seeds("looking_at_the_best_few_alone_costs_little", 200, |dice| {
        let mate = |id, dice: &mut Dice| Mate {
            id,
            penalty: Fraction::new(dice.number(100, 5000).into(), 100).expect("positive"),
            weight: dice.number(1, 16),
        };
        let mates: Vec<Mate> = (1..=100).map(|id| mate(id, dice)).collect();
        let wanted = Wanted { weight: dice.number(1, 24), max_slowdown: None, most_mates: 2, most_candidates: None };
        let Some(all) = select(&mates, wanted, |_| true) else { return };
        match select(&mates, Wanted { most_candidates: Some(20), ..wanted }, |_| true) {
            None => n_missed += 1,
            Some(few) => {
                let ratio = |(numerator, denominator): (i128, i128)| numerator as f64 / denominator as f64;
                let times = ratio(few.impact.parts()) / ratio(all.impact.parts());
                assert!(times >= 1.0, "{times}: no choice is better than the best of all");
                n_found += 1;
                excess += times - 1.0;
                most = most.max(times);
            }
        }
    });
    println!(
        "20 of 100 candidates: {n_missed} sets missed of {}, the others {:.3} worse in the mean, {most:.2} times at most",
        n_found + n_missed,
        excess / f64::from(n_found.max(1))
    );
}

/// Of two or three jobs that run, one has waited for none of its time, the others for two and a half times theirs.
#[test]
fn the_cut_off_may_be_the_mean_or_a_percentile_of_running_jobs() {
    for (n_late, cut_off, may_borrow) in [
        (1, "mean", true),
        (1, "median", false),
        (1, "p70", true),
        (2, "median", true),
        (0, "mean", false),
        (0, "p70", false),
    ] {
        let mut world = lending_on("nodes", 1 + n_late.max(1), CORES);
        world.set("max_slowdown", cut_off);
        let mate = world.asks_to_share(1, 120, true);
        let mins = if n_late == 0 { 200 } else { 50 };
        let first: Vec<JobId> = (0..n_late.max(1)).map(|_| world.asks_to_share(1, mins, false)).collect();
        let late: Vec<JobId> = (0..n_late).map(|_| world.asks_to_share(1, 20, false)).collect();
        world.now += Span::from_mins(50);
        if n_late > 0 {
            first.into_iter().for_each(|job| world.is_done(job));
        }
        assert!(late.iter().all(|job| world.is_started(*job)), "{cut_off}");
        let guest = world.asks_to_share(1, 10, true);
        assert_eq!(world.is_started(guest), may_borrow, "{n_late} late, {cut_off}");
        assert_eq!(world.lender_of(guest).contains(&mate), may_borrow, "{n_late} late, {cut_off}");
    }
}

#[test]
fn a_moldable_job_tries_all_sizes_without_mates_first() {
    for two_lend in [false, true] {
        let mut world = lending_on("nodes", 2, CORES);
        world.set("max_slowdown", "infinite");
        let owner = world.asks_to_share(1, 120, true);
        let molds = |world: &mut World, share: bool| {
            let shape = |nodes, mins| Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_mins(mins)) };
            world.submit_with(|submission| {
                submission.shapes = vec![shape(2, 10), shape(1, 90)];
                submission.resources.share = share;
            })
        };
        let alone = molds(&mut world, two_lend);
        assert_eq!((world.n_cores(alone), world.lender_of(alone)), (vec![CORES], Vec::new()), "a node is free");
        let guest = molds(&mut world, true);
        match two_lend {
            true => assert_eq!((world.n_cores(guest), world.lender_of(guest)), (vec![2, 2], vec![owner, alone])),
            false => assert!(!world.is_started(guest), "one node takes it as long there as the wait for two"),
        }
    }
}

#[test]
fn a_cluster_may_have_limits_of_its_own_for_mates() {
    let starts = |settings: &[(&str, &str)]| {
        let mut world = lending_on("nodes", 2, CORES);
        world.set("max_slowdown", "infinite");
        settings.iter().for_each(|(key, value)| world.set(key, value));
        let mates = [120, 120].map(|mins| world.asks_to_share(1, mins, true));
        let guest = world.asks_to_share(2, 10, true);
        for (node, mate) in ["n1", "n2"].into_iter().zip(mates) {
            [mate, guest].into_iter().for_each(|job| drop(world.runs(node, job, true)));
        }
        let inside = world.asks_to_share(2, 1, true);
        [guest, inside].map(|job| world.is_started(job))
    };
    assert_eq!(starts(&[]), [true, false]);
    assert_eq!(starts(&[("max_mates@c", "1")]), [false, false]);
    assert_eq!(starts(&[("max_mates", "1"), ("max_mates@c", "2")]), [true, false]);
    assert_eq!(starts(&[("max_sharers@c", "3")]), [true, true], "the second one is inside the first");
    assert_eq!(starts(&[("max_candidates@c", "1")]), [false, false], "one is not enough");
}
