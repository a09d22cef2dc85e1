//! Tests of the loop of a node: which process dies when, and what becomes of the jobs on the node.

use std::sync::Arc;

use rms_api::desired::{Aim, Desired, Launch, NodeReport};
use rms_model::{Generation, JobId, Owner, Run, Work};
use test_kit::place;

use super::*;

/// A node whose supervisors are started at once and do nothing by themselves.
struct Scene {
    node: NodeLoop,
    now: Time,
    generation: u64,
    /// Orders that no test has taken yet, except those answered here.
    orders: Vec<Outbound>,
}

impl Scene {
    /// Creates a node with two idle supervisors that is connected to a server.
    fn new() -> Scene {
        let mut scene = Scene::before();
        scene.take(Inbound::Found(Vec::new()));
        scene.take(Inbound::LinkUp);
        scene.orders.clear();
        scene
    }

    /// Creates a node before its loop was told what was found.
    fn before() -> Scene {
        let node = NodeLoop::new("s".to_owned(), 2, "/spool".to_owned());
        Scene { node, now: Time::from_secs(1000), generation: 0, orders: Vec::new() }
    }

    fn take(&mut self, inbound: Inbound) {
        self.node.take(self.now, inbound);
        self.answer();
    }

    /// Handles an event; seats and spawners that are ordered do not come.
    fn take_alone(&mut self, inbound: Inbound) {
        self.node.take(self.now, inbound);
        let orders = self.node.orders();
        self.orders.extend(orders);
    }

    fn answer(&mut self) {
        loop {
            let orders = self.node.orders();
            if orders.is_empty() {
                return;
            }
            for order in orders {
                match order {
                    Outbound::StartSpawner => self.node.take(self.now, Inbound::SpawnerStarted(Ok(()))),
                    Outbound::MakeSeat { seat } => {
                        let made = Ok(Made { can_start_over: true });
                        self.node.take(self.now, Inbound::SeatMade { seat: seat.clone(), made });
                        self.node.take(self.now, Inbound::SeatIdle { seat });
                    }
                    order => self.orders.push(order),
                }
            }
        }
    }

    fn after(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.node.next_timer().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.node.on_time(self.now);
            self.answer();
            if self.take_order(|order| matches!(order, Outbound::Look { .. })).is_some() {
                self.take(Inbound::Looked(Look::default()));
            }
        }
        self.now = until;
    }

    fn desire(&mut self, jobs: &[DesiredJob]) {
        self.generation += 1;
        let desired = Desired { generation: Generation(self.generation), jobs: jobs.to_vec() };
        self.take(Inbound::Desired(desired));
    }

    /// Takes the first order of a kind.
    fn take_order(&mut self, is_it: impl Fn(&Outbound) -> bool) -> Option<Outbound> {
        let idx = self.orders.iter().position(is_it)?;
        Some(self.orders.remove(idx))
    }

    /// Returns the supervisor that was ordered to start the job.
    fn ordered(&mut self, wanted: &DesiredJob) -> Option<String> {
        let is_it = |order: &Outbound| matches!(order, Outbound::Order { job, .. } if *job == wanted.job);
        match self.take_order(is_it)? {
            Outbound::Order { seat, .. } => Some(seat),
            _ => None,
        }
    }

    fn starts(&mut self, wanted: &DesiredJob) -> String {
        self.desire(std::slice::from_ref(wanted));
        self.ordered(wanted).expect("a supervisor was waiting")
    }

    fn says(&mut self, wanted: &DesiredJob, status: JobStatus) {
        self.take(Inbound::Changed(JobReport { job: wanted.job, run: wanted.run, status }));
    }

    fn runs(&mut self, wanted: &DesiredJob) {
        let status = JobStatus::Running { since: self.now, generation: 1, is_confined: true };
        self.says(wanted, status);
    }

    fn examined(&mut self, wanted: &DesiredJob, remains: SpoolEntry) {
        let examine = Outbound::Examine { job: wanted.job, run: wanted.run };
        assert!(self.take_order(|order| *order == examine).is_some(), "{:?}", self.orders);
        self.take(Inbound::Examined { job: wanted.job, run: wanted.run, remains });
    }

    /// Returns how the job has ended, as the server was told last.
    fn exit(&mut self, wanted: &DesiredJob) -> Option<NodeExit> {
        let mut exit = None;
        for order in &self.orders {
            if let Outbound::Report(NodeReport { jobs, .. }) = order
                && let Some(JobReport { status: JobStatus::Ended { exit: how, .. }, .. }) =
                    jobs.iter().find(|report| report.job == wanted.job)
            {
                exit = Some(how.clone());
            }
        }
        exit
    }

    fn told(&mut self, wanted: &DesiredJob) -> Vec<JobOrder> {
        let told = self.orders.iter().filter_map(|order| match order {
            Outbound::Tell { job, what, .. } if *job == wanted.job => Some(what.clone()),
            _ => None,
        });
        told.collect()
    }

    fn has(&self, order: &Outbound) -> bool {
        self.orders.contains(order)
    }
}

