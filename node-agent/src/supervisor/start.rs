//! Starts the tasks of a job's share: account, script, streams, then one process each.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use rms_api::desired::LaunchNode;
use rms_model::Work;
use thiserror::Error;

use super::binding;
use super::child::{ChildError, ExecStatus, Program};
use super::environment;
use super::folder::Folder;
use super::pump::Piped;
use super::streams::{self, Streams, StreamsError, TaskOrigin};
use super::user::{Account, AccountCache, AccountError};
use super::variables::{self, Variables};
use crate::order::Order;
use crate::spool;
use crate::sys::{End, SingleThreaded};
use crate::topology::cpulist::CpuSet;

/// One task that runs, or has ended.
#[derive(Debug)]
pub struct Task {
    /// The number of the task in the job.
    pub task: u32,
    pub pid: Pid,
    pub exec_status: ExecStatus,
    pub end: Option<End>,
}

impl Task {
    /// Sends a signal to the task and to what it has started in its session's first process group.
    pub fn signal(&self, signal: i32) {
        crate::sys::kill_group(self.pid, signal);
    }
}

/// A share whose tasks run.
#[derive(Debug)]
pub struct Started {
    pub account: Account,
    pub variables: Variables,
    pub tasks: Vec<Task>,
    /// The write end of task 0's standard input.
    pub input: Option<OwnedFd>,
    /// The streams of the first task.
    pub streams: Option<Streams>,
    pub piped: Vec<Piped>,
    /// The supervisor's ends of the ranks' sockets, by their tasks; none for a script.
    pub rank_sockets: Vec<(u32, OwnedFd)>,
    /// The tasks that were bound to CPUs of their own, to which, and how many each keeps.
    pub bound: Vec<(Pid, CpuSet, u32)>,
}

/// Why a job did not start, as reported.
#[derive(Debug)]
pub struct StartFailure {
    pub reason: String,
    /// Whether the fault is the node's, not the job's.
    pub is_fault: bool,
}

/// Why a share did not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("this order does not say which node it is for")]
    NoPlace,
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Streams(#[from] StreamsError),
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot make a socket for a rank: {0}")]
    Socket(nix::Error),
    #[error("a word of the command holds a zero byte")]
    ZeroByte,
    #[error("the job is ending")]
    Ending,
}

impl StartError {
    /// Returns whether the fork failed for lack of memory.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, StartError::Child(ChildError::Fork(nix::errno::Errno::ENOMEM)))
    }

    /// Returns whether the node is at fault, so that any job would have failed.
    pub fn is_of_node(&self) -> bool {
        match self {
            StartError::Write { .. } | StartError::Child(_) | StartError::Socket(_) | StartError::NoPlace => true,
            StartError::Streams(error) => error.is_of_node(),
            StartError::Account(_) | StartError::ZeroByte | StartError::Ending => false,
        }
    }
}

/// # Errors
/// No process of the share is left running; the caller kills what was forked before the failure.
pub fn start(
    order: &Order,
    folder: &Folder,
    accounts: &mut AccountCache,
    single: &SingleThreaded,
) -> Result<Started, StartError> {
    let account = accounts.resolve(&order.launch.owner.0)?;
    let place = order.place().ok_or(StartError::NoPlace)?;
    let variables = environment::of_job(order, &account, &folder.host_files());
    let starter = Starter { order, place, account: &account, variables: &variables, entry_dir: folder.dir(), single };
    let StartedTasks { tasks, input, streams, piped, rank_sockets, bound } = match &order.launch.execution.work {
        Work::Script { script, args } if order.node_idx == 0 => starter.script(script, args)?,
        // The other nodes of a script, and nodes without tasks, wait for what is started on them.
        Work::Script { .. } | Work::Nodes => {
            starter.check_cwd()?;
            StartedTasks::default()
        }
        Work::Tasks { argv } => starter.tasks(argv)?,
    };
    Ok(Started { account, variables, tasks, input, streams, piped, rank_sockets, bound })
}

struct Starter<'a> {
    order: &'a Order,
    place: &'a LaunchNode,
    account: &'a Account,
    variables: &'a Variables,
    entry_dir: &'a Path,
    single: &'a SingleThreaded,
}

/// The same fields as in [`Started`].
#[derive(Default)]
struct StartedTasks {
    tasks: Vec<Task>,
    input: Option<OwnedFd>,
    streams: Option<Streams>,
    piped: Vec<Piped>,
    rank_sockets: Vec<(u32, OwnedFd)>,
    bound: Vec<(Pid, CpuSet, u32)>,
}

