//! Wakes followers when a file in a directory grows, all of them through one inotify instance.
//!
//! Closing an inotify instance takes the kernel 10 ms and more, which would block the agent's only thread: so all
//! followers share one, it stays open between them, and it is closed on a separate thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// The watched directories of an agent; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Watches(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    open: Mutex<Option<Open>>,
    /// Wakes the reader when the first follower has come or the last one has left.
    changed: Notify,
}

#[derive(Debug)]
struct Open {
    inotify: Inotify,
    /// The followers by watch descriptor; followers of one directory share a descriptor.
    followers: BTreeMap<i32, Vec<Arc<Notify>>>,
}

/// One follower of one directory.
#[derive(Debug)]
pub struct Watch {
    watches: Watches,
    descriptor: WatchDescriptor,
    woken: Arc<Notify>,
}

/// How long an unused instance stays open: a user has 128 instances by default, and tests may run many agents on one
/// machine.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

impl Watches {
    /// Watches a directory from now on.
    ///
    /// # Errors
    /// The directory does not exist, or the system has no more watches.
    pub fn watch(&self, dir: &Path) -> io::Result<Watch> {
        let mut slot = self.lock();
        let open = match slot.as_mut() {
            Some(open) => open,
            None => slot.insert(self.open()?),
        };
        let what = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let descriptor = open.inotify.add_watch(dir, what)?;
        let woken = Arc::new(Notify::new());
        open.followers.entry(descriptor.as_raw()).or_default().push(Arc::clone(&woken));
        drop(slot);
        self.0.changed.notify_one();
        Ok(Watch { watches: self.clone(), descriptor, woken })
    }

    fn open(&self) -> io::Result<Open> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // An inotify file is read like a pipe, which is all that the runtime needs to know.
        let events = pipe::Receiver::from_owned_fd_unchecked(inotify.as_fd().try_clone_to_owned()?)?;
        tokio::spawn(self.clone().read(events));
        Ok(Open { inotify, followers: BTreeMap::new() })
    }

    async fn read(self, events: pipe::Receiver) {
        let mut buffer = [0; 4096];
        loop {
            let is_idle = self.lock().as_ref().is_none_or(|open| open.followers.is_empty());
            tokio::select! {
                ready = events.readable() => match ready.and_then(|()| events.try_read(&mut buffer)) {
                    Ok(n) => self.wake(&buffer[..n]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        tracing::error!(%error, "cannot read file events; current followers are not woken by new output");
                        *self.lock() = None;
                        return;
                    }
                },
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep(IDLE_TIMEOUT), if is_idle => {
                    let unused = self.lock().take_if(|open| open.followers.is_empty());
                    if let Some(Open { inotify, followers: _ }) = unused {
                        let files = (OwnedFd::from(inotify), events);
                        drop(tokio::task::spawn_blocking(move || drop(files)));
                        return;
                    }
                }
            }
        }
    }

    /// Wakes the followers of these events. An event is a header of four numbers, of which the first is the descriptor
    /// and the last the length of the name that follows it.
    fn wake(&self, mut events: &[u8]) {
        let slot = self.lock();
        let Some(open) = slot.as_ref() else { return };
        while let Some((header, rest)) = events.split_first_chunk::<16>() {
            let number = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
            let descriptor = i32::from_ne_bytes(number(0));
            match open.followers.get(&descriptor) {
                Some(followers) => followers.iter().for_each(|woken| woken.notify_one()),
                // The kernel has dropped events, which may have been for any follower.
                None if descriptor < 0 => open.followers.values().flatten().for_each(|woken| woken.notify_one()),
                // A directory that is no longer watched.
                None => {}
            }
            let name_bytes = u32::from_ne_bytes(number(12)) as usize;
            events = rest.get(name_bytes..).unwrap_or_default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits until something in the directory has changed since the last call, or changes now.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut slot = self.watches.lock();
        let Some(open) = slot.as_mut() else { return };
        let Some(followers) = open.followers.get_mut(&self.descriptor.as_raw()) else { return };
        followers.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
        if followers.is_empty() {
            open.followers.remove(&self.descriptor.as_raw());
            let _gone_with_its_directory = open.inotify.rm_watch(self.descriptor);
        }
        if open.followers.is_empty() {
            self.watches.0.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn each_follower_is_woken_by_its_own_directory() {
        let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let watches = Watches::default();
        let of_one = watches.watch(one.path()).expect("watched");
        let again = watches.watch(one.path()).expect("watched twice");
        let of_other = watches.watch(other.path()).expect("watched");
        fs::write(one.path().join("out.0"), "hello").expect("written");
        of_one.woken().await;
        again.woken().await;
        fs::write(other.path().join("out.0"), "hello").expect("written");
        of_other.woken().await;
    }

    #[tokio::test]
    async fn who_stays_is_woken_after_another_has_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let watches = Watches::default();
        let stays = watches.watch(dir.path()).expect("watched");
        drop(watches.watch(dir.path()).expect("watched twice"));
        fs::write(dir.path().join("out.0"), "hello").expect("written");
        stays.woken().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_uses_is_closed_and_opened_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let watches = Watches::default();
        drop(watches.watch(dir.path()).expect("watched"));
        tokio::time::sleep(2 * IDLE_TIMEOUT).await;
        assert!(watches.lock().is_none(), "it is still open");
        let watch = watches.watch(dir.path()).expect("watched again");
        fs::write(dir.path().join("out.0"), "hello").expect("written");
        watch.woken().await;
    }
}
