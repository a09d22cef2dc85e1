//! Applications that grow and shrink: when their stages begin, with which nodes, and what happens to late ones.

use rms_api::answer::{Answer, JobState, Stages};
use rms_api::call::Select;
use rms_api::call::update::{Changes, WallChange};
use rms_api::desired::{Aim, Desired, JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::{Call, Refusal};
use rms_model::{Evolving, ExpandLimit, Expansion, JobId, NodeId, Outcome, Span, Time, Usage};

use super::World;
use crate::Event;
use crate::effect::Effect;
use crate::event::Ticket;

/// Parses a profile as users write it, with a limit and whether it is open.
pub(super) fn profile(text: &str, limit: ExpandLimit, open: bool) -> Evolving {
    let stages = text.parse().expect("a profile");
    Evolving { stages, expansion: Expansion { limit, compacting: false }, open }
}

impl World {
    pub(super) fn evolving(&mut self, text: &str, limit: ExpandLimit) -> JobId {
        self.submit_with(|submission| submission.evolving = Some(profile(text, limit, false)))
    }

    /// Lets time pass; every timer is handled. Agents report at once that what was ordered runs, or has ended.
    pub(super) fn until(&mut self, secs: i64) {
        let until = Time::from_secs(1_000_000 + secs);
        while let Some(due) = self.rms.next_timer().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let effects = self.event(Event::Tick);
            self.obey(effects);
        }
        self.now = until;
    }

    fn obey(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Desire { node, desired } = effect {
                self.agent(&node, &desired, NodeExit::Ordered);
            }
        }
    }

    /// Reports an agent's answer to a desired state; what it is to end ends in this way.
    fn agent(&mut self, name: &str, desired: &Desired, exit: NodeExit) {
        let report = |aim: Aim| match aim {
            Aim::Run => JobStatus::running(Time::EPOCH),
            Aim::End { .. } => JobStatus::Ended { at: Time::EPOCH, exit: exit.clone(), usage: Usage::default() },
        };
        let jobs = desired.jobs.iter().map(|job| JobReport { job: job.job, run: job.run, status: report(job.aim) });
        let report = NodeReport { seen: desired.generation, jobs: jobs.collect() };
        let effects = self.event(Event::AgentReported { name: name.to_owned(), report });
        self.obey(effects);
    }

    /// All processes of a job end successfully.
    pub(super) fn finish_all(&mut self, job: JobId) {
        let entry = &self.rms.state().jobs()[&job];
        let (run, names) = (entry.run, self.rms.state().node_names(entry.nodes()));
        for name in names {
            let exit = NodeExit::Exited { code: 0 };
            let status = JobStatus::Ended { at: self.now, exit, usage: Usage::default() };
            let report = NodeReport { seen: Default::default(), jobs: vec![JobReport { job, run, status }] };
            let effects = self.event(Event::AgentReported { name, report });
            self.obey(effects);
        }
    }

    pub(super) fn held(&self, job: JobId) -> Vec<u32> {
        self.rms.state().jobs()[&job].nodes().iter().map(|NodeId(node)| *node).collect()
    }

    pub(super) fn stages(&mut self, job: JobId) -> Stages {
        self.line(job).stages.expect("it evolves")
    }

    pub(super) fn starts(&mut self, job: JobId) -> Vec<Option<i64>> {
        let secs = |at: Option<Time>| at.map(|at| at.as_secs() - 1_000_000);
        self.stages(job).legs.iter().map(|leg| secs(leg.start)).collect()
    }

    pub(super) fn try_ask(&mut self, call: Call) -> Result<(), Refusal> {
        let who = rms_model::Identity::new(rms_model::Role::Admin, "root").expect("a plain name");
        let effects = self.event(Event::Called { ticket: Ticket(1), who, call });
        let refused = effects.iter().find_map(|effect| match effect {
            Effect::Answer { answer: Err(refusal), .. } => Some(refusal.clone()),
            _ => None,
        });
        self.obey(effects);
        refused.map_or(Ok(()), Err)
    }

    fn evolve(&mut self, job: JobId, text: &str, open: bool) -> Result<(), Refusal> {
        self.try_ask(Call::Evolve { job, stages: text.parse().expect("a profile"), open })
    }

    pub(super) fn has_ended(&self, job: JobId) -> bool {
        !self.rms.state().jobs().contains_key(&job)
    }

    fn nodes(&mut self, n_nodes: u32) {
        for number in 1..=n_nodes {
            self.node(&format!("n{number}"), &[]);
        }
    }
}

/// Returns one world that allocates whole nodes, and one shared by cores.
fn worlds() -> [World; 2] {
    ["nodes", "cores"].map(|allocation| {
        let mut world = World::new();
        world.set("allocation", allocation);
        world
    })
}

