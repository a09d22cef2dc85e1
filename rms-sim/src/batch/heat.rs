//! The results of jobs by size and by the time of their submit: the cells of a heat map.

use rms_model::{Span, Time};
use serde::Serialize;

use super::Finished;

/// Rows are sizes, columns are times; both in equal classes, sizes by powers of two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMap {
    /// The largest size of each row, in nodes.
    pub sizes: Vec<u32>,
    /// The length of each column, in seconds; the first one begins with the first submit.
    pub column_s: f64,
    /// By row, then by column; `null` where no job was submitted.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// Jobs of similar size and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    pub jobs: usize,
    pub mean_wait_s: f64,
    pub mean_bounded_slowdown: f64,
}

impl HeatMap {
    /// Builds a map with `n_columns` intervals of time.
    pub fn new<'a>(finished: impl Iterator<Item = &'a Finished> + Clone, n_columns: usize) -> HeatMap {
        let n_columns = n_columns.max(1);
        let first = finished.clone().map(|job| job.submitted).min().unwrap_or(Time::EPOCH);
        let last = finished.clone().map(|job| job.submitted).max().unwrap_or(first);
        let largest = finished.clone().map(|job| job.n_nodes).max().unwrap_or(1);
        let n_rows = class(largest) + 1;
        let column = Span::from_millis(last.since(first).as_millis() / n_columns as i64 + 1);
        let mut sums = vec![vec![Cell::default(); n_columns]; n_rows];
        for job in finished {
            let column_idx = (job.submitted.since(first).as_millis() / column.as_millis()) as usize;
            let cell = &mut sums[class(job.n_nodes)][column_idx.min(n_columns - 1)];
            cell.jobs += 1;
            cell.mean_wait_s += job.wait().as_secs_f64();
            cell.mean_bounded_slowdown += job.bounded_slowdown();
        }
        let mean = |sum: Cell| {
            let n_jobs = sum.jobs as f64;
            let (mean_wait_s, mean_bounded_slowdown) = (sum.mean_wait_s / n_jobs, sum.mean_bounded_slowdown / n_jobs);
            (sum.jobs > 0).then_some(Cell { jobs: sum.jobs, mean_wait_s, mean_bounded_slowdown })
        };
        HeatMap {
            sizes: (0..n_rows).map(|row| 1 << row).collect(),
            column_s: column.as_secs_f64(),
            cells: sums.into_iter().map(|row| row.into_iter().map(mean).collect()).collect(),
        }
    }
}

/// Returns the class of a size: 1 is class 0, 2 is 1, 3 and 4 are 2, 5 to 8 are 3.
fn class(n_nodes: u32) -> usize {
    n_nodes.max(1).next_power_of_two().trailing_zeros() as usize
}
