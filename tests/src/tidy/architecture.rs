//! Every path that ARCHITECTURE.md names exists, and every crate is named there.

use super::{read, root};

#[test]
fn every_path_that_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    let paths = paths(&text);
    assert!(paths.len() > 20, "only {} paths were found in ARCHITECTURE.md", paths.len());
    let gone: Vec<&String> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names what does not exist: {gone:?}");
}

#[test]
fn every_member_of_the_workspace_is_in_the_architecture() {
    let manifest = read("Cargo.toml");
    let (_, after) = manifest.split_once("members = [").expect("the workspace has members");
    let (list, _) = after.split_once(']').expect("the list ends");
    let text = read("ARCHITECTURE.md");
    for member in list.split(',').map(|member| member.trim().trim_matches('"')).filter(|member| !member.is_empty()) {
        assert!(text.contains(&format!("`{member}`")), "ARCHITECTURE.md does not name the crate {member}");
    }
}

/// Code spans that look like paths of this repository: they contain a slash or end like a file.
fn paths(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        for span in line.split('`').skip(1).step_by(2) {
            let plain = span.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
            let is_file =
                [".rs", ".md", ".toml", ".c", ".h", ".sh", ".swf", ".jsonl"].iter().any(|end| span.ends_with(end));
            let is_ours = plain && !span.starts_with('/') && !span.starts_with('.') && !span.contains("//");
            if is_ours && (span.contains('/') || is_file) {
                paths.push(span.trim_end_matches('/').to_owned());
            }
        }
    }
    paths
}

#[test]
fn paths_are_told_from_other_code() {
    let text = "see `rms-core/src/fact.rs`, `tests/`, `README.md`, not `Step::commit`, `/etc/limber`, `a < b/c` or `x`";
    assert_eq!(paths(text), ["rms-core/src/fact.rs", "tests", "README.md"]);
}
