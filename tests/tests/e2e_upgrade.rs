//! A cluster under load is upgraded program by program, in several orders, and back: nothing is lost, and what runs goes on.
//!
//! Each program is held to an older or to a newer version ([`rms_tests::versions`]); the admin guide has the order.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rms_tests::hostile::Forger;
use rms_tests::versions::{Held, Relay, Schema, leave_as};
use serde_json::Value;
use test_kit::{Deployment, NodeOptions, Output, wait_until};
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(60);

/// So many jobs are submitted at least, however slow the machine is.
const LEAST_LOAD: usize = 5;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A program of the cluster.
#[derive(Clone, Copy, Debug)]
enum Program {
    Node(&'static str),
    Server,
    Clients,
}

use Program::{Clients, Node, Server};

/// A cluster of three nodes, where everything between any two programs goes through a relay.
struct World {
    deployment: Deployment,
    server: Held,
    agents: [Held; 3],
    client: Held,
    client_dir: PathBuf,
    _runtime: Runtime,
}

impl World {
    fn start(all: Schema) -> World {
        let mut deployment = Deployment::builder().start();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let forger = Arc::new(Forger::of(deployment.server_dir()));
        let (server, client) = (Held::to(all), Held::to(all));
        let agents = NODES.map(|_| Held::to(all));
        for (name, agent) in NODES.iter().zip(&agents) {
            let relay = Relay::start(&runtime, &forger, deployment.address(), agent, &server);
            let options = NodeOptions::new("north", name).through(relay.address);
            deployment.join_node(&options);
            deployment.start_agent(&options);
        }
        deployment.wait_for_nodes();
        let relay = Relay::start(&runtime, &forger, deployment.address(), &client, &server);
        let client_dir = deployment.path().join("client");
        fs::create_dir(&client_dir).expect("it is new");
        for file in
            fs::read_dir(deployment.client_dir()).expect("the admin has one").map(|file| file.expect("readable"))
        {
            let text = fs::read_to_string(file.path()).expect("a text");
            let text = text.replace(&deployment.address().to_string(), &relay.address.to_string());
            // An older command knows of no local socket, and no relay stands there.
            let over_network = |line: &str| {
                if line.starts_with("socket") { "socket = \"/none\"\n".to_owned() } else { format!("{line}\n") }
            };
            let text: String = text.lines().map(over_network).collect();
            fs::write(client_dir.join(file.file_name()), text).expect("the directory is ours");
        }
        World { deployment, server, agents, client, client_dir, _runtime: runtime }
    }

    /// The command, over the relay.
    fn rms(&self, arguments: &[&str]) -> Output {
        self.deployment.finish(self.deployment.command_as(&self.client_dir, arguments))
    }

    fn submit(&self, arguments: &[&str]) -> u64 {
        self.rms(&[&["submit", "--json"], arguments].concat()).ok().json()["job"].as_u64().expect("a number")
    }

    fn ended(&self, job: u64) -> Value {
        wait_until(&format!("job {job} to end"), SOON, || {
            let history = self.rms(&["history", &job.to_string(), "--json"]);
            if history.code != 0 {
                return None;
            }
            history.json()["jobs"].as_array()?.iter().find(|record| record["job"] == job).cloned()
        })
    }

    /// Stops a program at once and starts it as one of this version. How many jobs went on on its node meanwhile.
    fn change(&mut self, program: Program, schema: Schema) -> usize {
        match program {
            Node(name) => {
                let idx = NODES.iter().position(|node| *node == name).expect("a node");
                self.deployment.kill_agent(name);
                let before = self.agents[idx].schema();
                let n_jobs = leave_as(before, &self.deployment.agent_dir(name), &self.agents[idx]);
                self.agents[idx].set(schema);
                self.deployment.restart_agent(name);
                n_jobs
            }
            Server => {
                self.deployment.kill_server();
                self.server.set(schema);
                self.deployment.start_server();
                0
            }
            Clients => {
                self.client.set(schema);
                0
            }
        }
    }

    fn wait_for_links(&self) {
        wait_until("all agents to be back", SOON, || {
            let status = self.deployment.rms(&["nodes", "--json"]).ok().json();
            let here = |node: &&Value| ["idle", "busy", "ghost"].iter().any(|state| node["state"] == *state);
            (status["nodes"].as_array()?.iter().filter(here).count() == NODES.len()).then_some(())
        });
    }

