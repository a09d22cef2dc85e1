//! `rms sim offline`: the experiment of papers 000 and 003 in one command.

use std::time::Instant;

use experiments::evolving::{Range, Ranges};
use experiments::offline::{self, Algorithm, Experiment, Report};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::screen;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each test draws 15 to 20 applications of 1 to 10 stages (500 to 3600 s, 1 to 75
nodes) and places them in their order by each algorithm: cbf (rigid), nos (no
stage waits), mic (a stage may last twice as long), inf (as long as it takes),
+c with compacting. Ratios are relative to cbf in the same test. The tables show
minimum, mean and maximum.

Examples:
  rms sim offline --tests 1000 --seed 1
  rms sim offline --tests 1000 --seed 1 --nodes 120 --json
  rms sim offline --nodes 1000 --stage-nodes 1-750 --applications 50")]
pub struct Args {
    /// Number of tests
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    tests: u32,
    /// Random seed; the same seed gives the same tests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Nodes of the cluster
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    nodes: u32,
    /// Applications of a test
    #[arg(long, value_name = "RANGE", default_value_t = Ranges::default().n_apps)]
    applications: Range,
    /// Stages of an application
    #[arg(long, value_name = "RANGE", default_value_t = Ranges::default().n_stages)]
    stages: Range,
    /// Duration of a stage, in seconds
    #[arg(long, value_name = "RANGE", default_value_t = Ranges::default().stage_secs)]
    stage_seconds: Range,
    /// Nodes of a stage
    #[arg(long, value_name = "RANGE", default_value_t = Ranges::default().stage_nodes)]
    stage_nodes: Range,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let ranges = Ranges {
        n_apps: args.applications,
        n_stages: args.stages,
        stage_secs: args.stage_seconds,
        stage_nodes: args.stage_nodes,
    };
    let experiment = Experiment { n_tests: args.tests, seed: args.seed, capacity: args.nodes, ranges };
    let begun = Instant::now();
    let report = offline::run(experiment, || begun.elapsed()).map_err(Failure::usage)?;
    context.output.show(&OfflineAnswer { experiment, report })?;
    Ok(Exit::OK)
}

struct OfflineAnswer {
    experiment: Experiment,
    report: Report,
}

impl Show for OfflineAnswer {
    fn text(&self) -> String {
        let Experiment { n_tests, seed, capacity, ranges: _ } = self.experiment;
        let tests = if n_tests == 1 { "test" } else { "tests" };
        let head = format!(
            "{n_tests} {tests} from seed {seed} on {capacity} nodes; of each: the least, the mean and the most over the tests\n\n"
        );
        format!("{}{}\n{}", screen::folded(&head, 0), self.report.table_1(), self.report.table_2())
    }

    fn json(&self) -> Value {
        // A report is a map of plain numbers or nulls, which JSON can represent.
        json!(self.report)
    }

    fn ids(&self) -> Vec<String> {
        Algorithm::ALL.map(|algorithm| algorithm.to_string()).to_vec()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&[
            "algorithm",
            "waste_pct",
            "reservation",
            "utilisation_pct",
            "makespan",
            "jct",
            "jwt",
            "stretches_pct",
            "job_stretch_pct",
            "job_waste_pct",
            "us_per_test",
        ]);
        for algorithm in Algorithm::ALL {
            let row = self.report.averages(algorithm);
            let values = [
                Some(row.waste_pct),
                row.reservation,
                Some(row.utilisation_pct),
                row.makespan,
                row.jct,
                row.jwt,
                Some(row.stretches_pct),
                Some(row.job_stretch_pct),
                Some(row.job_waste_pct),
                Some(row.us_per_test),
            ];
            let cells = values.map(|value| value.map_or_else(String::new, |value| format!("{value:.3}")));
            table.row([algorithm.to_string()].into_iter().chain(cells).collect());
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::fits;

    fn answer(n_tests: u32, ranges: Ranges) -> OfflineAnswer {
        let experiment = Experiment { n_tests, seed: 1, capacity: 100, ranges };
        let mut clock = std::time::Duration::ZERO;
        let report = offline::run(experiment, || {
            clock += std::time::Duration::from_millis(9);
            clock
        });
        OfflineAnswer { experiment, report: report.expect("tests") }
    }

    #[test]
    fn both_tables_fit_a_terminal() {
        let answer = answer(3, Ranges::default());
        let text = fits(80, || answer.text());
        assert!(text.lines().count() > 16, "{text}");
    }

    /// A single application starts at once.
    #[test]
    fn a_wait_that_nobody_had_is_null_and_an_empty_column() {
        let answer = answer(2, Ranges { n_apps: "1".parse().expect("a range"), ..Ranges::default() });
        let json = answer.json();
        assert_eq!(
            (&json["algorithms"]["nos"]["jwt"], json["algorithms"]["nos"]["jct"].is_f64()),
            (&Value::Null, true)
        );
        let rows = answer.table().expect("a table").parsable();
        let row = rows.lines().find(|line| line.starts_with("nos")).expect("its row");
        assert_eq!(row.split('|').nth(6), Some(""), "{rows}");
    }
}
