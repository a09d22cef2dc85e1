//! Runs the core: takes events in batches, makes their facts durable, and then sends the effects.
//!
//! The driver has a thread of its own, and waits for two things only: the inbox, and the core's next timer.

mod boot;
mod storage;

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rms_core::Config;
use rms_core::server_loop::{self, ServerLoop};
use rms_model::{Span, Time};
use tokio::sync::mpsc;

pub use self::boot::BootError;
use self::storage::Storage;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::history::{HistoryWriter, Retention};
use crate::inbox::{Inbound, Inbox};
use crate::peers::{Peers, ReplyTo};
use crate::registry::Registry;

/// The core with everything around it that it needs to run.
#[derive(Debug)]
pub struct Driver {
    server_loop: ServerLoop,
    peers: Peers,
    /// Watchers that have left are removed once there are more watches than this.
    sweep_above: usize,
    config: Config,
    clock: Clock,
    storage: Storage,
    inbox: mpsc::Receiver<Inbound>,
    /// Receives the results of snapshots that are made in the background.
    reports: Inbox,
    /// The duration of the last pass, until it is reported to the core.
    pass_took: Option<Duration>,
    is_stopping: bool,
}

/// The most events of one transaction: it bounds how long the first of them waits for the last.
const MAX_BATCH: usize = 1024;

const MIN_WATCHES: usize = 64;

impl Driver {
    /// Restores the core from the journal and starts the driver's thread. When this returns, the current state is
    /// durable, and calls may be put into the inbox. Also returns the writer of the journal's history.
    ///
    /// # Errors
    /// A damaged journal, or one that cannot be written.
    pub fn start(
        journal: &Path,
        config: &ServerConfig,
        registry: Arc<Registry>,
        (reports, inbox): (Inbox, mpsc::Receiver<Inbound>),
    ) -> Result<(JoinHandle<()>, HistoryWriter), BootError> {
        let core_config = boot::core_config(config);
        let (server_loop, storage, clock) = boot::boot(journal, &core_config, config, &registry)?;
        let history = storage.history().clone();
        let driver = Driver {
            server_loop,
            peers: Peers::new(registry),
            sweep_above: MIN_WATCHES,
            config: core_config,
            clock,
            storage,
            inbox,
            reports,
            pass_took: None,
            is_stopping: false,
        };
        // The runtime only provides timers and wakes the thread; nothing else runs on it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(BootError::Thread)?;
        let run = move || runtime.block_on(driver.run());
        let thread = thread::Builder::new().name("driver".to_owned()).spawn(run).map_err(BootError::Thread)?;
        Ok((thread, history))
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while !self.is_stopping {
            self.wait(&mut batch).await;
            if let Some(took) = self.pass_took.take() {
                let now = self.now();
                self.server_loop.take(now, server_loop::Inbound::PassTook { took });
            }
            for inbound in batch.drain(..) {
                self.take(inbound);
            }
            self.turn();
            self.maintain_storage();
        }
        if let Some(failing) = self.server_loop.failure() {
            tracing::error!("stopped while the journal could not be written: {failing}");
        }
    }

    /// Waits until something arrives, or until the core's or the storage's next timer.
    async fn wait(&mut self, batch: &mut Vec<Inbound>) {
        let sleep = self.sleep();
        let received = tokio::time::timeout(sleep.to_std(), self.inbox.recv_many(batch, MAX_BATCH)).await;
        // The last sender is gone: no more events can come.
        if received == Ok(0) {
            self.is_stopping = true;
        }
    }

    /// Returns how long to wait if nothing arrives.
    fn sleep(&mut self) -> Span {
        let prune = self.storage.until_prune();
        match self.server_loop.next_turn() {
            Some(at) => at.since(self.clock.now()).min(prune),
            None => prune,
        }
    }

