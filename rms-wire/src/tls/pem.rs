//! Certificates in PEM.

use std::fmt::Write as _;

use data_encoding::BASE64;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{Error, PemObject as _};

/// Writes certificates one after the other.
pub fn write(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let base64 = BASE64.encode(certificate);
        let mut rest = base64.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(64));
            writeln!(text, "{line}").expect("writing to a string cannot fail");
            rest = tail;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// # Errors
/// The text is not PEM, or contains no certificate.
pub fn read(text: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() { Err(Error::NoItemsFound) } else { Ok(certificates) }
}
