//! Opens the standard streams of a job's tasks, with the owner's permissions only.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, openat2};
use nix::sys::stat::{Mode, umask};
use nix::unistd::pipe2;
use rms_model::Work;
use rms_model::pattern::{self, Names};
use thiserror::Error;

use super::pump::Piped;
use super::user::{Account, IdentityGuard};
use crate::order::Order;
use crate::spool;

/// The streams of one task. Tasks that name the same file share one open file.
#[derive(Clone, Debug)]
pub struct Streams {
    pub stdin: Input,
    pub stdout: Rc<OwnedFd>,
    pub stderr: Rc<OwnedFd>,
}

/// The input of a process.
#[derive(Clone, Debug)]
pub enum Input {
    Open(Rc<OwnedFd>),
    /// Each process opens it, so each reads from the start.
    File(PathBuf),
}

/// Empty input. If it cannot be opened, no job can start here.
const NOTHING: &str = "/dev/null";

impl Input {
    /// # Errors
    /// No more files can be opened.
    pub fn nothing() -> Result<Input, StreamsError> {
        Ok(Input::Open(Rc::new(open_input(Path::new(NOTHING), false)?)))
    }

    /// Returns whether the process that opens it may have to wait for a writer.
    pub fn is_fifo(&self) -> bool {
        match self {
            Input::Open(_) => false,
            Input::File(path) => is_fifo(path),
        }
    }
}

/// The streams of all tasks here.
#[derive(Debug)]
pub struct AllStreams {
    pub tasks: Vec<Streams>,
    /// The write end of task 0's standard input, for interactive input.
    pub input: Option<OwnedFd>,
    /// The pipes of streams that go to the spool.
    pub piped: Vec<Piped>,
}

/// The tasks for which streams are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOrigin {
    Start,
    /// Spawned ranks: other tasks are already writing.
    Spawned,
}

/// Why the streams cannot be opened.
#[derive(Debug, Error)]
pub enum StreamsError {
    #[error("cannot act as user {user}: {source}")]
    Act { user: String, source: nix::Error },
    #[error("cannot open {path} for {what}: {source}")]
    Open { path: PathBuf, what: &'static str, source: io::Error },
    #[error("cannot open {path} in the spool: {source}")]
    Spool { path: PathBuf, source: io::Error },
    #[error("cannot make a pipe: {0}")]
    Pipe(nix::Error),
    #[error("the working directory {path} cannot be used here: {source}")]
    Cwd { path: PathBuf, source: io::Error },
}

impl StreamsError {
    /// Returns whether the node is at fault, so that any job would have failed.
    pub fn is_of_node(&self) -> bool {
        match self {
            StreamsError::Act { .. } | StreamsError::Spool { .. } | StreamsError::Pipe(_) => true,
            StreamsError::Open { path, .. } => path == Path::new(NOTHING),
            StreamsError::Cwd { .. } => false,
        }
    }
}

/// The default file of a script's output.
const DEFAULT_OUTPUT: &str = "rms-%j.out";

/// # Errors
/// A file cannot be opened as the owner, or the working directory does not exist.
pub fn open(
    order: &Order,
    account: &Account,
    entry_dir: &Path,
    first: u32,
    n: u32,
    origin: TaskOrigin,
) -> Result<AllStreams, StreamsError> {
    let mut opener = Opener { order, account, origin, files: BTreeMap::new() };
    let is_input_streamed =
        order.launch.execution.stdio.stream && order.launch.execution.stdio.input.is_none() && first == 0;
    let nothing = Input::nothing()?;
    let mut input = None;
    let mut tasks = Vec::with_capacity(n as usize);
    let mut piped = Vec::new();
    let mut spooled = Vec::new();
    if order.is_streamed() {
        for task in first..first + n {
            let mut open = |stream| {
                let path = spool::stream_path(entry_dir, stream, task);
                let opened = Piped::open(&path, account).map_err(|source| StreamsError::Spool { path, source });
                opened.map(|(stream, end)| {
                    piped.push(stream);
                    Rc::new(end)
                })
            };
            spooled.push((open("out")?, open("err")?));
        }
    }
    let _acting = opener.impersonate()?;
    opener.check_cwd()?;
    for task in first..first + n {
        let stdin = match &order.launch.execution.stdio.input {
            Some(pattern) => Input::File(opener.path(pattern, task)),
            None if is_input_streamed && task == 0 => {
                let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(StreamsError::Pipe)?;
                input = Some(writer);
                Input::Open(Rc::new(reader))
            }
            None => nothing.clone(),
        };
        let (stdout, stderr) = match spooled.get((task - first) as usize) {
            Some((out, err)) => (Rc::clone(out), Rc::clone(err)),
            None => {
                let out = order.launch.execution.stdio.output.as_deref().unwrap_or(DEFAULT_OUTPUT);
                let stdout = opener.output(out, task)?;
                (Rc::clone(&stdout), stdout)
            }
        };
        let stderr = match &order.launch.execution.stdio.error {
            Some(pattern) => opener.output(pattern, task)?,
            None => stderr,
        };
        tasks.push(Streams { stdin, stdout, stderr });
    }
    Ok(AllStreams { tasks, input, piped })
}

struct Opener<'a> {
    order: &'a Order,
    account: &'a Account,
    origin: TaskOrigin,
    files: BTreeMap<PathBuf, Rc<OwnedFd>>,
}

