//! Brings effects to those they concern: answers to callers, desired states to agents, changes to watchers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rms_api::Refusal;
use rms_api::Refused;
use rms_api::answer::{JobChange, JobState};
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorCall};
use rms_api::subscription::{LauncherAnswer, Notice};
use rms_core::{Effect, Ticket};
use rms_model::JobId;
use tokio::sync::oneshot;

use crate::inbox::{Answered, Failing, SignOrder};
use crate::launcher_outbox::LauncherOutbox;
use crate::mailbox::ChannelId;
use crate::negotiator_outbox;
use crate::negotiators::Negotiators;
use crate::outbox::{AgentOutbox, LinkId, SignalOrder, Watcher};
use crate::registry::Registry;

/// Where an answer goes.
#[derive(Debug)]
enum Caller {
    Once(oneshot::Sender<Answered>),
    Launcher { seq: u64, outbox: LauncherOutbox },
    Negotiator(negotiator_outbox::Caller),
}

/// Lives on the driver's thread; everything it does is a move into a bounded queue, and never a wait.
#[derive(Debug)]
pub struct Router {
    last_ticket: Ticket,
    callers: BTreeMap<Ticket, Caller>,
    agents: BTreeMap<String, AgentOutbox>,
    /// Who speaks for an application, and for which one a channel does.
    launchers: BTreeMap<JobId, LauncherOutbox>,
    channels: BTreeMap<ChannelId, JobId>,
    /// Applications whose launcher has left, maybe before it was told that it speaks for them.
    orphans: Vec<JobId>,
    pub negotiators: Negotiators,
    /// Messages of dialogues in this batch: they are answered only if they are refused.
    said: Vec<Ticket>,
    watchers: HashMap<JobId, Vec<Watcher>>,
    /// Entries in `watchers`, at most; and how many there were after the last sweep.
    n_watches: usize,
    n_swept: usize,
    registry: Arc<Registry>,
}

impl Router {
    pub fn new(registry: Arc<Registry>) -> Router {
        Router {
            last_ticket: Ticket(0),
            callers: BTreeMap::new(),
            agents: BTreeMap::new(),
            launchers: BTreeMap::new(),
            channels: BTreeMap::new(),
            orphans: Vec::new(),
            negotiators: Negotiators::default(),
            said: Vec::new(),
            watchers: HashMap::new(),
            n_watches: 0,
            n_swept: 0,
            registry,
        }
    }

    /// A ticket under which the core's answer finds its caller.
    pub fn ticket(&mut self, reply: oneshot::Sender<Answered>) -> Ticket {
        self.ticket_of(Caller::Once(reply))
    }

    /// The same for a launcher's call.
    pub fn launcher_ticket(&mut self, seq: u64, outbox: LauncherOutbox) -> Ticket {
        self.ticket_of(Caller::Launcher { seq, outbox })
    }

    /// The same for a call about the size of an application.
    pub fn negotiator_ticket(&mut self, call: &NegotiatorCall, caller: negotiator_outbox::Caller) -> Ticket {
        let ticket = self.ticket_of(Caller::Negotiator(caller));
        match call {
            NegotiatorCall::Say(_) => self.said.push(ticket),
            NegotiatorCall::Attach(_) | NegotiatorCall::Declare(_) | NegotiatorCall::Free(_) => {}
        }
        ticket
    }

    fn ticket_of(&mut self, caller: Caller) -> Ticket {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        self.callers.insert(self.last_ticket, caller);
        self.last_ticket
    }

    /// A launcher's channel is gone. The application that it was still speaking for is an orphan, unless it gets another
    /// one with the batch that is handled now: the core has heard of that one before, and takes it for the one that is
    /// gone.
    pub fn launcher_gone(&mut self, channel: ChannelId) {
        if let Some(job) = self.channels.remove(&channel) {
            self.launchers.remove(&job);
            self.orphans.push(job);
        }
    }

