//! Compares every form of every answer with files: users' scripts parse them, so they may only be extended.
//!
//! `LIMBER_BLESS=1 cargo nextest run -p rms-cli` rewrites them; the changes then appear in the diff to review.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use launcher_sdk::{LauncherReport, LauncherTraffic, NodeList, Queue, Refused, ServerReport};
use negotiation::{Direction, Ending, Item, NegotiationId, Parties, Phase, Price, Resource, Side, Template};
use rms_api::answer::{
    Blocker, ClusterView, CoresLine, JobDetail, JobLine, JobState, LauncherStatus, NodeLine, NodeState, Reason, Stages,
    Status, ViewAnswer,
};
use rms_api::audit::AuditEntry;
use rms_api::negotiate::{Asked, BudgetLine, Declared, NegotiationLine, NegotiationRecord, RoundRecord, Said};
use rms_api::subscription::AdaptationDelays;
use rms_model::profile::Block;
use rms_model::token::{Issued, Token, TokenIdentity, TokenState};
use rms_model::{
    ClusterId, Execution, FormerRun, Generation, Granted, Identity, Inventory, JobId, JobRecord, JobSpec, Labels,
    Malleable, Mebibytes, OnResize, Outcome, Owner, Profile, Request, ResourceRequest, Role, Run, Sizes, Span, Speedup,
    Stdio, TaskCount, Time, Usage, Work,
};

use super::{
    admin, budget, explain, history, jobs_done, negotiate, negotiations, nodes, queue, show, status, token, view, wait,
};
use crate::look_up::Found;
use crate::names::ClusterNames;
use crate::output::{Form, Show, render};
use crate::view::blocks::Canvas;
use crate::view::segments::Window;
use crate::view::svg;
use rms_api::terms::Allowed;

mod launchers;
mod licences;
mod many;
mod masks;
mod runs;
mod shared;

/// 2026-11-20T12:30:00Z
const NOW: Time = Time::from_secs(1_795_177_800);

#[test]
fn the_queue() {
    let jobs = vec![started(), malleable(), ghost(), blocked(), held()];
    check(
        "queue",
        &queue::QueueAnswer {
            queue: Queue { now: NOW, planned: NOW, jobs },
            clusters: clusters(),
            negotiations: negotiations(),
            is_filtered: false,
            shortage: None,
        },
    );
}

#[test]
fn the_queue_says_until_when_an_offer_stands_in_eighty_columns() {
    let jobs = vec![started(), malleable(), ghost(), blocked(), held()];
    let queue = Queue { now: NOW, planned: NOW, jobs };
    let answer = queue::QueueAnswer {
        queue,
        clusters: clusters(),
        negotiations: negotiations(),
        is_filtered: false,
        shortage: None,
    };
    let text = answer.people().fitted("none", Some(80));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("a[3-4] (r3: +2 until 12:30:10, "), "{text}");
}

#[test]
fn an_empty_queue() {
    let queue = Queue { now: NOW, planned: NOW, jobs: Vec::new() };
    let mut answer = queue::QueueAnswer {
        queue,
        clusters: clusters(),
        negotiations: Vec::new(),
        is_filtered: false,
        shortage: None,
    };
    check("queue_empty", &answer);
    answer.is_filtered = true;
    assert_eq!(answer.text(), "no such job waits or runs\n", "others may");
}

#[test]
fn priorities() {
    let message = "job 3 is started: a priority matters only while it waits".to_owned();
    let refused = vec![(JobId(3), Refused { kind: "wrong_state".into(), message })];
    check("priority", &jobs_done::JobsDone { word: "priority -5".into(), done: vec![JobId(5), JobId(6)], refused });
}

