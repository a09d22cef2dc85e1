//! What to start on granted nodes, by default in the launcher's own environment.

use std::sync::Arc;

use rms_api::subscription::Launchable;
use rms_model::{Environment, Execution, Limits, Malleable, Stdio, Work};

/// A program or a script to be started on granted nodes. By default it gets the launcher's environment, working
/// directory and umask.
///
/// ```
/// use launcher_sdk::launcher::Program;
///
/// let program = Program::new(["./nbody", "1000"]).tasks(64).cpus_per_task(2).output("nbody-%j.out");
/// let launch = program.clone().into_launchable();
/// assert_eq!((launch.n_tasks, launch.cpus_per_task), (Some(64), 2));
/// // A batch script runs once, on the first node, and reaches the others by mpirun or $RMS_HOSTFILE.
/// let script = Program::script("#!/bin/sh\nmpirun ./nbody\n");
/// # drop(script);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    launch: Launchable,
}

impl Program {
    /// Starts one task on each node, each running `argv`: a program, which is looked up in the job's `PATH`, and its
    /// arguments. Tasks of a program of the MPICH family find each other without mpirun; for Open MPI, start a
    /// [script](Program::script) that calls mpirun.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Program {
        Program::of(Work::Tasks { argv: argv.into_iter().map(Into::into).collect() })
    }

    /// Starts a batch script, given as text. It runs once, on the first node; `mpirun` in it reaches the others.
    pub fn script(script: impl Into<String>) -> Program {
        Program::of(Work::Script { script: script.into(), args: Vec::new() })
    }

    /// Adds arguments to the program or the script.
    #[must_use]
    pub fn args(mut self, more: impl IntoIterator<Item = impl Into<String>>) -> Program {
        match &mut self.launch.execution.work {
            Work::Tasks { argv: args } | Work::Script { script: _, args } => {
                args.extend(more.into_iter().map(Into::into))
            }
            Work::Nodes => {}
        }
        self
    }

    fn of(work: Work) -> Program {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let mut environment: Vec<(String, String)> =
            std::env::vars_os().filter_map(text).filter(|(name, _)| !name.is_empty()).collect();
        environment.sort();
        let cwd = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
        Program {
            launch: Launchable::of(Execution {
                work,
                cwd: cwd.unwrap_or_else(|| "/".to_owned()),
                environment: Arc::new(Environment(environment)),
                umask: own_umask().unwrap_or(0o022),
                stdio: Stdio { output: Some(DEFAULT_OUTPUT.to_owned()), ..Stdio::default() },
                limits: Limits::default(),
                malleable_threads: false,
            }),
        }
    }

    /// Sets the number of tasks over all nodes; they are distributed in blocks.
    #[must_use]
    pub fn tasks(mut self, n_tasks: u32) -> Program {
        self.launch.n_tasks = Some(n_tasks);
        self
    }

    /// Sets the number of CPUs for each task. With 0, the default, the tasks of a node share its CPUs.
    #[must_use]
    pub fn cpus_per_task(mut self, n_cpus: u32) -> Program {
        self.launch.cpus_per_task = n_cpus;
        self
    }

    /// Sets the working directory: an absolute path, which must exist on every node.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<String>) -> Program {
        self.launch.execution.cwd = dir.into();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Program {
        let name = name.into();
        let environment = &mut Arc::make_mut(&mut self.launch.execution.environment).0;
        environment.retain(|(known, _)| *known != name);
        environment.push((name, value.into()));
        self
    }

    /// Removes all environment variables: those of the launcher, and those set before.
    #[must_use]
    pub fn env_clear(mut self) -> Program {
        self.launch.execution.environment = Arc::default();
        self
    }

    /// Sets the file for standard output, and for standard error unless [`Program::errors`] names another. It may
    /// contain `%j` (job), `%N` (node), `%t` (task); a relative path is relative to the working directory. The default
    /// is `rms-%j.out`.
    #[must_use]
    pub fn output(mut self, file: impl Into<String>) -> Program {
        self.launch.execution.stdio.output = Some(file.into());
        self
    }

    /// Sets the file for standard error; see [`Program::output`].
    #[must_use]
    pub fn errors(mut self, file: impl Into<String>) -> Program {
        self.launch.execution.stdio.error = Some(file.into());
        self
    }

    /// Keeps the output for followers of the job ([`Client::follow`](crate::Client::follow), `rms logs -f`), instead
    /// of writing it to a file.
    #[must_use]
    pub fn streamed(mut self) -> Program {
        self.launch.execution.stdio = Stdio { stream: true, ..Stdio::default() };
        self
    }

    /// Lets the application change its size within these limits while it runs (002): the server offers it nodes and
    /// asks for nodes back. All nodes that it is granted must be of one cluster, and as many as the limits allow. With
    /// limits, its processes negotiate; a [`Malleable`] can also choose a signal or a hook that reports changes.
    ///
    /// ```
    /// use launcher_sdk::launcher::Program;
    /// use launcher_sdk::negotiator::Limits;
    ///
    /// let program = Program::new(["./nbody"]).malleable(Limits::between(2, 16).in_powers_of_two());
    /// # drop(program);
    /// ```
    #[must_use]
    pub fn malleable(mut self, limits: impl Into<Malleable>) -> Program {
        self.launch.malleable = Some(limits.into());
        self
    }

    /// Converts it for [`Session::launch`](super::Session::launch).
    pub fn into_launchable(self) -> Launchable {
        self.launch
    }
}

/// Reads the umask from `/proc`: the system call would have to change it for a moment.
fn own_umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// The default of `rms submit`, too.
const DEFAULT_OUTPUT: &str = "rms-%j.out";

#[cfg(test)]
mod tests {
    use rms_model::OnResize;

    use super::*;
    use crate::negotiator::Limits;

    #[test]
    fn a_variable_that_is_set_twice_has_its_last_value() {
        let program = Program::new(["true"]).env_clear().env("A", "1").env("B", "2").env("A", "3");
        let expected = [("B".to_owned(), "2".to_owned()), ("A".to_owned(), "3".to_owned())];
        assert_eq!(program.into_launchable().execution.environment.0, expected);
    }

    #[test]
    fn limits_of_a_negotiator_are_limits_of_a_program() {
        let program = Program::new(["true"]).malleable(Limits::between(2, 16).in_multiples_of(2));
        let malleable = program.into_launchable().malleable.expect("it was said");
        assert_eq!((malleable.least, malleable.most, malleable.on_resize), (2, 16, OnResize::Negotiates));
        assert!(malleable.sizes.fits(4) && !malleable.sizes.fits(3));
    }

    #[test]
    fn streamed_output_goes_to_no_file() {
        let stdio = Program::new(["true"]).streamed().into_launchable().execution.stdio;
        assert!(stdio.stream && stdio.output.is_none());
    }
}
