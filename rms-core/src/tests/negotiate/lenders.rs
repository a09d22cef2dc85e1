//! Malleable jobs that share their CPUs: they negotiate, or lend and borrow, one after the other (004).

use negotiation::Reason;
use rms_api::call::Select;
use rms_api::call::update::{Changes, WallChange};
use rms_api::desired::AgentHello;
use rms_model::{Malleable, Mebibytes, OnResize, Sizes, Span};

use super::*;

const HOUR: Span = Span::from_hours(1);

/// Creates `n_nodes` nodes under 004's policy.
fn sharing(n_nodes: u32) -> Scene {
    let mut scene = Scene::new(n_nodes);
    scene.set("policy", "slowdown");
    scene.set("max_slowdown", "infinite");
    scene
}

fn by_itself(least: u32, most: u32) -> Option<Malleable> {
    Some(malleable(least, most, OnResize::Negotiates))
}

impl Scene {
    fn submit_sharing(&mut self, n_nodes: u32, wall: Span, malleable: Option<Malleable>) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
        submission.execution.work = Work::Tasks { argv: vec!["app".to_owned()] };
        submission.malleable = malleable;
        submission.resources.share = true;
        submission.requeue = Some(true);
        match self.call(Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// Returns the cores of a job on each of its nodes.
    fn has_cores(&self, job: JobId) -> Vec<u32> {
        let state = self.world.rms.state();
        state.cores_of(&state.jobs()[&job]).map(|cores| cores.has).collect()
    }

    fn lends(&self, job: JobId) -> bool {
        self.world.rms.state().jobs()[&job].sharing().is_some_and(|sharing| !sharing.lent.is_empty())
    }

    fn limit(&self, job: JobId) -> Span {
        self.world.rms.state().jobs()[&job].started().expect("it runs").request.wall
    }

    fn is_done(&mut self, job: JobId) {
        let run = self.world.rms.state().jobs()[&job].run;
        self.event(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
    }

    fn is_ready(&self, ticket: Ticket) -> bool {
        matches!(self.outcome(ticket), Some(AskOutcome::Ready { .. }))
    }
}

fn ask(what: Asked, direction: Direction, quantity: u64, wait: Span) -> Ask {
    Ask { what, wait, ..nodes(direction, quantity, 1) }
}

fn of_nodes() -> Asked {
    Asked::Nodes { cluster: None }
}

fn of_cores() -> Asked {
    Asked::Cores { cluster: None }
}

#[test]
fn who_lends_or_borrows_negotiates_about_nothing_until_that_is_over() {
    for allocation in ["nodes", "cores"] {
        let mut scene = sharing(3);
        scene.set("allocation", allocation);
        let owner = scene.submit_sharing(2, HOUR, by_itself(1, 3));
        scene.attach(owner).expect("it may");
        let guest = scene.submit_sharing(2, Span::from_mins(10), by_itself(1, 3));
        assert_eq!((scene.has_cores(owner), scene.has_cores(guest)), (vec![2, 2], vec![2, 2]), "{allocation}");
        for job in [owner, guest] {
            for (what, direction) in [
                (of_nodes(), Direction::Shrink),
                (of_nodes(), Direction::Grow),
                (of_cores(), Direction::Shrink),
                (Asked::Time, Direction::Grow),
            ] {
                let ticket = scene.ask(job, ask(what, direction, 1, Span::ZERO));
                let refusal = scene.refusal(ticket).expect("not now").to_string();
                assert!(refusal.contains("lends or borrows CPUs at present"), "{refusal}");
            }
        }
        // A negotiator is told the same, and the server asks it for nothing.
        let cpus = |scene: &mut Scene| {
            let holding = scene.app(owner).holding.clone().expect("it was told");
            holding.nodes.iter().map(|node| node.cpus).collect::<Vec<_>>()
        };
        assert_eq!(cpus(&mut scene), [2, 2], "{allocation}");
        let shrink = scene.app_opens(owner, Direction::Shrink, scene.item(owner, 1));
        let reason = scene.app(owner).dialogues.get(shrink).and_then(|dialogue| dialogue.reason());
        assert_eq!(reason, Some(Reason::Changed));
        scene.set("offer_idle", "equal_share");
        scene.event(Event::Tick);
        assert_eq!(scene.app_hears(owner, Direction::Grow), None, "{allocation}: there is a free node");
        scene.set("offer_idle", "never");

        let waits = scene.ask(owner, ask(of_nodes(), Direction::Grow, 1, HOUR));
        scene.after(Span::from_mins(2));
        assert_eq!(scene.outcome(waits), None);
        scene.is_done(guest);
        assert!(scene.is_ready(waits), "{:?}", scene.outcome(waits));
        assert_eq!((scene.held(owner).len(), scene.has_cores(owner)), (3, vec![4, 4, 4]), "{allocation}");
        assert_eq!(cpus(&mut scene), [4, 4, 4], "{allocation}");
        let fewer = scene.app_opens(owner, Direction::Shrink, scene.item(owner, 1));
        assert_eq!(scene.app_phase(owner, fewer), Phase::Accepted, "{allocation}");
        scene.is_durable();
    }
}

#[test]
fn nobody_lends_what_he_negotiates_about() {
    let mut scene = sharing(3);
    let owner = scene.submit_sharing(2, HOUR, by_itself(1, 4));
    let blocker = scene.submit(1, HOUR, None);
    let waits = scene.ask(owner, ask(of_nodes(), Direction::Grow, 1, Span::from_mins(10)));
    let guest = scene.submit_sharing(2, Span::from_mins(5), None);
    assert!(!scene.is_started(guest) && scene.is_started(blocker));
    scene.after(Span::from_mins(10));
    assert!(matches!(scene.outcome(waits), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    assert!(scene.lends(owner) && scene.is_started(guest), "nothing came of it");
    scene.is_done(guest);

    // What is lent for a time is taken back then, in any case.
    scene.is_done(blocker);
    let lent = Ask { duration: Some(Span::from_mins(30)), ..ask(of_nodes(), Direction::Grow, 1, Span::ZERO) };
    let lent = scene.ask(owner, lent);
    assert!(scene.is_ready(lent));
    let guest = scene.submit_sharing(3, Span::from_mins(5), None);
    assert!(!scene.is_started(guest));
    scene.disconnect(&["n3"]);
    scene.after(Span::from_mins(31));
    assert_eq!(scene.held(owner).len(), 2);
    assert!(!scene.is_started(guest), "two nodes are too few");
    let small = scene.submit_sharing(2, Span::from_mins(5), None);
    assert!(!scene.lends(owner), "it has yet to leave the third");
    scene.reconnect(&["n3"]);
    assert!(scene.is_started(small) && scene.lends(owner));
}

/// Nodes that are being given back cannot be lent.
#[test]
fn who_is_leaving_nodes_lends_none() {
    let mut scene = sharing(2);
    let owner = scene.submit_sharing(2, HOUR, Some(malleable(1, 2, OnResize::Signal(10))));
    let first = scene.submit_sharing(2, Span::from_mins(5), None);
    scene.is_done(first);
    let shrink = scene.ask(owner, ask(of_nodes(), Direction::Shrink, 1, Span::ZERO));
    assert_eq!(scene.outcome(shrink), None, "it has yet to leave");
    let guest = scene.submit_sharing(1, Span::from_mins(30), None);
    assert!(!scene.is_started(guest));
    scene.disconnect(&["n2"]);
    let generation = scene.generation(owner);
    scene
        .call(Call::ResizeDone { job: owner, generation: generation - 1 })
        .expect("it has not heard of the last change");
    assert_eq!(scene.held(owner).len(), 2);
    scene.call(Call::ResizeDone { job: owner, generation }).expect("it has left");
    assert!(!scene.lends(owner), "processes may still be there");
    scene.reconnect(&["n2"]);
    assert!(scene.is_ready(shrink));
    assert!(scene.is_started(guest) && !scene.lends(owner), "a node is free now");
    let another = scene.submit_sharing(1, Span::from_mins(5), None);
    assert!(scene.is_started(another) && scene.lends(owner));
}

#[test]
fn cores_that_were_given_back_are_not_lent_and_the_others_are() {
    for allocation in ["nodes", "cores"] {
        let mut scene = sharing(1);
        scene.set("allocation", allocation);
        let owner = scene.submit_sharing(1, HOUR, by_itself(1, 1));
        // An order about CPUs counts together with one about cores.
        let first = scene.submit_sharing(1, Span::from_mins(5), None);
        assert!(scene.lends(owner));
        scene.is_done(first);
        scene.after(Span::from_mins(10));
        scene.disconnect(&["n1"]);
        let fewer = scene.ask(owner, ask(of_cores(), Direction::Shrink, 2, Span::ZERO));
        let guest = scene.submit_sharing(1, Span::from_mins(5), None);
        // The agent repeats its report from before it heard of that.
        scene.share("n1", owner, scene.runs("n1", owner));
        assert_eq!(scene.outcome(fewer), None, "{allocation}");
        assert!(!scene.lends(owner), "{allocation}: its processes may be anywhere");
        scene.reconnect(&["n1"]);
        assert!(scene.is_ready(fewer), "{allocation}: {:?}", scene.outcome(fewer));
        assert_eq!((scene.has_cores(owner), scene.lends(owner)), (vec![1], true), "{allocation}");
        assert_eq!(scene.has_cores(guest), [1], "{allocation}: half of two");
        scene.is_done(guest);
        assert_eq!((scene.has_cores(owner), scene.limit(owner)), (vec![2], HOUR), "{allocation}");
        let desired = scene.world.rms.context.desired(NodeId(1));
        let place = &desired.jobs[0].launch.nodes[0];
        assert_eq!((place.cpus, &place.grant), (2, &None), "as if it had never lent");
        // With a fourth of the cores it would take as long as if it waited.
        let long = scene.submit_sharing(1, Span::from_mins(20), None);
        assert!(!scene.lends(owner), "{allocation}");
        scene.call(Call::Cancel { select: Select::Ids(vec![long]) }).expect("it waits");
        let more = scene.ask(owner, ask(of_cores(), Direction::Grow, 2, Span::ZERO));
        assert!(scene.is_ready(more), "{allocation}");
        assert_eq!(scene.has_cores(owner), [4], "{allocation}");
        let guest = scene.submit_sharing(1, Span::from_mins(5), None);
        assert!(scene.lends(owner), "{allocation}");
        scene.is_done(guest);
        assert_eq!(scene.limit(owner), HOUR, "{allocation}");

        // A failed change is reverted by another order.
        scene.disconnect(&["n1"]);
        let fewer = scene.ask(owner, ask(of_cores(), Direction::Shrink, 2, Span::ZERO));
        scene.after(Span::from_mins(11));
        assert!(matches!(scene.outcome(fewer), Some(AskOutcome::Failed { reason: Reason::Overdue, .. })));
        let guest = scene.submit_sharing(1, Span::from_mins(5), None);
        assert!(!scene.lends(owner), "{allocation}: its processes may keep to fewer");
        scene.reconnect(&["n1"]);
        assert!(scene.lends(owner) && scene.is_started(guest), "{allocation}");
        scene.is_durable();
    }
}

/// A job alone on a node does not have all its memory while a guest is there.
#[test]
fn a_guest_has_memory_beside_one_that_has_given_cores_back() {
    let mut scene = sharing(0);
    let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(1000), ..Inventory::default() };
    let hello = AgentHello { cluster: "c".to_owned(), address: "127.0.0.1:1".to_owned(), inventory, trouble: None };
    scene.event(Event::AgentConnected { name: "n1".to_owned(), hello, report: NodeReport::default() });
    let owner = scene.submit_sharing(1, HOUR, by_itself(1, 1));
    let fewer = scene.ask(owner, ask(of_cores(), Direction::Shrink, 2, Span::ZERO));
    assert!(scene.is_ready(fewer));
    let mut submission = scene.world.submission();
    submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(5)) }];
    submission.constraint.memory = Mebibytes(600);
    submission.resources.share = true;
    scene.call(Call::Submit(Box::new(submission))).expect("it may");
    assert!(scene.lends(owner));
}

