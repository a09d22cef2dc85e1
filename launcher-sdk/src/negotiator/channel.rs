//! One connection of the negotiator to the server, from connecting to its end; a new connection replaces it.

use rms_api::Refused;
use std::time::Duration;

use rms_api::negotiate::{Attached, Declared, Manner, NegotiatorAnswer, NegotiatorCall};
use rms_wire::link::resolve;
use rms_wire::parts::Malformed;
use rms_wire::{ClientRequest, Endpoint, Expect, Link, LinkError, NegotiatorSays, NegotiatorTold, Receiver, Sender};

use super::environment::JobEnvironment;

/// A channel that negotiates for the application.
#[derive(Debug)]
pub(super) struct Channel {
    /// Keeps the link alive.
    _link: Link,
    sender: Sender,
    receiver: Receiver,
    last_seq: u64,
    /// The server does not read any more. Messages that it sent earlier must still be read: if another process has
    /// replaced this negotiator, it must not reconnect.
    send_failed: bool,
}

/// Why connecting and attaching failed.
#[derive(Debug)]
pub(super) enum AttachError {
    Link(LinkError),
    Refused(Refused),
}

impl From<LinkError> for AttachError {
    fn from(error: LinkError) -> AttachError {
        AttachError::Link(error)
    }
}

impl From<Malformed> for AttachError {
    fn from(malformed: Malformed) -> AttachError {
        AttachError::Link(LinkError::Malformed(malformed))
    }
}

impl Channel {
    /// Connects and attaches, within this time and [`ATTACH_WITHIN`]. The credentials are reloaded: the agent replaces
    /// them long before they expire.
    pub async fn attach(
        environment: JobEnvironment,
        endpoint: Endpoint,
        within: Duration,
    ) -> Result<(Channel, Box<Attached>), AttachError> {
        if let Ok(fresh) = environment.load_credentials()
            && fresh.serial() != endpoint.credentials().serial()
        {
            // If they cannot be used, the old ones may still be valid.
            let _ = endpoint.rotate(&fresh);
        }
        let (attaching, within) = (Channel::attach_at(&environment, &endpoint), within.min(ATTACH_WITHIN));
        let attached = tokio::time::timeout(within, attaching).await;
        attached.unwrap_or(Err(AttachError::Link(LinkError::NoAnswer { secs: within.as_secs() })))
    }

    async fn attach_at(
        environment: &JobEnvironment,
        endpoint: &Endpoint,
    ) -> Result<(Channel, Box<Attached>), AttachError> {
        let link = endpoint.connect(resolve(&environment.server).await?, Expect::server()).await?;
        let mut channel = link.open().await?;
        channel.send(&ClientRequest::Negotiator).await?;
        let (sender, receiver) = channel.split();
        let mut channel = Channel { _link: link, sender, receiver, last_seq: 0, send_failed: false };
        let seq = channel
            .call(NegotiatorCall::Attach(Manner {
                keeps: environment.keeps.clone(),
                survives_loss: environment.survives_loss,
            }))
            .await?;
        match channel.receiver.recv_required::<NegotiatorTold>().await? {
            NegotiatorTold::Answer { seq: answered, answer } if answered == seq => match answer {
                Ok(NegotiatorAnswer::Attached(attached)) => Ok((channel, attached)),
                Ok(NegotiatorAnswer::Done) => Err(AttachError::Link(LinkError::Silent)),
                Err(refused) => Err(AttachError::Refused(refused)),
            },
            NegotiatorTold::Answer { .. } | NegotiatorTold::Notice(_) => Err(AttachError::Link(LinkError::Silent)),
        }
    }

    /// Sends a message of a negotiation; only the server's next message of that negotiation answers it.
    pub async fn say(&mut self, message: &negotiation::Message) -> Result<(), LinkError> {
        self.call(NegotiatorCall::Say(Box::new(message.clone()))).await.map(drop)
    }

    /// Declares the limits; returns the sequence number of the answer.
    pub async fn declare(&mut self, declared: &Declared) -> Result<u64, LinkError> {
        self.call(NegotiatorCall::Declare(declared.clone())).await
    }

    /// Names the nodes that are freed at the next stage; returns the sequence number of the answer.
    pub async fn free(&mut self, nodes: &[String]) -> Result<u64, LinkError> {
        self.call(NegotiatorCall::Free(nodes.to_vec())).await
    }

    async fn call(&mut self, call: NegotiatorCall) -> Result<u64, LinkError> {
        self.last_seq += 1;
        let says = NegotiatorSays { seq: self.last_seq, call };
        // Only the time-out cancels this, after which the channel is closed: it would be left with half a frame.
        if !self.send_failed {
            let sent = tokio::time::timeout(SEND_WITHIN, self.sender.send(&says)).await;
            let sent = sent.map_err(|_| LinkError::TooSlow { secs: SEND_WITHIN.as_secs() })?;
            // If the channel or link has ended, the receive error says why.
            self.send_failed = sent.is_err();
        }
        Ok(self.last_seq)
    }

    /// Receives the server's next message. Cancel safe.
    pub async fn next(&mut self) -> Result<NegotiatorTold, LinkError> {
        self.receiver.recv::<NegotiatorTold>().await?.ok_or(LinkError::ChannelReset)
    }
}

/// The limit for attaching; a handshake over a slow wide-area network and a server with a slow disk take less.
pub(super) const ATTACH_WITHIN: Duration = Duration::from_secs(10);
/// A server that reads nothing for this long counts as lost.
const SEND_WITHIN: Duration = Duration::from_secs(10);
