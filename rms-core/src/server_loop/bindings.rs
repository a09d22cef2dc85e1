//! Which channel is bound to which application: launchers to theirs, and negotiators to their executions.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::JobId;

use super::message::ChannelId;

/// The bindings of one kind of peer; `X` distinguishes successive peers of one application.
#[derive(Debug)]
pub(super) struct Bindings<X> {
    bound: BTreeMap<JobId, ChannelId>,
    channels: BTreeMap<ChannelId, (JobId, X)>,
    /// Channels that closed in this batch: the core may still answer that they are bound.
    gone: BTreeSet<ChannelId>,
    /// Applications without a channel. The core is told after the batch, unless another channel was bound in it: the
    /// core has already heard of that one, and would take it for the closed one.
    orphans: Vec<(JobId, X)>,
}

impl<X> Default for Bindings<X> {
    fn default() -> Bindings<X> {
        let (bound, channels) = (BTreeMap::new(), BTreeMap::new());
        Bindings { bound, channels, gone: BTreeSet::new(), orphans: Vec::new() }
    }
}

impl<X: Copy> Bindings<X> {
    pub(super) fn channel_of(&self, job: JobId) -> Option<ChannelId> {
        self.bound.get(&job).copied()
    }

    /// Binds a channel to an application. Returns the channel that it replaces.
    pub(super) fn bind(&mut self, channel: ChannelId, job: JobId, execution: X) -> Option<ChannelId> {
        if self.gone.contains(&channel) {
            self.orphans.push((job, execution));
            return None;
        }
        self.channels.insert(channel, (job, execution));
        let older = self.bound.insert(job, channel).filter(|older| *older != channel)?;
        self.channels.remove(&older);
        Some(older)
    }

    /// Adds an application whose caller does not know that it was bound, because it was told that the disk fails.
    pub(super) fn orphan(&mut self, job: JobId, execution: X) {
        self.orphans.push((job, execution));
    }

    pub(super) fn channel_closed(&mut self, channel: ChannelId) {
        match self.channels.remove(&channel) {
            Some((job, execution)) => {
                self.bound.remove(&job);
                self.orphans.push((job, execution));
            }
            None => {
                self.gone.insert(channel);
            }
        }
    }

    /// Unbinds the application after its last notice.
    pub(super) fn end(&mut self, job: JobId) {
        if let Some(channel) = self.bound.remove(&job) {
            self.channels.remove(&channel);
        }
    }

    /// Ends the batch: all calls in it are answered.
    pub(super) fn end_batch(&mut self) {
        self.gone.clear();
        self.orphans.retain(|(job, _)| !self.bound.contains_key(job));
    }

    pub(super) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Takes the orphans of earlier batches, to be reported to the core.
    pub(super) fn take_orphans(&mut self) -> Vec<(JobId, X)> {
        std::mem::take(&mut self.orphans)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Run;

    use super::*;

    const JOB: JobId = JobId(1);
    const OLDER: ChannelId = ChannelId(1);
    const NEWER: ChannelId = ChannelId(2);

    #[test]
    fn a_channel_that_goes_in_the_batch_in_which_another_comes_leaves_no_orphan() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.bind(OLDER, JOB, Run(1)), None);
        // The core has heard of the newer one before; its answer comes after the batch.
        bindings.channel_closed(OLDER);
        assert_eq!(bindings.bind(NEWER, JOB, Run(1)), None);
        bindings.end_batch();
        assert!(!bindings.has_orphans());
        bindings.channel_closed(NEWER);
        bindings.end_batch();
        assert_eq!(bindings.take_orphans(), [(JOB, Run(1))]);
    }

    #[test]
    fn a_channel_that_goes_before_it_is_answered_speaks_for_nobody() {
        let mut bindings = Bindings::default();
        bindings.channel_closed(OLDER);
        assert_eq!(bindings.bind(OLDER, JOB, ()), None);
        bindings.end_batch();
        assert_eq!((bindings.channel_of(JOB), bindings.take_orphans()), (None, vec![(JOB, ())]));
    }

    #[test]
    fn who_is_replaced_does_not_take_the_application_with_it() {
        let mut bindings = Bindings::default();
        bindings.bind(OLDER, JOB, ());
        assert_eq!(bindings.bind(NEWER, JOB, ()), Some(OLDER));
        bindings.channel_closed(OLDER);
        bindings.end_batch();
        assert_eq!((bindings.channel_of(JOB), bindings.has_orphans()), (Some(NEWER), false));
    }
}
