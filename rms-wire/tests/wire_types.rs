//! Reads the sources of the wire types: none holds itself, and no sequence is of nothing.
//!
//! A decoder's budget stops neither recursion nor sequences of empty elements, so the types must.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Every type that derives `Decode`, with the text of its body.
fn wire_types() -> BTreeMap<String, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut types = BTreeMap::new();
    for entry in std::fs::read_dir(sources).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("text");
        let text: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
        for derived in text.split("#[derive(").skip(1) {
            let (derives, rest) = derived.split_once(")]").expect("a derive ends");
            if !derives.split(", ").any(|one| one == "Decode") {
                continue;
            }
            let rest = rest.trim_start();
            let (head, body) = rest.split_once('{').expect("wire types have braces");
            let name = head.split_whitespace().last().expect("a name").to_owned();
            let end = body.find("\n}").unwrap_or_else(|| panic!("{module}::{name} does not end at a line's begin"));
            let twice = types.insert(name.clone(), body[..end].to_owned());
            assert!(twice.is_none(), "two wire types are called {name}: this test tells types by their names");
        }
    }
    types
}

/// The words of a body: types, and names of fields and variants, which do no harm.
fn words(body: &str) -> BTreeSet<&str> {
    body.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect()
}

/// What each type holds, by value or in a sequence.
fn holds(types: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut holds = BTreeMap::new();
    for (name, body) in types {
        // Types come after a colon or within brackets; a variant may bear the name of what it holds.
        let types_only: String = body
            .split_inclusive('\n')
            .map(|line| {
                let line = line.trim();
                let is_variant = line.starts_with(|c: char| c.is_ascii_uppercase());
                let cut = if is_variant { line.find(['(', '{']).map_or("", |at| &line[at..]) } else { line };
                format!("{cut}\n")
            })
            .collect();
        let held = types.keys().map(String::as_str).filter(|other| words(&types_only).contains(other)).collect();
        holds.insert(name.as_str(), held);
    }
    holds
}

#[test]
fn no_wire_type_holds_itself() {
    let types = wire_types();
    assert!(types.len() > 50, "only {} types were found", types.len());
    let holds = holds(&types);
    for start in holds.keys() {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = holds[start].iter().copied().collect();
        while let Some(name) = next.pop() {
            assert_ne!(name, *start, "{start} holds itself");
            if reached.insert(name) {
                next.extend(&holds[name]);
            }
        }
    }
    assert!(holds["ClientCall"].contains("Submission"), "the test looks at the right thing");
    assert!(holds["DesirePart"].contains("DesiredJob"), "through boxes too");
}

#[test]
fn no_sequence_is_of_nothing() {
    let types = wire_types();
    let plain = ["String", "u8", "u32", "u64"];
    for (name, body) in &types {
        for sequence in body.split("Vec<").skip(1) {
            let element = sequence.split('>').next().expect("an element");
            // A number, a text, or a struct with a field or an enum: each takes at least a byte of the frame.
            let has_content = types.get(element).is_some_and(|body| !body.trim().is_empty());
            assert!(plain.contains(&element) || has_content, "{name} has a sequence of {element}");
        }
        for forbidden in ["HashMap<", "BTreeMap<", "BTreeSet<", "HashSet<", "VecDeque<", "PhantomData", "; 0]", "()"] {
            assert!(!body.contains(forbidden), "{name} holds {forbidden}");
        }
    }
}
