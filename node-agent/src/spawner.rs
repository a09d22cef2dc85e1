//! The process that forks supervisors: small and single-threaded, unlike the agent.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, getpid, getppid};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::frame::{self, Decoder, Frame};
use crate::spool;
use crate::supervisor::{self, Folder, SupervisorArgs, seat_socket};
use crate::sys::{self, SingleThreaded};

/// Requests one supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatOrder {
    pub name: String,
    pub cgroup: Cgroup,
    pub seats_dir: PathBuf,
    pub jobs_dir: PathBuf,
}

/// The answer: from now on, the supervisor's socket accepts connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatMade {
    pub name: String,
    /// The process id, or why there is none.
    pub made: Result<i32, String>,
}

/// Starts the spawner and returns the connection to it. The spawner exits when the connection is closed, and idle
/// supervisors exit with it. The directory is an argument only to appear in process lists: it shows to which agent the
/// spawner and its supervisors belong.
///
/// The spawner is executed rather than forked, so that an agent with threads can replace a killed one.
///
/// # Errors
/// No process can be created.
pub fn start(program: &Path, dir: &Path) -> io::Result<(UnixStream, Child)> {
    let (agent_end, spawner_end) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).arg(dir).stdin(OwnedFd::from(spawner_end)).stdout(Stdio::null());
    let child = command.spawn()?;
    Ok((agent_end, child))
}

/// The subcommand that runs the program as the spawner.
pub const SUBCOMMAND: &str = "spawner";

/// Runs the spawner; standard input is the connection to the agent.
///
/// # Errors
/// Standard input is not such a connection, or the process has several threads.
pub fn main() -> io::Result<()> {
    let single = SingleThreaded::check()?;
    let orders = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    drop(null);
    serve(orders, single)
}

fn serve(mut orders: UnixStream, single: SingleThreaded) -> io::Result<()> {
    let _only_cosmetic = prctl::set_name(c"rms-spawner");
    sys::reset_signals();
    // These signals stop the agent; the spawner exits after the agent.
    let mut mask = nix::sys::signal::SigSet::empty();
    mask.add(Signal::SIGINT);
    mask.add(Signal::SIGTERM);
    mask.add(Signal::SIGHUP);
    mask.thread_block()?;
    sys::ignore_children();
    let mut decoder = Decoder::default();
    let mut piece = [0; 4096];
    loop {
        let n = match orders.read(&mut piece) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if n == 0 {
            return Ok(());
        }
        decoder.push(&piece[..n]);
        while let Some(frame) = decoder.take::<SeatOrder>().map_err(io::Error::other)? {
            let Frame::Message(order) = frame else { continue };
            let name = order.name.clone();
            match make(order, &single) {
                Ok(Forked::Parent(pid)) => orders.write_all(&frame::message(&SeatMade { name, made: Ok(pid) }))?,
                Ok(Forked::Child(args)) => {
                    drop(orders);
                    return become_supervisor(*args, single);
                }
                Err(error) => {
                    orders.write_all(&frame::message(&SeatMade { name, made: Err(error.to_string()) }))?;
                }
            }
        }
    }
}

enum Forked {
    Parent(i32),
    Child(Box<SupervisorArgs>),
}

fn make(order: SeatOrder, single: &SingleThreaded) -> io::Result<Forked> {
    let SeatOrder { name, cgroup, seats_dir, jobs_dir } = order;
    // Bound before the fork, so that the agent may connect at once.
    Folder::make_dir(&seats_dir, &name)?;
    let listener = spool::bind_socket(&seat_socket(&seats_dir, &name))?;
    let spawner = getpid();
    match single.fork()? {
        ForkResult::Parent { child } => Ok(Forked::Parent(child.as_raw())),
        ForkResult::Child => {
            // An idle supervisor exits with the spawner, which exits with the agent.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != spawner {
                // The spawner has already exited: nothing knows of this process or would ever end it.
                sys::exit_now(0);
            }
            Ok(Forked::Child(Box::new(SupervisorArgs { name, seats_dir, jobs_dir, cgroup, listener })))
        }
    }
}

/// Becomes a supervisor. It may outlive the reader of the agent's output, so it keeps none of that open.
fn become_supervisor(args: SupervisorArgs, single: SingleThreaded) -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    supervisor::run(args, single)
}
