//! `rms man`: writes a page for `rms` and one for each of its verbs.

use std::path::PathBuf;

use crate::context::Context;
use crate::failure::{Exit, Failure};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms man /usr/local/share/man/man1
  man rms-submit")]
pub struct Args {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    pages: PathBuf,
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let made = std::fs::create_dir_all(&args.pages);
    let written = made.and_then(|()| clap_mangen::generate_to((context.command)(), &args.pages));
    written.map_err(|error| Failure::io(format!("no pages can be written to {}", args.pages.display()), error))?;
    Ok(Exit::OK)
}