    /// What works between any two versions, and what only newer ones have.
    fn exercise(&self) {
        let [client, server] = [&self.client, &self.server].map(|held| held.schema() == Schema::Newer);
        let job = self.submit(&["--account", "physics", "--name", "short", "--wrap", "exit 3"]);
        let record = self.ended(job);
        assert_eq!((&record["outcome"]["code"], &record["name"]), (&3.into(), &"short".into()), "{record}");
        let account = record["account"].as_str().unwrap_or_default();
        assert_eq!(account, if client && server { "physics" } else { "" }, "{record}");
        assert_eq!(self.rms(&["run", "sh", "-c", "echo heard; exit 4"]).fails(4).stdout, "heard\n");
        let held = self.submit(&["--hold", "--wrap", "true"]).to_string();
        let updated = self.rms(&["update", &held, "name=x"]);
        if server {
            updated.ok();
        } else {
            let refused = updated.fails(1).stderr;
            assert!(refused.contains("cannot parse this call"), "the older server knows no update: {refused}");
        }
        self.rms(&["cancel", &held]).ok();
    }
}

/// Submits short jobs, one after the other, until it is told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    submitted: std::thread::JoinHandle<Vec<u64>>,
}

impl Load {
    fn start(world: &World) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (dir, path) = (world.client_dir.clone(), world.deployment.path().to_owned());
        let program = world.deployment.rms_program().to_owned();
        let is_over = Arc::clone(&stop);
        let submitted = std::thread::spawn(move || {
            let mut jobs = Vec::new();
            while !is_over.load(Ordering::Relaxed) || jobs.len() < LEAST_LOAD {
                let script = format!("echo $RMS_JOB_ID >> {}/ran; sleep 0.1", path.display());
                let mut submit = std::process::Command::new(&program);
                submit
                    .args(["submit", "--json", "-t", "1m", "--wrap", &script])
                    .env("RMS_DIR", &dir)
                    .current_dir(&path);
                let output = submit.output().expect("the command starts");
                // While the server is down it is not there for this either.
                let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
                jobs.extend(answer.and_then(|answer| answer["job"].as_u64()).filter(|_| output.status.success()));
                // What one node does beside what else is tried on it.
                std::thread::sleep(Duration::from_millis(200));
            }
            jobs
        });
        Load { stop, submitted }
    }

    /// The jobs whose numbers it was told.
    fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.submitted.join().expect("it ends")
    }
}

/// Brings each program in turn from one version to the other, under load.
fn roll(from: Schema, to: Schema, order: [Program; 5]) {
    let mut world = World::start(from);
    let path = world.deployment.path().to_owned();
    // On two nodes, as long as it takes; a second run would write a second line.
    let script = "echo $RMS_NNODES >> began; while [ ! -e go ]; do sleep 0.05; done; exit 6";
    let long = world.submit(&["-N", "2", "-t", "1h", "--wrap", script]);
    wait_until("the long job to run", SOON, || path.join("began").exists().then_some(()));
    let load = Load::start(&world);
    world.exercise();
    let mut n_taken_over = 0;
    for program in order {
        n_taken_over += world.change(program, to);
        world.wait_for_links();
        world.exercise();
        let line = world.deployment.queued(long).expect("it runs on");
        assert_eq!(line["state"], "started", "after {program:?}: {line}");
    }
    assert!(n_taken_over >= 2, "the long job was on two nodes: {n_taken_over}");
    let submitted = load.stop();
    fs::write(path.join("go"), "").expect("the directory is ours");
    let record = world.ended(long);
    assert_eq!(record["outcome"]["code"], 6, "{record}");
    assert_eq!(fs::read_to_string(path.join("began")).expect("it ran"), "2\n", "it ran once");
    for job in &submitted {
        let record = world.ended(*job);
        assert_eq!(record["outcome"]["word"], "completed", "{record}");
    }
    let ran = fs::read_to_string(path.join("ran")).expect("they ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    let n_ran = ran.len();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), n_ran, "none ran twice");
    assert!(submitted.iter().all(|job| ran.contains(&job.to_string().as_str())), "each ran");
}

#[test]
fn long_the_server_first_as_the_guide_says() {
    roll(Schema::Older, Schema::Newer, [Server, Node("n1"), Node("n2"), Node("n3"), Clients]);
}

#[test]
fn long_node_by_node_then_the_server() {
    roll(Schema::Older, Schema::Newer, [Node("n3"), Node("n1"), Node("n2"), Server, Clients]);
}

#[test]
fn long_clients_first() {
    roll(Schema::Older, Schema::Newer, [Clients, Node("n2"), Server, Node("n3"), Node("n1")]);
}

#[test]
fn long_and_back_again() {
    roll(Schema::Newer, Schema::Older, [Clients, Node("n1"), Node("n2"), Node("n3"), Server]);
}
