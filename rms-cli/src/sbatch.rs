//! Says what each option of an `#SBATCH` line means here: the same, nothing, or something Limber cannot give.

use thiserror::Error;

/// An `#SBATCH` line in the words of an `#RMS` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    pub words: Vec<String>,
    /// Why an option was left aside, one sentence each.
    pub ignored: Vec<String>,
}

/// Why an `#SBATCH` line cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SbatchError {
    #[error("'{0}' is not an option: #SBATCH lines hold options like --nodes=2")]
    NotAnOption(String),
    #[error("option {0} is not known; ignoring it could change what the job gets: remove it, or use #RMS lines")]
    Unknown(String),
    #[error("option {option} is not supported: {advice}")]
    Unsupported { option: String, advice: &'static str },
    #[error("option {0} needs a value: write {0}=VALUE")]
    NoValue(String),
    #[error("option {0} takes no value")]
    StrayValue(String),
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// The same as this option of ours.
    Same(&'static str),
    /// It would change nothing that matters to the job's result.
    Harmless(&'static str),
    /// The job would get something else than it asked for.
    Unsupported(&'static str),
}

use Meaning::{Harmless, Same, Unsupported};

struct Slurm {
    short: Option<char>,
    long: &'static str,
    takes_value: bool,
    meaning: Meaning,
}

const fn value(short: Option<char>, long: &'static str, meaning: Meaning) -> Slurm {
    Slurm { short, long, takes_value: true, meaning }
}

const fn flag(short: Option<char>, long: &'static str, meaning: Meaning) -> Slurm {
    Slurm { short, long, takes_value: false, meaning }
}

const NO_MAIL: &str = "no mail is sent";
const NO_ACCOUNTS: &str = "there are no accounts";
const WHOLE_NODES: &str = "jobs have their nodes to themselves";
const NO_PROFILING: &str = "nothing is sampled";
const BY_TASK: &str = "say the size by -N, -n and -c";
const NO_GPUS: &str = "name a feature of the nodes by --constraint instead";
const NO_NODE_NAMES: &str = "nodes cannot be picked by name; name a feature by --constraint instead";

#[rustfmt::skip]
const OPTIONS: &[Slurm] = &[
    value(Some('N'), "nodes", Same("--nodes")),
    value(Some('n'), "ntasks", Same("--tasks")),
    value(Some('c'), "cpus-per-task", Same("--cpus-per-task")),
    value(None, "ntasks-per-node", Same("--tasks-per-node")),
    value(Some('t'), "time", Same("--time")),
    value(Some('J'), "job-name", Same("--name")),
    value(Some('o'), "output", Same("--output")),
    value(Some('e'), "error", Same("--error")),
    value(Some('i'), "input", Same("--input")),
    value(Some('D'), "chdir", Same("--chdir")),
    value(None, "workdir", Same("--chdir")),
    value(Some('M'), "clusters", Same("--clusters")),
    value(Some('C'), "constraint", Same("--constraint")),
    value(None, "mem", Same("--mem")),
    value(Some('b'), "begin", Same("--begin")),
    value(None, "priority", Same("--priority")),
    value(None, "open-mode", Same("--open-mode")),
    value(None, "export", Same("--export")),
    value(None, "comment", Same("--comment")),
    flag(Some('H'), "hold", Same("--hold")),
    flag(None, "requeue", Same("--requeue")),
    flag(None, "no-requeue", Harmless("a job is not requeued unless it asks for it")),
    value(Some('p'), "partition", Harmless("there are no partitions; --clusters names clusters")),
    value(Some('A'), "account", Harmless(NO_ACCOUNTS)),
    value(Some('q'), "qos", Harmless(NO_ACCOUNTS)),
    value(None, "wckey", Harmless(NO_ACCOUNTS)),
    value(None, "mail-type", Harmless(NO_MAIL)),
    value(None, "mail-user", Harmless(NO_MAIL)),
    flag(None, "exclusive", Harmless(WHOLE_NODES)),
    flag(Some('s'), "oversubscribe", Harmless(WHOLE_NODES)),
    flag(Some('O'), "overcommit", Harmless(WHOLE_NODES)),
    flag(Some('v'), "verbose", Harmless("it is about the submit command only")),
    flag(Some('Q'), "quiet", Harmless("it is about the submit command only")),
    flag(None, "parsable", Harmless("it is about the submit command only")),
    flag(Some('W'), "wait", Harmless("'rms wait' waits for jobs")),
    value(None, "nice", Harmless("--priority moves a job behind others")),
    value(None, "profile", Harmless(NO_PROFILING)),
    value(None, "acctg-freq", Harmless(NO_PROFILING)),
    value(None, "hint", Harmless("tasks get the CPUs that -c says")),
    value(None, "cpu-freq", Harmless("frequencies are left alone")),
    flag(None, "spread-job", Harmless("tasks are spread in blocks")),
    flag(None, "get-user-env", Harmless("use --export")),
    flag(Some('k'), "no-kill", Harmless("a job ends when a node of it is lost")),
    value(Some('a'), "array", Unsupported("submit one job for each index")),
    value(Some('d'), "dependency", Unsupported("wait for the other job by 'rms wait' before you submit")),
    value(None, "gres", Unsupported(NO_GPUS)),
    value(Some('G'), "gpus", Unsupported(NO_GPUS)),
    value(None, "gpus-per-node", Unsupported(NO_GPUS)),
    value(None, "gpus-per-task", Unsupported(NO_GPUS)),
    value(Some('w'), "nodelist", Unsupported(NO_NODE_NAMES)),
    value(Some('x'), "exclude", Unsupported(NO_NODE_NAMES)),
    value(Some('F'), "nodefile", Unsupported(NO_NODE_NAMES)),
    value(None, "mem-per-cpu", Unsupported("say the memory of a node by --mem")),
    value(None, "mem-per-gpu", Unsupported("say the memory of a node by --mem")),
    value(None, "mincpus", Unsupported(BY_TASK)),
    value(Some('S'), "core-spec", Unsupported(BY_TASK)),
    value(None, "ntasks-per-socket", Unsupported(BY_TASK)),
    value(None, "ntasks-per-core", Unsupported(BY_TASK)),
    value(None, "threads-per-core", Unsupported(BY_TASK)),
    value(None, "sockets-per-node", Unsupported(BY_TASK)),
    value(None, "cores-per-socket", Unsupported(BY_TASK)),
    value(Some('m'), "distribution", Unsupported("tasks are spread in blocks")),
    value(None, "reservation", Unsupported("there are no reservations")),
    value(Some('L'), "licenses", Unsupported("licences are not counted")),
    value(None, "signal", Unsupported("the job gets TERM, and KILL after the grace time")),
    value(None, "deadline", Unsupported("say the wall time by --time")),
    value(None, "time-min", Unsupported("say sizes and times by --shapes")),
    value(None, "uid", Unsupported("a job runs as the user who submits it")),
    value(None, "gid", Unsupported("a job runs as the user who submits it")),
    value(None, "tmp", Unsupported("local disks are not counted")),
    value(None, "switches", Unsupported("there is no network topology")),
    flag(None, "contiguous", Unsupported("there is no network topology")),
    flag(Some('I'), "immediate", Unsupported("use --test-only to see when a job would start")),
    value(None, "wrap", Unsupported("a script holds its commands itself")),
];

/// Translates the words of one `#SBATCH` line.
///
/// # Errors
/// See [`SbatchError`].
pub fn translate(words: &[String]) -> Result<Translated, SbatchError> {
    let mut translated = Translated::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (slurm, shown, mut given) = find(word)?;
        if !slurm.takes_value && given.is_some() {
            // `--exclusive=user` and the like ask for no more than the flag alone.
            if !matches!(slurm.meaning, Harmless(_)) {
                return Err(SbatchError::StrayValue(shown));
            }
        }
        if slurm.takes_value && given.is_none() {
            given = Some(words.next().cloned().ok_or_else(|| SbatchError::NoValue(shown.clone()))?);
        }
        match slurm.meaning {
            Same(ours) => translated.words.push(match given {
                Some(value) => format!("{ours}={value}"),
                None => ours.to_owned(),
            }),
            Harmless(why) => translated.ignored.push(format!("option {shown} is ignored: {why}")),
            Unsupported(advice) => return Err(SbatchError::Unsupported { option: shown, advice }),
        }
    }
    Ok(translated)
}

/// What to say to who writes this option of sbatch on a command line; `None` where sbatch has no such option.
pub fn advice(option: &str) -> Option<String> {
    let (slurm, _, _) = find(option).ok()?;
    Some(match slurm.meaning {
        Same(ours) => format!("write {ours}"),
        Harmless(why) => format!("leave it out, {why}"),
        Unsupported(advice) => advice.to_owned(),
    })
}

/// The option that `word` begins, how to show it, and the value that is glued to it.
fn find(word: &str) -> Result<(&'static Slurm, String, Option<String>), SbatchError> {
    let shorten = |text: &str| text.chars().take(60).collect::<String>();
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
    let glued = Some(&word[1 + letter.len_utf8()..]).filter(|rest| !rest.is_empty()).map(str::to_owned);
    let found = OPTIONS.iter().find(|option| option.short == Some(letter));
    found.map(|option| (option, shown.clone(), glued)).ok_or(SbatchError::Unknown(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Translated, SbatchError> {
        translate(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn known_options_are_said_in_our_words() {
        let translated = check("-N2 -n 8 --time=1:00:00 --job-name old -H").unwrap();
        assert_eq!(translated.words, ["--nodes=2", "--tasks=8", "--time=1:00:00", "--name=old", "--hold"]);
        assert!(translated.ignored.is_empty());
    }

    #[test]
    fn harmless_options_are_ignored_aloud() {
        let translated = check("--exclusive=user -p fast --mail-type=END").unwrap();
        assert!(translated.words.is_empty());
        assert_eq!(translated.ignored[0], "option --exclusive is ignored: jobs have their nodes to themselves");
        assert_eq!(translated.ignored.len(), 3);
    }

    #[test]
    fn what_would_change_the_job_is_refused() {
        assert!(matches!(check("--gres=gpu:1"), Err(SbatchError::Unsupported { .. })));
        assert_eq!(check("--tiem=4"), Err(SbatchError::Unknown("--tiem".into())));
        assert_eq!(check("-Z"), Err(SbatchError::Unknown("-Z".into())));
        assert_eq!(check("--nodes"), Err(SbatchError::NoValue("--nodes".into())));
        assert_eq!(check("--hold=yes"), Err(SbatchError::StrayValue("--hold".into())));
        assert_eq!(check("4"), Err(SbatchError::NotAnOption("4".into())));
        assert_eq!(check("-"), Err(SbatchError::NotAnOption("-".into())));
        assert_eq!(check("-é4"), Err(SbatchError::Unknown("-é".into())));
    }
}
