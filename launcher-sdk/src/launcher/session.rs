//! One channel to the server that speaks for one application: a method for each call, and what it is told.

use rms_api::Refused;
use std::time::Instant;

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

/// What a launcher is told without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The [view](Session::view) has changed (001: changeNotify). Changes that came together are told once.
    View {
        /// What [`Session::clusters`] tells is another, too.
        asks_clusters: bool,
    },
    /// The request under [`Grant::tag`] was granted (001: startNotify). [Launch](Session::launch) or
    /// [accept](Session::accept) before [`Grant::answer_until`]. A session that was attached is told again of a start
    /// that was before it.
    Started(Box<Grant>),
    /// The application has left; this is the last word.
    Ended(Outcome),
    /// Another session was attached for the application; this is the last word.
    Replaced,
}

/// How many bytes of frames have gone over a session, headers included; what QUIC adds is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the server.
    pub sent: u64,
    /// From the server.
    pub received: u64,
}

/// The connection of one launcher. It is not made anew when it breaks: [attach](Session::attach) then, or use
/// [`run`](super::run).
///
/// Views that come while nobody asks are laid over each other, so a session that is not read holds little.
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
    /// When the newest view came, by our own clock.
    viewed: Instant,
    parts: ViewParts,
    unread: Unread,
}

/// News that were not asked for yet.
#[derive(Debug, Default)]
struct Unread {
    started: Option<Box<Grant>>,
    /// Says whether the clusters are to be asked for, too.
    view: Option<bool>,
    last: Option<News>,
    is_over: bool,
}

impl Session {
    /// Brings an application into the system (001: subscribe); when this returns it is there, durably. Its first view
    /// follows at once, as [`News::View`].
    ///
    /// # Errors
    /// As every call. Refused: names that cannot be, clusters that do not exist, a system that is full.
    pub async fn subscribe(client: &Client, subscription: Subscription) -> Result<Session, CallError> {
        Session::open(client, LauncherCall::Subscribe(Box::new(subscription))).await
    }

    /// Speaks for an application again, after the session before has broken or the launcher was restarted. A session
    /// that is still there is told [`News::Replaced`]. The whole view follows, and the start if there was one.
    ///
    /// # Errors
    /// As every call. Refused: an application that has ended (`no_such_job`) or is another user's (`not_your_job`).
    pub async fn attach(client: &Client, job: JobId) -> Result<Session, CallError> {
        Session::open(client, LauncherCall::Attach { job }).await
    }

