//! Finds, before the job starts, variables of Slurm and commands that a script uses and its job will not have.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rms_model::Work;
use rms_model::variables::{SLURM, SLURM_OF_AGENT};

use clap::error::ErrorKind;

use crate::failure::Failure;
use crate::script::Script;
use crate::shell::{self, Found, What, Word};
use crate::srun::{self, Misuse, StepCheck};

/// Variables that other batch systems set. If a script uses one that is empty, `rm -rf /scratch/$USER/$ID` removes
/// files of other jobs.
const FOREIGN: [&str; 8] = ["SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "PBS_", "LSB_", "OAR_"];

/// Slurm, too, sets these only if the user gave the corresponding option, or for the processes of a step.
const EMPTY_THERE_TOO: [&str; 9] = [
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_JOB_DEPENDENCY",
    "SLURM_JOB_RESERVATION",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RESTART_COUNT",
];

/// Tasks of a step have these, scripts do not. SLURM_STEP_ID is not included: see the agents' `environment.rs`.
const OF_STEPS: [&str; 5] = [
    "SLURM_STEPID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
];

/// Tasks have these, and so do programs that `rms-rsh` starts on a node; scripts do not, because `mpirun` would forward
/// them to other nodes.
const OF_TASKS: [&str; 4] = ["RMS_TASK_ID", "RMS_LOCAL_ID", "RMS_NODE_ID", "RMS_NODE_NAME"];

/// Commands of clusters with Slurm or with modules, and their replacements here.
const COMMANDS: [(&str, &str); 14] = [
    ("srun", "'rms run' is the same here, and --slurm-env gives the job an srun"),
    ("sbatch", "'rms submit' is the same here"),
    ("salloc", "submit what is to run by 'rms submit', or start it by 'rms run'"),
    ("scontrol", "the nodes are listed in $RMS_HOSTFILE, and 'rms show' tells about jobs"),
    ("squeue", "'rms queue' is the same here"),
    ("scancel", "'rms cancel' is the same here"),
    ("sinfo", "'rms nodes' is the same here"),
    ("sacct", "'rms history' is the same here"),
    ("sstat", "'rms show' tells about jobs"),
    ("sbcast", "put the file where all nodes see it"),
    ("module", LOADED),
    ("ml", LOADED),
    ("spack", LOADED),
    ("conda", LOADED),
];

const LOADED: &str =
    "load what is needed before you submit (the job gets your environment), or source the file that defines it";

/// Returns a sentence for each missing item that does no harm. `allow_unset` names variables that may be missing, or
/// `all`.
///
/// # Errors
/// The script uses variables of a batch system that its job will not have, and does not provide for that.
pub fn check(
    script: &Script,
    environment: &[(String, String)],
    work: &Work,
    allow_unset: &[String],
    check_step: StepCheck,
) -> Result<Vec<String>, Failure> {
    let speaks_slurm = environment.iter().any(|(name, value)| name == SLURM && value == "1");
    let job = JobOf { environment, speaks_slurm };
    let is_task = matches!(work, Work::Tasks { .. });
    let is_allowed =
        |name: &str| allow_unset.iter().any(|allowed| allowed == name || allowed.eq_ignore_ascii_case("all"));
    let found = match language(&script.text) {
        Language::Shell => shell::read(&script.text),
        language @ (Language::Python | Language::Other) => mentions(&script.text, language),
    };
    let mut handled: BTreeSet<&str> = BTreeSet::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut defined: BTreeSet<&str> = BTreeSet::new();
    let mut refused: Vec<(usize, &str)> = Vec::new();
    let mut warnings = Vec::new();
    let mut is_prepared = job.prepares_shells(&script.text);
    for Found { line, what } in &found {
        let place = || script.place(*line);
        match what {
            What::Sets { name } | What::Provides { name } => drop(handled.insert(name)),
            What::LooksUp { command } => drop(told.insert(command)),
            What::Defines { command } => {
                told.insert(command);
                defined.insert(command);
            }
            What::Uses { name, is_quoted } => {
                let is_of_tasks = !is_task && !is_quoted && OF_TASKS.contains(&name.as_str());
                let is_strange = (is_foreign(name) && !job.has(name)) || is_of_tasks;
                let is_unset = is_strange && !handled.contains(name.as_str());
                if !is_unset || is_allowed(name) {
                    continue;
                }
                let is_of_steps = OF_STEPS.contains(&name.as_str());
                let is_empty_there = job.speaks_slurm && (is_of_steps || EMPTY_THERE_TOO.contains(&name.as_str()));
                match (is_empty_there, is_quoted) {
                    // The tasks of a step may have it.
                    (true, true) => {}
                    (true, false) if told.insert(name) => {
                        let why = match name.as_str() {
                            "SLURM_RESTART_COUNT" => "it is set from the second run on",
                            _ if is_of_steps => "only the tasks of a step have it",
                            _ => "what sets it was not asked for",
                        };
                        warnings.push(format!("{}: {name} is empty, as under Slurm: {why}", place()));
                    }
                    (true, false) => {}
                    (false, _) => refused.push((*line, name)),
                }
            }
            What::StartsStep { command, words } => {
                let is_step = match command.as_str() {
                    "srun" => job.speaks_slurm,
                    _rms => words.first().is_some_and(|verb| verb.is_whole && verb.text == "run"),
                };
                // A function of that name may be defined in a file that the shell has read, or here.
                let is_ours = is_step && !is_prepared && !defined.contains(command.as_str());
                let misused = if is_ours { misused(command, words, check_step) } else { None };
                warnings.extend(misused.map(|reason| format!("{}: this step will fail: {reason}", place())));
            }
            What::Calls { command } if matches!(command.as_str(), "." | "source" | "eval") => is_prepared = true,
            What::Calls { command } => {
                let known = COMMANDS.iter().find(|(theirs, _)| theirs == command);
                let Some((command, advice)) = known else { continue };
                let is_function = *advice == LOADED;
                // For scripts with Slurm's options the agents provide one, which starts a step.
                let is_step = job.speaks_slurm && *command == "srun";
                if is_step && is_login(&script.text) && told.insert(command) {
                    warnings.push(format!("{}: there may be no 'srun' in the job, for a login shell may set PATH anew: write 'rms run', or #!/bin/bash without -l", place()));
                }
                let is_there = is_step || job.has_command(command) || (is_function && is_prepared);
                if !is_there && told.insert(command) {
                    warnings.push(format!("{}: there may be no '{command}' in the job: {advice}", place()));
                }
            }
        }
    }
    if refused.is_empty() { Ok(warnings) } else { Err(refusal(script, &refused, job.speaks_slurm)) }
}

/// Returns why a step with these words is impossible, whatever the words are that are known only at run time.
fn misused(command: &str, words: &[Word], check_step: StepCheck) -> Option<String> {
    let check = |words: &[String]| if command == "srun" { srun::check(words, UNKNOWN) } else { check_step(words) };
    let mut known: Vec<String> = Vec::new();
    let mut is_open = false;
    for Word { text, is_whole } in words {
        let has_value = !is_whole && text.starts_with('-') && (text.contains('=') || !text.starts_with("--"));
        match is_whole {
            true => known.push(text.clone()),
            // `--ntasks=$N`, `-n$N`: the value is unknown.
            false if has_value && text.len() > 1 => {}
            false => {
                is_open = true;
                break;
            }
        }
    }
    // An unknown word may be the value of the word before it, an option, or the command.
    let may_be_value = is_open && known.last().is_some_and(|last| last.starts_with('-'));
    if is_open {
        known.push(UNKNOWN.to_owned());
    }
    let is_certain = |kind| match kind {
        ErrorKind::UnknownArgument => true,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::ArgumentConflict => !may_be_value,
        // A request for help, or words after an unrecognized redirection.
        _no_fault => false,
    };
    match check(&known) {
        Err(Misuse::Words(error)) if is_certain(error.kind()) => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Some(format!("{command}: {first}"))
        }
        Err(Misuse::Option(message)) => Some(message),
        Err(Misuse::Step(failure)) if !may_be_value => Some(failure.message),
        Err(Misuse::Words(_) | Misuse::Step(_)) | Ok(()) => None,
    }
}

