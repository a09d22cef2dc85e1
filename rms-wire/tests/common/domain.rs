//! One value of everything that is sent, in the types of the domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::answer::{
    Blocker, ClusterView, CoresLine, JobChange, JobDetail, JobLine, JobState, LauncherStatus, NodeLine, NodeState,
    Reason, Status, ViewAnswer,
};
use rms_api::audit::AuditEntry;
use rms_api::call::{CertificateSelect, JobsOfRevoked, Nodes, Query, Select, Shape, Submission, TokenOrder};
use rms_api::desired::AgentHello;
use rms_api::desired::{Aim, Desired, DesiredJob, JobReport, JobStatus, Launch, LaunchNode, NodeExit, NodeReport};
use rms_api::filter::{Column as _, JobColumn, JobFilter, NodeColumn, NodeFilter, Way};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_model::job::{Constraint, TaskCount};
use rms_model::profile::Block;
use rms_model::token::{Issued, Token, TokenIdentity, TokenState};
use rms_model::{
    ClusterId, Devices, Environment, Evolving, Execution, ExpandLimit, Expansion, Generation, Identity, Inventory,
    JobId, JobRecord, JobSpec, Labels, Limits, Mebibytes, NodeId, OnResize, Outcome, Owner, Profile, Request,
    ResourceRequest, Role, Run, Span, Stdio, Time, Usage, Work,
};

use super::negotiating;

fn secs(secs: i64) -> Time {
    Time::from_secs(secs)
}

pub fn identity(role: Role, name: &str) -> Identity {
    Identity::new(role, name).expect("a name")
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

fn features() -> BTreeSet<String> {
    BTreeSet::from(["gpu".to_owned(), "ib".to_owned()])
}

fn environment() -> Environment {
    Environment(vec![("PATH".to_owned(), "/bin".to_owned()), ("EMPTY".to_owned(), String::new())])
}

fn limits() -> Limits {
    Limits { open_files: Some(1024), core_bytes: Some(0), stack_bytes: Some(8 << 20), ..Limits::default() }
}

fn stdio() -> Stdio {
    let (output, error) = (Some("out-%j".to_owned()), Some("err-%j".to_owned()));
    Stdio { input: Some("/dev/null".to_owned()), output, error, append: true, stream: false }
}

fn constraint() -> Constraint {
    Constraint { features: features(), memory: Mebibytes(4096), cpus: 8, ..Constraint::default() }
}

fn script() -> Work {
    Work::Script { script: "#!/bin/sh\necho hello\n".to_owned(), args: texts(["a", "b c"]) }
}

fn request() -> Request {
    Request { nodes: BTreeMap::from([(ClusterId(0), 2), (ClusterId(3), 300)]), wall: Span::from_hours(2) }
}

fn execution() -> Execution {
    Execution {
        work: script(),
        cwd: "/home/alice".to_owned(),
        environment: Arc::new(environment()),
        umask: 0o022,
        stdio: stdio(),
        limits: limits(),
        malleable_threads: false,
    }
}

pub fn submission() -> Submission {
    Submission {
        labels: labels(),
        execution: execution(),
        n_tasks: Some(4),
        cpus_per_task: 2,
        shapes: vec![
            Shape { nodes: Nodes::FromTasks, wall: None },
            Shape { nodes: Nodes::Count(4), wall: Some(Span::from_mins(30)) },
            Shape {
                nodes: Nodes::PerCluster(BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)])),
                wall: Some(Span::from_hours(1)),
            },
        ],
        clusters: texts(["a", "b"]),
        constraint: constraint(),
        resources: ResourceRequest::default(),
        priority: -5,
        hold: true,
        requeue: None,
        begin: Some(secs(1_800_000_000)),
        test_only: false,
        evolving: Some(evolving()),
        malleable: Some(negotiating::malleable(OnResize::Negotiates)),
    }
}

fn labels() -> Labels {
    Labels { comment: "überprüft".to_owned(), ..Labels::named("nbody") }
}

fn evolving() -> Evolving {
    let stages = "2x500s,8x1h".parse().expect("a profile");
    Evolving { stages, expansion: Expansion { limit: ExpandLimit::Milli(1500), compacting: true }, open: true }
}

fn token_order() -> TokenOrder {
    TokenOrder {
        id: "abcd".to_owned(),
        digest: [7; 32],
        identity: TokenIdentity::Named(identity(Role::User, "alice")),
        cluster: None,
        ttl: Span::from_mins(10),
        ca: None,
    }
}

