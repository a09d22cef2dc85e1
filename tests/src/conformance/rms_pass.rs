//! One pass of 001, Fig. 5, with RULES R1–R9: the system of a vector is built from facts, one tick runs the
//! real pass, and everything the vector tells is compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::answer::JobState;
use rms_api::subscription::{ClusterChange, Filter};
use rms_core::plan::views::Streams;
use rms_core::plan::{self, Scope, notify};
use rms_core::{Config, Event, Fact, Rms, State};
use rms_model::{
    ClusterId, Inventory, JobId, JobRecord, JobSpec, Labels, NodeId, NodeLink, Owner, Profile, Request, Run, Span,
    Time, View, Work,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    now: i64,
    fair_start: i64,
    clusters: Vec<Cluster>,
    apps: Vec<App>,
    states: BTreeMap<u64, String>,
    estimates: BTreeMap<u64, Option<i64>>,
    views: BTreeMap<u64, Cops>,
    started: Vec<u64>,
    last_view: Cops,
    notify: Vec<Notify>,
}

#[derive(Deserialize)]
struct Cluster {
    cid: u16,
    hosts: u32,
}

#[derive(Deserialize)]
struct App {
    id: u64,
    state: String,
    hosts: BTreeMap<u16, u32>,
    wall: i64,
    #[serde(default)]
    start: Option<i64>,
    #[serde(default)]
    done_at: Option<i64>,
    #[serde(default)]
    previous: Option<Previous>,
}

#[derive(Deserialize)]
struct Previous {
    origin: i64,
    view: Cops,
}

#[derive(Deserialize)]
struct Notify {
    id: u64,
    clusters: Vec<u16>,
    bytes: u64,
}

type Cops = BTreeMap<u16, Vec<(i64, i64)>>;

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let now = Time::from_secs(vector.now);
    let mut rms = Rms::restore(Config::default(), None, facts(&vector)).map_err(|misfit| misfit.to_string())?;
    rms.state().check().map_err(|violation| violation.to_string())?;

    // The tick first moves ghosts on (R2), so the plan is read from a system that has ticked without a pass.
    let before = Rms::restore(Config::default(), None, facts(&vector).into_iter().chain(expired(&vector)))
        .map_err(|misfit| misfit.to_string())?;
    let plan = plan::plan(before.state(), now, Scope::Views);
    let step = rms.handle(now, Event::Tick);
    drop_step(step);
    rms.state().check().map_err(|violation| violation.to_string())?;

    for (id, expected) in &vector.states {
        let actual = rms.state().jobs().get(&JobId(*id)).map_or(JobState::Finished, rms_core::state::job::Job::state);
        same(&format!("state of {id}"), &actual.word(), &expected.as_str())?;
    }
    for (id, expected) in &vector.estimates {
        let placement = plan.placement(JobId(*id)).ok_or(format!("application {id} was not planned"))?;
        same(&format!("estimate of {id}"), &placement.outcome.estimate(now), &expected.map(Time::from_secs))?;
    }
    let mut started: Vec<u64> = Vec::new();
    for placement in &plan.placements {
        if placement.outcome.estimate(now) == Some(now) {
            started.push(placement.job.0);
        }
    }
    same("started", &started, &vector.started)?;
    same("last view", &cut(&plan.last_view, &vector, now), &view(&vector.last_view, now))?;
    for (id, expected) in &vector.views {
        let placement = plan.placement(JobId(*id)).ok_or(format!("application {id} was not planned"))?;
        let actual = placement.view.as_ref().ok_or(format!("application {id} has no view"))?;
        same(&format!("view of {id}"), &cut(actual, &vector, now), &view(expected, now))?;
    }
    check_notify(&vector, before.state(), now)
}

/// Step 5 of Fig. 5: who is told of which clusters, and what that costs (R7, R8), by the code that tells launchers.
fn check_notify(vector: &Vector, state: &State, now: Time) -> Result<(), String> {
    let exists = |cluster: &&Cluster| cluster.hosts > 0;
    let capacities: BTreeMap<ClusterId, u32> =
        vector.clusters.iter().filter(exists).map(|cluster| (ClusterId(cluster.cid), cluster.hosts)).collect();
    let mut streams = Streams::default();
    for app in &vector.apps {
        let Some(previous) = &app.previous else { continue };
        let (job, origin) = (JobId(app.id), Time::from_secs(previous.origin));
        streams.open(job, &Filter::default());
        streams.assume(job, &view(&previous.view, origin), &capacities, origin);
    }
    let (_, changes) = streams.pass(state, now);
    let mut told: BTreeMap<u64, (Vec<u16>, u64)> = BTreeMap::new();
    for (job, change) in &changes {
        let profile = |change: &ClusterChange| change.occupied.clone().ok_or("a change tells no occupation");
        let clusters = change.clusters.iter().map(|change| change.cluster.0).collect();
        let mut bytes = 0;
        for cluster in &change.clusters {
            bytes += notify::cluster_bytes(&*profile(cluster)?, now);
        }
        told.insert(job.0, (clusters, bytes));
    }
    let expected: BTreeMap<_, _> =
        vector.notify.iter().map(|notify| (notify.id, (notify.clusters.clone(), notify.bytes))).collect();
    same("notify", &told, &expected)?;
    same("bytes", &streams.sent().bytes, &expected.values().map(|(_, bytes)| bytes).sum())
}

