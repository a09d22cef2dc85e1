//! Round times and round node counts for axis marks.

use rms_model::{Span, Time};

use super::segments::Window;
use crate::stamp;

/// Returns marks inside the window, at round local times, at most `n_most` of them.
pub fn time_marks(window: Window, n_most: i64) -> Vec<(Time, String)> {
    let secs = (window.span().as_millis() / 1000).max(1);
    let step = step_secs(secs, n_most.max(1));
    let format = if step >= DAY {
        "%m-%d"
    } else if secs >= 2 * DAY {
        "%m-%d %H:%M"
    } else if step >= 60 {
        "%H:%M"
    } else {
        "%H:%M:%S"
    };
    // Local time in seconds: marks are round there, and evenly spaced even where the clock is put forward or back.
    let shown = |at: i64| at + stamp::ahead_of_utc_secs(Time::from_secs(at));
    let first = (window.from.as_millis() + 999).div_euclid(1000);
    let mut wall = (shown(first) + step - 1).div_euclid(step) * step;
    let mut marks: Vec<(Time, String)> = Vec::new();
    while (marks.len() as i64) < n_most.max(1) {
        let about = wall - (shown(first) - first);
        let at = Time::from_secs(wall - (shown(about) - about));
        if at >= window.until {
            break;
        }
        if at >= window.from && marks.last().is_none_or(|(last, _)| *last < at) {
            marks.push((at, stamp::formatted(at, format)));
        }
        wall += step;
    }
    marks
}

/// Returns the shortest round step that makes at most `n_most` marks.
fn step_secs(secs: i64, n_most: i64) -> i64 {
    let fits = |step: &i64| secs / step < n_most;
    let round = ROUND_SECS.iter().copied().find(fits);
    round.unwrap_or_else(|| (secs / n_most / DAY + 1) * DAY)
}

const DAY: i64 = 86_400;
#[rustfmt::skip]
const ROUND_SECS: [i64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY, 2 * DAY, 7 * DAY,
];

/// Returns round node counts from 0 to `most`, at most about `n_most` of them, and `most` itself.
pub fn node_marks(most: i64, n_most: i64) -> Vec<i64> {
    let mut step = 1;
    // 1, 2, 5, 10, 20, 50, …
    for factor in [2, 5, 10].iter().cycle() {
        if most / step <= n_most.max(1) || step > i64::MAX / 100 {
            break;
        }
        let decade = 10_i64.pow(step.ilog10());
        step = decade * factor;
    }
    let mut marks: Vec<i64> = (0..=most / step).map(|idx| idx * step).collect();
    // The capacity is the most important mark: a round number close to it is left out.
    if let Some(last) = marks.last().copied().filter(|last| *last != most) {
        if most - last < step / 2 && marks.len() > 1 {
            marks.pop();
        }
        marks.push(most);
    }
    marks
}

/// Returns the length of a window as text.
pub fn span_text(window: Window) -> String {
    stamp::brief(Span::from_millis(window.span().as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: i64, until: i64) -> Window {
        Window { from: Time::from_secs(from), until: Time::from_secs(until) }
    }

    fn labels(from: i64, until: i64) -> Vec<String> {
        time_marks(window(from, until), 5).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn marks_stand_at_round_times() {
        assert_eq!(labels(3601, 3601 + 40), ["01:00:10", "01:00:20", "01:00:30", "01:00:40"]);
        assert_eq!(labels(0, 3600), ["00:00", "00:15", "00:30", "00:45"]);
        assert_eq!(labels(0, 4 * DAY), ["01-01", "01-02", "01-03", "01-04"]);
        assert!(!time_marks(window(0, 100 * 366 * DAY), 5).is_empty());
    }

    #[test]
    fn node_marks_hold_the_capacity() {
        assert_eq!(node_marks(4, 5), [0, 1, 2, 3, 4]);
        assert_eq!(node_marks(24, 5), [0, 5, 10, 15, 20, 24]);
        assert_eq!(node_marks(101, 5), [0, 20, 40, 60, 80, 101]);
        assert_eq!(node_marks(0, 5), [0]);
    }
}
