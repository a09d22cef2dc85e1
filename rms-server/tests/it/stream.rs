//! Tests of following and watching jobs: output across reconnects, input, changes, and the end after all output.

use rms_api::desired::{JobStatus, NodeExit};
use rms_model::{JobId, Run, Time, Usage};
use rms_wire::link::Channel;
use rms_wire::{Chunk, ClientRequest, FollowOrder, Followed, Input, InputAt, Kind, Spooled, Stream, ToServer};

use crate::deployment::{Client, FakeAgent, Server, report, tell};

const RUNNING: JobStatus = JobStatus::running(Time::EPOCH);

fn ended(code: i32) -> JobStatus {
    JobStatus::Ended { at: Time::EPOCH, exit: NodeExit::Exited { code }, usage: Usage::default() }
}

fn chunk(offset: u64, text: &str) -> Spooled {
    Spooled::Chunk(Chunk { node_idx: 0, task: 0, stream: Stream::Out, offset, bytes: text.into() })
}

async fn follow(client: &Client, job: JobId) -> Channel {
    let mut channel = client.link.open().await.expect("a channel");
    let follow = rms_wire::Follow { job, run: None, from: Vec::new(), input: true, input_from: None };
    channel.send(&ClientRequest::Follow(follow)).await.expect("a link");
    channel
}

/// Waits for the next output or end; changes are skipped.
async fn next_output(channel: &mut Channel) -> Followed {
    loop {
        match channel.recv::<Followed>().await.expect("a link").expect("a frame") {
            Followed::Change(_) | Followed::Whole { .. } => {}
            other => return other,
        }
    }
}

fn text(followed: Followed) -> String {
    match followed {
        Followed::Chunk(chunk) => String::from_utf8(chunk.bytes).expect("text"),
        other => panic!("{other:?}"),
    }
}

/// Accepts the agent's side of a follow channel, after its order.
async fn ordered(agent: &FakeAgent) -> (Channel, FollowOrder) {
    let mut channel = agent.link.accept().await.expect("a channel");
    let order = channel.recv::<FollowOrder>().await.expect("a link").expect("an order");
    (channel, order)
}

async fn start(server: &Server, client: &Client) -> (FakeAgent, JobId, Run) {
    let credentials = server.agent_credentials("n1").await;
    let mut agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
    let job = client.submit("followed").await;
    let run = agent.desired(|desired| !desired.jobs.is_empty()).await.jobs[0].run;
    agent.report(vec![report(job, run, RUNNING)]).await;
    (agent, job, run)
}

#[test]
fn output_continues_where_it_was_when_the_agent_comes_back_and_ends_with_the_job() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (agent, job, run) = start(&server, &ann).await;
        let mut followed = follow(&ann, job).await;
        let (mut spool, order) = ordered(&agent).await;
        assert_eq!((order.job, order.run, order.from.len()), (job, run, 0));
        spool.send(&chunk(0, "hello ")).await.expect("a link");
        assert_eq!(text(next_output(&mut followed).await), "hello ");

        agent.link.close("its machine has a hiccup");
        let credentials = server.agent_credentials("n1").await;
        let running = vec![report(job, run, RUNNING)];
        let mut agent = FakeAgent::connect(&credentials, server.address, running).await;
        let (mut spool, order) = ordered(&agent).await;
        assert_eq!(order.from[0].offset, 6, "{order:?}");
        agent.report(vec![report(job, run, ended(0))]).await;
        // The job is over, and there is still output of it.
        ann.history_of(job).await;
        spool.send(&chunk(6, "world")).await.expect("a link");
        spool.send(&Spooled::End).await.expect("a link");
        assert_eq!(text(next_output(&mut followed).await), "world");
        assert_eq!(next_output(&mut followed).await, Followed::End);
    });
}

#[test]
fn input_reaches_the_first_node() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (agent, job, _run) = start(&server, &ann).await;
        let mut followed = follow(&ann, job).await;
        let (mut spool, _order) = ordered(&agent).await;
        followed.send(&Input { bytes: b"42\n".to_vec(), eof: false }).await.expect("a link");
        followed.send(&Input::END).await.expect("a link");
        let first = spool.recv::<Input>().await.expect("a link").expect("input");
        assert_eq!((first.bytes.as_slice(), first.eof), (b"42\n".as_slice(), false));
        assert!(spool.recv::<Input>().await.expect("a link").expect("input").eof);
    });
}

#[test]
fn the_end_of_the_input_is_repeated_for_an_agent_that_comes_back() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (agent, job, run) = start(&server, &ann).await;
        let mut followed = follow(&ann, job).await;
        let (mut spool, _order) = ordered(&agent).await;
        followed.send(&Input::END).await.expect("a link");
        assert!(spool.recv::<Input>().await.expect("a link").expect("input").eof);

        agent.link.close("it was killed before it passed that on");
        let credentials = server.agent_credentials("n1").await;
        let agent = FakeAgent::connect(&credentials, server.address, vec![report(job, run, RUNNING)]).await;
        let (mut spool, _order) = ordered(&agent).await;
        assert!(spool.recv::<Input>().await.expect("a link").expect("input").eof);
    });
}

/// Follows with input of which this run has taken `taken` bytes.
async fn feed(client: &Client, job: JobId, known: Option<(Run, u64)>) -> Channel {
    let mut channel = client.link.open().await.expect("a channel");
    let (run, input_from) = known.map_or((None, 0), |(run, taken)| (Some(run), taken));
    let follow = rms_wire::Follow { job, run, from: Vec::new(), input: true, input_from: Some(input_from) };
    channel.send(&ClientRequest::Follow(follow)).await.expect("a link");
    channel
}

