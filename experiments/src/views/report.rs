//! The results of all runs of a figure: least, mean and greatest over the seeds, at every point of every series.

use std::collections::BTreeMap;

use rms_model::Span;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::figure::{Axes, Case, Effort, Figure, Values};
use crate::offline::Spread;

/// The values shown of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    Configurations,
    Megabytes,
    ServerSteps,
    LauncherSteps,
    AllSteps,
    /// Wall clock, so it differs between runs.
    CpuSecs,
    /// Compared with the same run without an adaptation delay.
    EndDelay,
    GhostNodeSecs,
}

impl Metric {
    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Configurations => "unique_configurations",
            Metric::Megabytes => "megabytes",
            Metric::ServerSteps => "server_operations",
            Metric::LauncherSteps => "launcher_operations",
            Metric::AllSteps => "all_operations",
            Metric::CpuSecs => "cpu_s",
            Metric::EndDelay => "end_delay_s",
            Metric::GhostNodeSecs => "ghost_node_s",
        }
    }

    /// Returns the title of a panel.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Configurations => "(a) unique configurations",
            Metric::Megabytes => "(b) communication",
            Metric::ServerSteps => "(c) server's basic operations",
            Metric::LauncherSteps => "(d) launchers' basic operations",
            Metric::AllSteps => "(e) all basic operations",
            Metric::CpuSecs => "(f) simulation time",
            Metric::EndDelay => "end delay",
            Metric::GhostNodeSecs => "resource waste",
        }
    }

    /// Returns the label of an axis, with its unit.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Configurations => "configurations",
            Metric::Megabytes => "MB",
            Metric::ServerSteps | Metric::LauncherSteps | Metric::AllSteps => "steps",
            Metric::CpuSecs => "CPU time (s)",
            Metric::EndDelay => "end delay (s)",
            Metric::GhostNodeSecs => "resource waste (node s)",
        }
    }

    fn of(self, values: &Values, undelayed: Option<Span>) -> Option<f64> {
        match self {
            Metric::Configurations => Some(values.n_configurations as f64),
            Metric::Megabytes => Some(values.bytes as f64 / 1e6),
            Metric::ServerSteps => Some(values.server_steps as f64),
            Metric::LauncherSteps => Some(values.launcher_steps as f64),
            Metric::AllSteps => Some((values.server_steps + values.launcher_steps) as f64),
            Metric::CpuSecs => Some(values.cpu.as_secs_f64()),
            Metric::EndDelay => Some(values.complex_end?.as_secs_f64() - undelayed?.as_secs_f64()),
            Metric::GhostNodeSecs => Some(values.ghost_node_secs),
        }
    }
}

impl Figure {
    /// Returns the metrics of its panels.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Figure::Seven | Figure::Eight | Figure::Nine => &[
                Metric::Configurations,
                Metric::Megabytes,
                Metric::ServerSteps,
                Metric::LauncherSteps,
                Metric::AllSteps,
                Metric::CpuSecs,
            ],
            Figure::Ten => &[Metric::EndDelay],
            Figure::Eleven => &[Metric::GhostNodeSecs],
        }
    }
}

/// The numbers of a figure.
#[derive(Clone, Debug)]
pub struct Report {
    pub figure: Figure,
    pub effort: Effort,
    pub axes: Axes,
    /// By metric, series and x.
    spreads: BTreeMap<Metric, Vec<Vec<Spread>>>,
}

impl Report {
    /// Builds the report; `ran` has every case of the figure, in any order.
    pub fn new(figure: Figure, effort: Effort, ran: &[(Case, Values)]) -> Report {
        let axes = figure.axes(effort);
        let empty = vec![vec![Spread::default(); axes.xs.len()]; axes.series.len()];
        let mut spreads: BTreeMap<Metric, _> = figure.metrics().iter().map(|metric| (*metric, empty.clone())).collect();
        let at_zero = ran.iter().filter(|(case, _)| axes.xs[case.x_idx] == 0.0);
        let undelayed: BTreeMap<(usize, u64), Span> =
            at_zero.filter_map(|(case, values)| Some(((case.series_idx, case.seed), values.complex_end?))).collect();
        // Sums of floats depend on their order.
        let mut ran: Vec<&(Case, Values)> = ran.iter().collect();
        ran.sort_by_key(|(case, _)| (case.series_idx, case.x_idx, case.seed));
        for (case, values) in ran {
            let undelayed = undelayed.get(&(case.series_idx, case.seed)).copied();
            for (metric, spreads) in &mut spreads {
                if let Some(value) = metric.of(values, undelayed) {
                    spreads[case.series_idx][case.x_idx].add(value);
                }
            }
        }
        Report { figure, effort, axes, spreads }
    }

    /// Returns the values at every x of a series.
    pub fn spreads(&self, metric: Metric, series_idx: usize) -> &[Spread] {
        self.spreads.get(&metric).and_then(|series| series.get(series_idx)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn means(&self, metric: Metric, series_idx: usize) -> Vec<f64> {
        self.spreads(metric, series_idx).iter().map(Spread::mean).collect()
    }

    /// Returns the metrics that are wall clock, separate from all others, which are the same for the same seed.
    pub fn timing(&self) -> impl Serialize + '_ {
        Part { report: self, is_wanted: |metric| metric == Metric::CpuSecs }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Part { report: self, is_wanted: |metric| metric != Metric::CpuSecs }.serialize(serializer)
    }
}

struct Part<'a> {
    report: &'a Report,
    is_wanted: fn(Metric) -> bool,
}

#[derive(Serialize)]
struct Point {
    least: f64,
    mean: f64,
    greatest: f64,
}

/// Serializes as `{"figure": 7, "title", "seeds", "x": {"label", "values"}, "series": [{"label", "megabytes":
/// [{"least", …}, …], …}]}`
impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { figure, effort, axes, spreads } = self.report;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("figure", &figure.number())?;
        map.serialize_entry("title", figure.title())?;
        map.serialize_entry("seeds", &effort.n_seeds)?;
        map.serialize_entry("first_seed", &effort.first_seed)?;
        map.serialize_entry("quick", &effort.quick)?;
        map.serialize_entry("x_label", figure.x_label())?;
        map.serialize_entry("x", &axes.xs)?;
        let point = |spread: &Spread| Point { least: spread.least, mean: spread.mean(), greatest: spread.greatest };
        let mut series = Vec::new();
        for (series_idx, label) in axes.series.iter().enumerate() {
            let wanted = spreads.iter().filter(|(metric, _)| (self.is_wanted)(**metric));
            let values: BTreeMap<&str, Vec<Point>> = wanted
                .map(|(metric, spreads)| (metric.name(), spreads[series_idx].iter().map(point).collect()))
                .collect();
            series.push(Series { label, values });
        }
        map.serialize_entry("series", &series)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Series<'a> {
    label: &'a str,
    #[serde(flatten)]
    values: BTreeMap<&'a str, Vec<Point>>,
}
