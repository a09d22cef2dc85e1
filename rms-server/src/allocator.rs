//! Makes the C library return freed memory to the system: by default it keeps what a burst of requests took.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Large blocks and the free end of the heap are returned to the system, and threads share few heaps.
const SETTINGS: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// Executes this program again in the same process, because the C library reads its settings at startup. Does nothing
/// if one of them is set already: by an earlier call, or by an admin.
pub fn apply_settings() {
    let is_set = SETTINGS.iter().any(|(name, _)| env::var_os(name).is_some());
    let mut args = env::args_os();
    let (Some(name), Ok(program)) = (args.next(), env::current_exe()) else { return };
    if !is_set {
        let error = Command::new(program).arg0(name).args(args).envs(SETTINGS).exec();
        // The server works without them; it only uses more memory.
        eprintln!("rms-server: cannot start anew with settings of the allocator: {error}");
    }
}

/// Starts a thread that returns unused memory to the system soon after a burst. The settings alone are not enough: one
/// small block in use keeps all the free memory below it.
pub fn trim_periodically() {
    // Read now: the first check may already find what a burst has left.
    let Some(n_retained) = n_retained() else { return };
    let mut retained = Retained { least: n_retained, last: n_retained };
    let watch = move || {
        loop {
            thread::sleep(CHECK_INTERVAL);
            let Some(before) = self::n_retained() else { return };
            if retained.is_worth_trimming(before) {
                trim();
                retained.last = self::n_retained().unwrap_or(before);
                tracing::debug!(before, after = retained.last, "unused memory was returned to the system");
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("allocator".to_owned()).spawn(watch) {
        tracing::warn!(%error, "cannot start the thread that returns unused memory to the system");
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Trimming takes milliseconds in which every allocation waits: it must be worth it.
const MAX_RETAINED: i64 = 8 << 20;
/// Memory that could not be returned is tried again when this much more or less is unused.
const RETRY: i64 = 1 << 20;

/// Unused bytes that were not returned.
struct Retained {
    /// The least seen at a check: what always stays.
    least: i64,
    /// After the last trim.
    last: i64,
}

impl Retained {
    /// Returns whether `n_retained` unused bytes are many, and a trim has not just left as many. After a trim in the
    /// middle of a burst's end, the blocks between the free ones may be freed, too.
    fn is_worth_trimming(&mut self, n_retained: i64) -> bool {
        self.least = self.least.min(n_retained);
        n_retained > self.least + MAX_RETAINED && (n_retained - self.last).abs() > RETRY
    }
}

/// Returns the bytes that are resident and not in use. They include memory outside the C library's heaps: only changes
/// of the number matter.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn n_retained() -> Option<i64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_ascii_whitespace().skip(1).map(str::parse::<i64>);
    let (Some(Ok(resident)), Some(Ok(of_files))) = (pages.next(), pages.next()) else { return None };
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    // SAFETY: it takes no arguments, and only reads the C library's counters, under its own locks.
    let counted = unsafe { nix::libc::mallinfo() };
    // The counters are truncated to 32 bits; so is the difference, which is much smaller.
    let n_retained = ((resident - of_files) * page_bytes) as i32;
    Some(i64::from(n_retained.wrapping_sub(counted.uordblks).wrapping_sub(counted.hblkhd)))
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: it returns pages that hold no allocation, under the C library's own locks.
    unsafe { nix::libc::malloc_trim(0) };
}

/// Returns `None`: other C libraries return memory by themselves, or not at all.
#[cfg(not(target_env = "gnu"))]
fn n_retained() -> Option<i64> {
    None
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trim_in_the_middle_of_a_burst_left_is_trimmed_when_the_rest_was_freed() {
        let mib = |n: i64| n << 20;
        let mut retained = Retained { least: mib(2), last: mib(2) };
        assert!(!retained.is_worth_trimming(mib(9)));
        assert!(retained.is_worth_trimming(mib(30)));
        // Much of it lies between blocks in use: it is not tried again as long as nothing changes.
        retained.last = mib(16);
        assert!(!retained.is_worth_trimming(mib(16)));
        assert!(retained.is_worth_trimming(mib(22)));
        retained.last = mib(3);
        assert!(!retained.is_worth_trimming(mib(10)));
    }
}
