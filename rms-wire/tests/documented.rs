//! Holds `docs/messages.md` to the sources: every field and variant of every message, in the order in which they travel.
//!
//! It is for those who write another end, and have no Rust. `LIMBER_BLESS=1` writes it anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rms_wire::Kind;

/// The sources, in the order in which somebody who writes a client wants them.
const FILES: [&str; 12] = [
    "hello",
    "negotiate",
    "launcher",
    "call",
    "answer",
    "refused",
    "follow",
    "evolving",
    "vocabulary",
    "to_server",
    "to_agent",
    "peer",
];

const HEAD: &str = "\
# Messages

Every message, field by field, in the order in which the fields travel; [the protocol](protocol.md#frames) says how each type becomes bytes and what the messages
are for. The number before a variant is what stands on the wire for it. Types with a kind are what a frame can hold, the others are parts of them. Times and spans are
milliseconds. Written from the sources (`rms-wire/src`) by a test, which fails when they differ: `LIMBER_BLESS=1 cargo test -p rms-wire --test documented`.
";

#[test]
fn every_message_stands_in_the_documentation() {
    let mut text = HEAD.to_owned();
    for file in FILES {
        let source = read(&source_dir().join(format!("{file}.rs")));
        let first =
            source.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("files begin with a sentence");
        let _ = write!(text, "\n## {file}\n\n{}\n\n```text\n{}```\n", whole_sentence(&source, first), types(&source));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/messages.md");
    if std::env::var_os("LIMBER_BLESS").is_some() {
        std::fs::write(&path, text).expect("it can be written");
        return;
    }
    assert!(read(&path) == text, "docs/messages.md is not what the sources say: LIMBER_BLESS=1 writes it anew");
}

#[test]
fn no_source_of_messages_is_left_out() {
    for entry in std::fs::read_dir(source_dir()).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".rs")) else { continue };
        let has_types = read(&path).contains("Decode)]");
        assert_eq!(has_types, FILES.contains(&name), "{name}.rs holds messages, or is listed and holds none");
    }
}

#[test]
fn structs_enums_and_comments_are_told() {
    let source = "#[derive(Clone, Encode, Decode)]\npub struct Hello {\n    /// For [`Log`](crate::Log) only.\n    pub a: Vec<u8>,\n}\n\n\
                  #[derive(Encode, Decode)]\npub enum Word {\n    One,\n    Two(Box<Hello>),\n    Three {\n        b: Option<i64>,\n        c: bool,\n    },\n}\n";
    assert_eq!(
        types(source),
        "Hello, kind 1\n    # For Log only.\n    a: Vec<u8>\n\nWord, one of\n    0 One\n    1 Two(Hello)\n    2 Three { b: Option<i64>, c: bool }\n"
    );
}

/// All types of a source that travel.
fn types(source: &str) -> String {
    let mut types = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[derive(") && line.ends_with("Decode)]")) {
            continue;
        }
        let head = lines.next().expect("a type comes after its derive");
        let name = head.trim_end_matches(" {").rsplit(' ').next().expect("a name");
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        types.push(match head.starts_with("pub enum ") {
            true => format!("{}, one of\n{}", with_kind(name), variants(&body)),
            false => format!("{}\n{}", with_kind(name), fields(&body)),
        });
    }
    types.join("\n")
}

fn with_kind(name: &str) -> String {
    match Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name) {
        Some(kind) => format!("{name}, kind {}", kind.number()),
        None => name.to_owned(),
    }
}

fn fields(body: &[&str]) -> String {
    let lines = body.iter().map(|line| match comment(line) {
        Some(comment) => format!("    # {comment}\n"),
        None => format!("    {}\n", plain(line.trim().trim_start_matches("pub ").trim_end_matches(','))),
    });
    lines.collect()
}

fn variants(body: &[&str]) -> String {
    let (mut text, mut number) = (String::new(), 0);
    let mut lines = body.iter();
    while let Some(line) = lines.next() {
        if let Some(comment) = comment(line) {
            let _ = writeln!(text, "    # {comment}");
            continue;
        }
        let mut variant = line.trim().trim_end_matches(',').to_owned();
        if variant.ends_with('{') {
            let inner = lines.by_ref().take_while(|line| **line != "    },");
            let inner: Vec<&str> =
                inner.map(|line| line.trim().trim_end_matches(',')).filter(|line| comment(line).is_none()).collect();
            let _ = write!(variant, " {} }}", inner.join(", "));
        }
        let _ = writeln!(text, "    {number} {}", plain(&variant));
        number += 1;
    }
    text
}

fn comment(line: &str) -> Option<String> {
    line.trim_start().strip_prefix("/// ").map(unlinked)
}

/// A box is nothing on the wire.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(start) = text.find("Box<") {
        let end = start + text[start..].find('>').expect("a box is closed");
        text.replace_range(end..=end, "");
        text.replace_range(start..start + "Box<".len(), "");
    }
    text
}

/// Text without the links that only the documentation of the sources can follow.
fn unlinked(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, linked)) = rest.split_once("[`") {
        let (word, after) = linked.split_once("`]").expect("a link is closed");
        plain.push_str(before);
        plain.push_str(word);
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').expect("a target is closed").1,
            None => after,
        };
    }
    plain + rest
}

/// The first sentence of a source, which may go on in the next lines.
fn whole_sentence(source: &str, first: &str) -> String {
    let more = source.lines().skip(1).take_while(|line| line.len() > 4).filter_map(|line| line.strip_prefix("//! "));
    unlinked(&more.fold(first.to_owned(), |sentence, line| format!("{sentence} {line}")))
}

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
