//! Checks the answers for a cluster of 200 nodes on a terminal of 80 columns: no line is wider, and nothing has a line
//! for each node.

use super::*;

#[test]
fn a_job_without_a_profile_that_has_given_resources_back_is_shown_without_stages() {
    let stages = malleable().stages.map(|stages| Stages { number: 0, n_stages: 0, ..stages });
    let line = JobLine { stages, ..started() };
    let queue = Queue { now: NOW, planned: NOW, jobs: vec![line.clone()] };
    let queue = queue::QueueAnswer {
        queue,
        clusters: clusters(),
        negotiations: Vec::new(),
        is_filtered: false,
        shortage: None,
    };
    let found = || Found { now: NOW, live: vec![detail(line.clone())], ended: Vec::new() };
    let (negotiations, allowed) = (Vec::new(), Allowed::default());
    let shown = show_answer(found());
    let explained = explain::ExplainAnswer {
        found: found(),
        clusters: clusters(),
        negotiations,
        allowed,
        away: Vec::new(),
        shortage: None,
    };
    for text in [queue.text(), shown.text(), explained.text()] {
        assert!(!text.contains("stage"), "{text}");
    }
    assert!(shown.text().contains("a4"), "{}", shown.text());
    assert_eq!(shown.json()["stages"], serde_json::Value::Null);
}
use crate::screen::{self, tests::COLUMNS};
use crate::verb::plan;

const N_NODES: usize = 200;

fn names(step: usize) -> Vec<String> {
    (1..=N_NODES).step_by(step).map(|number| format!("node{number:03}")).collect()
}

/// Gives a job every second node, whose names fold into no range.
fn scattered(line: JobLine) -> JobLine {
    JobLine { nodes: names(2), ..line }
}

fn nodes() -> NodeList {
    let node = |(idx, name): (usize, String)| {
        let (state, reason, jobs) = match idx {
            40..45 => {
                (NodeState::Drained, Some("new memory is put in by the vendor on Tuesday, from nine to five"), vec![])
            }
            77 => (NodeState::Lost, Some("not heard of"), vec![]),
            _ if idx % 2 == 0 => (NodeState::Busy, None, vec![JobId(1000 + idx as u64)]),
            _ => (NodeState::Idle, None, vec![]),
        };
        NodeLine {
            name,
            cluster: "a".into(),
            state,
            reason: reason.map(str::to_owned),
            since: NOW - Span::from_secs(idx as i64),
            inventory: Inventory {
                sockets: 2,
                numa_nodes: 2,
                cores: 48,
                cpus: 96,
                memory: Mebibytes(262_144),
                speed_milli: 1000,
                features: BTreeSet::from(["memory-limit".to_owned()]),
                ..Inventory::default()
            },
            free: None,
            address: "127.0.0.2:4000".into(),
            generation: Generation(9),
            jobs,
        }
    };
    let nodes = names(1).into_iter().enumerate().map(node).collect();
    NodeList { now: NOW, nodes, clusters: vec![(ClusterId(1), "a".to_owned())] }
}

/// Returns negotiations of a job that has scattered nodes and is offered others.
fn many_negotiations() -> Vec<NegotiationLine> {
    let mut negotiations = negotiations();
    negotiations[0].record.nodes = names(3);
    negotiations[2].held = names(4);
    negotiations
}

fn on_eighty_columns(answer: &impl Show, n_lines: usize) -> String {
    COLUMNS.set(Some(80));
    let text = render(answer, Form::Text);
    COLUMNS.set(None);
    for line in text.lines() {
        assert!(screen::width(line) <= 80, "{} columns: {line}\nin\n{text}", screen::width(line));
    }
    let found = text.lines().count();
    assert!(found <= n_lines, "{found} lines instead of {n_lines}:\n{text}");
    text
}

fn check(name: &str, answer: &impl Show, n_lines: usize) {
    check_text(&format!("many_{name}.txt"), &on_eighty_columns(answer, n_lines));
}

#[test]
fn nodes_that_are_alike_are_one_line() {
    let answer = |each| nodes::NodesAnswer { list: nodes(), negotiations: Vec::new(), each, is_all: true };
    check("nodes", &answer(false), 5);
    on_eighty_columns(&answer(true), N_NODES + 1);
    let offered = nodes::NodesAnswer { negotiations: many_negotiations(), ..answer(false) };
    check("nodes_offered", &offered, 7);
}

