//! The link to the server and the calls on it.

pub(crate) mod follow;
pub(crate) mod watch;

use rms_api::Answer;
use rms_api::Refused;
use rms_api::answer::LauncherReport;
use rms_api::answer::ServerReport;
use rms_api::call::HistoryQuery;
use rms_api::filter::{JobFilter, NodeFilter};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rms_api::answer::{JobDetail, JobLine, NodeLine, Reason, Status, ViewAnswer};
use rms_api::audit::AuditEntry;
use rms_api::call::{Call, Query, Select, Submission};
use rms_api::masks::{MaskOrder, MasksOf, NodeMasks};
use rms_api::negotiate::BudgetLine;
use rms_model::token::{Issued, Token};
use rms_model::{ClusterId, Evolution, Identity, JobId, JobRecord, Request, Role, Time};
use rms_wire::link::dial_local;
use rms_wire::{Backoff, ClientRequest, Credentials, Endpoint, Expect, Link, LinkError, NewKey, TokenText, Tuning};
use tokio::sync::Mutex;

use crate::dir::{ClientConfig, DirError, SYSTEM_SOCKET, find_client_dir, load_credentials};
use crate::error::{CallError, ConnectError};

use self::follow::Follow;
use self::watch::Watch;

/// A client of one server. Clones share one link; calls of clones run side by side.
#[derive(Clone, Debug)]
pub struct Client(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    dir: PathBuf,
    server: String,
    /// Made when there is something to do over the network.
    endpoint: OnceLock<Endpoint>,
    credentials: RwLock<Credentials>,
    identity: Identity,
    link: Mutex<Option<Link>>,
    /// Of launchers' sessions, with an endpoint of its own.
    attentive: Mutex<Option<(Endpoint, Link)>>,
}

/// Another process needs no longer to renew the certificate of both.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(10);
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

/// What a submission became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is in the queue, durably.
    Job(JobId),
    /// For `test_only`: nothing was submitted.
    WouldStart {
        /// The size that would be started.
        request: Request,
        /// When; absent if that cannot be planned yet.
        at: Option<Time>,
        /// Why not at once.
        reason: Option<Reason>,
    },
}

/// Jobs that wait or run, in the order in which they would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The server's clock.
    pub now: Time,
    /// When the plan was made by which waiting jobs would start. All else is as of `now`.
    pub planned: Time,
    /// One line a job.
    pub jobs: Vec<JobLine>,
}

/// All that is known of some jobs in the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDetails {
    /// The server's clock.
    pub now: Time,
    /// The jobs, in the order of ids.
    pub jobs: Vec<JobDetail>,
}

/// The nodes and clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    /// The server's clock.
    pub now: Time,
    /// The nodes, in the server's order.
    pub nodes: Vec<NodeLine>,
    /// The clusters' names.
    pub clusters: Vec<(ClusterId, String)>,
}

/// What an order to several jobs did, job by job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsDone {
    /// Jobs that obeyed.
    pub done: Vec<JobId>,
    /// Jobs that did not, and why.
    pub refused: Vec<(JobId, Refused)>,
}

impl Client {
    /// Links to the server that the client directory `dir` names; tries for five seconds.
    ///
    /// # Errors
    /// A directory that cannot be used, or a server that does not answer or denies access.
    pub async fn connect(dir: &Path) -> Result<Client, ConnectError> {
        let config = ClientConfig::load(dir)?;
        Client::over(dir, config.server, None).await
    }

