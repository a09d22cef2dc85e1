//! Draws curves with their spread as SVG: panels in two columns, axes with units, and a legend.

pub mod ticks;

use std::fmt::Write as _;

use crate::svg::{escape, put, round};
use ticks::{round_marks, short};

/// A whole drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Explains the lines and bands.
    pub subtitle: String,
    /// The name of each curve, in the order of every panel.
    pub legend: Vec<String>,
    pub panels: Vec<Panel>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub xs: Vec<f64>,
    /// One value for each x.
    pub curves: Vec<Vec<Value>>,
}

/// A value and the range of its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl Chart {
    /// Returns a complete SVG document.
    pub fn svg(&self) -> String {
        let n_columns = self.panels.len().clamp(1, 2);
        let n_rows = self.panels.len().div_ceil(n_columns).max(1);
        let width = LEFT_EDGE + n_columns as f64 * PITCH_X;
        let top = TOP + 20.0 * self.legend.len().div_ceil(LEGEND_COLUMNS) as f64;
        let height = top + n_rows as f64 * PITCH_Y;
        let mut svg = begin(&self.title, &self.subtitle, width, height);
        let w = &mut svg;
        for (idx, label) in self.legend.iter().enumerate() {
            let (row, column) = (idx / LEGEND_COLUMNS, idx % LEGEND_COLUMNS);
            let (x, y) = (LEFT_EDGE + column as f64 * LEGEND_PITCH, 72.0 + 20.0 * row as f64);
            let stroke = colour(idx);
            put(
                w,
                format_args!(r#"<line x1="{x}" y1="{y}" x2="{}" y2="{y}" stroke="{stroke}" class="curve"/>"#, x + 26.0),
            );
            put(w, format_args!("{}", mark(idx, x + 13.0, y)));
            put(w, format_args!(r#"<text class="label" x="{}" y="{}">{}</text>"#, x + 33.0, y + 4.0, escape(label)));
        }
        for (idx, panel) in self.panels.iter().enumerate() {
            let (row, column) = (idx / n_columns, idx % n_columns);
            panel.draw(w, LEFT_EDGE + column as f64 * PITCH_X, top + row as f64 * PITCH_Y);
        }
        put(w, format_args!("</svg>"));
        svg
    }
}

/// Returns the beginning of a document: its style, background and titles.
pub fn begin(title: &str, subtitle: &str, width: f64, height: f64) -> String {
    let title = escape(title);
    let mut svg = String::new();
    let w = &mut svg;
    put(w, format_args!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">"#));
    put(w, format_args!("<title>{title}</title>"));
    put(w, format_args!("<style>{STYLE}</style>"));
    put(w, format_args!(r#"<rect class="paper" width="{width}" height="{height}"/>"#));
    put(w, format_args!(r#"<text class="title" x="{LEFT_EDGE}" y="28">{title}</text>"#));
    put(w, format_args!(r#"<text class="soft" x="{LEFT_EDGE}" y="48">{}</text>"#, escape(subtitle)));
    svg
}

/// The positions of values in a panel.
struct Scale {
    x_origin: f64,
    y_origin: f64,
    x_range: (f64, f64),
    y_range: (f64, f64),
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let (least, most) = self.x_range;
        round(self.x_origin + (value - least) / (most - least) * PLOT_WIDTH)
    }

    fn y(&self, value: f64) -> f64 {
        let (least, most) = self.y_range;
        round(self.y_origin + PLOT_HEIGHT * (1.0 - (value - least) / (most - least)))
    }
}

impl Panel {
    fn draw(&self, w: &mut String, left: f64, top: f64) {
        let values = || self.curves.iter().flatten().filter(|value| value.middle.is_finite());
        let least = values().map(|value| value.low).fold(0.0, f64::min);
        let most = values().map(|value| value.high).fold(0.0, f64::max);
        let y_marks = round_marks(least, most, 5);
        let (x_least, x_most) = (
            self.xs.iter().copied().fold(f64::INFINITY, f64::min),
            self.xs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        );
        let x_range = if x_most > x_least { (x_least, x_most) } else { (x_least - 0.5, x_least + 0.5) };
        let y_range = (y_marks[0], y_marks[y_marks.len() - 1]);
        let scale = Scale { x_origin: left + AXIS, y_origin: top + 30.0, x_range, y_range };
        let (x_left, x_right) = (left + AXIS, left + AXIS + PLOT_WIDTH);
        let bottom = scale.y_origin + PLOT_HEIGHT;
        put(w, format_args!(r#"<text class="name" x="{x_left}" y="{}">{}</text>"#, top + 16.0, escape(&self.title)));
        for mark in &y_marks {
            let y = scale.y(*mark);
            put(w, format_args!(r#"<line class="grid" x1="{x_left}" y1="{y}" x2="{x_right}" y2="{y}"/>"#));
            put(
                w,
                format_args!(
                    r#"<text class="label right" x="{}" y="{}">{}</text>"#,
                    x_left - 8.0,
                    y + 4.0,
                    short(*mark)
                ),
            );
        }
        let inside = |mark: &f64| (x_range.0 - 1e-9..=x_range.1 + 1e-9).contains(mark);
        for mark in self.x_marks(x_range).into_iter().filter(inside) {
            let x = scale.x(mark);
            put(w, format_args!(r#"<line class="axis" x1="{x}" y1="{bottom}" x2="{x}" y2="{}"/>"#, bottom + 5.0));
            put(w, format_args!(r#"<text class="label middle" x="{x}" y="{}">{}</text>"#, bottom + 19.0, short(mark)));
        }
        put(w, format_args!(r#"<line class="axis" x1="{x_left}" y1="{bottom}" x2="{x_right}" y2="{bottom}"/>"#));
        let (x_middle, y_middle) = (x_left + PLOT_WIDTH / 2.0, scale.y_origin + PLOT_HEIGHT / 2.0);
        put(
            w,
            format_args!(
                r#"<text class="soft middle" x="{x_middle}" y="{}">{}</text>"#,
                bottom + 38.0,
                escape(&self.x_label)
            ),
        );
        put(
            w,
            format_args!(
                r#"<text class="soft middle" transform="translate({} {y_middle}) rotate(-90)">{}</text>"#,
                left + 12.0,
                escape(&self.y_label)
            ),
        );
        for (idx, curve) in self.curves.iter().enumerate() {
            self.band(w, &scale, idx, curve);
        }
        for (idx, curve) in self.curves.iter().enumerate() {
            self.curve(w, &scale, idx, curve);
        }
    }

    /// Returns the marks of the x axis; whole numbers if all values are whole.
    fn x_marks(&self, (least, most): (f64, f64)) -> Vec<f64> {
        let are_whole = self.xs.iter().all(|x| x.fract() == 0.0);
        let n_wanted = if are_whole { ((most - least) as u32).clamp(1, 8) } else { 8 };
        round_marks(least, most, n_wanted)
    }

    /// Draws the band from the lowest to the highest run.
    fn band(&self, w: &mut String, scale: &Scale, idx: usize, curve: &[Value]) {
        let points = || self.xs.iter().zip(curve).filter(|(_, value)| value.middle.is_finite());
        let is_wide = points().any(|(_, value)| scale.y(value.low) - scale.y(value.high) > 0.5);
        if !is_wide {
            return;
        }
        let mut path = String::new();
        let forth = points().map(|(x, value)| (*x, value.high));
        let back = points().map(|(x, value)| (*x, value.low)).collect::<Vec<_>>().into_iter().rev();
        for (x, y) in forth.chain(back) {
            let _ = write!(path, "{}{} {}", if path.is_empty() { 'M' } else { 'L' }, scale.x(x), scale.y(y));
        }
        put(w, format_args!(r#"<path class="band" fill="{}" d="{path}Z"/>"#, colour(idx)));
    }

    fn curve(&self, w: &mut String, scale: &Scale, idx: usize, curve: &[Value]) {
        let mut path = String::new();
        let mut marks = String::new();
        for (x, value) in self.xs.iter().zip(curve).filter(|(_, value)| value.middle.is_finite()) {
            let (x, y) = (scale.x(*x), scale.y(value.middle));
            let _ = write!(path, "{}{x} {y}", if path.is_empty() { 'M' } else { 'L' });
            marks.push_str(&mark(idx, x, y));
        }
        put(w, format_args!(r#"<path class="curve" stroke="{}" d="{path}"/>"#, colour(idx)));
        put(w, format_args!("{marks}"));
    }
}

/// Returns colours that colour-blind people can distinguish (Okabe and Ito).
pub fn colour(idx: usize) -> &'static str {
    COLOURS[idx % COLOURS.len()]
}

/// Returns a shape for each curve, because colours alone are lost in print.
fn mark(idx: usize, x: f64, y: f64) -> String {
    let fill = colour(idx);
    let path = match idx % 6 {
        0 => return format!(r#"<circle cx="{x}" cy="{y}" r="3.5" fill="{fill}"/>"#),
        1 => "h-3.2v-3.2h6.4v6.4h-6.4z",
        2 => "m0 -4.5l4.2 7.5h-8.4z",
        3 => "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
        4 => "m0 4.5l4.2 -7.5h-8.4z",
        _ => "m-4 -1.2h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z",
    };
    format!(r#"<path d="M{x} {y}{path}" fill="{fill}"/>"#)
}

const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"];
const LEFT_EDGE: f64 = 20.0;
const TOP: f64 = 76.0;
/// The space for the labels next to the plot.
const AXIS: f64 = 72.0;
const PLOT_WIDTH: f64 = 380.0;
const PLOT_HEIGHT: f64 = 190.0;
const PITCH_X: f64 = 484.0;
const PITCH_Y: f64 = 284.0;
const LEGEND_COLUMNS: usize = 3;
const LEGEND_PITCH: f64 = 156.0;
const STYLE: &str = "\
text{font-family:system-ui,sans-serif;fill:#1f2933}.title{font-size:16px;font-weight:600}\
.name{font-size:13px;font-weight:600}.label{font-size:12px}.soft{font-size:12px;fill:#667380}\
.right{text-anchor:end}.middle{text-anchor:middle}.paper{fill:#fff}\
.grid{stroke:#e3e8ec}.axis{stroke:#667380}.curve{fill:none;stroke-width:1.8}.band{opacity:.16}";

#[cfg(test)]
mod tests {
    use super::*;

    fn value(low: f64, middle: f64, high: f64) -> Value {
        Value { low, middle, high }
    }

    fn chart(curves: Vec<Vec<Value>>) -> Chart {
        let panel = Panel {
            title: "(a)".to_owned(),
            x_label: "clusters".to_owned(),
            y_label: "nodes <s>".to_owned(),
            xs: vec![1.0, 2.0],
            curves,
        };
        let legend = vec!["views".to_owned(), "listed".to_owned()];
        Chart { title: "A & B".to_owned(), subtitle: String::new(), legend, panels: vec![panel] }
    }

    #[test]
    fn a_curve_goes_through_its_means_and_its_band_through_its_extremes() {
        let svg = chart(vec![vec![value(0.0, 5.0, 10.0), value(10.0, 10.0, 10.0)]]).svg();
        // The plot begins at 92 and is 380 wide; its bottom is at 316, its top at 126.
        assert!(svg.contains("d=\"M92 221L472 126\""), "{svg}");
        assert!(svg.contains("d=\"M92 126L472 126L472 126L92 316Z\""), "{svg}");
        assert!(svg.contains("nodes &lt;s&gt;") && svg.contains("A &amp; B"));
    }

    #[test]
    fn what_has_no_value_is_left_out() {
        let nothing = value(f64::INFINITY, f64::NAN, f64::NEG_INFINITY);
        let svg = chart(vec![vec![nothing, nothing], vec![nothing, value(1.0, 1.0, 1.0)]]).svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
