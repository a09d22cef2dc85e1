//! Checks `docs/messages.md` against the sources: every field and variant of every message and of their parts.
//!
//! It is for authors of another end who do not use Rust. `LIMBER_BLESS=1` rewrites it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rms_wire::Kind;

/// The sources of messages, in the order that suits an author of a client.
const MESSAGES: [&str; 9] = [
    "rms-wire/src/hello.rs",
    "rms-wire/src/negotiate.rs",
    "rms-wire/src/launcher.rs",
    "rms-wire/src/request.rs",
    "rms-wire/src/answer.rs",
    "rms-wire/src/follow.rs",
    "rms-wire/src/to_server.rs",
    "rms-wire/src/to_agent.rs",
    "rms-wire/src/peer.rs",
];

/// Where the types of which messages consist are defined.
const VOCABULARY: [&str; 4] = ["rms-api/src", "negotiation/src", "rms-wire/src", "rms-model/src"];

const HEAD: &str = "\
# Messages

The messages of version 1. Every message and what it is made of; [the protocol](protocol.md#frames) says how each type becomes bytes and what the messages are for. Types with a kind are what a
frame can hold. A field that is marked `?` may be left out. `as T` is a type that is written as another one. Times are milliseconds since 1970 in UTC, spans are
milliseconds, both `i64`. In a `Map`, keys that are ids are integers, like the ids themselves. `Devices` is a map from names (`gpu`, `gpu:a100`) to counts, `u32` from 1 to 65,535. `Indices` is a set of numbers up to 65,535, as an array of pairs
`(u32, u32)`: the first and the last of each range, rising. `[u8; 32]` is an array of 32 numbers. Written from the sources by a test, which fails when they differ: `LIMBER_BLESS=1 cargo test -p rms-wire --test documented`.
";

#[test]
fn every_message_stands_in_the_documentation() {
    let types = all_types();
    let reached = reached(&types);
    let mut text = HEAD.to_owned();
    let mut files: Vec<String> = MESSAGES.map(str::to_owned).to_vec();
    for idx in &reached {
        let file = &types[*idx].file;
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
    for file in files {
        let source = read(&root().join(&file));
        let first =
            source.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("files begin with a sentence");
        let here = reached.iter().map(|idx| &types[*idx]).filter(|found| found.file == file);
        let told: Vec<&str> = here.map(|found| found.told.as_str()).collect();
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n```text\n{}```\n",
            file.trim_end_matches(".rs").replace("/src/", ": "),
            whole_sentence(&source, first),
            told.join("\n")
        );
    }
    let path = root().join("docs/messages.md");
    if std::env::var_os("LIMBER_BLESS").is_some() {
        std::fs::write(&path, text).expect("it can be written");
        return;
    }
    assert!(read(&path) == text, "docs/messages.md is not what the sources say: LIMBER_BLESS=1 writes it anew");
}

#[test]
fn structs_enums_and_comments_are_told() {
    let source = "\
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// For [`Log`](crate::Log) only.
    #[serde(with = \"serde_bytes\")]
    pub a: Vec<u8>,
    #[serde(default, rename = \"key\")]
    pub b: Box<Tag>,
    #[serde(skip)]
    pub c: u8,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = \"snake_case\")]
pub enum Word {
    OneMore,
    Two(#[serde(deserialize_with = \"few\")] Box<Hello>),
    Three {
        b: Option<i64>,
        #[serde(skip)]
        c: bool,
    },
    #[serde(skip)]
    Four { d: u8 },
}

#[derive(Deserialize)]
pub struct Tag(pub u64);

#[derive(Deserialize)]
#[serde(from = \"(Tag, i64)\", into = \"(Tag, i64)\")]
pub struct Step {
    pub from: Tag,
}
";
    let types = types("x.rs", source);
    let told = |name: &str| types.iter().find(|found| found.name == name).expect("it is there").told.as_str();
    assert_eq!(told("Hello"), "Hello, kind 1\n    # For Log only.\n    a: bytes\n    key?: Tag\n");
    assert_eq!(told("Word"), "Word, one of\n    one_more\n    two(Hello)\n    three { b?: Option<i64> }\n");
    assert_eq!(told("Tag"), "Tag, as u64\n");
    assert_eq!(told("Step"), "Step, as (Tag, i64)\n");
}

/// A type that is sent.
#[derive(Debug)]
struct Type {
    file: String,
    name: String,
    told: String,
}

/// Returns all types, in the order of their files.
fn all_types() -> Vec<Type> {
    let mut files = Vec::new();
    for dir in VOCABULARY {
        let mut dirs = vec![root().join(dir)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("the sources are there") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    files.push(path);
                }
            }
        }
    }
    files.sort();
    let name = |path: &Path| path.strip_prefix(root()).expect("it is below").to_string_lossy().into_owned();
    files.iter().flat_map(|path| types(&name(path), &read(path))).collect()
}

