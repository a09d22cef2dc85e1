//! Checks that a sweep reports no difference where settings have no effect or the difference is chance, and reports one
//! where they matter.

use rms_model::{Policy, Time};

use super::*;
use crate::Dice;
use crate::batch::{TraceJobs, uniform_nodes};
use crate::workload::swf::TraceJob;

/// Returns jobs of one node, as (submit, run) in seconds.
fn jobs(times: impl Iterator<Item = (i64, i64)>) -> TraceJobs {
    let job = |(number, (submit, run)): (usize, (i64, i64))| TraceJob {
        number: number as i64,
        submit: Time::from_secs(submit),
        n_nodes: 1,
        n_procs: 1,
        wall: Span::from_secs(run),
        run: Span::from_secs(run),
        user: 1,
    };
    TraceJobs::new(times.enumerate().map(job).collect())
}

fn tuned(sweep: Sweep, settings: &Settings, n_nodes: u32, jobs: &TraceJobs, launchers: Launchers) -> Tuned {
    let nodes = [uniform_nodes(n_nodes, 1)];
    let study = Study::new(sweep, settings, &nodes, jobs, launchers);
    let figures: Vec<Figures> = study.trials().iter().map(|trial| study.run(trial).expect("all jobs end")).collect();
    study.conclude(&figures)
}

fn small(fair_starts: &[i64], timers: &[i64]) -> Sweep {
    let spans = |secs: &[i64]| secs.iter().copied().map(Span::from_secs).collect();
    Sweep { fair_starts: spans(fair_starts), resched_timers: spans(timers), n_resamples: 19, ..Sweep::default() }
}

fn settings(fair_start: i64, timer: i64) -> Settings {
    let (fair_start, resched_timer) = (Span::from_secs(fair_start), Span::from_secs(timer));
    Settings { policy: Policy::Easy, fair_start, resched_timer, ..Settings::default() }
}

/// Returns a job every five minutes that finds more nodes than it needs.
fn idle() -> TraceJobs {
    jobs((0..200).map(|idx| (300 * idx, 60)))
}

/// Returns jobs that queue for one node: each late pass makes all of them wait.
fn crowded() -> TraceJobs {
    let mut dice = Dice::new(5, 1);
    jobs((0..200).map(|idx| (60 * idx + i64::from(dice.number(0, 30)), i64::from(dice.number(20, 70)))))
}

#[test]
fn where_settings_do_nothing_the_answer_is_no_difference() {
    let found = tuned(small(&[0, 10], &[0, 5]), &settings(0, 0), 50, &idle(), Launchers::default());
    assert_eq!(found.answer, Advice::NoDifference, "{found:?}");
    assert_eq!(found.recommended, found.current);
    assert!(found.points.iter().all(|point| point.difference_s == Interval::default()), "{found:?}");
}

#[test]
fn long_where_they_matter_the_better_one_is_found_and_the_current_one_kept_if_it_is_that() {
    let late = tuned(small(&[0], &[0, 30]), &settings(0, 30), 1, &crowded(), Launchers::default());
    assert_eq!((late.answer, late.recommended.resched_timer_s), (Advice::Change, 0.0), "{}", late.reason);
    assert_eq!(late.recommended.verdict, Verdict::Better);
    let difference = late.recommended.difference_s;
    assert!(difference.low < difference.value && difference.value < difference.high && difference.high < 0.0);
    let prompt = tuned(small(&[0], &[0, 30]), &settings(0, 0), 1, &crowded(), Launchers::default());
    assert_eq!((prompt.answer, prompt.recommended), (Advice::Keep, prompt.current), "{}", prompt.reason);
    // The same seeds give the same intervals.
    assert_eq!(tuned(small(&[0], &[0, 30]), &settings(0, 0), 1, &crowded(), Launchers::default()), prompt);
}

#[test]
fn the_delay_is_for_launchers_alone() {
    let sweep = || Sweep { most_waste: 0.9, ..small(&[0, 10], &[0]) };
    let without = tuned(sweep(), &settings(0, 0), 50, &idle(), Launchers::default());
    assert_eq!(without.recommended.fair_start_s, 0.0, "{}", without.reason);
    let with = tuned(sweep(), &settings(0, 0), 50, &idle(), Launchers { known: 3, unknown: 0 });
    assert_eq!((with.answer, with.recommended.fair_start_s), (Advice::Change, 10.0), "{}", with.reason);
    assert_eq!((with.current.unfairness, with.recommended.unfairness), (1.0, 0.0));
}

#[test]
fn the_setting_in_force_is_tried_even_where_nobody_asked() {
    let found = tuned(small(&[0], &[0]), &settings(3, 7), 50, &idle(), Launchers::default());
    assert_eq!((found.points.len(), found.current.fair_start_s, found.current.resched_timer_s), (2, 3.0, 7.0));
}

