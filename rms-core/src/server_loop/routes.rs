//! Routes output: answers to callers, desired states to agents, changes to watchers.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::Refusal;
use rms_api::answer::JobChange;
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorNotice};
use rms_api::subscription::{LauncherAnswer, Notice};
use rms_model::{JobId, Run};

use super::bindings::Bindings;
use super::message::{ChannelId, Denial, Failing, Found, LinkId, Outbound};
use crate::effect::Effect;
use crate::event::Ticket;

/// A caller that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Once,
    Launcher(ChannelId),
    Negotiator(ChannelId),
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) out: Vec<Outbound>,
    callers: BTreeMap<Ticket, Caller>,
    /// Messages of dialogues in this batch: they are answered only if they are refused.
    messages: Vec<Ticket>,
    /// The newest link of each agent.
    agents: BTreeMap<String, LinkId>,
    pub(super) launchers: Bindings<()>,
    pub(super) negotiators: Bindings<Run>,
    watchers: BTreeMap<JobId, BTreeSet<Ticket>>,
    watched: BTreeMap<Ticket, BTreeSet<JobId>>,
    n_watches: usize,
}

impl Routes {
    /// Registers a caller before its call is passed to the core.
    pub(super) fn add_caller(&mut self, ticket: Ticket, caller: Caller) {
        self.callers.insert(ticket, caller);
    }

    /// Registers a message, which is answered only if it is refused.
    pub(super) fn add_message(&mut self, ticket: Ticket) {
        self.messages.push(ticket);
    }

    /// Sets the agent's link and closes an older one. Returns whether there was one.
    pub(super) fn agent_connected(&mut self, name: &str, link: LinkId) -> bool {
        let Some(older) = self.agents.insert(name.to_owned(), link) else { return false };
        self.out.push(Outbound::CloseLink { link: older, reason: "the agent has connected anew".to_owned() });
        true
    }

    /// Returns whether this is the agent's newest link: late messages over an older one are ignored.
    pub(super) fn is_current(&self, name: &str, link: LinkId) -> bool {
        self.agents.get(name) == Some(&link)
    }

    pub(super) fn agent_gone(&mut self, name: &str) {
        self.agents.remove(name);
    }

    /// Starts a watch of these jobs, which must be in the system: others never change.
    pub(super) fn watch(&mut self, ticket: Ticket, jobs: BTreeSet<JobId>) {
        for job in &jobs {
            self.watchers.entry(*job).or_default().insert(ticket);
        }
        self.n_watches += jobs.len();
        self.watched.insert(ticket, jobs);
    }

    pub(super) fn unwatch(&mut self, ticket: Ticket) {
        for job in self.watched.remove(&ticket).into_iter().flatten() {
            self.n_watches -= 1;
            if let Some(watchers) = self.watchers.get_mut(&job) {
                watchers.remove(&ticket);
                if watchers.is_empty() {
                    self.watchers.remove(&job);
                }
            }
        }
    }

    pub(super) fn n_watches(&self) -> usize {
        self.n_watches
    }

    /// Sends the first answer to a watcher.
    pub(super) fn found(&mut self, ticket: Ticket, found: Result<Vec<Found>, Failing>) {
        self.out.push(Outbound::Found { ticket, found });
        self.end_empty_watch(ticket);
    }

    /// Ends a watch if none of its jobs can change any more.
    fn end_empty_watch(&mut self, ticket: Ticket) {
        if self.watched.get(&ticket).is_none_or(BTreeSet::is_empty) {
            self.watched.remove(&ticket);
            self.out.push(Outbound::WatchEnds { ticket });
        }
    }

    /// Tells a caller at once that no answer can be given now.
    pub(super) fn deny(&mut self, ticket: Ticket, caller: Caller, failing: &Failing) {
        let denial = Denial::Failing(failing.clone());
        self.out.push(match caller {
            Caller::Once => Outbound::Answer { ticket, answer: Err(denial) },
            Caller::Launcher(_) => Outbound::LauncherAnswer { ticket, answer: Err(denial) },
            Caller::Negotiator(_) => Outbound::NegotiatorAnswer { ticket, answer: Err(denial) },
        });
    }

    /// Tells all waiting callers that no answer can be given for now. What they ordered is decided, and takes effect
    /// once it can be written.
    pub(super) fn deny_all(&mut self, why: &Failing) {
        let message = format!("{why}; what was asked for at this moment may still take effect then");
        let failing = Failing { message };
        for (ticket, caller) in std::mem::take(&mut self.callers) {
            self.deny(ticket, caller, &failing);
        }
        self.messages.clear();
    }

    /// Sends the effects of durable facts. Of the desired states of a node only the last is sent, as each is complete.
    pub(super) fn release(&mut self, effects: Vec<Effect>) {
        let mut nodes = BTreeSet::new();
        let mut is_newest = |effect: &Effect| match effect {
            Effect::Desire { node, .. } => nodes.insert(node.clone()),
            _other => true,
        };
        let effects: Vec<Effect> = effects.into_iter().rev().filter(|effect| is_newest(effect)).collect();
        for effect in effects.into_iter().rev() {
            self.release_one(effect);
        }
        for ticket in std::mem::take(&mut self.messages) {
            if self.callers.remove(&ticket).is_some() {
                self.out.push(Outbound::Silence { ticket });
            }
        }
    }

