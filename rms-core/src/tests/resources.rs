//! What a job may take of its nodes, and the refusals for what no node has.

use std::collections::BTreeSet;

use rms_api::answer::{Answer, Lacking, Reason, Required};
use rms_api::call::update::{Changes, ResourceChanges};
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_api::desired::{AgentHello, NodeReport};
use rms_api::filter::NodeFilter;
use rms_api::{Call, Query};
use rms_model::{Devices, ExpandLimit, Inventory, JobId, Mebibytes, Packing, Request, Slice, Span, Time, Work};

use super::World;
use super::evolving::profile;
use crate::Event;

/// Creates two nodes of 8 cores with two threads each and 16 GiB, one of them with GPUs, and a large one.
fn world() -> World {
    let mut world = World::new();
    let node = |cores: u32, gib: u64, devices: &str| Inventory {
        cores,
        cpus: 2 * cores,
        memory: Mebibytes(1024 * gib),
        devices: if devices.is_empty() { Devices::default() } else { self::devices(devices) },
        ..Inventory::default()
    };
    world.joins("n1", node(8, 16, ""), Vec::new());
    world.joins("n2", node(8, 16, "gpu:a100:2,gpu:v100:2"), Vec::new());
    world.joins("big", node(32, 64, "gpu:a100:4,fpga:1"), Vec::new());
    world
}

fn devices(text: &str) -> Devices {
    text.parse().expect("devices")
}

fn on(submission: &mut Submission, n_nodes: u32) {
    submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: None }];
}

fn sizes(world: &World, job: JobId) -> Vec<u32> {
    world.rms.state().jobs()[&job].spec.options.iter().map(Request::n_nodes).collect()
}

/// Tasks with CPUs of their own need nodes for them; any number of tasks that share CPUs (`-O`) fits on one, unless the
/// number on each node is limited.
#[test]
fn tasks_that_share_cpus_fit_on_one_node() {
    let mut world = world();
    let mut most = |cpus_per_task, tasks_per_node| {
        let job = world.submit_with(|submission| {
            submission.n_tasks = Some(30);
            submission.cpus_per_task = cpus_per_task;
            submission.resources.tasks_per_node = tasks_per_node;
        });
        sizes(&world, job).into_iter().max()
    };
    assert_eq!([most(1, 0), most(0, 0), most(0, 10)], [Some(2), Some(1), Some(3)]);
}

