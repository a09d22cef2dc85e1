//! Tests of external launchers: they subscribe, get views, request, start and are done (001, §4.2 and §5.3).

mod ghosts;
mod held;
mod notices;
mod rules;
mod shares;
mod silence;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::Call;
use rms_api::answer::JobState;
use rms_api::desired::AgentHello;
use rms_api::desired::{Desired, NodeReport};
use rms_api::refusal::Refusal;
use rms_api::subscription::{
    ClusterInfos, Filter, Grant, Launchable, LauncherAnswer, LauncherCall, LauncherRequest, Notice, Subscription, Tag,
    ViewChange,
};
use rms_model::job::Constraint;
use rms_model::{
    ClusterId, Environment, Execution, Identity, Inventory, JobId, Mebibytes, Outcome, Profile, Request, Role, Span,
    Work,
};

use super::World;
use crate::Event;
use crate::effect::Effect;
use crate::event::Ticket;

/// For each cluster its capacity, and its new occupation in seconds and nodes.
type Shape = BTreeMap<ClusterId, (u32, Option<Vec<(i64, i64)>>)>;

/// The clusters of the tests, in the order in which they join.
const A: ClusterId = ClusterId(0);
const B: ClusterId = ClusterId(1);

/// Cluster `a` of 4 nodes and `b` of 2, and what launchers were sent since the last check.
struct Launchers {
    world: World,
    told: Vec<(JobId, Notice)>,
    desires: Vec<(String, Desired)>,
}

impl Launchers {
    fn new() -> Launchers {
        let mut launchers = Launchers { world: World::new(), told: Vec::new(), desires: Vec::new() };
        for (cluster, n_nodes) in [("a", 4), ("b", 2)] {
            (1..=n_nodes).for_each(|idx| launchers.joins(cluster, &format!("{cluster}{idx}"), plain()));
        }
        launchers.desires.clear();
        launchers
    }

    fn joins(&mut self, cluster: &str, name: &str, inventory: Inventory) {
        let address = format!("{name}:1");
        let hello = AgentHello { cluster: cluster.to_owned(), address, inventory, trouble: None };
        self.event(Event::AgentConnected { name: name.to_owned(), hello, report: NodeReport::default() });
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.world.event(event);
        for effect in &effects {
            match effect {
                Effect::Notify { job, notice } => self.told.push((*job, notice.clone())),
                Effect::Desire { node, desired } => self.desires.push((node.clone(), desired.clone())),
                _ => {}
            }
        }
        effects
    }

