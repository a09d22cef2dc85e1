//! What waits to be told over one channel: the driver leaves it and never waits, the channel's session takes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rms_core::server_loop::ChannelId;
use rms_model::Outcome;
use tokio::sync::Notify;

/// A channel that none was before in this process.
pub fn draw_channel() -> ChannelId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ChannelId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whose channel it is, `S`, and what waits for it, `W`, which must be bounded by what it is: nobody counts here.
#[derive(Debug)]
pub(crate) struct Mailbox<S, W> {
    channel: ChannelId,
    /// Set once, when the core has said for whom the channel speaks.
    speaks_for: OnceLock<S>,
    waiting: Mutex<W>,
    news: Notify,
    is_closed: AtomicBool,
}

/// What waits, and in which order it is told.
pub(crate) trait Waiting: Default {
    type Told;

    fn take(&mut self) -> Taken<Self::Told>;
}

pub(crate) enum Taken<T> {
    Told(T),
    Nothing,
    End,
}

impl<S: Copy, W: Waiting> Mailbox<S, W> {
    pub(crate) fn new(channel: ChannelId) -> Mailbox<S, W> {
        Mailbox {
            channel,
            speaks_for: OnceLock::new(),
            waiting: Mutex::default(),
            news: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(crate) fn bind(&self, whom: S) {
        // The sessions let nobody come twice over one channel.
        let _ = self.speaks_for.set(whom);
    }

    pub(crate) fn speaks_for(&self) -> Option<S> {
        self.speaks_for.get().copied()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Nobody takes anything any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // What nobody will send takes no memory.
        *self.lock() = W::default();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, W> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut W)) {
        if !self.is_closed() {
            change(&mut self.lock());
            self.news.notify_one();
        }
    }

    /// The next thing to tell; `None` after the last one. May be cancelled.
    pub(crate) async fn next(&self) -> Option<W::Told> {
        loop {
            // Asked for first, so that what comes between the look and the wait is not slept through.
            let news = self.news.notified();
            let taken = self.lock().take();
            match taken {
                Taken::Told(told) => return Some(told),
                Taken::Nothing => news.await,
                Taken::End => return None,
            }
        }
    }
}

/// How it ends for a channel; after this nothing is told.
#[derive(Debug)]
pub(crate) enum Last {
    Ended {
        outcome: Outcome,
    },
    Replaced,
    /// It was told.
    Said,
}

/// Takes the last word: told once, and then the end.
pub(crate) fn take_last<T>(last: &mut Option<Last>, ended: impl FnOnce(Outcome) -> T, replaced: T) -> Taken<T> {
    let told = match last.take() {
        None => return Taken::Nothing,
        Some(Last::Ended { outcome }) => Some(ended(outcome)),
        Some(Last::Replaced) => Some(replaced),
        Some(Last::Said) => None,
    };
    *last = Some(Last::Said);
    told.map_or(Taken::End, Taken::Told)
}