    /// Applications that have no launcher any more: the core is to be told.
    pub fn take_orphans(&mut self) -> Vec<JobId> {
        let mut orphans = std::mem::take(&mut self.orphans);
        // One that came later may be well.
        orphans.retain(|job| !self.launchers.contains_key(job));
        orphans
    }

    /// From now on this is the agent's link. An older one is closed; says whether there was one.
    pub fn agent_connected(&mut self, name: &str, outbox: AgentOutbox) -> bool {
        match self.agents.insert(name.to_owned(), outbox) {
            Some(mut older) => {
                older.close("the agent has connected anew".to_owned());
                true
            }
            None => false,
        }
    }

    /// Whether this is still the link over which the agent speaks: a late word from an older one counts nothing.
    pub fn is_current(&self, name: &str, link: LinkId) -> bool {
        self.agents.get(name).is_some_and(|outbox| outbox.link() == link)
    }

    pub fn agent_gone(&mut self, name: &str) {
        self.agents.remove(name);
    }

    /// Tells `watcher` of every change of these jobs, which must be in the system: others never change.
    pub fn watch(&mut self, jobs: impl IntoIterator<Item = JobId>, watcher: &Watcher) {
        for job in jobs {
            self.watchers.entry(job).or_default().push(watcher.clone());
            self.n_watches += 1;
        }
        // Those who left before the end are swept out when they may be half of all; so a watch costs little, and
        // what is kept is bounded by who is there.
        if self.n_watches > 2 * self.n_swept + 64 {
            self.watchers.retain(|_, watchers| {
                watchers.retain(|watcher| !watcher.is_gone());
                !watchers.is_empty()
            });
            self.n_watches = self.watchers.values().map(Vec::len).sum();
            self.n_swept = self.n_watches;
        }
    }

    /// Everybody who waits for an answer is told that it cannot be given for now. What they ordered is decided, and
    /// becomes true once it can be written.
    pub fn fail_callers(&mut self, why: &Failing) {
        let message = format!("{why}; what was asked for at this moment may still take effect then");
        for caller in std::mem::take(&mut self.callers).into_values() {
            let said = Failing { message: message.clone() };
            match caller {
                Caller::Once(reply) => answer(reply, Answered::Failing(said)),
                Caller::Launcher { seq, outbox } => outbox.answer(seq, Err(said.refused())),
                Caller::Negotiator(caller) => caller.answer(Err(said.refused())),
            }
        }
        self.said.clear();
    }

