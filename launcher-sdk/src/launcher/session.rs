//! The channel of a launcher to the server, for one application: a method for each call, and the server's events.

use rms_api::Refused;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rms_api::subscription::{
    ClusterInfos, Grant, Launchable, LauncherAnswer, LauncherCall, LauncherRequest, LauncherView, Subscription, Tag,
};
use rms_model::{JobId, Outcome, Request, Slice, Span, Time};
use rms_wire::link::{Outbox, OutboxClosed};
use rms_wire::parts::ViewParts;
use rms_wire::{ByteCount, ClientRequest, LauncherSays, LauncherTold, LinkError, Receiver};

use super::wanted::Wanted;
use crate::client::Client;
use crate::error::CallError;

/// An event that the server sends to a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The [view](Session::view) has changed (001: changeNotify). Changes that arrived together are reported once.
    View {
        /// What [`Session::clusters`] returns has changed, too.
        asks_clusters: bool,
    },
    /// The request with [`Grant::tag`] was granted (001: startNotify). [Launch](Session::launch) or
    /// [accept](Session::accept) before [`Grant::answer_until`]. A session that attaches after the start gets this event, too.
    Started(Box<Grant>),
    /// The application has ended; nothing comes after this.
    Ended(Outcome),
    /// Another session has attached to the application; nothing comes after this.
    Replaced,
}

/// The bytes of all frames that were sent over a session, headers included; QUIC's own overhead is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the server.
    pub sent: u64,
    /// From the server.
    pub received: u64,
}

/// The connection of one launcher. It does not reconnect when it breaks: [attach](Session::attach) again, or use
/// [`run`](super::run).
///
/// Changes of the view that were not read yet are merged, so the memory of a session that is not read stays bounded.
#[derive(Debug)]
pub struct Session {
    job: JobId,
    request_until: Option<Time>,
    outbox: Outbox<LauncherSays>,
    receiver: Receiver,
    sent: ByteCount,
    received: ByteCount,
    last_seq: u64,
    view: LauncherView,
    /// The server's clock at an instant.
    clock: (Time, Instant),
    parts: ViewParts,
    unread: UnreadEvents,
}

/// Events that the launcher has not read yet.
#[derive(Debug, Default)]
struct UnreadEvents {
    started: Option<Box<Grant>>,
    /// The view has changed, and whether the clusters have changed, too.
    view: Option<bool>,
    last: Option<Event>,
    is_over: bool,
}

impl Session {
    /// Subscribes an application (001: subscribe). When this returns, the application is in the system, durably. Its
    /// first view follows at once, as [`Event::View`].
    ///
    /// # Errors
    /// See [`CallError`]. Refused: invalid names, clusters that do not exist, a system that is full.
    pub async fn subscribe(client: &Client, subscription: Subscription) -> Result<Session, CallError> {
        Session::open(client, LauncherCall::Subscribe(Box::new(subscription))).await
    }

    /// Attaches to an application again, after the previous session broke or the launcher was restarted. A session that
    /// is still open gets [`Event::Replaced`]. The whole view follows, and the start if there was one.
    ///
    /// # Errors
    /// See [`CallError`]. Refused: an application that has ended (`no_such_job`) or belongs to another user
    /// (`not_your_job`).
    pub async fn attach(client: &Client, job: JobId) -> Result<Session, CallError> {
        Session::open(client, LauncherCall::Attach { job }).await
    }

    async fn open(client: &Client, call: LauncherCall) -> Result<Session, CallError> {
        let mut channel = client.launcher_channel().await?;
        channel.send(&ClientRequest::Launcher).await?;
        let (sender, receiver) = channel.split();
        let (sent, received) = (sender.n_bytes(), receiver.n_bytes());
        let mut session = Session {
            job: JobId(0),
            request_until: None,
            outbox: Outbox::new(sender, MAX_QUEUED),
            receiver,
            sent,
            received,
            last_seq: 0,
            view: LauncherView::default(),
            clock: (local_clock(), Instant::now()),
            parts: ViewParts::new(),
            unread: UnreadEvents::default(),
        };
        match session.call(call).await? {
            LauncherAnswer::Subscribed { job, request_until, now } => {
                session.job = job;
                session.request_until = request_until;
                if let Some(now) = now {
                    session.clock = (now, Instant::now());
                }
                Ok(session)
            }
            LauncherAnswer::Clusters(_) | LauncherAnswer::Done => Err(CallError::Unexpected),
        }
    }

