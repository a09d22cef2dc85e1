//! Writes errors of a job into its own output, where its owner looks first.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use super::job::Job;

/// Writes one line into the job's output. Does not end the job.
pub fn write_error(job: &Job, what: &str) {
    let Some(streams) = &job.streams else { return };
    // Only text from other programs is truncated.
    let text: String = what.chars().take(MOST_CHARS).collect();
    let line = format!("rms: job {}: {text}\n", job.job());
    let _nobody_else_to_tell = match job.pump.errors() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => write(&streams.stderr, &line),
    };
}

const MOST_CHARS: usize = 400;

/// Writes to regular files only: anything else may be full, and the supervisor must not block.
fn write(to: &OwnedFd, text: &str) -> io::Result<()> {
    let mut file = File::from(to.try_clone()?);
    if file.metadata()?.is_file() { file.write_all(text.as_bytes()) } else { Ok(()) }
}
