//! How much memory the processes of a row had at most: looked at again and again while the bench runs.

use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;

/// Begins to look. Before that no row has a figure.
pub fn watch() {
    WATCH.get_or_init(|| Mutex::new(Watch { since: Instant::now(), peak: sample(), of_last_row: None }));
    thread::spawn(|| {
        loop {
            thread::sleep(EVERY);
            let Some(watch) = WATCH.get() else { return };
            let now = sample();
            let mut watch = watch.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            watch.peak = watch.peak.max(now);
        }
    });
}

/// MiB, the most since the row before this one: of the bench and all processes below it together. Rows that come at
/// once were measured by the same processes, and have the same.
pub fn of_row() -> Option<f64> {
    let now = sample();
    let mut watch = WATCH.get()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Some(watch.row(now, Instant::now()))
}

#[derive(Debug)]
struct Watch {
    since: Instant,
    peak: f64,
    of_last_row: Option<f64>,
}

impl Watch {
    fn row(&mut self, now: f64, at: Instant) -> f64 {
        let is_same_run = at.duration_since(self.since) < SAME_RUN;
        let peak = match self.of_last_row {
            Some(last) if is_same_run => last,
            Some(_) | None => self.peak.max(now),
        };
        *self = Watch { since: at, peak: now, of_last_row: Some(peak) };
        peak
    }
}

/// Pages that processes share count in each.
fn sample() -> f64 {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    process::trees(&[own]).iter().filter_map(|process| process::resident_mib(process.pid)).sum()
}

static WATCH: OnceLock<Mutex<Watch>> = OnceLock::new();
/// Often enough for runs of seconds, and seldom enough to cost them nothing: about 1 % of a processor.
const EVERY: Duration = Duration::from_millis(200);
/// No run is as short.
const SAME_RUN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_own_peak_and_rows_of_one_run_the_same() {
        let begun = Instant::now();
        let mut watch = Watch { since: begun, peak: 300.0, of_last_row: None };
        let at = |millis| begun + Duration::from_millis(millis);
        assert_eq!(watch.row(20.0, at(900)), 300.0);
        assert_eq!(watch.row(20.0, at(901)), 300.0, "measured by the same processes");
        watch.peak = 70.0;
        assert_eq!(watch.row(20.0, at(2000)), 70.0, "not the bench's whole");
        assert_eq!(watch.row(90.0, at(3000)), 90.0);
    }

    #[test]
    fn processes_below_count() {
        let before = sample();
        let held = vec![1_u8; 64 << 20];
        assert!(sample() > before + 50.0, "what this one has");
        drop(held);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let child_mib = process::resident_mib(child.id() as i32).expect("it lives");
        let own = process::resident_mib(std::process::id() as i32).expect("we live");
        assert!(sample() >= own.max(child_mib), "and what is below it");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