/// A placeholder for words that are known only at run time.
const UNKNOWN: &str = "unknown";

fn refusal(script: &Script, unset: &[(usize, &str)], speaks_slurm: bool) -> Failure {
    let language = language(&script.text);
    let mut names: Vec<&str> = unset.iter().map(|(_, name)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let shown: Vec<String> =
        unset.iter().take(MOST_SHOWN).map(|(line, name)| format!("{}: {name}", script.place(*line))).collect();
    let more = unset.len().saturating_sub(MOST_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let so = if language == Language::Shell { ", so they would be empty" } else { "" };
    let text = format!("the script uses variables that its job will not have{so}: {}{more}", shown.join(", "));
    let would_have = names.iter().all(|name| SLURM_OF_AGENT.contains(name));
    let hint = if names.iter().all(|name| OF_TASKS.contains(name)) {
        "a script is no task and runs on the first node of $RMS_NODELIST: 'rms run' in it starts tasks, which have them"
            .to_owned()
    } else if would_have && !speaks_slurm {
        "--slurm-env (or an #SBATCH line) gives the job Slurm's variables; $RMS_JOB_ID and others are there anyway"
            .to_owned()
    } else {
        let (first, all) = (names[0], names.join(","));
        let provide = match language {
            Language::Shell => format!("write ${{{first}:-DEFAULT}} or set it in the script"),
            Language::Python => format!("write os.environ.get('{first}', DEFAULT)"),
            Language::Other => format!("set {first} for the job, like --export=ALL,{first}=VALUE"),
        };
        format!("{provide}, or accept that: --allow-unset {all}")
    };
    Failure::usage(text).hint(hint)
}

const MOST_SHOWN: usize = 8;

fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len())
}

