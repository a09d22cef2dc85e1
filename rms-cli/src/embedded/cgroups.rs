//! Removes the empty cgroups that the agents of an embedded cluster have left.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rms_model::Time;

/// Returns a unique name for the cgroups of one embedded cluster.
pub fn name(root: &Path, now: Time) -> String {
    let mut hasher = DefaultHasher::new();
    (root, now.as_millis(), std::process::id()).hash(&mut hasher);
    format!("limber-up-{:012x}", hasher.finish() & 0xffff_ffff_ffff)
}

/// Removes every cgroup of that name with its children, at any place below `mount` where the agents may have created
/// it. A cgroup that cannot be removed stays: it is empty and costs little.
pub fn remove(mount: &Path, name: &str) {
    remove_below(mount, name, MAX_DEPTH);
}

fn remove_below(dir: &Path, name: &str, depth: u32) {
    for child in children(dir) {
        if child.file_name().is_some_and(|child| child == name) {
            remove_tree(&child);
        } else if depth > 0 {
            remove_below(&child, name, depth - 1);
        }
    }
}

/// Removes a cgroup without children by `rmdir`, which works although the directory contains files.
fn remove_tree(dir: &Path) {
    for child in children(dir) {
        remove_tree(&child);
    }
    let _ = fs::remove_dir(dir);
}

fn children(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    // Symbolic links are not followed, so nothing outside is affected.
    let dirs = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

/// Where cgroups are mounted.
pub const MOUNT: &str = "/sys/fs/cgroup";
/// The maximum depth of the search: sessions of users and services are not as deep.
const MAX_DEPTH: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_trees_go() {
        let mount = tempfile::tempdir().expect("a directory");
        let make = |path: &str| fs::create_dir_all(mount.path().join(path)).expect("made");
        make("cpu/limber-up-1/a1/job");
        make("user/slice/limber-up-1");
        make("cpu/limber-up-2/a1");
        std::os::unix::fs::symlink(mount.path().join("cpu"), mount.path().join("link")).expect("linked");
        remove(mount.path(), "limber-up-1");
        assert!(!mount.path().join("cpu/limber-up-1").exists());
        assert!(!mount.path().join("user/slice/limber-up-1").exists());
        assert!(mount.path().join("cpu/limber-up-2/a1").exists());
    }
}
