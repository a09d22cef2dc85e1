//! Licences of a cluster: granted once, planned with, and named when they are missing.

use rms_api::answer::{Answer, LicenceHolder, LicenceLine, LicenceShortage, Reason};
use rms_api::call::{Nodes, Query, Shape, Submission};
use rms_api::desired::{AgentHello, NodeReport};
use rms_api::{Call, Refusal};
use rms_model::{Devices, ExpandLimit, Identity, Inventory, JobId, Mebibytes, Role, Span, Time};

use crate::Event;

use super::World;
use super::evolving::profile;
use test_kit::for_seeds;

const POLICIES: [&str; 4] = ["views", "fcfs", "easy", "conservative"];

fn licences(text: &str) -> Devices {
    text.parse().expect("licences")
}

fn world(policy: &str, allocation: &str) -> World {
    let mut world = World::new();
    world.set("policy", policy);
    world.set("allocation", allocation);
    for name in ["n1", "n2", "n3", "n4"] {
        let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(1000), ..Inventory::default() };
        world.joins(name, inventory, Vec::new());
    }
    world.set("licences@c", "matlab:3,ansys:1");
    world
}

impl World {
    fn licensed(&mut self, wanted: &str, secs: u32) -> JobId {
        self.submit_with(|submission| asking(submission, wanted, secs))
    }

    fn is_running(&self, job: JobId) -> bool {
        self.rms.state().jobs().get(&job).is_some_and(|entry| entry.started().is_some())
    }

    fn next_end(&self) -> Option<(Time, JobId)> {
        let entries = self.rms.state().jobs().iter();
        let ends = entries.filter_map(|(job, entry)| Some((entry.started()?.at + entry.started()?.request.wall, *job)));
        ends.min()
    }

    /// Counts the licences in use and checks that there are enough.
    fn n_in_use(&self, name: &str) -> u32 {
        let jobs = self.rms.state().jobs().values().filter(|entry| entry.started().is_some());
        jobs.map(|entry| entry.spec.resources.licences.count(name)).sum()
    }
}

fn asking(submission: &mut Submission, wanted: &str, secs: u32) {
    submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(secs.into())) }];
    submission.resources.licences = if wanted.is_empty() { Devices::default() } else { licences(wanted) };
}

#[test]
fn a_licence_is_given_once_and_who_lacks_one_is_told_so() {
    for (policy, allocation) in POLICIES.into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")]) {
        let mut world = world(policy, allocation);
        let first = world.licensed("matlab:2", 100);
        let waits = world.licensed("matlab:2,ansys", 100);
        let other = world.licensed("matlab", 100);
        let plain = world.licensed("", 100);
        assert_eq!(world.is_running(plain), policy != "fcfs", "{policy}, {allocation}");
        assert!(world.is_running(first) && !world.is_running(waits), "{policy}, {allocation}");
        assert_eq!(world.is_running(other), policy != "fcfs", "{policy}, {allocation}");
        let line = world.line(waits);
        assert_eq!(line.estimate.map(|at| at.since(world.now)), Some(Span::from_secs(100)), "{policy}, {allocation}");
        let Some(Reason::Blocked { licence: Some(licence), .. }) = line.reason else { panic!("{:?}", line.reason) };
        let free = if policy == "fcfs" { 1 } else { 0 };
        assert_eq!(*licence, LicenceShortage { name: "matlab".to_owned(), wanted: 2, free, total: 3 });
        let Some(Reason::Blocked { by, .. }) = world.explained(waits) else { panic!("{policy}, {allocation}") };
        let holders: Vec<JobId> = by.iter().map(|holder| holder.job).collect();
        assert_eq!(holders, if policy == "fcfs" { vec![first] } else { vec![first, other] }, "{policy}, {allocation}");
        world.finish(first);
        assert!(world.is_running(waits), "{policy}, {allocation}");
    }
}