impl Opener<'_> {
    fn impersonate(&self) -> Result<IdentityGuard, StreamsError> {
        let impersonate = |source| StreamsError::Act { user: self.account.name.clone(), source };
        self.account.impersonate().map_err(impersonate)
    }

    fn check_cwd(&self) -> Result<(), StreamsError> {
        let path = PathBuf::from(&self.order.launch.execution.cwd);
        let is_dir = std::fs::metadata(&path)
            .and_then(|found| if found.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) });
        is_dir.map_err(|source| StreamsError::Cwd { path, source })
    }

    fn path(&self, pattern: &str, task: u32) -> PathBuf {
        let order = self.order;
        let names = Names {
            job: order.job.0,
            job_name: &order.launch.labels.name,
            user: &order.launch.owner.0,
            node: order.place().map_or("", |place| &place.name),
            node_idx: order.node_idx,
            task,
            step: if matches!(order.launch.execution.work, Work::Script { .. }) { None } else { Some(0) },
        };
        Path::new(&order.launch.execution.cwd).join(pattern::fill(pattern, &names))
    }

    fn output(&mut self, pattern: &str, task: u32) -> Result<Rc<OwnedFd>, StreamsError> {
        let path = self.path(pattern, task);
        if let Some(open) = self.files.get(&path) {
            return Ok(Rc::clone(open));
        }
        // Nodes that share a file share its content: the first one truncates it, all append.
        let is_first = match self.origin {
            TaskOrigin::Start => pattern::is_by_node(pattern) || self.order.node_idx == 0,
            TaskOrigin::Spawned => pattern::is_by_task(pattern),
        };
        let empties = !self.order.launch.execution.stdio.append && is_first;
        let old = umask(Mode::from_bits_truncate(self.order.launch.execution.umask));
        let file = open_output(&path);
        umask(old);
        let emptied = file.and_then(|file| {
            let is_file = file.metadata()?.is_file();
            if empties && is_file {
                file.set_len(0)?;
            }
            block(file)
        });
        let open = |source| StreamsError::Open { path: path.clone(), what: "output", source };
        let file = Rc::new(emptied.map_err(open)?);
        self.files.insert(path, Rc::clone(&file));
        Ok(file)
    }
}

/// Opens an output file. Refuses `/proc` and `/dev/stdout`: they lead to files of this process, not of the job.
fn open_output(path: &Path) -> io::Result<File> {
    // A FIFO without a reader must not block the supervisor.
    let flags =
        OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how =
        OpenHow::new().flags(flags).mode(Mode::from_bits_truncate(0o666)).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(AT_FDCWD, path, how) {
        // A kernel before 5.6 opens it like any other file.
        Err(Errno::ENOSYS) => Ok(File::from(nix::fcntl::open(path, flags, Mode::from_bits_truncate(0o666))?)),
        // Or there are too many links on the way, which every use of the path then says.
        Err(Errno::ELOOP) if !is_loop(path) => Err(io::Error::other("it leads to an open file of another process")),
        Err(Errno::ENXIO) if is_fifo(path) => Err(io::Error::other("it is a FIFO that nobody reads")),
        opened => Ok(File::from(opened?)),
    }
}

fn is_loop(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(Errno::ELOOP as i32))
}

fn is_fifo(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Opens an input file. With `waits`, the open of a FIFO blocks until somebody writes to it, as in a shell.
///
/// # Errors
/// The user cannot read the file.
pub fn open_input(path: &Path, waits: bool) -> Result<OwnedFd, StreamsError> {
    let flags = if waits { OFlag::O_NOCTTY } else { OFlag::O_NONBLOCK | OFlag::O_NOCTTY };
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).and_then(block);
    file.map_err(|source| StreamsError::Open { path: path.to_owned(), what: "input", source })
}

/// Makes the file blocking again, after an open that could not block.
fn block(file: File) -> io::Result<OwnedFd> {
    fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(OwnedFd::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_even_read_nothing_is_on_a_node_at_fault() {
        let missing = |path: &str| StreamsError::Open {
            path: PathBuf::from(path),
            what: "input",
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        assert!(missing("/dev/null").is_of_node() && !missing("/home/ann/in").is_of_node());
    }
}