#[test]
fn what_no_cluster_has_is_refused_with_the_most_that_one_has() {
    let mut world = world();
    let inventory = Inventory { cores: 96, cpus: 96, memory: Mebibytes(1 << 20), ..Inventory::default() };
    let hello = AgentHello {
        cluster: "d".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        inventory: inventory.clone(),
        trouble: None,
    };
    world.event(Event::AgentConnected { name: "d1".to_owned(), hello, report: NodeReport::default() });
    let said = world.refused(|job| job.constraint.memory = Mebibytes((1 << 20) + 1));
    assert!(said.contains("cluster d has 0") && said.contains("largest node has 1048576 MiB"), "{said}");
    let said = world.refused(|job| job.cpus_per_task = 97);
    assert!(said.contains("largest node of cluster d has 96 CPUs"), "{said}");
    let said = world.refused(|job| (job.clusters, job.cpus_per_task) = (vec!["c".to_owned()], 97));
    assert!(said.contains("largest node of cluster c has 64 CPUs"), "{said}");
    let inventory = Inventory { devices: devices("gpu:h100:6,fpga:9"), ..inventory };
    let hello = AgentHello { cluster: "e".to_owned(), address: "127.0.0.1:1".to_owned(), inventory, trouble: None };
    world.event(Event::AgentConnected { name: "e1".to_owned(), hello, report: NodeReport::default() });
    let said = world.refused(|job| {
        job.resources.devices = devices("fpga:9");
        job.constraint.nodelist = ["d1".to_owned()].into_iter().collect();
    });
    assert!(said.contains("cluster d has 0 among d1; its nodes among d1 have none"), "{said}");
    for (wanted, part) in
        [("gpu:8", "cluster e has 0; its nodes have fpga:9, gpu:h100:6"), ("gpu:a100:8", "cluster c has 0;")]
    {
        let said = world.refused(|job| job.resources.devices = devices(wanted));
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn what_no_node_has_is_refused_with_what_would_be_possible() {
    let mut world = world();
    let mut refused = |parts: &[&str], change: &dyn Fn(&mut Submission)| {
        let said = world.refused(change);
        parts.iter().for_each(|part| assert!(said.contains(part), "'{said}' does not say '{part}'"));
    };
    refused(&["hold 1 task of 65 CPUs", "has 64 CPUs"], &|job| job.cpus_per_task = 65);
    refused(&["hold 1 task of 33 cores", "has 32 cores"], &|job| {
        (job.cpus_per_task, job.resources.one_thread_a_core) = (33, true);
    });
    refused(&["1 node with 65537 MiB is needed", "cluster c has 0", "largest node has 65536 MiB"], &|job| {
        job.constraint.memory = Mebibytes(65537);
    });
    refused(&["2 nodes with 32768 MiB are needed", "cluster c has 1,"], &|job| {
        (job.cpus_per_task, job.resources.memory_per_cpu) = (8, Mebibytes(4096));
        on(job, 2);
    });
    refused(&["2 nodes with at least 20 CPUs are needed", "cluster c has 1"], &|job| {
        (job.n_tasks, job.cpus_per_task) = (Some(40), 1);
        on(job, 2);
    });
    refused(&["2 nodes with at least 10 cores are needed", "cluster c has 1"], &|job| {
        (job.n_tasks, job.cpus_per_task, job.resources.one_thread_a_core) = (Some(20), 1, true);
        on(job, 2);
    });
    refused(&["no node has a device 'gpu:h100'", "fpga:1, gpu:a100:4, gpu:v100:2"], &|job| {
        job.resources.devices = devices("gpu:h100:1");
    });
    refused(&["gpu:5", "cluster c has 0", "gpu:a100:4"], &|job| {
        job.resources.devices = devices("gpu:5");
    });
    refused(&["2 nodes with gpu:v100:1 are needed", "cluster c has 1;"], &|job| {
        job.resources.devices = devices("gpu:v100:1");
        on(job, 2);
    });
    refused(&["5 gpu over all of 2 nodes"], &|job| {
        job.resources.devices_in_all = devices("gpu:5");
        on(job, 2);
    });
    refused(&["9 tasks are more than 4 on each of 2 nodes", "ask for 3 nodes"], &|job| {
        (job.n_tasks, job.resources.tasks_per_node) = (Some(9), 4);
        on(job, 2);
    });
    refused(&["1 task cannot be spread over 2 nodes"], &|job| {
        job.execution.work = Work::Script { script: "true".to_owned(), args: Vec::new() };
        job.n_tasks = Some(1);
        on(job, 2);
    });
    // One node has enough memory, and another one the device.
    refused(&["1 node with", "20000 MiB of memory and gpu:v100:1 is needed", "cluster c has 0"], &|job| {
        job.constraint.memory = Mebibytes(20000);
        job.resources.devices = devices("gpu:v100:1");
    });
    refused(&["1 node with at least 1024 MiB of scratch space is needed", "cluster c has 0"], &|job| {
        job.constraint.scratch = Mebibytes(1024);
    });
    refused(&["1 node with at least speed 5 is needed"], &|job| job.constraint.speed_milli = 5000);
    refused(&["2 nodes with at least 9 sockets and at least 512 MiB of memory are needed"], &|job| {
        (job.constraint.sockets, job.constraint.memory) = (9, Mebibytes(512));
        on(job, 2);
    });
    refused(&["the arguments may take 1048576 bytes at most, not 1048582"], &|job| {
        job.execution.work = Work::Tasks { argv: vec!["true".to_owned(), "x".repeat(1 << 20)] };
    });
    refused(&["a job begins before 9999-12-30"], &|job| job.begin = Some(Time::NEVER));
    refused(&["--gpus-per-node"], &|job| {
        job.resources.devices_in_all = devices("gpu:2");
        job.evolving = Some(rms_model::Evolving {
            stages: "1x1h".parse().expect("a profile"),
            expansion: rms_model::Expansion::default(),
            open: false,
        });
    });
    refused(&["stage 1 needs 3 nodes of 2 in cluster c"], &|job| {
        job.resources.devices = devices("gpu:2");
        job.evolving = Some(rms_model::Evolving {
            stages: "3x1h".parse().expect("a profile"),
            expansion: rms_model::Expansion::default(),
            open: false,
        });
    });
}

#[test]
fn whole_nodes_are_as_many_as_tasks_memory_and_devices_need() {
    let mut world = world();
    let gpus = Inventory {
        cores: 8,
        cpus: 16,
        memory: Mebibytes(16384),
        devices: devices("gpu:a100:4"),
        ..Inventory::default()
    };
    world.joins("n3", gpus, Vec::new());
    let mut count = |change: &dyn Fn(&mut Submission)| {
        let job = world.submit_with(|job| {
            job.cpus_per_task = 1;
            change(job);
        });
        sizes(&world, job)
    };
    assert_eq!(count(&|job| job.n_tasks = Some(32)), [1, 2], "a large node, or two small ones");
    assert_eq!(count(&|job| (job.n_tasks, job.resources.one_thread_a_core) = (Some(24), true)), [1, 3], "eight cores");
    assert_eq!(count(&|job| (job.n_tasks, job.resources.memory_per_cpu) = (Some(12), Mebibytes(4096))), [1, 3]);
    assert_eq!(count(&|job| (job.n_tasks, job.resources.tasks_per_node) = (Some(5), 2)), [3]);
    assert_eq!(count(&|job| job.resources.devices_in_all = devices("gpu:8")), [2], "four are the most on a node");
    assert_eq!(count(&|job| job.resources.devices_in_all = devices("gpu:2")), [1]);
}

#[test]
fn where_nodes_are_shared_tasks_may_lie_on_few_nodes_or_on_many() {
    let mut world = world();
    world.set("allocation", "cores");
    let mut count = |change: &dyn Fn(&mut Submission)| {
        let job = world.submit_with(|job| {
            job.cpus_per_task = 1;
            change(job);
        });
        sizes(&world, job)
    };
    assert_eq!(count(&|job| job.n_tasks = Some(1)), [1]);
    assert_eq!(count(&|job| job.n_tasks = Some(4)), [1, 2], "of three nodes, two would have a task less");
    assert_eq!(count(&|job| job.n_tasks = Some(30)), [1, 2, 3]);
    assert_eq!(count(&|job| job.n_tasks = Some(32)), [1, 2, 3], "on three, sixteen at most");
    assert_eq!(count(&|job| job.n_tasks = Some(40)), [1, 3], "two nodes with twenty CPUs each there are not");
    assert_eq!(count(&|job| (job.n_tasks, job.resources.packing) = (Some(30), Packing::Spread)), [3, 2, 1]);
    assert_eq!(count(&|job| (job.n_tasks, job.resources.exclusive) = (Some(30), true)), [1, 2], "whole nodes");
    assert_eq!(count(&|job| (job.n_tasks, job.resources.tasks_per_node) = (Some(30), 15)), [2, 3]);
    assert_eq!(count(&|job| job.resources.devices_in_all = devices("gpu:4")), [1, 2]);
    assert_eq!(
        count(&|job| {
            job.n_tasks = Some(4);
            on(job, 2);
        }),
        [2],
        "as said"
    );
}

#[test]
fn a_job_that_waits_takes_something_else_of_its_nodes() {
    let mut world = world();
    world.submit(3, 3600, &[]);
    let job = world.submit_with(|job| {
        job.resources.devices = devices("gpu:1,fpga:1");
        job.constraint.memory = Mebibytes(512);
        job.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(600)) }];
    });
    let update = |world: &mut World, resources: ResourceChanges, memory| {
        let changes = Box::new(Changes { resources, memory, ..Changes::default() });
        match world.ask(Call::Update { select: Select::Ids(vec![job]), changes }) {
            Answer::Jobs { refused, .. } => refused.first().map(|(_, why)| why.kind.clone()),
            other => panic!("no list of jobs: {other:?}"),
        }
    };
    let asked = |world: &World| {
        let spec = &world.rms.state().jobs()[&job].spec;
        (spec.resources.clone(), spec.constraint.memory)
    };
    let late = Box::new(Changes { begin: Some(Time::NEVER), ..Changes::default() });
    match world.ask(Call::Update { select: Select::Ids(vec![job]), changes: late }) {
        Answer::Jobs { refused, .. } => assert_eq!(refused[0].1.kind, "malformed"),
        other => panic!("no list of jobs: {other:?}"),
    }
    let nothing = ResourceChanges::default;
    let each = ResourceChanges { devices: Some(devices("gpu:9")), ..nothing() };
    assert_eq!(update(&mut world, each, None).as_deref(), Some("too_many_devices"));
    assert_eq!(asked(&world).0.devices, devices("gpu:1,fpga:1"), "nothing was changed");
    let in_all = ResourceChanges { devices_in_all: Some(devices("gpu:a100:2")), ..nothing() };
    assert_eq!(update(&mut world, in_all, None), None);
    let resources = asked(&world).0;
    assert_eq!((resources.devices, resources.devices_in_all), (devices("fpga:1"), devices("gpu:a100:2")));
    let none = ResourceChanges { devices: Some(Devices::default()), ..nothing() };
    assert_eq!(update(&mut world, none, None), None);
    assert!(asked(&world).0.is_default());
    let per_cpu = ResourceChanges { memory_per_cpu: Some(Mebibytes(64)), ..nothing() };
    assert_eq!(update(&mut world, per_cpu, None), None);
    let resources = asked(&world);
    assert_eq!((resources.0.memory_per_cpu, resources.1), (Mebibytes(64), Mebibytes(0)), "in place of the node's");
    assert_eq!(update(&mut world, nothing(), Some(Mebibytes(256))), None);
    let memory = |world: &World| (asked(world).0.memory_per_cpu, asked(world).1);
    assert_eq!(memory(&world), (Mebibytes(0), Mebibytes(256)));
    // None takes the place of either.
    let per_cpu = |mebibytes| ResourceChanges { memory_per_cpu: Some(Mebibytes(mebibytes)), ..nothing() };
    assert_eq!(update(&mut world, per_cpu(0), None), None);
    assert_eq!(memory(&world), (Mebibytes(0), Mebibytes(0)), "none for each CPU");
    assert_eq!(update(&mut world, per_cpu(64), None), None);
    assert_eq!(update(&mut world, nothing(), Some(Mebibytes(0))), None);
    assert_eq!(memory(&world), (Mebibytes(0), Mebibytes(0)), "none of a node");
    let rest = ResourceChanges {
        tasks_per_node: Some(4),
        exclusive: Some(true),
        packing: Some(Packing::Spread),
        one_thread_a_core: Some(true),
        contiguous: Some(true),
        ..nothing()
    };
    assert_eq!(update(&mut world, rest, None), None);
    let resources = asked(&world).0;
    assert_eq!((resources.tasks_per_node, resources.packing), (4, Packing::Spread));
    assert!(resources.exclusive && resources.one_thread_a_core && resources.contiguous);
}

