//! The whole test suite as continuous integration and the README run it: cheap checks first, every test last.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::step::{self, Report, cargo, command};
use crate::{dependencies, fuzz, programs, setup};

/// A step's name, and what it does.
type Check = (&'static str, fn() -> Result<()>);

/// In this order: what says most in the least time first. Tests come after all of these.
const CHECKS: &[Check] = &[
    ("setup", setup::run),
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("dependencies", dependencies::check),
    ("lint", || cargo(&["clippy", "--quiet", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    ("docs", || {
        let args = ["doc", "--quiet", "--locked", "--workspace", "--no-deps", "--document-private-items"];
        command("cargo", &args, &[("RUSTDOCFLAGS", "-D warnings")])
    }),
    ("build", || programs::build(&[])),
    ("doctests", || cargo(&["test", "--quiet", "--locked", "--workspace", "--doc"])),
    ("fuzz", fuzz::check),
    ("demo", || programs::demonstrate(&["--short".to_owned()])),
];

/// Runs every check, however the others end, then every test, whose summary is the last thing on stdout.
pub fn run(filters: &[String]) -> ExitCode {
    let reports: Vec<Report> = CHECKS.iter().map(|(name, check)| step::step(name, check)).collect();
    println!("\n== tests (below); so far:");
    for report in &reports {
        let word = if report.passed { "ok" } else { "FAILED" };
        println!("   {:<14}{:>9}  {word}", report.name, step::seconds(report.took));
    }
    let tests = test(filters);
    let failed: Vec<&str> = reports.iter().filter(|report| !report.passed).map(|report| report.name).collect();
    for name in &failed {
        eprintln!("xtask: {name} failed; to see it again: cargo xtask run {name}");
    }
    match tests {
        Ok(()) if failed.is_empty() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}; to see it again: cargo xtask run tests");
            ExitCode::FAILURE
        }
    }
}

/// One step of the suite alone.
pub fn run_one(name: &str) -> Result<()> {
    if name == "tests" {
        programs::build(&[])?;
        return test(&[]);
    }
    match CHECKS.iter().find(|(known, _)| *known == name) {
        Some((_, check)) => check(),
        None => {
            let known: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).chain(["tests"]).collect();
            bail!("there is no step '{name}'; the steps are {}", known.join(", "))
        }
    }
}

/// Every test, quick and long. Doc tests have had a step of their own: nextest does not run them.
fn test(filters: &[String]) -> Result<()> {
    let filters = filters.iter().map(String::as_str);
    if step::succeeds("cargo", &["nextest", "--version"]) {
        let args = ["nextest", "run", "--locked", "--workspace", "--profile", "ci"];
        return command("cargo", &args.into_iter().chain(filters).collect::<Vec<&str>>(), &BUILT);
    }
    println!("   cargo-nextest is not installed; `cargo test` runs the same tests, one program after the other");
    let args = ["test", "--locked", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast", "--"];
    command("cargo", &args.into_iter().chain(filters).collect::<Vec<&str>>(), &BUILT)
}

/// Tells the tests that the programs they start are up to date.
const BUILT: [(&str, &str); 1] = [("LIMBER_BINARIES_BUILT", "1")];
