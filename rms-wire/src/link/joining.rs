//! The connecting side of a join: one connection, one request, one answer.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use quinn::{EndpointConfig, Runtime as _, TokioRuntime};
use tokio::net::UdpSocket;

use super::channel::Channel;
use super::connection::Connection;
use super::endpoint::dial_with;
use super::error::{CODE_CLOSED, EndpointError, LinkError};
use super::peering::Wire;
use super::socket;
use super::tuning::Tuning;
use crate::hello::{JoinAnswer, JoinRequest};
use crate::tls::join_config;

/// A connection to a server whose CA matches the pinned fingerprint.
#[derive(Debug)]
pub(crate) struct JoinChannel {
    quinn: quinn::Endpoint,
    wire: Wire,
    channel: Channel,
    tuning: Tuning,
}

impl JoinChannel {
    pub async fn open(address: SocketAddr, fingerprint: &str) -> Result<JoinChannel, LinkError> {
        let tuning = Tuning::default();
        let listen: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let bound = socket::bind(listen).and_then(|socket| TokioRuntime.wrap_udp_socket(socket));
        let endpoint = bound.and_then(|socket| {
            quinn::Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
        });
        let quinn = endpoint.map_err(|source| EndpointError::Bind { address: listen, source })?;
        let tls = join_config(fingerprint).map_err(EndpointError::from)?;
        let dial = async {
            let connection = dial_with(&quinn, &tuning.connecting(), tls, address).await?;
            let wire = Wire::new(Connection::Quic(connection), tuning.window(), tuning.frame);
            let streams = wire.connection().open_bi().await.map_err(|error| wire.ended(&error))?;
            Ok((wire.clone(), Channel::new(wire, streams)))
        };
        let (wire, channel): (Wire, Channel) = tokio::select! {
            dialled = with_timeout(&tuning, dial) => dialled.map_err(|error| match error {
                LinkError::TooSlow { secs } => LinkError::NoAnswer { secs },
                error => error,
            })?,
            () = port_unreachable(address) => return Err(LinkError::Refused),
        };
        Ok(JoinChannel { quinn, wire, channel, tuning })
    }

    pub async fn ask(&mut self, request: &JoinRequest) -> Result<JoinAnswer, LinkError> {
        let asked = async {
            self.channel.send(request).await?;
            self.channel.finish();
            self.channel.recv().await?.ok_or(LinkError::Silent)
        };
        with_timeout(&self.tuning, asked).await
    }

    /// Closes the connection, which tells the server that the answer has arrived.
    pub async fn close(self) {
        self.wire.close(CODE_CLOSED, "joined");
        self.quinn.wait_idle().await;
    }
}

/// Returns when the node answers that the port is unreachable, which quinn does not report; otherwise never returns.
pub async fn port_unreachable(address: SocketAddr) {
    let probe = async {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        // No QUIC packet is this short: a listener drops it.
        socket.send(&[0]).await?;
        socket.recv(&mut [0; 1]).await
    };
    match probe.await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Ok(_) | Err(_) => std::future::pending().await,
    }
}

async fn with_timeout<T>(tuning: &Tuning, work: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    let done = tokio::time::timeout(tuning.handshake, work).await;
    done.unwrap_or(Err(LinkError::TooSlow { secs: tuning.handshake.as_secs() }))
}
