//! Process-management frames as they are on the wire, and back.

use rms_model::Span;
use rms_wire::peer::StepPart;
use rms_wire::peer::{Answer as WireAnswer, Command as WireCommand, NamedHost as WireHost, Pair as WirePair};
use rms_wire::peer::{Part as WirePart, Placement as WirePlacement, Question as WireQuestion, RankId as WireRank};
use rms_wire::vocabulary::Variable;
use rms_wire::{PmiDown, PmiUp};

use crate::pmi::frames::{Answer, Down, Pair, Part, Placement, Question, Up};
use crate::pmi::spawn::{Command, NamedHost};
use crate::pmi::{RankId, WorldId};
use crate::supervisor::order::StepOrder;

/// What a supervisor is told of a step, whose streams begin at `stream`.
pub fn step_order(step: StepPart, stream: u64) -> StepOrder {
    // Job and run have led here.
    let StepPart {
        job: _,
        run: _,
        step,
        argv,
        set,
        unset,
        cwd,
        umask,
        first_task,
        n_local,
        n_tasks,
        cpus_per_task,
        n_readers,
        nodes,
        n_nodes,
        node_idx,
        tasks_per_node,
        kvsname,
        mapping,
        universe,
        grace,
    } = step;
    StepOrder {
        stream,
        step,
        argv,
        set: set.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        unset,
        cwd,
        umask,
        first_task,
        n_local,
        n_tasks,
        cpus_per_task,
        n_readers,
        nodes,
        n_nodes,
        node_idx,
        tasks_per_node,
        kvsname,
        mapping,
        universe,
        grace: Span::from_millis(grace.max(0)),
    }
}

pub fn variable(name: &str, value: &str) -> Variable {
    Variable { name: name.to_owned(), value: value.to_owned() }
}

pub fn up_to_wire(up: Up) -> PmiUp {
    match up {
        Up::Hello => PmiUp::Hello,
        Up::Fence { world, seq, pairs } => PmiUp::Fence { world: world.0, seq, pairs: pairs_to_wire(pairs) },
        Up::Abort { code, message } => PmiUp::Abort { code, message },
        Up::Ask { from, id, question } => {
            PmiUp::Ask { from: rank_to_wire(from), id, question: question_to_wire(question) }
        }
        Up::Placed { world, problem } => PmiUp::Placed { world: world.0, problem },
        Up::Remaining { world, n_ranks } => PmiUp::Remaining { world: world.0, n_ranks },
        Up::Bye => PmiUp::Bye,
    }
}

/// Nothing for the word with which a channel begins.
pub fn up_from_wire(up: PmiUp) -> Option<Up> {
    Some(match up {
        PmiUp::Init { .. } => return None,
        PmiUp::Hello => Up::Hello,
        PmiUp::Fence { world, seq, pairs } => Up::Fence { world: WorldId(world), seq, pairs: pairs_from_wire(pairs) },
        PmiUp::Abort { code, message } => Up::Abort { code, message },
        PmiUp::Ask { from, id, question } => {
            Up::Ask { from: rank_from_wire(from), id, question: question_from_wire(question) }
        }
        PmiUp::Placed { world, problem } => Up::Placed { world: WorldId(world), problem },
        PmiUp::Remaining { world, n_ranks } => Up::Remaining { world: WorldId(world), n_ranks },
        PmiUp::Bye => Up::Bye,
    })
}

pub fn down_to_wire(down: Down) -> PmiDown {
    match down {
        Down::FenceDone { world, seq, pairs } => {
            PmiDown::FenceDone { world: world.0, seq, pairs: pairs_to_wire(pairs) }
        }
        Down::Answer { to, id, answer } => PmiDown::Answer { to: rank_to_wire(to), id, answer: answer_to_wire(answer) },
        Down::Place(placement) => PmiDown::Place(placement_to_wire(placement)),
        Down::Cancel { world } => PmiDown::Cancel { world: world.0 },
        Down::Noted { world, n_ranks } => PmiDown::Noted { world: world.0, n_ranks },
        Down::Aborted { code } => PmiDown::Aborted { code },
        Down::Over => PmiDown::Over,
    }
}

/// # Errors
/// Why the other agent does not listen.
pub fn down_from_wire(down: PmiDown) -> Result<Down, String> {
    Ok(match down {
        PmiDown::FenceDone { world, seq, pairs } => {
            Down::FenceDone { world: WorldId(world), seq, pairs: pairs_from_wire(pairs) }
        }
        PmiDown::Answer { to, id, answer } => {
            Down::Answer { to: rank_from_wire(to), id, answer: answer_from_wire(answer) }
        }
        PmiDown::Place(placement) => Down::Place(placement_from_wire(placement)),
        PmiDown::Cancel { world } => Down::Cancel { world: WorldId(world) },
        PmiDown::Noted { world, n_ranks } => Down::Noted { world: WorldId(world), n_ranks },
        PmiDown::Aborted { code } => Down::Aborted { code },
        PmiDown::Over => Down::Over,
        PmiDown::Refused { reason } => return Err(reason),
    })
}

