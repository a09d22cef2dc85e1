//! Tests of access: a token yields one certificate, for its identity alone, and a revocation takes effect at once.

use rms_model::NodeId;

use super::*;
use crate::tests::fixture::{Fixture, NOW, admin, outcome, user};

const DIGEST: [u8; 32] = [7; 32];

impl Fixture {
    fn access(&mut self) -> Access<'_> {
        Access { jobs: self.jobs() }
    }

    /// Creates a fixture with a token for ann that is valid for an hour.
    fn with_token() -> Fixture {
        Fixture::with_token_for(TokenIdentity::Named(user("ann")))
    }

    fn with_token_for(identity: TokenIdentity) -> Fixture {
        let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
        let order = TokenOrder { identity, ..order(user("ann")) };
        fixture.access().create_token(NOW, &mut step, &admin(), order).expect("an admin may");
        drop(outcome(step));
        fixture
    }

    /// Redeems the token over a key; returns the serial of the certificate.
    fn redeem(&mut self, at: Time, key: u8, serial: &str, digest: &[u8; 32]) -> Result<String, Refusal> {
        let mut step = Step::default();
        let redeemed = (Redeemed { key: [key; 32], serial: serial.to_owned() }, None);
        let joined = self.access().join(at, &mut step, ("t1", digest), UNKNOWN, redeemed);
        drop(outcome(step));
        joined.map(|(issued, _)| issued.serial)
    }

    fn revoke(&mut self, which: &CertificateSelect) -> Result<Answer, Refusal> {
        let mut step = Step::default();
        let revoked = self.access().revoke_certificate(NOW, &mut step, &admin(), which, None);
        drop(outcome(step));
        revoked
    }

    /// Redeems the token as this joiner; returns the name that the joiner gets.
    fn redeem_as(&mut self, joiner: Joiner<'_>) -> Result<String, Refusal> {
        let mut step = Step::default();
        let redeemed = (Redeemed { key: [1; 32], serial: "a1".to_owned() }, None);
        let joined = self.access().join(NOW, &mut step, ("t1", &DIGEST), joiner, redeemed);
        drop(outcome(step));
        joined.map(|(issued, _)| issued.identity.to_string())
    }
}

/// A joiner of an older version, without a name.
const UNKNOWN: Joiner<'_> = Joiner { is_agent: None, name: None, machine: None };

fn order(identity: Identity) -> TokenOrder {
    let identity = TokenIdentity::Named(identity);
    TokenOrder { id: "t1".to_owned(), digest: DIGEST, identity, cluster: None, ttl: Span::from_hours(1), ca: None }
}

#[test]
fn a_token_is_made_by_admins_for_people_and_nodes_alone() {
    let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
    let server = Identity::new(Role::Server, "s").expect("a plain name");
    let job = Identity::of_job(JobId(1), Run(1));
    for (who, order) in [
        (user("ann"), order(user("ann"))),
        (admin(), order(server)),
        (admin(), order(job)),
        (admin(), TokenOrder { ttl: Span::from_hours(24 * 31), ..order(user("ann")) }),
    ] {
        fixture.access().create_token(NOW, &mut step, &who, order.clone()).expect_err(&format!("{who} {order:?}"));
    }
    assert!(step.is_empty());
}

#[test]
fn a_token_is_spent_by_one_key_which_gets_the_same_certificate_again() {
    let mut fixture = Fixture::with_token();
    assert!(fixture.redeem(NOW, 1, "a1", &[8; 32]).is_err(), "another secret");
    assert_eq!(fixture.redeem(NOW, 1, "a1", &DIGEST).expect("it is open"), "a1");
    assert_eq!(fixture.redeem(NOW, 1, "a2", &DIGEST).expect("its answer was lost"), "a1");
    assert!(fixture.redeem(NOW, 2, "a3", &DIGEST).is_err(), "another key");
    assert_eq!(fixture.state().certificates.len(), 1);
}

