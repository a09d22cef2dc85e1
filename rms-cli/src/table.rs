//! Tables for people (aligned, without lines, as wide as the terminal) and for programs (fields between `|`).

use rms_model::plain::{plain, steers};

use crate::screen;

/// Rows under named columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// The zone of the times, shown to people next to a column's name.
    zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    is_number: bool,
    /// Whether its cells are cut before others if the terminal is too narrow.
    gives_way: bool,
    /// Whether it is kept readable as long as other columns can be left out.
    matters: bool,
    /// Whether it is left out if the terminal is too narrow for the others.
    may_go: bool,
    is_clock: bool,
}

/// The minimum widths: of a column that is cut first, of one that matters, and of any column when all are cut.
const LEAST_CUT: usize = 8;
const LEAST_THAT_MATTERS: usize = 36;
const LEAST_ANY: usize = 3;
/// The space between columns.
const GAP: usize = 2;

impl Table {
    /// Creates a table of columns by name. Signs before a name set properties: `>` holds numbers and is aligned to the
    /// right, `~` is cut first if the terminal is too narrow, `!` is cut far less, `?` is left out then, `@` holds
    /// times of day.
    pub fn new(columns: &[impl AsRef<str>]) -> Table {
        let column = |text: &str| {
            let name = text.trim_start_matches(['>', '~', '!', '?', '@']);
            let has = |sign: char| text[..text.len() - name.len()].contains(sign);
            let name = name.to_owned();
            let (gives_way, matters) = (has('~'), has('!'));
            Column { name, is_number: has('>'), gives_way, matters, may_go: has('?'), is_clock: has('@') }
        };
        Table { columns: columns.iter().map(|text| column(text.as_ref())).collect(), rows: Vec::new(), zone: None }
    }

    /// Sets the zone of the times of day.
    pub fn in_zone(mut self, zone: String) -> Table {
        self.zone = Some(zone);
        self
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Returns aligned columns two spaces apart; `empty` replaces a table without rows. On a terminal it is no wider
    /// than the terminal.
    pub fn text(&self, empty: &str) -> String {
        self.fitted(empty, screen::table_width())
    }

    /// Returns the same, at most `columns` wide.
    pub fn fitted(&self, empty: &str, columns: Option<usize>) -> String {
        if self.rows.is_empty() {
            return wrapped(empty, columns.unwrap_or(usize::MAX));
        }
        let head: Vec<String> = self.columns.iter().map(|column| self.title(column)).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
        let widest = |idx: usize| {
            let cells = rows.iter().map(|row| screen::width(&row[idx]));
            cells.fold(screen::width(&head[idx]), usize::max)
        };
        let mut widths: Vec<Option<usize>> = (0..head.len()).map(|idx| Some(widest(idx))).collect();
        if let Some(columns) = columns {
            self.narrow(&mut widths, columns);
        }
        let lines = std::iter::once(&head).chain(&rows);
        lines.map(|cells| self.line(cells, &widths)).collect()
    }

    fn title(&self, column: &Column) -> String {
        let name = column.name.to_uppercase();
        match &self.zone {
            Some(zone) if column.is_clock => format!("{name} {zone}"),
            Some(_) | None => name,
        }
    }

    /// Narrows columns until all fit: first those that may be cut, then some are left out, then all are cut.
    fn narrow(&self, widths: &mut [Option<usize>], columns: usize) {
        shrink(widths, columns, LEAST_CUT, |idx| self.columns[idx].gives_way);
        shrink(widths, columns, LEAST_THAT_MATTERS, |idx| self.columns[idx].matters);
        for idx in (0..widths.len()).rev().filter(|idx| self.columns[*idx].may_go) {
            if total(widths) <= columns {
                break;
            }
            widths[idx] = None;
        }
        shrink(widths, columns, LEAST_CUT, |idx| self.columns[idx].matters);
        shrink(widths, columns, LEAST_ANY, |idx| !self.columns[idx].is_number);
        shrink(widths, columns, 1, |_| true);
        // If not even one character of each fits, only the first columns are shown.
        for idx in (1..widths.len()).rev() {
            if total(widths) > columns {
                widths[idx] = None;
            }
        }
    }

    fn line(&self, cells: &[String], widths: &[Option<usize>]) -> String {
        let mut text = String::new();
        for ((cell, width), column) in cells.iter().zip(widths).zip(&self.columns) {
            let Some(width) = *width else { continue };
            let cell = screen::cut(cell, width);
            let pad = " ".repeat(width - screen::width(&cell));
            text += &if column.is_number { pad + &cell } else { cell + &pad };
            text += &" ".repeat(GAP);
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    /// Returns a line of names and a line for each row; a `|` or line end inside a field is escaped by a backslash.
    pub fn parsable(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let mut text = names.join("|") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
            text += &(cells.join("|") + "\n");
        }
        text
    }
}

/// Wraps a sentence into lines of at most `columns` columns, broken between words.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let width = screen::width(word);
        if used > 0 {
            let fits = used + 1 + width <= columns;
            lines.push(if fits { ' ' } else { '\n' });
            used = if fits { used + 1 } else { 0 };
        }
        lines += &screen::cut(word, columns);
        used += width.min(columns);
    }
    lines + "\n"
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
}

