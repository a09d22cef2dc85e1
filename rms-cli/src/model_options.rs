//! How long a job takes on how many nodes, as typed: `--amdahl 0.95`, `--downey 12,0.5`, `--table FILE`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use launcher_sdk::schedule::moldable::{Amdahl, Downey, WallTime};
use rms_api::call::{Nodes, Shape};
use rms_model::{ClusterId, Span};
use thiserror::Error;

use crate::count;
use crate::size::MAX_SIZES;
use crate::small_file;

// No doc comment: clap would print it as the help of each verb that has these flags.
// A model of the job's running time; from it every size gets a wall time of its own.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Size and time")]
pub struct ModelOptions {
    /// Parallel fraction of the work, from 0 to 1: each size of -N gets its wall time by Amdahl's law from --time,
    /// which is then the time on one node (or on --time-on)
    #[arg(long, value_name = "PART", conflicts_with_all = ["downey", "table", "shapes"])]
    pub amdahl: Option<Part>,
    /// The same by Downey's model: average parallelism and its variation
    #[arg(long, value_name = "A,SIGMA", conflicts_with_all = ["table", "shapes"])]
    pub downey: Option<Parallelism>,
    /// The same by measured times: a file with a line for each size, like '4 35m'
    #[arg(long, value_name = "FILE", conflicts_with_all = ["time", "shapes", "time_on"])]
    pub table: Option<PathBuf>,
    /// Number of nodes on which the job takes --time; 1 if absent
    #[arg(long, value_name = "COUNT", value_parser = count::parse)]
    pub time_on: Option<u32>,
}

impl ModelOptions {
    /// Returns whether a model is given.
    pub fn is_some(&self) -> bool {
        self.amdahl.is_some() || self.downey.is_some() || self.table.is_some()
    }

    /// Returns these options, or `lower` if none is given.
    pub fn or(self, lower: ModelOptions) -> ModelOptions {
        if self.is_some() || self.time_on.is_some() { self } else { lower }
    }
}

/// A part of the whole, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u32);

/// Downey's parameters, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    average: u64,
    sigma: u64,
}

const WHOLE: u32 = 1_000_000;

/// Why a text is not a model, or a model gives no sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    #[error("'{0}' is no part of the work: write a number from 0 to 1, like 0.95")]
    Part(String),
    #[error(
        "'{0}' is no model: write the average parallelism (at least 1) and its variation (at least 0), like 12,0.5"
    )]
    Downey(String),
    #[error("{path} cannot be read: {problem}")]
    Read { path: String, problem: String },
    #[error("{path}:{line}: '{text}' is no size with its time: write nodes and a time, like '4 35m'")]
    Line { path: String, line: usize, text: String },
    #[error("{path}:{line}: {n_nodes} nodes stand there already")]
    Twice { path: String, line: usize, n_nodes: u32 },
    #[error("{path} has no size within -N: write lines like '4 35m'")]
    Empty { path: String },
    #[error("{path} has {n_sizes} sizes within -N, and at most {MAX_SIZES} are weighed")]
    TooMany { path: String, n_sizes: usize },
    #[error("--time-on is for --amdahl and --downey: name one of them")]
    TimeOn,
    #[error("a model needs the time on one node: write --time 20h")]
    NoTime,
    #[error("a model needs numbers of nodes to choose from: write -N 1-16 or -N 2+")]
    NoSizes,
}

impl FromStr for Part {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Part, ModelError> {
        let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
        let part = part.ok_or_else(|| ModelError::Part(shorten(text)))?;
        Ok(Part((part * f64::from(WHOLE)).round() as u32))
    }
}

