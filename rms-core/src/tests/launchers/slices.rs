//! Launchers whose applications share nodes: they see where there is room for a slice, request slices and are told
//! theirs.

use rms_api::call::{Nodes, Shape as JobShape};
use rms_api::refusal::Refused;
use rms_api::subscription::LauncherView;
use rms_model::{Devices, Slice};

use super::*;
use test_kit::for_seeds;

fn slice(cores: u32, memory: u64, devices: &str) -> Slice {
    let devices = if devices.is_empty() { Devices::default() } else { devices.parse().expect("devices") };
    Slice { cores, memory: Mebibytes(memory), devices }
}

fn node(cores: u32, gpus: u32) -> Inventory {
    let devices: Devices = [("gpu:a100".to_owned(), gpus)].into_iter().collect();
    let memory = Mebibytes(u64::from(cores) * 1000);
    Inventory { cores, cpus: cores * 2, numa_nodes: 1, memory, devices, ..Inventory::default() }
}

/// Creates cluster `a`, where jobs share nodes with these numbers of cores and GPUs.
fn shared(nodes: &[(u32, u32)]) -> Launchers {
    let mut launchers = Launchers { world: World::new(), told: Vec::new(), desires: Vec::new() };
    launchers.set("allocation", "cores");
    for (idx, (cores, gpus)) in nodes.iter().enumerate() {
        launchers.joins("a", &format!("a{}", idx + 1), node(*cores, *gpus));
    }
    launchers
}

impl Launchers {
    fn looking_for(&mut self, slices: &[Slice]) -> JobId {
        self.subscribe_with(Filter { slices: slices.to_vec(), ..Filter::default() }).expect("it is allowed")
    }

    fn try_slices(&mut self, job: JobId, tag: u64, request: Request, slice: Slice) -> Result<(), Refusal> {
        let wish = LauncherRequest { slice, ..LauncherRequest::of_nodes(Tag(tag), 0, request) };
        self.ann(LauncherCall::Request { job, wish }).map(|answer| assert_eq!(answer, LauncherAnswer::Done))
    }

    /// Starts an application with this slice of `n_nodes` nodes of `a`.
    fn with_slices(&mut self, n_nodes: u32, secs: i64, slice: Slice) -> JobId {
        let job = self.subscribe();
        self.try_slices(job, 1, on_a(n_nodes, secs), slice).expect("it is possible");
        job
    }

    /// Returns what the view shows of cluster `a` for one shape: capacity, and steps of seconds and nodes.
    fn seen(&self, view: &LauncherView, shape: u32) -> (u32, Vec<(i64, i64)>) {
        let (capacity, occupied) = match shape {
            0 => (&view.capacity, &view.occupied),
            _ => (&view.slices[&shape].capacity, &view.slices[&shape].occupied),
        };
        (capacity[&A], self.secs(&occupied[&A]))
    }

    fn view(&mut self, job: JobId, view: &mut LauncherView) {
        for change in self.changes(job) {
            view.apply(change);
        }
    }
}

#[test]
fn a_launcher_sees_where_there_is_room_for_its_slices() {
    let mut launchers = shared(&[(8, 0), (8, 2), (4, 0)]);
    let sees = launchers.looking_for(&[slice(2, 0, ""), slice(6, 0, ""), slice(1, 0, "gpu:2")]);
    let mut view = LauncherView::default();
    launchers.view(sees, &mut view);
    let capacities: Vec<u32> = (0..4).map(|shape| launchers.seen(&view, shape).0).collect();
    assert_eq!(capacities, [3, 3, 2, 1], "nodes that are large enough");
    assert!((0..4).all(|shape| launchers.seen(&view, shape).1.is_empty()), "{view:?}");
    assert!(launchers.infos(sees).clusters[0].shared);

    let runs = launchers.with_slices(1, 100, slice(3, 0, ""));
    launchers.view(sees, &mut view);
    let busy: Vec<_> = (0..4).map(|shape| launchers.seen(&view, shape).1).collect();
    // It has 3 cores of the smallest node, which is the fullest one then.
    assert_eq!(busy, [vec![(100, 1)], vec![(100, 1)], vec![], vec![]]);
    let second = launchers.with_slices(2, 50, slice(4, 0, ""));
    launchers.view(sees, &mut view);
    let busy: Vec<_> = (0..4).map(|shape| launchers.seen(&view, shape).1).collect();
    assert_eq!(busy, [vec![(50, 3), (50, 1)], vec![(100, 1)], vec![(50, 2)], vec![]]);

    launchers.accept(second, 1);
    launchers.finish(second, 1, 0);
    launchers.after(30);
    launchers.view(sees, &mut view);
    assert_eq!(launchers.seen(&view, 2).1, []);
    assert_eq!(launchers.state(runs), Some(JobState::Started));
}

