//! `rms sim views --view-shares`: the costs and benefits of letting an application choose from a share of each cluster.

use experiments::delegated;
use experiments::views::{Logs, N_JOBS, ShareCase, ShareValues, share_cases};
use rms_model::error::chain;
use serde_json::{Value, json};

use super::side_by_side;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

/// The runs.
pub(super) struct Shares<'a> {
    pub(super) percents: &'a [u32],
    pub(super) n_seeds: u32,
    pub(super) first_seed: u64,
    pub(super) quick: bool,
    pub(super) n_threads: usize,
}

/// The shares of complex applications.
const P_CEM: [f64; 3] = [0.0, 0.2, 1.0];
const QUICK_JOBS: usize = 30;

pub(super) fn run(shares: &Shares<'_>, context: &Context) -> Result<Exit, Failure> {
    let logs = Logs::of(&delegated::first_log(), None);
    let n_jobs = if shares.quick { QUICK_JOBS } else { N_JOBS };
    let seeds = (0..u64::from(shares.n_seeds)).map(|idx| shares.first_seed.wrapping_add(idx));
    let cases = share_cases(shares.percents, &P_CEM, seeds);
    let run = |case: &ShareCase| case.run(&logs, n_jobs, &mut side_by_side::thread_cpu);
    let ran: Vec<ShareValues> = side_by_side::map(&cases, shares.n_threads, run)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::new("experiment", chain(&error)))?;
    let n_seeds = shares.n_seeds.max(1) as usize;
    let mut rows: Vec<Row> = cases
        .chunks(n_seeds)
        .zip(ran.chunks(n_seeds))
        .filter_map(|(cases, ran)| {
            let ShareCase { percent, p_cem, seed: _ } = *cases.first()?;
            Some(Row { complex_pct: (100.0 * p_cem) as u32, percent, values: ShareValues::mean(ran) })
        })
        .collect();
    rows.sort_by_key(|row| row.complex_pct);
    context.output.show(&SharesAnswer { n_seeds: shares.n_seeds, first_seed: shares.first_seed, n_jobs, rows })?;
    Ok(Exit::OK)
}

struct SharesAnswer {
    n_seeds: u32,
    first_seed: u64,
    n_jobs: usize,
    rows: Vec<Row>,
}

struct Row {
    complex_pct: u32,
    percent: u32,
    values: ShareValues,
}

impl SharesAnswer {
    fn rows(&self) -> Table {
        let mut table = Table::new(&[
            ">complex",
            ">share",
            ">configurations",
            ">MB",
            ">server steps",
            ">launcher steps",
            ">nodes",
            ">response s",
            ">makespan s",
            ">granted",
        ]);
        for Row { complex_pct, percent, values } in &self.rows {
            table.row(vec![
                format!("{complex_pct} %"),
                format!("{percent} %"),
                format!("{:.0}", values.configurations),
                format!("{:.1}", values.megabytes),
                format!("{:.1} M", values.server_steps / 1e6),
                format!("{:.1} M", values.launcher_steps / 1e6),
                format!("{:.1}", values.nodes),
                format!("{:.0}", values.response_s),
                format!("{:.0}", values.makespan_s),
                format!("{:.1} %", values.utilisation_pct),
            ]);
        }
        table
    }
}

impl Show for SharesAnswer {
    fn text(&self) -> String {
        let SharesAnswer { n_seeds, first_seed, n_jobs, rows: _ } = self;
        let runs = if *n_seeds == 1 { "run" } else { "runs" };
        let head =
            format!("means of {n_seeds} {runs} from seed {first_seed}; {n_jobs} jobs on 4 clusters of 128 nodes\n\n");
        head + &self.rows().text("no shares")
    }

    fn json(&self) -> Value {
        let row = |row: &Row| json!({"complex_pct": row.complex_pct, "share_pct": row.percent, "mean": row.values});
        json!({
            "seeds": self.n_seeds,
            "first_seed": self.first_seed,
            "jobs": self.n_jobs,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.percent.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}
