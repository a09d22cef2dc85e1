//! Every source file says what it is for, stays readable in one sitting, and names nothing of the machine it was written on.

use super::{read, tracked};

/// More lines than this, and one sentence does not say any more what the file is for.
const MOST_LINES: usize = 700;

/// Text that must not be in a tracked file. In two parts each, so that this file passes, too.
const BANNED: &[(&str, &str)] = &[
    ("/wor", "k/"),
    ("crates.io", "/api"),
    ("index.", "crates.io"),
    ("static.", "crates.io"),
    ("deb.", "debian.org"),
    ("py", "pi.org"),
    ("registry.", "npmjs"),
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("unimpl", "emented!("),
    ("to", "do!("),
];

/// Written by others: a lock file, and traces with their own headers.
fn is_foreign(name: &str) -> bool {
    name == "Cargo.lock" || name.starts_with("tests/data/")
}

fn rust_files() -> Vec<String> {
    tracked().into_iter().filter(|name| name.ends_with(".rs") && !is_foreign(name)).collect()
}

#[test]
fn every_rust_file_begins_with_what_it_is_for() {
    let silent: Vec<String> = rust_files().into_iter().filter(|name| !says_what_it_is_for(&read(name))).collect();
    assert!(silent.is_empty(), "these begin without `//! …`: {silent:?}");
}

fn says_what_it_is_for(source: &str) -> bool {
    let first = source.lines().next().unwrap_or_default();
    first.strip_prefix("//! ").is_some_and(|sentence| sentence.split_whitespace().count() >= 3)
}

#[test]
fn no_source_file_is_too_long() {
    let sources = tracked().into_iter().filter(|name| [".rs", ".c", ".h", ".sh"].iter().any(|end| name.ends_with(end)));
    let long: Vec<String> = sources
        .map(|name| (read(&name).lines().count(), name))
        .filter(|(n_lines, _)| *n_lines > MOST_LINES)
        .map(|(n_lines, name)| format!("{name}: {n_lines}"))
        .collect();
    assert!(long.is_empty(), "more than {MOST_LINES} lines: {long:?}");
}

#[test]
fn nothing_tells_of_the_machine_or_was_left_undone() {
    let mut found = Vec::new();
    for name in tracked().into_iter().filter(|name| !is_foreign(name)) {
        // What is not text cannot say anything.
        let Ok(text) = std::fs::read_to_string(super::root().join(&name)) else { continue };
        for (line_idx, line) in text.lines().enumerate() {
            found.extend(banned_in(line).map(|word| format!("{name}:{}: {word}", line_idx + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn banned_in(line: &str) -> impl Iterator<Item = String> {
    BANNED.iter().map(|(head, tail)| format!("{head}{tail}")).filter(move |word| line.contains(word.as_str()))
}

#[test]
fn the_rules_can_be_broken() {
    assert!(says_what_it_is_for("//! Decides which jobs start now.\n"));
    assert!(!says_what_it_is_for("use std::fmt;\n"));
    assert!(!says_what_it_is_for("//!\n//! Late.\n"));
    assert!(!says_what_it_is_for(""));
    assert_eq!(banned_in(concat!("// TO", "DO later")).count(), 1);
    assert_eq!(banned_in(concat!("cd /wor", "k/limber")).count(), 1);
    assert_eq!(banned_in("let works = 1;").count(), 0);
}
