//! The link to the server: reports the actual state, receives the desired state, and reconnects forever.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rms_api::desired::AgentHello;
use rms_api::desired::NodeReport;
use rms_core::node_loop::{Growth, Inbound, Question, growth};
use rms_model::Inventory;
use rms_model::error::chain;
use rms_wire::parts::{DesiredParts, report_parts};
use rms_wire::{
    Backoff, Channel, Credentials, End, Endpoint, Expect, FollowOrder, Kind, Link, LinkError, MasksAsked, NewKey,
    Outbox, Revoked, ToAgent, ToServer,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::address::Advertised;
use crate::driver::{NodeEvent, Reporter};
use crate::follow;
use crate::keys::Keys;
use crate::masks::Masks;
use crate::share::Shares;
use crate::supervisor::now;
use crate::watch::Watches;

/// The context of the link.
#[derive(Debug)]
pub struct Uplink {
    pub server: String,
    pub endpoint: Endpoint,
    pub cluster: String,
    /// A change ends the link, and the next hello has the new inventory.
    pub inventory: watch::Receiver<Inventory>,
    pub advertised: Advertised,
    pub credentials_dir: PathBuf,
    /// The serial of a certificate of another node in that directory, of which the log has warned.
    pub warned_of: Mutex<String>,
    pub revoked: Revoked,
    pub shares: Shares,
    pub watches: Watches,
    pub masks: Masks,
    pub keys: Keys,
    pub events: mpsc::Sender<NodeEvent>,
}

/// The capacity of the queue of reports. The server reads faster than a node produces reports; if the queue is full,
/// the link is closed, and the next hello reports everything.
const MAX_REPORTS: usize = 4096;
/// A link that lasted this long was not refused: the next attempt may follow soon.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The delay of the first attempt after a link ended: too short to matter, and random, so that not all agents connect
/// at once.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// How long to wait before a refused renewal is requested again.
const RENEWAL_RETRY_DELAY: Duration = Duration::from_secs(600);

/// Sends reports on the control channel of one link.
#[derive(Debug)]
struct Control {
    outbox: Outbox<ToServer>,
    hello: AgentHello,
}

impl Reporter for Control {
    fn hello(&self, report: &NodeReport, trouble: Option<&str>) {
        let hello = AgentHello { trouble: trouble.map(str::to_owned), ..self.hello.clone() };
        // A failing outbox has closed the link, which its reader notices.
        let _heard_elsewhere = self.outbox.push(&ToServer::Hello(hello));
        self.report(report);
    }

    fn report(&self, report: &NodeReport) {
        for part in report_parts(report) {
            let _heard_elsewhere = self.outbox.push(&part);
        }
    }

    fn trouble(&self, reason: Option<&str>) {
        let _heard_elsewhere = self.outbox.push(&ToServer::Trouble { reason: reason.map(str::to_owned) });
    }

    fn ask(&self, seq: u64, question: &Question) {
        let (job, run, ask) = (question.job, question.run, question.ask.clone());
        let _heard_elsewhere = self.outbox.push(&ToServer::Ask { seq, job, run, ask });
    }
}

impl Uplink {
    /// Connects, serves, and reconnects, until the node's task has ended.
    pub async fn run(self) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        let mut refused = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        loop {
            let mut n_failures = 0_u32;
            self.reload_credentials();
            let link = self
                .endpoint
                .connect_patiently(&self.server, &Expect::server(), &mut backoff, |error, delay| {
                    // A server that is unreachable for long must not fill the log.
                    if n_failures < 3 || n_failures.is_power_of_two() {
                        let what = advice(error).unwrap_or("cannot reach the server; trying again");
                        tracing::warn!(server = self.server, error = chain(error), ?delay, "{what}");
                    }
                    n_failures += 1;
                    self.reload_credentials();
                })
                .await;
            tracing::info!(server = self.server, "connected");
            let since = Instant::now();
            let mut is_accepted = false;
            let reason = self.serve(&link, &mut is_accepted).await;
            if self.events.send(NodeEvent::LinkDown).await.is_err() {
                return;
            }
            tracing::warn!(server = self.server, reason, "the link to the server has ended; jobs go on");
            // A server that was killed or stopped has not refused the agent. One that closes links may do so again: of
            // two agents of one name, it closes one's link whenever the other connects.
            let is_server_gone = matches!(link.end(), Some(End::Lost | End::Leaving));
            if (is_accepted && is_server_gone) || since.elapsed() > STABLE_AFTER {
                refused.reset();
            }
            self.endpoint.pause(refused.delay()).await;
        }
    }

    /// Loads new credentials, which another join of this node may have saved: the server accepts only those.
    fn reload_credentials(&self) {
        let Ok(found) = Credentials::load(&self.credentials_dir) else { return };
        let own = self.endpoint.credentials();
        if found.identity() != own.identity() {
            let mut warned_of = self.warned_of.lock().unwrap_or_else(PoisonError::into_inner);
            if *warned_of != found.serial() {
                found.serial().clone_into(&mut warned_of);
                let (own, found) = (own.identity().to_string(), found.identity().to_string());
                tracing::error!(own, found, dir = %self.credentials_dir.display(), "the certificate in the agent's directory is another node's and is not used: join again by the agent's own name, or restart the agent to be that node");
            }
            return;
        }
        let is_new = found.serial() != own.serial();
        if is_new && self.endpoint.rotate(&found).is_ok() {
            tracing::info!(serial = found.serial(), "loaded the credentials of a new join");
        }
    }

    /// Prints on standard output that the server has accepted this agent, for a program that started it and waits.
    fn announce(&self) {
        // It is possible that no program reads it.
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "connected to {}", self.server).and_then(|()| stdout.flush());
    }

    /// Serves the link until it ends, and returns why. Sets `is_accepted` once the server has accepted the agent.
    async fn serve(&self, link: &Link, is_accepted: &mut bool) -> String {
        let Ok(channel) = link.open().await else { return link.closed().await };
        let (sender, mut receiver) = channel.split();
        let outbox = Outbox::new(sender, MAX_REPORTS);
        let address = self.advertised.towards(link.remote()).to_string();
        tracing::info!(address, "advertising this address to peers");
        let mut inventory = self.inventory.clone();
        let (cluster, own) = (self.cluster.clone(), inventory.borrow_and_update().clone());
        let hello = AgentHello { cluster, address, inventory: own, trouble: None };
        let control = Control { outbox: outbox.clone(), hello };
        if self.events.send(NodeEvent::LinkUp(Box::new(control))).await.is_err() {
            return "the agent is ending".to_owned();
        }
        self.keys.link_up();
        let mut desired = DesiredParts::new();
        let mut next_key: Option<NewKey> = None;
        let mut revoked = Vec::new();
        let is_renewal_wanted = link.wants_renewal(&self.endpoint.credentials());
        let wait = if is_renewal_wanted { Duration::ZERO } else { self.until_renewal() };
        let mut renew_at = Instant::now() + wait;
        loop {
            tokio::select! {
                message = receiver.recv_known::<ToAgent>(&["Desire", "Revoked"]) => match message {
                    Ok(Some(ToAgent::Desire(part))) => match desired.push(part) {
                        Ok(Some(desired)) => {
                            if !std::mem::replace(is_accepted, true) {
                                self.announce();
                                let kinds = [Kind::MasksAsked, Kind::InputAt].map(Kind::number).to_vec();
                                let _heard_by_the_receiver = outbox.push(&ToServer::Serves { kinds });
                            }
                            self.send_event(Inbound::Desired(desired)).await;
                        }
                        Ok(None) => {}
                        Err(error) => {
                            link.close_for(&error.into());
                            return link.closed().await;
                        }
                    },
                    Ok(Some(ToAgent::Signal { job, run, signal })) => {
                        self.send_event(Inbound::Signal { job, run, signal }).await;
                    }
                    Ok(Some(ToAgent::Renewed { chain, ca })) => {
                        if let Some(key) = next_key.take() {
                            self.renewed(key, &chain, &ca);
                        }
                        renew_at = Instant::now() + self.until_renewal().max(Duration::from_secs(1));
                    }
                    Ok(Some(ToAgent::NotRenewed(refused))) => {
                        tracing::error!(%refused, "the server does not renew our certificate");
                        renew_at = Instant::now() + RENEWAL_RETRY_DELAY;
                    }
                    Ok(Some(ToAgent::Revoked { serials, last })) => {
                        revoked.extend(serials);
                        if last {
                            self.revoked.replace(std::mem::take(&mut revoked));
                        }
                    }
                    Ok(Some(ToAgent::Asked { seq, outcome })) => {
                        self.send_event(Inbound::Grown { seq, result: growth(outcome) }).await;
                    }
                    Ok(Some(ToAgent::NotAsked { seq, refused })) => {
                        let result = Growth::Refused { reason: refused.to_string() };
                        self.send_event(Inbound::Grown { seq, result }).await;
                    }
                    Ok(Some(ToAgent::Certified { seq, chain, ca })) => self.keys.certified(seq, &chain, &ca),
                    Ok(Some(ToAgent::NotCertified { seq, refused })) => self.keys.not_certified(seq, &refused),
                    Ok(None) | Err(_) => {
                        link.close("the server has ended the control channel");
                        return link.closed().await;
                    }
                },
                // Closed only when the agent ends.
                Ok(()) = inventory.changed() => {
                    link.close("the node has other cores, memory or devices now");
                    return link.closed().await;
                }
                channel = link.accept() => match channel {
                    Ok(channel) => {
                        let (shares, watches) = (self.shares.clone(), self.watches.clone());
                        drop(tokio::spawn(serve_channel(channel, shares, watches, self.masks.clone())));
                    }
                    Err(_) => return link.closed().await,
                },
                // Only after the agent's hello and reports: once the server has sent the desired state, it has received
                // them.
                request = self.keys.next_request(), if *is_accepted => {
                    let _heard_by_the_receiver = outbox.push(&request.into());
                }
                () = tokio::time::sleep_until(renew_at), if *is_accepted => {
                    renew_at = Instant::now() + RENEWAL_RETRY_DELAY;
                    match NewKey::generate() {
                        Ok(key) => {
                            let _heard_by_the_receiver = outbox.push(&ToServer::Renew { csr: key.csr_der().to_vec() });
                            next_key = Some(key);
                        }
                        Err(error) => tracing::error!(error = chain(&error), "cannot make a key to renew with"),
                    }
                }
            }
        }
    }

    async fn send_event(&self, inbound: Inbound) {
        // Fails only when the agent is ending, and then the link does too.
        let _agent_ends = self.events.send(NodeEvent::Inbound(inbound)).await;
    }

    /// Returns the time until renewal, which leaves a third of the certificate's lifetime in case the server is
    /// unreachable.
    fn until_renewal(&self) -> Duration {
        let credentials = self.endpoint.credentials();
        let life = credentials.expires().since(credentials.issued()).to_std();
        (life * 2 / 3).saturating_sub(now().since(credentials.issued()).to_std())
    }

    fn renewed(&self, key: NewKey, chain_pem: &str, ca: &str) {
        let before = self.endpoint.credentials().authorities();
        let renewed = key.into_credentials(chain_pem, ca).map_err(anyhow::Error::from).and_then(|credentials| {
            credentials.save(&self.credentials_dir)?;
            self.endpoint.rotate(&credentials)?;
            if credentials.authorities() != before {
                self.keys.renew_all();
            }
            Ok(credentials.expires())
        });
        match renewed {
            Ok(expires) => tracing::info!(expires_secs = expires.as_secs(), "renewed the certificate"),
            Err(error) => tracing::error!("cannot use the renewed certificate: {error:#}"),
        }
    }
}