/// The tasks that the job started with stay where they are when more nodes come.
#[test]
fn a_task_that_runs_keeps_its_core_whatever_came_later() {
    for (n_tasks, lends) in [(4, false), (2, true)] {
        let mut scene = sharing(2);
        let mut submission = scene.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(HOUR) }];
        submission.n_tasks = Some(n_tasks);
        submission.cpus_per_task = 1;
        submission.malleable = by_itself(1, 2);
        submission.resources.share = true;
        scene.call(Call::Submit(Box::new(submission))).expect("it may");
        let owner = JobId(1);
        let more = scene.ask(owner, ask(of_nodes(), Direction::Grow, 1, Span::ZERO));
        assert!(scene.is_ready(more));
        let guest = scene.submit_sharing(2, Span::from_mins(5), None);
        assert_eq!((scene.lends(owner), scene.is_started(guest)), (lends, lends), "{n_tasks} on the first node");
    }
}

/// A job that cannot take nodes yet is not given nodes of others.
#[test]
fn nobody_gives_nodes_for_one_who_shares() {
    let mut scene = sharing(4);
    let owner = scene.submit_sharing(2, HOUR, by_itself(1, 4));
    let guest = scene.submit_sharing(2, Span::from_mins(5), None);
    assert!(!scene.lends(owner), "there are free nodes");
    scene.is_done(guest);
    let other = scene.submit(2, HOUR, Some(malleable(1, 2, OnResize::Workers)));
    let guest = scene.submit_sharing(2, Span::from_mins(5), None);
    assert!(scene.lends(owner));
    scene.set("shrink_for", "queue");
    let waits = scene.ask(owner, ask(of_nodes(), Direction::Grow, 1, HOUR));
    scene.after(Span::from_secs(30));
    assert_eq!((scene.held(other).len(), scene.outcome(waits)), (2, None));
    scene.is_done(guest);
    scene.after(Span::from_secs(30));
    assert_eq!((scene.held(other).len(), scene.held(owner).len()), (1, 3));
    assert!(scene.is_ready(waits));
}