impl FromStr for Parallelism {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Parallelism, ModelError> {
        let fail = || ModelError::Downey(shorten(text));
        let (average, sigma) = text.split_once(',').ok_or_else(fail)?;
        let number = |text: &str, least: f64| {
            let number = text.trim().parse::<f64>().ok().filter(|number| (least..=1e9).contains(number))?;
            Some((number * f64::from(WHOLE)).round() as u64)
        };
        let (average, sigma) = number(average, 1.0).zip(number(sigma, 0.0)).ok_or_else(fail)?;
        Ok(Parallelism { average, sigma })
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Models depend on the cluster; here a job takes the same time on all of them.
const ANY: ClusterId = ClusterId(0);

impl ModelOptions {
    /// Returns the shapes with the wall times of the model, in their order; unchanged without a model. `time` is the
    /// value of `--time`.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn timed(&self, shapes: Vec<Shape>, time: Option<Span>) -> Result<Vec<Shape>, ModelError> {
        let needs_time = self.amdahl.is_some() || self.downey.is_some();
        let time = match time {
            None if needs_time => return Err(ModelError::NoTime),
            time => time.unwrap_or(Span::ZERO),
        };
        let on = self.time_on.unwrap_or(1);
        if let Some(Part(part)) = self.amdahl {
            // n·T(n)·1 = T(1)·((1 − P)·n + P), in millionths; rounded down, so that the result is the time that was
            // given.
            let (part, whole, n) = (u128::from(part), u128::from(WHOLE), u128::from(on));
            let on_one = millis(time) * whole * n / ((whole - part) * n + part).max(1);
            let amdahl = Amdahl::new(part as u32, WHOLE, BTreeMap::from([(ANY, span(on_one))]));
            let amdahl = amdahl.map_err(|_| ModelError::NoSizes)?;
            return timed_by(shapes, |n_nodes| amdahl.wall(ANY, n_nodes));
        }
        if let Some(Parallelism { average, sigma }) = self.downey {
            let model = |on_one| {
                let scale = f64::from(WHOLE);
                let walls = BTreeMap::from([(ANY, on_one)]);
                Downey::new(average as f64 / scale, sigma as f64 / scale, walls).map_err(|_| ModelError::NoSizes)
            };
            let speed_up = model(Span::ZERO)?.speed_up(on);
            let downey = model(span((millis(time) as f64 * speed_up).floor().max(0.0) as u128))?;
            return timed_by(shapes, |n_nodes| downey.wall(ANY, n_nodes));
        }
        if self.time_on.is_some() { Err(ModelError::TimeOn) } else { Ok(shapes) }
    }

    /// Returns the speed on `n_nodes` nodes in thousandths of that on one node, if the model has it: a table has it for
    /// its sizes if it contains one node.
    pub fn speed_up(&self, n_nodes: u32) -> Option<u32> {
        let milli = if let Some(Part(part)) = self.amdahl {
            let (part, whole, n) = (f64::from(part), f64::from(WHOLE), f64::from(n_nodes));
            1000.0 * whole / (whole - part + part / n)
        } else if let Some(Parallelism { average, sigma }) = self.downey {
            let scale = f64::from(WHOLE);
            let downey = Downey::new(average as f64 / scale, sigma as f64 / scale, BTreeMap::new()).ok()?;
            1000.0 * downey.speed_up(n_nodes)
        } else {
            let walls = read_table(self.table.as_ref()?).ok()?;
            1000.0 * millis(*walls.get(&1)?) as f64 / millis(*walls.get(&n_nodes)?).max(1) as f64
        };
        Some(milli.round().clamp(1.0, f64::from(u32::MAX)) as u32)
    }

    /// Returns the shapes of a table that `is_wanted` selects, largest first; `None` without a table.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn listed(&self, is_wanted: impl Fn(u32) -> bool) -> Result<Option<Vec<Shape>>, ModelError> {
        let Some(path) = &self.table else { return Ok(None) };
        let walls = read_table(path)?;
        let wanted = walls.into_iter().rev().filter(|(n_nodes, _)| is_wanted(*n_nodes));
        let shape = |(n_nodes, wall)| Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) };
        let shapes: Vec<Shape> = wanted.map(shape).collect();
        let path = || path.display().to_string();
        match shapes.len() {
            0 => Err(ModelError::Empty { path: path() }),
            n_sizes if n_sizes as u64 > MAX_SIZES => Err(ModelError::TooMany { path: path(), n_sizes }),
            _ => Ok(Some(shapes)),
        }
    }
}

fn timed_by(shapes: Vec<Shape>, wall: impl Fn(u32) -> Option<Span>) -> Result<Vec<Shape>, ModelError> {
    if shapes.is_empty() {
        return Err(ModelError::NoSizes);
    }
    let timed = |shape: Shape| match shape.nodes {
        Nodes::Count(n_nodes) => Ok(Shape { nodes: shape.nodes, wall: wall(n_nodes) }),
        Nodes::FromTasks | Nodes::PerCluster(_) => Err(ModelError::NoSizes),
    };
    shapes.into_iter().map(timed).collect()
}

fn millis(span: Span) -> u128 {
    span.as_millis().max(0) as u128
}

fn span(millis: u128) -> Span {
    i64::try_from(millis).map_or(Span::MAX_WALL, Span::from_millis).min(Span::MAX_WALL)
}