/// Who waits for licences that are free now, and planned for a job before it, is told so, whatever else that one waits for.
#[test]
fn a_job_planned_before_is_named_with_the_licence_that_it_gets() {
    let whole = |submission: &mut Submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(4), wall: Some(Span::from_secs(60)) }];
        submission.resources.exclusive = true;
    };
    for (policy, allocation) in
        ["views", "conservative"].into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")])
    {
        for first_has in ["all nodes", "licences"] {
            let mut world = world(policy, allocation);
            match first_has {
                "licences" => world.licensed("matlab:2", 60),
                _ => world.submit_with(whole),
            };
            let [planned, waits] = [100, 20].map(|secs| world.licensed("matlab:2", secs));
            let detail = world.detail(waits);
            let case = format!("{policy}, {allocation}, {first_has}: {detail:?}");
            assert_eq!(detail.line.estimate.map(|at| at.since(world.now)), Some(Span::from_secs(160)), "{case}");
            for reason in [detail.line.reason, world.line(waits).reason] {
                let Some(Reason::Blocked { licence: Some(licence), until, .. }) = reason else { panic!("{case}") };
                let free = LicenceShortage { name: "matlab".to_owned(), wanted: 2, free: 1, total: 3 };
                assert_eq!((*licence, until.since(world.now)), (free, Span::from_secs(160)), "{case}");
            }
            let Some(Reason::Blocked { by, .. }) = world.explained(waits) else { panic!("{case}") };
            assert_eq!(by.iter().map(|holder| holder.job).collect::<Vec<_>>(), [planned], "{case}");
        }
    }
}

/// Nodes are free for it until another one needs them: what keeps it from them is told, not what keeps it from the others.
#[test]
fn a_licence_that_is_missing_before_nodes_are_is_told() {
    for (policy, allocation) in
        ["views", "conservative"].into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")])
    {
        let mut world = world(policy, allocation);
        let has = world.licensed("ansys", 30);
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(4), wall: Some(Span::from_secs(40)) }];
            submission.resources.exclusive = true;
        });
        let waits = world.licensed("ansys", 25);
        let line = world.line(waits);
        let case = format!("{policy}, {allocation}: {line:?}");
        assert_eq!(line.estimate.map(|at| at.since(world.now)), Some(Span::from_secs(70)), "{case}");
        let Some(Reason::Blocked { licence: Some(licence), until, .. }) = line.reason else { panic!("{case}") };
        let none = LicenceShortage { name: "ansys".to_owned(), wanted: 1, free: 0, total: 1 };
        assert_eq!((*licence, until.since(world.now)), (none, Span::from_secs(30)), "{case}");
        let Some(Reason::Blocked { by, .. }) = world.explained(waits) else { panic!("{case}") };
        assert_eq!(by.iter().map(|holder| holder.job).collect::<Vec<_>>(), [has], "{case}");
    }
}

