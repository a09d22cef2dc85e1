//! Builds the real programs and runs the demonstration or the bench with them.

use anyhow::{Context, Result};

use crate::{setup, step};

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
    run_program("debug/demo", flags)
}

pub fn bench(parts: &[String]) -> Result<()> {
    println!("== build (release)");
    build(&["--release"])?;
    run_program("release/bench", parts)
}

/// All programs at once: what is built for one of them alone may have other features, and be built anew for the next.
pub fn build(profile: &[&str]) -> Result<()> {
    let args = ["build", "--locked", "--workspace", "--lib", "--bins", "--examples"];
    step::cargo(&args.iter().chain(profile).copied().collect::<Vec<&str>>())
}

/// Runs a program that is built, on this terminal.
fn run_program(name: &str, args: &[String]) -> Result<()> {
    let program = step::target()?.join(name);
    let program = program.to_str().context("the target directory's name is not UTF-8")?;
    step::command(program, &args.iter().map(String::as_str).collect::<Vec<&str>>(), &[])
}