    /// Returns the id of the application; keep it to [attach](Session::attach) later.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Returns the deadline of the first request; `None` if there is none, or a request was sent already.
    pub fn request_until(&self) -> Option<Time> {
        self.request_until
    }

    /// Returns the view as last received (001, §5.1): the nodes of each cluster that may be used, and how many of them
    /// are busy when. Before the first [`Event::View`] it is empty.
    pub fn view(&self) -> &LauncherView {
        &self.view
    }

    /// Returns the server's clock, estimated from the newest view, or from the answer to the subscription or attachment
    /// before the first one. If an older server says it in neither, this is the local clock.
    pub fn now(&self) -> Time {
        let (at, since) = self.clock;
        at + Span::from_millis(i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the bytes sent and received over the channel so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { sent: self.sent.bytes(), received: self.received.bytes() }
    }

    /// Returns the clusters that pass the filter and the network between them (001: listClustersInfo).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn clusters(&mut self) -> Result<ClusterInfos, CallError> {
        match self.call(LauncherCall::Clusters { job: self.job }).await? {
            LauncherAnswer::Clusters(infos) => Ok(infos),
            LauncherAnswer::Subscribed { .. } | LauncherAnswer::Done => Err(CallError::Unexpected),
        }
    }

    /// Requests nodes (001: request); this replaces the previous request. `tag` must be higher than the previous one;
    /// the wall time of `request` is how long the application may run.
    ///
    /// # Errors
    /// See [`CallError`]. Refused: nodes that the view does not show, a wall time that is too long, an application that
    /// has started already (`wrong_state`).
    pub async fn request(&mut self, tag: Tag, request: Request) -> Result<(), CallError> {
        self.request_seen(tag, self.view.version, request.into()).await
    }

    /// Like [`Session::request`], for a slice of each node on clusters whose nodes are shared by jobs. Other clusters
    /// grant whole nodes that have at least as much.
    ///
    /// # Errors
    /// See [`Session::request`].
    pub async fn request_slices(&mut self, tag: Tag, request: Request, slice: Slice) -> Result<(), CallError> {
        self.request_seen(tag, self.view.version, Wanted { request, slice }).await
    }

    /// Like [`Session::request_slices`], for a request that was computed from version `seen` of the view.
    pub(super) async fn request_seen(&mut self, tag: Tag, seen: u64, wanted: Wanted) -> Result<(), CallError> {
        let Wanted { request, slice } = wanted;
        let wish = LauncherRequest { tag, seen, request, slice };
        self.order(LauncherCall::Request { job: self.job, wish }).await
    }

    /// Starts processes on the granted nodes, once for each start. The application ends when they have ended, with the
    /// highest of their exit codes.
    ///
    /// # Errors
    /// See [`CallError`]. Refused: a tag that is not that of the start, or a start for which processes were launched
    /// already (`wrong_state`). After a mere [accept](Session::accept), processes can still be launched.
    pub async fn launch(&mut self, tag: Tag, launch: Launchable) -> Result<(), CallError> {
        self.order(LauncherCall::Launch { job: self.job, tag, launch: Box::new(launch) }).await
    }

    /// Accepts the nodes, to use them by own means; [`finish`](Session::finish) gives them back.
    ///
    /// # Errors
    /// See [`Session::launch`]; accepting the same start again is no error.
    pub async fn accept(&mut self, tag: Tag) -> Result<(), CallError> {
        self.order(LauncherCall::Accept { job: self.job, tag }).await
    }

