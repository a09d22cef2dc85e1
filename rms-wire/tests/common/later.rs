//! Values that were added after those of [`domain`](super::domain), so that the samples of the latter keep their
//! numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_api::answer::{
    ClusterView, CoresView, JobChange, JobDetail, JobLine, Lacking, Lenders, LicenceHolder, LicenceLine,
    LicenceShortage, LoanLine, NeverGuest, NodeLine, NodeState, Reason, Required, SharingDetail, Shortage, Status,
    ViewAnswer,
};
use rms_api::call::update::{Changes, Resizing, ResizingChanges, ResourceChanges, SizeRange, WallChange};
use rms_api::call::{HistoryQuery, Nodes, Select, Shape, Submission};
use rms_api::desired::{AgentHello, Desired, JobReport, JobStatus, NodeReport};
use rms_api::filter::{JobColumn, JobFilter, NodeFilter, RecordColumn, Way};
use rms_api::masks::{JobMasks, MaskOrder, MaskedJob, MasksOf, NodeMasks, ProcessMask, ProcessOf, SeenMasks};
use rms_api::{Answer, Call, Query};
use rms_model::job::Constraint;
use rms_model::{
    ClusterId, CpuLoans, Devices, Environment, Evolving, ExpandLimit, Expansion, FormerRun, Grant, Granted, Indices,
    Inventory, JobId, JobRecord, JobSpec, Mebibytes, OnResize, Outcome, Owner, Packing, Profile, ResourceRequest, Role,
    Run, Sizes, Slice, Span, Speedup, Time, Work,
};
use rms_wire::{ClientRequest, Follow, Followed, InputAt};

use super::{domain, negotiating};

