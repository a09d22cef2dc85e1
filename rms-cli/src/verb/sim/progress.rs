//! A progress bar of an experiment, only for people at a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::output;

/// A line on the standard error that is redrawn in place, and removed at the end. One line of text needs no library.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    total: usize,
    is_shown: bool,
    begun: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    pub(super) fn new(total: usize) -> Progress {
        Progress::of("job", total)
    }

    pub(super) fn of(what: &'static str, total: usize) -> Progress {
        Progress { what, total, is_shown: output::is_stderr_terminal(), begun: Instant::now(), drawn: None }
    }

    pub(super) fn at(&mut self, done: usize) {
        let is_due = self.drawn.unwrap_or(self.begun).elapsed() >= EVERY;
        if self.is_shown && is_due {
            self.drawn = Some(Instant::now());
            // If the terminal is closed, nobody can read it.
            let _ =
                write!(std::io::stderr().lock(), "\r{}\x1b[K", line(self.what, done, self.total, self.begun.elapsed()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Returns the bar's line; `what` is the word for one item.
fn line(what: &str, done: usize, total: usize, took: Duration) -> String {
    let part = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let n_full = (part * WIDTH as f64) as usize;
    let bar: String = (0..WIDTH).map(|idx| if idx < n_full { '█' } else { '░' }).collect();
    let rate = done as f64 / took.as_secs_f64().max(0.001);
    let plural = if total == 1 { "" } else { "s" };
    format!("{bar} {:3.0} %  {done} of {total} {what}{plural}, {rate:.0}/s", part * 100.0)
}

const EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let text = line("job", 500, 1000, Duration::from_secs(2));
        assert_eq!(
            text,
            format!("{}{}  50 %  500 of 1000 jobs, 250/s", "█".repeat(15), "░".repeat(15)).replace("░  50", "░  50")
        );
        assert!(line("job", 0, 0, Duration::ZERO).contains("100 %"));
        assert!(line("run", 1, 1, Duration::from_secs(1)).contains(" 1 of 1 run, "));
    }
}
