//! Tells users of other batch systems what to type here instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;
use crate::sbatch;

/// Verbs of other systems, and the corresponding ones of Limber.
const VERBS: &[(&[&str], &str)] = &[
    (&["sbatch", "qsub", "bsub"], "rms submit"),
    (&["srun", "salloc", "exec", "start"], "rms run"),
    (&["squeue", "qstat", "bjobs", "stat", "ps", "list"], "rms queue"),
    (&["scancel", "qdel", "bkill", "kill", "stop"], "rms cancel"),
    (&["sinfo", "pbsnodes", "bhosts"], "rms nodes"),
    (&["sacct", "sreport"], "rms history"),
    (&["scontrol"], "rms show', 'rms hold', 'rms release' and 'rms admin"),
    (&["sprio"], "rms explain"),
    (&["status", "info"], "rms admin status"),
    (&["top", "smap", "sview"], "rms view' and 'rms queue -w"),
];

/// Options that other systems have for these verbs, and their equivalents.
const OPTIONS: &[(&str, &[&str], &str)] = &[
    ("run", &["--pty"], "tasks have no terminal; --stdin passes on what you type"),
    ("run", &["--mpi"], "programs of the MPICH family find each other without it"),
    ("run", &["-u", "--unbuffered"], "output comes as it is written"),
    ("run", &["--cpu-bind", "--mem-bind"], "tasks stay on the CPUs that -c gives them"),
    ("queue", &["-j", "--jobs", "--job"], "'rms show 7' tells all about job 7"),
    ("queue", &["-t", "--states"], "write --state"),
    ("queue", &["--start"], "the list has every job's estimate; 'rms explain 7' says where it comes from"),
    ("queue", &["-o", "-O", "--format", "-l", "--long"], "--json and --parsable print everything there is"),
    ("cancel", &["-u", "--user"], "write 'rms cancel user:NAME'"),
    ("cancel", &["-a", "--all"], "write 'rms cancel all'"),
    ("cancel", &["-n", "--name", "-t", "--state"], "name the jobs by their numbers; 'rms queue' lists them"),
    ("history", &["-S", "--starttime"], "write --since"),
    ("history", &["-E", "--endtime"], "write --until"),
    ("history", &["-j", "--jobs"], "write 'rms history 7'"),
    ("history", &["-o", "--format", "-l", "--long"], "--json and --parsable print everything there is"),
];

/// The verbs whose options describe a job, as those of sbatch and srun do.
const OF_JOBS: &[&str] = &["submit", "run", "plan"];

/// Flags that take a value in other systems, and what they mean here.
const FLAGS: &[(&str, &str)] = &[(
    "--exclusive",
    "write --exclusive: its nodes are shared with no other job, of the same user neither; without it, the administrator \
     decides whether jobs share nodes",
)];

/// Returns advice for words that only another system knows; `None` for words that no system knows.
pub fn instead_of(error: &clap::Error, args: &[OsString], command: &clap::Command) -> Option<Failure> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(verb)), _) => instead_of_verb(verb),
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(option))) => instead_of_option(option, args, command),
        (ErrorKind::TooManyValues, _, Some(ContextValue::String(flag))) => {
            let advice = instead_of_value(error)?;
            Some(Failure::usage(format!("option {flag} takes no value: {advice}")))
        }
        _ => None,
    }
}

/// Returns what to write instead of a flag with a value; `None` if the error is another one, or no system gives it a
/// value.
pub fn instead_of_value(error: &clap::Error) -> Option<&'static str> {
    let (ErrorKind::TooManyValues, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    FLAGS.iter().find(|(theirs, _)| flag == theirs).map(|(_, advice)| *advice)
}

fn instead_of_verb(verb: &str) -> Option<Failure> {
    let (_, ours) = VERBS.iter().find(|(theirs, _)| theirs.contains(&verb))?;
    Some(Failure::usage(format!("there is no 'rms {verb}'")).hint(format!("it is '{ours}' here; 'rms help' lists all")))
}

fn instead_of_option(option: &str, args: &[OsString], command: &clap::Command) -> Option<Failure> {
    let verb = args.iter().skip(1).filter_map(|arg| arg.to_str()).find(|word| !word.starts_with('-'))?;
    let verb = if verb == "jobs" { "queue" } else { verb };
    let fails = |why: &str| {
        Failure::usage(format!("'rms {verb}' has no option {option}: {why}"))
            .hint(format!("'rms {verb} --help' lists the options"))
    };
    let known = OPTIONS.iter().find(|(of, theirs, _)| *of == verb && theirs.contains(&option));
    if let Some((_, _, advice)) = known {
        return Some(fails(advice));
    }
    let ours = command.find_subcommand(verb).filter(|_| OF_JOBS.contains(&verb))?;
    let has = |long: &str| ours.get_arguments().any(|arg| arg.get_long() == long.strip_prefix("--"));
    let advice = sbatch::advice(option, has)?;
    Some(fails(&advice))
}
