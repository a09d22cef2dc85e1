//! Tests that the bytes of each kind of fact stay readable: a journal of version 1 can be read by every later version.
//!
//! A new kind fails here until `tests/data/journal/v1` has its bytes. `BLESS=1` writes missing files. Existing ones are
//! never overwritten or deleted: a field that is added to a fact has a default, and an example with the field is added
//! beside the one without it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rms_api::audit::AuditEntry;
use rms_api::desired::NodeExit;
use rms_api::subscription::{ClusterLink, Filter, Launchable, Tag};
use rms_core::Fact;
use rms_core::state::course::{Course, Leg};
use rms_core::state::job::{LauncherLink, Promise};
use rms_core::state::sharing::{Loan, Sharing};
use rms_model::job::Constraint;
use rms_model::token::{Issued, Token, TokenIdentity, TokenState};
use rms_model::{
    ClusterId, CpuLoans, Environment, Evolving, Execution, ExpandLimit, Expansion, Generation, Identity, Inventory,
    JobId, JobSpec, Mebibytes, NodeAdmin, NodeId, NodeLink, Outcome, Request, Role, Run, Slice, Span, Time, Usage,
    Work,
};

use crate::contained::is_contained_in;
use crate::samples::{record, spec};

#[test]
fn every_kind_of_fact_is_written_and_read_as_it_was_in_the_first_release() {
    let examples = all_examples();
    let shown: BTreeSet<String> = examples.iter().map(kind).collect();
    assert_eq!(shown, all_kinds(), "one example of each kind");
    for example in examples {
        let path = path_of(&kind(&example));
        let bytes = rmp_serde::to_vec_named(&example).expect("bytes");
        if !path.exists() && std::env::var_os("BLESS").is_some() {
            fs::write(&path, wrapped(&bytes)).expect("a file");
        }
        let published = published(&kind(&example));
        assert!(is_contained_in(&published, &bytes), "{} is written otherwise:\n{}", kind(&example), wrapped(&bytes));
        assert_eq!(golden_of(&kind(&example)), example);
    }
}

/// A field is left out of a fact if it is nothing at all, not if a part of it is.
#[test]
fn a_request_without_cores_keeps_its_memory_and_devices() {
    let example = examples().into_iter().find(|fact| kind(fact) == "LauncherRequested").expect("there is one");
    let Fact::LauncherRequested { job, at, tag, request, .. } = example else { unreachable!("it is of this kind") };
    for slice in [
        Slice { memory: Mebibytes(512), ..Slice::default() },
        Slice { devices: "gpu:1".parse().expect("a device"), ..Slice::default() },
        Slice { cores: 2, ..Slice::default() },
        Slice::default(),
    ] {
        let fact = Fact::LauncherRequested { job, at, tag, request: request.clone(), slice };
        let bytes = rmp_serde::to_vec_named(&fact).expect("bytes");
        assert_eq!(rmp_serde::from_slice::<Fact>(&bytes).expect("a fact"), fact);
    }
}

/// Returns one example of each kind.
pub fn all_examples() -> Vec<Fact> {
    [examples(), crate::golden_negotiation::examples()].concat()
}

fn path_of(kind: &str) -> PathBuf {
    directory().join(format!("{kind}.hex"))
}

fn published(kind: &str) -> Vec<u8> {
    let path = path_of(kind);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; BLESS=1 writes the bytes of a new kind", path.display()));
    unwrapped(&text)
}

/// Parses the published bytes of a kind.
pub fn golden_of(kind: &str) -> Fact {
    rmp_serde::from_slice(&published(kind)).expect("a readable fact")
}

