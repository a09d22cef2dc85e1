//! The request of an application in a negotiation.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Direction, Item, ItemStatus, Price, Quantity, Resource, SetRule, Sizes, Terms};
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::{ClusterId, NodeId, Span, Time};

use super::error::NegotiatorError;

/// A request of an application, before its names are resolved against the holding.
///
/// ```
/// use launcher_sdk::negotiator::Want;
/// use rms_model::Span;
///
/// // Eight nodes more, or four, for two hours, at most at 1.5 an hour each; it may take a minute until they are free.
/// let want = Want::grow(8).at_least(4).for_span(Span::from_hours(2)).at_price(1500).within(Span::from_mins(1));
/// let more_time = Want::more_time(Span::from_mins(30));
/// # drop((want, more_time));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    direction: Direction,
    contents: Contents,
    valid_for: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    /// A set with one item, or one for each of several clusters.
    Simple(SetRule, Vec<Simple>),
    Template {
        sets: Vec<SetRule>,
        items: Vec<Item>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Simple {
    resource: WantedResource,
    quantity: u64,
    terms: Terms,
    /// By name.
    nodes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WantedResource {
    /// `None`: the cluster of the first node.
    Nodes(Option<String>),
    /// The same for cores, and for the variants below.
    Cores(Option<String>),
    Memory(Option<String>),
    Devices(Option<String>, String),
    Licences(Option<String>, String),
    Time,
}

impl WantedResource {
    /// Returns the cluster of the resource.
    fn cluster_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            WantedResource::Nodes(cluster) | WantedResource::Cores(cluster) | WantedResource::Memory(cluster) => {
                Some(cluster)
            }
            WantedResource::Devices(cluster, _) | WantedResource::Licences(cluster, _) => Some(cluster),
            WantedResource::Time => None,
        }
    }
}

impl Want {
    /// Requests that many more nodes. Fewer are not accepted, unless [`Want::at_least`] says so.
    pub fn grow(n_nodes: u64) -> Want {
        Want::simple(Direction::Grow, WantedResource::Nodes(None), n_nodes)
    }

