//! Which channel speaks for which application about its size.

use std::collections::BTreeMap;

use rms_api::Refusal;
use rms_api::Refused;
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorNotice};
use rms_model::{JobId, Run};

use crate::mailbox::ChannelId;
use crate::negotiator_outbox::{Caller, NegotiatorOutbox};

/// Part of the router: every change of it is a move, and never a wait.
#[derive(Debug, Default)]
pub struct Negotiators {
    bound: BTreeMap<JobId, NegotiatorOutbox>,
    channels: BTreeMap<ChannelId, (JobId, Run)>,
    /// Executions whose channel is gone, maybe before it was told that it speaks for them.
    orphans: Vec<(JobId, Run)>,
}

impl Negotiators {
    /// A channel is gone. The execution that it was still speaking for is an orphan, unless it gets another one with the
    /// batch that is handled now: the core has heard of that one before, and takes it for the one that is gone.
    pub fn gone(&mut self, channel: ChannelId) {
        if let Some(speaks_for) = self.channels.remove(&channel) {
            self.bound.remove(&speaks_for.0);
            self.orphans.push(speaks_for);
        }
    }

    /// Executions for which nobody speaks any more: the core is to be told.
    pub fn take_orphans(&mut self) -> Vec<(JobId, Run)> {
        let mut orphans = std::mem::take(&mut self.orphans);
        // One that came later may be well.
        orphans.retain(|(job, _)| !self.bound.contains_key(job));
        orphans
    }

    /// The answer to a call, and who speaks for the application from then on. The caller is absent if it was told
    /// already that the journal fails: it does not know that it speaks for anybody.
    pub fn answer(&mut self, caller: Option<Caller>, given: Result<NegotiatorAnswer, Refusal>) {
        let attached = match &given {
            Ok(NegotiatorAnswer::Attached(attached)) => Some((attached.job, attached.run)),
            Ok(NegotiatorAnswer::Done) | Err(_) => None,
        };
        match caller {
            Some(caller) => {
                if let Some(speaks_for) = attached {
                    self.bind(speaks_for, &caller.outbox);
                }
                caller.answer(given.map_err(|refusal| Refused::from(&refusal)));
            }
            None => self.orphans.extend(attached),
        }
    }

    pub fn tell(&mut self, job: JobId, notice: NegotiatorNotice) {
        let is_last = match &notice {
            NegotiatorNotice::Ended { .. } | NegotiatorNotice::Replaced => true,
            NegotiatorNotice::Said(_) | NegotiatorNotice::Refused { .. } => false,
            NegotiatorNotice::Holding(_) | NegotiatorNotice::Counted { .. } | NegotiatorNotice::HostsLost { .. } => {
                false
            }
        };
        // One that attaches later is told everything.
        let Some(outbox) = self.bound.get(&job) else { return };
        outbox.tell(notice);
        if is_last {
            self.channels.remove(&outbox.channel());
            self.bound.remove(&job);
        }
    }

    /// From now on this channel speaks for the application. An older one is told so, and ends.
    fn bind(&mut self, (job, run): (JobId, Run), outbox: &NegotiatorOutbox) {
        if outbox.is_closed() {
            // Its end was reported before it was bound, or will be and then finds nothing.
            self.orphans.push((job, run));
            return;
        }
        outbox.bind(job, run);
        self.channels.insert(outbox.channel(), (job, run));
        if let Some(older) = self.bound.insert(job, outbox.clone())
            && older.channel() != outbox.channel()
        {
            self.channels.remove(&older.channel());
            older.tell(NegotiatorNotice::Replaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use negotiation::Rules;
    use rms_api::negotiate::{Attached, Declared, Holding};
    use rms_model::{Sizes, Span, Speedup, Time};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::negotiator_outbox::NegotiatorOrders;

    const EXECUTION: (JobId, Run) = (JobId(1), Run(1));

    /// The core lets this channel speak for the execution.
    fn attach(negotiators: &mut Negotiators) -> (ChannelId, NegotiatorOrders) {
        let channel = ChannelId::draw();
        let (outbox, orders) = NegotiatorOutbox::new(channel);
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("nobody else has it");
        let attached = Attached {
            job: EXECUTION.0,
            run: EXECUTION.1,
            rules: Rules::default(),
            release_within: Span::ZERO,
            n_opened: 0,
            declared: Declared { least: 1, most: 1, sizes: Sizes::Any, speedup: Speedup::default() },
            holding: Holding { generation: 1, hosts: Vec::new(), until: Time::EPOCH, stages: None },
            open: Vec::new(),
            clusters: BTreeMap::new(),
        };
        let answer = Ok(NegotiatorAnswer::Attached(Box::new(attached)));
        negotiators.answer(Some(Caller { seq: 1, outbox, place }), answer);
        (channel, orders)
    }

    #[test]
    fn a_channel_that_goes_in_the_batch_in_which_another_comes_leaves_no_orphan() {
        let mut negotiators = Negotiators::default();
        let (older, _unread) = attach(&mut negotiators);
        // The core has heard of the newer one before; its answer comes after the batch.
        negotiators.gone(older);
        let (newer, _unread) = attach(&mut negotiators);
        assert_eq!(negotiators.take_orphans(), []);
        negotiators.gone(newer);
        assert_eq!(negotiators.take_orphans(), [EXECUTION]);
    }
}