#[test]
fn applications_of_launchers_share_a_node_and_are_told_their_part() {
    let mut launchers = shared(&[(4, 1)]);
    let first = launchers.with_slices(1, 100, slice(3, 1000, "gpu:1"));
    let second = launchers.with_slices(1, 100, slice(1, 0, ""));
    let third = launchers.with_slices(1, 100, slice(1, 0, ""));
    let part = |launchers: &mut Launchers, job| {
        let node = launchers.grant(job).nodes.remove(0);
        let part = node.part.expect("it shares the node");
        (node.cpus, part.cores.iter().collect::<Vec<u32>>(), part.memory, part.devices.len())
    };
    assert_eq!(part(&mut launchers, first), (6, vec![0, 1, 2], Mebibytes(1000), 1));
    assert_eq!(part(&mut launchers, second), (2, vec![3], Mebibytes(0), 0));
    assert_eq!(launchers.state(third), Some(JobState::Waiting));
    let launch = Launchable { n_tasks: Some(3), cpus_per_task: 2, ..*program() };
    let call = LauncherCall::Launch { job: first, tag: Tag(1), launch: Box::new(launch) };
    assert_eq!(launchers.ann(call), Ok(LauncherAnswer::Done));
    let (_, desired) = launchers.desires.last().expect("the agent is told");
    let launched = &desired.jobs[0].launch;
    assert_eq!((launched.n_tasks, launched.nodes[0].cpus, launched.memory), (3, 6, Mebibytes(1000)));
    let grant = launched.nodes[0].grant.as_ref().expect("a part");
    assert_eq!(grant.cores.iter().collect::<Vec<u32>>(), [0, 1, 2]);
    launchers.world.rms.state().check().expect("in order");
    // Its request may change until it starts; here whole nodes are requested again.
    launchers.request(third, 2, on_a(1, 100));
    launchers.accept(second, 1);
    launchers.finish(second, 1, 0);
    launchers.after(20);
    assert_eq!(launchers.state(third), Some(JobState::Waiting));
    launchers.world.finish(first);
    launchers.after(20);
    let entry = &launchers.world.rms.state().jobs()[&third];
    assert!(entry.started().is_some_and(|started| started.grants.is_empty()), "{entry:?}");
}

