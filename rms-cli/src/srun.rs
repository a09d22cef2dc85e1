//! `srun` in scripts that were written for Slurm: a step of the job, with Slurm's options. Unknown options are refused
//! by name.

mod foreign;
mod inherited;

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser};
use node_agent::rsh::Input;
use rms_model::time::parse_wall;
use rms_model::{Span, hostlist};

use crate::agent;
use crate::directive;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::step::{self, Wanted};
use crate::step_files::Target;

/// Run a program as a step of this job: Limber's 'rms run', in Slurm's words
#[derive(Parser, Debug)]
#[command(
    name = "srun",
    version,
    args_override_self = true,
    after_help = "\
Examples:
  srun ./program                   all tasks of the job
  srun -N 1 -n 2 ./program         two tasks on one node
  srun --exclusive -n 1 ./a &      beside others, when there are free CPUs"
)]
struct Srun {
    /// Tasks
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    ntasks: Option<u32>,
    /// Nodes of the job: 2 or 1-4
    #[arg(short = 'N', long, value_name = "COUNT", value_parser = nodes)]
    nodes: Option<(u32, u32)>,
    /// CPUs for each task
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    cpus_per_task: Option<u32>,
    /// Tasks on each node
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    ntasks_per_node: Option<u32>,
    /// On these nodes: n1,n[3-4]
    #[arg(short = 'w', long, value_name = "NODES")]
    nodelist: Option<String>,
    /// On none of these nodes
    #[arg(short = 'x', long, value_name = "NODES")]
    exclude: Option<String>,
    /// Begin with this node of the job, counted from 0
    #[arg(short = 'r', long, value_name = "INDEX", default_value_t = 0)]
    relative: u32,
    /// Put the task's number before each line
    #[arg(short = 'l', long)]
    label: bool,
    /// Output comes as it is written anyway
    #[arg(short = 'u', long)]
    unbuffered: bool,
    /// none or pmi2: programs of the MPICH family find each other anyway
    #[arg(long, value_name = "TYPE")]
    mpi: Option<String>,
    /// Wait until no other step has the CPUs
    #[arg(long, value_name = "WHOSE", num_args = 0..=1, require_equals = true)]
    exclusive: Option<Option<String>>,
    /// The same
    #[arg(long)]
    exact: bool,
    /// Start at once, whatever other steps have
    #[arg(long, conflicts_with_all = ["exclusive", "exact"])]
    overlap: bool,
    /// The same
    #[arg(short = 's', long)]
    oversubscribe: bool,
    /// More tasks than CPUs are meant
    #[arg(short = 'O', long)]
    overcommit: bool,
    /// Working directory
    #[arg(short = 'D', long, value_name = "DIR")]
    chdir: Option<String>,
    /// Variables of the environment that the tasks get
    #[arg(long, value_name = "LIST")]
    export: Option<String>,
    /// End the step when a task fails
    #[arg(short = 'K', long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = ["0", "1"])]
    kill_on_bad_exit: Option<String>,
    /// End the step after this time
    #[arg(short = 't', long, value_name = "SPAN", value_parser = step_time)]
    time: Option<Span>,
    /// What the tasks read: all, none, or a file
    #[arg(short = 'i', long, value_name = "all|none|FILE")]
    input: Option<String>,
    /// Where standard output goes: all, none, a task's number, or a file like step-%t.out
    #[arg(short = 'o', long, value_name = "all|none|TASK|FILE")]
    output: Option<String>,
    /// Where standard error goes; with the output if absent
    #[arg(short = 'e', long, value_name = "all|none|TASK|FILE")]
    error: Option<String>,
    /// Begin output files anew, or go on in them
    #[arg(long, value_name = "append|truncate", value_parser = ["append", "truncate"])]
    open_mode: Option<String>,
    /// block: tasks beside each other have numbers beside each other
    #[arg(short = 'm', long, value_name = "block")]
    distribution: Option<String>,
    /// Of no meaning for a step here
    #[arg(short = 'J', long, value_name = "NAME")]
    job_name: Option<String>,
    /// Said to be without effect: tasks run on the CPUs of the job
    #[arg(long, value_name = "HOW")]
    cpu_bind: Option<String>,
    #[arg(long, value_name = "HOW", hide = true)]
    mem_bind: Option<String>,
    #[arg(long, value_name = "HOW", hide = true)]
    hint: Option<String>,
    #[arg(long, value_name = "HOW", hide = true)]
    cpu_freq: Option<String>,
    /// Refused: tasks have no terminal
    #[arg(long)]
    pty: bool,
    #[arg(short = 'v', long, action = clap::ArgAction::Count, hide = true)]
    verbose: u8,
    /// Show the usage in short
    #[arg(long)]
    usage: bool,
    #[arg(short = 'Q', long, hide = true)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Parses the time of a step; zero for no limit.
fn step_time(text: &str) -> Result<Span, String> {
    match ["unlimited", "infinite"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        true => Ok(Span::ZERO),
        false => parse_wall(text).map_err(|error| error.to_string()),
    }
}

/// Returns whether `rms` was called by this name.
pub fn is_meant(args: &[OsString]) -> bool {
    let name = args.first().and_then(|name| std::path::Path::new(name).file_name());
    name.is_some_and(|name| name == "srun")
}

/// # Errors
/// The options are unknown, or a step does not support them.
pub async fn run(args: Vec<OsString>) -> Result<Exit, Failure> {
    let words = args.into_iter().skip(1).map(|word| {
        let text = |word: OsString| format!("srun: '{}' is not UTF-8", word.display());
        word.into_string().map_err(|word| Failure::usage(text(word)))
    });
    let words = words.collect::<Result<Vec<String>, Failure>>()?;
    let variable = |name: &str| std::env::var(name).ok();
    let job = variable("RMS_JOB_ID").filter(|job| !job.is_empty());
    let parsed = parse(&words, job.as_deref(), None).and_then(|(srun, remarks)| {
        let words = with_inherited(&srun, &words, variable);
        if words.is_empty() { Ok((srun, remarks)) } else { parse(&words, job.as_deref(), None) }
    });
    let (srun, remarks) = match parsed {
        Ok(parsed) => parsed,
        Err(Misuse::Words(error)) => {
            let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if is_answer {
                output::write_out(error.render().to_string().as_bytes())?;
                return Ok(Exit::OK);
            }
            return Err(Failure::usage(format!("srun: {}", directive::one_line(&error)))
                .hint("this is Limber's srun, an alias of 'rms run' inside a job: 'srun --help' lists what it knows"));
        }
        Err(Misuse::Option(message)) => return Err(Failure::usage(message)),
        Err(Misuse::Step(failure)) => return Err(failure),
    };
    if srun.usage {
        output::write_out(format!("{}\n", command().render_usage()).as_bytes())?;
        return Ok(Exit::OK);
    }
    if !srun.quiet {
        remarks.iter().for_each(|remark| output::warn(&format!("srun: {remark}")));
    }
    let socket = agent::socket().ok_or_else(|| Failure::usage("srun: this is not inside of a job"))?;
    let wanted = srun.wanted()?;
    step::run(wanted, &socket, Form::Text).await
}

/// Returns the words with the options that the environment sets before them; none if it sets none.
fn with_inherited(srun: &Srun, words: &[String], variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut inherited = inherited::options(variable);
    // These exclude each other, and the command line takes precedence.
    inherited.retain(|option| option != "--exact" || !(srun.overlap || srun.oversubscribe));
    if inherited.is_empty() { Vec::new() } else { inherited.into_iter().chain(words.iter().cloned()).collect() }
}

/// Checks the arguments of such a step: used for a script before it runs. `unknown` stands for a word that only the job
/// will know.
///
/// # Errors
/// As [`run`], except for errors that only the job can detect.
pub fn check(words: &[String], unknown: &str) -> Result<(), Misuse> {
    // The step itself reports options without effect.
    let (mut srun, _remarks) = parse(words, None, Some(unknown))?;
    if srun.usage {
        return Ok(());
    }
    srun.quiet = true;
    srun.wanted().map(drop).map_err(Misuse::Step)
}

/// Returns the step, and what of it has no effect.
fn parse(words: &[String], own_job: Option<&str>, unknown: Option<&str>) -> Result<(Srun, Vec<String>), Misuse> {
    let mut command = command();
    let words = with_equals(&command, words);
    let parse = |words: &[String], command: &mut Command| {
        let words = ["srun"].into_iter().chain(words.iter().map(String::as_str));
        command.try_get_matches_from_mut(words)
    };
    let matches = parse(&words, &mut command).or_else(|mut error| {
        // Options that Slurm has are not misspelt ones of ours.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Suggested);
        if error.kind() != ErrorKind::MissingRequiredArgument {
            return Err(Misuse::Words(error));
        }
        // An option that is refused is the greater fault, and --usage needs no command.
        let completed: Vec<String> = words.iter().cloned().chain(["true".to_owned()]).collect();
        let Ok(matches) = parse(&completed, &mut command) else { return Err(Misuse::Words(error)) };
        foreign::judge(&matches, own_job, unknown).map_err(refused)?;
        if matches.get_flag("usage") { Ok(matches) } else { Err(Misuse::Words(error)) }
    })?;
    let remarks = foreign::judge(&matches, own_job, unknown).map_err(refused)?;
    Ok((Srun::from_arg_matches(&matches)?, remarks))
}

fn refused(message: String) -> Misuse {
    Misuse::Option(format!("srun: {message}"))
}

fn command() -> Command {
    foreign::add_to(Srun::command())
}

/// Writes values of options that may be without one as clap reads them: `-K=0` for `-K0`. Words of the program that the
/// step starts stay as they are.
fn with_equals(command: &Command, words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    let mut idx = 0;
    while let Some(word) = words.get_mut(idx).filter(|word| word.starts_with('-') && *word != "--") {
        idx += 1;
        if let Some(long) = word.strip_prefix("--") {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long));
            idx += usize::from(arg.is_some_and(needs_value));
            continue;
        }
        for (at, letter) in word.char_indices().skip(1) {
            let Some(arg) = command.get_arguments().find(|arg| arg.get_short() == Some(letter)) else { break };
            let rest = &word[at + letter.len_utf8()..];
            if needs_value(arg) {
                idx += usize::from(rest.is_empty());
                break;
            }
            if arg.is_require_equals_set() {
                if !rest.is_empty() && !rest.starts_with('=') {
                    word.insert(at + letter.len_utf8(), '=');
                }
                break;
            }
        }
    }
    words
}

