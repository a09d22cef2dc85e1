//! Installs what tests and demonstrations need beside Rust; says what it skips and why.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step;

/// A Debian package and how to see that it is not needed any more.
struct Package {
    name: &'static str,
    present: fn() -> bool,
    needed_for: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "gcc", present: || on_path("gcc"), needed_for: "building SQLite, ring and the MPI test programs" },
    Package {
        name: "libc6-dev",
        present: || Path::new("/usr/include/stdio.h").exists(),
        needed_for: "building SQLite, ring and the MPI test programs",
    },
    Package { name: "openmpi-bin", present: || on_path("mpirun.openmpi"), needed_for: "tests of Open MPI's mpirun" },
    Package { name: "libopenmpi-dev", present: || on_path("mpicc.openmpi"), needed_for: "tests of Open MPI's mpirun" },
    Package { name: "g++", present: || on_path("g++"), needed_for: "tests of the library for C++" },
    Package { name: "clang", present: || on_path("clang"), needed_for: "tests of OpenMP programs with LLVM's runtime" },
    Package { name: "libomp-dev", present: has_libomp, needed_for: "tests of OpenMP programs with LLVM's runtime" },
    Package { name: "gfortran", present: || on_path("gfortran"), needed_for: "tests of the library for Fortran" },
    Package { name: "pkg-config", present: || on_path("pkg-config"), needed_for: "tests of the library for C" },
    Package { name: "iproute2", present: || on_path("ip"), needed_for: "tests in network namespaces" },
    Package { name: "python3-venv", present: has_venv, needed_for: "installing MPICH from its wheel" },
];

/// The release with which direct launch was tried (Debian's own MPICH 4.0.2 can hang in MPI_Finalize).
const MPICH: &str = "mpich==5.0.2";
/// Python programs spawn ranks more often than others.
const MPI4PY: &str = "mpi4py==4.1.2";

/// Installs what is missing and can be had. Skipping is no failure: the tests that need it say so and skip, too.
pub fn run() -> Result<()> {
    install_packages();
    install_mpich()?;
    install_mpi4py()
}

fn install_packages() {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !(package.present)()).collect();
    if missing.is_empty() {
        println!("   system packages: all present");
        return;
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if let Err(reason) = apt_install(&names) {
        println!("   SKIPPED system packages: {reason}");
        for package in missing {
            println!("     {} is for {}", package.name, package.needed_for);
        }
        println!("     to install them: sudo apt-get install --no-install-recommends {}", names.join(" "));
    }
}

fn apt_install(names: &[&str]) -> Result<(), String> {
    if !step::succeeds("apt-get", &["--version"]) {
        return Err("this is no Debian-like system (there is no apt-get)".to_owned());
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return Err("not root".to_owned());
    }
    // Another package manager may be at work on a machine that has just booted: wait for it, but not forever.
    let wait = "DPkg::Lock::Timeout=300";
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    step::command("apt-get", &["-qq", "-o", wait, "update"], &quiet).map_err(|error| error.to_string())?;
    let mut install = vec!["-qq", "-o", wait, "-o", "Dpkg::Use-Pty=0", "install", "-y", "--no-install-recommends"];
    install.extend(names);
    step::command("apt-get", &install, &quiet).map_err(|error| error.to_string())
}

/// MPICH in a virtual environment of its own; the stamp is written last, so a broken installation is made anew.
fn install_mpich() -> Result<()> {
    let home = step::target()?.join("mpich");
    let stamp = home.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == MPICH) {
        println!("   {MPICH}: present");
        return Ok(());
    }
    if home.exists() {
        std::fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    let place = home.display().to_string();
    let pip = format!("{place}/bin/pip");
    let steps = [
        ("python3", vec!["-m", "venv", place.as_str()]),
        (pip.as_str(), vec!["install", "--quiet", "--disable-pip-version-check", "--no-input", MPICH]),
    ];
    for (program, args) in steps {
        if let Err(error) = step::command(program, &args, &[]) {
            println!("   SKIPPED {MPICH}: {error}; the tests and demonstrations that launch MPICH programs skip, too");
            return Ok(());
        }
    }
    std::fs::write(&stamp, MPICH).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Into the same environment, if that is there.
fn install_mpi4py() -> Result<()> {
    let home = step::target()?.join("mpich");
    let stamp = home.join("installed-mpi4py");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == MPI4PY) {
        println!("   {MPI4PY}: present");
        return Ok(());
    }
    if !home.join("installed").exists() {
        return Ok(());
    }
    let pip = home.join("bin/pip").display().to_string();
    let args = ["install", "--quiet", "--disable-pip-version-check", "--no-input", MPI4PY];
    if let Err(error) = step::command(&pip, &args, &[]) {
        println!("   SKIPPED {MPI4PY}: {error}; the test of MPI in Python skips, too");
        return Ok(());
    }
    std::fs::write(&stamp, MPI4PY).with_context(|| format!("cannot write {}", stamp.display()))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn has_libomp() -> bool {
    step::succeeds("clang", &["-fopenmp", "-E", "-x", "c", "-include", "omp.h", "/dev/null"])
}

fn has_venv() -> bool {
    Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
