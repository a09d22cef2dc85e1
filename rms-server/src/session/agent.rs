//! An agent's link: its reports go to the driver, the newest desired state goes to it.

use std::sync::Arc;
use std::time::Duration;

use rms_core::Call;
use rms_core::desired::{Desired, NodeReport};
use rms_core::event::AgentHello;
use rms_model::Identity;
use rms_wire::link::Receiver;
use rms_wire::tls::draw_serial;
use rms_wire::{Link, LinkError, ToAgent, ToServer};
use tokio::sync::mpsc;

use super::SessionError;
use super::join::{certify, stopping};
use crate::inbox::Inbound;
use crate::outbox::{AgentOrders, AgentOutbox, LinkId};
use crate::shared::Shared;

/// An agent that has come and says nothing is let go after this.
const PATIENCE: Duration = Duration::from_secs(15);

/// Renewals that wait to be sent; the agent's next one waits for them.
const MAX_ANSWERS: usize = 4;

/// Until the link ends.
pub async fn serve(link: &Link, id: LinkId, shared: &Arc<Shared>) -> Result<(), SessionError> {
    let name = link.identity().name.clone();
    let opening = async {
        let (sender, mut receiver) = link.accept().await?.split();
        let hello = receive_hello(&mut receiver).await?;
        let report = receive_first_report(&mut receiver).await?;
        Ok::<_, SessionError>((sender, receiver, hello, report))
    };
    let opened = tokio::time::timeout(PATIENCE, opening).await;
    let (sender, mut receiver, hello, report) =
        opened.map_err(|_| SessionError::Violation("an agent says hello and reports at once"))??;

    let (outbox, orders) = AgentOutbox::new(id);
    shared.inbox.put(Inbound::AgentConnected { name: name.clone(), hello, report, outbox }).await?;
    let (answers, answers_to_send) = mpsc::channel(MAX_ANSWERS);
    let writing = Writing { link: link.clone(), shared: Arc::clone(shared), sender, answers: answers_to_send };
    tokio::spawn(writing.run(orders));
    let served = read(&mut receiver, link.identity(), id, shared, &answers).await;
    shared.inbox.put(Inbound::AgentGone { name, link: id }).await?;
    served
}

async fn read(
    receiver: &mut Receiver,
    who: &Identity,
    id: LinkId,
    shared: &Shared,
    answers: &mpsc::Sender<ToAgent>,
) -> Result<(), SessionError> {
    let mut parts = Parts::default();
    while let Some(message) = receiver.recv::<ToServer>().await? {
        match message {
            ToServer::Hello(_) => return Err(SessionError::Violation("a second hello")),
            ToServer::Report(part) => {
                let Some(report) = parts.add(part)? else { continue };
                shared.inbox.put(Inbound::AgentReported { name: who.name.clone(), link: id, report }).await?;
            }
            ToServer::Renew { csr } => {
                let call = Call::Renew { csr, serial: draw_serial() };
                let answered = shared.inbox.call(who.clone(), call).await.map_err(stopping);
                let answer = match answered.and_then(|answered| certify(answered, shared)) {
                    Ok(signing) => ToAgent::Renewed { chain: signing.signed.chain, ca: signing.signed.ca },
                    Err(refused) => ToAgent::NotRenewed(refused),
                };
                if answers.send(answer).await.is_err() {
                    // The writer has seen the end of the link first.
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
