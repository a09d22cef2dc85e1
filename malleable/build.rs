//! Compiles the C library and puts it next to the programs, where the agent looks for it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 7] = ["process", "runtime", "gomp", "ompt", "api", "drom", "dlb"];
const NAME: &str = "librms-malleable.so";

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says so"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says so"));
    let library = out.join(NAME);
    compile(&root, &library);
    // OUT_DIR is `<profile>/build/<package>/out`.
    let profile = out.ancestors().nth(3).expect("cargo's directories are so deep");
    let place = profile.join(NAME);
    // Copies the sources' modification time: cargo reruns the script if the file is newer than its last run, so
    // otherwise it would rerun every time.
    let written =
        fs::metadata(root.join("src/c")).and_then(|sources| sources.modified()).expect("the sources are there");
    // Replaced by rename, as a running program keeps the library that it has loaded. Programs that were linked with it
    // look for the soname.
    for name in [NAME.to_owned(), soname()] {
        let draft = profile.join(format!(".{name}.{}", std::process::id()));
        let copied = fs::copy(&library, &draft)
            .and_then(|_| fs::File::options().append(true).open(&draft)?.set_modified(written))
            .and_then(|()| fs::rename(&draft, profile.join(name)));
        copied.expect("the target directory is writable");
    }
    // For examples, which are in `<profile>/examples`.
    println!("cargo::rustc-link-arg-examples=-L{}", profile.display());
    println!("cargo::rustc-link-arg-examples=-l:{NAME}");
    println!("cargo::rustc-link-arg-examples=-Wl,-rpath,$ORIGIN/..");
    println!("cargo::rerun-if-changed=src/c");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    // If it is missing, it is built again.
    println!("cargo::rerun-if-changed={}", place.display());
}

fn compile(root: &Path, library: &Path) {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args([
        "-std=gnu11",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-fPIC",
        "-fvisibility=hidden",
        "-shared",
        "-pthread",
    ]);
    command.arg(format!("-Wl,-soname,{}", soname()));
    // Its thread and its handlers would run unmapped code after a dlclose.
    command.args(["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,relro"]);
    command.arg("-I").arg(root.join("include")).arg("-I").arg(root.join("src/c"));
    command.args(SOURCES.map(|name| root.join("src/c").join(name).with_extension("c")));
    command.arg("-o").arg(library).arg("-ldl");
    let status = command.status();
    let is_compiled = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    assert!(is_compiled, "{} does not compile librms-malleable: {status:?}", compiler.display());
}

/// Returns the soname, which contains the part of the version that programs depend on.
fn soname() -> String {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let mut parts = version.split('.');
    match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
        ("0", minor) => format!("{NAME}.0.{minor}"),
        (major, _) => format!("{NAME}.{major}"),
    }
}
