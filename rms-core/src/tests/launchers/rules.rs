//! A launcher that breaks the rules is refused or ended, and no other launcher notices.

use rms_api::answer::Answer;
use rms_api::call::Select;
use rms_api::call::update::Changes;

use rms_model::Slice;

use super::*;
use crate::rate::{MAX_CALLS, MAX_SECONDS_EXCEEDED};

/// A holder and two that wait behind it, unaffected by what another launcher does.
struct OtherLaunchers {
    launchers: Launchers,
    jobs: [JobId; 3],
}

impl OtherLaunchers {
    fn new() -> OtherLaunchers {
        let mut launchers = Launchers::new();
        let holder = launchers.waiting(on_a(4, 100));
        let jobs = [holder, launchers.waiting(on_a(2, 60)), launchers.waiting(on_b(2, 30))];
        launchers.accept(holder, 1);
        // The last one's start changes the view of the one before it.
        launchers.set("kill_grace", "9s");
        launchers.told.clear();
        OtherLaunchers { launchers, jobs }
    }

    /// Checks that none of them was notified, and that each is in its earlier state.
    fn are_unaffected(&mut self) {
        for job in self.jobs {
            assert_eq!(self.launchers.told(job), [], "job {job}");
        }
        let states = self.jobs.map(|job| self.launchers.state(job));
        let expected = [JobState::Started, JobState::Waiting, JobState::Started].map(Some);
        assert_eq!(states, expected);
    }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> String {
    answer.expect_err("it breaks a rule").to_string()
}

#[test]
fn nobody_speaks_for_the_application_of_another() {
    let mut others = OtherLaunchers::new();
    let [holder, waits, _] = others.jobs;
    let launchers = &mut others.launchers;
    let wish = LauncherRequest::of_nodes(Tag(9), 0, on_a(1, 1));
    let calls = [
        LauncherCall::Attach { job: waits },
        LauncherCall::Clusters { job: waits },
        LauncherCall::Request { job: waits, wish },
        LauncherCall::Launch { job: holder, tag: Tag(1), launch: program() },
        LauncherCall::Accept { job: holder, tag: Tag(1) },
        LauncherCall::Finish { job: holder, tag: Tag(1), code: 0 },
    ];
    for call in calls {
        let answer = launchers.call("eve", call.clone());
        assert!(matches!(answer, Err(Refusal::NotYourApplication { .. })), "{call:?}: {answer:?}");
    }
    let admin = Identity::new(Role::Admin, "root").expect("a plain name");
    let call = LauncherCall::Finish { job: holder, tag: Tag(1), code: 0 };
    let effects = launchers.event(Event::LauncherCalled { ticket: Ticket(7), who: admin, call });
    let Effect::LauncherAnswer { answer: Err(refused), .. } = &effects[0] else { panic!("{effects:?}") };
    let why = format!("only launchers of ann may control job {holder}; an admin may cancel it ('rms cancel {holder}')");
    assert_eq!(refused.to_string(), why, "not even an admin");
    let agent = Identity::new(Role::Agent, "a1").expect("a plain name");
    let subscription = Subscription::named("x");
    let subscribe = LauncherCall::Subscribe(Box::new(subscription.clone()));
    let effects = launchers.event(Event::LauncherCalled { ticket: Ticket(7), who: agent, call: subscribe });
    assert!(matches!(&effects[0], Effect::LauncherAnswer { answer: Err(Refusal::NotAllowed { .. }), .. }));
    let first = Subscription { priority: 1, ..subscription };
    let first = launchers.ann(LauncherCall::Subscribe(Box::new(first)));
    assert!(matches!(first, Err(Refusal::NotAllowed { .. })), "only admins let go first");
    others.are_unaffected();
}

#[test]
fn a_tag_of_another_request_is_refused() {
    let mut others = OtherLaunchers::new();
    let [holder, waits, _] = others.jobs;
    let launchers = &mut others.launchers;
    let again = launchers.try_request(waits, 1, on_a(2, 60));
    assert_eq!(again, Ok(()), "the same once more is a lost answer, not news");
    assert_eq!(
        refusal(launchers.try_request(waits, 1, on_a(1, 60))),
        format!("job {waits}: request 1 does not come after 1; tags rise from request to request")
    );
    for call in [
        LauncherCall::Accept { job: holder, tag: Tag(2) },
        LauncherCall::Launch { job: holder, tag: Tag(0), launch: program() },
        LauncherCall::Finish { job: holder, tag: Tag(3), code: 0 },
    ] {
        let answer = launchers.ann(call);
        assert!(matches!(answer, Err(Refusal::WrongTag { granted: 1, .. })), "{answer:?}");
    }
    assert!(refusal(launchers.try_request(holder, 2, on_a(1, 60))).contains("granted already"));
    let early = launchers.ann(LauncherCall::Accept { job: waits, tag: Tag(1) });
    assert!(refusal(early).contains("it has not started"));
    others.are_unaffected();
}

#[test]
fn a_request_for_what_its_filter_does_not_show_is_refused() {
    let mut others = OtherLaunchers::new();
    let launchers = &mut others.launchers;
    let filter = Filter { clusters: BTreeSet::from(["b".to_owned()]), ..Filter::default() };
    let job = launchers.subscribe_with(filter).expect("it exists");
    launchers.told.clear();
    let tried = [
        (on_a(1, 60), format!("job {job}: its filter does not show cluster a; what it shows: cluster b has 2")),
        (
            Request { nodes: BTreeMap::from([(B, 1), (ClusterId(77), 0)]), wall: Span::from_secs(60) },
            format!(
                "job {job}: its filter does not show cluster number 77, which does not exist; what it shows: cluster b has 2"
            ),
        ),
        (on_b(3, 60), "3 nodes are needed, but cluster b has 2".to_owned()),
        (on_b(0, 60), "a job needs at least one node, one task and one CPU for each task".to_owned()),
        (on_b(1, 0), "the wall time must be longer than zero".to_owned()),
        (on_b(1, 366 * 24 * 3600), "a wall time of 366d is longer than the longest allowed, 365d".to_owned()),
    ];
    for (request, expected) in tried {
        assert_eq!(refusal(launchers.try_request(job, 1, request)), expected);
    }
    assert_eq!(launchers.state(job), Some(JobState::Submitted), "it has no place in the queue");
    let unknown = Filter { clusters: BTreeSet::from(["c".to_owned()]), ..Filter::default() };
    assert_eq!(refusal(launchers.subscribe_with(unknown)), "there is no cluster 'c'; the clusters are a, b");
    let mut featured = Filter::default();
    featured.constraint.features.insert("warp".to_owned());
    assert!(matches!(launchers.subscribe_with(featured), Err(Refusal::NoSuchFeature { .. })));
    others.are_unaffected();
}

#[test]
fn what_is_launched_must_fit_the_nodes_that_were_granted() {
    let mut launchers = Launchers::new();
    let job = launchers.waiting(on_b(2, 100));
    let mut try_launch = |change: fn(&mut Launchable)| {
        let mut launch = program();
        change(&mut launch);
        refusal(launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch }))
    };
    assert!(try_launch(|launch| launch.n_tasks = Some(1)).contains("1 task cannot be spread over 2 nodes"));
    assert!(try_launch(|launch| launch.cpus_per_task = 5).contains("1 task of 5 CPUs"));
    assert!(try_launch(|launch| launch.n_tasks = Some(0)).contains("at least one"));
    assert!(try_launch(|launch| launch.execution.cwd = "here".to_owned()).contains("absolute path"));
    assert!(try_launch(|launch| launch.execution.work = Work::Nodes).contains("a script or a program"));
    assert!(launchers.desires.is_empty());
}

