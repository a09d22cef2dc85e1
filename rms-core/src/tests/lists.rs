//! Lists show what was requested, by a plan that all readers share.

use rms_api::answer::{Answer, JobDetail, JobLine, JobState, NodeState, Reason};
use rms_api::call::update::Changes;
use rms_api::call::{Nodes, Select, Shape};
use rms_api::filter::{JobFilter, NodeFilter, column};
use rms_api::refusal::Refusal;
use rms_api::{Call, Query};
use rms_model::{Identity, JobId, Labels, NodeAdmin, Role, Span, Time};

use super::World;

impl World {
    fn submit_as(&mut self, user: &str, name: &str, secs: i64, hold: bool) -> JobId {
        let mut submission = self.submission();
        submission.labels = Labels::named(name);
        submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(secs)) }];
        submission.hold = hold;
        let who = Identity::new(Role::User, user).expect("a plain name");
        match self.ask_as(who, Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn queue_of(&mut self, filter: JobFilter) -> (Time, Vec<JobLine>) {
        match self.ask(Call::Query(Query::Queue(filter))) {
            Answer::Queue { planned, jobs, .. } => (planned, jobs),
            other => panic!("no queue: {other:?}"),
        }
    }

    fn listed(&mut self, filter: JobFilter) -> Vec<u64> {
        self.queue_of(filter).1.iter().map(|line| line.job.0).collect()
    }

    fn sorted(&mut self, words: &[&str]) -> Vec<u64> {
        let sort = words.iter().map(|word| column(word).expect("a column")).collect();
        self.listed(JobFilter { sort, ..JobFilter::default() })
    }

    fn listed_nodes(&mut self, filter: NodeFilter) -> Vec<String> {
        match self.ask(Call::Query(Query::Nodes(filter))) {
            Answer::Nodes { nodes, .. } => nodes.into_iter().map(|node| node.name).collect(),
            other => panic!("no nodes: {other:?}"),
        }
    }

    fn refusal(&mut self, query: Query) -> Option<Refusal> {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        self.ask_as(who, Call::Query(query)).err()
    }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// Creates four jobs: one runs, two wait, one is held.
fn four() -> World {
    let mut world = World::new();
    world.node("n1", &[]);
    world.submit_as("ann", "cfd", 100, false);
    world.now += Span::from_secs(1);
    world.submit_as("bob", "mesh", 300, false);
    world.submit_as("ann", "cfd", 200, false);
    world.submit_as("bob", "cfd", 50, true);
    world
}

#[test]
fn jobs_are_selected_by_what_is_known_of_them() {
    let mut world = four();
    let all = JobFilter::default;
    assert_eq!(world.listed(all()), [1, 2, 3, 4]);
    assert_eq!(world.listed(JobFilter { users: texts(["ann"]), ..all() }), [1, 3]);
    assert_eq!(world.listed(JobFilter { users: texts(["bob", "eve", "ann"]), ..all() }), [1, 2, 3, 4]);
    assert_eq!(world.listed(JobFilter { states: vec![JobState::Waiting], ..all() }), [2, 3]);
    assert_eq!(world.listed(JobFilter { states: vec![JobState::Held, JobState::Started], ..all() }), [1, 4]);
    assert_eq!(world.listed(JobFilter { names: texts(["cfd"]), users: texts(["bob"]), ..all() }), [4]);
    assert_eq!(world.listed(JobFilter { accounts: texts(["", "lab"]), ..all() }), [1, 2, 3, 4]);
    let labels = [("account".to_owned(), "lab".to_owned())].into();
    let changes = Box::new(Changes { labels, ..Changes::default() });
    world.ask(Call::Update { select: Select::Ids(vec![JobId(3)]), changes });
    assert_eq!(world.listed(JobFilter { accounts: texts(["lab"]), ..all() }), [3]);
    assert_eq!(world.listed(JobFilter { jobs: [4, 3, 99, 1].map(JobId).to_vec(), ..all() }), [1, 3, 4]);
    assert_eq!(world.listed(JobFilter { since: Some(world.now), ..all() }), [2, 3, 4]);
    assert_eq!(world.listed(JobFilter { clusters: texts(["c"]), limit: 3, ..all() }), [1, 2, 3]);
    assert_eq!(world.listed(JobFilter { limit: 2, offset: 1, ..all() }), [2, 3]);
    assert!(world.listed(JobFilter { offset: 9, ..all() }).is_empty());
    let elsewhere = Query::Queue(JobFilter { clusters: texts(["x"]), ..all() });
    assert!(matches!(world.refusal(elsewhere), Some(Refusal::NoSuchCluster { .. })));
}

#[test]
fn jobs_are_sorted_by_one_column_after_the_other() {
    let mut world = four();
    assert_eq!(world.sorted(&["-wall"]), [2, 3, 1, 4]);
    assert_eq!(world.sorted(&["user", "-job"]), [3, 1, 4, 2]);
    assert_eq!(world.sorted(&["start"]), [1, 2, 3, 4]);
    assert_eq!(world.sorted(&["-start"]), [4, 3, 2, 1]);
    assert_eq!(world.sorted(&["-start", "start", "-job"]), [4, 3, 2, 1], "a column counts once");
    assert_eq!(world.sorted(&["-priority"]), [1, 2, 3, 4], "who is equal stays as he would start");
    world.ask(Call::set_priority(Select::Ids(vec![JobId(3)]), 7));
    assert_eq!(world.sorted(&["-priority", "name", "submit"]), [3, 1, 4, 2]);
    let sort = vec![column("wall").expect("a column")];
    assert_eq!(world.listed(JobFilter { sort, users: texts(["bob"]), limit: 1, ..JobFilter::default() }), [4]);
}

#[test]
fn details_are_of_the_jobs_that_a_filter_selects_in_its_order() {
    let mut world = four();
    let mut details = |who: &str, filter| {
        let who = Identity::new(Role::User, who).expect("a plain name");
        match world.ask_as(who, Call::Query(Query::Details(filter))) {
            Ok(Answer::Detail { jobs, .. }) => jobs,
            other => panic!("no details: {other:?}"),
        }
    };
    let all = JobFilter::default;
    let ids = |jobs: &[JobDetail]| jobs.iter().map(|detail| detail.line.job.0).collect::<Vec<_>>();
    assert_eq!(ids(&details("ann", all())), [1, 2, 3, 4]);
    let sort = vec![column("-wall").expect("a column")];
    assert_eq!(ids(&details("ann", JobFilter { sort, offset: 1, limit: 2, ..all() })), [3, 1]);
    assert!(ids(&details("ann", JobFilter { names: texts(["none"]), ..all() })).is_empty());
    // Jobs that have ended are not listed, and not refused.
    let named = JobFilter { jobs: [99, 3, 2].map(JobId).to_vec(), ..all() };
    let found = details("ann", named);
    assert_eq!(ids(&found), [2, 3]);
    let reason = |detail: &JobDetail| detail.line.reason.clone();
    assert!(found.iter().all(|detail| matches!(reason(detail), Some(Reason::Blocked { by, .. }) if !by.is_empty())));
    let elsewhere = Query::Details(JobFilter { clusters: texts(["x"]), ..all() });
    assert!(matches!(world.refusal(elsewhere), Some(Refusal::NoSuchCluster { .. })));
}

/// Holds for every way to select the job.
#[test]
fn a_job_beyond_the_depth_knows_its_place_in_every_list() {
    let mut world = four();
    world.set("queue_depth", "1");
    for filter in [
        JobFilter::default(),
        JobFilter { users: texts(["ann"]), ..JobFilter::default() },
        JobFilter { jobs: vec![JobId(3)], ..JobFilter::default() },
        JobFilter { sort: vec![column("user").expect("a column")], ..JobFilter::default() },
    ] {
        let (_, lines) = world.queue_of(filter);
        let third = lines.into_iter().find(|line| line.job == JobId(3)).expect("it waits");
        assert_eq!(third.reason, Some(Reason::BeyondDepth { depth: 1, position: 2 }));
    }
}

#[test]
fn nodes_are_selected_and_sorted() {
    let mut world = four();
    (2..=4).for_each(|number| _ = world.node(&format!("n{number}"), &[]));
    world.ask(Call::Drain { nodes: texts(["n4"]), reason: "fans".to_owned() });
    let all = NodeFilter::default;
    assert_eq!(world.listed_nodes(NodeFilter { users: texts(["bob"]), ..all() }), ["n2"]);
    assert_eq!(world.listed_nodes(NodeFilter { states: vec![NodeState::Drained], ..all() }), ["n4"]);
    assert_eq!(world.listed_nodes(NodeFilter { names: texts(["n3", "n1"]), ..all() }), ["n1", "n3"]);
    let sort = ["-state", "-node"].map(|word| column(word).expect("a column")).to_vec();
    assert_eq!(world.listed_nodes(NodeFilter { sort, limit: 3, offset: 1, ..all() }), ["n3", "n2", "n1"]);
    world.now += Span::from_mins(10);
    let since = Some(world.now);
    assert_eq!(world.listed_nodes(NodeFilter { since, ..all() }), [""; 0]);
    world.ask(Call::Drain { nodes: texts(["n3"]), reason: "fans".to_owned() });
    assert_eq!(world.listed_nodes(NodeFilter { since, ..all() }), ["n3"]);
    let refused = |filter| Query::Nodes(filter);
    let unknown = refused(NodeFilter { names: texts(["n9"]), ..all() });
    assert!(matches!(world.refusal(unknown), Some(Refusal::NoSuchNode { .. })));
    let elsewhere = refused(NodeFilter { clusters: texts(["x"]), ..all() });
    assert!(matches!(world.refusal(elsewhere), Some(Refusal::NoSuchCluster { .. })));
}

#[test]
fn nodes_are_in_the_natural_order_of_their_names() {
    let mut world = World::new();
    for name in ["n10", "n2", "n1"] {
        world.node(name, &[]);
    }
    let all = NodeFilter::default;
    assert_eq!(world.listed_nodes(all()), ["n1", "n2", "n10"]);
    assert_eq!(world.listed_nodes(NodeFilter { names: texts(["n10", "n2"]), ..all() }), ["n2", "n10"]);
    assert_eq!(world.listed_nodes(NodeFilter { limit: 1, offset: 1, ..all() }), ["n2"]);
    let by = |word| NodeFilter { sort: vec![column(word).expect("a column")], ..all() };
    assert_eq!(world.listed_nodes(by("-node")), ["n10", "n2", "n1"]);
    assert_eq!(world.listed_nodes(by("-cpus")), ["n1", "n2", "n10"], "where all are alike");
}

/// Creates one node, on which the first of 200 jobs runs for a minute, as each of them would.
fn two_hundred() -> World {
    let mut world = World::new();
    world.node("n1", &[]);
    (0..200).for_each(|_| _ = world.submit(1, 60, &[]));
    world
}

fn line(lines: &[JobLine], job: JobId) -> JobLine {
    lines.iter().find(|line| line.job == job).expect("it is listed").clone()
}

#[test]
fn readers_share_a_plan_for_a_second_and_see_of_when_it_is() {
    let mut world = two_hundred();
    let begun = world.now;
    let (planned, lines) = world.queue_of(JobFilter::default());
    assert_eq!((planned, line(&lines, JobId(3)).estimate), (begun, Some(begun + Span::from_secs(120))));
    for _ in 0..9 {
        world.now += Span::from_millis(100);
        world.submit(1, 60, &[]);
        assert_eq!(world.queue_of(JobFilter { limit: 50, ..JobFilter::default() }).0, begun);
    }
    world.now += Span::from_millis(100);
    assert_eq!(world.queue_of(JobFilter::default()).0, world.now);
}

#[test]
fn an_older_plan_never_contradicts_what_is_true_now() {
    let mut world = two_hundred();
    let begun = world.now;
    world.queue_of(JobFilter::default());
    world.now += Span::from_millis(500);
    let late = world.submit(1, 60, &[]);
    let (hasty, gone) = (JobId(100), JobId(50));
    world.ask(Call::set_priority(Select::Ids(vec![hasty]), -1));
    world.ask(Call::Cancel { select: Select::Ids(vec![gone]) });
    world.node("n2", &[]);
    let (planned, lines) = world.queue_of(JobFilter::default());
    assert_eq!(planned, begun);
    // The job has started on the new node, whatever the plan says.
    let second = line(&lines, JobId(2));
    assert_eq!((second.state, second.started, second.estimate), (JobState::Started, Some(world.now), None));
    // The plan does not know their present state.
    for job in [late, hasty] {
        let line = line(&lines, job);
        assert!(matches!((line.estimate, &line.reason), (None, Some(Reason::NotPlanned { .. }))), "{line:?}");
    }
    assert!(lines.iter().all(|line| line.job != gone));
    let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Explain(Select::Ids(vec![JobId(60)])))) else {
        panic!("no details");
    };
    let Some(Reason::Blocked { by, .. }) = &jobs[0].line.reason else { panic!("{:?}", jobs[0].line) };
    let blockers: Vec<JobId> = by.iter().map(|blocker| blocker.job).collect();
    assert_eq!(blockers.iter().filter(|job| **job == JobId(2)).count(), 1, "{blockers:?}");
    assert!(!blockers.contains(&gone));
    // A start that was due by now is due now.
    world.now += Span::from_millis(400);
    let (_, lines) = world.queue_of(JobFilter { states: vec![JobState::Waiting], ..JobFilter::default() });
    assert!(lines.iter().filter_map(|line| line.estimate).all(|estimate| estimate >= world.now));
}

