//! Reads the `#RMS` and `#SBATCH` lines of a script, and splits each into words.

use clap::{Args as _, FromArgMatches as _};
use thiserror::Error;

use crate::habits;
use crate::job_options::JobOptions;
use crate::sbatch;

/// The content of a script's directives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `#RMS` lines take precedence over `#SBATCH` lines.
    pub options: JobOptions,
    /// Directives that were ignored, as `file:line: text`.
    pub warnings: Vec<String>,
}

/// Why a script's directives are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}: {problem}")]
pub struct DirectiveError {
    pub file: String,
    pub line: usize,
    pub problem: String,
}

/// Reads the directives before the first command of `script`. Several lines are equivalent to one line with all their
/// words; if an option is repeated, the last one counts.
///
/// # Errors
/// Reports the first wrong line. `#RMS` lines accept no unknown option, `#SBATCH` lines none that would change what the
/// job gets.
pub fn read(file: &str, script: &str) -> Result<Directives, DirectiveError> {
    let (mut rms, mut slurm) = (Source::default(), Source::default());
    let mut variables = Vec::new();
    let mut warnings = Vec::new();
    let mut in_head = true;
    for (idx, text) in script.lines().enumerate() {
        let line = idx + 1;
        let fail = |problem: String| DirectiveError { file: file.to_owned(), line, problem };
        let Some(directive) = Directive::of(text) else {
            let trimmed = text.trim_start();
            in_head = in_head && (trimmed.is_empty() || trimmed.starts_with('#'));
            if let Some(mark) = FOREIGN.iter().find(|mark| trimmed.starts_with(**mark)).filter(|_| in_head) {
                let mark = mark.trim_end();
                warnings.push(format!("{file}:{line}: this {mark} line is not read: write its options in #RMS lines"));
            }
            if let Some(mark) = in_head.then(|| nearly_marked(text)).flatten() {
                warnings.push(format!("{file}:{line}: this {mark} line is not read: a blank has to follow the mark"));
            }
            continue;
        };
        if !in_head {
            let mark = directive.mark();
            warnings.push(format!("{file}:{line}: this {mark} line is ignored: it stands after the first command"));
            continue;
        }
        match directive {
            Directive::Rms(rest) => {
                let words = split_words(rest).map_err(|problem| fail(problem.to_owned()))?;
                rms.add(words).map_err(fail)?;
            }
            Directive::Slurm(rest) => {
                let words = split_words(rest).map_err(|problem| fail(problem.to_owned()))?;
                let translated = sbatch::translate(&words).map_err(|error| fail(error.to_string()))?;
                warnings.extend(translated.remarks.iter().map(|remark| format!("{file}:{line}: {remark}")));
                variables.extend(translated.variables);
                slurm.add(translated.words).map_err(fail)?;
                slurm.options.slurm_env = true;
            }
        }
    }
    let options = JobOptions { slurm: variables, ..rms.options.over(slurm.options) };
    Ok(Directives { options, warnings })
}

/// Directives of other systems; reported, as a comment would be ignored silently.
const FOREIGN: [&str; 4] = ["#PBS ", "#BSUB ", "#OAR ", "#COBALT "];

/// Returns the mark after which neither a blank nor an option follows, as in `#SBATCH: -N 2`; longer words are comments.
fn nearly_marked(text: &str) -> Option<&'static str> {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    ["#RMS", "#SBATCH"].into_iter().find(|mark| text.strip_prefix(mark).is_some_and(|rest| !rest.starts_with(is_word)))
}

/// The lines of one kind, joined.
#[derive(Default)]
struct Source {
    words: Vec<String>,
    options: JobOptions,
}

impl Source {
    fn add(&mut self, words: Vec<String>) -> Result<(), String> {
        self.words.extend(words);
        self.options = parse_options(&self.words)?;
        Ok(())
    }
}

enum Directive<'a> {
    Rms(&'a str),
    Slurm(&'a str),
}

impl Directive<'_> {
    fn of(text: &str) -> Option<Directive<'_>> {
        // sbatch accepts options directly after the marker.
        let after = |mark: &str| {
            text.strip_prefix(mark).filter(|rest| rest.is_empty() || rest.starts_with(['-', ' ', '\t', '\r']))
        };
        after("#RMS").map(Directive::Rms).or_else(|| after("#SBATCH").map(Directive::Slurm))
    }

    fn mark(&self) -> &'static str {
        match self {
            Directive::Rms(_) => "#RMS",
            Directive::Slurm(_) => "#SBATCH",
        }
    }
}

/// Splits the text into words like a shell, up to a comment.
fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    shlex::split(text).ok_or(match text.ends_with('\\') {
        true => "a backslash ends the line: directives cannot be continued, write two lines",
        false => "a quote is not closed",
    })
}

pub fn parse_options(words: &[String]) -> Result<JobOptions, String> {
    let command = clap::Command::new("directive").no_binary_name(true).disable_help_flag(true);
    let command = command.args_override_self(true);
    let mut command = JobOptions::augment_args(command);
    let matches = command.try_get_matches_from_mut(words).map_err(|error| one_line(&error))?;
    JobOptions::from_arg_matches(&matches).map_err(|error| one_line(&error))
}

