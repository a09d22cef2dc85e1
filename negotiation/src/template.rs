//! The negotiation template (002, §5.1): the parties, a status that follows from the items, and the resources.

mod error;
mod parse;

use std::collections::{BTreeMap, BTreeSet};

use rms_model::devices::is_device_name;
use rms_model::{ClusterId, NodeId, Span, Time};
use serde::{Deserialize, Serialize};

pub use self::error::{TemplateError, Which};
use crate::draft::Draft;
use crate::subject::{Direction, MAX_NODES, Parties, Resource, SetRule};
use crate::terms::{Quantity, Sizes, Terms};

/// The status of one resource of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ItemStatus {
    /// Part of the proposal.
    Proposed,
    /// No longer part of it; only items of any-of and one-of sets can be refused individually.
    Refused,
    /// Agreed, and being carried out.
    Accepted,
    /// In place.
    Ready,
    /// Agreed but not carried out, or not agreed.
    Failed,
}

/// Section 2 of the template: the status of the whole. It follows from the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// An answer is awaited.
    Open,
    /// Agreed, and being carried out.
    Accepted,
    /// In place.
    Ready,
    /// A set can no longer be met.
    Rejected,
    /// The change was not carried out.
    Failed,
}

/// One resource of section 3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Item {
    /// The index of its set in the template.
    pub set: u16,
    /// What is negotiated.
    pub resource: Resource,
    /// The size of the change.
    pub quantity: Quantity,
    /// How much of it the application holds during the negotiation; for a resource inside nodes, the amount on the node
    /// that has the least.
    pub held: Quantity,
    /// The nodes, where they matter. Empty for any nodes, or, for a resource inside nodes, for all nodes that are held
    /// in the cluster.
    pub nodes: BTreeSet<NodeId>,
    /// The sender's terms.
    pub terms: Terms,
    /// Its status.
    pub status: ItemStatus,
}

/// The content of a proposal; valid by construction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct Template {
    parties: Parties,
    direction: Direction,
    sets: Vec<SetRule>,
    items: Vec<Item>,
}

/// More items than any negotiation needs.
pub const MAX_ITEMS: usize = 64;
pub use rms_model::sizes::MAX_SIZES;
/// The largest price; multiplied by the largest quantity it still fits into an integer.
pub const MAX_PRICE: u64 = 1 << 40;

impl Item {
    /// Returns an item for `quantity` of a resource in set 0, with no terms but the range from 1 to `quantity`.
    pub fn up_to(resource: Resource, held: u64, quantity: u64) -> Item {
        let quantity = Quantity(quantity);
        let held = Quantity(held);
        let (set, nodes, terms) = (0, BTreeSet::new(), Terms::up_to(quantity));
        Item { set, resource, quantity, held, nodes, terms, status: ItemStatus::Proposed }
    }

    /// Returns whether it is part of the proposal, or of what was agreed.
    pub fn is_live(&self) -> bool {
        match self.status {
            ItemStatus::Proposed | ItemStatus::Accepted | ItemStatus::Ready => true,
            ItemStatus::Refused | ItemStatus::Failed => false,
        }
    }

    /// Returns what is held after a change by `quantity`; `None` if less than that is held to give back.
    pub fn total(&self, direction: Direction, quantity: Quantity) -> Option<u64> {
        match direction {
            Direction::Grow => self.held.0.checked_add(quantity.0),
            Direction::Shrink => self.held.0.checked_sub(quantity.0),
        }
    }

    /// Returns whether a change by `quantity` satisfies the terms of this item.
    pub fn fits(&self, direction: Direction, quantity: Quantity) -> bool {
        let in_range = quantity >= self.floor() && quantity <= self.ceiling(direction);
        in_range && self.total(direction, quantity).is_some_and(|total| self.terms.sizes.fits(total))
    }

    /// Returns the largest change of at most `bound` that satisfies the terms.
    ///
    /// For example, an application on 8 processors that needs a power of two and is offered 15 can use 8 (002, §3).
    pub fn greatest(&self, direction: Direction, bound: Quantity) -> Option<Quantity> {
        let bound = bound.min(self.ceiling(direction));
        let total = self.total(direction, bound)?;
        let change = match direction {
            Direction::Grow => self.terms.sizes.greatest(total)?.checked_sub(self.held.0)?,
            Direction::Shrink => self.held.0.checked_sub(self.terms.sizes.least(total)?)?,
        };
        Some(Quantity(change)).filter(|change| *change >= self.floor())
    }

