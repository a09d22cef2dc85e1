//! The answer of a run: its figures, and the results of jobs by size and time.

use std::path::Path;

use rms_model::{Allocation, Policy};
use rms_sim::batch::heat::HeatMap;
use rms_sim::batch::{Figures, Summary};
use serde_json::{Value, json};

use super::cost::Cost;
use super::heat;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Show;
use crate::table::Table;

const HEAT_COLUMNS: usize = 60;

/// One run of a workload.
pub(super) struct RunAnswer {
    pub(super) summary: Summary,
    pub(super) n_dropped: usize,
    pub(super) wall_s: f64,
    pub(super) cost: Cost,
    pub(super) title: String,
    /// Whether to show the node-seconds that ghosts kept idle.
    pub(super) has_ghosts: bool,
    /// How the jobs of a trace were allocated, and which part of all core-seconds the requested processors ran.
    pub(super) allocated: Option<(Allocation, f64)>,
}

/// Returns whether a heat map is written to this file as JSON, and not as a picture.
///
/// # Errors
/// The file's extension says neither.
pub(super) fn is_heat_json(file: &Path) -> Result<bool, Failure> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(true),
        Some("svg") => Ok(false),
        Some(_) | None => {
            let file = file.display();
            Err(Failure::usage(format!("--heat writes a picture (.svg) or .json, and {file} is neither")))
        }
    }
}

pub(super) fn write_heat(answer: &RunAnswer, file: &Path, context: &Context) -> Result<(), Failure> {
    let is_json = is_heat_json(file)?;
    let map = answer.heat(HEAT_COLUMNS);
    let text = if is_json { format!("{}\n", json!(map)) } else { heat::svg(&map, &answer.title) };
    let written = std::fs::write(file, text);
    written.map_err(|error| Failure::io(format!("{} cannot be written", file.display()), error))?;
    context.output.note(&format!("written to {}", file.display()));
    Ok(())
}

impl RunAnswer {
    fn heat(&self, n_columns: usize) -> HeatMap {
        HeatMap::new(self.summary.finished.iter().flatten(), n_columns)
    }

    /// Returns the heat map for the terminal.
    pub(super) fn blocks(&self) -> String {
        heat::blocks(&self.heat(HEAT_COLUMNS))
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = measures(&self.summary.figures);
        figures.insert(1, ("dropped", self.n_dropped as f64));
        figures.extend(self.allocated.map(|(_, core_utilisation)| ("core_utilisation", core_utilisation)));
        figures.extend([
            ("wall_s", self.wall_s),
            ("cpu_s", self.cost.cpu_s),
            ("jobs_per_s", self.summary.figures.jobs as f64 / self.cost.cpu_s.max(1e-6)),
            ("peak_rss_mib", self.cost.peak_rss_mib),
        ]);
        if self.has_ghosts {
            figures.push(("ghost_node_s", self.summary.figures.ghost_node_s));
        }
        figures
    }

    fn allocation(&self) -> Option<&'static str> {
        self.allocated.map(|(allocation, _)| allocation.word())
    }

    fn entries(&self) -> impl Iterator<Item = (String, Value)> {
        let allocation = self.allocation().map(|word| ("allocation".to_owned(), json!(word)));
        allocation.into_iter().chain(self.figures().into_iter().map(entry))
    }
}

/// Returns the figures of the jobs, simulated or real.
pub(super) fn measures(figures: &Figures) -> Vec<(&'static str, f64)> {
    let Figures {
        jobs,
        refused: _,
        makespan_s,
        mean_wait_s,
        mean_response_s,
        mean_slowdown,
        mean_bounded_slowdown,
        utilisation,
        ghost_node_s: _,
    } = *figures;
    vec![
        ("jobs", jobs as f64),
        ("makespan_s", makespan_s),
        ("mean_wait_s", mean_wait_s),
        ("mean_response_s", mean_response_s),
        ("mean_slowdown", mean_slowdown),
        ("mean_bounded_slowdown", mean_bounded_slowdown),
        ("utilisation", utilisation),
    ]
}

/// The same jobs under several policies.
pub(super) struct ComparedAnswer {
    pub(super) runs: Vec<(Policy, RunAnswer)>,
}

impl Show for RunAnswer {
    fn text(&self) -> String {
        let mut table = Table::new(&["figure", ">value"]);
        for (name, value) in self.figures() {
            table.row(vec![name.to_owned(), number(value)]);
        }
        if let Some(word) = self.allocation() {
            table.row(vec!["allocation".to_owned(), word.to_owned()]);
        }
        format!("{}\n{}", table.text(""), self.blocks())
    }

    fn json(&self) -> Value {
        Value::Object(self.entries().collect())
    }

    fn ids(&self) -> Vec<String> {
        self.figures().iter().map(|(_, value)| number(*value)).collect()
    }

    fn table(&self) -> Option<Table> {
        let figures = self.figures();
        let names = figures.iter().map(|(name, _)| *name);
        let mut table = Table::new(&names.chain(self.allocation().map(|_| "allocation")).collect::<Vec<_>>());
        let values = figures.iter().map(|(_, value)| value.to_string());
        table.row(values.chain(self.allocation().map(str::to_owned)).collect());
        Some(table)
    }
}

impl Show for ComparedAnswer {
    fn text(&self) -> String {
        let names = self.runs.iter().map(|(policy, _)| format!(">{policy}"));
        let mut table = Table::new(&std::iter::once("figure".to_owned()).chain(names).collect::<Vec<_>>());
        let figures: Vec<_> = self.runs.iter().map(|(_, run)| run.figures()).collect();
        for (idx, (name, _)) in figures.first().into_iter().flatten().enumerate() {
            let values = figures.iter().map(|figures| number(figures[idx].1));
            table.row(std::iter::once((*name).to_owned()).chain(values).collect());
        }
        let words: Vec<String> = self.runs.iter().filter_map(|(_, run)| run.allocation()).map(str::to_owned).collect();
        table.row(std::iter::once("allocation".to_owned()).chain(words).collect());
        table.text("")
    }

    fn json(&self) -> Value {
        let object = |(policy, run): &(Policy, RunAnswer)| {
            let policy = ("policy".to_owned(), json!(policy.name()));
            Value::Object(std::iter::once(policy).chain(run.entries()).collect())
        };
        self.runs.iter().map(object).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.runs.iter().map(|(policy, _)| policy.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        let (_, first) = self.runs.first()?;
        let names = first.figures().into_iter().map(|(name, _)| name);
        let names = std::iter::once("policy").chain(names).chain(first.allocation().map(|_| "allocation"));
        let mut table = Table::new(&names.collect::<Vec<_>>());
        for (policy, run) in &self.runs {
            let values = run.figures().into_iter().map(|(_, value)| value.to_string());
            let values = values.chain(run.allocation().map(str::to_owned));
            table.row(std::iter::once(policy.to_string()).chain(values).collect());
        }
        Some(table)
    }
}

/// Returns a figure for JSON: counts are whole numbers.
pub(super) fn entry((name, value): (&str, f64)) -> (String, Value) {
    let is_count = name == "jobs" || name == "dropped";
    (name.to_owned(), if is_count { json!(value as u64) } else { json!(value) })
}

pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