#[test]
fn a_cluster_has_a_memory_for_those_who_name_none_and_a_most_of_cpus() {
    let mut world = world();
    world.set("memory_per_cpu", "512");
    world.set("max_cpus@c", "20");
    let mut memory = |change: &dyn Fn(&mut Submission)| {
        let job = world.submit_with(change);
        world.rms.state().jobs()[&job].spec.resources.memory_per_cpu
    };
    assert_eq!(memory(&|_| ()), Mebibytes(0), "nodes are not shared");
    world.set("allocation", "cores");
    let mut memory = |change: &dyn Fn(&mut Submission)| {
        let job = world.submit_with(change);
        world.rms.state().jobs()[&job].spec.resources.memory_per_cpu
    };
    assert_eq!(memory(&|_| ()), Mebibytes(512));
    assert_eq!(memory(&|job| job.constraint.memory = Mebibytes(1)), Mebibytes(0));
    assert_eq!(memory(&|job| job.resources.memory_per_cpu = Mebibytes(7)), Mebibytes(7));
    assert_eq!(memory(&|job| job.resources.exclusive = true), Mebibytes(0));
    let said = world.refused(|job| (job.n_tasks, job.cpus_per_task) = (Some(7), 3));
    assert!(said.contains("would have 21 CPUs") && said.contains("20 on cluster c (max_cpus"), "{said}");
    let many = world.refused(|job| (job.n_tasks, job.cpus_per_task) = (Some(21), 1));
    assert!(many.contains("21 CPUs"), "{many}");
    world.submit_with(|job| (job.n_tasks, job.cpus_per_task) = (Some(10), 2));
}

