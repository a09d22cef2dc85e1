//! Tests of applications that negotiate with a real server: complete dialogues, and negotiators that break the rules
//! while others are served on time.

use rms_api::Answer;
use rms_api::call::HistoryQuery;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use negotiation::{
    Action, Dialogues, Direction, Draft, Item, Message, NegotiationId, Output, Phase, Resource, SetRule, Side,
    Statement, Template,
};
use rms_api::Call;
use rms_api::call::{Nodes, Query, Select, Shape, Submission};
use rms_api::negotiate::{
    Ask, AskOutcome, Asked, Attached, Declared, Holding, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice,
};
use rms_model::{ClusterId, JobId, Malleable, NodeId, OnResize, Outcome, Run, Sizes, Span, Speedup, Time};
use rms_wire::link::{Receiver, Sender};
use rms_wire::message::Size;
use rms_wire::tls::Credentials;
use rms_wire::{CallError, ClientRequest, Followed, Kind, NegotiatorSays, NegotiatorTold, ToAgent, ToServer};
use serde::{Deserialize, Serialize};

use crate::deployment::{Client, Server, job, tell};
use crate::node::Node;

const A: ClusterId = ClusterId(0);
const FIRST: Run = Run(1);

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    Time::from_millis(since.as_millis() as i64)
}

/// A server that opens no negotiations itself, nodes of cluster a, and the user ann, who submits.
struct Scene {
    server: Server,
    ann: Client,
    nodes: Vec<Node>,
}

impl Scene {
    async fn of_nodes(n_nodes: u32) -> Scene {
        let server = Server::start();
        let admin = server.admin().await;
        for (key, value) in
            [("offer_idle", "never"), ("shrink_for", "never"), ("resched_timer", "10ms"), ("fair_start", "0s")]
        {
            let set = Call::Set { key: key.to_owned(), value: value.to_owned() };
            admin.call(&set).await.expect("a setting");
        }
        let ann = server.user("ann").await;
        let mut scene = Scene { server, ann, nodes: Vec::new() };
        for idx in 1..=n_nodes {
            let credentials = scene.server.agent_credentials(&format!("n{idx}")).await;
            scene.nodes.push(Node::start(&credentials, scene.server.address).await);
        }
        scene
    }

    /// Starts a job of one to four nodes on `n_nodes` nodes.
    async fn started(&self, n_nodes: u32) -> JobId {
        let reply = self.ann.call(&Call::Submit(Box::new(malleable(n_nodes)))).await.expect("a possible job");
        let Answer::Submitted { job } = reply else { panic!("{reply:?}") };
        while self.nodes.iter().filter(|node| node.has(job)).count() < n_nodes as usize {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        job
    }

    async fn credentials(&self, job: JobId) -> Credentials {
        let node = self.nodes.iter().find(|node| node.has(job)).expect("it runs somewhere");
        node.certify(job, FIRST).await.expect("it is there")
    }

    /// Attaches a negotiator of the job.
    async fn attached(&self, job: JobId) -> App {
        let credentials = self.credentials(job).await;
        let client = Client::connect(&credentials, self.server.address).await;
        App::attach(client).await.expect("it may speak")
    }

    /// Checks that another application gets a node and gives it back on time, whatever others do.
    async fn expect_others_are_served(&self) {
        let job = self.started(1).await;
        let mut app = self.attached(job).await;
        let begun = Instant::now();
        let id = app.propose(Direction::Grow, 1).await;
        app.until_phase(id, Phase::Applied).await;
        let id = app.propose(Direction::Shrink, 1).await;
        app.until_phase(id, Phase::Accepted).await;
        app.commit_last(id).await;
        app.until_phase(id, Phase::Applied).await;
        let waited = begun.elapsed();
        assert!(waited < ON_TIME, "{waited:?}");
        self.end(job).await;
    }

    async fn end(&self, job: JobId) {
        self.ann.call(&Call::Cancel { select: Select::Ids(vec![job]) }).await.expect("it is hers");
        assert_eq!(self.ann.history_of(job).await.outcome, Outcome::Cancelled { by: "ann".to_owned() });
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("procfs is mounted");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel keeps it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

/// Test machines are shared, and still nothing may wait for a timeout.
const ON_TIME: Duration = Duration::from_secs(5);

fn malleable(n_nodes: u32) -> Submission {
    let speedup = Speedup::default();
    let malleable = Malleable {
        least: 1,
        most: 4,
        sizes: Sizes::Any,
        on_resize: OnResize::Negotiates,
        speedup,
        survives_loss: None,
    };
    let shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_mins(10)) }];
    Submission { shapes, malleable: Some(malleable), ..job("elastic") }
}

