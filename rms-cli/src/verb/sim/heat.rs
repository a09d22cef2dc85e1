//! Draws the results of jobs by size and time: in the terminal and as an SVG picture.

use std::fmt::Write;

use rms_sim::batch::heat::{Cell, HeatMap};

use crate::svg::escape;

/// Returns rows of shades, the largest jobs on top. The shade shows the mean wait, in powers of ten.
pub(super) fn blocks(map: &HeatMap) -> String {
    let mut text = String::from("mean wait by size (nodes, downwards smaller) and time of submit (to the right)\n");
    for (row_idx, row) in map.cells.iter().enumerate().rev() {
        let cells: String = row.iter().map(|cell| cell.map_or(' ', shade)).collect();
        let _ = writeln!(text, "{:>7} │{cells}│", label(map, row_idx));
    }
    let days = map.column_s * map.cells.first().map_or(0, Vec::len) as f64 / 86_400.0;
    let _ = writeln!(text, "{:>7}  · <1m   ░ <10m   ▒ <1h40m   ▓ <17h   █ more; {days:.1} days", "");
    text
}

fn shade(cell: Cell) -> char {
    match level(cell.mean_wait_s) {
        0 => '·',
        1 => '░',
        2 => '▒',
        3 => '▓',
        _ => '█',
    }
}

/// Returns the class of a wait: below a minute, ten, a hundred, a thousand, or more.
fn level(wait_s: f64) -> usize {
    [60.0, 600.0, 6000.0, 60_000.0].iter().filter(|limit| wait_s >= **limit).count()
}

fn label(map: &HeatMap, row_idx: usize) -> String {
    let size = map.sizes[row_idx];
    let from = if row_idx == 0 { 1 } else { map.sizes[row_idx - 1] + 1 };
    if from == size { size.to_string() } else { format!("≤{size}") }
}

/// Returns the same as a picture.
pub(super) fn svg(map: &HeatMap, title: &str) -> String {
    let n_columns = map.cells.first().map_or(0, Vec::len);
    let (width, height) = (LEFT + n_columns * CELL + 20, TOP + map.cells.len() * CELL + 50);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"18\" \
         font-size=\"13\">{}</text>\n",
        escape(title)
    );
    for (row_idx, row) in map.cells.iter().enumerate() {
        let y = TOP + (map.cells.len() - 1 - row_idx) * CELL;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 6,
            y + 11,
            label(map, row_idx)
        );
        for (column_idx, cell) in row.iter().enumerate() {
            let Some(cell) = cell else { continue };
            let _ = writeln!(
                text,
                "<rect x=\"{}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{}\"><title>{} jobs, mean wait {:.0} s, mean \
                 bounded slowdown {:.1}</title></rect>",
                LEFT + column_idx * CELL,
                COLOURS[level(cell.mean_wait_s)],
                cell.jobs,
                cell.mean_wait_s,
                cell.mean_bounded_slowdown
            );
        }
    }
    let y = TOP + map.cells.len() * CELL + 20;
    for (level, words) in ["&lt; 1 min", "&lt; 10 min", "&lt; 100 min", "&lt; 17 h", "more"].into_iter().enumerate() {
        let x = LEFT + level * 90;
        let _ = writeln!(text, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>", COLOURS[level]);
        let _ = writeln!(text, "<text x=\"{}\" y=\"{}\">{words}</text>", x + 16, y + 10);
    }
    text + "</svg>\n"
}

const LEFT: usize = 60;
const TOP: usize = 30;
const CELL: usize = 14;
const COLOURS: [&str; 5] = ["#e8f1fa", "#b3d2ea", "#6aaed6", "#2e7ebc", "#08306b"];