/// Returns the first sentence of a command line error, with its tip but without the usage below it. The tip that an
/// option may be a value is left out: here the value would be the name of a program.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    if let Some(advice) = habits::instead_of_value(error) {
        return advice.to_owned();
    }
    let is_of_use = |line: &&str| !line.is_empty() && !line.starts_with("tip: to pass");
    let kept = text.lines().map(str::trim).filter(is_of_use);
    let kept: Vec<&str> =
        kept.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more")).collect();
    kept.join("; ").replace(":; ", ": ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rms_model::Span;

    use super::*;
    use crate::size::NodeCount;

    fn options(script: &str) -> JobOptions {
        read("job.sh", script).unwrap_or_else(|error| panic!("{error}")).options
    }

    fn error(script: &str) -> String {
        read("job.sh", script).expect_err(script).to_string()
    }

    #[test]
    fn rms_lines_win_over_sbatch_lines_and_later_over_earlier() {
        let script = "#!/bin/sh\n#RMS -N 2 --time=1h\n#SBATCH -N 8 -J old\n\n# plain\n#RMS -t 2h # longer\necho\n";
        let options = options(script);
        assert_eq!(options.nodes, Some(NodeCount::Exactly(2)));
        assert_eq!(options.time, Some(Span::from_hours(2)));
        assert_eq!(options.name.as_deref(), Some("old"));
    }

    #[test]
    fn words_may_be_quoted() {
        let options = options("#RMS -J 'a b' --comment=\"say \\\"x\\\" # here\" -o out\\ %j\n");
        assert_eq!(options.name.as_deref(), Some("a b"));
        assert_eq!(options.comment.as_deref(), Some("say \"x\" # here"));
        assert_eq!(options.output.as_deref(), Some("out %j"));
    }

    #[test]
    fn wrong_lines_are_named() {
        let check = |script: &str, start: &str, part: &str| {
            let error = error(script);
            assert!(error.starts_with(start) && error.contains(part), "{error}");
        };
        check("#!/bin/sh\n#RMS --noddes 4\n", "job.sh:2: ", "--noddes");
        check("#RMS -N x\n", "job.sh:1: ", "is no number of nodes");
        check("#RMS -J 'a\n", "job.sh:1: ", "not closed");
        check("#RMS -N 1 \\\n", "job.sh:1: ", "two lines");
        check("#RMS stray\n", "job.sh:1: ", "stray");
        check("\n\n#SBATCH --array=1-4\n", "job.sh:3: ", "--array");
        check("#SBATCH --tiem=4\n", "job.sh:1: ", "--tiem");
        check("#SBATCH -t soon\n", "job.sh:1: ", "duration");
        for endless in ["0", "0:00", "UNLIMITED", "infinite"] {
            let (slurm, own) = (format!("#SBATCH --time={endless}\n"), format!("\n#RMS -t {endless}\n"));
            check(&slurm, "job.sh:1: ", "leave --time out or write the cluster's max_wall");
            check(&own, "job.sh:2: ", "longer than zero");
        }
        check("#SBATCH --begin=someday\n", "job.sh:1: ", "'someday' is not a time");
    }

    #[test]
    fn what_is_left_aside_is_said() {
        let script = "#!/bin/sh\n#SBATCH --mail-user=ada -q long\n#PBS -l nodes=4\necho\n#RMS -N 4\n#RMSX\n";
        let directives = read("job.sh", script).unwrap();
        let slurm = vec![("SLURM_JOB_QOS".to_owned(), "long".to_owned())];
        assert_eq!(directives.options, JobOptions { slurm_env: true, slurm, ..JobOptions::default() });
        assert_eq!(directives.warnings.len(), 4, "{:?}", directives.warnings);
        assert!(directives.warnings[0].starts_with("job.sh:2: "), "{:?}", directives.warnings);
        assert!(directives.warnings[2].starts_with("job.sh:3: this #PBS line is not read"));
        assert!(directives.warnings[3].starts_with("job.sh:5: this #RMS line is ignored"));
    }

    #[test]
    fn several_lines_mean_what_they_mean_in_one() {
        let lines = options("#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=1\n#SBATCH -t 1:00\n#SBATCH -t 2:00\n");
        assert_eq!(lines, options("#SBATCH --ntasks-per-node=1 -t 1:00 --ntasks=4 -t 2:00\n"));
        assert_eq!((lines.tasks, lines.tasks_per_node, lines.time), (Some(4), Some(1), Some(Span::from_mins(2))));
        let contradiction = error("#RMS -N 4\n#RMS --shapes 2x1h\n");
        assert!(contradiction.starts_with("job.sh:2: ") && contradiction.contains("--shapes"), "{contradiction}");
    }

    #[test]
    fn comments_and_marks_are_told_apart_as_sbatch_does() {
        assert_eq!(options("#!/bin/sh\n  # indented\n#SBATCH--nodes=3\n").nodes, Some(NodeCount::Exactly(3)));
        for comment in ["# SBATCH -N 3", "##SBATCH -N 3", " #SBATCH -N 3", "#SBATCHX -N 3"] {
            let directives = read("job.sh", &format!("{comment}\n")).unwrap();
            assert_eq!(directives, Directives::default(), "{comment}");
        }
        assert_eq!(options("#SBATCH-n 3\n").tasks, Some(3));
        for typo in ["#SBATCH: -n 4", "#SBATCH_x", "#RMS: -n 4"] {
            let warnings = read("job.sh", &format!("{typo}\ntrue\n{typo}\n")).unwrap().warnings;
            assert!(warnings.len() == 1 && warnings[0].starts_with("job.sh:1: this #"), "{warnings:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(rest in "[ -~]{0,40}", slurm in any::<bool>()) {
            let mark = if slurm { "#SBATCH" } else { "#RMS" };
            let _ = read("job.sh", &format!("{mark} {rest}\n"));
        }
    }
}