/// What is known about the job before it starts.
struct JobOf<'a> {
    environment: &'a [(String, String)],
    speaks_slurm: bool,
}

impl JobOf<'_> {
    fn has(&self, name: &str) -> bool {
        let is_set_here = self.environment.iter().any(|(here, _)| here == name);
        is_set_here || (self.speaks_slurm && SLURM_OF_AGENT.contains(&name))
    }

    /// Returns whether the command is on the `PATH`, or a function, which bash exports in the environment.
    fn has_command(&self, command: &str) -> bool {
        let value_of = |wanted: &str| self.environment.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let is_function = [format!("BASH_FUNC_{command}%%"), format!("BASH_FUNC_{command}()")];
        if is_function.iter().any(|name| value_of(name).is_some()) {
            return true;
        }
        let path = value_of("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        let is_executable = |dir: &str| {
            let found = std::fs::metadata(Path::new(dir).join(command));
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        path.split(':').any(is_executable)
    }

    /// Returns whether the shell reads files before the script that may define commands.
    fn prepares_shells(&self, script: &str) -> bool {
        is_login(script) || self.environment.iter().any(|(name, _)| name == "BASH_ENV" || name == "ENV")
    }
}

/// Returns whether the shell reads the profiles of the system and of its user.
fn is_login(script: &str) -> bool {
    let first = script.lines().next().unwrap_or_default();
    first.split_whitespace().skip(1).any(|word| {
        word == "--login" || (word.starts_with('-') && !word.starts_with("--") && word.contains(['l', 'i']))
    })
}

/// The language of a script, by its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Shell,
    Python,
    Other,
}

fn language(script: &str) -> Language {
    let first = script.lines().next().unwrap_or_default().trim_start_matches("#!");
    let mut words = first.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or_default());
    let program = words.find(|word| *word != "env" && !word.starts_with('-') && !word.contains('='));
    match program {
        Some("sh" | "bash" | "dash" | "ksh" | "ksh93" | "mksh" | "zsh" | "ash" | "busybox") => Language::Shell,
        Some(program) if program.starts_with("python") || program.starts_with("pypy") => Language::Python,
        Some(_) | None => Language::Other,
    }
}

