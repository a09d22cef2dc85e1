//! The lints that keep the deciders deterministic are in place, and they fire.

use std::fs;
use std::process::{Command, Stdio};

use super::root;

/// Crates without clock, randomness, environment, threads or hash-map order.
const DECIDERS: &[&str] = &["rms-model", "negotiation", "rms-core", "launcher-schedule", "rms-sim", "experiments"];

/// One offence on each line that ends with a mark.
const OFFENDER: &str = r#"//! Breaks every rule of the deciders once.

pub fn offend() {
    let _ = std::time::Instant::now(); // offence
    let _ = std::time::SystemTime::now(); // offence
    let _ = std::thread::spawn(|| ()); // offence
    std::thread::scope(|_| ()); // offence
    std::thread::sleep(std::time::Duration::ZERO); // offence
    let _ = std::env::var("HOME"); // offence
    let _ = std::env::var_os("HOME"); // offence
    let _ = std::env::vars(); // offence
    let _ = std::collections::HashMap::<u8, u8>::new(); // offence
    let _ = std::collections::HashSet::<u8>::new(); // offence
    let _ = std::sync::Mutex::new(1); // offence
    let _ = std::sync::RwLock::new(1); // offence
}
"#;

#[test]
fn every_decider_has_the_lints() {
    let lints = fs::read_to_string(root().join("rms-model/clippy.toml")).expect("the lints are there");
    for name in DECIDERS {
        let own = fs::read_to_string(root().join(name).join("clippy.toml")).unwrap_or_default();
        assert!(own == lints, "{name}/clippy.toml must be a link to rms-model/clippy.toml");
    }
}

/// Builds a crate that breaks every rule, as a member of a workspace like ours, and counts what clippy finds.
#[test]
fn the_lints_fire() {
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let member = workspace.path().join("offender");
    let write = |path: std::path::PathBuf, text: &str| fs::write(path, text).expect("the directory is writable");
    fs::create_dir_all(member.join("src")).expect("the directory is writable");
    write(workspace.path().join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"offender\"]\n");
    write(workspace.path().join("clippy.toml"), "# The root's rules must not hide the member's.\n");
    write(member.join("Cargo.toml"), "[package]\nname = \"offender\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    write(member.join("src/lib.rs"), OFFENDER);
    fs::copy(root().join("rms-core/clippy.toml"), member.join("clippy.toml")).expect("the lints are there");

    let output = Command::new("cargo")
        .args(["clippy", "--offline", "--quiet", "--message-format", "short", "--target-dir"])
        .arg(workspace.path().join("target"))
        .current_dir(workspace.path())
        .env_remove("CLIPPY_CONF_DIR")
        .stdin(Stdio::null())
        .output()
        .expect("cargo is installed");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for (line_idx, line) in OFFENDER.lines().enumerate().filter(|(_, line)| line.ends_with("// offence")) {
        let place = format!("lib.rs:{}:", line_idx + 1);
        let fired = text.lines().any(|found| found.contains(&place) && found.contains("disallowed"));
        assert!(fired, "nothing was said about `{}`:\n{text}", line.trim());
    }
}
