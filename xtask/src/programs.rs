//! Builds the real programs and runs the demonstration or the bench with them.

use anyhow::Result;

use crate::{setup, step};

/// The packages whose programs make a running system.
const SYSTEM: &[&str] = &["-p", "rms-cli", "-p", "rms-server", "-p", "node-agent"];

/// Sets up, builds and demonstrates. Dev profile: its dependencies are optimised, and tests have built it already.
pub fn demo(flags: &[String]) -> Result<()> {
    println!("== set-up");
    setup::run()?;
    println!("\n== build");
    build(&[])?;
    demonstrate(flags)
}

/// The demonstration alone, with programs that are built.
pub fn demonstrate(flags: &[String]) -> Result<()> {
    run_bin("demo", &[], flags)
}

pub fn bench(parts: &[String]) -> Result<()> {
    println!("== build (release)");
    build(&["--release"])?;
    run_bin("bench", &["--release"], parts)
}

pub fn build(profile: &[&str]) -> Result<()> {
    let mut args = vec!["build", "--quiet", "--locked", "-p", "rms-tests", "--bins"];
    args.extend(SYSTEM);
    args.extend(profile);
    step::cargo(&args)
}

/// Runs one program of the tests crate on this terminal.
fn run_bin(bin: &str, profile: &[&str], flags: &[String]) -> Result<()> {
    let mut args = vec!["run", "--quiet", "--locked", "-p", "rms-tests", "--bin", bin];
    args.extend(profile);
    args.push("--");
    args.extend(flags.iter().map(String::as_str));
    step::cargo(&args)
}
