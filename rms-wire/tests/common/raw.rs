//! A QUIC client that follows no rules: any certificate or none, any protocol, any bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use rms_wire::Credentials;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::LOOPBACK;

pub struct Raw {
    endpoint: Endpoint,
}

impl Raw {
    pub fn new() -> Raw {
        Raw { endpoint: Endpoint::client(LOOPBACK).expect("a free port") }
    }

    /// Connects with the key and certificate in `saved`, if any, and trusts any server.
    pub async fn connect(
        &self,
        address: SocketAddr,
        alpn: &[u8],
        saved: Option<&Credentials>,
    ) -> Result<Connection, ConnectionError> {
        let provider = Arc::new(default_provider());
        let verifier = Arc::new(TrustAnybody(Arc::clone(&provider)));
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut tls = match saved {
            None => builder.with_no_client_auth(),
            Some(credentials) => {
                let dir = tempfile::tempdir().expect("a temporary directory");
                credentials.save(dir.path()).expect("saved");
                let chain: Vec<_> = CertificateDer::pem_file_iter(dir.path().join("cert.pem"))
                    .expect("a file")
                    .map(|certificate| certificate.expect("a certificate"))
                    .collect();
                let key = PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a usable certificate")
            }
        };
        tls.alpn_protocols = vec![alpn.to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a cipher suite")));
        self.endpoint.connect_with(config, address, "limber").expect("a valid target").await
    }
}

#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
