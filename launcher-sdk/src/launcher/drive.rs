//! Drives a [`Launcher`] through the life of its application, over as many connections as it takes.

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
use super::session::{News, Session};
use super::wanted::Wanted;
use crate::client::Client;
use crate::client::follow::{RECONNECT_PATIENCE, is_passing, is_wrong};
use crate::error::{CallError, ConnectError};

/// An algorithm that chooses what an application asks for (001, §5.2), and uses what it gets.
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
    /// The application is in the system under this id. A launcher that may be killed and wants to go on then writes it
    /// down for [`resume`].
    fn on_subscribed(&mut self, _job: JobId) {}

    /// The view has changed, or was told for the first time: what is to be asked for? `None` leaves things as they are.
    /// An answer that [equals](Seen::requested) what is asked for already is not sent. It is not called once the
    /// application has started.
    ///
    /// It must be quick: while it runs, nothing else is heard. What takes longer is for [`Launcher::choose`].
    fn on_view(&mut self, _seen: &Seen<'_>) -> Option<Request> {
        None
    }

    /// What is driven: [`Launcher::on_view`] at once, unless it is implemented, too. An algorithm that takes its time
    /// returns [`Choice::Compute`]. While that computes on a thread of its own, the launcher is told of its start and its
    /// end as ever, and views that come are laid over each other: the newest one is given here once it is done.
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

    /// The server refuses a request, and why; `Ok` waits for the next view. At first every refusal ends [`run`] with
    /// [`LauncherError::Refused`], and the application is withdrawn.
    ///
    /// # Errors
    /// The refusal, to end.
    fn on_refused(&mut self, _request: &Request, refused: Refused) -> Result<(), Refused> {
        Err(refused)
    }

    /// The nodes are there.
    fn on_start(&mut self, start: &Start) -> Action;

    /// The application has ended.
    fn on_end(&mut self, _outcome: &Outcome) {}
}

/// What an application is to ask for.
pub enum Choice {
    /// This; `None` leaves things as they are.
    Now(Option<Wanted>),
    /// What comes of this, which takes its time. If the application has started or ended before, it is for nothing.
    Compute(Computing),
}

/// A search for a request; it runs on a thread of its own.
pub type Computing = Box<dyn FnOnce() -> Option<Wanted> + Send>;

impl Choice {
    /// [`Choice::Compute`] of a closure.
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

/// Nodes that an application has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which, and until when.
    pub grant: Grant,
    /// The application may have started before this launcher was [resumed](resume), so that what was to be launched runs
    /// already. [`Action::Launch`] is right then, too: what runs is not started twice. Of nodes that the launcher uses by its own
    /// means, it alone knows what runs there.
    pub is_resumed: bool,
}

impl Start {
    /// The nodes as mpirun and its like read them: a line for each, `name slots=cpus`.
    pub fn hostfile(&self) -> String {
        self.grant.nodes.iter().map(|node| format!("{} slots={}\n", node.name, node.cpus.max(1))).collect()
    }

    /// The names of the nodes, separated by commas.
    pub fn node_list(&self) -> String {
        let names: Vec<&str> = self.grant.nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(",")
    }
}

/// What to do with granted nodes.
pub enum Action {
    /// Let the server start processes there; the application ends with them.
    Launch(Box<Launchable>),
    /// Use the nodes by own means until this is done; its value is the exit code. When the application is ended
    /// by others (its wall time is over, it was cancelled) it is dropped.
    Use(Using),
    /// Give the nodes back; the application ends with this exit code.
    GiveUp {
        /// 0 for a success.
        code: i32,
    },
}

/// Work of the launcher itself.
pub type Using = Pin<Box<dyn Future<Output = i32> + Send>>;

impl Action {
    /// [`Action::Launch`] of a program.
    pub fn launch(program: Program) -> Action {
        Action::Launch(Box::new(program.into_launchable()))
    }

    /// [`Action::Use`] of a future.
    pub fn using(work: impl Future<Output = i32> + Send + 'static) -> Action {
        Action::Use(Box::pin(work))
    }