    /// Gives that many nodes back: those that [`Want::nodes`] names, or those that [`Negotiation::release`] will name.
    ///
    /// [`Negotiation::release`]: super::Negotiation::release
    pub fn shrink(n_nodes: u64) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Nodes(None), n_nodes)
    }

    /// Requests that many more nodes on each of several clusters: all of them or none, any of them, or just one of
    /// these alternatives. Further terms apply to each cluster.
    ///
    /// ```
    /// use launcher_sdk::negotiator::{SetRule, Want};
    ///
    /// // Two of `a` and four of `b`, or nothing.
    /// let want = Want::grow_on(SetRule::All, [("a", 2), ("b", 4)]);
    /// # drop(want);
    /// ```
    pub fn grow_on<S: Into<String>>(rule: SetRule, nodes: impl IntoIterator<Item = (S, u64)>) -> Want {
        Want::of_clusters(Direction::Grow, rule, nodes)
    }

    /// Gives that many nodes back on each of several clusters.
    pub fn shrink_on<S: Into<String>>(rule: SetRule, nodes: impl IntoIterator<Item = (S, u64)>) -> Want {
        Want::of_clusters(Direction::Shrink, rule, nodes)
    }

    fn of_clusters<S: Into<String>>(
        direction: Direction,
        rule: SetRule,
        nodes: impl IntoIterator<Item = (S, u64)>,
    ) -> Want {
        let on = |(cluster, quantity): (S, u64)| Simple {
            resource: WantedResource::Nodes(Some(cluster.into())),
            quantity,
            terms: Terms::exactly(Quantity(quantity)),
            nodes: Vec::new(),
        };
        let contents = Contents::Simple(rule, nodes.into_iter().map(on).collect());
        Want { direction, contents, valid_for: VALID_FOR }
    }

    /// Requests that many more cores on each held node, or on those that [`Want::nodes`] names. When the negotiation is
    /// ready, all threads of the job's processes may run on the new cores.
    pub fn more_cores(n_cores: u64) -> Want {
        Want::simple(Direction::Grow, WantedResource::Cores(None), n_cores)
    }

    /// Gives that many cores of each node back, or of each node that [`Want::nodes`] names. Threads are moved to the
    /// remaining cores as soon as the server agrees.
    pub fn fewer_cores(n_cores: u64) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Cores(None), n_cores)
    }

    /// Requests that many more MiB of memory on each held node, or on those that [`Want::nodes`] names. Only where jobs
    /// share nodes, and if the job was submitted with an amount of memory.
    pub fn more_memory(mebibytes: u64) -> Want {
        Want::simple(Direction::Grow, WantedResource::Memory(None), mebibytes)
    }

    /// Gives that many MiB of each node back. This fails if the processes use more than would be left.
    pub fn less_memory(mebibytes: u64) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Memory(None), mebibytes)
    }

    /// Requests that many more devices of a kind on each node: `gpu`, or with a type, `gpu:a100`. Only where jobs share
    /// nodes.
    ///
    /// ```
    /// use launcher_sdk::negotiator::Want;
    ///
    /// // Two GPUs of each node, or one, and never mind if it takes ten minutes.
    /// let want = Want::more_devices("gpu", 2).at_least(1).within(rms_model::Span::from_mins(10));
    /// # drop(want);
    /// ```
    pub fn more_devices(name: &str, count: u64) -> Want {
        Want::simple(Direction::Grow, WantedResource::Devices(None, name.to_owned()), count)
    }

    /// Gives that many devices of a kind back on each node, those with the highest numbers.
    pub fn fewer_devices(name: &str, count: u64) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Devices(None, name.to_owned()), count)
    }

    /// Requests that many more licences of the cluster.
    pub fn more_licences(name: &str, count: u64) -> Want {
        Want::simple(Direction::Grow, WantedResource::Licences(None, name.to_owned()), count)
    }

    /// Gives that many licences of the cluster back.
    pub fn fewer_licences(name: &str, count: u64) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Licences(None, name.to_owned()), count)
    }

    /// Requests a longer wall time than the one submitted, by `span`.
    pub fn more_time(span: Span) -> Want {
        Want::simple(Direction::Grow, WantedResource::Time, span.as_millis().unsigned_abs())
    }

    /// Offers to end earlier, by `span`.
    pub fn less_time(span: Span) -> Want {
        Want::simple(Direction::Shrink, WantedResource::Time, span.as_millis().unsigned_abs())
    }

    /// Requests several resources at once, as a [template](negotiation::Template) has them: all or nothing, any of
    /// them, or alternatives. Each item says what is held now ([`Item::held`]); see [`Negotiator::holding`].
    ///
    /// [`Negotiator::holding`]: super::Negotiator::holding
    pub fn template(direction: Direction, sets: Vec<SetRule>, items: Vec<Item>) -> Want {
        Want { direction, contents: Contents::Template { sets, items }, valid_for: VALID_FOR }
    }

    fn simple(direction: Direction, resource: WantedResource, quantity: u64) -> Want {
        let terms = Terms::exactly(Quantity(quantity));
        let simple = Simple { resource, quantity, terms, nodes: Vec::new() };
        Want { direction, contents: Contents::Simple(SetRule::All, vec![simple]), valid_for: VALID_FOR }
    }

    /// Sets the least useful quantity, in the unit of the request: the server may counter with any quantity from there
    /// on.
    #[must_use]
    pub fn at_least(self, quantity: u64) -> Want {
        self.with_terms(|terms| terms.least = Quantity(quantity))
    }

    /// Restricts the total held after the change.
    #[must_use]
    pub fn to_sizes(self, sizes: Sizes) -> Want {
        self.with_terms(|terms| terms.sizes.clone_from(&sizes))
    }

    /// Sets the price per node and hour, in thousandths: the most that is paid, or the least that is taken.
    #[must_use]
    pub fn at_price(self, thousandths: u64) -> Want {
        self.with_terms(|terms| terms.price = Price(thousandths))
    }

    /// Limits the time for which the resources are held once they are ready; otherwise until the application ends.
    #[must_use]
    pub fn for_span(self, span: Span) -> Want {
        self.with_terms(|terms| terms.duration = Some(span))
    }

    /// Sets a deadline, by the server's clock: the change must be ready by then, or is not made.
    #[must_use]
    pub fn by(self, deadline: Time) -> Want {
        self.with_terms(|terms| terms.deadline = Some(deadline))
    }

    /// Sets the priority among the application's own negotiations; higher goes first.
    #[must_use]
    pub fn with_priority(self, priority: i32) -> Want {
        self.with_terms(|terms| terms.priority = priority)
    }

    /// Chooses the cluster of the nodes (the application need not hold any there) or of the cores; the default is the
    /// cluster of the first node.
    #[must_use]
    pub fn on(mut self, cluster: &str) -> Want {
        for simple in self.simple_mut() {
            if let Some(wanted) = simple.resource.cluster_mut() {
                *wanted = Some(cluster.to_owned());
            }
        }
        self
    }

    /// Chooses exactly these nodes, by name: the ones to give back, or those on which the application wants more or
    /// less of something.
    #[must_use]
    pub fn nodes<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Want {
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.simple_mut().iter_mut().for_each(|simple| simple.nodes.clone_from(&names));
        self
    }

    /// Sets how long to wait for an answer, and thereby how long nodes may take to become free. The default is one
    /// minute; more than an hour counts as an hour.
    #[must_use]
    pub fn within(self, valid_for: Span) -> Want {
        Want { valid_for, ..self }
    }

    fn with_terms(mut self, change: impl Fn(&mut Terms)) -> Want {
        self.simple_mut().iter_mut().for_each(|simple| change(&mut simple.terms));
        self
    }

    fn simple_mut(&mut self) -> &mut [Simple] {
        match &mut self.contents {
            Contents::Simple(_, simple) => simple,
            // In a template, the items have these terms.
            Contents::Template { .. } => &mut [],
        }
    }

    /// Resolves names of nodes and clusters to their numbers.
    pub(super) fn resolve(
        self,
        now: Time,
        holding: &Holding,
        clusters: &BTreeMap<ClusterId, String>,
    ) -> Result<Resolved, NegotiatorError> {
        let (sets, items) = match self.contents {
            Contents::Template { sets, items } => (sets, items),
            Contents::Simple(rule, simple) => {
                let items = simple.into_iter().map(|simple| simple.item(now, holding, clusters));
                (vec![rule], items.collect::<Result<Vec<Item>, _>>()?)
            }
        };
        Ok(Resolved { direction: self.direction, sets, items, valid_for: self.valid_for })
    }
}

