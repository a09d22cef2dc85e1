//! What the jobs of a queue hold in a pass under the policy `conservative`.

use std::collections::BTreeMap;

use rms_model::{JobId, Time};

use super::Placed;
use super::taken::Taken;
use crate::state::Demand;

/// One application under the conservative policy, once it was considered.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) held: Held,
    pub(super) outcome: Option<Placed>,
    /// It has its earliest start with regard to the first that many entries of what was freed; `None` if that is
    /// unknown.
    pub(super) n_checked: Option<usize>,
}

/// The jobs considered so far.
pub(super) type Slots = BTreeMap<JobId, Slot>;

/// What an application holds in the view.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Nothing,
    /// What it was promised, from this time on; taken together with all other promises.
    AsPromised(Time),
    Taken(Box<Taken>),
}

impl Held {
    pub(super) fn promised(demand: &Demand) -> Held {
        demand.promised.map_or(Held::Nothing, Held::AsPromised)
    }
}

impl Slot {
    pub(super) fn of(held: Held, outcome: Option<Placed>) -> Slot {
        Slot { held, outcome, n_checked: None }
    }

    pub(super) fn taken(&self) -> Option<&Taken> {
        match &self.held {
            Held::Taken(taken) => Some(taken),
            Held::Nothing | Held::AsPromised(_) => None,
        }
    }
}