/// The limit follows from the work that is left once the job has changed its size.
#[test]
fn a_change_of_size_between_two_guests_changes_no_limit() {
    let mut scene = sharing(2);
    let owner = scene.submit_sharing(2, HOUR, by_itself(1, 2));
    let guest = scene.submit_sharing(2, Span::from_mins(10), None);
    scene.after(Span::from_mins(2));
    scene.is_done(guest);
    assert_eq!(scene.limit(owner), Span::from_mins(61), "a minute of its work was not done in two");
    let fewer = scene.ask(owner, ask(of_nodes(), Direction::Shrink, 1, Span::ZERO));
    scene.attach(owner).expect("it may");
    assert!(scene.outcome(fewer).is_some(), "{:?}", scene.refusal(fewer));
    let blocker = scene.submit(1, HOUR, None);
    assert_eq!((scene.held(owner).len(), scene.limit(owner)), (1, Span::from_mins(61)));
    scene.after(Span::from_mins(9));
    let guest = scene.submit_sharing(1, Span::from_mins(10), None);
    assert!(scene.lends(owner));
    assert_eq!(scene.limit(owner), Span::from_mins(71));
    let course = |scene: &Scene| {
        let started = scene.world.rms.state().jobs()[&owner].started().expect("it runs");
        started.evolved.as_ref().expect("it has changed").course.end().since(started.at)
    };
    assert_eq!(course(&scene), Span::from_mins(71), "it is not ended before");
    scene.after(Span::from_mins(10));
    scene.is_done(guest);
    assert_eq!((scene.limit(owner), course(&scene)), (Span::from_mins(66), Span::from_mins(66)));
    let more = scene.ask(owner, ask(Asked::Time, Direction::Grow, 60_000, Span::ZERO));
    assert!(scene.is_ready(more));
    assert_eq!(scene.limit(owner), Span::from_mins(67));
    let lends_and_has_back = |scene: &mut Scene, n_nodes: u32| {
        let guest = scene.submit_sharing(n_nodes, Span::from_mins(10), None);
        assert!(scene.lends(owner));
        assert_eq!(scene.limit(owner), Span::from_mins(77), "with more time, or more nodes");
        scene.is_done(guest);
        assert_eq!(scene.limit(owner), Span::from_mins(67));
    };
    lends_and_has_back(&mut scene, 1);
    scene.is_done(blocker);
    let more = scene.ask(owner, ask(of_nodes(), Direction::Grow, 1, Span::ZERO));
    assert!(scene.is_ready(more));
    lends_and_has_back(&mut scene, 2);
    scene.is_durable();
}