#[test]
fn a_token_for_another_kind_of_peer_is_refused_and_not_spent() {
    let (an_agent, a_person) = (Some(true), Some(false));
    let mut fixture = Fixture::with_token();
    let refused =
        fixture.redeem_as(Joiner { is_agent: an_agent, name: Some("ann"), machine: None }).expect_err("it is ann's");
    assert!(refused.to_string().contains("'rms join'"), "{refused}");
    assert_eq!(fixture.redeem_as(Joiner { is_agent: a_person, ..UNKNOWN }).expect("it is open"), "user/ann");

    let mut fixture = Fixture::with_token_for(TokenIdentity::AnyAgent);
    let refused =
        fixture.redeem_as(Joiner { is_agent: a_person, name: Some("n1"), machine: None }).expect_err("for agents");
    assert!(refused.to_string().contains("'node-agent join'"), "{refused}");
    let refused = fixture.redeem_as(Joiner { is_agent: a_person, ..UNKNOWN }).expect_err("for agents");
    assert!(refused.to_string().contains("'node-agent join'"), "{refused}");
    assert_eq!(
        fixture.redeem_as(Joiner { is_agent: an_agent, ..UNKNOWN }).expect_err("no name").to_string(),
        "an agent's name is needed (--name)"
    );
    let machine = Some("h1");
    assert_eq!(fixture.redeem_as(Joiner { is_agent: an_agent, name: None, machine }).expect("open"), "agent/h1");
}

#[test]
fn an_agent_has_the_name_that_its_token_or_else_its_admin_or_else_its_machine_says() {
    let machine = Some("vm");
    let named = Identity::new(Role::Agent, "h1").expect("a plain name");
    let mut fixture = Fixture::with_token_for(TokenIdentity::Named(named));
    assert!(fixture.redeem_as(Joiner { is_agent: None, name: Some("h2"), machine }).is_err());
    assert_eq!(fixture.redeem_as(Joiner { is_agent: None, name: None, machine }).expect("open"), "agent/h1");
    let mut fixture = Fixture::with_token_for(TokenIdentity::AnyAgent);
    assert_eq!(fixture.redeem_as(Joiner { is_agent: None, name: Some("h2"), machine }).expect("open"), "agent/h2");
}

#[test]
fn a_token_without_a_name_gives_no_other_machine_the_place_of_a_connected_node() {
    let mut fixture = Fixture::with_token_for(TokenIdentity::AnyAgent);
    let join = |fixture: &mut Fixture, (token, key): (&str, u8), name: &str, replaces: Option<&str>| {
        let mut step = Step::default();
        let redeemed = Redeemed { key: [key; 32], serial: format!("c{key}") };
        let joiner = Joiner { is_agent: Some(true), name: Some(name), machine: None };
        let joined = fixture.access().join(NOW, &mut step, (token, &DIGEST), joiner, (redeemed, replaces));
        drop(outcome(step));
        joined.map(|(issued, _)| issued.serial)
    };
    let refused = join(&mut fixture, ("t1", 1), "n1", None).expect_err("n1 is connected");
    assert!(matches!(&refused, Refusal::NodeConnected { node, .. } if node == "n1"), "{refused}");
    assert_eq!(join(&mut fixture, ("t1", 1), "n9", None), Ok("c1".to_owned()), "the token is still open");

    let node = Identity::new(Role::Agent, "n1").expect("a plain name");
    let token = |fixture: &mut Fixture, id: &str, identity: TokenIdentity, cluster: Option<&str>| {
        let (mut step, cluster) = (Step::default(), cluster.map(str::to_owned));
        let order = TokenOrder { id: id.to_owned(), identity, cluster, ..order(user("ann")) };
        fixture.access().create_token(NOW, &mut step, &admin(), order).expect("an admin may");
        drop(outcome(step));
    };
    token(&mut fixture, "t2", TokenIdentity::Named(node.clone()), Some("elsewhere"));
    let refused = join(&mut fixture, ("t2", 2), "n1", None).expect_err("n1 is of cluster a");
    assert!(matches!(refused, Refusal::NodeInAnotherCluster { .. }), "{refused}");
    token(&mut fixture, "t3", TokenIdentity::Named(node), None);
    assert_eq!(join(&mut fixture, ("t3", 3), "n1", None), Ok("c3".to_owned()), "the token names it");
    token(&mut fixture, "t4", TokenIdentity::AnyAgent, None);
    assert_eq!(join(&mut fixture, ("t4", 4), "n1", Some("c3")), Ok("c4".to_owned()), "it is the same machine");
}

