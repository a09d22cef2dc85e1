//! Texts of users on the terminals of others: a path or a reason may contain anything.

/// Replaces control characters, which could redraw the terminal of whoever reads the text.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns whether the character would move the cursor, or change the direction of adjacent text.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}
