//! The directory of one supervisor: created once, renamed to each job's name and back, its files rewritten in place.
//!
//! Creating and deleting files is the largest disk cost of a short job, so a folder keeps its files. A rename onto an
//! existing folder fails, because none is ever empty: so the rename claims an execution.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rms_api::desired::{JobReport, Stay};
use rms_model::Work;
use serde::Serialize;

use super::hostfile::{self, HostFiles};
use crate::order::Order;
use crate::spool::{self, EntryRef, OutputManifest, ResultRef, Size};

/// The directory with a supervisor's socket and the files that must outlive an agent.
#[derive(Debug)]
pub struct Folder {
    /// Its path between jobs.
    seat: PathBuf,
    /// Its current path.
    dir: PathBuf,
    entry: Slot,
    openmpi: Slot,
    mpich: Slot,
    generation: Slot,
    /// Blank while there is no result: it reserves space on the disk while there is some.
    result: Slot,
    /// That of the job which has claimed the folder.
    stay: Stay,
    /// The job is forgotten, and the folder still has its name.
    is_free: bool,
}

/// A file that is rewritten for each job.
#[derive(Debug)]
struct Slot {
    file: File,
    len: usize,
    /// What [`write_once`](Slot::write_once) wrote last, and the file's size and time then: a job of the agent's own
    /// user may change the file.
    written: Option<(Vec<u8>, Size)>,
}

/// Longer files are truncated when something shorter follows.
const PADDED_TO: usize = 16 << 10;

/// More than what most results need.
const RESERVED: usize = 1 << 10;

/// Contents up to this size are remembered: hostfiles need not be written again for the next job on the same number of
/// nodes.
const KEPT_UP_TO: usize = 1 << 10;

impl Folder {
    /// Creates the directory of a new seat, in which its socket is bound.
    ///
    /// # Errors
    /// No space, or no permission.
    pub fn make_dir(seats_dir: &Path, name: &str) -> io::Result<()> {
        let dir = seats_dir.join(name);
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))
    }

    /// Creates the files in a directory that was created for this seat.
    ///
    /// # Errors
    /// No space, or no permission.
    pub fn open(seats_dir: &Path, name: &str) -> io::Result<Folder> {
        let seat = seats_dir.join(name);
        Ok(Folder {
            entry: Slot::make(&spool::entry_path(&seat), 0o600)?,
            openmpi: Slot::make(&seat.join("hosts.openmpi"), 0o644)?,
            mpich: Slot::make(&seat.join("hosts.mpich"), 0o644)?,
            generation: Slot::make(&seat.join("generation"), 0o644)?,
            result: Slot::blank(&spool::result_path(&seat), 0o600)?,
            stay: Stay::UNKNOWN,
            is_free: false,
            dir: seat.clone(),
            seat,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn host_files(&self) -> HostFiles {
        HostFiles::of(&self.dir)
    }

    /// Replaces the files after the nodes have changed, while processes may read them: each file is either old or new,
    /// and the generation is written last, so a reader that sees it finds the nodes of that generation.
    ///
    /// # Errors
    /// No space, or no permission.
    pub fn update(&mut self, entry: &EntryRef<'_>) -> io::Result<()> {
        let files = self.host_files();
        self.entry = Slot::replace(&spool::entry_path(&self.dir), &serde_json::to_vec(entry)?, 0o600)?;
        self.openmpi = Slot::replace(&files.openmpi, hostfile::openmpi(entry.order).as_bytes(), 0o644)?;
        self.mpich = Slot::replace(&files.mpich, hostfile::mpich(entry.order).as_bytes(), 0o644)?;
        self.generation = Slot::replace(&files.generation, hostfile::generation(entry.order).as_bytes(), 0o644)?;
        Ok(())
    }

    /// Writes what a later agent needs to know, and takes the execution's name. From then on the execution is known.
    ///
    /// # Errors
    /// `AlreadyExists` if another supervisor was faster, or no space.
    pub fn claim(&mut self, entry_dir: &Path, entry: &EntryRef<'_>) -> io::Result<()> {
        self.entry.write_json(entry)?;
        self.openmpi.write_once(hostfile::openmpi(entry.order).into_bytes())?;
        self.mpich.write_once(hostfile::mpich(entry.order).into_bytes())?;
        self.generation.write_once(hostfile::generation(entry.order).into_bytes())?;
        fs::rename(&self.dir, entry_dir).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => io::ErrorKind::AlreadyExists.into(),
            _other => error,
        })?;
        self.dir = entry_dir.to_owned();
        self.stay = entry.order.stay();
        self.is_free = false;
        Ok(())
    }

    /// # Errors
    /// No space.
    pub fn write_result(&mut self, report: &JobReport, written: Option<OutputManifest>) -> io::Result<()> {
        self.result.write_json(&ResultRef { report, stay: self.stay, written })
    }

    /// Removes what belonged to the job alone. [`return_to_seat`](Folder::return_to_seat) must follow, unless another
    /// job does: the folder is then renamed directly.
    ///
    /// # Errors
    /// The folder cannot be reused.
    pub fn free(&mut self, order: &Order) -> io::Result<()> {
        match order.launch.execution.work {
            Work::Script { .. } => {
                fs::remove_file(spool::script_path(&self.dir)).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _other => Err(error),
                })?
            }
            Work::Tasks { .. } | Work::Nodes => {}
        }
        self.is_free = true;
        Ok(())
    }

    /// Returns whether the folder still has the name of a forgotten job.
    pub fn is_free(&self) -> bool {
        self.is_free
    }

    /// Renames the folder back to the seat's name, if no job has taken it since it was freed.
    ///
    /// # Errors
    /// The folder cannot be reused.
    pub fn return_to_seat(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_free) {
            fs::rename(&self.dir, &self.seat)?;
            self.dir.clone_from(&self.seat);
        }
        Ok(())
    }

    /// Leaves everything but the socket to remaining readers, and continues with a new folder.
    ///
    /// # Errors
    /// No space, or no permission.
    pub fn start_anew(&mut self) -> io::Result<()> {
        let (Some(seats_dir), Some(name)) = (self.seat.parent(), self.seat.file_name().and_then(|name| name.to_str()))
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Folder::make_dir(seats_dir, name)?;
        fs::rename(spool::socket_path(&self.dir), spool::socket_path(&self.seat))?;
        *self = Folder::open(seats_dir, name)?;
        Ok(())
    }

    /// Removes the folder.
    pub fn remove(&self) {
        let _gone_already = fs::remove_dir_all(&self.dir);
    }
}

