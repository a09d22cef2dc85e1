//! Compiles the MPI test programs of `tests/apps`, once for each MPI that is installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

use crate::sdk::Linkage;

/// The MPI implementations that tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// Debian's packages.
    OpenMpi,
    /// The wheel, in the virtual environment that `cargo xtask setup` makes below the target directory.
    Mpich,
}

/// Why a program could not be compiled; that an MPI is absent is no error.
#[derive(Debug, Error)]
pub enum BuildError {
    #[error("cannot find the target directory above {0}")]
    NoTarget(PathBuf),
    #[error("cannot prepare {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {compiler}")]
    Compiler { compiler: PathBuf, source: io::Error },
    #[error("{compiler} refused {program}:\n{message}")]
    Refused { compiler: PathBuf, program: String, message: String },
}

impl Mpi {
    pub const ALL: [Mpi; 2] = [Mpi::OpenMpi, Mpi::Mpich];

    pub fn name(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    /// Its compiler, if it is installed.
    pub fn compiler(self) -> Option<PathBuf> {
        self.program("mpicc")
    }

    /// Its own launcher, if it is installed.
    pub fn mpirun(self) -> Option<PathBuf> {
        self.program("mpirun")
    }

    fn program(self, name: &str) -> Option<PathBuf> {
        let path = match self {
            Mpi::OpenMpi => Path::new("/usr/bin").join(format!("{name}.openmpi")),
            Mpi::Mpich => target().ok()?.join("mpich/bin").join(name),
        };
        path.exists().then_some(path)
    }
}

/// The program `tests/apps/<name>.c`, compiled for `mpi`; nothing if that MPI is not installed. Tests may ask at
/// the same time: each compiles into a file of its own and renames it, and the last one wins with the same bytes.
///
/// # Errors
/// The compiler refuses the program, or the target directory cannot be written.
pub fn build(mpi: Mpi, name: &str) -> Result<Option<PathBuf>, BuildError> {
    compile(mpi, name, mpi.name(), &[])
}

/// The same with the C library of the RMS, for programs that negotiate; installs the library if it must.
///
/// # Errors
/// As [`build`]; nothing, too, if `pkg-config` is not installed.
pub fn build_negotiating(mpi: Mpi, name: &str) -> Result<Option<PathBuf>, BuildError> {
    if mpi.compiler().is_none() {
        return Ok(None);
    }
    let sdk = crate::sdk::sdk();
    let Some(mut flags) = sdk.flags(Linkage::Shared) else { return Ok(None) };
    flags.push(format!("-Wl,-rpath,{}", sdk.prefix().join("lib").display()));
    flags.push("-DSTEER_RMS".to_owned());
    compile(mpi, name, &format!("{}-rms", mpi.name()), &flags)
}

/// The same with OpenMP, for ranks with threads; says aloud that the test is skipped.
///
/// # Panics
/// If the program does not compile.
pub fn build_hybrid_or_skip(mpi: Mpi, name: &str) -> Option<PathBuf> {
    let built = compile(mpi, name, &format!("{}-openmp", mpi.name()), &["-fopenmp".to_owned()]);
    or_skip(mpi, built)
}

fn compile(mpi: Mpi, name: &str, folder: &str, libraries: &[String]) -> Result<Option<PathBuf>, BuildError> {
    let Some(compiler) = mpi.compiler() else {
        return Ok(None);
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps");
    let source = sources.join(format!("{name}.c"));
    let folder = target()?.join("apps").join(folder);
    let program = folder.join(name);
    if is_newer(&program, &source) && headers(&sources)?.iter().all(|header| is_newer(&program, header)) {
        return Ok(Some(program));
    }
    fs::create_dir_all(&folder).map_err(|source| BuildError::File { path: folder.clone(), source })?;
    let draft = folder.join(format!("{name}.{}", std::process::id()));
    // Contraction into fused operations would make the checksum depend on the machine.
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-ffp-contract=off"];
    let output = Command::new(&compiler)
        .args(flags)
        .arg("-o")
        .arg(&draft)
        .arg(&source)
        .args(libraries)
        .arg("-lm")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::Compiler { compiler: compiler.clone(), source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BuildError::Refused { compiler, program: name.to_owned(), message });
    }
    fs::rename(&draft, &program).map_err(|source| BuildError::File { path: program.clone(), source })?;
    Ok(Some(program))
}

/// Like [`build`], for tests: says aloud that the test is skipped.
///
/// # Panics
/// If the program does not compile.
pub fn build_or_skip(mpi: Mpi, name: &str) -> Option<PathBuf> {
    or_skip(mpi, build(mpi, name))
}

fn or_skip(mpi: Mpi, built: Result<Option<PathBuf>, BuildError>) -> Option<PathBuf> {
    let program = built.expect("the test programs compile");
    if program.is_none() {
        eprintln!("SKIPPED: {} is not installed; `cargo xtask setup` installs it", mpi.name());
    }
    program
}

/// The directory that cargo builds into: there it remembers its compiler.
///
/// # Errors
/// This program does not lie in one.
pub fn target() -> Result<PathBuf, BuildError> {
    let exe = std::env::current_exe().map_err(|source| BuildError::File { path: "/proc/self/exe".into(), source })?;
    let found = exe.ancestors().find(|dir| dir.join(".rustc_info.json").exists()).map(Path::to_path_buf);
    found.ok_or(BuildError::NoTarget(exe))
}

/// What the programs include of each other.
fn headers(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let file = |source| BuildError::File { path: folder.to_path_buf(), source };
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()).map_err(file)?;
    let paths = entries.into_iter().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect())
}

fn is_newer(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    match (changed(program), changed(source)) {
        (Some(built), Some(written)) => built > written,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(mpi: Mpi, ranks: u32) -> Option<String> {
        let program = build_or_skip(mpi, "nbody")?;
        let mut command = Command::new(mpi.mpirun()?);
        if mpi == Mpi::OpenMpi {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.args(["-n", &ranks.to_string()]).arg(program).args(["61", "20"]).stdin(Stdio::null());
        let output = command.output().expect("mpirun is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("ranks={ranks}")), "{text}");
        let (_, checksum) = text.trim().rsplit_once("checksum=").expect("nbody prints a checksum");
        Some(checksum.to_owned())
    }

    #[test]
    fn long_the_nbody_checksum_is_the_same_for_every_number_of_ranks_and_every_mpi() {
        let mut checksums: Vec<String> = Vec::new();
        for mpi in Mpi::ALL {
            for ranks in [1, 2, 3, 4, 7] {
                checksums.extend(checksum(mpi, ranks));
            }
        }
        assert!(checksums.iter().all(|checksum| *checksum == checksums[0]), "{checksums:?}");
    }
}
