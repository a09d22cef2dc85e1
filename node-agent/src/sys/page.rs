//! A page of memory that is shared with a possibly untrusted process; the kernel fixes its size.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use rms_malleable::{MAGIC, VERSION, page};

use crate::topology::cpulist::CpuSet;

/// The page through which the supervisor of a job tells one of its processes which CPUs to use.
///
/// Of what the process may write, only its acknowledgement is used: it can only harm itself.
#[derive(Debug)]
pub struct Page {
    memory: NonNull<u8>,
    /// The file that the process maps.
    file: OwnedFd,
    /// The number of the last published change.
    seq: u64,
}

impl Page {
    /// # Errors
    /// No memory, or too many open files.
    pub fn new() -> io::Result<Page> {
        let file = memfd_create(c"rms-malleable", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, page::BYTES as i64)?;
        // If the file were truncated, accesses to the page would kill this process.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file, at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), page::BYTES, access, libc::MAP_SHARED, fd, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Page { memory, file, seq: 0 };
        page.u32(page::MAGIC).store(MAGIC, Ordering::Relaxed);
        page.u32(page::VERSION).store(VERSION.into(), Ordering::Release);
        Ok(page)
    }

    /// Returns the file that the process must map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Publishes the CPUs of the process, of `most` that it had when the job started.
    pub fn publish(&mut self, cpus: &CpuSet, most: u32) {
        let words = rms_malleable::words(cpus);
        // A concurrent reader sees the odd number and reads again.
        self.u64(page::SEQ).store(self.seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (idx, word) in words.into_iter().enumerate() {
            self.u64(page::MASK + 8 * idx).store(word, Ordering::Relaxed);
        }
        self.u32(page::N_CPUS).store(cpus.len() as u32, Ordering::Relaxed);
        self.u32(page::MOST).store(most, Ordering::Relaxed);
        self.seq += 2;
        self.u64(page::SEQ).store(self.seq, Ordering::Release);
    }

    /// Returns whether the process reports that it has applied the last change.
    pub fn is_acknowledged(&self) -> bool {
        self.u64(page::ACKED_SEQ).load(Ordering::Acquire) >= self.seq
    }

    /// Returns the number of threads of the last parallel region, as reported by the process.
    pub fn threads(&self) -> u32 {
        self.u32(page::THREADS).load(Ordering::Relaxed)
    }

    /// Marks the page as abandoned by the supervisor: the process, if it lives, must request another one.
    fn end(&mut self) {
        self.u32(page::IS_OVER).store(1, Ordering::Relaxed);
        self.seq += 2;
        self.u64(page::SEQ).store(self.seq, Ordering::Release);
    }

    fn u32(&self, place: usize) -> &AtomicU32 {
        assert!(place.is_multiple_of(4) && place + 4 <= page::BYTES, "inside of the page");
        // SAFETY: within the mapping, which is as long as this, and aligned, because the page is. All other accesses
        // are atomic, too, or another process's.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(place).cast()) }
    }

    fn u64(&self, place: usize) -> &AtomicU64 {
        assert!(place.is_multiple_of(8) && place + 8 <= page::BYTES, "inside of the page");
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(place).cast()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.end();
        // SAFETY: the mapping created by `new`, to which nothing refers any more.
        let _cannot_fail = unsafe { libc::munmap(self.memory.as_ptr().cast(), page::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn read(page: &Page, place: usize) -> u64 {
        let file = File::from(page.file().try_clone_to_owned().expect("a file"));
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, place as u64).expect("a page");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn what_is_published_is_seen_through_the_file_and_acknowledged_there() {
        let mut page = Page::new().expect("a page");
        page.publish(&CpuSet::from([1, 64]), 4);
        assert_eq!((read(&page, page::SEQ), read(&page, page::MASK), read(&page, page::MASK + 8)), (2, 2, 1));
        assert_eq!(read(&page, page::N_CPUS), 4 << 32 | 2);
        assert!(!page.is_acknowledged());
        let file = File::from(page.file().try_clone_to_owned().expect("a file"));
        file.write_all_at(&2_u64.to_ne_bytes(), page::ACKED_SEQ as u64).expect("written");
        assert!(page.is_acknowledged());
        page.publish(&CpuSet::from([1]), 4);
        assert!(!page.is_acknowledged());
        // The size of the file is fixed, whatever the process does.
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
        drop(page);
        let mut over = [0; 4];
        file.read_exact_at(&mut over, page::IS_OVER as u64).expect("a page");
        assert_eq!(u32::from_ne_bytes(over), 1);
    }
}
