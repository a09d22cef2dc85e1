//! Notices when a node can start no job, and when it can again: the server gives it none in between.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;

use crate::supervisor::tree;

/// What keeps a node from starting jobs.
#[derive(Debug)]
pub struct Trouble {
    spool: PathBuf,
    is_full: bool,
    /// Starts in a row that failed for no fault of the jobs, and why the last one did.
    n_faults: u32,
    fault: Option<Fault>,
    /// Processes of jobs that do not die.
    undead: Vec<Pid>,
}

#[derive(Debug)]
struct Fault {
    reason: String,
    at: Instant,
}

/// One may be a coincidence.
const MOST_FAULTS: u32 = 3;
/// After that a node tries again; the next fault is enough then.
const PAUSE: Duration = Duration::from_secs(60);
/// With less space, or less than the fiftieth part of the disk if that is less, a spool is full.
const LEAST_BYTES: u64 = 16 << 20;
const LEAST_PART: u64 = 50;

impl Trouble {
    pub fn new(spool: PathBuf) -> Trouble {
        Trouble { spool, is_full: false, n_faults: 0, fault: None, undead: Vec::new() }
    }

    /// A job could not be started, and it was not its own fault.
    pub fn fault(&mut self, reason: &str, now: Instant) {
        self.n_faults += 1;
        self.fault = Some(Fault { reason: reason.to_owned(), at: now });
    }

    /// A job was started.
    pub fn started(&mut self) {
        self.n_faults = 0;
        self.fault = None;
    }

    /// Processes are left of a job that cannot be killed.
    pub fn haunted(&mut self, undead: impl IntoIterator<Item = Pid>) {
        self.undead.extend(undead);
    }

    /// Looks at the disk, at those that did not die, and at the clock.
    pub fn look(&mut self, now: Instant) {
        if let Ok(disk) = statvfs(&self.spool) {
            let part = disk.fragment_size();
            let (free, all) = (disk.blocks_available() * part, disk.blocks() * part);
            let least = LEAST_BYTES.min(all / LEAST_PART);
            // One that hardly has room again would be full with the next job.
            let least = if self.is_full { 2 * least } else { least };
            // Some file systems count no files.
            let has_files = disk.files() == 0 || disk.files_available() > 64;
            self.is_full = free < least || !has_files;
        }
        self.undead.retain(|pid| !tree::is_dead(*pid));
        let has_waited = self.fault.as_ref().is_some_and(|fault| now.saturating_duration_since(fault.at) >= PAUSE);
        if self.n_faults >= MOST_FAULTS && has_waited {
            self.n_faults = MOST_FAULTS - 1;
        }
    }

    /// Why no job should come, and what to do.
    pub fn reason(&self) -> Option<String> {
        if self.is_full {
            let spool = self.spool.display();
            return Some(format!("the disk of its spool {spool} is full; make room, and it resumes by itself"));
        }
        if let [first, ..] = self.undead.as_slice() {
            let n = self.undead.len();
            return Some(format!(
                "{n} processes of an ended job cannot be killed (process {first}); restart the node, or end what they wait for"
            ));
        }
        let fault = self.fault.as_ref().filter(|_| self.n_faults >= MOST_FAULTS)?;
        Some(format!("several jobs in a row could not be started here: {}; it tries again each minute", fault.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_a_row_are_trouble_until_a_start_or_a_pause() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut trouble = Trouble::new(dir.path().to_owned());
        let begin = Instant::now();
        let fail = |trouble: &mut Trouble, n: u32| (0..n).for_each(|_| trouble.fault("no more processes", begin));
        fail(&mut trouble, 2);
        trouble.started();
        fail(&mut trouble, 2);
        assert_eq!(trouble.reason(), None, "a job was started between them");
        fail(&mut trouble, 1);
        assert!(trouble.reason().is_some_and(|reason| reason.contains("no more processes")), "{trouble:?}");
        trouble.look(begin + PAUSE / 2);
        assert!(trouble.reason().is_some());
        trouble.look(begin + PAUSE);
        assert_eq!(trouble.reason(), None, "it tries again");
        fail(&mut trouble, 1);
        assert!(trouble.reason().is_some(), "nothing has changed");
    }

    #[test]
    fn undead_processes_are_trouble_for_as_long_as_they_are_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut trouble = Trouble::new(dir.path().to_owned());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        trouble.haunted([Pid::from_raw(child.id() as i32)]);
        trouble.look(Instant::now());
        assert!(trouble.reason().is_some_and(|reason| reason.contains(&child.id().to_string())), "{trouble:?}");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        trouble.look(Instant::now());
        assert_eq!(trouble.reason(), None);
    }
}