/// Returns the names of all kinds, as the decoder knows them.
fn all_kinds() -> BTreeSet<String> {
    let unknown = rmp_serde::to_vec_named(&std::collections::BTreeMap::from([("NoSuchKind", 0)])).expect("bytes");
    let error = rmp_serde::from_slice::<Fact>(&unknown).expect_err("an unknown kind").to_string();
    let (_, list) = error.split_once("expected one of").expect("a list of kinds");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

pub fn kind(fact: &Fact) -> String {
    let debug = format!("{fact:?}");
    debug.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Returns the directory with facts, a log and a snapshot as written by the first published version.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/journal/v1")
}

fn wrapped(bytes: &[u8]) -> String {
    let lines = bytes.chunks(48).map(|line| data_encoding::HEXLOWER.encode(line) + "\n");
    lines.collect()
}

fn unwrapped(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    data_encoding::HEXLOWER.decode(digits.as_bytes()).expect("hexadecimal")
}

/// Returns the state of a job that lends cores of one node and borrows some of another.
fn sharing(since: Time) -> Sharing {
    Sharing {
        requested: Span::from_hours(1),
        done: 9000,
        since,
        rate: 3,
        lent: BTreeMap::from([(NodeId(3), Loan { guest: JobId(9), cores: (2..4).collect(), since: None })]),
        mates: BTreeMap::from([(NodeId(4), JobId(5))]),
        own_since: BTreeMap::new(),
        allocation: None,
        generation: 2,
        awaited: BTreeSet::from([NodeId(3)]),
        is_stubborn: false,
        is_resized: false,
        loans: CpuLoans { lent: 1000, borrowed: 500 },
        past_loans: Vec::new(),
    }
}

fn examples() -> Vec<Fact> {
    let (job, run, node, cluster) = (JobId(7), Run(2), NodeId(3), ClusterId(1));
    let at = Time::from_secs(1_700_000_000);
    let by = || "ann".to_owned();
    let inventory = || Inventory {
        sockets: 2,
        numa_nodes: 2,
        cores: 48,
        cpus: 96,
        memory: Mebibytes(191_000),
        speed_milli: 1100,
        features: BTreeSet::from(["avx512".to_owned(), "ib".to_owned()]),
        ..Inventory::default()
    };
    let address = || "10.0.0.3:7118".to_owned();
    let usage = Usage { cpu: Span::from_secs(90), peak_memory_kib: 2048 };
    let request = || Request::on_one(cluster, 2, Span::from_hours(1));
    vec![
        Fact::ClusterAdded { cluster, name: "a".to_owned() },
        Fact::NodeJoined { node, cluster, name: "n3".to_owned(), inventory: inventory(), address: address(), at },
        Fact::NodeDescribed { node, inventory: inventory(), address: address() },
        Fact::NodeAdminChanged { node, admin: NodeAdmin::Drain { reason: "fan".to_owned(), by: by(), since: at } },
        Fact::NodeLinkChanged { node, link: NodeLink::Away { since: at } },
        Fact::NodeRemoved { node },
        Fact::SettingChanged { change: AuditEntry::of_setting(at, &by(), "fair_start", "0s", "10s") },
        Fact::DepthChosen { depth: 1500 },
        Fact::Audited {
            entry: AuditEntry {
                at,
                by: by(),
                subject: "a[1-2]".to_owned(),
                old: String::new(),
                new: "new memory".to_owned(),
                action: "drain".to_owned(),
            },
        },
        Fact::ClusterRemoved { cluster },
        Fact::JobSubmitted { job, at, spec: Arc::new(spec(request())), held: true },
        Fact::JobHeld { job, by: by(), at },
        Fact::JobReleased { job, by: by(), at },
        Fact::JobPriorityChanged { job, priority: -5, by: by(), at },
        Fact::JobUpdated {
            job,
            spec: Arc::new(JobSpec { clusters: vec!["a".to_owned()], ..spec(request()) }.without_work()),
            environment: None,
            wall: Some(Span::from_hours(2)),
            by: by(),
            at,
        },
        Fact::RequestSent { job, at },
        Fact::JobsQueued { jobs: vec![JobId(7), JobId(300)] },
        Fact::JobStarted {
            job,
            run,
            at,
            request: request(),
            nodes: vec![NodeId(3), NodeId(4)],
            grants: Default::default(),
        },
        Fact::CpusShared {
            job,
            at,
            sharing: Box::new(sharing(at)),
            grants: Default::default(),
            wall: Span::from_hours(2),
        },
        Fact::CpusInForce { job, node, generation: 2, at: None },
        Fact::ShareRunning { job, node, since: at },
        Fact::ShareEnded { job, node, exit: NodeExit::Exited { code: 3 }, usage, at: None },
        Fact::JobEnding { job, at, outcome: Outcome::Cancelled { by: by() }, requeue: false },
        Fact::JobDone {
            record: Box::new(record(request(), usage)),
            ghost_until: at,
            negotiations: Vec::new(),
            told: None,
        },
        Fact::GhostExpired { job },
        Fact::JobRequeued { job, at },
        Fact::TokenCreated {
            token: Token {
                id: "t1".to_owned(),
                digest: [7; 32],
                identity: TokenIdentity::Named(Identity { role: Role::User, name: by() }),
                cluster: Some("a".to_owned()),
                created: at,
                created_by: by(),
                expires: at,
                state: TokenState::Open,
                redeemed: None,
                ca: None,
            },
        },
        Fact::TokenUsed { id: "t1".to_owned(), at, redeemed: None },
        Fact::TokenRevoked { id: "t1".to_owned(), at, by: by() },
        Fact::TokenForgotten { id: "t1".to_owned() },
        Fact::CertificateIssued {
            issued: Issued {
                serial: "4a01".to_owned(),
                identity: Identity { role: Role::Agent, name: "n3".to_owned() },
                issued: at,
                expires: at,
                revoked: None,
                replaces: Vec::new(),
                renews: None,
            },
        },
        Fact::CertificatesRevoked { serials: vec!["4a01".to_owned()], at, by: by() },
        Fact::CertificateForgotten { serial: "4a01".to_owned() },
        Fact::NodeFenced { node, stale: vec![(job, run)] },
        Fact::LauncherSubscribed { job, at, spec: Box::new(spec(request())), filter: filter() },
        Fact::LauncherLinkChanged { job, link: LauncherLink::Away { since: at }, awaited: Span::ZERO },
        Fact::LauncherRequested { job, at, tag: Tag(41), request: request(), slice: Slice::default() },
        Fact::LauncherLaunched { job, at, launch: Box::new(launchable()) },
        Fact::LauncherAccepted { job, at },
        Fact::GhostParted { job, until: std::collections::BTreeMap::from([(cluster, at)]) },
        Fact::GhostPartExpired { job, cluster },
        Fact::ClusterLinkSet { link: link(), at, by: by() },
        Fact::NodeGenerationRaised { node, generation: Generation(77) },
        Fact::CourseSet { job, at, course: course() },
        Fact::StageEntered {
            job,
            at,
            gained: vec![NodeId(5)],
            freed: vec![NodeId(4)],
            course: course(),
            grants: Default::default(),
        },
        Fact::NodesFreed { job, nodes: vec![NodeId(4)] },
        Fact::NodesChosen { job, nodes: vec![NodeId(4)], by: by() },
        Fact::ProfileChanged {
            job,
            evolving: Evolving {
                stages: "2x500s,8x1h".parse().expect("a profile"),
                expansion: Expansion { limit: ExpandLimit::Infinite, compacting: true },
                open: true,
            },
            options: vec![request()],
        },
        Fact::StartsPromised {
            starts: vec![
                (job, Some(Promise { at, option_idx: 1, nodes: Vec::new(), spans: Vec::new() })),
                (JobId(300), None),
            ],
        },
    ]
}

fn course() -> Box<Course> {
    let leg = |nodes, start| Leg { nodes, span: Span::from_mins(5), start: Time::from_secs(start) };
    let legs = vec![leg(2, 1_700_000_000), leg(8, 1_700_000_300)];
    Box::new(Course { number: 2, legs, limit: ExpandLimit::Milli(1500), open: false, row: Vec::new() })
}

/// Returns a filter with several demands.
fn filter() -> Filter {
    Filter {
        clusters: BTreeSet::from(["a".to_owned()]),
        least_nodes: 4,
        constraint: Constraint { memory: Mebibytes(1000), ..Constraint::default() },
        ..Filter::default()
    }
}

fn launchable() -> Launchable {
    Launchable {
        n_tasks: Some(8),
        cpus_per_task: 2,
        ..Launchable::of(Execution {
            cwd: "/home/ann".to_owned(),
            environment: Arc::new(Environment(vec![("A".to_owned(), "1".to_owned())])),
            ..Execution::from(Work::Tasks { argv: vec!["solve".to_owned(), "in".to_owned()] })
        })
    }
}

fn link() -> ClusterLink {
    ClusterLink { between: (ClusterId(0), ClusterId(1)), latency_us: 5000, bandwidth_mbit: 1000 }
}
