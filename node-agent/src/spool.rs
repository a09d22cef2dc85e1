//! The files that outlive an agent: one directory for each execution of a job on this node.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use rms_api::desired::{JobReport, Stay};
use rms_model::{JobId, Run};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cgroup::Cgroup;
use crate::order::Order;

/// The directories of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    dir: PathBuf,
}

/// What a later agent needs to know about an execution; written before anything is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub order: Order,
    /// The boot in which the execution was started: after a reboot nothing of it is left.
    pub boot: String,
    pub cgroup: Cgroup,
    pub seat: String,
    /// The process id of the supervisor.
    pub supervisor: i32,
}

/// An [`Entry`] by reference, for writing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EntryRef<'a> {
    pub order: &'a Order,
    pub boot: &'a str,
    pub cgroup: &'a Cgroup,
    pub seat: &'a str,
    pub supervisor: i32,
}

/// Why a directory of the agent cannot be used.
#[derive(Debug, Error)]
pub enum SpoolError {
    #[error("{} is not a directory: move it away, or choose another directory with --dir", .0.display())]
    NotDirectory(PathBuf),
    #[error("cannot make {}: {}", path.display(), match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "its file system is mounted read-only; remount it, and start the agent again",
        _ => "choose another directory with --dir",
    })]
    Make { path: PathBuf, source: io::Error },
}

impl Spool {
    /// Creates the directories under the agent's directory. Users must be able to reach their scripts, node files and
    /// the agent's socket, so the path may be traversed but not listed.
    ///
    /// # Errors
    /// No permission, no space, or something else than a directory is there.
    pub fn create(agent_dir: &Path) -> Result<Spool, SpoolError> {
        make_dir(agent_dir)?;
        let spool = Spool { dir: agent_dir.join("spool") };
        spool.make()?;
        Ok(spool)
    }

    /// Creates the missing directories.
    ///
    /// # Errors
    /// See [`create`](Spool::create).
    pub fn make(&self) -> Result<(), SpoolError> {
        [self.dir.clone(), self.jobs_dir(), self.seats_dir(), self.keys_dir()]
            .iter()
            .try_for_each(|path| make_dir(path))
    }

    /// Returns whether the directories exist: somebody may have deleted them.
    pub fn is_whole(&self) -> bool {
        self.jobs_dir().is_dir() && self.seats_dir().is_dir()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn jobs_dir(&self) -> PathBuf {
        self.dir.join("jobs")
    }

    pub fn seats_dir(&self) -> PathBuf {
        self.dir.join("seats")
    }

    /// Returns the directory of the keys of jobs that negotiate.
    pub fn keys_dir(&self) -> PathBuf {
        self.dir.join("keys")
    }

    pub fn entry_dir(&self, job: JobId, run: Run) -> PathBuf {
        self.jobs_dir().join(entry_name(job, run))
    }

    /// Returns the executions that have an entry.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn entries(&self) -> io::Result<Vec<(JobId, Run, PathBuf)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.jobs_dir())? {
            let entry = entry?;
            if let Some((job, run)) = entry.file_name().to_str().and_then(parse_entry_name) {
                entries.push((job, run, entry.path()));
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Returns whether any execution may still run. An execution whose result is written has ended; only its entry is
    /// not removed yet.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn is_any_going_on(&self) -> io::Result<bool> {
        Ok(self.entries()?.iter().any(|(job, run, entry_dir)| read_result(entry_dir, *job, *run).is_err()))
    }
}

pub fn entry_name(job: JobId, run: Run) -> String {
    format!("{job}.{run}")
}

pub fn parse_entry_name(name: &str) -> Option<(JobId, Run)> {
    let (job, run) = name.split_once('.')?;
    Some((JobId(job.parse().ok()?), Run(run.parse().ok()?)))
}

/// Returns the bytes that the files in and below a directory take. A job with more than [`MOST_ENTRIES`] files counts
/// as having exceeded any quota.
pub fn bytes_in(dir: &Path) -> u64 {
    let (mut n_bytes, mut n_entries) = (0, 0);
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            n_entries += 1;
            if n_entries > MOST_ENTRIES {
                return u64::MAX;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            // A sparse file takes less than its length.
            n_bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    n_bytes
}

pub const MOST_ENTRIES: usize = 10_000;

/// Returns a tenth of the disk: the default limit for what a job may leave in the spool.
pub fn share_of_disk(dir: &Path) -> u64 {
    statvfs(dir).map_or(u64::MAX, |disk| disk.blocks() * disk.fragment_size() / 10)
}

/// Writes a file atomically: it exists as a whole or not at all.
///
/// # Errors
/// No space, or no permission.
pub fn write_whole(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let draft = path.with_extension("new");
    let _left_over = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    io::Write::write_all(&mut file, contents)?;
    fs::rename(&draft, path)
}

/// Makes a file of an entry durable, including its name and that of the entry.
///
/// # Errors
/// The disk fails.
pub fn sync(path: &Path) -> io::Result<()> {
    path.ancestors().take(3).try_for_each(|path| fs::File::open(path)?.sync_all())
}

pub fn entry_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("entry")
}

pub fn read_entry(entry_dir: &Path) -> io::Result<Entry> {
    serde_json::from_slice(&fs::read(entry_path(entry_dir))?).map_err(io::Error::other)
}

pub fn result_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("result")
}

