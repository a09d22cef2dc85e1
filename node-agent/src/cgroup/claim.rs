//! Tells the cgroups of living agents from those that a killed agent has left: the living hold theirs locked.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Keeps an agent's directories from being taken for a dead one's. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Claim {
    _locks: Vec<Flock<File>>,
}

/// Locks the directories. `None`: another agent has just removed one of them, and it must be made anew.
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

/// Removes what is empty of the directories beside `own` that agents have made and none holds. The job of a dead
/// agent keeps its own: a cgroup with a process in it is not removed.
pub(super) fn remove_stale_beside(own: &Path) {
    let siblings = own.parent().map(fs::read_dir);
    for entry in siblings.into_iter().flatten().flatten().flatten() {
        let path = entry.path();
        if path == own || !entry.file_name().to_str().is_some_and(is_instance) {
            continue;
        }
        // Held until all of it is gone, so that an agent that starts now waits, and then makes its own anew.
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

/// `None`: it is not there any more, or somebody else has it.
fn lock(dir: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    // Users may pass through it, and read what is in it by name; who can open the directory itself could lock it.
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
    // Whoever had it before may have removed it while we waited.
    let is_same = fs::metadata(dir).is_ok_and(|now| lock.metadata().is_ok_and(|held| held.ino() == now.ino()));
    Ok(is_same.then_some(lock))
}

/// Whether this is a name as [`crate::setup::instance`] gives.
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
        // In place of a process.
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
