//! The live links: how many there may be, which use revoked certificates, and where each agent is.

mod rivals;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_core::server_loop::LinkId;
use rms_model::{Identity, Role};
use rms_wire::link::Budget;
use rms_wire::tls::Revoked;
use rms_wire::{Kind, Link};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::config::LinkLimits;
use crate::outbox::draw_link;
use rivals::Rivals;

/// Shared by the driver, which revokes, and the sessions, which come and go.
#[derive(Debug)]
pub struct Registry {
    limits: LinkLimits,
    /// What handshakes consult.
    revoked: Revoked,
    live: Mutex<Live>,
    /// Whoever has no link was away before, as far as is known here.
    since: Instant,
    /// Rung when an agent has come, or has said what it serves, for those who wait for one.
    agents_came: watch::Sender<()>,
    /// Rung when certificates were revoked, for agents, who also accept links.
    revocations: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Live {
    links: BTreeMap<LinkId, Link>,
    /// Of each user, admin and execution of a job.
    n_links: HashMap<Identity, usize>,
    /// Of those for whom these count.
    parts: HashMap<Identity, Part>,
    /// Links of users and jobs; agents and admins have places of their own.
    n_ordinary: usize,
    agents: HashMap<String, LinkId>,
    rivals: Rivals,
    /// With which kinds of frames channels may begin on the links of agents that have said so.
    served: BTreeMap<LinkId, Vec<u16>>,
    /// When the last link of those ended that have none.
    away: HashMap<String, Instant>,
    revoked: BTreeSet<String>,
    /// Certificates that may have been issued in place of others, and that nobody has come with yet.
    untried: BTreeSet<String>,
}

/// What the links that count for one have together.
#[derive(Debug)]
struct Part {
    n_links: usize,
    /// Those of them whose identity has an older one.
    n_further: usize,
    allotment: Arc<Allotment>,
}

/// Why a link may not stay.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAdmitted {
    #[error("the certificate {serial} is revoked")]
    Revoked { serial: String },
    #[error("the server has its {max} connections (limits.links): try again later")]
    Full { max: usize },
    #[error("{who} has {max} connections already (limits.links_per_user): close one first")]
    TooMany { who: Identity, max: usize },
    #[error("{who} has {max} connections already: one process of a job is enough to negotiate for it")]
    TooManyOfJob { who: Identity, max: usize },
    #[error(
        "the jobs of {owner} have {max} connections beside the first of each (limits.links_per_user): close one first"
    )]
    TooManyOfJobs { owner: String, max: usize },
}

/// One process of a job negotiates for it; beside it there may be commands in its scripts. Ten thousand ranks may not all try.
const MAX_LINKS_OF_JOB: usize = 32;

/// What all links of one identity have together, so that many of them hold no more of the server than one. What a user may
/// have is divided: a part for the user's own commands, and one for the processes of all of the user's jobs together.
#[derive(Debug)]
pub struct Allotment {
    /// Questions that are being answered: an answer can be long, and is there until it is read. Others wait for them.
    pub queries: Semaphore,
    /// Jobs that are followed or watched.
    pub streams: Semaphore,
    /// What is held for these, in KiB.
    pub held: Arc<Semaphore>,
    /// What launchers and negotiators have said and was not heard yet: who does not read is not to silence them.
    pub said: Budget,
    pub max_streams: usize,
}

impl Allotment {
    fn of(role: Role) -> Allotment {
        let Most { queries, streams, held_kib, said_kib } = match role {
            Role::User => OF_USERS,
            Role::Job => OF_JOBS,
            Role::Admin | Role::Agent | Role::Server => OF_OTHERS,
        };
        let said = Arc::new(Semaphore::new(said_kib as usize));
        Allotment {
            queries: Semaphore::new(queries),
            streams: Semaphore::new(streams),
            held: Arc::new(Semaphore::new(held_kib)),
            said: Budget { kib: said, most: said_kib, patience: None },
            max_streams: streams,
        }
    }
}

struct Most {
    queries: usize,
    streams: usize,
    /// A few pieces of output for each stream; with what QUIC holds beside it, it stays below 64 MiB.
    held_kib: usize,
    said_kib: u32,
}

const OF_OTHERS: Most = Most { queries: 4, streams: 512, held_kib: 10 << 10, said_kib: 8 << 10 };
// Together no more than that. Launchers are programs of users, and those who negotiate are processes of jobs.
const OF_USERS: Most = Most { queries: 3, streams: 400, held_kib: 8 << 10, said_kib: 4 << 10 };
const OF_JOBS: Most = Most { queries: 1, streams: 112, held_kib: 2 << 10, said_kib: 4 << 10 };

