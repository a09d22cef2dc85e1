//! Outboxes from the driver to agents and watchers: each is bounded, and none makes the driver wait.

use std::sync::atomic::{AtomicU64, Ordering};

use rms_api::answer::JobChange;
use rms_api::desired::Desired;
use rms_core::server_loop::LinkId;
use rms_model::{JobId, Run};
use tokio::sync::{mpsc, oneshot, watch};

/// Returns a link id that is new in this process.
pub fn new_link_id() -> LinkId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    LinkId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The driver's end of the outbox to an agent.
#[derive(Debug)]
pub struct AgentOutbox {
    link: LinkId,
    /// A slot, not a queue: a desired state is complete, so a newer one replaces one that was not sent yet, however
    /// slow the agent is.
    desired: watch::Sender<Desired>,
    signals: mpsc::Sender<SignalOrder>,
    /// The reason to close the link, once.
    close: Option<oneshot::Sender<String>>,
}

/// The session's end of the outbox.
#[derive(Debug)]
pub struct AgentOrders {
    pub link: LinkId,
    pub desired: watch::Receiver<Desired>,
    pub signals: mpsc::Receiver<SignalOrder>,
    pub close: oneshot::Receiver<String>,
}

/// A signal to every task of a job on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalOrder {
    pub job: JobId,
    pub run: Run,
    pub signal: i32,
}

/// Signals are best effort: when the agent is so slow that this many wait, the next is dropped and logged.
const MAX_SIGNALS: usize = 256;

impl AgentOutbox {
    pub fn new(link: LinkId) -> (AgentOutbox, AgentOrders) {
        let (desired, desired_orders) = watch::channel(Desired::default());
        let (signals, signal_orders) = mpsc::channel(MAX_SIGNALS);
        let (close, close_order) = oneshot::channel();
        let outbox = AgentOutbox { link, desired, signals, close: Some(close) };
        let orders = AgentOrders { link, desired: desired_orders, signals: signal_orders, close: close_order };
        (outbox, orders)
    }

    pub fn link(&self) -> LinkId {
        self.link
    }

    pub fn desire(&self, desired: Desired) {
        self.desired.send_replace(desired);
    }

    pub fn signal(&self, order: SignalOrder) {
        if let Err(error) = self.signals.try_send(order) {
            tracing::warn!(job = %order.job, signal = order.signal, %error, "a signal was not delivered");
        }
    }

    pub fn close(&mut self, reason: String) {
        if let Some(close) = self.close.take() {
            // The session may have ended by itself.
            let _ = close.send(reason);
        }
    }
}

/// A client that is notified of changes of jobs.
#[derive(Clone, Debug)]
pub struct Watcher {
    changes: mpsc::Sender<JobChange>,
}

/// A watcher that is so slow that this many changes wait is dropped: its stream ends, and it must watch again.
const MAX_CHANGES: usize = 1024;

impl Watcher {
    pub fn new() -> (Watcher, mpsc::Receiver<JobChange>) {
        let (changes, receiver) = mpsc::channel(MAX_CHANGES);
        (Watcher { changes }, receiver)
    }

    /// Sends a change; returns whether the watcher still listens.
    pub fn tell(&self, change: &JobChange) -> bool {
        self.changes.try_send(change.clone()).is_ok()
    }

    pub fn is_gone(&self) -> bool {
        self.changes.is_closed()
    }
}
