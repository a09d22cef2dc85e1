//! Checks every dependency that is built here against the policy: licence, source, bans, duplicates, advisories.

mod licence;
mod policy;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::step;
use policy::Policy;
use version::Version;

/// What `cargo metadata` tells, as far as it matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for the workspace's own.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Deserialize)]
struct Dependency {
    name: String,
    /// Absent for an ordinary one; `dev` or `build`.
    kind: Option<String>,
    /// Only a feature asks for it, which nothing that is shipped has.
    optional: bool,
}

/// Runs the check over the workspace.
pub fn check() -> Result<()> {
    let metadata = metadata()?;
    let policy = Policy::default();
    let complaints = judge(&metadata.packages, &policy);
    for (name, reason) in policy.unmaintained {
        println!("   accepted although unmaintained: {name}: {reason}");
    }
    for (name, licence, reason) in policy.tools {
        println!("   accepted for tests, under {licence}: {name}: {reason}");
    }
    for (name, reason) in policy.duplicates {
        println!("   accepted twice: {name}: {reason}");
    }
    println!("   {} packages, {} complaints", metadata.packages.len(), complaints.len());
    if complaints.is_empty() {
        return Ok(());
    }
    for complaint in &complaints {
        println!("   - {complaint}");
    }
    bail!("{} dependencies break the policy (xtask/src/dependencies/policy.rs)", complaints.len())
}

/// Only what this platform builds: the rest need not be downloaded.
fn metadata() -> Result<Metadata> {
    // What only a feature brings is judged, too.
    let args = ["metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform", &host()?];
    let output = Command::new("cargo")
        .args(args)
        .current_dir(step::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed something unknown")
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").stdin(Stdio::null()).output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn judge(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in packages {
        judge_one(package, policy, &mut complaints);
    }
    judge_duplicates(packages, policy, &mut complaints);
    for (name, _) in policy.unmaintained {
        if !packages.iter().any(|package| package.name == *name) {
            complaints.push(format!("{name} is excused as unmaintained but not used: remove the excuse"));
        }
    }
    complaints
}

fn judge_one(package: &Package, policy: &Policy, complaints: &mut Vec<String>) {
    let Package { name, version, license, source, dependencies } = package;
    let named = format!("{name} {version}");
    match license {
        None => complaints.push(format!("{named} states no licence")),
        Some(expression) if policy.tools.iter().any(|(tool, known, _)| tool == name && known == expression) => {}
        Some(expression) => match licence::is_allowed(expression, policy.licences) {
            Ok(true) => {}
            Ok(false) => complaints.push(format!("{named} has the licence '{expression}', which is not on the list")),
            Err(error) => complaints.push(format!("{named}: {error}")),
        },
    }
    if let Some(source) = source
        && !source.starts_with("registry+")
    {
        complaints.push(format!("{named} comes from {source}, not from the registry"));
    }
    if let Some((_, reason)) = policy.banned.iter().find(|(banned, _)| banned == name) {
        complaints.push(format!("{named} is banned: {reason}"));
    }
    for (_, floor, advisory) in policy.floors.iter().filter(|(floored, _, _)| floored == name) {
        if Version::of(version) < Version::of(floor) {
            complaints.push(format!("{named} is older than {floor}, which fixes {advisory}"));
        }
    }
    if let Some((_, allowed)) = policy.pure.iter().find(|(pure, _)| pure == name) {
        let ordinary = dependencies.iter().filter(|dependency| dependency.kind.is_none());
        for dependency in ordinary.filter(|dependency| !allowed.contains(&dependency.name.as_str())) {
            complaints.push(format!("{name} decides and must stay pure, but depends on {}", dependency.name));
        }
    }
    let is_ours = source.is_none();
    for (tool, licence, _) in policy.tools.iter().filter(|_| is_ours) {
        let is_shipped = |dependency: &Dependency| dependency.kind.is_none() && !dependency.optional;
        if dependencies.iter().any(|dependency| dependency.name == *tool && is_shipped(dependency)) {
            complaints
                .push(format!("{name} would ship {tool}, which has the licence '{licence}': it is for tests only"));
        }
    }
    for (confined, home) in policy.confined.iter().filter(|(_, home)| is_ours && home != name) {
        if dependencies.iter().any(|dependency| dependency.name == *confined) {
            complaints.push(format!("{name} depends on {confined}, which only {home} may"));
        }
    }
}

