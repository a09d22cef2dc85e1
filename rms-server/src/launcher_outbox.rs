//! The outbox to one launcher: bounded, and the driver never waits, however slowly the launcher reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rms_api::Refused;
use rms_api::subscription::{ClusterChange, Grant, LauncherAnswer, Notice, ViewChange};
use rms_core::server_loop::ChannelId;
use rms_model::{ClusterId, JobId, Profile, Time};

use crate::mailbox::{FinalNotice, Mailbox, Pending, Taken, take_final};

/// The driver's end of the outbox. Clones share it.
#[derive(Clone, Debug)]
pub struct LauncherOutbox(Arc<Slot>);

/// The session's end of the outbox. Dropping it closes the outbox.
#[derive(Debug)]
pub struct LauncherOrders(Arc<Slot>);

/// Not a queue. It holds at most: the answers to the calls that the session allows at once, one change of the view (a
/// newer change is merged into it), one start (a newer start replaces it) and one end. So it is never full, and nothing
/// that is still valid is ever dropped.
type Slot = Mailbox<JobId, LauncherPending>;

#[derive(Debug, Default)]
struct LauncherPending {
    answers: VecDeque<Outgoing>,
    started: Option<Grant>,
    changed: Option<Changes>,
    final_notice: Option<FinalNotice>,
}

/// An answer or a notice to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    Answer { seq: u64, answer: Result<LauncherAnswer, Refused> },
    Notice(Notice),
}

impl LauncherOutbox {
    pub fn new(channel: ChannelId) -> (LauncherOutbox, LauncherOrders) {
        let slot = Arc::new(Slot::new(channel));
        (LauncherOutbox(Arc::clone(&slot)), LauncherOrders(slot))
    }

    pub fn channel(&self) -> ChannelId {
        self.0.channel()
    }

    /// Binds the channel to this application.
    pub fn bind(&self, job: JobId) {
        self.0.bind(job);
    }

    /// Returns the application that the channel is bound to.
    pub fn job(&self) -> Option<JobId> {
        self.0.speaks_for()
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub fn answer(&self, seq: u64, answer: Result<LauncherAnswer, Refused>) {
        self.0.change(|pending| {
            // Nothing follows the final notice, or a flood of calls could keep it from being sent.
            if pending.final_notice.is_none() {
                pending.answers.push_back(Outgoing::Answer { seq, answer });
            }
        });
    }

    pub fn tell(&self, notice: Notice) {
        self.0.change(|pending| match notice {
            Notice::Changed(change) => pending.changed.get_or_insert_default().merge(change),
            Notice::Started(grant) => pending.started = Some(grant),
            Notice::Ended { outcome } => {
                pending.final_notice.get_or_insert(FinalNotice::Ended { outcome });
            }
            Notice::Replaced => {
                pending.final_notice.get_or_insert(FinalNotice::Replaced);
            }
        });
    }
}

impl LauncherOrders {
    /// Waits for the next item; `None` after the last one. Answers come in their order, and before notices that follow
    /// from their calls. Cancel safe.
    pub async fn next(&self) -> Option<Outgoing> {
        self.0.next().await
    }
}

impl Drop for LauncherOrders {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pending for LauncherPending {
    type Item = Outgoing;

    fn take(&mut self) -> Taken<Outgoing> {
        if let Some(answer) = self.answers.pop_front() {
            return Taken::Item(answer);
        }
        // A start before a view: it must be answered in time, and makes further planning unnecessary.
        if let Some(grant) = self.started.take() {
            return Taken::Item(Outgoing::Notice(Notice::Started(grant)));
        }
        if let Some(changes) = self.changed.take() {
            return Taken::Item(Outgoing::Notice(Notice::Changed(changes.into())));
        }
        let ended = |outcome| Outgoing::Notice(Notice::Ended { outcome });
        take_final(&mut self.final_notice, ended, Outgoing::Notice(Notice::Replaced))
    }
}

/// Merged changes of the view that were not sent yet: the newest of each cluster, with the version of the newest.
#[derive(Debug, Default)]
struct Changes {
    version: u64,
    at: Time,
    /// By cluster and shape.
    clusters: BTreeMap<(ClusterId, u32), ClusterChange>,
}

impl Changes {
    fn merge(&mut self, change: ViewChange) {
        self.version = change.version;
        self.at = change.at;
        for newer in change.clusters {
            let place = (newer.cluster, newer.shape);
            if is_gone(&newer) {
                self.clusters.retain(|(cluster, shape), _| *cluster != newer.cluster || *shape == newer.shape);
            }
            match self.clusters.get_mut(&place) {
                None => {
                    self.clusters.insert(place, newer);
                }
                Some(older) if is_gone(&newer) => *older = newer,
                Some(older) => {
                    // A cluster that was to be removed and comes back begins empty, unless the change says otherwise.
                    let before = if is_gone(older) { Some(Arc::new(Profile::new())) } else { older.occupied.take() };
                    older.info |= newer.info;
                    older.capacity = newer.capacity;
                    older.occupied = newer.occupied.or(before);
                }
            }
        }
    }
}

impl From<Changes> for ViewChange {
    fn from(changes: Changes) -> ViewChange {
        let Changes { version, at, clusters } = changes;
        ViewChange { version, at, clusters: clusters.into_values().collect() }
    }
}

/// Returns whether this change removes the cluster from the view.
fn is_gone(change: &ClusterChange) -> bool {
    change.capacity == 0 && change.occupied.is_none() && change.info
}

#[cfg(test)]
mod tests {
    use rms_api::subscription::{LauncherView, Tag};
    use rms_model::{Request, Run, Span};

