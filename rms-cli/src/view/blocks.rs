//! Draws occupation profiles with characters: time to the right, nodes or cores upwards, one row for each if there is
//! room.

use rms_api::answer::ClusterView;
use rms_model::Time;
use rms_model::plain::plain;

use super::axis;
use super::segments::{Segment, Unit, Window, cut};
use crate::stamp;

/// The size of the drawing, and whether it has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// Characters of a line, axis included.
    pub width: usize,
    /// The maximum number of rows for a cluster.
    pub height: usize,
    pub colours: bool,
}

/// The content of one character of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    Started,
    /// Held for a running job that has not accepted it or does not have it yet.
    Offered,
    Ghost,
    Planned,
    Free,
    /// Above the capacity.
    Nothing,
}

impl Cell {
    fn mark(self) -> char {
        match self {
            Cell::Started => '█',
            Cell::Offered => '▚',
            Cell::Ghost => '▒',
            Cell::Planned => '░',
            Cell::Free => '·',
            Cell::Nothing => ' ',
        }
    }

    /// Returns the code of an ANSI colour; nodes that are busy now stand out.
    fn colour(self) -> &'static str {
        match self {
            Cell::Started => "34",
            Cell::Offered => "32",
            Cell::Ghost => "35",
            Cell::Planned => "33",
            Cell::Free | Cell::Nothing => "2",
        }
    }
}

/// Returns the whole drawing: a panel for each cluster, and a legend.
pub fn draw(clusters: &[ClusterView], now: Time, window: Window, canvas: Canvas) -> String {
    let mut text = String::new();
    for view in clusters {
        text += &panel(view, now, window, canvas);
        text.push('\n');
    }
    let legend = [
        (Cell::Started, "started"),
        (Cell::Offered, "offered"),
        (Cell::Ghost, "ghost"),
        (Cell::Planned, "planned"),
        (Cell::Free, "free"),
    ];
    let entries = legend.map(|(cell, word)| format!("{} {word}", paint(&[cell], canvas.colours)));
    text + &format!("{}   times in {}\n", entries.join("   "), stamp::zone_name(now))
}

fn panel(view: &ClusterView, now: Time, window: Window, canvas: Canvas) -> String {
    let unit = Unit::of(view);
    let capacity = unit.capacity(view);
    let mut text = format!("{}: {}", plain(&view.name), taken(view, now));
    let n_offered = view.offered.at(now);
    if n_offered > 0 {
        text += &format!(", {n_offered} offered");
    }
    if view.total != view.capacity {
        text += &format!(" ({} exist)", view.total);
    }
    if let Some(choosable) = view.choosable {
        text += &format!(", its launcher chooses from {choosable} (view_share)");
    }
    text.push('\n');
    let segments = cut(view, unit, window);
    let peak = segments.iter().map(Segment::total).max().unwrap_or(0);
    let most = peak.max(i64::from(capacity)).max(1);
    let label_width = most.to_string().len();
    let n_columns = canvas.width.saturating_sub(label_width + 3).clamp(10, 400);
    let n_rows = usize::try_from(most).unwrap_or(usize::MAX).min(canvas.height.max(1));
    let columns = columns(&segments, window, n_columns);
    for row_idx in (0..n_rows).rev() {
        let node = row_node(row_idx, n_rows, most);
        let cells: Vec<Cell> = columns.iter().map(|segment| cell(segment, node, capacity)).collect();
        let label = row_label(row_idx, n_rows, most);
        text += &format!("{label:>label_width$} ┤{}\n", paint(&cells, canvas.colours));
    }
    text + &time_axis(window, n_columns, label_width)
}

/// Returns how much of a cluster is taken: `3 of 4 nodes taken`, `20 of 32 cores taken, on 4 of 4 nodes`.
fn taken(view: &ClusterView, now: Time) -> String {
    match &view.cores {
        Some(cores) => {
            let (n_cores, n_nodes) = (cores.taken.at(now), view.started.at(now));
            format!("{n_cores} of {} cores taken, on {n_nodes} of {} nodes", cores.capacity, view.capacity)
        }
        None => format!("{} of {} nodes taken", view.started.at(now) + view.ghosts.at(now), view.capacity),
    }
}

