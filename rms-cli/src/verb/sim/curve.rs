//! Draws waste against unfairness, one line for each re-scheduling timer; each point is labelled with its delay.

use std::collections::BTreeMap;
use std::fmt::Write;

use rms_sim::batch::tune::{Point, Tuned, Verdict};

use crate::chart::ticks::{round_marks, short};

/// Returns the picture. Bars show the effect of chance on the waste; the current setting is filled, the recommended one
/// has a ring.
pub(super) fn svg(tuned: &Tuned) -> String {
    let most_waste = tuned.points.iter().map(|point| 100.0 * point.waste.high).fold(1e-3, f64::max);
    let marks = round_marks(0.0, most_waste, 4);
    let top_mark = marks.last().copied().unwrap_or(most_waste);
    let place_y = |waste: f64| TOP + (1.0 - (100.0 * waste / top_mark).clamp(0.0, 1.0)) * HEIGHT;
    let place = |point: &Point| (LEFT + point.unfairness * WIDTH, place_y(point.waste.value));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        LEFT + WIDTH + 190.0,
        TOP + HEIGHT + 70.0
    );
    let w = &mut text;
    let bottom = TOP + HEIGHT;
    let _ = writeln!(w, "<path d=\"M{LEFT} {TOP}V{bottom:.0}H{:.0}\" fill=\"none\" stroke=\"#444444\"/>", LEFT + WIDTH);
    for percent in [0.0, 50.0, 100.0] {
        let x = LEFT + percent / 100.0 * WIDTH;
        label(w, (x, bottom + 16.0), "middle", INK, &format!("{percent:.0} %"));
    }
    for mark in &marks {
        label(w, (LEFT - 6.0, place_y(mark / 100.0) + 4.0), "end", INK, &format!("{} %", short(*mark)));
    }
    let x_name = match tuned.launchers.matter() {
        true => "launchers that lose their turn (estimated)",
        false => "launchers that would lose their turn (estimated); the past had none",
    };
    label(w, (LEFT + WIDTH / 2.0, bottom + 36.0), "middle", INK, x_name);
    let legend =
        "numbers: fair_start; bars: 95 % intervals; filled: in force; ring: recommended; * waits differ from it";
    label(w, (LEFT, bottom + 56.0), "start", INK, legend);
    label(w, (LEFT, TOP - 14.0), "start", INK, "node-time that ghosts waste");
    let mut lines: BTreeMap<i64, Vec<&Point>> = BTreeMap::new();
    for point in &tuned.points {
        lines.entry((point.resched_timer_s * 1000.0) as i64).or_default().push(point);
    }
    let mut labels = Labels::default();
    for (line_idx, points) in lines.values_mut().enumerate() {
        points.sort_by(|one, two| one.fair_start_s.total_cmp(&two.fair_start_s));
        let colour = COLOURS[line_idx % COLOURS.len()];
        let path: Vec<String> =
            points.iter().map(|point| place(point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        let _ = writeln!(w, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        for point in points.iter() {
            let (x, y) = place(point);
            let (low, high) = (place_y(point.waste.low), place_y(point.waste.high));
            let _ = writeln!(w, "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\" opacity=\"0.5\"/>");
            let is_current = point.verdict == Verdict::Current;
            let fill = if is_current { colour } else { "#ffffff" };
            let _ = writeln!(
                w,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{colour}\"><title>fair_start {} s, \
                 resched_timer {} s: waste {:.3} %, mean wait {:.1} s, {:+.1} s ({:+.1} to {:+.1}) against the one in force</title></circle>",
                point.fair_start_s,
                point.resched_timer_s,
                100.0 * point.waste.value,
                point.mean_wait_s.value,
                point.difference_s.value,
                point.difference_s.low,
                point.difference_s.high
            );
            let differs = matches!(point.verdict, Verdict::Better | Verdict::Worse);
            labels.put(w, (x, y), colour, &format!("{} s{}", point.fair_start_s, if differs { "*" } else { "" }));
        }
        if let Some(first) = points.first() {
            let y = TOP + 14.0 * line_idx as f64;
            label(w, (LEFT + WIDTH + 70.0, y), "start", colour, &format!("timer {} s", first.resched_timer_s));
        }
    }
    let (x, y) = place(&tuned.recommended);
    let _ = writeln!(
        w,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\" fill=\"none\" stroke=\"#b00020\" stroke-width=\"2\"/>"
    );
    text + "</svg>\n"
}

fn label(w: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
    let _ = writeln!(w, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>");
}

/// The positions of labels, so that none covers another.
#[derive(Default)]
struct Labels {
    taken: Vec<(f64, f64, f64)>,
}

impl Labels {
    /// Puts a label next to its point, above or below if others are in the way.
    fn put(&mut self, w: &mut String, (x, y): (f64, f64), colour: &str, text: &str) {
        let width = 6.5 * text.chars().count() as f64;
        let left = x + 8.0;
        let steps = (0..40).map(|step| if step % 2 == 0 { step / 2 } else { -(step + 1) / 2 });
        let is_free = |y: &f64| {
            let overlaps =
                |(other, end, line): &(f64, f64, f64)| left < *end && *other < left + width && (y - line).abs() < 11.0;
            !self.taken.iter().any(overlaps)
        };
        let y = steps.map(|step| y - 4.0 - 11.0 * f64::from(step)).find(is_free).unwrap_or(y);
        self.taken.push((left, left + width, y));
        label(w, (left, y), "start", colour, text);
    }
}

const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const INK: &str = "#222222";
const COLOURS: [&str; 5] = ["#08519c", "#238b45", "#d94801", "#6a51a3", "#636363"];
