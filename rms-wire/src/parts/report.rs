//! Splits an agent's report about its jobs into frames, on the agent, and joins them, on the server.

use rms_api::desired::NodeReport;

use super::{MAX_LINES, Malformed};
use crate::to_server::{ReportPart, ToServer};

/// Returns the frames of a report, in order; at least one.
pub fn report_parts(report: &NodeReport) -> Vec<ToServer> {
    let seen = report.seen;
    let n_parts = report.jobs.len().div_ceil(MAX_LINES).max(1);
    let part = |idx| {
        let jobs = report.jobs.iter().skip(idx * MAX_LINES).take(MAX_LINES).cloned().collect();
        ToServer::Report(ReportPart { seen, jobs, last: idx + 1 == n_parts })
    };
    (0..n_parts).map(part).collect()
}

/// Joins the frames of a report.
#[derive(Debug, Default)]
pub struct ReportParts {
    so_far: Option<NodeReport>,
}

impl ReportParts {
    pub fn new() -> ReportParts {
        ReportParts::default()
    }

    /// Adds the next frame; returns the whole report with the last one.
    ///
    /// # Errors
    /// The frame is too long, or belongs to another report than the previous ones.
    pub fn push(&mut self, part: ReportPart) -> Result<Option<NodeReport>, Malformed> {
        let seen = part.seen;
        let mut report = self.so_far.take().unwrap_or(NodeReport { seen, jobs: Vec::new() });
        if report.seen != seen {
            return Err(Malformed::MixedGenerations { first: report.seen.0, later: seen.0 });
        }
        let n_lines = part.jobs.len();
        if n_lines > MAX_LINES {
            return Err(Malformed::TooMany { field: "a part of a report", n: n_lines, max: MAX_LINES });
        }
        if n_lines == 0 && !part.last {
            return Err(Malformed::EmptyPart);
        }
        report.jobs.extend(part.jobs);
        let n = report.jobs.len();
        if n > MAX_JOBS_OF_A_NODE {
            return Err(Malformed::TooMany { field: "a report", n, max: MAX_JOBS_OF_A_NODE });
        }
        if part.last {
            return Ok(Some(report));
        }
        self.so_far = Some(report);
        Ok(None)
    }
}

/// More jobs than any spool holds.
const MAX_JOBS_OF_A_NODE: usize = 65_536;
