//! The answers about nodes that jobs share, and about the resources requested of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::answer::{LicenceShortage, NodeLine, NodeState, Shortage};
use rms_model::{Devices, Grant, Inventory, Packing, Slice};

use super::*;

fn devices(text: &str) -> Devices {
    text.parse().expect("devices")
}

fn asked() -> ResourceRequest {
    ResourceRequest {
        memory_per_cpu: Mebibytes(2048),
        devices: devices("gpu:1"),
        devices_in_all: devices("fpga:2"),
        licences: devices("matlab:2"),
        tasks_per_node: 2,
        exclusive: true,
        packing: Packing::Spread,
        one_thread_a_core: true,
        share: true,
        min_cpus_per_node: 2,
        min_cpus_per_task: vec![2, 1],
        cores_per_package: 1,
        contiguous: true,
    }
}

#[test]
fn what_a_job_asks_of_its_nodes_and_has_of_them() {
    let mut waiting = blocked();
    waiting.resources = asked();
    if let Some(Reason::Blocked { short, .. }) = &mut waiting.reason {
        let each = Slice { cores: 8, memory: Mebibytes(65536), devices: devices("gpu:1") };
        *short = Some(Box::new(Shortage { each, with_cores: 3, with_memory: 1, with_devices: 0 }));
    }
    let mut waiting = detail(waiting);
    let spec = Arc::make_mut(&mut waiting.spec);
    (spec.resources, spec.constraint.memory, spec.constraint.cpus) = (asked(), Mebibytes(512), 16);
    let mut running = detail(started());
    let gpus = BTreeMap::from([("gpu:a100".to_owned(), [1, 2].into_iter().collect())]);
    let grant = |devices| Grant { cores: (4..8).collect(), memory: Mebibytes(8192), devices };
    running.grants = BTreeMap::from([("a2".to_owned(), grant(gpus)), ("a3".to_owned(), grant(BTreeMap::new()))]);
    let found = Found { now: NOW, live: vec![waiting, running], ended: Vec::new() };
    check("show_shared", &show::ShowAnswer { is_one: false, ..show_answer(found) });
}

#[test]
fn what_is_free_on_nodes_that_jobs_share() {
    let node = |name: &str, free: Option<Slice>| NodeLine {
        name: name.into(),
        cluster: "a".into(),
        state: NodeState::Busy,
        reason: None,
        since: NOW - Span::from_mins(90),
        inventory: Inventory { cores: 8, cpus: 16, devices: devices("gpu:a100:4"), ..Inventory::default() },
        free,
        address: "127.0.0.2:4000".into(),
        generation: Generation(9),
        jobs: vec![JobId(3), JobId(4)],
    };
    let free = |cores, text: &str| Some(Slice { cores, memory: Mebibytes(512), devices: devices(text) });
    let mut nodes = vec![node("a1", free(3, "gpu:a100:1")), node("a2", free(0, "gpu:0"))];
    nodes[1].inventory.unenforced = ["cpus", "devices"].map(str::to_owned).into();
    let list = NodeList { now: NOW, nodes, clusters: vec![(ClusterId(1), "a".to_owned())] };
    let answer = |each| nodes::NodesAnswer { list: list.clone(), negotiations: Vec::new(), each, is_all: true };
    check("nodes_shared", &answer(true));
    check_form("nodes_shared_summary", &answer(false), Form::Text);
}

