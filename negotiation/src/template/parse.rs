//! Converts drafts to templates, which are valid by construction, and templates to drafts.

use std::collections::BTreeSet;

use rms_model::{ClusterId, NodeId, Span, Time};

use super::{Item, ItemStatus, Template, TemplateError, Which};
use crate::draft::{
    ANY, CORES, DEVICES, Draft, DraftItem, LICENCES, LISTED, MEMORY, MULTIPLE_OF, NODES, POWER_OF_TWO, TIME,
};
use crate::subject::Resource;
use crate::terms::{Price, Quantity, Sizes, Terms};

impl TryFrom<Draft> for Template {
    type Error = TemplateError;

    fn try_from(draft: Draft) -> Result<Template, TemplateError> {
        let items = draft.items.into_iter().enumerate().map(|(idx, item)| parse(idx, item));
        Template::new(draft.parties, draft.direction, draft.sets, items.collect::<Result<Vec<Item>, _>>()?)
    }
}

fn parse(idx: usize, draft: DraftItem) -> Result<Item, TemplateError> {
    let cluster = ClusterId(draft.cluster);
    let resource = match (draft.kind, draft.name) {
        (NODES, None) => Resource::Nodes(cluster),
        (CORES, None) => Resource::Cores(cluster),
        (MEMORY, None) => Resource::Memory(cluster),
        (DEVICES, Some(name)) => Resource::Devices(cluster, name),
        (LICENCES, Some(name)) => Resource::Licences(cluster, name),
        (TIME, None) if draft.cluster == 0 => Resource::Time,
        (TIME, None) => return Err(TemplateError::ClusterOfTime { item: idx }),
        (NODES | CORES | MEMORY | DEVICES | LICENCES | TIME, _) => {
            return Err(TemplateError::NoName { item: Which::Item(idx) });
        }
        (kind, _) => return Err(TemplateError::UnknownKind { item: idx, kind }),
    };
    let mut nodes = BTreeSet::new();
    for node in draft.nodes.into_iter().map(NodeId) {
        if !nodes.insert(node) {
            return Err(TemplateError::NodeTwice { item: idx, node });
        }
    }
    let terms = Terms {
        least: Quantity(draft.least),
        most: Quantity(draft.most),
        sizes: parse_sizes(idx, draft.shape, draft.sizes)?,
        duration: draft.duration.map(Span::from_millis),
        price: Price(draft.price),
        deadline: draft.deadline.map(Time::from_millis),
        give_back_by: draft.give_back_by.map(Time::from_millis),
        priority: draft.priority,
    };
    let (quantity, held) = (Quantity(draft.quantity), Quantity(draft.held));
    let status = if draft.refused { ItemStatus::Refused } else { ItemStatus::Proposed };
    Ok(Item { set: draft.set, resource, quantity, held, nodes, terms, status })
}

fn sizes_to_numbers(sizes: &Sizes) -> (u16, Vec<u64>) {
    match sizes {
        Sizes::Any => (ANY, Vec::new()),
        Sizes::MultipleOf(unit) => (MULTIPLE_OF, vec![*unit]),
        Sizes::PowerOfTwo => (POWER_OF_TWO, Vec::new()),
        Sizes::Listed(sizes) => (LISTED, sizes.clone()),
    }
}

fn parse_sizes(idx: usize, shape: u16, numbers: Vec<u64>) -> Result<Sizes, TemplateError> {
    match (shape, numbers.as_slice()) {
        (ANY, []) => Ok(Sizes::Any),
        (MULTIPLE_OF, [unit]) => Ok(Sizes::MultipleOf(*unit)),
        (POWER_OF_TWO, []) => Ok(Sizes::PowerOfTwo),
        (LISTED, _) => Ok(Sizes::Listed(numbers)),
        (_, _) => Err(TemplateError::UnknownShape { item: idx, shape, n_numbers: numbers.len() }),
    }
}

impl From<Template> for Draft {
    fn from(template: Template) -> Draft {
        Draft {
            parties: template.parties(),
            direction: template.direction(),
            sets: template.rules().to_vec(),
            items: template.items().iter().map(write).collect(),
        }
    }
}

fn write(item: &Item) -> DraftItem {
    let (kind, cluster) = match &item.resource {
        Resource::Nodes(cluster) => (NODES, cluster.0),
        Resource::Cores(cluster) => (CORES, cluster.0),
        Resource::Memory(cluster) => (MEMORY, cluster.0),
        Resource::Devices(cluster, _) => (DEVICES, cluster.0),
        Resource::Licences(cluster, _) => (LICENCES, cluster.0),
        Resource::Time => (TIME, 0),
    };
    let (shape, sizes) = sizes_to_numbers(&item.terms.sizes);
    DraftItem {
        set: item.set,
        kind,
        cluster,
        name: item.resource.name().map(str::to_owned),
        quantity: item.quantity.0,
        held: item.held.0,
        nodes: item.nodes.iter().map(|node| node.0).collect(),
        refused: !item.is_live(),
        least: item.terms.least.0,
        most: item.terms.most.0,
        shape,
        sizes,
        duration: item.terms.duration.map(Span::as_millis),
        price: item.terms.price.0,
        deadline: item.terms.deadline.map(Time::as_millis),
        give_back_by: item.terms.give_back_by.map(Time::as_millis),
        priority: item.terms.priority,
    }
}