fn ending(world: &World, job: JobId) -> Option<Outcome> {
    let started = world.rms.state().jobs().get(&job)?.started()?;
    Some(started.ending.as_ref()?.outcome.clone())
}

#[test]
fn an_application_grows_and_shrinks_at_the_times_it_announced() {
    for mut world in worlds() {
        world.nodes(4);
        let job = world.evolving("1x10s,3x20s,2x10s", ExpandLimit::NONE);
        world.until(1);
        assert_eq!(world.held(job), [1]);
        assert_eq!(world.starts(job), [Some(0), Some(10)]);
        world.until(10);
        assert_eq!(world.held(job), [1, 2, 3]);
        assert_eq!(world.stages(job).generation, 2);
        world.until(30);
        assert_eq!(world.held(job), [1, 2]);
        world.until(39);
        assert!(!world.has_ended(job));
        world.until(40);
        assert!(world.has_ended(job), "its course is over");
    }
}

/// The owner of another job may extend it until a promised stage needs its nodes, and so may an admin.
#[test]
fn nobody_is_given_time_that_makes_a_promised_stage_late() {
    for mut world in worlds() {
        world.nodes(3);
        let (before, beside) = (world.submit(1, 50, &[]), world.submit(1, 50, &[]));
        let grows = world.evolving("1x100s,2x50s", ExpandLimit::NONE);
        world.until(6);
        assert!([before, beside, grows].into_iter().all(|job| world.line(job).state == JobState::Started));
        let update = |world: &mut World, job: JobId, secs: i64| {
            let changes = Changes { wall: Some(WallChange::To(Span::from_secs(secs))), ..Changes::default() };
            match world.ask(Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) }) {
                Answer::Jobs { refused, .. } => refused.first().map(|(_, why)| why.message.clone()),
                other => panic!("{other:?}"),
            }
        };
        let why = |job: &JobId| Refusal::StagePromised { job: *job, by: grows, most: Span::from_secs(100) };
        let is_refused = |job: &JobId| match update(&mut world, *job, 300) {
            None => false,
            Some(refusal) => refusal == why(job).to_string(),
        };
        let refused: Vec<JobId> = [before, beside].into_iter().filter(is_refused).collect();
        let [refused] = refused[..] else { panic!("one of them may: {refused:?}") };
        assert_eq!(update(&mut world, refused, 100), None, "that long it may");
        world.until(99);
        world.is_done(refused);
        world.until(101);
        assert_eq!(world.held(grows).len(), 2);
    }
}

/// Growth is reserved: a job that would still run then waits, one that ends before is backfilled.
#[test]
fn nobody_is_started_into_nodes_that_another_will_grow_into() {
    for mut world in worlds() {
        world.nodes(4);
        let grows = world.evolving("1x100s,4x50s", ExpandLimit::NONE);
        let long = world.submit(2, 200, &[]);
        let short = world.submit(2, 90, &[]);
        world.until(1);
        assert_eq!((world.line(grows).state, world.line(short).state), (JobState::Started, JobState::Started));
        assert_eq!(world.line(long).state, JobState::Waiting);
        assert_eq!(world.line(long).estimate, Some(Time::from_secs(1_000_150)));
    }
}

#[test]
fn a_waiting_application_is_placed_around_others_and_expanded_within_its_limit() {
    let mut world = World::new();
    world.nodes(4);
    world.submit(3, 15, &[]);
    let twice = world.evolving("1x10s,4x10s", ExpandLimit::TWICE);
    world.until(1);
    assert_eq!(world.line(twice).state, JobState::Waiting, "the first stage is moved, not stretched");
    assert_eq!(world.starts(twice), [Some(5), Some(15)]);
    let mut world = World::new();
    world.nodes(4);
    world.submit(3, 15, &[]);
    let stretched = world.evolving("1x1s,1x8s,4x10s", ExpandLimit::TWICE);
    world.until(2);
    assert_eq!(world.starts(stretched), [Some(1), Some(15)], "fourteen seconds instead of eight");
}

/// The processes of the earlier job are still there when the stage is due: nodes are free once they are gone.
#[test]
fn a_late_stage_is_waited_for_and_those_after_it_move_on() {
    for mut world in worlds() {
        world.nodes(3);
        let before = world.submit(2, 10, &[]);
        let job = world.evolving("1x10s,3x10s,1x10s", ExpandLimit::NONE);
        world.until(11);
        assert_eq!(world.held(job), [3], "the nodes of the job before are not free yet");
        let is_late = world.stages(job).late_by == Some(Span::from_secs(1));
        assert!(is_late);
        world.finish_all(before);
        world.until(13);
        assert_eq!(world.held(job), [3, 1, 2]);
        assert_eq!(world.starts(job), [Some(11), Some(21)], "the stage lasts as long as it was asked for");
    }
}

