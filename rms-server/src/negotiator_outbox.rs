//! What leaves the driver for the negotiator of an application: bounded, and never a wait, however slowly it reads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rms_api::Refused;
use rms_api::negotiate::{Holding, NegotiatorAnswer, NegotiatorNotice};
use rms_core::server_loop::ChannelId;
use rms_model::{JobId, NodeId, Run};
use tokio::sync::OwnedSemaphorePermit;

use crate::mailbox::{Last, Mailbox, Taken, Waiting, take_last};

/// Where the driver leaves what a negotiator is to be told. Clones are the same.
#[derive(Clone, Debug)]
pub struct NegotiatorOutbox(Arc<Slot>);

/// Who waits for an answer; what is only said is answered if it is refused.
#[derive(Debug)]
pub struct Caller {
    pub seq: u64,
    pub outbox: NegotiatorOutbox,
    /// One of few of its channel, free once this is dropped.
    pub place: OwnedSemaphorePermit,
}

/// What the negotiator's session sends on. Dropped, it tells the driver that nobody will.
#[derive(Debug)]
pub struct NegotiatorOrders(Arc<Slot>);

/// Not a queue. What waits is at most: the answers to as many calls as the session lets be under way, what was not taken
/// of as few messages, the newest message of each negotiation (every statement says all that follows from those before),
/// what is held now, which nodes were lost, and one end. Should there be more negotiations than can be open, the oldest message is dropped: a
/// message may be lost, and is said again.
type Slot = Mailbox<(JobId, Run), ForNegotiator>;

#[derive(Debug, Default)]
struct ForNegotiator {
    answers: VecDeque<QueuedAnswer>,
    refused: VecDeque<NegotiatorNotice>,
    holding: Option<Box<Holding>>,
    /// No more than a cluster has.
    lost: BTreeSet<NodeId>,
    /// The last number that is used.
    counted: Option<u32>,
    messages: VecDeque<Box<negotiation::Message>>,
    last: Option<Last>,
}

#[derive(Debug)]
struct QueuedAnswer {
    seq: u64,
    answer: Result<NegotiatorAnswer, Refused>,
    place: OwnedSemaphorePermit,
}

/// One thing to be told.
#[derive(Debug)]
pub enum Told {
    Answer { seq: u64, answer: Result<NegotiatorAnswer, Refused>, place: OwnedSemaphorePermit },
    Notice(NegotiatorNotice),
}

/// More negotiations than one application can have open; the others are long over.
const MOST_MESSAGES: usize = 32;
/// More refusals at once say nothing new.
const MOST_REFUSED: usize = 16;

impl NegotiatorOutbox {
    pub fn new(channel: ChannelId) -> (NegotiatorOutbox, NegotiatorOrders) {
        let slot = Arc::new(Slot::new(channel));
        (NegotiatorOutbox(Arc::clone(&slot)), NegotiatorOrders(slot))
    }

    pub fn channel(&self) -> ChannelId {
        self.0.channel()
    }

    /// The channel speaks for this execution from now on.
    pub fn bind(&self, job: JobId, run: Run) {
        self.0.bind((job, run));
    }

    /// For which execution the channel speaks.
    pub fn speaks_for(&self) -> Option<(JobId, Run)> {
        self.0.speaks_for()
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub fn tell(&self, notice: NegotiatorNotice) {
        self.0.change(|waiting| match notice {
            NegotiatorNotice::Said(message) => waiting.lay(message),
            NegotiatorNotice::Holding(holding) => waiting.holding = Some(holding),
            NegotiatorNotice::Counted { n_opened } => waiting.counted = Some(n_opened),
            NegotiatorNotice::NodesLost { nodes } => waiting.lost.extend(nodes),
            refused @ NegotiatorNotice::Refused { .. } => {
                if waiting.refused.len() < MOST_REFUSED {
                    waiting.refused.push_back(refused);
                }
            }
            NegotiatorNotice::Ended { outcome } => {
                waiting.last.get_or_insert(Last::Ended { outcome });
            }
            NegotiatorNotice::Replaced => {
                waiting.last.get_or_insert(Last::Replaced);
            }
        });
    }
}

impl Caller {
    pub fn answer(self, answer: Result<NegotiatorAnswer, Refused>) {
        let Caller { seq, outbox, place } = self;
        outbox.0.change(|waiting| {
            // After the last word nothing is said, or a flood of calls could keep it from being said.
            if waiting.last.is_none() {
                waiting.answers.push_back(QueuedAnswer { seq, answer, place });
            }
        });
    }
}

impl NegotiatorOrders {
    /// The next thing to tell; `None` after the last one. Answers come in their order, and what is held before the
    /// messages that speak of it. May be cancelled.
    pub async fn next(&self) -> Option<Told> {
        self.0.next().await
    }
}

impl Drop for NegotiatorOrders {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ForNegotiator {
    fn take_lost(&mut self) -> Option<NegotiatorNotice> {
        let nodes: Vec<NodeId> = std::mem::take(&mut self.lost).into_iter().collect();
        (!nodes.is_empty()).then_some(NegotiatorNotice::NodesLost { nodes })
    }

