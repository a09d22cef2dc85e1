//! Tables for people (aligned, without lines) and for programs (fields between `|`).

use comfy_table::{CellAlignment, Table as Grid, presets};

/// Rows under named columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: &'static str,
    is_number: bool,
}

impl Table {
    /// Columns by name; one that begins with `>` holds numbers and is aligned to the right.
    pub fn new(columns: &[&'static str]) -> Table {
        let column =
            |name: &&'static str| Column { name: name.trim_start_matches('>'), is_number: name.starts_with('>') };
        Table { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Aligned columns two spaces apart; `empty` stands for no rows at all.
    pub fn text(&self, empty: &str) -> String {
        if self.rows.is_empty() {
            return format!("{empty}\n");
        }
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING);
        grid.set_header(self.columns.iter().map(|column| column.name.to_uppercase()));
        for row in &self.rows {
            grid.add_row(row.iter().map(|cell| plain(cell)));
        }
        for (idx, column) in self.columns.iter().enumerate() {
            if let Some(drawn) = grid.column_mut(idx) {
                drawn.set_padding((0, 2));
                if column.is_number {
                    drawn.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        grid.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// A line of names and a line for each row; a `|` or line end inside a field is escaped by a backslash.
    pub fn parsable(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let mut text = names.join("|") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
            text += &(cells.join("|") + "\n");
        }
        text
    }
}

/// A name with control characters in it could repaint the terminal of whoever lists it.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Would it move the cursor, or turn the order of what is beside it?
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
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

    #[test]
    fn programs_get_every_field_back() {
        assert_eq!(table().parsable(), "id|name\n7|a\\|b\\n\n12|x\\u{1b}[31m\n");
        assert_eq!(Table::new(&["id"]).parsable(), "id\n");
    }
}
