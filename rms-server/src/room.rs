//! Waits at the start until the disk has room: a server that ended there would leave its cluster without one.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// As much as opening a journal and answering the first calls takes, and some more.
const ROOM: usize = 1 << 20;
const PAUSE: Duration = Duration::from_secs(1);

/// Returns when there is room in the directory, or when another error than a full disk will be met there anyway.
pub async fn wait_for_room(dir: &Path) {
    let mut n_waits = 0_u32;
    while is_full(dir) {
        // A disk that is full for a night fills no log with that.
        if n_waits.is_power_of_two() || n_waits == 0 {
            tracing::error!(dir = %dir.display(), "the disk is full; make room there, and the server starts by itself");
        }
        n_waits += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Is there less than a start may need?
pub fn is_full(dir: &Path) -> bool {
    let path = dir.join("room");
    let written = fs::File::create(&path).and_then(|mut file| file.write_all(&vec![0; ROOM]));
    let _not_made = fs::remove_file(&path);
    written.is_err_and(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}
