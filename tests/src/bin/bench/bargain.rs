//! Negotiations over QUIC (002, Table 1): an application and the server bargain about a price for as many rounds as
//! wanted, beside an echo of the same bytes over an equal connection and over plain TCP.

use rms_api::Answer;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use negotiation::{
    Action, Dialogues, Direction, Item, ItemStatus, Message, NegotiationId, Output, Phase, Price, Quantity, Reason,
    Resource, SetRule, Sizes, Terms,
};
use rms_api::Call;
use rms_api::call::{Nodes, Shape, Submission};
use rms_api::negotiate::{Attached, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_model::{Identity, JobId, Malleable, OnResize, Role, Run, Span, Speedup, Time};
use rms_wire::negotiate::NegotiatorTold;
use rms_wire::tls::draw_serial;
use rms_wire::{
    Authority, ClientRequest, Credentials, Endpoint, Expect, Link, NegotiatorSays, NewKey, Receiver, Revoked, Sender,
    Serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fleet::{Fleet, Manner};
use crate::server::{self, Server};
use crate::table::{Table, Target, quantile};

const ROUNDS: [u16; 5] = [1, 2, 5, 10, 20];
const REPETITIONS: usize = 200;
/// An agreement takes a node, which has to be given back before the next one.
const AGREEMENTS: usize = 40;
const APPLICATIONS: u32 = 1000;
/// The list price; the floor is a hundredth of it, so there is room for as many bids as rounds are allowed.
const LIST: u64 = 1_000_000;

pub fn table() -> Result<Table> {
    let mut table = Table::new("Negotiations over QUIC with TLS on a warm connection (002, Table 1)");
    let settings = format!("price = {LIST}\nprice_floor = 1\noffer_idle = \"never\"\ndelay_tolerance = \"0s\"");
    let server = Server::start_with(&settings)?;
    let (address, authority) = (server.address()?, Authority::load(&server.dir().join("ca"))?);
    let _fleet = Fleet::start(address, &server.dir().join("ca"), 0, APPLICATIONS + 4, Manner::Hold)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = server.client().await?;
        let job = submit(&client).await?;
        let mut application = Application::attach(address, &authority, job).await?;
        application.negotiation(2, Finish::Withdraw).await?;
        let echo = Echo::start(&authority).await?;
        let mut tcp = Tcp::start().await?;
        let mut medians: Vec<(u16, f64, f64)> = Vec::new();
        for n_rounds in ROUNDS {
            let mut negotiations = Vec::new();
            let mut traffic = Traffic::default();
            for _ in 0..REPETITIONS {
                let begun = Instant::now();
                traffic = application.negotiation(n_rounds, Finish::Withdraw).await?;
                negotiations.push(millis(begun.elapsed()));
            }
            let (mut echoes, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..REPETITIONS {
                echoes.push(millis(echo.exchange(&traffic.said).await?));
                plain.push(millis(tcp.exchange(&traffic.bytes).await?));
            }
            let name = |what: &str| format!("rounds {n_rounds}: {what}");
            let limit = quantile(&mut echoes, 0.5);
            let median = quantile(&mut negotiations, 0.5);
            table.note(name("p50"), median, "ms");
            table.note(name("p99"), quantile(&mut negotiations, 0.99), "ms");
            table.note(name("the same frames echoed over QUIC, p50"), limit, "ms");
            table.note(name("the same bytes echoed over TCP, p50"), quantile(&mut plain, 0.5), "ms");
            let bound = "the end is synced, and the server's threads are woken";
            table.measure(name("beside the echo"), median / limit, "×", Target::AtMost(1.5), bound);
            medians.push((n_rounds, median, limit));
        }
        if let (Some(few), Some(many)) = (medians.first(), medians.last()) {
            // The end of a talk is written to the disk; the rounds before it are not waited for.
            let n_more = f64::from(many.0 - few.0);
            let (round, echoed) = ((many.1 - few.1) / n_more, (many.2 - few.2) / n_more);
            table.note("each further round", round, "ms");
            let bound = "two hand-overs between threads, and the journal's buffer";
            table.measure("… beside its echo", round / echoed, "×", Target::AtMost(1.5), bound);
        }
        for n_rounds in ROUNDS {
            let mut agreed = Vec::new();
            for _ in 0..AGREEMENTS {
                let begun = Instant::now();
                application.negotiation(n_rounds, Finish::Agree).await?;
                agreed.push(millis(begun.elapsed()));
                application.give_back().await?;
            }
            table.note(format!("rounds {n_rounds}: to an agreement on disk, p50"), quantile(&mut agreed, 0.5), "ms");
        }
        drop(application);
        cold(&mut table, address, &certify(&authority, &Identity::of_job(job, Run(1)))?).await
    })?;
    crowd(&mut table, &server, address, &authority)?;
    Ok(table)
}

/// All that a negotiation takes: connecting, attaching, its rounds, and closing.
async fn cold(table: &mut Table, address: SocketAddr, credentials: &Credentials) -> Result<()> {
    for n_rounds in ROUNDS {
        let (mut negotiations, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..AGREEMENTS {
            let begun = Instant::now();
            let mut application = Application::attach_as(address, credentials).await?;
            application.negotiation(n_rounds, Finish::Withdraw).await?;
            negotiations.push(millis(begun.elapsed()));
            let begun = Instant::now();
            application.close().await;
            ends.push(millis(begun.elapsed()));
            // Who attaches more often than some times in a second is refused.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let cold = quantile(&mut negotiations, 0.5);
        table.note(format!("rounds {n_rounds}: cold, with connecting and attaching, p50"), cold, "ms");
        // Three of QUIC's probe timeouts, in which the other end may ask for the last word again.
        table.note(format!("rounds {n_rounds}: closing, p50"), quantile(&mut ends, 0.5), "ms");
    }
    Ok(())
}

/// Many at once, each over a connection of its own.
fn crowd(table: &mut Table, server: &Server, address: SocketAddr, authority: &Authority) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = server.client().await?;
        let mut applications = Vec::new();
        for _ in 0..APPLICATIONS - 1 {
            let job = submit(&client).await?;
            applications.push(Application::attach(address, authority, job).await?);
        }
        const CROWD_ROUNDS: u16 = 5;
        let begun = Instant::now();
        let mut negotiations = tokio::task::JoinSet::new();
        for mut application in applications {
            negotiations.spawn(async move {
                let begun = Instant::now();
                application.negotiation(CROWD_ROUNDS, Finish::Withdraw).await?;
                anyhow::Ok(millis(begun.elapsed()))
            });
        }
        let mut each = Vec::new();
        while let Some(negotiation) = negotiations.join_next().await {
            each.push(negotiation.context("no task panics")??);
        }
        let all = begun.elapsed().as_secs_f64();
        let rounds = each.len() as f64 * f64::from(CROWD_ROUNDS);
        table.note(format!("{} applications at once, 5 rounds each: all", each.len()), 1000.0 * all, "ms");
        table.note("… each, p50", quantile(&mut each, 0.5), "ms");
        table.note("… each, p99", quantile(&mut each, 0.99), "ms");
        table.note("… rounds in a second", rounds / all, "/s");
        anyhow::Ok(())
    })
}

