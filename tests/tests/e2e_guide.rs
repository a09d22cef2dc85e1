//! The administrator's guide, to the letter: an installation on hosts of their own, and the script that looks at one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rms_tests::network::Network;
use tempfile::TempDir;
use test_kit::{Deployment, Reaper, binaries, wait_until};

const SOON: Duration = Duration::from_secs(40);

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("it is ours");
    fs::write(path, text).expect("it is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// An installation below a directory, with the programs of the system that the script asks played by scripts.
struct Installation {
    root: TempDir,
}

impl Installation {
    fn right() -> Installation {
        let installation = Installation { root: tempfile::tempdir().expect("a directory") };
        let at = |path: &str| installation.at(path);
        write(&at("etc/limber/rms-server.toml"), &fs::read_to_string(shipped("rms-server.toml")).unwrap(), 0o644);
        write(&at("var/lib/limber/server/journal.db"), "", 0o600);
        fs::set_permissions(at("var/lib/limber/server"), fs::Permissions::from_mode(0o700)).expect("it is ours");
        write(&at("var/lib/limber/agent/credentials/key.pem"), "", 0o600);
        write(&at("var/lib/limber/agent/agent.toml"), "server = \"head:7117\"\n", 0o644);
        for program in ["rms", "rms-server", "node-agent", "rms-rsh"] {
            fs::create_dir_all(at("usr/bin")).expect("it is ours");
            symlink(binaries().dir.join(program), at("usr/bin").join(program)).expect("it is ours");
        }
        let systemctl = "#!/bin/sh\n[ \"$1\" = show ] || exit 0\ncase $3 in Delegate) echo Delegate=yes;; \
                         KillMode) echo KillMode=process;; esac\n";
        write(&at("usr/bin/systemctl"), systemctl, 0o755);
        write(&at("usr/bin/ss"), "#!/bin/sh\necho UNCONN\n", 0o755);
        installation
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// What the script says, and whether all is well.
    fn verify(&self) -> (String, bool) {
        let own = nix::unistd::User::from_uid(nix::unistd::getuid()).expect("a lookup").expect("a user").name;
        let path = format!("{}:/usr/bin:/bin", self.at("usr/bin").display());
        let output = Command::new("bash")
            .arg(shipped("verify.sh"))
            .args(["server", "agent", "client"])
            .env_clear()
            .envs([("PATH", path), ("LIMBER_USER", own.clone()), ("LIMBER_AGENT_USER", own)])
            .env("LIMBER_ROOT", self.root.path())
            .env("HOME", self.at("home"))
            .output()
            .expect("a shell");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }
}

#[test]
fn a_right_installation_is_called_right() {
    let (said, is_well) = Installation::right().verify();
    assert!(is_well && said.ends_with("all is well\n") && !said.contains("WRONG"), "{said}");
    assert!(said.contains("has joined no cluster"), "root need not be a user: {said}");
}

#[test]
fn each_thing_that_is_wrong_is_named() {
    type Break = fn(&Installation);
    let cases: &[(&str, Break)] = &[
        ("rms-server.toml is right", |wrong| {
            write(&wrong.at("etc/limber/rms-server.toml"), "[settings]\nmax_wall = \"1m\"\n", 0o644);
        }),
        ("/var/lib/limber/server is private (mode 755)", |wrong| {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(wrong.at("var/lib/limber/server"), mode).expect("it is ours");
        }),
        ("there is one configuration", |wrong| write(&wrong.at("var/lib/limber/server/rms-server.toml"), "", 0o644)),
        ("credentials/key.pem is private (mode 644)", |wrong| {
            write(&wrong.at("var/lib/limber/agent/credentials/key.pem"), "", 0o644);
        }),
        ("agent.toml leads to the server (127.0.0.1:7117 is this machine", |wrong| {
            write(&wrong.at("var/lib/limber/agent/agent.toml"), "server = \"127.0.0.1:7117\"\n", 0o644);
            fs::rename(wrong.at("var/lib/limber/server"), wrong.at("elsewhere")).expect("it is ours");
        }),
        ("agent.toml is right", |wrong| {
            write(&wrong.at("var/lib/limber/agent/agent.toml"), "server = \"head:7117\"\nspeed = 0.0\n", 0o644);
        }),
        ("the program rms is on the path", |wrong| fs::remove_file(wrong.at("usr/bin/rms")).expect("it is there")),
        ("the unit rms-server runs", |wrong| write(&wrong.at("usr/bin/systemctl"), "#!/bin/sh\nexit 3\n", 0o755)),
        ("the unit has Delegate=yes", |wrong| write(&wrong.at("usr/bin/systemctl"), "#!/bin/sh\nexit 0\n", 0o755)),
        ("UDP port 7117 is open here", |wrong| write(&wrong.at("usr/bin/ss"), "#!/bin/sh\n", 0o755)),
    ];
    for (expected, make_wrong) in cases {
        let installation = Installation::right();
        make_wrong(&installation);
        let (said, is_well) = installation.verify();
        let is_named = said.lines().any(|line| line.starts_with("WRONG") && line.contains(expected));
        assert!(is_named && !is_well, "{expected} is not named:\n{said}");
    }
    if nix::unistd::geteuid().is_root() {
        let installation = Installation::right();
        let file = installation.at("var/lib/limber/server/journal.db");
        std::os::unix::fs::chown(&file, Some(12_345), None).expect("root may");
        let (said, is_well) = installation.verify();
        assert!(said.contains("all in /var/lib/limber/server belongs to") && !is_well, "{said}");
    }
}

/// Host 0 has the server, 1 and 2 are nodes, and people work on host 3. Fields drop in order.
struct Lab {
    children: Vec<(String, Child)>,
    _reaper: Reaper,
    network: Network,
    dir: TempDir,
}

impl Lab {
    fn on(&self, host: u8, program: &Path, arguments: &[&str]) -> Command {
        let name = format!("host{host}");
        let mut words = self.network.enter(host, Some(&name));
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).env("HOME", self.home(host)).env_remove("RMS_DIR");
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").current_dir(self.dir.path());
        command
    }

    fn home(&self, host: u8) -> PathBuf {
        let home = self.dir.path().join(format!("home{host}"));
        fs::create_dir_all(&home).expect("it is ours");
        home
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn try_run(&self, mut command: Command) -> (bool, String) {
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.success(), said)
    }

    fn run(&self, command: Command) -> String {
        let what = format!("{command:?}");
        let (is_done, said) = self.try_run(command);
        assert!(is_done, "{what}:\n{said}\n{}", self.logs());
        said.trim_end().to_owned()
    }

    fn logs(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        ["server.log", "host1.log", "host2.log"].map(|name| format!("== {name}\n{}", read(name))).concat()
    }

    fn admin(&self, arguments: &[&str]) -> String {
        let admin = self.at("server/admin");
        self.run(self.on(0, &binaries().rms, &[&["--dir", &admin], arguments].concat()))
    }

    fn start(&mut self, name: &str, mut command: Command, ready: &str) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.at(&format!("{name}.log")));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.expect("ours")).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let is_ready = lines.into_iter().any(|line| line.starts_with(ready));
        assert!(is_ready, "{name} did not start:\n{}", self.logs());
        self.children.push((name.to_owned(), child));
    }

    fn stop(&mut self, name: &str) {
        let idx = self.children.iter().position(|(known, _)| known == name).expect("it runs");
        let (_, mut child) = self.children.remove(idx);
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is our child");
        child.wait().expect("it is our child");
    }

    fn start_server(&mut self) {
        let (dir, config) = (self.at("server"), self.at("rms-server.toml"));
        let run = self.on(0, &binaries().server, &["run", "--dir", &dir, "--config", &config]);
        self.start("server", run, "listening on 0.0.0.0:7117");
    }

    fn restart_server(&mut self) {
        self.stop("server");
        self.start_server();
    }

    fn start_agent(&mut self, host: u8) {
        let dir = self.at(&format!("agent{host}"));
        let run = self.on(host, &binaries().agent, &["run", "--dir", &dir, "--cgroup", "none"]);
        self.start(&format!("host{host}"), run, "connected to");
    }

    fn join(&self, host: u8) {
        let token = self.admin(&["token", "create", "--role", "agent", "--cluster", "a", "-q"]);
        let dir = self.at(&format!("agent{host}"));
        self.run(self.on(host, &binaries().agent, &["join", "--dir", &dir, &token]));
    }

    fn user(&self, arguments: &[&str]) -> String {
        self.run(self.on(3, &binaries().rms, arguments))
    }

    /// Who has not followed the change of the authority.
    fn behind(&self) -> String {
        self.run(self.on(0, &binaries().server, &["ca", "status", "--dir", &self.at("server")]))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // The reaper looks after what they leave.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// By the guide: the shipped configuration as it is, tokens as they are printed.
fn lab() -> Option<Lab> {
    let network = Network::of_hosts(4)?;
    let dir = tempfile::Builder::new().prefix("limber-guide-").tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut lab = Lab { children: Vec::new(), _reaper: Reaper::new(dir.path()), network, dir };
    fs::copy(shipped("rms-server.toml"), lab.at("rms-server.toml")).expect("it is shipped");
    let (server, config) = (lab.at("server"), lab.at("rms-server.toml"));
    let init = ["init", "--dir", &server, "--config", &config, "--name", "example", "--admin"];
    let (is_made, said) = lab.try_run(lab.on(0, &binaries().server, &[&init[..], &[""]].concat()));
    assert!(!is_made && said.contains("--admin is empty: write the login name"), "{said}");
    lab.run(lab.on(0, &binaries().server, &[&init[..], &["root"]].concat()));
    assert!(!Path::new(&server).join("rms-server.toml").exists(), "there is one configuration");
    lab.start_server();
    for host in [1, 2] {
        lab.join(host);
        lab.start_agent(host);
    }
    let token = lab.admin(&["token", "create", "--role", "user", "--name", "root", "-q"]);
    assert!(token.ends_with("@10.77.0.1:7117"), "{token}");
    lab.user(&["join", &token]);
    Some(lab)
}

#[test]
fn long_a_lab_is_installed_by_the_guide_and_joins_again_without_removing_anything() {
    let Some(lab) = lab() else { return };
    let mut names: Vec<String> = lab.user(&["run", "-N", "2", "hostname"]).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["host1", "host2"]);
    // A join that cannot be says where, and why.
    let wrong = ["token", "create", "--role", "user", "--name", "bob", "-q", "--address", "10.77.0.4:7117"];
    let (is_done, said) = lab.try_run(lab.on(1, &binaries().rms, &["join", &lab.admin(&wrong)]));
    assert!(!is_done && said.contains("cannot join at 10.77.0.4:7117") && said.contains("(refused)"), "{said}");
    // A user and a node join again: nothing is removed first, and what they had is revoked.
    let job = lab.user(&["submit", "-q", "-t", "10m", "--wrap", "sleep 300"]);
    let valid = |of: &str| {
        let all: serde_json::Value = serde_json::from_str(&lab.admin(&["token", "certificates", "--json"])).unwrap();
        let all = all["certificates"].as_array().expect("a list").clone();
        all.iter().filter(|one| one["identity"] == of && one["revoked"].is_null()).count()
    };
    let token = lab.admin(&["token", "create", "--role", "user", "--name", "root", "-q"]);
    lab.user(&["join", &token]);
    wait_until("the older certificate to be revoked", SOON, || (valid("user/root") == 1).then_some(()));
    lab.join(1);
    wait_until("the agent's older certificate to be revoked", SOON, || (valid("agent/host1") == 1).then_some(()));
    wait_until("host1 to be back by its new certificate", SOON, || {
        let nodes: serde_json::Value = serde_json::from_str(&lab.user(&["nodes", "--json"])).ok()?;
        let nodes = nodes["nodes"].as_array()?.clone();
        nodes.iter().all(|node| node["state"] == "busy" || node["state"] == "idle").then_some(())
    });
    assert!(lab.user(&["queue"]).contains("started"), "the job goes on");
    let audit = lab.admin(&["admin", "audit"]);
    for word in ["token-create", "token-redeem", "node-join", "agent/host1"] {
        assert!(audit.contains(word), "{word} is not in the audit:\n{audit}");
    }
    lab.user(&["cancel", &job]);
}

