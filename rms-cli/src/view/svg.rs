//! Draws occupation profiles as SVG: one panel per cluster, exact steps, axes and a legend.

use std::fmt::Write as _;

use rms_api::answer::ClusterView;
use rms_model::{JobId, Time};

use super::axis;
use super::segments::{Segment, Unit, Window, cut};
use crate::stamp;
use crate::svg::{escape, put, round};

/// Returns a complete SVG document.
pub fn draw(clusters: &[ClusterView], now: Time, job: Option<JobId>, window: Window) -> String {
    let height = TOP + clusters.len().max(1) as f64 * PANEL_PITCH + BOTTOM;
    let title = match job {
        Some(job) => format!("Cluster occupation as job {job} sees it"),
        None => "Cluster occupation as the scheduler sees it".to_owned(),
    };
    let mut svg = String::new();
    let w = &mut svg;
    put(w, format_args!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">"#));
    put(w, format_args!("<title>{title}</title>"));
    put(w, format_args!("<style>{STYLE}</style>"));
    put(w, format_args!(r#"<rect class="paper" width="{WIDTH}" height="{height}"/>"#));
    put(w, format_args!(r#"<text class="title" x="{LEFT}" y="26">{title}</text>"#));
    let subtitle = format!("at {} · the next {}", stamp::iso_secs(now), axis::span_text(window));
    put(w, format_args!(r#"<text class="soft" x="{LEFT}" y="44">{subtitle}</text>"#));
    legend(w);
    for (idx, view) in clusters.iter().enumerate() {
        panel(w, view, window, TOP + idx as f64 * PANEL_PITCH);
    }
    put(w, format_args!("</svg>"));
    svg
}

fn legend(svg: &mut String) {
    let mut x = WIDTH - RIGHT - 414.0;
    let layers = [
        ("started", "started", 80.0),
        ("offered", "offered", 84.0),
        ("ghosts", "ghost", 72.0),
        ("planned", "planned", 84.0),
    ];
    for (class, word, width) in layers {
        put(svg, format_args!(r#"<rect class="{class}" x="{x}" y="17" width="12" height="12"/>"#));
        put(svg, format_args!(r#"<text class="label" x="{}" y="27">{word}</text>"#, x + 17.0));
        x += width;
    }
    put(svg, format_args!(r#"<line class="capacity" x1="{x}" y1="23" x2="{}" y2="23"/>"#, x + 20.0));
    put(svg, format_args!(r#"<text class="label" x="{}" y="27">capacity</text>"#, x + 26.0));
}

/// The positions of times and nodes in one panel.
struct Scale {
    window: Window,
    most: i64,
    top: f64,
}

impl Scale {
    fn x(&self, at: Time) -> f64 {
        let span = self.window.span().as_millis().max(1) as f64;
        let part = at.since(self.window.from).as_millis() as f64 / span;
        round(LEFT + part.min(1.0) * (WIDTH - LEFT - RIGHT))
    }

    fn y(&self, nodes: i64) -> f64 {
        round(self.top + PANEL_HEIGHT * (1.0 - nodes as f64 / self.most as f64))
    }
}

fn panel(svg: &mut String, view: &ClusterView, window: Window, top: f64) {
    let unit = Unit::of(view);
    let capacity = i64::from(unit.capacity(view));
    let segments = cut(view, unit, window);
    let peak = segments.iter().map(Segment::total).max().unwrap_or(0);
    let scale = Scale { window, most: peak.max(capacity).max(1), top };
    let (right, bottom) = (WIDTH - RIGHT, scale.y(0));
    let name = escape(&view.name);
    put(svg, format_args!(r#"<g id="cluster-{name}">"#));
    put(svg, format_args!(r#"<text class="name" x="{LEFT}" y="{}">cluster {name}</text>"#, top - 8.0));
    for nodes in axis::node_marks(scale.most, 6) {
        let y = scale.y(nodes);
        put(svg, format_args!(r#"<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>"#));
        put(svg, format_args!(r#"<text class="label right" x="{}" y="{}">{nodes}</text>"#, LEFT - 8.0, y + 4.0));
    }
    let y_middle = top + PANEL_HEIGHT / 2.0;
    put(
        svg,
        format_args!(
            r#"<text class="soft middle" transform="translate(18 {y_middle}) rotate(-90)">{}</text>"#,
            unit.word()
        ),
    );
    layer(svg, "started", &segments, &scale, |_| 0, |segment| segment.started);
    let with_offers = |segment: &Segment| segment.started + segment.offered;
    layer(svg, "offered", &segments, &scale, |segment| segment.started, with_offers);
    layer(svg, "ghosts", &segments, &scale, with_offers, |segment| with_offers(segment) + segment.ghosts);
    layer(svg, "planned", &segments, &scale, |segment| with_offers(segment) + segment.ghosts, Segment::total);
    let y = scale.y(capacity);
    put(svg, format_args!(r#"<line class="capacity" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>"#));
    put(svg, format_args!(r#"<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>"#));
    for (at, label) in axis::time_marks(window, 8) {
        let x = scale.x(at);
        put(svg, format_args!(r#"<line class="axis" x1="{x}" y1="{bottom}" x2="{x}" y2="{}"/>"#, bottom + 5.0));
        put(svg, format_args!(r#"<text class="label middle" x="{x}" y="{}">{label}</text>"#, bottom + 19.0));
    }
    put(svg, format_args!("</g>"));
}

/// Draws the area between two step functions, as one path for each interval where they differ.
fn layer(
    svg: &mut String,
    class: &str,
    segments: &[Segment],
    scale: &Scale,
    lower: impl Fn(&Segment) -> i64,
    upper: impl Fn(&Segment) -> i64,
) {
    let mut path = String::new();
    for run in segments.chunk_by(|a, b| (lower(a) < upper(a)) == (lower(b) < upper(b))) {
        let is_empty = run.first().is_none_or(|segment| lower(segment) >= upper(segment));
        if is_empty {
            continue;
        }
        let start = scale.x(run[0].from);
        let _ = write!(path, "M{start} {}", scale.y(lower(&run[0])));
        for segment in run {
            let _ = write!(path, "V{}H{}", scale.y(upper(segment)), scale.x(segment.until));
        }
        for segment in run.iter().rev() {
            let _ = write!(path, "V{}H{}", scale.y(lower(segment)), scale.x(segment.from));
        }
        path.push('Z');
    }
    if !path.is_empty() {
        put(svg, format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const PANEL_HEIGHT: f64 = 150.0;
const PANEL_PITCH: f64 = 216.0;
const BOTTOM: f64 = 0.0;
const STYLE: &str = "\
text{font-family:system-ui,sans-serif;fill:#1f2933}.title{font-size:16px;font-weight:600}\
.name{font-size:13px;font-weight:600}.label{font-size:12px}.soft{font-size:12px;fill:#667380}\
.right{text-anchor:end}.middle{text-anchor:middle}.paper{fill:#fff}\
.started{fill:#2f6fab}.offered{fill:#7fbf9a}.ghosts{fill:#a48bc4}.planned{fill:#f0b860}\
.grid{stroke:#e3e8ec}.axis{stroke:#667380}.capacity{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:6 4}";

#[cfg(test)]
mod tests {
    use rms_api::answer::CoresView;
    use rms_model::Profile;

    use super::super::segments::tests::{cluster, profile};
    use super::*;

    #[test]
    fn a_layer_is_drawn_step_by_step() {
        let view = cluster(&[(0, 10, 2), (0, 20, 1)], &[], &[(20, 20, 4)]);
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        let svg = draw(&[view], Time::EPOCH, None, window);
        let path = |class: &str| {
            let line = svg.lines().find(|line| line.contains(&format!(r#"<path class="{class}""#)));
            line.unwrap_or_default().to_owned()
        };
        // 872 pixels are 40 seconds, 150 pixels are 4 nodes; the bottom is at 234.
        assert!(path("started").contains("M64 234V121.5H282V196.5H500V234H282V234H64Z"), "{}", path("started"));
        assert!(path("planned").contains("M500 234V84H936V234H500Z"), "{}", path("planned"));
        assert!(!svg.contains(r#"<path class="ghosts""#));
    }

    #[test]
    fn where_nodes_are_shared_the_axis_counts_cores() {
        let cores = CoresView { capacity: 32, taken: profile(&[(0, 40, 20)]), planned: Profile::new() };
        let view = ClusterView { cores: Some(cores), ..cluster(&[(0, 40, 4)], &[], &[]) };
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        let svg = draw(&[view], Time::EPOCH, None, window);
        // 150 pixels are 32 cores; the bottom is at 234.
        assert!(svg.contains(r#"<path class="started" d="M64 234V140.25H936V234H64Z"/>"#), "{svg}");
        assert!(svg.contains(">cores</text>") && !svg.contains(">nodes</text>"), "{svg}");
    }

    #[test]
    fn names_cannot_break_out_of_the_document() {
        let mut view = cluster(&[], &[], &[]);
        view.name = "<&\"\u{1b}".into();
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        let svg = draw(&[view], Time::EPOCH, Some(JobId(3)), window);
        assert!(svg.contains("cluster &lt;&amp;&quot;\u{fffd}"));
        assert!(svg.contains("as job 3 sees it"));
    }
}