/// A batch job has no launcher for which a caller could act.
#[test]
fn a_job_that_was_submitted_with_its_work_is_no_launchers() {
    let mut launchers = Launchers::new();
    let job = launchers.world.submit(1, 60, &[]);
    let who = Identity::new(Role::Admin, "root").expect("a plain name");
    let call = LauncherCall::Attach { job };
    let effects = launchers.event(Event::LauncherCalled { ticket: Ticket(7), who, call });
    assert!(matches!(&effects[0], Effect::LauncherAnswer { answer: Err(Refusal::NoLauncher(_)), .. }));
}

/// The requests of one application per second are limited; one that goes on is ended.
#[test]
fn a_flood_is_refused_and_then_ended() {
    let mut others = OtherLaunchers::new();
    let launchers = &mut others.launchers;
    launchers.set("resched_timer", "1s");
    let flooder = launchers.subscribe();
    let mut tag = 0;
    let mut flood = |launchers: &mut Launchers, n_calls| {
        let mut n_refused = 0;
        for _ in 0..n_calls {
            tag += 1;
            match launchers.try_request(flooder, tag, on_a(1 + (tag % 4) as u32, 60)) {
                Ok(()) => {}
                Err(Refusal::RateLimit { most: MAX_CALLS, .. }) => n_refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        n_refused
    };
    assert_eq!(flood(launchers, MAX_CALLS + 20), 20);
    // A second without excess resets the count.
    launchers.after(2);
    for _ in 1..MAX_SECONDS_EXCEEDED {
        assert_eq!(flood(launchers, MAX_CALLS + 1), 1);
        launchers.after(1);
    }
    assert_eq!(launchers.state(flooder), Some(JobState::Waiting));
    assert_eq!(flood(launchers, MAX_CALLS + 1), 1);
    assert_eq!(launchers.state(flooder), None);
    let outcome = launchers.ended(flooder);
    assert!(matches!(outcome, Some(Outcome::Violation { .. })), "{outcome:?}");
    others.are_unaffected();
}

/// The quotas are checked again when it is known what the application executes.
#[test]
fn what_is_launched_counts_as_what_is_submitted() {
    let mut launchers = Launchers::new();
    launchers.set("script_limit", "1");
    let launch = |n_bytes: usize| {
        let work = Work::Script { script: "x".repeat(n_bytes), args: Vec::new() };
        Box::new(Launchable::of(work))
    };
    let job = launchers.waiting(on_a(1, 100));
    let mut launched = |n_bytes| launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch: launch(n_bytes) });
    assert!(refusal(launched(2 << 20)).contains("script_limit"));
    assert_eq!(launched(1 << 19), Ok(LauncherAnswer::Done));
    let job = launchers.waiting(on_a(1, 100));
    assert!(
        refusal(launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch: launch(1 << 20) })).contains("limit")
    );
    // The next is as large as the first, but comes too soon after it.
    launchers.set("script_limit", "none");
    launchers.set("submit_limit", "1");
    let answer = launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch: launch(1 << 19) });
    assert!(refusal(answer).contains("submit_limit"));
}

