//! Launchers as real processes, the SDK's examples, against real deployments.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use launcher_sdk::Client;
use launcher_sdk::launcher::{self, Action, Choice, Launcher, LauncherError, Program, Seen, Start, Subscription, Tag};
use rms_model::{Request, Span};
use rms_tests::apps::{self, Mpi};
use test_kit::{Deployment, NodeOptions, Reaper, binaries, example, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A launcher that runs, and what it has said.
struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the example starts");
        let stdout = child.stdout.take().expect("it is piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                said.lock().expect("no reader panics").push(line);
            }
        });
        Running { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no reader panics").clone()
    }

    /// Waits until a line says this.
    fn says(&self, part: &str) -> String {
        wait_until(&format!("a launcher to say '{part}' beside {:?}", self.lines()), SOON, || {
            self.lines().into_iter().find(|line| line.contains(part))
        })
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it was killed");
    }

    fn ends(mut self) {
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {:?}", self.lines());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command line that ends when the file is there.
fn until(file: &str) -> String {
    format!("while [ ! -e {file} ]; do sleep 0.05; done")
}

/// The id of the only application of this name that waits or runs.
fn job_of(deployment: &Deployment, name: &str) -> u64 {
    wait_until(&format!("'{name}' in the queue"), SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        let line = queue["jobs"].as_array()?.iter().find(|line| line["name"] == name)?;
        line["job"].as_u64()
    })
}

#[test]
fn long_a_rigid_launcher_runs_its_program_on_its_nodes() {
    let deployment = Deployment::of_nodes(3);
    let launcher = Running::start(deployment.example("rigid", &["2", "60", "sh", "-c", "echo on $RMS_NODE_NAME"]));
    let started = launcher.says("started on");
    let nodes = started.trim_start_matches("started on ").split(',').count();
    assert_eq!(nodes, 2, "{started}");
    launcher.says("completed");
    launcher.ends();
    let record = deployment.wait_for_end(1);
    assert_eq!((&record["outcome"]["word"], &record["name"]), (&"completed".into(), &"rigid".into()));
    for task in 0..2 {
        let output = fs::read_to_string(deployment.path().join(format!("rigid-1-{task}.out"))).expect("its output");
        assert!(output.starts_with("on "), "{output}");
    }
}

/// Both clusters where a link between them is worth it, one where it is not or nobody has said what it is like.
#[test]
fn an_iterative_launcher_goes_as_far_as_the_links_between_clusters_allow() {
    let nodes = [("a", "a1"), ("b", "b1")];
    let deployment = nodes
        .into_iter()
        .fold(Deployment::builder(), |builder, (cluster, name)| builder.node(NodeOptions::new(cluster, name)));
    let deployment = deployment.start();
    // 60 s of work, and 100 messages of 5 ms.
    let n_nodes = || {
        let launcher = Running::start(deployment.example("iterative", &["100", "600", "1", "true"]));
        let started = launcher.says("started on");
        launcher.says("completed");
        launcher.ends();
        started.split(',').count()
    };
    assert_eq!(n_nodes(), 1);
    deployment.rms(&["admin", "link", "a", "b", "--latency", "5ms", "--bandwidth", "1000"]).ok();
    assert_eq!(n_nodes(), 2);
    deployment.rms(&["admin", "link", "a", "b", "--latency", "500ms", "--bandwidth", "1000"]).ok();
    assert_eq!(n_nodes(), 1);
}

/// Each sees where there is room for slices, and takes as many cores as are free beside the others.
#[test]
fn moldable_launchers_share_a_node() {
    let node = NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:8 pu:1"]);
    let deployment = Deployment::builder().node(node).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    let script = format!("echo $RMS_CPUS_ON_NODE CPUs; {}", until("all.end"));
    let run =
        |most: &str, secs: &str| Running::start(deployment.example("cores", &["1", secs, most, "sh", "-c", &script]));
    let first = run("4", "400");
    first.says("started on 4 CPUs of a1");
    // In 100 s all cores are free, but 4 of them at once complete first.
    let second = run("8", "400");
    second.says("asks for 4 cores of 1 nodes for 1m40s, in 0s");
    second.says("started on 4 CPUs of a1");
    let third = run("8", "800");
    third.says("asks for 8 cores of 1 nodes for 1m40s");
    fs::write(deployment.path().join("all.end"), "").expect("the directory is ours");
    third.says("started on 8 CPUs of a1");
    for (launcher, job, n_cpus) in [(first, 1, 4), (second, 2, 4), (third, 3, 8)] {
        launcher.says("completed");
        launcher.ends();
        let output = fs::read_to_string(deployment.path().join(format!("cores-{job}-0.out"))).expect("its output");
        assert_eq!(output, format!("{n_cpus} CPUs\n"));
    }
}

