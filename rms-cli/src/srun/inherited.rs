//! The options of `srun` that a script sets in its environment (srun(1), input environment variables).

/// How the value of a variable becomes an option.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// The value of the option.
    Value,
    /// The option has no value: anything but "no" sets it.
    Flag,
    /// As [`Form::Value`], unless the variable is still what the job has set, which this other one says.
    Unlike(&'static str),
}

use Form::{Flag, Unlike, Value};

/// Variables that choose a binding or a way to connect MPI processes are not read: they seldom are the script's own.
const VARIABLES: [(&str, &str, Form); 14] = [
    ("SRUN_CPUS_PER_TASK", "--cpus-per-task", Value),
    ("SLURM_NTASKS", "--ntasks", Unlike("RMS_NTASKS")),
    ("SLURM_NNODES", "--nodes", Unlike("RMS_NNODES")),
    ("SLURM_DISTRIBUTION", "--distribution", Value),
    ("SLURM_EXACT", "--exact", Flag),
    ("SLURM_KILL_BAD_EXIT", "--kill-on-bad-exit", Value),
    ("SLURM_LABELIO", "--label", Flag),
    ("SLURM_OVERCOMMIT", "--overcommit", Flag),
    ("SLURM_STDINMODE", "--input", Value),
    ("SLURM_STDOUTMODE", "--output", Value),
    ("SLURM_STDERRMODE", "--error", Value),
    ("SLURM_TIMELIMIT", "--time", Value),
    ("SLURM_WORKING_DIR", "--chdir", Value),
    ("SRUN_EXPORT_ENV", "--export", Value),
];

/// Returns the options that variables set. Those of the command line take precedence if they follow.
pub(super) fn options(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let option = |(name, option, form): &(&str, &str, Form)| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        match form {
            Flag if ["0", "no", "false"].contains(&value.as_str()) => None,
            Flag => Some((*option).to_owned()),
            Unlike(of_job) if variable(of_job).is_none_or(|own| own == value) => None,
            Value | Unlike(_) => Some(format!("{option}={value}")),
        }
    };
    VARIABLES.iter().filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[(&str, &str)]) -> Vec<String> {
        let variable =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        options(variable)
    }

    #[test]
    fn what_the_job_itself_has_set_is_no_option() {
        assert_eq!(of(&[("SLURM_NTASKS", "4"), ("RMS_NTASKS", "4"), ("SLURM_NNODES", "2")]), [] as [&str; 0]);
        let changed = [("SLURM_NTASKS", "2"), ("RMS_NTASKS", "4"), ("SLURM_NNODES", "1"), ("RMS_NNODES", "2")];
        assert_eq!(of(&changed), ["--ntasks=2", "--nodes=1"]);
    }

    #[test]
    fn flags_are_set_by_any_word_but_no() {
        assert_eq!(of(&[("SLURM_LABELIO", "1"), ("SLURM_EXACT", "0")]), ["--label"]);
        assert_eq!(of(&[("SRUN_CPUS_PER_TASK", ""), ("SLURM_KILL_BAD_EXIT", "0")]), ["--kill-on-bad-exit=0"]);
    }
}
