//! The live links: how many there may be, which use revoked certificates, and where each agent is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::{Identity, Role};
use rms_wire::Link;
use rms_wire::tls::Revoked;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::config::LinkLimits;
use crate::outbox::LinkId;

/// Shared by the driver, which revokes, and the sessions, which come and go.
#[derive(Debug)]
pub struct Registry {
    limits: LinkLimits,
    /// What handshakes consult.
    revoked: Revoked,
    live: Mutex<Live>,
    /// Whoever has no link was away before, as far as is known here.
    since: Instant,
    /// Rung when an agent has come, for those who wait for one.
    agents_came: watch::Sender<()>,
    /// Rung when certificates were revoked, for agents, who also accept links.
    revocations: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Live {
    links: BTreeMap<LinkId, Link>,
    per_user: HashMap<Identity, (usize, Arc<Allotment>)>,
    /// Links of users and jobs; agents and admins have places of their own.
    n_ordinary: usize,
    agents: HashMap<String, LinkId>,
    /// When the last link of those ended that have none.
    away: HashMap<String, Instant>,
    revoked: BTreeSet<String>,
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
    #[error("{who} has {max} connections already: one process of a job is enough to speak for it")]
    TooManyOfJob { who: Identity, max: usize },
}

/// One process of a job speaks for it; beside it there may be commands in its scripts. Ten thousand ranks may not all try.
const MAX_LINKS_OF_JOB: usize = 32;

/// What all links of one identity have together, so that many of them hold no more of the server than one.
#[derive(Debug)]
pub struct Allotment {
    /// Questions that are being answered: an answer can be long, and is there until it is read. Others wait for them.
    pub queries: Semaphore,
    /// Jobs that are followed or watched.
    pub streams: Semaphore,
    /// What is held for these, in KiB.
    pub held: Arc<Semaphore>,
    /// What launchers and negotiators have said and was not heard yet, in KiB: who does not read is not to silence them.
    pub said: Arc<Semaphore>,
}

impl Default for Allotment {
    fn default() -> Allotment {
        let kib = |n_kib| Arc::new(Semaphore::new(n_kib));
        Allotment {
            queries: Semaphore::new(MAX_QUERIES),
            streams: Semaphore::new(MAX_STREAMS),
            held: kib(MAX_HELD_KIB),
            said: kib(MAX_SAID_KIB),
        }
    }
}

const MAX_QUERIES: usize = 4;
pub const MAX_STREAMS: usize = 512;
/// A few pieces of output for each stream; with what QUIC holds beside it, it stays below 64 MiB.
const MAX_HELD_KIB: usize = 10 << 10;
const MAX_SAID_KIB: usize = 8 << 10;

/// A link's place among the live ones; it is given back on drop.
#[derive(Debug)]
pub struct Place {
    registry: Arc<Registry>,
    link: LinkId,
    who: Identity,
    allotment: Arc<Allotment>,
}

impl Registry {
    pub fn new(limits: LinkLimits, revoked: Revoked) -> Registry {
        let (agents_came, _) = watch::channel(());
        let (revocations, _) = watch::channel(());
        let since = Instant::now();
        Registry { limits, revoked, live: Mutex::default(), since, agents_came, revocations }
    }

    /// Gives the link a place, unless its certificate was revoked or there are too many.
    ///
    /// # Errors
    /// Why the link must be closed.
    pub fn admit(self: &Arc<Registry>, link: &Link) -> Result<Place, NotAdmitted> {
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
        let mut allotment = Arc::default();
        let id = LinkId::draw();
        match who.role {
            Role::User | Role::Admin => {
                let (n_links, shared) = live.per_user.entry(who.clone()).or_default();
                if *n_links >= self.limits.links_per_user {
                    return Err(NotAdmitted::TooMany { who, max: self.limits.links_per_user });
                }
                *n_links += 1;
                allotment = Arc::clone(shared);
            }
            Role::Job => {
                let max = MAX_LINKS_OF_JOB.min(self.limits.links_per_user);
                let (n_links, shared) = live.per_user.entry(who.clone()).or_default();
                if *n_links >= max {
                    return Err(NotAdmitted::TooManyOfJob { who, max });
                }
                *n_links += 1;
                allotment = Arc::clone(shared);
            }
            Role::Agent => {
                // One node has one agent, and the newest link is the one that it uses.
                let older = live.agents.insert(who.name.clone(), id);
                live.away.remove(&who.name);
                if let Some(older) = older.and_then(|older| live.links.get(&older)) {
                    older.close("the agent has connected anew");
                }
            }
            Role::Server => {}
        }
        live.links.insert(id, link.clone());
        live.n_ordinary += usize::from(is_ordinary);
        drop(live);
        if who.role == Role::Agent {
            self.agents_came.send_replace(());
        }
        Ok(Place { registry: Arc::clone(self), link: id, who, allotment })
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
        let mut came = self.agents_came.subscribe();
        loop {
            came.mark_unchanged();
            if let Some(link) = self.live_agent(name) {
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

    fn live_agent(&self, name: &str) -> Option<Link> {
        let live = self.live();
        let link = live.links.get(live.agents.get(name)?)?;
        (!link.is_closed()).then(|| link.clone())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // No change of it can panic half-way.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
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
        live.n_ordinary -= usize::from(is_ordinary(self.who.role));
        match self.who.role {
            Role::User | Role::Admin | Role::Job => {
                if let Some((n_links, _)) = live.per_user.get_mut(&self.who) {
                    *n_links -= 1;
                    if *n_links == 0 {
                        live.per_user.remove(&self.who);
                    }
                }
            }
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
