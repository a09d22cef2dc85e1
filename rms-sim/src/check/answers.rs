//! Every call is answered once: with what is durable, or at once that the disk fails.

use std::collections::BTreeSet;

use rms_core::Ticket;
use rms_core::server_loop::{Denial, Outbound};

use super::{Rule, Violation};

/// The calls to the current server that were not answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: BTreeSet<Ticket>,
}

impl Answers {
    pub(super) fn asked(&mut self, ticket: Ticket) {
        self.waiting.insert(ticket);
    }

    /// Forgets the calls to a server that has died.
    pub(super) fn server_died(&mut self) {
        self.waiting.clear();
    }

    /// Checks a message of the server; `is_behind` while some facts are not durable yet.
    pub(super) fn leaves(&mut self, outbound: &Outbound, is_behind: bool) -> Result<(), Violation> {
        let (ticket, denial) = match outbound {
            Outbound::Answer { ticket, answer } => (Some(*ticket), answer.as_ref().err()),
            Outbound::LauncherAnswer { ticket, answer } => (Some(*ticket), answer.as_ref().err()),
            Outbound::NegotiatorAnswer { ticket, answer } => (Some(*ticket), answer.as_ref().err()),
            Outbound::Sign { ticket, .. } | Outbound::Silence { ticket } => (Some(*ticket), None),
            Outbound::Found { .. } | Outbound::Changed { .. } | Outbound::WatchEnds { .. } => (None, None),
            Outbound::Desire { .. } | Outbound::Signal { .. } | Outbound::TellLauncher { .. } => (None, None),
            Outbound::TellNegotiator { .. } | Outbound::CloseLinks { .. } | Outbound::CloseLink { .. } => (None, None),
        };
        let tells_nothing = matches!(denial, Some(Denial::Failing(_)))
            || matches!(outbound, Outbound::Silence { .. } | Outbound::CloseLink { .. });
        if is_behind && !tells_nothing {
            return Err(Rule::Answers.broken(format!("{outbound:?} tells of what is not durable")));
        }
        match ticket {
            Some(ticket) if !self.waiting.remove(&ticket) => {
                Err(Rule::Answers.broken(format!("{outbound:?} answers one who does not wait")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that no call waits while the disk fails, after all calls were handled.
    pub(super) fn nobody_waits(&self) -> Result<(), Violation> {
        match self.waiting.first() {
            Some(ticket) => Err(Rule::Answers.broken(format!("{ticket:?} was not told that the disk fails"))),
            None => Ok(()),
        }
    }
}
