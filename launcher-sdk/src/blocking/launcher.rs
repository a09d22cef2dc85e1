//! Launchers in programs without an async runtime.

use std::time::Duration;

use rms_api::subscription::{ClusterInfos, Launchable, LauncherView, Tag};
use rms_model::{JobId, Outcome, Request, Slice, Time};

use super::Client;
use crate::error::CallError;
use crate::launcher::{self, Event, Launcher, LauncherError, Subscription, Traffic};

impl Client {
    /// Like [`launcher::run`]: subscribes an application and drives it to its end.
    ///
    /// # Errors
    /// See [`launcher::run`].
    pub fn launch(&self, subscription: Subscription, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
        self.runtime.block_on(launcher::run(&self.client, subscription, launcher))
    }

    /// Like [`launcher::resume`]: goes on with an application that another process has subscribed.
    ///
    /// # Errors
    /// See [`launcher::resume`].
    pub fn resume(&self, job: JobId, launcher: &mut impl Launcher) -> Result<Outcome, LauncherError> {
        self.runtime.block_on(launcher::resume(&self.client, job, launcher))
    }

    /// See [`launcher::Session::subscribe`].
    ///
    /// # Errors
    /// See [`launcher::Session::subscribe`].
    pub fn subscribe(&self, subscription: Subscription) -> Result<Session<'_>, CallError> {
        let session = self.runtime.block_on(launcher::Session::subscribe(&self.client, subscription))?;
        Ok(Session { client: self, session })
    }

    /// See [`launcher::Session::attach`].
    ///
    /// # Errors
    /// See [`launcher::Session::attach`].
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
    /// See [`launcher::Session::job`].
    pub fn job(&self) -> JobId {
        self.session.job()
    }

    /// See [`launcher::Session::request_until`].
    pub fn request_until(&self) -> Option<Time> {
        self.session.request_until()
    }

    /// See [`launcher::Session::view`].
    pub fn view(&self) -> &LauncherView {
        self.session.view()
    }

    /// See [`launcher::Session::now`].
    pub fn now(&self) -> Time {
        self.session.now()
    }

    /// See [`launcher::Session::traffic`].
    pub fn traffic(&self) -> Traffic {
        self.session.traffic()
    }

    /// See [`launcher::Session::clusters`].
    ///
    /// # Errors
    /// See [`launcher::Session::clusters`].
    pub fn clusters(&mut self) -> Result<ClusterInfos, CallError> {
        self.client.runtime.block_on(self.session.clusters())
    }

    /// See [`launcher::Session::request`].
    ///
    /// # Errors
    /// See [`launcher::Session::request`].
    pub fn request(&mut self, tag: Tag, request: Request) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.request(tag, request))
    }

    /// See [`launcher::Session::request_slices`].
    ///
    /// # Errors
    /// See [`launcher::Session::request`].
    pub fn request_slices(&mut self, tag: Tag, request: Request, slice: Slice) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.request_slices(tag, request, slice))
    }

    /// See [`launcher::Session::launch`].
    ///
    /// # Errors
    /// See [`launcher::Session::launch`].
    pub fn launch(&mut self, tag: Tag, launch: Launchable) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.launch(tag, launch))
    }

    /// See [`launcher::Session::accept`].
    ///
    /// # Errors
    /// See [`launcher::Session::accept`].
    pub fn accept(&mut self, tag: Tag) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.accept(tag))
    }

    /// See [`launcher::Session::finish`].
    ///
    /// # Errors
    /// See [`launcher::Session::finish`].
    pub fn finish(&mut self, tag: Tag, code: i32) -> Result<(), CallError> {
        self.client.runtime.block_on(self.session.finish(tag, code))
    }

    /// Like [`launcher::Session::next`]: waits for the next event; `None` after the end.
    ///
    /// # Errors
    /// See [`launcher::Session::next`].
    pub fn wait(&mut self) -> Result<Option<Event>, CallError> {
        self.client.runtime.block_on(self.session.next())
    }

    /// Like [`Session::wait`], with a time-out; the outer `None` means that no event arrived in time.
    ///
    /// # Errors
    /// See [`launcher::Session::next`].
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<Option<Event>>, CallError> {
        let next = async { tokio::time::timeout(limit, self.session.next()).await.ok().transpose() };
        self.client.runtime.block_on(next)
    }
}