    /// What is durable goes out.
    pub fn release(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.release_one(effect);
        }
        for ticket in self.said.drain(..) {
            self.callers.remove(&ticket);
        }
    }

    fn release_one(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { ticket, answer: Ok(given) } => self.answer(ticket, Answered::Done(given)),
            Effect::Answer { ticket, answer: Err(refusal) } => self.answer(ticket, Answered::Refused(refusal)),
            Effect::Sign { ticket, issued, csr, cluster } => {
                self.answer(ticket, Answered::Sign(SignOrder { issued, csr, cluster }));
            }
            Effect::Desire { node, desired } => {
                // An agent that is not there is told when it comes.
                if let Some(outbox) = self.agents.get(&node) {
                    outbox.desire(desired);
                }
            }
            Effect::Signal { node, job, run, signal } => {
                if let Some(outbox) = self.agents.get(&node) {
                    outbox.signal(SignalOrder { job, run, signal });
                }
            }
            Effect::Announce(change) => self.announce(&change),
            Effect::LauncherAnswer { ticket, answer } => self.answer_launcher(ticket, answer),
            Effect::Notify { job, notice } => self.notify(job, notice),
            Effect::NegotiatorAnswer { ticket, answer } => self.answer_negotiator(ticket, answer),
            Effect::TellNegotiator { job, notice } => self.negotiators.tell(job, notice),
            Effect::CloseLinks { serials } => self.registry.revoke(&serials),
            Effect::RefuseAgent { node, refusal } => {
                if let Some(mut outbox) = self.agents.remove(&node) {
                    outbox.close(refusal.to_string());
                }
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, answered: Answered) {
        match self.callers.remove(&ticket) {
            Some(Caller::Once(reply)) => answer(reply, answered),
            // Whoever was told that the journal fails is not answered twice.
            None => {}
            Some(Caller::Launcher { .. }) => unreachable!("the core answers a launcher's call as one"),
            Some(Caller::Negotiator(_)) => unreachable!("the core answers a negotiator's call as one"),
        }
    }

    fn answer_negotiator(&mut self, ticket: Ticket, given: Result<NegotiatorAnswer, Refusal>) {
        let caller = match self.callers.remove(&ticket) {
            Some(Caller::Negotiator(caller)) => Some(caller),
            None => None,
            Some(Caller::Once(_) | Caller::Launcher { .. }) => {
                unreachable!("the core answers the calls of others as theirs")
            }
        };
        self.negotiators.answer(caller, given);
    }

    fn answer_launcher(&mut self, ticket: Ticket, given: Result<LauncherAnswer, Refusal>) {
        let subscribed = match &given {
            Ok(LauncherAnswer::Subscribed { job, request_until: _ }) => Some(*job),
            Ok(LauncherAnswer::Clusters(_) | LauncherAnswer::Done) | Err(_) => None,
        };
        match self.callers.remove(&ticket) {
            Some(Caller::Launcher { seq, outbox }) => {
                if let Some(job) = subscribed {
                    self.bind(job, &outbox);
                }
                outbox.answer(seq, given.map_err(|refusal| Refused::from(&refusal)));
            }
            // It was told that the journal fails, and does not know that it speaks for an application.
            None => self.orphans.extend(subscribed),
            Some(Caller::Once(_) | Caller::Negotiator(_)) => {
                unreachable!("the core answers the calls of others as theirs")
            }
        }
    }

    /// From now on this channel speaks for the application. An older one is told so, and ends.
    fn bind(&mut self, job: JobId, outbox: &LauncherOutbox) {
        if outbox.is_closed() {
            // Its end was reported before it was bound, or will be and then finds nothing.
            self.orphans.push(job);
            return;
        }
        outbox.bind(job);
        self.channels.insert(outbox.channel(), job);
        if let Some(older) = self.launchers.insert(job, outbox.clone())
            && older.channel() != outbox.channel()
        {
            self.channels.remove(&older.channel());
            older.tell(Notice::Replaced);
        }
    }

    fn notify(&mut self, job: JobId, notice: Notice) {
        let is_last = match &notice {
            Notice::Ended { .. } | Notice::Replaced => true,
            Notice::Changed(_) | Notice::Started(_) => false,
        };
        // One that attaches later is told everything.
        let Some(outbox) = self.launchers.get(&job) else { return };
        outbox.tell(notice);
        if is_last {
            self.channels.remove(&outbox.channel());
            self.launchers.remove(&job);
        }
    }

    fn announce(&mut self, change: &JobChange) {
        let Some(watchers) = self.watchers.get_mut(&change.job) else { return };
        watchers.retain(|watcher| watcher.tell(change));
        if watchers.is_empty() || is_over(change) {
            self.watchers.remove(&change.job);
        }
    }
}

/// Whether nothing will change any more that a watcher cares for.
pub fn is_over(change: &JobChange) -> bool {
    match change.state {
        JobState::Ghost | JobState::Finished => true,
        JobState::Submitted
        | JobState::Held
        | JobState::RequestSent
        | JobState::Waiting
        | JobState::Started
        | JobState::Ending => false,
    }
}

fn answer(reply: oneshot::Sender<Answered>, answered: Answered) {
    // A caller that has hung up does not want to know.
    let _ = reply.send(answered);
}