/// The application's end.
struct App {
    job: JobId,
    client: Client,
    sender: Sender,
    receiver: Receiver,
    seq: u64,
    dialogues: Dialogues,
    holding: Holding,
    notices: Vec<NegotiatorNotice>,
    answers: Vec<(u64, Result<NegotiatorAnswer, String>)>,
}

impl App {
    async fn attach(client: Client) -> Result<App, String> {
        let (sender, receiver, answer) = App::open(&client, &NegotiatorCall::Attach(Default::default())).await;
        let attached = match answer? {
            NegotiatorAnswer::Attached(attached) => *attached,
            NegotiatorAnswer::Done => panic!("no attachment"),
        };
        let Attached { job, run, rules, n_opened, declared: _, holding, release_within: _, open, clusters: _ } =
            attached;
        let mut dialogues = Dialogues::new(Side::Application, job, run, rules);
        dialogues.go_on_from(n_opened);
        for reminder in &open {
            dialogues.recall(now(), reminder).expect("there can be such a negotiation");
        }
        let (notices, answers) = (Vec::new(), Vec::new());
        Ok(App { job, client, sender, receiver, seq: 1, dialogues, holding, notices, answers })
    }

    /// Opens a new channel; returns it with the answer to its first call.
    async fn open(client: &Client, call: &NegotiatorCall) -> (Sender, Receiver, Result<NegotiatorAnswer, String>) {
        let mut channel = client.link.open().await.expect("a channel");
        channel.send(&ClientRequest::Negotiator).await.expect("a link");
        let (mut sender, mut receiver) = channel.split();
        sender.send(&NegotiatorSays { seq: 1, call: call.clone() }).await.expect("a link");
        match receiver.recv_required::<NegotiatorTold>().await.expect("a link") {
            NegotiatorTold::Answer { seq: 1, answer } => (sender, receiver, answer.map_err(|refused| refused.kind)),
            other => panic!("{other:?}"),
        }
    }

    async fn say(&mut self, call: &NegotiatorCall) -> u64 {
        self.seq += 1;
        // A replaced channel is not read any more, but its notices are still received.
        let _ = self.sender.send(&NegotiatorSays { seq: self.seq, call: call.clone() }).await;
        self.seq
    }

    /// Sends a message that no valid end would send.
    async fn say_broken(&mut self, message: Broken) -> u64 {
        self.seq += 1;
        let _ = self.sender.send(&BrokenSays { seq: self.seq, call: BrokenCall::Say(message) }).await;
        self.seq
    }

    async fn call(&mut self, call: &NegotiatorCall) -> Result<NegotiatorAnswer, String> {
        let seq = self.say(call).await;
        self.answer_to(seq).await
    }

    async fn answer_to(&mut self, seq: u64) -> Result<NegotiatorAnswer, String> {
        loop {
            if let Some(idx) = self.answers.iter().position(|(answered, _)| *answered == seq) {
                return self.answers.remove(idx).1;
            }
            self.hear().await;
        }
    }

    async fn send(&mut self, output: Output) {
        for message in output.messages {
            self.say(&NegotiatorCall::Say(Box::new(message))).await;
        }
    }

