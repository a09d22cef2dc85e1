//! The limits of every connection, all set explicitly: QUIC's own defaults bound neither memory nor silence.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;
use rms_model::{Identity, Role};

use crate::tls::Credentials;

/// The timeouts and limits of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The side that connects sends a heartbeat when it has sent nothing else for this long. The answer also resets the
    /// other side's idle timer, so a server with many agents has half the work.
    pub keep_alive: Duration,
    /// A link is dead when nothing was received for this long.
    pub idle: Duration,
    /// A connection that has not become a link after this time is dropped.
    pub handshake: Duration,
    /// A channel is closed if one of its frames has not fully arrived, or was not read, this long after it began.
    pub frame: Duration,
    /// Channels that the peer may have open at once; it waits for more.
    pub max_channels: u32,
    /// Replaces QUIC's random numbers by a fixed seed, for deterministic tests.
    pub seed: Option<[u8; 32]>,
}

/// What a link may use of this endpoint's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Channels that the peer may have open at once.
    pub channels: VarInt,
    /// Bytes that the peer has sent and this side has not read.
    pub window: VarInt,
    /// Bytes that this side has sent and the peer has not acknowledged.
    pub unacknowledged: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            keep_alive: Duration::from_secs(3),
            idle: Duration::from_secs(12),
            handshake: Duration::from_secs(10),
            frame: Duration::from_secs(20),
            max_channels: 256,
            seed: None,
        }
    }
}

impl Tuning {
    /// Returns the tuning for links whose end must be noticed at once: a lost launcher cannot be notified of a start.
    /// Both sides use the shorter idle time of the two.
    pub fn attentive() -> Tuning {
        Tuning { keep_alive: Duration::from_millis(700), idle: Duration::from_millis(2400), ..Tuning::default() }
    }

    /// Returns the tuning of an agent: the server opens a channel on its link for each follower of a job on the node.
    pub fn of_agent() -> Tuning {
        Tuning { max_channels: Tuning::AGENT_CHANNELS, ..Tuning::default() }
    }

    const AGENT_CHANNELS: u32 = 512;

    /// Handshakes in progress at once; each takes some 20 KiB.
    pub(super) const MAX_HALF_OPEN: usize = 512;
    /// Peers without a certificate that have sent nothing yet, and those that await the answer to their token.
    pub(super) const MAX_STRANGERS: usize = 128;
    /// Peers with a certificate that have sent nothing yet.
    pub(super) const MAX_SILENT_KNOWN: usize = 512;
    /// Connections that are not links, including those that have ended and whose state QUIC still keeps.
    pub(super) const MAX_UNSETTLED: usize = 2560;
    /// Over the local socket: peers that have not proven their identity, links, and channels of each at once. Each is
    /// an open file, of which an ordinary process may have 1024.
    pub(super) const MAX_UNPROVEN_LOCAL: usize = 64;
    pub(super) const MAX_LOCAL: usize = 64;
    pub(super) const LOCAL_CHANNELS: usize = 8;
    /// How long a handshake may take, and how long a peer without a certificate may take to send its request.
    pub(super) const HALF_OPEN: Duration = Duration::from_secs(5);
    pub(super) const STRANGER: Duration = Duration::from_secs(3);
    /// From this many connections without a proven certificate on, a new one must first prove that it receives at its
    /// address.
    pub(super) const PROVE_ADDRESS_FROM: usize = 64;
    /// First packets that were not processed yet; processing takes microseconds.
    const MAX_INCOMING: usize = 1024;
    /// What one of them, and all of them, may send until they are processed.
    const INCOMING_BYTES: u64 = 8 << 10;
    const INCOMING_BYTES_TOTAL: u64 = 4 << 20;
    /// Channels, and bytes that were not read or acknowledged, of a connection that is not a link yet.
    const ENTRY_CHANNELS: u32 = 2;
    const ENTRY_WINDOW: u32 = 128 << 10;
    const ENTRY_UNACKNOWLEDGED: u64 = 64 << 10;
    /// Large frames of one peer, over all of its links, in KiB. A user has a share, and the user's jobs have another:
    /// together with everything else that both hold, the sum must stay below 64 MiB.
    const LARGE_FRAMES_KIB: u32 = 24 << 10;
    const LARGE_FRAMES_OF_USERS_KIB: u32 = 12 << 10;
    const LARGE_FRAMES_OF_JOBS_KIB: u32 = 6 << 10;
    /// A frame may take one more second for each of this many bytes.
    const BYTES_A_SECOND: usize = 128 << 10;
    /// Unread bytes of one channel, and of one on an accepted link: a server has hundreds of channels for each
    /// follower.
    const CHANNEL_WINDOW: u32 = 128 << 10;
    const ACCEPTED_WINDOW: u32 = 32 << 10;
    /// The round-trip time assumed before one is measured. A first packet that was lost, or arrived before the server
    /// was up, is retransmitted after three of them.
    const INITIAL_RTT: Duration = Duration::from_millis(50);
    /// Bytes sent and not yet acknowledged.
    const SEND_WINDOW: u64 = 2 << 20;