    fn call(&mut self, who: &str, call: LauncherCall) -> Result<LauncherAnswer, Refusal> {
        let who = Identity::new(Role::User, who).expect("a plain name");
        let effects = self.event(Event::LauncherCalled { ticket: Ticket(7), who, call });
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::LauncherAnswer { ticket: Ticket(7), answer } => Some(answer),
            _ => None,
        });
        answer.expect("every call is answered")
    }

    fn ann(&mut self, call: LauncherCall) -> Result<LauncherAnswer, Refusal> {
        self.call("ann", call)
    }

    fn subscribe_with(&mut self, filter: Filter) -> Result<JobId, Refusal> {
        let subscription = Subscription { filter, ..Subscription::named("app") };
        match self.ann(LauncherCall::Subscribe(Box::new(subscription)))? {
            LauncherAnswer::Subscribed { job, .. } => Ok(job),
            other => panic!("not subscribed: {other:?}"),
        }
    }

    fn subscribe(&mut self) -> JobId {
        self.subscribe_with(Filter::default()).expect("it is allowed")
    }

    fn try_request(&mut self, job: JobId, tag: u64, request: Request) -> Result<(), Refusal> {
        let wish = LauncherRequest::of_nodes(Tag(tag), 0, request);
        self.ann(LauncherCall::Request { job, wish }).map(|answer| assert_eq!(answer, LauncherAnswer::Done))
    }

    fn request(&mut self, job: JobId, tag: u64, request: Request) {
        self.try_request(job, tag, request).expect("it is possible");
    }

    /// Adds an application that has requested this.
    fn waiting(&mut self, request: Request) -> JobId {
        let job = self.subscribe();
        self.request(job, 1, request);
        job
    }

    fn accept(&mut self, job: JobId, tag: u64) {
        assert_eq!(self.ann(LauncherCall::Accept { job, tag: Tag(tag) }), Ok(LauncherAnswer::Done));
    }

    fn finish(&mut self, job: JobId, tag: u64, code: i32) {
        assert_eq!(self.ann(LauncherCall::Finish { job, tag: Tag(tag), code }), Ok(LauncherAnswer::Done));
    }

    fn infos(&mut self, job: JobId) -> ClusterInfos {
        match self.ann(LauncherCall::Clusters { job }) {
            Ok(LauncherAnswer::Clusters(infos)) => infos,
            other => panic!("no clusters: {other:?}"),
        }
    }

    fn admin(&mut self, call: Call) {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        let effects = self.event(Event::Called { ticket: Ticket(1), who, call });
        let is_taken = |effect: &Effect| matches!(effect, Effect::Answer { answer: Ok(_), .. });
        assert!(effects.iter().any(is_taken), "{effects:?}");
    }

    fn set(&mut self, key: &str, value: &str) {
        self.admin(Call::Set { key: key.to_owned(), value: value.to_owned() });
    }

    /// Lets time pass; everything due happens in time.
    fn after(&mut self, secs: i64) {
        let until = self.world.now + Span::from_secs(secs);
        while let Some(due) = self.world.rms.next_timer().filter(|due| *due <= until) {
            self.world.now = self.world.now.max(due);
            self.event(Event::Tick);
        }
        self.world.now = until;
    }

    /// Returns what one launcher was sent since the last check.
    fn told(&mut self, job: JobId) -> Vec<Notice> {
        let (told, rest) = std::mem::take(&mut self.told).into_iter().partition(|(to, _)| *to == job);
        self.told = rest;
        told.into_iter().map(|(_, notice)| notice).collect()
    }

    fn changes(&mut self, job: JobId) -> Vec<ViewChange> {
        let change = |notice| match notice {
            Notice::Changed(change) => Some(change),
            Notice::Started(_) | Notice::Ended { .. } | Notice::Replaced => None,
        };
        self.told(job).into_iter().filter_map(change).collect()
    }

    /// Returns the only change that the launcher was sent.
    fn change(&mut self, job: JobId) -> ViewChange {
        let mut changes = self.changes(job);
        assert_eq!(changes.len(), 1, "{changes:?}");
        changes.remove(0)
    }

    fn grant(&mut self, job: JobId) -> Grant {
        let told = self.told(job);
        let start = told.iter().find_map(|notice| match notice {
            Notice::Started(grant) => Some(grant.clone()),
            Notice::Changed(_) | Notice::Ended { .. } | Notice::Replaced => None,
        });
        start.unwrap_or_else(|| panic!("job {job} was not started: {told:?}"))
    }

    fn ended(&mut self, job: JobId) -> Option<Outcome> {
        self.told(job).into_iter().find_map(|notice| match notice {
            Notice::Ended { outcome } => Some(outcome),
            Notice::Changed(_) | Notice::Started(_) | Notice::Replaced => None,
        })
    }

    fn state(&self, job: JobId) -> Option<JobState> {
        self.world.rms.state().jobs().get(&job).map(crate::state::job::Job::state)
    }

    fn secs(&self, profile: &Profile) -> Vec<(i64, i64)> {
        let pairs = profile.pairs_from(self.world.now);
        pairs.into_iter().map(|(span, nodes)| (span.as_millis() / 1000, nodes)).collect()
    }

    /// Returns what changed, as capacity and steps of seconds and nodes.
    fn shape(&self, change: &ViewChange) -> Shape {
        let shape = |cluster: &rms_api::subscription::ClusterChange| {
            (cluster.cluster, (cluster.capacity, cluster.occupied.as_ref().map(|profile| self.secs(profile))))
        };
        change.clusters.iter().map(shape).collect()
    }
}

fn plain() -> Inventory {
    Inventory { cores: 4, cpus: 4, ..Inventory::default() }
}

fn on_a(n_nodes: u32, secs: i64) -> Request {
    Request::on_one(A, n_nodes, Span::from_secs(secs))
}

fn on_b(n_nodes: u32, secs: i64) -> Request {
    Request::on_one(B, n_nodes, Span::from_secs(secs))
}

fn program() -> Box<Launchable> {
    Box::new(Launchable::of(Execution {
        cwd: "/home/ann".to_owned(),
        environment: Arc::new(Environment(vec![("STEPS".to_owned(), "9".to_owned())])),
        umask: 0o027,
        ..Execution::from(Work::Tasks { argv: vec!["solve".to_owned()] })
    }))
}

/// 001, Fig. 2, from start to end.
#[test]
fn what_is_requested_is_within_the_most_cpus_of_a_job() {
    let mut launchers = Launchers::new();
    let most = 2 * plain().cpus;
    launchers.set("max_cpus@a", &most.to_string());
    let job = launchers.subscribe();
    let request = |n_nodes| Request::on_one(ClusterId(0), n_nodes, Span::from_mins(1));
    let said = launchers.try_request(job, 1, request(3)).expect_err("too many").to_string();
    assert!(said.contains(&format!("would have {} CPUs", 3 * plain().cpus)), "{said}");
    launchers.request(job, 1, request(2));
}