    /// Receives and handles one frame.
    async fn hear(&mut self) {
        match self.receiver.recv_required::<NegotiatorTold>().await.expect("a link") {
            NegotiatorTold::Answer { seq, answer } => {
                self.answers.push((seq, answer.map_err(|refused| refused.kind)));
            }
            NegotiatorTold::Notice(NegotiatorNotice::Said(message)) => {
                let output = self.dialogues.receive(now(), &message);
                self.send(output).await;
            }
            NegotiatorTold::Notice(NegotiatorNotice::Holding(holding)) => self.holding = *holding,
            NegotiatorTold::Notice(NegotiatorNotice::Counted { n_opened }) => self.dialogues.skip_to(n_opened),
            NegotiatorTold::Notice(NegotiatorNotice::NodesLost { .. }) => {}
            NegotiatorTold::Notice(notice) => self.notices.push(notice),
        }
    }

    async fn notice(&mut self) -> NegotiatorNotice {
        while self.notices.is_empty() {
            self.hear().await;
        }
        self.notices.remove(0)
    }

    fn item(&self, n_nodes: u64) -> Item {
        Item::up_to(Resource::Nodes(A), self.holding.nodes.len() as u64, n_nodes)
    }

    async fn propose(&mut self, direction: Direction, n_nodes: u64) -> NegotiationId {
        let (sets, items) = (vec![SetRule::All], vec![self.item(n_nodes)]);
        let (id, output) = self.dialogues.open(now(), direction, sets, items, Span::from_secs(20)).expect("a proposal");
        self.send(output).await;
        id
    }

    async fn act(&mut self, id: NegotiationId, action: Action) {
        let output = self.dialogues.act(now(), id, action).expect("it is its turn");
        self.send(output).await;
    }

    /// Releases the last of its nodes.
    async fn commit_last(&mut self, id: NegotiationId) {
        let last = self.holding.nodes.last().expect("it has nodes").node;
        self.act(id, Action::Commit([last].into())).await;
    }

    fn phase(&self, id: NegotiationId) -> Option<Phase> {
        self.dialogues.get(id).map(negotiation::Dialogue::phase)
    }

    async fn until_phase(&mut self, id: NegotiationId, phase: Phase) {
        while self.phase(id) != Some(phase) {
            assert!(self.phase(id).is_none_or(|phase| !phase.is_over()), "{:?}", self.dialogues.get(id));
            self.hear().await;
        }
    }

    async fn until_holding(&mut self, is_it: impl Fn(&Holding) -> bool) {
        while !is_it(&self.holding) {
            self.hear().await;
        }
    }
}

#[test]
fn an_application_asks_for_a_node_gets_it_and_gives_it_back() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        assert_eq!((app.holding.generation, app.holding.nodes.len()), (1, 1));
        let id = app.propose(Direction::Grow, 1).await;
        app.until_phase(id, Phase::Applied).await;
        app.until_holding(|holding| holding.nodes.len() == 2).await;
        assert_eq!(app.holding.generation, 2);
        assert!(scene.nodes.iter().all(|node| node.has(job)));

        let id = app.propose(Direction::Shrink, 1).await;
        app.until_phase(id, Phase::Accepted).await;
        app.commit_last(id).await;
        app.until_phase(id, Phase::Applied).await;
        app.until_holding(|holding| holding.nodes.len() == 1).await;
        assert_eq!(app.holding.generation, 3);

        scene.end(job).await;
        let outcome = Outcome::Cancelled { by: "ann".to_owned() };
        assert_eq!(app.notice().await, NegotiatorNotice::Ended { outcome });
        assert!(matches!(app.receiver.recv::<NegotiatorTold>().await, Ok(None)), "nothing comes after it");
    });
}

#[test]
fn a_process_that_takes_over_keeps_the_promise_of_the_one_before() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(3).await;
        let mut before = scene.attached(job).await;
        let id = before.propose(Direction::Shrink, 1).await;
        before.until_phase(id, Phase::Accepted).await;
        drop(before);
        let mut after = scene.attached(job).await;
        assert_eq!(after.phase(id), Some(Phase::Accepted), "it is told when it comes");
        let second = after.holding.nodes[1].node;
        after.act(id, Action::Commit([second].into())).await;
        after.until_phase(id, Phase::Applied).await;
        after.until_holding(|holding| holding.nodes.iter().all(|node| node.node != second)).await;
        assert_eq!(after.holding.nodes.len(), 2);
    });
}

