//! Starts the processes of an embedded cluster in their own sessions, with their logs in its directory.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use super::ledger::UpDir;
use super::process::ProcessRecord;
use super::sweep::MARK;
use crate::failure::Failure;

/// Finds one of Limber's programs next to this one or on the search path.
///
/// # Errors
/// The program is not found.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    let on_path = std::env::var_os("PATH");
    let on_path = on_path.iter().flat_map(std::env::split_paths).map(|dir| dir.join(name));
    let found = beside.into_iter().chain(on_path).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new("no_program", format!("the program {name} is missing"))
            .hint("it belongs beside rms: build all with 'cargo build', or install it with rms")
    })
}

/// A process to start.
#[derive(Debug)]
pub struct Daemon<'a> {
    pub dir: &'a UpDir,
    /// The name of its log.
    pub name: &'a str,
    pub program: &'a Path,
    pub args: Vec<OsString>,
}

/// A running process that has not reported readiness yet.
#[derive(Debug)]
pub struct Starting {
    pub name: String,
    pub record: ProcessRecord,
    log: PathBuf,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Daemon<'_> {
    /// Starts the process, which outlives this one.
    ///
    /// # Errors
    /// The program or its log cannot be opened.
    pub fn start(self) -> Result<Starting, Failure> {
        let log_path = self.dir.log(self.name);
        let log = open_log(&log_path)?;
        let of_spawn =
            |error: std::io::Error| Failure::io(format!("{} cannot be started", self.program.display()), error);
        // Started through this program, as creating a session needs a call between fork and exec; the pid does not
        // change.
        let us = std::env::current_exe().map_err(of_spawn)?;
        let mut command = Command::new(us);
        command.arg(DETACH).arg(self.program).args(&self.args);
        command.env(MARK, &self.dir.root).env_remove("RMS_DIR").current_dir(&self.dir.root);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(of_spawn)?;
        let stdout = child.stdout.take();
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let gone = || Failure::new("not_started", format!("{} ended at once", self.name)).hint(tail(&log_path));
        let (Some(stdout), Some(pid)) = (stdout, pid) else {
            return Err(gone());
        };
        let record = ProcessRecord::of(pid).map_err(|_| gone())?;
        Ok(Starting { name: self.name.to_owned(), record, log: log_path, lines: BufReader::new(stdout).lines() })
    }
}

impl Starting {
    /// Waits for the line that begins with `word`, and returns it.
    ///
    /// # Errors
    /// The process ends, or prints nothing for too long.
    pub async fn ready(&mut self, word: &str) -> Result<String, Failure> {
        let name = self.name.clone();
        let awaited = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                if line.starts_with(word) {
                    return Some(line);
                }
            }
            None
        };
        match tokio::time::timeout(START_PATIENCE, awaited).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => {
                let failure = Failure::new("not_started", format!("{name} has ended instead of getting ready"));
                Err(failure.hint(tail(&self.log)))
            }
            Err(_) => {
                let failure = Failure::new("not_ready", format!("{name} is not ready after {START_PATIENCE:?}"));
                Err(failure.hint(format!("its log is {}", self.log.display())))
            }
        }
    }
}

/// Runs a short program to its end.
///
/// # Errors
/// The program fails; the message contains its output.
pub async fn run(program: &Path, args: &[OsString]) -> Result<(), Failure> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| Failure::io(format!("{} cannot be started", program.display()), error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new("not_started", said.trim().to_owned()))
}

/// Implements the hidden verb: executes `program` in a new session.
///
/// # Errors
/// The program cannot be executed.
pub fn detach(command: &[OsString]) -> Failure {
    let Some((program, args)) = command.split_first() else {
        return Failure::usage("nothing to execute");
    };
    if let Err(errno) = nix::unistd::setsid() {
        return Failure::io("no session of its own", errno);
    }
    close_inherited();
    let error = std::process::Command::new(program).args(args).exec();
    Failure::io(format!("{} cannot be executed", Path::new(program).display()), error)
}

/// Closes what the program would inherit beside the standard streams: a lock or a pipe of who calls `rms up` would stay
/// open for as long as the cluster runs.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let is_kept = |info: &str| {
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
        flags.is_some_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_CLOEXEC))
    };
    let inherited = open.filter_map(|entry| {
        let fd: i32 = entry.file_name().to_str()?.parse().ok().filter(|fd| *fd > 2)?;
        let info = std::fs::read_to_string(entry.path()).ok()?;
        (!is_kept(&info)).then_some(fd)
    });
    // Nothing in this process has opened them.
    inherited.for_each(|fd| _ = nix::unistd::close(fd));
}

/// The hidden verb that creates a session and executes the rest of the command line.
pub const DETACH: &str = "detach";
/// On a busy machine, starting a process takes seconds, not minutes.
const START_PATIENCE: Duration = Duration::from_secs(60);

fn open_log(path: &Path) -> Result<File, Failure> {
    let of_io = |error| Failure::io(format!("{} cannot be written", path.display()), error);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(of_io)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(of_io)
}

/// Returns the last lines of a log, as a hint.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    if lines.is_empty() {
        format!("its log {} is empty", path.display())
    } else {
        format!("its log {} ends with: {}", path.display(), lines.join(" / "))
    }
}