#[test]
fn an_application_sees_requests_starts_and_is_done() {
    let mut launchers = Launchers::new();
    let job = launchers.subscribe();
    assert_eq!(launchers.state(job), Some(JobState::Submitted));
    let first = launchers.change(job);
    assert_eq!(first.version, 1);
    assert!(first.clusters.iter().all(|cluster| cluster.info), "it knows nothing of them yet");
    assert_eq!(
        launchers.shape(&first),
        BTreeMap::from([(A, (4, Some(vec![]))), (B, (2, Some(vec![])))]),
        "the whole view, and all is free"
    );
    let infos = launchers.infos(job);
    let known: Vec<_> = infos.clusters.iter().map(|info| (info.name.as_str(), info.nodes, info.cpus)).collect();
    assert_eq!(known, [("a", 4, 4), ("b", 2, 4)]);

    let request = Request { nodes: BTreeMap::from([(A, 3), (B, 1)]), wall: Span::from_secs(100) };
    launchers.request(job, 5, request.clone());
    let grant = launchers.grant(job);
    assert_eq!((grant.tag, &grant.request, grant.at), (Tag(5), &request, launchers.world.now));
    assert_eq!(grant.until, grant.at + Span::from_secs(100));
    assert_eq!(grant.answer_until, grant.at + Span::from_secs(60));
    let names: Vec<&str> = grant.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a1", "a2", "a3", "b1"], "in the order of the request's clusters");
    assert!(launchers.desires.is_empty(), "the agents are told nothing while the launcher says nothing");

    launchers.accept(job, 5);
    launchers.after(50);
    launchers.finish(job, 5, 0);
    assert_eq!(launchers.ended(job), Some(Outcome::Completed));
    assert_eq!(launchers.state(job), None);
}

/// 001: CINFO and FILTER.
#[test]
fn a_launcher_chooses_clusters_by_what_their_nodes_are() {
    let mut launchers = Launchers::new();
    let large = Inventory {
        sockets: 2,
        cores: 16,
        cpus: 32,
        memory: Mebibytes(64_000),
        speed_milli: 1500,
        scratch: Mebibytes(200_000),
        devices: [("gpu:a100".to_owned(), 2)].into_iter().collect(),
        ..Inventory::default()
    };
    launchers.joins("c", "c1", large.clone());
    launchers.joins("c", "c2", Inventory { cores: 12, scratch: Mebibytes(100_000), ..large });
    let job = launchers.subscribe();
    let infos = launchers.infos(job);
    let info = infos.clusters.iter().find(|info| info.name == "c").expect("it is seen");
    let least = (info.sockets, info.cores, info.cpus, info.speed_milli, info.scratch);
    assert_eq!(least, (2, 12, 32, 1500, Mebibytes(100_000)));
    assert_eq!((info.total_memory, info.devices.to_string().as_str()), (Mebibytes(128_000), "gpu:a100:4"));
    let mut seen = |constraint, total_memory| {
        let filter = Filter { constraint, total_memory: Mebibytes(total_memory), ..Filter::default() };
        let job = launchers.subscribe_with(filter)?;
        let infos = launchers.infos(job).clusters;
        Ok::<_, Refusal>(infos.iter().map(|info| format!("{}{}", info.name, info.nodes)).collect::<Vec<_>>().join(" "))
    };
    let any = Constraint::default;
    for (constraint, total_memory, expected) in [
        (any(), 0, "a4 b2 c2"),
        (Constraint { cores: 13, ..any() }, 0, "c1"),
        (Constraint { sockets: 2, ..any() }, 0, "c2"),
        (Constraint { speed_milli: 1200, ..any() }, 0, "c2"),
        (Constraint { scratch: Mebibytes(150_000), ..any() }, 0, "c1"),
        (Constraint { scratch: Mebibytes(1), ..any() }, 128_000, "c2"),
        (any(), 128_000, "c2"),
    ] {
        let shown = seen(constraint.clone(), total_memory);
        assert_eq!(shown.expect("some cluster"), expected, "{constraint:?} and {total_memory} MiB");
    }
    for (constraint, total_memory) in [(any(), 128_001), (Constraint { speed_milli: 1501, ..any() }, 0)] {
        let refused = seen(constraint.clone(), total_memory);
        assert!(refused.is_err(), "{constraint:?} and {total_memory} MiB: {refused:?}");
    }
}

/// What a launcher launches becomes the job's work, within what is left of the granted wall time.
#[test]
fn launched_processes_are_started_by_the_agents_and_end_the_application() {
    let mut launchers = Launchers::new();
    let job = launchers.waiting(on_b(2, 100));
    launchers.after(10);
    let call = LauncherCall::Launch { job, tag: Tag(1), launch: program() };
    assert_eq!(launchers.ann(call.clone()), Ok(LauncherAnswer::Done));
    let nodes: BTreeSet<&str> = launchers.desires.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["b1", "b2"]));
    let launch = launchers.desires[0].1.jobs[0].launch.clone();
    assert_eq!((launch.n_tasks, launch.execution.cwd.as_str(), launch.execution.umask), (2, "/home/ann", 0o027));
    assert_eq!(launch.wall, Span::from_secs(90));
    let twice = launchers.ann(call).expect_err("once for each start");
    assert!(twice.to_string().contains("launched its processes already"), "{twice}");

    launchers.world.finish(job);
    launchers.told.clear();
    assert_eq!(launchers.state(job), None, "it is done when they have ended");
}