    /// Returns the smallest change of at least `bound` that satisfies the terms.
    pub fn least(&self, direction: Direction, bound: Quantity) -> Option<Quantity> {
        let total = self.total(direction, bound.max(self.floor()))?;
        let change = match direction {
            Direction::Grow => self.terms.sizes.least(total)?.checked_sub(self.held.0)?,
            Direction::Shrink => self.held.0.checked_sub(self.terms.sizes.greatest(total)?)?,
        };
        Some(Quantity(change)).filter(|change| *change <= self.ceiling(direction))
    }

    /// Returns every change that satisfies the terms, ascending.
    pub fn quantities(&self, direction: Direction) -> impl Iterator<Item = Quantity> + '_ {
        let first = self.least(direction, Quantity(1));
        std::iter::successors(first, move |last| self.least(direction, Quantity(last.0.checked_add(1)?)))
    }

    fn floor(&self) -> Quantity {
        self.terms.least.max(Quantity(1))
    }

    fn ceiling(&self, direction: Direction) -> Quantity {
        let possible = match direction {
            Direction::Grow => Quantity(self.resource.limit().0.saturating_sub(self.held.0)),
            Direction::Shrink => self.held,
        };
        self.terms.most.min(possible)
    }

    fn validate(&self, item: Which, direction: Direction) -> Result<(), TemplateError> {
        let Terms { least, most, sizes, duration, price, deadline, give_back_by, priority: _ } = &self.terms;
        let limit = self.resource.limit();
        if self.quantity == Quantity(0) {
            return Err(TemplateError::NoQuantity { item });
        }
        let largest = self.quantity.max(self.held).max(*most);
        if largest > limit {
            return Err(TemplateError::TooMuch { item, asked: largest, limit });
        }
        match self.total(direction, self.quantity) {
            None => {
                let (resource, asked, held) = (self.resource.clone(), self.quantity, self.held);
                return Err(TemplateError::MoreThanHeld { item, resource, asked, held });
            }
            Some(total) if total > limit.0 => {
                return Err(TemplateError::TooMuch { item, asked: Quantity(total), limit });
            }
            Some(_) => {}
        }
        if *least == Quantity(0) || least > most {
            return Err(TemplateError::EmptyRange { item, least: *least, most: *most });
        }
        validate_sizes(&item, sizes)?;
        if let Some(total) = self.total(direction, self.quantity).filter(|total| !sizes.fits(*total)) {
            let total = self.resource.amount(Quantity(total));
            return Err(TemplateError::NotASize { item, total, sizes: sizes.clone() });
        }
        if !self.fits(direction, self.quantity) {
            return Err(TemplateError::AgainstOwnTerms { item, quantity: self.quantity });
        }
        if price.0 > MAX_PRICE {
            return Err(TemplateError::PriceTooHigh { item });
        }
        if duration.is_some_and(|duration| duration <= Span::ZERO || duration > Span::MAX_WALL) {
            return Err(TemplateError::Duration { item });
        }
        if let (Some(deadline), Some(give_back_by)) = (deadline, give_back_by)
            && deadline >= give_back_by
        {
            return Err(TemplateError::BackBeforeReady { item });
        }
        let is_lent = duration.is_some() || give_back_by.is_some();
        if self.resource == Resource::Time && is_lent {
            return Err(TemplateError::TimeCannotBeLent { item });
        }
        if self.resource.name().is_some_and(|name| !is_device_name(name)) {
            return Err(TemplateError::NoName { item });
        }
        let names = self.nodes.len();
        let names_fit = match self.resource {
            Resource::Nodes(_) => names == 0 || names as u64 == self.quantity.0,
            // The nodes that contain the resource; empty for all that are held.
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => names as u64 <= MAX_NODES,
            Resource::Licences(..) | Resource::Time if names == 0 => true,
            Resource::Licences(..) | Resource::Time => return Err(TemplateError::NotOnNodes),
        };
        if !names_fit {
            return Err(TemplateError::NodesNamed { item, names, quantity: self.quantity });
        }
        match self.status {
            ItemStatus::Proposed | ItemStatus::Refused => Ok(()),
            ItemStatus::Accepted | ItemStatus::Ready | ItemStatus::Failed => Err(TemplateError::NotAProposal { item }),
        }
    }
}