#[test]
fn a_token_that_is_over_or_revoked_is_good_for_nothing() {
    let mut fixture = Fixture::with_token();
    assert!(fixture.redeem(NOW + Span::from_hours(1), 1, "a1", &DIGEST).is_err());
    let mut step = Step::default();
    fixture.access().revoke_token(NOW, &mut step, &user("ann"), "t1").expect_err("she is no admin");
    fixture.access().revoke_token(NOW, &mut step, &admin(), "t1").expect("an admin may");
    drop(outcome(step));
    assert!(fixture.redeem(NOW, 1, "a1", &DIGEST).is_err());
}

#[test]
fn who_is_shut_out_loses_the_links_and_an_admin_says_what_becomes_of_the_jobs() {
    let mut fixture = Fixture::with_token();
    fixture.redeem(NOW, 1, "a1", &DIGEST).expect("it is open");
    let job = fixture.waiting("ann", 1, |_| {});
    let (mut step, which) = (Step::default(), CertificateSelect::Identity(user("ann")));
    let refused = fixture.access().revoke_certificate(NOW, &mut step, &admin(), &which, None);
    assert!(matches!(refused, Err(Refusal::JobsOfRevoked { n_jobs: 1, .. })), "{refused:?}");
    assert!(step.is_empty());
    let cancel = Some(JobsOfRevoked::Cancel);
    fixture.access().revoke_certificate(NOW, &mut step, &admin(), &which, cancel).expect("it is said");
    let (_, effects) = outcome(step);
    assert!(effects.contains(&Effect::CloseLinks { serials: vec!["a1".to_owned()] }), "{effects:?}");
    assert!(!fixture.state().jobs().get(&job).is_some_and(Job::is_queued));
}

#[test]
fn an_expired_certificate_does_not_count_as_another_of_its_user() {
    let mut fixture = Fixture::with_token();
    fixture.redeem(NOW, 1, "a1", &DIGEST).expect("it is open");
    let valid = fixture.state().certificates["a1"].clone();
    let expired = Issued { serial: "a0".to_owned(), expires: NOW - Span::from_secs(1), ..valid };
    fixture.record(Fact::CertificateIssued { issued: expired });
    fixture.waiting("ann", 1, |_| {});
    let refused = fixture.revoke(&CertificateSelect::Serial("a1".to_owned()));
    assert!(matches!(refused, Err(Refusal::JobsOfRevoked { n_jobs: 1, .. })), "{refused:?}");
    assert_eq!(fixture.revoke(&CertificateSelect::Serial("a0".to_owned())), Ok(Answer::Done));
}

#[test]
fn the_last_certificate_of_an_administrator_stays() {
    let mut fixture = Fixture::with_token_for(TokenIdentity::Named(admin()));
    fixture.redeem(NOW, 1, "a1", &DIGEST).expect("it is open");
    let (first, all) = (CertificateSelect::Serial("a1".to_owned()), CertificateSelect::Identity(admin()));
    assert!(matches!(fixture.revoke(&first), Err(Refusal::LastAdmin)));
    assert!(matches!(fixture.revoke(&all), Err(Refusal::LastAdmin)));
    let mut step = Step::default();
    fixture.access().renew(NOW, &mut step, &admin(), ("a2".to_owned(), Some("a1".to_owned()))).expect("an admin may");
    drop(outcome(step));
    assert!(matches!(fixture.revoke(&all), Err(Refusal::LastAdmin)));
    let newest = CertificateSelect::Serial("a2".to_owned());
    assert!(matches!(fixture.revoke(&newest), Err(Refusal::LastAdmin)), "nobody has the renewed one any more");
    fixture.revoke(&first).expect("there is another one");
    fixture.revoke(&first).expect("it is revoked already, so nobody loses anything by it");
    assert!(matches!(fixture.revoke(&newest), Err(Refusal::LastAdmin)));
}

#[test]
fn a_node_certifies_the_jobs_that_it_has_and_no_others() {
    let mut fixture = Fixture::with_nodes(2);
    let job = fixture.waiting("ann", 1, |_| {});
    let run = fixture.start(job, &[NodeId(1)]);
    let mut ask = |node: &str, run| {
        let mut step = Step::default();
        let request = (vec![1], "j1".to_owned());
        fixture.access().certify_job(NOW, &mut step, Ticket(1), node, (job, run), request);
        let (facts, effects) = outcome(step);
        assert!(facts.is_empty(), "it need not be remembered");
        matches!(effects[..], [Effect::Sign { .. }])
    };
    assert_eq!([ask("n1", run), ask("n2", run), ask("n1", run.next())], [true, false, false]);
}