#[test]
fn licences_that_nobody_has_are_refused_with_what_there_is() {
    let mut world = world("views", "nodes");
    let said = world.refused(|job| asking(job, "comsol", 1));
    assert!(said.contains("licence 'comsol'") && said.contains("ansys, matlab"), "{said}");
    let said = world.refused(|job| asking(job, "matlab:4", 1));
    assert!(said.contains("4 of licence matlab") && said.contains("cluster c has 3"), "{said}");
    let hello = AgentHello {
        cluster: "d".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        inventory: Inventory::default(),
        trouble: None,
    };
    world.event(Event::AgentConnected { name: "d1".to_owned(), hello, report: NodeReport::default() });
    let said = world.refused(|job| {
        asking(job, "matlab", 1);
        let nodes = ["c", "d"].map(|cluster| (cluster.to_owned(), 1));
        job.shapes = vec![Shape { nodes: Nodes::PerCluster(nodes.into()), wall: None }];
    });
    assert!(said.contains("1 of licence matlab is needed, but cluster d has 0"), "{said}");
    // Each cluster lacks something different.
    world.set("licences@d", "ansys:2");
    let said = world.refused(|job| asking(job, "matlab,ansys:2", 1));
    assert!(said.contains("2 of licence ansys are needed, but cluster c has 1"), "{said}");
    world.set("max_cpus@c", "1");
    let said = world.refused(|job| {
        asking(job, "matlab", 1);
        job.n_tasks = Some(2);
        job.shapes.clear();
    });
    assert!(said.contains("cluster c"), "{said}");
    let said = world.refused(|job| {
        asking(job, "matlab", 1);
        job.clusters = vec!["d".to_owned()];
        job.resources.licences = Devices::default();
        job.shapes = vec![Shape { nodes: Nodes::PerCluster([("c".to_owned(), 1)].into()), wall: None }];
    });
    assert!(said.contains("not among those of the job (-M)"), "{said}");
    let who = Identity::new(Role::Admin, "root").expect("a plain name");
    let set = |value: &str| Call::Set { key: "licences".to_owned(), value: value.to_owned() };
    assert!(matches!(world.ask_as(who.clone(), set("matlab:many")), Err(Refusal::Setting(_))));
    // It is no licence of that name.
    world.ask_as(who, set("default")).expect("an admin may");
    let licences = world.rms.state().settings().get("licences");
    assert_eq!(licences, rms_model::Settings::default().get("licences"));
}

/// Licences that an admin removes stay in use until their job ends; then the new number counts.
#[test]
fn fewer_licences_than_are_in_use_are_given_to_nobody_else() {
    let mut world = world("easy", "nodes");
    let runs = world.licensed("matlab:2", 100);
    world.set("licences@c", "matlab:2,ansys:1");
    let waits = world.licensed("matlab", 100);
    assert!(world.is_running(runs) && !world.is_running(waits));
    world.set("licences@c", "matlab:3");
    assert!(world.is_running(waits));
}

#[test]
fn who_waits_for_licences_that_were_taken_away_is_told_which() {
    for (policy, allocation) in POLICIES.into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")]) {
        let mut world = world(policy, allocation);
        let _runs = world.licensed("matlab:2", 100);
        let waits = world.licensed("matlab:2", 100);
        world.set("licences@c", "ansys:1");
        let Some(Reason::TooFewNodes { licence: Some(licence), .. }) = world.line(waits).reason else {
            panic!("{policy}, {allocation}: {:?}", world.line(waits).reason)
        };
        assert_eq!(*licence, LicenceShortage { name: "matlab".to_owned(), wanted: 2, free: 0, total: 0 });
        world.set("licences@c", "matlab:4");
        assert!(world.is_running(waits), "{policy}, {allocation}");
    }
}

/// The pass after the first end took the second job for late.
#[test]
fn who_waits_for_two_that_end_at_one_instant_starts_at_that_instant() {
    for (policy, allocation) in POLICIES.into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")]) {
        let mut world = world(policy, allocation);
        let (first, second) = (world.licensed("matlab", 30), world.licensed("matlab", 30));
        let waits = world.licensed("matlab:3", 30);
        world.now += Span::from_secs(30);
        world.finish(first);
        assert!(!world.is_running(waits), "{policy}, {allocation}");
        world.finish(second);
        assert!(world.is_running(waits), "{policy}, {allocation}");
    }
}

#[test]
fn whatever_comes_and_goes_no_licence_is_given_twice_and_promises_are_kept() {
    come_and_go(12);
}

#[test]
fn long_whatever_comes_and_goes_no_licence_is_given_twice_and_promises_are_kept() {
    come_and_go(60);
}