#[test]
fn the_nodes() {
    let node = |name: &str, state, reason: Option<&str>, jobs: Vec<JobId>| NodeLine {
        name: name.into(),
        cluster: "a".into(),
        state,
        reason: reason.map(str::to_owned),
        since: NOW - Span::from_mins(90),
        inventory: Inventory {
            sockets: 2,
            numa_nodes: 2,
            cores: 48,
            cpus: 96,
            memory: Mebibytes(262_144),
            speed_milli: 1250,
            features: BTreeSet::from(["fast".to_owned()]),
            ..Inventory::default()
        },
        free: None,
        address: "127.0.0.2:4000".into(),
        generation: Generation(9),
        jobs,
    };
    let nodes = vec![
        node("a1", NodeState::Busy, None, vec![JobId(3)]),
        node("a2", NodeState::Drained, Some("a disk"), Vec::new()),
        node("a3", NodeState::Away, Some("not heard of"), Vec::new()),
        node("a5", NodeState::Idle, None, Vec::new()),
    ];
    let clusters = vec![(ClusterId(1), "a".to_owned()), (ClusterId(2), "b".to_owned())];
    let list = NodeList { now: NOW, nodes, clusters };
    check("nodes", &nodes::NodesAnswer { list: list.clone(), negotiations: negotiations(), each: true, is_all: true });
    check_form(
        "nodes_summary",
        &nodes::NodesAnswer { list, negotiations: negotiations(), each: false, is_all: true },
        Form::Text,
    );
}

#[test]
fn one_job_and_what_became_of_another() {
    let mut farm = detail(malleable());
    Arc::make_mut(&mut farm.spec).malleable = Some(Malleable {
        least: 2,
        most: 8,
        sizes: Sizes::PowerOfTwo,
        on_resize: OnResize::Signal(10),
        speedup: Speedup(vec![(1, 1000), (2, 1900)]),
        survives_loss: None,
    });
    let warnings = BTreeMap::from([(farm.line.job, vec!["process 4242 may be many times slower".to_owned()])]);
    let found = Found { now: NOW, live: vec![detail(blocked()), farm], ended: vec![record()] };
    check("show", &show::ShowAnswer { warnings, with_script: true, is_one: false, ..show_answer(found) });
}

/// Returns the answer about one job, without what not every job has.
fn show_answer(found: Found) -> show::ShowAnswer {
    show::ShowAnswer {
        found,
        clusters: clusters(),
        negotiations: Vec::new(),
        warnings: BTreeMap::new(),
        with_script: false,
        is_one: true,
    }
}

#[test]
fn the_history() {
    let never = JobRecord {
        job: JobId(2),
        started: None,
        nodes: Vec::new(),
        outcome: Outcome::Cancelled { by: "root".into() },
        usage: Usage::default(),
        granted: None,
        ..record()
    };
    let answer = history::HistoryAnswer { records: vec![never, record()], clusters: clusters() };
    // The table shows times of today by the clock, so only the forms for programs are the same every day.
    for form in [Form::Json, Form::Quiet, Form::Parsable] {
        check_form("history", &answer, form);
    }
}

#[test]
fn what_users_have_spent() {
    let line = |user: &str, budget| BudgetLine { user: user.to_owned(), budget, spent: 1_500, reserved: 250 };
    check("budgets", &budget::Budgets { users: vec![line("ada", Some(50_000)), line("bob", None)] });
}

#[test]
fn negotiations_as_lines_and_as_stories() {
    let answer = |as_stories| {
        let allowed = Allowed::default();
        negotiations::NegotiationsAnswer { now: NOW, lines: negotiations(), clusters: clusters(), allowed, as_stories }
    };
    check("negotiations", &answer(false));
    check_form("negotiations_of_a_job", &answer(true), Form::Text);
    let none = negotiations::NegotiationsAnswer { lines: Vec::new(), ..answer(true) };
    check_form("negotiations_none", &none, Form::Text);
}

#[test]
fn what_was_negotiated() {
    let granted = negotiate::Granted {
        job: JobId(7),
        negotiation: "a1".to_owned(),
        quantity: 2,
        what: Asked::Nodes { cluster: None },
        direction: Direction::Grow,
        nodes: vec!["a5".to_owned(), "a6".to_owned()],
        generation: 3,
        n_rounds: 2,
    };
    check("negotiate", &granted);
    let what = Asked::Cores { cluster: None };
    let cores = negotiate::Granted { what, direction: Direction::Shrink, nodes: Vec::new(), ..granted };
    check_form("negotiate_cores", &cores, Form::Text);
    check_form("negotiate_cores", &cores, Form::Json);
    let time = negotiate::Granted { quantity: 1_800_000, what: Asked::Time, ..cores };
    check_form("negotiate_time", &time, Form::Text);
    check_form("negotiate_time", &time, Form::Json);
}

