//! Who may do what: tokens that do not hold, certificates that are taken back, and other people's jobs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use test_kit::{Deployment, Output, binaries, wait_until};

const SOON: Duration = Duration::from_secs(20);

fn token(deployment: &Deployment, arguments: &[&str]) -> String {
    let mut all = vec!["token", "create", "--json"];
    all.extend(arguments);
    deployment.rms(&all).ok().json()["token"].as_str().expect("a text").to_owned()
}

fn join(deployment: &Deployment, token: &str, dir: &str) -> Output {
    let dir = deployment.path().join(dir);
    let mut join = deployment.command(&["join", token, "--json"]);
    join.arg("--dir").arg(&dir);
    let output = deployment.finish(join);
    assert_eq!(output.code == 0, dir.join("key.pem").exists(), "a failed join leaves no key: {output:?}");
    output
}

fn error(output: &Output) -> String {
    output.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {output:?}")).to_owned()
}

#[test]
fn long_a_token_holds_once_for_its_time_and_until_it_is_revoked() {
    let deployment = Deployment::builder().start();
    let used = token(&deployment, &["--role", "user", "--name", "ada"]);
    let expired = token(&deployment, &["--role", "user", "--name", "ada", "--ttl", "1s"]);
    let created = Instant::now();
    join(&deployment, &used, "ada").ok();
    assert!(error(&join(&deployment, &used, "again").fails(1)).contains("not valid"));
    let other = token(&deployment, &["--role", "user", "--name", "cem"]);
    let joined = join(&deployment, &other, "ada").ok().json();
    assert_eq!((&joined["identity"], &joined["replaced"]), (&"user/cem".into(), &"user/ada".into()));

    let revoked = token(&deployment, &["--role", "user", "--name", "bob"]);
    let id = revoked.split('.').nth(1).expect("lmb1.ID.…");
    deployment.rms(&["token", "revoke", id]).ok();
    assert!(error(&join(&deployment, &revoked, "bob").fails(1)).contains("not valid"));

    std::thread::sleep(Duration::from_millis(1100).saturating_sub(created.elapsed()));
    assert!(error(&join(&deployment, &expired, "late").fails(1)).contains("not valid"));

    let listed = deployment.rms(&["token", "list"]).ok().stdout;
    let secret = used.split('.').nth(2).expect("the secret");
    assert!(!listed.contains(secret), "a list shows no secrets: {listed}");
    for state in ["used", "revoked", "expired"] {
        assert!(listed.contains(state), "{state} in {listed}");
    }
    let log = deployment.log_text("server");
    assert!(!log.contains(secret), "the log shows no secrets");
    assert!(log.contains("a join was refused"), "{log}");
}

