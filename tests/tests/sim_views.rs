//! The evaluation of 001 in simulation: a tiny part of it gives the same bytes again, and its claims hold where they did.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rms_sim::views::{Case, Effort, Figure, Logs, Report, Values};

fn report(figure: Figure, effort: Effort) -> Report {
    let logs = Logs::default();
    let cases = figure.cases(effort);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut ran: Vec<(Case, Values)> = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            ran.push((*case, case.run(&logs, &mut || Duration::ZERO).expect("every application can be run")));
        }
        ran
    };
    let n_threads = std::thread::available_parallelism().map_or(1, Into::into);
    let ran = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no run panics")).collect::<Vec<_>>()
    });
    Report::new(figure, effort, &ran)
}

fn json(figure: Figure, effort: Effort) -> String {
    serde_json::to_string(&report(figure, effort)).expect("a report is plain numbers")
}

const QUICK: Effort = Effort { n_seeds: 1, first_seed: 1, quick: true };

#[test]
fn the_same_seed_gives_the_same_bytes_on_however_many_threads() {
    for figure in [Figure::Eight, Figure::Ten] {
        assert_eq!(json(figure, QUICK), json(figure, QUICK), "figure {figure}");
    }
    assert_ne!(json(Figure::Eight, QUICK), json(Figure::Eight, Effort { first_seed: 2, ..QUICK }));
}
