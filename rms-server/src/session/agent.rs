//! Serves an agent's link: passes its reports to the driver, and the newest desired state to the agent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rms_api::Call;
use rms_api::desired::AgentHello;
use rms_api::desired::NodeReport;
use rms_core::server_loop::LinkId;
use rms_model::Identity;
use rms_wire::link::{Receiver, Sender};
use rms_wire::message::MAX_LINES;
use rms_wire::parts::{ReportParts, desire_parts};
use rms_wire::tls::draw_serial;
use rms_wire::{Kind, Link, LinkError, ToAgent, ToServer};
use tokio::sync::{mpsc, oneshot};

use super::SessionError;
use super::ask::Asks;
use super::join::renew;
use crate::inbox::Inbound;
use crate::outbox::{AgentOrders, AgentOutbox, SignalOrder};
use crate::shared::Shared;

/// An agent that connects and sends nothing is disconnected after this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);

/// Answers that wait to be sent; when it is full, no further frames of the agent are read.
const MAX_ANSWERS: usize = 4;

/// Serves the link until it ends.
pub async fn serve(link: &Link, id: LinkId, shared: &Arc<Shared>) -> Result<(), SessionError> {
    let name = link.identity().name.clone();
    let opening = async {
        let (sender, mut receiver) = link.accept().await?.split();
        let hello = receive_hello(&mut receiver).await?;
        let report = receive_first_report(&mut receiver).await?;
        Ok::<_, SessionError>((sender, receiver, hello, report))
    };
    let opened = tokio::time::timeout(HELLO_TIMEOUT, opening).await;
    let (sender, mut receiver, hello, report) =
        opened.map_err(|_| SessionError::Violation("an agent must send its hello and a report at once"))??;

    let own_trouble = Mutex::new(hello.trouble.clone());
    let duplicates = shared.registry.duplicates(&name);
    if let Some(reason) = &duplicates {
        tracing::warn!(reason, "two agents connect as one node");
    }
    let is_duplicate = duplicates.is_some();
    let hello = AgentHello { trouble: duplicates.or(hello.trouble), ..hello };
    let (outbox, orders) = AgentOutbox::new(id);
    shared.inbox.put(Inbound::AgentConnected { name: name.clone(), hello, report, outbox }).await?;
    let (answers, answers_to_send) = mpsc::channel(MAX_ANSWERS);
    let write_half = WriteHalf { link: link.clone(), shared: Arc::clone(shared), sender, answers: answers_to_send };
    tokio::spawn(write_half.run(orders));
    let served = tokio::select! {
        served = read(&mut receiver, (link.identity(), link.serial()), id, (shared, &own_trouble), &answers) => served,
        Err(error) = wait_until_unique(&name, id, (shared, &own_trouble)), if is_duplicate => Err(error),
        // Further channels that nobody reads would only fill our memory.
        Ok(_) = link.accept() => Err(SessionError::Violation("an agent opens one channel")),
    };
    shared.inbox.put(Inbound::AgentGone { name, link: id }).await?;
    served
}

/// Waits until no other agent has connected as this node for a while, and then reports the agent's own trouble again.
async fn wait_until_unique(
    name: &str,
    link: LinkId,
    (shared, own_trouble): (&Arc<Shared>, &Mutex<Option<String>>),
) -> Result<(), SessionError> {
    while shared.registry.duplicates(name).is_some() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let reason = own_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
    shared.inbox.put(Inbound::AgentTroubled { name: name.to_owned(), link, reason }).await?;
    Ok(())
}

/// The time between two checks whether there are still two agents.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

async fn read(
    receiver: &mut Receiver,
    (who, serial): (&Identity, &str),
    id: LinkId,
    (shared, own_trouble): (&Arc<Shared>, &Mutex<Option<String>>),
    answers: &mpsc::Sender<ToAgent>,
) -> Result<(), SessionError> {
    let mut parts = ReportParts::new();
    let mut asks = Asks::new(shared, &who.name, id, answers.clone());
    while let Some(message) = receiver.recv_known::<ToServer>(&NEEDED).await? {
        match message {
            ToServer::Hello(_) => return Err(SessionError::Violation("a second hello")),
            ToServer::Report(part) => {
                let Some(report) = parts.push(part).map_err(LinkError::from)? else { continue };
                shared.inbox.put(Inbound::AgentReported { name: who.name.clone(), link: id, report }).await?;
            }
            ToServer::Renew { csr } => {
                let call = Call::Renew { csr, serial: draw_serial(), renews: Some(serial.to_owned()) };
                let answer = match renew(who, call, shared).await {
                    Ok(signed) => ToAgent::Renewed { chain: signed.chain, ca: signed.ca },
                    Err(refused) => ToAgent::NotRenewed(refused),
                };
                if answers.send(answer).await.is_err() {
                    // The write half has seen the end of the link first.
                    return Ok(());
                }
            }
            ToServer::Trouble { reason } => {
                let reason = reason.as_deref().map(readable);
                own_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&reason);
                let reason = shared.registry.duplicates(&who.name).or(reason);
                shared.inbox.put(Inbound::AgentTroubled { name: who.name.clone(), link: id, reason }).await?;
            }
            // Bounded, whatever the agent sends.
            ToServer::Serves { mut kinds } => {
                kinds.truncate(Kind::ALL.len());
                shared.registry.note_served(id, kinds);
            }
            ToServer::Ask { seq, job, run, ask } => asks.size(seq, job, run, ask).await,
            ToServer::Certify { seq, job, run, csr } => asks.certificate(seq, job, run, csr).await,
        }
    }
    Ok(())
}

