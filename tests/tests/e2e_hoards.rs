//! What one identity may have the server hold for jobs that it follows or watches, however many and however little it reads.

use std::fs::File;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rms_api::Call;
use rms_api::call::{Query, Select, Submission};
use rms_model::{JobId, Role, Work};
use rms_tests::hostile::{self, Forger, ask, block_on, raw, say_hello};
use rms_wire::tls::ALPN;
use rms_wire::{ClientRequest, Credentials, Follow, Kind, Offset, Stream, Watch};
use test_kit::{Deployment, wait_until};
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(30);
/// What anybody may have of the server.
const MOST_KIB: u64 = 64 << 10;
/// And what may stay of that when they have gone.
const MOST_KEPT_KIB: u64 = 16 << 10;

/// A job of so many nodes that has written much more than all buffers hold, and runs.
fn talkative(deployment: &Deployment, n_nodes: usize) -> (Child, u64) {
    let jobs = || deployment.rms(&["queue", "-q"]).ok().stdout.lines().filter_map(|id| id.parse().ok()).max();
    let before: Option<u64> = jobs();
    let nodes = n_nodes.to_string();
    let write = "head -c 16M /dev/zero; touch done.$RMS_JOB_ID.$RMS_TASK_ID; sleep 600";
    let mut command = deployment.command(&["run", "-N", &nodes, "-n", &nodes, "-D", ".", "sh", "-c", write]);
    let null = File::options().write(true).open("/dev/null").expect("it is there");
    let run = command.stdout(null).stderr(Stdio::null()).spawn().expect("it starts");
    let job = wait_until("it to be in the queue", SOON, || jobs().filter(|job| Some(*job) > before));
    let done = |task| deployment.path().join(format!("done.{job}.{task}")).exists();
    wait_until("all to be written", SOON, || (0..n_nodes).all(done).then_some(()));
    (run, job)
}

fn follow(job: u64) -> ClientRequest {
    ClientRequest::Follow(Follow { job: JobId(job), run: None, from: Vec::new(), input: false, input_from: None })
}

fn details(select: Select) -> ClientRequest {
    ClientRequest::Call(Call::Query(Query::Job(select)))
}

/// The streams on which these calls were made, as many as the server lets one identity open.
async fn calls(
    deployment: &Deployment,
    who: &Credentials,
    call: &ClientRequest,
    n_calls: usize,
) -> Vec<(quinn::Connection, quinn::SendStream, quinn::RecvStream)> {
    let frame = rms_wire::codec::encode(call).expect("it fits");
    let mut made = Vec::new();
    while made.len() < n_calls {
        let connection = raw(deployment.address(), ALPN, Some(who)).await.expect("connected");
        say_hello(&connection).await;
        let before = made.len();
        while made.len() < n_calls {
            let opened = tokio::time::timeout(Duration::from_millis(200), connection.open_bi()).await;
            let Ok(Ok((mut send, receive))) = opened else { break };
            let sent = tokio::time::timeout(Duration::from_secs(5), send.write_all(&frame)).await;
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
            let _ = send.finish();
            made.push((connection.clone(), send, receive));
        }
        if made.len() == before {
            break;
        }
    }
    made
}

/// Large frames that begin on so many channels, and do not end before these tasks are aborted.
async fn unfinished(deployment: &Deployment, who: &Credentials, n_frames: usize) -> Vec<JoinHandle<()>> {
    let frame = Arc::new(hostile::frame(Kind::ClientRequest.number(), 1, 8 << 20, &vec![0; 7 << 20]));
    let connection = raw(deployment.address(), ALPN, Some(who)).await.expect("connected");
    say_hello(&connection).await;
    let mut begun = Vec::new();
    for _ in 0..n_frames {
        let (mut send, receive) = connection.open_bi().await.expect("a channel");
        let (connection, frame) = (connection.clone(), Arc::clone(&frame));
        begun.push(tokio::spawn(async move {
            let _ = send.write_all(&frame).await;
            connection.closed().await;
            drop((send, receive));
        }));
    }
    begun
}

/// The most that the server holds more than `before` within some seconds.
async fn grown(deployment: &Deployment, before: u64) -> u64 {
    let mut grown = 0;
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        grown = grown.max(deployment.server_resident_kib().saturating_sub(before));
    }
    grown
}

