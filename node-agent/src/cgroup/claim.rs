//! Distinguishes the cgroups of live agents from those left by a killed agent: live agents hold locks on theirs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locks that mark an agent's directories as in use. They end with the process, however it ends.
#[derive(Debug)]
pub struct Claim {
    _locks: Vec<Flock<File>>,
}

/// Locks the directories. Returns `None` if another agent has just removed one of them: they must be created again.
pub(super) fn claim<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> io::Result<Option<Claim>> {
    let mut locks = Vec::new();
    for dir in dirs {
        match lock(dir, FlockArg::LockShared)? {
            Some(lock) => locks.push(lock),
            None => return Ok(None),
        }
    }
    Ok(Some(Claim { _locks: locks }))
}

/// Removes empty directories next to `own` that agents have created and no agent has locked. A job of a dead agent
/// keeps its cgroup: a cgroup with a process in it cannot be removed.
pub(super) fn remove_stale_beside(own: &Path) {
    let siblings = own.parent().map(fs::read_dir);
    for entry in siblings.into_iter().flatten().flatten().flatten() {
        let path = entry.path();
        if path == own || !entry.file_name().to_str().is_some_and(is_instance) {
            continue;
        }
        // Held until everything is removed, so that an agent that starts now waits and then creates its directories
        // again.
        if let Ok(Some(_lock)) = lock(&path, FlockArg::LockExclusiveNonblock) {
            remove_dirs(&path);
        }
    }
}

fn remove_dirs(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _busy = fs::remove_dir(entry.path());
        }
    }
    let _busy = fs::remove_dir(dir);
}

/// Locks a directory. Returns `None` if it no longer exists, or another process has locked it.
fn lock(dir: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    // Users may traverse the directory and read files in it by name; a user who could open the directory itself could
    // lock it.
    let _not_ours = fs::set_permissions(dir, fs::Permissions::from_mode(0o711));
    let file = match File::open(dir) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let lock = match Flock::lock(file, how) {
        Ok(lock) => lock,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, error)) => return Err(error.into()),
    };
    // The previous holder may have removed it while this process waited.
    let is_same = fs::metadata(dir).is_ok_and(|now| lock.metadata().is_ok_and(|held| held.ino() == now.ino()));
    Ok(is_same.then_some(lock))
}

/// Returns whether the name has the form that [`crate::setup::instance`] produces.
fn is_instance(name: &str) -> bool {
    let is_hex = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once('-').is_some_and(|(node, digits)| !node.is_empty() && is_hex(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_buried_and_the_living_and_strangers_are_not() {
        let parent = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir_all(dir.join("seat")).expect("a directory");
            dir
        };
        let (own, living, dead) = (make("n1-00000001"), make("n2-00000002"), make("n3-00000003"));
        let (busy, stranger) = (make("n4-00000004"), make("somebody"));
        // Stands in for a process.
        fs::write(busy.join("seat/busy"), "").expect("a file");
        let claim_of_another = claim([&living]).expect("it can be locked").expect("it is there");

        remove_stale_beside(&own);
        assert!(!dead.exists(), "a dead agent's is gone");
        for kept in [&own, &living, &busy, &stranger] {
            assert!(kept.join("seat").exists(), "{}", kept.display());
        }
        drop(claim_of_another);
        remove_stale_beside(&own);
        assert!(!living.exists(), "it is dead now");
        assert!(claim([&living]).expect("no error").is_none(), "it must be made anew");
    }
}
