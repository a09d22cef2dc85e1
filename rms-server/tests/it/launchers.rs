//! Tests of launchers against a real server: complete lives, and launchers that break the rules while others are served
//! on time.

use rms_api::Answer;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rms_api::Call;
use rms_api::call::{Nodes, Query, Shape};
use rms_api::subscription::{LauncherAnswer, LauncherCall, LauncherRequest, LauncherView, Notice, Subscription, Tag};
use rms_model::{ClusterId, JobId, Outcome, Request, Span};
use rms_wire::link::{Receiver, Sender};
use rms_wire::parts::ViewParts;
use rms_wire::{ClientRequest, LauncherSays, LauncherTold, Link};

use crate::deployment::{Client, FakeAgent, Server, job, tell};

const A: ClusterId = ClusterId(0);

/// A launcher that does what the test says, and stores its notices.
struct Peer {
    sender: Sender,
    receiver: Receiver,
    seq: u64,
    job: JobId,
    view: LauncherView,
    parts: ViewParts,
    n_changes: u32,
    notices: VecDeque<Notice>,
}

impl Peer {
    async fn open(link: &Link) -> Peer {
        let mut channel = link.open().await.expect("a channel");
        channel.send(&ClientRequest::Launcher).await.expect("a link");
        let (sender, receiver) = channel.split();
        let (view, parts) = (LauncherView::default(), ViewParts::new());
        Peer { sender, receiver, seq: 0, job: JobId(0), view, parts, n_changes: 0, notices: VecDeque::new() }
    }

    async fn subscribed(client: &Client, name: &str) -> Peer {
        let mut peer = Peer::open(&client.link).await;
        peer.begin(subscription(name)).await.expect("a possible subscription");
        peer
    }