fn job(id: u64) -> DesiredJob {
    let launch = Launch { nodes: vec![place("n1")], ..Launch::of(Owner("ann".to_owned()), Work::Nodes) };
    DesiredJob { job: JobId(id), run: Run(1), aim: Aim::Run, launch: Arc::new(launch), node_idx: 0 }
}

/// Returns the same job, as ordered when it comes back to this node.
fn again(mut job: DesiredJob) -> DesiredJob {
    let launch = Arc::make_mut(&mut job.launch);
    launch.generation = 3;
    launch.nodes[0].joined = 3;
    job
}

fn followed(mut job: DesiredJob) -> DesiredJob {
    Arc::make_mut(&mut job.launch).execution.stdio.stream = true;
    job
}

fn ending(mut job: DesiredJob) -> DesiredJob {
    job.aim = Aim::End { patience: Span::ZERO, grace: Span::from_secs(5) };
    job
}

fn ended(exit: NodeExit) -> JobStatus {
    JobStatus::Ended { at: Time::EPOCH, exit, usage: Usage::default() }
}

fn done() -> JobStatus {
    ended(NodeExit::Exited { code: 0 })
}

/// Returns what a supervisor leaves that dies after the job has begun.
fn begun(job: &DesiredJob, seat: &str) -> SpoolEntry {
    let entry = Entry {
        seat: seat.to_owned(),
        can_start_over: true,
        stay: job.stay(),
        told: Told::by(job),
        is_streamed: job.launch.execution.stdio.is_followed(),
        is_of_this_boot: true,
        is_heard: false,
    };
    SpoolEntry { is_there: true, entry: Some(entry), is_forgotten: false, result: None }
}

fn alive(job: &DesiredJob, seat: &str) -> SpoolEntry {
    let mut remains = begun(job, seat);
    remains.entry.iter_mut().for_each(|entry| entry.is_heard = true);
    remains
}

fn with_result(mut remains: SpoolEntry, job: &DesiredJob, status: JobStatus) -> SpoolEntry {
    remains.result = Some(JobReport { job: job.job, run: job.run, status });
    remains
}

#[test]
fn a_supervisor_serves_one_job_after_the_other() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    scene.runs(&job(1));
    scene.says(&job(1), done());
    assert_eq!(scene.exit(&job(1)), Some(NodeExit::Exited { code: 0 }));
    scene.desire(&[job(2)]);
    assert_eq!(scene.told(&job(1)), [JobOrder::Forget { keep: false }]);
    let first = scene.ordered(&job(2)).expect("ordered");
    scene.desire(&[job(2), job(3)]);
    let second = scene.ordered(&job(3)).expect("ordered");
    assert!([first, second].contains(&seat), "it is idle again");
}

