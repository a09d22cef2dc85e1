//! Ready-made launchers: the schedulers of 001, appendix A, with a function that says what to do with the nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rms_api::subscription::{ClusterInfo, ClusterLink};
use rms_model::{ClusterId, Slice, Span};
use thiserror::Error;

use super::drive::{Action, Choice, Launcher, Start};
use super::seen::Seen;
use crate::schedule::cem::{self as several, NodeCounts, Selection};
use crate::schedule::linked::{Link, Linked, Turns};
use crate::schedule::moldable::{
    self as sizes, Amdahl, Downey, DowneyError, FractionError, Shape, Sizes, Table, WallTime,
};
use crate::schedule::{self, Proposal};

/// A launcher made of two functions: one computes the request and may take long, the other decides how to use the
/// nodes.
#[derive(Clone, Debug)]
pub struct Planned<P, S> {
    /// Locked during a computation: the next computation waits until a superseded one is done.
    plan: Arc<Mutex<P>>,
    start: S,
}

impl<P, S> Launcher for Planned<P, S>
where
    P: FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static,
    S: FnMut(&Start) -> Action,
{
    fn choose(&mut self, seen: &Seen<'_>) -> Choice {
        let (plan, kept) = (Arc::clone(&self.plan), seen.keep());
        Choice::compute(move || {
            let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
            (*plan)(&kept.seen())
        })
    }

    fn on_start(&mut self, start: &Start) -> Action {
        (self.start)(start)
    }
}

/// Creates a launcher with a planning function of your own. Like the functions of [`schedule`], it also returns when
/// the request would start.
pub fn planned<P, S>(plan: P, start: S) -> Planned<P, S>
where
    P: FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static,
    S: FnMut(&Start) -> Action,
{
    Planned { plan: Arc::new(Mutex::new(plan)), start }
}

/// Launches an application on `n_nodes` nodes of one cluster: the cluster on which it completes first (001, §5.2.2).
pub fn rigid<S: FnMut(&Start) -> Action>(
    n_nodes: u32,
    walls: Walls,
    start: S,
) -> Planned<impl FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static, S> {
    let plan = move |seen: &Seen<'_>| {
        let walls = walls.on(seen);
        schedule::rigid::propose(&seen.sight(), seen.now(), n_nodes, &walls)
    };
    planned(plan, start)
}