/// A link's place among the live ones; it is given back on drop.
#[derive(Debug)]
pub struct Place {
    registry: Arc<Registry>,
    link: LinkId,
    who: Identity,
    payer: Identity,
    allotment: Arc<Allotment>,
}

impl Registry {
    pub fn new(limits: LinkLimits, revoked: Revoked) -> Registry {
        let (agents_came, _) = watch::channel(());
        let (revocations, _) = watch::channel(());
        let since = Instant::now();
        Registry { limits, revoked, live: Mutex::default(), since, agents_came, revocations }
    }

    /// Gives the link a place, unless its certificate was revoked or there are too many. It has its part of what `payer` may
    /// have: that is its peer, or who stands for all jobs of one owner.
    ///
    /// # Errors
    /// Why the link must be closed.
    pub fn admit(self: &Arc<Registry>, link: &Link, payer: &Identity) -> Result<Place, NotAdmitted> {
        let who = link.identity().clone();
        let mut live = self.live();
        // Looked at under the lock that revoking takes: a certificate that is revoked right now is either seen
        // here, or its link is seen there.
        if live.revoked.contains(link.serial()) {
            return Err(NotAdmitted::Revoked { serial: link.serial().to_owned() });
        }
        let is_ordinary = is_ordinary(who.role);
        if is_ordinary && live.n_ordinary >= self.limits.links {
            return Err(NotAdmitted::Full { max: self.limits.links });
        }
        let id = draw_link();
        let allotment = match who.role {
            Role::User | Role::Admin | Role::Job => live.count_in(&who, payer, &self.limits)?,
            Role::Agent => {
                // One node has one agent, and the newest link is the one that it uses.
                let older = live.agents.insert(who.name.clone(), id);
                live.away.remove(&who.name);
                if let Some(older) = older.and_then(|older| live.links.get(&older).cloned()) {
                    let (from, to) = (older.remote(), link.remote());
                    live.rivals.note(&who.name, from, to, Instant::now());
                    older.close("the agent has connected anew");
                }
                Arc::new(Allotment::of(who.role))
            }
            Role::Server => Arc::new(Allotment::of(who.role)),
        };
        live.links.insert(id, link.clone());
        live.n_ordinary += usize::from(is_ordinary);
        drop(live);
        if who.role == Role::Agent {
            self.agents_came.send_replace(());
        }
        Ok(Place { registry: Arc::clone(self), link: id, who, payer: payer.clone(), allotment })
    }

    /// What is wrong with a node as whose agent two connect.
    pub fn rivals(&self, node: &str) -> Option<String> {
        self.live().rivals.of(node, Instant::now())
    }

    /// It is of interest when somebody comes with this certificate for the first time.
    pub fn await_use(&self, serial: &str) {
        self.live().untried.insert(serial.to_owned());
    }

    /// Is this the first time that somebody comes with it?
    pub fn note_use(&self, serial: &str) -> bool {
        self.live().untried.remove(serial)
    }

    /// Ends the links that use these certificates, and lets no new ones in.
    pub fn revoke(&self, serials: &[String]) {
        let mut live = self.live();
        for serial in serials {
            self.revoked.insert(serial);
            live.revoked.insert(serial.clone());
        }
        for link in live.links.values().filter(|link| serials.iter().any(|serial| serial == link.serial())) {
            tracing::info!(peer = %link.identity(), serial = link.serial(), "closing a link: revoked");
            link.close("the certificate is revoked");
        }
        drop(live);
        self.revocations.send_replace(());
    }

    /// After a restart: these are the revoked certificates.
    pub fn restore_revoked(&self, serials: impl IntoIterator<Item = String>) {
        let mut live = self.live();
        live.revoked = serials.into_iter().collect();
        self.revoked.replace(live.revoked.iter().cloned());
    }

    pub fn revoked(&self) -> Vec<String> {
        self.live().revoked.iter().cloned().collect()
    }

    pub fn revocations(&self) -> watch::Receiver<()> {
        self.revocations.subscribe()
    }

    /// The agent's newest link, as soon as there is one that lives.
    pub async fn agent(&self, name: &str) -> Link {
        self.agent_where(name, |_| true).await
    }

    /// The same, once it has said that channels may begin with this kind of frames.
    pub async fn agent_serving(&self, name: &str, kind: Kind) -> Link {
        self.agent_where(name, |kinds| kinds.contains(&kind.number())).await
    }

