//! Cores on held nodes: given back and gained again, ready when the agents report that the job's processes are confined
//! to them.

use negotiation::{Action, Direction, Ending, Item, Phase, Reason, Resource};
use rms_api::Call;
use rms_api::call::Select;
use rms_api::negotiate::{Ask, AskOutcome, Asked, Order};
use rms_model::{ClusterId, Inventory, JobId, NodeId, OnResize, Span};

use super::{Scene, malleable, nodes};

fn scene_with_job(n_nodes: u32) -> (Scene, JobId) {
    let mut scene = Scene::new(3);
    let job = scene.submit(n_nodes, Span::from_hours(1), Some(malleable(1, 3, OnResize::Negotiates)));
    (scene, job)
}

/// Returns a request for `quantity` cores more or fewer on each of these nodes; on all if none is named.
fn cores(direction: Direction, quantity: u64, least: u64, on: &[&str]) -> Ask {
    let on = on.iter().map(|name| (*name).to_owned()).collect();
    Ask { what: Asked::Cores { cluster: None }, nodes: on, ..nodes(direction, quantity, least) }
}

/// Returns an item about cores on all nodes of the job, which has `held` now.
fn item(held: u64, quantity: u64) -> Item {
    Item::up_to(Resource::Cores(ClusterId(0)), held, quantity)
}

impl Scene {
    /// Returns what the agents are to give the job, node by node.
    fn ordered(&mut self, job: JobId) -> Vec<u32> {
        let node = NodeId(self.held(job)[0]);
        let desired = self.world.rms.context.desired(node);
        let launch = &desired.jobs.iter().find(|wanted| wanted.job == job).expect("it runs there").launch;
        launch.nodes.iter().map(|node| node.cpus).collect()
    }

    /// Returns what an item about cores on all of the job's nodes states as held.
    pub(super) fn fewest_cores(&self, job: JobId) -> u32 {
        let started = self.world.rms.state().jobs()[&job].started().expect("it runs");
        started.nodes.iter().map(|node| started.cores_on(*node, 4)).min().unwrap_or(0)
    }

    /// Returns the cores that no other job may have.
    fn kept(&self, job: JobId) -> Vec<u32> {
        let started = self.world.rms.state().jobs()[&job].started().expect("it runs");
        started.nodes.iter().map(|node| started.cores_kept_on(*node, 4)).collect()
    }

    /// Returns the cores that the job's processes may certainly use.
    fn usable(&self, job: JobId) -> Vec<u32> {
        let started = self.world.rms.state().jobs()[&job].started().expect("it runs");
        started.nodes.iter().map(|node| started.cores_usable_on(*node, 4)).collect()
    }

    fn reason(&self, ticket: crate::Ticket) -> Option<Reason> {
        match self.outcome(ticket) {
            Some(AskOutcome::Failed { reason, .. }) => Some(reason),
            Some(AskOutcome::Ready { .. }) | None => None,
        }
    }
}

#[test]
fn cores_are_given_back_and_got_again() {
    let (mut scene, job) = scene_with_job(2);
    let ticket = scene.ask(job, cores(Direction::Shrink, 3, 3, &[]));
    let Some(AskOutcome::Ready { quantity, nodes, generation, n_rounds, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!((quantity, nodes, generation, n_rounds), (3, Vec::new(), 2, 1));
    assert_eq!((scene.ordered(job), scene.kept(job)), (vec![1, 1], vec![1, 1]));
    // Three are left on each.
    let ticket = scene.ask(job, cores(Direction::Grow, 9, 2, &[]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 3, generation: 3, n_rounds: 2, .. })));
    assert_eq!((scene.ordered(job), scene.usable(job)), (vec![4, 4], vec![4, 4]));
    scene.is_durable();
}

