//! What admins do: all of it is in the audit, and nothing of what they shut out comes back.

use rms_api::call::{CertificateSelect, JobsOfRevoked, Query, TokenOrder};
use rms_api::{Answer, Call, Refusal};
use rms_model::token::{Issued, TokenIdentity};
use rms_model::{ClusterId, Identity, JobId, Role};
use rms_sim::story::{hours, mins, secs, started};
use rms_sim::{World, WorldBuilder, admin, rigid, user};

const SECRET: [u8; 32] = [7; 32];

fn token(world: &mut World, id: &str, identity: TokenIdentity) {
    let order = TokenOrder { id: id.to_owned(), digest: SECRET, identity, cluster: None, ttl: hours(1), ca: None };
    world.admin(Call::CreateToken(order));
}

fn audit(world: &mut World) -> Vec<(String, String, String)> {
    match world.admin(Call::Query(Query::Audit)) {
        Answer::Audit(entries) => {
            assert!(entries.is_sorted_by_key(|entry| entry.at));
            entries.into_iter().map(|entry| (entry.by, entry.action, entry.subject)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn certificates(world: &mut World, identity: &Identity) -> Vec<Issued> {
    match world.admin(Call::Query(Query::Certificates)) {
        Answer::Certificates(all) => all.into_iter().filter(|issued| issued.identity == *identity).collect(),
        other => panic!("{other:?}"),
    }
}

fn valid(world: &mut World, identity: &Identity) -> usize {
    certificates(world, identity).iter().filter(|issued| issued.revoked.is_none()).count()
}

#[test]
fn each_act_of_an_admin_is_in_the_audit_and_outlives_a_restart() {
    let mut world = WorldBuilder::default().cluster("a", 2).cluster("b", 1).build();
    world.after(secs(1));
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let owner = world.state().jobs()[&job].spec.owner.0.clone();
    let before = audit(&mut world).len();
    world.drain("a2");
    world.resume("a2");
    world.down("b1");
    world.set("fair_start", "3s");
    world.admin(Call::SetLink { a: "a".into(), b: "b".into(), latency_us: 5, bandwidth_mbit: 1 });
    token(&mut world, "t1", TokenIdentity::Named(user("eve")));
    token(&mut world, "t2", TokenIdentity::AnyAgent);
    world.join("t1", SECRET, None).expect("it holds");
    world.admin(Call::RevokeToken { id: "t2".into() });
    let which = CertificateSelect::Identity(user("eve"));
    world.admin(Call::RevokeCertificate { which, jobs: None });
    world.expect_cancels(&[job]);
    world.on_job(&admin(), job, |select| Call::Cancel { select }).expect("an admin may");
    let admin = admin().name;
    let expected = [
        (&*admin, "drain", "a2"),
        (&admin, "resume", "a2"),
        (&admin, "down", "b1"),
        (&admin, "set", "fair_start"),
        (&admin, "link", "link a b"),
        (&admin, "token-create", "t1"),
        (&admin, "token-create", "t2"),
        ("user/eve", "token-redeem", "t1"),
        (&admin, "token-revoke", "t2"),
        (&admin, "certificate-revoke", "user/eve"),
        (&admin, "cancel", &*format!("job {job}")),
    ];
    assert_ne!(owner, admin, "the job is another's");
    let found = audit(&mut world).split_off(before);
    let found: Vec<(&str, &str, &str)> = found.iter().map(|(by, action, what)| (&**by, &**action, &**what)).collect();
    assert_eq!(found, expected);
    let joins = audit(&mut world).into_iter().filter(|(_, action, _)| action == "node-join");
    assert_eq!(joins.map(|(by, ..)| by).collect::<Vec<_>>(), ["agent/a1", "agent/a2", "agent/b1"]);
    let all = audit(&mut world);
    world.bounce_server();
    assert_eq!(audit(&mut world), all);
}

#[test]
fn what_was_refused_and_what_users_do_with_their_own_is_not_in_the_audit() {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    let job = world.submit(rigid(1, hours(1)));
    let owner = user(&world.state().jobs()[&job].spec.owner.0.clone());
    let before = audit(&mut world);
    world.on_job(&owner, job, |select| Call::Hold { select }).expect_err("it runs");
    world.expect_cancels(&[job]);
    world.on_job(&owner, job, |select| Call::Cancel { select }).expect("it is theirs");
    world.ask(&owner, Call::Drain { nodes: vec!["a1".into()], reason: "x".into() }).expect_err("an admin may");
    world.ask(&admin(), Call::Drain { nodes: vec!["zz".into()], reason: "x".into() }).expect_err("no such node");
    assert_eq!(audit(&mut world), before);
}

fn user_with_jobs() -> (World, Identity, Vec<JobId>) {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    let jobs = vec![world.submit(rigid(1, hours(1))), world.submit(rigid(1, hours(1)))];
    world.after(secs(1));
    let owner = user(&world.state().jobs()[&jobs[0]].spec.owner.0.clone());
    token(&mut world, "t1", TokenIdentity::Named(owner.clone()));
    world.join("t1", SECRET, None).expect("it holds");
    (world, owner, jobs)
}

#[test]
fn who_shuts_a_user_out_says_what_becomes_of_the_jobs() {
    let (mut world, ann, jobs) = user_with_jobs();
    let revoke = |jobs| Call::RevokeCertificate { which: CertificateSelect::Identity(ann.clone()), jobs };
    let refused = world.ask(&admin(), revoke(None));
    assert_eq!(refused, Err(Refusal::JobsOfRevoked { user: ann.name.clone(), n_jobs: 2 }));
    assert_eq!(valid(&mut world, &ann), 1, "nothing was done");
    world.admin(revoke(Some(JobsOfRevoked::Keep)));
    assert_eq!(valid(&mut world, &ann), 0);
    world.expect(started(jobs[0]));

    let (mut world, ann, jobs) = user_with_jobs();
    let which = CertificateSelect::Identity(ann.clone());
    world.expect_cancels(&jobs);
    world.admin(Call::RevokeCertificate { which, jobs: Some(JobsOfRevoked::Cancel) });
    world.after(mins(1));
    assert!(jobs.iter().all(|job| world.history(*job).is_some()), "they were cancelled");
}

#[test]
fn who_has_another_certificate_is_not_shut_out_by_the_loss_of_one() {
    let (mut world, ann, _) = user_with_jobs();
    token(&mut world, "t2", TokenIdentity::Named(ann.clone()));
    world.join("t2", SECRET, None).expect("it holds");
    assert_eq!(valid(&mut world, &ann), 2, "people have several machines");
    let serial = certificates(&mut world, &ann)[0].serial.clone();
    world.admin(Call::RevokeCertificate { which: CertificateSelect::Serial(serial), jobs: None });
    assert_eq!(valid(&mut world, &ann), 1);
}

#[test]
fn a_node_that_joins_again_has_its_newest_certificate_only_and_one_that_is_removed_none() {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    let agent = Identity { role: Role::Agent, name: "a1".to_owned() };
    for id in ["t1", "t2"] {
        token(&mut world, id, TokenIdentity::Named(agent.clone()));
        world.join(id, SECRET, Some("a1")).expect("it holds");
        // An answer that was lost would leave it with the older one alone.
        let newest =
            certificates(&mut world, &agent).into_iter().max_by_key(|issued| issued.issued).expect("it has one");
        world.comes_with(newest.serial);
        world.after(secs(1));
        assert_eq!(valid(&mut world, &agent), 1, "the newest");
    }
    world.kill_node("a1");
    world.after(mins(2));
    world.admin(Call::Remove { nodes: vec!["a1".into()] });
    assert_eq!(valid(&mut world, &agent), 0, "it comes back by a new token only");
}

fn number_of_b(world: &World) -> Option<ClusterId> {
    world.state().clusters().iter().find(|(_, name)| *name == "b").map(|(number, _)| *number)
}

#[test]
fn a_cluster_goes_when_nothing_is_left_of_it_and_its_number_does_not_come_again() {
    let mut world = WorldBuilder::default().cluster("a", 1).cluster("b", 1).build();
    world.after(secs(1));
    let remove = || Call::RemoveCluster { name: "b".to_owned() };
    let refused = world.ask(&admin(), remove()).expect_err("it has a node").to_string();
    assert!(refused.contains("b1") && refused.contains("rms admin remove"), "{refused}");
    world.set("fair_start@b", "3s");
    world.kill_node("b1");
    world.after(mins(2));
    world.admin(Call::Remove { nodes: vec!["b1".into()] });
    let number = number_of_b(&world).expect("it is still there");
    world.admin(remove());
    assert_eq!(number_of_b(&world), None);
    assert_eq!(world.state().settings().keys().filter(|key| key.contains("@b")).count(), 0);
    world.ask(&admin(), remove()).expect_err("there is none");
    world.bounce_server();
    world.boot_node("b1");
    world.after(secs(5));
    let again = number_of_b(&world).expect("its node is back");
    assert!(again > number, "history calls clusters by their numbers");
}