#[test]
fn who_negotiates_hears_what_became_of_what_others_have_asked_for() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        let reply = scene.ann.call(&Call::Negotiate { job, ask: ask(1) }).await.expect("she may ask");
        let Answer::Negotiated(AskOutcome::Ready { negotiation, .. }) = reply else { panic!("{reply:?}") };
        app.until_holding(|holding| holding.nodes.len() == 2).await;
        let id = app.propose(Direction::Grow, 1).await;
        assert!(id.number > negotiation.number, "it has heard which number is used");
        app.until_phase(id, Phase::Applied).await;
        app.until_holding(|holding| holding.nodes.len() == 3).await;
    });
}

#[test]
fn what_it_declares_is_known_and_nonsense_is_refused() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        let declared = Declared { least: 1, most: 2, sizes: Sizes::PowerOfTwo, speedup: Speedup(vec![(1, 1000)]) };
        assert_eq!(app.call(&NegotiatorCall::Declare(declared.clone())).await, Ok(NegotiatorAnswer::Done));
        let nothing = Declared { least: 3, most: 2, ..declared.clone() };
        assert_eq!(app.call(&NegotiatorCall::Declare(nothing)).await, Err("malleable_sizes".to_owned()));
        // A negotiator that attaches later is told the present state.
        let (_, _, answer) = App::open(&app.client, &NegotiatorCall::Attach(Default::default())).await;
        let Ok(NegotiatorAnswer::Attached(attached)) = answer else { panic!("{answer:?}") };
        assert_eq!(attached.declared, declared);
    });
}

#[test]
fn of_two_processes_the_later_one_speaks_and_the_talk_goes_on() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let job = scene.started(1).await;
        let mut first = scene.attached(job).await;
        let id = first.propose(Direction::Grow, 1).await;
        first.until_phase(id, Phase::Applied).await;
        let mut second = scene.attached(job).await;
        assert_eq!(first.notice().await, NegotiatorNotice::Replaced);
        assert!(matches!(first.receiver.recv::<NegotiatorTold>().await, Ok(None)));
        assert_eq!(second.holding.nodes.len(), 2);
        // It continues the numbers of the first one: no number is used twice.
        let id = second.propose(Direction::Shrink, 1).await;
        assert_eq!(id.number, 2);
        second.until_phase(id, Phase::Accepted).await;
        second.commit_last(id).await;
        second.until_phase(id, Phase::Applied).await;
    });
}

#[test]
fn who_has_not_attached_has_no_say_and_nobody_attaches_twice() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let job = scene.started(1).await;
        let credentials = scene.credentials(job).await;
        let client = Client::connect(&credentials, scene.server.address).await;
        let declared = Declared { least: 1, most: 2, sizes: Sizes::Any, speedup: Speedup::default() };
        let (_, _, answer) = App::open(&client, &NegotiatorCall::Declare(declared)).await;
        assert_eq!(answer, Err("not_attached".to_owned()));
        let id = NegotiationId { initiator: Side::Application, number: 1 };
        let accept = Message::new(id, 1, 0, Some(Statement::Accept { round: 1 }));
        let (_, _, answer) = App::open(&client, &NegotiatorCall::Say(Box::new(accept))).await;
        assert_eq!(answer, Err("not_attached".to_owned()));
        let mut app = App::attach(client).await.expect("it may");
        assert_eq!(app.call(&NegotiatorCall::Attach(Default::default())).await, Err("already_attached".to_owned()));
        // Users have no negotiator's rights.
        let (_, _, answer) = App::open(&scene.ann, &NegotiatorCall::Attach(Default::default())).await;
        assert_eq!(answer, Err("wrong_role".to_owned()));
    });
}