impl Starter<'_> {
    fn check_cwd(&self) -> Result<(), StartError> {
        streams::open(self.order, self.account, self.entry_dir, 0, 0, TaskOrigin::Start)?;
        Ok(())
    }

    fn script(&self, script: &str, args: &[String]) -> Result<StartedTasks, StartError> {
        let path = spool::script_path(self.entry_dir);
        self.write_script(&path, script).map_err(|source| StartError::Write { path: path.clone(), source })?;
        let all = streams::open(self.order, self.account, self.entry_dir, 0, 1, TaskOrigin::Start)?;
        let mut variables = self.variables.clone();
        environment::of_script(&mut variables, self.order, script);
        let name = c_string(path.display().to_string())?;
        let mut argv = vec![name.clone()];
        for arg in args {
            argv.push(c_string(arg.clone())?);
        }
        let mut tasks = Vec::new();
        for streams in &all.tasks {
            let program = Program {
                order: self.order,
                cwd: &self.order.launch.execution.cwd,
                account: self.account,
                argv: &argv,
                candidates: std::slice::from_ref(&name),
                environment: variables::to_c(&variables),
                stdin: &streams.stdin,
                stdout: &streams.stdout,
                stderr: &streams.stderr,
                cpus: None,
                inherited: None,
            };
            let (pid, exec_status) = program.start(self.single)?;
            tasks.push(Task { task: 0, pid, exec_status, end: None });
        }
        let streams = all.tasks.into_iter().next();
        Ok(StartedTasks { tasks, input: all.input, streams, piped: all.piped, ..StartedTasks::default() })
    }

    /// Writes the script. It is not read before it is executed, so an incomplete script is never seen.
    fn write_script(&self, path: &Path, script: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o500).open(path)?;
        file.write_all(script.as_bytes())?;
        // Only root can do so; otherwise it is already the owner's.
        match self.account.is_other_user() {
            true => fchown(&file, Some(self.account.uid.as_raw()), Some(self.account.gid.as_raw())),
            false => Ok(()),
        }
    }

    fn tasks(&self, argv: &[String]) -> Result<StartedTasks, StartError> {
        let LaunchNode { first_task, n_tasks: n_local, joined, .. } = *self.place;
        // The ranks of an MPI program are its initial ones: tasks on nodes that join later are not ranks.
        let has_ranks = joined == 1;
        let all = streams::open(self.order, self.account, self.entry_dir, first_task, n_local, TaskOrigin::Start)?;
        let argv = argv.iter().cloned().map(c_string).collect::<Result<Vec<CString>, StartError>>()?;
        let candidates = candidates(argv.first().ok_or(StartError::ZeroByte)?, self.variables);
        let mut variables = self.variables.clone();
        let cpus = binding::share_out(&self.order.packages, n_local, self.order.launch.cpus_per_task);
        let mut tasks = Vec::with_capacity(all.tasks.len());
        let mut rank_sockets = Vec::with_capacity(all.tasks.len());
        for (local, streams) in (0_u32..).zip(&all.tasks) {
            let (ours, theirs) = has_ranks.then(socket_pair).transpose()?.unzip();
            let rank = first_task + local;
            environment::of_task(&mut variables, rank, local);
            if let Some(theirs) = &theirs {
                let pmi_fd = std::os::fd::AsRawFd::as_raw_fd(theirs);
                environment::of_rank(&mut variables, pmi_fd, rank, local, n_local, self.order.launch.n_tasks);
            }
            environment::of_mpirun(&mut variables, self.order, argv[0].as_bytes());
            let program = Program {
                order: self.order,
                cwd: &self.order.launch.execution.cwd,
                account: self.account,
                argv: &argv,
                candidates: &candidates,
                environment: variables::to_c(&variables),
                stdin: &streams.stdin,
                stdout: &streams.stdout,
                stderr: &streams.stderr,
                cpus: cpus.get(local as usize),
                inherited: theirs.as_ref(),
            };
            let (pid, exec_status) = program.start(self.single)?;
            tasks.push(Task { task: rank, pid, exec_status, end: None });
            rank_sockets.extend(ours.map(|ours| (rank, ours)));
        }
        let streams = all.tasks.into_iter().next();
        let kept = |task: &Task| self.order.launch.kept_by(task.task);
        let bound = tasks.iter().zip(cpus).map(|(task, cpus)| (task.pid, cpus, kept(task))).collect();
        Ok(StartedTasks { tasks, input: all.input, streams, piped: all.piped, rank_sockets, bound })
    }
}

/// Creates a socket pair: the supervisor's end and the rank's end.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), StartError> {
    let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
    pair.map_err(StartError::Socket)
}

/// Returns the candidate paths of a program, from the job's own `PATH`.
pub fn candidates(name: &CString, variables: &Variables) -> Vec<CString> {
    let text = name.to_string_lossy();
    if text.contains('/') {
        return vec![name.clone()];
    }
    let path = variables.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
    path.split(':')
        // An empty part means the working directory.
        .map(|dir| if dir.is_empty() { "." } else { dir })
        .filter_map(|dir| CString::new(format!("{dir}/{text}")).ok())
        .collect()
}

pub fn c_string(text: String) -> Result<CString, StartError> {
    CString::new(text).map_err(|_| StartError::ZeroByte)
}
