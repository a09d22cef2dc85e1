//! Detects when a node cannot start jobs, and when it can again: the server places none there in between.

use rms_model::{Span, Time};

use super::message::Look;

/// What keeps a node from starting jobs.
#[derive(Debug)]
pub struct NodeHealth {
    spool: String,
    is_full: bool,
    is_read_only: bool,
    /// The number of consecutive starts that failed through no fault of the jobs, and the last failure.
    n_faults: u32,
    fault: Option<Fault>,
    /// Processes of jobs that cannot be killed.
    unkillable: Vec<i32>,
    /// Another problem that the agent has detected.
    problem: Option<String>,
}

#[derive(Debug)]
struct Fault {
    reason: String,
    at: Time,
}

/// A single failed start may be a coincidence.
const MAX_FAULTS: u32 = 3;
/// After this pause the node tries again; then a single fault is enough.
const PAUSE: Span = Span::from_secs(60);
/// A spool is full if less is free than this, or than one fiftieth of the disk if that is less.
const MIN_FREE_BYTES: u64 = 16 << 20;
const MIN_FREE_PART: u64 = 50;

impl NodeHealth {
    pub fn new(spool: String) -> NodeHealth {
        NodeHealth {
            spool,
            is_full: false,
            is_read_only: false,
            n_faults: 0,
            fault: None,
            unkillable: Vec::new(),
            problem: None,
        }
    }

    /// Records a failed start that was not the job's fault.
    pub fn start_failed(&mut self, reason: &str, now: Time) {
        self.n_faults += 1;
        self.fault = Some(Fault { reason: reason.to_owned(), at: now });
    }

    /// Returns whether the disk of the spool was full when it was last checked.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Records a successful start.
    pub fn start_succeeded(&mut self) {
        self.n_faults = 0;
        self.fault = None;
    }

    /// Adds processes of a job that cannot be killed.
    pub fn add_unkillable(&mut self, pids: impl IntoIterator<Item = i32>) {
        self.unkillable.extend(pids);
    }

    /// Returns the processes that could not be killed.
    pub fn unkillable(&self) -> &[i32] {
        &self.unkillable
    }

    /// Handles the result of a check of the disk and of the remaining processes.
    pub fn update(&mut self, look: &Look) {
        if let Some(disk) = look.disk {
            let least = MIN_FREE_BYTES.min(disk.size / MIN_FREE_PART);
            // A disk with hardly any room would be full again with the next job.
            let least = if self.is_full { 2 * least } else { least };
            self.is_full = disk.free < least || !disk.has_files;
            self.is_read_only = disk.is_read_only;
        }
        self.unkillable.retain(|pid| look.unkillable.contains(pid));
        self.problem.clone_from(&look.problem);
    }

    /// Lets the node try again after a pause.
    pub fn on_time(&mut self, now: Time) {
        let has_waited = self.fault.as_ref().is_some_and(|fault| now.since(fault.at) >= PAUSE);
        if self.n_faults >= MAX_FAULTS && has_waited {
            self.n_faults = MAX_FAULTS - 1;
        }
    }

    /// Returns why no job should be placed here, and what to do.
    pub fn reason(&self) -> Option<String> {
        if self.is_read_only {
            let spool = &self.spool;
            return Some(format!(
                "the disk of its spool {spool} is mounted read-only, as after an error of the disk; repair it and remount it \
                 (mount -o remount,rw), and it resumes by itself"
            ));
        }
        if self.is_full {
            let spool = &self.spool;
            return Some(format!("the disk of its spool {spool} is full; make room, and it resumes by itself"));
        }
        if let [first, ..] = self.unkillable.as_slice() {
            let n = self.unkillable.len();
            return Some(format!(
                "{n} processes of an ended job cannot be killed (process {first}); restart the node, or end what they wait for"
            ));
        }
        if self.problem.is_some() {
            return self.problem.clone();
        }
        let fault = self.fault.as_ref().filter(|_| self.n_faults >= MAX_FAULTS)?;
        Some(format!("several jobs in a row could not be started here: {}; it tries again each minute", fault.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Disk;
    use super::*;

    #[test]
    fn faults_in_a_row_are_trouble_until_a_start_or_a_pause() {
        let mut health = NodeHealth::new("/spool".to_owned());
        let begin = Time::from_secs(1000);
        let fail =
            |health: &mut NodeHealth, n: u32| (0..n).for_each(|_| health.start_failed("no more processes", begin));
        fail(&mut health, 2);
        health.start_succeeded();
        fail(&mut health, 2);
        assert_eq!(health.reason(), None, "a job was started between them");
        fail(&mut health, 1);
        assert!(health.reason().is_some_and(|reason| reason.contains("no more processes")), "{health:?}");
        health.on_time(begin + Span::from_secs(30));
        assert!(health.reason().is_some());
        health.on_time(begin + PAUSE);
        assert_eq!(health.reason(), None, "it tries again");
        fail(&mut health, 1);
        assert!(health.reason().is_some(), "nothing has changed");
    }

    #[test]
    fn undead_processes_are_trouble_for_as_long_as_they_are_there() {
        let mut health = NodeHealth::new("/spool".to_owned());
        health.add_unkillable([41, 42]);
        health.update(&Look { unkillable: vec![42], ..Look::default() });
        assert!(health.reason().is_some_and(|reason| reason.contains("42")), "{health:?}");
        health.update(&Look::default());
        assert_eq!(health.reason(), None);
    }

    #[test]
    fn what_the_agent_sees_is_trouble_until_it_sees_it_no_more() {
        let mut health = NodeHealth::new("/spool".to_owned());
        health.update(&Look { problem: Some("a device is gone".to_owned()), ..Look::default() });
        assert_eq!(health.reason().as_deref(), Some("a device is gone"));
        health.update(&Look::default());
        assert_eq!(health.reason(), None);
    }

    fn empty_disk() -> Disk {
        Disk { size: 1 << 40, free: 1 << 40, has_files: true, is_out_of_room: false, is_read_only: false }
    }

    #[test]
    fn a_read_only_disk_is_trouble_until_it_can_be_written() {
        let mut health = NodeHealth::new("/spool".to_owned());
        let begin = Time::from_secs(1000);
        health.update(&Look { disk: Some(Disk { is_read_only: true, ..empty_disk() }), ..Look::default() });
        let reason = health.reason().expect("no job can start");
        assert!(reason.contains("/spool") && reason.contains("read-only") && reason.contains("remount"), "{reason}");
        health.on_time(begin + PAUSE);
        assert_eq!(health.reason(), Some(reason), "it does not pass with time");
        health.update(&Look { disk: Some(empty_disk()), ..Look::default() });
        assert_eq!(health.reason(), None);
    }

    #[test]
    fn a_full_disk_is_trouble_until_it_has_twice_the_room() {
        let mut health = NodeHealth::new("/spool".to_owned());
        let mut is_full = |free_mib: u64| {
            let disk = Disk { free: free_mib << 20, ..empty_disk() };
            health.update(&Look { disk: Some(disk), ..Look::default() });
            health.reason().is_some()
        };
        assert_eq!([17, 15, 17, 33].map(&mut is_full), [false, true, true, false]);
    }
}
