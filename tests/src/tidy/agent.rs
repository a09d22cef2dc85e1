//! The agent has one thread for all jobs; what may block runs elsewhere.

use super::{read, tracked};

/// Files with asynchronous functions whose other functions may block, and why.
const EXCEPTIONS: &[&str] = &[
    // Starts the agent, before it serves anyone.
    "node-agent/src/run.rs",
    // Give their blocking functions to threads of their own.
    "node-agent/src/lookup.rs",
    "node-agent/src/masks/mod.rs",
];
/// Files, and lookups in a directory service.
const BLOCKING: &[&str] = &["std::fs", "Account::resolve", "User::from_"];

#[test]
fn files_with_asynchronous_functions_do_not_block() {
    let files = tracked().into_iter().filter(|file| file.starts_with("node-agent/src/") && file.ends_with(".rs"));
    let mut said = Vec::new();
    for file in files.filter(|file| !file.ends_with("/tests.rs") && !EXCEPTIONS.contains(&file.as_str())) {
        let source = read(&file);
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        if !code.contains("async ") {
            continue;
        }
        let lines = code.lines().zip(1..).map(|(line, n)| (line.split("//").next().unwrap_or_default(), n));
        for (line, n) in lines.filter(|(line, _)| BLOCKING.iter().any(|word| line.contains(word))) {
            said.push(format!("{file}:{n}: {}", line.trim()));
        }
    }
    assert!(said.is_empty(), "may block the agent's task; use WorkQueues or spawn_blocking:\n  {}", said.join("\n  "));
}
