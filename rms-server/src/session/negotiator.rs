//! Serves the channel of a negotiator (002): passes its calls to the driver, and answers and notices to it.

use rms_api::Refused;
use std::fmt::Display;
use std::sync::Arc;

use rms_api::negotiate::{NegotiatorCall, NegotiatorNotice};
use rms_model::Identity;
use rms_wire::link::{Receiver, Sender};
use rms_wire::{NegotiatorSays, NegotiatorTold};
use tokio::sync::Semaphore;

use super::{CallNumber, SessionError, unparsed_call};
use crate::inbox::Inbound;
use crate::mailbox::new_channel_id;
use crate::negotiator_outbox::{NegotiatorOrders, NegotiatorOutbox, Outgoing, PendingCall};
use crate::shared::Shared;

/// The most calls at once: the next frame is read once the result of one of them is durable, and its answer was
/// written. A negotiator that floods, or does not read its answers, is slowed down by the flow control of its own
/// channel.
const MAX_CALLS: u32 = 8;

/// Serves the channel until the application has left, another channel serves it, or the process disconnects.
pub async fn serve(
    sender: Sender,
    receiver: Receiver,
    who: &Identity,
    shared: &Arc<Shared>,
) -> Result<(), SessionError> {
    let channel = new_channel_id();
    let (outbox, orders) = NegotiatorOutbox::new(channel);
    let places = Arc::new(Semaphore::new(MAX_CALLS as usize));
    let mut read_half = ReadHalf { receiver, who, outbox, places, shared };
    let mut write_half = WriteHalf { sender, orders, has_warned: false };
    // Neither is polled again after the other has ended, so no frame is cut while the channel is in use.
    let served = tokio::select! {
        served = read_half.run() => served,
        served = write_half.run() => served,
    };
    let speaks_for = read_half.outbox.speaks_for();
    // Closed before the driver is told: anything that the driver still binds to this channel finds it closed.
    drop(write_half);
    if let Some((job, run)) = speaks_for {
        tracing::debug!(%job, %run, "a negotiator's channel ends");
    }
    shared.inbox.put(Inbound::NegotiatorGone { channel }).await?;
    served
}

/// The incoming half.
struct ReadHalf<'a> {
    receiver: Receiver,
    who: &'a Identity,
    outbox: NegotiatorOutbox,
    places: Arc<Semaphore>,
    shared: &'a Shared,
}

impl ReadHalf<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
            let said = self.receiver.recv_or::<NegotiatorSays, CallNumber>().await?;
            let Some((said, held)) = said else { return Ok(()) };
            let (seq, call) = match said {
                Ok(NegotiatorSays { seq, call }) => (seq, self.check(&call).map(|()| call)),
                Err(unparsed) => (unparsed.read.seq, Err(unparsed_call(&unparsed.error))),
            };
            let caller = PendingCall { seq, outbox: self.outbox.clone(), place };
            let call = match call {
                Ok(call) => call,
                Err(refused) => {
                    caller.answer(Err(refused));
                    continue;
                }
            };
            let opens = matches!(call, NegotiatorCall::Attach(_));
            self.shared.inbox.put(Inbound::NegotiatorCalled { who: self.who.clone(), call, caller, held }).await?;
            if opens {
                // Until this is answered, it is unknown whether the negotiator may send anything.
                drop(self.places.acquire_many(MAX_CALLS).await);
            }
        }
    }

    /// Checks that the channel attaches once, and before anything else.
    fn check(&self, call: &NegotiatorCall) -> Result<(), Refused> {
        match (call, self.outbox.speaks_for()) {
            (NegotiatorCall::Attach(_), None) => Ok(()),
            (NegotiatorCall::Declare(_) | NegotiatorCall::Say(_) | NegotiatorCall::Free(_), Some(_)) => Ok(()),
            (NegotiatorCall::Attach(_), Some((job, _))) => {
                let message = format_args!("this channel negotiates for job {job} already: open another one");
                Err(Refused::new("already_attached", message))
            }
            (NegotiatorCall::Declare(_) | NegotiatorCall::Say(_) | NegotiatorCall::Free(_), None) => {
                Err(Refused::new("not_attached", "attach first, and wait for the answer"))
            }
        }
    }
}

/// The outgoing half.
struct WriteHalf {
    sender: Sender,
    orders: NegotiatorOrders,
    /// A negotiator that sends only invalid messages must not fill the log: only the first refusal of a channel is a
    /// warning.
    has_warned: bool,
}

impl WriteHalf {
    async fn run(&mut self) -> Result<(), SessionError> {
        while let Some(told) = self.orders.next().await {
            match told {
                // The place is released once the answer was written.
                Outgoing::Answer { seq, answer, place: _place } => {
                    if let Err(refused) = &answer {
                        self.log(&refused.kind, &refused.message);
                    }
                    self.sender.send(&NegotiatorTold::Answer { seq, answer }).await?;
                }
                Outgoing::Notice(notice) => {
                    if let NegotiatorNotice::Refused { negotiation, reason, .. } = &notice {
                        self.log(negotiation, reason);
                    }
                    self.sender.send(&NegotiatorTold::Notice(notice)).await?;
                }
            }
        }
        self.sender.finish();
        Ok(())
    }

    fn log(&mut self, what: impl Display, reason: &str) {
        if self.has_warned {
            tracing::debug!(%what, reason, "refused a message of a negotiator");
        } else {
            self.has_warned = true;
            tracing::warn!(%what, reason, "refused a message of a negotiator; further ones of this channel are logged at debug");
        }
    }
}