#[test]
fn long_the_authority_is_changed_while_jobs_run() {
    let Some(mut lab) = lab() else { return };
    lab.user(&["submit", "-N", "2", "-t", "10m", "--wrap", "sleep 400"]);
    let server = lab.at("server");
    let step = |lab: &Lab, step: &str| lab.try_run(lab.on(0, &binaries().server, &["ca", step, "--dir", &server]));
    let old = lab.at("old");
    lab.run({
        let mut copy = Command::new("cp");
        copy.args(["-a", &lab.home(3).join(".config/limber").display().to_string(), &old]);
        copy
    });
    for (name, what) in [("begin", "a second CA is trusted"), ("switch", "the new CA signs")] {
        let (is_done, said) = step(&lab, name);
        assert!(is_done && said.contains(what), "{said}");
        lab.restart_server();
        // Agents follow by themselves, people with their next command.
        lab.user(&["nodes"]);
        lab.admin(&["nodes"]);
        wait_until("the agents to follow", SOON, || (!lab.behind().contains("agent/")).then_some(()));
        assert!(!lab.behind().contains("not renewed"), "{}", lab.behind());
        let (is_done, said) = step(&lab, "begin");
        assert!(!is_done && said.contains("the next step is"), "{said}");
    }
    let (is_done, said) = step(&lab, "finish");
    assert!(is_done && said.contains("one CA signs and is trusted"), "{said}");
    lab.restart_server();
    wait_until("the job to be there with both nodes", SOON, || {
        let nodes: serde_json::Value = serde_json::from_str(&lab.user(&["nodes", "--json"])).ok()?;
        nodes["nodes"].as_array()?.iter().all(|node| node["state"] == "busy").then_some(())
    });
    assert!(lab.user(&["queue"]).contains("started"), "it ran on through three restarts");
    // What was signed by the old CA is worth nothing any more; who has followed sees no difference.
    let (is_done, said) = lab.try_run(lab.on(3, &binaries().rms, &["--dir", &old, "nodes"]));
    assert!(!is_done, "{said}");
    lab.user(&["cancel", "all"]);
    let token = lab.admin(&["token", "create", "--role", "user", "--name", "bob", "-q"]);
    lab.run(lab.on(3, &binaries().rms, &["--dir", &lab.at("bob"), "join", &token]));
}

