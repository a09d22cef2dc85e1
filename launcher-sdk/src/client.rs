//! The link to the server and the calls on it.

pub(crate) mod follow;
mod orders;
mod renewal;
mod submissions;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

use rms_api::answer::LauncherReport;
use rms_api::answer::ServerReport;
use rms_api::call::HistoryQuery;
use rms_api::filter::{JobFilter, NodeFilter};
use rms_api::{Answer, Refused};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rms_api::answer::{JobDetail, JobLine, LicenceLine, NodeLine, Reason, Status, ViewAnswer};
use rms_api::audit::AuditEntry;
use rms_api::call::{Call, Query, Select};
use rms_api::masks::{MasksOf, NodeMasks};
use rms_api::negotiate::{BudgetLine, NegotiationLine};
use rms_model::token::{Issued, Token};
use rms_model::{ClusterId, Identity, JobId, JobRecord, Request, Time};
use rms_wire::link::{dial_local, port_unreachable};
use rms_wire::{Backoff, Channel, ClientRequest, Credentials, Endpoint, Expect, Link, LinkError, TokenText, Tuning};
use tokio::sync::watch::{Receiver, Sender};
use tokio::sync::{Mutex, mpsc};

use crate::dir::{ClientConfig, SYSTEM_SOCKET, find_client_dir, load_credentials};
use crate::error::{CallError, ConnectError};

use self::follow::Follow;
use self::watch::Watch;

/// A client of one server. Clones share one link; calls of clones run side by side.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    server: String,
    /// Created with the first use of the network.
    endpoint: OnceLock<Endpoint>,
    credentials: RwLock<Credentials>,
    identity: Identity,
    link: Mutex<Option<Link>>,
    /// The link of launchers' sessions, with its own endpoint.
    launcher_link: Mutex<Option<(Endpoint, Link)>>,
    /// Notifies the task that renews the certificate. If it is full, the task has not handled the last reconnection
    /// yet.
    reconnections: mpsc::Sender<()>,
    is_unanswered: Sender<bool>,
}

/// The result of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The job is in the queue, durably.
    Job(JobId),
    /// The answer to `test_only`: nothing was submitted.
    WouldStart {
        /// The request with which the job would start.
        request: Request,
        /// When the job would start; absent if that cannot be planned yet.
        at: Option<Time>,
        /// Why it would not start at once.
        reason: Option<Box<Reason>>,
        /// If several sizes are possible: when each would start if it were the only one. Empty otherwise, and if the
        /// job cannot be planned yet.
        sizes: Vec<(Request, Option<Time>)>,
        /// The server's clock when it answered; absent if the server does not say it.
        now: Option<Time>,
        /// The running jobs on whose cores it would start at once (004, §3). The request then has the time that it would
        /// take there.
        lent_by: Vec<JobId>,
    },
}

/// Waiting and running jobs, in the order of their planned starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The server's clock.
    pub now: Time,
    /// When the plan for the waiting jobs was made. Everything else is as of `now`.
    pub planned: Time,
    /// One line for each job.
    pub jobs: Vec<JobLine>,
}

/// All details of some jobs in the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDetails {
    /// The server's clock.
    pub now: Time,
    /// The jobs, ordered by id.
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

/// The result of an order to several jobs, job by job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the order may have been refused for some of the jobs"]
pub struct JobsDone {
    /// Jobs for which the order was carried out.
    pub done: Vec<JobId>,
    /// Jobs for which it was refused, and why.
    pub refused: Vec<(JobId, Refused)>,
}

/// Opens a channel for a call that has more than one answer; none if the link has broken.
async fn begin(link: &Link, call: &ClientRequest) -> Option<Channel> {
    let mut channel = link.open().await.ok()?;
    channel.send(call).await.ok()?;
    Some(channel)
}

impl Client {
    /// Connects to the server that the client directory `dir` names; tries for five seconds.
    ///
    /// # Errors
    /// The directory cannot be used, or the server does not answer or denies access.
    pub async fn connect(dir: &Path) -> Result<Client, ConnectError> {
        let config = ClientConfig::load(dir)?;
        Client::over(dir, config.server, None).await
    }