#[test]
fn what_turns_the_plan_over_is_seen_at_once() {
    let mut world = two_hundred();
    world.queue_of(JobFilter::default());
    world.now += Span::from_millis(100);
    world.set("policy", "fcfs");
    assert_eq!(world.queue_of(JobFilter::default()).0, world.now);
    world.now += Span::from_millis(100);
    world.ask(Call::Drain { nodes: texts(["n1"]), reason: "fans".to_owned() });
    let (planned, lines) = world.queue_of(JobFilter::default());
    assert_eq!(planned, world.now);
    assert!(matches!(world.rms.state().nodes().values().next().map(|node| &node.admin), Some(NodeAdmin::Drain { .. })));
    assert!(matches!(line(&lines, JobId(3)).reason, Some(Reason::TooFewNodes { .. })), "{:?}", line(&lines, JobId(3)));
}

/// Occupied and planned nodes are of one instant, or they would not fit into the cluster.
#[test]
fn the_view_is_of_one_instant() {
    let mut world = two_hundred();
    let begun = world.now;
    let view = |world: &mut World| match world.ask(Call::Query(Query::View { job: None })) {
        Answer::View(view) => view,
        other => panic!("no view: {other:?}"),
    };
    let first = view(&mut world);
    assert_eq!(first.now, begun);
    world.now += Span::from_millis(500);
    world.node("n2", &[]);
    assert_eq!(view(&mut world), first);
    // A query of the queue has made a plan whose view no query has requested yet.
    world.now += Span::from_millis(500);
    world.queue_of(JobFilter::default());
    world.now += Span::from_millis(100);
    world.node("n3", &[]);
    let later = view(&mut world);
    assert_eq!(later.now, world.now);
    let cluster = &later.clusters[0];
    let sum = &cluster.started + &cluster.planned;
    assert!(sum.max(world.now, Time::NEVER) <= i64::from(cluster.capacity), "{cluster:?}");
}
