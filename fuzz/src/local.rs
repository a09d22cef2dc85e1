//! What programs of one node say to each other: commands inside a job, supervisors, ranks.

use node_agent::frame::{self, Decoder};
use node_agent::order::{FromSupervisor, ToSupervisor};
use node_agent::pmi::WorldId;
use node_agent::pmi::ranks::{Member, Ranks, WorldInit};
use node_agent::rsh;
use serde::de::DeserializeOwned;

/// As the socket has it, or as one message, for which the fuzzer need not find out lengths.
fn frames<M: DeserializeOwned>(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut decoder = Decoder::default();
    if mode % 2 == 0 {
        decoder.push(rest);
    } else {
        let mut whole = frame::bytes(0, b"");
        whole.truncate(5);
        whole[..4].copy_from_slice(&(rest.len() as u32).to_le_bytes());
        whole[4] = 0;
        // In two pieces, as a socket may cut it.
        decoder.push(&whole);
        decoder.push(rest);
    }
    while let Ok(Some(_)) = decoder.take::<M>() {}
}

pub fn rsh(input: &[u8]) {
    frames::<rsh::Call>(input);
    frames::<rsh::Say>(input);
    frames::<rsh::Request>(input);
    frames::<rsh::CommandEnd>(input);
}

pub fn supervisor(input: &[u8]) {
    frames::<ToSupervisor>(input);
    frames::<FromSupervisor>(input);
}

/// What processes that follow their CPUs say to their supervisor, and what it answers. What can be parsed is said alike.
pub fn malleable(input: &[u8]) {
    if let Some(request) = rms_malleable::Request::parse(input) {
        assert_eq!(rms_malleable::Request::parse(&request.to_bytes()).as_ref(), Some(&request));
    }
    if let Some(answer) = rms_malleable::Answer::parse(input) {
        assert!(answer.pids.len() <= rms_malleable::MOST_PROCESSES);
    }
}

/// Two ranks, which speak in turn.
pub fn pmi(input: &[u8]) {
    let member = |rank| Member { rank, task: rank, appnum: 0 };
    let mut ranks = Ranks::new(WorldInit {
        world: WorldId::FIRST,
        kvsname: "kvs_1_1_0".to_owned(),
        n_ranks: 2,
        universe: 4,
        pairs: Vec::new(),
        members: vec![member(0), member(1)],
    });
    let mut outs = Vec::new();
    for (idx, piece) in input.split_inclusive(|byte| *byte == 0).enumerate() {
        ranks.bytes(idx % 2, piece.strip_suffix(&[0]).unwrap_or(piece), &mut outs);
    }
}
