//! Writes what ran in a simulation to a file, one JSON object per line, so that other programs can check it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rms_model::Time;
use rms_sim::batch::{Part, Stretch, TraceJobs};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A file that is being written.
pub(super) struct ScheduleFile<'a> {
    path: PathBuf,
    file: BufWriter<File>,
    jobs: &'a TraceJobs,
}

impl<'a> ScheduleFile<'a> {
    /// # Errors
    /// The file cannot be created.
    pub(super) fn create(path: &Path, jobs: &'a TraceJobs) -> Result<ScheduleFile<'a>, Failure> {
        let file = File::create(path).map_err(|error| failure(path, &error))?;
        Ok(ScheduleFile { path: path.to_owned(), file: BufWriter::new(file), jobs })
    }

    pub(super) fn write(&mut self, stretch: &Stretch) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, &line(stretch, self.jobs))?;
        self.file.write_all(b"\n")
    }

    /// Returns the failure for an error of this file.
    pub(super) fn failure(&self, error: &io::Error) -> Failure {
        failure(&self.path, error)
    }

    /// # Errors
    /// The rest cannot be written.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|error| self.failure(&error))
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io(format!("{} cannot be written", path.display()), error);
    match error.kind() {
        io::ErrorKind::IsADirectory => failure.hint("name a file with --schedule, as ran.jsonl"),
        io::ErrorKind::StorageFull => failure.hint("free space there, or name a file on another disk with --schedule"),
        _ => failure,
    }
}

/// One line, with its fields in a readable order.
#[derive(Serialize)]
struct Line {
    job: i64,
    submit: Value,
    start: Value,
    end: Value,
    nodes: Vec<NodeOfLine>,
}

#[derive(Serialize)]
struct NodeOfLine {
    node: usize,
    cores: Vec<u32>,
    memory_mib: u64,
}

fn line(stretch: &Stretch, jobs: &TraceJobs) -> Line {
    let Stretch { job_idx, submit, start, end, nodes } = stretch;
    let node = |Part { node, cores, memory }: &Part| NodeOfLine {
        node: *node,
        cores: cores.iter().collect(),
        memory_mib: memory.0,
    };
    Line {
        job: jobs.jobs()[*job_idx].number,
        submit: seconds(*submit),
        start: seconds(*start),
        end: seconds(*end),
        nodes: nodes.iter().map(node).collect(),
    }
}

/// Converts a time; whole seconds, which almost all logs have, are written without a point.
fn seconds(time: Time) -> Value {
    let millis = time.as_millis();
    if millis % 1000 == 0 { json!(millis / 1000) } else { json!(millis as f64 / 1000.0) }
}