#[test]
fn long_a_request_moves_when_anothers_application_ends_and_its_ghost_gives_the_time_for_it() {
    let deployment = Deployment::of_nodes(2);
    deployment.rms(&["admin", "set", "fair_start", "3s"]).ok();
    let short = deployment.submit(&["-t", "100s", "--wrap", &until("short.ends")]);
    deployment.wait_for_state(short, "started");
    let other = Running::start(deployment.example("rigid", &["1", "600", "sh", "-c", &until("long.ends")]));
    other.says("started on");
    let long = job_of(&deployment, "rigid");

    // 400 s on one node: best on the one that is free in 100 s, for two are free in 600 s only.
    let launcher = Running::start(deployment.example("moldable", &["1", "400", "2", "sh", "-c", "exit 0"]));
    launcher.says("asks for 1 nodes for 6m40s");
    let job = job_of(&deployment, "moldable");
    deployment.wait_for_state(job, "waiting");

    // Now two nodes are free in 100 s, which is better than one at once. Without the ghost, one would start.
    fs::write(deployment.path().join("long.ends"), "").expect("the directory is ours");
    launcher.says("asks for 2 nodes for 3m20s");
    deployment.wait_for_end(long);
    other.ends();
    fs::write(deployment.path().join("short.ends"), "").expect("the directory is ours");
    let started = launcher.says("started on");
    assert_eq!(started.split(',').count(), 2, "{started}");
    launcher.says("completed");
    launcher.ends();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
}

#[test]
fn long_a_launcher_that_is_killed_is_lost_after_the_grace() {
    let deployment = Deployment::of_nodes(1);
    deployment.rms(&["admin", "set", "launcher_grace", "1s"]).ok();
    let launcher = Running::start(deployment.example("own_algorithm", &["id", "600", "sleep", "1000"]));
    launcher.says("started on a1");
    let job = job_of(&deployment, "own");
    launcher.kill();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "launcher_lost");
    // Its node is free for others.
    let next = deployment.submit(&["--wrap", "true"]);
    assert_eq!(deployment.wait_for_end(next)["outcome"]["word"], "completed");
}

/// Nobody else could be told of the start.
#[test]
fn long_the_application_of_a_launcher_that_was_killed_is_away_within_three_seconds_and_not_started() {
    let deployment = Deployment::of_nodes(1);
    deployment.rms(&["admin", "set", "launcher_grace", "8s"]).ok();
    let blocker = deployment.submit(&["-t", "100s", "--wrap", &until("go")]);
    deployment.wait_for_state(blocker, "started");
    let launcher = Running::start(deployment.example("rigid", &["1", "60", "true"]));
    let job = job_of(&deployment, "rigid");
    deployment.wait_for_state(job, "waiting");
    let behind = deployment.submit(&["--wrap", "true"]);
    launcher.kill();
    // By then it is noticed: what is free after that is not given to who cannot be told.
    std::thread::sleep(Duration::from_secs(3));
    fs::write(deployment.path().join("go"), "").expect("the directory is ours");
    deployment.wait_for_end(blocker);
    let line = deployment.queued(job).expect("it keeps its place for its grace");
    assert_eq!((&line["state"], &line["reason"]["kind"]), (&"waiting".into(), &"launcher_away".into()), "{line}");
    let told = deployment.rms(&["queue"]).ok().stdout;
    assert!(told.contains("its launcher is away"), "{told}");
    let told = deployment.rms(&["explain", &job.to_string()]).ok().stdout;
    assert!(told.contains("has not been connected since"), "{told}");
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "launcher_lost");
    assert_eq!(deployment.wait_for_end(behind)["outcome"]["word"], "completed");
}

#[test]
fn a_launcher_that_is_started_again_within_the_grace_goes_on() {
    let deployment = Deployment::of_nodes(2);
    let go = until("go");
    let arguments = ["id", "600", "sh", "-c", &format!("echo run on $RMS_NODES; {go}; exit 4")];
    let first = Running::start(deployment.example("own_algorithm", &arguments));
    first.says("run on a1,a2");
    let job = job_of(&deployment, "own");
    first.kill();
    let second = Running::start(deployment.example("own_algorithm", &arguments));
    second.says("started again on a1,a2");
    fs::write(deployment.path().join("go"), "").expect("the directory is ours");
    second.says("failed with exit code 4");
    second.ends();
    let record = deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["word"], &record["outcome"]["code"]), (&"failed".into(), &4.into()));
    assert!(!deployment.path().join("id").exists(), "the launcher forgets an application that has ended");
}

