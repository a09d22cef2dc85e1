//! Tests small workloads with known results.

use rms_model::Time;

use super::*;

fn job(submit: i64, n_nodes: u32, wall: i64, run: i64) -> TraceJob {
    let (wall, run) = (Span::from_secs(wall), Span::from_secs(run));
    TraceJob { number: 0, submit: Time::from_secs(submit), n_nodes, n_procs: n_nodes * 4, wall, run, user: 1 }
}

fn study() -> Study {
    let estimate = RuntimeModel::Worst;
    Study { n_nodes: 2, cores_per_node: 4, queue_depth: 0, interval: Span::ZERO, estimate, seed: 1 }
}

fn run(jobs: &[TraceJob], variant: Variant) -> Summary {
    study().run(jobs, variant, |_| {}).expect("all jobs end")
}

fn secs(summary: &Summary) -> Vec<(i64, i64)> {
    let times = |job: &rms_sim::batch::Finished| (job.started.as_millis() / 1000, job.ended.as_millis() / 1000);
    summary.finished.iter().flatten().map(times).collect()
}

#[test]
fn a_short_job_begins_inside_a_long_one() {
    let jobs = [job(0, 2, 1000, 1000), job(10, 2, 100, 100)];
    let fixed = run(&jobs, Variant::fixed());
    assert_eq!(secs(&fixed), [(0, 1000), (1000, 1100)]);
    let shared = run(&jobs, Variant::default());
    // The guest has half of the cores for 200 s, in which its mate runs at half its speed: it ends 100 s later than
    // alone.
    assert_eq!(secs(&shared), [(0, 1100), (10, 210)]);
    let measured = Measured::new(&shared, &fixed);
    assert_eq!((measured.guests, measured.mates), (1, 1));
    assert_eq!(measured.later, 0.5);
    assert_eq!(measured.worst_delay_s, 100.0);
    assert_eq!(measured.worst_ratio, 1.1);
    assert_eq!(measured.figures.mean_slowdown, (1.1 + 2.0) / 2.0);
    let day = days(&shared, &fixed);
    assert_eq!(day, [Day { jobs: 2, static_slowdown: (1.0 + 10.9) / 2.0, slowdown: (1.1 + 2.0) / 2.0, guests: 1 }]);
    let cells = categories(&shared, &fixed);
    let short = cells[1][0].expect("two nodes, up to five minutes");
    assert_eq!((short.jobs, short.slowdown, short.run_time, short.wait), (1, 10.9 / 2.0, 0.5, None));
    let long = cells[1][1].expect("two nodes, up to half an hour");
    assert_eq!((long.jobs, long.run_time, long.wait), (1, 1000.0 / 1100.0, Some(1.0)));
}

#[test]
fn a_guest_may_use_free_nodes_beside_its_mates() {
    // One of two nodes is free; a job of two nodes waits for the other one, or shares it.
    let jobs = [job(0, 1, 1000, 1000), job(10, 2, 100, 100)];
    assert_eq!(secs(&run(&jobs, Variant::default())), [(0, 1000), (1000, 1100)]);
    let mixed = run(&jobs, Variant { mix_free_nodes: true, ..Variant::default() });
    // By the ideal model: three quarters of its cores, until the work of 100 s is done.
    assert_eq!(mixed.finished[1].map(|job| (job.started, job.was_guest)), Some((Time::from_secs(10), true)));
}

#[test]
fn the_whole_queue_is_considered_at_each_event() {
    // A pass every 30 s over one job leaves the short one behind the large one.
    let jobs = [job(0, 1, 1000, 1000), job(10, 2, 100, 100), job(11, 1, 100, 100)];
    let study = Study { queue_depth: 1, interval: Span::from_secs(30), ..study() };
    let easy = Variant { policy: Policy::Easy, ..Variant::fixed() };
    let starts = |variant| study.run(&jobs, variant, |_| {}).expect("all jobs end").finished[2].map(|job| job.started);
    assert_eq!(starts(easy), Some(Time::from_secs(1100)));
    assert_eq!(starts(Variant { whole_queue: true, ..easy }), Some(Time::from_secs(11)));
}

#[test]
fn a_day_has_the_submits_and_the_starts_on_it() {
    // The pass that lets the guest begin is a day after the first one, and the guest was submitted before that.
    let day = 24 * 3600;
    let jobs = [job(0, 2, 2 * day, 2 * day), job(day - 10, 2, 100, 100)];
    let study = Study { interval: Span::from_secs(day), ..study() };
    let run = |variant| study.run(&jobs, variant, |_| {}).expect("all jobs end");
    let days = days(&run(Variant::default()), &run(Variant::fixed()));
    assert_eq!(days.iter().map(|day| (day.jobs, day.guests)).collect::<Vec<_>>(), [(2, 0), (0, 1)]);
}

