//! Waits at startup until the disk has space: if the server exited instead, its cluster would be without one.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// More than enough to open a journal and to answer the first calls.
const NEEDED_BYTES: usize = 1 << 20;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Returns when there is space in the directory, or when it cannot be written for another reason than a full disk.
pub async fn wait_for_space(dir: &Path) {
    let mut n_waits = 0_u32;
    while is_full(dir) {
        // A disk that is full for a night must not fill the log.
        if n_waits.is_power_of_two() || n_waits == 0 {
            tracing::error!(dir = %dir.display(), "the disk is full; free some space, and the server starts by itself");
        }
        n_waits += 1;
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Returns whether there is less space than a start may need.
pub fn is_full(dir: &Path) -> bool {
    let path = dir.join("room");
    let written = fs::File::create(&path).and_then(|mut file| file.write_all(&vec![0; NEEDED_BYTES]));
    let _not_made = fs::remove_file(&path);
    written.is_err_and(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}