#[test]
fn a_killed_server_loses_no_application_of_a_launcher() {
    let mut deployment = Deployment::of_nodes(1);
    let go = until("go");
    let runs = Running::start(deployment.example("own_algorithm", &["id", "600", "sh", "-c", &go]));
    runs.says("started on a1");
    let job = job_of(&deployment, "own");
    let waits = Running::start(deployment.example("rigid", &["1", "60", "true"]));
    let waiting = job_of(&deployment, "rigid");
    deployment.wait_for_state(waiting, "waiting");

    deployment.kill_server();
    deployment.start_server();

    fs::write(deployment.path().join("go"), "").expect("the directory is ours");
    runs.says("completed");
    runs.ends();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    waits.says("started on a1");
    waits.says("completed");
    waits.ends();
    assert_eq!(deployment.wait_for_end(waiting)["outcome"]["word"], "completed");
}

#[test]
fn long_an_mpi_launcher_starts_as_many_ranks_as_its_nodes_have_cpus() {
    let node = |name: &str| NodeOptions::new("a", name).with(&["--topology", "pack:1 core:2 pu:1"]);
    let deployment = Deployment::builder().node(node("a1")).node(node("a2")).start();
    for (idx, mpi) in Mpi::ALL.into_iter().filter(|mpi| mpi.compiler().is_some()).enumerate() {
        let program = apps::build(mpi, "hello").expect("it compiles").expect("it is installed");
        let (program, mpirun) = (text(&program), mpi.mpirun().map(|path| text(&path)));
        let by_mpirun = match (mpi, &mpirun) {
            // Its ranks need nobody between them and the agents.
            (Mpi::Mpich, _) | (Mpi::OpenMpi, None) => Vec::new(),
            (Mpi::OpenMpi, Some(mpirun)) => vec!["--mpirun", mpirun],
        };
        let launcher = Running::start(deployment.example("mpi", &[&by_mpirun[..], &["1=120,2=60", &program]].concat()));
        launcher.says("started 4 ranks on a1,a2");
        launcher.says("completed");
        launcher.ends();
        let file = |task: u32| deployment.path().join(format!("mpi-{}-{task}.out", idx + 1));
        // All of it is that of the script's only task where mpirun collects it.
        let output: String = (0..4).map(|task| fs::read_to_string(file(task)).unwrap_or_default()).collect();
        assert_eq!(output.matches("ranks=4").count(), 4, "{}: {output}", mpi.name());
    }
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn launchers_run_against_the_cluster_of_rms_up() {
    let dir = tempfile::Builder::new().prefix("limber-test-").tempdir().expect("a temporary directory");
    let _reaper = Reaper::new(dir.path());
    let up = dir.path().join("up");
    let rms = |arguments: &[&str]| {
        let mut command = Command::new(&binaries().rms);
        let output = command.args(arguments).env("RMS_DIR", &up).current_dir(dir.path()).output().expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    rms(&["up", "--dir", &up.to_string_lossy(), "--nodes", "2"]);
    let mut moldable = Command::new(example("moldable"));
    moldable.args(["0.5", "60", "2", "true"]).env("RMS_DIR", &up).current_dir(dir.path());
    let launcher = Running::start(moldable);
    launcher.says("asks for 2 nodes for 45s, in 0s");
    launcher.says("completed");
    launcher.ends();
    assert!(rms(&["history"]).contains("moldable"));
    rms(&["down"]);
}

#[test]
fn long_a_model_gives_every_size_its_time_and_the_best_is_planned_and_started() {
    let deployment = Deployment::of_nodes(4);
    let blocker = deployment.submit(&["-N", "3", "-t", "600s", "--wrap", &until("go")]);
    deployment.wait_for_state(blocker, "started");
    let flags = ["-N", "1-4", "--amdahl", "1", "-t", "1000s"];
    let plan = |more: &[&str]| deployment.rms(&[&["plan"], &flags[..], more].concat()).ok();
    // One node now for 1000 s, or two, three, four in 600 s for 500, 334 and 250 s: four end first, at 850 s.
    let sizes = plan(&["--json"]).json()["sizes"].clone();
    let best: Vec<(u64, i64)> = sizes
        .as_array()
        .expect("a list")
        .iter()
        .filter(|size| size["best"] == true)
        .map(|size| (size["nodes"].as_u64().expect("a number"), size["wall_ms"].as_i64().expect("a number")))
        .collect();
    assert_eq!(best, [(4, 250_000)]);
    assert_eq!(sizes.as_array().map(Vec::len), Some(4));
    assert_eq!(plan(&["-q"]).stdout.trim(), "4");
    assert!(plan(&[]).stdout.contains(" now "), "one node is free");
    let one = deployment.rms(&["submit", "--test-only", "-N", "1", "--wrap", "true"]).ok();
    assert!(one.stdout.contains("at once"), "{}", one.stdout);
    assert_eq!(deployment.rms(&["queue", "-q"]).ok().stdout.trim(), blocker.to_string(), "nothing was submitted");

    let job = deployment.submit(&[&flags[..], &["--wrap", "echo $RMS_NNODES"]].concat());
    let waiting = deployment.wait_for_state(job, "waiting");
    assert_eq!(waiting["request"]["wall_ms"], 250_000, "{waiting}");
    fs::write(deployment.path().join("go"), "").expect("the directory is ours");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["nodes"].as_array().map(Vec::len), Some(4), "{record}");
    // By measured times, more nodes need not be better.
    fs::write(deployment.path().join("times"), "# measured\n1 10m\n2 5m\n4 6m\n").expect("the directory is ours");
    assert_eq!(deployment.rms(&["plan", "--table", "times", "-q"]).ok().stdout.trim(), "2");
}

#[test]
fn what_an_admin_says_of_clusters_reaches_launchers_and_what_they_cost_is_counted() {
    let deployment = Deployment::builder().cluster("a", 1).cluster("b", 1).start();
    deployment.rms(&["admin", "set", "fair_start@a", "7s"]).ok();
    assert_eq!(deployment.rms(&["admin", "show", "fair_start@a", "-q"]).ok().stdout.trim(), "7s");
    assert_eq!(deployment.rms(&["admin", "show", "fair_start@b", "-q"]).ok().stdout.trim(), "default");
    let refused = deployment.rms(&["admin", "set", "fair_start@nowhere", "7s"]).fails(1);
    assert!(refused.stderr.contains("nowhere"), "{refused:?}");
    deployment.rms(&["admin", "link", "b", "a", "--latency", "5ms", "--bandwidth", "1000"]).ok();
    let refused = deployment.rms(&["admin", "link", "a", "nowhere", "--latency", "5ms"]).fails(1);
    assert!(refused.stderr.contains("nowhere"), "{refused:?}");

    let client = launcher_sdk::blocking::Client::connect(deployment.client_dir()).expect("the admin's directory");
    let mut session = client.subscribe(Subscription::named("looks")).expect("a subscription");
    let infos = session.clusters().expect("an answer");
    let names: Vec<&str> = infos.clusters.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((infos.links[0].latency_us, infos.links[0].bandwidth_mbit), (5000, 1000));

    // Both ends count what is on its way at other moments: read on until they agree.
    let deadline = Instant::now() + SOON;
    let traffic = loop {
        let status = deployment.rms(&["admin", "status", "--json"]).ok().json();
        let launchers = &status["launchers"];
        assert_eq!((&launchers["connected"], &launchers["channels"]["open"]), (&1.into(), &1.into()), "{status}");
        let traffic = session.traffic();
        if launchers["bytes"]["sent"].as_u64() == Some(traffic.received) {
            break traffic;
        }
        assert!(Instant::now() < deadline, "the launcher received {} bytes of {status}", traffic.received);
        session.wait_at_most(Duration::from_millis(100)).expect("the connection holds");
    };
    assert!(traffic.sent > 0);
    session.finish(Tag(0), 0).expect("it withdraws");
    let line = deployment.rms(&["admin", "status"]).ok().stdout;
    assert!(line.contains("launchers  0 of 0 connected; 1 channels were opened"), "{line}");
}

/// Asks for a node at once, and then thinks for longer than anybody has patience.
struct Thinker {
    n_thoughts: Arc<AtomicU32>,
    n_starts: Arc<AtomicU32>,
}

impl Launcher for Thinker {
    fn choose(&mut self, seen: &Seen<'_>) -> Choice {
        if seen.requested().is_none() {
            let cluster = seen.clusters()[0].cluster;
            return Choice::Now(Some(Request::on_one(cluster, 1, Span::from_mins(10)).into()));
        }
        let n_thoughts = Arc::clone(&self.n_thoughts);
        Choice::compute(move || {
            n_thoughts.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(SOON);
            None::<Request>
        })
    }

    fn on_start(&mut self, _start: &Start) -> Action {
        self.n_starts.fetch_add(1, Ordering::Relaxed);
        Action::GiveUp { code: 300 }
    }
}

#[test]
fn a_launcher_that_computes_is_told_of_its_start_and_its_end() {
    let deployment = Deployment::of_nodes(1);
    let blocker = deployment.submit(&["-t", "1000s", "--wrap", &until("go")]);
    deployment.wait_for_state(blocker, "started");
    let (n_thoughts, n_starts) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut thinker = Thinker { n_thoughts: Arc::clone(&n_thoughts), n_starts: Arc::clone(&n_starts) };
    let dir = deployment.client_dir().to_owned();
    let launcher = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = Client::connect(&dir).await.expect("a server");
            launcher::run(&client, Subscription::named("thinker"), &mut thinker).await.expect("it is told")
        })
    });
    let job = job_of(&deployment, "thinker");
    deployment.wait_for_state(job, "waiting");
    // What comes before it changes its view, so that it begins to think.
    let urgent = deployment.submit(&["-t", "500s", "--priority", "9", "--wrap", "true"]);
    wait_until("a thought", SOON, || (n_thoughts.load(Ordering::Relaxed) == 1).then_some(()));
    let began = Instant::now();
    deployment.rms(&["cancel", &urgent.to_string()]).ok();
    fs::write(deployment.path().join("go"), "").expect("the directory is ours");
    let outcome = launcher.join().expect("it does not panic");
    assert_eq!(outcome.to_string(), "failed with exit code 255", "no process ends with 300");
    assert!(began.elapsed() < SOON / 2, "it waited for its own thoughts: {:?}", began.elapsed());
    assert_eq!((n_thoughts.load(Ordering::Relaxed), n_starts.load(Ordering::Relaxed)), (1, 1));
}

