//! Closes device files to a v2 cgroup, which has no controller for them: the kernel runs a BPF program whenever a
//! device file is opened.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::DeviceNumber;
use crate::sys::bpf::{self, Instruction};

/// Closes exactly these device files to all processes inside. The directory is the agent's own: programs attached to it
/// come from this process or an earlier one, and are removed with the directory.
///
/// # Errors
/// The kernel refuses.
pub(super) fn close(dir: &Path, closed: &BTreeSet<DeviceNumber>) -> io::Result<()> {
    let dir = File::open(dir)?;
    let before = bpf::attached(dir.as_fd())?;
    if !closed.is_empty() {
        bpf::attach(dir.as_fd(), &bpf::load(&program(closed))?)?;
    }
    // Every attached program must allow an access, so a file that stays closed is closed in between, too.
    before.iter().try_for_each(|program| bpf::detach(dir.as_fd(), program))
}

/// Checks whether device files can be closed in this directory and below. Only an attempt shows whether the kernel
/// permits it.
///
/// # Errors
/// They cannot be closed; the error says why.
pub(super) fn probe(dir: &Path) -> io::Result<()> {
    let nothing = BTreeSet::from([DeviceNumber { is_block: true, major: 0, minor: 0 }]);
    close(dir, &nothing)?;
    // Programs attached by another process must be found and removed, too.
    close(dir, &BTreeSet::new())
}

/// Returns a program that allows all device files but these, for every kind of access. Its argument is the address of
/// the access, in fields of 32 bits: the kind of access above the kind of file, the major and the minor number.
fn program(closed: &BTreeSet<DeviceNumber>) -> Vec<Instruction> {
    let load = |to: u8, offset| Instruction { registers: registers(to, CONTEXT), offset, ..of(LOAD, 0) };
    let mut program = vec![load(KIND, 0), load(MAJOR, 4), load(MINOR, 8), on(KIND, AND, 0xffff)];
    for number in closed {
        let kind = if number.is_block { BLOCK } else { CHARACTER };
        // Skips to the next device unless all fields match.
        let unless = |offset, register, value: u64| Instruction { offset, ..on(register, SKIP_UNLESS, value as i32) };
        program.extend([unless(4, KIND, kind), unless(3, MAJOR, number.major), unless(2, MINOR, number.minor)]);
        program.extend([on(RESULT, SET, 0), of(EXIT, 0)]);
    }
    program.extend([on(RESULT, SET, 1), of(EXIT, 0)]);
    program
}

fn on(register: u8, code: u8, immediate: i32) -> Instruction {
    Instruction { registers: registers(register, 0), ..of(code, immediate) }
}

fn of(code: u8, immediate: i32) -> Instruction {
    Instruction { code, registers: 0, offset: 0, immediate }
}

fn registers(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from }
}

/// Kinds of device files, `BPF_DEVCG_DEV_…`.
const BLOCK: u64 = 1;
const CHARACTER: u64 = 2;