/// On a node that jobs share, many jobs end and begin at the same time.
#[test]
fn supervisors_of_jobs_that_end_together_serve_those_that_begin_next() {
    let mut scene = Scene::new();
    let mut jobs: Vec<DesiredJob> = (1..=8).map(job).collect();
    scene.desire(&jobs);
    for turn in 1..4 {
        for ended in &jobs {
            scene.runs(ended);
        }
        scene.orders.clear();
        // Six end; the server removes them at once, or in a step of its own.
        let ends: Vec<DesiredJob> = jobs.drain(..6).collect();
        for ended in &ends {
            scene.says(ended, done());
        }
        if turn % 2 == 0 {
            scene.desire(&jobs);
        }
        jobs.extend((1..=6).map(|n| job(turn * 10 + n)));
        scene.desire(&jobs);
        let is_end = |order: &Outbound| matches!(order, Outbound::EndSeat { .. });
        assert_eq!(scene.orders.iter().filter(|order| is_end(order)).count(), 0, "turn {turn}");
        let is_order = |order: &Outbound| matches!(order, Outbound::Order { .. });
        assert_eq!(scene.orders.iter().filter(|order| is_order(order)).count(), 6, "turn {turn}");
    }
}

#[test]
fn a_supervisor_that_dies_before_its_order_is_replaced() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    scene.take(Inbound::SeatGone { seat: seat.clone() });
    assert_eq!(scene.ordered(&job(1)), None, "nobody knows yet whether it has begun");
    scene.examined(&job(1), SpoolEntry::default());
    assert!(scene.has(&Outbound::EndSeat { seat: seat.clone(), with_folder: true }));
    let other = scene.ordered(&job(1)).expect("another one has it");
    assert_ne!(other, seat);
}

#[test]
fn a_job_that_is_cancelled_while_its_supervisor_dies_does_not_begin() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    scene.desire(&[ending(job(1))]);
    scene.take(Inbound::SeatGone { seat });
    scene.examined(&job(1), SpoolEntry::default());
    assert_eq!((scene.ordered(&job(1)), scene.exit(&job(1))), (None, Some(NodeExit::Ordered)));

    let seat = scene.starts(&job(2));
    scene.take(Inbound::SeatGone { seat });
    scene.desire(&[ending(job(2))]);
    scene.examined(&job(2), SpoolEntry::default());
    assert_eq!((scene.ordered(&job(2)), scene.exit(&job(2))), (None, Some(NodeExit::Ordered)));
}

#[test]
fn what_a_killed_supervisor_leaves_is_ended_and_told_as_what_it_is() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    scene.runs(&job(1));
    scene.take(Inbound::SeatGone { seat: seat.clone() });
    scene.examined(&job(1), begun(&job(1), &seat));
    let (why, run) = (LostReason::SupervisorKilled, Run(1));
    assert!(scene.has(&Outbound::EndLeftovers { job: JobId(1), run, why }));
    assert_eq!((scene.exit(&job(1)), scene.ordered(&job(1))), (None, None), "its processes may still be there");
    let status = ended(why.exit(0));
    scene.take(Inbound::LeftoversEnded(JobReport { job: JobId(1), run, status }));
    assert!(matches!(scene.exit(&job(1)), Some(NodeExit::Unsupervised { .. })));
    scene.desire(&[]);
    assert!(scene.has(&Outbound::RemoveEntry { job: JobId(1), run }));
}

#[test]
fn a_result_that_a_dead_supervisor_has_written_counts() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    scene.runs(&job(1));
    scene.take(Inbound::SeatGone { seat: seat.clone() });
    scene.examined(&job(1), with_result(begun(&job(1), &seat), &job(1), done()));
    assert_eq!(scene.exit(&job(1)), Some(NodeExit::Exited { code: 0 }));
}