#[test]
fn jobs_on_many_nodes() {
    let jobs = || vec![scattered(started()), scattered(malleable()), scattered(ghost()), blocked(), held()];
    let queue = Queue { now: NOW, planned: NOW, jobs: jobs() };
    check(
        "queue",
        &queue::QueueAnswer {
            queue,
            clusters: clusters(),
            negotiations: many_negotiations(),
            is_filtered: false,
            shortage: None,
        },
        6,
    );

    let mut wide = detail(scattered(malleable()));
    wide.line.stages.as_mut().expect("it has changed").leaving = names(5);
    wide.cores = names(1).into_iter().map(|node| CoresLine { node, n_cores: 3, all: 48, is_in_force: true }).collect();
    let ended = JobRecord { nodes: names(2), ..record() };
    let found = || Found { now: NOW, live: vec![wide.clone()], ended: vec![ended.clone()] };
    check("show", &show::ShowAnswer { with_script: true, is_one: false, ..show_answer(found()) }, 60);
    let (negotiations, allowed) = (many_negotiations(), Allowed::default());
    check(
        "explain",
        &explain::ExplainAnswer {
            found: found(),
            clusters: clusters(),
            negotiations,
            allowed,
            away: Vec::new(),
            shortage: None,
        },
        30,
    );
    on_eighty_columns(&history::HistoryAnswer { records: vec![ended.clone()], clusters: clusters() }, 2);
    let done =
        jobs_done::JobsDone { word: "held".into(), done: (1000..1200).map(JobId).collect(), refused: Vec::new() };
    check("held", &done, 20);
}

#[test]
fn negotiations_about_many_nodes() {
    let answer = |as_stories| {
        let allowed = Allowed::default();
        negotiations::NegotiationsAnswer {
            now: NOW,
            lines: many_negotiations(),
            clusters: clusters(),
            allowed,
            as_stories,
        }
    };
    check("negotiations", &answer(false), 4);
    check("negotiations_of_a_job", &answer(true), 40);
}

#[test]
fn what_administrators_see_of_many_nodes() {
    check("drained", &admin::NodesDone { word: "draining", nodes: names(2) }, 10);
    let change = AuditEntry::of_setting(NOW, "root", "fair_start", "0s", "10s");
    let subject = rms_model::hostlist::fold(&names(2));
    let drained = AuditEntry { action: "drain".into(), subject, new: "new memory".into(), ..change.clone() };
    check("audit", &admin::Audit { changes: vec![change, drained], now: NOW }, 3);
    let issued = |name: &String| Issued {
        serial: "4a0b4a0b4a0b4a0b4a0b4a0b4a0b4a0b".into(),
        identity: Identity::new(Role::Agent, name).expect("a name"),
        issued: NOW,
        expires: NOW + Span::from_hours(24 * 90),
        revoked: None,
        replaces: Vec::new(),
        renews: None,
    };
    // Each of them can be revoked by its serial.
    let certificates = names(1).iter().map(issued).collect();
    let text = on_eighty_columns(&token::Certificates { certificates, now: NOW }, N_NODES + 1);
    assert!(text.contains("4a0b4a0b4a0b4a0b4a0b4a0b4a0b4a0b"), "a serial that is cut revokes nothing");
}

#[test]
fn the_occupation_of_many_nodes() {
    let mut view = occupation();
    view.clusters[0].capacity = N_NODES as u32;
    view.clusters[0].total = N_NODES as u32;
    for span in [None, Some(Span::from_mins(7)), Some(Span::from_hours(30)), Some(Span::from_hours(24 * 12))] {
        let window = Window::of(NOW, &view.clusters, span);
        let canvas = Canvas { width: 80, height: 12, colours: false };
        on_eighty_columns(&view::Drawing { view: view.clone(), window, canvas }, 36);
    }
    let size = |nodes: u32| plan::Planned {
        nodes,
        place: "a:150,b:50".into(),
        wall: Span::from_hours(300),
        start: Some(NOW + Span::from_hours(1000)),
    };
    let (sizes, lent_by) = (vec![size(1), size(200)], Vec::new());
    on_eighty_columns(&plan::Plan { now: NOW, sizes, best: 1, reason: None, lent_by }, 3);
}
