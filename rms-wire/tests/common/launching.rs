//! One value of every message to and from launchers, in the types of the domain.

use rms_api::Refused;
use rms_api::answer::LauncherReport;
use rms_api::answer::LauncherTraffic;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::answer::LauncherStatus;
use rms_api::subscription::{
    AdaptationDelays, ClusterChange, ClusterInfo, ClusterInfos, ClusterLink, Filter, Grant, GrantedNode, Launchable,
    LauncherAnswer, LauncherCall, LauncherRequest, Notice, Subscription, Tag, ViewChange,
};
use rms_model::job::Constraint;
use rms_model::{
    ClusterId, Devices, Environment, Execution, JobId, Labels, Limits, Malleable, Mebibytes, OnResize, Outcome,
    Profile, Request, Run, Sizes, Slice, Span, Speedup, Stdio, Time, Work,
};

const JOB: JobId = JobId(300);

/// Returns an ordinary time.
pub fn now() -> Time {
    Time::from_secs(1_790_000_000)
}

fn request() -> Request {
    Request { nodes: BTreeMap::from([(ClusterId(0), 2), (ClusterId(3), 300)]), wall: Span::from_hours(2) }
}

pub fn calls() -> Vec<LauncherCall> {
    let constraint = Constraint {
        features: BTreeSet::from(["gpu".to_owned()]),
        memory: Mebibytes(4096),
        cpus: 8,
        ..Constraint::default()
    };
    let clusters = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let filter = Filter { clusters, least_nodes: 3, constraint, total_memory: Mebibytes(0), slices: Vec::new() };
    let labels = Labels { comment: "of ann".to_owned(), ..Labels::named("nbody") };
    let named = Subscription { labels, filter, priority: -3, malleable: None };
    let any = Subscription::named("any");
    let execution = Execution {
        work: Work::Tasks { argv: vec!["./nbody".to_owned(), "1000".to_owned()] },
        cwd: "/home/ann".to_owned(),
        environment: Arc::new(Environment(vec![("PATH".to_owned(), "/bin".to_owned())])),
        umask: 0o027,
        stdio: Stdio { output: Some("out-%j".to_owned()), append: true, ..Stdio::default() },
        limits: Limits { open_files: Some(1024), ..Limits::default() },
        malleable_threads: false,
    };
    let nodes = Launchable::of(Execution { work: Work::Nodes, ..execution.clone() });
    let launch = Launchable { n_tasks: Some(64), cpus_per_task: 2, ..Launchable::of(execution) };
    let limits = || Malleable {
        least: 2,
        most: 16,
        sizes: Sizes::PowerOfTwo,
        on_resize: OnResize::Negotiates,
        speedup: Speedup::default(),
        survives_loss: None,
    };
    let grows = Subscription { malleable: Some(limits()), ..any.clone() };
    let changes = Launchable { malleable: Some(limits()), ..launch.clone() };
    let tag = Tag(7);
    vec![
        LauncherCall::Subscribe(Box::new(named)),
        LauncherCall::Subscribe(Box::new(any)),
        LauncherCall::Attach { job: JOB },
        LauncherCall::Clusters { job: JOB },
        LauncherCall::Request { job: JOB, wish: LauncherRequest::of_nodes(tag, 12, request()) },
        LauncherCall::Launch { job: JOB, tag, launch: Box::new(launch) },
        LauncherCall::Launch { job: JOB, tag, launch: Box::new(nodes) },
        LauncherCall::Accept { job: JOB, tag },
        LauncherCall::Finish { job: JOB, tag, code: -1 },
        LauncherCall::Subscribe(Box::new(grows)),
        LauncherCall::Launch { job: JOB, tag, launch: Box::new(changes) },
    ]
}

/// Returns calls that were added later.
pub fn later_calls() -> Vec<LauncherCall> {
    let constraint = Constraint {
        devices: devices("gpu:a100:2"),
        cores: 16,
        sockets: 2,
        speed_milli: 1500,
        scratch: Mebibytes(100_000),
        ..Constraint::default()
    };
    let filter = Filter { constraint, total_memory: Mebibytes(4 << 20), ..Filter::default() };
    let slice = Slice { cores: 4, memory: Mebibytes(8000), devices: devices("gpu:1") };
    let slices = vec![slice.clone(), Slice { cores: 1, ..Slice::default() }];
    let shares = Filter { slices, ..Filter::default() };
    let subscribe =
        |name, filter| LauncherCall::Subscribe(Box::new(Subscription { filter, ..Subscription::named(name) }));
    let wish = LauncherRequest { slice, ..LauncherRequest::of_nodes(Tag(8), 13, request()) };
    vec![subscribe("picky", filter), subscribe("shares", shares), LauncherCall::Request { job: JOB, wish }]
}

fn devices(text: &str) -> Devices {
    text.parse().expect("devices")
}

/// Returns answers that were added later.
pub fn later_answers() -> Vec<Result<LauncherAnswer, Refused>> {
    let cluster = ClusterInfo {
        cluster: ClusterId(1),
        name: "b".to_owned(),
        nodes: 16,
        cpus: 64,
        memory: Mebibytes(262_144),
        features: BTreeSet::new(),
        sockets: 2,
        cores: 32,
        speed_milli: 1250,
        scratch: Mebibytes(500_000),
        total_memory: Mebibytes(4_194_304),
        devices: devices("gpu:a100:64"),
        shared: false,
    };
    let shared = ClusterInfo { shared: true, ..cluster.clone() };
    let infos = |cluster| Ok(LauncherAnswer::Clusters(ClusterInfos { clusters: vec![cluster], links: Vec::new() }));
    vec![infos(cluster), infos(shared)]
}