/// The streams left by an execution, as its supervisor saw them when the last process had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputManifest {
    /// The disk was full while the job ran, so some of its output may be missing.
    pub was_full: bool,
    pub streams: Vec<ManifestEntry>,
}

/// One stream. It has no size if its file no longer existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    pub task: u32,
    pub is_error: bool,
    pub size: Option<Size>,
}

/// Size and modification time, which tell whether a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub n_bytes: u64,
    /// The time of the last change, in seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl Size {
    pub fn of(metadata: &fs::Metadata) -> Size {
        Size { n_bytes: metadata.len(), changed: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl OutputManifest {
    /// Collects the sizes of the streams of these tasks.
    pub fn collect(entry_dir: &Path, tasks: impl Iterator<Item = u32>, was_full: bool) -> OutputManifest {
        let streams = tasks.flat_map(|task| {
            [("out", false), ("err", true)].map(|(name, is_error)| {
                let found = fs::metadata(stream_path(entry_dir, name, task)).ok();
                ManifestEntry { task, is_error, size: found.as_ref().map(Size::of) }
            })
        });
        OutputManifest { was_full, streams: streams.collect() }
    }

    pub fn stream(&self, task: u32, is_error: bool) -> Option<&ManifestEntry> {
        self.streams.iter().find(|stream| (stream.task, stream.is_error) == (task, is_error))
    }
}

/// How an execution ended, with its streams if they are kept for followers.
#[derive(Debug, Serialize)]
pub struct ResultRef<'a> {
    #[serde(flatten)]
    pub report: &'a JobReport,
    /// A supervisor may serve a job that has returned to the node: what it wrote at the end of the first stay is there
    /// until the second one ends.
    pub stay: Stay,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<OutputManifest>,
}

/// Returns the streams that a finished execution has left; `None` if no supervisor observed its end.
///
/// # Errors
/// See [`read_result`].
pub fn read_manifest(entry_dir: &Path, job: JobId, run: Run) -> io::Result<Option<OutputManifest>> {
    #[derive(Deserialize)]
    struct Result {
        #[serde(default)]
        written: Option<OutputManifest>,
    }
    read_result(entry_dir, job, run)?;
    let result: Result = serde_json::from_slice(&fs::read(result_path(entry_dir))?).map_err(io::Error::other)?;
    Ok(result.written)
}

/// Returns whether the disk is full for the writing user. A part of it is reserved for root.
pub fn is_out_of_room(dir: &Path, is_root: bool) -> bool {
    let Ok(disk) = statvfs(dir) else { return false };
    let free = if is_root { disk.blocks_free() } else { disk.blocks_available() };
    free * disk.fragment_size() < LEAST_ROOM
}

/// The disk counts as full below this: a program that writes until it fails leaves less.
const LEAST_ROOM: u64 = 256 << 10;

/// Writes how an execution ended, in place of its supervisor.
///
/// # Errors
/// The disk fails.
pub fn write_result(entry_dir: &Path, report: &JobReport) -> io::Result<()> {
    let result = ResultRef { report, stay: stay_in(entry_dir, report.job, report.run), written: None };
    write_whole(&result_path(entry_dir), &serde_json::to_vec(&result).map_err(io::Error::other)?, 0o600)
}

/// Reads how an execution ended.
///
/// # Errors
/// The execution has not ended: there is no result, or only that of the supervisor's previous job, or of an earlier stay
/// of this one.
pub fn read_result(entry_dir: &Path, job: JobId, run: Run) -> io::Result<JobReport> {
    #[derive(Deserialize)]
    struct Result {
        #[serde(flatten)]
        report: JobReport,
        /// Older supervisors write none.
        stay: Option<Stay>,
    }
    let Result { report, stay } =
        serde_json::from_slice(&fs::read(result_path(entry_dir))?).map_err(io::Error::other)?;
    let is_before = stay.is_some_and(|stay| stay.is_before(stay_in(entry_dir, job, run)));
    let is_its_own = (report.job, report.run) == (job, run) && !is_before;
    if is_its_own { Ok(report) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Returns the stay of the execution whose entry this is; unknown if the entry cannot be read.
fn stay_in(entry_dir: &Path, job: JobId, run: Run) -> Stay {
    let entry = read_entry(entry_dir).ok().filter(|entry| (entry.order.job, entry.order.run) == (job, run));
    entry.map_or(Stay::UNKNOWN, |entry| entry.order.stay())
}

/// Writes how many steps of the job were requested here.
///
/// # Errors
/// The disk fails.
pub fn write_steps(entry_dir: &Path, n_steps: u32) -> io::Result<()> {
    write_whole(&entry_dir.join(STEPS), n_steps.to_string().as_bytes(), 0o600)
}

/// Reads how many steps of the job were requested here; 0 if nothing was written.
pub fn read_steps(entry_dir: &Path) -> u32 {
    fs::read_to_string(entry_dir.join(STEPS)).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

const STEPS: &str = "steps";

/// Returns the path of the script of a job, executable for its owner.
pub fn script_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("script")
}

pub fn socket_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("control.sock")
}

/// Returns the path of the socket to which programs connect that follow the CPUs of their job.
pub fn malleable_socket_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("malleable.sock")
}

/// Returns the path of the mark of an entry whose result the server has, but whose streams may still be read.
pub fn forgotten_path(entry_dir: &Path) -> PathBuf {
    entry_dir.join("forgotten")
}

/// Marks an entry as one whose result the server has.
///
/// # Errors
/// The disk fails.
pub fn mark_forgotten(entry_dir: &Path) -> io::Result<()> {
    fs::write(forgotten_path(entry_dir), "")
}

/// Returns the file in which a task's stream is kept for followers.
pub fn stream_path(entry_dir: &Path, stream: &str, task: u32) -> PathBuf {
    entry_dir.join(format!("{stream}.{task}"))
}

/// Returns the tasks whose streams are kept in an entry, in ascending order.
pub fn stream_tasks(entry_dir: &Path) -> Vec<u32> {
    let Ok(files) = fs::read_dir(entry_dir) else { return Vec::new() };
    let task = |file: fs::DirEntry| file.file_name().to_str()?.strip_prefix("out.")?.parse().ok();
    let mut tasks: Vec<u32> = files.filter_map(Result::ok).filter_map(task).collect();
    tasks.sort_unstable();
    tasks
}

/// Returns the id of the current boot, which is unique.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Binds a socket at a path that may be longer than a Unix socket address can hold.
///
/// # Errors
/// See bind(2).
pub fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let _left_over = fs::remove_file(path);
    if path.is_dir() {
        // bind(2) would say that the address is in use, as if an agent were running.
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (_dir, short) = short_path(path)?;
    let listener = UnixListener::bind(short)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Like [`bind_socket`], for a socket to which every user may connect.
///
/// # Errors
/// See bind(2).
pub fn bind_socket_for_all(path: &Path) -> io::Result<UnixListener> {
    let listener = bind_socket(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Removes a directory with everything in it, if it is there.
///
/// # Errors
/// Something in it cannot be removed.
pub fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn make_dir(path: &Path) -> Result<(), SpoolError> {
    let made = fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)));
    made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => SpoolError::NotDirectory(path.to_owned()),
        _other => SpoolError::Make { path: path.to_owned(), source },
    })
}

