//! The options of Slurm's `srun` that a step has no use for: without effect, or refused, each with the reason.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::slurm_option::{Argument, SlurmOption, flag, perhaps, value};

/// What becomes of an option.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// Without effect, with a message: the step would be the same.
    Idle(&'static str),
    /// As [`Meaning::Idle`] with the value `none`, otherwise refused.
    OnlyNone(&'static str, &'static str),
    /// The job's own number is nothing new; that of another job is refused.
    OwnJob(&'static str),
    /// Refused, with what to do instead: the step would run elsewhere, differently or with other resources.
    Refused(&'static str),
}

use Meaning::{Idle, OnlyNone, OwnJob, Refused};

const OF_JOB: &str = "it is about a job, and this one has begun";
const MEMORY: &str = "a step shares the memory of its job";
const DEVICES: &str = "a step has all devices of its job";
const OF_COMMAND: &str = "it is about Slurm's own srun";
const NO_PROFILING: &str = "nothing is sampled";
const ALL_DEVICES: &str =
    "a step has all devices of its job: let each task choose, as by CUDA_VISIBLE_DEVICES=$SLURM_LOCALID";
const BY_TASK: &str = "say the size of the step by -N, -n and -c";
const IN_SCRIPT: &str = "call it in the script, or in a script that srun starts";
const SHARED_FILES: &str = "put the program where all nodes of the job see it";

#[rustfmt::skip]
const OPTIONS: &[SlurmOption<Meaning>] = &[
    value(Some('p'), "partition", Idle("the step runs on nodes of its job")),
    value(Some('A'), "account", Idle(OF_JOB)),
    value(Some('q'), "qos", Idle(OF_JOB)),
    value(None, "wckey", Idle(OF_JOB)),
    value(None, "mcs-label", Idle(OF_JOB)),
    value(None, "comment", Idle(OF_JOB)),
    value(None, "reservation", Idle(OF_JOB)),
    value(None, "mail-type", Idle(OF_JOB)),
    value(None, "mail-user", Idle(OF_JOB)),
    value(None, "priority", Idle(OF_JOB)),
    perhaps(None, "nice", Idle(OF_JOB)),
    value(Some('L'), "licenses", Idle(OF_JOB)),
    value(Some('M'), "clusters", Idle(OF_JOB)),
    flag(None, "contiguous", Idle(OF_JOB)),
    flag(None, "spread-job", Idle(OF_JOB)),
    value(None, "tmp", Idle(OF_JOB)),
    value(None, "mincpus", Idle(OF_JOB)),
    value(Some('W'), "wait", Idle("the step ends when its last task has ended; -K ends it with the first that fails")),
    perhaps(Some('I'), "immediate", Idle("the step begins at once, or with --exclusive when CPUs are free")),
    perhaps(None, "propagate", Idle("tasks have the limits of their job")),
    flag(Some('E'), "preserve-env", Idle("tasks have the counts of their step in any case")),
    flag(Some('X'), "disable-status", Idle("an interrupt ends the step at once in any case")),
    flag(None, "quit-on-interrupt", Idle("an interrupt ends the step at once in any case")),
    value(None, "threads-per-core", Idle("tasks run on the CPUs of their job")),
    value(None, "mem", Idle(MEMORY)),
    value(None, "mem-per-cpu", Idle(MEMORY)),
    value(None, "mem-per-gpu", Idle(MEMORY)),
    flag(None, "whole", Idle("a step may use all CPUs that its job has on its nodes")),
    perhaps(None, "resv-ports", Idle("ports are not counted")),
    value(None, "profile", Idle(NO_PROFILING)),
    value(None, "acctg-freq", Idle(NO_PROFILING)),
    value(None, "power", Idle("power is left alone")),
    value(None, "slurmd-debug", Idle(OF_COMMAND)),
    value(Some('T'), "threads", Idle(OF_COMMAND)),
    value(None, "msg-timeout", Idle(OF_COMMAND)),
    value(None, "jobid", OwnJob("a step runs in the job that starts it; 'rms run --new-job' makes a job of its own")),
    value(None, "gres", OnlyNone(DEVICES, ALL_DEVICES)),
    value(None, "gres-flags", Refused(ALL_DEVICES)),
    value(Some('G'), "gpus", Refused(ALL_DEVICES)),
    value(None, "gpus-per-node", Refused(ALL_DEVICES)),
    value(None, "gpus-per-socket", Refused(ALL_DEVICES)),
    value(None, "gpus-per-task", Refused(ALL_DEVICES)),
    value(None, "gpu-bind", OnlyNone(DEVICES, ALL_DEVICES)),
    value(None, "gpu-freq", Refused("frequencies are left alone")),
    value(None, "cpus-per-gpu", Refused(BY_TASK)),
    value(None, "ntasks-per-gpu", Refused(BY_TASK)),
    value(None, "tres-bind", Refused(ALL_DEVICES)),
    value(None, "tres-per-task", Refused(ALL_DEVICES)),
    flag(None, "multi-prog", Refused("start a script that chooses the program by $SLURM_PROCID, or an srun for each program, with & and a wait after them")),
    value(None, "het-group", Refused("a job has no parts that are numbered: choose its nodes by -w or -r")),
    value(None, "signal", Refused("at its time limit a step gets TERM, and KILL after the grace time: send another signal from the script, as by 'timeout -s USR1 10m srun …'")),
    perhaps(Some('k'), "no-kill", Refused("a step ends when a node of it is lost: leave it out")),
    value(None, "ntasks-per-socket", Refused(BY_TASK)),
    value(None, "ntasks-per-core", Refused(BY_TASK)),
    value(None, "sockets-per-node", Refused(BY_TASK)),
    value(None, "cores-per-socket", Refused(BY_TASK)),
    value(Some('B'), "extra-node-info", Refused(BY_TASK)),
    value(Some('C'), "constraint", Refused("name nodes of the job by -w")),
    value(Some('d'), "dependency", Refused("steps begin in the order of the script, and 'wait' waits for those with &")),
    value(Some('b'), "begin", Refused("a step begins when the script reaches it: sleep before it")),
    flag(Some('H'), "hold", Refused("a step begins when the script reaches it")),
    flag(None, "test-only", Refused("a step begins when the script reaches it")),
    value(None, "prolog", Refused(IN_SCRIPT)),
    value(None, "epilog", Refused(IN_SCRIPT)),
    value(None, "task-prolog", Refused(IN_SCRIPT)),
    value(None, "task-epilog", Refused(IN_SCRIPT)),
    perhaps(None, "bcast", Refused(SHARED_FILES)),
    perhaps(None, "send-libs", Refused(SHARED_FILES)),
    value(None, "container", Refused("start the container's own command")),
    value(None, "network", Refused("there is no network topology")),
    value(None, "uid", Refused("a step runs as the user of its job")),
    value(None, "gid", Refused("a step runs as the user of its job")),
    perhaps(None, "x11", Refused("tasks have no display")),
];

/// Adds the options to the command of a step, hidden.
pub(super) fn add_to(command: Command) -> Command {
    command.args(OPTIONS.iter().map(|option| {
        let arg = Arg::new(option.long).long(option.long).hide(true);
        let arg = option.short.into_iter().fold(arg, Arg::short);
        match option.argument {
            Argument::Required => arg.action(ArgAction::Append).num_args(1).allow_hyphen_values(true),
            Argument::Optional => {
                arg.action(ArgAction::Append).num_args(0..=1).require_equals(true).default_missing_value("")
            }
            Argument::No => arg.action(ArgAction::Count),
        }
    }))
}

/// Returns what has no effect, one sentence for each such option that was given. `own_job` is the number of the job; if it
/// is not known yet, neither are values that are written `unknown`.
///
/// # Errors
/// The first option that is refused, with what to do instead.
pub(super) fn judge(matches: &ArgMatches, own_job: Option<&str>, unknown: Option<&str>) -> Result<Vec<String>, String> {
    let mut remarks = Vec::new();
    for option in OPTIONS.iter().filter(|option| is_given(matches, option)) {
        let given = match option.argument {
            Argument::Required | Argument::Optional => matches.get_many::<String>(option.long).and_then(Iterator::last),
            Argument::No => None,
        };
        let given = given.map(String::as_str).filter(|value| !value.is_empty());
        let shown: String = match given {
            Some(value) => format!("--{}={value}", option.long).chars().take(80).collect(),
            None => format!("--{}", option.long),
        };
        let is_unknown = given.is_some() && given == unknown;
        match option.meaning {
            Idle(why) => remarks.push(format!("{shown} has no effect: {why}")),
            OnlyNone(..) | OwnJob(_) if is_unknown => {}
            OnlyNone(why, _) if given == Some("none") => remarks.push(format!("{shown} has no effect: {why}")),
            OwnJob(_) if own_job.is_none() || given == own_job => {}
            OnlyNone(_, advice) | OwnJob(advice) | Refused(advice) => {
                return Err(format!("{shown} is not possible: {advice}"));
            }
        }
    }
    Ok(remarks)
}

fn is_given(matches: &ArgMatches, option: &SlurmOption<Meaning>) -> bool {
    matches.value_source(option.long) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use crate::sbatch;
    use crate::srun::command;

    #[test]
    fn every_option_is_one_that_steps_do_not_have() {
        // Names or letters that are taken twice are found by clap.
        command().debug_assert();
    }

    /// Scripts repeat the options of their job at its steps.
    #[test]
    fn every_option_of_a_job_that_is_read_from_scripts_is_known_to_steps() {
        let command = command();
        let has = |name: &str| {
            let is_it = |arg: &clap::Arg| {
                arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
            };
            command.get_arguments().any(is_it)
        };
        let unknown: Vec<&str> = sbatch::of_jobs().filter(|name| !has(name)).collect();
        // Slurm's srun does not have these either.
        assert_eq!(unknown, ["tasks-per-node", "workdir", "cluster", "requeue", "no-requeue"]);
    }
}
