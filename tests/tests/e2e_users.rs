//! Two people and an agent that runs as root: a job is its user's, wholly, and nobody else's.
//!
//! The accounts exist only for the agent: it runs in a mount namespace with a user table of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use test_kit::{Deployment, NodeOptions, Output, wait_until};

const SOON: Duration = Duration::from_secs(20);
const LAB: u32 = 61_009;

struct Person {
    uid: u32,
    credentials: PathBuf,
    home: PathBuf,
}

/// A deployment of two nodes that know `ada` and `bob`. Ada is also in the group `lab`.
struct World {
    deployment: Deployment,
    ada: Person,
    bob: Person,
    _etc: tempfile::TempDir,
}

impl World {
    /// `None`, and says why, where this cannot be tried.
    fn start() -> Option<World> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can run jobs of other users");
            return None;
        }
        if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: this machine allows no mount namespaces");
            return None;
        }
        let etc = tempfile::tempdir().expect("a directory");
        fs::set_permissions(etc.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let write = |name: &str, more: &str| {
            let path = etc.path().join(name);
            let text = fs::read_to_string(format!("/etc/{name}")).expect("every system has it") + more;
            fs::write(&path, text).expect("it is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
            path.to_string_lossy().into_owned()
        };
        let passwd = write("passwd", "ada:x:61001:61001::/home/ada:/bin/bash\nbob:x:61002:61002::/home/bob:/bin/sh\n");
        let group = write("group", "ada:x:61001:\nbob:x:61002:\nlab:x:61009:ada\n");
        let enter = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && shift 2 && exec \"$@\"";
        let wrapper = ["env", "AGENTS_SECRET=hush", "unshare", "-m", "sh", "-c", enter, "sh", &passwd, &group];
        let node = |name| NodeOptions::new("a", name).wrapped(&wrapper);
        let deployment = Deployment::builder().node(node("a1")).node(node("a2")).start();
        let person = |name: &str, uid: u32| {
            let home = deployment.path().join(format!("home-{name}"));
            fs::create_dir(&home).expect("the directory is ours");
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("it is ours");
            chown(&home, Some(uid), Some(uid)).expect("we are root");
            Person { uid, credentials: deployment.join_person("user", name), home }
        };
        let (ada, bob) = (person("ada", 61_001), person("bob", 61_002));
        Some(World { deployment, ada, bob, _etc: etc })
    }

    fn rms(&self, who: &Person, arguments: &[&str]) -> Output {
        let mut command = self.deployment.command_as(&who.credentials, arguments);
        command.current_dir(&who.home);
        self.deployment.finish(command)
    }

    fn submit(&self, who: &Person, arguments: &[&str]) -> u64 {
        let mut all = vec!["submit", "--json"];
        all.extend(arguments);
        self.rms(who, &all).ok().json()["job"].as_u64().expect("an id")
    }

    fn ended(&self, who: &Person, arguments: &[&str]) -> Value {
        let job = self.submit(who, arguments);
        self.deployment.wait_for_end(job)
    }

    /// What somebody who has logged in on the node can do.
    fn as_user(&self, who: &Person, script: &str) -> std::process::Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]).uid(who.uid).gid(who.uid).current_dir("/");
        command.output().expect("a shell starts")
    }
}

#[test]
fn long_a_job_has_its_users_ids_and_nothing_of_the_agents() {
    let Some(world) = World::start() else { return };
    let script = "exec > said 2>&1\nid -u; id -g; id -G; umask; echo $USER $LOGNAME $HOME $SHELL\n\
                  ls -l /proc/self/fd > fds; wc -l < fds\ngrep CapEff /proc/self/status\nenv > env; touch made\n";
    let record = world.ended(&world.ada, &["--wrap", script]);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    let said = fs::read_to_string(world.ada.home.join("said")).expect("it was written");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["61001", "61001", "61001 61009"], "{said}");
    assert_eq!(lines[4], "ada ada /home/ada /bin/bash");
    // 'total', three streams, and the directory that ls reads.
    let fds = fs::read_to_string(world.ada.home.join("fds")).expect("it was written");
    assert_eq!(lines[5], "5", "open files leaked: {fds}");
    assert_eq!(lines[6].split_whitespace().last(), Some("0000000000000000"), "{said}");
    let environment = fs::read_to_string(world.ada.home.join("env")).expect("it was written");
    assert!(!environment.contains("AGENTS_SECRET"), "{environment}");
    for file in ["made", "rms-1.out"] {
        let metadata = fs::metadata(world.ada.home.join(file)).expect("it was made");
        assert_eq!((metadata.uid(), metadata.gid()), (61_001, 61_001), "{file}");
    }
    // A task that is started without a script is no different.
    let output = world.rms(&world.bob, &["run", "sh", "-c", "id -u; id -G; ls -l /proc/self/fd"]).ok();
    assert!(output.stdout.starts_with("61002\n61002\n"), "{output:?}");
    let n_fds = output.stdout.lines().filter(|line| line.contains(" -> ")).count();
    // The three streams, the process manager's socket, and the directory that ls reads.
    assert!(n_fds <= 5, "{output:?}");
    assert!(!output.stdout.contains("spool/seats") && !output.stdout.contains("cgroup"), "{output:?}");
}