/// Launches an application that can run on any number of nodes of one cluster: with the number and on the cluster with
/// which it completes first (001, §5.2.1 and Algorithm 1).
pub fn moldable<S: FnMut(&Start) -> Action>(
    sizes: Sizes,
    model: Model,
    start: S,
) -> Planned<impl FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static, S> {
    planned(move |seen: &Seen<'_>| model.propose(seen, sizes), start)
}

/// Launches an application that can run on any number of cores of one cluster: on whole nodes or with one of these slices,
/// whichever completes first. `sizes` and the model count cores; the subscription's filter must have the same slices, in
/// the same order.
pub fn moldable_cores<S: FnMut(&Start) -> Action>(
    sizes: Sizes,
    model: Model,
    slices: Vec<Slice>,
    start: S,
) -> Planned<impl FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static, S> {
    planned(move |seen: &Seen<'_>| model.propose_cores(seen, sizes, &slices), start)
}

/// Launches an application that runs on several clusters at once and selects its nodes itself (001, §5.2.3 and
/// Algorithm 2). `select` (001: f′) gets the number of available nodes of each cluster. It returns how many nodes it
/// takes and how long the application runs on them; see [`schedule::tiers`] for one that considers latency.
pub fn cem<F, S>(mut select: F, start: S) -> Planned<impl FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static, S>
where
    F: FnMut(&Seen<'_>, &NodeCounts) -> Option<Selection> + Send + 'static,
    S: FnMut(&Start) -> Action,
{
    let plan = move |seen: &Seen<'_>| {
        several::propose(&seen.sight(), seen.now(), |available: &NodeCounts| select(seen, available))
    };
    planned(plan, start)
}

/// Launches an iterative application that runs on several clusters at once and considers the network between them:
/// speeds are those of the clusters' slowest nodes, links are those that the admin has entered (001: CINFO, ICINFO).
/// Clusters without a link between them are not used together.
pub fn iterative<S: FnMut(&Start) -> Action>(
    turns: Turns,
    start: S,
) -> Planned<impl FnMut(&Seen<'_>) -> Option<Proposal> + Send + 'static, S> {
    cem(move |seen: &Seen<'_>, available: &NodeCounts| linked(seen, turns).select(available), start)
}

/// Returns the visible clusters and the links between them, as the model of an iterative application.
pub fn linked(seen: &Seen<'_>, turns: Turns) -> Linked {
    // An older server does not send the speed.
    let speed = |info: &ClusterInfo| (info.cluster, if info.speed_milli > 0 { info.speed_milli } else { 1000 });
    let link = |link: &ClusterLink| {
        (link.between, Link { latency_micros: link.latency_us, bandwidth_mbit: link.bandwidth_mbit })
    };
    let (speed_milli, links) = (seen.clusters().iter().map(speed).collect(), seen.links().iter().map(link).collect());
    Linked { turns, speed_milli, links }
}

/// A wall time for each cluster that an application can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walls {
    /// The same on every cluster.
    Everywhere(Span),
    /// By the cluster's name; others are not used.
    By(BTreeMap<String, Span>),
}

fn check_wall(wall: Span) -> Result<(), ModelError> {
    if (Span::from_millis(1)..=Span::MAX_WALL).contains(&wall) { Ok(()) } else { Err(ModelError::Wall(wall)) }
}

impl Walls {
    fn check(&self) -> Result<(), ModelError> {
        match self {
            Walls::Everywhere(wall) => check_wall(*wall),
            Walls::By(walls) => walls.values().try_for_each(|wall| check_wall(*wall)),
        }
    }

    /// Returns the wall times by the ids of the visible clusters.
    pub fn on(&self, seen: &Seen<'_>) -> BTreeMap<ClusterId, Span> {
        let clusters = seen.clusters().iter();
        let wall = |name: &str| match self {
            Walls::Everywhere(wall) => Some(*wall),
            Walls::By(walls) => walls.get(name).copied(),
        };
        clusters.filter_map(|info| Some((info.cluster, wall(&info.name)?))).collect()
    }
}

/// The wall time of a moldable application as a function of the number of nodes.
#[derive(Clone, Debug)]
pub enum Model {
    /// See [`Amdahl`]: the parallel part as a fraction, and the wall time on one node.
    Amdahl {
        /// At most `denominator`.
        numerator: u32,
        /// Not 0.
        denominator: u32,
        /// The wall time on one node.
        on_one: Walls,
    },
    /// See [`Downey`].
    Downey {
        /// The average parallelism A: at least 1.
        average: f64,
        /// The variation of the parallelism: at least 0.
        sigma: f64,
        /// The wall time on one node.
        on_one: Walls,
    },
    /// Measured wall times by number of nodes, the same on every cluster.
    Table(BTreeMap<u32, Span>),
}

/// Why numbers do not describe a model of an application.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ModelError {
    /// A part must be from 0 to 1.
    #[error("{0} is no part: write a number from 0 to 1, like 0.95")]
    Part(f64),
    /// The fraction is more than 1.
    #[error(transparent)]
    Fraction(#[from] FractionError),
    /// Downey's parameters.
    #[error(transparent)]
    Downey(#[from] DowneyError),
    /// A table without sizes, or with a size of 0.
    #[error("a table needs at least one size, and no size of 0 nodes")]
    Table,
    /// A wall time that is not positive, or longer than any job may ask for.
    #[error("a wall time of {0} is not possible: from 1ms to {max}", max = Span::MAX_WALL)]
    Wall(Span),
}

/// Fractions are rounded to millionths.
const PARTS: u32 = 1_000_000;

impl Model {
    /// Creates a model by Amdahl's law: `parallel` of the work, from 0 to 1 and rounded to millionths, is divided among the
    /// nodes.
    ///
    /// # Errors
    /// `parallel` is not between 0 and 1, or a wall time is not possible.
    pub fn amdahl(parallel: f64, on_one: Walls) -> Result<Model, ModelError> {
        if !(0.0..=1.0).contains(&parallel) {
            return Err(ModelError::Part(parallel));
        }
        on_one.check()?;
        let numerator = (parallel * f64::from(PARTS)).round() as u32;
        Ok(Model::Amdahl { numerator, denominator: PARTS, on_one })
    }

    /// Creates Downey's model of an average parallelism and its variation.
    ///
    /// # Errors
    /// The average is below 1, sigma is negative, or a wall time is not possible.
    pub fn downey(average: f64, sigma: f64, on_one: Walls) -> Result<Model, ModelError> {
        Downey::new(average, sigma, BTreeMap::new())?;
        on_one.check()?;
        Ok(Model::Downey { average, sigma, on_one })
    }

    /// Creates a model of measured wall times by number of nodes.
    ///
    /// # Errors
    /// There is no size, a size of 0 nodes, or a wall time that is not possible.
    pub fn table(walls: BTreeMap<u32, Span>) -> Result<Model, ModelError> {
        if walls.is_empty() || walls.contains_key(&0) {
            return Err(ModelError::Table);
        }
        walls.values().try_for_each(|wall| check_wall(*wall))?;
        Ok(Model::Table(walls))
    }

    /// Returns the size and the cluster that complete first; `None` if no cluster has enough nodes.
    pub fn propose(&self, seen: &Seen<'_>, sizes: Sizes) -> Option<Proposal> {
        let (sight, now) = (seen.sight(), seen.now());
        match self {
            Model::Amdahl { .. } => sizes::propose(&sight, now, sizes, &self.as_amdahl(seen)?),
            Model::Downey { .. } => sizes::propose(&sight, now, sizes, &self.as_downey(seen)?),
            Model::Table(walls) => {
                let usable: BTreeMap<u32, Span> =
                    walls.range(sizes.least..=sizes.most).map(|(n, w)| (*n, *w)).collect();
                let walls = seen.clusters().iter().map(|info| (info.cluster, usable.clone())).collect();
                Table { walls }.propose(&sight, now)
            }
        }
    }

    /// Returns the proposal that completes first, with whole nodes or one of these slices; the model and `sizes` count
    /// cores. Between two sizes of a table, the smaller size counts.
    pub fn propose_cores(&self, seen: &Seen<'_>, sizes: Sizes, slices: &[Slice]) -> Option<Proposal> {
        let cores_of_node = seen.clusters().iter().map(|info| (info.cluster, info.cores.max(1))).collect();
        let whole = Shape { slice: Slice::default(), sight: seen.sight(), cores: cores_of_node };
        let of_slice = |(place, slice): (usize, &Slice)| {
            let shared = seen.clusters().iter().filter(|info| info.shared);
            let cores = shared.map(|info| (info.cluster, slice.cores)).collect();
            Shape { slice: slice.clone(), sight: seen.sight_of_slice(place), cores }
        };
        let mut shapes: Vec<Shape<'_>> = slices.iter().enumerate().map(of_slice).collect();
        shapes.push(whole);
        match self {
            Model::Amdahl { .. } => sizes::propose_cores(&shapes, seen.now(), sizes, &self.as_amdahl(seen)?),
            Model::Downey { .. } => sizes::propose_cores(&shapes, seen.now(), sizes, &self.as_downey(seen)?),
            Model::Table(walls) => sizes::propose_cores(&shapes, seen.now(), sizes, &Steps(walls)),
        }
    }

    fn as_amdahl(&self, seen: &Seen<'_>) -> Option<Amdahl> {
        let Model::Amdahl { numerator, denominator, on_one } = self else { return None };
        Amdahl::new(*numerator, *denominator, on_one.on(seen)).ok()
    }

    fn as_downey(&self, seen: &Seen<'_>) -> Option<Downey> {
        let Model::Downey { average, sigma, on_one } = self else { return None };
        Downey::new(*average, *sigma, on_one.on(seen)).ok()
    }
}

/// Measured wall times; between two sizes, the smaller one counts.
struct Steps<'a>(&'a BTreeMap<u32, Span>);

impl WallTime for Steps<'_> {
    fn wall(&self, _cluster: ClusterId, n_cores: u32) -> Option<Span> {
        self.0.range(..=n_cores).map(|(_, wall)| *wall).min()
    }
}

#[cfg(test)]
mod tests {
    use rms_api::subscription::{ClusterInfo, ClusterInfos, LauncherView, SliceView};
    use rms_model::{Mebibytes, Profile, Request, Time};

    use super::*;

    /// Returns a cluster of 8 nodes of 4 cores.
    fn of_8(name: &str, cluster: ClusterId) -> ClusterInfo {
        ClusterInfo {
            cluster,
            name: name.to_owned(),
            nodes: 8,
            cpus: 4,
            memory: Mebibytes(1),
            features: Default::default(),
            sockets: 1,
            cores: 4,
            speed_milli: 1000,
            scratch: Mebibytes(0),
            total_memory: Mebibytes(8),
            devices: Default::default(),
            shared: false,
        }
    }

    /// Checks the choice between clusters a and b of 8 nodes each, of which a is entirely busy for `busy` seconds.
    fn check(launcher: &mut impl Launcher, busy: i64, expected: Option<(&str, u32, i64)>) {
        let now = Time::from_secs(1000);
        let ids = [("a", ClusterId(0)), ("b", ClusterId(1))];
        let info = |(name, cluster): (&str, ClusterId)| {
            let speed_milli = if name == "a" { 1000 } else { 500 };
            ClusterInfo { speed_milli, ..of_8(name, cluster) }
        };
        let link = ClusterLink { between: (ClusterId(0), ClusterId(1)), latency_us: 100_000, bandwidth_mbit: 0 };
        let infos = ClusterInfos { clusters: ids.map(info).to_vec(), links: vec![link] };
        let occupied = Profile::from_pairs(now, [(Span::from_secs(busy), 8)]);
        let view = LauncherView {
            version: 1,
            at: now,
            capacity: BTreeMap::from([(ClusterId(0), 8), (ClusterId(1), 8)]),
            occupied: BTreeMap::from([(ClusterId(0), Arc::new(occupied))]),
            slices: BTreeMap::new(),
        };
        let request = match launcher.choose(&Seen::new(now, &view, &infos)) {
            Choice::Now(request) => request,
            Choice::Compute(computing) => computing(),
        };
        let expected = expected.map(|(name, n_nodes, secs)| {
            let is_one = |(known, _): &&(&str, ClusterId)| *known == name || name == "both";
            let nodes = ids.iter().filter(is_one).map(|(_, cluster)| (*cluster, n_nodes)).collect();
            Request { nodes, wall: Span::from_secs(secs) }
        });
        assert_eq!(request.map(|wanted| wanted.request), expected);
    }

    /// Cluster a has 8 nodes of 4 cores, all of which are busy for 100 s, and room for 2 cores on 3 of them.
    #[test]
    fn a_moldable_application_takes_slices_where_they_complete_first() {
        let (now, a) = (Time::from_secs(1000), ClusterId(0));
        let busy = |secs, nodes| Arc::new(Profile::from_pairs(now, [(Span::from_secs(secs), nodes)]));
        let slice =
            |cores, nodes| (cores, SliceView { capacity: [(a, 8)].into(), occupied: [(a, busy(100, nodes))].into() });
        let view = LauncherView {
            version: 1,
            at: now,
            capacity: [(a, 8)].into(),
            occupied: [(a, busy(100, 8))].into(),
            slices: [slice(1, 5), slice(2, 8)].into(),
        };
        let infos = |shared| ClusterInfos { clusters: vec![ClusterInfo { shared, ..of_8("a", a) }], links: Vec::new() };
        let slices = [2, 3].map(|cores| Slice { cores, ..Slice::default() });
        let on_one = |secs| Model::amdahl(1.0, Walls::Everywhere(Span::from_secs(secs))).expect("a part");
        let propose = |secs, most, shared| {
            let infos = infos(shared);
            let seen = Seen::new(now, &view, &infos);
            let proposal = on_one(secs).propose_cores(&seen, Sizes { least: 1, most }, &slices).expect("it fits");
            let wait = proposal.start.since(now).as_millis() / 1000;
            (wait, proposal.request.n_nodes(), proposal.slice.cores, proposal.request.wall)
        };
        assert_eq!(propose(60, 32, true), (0, 3, 2, Span::from_secs(10)), "6 cores at once");
        assert_eq!(propose(60, 4, true), (0, 2, 2, Span::from_secs(15)), "no more than it can use");
        assert_eq!(propose(6000, 4, true), (0, 2, 2, Span::from_secs(1500)), "as soon as that many cores are free");
        assert_eq!(propose(6000, 32, true), (100, 8, 0, Span::from_secs(188)), "all cores, later, complete first");
        assert_eq!(propose(60, 32, false), (100, 8, 0, Span::from_secs(2)), "there nodes are given away whole");
    }

    fn idle(_start: &Start) -> Action {
        Action::GiveUp { code: 0 }
    }

    #[test]
    fn a_rigid_application_goes_where_it_completes_first() {
        let walls =
            Walls::By(BTreeMap::from([("a".to_owned(), Span::from_secs(10)), ("b".to_owned(), Span::from_secs(60))]));
        let mut launcher = rigid(4, walls, idle);
        check(&mut launcher, 0, Some(("a", 4, 10)));
        check(&mut launcher, 49, Some(("a", 4, 10)));
        check(&mut launcher, 51, Some(("b", 4, 60)));
        check(&mut rigid(9, Walls::Everywhere(Span::from_secs(1)), idle), 0, None);
        check(&mut rigid(1, Walls::By(BTreeMap::new()), idle), 0, None);
    }

    #[test]
    fn a_moldable_application_takes_the_size_that_completes_first() {
        let only = |name: &str| Walls::By(BTreeMap::from([(name.to_owned(), Span::from_secs(100))]));
        let sizes = Sizes { least: 1, most: 4 };
        let model = Model::amdahl(1.0, only("a")).expect("a part");
        check(&mut moldable(sizes, model, idle), 7, Some(("a", 4, 25)));
        let model = Model::downey(2.0, 0.0, only("b")).expect("a model");
        check(&mut moldable(sizes, model, idle), 7, Some(("b", 4, 50)));
        let table = Model::table(BTreeMap::from([(2, Span::from_secs(9)), (8, Span::from_secs(1))])).expect("a table");
        check(&mut moldable(sizes, table, idle), 7, Some(("b", 2, 9)));
    }

    #[test]
    fn a_selection_of_several_clusters_is_the_applications_own() {
        let select = |seen: &Seen<'_>, available: &NodeCounts| {
            assert_eq!(seen.clusters().len(), 2);
            let wall = Span::from_secs(80 / i64::from(available.values().sum::<u32>().max(1)));
            Some(Selection { nodes: available.clone(), wall })
        };
        let mut launcher = cem(select, idle);
        check(&mut launcher, 100, Some(("b", 8, 10)));
    }

    #[test]
    fn an_iterative_application_goes_as_far_as_its_links_are_worth() {
        let turns = |messages| Turns { iterations: 100, work_micros: 2_400_000, messages, kilobytes: 0 };
        // An iteration takes 0.3 s on the fast cluster and 0.2 s on both; a message takes 0.1 s.
        check(&mut iterative(turns(0), idle), 0, Some(("both", 8, 20)));
        check(&mut iterative(turns(2), idle), 0, Some(("a", 8, 30)));
        check(&mut iterative(turns(2), idle), 50, Some(("b", 8, 60)));
    }

    #[test]
    fn numbers_that_are_no_model_say_what_to_write() {
        let walls = || Walls::Everywhere(Span::from_secs(1));
        assert_eq!(
            Model::amdahl(1.5, walls()).unwrap_err().to_string(),
            "1.5 is no part: write a number from 0 to 1, like 0.95"
        );
        assert!(Model::amdahl(f64::NAN, walls()).is_err() && Model::downey(0.5, 1.0, walls()).is_err());
        for wrong in [Span::ZERO, Span::from_secs(-1), Span::from_millis(i64::MAX)] {
            let refused = Model::amdahl(0.9, Walls::Everywhere(wrong)).expect_err("no job has it");
            assert_eq!(refused, ModelError::Wall(wrong));
            assert_eq!(Model::table([(1, wrong)].into()).expect_err("nor here"), refused);
        }
        assert!(Model::table(BTreeMap::new()).is_err());
    }
}