/// Register numbers.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// `BPF_LDX | BPF_MEM | BPF_W`.
const LOAD: u8 = 0x61;
/// `BPF_ALU64 | BPF_AND | BPF_K`.
const AND: u8 = 0x57;
/// `BPF_ALU64 | BPF_MOV | BPF_K`.
const SET: u8 = 0xb7;
/// `BPF_JMP | BPF_JNE | BPF_K`.
const SKIP_UNLESS: u8 = 0x55;
/// `BPF_JMP | BPF_EXIT`.
const EXIT: u8 = 0x95;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::super::{Cgroup, Kind};
    use super::*;

    /// A v2 hierarchy mounted for one test, with a cgroup in it; both are removed when the test ends, even if it fails.
    struct Hierarchy {
        mount: tempfile::TempDir,
        dir: PathBuf,
    }

    impl Hierarchy {
        /// Returns `None`, and prints why, if mounting is not allowed.
        fn mount() -> Option<Hierarchy> {
            let dir = tempfile::tempdir().expect("a directory");
            let mounted = mount(Some("none"), dir.path(), Some("cgroup2"), MsFlags::empty(), None::<&str>);
            if let Err(error) = mounted {
                eprintln!("skipped: no cgroup of v2 can be mounted here: {error}");
                return None;
            }
            let name = format!("limber-devices-test-{}", std::process::id());
            let hierarchy = Hierarchy { dir: dir.path().join(name), mount: dir };
            fs::create_dir_all(hierarchy.dir.join("seat")).expect("a cgroup");
            match super::probe(&hierarchy.dir) {
                Ok(()) => Some(hierarchy),
                Err(error) => {
                    eprintln!("skipped: the kernel takes no programs for device files here: {error}");
                    None
                }
            }
        }

        fn cgroup(&self) -> Cgroup {
            let dir = self.dir.join("seat");
            Cgroup { kind: Kind::V2, dirs: vec![dir.clone()], devices: Some(dir), ..Cgroup::none() }
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            for dir in [self.dir.join("seat"), self.dir.clone()] {
                let _gone_already = fs::remove_dir(dir);
            }
            let _gone_with_its_namespace = umount2(self.mount.path(), MntFlags::MNT_DETACH);
        }
    }

    /// Returns for each device file whether a process in the cgroup can open it, or the error.
    fn opened(cgroup: &Cgroup, devices: &[&str]) -> Vec<String> {
        let script = "echo 0 > $0/cgroup.procs; for f; do (: < $f) 2>&1 && echo open; done";
        let mut shell = Command::new("sh");
        shell.env("LC_ALL", "C").args(["-c", script]).arg(&cgroup.dirs[0]).args(devices);
        let output = shell.output().expect("a shell");
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().map(|line| line.rsplit(": ").next().unwrap_or(line).to_owned()).collect()
    }

    const DENIED: &str = "Operation not permitted";
    /// Tells the test in a second process which cgroup to use.
    const SECOND: &str = "LIMBER_TEST_CGROUP";

    fn numbers(devices: &[&str]) -> BTreeSet<DeviceNumber> {
        devices.iter().filter_map(|device| DeviceNumber::of(Path::new(device))).collect()
    }

    #[test]
    fn device_files_are_closed_and_opened_to_a_running_job_by_whoever_keeps_it() {
        if let Ok(cgroup) = std::env::var(SECOND) {
            let cgroup: Cgroup = serde_json::from_str(&cgroup).expect("a cgroup");
            cgroup.set_devices(&BTreeSet::new(), &numbers(&["/dev/zero"])).expect("changed");
            return;
        }
        let Some(hierarchy) = Hierarchy::mount() else { return };
        let cgroup = hierarchy.cgroup();
        let all = ["/dev/null", "/dev/zero", "/dev/full"];
        assert_eq!(opened(&cgroup, &all), ["open"; 3]);
        let closed = numbers(&["/dev/zero", "/dev/full"]);
        cgroup.set_devices(&BTreeSet::new(), &closed).expect("closed");
        assert_eq!(opened(&cgroup, &all), ["open", DENIED, DENIED]);
        // A device file of the other kind with the same numbers is a different device.
        let made = "mknod $0/disk b 1 5; mknod $0/zero c 1 5";
        let folder = tempfile::tempdir().expect("a directory");
        let script = format!("echo 0 > $1/cgroup.procs; {made}");
        let status = Command::new("sh").args(["-c", &script]).args([folder.path(), &cgroup.dirs[0]]).output();
        assert!(status.is_ok() && folder.path().join("disk").exists() && !folder.path().join("zero").exists());

        let second = Command::new(std::env::current_exe().expect("this test"))
            .args(["device_files_are_closed_and_opened"])
            .env(SECOND, serde_json::to_string(&cgroup).expect("text"))
            .output();
        assert!(second.is_ok_and(|second| second.status.success()));
        assert_eq!(opened(&cgroup, &all), ["open", DENIED, "open"]);
        cgroup.set_devices(&numbers(&["/dev/zero"]), &BTreeSet::new()).expect("opened");
        assert_eq!(opened(&cgroup, &all), ["open"; 3]);
        let dir = File::open(&cgroup.dirs[0]).expect("the cgroup");
        assert_eq!(bpf::attached(dir.as_fd()).expect("told").len(), 0, "what was replaced is gone");
    }

    #[test]
    fn what_the_whole_node_closes_stays_closed() {
        let Some(hierarchy) = Hierarchy::mount() else { return };
        close(&hierarchy.dir, &numbers(&["/dev/full"])).expect("closed");
        let cgroup = hierarchy.cgroup();
        cgroup.set_devices(&BTreeSet::new(), &numbers(&["/dev/zero"])).expect("closed");
        assert_eq!(opened(&cgroup, &["/dev/null", "/dev/zero", "/dev/full"]), ["open", DENIED, DENIED]);
        cgroup.set_devices(&numbers(&["/dev/zero"]), &BTreeSet::new()).expect("opened");
        assert_eq!(opened(&cgroup, &["/dev/null", "/dev/zero", "/dev/full"]), ["open", "open", DENIED]);
    }

    #[test]
    fn where_no_program_can_be_attached_it_is_said_why() {
        let no_cgroup = tempfile::tempdir().expect("a directory");
        assert!(super::probe(no_cgroup.path()).is_err());
    }
}