#[test]
fn what_is_learned_of_a_user_lets_a_guest_begin() {
    // Twice 100 s of the 1000 s that were requested: the fourth is planned with 100 s, and fits inside the third.
    let past = [job(0, 2, 1000, 100), job(0, 2, 1000, 100)];
    let owner = TraceJob { user: 2, ..job(200, 2, 900, 900) };
    let jobs = [past[0], past[1], owner, job(210, 2, 1000, 100)];
    let learned = Variant { run_times: RunTimes::LastTwo, ..Variant::default() };
    assert_eq!(secs(&run(&jobs, Variant::default()))[2..], [(200, 1100), (1100, 1200)]);
    assert_eq!(secs(&run(&jobs, learned))[2..], [(200, 1200), (210, 410)]);
}

#[test]
fn an_estimate_that_is_exceeded_is_raised_and_nobody_is_killed() {
    // The third is planned with 10 s, then with a minute and five minutes more, and runs for 200 s; the fourth is
    // planned after it, by EASY before the fifth.
    let jobs = [job(0, 2, 1000, 10), job(10, 2, 1000, 10), job(20, 2, 1000, 200), job(30, 1, 1000, 500)];
    let learned = Variant { run_times: RunTimes::LastTwo, ..Variant::fixed() };
    assert_eq!(secs(&run(&jobs, learned)), [(0, 10), (10, 20), (20, 220), (220, 720)]);
}

#[test]
fn all_jobs_run_as_long_as_they_do_whatever_is_learned() {
    test_kit::for_seeds("all_jobs_run_as_long_as_they_do_whatever_is_learned", 20, |dice| {
        let mut jobs: Vec<TraceJob> = Vec::new();
        for _ in 0..60 {
            let run = i64::from(dice.number(1, 900));
            let wall = run + i64::from(dice.number(0, 9000));
            let user = dice.number(1, 4).into();
            jobs.push(TraceJob { user, ..job(dice.number(0, 9000).into(), dice.number(1, 2), wall, run) });
        }
        jobs.sort_by_key(|job| job.submit);
        let policy = dice.one_of(&[Policy::Slowdown, Policy::Easy, Policy::Conservative]);
        let cut_off = dice.one_of(&[MaxSlowdown::Infinite, Variant::fixed().cut_off]);
        let variant = Variant { policy, cut_off, run_times: RunTimes::LastTwo, ..Variant::default() };
        for (job, ran) in jobs.iter().zip(run(&jobs, variant).finished) {
            let ran = ran.expect("it ran");
            let has_shared = ran.was_guest || ran.was_mate;
            assert!(ran.run() == job.run || has_shared && ran.run() > job.run, "{variant:?} {job:?} {ran:?}");
        }
    });
}

#[test]
fn nobody_is_slowed_who_did_not_opt_in() {
    let jobs: Vec<TraceJob> =
        (0..200).map(|idx| job(idx * 7 % 400 + idx, 1 + (idx % 2) as u32, 900, 30 + idx * 4)).collect();
    let mut jobs = jobs;
    jobs.sort_by_key(|job| job.submit);
    for (pct, seed) in [(0, 1), (30, 2), (60, 3)] {
        let variant = Variant { malleable_pct: pct, cut_off: MaxSlowdown::Infinite, ..Variant::default() };
        let study = Study { seed, ..study() };
        let summary = study.run(&jobs, variant, |_| {}).expect("all jobs end");
        let shares = SharedJobs::new(&jobs, pct, seed);
        let mut n_guests = 0;
        for (idx, ran) in summary.finished.iter().enumerate() {
            let ran = ran.expect("it ran");
            n_guests += usize::from(ran.was_guest);
            if !shares.shares(idx) {
                assert!(!ran.was_guest && !ran.was_mate, "seed {seed}: job {idx} did not opt in");
                assert_eq!(ran.run(), jobs[idx].run, "seed {seed}: job {idx} did not opt in, and is slowed");
            }
        }
        assert_eq!(n_guests > 0, pct > 0, "seed {seed}: {n_guests} guests among {pct} % of jobs");
        if pct == 0 {
            assert_eq!(summary.finished, run(&jobs, Variant::fixed()).finished, "as if nobody could share");
        }
    }
}

#[test]
fn only_what_the_paper_prints_stands_beside() {
    assert_eq!(Paper::W3.fixed().makespan, Some(407_043.0));
    assert_eq!(Paper::W4.shared(&Variant::default()).guests, Some(20_476));
    let worst = Variant { model: RuntimeModel::Worst, ..Variant::default() };
    assert_eq!(Paper::W4.shared(&worst), Printed::default());
    assert_eq!(Paper::W1.shared(&Variant::default()), Printed::default());
}
