//! The application-side schedulers of 001, appendix A, RULES A: rigid, moldable and complex-moldable.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use launcher_sdk::schedule::cem::{self, FastestFirst, NodeCounts};
use launcher_sdk::schedule::moldable::{self, Amdahl, Sizes, WallTime};
use launcher_sdk::schedule::{Proposal, Sight, rigid};
use rms_model::{ClusterId, Span, Time, View};
use serde::Deserialize;
use serde_json::Value;

use super::evolution::{Pairs, profile};

#[derive(Deserialize)]
struct Vector {
    kind: String,
    origin: i64,
    now: i64,
    clusters: Vec<Cluster>,
    app: Value,
    request: Option<Value>,
    unique_configurations: usize,
}

#[derive(Deserialize)]
struct Cluster {
    cid: u16,
    hosts: u32,
    cop: Pairs,
}

#[derive(Deserialize)]
struct Moldable {
    nmin: u32,
    nmax: Option<u32>,
    p: (u32, u32),
    d1: BTreeMap<u16, i64>,
}

#[derive(Deserialize)]
struct Rigid {
    hosts: u32,
    wall: BTreeMap<u16, i64>,
}

#[derive(Deserialize)]
struct Cem {
    work: i64,
    /// In tenths.
    speed: BTreeMap<u16, u32>,
    latency: i64,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct OnOne {
    cid: u16,
    hosts: u32,
    wall: i64,
    start: i64,
    completion: i64,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct OnMany {
    hosts: BTreeMap<u16, u32>,
    wall: i64,
    start: i64,
    completion: i64,
}

/// Counts the configurations that an application was asked about (001: unique configurations).
struct Counted<'a> {
    application: &'a Amdahl,
    asked: RefCell<BTreeSet<(ClusterId, u32)>>,
}

impl WallTime for Counted<'_> {
    fn wall(&self, cluster: ClusterId, n_hosts: u32) -> Option<Span> {
        let wall = self.application.wall(cluster, n_hosts)?;
        self.asked.borrow_mut().insert((cluster, n_hosts));
        Some(wall)
    }
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let view: View =
        vector.clusters.iter().map(|cluster| (ClusterId(cluster.cid), profile(vector.origin, &cluster.cop))).collect();
    let hosts: NodeCounts = vector.clusters.iter().map(|cluster| (ClusterId(cluster.cid), cluster.hosts)).collect();
    let sight = Sight::new(&hosts, &view);
    let now = Time::from_secs(vector.now);
    match vector.kind.as_str() {
        "moldable" => {
            let app: Moldable = parse(&vector.app)?;
            let application = Amdahl::new(app.p.0, app.p.1, spans(&app.d1)).map_err(|error| error.to_string())?;
            let counted = Counted { application: &application, asked: RefCell::default() };
            let sizes = Sizes { least: app.nmin, most: app.nmax.unwrap_or(u32::MAX) };
            let proposal = moldable::propose(&sight, now, sizes, &counted);
            same("configurations", counted.asked.borrow().len(), vector.unique_configurations)?;
            same("request", proposal.as_ref().map(on_one), parse_request(vector.request)?)
        }
        "rigid" => {
            let app: Rigid = parse(&vector.app)?;
            let proposal = rigid::propose(&sight, now, app.hosts, &spans(&app.wall));
            same("request", proposal.as_ref().map(on_one), parse_request(vector.request)?)
        }
        "cem" => {
            let app: Cem = parse(&vector.app)?;
            let speed_milli = app.speed.iter().map(|(cid, tenths)| (ClusterId(*cid), tenths * 100)).collect();
            let (work, latency) = (Span::from_secs(app.work), Span::from_secs(app.latency));
            let application = FastestFirst { work, speed_milli, latency };
            let mut asked = BTreeSet::new();
            let proposal = cem::propose(&sight, now, |available| {
                asked.insert(available.clone());
                application.select(available)
            });
            same("configurations", asked.len(), vector.unique_configurations)?;
            same("request", proposal.as_ref().map(on_many), parse_request(vector.request)?)
        }
        kind => Err(format!("the kind '{kind}' is not known")),
    }
}

fn on_one(proposal: &Proposal) -> OnOne {
    let (cluster, hosts) = proposal.request.nodes.iter().next().expect("a request names a cluster");
    let OnMany { wall, start, completion, .. } = on_many(proposal);
    OnOne { cid: cluster.0, hosts: *hosts, wall, start, completion }
}

fn on_many(proposal: &Proposal) -> OnMany {
    OnMany {
        hosts: proposal.request.nodes.iter().map(|(cluster, hosts)| (cluster.0, *hosts)).collect(),
        wall: proposal.request.wall.as_millis() / 1000,
        start: proposal.start.as_secs(),
        completion: proposal.completion().as_secs(),
    }
}

fn spans(secs: &BTreeMap<u16, i64>) -> BTreeMap<ClusterId, Span> {
    secs.iter().map(|(cid, secs)| (ClusterId(*cid), Span::from_secs(*secs))).collect()
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

fn parse_request<T: serde::de::DeserializeOwned>(request: Option<Value>) -> Result<Option<T>, String> {
    request.as_ref().map(parse).transpose()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("{what}: {actual:?} instead of {expected:?}")) }
}
