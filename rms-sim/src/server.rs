//! The server's process: the loop that production runs, with an inbox before it, and points at which it may die.

use rms_core::server_loop::{Inbound, ServerLoop};
use rms_core::{Config, Rms, State, Step};
use rms_model::Time;

use crate::journal::ModelJournal;

/// The point at which kill -9 hits the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Facts and effects are lost.
    BeforeCommit,
    /// Facts are durable, effects are lost.
    AfterCommit,
    /// This many effects were sent.
    AmidEffects(usize),
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) server_loop: ServerLoop,
    /// What has arrived since the last batch.
    pub(crate) inbox: Vec<Inbound>,
}

impl Server {
    pub(crate) fn new(config: Config) -> Server {
        Server { server_loop: ServerLoop::new(Rms::new(config), Step::default()), inbox: Vec::new() }
    }

    pub(crate) fn restore(config: Config, now: Time, journal: &ModelJournal) -> Server {
        let (snapshot, facts) = journal.contents();
        let mut rms = Rms::restore(config, snapshot, facts.iter().cloned()).expect("the facts are of one journal");
        let pending = rms.boot(now);
        Server { server_loop: ServerLoop::new(rms, pending), inbox: Vec::new() }
    }

    pub(crate) fn state(&self) -> &State {
        self.server_loop.state()
    }

    /// Returns when it acts if nothing more arrives; a time in the past means at once.
    pub(crate) fn next_turn(&self) -> Option<Time> {
        let takes_in = !self.inbox.is_empty() && !self.server_loop.is_writing();
        if takes_in { Some(Time::EPOCH) } else { self.server_loop.next_turn() }
    }

    /// Returns whether it takes new work now.
    pub(crate) fn is_well(&self) -> bool {
        self.server_loop.shortage().is_none() && !self.server_loop.is_writing()
    }
}