/// Returns every call but the join.
pub fn calls() -> Vec<Call> {
    let mut calls = first_calls();
    calls.push(Call::Query(Query::Budgets));
    let (a, b) = ("a".to_owned(), "b".to_owned());
    calls.push(Call::SetLink { a, b, latency_us: 5000, bandwidth_mbit: 10_000 });
    calls
}

fn first_calls() -> Vec<Call> {
    let ids = || Select::Ids(vec![JobId(1), JobId(300), JobId(1 << 40)]);
    let any_agent = TokenOrder { identity: TokenIdentity::AnyAgent, cluster: Some("a".to_owned()), ..token_order() };
    let execution = Execution { work: Work::Tasks { argv: texts(["./a.out", "-n", "1"]) }, ..execution() };
    let tasks = Submission { execution, ..submission() };
    let resizing = negotiating::on_resizes().into_iter().map(|on_resize| {
        let malleable = Some(negotiating::malleable(on_resize));
        Call::Submit(Box::new(Submission { malleable, evolving: None, ..submission() }))
    });
    let queries = [
        Query::Queue(Default::default()),
        Query::Queue(JobFilter {
            jobs: vec![JobId(1), JobId(2)],
            users: texts(["alice"]),
            states: JobState::IN_SYSTEM.to_vec(),
            names: texts(["nbody"]),
            clusters: texts(["a"]),
            since: Some(Time::from_secs(1)),
            sort: JobColumn::WORDS.iter().map(|(_, column)| (*column, Way::Down)).collect(),
            limit: 50,
            offset: 100,
            accounts: Vec::new(),
        }),
        Query::Job(Select::Last),
        Query::Nodes(Default::default()),
        Query::Nodes(NodeFilter {
            names: texts(["n1", "n2"]),
            users: texts(["alice"]),
            states: NodeState::ALL.to_vec(),
            clusters: texts(["a"]),
            sort: NodeColumn::WORDS.iter().map(|(_, column)| (*column, Way::Up)).collect(),
            limit: 50,
            offset: 100,
            since: None,
        }),
        Query::Clusters,
        Query::Explain(Select::All),
        Query::View { job: Some(JobId(7)) },
        Query::View { job: None },
        Query::Settings,
        Query::Audit,
        Query::Tokens,
        Query::Certificates,
        Query::Status,
        Query::Negotiations { job: Some(JobId(7)) },
        Query::Negotiations { job: None },
    ];
    let mut calls = vec![
        Call::Submit(Box::new(submission())),
        Call::Submit(Box::new(tasks)),
        Call::Cancel { select: ids() },
        Call::Signal { select: Select::Last, signal: 10 },
        Call::Hold { select: Select::All },
        Call::Release { select: Select::User("bob".to_owned()) },
        Call::set_priority(ids(), i32::MIN),
        Call::Set { key: "fair_start".to_owned(), value: "10s".to_owned() },
        Call::Drain { nodes: texts(["n1", "n2"]), reason: "disk".to_owned() },
        Call::Down { nodes: texts(["n3"]), reason: "fire".to_owned() },
        Call::Resume { nodes: texts(["n1"]) },
        Call::Remove { nodes: texts(["n4"]) },
        Call::CreateToken(token_order()),
        Call::CreateToken(any_agent),
        Call::RevokeToken { id: "abcd".to_owned() },
        Call::Renew { csr: vec![1, 2, 3], serial: "5e".to_owned(), renews: None },
        Call::RevokeCertificate { which: CertificateSelect::Serial("0a".to_owned()), jobs: None },
        Call::RevokeCertificate {
            which: CertificateSelect::Identity(identity(Role::Agent, "n1")),
            jobs: Some(JobsOfRevoked::Keep),
        },
        Call::RevokeCertificate {
            which: CertificateSelect::Identity(identity(Role::User, "ada")),
            jobs: Some(JobsOfRevoked::Cancel),
        },
        Call::RemoveCluster { name: "a".to_owned() },
    ];
    calls.push(Call::SetLink { a: "a".to_owned(), b: "b".to_owned(), latency_us: 5000, bandwidth_mbit: 10_000 });
    calls.push(Call::Evolve { job: JobId(5), stages: evolving().stages, open: false });
    calls.push(Call::FreeNodes { job: JobId(5), nodes: texts(["n2"]) });
    calls.extend(queries.map(Call::Query));
    calls.extend(resizing);
    calls.extend(negotiating::client_calls());
    calls
}

