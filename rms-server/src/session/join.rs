//! Redeems a token: signs a certificate for a peer that has none, if the core accepts the token.

use rms_api::Refused;
use std::sync::Arc;

use rms_api::Call;
use rms_model::{Identity, Role};
use rms_wire::JoinRequest;
use rms_wire::link::Joining;
use rms_wire::tls::{draw_serial, key_of_request};
use rms_wire::token::digest;

use crate::authority::{Signed, sign};
use crate::history::{Cause, HistoryError};
use crate::inbox::{Answered, Stopping, WatchError};
use crate::shared::Shared;
use rms_model::error::chain;

/// Answers one join attempt.
pub async fn join(joining: Joining, shared: Arc<Shared>) {
    let remote = joining.remote();
    let token = joining.request().token_id.chars().take(64).collect::<String>();
    match redeem(joining.request(), &shared).await {
        Ok((signed, cluster)) => joining.grant(signed.chain, signed.ca, cluster).await,
        Err(refused) => {
            tracing::warn!(%remote, token, reason = refused.message, "a join was refused");
            joining.refuse(refused).await;
        }
    }
}

async fn redeem(request: &JoinRequest, shared: &Shared) -> Result<(Signed, Option<String>), Refused> {
    if !shared.joins.allows() {
        return Err(Refused::new("busy", "too many peers are joining: try again in a moment"));
    }
    // Checked first: otherwise the token would be used up, and the certificate to be replaced would be revoked.
    let key = checked(&request.csr)?;
    let call = Call::Join {
        token_id: request.token_id.clone(),
        digest: digest(&request.secret),
        name: request.name.clone(),
        machine: request.machine.clone(),
        is_agent: request.is_agent,
        csr: request.csr.clone(),
        key,
        serial: draw_serial(),
        replaces: request.replaces.clone(),
    };
    // A joining peer has no identity yet, and the core ignores this one.
    let nobody = Identity { role: Role::User, name: String::new() };
    let answered = shared.inbox.call(nobody, call).await.map_err(stopping)?;
    let Signing { signed, serial, cluster } = certify(answered, shared)?;
    shared.registry.await_use(&serial);
    Ok((signed, cluster))
}

/// Signs a new certificate for the same identity.
pub async fn renew(who: &Identity, call: Call, shared: &Shared) -> Result<Signed, Refused> {
    if !shared.renewals.allows() {
        return Err(Refused::new("busy", "too many certificates are being renewed: try again in a moment"));
    }
    if let Call::Renew { csr, .. } = &call {
        checked(csr)?;
    }
    let answered = shared.inbox.call(who.clone(), call).await.map_err(stopping)?;
    Ok(certify(answered, shared)?.signed)
}

/// Checks a request before the core records it: nothing is recorded for one that cannot be signed.
fn checked(csr: &[u8]) -> Result<[u8; 32], Refused> {
    key_of_request(csr).map_err(|error| Refused::new("malformed", chain(&error)))
}

/// A certificate that was ordered and signed.
pub struct Signing {
    pub signed: Signed,
    pub serial: String,
    pub cluster: Option<String>,
}

/// Signs the certificate that the core has ordered; any other result is a refusal.
pub fn certify(answered: Answered, shared: &Shared) -> Result<Signing, Refused> {
    match answered {
        Answered::Sign(order) => match sign(&shared.authority, &order) {
            Ok(signed) => Ok(Signing { signed, serial: order.issued.serial, cluster: order.cluster }),
            Err(error) => Err(Refused::new("malformed", chain(&error))),
        },
        Answered::Refused(refusal) => Err(Refused::from(&refusal)),
        Answered::Failing(error) => Err(error.refused()),
        Answered::Done(_) => Err(Refused::new("internal", "no certificate was ordered")),
    }
}

pub fn watch_refused(error: &WatchError) -> Refused {
    match error {
        WatchError::Stopping(error) => stopping(*error),
        WatchError::Failing(error) => error.refused(),
    }
}

/// Converts an error of the history; the kind says whether a retry may help.
pub fn history_refused(error: &HistoryError) -> Refused {
    let kind = match error {
        HistoryError::NotWritten(failure) if failure.cause != Cause::Broken => "history_behind",
        _other => "history",
    };
    Refused::new(kind, chain(error))
}

pub fn stopping(stopping: Stopping) -> Refused {
    Refused::new("stopping", stopping)
}
