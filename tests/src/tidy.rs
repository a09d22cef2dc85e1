//! Holds the sources to their own rules, so that nobody has to.

mod agent;
mod architecture;
mod circles;
mod deployment;
mod determinism;
mod guides;
mod sources;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the workspace").to_path_buf()
}

/// The files that are, or would be, under version control; relative to the root. Nothing where there is no repository.
fn tracked() -> Vec<String> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(args).current_dir(root()).output().expect("git is installed");
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    names.lines().filter(|name| root().join(name).is_file()).map(str::to_owned).collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
