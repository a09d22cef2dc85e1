//! Finds the programs under test, built by the same profile as the tests themselves.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    pub dir: PathBuf,
    pub rms: PathBuf,
    pub server: PathBuf,
    pub agent: PathBuf,
}

/// Returns the programs, built if they are not up to date. Cargo's own lock makes parallel tests wait for one build.
pub fn binaries() -> &'static Binaries {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    BINARIES.get_or_init(|| {
        let dir = profile_dir();
        let is_prepared = std::env::var_os("LIMBER_BINARIES_BUILT").is_some();
        if !is_prepared {
            build(&dir);
        }
        Binaries { rms: dir.join("rms"), server: dir.join("rms-server"), agent: dir.join("node-agent"), dir }
    })
}

/// Returns an example of the SDK, or of the library for malleable threads, built if it is not up to date.
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let dir = &binaries().dir;
    BUILT.get_or_init(|| {
        let is_prepared = std::env::var_os("LIMBER_BINARIES_BUILT").is_some();
        if !is_prepared {
            cargo_build(dir, &["-p", "launcher-sdk", "-p", "rms-malleable", "--examples"]);
        }
    });
    dir.join("examples").join(name)
}

/// Returns the directory with the C library, and with `xtask` to install it, built if they are not up to date.
pub fn library() -> &'static std::path::Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = profile_dir();
        let is_prepared = std::env::var_os("LIMBER_BINARIES_BUILT").is_some();
        if !is_prepared {
            cargo_build(&dir, &["-p", "rms-ffi", "-p", "rms-malleable", "-p", "xtask"]);
        }
        dir
    })
}

fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows where it is");
    exe.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps/<test>").to_path_buf()
}

fn build(dir: &std::path::Path) {
    cargo_build(dir, &["-p", "rms-cli", "-p", "rms-server", "-p", "node-agent", "--bins"]);
}

fn cargo_build(dir: &std::path::Path, what: &[&str]) {
    let target = dir.parent().expect("a profile's directory is below the target directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]).args(what);
    // Variables that cargo sets for tests of their crate would be changes for build scripts, and would rebuild all that
    // depends on them.
    let of_this_crate = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_"];
    for (name, _) in std::env::vars_os() {
        if of_this_crate.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            build.env_remove(name);
        }
    }
    build.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR"));
    if dir.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "the programs under test do not build");
}