fn facts(vector: &Vector) -> Vec<Fact> {
    let mut facts = vec![setting("queue_depth", "0"), setting("fair_start", &format!("{}s", vector.fair_start))];
    let mut free: BTreeMap<u16, Vec<NodeId>> = BTreeMap::new();
    let mut next = NodeId(1);
    for Cluster { cid, hosts } in &vector.clusters {
        facts.push(Fact::ClusterAdded { cluster: ClusterId(*cid), name: format!("c{cid}") });
        for _ in 0..*hosts {
            let (node, at) = (next, Time::EPOCH);
            let (name, inventory, address) = (format!("n{node}"), Inventory::default(), String::new());
            facts.push(Fact::NodeJoined { node, cluster: ClusterId(*cid), name, inventory, address, at });
            facts.push(Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: at } });
            free.entry(*cid).or_default().push(node);
            next = next.next();
        }
    }
    for (place, app) in vector.apps.iter().enumerate() {
        facts.extend(app_facts(vector, place, app, &mut free));
    }
    facts
}

fn app_facts(vector: &Vector, place: usize, app: &App, free: &mut BTreeMap<u16, Vec<NodeId>>) -> Vec<Fact> {
    let job = JobId(app.id);
    // R1: the order given is the order of first requests.
    let at = Time::from_millis(place as i64);
    let request = Request {
        nodes: app.hosts.iter().map(|(cid, hosts)| (ClusterId(*cid), *hosts)).collect(),
        wall: Span::from_secs(app.wall),
    };
    let spec = Arc::new(spec(request.clone()));
    let mut facts = vec![Fact::JobSubmitted { job, at, spec, held: false }, Fact::RequestSent { job, at }];
    if app.state == "waiting" {
        facts.push(Fact::JobsQueued { jobs: vec![job] });
    }
    let Some(start) = app.start else { return facts };
    let mut nodes = Vec::new();
    for (cid, hosts) in &app.hosts {
        let left = free.get_mut(cid).expect("the vector's clusters are listed");
        nodes.extend(left.drain(..*hosts as usize));
    }
    let start = Time::from_secs(start);
    facts.push(Fact::JobStarted {
        job,
        run: Run(1),
        at: start,
        request: request.clone(),
        nodes,
        grants: Default::default(),
    });
    if let Some(done_at) = app.done_at {
        let ended = Time::from_secs(done_at);
        let record = record(job, start, ended, request);
        facts.push(Fact::JobDone {
            record: Box::new(record),
            ghost_until: ended + Span::from_secs(vector.fair_start),
            negotiations: Vec::new(),
            told: None,
        });
    }
    facts
}

/// R2: the ghosts that a tick at `now` finishes.
fn expired(vector: &Vector) -> Vec<Fact> {
    let is_over = |app: &&App| {
        app.done_at.is_some_and(|done_at| vector.fair_start > 0 && done_at + vector.fair_start <= vector.now)
    };
    vector.apps.iter().filter(is_over).map(|app| Fact::GhostExpired { job: JobId(app.id) }).collect()
}

fn setting(key: &str, new: &str) -> Fact {
    let change = rms_api::audit::AuditEntry::of_setting(Time::EPOCH, "test", key, "", new);
    Fact::SettingChanged { change }
}

fn spec(request: Request) -> JobSpec {
    JobSpec {
        labels: Labels::named("app"),
        ..JobSpec::of(Owner("user".to_owned()), Work::Tasks { argv: vec!["true".to_owned()] }, vec![request])
    }
}

fn record(job: JobId, started: Time, ended: Time, request: Request) -> JobRecord {
    JobRecord {
        labels: Labels::named("app"),
        started: Some(started),
        ended,
        n_tasks: request.n_nodes(),
        ..JobRecord::of(job, Owner("user".to_owned()), request, started)
    }
}

fn view(cops: &Cops, origin: Time) -> View {
    let profile = |pairs: &Vec<(i64, i64)>| {
        Profile::from_pairs(origin, pairs.iter().map(|(secs, hosts)| (Span::from_secs(*secs), *hosts)))
    };
    cops.iter().map(|(cid, pairs)| (ClusterId(*cid), profile(pairs))).collect()
}

/// Over all clusters, from now on (R5, R9).
fn cut(view: &View, vector: &Vector, now: Time) -> View {
    let profile = |cid: u16| view.get(&ClusterId(cid)).map(|profile| profile.cut_before(now)).unwrap_or_default();
    vector.clusters.iter().map(|cluster| (ClusterId(cluster.cid), profile(cluster.cid))).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("{what}: {actual:?} instead of {expected:?}")) }
}

/// The vector's facts come from nowhere, so there is no journal to commit to.
fn drop_step(step: rms_core::Step) {
    struct Nowhere;
    impl rms_core::Journal for Nowhere {
        type Error = std::convert::Infallible;

        fn append(&mut self, _: &[Fact]) -> Result<(), Self::Error> {
            Ok(())
        }
    }
    match step.commit(&mut Nowhere) {
        Ok(_) => {}
        Err(uncommitted) => match uncommitted.error {},
    }
}
