//! Brings effects to those they concern: answers to callers, desired states to agents, changes to watchers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rms_core::effect::{JobChange, JobState};
use rms_core::{Effect, Ticket};
use rms_model::JobId;
use tokio::sync::oneshot;

use crate::inbox::{Answered, Failing, SignOrder};
use crate::outbox::{AgentOutbox, LinkId, SignalOrder, Watcher};
use crate::registry::Registry;

/// Lives on the driver's thread; everything it does is a move into a bounded queue, and never a wait.
#[derive(Debug)]
pub struct Router {
    last_ticket: Ticket,
    callers: BTreeMap<Ticket, oneshot::Sender<Answered>>,
    agents: BTreeMap<String, AgentOutbox>,
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
            watchers: HashMap::new(),
            n_watches: 0,
            n_swept: 0,
            registry,
        }
    }

    /// A ticket under which the core's answer finds its caller.
    pub fn ticket(&mut self, reply: oneshot::Sender<Answered>) -> Ticket {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        self.callers.insert(self.last_ticket, reply);
        self.last_ticket
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
    pub fn fail_callers(&mut self, failing: &Failing) {
        let message = format!("{failing}; what was asked for at this moment may still take effect then");
        for reply in std::mem::take(&mut self.callers).into_values() {
            answer(reply, Answered::Failing(Failing { message: message.clone() }));
        }
    }

    /// What is durable goes out.
    pub fn release(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.release_one(effect);
        }
    }

    fn release_one(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { ticket, answer: Ok(given) } => self.answer(ticket, Answered::Done(given)),
            Effect::Answer { ticket, answer: Err(refusal) } => self.answer(ticket, Answered::Refused(refusal)),
            Effect::Sign { ticket, identity, csr, serial, expires, cluster } => {
                self.answer(ticket, Answered::Sign(SignOrder { identity, csr, serial, expires, cluster }));
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
            Effect::LauncherAnswer { ticket, answer: Ok(given) } => self.answer(ticket, Answered::Launcher(given)),
            Effect::LauncherAnswer { ticket, answer: Err(refusal) } => self.answer(ticket, Answered::Refused(refusal)),
            // Nobody can be connected as a launcher yet.
            Effect::Notify { .. } => {}
            Effect::CloseLinks { serials } => self.registry.revoke(&serials),
            Effect::RefuseAgent { node, refusal } => {
                if let Some(mut outbox) = self.agents.remove(&node) {
                    outbox.close(refusal.to_string());
                }
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, answered: Answered) {
        // Whoever was told that the journal fails is not answered twice.
        if let Some(reply) = self.callers.remove(&ticket) {
            answer(reply, answered);
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