#[test]
fn a_launcher_that_is_done_ends_processes_that_still_run() {
    let mut launchers = Launchers::new();
    let job = launchers.waiting(on_b(1, 100));
    launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch: program() }).expect("it is taken");
    launchers.told.clear();
    launchers.finish(job, 1, 3);
    assert_eq!(launchers.state(job), Some(JobState::Ending));
    assert_eq!(launchers.ended(job), None, "the processes may still be there");
    launchers.world.finish(job);
    assert_eq!(launchers.state(job), None);
}

#[test]
fn before_its_start_an_application_may_withdraw() {
    let mut launchers = Launchers::new();
    let holder = launchers.waiting(on_a(4, 100));
    let (waiting, silent) = (launchers.waiting(on_a(4, 100)), launchers.subscribe());
    launchers.finish(waiting, 1, 0);
    launchers.finish(silent, 0, 2);
    assert_eq!(launchers.ended(waiting), Some(Outcome::Cancelled { by: "ann".to_owned() }));
    assert_eq!(launchers.ended(silent), Some(Outcome::Failed { code: 2 }));
    assert_eq!(launchers.state(holder), Some(JobState::Started));
}

/// A batch job, a silent launcher, and two that wait: the place in the queue is that of the first request.
#[test]
fn a_silent_application_takes_no_place_and_a_new_request_keeps_the_old_one() {
    let mut launchers = Launchers::new();
    let holder = launchers.waiting(on_a(4, 100));
    let silent = launchers.subscribe();
    launchers.after(1);
    let first = launchers.waiting(on_a(4, 100));
    launchers.after(1);
    let second = launchers.waiting(on_a(4, 100));
    launchers.after(1);
    launchers.request(first, 2, on_a(3, 50));
    launchers.request(silent, 1, on_a(4, 10));
    assert_eq!(launchers.world.line(silent).state, JobState::Waiting);
    launchers.accept(holder, 1);
    launchers.finish(holder, 1, 0);
    assert_eq!(launchers.grant(first).tag, Tag(2), "it stands before the second one, with its newest request");
    assert_eq!(launchers.state(second), Some(JobState::Waiting));
    assert_eq!(launchers.state(silent), Some(JobState::Waiting), "it came last");
}

#[test]
fn the_time_of_its_start_is_over_for_a_launcher_whose_nodes_no_agent_watches() {
    let mut launchers = Launchers::new();
    let job = launchers.waiting(on_a(2, 100));
    launchers.accept(job, 1);
    launchers.after(99);
    assert_eq!(launchers.state(job), Some(JobState::Started));
    launchers.after(1);
    assert_eq!(launchers.ended(job), Some(Outcome::WallTime));
}

/// What a launcher launches may change its size, within limits that fit what it was granted.
#[test]
fn limits_that_do_not_fit_the_granted_nodes_are_refused() {
    let limits = |least, most| rms_model::Malleable {
        least,
        most,
        sizes: rms_model::Sizes::Any,
        on_resize: rms_model::OnResize::Negotiates,
        speedup: rms_model::Speedup::default(),
        survives_loss: None,
    };
    let mut launchers = Launchers::new();
    let wrong = Subscription { malleable: Some(limits(5, 4)), ..Subscription::named("app") };
    let refused = launchers.ann(LauncherCall::Subscribe(Box::new(wrong)));
    assert_eq!(refused, Err(Refusal::MalleableSizes), "no number is from five to four");
    let job = launchers.waiting(on_a(2, 1000));
    let mut launch = |limits| {
        let launch = Box::new(Launchable { malleable: Some(limits), ..*program() });
        launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch })
    };
    let refused = launch(limits(3, 4)).expect_err("it has two").to_string();
    assert_eq!(refused, "2 nodes are not a size of this job, which may have from 3 to 4: change one of the two");
    assert_eq!(launch(limits(1, 4)), Ok(LauncherAnswer::Done));
    let both = launchers.waiting(Request { nodes: BTreeMap::from([(A, 1), (B, 1)]), wall: Span::from_secs(9) });
    let launch = Box::new(Launchable { malleable: Some(limits(1, 4)), ..*program() });
    let refused = launchers.ann(LauncherCall::Launch { job: both, tag: Tag(1), launch });
    assert!(refused.is_err(), "a job that changes its size has all its nodes on one cluster");
}