#[test]
fn long_what_the_user_may_not_do_the_job_may_not_do() {
    let Some(world) = World::start() else { return };
    let adas = world.ada.home.to_string_lossy().into_owned();
    let cases: [(Vec<&str>, &str); 4] = [
        (vec!["-D", &adas, "--wrap", "true"], &adas),
        (vec!["-o", "/etc/limber-must-not-be", "--wrap", "true"], "/etc/limber-must-not-be"),
        (vec!["-i", "/etc/shadow", "--wrap", "cat"], "/etc/shadow"),
        (vec!["-D", "/nowhere/at/all", "--wrap", "true"], "/nowhere/at/all"),
    ];
    for (arguments, path) in cases {
        let record = world.ended(&world.bob, &arguments);
        assert_eq!(record["outcome"]["word"], "not_started", "{record}");
        let reason = record["outcome"].to_string();
        assert!(reason.contains(path) && reason.contains("a1"), "{reason}");
    }
    assert!(!PathBuf::from("/etc/limber-must-not-be").exists());
    // Through a link, too.
    std::os::unix::fs::symlink("/etc/limber-must-not-be", world.bob.home.join("link")).expect("a link");
    let record = world.ended(&world.bob, &["-o", "link", "--wrap", "true"]);
    assert_eq!(record["outcome"]["word"], "not_started", "{record}");
    assert!(!PathBuf::from("/etc/limber-must-not-be").exists());
    // A group of the user counts.
    let shared = world.deployment.path().join("shared");
    fs::create_dir(&shared).expect("ours");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o770)).expect("ours");
    chown(&shared, Some(0), Some(LAB)).expect("we are root");
    let out = shared.join("out").to_string_lossy().into_owned();
    assert_eq!(world.ended(&world.ada, &["-o", &out, "--wrap", "true"])["outcome"]["word"], "completed");
    assert_eq!(world.ended(&world.bob, &["-o", &out, "--wrap", "true"])["outcome"]["word"], "not_started");
    // Nobody without an account, and a FIFO that nobody reads holds up nothing.
    let carol = world.deployment.join_person("user", "carol");
    let carol = Person { uid: 61_003, credentials: carol, home: world.deployment.path().to_path_buf() };
    let record = world.ended(&carol, &["--wrap", "true"]);
    assert_eq!(record["outcome"]["word"], "not_started", "{record}");
    assert!(record["outcome"].to_string().contains("carol"), "{record}");
    nix::unistd::mkfifo(&world.bob.home.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o666)).expect("ours");
    let record = world.ended(&world.bob, &["-o", "fifo", "--wrap", "true"]);
    assert_eq!(record["outcome"]["word"], "not_started", "{record}");
}