/// Returns the node or core, counted from 1, that a row shows: the highest of those it covers.
fn row_node(row_idx: usize, n_rows: usize, most: i64) -> i64 {
    let (row_idx, n_rows) = (row_idx as i64, n_rows as i64);
    (most * (row_idx + 1) + n_rows - 1) / n_rows
}

fn row_label(row_idx: usize, n_rows: usize, most: i64) -> String {
    let is_top = row_idx + 1 == n_rows;
    let every_row = n_rows <= 12;
    let is_round = (row_idx + 1).is_multiple_of(4);
    if every_row || is_top || is_round { row_node(row_idx, n_rows, most).to_string() } else { String::new() }
}

/// Returns the layer of a node: started jobs are at the bottom.
fn cell(segment: &Segment, node: i64, capacity: u32) -> Cell {
    if node <= segment.started {
        Cell::Started
    } else if node <= segment.started + segment.offered {
        Cell::Offered
    } else if node <= segment.started + segment.offered + segment.ghosts {
        Cell::Ghost
    } else if node <= segment.total() {
        Cell::Planned
    } else if node <= i64::from(capacity) {
        Cell::Free
    } else {
        Cell::Nothing
    }
}

/// Returns one segment for each column: the fullest in it, so that a short job does not disappear between columns.
pub fn columns(segments: &[Segment], window: Window, n_columns: usize) -> Vec<Segment> {
    let span = i128::from(window.span().as_millis().max(1));
    let edge = |idx: usize| {
        let millis = span * idx as i128 / n_columns as i128;
        Time::from_millis(window.from.as_millis().saturating_add(millis as i64))
    };
    let mut columns = Vec::with_capacity(n_columns);
    let mut first = 0;
    for idx in 0..n_columns {
        let (from, until) = (edge(idx), edge(idx + 1));
        while segments.get(first).is_some_and(|segment| segment.until <= from) {
            first += 1;
        }
        let touched = segments[first.min(segments.len())..]
            .iter()
            .take_while(|segment| segment.from < until || segment.from <= from);
        let fullest =
            touched.copied().reduce(|best, segment| if segment.total() > best.total() { segment } else { best });
        columns.extend(fullest);
    }
    columns
}

/// Colours adjacent cells of one kind together.
fn paint(cells: &[Cell], colours: bool) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| a == b) {
        let marks = run.iter().map(|cell| cell.mark());
        if colours {
            text += &format!("\x1b[{}m", run[0].colour());
            text.extend(marks);
            text += "\x1b[0m";
        } else {
            text.extend(marks);
        }
    }
    text
}

