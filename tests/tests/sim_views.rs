//! The evaluation of 001 in simulation: a tiny part of it gives the same bytes again, and its claims hold where they did.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use experiments::delegated;
use experiments::views::{Assumption, Case, Effort, Figure, Logs, Report, Values};

fn report(figure: Figure, effort: Effort) -> Report {
    let logs = Logs::of(&delegated::first_log(), None);
    let cases = figure.cases(effort, None);
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
fn long_the_same_seed_gives_the_same_bytes_on_however_many_threads() {
    for figure in [Figure::Eight, Figure::Ten] {
        assert_eq!(json(figure, QUICK), json(figure, QUICK), "figure {figure}");
    }
    assert_ne!(json(Figure::Eight, QUICK), json(Figure::Eight, Effort { first_seed: 2, ..QUICK }));
}

/// One run of a whole figure.
fn values(figure: Figure, series_idx: usize, x_idx: usize) -> Values {
    assuming(None, Effort { quick: false, ..QUICK }, (figure, series_idx, x_idx))
}

fn assuming(
    assumption: Option<Assumption>,
    effort: Effort,
    (figure, series_idx, x_idx): (Figure, usize, usize),
) -> Values {
    let is_it = |case: &Case| (case.series_idx, case.x_idx) == (series_idx, x_idx);
    let case = figure.cases(effort, assumption).into_iter().find(is_it).expect("the figure has this point");
    let logs = Logs::of(&delegated::first_log(), assumption);
    case.run(&logs, &mut || Duration::ZERO).expect("every application can be run")
}

#[test]
fn each_assumption_changes_what_it_is_about_and_nothing_that_it_is_not() {
    let both = |assumption, at| (assuming(None, QUICK, at), assuming(Some(assumption), QUICK, at));
    let (ours, shorter) = both(Assumption::ComplexSize { thousandths: 50 }, (Figure::Nine, 3, 2));
    assert!(shorter.complex_end < ours.complex_end, "{ours:?} {shorter:?}");
    let (ours, search) = both(Assumption::SearchAlone, (Figure::Seven, VIEWS, 0));
    assert!(search.server_steps < ours.server_steps, "{ours:?} {search:?}");
    assert_eq!(Values { server_steps: ours.server_steps, ..search }, ours);
    let (ours, fitting) = both(Assumption::Uncut, (Figure::Seven, VIEWS, 0));
    // Smaller jobs leave fewer nodes behind.
    assert!(fitting.ghost_node_secs < ours.ghost_node_secs, "{ours:?} {fitting:?}");
    let (last, first) = both(Assumption::ComplexAt { number: 1 }, (Figure::Nine, 1, 2));
    assert!(first.complex_end < last.complex_end, "{last:?} {first:?}");
    // Longer wall times keep more from starting, and ask for more holes.
    let (ours, asked) = both(Assumption::WallsOfLog, (Figure::Seven, VIEWS, 1));
    assert!(asked != ours && asked.complex_end.is_none(), "{ours:?} {asked:?}");
}

/// 001, §6.2: wherever in W1 the complex application comes, the results are alike. Footnote 3: with the log's own wall times
/// they are of the same order of magnitude.
#[test]
fn long_neither_the_place_of_the_complex_application_nor_wall_times_as_asked_change_the_order_of_magnitude() {
    let effort = Effort { quick: false, ..QUICK };
    let at = |assumption| assuming(assumption, effort, (Figure::Nine, 1, 3));
    let figures = |Values { n_configurations, bytes, server_steps, launcher_steps, .. }| {
        [n_configurations, bytes, server_steps + launcher_steps]
    };
    let paper = figures(at(None));
    for (assumption, most) in [
        (Assumption::ComplexAt { number: 1 }, 2.5),
        (Assumption::ComplexAt { number: 200 }, 2.5),
        (Assumption::WallsOfLog, 10.0),
    ] {
        let ours = figures(at(Some(assumption)));
        for (one, other) in paper.into_iter().zip(ours) {
            let (one, other) = (one as f64, other as f64);
            assert!(one.max(other) < most * one.min(other), "{assumption:?}: {paper:?} {ours:?}");
        }
    }
}

/// 001, Fig. 10: a slow launcher keeps its place by the order of subscription, and loses it by that of first requests.
#[test]
fn long_a_slow_launcher_ends_sooner_by_the_order_of_subscription() {
    let effort = Effort { quick: false, ..QUICK };
    let axes = Figure::Ten.axes(effort);
    let slowest = axes.xs.len() - 1;
    let end = |assumption| {
        assuming(assumption, effort, (Figure::Ten, 0, slowest)).complex_end.expect("there is one").as_millis()
    };
    let (by_first_request, by_subscription) = (end(None), end(Some(Assumption::OrderOfSubscription)));
    assert!(by_subscription < by_first_request, "{by_subscription} {by_first_request}");
}

const VIEWS: usize = 0;
const LISTED: usize = 1;

#[test]
fn long_with_views_less_is_computed_and_the_server_does_less_than_with_all_sizes_listed() {
    // 001, Fig. 7: no, half of and all applications are moldable.
    let (views, listed) = (values(Figure::Seven, VIEWS, 0), values(Figure::Seven, LISTED, 0));
    assert_eq!((views.n_configurations, listed.n_configurations), (200, 200));
    let points = [(Figure::Seven, 5), (Figure::Seven, 10), (Figure::Eight, 7)];
    for (figure, x_idx) in points {
        let (views, listed) = (values(figure, VIEWS, x_idx), values(figure, LISTED, x_idx));
        assert!(views.n_configurations < listed.n_configurations, "{figure}: {views:?} {listed:?}");
        assert!(views.server_steps < listed.server_steps, "{figure}: {views:?} {listed:?}");
        assert!(views.server_steps + views.launcher_steps < listed.server_steps, "{figure}: {views:?} {listed:?}");
        assert!(views.bytes > listed.bytes, "{figure}: {views:?} {listed:?}");
    }
    // 001, Fig. 8.
    assert!(values(Figure::Eight, VIEWS, 7).bytes <= 40_000_000);
}

/// 001, Fig. 11.
#[test]
fn long_ghosts_waste_in_proportion_to_the_fair_start_delay() {
    let axes = Figure::Eleven.axes(Effort { quick: false, ..QUICK });
    let at = |secs: f64| axes.xs.iter().position(|x| *x == secs).expect("the figure has this point");
    let complex_alone = axes.series.len() - 1;
    let (of_10, of_30) =
        (values(Figure::Eleven, complex_alone, at(10.0)), values(Figure::Eleven, complex_alone, at(30.0)));
    let ratio = of_30.ghost_node_secs / of_10.ghost_node_secs;
    assert!((2.97..=3.03).contains(&ratio), "{ratio}");
    assert!((2.7e6..=3.3e6).contains(&of_30.ghost_node_secs), "{}", of_30.ghost_node_secs);
}