#[test]
fn what_is_free_of_a_shared_node_and_what_a_job_has_of_it_is_told() {
    let mut world = World::new();
    let inventory =
        Inventory { cores: 8, cpus: 8, memory: Mebibytes(16384), devices: devices("gpu:2"), ..Inventory::default() };
    world.joins("n1", inventory, Vec::new());
    let free = |world: &mut World| match world.ask(Call::Query(Query::Nodes(NodeFilter::default()))) {
        Answer::Nodes { nodes, .. } => nodes[0].free.clone(),
        other => panic!("no nodes: {other:?}"),
    };
    assert_eq!(free(&mut world), None, "nobody shares it");
    world.set("allocation", "cores");
    let slice = |cores, memory, gpus: &str| Some(Slice { cores, memory: Mebibytes(memory), devices: devices(gpus) });
    assert_eq!(free(&mut world), slice(8, 16384, "gpu:2"));
    let job = world.submit_with(|job| {
        (job.n_tasks, job.cpus_per_task) = (Some(3), 1);
        (job.resources.memory_per_cpu, job.resources.devices) = (Mebibytes(1024), devices("gpu:1"));
    });
    assert_eq!(free(&mut world), slice(5, 16384 - 3072, "gpu:1"));
    let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Job(Select::Ids(vec![job])))) else {
        panic!("no details")
    };
    assert_eq!(jobs[0].grants["n1"].amount(), Slice { cores: 3, memory: Mebibytes(3072), devices: devices("gpu:1") });
    assert_eq!(jobs[0].line.resources.memory_per_cpu, Mebibytes(1024));
}