/// A request in the form that opens a dialogue.
#[derive(Debug)]
pub(super) struct Resolved {
    pub direction: Direction,
    pub sets: Vec<SetRule>,
    pub items: Vec<Item>,
    pub valid_for: Span,
}

impl Simple {
    fn item(
        self,
        now: Time,
        holding: &Holding,
        clusters: &BTreeMap<ClusterId, String>,
    ) -> Result<Item, NegotiatorError> {
        let Simple { resource, quantity, terms, nodes } = self;
        let nodes = nodes.iter().map(|name| node(holding, name)).collect::<Result<BTreeSet<NodeId>, _>>()?;
        let place = |name: Option<String>| match name {
            Some(name) => cluster(clusters, &name).ok_or_else(|| {
                let known = clusters.values().cloned().collect();
                NegotiatorError::NoSuchCluster { name, known }
            }),
            None => default_cluster(holding, &nodes),
        };
        // For resources inside nodes, the node that holds the least counts.
        let least = |cluster: ClusterId, amount: &dyn Fn(&HeldNode) -> u64| {
            let is_meant = |node: &&HeldNode| match nodes.is_empty() {
                true => node.cluster == cluster && !node.is_departing,
                false => nodes.contains(&node.node),
            };
            holding.nodes.iter().filter(is_meant).map(amount).min().unwrap_or(0)
        };
        let (resource, held) = match resource {
            WantedResource::Time => (Resource::Time, holding.until.since(now).as_millis().unsigned_abs()),
            WantedResource::Nodes(name) => {
                let cluster = place(name)?;
                let n_held = holding.nodes.iter().filter(|node| node.cluster == cluster).count();
                (Resource::Nodes(cluster), n_held as u64)
            }
            WantedResource::Cores(name) => {
                let cluster = place(name)?;
                (Resource::Cores(cluster), least(cluster, &|node| node.n_cores().into()))
            }
            WantedResource::Memory(name) => {
                let cluster = place(name)?;
                (Resource::Memory(cluster), least(cluster, &|node| node.memory.0))
            }
            WantedResource::Devices(on, name) => {
                let cluster = place(on)?;
                let serving = |node: &HeldNode| node.devices.serving(&name).map(|(_, count)| u64::from(count)).sum();
                let held = least(cluster, &serving);
                (Resource::Devices(cluster, name), held)
            }
            WantedResource::Licences(on, name) => {
                let cluster = place(on)?;
                let held = holding.licences.get(&cluster).map_or(0, |licences| licences.count(&name));
                (Resource::Licences(cluster, name), held.into())
            }
        };
        let quantity = Quantity(quantity);
        Ok(Item { set: 0, resource, quantity, held: Quantity(held), nodes, terms, status: ItemStatus::Proposed })
    }
}