/// How a talk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Withdraw,
    Agree,
}

/// What a talk has sent, to be echoed.
#[derive(Debug, Default)]
struct Traffic {
    said: Vec<NegotiatorSays>,
    /// Of each frame up and of the one that answered it.
    bytes: Vec<(usize, usize)>,
}

/// A process of a job, as far as the server can tell.
struct Application {
    attached: Attached,
    dialogues: Dialogues,
    sender: Sender,
    receiver: Receiver,
    seq: u64,
    // The link ends with it.
    link: Link,
    endpoint: Endpoint,
}

impl Application {
    async fn attach(address: SocketAddr, authority: &Authority, job: JobId) -> Result<Application> {
        Application::attach_as(address, &certify(authority, &Identity::of_job(job, Run(1)))?).await
    }

    async fn attach_as(address: SocketAddr, credentials: &Credentials) -> Result<Application> {
        let endpoint = Endpoint::dial(credentials)?;
        let link = endpoint.connect(address, Expect::server()).await?;
        let (mut sender, mut receiver) = link.open().await?.split();
        sender.send(&ClientRequest::Negotiator).await?;
        sender.send(&NegotiatorSays { seq: 1, call: NegotiatorCall::Attach(Default::default()) }).await?;
        loop {
            let NegotiatorTold::Answer { answer, .. } = receiver.recv_required::<NegotiatorTold>().await? else {
                continue;
            };
            let NegotiatorAnswer::Attached(attached) = answer? else { bail!("it is not attached") };
            let side = negotiation::Side::Application;
            let mut dialogues = Dialogues::new(side, attached.job, attached.run, attached.rules);
            dialogues.skip_to(attached.n_opened);
            let (attached, seq) = (*attached, 1);
            return Ok(Application { attached, dialogues, sender, receiver, seq, link, endpoint });
        }
    }

