//! Has the C library give back what it was given: by its own defaults, it keeps the memory of a flood for ever.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Large pieces go back when they are freed, the free end of the heap does, and threads do not keep heaps of their own.
const SETTINGS: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// Starts this program anew in this process, because the C library reads its settings before anything else. Does nothing
/// where one of them is set already: by this, or by an admin who knows better.
pub fn settle() {
    let is_settled = SETTINGS.iter().any(|(name, _)| env::var_os(name).is_some());
    let mut args = env::args_os();
    let (Some(name), Ok(program)) = (args.next(), env::current_exe()) else { return };
    if !is_settled {
        let error = Command::new(program).arg0(name).args(args).envs(SETTINGS).exec();
        // It serves as well; it only holds more.
        eprintln!("rms-server: cannot start anew with settings of the allocator: {error}");
    }
}

/// From now on, what a flood has left behind goes back soon after it. The settings alone do not see to that: a little that
/// is still needed keeps the free memory below it, wherever it lies.
pub fn give_back() {
    // Now, and not when the first look finds what a flood has left already.
    let Some(mut least) = kept() else { return };
    let watch = move || {
        loop {
            thread::sleep(LOOK_EVERY);
            let Some(kept) = kept() else { return };
            least = least.min(kept);
            if kept > least.saturating_add(MOST_KEPT) {
                trim();
                // What cannot go back is not tried again.
                least = self::kept().unwrap_or(kept);
                tracing::debug!(before = kept, after = least, "memory was given back");
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("allocator".to_owned()).spawn(watch) {
        tracing::warn!(%error, "no thread gives memory back after floods");
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Giving back takes milliseconds, in which nobody gets memory: it must be worth it.
const MOST_KEPT: i64 = 8 << 20;

/// Bytes that are resident and not in use, with those that are not the C library's: what matters is how they change.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn kept() -> Option<i64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_ascii_whitespace().skip(1).map(str::parse::<i64>);
    let (Some(Ok(resident)), Some(Ok(of_files))) = (pages.next(), pages.next()) else { return None };
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    // SAFETY: it takes nothing, and only reads what the C library counts, under its own locks.
    let counted = unsafe { nix::libc::mallinfo() };
    // The counters are cut to 32 bits; so is the difference, which is much less than that.
    let kept = ((resident - of_files) * page_bytes) as i32;
    Some(i64::from(kept.wrapping_sub(counted.uordblks).wrapping_sub(counted.hblkhd)))
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: it gives back pages on which nothing lives, under the C library's own locks.
    unsafe { nix::libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves, or not at all.
#[cfg(not(target_env = "gnu"))]
fn kept() -> Option<i64> {
    None
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
