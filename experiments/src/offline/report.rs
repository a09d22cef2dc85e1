//! Tables 1 and 2 of 003: least, mean and greatest values over all tests, and the means alone in a machine-readable
//! form.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::Algorithm;
use super::metrics::{Relative, TestMetrics};

/// The results of all tests, by algorithm.
#[derive(Clone, Debug)]
pub struct Report {
    rows: BTreeMap<Algorithm, Row>,
}

/// One algorithm's values; ratios, 1 = 100 %.
#[derive(Clone, Debug, Default)]
struct Row {
    waste: Spread,
    reservation: Spread,
    utilisation: Spread,
    makespan: Spread,
    jct: Spread,
    jwt: Spread,
    stretches: Spread,
    /// Over all applications of all tests, like the next one.
    job_stretch: Spread,
    job_waste: Spread,
    micros: Spread,
}

/// Least, mean and greatest of some values.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub least: f64,
    pub greatest: f64,
    sum: f64,
    n_values: u64,
}

/// One row of both tables, averages only. Ratios are `None` if their base was 0 in all tests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Averages {
    pub waste_pct: f64,
    pub reservation: Option<f64>,
    pub utilisation_pct: f64,
    pub makespan: Option<f64>,
    pub jct: Option<f64>,
    pub jwt: Option<f64>,
    pub stretches_pct: f64,
    pub job_stretch_pct: f64,
    pub job_waste_pct: f64,
    pub us_per_test: f64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { least: f64::INFINITY, greatest: f64::NEG_INFINITY, sum: 0.0, n_values: 0 }
    }
}

impl Spread {
    pub(crate) fn add(&mut self, value: f64) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
        self.sum += value;
        self.n_values += 1;
    }

    /// Returns the mean; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        self.mean_of_any().unwrap_or(0.0)
    }

    /// Returns the mean; `None` if there are no values.
    pub fn mean_of_any(&self) -> Option<f64> {
        (self.n_values > 0).then(|| self.sum / self.n_values as f64)
    }
}

impl Report {
    pub(super) fn new() -> Report {
        Report { rows: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, algorithm: Algorithm, metrics: &TestMetrics, relative: Relative, took: Duration) {
        let row = self.rows.entry(algorithm).or_default();
        row.waste.add(metrics.waste());
        row.utilisation.add(metrics.utilisation());
        row.stretches.add(metrics.stretches());
        row.micros.add(took.as_secs_f64() * 1e6);
        let parts = [
            (&mut row.reservation, relative.reservation),
            (&mut row.makespan, relative.makespan),
            (&mut row.jct, relative.jct),
            (&mut row.jwt, relative.jwt),
        ];
        for (spread, part) in parts {
            if let Some(part) = part {
                spread.add(part);
            }
        }
        for job in &metrics.jobs {
            row.job_stretch.add(job.stretch());
            row.job_waste.add(job.waste());
        }
    }

    pub fn averages(&self, algorithm: Algorithm) -> Averages {
        let empty = Row::default();
        let row = self.rows.get(&algorithm).unwrap_or(&empty);
        Averages {
            waste_pct: 100.0 * row.waste.mean(),
            reservation: row.reservation.mean_of_any(),
            utilisation_pct: 100.0 * row.utilisation.mean(),
            makespan: row.makespan.mean_of_any(),
            jct: row.jct.mean_of_any(),
            jwt: row.jwt.mean_of_any(),
            stretches_pct: 100.0 * row.stretches.mean(),
            job_stretch_pct: 100.0 * row.job_stretch.mean(),
            job_waste_pct: 100.0 * row.job_waste.mean(),
            us_per_test: row.micros.mean(),
        }
    }

    /// Returns 003's Table 1, with the computing time in microseconds.
    pub fn table_1(&self) -> Table {
        let columns = |row: &Row| {
            vec![
                percent(&row.waste),
                plain(&row.reservation, 2),
                percent(&row.utilisation),
                plain(&row.makespan, 2),
                plain(&row.micros, 0),
            ]
        };
        let names = vec!["Waste (%)", "Reservation", "Utilisation (%)", "Makespan", "Time (us)"];
        self.table(names, columns)
    }

    /// Returns 003's Table 2.
    pub fn table_2(&self) -> Table {
        let columns = |row: &Row| {
            vec![
                plain(&row.jct, 2),
                plain(&row.jwt, 2),
                percent(&row.stretches),
                percent(&row.job_stretch),
                percent(&row.job_waste),
            ]
        };
        self.table(vec!["Avg. JCT", "Avg. JWT", "Stretches (%)", "Job Stretch (%)", "Job Waste (%)"], columns)
    }

    fn table(&self, names: Vec<&'static str>, columns: impl Fn(&Row) -> Vec<String>) -> Table {
        Table { names, rows: self.rows.iter().map(|(algorithm, row)| (*algorithm, columns(row))).collect() }
    }
}

/// Serializes as `{"algorithms": {"mic+c": {…}}}`.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let averages: BTreeMap<&str, Averages> =
            self.rows.keys().map(|algorithm| (algorithm.name(), self.averages(*algorithm))).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("algorithms", &averages)?;
        map.end()
    }
}

/// A table of `least mean greatest` for each algorithm and measure, and of `-` where there are no values.
#[derive(Clone, Debug)]
pub struct Table {
    names: Vec<&'static str>,
    rows: Vec<(Algorithm, Vec<String>)>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The unit is printed below the name, so that a table fits 80 columns.
        let heads: Vec<(&str, String)> = self.names.iter().map(|name| head(name)).collect();
        let width = |idx: usize| {
            let cells = self.rows.iter().map(|(_, cells)| cells[idx].len());
            cells.chain([heads[idx].0.len(), heads[idx].1.len()]).max().unwrap_or(0)
        };
        for line in [heads.iter().map(|head| head.0).collect(), heads.iter().map(|head| head.1.as_str()).collect()] {
            let line: Vec<&str> = line;
            write!(f, "{:6}", "")?;
            for (idx, text) in line.iter().enumerate() {
                write!(f, "  {text:>width$}", width = width(idx))?;
            }
            writeln!(f)?;
        }
        for (algorithm, cells) in &self.rows {
            write!(f, "{algorithm:6}")?;
            for (idx, cell) in cells.iter().enumerate() {
                write!(f, "  {cell:>width$}", width = width(idx))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Splits a heading into its name and its unit.
fn head(name: &'static str) -> (&'static str, String) {
    match name.split_once(" (") {
        Some((name, unit)) => (name, format!("({unit}")),
        None => (name, String::new()),
    }
}

fn percent(spread: &Spread) -> String {
    let percent = |value: f64| 100.0 * value;
    of_any(spread, |mean| format!("{:.0} {:.1} {:.0}", percent(spread.least), percent(mean), percent(spread.greatest)))
}

fn plain(spread: &Spread, n_decimals: usize) -> String {
    let Spread { least, greatest, .. } = spread;
    of_any(spread, |mean| format!("{least:.n_decimals$} {mean:.n_decimals$} {greatest:.n_decimals$}"))
}

/// Returns the text of the values, given their mean; `-` if there are none.
fn of_any(spread: &Spread, text: impl Fn(f64) -> String) -> String {
    spread.mean_of_any().map_or_else(|| "-".to_owned(), text)
}
