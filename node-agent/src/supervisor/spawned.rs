//! Starts the ranks that other ranks have requested, and reads the hostfiles that they name.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::child::Program;
use super::environment;
use super::folder::Folder;
use super::pump::Piped;
use super::start::{self, StartError, Task, socket_pair};
use super::streams::{self, TaskOrigin};
use super::user::Account;
use super::variables::{self, Variables};
use crate::order::Order;
use crate::pmi::frames::{Part, Placement};
use crate::sys::SingleThreaded;

/// The started ranks of a placement: all of them if there is no problem.
#[derive(Debug, Default)]
pub struct Spawned {
    pub tasks: Vec<Task>,
    /// The supervisor's ends of the ranks' sockets, by their tasks.
    pub sockets: Vec<(u32, std::os::fd::OwnedFd)>,
    pub problem: Option<StartError>,
    pub piped: Vec<Piped>,
}

/// The context of a job in which ranks can be started.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    pub order: &'a Order,
    pub account: &'a Account,
    pub variables: &'a Variables,
    pub folder: &'a Folder,
}

/// Starts the ranks of a placement, one after the other, until one does not start.
pub fn start(parent: &Parent<'_>, placement: &Placement, single: &SingleThreaded) -> Spawned {
    let mut spawned = Spawned::default();
    if let Err(problem) = start_into(&mut spawned, parent, placement, single) {
        spawned.problem = Some(problem);
    }
    spawned
}

fn start_into(
    spawned: &mut Spawned,
    parent: &Parent<'_>,
    placement: &Placement,
    single: &SingleThreaded,
) -> Result<(), StartError> {
    let n_local = placement.parts.iter().map(|part| part.n_ranks).sum();
    let (order, account) = (parent.order, parent.account);
    let all = streams::open(order, account, parent.folder.dir(), placement.first_task, n_local, TaskOrigin::Spawned)?;
    let mut variables = parent.variables.clone();
    variables.insert("PMI_SPAWNED".to_owned(), "1".to_owned());
    let mut streams = (0_u32..).zip(&all.tasks);
    // Including those of ranks that did not start.
    spawned.piped = all.piped;
    for part in &placement.parts {
        let argv = part.argv.iter().cloned().map(start::c_string).collect::<Result<Vec<CString>, StartError>>()?;
        let candidates = candidates(part, argv.first().ok_or(StartError::ZeroByte)?, &variables);
        let cwd =
            Path::new(&order.launch.execution.cwd).join(part.wdir.as_deref().unwrap_or_default()).display().to_string();
        for (rank, (local, streams)) in
            (part.first_rank..part.first_rank.saturating_add(part.n_ranks)).zip(&mut streams)
        {
            let task = placement.first_task.saturating_add(local);
            let (ours, theirs) = socket_pair()?;
            environment::of_task(&mut variables, task, local);
            let pmi_fd = std::os::fd::AsRawFd::as_raw_fd(&theirs);
            environment::of_rank(&mut variables, pmi_fd, rank, local, n_local, placement.n_ranks);
            let program = Program {
                order,
                cwd: &cwd,
                account,
                argv: &argv,
                candidates: &candidates,
                environment: variables::to_c(&variables),
                stdin: &streams.stdin,
                stdout: &streams.stdout,
                stderr: &streams.stderr,
                cpus: None,
                inherited: Some(&theirs),
            };
            let (pid, exec_status) = program.start(single)?;
            spawned.tasks.push(Task { task, pid, exec_status, end: None });
            spawned.sockets.push((task, ours));
        }
    }
    Ok(())
}

/// Returns the candidate paths of a program: in the directories that the spawn names, then in the job's `PATH`.
pub fn candidates(part: &Part, name: &CString, variables: &Variables) -> Vec<CString> {
    let Some(path) = &part.path else { return start::candidates(name, variables) };
    let mut with_path = variables.clone();
    let old = variables.get("PATH").map(String::as_str).unwrap_or_default();
    with_path.insert("PATH".to_owned(), format!("{path}:{old}"));
    start::candidates(name, &with_path)
}

/// The longest hostfile that is read.
const MAX_HOSTFILE: u64 = 1 << 20;

/// Returns the contents of hostfiles, read as the owner.
pub fn read_hostfiles(parent: &Parent<'_>, paths: &[String]) -> Vec<Result<String, String>> {
    paths.iter().map(|path| read_hostfile(parent, path)).collect()
}

fn read_hostfile(parent: &Parent<'_>, path: &str) -> Result<String, String> {
    let _acting = parent.account.impersonate().map_err(|error| error.to_string())?;
    let path = Path::new(&parent.order.launch.execution.cwd).join(path);
    // A FIFO without a writer must not block the supervisor.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = file.map_err(|error| error.to_string())?;
    let mut text = String::new();
    let n_read = file.take(MAX_HOSTFILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if n_read as u64 > MAX_HOSTFILE { Err(format!("it is longer than {MAX_HOSTFILE} bytes")) } else { Ok(text) }
}