/// Otherwise a limit of CPUs would be none for whoever asks for whole nodes.
#[test]
fn nodes_that_a_job_does_not_share_count_with_all_their_cpus() {
    let mut world = world();
    world.set("max_cpus@c", "15");
    world.set("allocation", "cores");
    let whole = world.refused(|job| job.resources.exclusive = true);
    assert!(whole.contains("would have 16 CPUs") && whole.contains("15 on cluster c (max_cpus"), "{whole}");
    let shared_cpus = world.refused(|job| job.cpus_per_task = 0);
    assert!(shared_cpus.contains("would have 16 CPUs"), "{shared_cpus}");
    let two = world.refused(|job| {
        job.resources.exclusive = true;
        on(job, 2);
    });
    assert!(two.contains("would have 32 CPUs"), "{two}");
    let three = world.refused(|job| {
        job.resources.exclusive = true;
        on(job, 3);
    });
    assert!(three.contains("would have 96 CPUs"), "{three}");
    let large = world.refused(|job| {
        job.resources.exclusive = true;
        job.constraint.memory = Mebibytes(17 * 1024);
    });
    assert!(large.contains("would have 64 CPUs"), "its smallest node is the large one: {large}");
    world.submit_with(|job| job.cpus_per_task = 1);
    world.set("max_cpus@c", "16");
    world.submit_with(|job| job.resources.exclusive = true);
    world.set("max_cpus@c", "15");
    world.set("allocation", "nodes");
    let alone = world.refused(|job| job.cpus_per_task = 1);
    assert!(alone.contains("would have 16 CPUs"), "{alone}");
}

/// The later stages of a profile, and what a launcher requests, are part of a job as its first size is.
#[test]
fn the_most_cpus_hold_for_stages_and_requests_of_launchers() {
    for allocation in ["nodes", "cores"] {
        let mut world = World::new();
        world.set("allocation", allocation);
        let inventory = Inventory { cores: 4, cpus: 4, ..Inventory::default() };
        ["n1", "n2", "n3"].into_iter().for_each(|name| drop(world.joins(name, inventory.clone(), Vec::new())));
        world.set("max_cpus@c", "8");
        let with_stages = |submission: &mut Submission, text: &str| {
            submission.evolving = Some(profile(text, ExpandLimit::NONE, false));
            submission.cpus_per_task = 4;
        };
        let said = world.refused(|submission| with_stages(submission, "1x1m,3x1m"));
        assert!(said.contains("would have 12 CPUs"), "{allocation}: {said}");
        let job = world.submit_with(|submission| with_stages(submission, "1x1m,2x1m"));
        let waits = world.submit_with(|submission| with_stages(submission, "2x1m,2x1m"));
        for (job, text) in [(job, "1x1m,3x1m"), (waits, "3x1m")] {
            let stages = text.parse().expect("a profile");
            let said =
                world.try_ask(Call::Evolve { job, stages, open: false }).expect_err("it is too large").to_string();
            assert!(said.contains("would have 12 CPUs"), "{allocation}, {text}: {said}");
        }
    }
}