    /// Until the server was told.
    async fn close(self) {
        self.link.close("done");
        self.endpoint.wait_idle().await;
    }

    /// Bids ever more, a thousandth at a time, until there were so many proposals; then accepts the server's or declines
    /// it. If the last of them is the application's own, it is as much as the list price, or the server's answer to it is
    /// one more that is declined.
    async fn negotiation(&mut self, n_rounds: u16, finish: Finish) -> Result<Traffic> {
        let mut traffic = Traffic::default();
        // The last proposal is the application's if the number is odd: to be agreed to it is as much as the list price.
        let is_last = |round: u16| round >= n_rounds;
        let generous = finish == Finish::Agree && n_rounds == 1;
        let first = self.bid(if generous { LIST } else { 1 });
        let (id, output) =
            self.dialogues.open(now(), Direction::Grow, vec![SetRule::All], vec![first], Span::from_mins(1))?;
        self.exchange(output, &mut traffic).await?;
        loop {
            let dialogue = self.dialogues.get(id).context("it is known")?;
            let (round, phase) = (dialogue.round(), dialogue.phase());
            match phase {
                Phase::Offered(by) | Phase::Countered(by) if by == negotiation::Side::Rms => {
                    let action = match finish {
                        Finish::Withdraw if is_last(round) => Action::Reject(Reason::Price),
                        Finish::Agree if is_last(round) => Action::Accept,
                        Finish::Withdraw | Finish::Agree => {
                            let counter = self.counter(id, round + 1, n_rounds, finish)?;
                            Action::Propose { template: counter, valid_for: Span::from_mins(1) }
                        }
                    };
                    let output = self.dialogues.act(now(), id, action)?;
                    self.exchange(output, &mut traffic).await?;
                }
                Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => {
                    self.hear(&mut traffic).await?;
                }
                Phase::Accepted | Phase::Committing | Phase::Failing | Phase::Applied => return Ok(traffic),
                Phase::Ended(_) if finish == Finish::Withdraw => return Ok(traffic),
                Phase::Ended(ending) => bail!("no agreement: {ending:?}"),
            }
        }
    }

    /// The node that was agreed last comes back.
    async fn give_back(&mut self) -> Result<()> {
        let mut traffic = Traffic::default();
        while self.dialogues.open_for(Direction::Grow).is_some() {
            self.hear(&mut traffic).await?;
        }
        let held = self.attached.holding.nodes.len() as u64;
        let item = Item::up_to(self.nodes(), held, 1);
        let (id, output) =
            self.dialogues.open(now(), Direction::Shrink, vec![SetRule::All], vec![item], Span::from_mins(1))?;
        self.exchange(output, &mut traffic).await?;
        loop {
            match self.dialogues.get(id).context("it is known")?.phase() {
                Phase::Accepted => {
                    let last = self.attached.holding.nodes.last().context("it holds nodes")?.node;
                    let output = self.dialogues.act(now(), id, Action::Commit([last].into()))?;
                    self.exchange(output, &mut traffic).await?;
                }
                Phase::Applied => return Ok(()),
                Phase::Ended(ending) => bail!("the node is not taken back: {ending:?}"),
                Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged => {
                    self.hear(&mut traffic).await?;
                }
                Phase::Leaving | Phase::Committing | Phase::Failing => self.hear(&mut traffic).await?,
            }
        }
    }