    fn release_one(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { ticket, answer } => {
                // A caller that was told that the journal fails is not answered twice.
                if self.callers.remove(&ticket).is_some() {
                    self.out.push(Outbound::Answer { ticket, answer: answer.map_err(Denial::Refused) });
                }
            }
            Effect::Sign { ticket, issued, csr, cluster } => {
                if self.callers.remove(&ticket).is_some() {
                    self.out.push(Outbound::Sign { ticket, issued, csr, cluster });
                }
            }
            Effect::Desire { node, desired } => {
                // An agent that is not connected is sent it when it connects.
                if let Some(link) = self.agents.get(&node).copied() {
                    self.out.push(Outbound::Desire { link, desired });
                }
            }
            Effect::Signal { node, job, run, signal } => {
                if let Some(link) = self.agents.get(&node).copied() {
                    self.out.push(Outbound::Signal { link, job, run, signal });
                }
            }
            Effect::Announce(change) => self.announce(&change),
            Effect::LauncherAnswer { ticket, answer } => self.answer_launcher(ticket, answer),
            Effect::Notify { job, notice } => self.notify(job, notice),
            Effect::NegotiatorAnswer { ticket, answer } => self.answer_negotiator(ticket, answer),
            Effect::TellNegotiator { job, notice } => self.tell_negotiator(job, notice),
            Effect::CloseLinks { serials } => self.out.push(Outbound::CloseLinks { serials }),
            Effect::RefuseAgent { node, refusal } => {
                if let Some(link) = self.agents.remove(&node) {
                    self.out.push(Outbound::CloseLink { link, reason: refusal.to_string() });
                }
            }
        }
    }

    fn answer_launcher(&mut self, ticket: Ticket, answer: Result<LauncherAnswer, Refusal>) {
        let subscribed = match &answer {
            Ok(LauncherAnswer::Subscribed { job, .. }) => Some(*job),
            Ok(LauncherAnswer::Clusters(_) | LauncherAnswer::Done) | Err(_) => None,
        };
        let replaced = match (self.callers.remove(&ticket), subscribed) {
            (Some(Caller::Launcher(channel)), Some(job)) => self.launchers.bind(channel, job, ()),
            (Some(_), None) => None,
            (Some(Caller::Once | Caller::Negotiator(_)), Some(_)) => {
                unreachable!("the core answers the calls of others as theirs")
            }
            (None, subscribed) => {
                subscribed.into_iter().for_each(|job| self.launchers.orphan(job, ()));
                return;
            }
        };
        self.out.push(Outbound::LauncherAnswer { ticket, answer: answer.map_err(Denial::Refused) });
        if let Some(channel) = replaced {
            self.out.push(Outbound::TellLauncher { channel, notice: Notice::Replaced });
        }
    }

    fn answer_negotiator(&mut self, ticket: Ticket, answer: Result<NegotiatorAnswer, Refusal>) {
        let attached = match &answer {
            Ok(NegotiatorAnswer::Attached(attached)) => Some((attached.job, attached.run)),
            Ok(NegotiatorAnswer::Done) | Err(_) => None,
        };
        let replaced = match (self.callers.remove(&ticket), attached) {
            (Some(Caller::Negotiator(channel)), Some((job, run))) => self.negotiators.bind(channel, job, run),
            (Some(_), None) => None,
            (Some(Caller::Once | Caller::Launcher(_)), Some(_)) => {
                unreachable!("the core answers the calls of others as theirs")
            }
            (None, attached) => {
                attached.into_iter().for_each(|(job, run)| self.negotiators.orphan(job, run));
                return;
            }
        };
        self.out.push(Outbound::NegotiatorAnswer { ticket, answer: answer.map_err(Denial::Refused) });
        if let Some(channel) = replaced {
            self.out.push(Outbound::TellNegotiator { channel, notice: NegotiatorNotice::Replaced });
        }
    }

    fn notify(&mut self, job: JobId, notice: Notice) {
        // A launcher that attaches later is told everything.
        let Some(channel) = self.launchers.channel_of(job) else { return };
        match &notice {
            Notice::Ended { .. } | Notice::Replaced => self.launchers.end(job),
            Notice::Changed(_) | Notice::Started(_) => {}
        }
        self.out.push(Outbound::TellLauncher { channel, notice });
    }

    fn tell_negotiator(&mut self, job: JobId, notice: NegotiatorNotice) {
        let Some(channel) = self.negotiators.channel_of(job) else { return };
        match &notice {
            NegotiatorNotice::Ended { .. } | NegotiatorNotice::Replaced => self.negotiators.end(job),
            NegotiatorNotice::Said(_) | NegotiatorNotice::Refused { .. } => {}
            NegotiatorNotice::Holding(_) | NegotiatorNotice::Counted { .. } | NegotiatorNotice::NodesLost { .. } => {}
        }
        self.out.push(Outbound::TellNegotiator { channel, notice });
    }

    fn announce(&mut self, change: &JobChange) {
        let Some(watchers) = self.watchers.get(&change.job) else { return };
        self.out.extend(watchers.iter().map(|ticket| Outbound::Changed { ticket: *ticket, change: change.clone() }));
        if !change.state.is_over() {
            return;
        }
        for ticket in self.watchers.remove(&change.job).into_iter().flatten() {
            self.n_watches -= 1;
            if let Some(jobs) = self.watched.get_mut(&ticket) {
                jobs.remove(&change.job);
            }
            self.end_empty_watch(ticket);
        }
    }
}