#[test]
fn core_time_counts_each_core_for_as_long_as_the_job_had_it() {
    let (mut scene, job) = scene_with_job(2);
    let core_secs = |scene: &Scene| {
        let state = scene.world.rms.state();
        state.granted(&state.jobs()[&job], scene.world.now).expect("it runs").core_time / 1000
    };
    let mut passes = |secs: i64, expected: u64, then: Option<Ask>| {
        scene.world.now += Span::from_secs(secs);
        assert_eq!(core_secs(&scene), expected);
        let Some(ask) = then else { return };
        let ticket = scene.ask(job, ask);
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "{:?}", scene.outcome(ticket));
        assert_eq!(core_secs(&scene), expected, "a change takes no time");
    };
    passes(10, 80, Some(cores(Direction::Shrink, 3, 3, &[])));
    passes(20, 80 + 40, Some(nodes(Direction::Grow, 1, 1)));
    passes(5, 120 + 30, Some(cores(Direction::Grow, 3, 3, &["n1"])));
    passes(4, 150 + 36, Some(nodes(Direction::Shrink, 1, 1)));
    passes(1, 186 + 5, None);
    scene.is_durable();
}

/// On nodes with two hardware threads a core, of which each counts as a CPU.
#[test]
fn cores_are_counted_and_not_their_threads() {
    for allocation in ["nodes", "cores"] {
        let mut scene = Scene::new(0);
        scene.set("allocation", allocation);
        scene.node_joins_with("n1", Inventory { cores: 4, cpus: 8, ..Inventory::default() });
        let job = scene.submit(1, Span::from_hours(1), Some(malleable(1, 1, OnResize::Negotiates)));
        let ticket = scene.ask(job, cores(Direction::Shrink, 1, 1, &[]));
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })), "{allocation}");
        assert_eq!(scene.ordered(job), [6], "{allocation}");
        let ticket = scene.ask(job, cores(Direction::Grow, 2, 2, &[]));
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { .. })), "{allocation}: there is one");
        let ticket = scene.ask(job, cores(Direction::Grow, 1, 1, &[]));
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })), "{allocation}");
        assert_eq!(scene.ordered(job), [8], "{allocation}");
    }
}

