//! Writes what went wrong with a job into its own output, where its owner looks first.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use super::job::Job;

/// One line for who looks at the job's output. The job goes on, or ends for other reasons.
pub fn write_error(job: &Job, what: &str) {
    let Some(streams) = &job.streams else { return };
    // What is cut off is some program's own words.
    let text: String = what.chars().take(MOST_CHARS).collect();
    let line = format!("rms: job {}: {text}\n", job.job());
    let _nobody_else_to_tell = match job.pump.errors() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => write(&streams.stderr, &line),
    };
}

const MOST_CHARS: usize = 400;

/// What is no file may be full, and this process must not wait.
fn write(to: &OwnedFd, text: &str) -> io::Result<()> {
    let mut file = File::from(to.try_clone()?);
    if file.metadata()?.is_file() { file.write_all(text.as_bytes()) } else { Ok(()) }
}