fn survives(sizes: Sizes) -> Option<Malleable> {
    Some(Malleable { sizes, survives_loss: Some(true), ..malleable(1, 4, OnResize::Workers) })
}

/// The mate has its cores on the other nodes again, and its guest, which has lost the same node, waits again.
#[test]
fn who_lends_goes_on_without_a_lost_node() {
    for (allocation, sizes, n_left) in [
        ("nodes", Sizes::Any, 3),
        ("cores", Sizes::Any, 3),
        ("nodes", Sizes::PowerOfTwo, 2),
        ("cores", Sizes::PowerOfTwo, 2),
    ] {
        let mut scene = sharing(4);
        scene.set("allocation", allocation);
        let owner = scene.submit_sharing(4, HOUR, survives(sizes.clone()));
        let guest = scene.submit_sharing(4, Span::from_mins(10), survives(sizes.clone()));
        assert_eq!(scene.has_cores(guest), [2, 2, 2, 2], "{allocation}");
        scene.event(Event::AgentGone { name: "n3".to_owned() });
        // The node may come back before the guest's other processes are gone.
        scene.disconnect(&["n4"]);
        scene.after(Span::from_secs(61));
        assert_eq!(scene.held(owner).len(), n_left, "{allocation}");
        scene.node_joins("n3");
        scene.reconnect(&["n4"]);
        scene.after(Span::from_secs(1));
        assert!(scene.is_started(owner) && !scene.is_started(guest), "{allocation}");
        assert_eq!((scene.has_cores(owner), scene.lends(owner)), (vec![4; n_left], false), "{allocation}");
        assert!(scene.limit(owner) < Span::from_mins(61), "half of a minute was lost: {}", scene.limit(owner));
        scene.is_durable();
        while let Some(job) = [guest, owner].into_iter().find(|job| scene.is_started(*job)) {
            scene.is_done(job);
        }
        assert_eq!(scene.n_free(), 4, "{allocation}");
    }
}