/// Returns more answers.
fn more_answers() -> Vec<Answer> {
    let stuck = |reason| Answer::WouldStart {
        request: request(),
        at: None,
        reason: Some(reason),
        sizes: Vec::new(),
        now: None,
        lent_by: Vec::new(),
    };
    let mut answers = vec![Answer::Budgets(negotiating::budgets())];
    answers.extend(later_reasons().map(stuck));
    answers
}

fn node(idx: u32) -> LaunchNode {
    LaunchNode {
        node: NodeId(idx + 7),
        address: format!("127.0.0.1:{}", 7000 + idx),
        first_task: idx * 2,
        n_tasks: 2,
        cpus: 4,
        joined: idx + 1,
        departing: idx == 1,
        ..test_kit::place(&format!("n{idx}"))
    }
}

pub fn desired() -> Desired {
    let launch = Arc::new(Launch {
        labels: labels(),
        owner: Owner("alice".to_owned()),
        execution: Execution { umask: 0o077, ..execution() },
        n_tasks: 4,
        cpus_per_task: 2,
        wall: Span::from_hours(1),
        grace: Span::from_secs(10),
        nodes: vec![node(0), node(1)],
        generation: 2,
        on_resize: None,
        least: 2,
        most: 8,
        memory: Mebibytes(64),
        one_thread_a_core: false,
        min_cpus_per_task: Vec::new(),
        submitted: Time::EPOCH,
    });
    let job =
        |job, aim, node_idx| DesiredJob { job: JobId(job), run: Run(2), aim, launch: Arc::clone(&launch), node_idx };
    let mut jobs =
        vec![job(5, Aim::Run, 0), job(6, Aim::End { patience: Span::from_secs(2), grace: Span::from_secs(3) }, 1)];
    for (idx, on_resize) in (7..).zip(negotiating::on_resizes()) {
        let launch = Arc::new(Launch { on_resize: Some(on_resize), ..launch.as_ref().clone() });
        jobs.push(DesiredJob { job: JobId(idx), run: Run(1), aim: Aim::Run, launch, node_idx: 0 });
    }
    Desired { generation: Generation(77), jobs }
}

pub fn hello() -> AgentHello {
    let (cluster, address) = ("a".to_owned(), "10.0.0.1:7000".to_owned());
    AgentHello { cluster, address, inventory: inventory(), trouble: None }
}

fn inventory() -> Inventory {
    Inventory {
        sockets: 2,
        numa_nodes: 2,
        cores: 24,
        cpus: 48,
        memory: Mebibytes(262_144),
        speed_milli: 1250,
        features: features(),
        devices: Devices::default(),
        scratch: Mebibytes(0),
        unenforced: BTreeSet::new(),
        package_cores: Vec::new(),
        domain_cores: Vec::new(),
    }
}

pub fn usage() -> Usage {
    Usage { cpu: Span::from_millis(123_456), peak_memory_kib: 65_536 }
}

pub fn report() -> NodeReport {
    let exits = [
        NodeExit::Exited { code: 0 },
        NodeExit::Signaled { signal: 9 },
        NodeExit::Aborted { code: -1 },
        NodeExit::WallTime,
        NodeExit::Ordered,
        NodeExit::Vanished { reason: "the node was restarted".to_owned() },
        NodeExit::not_started("no such user"),
        NodeExit::Overstayed,
    ];
    let status = |exit| JobStatus::Ended { at: secs(100), exit, usage: usage() };
    let confined = JobStatus::Running { since: secs(50), generation: 3, is_confined: false };
    let statuses = exits.map(status).into_iter().chain([JobStatus::running(secs(50)), confined]);
    let report = |(idx, status)| JobReport { job: JobId(idx as u64), run: Run(1), status };
    NodeReport { seen: Generation(76), jobs: statuses.enumerate().map(report).collect() }
}

/// Returns reasons added later, so that the others keep their places.
fn later_reasons() -> [Reason; 3] {
    [
        Reason::AgentsExpected { cluster: "a".to_owned(), n_nodes: 3, until: secs(5) },
        Reason::LauncherAway { since: secs(6), until: Some(secs(7)) },
        Reason::Behind { policy: rms_model::Policy::Fcfs, job: JobId(4), until: secs(5) },
    ]
}

