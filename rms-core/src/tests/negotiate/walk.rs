//! Random walks through negotiations of several applications, with failures of nodes, channels and the server: after
//! each step, what is held is what was promised, and a server that reads the journal has the same state. Once all
//! failures are repaired, every negotiation ends and nothing is left behind.

use std::collections::BTreeMap;

use negotiation::{
    Action, Direction, Item, Message, NegotiationId, Output, Phase, Price, Quantity, Reason, Resource, SetRule, Side,
};
use rms_api::Call;
use rms_api::call::Select;
use rms_api::desired::NodeExit;
use rms_api::negotiate::{Asked, NegotiatorCall, Order};
use rms_model::{ClusterId, JobId, NodeId, OnResize, Run, Sizes, Span, Work};

use super::{Scene, malleable, nodes};
use crate::event::Event;
use crate::negotiate::open::ShrinkRequest;
use crate::plan::{self, Placed, Placement, Plan, Scope};
use crate::{Fact, Replay};
use test_kit::{Dice, for_seeds};

const N_NODES: u32 = 6;
/// The last nodes are a cluster of their own.
const N_ELSEWHERE: u32 = 2;

struct Walk<'a> {
    scene: Scene,
    dice: &'a mut Dice,
    /// Messages of applications, to be sent again.
    said: Vec<(JobId, Run, Message)>,
}

#[test]
fn whatever_happens_nothing_is_leaked_and_nothing_is_forgotten() {
    walk_and_heal(4);
}

#[test]
fn long_whatever_happens_nothing_is_leaked_and_nothing_is_forgotten() {
    walk_and_heal(60);
}

fn walk_and_heal(n_seeds: u64) {
    // Counts each kind of negotiation, by initiator and direction.
    let mut n_applied: BTreeMap<(Side, Option<Direction>), u32> = BTreeMap::new();
    let (mut n_elsewhere, mut n_both, mut n_cores, mut n_compared) = (0, 0, 0, 0);
    let mut n_walked = 0;
    for_seeds("whatever_happens_nothing_is_leaked_and_nothing_is_forgotten", n_seeds, |dice| {
        let scene = two_clusters();
        let mut walk = Walk { scene, dice, said: Vec::new() };
        walk.choose_policies();
        walk.begin();
        for _ in 0..120 {
            walk.step();
            n_compared += walk.compare_plans();
        }
        walk.heal();
        n_walked += 1;
        for fact in &walk.scene.facts.durable {
            if let Fact::DialogueChanged { dialogue, .. } = fact
                && dialogue.phase() == Phase::Applied
            {
                *n_applied.entry((dialogue.id().initiator, dialogue.direction())).or_default() += 1;
                let items = dialogue.proposal().into_iter().flat_map(|proposal| proposal.items());
                let live: Vec<Resource> =
                    items.filter(|item| item.is_live()).map(|item| item.resource.clone()).collect();
                n_elsewhere += u32::from(live.contains(&Resource::Nodes(ClusterId(1))));
                n_both += u32::from(live.len() == 2);
                n_cores += u32::from(live.iter().any(|resource| matches!(resource, Resource::Cores(_))));
            }
        }
    });
    let comes_far = n_applied.len() == 4 && n_elsewhere > 0 && n_both > 0 && n_cores > 0 && n_compared > 100;
    assert!(
        n_walked < 60 || comes_far,
        "a walk that comes nowhere shows nothing: {n_applied:?}, on the second cluster {n_elsewhere}, on both {n_both}, \
         of cores {n_cores}, plans compared {n_compared}"
    );
}

/// Returns which job starts when; of equivalent shared nodes, any may be meant.
fn starts(plan: Plan) -> Vec<(JobId, Placed)> {
    let start = |Placement { job, mut outcome, view: _ }| {
        if let Placed::Later { nodes, .. } = &mut outcome {
            nodes.clear();
        }
        (job, outcome)
    };
    plan.placements.into_iter().map(start).collect()
}