/// Returns what to do about an attempt that will keep failing until an administrator acts.
fn advice(error: &LinkError) -> Option<&'static str> {
    match error {
        LinkError::Untrusted { .. } => Some(
            "the server's certificate is not one that this node accepts; if the server's CA was changed, join again: \
             'node-agent join' with a new token",
        ),
        LinkError::Denied { .. } => Some(
            "the server does not accept this node's certificate; if it has expired or was revoked, join again: \
             'node-agent join' with a new token",
        ),
        LinkError::Connect { address: SocketAddr::V6(_), .. } => Some(
            "cannot reach the server, whose address is IPv6: if listen is IPv4, set listen = \"[::]:0\" in agent.toml, \
             or leave it out and start the agent again",
        ),
        LinkError::Connect { .. }
        | LinkError::Resolve { .. }
        | LinkError::NoAddress { .. }
        | LinkError::Local { .. }
        | LinkError::Endpoint(_)
        | LinkError::Closed { .. }
        | LinkError::Refused
        | LinkError::NoAnswer { .. }
        | LinkError::TooSlow { .. }
        | LinkError::Evicted
        | LinkError::Unfinished { .. }
        | LinkError::Unread { .. }
        | LinkError::NoRoom
        | LinkError::CutShort
        | LinkError::Silent
        | LinkError::ChannelReset
        | LinkError::Decode(_)
        | LinkError::Malformed(_)
        | LinkError::Encode(_)
        | LinkError::Peer(_)
        | LinkError::Proof(_)
        | LinkError::NoCertificate
        | LinkError::Role { .. }
        | LinkError::Protocol => None,
    }
}

async fn serve_channel(mut channel: Channel, shares: Shares, watches: Watches, masks: Masks) {
    // The server opens no other channels; for anything else the link is closed.
    match channel.next_kind().await {
        Ok(Some(kind)) if kind == Kind::MasksAsked.number() => {
            if let Ok(Some(asked)) = channel.recv::<MasksAsked>().await {
                masks.serve(asked, channel).await;
            }
        }
        Ok(_) => {
            if let Ok(Some(order)) = channel.recv::<FollowOrder>().await {
                follow::serve(order, channel, shares, &watches).await;
            }
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_join_again_is_told_so() {
        let reason = || "its certificate is not from a CA that is trusted here".to_owned();
        let left_behind = advice(&LinkError::Untrusted { reason: reason() }).expect("it will fail again");
        assert!(left_behind.contains("if the server's CA was changed"), "{left_behind}");
        let refused = advice(&LinkError::Denied { reason: reason() }).expect("it will fail again");
        assert!(refused.contains("'node-agent join' with a new token"), "{refused}");
        assert_eq!(advice(&LinkError::TooSlow { secs: 5 }), None);
    }
}