fn validate_sizes(item: &Which, sizes: &Sizes) -> Result<(), TemplateError> {
    match sizes {
        Sizes::Any | Sizes::PowerOfTwo => Ok(()),
        Sizes::MultipleOf(0) => Err(TemplateError::MultipleOfZero { item: item.clone() }),
        Sizes::MultipleOf(_) => Ok(()),
        Sizes::Listed(sizes) if sizes.is_empty() => Err(TemplateError::NoSizes { item: item.clone() }),
        Sizes::Listed(sizes) if sizes.len() > MAX_SIZES => {
            Err(TemplateError::TooManySizes { item: item.clone(), n_sizes: sizes.len() })
        }
        Sizes::Listed(sizes) if !sizes.is_sorted_by(|one, next| one < next) => {
            Err(TemplateError::SizesUnsorted { item: item.clone() })
        }
        Sizes::Listed(_) => Ok(()),
    }
}

impl Template {
    /// Creates a template for a proposal.
    ///
    /// # Errors
    /// What is wrong with the template, and with which item.
    pub fn new(
        parties: Parties,
        direction: Direction,
        sets: Vec<SetRule>,
        items: Vec<Item>,
    ) -> Result<Template, TemplateError> {
        if items.is_empty() {
            return Err(TemplateError::NoItems);
        }
        if items.len() > MAX_ITEMS || sets.len() > MAX_ITEMS {
            return Err(TemplateError::TooManyItems { n_items: items.len(), n_sets: sets.len() });
        }
        for (idx, item) in items.iter().enumerate() {
            if usize::from(item.set) >= sets.len() {
                return Err(TemplateError::NoSuchSet { item: idx, set: item.set });
            }
            item.validate(Which::of(idx, &items), direction)?;
            validate_beside(idx, item, &items[..idx], &sets)?;
        }
        let template = Template { parties, direction, sets, items };
        if let Some(set) = template.sets().position(|(_, mut members)| members.next().is_none()) {
            return Err(TemplateError::EmptySet { set });
        }
        if template.status() == Status::Rejected {
            return Err(TemplateError::CannotBeMet);
        }
        Ok(template)
    }

    /// Creates a template of one resource.
    ///
    /// # Errors
    /// See [`Template::new`].
    pub fn of_one(parties: Parties, direction: Direction, item: Item) -> Result<Template, TemplateError> {
        Template::new(parties, direction, vec![SetRule::All], vec![Item { set: 0, ..item }])
    }

    /// Returns the same template with other items, for a counter-offer.
    ///
    /// # Errors
    /// See [`Template::new`].
    pub fn with_items(&self, items: Vec<Item>) -> Result<Template, TemplateError> {
        Template::new(self.parties, self.direction, self.sets.clone(), items)
    }

    /// Returns section 1: the parties.
    pub fn parties(&self) -> Parties {
        self.parties
    }

    /// Returns whether the application wants to grow or shrink.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns how the sets must be met, by their number.
    pub fn rules(&self) -> &[SetRule] {
        &self.sets
    }

    /// Returns section 3: the resources.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns section 2: the worst status of the sets.
    pub fn status(&self) -> Status {
        let sets: Vec<Status> = self.sets().map(|(rule, members)| set_status(rule, members)).collect();
        let worst = [Status::Rejected, Status::Failed, Status::Open, Status::Accepted];
        worst.into_iter().find(|status| sets.contains(status)).unwrap_or(Status::Ready)
    }

    /// Returns whether it can be accepted as it is: no alternatives are left open.
    pub fn is_definite(&self) -> bool {
        self.sets().all(|(rule, members)| {
            let n_live = members.filter(|item| item.is_live()).count();
            match rule {
                SetRule::All | SetRule::AnyOf => n_live > 0,
                SetRule::OneOf => n_live == 1,
            }
        })
    }

