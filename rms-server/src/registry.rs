//! The registry of live links: limits their number, closes those with revoked certificates, finds each agent's link.

mod duplicates;

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
use crate::outbox::new_link_id;
use duplicates::DuplicateAgents;

/// Shared by the driver, which revokes certificates, and the sessions.
#[derive(Debug)]
pub struct Registry {
    limits: LinkLimits,
    /// The revoked certificates that handshakes check.
    revoked: Revoked,
    live: Mutex<Live>,
    /// The start of this registry: an agent without a link counts as away since then, unless it had one later.
    since: Instant,
    /// Signalled when an agent has connected, or has announced what it serves, for those who wait for an agent.
    agents_changed: watch::Sender<()>,
    /// Signalled when certificates were revoked, for agents, which also accept links.
    revocations: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Live {
    links: BTreeMap<LinkId, Link>,
    /// Links of each user, admin and execution of a job.
    n_links: HashMap<Identity, usize>,
    /// Usage of each quota owner.
    usages: HashMap<Identity, Usage>,
    /// Links of users and jobs; agents and admins do not count towards this limit.
    n_ordinary: usize,
    agents: HashMap<String, LinkId>,
    duplicates: DuplicateAgents,
    /// The kinds of first frames that agents have announced to serve, by their links.
    served: BTreeMap<LinkId, Vec<u16>>,
    /// When the last link ended, of each agent that has none.
    away: HashMap<String, Instant>,
    revoked: BTreeSet<String>,
    /// Certificates that may replace others and were not used yet.
    untried: BTreeSet<String>,
}

/// What the links of one quota owner use together.
#[derive(Debug)]
struct Usage {
    n_links: usize,
    /// Links whose identity has an earlier link.
    n_extra: usize,
    quota: Arc<Quota>,
}

/// Why a link is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AdmitError {
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

/// One process of a job negotiates for it; its scripts may run commands beside it. Ten thousand ranks must not all
/// connect.
const MAX_LINKS_OF_JOB: usize = 32;

/// The quota that all links of one owner share, so that many links use no more of the server than one. A user's quota
/// is split: one part for the user's own commands, and one for the processes of all of the user's jobs together.
#[derive(Debug)]
pub struct Quota {
    /// Queries that are being answered: an answer can be long, and is in memory until it is read. Further queries wait.
    pub queries: Semaphore,
    /// Streams that follow or watch jobs.
    pub streams: Semaphore,
    /// Memory for these streams, in KiB.
    pub output: Arc<Semaphore>,
    /// Memory for unprocessed messages of launchers and negotiators: streams that nobody reads must not block them.
    pub messages: Budget,
    pub max_streams: usize,
}

impl Quota {
    fn of(role: Role) -> Quota {
        let QuotaLimits { queries, streams, output_kib, messages_kib } = match role {
            Role::User => USER_LIMITS,
            Role::Job => JOB_LIMITS,
            Role::Admin | Role::Agent | Role::Server => OTHER_LIMITS,
        };
        let messages = Arc::new(Semaphore::new(messages_kib as usize));
        Quota {
            queries: Semaphore::new(queries),
            streams: Semaphore::new(streams),
            output: Arc::new(Semaphore::new(output_kib)),
            messages: Budget { kib: messages, most: messages_kib, patience: None },
            max_streams: streams,
        }
    }
}

struct QuotaLimits {
    queries: usize,
    streams: usize,
    /// A few chunks of output for each stream; together with QUIC's own buffers, it stays below 64 MiB.
    output_kib: usize,
    messages_kib: u32,
}

const OTHER_LIMITS: QuotaLimits = QuotaLimits { queries: 4, streams: 512, output_kib: 10 << 10, messages_kib: 8 << 10 };
// Together no more than the above. Launchers are programs of users, and negotiators are processes of jobs.
const USER_LIMITS: QuotaLimits = QuotaLimits { queries: 3, streams: 400, output_kib: 8 << 10, messages_kib: 4 << 10 };
const JOB_LIMITS: QuotaLimits = QuotaLimits { queries: 1, streams: 112, output_kib: 2 << 10, messages_kib: 4 << 10 };

/// A link's entry in the registry; it is removed on drop.
#[derive(Debug)]
pub struct Place {
    registry: Arc<Registry>,
    link: LinkId,
    who: Identity,
    quota_owner: Identity,
    quota: Arc<Quota>,
}

impl Registry {
    pub fn new(limits: LinkLimits, revoked: Revoked) -> Registry {
        let (agents_changed, _) = watch::channel(());
        let (revocations, _) = watch::channel(());
        let since = Instant::now();
        Registry { limits, revoked, live: Mutex::default(), since, agents_changed, revocations }
    }