pub fn calls() -> Vec<ClientRequest> {
    let by_length = HistoryQuery { sort: vec![(RecordColumn::Ran, Way::Up)], ..HistoryQuery::default() };
    let mut calls: Vec<ClientRequest> = changes().map(update).map(ClientRequest::Call).collect();
    calls.push(ClientRequest::History(by_length));
    let submission = Submission { resources: resources(), ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = resource_changes();
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let licences = devices("matlab:2");
    let resources = ResourceRequest { licences: licences.clone(), ..ResourceRequest::default() };
    let submission = Submission { resources, ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = ResourceChanges { licences: Some(licences), ..ResourceChanges::default() };
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let asks = negotiating::asks_inside().into_iter();
    calls.extend(asks.map(|ask| ClientRequest::Call(Call::Negotiate { job: JobId(5), ask })));
    let resources = ResourceRequest { share: true, min_cpus_per_node: 2, ..ResourceRequest::default() };
    let submission = Submission { resources, ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = ResourceChanges { share: Some(true), min_cpus_per_node: Some(2), ..ResourceChanges::default() };
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let mut submission = domain::submission();
    submission.execution.malleable_threads = true;
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let of = [MasksOf::Job(JobId(5)), MasksOf::Node("a1".to_owned())];
    calls.extend(of.map(|of| ClientRequest::Call(Call::Query(Query::Masks(of)))));
    calls.extend(mask_orders().map(|order| ClientRequest::Call(Call::SetMask { job: JobId(5), order })));
    let resources = ResourceRequest { share: true, cores_per_package: 2, ..ResourceRequest::default() };
    let submission = Submission { resources, ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = ResourceChanges { cores_per_package: Some(2), ..ResourceChanges::default() };
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let resources = ResourceRequest { contiguous: true, ..ResourceRequest::default() };
    let submission = Submission { resources, ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = ResourceChanges { contiguous: Some(false), ..ResourceChanges::default() };
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let of_limits = ResizingChanges {
        range: Some(SizeRange { least: 2, most: 8, sizes: Sizes::PowerOfTwo }),
        on_resize: Some(OnResize::Workers),
        speedup: Some(Speedup(vec![(1, 1000), (2, 1900)])),
        ..ResizingChanges::default()
    };
    let of_profile = ResizingChanges {
        expand: Some(ExpandLimit::Infinite),
        compacting: Some(true),
        open: Some(false),
        ..ResizingChanges::default()
    };
    let parts = [of_limits, of_profile].map(|resizing_changes| Changes { resizing_changes, ..Changes::default() });
    calls.extend(parts.map(update).map(ClientRequest::Call));
    let resources = ResourceRequest { share: true, min_cpus_per_task: vec![4, 1], ..ResourceRequest::default() };
    let submission = Submission { resources, ..domain::submission() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(submission))));
    let resources = ResourceChanges { min_cpus_per_task: Some(vec![4, 1]), ..ResourceChanges::default() };
    calls.push(ClientRequest::Call(update(Changes { resources, ..Changes::default() })));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let constraint = Constraint { nodelist: names(&["a1", "a2"]), exclude: names(&["b7"]), ..Constraint::default() };
    calls.push(ClientRequest::Call(Call::Submit(Box::new(Submission { constraint, ..domain::submission() }))));
    let (nodelist, exclude) = (Some(names(&["a1", "a2"])), Some(names(&[])));
    calls.push(ClientRequest::Call(update(Changes { nodelist, exclude, ..Changes::default() })));
    let lately = NodeFilter { since: Some(Time::from_secs(9)), ..NodeFilter::default() };
    calls.push(ClientRequest::Call(Call::Query(Query::Nodes(lately))));
    calls.push(ClientRequest::Call(Call::Query(Query::Licences)));
    let sort = vec![(JobColumn::Priority, Way::Down)];
    let names = vec!["cfd".to_owned()];
    let named = JobFilter { names, sort, limit: 20, ..JobFilter::default() };
    calls.push(ClientRequest::Call(Call::Query(Query::Details(named))));
    calls.push(ClientRequest::Call(update(Changes { min_cpus: Some(16), ..Changes::default() })));
    let follow = Follow { job: JobId(5), run: Some(Run(2)), from: Vec::new(), input: true, input_from: Some(70_000) };
    calls.push(ClientRequest::Follow(follow));
    let accounts = || vec!["physics".to_owned()];
    let jobs = JobFilter { accounts: accounts(), ..JobFilter::default() };
    calls.push(ClientRequest::Call(Call::Query(Query::Queue(jobs))));
    calls.push(ClientRequest::History(HistoryQuery { accounts: accounts(), ..HistoryQuery::default() }));
    calls
}

pub fn followed() -> [Followed; 3] {
    let taken = |again| Followed::Taken { run: Run(2), n_bytes: 70_000, again };
    let change = JobChange { submitted: Some(Time::from_secs(1)), ..domain::change() };
    [taken(false), taken(true), Followed::Change(change)]
}

pub fn inputs() -> [InputAt; 2] {
    [(b"yes\n".to_vec(), false), (Vec::new(), true)].map(|(bytes, eof)| InputAt { offset: 70_000, bytes, eof })
}

pub fn mask_orders() -> [MaskOrder; 2] {
    let node = Some("a1".to_owned());
    [
        MaskOrder { node, process: ProcessOf::Pid(4242), cpus: [0, 1, 6].into_iter().collect() },
        MaskOrder { node: None, process: ProcessOf::Task(3), cpus: Indices::default() },
    ]
}

pub fn masked_job() -> MaskedJob {
    let cores = Some(Indices::below(4));
    MaskedJob { job: JobId(5), run: Run(2), cores, n_cpus: 4, one_thread_a_core: true }
}

pub fn seen_masks() -> SeenMasks {
    let process = ProcessMask {
        pid: 4242,
        task: Some(3),
        program: "nbody".to_owned(),
        n_threads: 4,
        cpus: Indices::below(2),
        of_threads: Vec::new(),
        told: Some(Indices::below(2)),
        is_behind: true,
        is_slow_team: true,
    };
    let (intended, actual) = (Indices::below(4), Indices::below(2));
    SeenMasks { intended, actual, processes: vec![process], n_processes: 7 }
}

fn masks() -> Answer {
    let loan = |job| LoanLine {
        node: "a1".to_owned(),
        job: JobId(job),
        cores: Indices::below(2),
        since: Time::from_secs(1),
        is_in_force: true,
    };
    let masks = JobMasks {
        of: masked_job(),
        name: "nbody".to_owned(),
        owner: Owner("ada".to_owned()),
        lent: vec![loan(6)],
        borrowed: vec![loan(7)],
        seen: Some(seen_masks()),
    };
    let unseen = JobMasks { seen: None, ..masks.clone() };
    let silent = Some("no answer from node a2".to_owned());
    let nodes = vec![
        NodeMasks { node: "a1".to_owned(), jobs: vec![masks], silent: None },
        NodeMasks { node: "a2".to_owned(), jobs: vec![unseen], silent },
    ];
    Answer::Masks { now: Time::from_secs(3), nodes }
}

fn resources() -> ResourceRequest {
    ResourceRequest {
        memory_per_cpu: Mebibytes(512),
        devices: devices("gpu:2"),
        devices_in_all: devices("fpga:4"),
        licences: Devices::default(),
        tasks_per_node: 3,
        exclusive: true,
        packing: Packing::Spread,
        one_thread_a_core: true,
        share: false,
        min_cpus_per_node: 0,
        min_cpus_per_task: Vec::new(),
        cores_per_package: 0,
        contiguous: false,
    }
}

fn resource_changes() -> ResourceChanges {
    let ResourceRequest { memory_per_cpu, devices, devices_in_all, tasks_per_node, exclusive, packing, .. } =
        resources();
    ResourceChanges {
        memory_per_cpu: Some(memory_per_cpu),
        devices: Some(devices),
        devices_in_all: Some(devices_in_all),
        licences: None,
        tasks_per_node: Some(tasks_per_node),
        exclusive: Some(exclusive),
        packing: Some(packing),
        one_thread_a_core: Some(true),
        share: None,
        min_cpus_per_node: None,
        min_cpus_per_task: None,
        cores_per_package: None,
        contiguous: None,
    }
}

fn devices(text: &str) -> Devices {
    text.parse().expect("devices")
}

fn update(changes: Changes) -> Call {
    Call::Update { select: Select::Ids(vec![JobId(7)]), changes: Box::new(changes) }
}

fn changes() -> impl Iterator<Item = Changes> {
    let text = |text: &str| Some(text.to_owned());
    let everything = Changes {
        labels: BTreeMap::from([("account".to_owned(), "physics".to_owned())]),
        wall: Some(WallChange::To(Span::from_hours(1))),
        shapes: Some(vec![Shape { nodes: Nodes::Count(4), wall: None }]),
        resizing: Some(Resizing::Never),
        resizing_changes: ResizingChanges::default(),
        survives_loss: None,
        nodelist: None,
        exclude: None,
        n_tasks: Some(8),
        cpus_per_task: Some(2),
        clusters: Some(vec!["a".to_owned()]),
        features: Some(["fast".to_owned()].into()),
        memory: Some(Mebibytes(1024)),
        min_cpus: None,
        resources: ResourceChanges::default(),
        priority: Some(-3),
        hold: Some(true),
        requeue: Some(false),
        begin: Some(Time::from_secs(5)),
        cwd: text("/home/ann"),
        input: text("in"),
        output: text("out"),
        error: text("err"),
        environment: Some(Arc::new(Environment(vec![("A".to_owned(), "1".to_owned())]))),
    };
    let stages = "2x500s,8x1h".parse().expect("a profile");
    let expansion = Expansion { limit: ExpandLimit::Infinite, compacting: true };
    let of_walls = [WallChange::More(Span::from_mins(5)), WallChange::Less(Span::from_mins(5))];
    let of_sizes = [
        Resizing::Within(negotiating::malleable(OnResize::Signal(10))),
        Resizing::ByStages(Evolving { stages, expansion, open: true }),
    ];
    let of_walls = of_walls.map(|wall| Changes { wall: Some(wall), ..Changes::default() });
    let of_sizes = of_sizes.map(|resizing| Changes { resizing: Some(resizing), ..Changes::default() });
    [everything].into_iter().chain(of_walls).chain(of_sizes)
}

pub fn answers() -> Vec<Answer> {
    let reason = Some(Reason::NoRequest { until: Some(Time::from_secs(9)) });
    let request = domain::record(0).request;
    let outcomes = [Outcome::Violation { reason: "too much".to_owned() }, Outcome::StageLate { stage: 2 }];
    let records = outcomes.map(|outcome| JobRecord { outcome, ..domain::record(0) });
    let blocked = Reason::Blocked {
        cluster: "a".to_owned(),
        wanted: 2,
        capacity: 4,
        busy: 3,
        from: Time::from_secs(1),
        until: Time::from_secs(2),
        by: Vec::new(),
        total: 4,
        short: Some(Box::new(Shortage { each: slice(), with_cores: 3, with_memory: 2, with_devices: 1 })),
        licence: None,
        neighbours: Vec::new(),
        lenders: None,
    };
    let licence = LicenceShortage { name: "matlab".to_owned(), wanted: 2, free: 0, total: 0 };
    let unlicensed = Reason::TooFewNodes {
        cluster: "a".to_owned(),
        wanted: 1,
        usable: 4,
        total: 4,
        licence: Some(Box::new(licence)),
        contiguous: false,
        lacking: None,
    };
    let line = JobLine { resources: resources(), reason: Some(blocked), ..domain::job_line(0) };
    let spec =
        Arc::new(JobSpec::of(line.owner.clone(), Work::Tasks { argv: vec!["a".to_owned()] }, vec![request.clone()]));
    let grants = BTreeMap::from([("n1".to_owned(), grant())]);
    let jobs = vec![JobDetail {
        line,
        spec,
        cores: Vec::new(),
        grants,
        licences: BTreeMap::new(),
        ended_before: None,
        former_runs: Vec::new(),
        sharing: None,
        limited: Vec::new(),
    }];
    let loan = |node: &str, other: u64, is_in_force| LoanLine {
        node: node.to_owned(),
        job: JobId(other),
        cores: (4..8).collect(),
        since: Time::from_secs(2),
        is_in_force,
    };
    let sharing = SharingDetail {
        asked_wall: Span::from_hours(1),
        lent: vec![loan("n1", 9, false)],
        borrowed: vec![loan("n2", 3, true)],
        loans: CpuLoans { lent: 1000, borrowed: 2000 },
    };
    let shared = vec![JobDetail { sharing: Some(sharing), ..jobs[0].clone() }];
    let nodes = vec![NodeLine { free: Some(slice()), ..domain::node_line(NodeState::Busy) }];
    let first = jobs[0].clone();
    let licences = BTreeMap::from([(ClusterId(0), devices("matlab:2"))]);
    let ended_before = Some(Outcome::NodeLost { node: "n1".to_owned(), reason: String::new() });
    let later = vec![JobDetail { licences, ended_before, ..jobs[0].clone() }];
    let again = vec![JobDetail { former_runs: vec![former_run()], ..jobs[0].clone() }];
    let mut unlent = first.line.clone();
    if let Some(Reason::Blocked { lenders, .. }) = &mut unlent.reason {
        let told = Lenders {
            ends_no_earlier: true,
            n_sharing: 9,
            n_busy: 1,
            n_slowed: 2,
            n_larger: 3,
            n_unfit: 2,
            lacks_licence: false,
            never: None,
        };
        *lenders = Some(Box::new(told));
    }
    let now = Time::from_secs(3);
    let mut answers = vec![
        Answer::WouldStart { request, at: None, reason, sizes: Vec::new(), now: None, lent_by: Vec::new() },
        Answer::History(records.to_vec()),
        Answer::Detail { now, planned: now, jobs },
        Answer::Nodes { now, nodes, clusters: Vec::new() },
        Answer::WouldStart {
            request: domain::record(0).request,
            at: None,
            reason: Some(unlicensed),
            sizes: Vec::new(),
            now: None,
            lent_by: Vec::new(),
        },
        Answer::Status(Status { now, queue_depth: Some(1400), ..Status::default() }),
        Answer::Detail { now, planned: now, jobs: shared },
        Answer::History(vec![JobRecord { loans: Some(CpuLoans { lent: 5, borrowed: 7 }), ..domain::record(0) }]),
        masks(),
        Answer::Detail { now, planned: now, jobs: vec![JobDetail { line: unlent, ..first }] },
        Answer::Detail { now, planned: now, jobs: later },
        Answer::History(vec![JobRecord { granted: Some(granted()), ..domain::record(0) }]),
        view_of_cores(),
    ];
    let waits = |reason| {
        let request = domain::record(0).request;
        Answer::WouldStart {
            request,
            at: None,
            reason: Some(reason),
            sizes: Vec::new(),
            now: None,
            lent_by: Vec::new(),
        }
    };
    answers.extend(too_small().map(waits));
    let holders = vec![LicenceHolder { job: JobId(7), count: 2 }, LicenceHolder { job: JobId(9), count: 1 }];
    let line = LicenceLine { cluster: "a".to_owned(), name: "matlab".to_owned(), total: 20, holders };
    answers.push(Answer::Licences(vec![line]));
    answers.extend(
        [NeverGuest::Profile, NeverGuest::Clusters]
            .map(|never| waits(blocked_beside(Lenders { never: Some(never), ..Lenders::default() }))),
    );
    let request = domain::record(0).request;
    let sizes = vec![(request.clone(), None), (request.clone(), Some(Time::from_secs(7)))];
    answers.push(Answer::WouldStart { request, at: None, reason: None, sizes, now: None, lent_by: Vec::new() });
    let (request, now) = (domain::record(0).request, Some(Time::from_secs(7)));
    answers.push(Answer::WouldStart { request, at: now, reason: None, sizes: Vec::new(), now, lent_by: Vec::new() });
    let shortage = Some("no space is left for the journal".to_owned());
    answers.push(Answer::Status(Status { shortage, ..Status::default() }));
    answers.push(Answer::Detail { now: Time::from_secs(3), planned: Time::from_secs(3), jobs: again });
    answers.push(Answer::History(vec![JobRecord { former_runs: vec![former_run()], ..domain::record(0) }]));
    let (request, lent_by) = (domain::record(0).request, vec![JobId(7), JobId(9)]);
    answers.push(Answer::WouldStart { request, at: now, reason: None, sizes: Vec::new(), now, lent_by });
    answers.push(waits(blocked_beside(Lenders { lacks_licence: true, ..Lenders::default() })));
    let former = FormerRun { loans: Some(CpuLoans { lent: 5, borrowed: 7 }), ..former_run() };
    answers.push(Answer::History(vec![JobRecord { former_runs: vec![former], ..domain::record(0) }]));
    let unknown = vec!["n9".to_owned()];
    let lacking = Lacking { required: Required::Names, n_nodes: 0, among: 4, unusable: Vec::new(), unknown };
    answers.push(waits(Reason::TooFewNodes {
        cluster: "a".to_owned(),
        wanted: 1,
        usable: 0,
        total: 4,
        licence: None,
        contiguous: false,
        lacking: Some(Box::new(lacking)),
    }));
    answers.push(Answer::Certificates(vec![rms_model::token::Issued {
        serial: "5f".to_owned(),
        identity: domain::identity(Role::Admin, "root"),
        issued: Time::from_secs(1),
        expires: Time::from_secs(2),
        revoked: None,
        replaces: Vec::new(),
        renews: Some("5e".to_owned()),
    }]));
    let outcome = Outcome::NodeLost { node: "n1".to_owned(), reason: "the node was restarted".to_owned() };
    answers.push(Answer::History(vec![JobRecord { outcome, ..domain::record(0) }]));
    answers
}

fn former_run() -> FormerRun {
    FormerRun {
        run: Run(1),
        started: Time::from_secs(1),
        ended: Time::from_secs(2),
        outcome: Outcome::NodeLost { node: "n1".to_owned(), reason: String::new() },
        nodes: vec!["n1".to_owned()],
        usage: domain::usage(),
        core_time: 24_400,
        loans: None,
    }
}

fn view_of_cores() -> Answer {
    let profile = domain::profile;
    let cores = CoresView { capacity: 64, taken: profile(), planned: profile() };
    let view = ClusterView {
        cluster: ClusterId(1),
        name: "c1".to_owned(),
        capacity: 8,
        total: 8,
        started: profile(),
        ghosts: Profile::new(),
        planned: profile(),
        offered: Profile::new(),
        choosable: None,
        cores: Some(cores),
    };
    Answer::View(ViewAnswer { now: Time::from_secs(3), job: None, clusters: vec![view] })
}

fn blocked_beside(lenders: Lenders) -> Reason {
    Reason::Blocked {
        cluster: "a".to_owned(),
        wanted: 2,
        capacity: 4,
        busy: 3,
        from: Time::from_secs(1),
        until: Time::from_secs(2),
        by: Vec::new(),
        total: 4,
        short: None,
        licence: None,
        neighbours: Vec::new(),
        lenders: Some(Box::new(lenders)),
    }
}

/// Returns the reasons of jobs whose nodes lack something.
fn too_small() -> impl Iterator<Item = Reason> {
    let all = [
        Required::Names,
        Required::Features(["fast".to_owned()].into()),
        Required::Sockets(2),
        Required::Speed(1500),
        Required::Scratch(Mebibytes(512)),
        Required::Cores(4),
        Required::Cpus(8),
        Required::Memory(Mebibytes(1024)),
        Required::Devices(devices("gpu:2")),
    ];
    all.into_iter().map(|required| Reason::TooFewNodes {
        cluster: "a".to_owned(),
        wanted: 3,
        usable: 1,
        total: 5,
        licence: None,
        contiguous: false,
        lacking: Some(Box::new(Lacking { required, n_nodes: 1, among: 4, unusable: Vec::new(), unknown: Vec::new() })),
    })
}

fn granted() -> Granted {
    Granted {
        cores: 24,
        whole_nodes: 1,
        memory: Mebibytes(65_536),
        devices: devices("gpu:a100:4"),
        licences: [(ClusterId(1), devices("matlab:2"))].into(),
        core_time: 86_400_000,
    }
}

pub fn report() -> NodeReport {
    let jobs = vec![JobReport { job: JobId(1), run: Run(1), status: JobStatus::Starting }];
    NodeReport { jobs, ..NodeReport::default() }
}

/// Returns the hello of a node with devices.
pub fn hello() -> AgentHello {
    let hello = domain::hello();
    AgentHello { inventory: Inventory { devices: devices("gpu:a100:4,fpga:1"), ..hello.inventory }, ..hello }
}

/// Returns the hello of a node whose kernel cannot confine jobs to everything that they were given.
pub fn lax() -> AgentHello {
    let hello = hello();
    let unenforced = ["cpus", "devices"].map(str::to_owned).into();
    AgentHello { inventory: Inventory { unenforced, ..hello.inventory }, ..hello }
}

/// Returns the hello of a node with scratch space.
pub fn roomy() -> AgentHello {
    let hello = hello();
    AgentHello { inventory: Inventory { scratch: Mebibytes(500_000), ..hello.inventory }, ..hello }
}

/// Returns the hello of a node whose packages differ in their number of cores.
pub fn uneven() -> AgentHello {
    let hello = domain::hello();
    AgentHello { inventory: hello.inventory.with_parts(vec![13, 11], vec![6, 7, 11]), ..hello }
}

/// Returns the hello of a node that cannot start jobs.
pub fn troubled() -> AgentHello {
    AgentHello { trouble: Some("its spool is full".to_owned()), ..domain::hello() }
}

/// Returns the desired state of a node with a job that borrows CPUs.
pub fn desired_of_guest() -> Desired {
    let mut desired = desired();
    for job in &mut desired.jobs {
        Arc::make_mut(&mut job.launch).nodes.iter_mut().for_each(|node| node.asked_cpus = 8);
    }
    desired
}

/// Returns the desired state of a job whose steps may request what it borrows or lends.
pub fn desired_of_sharer() -> Desired {
    let mut desired = desired_of_guest();
    for job in &mut desired.jobs {
        Arc::make_mut(&mut job.launch).nodes.iter_mut().for_each(|node| node.shares_cpus = true);
    }
    desired
}

/// Returns the desired state of a node that is shared.
pub fn desired() -> Desired {
    let mut desired = domain::desired();
    desired.jobs.truncate(1);
    for job in &mut desired.jobs {
        let launch = Arc::make_mut(&mut job.launch);
        launch.one_thread_a_core = true;
        launch.nodes.iter_mut().skip(1).for_each(|node| node.grant = Some(grant()));
    }
    desired
}

fn slice() -> Slice {
    Slice { cores: 8, memory: Mebibytes(4096), devices: devices("gpu:1") }
}

fn grant() -> Grant {
    let gpus = BTreeMap::from([("gpu:a100".to_owned(), [1, 3].into_iter().collect())]);
    Grant { cores: [0, 1, 2, 70].into_iter().collect(), memory: Mebibytes(2048), devices: gpus }
}