fn time_axis(window: Window, n_columns: usize, label_width: usize) -> String {
    let mut line: Vec<char> = vec!['─'; n_columns];
    let mut labels: Vec<char> = vec![' '; n_columns];
    let mut free_from = 0;
    let span = i128::from(window.span().as_millis().max(1));
    for (at, label) in axis::time_marks(window, (n_columns / 14).max(1) as i64) {
        let column = i128::from(at.since(window.from).as_millis()) * n_columns as i128 / span;
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        let n_chars = label.chars().count();
        let fits = column >= free_from && column.saturating_add(n_chars) <= n_columns;
        if fits {
            line[column] = '┬';
            labels.splice(column..column + n_chars, label.chars());
            free_from = column + n_chars + 2;
        }
    }
    let pad = " ".repeat(label_width + 1);
    let labels: String = labels.into_iter().collect();
    format!("{pad}└{}\n{pad} {}\n", line.into_iter().collect::<String>(), labels.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rms_api::answer::CoresView;

    use super::super::segments::tests::{blocks, cluster, profile};
    use super::*;

    const PLAIN: Canvas = Canvas { width: 44, height: 12, colours: false };

    #[test]
    fn a_drawing_shows_the_layers_over_time() {
        let now = Time::from_secs(3600);
        let view = cluster(&[(3600, 20, 2)], &[(3600, 5, 1)], &[(3620, 20, 4)]);
        let window = Window::of(now, std::slice::from_ref(&view), None);
        let expected = "\
a: 3 of 4 nodes taken
4 ┤····················░░░░░░░░░░░░░░░░░░░░
3 ┤▒▒▒▒▒···············░░░░░░░░░░░░░░░░░░░░
2 ┤████████████████████░░░░░░░░░░░░░░░░░░░░
1 ┤████████████████████░░░░░░░░░░░░░░░░░░░░
  └┬───────────────────┬───────────────────
   01:00:00            01:00:30

█ started   ▚ offered   ▒ ghost   ░ planned   · free   times in UTC
";
        let drawn = draw(&[view], now, window, PLAIN);
        // The axis determines the place of the second mark; the drawing above it must be exact.
        let body = |text: &str| text.lines().take(5).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(body(&drawn), body(expected), "{drawn}");
        assert_eq!(drawn.lines().last(), expected.lines().last());
        assert!(drawn.contains("01:00:00"), "{drawn}");
    }

    #[test]
    fn where_nodes_are_shared_their_cores_are_drawn() {
        let now = Time::from_secs(3600);
        let cores = CoresView { capacity: 32, taken: profile(&[(3600, 20, 20)]), planned: profile(&[(3620, 20, 32)]) };
        let view = ClusterView { cores: Some(cores), ..cluster(&[(3600, 20, 4)], &[], &[(3620, 20, 4)]) };
        let window = Window::of(now, std::slice::from_ref(&view), None);
        let drawn = draw(&[view], now, window, PLAIN);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "a: 20 of 32 cores taken, on 4 of 4 nodes");
        assert!(lines[1].starts_with("32 ┤····") && lines[1].ends_with("░░"), "{drawn}");
        let n_started = lines.iter().filter(|line| line.contains("┤█")).count();
        assert_eq!(n_started, 7, "20 of 32 cores in 12 rows: {drawn}");
    }

    #[test]
    fn colours_paint_runs_and_change_no_character() {
        let view = cluster(&[(0, 20, 2)], &[], &[]);
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        let coloured = draw(std::slice::from_ref(&view), Time::EPOCH, window, Canvas { colours: true, ..PLAIN });
        let mut stripped = coloured;
        for code in ["\x1b[34m", "\x1b[32m", "\x1b[35m", "\x1b[33m", "\x1b[2m", "\x1b[0m"] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, draw(&[view], Time::EPOCH, window, PLAIN));
    }

    #[test]
    fn a_short_job_does_not_vanish() {
        let view = cluster(&[(5000, 1, 3)], &[], &[(90_000, 10_000, 1)]);
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        let columns = columns(&cut(&view, Unit::Nodes, window), window, 40);
        assert!(columns.iter().any(|segment| segment.started == 3));
    }

    #[test]
    fn large_clusters_and_tiny_terminals_are_drawn_too() {
        let mut view = cluster(&[(0, 20, 1000)], &[], &[]);
        view.capacity = 4000;
        let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
        for width in [0, 1, 7, 20_000] {
            let drawn = draw(std::slice::from_ref(&view), Time::EPOCH, window, Canvas { width, ..PLAIN });
            assert!(drawn.contains("4000 ┤"), "{drawn}");
            let n_started = drawn.lines().filter(|line| line.contains("┤█")).count();
            assert_eq!(n_started, 3, "a quarter of 12 rows: {drawn}");
        }
    }

    proptest! {
        #[test]
        fn the_marks_of_a_column_are_its_nodes(
            started in blocks(), ghosts in blocks(), planned in blocks(), offered in blocks()
        ) {
            let view = ClusterView { offered: profile(&offered), ..cluster(&started, &ghosts, &planned) };
            let window = Window::of(Time::EPOCH, std::slice::from_ref(&view), None);
            let segments = cut(&view, Unit::Nodes, window);
            for segment in columns(&segments, window, 60) {
                let count = |kind: Cell| (1..=100).filter(|node| cell(&segment, *node, 4) == kind).count() as i64;
                prop_assert_eq!(count(Cell::Started), segment.started);
                prop_assert_eq!(count(Cell::Offered), segment.offered);
                prop_assert_eq!(count(Cell::Ghost), segment.ghosts);
                prop_assert_eq!(count(Cell::Planned), segment.planned);
                prop_assert_eq!(count(Cell::Free), (4 - segment.total()).max(0));
            }
        }
    }
}
