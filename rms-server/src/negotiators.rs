//! Which channel speaks for which application about its size.

use std::collections::BTreeMap;

use rms_core::Refusal;
use rms_core::negotiate::contract::{NegotiatorAnswer, NegotiatorNotice};
use rms_model::{JobId, Run};
use rms_wire::Refused;

use crate::launcher_outbox::ChannelId;
use crate::negotiator_outbox::{Caller, NegotiatorOutbox};

/// Part of the router: every change of it is a move, and never a wait.
#[derive(Debug, Default)]
pub struct Negotiators {
    bound: BTreeMap<JobId, NegotiatorOutbox>,
    channels: BTreeMap<ChannelId, (JobId, Run)>,
    /// Executions whose channel had gone before it was told that it speaks for them.
    orphans: Vec<(JobId, Run)>,
}

impl Negotiators {
    /// A channel is gone. The execution that it was still speaking for.
    pub fn gone(&mut self, channel: ChannelId) -> Option<(JobId, Run)> {
        let speaks_for = self.channels.remove(&channel)?;
        self.bound.remove(&speaks_for.0);
        Some(speaks_for)
    }

    /// Executions that have got a channel which was gone already: the core is to be told.
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
            NegotiatorNotice::Holding(_) | NegotiatorNotice::Counted { .. } => false,
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