    async fn agent_where(&self, name: &str, serves: impl Fn(&[u16]) -> bool) -> Link {
        let mut came = self.agents_came.subscribe();
        loop {
            came.mark_unchanged();
            if let Some(link) = self.live_agent(name, &serves) {
                return link;
            }
            if came.changed().await.is_err() {
                // The sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Since when an agent has no link that lives.
    pub fn away_since(&self, name: &str) -> Instant {
        let live = self.live();
        // A link that has just ended may not have left its place yet.
        let is_here = live.agents.contains_key(name);
        if is_here { Instant::now() } else { live.away.get(name).copied().unwrap_or(self.since) }
    }

    /// An agent says with which kinds of frames channels may begin on its link.
    pub fn note_served(&self, link: LinkId, kinds: Vec<u16>) {
        self.live().served.insert(link, kinds);
        self.agents_came.send_replace(());
    }

    /// Whether an agent has a link that lives.
    pub fn has_agent(&self, name: &str) -> bool {
        self.live_agent(name, |_| true).is_some()
    }

    fn live_agent(&self, name: &str, serves: impl Fn(&[u16]) -> bool) -> Option<Link> {
        let live = self.live();
        let id = live.agents.get(name)?;
        let link = live.links.get(id).filter(|link| !link.is_closed())?;
        serves(live.served.get(id).map_or(&[][..], Vec::as_slice)).then(|| link.clone())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // No change of it can panic half-way.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// One link more that counts for `payer`.
    fn count_in(
        &mut self,
        who: &Identity,
        payer: &Identity,
        limits: &LinkLimits,
    ) -> Result<Arc<Allotment>, NotAdmitted> {
        let n_links = self.n_links.get(who).copied().unwrap_or(0);
        let n_further = self.parts.get(payer).map_or(0, |part| part.n_further);
        let max = limits.links_per_user;
        let max_of_job = MAX_LINKS_OF_JOB.min(max);
        match who.role {
            Role::Job if n_links >= max_of_job => {
                return Err(NotAdmitted::TooManyOfJob { who: who.clone(), max: max_of_job });
            }
            // One for each of them there always is, however many jobs somebody has.
            Role::Job if n_links > 0 && n_further >= max => {
                return Err(NotAdmitted::TooManyOfJobs { owner: payer.name.clone(), max });
            }
            Role::Job => {}
            Role::User | Role::Admin | Role::Agent | Role::Server if n_links >= max => {
                return Err(NotAdmitted::TooMany { who: who.clone(), max });
            }
            Role::User | Role::Admin | Role::Agent | Role::Server => {}
        }
        self.n_links.insert(who.clone(), n_links + 1);
        let new = || Part { n_links: 0, n_further: 0, allotment: Arc::new(Allotment::of(payer.role)) };
        let part = self.parts.entry(payer.clone()).or_insert_with(new);
        part.n_links += 1;
        part.n_further += usize::from(n_links > 0);
        Ok(Arc::clone(&part.allotment))
    }

    fn count_out(&mut self, who: &Identity, payer: &Identity) {
        let n_left = self.n_links.get(who).map_or(0, |n_links| n_links - 1);
        match n_left {
            0 => drop(self.n_links.remove(who)),
            _ => drop(self.n_links.insert(who.clone(), n_left)),
        }
        let Some(part) = self.parts.get_mut(payer) else { return };
        part.n_links -= 1;
        part.n_further -= usize::from(n_left > 0);
        if part.n_links == 0 {
            self.parts.remove(payer);
        }
    }
}

impl Place {
    pub fn link(&self) -> LinkId {
        self.link
    }

    pub fn allotment(&self) -> &Arc<Allotment> {
        &self.allotment
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut live = self.registry.live();
        live.links.remove(&self.link);
        live.served.remove(&self.link);
        live.n_ordinary -= usize::from(is_ordinary(self.who.role));
        match self.who.role {
            Role::User | Role::Admin | Role::Job => live.count_out(&self.who, &self.payer),
            Role::Agent => {
                if live.agents.get(&self.who.name) == Some(&self.link) {
                    live.agents.remove(&self.who.name);
                    live.away.insert(self.who.name.clone(), Instant::now());
                }
            }
            Role::Server => {}
        }
    }
}

fn is_ordinary(role: Role) -> bool {
    match role {
        Role::User | Role::Job => true,
        Role::Agent | Role::Admin | Role::Server => false,
    }
}