    async fn begin(&mut self, call: LauncherCall) -> Result<(), String> {
        match self.call(call).await? {
            LauncherAnswer::Subscribed { job, .. } => self.job = job,
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    async fn say(&mut self, call: &LauncherCall) {
        self.seq += 1;
        self.sender.send(&LauncherSays { seq: self.seq, call: call.clone() }).await.expect("a link");
    }

    /// Makes a call; returns its answer, or the kind of the refusal.
    async fn call(&mut self, call: LauncherCall) -> Result<LauncherAnswer, String> {
        self.say(&call).await;
        loop {
            if let Some((seq, answer)) = self.hear().await {
                assert_eq!(seq, self.seq, "answers come in the order of the calls");
                return answer;
            }
        }
    }

    /// Receives one frame; an answer is returned to the caller.
    async fn hear(&mut self) -> Option<(u64, Result<LauncherAnswer, String>)> {
        match self.receiver.recv_required::<LauncherTold>().await.expect("a link") {
            LauncherTold::Answer { seq, answer } => {
                return Some((seq, answer.map_err(|refused| refused.kind)));
            }
            LauncherTold::Changed(part) => {
                if let Some(change) = self.parts.push(part).expect("a view") {
                    self.view.apply(change);
                    self.n_changes += 1;
                }
            }
            LauncherTold::Started(grant) => {
                self.notices.push_back(Notice::Started(*grant));
            }
            LauncherTold::Ended { outcome } => self.notices.push_back(Notice::Ended { outcome }),
            LauncherTold::Replaced => self.notices.push_back(Notice::Replaced),
        }
        None
    }

    /// Waits for the next start, end or replacement.
    async fn notice(&mut self) -> Notice {
        while self.notices.is_empty() {
            assert_eq!(self.hear().await, None, "no answer is open");
        }
        self.notices.pop_front().expect("there is one")
    }

    async fn until_view(&mut self, is_it: impl Fn(&LauncherView) -> bool) {
        while !is_it(&self.view) {
            assert_eq!(self.hear().await, None, "no answer is open");
        }
    }

    async fn request(&mut self, tag: u64, n_nodes: u32) -> Result<LauncherAnswer, String> {
        self.request_of(tag, Request::on_one(A, n_nodes, Span::from_mins(1))).await
    }

    async fn request_of(&mut self, tag: u64, request: Request) -> Result<LauncherAnswer, String> {
        let wish = LauncherRequest::of_nodes(Tag(tag), self.view.version, request);
        self.call(LauncherCall::Request { job: self.job, wish }).await
    }

    async fn accept(&mut self, tag: u64) -> Result<LauncherAnswer, String> {
        self.call(LauncherCall::Accept { job: self.job, tag: Tag(tag) }).await
    }

    async fn finish(&mut self, tag: u64, code: i32) -> Result<LauncherAnswer, String> {
        self.call(LauncherCall::Finish { job: self.job, tag: Tag(tag), code }).await
    }

    /// Runs an application from its request to its end; returns how long the start took.
    async fn live(&mut self) -> Duration {
        let begun = Instant::now();
        assert_eq!(self.request(1, 1).await, Ok(LauncherAnswer::Done));
        let Notice::Started(grant) = self.notice().await else { panic!("no start") };
        let waited = begun.elapsed();
        assert_eq!((grant.tag, grant.nodes.len()), (Tag(1), 1));
        assert_eq!(self.accept(1).await, Ok(LauncherAnswer::Done));
        assert_eq!(self.finish(1, 0).await, Ok(LauncherAnswer::Done));
        assert_eq!(self.notice().await, Notice::Ended { outcome: Outcome::Completed });
        waited
    }
}

fn subscription(name: &str) -> LauncherCall {
    LauncherCall::Subscribe(Box::new(Subscription::named(name)))
}

/// A server with idle nodes of cluster a, and the user ann.
struct Scene {
    server: Server,
    ann: Client,
    _agents: Vec<FakeAgent>,
}

impl Scene {
    async fn of_nodes(n_nodes: u32) -> Scene {
        let server = Server::start();
        let mut agents = Vec::new();
        for idx in 1..=n_nodes {
            let credentials = server.agent_credentials(&format!("n{idx}")).await;
            agents.push(FakeAgent::connect(&credentials, server.address, Vec::new()).await);
        }
        let ann = server.user("ann").await;
        Scene { server, ann, _agents: agents }
    }

    /// Checks that another user's launcher gets a start on time, whatever others do.
    async fn expect_others_are_served(&self) {
        let bob = self.server.user("bob").await;
        let waited = Peer::subscribed(&bob, "honest").await.live().await;
        assert!(waited < ON_TIME, "{waited:?}");
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("procfs is mounted");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel keeps it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

/// Test machines are shared, and still nothing may wait for a timeout.
const ON_TIME: Duration = Duration::from_secs(5);

#[test]
fn a_launcher_is_told_its_view_its_start_and_its_end() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let mut peer = Peer::subscribed(&scene.ann, "mine").await;
        peer.until_view(|view| view.capacity.get(&A) == Some(&2)).await;
        let Ok(LauncherAnswer::Clusters(infos)) = peer.call(LauncherCall::Clusters { job: peer.job }).await else {
            panic!("no clusters")
        };
        assert_eq!((infos.clusters[0].name.as_str(), infos.clusters[0].nodes, infos.clusters[0].cpus), ("a", 2, 4));
        peer.live().await;
        let record = scene.ann.history_of(peer.job).await;
        assert_eq!((record.outcome, record.nodes.len()), (Outcome::Completed, 1));
        // The channel has ended with the application.
        assert!(matches!(peer.receiver.recv::<LauncherTold>().await, Ok(None)));
    });
}

#[test]
fn what_the_view_does_not_show_is_refused_and_what_it_shows_is_taken_after_it() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let mut peer = Peer::subscribed(&scene.ann, "greedy").await;
        let refused = |word: &str| Err(word.to_owned());
        assert_eq!(peer.request(1, 3).await, refused("too_many_nodes"));
        let elsewhere = Request::on_one(ClusterId(9), 1, Span::from_mins(1));
        assert_eq!(peer.request_of(2, elsewhere).await, refused("not_in_view"));
        assert_eq!(peer.request_of(3, Request::on_one(A, 1, Span::ZERO)).await, refused("no_wall"));
        assert_eq!(peer.request_of(4, Request::on_one(A, 0, Span::from_mins(1))).await, refused("nothing_asked"));
        assert_eq!(peer.accept(1).await, refused("wrong_state"));
        peer.live().await;
    });
}

