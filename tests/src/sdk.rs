//! Installs the C library below the target directory, and compiles C, C++ and Fortran programs against it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A language that the library is for, with its strictest common compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cxx,
    Fortran,
}

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    Shared,
    Static,
}

/// An installation of the library.
#[derive(Debug)]
pub struct Sdk {
    prefix: PathBuf,
}

/// The library as `cargo xtask install-sdk` installs it. One installation is shared by all tests: a lock lets them wait for
/// the one that makes it.
///
/// # Panics
/// If the library cannot be built or installed.
pub fn sdk() -> &'static Sdk {
    static SDK: OnceLock<Sdk> = OnceLock::new();
    SDK.get_or_init(|| {
        let dir = test_kit::library();
        let prefix = dir.join("sdk");
        let lock = File::create(dir.join("sdk.lock")).expect("the target directory is writable");
        lock.lock().expect("a local file can be locked");
        let installed = prefix.join("share/man/man3/rms.3");
        if !is_newer(&installed, &dir.join("librms.so")) || !is_newer(&installed, &dir.join("xtask")) {
            let _absent = fs::remove_dir_all(&prefix);
            let mut install = Command::new(dir.join("xtask"));
            install.arg("install-sdk").arg(&prefix).arg("--built").arg(dir);
            let output = install.stdin(Stdio::null()).output().expect("xtask is built");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            // Last: who finds it finds all, and newer than what it was made from.
            fs::write(&installed, fs::read(&installed).expect("installed")).expect("the directory is writable");
        }
        Sdk { prefix }
    })
}

impl Language {
    /// Its compiler with flags that let nothing pass; nothing, and a word about it, if it is not installed.
    pub fn compiler(self) -> Option<Command> {
        let (program, flags): (&str, &[&str]) = match self {
            Language::C => ("gcc", &["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]),
            Language::Cxx => ("g++", &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]),
            Language::Fortran => ("gfortran", &["-std=f2018", "-Wall", "-Wextra", "-pedantic"]),
        };
        if !is_installed(program) {
            eprintln!("SKIPPED: {program} is not installed; `cargo xtask setup` installs it");
            return None;
        }
        let mut compiler = Command::new(program);
        compiler.args(flags).stdin(Stdio::null());
        Some(compiler)
    }
}

impl Sdk {
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Compiles a source of `rms-ffi` into `to`; `false` if its compiler, or pkg-config, is not installed.
    ///
    /// # Panics
    /// If the compiler refuses it, or warns.
    pub fn compile(&self, language: Language, source: &str, linkage: Linkage, to: &Path) -> bool {
        let (Some(mut compiler), Some(flags)) = (language.compiler(), self.flags(linkage)) else {
            return false;
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rms-ffi");
        if language == Language::Fortran {
            // Modules are written where the program goes.
            let place = to.parent().expect("a program lies in a directory");
            compiler.arg("-J").arg(place).arg(self.prefix.join("include/rms.f90"));
        }
        compiler.arg("-o").arg(to).arg(sources.join(source)).args(flags);
        if linkage == Linkage::Shared {
            compiler.arg(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
        }
        let output = compiler.output().expect("the compiler is installed");
        assert!(output.status.success(), "{source}:\n{}", String::from_utf8_lossy(&output.stderr));
        true
    }

    /// What pkg-config says; nothing, and a word about it, if it is not installed.
    pub fn flags(&self, linkage: Linkage) -> Option<Vec<String>> {
        if !is_installed("pkg-config") {
            eprintln!("SKIPPED: pkg-config is not installed; `cargo xtask setup` installs it");
            return None;
        }
        let package = match linkage {
            Linkage::Shared => "rms",
            Linkage::Static => "rms-static",
        };
        let output = Command::new("pkg-config")
            .args(["--cflags", "--libs", package])
            .env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"))
            .output()
            .expect("pkg-config is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
    }
}

fn is_installed(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    match (changed(file), changed(than)) {
        (Some(file), Some(than)) => file > than,
        (None, _) | (_, None) => false,
    }
}