    fn nodes(&self) -> Resource {
        Resource::Nodes(self.attached.holding.nodes.first().map(|node| node.cluster).unwrap_or_default())
    }

    fn bid(&self, price: u64) -> Item {
        let terms = Terms {
            least: Quantity(1),
            most: Quantity(1),
            sizes: Sizes::Any,
            duration: Some(Span::from_mins(1)),
            price: Price(price),
            deadline: None,
            give_back_by: None,
            priority: 0,
        };
        let item = Item::up_to(self.nodes(), 1, 1);
        Item { terms, status: ItemStatus::Proposed, ..item }
    }

    fn counter(&self, id: NegotiationId, round: u16, n_rounds: u16, finish: Finish) -> Result<negotiation::Template> {
        let dialogue = self.dialogues.get(id).context("it is known")?;
        let standing = dialogue.proposal().context("a proposal stands")?;
        let is_generous = finish == Finish::Agree && round >= n_rounds;
        let price = if is_generous { LIST } else { u64::from(round) };
        Ok(standing.with_items(vec![self.bid(price)])?)
    }

    async fn exchange(&mut self, output: Output, traffic: &mut Traffic) -> Result<()> {
        // What comes late or twice is no offence.
        if let Some(refused @ negotiation::Rejected::Breach(_)) = output.refused {
            bail!("the server broke a rule: {refused}");
        }
        for message in output.messages {
            self.say(message, traffic).await?;
        }
        Ok(())
    }

    async fn say(&mut self, message: Message, traffic: &mut Traffic) -> Result<()> {
        self.seq += 1;
        let says = NegotiatorSays { seq: self.seq, call: NegotiatorCall::Say(Box::new(message)) };
        let before = self.sender.n_bytes().bytes();
        self.sender.send(&says).await?;
        let n_bytes = (self.sender.n_bytes().bytes() - before) as usize;
        traffic.said.push(says);
        traffic.bytes.push((n_bytes, 0));
        Ok(())
    }

    async fn hear(&mut self, traffic: &mut Traffic) -> Result<()> {
        let before = self.receiver.n_bytes().bytes();
        match self.receiver.recv_required::<NegotiatorTold>().await? {
            NegotiatorTold::Notice(NegotiatorNotice::Said(message)) => {
                if let Some((_, answer)) = traffic.bytes.last_mut() {
                    *answer += (self.receiver.n_bytes().bytes() - before) as usize;
                }
                let output = self.dialogues.receive(now(), &message);
                Box::pin(self.exchange(output, traffic)).await
            }
            NegotiatorTold::Notice(NegotiatorNotice::Holding(holding)) => {
                self.attached.holding = *holding;
                Ok(())
            }
            NegotiatorTold::Answer { .. }
            | NegotiatorTold::Notice(NegotiatorNotice::Counted { .. } | NegotiatorNotice::NodesLost { .. }) => Ok(()),
            NegotiatorTold::Notice(other) => bail!("the server says {other:?}"),
        }
    }
}

/// A server that says back what it hears, over the same kind of link.
struct Echo {
    link: Link,
    _endpoints: (Endpoint, Endpoint),
}