impl Slot {
    fn make(path: &Path, mode: u32) -> io::Result<Slot> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        // Regardless of the caller's umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(Slot { file, len: 0, written: None })
    }

    /// Creates a file of blanks for later contents.
    fn blank(path: &Path, mode: u32) -> io::Result<Slot> {
        let mut slot = Slot::make(path, mode)?;
        slot.write(&[b' '; RESERVED])?;
        Ok(slot)
    }

    /// Replaces a file that may be open for reading.
    fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<Slot> {
        let draft = path.with_extension("new");
        let _left_over = fs::remove_file(&draft);
        let mut slot = Slot::make(&draft, mode)?;
        slot.write(contents)?;
        fs::rename(&draft, path)?;
        Ok(slot)
    }

    /// Writes the contents unless they are what was written last.
    fn write_once(&mut self, contents: Vec<u8>) -> io::Result<()> {
        if let Some((written, size)) = &self.written
            && *written == contents
            && Size::of(&self.file.metadata()?) == *size
        {
            return Ok(());
        }
        self.written = None;
        self.write(&contents)?;
        if contents.len() <= KEPT_UP_TO {
            self.written = Some((contents, Size::of(&self.file.metadata()?)));
        }
        Ok(())
    }

    fn write(&mut self, contents: &[u8]) -> io::Result<()> {
        // A write that fails half-way leaves an unknown length.
        let before = std::mem::replace(&mut self.len, usize::MAX);
        self.file.write_all_at(contents, 0)?;
        if contents.len() < before {
            self.file.set_len(contents.len() as u64)?;
        }
        self.len = contents.len();
        Ok(())
    }

    /// Writes in one piece: the rest of longer contents is overwritten with blanks, which JSON ignores.
    fn write_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut contents = serde_json::to_vec(value).map_err(io::Error::other)?;
        if contents.len() < self.len && self.len <= PADDED_TO {
            contents.resize(self.len, b' ');
        }
        self.write(&contents)
    }
}

#[cfg(test)]
mod tests {
    use rms_api::desired::{JobStatus, NodeExit};
    use rms_model::{JobId, Run, Time, Usage};

    use super::*;
    use crate::cgroup::Cgroup;
    use crate::order::tests::order;
    use crate::spool::Spool;

    /// Returns a folder in a spool of its own.
    fn opened() -> (tempfile::TempDir, Spool, Folder) {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::create(dir.path()).expect("a spool");
        Folder::make_dir(&spool.seats_dir(), "s").expect("made");
        let folder = Folder::open(&spool.seats_dir(), "s").expect("opened");
        (dir, spool, folder)
    }

    fn result(job: u64, reason: &str) -> JobReport {
        let exit = NodeExit::not_started(reason);
        let status = JobStatus::Ended { at: Time::EPOCH, exit, usage: Usage::default() };
        JobReport { job: JobId(job), run: Run(1), status }
    }

