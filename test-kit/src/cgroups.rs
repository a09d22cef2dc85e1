//! The cgroups of one test, which have their own name and are removed at its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Removes, when dropped, every cgroup of this name with all its descendants, in every hierarchy.
#[derive(Debug)]
pub struct Cgroups {
    name: String,
}

impl Cgroups {
    pub fn new(name: &str) -> Cgroups {
        Cgroups { name: name.to_owned() }
    }

    /// The name to pass to `--cgroup-parent`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the present cgroups without children.
    pub fn leaves(&self) -> Vec<PathBuf> {
        let mut leaves = Vec::new();
        self.trees().iter().for_each(|tree| add_leaves(tree, &mut leaves));
        leaves
    }

    fn trees(&self) -> Vec<PathBuf> {
        let mut trees = Vec::new();
        find(Path::new("/sys/fs/cgroup"), &self.name, 8, &mut trees);
        trees
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // The kernel needs a moment to remove the processes that were in them.
        for _ in 0..100 {
            let trees = self.trees();
            if trees.is_empty() {
                return;
            }
            trees.iter().for_each(|tree| remove(tree));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn find(dir: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for child in children(dir) {
        if child.file_name().is_some_and(|child| child == name) {
            found.push(child);
        } else if depth > 0 {
            find(&child, name, depth - 1, found);
        }
    }
}

fn add_leaves(dir: &Path, leaves: &mut Vec<PathBuf>) {
    let below = children(dir);
    if below.is_empty() {
        leaves.push(dir.to_path_buf());
    }
    below.iter().for_each(|child| add_leaves(child, leaves));
}

fn remove(dir: &Path) {
    children(dir).iter().for_each(|child| remove(child));
    let _still_in_use = fs::remove_dir(dir);
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}
