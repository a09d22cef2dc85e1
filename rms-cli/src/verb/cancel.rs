//! `rms cancel`: ends jobs, or sends them a signal.

use std::str::FromStr;

use nix::sys::signal::Signal;
use rms_core::Call;

use super::jobs_done::JobsDone;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::select;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms cancel 7                   TERM, and KILL after the grace time
  rms cancel 3,5-9               several
  rms cancel last                the newest of your jobs
  rms cancel user:ada            all of one user's (admins)
  rms cancel 7 --signal USR1     only signal its tasks; the job goes on")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    #[arg(required = true, value_name = "JOBS", allow_negative_numbers = true)]
    jobs: Vec<String>,
    /// Send this signal to every task instead of ending the job: USR1, SIGTERM, 10
    #[arg(short, long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Option<i32>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let select = select::parse(&args.jobs)?;
    let client = context.client().await?;
    let (call, word) = match args.signal {
        Some(signal) => (Call::Signal { select, signal }, "signalled"),
        None => (Call::Cancel { select }, "cancelled"),
    };
    let answer = JobsDone::new(word, client.order(call).await?);
    answer.show(&context.output)
}

fn parse_signal(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    let by_number = || text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let signal = Signal::from_str(&name).ok().or_else(by_number);
    signal.map(|signal| signal as i32).ok_or_else(|| "write a signal like USR1, SIGTERM or 10".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["USR1", "usr1", "SIGUSR1", "10"] {
            assert_eq!(parse_signal(text), Ok(Signal::SIGUSR1 as i32), "{text}");
        }
        for text in ["", "0", "-9", "999", "SIG", "NOPE"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