    #[test]
    fn a_result_is_read_whole_and_never_as_that_of_another_job() {
        let (_dir, _spool, mut folder) = opened();
        for (job, reason) in [(1, "a long reason, which is longer than the next one"), (2, "short"), (3, "longer")] {
            folder.write_result(&result(job, reason), None).expect("written");
            let read = |job| spool::read_result(folder.dir(), JobId(job), Run(1));
            assert_eq!(read(job).expect("there"), result(job, reason));
            assert!(read(job + 1).is_err(), "the next job has not ended yet");
        }
    }

    #[test]
    fn a_result_takes_no_more_of_the_disk_than_was_taken_before_its_job() {
        let (_dir, _spool, mut folder) = opened();
        let path = spool::result_path(folder.dir());
        let size = || fs::metadata(&path).expect("there").len();
        assert!(spool::read_result(folder.dir(), JobId(1), Run(1)).is_err(), "no job has ended");
        let before = size();
        folder.write_result(&result(1, "no such program"), None).expect("written");
        assert_eq!((size(), before), (RESERVED as u64, RESERVED as u64));
    }

    fn claim(folder: &mut Folder, spool: &Spool, job: u64) -> io::Result<()> {
        let order = Order { job: JobId(job), ..order([test_kit::place("a1")]) };
        let cgroup = Cgroup::none();
        let entry = EntryRef { order: &order, boot: "", cgroup: &cgroup, seat: "s", supervisor: 1 };
        folder.claim(&spool.entry_dir(order.job, order.run), &entry)?;
        folder.free(&order)
    }

    #[test]
    fn the_result_of_a_job_that_has_left_is_not_that_of_its_return() {
        let (_dir, spool, mut folder) = opened();
        let mut order = order([test_kit::place("a1")]);
        let (job, run, cgroup) = (order.job, order.run, Cgroup::none());
        let entry_dir = spool.entry_dir(job, run);
        for joined in [1, 4] {
            std::sync::Arc::make_mut(&mut order.launch).nodes[0].joined = joined;
            let entry = EntryRef { order: &order, boot: "", cgroup: &cgroup, seat: "s", supervisor: 1 };
            folder.claim(&entry_dir, &entry).expect("nobody else has it");
            assert!(spool::read_result(&entry_dir, job, run).is_err(), "stay {joined} has not ended");
            assert!(spool.is_any_going_on().expect("readable"));
            let report = JobReport { job, run, ..result(job.0, "left") };
            folder.write_result(&report, None).expect("written");
            assert_eq!(spool::read_result(&entry_dir, job, run).expect("there"), report);
            folder.free(&order).expect("freed");
            folder.return_to_seat().expect("at its seat");
        }
    }

    #[test]
    fn a_folder_goes_from_job_to_job_and_home_when_no_other_follows() {
        let (_dir, spool, mut folder) = opened();
        let is_at_home = || spool.seats_dir().join("s").is_dir();
        let jobs = || spool.entries().expect("readable").into_iter().map(|(job, ..)| job.0).collect::<Vec<_>>();
        for job in [1, 2] {
            claim(&mut folder, &spool, job).expect("nobody else has it");
            assert_eq!((jobs(), is_at_home(), folder.is_free()), (vec![job], false, true));
        }
        folder.return_to_seat().expect("home");
        assert_eq!((jobs(), is_at_home(), folder.is_free()), (vec![], true, false));
        folder.return_to_seat().expect("it is there");

        // Another supervisor has claimed the third and works on it.
        std::fs::create_dir(spool.jobs_dir().join("3.1")).expect("made");
        std::fs::write(spool.jobs_dir().join("3.1/entry"), "").expect("written");
        claim(&mut folder, &spool, 4).expect("nobody else has it");
        let refused = claim(&mut folder, &spool, 3).expect_err("it is another's");
        assert_eq!((refused.kind(), folder.is_free()), (io::ErrorKind::AlreadyExists, true));
        folder.return_to_seat().expect("home");
        assert_eq!((jobs(), is_at_home()), (vec![3], true));
    }

    #[test]
    fn host_files_are_written_anew_only_if_they_are_not_what_they_should_be() {
        let (_dir, spool, mut folder) = opened();
        let mut written = Vec::new();
        for job in 1..=4 {
            // The kernel's clock for files has a coarse resolution.
            std::thread::sleep(std::time::Duration::from_millis(20));
            claim(&mut folder, &spool, job).expect("nobody else has it");
            let path = folder.host_files().openmpi;
            assert_eq!(fs::read_to_string(&path).expect("readable"), "# generation 1\na1 slots=1\n");
            written.push(fs::metadata(&path).expect("there").modified().expect("known"));
            if job == 3 {
                // A job of the agent's own user may do so.
                fs::write(&path, "a1 slots=64\n").expect("writable");
            }
        }
        assert_eq!((written[0], written[1]), (written[1], written[2]));
        assert!(written[3] > written[2]);
    }
}
