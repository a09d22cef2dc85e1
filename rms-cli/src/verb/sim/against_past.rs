//! Compares a replay with what really happened to the same jobs, and counts the jobs of the past that it does not
//! cover.

use rms_model::Span;
use rms_sim::batch::{Census, Summary};
use serde_json::{Value, json};

use super::answer::{RunAnswer, entry, measures, number};
use crate::output::Show;
use crate::screen;
use crate::table::{Table, wrapped};

pub(super) struct ReplayAnswer {
    pub(super) run: RunAnswer,
    /// The figures of the jobs that the replay has run.
    pub(super) past: Summary,
    pub(super) census: Census,
}

/// How many jobs start before, after and with their real starts.
struct Starts {
    earlier: usize,
    later: usize,
    alike: usize,
}

impl ReplayAnswer {
    /// Returns each figure of the replay and, if the history knows it, the real value.
    fn rows(&self) -> Vec<(&'static str, Option<f64>, f64)> {
        let real = measures(&self.past.figures);
        let of_past = |name: &str| real.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        self.run.figures().into_iter().map(|(name, value)| (name, of_past(name), value)).collect()
    }

    fn starts(&self) -> Starts {
        let mut starts = Starts { earlier: 0, later: 0, alike: 0 };
        for (past, again) in self.past.finished.iter().zip(&self.run.summary.finished) {
            let (Some(past), Some(again)) = (past, again) else { continue };
            let moved = again.started.since(past.started);
            if moved > SECOND {
                starts.later += 1;
            } else if past.started.since(again.started) > SECOND {
                starts.earlier += 1;
            } else {
                starts.alike += 1;
            }
        }
        starts
    }

    /// Returns the caveats for the figures, one sentence each.
    fn notes(&self) -> Vec<String> {
        let Starts { earlier, later, alike } = self.starts();
        let mut notes = vec![format!("starts: {alike} as they were (within 1 s), {earlier} earlier, {later} later")];
        let Census {
            cancelled_before_start,
            never_started,
            still_waiting,
            still_running,
            cancelled_while_running,
            resized,
            restarted,
            without_submission,
            shared,
        } = self.census;
        let refused = self.run.summary.figures.refused;
        let left_out = listed(&[
            (cancelled_before_start, "cancelled before they started"),
            (never_started, "ended without a start"),
            (still_waiting, "still waiting"),
            (still_running, "still running"),
            (refused, "want more than the cluster has now (nodes, CPUs, memory, devices or licences)"),
        ]);
        if !left_out.is_empty() {
            notes.push(format!("in neither column, as no replay can run them: {left_out}"));
        }
        let in_part = listed(&[
            (cancelled_while_running, "cancelled while they ran (they run for as long as they did)"),
            (resized, "negotiated or evolving (they keep the nodes that they had on average)"),
            (restarted, "started again after a loss (their real wait goes to their last start)"),
            (
                shared,
                "lent or borrowed CPUs (without that they run for less time, in proportion to the CPUs that they had)",
            ),
            (
                without_submission,
                "of which a snapshot of the journal has replaced the submission (they run without the devices, licences, \
                 memory, constraints and priority that they may have asked for)",
            ),
        ]);
        if !in_part.is_empty() {
            notes.push(format!("in both columns, but comparable only in part: {in_part}"));
        }
        notes
    }
}

fn listed(counts: &[(usize, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

fn difference(real: f64, value: f64) -> String {
    let change = value - real;
    let text = if change == 0.0 {
        "0".to_owned()
    } else {
        format!("{}{}", if change > 0.0 { "+" } else { "" }, number(change))
    };
    let percent = 100.0 * change / real;
    if change != 0.0 && percent.is_finite() { format!("{text} ({percent:+.1} %)") } else { text }
}

impl Show for ReplayAnswer {
    fn text(&self) -> String {
        let mut table = Table::new(&["figure", ">real", ">replay", ">difference"]);
        for (name, real, value) in self.rows() {
            let difference = real.map_or_else(String::new, |real| difference(real, value));
            table.row(vec![name.to_owned(), real.map_or_else(String::new, number), number(value), difference]);
        }
        let width = screen::table_width().unwrap_or(screen::PLAIN);
        let notes: String = self.notes().iter().map(|note| wrapped(note, width)).collect();
        format!("{}\n{notes}\n{}", table.text(""), self.run.blocks())
    }

    fn json(&self) -> Value {
        let Value::Object(mut figures) = self.run.json() else { return Value::Null };
        let object = |of: &dyn Fn(f64, f64) -> f64| -> Value {
            let known = self.rows().into_iter().filter_map(|(name, real, value)| Some((name, of(real?, value))));
            Value::Object(known.map(entry).collect())
        };
        let Starts { earlier, later, alike } = self.starts();
        figures.insert("real".to_owned(), object(&|real, _| real));
        figures.insert("difference".to_owned(), object(&|real, value| value - real));
        figures.insert("starts".to_owned(), json!({ "earlier": earlier, "later": later, "alike": alike }));
        figures.insert("not_compared".to_owned(), json!(self.census));
        Value::Object(figures)
    }

    fn ids(&self) -> Vec<String> {
        self.run.ids()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["figure", "real", "replay"]);
        for (name, real, value) in self.rows() {
            table.row(vec![name.to_owned(), real.map_or_else(String::new, |real| real.to_string()), value.to_string()]);
        }
        Some(table)
    }
}

/// The largest shift of a start that counts as unchanged, as agents need time.
const SECOND: Span = Span::from_secs(1);