fn input(offset: u64, text: &str) -> InputAt {
    InputAt { offset, bytes: text.into(), eof: text.is_empty() }
}

#[test]
fn a_follower_repeats_what_an_agent_that_comes_back_has_not_taken() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (mut agent, job, run) = start(&server, &ann).await;
        let serves = ToServer::Serves { kinds: vec![Kind::InputAt.number()] };
        agent.say(&serves).await;
        let told = |n_bytes, again| Followed::Taken { run, n_bytes, again };
        let mut followed = feed(&ann, job, None).await;
        let first = followed.recv::<Followed>().await.expect("a link");
        assert_eq!(first, Some(told(0, false)), "the server says at once that it takes offsets");
        let (mut spool, order) = ordered(&agent).await;
        assert_eq!(order.input_from, Some(0));
        spool.send(&Spooled::Taken { n_bytes: 0 }).await.expect("a link");
        assert_eq!(next_output(&mut followed).await, told(0, true));
        for piece in [input(0, "hello "), input(6, "world"), input(11, "")] {
            followed.send(&piece).await.expect("a link");
            assert_eq!(spool.recv::<InputAt>().await.expect("a link"), Some(piece));
        }
        spool.send(&Spooled::Taken { n_bytes: 6 }).await.expect("a link");
        assert_eq!(next_output(&mut followed).await, told(6, false));

        agent.link.close("it was killed");
        let credentials = server.agent_credentials("n1").await;
        let mut agent = FakeAgent::connect(&credentials, server.address, vec![report(job, run, RUNNING)]).await;
        agent.say(&serves).await;
        let (mut spool, order) = ordered(&agent).await;
        assert_eq!(order.input_from, Some(6));
        spool.send(&Spooled::Taken { n_bytes: 8 }).await.expect("a link");
        assert_eq!(next_output(&mut followed).await, told(8, true));
        for piece in [input(8, "rld"), input(11, "")] {
            followed.send(&piece).await.expect("a link");
            assert_eq!(spool.recv::<InputAt>().await.expect("a link"), Some(piece));
        }
    });
}

#[test]
fn input_that_is_repeated_goes_to_an_older_agent_once() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (agent, job, run) = start(&server, &ann).await;
        let told = |n_bytes, again| Followed::Taken { run, n_bytes, again };
        let mut followed = feed(&ann, job, Some((run, 100))).await;
        assert_eq!(next_output(&mut followed).await, told(100, false));
        let (mut spool, order) = ordered(&agent).await;
        assert_eq!(order.input_from, None);
        assert_eq!(next_output(&mut followed).await, told(100, true));
        for piece in [input(90, "0123456789abc"), input(104, "e"), input(101, "bcd"), input(104, "")] {
            followed.send(&piece).await.expect("a link");
        }
        let mut taken = Vec::new();
        loop {
            let Input { bytes, eof } = spool.recv::<Input>().await.expect("a link").expect("input");
            taken.extend(bytes);
            if eof {
                break;
            }
        }
        assert_eq!(taken, b"abcd");
        assert_eq!(next_output(&mut followed).await, told(103, false));
    });
}

#[test]
fn a_job_that_is_over_can_still_be_followed() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (mut agent, job, run) = start(&server, &ann).await;
        agent.report(vec![report(job, run, ended(0))]).await;
        ann.history_of(job).await;
        let mut followed = follow(&ann, job).await;
        let (mut spool, _order) = ordered(&agent).await;
        spool.send(&chunk(0, "late")).await.expect("a link");
        spool.send(&Spooled::End).await.expect("a link");
        assert_eq!(text(next_output(&mut followed).await), "late");
        assert_eq!(next_output(&mut followed).await, Followed::End);
    });
}

#[test]
fn only_the_owner_and_admins_may_follow() {
    tell(async {
        let server = Server::start();
        let (ann, bob) = (server.user("ann").await, server.user("bob").await);
        let (_agent, job, _run) = start(&server, &ann).await;
        match next_output(&mut follow(&bob, job).await).await {
            Followed::Refused(refused) => assert_eq!(refused.kind, "not_your_job"),
            other => panic!("{other:?}"),
        }
        match next_output(&mut follow(&bob, JobId(77)).await).await {
            Followed::Refused(refused) => assert_eq!(refused.kind, "no_such_job"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_watch_tells_every_change_and_ends_with_the_last_job() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (mut agent, first, run) = start(&server, &ann).await;
        let second = ann.submit("second").await;
        let mut watch = ann.link.open().await.expect("a channel");
        watch.send(&ClientRequest::Watch(rms_wire::Watch { jobs: vec![first, second] })).await.expect("a link");
        agent.report(vec![report(first, run, ended(0))]).await;
        let desired = agent.desired(|desired| desired.jobs.iter().any(|job| job.job == second)).await;
        agent.report(vec![report(second, desired.jobs[0].run, ended(3))]).await;
        let mut over = Vec::new();
        loop {
            match watch.recv::<Followed>().await.expect("a link").expect("a frame") {
                Followed::Change(change) => over.extend(change.outcome.map(|outcome| (change.job, outcome))),
                Followed::End => break,
                other => panic!("{other:?}"),
            }
        }
        let jobs: Vec<JobId> = over.iter().map(|(job, _)| *job).collect();
        assert_eq!(jobs, [first, second]);
        assert_eq!(over[1].1, rms_model::Outcome::Failed { code: 3 });
    });
}