#[test]
fn an_agent_takes_over_what_runs_and_tells_what_has_ended() {
    let mut scene = Scene::before();
    let elsewhere = |mut remains: SpoolEntry| {
        remains.entry.iter_mut().for_each(|entry| entry.is_of_this_boot = false);
        remains
    };
    let forgotten = SpoolEntry { is_forgotten: true, ..with_result(begun(&followed(job(4)), "e4"), &job(4), done()) };
    let damaged = SpoolEntry { is_there: true, ..SpoolEntry::default() };
    let found = [
        alive(&job(1), "e1"),
        with_result(begun(&job(2), "e2"), &job(2), done()),
        begun(&job(3), "e3"),
        forgotten,
        elsewhere(begun(&job(5), "e5")),
        damaged,
        SpoolEntry::default(),
    ];
    let found = (1..).map(|id| (JobId(id), Run(1))).zip(found).collect();
    scene.take(Inbound::Found(found));
    let run = Run(1);
    assert!(scene.has(&Outbound::Adopt { seat: "e1".to_owned(), job: JobId(1), run }));
    for (id, why) in [(3, LostReason::SupervisorKilled), (5, LostReason::NodeRestarted), (6, LostReason::EntryDamaged)]
    {
        assert!(scene.has(&Outbound::EndLeftovers { job: JobId(id), run, why }), "job {id}");
    }
    scene.take(Inbound::LinkUp);
    let hello = scene.take_order(|order| matches!(order, Outbound::Hello { .. }));
    let Some(Outbound::Hello { report, trouble: None }) = hello else { panic!("no hello") };
    let jobs: Vec<(u64, bool)> =
        report.jobs.iter().map(|of| (of.job.0, matches!(of.status, JobStatus::Ended { .. }))).collect();
    assert_eq!(jobs, [(1, false), (2, true), (3, false), (5, false), (6, false)]);

    scene.desire(&[ending(job(1)), job(2)]);
    let grace = Span::from_secs(5);
    assert_eq!(scene.told(&job(1)), [JobOrder::Stop { patience: Span::ZERO, grace }]);
    assert_eq!(scene.ordered(&job(2)), None, "it has ended");
    scene.after(LINGER);
    assert!(scene.has(&Outbound::RemoveEntry { job: JobId(4), run }), "nobody reads its streams any more");
}

/// A server that was restored from a backup has not started the job yet when it reads the hello.
#[test]
fn an_end_that_was_told_before_the_server_wanted_the_job_is_told_again() {
    let mut scene = Scene::new();
    scene.starts(&job(1));
    scene.runs(&job(1));
    scene.take(Inbound::LinkDown);
    scene.says(&job(1), done());
    scene.take(Inbound::LinkUp);
    scene.orders.clear();
    scene.desire(&[job(1)]);
    assert_eq!(scene.exit(&job(1)), Some(NodeExit::Exited { code: 0 }));
    scene.orders.clear();
    scene.desire(&[job(1), job(2)]);
    assert_eq!(scene.exit(&job(1)), None, "once is enough");
}