/// Not even the first submission is accepted, whatever its size, and not after a restart either.
#[test]
fn who_may_bring_in_nothing_a_second_brings_in_nothing() {
    let mut launchers = Launchers::new();
    launchers.set("submit_limit@ann", "0");
    for _ in 0..2 {
        assert!(refusal(launchers.subscribe_with(Filter::default())).contains("you may not submit"));
        launchers.after(100);
        launchers.world.restart(1);
    }
}

#[test]
fn users_change_what_is_theirs_of_an_application_that_waits_and_its_launcher_the_rest() {
    let mut launchers = Launchers::new();
    launchers.waiting(on_a(4, 100));
    let job = launchers.waiting(on_a(2, 60));
    let mut update = |changes: Changes| {
        let who = Identity::new(Role::User, "ann").expect("a plain name");
        let call = Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) };
        let effects = launchers.event(Event::Called { ticket: Ticket(1), who, call });
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { answer: Ok(Answer::Jobs { refused, .. }), .. } => Some(refused),
            _ => None,
        });
        answer.expect("a list of jobs").first().map(|(_, why)| why.message.clone())
    };
    let labels = BTreeMap::from([("name".to_owned(), "x".to_owned())]);
    assert_eq!(update(Changes { labels, priority: Some(-2), ..Changes::default() }), None);
    let refused = update(Changes { cwd: Some("/tmp".to_owned()), ..Changes::default() }).expect("no business of ann's");
    assert!(refused.contains("its launcher says what is started"), "{refused}");
    let refused = update(Changes { n_tasks: Some(1), ..Changes::default() }).expect("nor is that");
    assert!(refused.contains("its launcher says its sizes"), "{refused}");
    let spec = &launchers.world.rms.state().jobs()[&job].spec;
    assert_eq!((spec.labels.name.as_str(), spec.priority), ("x", -2));
}

