//! Feeds every decoder under libFuzzer, guided by the coverage of the code that it runs, from the corpus that is kept.
//!
//! What instruments the code are flags of the stable compiler. A finding is a file below the target directory, and the
//! command that shows it again is printed; once it is mended, it goes into the corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step::{self, command};

/// How long all targets run together, by default.
const SECONDS: u64 = 60;
/// No input needs as much, or takes as long, unless something is wrong.
const MOST_MIB: u32 = 1024;
const MOST_SECONDS: u32 = 10;

/// As `cargo fuzz` instruments, but for the sanitizer, which only a nightly compiler has.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// What was asked for.
pub struct Order<'a> {
    seconds: u64,
    /// Keep what was found interesting, as little of it as covers the same.
    keeps: bool,
    targets: Vec<&'a str>,
}

impl<'a> Order<'a> {
    pub fn parse(args: &'a [String]) -> Order<'a> {
        let mut order = Order { seconds: SECONDS, keeps: false, targets: Vec::new() };
        for arg in args {
            match (arg.as_str(), arg.parse()) {
                ("--keep", _) => order.keeps = true,
                (_, Ok(seconds)) => order.seconds = seconds,
                (target, Err(_)) => order.targets.push(target),
            }
        }
        order
    }
}

/// The step of the suite.
pub fn check() -> Result<()> {
    run(&Order::parse(&[]))
}

pub fn run(order: &Order<'_>) -> Result<()> {
    let dir = step::target()?.join("fuzz");
    let program = build(&dir)?;
    let corpus = step::root().join("fuzz/corpus");
    let mut targets = names(&corpus)?;
    if let Some(unknown) = order.targets.iter().find(|name| !targets.iter().any(|known| known == *name)) {
        bail!("there is no target '{unknown}'; the targets are {}", targets.join(", "));
    }
    targets.retain(|name| order.targets.is_empty() || order.targets.contains(&name.as_str()));
    let each = (order.seconds / targets.len() as u64).max(1);
    let mut findings = Vec::new();
    for target in &targets {
        let found = fuzz(&program, &dir, &corpus.join(target), target, each)?;
        findings.extend(found.then(|| target.clone()));
        if order.keeps && !found {
            keep(&program, &dir, &corpus.join(target), target)?;
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("findings in {}; the inputs are in {}", findings.join(", "), dir.join("findings").display())
}

/// Apart from everything else, because everything in it is instrumented.
fn build(dir: &Path) -> Result<PathBuf> {
    let host = host()?;
    let to = dir.to_str().context("the target directory has a name that is no text")?;
    let what = ["build", "--quiet", "--locked", "-p", "limber-fuzz", "--features", "engine", "--bin", "fuzz"];
    // With a platform named, build scripts and macros are not instrumented.
    let how = ["--profile", "fuzz", "--target", &host, "--target-dir", to];
    command("cargo", &[what.as_slice(), &how].concat(), &[("RUSTFLAGS", FLAGS)])?;
    Ok(dir.join(host).join("fuzz/fuzz"))
}

fn host() -> Result<String> {
    let output = Command::new("rustc").args(["--print", "host-tuple"]).output().context("cannot run rustc")?;
    Ok(String::from_utf8(output.stdout).context("rustc prints no text")?.trim().to_owned())
}

/// The directories of the corpus; a test holds them to be the targets.
fn names(corpus: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// True if something was found.
fn fuzz(program: &Path, dir: &Path, corpus: &Path, target: &str, seconds: u64) -> Result<bool> {
    let (new, findings) = (dir.join("new").join(target), dir.join("findings"));
    fs::create_dir_all(&new).and_then(|()| fs::create_dir_all(&findings)).context("cannot make directories")?;
    let output = engine(program, target)
        .args([
            format!("-max_total_time={seconds}"),
            format!("-rss_limit_mb={MOST_MIB}"),
            format!("-timeout={MOST_SECONDS}"),
        ])
        .args(["-max_len=65536", "-print_final_stats=1", "-use_value_profile=1"])
        .arg(format!("-artifact_prefix={}/{target}-", findings.display()))
        .args([&new, corpus])
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let stat = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim).to_owned();
    let covered = said.lines().rev().find_map(|line| line.split("cov: ").nth(1)?.split(' ').next()).unwrap_or("?");
    let n_runs = stat("stat::number_of_executed_units:");
    println!(
        "   {target:<18} {n_runs:>9} inputs, {covered:>6} places covered, {} MiB at most",
        stat("stat::peak_rss_mb:")
    );
    if output.status.success() {
        return Ok(false);
    }
    let from = said.lines().rev().take(60).collect::<Vec<&str>>();
    from.iter().rev().for_each(|line| println!("   | {line}"));
    println!("   to see it again: LIMBER_FUZZ_TARGET={target} {} FILE", program.display());
    Ok(true)
}

/// Only the smallest inputs that cover all that was covered stay, those from before first.
fn keep(program: &Path, dir: &Path, corpus: &Path, target: &str) -> Result<()> {
    let merged = dir.join("merged").join(target);
    let _none_before = fs::remove_dir_all(&merged);
    fs::create_dir_all(&merged).context("cannot make a directory")?;
    let found = dir.join("new").join(target);
    let args = ["-merge=1", "-max_len=4096"];
    let status = engine(program, target).args(args).args([&merged, &PathBuf::from(corpus), &found]).status();
    if !status.context("cannot run the engine")?.success() {
        bail!("cannot minimise the corpus of {target}");
    }
    let of_io = || format!("cannot replace {}", corpus.display());
    fs::remove_dir_all(corpus).with_context(of_io)?;
    fs::create_dir_all(corpus).with_context(of_io)?;
    for entry in fs::read_dir(&merged).with_context(of_io)? {
        let entry = entry.with_context(of_io)?;
        fs::copy(entry.path(), corpus.join(entry.file_name())).with_context(of_io)?;
    }
    Ok(())
}

fn engine(program: &Path, target: &str) -> Command {
    let mut engine = Command::new(program);
    engine.env("LIMBER_FUZZ_TARGET", target).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    engine
}
