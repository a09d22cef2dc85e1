//! A disk that is full: nothing is acknowledged that is not durable, and it goes on once there is space.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rms_server::journal::{AppendError, FactLog, SnapshotPolicy};

use crate::story::{facts, replayed};

#[test]
fn a_full_disk_refuses_appends_until_there_is_space_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    if let Err(reason) = mount_small_disk(dir.path()) {
        println!("skipped: {reason}");
        return;
    }
    let path = dir.path().join("journal.db");
    fs::write(dir.path().join("ballast"), vec![0; 1024 * 1024]).expect("half the disk");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    let mut n_durable = 0;
    let error = loop {
        match log.append(&facts(n_durable..n_durable + 100)) {
            Ok(()) => n_durable += 100,
            Err(error) => break error,
        }
        assert!(n_durable < 100_000, "the disk never filled up");
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space is left for the journal"), "{error}");
    // Still full: still refused, and the log has not moved.
    assert!(log.append(&facts(n_durable..n_durable + 100)).is_err());
    assert_eq!(log.last_seq(), n_durable);

    fs::remove_file(dir.path().join("ballast")).expect("a ballast");
    log.append(&facts(n_durable..n_durable + 100)).expect("space again");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..n_durable + 100));
}

/// Mounts two MiB at `dir`, for this thread and its children alone; it goes with them.
pub fn mount_small_disk(dir: &Path) -> Result<(), String> {
    let needs_root = |errno| format!("a small disk cannot be mounted here ({errno}): this needs root");
    unshare(CloneFlags::CLONE_NEWNS).map_err(needs_root)?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(needs_root)?;
    mount(Some("none"), dir, Some("tmpfs"), MsFlags::empty(), Some("size=2m")).map_err(needs_root)
}