#[test]
fn a_job_speaks_of_itself_alone() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let (job, other) = (scene.started(1).await, scene.started(1).await);
        let client = Client::connect(&scene.credentials(job).await, scene.server.address).await;
        let refused = async |call: &ClientRequest| match client.link.call(call).await {
            Err(CallError::Refused(refused)) => refused.kind,
            other => panic!("{other:?}"),
        };
        let of_call = ClientRequest::Call;
        for call in [
            of_call(Call::Query(Query::Job(Select::All))),
            of_call(Call::Query(Query::Negotiations { job: Some(other) })),
            of_call(Call::Query(Query::Job(Select::Ids(vec![other])))),
            of_call(Call::Cancel { select: Select::Ids(vec![other]) }),
            of_call(Call::Submit(Box::new(malleable(1)))),
            of_call(Call::Negotiate { job: other, ask: ask(1) }),
            of_call(Call::ResizeDone { job: other, generation: 1 }),
            ClientRequest::History(HistoryQuery::default()),
            ClientRequest::Launcher,
            ClientRequest::Launchers,
            of_call(Call::Renew { csr: vec![1], serial: String::new(), renews: None }),
        ] {
            assert_eq!(refused(&call).await, "not_allowed", "{call:?}");
        }
        let follow = rms_wire::Follow { job: other, run: None, from: Vec::new(), input: false, input_from: None };
        let watch = rms_wire::Watch { jobs: vec![other] };
        for stream in [ClientRequest::Watch(watch), ClientRequest::Follow(follow)] {
            let mut channel = client.link.open().await.expect("a link");
            channel.send(&stream).await.expect("a link");
            let Ok(Some(Followed::Refused(refused))) = channel.recv::<Followed>().await else { panic!("{stream:?}") };
            assert_eq!(refused.kind, "not_allowed", "{stream:?}");
        }
        let reply = client.call(&Call::Query(Query::Job(Select::Ids(vec![job])))).await.expect("its own");
        assert!(matches!(reply, Answer::Detail { .. }), "{reply:?}");
    });
}

fn ask(n_nodes: u64) -> Ask {
    Ask {
        direction: Direction::Grow,
        what: Asked::Nodes { cluster: None },
        quantity: n_nodes,
        least: 1,
        sizes: Sizes::Any,
        price: negotiation::Price(0),
        duration: None,
        nodes: Vec::new(),
        wait: Span::from_secs(5),
    }
}

#[test]
fn an_agent_asks_for_its_ranks_and_nobody_for_a_job_elsewhere() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let (here, there): (Vec<&Node>, Vec<&Node>) = scene.nodes.iter().partition(|node| node.has(job));
        let question = |seq| ToServer::Ask { seq, job, run: FIRST, ask: ask(2) };
        let answer = there[0].ask(question(1)).await;
        assert!(
            matches!(&answer, ToAgent::NotAsked { seq: 1, refused } if refused.kind == "not_running"),
            "{answer:?}"
        );
        assert_eq!(there[0].certify(job, FIRST).await.map(drop), Err("not_running".to_owned()));
        assert_eq!(here[0].certify(job, Run(2)).await.map(drop), Err("not_running".to_owned()));
        let ToAgent::Asked { seq: 2, outcome } = here[0].ask(question(2)).await else { panic!("it may") };
        match outcome {
            AskOutcome::Ready { quantity: 2, nodes, generation: 2, .. } => assert_eq!(nodes.len(), 2),
            other => panic!("{other:?}"),
        }
        // An invalid request may be one of a newer agent: it is skipped, and the agent is still served.
        let nonsense = Ask { wait: Span::from_millis(-1), ..ask(2) };
        here[0].say(ToServer::Ask { seq: 3, job, run: FIRST, ask: nonsense }).await;
        let answer = here[0].ask(question(4)).await;
        assert!(matches!(answer, ToAgent::Asked { seq: 4, .. } | ToAgent::NotAsked { seq: 4, .. }), "{answer:?}");
    });
}

#[test]
fn long_the_certificate_of_an_execution_that_has_ended_opens_nothing_for_long() {
    tell(async {
        let scene = Scene::of_nodes(1).await;
        let job = scene.started(1).await;
        let credentials = scene.credentials(job).await;
        scene.end(job).await;
        let client = Client::connect(&credentials, scene.server.address).await;
        let refused = App::attach(Client::connect(&credentials, scene.server.address).await).await.map(drop);
        assert_eq!(refused, Err("not_running".to_owned()));
        let reason = client.link.closed().await;
        assert_eq!(reason, format!("run 1 of job {job} has ended"));
    });
}

