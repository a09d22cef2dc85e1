//! Frames of the wire: what is accepted parses or is refused, and its bytes stand for it again.

use rms_wire::codec::{HEADER_BYTES, Header, decode_frame, encode};
use rms_wire::parts::{AnswerParts, DesiredParts, ReportParts, ViewParts};
use rms_wire::{
    AnswerPart, ClientRequest, FollowOrder, Followed, Hello, HelloAnswer, Input, InputAt, JoinAnswer, JoinRequest,
    Kind, LauncherSays, LauncherTold, MasksAsked, MasksSeen, Message, NegotiatorSays, NegotiatorTold, PeerExec,
    PeerOpen, PmiDown, PmiUp, Spooled, StepDown, StepUp, ToAgent, ToServer,
};

/// The frame in these bytes, with a header that is right but for its kind.
fn framed(input: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let (header, payload) = input.split_first_chunk::<HEADER_BYTES>()?;
    let kind = Kind::from_number(Header::from_bytes(*header).kind)?;
    let header = Header { kind: kind.number(), version: 1, length: payload.len() as u32 };
    let mut frame = header.to_bytes().to_vec();
    frame.extend_from_slice(payload);
    Some((kind, frame))
}

/// Decodes, parses by `parse`, and compares with what its own bytes say.
fn again<M: Message + Clone>(frame: &[u8], parse: impl FnOnce(M)) {
    let Ok(message) = decode_frame::<M>(frame) else { return };
    parse(message.clone());
    // Fields may have come without their names, and with them it is too long.
    let Ok(bytes) = encode(&message) else { return };
    let twice = decode_frame::<M>(&bytes).expect("what was accepted can be sent");
    assert_eq!(encode(&twice).expect("as before"), bytes);
}

fn plain<M: Message + Clone>(frame: &[u8]) {
    again::<M>(frame, drop);
}

pub fn of_entry(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::Hello => plain::<Hello>(&frame),
        Kind::HelloAnswer => plain::<HelloAnswer>(&frame),
        Kind::JoinRequest => plain::<JoinRequest>(&frame),
        Kind::JoinAnswer => plain::<JoinAnswer>(&frame),
        _other_targets => {}
    }
}

pub fn of_agents(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::ToServer => again::<ToServer>(&frame, |message| {
            if let ToServer::Report(part) = message {
                drop(ReportParts::new().push(part));
            }
        }),
        Kind::ToAgent => again::<ToAgent>(&frame, |message| {
            if let ToAgent::Desire(part) = message {
                drop(DesiredParts::new().push(part));
            }
        }),
        Kind::FollowOrder => plain::<FollowOrder>(&frame),
        Kind::Spooled => plain::<Spooled>(&frame),
        Kind::MasksAsked => plain::<MasksAsked>(&frame),
        Kind::MasksSeen => plain::<MasksSeen>(&frame),
        _other_targets => {}
    }
}

pub fn of_clients(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::ClientRequest => plain::<ClientRequest>(&frame),
        Kind::AnswerPart => again::<AnswerPart>(&frame, |message| {
            if let AnswerPart { answer: Ok(answer), last } = message {
                drop(AnswerParts::new().push(answer, last));
            }
        }),
        Kind::Followed => plain::<Followed>(&frame),
        Kind::Input => plain::<Input>(&frame),
        Kind::InputAt => plain::<InputAt>(&frame),
        _other_targets => {}
    }
}

pub fn of_launchers(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::LauncherSays => plain::<LauncherSays>(&frame),
        Kind::LauncherTold => again::<LauncherTold>(&frame, |message| {
            if let LauncherTold::Changed(part) = message {
                drop(ViewParts::new().push(part));
            }
        }),
        _other_targets => {}
    }
}

pub fn of_negotiators(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::NegotiatorSays => plain::<NegotiatorSays>(&frame),
        Kind::NegotiatorTold => plain::<NegotiatorTold>(&frame),
        _other_targets => {}
    }
}

pub fn of_peers(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::PeerOpen => plain::<PeerOpen>(&frame),
        Kind::PmiUp => plain::<PmiUp>(&frame),
        Kind::PmiDown => plain::<PmiDown>(&frame),
        Kind::PeerExec => plain::<PeerExec>(&frame),
        Kind::StepDown => plain::<StepDown>(&frame),
        Kind::StepUp => plain::<StepUp>(&frame),
        _other_targets => {}
    }
}