#[test]
fn a_stage_that_is_later_than_its_limit_ends_the_application() {
    for mut world in worlds() {
        world.nodes(3);
        world.submit(2, 10, &[]);
        let job = world.evolving("1x10s,3x10s", ExpandLimit::Milli(1500));
        // 10 s, half as much again, then the graces: 10 s to kill, and a second.
        world.until(25);
        assert_eq!(ending(&world, job), None);
        world.until(26);
        assert!(world.has_ended(job), "the nodes of its second stage were never free");
    }
}

#[test]
fn nodes_are_free_only_when_their_processes_are_gone() {
    for mut world in worlds() {
        world.nodes(2);
        let job = world.evolving("2x10s,1x20s", ExpandLimit::NONE);
        let next = world.submit(1, 5, &[]);
        world.until(9);
        world.now = Time::from_secs(1_000_010);
        let effects = world.event(Event::Tick);
        assert_eq!(world.held(job), [1]);
        assert_eq!(world.stages(job).leaving, ["n2"]);
        assert_eq!(world.line(next).state, JobState::Waiting);
        let desired = effects.into_iter().find_map(|effect| match effect {
            Effect::Desire { node, desired } if node == "n2" => Some(desired),
            _ => None,
        });
        world.agent("n2", &desired.expect("it is told to end"), NodeExit::Overstayed);
        world.until(11);
        assert_eq!(world.line(next).state, JobState::Started);
        assert_eq!((world.stages(job).n_violations, world.stages(job).leaving), (1, Vec::new()));
    }
}

#[test]
fn the_application_chooses_what_it_frees_before_or_within_the_grace() {
    let mut world = World::new();
    world.nodes(4);
    world.set("release_grace", "5s");
    let job = world.evolving("4x10s,3x10s,1x20s", ExpandLimit::NONE);
    world.until(1);
    let free = |names: &[&str]| Call::FreeNodes { job, nodes: names.iter().map(|name| (*name).to_owned()).collect() };
    assert!(matches!(world.try_ask(free(&["n1"])), Err(Refusal::WrongState { .. })), "the script runs there");
    assert!(matches!(world.try_ask(free(&["n2", "n3"])), Err(Refusal::FreesTooMany { .. })));
    world.try_ask(free(&["n2"])).expect("one is freed");
    world.until(10);
    assert_eq!(world.held(job), [1, 3, 4], "what is named beforehand goes at once");
    world.until(22);
    assert_eq!(world.held(job), [1, 3, 4], "the next stage is due, and the application may still choose");
    world.try_ask(free(&["n4"])).expect("one of two");
    world.until(24);
    assert_eq!(world.held(job), [1, 3, 4]);
    world.until(25);
    assert_eq!(world.held(job), [1], "the last ones are taken where it named too few");
}

#[test]
fn a_running_application_announces_its_stages_anew() {
    for mut world in worlds() {
        world.nodes(4);
        let job = world.submit_with(|submission| {
            submission.evolving = Some(profile("1x20s", ExpandLimit::TWICE, true));
        });
        let other = world.submit(3, 35, &[]);
        world.until(5);
        assert_eq!(world.line(other).state, JobState::Started);
        // It may be expanded to 2 × 12 s, until second 29; the others go at 35.
        let refused = world.evolve(job, "1x12s,2x10s", true);
        let Err(Refusal::StageLater { wanted: 2, earliest, latest }) = refused else { panic!("{refused:?}") };
        assert_eq!((earliest, latest), (Span::from_secs(30), Span::from_secs(24)));
        assert_eq!(world.starts(job), [Some(0)], "the old course stays");
        assert!(matches!(world.evolve(job, "2x1s", true), Err(Refusal::StageNotHeld { held: 1, first: 2 })));
        world.evolve(job, "1x20s,2x10s", true).expect("it fits");
        assert_eq!(world.starts(job), [Some(5), Some(35)]);
        world.finish_all(other);
        world.evolve(job, "1x10s,3x10s", false).expect("there is room now");
        world.until(15);
        assert_eq!(world.held(job), [1, 2, 3]);
        world.until(25);
        assert!(world.has_ended(job));
    }
}

#[test]
fn an_open_profile_ends_at_its_horizon_and_a_waiting_one_is_replaced() {
    for mut world in worlds() {
        world.nodes(2);
        let first = world.submit(2, 30, &[]);
        let job =
            world.submit_with(|submission| submission.evolving = Some(profile("1x20s", ExpandLimit::TWICE, true)));
        world.evolve(job, "1x10s,2x10s", true).expect("it waits");
        assert!(matches!(world.evolve(job, "1x10s,3x10s", true), Err(Refusal::StageTooLarge { stage: 2, .. })));
        assert_eq!(world.starts(job), [Some(30), Some(40)]);
        world.finish_all(first);
        world.until(19);
        assert_eq!(world.held(job).len(), 2);
        world.until(20);
        assert!(world.has_ended(job));
    }
}