/// What an application gets of a new node is what its launcher was granted of the first, whatever its tasks need.
#[test]
fn an_application_grows_by_slices_as_it_began_with() {
    let limits = rms_model::Malleable {
        least: 1,
        most: 3,
        sizes: rms_model::Sizes::Any,
        on_resize: rms_model::OnResize::Workers,
        speedup: rms_model::Speedup::default(),
        survives_loss: None,
    };
    // One task of one CPU, of two hardware threads, or as many as there are, or tasks that take all of the slice.
    for (cpus_per_task, n_tasks) in [(1, 1), (2, 1), (0, 1), (4, 2)] {
        let mut launchers = shared(&[(8, 2), (8, 2), (8, 2)]);
        let job = launchers.with_slices(1, 100, slice(4, 500, "gpu:1"));
        let malleable = Some(limits.clone());
        let launch = Box::new(Launchable { n_tasks: Some(n_tasks), cpus_per_task, malleable, ..*program() });
        assert_eq!(launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch }), Ok(LauncherAnswer::Done));
        let mut grows = |n_nodes| {
            let ask = rms_api::negotiate::Ask {
                direction: negotiation::Direction::Grow,
                what: rms_api::negotiate::Asked::Nodes { cluster: None },
                quantity: n_nodes,
                least: n_nodes,
                sizes: rms_model::Sizes::Any,
                price: Default::default(),
                duration: None,
                nodes: Vec::new(),
                wait: Span::ZERO,
            };
            let who = Identity::new(Role::Admin, "root").expect("a plain name");
            launchers.event(Event::Called { ticket: Ticket(1), who, call: Call::Negotiate { job, ask } });
            let started = launchers.world.rms.state().jobs()[&job].started().expect("it runs");
            started.nodes.iter().map(|node| started.grants.get(node).map(|grant| grant.amount())).collect::<Vec<_>>()
        };
        let part = Some(Slice { devices: "gpu:a100:1".parse().expect("a device"), ..slice(4, 500, "") });
        assert_eq!(grows(1), vec![part.clone(); 2], "{n_tasks} tasks of {cpus_per_task} CPUs");
        let (_, desired) = launchers.desires.iter().rfind(|(node, _)| node == "a2").expect("its agent is told");
        assert_eq!(desired.jobs[0].launch.cpus_per_task, cpus_per_task, "its tasks are as launched");
    }
}

#[test]
fn tasks_need_no_more_cpus_than_the_part_that_was_granted() {
    // A core has two CPUs; the second node has one thread a core, and whole nodes have all of theirs.
    let single = Inventory { cpus: 4, ..node(4, 0) };
    for (n_nodes, cores, n_cpus) in [(1, 1, 2), (1, 2, 4), (2, 2, 2), (1, 4, 8), (2, 4, 4)] {
        for (n_tasks, cpus_per_task) in [(1, n_cpus), (n_cpus, 1), (n_cpus, 0), (n_cpus + 1, 0)] {
            let launch = |n_tasks, cpus_per_task| {
                let mut launchers = shared(&[(4, 0)]);
                if n_nodes > 1 {
                    launchers.joins("a", "a2", single.clone());
                }
                let job = launchers.with_slices(n_nodes, 100, slice(cores, 0, ""));
                let n_tasks = Some(n_tasks * n_nodes);
                let launch = Box::new(Launchable { n_tasks, cpus_per_task, ..*program() });
                launchers.ann(LauncherCall::Launch { job, tag: Tag(1), launch })
            };
            let what = format!("{n_tasks} x {cpus_per_task} on {cores} cores of {n_nodes} nodes");
            assert_eq!(launch(n_tasks, cpus_per_task), Ok(LauncherAnswer::Done), "{what}");
            if cpus_per_task > 0 {
                for (n_tasks, cpus_per_task) in [(n_tasks + 1, cpus_per_task), (n_tasks, cpus_per_task + 1)] {
                    let refused = launch(n_tasks, cpus_per_task).expect_err("it has fewer");
                    let granted = format!("on its smallest node the grant has {n_cpus} CPUs:");
                    assert!(refused.to_string().contains(&granted), "{what}: {refused}");
                    assert_eq!(Refused::from(&refused).kind, "too_many_cpus");
                    assert!(!refused.to_string().contains(" (-"), "no option of a command: {refused}");
                }
            }
        }
    }
}

#[test]
fn a_filter_holds_for_slices_too() {
    let mut launchers = shared(&[(8, 0), (8, 1)]);
    let constraint =
        Constraint { memory: Mebibytes(3000), devices: "gpu:1".parse().expect("devices"), ..Constraint::default() };
    let filter = Filter { constraint, slices: vec![slice(2, 1000, "")], ..Filter::default() };
    let job = launchers.subscribe_with(filter).expect("it is allowed");
    let mut view = LauncherView::default();
    launchers.view(job, &mut view);
    assert_eq!((launchers.seen(&view, 0).0, launchers.seen(&view, 1).0), (1, 1));
    launchers.try_slices(job, 1, on_a(1, 10), slice(2, 1000, "")).expect("it is possible");
    let node = launchers.grant(job).nodes.remove(0);
    let part = node.part.expect("it shares the node");
    assert_eq!((node.name.as_str(), part.memory, part.devices.len()), ("a2", Mebibytes(3000), 1));
}