/// Sanitises the reason of a node's trouble, which is shown to people.
fn readable(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect()
}

/// The most characters of the reason of a node's trouble.
const MAX_REASON_CHARS: usize = 500;

/// Unknown messages of a newer agent are skipped, but not unknown versions of these.
const NEEDED: [&str; 2] = ["Hello", "Report"];

/// Receives the next message; the end of the channel is an error here.
async fn next(receiver: &mut Receiver) -> Result<ToServer, LinkError> {
    receiver.recv_known(&NEEDED).await?.ok_or(LinkError::Silent)
}

async fn receive_hello(receiver: &mut Receiver) -> Result<AgentHello, SessionError> {
    match next(receiver).await? {
        ToServer::Hello(hello) => Ok(AgentHello { trouble: hello.trouble.as_deref().map(readable), ..hello }),
        ToServer::Report(_)
        | ToServer::Renew { .. }
        | ToServer::Ask { .. }
        | ToServer::Certify { .. }
        | ToServer::Serves { .. }
        | ToServer::Trouble { .. } => Err(SessionError::Violation("an agent says hello first")),
    }
}

async fn receive_first_report(receiver: &mut Receiver) -> Result<NodeReport, SessionError> {
    let mut parts = ReportParts::new();
    loop {
        match next(receiver).await? {
            ToServer::Report(part) => {
                if let Some(report) = parts.push(part).map_err(LinkError::from)? {
                    return Ok(report);
                }
            }
            ToServer::Hello(_)
            | ToServer::Renew { .. }
            | ToServer::Ask { .. }
            | ToServer::Certify { .. }
            | ToServer::Serves { .. }
            | ToServer::Trouble { .. } => {
                return Err(SessionError::Violation("an agent reports right after its hello"));
            }
        }
    }
}

/// The outgoing half of an agent's control channel.
struct WriteHalf {
    link: Link,
    shared: Arc<Shared>,
    sender: Sender,
    answers: mpsc::Receiver<ToAgent>,
}

impl WriteHalf {
    async fn run(mut self, orders: AgentOrders) {
        let AgentOrders { link: _, mut desired, mut signals, close } = orders;
        // A task of its own, because a close must not wait behind a frame that the agent does not read.
        tokio::spawn(close_when_told(self.link.clone(), close));
        let mut revocations = self.shared.registry.revocations();
        // A new link is sent all revocations so far.
        revocations.mark_changed();
        loop {
            // Nothing is sent within the select: a cancelled send would leave half a frame on the channel. The job that
            // a signal is for may stand in the desired state that has not been sent yet.
            let next = tokio::select! {
                biased;
                Ok(()) = desired.changed() => Next::Desire,
                Some(answer) = self.answers.recv() => Next::Send(answer),
                Some(order) = signals.recv() => Next::Signal(order),
                Ok(()) = revocations.changed() => Next::Revoked,
                _ = self.link.closed() => return,
            };
            let sent = match next {
                Next::Send(answer) => self.sender.send(&answer).await,
                Next::Signal(SignalOrder { job, run, signal }) => {
                    self.sender.send(&ToAgent::Signal { job, run, signal }).await
                }
                Next::Revoked => self.send_all(revoked_parts(&self.shared.registry.revoked())).await,
                Next::Desire => {
                    let parts = desire_parts(&desired.borrow_and_update());
                    self.send_all(parts).await
                }
            };
            if sent.is_err() {
                // The reading task sees the error, too, and ends the session.
                return;
            }
        }
    }

    async fn send_all(&mut self, parts: Vec<ToAgent>) -> Result<(), LinkError> {
        for part in parts {
            self.sender.send(&part).await?;
        }
        Ok(())
    }
}

/// The next message to the agent.
enum Next {
    Send(ToAgent),
    Signal(SignalOrder),
    Revoked,
    Desire,
}

async fn close_when_told(link: Link, close: oneshot::Receiver<String>) {
    tokio::select! {
        Ok(reason) = close => {
            tracing::info!(reason, "closing the link of an agent");
            link.close(&reason);
        }
        _ = link.closed() => {}
    }
}

fn revoked_parts(serials: &[String]) -> Vec<ToAgent> {
    let n_parts = serials.len().div_ceil(MAX_LINES);
    let chunks = serials.chunks(MAX_LINES).enumerate();
    chunks.map(|(idx, serials)| ToAgent::Revoked { serials: serials.to_vec(), last: idx + 1 == n_parts }).collect()
}
