//! `rms sim`: experiments in virtual time, one verb each. None of them needs a cluster.

mod against_past;
mod answer;
mod check;
mod cost;
mod curve;
mod figures;
mod gain;
mod heat;
mod journal_file;
mod offline;
mod progress;
mod replay;
mod schedule;
mod sd;
mod sd_figures;
mod shares;
mod side_by_side;
mod swf;
mod trace_file;
mod tune;
mod views;

use std::fmt::Display;

use rms_model::Span;

use crate::context::Context;
use crate::failure::{Exit, Failure};

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  rms sim offline --tests 1000 --seed 1    evolving applications that are all
                                           submitted at once
  rms sim swf trace.swf.gz --nodes 128     a trace through the scheduler of the
                                           server
  rms sim check ran.jsonl                  check that a schedule file could have
                                           run
  rms sim replay /var/lib/limber/server --set policy=easy
  rms sim tune /var/lib/limber/server      which fair_start and resched_timer
                                           suit this server's jobs
  rms sim views --quick                    launchers that select resources from
                                           views
  rms sim gain --seeds 5                   jobs that can be made larger and
                                           smaller
  rms sim sd --cirne w1                    jobs that start on cores that
                                           running jobs lend"
)]
pub struct Args {
    #[command(subcommand)]
    verb: SimVerb,
}

/// Parses the time between two passes, as the setting `resched_timer`.
fn interval(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(span) if span > Span::MAX_WALL => Err("expected a duration of at most 100 years".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

#[derive(clap::Subcommand, Debug)]
enum SimVerb {
    /// Compare ways to place applications whose needs change over time
    Offline(offline::Args),
    /// Run a trace in the Standard Workload Format through the server's scheduler
    Swf(swf::Args),
    /// Check a schedule file: no core is allocated twice at one instant
    Check(check::Args),
    /// Replay a server's own past, under other settings
    Replay(replay::Args),
    /// Sweep fair_start and resched_timer, and recommend values
    Tune(Box<tune::Args>),
    /// Compare launchers that select resources themselves with a server that is given all sizes
    Views(views::Args),
    /// Compare malleable jobs with the same jobs at fixed size
    Gain(Box<gain::Args>),
    /// Compare static backfill with slowdown-driven sharing of nodes
    Sd(Box<sd::Args>),
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    match args.verb {
        SimVerb::Offline(args) => offline::run(&args, context),
        SimVerb::Swf(args) => swf::run(&args, context),
        SimVerb::Check(args) => check::run(&args, context),
        SimVerb::Replay(args) => replay::run(&args, context),
        SimVerb::Tune(args) => tune::run(&args, context),
        SimVerb::Views(args) => views::run(&args, context),
        SimVerb::Gain(args) => gain::run(&args, context),
        SimVerb::Sd(args) => sd::run(&args, context),
    }
}

/// Refuses a value that is listed twice: what it stands for would be simulated twice.
fn check_once<T: PartialEq, W: Display>(option: &str, values: &[T], word: impl Fn(&T) -> W) -> Result<(), Failure> {
    let again = |(idx, value): &(usize, &T)| values[..*idx].contains(value);
    let twice = values.iter().enumerate().find(again).map(|(_, value)| word(value));
    twice.map_or(Ok(()), |word| Err(Failure::usage(format!("{option} names {word} twice: write it once"))))
}