/// Narrows the widest of these columns by one, repeatedly, but not below `least`.
fn shrink(widths: &mut [Option<usize>], columns: usize, least: usize, may: impl Fn(usize) -> bool) {
    while total(widths) > columns {
        let widest = widths.iter_mut().enumerate().filter(|(idx, _)| may(*idx)).filter_map(|(_, width)| width.as_mut());
        match widest.filter(|width| **width > least).max_by_key(|width| **width) {
            Some(width) => *width -= 1,
            None => break,
        }
    }
}

fn escape(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    for c in cell.chars() {
        match c {
            '|' => text.push_str("\\|"),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            c if steers(c) => text.extend(c.escape_unicode()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[">id", "name"]);
        table.row(vec!["7".into(), "a|b\n".into()]);
        table.row(vec!["12".into(), "x\u{1b}[31m".into()]);
        table
    }

    #[test]
    fn people_get_aligned_columns_without_control_characters() {
        assert_eq!(table().text("none"), "ID  NAME\n 7  a|b\u{fffd}\n12  x\u{fffd}[31m\n");
        assert_eq!(Table::new(&["id"]).text("nothing waits"), "nothing waits\n");
    }

    fn wide() -> Table {
        let mut table = Table::new(&[">job", "~name", "?>tasks", "@start", "~where or why"]).in_zone("CET".into());
        let name = "計算 a name that goes on and on".to_owned();
        table.row(vec!["12".into(), name, "4".into(), "12:30:00".into(), "a[1-4],b[1-8],c[1-16]".into()]);
        table
    }

    #[test]
    fn on_a_terminal_long_cells_are_cut_and_lesser_columns_left_out() {
        let whole = "\
JOB  NAME                             TASKS  START CET  WHERE OR WHY
 12  計算 a name that goes on and on      4  12:30:00   a[1-4],b[1-8],c[1-16]
";
        assert_eq!(wide().fitted("none", None), whole);
        assert_eq!(wide().fitted("none", Some(200)), whole);
        let cut = "\
JOB  NAME                TASKS  START CET  WHERE OR WHY
 12  計算 a name that …      4  12:30:00   a[1-4],b[1-8],c[…
";
        assert_eq!(wide().fitted("none", Some(60)), cut);
        let narrow = "\
JOB  NAME      START CET  WHERE O…
 12  計算 a …  12:30:00   a[1-4],…
";
        assert_eq!(wide().fitted("none", Some(34)), narrow);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 1..120 {
            let empty = "nobody has a budget, or has paid for a node";
            for line in Table::new(&["user"]).fitted(empty, Some(columns)).lines() {
                assert!(screen::width(line) <= columns, "{columns}: {line}");
            }
            for line in wide().fitted("none", Some(columns)).lines() {
                assert!(screen::width(line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn programs_get_every_field_back() {
        assert_eq!(table().parsable(), "id|name\n7|a\\|b\\n\n12|x\\u{1b}[31m\n");
        assert_eq!(Table::new(&["id"]).parsable(), "id\n");
    }
}
