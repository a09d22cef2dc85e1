//! Applications that negotiate, and users who request changes for them, from a seed: all that they may do, in any
//! combination.

use negotiation::{Direction, NegotiationId, Price, Side};
use rms_api::Call;
use rms_api::negotiate::{Ask, Asked, Order};
use rms_model::{JobId, Mebibytes, OnResize, Sizes, Span};

use crate::application::{Absence, Answers, Manner, Promises, Want, Wanted, Weather};
use crate::dice::Dice;
use crate::people::{admin, user};
use crate::work::{ModelJob, rigid};
use crate::world::World;

/// Draws a job whose nodes may change while it runs.
pub(super) fn job(dice: &mut Dice, n_nodes: u32) -> ModelJob {
    let most = dice.number(1, n_nodes);
    let least = dice.number(1, most);
    let begins_with = dice.number(least, most);
    let wall = secs(dice, 20, 240);
    let job = rigid(begins_with, wall).runs(secs(dice, 5, 260));
    let job = if dice.chance(50) { job.as_script() } else { job };
    if dice.chance(75) {
        return job.negotiates(manner(dice, (least, most), n_nodes));
    }
    let ways = [OnResize::Signal(10), OnResize::Hook("adapt".to_owned()), OnResize::Workers, OnResize::Negotiates];
    let on_resize = dice.pick(&ways).expect("there are four").clone();
    let sizes = sizes(dice);
    let job = job.malleable((least, most), sizes, on_resize);
    // Some hooks never confirm.
    if dice.chance(80) { job.confirms_in(secs(dice, 0, 20)) } else { job }
}

/// Draws whether the job can go on without lost nodes.
pub(super) fn with_losses(dice: &mut Dice, mut job: ModelJob) -> ModelJob {
    let survives = *dice.pick(&[None, None, Some(true), Some(false)]).expect("there are four");
    match &mut job.manner {
        Some(manner) => manner.survives_loss = dice.chance(50),
        None => job.submission.malleable.iter_mut().for_each(|malleable| malleable.survives_loss = survives),
    }
    job
}

/// Draws what the job takes of each node, where jobs share nodes.
pub(super) fn with_parts(dice: &mut Dice, job: ModelJob) -> ModelJob {
    let cpus = *dice.pick(&[0, 1, 2, 3, 3]).expect("there are five");
    let memory = *dice.pick(&[0, 600, 1500]).expect("there are three");
    let mut job = job.cpus_per_task(cpus).memory(Mebibytes(memory));
    if cpus > 0 && dice.chance(30) {
        job.submission.resources.devices.add("gpu", dice.number(1, 2));
    }
    job
}

fn manner(dice: &mut Dice, (least, most): (u32, u32), n_nodes: u32) -> Manner {
    let n_wants = dice.number(0, 4);
    let answers = [
        Answers::ByItsSizes,
        Answers::ByItsSizes,
        Answers::ByItsSizes,
        Answers::Haggles { step: 7 },
        Answers::Declines,
        Answers::Ignores,
    ];
    let promises = match dice.number(0, 9) {
        0 => Promises::Breaks,
        1 => Promises::Fails,
        _ => Promises::Keeps,
    };
    Manner {
        sizes: sizes(dice),
        declares: dice.chance(80),
        breakpoint: secs(dice, 1, 12),
        thinks: if dice.chance(60) { Span::from_millis(10) } else { secs(dice, 0, 30) },
        last_minute: dice.chance(15),
        ceiling: Price(u64::from(dice.number(0, 60))),
        answers: *dice.pick(&answers).expect("there are six"),
        promises,
        wants: (0..n_wants).map(|_| want(dice, n_nodes)).collect(),
        clears_in: dice.chance(40).then(|| secs(dice, 0, 3)),
        absence: dice.chance(15).then(|| absence(dice)),
        lies: if dice.chance(15) { 40 } else { 0 },
        whims: if dice.chance(30) { 25 } else { 0 },
        skew: if dice.chance(20) { Span::from_secs(i64::from(dice.number(0, 7200)) - 3600) } else { Span::ZERO },
        weather: if dice.chance(50) { Weather::FINE } else { weather(dice) },
        ..Manner::between(least, most)
    }
}