impl Echo {
    async fn start(authority: &Authority) -> Result<Echo> {
        let server = certify(authority, &Identity::new(Role::Server, "echo")?)?;
        let serve = Serve::Peers { roles: vec![Role::Job], join: false, revoked: Revoked::new() };
        let listening = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &server, serve)?;
        let endpoint = listening.clone();
        // A process of its own would have a thread of its own, too.
        std::thread::Builder::new().name("echo".to_owned()).spawn({
            let endpoint = endpoint.clone();
            move || echo(&endpoint)
        })?;
        let job = certify(authority, &Identity::of_job(JobId(1), Run(1)))?;
        let dialling = Endpoint::dial(&job)?;
        let link = dialling.connect(listening.local_addr()?, Expect::server()).await?;
        Ok(Echo { link, _endpoints: (endpoint, dialling) })
    }

    async fn exchange(&self, said: &[NegotiatorSays]) -> Result<Duration> {
        let (mut sender, mut receiver) = self.link.open().await?.split();
        // The channel is warm, as that of a negotiator is.
        for says in said.iter().take(1) {
            sender.send(says).await?;
            receiver.recv_required::<NegotiatorSays>().await?;
        }
        let begun = Instant::now();
        for says in said {
            sender.send(says).await?;
            receiver.recv_required::<NegotiatorSays>().await?;
        }
        Ok(begun.elapsed())
    }
}

fn echo(endpoint: &Endpoint) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        while let Some(accepted) = endpoint.accept().await {
            let rms_wire::Accepted::Link(link) = accepted else { continue };
            tokio::spawn(async move {
                while let Ok(channel) = link.accept().await {
                    let (mut sender, mut receiver) = channel.split();
                    while let Ok(Some(says)) = receiver.recv::<NegotiatorSays>().await {
                        if sender.send(&says).await.is_err() {
                            break;
                        }
                    }
                }
            });
        }
    });
}

/// The same over plain TCP.
struct Tcp {
    stream: TcpStream,
}

impl Tcp {
    async fn start() -> Result<Tcp> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        std::thread::Builder::new().name("tcp-echo".to_owned()).spawn(move || tcp_echo(listener))?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Tcp { stream })
    }

    async fn exchange(&mut self, frames: &[(usize, usize)]) -> Result<Duration> {
        let mut buffer = vec![7; frames.iter().map(|(up, _)| *up).max().unwrap_or(0)];
        let begun = Instant::now();
        for (up, _) in frames {
            self.stream.write_all(&buffer[..*up]).await?;
            self.stream.read_exact(&mut buffer[..*up]).await?;
        }
        Ok(begun.elapsed())
    }
}

fn tcp_echo(listener: TcpListener) {
    let serve = || -> Result<()> {
        let listener = listener.into_std()?;
        listener.set_nonblocking(false)?;
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; 64 << 10];
        loop {
            let n_bytes = std::io::Read::read(&mut stream, &mut buffer)?;
            if n_bytes == 0 {
                return Ok(());
            }
            std::io::Write::write_all(&mut stream, &buffer[..n_bytes])?;
        }
    };
    if let Err(error) = serve() {
        eprintln!("bench: the TCP echo: {error:#}");
    }
}

async fn submit(client: &server::Client) -> Result<JobId> {
    let malleable = Malleable {
        least: 1,
        most: 2,
        sizes: Sizes::Any,
        on_resize: OnResize::Negotiates,
        speedup: Speedup::default(),
        survives_loss: None,
    };
    let plain = server::submission(&["sleep", "3600"], Span::from_hours(2));
    let shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_hours(2)) }];
    let call = Call::Submit(Box::new(Submission { malleable: Some(malleable), shapes, ..plain }));
    let Answer::Submitted { job } = client.call(&call).await? else { bail!("it was not submitted") };
    let begun = Instant::now();
    loop {
        let select = rms_api::call::Select::Ids(vec![job]);
        let reply = client.call(&Call::Query(rms_api::Query::Job(select))).await?;
        if let Answer::Detail { jobs, .. } = reply
            && jobs.iter().any(|detail| detail.line.state == rms_api::answer::JobState::Started)
        {
            return Ok(job);
        }
        if begun.elapsed() > Duration::from_secs(30) {
            bail!("job {job} does not start");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn certify(authority: &Authority, identity: &Identity) -> Result<Credentials> {
    let key = NewKey::generate()?;
    let (before, after) = (now() - Span::from_mins(1), now() + Span::from_hours(24));
    let chain = authority.sign(key.csr_der(), identity, &draw_serial(), before, after)?;
    Ok(key.into_credentials(&chain, authority.ca_pem())?)
}

fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

fn millis(span: Duration) -> f64 {
    1000.0 * span.as_secs_f64()
}
