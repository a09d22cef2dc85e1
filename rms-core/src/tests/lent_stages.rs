//! CPUs lent beside jobs with a profile, and by them (000 and 004).

use rms_api::Call;
use rms_model::{ExpandLimit, JobId, Span, Time};

use super::World;
use super::evolving::profile;
use super::lending::lending_on;
use crate::Event;
use crate::state::job::Job;
use test_kit::{Dice, for_seeds};

/// Creates nodes of four cores each.
fn lending(allocation: &str, n_nodes: u32) -> World {
    lending_on(allocation, n_nodes, 4)
}

#[test]
fn nobody_lends_so_long_that_a_promised_stage_would_be_late() {
    for allocation in ["nodes", "cores"] {
        for (mins, may_borrow) in [(10, true), (15, false)] {
            let mut world = lending(allocation, 2);
            let mate = world.asks_to_share(1, 50, true);
            let evolving = world.evolving("1x1h,2x30m", ExpandLimit::NONE);
            assert!([mate, evolving].into_iter().all(|job| world.is_started(job)), "{allocation}");
            // On half of the cores it takes twice as long, and its mate takes so much longer.
            let guest = world.asks_to_share(1, mins, true);
            assert_eq!(world.is_started(guest), may_borrow, "{allocation}: {mins} minutes");
            for job in [may_borrow.then_some(guest), Some(mate)].into_iter().flatten() {
                world.until(world.wall(job).as_millis() / 1000);
                world.is_done(job);
            }
            world.until(3660);
            assert_eq!(world.held(evolving).len(), 2, "{allocation}: {mins} minutes");
        }
    }
}

#[test]
fn a_guest_that_lends_keeps_no_promised_stage_waiting_behind_its_mate() {
    for (mins, may_lend) in [(60, true), (40, false)] {
        let mut world = lending("nodes", 2);
        world.set("max_slowdown", "infinite");
        world.set("max_sharers", "3");
        let mate = world.asks_to_share(1, 30, true);
        let evolving = world.evolving(&format!("1x{mins}m,2x30m"), ExpandLimit::NONE);
        let guest = world.asks_to_share(1, 10, true);
        [mate, guest].into_iter().for_each(|job| drop(world.runs("n1", job, true)));
        assert_eq!((world.is_started(evolving), world.wall(mate)), (true, Span::from_mins(40)));
        let second = world.asks_to_share(1, 2, true);
        assert_eq!(
            (world.is_started(second), world.lender_of(second).contains(&guest)),
            (may_lend, may_lend),
            "{mins}"
        );
        assert_eq!(world.wall(mate) > Span::from_mins(40), may_lend, "{mins}");
    }
}

impl World {
    fn evolving_that_shares(&mut self, text: &str, open: bool) -> JobId {
        self.submit_with(|submission| {
            submission.evolving = Some(profile(text, ExpandLimit::NONE, open));
            submission.resources.share = true;
        })
    }
}

#[test]
fn a_job_with_a_profile_lends_in_its_last_stage() {
    for (allocation, open) in [("nodes", false), ("cores", false), ("nodes", true), ("cores", true)] {
        let mut world = lending(allocation, 2);
        let owner = world.evolving_that_shares("1x10m,2x1h", open);
        world.until(1);
        let guest = world.asks_to_share(2, 20, true);
        world.until(599);
        assert!(!world.is_started(guest), "{allocation}: its mate would miss its next stage");
        world.until(601);
        assert_eq!((world.held(owner).len(), world.is_started(guest)), (2, !open), "{allocation}");
        if open {
            continue;
        }
        assert_eq!((world.n_cores(owner), world.n_cores(guest)), (vec![2, 2], vec![2, 2]), "{allocation}");
        assert_eq!((world.wall(owner), world.wall(guest)), (Span::from_mins(90), Span::from_mins(40)), "{allocation}");
        assert_eq!(world.starts(owner), [Some(600)], "{allocation}");

        let stages = "2x10m,1x1h".parse().expect("a profile");
        let other = Call::Evolve { job: owner, stages, open: false };
        let refusal = world.try_ask(other.clone()).expect_err("it lends").to_string();
        assert!(refusal.contains("it lends CPUs at present"), "{refusal}");
        world.until(3000);
        world.is_done(guest);
        assert_eq!((world.n_cores(owner), world.wall(owner)), (vec![4, 4], Span::from_mins(90)), "{allocation}");
        world.try_ask(other).expect("it has all its CPUs");
        assert_eq!(world.starts(owner), [Some(3000), Some(3600)], "{allocation}");
        let guest = world.asks_to_share(2, 20, true);
        world.until(3599);
        assert!(!world.is_started(guest), "{allocation}: its stage is not the last one any more");
    }
}