#[test]
fn cores_of_one_node_are_named_by_it() {
    let (mut scene, job) = scene_with_job(2);
    let ticket = scene.ask(job, cores(Direction::Shrink, 2, 2, &["n2"]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    assert_eq!(scene.ordered(job), [4, 2]);
    // The node with the fewest cores counts.
    let ticket = scene.ask(job, cores(Direction::Shrink, 1, 1, &[]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
    assert_eq!(scene.ordered(job), [3, 1]);
    let ticket = scene.ask(job, cores(Direction::Grow, 3, 3, &["n2"]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 3, .. })));
    assert_eq!(scene.ordered(job), [3, 4]);
}

/// Accepted is not ready, and cores that were given back are not free before the job's processes leave them.
#[test]
fn nothing_is_ready_before_every_agent_has_said_so() {
    let (mut scene, job) = scene_with_job(2);
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    assert_eq!(scene.outcome(ticket), None);
    assert_eq!((scene.kept(job), scene.usable(job)), (vec![2, 4], vec![2, 2]));
    // One change at a time: another one is neither granted nor accepted.
    let again = scene.ask(job, cores(Direction::Grow, 1, 1, &[]));
    assert_eq!(scene.reason(again), Some(Reason::NoResources));
    scene.after(Span::from_mins(5));
    scene.reconnect(&["n2"]);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    assert_eq!(scene.kept(job), [2, 2]);
    let again = scene.ask(job, cores(Direction::Grow, 1, 1, &[]));
    assert!(matches!(scene.outcome(again), Some(AskOutcome::Ready { .. })));
}

#[test]
fn growth_that_waits_for_another_change_to_be_in_force_is_served_then() {
    let (mut scene, job) = scene_with_job(1);
    scene.disconnect(&["n1"]);
    let back = scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    let more = scene.ask(job, Ask { wait: Span::from_mins(1), ..cores(Direction::Grow, 1, 1, &[]) });
    assert_eq!((scene.outcome(back), scene.outcome(more)), (None, None));
    scene.reconnect(&["n1"]);
    scene.after(Span::from_secs(5));
    assert!(matches!(scene.outcome(back), Some(AskOutcome::Ready { .. })));
    assert!(matches!(scene.outcome(more), Some(AskOutcome::Ready { .. })), "{:?}", scene.outcome(more));
    assert_eq!(scene.ordered(job), [3]);
}

#[test]
fn a_node_that_cannot_set_masks_fails_it_everywhere() {
    let (mut scene, job) = scene_with_job(2);
    scene.stubborn.insert("n2".to_owned());
    let ticket = scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    assert_eq!(scene.reason(ticket), Some(Reason::Lost));
    assert_eq!((scene.ordered(job), scene.kept(job)), (vec![4, 4], vec![4, 4]), "as before");
    scene.stubborn.clear();
    scene.node_joins("n2");
    let ticket = scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    scene.is_durable();
}

#[test]
fn an_agent_that_says_nothing_fails_it_in_the_end() {
    let (mut scene, job) = scene_with_job(2);
    scene.ask(job, cores(Direction::Shrink, 3, 3, &[]));
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, cores(Direction::Grow, 2, 2, &[]));
    scene.after(Span::from_mins(11));
    assert_eq!(scene.reason(ticket), Some(Reason::Overdue));
    assert_eq!((scene.ordered(job), scene.usable(job)), (vec![1, 1], vec![1, 1]));
    assert_eq!(scene.kept(job), [1, 3], "nobody knows how many the second may have been given");
    scene.reconnect(&["n2"]);
    assert_eq!(scene.kept(job), [1, 1]);
}

/// The larger number counts until the agents have reported, even across a restart.
#[test]
fn a_server_that_is_started_again_goes_on_waiting_for_the_agents() {
    for has_power in [true, false] {
        let (mut scene, job) = scene_with_job(2);
        scene.attach(job).expect("it may");
        scene.disconnect(&["n2"]);
        let id = scene.app_opens(job, Direction::Shrink, item(4, 3));
        assert_eq!(scene.app_phase(job, id), Phase::Accepted);
        if has_power {
            scene.restart();
        } else {
            scene.power_cut();
        }
        assert_eq!((scene.phase(job, id), scene.kept(job)), (Phase::Accepted, vec![1, 4]));
        scene.attach(job).expect("it may");
        scene.reconnect(&["n2"]);
        assert_eq!((scene.app_phase(job, id), scene.kept(job)), (Phase::Applied, vec![1, 1]));
        scene.is_durable();
    }
}

#[test]
fn who_speaks_for_the_job_knows_its_cores_when_they_are_ready() {
    let (mut scene, job) = scene_with_job(2);
    scene.attach(job).expect("it may");
    let seen = |scene: &mut Scene| {
        let holding = scene.app(job).holding_at_ready.clone().expect("it was told");
        holding.nodes.iter().map(|node| node.cpus).collect::<Vec<_>>()
    };
    let id = scene.app_opens(job, Direction::Shrink, item(4, 3));
    assert_eq!((scene.app_phase(job, id), seen(&mut scene)), (Phase::Applied, vec![1, 1]));
    let id = scene.app_opens(job, Direction::Grow, item(1, 5));
    assert_eq!(scene.app_phase(job, id), Phase::Countered(negotiation::Side::Rms), "three are left");
    scene.app_acts(job, id, Action::Accept);
    assert_eq!((scene.app_phase(job, id), seen(&mut scene)), (Phase::Applied, vec![4, 4]));
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let (mut scene, job) = scene_with_job(2);
    let check = |scene: &mut Scene, ask: Ask, reason: Reason| {
        let what = format!("{ask:?}");
        let ticket = scene.ask(job, ask);
        assert_eq!(scene.reason(ticket), Some(reason), "{what}");
    };
    check(&mut scene, cores(Direction::Shrink, 4, 4, &[]), Reason::Policy);
    let patient = Ask { wait: Span::from_hours(1), ..cores(Direction::Grow, 1, 1, &[]) };
    check(&mut scene, patient, Reason::NoResources);
    scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    let lent = Ask { duration: Some(Span::from_mins(5)), ..cores(Direction::Grow, 1, 1, &[]) };
    check(&mut scene, lent, Reason::Policy);
    check(&mut scene, cores(Direction::Grow, 3, 3, &[]), Reason::NoResources);
    assert_eq!(scene.ordered(job), [2, 2]);
    let ticket = scene.ask(job, cores(Direction::Grow, 1, 1, &["n3"]));
    assert!(scene.refusal(ticket).is_some(), "n3 is not its own");

    scene.attach(job).expect("it may");
    let stale = scene.app_opens(job, Direction::Grow, item(4, 1));
    assert_eq!(scene.app(job).dialogues.get(stale).and_then(|dialogue| dialogue.reason()), Some(Reason::Changed));
    let mut foreign = item(2, 1);
    foreign.nodes.insert(NodeId(3));
    let foreign = scene.app_opens(job, Direction::Grow, foreign);
    assert_eq!(scene.app(job).dialogues.get(foreign).and_then(|dialogue| dialogue.reason()), Some(Reason::Policy));
    let mut elsewhere = item(2, 1);
    elsewhere.resource = Resource::Cores(ClusterId(7));
    let elsewhere = scene.app_opens(job, Direction::Grow, elsewhere);
    assert_eq!(scene.app(job).dialogues.get(elsewhere).and_then(|dialogue| dialogue.reason()), Some(Reason::Policy));
}

/// The mask and the nodes are changed in one negotiation, and are ready together.
#[test]
fn nodes_and_cores_come_together_or_not_at_all() {
    let (mut scene, job) = scene_with_job(1);
    scene.ask(job, cores(Direction::Shrink, 3, 3, &[]));
    scene.attach(job).expect("it may");
    scene.disconnect(&["n2"]);
    let both = |scene: &Scene| {
        let nodes = scene.item(job, 1);
        vec![nodes, item(1, 2)]
    };
    let open = |scene: &mut Scene| {
        let (now, items) = (scene.world.now, both(scene));
        let rules = vec![negotiation::SetRule::All];
        let opened = scene.app(job).dialogues.open(now, Direction::Grow, rules, items, Span::from_mins(5));
        let (id, output) = opened.expect("it may open one");
        scene.speak(job, output);
        id
    };
    let id = open(&mut scene);
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    assert_eq!((scene.held(job), scene.ordered(job)), (vec![1, 2], vec![3, 4]));
    scene.ended("n2", job, rms_api::desired::NodeExit::not_started("no space"));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert_eq!((scene.held(job), scene.ordered(job), scene.kept(job)), (vec![1], vec![1], vec![1]));
    scene.reconnect(&["n2"]);
    let id = open(&mut scene);
    assert_eq!((scene.app_phase(job, id), scene.ordered(job)), (Phase::Applied, vec![3, 4]));
    scene.is_durable();
}

#[test]
fn an_end_of_the_job_ends_the_wait_for_cores() {
    let (mut scene, job) = scene_with_job(2);
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, cores(Direction::Shrink, 2, 2, &[]));
    let id = scene.lines(job)[0].record.id;
    // Nothing can be forced here: the agents do what they can.
    scene.call(Call::OrderNegotiation { job, negotiation: id, order: Order::Force }).expect("an admin may");
    assert_eq!(scene.phase(job, id), Phase::Accepted);
    scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("an admin may");
    assert_eq!(scene.reason(ticket), Some(Reason::Stopping));
    scene.reconnect(&["n2"]);
    assert!(scene.has_left(job));
    // The next job has whole nodes.
    let next = scene.submit(2, Span::from_hours(1), Some(malleable(1, 3, OnResize::Workers)));
    assert_eq!(scene.ordered(next), [4, 4]);
}

#[test]
fn a_job_without_a_profile_that_has_given_cores_back_has_no_stages() {
    let mut scene = Scene::new(1);
    let job = scene.submit(1, Span::from_hours(1), None);
    let ticket = scene.ask(job, cores(Direction::Shrink, 1, 1, &[]));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    let stages = scene.world.line(job).stages.expect("its cores have changed");
    assert_eq!((stages.number, stages.n_stages, stages.legs), (0, 0, Vec::new()));
}