/// Returns the answer to a subscription with the server's clock.
pub fn told_the_time() -> Result<LauncherAnswer, Refused> {
    Ok(LauncherAnswer::Subscribed { job: JOB, request_until: None, now: Some(now()) })
}

pub fn answers() -> Vec<Result<LauncherAnswer, Refused>> {
    let cluster = |id, name: &str, features: &[&str]| ClusterInfo {
        cluster: ClusterId(id),
        name: name.to_owned(),
        nodes: 128,
        cpus: 24,
        memory: Mebibytes(65_536),
        features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        sockets: 0,
        cores: 0,
        speed_milli: 0,
        scratch: Mebibytes(0),
        total_memory: Mebibytes(0),
        devices: Devices::default(),
        shared: false,
    };
    let link = ClusterLink { between: (ClusterId(0), ClusterId(3)), latency_us: 5000, bandwidth_mbit: 10_000 };
    let infos =
        ClusterInfos { clusters: vec![cluster(0, "a", &[]), cluster(3, "d", &["gpu", "ib"])], links: vec![link] };
    vec![
        Ok(LauncherAnswer::Subscribed { job: JOB, request_until: Some(now()), now: None }),
        Ok(LauncherAnswer::Subscribed { job: JOB, request_until: None, now: None }),
        Ok(LauncherAnswer::Clusters(infos)),
        Ok(LauncherAnswer::Clusters(ClusterInfos::default())),
        Ok(LauncherAnswer::Done),
        Err(Refused::new("wrong_state", "no")),
    ]
}

/// Returns a profile of this many steps, each different from its neighbours.
pub fn profile(n_pairs: i64) -> Profile {
    let pair = |idx: i64| (Span::from_millis(1000 + idx), 1 + idx % 3);
    Profile::from_pairs(now() + Span::from_secs(2), (0..n_pairs).map(pair))
}

pub fn changed(clusters: Vec<(u16, Option<Profile>)>) -> ViewChange {
    let change = |(cluster, occupied): (u16, Option<Profile>)| ClusterChange {
        cluster: ClusterId(cluster),
        shape: 0,
        info: cluster == 0,
        capacity: 128,
        occupied: occupied.map(Arc::new),
    };
    ViewChange { version: 9, at: now(), clusters: clusters.into_iter().map(change).collect() }
}

pub fn notices() -> Vec<Notice> {
    let earlier = Profile::from_pairs(now() - Span::from_hours(1), [(Span::from_hours(2), 5)]);
    let gone = ClusterChange { cluster: ClusterId(5), shape: 0, info: true, capacity: 0, occupied: None };
    let node = |name: &str, cluster| GrantedNode {
        name: name.to_owned(),
        cluster: ClusterId(cluster),
        address: "10.0.0.1:6819".to_owned(),
        cpus: 24,
        part: None,
    };
    let grant = Grant {
        tag: Tag(7),
        run: Run(2),
        at: now(),
        request: request(),
        until: now() + Span::from_hours(2),
        answer_until: now() + Span::from_secs(30),
        nodes: vec![node("n1", 0), node("n2", 3)],
    };
    vec![
        Notice::Changed(changed(vec![(0, Some(profile(5))), (1, None), (2, Some(Profile::new()))])),
        Notice::Changed(changed(vec![(3, Some(earlier))])),
        Notice::Changed(ViewChange { version: 1, at: now(), clusters: vec![gone] }),
        Notice::Changed(changed(Vec::new())),
        Notice::Started(grant),
        Notice::Ended { outcome: Outcome::LauncherLost },
        Notice::Replaced,
    ]
}

/// Returns notices that were added later: for launchers that look for slices.
pub fn later_notices() -> Vec<Notice> {
    let shapes = |shape: u32| ClusterChange { shape, ..changed(vec![(4, Some(profile(2)))]).clusters.remove(0) };
    let part = rms_model::Grant { cores: (0..4).collect(), memory: Mebibytes(8000), ..Default::default() };
    let node = GrantedNode {
        name: "n1".to_owned(),
        cluster: ClusterId(0),
        address: "10.0.0.1:6819".to_owned(),
        cpus: 8,
        part: Some(part),
    };
    let started = Grant {
        tag: Tag(8),
        run: Run(3),
        at: now(),
        request: Request::on_one(ClusterId(0), 1, Span::from_hours(1)),
        until: now() + Span::from_hours(1),
        answer_until: now() + Span::from_secs(30),
        nodes: vec![node],
    };
    let clusters = [0, 1, 3].map(shapes).to_vec();
    vec![Notice::Changed(ViewChange { version: 2, at: now(), clusters }), Notice::Started(started)]
}

pub fn launcher_report() -> LauncherReport {
    let buckets = vec![3, 0, 1, 0, 0, 0, 0, 0, 0, 1];
    let (total, longest) = (Span::from_secs(90), Span::from_secs(80));
    let status = LauncherStatus {
        n_launchers: 3,
        n_connected: 2,
        n_notices: 500,
        notice_bytes: 70_000,
        n_requests: 40,
        request_bytes: 360,
        n_refused: 1,
        adaptations: AdaptationDelays { count: 5, total, longest, buckets },
        ghost_node_time: vec![("a".to_owned(), Span::from_secs(7))],
    };
    let traffic = LauncherTraffic { n_open: 2, n_opened: 9, bytes_up: 4000, bytes_down: 90_000 };
    LauncherReport { status, traffic }
}