impl World {
    fn shares_or_evolves(&mut self, dice: &mut Dice) -> JobId {
        let share = dice.chance(80);
        match dice.number(0, 2) {
            0 => {
                let stage = |dice: &mut Dice| format!("{}x{}m", dice.number(1, 3), dice.number(2, 30));
                let stages: Vec<String> = (0..dice.number(1, 3)).map(|_| stage(dice)).collect();
                match share {
                    true => self.evolving_that_shares(&stages.join(","), false),
                    false => self.evolving(&stages.join(","), ExpandLimit::NONE),
                }
            }
            _ => self.asks_to_share(dice.number(1, 3), dice.number(1, 40).into(), share),
        }
    }

    /// Lets time pass until `secs`. All jobs end at their limits at the latest.
    fn passes(&mut self, secs: i64) {
        let (begin, until) = (Time::from_secs(1_000_000), Time::from_secs(1_000_000 + secs));
        let limit = |entry: &Job| entry.started().map(|started| started.at + started.request.wall);
        while self.now < until {
            let stages = self.rms.state().next_stages().map(|(at, _)| at).next();
            let limits = self.rms.state().jobs().values().filter_map(limit);
            let next = limits.chain(stages).filter(|at| *at > self.now).min().unwrap_or(until).min(until);
            self.until((next.since(begin).as_millis() + 999) / 1000);
            let jobs = self.rms.state().jobs();
            let is_over = |(_, entry): &(_, &Job)| limit(entry).is_some_and(|limit| limit <= self.now);
            let over: Vec<JobId> = jobs.iter().filter(is_over).map(|(job, _)| *job).collect();
            over.into_iter().for_each(|job| self.is_done(job));
            self.event(Event::Tick);
            let late = self.rms.state().next_stages().find(|(at, job)| *at <= self.now && !self.has_ended(*job));
            assert_eq!(late, None, "at {secs} s");
        }
    }
}

#[test]
fn stages_begin_in_time_whoever_lends() {
    let mut n_loans = [0, 0];
    for_seeds("stages_begin_in_time_whoever_lends", 40, |dice| {
        let allocation = ["nodes", "cores"][dice.number(0, 1) as usize];
        let mut world = lending(allocation, 4);
        world.set("max_slowdown", "infinite");
        world.set("release_grace", "0s");
        world.set("mix_free_nodes", ["no", "yes"][dice.number(0, 1) as usize]);
        world.set("max_sharers", ["2", "3"][dice.number(0, 1) as usize]);
        let mut secs = 0;
        for _ in 0..40 {
            let job = world.shares_or_evolves(dice);
            secs += i64::from(dice.number(0, 600));
            world.passes(secs);
            let mates = world.lender_of(job);
            let has_profile = |job: &JobId| world.rms.state().jobs()[job].spec.evolving.is_some();
            n_loans[0] += mates.len();
            n_loans[1] += mates.iter().filter(|mate| has_profile(mate)).count();
        }
    });
    println!("{n_loans:?}");
    assert!(n_loans[0] > 40 && n_loans[1] > 4, "{n_loans:?}");
}