#[test]
fn slices_that_no_node_can_give_are_refused() {
    let mut launchers = shared(&[(4, 0), (2, 1)]);
    let job = launchers.subscribe();
    for (n_nodes, wanted, possible) in [
        (2, slice(3, 0, ""), "cluster a has 1"),
        (1, slice(5, 0, ""), "cluster a has 0"),
        (1, slice(1, 9000, ""), "cluster a has 0"),
        (1, slice(3, 0, "gpu:1"), "cluster a has 0"),
    ] {
        let refused = launchers.try_slices(job, 1, on_a(n_nodes, 10), wanted.clone()).expect_err("it is too much");
        assert!(refused.to_string().contains(possible), "{wanted:?}: {refused}");
    }
    for slices in [vec![slice(0, 10, "")], vec![slice(1, 0, ""); 9]] {
        let refused = launchers.subscribe_with(Filter { slices, ..Filter::default() }).expect_err("not a slice");
        assert!(refused.to_string().contains("at most 8 slices, of one core or more"), "{refused}");
    }
}

/// Each different slice is a cost for every pass, so no user may make others wait by watching thousands.
#[test]
fn the_launchers_of_a_user_look_for_a_few_slices_that_differ() {
    let mut launchers = shared(&[(8, 0)]);
    let filter = |first: u64| {
        let slices = (first..first + 8).map(|memory| slice(1, memory, "")).collect();
        Filter { slices, ..Filter::default() }
    };
    for first in [0, 8, 0, 4] {
        launchers.subscribe_with(filter(first)).expect("16 differ");
    }
    let refused = launchers.subscribe_with(filter(9)).expect_err("it is one more");
    assert!(refused.to_string().contains("more than 16 slices"), "{refused}");
    let others = Box::new(Subscription { filter: filter(9), ..Subscription::named("other") });
    let others = launchers.call("bob", LauncherCall::Subscribe(others));
    assert!(matches!(others, Ok(LauncherAnswer::Subscribed { .. })), "{others:?}");
    launchers.subscribe_with(filter(9)).expect("another user looks for them already");
}

/// Where nodes are allocated whole, a slice is the least that each node must have.
#[test]
fn where_nodes_are_given_away_whole_a_slice_is_the_least_that_a_node_has() {
    let mut launchers = shared(&[(4, 0), (8, 0)]);
    launchers.set("allocation", "nodes");
    let job = launchers.looking_for(&[slice(6, 0, "")]);
    let mut view = LauncherView::default();
    launchers.view(job, &mut view);
    assert_eq!((launchers.seen(&view, 0).0, launchers.seen(&view, 1).0), (2, 1));
    assert!(!launchers.infos(job).clusters[0].shared);
    launchers.try_slices(job, 1, on_a(1, 50), slice(6, 0, "")).expect("it is possible");
    let grant = launchers.grant(job);
    assert_eq!((grant.nodes[0].name.as_str(), grant.nodes[0].cpus, &grant.nodes[0].part), ("a2", 16, &None));
    let other = launchers.looking_for(&[slice(6, 0, "")]);
    let mut view = LauncherView::default();
    launchers.view(other, &mut view);
    assert_eq!((launchers.seen(&view, 0).1, launchers.seen(&view, 1).1), (vec![(50, 1)], vec![(50, 1)]));
}