    use super::*;
    use crate::mailbox::new_channel_id;

    fn occupied(nodes: i64) -> Option<Arc<Profile>> {
        Some(Arc::new(Profile::from_pairs(Time::EPOCH, [(Span::from_secs(10), nodes)])))
    }

    fn cluster(cluster: u16, capacity: u32, occupied: Option<Arc<Profile>>) -> ClusterChange {
        ClusterChange { cluster: ClusterId(cluster), shape: 0, info: false, capacity, occupied }
    }

    fn gone(cluster: u16) -> ClusterChange {
        ClusterChange { cluster: ClusterId(cluster), shape: 0, info: true, capacity: 0, occupied: None }
    }

    fn change(version: u64, clusters: Vec<ClusterChange>) -> ViewChange {
        ViewChange { version, at: Time::from_secs(version as i64), clusters }
    }

    fn grant(tag: u64) -> Grant {
        let request = Request::on_one(ClusterId(0), 1, Span::from_secs(1));
        let at = Time::EPOCH;
        Grant { tag: Tag(tag), run: Run(1), at, request, until: at, answer_until: at, nodes: Vec::new() }
    }

    fn drained(outbox: &LauncherOutbox, orders: &LauncherOrders) -> Vec<Outgoing> {
        let mut told = Vec::new();
        while let Taken::Item(next) = orders.0.lock().take() {
            told.push(next);
        }
        assert_eq!(outbox.channel(), orders.0.channel());
        told
    }

    #[test]
    fn a_slow_launcher_gets_the_newest_view_and_misses_no_start_and_no_end() {
        let (outbox, orders) = LauncherOutbox::new(new_channel_id());
        outbox.answer(1, Ok(LauncherAnswer::Done));
        for version in 1..=1000 {
            outbox.tell(Notice::Changed(change(version, vec![cluster((version % 3) as u16, 8, occupied(1))])));
        }
        outbox.tell(Notice::Started(grant(7)));
        outbox.tell(Notice::Ended { outcome: rms_model::Outcome::WallTime });
        outbox.tell(Notice::Replaced);
        let told = drained(&outbox, &orders);
        let [
            Outgoing::Answer { seq: 1, .. },
            Outgoing::Notice(Notice::Started(grant)),
            Outgoing::Notice(Notice::Changed(view)),
            last,
        ] = told.as_slice()
        else {
            panic!("{told:?}")
        };
        assert_eq!(grant.tag, Tag(7));
        assert_eq!((view.version, view.clusters.len()), (1000, 3));
        assert_eq!(*last, Outgoing::Notice(Notice::Ended { outcome: rms_model::Outcome::WallTime }));
        assert!(matches!(orders.0.lock().take(), Taken::End));
    }

    #[test]
    fn what_was_laid_together_shows_what_each_one_after_the_other_would_have_shown() {
        let check = |changes: Vec<ViewChange>| {
            let mut one_by_one = LauncherView::default();
            let mut together = Changes::default();
            for change in changes {
                one_by_one.apply(change.clone());
                together.merge(change);
            }
            let mut at_once = LauncherView::default();
            at_once.apply(together.into());
            assert_eq!(at_once, one_by_one);
        };
        let (full, half) = (|| occupied(8), || occupied(4));
        check(vec![change(1, vec![cluster(1, 8, full())]), change(2, vec![cluster(1, 8, half())])]);
        check(vec![change(1, vec![cluster(1, 8, full())]), change(2, vec![cluster(1, 6, None)])]);
        check(vec![change(1, vec![cluster(1, 8, full()), cluster(2, 4, half())]), change(2, vec![gone(1)])]);
        let empty = || Some(Arc::new(Profile::new()));
        check(vec![change(1, vec![gone(1)]), change(2, vec![cluster(1, 8, empty())])]);
        check(vec![
            change(1, vec![cluster(1, 8, full())]),
            change(2, vec![gone(1)]),
            change(3, vec![cluster(1, 8, half())]),
        ]);
        let shaped = |shape, occupied| ClusterChange { shape, ..cluster(1, 8, occupied) };
        check(vec![
            change(1, vec![cluster(1, 8, full()), shaped(1, full()), shaped(2, full())]),
            change(2, vec![shaped(2, half())]),
            change(3, vec![cluster(1, 8, None)]),
        ]);
        check(vec![change(1, vec![cluster(1, 8, full()), shaped(1, half())]), change(2, vec![gone(1)])]);
        check(vec![
            change(1, vec![cluster(1, 8, full()), shaped(1, half())]),
            change(2, vec![gone(1)]),
            change(3, vec![cluster(1, 8, half()), shaped(1, full())]),
        ]);
    }

    #[test]
    fn a_session_that_is_gone_is_left_nothing() {
        let (outbox, orders) = LauncherOutbox::new(new_channel_id());
        assert!(!outbox.is_closed());
        drop(orders);
        outbox.tell(Notice::Replaced);
        assert!(outbox.is_closed() && outbox.0.lock().final_notice.is_none());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let (outbox, orders) = LauncherOutbox::new(new_channel_id());
        let waiting = tokio::spawn(async move { (orders.next().await, orders.next().await) });
        tokio::task::yield_now().await;
        outbox.tell(Notice::Replaced);
        assert_eq!(waiting.await.expect("no panic"), (Some(Outgoing::Notice(Notice::Replaced)), None));
    }
}