    /// Returns the transport configuration of the side that connects.
    pub(super) fn connecting(&self) -> Arc<TransportConfig> {
        let mut transport = self.transport(self.max_channels, self.window(), Tuning::SEND_WINDOW);
        transport.keep_alive_interval(Some(self.keep_alive)).initial_rtt(Tuning::INITIAL_RTT);
        Arc::new(transport)
    }

    /// Returns the limit of unread bytes of one link. Channels that nobody reads fill only their own windows: together
    /// they must not use up the link's window, or a slow follower of output would block the other channels' reports.
    pub(super) fn window(&self) -> VarInt {
        let window = u64::from(self.max_channels).saturating_mul(u64::from(Tuning::CHANNEL_WINDOW));
        VarInt::from_u64(window).unwrap_or(VarInt::MAX)
    }

    /// Returns the same for the link of an agent, over the channels of its followers.
    fn of_agents_output() -> u32 {
        Tuning::AGENT_CHANNELS * Tuning::ACCEPTED_WINDOW
    }

    /// Returns the initial window of an accepted connection.
    pub(super) fn entry_window(&self) -> VarInt {
        Tuning::ENTRY_WINDOW.into()
    }

    /// Returns how many KiB of large frames all links of an identity may hold.
    pub(super) fn large_frames_kib(role: Role) -> u32 {
        match role {
            Role::User => Tuning::LARGE_FRAMES_OF_USERS_KIB,
            Role::Job => Tuning::LARGE_FRAMES_OF_JOBS_KIB,
            Role::Admin | Role::Agent | Role::Server => Tuning::LARGE_FRAMES_KIB,
        }
    }

    /// Returns what the `n_links`th link of an identity may hold. An agent has one link, on which the output of its
    /// jobs waits for followers. Others have a few links for programs that do much, and many for commands. Jobs have
    /// one each, and an owner may have a thousand jobs.
    pub(super) fn allowance(&self, who: &Identity, n_links: usize) -> Allowance {
        let (channels, window, unacknowledged) = match (who.role, n_links) {
            (Role::Agent, ..=2) => (self.max_channels, Tuning::of_agents_output().into(), Tuning::SEND_WINDOW),
            (Role::Job, ..=16) => (self.max_channels / 4, (128_u32 << 10).into(), Tuning::SEND_WINDOW / 16),
            (Role::Job, ..=64) => (self.max_channels / 16, (32_u32 << 10).into(), Tuning::SEND_WINDOW / 64),
            (Role::Job, _) => (self.max_channels / 16, (16_u32 << 10).into(), Tuning::SEND_WINDOW / 128),
            (_, ..=2) => (self.max_channels, (2_u32 << 20).into(), Tuning::SEND_WINDOW / 2),
            (_, ..=16) => (self.max_channels / 4, (512_u32 << 10).into(), Tuning::SEND_WINDOW / 8),
            (_, _) => (self.max_channels / 16, (32_u32 << 10).into(), Tuning::SEND_WINDOW / 64),
        };
        Allowance { channels: channels.max(Tuning::ENTRY_CHANNELS).into(), window, unacknowledged }
    }

    /// Returns how long a frame of `n_bytes` may take, where `least` is the time for short frames.
    pub(super) fn frame_patience(least: Duration, n_bytes: usize) -> Duration {
        least + Duration::from_secs((n_bytes / Tuning::BYTES_A_SECOND) as u64)
    }

    fn transport(&self, channels: u32, window: VarInt, unacknowledged: u64) -> TransportConfig {
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(channels.into())
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .stream_receive_window(Tuning::CHANNEL_WINDOW.into())
            .receive_window(window)
            .send_window(unacknowledged)
            .datagram_receive_buffer_size(None)
            .crypto_buffer_size(16 << 10)
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok());
        transport
    }

    /// Builds the configuration of an endpoint. What is derived from `secret` is the same after a restart: a server
    /// that was killed then tells its peers at their next packet that their links are lost, instead of letting them
    /// wait out the idle time. An endpoint without a secret uses the credentials' key, which lasts as long as they do.
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
            // A thousand peers ask at once after a restart. A reset is smaller than the packet that triggers it, so
            // none is withheld.
            .min_reset_interval(Duration::ZERO)
            .rng_seed(self.seed);
        endpoint
    }

    pub(super) fn limit_incoming(&self, server: &mut ServerConfig) {
        let mut entry = self.transport(Tuning::ENTRY_CHANNELS, self.entry_window(), Tuning::ENTRY_UNACKNOWLEDGED);
        // The state of a closed connection is kept for nine round-trip times.
        entry.initial_rtt(Tuning::INITIAL_RTT).stream_receive_window(Tuning::ACCEPTED_WINDOW.into());
        server
            .max_incoming(Tuning::MAX_INCOMING)
            .incoming_buffer_size(Tuning::INCOMING_BYTES)
            .incoming_buffer_size_total(Tuning::INCOMING_BYTES_TOTAL)
            .migration(true)
            .transport_config(Arc::new(entry));
    }
}