#[test]
fn long_output_that_one_identity_follows_and_does_not_read_takes_little_memory() {
    let deployment = Deployment::of_nodes(2);
    let (mut run, job) = talkative(&deployment, 2);
    let forger = Forger::of(deployment.server_dir());
    let hoarder = forger.credentials(Role::Admin, "root");
    block_on(async {
        let before = deployment.server_resident_kib();
        for time in ["first", "second"] {
            let held = calls(&deployment, &hoarder, &follow(job), 500).await;
            assert!(held.len() >= 400, "only {} follows could be made the {time} time", held.len());
            let grown = grown(&deployment, before).await;
            println!("{} follows that are not read, the {time} time: {grown} KiB", held.len());
            assert!(grown < MOST_KIB, "the server holds {grown} KiB for {} follows", held.len());
            // Others, and who has the same name, get their answers.
            let other = forger.credentials(Role::User, "other");
            ask(&hostile::link(deployment.address(), &other).await.expect("it gets in")).await;
            drop(held);
            let kept = || deployment.server_resident_kib().saturating_sub(before);
            let begun = Instant::now();
            while kept() >= MOST_KEPT_KIB && begun.elapsed() < SOON {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            println!("{:?} after the {time} time: {} KiB", begun.elapsed(), kept());
            assert!(kept() < MOST_KEPT_KIB, "the server keeps {} KiB when they have gone", kept());
        }
    });
    // What it wrote still comes to who reads.
    run.kill().expect("it is our child");
    run.wait().expect("it was killed");
    deployment.rms(&["cancel", &job.to_string()]).ok();
    deployment.wait_for_end(job);
    let logs = deployment.command(&["logs", &job.to_string()]).output().expect("it ends");
    let n_zeros = logs.stdout.iter().filter(|byte| **byte == 0).count();
    assert_eq!((logs.status.code(), n_zeros), (Some(0), 32 << 20));
}

#[test]
fn long_offsets_of_follows_and_jobs_of_watches_take_little_memory() {
    let deployment = Deployment::of_nodes(2);
    let (mut run, job) = talkative(&deployment, 2);
    let forger = Forger::of(deployment.server_dir());
    let hoarder = forger.credentials(Role::Admin, "root");
    block_on(async {
        let before = deployment.server_resident_kib();
        let offset = |task| Offset { node_idx: 0, task, stream: Stream::Out, offset: 0 };
        let from: Vec<Offset> = (0..60_000).map(offset).collect();
        let follow = ClientRequest::Follow(Follow { job: JobId(job), run: None, from, input: false, input_from: None });
        let follows = calls(&deployment, &hoarder, &follow, 120).await;
        let watch = ClientRequest::Watch(Watch { jobs: vec![JobId(job); 10_000] });
        let watches = calls(&deployment, &hoarder, &watch, 300).await;
        let grown = grown(&deployment, before).await;
        println!("{} follows, {} watches: {grown} KiB", follows.len(), watches.len());
        assert!(grown < MOST_KIB, "the server holds {grown} KiB");
        let other = forger.credentials(Role::User, "other");
        ask(&hostile::link(deployment.address(), &other).await.expect("it gets in")).await;
        drop((follows, watches));
    });
    run.kill().expect("it is our child");
    run.wait().expect("it was killed");
}

/// One person has two places to hoard from: commands with a user's certificate, and processes of several jobs with the jobs'
/// own. All of them follow, ask for long answers, and begin large frames, at the same time.
#[test]
fn long_commands_and_jobs_of_one_owner_together_take_little_memory() {
    const N_JOBS: usize = 3;
    let deployment = Deployment::of_nodes(N_JOBS as u32);
    let (mut runs, jobs): (Vec<Child>, Vec<u64>) = (0..N_JOBS).map(|_| talkative(&deployment, 1)).unzip();
    let owner = deployment.queued(jobs[0]).expect("it runs")["user"].as_str().expect("a name").to_owned();
    let forger = Forger::of(deployment.server_dir());
    let user = forger.credentials(Role::User, &owner);
    let of_jobs: Vec<Credentials> = jobs.iter().map(|job| forger.credentials(Role::Job, &format!("{job}.1"))).collect();
    block_on(async {
        let link = hostile::link(deployment.address(), &user).await.expect("it gets in");
        for _ in 0..30 {
            let mut long =
                Submission::of(Work::Script { script: "#".repeat(1 << 20) + "\ntrue", args: Vec::new() }, Vec::new());
            long.hold = true;
            link.call(&ClientRequest::Call(Call::Submit(Box::new(long)))).await.expect("it is a job");
        }
        let before = deployment.server_resident_kib();
        let (mut held, mut begun) = (Vec::new(), Vec::new());
        held.extend(calls(&deployment, &user, &follow(jobs[0]), 400).await);
        held.extend(calls(&deployment, &user, &details(Select::All), 60).await);
        begun.extend(unfinished(&deployment, &user, 8).await);
        for (job, process) in jobs.iter().zip(&of_jobs) {
            held.extend(calls(&deployment, process, &follow(*job), 60).await);
            held.extend(calls(&deployment, process, &details(Select::Ids(vec![JobId(*job)])), 30).await);
            held.extend(
                calls(&deployment, process, &ClientRequest::Call(Call::Query(Query::Queue(Default::default()))), 30)
                    .await,
            );
            begun.extend(unfinished(&deployment, process, 8).await);
        }
        let grown = grown(&deployment, before).await;
        println!("{} calls and {} frames of a user and {N_JOBS} jobs: {grown} KiB", held.len(), begun.len());
        assert!(held.len() >= 700, "only {} calls could be made", held.len());
        assert!(grown < MOST_KIB, "the server holds {grown} KiB");
        let other = forger.credentials(Role::User, "other");
        ask(&hostile::link(deployment.address(), &other).await.expect("it gets in")).await;
        begun.iter().for_each(JoinHandle::abort);
        drop((held, begun));
    });
    for run in &mut runs {
        run.kill().expect("it is our child");
        run.wait().expect("it was killed");
    }
}