#[test]
fn long_a_job_has_few_links_and_others_have_theirs() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let credentials = scene.credentials(job).await;
        let mut links = Vec::new();
        let refused = loop {
            assert!(links.len() <= 32, "they have an end");
            match Client::try_connect(&credentials, scene.server.address).await {
                // The welcome may arrive before the server has counted the link.
                Ok(client) => match tokio::time::timeout(Duration::from_millis(100), client.link.closed()).await {
                    Ok(reason) => break reason,
                    Err(_) => links.push(client),
                },
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("one process of a job is enough"), "{refused}");
        scene.expect_others_are_served().await;
    });
}

/// A negotiator's frame with an unchecked template.
#[derive(Debug, Serialize, Deserialize)]
struct BrokenSays {
    seq: u64,
    call: BrokenCall,
}

#[derive(Debug, Serialize, Deserialize)]
enum BrokenCall {
    Say(Broken),
}

#[derive(Debug, Serialize, Deserialize)]
struct Broken {
    id: NegotiationId,
    number: u32,
    seen: u32,
    statement: Option<BrokenStatement>,
}

#[derive(Debug, Serialize, Deserialize)]
enum BrokenStatement {
    Propose { round: u16, template: Draft, valid_for: Span },
    Commit { round: u16, nodes: Vec<NodeId> },
}

impl rms_wire::Message for BrokenSays {
    const KIND: Kind = Kind::NegotiatorSays;
    /// More than any valid end would send.
    const SIZE: Size = Size::Whole;
}

/// Returns a proposal with an error in it.
fn broken(app: &App, number: u32, change: impl FnOnce(&mut Draft)) -> Broken {
    let parties = negotiation::Parties { job: app.job, run: FIRST, initiator: Side::Application };
    let template = Template::of_one(parties, Direction::Grow, app.item(1)).expect("a template");
    let mut template = Draft::from(template);
    change(&mut template);
    let statement = Some(BrokenStatement::Propose { round: 1, template, valid_for: Span::from_secs(10) });
    Broken { id: own(number), number: 1, seen: 0, statement }
}

#[test]
fn nonsense_is_refused_in_words_and_changes_nothing() {
    tell(async {
        let scene = Scene::of_nodes(2).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        // A message without a valid template is refused under its number.
        let changes: [fn(&mut Draft); 9] = [
            |template| template.items[0].kind = 77,
            |template| template.items[0].quantity = u64::MAX,
            |template| template.items[0].held = u64::MAX - 1,
            |template| template.items[0].least = 0,
            |template| template.items[0].price = u64::MAX,
            |template| template.items[0].duration = Some(-1),
            |template| template.items[0].shape = 9,
            |template| template.items.clear(),
            |template| template.items = vec![template.items[0].clone(); 65],
        ];
        for change in changes {
            let call = broken(&app, 1, change);
            let seq = app.say_broken(call).await;
            assert_eq!(app.answer_to(seq).await, Err("malformed".to_owned()));
        }
        // A valid one about other jobs, or about nothing known here, is refused, or has no effect.
        let says = [
            Message::new(rms(1), 1, 0, Some(Statement::Accept { round: 1 })),
            Message::new(own(1), 1, 9, Some(Statement::Accept { round: 3 })),
            Message::new(own(90), u32::MAX, u32::MAX, None),
            Message::new(own(1), 2, 0, Some(Statement::Ready { round: 1, nodes: [NodeId(u32::MAX)].into() })),
        ];
        for message in says {
            app.say(&NegotiatorCall::Say(Box::new(message))).await;
        }
        let foreign = broken(&app, 5, |template| template.parties.job.0 += 1);
        app.say_broken(foreign).await;
        let stale = broken(&app, 6, |template| template.parties.run.0 += 1);
        app.say_broken(stale).await;
        assert_eq!(app.holding.nodes.len(), 1);
        // The channel still works.
        app.dialogues.go_on_from(90);
        let id = app.propose(Direction::Grow, 1).await;
        app.until_phase(id, Phase::Applied).await;
        scene.end(job).await;
    });
}

