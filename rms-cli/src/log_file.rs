//! The output file of a batch job: its name, and reading it while it grows.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rms_api::answer::JobDetail;
use rms_model::Work;
use rms_model::pattern::{self, Names};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::output;

/// Returns the file to which the job writes its output; `None` if each task or node has its own.
pub fn path(detail: &JobDetail) -> Option<PathBuf> {
    let line = &detail.line;
    let pattern = detail.spec.execution.stdio.output.as_deref()?;
    let is_script = match detail.spec.execution.work {
        Work::Script { .. } => true,
        Work::Tasks { .. } | Work::Nodes => false,
    };
    // A script runs on the first node as its only task.
    let node = line.nodes.first().map(String::as_str);
    if pattern::is_by_node(pattern) && (!is_script || node.is_none()) {
        return None;
    }
    let names = Names {
        job: line.job.0,
        job_name: &line.labels.name,
        user: &line.owner.0,
        node: node.unwrap_or_default(),
        node_idx: 0,
        task: 0,
        step: if is_script { None } else { Some(0) },
    };
    Some(Path::new(&detail.spec.execution.cwd).join(pattern::fill(pattern, &names)))
}

/// Writes the file to the standard output as it grows, until `ended` reports that nothing more comes.
///
/// # Errors
/// The directory cannot be watched, the output cannot be written, or `ended` fails.
pub async fn follow(path: &Path, ended: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut changes = watch(dir).map_err(|error| Failure::io(format!("{} cannot be watched", dir.display()), error))?;
    let mut tail = Tail { path: path.to_owned(), file: None };
    tokio::pin!(ended);
    loop {
        tail.copy()?;
        tokio::select! {
            over = &mut ended => {
                over?;
                return tail.copy();
            }
            // The watching thread ends only with the process; if it did earlier, the job's end would still be reported.
            Some(()) = changes.recv() => {}
        }
    }
}

/// Reports changes in a directory. One pending notice stands for all changes until it is read.
fn watch(dir: &Path) -> nix::Result<mpsc::Receiver<()>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    // The directory is watched, not the file, which may not exist yet or may be replaced.
    let kinds = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_TO;
    inotify.add_watch(dir, kinds)?;
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        while inotify.read_events().is_ok() && !sender.is_closed() {
            // If the channel is full, the reader will see everything written so far anyway.
            let _ = sender.try_send(());
        }
    });
    Ok(receiver)
}

struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    fn copy(&mut self) -> Result<(), Failure> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer);
            let n_bytes =
                read.map_err(|error| Failure::io(format!("{} cannot be read", self.path.display()), error))?;
            if n_bytes == 0 {
                return Ok(());
            }
            output::write_out(&buffer[..n_bytes])?;
        }
    }
}