    /// Like [`Client::connect`], for a command that makes a few calls and ends. On the server's machine it uses the
    /// server's local socket, which is cheaper and carries up to eight concurrent calls and streams. Over the socket, a
    /// stopped server is noticed only when a call fails.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub async fn connect_briefly(dir: &Path) -> Result<Client, ConnectError> {
        let config = ClientConfig::load(dir)?;
        let socket = config.socket.unwrap_or_else(|| SYSTEM_SOCKET.into());
        Client::over(dir, config.server, Some(&socket)).await
    }

    async fn over(dir: &Path, server: String, socket: Option<&Path>) -> Result<Client, ConnectError> {
        let credentials = load_credentials(dir)?;
        let identity = credentials.identity().clone();
        // If the socket cannot be used, the attempt over the network below reports the error.
        let local = match socket {
            Some(socket) => dial_local(socket, &credentials).await.ok(),
            None => None,
        };
        let (reconnections, mut reconnected) = mpsc::channel(1);
        let parts = Inner {
            dir: dir.to_owned(),
            server,
            endpoint: OnceLock::new(),
            credentials: RwLock::new(credentials),
            identity,
            link: Mutex::new(local),
            launcher_link: Mutex::new(None),
            reconnections,
            is_unanswered: Sender::new(false),
        };
        let client = Client(Arc::new(parts));
        let link = client.link(PATIENCE).await?;
        client.renew_if_due(&link).await;
        let _no_reconnection = reconnected.try_recv();
        tokio::spawn(renewal::keep_renewed(Arc::downgrade(&client.0), reconnected));
        Ok(client)
    }

    fn endpoint(&self) -> Result<&Endpoint, ConnectError> {
        if let Some(endpoint) = self.0.endpoint.get() {
            return Ok(endpoint);
        }
        let made = Endpoint::dial_to(&self.0.server, &self.credentials())?;
        Ok(self.0.endpoint.get_or_init(|| made))
    }

    /// Connects to the server at `host:port` with the credentials in `dir`, as a process of a job does.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub async fn connect_as(dir: &Path, server: &str) -> Result<Client, ConnectError> {
        Client::over(dir, server.to_owned(), None).await
    }

    /// Connects to the server that `rms` would use: see [`find_client_dir`].
    ///
    /// # Errors
    /// Those of [`Client::connect`], and [`DirError::None`](crate::dir::DirError::None).
    pub async fn connect_here() -> Result<Client, ConnectError> {
        Client::connect(&find_client_dir()?).await
    }

    /// Returns the identity under which the server knows this client.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Returns the server as `host:port`.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Returns the key and certificates in use.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the server has not answered for two seconds while this client reconnects, and how that changes.
    pub fn unanswered(&self) -> Receiver<bool> {
        self.0.is_unanswered.subscribe()
    }

    /// Returns the link; dials again if it has ended.
    pub(crate) async fn link(&self, patience: Duration) -> Result<Link, ConnectError> {
        let mut slot = self.0.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = self.dial(patience).await?;
        *slot = Some(link.clone());
        self.reconnected();
        Ok(link)
    }

    /// Opens a channel for a launcher's session. If the server allows no further channel on the present link, another
    /// link takes its place.
    ///
    /// # Errors
    /// No link, or the server allows this user no further channel.
    pub(crate) async fn launcher_channel(&self) -> Result<Channel, CallError> {
        let link = self.launcher_link(None).await?;
        if let Ok(opened) = tokio::time::timeout(CHANNEL_WITHIN, link.open()).await {
            return Ok(opened?);
        }
        let link = self.launcher_link(Some(&link)).await?;
        let opened = tokio::time::timeout(PATIENCE, link.open()).await.map_err(|_| {
            let why =
                "the server allows no further channel to this user: end applications, or share one client among them";
            Refused::new("busy", why)
        })?;
        Ok(opened?)
    }

    /// Returns the link of launchers' sessions, which is separate so that both ends notice sooner when it breaks; a new
    /// one in place of `full`.
    async fn launcher_link(&self, full: Option<&Link>) -> Result<Link, ConnectError> {
        let mut slot = self.0.launcher_link.lock().await;
        let is_usable = |link: &Link| !link.is_closed() && full.is_none_or(|full| !full.is_same(link));
        if let Some((_, link)) = slot.as_ref().filter(|(_, link)| is_usable(link)) {
            return Ok(link.clone());
        }
        let endpoint = match slot.as_ref() {
            // The sessions of the link that is full go on.
            Some((endpoint, link)) if !link.is_closed() => endpoint.clone(),
            Some(_) | None => Endpoint::dial_tuned(&self.0.server, &self.credentials(), Tuning::attentive())?,
        };
        let link = self.dial_from(&endpoint, PATIENCE).await?;
        *slot = Some((endpoint, link.clone()));
        self.reconnected();
        Ok(link)
    }

    /// Returns a link that is up.
    async fn any_link(&self) -> Option<Link> {
        let link = self.0.link.lock().await.clone();
        let launcher_link = self.0.launcher_link.lock().await.as_ref().map(|(_, link)| link.clone());
        [link, launcher_link].into_iter().flatten().find(|link| !link.is_closed())
    }

    fn reconnected(&self) {
        let _it_will_look = self.0.reconnections.try_send(());
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
                tokio::select! {
                    link = endpoint.connect(address, Expect::server()) => link,
                    () = probe(address) => Err(LinkError::Refused),
                }
            };
            // An attempt is short: a server that starts during it is reached sooner by the next attempt than by QUIC's
            // own retransmissions.
            let left = patience.saturating_sub(begun.elapsed()).max(FIRST_ATTEMPT);
            let limit = ATTEMPT.min(left);
            let result = tokio::time::timeout(limit, attempt).await;
            let error = match result {
                Ok(Ok(link)) => {
                    self.0.is_unanswered.send_if_modified(|is_unanswered| std::mem::replace(is_unanswered, false));
                    return Ok(link);
                }
                // Another process may have renewed the certificate or saved a new CA.
                Ok(Err(LinkError::Denied { .. } | LinkError::Untrusted { .. })) if self.take_over(endpoint) => continue,
                Ok(Err(LinkError::Denied { reason })) => {
                    return Err(ConnectError::Denied { server: server.clone(), reason });
                }
                Ok(Err(LinkError::Untrusted { reason })) => {
                    return Err(ConnectError::Untrusted { server: server.clone(), reason });
                }
                Ok(Err(error)) => error,
                Err(_) => LinkError::NoAnswer { secs: begun.elapsed().as_secs() },
            };
            if begun.elapsed() >= UNANSWERED_AFTER {
                self.0.is_unanswered.send_if_modified(|is_unanswered| !std::mem::replace(is_unanswered, true));
            }
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

    /// Waits before the next attempt, for `delay` or until the server announces that it is back.
    pub(crate) async fn pause(&self, delay: Duration) {
        match self.0.endpoint.get() {
            Some(endpoint) => endpoint.pause(delay).await,
            None => tokio::time::sleep(delay).await,
        }
    }

    /// Sends a query. If the link breaks, it is repeated over a new one, because a query changes nothing.
    async fn ask(&self, call: &ClientRequest) -> Result<Answer, CallError> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let link = self.link(PATIENCE).await?;
            match link.call(call).await {
                Ok(reply) => return Ok(reply),
                Err(rms_wire::CallError::Refused(refused)) => return Err(CallError::Refused(refused)),
                Err(rms_wire::CallError::Link(error)) => {
                    let may_repeat = link.is_closed() && !error.is_violation() && begun.elapsed() < PATIENCE;
                    if !may_repeat {
                        return Err(error.into());
                    }
                    // The server may close every link that it accepts.
                    self.pause(backoff.delay()).await;
                }
            }
        }
    }

    /// Sends an order; never repeats it, because the server may have carried it out.
    async fn tell(&self, call: &ClientRequest) -> Result<Answer, CallError> {
        let link = self.link(PATIENCE).await?;
        link.call(call).await.map_err(|error| match error {
            rms_wire::CallError::Refused(refused) => CallError::Refused(refused),
            rms_wire::CallError::Link(error) => error.into(),
        })
    }

    async fn query(&self, query: Query) -> Result<Answer, CallError> {
        self.ask(&ClientRequest::Call(Call::Query(query))).await
    }

    /// Returns all waiting and running jobs.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn queue(&self) -> Result<Queue, CallError> {
        self.queue_of(JobFilter::default()).await
    }

    /// Returns the waiting and running jobs that a filter selects, sorted and limited by the server.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if a cluster does not exist.
    pub async fn queue_of(&self, filter: JobFilter) -> Result<Queue, CallError> {
        let Answer::Queue { now, planned, jobs } = self.query(Query::Queue(filter)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(Queue { now, planned, jobs })
    }

    /// Returns all details of jobs that the system still keeps.
    ///
    /// # Errors
    /// See [`CallError`]. Jobs that have ended are refused with `no_such_job`: use [`Client::history`].
    pub async fn jobs(&self, select: Select) -> Result<JobDetails, CallError> {
        self.details(Query::Job(select)).await
    }

    /// Returns all details of the waiting and running jobs that a filter selects, sorted and limited by the server.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if a cluster does not exist.
    pub async fn jobs_of(&self, filter: JobFilter) -> Result<JobDetails, CallError> {
        self.details(Query::Details(filter)).await
    }

    /// Like [`Client::jobs`], with the reasons for waiting brought up to date.
    ///
    /// # Errors
    /// See [`Client::jobs`].
    pub async fn explain(&self, select: Select) -> Result<JobDetails, CallError> {
        self.details(Query::Explain(select)).await
    }

    async fn details(&self, query: Query) -> Result<JobDetails, CallError> {
        let Answer::Detail { now, planned: _, jobs } = self.query(query).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(JobDetails { now, jobs })
    }

    /// Returns all nodes and the names of the clusters.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn nodes(&self) -> Result<NodeList, CallError> {
        self.nodes_of(NodeFilter::default()).await
    }

    /// Returns the nodes that a filter selects, sorted and limited by the server, and the names of all clusters.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if a node or a cluster does not exist.
    pub async fn nodes_of(&self, filter: NodeFilter) -> Result<NodeList, CallError> {
        let Answer::Nodes { now, nodes, clusters } = self.query(Query::Nodes(filter)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(NodeList { now, nodes, clusters })
    }

    /// Returns the clusters' numbers and names; requests carry only the numbers.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn clusters(&self) -> Result<Vec<(ClusterId, String)>, CallError> {
        let Answer::Clusters(clusters) = self.query(Query::Clusters).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(clusters)
    }

    /// Returns the occupation profiles of the clusters (001, §5.1): of the whole system, or as one waiting job sees them.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn view(&self, job: Option<JobId>) -> Result<ViewAnswer, CallError> {
        let Answer::View(view) = self.query(Query::View { job }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(view)
    }

    /// Returns jobs that have ended, newest first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn history(&self, query: HistoryQuery) -> Result<Vec<JobRecord>, CallError> {
        let Answer::History(records) = self.ask(&ClientRequest::History(query)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(records)
    }

    /// Returns the settings with their names.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn settings(&self) -> Result<Vec<(String, String)>, CallError> {
        let Answer::Settings(settings) = self.query(Query::Settings).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(settings)
    }

    /// Returns who changed which setting, oldest first.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, CallError> {
        let Answer::Audit(changes) = self.query(Query::Audit).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(changes)
    }

    /// Returns what nodes with a price have cost the caller; for an admin, what they have cost each user.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn budgets(&self) -> Result<Vec<BudgetLine>, CallError> {
        let Answer::Budgets(users) = self.query(Query::Budgets).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(users)
    }

    /// Returns the licences of all clusters, and which jobs have them.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn licences(&self) -> Result<Vec<LicenceLine>, CallError> {
        let Answer::Licences(lines) = self.query(Query::Licences).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(lines)
    }

    /// Returns the CPUs assigned to jobs on their nodes and the CPUs on which their processes may run, for one job or
    /// for all jobs on a node. The agents report the processes and have five seconds to answer; [`NodeMasks::silent`]
    /// marks nodes that did not.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if the job does not run or the node does not exist.
    pub async fn masks(&self, of: MasksOf) -> Result<(Time, Vec<NodeMasks>), CallError> {
        let Answer::Masks { now, nodes } = self.query(Query::Masks(of)).await? else {
            return Err(CallError::Unexpected);
        };
        Ok((now, nodes))
    }

    /// Returns the negotiations of one job, or of all jobs in the system that the caller may see. The time is the server's
    /// clock.
    ///
    /// # Errors
    /// See [`CallError`]; also fails if the job does not exist or belongs to another user.
    pub async fn negotiations(&self, job: Option<JobId>) -> Result<(Time, Vec<NegotiationLine>), CallError> {
        let Answer::Negotiations { now, lines } = self.query(Query::Negotiations { job }).await? else {
            return Err(CallError::Unexpected);
        };
        Ok((now, lines))
    }

    /// Returns the join tokens that the server remembers.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this.
    pub async fn tokens(&self) -> Result<Vec<Token>, CallError> {
        let Answer::Tokens(tokens) = self.query(Query::Tokens).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(tokens)
    }

    /// Returns the certificates that the server has issued.
    ///
    /// # Errors
    /// See [`CallError`]; only admins may call this.
    pub async fn certificates(&self) -> Result<Vec<Issued>, CallError> {
        let Answer::Certificates(certificates) = self.query(Query::Certificates).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(certificates)
    }

    /// Returns counters and sizes of the server's core.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn status(&self) -> Result<Status, CallError> {
        let Answer::Status(status) = self.query(Query::Status).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(status)
    }

    /// Returns the state of the server itself: its version, its start time and the sizes of what it stores.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn server_report(&self) -> Result<ServerReport, CallError> {
        let Answer::Server(report) = self.ask(&ClientRequest::Server).await? else { return Err(CallError::Unexpected) };
        Ok(report)
    }

    /// Returns the costs of launchers: their views and requests, their adaptation delays (001, §5.3), the node time
    /// that ghosts have kept idle for them, and the bytes on their channels.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn launchers(&self) -> Result<LauncherReport, CallError> {
        let Answer::Launchers(report) = self.ask(&ClientRequest::Launchers).await? else {
            return Err(CallError::Unexpected);
        };
        Ok(*report)
    }

    /// Returns the fingerprint of the CA that signs for the server: a token that names another one is invalid.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub async fn authority(&self) -> Result<String, ConnectError> {
        let link = self.link(PATIENCE).await?;
        Ok(link.authorities().first().cloned().unwrap_or_else(|| self.credentials().ca_fingerprint()))
    }

    /// Creates a token for the CA and the address of this server. The server does not know it yet: pass its id and digest to
    /// [`Client::create_token`]. `address` replaces the address that this client uses.
    ///
    /// # Errors
    /// The address is not of the form `host:port`.
    pub fn draw_token(&self, address: Option<&str>) -> Result<TokenText, rms_wire::token::TokenError> {
        TokenText::draw(&self.credentials().ca_fingerprint(), address.unwrap_or(&self.0.server))
    }

    /// Follows a job from the beginning of its output to its end. With `input`, [`Follow::input`] feeds its
    /// task 0.
    pub fn follow(&self, job: JobId, input: bool) -> Follow {
        Follow::start(self.clone(), job, input)
    }

    /// Watches the states of jobs until all of them have ended.
    pub fn watch(&self, jobs: Vec<JobId>) -> Watch {
        Watch::start(self.clone(), jobs)
    }

    /// Closes the connection, so that the server need not wait for a time-out; later calls of clones fail. Returns as
    /// soon as the message is sent, without waiting for an answer.
    pub async fn close(&self) {
        // Who holds a lock dials, for as long as no server answers: there is no link, and its endpoint is closed below.
        if let Some(link) = self.0.link.try_lock().ok().and_then(|mut link| link.take()) {
            link.close("done");
        }
        let launcher_link = self.0.launcher_link.try_lock().ok();
        let launcher_link = launcher_link.and_then(|link| link.as_ref().map(|(endpoint, _)| endpoint.clone()));
        let endpoints: Vec<Endpoint> = self.0.endpoint.get().cloned().into_iter().chain(launcher_link).collect();
        endpoints.iter().for_each(|endpoint| endpoint.close("done"));
        // Lets the tasks that send the message run. If one does not get to it, the server's time-out applies. The local
        // socket needs no such task.
        let n_yields = if endpoints.is_empty() { 0 } else { CLOSE_YIELDS };
        for _ in 0..n_yields {
            tokio::task::yield_now().await;
        }
    }
}

/// How long a call tries to reach the server before it fails.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Returns when the server's machine says that nothing listens there; otherwise never returns.
async fn probe(address: SocketAddr) {
    tokio::time::sleep(PROBE_AFTER).await;
    port_unreachable(address).await;
}

/// A server that answers sooner is sent no probe.
const PROBE_AFTER: Duration = Duration::from_millis(100);
/// How long to wait for a channel before another link is tried.
const CHANNEL_WITHIN: Duration = Duration::from_secs(1);
/// How long one attempt may take; a handshake takes less even over a slow wide-area network.
const ATTEMPT: Duration = Duration::from_millis(2500);
/// The least time for an attempt: even if little time is left, the first attempt must be able to succeed.
const FIRST_ATTEMPT: Duration = Duration::from_millis(200);
/// How long a server that restarts may take unnoticed.
const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
/// More yields than QUIC's tasks need to pass a packet to the system.
const CLOSE_YIELDS: usize = 16;
