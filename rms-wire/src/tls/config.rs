//! TLS configurations with explicit settings: 1.3 only, no early data, no tickets.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::rustls::NoInitialCipherSuite;
use ring::signature::{ED25519, UnparsedPublicKey};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier as _;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_bytes::ByteBuf;
use thiserror::Error;

use super::credentials::Credentials;
use super::peer::{Peer, public_key};
use super::revoked::Revoked;
use super::verifier::{ClientVerifier, Expect, Membership, ServerVerifier, Trust};
use super::{ALPN, ALPN_JOIN};

/// Why credentials yield no TLS configuration.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("TLS cannot be set up with these credentials")]
    Tls(#[from] rustls::Error),
    #[error("TLS cannot be set up with this CA")]
    Verifier(#[from] VerifierBuilderError),
    #[error("TLS has no cipher suite for QUIC")]
    Suite(#[from] NoInitialCipherSuite),
}

/// Builds the configuration of the side that accepts. With `join`, it also offers the join protocol, which needs no
/// certificate; a peer that uses the ordinary protocol without a certificate is then refused right after the handshake.
pub fn server_config(credentials: &Credentials, revoked: &Revoked, join: bool) -> Result<QuicServerConfig, TlsError> {
    let verifier = client_verifier(credentials, revoked, join)?;
    // The CA is sent along, so that a joining peer can compare it with its token.
    let mut certificates = credentials.chain().to_vec();
    certificates.extend(credentials.cas().iter().cloned());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(certificates, credentials.key())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    if join {
        config.alpn_protocols.push(ALPN_JOIN.to_vec());
    }
    // A resumed session would not be verified again, and early data can be replayed.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    assert_eq!(config.max_early_data_size, 0, "early data can be replayed");
    Ok(QuicServerConfig::try_from(config)?)
}

/// Why a peer has not proven the identity in a certificate.
#[derive(Debug, Error)]
pub enum ProofError {
    #[error(transparent)]
    Setup(#[from] TlsError),
    #[error("the certificate is not accepted: {0}")]
    Certificate(rustls::Error),
    #[error("the signature is not by the key of the certificate, for this connection and user")]
    Signature,
}

/// Returns the signer of a message, by a certificate that is verified as in TLS.
pub fn proven(
    credentials: &Credentials,
    revoked: &Revoked,
    chain: &[ByteBuf],
    message: &[u8],
    signature: &[u8],
) -> Result<Peer, ProofError> {
    let verifier = client_verifier(credentials, revoked, false)?;
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let (own, intermediates) = chain.split_first().ok_or(ProofError::Signature)?;
    verifier.verify_client_cert(own, intermediates, UnixTime::now()).map_err(ProofError::Certificate)?;
    let key = public_key(own).map_err(|_| ProofError::Signature)?;
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).map_err(|_| ProofError::Signature)?;
    Peer::of(own).map_err(|_| ProofError::Signature)
}

fn client_verifier(credentials: &Credentials, revoked: &Revoked, join: bool) -> Result<ClientVerifier, TlsError> {
    let mut chain = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(credentials)?), provider())
        .clear_root_hint_subjects();
    if join {
        chain = chain.allow_unauthenticated();
    }
    Ok(ClientVerifier { chain: chain.build()?, membership: membership(credentials, revoked) })
}

/// Builds the configuration of the side that connects.
pub fn client_config(
    credentials: &Credentials,
    revoked: &Revoked,
    expect: &Expect,
) -> Result<QuicClientConfig, TlsError> {
    let trust = Trust::Ca { roots: roots(credentials)?, membership: membership(credentials, revoked) };
    let config = verifying(trust, expect)?.with_client_auth_cert(credentials.chain().to_vec(), credentials.key())?;
    finish(config, ALPN)
}

/// Builds the configuration for joining: the server proves itself by the CA that the token pins; this side proves
/// nothing.
pub fn join_config(fingerprint: &str) -> Result<QuicClientConfig, TlsError> {
    let config = verifying(Trust::Fingerprint(fingerprint.to_owned()), &Expect::server())?.with_no_client_auth();
    finish(config, ALPN_JOIN)
}

type Verifying = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn verifying(trust: Trust, expect: &Expect) -> Result<Verifying, TlsError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let verifier = ServerVerifier { trust, expect: expect.clone(), algorithms };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

fn finish(mut config: ClientConfig, alpn: &[u8]) -> Result<QuicClientConfig, TlsError> {
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    assert!(!config.enable_early_data, "early data can be replayed");
    Ok(QuicClientConfig::try_from(config)?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(credentials: &Credentials) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    credentials.cas().iter().try_for_each(|ca| roots.add(ca.clone()))?;
    Ok(roots)
}

fn membership(credentials: &Credentials, revoked: &Revoked) -> Membership {
    Membership { deployment: credentials.deployment().to_owned(), revoked: revoked.clone() }
}