#[test]
fn nothing_is_free_on_nodes_that_no_job_can_start_on() {
    let node = |state| NodeLine {
        name: "a1".into(),
        cluster: "a".into(),
        state,
        reason: None,
        since: NOW,
        inventory: Inventory { cores: 8, cpus: 8, memory: Mebibytes(1024), ..Inventory::default() },
        free: Some(Slice { cores: 8, memory: Mebibytes(1024), devices: Devices::default() }),
        address: "127.0.0.2:4000".into(),
        generation: Generation(9),
        jobs: Vec::new(),
    };
    for each in [true, false] {
        let answer = |state| {
            let list = NodeList { now: NOW, nodes: vec![node(state)], clusters: Vec::new() };
            nodes::NodesAnswer { list, negotiations: Vec::new(), each, is_all: true }
        };
        let text = |state| answer(state).text();
        assert!(text(NodeState::Idle).contains("8 cores, 1024M"), "{}", text(NodeState::Idle));
        for state in [NodeState::Lost, NodeState::Away, NodeState::Down, NodeState::Draining, NodeState::Drained] {
            assert!(!text(state).contains("8 cores"), "{}", text(state));
            assert!(answer(state).json()["nodes"][0]["free"].is_null(), "{state:?}");
        }
    }
}

#[test]
fn a_licence_of_which_a_cluster_has_too_few() {
    let mut waiting = first_run(blocked());
    let licence = LicenceShortage { name: "matlab".to_owned(), wanted: 2, free: 0, total: 1 };
    let licence = Some(Box::new(licence));
    waiting.reason = Some(Reason::TooFewNodes {
        cluster: "a".to_owned(),
        wanted: 1,
        usable: 4,
        total: 4,
        licence,
        contiguous: false,
        lacking: None,
    });
    let found = Found { now: NOW, live: vec![detail(waiting)], ended: Vec::new() };
    let (negotiations, allowed) = (Vec::new(), Allowed::default());
    let away = Vec::new();
    check(
        "explain_licence",
        &explain::ExplainAnswer { found, clusters: clusters(), negotiations, allowed, away, shortage: None },
    );
}

#[test]
fn a_job_one_of_whose_nodes_is_away() {
    let node = |name: &str| NodeLine {
        name: name.to_owned(),
        cluster: "a".into(),
        state: NodeState::Away,
        reason: None,
        since: NOW - Span::from_secs(16),
        inventory: Inventory::default(),
        free: None,
        address: String::new(),
        generation: Generation(9),
        jobs: Vec::new(),
    };
    let running = started();
    let away = vec![node(&running.nodes[0]), node("another")];
    let found = Found { now: NOW, live: vec![detail(running), detail(first_run(held()))], ended: Vec::new() };
    let (negotiations, allowed) = (Vec::new(), Allowed::default());
    check(
        "explain_away",
        &explain::ExplainAnswer { found, clusters: clusters(), negotiations, allowed, away, shortage: None },
    );
}

/// What a job asked for stays beside it.
#[test]
fn the_licences_that_a_job_has_now() {
    let show = |licences: &[(ClusterId, Devices)]| {
        let mut job = detail(started());
        Arc::make_mut(&mut job.spec).resources.licences = devices("matlab:2");
        job.licences = licences.iter().cloned().collect();
        let found = Found { now: NOW, live: vec![job], ended: Vec::new() };
        show_answer(found)
    };
    let [a, b] = [1, 2].map(ClusterId);
    let line = |licences: &[(ClusterId, Devices)]| {
        let text = show(licences).text();
        text.lines().find_map(|line| Some(line.trim().strip_prefix("licences ")?.trim().to_owned()))
    };
    assert_eq!(line(&[]), None);
    assert_eq!(line(&[(a, devices("matlab:1,ansys:3"))]).as_deref(), Some("ansys:3,matlab:1"));
    assert_eq!(line(&[(a, Devices::default())]).as_deref(), Some("none"));
    assert_eq!(line(&[(a, devices("matlab:1")), (b, Devices::default())]).as_deref(), Some("a: matlab:1; b: none"));
    let json = |licences: &[(ClusterId, Devices)]| show(licences).json()["licences"].clone();
    assert_eq!(json(&[]), serde_json::json!({}));
    let both = [(a, devices("matlab:1")), (b, Devices::default())];
    assert_eq!(json(&both), serde_json::json!({"a": {"matlab": 1}, "b": {}}));
}