    /// Registers the link, unless its certificate was revoked or there are too many. It shares the quota of
    /// `quota_owner`: its peer, or the identity that stands for all jobs of one owner.
    ///
    /// # Errors
    /// Why the link must be closed.
    pub fn admit(self: &Arc<Registry>, link: &Link, quota_owner: &Identity) -> Result<Place, AdmitError> {
        let who = link.identity().clone();
        let mut live = self.live();
        // Checked under the lock that `revoke` takes: a certificate that is revoked right now is either seen here, or
        // its link is seen there.
        if live.revoked.contains(link.serial()) {
            return Err(AdmitError::Revoked { serial: link.serial().to_owned() });
        }
        let is_ordinary = is_ordinary(who.role);
        if is_ordinary && live.n_ordinary >= self.limits.links {
            return Err(AdmitError::Full { max: self.limits.links });
        }
        let id = new_link_id();
        let quota = match who.role {
            Role::User | Role::Admin | Role::Job => live.add_link(&who, quota_owner, &self.limits)?,
            Role::Agent => {
                // A node has one agent, and the agent uses its newest link.
                let older = live.agents.insert(who.name.clone(), id);
                live.away.remove(&who.name);
                if let Some(older) = older.and_then(|older| live.links.get(&older).cloned()) {
                    let (from, to) = (older.remote(), link.remote());
                    live.duplicates.note(&who.name, from, to, Instant::now());
                    older.close("the agent has connected anew");
                }
                Arc::new(Quota::of(who.role))
            }
            Role::Server => Arc::new(Quota::of(who.role)),
        };
        live.links.insert(id, link.clone());
        live.n_ordinary += usize::from(is_ordinary);
        drop(live);
        if who.role == Role::Agent {
            self.agents_changed.send_replace(());
        }
        Ok(Place { registry: Arc::clone(self), link: id, who, quota_owner: quota_owner.clone(), quota })
    }

    /// Returns a message if two agents connect as this node.
    pub fn duplicates(&self, node: &str) -> Option<String> {
        self.live().duplicates.of(node, Instant::now())
    }

    /// Registers a certificate whose first use is to be reported.
    pub fn await_use(&self, serial: &str) {
        self.live().untried.insert(serial.to_owned());
    }

    /// Returns whether this is the first use of a certificate.
    pub fn note_use(&self, serial: &str) -> bool {
        self.live().untried.remove(serial)
    }

    /// Closes the links that use these certificates, and rejects new ones.
    pub fn revoke(&self, serials: &[String]) {
        let mut live = self.live();
        for serial in serials {
            self.revoked.insert(serial);
            live.revoked.insert(serial.clone());
        }
        for link in live.links.values().filter(|link| serials.iter().any(|serial| serial == link.serial())) {
            tracing::info!(peer = %link.identity(), serial = link.serial(), "closing a link: revoked");
            link.close(rms_wire::link::REVOKED);
        }
        drop(live);
        self.revocations.send_replace(());
    }

    /// Sets the revoked certificates, after a restart.
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