/// Two incompatible versions of one crate are built twice and cannot talk to each other.
fn judge_duplicates(packages: &[Package], policy: &Policy, complaints: &mut Vec<String>) {
    let mut majors: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        majors.entry(&package.name).or_default().insert(Version::of(&package.version).compatible());
    }
    for (name, versions) in &majors {
        let is_excused = policy.duplicates.iter().any(|(excused, _)| excused == name);
        let list = versions.iter().cloned().collect::<Vec<String>>().join(" and ");
        match (versions.len() > 1, is_excused) {
            (true, false) => complaints.push(format!("{name} is built in versions {list}")),
            (false, true) => {
                complaints.push(format!("{name} is excused as a duplicate but is none: remove the excuse"))
            }
            (true, true) | (false, false) => {}
        }
    }
    for (name, _) in policy.duplicates.iter().filter(|(name, _)| !majors.contains_key(name)) {
        complaints.push(format!("{name} is excused as a duplicate but not used: remove the excuse"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        licences: &["MIT"],
        tools: &[("generator", "MPL-2.0", "it is not shipped")],
        banned: &[("openssl", "rustls does this")],
        floors: &[("bytes", "1.11.1", "RUSTSEC-2026-0007")],
        duplicates: &[("syn", "half of the ecosystem has moved")],
        unmaintained: &[],
        pure: &[("core", &["serde"])],
        confined: &[("bincode", "wire")],
    };

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
            source: Some("registry+somewhere".to_owned()),
            dependencies: Vec::new(),
        }
    }

    fn ours(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|name| Dependency { name: (*name).to_owned(), kind: None, optional: false })
            .collect();
        Package { source: None, dependencies, ..package(name, "0.1.0") }
    }

    /// Judges `packages` beside what the policy's excuses need, and expects one complaint with `part` in it, or none.
    fn check(packages: &[Package], part: Option<&str>) {
        let mut all = vec![package("syn", "2.0.1"), package("syn", "3.0.1")];
        all.extend_from_slice(packages);
        let complaints = judge(&all, &POLICY);
        match part {
            None => assert!(complaints.is_empty(), "{complaints:?}"),
            Some(part) => assert!(complaints.len() == 1 && complaints[0].contains(part), "{complaints:?}"),
        }
    }

    #[test]
    fn a_decent_dependency_passes() {
        check(&[package("serde", "1.0.2")], None);
        check(&[package("itoa", "1.0.0"), package("itoa", "1.2.0")], None);
        check(&[package("bytes", "1.11.1")], None);
        let generator = Package { license: Some("MPL-2.0".to_owned()), ..package("generator", "1.0.0") };
        let for_tests = Dependency { name: "generator".to_owned(), kind: Some("dev".to_owned()), optional: false };
        check(&[generator, Package { dependencies: vec![for_tests], ..ours("wire", &[]) }], None);
        check(&[ours("core", &["serde"]), ours("wire", &["bincode"])], None);
    }

    #[test]
    fn each_rule_bites() {
        check(&[Package { license: Some("GPL-3.0-only".to_owned()), ..package("a", "1.0.0") }], Some("GPL-3.0-only"));
        check(&[Package { license: None, ..package("a", "1.0.0") }], Some("no licence"));
        check(&[Package { source: Some("git+https://x".to_owned()), ..package("a", "1.0.0") }], Some("registry"));
        check(&[package("openssl", "0.10.0")], Some("banned"));
        check(&[package("bytes", "1.9.20")], Some("RUSTSEC-2026-0007"));
        check(&[package("rand", "0.9.0"), package("rand", "0.10.0")], Some("0.10 and 0.9"));
        check(&[ours("core", &["tokio"])], Some("tokio"));
        check(&[ours("wire", &["generator"])], Some("would ship generator"));
        check(&[Package { license: Some("MPL-2.0".to_owned()), ..package("a", "1.0.0") }], Some("MPL-2.0"));
        check(&[ours("server", &["bincode"])], Some("only wire may"));
    }

    #[test]
    fn an_excuse_that_excuses_nothing_must_go() {
        let complaints = judge(&[package("syn", "3.0.1")], &POLICY);
        assert!(complaints.len() == 1 && complaints[0].contains("remove the excuse"), "{complaints:?}");
    }
}
