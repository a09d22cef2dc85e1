//! Serves a launcher's channel: passes its calls to the driver, and answers and notices to the launcher.

use rms_api::Refused;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rms_api::subscription::LauncherCall;
use rms_model::{Identity, JobId};
use rms_wire::link::{ByteCount, Receiver, Sender};
use rms_wire::parts::notice_parts;
use rms_wire::{LauncherSays, LauncherTold};
use tokio::sync::Semaphore;

use super::{CallNumber, SessionError, unparsed_call};
use crate::inbox::Inbound;
use crate::launcher_outbox::{LauncherOrders, LauncherOutbox, Outgoing};
use crate::mailbox::new_channel_id;
use crate::shared::Shared;

/// The most calls at once: the next frame is read once the answer to one of them was written. So a launcher that
/// floods, or does not read its answers, is slowed down by the flow control of its own channel.
const MAX_CALLS: u32 = 8;

/// Serves the channel until the application has left, another channel serves it, or the launcher disconnects.
pub async fn serve(
    sender: Sender,
    receiver: Receiver,
    who: &Identity,
    shared: &Arc<Shared>,
) -> Result<(), SessionError> {
    let channel = new_channel_id();
    let (outbox, orders) = LauncherOutbox::new(channel);
    let places = Semaphore::new(MAX_CALLS as usize);
    let mut traffic = Traffic::begin(shared, &sender, &receiver);
    let mut read_half = ReadHalf { receiver, who, outbox, places: &places, shared };
    let mut write_half = WriteHalf { sender, orders, places: &places };
    // Neither is polled again after the other has ended, so no frame is cut while the channel is in use.
    let served = tokio::select! {
        served = read_half.run() => served,
        served = write_half.run(&mut traffic) => served,
    };
    let job = read_half.outbox.job();
    let (up, down) = (traffic.up.bytes(), traffic.down.bytes());
    drop(traffic);
    // Closed before the driver is told: anything that the driver still binds to this channel finds it closed.
    drop(write_half);
    tracing::debug!(job = job.map(|job| job.0), up, down, "a launcher's channel ends");
    shared.inbox.put(Inbound::LauncherGone { channel }).await?;
    served
}

/// The incoming half.
struct ReadHalf<'a> {
    receiver: Receiver,
    who: &'a Identity,
    outbox: LauncherOutbox,
    places: &'a Semaphore,
    shared: &'a Shared,
}

impl ReadHalf<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            let place = self.places.acquire().await.expect("the semaphore is never closed");
            // The write half releases the place with the answer.
            place.forget();
            let said = self.receiver.recv_or::<LauncherSays, CallNumber>().await?;
            let Some((said, held)) = said else { return Ok(()) };
            let LauncherSays { seq, call } = match said {
                Ok(said) => said,
                Err(unparsed) => {
                    self.outbox.answer(unparsed.read.seq, Err(unparsed_call(&unparsed.error)));
                    continue;
                }
            };
            if let Err(refused) = check(self.outbox.job(), &call) {
                self.outbox.answer(seq, Err(refused));
                continue;
            }
            let opens = subject(&call).is_none();
            let (who, outbox) = (self.who.clone(), self.outbox.clone());
            self.shared.inbox.put(Inbound::LauncherCalled { who, call, seq, outbox, held }).await?;
            if opens {
                // Until this is answered, it is unknown for which application the next call is.
                drop(self.places.acquire_many(MAX_CALLS).await);
            }
        }
    }
}

/// Returns the application that a call is for; the first call creates it, or attaches to it.
fn subject(call: &LauncherCall) -> Option<JobId> {
    match call {
        LauncherCall::Subscribe(_) | LauncherCall::Attach { job: _ } => None,
        LauncherCall::Clusters { job }
        | LauncherCall::Request { job, .. }
        | LauncherCall::Launch { job, .. }
        | LauncherCall::Accept { job, .. }
        | LauncherCall::Finish { job, .. } => Some(*job),
    }
}

/// Checks that a call fits its channel: a channel serves one application, which its first call names.
fn check(own: Option<JobId>, call: &LauncherCall) -> Result<(), Refused> {
    match (own, subject(call)) {
        (None, None) => Ok(()),
        (Some(own), Some(job)) if own == job => Ok(()),
        (Some(own), Some(job)) => {
            let message = format_args!("this channel serves application {own}, not {job}");
            Err(Refused::new("not_subscribed", message))
        }
        (None, Some(_)) => {
            let message = "subscribe an application first, or attach one, and wait for the answer";
            Err(Refused::new("not_subscribed", message))
        }
        (Some(own), None) => {
            let message = format_args!("this channel serves application {own} already: open another one");
            Err(Refused::new("already_subscribed", message))
        }
    }
}

/// The outgoing half.
struct WriteHalf<'a> {
    sender: Sender,
    orders: LauncherOrders,
    places: &'a Semaphore,
}

impl WriteHalf<'_> {
    async fn run(&mut self, traffic: &mut Traffic<'_>) -> Result<(), SessionError> {
        while let Some(told) = self.orders.next().await {
            match told {
                Outgoing::Answer { seq, answer } => {
                    self.sender.send(&LauncherTold::Answer { seq, answer }).await?;
                    self.places.add_permits(1);
                }
                Outgoing::Notice(notice) => {
                    let parts: Vec<LauncherTold> = notice_parts(&notice);
                    for part in parts {
                        self.sender.send(&part).await?;
                    }
                }
            }
            traffic.count();
        }
        self.sender.finish();
        Ok(())
    }
}

/// Adds a channel's bytes to the counters of all channels.
struct Traffic<'a> {
    shared: &'a Shared,
    up: ByteCount,
    down: ByteCount,
    counted: (u64, u64),
}

impl Traffic<'_> {
    fn begin<'a>(shared: &'a Shared, sender: &Sender, receiver: &Receiver) -> Traffic<'a> {
        shared.launchers.n_open.fetch_add(1, Ordering::Relaxed);
        shared.launchers.n_opened.fetch_add(1, Ordering::Relaxed);
        let (up, down) = (receiver.n_bytes(), sender.n_bytes());
        // The call that opened the channel counts, too.
        Traffic { shared, up, down, counted: (0, 0) }
    }

    fn count(&mut self) {
        let now = (self.up.bytes(), self.down.bytes());
        self.shared.launchers.bytes_up.fetch_add(now.0 - self.counted.0, Ordering::Relaxed);
        self.shared.launchers.bytes_down.fetch_add(now.1 - self.counted.1, Ordering::Relaxed);
        self.counted = now;
    }
}

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        self.count();
        self.shared.launchers.n_open.fetch_sub(1, Ordering::Relaxed);
    }
}