fn pairs_to_wire(pairs: Vec<Pair>) -> Vec<WirePair> {
    pairs.into_iter().map(|Pair { key, value }| WirePair { key, value }).collect()
}

fn pairs_from_wire(pairs: Vec<WirePair>) -> Vec<Pair> {
    pairs.into_iter().map(|WirePair { key, value }| Pair { key, value }).collect()
}

fn rank_to_wire(RankId { world, rank }: RankId) -> WireRank {
    WireRank { world: world.0, rank }
}

fn rank_from_wire(WireRank { world, rank }: WireRank) -> RankId {
    RankId { world: WorldId(world), rank }
}

fn question_to_wire(question: Question) -> WireQuestion {
    match question {
        Question::Publish { service, port } => WireQuestion::Publish { service, port },
        Question::Unpublish { service } => WireQuestion::Unpublish { service },
        Question::Lookup { service } => WireQuestion::Lookup { service },
        Question::Spawn { commands, pairs } => {
            let commands = commands.into_iter().map(command_to_wire).collect();
            WireQuestion::Spawn { commands, pairs: pairs_to_wire(pairs) }
        }
    }
}

fn question_from_wire(question: WireQuestion) -> Question {
    match question {
        WireQuestion::Publish { service, port } => Question::Publish { service, port },
        WireQuestion::Unpublish { service } => Question::Unpublish { service },
        WireQuestion::Lookup { service } => Question::Lookup { service },
        WireQuestion::Spawn { commands, pairs } => {
            let commands = commands.into_iter().map(command_from_wire).collect();
            Question::Spawn { commands, pairs: pairs_from_wire(pairs) }
        }
    }
}

fn command_to_wire(command: Command) -> WireCommand {
    let Command { argv, n_ranks, hosts, wdir, path } = command;
    let hosts = hosts.into_iter().map(|NamedHost { node, slots }| WireHost { node, slots }).collect();
    WireCommand { argv, n_ranks, hosts, wdir, path }
}

fn command_from_wire(command: WireCommand) -> Command {
    let WireCommand { argv, n_ranks, hosts, wdir, path } = command;
    let hosts = hosts.into_iter().map(|WireHost { node, slots }| NamedHost { node, slots }).collect();
    Command { argv, n_ranks, hosts, wdir, path }
}

fn answer_to_wire(answer: Answer) -> WireAnswer {
    match answer {
        Answer::Published { ok } => WireAnswer::Published { ok },
        Answer::Unpublished { ok } => WireAnswer::Unpublished { ok },
        Answer::Found { port } => WireAnswer::Found { port },
        Answer::Spawned { n_ranks } => WireAnswer::Spawned { n_ranks },
        Answer::NotSpawned { reason } => WireAnswer::NotSpawned { reason },
    }
}

fn answer_from_wire(answer: WireAnswer) -> Answer {
    match answer {
        WireAnswer::Published { ok } => Answer::Published { ok },
        WireAnswer::Unpublished { ok } => Answer::Unpublished { ok },
        WireAnswer::Found { port } => Answer::Found { port },
        WireAnswer::Spawned { n_ranks } => Answer::Spawned { n_ranks },
        WireAnswer::NotSpawned { reason } => Answer::NotSpawned { reason },
    }
}

fn placement_to_wire(placement: Placement) -> WirePlacement {
    let Placement { world, kvsname, n_ranks, universe, first_task, parts, pairs } = placement;
    let parts = parts.into_iter().map(part_to_wire).collect();
    WirePlacement { world: world.0, kvsname, n_ranks, universe, first_task, parts, pairs: pairs_to_wire(pairs) }
}

fn placement_from_wire(placement: WirePlacement) -> Placement {
    let WirePlacement { world, kvsname, n_ranks, universe, first_task, parts, pairs } = placement;
    let parts = parts.into_iter().map(part_from_wire).collect();
    Placement { world: WorldId(world), kvsname, n_ranks, universe, first_task, parts, pairs: pairs_from_wire(pairs) }
}

fn part_to_wire(part: Part) -> WirePart {
    let Part { first_rank, n_ranks, appnum, argv, wdir, path } = part;
    WirePart { first_rank, n_ranks, appnum, argv, wdir, path }
}

fn part_from_wire(part: WirePart) -> Part {
    let WirePart { first_rank, n_ranks, appnum, argv, wdir, path } = part;
    Part { first_rank, n_ranks, appnum, argv, wdir, path }
}
