//! The outbox to the negotiator of an application: bounded, and the driver never waits, however slowly it reads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rms_api::Refused;
use rms_api::negotiate::{Holding, NegotiatorAnswer, NegotiatorNotice};
use rms_core::server_loop::ChannelId;
use rms_model::{JobId, NodeId, Run};
use tokio::sync::OwnedSemaphorePermit;

use crate::mailbox::{FinalNotice, Mailbox, Pending, Taken, take_final};

/// The driver's end of the outbox. Clones share it.
#[derive(Clone, Debug)]
pub struct NegotiatorOutbox(Arc<Slot>);

/// A call that waits for its answer; a statement is answered only if it is refused.
#[derive(Debug)]
pub struct PendingCall {
    pub seq: u64,
    pub outbox: NegotiatorOutbox,
    /// One of the few call places of its channel, free once this is dropped.
    pub place: OwnedSemaphorePermit,
}

/// The session's end of the outbox. Dropping it closes the outbox.
#[derive(Debug)]
pub struct NegotiatorOrders(Arc<Slot>);

/// Not a queue. It holds at most: the answers to the calls that the session allows at once, as few refusals of
/// messages, the newest message of each negotiation (every statement includes all that follows from those before), the
/// current holding, which nodes were lost, and one end. If there are more negotiations than can be open, the oldest
/// message is dropped: a lost message is sent again.
type Slot = Mailbox<(JobId, Run), NegotiatorPending>;

#[derive(Debug, Default)]
struct NegotiatorPending {
    answers: VecDeque<QueuedAnswer>,
    refused: VecDeque<NegotiatorNotice>,
    holding: Option<Box<Holding>>,
    /// Bounded by the nodes of a cluster.
    lost: BTreeSet<NodeId>,
    /// The last number of a negotiation that is used.
    counted: Option<u32>,
    messages: VecDeque<Box<negotiation::Message>>,
    final_notice: Option<FinalNotice>,
}

#[derive(Debug)]
struct QueuedAnswer {
    seq: u64,
    answer: Result<NegotiatorAnswer, Refused>,
    place: OwnedSemaphorePermit,
}

/// An answer or a notice to send.
#[derive(Debug)]
pub enum Outgoing {
    Answer { seq: u64, answer: Result<NegotiatorAnswer, Refused>, place: OwnedSemaphorePermit },
    Notice(NegotiatorNotice),
}

/// More than the negotiations that one application can have open; any others are long over.
const MAX_MESSAGES: usize = 32;
/// More refusals at once add no information.
const MAX_REFUSALS: usize = 16;

impl NegotiatorOutbox {
    pub fn new(channel: ChannelId) -> (NegotiatorOutbox, NegotiatorOrders) {
        let slot = Arc::new(Slot::new(channel));
        (NegotiatorOutbox(Arc::clone(&slot)), NegotiatorOrders(slot))
    }

    pub fn channel(&self) -> ChannelId {
        self.0.channel()
    }

    /// Binds the channel to this execution.
    pub fn bind(&self, job: JobId, run: Run) {
        self.0.bind((job, run));
    }

    /// Returns the execution that the channel is bound to.
    pub fn speaks_for(&self) -> Option<(JobId, Run)> {
        self.0.speaks_for()
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub fn tell(&self, notice: NegotiatorNotice) {
        self.0.change(|pending| match notice {
            NegotiatorNotice::Said(message) => pending.replace(message),
            NegotiatorNotice::Holding(holding) => pending.holding = Some(holding),
            NegotiatorNotice::Counted { n_opened } => pending.counted = Some(n_opened),
            NegotiatorNotice::NodesLost { nodes } => pending.lost.extend(nodes),
            refused @ NegotiatorNotice::Refused { .. } => {
                if pending.refused.len() < MAX_REFUSALS {
                    pending.refused.push_back(refused);
                }
            }
            NegotiatorNotice::Ended { outcome } => {
                pending.final_notice.get_or_insert(FinalNotice::Ended { outcome });
            }
            NegotiatorNotice::Replaced => {
                pending.final_notice.get_or_insert(FinalNotice::Replaced);
            }
        });
    }
}

impl PendingCall {
    pub fn answer(self, answer: Result<NegotiatorAnswer, Refused>) {
        let PendingCall { seq, outbox, place } = self;
        outbox.0.change(|pending| {
            // Nothing follows the final notice, or a flood of calls could keep it from being sent.
            if pending.final_notice.is_none() {
                pending.answers.push_back(QueuedAnswer { seq, answer, place });
            }
        });
    }
}

impl NegotiatorOrders {
    /// Waits for the next item; `None` after the last one. Answers come in their order, and the holding before the
    /// messages that refer to it. Cancel safe.
    pub async fn next(&self) -> Option<Outgoing> {
        self.0.next().await
    }
}

impl Drop for NegotiatorOrders {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl NegotiatorPending {
    fn take_lost(&mut self) -> Option<NegotiatorNotice> {
        let nodes: Vec<NodeId> = std::mem::take(&mut self.lost).into_iter().collect();
        (!nodes.is_empty()).then_some(NegotiatorNotice::NodesLost { nodes })
    }

