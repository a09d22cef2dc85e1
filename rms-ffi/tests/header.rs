//! Checks that the header is the one that the source generates.

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config};

/// The sources, in the order of the header.
const SOURCES: &[&str] = &[
    "src/layout.rs",
    "src/abi/session.rs",
    "src/abi/negotiate.rs",
    "src/abi/events.rs",
    "src/abi/breakpoint.rs",
    "src/abi/text.rs",
];

fn generated(root: &Path) -> String {
    let mut config = Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    config.after_includes = Some(fs::read_to_string(root.join("include/prelude.h")).expect("the prelude is there"));
    let sources = SOURCES.iter().map(|source| root.join(source));
    let builder = sources.fold(Builder::new().with_config(config), Builder::with_src);
    let mut header = Vec::new();
    builder.generate().expect("the source can be read").write(&mut header);
    let header = String::from_utf8(header).expect("a header is text");
    header.lines().map(|line| parenthesized(line) + "\n").collect()
}

/// Puts negative values in parentheses, as `-RMS_EINVAL` would expand to `--1` otherwise.
fn parenthesized(line: &str) -> String {
    let negative = line.strip_prefix("#define ").and_then(|rest| rest.split_once(" -"));
    negative.map_or_else(|| line.to_owned(), |(name, number)| format!("#define {name} (-{number})"))
}

#[test]
fn the_header_is_the_one_that_the_source_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/rms.h");
    let header = generated(root);
    if std::env::var_os("LIMBER_BLESS").is_some() {
        fs::write(&path, &header).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "write it anew: LIMBER_BLESS=1 cargo test -p rms-ffi --test header");
}