#[test]
fn nobody_speaks_for_anothers_application_or_start() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let mut anns = Peer::subscribed(&scene.ann, "anns").await;
        let bob = scene.server.user("bob").await;
        let refused = |word: &str| Err(word.to_owned());

        // Bob attaches to it, names it over a channel of his own, and over one that is not bound.
        let mut bobs = Peer::open(&bob.link).await;
        assert_eq!(bobs.begin(LauncherCall::Attach { job: anns.job }).await, Err("not_your_job".to_owned()));
        let finish = LauncherCall::Finish { job: anns.job, tag: Tag(0), code: 0 };
        assert_eq!(bobs.call(finish.clone()).await, refused("not_subscribed"));
        bobs.begin(subscription("bobs")).await.expect("it can still become one");
        assert_eq!(bobs.call(finish).await, refused("not_subscribed"));
        assert_eq!(bobs.begin(subscription("second")).await, Err("already_subscribed".to_owned()));

        // A start is identified by its tag.
        assert_eq!(anns.request(5, 1).await, Ok(LauncherAnswer::Done));
        let Notice::Started(_) = anns.notice().await else { panic!("no start") };
        assert_eq!(anns.accept(4).await, refused("wrong_tag"));
        assert_eq!(anns.accept(5).await, Ok(LauncherAnswer::Done));
        assert_eq!(anns.finish(6, 0).await, refused("wrong_tag"));
        assert_eq!(anns.finish(5, 3).await, Ok(LauncherAnswer::Done));
        assert_eq!(anns.notice().await, Notice::Ended { outcome: Outcome::Failed { code: 3 } });
    });
}

#[test]
fn tags_rise_and_a_request_that_is_said_twice_is_one() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let busy = Peer::subscribed(&scene.ann, "busy").await;
        let mut busy = busy;
        assert_eq!(busy.request(1, 1).await, Ok(LauncherAnswer::Done));
        let Notice::Started(_) = busy.notice().await else { panic!("no start") };
        let mut peer = Peer::subscribed(&scene.ann, "waits").await;
        assert_eq!(peer.request(7, 1).await, Ok(LauncherAnswer::Done));
        assert_eq!(peer.request(7, 1).await, Ok(LauncherAnswer::Done));
        let longer = Request::on_one(A, 1, Span::from_mins(2));
        assert_eq!(peer.request_of(7, longer).await, Err("stale_tag".to_owned()));
    });
}

#[test]
fn whoever_attaches_replaces_the_one_before() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let mut first = Peer::subscribed(&scene.ann, "mine").await;
        assert_eq!(first.request(1, 1).await, Ok(LauncherAnswer::Done));
        let Notice::Started(told) = first.notice().await else { panic!("no start") };

        let mut second = Peer::open(&scene.ann.link).await;
        second.begin(LauncherCall::Attach { job: first.job }).await.expect("it is hers");
        assert_eq!(first.notice().await, Notice::Replaced);
        assert!(matches!(first.receiver.recv::<LauncherTold>().await, Ok(None)));
        let Notice::Started(again) = second.notice().await else { panic!("no start") };
        assert_eq!((again.tag, again.run, again.nodes), (told.tag, told.run, told.nodes));
        // The end of the first channel did not disconnect the application's launcher.
        drop(first);
        assert_eq!(second.accept(1).await, Ok(LauncherAnswer::Done));
        assert_eq!(second.finish(1, 0).await, Ok(LauncherAnswer::Done));
        assert_eq!(second.notice().await, Notice::Ended { outcome: Outcome::Completed });
    });
}

