//! Loads a program that controls access to device files into the kernel, and attaches it to a v2 cgroup: bpf(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, c_int};

/// One instruction of the kernel's virtual machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u8,
    /// Four bits each for the destination and the source.
    pub registers: u8,
    /// How many instructions to skip if a comparison holds, or the offset from the address to read.
    pub offset: i16,
    pub immediate: i32,
}

/// Makes the kernel verify and compile the program; it is freed with its last file and its last cgroup.
///
/// # Errors
/// See bpf(2): the process lacks permission, the kernel has no such programs, or it rejects this one.
pub fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..NAME.len()].copy_from_slice(NAME);
    let mut attributes = Load {
        kind: header::PROG_TYPE_CGROUP_DEVICE,
        n_instructions: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log: [0; 2],
        kernel: 0,
        flags: 0,
        name,
    };
    // SAFETY: these are the attributes of this command; there are as many instructions as they say, and the licence
    // ends with NUL; both live until the call returns.
    let file = unsafe { bpf(header::PROG_LOAD, &mut attributes) }?;
    // SAFETY: the kernel has just opened the file for this call, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Attaches the program to the cgroup and all below, in addition to programs attached to it, above it and below it:
/// each of them must allow an access.
///
/// # Errors
/// See bpf(2); a program further up may have been attached without allowing others.
pub fn attach(cgroup: BorrowedFd<'_>, program: &OwnedFd) -> io::Result<()> {
    change(header::PROG_ATTACH, cgroup, program, header::F_ALLOW_MULTI)
}

/// # Errors
/// See bpf(2); the program is not attached.
pub fn detach(cgroup: BorrowedFd<'_>, program: &OwnedFd) -> io::Result<()> {
    change(header::PROG_DETACH, cgroup, program, 0)
}

fn change(command: c_int, cgroup: BorrowedFd<'_>, program: &OwnedFd, flags: u32) -> io::Result<()> {
    let [cgroup, program] = [cgroup.as_raw_fd(), program.as_raw_fd()].map(|file| file as u32);
    let mut attributes = Attach { cgroup, program, point: header::CGROUP_DEVICE, flags };
    // SAFETY: these are the attributes of both commands, without pointers.
    unsafe { bpf(command, &mut attributes) }.map(drop)
}

/// Returns the programs that any process has attached to exactly this cgroup.
///
/// # Errors
/// See bpf(2).
pub fn attached(cgroup: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0_u32; MAX_ATTACHED];
    let mut attributes = Query {
        cgroup: cgroup.as_raw_fd() as u32,
        point: header::CGROUP_DEVICE,
        flags: [0; 2],
        ids: ids.as_mut_ptr() as u64,
        n_ids: MAX_ATTACHED as u32,
        beyond: [0; 33],
    };
    // SAFETY: these are the attributes of this command, with room for what newer kernels write after them; there are as
    // many places for ids as they say, and these live until the call returns.
    unsafe { bpf(header::PROG_QUERY, &mut attributes) }?;
    let ids = &ids[..(attributes.n_ids as usize).min(MAX_ATTACHED)];
    ids.iter().map(|id| by_id(*id)).collect()
}

fn by_id(id: u32) -> io::Result<OwnedFd> {
    let mut attributes = ById { id, next: 0, flags: 0 };
    // SAFETY: these are the attributes of this command, without pointers.
    let file = unsafe { bpf(header::PROG_GET_FD_BY_ID, &mut attributes) }?;
    // SAFETY: as in `load`.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// # Safety
/// The attributes are those of the command from the first byte on, have room for everything that the kernel writes to
/// them, and their pointers are valid for what it reads and writes there.
unsafe fn bpf<A>(command: c_int, attributes: &mut A) -> io::Result<c_int> {
    let mut n_tries = 0;
    loop {
        // SAFETY: the caller guarantees it; the size is that of the pointee.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), size_of::<A>()) };
        n_tries += 1;
        match Errno::result(result) {
            // A signal arrived while the kernel verified the program.
            Err(Errno::EAGAIN) if n_tries < MAX_TRIES => {}
            // A file descriptor or 0.
            other => return Ok(other? as c_int),
        }
    }
}

/// The name that `bpftool prog` shows.
const NAME: &[u8; 14] = b"limber_devices";
const LICENSE: &CStr = c"MIT";
/// The kernel's limit of programs attached to one cgroup.
const MAX_ATTACHED: usize = 64;
const MAX_TRIES: u32 = 5;

/// The used constants of `linux/bpf.h`, which the kernel guarantees to be stable.
mod header {
    use nix::libc::c_int;

    pub const PROG_LOAD: c_int = 5;
    pub const PROG_ATTACH: c_int = 8;
    pub const PROG_DETACH: c_int = 9;
    pub const PROG_GET_FD_BY_ID: c_int = 13;
    pub const PROG_QUERY: c_int = 16;
    pub const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
    pub const CGROUP_DEVICE: u32 = 6;
    pub const F_ALLOW_MULTI: u32 = 2;
}

/// The used members of `union bpf_attr`. The kernel reads omitted fields as 0.
#[repr(C)]
struct Load {
    kind: u32,
    n_instructions: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Attach {
    cgroup: u32,
    program: u32,
    point: u32,
    flags: u32,
}

#[repr(C)]
struct Query {
    cgroup: u32,
    point: u32,
    flags: [u32; 2],
    ids: u64,
    n_ids: u32,
    /// Kernels from 6.17 on write here regardless of the given size.
    beyond: [u32; 33],
}

#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}
