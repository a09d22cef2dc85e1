//! The command line as a whole: parses it, runs the verb, and turns the outcome into an exit code.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::habits;
use crate::output::{self, FormFlags, GONE, Output};
use crate::place::Places;
use crate::screen;
use crate::srun;
use crate::stamp;
use crate::verb::{Verb, run};

/// Limber runs jobs on clusters whose applications grow and shrink.
#[derive(Parser, Debug)]
#[command(name = "rms", version, max_term_width = 110, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    /// Directory of the cluster or client to use; if absent, $RMS_DIR, the cluster of 'rms up', ~/.config/limber, or
    /// /etc/limber/client
    #[arg(long, global = true, value_name = "DIR", help_heading = "Output", display_order = 899)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    form: FormFlags,
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Begin here:
  rms up                         a cluster of four nodes on this machine
  rms run -N 2 -n 4 hostname     run a program and see its output
  rms submit job.sh              submit a script and get its id
  rms queue                      what waits and runs
  rms view                       the occupation over time
  rms down                       stop the cluster and remove all of it

Exit codes: 0 done, 1 failed, 2 wrong usage, 75 the link broke before the answer
came; 'rms run' and 'rms wait' tell the job's own code.";

/// Runs one command and returns its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if srun::is_meant(&args) {
        return code(by_srun(args));
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return code(not_parsed(&error, &args)),
    };
    let output = Output::new(&cli.form);
    screen::choose(!cli.form.wide && output::is_terminal());
    if let Some(warning) = stamp::choose_zone(cli.form.utc) {
        output::warn(&warning);
    }
    let context = Context {
        output,
        dir: cli.dir,
        places: Places::look(),
        check_step,
        command: Cli::command,
        clients: Default::default(),
    };
    let exit = match run(cli.verb, &context) {
        Ok(exit) => exit,
        Err(failure) => {
            if failure.kind != GONE {
                output.failure(&failure);
            }
            failure.exit
        }
    };
    code(exit)
}

/// Checks the arguments of an `rms` that starts a step, for a script before it runs.
///
/// # Errors
/// Those of the command, except for errors that only the job can detect.
pub fn check_step(words: &[String]) -> Result<(), srun::Misuse> {
    let cli = Cli::try_parse_from(["rms"].into_iter().chain(words.iter().map(String::as_str)))?;
    match cli.verb {
        Verb::Run(args) => run::check_step(*args).map_err(srun::Misuse::Step),
        _other_verb => Ok(()),
    }
}

fn by_srun(args: Vec<OsString>) -> Exit {
    let exit = in_runtime(srun::run(args));
    exit.unwrap_or_else(|failure| {
        if failure.kind != GONE {
            Output::new(&FormFlags::default()).failure(&failure);
        }
        failure.exit
    })
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit.0)
}

fn run(verb: Verb, context: &Context) -> Result<Exit, Failure> {
    in_runtime(async {
        let exit = verb.run(context).await.map_err(|failure| context.advised(failure));
        context.farewell().await;
        exit
    })
}

fn in_runtime(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    // One thread: a command waits for one server, and starting threads would cost more than the command itself.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the runtime cannot be started", error))?;
    let exit = runtime.block_on(command);
    // A thread may still wait for input that is no longer needed.
    runtime.shutdown_background();
    exit
}

/// Returns the exit for arguments that were not parsed: help and version are answers, everything else is a usage error.
fn not_parsed(error: &clap::Error, args: &[OsString]) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = output::write_out(error.render().to_string().as_bytes());
            return Exit::OK;
        }
        _ => {}
    }
    let wants_json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let mut command = Cli::command();
    command.build();
    let failure = match error.kind() {
        ErrorKind::InvalidUtf8 => Some(not_utf8(args)),
        _other => habits::instead_of(error, args, &command),
    };
    match (failure, wants_json) {
        (Some(failure), false) => output::warn(failure.to_text().trim_end()),
        (Some(failure), true) => print_json(&failure),
        (None, false) => output::warn(error.render().to_string().trim_end()),
        (None, true) => {
            let text = error.render().to_string();
            let message =
                text.split("\n\nUsage:").next().unwrap_or(&text).split("\n\nFor more").next().unwrap_or(&text);
            let message: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let message = message.join("; ");
            print_json(&Failure::usage(message.trim_start_matches("error: ")).hint("'rms help' lists what there is"));
        }
    }
    Exit::USAGE
}