/// Connects to a socket at a path of any length.
///
/// # Errors
/// See connect(2).
pub fn connect_socket(path: &Path) -> io::Result<UnixStream> {
    let (_dir, short) = short_path(path)?;
    UnixStream::connect(short)
}

/// Returns a path to the same file through an open directory; valid as long as the directory is kept open.
///
/// # Errors
/// The directory cannot be opened.
pub fn short_path(path: &Path) -> io::Result<(Option<fs::File>, PathBuf)> {
    const MAX_ADDRESS: usize = 107;
    if path.as_os_str().len() <= MAX_ADDRESS {
        return Ok((None, path.to_owned()));
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = fs::File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((Some(dir), short))
}

#[cfg(test)]
mod tests {
    use rms_api::desired::{JobStatus, NodeExit};
    use rms_model::{Time, Usage};

    use super::*;

    #[test]
    fn a_socket_at_a_long_path_can_be_bound_and_reached() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).expect("directories");
        let path = deep.join("control.sock");
        let listener = bind_socket(&path).expect("bound");
        connect_socket(&path).expect("connected");
        drop(listener);
        assert_eq!(connect_socket(&path).expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_directory_in_the_place_of_a_socket_is_no_running_agent() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.sock");
        fs::create_dir_all(path.join("not-empty")).expect("directories");
        assert_eq!(bind_socket(&path).expect_err("it is in the way").kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_named() {
        for place in ["spool", "spool/jobs"] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join(place);
            fs::create_dir_all(path.parent().expect("one")).expect("a directory");
            fs::write(&path, "").expect("written");
            let error = Spool::create(dir.path()).expect_err("it is in the way").to_string();
            assert!(error.starts_with(&format!("{} is not a directory: move it away", path.display())), "{error}");
        }
    }

    #[test]
    fn an_execution_whose_result_is_written_does_not_go_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::create(dir.path()).expect("created");
        assert!(!spool.is_any_going_on().expect("readable"));
        let entry_dir = spool.entry_dir(JobId(7), Run(2));
        fs::create_dir(&entry_dir).expect("an entry");
        assert!(spool.is_any_going_on().expect("readable"));
        fs::write(result_path(&entry_dir), "  ").expect("written");
        assert!(spool.is_any_going_on().expect("readable"), "nothing is in it yet");
        let status = JobStatus::Ended { at: Time::EPOCH, exit: NodeExit::WallTime, usage: Usage::default() };
        write_result(&entry_dir, &JobReport { job: JobId(7), run: Run(2), status }).expect("written");
        assert!(!spool.is_any_going_on().expect("readable"));
    }

    #[test]
    fn entries_are_found_by_their_names_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::create(dir.path()).expect("created");
        fs::create_dir(spool.entry_dir(JobId(7), Run(2))).expect("an entry");
        fs::create_dir(spool.jobs_dir().join("lost+found")).expect("something else");
        let found: Vec<_> = spool.entries().expect("readable").into_iter().map(|(job, run, _)| (job, run)).collect();
        assert_eq!(found, [(JobId(7), Run(2))]);
    }
}