/// Reads a table: a line for each size; `#` begins a comment.
fn read_table(path: &Path) -> Result<BTreeMap<u32, Span>, ModelError> {
    let name = || path.display().to_string();
    let text = small_file::read(path).map_err(|error| ModelError::Read { path: name(), problem: error.to_string() })?;
    let mut walls = BTreeMap::new();
    for (idx, whole_line) in text.lines().enumerate() {
        let line = idx + 1;
        let entry = whole_line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let fail = || ModelError::Line { path: name(), line, text: shorten(whole_line) };
        let (n_nodes, wall) = entry.split_once([' ', '\t']).ok_or_else(fail)?;
        let n_nodes: u32 = n_nodes.parse().ok().filter(|n_nodes| *n_nodes > 0).ok_or_else(fail)?;
        let wall: Span = wall.trim().parse().map_err(|_| fail())?;
        if walls.insert(n_nodes, wall).is_some() {
            return Err(ModelError::Twice { path: name(), line, n_nodes });
        }
    }
    Ok(walls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(counts: &[u32]) -> Vec<Shape> {
        counts.iter().map(|n_nodes| Shape { nodes: Nodes::Count(*n_nodes), wall: None }).collect()
    }

    fn secs(shapes: Result<Vec<Shape>, ModelError>) -> Vec<i64> {
        let wall = |shape: Shape| shape.wall.expect("every size has a time").as_millis() / 1000;
        shapes.expect("a model").into_iter().map(wall).collect()
    }

    #[test]
    fn amdahl_counts_from_the_size_whose_time_is_known() {
        let amdahl = |time_on| ModelOptions { amdahl: "0.95".parse().ok(), time_on, ..ModelOptions::default() };
        let hour = Some(Span::from_hours(1));
        assert_eq!(secs(amdahl(None).timed(shapes(&[10, 2, 1]), hour)), [522, 1890, 3600]);
        assert_eq!(secs(amdahl(Some(10)).timed(shapes(&[10]), hour)), [3600]);
        assert_eq!(secs(amdahl(Some(7)).timed(shapes(&[7]), Some(Span::from_secs(1234)))), [1234]);
    }

    #[test]
    fn downey_counts_from_the_size_whose_time_is_known() {
        let downey = |time_on| ModelOptions { downey: "8,0".parse().ok(), time_on, ..ModelOptions::default() };
        let hour = Some(Span::from_hours(1));
        assert_eq!(secs(downey(None).timed(shapes(&[16, 8, 4, 1]), hour)), [450, 450, 900, 3600]);
        assert_eq!(secs(downey(Some(4)).timed(shapes(&[4, 1]), hour)), [3600, 14_400]);
    }

    #[test]
    fn a_table_has_its_own_sizes() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let options = ModelOptions { table: Some(file.path().to_owned()), ..ModelOptions::default() };
        let check = |text: &str, expected: Result<Vec<(u32, i64)>, &str>| {
            std::fs::write(file.path(), text).expect("written");
            match (options.listed(|n_nodes| n_nodes <= 8), expected) {
                (Ok(shapes), Ok(expected)) => {
                    let shape =
                        |(n_nodes, secs)| Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(secs)) };
                    assert_eq!(shapes, Some(expected.into_iter().map(shape).collect()));
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (listed, expected) => panic!("{text}: {listed:?} instead of {expected:?}"),
            }
        };
        check("# measured\n1 2h\n\n4\t35m # with cache\n64 1m\n", Ok(vec![(4, 2100), (1, 7200)]));
        check("1 2h\n1 3h\n", Err(":2: 1 nodes stand there already"));
        check("1 2h\nfour 1h\n", Err(":2: 'four 1h' is no size"));
        check("4\n", Err(":1: '4' is no size"));
        check("16 1h\n", Err("no size within -N"));
        let none = ModelOptions { table: Some("/nowhere/times".into()), ..ModelOptions::default() };
        assert!(none.listed(|_| true).expect_err("no file").to_string().contains("/nowhere/times cannot be read"));
    }

    #[test]
    fn what_is_no_model_says_what_to_write() {
        assert!("1.5".parse::<Part>().is_err() && "NaN".parse::<Part>().is_err() && "".parse::<Part>().is_err());
        for text in ["", "8", "0.5,1", "8,-1", "inf,0", "8,NaN"] {
            assert!(text.parse::<Parallelism>().is_err(), "{text}");
        }
        let lone = ModelOptions { time_on: Some(4), ..ModelOptions::default() };
        assert_eq!(lone.timed(shapes(&[1]), None), Err(ModelError::TimeOn));
        let amdahl = ModelOptions { amdahl: "1".parse().ok(), ..ModelOptions::default() };
        assert_eq!(amdahl.timed(shapes(&[1]), None), Err(ModelError::NoTime));
        let hour = Some(Span::from_hours(1));
        assert_eq!(amdahl.timed(Vec::new(), hour), Err(ModelError::NoSizes));
        let by_cluster = Shape { nodes: Nodes::PerCluster(BTreeMap::new()), wall: None };
        assert_eq!(amdahl.timed(vec![by_cluster], hour), Err(ModelError::NoSizes));
    }
}