#[test]
fn a_launcher_that_goes_without_a_word_is_lost_after_the_grace() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let admin = scene.server.admin().await;
        let set = |key: &str, value: &str| Call::Set { key: key.to_owned(), value: value.to_owned() };
        admin.call(&set("launcher_grace", "300ms")).await.expect("an admin may");
        let peer = Peer::subscribed(&scene.ann, "leaves").await;
        let job = peer.job;
        drop(peer);
        assert_eq!(scene.ann.history_of(job).await.outcome, Outcome::LauncherLost);

        // Another launcher never answers its start.
        admin.call(&set("start_timeout", "300ms")).await.expect("an admin may");
        let mut silent = Peer::subscribed(&scene.ann, "silent").await;
        assert_eq!(silent.request(1, 1).await, Ok(LauncherAnswer::Done));
        let Notice::Started(_) = silent.notice().await else { panic!("no start") };
        let Notice::Ended { outcome: Outcome::Violation { reason } } = silent.notice().await else {
            panic!("it was to be ended for a violation")
        };
        assert!(reason.contains("neither launched nor accepted"), "{reason}");
        scene.expect_others_are_served().await;
    });
}

#[test]
fn a_killed_server_tells_those_who_attach_again_what_holds() {
    tell(async {
        let mut server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let (waits, started) = {
            let admin = server.admin().await;
            let mut started = Peer::subscribed(&admin, "started").await;
            assert_eq!(started.request(1, 1).await, Ok(LauncherAnswer::Done));
            let Notice::Started(_) = started.notice().await else { panic!("no start") };
            assert_eq!(started.accept(1).await, Ok(LauncherAnswer::Done));
            let mut waits = Peer::subscribed(&admin, "waits").await;
            assert_eq!(waits.request(3, 1).await, Ok(LauncherAnswer::Done));
            (waits.job, started.job)
        };
        server.kill();
        server.restart();
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let admin = server.admin().await;
        let mut first = Peer::open(&admin.link).await;
        first.begin(LauncherCall::Attach { job: started }).await.expect("it is not lost");
        let Notice::Started(grant) = first.notice().await else { panic!("no start") };
        assert_eq!(grant.tag, Tag(1));
        let mut second = Peer::open(&admin.link).await;
        second.begin(LauncherCall::Attach { job: waits }).await.expect("it is not lost");
        second.until_view(|view| view.capacity.get(&A) == Some(&1)).await;
        assert_eq!(first.finish(1, 0).await, Ok(LauncherAnswer::Done));
        let Notice::Started(grant) = second.notice().await else { panic!("no start") };
        assert_eq!(grant.tag, Tag(3));
    });
}

#[test]
fn frames_that_are_none_cost_the_link_and_nobody_else_notices() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let eve = scene.server.user("eve").await;
        let mut peer = Peer::open(&eve.link).await;
        // A frame of another kind on a launcher's channel.
        peer.sender.send(&ClientRequest::Launcher).await.expect("a link");
        let reason = eve.link.closed().await;
        assert!(reason.contains("LauncherSays"), "{reason}");

        // A cluster name with a space and a control character.
        let mallory = scene.server.user("mallory").await;
        let mut peer = Peer::open(&mallory.link).await;
        let LauncherCall::Subscribe(mut named) = subscription("x") else { panic!("it is one") };
        named.filter.clusters = ["a b\u{1b}".to_owned()].into();
        let says = LauncherSays { seq: 9, call: LauncherCall::Subscribe(named) };
        peer.sender.send(&says).await.expect("a link");
        let (seq, answer) = peer.hear().await.expect("an answer");
        assert_eq!((seq, answer), (9, Err("malformed".to_owned())));
        scene.expect_others_are_served().await;
    });
}

#[test]
fn long_a_flood_is_slowed_by_its_own_channel_and_its_application_ends() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let eve = scene.server.user("eve").await;
        let flooding = Peer::subscribed(&eve, "flood").await;
        let job = flooding.job;
        let Peer { mut sender, mut receiver, .. } = flooding;
        // It reads its answers, so only the server slows it down.
        let flood = tokio::spawn(async move {
            for seq in 0.. {
                let call = LauncherCall::Clusters { job };
                if sender.send(&LauncherSays { seq, call }).await.is_err() {
                    return;
                }
            }
        });
        let read = tokio::spawn(async move {
            let mut refused = 0_u64;
            while let Ok(Some(told)) = receiver.recv::<LauncherTold>().await {
                if let LauncherTold::Answer { answer: Err(why), .. } = told {
                    // Once the application has ended it is unknown, until the channel is told.
                    assert!(why.kind == "rate_limit" || why.kind == "no_such_job", "{why}");
                    refused += 1;
                }
            }
            refused
        });
        scene.expect_others_are_served().await;
        // After some seconds, the core ends the application.
        let record = scene.ann_sees_the_end_of(job).await;
        let Outcome::Violation { reason } = record.outcome else { panic!("{record:?}") };
        assert!(reason.contains("times in each of"), "{reason}");
        flood.await.expect("it ends with its channel");
        assert!(read.await.expect("it ends with its channel") > 0);
        scene.expect_others_are_served().await;
    });
}

