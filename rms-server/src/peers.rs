//! Maps the ids that the server loop uses to connections: callers, agents' links, channels, watchers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::negotiate::NegotiatorAnswer;
use rms_api::subscription::LauncherAnswer;
use rms_core::Ticket;
use rms_core::server_loop::{ChannelId, Failing, Found, LinkId, Outbound};
use tokio::sync::oneshot;

use crate::inbox::{Answered, SignOrder};
use crate::launcher_outbox::LauncherOutbox;
use crate::negotiator_outbox::{self, NegotiatorOutbox};
use crate::outbox::{AgentOutbox, SignalOrder, Watcher};
use crate::registry::Registry;

/// The receiver of an answer.
#[derive(Debug)]
pub enum ReplyTo {
    Once(oneshot::Sender<Answered>),
    Launcher { seq: u64, outbox: LauncherOutbox },
    Negotiator(negotiator_outbox::PendingCall),
    Watcher(oneshot::Sender<Result<Vec<Found>, Failing>>),
}

/// Lives on the driver's thread; it only moves messages into bounded queues, and never waits.
#[derive(Debug)]
pub struct Peers {
    last_ticket: Ticket,
    callers: BTreeMap<Ticket, ReplyTo>,
    watchers: BTreeMap<Ticket, Watcher>,
    agents: BTreeMap<LinkId, AgentOutbox>,
    launchers: BTreeMap<ChannelId, LauncherOutbox>,
    negotiators: BTreeMap<ChannelId, NegotiatorOutbox>,
    registry: Arc<Registry>,
}

impl Peers {
    pub fn new(registry: Arc<Registry>) -> Peers {
        Peers {
            last_ticket: Ticket(0),
            callers: BTreeMap::new(),
            watchers: BTreeMap::new(),
            agents: BTreeMap::new(),
            launchers: BTreeMap::new(),
            negotiators: BTreeMap::new(),
            registry,
        }
    }

    /// Returns a new ticket, under which the caller gets its answer.
    pub fn ticket(&mut self, caller: ReplyTo) -> Ticket {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        self.callers.insert(self.last_ticket, caller);
        self.last_ticket
    }

    pub fn watch(&mut self, watcher: Watcher, reply: oneshot::Sender<Result<Vec<Found>, Failing>>) -> Ticket {
        let ticket = self.ticket(ReplyTo::Watcher(reply));
        self.watchers.insert(ticket, watcher);
        ticket
    }

    pub fn agent_connected(&mut self, outbox: AgentOutbox) -> LinkId {
        let link = outbox.link();
        self.agents.insert(link, outbox);
        link
    }

    pub fn agent_gone(&mut self, link: LinkId) {
        self.agents.remove(&link);
    }

    /// Returns a ticket for a launcher's call, which may be the first over its channel.
    pub fn launcher_called(&mut self, seq: u64, outbox: LauncherOutbox) -> (Ticket, ChannelId) {
        let channel = outbox.channel();
        self.launchers.entry(channel).or_insert_with(|| outbox.clone());
        (self.ticket(ReplyTo::Launcher { seq, outbox }), channel)
    }

    pub fn negotiator_called(&mut self, caller: negotiator_outbox::PendingCall) -> (Ticket, ChannelId) {
        let channel = caller.outbox.channel();
        self.negotiators.entry(channel).or_insert_with(|| caller.outbox.clone());
        (self.ticket(ReplyTo::Negotiator(caller)), channel)
    }

    pub fn channel_gone(&mut self, channel: ChannelId) {
        self.launchers.remove(&channel);
        self.negotiators.remove(&channel);
    }

    /// Removes the watchers that have left, and returns their tickets.
    pub fn sweep_watchers(&mut self) -> Vec<Ticket> {
        self.watchers.extract_if(.., |_, watcher| watcher.is_gone()).map(|(ticket, _)| ticket).collect()
    }

    /// Delivers a message to its peer; returns the ticket of the watcher, if it has left.
    pub fn send(&mut self, outbound: Outbound) -> Option<Ticket> {
        match outbound {
            Outbound::Answer { ticket, answer: Ok(given) } => self.answer(ticket, Answered::Done(given)),
            Outbound::Answer { ticket, answer: Err(denial) } => self.answer(ticket, Answered::from(denial)),
            Outbound::Sign { ticket, issued, csr, cluster } => {
                self.answer(ticket, Answered::Sign(SignOrder { issued, csr, cluster }));
            }
            Outbound::LauncherAnswer { ticket, answer } => {
                if let Some(ReplyTo::Launcher { seq, outbox }) = self.callers.remove(&ticket) {
                    if let Ok(LauncherAnswer::Subscribed { job, .. }) = &answer {
                        outbox.bind(*job);
                    }
                    outbox.answer(seq, answer.map_err(|denial| denial.refused()));
                }
            }
            Outbound::NegotiatorAnswer { ticket, answer } => {
                if let Some(ReplyTo::Negotiator(caller)) = self.callers.remove(&ticket) {
                    if let Ok(NegotiatorAnswer::Attached(attached)) = &answer {
                        caller.outbox.bind(attached.job, attached.run);
                    }
                    caller.answer(answer.map_err(|denial| denial.refused()));
                }
            }
            Outbound::Found { ticket, found } => {
                if let Some(ReplyTo::Watcher(reply)) = self.callers.remove(&ticket) {
                    // The caller may have left.
                    let _ = reply.send(found);
                }
            }
            Outbound::Changed { ticket, change } => {
                let is_there = self.watchers.get(&ticket).is_none_or(|watcher| watcher.tell(&change));
                if !is_there {
                    self.watchers.remove(&ticket);
                    return Some(ticket);
                }
            }
            Outbound::WatchEnds { ticket } => drop(self.watchers.remove(&ticket)),
            Outbound::Silence { ticket } => drop(self.callers.remove(&ticket)),
            Outbound::Desire { link, desired } => {
                if let Some(outbox) = self.agents.get(&link) {
                    outbox.desire(desired);
                }
            }
            Outbound::Signal { link, job, run, signal } => {
                if let Some(outbox) = self.agents.get(&link) {
                    outbox.signal(SignalOrder { job, run, signal });
                }
            }
            Outbound::CloseLink { link, reason } => {
                if let Some(mut outbox) = self.agents.remove(&link) {
                    outbox.close(reason);
                }
            }
            Outbound::CloseLinks { serials } => self.registry.revoke(&serials),
            Outbound::TellLauncher { channel, notice } => {
                if let Some(outbox) = self.launchers.get(&channel) {
                    outbox.tell(notice);
                }
            }
            Outbound::TellNegotiator { channel, notice } => {
                if let Some(outbox) = self.negotiators.get(&channel) {
                    outbox.tell(notice);
                }
            }
        }
        None
    }

    fn answer(&mut self, ticket: Ticket, answered: Answered) {
        if let Some(ReplyTo::Once(reply)) = self.callers.remove(&ticket) {
            // The caller may have disconnected.
            let _ = reply.send(answered);
        }
    }
}