/// Returns names of variables in a script of another language, in their order. In Python, uses that give a default or
/// `None` are none; for the rest it is unknown whether the script handles missing ones.
fn mentions(script: &str, language: Language) -> Vec<Found> {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let mut found = Vec::new();
    let mut line_start = 0;
    for (line, text) in (1..).zip(script.split_inclusive('\n')) {
        let start = line_start;
        line_start += text.len();
        if text.trim_start().starts_with('#') {
            continue;
        }
        for name in text.split(|c| !is_part(c)).filter(|name| is_foreign(name)) {
            let at = start + (name.as_ptr() as usize - text.as_ptr() as usize);
            let (before, after) = (&script[..at], &script[at + name.len()..]);
            let name = name.to_owned();
            let what = match language {
                Language::Python => python_use(before, name, after),
                Language::Shell | Language::Other => Some(What::Uses { name, is_quoted: true }),
            };
            found.extend(what.map(|what| Found { line, what }));
        }
    }
    // `x = os.environ["NAME"] if "NAME" in os.environ else 1`
    found.sort_by_key(|found| (found.line, !matches!(found.what, What::Provides { .. })));
    found
}

/// Returns what Python code does with a variable that it names between `before` and `after`; `None` if it does no harm
/// where the variable is missing.
fn python_use(before: &str, name: String, after: &str) -> Option<What> {
    let quotes = ['"', '\''];
    let (Some(before), Some(after)) = (before.strip_suffix(quotes), after.strip_prefix(quotes)) else {
        return Some(What::Uses { name, is_quoted: true });
    };
    let (before, after) = (before.trim_end(), after.trim_start());
    let callee = before.strip_suffix('(').map_or("", str::trim_end);
    let has_default = after.starts_with(',');
    let gives_none = callee.ends_with(".get") || callee.ends_with("getenv");
    let is_set = callee.ends_with(".setdefault") || {
        let assigned = after.strip_prefix(']').map_or("", str::trim_start);
        assigned.starts_with('=') && !assigned.starts_with("==")
    };
    let asked = after.strip_prefix("not ").map_or(after, str::trim_start);
    let of = asked.strip_prefix("in ").and_then(|of| of.lines().next());
    let is_asked = of.is_some_and(|of| of.contains("environ"));
    if gives_none || (callee.ends_with(".pop") && has_default) {
        return None;
    }
    Some(if is_set {
        What::Sets { name }
    } else if is_asked {
        What::Provides { name }
    } else {
        // Without the variable, this raises an error: under Slurm, too.
        let is_quoted = !(before.ends_with("environ[") && EMPTY_THERE_TOO.contains(&name.as_str()));
        What::Uses { name, is_quoted }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        Script { file: "job.sh".into(), job_name: "job.sh".into(), text: text.to_owned() }
    }

    fn a_script() -> Work {
        Work::Script { script: String::new(), args: Vec::new() }
    }

    fn of_slurm() -> Vec<(String, String)> {
        vec![(SLURM.to_owned(), "1".to_owned()), ("PATH".to_owned(), "/nowhere".to_owned())]
    }

    fn refused(text: &str) -> String {
        check(&script(text), &of_slurm(), &a_script(), &[], crate::cli::check_step).expect_err(text).to_text()
    }

    fn warnings(text: &str) -> Vec<String> {
        check(&script(text), &of_slurm(), &a_script(), &[], crate::cli::check_step)
            .unwrap_or_else(|failure| panic!("{}", failure.to_text()))
    }

    #[test]
    fn a_variable_that_would_be_empty_is_refused_with_its_line() {
        let text = refused("#!/bin/bash\n#SBATCH -N 2\nSCRATCH=/scratch/$USER/$SLURM_TMPDIR\nrm -rf $SCRATCH\n");
        assert!(text.contains("job.sh:3: SLURM_TMPDIR") && text.contains("--allow-unset SLURM_TMPDIR"), "{text}");
        for use_of_it in [
            "rm -rf \"/scratch/${SLURM_ARRAY_TASK_ID}\"",
            "x=${SLURM_TMPDIR%/}",
            "sh -c 'rm -rf /scratch/$SLURM_TMPDIR'",
            "cat > run.sh <<'E'\nrm -rf /scratch/$SLURM_TMPDIR\nE",
            "rm -rf /scratch/$PBS_JOBID",
            "cd \"$(dirname \"$SLURM_CONF\")\"",
            "echo $((SLURM_ARRAY_TASK_ID + 1))",
        ] {
            assert!(refused(&format!("#!/bin/sh\n{use_of_it}\n")).contains("job.sh:"), "{use_of_it}");
        }
    }

    #[test]
    fn what_the_job_will_have_or_the_script_provides_for_is_no_fault() {
        for fine in [
            "SCRATCH=/scratch/$USER/$SLURM_JOB_ID; rm -rf $SCRATCH",
            "echo ${SLURM_ARRAY_TASK_ID:-1} ${SLURM_TMPDIR:?no scratch}",
            "SLURM_TMPDIR=/tmp/x\ncd $SLURM_TMPDIR",
            "[ -z \"$SLURM_TMPDIR\" ] && exit 1\ncd $SLURM_TMPDIR",
            "# rm -rf $SLURM_TMPDIR",
            "echo \\$SLURM_TMPDIR",
            "for SLURM_X in 1 2; do echo $SLURM_X; done",
        ] {
            assert_eq!(warnings(&format!("#!/bin/sh\n{fine}\n")), [] as [&str; 0], "{fine}");
        }
        let mut environment = of_slurm();
        environment.push(("SLURM_TMPDIR".to_owned(), "/tmp".to_owned()));
        let given =
            check(&script("#!/bin/sh\ncd $SLURM_TMPDIR\n"), &environment, &a_script(), &[], crate::cli::check_step);
        assert_eq!(given.map_err(|failure| failure.to_text()), Ok(Vec::new()));
        let allowed = ["SLURM_TMPDIR".to_owned()];
        assert!(
            check(&script("#!/bin/sh\ncd $SLURM_TMPDIR\n"), &of_slurm(), &a_script(), &allowed, crate::cli::check_step)
                .is_ok()
        );
        assert!(
            check(&script("#!/bin/sh\ncd $SLURM_CONF\n"), &of_slurm(), &a_script(), &allowed, crate::cli::check_step)
                .is_err()
        );
    }

    #[test]
    fn a_script_without_sbatch_lines_is_told_how_to_get_slurms_variables() {
        let failure =
            check(&script("#!/bin/sh\nrm -rf /s/$SLURM_JOB_ID\n"), &[], &a_script(), &[], crate::cli::check_step)
                .expect_err("unset");
        assert!(failure.to_text().contains("--slurm-env"), "{}", failure.to_text());
    }

    #[test]
    fn what_only_tasks_have_is_refused_in_a_script() {
        let text = refused("#!/bin/sh\nrm -rf \"/scratch/$RMS_NODE_NAME\"\n");
        assert!(text.contains("job.sh:2: RMS_NODE_NAME") && text.contains("'rms run' in it"), "{text}");
        for fine in [
            "rms run sh -c 'echo $RMS_TASK_ID'",
            "echo ${RMS_NODE_ID:-0}",
            "RMS_NODE_NAME=$(hostname); cd $RMS_NODE_NAME",
        ] {
            assert_eq!(warnings(&format!("#!/bin/sh\n{fine}\n")), [] as [&str; 0], "{fine}");
        }
        let worker = Work::Tasks { argv: vec!["farm.sh".to_owned()] };
        let said = check(&script("#!/bin/sh\necho $RMS_TASK_ID\n"), &of_slurm(), &worker, &[], crate::cli::check_step);
        assert_eq!(said.map_err(|failure| failure.to_text()), Ok(Vec::new()));
    }

    #[test]
    fn what_is_empty_under_slurm_too_is_said_once() {
        let said = warnings("#!/bin/sh\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\necho $SLURM_CPUS_PER_TASK\n");
        assert_eq!(said, ["job.sh:2: SLURM_CPUS_PER_TASK is empty, as under Slurm: what sets it was not asked for"]);
        let said = warnings("#!/bin/sh\necho $SLURM_RESTART_COUNT $SLURM_STEPID\n");
        assert!(said[0].ends_with("SLURM_RESTART_COUNT is empty, as under Slurm: it is set from the second run on"));
        assert!(said[1].ends_with("SLURM_STEPID is empty, as under Slurm: only the tasks of a step have it"));
        for of_step in OF_STEPS {
            let quoted = format!("#!/bin/sh\nsrun sh -c 'echo ${of_step}'\n");
            assert_eq!(warnings(&quoted), [] as [&str; 0], "the tasks of a step have it");
        }
        let text = refused("#!/bin/sh\nsrun sh -c 'rm -rf /scratch/$SLURM_JOB_ID/$SLURM_STEP_ID'\n");
        assert!(text.contains("SLURM_STEP_ID"), "{text}");
    }

    #[test]
    fn commands_that_may_be_missing_are_named_once_with_what_to_do() {
        let said = warnings("#!/bin/bash\nmodule load gcc\nsbatch next.sh\nsbatch more.sh\n");
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("job.sh:2: there may be no 'module'"), "{said:?}");
        assert!(said[1].starts_with("job.sh:3: ") && said[1].contains("'rms submit'"), "{said:?}");
        for fine in
            ["source /etc/profile\nmodule load x", "module() { :; }\nmodule load x", "echo sbatch", "eval x; conda x"]
        {
            assert_eq!(warnings(&format!("#!/bin/bash\n{fine}\n")), [] as [&str; 0], "{fine}");
        }
        for guarded in [
            "command -v module >/dev/null && module load x",
            "type module &>/dev/null && module load x",
            "if type -t module >/dev/null; then\n  module load x\nfi",
            "type -P sbatch && sbatch x.sh",
            "hash module 2>/dev/null && module load x",
            "which module >/dev/null 2>&1 && module load x",
            "[ -x \"$(command -v sbatch)\" ] && sbatch x.sh",
            "[[ -n $(type -p sbatch) ]] && sbatch x.sh",
            "if [ \"`which sbatch`\" ]; then sbatch x.sh; fi",
        ] {
            assert_eq!(warnings(&format!("#!/bin/bash\n{guarded}\n")), [] as [&str; 0], "{guarded}");
        }
        let wrapped = |command: &str| {
            let said = check(&Script::wrap(command), &of_slurm(), &a_script(), &[], crate::cli::check_step);
            said.map_err(|failure| failure.to_text()).expect(command)
        };
        assert!(wrapped("sbatch x.sh")[0].starts_with("--wrap: there may be no 'sbatch'"));
        assert!(wrapped("true\nsbatch x.sh")[0].starts_with("--wrap:2: there may be no 'sbatch'"));
        assert_eq!(warnings("#!/bin/bash -l\nmodule load x\n"), [] as [&str; 0]);
        let said = warnings("#!/bin/bash -l\nsrun ./a\nsrun ./b\n");
        assert!(said.len() == 1 && said[0].contains("'rms run'"), "{said:?}");
    }

    #[test]
    fn steps_that_cannot_be_are_named_with_their_line() {
        for (call, part) in [
            ("srun --gres=gpu:1 ./p", "--gres=gpu:1 is not possible"),
            ("time srun -n 2 \\\n  --multi-prog conf", "--multi-prog is not possible"),
            ("srun --multi-prog $CONF", "$SLURM_PROCID"),
            ("srun -G $N ./p", "--gpus=unknown"),
            ("srun --signal=USR1@60 $PROGRAM", "--signal"),
            ("srun --no-such ./p", "'--no-such'"),
            ("srun --pty bash", "--pty"),
            ("srun -m cyclic ./p", "--distribution=cyclic"),
            ("srun -n 0 ./p", "'0'"),
            ("x=$(srun -n2 --mpi=pmix ./p)", "--mpi=pmix"),
            ("time rms run -m cyclic ./p", "'-m'"),
            ("rms run --test-only ./p", "--test-only"),
        ] {
            let said = warnings(&format!("#!/bin/bash\n{call}\n"));
            assert!(said.len() == 1 && said[0].starts_with("job.sh:2: ") && said[0].contains(part), "{call}: {said:?}");
        }
        for fine in [
            "srun -N 1 -n 2 --exclusive ./p --gres=x > out 2>&1 &",
            "srun $OPTS ./p",
            "srun -n $N --mpi $T ./p",
            "srun --mpi $T ./p",
            "srun --ntasks=$N -c$C \"$PROGRAM\" --pty",
            "srun \"${options[@]}\" --gres=gpu ./p",
            "srun -w n{1,2} ./p",
            "srun &> out --gres=gpu ./p",
            "srun() { echo \"$@\"; }\nsrun --gres=gpu ./p",
            "source ./functions.sh\nsrun --gres=gpu ./p",
            "# srun --gres=gpu ./p",
            "echo srun --gres=gpu",
            "cat > x <<E\nsrun --gres=gpu $X\nE\nsrun ./p",
            "srun --help",
            "srun --usage",
            "srun -p fast -A cfd -W 30 -I5 -K0 --mem=2G --gres=none --jobid=$SLURM_JOB_ID ./p",
            "srun --gres $G ./p",
            "srun --jobid $SLURM_JOB_ID ./p",
            "rms run --new-job -N 2 ./p",
            "rms run -N 1 -n 2 sh -c 'echo $RMS_TASK_ID' -m cyclic",
            "time rms queue --no-such",
        ] {
            assert_eq!(warnings(&format!("#!/bin/bash\n{fine}\n")), [] as [&str; 0], "{fine}");
        }
        let not_ours =
            check(&script("#!/bin/sh\nsrun --gres=gpu ./p\n"), &[], &a_script(), &[], crate::cli::check_step);
        let said = not_ours.unwrap_or_else(|failure| panic!("{}", failure.to_text()));
        assert!(said.len() == 1 && said[0].contains("there may be no 'srun'"), "{said:?}");
    }

    #[test]
    fn scripts_of_other_languages_are_read_for_names() {
        let text = refused("#!/usr/bin/env python3\n# SLURM_X\nimport os\nos.environ['SLURM_TMPDIR']\n");
        assert!(text.contains("job.sh:4: SLURM_TMPDIR"), "{text}");
        assert_eq!(warnings("#!/usr/bin/python3\nos.environ['SLURM_JOB_ID']\n"), [] as [&str; 0]);
        let said = warnings("#!/usr/bin/python3\nos.environ['SLURM_CPUS_PER_TASK']\n");
        assert_eq!(said, ["job.sh:2: SLURM_CPUS_PER_TASK is empty, as under Slurm: what sets it was not asked for"]);
    }

    #[test]
    fn python_scripts_provide_for_missing_variables_in_their_own_way() {
        for fine in [
            "print(os.environ.get(\"SLURM_ARRAY_TASK_ID\", 0))",
            "x = os.getenv('SLURM_FOO', 'x')",
            "x = os.environ.get(\n    'SLURM_FOO',\n    'x',\n)",
            "if os.environ.get('SLURM_FOO'): pass",
            "x = getenv('SLURM_FOO') or 'x'",
            "if 'SLURM_FOO' in os.environ:\n    print(os.environ['SLURM_FOO'])",
            "if \"SLURM_FOO\" not in environ:\n    sys.exit(1)\nprint(environ[\"SLURM_FOO\"])",
            "os.environ['SLURM_FOO'] = '1'\nprint(os.environ['SLURM_FOO'])",
            "os.environ.setdefault('SLURM_FOO', '1')\nprint(os.environ['SLURM_FOO'])",
            "os.environ.pop('SLURM_FOO', None)",
            "x = os.environ['SLURM_FOO'] if 'SLURM_FOO' in os.environ else '1'",
        ] {
            assert_eq!(warnings(&format!("#!/usr/bin/env python3\nimport os\n{fine}\n")), [] as [&str; 0], "{fine}");
        }
        for risky in [
            "print(os.environ['SLURM_FOO'])",
            "os.system('rm -rf /scratch/$SLURM_FOO')",
            "x = os.environ.get('SLURM_FOO')\nprint(os.environ['SLURM_FOO'])",
            "if os.environ['SLURM_FOO'] == '1': pass",
            "os.environ.pop('SLURM_FOO')",
        ] {
            let text = refused(&format!("#!/usr/bin/python3.11\nimport os\n{risky}\n"));
            assert!(text.contains("SLURM_FOO") && !text.contains("empty"), "{text}");
            assert!(text.contains("write os.environ.get('SLURM_FOO', DEFAULT), or accept that"), "{text}");
        }
        let text = refused("#!/usr/bin/perl\nprint $ENV{SLURM_FOO};\n");
        assert!(text.contains("--export=ALL,SLURM_FOO=VALUE") && !text.contains("${"), "{text}");
    }
}