fn want(dice: &mut Dice, n_nodes: u32) -> Want {
    let direction = if dice.chance(65) { Direction::Grow } else { Direction::Shrink };
    let what = match (direction, dice.number(0, 9)) {
        (_, 0..=3) => Wanted::Nodes,
        (_, 4) => Wanted::Elsewhere,
        (_, 5) => Wanted::OnBoth,
        (_, 6) => Wanted::OnEither,
        (Direction::Grow, 7) => Wanted::Time,
        (Direction::Grow, 8) => Wanted::NodesOrHalf,
        (Direction::Grow, _) => Wanted::NodesAndTime,
        (Direction::Shrink, _) => Wanted::Elsewhere,
    };
    let quantity = u64::from(dice.number(1, n_nodes + 2));
    Want {
        what,
        quantity,
        least: u64::from(dice.number(1, 3)).min(quantity),
        price: Price(u64::from(if dice.chance(60) { 0 } else { dice.number(0, 60) })),
        duration: dice.chance(20).then(|| secs(dice, 5, 60)),
        within: dice.chance(20).then(|| secs(dice, 1, 60)),
        valid_for: secs(dice, 1, 90),
        ..Want::nodes(direction, secs(dice, 0, 120), quantity)
    }
}

fn absence(dice: &mut Dice) -> Absence {
    let back_after = dice.chance(70).then(|| secs(dice, 0, 40));
    Absence { after: secs(dice, 0, 90), back_after, remembers: dice.chance(50) }
}

fn weather(dice: &mut Dice) -> Weather {
    let slowest = *dice.pick(&[1, 200, 5_000, 40_000]).expect("there are four");
    Weather { loss: dice.number(0, 60), twice: dice.number(0, 40), slowest: Span::from_millis(slowest) }
}

fn sizes(dice: &mut Dice) -> Sizes {
    match dice.number(0, 5) {
        0..=2 => Sizes::Any,
        3 => Sizes::PowerOfTwo,
        4 => Sizes::MultipleOf(u64::from(dice.number(1, 3))),
        _ => Sizes::Listed(vec![1, 2, 3, 5, 8]),
    }
}

/// The settings of negotiation that admins change.
const SETTINGS: [(&str, &str); 25] = [
    ("offer_idle", "never"),
    ("offer_idle", "equal_share"),
    ("offer_idle", "fewest_above_minimum"),
    ("offer_idle", "efficiency"),
    ("shrink_for", "never"),
    ("shrink_for", "priority"),
    ("shrink_for", "queue"),
    ("offer_recall", "never"),
    ("offer_recall", "priority"),
    ("offer_recall", "queue"),
    ("offer_valid", "5s"),
    ("offer_valid", "40s"),
    ("offer_again", "0s"),
    ("offer_again", "30s"),
    ("delay_tolerance", "0s"),
    ("delay_tolerance", "1m"),
    ("price", "0"),
    ("price", "40"),
    ("price_floor", "100"),
    ("price_floor", "50"),
    ("budget", "none"),
    ("budget", "50"),
    ("growth_limit", "none"),
    ("growth_limit", "3"),
    ("release_grace", "9s"),
];

/// Makes a user request a change for a job, intervene in a negotiation, or confirm an unknown change.
pub(super) fn act(dice: &mut Dice, world: &mut World, n_nodes: u32) {
    let in_system: Vec<JobId> = world.journal.shadow().jobs().keys().copied().collect();
    let some_job = dice.pick(&in_system).copied().unwrap_or(JobId(1));
    let known = world.journal.shadow().jobs().get(&some_job);
    let run = known.map(|entry| entry.run);
    if dice.chance(10) {
        let (key, value) = *dice.pick(&SETTINGS).expect("there are some");
        world.call(&admin(), Call::Set { key: key.to_owned(), value: value.to_owned() });
        return;
    }
    let by = if dice.chance(50) { admin() } else { user(dice.pick(&["ann", "bob", "cid"]).expect("there are three")) };
    match (dice.number(0, 9), run) {
        (0..=4, _) => {
            let ask = ask(dice, n_nodes);
            world.negotiate(&by, some_job, ask);
        }
        (5, Some(run)) => {
            let names: Vec<String> = world.nodes.iter().map(|node| node.name.clone()).collect();
            let node = dice.pick(&names).expect("a world has nodes").clone();
            let ask = ask(dice, n_nodes);
            world.agent_asks((some_job, run), &node, ask);
        }
        (6..=8, _) => {
            let all =
                known.and_then(|entry| entry.negotiations.as_ref()).map(|negotiations| negotiations.all.as_slice());
            let ids: Vec<NegotiationId> = all.unwrap_or_default().iter().map(|negotiation| negotiation.id()).collect();
            let none = NegotiationId { initiator: Side::Rms, number: 9 };
            let negotiation = dice.pick(&ids).copied().unwrap_or(none);
            let order = if dice.chance(50) { Order::Withdraw } else { Order::Force };
            world.call(&by, Call::OrderNegotiation { job: some_job, negotiation, order });
        }
        _ => {
            let generation = dice.number(0, 4);
            world.call(&by, Call::ResizeDone { job: some_job, generation });
        }
    }
}