fn two_clusters() -> Scene {
    let n_at_home = N_NODES - N_ELSEWHERE;
    let mut scene = Scene::new(n_at_home);
    for number in n_at_home + 1..=N_NODES {
        scene.node_joins_in("d", &format!("n{number}"));
    }
    scene
}

impl Walk<'_> {
    fn choose_policies(&mut self) {
        if self.dice.chance(50) {
            self.scene.set("offer_idle", "equal_share");
            self.scene.set("shrink_for", "queue");
        }
        if self.dice.chance(20) {
            self.scene.set("price", "1");
        }
        if self.dice.chance(20) {
            self.scene.set("delay_tolerance", "5m");
        }
        if self.dice.chance(30) {
            self.scene.set("lost_policy", "requeue");
        }
        if self.dice.chance(30) {
            self.scene.set("fair_start", "20s");
        }
        if self.dice.chance(25) {
            self.scene.set("allocation", "cores");
        }
    }

    fn begin(&mut self) {
        let ways = [
            OnResize::Negotiates,
            OnResize::Workers,
            OnResize::Signal(10),
            OnResize::Negotiates,
            OnResize::Hook("./resize".to_owned()),
        ];
        for _ in 0..3 {
            let way = ways[self.dice.number(0, 4) as usize].clone();
            let n_nodes = self.dice.number(1, 2);
            let is_script = self.dice.chance(50) && way != OnResize::Workers;
            let work = match is_script {
                true => Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() },
                false => Work::Tasks { argv: vec!["app".to_owned()] },
            };
            let mut limits = malleable(1, self.dice.number(2, N_NODES), way);
            if self.dice.chance(30) {
                limits.sizes = Sizes::PowerOfTwo;
            }
            self.scene.submit_work(n_nodes, Span::from_hours(2), work, Some(limits));
        }
    }

    fn step(&mut self) {
        let Some(job) = self.any_job() else {
            self.begin();
            return;
        };
        match self.dice.number(0, 31) {
            0..=3 => self.asks(job),
            4..=6 => {
                let _ = self.attach(job);
            }
            7..=9 => self.opens(job),
            10..=15 => self.answers(job),
            16 => self.server_shrinks(job),
            17 => self.server_offers(job),
            18 => {
                let secs = self.dice.number(1, 40);
                self.scene.after(Span::from_secs(secs.into()));
            }
            19 => self.scene.after(Span::from_mins(11)),
            20 if self.dice.chance(30) => self.hardens(),
            20 => self.deafens(),
            21 => self.loses_a_node(),
            22 => self.drains(),
            23 => match self.dice.chance(50) {
                true => self.scene.restart(),
                false => self.scene.power_cut(),
            },
            24 => {
                if self.scene.apps.contains_key(&job) {
                    self.scene.hangs_up(job);
                }
            }
            25 => self.says_again(),
            26 => self.orders(job),
            27 => {
                let generation = self.dice.number(1, 6);
                let _ = self.scene.call(Call::ResizeDone { job, generation });
            }
            28 => {
                let (n_nodes, cpus_per_task) = (self.dice_nodes(), self.dice.number(0, 1));
                self.scene.guest(n_nodes, cpus_per_task, Span::from_mins(20));
            }
            29 => self.a_share_fails(job),
            30 => {
                let mute = self.dice.chance(50);
                if let Some(app) = self.scene.apps.get_mut(&job) {
                    app.is_mute = mute;
                }
            }
            _ => {
                if self.dice.chance(20) {
                    let select = Select::Ids(vec![job]);
                    let _ = self.scene.call(Call::Cancel { select });
                }
            }
        }
    }

    /// Checks that the plan as if more nodes were held for a negotiation is the plan once they are, under every policy.
    /// Returns how often a job was waiting.
    fn compare_plans(&self) -> u32 {
        let (state, now) = (self.scene.world.rms.state(), self.scene.world.now);
        let mut n_compared = 0;
        for (job, entry) in state.jobs() {
            let open = entry
                .negotiations
                .iter()
                .flat_map(|negotiations| negotiations.open())
                .find(|negotiation| !negotiation.is_handed_over);
            let Some(negotiation) = open.filter(|_| state.n_queued() > 0) else { continue };
            let free = state.clusters().keys().flat_map(|cluster| state.free(*cluster));
            // Without the dice, so that the walk is the same without this check.
            let more = free
                .enumerate()
                .filter(|(idx, _)| !(idx + self.scene.facts.durable.len()).is_multiple_of(3))
                .map(|(_, node)| node);
            let nodes: Vec<NodeId> = negotiation.held.iter().copied().chain(more).collect();
            let kept = Fact::NodesHeld {
                job: *job,
                negotiation: negotiation.id(),
                nodes: nodes.clone(),
                grants: Default::default(),
            };
            for policy in ["views", "fcfs", "easy", "conservative"] {
                let mut state = state.clone();
                state.settings.set("policy", policy).expect("it is one");
                let supposed = plan::plan_if_kept(&state, now, (*job, negotiation.id()), &nodes, Span::ZERO);
                let mut kept_for_it = Replay::of(state);
                kept_for_it.follow(&kept).expect("they are free, or kept for it");
                let real = plan::plan(kept_for_it.state(), now, Scope::Estimates);
                assert_eq!(starts(supposed), starts(real), "{policy}, {kept:?}");
            }
            n_compared += 1;
        }
        n_compared
    }

    fn dice_nodes(&mut self) -> u32 {
        self.dice.number(1, 3)
    }

    fn any_job(&mut self) -> Option<JobId> {
        let jobs: Vec<JobId> = self.scene.world.rms.state().jobs().keys().copied().collect();
        let running: Vec<JobId> = jobs
            .into_iter()
            .filter(|job| {
                let entry = &self.scene.world.rms.state().jobs()[job];
                entry.spec.malleable.is_some() && entry.started().is_some_and(|started| started.ending.is_none())
            })
            .collect();
        if running.is_empty() {
            return None;
        }
        let idx = self.dice.number(0, running.len() as u32 - 1);
        Some(running[idx as usize])
    }

    fn asks(&mut self, job: JobId) {
        let direction = if self.dice.chance(65) { Direction::Grow } else { Direction::Shrink };
        let quantity = self.dice.number(1, 4);
        let mut ask = nodes(direction, quantity.into(), self.dice.number(1, quantity).into());
        if self.dice.chance(20) {
            ask.what = Asked::Time;
            ask.quantity = u64::from(self.dice.number(1, 3_000_000));
            ask.least = 1;
        } else if self.dice.chance(30) {
            ask.what = Asked::Nodes { cluster: Some("d".to_owned()) };
        }
        if self.dice.chance(30) {
            let (cluster, name) = (None, "gpu".to_owned());
            ask.what = match self.dice.number(0, 6) {
                0..=3 => Asked::Cores { cluster },
                4 => {
                    (ask.quantity, ask.least) = (100 * ask.quantity, 1);
                    Asked::Memory { cluster }
                }
                5 => Asked::Devices { cluster, name },
                _ => Asked::Licences { cluster, name: "matlab".to_owned() },
            };
            if !matches!(ask.what, Asked::Licences { .. }) && self.dice.chance(30) {
                ask.nodes = vec![format!("n{}", self.scene.held(job)[0])];
            }
        }
        if self.dice.chance(30) {
            ask.duration = (ask.what != Asked::Time).then(|| Span::from_mins(5));
        }
        ask.wait = Span::from_secs(self.dice.number(0, 90).into());
        self.scene.ask(job, ask);
    }

    fn attach(&mut self, job: JobId) -> Result<(), rms_api::Refusal> {
        self.scene.attach(job)
    }

    fn item(&mut self, job: JobId, cluster: ClusterId) -> Item {
        let quantity = self.dice.number(1, 4).into();
        let state = self.scene.world.rms.state();
        let is_here = |node: &&NodeId| state.nodes()[node].cluster == cluster;
        let held = state.jobs()[&job].nodes().iter().filter(is_here).count() as u64;
        let mut item = Item::up_to(Resource::Nodes(cluster), held, quantity);
        if self.dice.chance(20) {
            item.terms.duration = Some(Span::from_mins(5));
        }
        if self.dice.chance(10) {
            item.terms.deadline = Some(self.scene.world.now + Span::from_secs(30));
        }
        item
    }

    fn opens(&mut self, job: JobId) {
        if !self.scene.apps.contains_key(&job) {
            return;
        }
        let direction = if self.dice.chance(60) { Direction::Grow } else { Direction::Shrink };
        let home = self.cluster();
        let mut items = vec![self.item(job, home)];
        if self.dice.chance(60) {
            items.push(self.item(job, ClusterId(1 - home.0)));
            // There are few nodes: of large requests on both clusters, one would always fail.
            items = items.into_iter().map(|item| Item::up_to(item.resource, item.held.0, 1)).collect();
        } else if self.dice.chance(25) {
            items[0].resource = Resource::Cores(home);
            items[0].held = Quantity(self.scene.fewest_cores(job).into());
        }
        let rules = [SetRule::All, SetRule::AnyOf, SetRule::OneOf];
        // With two items it is most often about both.
        let rule = rules[if items.len() > 1 { self.dice.number(0, 3) % 3 } else { self.dice.number(0, 2) } as usize];
        let now = self.scene.world.now;
        let valid_for = Span::from_secs(self.dice.number(1, 200).into());
        let dialogues = &mut self.scene.app(job).dialogues;
        let Ok((_, output)) = dialogues.open(now, direction, vec![rule], items, valid_for) else {
            return;
        };
        self.notes(job, &output);
        self.scene.speak(job, output);
    }

    fn cluster(&mut self) -> ClusterId {
        ClusterId(u16::from(self.dice.chance(40)))
    }

    /// Lets the application do something possible in one of its negotiations.
    fn answers(&mut self, job: JobId) {
        let Some(app) = self.scene.apps.get(&job) else { return };
        let open: Vec<(NegotiationId, Phase, Direction)> = app
            .dialogues
            .all()
            .iter()
            .filter(|dialogue| !dialogue.phase().is_over())
            .filter_map(|dialogue| Some((dialogue.id(), dialogue.phase(), dialogue.direction()?)))
            .collect();
        if open.is_empty() {
            return;
        }
        let (id, phase, direction) = open[self.dice.number(0, open.len() as u32 - 1) as usize];
        let action = match phase {
            Phase::Accepted | Phase::Committing if direction == Direction::Grow || self.dice.chance(10) => {
                Action::Fail(Reason::Lost)
            }
            Phase::Accepted => Action::Commit(self.some_nodes(job, id)),
            Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms) => match self.dice.number(0, 3) {
                0 | 1 => Action::Accept,
                2 => self.counter(job, id),
                _ => Action::Reject(Reason::Declined),
            },
            _ if self.dice.chance(30) => Action::Withdraw(Reason::Changed),
            _ => return,
        };
        let now = self.scene.world.now;
        if let Ok(output) = self.scene.app(job).dialogues.act(now, id, action) {
            self.notes(job, &output);
            self.scene.speak(job, output);
        }
    }

    fn counter(&mut self, job: JobId, id: NegotiationId) -> Action {
        let proposal = self.scene.apps[&job].dialogues.get(id).and_then(|dialogue| dialogue.proposal()).cloned();
        let proposal = proposal.expect("it stands");
        let mut items = proposal.items().to_vec();
        for item in &mut items {
            let less = self.dice.number(1, item.quantity.0.min(8) as u32);
            item.quantity = Quantity(less.into());
            item.terms.least = item.terms.least.min(item.quantity);
            item.terms.price = Price(self.dice.number(0, 2).into());
            item.nodes.clear();
        }
        match proposal.with_items(items) {
            Ok(template) => Action::Propose { template, valid_for: Span::from_secs(40) },
            Err(_) => Action::Accept,
        }
    }

    /// Returns as many nodes of each cluster as were agreed, mostly ones that the application may leave.
    fn some_nodes(&mut self, job: JobId, id: NegotiationId) -> std::collections::BTreeSet<NodeId> {
        let proposal = self.scene.apps[&job].dialogues.get(id).and_then(|dialogue| dialogue.proposal()).cloned();
        let skipped = usize::from(!self.dice.chance(10));
        let state = self.scene.world.rms.state();
        let held = || self.scene.held(job).into_iter().skip(skipped).map(NodeId);
        let items = proposal.iter().flat_map(|proposal| proposal.items()).filter(|item| item.is_live());
        let of_item = |item: &Item| {
            let is_here = |node: &NodeId| item.resource == Resource::Nodes(state.nodes()[node].cluster);
            held().filter(is_here).take(item.quantity.0 as usize).collect::<Vec<_>>()
        };
        items.flat_map(of_item).collect()
    }

    fn server_shrinks(&mut self, job: JobId) {
        let wanted = match self.dice.chance(50) {
            true => ShrinkRequest::Count(self.dice.number(1, 3), 1),
            false => {
                let last = self.scene.held(job).last().copied();
                ShrinkRequest::Named(last.map(NodeId).into_iter().collect())
            }
        };
        let deadline = self.dice.chance(30).then(|| self.scene.world.now + Span::from_secs(45));
        let cluster = self.cluster();
        self.scene.by_itself(|rms, now, step| {
            let _ = rms.negotiations().open_shrink(now, step, (job, cluster), &wanted, deadline);
        });
    }

    fn server_offers(&mut self, job: JobId) {
        let (n_nodes, price) = (self.dice.number(1, 3), Price(self.dice.number(0, 1).into()));
        let cluster = self.cluster();
        self.scene.by_itself(|rms, now, step| {
            let _ = rms.negotiations().open_growth_offer(now, step, (job, cluster), n_nodes, price);
        });
    }

    fn any_node(&mut self) -> String {
        format!("n{}", self.dice.number(1, N_NODES))
    }

    fn deafens(&mut self) {
        let name = self.any_node();
        match self.scene.deaf.contains(&name) {
            true => self.scene.reconnect(&[&name]),
            false => self.scene.disconnect(&[&name]),
        }
    }

    /// Makes CPU masks fail on a node, or work again.
    fn hardens(&mut self) {
        let name = self.any_node();
        if !self.scene.stubborn.remove(&name) {
            self.scene.stubborn.insert(name);
        }
    }

    fn loses_a_node(&mut self) {
        let name = self.any_node();
        self.scene.event(Event::AgentGone { name: name.clone() });
        if self.dice.chance(50) {
            self.scene.after(Span::from_secs(70));
        }
        if self.dice.chance(70) {
            self.scene.node_joins(&name);
        }
    }

    fn drains(&mut self) {
        let (name, reason) = (self.any_node(), "fan".to_owned());
        let call = match self.dice.number(0, 3) {
            0 => Call::Drain { nodes: vec![name], reason },
            1 => Call::Down { nodes: vec![name], reason },
            _ => Call::Resume { nodes: vec![name] },
        };
        let _ = self.scene.call(call);
    }

    /// Notes messages so that they can be sent again.
    fn notes(&mut self, job: JobId, output: &Output) {
        let run = self.scene.apps[&job].run;
        self.said.extend(output.messages.iter().cloned().map(|message| (job, run, message)));
    }

    fn says_again(&mut self) {
        if self.said.is_empty() {
            return;
        }
        let idx = self.dice.number(0, self.said.len() as u32 - 1) as usize;
        let (job, run, message) = self.said[idx].clone();
        // Messages of an earlier execution would come over a channel of its own, which no longer exists.
        if self.scene.apps.get(&job).is_some_and(|app| app.run == run) {
            let _ = self.scene.negotiator_call(job, NegotiatorCall::Say(Box::new(message)));
        }
    }

    fn orders(&mut self, job: JobId) {
        let negotiations = self.scene.world.rms.state().jobs()[&job].negotiations.as_ref();
        let Some(negotiation) =
            negotiations.and_then(|negotiations| negotiations.open().next()).map(|negotiation| negotiation.id())
        else {
            return;
        };
        let order = if self.dice.chance(50) { Order::Withdraw } else { Order::Force };
        let _ = self.scene.call(Call::OrderNegotiation { job, negotiation, order });
    }

    /// Makes the job fail on one of its nodes.
    fn a_share_fails(&mut self, job: JobId) {
        let held = self.scene.held(job);
        let name = format!("n{}", held[self.dice.number(0, held.len() as u32 - 1) as usize]);
        let exit = match self.dice.number(0, 3) {
            0 => NodeExit::not_started("no space"),
            1 => NodeExit::Vanished { reason: "gone".to_owned() },
            2 => NodeExit::Exited { code: 0 },
            _ => NodeExit::Overstayed,
        };
        self.scene.ended(&name, job, exit);
    }

    /// Repairs all failures and ends all requests.
    fn heal(&mut self) {
        let names: Vec<String> = (1..=N_NODES).map(|number| format!("n{number}")).collect();
        self.scene.deaf.clear();
        self.scene.stubborn.clear();
        self.scene.set("offer_idle", "never");
        self.scene.set("shrink_for", "never");
        self.scene.call(Call::Resume { nodes: names.clone() }).expect("they are there");
        for name in &names {
            self.scene.node_joins(name);
        }
        for _ in 0..40 {
            let jobs: Vec<JobId> = self.scene.apps.keys().copied().collect();
            let running = |job: &JobId| self.scene.is_started(*job);
            for job in jobs.into_iter().filter(running).collect::<Vec<_>>() {
                let _ = self.attach(job);
            }
            self.scene.after(Span::from_mins(1));
        }
        self.scene.is_durable();
        let state = self.scene.world.rms.state();
        for (job, entry) in state.jobs() {
            let Some(negotiations) = &entry.negotiations else { continue };
            let open: Vec<_> = negotiations.open().map(|negotiation| (negotiation.id(), negotiation.phase())).collect();
            assert!(open.is_empty(), "job {job} still negotiates: {open:?}");
            assert!(entry.promised_nodes().next().is_none(), "job {job} still holds nodes");
            let awaits_agents = entry.started().is_some_and(|started| started.awaits_agents());
            assert!(!awaits_agents, "nobody knows how many cores job {job} has");
        }
        for (job, app) in self.scene.apps.iter().filter(|(_, app)| app.ended.is_none()) {
            let Some(entry) = state.jobs().get(job).filter(|entry| entry.run == app.run) else { continue };
            if entry.started().is_none_or(|started| started.ending.is_some()) {
                continue;
            }
            for dialogue in app.dialogues.all() {
                let (id, phase) = (dialogue.id(), dialogue.phase());
                assert!(phase.is_over(), "the application {job} waits for ever in {id}: {phase}");
                let negotiation = entry
                    .negotiations
                    .as_ref()
                    .and_then(|negotiations| negotiations.get(id))
                    .filter(|negotiation| negotiation.asking.is_none());
                let (ready, known) =
                    (phase == Phase::Applied, negotiation.map(|negotiation| negotiation.phase() == Phase::Applied));
                assert!(known.is_none_or(|known| known == ready), "{job} and the server disagree on {id}");
            }
        }
    }
}