#[test]
fn why_jobs_are_where_they_are() {
    let lines = [started(), malleable(), ghost(), first_run(blocked()), first_run(held())];
    let found = Found { now: NOW, live: lines.into_iter().map(detail).collect(), ended: vec![record()] };
    check(
        "explain",
        &explain::ExplainAnswer {
            found,
            clusters: clusters(),
            negotiations: negotiations(),
            allowed: Allowed::default(),
            away: Vec::new(),
            shortage: None,
        },
    );
}

#[test]
fn a_refused_proposal_is_explained_by_its_term() {
    let mut last = negotiations().remove(0);
    let (phase, reason) = (Phase::Ended(Ending::Rejected), Some(negotiation::Reason::Policy));
    last.record.rounds.push(RoundRecord { at: NOW, said: Said::Phase { phase, reason } });
    last.phase = phase;
    let found = Found { now: NOW, live: vec![detail(malleable())], ended: Vec::new() };
    let allowed = Allowed::default();
    let text = explain::ExplainAnswer {
        found,
        clusters: clusters(),
        negotiations: vec![last],
        allowed,
        away: Vec::new(),
        shortage: None,
    }
    .text();
    let expected = "The last negotiation, a1, was rejected: nodes: 1 fewer proposed; named nodes have to be its own";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_occupation() {
    let view = occupation();
    let window = Window::of(NOW, &view.clusters, None);
    let canvas = Canvas { width: 72, height: 12, colours: false };
    let picture = svg::draw(&view.clusters, NOW, None, window);
    check("view", &view::Drawing { view, window, canvas });
    check_text("view.svg", &picture);
}

#[test]
fn how_jobs_ended() {
    let outcomes = BTreeMap::from([
        (JobId(1), Outcome::Completed),
        (JobId(2), Outcome::Failed { code: 3 }),
        (JobId(3), Outcome::Signaled { signal: 9 }),
    ]);
    check("wait", &wait::WaitAnswer { outcomes });
}

#[test]
fn what_an_order_did() {
    let refused = vec![(JobId(9), Refused::new("no_such_job", "there is no job 9 in the queue or running"))];
    check("cancel", &jobs_done::JobsDone { word: "cancelled".into(), done: vec![JobId(3), JobId(4)], refused });
}

#[test]
fn tokens_and_certificates() {
    let ada = Identity::new(Role::User, "ada").expect("a name");
    let token = |id: &str, identity, state, ca: &str| Token {
        id: id.into(),
        digest: [0; 32],
        identity,
        cluster: Some("a".into()),
        created: NOW,
        created_by: "root".into(),
        expires: NOW + Span::from_mins(10),
        state,
        redeemed: None,
        ca: Some(ca.into()),
    };
    let tokens = vec![
        token("abcd", TokenIdentity::AnyAgent, TokenState::Open, "new"),
        token("efgh", TokenIdentity::Named(ada.clone()), TokenState::Used { at: NOW }, "old"),
        token("ijkl", TokenIdentity::Named(ada.clone()), TokenState::Open, "old"),
    ];
    check("tokens", &token::Tokens { tokens, ca: "new".into(), now: NOW });
    let issued = |serial: &str, revoked, renews: Option<&str>| Issued {
        serial: serial.into(),
        identity: ada.clone(),
        issued: NOW,
        expires: NOW + Span::from_hours(24),
        revoked,
        replaces: Vec::new(),
        renews: renews.map(str::to_owned),
    };
    let certificates =
        vec![issued("4a0b", None, None), issued("4a0c", Some(NOW), None), issued("4a0d", None, Some("4a0b"))];
    check("certificates", &token::Certificates { certificates, now: NOW });
}

#[test]
fn the_server() {
    let status = Status {
        now: NOW,
        n_nodes: 4,
        n_connected: 3,
        n_waiting: 2,
        n_started: 1,
        n_ghosts: 1,
        n_submitted: 77,
        n_passes: 150,
        last_pass: Some(NOW),
        ghost_node_time: Span::from_secs(75),
        launchers: LauncherStatus::default(),
        queue_depth: Some(1400),
        shortage: Some("no space is left for the journal /j: no new work is accepted until some is freed".into()),
    };
    let adaptations = AdaptationDelays {
        count: 5,
        total: Span::from_secs(90),
        longest: Span::from_secs(80),
        buckets: vec![3, 0, 1, 0, 0, 0, 0, 0, 0, 1],
    };
    let launchers = LauncherStatus {
        n_launchers: 3,
        n_connected: 2,
        n_notices: 500,
        notice_bytes: 70_000,
        n_requests: 40,
        request_bytes: 360,
        n_refused: 1,
        adaptations,
        ghost_node_time: vec![("a".into(), Span::from_secs(70)), ("b".into(), Span::from_secs(5))],
    };
    let traffic = LauncherTraffic { n_open: 2, n_opened: 9, bytes_up: 4000, bytes_down: 90_000 };
    let server = ServerReport {
        version: "0.1.0".into(),
        since: NOW - Span::from_hours(50),
        journal_bytes: 3_000_000,
        snapshot: Some(NOW - Span::from_hours(2)),
        snapshot_bytes: 40_000,
        history_failure: Some("cannot be read: database disk image is malformed".into()),
    };
    let report = LauncherReport { status: launchers, traffic };
    check("status", &status::StatusAnswer { status, report, server });
    let change = AuditEntry::of_setting(NOW, "root", "fair_start", "0s", "10s");
    let drained = AuditEntry {
        action: "drain".into(),
        subject: "a[1-2]".into(),
        old: String::new(),
        new: "new memory".into(),
        ..change.clone()
    };
    check("audit", &admin::Audit { changes: vec![change, drained], now: NOW });
    let settings = vec![("fair_start".into(), "10s".into()), ("queue_depth".into(), "auto".into())];
    check("settings", &admin::SettingList { settings, depth: Some(1400) });
}

fn clusters() -> ClusterNames {
    ClusterNames::new([(ClusterId(1), "a".to_owned()), (ClusterId(2), "b".to_owned())])
}

fn line(job: u64, state: JobState) -> JobLine {
    JobLine {
        job: JobId(job),
        run: Run(1),
        labels: Labels::named("nbody"),
        owner: Owner("ada".into()),
        state,
        priority: 0,
        n_tasks: 4,
        cpus_per_task: 1,
        resources: ResourceRequest::default(),
        submitted: NOW - Span::from_mins(20),
        requested: Some(NOW - Span::from_mins(20)),
        request: Request::on_one(ClusterId(1), 2, Span::from_hours(1)),
        started: None,
        estimate: None,
        until: None,
        nodes: Vec::new(),
        reason: None,
        outcome: None,
        stages: None,
        malleable: None,
    }
}

fn started() -> JobLine {
    JobLine {
        started: Some(NOW - Span::from_mins(10)),
        until: Some(NOW + Span::from_mins(50)),
        nodes: vec!["a1".into(), "a2".into()],
        ..line(3, JobState::Started)
    }
}

/// Returns a job that negotiates for more nodes.
fn malleable() -> JobLine {
    let declared =
        Declared { least: 2, most: 8, sizes: Sizes::PowerOfTwo, speedup: Speedup(vec![(1, 1000), (2, 1900)]) };
    let stages = Stages {
        number: 1,
        n_stages: 1,
        legs: Vec::new(),
        late_by: None,
        open: false,
        generation: 2,
        chosen: Vec::new(),
        leaving: vec!["a4".into()],
        n_violations: 0,
    };
    JobLine {
        labels: Labels::named("farm"),
        nodes: vec!["a3".into(), "a4".into()],
        malleable: Some(declared),
        stages: Some(stages),
        job: JobId(7),
        ..started()
    }
}

/// Returns negotiations: job 7 was offered nodes and countered, and gave some back before.
fn negotiations() -> Vec<NegotiationLine> {
    let parties = |initiator| Parties { job: JobId(7), run: Run(1), initiator };
    let at = |secs| NOW - Span::from_secs(secs);
    let offer = |quantity| Item::up_to(Resource::Nodes(ClusterId(1)), 2, quantity);
    let proposed = |secs, by, round, initiator, direction, item: Item| RoundRecord {
        at: at(secs),
        said: Said::Proposed {
            by,
            round,
            template: Template::of_one(parties(initiator), direction, item).expect("a template"),
        },
    };
    let phase = |secs, phase, reason| RoundRecord { at: at(secs), said: Said::Phase { phase, reason } };
    let mut priced = offer(6);
    priced.terms.price = Price(500);
    priced.terms.duration = Some(Span::from_mins(10));
    let mut countered = offer(2);
    countered.terms.sizes = Sizes::PowerOfTwo;
    countered.terms.price = Price(250);
    countered.terms.duration = Some(Span::from_mins(10));
    let open = NegotiationRecord {
        id: NegotiationId { initiator: Side::Rms, number: 3 },
        direction: Direction::Grow,
        by: None,
        opened: at(20),
        rounds: vec![
            proposed(20, Side::Rms, 1, Side::Rms, Direction::Grow, priced),
            proposed(19, Side::Application, 2, Side::Rms, Direction::Grow, countered),
        ],
        nodes: Vec::new(),
    };
    let given = NegotiationRecord {
        id: NegotiationId { initiator: Side::Application, number: 1 },
        direction: Direction::Shrink,
        by: Some("ada".to_owned()),
        opened: at(300),
        rounds: vec![
            proposed(300, Side::Application, 1, Side::Application, Direction::Shrink, offer(1)),
            phase(300, Phase::Accepted, None),
            phase(299, Phase::Committing, None),
            phase(280, Phase::Applied, None),
        ],
        nodes: vec!["a6".to_owned()],
    };
    let refused = NegotiationRecord {
        id: NegotiationId { initiator: Side::Application, number: 2 },
        direction: Direction::Grow,
        by: Some("7.1".to_owned()),
        opened: at(100),
        rounds: vec![
            proposed(100, Side::Application, 1, Side::Application, Direction::Grow, offer(40)),
            phase(100, Phase::Ended(Ending::Rejected), Some(negotiation::Reason::NoResources)),
        ],
        nodes: Vec::new(),
    };
    let line = |record, phase, until, held: &[&str]| NegotiationLine {
        job: JobId(7),
        run: Run(1),
        owner: "ada".to_owned(),
        record,
        phase,
        until,
        held: held.iter().map(|node| (*node).to_owned()).collect(),
    };
    vec![
        line(given, Phase::Applied, None, &[]),
        line(refused, Phase::Ended(Ending::Rejected), None, &[]),
        line(open, Phase::Countered(Side::Application), Some(NOW + Span::from_secs(10)), &["a5", "a6"]),
    ]
}

fn ghost() -> JobLine {
    JobLine {
        started: Some(NOW - Span::from_mins(10)),
        until: Some(NOW + Span::from_secs(5)),
        nodes: vec!["a3".into()],
        outcome: Some(Outcome::Completed),
        ..line(4, JobState::Ghost)
    }
}

fn blocker(job: u64, state: JobState, nodes: u32, mins: i64) -> Blocker {
    let until = NOW + Span::from_mins(mins);
    Blocker {
        job: JobId(job),
        state,
        nodes,
        from: NOW - Span::from_mins(10),
        until,
        is_offer: false,
        is_promised: false,
    }
}

pub fn blocked() -> JobLine {
    let by = vec![
        blocker(3, JobState::Started, 2, 50),
        blocker(4, JobState::Ghost, 1, 5),
        Blocker { is_offer: true, ..blocker(7, JobState::Started, 1, 50) },
    ];
    JobLine {
        labels: Labels::named("a name that is much too long for a column"),
        estimate: Some(NOW + Span::from_mins(50)),
        reason: Some(Reason::Blocked {
            cluster: "a".into(),
            wanted: 4,
            capacity: 4,
            busy: 3,
            from: NOW,
            until: NOW + Span::from_mins(50),
            by,
            total: 6,
            short: None,
            licence: None,
            neighbours: Vec::new(),
            lenders: None,
        }),
        request: Request::on_one(ClusterId(1), 4, Span::from_mins(30)),
        ..line(5, JobState::Waiting)
    }
}

fn held() -> JobLine {
    JobLine { reason: Some(Reason::Held { by: "ada".into() }), requested: None, ..line(6, JobState::Held) }
}

/// Returns a job that waits for its first run.
fn first_run(line: JobLine) -> JobLine {
    JobLine { run: Run(0), ..line }
}

fn detail(line: JobLine) -> JobDetail {
    let spec = JobSpec {
        labels: Labels { comment: "second try".into(), ..line.labels.clone() },
        tasks: TaskCount::Total(4),
        cpus_per_task: 1,
        ..JobSpec::of(
            line.owner.clone(),
            Execution {
                cwd: "/home/ada".into(),
                stdio: Stdio { output: Some("rms-%j.out".into()), ..Stdio::default() },
                ..Execution::from(Work::Script {
                    script: "#!/bin/sh\nmpirun ./nbody\n".into(),
                    args: vec!["--fast".into()],
                })
            },
            vec![line.request.clone(), Request::on_one(ClusterId(1), 2, Span::from_hours(1))],
        )
    };
    let cores = |node: &str, is_in_force| CoresLine { node: node.to_owned(), n_cores: 3, all: 48, is_in_force };
    JobDetail {
        sharing: None,
        limited: Vec::new(),
        line,
        spec: Arc::new(spec),
        cores: vec![cores("a2", true), cores("a3", false)],
        grants: BTreeMap::new(),
        licences: BTreeMap::new(),
        ended_before: None,
        former_runs: Vec::new(),
    }
}

fn record() -> JobRecord {
    JobRecord {
        labels: Labels::named("first"),
        started: Some(NOW - Span::from_mins(100)),
        ended: NOW - Span::from_mins(90),
        n_tasks: 1,
        cpus_per_task: 1,
        nodes: vec!["b1".into()],
        outcome: Outcome::Failed { code: 3 },
        usage: Usage { cpu: Span::from_secs(590), peak_memory_kib: 20_480 },
        granted: Some(Granted {
            cores: 4,
            memory: Mebibytes(2048),
            devices: "gpu:a100:1".parse().expect("one"),
            core_time: 2_400_000,
            ..Granted::default()
        }),
        ..JobRecord::of(
            JobId(1),
            Owner("ada".into()),
            Request::on_one(ClusterId(2), 1, Span::from_hours(1)),
            NOW - Span::from_hours(2),
        )
    }
}

fn occupation() -> ViewAnswer {
    let profile = |blocks: &[(i64, i64, i64)]| {
        let block = |(from, until, nodes): &(i64, i64, i64)| Block {
            from: NOW + Span::from_mins(*from),
            until: NOW + Span::from_mins(*until),
            nodes: *nodes,
        };
        Profile::from_blocks(blocks.iter().map(block))
    };
    let offered = profile(&[(-1, 50, 1)]);
    let cluster = |id, name: &str, started, ghosts, planned| ClusterView {
        cluster: ClusterId(id),
        name: name.into(),
        capacity: 4,
        total: 4,
        started,
        ghosts,
        planned,
        offered: if id == 1 { offered.clone() } else { Profile::new() },
        choosable: None,
        cores: None,
    };
    let clusters = vec![
        cluster(1, "a", profile(&[(-10, 50, 2)]), profile(&[(-1, 1, 1)]), profile(&[(50, 80, 4), (10, 40, 1)])),
        cluster(2, "b", profile(&[]), profile(&[]), profile(&[])),
    ];
    ViewAnswer { now: NOW, job: None, clusters }
}

fn check(name: &str, answer: &impl Show) {
    for form in [Form::Text, Form::Json, Form::Quiet, Form::Parsable] {
        check_form(name, answer, form);
    }
}

fn check_form(name: &str, answer: &impl Show, form: Form) {
    let text = match form {
        // Indented, so that each difference is one line of the diff.
        Form::Json => serde_json::to_string_pretty(&answer.json()).expect("it is a value") + "\n",
        Form::Text | Form::Quiet | Form::Parsable => render(answer, form),
    };
    let kind = match form {
        Form::Text => "txt",
        Form::Json => "json",
        Form::Quiet => "ids",
        Form::Parsable => "fields",
    };
    check_text(&format!("{name}.{kind}"), &text);
}

fn check_text(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("LIMBER_BLESS").is_some() {
        std::fs::write(&path, text).expect("the sources can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{file} differs from {}:\n--- expected\n{golden}\n--- actual\n{text}\nif it is meant so: LIMBER_BLESS=1",
        path.display()
    );
}
