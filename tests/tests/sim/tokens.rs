//! Join tokens: one certificate each, for a while, for whom they were made.

use rms_api::call::{CertificateSelect, Query, TokenOrder};
use rms_api::{Answer, Call, Refusal};
use rms_model::token::{TokenIdentity, TokenState};
use rms_model::{Identity, Role, Span};
use rms_sim::story::{mins, secs};
use rms_sim::{World, WorldBuilder, user};

const SECRET: [u8; 32] = [7; 32];

fn with_token(identity: TokenIdentity, ttl: Span) -> World {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    let order = TokenOrder { id: "t1".to_owned(), digest: SECRET, identity, cluster: None, ttl, ca: None };
    world.admin(Call::CreateToken(order));
    world
}

#[test]
fn a_token_gives_one_certificate_and_no_second() {
    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    assert_eq!(world.join("t1", SECRET, None), Ok(user("ann")));
    assert_eq!(world.join("t1", SECRET, None), Err(Refusal::TokenInvalid));
}

#[test]
fn a_used_token_stays_used_over_a_restart() {
    let mut world = with_token(TokenIdentity::AnyAgent, mins(10));
    let agent = Identity::new(Role::Agent, "a9").expect("a name");
    assert_eq!(world.join("t1", SECRET, Some("a9")), Ok(agent));
    world.bounce_server();
    assert_eq!(world.join("t1", SECRET, Some("a9")), Err(Refusal::TokenInvalid));
}

/// The answer to a join was lost: its key asks again, and nobody else gets anything.
#[test]
fn the_key_that_redeemed_a_token_gets_the_same_certificate_again_until_the_token_expires() {
    let (ours, theirs) = ([1; 32], [2; 32]);
    let mut world = with_token(TokenIdentity::AnyAgent, mins(10));
    let first = world.join_by_key(ours, "t1", SECRET, Some("a9")).expect("it is open");
    let n_facts = world.facts().len();
    world.after(mins(1));
    assert_eq!(world.join_by_key(ours, "t1", SECRET, Some("a9")), Ok(first.clone()));
    assert_eq!(world.facts().len(), n_facts, "nothing new has become true");
    world.bounce_server();
    assert_eq!(world.join_by_key(ours, "t1", SECRET, Some("a9")), Ok(first));
    let refused = Err(Refusal::TokenInvalid);
    assert_eq!(world.join_by_key(theirs, "t1", SECRET, Some("a9")), refused, "another key");
    assert_eq!(world.join_by_key(ours, "t1", [8; 32], Some("a9")), refused, "another secret");
    assert_eq!(world.join_by_key(ours, "t1", SECRET, Some("a8")), refused, "another name");
    world.after(mins(9));
    assert_eq!(world.join_by_key(ours, "t1", SECRET, Some("a9")), refused, "the token has expired");
}

#[test]
fn a_certificate_that_was_revoked_is_not_given_again() {
    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    let issued = world.join_by_key([1; 32], "t1", SECRET, None).expect("it is open");
    let which = CertificateSelect::Serial(issued.serial);
    world.admin(Call::RevokeCertificate { which, jobs: None });
    assert_eq!(world.join_by_key([1; 32], "t1", SECRET, None), Err(Refusal::TokenInvalid));
}

#[test]
fn a_token_that_expired_was_revoked_or_is_guessed_gives_nothing_and_says_nothing() {
    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    assert_eq!(world.join("t1", [8; 32], None), Err(Refusal::TokenInvalid));
    assert_eq!(world.join("t2", SECRET, None), Err(Refusal::TokenInvalid));
    world.after(mins(10));
    assert_eq!(world.join("t1", SECRET, None), Err(Refusal::TokenInvalid));

    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    world.admin(Call::RevokeToken { id: "t1".to_owned() });
    assert_eq!(world.join("t1", SECRET, None), Err(Refusal::TokenInvalid));
}

#[test]
fn a_token_is_for_whom_it_was_made() {
    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    let refused = world.join("t1", SECRET, Some("bob"));
    assert!(matches!(refused, Err(Refusal::TokenForAnother { .. })), "{refused:?}");
    // A refusal does not use it up.
    assert_eq!(world.join("t1", SECRET, Some("ann")), Ok(user("ann")));
}

#[test]
fn a_list_of_tokens_shows_what_became_of_them_and_no_digest() {
    let mut world = with_token(TokenIdentity::Named(user("ann")), mins(10));
    world.join("t1", SECRET, None).expect("it is open");
    let Answer::Tokens(tokens) = world.admin(Call::Query(Query::Tokens)) else { panic!("not the tokens") };
    assert_eq!(tokens.len(), 1);
    assert!(matches!(tokens[0].state, TokenState::Used { .. }));
    assert_eq!(tokens[0].digest, [0; 32]);
}
