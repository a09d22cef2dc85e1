//! Drives a [`Launcher`] through the life of its application; reconnects when the connection breaks.

use rms_api::Refused;
use rms_api::call::HistoryQuery;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rms_api::subscription::{ClusterInfos, Grant, Launchable, Tag};
use rms_model::{JobId, Outcome, Request, Run};
use rms_wire::Backoff;
use thiserror::Error;
use tokio::sync::oneshot;

use super::Subscription;
use super::program::Program;
use super::seen::Seen;
use super::session::{Event, Session};
use super::wanted::Wanted;
use crate::client::Client;
use crate::client::follow::{RECONNECT_PATIENCE, is_protocol_error, is_transient};
use crate::error::{CallError, ConnectError};

/// An algorithm that chooses what an application requests (001, §5.2) and decides how to use the granted nodes.
///
/// ```
/// use launcher_sdk::launcher::{Action, Launcher, Program, Seen, Start};
/// use rms_model::{Request, Span};
///
/// /// Takes half of the first cluster that has at least two nodes free now; if none has, it waits.
/// struct Half;
///
/// impl Launcher for Half {
///     fn on_view(&mut self, seen: &Seen<'_>) -> Option<Request> {
///         let wall = Span::from_mins(10);
///         let free = |cluster| seen.sight().free(cluster, seen.now(), wall);
///         let (cluster, n_nodes) = seen.clusters().iter().map(|info| (info.cluster, free(info.cluster))).find(|(_, n)| *n >= 2)?;
///         Some(Request::on_one(cluster, n_nodes / 2, wall))
///     }
///
///     fn on_start(&mut self, start: &Start) -> Action {
///         println!("{} nodes", start.grant.nodes.len());
///         Action::launch(Program::new(["./work"]))
///     }
/// }
/// ```
pub trait Launcher {
    /// Called once the application is in the system, with its id. A launcher that wants to survive being killed saves the id
    /// for [`resume`].
    fn on_subscribed(&mut self, _job: JobId) {}

    /// Called with the first view and after each change of it. Returns the request to send; `None` keeps the current one.
    /// A request that [equals](Seen::requested) the current one is not sent again. Not called once the application has
    /// started.
    ///
    /// It must be quick: while it runs, no messages are received. Implement [`Launcher::choose`] for longer computations.
    fn on_view(&mut self, _seen: &Seen<'_>) -> Option<Request> {
        None
    }

    /// Called with the first view and after each change of it; by default it calls [`Launcher::on_view`]. An algorithm that
    /// takes long returns [`Choice::Compute`]. While that computes on a thread of its own, the launcher is still told of the
    /// start and the end. Of the views that arrive meanwhile, only the newest is passed here once the computation is done.
    ///
    /// ```
    /// # use launcher_sdk::launcher::{Action, Choice, Launcher, Seen, Start};
    /// # use rms_model::Request;
    /// # struct Slow;
    /// # fn search(_: &Seen<'_>) -> Option<Request> { None }
    /// impl Launcher for Slow {
    ///     fn choose(&mut self, seen: &Seen<'_>) -> Choice {
    ///         let kept = seen.keep();
    ///         Choice::compute(move || search(&kept.seen()))
    ///     }
    /// #   fn on_start(&mut self, _start: &Start) -> Action { Action::GiveUp { code: 0 } }
    /// }
    /// ```
    fn choose(&mut self, seen: &Seen<'_>) -> Choice {
        Choice::Now(self.on_view(seen).map(Wanted::from))
    }

    /// Called when the server refuses a request; `Ok` waits for the next view. By default every refusal ends [`run`]
    /// with [`LauncherError::Refused`], and the application is withdrawn.
    ///
    /// # Errors
    /// The refusal, to end the application.
    fn on_refused(&mut self, _request: &Request, refused: Refused) -> Result<(), Refused> {
        Err(refused)
    }

    /// Called when the application has its nodes. Returns what to do with them.
    fn on_start(&mut self, start: &Start) -> Action;

    /// Called when the application has ended.
    fn on_end(&mut self, _outcome: &Outcome) {}
}

/// The choice of an application's request.
pub enum Choice {
    /// This request; `None` keeps the current one.
    Now(Option<Wanted>),
    /// The result of this computation. It is ignored if the application has started or ended meanwhile. If the computation
    /// panics, [`run`] does.
    Compute(Computing),
}

