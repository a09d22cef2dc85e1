//! Has the C library give back what it was given: by its own defaults, it keeps the memory of a flood for ever.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

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
