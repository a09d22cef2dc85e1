//! Draws the figures of 004 from runs of `rms sim sd`: ratios to static backfill as bars (Figures 1 to 3 and 8), heat maps
//! by size and run time (4 to 6), and series of days (7).

use crate::chart::{Chart, Panel, Value, begin, colour};
use crate::svg::{escape, put, round};

/// One run in a picture with bars.
pub(super) struct Bar {
    pub(super) name: String,
    /// Of each panel: ours, and the paper's where it prints one.
    pub(super) values: Vec<(f64, Option<f64>)>,
}

/// Returns a panel of bars side by side for each title; a line marks 1, the value of static backfill.
pub(super) fn bars(title: &str, panels: &[&str], bars: &[Bar]) -> String {
    let height = TOP + bars.len() as f64 * PITCH + 44.0;
    let width = LABELS + panels.len() as f64 * (PANEL + GAP);
    let mut svg = begin(title, "over static backfill; ◇ paper 004", width, height);
    let w = &mut svg;
    let y_of = |idx: usize| TOP + idx as f64 * PITCH;
    for (idx, bar) in bars.iter().enumerate() {
        put(
            w,
            format_args!(
                r#"<text class="label right" x="{}" y="{}">{}</text>"#,
                LABELS - 8.0,
                y_of(idx) + 13.0,
                escape(&bar.name)
            ),
        );
    }
    for (panel, name) in panels.iter().enumerate() {
        let left = LABELS + panel as f64 * (PANEL + GAP);
        let both = bars.iter().map(|bar| bar.values[panel]).flat_map(|(ours, paper)| [Some(ours), paper]);
        let most = both.flatten().filter(|value| value.is_finite()).fold(1.0, f64::max);
        let x = |value: f64| round(left + (PANEL - 44.0) * value / most);
        put(w, format_args!(r#"<text class="name" x="{left}" y="{}">{}</text>"#, TOP - 12.0, escape(name)));
        for (idx, bar) in bars.iter().enumerate() {
            let ((ours, paper), y) = (bar.values[panel], y_of(idx));
            let (length, fill) = (round(x(ours) - left), colour(usize::from(ours > 1.0)));
            put(w, format_args!(r#"<rect x="{left}" y="{y}" width="{length}" height="18" fill="{fill}"/>"#));
            // Behind the line, so that it crosses no number.
            let after = [Some(ours), paper].into_iter().flatten().fold(1.0, f64::max);
            put(w, format_args!(r#"<text class="label" x="{}" y="{}">{ours:.2}</text>"#, x(after) + 9.0, y + 13.0));
            if let Some(paper) = paper {
                let (x, y) = (x(paper), y + 9.0);
                put(w, format_args!(r##"<path d="M{x} {y}m0 -6l6 6l-6 6l-6 -6z" fill="#fff" stroke="#1f2933"/>"##));
            }
        }
        let (one, bottom) = (x(1.0), y_of(bars.len()));
        put(w, format_args!(r#"<line class="axis" x1="{one}" y1="{}" x2="{one}" y2="{bottom}"/>"#, TOP - 4.0));
        put(w, format_args!(r#"<text class="soft middle" x="{one}" y="{}">1</text>"#, bottom + 14.0));
    }
    put(w, format_args!("</svg>"));
    svg
}

/// One heat map: a row for each size, the smallest first, with a value for each run time.
pub(super) struct Heat {
    pub(super) title: String,
    pub(super) cells: Vec<Vec<Option<f64>>>,
}

/// Returns heat maps side by side: what is above 1 is better than under static backfill, what is below is worse.
pub(super) fn heat(title: &str, rows: &[String], columns: &[String], maps: &[Heat]) -> String {
    let width = 70.0 + maps.len() as f64 * (columns.len() as f64 * CELL_WIDTH + GAP + 20.0);
    let height = TOP + rows.len() as f64 * CELL_HEIGHT + 44.0;
    let mut svg = begin(title, "static backfill over sharing: blue is better, orange worse", width, height);
    let w = &mut svg;
    let y_of = |row: usize| TOP + (rows.len() - 1 - row) as f64 * CELL_HEIGHT;
    for (row, name) in rows.iter().enumerate() {
        let y = y_of(row) + 16.0;
        put(w, format_args!(r#"<text class="label right" x="62" y="{y}">{}</text>"#, escape(name)));
    }
    for (idx, map) in maps.iter().enumerate() {
        let left = 70.0 + idx as f64 * (columns.len() as f64 * CELL_WIDTH + GAP + 20.0);
        put(w, format_args!(r#"<text class="name" x="{left}" y="{}">{}</text>"#, TOP - 12.0, escape(&map.title)));
        for (column, name) in columns.iter().enumerate() {
            let (x, y) = (left + (column as f64 + 0.5) * CELL_WIDTH, y_of(0) + CELL_HEIGHT + 15.0);
            put(w, format_args!(r#"<text class="soft middle" x="{x}" y="{y}">{}</text>"#, escape(name)));
        }
        for (row, cells) in map.cells.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let Some(value) = value else { continue };
                let (x, y) = (left + column as f64 * CELL_WIDTH, y_of(row));
                // A factor of ten is the full colour.
                let depth = round(value.max(1e-9).log10().abs().min(1.0));
                let fill = colour(usize::from(*value < 1.0));
                put(
                    w,
                    format_args!(
                        r#"<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="{fill}" fill-opacity="{depth}" stroke="{}"/>"#,
                        "#e3e8ec"
                    ),
                );
                let (x, y) = (x + CELL_WIDTH / 2.0, y + 16.0);
                let digits = if *value < 99.5 { 1 } else { 0 };
                put(w, format_args!(r#"<text class="label middle" x="{x}" y="{y}">{value:.digits$}</text>"#));
            }
        }
    }
    put(w, format_args!("</svg>"));
    svg
}

/// One day of a series: the slowdown under static backfill and under sharing, and the guests that began.
pub(super) type DayValues = (f64, f64, usize);

pub(super) fn daily(title: &str, days: &[DayValues]) -> String {
    let one = |value: f64| Value { low: value, middle: value, high: value };
    let xs: Vec<f64> = (1..=days.len()).map(|day| day as f64).collect();
    let panel = |title: &str, y_label: &str, curves| Panel {
        title: title.to_owned(),
        x_label: "day".to_owned(),
        y_label: y_label.to_owned(),
        xs: xs.clone(),
        curves,
    };
    let slowdowns = vec![
        days.iter().map(|(fixed, ..)| one(*fixed)).collect(),
        days.iter().map(|(_, shared, _)| one(*shared)).collect(),
    ];
    let nothing = days.iter().map(|_| one(f64::NAN)).collect();
    let guests = vec![nothing, days.iter().map(|(.., guests)| one(*guests as f64)).collect()];
    Chart {
        title: title.to_owned(),
        subtitle: "jobs by the day of their submission".to_owned(),
        legend: vec!["static".to_owned(), "sharing".to_owned()],
        panels: vec![panel("mean slowdown", "slowdown", slowdowns), panel("guests that began", "jobs", guests)],
    }
    .svg()
}

const TOP: f64 = 86.0;
const LABELS: f64 = 190.0;
const PANEL: f64 = 250.0;
const GAP: f64 = 20.0;
const PITCH: f64 = 26.0;
const CELL_WIDTH: f64 = 44.0;
const CELL_HEIGHT: f64 = 24.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_the_paper_is_marked() {
        let run = |name: &str, ours, paper| Bar { name: name.to_owned(), values: vec![(ours, paper)] };
        let svg = bars("W & 1", &["slowdown"], &[run("10 ideal", 0.5, Some(0.25)), run("5 ideal", 2.0, None)]);
        // The longest bar is 206 wide and stands for 2.
        assert!(svg.contains(r#"width="51.5" height="18""#) && svg.contains(r#"width="206" height="18""#), "{svg}");
        assert_eq!(svg.matches("<path").count(), 1, "{svg}");
        assert!(svg.contains("W &amp; 1") && svg.contains(">0.50<") && svg.contains(">2.00<"));
    }

    #[test]
    fn better_and_worse_have_their_colours_and_what_is_absent_has_none() {
        let cells = vec![vec![Some(10.0), None], vec![Some(0.1), Some(1.0)]];
        let maps = [Heat { title: "wait".to_owned(), cells }];
        let names = |names: [&str; 2]| names.map(str::to_owned);
        let svg = heat("heat", &names(["≤1", "≤16"]), &names(["≤5m", "more"]), &maps);
        assert_eq!(svg.matches("<rect").count(), 1 + 3, "{svg}");
        let full = |idx| format!(r#"fill="{}" fill-opacity="1""#, colour(idx));
        assert!(svg.contains(&full(0)) && svg.contains(&full(1)) && svg.contains(r#"fill-opacity="0""#), "{svg}");
    }

    #[test]
    fn each_day_is_a_point_of_its_series() {
        let svg = daily("days", &[(10.0, 5.0, 3), (20.0, 5.0, 0)]);
        assert!(!svg.contains("NaN") && svg.contains("guests that began"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "static: two days and the legend: {svg}");
    }
}