/// A computation of a request, which runs on a thread of its own.
pub type Computing = Box<dyn FnOnce() -> Option<Wanted> + Send>;

impl Choice {
    /// Returns [`Choice::Compute`] of a closure.
    pub fn compute<W: Into<Wanted>>(computing: impl FnOnce() -> Option<W> + Send + 'static) -> Choice {
        Choice::Compute(Box::new(move || computing().map(W::into)))
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Now(request) => f.debug_tuple("Now").field(request).finish(),
            Choice::Compute(_) => f.write_str("Compute"),
        }
    }
}

/// The start of an application on granted nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which nodes, and until when.
    pub grant: Grant,
    /// The application may have started before this launcher was [resumed](resume), so its processes may be running already.
    /// [`Action::Launch`] is right in this case, too: nothing is started twice. On nodes that the launcher uses by its own
    /// means, only the launcher knows what runs.
    pub is_resumed: bool,
}

impl Start {
    /// Returns the nodes as a hostfile for mpirun: one line per node, `name slots=cpus`.
    pub fn hostfile(&self) -> String {
        self.grant.nodes.iter().map(|node| format!("{} slots={}\n", node.name, node.cpus.max(1))).collect()
    }

    /// Returns the names of the nodes, separated by commas.
    pub fn node_list(&self) -> String {
        let names: Vec<&str> = self.grant.nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(",")
    }
}

/// What to do with granted nodes.
pub enum Action {
    /// Let the server start processes there; the application ends when they have ended.
    Launch(Box<Launchable>),
    /// Use the nodes by own means until this future completes; its value is the exit code, from 0 to 255; any other counts as 255. The future is
    /// dropped if the application is ended from outside (its wall time is over, it was cancelled).
    Use(Using),
    /// Give the nodes back; the application ends with this exit code.
    GiveUp {
        /// The exit code, 0 for success; one that is not from 0 to 255 counts as 255.
        code: i32,
    },
}

/// The highest exit code of a process.
const MOST_CODE: i32 = 255;

/// Work that the launcher does on its nodes; the value is the exit code.
pub type Using = Pin<Box<dyn Future<Output = i32> + Send>>;

impl Action {
    /// Returns [`Action::Launch`] of a program.
    pub fn launch(program: Program) -> Action {
        Action::Launch(Box::new(program.into_launchable()))
    }

    /// Returns [`Action::Use`] of a future.
    pub fn using(work: impl Future<Output = i32> + Send + 'static) -> Action {
        Action::Use(Box::pin(work))
    }

    /// Returns [`Action::Use`] of a command that runs on the launcher's machine, like `mpirun` or `ssh`. It is killed
    /// if the application is ended from outside. A command that dies of a signal, or cannot be executed, counts as exit
    /// code 127.
    pub fn command(command: std::process::Command) -> Action {
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        Action::using(async move {
            let status = command.status().await;
            status.ok().and_then(|status| status.code()).unwrap_or(127)
        })
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Launch(launch) => f.debug_tuple("Launch").field(launch).finish(),
            Action::Use(_) => f.write_str("Use"),
            Action::GiveUp { code } => f.debug_struct("GiveUp").field("code", code).finish(),
        }
    }
}