    async fn open(client: &Client, call: LauncherCall) -> Result<Session, CallError> {
        let link = client.attentive_link().await?;
        let mut channel = link.open().await.map_err(CallError::Interrupted)?;
        channel.send(&ClientRequest::Launcher).await.map_err(CallError::Interrupted)?;
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
            viewed: Instant::now(),
            parts: ViewParts::new(),
            unread: Unread::default(),
        };
        match session.call(call).await? {
            LauncherAnswer::Subscribed { job, request_until } => {
                session.job = job;
                session.request_until = request_until;
                Ok(session)
            }
            LauncherAnswer::Clusters(_) | LauncherAnswer::Done => Err(CallError::Unexpected),
        }
    }

    /// The application; keep it to [attach](Session::attach) later.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// When the first request must have been sent; `None` if there is no hurry, or there was one already.
    pub fn request_until(&self) -> Option<Time> {
        self.request_until
    }

    /// The view as far as it was told (001, §5.1): nodes of each cluster that may be used, and how many of them are busy
    /// when. Before the first [`News::View`] it is empty.
    pub fn view(&self) -> &LauncherView {
        &self.view
    }

    /// The server's clock, estimated from the newest view.
    pub fn now(&self) -> Time {
        let millis = i64::try_from(self.viewed.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.view.at + Span::from_millis(millis)
    }

    /// What has gone over the channel so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { sent: self.sent.bytes(), received: self.received.bytes() }
    }

    /// The clusters that the filter lets through, and the network between them (001: listClustersInfo).
    ///
    /// # Errors
    /// As every call.
    pub async fn clusters(&mut self) -> Result<ClusterInfos, CallError> {
        match self.call(LauncherCall::Clusters { job: self.job }).await? {
            LauncherAnswer::Clusters(infos) => Ok(infos),
            LauncherAnswer::Subscribed { .. } | LauncherAnswer::Done => Err(CallError::Unexpected),
        }
    }

    /// Asks for nodes (001: request), in the place of what was asked for before. `tag` must be higher than the one
    /// before; the wall time of `request` is how long the application may run.
    ///
    /// # Errors
    /// As every call. Refused: nodes that the view does not show, a wall time that is too long, an application that has
    /// started already (`wrong_state`).
    pub async fn request(&mut self, tag: Tag, request: Request) -> Result<(), CallError> {
        self.request_seen(tag, self.view.version, request.into()).await
    }

    /// The same for a slice of each node, on clusters whose nodes jobs share. Elsewhere nodes are given away whole, and
    /// have at least as much.
    ///
    /// # Errors
    /// As [`Session::request`].
    pub async fn request_slices(&mut self, tag: Tag, request: Request, slice: Slice) -> Result<(), CallError> {
        self.request_seen(tag, self.view.version, Wanted { request, slice }).await
    }

    /// The same, chosen from an older version of the view.
    pub(super) async fn request_seen(&mut self, tag: Tag, seen: u64, wanted: Wanted) -> Result<(), CallError> {
        let Wanted { request, slice } = wanted;
        let wish = LauncherRequest { tag, seen, request, slice };
        self.order(LauncherCall::Request { job: self.job, wish }).await
    }

    /// Starts processes on the granted nodes, once for each start. The application ends when they have ended, with the
    /// highest of their exit codes.
    ///
    /// # Errors
    /// As every call. Refused: a tag that is not that of the start, or a start for which processes were launched already
    /// (`wrong_state`). One that was only [accepted](Session::accept) can still be launched.
    pub async fn launch(&mut self, tag: Tag, launch: Launchable) -> Result<(), CallError> {
        self.order(LauncherCall::Launch { job: self.job, tag, launch: Box::new(launch) }).await
    }

    /// Takes the nodes to use them by own means; [finish](Session::finish) gives them back.
    ///
    /// # Errors
    /// As [`Session::launch`]; what was accepted can be accepted again.
    pub async fn accept(&mut self, tag: Tag) -> Result<(), CallError> {
        self.order(LauncherCall::Accept { job: self.job, tag }).await
    }

    /// The application is done (001: done) with this exit code; processes that still run are ended. Before a start it
    /// withdraws the application. [`News::Ended`] follows.
    ///
    /// # Errors
    /// As every call.
    pub async fn finish(&mut self, tag: Tag, code: i32) -> Result<(), CallError> {
        self.order(LauncherCall::Finish { job: self.job, tag, code }).await
    }

    /// The next thing to know; a start before a view, the end at last. `None` after the last word. May be cancelled.
    ///
    /// # Errors
    /// [`CallError::Interrupted`]: the connection is lost, and [attaching](Session::attach) again may help.
    pub async fn next(&mut self) -> Result<Option<News>, CallError> {
        loop {
            if let Some(news) = self.unread.take() {
                return Ok(Some(news));
            }
            if self.unread.is_over {
                return Ok(None);
            }
            let told = self.receive().await?;
            // An answer that comes here is to a call whose caller has given up.
            let _unwanted = self.take(told)?;
        }
    }

    async fn order(&mut self, call: LauncherCall) -> Result<(), CallError> {
        match self.call(call).await? {
            LauncherAnswer::Done => Ok(()),
            LauncherAnswer::Subscribed { .. } | LauncherAnswer::Clusters(_) => Err(CallError::Unexpected),
        }
    }

    /// May be cancelled: the call is made nevertheless, and its answer dropped.
    async fn call(&mut self, call: LauncherCall) -> Result<LauncherAnswer, CallError> {
        self.last_seq += 1;
        let seq = self.last_seq;
        match self.outbox.push(&LauncherSays { seq, call }) {
            // Of a link that has ended, receiving says why.
            Ok(()) | Err(OutboxClosed::Ended | OutboxClosed::Full { .. }) => {}
            Err(OutboxClosed::Encode(error)) => return Err(CallError::Interrupted(error.into())),
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

    /// Keeps what was told; an answer is the caller's.
    fn take(&mut self, told: LauncherTold) -> Result<Option<Answered>, CallError> {
        match told {
            LauncherTold::Answer { seq, answer } => {
                return Ok(Some((seq, answer)));
            }
            LauncherTold::Changed(part) => {
                let whole = self.parts.push(part);
                if let Some(change) = whole.map_err(|wrong| CallError::Interrupted(wrong.into()))? {
                    let asks_clusters = self.view.apply(change);
                    self.viewed = Instant::now();
                    *self.unread.view.get_or_insert(false) |= asks_clusters;
                }
            }
            LauncherTold::Started(grant) => self.unread.started = Some(grant),
            LauncherTold::Ended { outcome } => self.unread.last = Some(News::Ended(outcome)),
            LauncherTold::Replaced => self.unread.last = Some(News::Replaced),
        }
        Ok(None)
    }
}

impl Unread {
    fn take(&mut self) -> Option<News> {
        if let Some(grant) = self.started.take() {
            return Some(News::Started(grant));
        }
        if let Some(asks_clusters) = self.view.take() {
            return Some(News::View { asks_clusters });
        }
        let last = self.last.take();
        self.is_over |= last.is_some();
        last
    }
}

/// The answer to the call of this number.
type Answered = (u64, Result<LauncherAnswer, Refused>);

/// Calls that were given up before they were written; a session makes one at a time.
const MAX_QUEUED: usize = 64;