#[test]
fn a_past_of_few_blocks_says_nothing() {
    let short = jobs((0..40).map(|idx| (idx / 10, 60)));
    let found = tuned(small(&[0], &[0, 30]), &settings(0, 30), 1, &short, Launchers::default());
    assert_eq!((found.answer, found.recommended), (Advice::TooLittle, found.current), "{found:?}");
}

/// Five blocks of less than a minute would be enough of them.
#[test]
fn no_block_is_shorter_than_a_minute_unless_it_is_asked_for() {
    let short = jobs((0..80).map(|idx| (3 * idx, 60)));
    let blocks = Blocks::new(&short, None);
    assert_eq!((blocks.span(), blocks.n_filled()), (Span::from_mins(1), 4));
    let of_seconds = Some(Span::from_secs(10));
    assert_eq!(Blocks::new(&short, of_seconds).n_filled(), 24);
    let found = |block| {
        let sweep = Sweep { block, ..small(&[0], &[0, 30]) };
        tuned(sweep, &settings(0, 30), 1, &short, Launchers::default()).answer
    };
    assert_eq!(found(None), Advice::TooLittle);
    assert_ne!(found(of_seconds), Advice::TooLittle);
}

#[test]
fn a_resample_is_made_of_whole_blocks() {
    let all = crowded();
    let blocks = Blocks::new(&all, None);
    assert_eq!((blocks.span(), blocks.n_filled()), (Span::from_mins(10), 20), "200 minutes are ten of ten and more");
    let drawn = blocks.resample(&all, 7);
    let submits: Vec<Time> = (0..drawn.n_jobs()).map(|idx| drawn.submit(idx)).collect();
    assert!(submits.is_sorted());
    let since = |at: Time| at.since(all.submit(0)).as_millis() % blocks.span().as_millis();
    let known: Vec<(i64, Span)> = (0..all.n_jobs()).map(|idx| (since(all.submit(idx)), all.run(idx))).collect();
    for idx in 0..drawn.n_jobs() {
        assert!(known.contains(&(since(drawn.submit(idx)), drawn.run(idx))), "it keeps its place in its block");
    }
    let again = blocks.resample(&all, 8);
    assert_ne!(
        submits,
        (0..again.n_jobs()).map(|idx| again.submit(idx)).collect::<Vec<_>>(),
        "another seed, another past"
    );
}

/// A difference that the past shows and no resample repeats is an accident of its order, however alike the resamples
/// are.
#[test]
fn a_difference_that_resamples_do_not_repeat_is_none() {
    let resamples = (0..39).map(|idx| 100.0 + 0.1 * f64::from(idx % 7));
    let other: Vec<f64> = std::iter::once(500.0).chain(resamples.clone()).collect();
    let odd: Vec<f64> = std::iter::once(400.0).chain(resamples.map(|wait| wait + 0.01 * (wait - 100.0))).collect();
    let differences = verdict::against(&[other, odd], 0);
    assert_eq!((differences[1].value, differences[1].verdict()), (-100.0, Verdict::NoDifference), "{differences:?}");
}

/// Thirty settings without effect, and noise: counts how often one of them is falsely called better.
#[test]
fn chance_is_rarely_called_a_difference_and_a_real_one_mostly_is() {
    let (mut n_wrong, mut n_found) = (0, 0);
    for seed in 0..200 {
        let mut dice = Dice::new(seed, 3);
        // Sums of dice are approximately normal.
        let mut noise = || (0..12).map(|_| f64::from(dice.number(0, 1000)) / 1000.0).sum::<f64>() - 6.0;
        // All settings see the same pasts; each has some noise of its own.
        let pasts: Vec<f64> = (0..40).map(|_| 100.0 + 20.0 * noise()).collect();
        let mut waits: Vec<Vec<f64>> = (0..30).map(|_| pasts.iter().map(|past| past + noise()).collect()).collect();
        let is_called = |waits: &[Vec<f64>]| {
            verdict::against(waits, 0).iter().any(|difference| difference.verdict() != Verdict::NoDifference)
        };
        n_wrong += usize::from(is_called(&waits));
        waits[17].iter_mut().for_each(|wait| *wait -= 8.0);
        n_found += usize::from(verdict::against(&waits, 0)[17].verdict() == Verdict::Better);
    }
    assert!(n_wrong <= 20, "{n_wrong} of 200 pasts without a difference were said to have one");
    assert!(n_found >= 180, "only {n_found} of 200 differences of 8 s in 20 s of common noise were found");
}

#[test]
fn a_delay_that_is_tried_holds_for_clusters_with_their_own_too() {
    let mut settings = settings(0, 0);
    settings.set("fair_start@c", "1s").expect("for one");
    let launchers = Launchers { known: 3, unknown: 0 };
    let found = tuned(small(&[0, 60], &[0]), &settings, 50, &idle(), launchers);
    let [in_force, tried] = &found.points[..] else { panic!("two: {found:?}") };
    assert!(in_force.ghost_node_s > 0.0, "its own delay is in force: {found:?}");
    assert!(tried.ghost_node_s > 10.0 * in_force.ghost_node_s, "{found:?}");
}
