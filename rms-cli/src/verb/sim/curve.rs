//! Draws waste against unfairness, one line for each re-scheduling timer.

use std::collections::BTreeMap;
use std::fmt::Write;

use rms_sim::batch::tune::{Point, Tuned};

/// The picture; the recommended point has a ring.
pub(super) fn svg(tuned: &Tuned) -> String {
    let most_waste = tuned.points.iter().map(|point| point.waste).fold(1e-9, f64::max);
    let place = |point: &Point| {
        let x = LEFT + point.unfairness * WIDTH;
        let y = TOP + (1.0 - point.waste / most_waste) * HEIGHT;
        (x, y)
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        LEFT + WIDTH + 140.0,
        TOP + HEIGHT + 50.0
    );
    let _ = writeln!(
        text,
        "<path d=\"M{LEFT} {TOP}V{:.0}H{:.0}\" fill=\"none\" stroke=\"#444444\"/>",
        TOP + HEIGHT,
        LEFT + WIDTH
    );
    for tenth in [0, 5, 10] {
        let part = f64::from(tenth) / 10.0;
        let (x, y) = (LEFT + part * WIDTH, TOP + (1.0 - part) * HEIGHT);
        let _ = writeln!(
            text,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{} %</text>",
            TOP + HEIGHT + 16.0,
            tenth * 10
        );
        let _ = writeln!(
            text,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{:.3} %</text>",
            LEFT - 6.0,
            y + 4.0,
            100.0 * part * most_waste
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">launchers that lose their turn (estimated)</text>",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 36.0
    );
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.0}\">host-time that ghosts waste</text>", TOP - 10.0);
    let mut lines: BTreeMap<i64, Vec<&Point>> = BTreeMap::new();
    for point in &tuned.points {
        lines.entry((point.resched_timer_s * 1000.0) as i64).or_default().push(point);
    }
    for (line_idx, points) in lines.values().enumerate() {
        let colour = COLOURS[line_idx % COLOURS.len()];
        let path: Vec<String> =
            points.iter().map(|point| place(point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            path.join(" ")
        );
        for point in points {
            let (x, y) = place(point);
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>fair_start {} s, resched_timer {} s: waste {:.3} %, \
                 mean wait {:.1} s</title></circle>",
                point.fair_start_s,
                point.resched_timer_s,
                100.0 * point.waste,
                point.mean_wait_s
            );
        }
        if let Some(first) = points.first() {
            let y = TOP + 14.0 * line_idx as f64;
            let _ = writeln!(
                text,
                "<text x=\"{:.0}\" y=\"{y:.0}\" fill=\"{colour}\">timer {} s</text>",
                LEFT + WIDTH + 16.0,
                first.resched_timer_s
            );
        }
    }
    let (x, y) = place(&tuned.recommended);
    let _ = writeln!(
        text,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\" fill=\"none\" stroke=\"#b00020\" stroke-width=\"2\"/>"
    );
    text + "</svg>\n"
}

const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
const COLOURS: [&str; 5] = ["#08519c", "#238b45", "#d94801", "#6a51a3", "#636363"];