#[test]
fn a_token_that_was_changed_on_its_way_says_what_is_wrong_with_it() {
    let deployment = Deployment::builder().start();
    let good = token(&deployment, &["--role", "user", "--name", "ada"]);
    let swap = |at: usize| {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'2' { b'3' } else { b'2' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let secret_at = good.match_indices('.').nth(1).expect("dots").0 + 3;
    let fingerprint_at = good.match_indices('.').nth(2).expect("dots").0 + 3;
    let port = good.rsplit_once(':').expect("host:port").0;

    assert!(error(&join(&deployment, &swap(secret_at), "x").fails(1)).contains("not valid"));
    let foreign = error(&join(&deployment, &swap(fingerprint_at), "x").fails(1));
    assert!(foreign.contains("CA"), "{foreign}");
    for (text, problem) in [
        (&good[..good.len() / 2], "'@'"),
        ("", "'@'"),
        (port, "host:port"),
        (&good.replace("lmb1", "lmb2"), "lmb1"),
        (&good.replace('@', "@@"), "host:port"),
        (&good.to_uppercase(), "lmb1"),
        (&format!("{good}\u{0}"), "host:port"),
        (&"x".repeat(100_000), "'@'"),
    ] {
        if text.contains('\0') {
            // No argument can hold it.
            let output = deployment.rms_with_input(&["join", "-", "--dir", "x"], text);
            assert_eq!(output.code, 2, "{output:?}");
            continue;
        }
        let output = join(&deployment, text, "x").fails(2);
        let said = error(&output);
        assert!(said.contains(problem) && said.contains("rms token create"), "{text:.60}: {said}");
        assert!(said.len() < 1000, "it is not repeated at length");
    }
    // None of this has used it up.
    join(&deployment, &good, "ada").ok();
}

#[test]
fn a_token_for_one_node_does_not_make_another() {
    let deployment = Deployment::builder().start();
    let named = token(&deployment, &["--role", "agent", "--name", "a1", "--cluster", "a"]);
    let agent = |name: &str, token: &str| {
        let binaries = test_kit::binaries();
        let mut join = std::process::Command::new(&binaries.agent);
        join.args(["join", token, "--name", name, "--dir"]).arg(deployment.path().join(name));
        deployment.finish(join)
    };
    let refused = agent("a2", &named).fails(1);
    assert!(refused.stderr.contains("agent/a1") && refused.stderr.contains("a2"), "{refused:?}");
    let person = token(&deployment, &["--role", "user", "--name", "a3"]);
    let refused = agent("a3", &person).fails(1);
    assert!(refused.stderr.contains("user/a3"), "{refused:?}");
    agent("a1", &named).ok();
}

#[test]
fn revoking_a_users_certificate_ends_what_he_is_doing() {
    let deployment = Deployment::of_nodes(1);
    let ada = deployment.join_person("user", "root");
    let mut run = deployment.command_as(&ada, &["run", "sh", "-c", "echo up; sleep 60"]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = run.spawn().expect("it starts");
    let job = wait_until("her job to run", SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        queue["jobs"].as_array()?.iter().find(|line| line["state"] == "started")?["job"].as_u64()
    });
    deployment.rms(&["token", "revoke-certificate", "user/root"]).ok();
    let start = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(start.elapsed() < Duration::from_secs(15), "the link ended after {:?}", start.elapsed());
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("revoked"), "{said}");
    // And nothing new.
    let refused = deployment.finish(deployment.command_as(&ada, &["queue"])).fails(1);
    assert!(refused.stderr.contains("revoked") || refused.stderr.contains("certificate"), "{refused:?}");
    // The job is not the certificate.
    assert_eq!(deployment.queued(job).expect("it runs on")["state"], "started");
    deployment.rms(&["cancel", &job.to_string()]).ok();
}

#[test]
fn long_revoking_an_agents_certificate_takes_the_node_away_and_its_jobs_live() {
    let mut deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["--wrap", "sleep 4; exit 3"]);
    deployment.wait_for_state(job, "started");
    deployment.rms(&["token", "revoke-certificate", "agent/a1"]).ok();
    wait_until("the node to be away", SOON, || {
        let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
        (nodes["nodes"][0]["state"] == "away").then_some(())
    });
    // It may not come back by itself.
    std::thread::sleep(Duration::from_millis(1500));
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    assert_eq!(nodes["nodes"][0]["state"], "away");
    // With a new certificate it takes up its jobs where they are.
    deployment.kill_agent("a1");
    deployment.join_node(&test_kit::NodeOptions::new("a", "a1"));
    deployment.restart_agent("a1");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["code"], 3, "{record}");
}