    /// Ends the application (001: done) with this exit code; processes that still run are ended. Before a start, this
    /// withdraws the application: with code 0 it counts as cancelled by its owner, else as failed with that code.
    /// [`Event::Ended`] follows.
    ///
    /// # Errors
    /// See [`CallError`]; `malformed` for a code that is not between 0 and 255.
    pub async fn finish(&mut self, tag: Tag, code: i32) -> Result<(), CallError> {
        self.order(LauncherCall::Finish { job: self.job, tag, code }).await
    }

    /// Waits for the next event: a start comes before a view, the end comes last. `None` after the end. Cancel safe.
    ///
    /// # Errors
    /// [`CallError::Interrupted`]: the connection is lost; [attaching](Session::attach) again may help.
    pub async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            if let Some(event) = self.unread.take() {
                return Ok(Some(event));
            }
            if self.unread.is_over {
                return Ok(None);
            }
            let told = self.receive().await?;
            // An answer that arrives here belongs to a call whose caller has given up.
            let _unwanted = self.take(told)?;
        }
    }

    async fn order(&mut self, call: LauncherCall) -> Result<(), CallError> {
        match self.call(call).await? {
            LauncherAnswer::Done => Ok(()),
            LauncherAnswer::Subscribed { .. } | LauncherAnswer::Clusters(_) => Err(CallError::Unexpected),
        }
    }

    /// Makes a call. Cancel safe: a cancelled call is still made, and its answer is dropped.
    async fn call(&mut self, call: LauncherCall) -> Result<LauncherAnswer, CallError> {
        self.last_seq += 1;
        let seq = self.last_seq;
        match self.outbox.push(&LauncherSays { seq, call }) {
            // If the link has ended, the receive error says why.
            Ok(()) | Err(OutboxClosed::Ended | OutboxClosed::Full { .. }) => {}
            Err(OutboxClosed::Encode(error)) => return Err(LinkError::Encode(error).into()),
        }
        loop {
            let told = self.receive().await?;
            if let Some((answered, answer)) = self.take(told)?
                && answered == seq
            {
                return answer.map_err(CallError::Refused);
            }
        }
    }

    async fn receive(&mut self) -> Result<LauncherTold, CallError> {
        match self.receiver.recv::<LauncherTold>().await {
            Ok(Some(told)) => Ok(told),
            Ok(None) if self.unread.last.is_some() || self.unread.is_over => {
                let message = "the application has left, or another launcher serves it";
                Err(CallError::Refused(Refused::new("wrong_state", message)))
            }
            Ok(None) => Err(CallError::Interrupted(LinkError::ChannelReset)),
            Err(error) => Err(CallError::Interrupted(error)),
        }
    }

    /// Stores an event; returns an answer to the caller.
    fn take(&mut self, told: LauncherTold) -> Result<Option<Answered>, CallError> {
        match told {
            LauncherTold::Answer { seq, answer } => {
                return Ok(Some((seq, answer)));
            }
            LauncherTold::Changed(part) => {
                let whole = self.parts.push(part);
                if let Some(change) = whole.map_err(|wrong| CallError::Interrupted(wrong.into()))? {
                    let asks_clusters = self.view.apply(change);
                    self.clock = (self.view.at, Instant::now());
                    *self.unread.view.get_or_insert(false) |= asks_clusters;
                }
            }
            LauncherTold::Started(grant) => self.unread.started = Some(grant),
            LauncherTold::Ended { outcome } => self.unread.last = Some(Event::Ended(outcome)),
            LauncherTold::Replaced => self.unread.last = Some(Event::Replaced),
        }
        Ok(None)
    }
}

impl UnreadEvents {
    fn take(&mut self) -> Option<Event> {
        if let Some(grant) = self.started.take() {
            return Some(Event::Started(grant));
        }
        if let Some(asks_clusters) = self.view.take() {
            return Some(Event::View { asks_clusters });
        }
        let last = self.last.take();
        self.is_over |= last.is_some();
        last
    }
}

fn local_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// An answer with the number of its call.
type Answered = (u64, Result<LauncherAnswer, Refused>);

/// The most cancelled calls that are not written yet; a session makes one call at a time.
const MAX_QUEUED: usize = 64;