/// A command of the deployment that has said that it is up.
fn up(deployment: &Deployment, arguments: &[&str]) -> Child {
    let mut command = deployment.command(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("rms");
    let mut first = [0; 1];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut first).expect("it says something");
    child
}

fn interrupt(child: &Child) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it is our child");
}

#[test]
fn long_ctrl_c_does_what_the_guide_says() {
    use std::os::unix::process::ExitStatusExt as _;
    let deployment = Deployment::of_nodes(1);
    // Once asks the job to end: it may do so by itself.
    let polite = "trap 'echo bye > bye; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let mut run = up(&deployment, &["run", "sh", "-c", polite]);
    interrupt(&run);
    assert_eq!(run.wait().expect("it ends").code(), Some(130));
    assert_eq!(fs::read_to_string(deployment.path().join("bye")).expect("it was asked"), "bye\n");
    // Twice kills it, long before the grace time is over.
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let mut run = up(&deployment, &["run", "sh", "-c", deaf]);
    let begun = std::time::Instant::now();
    interrupt(&run);
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&run);
    assert_eq!(run.wait().expect("it ends").code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(7), "it took {:?}", begun.elapsed());
    // Who only looks leaves, and the job goes on.
    let job = deployment.submit(&["--wrap", "sleep 100"]);
    deployment.wait_for_state(job, "started");
    let mut watch = up(&deployment, &["queue", "-w"]);
    interrupt(&watch);
    assert_eq!(watch.wait().expect("it ends").code(), Some(0));
    let mut wait = deployment.command(&["wait", &job.to_string()]).spawn().expect("rms");
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&wait);
    assert_eq!(wait.wait().expect("it ends").signal(), Some(2));
    deployment.wait_for_state(job, "started");
}