/// Returns all messages and the types that they contain, as indices into `types`.
fn reached(types: &[Type]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let is_message = |found: &Type| found.file.starts_with("rms-wire") && found.told.contains(", kind ");
    let mut next: Vec<usize> = (0..types.len()).filter(|idx| is_message(&types[*idx])).collect();
    assert_eq!(next.len(), Kind::ALL.len(), "each kind has its type, and is called as it is");
    while let Some(idx) = next.pop() {
        if !reached.insert(idx) {
            continue;
        }
        let found = &types[idx];
        let lines = found.told.lines().filter(|line| !line.trim_start().starts_with('#'));
        // Types come after a colon, a bracket or `as`; names of fields and variants come before.
        let held = lines.flat_map(|line| line.trim_start().split_inclusive(['(', ':', ' ']).skip(1));
        let words = held.flat_map(|held| held.split(|c: char| !c.is_alphanumeric() && c != '_'));
        next.extend(words.filter_map(|word| resolved(types, found, word)));
    }
    reached
}

/// Returns the type that a word in a source means: one of the same file, one that is imported, or the only one.
fn resolved(types: &[Type], within: &Type, word: &str) -> Option<usize> {
    let called: Vec<usize> = (0..types.len()).filter(|idx| types[*idx].name == word).collect();
    if called.len() < 2 {
        return called.first().copied();
    }
    let own = called.iter().find(|idx| types[**idx].file == within.file);
    let source = read(&root().join(&within.file));
    let imports: Vec<&str> =
        source.split("use ").skip(1).filter_map(|rest| rest.split_once(';')).map(|one| one.0).collect();
    let names = |import: &str| import.split(|c: char| !c.is_alphanumeric() && c != '_').any(|name| name == word);
    let crate_of = |import: &str| import.split("::").next().unwrap_or_default().replace('_', "-");
    let imported = imports.iter().find(|import| names(import)).and_then(|import| {
        let dir = match crate_of(import) {
            own if own == "crate" || own == "super" => within.file.split('/').next().unwrap_or_default().to_owned(),
            other => other,
        };
        called.iter().find(|idx| types[**idx].file.starts_with(&dir))
    });
    let found = own.or(imported).copied();
    assert!(found.is_some(), "{word} in {} may be any of {called:?}", within.file);
    found
}

/// Returns all types of a source that can be decoded.
fn types(file: &str, source: &str) -> Vec<Type> {
    let mut types = Vec::new();
    let lines: Vec<&str> = source.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if line.starts_with("id!(") {
            // The ids of `rms-model` are made by a macro: comments, then `Name(type)`.
            while comment(lines[at]).is_some() {
                at += 1;
            }
            let (name, inner) = lines[at].trim().trim_end_matches(')').split_once('(').expect("a name and a type");
            let told = format!("{name}, as {inner}\n");
            types.push(Type { file: file.to_owned(), name: name.to_owned(), told });
            continue;
        }
        if !(line.starts_with("#[derive(") && line.contains("Deserialize")) {
            continue;
        }
        let mut attributes = String::new();
        while lines[at].starts_with("#[") || lines[at].starts_with("///") {
            attributes.push_str(lines[at]);
            at += 1;
        }
        let head = lines[at].trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let Some((what, rest)) = head.split_once(' ') else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        at += 1;
        let body: Vec<&str> = match head.ends_with('{') {
            true => lines[at..].iter().copied().take_while(|line| *line != "}").collect(),
            false => Vec::new(),
        };
        at += body.len();
        let told = if let Some(other) = value(&attributes, "try_from").or_else(|| value(&attributes, "from")) {
            format!("{name}, as {}\n", plain(&other))
        } else if what == "enum" {
            format!("{}, one of\n{}", with_kind(&name), variants(&body, &attributes))
        } else if let Some((_, inner)) = rest.split_once('(') {
            format!("{name}, as {}\n", plain(inner.trim_end_matches(");").trim_start_matches("pub ")))
        } else {
            format!("{}\n{}", with_kind(&name), fields(&body))
        };
        types.push(Type { file: file.to_owned(), name, told });
    }
    types
}

/// Returns `T` of `key = "T"` in attributes.
fn value(attributes: &str, key: &str) -> Option<String> {
    let start = format!("{key} = \"");
    let found = attributes.match_indices(&start).map(|(at, _)| at).find(|at| {
        // Not the end of a longer word.
        !attributes[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })?;
    let rest = &attributes[found + start.len()..];
    Some(rest[..rest.find('"').expect("it is closed")].to_owned())
}

fn with_kind(name: &str) -> String {
    match Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name) {
        Some(kind) => format!("{name}, kind {}", kind.number()),
        None => name.to_owned(),
    }
}