/// Makes an admin change the cores, memory or devices of a running job, on one of its nodes or on all of a cluster: one
/// change follows another while other jobs have what it gave back. Returns false if no job runs.
pub(super) fn change_parts(dice: &mut Dice, world: &mut World) -> bool {
    let state = world.journal.shadow();
    let running = state.jobs().iter().filter(|(_, entry)| entry.started().is_some_and(|run| run.ending.is_none()));
    let running: Vec<JobId> = running.map(|(job, _)| *job).collect();
    let Some(job) = dice.pick(&running).copied() else { return false };
    let held = state.jobs()[&job].nodes().to_vec();
    let node = dice.pick(&held).and_then(|node| state.nodes().get(node));
    let Some(node) = node.map(|node| node.name.clone()) else { return false };
    let nodes = if dice.chance(70) { vec![node] } else { Vec::new() };
    let (what, quantity) = match dice.number(0, 4) {
        0..=2 => (Asked::Cores { cluster: None }, dice.number(1, 2)),
        3 => (Asked::Memory { cluster: None }, dice.number(1, 500)),
        _ => (Asked::Devices { cluster: None, name: "gpu".to_owned() }, 1),
    };
    let ask = Ask {
        direction: if dice.chance(40) { Direction::Grow } else { Direction::Shrink },
        what,
        quantity: quantity.into(),
        least: 1,
        sizes: Sizes::Any,
        price: Price(0),
        duration: None,
        nodes,
        wait: if dice.chance(70) { Span::ZERO } else { secs(dice, 0, 40) },
    };
    world.negotiate(&admin(), job, ask);
    true
}

fn ask(dice: &mut Dice, n_nodes: u32) -> Ask {
    let cluster = dice.pick(&CLUSTERS).copied().flatten().map(str::to_owned);
    let (what, quantity) = match dice.number(1, 20) {
        1..=3 => (Asked::Time, u64::from(dice.number(1, 60)) * 1000),
        4..=7 => (Asked::Cores { cluster }, u64::from(dice.number(1, 4))),
        8 => (Asked::Memory { cluster }, u64::from(dice.number(1, 400))),
        9 => (Asked::Devices { cluster, name: "gpu".to_owned() }, u64::from(dice.number(1, 2))),
        10 => (Asked::Licences { cluster, name: "matlab".to_owned() }, u64::from(dice.number(1, 2))),
        _ => (Asked::Nodes { cluster }, u64::from(dice.number(1, n_nodes + 1))),
    };
    Ask {
        direction: if dice.chance(65) { Direction::Grow } else { Direction::Shrink },
        what,
        quantity,
        least: quantity.min(u64::from(dice.number(1, 3))),
        sizes: sizes(dice),
        price: Price(u64::from(if dice.chance(60) { 0 } else { dice.number(0, 60) })),
        duration: dice.chance(20).then(|| secs(dice, 5, 60)),
        nodes: Vec::new(),
        wait: if dice.chance(50) { Span::ZERO } else { secs(dice, 0, 40) },
    }
}

/// The clusters whose nodes are asked for by name.
const CLUSTERS: [Option<&str>; 5] = [None, None, None, Some("a"), Some("b")];

fn secs(dice: &mut Dice, least: u32, most: u32) -> Span {
    dice.span(Span::from_secs(i64::from(least)), Span::from_secs(i64::from(most)))
}
