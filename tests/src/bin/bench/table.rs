//! The table of the bench: what was measured, the target and the memory beside it, by how much it is missed and what bounds it.

use std::fmt;

use crate::memory;

/// What a measure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// A floor or a part that others are compared with.
    Reference,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub what: String,
    pub measured: f64,
    pub unit: &'static str,
    pub target: Target,
    /// What bounds it, for whoever wants it better. Printed where the target is missed.
    pub bound: &'static str,
    /// What its processes had at most.
    pub peak_mib: Option<f64>,
}

/// Rows under one headline.
#[derive(Debug)]
pub struct Table {
    headline: &'static str,
    rows: Vec<Row>,
}

impl Table {
    pub fn new(headline: &'static str) -> Table {
        Table { headline, rows: Vec::new() }
    }

    /// A measure without a target.
    pub fn note(&mut self, what: impl Into<String>, measured: f64, unit: &'static str) {
        self.measure(what, measured, unit, Target::Reference, "");
    }

    pub fn measure(
        &mut self,
        what: impl Into<String>,
        measured: f64,
        unit: &'static str,
        target: Target,
        bound: &'static str,
    ) {
        let peak_mib = memory::of_row();
        self.rows.push(Row { what: what.into(), measured, unit, target, bound, peak_mib });
    }
}

impl Row {
    fn verdict(&self) -> String {
        match self.target {
            Target::Reference => String::new(),
            Target::AtMost(limit) if self.measured <= limit => "met".to_owned(),
            Target::AtMost(limit) => {
                format!("missed by {:.0} %: {}", 100.0 * (self.measured / limit - 1.0), self.bound)
            }
            Target::AtLeast(limit) if self.measured >= limit => "met".to_owned(),
            Target::AtLeast(limit) => {
                format!("missed by {:.0} %: {}", 100.0 * (1.0 - self.measured / limit), self.bound)
            }
        }
    }

    fn target(&self) -> String {
        match self.target {
            Target::Reference => "–".to_owned(),
            Target::AtMost(limit) => format!("≤ {}", figure(limit)),
            Target::AtLeast(limit) => format!("≥ {}", figure(limit)),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.headline)?;
        writeln!(f, "  {:<58} {:>16}  {:>10}  {:>9}", "", "measured", "target", "memory")?;
        for row in &self.rows {
            let measured = format!("{} {}", figure(row.measured), row.unit);
            let memory = row.peak_mib.map_or_else(String::new, |peak| format!("{} MiB", figure(peak)));
            let (target, verdict) = (row.target(), row.verdict());
            writeln!(f, "  {:<58} {measured:>16}  {target:>10}  {memory:>9}  {verdict}", row.what)?;
        }
        Ok(())
    }
}

/// Three significant digits; more would pretend.
fn figure(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 || magnitude == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The value below which `share` of all lie.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let idx = (share * values.len() as f64).ceil() as usize;
    values.get(idx.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_says_by_how_much_and_why() {
        let mut table = Table::new("x");
        table.measure("slow", 15.0, "ms", Target::AtMost(10.0), "the disk");
        table.measure("few", 90.0, "/s", Target::AtLeast(100.0), "the network");
        table.measure("good", 9.0, "ms", Target::AtMost(10.0), "nothing");
        let text = table.to_string();
        assert!(text.contains("missed by 50 %: the disk"), "{text}");
        assert!(text.contains("missed by 10 %: the network"), "{text}");
        assert!(text.lines().any(|line| line.contains("good") && line.ends_with("met")), "{text}");
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), 50.0);
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert_eq!(quantile(&mut values, 1.0), 100.0);
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}