    /// Puts a message in place of an older one of the same negotiation.
    fn replace(&mut self, mut message: Box<negotiation::Message>) {
        if let Some(idx) = self.messages.iter().position(|older| older.id == message.id)
            && let Some(mut older) = self.messages.remove(idx)
        {
            // A mere acknowledgement must not replace the statement before it.
            if message.statement.is_none() && older.seq >= message.seq {
                older.ack_seq = older.ack_seq.max(message.ack_seq);
                message = older;
            }
        }
        if self.messages.len() >= MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }
}

impl Pending for NegotiatorPending {
    type Item = Outgoing;

    fn take(&mut self) -> Taken<Outgoing> {
        if let Some(QueuedAnswer { seq, answer, place }) = self.answers.pop_front() {
            return Taken::Item(Outgoing::Answer { seq, answer, place });
        }
        let counted = self.counted.take().map(|n_opened| NegotiatorNotice::Counted { n_opened });
        let notice = counted
            .or_else(|| self.take_lost())
            .or_else(|| self.holding.take().map(NegotiatorNotice::Holding))
            .or_else(|| self.messages.pop_front().map(NegotiatorNotice::Said))
            .or_else(|| self.refused.pop_front());
        if let Some(notice) = notice {
            return Taken::Item(Outgoing::Notice(notice));
        }
        let ended = |outcome| Outgoing::Notice(NegotiatorNotice::Ended { outcome });
        take_final(&mut self.final_notice, ended, Outgoing::Notice(NegotiatorNotice::Replaced))
    }
}

#[cfg(test)]
mod tests {
    use negotiation::{Ending, Message, NegotiationId, Reason, Side, Statement};
    use rms_model::Time;

    use super::*;
    use crate::mailbox::new_channel_id;

    fn message(number: u32, statement: u32) -> Message {
        let id = NegotiationId { initiator: Side::Rms, number };
        let end = Statement::End { ending: Ending::Rejected, reason: Reason::Declined };
        Message::new(id, statement, 0, Some(end))
    }

    fn said(message: &Message) -> NegotiatorNotice {
        NegotiatorNotice::Said(Box::new(message.clone()))
    }

    fn holding(generation: u32) -> NegotiatorNotice {
        NegotiatorNotice::Holding(Box::new(Holding {
            generation,
            nodes: Vec::new(),
            until: Time::EPOCH,
            stages: None,
            licences: Default::default(),
        }))
    }

    /// Returns the numbers of the answers, and the notices.
    fn drained(orders: &NegotiatorOrders) -> (Vec<u64>, Vec<NegotiatorNotice>) {
        let (mut answers, mut notices) = (Vec::new(), Vec::new());
        while let Taken::Item(told) = orders.0.lock().take() {
            match told {
                Outgoing::Answer { seq, .. } => answers.push(seq),
                Outgoing::Notice(notice) => notices.push(notice),
            }
        }
        (answers, notices)
    }

    fn caller(seq: u64, outbox: &NegotiatorOutbox) -> PendingCall {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let place = places.try_acquire_owned().expect("nobody else has it");
        PendingCall { seq, outbox: outbox.clone(), place }
    }

    #[test]
    fn an_application_that_does_not_read_is_left_what_is_newest() {
        let (outbox, orders) = NegotiatorOutbox::new(new_channel_id());
        caller(1, &outbox).answer(Ok(NegotiatorAnswer::Done));
        for number in 1..=1000 {
            outbox.tell(holding(number));
            outbox.tell(said(&message(1, number)));
            outbox.tell(said(&message(2, number)));
        }
        outbox.tell(NegotiatorNotice::Ended { outcome: rms_model::Outcome::WallTime });
        outbox.tell(NegotiatorNotice::Replaced);
        let notices = [
            holding(1000),
            said(&message(1, 1000)),
            said(&message(2, 1000)),
            NegotiatorNotice::Ended { outcome: rms_model::Outcome::WallTime },
        ];
        caller(2, &outbox).answer(Ok(NegotiatorAnswer::Done));
        assert_eq!(drained(&orders), (vec![1], notices.to_vec()), "nothing comes after the last word");
        assert!(matches!(orders.0.lock().take(), Taken::End));
    }

    #[test]
    fn a_confirmation_does_not_swallow_what_was_said() {
        let (outbox, orders) = NegotiatorOutbox::new(new_channel_id());
        let statement = message(1, 4);
        outbox.tell(said(&statement));
        outbox.tell(said(&Message { ack_seq: 7, statement: None, ..statement.clone() }));
        assert_eq!(drained(&orders).1, [said(&Message { ack_seq: 7, ..statement })]);
    }

    #[test]
    fn talk_about_a_thousand_negotiations_takes_little_room() {
        let (outbox, orders) = NegotiatorOutbox::new(new_channel_id());
        for number in 1..=1000 {
            outbox.tell(said(&message(number, 1)));
            let negotiation = NegotiationId { initiator: Side::Application, number };
            outbox.tell(NegotiatorNotice::Refused { negotiation, number: 1, reason: "no".to_owned() });
        }
        let (_, notices) = drained(&orders);
        assert_eq!(notices.len(), MAX_MESSAGES + MAX_REFUSALS);
        assert!(notices.contains(&said(&message(1000, 1))), "the newest is there");
    }

    #[test]
    fn a_session_that_is_gone_is_left_nothing() {
        let (outbox, orders) = NegotiatorOutbox::new(new_channel_id());
        drop(orders);
        outbox.tell(NegotiatorNotice::Replaced);
        assert!(outbox.is_closed() && outbox.0.lock().final_notice.is_none());
    }
}
