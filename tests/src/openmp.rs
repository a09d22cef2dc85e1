//! Compiles the OpenMP test programs of `tests/apps`, with GCC's runtime and with LLVM's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::apps::{BuildError, target};

/// A compiler with its OpenMP runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMp {
    /// gcc and libgomp.
    Gnu,
    /// clang and libomp.
    Llvm,
}

impl OpenMp {
    pub const ALL: [OpenMp; 2] = [OpenMp::Gnu, OpenMp::Llvm];

    pub fn compiler(self) -> &'static str {
        match self {
            OpenMp::Gnu => "gcc",
            OpenMp::Llvm => "clang",
        }
    }

    /// Is it there, with its runtime?
    fn is_installed(self) -> bool {
        let mut compiler = Command::new(self.compiler());
        compiler.args(["-fopenmp", "-E", "-x", "c", "-include", "omp.h", "/dev/null"]);
        compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        compiler.status().is_ok_and(|status| status.success())
    }
}

/// The program `tests/apps/<name>.c`; nothing, and a word about it, if its compiler is not installed.
///
/// # Panics
/// If it does not compile.
pub fn build_or_skip(runtime: OpenMp, name: &str) -> Option<PathBuf> {
    if !runtime.is_installed() {
        eprintln!("SKIPPED: {} with OpenMP is not installed; `cargo xtask setup` installs it", runtime.compiler());
        return None;
    }
    Some(build(runtime, name).expect("the test programs compile"))
}

fn build(runtime: OpenMp, name: &str) -> Result<PathBuf, BuildError> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps").join(format!("{name}.c"));
    let folder = target()?.join("apps").join(format!("openmp-{}", runtime.compiler()));
    fs::create_dir_all(&folder).map_err(|source| BuildError::File { path: folder.clone(), source })?;
    // Tests may ask at the same time, and the last one wins with the same bytes.
    let (program, draft) = (folder.join(name), folder.join(format!("{name}.{}", std::process::id())));
    let compiler = PathBuf::from(runtime.compiler());
    let output = Command::new(&compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-fopenmp", "-o"])
        .arg(&draft)
        .arg(&source)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::Compiler { compiler: compiler.clone(), source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BuildError::Refused { compiler, program: name.to_owned(), message });
    }
    fs::rename(&draft, &program).map_err(|source| BuildError::File { path: program.clone(), source })?;
    Ok(program)
}