/// Nodes come back smaller while a job waits: the reason names what too few of them have.
#[test]
fn what_nodes_that_came_back_smaller_lack_is_named() {
    let full = || Inventory {
        cores: 4,
        cpus: 8,
        memory: Mebibytes(8192),
        devices: devices("gpu:2"),
        features: ["fast".to_owned()].into(),
        ..Inventory::default()
    };
    let shrunk = [
        (Inventory { memory: Mebibytes(2048), ..full() }, Required::Memory(Mebibytes(4096))),
        (Inventory { cores: 2, cpus: 4, ..full() }, Required::Cpus(6)),
        (Inventory { cpus: 4, ..full() }, Required::Cpus(6)),
        (Inventory { devices: devices("gpu:1"), ..full() }, Required::Devices(devices("gpu:2"))),
        (Inventory { features: BTreeSet::new(), ..full() }, Required::Features(["fast".to_owned()].into())),
    ];
    let cases = ["nodes", "cores"].into_iter().flat_map(|allocation| shrunk.iter().map(move |case| (allocation, case)));
    for (allocation, (smaller, required)) in cases {
        let mut world = World::new();
        world.set("allocation", allocation);
        ["n1", "n2", "n3", "n4"].into_iter().for_each(|name| drop(world.joins(name, full(), Vec::new())));
        let job = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(3), wall: Some(Span::from_secs(60)) }];
            submission.n_tasks = Some(6);
            submission.cpus_per_task = 3;
            submission.constraint.memory = Mebibytes(4096);
            submission.constraint.features = ["fast".to_owned()].into();
            submission.resources.devices = devices("gpu:2");
            submission.hold = true;
        });
        for name in ["n1", "n2"] {
            world.event(Event::AgentGone { name: name.to_owned() });
            world.joins(name, smaller.clone(), Vec::new());
        }
        world.ask(Call::Drain { nodes: vec!["n4".to_owned()], reason: "fan".to_owned() });
        world.ask(Call::Release { select: Select::Ids(vec![job]) });
        let Some(Reason::TooFewNodes { wanted: 3, usable: 1, total: 4, lacking, .. }) = world.line(job).reason else {
            panic!("{allocation}: {:?}", world.line(job).reason)
        };
        let unusable = vec!["n4".to_owned()];
        let told = Lacking { required: required.clone(), n_nodes: 1, among: 3, unusable, unknown: Vec::new() };
        assert_eq!(lacking.as_deref(), Some(&told), "{allocation}");
        world.ask(Call::Drain { nodes: vec!["n1".to_owned()], reason: "fan".to_owned() });
        let reason = world.line(job).reason;
        assert!(matches!(reason, Some(Reason::TooFewNodes { lacking: None, .. })), "two are usable: {reason:?}");
    }
}

/// A node that was removed does not come back by itself, so it is named. Of what a job holds, only nodes that the waiting
/// one could use are in its way.
#[test]
fn a_job_that_names_its_nodes_is_told_of_those_alone() {
    let mut world = World::new();
    for name in ["n1", "n2", "n3", "n4"] {
        world.joins(name, Inventory::default(), Vec::new());
    }
    let running = world.submit(3, 100, &[]);
    let named = |world: &mut World, name: &str| {
        let nodelist = [name.to_owned()].into();
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(60)) }];
            submission.constraint.nodelist = nodelist;
        })
    };
    let waits = named(&mut world, "n1");
    let Some(Reason::Blocked { by, .. }) = world.explained(waits) else { panic!("it is busy") };
    assert_eq!(by.iter().map(|holder| (holder.job, holder.nodes)).collect::<Vec<_>>(), [(running, 1)]);

    let nodes = || vec!["n4".to_owned()];
    world.ask(Call::Drain { nodes: nodes(), reason: "fan".to_owned() });
    let waits = named(&mut world, "n4");
    let unknown = |world: &mut World| match world.line(waits).reason {
        Some(Reason::TooFewNodes { lacking: Some(lacking), .. }) => lacking.unknown,
        reason => panic!("{reason:?}"),
    };
    assert!(unknown(&mut world).is_empty());
    world.event(Event::AgentGone { name: "n4".to_owned() });
    world.ask(Call::Remove { nodes: nodes() });
    assert_eq!(unknown(&mut world), nodes());
}

