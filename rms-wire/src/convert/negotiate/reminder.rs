//! Where open negotiations stand, as who attaches is told, both ways.

use negotiation::{Reminded, Reminder};
use rms_model::{NodeId, Span};

use crate::convert::{Malformed, all, span};
use crate::negotiate as wire;

impl From<&Reminder> for wire::Reminder {
    fn from(reminder: &Reminder) -> wire::Reminder {
        let Reminder { id, phase, proposals, hosts, left, said, heard } = reminder;
        let proposal = |Reminded { by, round, template }: &Reminded| wire::Reminded {
            by: (*by).into(),
            round: *round,
            template: template.into(),
        };
        wire::Reminder {
            id: (*id).into(),
            phase: (*phase).into(),
            proposals: proposals.iter().map(proposal).collect(),
            hosts: hosts.as_ref().map(|hosts| hosts.iter().map(|NodeId(node)| *node).collect()),
            left: left.map(Span::as_millis),
            said: *said,
            heard: *heard,
        }
    }
}

impl TryFrom<wire::Reminder> for Reminder {
    type Error = Malformed;

    fn try_from(reminder: wire::Reminder) -> Result<Reminder, Malformed> {
        let wire::Reminder { id, phase, proposals, hosts, left, said, heard } = reminder;
        if proposals.len() > MOST_PROPOSALS {
            let (n, max) = (proposals.len(), MOST_PROPOSALS);
            return Err(Malformed::TooMany { field: "a reminder", n, max });
        }
        let proposal = |wire::Reminded { by, round, template }| {
            Ok::<_, Malformed>(Reminded { by: by.into(), round, template: template.try_into()? })
        };
        Ok(Reminder {
            id: id.into(),
            phase: phase.into(),
            proposals: all(proposals, proposal)?,
            hosts: hosts.map(super::nodes).transpose()?,
            left: left.map(|left| span("the time that is left", left)).transpose()?,
            said,
            heard,
        })
    }
}

/// # Errors
/// One cannot be, or there are more than two ends can have open.
pub(super) fn open(open: Vec<wire::Reminder>) -> Result<Vec<Reminder>, Malformed> {
    if open.len() > MOST_OPEN {
        let (n, max) = (open.len(), MOST_OPEN);
        return Err(Malformed::TooMany { field: "what is open", n, max });
    }
    all(open, Reminder::try_from)
}

/// The last one of each end.
const MOST_PROPOSALS: usize = 2;
/// One for each direction and each end that opened it.
const MOST_OPEN: usize = 4;