/// What never ran is not completed: its launcher has taken it back.
#[test]
fn who_finishes_before_a_start_withdraws() {
    let mut others = OtherLaunchers::new();
    let [_, waits, too] = others.jobs;
    let launchers = &mut others.launchers;
    launchers.finish(waits, 1, 0);
    assert_eq!(launchers.ended(waits), Some(Outcome::Cancelled { by: "ann".to_owned() }));
    launchers.finish(too, 1, 3);
    assert_eq!(launchers.ended(too), Some(Outcome::Failed { code: 3 }), "that is what it says");
}

#[test]
fn an_application_ends_with_a_code_that_a_process_can_have() {
    let mut others = OtherLaunchers::new();
    let [holder, _, _] = others.jobs;
    let launchers = &mut others.launchers;
    for code in [-1, 256] {
        let answer = launchers.ann(LauncherCall::Finish { job: holder, tag: Tag(1), code });
        let refused = answer.expect_err("no process has such a code").to_string();
        assert!(refused.contains("an exit code is between 0 and 255"), "{refused}");
    }
    launchers.finish(holder, 1, 255);
    assert_eq!(launchers.ended(holder), Some(Outcome::Failed { code: 255 }));
}

#[test]
fn who_wants_more_memory_in_all_than_a_cluster_has_is_told_how_much_there_is() {
    let mut launchers = Launchers::new();
    for (name, memory) in [("c1", 1000), ("c2", 500)] {
        launchers.joins("c", name, Inventory { memory: Mebibytes(memory), ..plain() });
    }
    let filter = |in_all| Filter { clusters: ["c".to_owned()].into(), total_memory: in_all, ..Filter::default() };
    launchers.subscribe_with(filter(Mebibytes(1500))).expect("it has that");
    let refused = launchers.subscribe_with(filter(Mebibytes(1501))).expect_err("it has less").to_string();
    let expected =
        "1 node in a cluster with 1501 MiB of memory in all is needed, but cluster c has 2 with 1500 MiB in all";
    assert_eq!(refused, expected);
}

/// A filter shows a cluster or does not, whatever of it is requested.
#[test]
fn a_cluster_without_a_node_for_the_slice_is_shown_nevertheless() {
    let mut launchers = Launchers::new();
    let filter = Filter { clusters: ["a".to_owned()].into(), ..Filter::default() };
    let job = launchers.subscribe_with(filter).expect("it is allowed");
    let mut refused = |cores, request| {
        let slice = Slice { cores, ..Slice::default() };
        let wish = LauncherRequest { slice, ..LauncherRequest::of_nodes(Tag(1), 0, request) };
        launchers.ann(LauncherCall::Request { job, wish }).expect_err("there is none").to_string()
    };
    let too_large = refused(1000, on_a(1, 10));
    assert_eq!(too_large, "1 node with at least 1000 cores is needed, but cluster a has 0");
    let elsewhere = refused(1, Request::on_one(B, 1, Span::from_secs(10)));
    assert_eq!(elsewhere, format!("job {job}: its filter does not show cluster b; what it shows: cluster a has 4"));
}