#[test]
fn other_peoples_jobs_are_not_ones_own() {
    let deployment = Deployment::of_nodes(1);
    // Both run as the agent's own user would not be possible: these never start, so nobody's account is needed.
    let ada = deployment.join_person("user", "ada");
    let bob = deployment.join_person("user", "bob");
    let run = |who: &Path, arguments: &[&str]| deployment.finish(deployment.command_as(who, arguments));
    let wrap = "echo the-secret-script # in-the-script";
    let mut submit = deployment.command_as(&ada, &["submit", "--hold", "--json", "--comment", "hush", "--wrap", wrap]);
    submit.env("PASSWORD", "in-the-environment");
    let job = deployment.finish(submit).ok().json()["job"].as_u64().expect("an id").to_string();

    for arguments in [&["cancel", &job][..], &["cancel", "--signal", "TERM", &job], &["hold", &job], &["release", &job]]
    {
        let refused = run(&bob, arguments);
        assert_ne!(refused.code, 0, "{refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("ada"), "it says whose job it is: {said}");
    }
    for arguments in [&["show", &job, "--script"][..], &["show", &job, "--json"], &["explain", &job, "--json"]] {
        let shown = run(&bob, arguments).ok().stdout;
        for secret in ["the-secret-script", "in-the-environment", "hush"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    assert_eq!(run(&bob, &["queue", "--json"]).ok().json()["jobs"][0]["job"].as_u64(), job.parse().ok());
    assert!(run(&ada, &["show", &job, "--script"]).ok().stdout.contains("the-secret-script"));
    assert_eq!(deployment.queued(job.parse().expect("a number")).expect("it waits")["state"], "held");

    // Selecting all means all of one's own.
    let all = run(&bob, &["cancel", "all"]);
    assert!(deployment.queued(job.parse().expect("a number")).is_some(), "{all:?}");

    for arguments in [
        &["token", "create", "--role", "admin", "--name", "bob"][..],
        &["token", "list"],
        &["token", "certificates"],
        &["token", "revoke", "x"],
        &["token", "revoke-certificate", "user/ada"],
        &["admin", "set", "fair_start", "1s"],
        &["admin", "audit"],
        &["admin", "drain", "a1", "--reason", "fun"],
        &["admin", "down", "a1", "--reason", "fun"],
        &["admin", "resume", "a1"],
        &["submit", "--priority", "1000", "--wrap", "true"],
    ] {
        let refused = run(&bob, arguments).fails(1);
        assert!(refused.stderr.contains("admin"), "{refused:?}");
    }
    assert_eq!(deployment.rms(&["nodes", "--json"]).ok().json()["nodes"][0]["state"], "idle");
    run(&ada, &["cancel", &job]).ok();
}

/// The files that prove who one is are nobody else's business.
#[test]
fn keys_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mut deployment = Deployment::of_nodes(1);
    let ada = deployment.join_person("user", "ada");
    let secret: Vec<PathBuf> = vec![
        deployment.server_dir().join("ca/ca.key"),
        deployment.server_dir().join("server/key.pem"),
        deployment.server_dir().join("journal/log.1"),
        deployment.server_dir().join("journal/history.db"),
        deployment.agent_dir("a1").join("credentials/key.pem"),
        ada.join("key.pem"),
    ];
    for path in secret {
        let mode = std::fs::metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).permissions().mode();
        let is_hidden = path.starts_with(deployment.server_dir());
        let dir_mode = std::fs::metadata(deployment.server_dir()).expect("it is there").permissions().mode();
        let is_guarded = mode & 0o077 == 0 || (is_hidden && dir_mode & 0o077 == 0);
        assert!(is_guarded, "{} has mode {mode:o}", path.display());
    }
    let warned = |deployment: &Deployment| deployment.log_text("a1").contains("others may use the private key");
    assert!(!warned(&deployment));
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(deployment.agent_dir("a1").join("credentials/key.pem"), open).expect("it is ours");
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    wait_until("a warning", Duration::from_secs(20), || warned(&deployment).then_some(()));
}

#[test]
fn long_a_node_that_joins_again_keeps_its_name() {
    let mut deployment = Deployment::of_nodes(1);
    let join = |token: &str, more: &[&str]| {
        let mut join = Command::new(&binaries().agent);
        join.arg("join").arg(token).arg("--dir").arg(deployment.agent_dir("a1")).args(more);
        deployment.finish(join)
    };
    let any = token(&deployment, &["--role", "agent", "--cluster", "a"]);
    let refused = join(&any, &["--name", "b9"]).fails(1);
    assert!(refused.stderr.contains("the certificate of node a1"), "{refused:?}");
    let again = join(&any, &[]).ok();
    assert!(again.stdout.contains("joined as a1") && again.stderr.is_empty(), "{again:?}");

    let other = join(&token(&deployment, &["--role", "agent", "--cluster", "a", "--name", "b9"]), &[]).ok();
    assert!(other.stderr.contains("was that of node a1"), "{other:?}");
    // An agent reads its credentials whenever it connects.
    deployment.kill_server();
    deployment.start_server();
    wait_until("the agent to say so", SOON, || deployment.log_text("a1").contains("is another node's").then_some(()));
    deployment.wait_for_nodes();
    assert!(deployment.rms(&["nodes"]).ok().stdout.contains("a1"));
}