    /// Waits for a live link of the agent, and returns the newest.
    pub async fn agent(&self, name: &str) -> Link {
        self.agent_where(name, |_| true).await
    }

    /// Waits for a live link of the agent, on which it serves channels that begin with this kind of frame.
    pub async fn agent_serving(&self, name: &str, kind: Kind) -> Link {
        self.agent_where(name, |kinds| kinds.contains(&kind.number())).await
    }

    async fn agent_where(&self, name: &str, serves: impl Fn(&[u16]) -> bool) -> Link {
        let mut changed = self.agents_changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(link) = self.live_agent(name, &serves) {
                return link;
            }
            if changed.changed().await.is_err() {
                // Cannot happen: the sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns since when an agent has no live link.
    pub fn away_since(&self, name: &str) -> Instant {
        let live = self.live();
        // A link that has just ended may still be registered.
        let is_here = live.agents.contains_key(name);
        if is_here { Instant::now() } else { live.away.get(name).copied().unwrap_or(self.since) }
    }

    /// Stores the kinds of first frames that an agent serves on its link.
    pub fn note_served(&self, link: LinkId, kinds: Vec<u16>) {
        self.live().served.insert(link, kinds);
        self.agents_changed.send_replace(());
    }

    /// Returns whether an agent has a live link.
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
        // No change of the maps can panic half-way.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Counts one more link of `quota_owner`.
    fn add_link(
        &mut self,
        who: &Identity,
        quota_owner: &Identity,
        limits: &LinkLimits,
    ) -> Result<Arc<Quota>, AdmitError> {
        let n_links = self.n_links.get(who).copied().unwrap_or(0);
        let n_extra = self.usages.get(quota_owner).map_or(0, |usage| usage.n_extra);
        let max = limits.links_per_user;
        let max_of_job = MAX_LINKS_OF_JOB.min(max);
        match who.role {
            Role::Job if n_links >= max_of_job => {
                return Err(AdmitError::TooManyOfJob { who: who.clone(), max: max_of_job });
            }
            // The first link of each job is always allowed, however many jobs an owner has.
            Role::Job if n_links > 0 && n_extra >= max => {
                return Err(AdmitError::TooManyOfJobs { owner: quota_owner.name.clone(), max });
            }
            Role::Job => {}
            Role::User | Role::Admin | Role::Agent | Role::Server if n_links >= max => {
                return Err(AdmitError::TooMany { who: who.clone(), max });
            }
            Role::User | Role::Admin | Role::Agent | Role::Server => {}
        }
        self.n_links.insert(who.clone(), n_links + 1);
        let new = || Usage { n_links: 0, n_extra: 0, quota: Arc::new(Quota::of(quota_owner.role)) };
        let usage = self.usages.entry(quota_owner.clone()).or_insert_with(new);
        usage.n_links += 1;
        usage.n_extra += usize::from(n_links > 0);
        Ok(Arc::clone(&usage.quota))
    }

    fn remove_link(&mut self, who: &Identity, quota_owner: &Identity) {
        let n_left = self.n_links.get(who).map_or(0, |n_links| n_links - 1);
        match n_left {
            0 => drop(self.n_links.remove(who)),
            _ => drop(self.n_links.insert(who.clone(), n_left)),
        }
        let Some(usage) = self.usages.get_mut(quota_owner) else { return };
        usage.n_links -= 1;
        usage.n_extra -= usize::from(n_left > 0);
        if usage.n_links == 0 {
            self.usages.remove(quota_owner);
        }
    }
}

impl Place {
    pub fn link(&self) -> LinkId {
        self.link
    }

    pub fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut live = self.registry.live();
        live.links.remove(&self.link);
        live.served.remove(&self.link);
        live.n_ordinary -= usize::from(is_ordinary(self.who.role));
        match self.who.role {
            Role::User | Role::Admin | Role::Job => live.remove_link(&self.who, &self.quota_owner),
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