fn reasons() -> Vec<Reason> {
    let cluster = || "a".to_owned();
    vec![
        Reason::Held { by: "alice".to_owned() },
        Reason::NotBefore { at: secs(1) },
        Reason::NotPlanned { next_pass: secs(2) },
        Reason::BeyondDepth { depth: 1000, position: 1001 },
        Reason::TooFewNodes {
            cluster: cluster(),
            wanted: 8,
            usable: 3,
            total: 9,
            licence: None,
            contiguous: false,
            lacking: None,
        },
        Reason::Blocked {
            cluster: cluster(),
            wanted: 4,
            capacity: 8,
            busy: 6,
            from: secs(3),
            until: secs(4),
            by: vec![Blocker {
                job: JobId(4),
                state: JobState::Ghost,
                nodes: 6,
                from: secs(1),
                until: secs(5),
                is_offer: false,
                is_promised: true,
            }],
            total: 9,
            short: None,
            licence: None,
            neighbours: Vec::new(),
            lenders: None,
        },
    ]
}

/// Returns exits that only a node can report.
pub fn ends_by_the_node() -> NodeReport {
    let exits = [
        NodeExit::OutOfMemory,
        NodeExit::Unsupervised { reason: "its supervisor was killed".to_owned() },
        NodeExit::Violated { reason: "its output is too long".to_owned() },
    ];
    let report = |(job, exit)| {
        let status = JobStatus::Ended { at: secs(100), exit, usage: usage() };
        JobReport { job: JobId(job), run: Run(1), status }
    };
    NodeReport { jobs: (1..).zip(exits).map(report).collect(), ..NodeReport::default() }
}

pub fn outcomes() -> Vec<Outcome> {
    let node = || "n1".to_owned();
    vec![
        Outcome::Completed,
        Outcome::Failed { code: 3 },
        Outcome::Signaled { signal: 11 },
        Outcome::Cancelled { by: "root".to_owned() },
        Outcome::WallTime,
        Outcome::NodeLost { node: node(), reason: String::new() },
        Outcome::LauncherLost,
        Outcome::NotStarted { node: node(), reason: "no such file".to_owned() },
    ]
}

const STATES: [JobState; 8] = [
    JobState::Submitted,
    JobState::Held,
    JobState::RequestSent,
    JobState::Waiting,
    JobState::Started,
    JobState::Ending,
    JobState::Ghost,
    JobState::Finished,
];

pub fn job_line(job: u64) -> JobLine {
    JobLine {
        job: JobId(job),
        run: Run(1),
        labels: labels(),
        owner: Owner("alice".to_owned()),
        state: STATES[job as usize % STATES.len()],
        priority: 3,
        n_tasks: 4,
        cpus_per_task: 2,
        resources: ResourceRequest::default(),
        submitted: secs(10),
        requested: Some(secs(11)),
        request: request(),
        started: Some(secs(12)),
        estimate: Some(secs(13)),
        until: Some(secs(14)),
        nodes: texts(["n1", "n2"]),
        reason: reasons().into_iter().nth(job as usize % 7),
        outcome: outcomes().into_iter().nth(job as usize % 9),
        stages: job.is_multiple_of(2).then(negotiating::stages),
        malleable: None,
    }
}

fn spec(tasks: TaskCount) -> JobSpec {
    JobSpec {
        labels: labels(),
        tasks,
        cpus_per_task: 2,
        constraint: constraint(),
        priority: 1,
        requeue: Some(true),
        evolving: Some(evolving()),
        malleable: Some(negotiating::malleable(OnResize::Workers)),
        ..JobSpec::of(Owner("alice".to_owned()), script(), vec![request()])
    }
}

pub fn profile() -> Profile {
    let block = |from, until, nodes| Block { from: secs(from), until: secs(until), nodes };
    Profile::from_blocks([block(1, 5, 3), block(3, 9, 2), block(20, 30, 1)])
}

fn token(state: TokenState) -> Token {
    Token {
        id: "abcd".to_owned(),
        digest: [9; 32],
        identity: TokenIdentity::AnyAgent,
        cluster: Some("a".to_owned()),
        created: secs(1),
        created_by: "root".to_owned(),
        expires: secs(601),
        state,
        redeemed: None,
        ca: None,
    }
}

const NODE_STATES: [NodeState; 8] = [
    NodeState::Idle,
    NodeState::Busy,
    NodeState::Ghost,
    NodeState::Draining,
    NodeState::Drained,
    NodeState::Down,
    NodeState::Away,
    NodeState::Lost,
];

pub fn node_line(state: NodeState) -> NodeLine {
    NodeLine {
        name: "n1".to_owned(),
        cluster: "a".to_owned(),
        state,
        reason: Some("disk".to_owned()),
        since: secs(5),
        inventory: inventory(),
        free: None,
        address: "10.0.0.1:7000".to_owned(),
        generation: Generation(8),
        jobs: vec![JobId(5)],
    }
}