fn print_json(failure: &Failure) {
    let _ = output::write_out(format!("{}\n", failure.to_json()).as_bytes());
}

/// Returns a failure that names the words that are not UTF-8, with escapes for their bytes.
fn not_utf8(args: &[OsString]) -> Failure {
    let odd = args.iter().filter(|word| word.to_str().is_none());
    let odd: Vec<String> = odd.map(|word| format!("{word:?}")).collect();
    let are = if odd.len() == 1 { "is" } else { "are" };
    Failure::usage(format!("{} {are} not text in UTF-8, as arguments have to be", odd.join(", ")))
}

#[cfg(test)]
mod named;

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_argument_that_is_not_utf8_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let mut words: Vec<OsString> = ["rms", "run", "echo", "x"].map(OsString::from).into();
        words.push(OsString::from_vec(b"M\xfcller".to_vec()));
        let error = Cli::try_parse_from(&words).expect_err("it is sent as text");
        assert_eq!(error.kind(), ErrorKind::InvalidUtf8);
        let failure = not_utf8(&words);
        assert_eq!(failure.message, r#""M\xFCller" is not text in UTF-8, as arguments have to be"#);
        assert_eq!(failure.exit, Exit::USAGE);
    }

    #[test]
    fn every_verb_explains_itself_by_examples() {
        let mut cli = Cli::command();
        cli.build();
        // The parser's own verb is not one of Limber's.
        let ours = cli.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
        for verb in ours {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("rms "), "'rms {} --help' has no example", verb.get_name());
        }
    }

    /// Flags that several verbs share come from separate types, whose comments are for developers.
    #[test]
    fn a_help_begins_with_what_the_list_of_verbs_says() {
        let listed: Vec<(String, String)> = Cli::command().get_subcommands().map(named_and_about).collect();
        let mut cli = Cli::command();
        cli.build();
        for (name, about) in listed {
            let verb = cli.find_subcommand(&name).expect("it is listed");
            assert_eq!(named_and_about(verb).1, about, "'rms {name} --help' begins with another sentence");
        }
    }

    /// As in lines of a script. What collects values still does, and what excludes another option, too.
    #[test]
    fn the_last_of_a_repeated_option_of_a_job_counts() {
        let parsed = |words: &str| Cli::try_parse_from(words.split(' ')).map(|cli| format!("{:?}", cli.verb));
        for (verb, rest) in [("submit", " job.sh"), ("run", " ./p -N 7"), ("plan", "")] {
            let check = |words: &str, same: &str| {
                let parsed = |words: &str| parsed(&format!("rms {verb} {words}{rest}")).expect(words);
                assert_eq!(parsed(words), parsed(same), "{verb}");
            };
            check("-N 1 --hold -t 5 -N 2 -H --time=10", "-N 2 --hold -t 10");
            check("--mem 1G -M a -M b --mem 2G", "-M a,b --mem 2G");
            check("--requeue --no-requeue --requeue", "--requeue");
            assert!(parsed(&format!("rms {verb} -N 1 -N 2 --shapes 2x1h{rest}")).is_err());
        }
    }

    fn named_and_about(verb: &Command) -> (String, String) {
        (verb.get_name().to_owned(), verb.get_about().map(ToString::to_string).unwrap_or_default())
    }

    #[test]
    fn helps_fit_a_terminal_of_80_columns() {
        let mut cli = Cli::command();
        cli.build();
        check_width(&cli);
    }

    fn check_width(verb: &Command) {
        let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            assert!(
                line.chars().count() <= 80,
                "'{} --help' has a line of more than 80 columns: {line}",
                verb.get_name()
            );
        }
        verb.get_subcommands().for_each(check_width);
    }
}
