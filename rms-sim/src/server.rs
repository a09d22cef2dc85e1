//! The server's process: the loop that production runs, with an inbox before it, and moments at which it may die.

use rms_core::server_loop::{Inbound, ServerLoop};
use rms_core::{Config, Rms, State, Step};
use rms_model::Time;

use crate::journal::ModelJournal;

/// Where kill -9 hits the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Facts and effects are lost.
    BeforeCommit,
    /// Facts are durable, effects are lost.
    AfterCommit,
    /// So many effects got out.
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

    /// When it does something if nothing more arrives; a time that is past means at once.
    pub(crate) fn next_turn(&self) -> Option<Time> {
        let takes_in = !self.inbox.is_empty() && !self.server_loop.is_writing();
        if takes_in { Some(Time::EPOCH) } else { self.server_loop.next_turn() }
    }

    /// Does it take in new work, now?
    pub(crate) fn is_well(&self) -> bool {
        self.server_loop.shortage().is_none() && !self.server_loop.is_writing()
    }
}
