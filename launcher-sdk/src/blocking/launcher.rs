//! Launchers in programs without an async runtime.

use std::time::Duration;

use rms_api::subscription::{ClusterInfos, Launchable, LauncherView, Tag};
use rms_model::{JobId, Outcome, Request, Slice, Time};

use super::Client;
use crate::error::CallError;
use crate::launcher::{self, Event, Launcher, LauncherError, Subscription, Traffic};

impl Client {
    /// As [`launcher::run`]: subscribes an application and drives it to its end.
    ///
    /// # Errors
    /// As [`launcher::run`].
    pub fn launch(&self, subscription: Subscription, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
        self.runtime.block_on(launcher::run(&self.client, subscription, launcher))
    }

    /// As [`launcher::resume`]: goes on with an application that another process has subscribed.
    ///
    /// # Errors
    /// As [`launcher::resume`].
    pub fn resume(&self, job: JobId, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
        self.runtime.block_on(launcher::resume(&self.client, job, launcher))
    }

    /// As [`launcher::Session::subscribe`].
    ///
    /// # Errors
    /// As [`launcher::Session::subscribe`].
    pub fn subscribe(&self, subscription: Subscription) -> Result<Session<'_>, CallError> {
        let session = self.runtime.block_on(launcher::Session::subscribe(&self.client, subscription))?;
        Ok(Session { client: self, session })
    }

    /// As [`launcher::Session::attach`].
    ///
    /// # Errors
    /// As [`launcher::Session::attach`].
    pub fn attach(&self, job: JobId) -> Result<Session<'_>, CallError> {
        let session = self.runtime.block_on(launcher::Session::attach(&self.client, job))?;
        Ok(Session { client: self, session })
    }
}

/// A [`launcher::Session`] whose calls block the calling thread. The connection is kept alive only while one of them
/// waits, so a launcher waits in [`Session::wait`] when it has nothing else to do.
#[derive(Debug)]
pub struct Session<'a> {
    client: &'a Client,
    session: launcher::Session,
}

impl Session<'_> {
    /// As [`launcher::Session::job`].
    pub fn job(&self) -> JobId {
        self.session.job()
    }

    /// As [`launcher::Session::request_until`].
    pub fn request_until(&self) -> Option<Time> {
        self.session.request_until()
    }

    /// As [`launcher::Session::view`].
    pub fn view(&self) -> &LauncherView {
        self.session.view()
    }

    /// As [`launcher::Session::now`].
    pub fn now(&self) -> Time {
        self.session.now()
    }

    /// As [`launcher::Session::traffic`].
    pub fn traffic(&self) -> Traffic {
        self.session.traffic()
    }

    /// As [`launcher::Session::clusters`].
    ///
    /// # Errors
    /// As [`launcher::Session::clusters`].
    pub fn clusters(&mut self) -> Result<ClusterInfos, CallError> {
        self.client.runtime.block_on(self.session.clusters())
    }

    /// As [`launcher::Session::request`].
    ///
    /// # Errors
    /// As [`launcher::Session::request`].
    pub fn request(&mut self, tag: Tag, request: Request) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.request(tag, request))
    }

    /// As [`launcher::Session::request_slices`].
    ///
    /// # Errors
    /// As [`launcher::Session::request`].
    pub fn request_slices(&mut self, tag: Tag, request: Request, slice: Slice) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.request_slices(tag, request, slice))
    }

    /// As [`launcher::Session::launch`].
    ///
    /// # Errors
    /// As [`launcher::Session::launch`].
    pub fn launch(&mut self, tag: Tag, launch: Launchable) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.launch(tag, launch))
    }

    /// As [`launcher::Session::accept`].
    ///
    /// # Errors
    /// As [`launcher::Session::accept`].
    pub fn accept(&mut self, tag: Tag) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.accept(tag))
    }

    /// As [`launcher::Session::finish`].
    ///
    /// # Errors
    /// As [`launcher::Session::finish`].
    pub fn finish(&mut self, tag: Tag, code: i32) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.finish(tag, code))
    }

    /// As [`launcher::Session::next`]: waits for the next event; `None` after the end.
    ///
    /// # Errors
    /// As [`launcher::Session::next`].
    pub fn wait(&mut self) -> Result<Option<Event>, CallError> {
        self.client.runtime.block_on(self.session.next())
    }

    /// As [`Session::wait`], with a time-out; the outer `None` means that nothing came in time.
    ///
    /// # Errors
    /// As [`launcher::Session::next`].
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<Option<Event>>, CallError> {
        let next = async { tokio::time::timeout(limit, self.session.next()).await.ok().transpose() };
        self.client.runtime.block_on(next)
    }
}