fn own(number: u32) -> NegotiationId {
    NegotiationId { initiator: Side::Application, number }
}

fn rms(number: u32) -> NegotiationId {
    NegotiationId { initiator: Side::Rms, number }
}

#[test]
fn replays_and_late_answers_change_nothing() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        let (sets, items) = (vec![SetRule::All], vec![app.item(1)]);
        let span = Span::from_secs(20);
        let (id, output) = app.dialogues.open(now(), Direction::Grow, sets, items, span).expect("a proposal");
        let [proposal] = output.messages.as_slice() else { panic!("{output:?}") };
        let proposal = proposal.clone();
        app.send(output).await;
        app.until_phase(id, Phase::Applied).await;
        // The same proposal again, an acceptance of a finished negotiation, and an end of it.
        for _ in 0..50 {
            app.say(&NegotiatorCall::Say(Box::new(proposal.clone()))).await;
        }
        let end = Statement::End { ending: negotiation::Ending::Failed, reason: negotiation::Reason::Lost };
        app.say(&NegotiatorCall::Say(Box::new(Message::new(id, 9, 1, Some(end))))).await;
        let id = app.propose(Direction::Grow, 1).await;
        app.until_phase(id, Phase::Applied).await;
        app.until_holding(|holding| holding.nodes.len() == 3).await;
        scene.end(job).await;
    });
}

#[test]
fn a_flood_of_one_application_takes_little_memory_and_nobody_elses_time() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let app = scene.attached(job).await;
        let before = scene.resident_kib();
        let App { client, mut sender, receiver, .. } = app;
        // It sends as fast as it can, each time about a new negotiation, and reads nothing.
        let flood = tokio::spawn(async move {
            for number in 1..u32::MAX {
                let statement = Some(Statement::Accept { round: 1 });
                let call = NegotiatorCall::Say(Box::new(Message::new(own(number), 1, 0, statement)));
                if sender.send(&NegotiatorSays { seq: u64::from(number), call }).await.is_err() {
                    break;
                }
            }
            drop((client, receiver));
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        scene.expect_others_are_served().await;
        let taken = scene.resident_kib().saturating_sub(before);
        assert!(taken < 64 << 10, "{taken} KiB");
        flood.abort();
    });
}

#[test]
fn a_message_that_names_more_nodes_than_there_are_is_refused() {
    tell(async {
        let scene = Scene::of_nodes(3).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        let nodes = (0..70_000).map(NodeId).collect();
        let statement = Some(BrokenStatement::Commit { round: 1, nodes });
        app.say_broken(Broken { id: own(1), number: 1, seen: 0, statement }).await;
        let reason = app.client.link.closed().await;
        assert!(reason.contains("NegotiatorSays"), "{reason}");
        scene.expect_others_are_served().await;
        scene.end(job).await;
    });
}

#[test]
fn a_server_that_was_killed_goes_on_with_the_talk() {
    tell(async {
        let mut scene = Scene::of_nodes(2).await;
        let job = scene.started(1).await;
        let mut app = scene.attached(job).await;
        let id = app.propose(Direction::Grow, 1).await;
        app.until_phase(id, Phase::Applied).await;
        let credentials = scene.credentials(job).await;
        scene.server.kill();
        scene.server.restart();
        for idx in 1..=2 {
            let credentials = scene.server.agent_credentials(&format!("n{idx}")).await;
            scene.nodes[idx - 1] = Node::with_job(&credentials, scene.server.address, (job, FIRST)).await;
        }
        let client = Client::connect(&credentials, scene.server.address).await;
        let mut app = App::attach(client).await.expect("the same certificate is good still");
        assert_eq!((app.holding.generation, app.holding.nodes.len()), (2, 2));
        let id = app.propose(Direction::Shrink, 1).await;
        assert_eq!(id.number, 2, "it remembers which numbers were used");
        app.until_phase(id, Phase::Accepted).await;
        app.commit_last(id).await;
        app.until_phase(id, Phase::Applied).await;
    });
}
