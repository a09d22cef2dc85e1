//! Round numbers for axis marks, and their text.

/// Returns marks at round numbers that cover `least` to `most`, about `n_wanted` of them; the first and the last may
/// lie outside.
pub fn round_marks(least: f64, most: f64, n_wanted: u32) -> Vec<f64> {
    let range = if most > least { most - least } else { 1.0 };
    let rough = range / f64::from(n_wanted.max(1));
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|factor| factor * decade).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * decade);
    let first = (least / step).floor() as i64;
    let last = (most / step - 1e-9).ceil() as i64;
    (first..=last.max(first + 1)).map(|idx| idx as f64 * step).collect()
}

/// Returns a readable number: 20 k, 3 M, 0.25.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    // As many decimals as needed, at most three.
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_cover_everything() {
        let check = |least, most, expected: &[&str]| {
            let marks: Vec<String> = round_marks(least, most, 5).into_iter().map(short).collect();
            assert_eq!(marks, expected, "{least} to {most}");
        };
        check(0.0, 1.0, &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        check(0.0, 94_152_147.0, &["0", "20 M", "40 M", "60 M", "80 M", "100 M"]);
        check(0.0, 19_776.0, &["0", "5000", "10 k", "15 k", "20 k"]);
        check(-30.0, 100.0, &["-50", "0", "50", "100"]);
        check(0.0, 0.0, &["0", "0.2"]);
    }
}