fn come_and_go(n_seeds: u64) {
    for_seeds("whatever_comes_and_goes_no_licence_is_given_twice_and_promises_are_kept", n_seeds, |dice| {
        let policy = POLICIES[dice.number(0, 3) as usize];
        let mut world = world(policy, if dice.chance(50) { "nodes" } else { "cores" });
        let mut promised = std::collections::BTreeMap::new();
        for _ in 0..40 {
            // No job stays longer than it may.
            let until = world.now + Span::from_secs(dice.number(0, 20).into());
            while let Some((due, job)) = world.next_end().filter(|(due, _)| *due <= until) {
                world.now = due;
                world.finish(job);
            }
            world.now = until;
            let wanted = ["", "matlab", "matlab:2", "matlab:3,ansys", "ansys"][dice.number(0, 4) as usize];
            let jobs = world.rms.state().jobs().keys().copied();
            let running: Vec<JobId> = jobs.filter(|job| world.is_running(*job)).collect();
            match dice.number(0, 3) {
                0 if !running.is_empty() => {
                    let job = running[dice.number(0, running.len() as u32 - 1) as usize];
                    world.finish(job);
                }
                _ => _ = world.licensed(wanted, dice.number(1, 60)),
            }
            assert!(world.n_in_use("matlab") <= 3 && world.n_in_use("ansys") <= 1);
            world.rms.state().check().expect("in order");
            for (job, entry) in world.rms.state().jobs() {
                if let Some(promise) = &entry.promised {
                    let earliest = promised.entry(*job).or_insert(promise.at);
                    assert!(promise.at <= (*earliest).max(world.now), "job {job} was promised an earlier start");
                    *earliest = promise.at;
                }
            }
        }
    });
}

/// A job that waits for the licences waits until the end of the profile's last stage; the profile begins once they are
/// free for all of its stages.
#[test]
fn a_profile_keeps_its_licences_from_its_first_stage_to_its_last() {
    for (policy, allocation) in POLICIES.into_iter().flat_map(|policy| [(policy, "nodes"), (policy, "cores")]) {
        let mut world = world(policy, allocation);
        let first = world.licensed("matlab:2", 100);
        let in_stages = world.submit_with(|job| {
            asking(job, "matlab:2", 1);
            job.shapes.clear();
            job.evolving = Some(profile("1x20s,2x30s,1x50s", ExpandLimit::NONE, false));
        });
        let last = world.licensed("matlab:2", 10);
        let at = |world: &mut World, job| world.line(job).estimate.map(|at| at.since(world.now).as_millis() / 1000);
        let place = format!("{policy}, {allocation}");
        assert_eq!((at(&mut world, in_stages), at(&mut world, last)), (Some(100), Some(200)), "{place}");
        world.finish(first);
        assert!(world.is_running(in_stages), "{place}");
        assert_eq!(at(&mut world, last), Some(100), "{place}");
    }
}

#[test]
fn licences_are_listed_with_the_jobs_that_have_them() {
    for allocation in ["nodes", "cores"] {
        let mut world = world("views", allocation);
        let first = world.licensed("matlab:2,ansys", 100);
        let second = world.licensed("matlab", 100);
        let waits = world.licensed("matlab", 100);
        assert!(!world.is_running(waits));
        let listed = |world: &mut World| match world.ask(Call::Query(Query::Licences)) {
            Answer::Licences(lines) => lines,
            other => panic!("no licences: {other:?}"),
        };
        let line = |name: &str, total, held: &[(JobId, u32)]| LicenceLine {
            cluster: "c".to_owned(),
            name: name.to_owned(),
            total,
            holders: held.iter().map(|(job, count)| LicenceHolder { job: *job, count: *count }).collect(),
        };
        let matlab = |total| line("matlab", total, &[(first, 2), (second, 1)]);
        assert_eq!(listed(&mut world), [line("ansys", 1, &[(first, 1)]), matlab(3)], "{allocation}");
        world.set("licences@c", "comsol:2,matlab:1");
        let lines = listed(&mut world);
        assert_eq!(lines, [line("ansys", 0, &[(first, 1)]), line("comsol", 2, &[]), matlab(1)], "{allocation}");
        assert_eq!((lines[2].in_use(), lines[2].free()), (3, 0), "none are free until jobs have ended");
        world.finish(first);
        let left = line("matlab", 1, &[(second, 1)]);
        assert_eq!(listed(&mut world), [line("comsol", 2, &[]), left], "{allocation}");
    }
}