/// Why a launcher stopped before the end of its application.
#[derive(Debug, Error)]
pub enum LauncherError {
    /// The server refuses the subscription, a request or a launch. The application was withdrawn.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another launcher has attached to the application.
    #[error("another launcher serves application {0} now")]
    Replaced(JobId),
    /// The application has ended, and its outcome is no longer in the server's history.
    #[error("application {0} has ended, and its history is gone")]
    Forgotten(JobId),
    /// The server denies access, or is unreachable for too long.
    #[error(transparent)]
    Call(CallError),
    /// The thread that computes a request cannot be started.
    #[error("cannot start a thread for the computation of a request")]
    Thread(#[source] std::io::Error),
}

impl From<CallError> for LauncherError {
    fn from(error: CallError) -> LauncherError {
        match error {
            CallError::Refused(refused) => LauncherError::Refused(refused),
            CallError::Connect(_) | CallError::Interrupted(_) | CallError::OtherJob(_) | CallError::Unexpected => {
                LauncherError::Call(error)
            }
        }
    }
}

/// Subscribes an application and drives it to its end. When the connection breaks, it attaches again for up to ten
/// minutes; the server ends the application after its own `launcher_grace`. Dropping the future leaves the application
/// without a launcher.
///
/// # Errors
/// See [`LauncherError`].
///
/// # Panics
/// A [computation](Choice::Compute) has panicked. The application is without a launcher then: the server ends it after its
/// `launcher_grace`, unless another process [resumes](resume) it.
pub async fn run(
    client: &Client,
    subscription: Subscription,
    launcher: &mut impl Launcher,
) -> Result<Outcome, LauncherError> {
    let session = Session::subscribe(client, subscription).await?;
    launcher.on_subscribed(session.job());
    Driver::new(client, launcher, session, false).run().await
}

/// Attaches to an application that another process of the launcher subscribed, and drives it to its end.
///
/// # Errors
/// See [`LauncherError`].
///
/// # Panics
/// As [`run`].
pub async fn resume(client: &Client, job: JobId, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
    match Session::attach(client, job).await {
        Ok(session) => Driver::new(client, launcher, session, true).run().await,
        Err(CallError::Refused(refused)) if has_ended(&refused) => {
            let outcome = outcome_from_history(client, job).await?;
            launcher.on_end(&outcome);
            Ok(outcome)
        }
        Err(error) => Err(error.into()),
    }
}

/// The kind of refusal of a late call: a request after the start, a second answer to a start, a call for a ghost.
const WRONG_STATE: &str = "wrong_state";

/// The kind of refusal of a call above the rate limit.
const RATE_LIMIT: &str = "rate_limit";
/// How long to wait after a call above the rate limit; by then a new second has begun.
const RATE_LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// Returns whether the application has ended; its ghost may still exist.
fn has_ended(refused: &Refused) -> bool {
    refused.kind == "no_such_job" || refused.kind == WRONG_STATE
}

async fn outcome_from_history(client: &Client, job: JobId) -> Result<Outcome, LauncherError> {
    let query = HistoryQuery { jobs: vec![job], limit: 1, ..HistoryQuery::default() };
    let records = client.history(query).await?;
    records.into_iter().next().map(|record| record.outcome).ok_or(LauncherError::Forgotten(job))
}

/// Drives one application.
struct Driver<'a, L> {
    client: &'a Client,
    launcher: &'a mut L,
    session: Session,
    job: JobId,
    infos: Option<ClusterInfos>,
    last_tag: Tag,
    /// The request that the server is known to have.
    requested: Option<Wanted>,
    started: Option<Granted>,
    computing: Option<Computation>,
    /// The view has changed since the computation began.
    is_outdated: bool,
    using: Option<Using>,
    /// The call that ends the application: the start's tag and the exit code.
    finish: Option<(Tag, i32)>,
    is_resumed: bool,
    /// Delays between connections.
    backoff: Backoff,
}

/// A running computation, and the version of the view that it uses.
struct Computation {
    version: u64,
    request: oneshot::Receiver<Option<Wanted>>,
}

impl Computation {
    fn start(version: u64, computing: Computing) -> std::io::Result<Computation> {
        let (sender, request) = oneshot::channel();
        // The thread is not joined: a computation whose result is not needed any more must not delay the end of the
        // program.
        std::thread::Builder::new().name("launcher computes".to_owned()).spawn(move || {
            // The receiver is gone if the application has started.
            let _ = sender.send(computing());
        })?;
        Ok(Computation { version, request })
    }
}

/// Waits for the result of the computation, or forever if there is none. Cancel safe.
async fn computed(computing: &mut Option<Computation>) -> Option<Wanted> {
    match computing {
        Some(computed) => (&mut computed.request).await.expect("the computation of a request has panicked"),
        None => std::future::pending().await,
    }
}

/// Waits until the launcher's own work is done, or forever if there is none. Cancel safe.
async fn used(using: &mut Option<Using>) -> i32 {
    match using {
        Some(using) => using.await,
        None => std::future::pending().await,
    }
}

/// A start, and the launcher's answer to it.
struct Granted {
    tag: Tag,
    run: Run,
    answer: StartAnswer,
    /// The server has accepted the answer.
    is_answered: bool,
}

enum StartAnswer {
    Launch(Box<Launchable>),
    Accept,
}

