//! Finds who has not renewed since the last step of a change to another certificate authority.

use std::collections::BTreeMap;

use rms_model::{Identity, Role, Time};
use rms_wire::tls::{Authority, AuthorityError, Credentials, CredentialsError, Rotation};
use thiserror::Error;

use crate::authority::{issued_at, server_identity};
use crate::clock::Clock;
use crate::dir::DataDir;
use crate::journal::Past;
use crate::open_error::OpenError;

/// Why it cannot be found who has not renewed.
#[derive(Debug, Error)]
pub enum BehindError {
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error("the authority cannot be used")]
    Authority(#[from] AuthorityError),
    #[error("the server's certificate cannot be used")]
    Credentials(#[from] CredentialsError),
}

/// Returns the identities whose newest valid certificate is older than the server's restart after the last step: they
/// do not trust the new CA yet, or were signed by the old one. Returns only the server, if it was not restarted since
/// the step: until then a renewal changes nothing. Returns nobody if no change is under way.
///
/// # Errors
/// The journal, the authority or a certificate cannot be read.
pub fn behind(dir: &DataDir) -> Result<Vec<Identity>, BehindError> {
    match Authority::rotation(&dir.authority()) {
        Rotation::None => return Ok(Vec::new()),
        Rotation::Begun | Rotation::Switched => {}
    }
    let own = Credentials::load(&dir.credentials())?;
    if own.authorities() != Authority::load(&dir.authority())?.authorities() {
        return Ok(vec![server_identity()]);
    }
    // A server that starts with other CAs than before issues itself a certificate first.
    let (since, now) = (issued_at(&own), Clock::start().now());
    let mut newest: BTreeMap<Identity, Time> = BTreeMap::new();
    for issued in Past::state(&dir.journal())?.certificates() {
        if issued.revoked.is_none() && issued.expires > now {
            let known = newest.entry(issued.identity.clone()).or_insert(issued.issued);
            *known = issued.issued.max(*known);
        }
    }
    Ok(newest.into_iter().filter(|(_, issued)| *issued < since).map(|(identity, _)| identity).collect())
}

/// Returns what to do so that they renew.
pub fn hint(behind: &[Identity]) -> &'static str {
    if behind.iter().any(|who| who.role == Role::Server) {
        "the server was not restarted since the last step: restart it first (systemctl restart rms-server), jobs go on"
    } else {
        "agents renew when they connect, people with their next command. Wait for them, revoke what is not used any more, or \
         say --anyway: then they must join again"
    }
}

#[cfg(test)]
mod tests {
    use rms_core::Fact;
    use rms_model::Span;
    use rms_model::token::Issued;

    use super::*;
    use crate::authority::OwnCertificate;
    use crate::init::{Deployment, init};
    use crate::journal::{FactLog, SnapshotPolicy};

    /// Issues the agent a certificate at the time `after` from now.
    fn agent_renewed(dir: &DataDir, after: Span) {
        let (mut log, _) =
            FactLog::open(&dir.journal(), SnapshotPolicy::default(), |_: Option<rms_core::State>, facts| {
                facts.for_each(drop);
            })
            .expect("a journal");
        let now = Clock::start().now();
        let identity = Identity { role: Role::Agent, name: "n1".to_owned() };
        let (serial, expires) = (format!("{}", log.last_seq()), now + Span::from_hours(9));
        let issued = Issued {
            serial,
            identity,
            issued: now + after,
            expires,
            revoked: None,
            replaces: Vec::new(),
            renews: None,
        };
        log.append(&[Fact::CertificateIssued { issued }]).expect("space");
    }

    #[test]
    fn nobody_has_followed_a_step_before_the_server_was_restarted() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = DataDir::new(&root.path().join("server"));
        let life = Span::from_hours(3);
        let (name, reached, admin) = ("lab".to_owned(), "127.0.0.1:1".to_owned(), "root".to_owned());
        init(&Deployment { dir: dir.clone(), name, reached, certificate_life: life, admin }).expect("a deployment");
        assert_eq!(behind(&dir).expect("a deployment"), [], "no change is under way");
        let now = Clock::start().now();
        Authority::rotate(&dir.authority(), Rotation::Begun, now).expect("the first step");
        // A regular renewal before the restart: it gets the old CA alone.
        agent_renewed(&dir, Span::from_secs(1));
        let found = behind(&dir).expect("a deployment");
        assert_eq!(found, [server_identity()]);
        assert!(hint(&found).contains("restart"));

        let mut own = OwnCertificate::load(dir.credentials(), life).expect("a certificate");
        let authority = Authority::load(&dir.authority()).expect("an authority");
        own.renew_if_due(&authority, now + Span::from_mins(1)).expect("the restart");
        let found: Vec<String> = behind(&dir).expect("a deployment").iter().map(Identity::to_string).collect();
        assert_eq!(found, ["agent/n1", "admin/root"]);
        agent_renewed(&dir, Span::from_mins(2));
        let found: Vec<String> = behind(&dir).expect("a deployment").iter().map(Identity::to_string).collect();
        assert_eq!(found, ["admin/root"]);
    }
}