/// Without cores a request is for whole nodes, which must have the rest of the slice nevertheless.
#[test]
fn whole_nodes_have_the_memory_and_devices_that_were_asked_for() {
    for allocation in ["nodes", "cores"] {
        let mut launchers = shared(&[(4, 0), (8, 0), (2, 1)]);
        launchers.set("allocation", allocation);
        for (wanted, name, cpus) in [(slice(0, 5000, ""), "a2", 16), (slice(0, 0, "gpu:1"), "a3", 4)] {
            let job = launchers.subscribe();
            launchers.try_slices(job, 1, on_a(1, 50), wanted.clone()).expect("it is possible");
            let grant = launchers.grant(job);
            let node = &grant.nodes[0];
            assert_eq!((node.name.as_str(), node.cpus, &node.part), (name, cpus, &None), "{wanted:?} of {allocation}");
            let same = launchers.try_slices(job, 1, on_a(1, 50), wanted);
            assert_eq!(same, Ok(()), "its answer may have been lost");
        }
        let job = launchers.subscribe();
        for (n_nodes, wanted) in [(2, slice(0, 5000, "")), (1, slice(0, 9000, "")), (1, slice(0, 4000, "gpu:1"))] {
            let refused = launchers.try_slices(job, 1, on_a(n_nodes, 50), wanted.clone());
            refused.expect_err(&format!("{n_nodes} of {wanted:?} do not exist"));
        }
        launchers.world.rms.state().check().expect("in order");
    }
}

/// A launcher that was sent each change has the same view as one that subscribes now.
#[test]
fn what_was_told_in_pieces_is_what_there_is_to_see() {
    told_in_pieces(4);
}

#[test]
fn long_what_was_told_in_pieces_is_what_there_is_to_see() {
    told_in_pieces(40);
}

fn told_in_pieces(n_seeds: u64) {
    for_seeds("what_was_told_in_pieces_is_what_there_is_to_see", n_seeds, |dice| {
        let n_nodes = dice.number(2, 5);
        let nodes: Vec<(u32, u32)> = (0..n_nodes).map(|_| (dice.number(1, 8), dice.number(0, 2))).collect();
        let mut launchers = shared(&nodes);
        let policy = ["views", "fcfs", "easy", "conservative"][dice.number(0, 3) as usize];
        launchers.set("policy", policy);
        let slices = [slice(1, 0, ""), slice(dice.number(2, 8), 500, ""), slice(1, 0, "gpu:1")];
        let listens = launchers.looking_for(&slices);
        let mut view = LauncherView::default();
        for step in 0..40 {
            let (wanted, secs) = (dice.number(1, n_nodes), i64::from(dice.number(5, 60)));
            let cores = dice.number(1, 4);
            match dice.number(0, 3) {
                0 => {
                    let job = launchers.subscribe();
                    _ = launchers.try_slices(job, 1, on_a(wanted, secs), slice(cores, 100, ""));
                }
                1 => {
                    let mut submission = launchers.world.submission();
                    submission.shapes =
                        vec![JobShape { nodes: Nodes::Count(wanted), wall: Some(Span::from_secs(secs)) }];
                    submission.n_tasks = Some(wanted);
                    submission.cpus_per_task = cores;
                    let who = Identity::new(Role::User, "bob").expect("a plain name");
                    let call = Call::Submit(Box::new(submission));
                    launchers.event(Event::Called { ticket: Ticket(1), who, call });
                }
                _ => {
                    let running: Vec<JobId> = launchers.world.rms.state().jobs().keys().copied().collect();
                    let job = running[dice.number(0, running.len() as u32 - 1) as usize];
                    if job != listens && launchers.state(job) == Some(JobState::Started) {
                        let call = Call::Cancel { select: rms_api::call::Select::Ids(vec![job]) };
                        launchers.admin(call);
                    }
                }
            }
            launchers.after(i64::from(dice.number(0, 10)));
            launchers.view(listens, &mut view);
            launchers.told.clear();
            let comes = launchers.looking_for(&slices);
            let mut fresh = LauncherView::default();
            launchers.view(comes, &mut fresh);
            for shape in 0..=3 {
                let (known, is) = (launchers.seen(&view, shape), launchers.seen(&fresh, shape));
                assert_eq!(known, is, "shape {shape} in step {step} under {policy}");
            }
            launchers.finish(comes, 0, 0);
            launchers.world.rms.state().check().expect("in order");
        }
    });
}
