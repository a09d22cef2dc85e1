//! `rms submit`: sends a batch script to the queue.

use rms_model::Work;

use crate::context::Context;
use crate::directive::{self, Directives};
use crate::failure::{Exit, Failure};
use crate::job_options::JobOptions;
use crate::output;
use crate::request_job::{self, Requested};
use crate::script::Script;
use crate::stdin;
use crate::submission::{Order, Output};
use crate::workers;

#[derive(clap::Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
A script runs once, on the job's first node; inside, 'mpirun' and RMS_HOSTFILE
reach the others.

It may contain its flags, before the first command:
  #!/bin/sh
  #RMS -N 2 -t 10m -J nbody
  mpirun ./nbody
The command line overrides #RMS lines, and those override #SBATCH lines; of an
option that is repeated in one of these, the last one counts.

Examples:
  rms submit -N 4 -t 1h job.sh             four nodes for an hour
  rms submit job.sh --input data.bin       everything after the script is an
                                           argument of it
  rms submit --wrap 'sleep 10; hostname'   a command line instead of a script
  generate | rms submit -N 2               a script from standard input
  rms submit --shapes 2x1h,4x35m job.sh    two sizes; the one that ends first is
                                           chosen
  rms submit -N 1-64 --amdahl 0.95 -t 20h job.sh
                                           20 hours on one node; the size that
                                           ends first is chosen
  rms submit --profile 2x10m,8x1h job.sh   two nodes for ten minutes, then eight
  rms submit -N a:2,b:2 job.sh             nodes on two clusters at once
  rms submit --malleable 2-64 --workers ./worker queue/
                                           a worker on each node, on more or
                                           fewer nodes, as nodes become idle
  rms submit --malleable 2-8:pow2 --on-resize signal:USR1 job.sh
                                           job.sh is told when its nodes change,
                                           and calls 'rms resize-done'
  rms submit --test-only -N 8 job.sh       when would it start?
  job=$(rms submit -q job.sh)              the bare id"
)]
pub struct Args {
    #[command(flatten)]
    options: JobOptions,
    /// Only say when it would start; submit nothing
    #[arg(long, help_heading = "Where and when")]
    test_only: bool,
    /// Command line to run instead of a script
    #[arg(long, value_name = "COMMAND", conflicts_with = "script", help_heading = "What runs")]
    wrap: Option<String>,
    /// Script, or - for standard input; standard input if absent, unless it is a terminal
    #[arg(value_name = "SCRIPT", help_heading = "What runs")]
    script: Option<String>,
    /// Arguments of the script
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS", help_heading = "What runs")]
    args: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let has_workers = args.options.malleable.workers;
    if args.wrap.is_none() && args.script.is_none() && stdin::is_terminal() {
        return Err(Failure::usage("there is nothing to submit")
            .hint("name a script, write --wrap 'command', or pass a script on: rms submit < job.sh"));
    }
    let (directives, order) = match (&args.wrap, &args.script) {
        (Some(command), _) if command.trim().is_empty() => {
            return Err(Failure::usage("--wrap is empty").hint("write a command line, like --wrap 'hostname'"));
        }
        (Some(command), _) if has_workers => (Directives::default(), workers::of_command_line(command)),
        (None, Some(program)) if has_workers => workers::of_program(program, args.args.clone())?,
        (Some(command), _) => of_script(Script::wrap(command), args.args.clone())?,
        (None, path) => of_script(Script::read(path.as_deref().unwrap_or("-"))?, args.args.clone())?,
    };
    for warning in &directives.warnings {
        output::warn(&format!("rms: warning: {warning}"));
    }
    warn_of_sbatch_variables();
    let options = args.options.over(directives.options);
    let says_so_itself = options.malleable.workers && !has_workers;
    let order = if says_so_itself { workers::of_script(args.script.as_deref(), args.args)? } else { order };
    let order = Order { test_only: args.test_only, ..order };
    let client = context.client().await?;
    let requested = request_job::request(&client, context, options, order).await?;
    context.output.show(&requested).inspect_err(|_| {
        // Without its number, nobody could refer to the job.
        if let Requested::Job(job) = &requested {
            output::warn(&format!("rms: job {job} was submitted, but its number could not be written"));
        }
    })?;
    Ok(Exit::OK)
}

/// Warns about `SBATCH_*` variables: for sbatch they are options, between those of the command line and those of the
/// script.
fn warn_of_sbatch_variables() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("SBATCH_")).collect();
    names.sort();
    if !names.is_empty() {
        let names = names.join(", ");
        output::warn(&format!("rms: warning: {names} of the environment is ignored: write options, or #RMS lines"));
    }
}

fn of_script(script: Script, args: Vec<String>) -> Result<(Directives, Order), Failure> {
    let directives = directive::read(&script.file, &script.text)?;
    let work = Work::Script { script: script.text.clone(), args };
    let name = script.job_name.clone();
    Ok((directives, Order { work, name, output: Output::File, test_only: false, script: Some(script) }))
}
