//! The output file of a batch job: its name, and reading it while it grows.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rms_core::effect::JobDetail;
use tokio::io::unix::AsyncFd;

use crate::failure::Failure;
use crate::output;

/// The one file that the job writes its output to; `None` if the name depends on the task.
pub fn path(detail: &JobDetail) -> Option<PathBuf> {
    let line = &detail.line;
    let pattern = detail.spec.stdio.output.as_deref()?;
    let mut name = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            name.push(c);
            continue;
        }
        match chars.next()? {
            'j' => name += &line.job.to_string(),
            'x' => name += &line.name,
            'u' => name += &line.owner.0,
            '%' => name.push('%'),
            // A script runs on the first node as its only task.
            'N' if is_script(detail) => name += line.nodes.first()?,
            'n' | 't' if is_script(detail) => name.push('0'),
            _ => return None,
        }
    }
    Some(Path::new(&detail.spec.cwd).join(name))
}

fn is_script(detail: &JobDetail) -> bool {
    match detail.spec.work {
        rms_model::Work::Script { .. } => true,
        rms_model::Work::Tasks { .. } => false,
    }
}

/// Writes the file to our standard output as it grows, until `ended` says that nothing more comes.
///
/// # Errors
/// A directory that cannot be watched, an output that takes nothing, or what `ended` reports.
pub async fn follow(path: &Path, ended: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let of_watch = |error: &dyn std::fmt::Display| Failure::io(format!("{} cannot be watched", dir.display()), error);
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(|error| of_watch(&error))?;
    // The directory, not the file: it may not be there yet, or be made anew.
    let kinds = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_TO;
    inotify.add_watch(dir, kinds).map_err(|error| of_watch(&error))?;
    let handle: OwnedFd = inotify.as_fd().try_clone_to_owned().map_err(|error| of_watch(&error))?;
    let readable = AsyncFd::register(handle).map_err(|error| of_watch(&error))?;
    let mut tail = Tail { path: path.to_owned(), file: None };
    tokio::pin!(ended);
    loop {
        tail.copy()?;
        tokio::select! {
            over = &mut ended => {
                over?;
                return tail.copy();
            }
            ready = readable.readable() => {
                let mut ready = ready.map_err(|error| of_watch(&error))?;
                // What the events say does not matter: the file is read to its end after each.
                while inotify.read_events().is_ok() {}
                ready.clear_ready();
            }
        }
    }
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
            let n_bytes = read.map_err(|error| Failure::io(format!("{} cannot be read", self.path.display()), error))?;
            if n_bytes == 0 {
                return Ok(());
            }
            output::write_out(&buffer[..n_bytes])?;
        }
    }
}