#[test]
fn nodes_are_asked_for_where_that_adds_less_to_slowdowns_than_lent_cores() {
    for answer in [Some(Action::Accept), Some(Action::Reject(Reason::Declined)), None] {
        let mut scene = sharing(4);
        scene.set("shrink_for", "queue");
        let mate = scene.submit_sharing(1, HOUR, None);
        let giver = scene.submit(3, HOUR, by_itself(1, 3));
        scene.attach(giver).expect("it may");
        // A third of ten minutes more for an hour, or ten minutes more for an hour and for ten minutes.
        let guest = scene.submit_sharing(1, Span::from_mins(10), None);
        let asked = scene.app_hears(giver, Direction::Shrink).expect("it is asked");
        scene.after(Span::from_secs(1));
        assert!(!scene.lends(mate) && !scene.is_started(guest), "it has not answered");
        let is_willing = answer == Some(Action::Accept);
        match answer {
            Some(answer) => scene.app_acts(giver, asked, answer),
            None => scene.after(scene.world.rms.state().settings().offer_valid),
        }
        scene.after(Span::from_secs(1));
        assert_eq!(scene.lends(mate), !is_willing);
        assert!(is_willing || scene.is_started(guest), "it is not waited for any longer");
        scene.is_durable();
    }
}

#[test]
fn cores_are_lent_where_that_adds_less_to_slowdowns_than_nodes_given_back() {
    let mut scene = sharing(4);
    scene.set("shrink_for", "queue");
    scene.set("sharing_factor", "0.75");
    let mate = scene.submit_sharing(1, Span::from_hours(10), None);
    let giver = scene.submit(3, Span::from_mins(15), by_itself(1, 3));
    scene.attach(giver).expect("it may");
    // A third of 20 minutes more for 15, or 20 minutes more for ten hours and a third of 20 for 20.
    let guest = scene.submit_sharing(1, Span::from_mins(20), None);
    assert_eq!((scene.app_hears(giver, Direction::Shrink), scene.lends(mate)), (None, true));
    assert!(scene.is_started(guest));
}

/// The changed time is the requested one with all CPUs; with half of them for a while the job takes longer.
#[test]
fn who_shares_may_be_given_another_time() {
    let secs = Span::from_secs;
    let changes =
        [WallChange::To(secs(8)), WallChange::More(secs(0)), WallChange::Less(secs(1)), WallChange::More(secs(60))];
    for (is_guest, change) in [false, true].into_iter().flat_map(|guest| changes.map(|change| (guest, change))) {
        let mut scene = sharing(1);
        let mate = scene.submit_sharing(1, secs(600), None);
        let guest = scene.submit_sharing(1, secs(60), None);
        assert_eq!((scene.limit(mate), scene.limit(guest)), (secs(660), secs(120)));
        let (job, other, asked) = if is_guest { (guest, mate, 60) } else { (mate, guest, 600) };
        scene.after(secs(4));
        let mut update = |wall| {
            let changes = Box::new(Changes { wall: Some(wall), ..Changes::default() });
            scene.call(Call::Update { select: Select::Ids(vec![job]), changes })
        };
        let refused = format!("{:?}", update(WallChange::To(secs(2))));
        assert!(refused.contains("wall_passed"), "it has got as far as that: {refused}");
        let done = format!("{:?}", update(change));
        assert!(done.contains("refused: []"), "{done}");
        // Two seconds of it were done in four. The guest leaves after 120, and the job that is alone then does the rest
        // at full speed.
        let left = change.of(secs(asked)).as_millis() / 1000 - 2;
        let shared = if is_guest { left } else { left.min(58) };
        let what = format!("{change:?} of a job of {asked} s");
        assert_eq!(scene.limit(job), secs(4 + 2 * shared + (left - shared)), "{what}");
        scene.is_done(other);
        assert_eq!(scene.limit(job), secs(4 + left), "{what}, alone");
        scene.world.rms.state().check().expect("it asked for no less than nothing");
        scene.is_durable();
    }
}
