//! A small file system that tests fill and break.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, which is removed at the end of the test. It must outlive the deployment on it.
#[derive(Debug)]
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Creates a file system of `mib` MiB; none where nothing can be mounted.
    pub fn of_mib(mib: u32) -> Option<SmallDisk> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can mount a small disk");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let size = format!("size={mib}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "limber-test"]).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        Some(SmallDisk { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `mount -o remount,MODE`.
    pub fn remount(&self, mode: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(self.dir.path()).status();
        assert!(status.expect("mount runs").success(), "remount {mode}");
    }

    /// Makes all files read-only for whoever opens them from now on, also while others have some open for writing: then
    /// the file system itself cannot be remounted.
    pub fn cover_read_only(&self) {
        let dir = self.dir.path();
        let bind = Command::new("mount").arg("--bind").args([dir, dir]).status();
        assert!(bind.expect("mount runs").success(), "bind");
        self.remount("bind,ro");
    }

    /// Undoes [`SmallDisk::cover_read_only`].
    pub fn uncover(&self) {
        let status = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        assert!(status.expect("umount runs").success(), "umount");
    }

    /// Takes all space that is left; removing the file frees it again.
    pub fn fill(&self) -> PathBuf {
        let path = self.dir.path().join("filler");
        let mut file = fs::File::create(&path).expect("a file");
        for size in [1 << 16, 1 << 12] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _still_mounted = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