impl<'a, L: Launcher> Driver<'a, L> {
    fn new(client: &'a Client, launcher: &'a mut L, session: Session, is_resumed: bool) -> Driver<'a, L> {
        let job = session.job();
        Driver {
            client,
            launcher,
            session,
            job,
            infos: None,
            last_tag: Tag(0),
            requested: None,
            started: None,
            computing: None,
            is_outdated: false,
            using: None,
            finish: None,
            is_resumed,
            backoff: Backoff::default(),
        }
    }

    async fn run(mut self) -> Result<Outcome, LauncherError> {
        loop {
            let ended = match self.serve_session().await {
                Ok(outcome) => Ok(outcome),
                Err(LauncherError::Call(CallError::Interrupted(error))) if !is_protocol_error(&error) => {
                    match self.reattach().await {
                        Ok(None) => continue,
                        Ok(Some(outcome)) => Ok(outcome),
                        Err(error) => Err(error),
                    }
                }
                Err(LauncherError::Refused(refused)) if refused.kind == RATE_LIMIT => {
                    // Views can change faster than a launcher may answer them.
                    tokio::time::sleep(RATE_LIMIT_PAUSE).await;
                    continue;
                }
                Err(LauncherError::Refused(refused)) => {
                    self.withdraw().await;
                    Err(LauncherError::Refused(refused))
                }
                Err(error) => Err(error),
            };
            if let Ok(outcome) = &ended {
                self.launcher.on_end(outcome);
            }
            return ended;
        }
    }

    /// Serves the application until its end, or until the connection breaks.
    async fn serve_session(&mut self) -> Result<Outcome, LauncherError> {
        // Send what failed earlier because the connection broke or the rate limit was reached.
        self.send_finish().await?;
        self.answer_start().await?;
        if self.session.view().version > 0 {
            self.view_changed(false).await?;
        }
        loop {
            let next = tokio::select! {
                // Events come first: a start makes a computation useless.
                biased;
                event = self.session.next() => Next::Event(event?),
                code = used(&mut self.using) => Next::Used(code),
                request = computed(&mut self.computing) => Next::Computed(request),
            };
            self.backoff.reset();
            match next {
                Next::Used(code) => {
                    self.using = None;
                    let tag = self.started.as_ref().map_or(self.last_tag, |granted| granted.tag);
                    self.finish = Some((tag, code));
                    self.send_finish().await?;
                }
                Next::Computed(request) => {
                    let version = self.computing.take().map_or(0, |computed| computed.version);
                    self.send_request(version, request).await?;
                    if self.is_outdated {
                        self.view_changed(false).await?;
                    }
                }
                Next::Event(Some(Event::View { asks_clusters })) => self.view_changed(asks_clusters).await?,
                Next::Event(Some(Event::Started(grant))) => self.started(*grant).await?,
                Next::Event(Some(Event::Ended(outcome))) => return Ok(outcome),
                Next::Event(Some(Event::Replaced)) => return Err(LauncherError::Replaced(self.job)),
                Next::Event(None) => return Err(LauncherError::Call(CallError::Unexpected)),
            }
        }
    }

    async fn view_changed(&mut self, asks_clusters: bool) -> Result<(), LauncherError> {
        if self.started.is_some() || self.finish.is_some() {
            return Ok(());
        }
        if asks_clusters {
            self.infos = None;
        }
        if self.computing.is_some() {
            self.is_outdated = true;
            return Ok(());
        }
        self.is_outdated = false;
        let infos = match self.infos.take() {
            Some(infos) => infos,
            None => match self.session.clusters().await {
                Ok(infos) => infos,
                // It has just ended, which the next event tells.
                Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => return Ok(()),
                Err(error) => return Err(error.into()),
            },
        };
        let infos = self.infos.insert(infos);
        let mut seen = Seen::new(self.session.now(), self.session.view(), infos);
        seen.requested = self.requested.as_ref();
        let version = seen.version();
        match self.launcher.choose(&seen) {
            Choice::Now(request) => self.send_request(version, request).await,
            Choice::Compute(computing) => {
                self.computing = Some(Computation::start(version, computing).map_err(LauncherError::Thread)?);
                Ok(())
            }
        }
    }

    /// Sends a request that was computed from this version of the view, unless the server has it already.
    async fn send_request(&mut self, version: u64, wanted: Option<Wanted>) -> Result<(), LauncherError> {
        if self.started.is_some() || self.finish.is_some() {
            return Ok(());
        }
        let Some(wanted) = wanted.filter(|wanted| self.requested.as_ref() != Some(wanted)) else { return Ok(()) };
        let tag = self.next_tag();
        match self.session.request_seen(tag, version, wanted.clone()).await {
            Ok(()) => self.requested = Some(wanted),
            // The application has started meanwhile, with the previous request: that event is on its way.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => {}
            Err(CallError::Refused(refused)) if refused.kind == RATE_LIMIT => return Err(refused.into()),
            Err(CallError::Refused(refused)) => self.launcher.on_refused(&wanted.request, refused)?,
            Err(error) => {
                // It is unknown whether the server received the request.
                self.requested = None;
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn started(&mut self, grant: Grant) -> Result<(), LauncherError> {
        let known = self.started.as_ref().filter(|granted| (granted.tag, granted.run) == (grant.tag, grant.run));
        if known.is_some_and(|granted| granted.is_answered) || self.finish.is_some() {
            // The server repeats the start after the connection broke.
            return Ok(());
        }
        self.computing = None;
        if known.is_none() {
            let (tag, run) = (grant.tag, grant.run);
            // A launcher that attaches to a started application receives the start but no view.
            let is_resumed = self.is_resumed && self.session.view().version == 0;
            let answer = match self.launcher.on_start(&Start { grant, is_resumed }) {
                Action::Launch(launch) => StartAnswer::Launch(launch),
                Action::Use(using) => {
                    self.using = Some(using);
                    StartAnswer::Accept
                }
                Action::GiveUp { code } => {
                    self.finish = Some((tag, code));
                    return self.send_finish().await;
                }
            };
            self.started = Some(Granted { tag, run, answer, is_answered: false });
        }
        self.answer_start().await
    }

    /// Answers the start, unless the server has accepted the answer already.
    async fn answer_start(&mut self) -> Result<(), LauncherError> {
        let is_open = |granted: &&mut Granted| !granted.is_answered;
        let Some(granted) = self.started.as_mut().filter(is_open) else { return Ok(()) };
        let answered = match &granted.answer {
            StartAnswer::Launch(launch) => self.session.launch(granted.tag, launch.as_ref().clone()).await,
            StartAnswer::Accept => self.session.accept(granted.tag).await,
        };
        match answered {
            Ok(()) => granted.is_answered = true,
            // The server received an earlier launch or accept, over a connection that broke before the answer arrived.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => granted.is_answered = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn send_finish(&mut self) -> Result<(), LauncherError> {
        let Some((tag, code)) = self.finish else { return Ok(()) };
        // Work that is done is not lost for a code that no process can have.
        let code = if (0..=MOST_CODE).contains(&code) { code } else { MOST_CODE };
        match self.session.finish(tag, code).await {
            // The application has ended already: that event is on its way.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => Ok(()),
            finished => Ok(finished?),
        }
    }

    /// Ends an application that cannot go on, so that it does not linger until its time-outs.
    async fn withdraw(&mut self) {
        let tag = self.started.as_ref().map_or(self.last_tag, |granted| granted.tag);
        // If the call is lost, the server ends the application because its launcher is lost.
        let _ = self.session.finish(tag, 1).await;
    }

    /// Attaches again; returns the outcome if the application has ended meanwhile.
    async fn reattach(&mut self) -> Result<Option<Outcome>, LauncherError> {
        let begun = std::time::Instant::now();
        loop {
            // Back off, so as not to loop against a server that drops us each time.
            self.client.pause(self.backoff.delay()).await;
            match Session::attach(self.client, self.job).await {
                Ok(session) => {
                    self.session = session;
                    return Ok(None);
                }
                Err(CallError::Refused(refused)) if has_ended(&refused) => {
                    return outcome_from_history(self.client, self.job).await.map(Some);
                }
                Err(CallError::Refused(refused)) if !may_retry(&refused) => return Err(refused.into()),
                Err(
                    error @ CallError::Connect(
                        ConnectError::Denied { .. } | ConnectError::Untrusted { .. } | ConnectError::Dir(_),
                    ),
                ) => return Err(error.into()),
                Err(error) if begun.elapsed() > RECONNECT_PATIENCE => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    /// Returns the next tag. Tags grow over restarts of the launcher, too, unless its clock is set back.
    fn next_tag(&mut self) -> Tag {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.last_tag = Tag(now.max(self.last_tag.0.saturating_add(1)));
        self.last_tag
    }
}

enum Next {
    Event(Option<Event>),
    Used(i32),
    Computed(Option<Wanted>),
}

/// Returns whether the same call may succeed later.
fn may_retry(refused: &Refused) -> bool {
    is_transient(refused) || ["journal_failing", RATE_LIMIT].contains(&refused.kind.as_ref())
}
