//! Checks what is to be executed: its texts, and that its tasks fit the nodes; used for submissions and launches.

use rms_api::refusal::Refusal;
use rms_model::job::TaskCount;
use rms_model::{Execution, Work, pattern};

/// Checks what is to be executed.
///
/// # Errors
/// What is missing, malformed or too long.
pub(crate) fn check(execution: &Execution) -> Result<(), Refusal> {
    // Any number is valid.
    let Execution { work, cwd, environment, umask: _, stdio, limits: _, malleable_threads: _ } = execution;
    too_large("the working directory", cwd.len(), MAX_PATH)?;
    if !cwd.starts_with('/') || !has_no_nul(cwd) {
        return Err(Refusal::Malformed("the working directory is an absolute path"));
    }
    check_work(work)?;
    let size = environment.0.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
    too_large("the environment", size, MAX_ENVIRONMENT)?;
    let is_variable =
        |(key, value): &(String, String)| !key.is_empty() && !key.contains('=') && has_no_nul(key) && has_no_nul(value);
    if !environment.0.iter().all(is_variable) {
        return Err(Refusal::Malformed("an environment variable has no name, or holds '=' in it or a NUL byte"));
    }
    for name in [&stdio.input, &stdio.output, &stdio.error].into_iter().flatten() {
        too_large("a file name", name.len(), MAX_PATH)?;
        if name.is_empty() || !has_no_nul(name) {
            return Err(Refusal::Malformed("a file name for a stream is empty or holds a NUL byte"));
        }
        pattern::check(name)?;
    }
    Ok(())
}

fn check_work(work: &Work) -> Result<(), Refusal> {
    match work {
        Work::Script { script, args } => {
            too_large("the script", script.len(), MAX_SCRIPT)?;
            too_large("the arguments", args.iter().map(|arg| arg.len() + 1).sum(), MAX_ARGUMENTS)?;
            if script.trim().is_empty() || !has_no_nul(script) || !args.iter().all(|arg| has_no_nul(arg)) {
                return Err(Refusal::Malformed("the script is empty, or it or an argument holds a NUL byte"));
            }
        }
        Work::Tasks { argv } => {
            too_large("the arguments", argv.iter().map(|arg| arg.len() + 1).sum(), MAX_ARGUMENTS)?;
            let has_program = argv.first().is_some_and(|program| !program.is_empty());
            if !has_program || !argv.iter().all(|arg| has_no_nul(arg)) {
                return Err(Refusal::Malformed("the program is missing, or an argument holds a NUL byte"));
            }
        }
        Work::Nodes => return Err(Refusal::Malformed("what is started is a script or a program")),
    }
    Ok(())
}

/// Checks that the tasks of this work can be spread over `n_nodes` nodes.
///
/// # Errors
/// Too few tasks, or too many for one node.
pub(crate) fn check_spread(work: &Work, tasks: TaskCount, n_nodes: u32) -> Result<(), Refusal> {
    match work {
        Work::Tasks { .. } => {}
        Work::Script { .. } | Work::Nodes => return Ok(()),
    }
    if let TaskCount::Total(n_tasks) = tasks
        && n_tasks < n_nodes
    {
        return Err(Refusal::FewerTasksThanNodes { n_tasks, n_nodes });
    }
    // Where CPUs are not counted, only this limit keeps a typing error from overloading a node with processes.
    if tasks.most_on_a_node(n_nodes) > MAX_TASKS_ON_A_NODE {
        return Err(Refusal::Malformed("at most 4096 tasks are started on one node"));
    }
    Ok(())
}

fn has_no_nul(text: &str) -> bool {
    !text.contains('\0')
}

/// Checks the length of a text.
///
/// # Errors
/// The text is longer than allowed.
pub(crate) fn too_large(what: &'static str, size: usize, max: usize) -> Result<(), Refusal> {
    if size > max { Err(Refusal::TooLarge { what, size, max }) } else { Ok(()) }
}

const MAX_TASKS_ON_A_NODE: u32 = 4096;
const MAX_PATH: usize = 4096;
const MAX_SCRIPT: usize = 4 << 20;
const MAX_ARGUMENTS: usize = 1 << 20;
const MAX_ENVIRONMENT: usize = 2 << 20;