    /// A message takes the place of an older one of the same negotiation.
    fn lay(&mut self, mut message: Box<negotiation::Message>) {
        if let Some(idx) = self.messages.iter().position(|older| older.id == message.id)
            && let Some(mut older) = self.messages.remove(idx)
        {
            // A mere confirmation must not swallow the statement that it follows.
            if message.statement.is_none() && older.seq >= message.seq {
                older.ack_seq = older.ack_seq.max(message.ack_seq);
                message = older;
            }
        }
        if self.messages.len() >= MOST_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }
}

impl Waiting for ForNegotiator {
    type Told = Told;

    fn take(&mut self) -> Taken<Told> {
        if let Some(QueuedAnswer { seq, answer, place }) = self.answers.pop_front() {
            return Taken::Told(Told::Answer { seq, answer, place });
        }
        let counted = self.counted.take().map(|n_opened| NegotiatorNotice::Counted { n_opened });
        let notice = counted
            .or_else(|| self.take_lost())
            .or_else(|| self.holding.take().map(NegotiatorNotice::Holding))
            .or_else(|| self.messages.pop_front().map(NegotiatorNotice::Said))
            .or_else(|| self.refused.pop_front());
        if let Some(notice) = notice {
            return Taken::Told(Told::Notice(notice));
        }
        let ended = |outcome| Told::Notice(NegotiatorNotice::Ended { outcome });
        take_last(&mut self.last, ended, Told::Notice(NegotiatorNotice::Replaced))
    }
}

#[cfg(test)]
mod tests {
    use negotiation::{Ending, Message, NegotiationId, Reason, Side, Statement};
    use rms_model::Time;

    use super::*;
    use crate::mailbox::draw_channel;

    fn message(number: u32, statement: u32) -> Message {
        let id = NegotiationId { initiator: Side::Rms, number };
        let end = Statement::End { ending: Ending::Rejected, reason: Reason::Declined };
        Message { id, seq: statement, ack_seq: 0, statement: Some(end) }
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

    /// Notices, after the numbers of answers.
    fn drained(orders: &NegotiatorOrders) -> (Vec<u64>, Vec<NegotiatorNotice>) {
        let (mut answers, mut notices) = (Vec::new(), Vec::new());
        while let Taken::Told(told) = orders.0.lock().take() {
            match told {
                Told::Answer { seq, .. } => answers.push(seq),
                Told::Notice(notice) => notices.push(notice),
            }
        }
        (answers, notices)
    }

    fn caller(seq: u64, outbox: &NegotiatorOutbox) -> Caller {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let place = places.try_acquire_owned().expect("nobody else has it");
        Caller { seq, outbox: outbox.clone(), place }
    }

    #[test]
    fn an_application_that_does_not_read_is_left_what_is_newest() {
        let (outbox, orders) = NegotiatorOutbox::new(draw_channel());
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
        let (outbox, orders) = NegotiatorOutbox::new(draw_channel());
        let statement = message(1, 4);
        outbox.tell(said(&statement));
        outbox.tell(said(&Message { ack_seq: 7, statement: None, ..statement.clone() }));
        assert_eq!(drained(&orders).1, [said(&Message { ack_seq: 7, ..statement })]);
    }

    #[test]
    fn talk_about_a_thousand_negotiations_takes_little_room() {
        let (outbox, orders) = NegotiatorOutbox::new(draw_channel());
        for number in 1..=1000 {
            outbox.tell(said(&message(number, 1)));
            let negotiation = NegotiationId { initiator: Side::Application, number };
            outbox.tell(NegotiatorNotice::Refused { negotiation, number: 1, reason: "no".to_owned() });
        }
        let (_, notices) = drained(&orders);
        assert_eq!(notices.len(), MOST_MESSAGES + MOST_REFUSED);
        assert!(notices.contains(&said(&message(1000, 1))), "the newest is there");
    }

    #[test]
    fn a_session_that_is_gone_is_left_nothing() {
        let (outbox, orders) = NegotiatorOutbox::new(draw_channel());
        drop(orders);
        outbox.tell(NegotiatorNotice::Replaced);
        assert!(outbox.is_closed() && outbox.0.lock().last.is_none());
    }
}