fn needs_value(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Checks the arguments of a command that starts a step.
pub type StepCheck = fn(&[String]) -> Result<(), Misuse>;

/// Why a step is impossible.
#[derive(Debug)]
pub enum Misuse {
    Words(clap::Error),
    /// An option of Slurm that is refused, whatever follows it.
    Option(String),
    Step(Failure),
}

impl From<clap::Error> for Misuse {
    fn from(error: clap::Error) -> Misuse {
        Misuse::Words(error)
    }
}

impl Srun {
    fn wanted(self) -> Result<Wanted, Failure> {
        if self.pty {
            return Err(Failure::usage("srun: --pty is not possible: tasks of a step have no terminal")
                .hint("without it, the step reads what comes in here"));
        }
        match self.mpi.as_deref() {
            None | Some("none" | "pmi1" | "pmi2") => {}
            Some(other) => {
                return Err(Failure::usage(format!(
                    "srun: --mpi={other} is not possible: Limber serves PMI-1, which programs of the MPICH family speak"
                ))
                .hint("start a program of Open MPI by 'mpirun' in place of srun: it uses the job's nodes"));
            }
        }
        match self.distribution.as_deref() {
            None => {}
            Some(how) if how.split(':').next().is_some_and(|nodes| matches!(nodes, "block" | "*")) => {}
            Some(other) => {
                return Err(Failure::usage(format!("srun: --distribution={other} is not possible"))
                    .hint("tasks are numbered node by node, which is 'block'"));
            }
        }
        let binding = [
            ("--cpu-bind", &self.cpu_bind),
            ("--mem-bind", &self.mem_bind),
            ("--hint", &self.hint),
            ("--cpu-freq", &self.cpu_freq),
        ];
        for (option, value) in binding {
            let is_news = value.as_deref().is_some_and(|value| !["no", "none"].contains(&value));
            if is_news && !self.quiet {
                output::warn(&format!("srun: {option} has no effect: Limber places tasks on CPUs of the job"));
            }
        }
        let nodes = |text: Option<String>| match text {
            Some(text) => hostlist::expand(&text).map_err(|error| Failure::usage(format!("srun: {error}"))),
            None => Ok(Vec::new()),
        };
        let (input, input_file) = match self.input.as_deref() {
            None | Some("all") => (Input::All, None),
            Some("none") => (Input::None, None),
            Some("0") => (Input::First, None),
            Some(file) => (Input::All, Some(file.to_owned())),
        };
        let target = |text: Option<&str>| text.map(Target::parse).transpose();
        Ok(Wanted {
            program: "srun",
            output: target(self.output.as_deref())?.unwrap_or_default(),
            error: target(self.error.as_deref())?,
            append: self.open_mode.as_deref() == Some("append"),
            argv: self.command,
            export: self.export,
            chdir: self.chdir,
            nodes: self.nodes,
            tasks: self.ntasks,
            tasks_per_node: self.ntasks_per_node,
            cpus_per_task: self.cpus_per_task,
            named: nodes(self.nodelist)?,
            excluded: nodes(self.exclude)?,
            first_node: self.relative,
            overcommit: self.overcommit,
            exclusive: (self.exclusive.is_some() || self.exact) && !self.oversubscribe,
            kill_on_bad_exit: self.kill_on_bad_exit.as_deref() == Some("1"),
            time: self.time.filter(|time| *time > Span::ZERO),
            label: self.label,
            input,
            input_file,
            reports_failures: !self.quiet,
        })
    }
}

/// Parses `2` or `1-4`.
fn nodes(text: &str) -> Result<(u32, u32), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if 0 < least && least <= most => Ok((least, most)),
        (_, _) => Err("write a number of nodes, or two like 1-4".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &str) -> Result<Wanted, String> {
        parsed(words)?.0.wanted().map_err(|failure| failure.message)
    }

    fn parsed(words: &str) -> Result<(Srun, Vec<String>), String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse(&words, Some("7"), None).map_err(|misuse| match misuse {
            Misuse::Words(error) => directive::one_line(&error),
            Misuse::Option(message) => message,
            Misuse::Step(failure) => failure.message,
        })
    }

    #[test]
    fn the_words_of_scripts_are_known() {
        let step =
            wanted("-N2 -n 4 -c2 -l -u --mpi=pmi2 --exclusive --export=ALL,A=1 -t 5 -K -w a[1-2] ./p -n 9").unwrap();
        assert_eq!((step.nodes, step.tasks, step.cpus_per_task, step.label), (Some((2, 2)), Some(4), Some(2), true));
        assert_eq!(step.time, Some(Span::from_mins(5)));
        for endless in ["0", "UNLIMITED", "infinite", "0:00"] {
            assert_eq!(wanted(&format!("-t {endless} ./p")).unwrap().time, None, "{endless}: no limit");
        }
        assert_eq!((step.exclusive, step.kill_on_bad_exit), (true, true));
        assert_eq!(step.named, ["a1", "a2"]);
        assert_eq!(step.argv, ["./p", "-n", "9"]);
        let step = wanted("-o out-%t.txt -e none --open-mode=append ./p").unwrap();
        assert_eq!((step.output, step.append), (Target::Files("out-%t.txt".to_owned()), true));
        assert_eq!(step.error, Some(Target::Nowhere));
        let step = wanted("--kill-on-bad-exit=0 --ntasks=1 --nodes=1-3 --overlap hostname").unwrap();
        assert_eq!((step.kill_on_bad_exit, step.exclusive, step.nodes), (false, false, Some((1, 3))));
    }

    #[test]
    fn what_is_left_out_is_named() {
        let said = |words: &str| parsed(words).expect_err(words);
        assert_eq!(said("-n 2"), "the following required arguments were not provided: <COMMAND>...");
        assert_eq!(said("--cpus-per-tas 1 ./p"), "unexpected argument '--cpus-per-tas' found", "without a guess");
        assert_eq!(said("--wait-for 1 ./p"), "unexpected argument '--wait-for' found");
    }

    #[test]
    fn what_a_step_has_no_use_for_is_said_in_a_line() {
        let (srun, remarks) = parsed(
            "-p fast -A cfd -W 30 -I5 --propagate=STACK -E -X --comment x --jobid=7 --gres=none --threads-per-core=1 \
             --mem=2G --mem-per-cpu 1G -n 2 ./p -p --gres=gpu:1",
        )
        .unwrap();
        assert_eq!((srun.ntasks, srun.command), (Some(2), vec!["./p".into(), "-p".into(), "--gres=gpu:1".into()]));
        let options: Vec<&str> = remarks.iter().filter_map(|remark| remark.split(' ').next()).collect();
        let expected = "--partition=fast --account=cfd --comment=x --wait=30 --immediate=5 --propagate=STACK --preserve-env \
             --disable-status --threads-per-core=1 --mem=2G --mem-per-cpu=1G --gres=none";
        assert_eq!(options, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(remarks[9], "--mem=2G has no effect: a step shares the memory of its job");
        assert_eq!(parsed("-l -u ./p").unwrap().1, [] as [&str; 0]);
        assert!(parsed("--usage").unwrap().0.usage);
    }

    #[test]
    fn a_value_may_follow_its_letter() {
        let kills = |words: &str| wanted(words).unwrap().kill_on_bad_exit;
        assert_eq!(
            ["-K0 ./p", "-lK1 ./p", "-K ./p", "-K=0 ./p", "-n1 -K1 ./p"].map(kills),
            [false, true, true, false, true]
        );
        let step = wanted("-o K0 -K1 ./p -K0").unwrap();
        assert_eq!((step.output, step.argv), (Target::Files("K0".to_owned()), vec!["./p".into(), "-K0".into()]));
        assert!(wanted("-K2 ./p").is_err());
        assert!(kills("-K0 -l -K1 --label --kill-on-bad-exit=1 ./p"), "the last of a repeated option counts");
        assert_eq!(wanted("-n 1 -N2 --ntasks=4 ./p").unwrap().tasks, Some(4));
        assert!(wanted("--overlap --exact --exact ./p").is_err(), "these exclude each other");
        assert_eq!(wanted("-r2 ./p").unwrap().first_node, 2);
    }

    #[test]
    fn what_it_cannot_do_it_refuses_by_name() {
        for (words, named) in [
            ("--pty bash", "--pty"),
            ("--mpi=pmix ./p", "--mpi=pmix"),
            ("-m cyclic ./p", "--distribution=cyclic"),
            ("--multi-prog conf", "--multi-prog"),
            ("--multi-prog", "$SLURM_PROCID"),
            ("--gres=gpu:1 ./p", "--gres=gpu:1 is not possible: a step has all devices"),
            ("-G 1 ./p", "--gpus=1"),
            ("--gpus-per-task=1 ./p", "--gpus-per-task"),
            ("--het-group=0 ./p", "--het-group"),
            ("--signal=USR1@60 ./p", "--signal"),
            ("--jobid=8 ./p", "--jobid=8 is not possible: a step runs in the job that starts it"),
            ("-n 0 ./p", "--ntasks"),
            ("-o %q ./p", "'%q'"),
            ("-N 3-1 ./p", "--nodes"),
        ] {
            let said = wanted(words).expect_err(words);
            assert!(said.contains(named), "{words}: {said}");
        }
    }
}