#[test]
fn streams_of_ended_jobs_are_kept_from_their_end_and_not_from_the_start_of_the_agent() {
    for (ended_ago, kept_for) in [(500, 100), (5000, 30), (-500, 600)] {
        let mut scene = Scene::before();
        let at = scene.now - Span::from_secs(ended_ago);
        let end = JobStatus::Ended { at, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
        let forgotten = SpoolEntry { is_forgotten: true, ..with_result(begun(&followed(job(4)), "e4"), &job(4), end) };
        let (job, run) = (JobId(4), Run(1));
        scene.take(Inbound::Found([((job, run), forgotten)].into()));
        scene.after(Span::from_secs(kept_for - 1));
        assert!(!scene.has(&Outbound::RemoveEntry { job, run }), "{ended_ago}");
        scene.after(Span::from_secs(1));
        assert!(scene.has(&Outbound::RemoveEntry { job, run }), "{ended_ago}");
    }
}

#[test]
fn an_order_of_an_agent_in_its_last_moment_is_not_given_twice() {
    let mut scene = Scene::new();
    let mut wanted = job(1);
    let before = wanted.clone();
    Arc::make_mut(&mut wanted.launch).wall = Span::from_secs(77);
    let seat = scene.starts(&wanted);
    scene.take(Inbound::AlreadyThere { seat: seat.clone(), job: JobId(1), run: Run(1) });
    scene.desire(&[ending(wanted.clone())]);
    scene.examined(&wanted, alive(&before, "of-another-agent"));
    assert!(scene.has(&Outbound::Adopt { seat: "of-another-agent".to_owned(), job: JobId(1), run: Run(1) }));
    // It was told of the old wall time, and of no end.
    let stop = JobOrder::Stop { patience: Span::ZERO, grace: Span::from_secs(5) };
    assert_eq!(scene.told(&wanted), [JobOrder::Update, stop]);
    scene.desire(&[ending(wanted.clone()), job(2), job(3)]);
    let others = [scene.ordered(&job(2)), scene.ordered(&job(3))];
    assert!(others.contains(&Some(seat)), "that one is idle: {others:?}");
}

#[test]
fn a_job_that_comes_again_waits_for_what_it_had_here_to_go() {
    let mut scene = Scene::new();
    let first = followed(job(1));
    let seat = scene.starts(&first);
    scene.runs(&first);
    scene.says(&first, done());
    let second = again(first.clone());
    scene.desire(std::slice::from_ref(&second));
    assert!(scene.has(&Outbound::MarkForgotten { job: JobId(1), run: Run(1) }));
    let other = scene.ordered(&second).expect("ordered");
    scene.take(Inbound::AlreadyThere { seat: other, job: JobId(1), run: Run(1) });
    let remains = SpoolEntry { is_forgotten: true, ..with_result(begun(&first, &seat), &first, done()) };
    scene.examined(&second, remains);
    assert!(scene.has(&Outbound::RemoveEntry { job: JobId(1), run: Run(1) }));
    assert_eq!(scene.ordered(&second), None, "its new entry would be removed");

    // A removal that hangs delays no other job.
    scene.desire(&[second.clone(), job(2)]);
    assert!(scene.ordered(&job(2)).is_some());
    assert_eq!(scene.ordered(&second), None);
    scene.take(Inbound::Removed { job: JobId(1), run: Run(1) });
    assert!(scene.ordered(&second).is_some());
}

/// Returns a node that keeps the streams of job 1 and is to start another job of that number: a server that was
/// restored from a backup assigns numbers again.
fn with_two_of_a_number() -> (Scene, DesiredJob) {
    let mut scene = Scene::new();
    let mut first = followed(job(1));
    Arc::make_mut(&mut first.launch).submitted = Time::from_secs(55);
    scene.starts(&first);
    scene.runs(&first);
    scene.says(&first, done());
    scene.orders.clear();
    let mut second = first.clone();
    Arc::make_mut(&mut second.launch).submitted = Time::from_secs(77);
    scene.desire(std::slice::from_ref(&second));
    (scene, second)
}

#[test]
fn another_job_of_the_same_number_waits_for_what_is_kept_of_the_first_to_go() {
    let (mut scene, second) = with_two_of_a_number();
    let (job, run) = (second.job, second.run);
    assert!(scene.has(&Outbound::MarkForgotten { job, run }), "its end is not that of the second");
    assert!(scene.has(&Outbound::Drop { job, run }) && scene.has(&Outbound::RemoveEntry { job, run }));
    assert_eq!(scene.ordered(&second), None, "it would find the entry of the first");
    let is_registered = |scene: &Scene| scene.orders.iter().any(|order| matches!(order, Outbound::Register(_)));
    assert!(!is_registered(&scene), "its followers would read the streams of the first");
    scene.take(Inbound::Removed { job, run });
    assert!(is_registered(&scene) && scene.ordered(&second).is_some());
    scene.orders.clear();
    scene.after(LINGER + LINGER);
    assert!(!scene.has(&Outbound::RemoveEntry { job, run }));
}

#[test]
fn a_run_that_is_started_again_waits_for_what_is_kept_of_it_to_go() {
    let mut scene = Scene::new();
    let job = followed(job(1));
    scene.starts(&job);
    scene.runs(&job);
    scene.says(&job, done());
    scene.desire(&[]);
    scene.orders.clear();
    // The server was restored from a backup.
    scene.desire(std::slice::from_ref(&job));
    let (id, run) = (job.job, job.run);
    assert!(scene.has(&Outbound::RemoveEntry { job: id, run }), "{:?}", scene.orders);
    assert_eq!(scene.ordered(&job), None);
    scene.take(Inbound::Removed { job: id, run });
    assert!(scene.ordered(&job).is_some());
}

/// The order to end the second job may come before what is kept of the first is removed.
#[test]
fn another_job_of_the_same_number_that_is_ended_while_it_waits_never_starts() {
    let (mut scene, second) = with_two_of_a_number();
    let (job, run) = (second.job, second.run);
    scene.orders.clear();
    scene.desire(&[ending(second.clone())]);
    let report = scene.take_order(|order| matches!(order, Outbound::Report(_)));
    let Some(Outbound::Report(report)) = report else { panic!("nothing is reported") };
    assert!(matches!(report.jobs[0].status, JobStatus::Ended { exit: NodeExit::Ordered, .. }), "{report:?}");
    scene.take(Inbound::Removed { job, run });
    assert_eq!(scene.ordered(&second), None);
}

#[test]
fn streams_of_an_earlier_time_do_not_end_a_job_that_came_again() {
    let mut scene = Scene::new();
    let first = followed(job(1));
    scene.starts(&first);
    scene.says(&first, done());
    let second = again(first);
    scene.desire(std::slice::from_ref(&second));
    scene.ordered(&second).expect("ordered");
    scene.runs(&second);
    scene.orders.clear();
    scene.after(LINGER + LINGER);
    let (job, run) = (JobId(1), Run(1));
    assert!(!scene.has(&Outbound::RemoveEntry { job, run }) && !scene.has(&Outbound::Drop { job, run }));
}

#[test]
fn a_folder_that_a_dead_supervisor_was_to_take_away_goes_unless_it_is_anothers() {
    let mut scene = Scene::new();
    let run = Run(1);
    let seat = scene.starts(&job(1));
    scene.says(&job(1), done());
    scene.desire(&[]);
    scene.take(Inbound::SeatGone { seat });
    assert!(scene.has(&Outbound::RemoveEntry { job: JobId(1), run }));

    let seat = scene.starts(&job(2));
    scene.says(&job(2), done());
    // Job 2 comes back at once, while its first supervisor is idle under its name.
    scene.desire(&[job(3), again(job(2))]);
    let (third, second) = (scene.ordered(&job(3)).expect("ordered"), scene.ordered(&again(job(2))).expect("ordered"));
    assert_eq!([&third, &second].iter().filter(|name| **name == &seat).count(), 1);
    scene.runs(&job(3));
    scene.runs(&again(job(2)));
    scene.orders.clear();
    scene.take(Inbound::SeatGone { seat: third });
    assert!(!scene.has(&Outbound::RemoveEntry { job: JobId(2), run }), "a job runs there");
}

#[test]
fn a_spawner_that_dies_is_replaced_after_a_pause() {
    let mut scene = Scene::new();
    for id in 1..=2 {
        scene.take_alone(Inbound::Desired(Desired { generation: Generation(id), jobs: (1..=id).map(job).collect() }));
    }
    assert!(scene.ordered(&job(1)).is_some() && scene.ordered(&job(2)).is_some());
    let Some(Outbound::MakeSeat { seat: late }) = scene.take_order(|order| matches!(order, Outbound::MakeSeat { .. }))
    else {
        panic!("new ones are made for the next jobs: {:?}", scene.orders);
    };
    scene.take_alone(Inbound::SpawnerGone);
    assert!(scene.has(&Outbound::EndSeat { seat: late.clone(), with_folder: true }));
    // The seat had been made before.
    scene.orders.clear();
    scene.take_alone(Inbound::SeatMade { seat: late.clone(), made: Ok(Made { can_start_over: true }) });
    scene.take_alone(Inbound::SeatIdle { seat: late.clone() });
    assert_eq!(scene.orders, [Outbound::EndSeat { seat: late, with_folder: true }]);
    scene.generation = 2;
    scene.desire(&[job(1), job(2), job(3)]);
    assert_eq!(scene.ordered(&job(3)), None);
    scene.after(SPAWNER_PAUSE);
    assert!(scene.ordered(&job(3)).is_some());
}

#[test]
fn without_a_spawner_jobs_are_refused_and_the_node_is_troubled() {
    let mut scene = Scene::before();
    scene.take_alone(Inbound::Found(Vec::new()));
    scene.take_alone(Inbound::LinkUp);
    scene.take_alone(Inbound::Looked(Look::default()));
    for id in 1..=3 {
        scene.take_alone(Inbound::Desired(Desired { generation: Generation(id), jobs: vec![job(id)] }));
        assert_eq!(scene.exit(&job(id)), None, "a spawner is being started");
        scene.take_alone(Inbound::SpawnerStarted(Err("no more processes".to_owned())));
        // A check may have been in progress.
        (0..2).for_each(|_| scene.take_alone(Inbound::Looked(Look::default())));
        let exit = scene.exit(&job(id));
        assert!(matches!(exit, Some(NodeExit::NotStarted { .. })), "{exit:?}");
        scene.now = scene.node.next_timer().expect("it is tried again");
        scene.node.on_time(scene.now + SPAWNER_PAUSE);
        let orders = scene.node.orders();
        assert!(orders.contains(&Outbound::StartSpawner), "{orders:?}");
    }
    let is_trouble =
        |order: &Outbound| matches!(order, Outbound::Trouble(Some(reason)) if reason.contains("no more processes"));
    assert!(scene.take_order(is_trouble).is_some());
}

#[test]
fn a_full_disk_is_told_before_the_job_that_met_it() {
    let mut scene = Scene::new();
    scene.starts(&job(1));
    // A check that began before does not count.
    scene.node.on_time(scene.now);
    scene.take(Inbound::Fault { reason: "no space left on device".to_owned() });
    scene.says(&job(1), ended(NodeExit::at_fault("no space left on device")));
    scene.take(Inbound::Looked(Look::default()));
    assert_eq!(scene.exit(&job(1)), None, "why it did not start is not known yet");
    let disk = Disk { size: 1 << 40, free: 0, has_files: true, is_out_of_room: true, is_read_only: false };
    scene.take(Inbound::Looked(Look { disk: Some(disk), ..Look::default() }));
    let trouble = scene.orders.iter().position(|order| matches!(order, Outbound::Trouble(Some(_))));
    let report = scene.orders.iter().position(|order| matches!(order, Outbound::Report(_)));
    assert!(trouble.expect("told") < report.expect("told"), "{:?}", scene.orders);
}

#[test]
fn a_full_disk_keeps_no_streams_for_clients_that_have_had_time_to_read_them() {
    let mut scene = Scene::new();
    let full = || {
        let disk = Disk { size: 1 << 40, free: 0, has_files: true, is_out_of_room: true, is_read_only: false };
        Inbound::Looked(Look { disk: Some(disk), ..Look::default() })
    };
    let ended = |scene: &mut Scene, id: u64| {
        let job = followed(job(id));
        scene.starts(&job);
        scene.runs(&job);
        scene.says(&job, done());
        scene.desire(&[]);
        assert!(scene.has(&Outbound::MarkForgotten { job: JobId(id), run: Run(1) }));
    };
    ended(&mut scene, 1);
    scene.after(LEAST_LINGER);
    ended(&mut scene, 2);
    let is_removed = |scene: &Scene, id| scene.has(&Outbound::RemoveEntry { job: JobId(id), run: Run(1) });
    assert!(!is_removed(&scene, 1), "there is room");
    scene.take(full());
    assert!(is_removed(&scene, 1) && !is_removed(&scene, 2));
}

#[test]
fn a_supervisor_that_cannot_be_made_is_the_nodes_fault() {
    let mut scene = Scene::new();
    scene.generation = 3;
    let desired = Desired { generation: Generation(3), jobs: (1..=3).map(job).collect() };
    scene.take_alone(Inbound::Desired(desired));
    let is_make = |order: &Outbound| matches!(order, Outbound::MakeSeat { .. });
    let Some(Outbound::MakeSeat { seat }) = scene.take_order(is_make) else { panic!("{:?}", scene.orders) };
    scene.take_alone(Inbound::SeatMade { seat: seat.clone(), made: Err("read-only file system".to_owned()) });
    for _ in 0..2 {
        scene.take_alone(Inbound::Looked(Look::default()));
    }
    assert!(scene.has(&Outbound::EndSeat { seat, with_folder: true }));
    let Some(NodeExit::NotStarted { reason, is_node_fault: true }) = scene.exit(&job(3)) else {
        panic!("{:?}", scene.orders)
    };
    assert!(reason.contains("read-only") && reason.contains("the node is at fault"), "{reason}");
}

#[test]
fn a_spool_that_was_deleted_takes_idle_supervisors_with_it() {
    let mut scene = Scene::new();
    let running = scene.starts(&job(1));
    scene.runs(&job(1));
    scene.orders.clear();
    scene.take(Inbound::SpoolMade);
    let n_ended = scene.orders.iter().filter(|order| matches!(order, Outbound::EndSeat { .. })).count();
    assert_eq!((n_ended, scene.has(&Outbound::EndSeat { seat: running, with_folder: true })), (2, false));
    scene.desire(&[job(1), job(2)]);
    assert!(scene.ordered(&job(2)).is_some(), "new ones were made");
}

#[test]
fn questions_wait_for_a_server_for_a_while() {
    let mut scene = Scene::new();
    let seat = scene.starts(&job(1));
    let ask = |seq: u64| Inbound::AskGrowth { seat: seat.clone(), seq, nodes: 2, least: 1 };
    scene.take(ask(1));
    let is_ask = |order: &Outbound| matches!(order, Outbound::Ask { .. });
    let Some(Outbound::Ask { seq, .. }) = scene.take_order(is_ask) else { panic!("not asked") };
    scene.take(Inbound::Grown { seq, result: Growth::Granted { generation: 2 } });
    let granted = JobOrder::Growth { seq: 1, result: Growth::Granted { generation: 2 } };
    assert_eq!(scene.told(&job(1)), std::slice::from_ref(&granted));

    scene.take(Inbound::LinkDown);
    scene.take(ask(2));
    assert!(scene.take_order(is_ask).is_none());
    scene.take(Inbound::LinkUp);
    assert!(scene.take_order(is_ask).is_some(), "it is asked over the new link");
    scene.after(SERVER_TIMEOUT);
    assert_eq!(scene.told(&job(1)), [granted], "the server has it");
    scene.take(Inbound::LinkDown);
    scene.after(SERVER_TIMEOUT);
    let told = scene.told(&job(1));
    assert!(matches!(told.last(), Some(JobOrder::Growth { seq: 2, result: Growth::Refused { .. } })), "{told:?}");
}

#[test]
fn who_breaks_a_rule_is_told_once() {
    let mut scene = Scene::new();
    scene.starts(&job(1));
    scene.runs(&job(1));
    let violations = vec![((JobId(1), Run(1)), "too much output".to_owned())];
    for _ in 0..2 {
        scene.take(Inbound::Looked(Look { violations: violations.clone(), ..Look::default() }));
    }
    assert_eq!(scene.told(&job(1)), [JobOrder::Violated { reason: "too much output".to_owned() }]);
}