/// Where jobs share nodes, those whose ends a waiting job's start does not wait for are not in its way.
#[test]
fn only_jobs_whose_ends_a_start_waits_for_are_named() {
    let mut world = World::new();
    world.set("allocation", "cores");
    let node = |cores: u32| Inventory { cores, cpus: cores, ..Inventory::default() };
    for (name, cores) in [("n1", 4), ("n2", 4), ("n3", 4), ("small", 2)] {
        world.joins(name, node(cores), Vec::new());
    }
    let runs = |world: &mut World, node: &str, cpus: u32, secs: i64| {
        world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(secs)) }];
            submission.cpus_per_task = cpus;
            submission.constraint.nodelist = if node.is_empty() { BTreeSet::new() } else { [node.to_owned()].into() };
        })
    };
    let first = runs(&mut world, "n1", 4, 100);
    let _later = runs(&mut world, "n2", 4, 200);
    // One leaves sooner, and the other stays.
    let [_, _] = [50, 500].map(|secs| runs(&mut world, "n3", 2, secs));
    let _too_small = runs(&mut world, "small", 2, 60);
    let waits = runs(&mut world, "", 4, 10);
    let blockers = |world: &mut World, job| match world.explained(job) {
        Some(Reason::Blocked { by, .. }) => by.iter().map(|blocker| blocker.job).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.line(waits).estimate, Some(world.now + Span::from_secs(100)));
    assert_eq!(blockers(&mut world, waits), [first]);
}

/// `--mincpus`: which nodes are used, not what is taken of them.
#[test]
fn each_node_has_at_least_the_cpus_that_are_asked_for() {
    for (allocation, one_thread_a_core) in [("nodes", false), ("cores", false), ("nodes", true), ("cores", true)] {
        let mut world = World::new();
        world.set("allocation", allocation);
        for (name, cores) in [("n1", 4), ("n2", 8), ("n3", 4)] {
            world.joins(name, Inventory { cores, cpus: 2 * cores, ..Inventory::default() }, Vec::new());
        }
        let asks = |submission: &mut Submission, n_nodes, cpus| {
            on(submission, n_nodes);
            submission.cpus_per_task = 2;
            submission.constraint.cpus = cpus;
            submission.resources.one_thread_a_core = one_thread_a_core;
        };
        let job = world.submit_with(|submission| asks(submission, 1, 16));
        let entry = &world.rms.state().jobs()[&job];
        assert_eq!(world.rms.state().node_names(entry.nodes()), ["n2"], "{allocation}");
        let is_part = allocation == "cores";
        let cores = if one_thread_a_core { 2 } else { 1 };
        let granted = entry.grants().values().map(|grant| grant.cores.len()).collect::<Vec<_>>();
        assert_eq!(granted, if is_part { vec![cores] } else { Vec::new() }, "{allocation}");
        let refused = world.refused(|submission| asks(submission, 2, 16));
        assert!(refused.contains("at least 16 CPUs"), "{allocation}: {refused}");

        let waits = world.submit_with(|submission| {
            asks(submission, 2, 8);
            submission.hold = true;
        });
        let mut update = |cpus| {
            let changes = Box::new(Changes { min_cpus: Some(cpus), ..Changes::default() });
            match world.ask(Call::Update { select: Select::Ids(vec![waits]), changes }) {
                Answer::Jobs { refused, .. } => refused.into_iter().next().map(|(_, why)| why.message),
                other => panic!("{other:?}"),
            }
        };
        let refused = update(16).expect("one node has so many CPUs");
        assert!(refused.contains("at least 16 CPUs"), "{allocation}: {refused}");
        assert_eq!(update(0), None, "{allocation}");
        assert_eq!(world.rms.state().jobs()[&waits].spec.constraint.cpus, 0, "{allocation}");
    }
}