    /// As [`Client::connect`], for a command that makes some calls and ends: on the server's machine it goes over its local
    /// socket, which costs less, carries eight calls and streams at a time, and shows a server that is stopped no sooner than
    /// its calls do.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_briefly(dir: &Path) -> Result<Client, ConnectError> {
        let config = ClientConfig::load(dir)?;
        let socket = config.socket.unwrap_or_else(|| SYSTEM_SOCKET.into());
        Client::over(dir, config.server, Some(&socket)).await
    }

    async fn over(dir: &Path, server: String, socket: Option<&Path>) -> Result<Client, ConnectError> {
        let credentials = load_credentials(dir)?;
        let identity = credentials.identity().clone();
        // Whatever is the matter with the socket, the network tells what counts.
        let local = match socket {
            Some(socket) => dial_local(socket, &credentials).await.ok(),
            None => None,
        };
        let parts = Parts {
            dir: dir.to_owned(),
            server,
            endpoint: OnceLock::new(),
            credentials: RwLock::new(credentials),
            identity,
            link: Mutex::new(local),
            attentive: Mutex::new(None),
        };
        let client = Client(Arc::new(parts));
        let link = client.link(PATIENCE).await?;
        client.renew_if_due(&link).await;
        Ok(client)
    }

    fn endpoint(&self) -> Result<&Endpoint, ConnectError> {
        if let Some(endpoint) = self.0.endpoint.get() {
            return Ok(endpoint);
        }
        let made = Endpoint::dial_to(&self.0.server, &self.credentials())?;
        Ok(self.0.endpoint.get_or_init(|| made))
    }

    /// People's certificates are kept young by their own commands. One that cannot be renewed now, or not be written down,
    /// is good for a while yet.
    async fn renew_if_due(&self, link: &Link) {
        let credentials = self.credentials();
        let is_person = matches!(self.identity().role, Role::User | Role::Admin);
        let life = credentials.expires().since(credentials.issued()).as_millis();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
        let age = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(credentials.issued().as_millis());
        let is_due = age > life / 3 * 2 || link.wants_renewal(&credentials);
        // Only its owner renews it: files of root would lock the owner out, and one that many share is not theirs.
        let uid = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
        let is_ours = || uid(Path::new("/proc/self")).is_some_and(|own| uid(&self.0.dir.join("key.pem")) == Some(own));
        if is_person && is_due && is_ours() {
            let _good_for_a_while = self.renew_within(Duration::ZERO).await;
        }
    }

    /// Links to the server at `host:port` with the credentials in `dir`, as a process of a job finds them.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_as(dir: &Path, server: &str) -> Result<Client, ConnectError> {
        Client::over(dir, server.to_owned(), None).await
    }

    /// Links to the server that `rms` would speak with: see [`find_client_dir`].
    ///
    /// # Errors
    /// As [`Client::connect`], and [`DirError::None`].
    pub async fn connect_here() -> Result<Client, ConnectError> {
        Client::connect(&find_client_dir()?).await
    }

    /// Who we are to the server.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The server as `host:port`.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// The key and certificates in use.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, these are used.
    fn rotate(&self, credentials: &Credentials) -> Result<(), ConnectError> {
        if let Some(endpoint) = self.0.endpoint.get() {
            endpoint.rotate(credentials)?;
        }
        *self.0.credentials.write().unwrap_or_else(PoisonError::into_inner) = credentials.clone();
        Ok(())
    }

    /// The link, made anew if it has ended.
    pub(crate) async fn link(&self, patience: Duration) -> Result<Link, ConnectError> {
        let mut slot = self.0.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = self.dial(patience).await?;
        *slot = Some(link.clone());
        Ok(link)
    }

    /// A link of its own for sessions of launchers: its end is noticed sooner, on both sides.
    pub(crate) async fn attentive_link(&self) -> Result<Link, ConnectError> {
        let mut slot = self.0.attentive.lock().await;
        if let Some((_, link)) = slot.as_ref().filter(|(_, link)| !link.is_closed()) {
            return Ok(link.clone());
        }
        let endpoint = Endpoint::dial_tuned(&self.0.server, &self.credentials(), Tuning::attentive())?;
        let link = self.dial_from(&endpoint, PATIENCE).await?;
        *slot = Some((endpoint, link.clone()));
        Ok(link)
    }

    async fn dial(&self, patience: Duration) -> Result<Link, ConnectError> {
        self.dial_from(self.endpoint()?, patience).await
    }

    async fn dial_from(&self, endpoint: &Endpoint, patience: Duration) -> Result<Link, ConnectError> {
        let server = &self.0.server;
        let begun = Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let attempt = async {
                let address = rms_wire::link::resolve(server).await?;
                endpoint.connect(address, Expect::server()).await
            };
            // A server that starts while an attempt is under way is found by the next one, sooner than by QUIC's
            // own repetitions.
            let left = patience.saturating_sub(begun.elapsed()).max(FIRST_ATTEMPT);
            let limit = ATTEMPT.min(left);
            let result = tokio::time::timeout(limit, attempt).await;
            let error = match result {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(LinkError::Denied { reason })) => {
                    return Err(ConnectError::Denied { server: server.clone(), reason });
                }
                Ok(Err(error)) => error,
                Err(_) => LinkError::TooSlow { secs: limit.as_secs() },
            };
            let delay = backoff.delay();
            if begun.elapsed() + delay >= patience {
                return Err(ConnectError::Unreachable {
                    server: server.clone(),
                    waited: begun.elapsed(),
                    source: error,
                });
            }
            self.pause(delay).await;
        }
    }

    /// Waits before the next attempt: so long, or until the server is back and says so.
    pub(crate) async fn pause(&self, delay: Duration) {
        match self.0.endpoint.get() {
            Some(endpoint) => endpoint.pause(delay).await,
            None => tokio::time::sleep(delay).await,
        }
    }

    /// Asks; repeated over a new link if the link breaks, because a question changes nothing.
    async fn ask(&self, call: &ClientRequest) -> Result<Answer, CallError> {
        let begun = Instant::now();
        loop {
            let link = self.link(PATIENCE).await?;
            match link.call(call).await {
                Ok(reply) => return Ok(reply),
                Err(rms_wire::CallError::Refused(refused)) => return Err(CallError::Refused(refused)),
                Err(rms_wire::CallError::Link(error)) => {
                    let may_repeat = link.is_closed() && !error.is_violation() && begun.elapsed() < PATIENCE;
                    if !may_repeat {
                        return Err(CallError::Interrupted(error));
                    }
                }
            }
        }
    }

    /// Orders; never repeated.
    async fn tell(&self, call: &ClientRequest) -> Result<Answer, CallError> {
        let link = self.link(PATIENCE).await?;
        link.call(call).await.map_err(|error| match error {
            rms_wire::CallError::Refused(refused) => CallError::Refused(refused),
            rms_wire::CallError::Link(error) => CallError::Interrupted(error),
        })
    }

    async fn query(&self, query: Query) -> Result<Answer, CallError> {
        self.ask(&ClientRequest::Call(Call::Query(query))).await
    }

    /// Any call of the core but `Join`; the typed methods are easier. A question is asked again if the link breaks.
    ///
    /// # Errors
    /// As every call.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let is_question = matches!(call, Call::Query(_));
        let request = ClientRequest::Call(call);
        if is_question { self.ask(&request).await } else { self.tell(&request).await }
    }

    /// Submits a job; when this returns it is durable.
    ///
    /// # Errors
    /// Refusals say what would be possible.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, CallError> {
        let reply = self.call(Call::Submit(Box::new(submission))).await?;
        if let Answer::Submitted { job } = reply {
            return Ok(Submitted::Job(job));
        }
        let Answer::WouldStart { request, at, reason } = reply else {
            return Err(CallError::Unexpected);
        };
        Ok(Submitted::WouldStart { request, at, reason })
    }

    /// An order to jobs: cancel, signal, hold, release, priority.
    ///
    /// # Errors
    /// As every call; what single jobs refuse is in the answer.
    pub async fn order(&self, call: Call) -> Result<JobsDone, CallError> {
        let Answer::Jobs { done, refused } = self.call(call).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(JobsDone { done, refused })
    }

    /// Gives waiting jobs another priority: the higher, the sooner. Only an admin may go above 0.
    ///
    /// # Errors
    /// As [`Client::order`].
    pub async fn set_priority(&self, select: Select, priority: i32) -> Result<JobsDone, CallError> {
        self.order(Call::set_priority(select, priority)).await
    }

    /// An order that answers nothing but that it is done, durably: set, drain, down, resume, remove, revoke.
    ///
    /// # Errors
    /// As every call.
    pub async fn change(&self, call: Call) -> Result<(), CallError> {
        let reply = self.call(call).await?;
        // Which jobs it concerned is of no matter here.
        let is_done = matches!(reply, Answer::Done | Answer::Jobs { .. });
        if is_done { Ok(()) } else { Err(CallError::Unexpected) }
    }

    /// Announces the stages of an evolving job anew: of a waiting one all, of a running one those from now on, of which
    /// the first is what it holds (000, 003). With `open`, more may be announced before these are over.
    ///
    /// # Errors
    /// Where the stages do not fit within the job's expand limit the refusal says when they would; those announced
    /// before stay.
    pub async fn evolve(&self, job: JobId, stages: Evolution, open: bool) -> Result<(), CallError> {
        self.change(Call::Evolve { job, stages, open }).await
    }

    /// Names, by name, the nodes that an evolving job frees at its next smaller stage (003, Alg. 1: the application
    /// chooses).
    ///
    /// # Errors
    /// Nodes that are not the job's, its first one, or more than the next stage gives up.
    pub async fn free_nodes(&self, job: JobId, nodes: Vec<String>) -> Result<(), CallError> {
        self.change(Call::FreeNodes { job, nodes }).await
    }

    /// Jobs that wait or run, all of them.
    ///
    /// # Errors
    /// As every call.
    pub async fn queue(&self) -> Result<Queue, CallError> {
        self.queue_of(JobFilter::default()).await
    }

    /// Those that a filter selects, sorted and cut by the server.
    ///
    /// # Errors
    /// As every call; a cluster that does not exist.
    pub async fn queue_of(&self, filter: JobFilter) -> Result<Queue, CallError> {
        let Answer::Queue { now, planned, jobs } = self.query(Query::Queue(filter)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(Queue { now, planned, jobs })
    }

    /// All about jobs that are in the system.
    ///
    /// # Errors
    /// As every call; jobs that have ended are refused as `no_such_job`: look in the [history](Client::history).
    pub async fn jobs(&self, select: Select) -> Result<JobDetails, CallError> {
        self.details(Query::Job(select)).await
    }

    /// As [`Client::jobs`], with the reasons for waiting brought up to date.
    ///
    /// # Errors
    /// As [`Client::jobs`].
    pub async fn explain(&self, select: Select) -> Result<JobDetails, CallError> {
        self.details(Query::Explain(select)).await
    }

    async fn details(&self, query: Query) -> Result<JobDetails, CallError> {
        let Answer::Detail { now, planned: _, jobs } = self.query(query).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(JobDetails { now, jobs })
    }

    /// All nodes and the clusters' names.
    ///
    /// # Errors
    /// As every call.
    pub async fn nodes(&self) -> Result<NodeList, CallError> {
        self.nodes_of(NodeFilter::default()).await
    }

    /// The nodes that a filter selects, sorted and cut by the server, and the names of all clusters.
    ///
    /// # Errors
    /// As every call; a node or a cluster that does not exist.
    pub async fn nodes_of(&self, filter: NodeFilter) -> Result<NodeList, CallError> {
        let Answer::Nodes { now, nodes, clusters } = self.query(Query::Nodes(filter)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(NodeList { now, nodes, clusters })
    }

    /// What the clusters are called, which requests name by number.
    ///
    /// # Errors
    /// As every call.
    pub async fn clusters(&self) -> Result<Vec<(ClusterId, String)>, CallError> {
        let Answer::Clusters(clusters) = self.query(Query::Clusters).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(clusters)
    }

    /// The occupation profiles of the clusters (001, §5.1): of the whole system, or as one waiting job sees them.
    ///
    /// # Errors
    /// As every call.
    pub async fn view(&self, job: Option<JobId>) -> Result<ViewAnswer, CallError> {
        let Answer::View(view) = self.query(Query::View { job }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(view)
    }

    /// Jobs that have ended, newest first.
    ///
    /// # Errors
    /// As every call.
    pub async fn history(&self, query: HistoryQuery) -> Result<Vec<JobRecord>, CallError> {
        let Answer::History(records) = self.ask(&ClientRequest::History(query)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(records)
    }

    /// The settings, by name.
    ///
    /// # Errors
    /// As every call.
    pub async fn settings(&self) -> Result<Vec<(String, String)>, CallError> {
        let Answer::Settings(settings) = self.query(Query::Settings).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(settings)
    }

    /// Who changed which setting, oldest first.
    ///
    /// # Errors
    /// As every call; for admins.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, CallError> {
        let Answer::Audit(changes) = self.query(Query::Audit).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(changes)
    }

    /// What nodes at a price have cost the caller; for an admin, each user.
    ///
    /// # Errors
    /// As every call.
    pub async fn budgets(&self) -> Result<Vec<BudgetLine>, CallError> {
        let Answer::Budgets(users) = self.query(Query::Budgets).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(users)
    }

    /// Which CPUs jobs are to use on their nodes, and which their processes may use: of one job, or of all on a node. The
    /// agents are asked for the processes, for five seconds at most; [`NodeMasks::silent`] says of which node nothing came.
    ///
    /// # Errors
    /// As every call; a job that does not run, a node that does not exist.
    pub async fn masks(&self, of: MasksOf) -> Result<(Time, Vec<NodeMasks>), CallError> {
        let Answer::Masks { now, nodes } = self.query(Query::Masks(of)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok((now, nodes))
    }

    /// Sets the CPUs on which one process of a running job may run, as DROM does (004, §3.3), and tells the masks of the job on
    /// that node as they are then. CPUs have the kernel's numbers.
    ///
    /// # Errors
    /// As every call; a job of somebody else or that does not run, a process or CPUs that are not the job's there, a node
    /// that does not answer.
    pub async fn set_mask(&self, job: JobId, order: MaskOrder) -> Result<(Time, Vec<NodeMasks>), CallError> {
        let Answer::Masks { now, nodes } = self.call(Call::SetMask { job, order }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok((now, nodes))
    }

    /// The join tokens that the server remembers.
    ///
    /// # Errors
    /// As every call; for admins.
    pub async fn tokens(&self) -> Result<Vec<Token>, CallError> {
        let Answer::Tokens(tokens) = self.query(Query::Tokens).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(tokens)
    }

    /// The certificates that are out.
    ///
    /// # Errors
    /// As every call; for admins.
    pub async fn certificates(&self) -> Result<Vec<Issued>, CallError> {
        let Answer::Certificates(certificates) = self.query(Query::Certificates).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(certificates)
    }

    /// Counters and sizes of the server's core.
    ///
    /// # Errors
    /// As every call.
    pub async fn status(&self) -> Result<Status, CallError> {
        let Answer::Status(status) = self.query(Query::Status).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(status)
    }

    /// How the server itself is: its version, since when it runs, the sizes of what it keeps.
    ///
    /// # Errors
    /// As every call.
    pub async fn server_report(&self) -> Result<ServerReport, CallError> {
        let Answer::Server(report) = self.ask(&ClientRequest::Server).await? else { return Err(CallError::Unexpected) };
        Ok(report)
    }

    /// What launchers have cost: their views and requests, their adaptation delays (001, §5.3), the node time that ghosts
    /// have kept idle for them, and the bytes on their channels.
    ///
    /// # Errors
    /// As every call.
    pub async fn launchers(&self) -> Result<LauncherReport, CallError> {
        let Answer::Launchers(report) = self.ask(&ClientRequest::Launchers).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(*report)
    }

    /// A new token for the CA and the address of our server, not yet known to it: hand its id and digest to
    /// [`Call::CreateToken`]. `address` replaces the address by which we know the server.
    ///
    /// # Errors
    /// An address of another form than `host:port`.
    pub fn draw_token(&self, address: Option<&str>) -> Result<TokenText, rms_wire::token::TokenError> {
        TokenText::draw(&self.credentials().ca_fingerprint(), address.unwrap_or(&self.0.server))
    }

    /// Gets a fresh certificate for a fresh key, and saves both in the client directory.
    ///
    /// # Errors
    /// As every call, and a directory that cannot be written: then the old ones stay.
    pub async fn renew(&self) -> Result<Credentials, CallError> {
        self.renew_within(RENEWAL_PATIENCE).await
    }

    /// So long it waits for another process that renews them; then those are taken.
    async fn renew_within(&self, patience: Duration) -> Result<Credentials, CallError> {
        let of_dir = |source| ConnectError::Dir(DirError::Credentials { dir: self.0.dir.clone(), source });
        let begun = Instant::now();
        let lock = loop {
            let lock = Credentials::lock(&self.0.dir).map_err(of_dir)?;
            if lock.is_some() || begun.elapsed() >= patience {
                break lock;
            }
            tokio::time::sleep(RENEWAL_PAUSE).await;
        };
        let there = Credentials::load(&self.0.dir).map_err(of_dir)?;
        if lock.is_none() || there.serial() != self.credentials().serial() {
            self.rotate(&there)?;
            return Ok(there);
        }
        let key = NewKey::generate().map_err(|_| CallError::Unexpected)?;
        let csr = key.csr_der().to_vec();
        let Answer::Certificate { chain, ca } = self.call(Call::Renew { csr, serial: String::new() }).await? else {
            return Err(CallError::Unexpected);
        };
        let credentials = key.into_credentials(&chain, &ca).map_err(of_dir)?;
        credentials.save(&self.0.dir).map_err(of_dir)?;
        self.rotate(&credentials)?;
        Ok(credentials)
    }

    /// Follows a job from the beginning of its output to its end. With `input`, [`Follow::input`] feeds its
    /// task 0.
    pub fn follow(&self, job: JobId, input: bool) -> Follow {
        Follow::start(self.clone(), job, input)
    }

    /// Watches what becomes of jobs until all of them have ended.
    pub fn watch(&self, jobs: Vec<JobId>) -> Watch {
        Watch::start(self.clone(), jobs)
    }

    /// Says goodbye, so that the server need not wait for our silence; calls of clones fail from here on. It takes
    /// no time: nothing is waited for but that the word has gone out.
    pub async fn close(&self) {
        if let Some(link) = self.0.link.lock().await.take() {
            link.close("done");
        }
        let attentive = self.0.attentive.lock().await.as_ref().map(|(endpoint, _)| endpoint.clone());
        let endpoints: Vec<Endpoint> = self.0.endpoint.get().cloned().into_iter().chain(attentive).collect();
        endpoints.iter().for_each(|endpoint| endpoint.close("done"));
        // The tasks that send it get their turn; if not all do, the server will notice our silence. The local socket has it.
        let n_turns = if endpoints.is_empty() { 0 } else { GOODBYE_TURNS };
        for _ in 0..n_turns {
            tokio::task::yield_now().await;
        }
    }
}

/// How long a call looks for the server before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long one attempt may take; a handshake over the widest of networks takes less.
const ATTEMPT: Duration = Duration::from_millis(2500);
/// Whatever the patience, one attempt must be able to succeed.
const FIRST_ATTEMPT: Duration = Duration::from_millis(200);
/// More turns than QUIC's tasks need to hand a packet to the system.
const GOODBYE_TURNS: usize = 16;
