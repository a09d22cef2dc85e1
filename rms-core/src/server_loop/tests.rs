//! Tests of the loop around the core: which peer is told what, and when, on disks that are slow, fail or are full.

use rms_api::answer::JobState;
use rms_api::call::Select;
use rms_api::desired::{AgentHello, JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::subscription::{LauncherAnswer, LauncherCall, Subscription};
use rms_api::{Answer, Call, Query};
use rms_model::{Identity, Inventory, NodeLink, Role, Run, Span, Usage};

use super::*;
use crate::Config;

/// Drives the loop, with a disk that accepts everything, or rejects everything for a reason.
struct Driver {
    server_loop: ServerLoop,
    now: Time,
    disk: Result<(), String>,
    n_writes: usize,
    n_tickets: u64,
}

impl Driver {
    /// Creates a driver with a node whose agent is connected over its first link.
    fn new() -> Driver {
        let now = Time::from_secs(1_000_000);
        let server_loop = ServerLoop::new(Rms::new(Config::default()), Step::default());
        let mut driver = Driver { server_loop, now, disk: Ok(()), n_writes: 0, n_tickets: 0 };
        driver.connects(1);
        driver.n_writes = 0;
        driver
    }

    fn ticket(&mut self) -> Ticket {
        self.n_tickets += 1;
        Ticket(self.n_tickets)
    }

    fn take(&mut self, inbound: Inbound) {
        self.server_loop.take(self.now, inbound);
    }

    fn turn(&mut self) -> Vec<Outbound> {
        self.server_loop.turn(self.now);
        if self.server_loop.write().is_some() {
            self.n_writes += 1;
            self.server_loop.written(self.now, self.disk.clone());
        }
        self.server_loop.state().check().expect("the state is sound");
        self.server_loop.sends()
    }

    fn call(&mut self, role: Role, call: Call) -> Ticket {
        let ticket = self.ticket();
        let who = Identity::new(role, "ann").expect("a plain name");
        self.take(Inbound::Called { ticket, who, call });
        ticket
    }

    fn submit(&mut self) -> Ticket {
        let submission = test_kit::submission(1, Span::from_secs(100));
        self.call(Role::User, Call::Submit(Box::new(submission)))
    }

    fn submitted(&mut self) -> JobId {
        let ticket = self.submit();
        match answer_to(&self.turn(), ticket) {
            Some(Ok(Answer::Submitted { job })) => *job,
            other => panic!("it was not submitted: {other:?}"),
        }
    }

    fn connects(&mut self, link: u64) -> Vec<Outbound> {
        let (name, address) = ("n1".to_owned(), "n1:1".to_owned());
        let hello = AgentHello { cluster: "c".to_owned(), address, inventory: Inventory::default(), trouble: None };
        self.take(Inbound::AgentConnected { name, link: LinkId(link), hello, report: NodeReport::default() });
        self.turn()
    }

    fn reports(&mut self, link: u64, job: JobId, status: JobStatus) -> Vec<Outbound> {
        let job = JobReport { job, run: Run(1), status };
        let report = NodeReport { jobs: vec![job], ..NodeReport::default() };
        self.take(Inbound::AgentReported { name: "n1".to_owned(), link: LinkId(link), report });
        self.turn()
    }

    fn is_known(&self, job: u64) -> bool {
        self.server_loop.state().jobs().contains_key(&JobId(job))
    }
}

fn answer_to(sent: &[Outbound], asked: Ticket) -> Option<&Result<Answer, Denial>> {
    sent.iter().find_map(|outbound| match outbound {
        Outbound::Answer { ticket, answer } if *ticket == asked => Some(answer),
        _ => None,
    })
}

#[test]
fn nobody_is_told_what_is_not_durable() {
    let mut driver = Driver::new();
    let ticket = driver.submit();
    driver.server_loop.turn(driver.now);
    let write = driver.server_loop.write().expect("a job is to be written");
    assert!(!write.facts.is_empty());
    assert_eq!(driver.server_loop.sends(), []);
    assert_eq!(driver.server_loop.next_turn(), None, "how that went comes first");
    driver.server_loop.written(driver.now, Ok(()));
    assert!(matches!(answer_to(&driver.server_loop.sends(), ticket), Some(Ok(Answer::Submitted { .. }))));
}

#[test]
fn who_waits_while_the_disk_fails_is_told_so_once_and_the_order_may_take_effect_later() {
    let mut driver = Driver::new();
    driver.disk = Err("the disk is gone".to_owned());
    let ticket = driver.submit();
    let sent = driver.turn();
    let Some(Err(Denial::Failing(failing))) = answer_to(&sent, ticket) else { panic!("{sent:?}") };
    assert!(failing.message.contains("the disk is gone; what was asked for at this moment may still"), "{failing}");

    // From now on no caller gets that far, not even with a query.
    let asked = driver.call(Role::Admin, Call::Query(Query::Queue(Default::default())));
    let sent = driver.turn();
    assert!(matches!(answer_to(&sent, asked), Some(Err(Denial::Failing(_)))), "{sent:?}");
    assert_eq!(driver.n_writes, 1, "it is not tried again at once");

    driver.disk = Ok(());
    driver.now = driver.server_loop.next_turn().expect("it is tried again");
    assert_eq!(answer_to(&driver.turn(), ticket), None);
    assert!(driver.is_known(1) && driver.server_loop.failure().is_none());
    assert_eq!(driver.submitted(), JobId(2));
}

#[test]
fn on_a_full_disk_questions_and_orders_to_end_go_on_and_new_work_does_not() {
    let mut driver = Driver::new();
    let job = driver.submitted();
    assert!(driver.server_loop.looks_for_space(driver.now));
    driver.server_loop.found_space(driver.now, Some("no space".to_owned()));
    assert!(!driver.server_loop.looks_for_space(driver.now));
    let refused = driver.submit();
    let cancelled = driver.call(Role::User, Call::Cancel { select: Select::Ids(vec![job]) });
    let status = driver.call(Role::User, Call::Query(Query::Status));
    let sent = driver.turn();
    assert!(matches!(answer_to(&sent, refused), Some(Err(Denial::Failing(_)))), "{sent:?}");
    assert!(matches!(answer_to(&sent, cancelled), Some(Ok(_))), "{sent:?}");
    assert_eq!(shortage_in(&sent, status).as_deref(), Some("no space"));

    driver.now = driver.server_loop.next_turn().expect("it looks again");
    driver.turn();
    assert!(driver.server_loop.looks_for_space(driver.now));
    driver.server_loop.found_space(driver.now, None);
    driver.submitted();
    let status = driver.call(Role::User, Call::Query(Query::Status));
    assert_eq!(shortage_in(&driver.turn(), status), None);
}

/// Returns why no job starts, as the answer about the status says it.
fn shortage_in(sent: &[Outbound], asked: Ticket) -> Option<String> {
    match answer_to(sent, asked) {
        Some(Ok(Answer::Status(status))) => status.shortage.clone(),
        other => panic!("no status: {other:?}"),
    }
}

#[test]
fn that_a_job_runs_is_written_with_what_comes_soon_or_a_little_later() {
    let mut driver = Driver::new();
    let job = driver.submitted();
    let n_writes = driver.n_writes;
    driver.reports(1, job, JobStatus::Running { since: driver.now, generation: 1, is_confined: true });
    assert_eq!((driver.n_writes, driver.server_loop.is_behind()), (n_writes, true));
    let last = driver.server_loop.next_turn().expect("it is written");
    assert!(last > driver.now && last <= driver.now + Span::from_millis(50));
    driver.now = last;
    driver.turn();
    assert_eq!((driver.n_writes, driver.server_loop.is_behind()), (n_writes + 1, false));
}

#[test]
fn what_could_wait_and_was_not_taken_is_tried_again_when_it_is_time() {
    let mut driver = Driver::new();
    let job = driver.submitted();
    driver.reports(1, job, JobStatus::Running { since: driver.now, generation: 1, is_confined: true });
    driver.disk = Err("the disk is gone".to_owned());
    let n_writes = driver.n_writes;
    for n_tries in 1..4 {
        driver.now = driver.server_loop.next_turn().expect("it is tried again");
        driver.turn();
        assert_eq!(driver.n_writes, n_writes + n_tries);
    }
}

#[test]
fn a_node_is_sent_one_desired_state_a_batch() {
    let mut driver = Driver::new();
    let (first, second) = (driver.submitted(), driver.submitted());
    let status = JobStatus::Ended { at: driver.now, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
    // The batch ends the first job and starts the second one.
    let sent = driver.reports(1, first, status);
    let states = sent.into_iter().filter_map(|outbound| match outbound {
        Outbound::Desire { link: LinkId(1), desired } => Some(desired.jobs),
        _ => None,
    });
    let jobs: Vec<Vec<JobId>> = states.map(|jobs| jobs.iter().map(|job| job.job).collect()).collect();
    assert_eq!(jobs, [[second]]);
}

#[test]
fn a_late_word_over_an_older_link_counts_nothing() {
    let mut driver = Driver::new();
    let sent = driver.connects(2);
    let closed = |outbound: &Outbound| matches!(outbound, Outbound::CloseLink { link: LinkId(1), .. });
    assert!(sent.iter().any(closed), "{sent:?}");
    driver.take(Inbound::AgentGone { name: "n1".to_owned(), link: LinkId(1) });
    driver.turn();
    let link_of = |driver: &Driver| {
        let state = driver.server_loop.state();
        state.nodes()[&state.node_named("n1").expect("it has joined")].link
    };
    assert!(matches!(link_of(&driver), NodeLink::Connected { .. }));
    driver.take(Inbound::AgentGone { name: "n1".to_owned(), link: LinkId(2) });
    driver.turn();
    assert!(!matches!(link_of(&driver), NodeLink::Connected { .. }));
}

#[test]
fn a_launcher_that_does_not_know_that_it_speaks_for_an_application_does_not() {
    let mut driver = Driver::new();
    driver.disk = Err("the disk is gone".to_owned());
    let subscribe = |driver: &mut Driver, channel: u64, call: LauncherCall| {
        let (ticket, who) = (driver.ticket(), Identity::new(Role::User, "ann").expect("a plain name"));
        driver.take(Inbound::LauncherCalled { ticket, channel: ChannelId(channel), who, call });
        driver.turn()
    };
    let sent = subscribe(&mut driver, 1, LauncherCall::Subscribe(Box::new(Subscription::named("l"))));
    assert!(matches!(&sent[..], [Outbound::LauncherAnswer { ticket: _, answer: Err(Denial::Failing(_)) }]), "{sent:?}");
    driver.disk = Ok(());
    driver.now = driver.server_loop.next_turn().expect("it is tried again");
    assert_eq!(driver.turn(), []);
    let job = JobId(1);
    assert!(driver.is_known(1) && driver.server_loop.launcher_of(job).is_none());
    assert_eq!(driver.server_loop.next_turn(), Some(Time::EPOCH), "the core is told at once");
    driver.turn();

    let attached = subscribe(&mut driver, 2, LauncherCall::Attach { job });
    let subscribed = |outbound: &Outbound| {
        matches!(outbound, Outbound::LauncherAnswer { answer: Ok(LauncherAnswer::Subscribed { .. }), .. })
    };
    assert!(attached.iter().any(subscribed), "{attached:?}");
    assert_eq!(driver.server_loop.launcher_of(job), Some(ChannelId(2)));
    driver.take(Inbound::LauncherGone { channel: ChannelId(2) });
    driver.turn();
    assert_eq!(driver.server_loop.launcher_of(job), None);
}

#[test]
fn who_watches_is_told_every_change_until_the_end() {
    let mut driver = Driver::new();
    let job = driver.submitted();
    let (ticket, nothing) = (driver.ticket(), driver.ticket());
    driver.take(Inbound::Watch { ticket, jobs: vec![job, JobId(99)] });
    driver.take(Inbound::Watch { ticket: nothing, jobs: vec![JobId(99)] });
    let sent = driver.turn();
    let found = |asked: Ticket| {
        sent.iter().find_map(|outbound| match outbound {
            Outbound::Found { ticket, found: Ok(found) } if *ticket == asked => Some(found.len()),
            _ => None,
        })
    };
    assert_eq!((found(ticket), found(nothing)), (Some(1), Some(0)));
    assert!(sent.contains(&Outbound::WatchEnds { ticket: nothing }));

    let ended = JobStatus::Ended { at: driver.now, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
    let sent = driver.reports(1, job, ended);
    let told: Vec<JobState> = sent
        .iter()
        .filter_map(|outbound| match outbound {
            Outbound::Changed { ticket: told, change } if *told == ticket => Some(change.state),
            _ => None,
        })
        .collect();
    assert_eq!(told, [JobState::Finished]);
    assert!(sent.contains(&Outbound::WatchEnds { ticket }));
    assert_eq!(driver.server_loop.n_watches(), 0);
}
