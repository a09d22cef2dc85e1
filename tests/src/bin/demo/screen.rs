//! Shows how the queue fills and drains: redrawn in place on a terminal, a frame now and then in a log.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Where frames go.
pub struct Screen {
    is_terminal: bool,
    begun: Instant,
    last: Option<Instant>,
}

/// A log is read, not watched.
const LOG_PERIOD: Duration = Duration::from_secs(5);
const TERMINAL_PERIOD: Duration = Duration::from_millis(200);

impl Screen {
    pub fn new() -> Screen {
        Screen { is_terminal: std::io::stdout().is_terminal(), begun: Instant::now(), last: None }
    }

    /// Whether enough time has passed since the last frame.
    pub fn is_due(&self) -> bool {
        let period = if self.is_terminal { TERMINAL_PERIOD } else { LOG_PERIOD };
        self.last.is_none_or(|last| last.elapsed() >= period)
    }

    /// Draws the profile below a line of counts; how many jobs wait.
    pub fn frame(&mut self, n_planned: usize, n_submitted: usize, jobs: &[Value], view: &str) -> usize {
        self.last = Some(Instant::now());
        let count = |states: &[&str]| {
            jobs.iter().filter(|job| job["state"].as_str().is_some_and(|state| states.contains(&state))).count()
        };
        let (running, waiting) = (count(&["started", "ending"]), count(&["request_sent", "waiting", "submitted"]));
        let n_ended = n_submitted.saturating_sub(running + waiting);
        let home = if self.is_terminal { "\x1b[H\x1b[2J" } else { "" };
        self.print(&format!(
            "{home}\n[{:>3.0} s] {n_submitted} of {n_planned} jobs submitted: {waiting} wait, {running} run, {n_ended} ended\n{view}",
            self.begun.elapsed().as_secs_f64()
        ));
        waiting
    }

    /// One line that stays.
    pub fn say(&mut self, text: &str) {
        self.print(&format!("[{:>3.0} s] {text}\n", self.begun.elapsed().as_secs_f64()));
    }

    fn print(&self, text: &str) {
        // Nobody reads any more: the work goes on, its exit code tells.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    }
}
