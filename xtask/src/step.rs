//! Runs one command with a headline before it, its time after it, and a word on how to see a failure again.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A step that was tried.
pub struct Report {
    pub name: &'static str,
    pub took: Duration,
    pub passed: bool,
}

/// Runs `work` under the headline `name`; a failure is printed with the command that shows it again.
pub fn step(name: &'static str, work: impl FnOnce() -> Result<()>) -> Report {
    println!("\n== {name}");
    let begun = Instant::now();
    let outcome = work();
    let took = begun.elapsed();
    match &outcome {
        Ok(()) => println!("   {name}: ok, {}", seconds(took)),
        Err(error) => {
            println!("   {name}: FAILED after {}: {error:#}", seconds(took));
            println!("   to see it again: cargo xtask run {name}");
        }
    }
    Report { name, took, passed: outcome.is_ok() }
}

/// Runs a command without standard input; what it prints on stderr joins stdout, so that one log keeps the order.
pub fn command(program: &str, args: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let shown = shown(program, args, environment);
    println!("   $ {shown}");
    let status = Command::new(program)
        .args(args)
        .envs(environment.iter().copied())
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(io::stdout())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

pub fn cargo(args: &[&str]) -> Result<()> {
    command("cargo", args, &[])
}

/// Whether the command can be run and succeeds, without a word.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The workspace's root.
pub fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// The directory that cargo builds into: there it remembers its compiler.
pub fn target() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("where am I?")?;
    exe.ancestors()
        .find(|dir| dir.join(".rustc_info.json").exists())
        .map(PathBuf::from)
        .with_context(|| format!("{} is not in a cargo target directory", exe.display()))
}

pub fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn shown(program: &str, args: &[&str], environment: &[(&str, &str)]) -> String {
    let variables = environment.iter().map(|(key, value)| format!("{key}='{value}' "));
    let words = std::iter::once(&program).chain(args).copied().collect::<Vec<&str>>().join(" ");
    variables.chain([words]).collect()
}
