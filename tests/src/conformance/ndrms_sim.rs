//! Whole runs of 001's two systems, RULES S: launchers that are told their views, and sizes that are listed, both through
//! the production core.

use std::collections::BTreeMap;
use std::time::Duration;

use experiments::delegated::{Application, Execution, Model};
use experiments::views::{self, Experiment, Heard, Outcome, System};
use launcher_sdk::schedule::cem::FastestFirst;
use launcher_sdk::schedule::moldable::{Amdahl, Sizes};
use rms_model::{ClusterId, Span, Time};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    timer: i64,
    fair_start: i64,
    clusters: Vec<Cluster>,
    apps: Vec<App>,
    ndrms: Expected,
    oar: Option<Expected>,
}

#[derive(Deserialize)]
struct Cluster {
    cid: u16,
    hosts: u32,
}

#[derive(Deserialize)]
struct App {
    arrival: i64,
    adapt: i64,
    exec: (u32, u32),
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Kind {
    Moldable {
        nmin: u32,
        nmax: Option<u32>,
        p: (u32, u32),
        d1: BTreeMap<String, i64>,
    },
    Cem {
        work: i64,
        latency: i64,
        /// In tenths.
        speed: BTreeMap<String, u32>,
    },
}

#[derive(Deserialize)]
struct Expected {
    start: Vec<i64>,
    end: Vec<i64>,
    request: Vec<Asked>,
    stats: BTreeMap<String, u64>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Asked {
    hosts: BTreeMap<String, u32>,
    wall: i64,
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let clusters: Vec<(ClusterId, u32)> =
        vector.clusters.iter().map(|cluster| (ClusterId(cluster.cid), cluster.hosts)).collect();
    let applications = vector.apps.iter().map(application).collect::<Result<Vec<Application>, String>>()?;
    let run = |system| {
        let experiment = Experiment {
            system,
            heard: Heard::ByQueued,
            clusters: &clusters,
            applications: &applications,
            fair_start: Span::from_secs(vector.fair_start),
            resched_timer: Span::from_secs(vector.timer),
            assumption: None,
        };
        views::run(&experiment, &mut || Duration::ZERO).map_err(|error| error.to_string())
    };
    if let Some(expected) = &vector.oar {
        let outcome = run(System::Listed)?;
        check_runs("listed", &outcome, expected)?;
        let stats = [
            ("passes", outcome.n_passes),
            ("configurations", outcome.n_configurations),
            ("config_bytes", outcome.list.bytes),
        ];
        check_stats("listed", &stats, expected)?;
    }
    let outcome = run(System::Views)?;
    check_runs("views", &outcome, &vector.ndrms)?;
    let stats = [
        ("change_notify", outcome.change_notify.count),
        ("change_notify_bytes", outcome.change_notify.bytes),
        ("request", outcome.request.count),
        ("request_bytes", outcome.request.bytes),
        ("passes", outcome.n_passes),
        ("unique_configurations", outcome.n_configurations),
    ];
    check_stats("views", &stats, &vector.ndrms)
}

fn application(app: &App) -> Result<Application, String> {
    let model = match &app.kind {
        Kind::Moldable { nmin, nmax, p, d1 } => {
            let on_one = by_cluster(d1, |secs| Span::from_secs(*secs))?;
            let amdahl = Amdahl::new(p.0, p.1, on_one).map_err(|error| error.to_string())?;
            Model::OnOne { sizes: Sizes { least: *nmin, most: nmax.unwrap_or(u32::MAX) }, amdahl }
        }
        Kind::Cem { work, latency, speed } => Model::FastestFirst(FastestFirst {
            work: Span::from_secs(*work),
            speed_milli: by_cluster(speed, |tenths| tenths * 100)?,
            latency: Span::from_secs(*latency),
        }),
    };
    Ok(Application {
        arrival: Time::from_secs(app.arrival),
        model,
        execution: Execution { numerator: app.exec.0, denominator: app.exec.1 },
        adaptation: Span::from_secs(app.adapt),
    })
}

/// The keys of a flattened object stay texts.
fn by_cluster<T, V>(values: &BTreeMap<String, T>, value: impl Fn(&T) -> V) -> Result<BTreeMap<ClusterId, V>, String> {
    let parse = |(cid, of): (&String, &T)| {
        let cluster: u16 = cid.parse().map_err(|_| format!("'{cid}' is no cluster id"))?;
        Ok((ClusterId(cluster), value(of)))
    };
    values.iter().map(parse).collect()
}

fn check_runs(system: &str, outcome: &Outcome, expected: &Expected) -> Result<(), String> {
    for (idx, ran) in outcome.ran.iter().enumerate() {
        let hosts = ran.request.nodes.iter().filter(|(_, hosts)| **hosts > 0);
        let hosts = hosts.map(|(cluster, hosts)| (cluster.0.to_string(), *hosts)).collect();
        let asked = Asked { hosts, wall: ran.request.wall.as_millis() / 1000 };
        let expected = (expected.start.get(idx), expected.end.get(idx), expected.request.get(idx));
        let actual = (Some(&ran.start.as_secs()), Some(&ran.end.as_secs()), Some(&asked));
        if actual != expected {
            return Err(format!("{system}, application {idx}: {actual:?} instead of {expected:?}"));
        }
    }
    let (n_ran, n_expected) = (outcome.ran.len(), expected.start.len());
    if n_ran == n_expected { Ok(()) } else { Err(format!("{system}: {n_ran} ran instead of {n_expected}")) }
}

fn check_stats(system: &str, actual: &[(&str, u64)], expected: &Expected) -> Result<(), String> {
    for (name, actual) in actual {
        let expected = expected.stats.get(*name);
        if expected != Some(actual) {
            return Err(format!("{system}, {name}: {actual} instead of {expected:?}"));
        }
    }
    Ok(())
}
