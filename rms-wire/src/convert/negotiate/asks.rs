//! How a job may change, what is asked for it, what came of that and what it has cost, both ways.

use negotiation::Price;
use rms_api::negotiate as core;
use rms_model::{Malleable, OnResize, Span};

use super::{MAX_NAMED, speedup_from_wire, speedup_to_wire};
use crate::convert::{Malformed, span};
use crate::negotiate as wire;

impl From<&Malleable> for wire::Malleable {
    fn from(malleable: &Malleable) -> wire::Malleable {
        wire::Malleable {
            least: malleable.least,
            most: malleable.most,
            sizes: (&malleable.sizes).into(),
            on_resize: (&malleable.on_resize).into(),
            speedup: speedup_to_wire(&malleable.speedup),
            survives_loss: malleable.survives_loss,
        }
    }
}

impl TryFrom<wire::Malleable> for Malleable {
    type Error = Malformed;

    fn try_from(malleable: wire::Malleable) -> Result<Malleable, Malformed> {
        Ok(Malleable {
            least: malleable.least,
            most: malleable.most,
            sizes: malleable.sizes.try_into()?,
            on_resize: malleable.on_resize.into(),
            speedup: speedup_from_wire(malleable.speedup)?,
            survives_loss: malleable.survives_loss,
        })
    }
}

impl From<&OnResize> for wire::OnResize {
    fn from(on_resize: &OnResize) -> wire::OnResize {
        match on_resize {
            OnResize::Negotiates => wire::OnResize::Negotiates,
            OnResize::Signal(signal) => wire::OnResize::Signal(*signal),
            OnResize::Hook(command) => wire::OnResize::Hook(command.clone()),
            OnResize::Workers => wire::OnResize::Workers,
        }
    }
}

impl From<wire::OnResize> for OnResize {
    fn from(on_resize: wire::OnResize) -> OnResize {
        match on_resize {
            wire::OnResize::Negotiates => OnResize::Negotiates,
            wire::OnResize::Signal(signal) => OnResize::Signal(signal),
            wire::OnResize::Hook(command) => OnResize::Hook(command),
            wire::OnResize::Workers => OnResize::Workers,
        }
    }
}

impl From<&core::Ask> for wire::Ask {
    fn from(ask: &core::Ask) -> wire::Ask {
        wire::Ask {
            direction: ask.direction.into(),
            what: match &ask.what {
                core::Asked::Hosts { cluster } => wire::Asked::Hosts { cluster: cluster.clone() },
                core::Asked::Time => wire::Asked::Time,
                core::Asked::Cores { cluster } => wire::Asked::Cores { cluster: cluster.clone() },
            },
            quantity: ask.quantity,
            least: ask.least,
            sizes: (&ask.sizes).into(),
            price: ask.price.0,
            duration: ask.duration.map(Span::as_millis),
            hosts: ask.hosts.clone(),
            wait: ask.wait.as_millis(),
        }
    }
}

impl TryFrom<wire::Ask> for core::Ask {
    type Error = Malformed;

    fn try_from(ask: wire::Ask) -> Result<core::Ask, Malformed> {
        if ask.hosts.len() > MAX_NAMED {
            return Err(Malformed::TooMany { field: "the hosts of an ask", n: ask.hosts.len(), max: MAX_NAMED });
        }
        Ok(core::Ask {
            direction: ask.direction.into(),
            what: match ask.what {
                wire::Asked::Hosts { cluster } => core::Asked::Hosts { cluster },
                wire::Asked::Time => core::Asked::Time,
                wire::Asked::Cores { cluster } => core::Asked::Cores { cluster },
            },
            quantity: ask.quantity,
            least: ask.least,
            sizes: ask.sizes.try_into()?,
            price: Price(ask.price),
            duration: ask.duration.map(|duration| span("the duration of an ask", duration)).transpose()?,
            hosts: ask.hosts,
            wait: span("the wait of an ask", ask.wait)?,
        })
    }
}

impl From<&core::BudgetLine> for wire::BudgetLine {
    fn from(line: &core::BudgetLine) -> wire::BudgetLine {
        let core::BudgetLine { user, budget, spent, reserved } = line;
        wire::BudgetLine { user: user.clone(), budget: *budget, spent: *spent, reserved: *reserved }
    }
}

impl From<wire::BudgetLine> for core::BudgetLine {
    fn from(line: wire::BudgetLine) -> core::BudgetLine {
        let wire::BudgetLine { user, budget, spent, reserved } = line;
        core::BudgetLine { user, budget, spent, reserved }
    }
}

impl From<&core::AskOutcome> for wire::AskOutcome {
    fn from(outcome: &core::AskOutcome) -> wire::AskOutcome {
        match outcome {
            core::AskOutcome::Ready { negotiation, quantity, hosts, generation, n_rounds } => wire::AskOutcome::Ready {
                negotiation: (*negotiation).into(),
                quantity: *quantity,
                hosts: hosts.clone(),
                generation: *generation,
                n_rounds: *n_rounds,
            },
            core::AskOutcome::Failed { negotiation, reason, free: None } => {
                wire::AskOutcome::Failed { negotiation: (*negotiation).into(), reason: (*reason).into() }
            }
            core::AskOutcome::Failed { negotiation, reason, free: Some(free) } => {
                let (negotiation, reason) = ((*negotiation).into(), (*reason).into());
                wire::AskOutcome::Short { negotiation, reason, free: *free }
            }
        }
    }
}

impl From<wire::AskOutcome> for core::AskOutcome {
    fn from(outcome: wire::AskOutcome) -> core::AskOutcome {
        match outcome {
            wire::AskOutcome::Ready { negotiation, quantity, hosts, generation, n_rounds } => {
                core::AskOutcome::Ready { negotiation: negotiation.into(), quantity, hosts, generation, n_rounds }
            }
            wire::AskOutcome::Failed { negotiation, reason } => {
                core::AskOutcome::Failed { negotiation: negotiation.into(), reason: reason.into(), free: None }
            }
            wire::AskOutcome::Short { negotiation, reason, free } => {
                core::AskOutcome::Failed { negotiation: negotiation.into(), reason: reason.into(), free: Some(free) }
            }
        }
    }
}