/// More of them than a link has channels.
#[test]
fn one_client_serves_many_applications() {
    let deployment = Deployment::of_nodes(1);
    let client = launcher_sdk::blocking::Client::connect(deployment.client_dir()).expect("the admin's directory");
    let subscribe = |_| client.subscribe(Subscription::named("one of many")).expect("a channel for each");
    let sessions: Vec<_> = (0..300).map(subscribe).collect();
    let status = deployment.rms(&["admin", "status", "--json"]).ok().json();
    assert_eq!(status["launchers"]["connected"], 300, "{status}");
    drop(sessions);
}

/// Launches what no frame can carry.
struct TooLarge;

impl Launcher for TooLarge {
    fn choose(&mut self, seen: &Seen<'_>) -> Choice {
        Choice::Now(Some(Request::on_one(seen.clusters()[0].cluster, 1, Span::from_mins(10)).into()))
    }

    fn on_start(&mut self, _start: &Start) -> Action {
        Action::launch(Program::new(["true".to_owned(), "x".repeat(9 << 20)]))
    }
}

#[test]
fn an_application_whose_launch_is_too_large_ends() {
    let deployment = Deployment::of_nodes(1);
    let client = launcher_sdk::blocking::Client::connect(deployment.client_dir()).expect("the admin's directory");
    let error = client.launch(Subscription::named("too large"), &mut TooLarge).expect_err("it is refused");
    assert!(matches!(&error, LauncherError::Refused(refused) if refused.kind == "too_large"), "{error:?}");
    let record = deployment.rms(&["history", "--json"]).ok().json()["jobs"][0].clone();
    assert_eq!(record["name"], "too large", "{record}");
}

/// By the clock of a session one knows how long the server waits, also without any view.
#[test]
fn a_session_knows_the_clock_of_the_server_from_the_start() {
    let deployment = Deployment::of_nodes(1);
    let client = launcher_sdk::blocking::Client::connect(deployment.client_dir()).expect("the admin's directory");
    let mut session = client.subscribe(Subscription::named("looks")).expect("a subscription");
    let until = session.request_until().expect("there is a limit");
    assert!((Span::ZERO..Span::from_hours(2)).contains(&until.since(session.now())), "{:?}", session.now());
    let cluster = session.clusters().expect("an answer").clusters[0].cluster;
    session.request(Tag(1), Request::on_one(cluster, 1, Span::from_mins(10))).expect("it is free");
    deployment.wait_for_state(session.job().0, "started");
    let mut again = client.attach(session.job()).expect("it is attached");
    let since = again.now().since(until);
    assert!(since.as_millis().abs() < Span::from_hours(2).as_millis(), "{:?}", again.now());
    again.finish(Tag(1), 0).expect("it ends");
}