    /// Returns the template with all its live items at `status`, as shown after the negotiation has moved on.
    pub(crate) fn at(&self, status: ItemStatus) -> Template {
        let mut template = self.clone();
        for item in template.items.iter_mut().filter(|item| item.is_live()) {
            item.status = status;
        }
        template
    }

    /// Returns how many nodes change hands if it is accepted as it is.
    pub fn n_nodes(&self) -> u64 {
        self.live().filter(|item| matches!(item.resource, Resource::Nodes(_))).map(|item| item.quantity.0).sum()
    }

    /// Returns how many nodes of each cluster change hands if it is accepted as it is.
    pub fn nodes_by_cluster(&self) -> BTreeMap<ClusterId, u64> {
        let mut nodes = BTreeMap::new();
        for item in self.live() {
            match item.resource {
                Resource::Nodes(cluster) => *nodes.entry(cluster).or_default() += item.quantity.0,
                Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => {}
                Resource::Licences(..) | Resource::Time => {}
            }
        }
        nodes
    }

    /// Returns whether these nodes are what was agreed: the same number, and all that were named.
    pub(crate) fn is_met_by(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let mut of_nodes = self.live().filter(|item| matches!(item.resource, Resource::Nodes(_)));
        nodes.len() as u64 == self.n_nodes() && of_nodes.all(|item| item.nodes.is_subset(nodes))
    }

    /// Returns the earliest of the agreed deadlines.
    pub(crate) fn deadline(&self) -> Time {
        self.live().filter_map(|item| item.terms.deadline).min().unwrap_or(Time::NEVER)
    }

    /// Returns whether both are about the same parties and resources, so that one can answer the other.
    pub(crate) fn has_subject_of(&self, other: &Template) -> bool {
        fn subject(item: &Item) -> (u16, &Resource, Quantity) {
            (item.set, &item.resource, item.held)
        }
        self.parties == other.parties
            && self.direction == other.direction
            && self.sets == other.sets
            && self.items.iter().map(subject).eq(other.items.iter().map(subject))
    }

    fn live(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.is_live())
    }

    fn sets(&self) -> impl Iterator<Item = (SetRule, impl Iterator<Item = &Item>)> {
        let members = |set_idx: usize| self.items.iter().filter(move |item| usize::from(item.set) == set_idx);
        self.sets.iter().enumerate().map(move |(set_idx, rule)| (*rule, members(set_idx)))
    }
}

/// Checks an item against the items before it.
fn validate_beside(idx: usize, item: &Item, before: &[Item], sets: &[SetRule]) -> Result<(), TemplateError> {
    for earlier in before.iter().filter(|earlier| earlier.resource == item.resource) {
        // Two changes of one resource would make its total ambiguous; of alternatives only one is made.
        let alternatives = earlier.set == item.set && sets[usize::from(item.set)] == SetRule::OneOf;
        if !alternatives {
            return Err(TemplateError::TwiceTheSame { item: idx });
        }
        if earlier.held != item.held {
            return Err(TemplateError::HeldDiffers { item: idx });
        }
    }
    Ok(())
}

fn set_status<'a>(rule: SetRule, members: impl Iterator<Item = &'a Item>) -> Status {
    let statuses: Vec<ItemStatus> = members.map(|item| item.status).collect();
    let some = |status: ItemStatus| statuses.contains(&status);
    let lives = some(ItemStatus::Proposed) || some(ItemStatus::Accepted) || some(ItemStatus::Ready);
    let refused = match rule {
        SetRule::All => some(ItemStatus::Refused),
        SetRule::AnyOf | SetRule::OneOf => !lives && !some(ItemStatus::Failed),
    };
    let failed = match rule {
        SetRule::All => some(ItemStatus::Failed),
        SetRule::AnyOf | SetRule::OneOf => !lives,
    };
    if refused {
        Status::Rejected
    } else if failed {
        Status::Failed
    } else if some(ItemStatus::Proposed) {
        Status::Open
    } else if some(ItemStatus::Accepted) {
        Status::Accepted
    } else {
        Status::Ready
    }
}

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