/// Returns the number of a cluster.
pub(super) fn cluster(clusters: &BTreeMap<ClusterId, String>, name: &str) -> Option<ClusterId> {
    clusters.iter().find(|(_, known)| *known == name).map(|(cluster, _)| *cluster)
}

/// Returns the cluster of a request that names none: that of the named nodes, or of the first node.
fn default_cluster(holding: &Holding, named: &BTreeSet<NodeId>) -> Result<ClusterId, NegotiatorError> {
    let mut meant = holding.nodes.iter().filter(|node| named.is_empty() || named.contains(&node.node));
    meant.next().map(|node| node.cluster).ok_or_else(|| NegotiatorError::NoSuchNode(String::new()))
}

/// Returns the number of a held node.
pub(super) fn node(holding: &Holding, name: &str) -> Result<NodeId, NegotiatorError> {
    let found = holding.nodes.iter().find(|node| node.name == name).map(|node| node.node);
    found.ok_or_else(|| NegotiatorError::NoSuchNode(name.to_owned()))
}

const VALID_FOR: Span = Span::from_mins(1);

#[cfg(test)]
mod tests {
    use rms_model::Mebibytes;

    use super::*;

    fn holding(cpus: &[u32]) -> Holding {
        let node = |(idx, cpus): (usize, &u32)| HeldNode {
            node: NodeId(idx as u32 + 1),
            name: format!("n{}", idx + 1),
            cluster: ClusterId(0),
            cluster_name: "a".to_owned(),
            address: String::new(),
            cpus: *cpus,
            cores: 0,
            memory: Mebibytes(u64::from(*cpus) * 100),
            devices: "gpu:a100:2".parse().expect("devices"),
            is_departing: false,
            is_coming: false,
        };
        Holding {
            generation: 1,
            nodes: cpus.iter().enumerate().map(node).collect(),
            until: Time::NEVER,
            stages: None,
            licences: [(ClusterId(0), "matlab:3".parse().expect("licences"))].into(),
        }
    }

    #[test]
    fn what_is_inside_nodes_is_counted_where_there_is_the_least() {
        let check_of = |resource: Resource, want: Want, held: u64, named: &[u32]| {
            let resolved =
                want.resolve(Time::EPOCH, &holding(&[8, 2, 4]), &BTreeMap::new()).expect("these nodes are held");
            let item = &resolved.items[0];
            assert_eq!((&item.resource, item.held), (&resource, Quantity(held)));
            assert_eq!(item.nodes, named.iter().copied().map(NodeId).collect());
        };
        let check = |want, held, named: &[u32]| check_of(Resource::Cores(ClusterId(0)), want, held, named);
        check(Want::more_cores(2), 2, &[]);
        check(Want::fewer_cores(3).nodes(["n1", "n3"]), 4, &[1, 3]);
        check(Want::fewer_cores(1).nodes(["n1"]), 8, &[1]);
        check_of(Resource::Memory(ClusterId(0)), Want::less_memory(100), 200, &[]);
        let gpus = |name: &str| Resource::Devices(ClusterId(0), name.to_owned());
        check_of(gpus("gpu"), Want::more_devices("gpu", 1).nodes(["n2"]), 2, &[2]);
        check_of(gpus("gpu:v100"), Want::more_devices("gpu:v100", 1), 0, &[]);
        let matlab = Resource::Licences(ClusterId(0), "matlab".to_owned());
        check_of(matlab, Want::fewer_licences("matlab", 2), 3, &[]);
        assert!(Want::more_cores(1).nodes(["n9"]).resolve(Time::EPOCH, &holding(&[8]), &BTreeMap::new()).is_err());
    }
}
