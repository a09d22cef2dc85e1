//! Translates each option of an `#SBATCH` line: to an option of Limber, to a comment, or to an error if Limber cannot
//! provide it.

use thiserror::Error;

use crate::slurm_option::{Argument, SlurmOption, flag, perhaps, value};

/// An `#SBATCH` line in the words of an `#RMS` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    pub words: Vec<String>,
    /// Remarks on options that are not equivalent here, one sentence each.
    pub remarks: Vec<String>,
    /// Variables in which the job finds options that have no meaning here.
    pub variables: Vec<(String, String)>,
}

/// Why an `#SBATCH` line is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SbatchError {
    #[error("'{0}' is not an option: #SBATCH lines hold options like --nodes=2")]
    NotAnOption(String),
    #[error("option {0} is not known; ignoring it could change what the job gets: remove it, or use #RMS lines")]
    Unknown(String),
    #[error("option {option} is not supported: {advice}")]
    Unsupported { option: String, advice: &'static str },
    #[error("option {option} needs a value: write {option}{}VALUE", if option.starts_with("--") { "=" } else { " " })]
    NoValue { option: String },
    #[error("option {0} takes its value without '=': write {0} VALUE")]
    StrayEquals(String),
    #[error("option {0} takes no value")]
    StrayValue(String),
}

