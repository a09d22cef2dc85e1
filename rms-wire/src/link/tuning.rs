//! The limits of every connection, all set: QUIC's own defaults bound neither memory nor silence.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;

use crate::tls::Credentials;

/// How patient a link is and what it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The side that connects sends a heartbeat when nothing else went out for so long. Its answer keeps the
    /// other side's watch still too, so a server with many agents has half the work.
    pub keep_alive: Duration,
    /// The link is dead when nothing came for so long.
    pub idle: Duration,
    /// A connection that is no link after so long is dropped.
    pub handshake: Duration,
    /// Channels that the peer may have open at once; it waits when it wants more.
    pub max_channels: u32,
    /// Fixes what QUIC draws at random, for deterministic tests.
    pub seed: Option<[u8; 32]>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            keep_alive: Duration::from_secs(3),
            idle: Duration::from_secs(12),
            handshake: Duration::from_secs(10),
            max_channels: 256,
            seed: None,
        }
    }
}

impl Tuning {
    /// Handshakes at work at once; the other new connections wait their turn.
    pub(super) const MAX_HANDSHAKES: usize = 256;
    /// How long a handshake may take when others wait for its place.
    pub(super) const LEAST_TURN: Duration = Duration::from_millis(500);
    /// From so many handshakes on, a newcomer must first prove that it receives at its address.
    pub(super) const PROVE_ADDRESS_FROM: usize = 64;
    /// New connections that wait their turn; more are refused, and back off.
    const MAX_INCOMING: usize = 4096;
    /// What one of them, and all of them, may send before their turn.
    const INCOMING_BYTES: u64 = 8 << 10;
    const INCOMING_BYTES_TOTAL: u64 = 16 << 20;
    /// Unread bytes of one channel.
    const CHANNEL_WINDOW: u32 = 128 << 10;
    /// What is taken for the round trip before one was measured. A first packet that was lost, or came before the
    /// server was up, is sent again after three of them.
    const INITIAL_RTT: Duration = Duration::from_millis(50);
    /// Bytes sent and not yet acknowledged.
    const SEND_WINDOW: u64 = 2 << 20;

    /// For the side that connects.
    pub(super) fn connecting(&self) -> Arc<TransportConfig> {
        let mut transport = self.transport();
        transport.keep_alive_interval(Some(self.keep_alive)).initial_rtt(Tuning::INITIAL_RTT);
        Arc::new(transport)
    }

    /// Unread bytes of one link. Channels that nobody reads fill only their own windows: together they must not use up
    /// the link's, or a slow follower of output would silence the reports beside it.
    pub(super) fn window(&self) -> VarInt {
        let window = u64::from(self.max_channels).saturating_mul(u64::from(Tuning::CHANNEL_WINDOW));
        VarInt::from_u64(window).unwrap_or(VarInt::MAX)
    }

    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(self.max_channels.into())
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .stream_receive_window(Tuning::CHANNEL_WINDOW.into())
            .receive_window(self.window())
            .send_window(Tuning::SEND_WINDOW)
            .datagram_receive_buffer_size(None)
            .crypto_buffer_size(16 << 10)
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok());
        transport
    }

    /// What follows from `secret` is the same after a restart: a server that was killed then tells the peers of its
    /// lost links so at their next packet, instead of leaving them to wait out the idle time. An endpoint that has none
    /// takes the credentials' key, which lasts as long as they do.
    pub(super) fn endpoint(&self, credentials: &Credentials, secret: Option<[u8; 32]>) -> EndpointConfig {
        let secret = match &secret {
            Some(secret) => hmac::Key::new(hmac::HMAC_SHA256, secret),
            None => hmac::Key::new(hmac::HMAC_SHA256, credentials.key().secret_der()),
        };
        let derived = |purpose: &[u8]| hmac::sign(&secret, purpose);
        let reset_key = hmac::Key::new(hmac::HMAC_SHA256, derived(b"limber stateless reset").as_ref());
        let ids = derived(b"limber connection ids");
        let ids = u64::from_le_bytes(*ids.as_ref().first_chunk().expect("SHA-256 is 32 bytes long"));
        let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
        endpoint
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)))
            // A thousand peers ask at once after a restart. A reset is smaller than what asks for it, so none is withheld.
            .min_reset_interval(Duration::ZERO)
            .rng_seed(self.seed);
        endpoint
    }

    pub(super) fn limit_incoming(&self, server: &mut ServerConfig) {
        server
            .max_incoming(Tuning::MAX_INCOMING)
            .incoming_buffer_size(Tuning::INCOMING_BYTES)
            .incoming_buffer_size_total(Tuning::INCOMING_BYTES_TOTAL)
            .migration(true)
            .transport_config(Arc::new(self.transport()));
    }
}