#[test]
fn a_node_that_was_freed_and_comes_again_is_another_place() {
    for mut world in worlds() {
        world.nodes(2);
        let job = world.evolving("2x10s,1x10s,2x10s", ExpandLimit::NONE);
        world.until(19);
        let run = world.rms.state().jobs()[&job].run;
        let seen = world.rms.state().nodes()[&NodeId(2)].generation;
        world.now = Time::from_secs(1_000_020);
        world.event(Event::Tick);
        assert_eq!(world.held(job), [1, 2]);
        // A delayed report about an earlier stay.
        let status = JobStatus::Ended { at: Time::EPOCH, exit: NodeExit::Ordered, usage: Usage::default() };
        let report = NodeReport { seen, jobs: vec![JobReport { job, run, status }] };
        world.event(Event::AgentReported { name: "n2".to_owned(), report });
        assert_eq!(world.line(job).state, JobState::Started);
        let evolved = world.rms.state().jobs()[&job].started().and_then(|started| started.evolved.clone());
        let places = evolved.expect("it evolves").places;
        assert_eq!(
            (places[&NodeId(2)].joined, places[&NodeId(2)].first_task),
            (3, 2),
            "task numbers are not used twice"
        );
    }
}

/// Twelve nodes were promised, four of them are lost: without a limit each of the two would wait for the other without
/// end.
#[test]
fn two_that_wait_for_each_other_after_a_loss_do_not_wait_for_ever() {
    for mut world in worlds() {
        world.nodes(6);
        let old = world.evolving("2x100s,3x100s", ExpandLimit::Infinite);
        world.until(1);
        let young = world.evolving("2x100s,3x100s", ExpandLimit::Infinite);
        world.until(50);
        for name in ["n5", "n6"] {
            world.event(Event::AgentGone { name: name.to_owned() });
        }
        world.until(109);
        assert!(!world.has_ended(young), "the nodes may come back");
        world.until(115);
        assert!(world.has_ended(young), "the younger one gives way");
        assert_eq!(world.held(old).len(), 3);
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_step_goes_on_with_it() {
    for mut world in worlds() {
        world.nodes(3);
        let job = world.evolving("1x10s,3x10s,1x10s", ExpandLimit::TWICE);
        world.until(9);
        world.restart(3);
        for name in ["n1", "n2", "n3"] {
            let run = world.rms.state().jobs()[&job].run;
            let status = JobStatus::running(Time::EPOCH);
            let jobs = if name == "n1" { vec![JobReport { job, run, status }] } else { Vec::new() };
            world.joins(name, Default::default(), jobs);
        }
        world.until(13);
        assert_eq!(world.held(job), [1, 2, 3]);
        assert_eq!(world.starts(job), [Some(12), Some(22)]);
    }
}

#[test]
fn what_no_cluster_has_nodes_for_is_refused_by_its_stage() {
    for mut world in worlds() {
        world.nodes(4);
        let submit = |world: &mut World, text: &str, n_tasks: Option<u32>| {
            let mut asked = None;
            let first = world.submission();
            let mut submission = first;
            submission.evolving = Some(profile(text, ExpandLimit::TWICE, false));
            submission.n_tasks = n_tasks;
            if let Err(refusal) = world.try_ask(Call::Submit(Box::new(submission))) {
                asked = Some(refusal.to_string());
            }
            asked
        };
        assert_eq!(submit(&mut world, "2x1h,9x1h", None).as_deref(), Some("stage 2 needs 9 nodes of 4 in cluster c"));
        let tasks = submit(&mut world, "2x1h,4x1h", Some(3));
        assert!(tasks.is_some_and(|text| text.contains("3 do not divide by the 2 nodes")));
        assert!(submit(&mut world, "0x1h,4x1h", None).is_some_and(|text| text.contains("at least one node")));
    }
}

/// The plan is kept, so that nobody else is late; the history has what was held.
#[test]
fn nodes_that_are_chosen_late_count_as_held_until_then() {
    let mut world = World::new();
    world.nodes(2);
    world.set("release_grace", "5s");
    let job = world.evolving("2x4s,1x6s", ExpandLimit::NONE);
    world.until(8);
    assert_eq!(world.held(job), [1, 2], "it may still choose");
    world.until(9);
    assert_eq!(world.held(job), [1]);
    assert_eq!(world.starts(job), [Some(4)], "the smaller stage ends as planned");
    let started = world.rms.state().jobs()[&job].started().expect("it runs");
    let evolved = started.evolved.as_ref().expect("it has stages");
    let held = evolved.history(world.now + Span::from_secs(1)).map(|held| held.to_string());
    assert_eq!(held.as_deref(), Some("2x9s,1x1s"));
}