#[test]
fn long_another_user_of_the_node_sees_and_touches_nothing_of_a_job() {
    let Some(world) = World::start() else { return };
    let script = "#!/bin/sh\n# the-secret-script\necho the-secret-output; sleep 1000\n";
    let path = world.ada.home.join("job.sh");
    fs::write(&path, script).expect("ours");
    let mut submit = world.deployment.command_as(&world.ada.credentials, &["submit", "--json"]);
    submit.arg(&path).current_dir(&world.ada.home).env("PASSWORD", "the-secret-variable");
    let job = world.deployment.finish(submit).ok().json()["job"].as_u64().expect("an id");
    world.deployment.wait_for_state(job, "started");
    let output = world.ada.home.join(format!("rms-{job}.out"));
    wait_until("its output", SOON, || fs::read_to_string(&output).ok().filter(|text| text.contains("secret")));

    let agent = world.deployment.agent_dir("a1");
    let agent = agent.display();
    let found = world.as_user(
        &world.bob,
        &format!(
            "cd {agent}; ls . spool spool/jobs spool/seats spool/jobs/{job}.1; \
             for f in credentials/key.pem agent.toml spool/jobs/{job}.1/*  spool/jobs/{job}.1/entry \
             spool/jobs/{job}.1/script spool/jobs/{job}.1/out.0 spool/jobs/{job}.1/hosts.openmpi; do cat $f; done; \
             cat /proc/[0-9]*/environ"
        ),
    );
    let found = String::from_utf8_lossy(&found.stdout);
    for secret in ["the-secret", "PRIVATE KEY", "AGENTS_SECRET"] {
        assert!(!found.contains(secret), "{secret} in {found}");
    }
    let touch = format!(
        "cd {agent}/spool/jobs/{job}.1 || exit 0; touch here && echo WROTE; rm -f entry && echo REMOVED; \
         python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect('control.sock'); print('CONNECTED')\""
    );
    for who in [&world.bob, &world.ada] {
        let said = world.as_user(who, &touch);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        for word in ["WROTE", "REMOVED", "CONNECTED"] {
            assert!(!said.contains(word), "user {}: {said}", who.uid);
        }
    }
    // Neither the front door: the agent's socket serves processes of jobs only.
    let rsh = test_kit::binaries().dir.join("rms-rsh");
    let call = format!("RMS_AGENT_SOCKET={agent}/agent.sock RMS_JOB_ID={job} {} a1 id", rsh.display());
    let refused = world.as_user(&world.bob, &call);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && !String::from_utf8_lossy(&refused.stdout).contains("uid"), "{said}");

    // Nor can he have the server fetch it: these streams are kept by the node.
    let mut run = world.deployment.command_as(&world.ada.credentials, &["run", "sh", "-c", "echo hush; sleep 1000"]);
    let mut run = run.current_dir(&world.ada.home).spawn().expect("it starts");
    let streamed = wait_until("her second job to run", SOON, || {
        let queue = world.deployment.rms(&["queue", "--json"]).ok().json();
        let is_second = |line: &&Value| line["state"] == "started" && line["job"] != job;
        queue["jobs"].as_array()?.iter().find(is_second)?["job"].as_u64()
    });
    let refused = world.rms(&world.bob, &["logs", &streamed.to_string()]);
    assert!(refused.code != 0 && refused.stderr.contains("ada") && !refused.stdout.contains("hush"), "{refused:?}");
    assert!(!refused.stderr.contains("its output follows"), "what he may not read is not announced: {refused:?}");
    world.rms(&world.ada, &["cancel", &streamed.to_string()]).ok();
    run.wait().expect("it ends");

    // Bob kills all that he can, from inside of a job of his.
    world.ended(&world.bob, &["--wrap", "sleep 1000 & kill -9 -1"]);
    assert_eq!(world.deployment.queued(job).expect("it runs on")["state"], "started");
    world.rms(&world.ada, &["cancel", &job.to_string()]).ok();
    assert_eq!(world.deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
}

#[test]
fn the_key_of_a_job_is_read_by_its_user_and_by_no_other_job() {
    let Some(world) = World::start() else { return };
    let script = "until cat $RMS_JOB_CREDENTIALS/key.pem > key 2> why; do sleep 0.1; done; echo $RMS_JOB_CREDENTIALS \
                  > where; sleep 1000";
    let job = world.submit(&world.ada, &["--negotiable", "--wrap", script]);
    let dir = wait_until("her job to have its key", SOON, || {
        let found = fs::read_to_string(world.ada.home.join("where")).ok()?;
        found.ends_with('\n').then(|| found.trim().to_owned())
    });
    let key = fs::read_to_string(world.ada.home.join("key")).expect("it was written");
    assert!(key.contains("PRIVATE KEY"), "{key}");
    let metadata = fs::metadata(&dir).expect("it is there");
    assert_eq!((metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o777), (0, 61_001, 0o710));
    let made =
        world.as_user(&world.ada, &format!("mkdir {dir}/deep || touch {dir}/more || mv {dir}/key.pem {dir}/other"));
    assert!(!made.status.success(), "the agent removes the directory, and only what it has made itself: {made:?}");
    // Neither from a shell on the node nor in a job of his own, which is given another key.
    let prying = format!("ls {dir}; cat {dir}/key.pem {dir}/cert.pem; cd {dir} && echo ENTERED");
    let said = world.as_user(&world.bob, &prying);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let record = world.ended(&world.bob, &["--negotiable", "--wrap", &format!("({prying}) > pried 2>&1; true")]);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    let pried = fs::read_to_string(world.bob.home.join("pried")).expect("it was written");
    for text in [said, pried] {
        assert!(!text.contains("PRIVATE KEY") && !text.contains("ENTERED") && !text.contains("key.pem\n"), "{text}");
    }
    world.rms(&world.ada, &["cancel", &job.to_string()]).ok();
    world.deployment.wait_for_end(job);
    wait_until("the key to be gone", SOON, || (!PathBuf::from(&dir).exists()).then_some(()));
}

#[test]
fn a_users_job_may_write_to_its_standard_streams_by_name() {
    let Some(world) = World::start() else { return };
    let script = "echo one; echo two > /dev/stderr; echo three > /dev/stdout; echo four >&2; echo six > /dev/stderr";
    let output = world.rms(&world.ada, &["run", "sh", "-c", script]).ok();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("one\nthree\n", "two\nfour\nsix\n"), "{output:?}");
    // In a file of hers, too, and the stream of one is nobody else's.
    let record = world.ended(&world.ada, &["-o", "out", "--wrap", "echo one; echo two >> /dev/stderr"]);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    assert_eq!(fs::read_to_string(world.ada.home.join("out")).expect("written"), "one\ntwo\n");
}
