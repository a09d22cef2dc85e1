//! Join tokens as text: an id, a secret, the CA they pin and the address at which they are redeemed.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use rand::Rng as _;
use rms_model::identity::check_name;
use thiserror::Error;

/// `lmb1.<id>.<secret>.<ca fingerprint>@host:port`. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    id: String,
    secret: [u8; SECRET_BYTES],
    fingerprint: String,
    address: String,
}

/// Why a text is not a token; the error never repeats the secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "this is not a join token: {problem}; copy the whole line that 'rms token create' printed (lmb1.….….…@host:port)"
)]
pub struct TokenError {
    problem: &'static str,
}

impl TokenText {
    /// Draws a new token for the CA with this fingerprint, to be redeemed at `host:port`.
    ///
    /// # Errors
    /// The fingerprint or the address has another form.
    pub fn draw(ca_fingerprint: &str, address: &str) -> Result<TokenText, TokenError> {
        let mut id = [0_u8; 5];
        let mut secret = [0_u8; SECRET_BYTES];
        let mut rng = rand::rng();
        rng.fill_bytes(&mut id);
        rng.fill_bytes(&mut secret);
        check_fingerprint(ca_fingerprint)?;
        check_address(address)?;
        let id = BASE32_NOPAD.encode(&id).to_lowercase();
        Ok(TokenText { id, secret, fingerprint: ca_fingerprint.to_owned(), address: address.to_owned() })
    }

    /// Returns the public part, by which lists and logs name the token.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the SHA-256 of the secret, which is all that the server stores.
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.secret)
    }

    /// Returns the SHA-256 of the CA's certificate, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the address at which to redeem it, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

/// Returns the SHA-256 of a presented secret, which the server compares with the stored one.
pub fn digest(secret: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret);
    digest.as_ref().try_into().expect("SHA-256 is 32 bytes long")
}

impl fmt::Display for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = BASE32_NOPAD.encode(&self.secret).to_lowercase();
        write!(f, "{PREFIX}.{}.{secret}.{}@{}", self.id, self.fingerprint, self.address)
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenText").field("id", &self.id).field("address", &self.address).finish_non_exhaustive()
    }
}

impl FromStr for TokenText {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<TokenText, TokenError> {
        let fail = |problem| TokenError { problem };
        let (token, address) =
            text.trim().split_once('@').ok_or(fail("there is no '@' before the server's address"))?;
        check_address(address)?;
        let parts: Vec<&str> = token.split('.').collect();
        let [prefix, id, secret, fingerprint] = parts.as_slice() else {
            return Err(fail("it needs four parts with dots between them"));
        };
        if *prefix != PREFIX {
            return Err(fail("it does not begin with 'lmb1'"));
        }
        check_name(id).map_err(|_| fail("its second part, the id, is unusable"))?;
        let is_lower = secret.bytes().all(|b| !b.is_ascii_uppercase());
        let secret = BASE32_NOPAD.decode(secret.to_uppercase().as_bytes()).ok().filter(|_| is_lower);
        let secret = secret.and_then(|secret| secret.try_into().ok());
        let secret = secret.ok_or(fail("its third part, the secret, is damaged"))?;
        check_fingerprint(fingerprint)?;
        Ok(TokenText {
            id: (*id).to_owned(),
            secret,
            fingerprint: (*fingerprint).to_owned(),
            address: address.to_owned(),
        })
    }
}

fn check_fingerprint(text: &str) -> Result<(), TokenError> {
    let is_sha256 = HEXLOWER.decode(text.as_bytes()).is_ok_and(|bytes| bytes.len() == 32);
    if is_sha256 { Ok(()) } else { Err(TokenError { problem: "its fourth part, the CA's fingerprint, is damaged" }) }
}

fn check_address(address: &str) -> Result<(), TokenError> {
    if is_address(address) { Ok(()) } else { Err(TokenError { problem: "what follows '@' is not host:port" }) }
}

/// Returns whether a token can hold the text as the server's address, `host:port`.
pub fn is_address(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]%".contains(&b));
    !host.is_empty() && is_plain && port.parse::<u16>().is_ok_and(|port| port > 0)
}

const PREFIX: &str = "lmb1";
/// 128 bits, which cannot be guessed.
const SECRET_BYTES: usize = 16;