/// Returns one field per line, preceded by its comments.
fn fields(body: &[&str]) -> String {
    let mut text = String::new();
    let (mut comments, mut attributes) = (String::new(), String::new());
    for line in body {
        if let Some(comment) = comment(line) {
            let _ = writeln!(comments, "    # {comment}");
        } else if line.trim_start().starts_with("#[") {
            attributes.push_str(line);
        } else if let Some(field) = field(line, &attributes) {
            let _ = writeln!(text, "{comments}    {field}");
            (comments, attributes) = (String::new(), String::new());
        } else {
            (comments, attributes) = (String::new(), String::new());
        }
    }
    text
}

/// Returns a field, or `None` if it is not sent.
fn field(line: &str, attributes: &str) -> Option<String> {
    let (name, of) = line.trim().trim_start_matches("pub ").trim_end_matches(',').split_once(": ")?;
    if attributes.contains("skip)") || attributes.contains("skip,") {
        return None;
    }
    let name = value(attributes, "rename").unwrap_or_else(|| name.to_owned());
    let mark = if attributes.contains("default") || of.starts_with("Option<") { "?" } else { "" };
    let of = if attributes.contains("serde_bytes") { "bytes".to_owned() } else { plain(of) };
    Some(format!("{name}{mark}: {of}"))
}

fn variants(body: &[&str], of_enum: &str) -> String {
    let snake = |name: &str| match value(of_enum, "rename_all").as_deref() {
        Some("lowercase") => name.to_lowercase(),
        Some("snake_case") => snake_case(name),
        _ => name.to_owned(),
    };
    let mut text = String::new();
    let (mut comments, mut attributes) = (String::new(), String::new());
    let mut lines = body.iter();
    while let Some(line) = lines.next() {
        if let Some(comment) = comment(line) {
            let _ = writeln!(comments, "    # {comment}");
            continue;
        }
        let line = line.trim().trim_end_matches(',');
        if line.starts_with("#[") && !line.ends_with(')') {
            attributes.push_str(line);
            continue;
        }
        let name: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
        let mut held = line[name.len()..].trim().to_owned();
        if held == "{" {
            let inner: Vec<&str> = lines.by_ref().copied().take_while(|line| *line != "    },").collect();
            let inner = fields(&inner);
            let inner: Vec<&str> = inner.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
            held = format!("{{ {} }}", inner.join(", "));
        } else if held.starts_with('{') {
            let inner = held.trim_start_matches('{').trim_end_matches('}').trim();
            // A type may contain a comma, too.
            let mut parts: Vec<String> = Vec::new();
            for part in inner.split(", ") {
                match parts.last_mut().filter(|_| !part.contains(": ")) {
                    Some(last) => *last = format!("{last}, {part}"),
                    None => parts.push(part.to_owned()),
                }
            }
            let inner: Vec<String> = parts.iter().filter_map(|one| field(one, "")).collect();
            held = format!("{{ {} }}", inner.join(", "));
        }
        if !attributes.contains("skip)") {
            let space = if held.starts_with('{') { " " } else { "" };
            let _ = writeln!(text, "{comments}    {}{space}{}", snake(&name), plain(&held));
        }
        (comments, attributes) = (String::new(), String::new());
    }
    text
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

fn comment(line: &str) -> Option<String> {
    line.trim_start().strip_prefix("/// ").map(unlinked)
}

/// Removes boxes, shared pointers, attributes and modules of types, which are not on the wire.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(start) = text.find("#[") {
        let end = start + text[start..].find(")] ").map_or(text.len() - start, |at| at + 3);
        text.replace_range(start..end, "");
    }
    for pointer in ["Box<", "Arc<"] {
        while let Some(start) = text.find(pointer) {
            let mut depth = 0;
            let end = text[start..].char_indices().find_map(|(at, c)| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                (c == '>' && depth == 0).then_some(start + at)
            });
            let end = end.expect("it is closed");
            text.replace_range(end..=end, "");
            text.replace_range(start..start + pointer.len(), "");
        }
    }
    for module in ["negotiation::", "std::sync::"] {
        text = text.replace(module, "");
    }
    // As the protocol calls them.
    for (ours, told) in [("BTreeMap<", "Map<"), ("BTreeSet<", "Set<"), ("ByteBuf", "bytes")] {
        text = text.replace(ours, told);
    }
    text
}

/// Removes the links, which work only in the documentation of the sources.
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

/// Returns the first sentence of a source, which may continue on the next lines.
fn whole_sentence(source: &str, first: &str) -> String {
    let more = source.lines().skip(1).take_while(|line| line.len() > 4).filter_map(|line| line.strip_prefix("//! "));
    unlinked(&more.fold(first.to_owned(), |sentence, line| format!("{sentence} {line}")))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
