//! A mailbox for one channel: the driver puts items and never waits, the channel's session takes them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rms_core::server_loop::ChannelId;
use rms_model::Outcome;
use tokio::sync::Notify;

/// Returns a channel id that is new in this process.
pub fn new_channel_id() -> ChannelId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ChannelId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The mailbox of a channel that is bound to an `S`, with pending items `W`. `W` must be bounded by its own structure:
/// the mailbox does not count.
#[derive(Debug)]
pub(crate) struct Mailbox<S, W> {
    channel: ChannelId,
    /// Set once, when the core has bound the channel.
    speaks_for: OnceLock<S>,
    pending: Mutex<W>,
    changed: Notify,
    is_closed: AtomicBool,
}

/// The pending items, and the order in which they are taken.
pub(crate) trait Pending: Default {
    type Item;

    fn take(&mut self) -> Taken<Self::Item>;
}

pub(crate) enum Taken<T> {
    Item(T),
    Empty,
    End,
}

impl<S: Copy, W: Pending> Mailbox<S, W> {
    pub(crate) fn new(channel: ChannelId) -> Mailbox<S, W> {
        Mailbox {
            channel,
            speaks_for: OnceLock::new(),
            pending: Mutex::default(),
            changed: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(crate) fn bind(&self, owner: S) {
        // The sessions bind a channel at most once.
        let _ = self.speaks_for.set(owner);
    }

    pub(crate) fn speaks_for(&self) -> Option<S> {
        self.speaks_for.get().copied()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the mailbox: nothing is taken any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // Items that nobody will send must not take memory.
        *self.lock() = W::default();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, W> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut W)) {
        let mut pending = self.lock();
        // Checked under the lock: `close` clears what was added before.
        if !self.is_closed() {
            change(&mut pending);
            self.changed.notify_one();
        }
    }

    /// Waits for the next item; `None` after the last one. Cancel safe.
    pub(crate) async fn next(&self) -> Option<W::Item> {
        loop {
            // Registered first, so that an item that comes between the check and the wait is not missed.
            let changed = self.changed.notified();
            let taken = self.lock().take();
            match taken {
                Taken::Item(item) => return Some(item),
                Taken::Empty => changed.await,
                Taken::End => return None,
            }
        }
    }
}

/// The last notice of a channel; nothing is sent after it.
#[derive(Debug)]
pub(crate) enum FinalNotice {
    Ended {
        outcome: Outcome,
    },
    Replaced,
    /// The notice was sent.
    Sent,
}

/// Takes the final notice, once, and then the end.
pub(crate) fn take_final<T>(
    notice: &mut Option<FinalNotice>,
    ended: impl FnOnce(Outcome) -> T,
    replaced: T,
) -> Taken<T> {
    let item = match notice.take() {
        None => return Taken::Empty,
        Some(FinalNotice::Ended { outcome }) => Some(ended(outcome)),
        Some(FinalNotice::Replaced) => Some(replaced),
        Some(FinalNotice::Sent) => None,
    };
    *notice = Some(FinalNotice::Sent);
    item.map_or(Taken::End, Taken::Item)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Items(u32);

    impl Pending for Items {
        type Item = ();

        fn take(&mut self) -> Taken<()> {
            Taken::Empty
        }
    }

    /// The change waits for the lock while the mailbox is closed.
    #[test]
    fn nothing_is_added_to_a_mailbox_that_was_closed_meanwhile() {
        let mailbox: Mailbox<u32, Items> = Mailbox::new(new_channel_id());
        thread::scope(|scope| {
            let held = mailbox.lock();
            let change = scope.spawn(|| mailbox.change(|items| items.0 += 1));
            thread::sleep(Duration::from_millis(100));
            // As `close` does before it takes the lock.
            mailbox.is_closed.store(true, Ordering::Release);
            drop(held);
            change.join().expect("it returns");
        });
        assert_eq!(mailbox.lock().0, 0);
    }
}
