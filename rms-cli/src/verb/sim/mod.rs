//! `rms sim`: experiments in virtual time, each a verb of its own. None of them needs a cluster.

mod figures;
mod offline;
mod side_by_side;
mod views;

use crate::context::Context;
use crate::failure::{Exit, Failure};

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  rms sim offline --tests 1000 --seed 1      evolving applications that are all submitted at once
  rms sim views --quick                      launchers that select resources from views"
)]
pub struct Args {
    #[command(subcommand)]
    verb: SimVerb,
}

#[derive(clap::Subcommand, Debug)]
enum SimVerb {
    /// Compare ways to place applications whose needs change over time
    Offline(offline::Args),
    /// Compare launchers that select resources themselves with a server that is given all sizes
    Views(views::Args),
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    match args.verb {
        SimVerb::Offline(args) => offline::run(&args, context),
        SimVerb::Views(args) => views::run(&args, context),
    }
}
