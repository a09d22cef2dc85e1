//! `rms completion`: prints the script by which a shell completes verbs and flags.

use clap_complete::Shell;

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms completion bash > /usr/share/bash-completion/completions/rms
  . <(rms completion bash)       only in this shell")]
pub struct Args {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (context.command)(), "rms", &mut script);
    output::write_out(&script)?;
    Ok(Exit::OK)
}
