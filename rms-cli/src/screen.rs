//! The size of the terminal, for output that has to fit it.

use std::sync::OnceLock;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether tables are cut to the terminal. By default nothing is cut: programs and files get everything.
static FITS: OnceLock<bool> = OnceLock::new();

/// Chooses, once per process, whether tables have to fit the terminal.
pub fn choose(fits: bool) {
    let _ = FITS.set(fits);
}

/// Returns how many columns a table may take; `None` for as many as it needs.
pub fn table_width() -> Option<usize> {
    #[cfg(test)]
    if let Some(columns) = tests::COLUMNS.get() {
        return Some(columns);
    }
    FITS.get().copied().unwrap_or(false).then(columns)
}

/// Folds sentences into lines that are no wider than the terminal, broken between words, and wider lists after their
/// commas; continuation lines are indented by `hang`. If the output is not a terminal, lines stay whole.
pub fn folded(text: &str, hang: usize) -> String {
    match table_width() {
        Some(columns) => text.split_inclusive('\n').map(|line| fold(line, hang, columns)).collect(),
        None => text.to_owned(),
    }
}

/// Folds a line at this width.
pub fn fold(line: &str, hang: usize, columns: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    // If the indentation leaves hardly any room, it is dropped.
    let hang = if 2 * hang > columns { 0 } else { hang };
    let is_list = |word: &str| width(word.trim_end()) > columns - hang;
    let words = line.split_inclusive(' ');
    for word in words.flat_map(|word| word.split_inclusive(if is_list(word) { ',' } else { ' ' })) {
        let bare = width(word.trim_end());
        let is_begun = used > hang && !text.trim_end_matches(' ').ends_with('\n');
        if bare > 0 && used + bare > columns && is_begun {
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
            text += &" ".repeat(hang);
            used = hang;
        }
        text += word;
        used += width(word.trim_end_matches('\n'));
    }
    text
}

/// Returns the columns of the terminal; `COLUMNS` overrides them.
pub fn columns() -> usize {
    of_environment("COLUMNS").or_else(|| size().map(|size| size.0)).unwrap_or(PLAIN).max(MIN_COLUMNS)
}

/// Returns the rows of the terminal; `LINES` overrides them.
pub fn rows() -> usize {
    of_environment("LINES").or_else(|| size().map(|size| size.1)).unwrap_or(24)
}

fn of_environment(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok().filter(|count| *count > 0)
}

fn size() -> Option<(usize, usize)> {
    let of = |fd: std::io::Result<rustix::termios::Winsize>| {
        fd.ok().map(|size| (usize::from(size.ws_col), usize::from(size.ws_row))).filter(|size| size.0 > 0 && size.1 > 0)
    };
    let out = rustix::termios::tcgetwinsize(std::io::stdout()).map_err(Into::into);
    of(out).or_else(|| of(rustix::termios::tcgetwinsize(std::io::stderr()).map_err(Into::into)))
}

/// The columns of a terminal that does not report its size.
pub const PLAIN: usize = 80;

/// The minimum width: a narrower terminal shows nothing readable.
const MIN_COLUMNS: usize = 20;

/// Returns how many columns a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns as much of a text as fits into `columns` columns, with a mark in the last one if it was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= room;
        room = if fits { room - wide } else { 0 };
        fits
    };
    let mut kept: String = text.chars().take_while(fits).collect();
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
pub mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// The columns of the terminal that a test simulates.
        pub static COLUMNS: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Returns what is shown on a terminal of `columns` columns, and checks that no line is wider.
    pub fn fits(columns: usize, show: impl FnOnce() -> String) -> String {
        COLUMNS.set(Some(columns));
        let text = show();
        COLUMNS.set(None);
        for line in text.lines() {
            assert!(width(line) <= columns, "{} columns: {line}\nin\n{text}", width(line));
        }
        text
    }

    #[test]
    fn texts_are_cut_by_columns_not_by_bytes() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        assert_eq!(cut("Übergröße", 5), "Über…");
        // Each of these takes two columns; half of one is not shown.
        assert_eq!(cut("計算計算", 8), "計算計算");
        assert_eq!(cut("計算計算", 7), "計算計…");
        assert_eq!(cut("計算計算", 6), "計算…");
        assert_eq!(cut("計算計算", 1), "…");
        assert_eq!(cut("x", 0), "");
    }

    proptest! {
        #[test]
        fn no_cut_is_wider_than_its_room(text in "\\PC{0,40}", columns in 0_usize..30) {
            prop_assert!(width(&cut(&text, columns)) <= columns);
        }
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(fold("one two three\n", 0, 80), "one two three\n");
        assert_eq!(fold("one two three\n", 0, 8), "one two\nthree\n");
        assert_eq!(fold("  why  it waits for others\n", 7, 16), "  why  it waits\n       for\n       others\n");
        assert_eq!(fold("a-word-that-is-much-too-long is\n", 2, 10), "a-word-that-is-much-too-long\n  is\n");
        assert_eq!(fold("on a[1,3,5,7,9] now\n", 2, 9), "on a[1,3,\n  5,7,9]\n  now\n");
        assert_eq!(fold("計算 計算\n", 0, 8), "計算\n計算\n", "these take two columns each");
        for columns in 10..60 {
            let folded = fold("  10:20:30  the server proposes -4 nodes of a, at least 1, for 10m\n", 12, columns);
            assert!(folded.lines().all(|line| width(line) <= columns), "{columns}: {folded}");
        }
    }
}