pub fn change() -> JobChange {
    let outcome = Some(Outcome::Failed { code: 1 });
    JobChange { job: JobId(5), run: Run(2), state: JobState::Ghost, nodes: texts(["n1"]), outcome, submitted: None }
}

pub fn record(job: u64) -> JobRecord {
    JobRecord {
        labels: labels(),
        eligible: secs(2),
        started: Some(secs(3)),
        ended: secs(4),
        n_tasks: 4,
        cpus_per_task: 2,
        nodes: texts(["n1", "n2"]),
        outcome: outcomes().swap_remove(job as usize % 8),
        usage: usage(),
        ..JobRecord::of(JobId(job), Owner("alice".to_owned()), request(), secs(1))
    }
}

/// Returns every answer, with every variant inside.
pub fn answers() -> Vec<Answer> {
    let mut answers = first_answers();
    answers.extend(more_answers());
    answers
}

fn first_answers() -> Vec<Answer> {
    let now = secs(1000);
    let view = |cluster| ClusterView {
        cluster: ClusterId(cluster),
        name: format!("c{cluster}"),
        capacity: 8,
        total: 9,
        started: profile(),
        ghosts: Profile::new(),
        planned: profile(),
        offered: profile(),
        choosable: None,
        cores: None,
    };
    let change = |key: &str| AuditEntry::of_setting(secs(1), "root", key, "0s", "10s");
    let issued = Issued {
        serial: "5e".to_owned(),
        identity: identity(Role::Admin, "root"),
        issued: secs(1),
        expires: secs(2),
        revoked: Some(secs(3)),
        replaces: Vec::new(),
        renews: None,
    };
    let cores = || CoresLine { node: "n2".to_owned(), n_cores: 3, all: 8, is_in_force: false };
    let detail = |job, tasks| JobDetail {
        sharing: None,
        limited: Vec::new(),
        line: job_line(job),
        spec: std::sync::Arc::new(spec(tasks)),
        cores: vec![cores()],
        grants: BTreeMap::new(),
        licences: BTreeMap::new(),
        ended_before: None,
        former_runs: Vec::new(),
    };
    vec![
        Answer::Done,
        Answer::Submitted { job: JobId(12) },
        Answer::WouldStart {
            request: request(),
            at: Some(secs(5)),
            reason: reasons().pop(),
            sizes: Vec::new(),
            now: None,
            lent_by: Vec::new(),
        },
        Answer::Jobs {
            done: vec![JobId(1), JobId(2)],
            refused: [(JobId(3), Refusal::NoSuchJob(JobId(3))), (JobId(4), Refusal::NoJobs)]
                .map(|(job, refusal)| (job, Refused::from(&refusal)))
                .to_vec(),
        },
        Answer::Queue { now, planned: now, jobs: (0..72).map(job_line).collect() },
        Answer::Detail {
            now,
            planned: now,
            jobs: vec![detail(1, TaskCount::PerNode(4)), detail(2, TaskCount::Total(9))],
        },
        Answer::Nodes {
            now,
            nodes: NODE_STATES.map(node_line).to_vec(),
            clusters: vec![(ClusterId(0), "a".to_owned()), (ClusterId(1), "b".to_owned())],
        },
        Answer::View(ViewAnswer { now, job: Some(JobId(3)), clusters: vec![view(0), view(1)] }),
        Answer::Settings(vec![("fair_start".to_owned(), "10s".to_owned())]),
        Answer::Audit(vec![change("fair_start")]),
        Answer::Tokens(vec![
            token(TokenState::Open),
            token(TokenState::Used { at: secs(2) }),
            token(TokenState::Revoked { at: secs(2), by: "root".to_owned() }),
        ]),
        Answer::Certificates(vec![issued]),
        Answer::Status(Status {
            now,
            n_nodes: 4,
            n_connected: 3,
            n_waiting: 2,
            n_started: 1,
            n_ghosts: 1,
            n_submitted: 99,
            n_passes: 1000,
            last_pass: Some(secs(999)),
            ghost_node_time: Span::from_secs(60),
            launchers: LauncherStatus::default(),
            queue_depth: None,
            shortage: None,
        }),
        Answer::Negotiated(negotiating::outcomes().swap_remove(0)),
        Answer::Negotiated(negotiating::outcomes().swap_remove(1)),
        Answer::Negotiations { now, lines: negotiating::lines() },
    ]
}