    /// [`Action::Use`] of a command that runs here, beside the launcher, like `mpirun` or `ssh`. It is killed when the
    /// application is ended by others; one that is ended by a signal, or cannot be executed, counts as exit code 127.
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

/// Why a launcher did not see its application to the end.
#[derive(Debug, Error)]
pub enum LauncherError {
    /// The server refuses the subscription, a request or a launch. The application was withdrawn.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another launcher was attached to the application.
    #[error("another launcher serves application {0} now")]
    Replaced(JobId),
    /// The application has ended, and the server does not remember how.
    #[error("application {0} has ended, and its history is gone")]
    Forgotten(JobId),
    /// The server denies access, or is away for too long.
    #[error(transparent)]
    Call(CallError),
    /// There is no thread to compute a request on.
    #[error("cannot start a thread for the computation of a request")]
    Thread(#[source] std::io::Error),
}

impl From<CallError> for LauncherError {
    fn from(error: CallError) -> LauncherError {
        match error {
            CallError::Refused(refused) => LauncherError::Refused(refused),
            CallError::Connect(_) | CallError::Interrupted(_) | CallError::Unexpected => LauncherError::Call(error),
        }
    }
}

/// Subscribes an application and sees it to its end. Breaks of the connection are mended: it attaches again for ten
/// minutes at most, and the server ends the application after its own `launcher_grace`. Dropping the future leaves
/// the application without a launcher.
///
/// # Errors
/// See [`LauncherError`].
pub async fn run(
    client: &Client,
    subscription: Subscription,
    launcher: &mut impl Launcher,
) -> Result<Outcome, LauncherError> {
    let session = Session::subscribe(client, subscription).await?;
    launcher.on_subscribed(session.job());
    Drive::new(client, launcher, session, false).run().await
}

/// Speaks for an application again, which another process of the launcher has subscribed, and sees it to its end.
///
/// # Errors
/// See [`LauncherError`].
pub async fn resume(client: &Client, job: JobId, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
    match Session::attach(client, job).await {
        Ok(session) => Drive::new(client, launcher, session, true).run().await,
        Err(CallError::Refused(refused)) if is_over(&refused) => {
            let outcome = look_up(client, job).await?;
            launcher.on_end(&outcome);
            Ok(outcome)
        }
        Err(error) => Err(error.into()),
    }
}

/// The word for a call that comes too late: to request after the start, to answer a start twice, to speak for a ghost.
const WRONG_STATE: &str = "wrong_state";

/// The word for too many calls in a second.
const RATE_LIMIT: &str = "rate_limit";
/// After it there is a new second.
const PAUSE: Duration = Duration::from_secs(1);

/// Is there nothing left to speak for, or only a ghost?
fn is_over(refused: &Refused) -> bool {
    refused.kind == "no_such_job" || refused.kind == WRONG_STATE
}

async fn look_up(client: &Client, job: JobId) -> Result<Outcome, LauncherError> {
    let query = HistoryQuery { jobs: vec![job], limit: 1, ..HistoryQuery::default() };
    let records = client.history(query).await?;
    records.into_iter().next().map(|record| record.outcome).ok_or(LauncherError::Forgotten(job))
}

/// An application on its way.
struct Drive<'a, L> {
    client: &'a Client,
    launcher: &'a mut L,
    session: Session,
    job: JobId,
    infos: Option<ClusterInfos>,
    last_tag: Tag,
    /// What the server is known to have been asked for.
    requested: Option<Wanted>,
    started: Option<Granted>,
    computing: Option<Computed>,
    /// The view has changed since what is being computed began.
    is_outdated: bool,
    using: Option<Using>,
    /// What is to be said at last: the start's tag and the exit code.
    finish: Option<(Tag, i32)>,
    is_resumed: bool,
    /// Between one connection and the next.
    backoff: Backoff,
}

/// What comes of a computation, and the version of the view that it looks at.
struct Computed {
    version: u64,
    request: oneshot::Receiver<Option<Wanted>>,
}

impl Computed {
    fn begin(version: u64, computing: Computing) -> std::io::Result<Computed> {
        let (sender, request) = oneshot::channel();
        // A thread that nobody joins: a search that is for nothing must not keep a program from ending.
        std::thread::Builder::new().name("launcher computes".to_owned()).spawn(move || {
            // Nobody waits for it any more if the application has started.
            let _ = sender.send(computing());
        })?;
        Ok(Computed { version, request })
    }
}

/// Until it is done; for ever if there is none. May be cancelled.
async fn computed(computing: &mut Option<Computed>) -> Option<Wanted> {
    match computing {
        Some(computed) => (&mut computed.request).await.expect("the computation of a request has panicked"),
        None => std::future::pending().await,
    }
}

/// Until it is done; for ever if there is none. May be cancelled.
async fn used(using: &mut Option<Using>) -> i32 {
    match using {
        Some(using) => using.await,
        None => std::future::pending().await,
    }
}

/// A start, and how it is answered.
struct Granted {
    tag: Tag,
    run: Run,
    reply: StartReply,
    /// The server has taken the answer.
    is_answered: bool,
}

enum StartReply {
    Launch(Box<Launchable>),
    Accept,
}

impl<'a, L: Launcher> Drive<'a, L> {
    fn new(client: &'a Client, launcher: &'a mut L, session: Session, is_resumed: bool) -> Drive<'a, L> {
        let job = session.job();
        Drive {
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
            let ended = match self.negotiation().await {
                Ok(outcome) => Ok(outcome),
                Err(LauncherError::Call(CallError::Interrupted(error))) if !is_wrong(&error) => {
                    match self.attach_again().await {
                        Ok(None) => continue,
                        Ok(Some(outcome)) => Ok(outcome),
                        Err(error) => Err(error),
                    }
                }
                Err(LauncherError::Refused(refused)) if refused.kind == RATE_LIMIT => {
                    // Views can change faster than a launcher may answer them.
                    tokio::time::sleep(PAUSE).await;
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

    /// Until the end, or until the connection breaks.
    async fn negotiation(&mut self) -> Result<Outcome, LauncherError> {
        // What a broken connection, or too many calls, have left unsaid.
        self.say_finish().await?;
        self.answer_start().await?;
        if self.session.view().version > 0 {
            self.view_changed(false).await?;
        }
        loop {
            let next = tokio::select! {
                // What was told comes first: a start makes a computation useless.
                biased;
                news = self.session.next() => Next::News(news?),
                code = used(&mut self.using) => Next::Used(code),
                request = computed(&mut self.computing) => Next::Computed(request),
            };
            self.backoff.reset();
            match next {
                Next::Used(code) => {
                    self.using = None;
                    let tag = self.started.as_ref().map_or(self.last_tag, |granted| granted.tag);
                    self.finish = Some((tag, code));
                    self.say_finish().await?;
                }
                Next::Computed(request) => {
                    let version = self.computing.take().map_or(0, |computed| computed.version);
                    self.ask(version, request).await?;
                    if self.is_outdated {
                        self.view_changed(false).await?;
                    }
                }
                Next::News(Some(News::View { asks_clusters })) => self.view_changed(asks_clusters).await?,
                Next::News(Some(News::Started(grant))) => self.started(*grant).await?,
                Next::News(Some(News::Ended(outcome))) => return Ok(outcome),
                Next::News(Some(News::Replaced)) => return Err(LauncherError::Replaced(self.job)),
                Next::News(None) => return Err(LauncherError::Call(CallError::Unexpected)),
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
            None => self.session.clusters().await?,
        };
        let infos = self.infos.insert(infos);
        let mut seen = Seen::new(self.session.now(), self.session.view(), infos);
        seen.requested = self.requested.as_ref();
        let version = seen.version();
        match self.launcher.choose(&seen) {
            Choice::Now(request) => self.ask(version, request).await,
            Choice::Compute(computing) => {
                self.computing = Some(Computed::begin(version, computing).map_err(LauncherError::Thread)?);
                Ok(())
            }
        }
    }

    /// Sends what was chosen from a version of the view, unless that is asked for already.
    async fn ask(&mut self, version: u64, wanted: Option<Wanted>) -> Result<(), LauncherError> {
        if self.started.is_some() || self.finish.is_some() {
            return Ok(());
        }
        let Some(wanted) = wanted.filter(|wanted| self.requested.as_ref() != Some(wanted)) else { return Ok(()) };
        let tag = self.next_tag();
        match self.session.request_seen(tag, version, wanted.clone()).await {
            Ok(()) => self.requested = Some(wanted),
            // It has started meanwhile, with what was asked for before: the news of it are on their way.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => {}
            Err(CallError::Refused(refused)) if refused.kind == RATE_LIMIT => return Err(refused.into()),
            Err(CallError::Refused(refused)) => self.launcher.on_refused(&wanted.request, refused)?,
            Err(error) => {
                // Whether it was heard is not known.
                self.requested = None;
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn started(&mut self, grant: Grant) -> Result<(), LauncherError> {
        let known = self.started.as_ref().filter(|granted| (granted.tag, granted.run) == (grant.tag, grant.run));
        if known.is_some_and(|granted| granted.is_answered) || self.finish.is_some() {
            // Told again, after the connection had broken.
            return Ok(());
        }
        self.computing = None;
        if known.is_none() {
            let (tag, run) = (grant.tag, grant.run);
            // Whoever attaches to an application that has started is told so, and no view.
            let is_resumed = self.is_resumed && self.session.view().version == 0;
            let reply = match self.launcher.on_start(&Start { grant, is_resumed }) {
                Action::Launch(launch) => StartReply::Launch(launch),
                Action::Use(using) => {
                    self.using = Some(using);
                    StartReply::Accept
                }
                Action::GiveUp { code } => {
                    self.finish = Some((tag, code));
                    return self.say_finish().await;
                }
            };
            self.started = Some(Granted { tag, run, reply, is_answered: false });
        }
        self.answer_start().await
    }

    /// Says what is done with the nodes, unless the server has heard it.
    async fn answer_start(&mut self) -> Result<(), LauncherError> {
        let is_open = |granted: &&mut Granted| !granted.is_answered;
        let Some(granted) = self.started.as_mut().filter(is_open) else { return Ok(()) };
        let answered = match &granted.reply {
            StartReply::Launch(launch) => self.session.launch(granted.tag, launch.as_ref().clone()).await,
            StartReply::Accept => self.session.accept(granted.tag).await,
        };
        match answered {
            Ok(()) => granted.is_answered = true,
            // A launch or an acceptance before this one was heard, over a connection that broke before its answer.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => granted.is_answered = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn say_finish(&mut self) -> Result<(), LauncherError> {
        let Some((tag, code)) = self.finish else { return Ok(()) };
        match self.session.finish(tag, code).await {
            // It has ended already, by us or by others: the news of it are on their way.
            Err(CallError::Refused(refused)) if refused.kind == WRONG_STATE => Ok(()),
            finished => Ok(finished?),
        }
    }

    /// The application is of no use any more, and must not wait for its time-outs.
    async fn withdraw(&mut self) {
        let tag = self.started.as_ref().map_or(self.last_tag, |granted| granted.tag);
        // If this is not heard, the server will end it for the lost launcher.
        let _ = self.session.finish(tag, 1).await;
    }

    /// How the application has ended, if it has while nobody was connected.
    async fn attach_again(&mut self) -> Result<Option<Outcome>, LauncherError> {
        let begun = std::time::Instant::now();
        loop {
            // Never in a busy circle with a server that lets go of us each time.
            self.client.pause(self.backoff.delay()).await;
            match Session::attach(self.client, self.job).await {
                Ok(session) => {
                    self.session = session;
                    return Ok(None);
                }
                Err(CallError::Refused(refused)) if is_over(&refused) => {
                    return look_up(self.client, self.job).await.map(Some);
                }
                Err(CallError::Refused(refused)) if !may_pass(&refused) => return Err(refused.into()),
                Err(error @ CallError::Connect(ConnectError::Denied { .. } | ConnectError::Dir(_))) => {
                    return Err(error.into());
                }
                Err(error) if begun.elapsed() > RECONNECT_PATIENCE => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    /// Rises over restarts of the launcher too, unless its clock is set back.
    fn next_tag(&mut self) -> Tag {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.last_tag = Tag(now.max(self.last_tag.0.saturating_add(1)));
        self.last_tag
    }
}

enum Next {
    News(Option<News>),
    Used(i32),
    Computed(Option<Wanted>),
}

/// Refusals that a server on its way down or up gives.
fn may_pass(refused: &Refused) -> bool {
    is_passing(refused) || refused.kind == "journal_failing"
}
