//! Guides can be read as they were meant: their code blocks end, and their links lead somewhere.

use std::path::Path;

use super::{read, tracked};

fn guides() -> Vec<String> {
    tracked().into_iter().filter(|name| name.ends_with(".md")).collect()
}

#[test]
fn code_blocks_end() {
    for name in guides() {
        // An open block swallows the chapters behind it.
        assert!(ends_its_blocks(&read(&name)), "{name} has a code block that begins within another one, or never ends");
    }
}

fn ends_its_blocks(text: &str) -> bool {
    let mut is_inside = false;
    for fence in text.lines().map(str::trim_start).filter(|line| line.starts_with("```")) {
        let says_language = fence.len() > "```".len();
        if is_inside && says_language {
            return false;
        }
        is_inside = !is_inside;
    }
    !is_inside
}

#[test]
fn links_lead_somewhere() {
    for name in guides() {
        let folder = Path::new(&name).parent().expect("files are in folders");
        for target in links(&read(&name)) {
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { name.clone() } else { folder.join(file).to_string_lossy().into_owned() };
            assert!(super::root().join(&path).exists(), "{name}: {target} leads to no file");
            if !heading.is_empty() {
                assert!(anchors(&read(&path)).any(|anchor| anchor == heading), "{name}: {target} leads to no heading");
            }
        }
    }
}

/// The targets within this repository, outside of code blocks.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// What headings are called in links: lower case, hyphens for spaces, nothing else but letters, digits and `_`.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[test]
fn the_rules_can_be_broken() {
    assert!(ends_its_blocks("```sh\nls\n```\n\n```text\nx\n```\n"));
    assert!(!ends_its_blocks("```sh\nls\n"));
    assert!(!ends_its_blocks("```sh\nls\n\n```c\nint x;\n```\n"));
    assert_eq!(links("See [a](b.md#c) and [d](https://example.org).\n```\n[e](f)\n```\n"), ["b.md#c"]);
    assert_eq!(anchors("## From C, C++ and Fortran\n").next().as_deref(), Some("from-c-c-and-fortran"));
}