/// How an option of Slurm is translated.
#[derive(Clone, Copy, Debug)]
enum Translation {
    /// Equivalent to this option of Limber.
    Same(&'static str),
    /// The nearest option of Limber, with a message.
    Nearest(&'static str, &'static str),
    /// This option of Limber, whatever its value; a message says that the value is ignored.
    Flag(&'static str, &'static str),
    /// A comment that changes neither where nor how the job runs, with a message.
    Comment(&'static str),
    /// A comment that the job also finds in this variable, with a message.
    Variable(&'static str, &'static str),
    /// Unsupported: the job would run elsewhere, differently or with other resources than requested.
    Unsupported(&'static str),
}

use Translation::{Comment, Flag, Nearest, Same, Unsupported, Variable};

const NO_MAIL: &str = "no mail is sent; 'rms wait' waits for jobs";
const NO_ACCOUNTS: &str = "all users count alike";
const SHARING: &str = "whether jobs share nodes is set for each cluster";
const NO_PROFILING: &str = "nothing is sampled";
const BY_HINT: &str = "--hint=nomultithread uses one thread of each core";
const BY_TASK: &str = "say the size by -N, -n and -c";
const GPUS_OF_NODES: &str = "say the GPUs of each node by --gpus-per-node, or of all by --gpus";
const NO_TOPOLOGY: &str = "there is no network topology";
const OF_SUBMIT: &str = "it is about the submit command only";
const BY_COMMAND: &str = "it is no property of a job; give it to the command";
const AS_WHO_SUBMITS: &str = "a job runs as the user who submits it";
const NO_CONTAINERS: &str = "call the container's own command in the script";

#[rustfmt::skip]
const OPTIONS: &[SlurmOption<Translation>] = &[
    value(Some('N'), "nodes", Same("--nodes")),
    value(Some('n'), "ntasks", Same("--tasks")),
    value(Some('c'), "cpus-per-task", Same("--cpus-per-task")),
    value(None, "ntasks-per-node", Same("--tasks-per-node")),
    value(None, "tasks-per-node", Same("--tasks-per-node")),
    value(Some('t'), "time", Same("--time")),
    value(Some('J'), "job-name", Same("--name")),
    value(Some('o'), "output", Same("--output")),
    value(Some('e'), "error", Same("--error")),
    value(Some('i'), "input", Same("--input")),
    value(Some('D'), "chdir", Same("--chdir")),
    value(None, "workdir", Same("--chdir")),
    value(Some('M'), "clusters", Same("--clusters")),
    value(None, "cluster", Same("--clusters")),
    value(Some('C'), "constraint", Same("--constraint")),
    value(None, "mem", Same("--mem")),
    value(Some('b'), "begin", Same("--begin")),
    value(None, "priority", Same("--priority")),
    value(None, "open-mode", Same("--open-mode")),
    value(None, "export", Same("--export")),
    value(None, "comment", Same("--comment")),
    value(Some('A'), "account", Same("--account")),
    flag(Some('H'), "hold", Same("--hold")),
    flag(None, "requeue", Same("--requeue")),
    flag(None, "no-requeue", Same("--no-requeue")),
    value(Some('p'), "partition", Nearest("--clusters", "partitions are clusters here")),
    value(Some('q'), "qos", Variable("SLURM_JOB_QOS", NO_ACCOUNTS)),
    value(None, "wckey", Comment(NO_ACCOUNTS)),
    value(None, "mcs-label", Comment(NO_ACCOUNTS)),
    value(None, "mail-type", Comment(NO_MAIL)),
    value(None, "mail-user", Comment(NO_MAIL)),
    value(None, "extra", Comment("nothing reads it")),
    perhaps(None, "exclusive", Flag("--exclusive", "its nodes are shared with nobody")),
    flag(Some('s'), "oversubscribe", Comment(SHARING)),
    flag(None, "share", Comment(SHARING)),
    flag(Some('O'), "overcommit", Same("--overcommit")),
    flag(Some('v'), "verbose", Comment(OF_SUBMIT)),
    flag(Some('Q'), "quiet", Comment(OF_SUBMIT)),
    flag(None, "parsable", Comment(OF_SUBMIT)),
    flag(None, "ignore-pbs", Comment("#PBS lines are never read")),
    perhaps(None, "nice", Comment("--priority moves a job behind others")),
    value(None, "profile", Comment(NO_PROFILING)),
    value(None, "acctg-freq", Comment(NO_PROFILING)),
    value(None, "hint", Same("--hint")),
    value(None, "mem-bind", Comment("the kernel places memory")),
    value(None, "cpu-freq", Comment("frequencies are left alone")),
    value(None, "power", Comment("power is left alone")),
    value(None, "delay-boot", Comment("nodes are up before jobs start")),
    value(None, "prefer", Comment("any node that meets --constraint will do")),
    value(None, "wait-all-nodes", Comment("the script starts when its nodes are ready")),
    value(None, "kill-on-invalid-dep", Comment("there are no dependencies")),
    flag(None, "spread-job", Same("--spread")),
    flag(None, "use-min-nodes", Comment("of a range of nodes, the size that ends first is started")),
    flag(None, "stepmgr", Comment("steps need no manager of their own")),
    perhaps(None, "resv-ports", Comment("ports are not counted")),
    perhaps(None, "get-user-env", Comment("the job gets the environment of who submits; --export says how much of it")),
    perhaps(None, "propagate", Comment("the limits of who submits are kept")),
    perhaps(Some('k'), "no-kill", Unsupported("a job ends when a node of it is lost; --requeue starts it again, and a malleable one goes on with --on-node-loss shrink")),
    flag(Some('W'), "wait", Unsupported("'rms wait' waits for a job after 'rms submit'")),
    flag(None, "test-only", Unsupported(BY_COMMAND)),
    flag(None, "help", Unsupported(BY_COMMAND)),
    flag(None, "usage", Unsupported(BY_COMMAND)),
    flag(Some('V'), "version", Unsupported(BY_COMMAND)),
    value(Some('a'), "array", Unsupported("submit one job for each index")),
    value(Some('d'), "dependency", Unsupported("wait for the other job by 'rms wait' before you submit")),
    value(None, "gres", Same("--gres")),
    value(None, "gres-flags", Unsupported(GPUS_OF_NODES)),
    value(Some('G'), "gpus", Same("--gpus")),
    value(None, "gpus-per-node", Same("--gpus-per-node")),
    value(None, "gpus-per-socket", Unsupported(GPUS_OF_NODES)),
    value(None, "gpus-per-task", Unsupported(GPUS_OF_NODES)),
    value(None, "gpu-bind", Unsupported(GPUS_OF_NODES)),
    value(None, "gpu-freq", Unsupported(GPUS_OF_NODES)),
    value(None, "cpus-per-gpu", Unsupported(GPUS_OF_NODES)),
    value(None, "ntasks-per-gpu", Unsupported(GPUS_OF_NODES)),
    value(None, "tres-bind", Unsupported(GPUS_OF_NODES)),
    value(None, "tres-per-task", Unsupported(GPUS_OF_NODES)),
    value(Some('w'), "nodelist", Same("--nodelist")),
    value(Some('x'), "exclude", Same("--exclude")),
    value(Some('F'), "nodefile", Unsupported("name the nodes by --nodelist")),
    value(None, "batch", Unsupported("the script runs on the first node of the job")),
    value(None, "mem-per-cpu", Same("--mem-per-cpu")),
    value(None, "mem-per-gpu", Unsupported("say the memory of a node by --mem, or of a CPU by --mem-per-cpu")),
    value(None, "mincpus", Same("--mincpus")),
    value(Some('S'), "core-spec", Unsupported(BY_TASK)),
    value(None, "thread-spec", Unsupported(BY_TASK)),
    value(None, "ntasks-per-socket", Unsupported(BY_TASK)),
    value(None, "ntasks-per-core", Unsupported(BY_HINT)),
    value(None, "threads-per-core", Unsupported(BY_HINT)),
    value(None, "sockets-per-node", Same("--sockets-per-node")),
    value(None, "cores-per-socket", Unsupported(BY_TASK)),
    value(Some('B'), "extra-node-info", Unsupported(BY_TASK)),
    value(Some('m'), "distribution", Unsupported("tasks are spread in blocks")),
    value(None, "reservation", Unsupported("there are no reservations")),
    value(Some('L'), "licenses", Same("--licences")),
    value(None, "signal", Unsupported("the job gets TERM, and KILL after the grace time")),
    value(None, "deadline", Unsupported("say the wall time by --time")),
    value(None, "time-min", Unsupported("say sizes and times by --shapes")),
    value(None, "uid", Unsupported(AS_WHO_SUBMITS)),
    value(None, "gid", Unsupported(AS_WHO_SUBMITS)),
    value(None, "tmp", Same("--tmp")),
    value(None, "bb", Unsupported("there are no burst buffers")),
    value(None, "bbf", Unsupported("there are no burst buffers")),
    value(None, "container", Unsupported(NO_CONTAINERS)),
    value(None, "container-id", Unsupported(NO_CONTAINERS)),
    value(None, "cluster-constraint", Unsupported("name clusters by --clusters")),
    value(None, "export-file", Unsupported("name the variables by --export, or read the file in the script")),
    value(None, "network", Unsupported(NO_TOPOLOGY)),
    value(None, "switches", Unsupported(NO_TOPOLOGY)),
    value(None, "segment", Unsupported(NO_TOPOLOGY)),
    flag(None, "contiguous", Same("--contiguous")),
    flag(None, "reboot", Unsupported("nodes are not restarted for a job")),
    flag(Some('I'), "immediate", Unsupported("use --test-only to see when a job would start")),
    perhaps(None, "x11", Unsupported("tasks have no display")),
    value(None, "wrap", Unsupported("a script holds its commands itself")),
];

/// Returns the options that say what a job gets.
#[cfg(test)]
pub fn of_jobs() -> impl Iterator<Item = &'static str> {
    let is_of_job = |option: &&SlurmOption<Translation>| match option.meaning {
        Same(_) | Nearest(..) | Flag(..) | Variable(..) => true,
        Comment(_) | Unsupported(_) => false,
    };
    OPTIONS.iter().filter(is_of_job).map(|option| option.long)
}

/// Translates the words of one `#SBATCH` line.
///
/// # Errors
/// See [`SbatchError`].
pub fn translate(words: &[String]) -> Result<Translated, SbatchError> {
    let mut translated = Translated::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (slurm, shown, mut given) = find(word)?;
        match slurm.argument {
            Argument::Required
                if !shown.starts_with("--") && given.as_ref().is_some_and(|value| value.starts_with('=')) =>
            {
                return Err(SbatchError::StrayEquals(shown));
            }
            Argument::No if given.is_some() => return Err(SbatchError::StrayValue(shown)),
            Argument::Required if given.is_none() => {
                given = Some(words.next().cloned().ok_or_else(|| SbatchError::NoValue { option: shown.clone() })?);
            }
            Argument::Required | Argument::Optional | Argument::No => {}
        }
        let said = given.as_deref().map_or_else(|| shown.clone(), |value| format!("{shown} {}", shorten(value)));
        let ours = |ours: &str, given: Option<String>| match given {
            Some(value) => format!("{ours}={value}"),
            None => ours.to_owned(),
        };
        match slurm.meaning {
            Same(same) => translated.words.push(ours(same, given)),
            Nearest(nearest, why) => {
                translated.remarks.push(format!("option {said} is read as {nearest}: {why}"));
                translated.words.push(ours(nearest, given));
            }
            Flag(flag, why) => {
                if given.is_some() {
                    translated.remarks.push(format!("option {said} is read as {flag}: {why}"));
                }
                translated.words.push(flag.to_owned());
            }
            Comment(why) => translated.remarks.push(format!("option {said} is kept as a comment only: {why}")),
            Variable(name, why) => {
                translated.remarks.push(format!("option {said} is kept as a comment only, in ${name}: {why}"));
                translated.variables.push((name.to_owned(), given.unwrap_or_default()));
            }
            Unsupported(advice) => return Err(SbatchError::Unsupported { option: shown, advice }),
        }
    }
    Ok(translated)
}

/// Returns the advice for an option of sbatch that was given to a verb of Limber; `None` if sbatch has no such option,
/// or the verb lacks the equivalent.
pub fn advice(option: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let (slurm, _, _) = find(option).ok()?;
    match slurm.meaning {
        Same(ours) | Flag(ours, _) => has(ours).then(|| format!("write {ours}")),
        Nearest(ours, why) => has(ours).then(|| format!("write {ours}, {why}")),
        Comment(why) | Variable(_, why) => Some(format!("leave it out, {why}")),
        Unsupported(advice) => Some(advice.to_owned()),
    }
}

/// Returns the option with which `word` begins, how to show it, and the value attached to it.
fn find(word: &str) -> Result<(&'static SlurmOption<Translation>, String, Option<String>), SbatchError> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, glued) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let shown = format!("--{}", shorten(name));
        let found = OPTIONS.iter().find(|option| option.long == name);
        return found.map(|option| (option, shown.clone(), glued)).ok_or(SbatchError::Unknown(shown));
    }
    let letter = word.strip_prefix('-').and_then(|rest| rest.chars().next());
    let Some(letter) = letter else {
        return Err(SbatchError::NotAnOption(shorten(word)));
    };
    let shown = format!("-{letter}");
    let found = OPTIONS.iter().find(|option| option.short == Some(letter));
    let option = found.ok_or_else(|| SbatchError::Unknown(shown.clone()))?;
    let rest = &word[1 + letter.len_utf8()..];
    // `-vv` is the same option twice.
    let rest = if option.argument == Argument::No { rest.trim_start_matches(letter) } else { rest };
    Ok((option, shown, Some(rest.to_owned()).filter(|rest| !rest.is_empty())))
}

fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Translated, SbatchError> {
        translate(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn known_options_are_said_in_our_words() {
        let translated = check("-N2 -n 8 --time=1:00:00 --job-name old -A cfd -H").unwrap();
        assert_eq!(
            translated.words,
            ["--nodes=2", "--tasks=8", "--time=1:00:00", "--name=old", "--account=cfd", "--hold"]
        );
        assert!(translated.remarks.is_empty());
    }

    #[test]
    fn what_a_job_takes_of_its_nodes_is_said_in_our_words() {
        let translated = check(
            "--mem-per-cpu=2G -G4 --gpus-per-node a100:2 --gres=gpu:1 --ntasks-per-node=2 --exclusive --hint=nomultithread --spread-job -L matlab:2 --contiguous -w n1,n[3-4] --exclude=n2 --mincpus=16",
        )
        .unwrap();
        assert_eq!(
            translated.words,
            [
                "--mem-per-cpu=2G",
                "--gpus=4",
                "--gpus-per-node=a100:2",
                "--gres=gpu:1",
                "--tasks-per-node=2",
                "--exclusive",
                "--hint=nomultithread",
                "--spread",
                "--licences=matlab:2",
                "--contiguous",
                "--nodelist=n1,n[3-4]",
                "--exclude=n2",
                "--mincpus=16",
            ]
        );
        assert!(translated.remarks.is_empty(), "{:?}", translated.remarks);
    }

    #[test]
    fn what_is_not_the_same_here_is_said() {
        let translated = check("--exclusive=user -p fast --mail-type=END -q long --nice -vvv").unwrap();
        assert_eq!(translated.words, ["--exclusive", "--clusters=fast"]);
        assert_eq!(
            translated.remarks,
            [
                "option --exclusive user is read as --exclusive: its nodes are shared with nobody",
                "option -p fast is read as --clusters: partitions are clusters here",
                "option --mail-type END is kept as a comment only: no mail is sent; 'rms wait' waits for jobs",
                "option -q long is kept as a comment only, in $SLURM_JOB_QOS: all users count alike",
                "option --nice is kept as a comment only: --priority moves a job behind others",
                "option -v is kept as a comment only: it is about the submit command only",
            ]
        );
        assert_eq!(translated.variables, [("SLURM_JOB_QOS".to_owned(), "long".to_owned())]);
    }

    #[test]
    fn every_option_has_one_rule_and_a_letter_of_its_own() {
        for (idx, option) in OPTIONS.iter().enumerate() {
            let rest = &OPTIONS[idx + 1..];
            assert!(rest.iter().all(|other| other.long != option.long), "{}", option.long);
            let is_own = |other: &SlurmOption<Translation>| option.short.is_none() || other.short != option.short;
            assert!(rest.iter().all(is_own), "{}", option.long);
        }
    }

    #[test]
    fn what_would_change_the_job_is_refused() {
        for option in ["--gpus-per-task=1", "-a 1-4", "-d afterok:1", "-W", "-k", "-F nodes", "--reservation=x"] {
            assert!(matches!(check(option), Err(SbatchError::Unsupported { .. })), "{option}");
        }
        assert_eq!(check("--tiem=4"), Err(SbatchError::Unknown("--tiem".into())));
        assert_eq!(check("-Z"), Err(SbatchError::Unknown("-Z".into())));
        let said = |line: &str| check(line).expect_err(line).to_string();
        assert_eq!(said("--nodes"), "option --nodes needs a value: write --nodes=VALUE");
        assert_eq!(said("-o"), "option -o needs a value: write -o VALUE");
        assert_eq!(said("-o=x.out"), "option -o takes its value without '=': write -o VALUE");
        assert_eq!(check("--hold=yes"), Err(SbatchError::StrayValue("--hold".into())));
        assert_eq!(check("4"), Err(SbatchError::NotAnOption("4".into())));
        assert_eq!(check("-"), Err(SbatchError::NotAnOption("-".into())));
        assert_eq!(check("-é4"), Err(SbatchError::Unknown("-é".into())));
    }
}