    fn take(&mut self, inbound: Inbound) {
        let peers = &mut self.peers;
        let inbound = match inbound {
            Inbound::Call { who, call, reply } => {
                let ticket = peers.ticket(ReplyTo::Once(reply));
                server_loop::Inbound::Called { ticket, who, call }
            }
            Inbound::CertificateUsed { serial } => server_loop::Inbound::CertificateUsed { serial },
            Inbound::AgentConnected { name, hello, report, outbox } => {
                let link = peers.agent_connected(outbox);
                server_loop::Inbound::AgentConnected { name, link, hello, report }
            }
            Inbound::AgentTroubled { name, link, reason } => server_loop::Inbound::AgentTroubled { name, link, reason },
            Inbound::AgentReported { name, link, report } => server_loop::Inbound::AgentReported { name, link, report },
            Inbound::AgentGone { name, link } => {
                peers.agent_gone(link);
                server_loop::Inbound::AgentGone { name, link }
            }
            Inbound::LauncherCalled { who, call, seq, outbox, held: _held } => {
                let (ticket, channel) = peers.launcher_called(seq, outbox);
                server_loop::Inbound::LauncherCalled { ticket, channel, who, call }
            }
            Inbound::LauncherGone { channel } => {
                peers.channel_gone(channel);
                server_loop::Inbound::LauncherGone { channel }
            }
            Inbound::NegotiatorCalled { who, call, caller, held: _held } => {
                let (ticket, channel) = peers.negotiator_called(caller);
                server_loop::Inbound::NegotiatorCalled { ticket, channel, who, call }
            }
            Inbound::NegotiatorGone { channel } => {
                peers.channel_gone(channel);
                server_loop::Inbound::NegotiatorGone { channel }
            }
            Inbound::AgentAsked { name, link, job, run, what, reply } => {
                let ticket = peers.ticket(ReplyTo::Once(reply));
                server_loop::Inbound::AgentAsked { ticket, name, link, job, run, what }
            }
            Inbound::Watch { jobs, watcher, reply } => {
                server_loop::Inbound::Watch { ticket: peers.watch(watcher, reply), jobs }
            }
            Inbound::Snapshot(made) => return self.storage.snapshot_made(made),
            Inbound::Stop => {
                self.is_stopping = true;
                return;
            }
        };
        let now = self.now();
        self.timed(|server_loop| server_loop.take(now, inbound));
    }

    /// Returns the current time, after the core was told that the clock was set forward if it was.
    fn now(&mut self) -> Time {
        let now = self.clock.now();
        if let Some(by) = self.clock.set_forward() {
            tracing::warn!(
                %by,
                "the clock of this machine was set forward, or the machine was suspended: the times that jobs have waited and \
                 run include that"
            );
            self.server_loop.take(now, server_loop::Inbound::ClockSetForward);
        }
        now
    }

    /// Calls `act`, and records how long it took if it ran a pass.
    fn timed(&mut self, act: impl FnOnce(&mut ServerLoop)) {
        let (walk_before, begun) = (self.server_loop.walk(), Instant::now());
        act(&mut self.server_loop);
        let walk = self.server_loop.walk();
        if walk.is_some() && walk != walk_before {
            self.pass_took = self.pass_took.max(Some(begun.elapsed()));
        }
    }

    /// Ends the batch: makes its facts durable, and then sends the results to the peers.
    fn turn(&mut self) {
        let now = self.now();
        self.timed(|server_loop| server_loop.turn(now));
        let outcome = self.server_loop.write().map(|write| self.storage.write(write));
        if let Some(outcome) = outcome {
            let was_failing = self.server_loop.failure().is_some();
            if let Err(message) = &outcome {
                tracing::error!("{message}; it is tried again until it can be written");
            } else if was_failing {
                tracing::info!("the journal can be written again");
            }
            self.server_loop.written(self.clock.now(), outcome);
        }
        for outbound in self.server_loop.sends() {
            self.peers.send(outbound).into_iter().for_each(|ticket| self.server_loop.unwatch(ticket));
        }
        // Watchers that have left are removed once they may be half of all: so a watch costs little, and memory is
        // bounded by the watchers that are connected.
        if self.server_loop.n_watches() > self.sweep_above {
            self.peers.sweep_watchers().into_iter().for_each(|ticket| self.server_loop.unwatch(ticket));
            self.sweep_above = 2 * self.server_loop.n_watches() + MIN_WATCHES;
        }
    }

    /// Checks whether the disk is full, and removes files and records that are no longer needed.
    fn maintain_storage(&mut self) {
        let now = self.clock.now();
        if self.server_loop.looks_for_space(now) {
            let (was_short, shortage) = (self.server_loop.shortage().is_some(), self.storage.shortage());
            match &shortage {
                Some(message) if !was_short => {
                    tracing::error!("{message}; reading, cancelling and draining go on");
                }
                None if was_short => tracing::info!("there is space for the journal again"),
                Some(_) | None => {}
            }
            self.server_loop.found_space(now, shortage);
        }
        let settings = self.server_loop.state().settings();
        let retention = Retention { max_age: settings.history_keep, max_jobs: settings.history_most };
        self.storage.prune_if_due(retention, now);
        if self.server_loop.shortage().is_none()
            && let Some(order) = self.storage.due_compaction()
        {
            let (config, reports) = (self.config.clone(), self.reports.clone());
            storage::compact_in_background(order, config, reports);
        }
    }
}
