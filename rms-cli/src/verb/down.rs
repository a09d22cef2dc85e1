//! `rms down`: stops the cluster of `rms up`, jobs included, and removes its directory.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::up::up_dir;
use crate::context::Context;
use crate::embedded::stop::{StopOptions, Stopped, stop};
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Only processes that 'rms up' started, and their descendants, are ended; each is
identified by its pid and start time.

Examples:
  rms down                       jobs get TERM and the grace time; then the
                                 directory is removed, with the history, the
                                 settings and the output of 'rms run'
  rms down --keep                keep data and logs: 'rms up' starts it again,
                                 and waiting jobs still wait
  rms down --now                 kill jobs at once
  rms down --dir ./play          the cluster of 'rms up --dir ./play'")]
pub struct Args {
    /// Keep the directory with history, settings and waiting jobs
    #[arg(long)]
    keep: bool,
    /// Kill running jobs at once, without the grace time
    #[arg(long)]
    now: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let dir = up_dir(context)?;
    let stopped = stop(&dir, StopOptions { keep: args.keep, now: args.now }).await?;
    context.output.show(&DownAnswer { stopped, root: dir.root })?;
    Ok(Exit::OK)
}

struct DownAnswer {
    stopped: Option<Stopped>,
    root: PathBuf,
}

impl Show for DownAnswer {
    fn text(&self) -> String {
        let Some(stopped) = &self.stopped else {
            return format!("no cluster of 'rms up' is in {}\n", self.root.display());
        };
        let mut text = String::new();
        if stopped.n_jobs > 0 {
            text += &format!("cancelled {}\n", count(stopped.n_jobs, "job"));
        }
        text += &format!("stopped {}\n", count(stopped.n_processes, "process"));
        if stopped.n_killed > 0 {
            let were = if stopped.n_killed == 1 { "was" } else { "were" };
            text += &format!("killed {} that {were} left\n", count(stopped.n_killed, "process"));
        }
        let what = match stopped.is_removed {
            true if self.root.exists() => "removed all but other files from",
            true => "removed",
            false => "kept",
        };
        text + &format!("{what} {}\n", self.root.display())
    }

    fn json(&self) -> Value {
        let stopped = self.stopped.clone().unwrap_or_default();
        json!({
            "dir": self.root.display().to_string(),
            "was_there": self.stopped.is_some(),
            "jobs_cancelled": stopped.n_jobs,
            "processes_stopped": stopped.n_processes,
            "processes_killed": stopped.n_killed,
            "removed": stopped.is_removed,
        })
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

fn count(number: usize, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "process") => format!("{number} processes"),
        (_, _) => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_killed_is_counted() {
        let text = |n_killed| {
            let stopped = Some(Stopped { n_killed, ..Stopped::default() });
            DownAnswer { stopped, root: PathBuf::from("/r") }.text()
        };
        assert!(text(1).contains("killed 1 process that was left\n"), "{}", text(1));
        assert!(text(2).contains("killed 2 processes that were left\n"), "{}", text(2));
    }
}
