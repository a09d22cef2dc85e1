//! Programs of `tests/apps` under the MPICH that `cargo xtask setup` installs.

use std::path::Path;
use std::process::Command;

use rms_model::Work;

/// Builds a program of `tests/apps` with MPICH's compiler; `None` if that is not installed.
pub fn build(program: &str, dir: &Path) -> Option<String> {
    let bin = std::env::var("RMS_TEST_MPICH").ok().or_else(installed)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/apps/{program}.c"));
    let binary = dir.join(program);
    let compiler = format!("{bin}/mpicc");
    let built = Command::new(&compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-o"])
        .arg(&binary)
        .arg(source)
        .arg("-lm")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "{compiler} builds {program}");
    Some(binary.display().to_string())
}

/// Returns the directory where `cargo xtask setup` installs MPICH: next to the profile's directory, which contains this
/// test.
fn installed() -> Option<String> {
    let exe = std::env::current_exe().ok()?;
    let bin = exe.ancestors().map(|dir| dir.join("mpich/bin")).find(|bin| bin.join("mpicc").exists());
    if bin.is_none() {
        eprintln!("SKIPPED: MPICH is not installed; `cargo xtask setup` installs it");
    }
    Some(bin?.display().to_string())
}

pub fn argv(program: &str, args: &str) -> Work {
    let words = std::iter::once(program).chain(args.split_whitespace());
    Work::Tasks { argv: words.map(str::to_owned).collect() }
}

/// Returns the value of `key=` in the line with this prefix.
pub fn told(output: &str, beginning: &str, key: &str) -> String {
    let line = output.lines().find(|line| line.starts_with(beginning));
    let line = line.unwrap_or_else(|| panic!("no '{beginning}' in: {output}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {key} in: {line}")).to_owned()
}