impl Scene {
    async fn ann_sees_the_end_of(&self, job: JobId) -> rms_model::JobRecord {
        self.server.admin().await.history_of(job).await
    }
}

#[test]
fn long_calls_that_nobody_reads_the_answers_of_are_not_read_either() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let eve = scene.server.user("eve").await;
        let Peer { mut sender, receiver, job, .. } = Peer::subscribed(&eve, "deaf").await;
        let before = scene.resident_kib();
        // Without reading any answers it cannot even send: its own flow control stops it.
        let mut n_sent = 0_u64;
        let sending = async {
            loop {
                let call = LauncherCall::Clusters { job };
                sender.send(&LauncherSays { seq: n_sent, call }).await.expect("a link");
                n_sent += 1;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(3), sending).await.is_err());
        assert!(n_sent < 200_000, "{n_sent} calls were taken");
        let grown = scene.resident_kib().saturating_sub(before);
        assert!(grown < 32 << 10, "{grown} KiB were kept for it");
        drop(receiver);
        scene.expect_others_are_served().await;
    });
}

#[test]
fn long_a_launcher_that_never_reads_costs_little_and_sees_the_newest_view_when_it_does() {
    tell(async {
        let scene = Scene::of_nodes(5).await;
        let eve = scene.server.user("eve").await;
        // Jobs of 5 and of 4 nodes cannot run at the same time, so each is a step of the view.
        let mut waiting = Vec::new();
        for idx in 0..300_u32 {
            let shape = Shape { nodes: Nodes::Count(5 - idx % 2), wall: Some(Span::from_secs(1000 + i64::from(idx))) };
            let call = Call::Submit(Box::new(rms_api::call::Submission { shapes: vec![shape], ..job("step") }));
            match scene.ann.call(&call).await.expect("a possible job") {
                Answer::Submitted { job } => waiting.push(job),
                other => panic!("{other:?}"),
            }
        }
        let mut peer = Peer::subscribed(&eve, "deaf").await;
        let before = scene.resident_kib();
        for job in waiting.iter().skip(1).step_by(2) {
            let select = rms_api::call::Select::Ids(vec![*job]);
            scene.ann.call(&Call::Cancel { select }).await.expect("it is hers");
        }
        let grown = scene.resident_kib().saturating_sub(before);
        assert!(grown < 64 << 10, "{grown} KiB were kept for it");

        let Answer::View(view) = scene.ann.call(&Call::Query(Query::View { job: None })).await.expect("a view") else {
            panic!("no view")
        };
        let mut expected = view.clusters[0].started.clone();
        expected += &view.clusters[0].planned;
        let now = view.now;
        let is_newest = |view: &LauncherView| {
            view.occupied.get(&A).is_some_and(|occupied| occupied.cut_before(now) == expected.cut_before(now))
        };
        peer.until_view(is_newest).await;
        assert!(peer.n_changes < 120, "{} of 150 changes were sent to one that did not read", peer.n_changes);
    });
}

#[test]
fn a_launcher_of_an_agent_or_of_none_is_no_launcher() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let submitted = scene.ann.submit("work").await;
        let mut peer = Peer::open(&scene.ann.link).await;
        assert_eq!(peer.begin(LauncherCall::Attach { job: submitted }).await, Err("no_launcher".to_owned()));
        assert_eq!(peer.begin(LauncherCall::Attach { job: JobId(99) }).await, Err("no_such_job".to_owned()));
        // The link still works.
        scene.ann.speak().await;
    });
}
