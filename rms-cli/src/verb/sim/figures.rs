//! Draws the results of `rms sim views`: the figures of 001 with their spread, wall clock separate from the rest.

use experiments::offline::Spread;
use experiments::views::{Figure, Metric, Report};

use crate::chart::{Chart, Panel, Value};

/// Returns file names and pictures.
pub(super) fn draw(report: &Report) -> Vec<(String, String)> {
    let is_clock = |metric: &Metric| *metric == Metric::CpuSecs;
    let (clock, others): (Vec<Metric>, Vec<Metric>) = report.figure.metrics().iter().copied().partition(is_clock);
    let mut files = vec![(format!("figure-{}.svg", report.figure), chart(report, &others).svg())];
    if !clock.is_empty() {
        files.push((format!("figure-{}-time.svg", report.figure), chart(report, &clock).svg()));
    }
    files
}

fn chart(report: &Report, metrics: &[Metric]) -> Chart {
    let n_seeds = report.effort.n_seeds;
    let subtitle = match report.figure {
        Figure::Seven | Figure::Eight | Figure::Nine | Figure::Eleven if n_seeds > 1 => {
            format!("Lines: mean of {n_seeds} runs; bands: from the least to the greatest.")
        }
        Figure::Seven | Figure::Eight | Figure::Nine | Figure::Eleven => "One run.".to_owned(),
        Figure::Ten => "Against the same run without an adaptation delay.".to_owned(),
    };
    let panels = match report.figure {
        Figure::Ten => vec![
            panel(report, Metric::EndDelay, "(a) mean of all runs", |spread| flat(spread.mean())),
            panel(report, Metric::EndDelay, "(b) greatest of all runs", |spread| flat(spread.greatest)),
        ],
        Figure::Seven | Figure::Eight | Figure::Nine | Figure::Eleven => metrics
            .iter()
            .map(|metric| {
                let title = metric.title();
                panel(report, *metric, title, |spread| Value {
                    low: spread.least,
                    middle: if spread.least.is_finite() { spread.mean() } else { f64::NAN },
                    high: spread.greatest,
                })
            })
            .collect(),
    };
    let title = format!("001, Figure {}: {}", report.figure, report.figure.title());
    Chart { title, subtitle, legend: report.axes.series.clone(), panels }
}

fn flat(value: f64) -> Value {
    Value { low: value, middle: value, high: value }
}

fn panel(report: &Report, metric: Metric, title: &str, value: impl Fn(&Spread) -> Value) -> Panel {
    let curve = |series_idx: usize| report.spreads(metric, series_idx).iter().map(&value).collect();
    Panel {
        title: title.to_owned(),
        x_label: report.figure.x_label().to_owned(),
        y_label: metric.label().to_owned(),
        xs: report.axes.xs.clone(),
        curves: (0..report.axes.series.len()).map(curve).collect(),
    }
}
